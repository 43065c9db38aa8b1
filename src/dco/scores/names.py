"""Names of scores: what a user may write for them, and what rankings and certificates print."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from itertools import count
from typing import Any

import numpy as np

from dco.scores.score import Score

_LONGEST_VALUE = 60  # characters of a parameter in the name of a score


def checked_score(score: Any) -> Score:
    """Return the score, or say what it is instead."""
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
    """Return scores by name, from a score, a short name, a list of these or a dict; None for None.

    `scores_called` looks up a short name.
    """
    if scores is None:
        return None
    if isinstance(scores, Score):
        return {score_label(scores): scores}
    if isinstance(scores, Mapping):
        by_name = {name: checked_score(score) for name, score in scores.items()}
    else:
        by_name = named_scores(_listed_scores(scores, scores_called))
    if not by_name:
        raise ValueError(
            "scores is empty: pass None for all scores that suit the models, or name some."
        )
    return by_name


def _listed_scores(scores: Any, scores_called: Callable[[str], Sequence[Score]]) -> list[Any]:
    """Return the scores of a list, with short names looked up."""
    listed: list[Any] = []
    for item in scores if isinstance(scores, (list, tuple)) else [scores]:
        listed += scores_called(item) if isinstance(item, str) else [item]
    return listed


def named_scores(scores: Iterable[Any]) -> dict[str, Score]:
    """Name each score by its label, numbered where different scores share one."""
    taken: dict[str, Hashable] = {}
    return {free_label(checked_score(score), taken): score for score in scores}


def free_label(score: Score, taken: dict[str, Hashable]) -> str:
    """Take the label of a score, or the first numbered one that no other score has."""
    label = score_label(score)
    identity = identity_of(score)
    if taken.setdefault(label, identity) == identity:
        return label
    for number in count(2):
        numbered = f"{label}-{number}"
        if taken.setdefault(numbered, identity) == identity:
            return numbered
    raise AssertionError("count() does not end")


def identity_of(thing: Any) -> Hashable:
    """Return what is equal for equal objects: the digest of what an object holds.

    An object that is changed in place becomes another. One that cannot be written down equals only
    itself.
    """
    import joblib

    try:
        digest: str = joblib.hash(thing)
    except Exception:  # whatever a user's object raises when it is written down
        return id(thing)
    return digest


def score_label(score: Score) -> str:
    """Write a score as its class with the parameters that are not at their default.

    Such as LAC, RAPS(penalty=0.1, rank_free=1) or NeverEmpty(LAC).
    """
    if not is_dataclass(score) and type(score).__repr__ is not object.__repr__:
        return repr(score)

    shown = []
    for name, value in _parameters(score).items():
        text = score_label(value) if isinstance(value, Score) else f"{name}={_show(value)}"
        shown.append(text)
    return type(score).__name__ + (f"({', '.join(shown)})" if shown else "")


def _parameters(score: Score) -> dict[str, Any]:
    """Return the parameters that are not at their default, by name."""
    if not is_dataclass(score):  # the default repr holds an address, which differs in every run
        return vars(score)
    parameters = {}
    for field in fields(score):
        value = getattr(score, field.name)
        if not np.array_equal(value, field.default):
            parameters[field.name] = value
    return parameters


def _show(value: Any) -> str:
    """Write the value of a parameter: a function by its name, a long value by its digest.

    No address is written, which would differ in every run.
    """
    if isinstance(value, np.ndarray):
        shape = " x ".join(map(str, value.shape))
        return f"<{shape} {_text_digest(repr(value.tolist()))}>"
    if isinstance(value, tuple | list):
        text = "(" + ", ".join(_show(part) for part in value) + ")"
    elif callable(value):
        text = str(getattr(value, "__name__", type(value).__name__))
    else:
        text = repr(value)

    if " at 0x" in text:
        text = type(value).__name__
    if len(text) > _LONGEST_VALUE:
        return f"<{type(value).__name__} {_text_digest(text)}>"
    return text


def _text_digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=4).hexdigest()
