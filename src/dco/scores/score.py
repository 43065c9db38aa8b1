"""The base class of scores: `observed` for the label that happened, and `sets`, its inverse."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Bools, Floats, Integers
from dco.foundations.errors import IncompatibleScoreError
from dco.predictions import Prediction
from dco.scores.thresholds import AnyThreshold
from dco.sets.prediction_sets import PredictionSets

Record = TypeVar("Record")


class Score(ABC):
    """A fixed function of a prediction and a label; larger is stranger.

    `needs` lists the prediction records that the score can read, the most specific first. A score
    is a frozen dataclass whose fields are its parameters, so that it can be compared, hashed,
    printed and written into a certificate. ``sets(prediction, t).contains(y)`` equals
    ``observed(prediction, y) <= t`` exactly. Scores of your own derive from this class.
    """

    needs: ClassVar[tuple[type, ...]]
    randomised = False  # whether the score needs one uniform number per row

    @abstractmethod
    def observed(self, prediction: Any, y: ArrayLike) -> Floats:
        """Score the label that happened, (n,)."""

    @abstractmethod
    def sets(self, prediction: Any, threshold: AnyThreshold) -> PredictionSets:
        """Return the set of each row: all labels whose score is at most the threshold."""

    def every_label(self, prediction: Any) -> Floats:
        """Score every label, (n, K). Only scores of classes can."""
        raise IncompatibleScoreError(
            f"{type(self).__name__} does not give every label's score: no every_label(prediction)."
        )

    def sizes(self, prediction: Any, threshold: AnyThreshold) -> Floats | Integers:
        """Return the size of each set, (n,)."""
        return self.sets(prediction, threshold).sizes()

    def sizes_at_several(
        self, prediction: Any, thresholds: Sequence[AnyThreshold] | Floats
    ) -> Floats | Integers:
        """Return the sizes of the sets at several thresholds, (J, n)."""
        sizes: list[Any] = [self.sizes(prediction, threshold) for threshold in thresholds]
        return np.reshape(sizes, (len(thresholds), len(prediction)))

    def fitted(self, y: ArrayLike) -> Score:
        """Return the score with what it learns from training targets; most learn nothing."""
        return self


class CompositeScore(Score):
    """A score made of other scores, which are among its fields.

    Most wrap one, in the field `score`, and read the same prediction records as that one.
    """

    score: Score

    @property
    def needs(self) -> tuple[type, ...]:  # type: ignore[override]
        """The prediction records that `score` reads, the most specific first."""
        return self.score.needs

    @property
    def randomised(self) -> bool:  # type: ignore[override]  # a fact of the class elsewhere
        """Whether one of its scores is randomised, and so needs one uniform number per row."""
        return any(part.randomised for part in self.parts())

    def fitted(self, y: ArrayLike) -> Score:
        """Return the score with what `score` learns from training targets."""
        if "score" not in vars(self):
            return self
        return replace(self, score=self.score.fitted(y))  # type: ignore[type-var]

    def parts(self) -> list[Score]:
        """List the scores among the fields, those in a tuple included."""
        parts = []
        for value in vars(self).values():
            items = value if isinstance(value, tuple) else (value,)
            parts += [item for item in items if isinstance(item, Score)]
        return parts


def expect(score: object, prediction: Prediction, *records: type[Record]) -> Record:
    """Return the prediction if it is one of these records; refuse it with an error otherwise.

    `records` are classes such as `Points` or `Quantiles`; `score` is named in the error.
    """
    if isinstance(prediction, records):
        return prediction
    names = " or ".join(record.__name__ for record in records)
    raise IncompatibleScoreError(
        f"{type(score).__name__} needs {names}, but the prediction is {type(prediction).__name__}."
    )


def membership_by_score(
    score: Score, prediction: Any, threshold: float | Floats
) -> Callable[[ArrayLike], Bools]:
    """Return a function of y (one per row) that tells whether observed(prediction, y) <= threshold.

    Sets get this function, which decides what `contains` answers. Their ends alone could disagree
    with the score by rounding: |y - mean| <= t and mean - t <= y <= mean + t differ for some y next
    to an end, and a log-density is not even monotone there at the scale of rounding. The ends that
    a score gives to a set are rounded outwards, so that they hold all that is in it.
    """
    return partial(_scores_at_most, score, prediction, threshold)


def _scores_at_most(
    score: Score, prediction: Any, threshold: float | Floats, y: ArrayLike
) -> Bools:
    return np.asarray(score.observed(prediction, y) <= threshold)
