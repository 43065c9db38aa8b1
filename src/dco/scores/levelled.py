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
from dco.scores.score import CompositeScore, Score, membership_by_score
from dco.scores.thresholds import AnyThreshold, thresholds_of_rows


@dataclass(frozen=True)
class Levelled(CompositeScore):
    """`score` / f(prediction), for scores that are not negative.

    f is linear between the points (`places`, `factors`) and constant beyond: a factor for each of
    several point predictions. `Levelled.of` learns it as the usual size of the scores in each fifth
    of the tuning rows by prediction, so that every fifth is covered about alike. f is fixed before
    calibration rows are seen: calibration is as exact as for `score`.
    """

    score: Score
    places: tuple[float, ...]
    factors: tuple[float, ...]

    @classmethod
    def of(cls, score: Score, centres: Floats, scores: Floats, *, alpha: float) -> Levelled | None:
        """Learn from tuning rows by what the scores of low and of high predictions are divided.

        Rows are cut into fifths by their point prediction. The factor of a fifth is the
        (1 - alpha)-quantile of its scores, at the median of its predictions. Return None where a
        score is negative, or where a fifth has no positive finite quantile.

        Parameters
        ----------
        score
            The score that is to be divided.
        centres
            (n,), the point prediction of each tuning row.
        scores
            (n,), what `score` gives to the tuning rows.
        alpha
            The share of a fifth's rows whose scores may exceed its factor.
        """
        places: list[float] = []
        factors: list[float] = []
        fifth_of_row = fifths(centres)
        for fifth in np.unique(fifth_of_row):
            in_fifth = fifth_of_row == fifth
            places.append(float(np.median(centres[in_fifth])))

            descending = np.sort(scores[in_fifth])[::-1]
            n_larger = int(len(descending) * alpha)  # scores that may exceed the factor
            factors.append(float(descending[n_larger]))

        has_negative_score = not np.all(scores >= 0)
        if has_negative_score or min(factors) <= 0 or max(factors) == np.inf:
            return None
        return cls(score, tuple(places), tuple(factors))

    def observed(self, prediction: Any, y: ArrayLike) -> Floats:
        """Return the score of y over the factor of its row, (n,)."""
        with np.errstate(over="ignore"):
            return np.asarray(self.score.observed(prediction, y) / self._factors(prediction))

    def sets(self, prediction: Any, threshold: AnyThreshold) -> Any:
        """Return the sets of `score` at the threshold t times each row's factor f."""
        limit = thresholds_of_rows(threshold, len(prediction))
        limit_of_score = limit * self._factors(prediction)

        # A member's score s has fl(s / f) <= t, where fl rounds. So s <= t f (1 + 2**-53), and the
        # product t f is rounded too. Three floats up, it is not below the score of any member.
        for _ in range(3):
            limit_of_score = np.nextafter(limit_of_score, np.inf)
        sets = self.score.sets(prediction, limit_of_score)
        return replace(sets, member=membership_by_score(self, prediction, limit))  # type: ignore[type-var]

    def sizes(self, prediction: Any, threshold: AnyThreshold) -> Any:
        """Return the sizes of those sets, without rounding their ends outwards."""
        limit = thresholds_of_rows(threshold, len(prediction))
        return self.score.sizes(prediction, limit * self._factors(prediction))

    def _factors(self, prediction: Any) -> Floats:
        """Return f at the point prediction of each row, (n,)."""
        return np.asarray(np.interp(prediction.centres, self.places, self.factors))


register(Levelled, records=())
