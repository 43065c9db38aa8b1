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
from dco.sets.intervals import Intervals, IntervalUnions

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
        """Return the score with the quantiles of these targets, if the transform is "quantile"."""
        return replace(self, transform=fitted_transform(self.transform, y))

    def observed(self, prediction: Prediction, y: ArrayLike) -> Floats:
        """Return the score of g(y), (n,); +inf where g does not take y."""
        scale = scale_of(self.transform)
        value = as_float_targets(y, len(prediction))
        with np.errstate(all="ignore"):
            z = np.asarray(scale.forward(value), dtype=np.float64)
        is_taken = (value >= scale.least) & np.isfinite(z)
        record = self._record_on(scale, prediction)
        scores = self.score.observed(record, np.where(is_taken, z, 0.0))
        scores[~is_taken] = np.inf
        return scores

    def sets(self, prediction: Prediction, threshold: AnyThreshold) -> Intervals:
        """Return the sets of `score`, mapped back to units of y; the whole line for t = inf."""
        scale = scale_of(self.transform)
        limit = thresholds_of_rows(threshold, len(prediction))
        sets_on_scale: Any = self.score.sets(self._record_on(scale, prediction), limit)
        mapped = sets_on_scale.mapped(scale.inverse, scale.forward)
        is_whole_line = limit == np.inf
        return Intervals(
            np.where(is_whole_line, -np.inf, np.maximum(mapped.lower, scale.least)),
            np.where(is_whole_line, np.inf, mapped.upper),
            at_most(self, prediction, limit),
        )

    def sizes(self, prediction: Prediction, threshold: AnyThreshold) -> Floats:
        """Return the length of each set in units of y, without rounding its ends outwards."""
        scale = scale_of(self.transform)
        limit = thresholds_of_rows(threshold, len(prediction))
        sets_on_scale: Any = self.score.sets(self._record_on(scale, prediction), limit)
        with np.errstate(all="ignore"):
            lower = np.maximum(scale.inverse(sets_on_scale.lower), scale.least)
            upper = scale.inverse(sets_on_scale.upper)
            lengths = np.maximum(upper - lower, 0.0)
        lengths = np.where(sets_on_scale.is_empty(), 0.0, lengths)
        return np.where(limit == np.inf, np.inf, lengths)

    def _record_on(self, scale: Scale, prediction: Prediction) -> Prediction:
        """Return the prediction on the scale of g."""
        record: Any = expect(self, prediction, *self.needs)
        if isinstance(record, Quantiles):
            median = None if record.median is None else on_scale(scale, record.median)
            return Quantiles(on_scale(scale, record.lower), on_scale(scale, record.upper), median)

        mean = np.maximum(np.asarray(record.mean, dtype=np.float64), scale.least)
        z = on_scale(scale, mean)
        if isinstance(record, PointsWithSpread):
            return PointsWithSpread(z, on_scale(scale, mean + record.spread) - z)
        return Points(z)


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
        """Return the score of y, (n,); +inf where y is not in the range."""
        value = as_float_targets(y, len(prediction))
        is_in_range = (value >= self.low) & (value <= self.high)
        return np.where(is_in_range, self.score.observed(prediction, value), np.inf)

    def sets(self, prediction: Any, threshold: AnyThreshold) -> Intervals | IntervalUnions:
        """Return the sets of `score` within the range; where t = inf, the whole range and all
        else.
        """
        limit = thresholds_of_rows(threshold, len(prediction))
        sets: Any = self.score.sets(prediction, limit)
        is_whole_line = np.broadcast_to(limit == np.inf, len(prediction))
        cut = sets.clip(
            np.where(is_whole_line, -np.inf, self.low), np.where(is_whole_line, np.inf, self.high)
        )
        return replace(cut, member=at_most(self, prediction, limit))  # type: ignore[no-any-return]


def support_of(given: Any) -> tuple[float, float]:
    """Read the support of y, (low, high), with infinite ends where None was given."""
    try:
        low, high = given
        support = (
            -math.inf if low is None else float(low),
            math.inf if high is None else float(high),
        )
    except (TypeError, ValueError):
        support = (0.0, 0.0)  # refused below
    if not support[0] < support[1]:
        raise ValueError(
            Message(
                f"⟨support⟩ must be a pair, the lower number first, as in ⟨support=(0, "
                f"None)⟩; got {given!r}."
            )
        )
    return support


register(
    Transformed,
    name="transformed",
    named=tuple(Transformed(AbsoluteResidual(), name) for name in ("log1p", "sqrt", "asinh")),
    records=(),
)
register(Within, records=())
