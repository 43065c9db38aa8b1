"""Distributional conformal prediction: central intervals of a predicted distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats, as_float_targets
from dco.predictions import Prediction, QuantileFunction, TargetDraws
from dco.scores.linear_distribution import LinearDistribution, allow_for_rounding, masses_of_rows
from dco.scores.registry import register
from dco.scores.score import Score, membership_by_score
from dco.scores.thresholds import AnyThreshold
from dco.sets.intervals import Intervals


@dataclass(frozen=True)
class CentralMass(Score):
    """|F(y) - 1/2|, Chernozhukov, Wüthrich and Zhu (2021); F is the predicted distribution.

    The set at t is from the quantile at level 1/2 - t to that at 1/2 + t, so both sides miss about
    equally often. F is linear between the predicted quantiles. Beyond the outermost ones it goes on
    with its average slope, so that sets are bounded for every finite t. Where F jumps over some
    levels the score is the smallest of |level - 1/2|.
    """

    needs: ClassVar[tuple[type, ...]] = (QuantileFunction, TargetDraws)

    def observed(self, prediction: Prediction, y: ArrayLike) -> Floats:
        """Return |F(y) - 1/2|, (n,)."""
        distribution = LinearDistribution.of(self, prediction)
        value = as_float_targets(y, len(distribution)).astype(np.float64, copy=False)
        above = distribution.before(value) - 0.5
        below = 0.5 - distribution.at(value)
        return np.maximum(np.maximum(above, below), 0.0)

    def sets(self, prediction: Prediction, threshold: AnyThreshold) -> Intervals:
        """Return the intervals between the quantiles at 1/2 - t and 1/2 + t; empty for t < 0."""
        distribution = LinearDistribution.of(self, prediction)
        limit = masses_of_rows(threshold, len(distribution))
        half_mass = allow_for_rounding(limit)
        is_empty = limit < 0
        return Intervals(
            np.where(is_empty, np.inf, distribution.quantile_outside(0.5 - half_mass, side=-1)),
            np.where(is_empty, -np.inf, distribution.quantile_outside(0.5 + half_mass, side=1)),
            membership_by_score(self, prediction, limit),
        )

    def sizes(self, prediction: Prediction, threshold: AnyThreshold) -> Floats:
        """Return the length of each row's set, without rounding its ends outwards."""
        distribution = LinearDistribution.of(self, prediction)
        half_mass = np.maximum(masses_of_rows(threshold, len(distribution)), 0.0)
        upper = distribution.quantile(0.5 + half_mass)
        return np.maximum(upper - distribution.quantile(0.5 - half_mass), 0.0)


register(CentralMass, defaults=(CentralMass(),))
