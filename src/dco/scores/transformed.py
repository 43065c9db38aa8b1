"""Residual scores on another scale of y, and scores whose sets are cut to where y can lie."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats, as_float_targets
from dco.foundations.notes import Message
from dco.predictions import ClassRecord, Points, PointsWithSpread, Prediction, Quantiles
from dco.scores.registry import register
from dco.scores.regression import AbsoluteResidual, NormalisedResidual, QuantileResidual
from dco.scores.scales import (
    Scale,
    Transform,
    checked_transform,
    fitted_transform,
    on_scale,
    scale_of,
)
from dco.scores.score import CompositeScore, Score, at_most, expect
from dco.scores.thresholds import AnyThreshold, thresholds_of_rows
from dco.sets.intervals import Intervals

_RECORDS = (Points, PointsWithSpread, Quantiles)


@dataclass(frozen=True)
class Transformed(CompositeScore):
    """`score` with y and the prediction on the scale of an increasing g: |g(y) - g(mean)| for
    AbsoluteResidual.

    Sets are {y : score of g(y) <= t}, with ends mapped back by the inverse of g and rounded
    outwards; sizes are in units of y. It is one fixed function of a row, so calibration is as exact
    as without g. Widths grow with y where g flattens: for "log" they are a share of it.

    `transform` is "log" (y > 0), "log1p" or "sqrt" (y >= 0), "asinh", "quantile" (normal scores of
    the training targets, learnt by `fitted`), or a pair (g, inverse of g). Predictions are in units
    of y, as any model gives them; one that is fitted to g(y) is `dco.models.TransformedTarget`. A
    spread s becomes g(mean + s) - g(mean). A y that g does not take scores +inf, and predictions
    are raised to the least y that g takes.
    """

    score: Score
    transform: Transform

    def __post_init__(self) -> None:
        if not isinstance(self.score, (AbsoluteResidual, NormalisedResidual, QuantileResidual)):
            raise ValueError(
                f"Transformed needs a residual score such as AbsoluteResidual(), got "
                f"{self.score!r:.200}."
            )
        checked_transform(self.transform)

    @property
    def needs(self) -> tuple[type, ...]:  # type: ignore[override]
        """The records of points, spreads and quantiles that `score` reads."""
        return tuple(kind for kind in self.score.needs if kind in _RECORDS)

    def fitted(self, y: ArrayLike) -> Transformed:
        """With the quantiles of these training targets, if the transform is "quantile"."""
        return replace(self, transform=fitted_transform(self.transform, y))

    def observed(self, prediction: Prediction, y: ArrayLike) -> Floats:
        """The score of g(y), (n,); +inf where g does not take y."""
        scale = scale_of(self.transform)
        value = as_float_targets(y, len(prediction))
        with np.errstate(all="ignore"):
            z = np.asarray(scale.forward(value), dtype=np.float64)
        inside = (value >= scale.least) & np.isfinite(z)
        scores = self.score.observed(self._record(scale, prediction), np.where(inside, z, 0.0))
        scores[~inside] = np.inf
        return scores

    def sets(self, prediction: Prediction, threshold: AnyThreshold) -> Intervals:
        """The sets of `score`, mapped back to units of y; the whole line for t = inf."""
        scale, limit = scale_of(self.transform), thresholds_of_rows(threshold, len(prediction))
        on_scale_sets: Any = self.score.sets(self._record(scale, prediction), limit)
        mapped = on_scale_sets.mapped(scale.inverse, scale.forward)
        lower = np.where(limit == np.inf, -np.inf, np.maximum(mapped.lower, scale.least))
        return Intervals(
            lower, np.where(limit == np.inf, np.inf, mapped.upper), at_most(self, prediction, limit)
        )

    def sizes(self, prediction: Prediction, threshold: AnyThreshold) -> Floats:
        """The length of each set in units of y, without rounding its ends outwards."""
        scale, limit = scale_of(self.transform), thresholds_of_rows(threshold, len(prediction))
        ends: Any = self.score.sets(self._record(scale, prediction), limit)
        with np.errstate(all="ignore"):
            lower, upper = (
                np.maximum(scale.inverse(ends.lower), scale.least),
                scale.inverse(ends.upper),
            )
            lengths = np.where(ends.is_empty(), 0.0, np.maximum(upper - lower, 0.0))
        return np.where(limit == np.inf, np.inf, lengths)

    def _record(self, scale: Scale, prediction: Prediction) -> Prediction:
        """The prediction on the scale of g."""
        record: Any = expect(self, prediction, *self.needs)
        if isinstance(record, Quantiles):
            median = None if record.median is None else on_scale(scale, record.median)
            return Quantiles(on_scale(scale, record.lower), on_scale(scale, record.upper), median)
        mean = np.maximum(np.asarray(record.mean, dtype=np.float64), scale.least)
        z = on_scale(scale, mean)
        return (
            PointsWithSpread(z, on_scale(scale, mean + record.spread) - z)
            if isinstance(record, PointsWithSpread)
            else Points(z)
        )


@dataclass(frozen=True)
class Within(CompositeScore):
    """`score` for a y that is known to lie in [low, high]: its sets are cut there, and a y beyond
    scores +inf.

    Coverage is that of `score`: what is cut off cannot happen. If it does happen in calibration
    rows, it counts as a miss.
    """

    score: Score
    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        if issubclass(self.score.needs[0], ClassRecord):
            raise ValueError(
                f"a range is for numbers, and {self.score!r:.200} is a score of labels."
            )
        if not self.low < self.high:
            raise ValueError(f"low must be less than high, got {self.low} and {self.high}.")

    def observed(self, prediction: Any, y: ArrayLike) -> Floats:
        """The score of y, (n,); +inf where y is not in the range."""
        value = as_float_targets(y, len(prediction))
        return np.where(
            (value >= self.low) & (value <= self.high),
            self.score.observed(prediction, value),
            np.inf,
        )

    def sets(self, prediction: Any, threshold: AnyThreshold) -> Any:
        """The sets of `score` within the range; where t = inf, the whole range and all else."""
        limit = thresholds_of_rows(threshold, len(prediction))
        sets: Any = self.score.sets(prediction, limit)
        least, most = (
            np.where(limit == np.inf, end, own)
            for end, own in ((-np.inf, self.low), (np.inf, self.high))
        )
        each = np.broadcast_to(least, len(prediction)), np.broadcast_to(most, len(prediction))
        return replace(sets.clip(*each), member=at_most(self, prediction, limit))


def support_of(given: Any) -> tuple[float, float]:
    """(low, high) with infinite ends where None was given."""
    try:
        low, high = given
        ends = -math.inf if low is None else float(low), math.inf if high is None else float(high)
    except (TypeError, ValueError):
        ends = 0.0, 0.0  # told below
    if not ends[0] < ends[1]:
        raise ValueError(
            Message(
                f"⟨support⟩ must be a pair, the lower number first, as in ⟨support=(0, "
                f"None)⟩; got {given!r}."
            )
        )
    return ends


register(
    Transformed,
    name="transformed",
    named=tuple(Transformed(AbsoluteResidual(), name) for name in ("log1p", "sqrt", "asinh")),
    records=(),
)
register(Within, records=())
