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
    check_transform,
    fit_transform,
    map_to_scale,
    scale_of,
)
from dco.scores.score import CompositeScore, Score, expect, membership_by_score
from dco.scores.thresholds import AnyThreshold, thresholds_of_rows
from dco.sets.intervals import Intervals, IntervalUnions

_RECORDS = (Points, PointsWithSpread, Quantiles)


@dataclass(frozen=True)
class Transformed(CompositeScore):
    """`score` of g(y) and the prediction mapped by g, for an increasing function g.

    With AbsoluteResidual it is |g(y) - g(mean)|. Sets are {y : score of g(y) <= t}, with ends
    mapped back by the inverse of g and rounded outwards; sizes are in units of y. It is one fixed
    function of a row, so calibration is as exact as without g. Widths grow with y where g flattens:
    for "log" they are a share of it.

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
        check_transform(self.transform)

    @property
    def needs(self) -> tuple[type, ...]:  # type: ignore[override]
        """The records of points, spreads and quantiles that `score` reads."""
        return tuple(kind for kind in self.score.needs if kind in _RECORDS)

    def fitted(self, y: ArrayLike) -> Transformed:
        """Return the score with the quantiles of these targets, if the transform is "quantile"."""
        return replace(self, transform=fit_transform(self.transform, y))

    def observed(self, prediction: Prediction, y: ArrayLike) -> Floats:
        """Return the score of g(y), (n,); +inf where g(y) does not exist, such as log(-1)."""
        scale = scale_of(self.transform)
        value = as_float_targets(y, len(prediction))
        with np.errstate(all="ignore"):
            g_of_y = np.asarray(scale.forward(value), dtype=np.float64)
        exists = (value >= scale.smallest_y) & np.isfinite(g_of_y)

        mapped_prediction = self._map_prediction(scale, prediction)
        placeholder = 0.0  # where g(y) does not exist: the score is replaced below
        scores = self.score.observed(mapped_prediction, np.where(exists, g_of_y, placeholder))
        scores[~exists] = np.inf
        return scores

    def sets(self, prediction: Prediction, threshold: AnyThreshold) -> Intervals:
        """Return the sets of `score`, mapped back to units of y; the whole line for t = inf."""
        scale = scale_of(self.transform)
        limit = thresholds_of_rows(threshold, len(prediction))
        sets_of_g: Any = self.score.sets(self._map_prediction(scale, prediction), limit)
        sets_of_y = sets_of_g.mapped(scale.inverse, scale.forward)

        is_whole_line = limit == np.inf
        lower = np.maximum(sets_of_y.lower, scale.smallest_y)
        return Intervals(
            np.where(is_whole_line, -np.inf, lower),
            np.where(is_whole_line, np.inf, sets_of_y.upper),
            membership_by_score(self, prediction, limit),
        )

    def sizes(self, prediction: Prediction, threshold: AnyThreshold) -> Floats:
        """Return the length of each set in units of y, without rounding its ends outwards."""
        scale = scale_of(self.transform)
        limit = thresholds_of_rows(threshold, len(prediction))
        sets_of_g: Any = self.score.sets(self._map_prediction(scale, prediction), limit)
        with np.errstate(all="ignore"):
            lower = np.maximum(scale.inverse(sets_of_g.lower), scale.smallest_y)
            upper = scale.inverse(sets_of_g.upper)
            lengths = np.maximum(upper - lower, 0.0)
        lengths = np.where(sets_of_g.is_empty(), 0.0, lengths)
        return np.where(limit == np.inf, np.inf, lengths)

    def _map_prediction(self, scale: Scale, prediction: Prediction) -> Prediction:
        """Map a prediction of y to one of g(y), of the same kind.

        Points and quantiles are mapped by g; a spread s becomes g(mean + s) - g(mean).
        """
        record: Any = expect(self, prediction, *self.needs)
        if isinstance(record, Quantiles):
            lower = map_to_scale(scale, record.lower)
            upper = map_to_scale(scale, record.upper)
            median = None if record.median is None else map_to_scale(scale, record.median)
            return Quantiles(lower, upper, median)

        mean = np.maximum(np.asarray(record.mean, dtype=np.float64), scale.smallest_y)
        g_of_mean = map_to_scale(scale, mean)
        if isinstance(record, PointsWithSpread):
            spread = map_to_scale(scale, mean + record.spread) - g_of_mean
            return PointsWithSpread(g_of_mean, spread)
        return Points(g_of_mean)


@dataclass(frozen=True)
class Within(CompositeScore):
    """`score` for a y that is known to lie in [low, high]; a y outside this range scores +inf.

    The sets of `score` are cut to the range. Coverage is that of `score`: what is cut off cannot
    happen. If it does happen in calibration rows, it counts as a miss.
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
        """Return the sets of `score` cut to the range; the whole line, uncut, for t = inf.

        Even a y outside the range, which scores +inf, is at most an infinite threshold.
        """
        limit = thresholds_of_rows(threshold, len(prediction))
        sets: Any = self.score.sets(prediction, limit)
        is_whole_line = np.broadcast_to(limit == np.inf, len(prediction))
        low = np.where(is_whole_line, -np.inf, self.low)
        high = np.where(is_whole_line, np.inf, self.high)
        cut_sets = sets.clip(low, high)
        is_member = membership_by_score(self, prediction, limit)
        return replace(cut_sets, member=is_member)  # type: ignore[no-any-return]


def support_of(support: Any) -> tuple[float, float]:
    """Read the argument support=, the range of y: (0, None) -> (0.0, inf)."""
    try:
        low, high = support
        lowest = -math.inf if low is None else float(low)
        highest = math.inf if high is None else float(high)
        is_range = lowest < highest
    except (TypeError, ValueError):
        is_range = False
    if is_range:
        return lowest, highest
    raise ValueError(
        Message(
            f"⟨support⟩ must be a pair, the lower number first, as in ⟨support=(0, None)⟩; got "
            f"{support!r}."
        )
    )


register(
    Transformed,
    name="transformed",
    named=tuple(Transformed(AbsoluteResidual(), name) for name in ("log1p", "sqrt", "asinh")),
    records=(),
)
register(Within, records=())
