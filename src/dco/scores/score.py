"""What every score offers: `observed` for the label that happened, and `sets`, its inverse."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import chain, count
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Bools, Floats, Integers
from dco.foundations.errors import IncompatibleScoreError
from dco.foundations.ranks import Threshold, WeightedThresholds
from dco.predictions import Prediction
from dco.sets.prediction_sets import PredictionSets

Cutoff: TypeAlias = Threshold | WeightedThresholds | float | Floats

Record = TypeVar("Record")

# not -inf: an infinite threshold means that there are too few calibration rows
LEAST = -float(np.finfo(np.float64).max)


class Score(ABC):
    """A fixed function of a prediction and a label; larger is stranger. Scores of your own derive
    from it.

    `needs` lists the prediction records that the score can read, the most specific first. A score
    is a frozen dataclass whose fields are its parameters, so that it can be compared, hashed,
    printed and written into a certificate. ``sets(prediction, t).contains(y)`` equals
    ``observed(prediction, y) <= t`` exactly.
    """

    needs: ClassVar[tuple[type, ...]]
    randomised = False  # whether the score needs one uniform number per row

    @abstractmethod
    def observed(self, prediction: Any, y: ArrayLike) -> Floats:
        """The score of the label that happened, (n,)."""

    @abstractmethod
    def sets(self, prediction: Any, threshold: Cutoff) -> PredictionSets:
        """All labels whose score is at most the threshold."""

    def fitted(self, y: ArrayLike) -> Score:
        """The score with what it learns from training targets, before any other row is seen; most
        learn nothing.
        """
        return self

    def sizes(self, prediction: Any, threshold: Cutoff) -> Floats | Integers:
        """The size of each set, (n,)."""
        return self.sets(prediction, threshold).sizes()

    def sizes_at_several(
        self, prediction: Any, thresholds: Sequence[Cutoff] | Floats
    ) -> Floats | Integers:
        """The sizes of the sets at several thresholds, (J, n)."""
        return np.reshape(
            [self.sizes(prediction, each) for each in thresholds],
            (len(thresholds), len(prediction)),
        )

    def every_label(self, prediction: Any) -> Floats:
        """The score of every label, (n, K); for scores of classes that offer it."""
        raise IncompatibleScoreError(
            f"{type(self).__name__} does not give every label's score: no every_label(prediction)."
        )


class OfScores(Score):
    """A score made of others: of one, `score`, whose records it reads, or of several."""

    score: Score

    @property
    def needs(self) -> tuple[type, ...]:  # type: ignore[override]
        """The records that `score` reads."""
        return self.score.needs

    @property
    def randomised(self) -> bool:  # type: ignore[override]  # a fact of the class elsewhere, here of the scores inside
        """Whether one of the scores is, and so needs one uniform per row."""
        return any(part.randomised for part in _parts(self))

    def fitted(self, y: ArrayLike) -> Score:
        """With what `score` learns from training targets."""
        one = "score" in vars(self)
        return replace(self, score=self.score.fitted(y)) if one else self  # type: ignore[type-var]


def _parts(score: Score) -> list[Score]:
    listed = (value if isinstance(value, tuple) else (value,) for value in vars(score).values())
    return [part for each in listed for part in each if isinstance(part, Score)]


def at_most(
    score: Score, prediction: Any, threshold: float | Floats
) -> Callable[[ArrayLike], Bools]:
    """Membership decided by the score itself: y -> observed(prediction, y) <= threshold.

    In floating point |y - mean| <= t and mean - t <= y <= mean + t differ for some y next to an
    end, and a log-density is not even monotone there at the scale of rounding. This is what
    `contains` asks; the ends that a score gives to a set are rounded outwards, so that they hold
    all that is in it.
    """
    return partial(_is_at_most, score, prediction, threshold)


def _is_at_most(score: Score, prediction: Any, threshold: float | Floats, y: ArrayLike) -> Bools:
    return np.asarray(score.observed(prediction, y) <= threshold)


def expect(score: object, prediction: Prediction, *kinds: type[Record]) -> Record:
    """`prediction` if it is one of `kinds`, otherwise an error that names both sides."""
    if isinstance(prediction, kinds):
        return prediction
    names = " or ".join(kind.__name__ for kind in kinds)
    raise IncompatibleScoreError(
        f"{type(score).__name__} needs {names}, but the prediction is {type(prediction).__name__}."
    )


def cutoff(threshold: Cutoff, n: int, n_classes: int | None = None) -> float | Floats:
    """The threshold as a float, or as an array that broadcasts to (n, K): (n, 1) per row, (1, K)
    per label, or (n, K).

    For regression (`n_classes` None) an array is returned as (n,).
    """
    if isinstance(threshold, Threshold):
        return threshold.value
    values = np.asarray(threshold)
    if isinstance(threshold, WeightedThresholds) and values.ndim == 1 and n_classes is not None:
        values = values[:, None]  # one per row, never one per label
    if values.dtype.kind in "iub":
        values = values.astype(np.float64)
    if values.dtype.kind != "f" or np.any(np.isnan(values)):
        raise ValueError(f"a threshold must be a number and not NaN, got {threshold!r}.")
    if values.ndim == 0:
        return float(values)
    if n_classes is None:
        if values.shape == (n,):
            return values
        raise ValueError(f"thresholds per row must have shape ({n},), got {values.shape}.")
    if values.shape in ((n, 1), (1, n_classes), (n, n_classes)):
        return values
    if values.shape == (n,) and (n != n_classes or n == 1):
        return values[:, None]
    if values.shape == (n_classes,) and n != n_classes:
        return values[None, :]
    if values.shape == (n,):
        raise ValueError(
            f"{n} thresholds for {n} rows and {n} labels: pass shape ({n}, 1) for one per row or "
            f"(1, {n}) for one per label."
        )
    raise ValueError(
        f"thresholds must have shape ({n},), per row, ({n_classes},), per label, or ({n}, "
        f"{n_classes}), got {values.shape}."
    )


def checked_score(score: Any) -> Score:
    """The score, or one sentence on what it is instead."""
    if isinstance(score, Score):
        return score
    if isinstance(score, type):
        raise ValueError(
            f"a score is needed, got the class {score.__name__}: make a score of it, "
            f"{score.__name__}(...)."
        )
    if callable(getattr(score, "observed", None)):
        name = type(score).__name__
        raise ValueError(
            f"{name} has observed but is no dco.scores.Score: write class {name}(dco.scores.Score)."
        )
    raise ValueError(f"a score must be a score such as those of dco.scores, got {score!r:.200}.")


def is_ours(score: Score) -> bool:
    """Whether the score and those that it is made of are dco's own, whose sets the tests compare
    with their scores.
    """
    ours = type(score).__module__.partition(".")[0] == "dco"
    return ours and (not isinstance(score, OfScores) or all(map(is_ours, _parts(score))))


def check_inverse(score: Score, prediction: Prediction, y: ArrayLike, scores: Floats) -> None:
    """Refuse a user's score whose sets leave out labels that score below the threshold: then no
    rank promises anything.

    Larger sets than the scores ask for (an interval around a union, say) cost size and keep the
    promise. The sets are asked for a little above the threshold, where rounding, in single
    precision too, cannot cost a label.
    """
    # `NeverEmpty` gives LEAST: a margin from there hides all
    finite = scores[np.isfinite(scores) & (scores != LEAST)]
    if is_ours(score) or not finite.size:
        return
    low, *thresholds = np.quantile(finite, (0.1, 0.5, 0.9), method="inverted_cdf")
    margin = 1e-3 * (thresholds[-1] - low)
    for threshold in thresholds:
        below = scores <= threshold
        lost = below & ~score.sets(prediction, float(threshold + margin)).contains(y)
        if lost.any():
            raise ValueError(
                f"the sets of {type(score).__name__} leave out {lost.sum()} of {below.sum()} "
                f"labels whose scores are at "
                f"most {threshold:.4g}, the threshold (row {int(np.flatnonzero(lost)[0])}): "
                f"sets(prediction, t) must hold "
                "every label with observed(prediction, label) <= t."
            )


def named_scores(scores: Iterable[Score]) -> dict[str, Score]:
    """{name: score}: each by its label, numbered where different scores share one; equal scores are
    one.
    """
    taken: dict[str, Hashable] = {}
    return {own_label(checked_score(score), taken): score for score in scores}


def given_scores(scores: Any, called: Callable[[str], Sequence[Score]]) -> dict[str, Score] | None:
    """{name: score} of a score, a short name (which `called` looks up), a list or a dict; None for
    all that suit.
    """
    if scores is None:
        return None
    if isinstance(scores, Score):
        return {score_label(scores): scores}
    if isinstance(scores, Mapping):
        named = {name: checked_score(score) for name, score in scores.items()}
    else:
        listed = scores if isinstance(scores, (list, tuple)) else [scores]
        named = named_scores(
            [
                score
                for each in listed
                for score in (called(each) if isinstance(each, str) else [each])
            ]
        )
    if not named:
        raise ValueError(
            "scores is empty: pass None for all scores that suit the models, or name some."
        )
    return named


def own_label(score: Score, taken: dict[str, Hashable]) -> str:
    """The label, or the first numbered one that no other score has taken."""
    label, identity = score_label(score), identity_of(score)
    names = chain([label], (f"{label}-{number}" for number in count(2)))
    return next(name for name in names if taken.setdefault(name, identity) == identity)


def identity_of(thing: Any) -> Hashable:
    """Equal for equal things, so that one changed in place is another; what cannot be written down
    equals only itself.
    """
    import joblib

    try:
        digest: str = joblib.hash(thing)
    except Exception:  # whatever a user's object raises when it is written down
        return id(thing)
    return digest


def score_label(score: Score) -> str:
    """LAC, RAPS(penalty=0.1, rank_free=1), NeverEmpty(LAC): the class, with parameters that are not
    at their default.
    """
    if is_dataclass(score):
        known = {entry.name: (getattr(score, entry.name), entry.default) for entry in fields(score)}
        given = {
            name: value
            for name, (value, usual) in known.items()
            if not np.array_equal(value, usual)
        }
    elif type(score).__repr__ is not object.__repr__:
        return repr(score)
    else:  # the default repr holds an address, which is another in every run
        given = vars(score)
    shown = ", ".join(
        score_label(value) if isinstance(value, Score) else f"{name}={_shown(value)}"
        for name, value in given.items()
    )
    return type(score).__name__ + (f"({shown})" if shown else "")


def _shown(value: Any, *, longest: int = 60) -> str:
    """Show the value of a parameter: functions by name, what would fill the line by its digest.

    Arrays are shown by shape and digest. No address is shown, which is another in every run.
    """
    if isinstance(value, np.ndarray):
        shape = " x ".join(map(str, value.shape))
        return f"<{shape} {_text_digest(repr(value.tolist()))}>"
    if isinstance(value, tuple | list):
        text = "(" + ", ".join(_shown(part) for part in value) + ")"
    elif callable(value):
        text = str(getattr(value, "__name__", type(value).__name__))
    else:
        text = repr(value)
    if " at 0x" in text:
        text = type(value).__name__
    return text if len(text) <= longest else f"<{type(value).__name__} {_text_digest(text)}>"


def _text_digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=4).hexdigest()
