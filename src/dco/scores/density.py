"""Scores of a posterior predictive density (an even mixture of Gaussians per row). Their sets may
have several pieces.

Ends come from root finding on the exact density (`level_sets`), never from a grid. `contains` asks
the score, so it equals ``observed(prediction, y) <= threshold`` exactly; the ends are moved
outwards by what the score rounds, so that no member lies beyond them: some 1e-12 of the smallest
sd, or 1e-8 for `HighestDensityMass`, whose score comes from roots itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from dco.foundations.arrays import Floats, Integers, as_float_targets
from dco.predictions import GaussianMixtures, Prediction
from dco.scores.level_sets import Segments, level_sets, level_sets_at, outer_level_sets
from dco.scores.mixtures import distribution, log_density, log_density_and_slope, mean_and_sd
from dco.scores.registry import register
from dco.scores.score import Score, at_most, expect
from dco.scores.thresholds import AnyThreshold, thresholds_of_rows
from dco.sets.intervals import IntervalUnions

STEPS = 3  # Newton steps that follow the ends of a level set to another level


@dataclass(frozen=True)
class PredictiveDensity(Score):
    """-log f(y | x), f the posterior predictive density (1 / T) sum_t N(y; mean_t, sd_t^2).

    The sets {y : f(y | x) >= exp(-t)} are bounded for every finite t; t = inf gives the whole line.
    """

    needs: ClassVar[tuple[type, ...]] = (GaussianMixtures,)

    def observed(self, prediction: Prediction, y: ArrayLike) -> Floats:
        """-log f(y | x), (n,)."""
        mixtures = expect(self, prediction, GaussianMixtures)
        return -log_density(mixtures, as_float_targets(y, len(mixtures)))

    def sets(self, prediction: Prediction, threshold: AnyThreshold) -> IntervalUnions:
        """All y whose density is at least exp(-t), a piece for each mode that rises above it."""
        mixtures = expect(self, prediction, GaussianMixtures)
        limit = thresholds_of_rows(threshold, len(mixtures))
        return replace(
            outer_level_sets(mixtures, -np.asarray(limit)), member=at_most(self, prediction, limit)
        )

    def sizes(self, prediction: Prediction, threshold: AnyThreshold) -> Floats:
        """The total length of each row's pieces."""
        mixtures = expect(self, prediction, GaussianMixtures)
        return level_sets(
            mixtures, -np.asarray(thresholds_of_rows(threshold, len(mixtures)))
        ).sizes()

    def sizes_at_several(
        self, prediction: Prediction, thresholds: Sequence[AnyThreshold] | Floats
    ) -> Floats:
        """`sizes` at several thresholds, (J, n): the density is looked at once for all, and again
        near each end.
        """
        mixtures = expect(self, prediction, GaussianMixtures)
        n = len(mixtures)
        limits = [
            np.broadcast_to(np.asarray(thresholds_of_rows(each, n), dtype=np.float64), (n,))
            for each in thresholds
        ]
        return (
            np.stack([each.sizes() for each in level_sets_at(mixtures, -np.stack(limits))])
            if limits
            else np.empty((0, n))
        )


@dataclass(frozen=True)
class HighestDensityMass(Score):
    """The predictive mass of {y' : f(y' | x) > f(y | x)}, Izbicki et al. (2022), HPD-split.

    A probability integral: 0 at the mode, near 1 far out, and uniform if f is the true density, so
    thresholds compare over x. The set at t is the highest-density region of mass t; t >= 1 gives
    the whole line, t < 0 nothing.
    """

    needs: ClassVar[tuple[type, ...]] = (GaussianMixtures,)

    def observed(self, prediction: Prediction, y: ArrayLike) -> Floats:
        """The mass of all points of higher density than y, (n,)."""
        mixtures = expect(self, prediction, GaussianMixtures)
        levels = log_density(mixtures, as_float_targets(y, len(mixtures)))
        unknown = np.isnan(levels)  # y is NaN: so is its score
        masses = _mass(mixtures, level_sets(mixtures, np.where(unknown, np.inf, levels)))
        masses[unknown] = np.nan
        return masses

    def sets(self, prediction: Prediction, threshold: AnyThreshold) -> IntervalUnions:
        """The highest-density region of mass t, a piece for each mode that belongs to it."""
        mixtures = expect(self, prediction, GaussianMixtures)
        limit = thresholds_of_rows(threshold, len(mixtures))
        masses = np.broadcast_to(np.asarray(limit, dtype=np.float64), (len(mixtures),))
        # what `observed` rounds: its roots are right to 1e-9 sd
        slack = 4e-9 * (1 - np.clip(masses, 0, 1)) + 2.0**-51
        return replace(_regions(mixtures, masses, slack), member=at_most(self, prediction, limit))

    def sizes(self, prediction: Prediction, threshold: AnyThreshold) -> Floats:
        """The total length of each row's pieces."""
        mixtures = expect(self, prediction, GaussianMixtures)
        masses = np.broadcast_to(
            np.asarray(thresholds_of_rows(threshold, len(mixtures)), dtype=np.float64),
            (len(mixtures),),
        )
        return _regions(mixtures, masses).sizes()


def _mass(mixtures: GaussianMixtures, found: IntervalUnions) -> Floats:
    rows = found.rows()
    pieces = distribution(mixtures, found.upper, rows) - distribution(mixtures, found.lower, rows)
    return np.clip(np.bincount(rows, weights=pieces, minlength=len(mixtures)), 0.0, 1.0)


def _regions(
    mixtures: GaussianMixtures, masses: Floats, slack: Floats | None = None
) -> IntervalUnions:
    """The highest-density region of the given mass in each row: the whole line for mass >= 1,
    nothing for mass < 0.

    With `slack`, the region of more mass by about that and by no less than half of it, ends moved
    outwards.
    """
    aim = masses if slack is None else masses + slack
    everything = np.flatnonzero(aim >= 1)
    segments: list[Segments] = [
        (everything, np.full(everything.size, -np.inf), np.full(everything.size, np.inf))
    ]
    rows = np.flatnonzero((masses >= 0) & (aim < 1))
    levels = np.where(aim >= 1, -np.inf, np.inf)
    if rows.size:
        some = mixtures.take(rows)
        short = 1e-12 if slack is None else np.minimum(1e-12, slack[rows] / 2)
        solved, levels[rows] = _solve_mass(some, aim[rows], np.broadcast_to(short, rows.shape))
        segments += [(rows[owner], lower, upper) for owner, lower, upper in solved]
    # searched again a little below: the mass of a peak that just reaches the level grows as a root
    if slack is not None:
        return outer_level_sets(mixtures, levels)
    owner, lower, upper = (np.concatenate(part) for part in zip(*segments, strict=True))
    # those of a row are in one segment, ascending
    return IntervalUnions.of_pieces(len(masses), owner, lower, upper)


def _solve_mass(
    mixtures: GaussianMixtures, masses: Floats, short: Floats
) -> tuple[list[Segments], Floats]:
    """The level sets with the given masses in [0, 1), at most `short` of them, and levels at which
    they are complete.

    From one level set the level of the wanted mass is foreseen by following its ends; the level set
    found there is the answer if its mass is right, and otherwise the next to start from, within a
    bracket.
    """
    goal = _deviation(masses)
    scales = mixtures.sds if mixtures.sds.ndim == 2 else mixtures.sds[None, :]
    # no density exceeds the highest component: from there on up the mass is 0
    high = np.broadcast_to(
        -np.log(scales.min(axis=1)) - 0.5 * np.log(2 * np.pi), goal.shape
    ).astype(np.float64)
    low = np.full(len(goal), -np.inf)
    todo: Integers = np.arange(len(goal))
    mean, sd = mean_and_sd(mixtures)
    # right for a single Gaussian
    level = np.minimum(high, log_density(mixtures, mean)) - 0.5 * np.square(goal)
    target = _foreseen(mixtures, todo, mean - goal * sd, mean + goal * sd, goal)
    level = np.where(
        goal > 0, np.where((target > level - 1) & (target < high), target, level), high
    )
    segments: list[Segments] = []
    levels = np.empty(len(goal))
    for turn in range(300):
        if not todo.size:
            break
        part = mixtures.take(todo)
        here = level[todo]
        found = level_sets(part, here)
        mass = _mass(part, found)
        enough = mass >= masses[todo]
        low[todo] = np.where(enough, here, low[todo])
        high[todo] = np.where(enough, high[todo], here)
        bracketed = np.isfinite(low[todo])
        more = mass - masses[todo]
        close = ((more <= 1e-12) & (-more <= short[todo])) | (goal[todo] == 0)
        narrow = bracketed & (high[todo] - low[todo] <= 1e-13 * np.maximum(1.0, np.abs(high[todo])))
        done = close | narrow | (turn == 299)
        levels[todo] = np.where(bracketed & ~close, low[todo], here)
        rows = found.rows()
        kept, owner = done[rows], todo[rows]
        segments.append((owner[kept], found.lower[kept], found.upper[kept]))
        target = _foreseen(mixtures, owner[~kept], found.lower[~kept], found.upper[~kept], goal)[
            todo
        ]
        # where no level has been low enough, go down as for a single Gaussian, and more boldly
        # after a few turns
        down = here - 0.5 * (np.square(goal[todo]) - np.square(_deviation(mass))) * 2.0 ** max(
            0, turn - 5
        )
        usable = (
            (target > np.maximum(low[todo], down - 1)) & (target < high[todo]) & (turn % 8 != 7)
        )
        level[todo] = np.where(
            usable, target, np.where(bracketed, 0.5 * low[todo] + 0.5 * high[todo], down)
        )
        todo = todo[~done]
    return segments, levels


def _foreseen(
    mixtures: GaussianMixtures, rows: Integers, lower: Floats, upper: Floats, goal: Floats
) -> Floats:
    """The level at which each row will have the wanted mass, if its set has pieces near the given
    ones; NaN without pieces.

    Newton steps for all ends of a row and the level together: log f is the level at each end, and
    the mass between the ends, as a deviation (which for one Gaussian is linear in the ends), is the
    goal.
    """
    n, owner, ends = len(goal), np.concatenate([rows, rows]), np.concatenate([lower, upper])
    side = np.repeat([-1.0, 1.0], len(rows))
    level = np.full(n, np.nan)
    with np.errstate(all="ignore"):
        for _ in range(STEPS if len(rows) else 0):
            height, slope = log_density_and_slope(mixtures, owner, ends)
            mass: Floats = np.bincount(owner, side * distribution(mixtures, ends, owner), n).astype(
                np.float64
            )
            here = _deviation(mass)
            # what the mass gains at this end as the level rises
            rate = side * np.exp(height) / slope
            missing = (goal - here) * np.exp(-0.5 * np.square(here)) * np.sqrt(2 / np.pi)
            level = (missing + np.bincount(owner, rate * height, n)) / np.bincount(owner, rate, n)
            ends = ends + (level[owner] - height) / slope
    return level


def _deviation(mass: Floats) -> Floats:
    """The z that has this mass between -z and z under a standard Gaussian."""
    return np.asarray(ndtri(0.5 + 0.5 * np.clip(mass, 0.0, 1 - 2.0**-52)))


register(PredictiveDensity, defaults=(PredictiveDensity(),))
register(HighestDensityMass, defaults=(HighestDensityMass(),))
