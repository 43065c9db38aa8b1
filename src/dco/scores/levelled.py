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
        """From tuning rows: their predictions and scores; None where a fifth has no positive finite
        quantile.
        """
        codes, places, factors = fifths(centres), list[float](), list[float]()
        for own in (codes == code for code in np.unique(codes)):
            ordered = np.sort(scores[own])
            places.append(float(np.median(centres[own])))
            factors.append(float(ordered[len(ordered) - int(len(ordered) * alpha) - 1]))
        usable = bool(np.all(scores >= 0)) and min(factors) > 0 and max(factors) < np.inf
        return cls(score, tuple(places), tuple(factors)) if usable else None

    def observed(self, prediction: Any, y: ArrayLike) -> Floats:
        """The score of y over the factor of its row, (n,)."""
        with np.errstate(over="ignore"):
            return np.asarray(self.score.observed(prediction, y) / self._factors(prediction))

    def sets(self, prediction: Any, threshold: AnyThreshold) -> Any:
        """The sets of `score` at the threshold times each row's factor."""
        limit = thresholds_of_rows(threshold, len(prediction))
        own = limit * self._factors(prediction)
        # fl(s / f) <= t means s <= t f (1 + u), and a product rounds once more: ends hold all
        # members
        for _ in range(3):
            own = np.nextafter(own, np.inf)
        return replace(self.score.sets(prediction, own), member=at_most(self, prediction, limit))  # type: ignore[type-var]

    def sizes(self, prediction: Any, threshold: AnyThreshold) -> Any:
        """The sizes of those sets, without rounding their ends outwards."""
        return self.score.sizes(
            prediction, thresholds_of_rows(threshold, len(prediction)) * self._factors(prediction)
        )

    def _factors(self, prediction: Any) -> Floats:
        return np.asarray(np.interp(prediction.centres, self.places, self.factors))


register(Levelled, records=())
