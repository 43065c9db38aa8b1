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
from dco.scores.score import Score, expect, membership_by_score
from dco.scores.thresholds import AnyThreshold, thresholds_of_rows
from dco.sets.intervals import IntervalUnions

_EXACT_MASS = 1e-12  # a mass this close to the wanted one is right

# What sets allow for rounding in `HighestDensityMass.observed`, whose roots are right to 1e-9 sd: a
# share of the mass outside the set, and the rounding of a mass near 1.
_ROUNDING_OF_OUTER_MASS = 4e-9
_ROUNDING_OF_MASS = 2.0**-51

# Of the search for the level whose level set has a wanted mass. Levels are values of log f.
_MOST_TURNS = 300  # far more than rows take; then the level reached is taken
_NEWTON_STEPS = 3  # to predict the next level
_LARGEST_SURPRISE = 1.0  # a prediction further below the level of one Gaussian is not used
_CAUTIOUS_TURNS = 5  # afterwards steps down double
_TURNS_BETWEEN_SAFE_STEPS = 8  # so that wrong predictions cannot keep the bracket from shrinking
_NARROWEST_BRACKET = 1e-13  # relative to the level; a narrower one is not divided


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
        return replace(sets, member=membership_by_score(self, prediction, limit))

    def sizes(self, prediction: Prediction, threshold: AnyThreshold) -> Floats:
        """Return the total length of each row's pieces, without rounding their ends outwards."""
        mixtures = expect(self, prediction, GaussianMixtures)
        limit = thresholds_of_rows(threshold, len(mixtures))
        return level_sets(mixtures, -np.asarray(limit)).sizes()

    def sizes_at_several(
        self, prediction: Prediction, thresholds: Sequence[AnyThreshold] | Floats
    ) -> Floats:
        """Return `sizes` at several thresholds, (J, n) for J of them.

        It is faster than `sizes` J times, because the density is interpolated once for all.
        """
        mixtures = expect(self, prediction, GaussianMixtures)
        n_rows = len(mixtures)
        if not len(thresholds):
            return np.empty((0, n_rows))

        levels = np.empty((len(thresholds), n_rows))
        for position, threshold in enumerate(thresholds):
            levels[position] = -np.asarray(thresholds_of_rows(threshold, n_rows), dtype=np.float64)
        return np.stack([sets.sizes() for sets in level_sets_at(mixtures, levels)])


@dataclass(frozen=True)
class HighestDensityMass(Score):
    """The predictive mass of {y' : f(y' | x) > f(y | x)}, Izbicki et al. (2022), HPD-split.

    A probability integral: 0 at the mode, near 1 far out, and uniform if f is the true density, so
    thresholds compare over x. The set at t is the highest-density region of mass t; t >= 1 gives
    the whole line, t < 0 nothing.
    """

    needs: ClassVar[tuple[type, ...]] = (GaussianMixtures,)

    def observed(self, prediction: Prediction, y: ArrayLike) -> Floats:
        """Return the mass of all points of higher density than y, (n,); NaN where y is NaN."""
        mixtures = expect(self, prediction, GaussianMixtures)
        levels = log_density(mixtures, as_float_targets(y, len(mixtures)))
        is_missing = np.isnan(levels)
        denser_points = level_sets(mixtures, np.where(is_missing, np.inf, levels))
        masses = _mass_of_sets(mixtures, denser_points)
        masses[is_missing] = np.nan
        return masses

    def sets(self, prediction: Prediction, threshold: AnyThreshold) -> IntervalUnions:
        """Return the highest-density region of mass t, a piece for each mode that belongs to it."""
        mixtures = expect(self, prediction, GaussianMixtures)
        limit = thresholds_of_rows(threshold, len(mixtures))
        masses = np.broadcast_to(np.asarray(limit, dtype=np.float64), (len(mixtures),))
        sets = _outer_regions(mixtures, masses)
        return replace(sets, member=membership_by_score(self, prediction, limit))

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
    """Find the highest-density region of the given mass in each row.

    That is the whole line for a mass >= 1, and nothing for a mass < 0.
    """
    parts = [Pieces.whole_line(np.flatnonzero(masses >= 1))]
    rows = np.flatnonzero((masses >= 0) & (masses < 1))
    if rows.size:
        search = _LevelSearch(
            mixtures.take(rows), masses[rows], largest_shortfall=np.full(rows.size, _EXACT_MASS)
        )
        search.run()
        # the search numbers its rows from 0
        parts += [Pieces(rows[part.rows], part.lower, part.upper) for part in search.pieces]
    pieces = Pieces.together(parts)  # those of a row are in one part, ascending
    return IntervalUnions.of_pieces(len(masses), pieces.rows, pieces.lower, pieces.upper)


def _outer_regions(mixtures: GaussianMixtures, masses: Doubles) -> IntervalUnions:
    """Find regions that hold every y whose score, as `observed` rounds it, is at most the mass.

    They are highest-density regions of a little more mass than asked for. The search may fall short
    of its mass by half of what was added. Once a row's level is found, its region is searched again
    a little below that level, since a peak that just reaches the level is easily missed.
    """
    rounding = _ROUNDING_OF_OUTER_MASS * (1 - np.clip(masses, 0, 1)) + _ROUNDING_OF_MASS
    enlarged_masses = masses + rounding

    # -inf is the level of the whole line, inf that of the empty set
    levels = np.where(enlarged_masses >= 1, -np.inf, np.inf)
    rows = np.flatnonzero((masses >= 0) & (enlarged_masses < 1))
    if rows.size:
        search = _LevelSearch(
            mixtures.take(rows),
            enlarged_masses[rows],
            largest_shortfall=np.minimum(_EXACT_MASS, rounding[rows] / 2),
        )
        search.run()
        levels[rows] = search.levels
    return outer_level_sets(mixtures, levels)


class _LevelSearch:
    """Find, for each row, the level whose level set {y : log f(y) >= level} has a wanted mass.

    The mass falls as the level rises. All rows are searched at once; each keeps a bracket of levels
    and takes turns: try a level, compare the mass of its set with the wanted one, narrow the
    bracket, and predict a better level from the ends of the set.

    Results of `run`, one for each row:

    - `levels`: a level whose set has the wanted mass
    - `pieces`: the pieces of the set, in lists of rows that were done in the same turn
    """

    def __init__(
        self, mixtures: GaussianMixtures, wanted_masses: Doubles, *, largest_shortfall: Doubles
    ) -> None:
        """Prepare a search for masses in [0, 1).

        A set may have less than the wanted mass by `largest_shortfall`, one number for each row.
        """
        n_rows = len(wanted_masses)
        self.mixtures = mixtures
        self.wanted_masses = wanted_masses
        self.wanted_z = _mass_to_z(wanted_masses)
        self.largest_shortfall = largest_shortfall
        self.levels = np.empty(n_rows)
        self.pieces: list[Pieces] = []

        # The bracket of each row: at level `low` the set has enough mass, at `high` it has less.
        # f is never above the largest density of its narrowest component: from there on up the
        # mass is 0.
        smallest_sd = mixtures.sds.T.min(axis=-1)
        highest = -np.log(smallest_sd) - 0.5 * np.log(2 * np.pi)
        self.high = np.broadcast_to(highest, (n_rows,)).astype(np.float64)
        self.low = np.full(n_rows, -np.inf)

    def run(self) -> None:
        """Take turns until every row is done."""
        rows = np.arange(len(self.wanted_masses))  # those that are not yet done
        levels = self._first_levels()  # the level that each of them tries next
        for turn in range(_MOST_TURNS):
            if not rows.size:
                return

            # 1. The set at each level, and its mass.
            mixtures = self.mixtures.take(rows)
            sets = level_sets(mixtures, levels)
            masses = _mass_of_sets(mixtures, sets)

            # 2. Keep the results of rows that are done.
            self._narrow_brackets(rows, levels, masses)
            is_right = self._are_right(rows, masses)
            is_done = is_right | self._have_narrow_brackets(rows) | (turn == _MOST_TURNS - 1)
            self.levels[rows] = self._best_levels(rows, levels, is_right=is_right)

            row_of_piece = sets.rows()
            pieces = Pieces(rows[row_of_piece], sets.lower, sets.upper)
            self.pieces.append(pieces.take(is_done[row_of_piece]))

            # 3. Choose the next levels of the others.
            other_pieces = pieces.take(~is_done[row_of_piece])
            next_levels = self._next_levels(rows, levels, masses, other_pieces, turn=turn)
            rows = rows[~is_done]
            levels = next_levels[~is_done]

    def _first_levels(self) -> Doubles:
        """Predict the level of each row as if it were one Gaussian.

        With the mixture's mean and sd, that Gaussian has the wanted mass between mean -+ z sd, and
        the level there is log f(mean) - z^2 / 2. The mixture's own density at these two ends gives
        a better prediction, if it is plausible.
        """
        mean, sd = mean_and_sd(self.mixtures)
        z = self.wanted_z
        level_at_mean = np.minimum(self.high, log_density(self.mixtures, mean))
        of_one_gaussian = level_at_mean - 0.5 * np.square(z)

        ends = Pieces(np.arange(len(z)), lower=mean - z * sd, upper=mean + z * sd)
        predicted = _predict_levels(self.mixtures, ends, z)
        is_plausible = (predicted > of_one_gaussian - _LARGEST_SURPRISE) & (predicted < self.high)
        levels = np.where(is_plausible, predicted, of_one_gaussian)
        return np.where(z > 0, levels, self.high)  # a mass of 0 has the highest level

    def _narrow_brackets(self, rows: Integers, levels: Doubles, masses: Doubles) -> None:
        """Replace one side of each row's bracket by the level that was tried."""
        has_enough = masses >= self.wanted_masses[rows]
        self.low[rows] = np.where(has_enough, levels, self.low[rows])
        self.high[rows] = np.where(has_enough, self.high[rows], levels)

    def _are_right(self, rows: Integers, masses: Doubles) -> Bools:
        """Tell which rows have the wanted mass; a wanted mass of 0 is right at once."""
        excess = masses - self.wanted_masses[rows]
        is_close = (excess <= _EXACT_MASS) & (-excess <= self.largest_shortfall[rows])
        return np.asarray(is_close | (self.wanted_z[rows] == 0))

    def _have_narrow_brackets(self, rows: Integers) -> Bools:
        """Tell which rows have a bracket that cannot be divided any more."""
        low = self.low[rows]
        high = self.high[rows]
        narrowest = _NARROWEST_BRACKET * np.maximum(1.0, np.abs(high))
        return np.asarray(np.isfinite(low) & (high - low <= narrowest))

    def _best_levels(self, rows: Integers, levels: Doubles, *, is_right: Bools) -> Doubles:
        """Choose the tried level where it is right, otherwise one whose set has enough mass.

        Where no level had enough mass yet, it is the tried one too.
        """
        low = self.low[rows]
        return np.where(np.isfinite(low) & ~is_right, low, levels)

    def _next_levels(
        self, rows: Integers, levels: Doubles, masses: Doubles, pieces: Pieces, *, turn: int
    ) -> Doubles:
        """Choose the level that each row tries next: the predicted one, or a safe one.

        `levels` were tried, `masses` are those of their sets, and `pieces` the pieces of these. The
        safe level is the middle of the bracket, or, without a lower side, a step down from the
        level tried: a Gaussian whose mass was P(|Z| <= z) has to go down by
        (wanted z)^2 / 2 - z^2 / 2. After a few turns steps down double.
        """
        predicted = _predict_levels(self.mixtures, pieces, self.wanted_z)[rows]
        low = self.low[rows]
        high = self.high[rows]

        drop = 0.5 * (np.square(self.wanted_z[rows]) - np.square(_mass_to_z(masses)))
        further_down = levels - drop * 2.0 ** max(0, turn - _CAUTIOUS_TURNS)
        middle = 0.5 * low + 0.5 * high
        safe = np.where(np.isfinite(low), middle, further_down)

        is_safe_turn = turn % _TURNS_BETWEEN_SAFE_STEPS == _TURNS_BETWEEN_SAFE_STEPS - 1
        if is_safe_turn:
            return safe
        lowest = np.maximum(low, further_down - _LARGEST_SURPRISE)
        is_usable = (predicted > lowest) & (predicted < high)
        return np.where(is_usable, predicted, safe)


def _predict_levels(mixtures: GaussianMixtures, pieces: Pieces, wanted_z: Doubles) -> Doubles:
    """Predict the level at which each row has its wanted mass, from a level set that is near it.

    `pieces` are those of the level set; rows without pieces get NaN. The wanted mass is
    P(|Z| <= wanted_z) for a standard normal Z.

    Newton steps for the level and all ends together. At end j let h be log f, h' its slope, and
    side -1 (lower end) or 1 (upper end). The end reaches the level if it moves by (level - h) / h',
    and the mass then grows by rate (level - h) with rate = side exp(h) / h'. So the level solves

        missing = sum_j rate_j (level - h_j)

    The missing mass is (wanted_z - z) sqrt(2 / pi) exp(-z^2 / 2) to first order, where
    P(|Z| <= z) is the mass now. It is taken in z because z is linear in the ends for one Gaussian.
    """
    n_rows = len(wanted_z)
    level = np.full(n_rows, np.nan)
    if not len(pieces.rows):
        return level

    rows = np.concatenate([pieces.rows, pieces.rows])
    ends = np.concatenate([pieces.lower, pieces.upper])
    side = np.repeat([-1.0, 1.0], len(pieces.rows))
    with np.errstate(all="ignore"):
        for _ in range(_NEWTON_STEPS):
            # 1. The mass between the ends, and how much of it is missing.
            mass = np.bincount(rows, side * distribution(mixtures, ends, rows), n_rows)
            z = _mass_to_z(mass.astype(np.float64))
            missing = (wanted_z - z) * np.exp(-0.5 * np.square(z)) * np.sqrt(2 / np.pi)

            # 2. Solve for the level: level * sum_j rate_j = missing + sum_j rate_j h_j.
            h, slope = log_density_and_slope(mixtures, rows, ends)
            rate = side * np.exp(h) / slope
            sum_of_rates = np.bincount(rows, rate, n_rows)
            level = (missing + np.bincount(rows, rate * h, n_rows)) / sum_of_rates

            # 3. Move the ends there.
            ends = ends + (level[rows] - h) / slope
    return level


def _mass_to_z(mass: Doubles) -> Doubles:
    """Return the z with P(|Z| <= z) = mass for a standard normal Z; a mass of 1 has a finite z."""
    largest_below_one = 1 - 2.0**-52
    return np.asarray(ndtri(0.5 + 0.5 * np.clip(mass, 0.0, largest_below_one)))


register(PredictiveDensity, defaults=(PredictiveDensity(),))
register(HighestDensityMass, defaults=(HighestDensityMass(),))
