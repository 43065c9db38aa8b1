"""A residual score divided by its usual size at that prediction, so that one threshold covers low
and high predictions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats
from dco.predictions import fifths
from dco.scores.registry import register
from dco.scores.score import CompositeScore, Score, at_most
from dco.scores.thresholds import AnyThreshold, thresholds_of_rows


@dataclass(frozen=True)
class Levelled(CompositeScore):
    """`score` / f(prediction), f linear between (`places`, `factors`) and constant beyond: for
    scores that are not negative.

    `Levelled.of` takes for f the quantile of the tuning scores in each fifth of the prediction, so
    that every fifth of the tuning rows is covered about alike. f is fixed before calibration rows
    are seen: calibration is as exact as for `score`.
    """

    score: Score
    places: tuple[float, ...]
    factors: tuple[float, ...]

    @classmethod
    def of(cls, score: Score, centres: Floats, scores: Floats, *, alpha: float) -> Levelled | None:
        """Learn from tuning rows: their predictions and scores.

        Return None where a score is negative, or where a fifth has no positive finite quantile.
        """
        fifth_of_row = fifths(centres)
        places: list[float] = []
        factors: list[float] = []
        for fifth in np.unique(fifth_of_row):
            rows = fifth_of_row == fifth
            places.append(float(np.median(centres[rows])))

            # the score that the share alpha of the fifth's rows exceeds
            ordered = np.sort(scores[rows])
            n_missed = int(len(ordered) * alpha)
            factors.append(float(ordered[len(ordered) - n_missed - 1]))

        if not np.all(scores >= 0) or min(factors) <= 0 or max(factors) == np.inf:
            return None
        return cls(score, tuple(places), tuple(factors))

    def observed(self, prediction: Any, y: ArrayLike) -> Floats:
        """Return the score of y over the factor of its row, (n,)."""
        with np.errstate(over="ignore"):
            return np.asarray(self.score.observed(prediction, y) / self._factors(prediction))

    def sets(self, prediction: Any, threshold: AnyThreshold) -> Any:
        """Return the sets of `score` at the threshold times each row's factor."""
        limit = thresholds_of_rows(threshold, len(prediction))
        limit_of_score = limit * self._factors(prediction)
        # A rounded quotient s / f of at most t means s <= t f (1 + 2**-53), and t f is rounded too.
        # Three floats up, the limit is not below the score of any member.
        for _ in range(3):
            limit_of_score = np.nextafter(limit_of_score, np.inf)
        sets = self.score.sets(prediction, limit_of_score)
        return replace(sets, member=at_most(self, prediction, limit))  # type: ignore[type-var]

    def sizes(self, prediction: Any, threshold: AnyThreshold) -> Any:
        """Return the sizes of those sets, without rounding their ends outwards."""
        limit = thresholds_of_rows(threshold, len(prediction))
        return self.score.sizes(prediction, limit * self._factors(prediction))

    def _factors(self, prediction: Any) -> Floats:
        """Return what the scores of each row are divided by."""
        return np.asarray(np.interp(prediction.centres, self.places, self.factors))


register(Levelled, records=())
