"""Scores of a posterior predictive density (an even mixture of Gaussians per row).

Their sets may have several pieces. Ends come from root finding on the exact density, never from a
grid. `contains` asks the score, so it equals ``observed(prediction, y) <= threshold`` exactly; the
ends are moved outwards by what the score rounds, so that no member lies beyond them: some 1e-12 of
the smallest sd, or 1e-8 for `HighestDensityMass`, whose score comes from roots itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from dco.foundations.arrays import Bools, Doubles, Floats, Integers, as_float_targets
from dco.predictions import GaussianMixtures, Prediction
from dco.scores.densities.level_sets import level_sets, level_sets_at, outer_level_sets
from dco.scores.densities.mixtures import (
    distribution,
    log_density,
    log_density_and_slope,
    mean_and_sd,
)
from dco.scores.densities.pieces import Pieces
from dco.scores.registry import register
from dco.scores.score import Score, at_most, expect
from dco.scores.thresholds import AnyThreshold, thresholds_of_rows
from dco.sets.intervals import IntervalUnions

_NEWTON_STEPS = 3  # that follow the ends of a level set to another level
_MOST_TURNS = 300
_EXACT_MASS = 1e-12  # a mass this close to the wanted one is right


@dataclass(frozen=True)
class PredictiveDensity(Score):
    """-log f(y | x), f the posterior predictive density (1 / T) sum_t N(y; mean_t, sd_t^2).

    The sets {y : f(y | x) >= exp(-t)} are bounded for every finite t; t = inf gives the whole line.
    """

    needs: ClassVar[tuple[type, ...]] = (GaussianMixtures,)

    def observed(self, prediction: Prediction, y: ArrayLike) -> Floats:
        """Return -log f(y | x), (n,)."""
        mixtures = expect(self, prediction, GaussianMixtures)
        return -log_density(mixtures, as_float_targets(y, len(mixtures)))

    def sets(self, prediction: Prediction, threshold: AnyThreshold) -> IntervalUnions:
        """Return all y whose density is at least exp(-t), a piece for each mode above it."""
        mixtures = expect(self, prediction, GaussianMixtures)
        limit = thresholds_of_rows(threshold, len(mixtures))
        sets = outer_level_sets(mixtures, -np.asarray(limit))
        return replace(sets, member=at_most(self, prediction, limit))

    def sizes(self, prediction: Prediction, threshold: AnyThreshold) -> Floats:
        """Return the total length of each row's pieces, without rounding their ends outwards."""
        mixtures = expect(self, prediction, GaussianMixtures)
        limit = thresholds_of_rows(threshold, len(mixtures))
        return level_sets(mixtures, -np.asarray(limit)).sizes()

    def sizes_at_several(
        self, prediction: Prediction, thresholds: Sequence[AnyThreshold] | Floats
    ) -> Floats:
        """Return `sizes` at several thresholds, (J, n).

        The density is looked at once for all, and again near each end.
        """
        mixtures = expect(self, prediction, GaussianMixtures)
        n_rows = len(mixtures)
        if not len(thresholds):
            return np.empty((0, n_rows))
        levels = [
            np.broadcast_to(-np.asarray(thresholds_of_rows(threshold, n_rows), float), (n_rows,))
            for threshold in thresholds
        ]
        return np.stack([sets.sizes() for sets in level_sets_at(mixtures, np.stack(levels))])


@dataclass(frozen=True)
class HighestDensityMass(Score):
    """The predictive mass of {y' : f(y' | x) > f(y | x)}, Izbicki et al. (2022), HPD-split.

    A probability integral: 0 at the mode, near 1 far out, and uniform if f is the true density, so
    thresholds compare over x. The set at t is the highest-density region of mass t; t >= 1 gives
    the whole line, t < 0 nothing.
    """

    needs: ClassVar[tuple[type, ...]] = (GaussianMixtures,)

    def observed(self, prediction: Prediction, y: ArrayLike) -> Floats:
        """Return the mass of all points of higher density than y, (n,)."""
        mixtures = expect(self, prediction, GaussianMixtures)
        levels = log_density(mixtures, as_float_targets(y, len(mixtures)))
        is_missing = np.isnan(levels)  # y is NaN: so is its score
        masses = _mass_of_sets(mixtures, level_sets(mixtures, np.where(is_missing, np.inf, levels)))
        masses[is_missing] = np.nan
        return masses

    def sets(self, prediction: Prediction, threshold: AnyThreshold) -> IntervalUnions:
        """Return the highest-density region of mass t, a piece for each mode that belongs to it."""
        mixtures = expect(self, prediction, GaussianMixtures)
        limit = thresholds_of_rows(threshold, len(mixtures))
        masses = np.broadcast_to(np.asarray(limit, dtype=np.float64), (len(mixtures),))
        sets = _outer_regions(mixtures, masses)
        return replace(sets, member=at_most(self, prediction, limit))

    def sizes(self, prediction: Prediction, threshold: AnyThreshold) -> Floats:
        """Return the total length of each row's pieces, without rounding their ends outwards."""
        mixtures = expect(self, prediction, GaussianMixtures)
        limit = thresholds_of_rows(threshold, len(mixtures))
        masses = np.broadcast_to(np.asarray(limit, dtype=np.float64), (len(mixtures),))
        return _regions(mixtures, masses).sizes()


def _mass_of_sets(mixtures: GaussianMixtures, sets: IntervalUnions) -> Doubles:
    """Return the probability of each row's set."""
    rows = sets.rows()
    of_pieces = distribution(mixtures, sets.upper, rows) - distribution(mixtures, sets.lower, rows)
    masses = np.bincount(rows, weights=of_pieces, minlength=len(mixtures))
    return np.clip(masses, 0.0, 1.0)


def _regions(mixtures: GaussianMixtures, masses: Doubles) -> IntervalUnions:
    """Return the highest-density region of the given mass in each row.

    That is the whole line for mass >= 1, and nothing for mass < 0.
    """
    parts = [Pieces.whole_line(np.flatnonzero(masses >= 1))]
    rows = np.flatnonzero((masses >= 0) & (masses < 1))
    if rows.size:
        search = _LevelSearch(mixtures.take(rows), masses[rows], np.full(rows.size, _EXACT_MASS))
        search.run()
        parts += [Pieces(rows[part.rows], part.lower, part.upper) for part in search.pieces]
    pieces = Pieces.together(parts)  # those of a row are in one part, ascending
    return IntervalUnions.of_pieces(len(masses), pieces.rows, pieces.lower, pieces.upper)


def _outer_regions(mixtures: GaussianMixtures, masses: Doubles) -> IntervalUnions:
    """Return regions that hold every y whose score, as it is rounded, is at most the mass.

    They have a little more mass, by what `observed` rounds (its roots are right to 1e-9 sd) and by
    no less than half of that. Their pieces are searched again a little below the level, since the
    mass of a peak that just reaches it grows as a root.
    """
    slack = 4e-9 * (1 - np.clip(masses, 0, 1)) + 2.0**-51
    aim = masses + slack
    levels = np.where(aim >= 1, -np.inf, np.inf)
    rows = np.flatnonzero((masses >= 0) & (aim < 1))
    if rows.size:
        most_missing = np.minimum(_EXACT_MASS, slack[rows] / 2)
        search = _LevelSearch(mixtures.take(rows), aim[rows], most_missing)
        search.run()
        levels[rows] = search.found_levels
    return outer_level_sets(mixtures, levels)


class _LevelSearch:
    """Find the level of each row whose level set has the wanted mass in [0, 1).

    From one level set the level of the wanted mass is foreseen by following its ends. The level set
    found there is the answer if its mass is right, and otherwise the next to start from, within a
    bracket of levels.

    Afterwards `pieces` are the level sets, at most `most_missing` of the mass short of it, and
    `found_levels` are levels at which they are complete.
    """

    def __init__(self, mixtures: GaussianMixtures, masses: Doubles, most_missing: Doubles) -> None:
        self.mixtures = mixtures
        self.masses = masses
        self.most_missing = most_missing
        self.goal = _to_deviation(masses)
        self.pieces: list[Pieces] = []
        self.found_levels = np.empty(len(masses))

        # At `low` the set has enough mass, at `high` it has less. No density exceeds the highest
        # component: from there on up the mass is 0.
        smallest_sd = mixtures.sds.T.min(axis=-1)
        highest = -np.log(smallest_sd) - 0.5 * np.log(2 * np.pi)
        self.high = np.broadcast_to(highest, masses.shape).astype(np.float64)
        self.low = np.full(len(masses), -np.inf)

    def run(self) -> None:
        """Search until every row is done."""
        todo = np.arange(len(self.masses))
        level = self._first_levels()
        for turn in range(_MOST_TURNS):
            if not todo.size:
                return
            here = level[todo]
            rows_left = self.mixtures.take(todo)
            sets = level_sets(rows_left, here)
            mass = _mass_of_sets(rows_left, sets)

            self._narrow_brackets(todo, here, mass)
            is_last_turn = turn == _MOST_TURNS - 1
            is_done = self._is_done(todo, here, mass) | is_last_turn

            row_of_piece = sets.rows()
            pieces = Pieces(todo[row_of_piece], sets.lower, sets.upper)
            self.pieces.append(pieces.take(is_done[row_of_piece]))
            open_pieces = pieces.take(~is_done[row_of_piece])
            level[todo] = self._next_levels(todo, here, mass, open_pieces, turn)
            todo = todo[~is_done]

    def _first_levels(self) -> Doubles:
        """Return the level of the goal in one Gaussian with the mixture's mean and sd."""
        mean, sd = mean_and_sd(self.mixtures)
        of_one_gaussian = np.minimum(self.high, log_density(self.mixtures, mean))
        of_one_gaussian = of_one_gaussian - 0.5 * np.square(self.goal)

        rows = np.arange(len(self.goal))
        ends = Pieces(rows, mean - self.goal * sd, mean + self.goal * sd)
        foreseen = _foresee_levels(self.mixtures, ends, self.goal)
        is_plausible = (foreseen > of_one_gaussian - 1) & (foreseen < self.high)
        level = np.where(is_plausible, foreseen, of_one_gaussian)
        return np.where(self.goal > 0, level, self.high)

    def _narrow_brackets(self, todo: Integers, here: Doubles, mass: Doubles) -> None:
        """Move one side of each bracket to the level that was looked at."""
        has_enough = mass >= self.masses[todo]
        self.low[todo] = np.where(has_enough, here, self.low[todo])
        self.high[todo] = np.where(has_enough, self.high[todo], here)

    def _is_done(self, todo: Integers, here: Doubles, mass: Doubles) -> Bools:
        """Say which rows have the right mass, or no room left, and record their levels."""
        low = self.low[todo]
        high = self.high[todo]
        excess = mass - self.masses[todo]
        is_close = (excess <= _EXACT_MASS) & (-excess <= self.most_missing[todo])
        is_close |= self.goal[todo] == 0
        is_bracketed = np.isfinite(low)
        is_narrow = is_bracketed & (high - low <= 1e-13 * np.maximum(1.0, np.abs(high)))
        self.found_levels[todo] = np.where(is_bracketed & ~is_close, low, here)
        return np.asarray(is_close | is_narrow)

    def _next_levels(
        self, todo: Integers, here: Doubles, mass: Doubles, pieces: Pieces, turn: int
    ) -> Doubles:
        """Return the level to look at next: the foreseen one, or one that is sure to go on."""
        foreseen = _foresee_levels(self.mixtures, pieces, self.goal)[todo]
        low = self.low[todo]
        high = self.high[todo]

        # where no level has been low enough, go down as for a single Gaussian, and more boldly
        # after a few turns
        drop = 0.5 * (np.square(self.goal[todo]) - np.square(_to_deviation(mass)))
        down = here - drop * 2.0 ** max(0, turn - 5)
        halfway = 0.5 * low + 0.5 * high
        sure = np.where(np.isfinite(low), halfway, down)

        is_usable = (foreseen > np.maximum(low, down - 1)) & (foreseen < high) & (turn % 8 != 7)
        return np.where(is_usable, foreseen, sure)


def _foresee_levels(mixtures: GaussianMixtures, pieces: Pieces, goal: Doubles) -> Doubles:
    """Return the level at which each row will have the wanted mass, if its set has pieces near
    these; NaN without pieces.

    Newton steps for all ends of a row and the level together: log f is the level at each end, and
    the mass between the ends, as a deviation (which for one Gaussian is linear in the ends), is the
    goal.
    """
    n_rows = len(goal)
    level = np.full(n_rows, np.nan)
    if not len(pieces.rows):
        return level
    rows = np.concatenate([pieces.rows, pieces.rows])
    ends = np.concatenate([pieces.lower, pieces.upper])
    side = np.repeat([-1.0, 1.0], len(pieces.rows))
    with np.errstate(all="ignore"):
        for _ in range(_NEWTON_STEPS):
            height, slope = log_density_and_slope(mixtures, rows, ends)
            mass = np.bincount(rows, side * distribution(mixtures, ends, rows), n_rows)
            here = _to_deviation(mass.astype(np.float64))
            # what the mass gains at this end as the level rises
            rate = side * np.exp(height) / slope
            missing = (goal - here) * np.exp(-0.5 * np.square(here)) * np.sqrt(2 / np.pi)
            gain = missing + np.bincount(rows, rate * height, n_rows)
            level = gain / np.bincount(rows, rate, n_rows)
            ends = ends + (level[rows] - height) / slope
    return level


def _to_deviation(mass: Doubles) -> Doubles:
    """Return the z that has this mass between -z and z under a standard Gaussian."""
    return np.asarray(ndtri(0.5 + 0.5 * np.clip(mass, 0.0, 1 - 2.0**-52)))


register(PredictiveDensity, defaults=(PredictiveDensity(),))
register(HighestDensityMass, defaults=(HighestDensityMass(),))
