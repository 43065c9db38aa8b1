"""Scores of a posterior predictive density (an even mixture of Gaussians a row). Their sets may have several pieces.

Ends come from root finding on the exact density (`dco.mixtures`), never from a grid, and to about 1e-9 of the smallest sd.
`contains` asks the score, so it equals ``observed(prediction, y) <= threshold`` exactly, next to the ends as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from dco.arrays import Floats, Integers
from dco.mixtures import LevelSets, distribution, level_sets, log_density
from dco.predictions import GaussianMixtures, Prediction, take
from dco.scores.membership import AtMost
from dco.scores.score import Cutoff, cutoff, expect
from dco.sets.intervals import IntervalUnions, responses


@dataclass(frozen=True)
class PredictiveDensity:
    """-log f(y | x), f the posterior predictive density (1 / T) sum_t N(y; mean_t, sd_t^2).

    The sets {y : f(y | x) >= exp(-t)} are bounded for every finite t; t = inf gives the whole line.
    """

    needs: ClassVar[tuple[type, ...]] = (GaussianMixtures,)

    def observed(self, prediction: Prediction, y: ArrayLike) -> Floats:
        """-log f(y | x), (n,)."""
        mixtures = expect(self, prediction, GaussianMixtures)
        return -log_density(mixtures, responses(y, len(mixtures)))

    def sets(self, prediction: Prediction, threshold: Cutoff) -> IntervalUnions:
        """All y whose density is at least exp(-t), a piece for each mode that rises above it."""
        mixtures = expect(self, prediction, GaussianMixtures)
        limit = cutoff(threshold, len(mixtures))
        return _unions(level_sets(mixtures, -np.asarray(limit)), AtMost(self, prediction, limit))

    def sizes(self, prediction: Prediction, threshold: Cutoff) -> Floats:
        """The total length of each row's pieces."""
        return self.sets(prediction, threshold).sizes()


@dataclass(frozen=True)
class HighestDensityMass:
    """The predictive mass of {y' : f(y' | x) > f(y | x)}, Izbicki et al. (2022), HPD-split.

    A probability integral: 0 at the mode, near 1 far out, and uniform if f is the true density, so thresholds compare over
    x. The set at t is the highest-density region of mass t; t >= 1 gives the whole line, t < 0 nothing.
    """

    needs: ClassVar[tuple[type, ...]] = (GaussianMixtures,)

    def observed(self, prediction: Prediction, y: ArrayLike) -> Floats:
        """The mass of all points of higher density than y, (n,)."""
        mixtures = expect(self, prediction, GaussianMixtures)
        levels = log_density(mixtures, responses(y, len(mixtures)))
        unknown = np.isnan(levels)  # y is NaN: so is its score
        masses = _mass(mixtures, level_sets(mixtures, np.where(unknown, np.inf, levels)))
        masses[unknown] = np.nan
        return masses

    def sets(self, prediction: Prediction, threshold: Cutoff) -> IntervalUnions:
        """The highest-density region of mass t, a piece for each mode that belongs to it."""
        mixtures = expect(self, prediction, GaussianMixtures)
        limit = cutoff(threshold, len(mixtures))
        levels = _level_of_mass(mixtures, np.broadcast_to(np.asarray(limit, dtype=np.float64), (len(mixtures),)))
        return _unions(level_sets(mixtures, levels), AtMost(self, prediction, limit))

    def sizes(self, prediction: Prediction, threshold: Cutoff) -> Floats:
        """The total length of each row's pieces."""
        return self.sets(prediction, threshold).sizes()


def _unions(found: LevelSets, member: AtMost) -> IntervalUnions:
    return IntervalUnions(found.row_pointers, found.lower, found.upper, member)


def _mass(mixtures: GaussianMixtures, found: LevelSets) -> Floats:
    rows = found.rows()
    pieces = distribution(mixtures, found.upper, rows) - distribution(mixtures, found.lower, rows)
    return np.clip(np.bincount(rows, weights=pieces, minlength=len(mixtures)), 0.0, 1.0)


def _level_of_mass(mixtures: GaussianMixtures, masses: Floats) -> Floats:
    """The log-density level whose superlevel set has the given mass; -inf for mass >= 1, +inf for mass < 0.

    For one Gaussian the level falls linearly in z^2 / 2, z = ndtri((1 + mass) / 2), so a secant in that scale, kept inside a
    bracket, ends after a few level sets.
    """
    levels = np.where(masses >= 1, -np.inf, np.inf)
    rows = np.flatnonzero((masses >= 0) & (masses < 1))
    if not rows.size:
        return levels
    some = take(mixtures, rows)
    assert isinstance(some, GaussianMixtures)
    levels[rows] = _solve_mass(some, masses[rows])
    return levels


def _solve_mass(mixtures: GaussianMixtures, masses: Floats) -> Floats:
    goal = _half_square(masses)
    scales = mixtures.sds if mixtures.sds.ndim == 2 else mixtures.sds[None, :]
    # no density exceeds the highest component: from there on up the mass is 0
    high = np.broadcast_to(-np.log(scales.min(axis=1)) - 0.5 * np.log(2 * np.pi), goal.shape).astype(np.float64)
    low = np.full(len(goal), -np.inf)
    level = np.minimum(high, log_density(mixtures, mixtures.means.mean(axis=1, dtype=np.float64))) - goal
    last_level, last_value = np.full(len(goal), np.nan), np.full(len(goal), np.nan)
    answer = high.copy()
    todo: Integers = np.flatnonzero(goal > 0)
    for turn in range(300):
        if not todo.size:
            break
        part = take(mixtures, todo)
        assert isinstance(part, GaussianMixtures)
        here = level[todo]
        mass = _mass(part, level_sets(part, here))
        value = _half_square(mass) - goal[todo]
        answer[todo] = here
        low[todo] = np.where(value >= 0, here, low[todo])
        high[todo] = np.where(value < 0, here, high[todo])
        bracketed = np.isfinite(low[todo])
        with np.errstate(invalid="ignore", divide="ignore"):
            slope = (value - last_value[todo]) / (here - last_level[todo])
            # -1 is the slope of a single Gaussian; where no level has been low enough after a few turns, go down boldly
            slope = np.where((slope < 0) & (bracketed | (turn < 6)), slope, -1.0 if turn < 6 else -(2.0 ** (5 - turn)))
            target = here - value / slope
            usable = (target > low[todo]) & (target < high[todo]) & (~bracketed | (turn % 8 != 7))
            target = np.where(usable, target, 0.5 * (low[todo] + high[todo]))
        last_level[todo], last_value[todo] = here, value
        level[todo] = target
        close = np.abs(mass - masses[todo]) <= 1e-12
        narrow = bracketed & (high[todo] - low[todo] <= 1e-13 * np.maximum(1.0, np.abs(high[todo])))
        todo = todo[~(close | narrow)]
    return answer


def _half_square(mass: Floats) -> Floats:
    """z^2 / 2 for the z that has this mass between -z and z under a standard Gaussian."""
    return np.asarray(0.5 * np.square(ndtri(0.5 + 0.5 * np.minimum(mass, 1 - 2.0**-52))))
