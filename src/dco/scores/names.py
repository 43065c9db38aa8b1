"""Names of scores: what a user may write for them, and what rankings and certificates print."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from dco.scores.score import Score

_LONGEST_VALUE = 60  # characters of a parameter in the name of a score


def checked_score(score: Any) -> Score:
    """Return a score that a user gave; if it is none, raise an error that says what to write."""
    if isinstance(score, Score):
        return score
    if isinstance(score, type):
        raise ValueError(
            f"expected a score, got the class {score.__name__}: write {score.__name__}(...)."
        )
    if callable(getattr(score, "observed", None)):
        name = type(score).__name__
        raise ValueError(
            f"{name} must subclass dco.scores.Score: write class {name}(dco.scores.Score)."
        )
    raise ValueError(f"expected a score such as those of dco.scores, got {score!r:.200}.")


def given_scores(
    scores: Any, scores_called: Callable[[str], Sequence[Score]]
) -> dict[str, Score] | None:
    """Read the argument scores= of an estimator: return scores by name, or None for None.

    It may be a score, a short name such as "aps", a list of these, or a dict of scores by name.
    `scores_called` returns the scores that a short name stands for.
    """
    if scores is None:
        return None
    if isinstance(scores, Score):
        return {score_label(scores): scores}
    if isinstance(scores, Mapping):
        by_name = {name: checked_score(score) for name, score in scores.items()}
    else:
        by_name = named_scores(_look_up_short_names(scores, scores_called))
    if not by_name:
        raise ValueError(
            "scores is empty: pass None for all scores that suit the models, or name some."
        )
    return by_name


def _look_up_short_names(scores: Any, scores_called: Callable[[str], Sequence[Score]]) -> list[Any]:
    """Return a list of scores in which short names are replaced: ["aps", LAC()] -> [APS(), LAC()].

    `scores` may also be one score or one short name; see `given_scores`.
    """
    items = scores if isinstance(scores, (list, tuple)) else [scores]
    looked_up: list[Any] = []
    for item in items:
        looked_up += scores_called(item) if isinstance(item, str) else [item]
    return looked_up


def named_scores(scores: Iterable[Any]) -> dict[str, Score]:
    """Name each score by its label, with a number added where different scores have the same."""
    identity_by_label: dict[str, Hashable] = {}
    return {free_label(checked_score(score), identity_by_label): score for score in scores}


def free_label(score: Score, identity_by_label: dict[str, Hashable]) -> str:
    """Find a label for a score that no other score has, and enter it: "RAPS", "RAPS-2", ...

    `identity_by_label` says which labels are taken, and by which score (see `identity_of`). A score
    that has a label already gets the same again.
    """
    label = score_label(score)
    identity = identity_of(score)
    if identity_by_label.setdefault(label, identity) == identity:
        return label

    number = 2
    while identity_by_label.setdefault(f"{label}-{number}", identity) != identity:
        number += 1
    return f"{label}-{number}"


def identity_of(thing: Any) -> Hashable:
    """Return a key that is equal for equal objects: a digest of all that the object holds.

    An object that is changed in place gets another key. One of which no digest can be made equals
    only itself.
    """
    import joblib

    try:
        digest: str = joblib.hash(thing)
    except Exception:  # whatever a user's object raises when it is pickled for the digest
        return id(thing)
    return digest


def score_label(score: Score) -> str:
    """Write a score as its class with the parameters that are not at their default.

    Such as LAC, RAPS(penalty=0.1, rank_free=1) or NeverEmpty(LAC). A class that is no dataclass and
    has a repr of its own is written by that.
    """
    has_own_repr = type(score).__repr__ is not object.__repr__
    if has_own_repr and not is_dataclass(score):
        return repr(score)

    texts = []
    for name, value in _changed_parameters(score).items():
        is_score = isinstance(value, Score)
        texts.append(score_label(value) if is_score else f"{name}={_write_value(value)}")
    class_name = type(score).__name__
    return f"{class_name}({', '.join(texts)})" if texts else class_name


def _changed_parameters(score: Score) -> dict[str, Any]:
    """Return the parameters of a score that are not at their default, by name."""
    if not is_dataclass(score):  # no defaults are known
        return vars(score)
    parameters = {}
    for field in fields(score):
        value = getattr(score, field.name)
        if not np.array_equal(value, field.default):
            parameters[field.name] = value
    return parameters


def _write_value(value: Any) -> str:
    """Write the value of a parameter in one line that is the same in every run.

    - an array by its shape and a digest, "<2 x 3 5f1d36a2>", and any long value by a digest
    - a function by its name
    - an object whose repr holds its address in memory by its class
    """
    if isinstance(value, np.ndarray):
        shape = " x ".join(map(str, value.shape))
        return f"<{shape} {_short_digest(repr(value.tolist()))}>"

    if isinstance(value, tuple | list):
        text = "(" + ", ".join(_write_value(item) for item in value) + ")"
    elif callable(value):
        text = str(getattr(value, "__name__", type(value).__name__))
    else:
        text = repr(value)

    has_address = " at 0x" in text
    if has_address:
        text = type(value).__name__
    if len(text) > _LONGEST_VALUE:
        return f"<{type(value).__name__} {_short_digest(text)}>"
    return text


def _short_digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=4).hexdigest()
