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
        """Return the total length of each row's set at each of J thresholds, (J, n).

        It is faster than `sizes` J times, because the density is interpolated once for all.
        """
        mixtures = expect(self, prediction, GaussianMixtures)
        n_rows = len(mixtures)
        if not len(thresholds):
            return np.empty((0, n_rows))

        # -log f <= threshold is log f >= level for the level -threshold.
        levels = np.empty((len(thresholds), n_rows))
        for position, threshold in enumerate(thresholds):
            limit = np.asarray(thresholds_of_rows(threshold, n_rows), dtype=np.float64)
            levels[position] = -limit
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
    """Find the highest-density region of each row that has the mass (probability) asked for.

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

    The score of y is the mass of all points of higher density. So these are the highest-density
    regions of a little more mass than asked for, one mass for each row.
    """
    # 1. Add what the score of a y may err by.
    error = _ROUNDING_OF_OUTER_MASS * (1 - np.clip(masses, 0, 1)) + _ROUNDING_OF_MASS
    enlarged_masses = masses + error

    # 2. Find the level of log f for each mass: -inf for the whole line, inf for the empty set. The
    # mass of a set may fall short by half of what was added.
    levels = np.where(enlarged_masses >= 1, -np.inf, np.inf)
    rows = np.flatnonzero((masses >= 0) & (enlarged_masses < 1))
    if rows.size:
        search = _LevelSearch(
            mixtures.take(rows),
            enlarged_masses[rows],
            largest_shortfall=np.minimum(_EXACT_MASS, error[rows] / 2),
        )
        search.run()
        levels[rows] = search.levels

    # 3. Find the sets of these levels, with ends that are rounded outwards.
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
        """Prepare a search for the level of each row's set.

        Parameters
        ----------
        mixtures : the density f of each row
        wanted_masses : (n,), the probability that each row's set shall have, at least 0 and below 1
        largest_shortfall : (n,), by how much a set may have less than that
        """
        n_rows = len(wanted_masses)
        self.mixtures = mixtures
        self.wanted_masses = wanted_masses
        self.wanted_z = _mass_to_z(wanted_masses)  # P(|Z| <= z) = wanted mass, Z standard normal
        self.largest_shortfall = largest_shortfall
        self.levels = np.empty(n_rows)
        self.pieces: list[Pieces] = []

        # The bracket of each row: the set has enough mass at level `low`, and less at level `high`.
        # It starts with a `high` where the set is empty: f is never above the largest density of
        # its narrowest component.
        smallest_sd = mixtures.sds.T.min(axis=-1)
        highest = -np.log(smallest_sd) - 0.5 * np.log(2 * np.pi)
        self.high = np.broadcast_to(highest, (n_rows,)).astype(np.float64)
        self.low = np.full(n_rows, -np.inf)

    def run(self) -> None:
        """Search all rows, turn by turn, until each has a level whose set has the wanted mass."""
        rows = np.arange(len(self.wanted_masses))  # those that are not yet done
        levels = self._first_levels()  # the level that each of them tries next
        for turn in range(_MOST_TURNS):
            if not rows.size:
                return

            # 1. The set at each level, and its mass.
            mixtures = self.mixtures.take(rows)
            sets = level_sets(mixtures, levels)
            masses = _mass_of_sets(mixtures, sets)
            row_of_piece = sets.rows()
            pieces = Pieces(rows[row_of_piece], sets.lower, sets.upper)

            # 2. A row is done if its mass is right, or if its search cannot get any closer.
            self._narrow_brackets(rows, levels, masses)
            is_right = self._are_right(rows, masses)
            is_last_turn = turn == _MOST_TURNS - 1
            is_done = is_right | self._have_narrow_brackets(rows) | is_last_turn

            # 3. Keep the results of rows that are done.
            self.levels[rows] = self._best_levels(rows, levels, is_right=is_right)
            is_piece_done = is_done[row_of_piece]
            self.pieces.append(pieces.take(is_piece_done))

            # 4. Choose the next levels of the others.
            next_levels = self._next_levels(
                rows, levels, masses, pieces.take(~is_piece_done), turn=turn
            )
            rows = rows[~is_done]
            levels = next_levels[~is_done]

    def _first_levels(self) -> Doubles:
        """Predict the level of each row, as if its density f were one Gaussian.

        The Gaussian with f's mean and sd has the wanted mass between mean - z sd and mean + z sd,
        and the level there is log f(mean) - z^2 / 2. The level that f itself has near these two
        ends is a better prediction, if it is plausible.
        """
        mean, sd = mean_and_sd(self.mixtures)
        z = self.wanted_z
        level_at_mean = np.minimum(self.high, log_density(self.mixtures, mean))
        level_of_gaussian = level_at_mean - 0.5 * np.square(z)

        ends = Pieces(np.arange(len(z)), lower=mean - z * sd, upper=mean + z * sd)
        predicted = _predict_levels(self.mixtures, ends, z)
        lowest = level_of_gaussian - _LARGEST_SURPRISE
        is_plausible = (predicted > lowest) & (predicted < self.high)
        levels = np.where(is_plausible, predicted, level_of_gaussian)
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

        The prediction is used where it lies in the bracket and not surprisingly far down. In every
        eighth turn no row uses it, so that wrong predictions cannot keep a bracket from shrinking.

        Parameters
        ----------
        rows : the rows that are not yet done, m of them
        levels, masses : (m,), the levels that were tried, and the masses of their sets
        pieces : the pieces of these sets; a row without pieces has no prediction
        turn : how many turns there were before
        """
        low = self.low[rows]
        further_down = self._step_down(rows, levels, masses, turn=turn)
        middle_of_bracket = 0.5 * low + 0.5 * self.high[rows]
        safe = np.where(np.isfinite(low), middle_of_bracket, further_down)

        is_safe_turn = turn % _TURNS_BETWEEN_SAFE_STEPS == _TURNS_BETWEEN_SAFE_STEPS - 1
        if is_safe_turn:
            return safe
        predicted = _predict_levels(self.mixtures, pieces, self.wanted_z)[rows]
        lowest = np.maximum(low, further_down - _LARGEST_SURPRISE)
        is_usable = (predicted > lowest) & (predicted < self.high[rows])
        return np.where(is_usable, predicted, safe)

    def _step_down(self, rows: Integers, levels: Doubles, masses: Doubles, *, turn: int) -> Doubles:
        """Return levels below those tried, for sets of more mass, as if f were one Gaussian.

        The log density of a Gaussian z sds from its mean is z^2 / 2 below that at the mean. So
        where the set had the mass P(|Z| <= z), the level goes down by (wanted z)^2 / 2 - z^2 / 2.
        After a few turns the steps double.
        """
        z = _mass_to_z(masses)
        drop = 0.5 * (np.square(self.wanted_z[rows]) - np.square(z))
        return levels - drop * 2.0 ** max(0, turn - _CAUTIOUS_TURNS)


def _predict_levels(mixtures: GaussianMixtures, pieces: Pieces, wanted_z: Doubles) -> Doubles:
    """Predict the level whose level set has the wanted mass, from a set that is near it.

    A few Newton steps, each for the level and all ends of the set together. At end j let h_j be
    log f, h'_j its slope, and side_j -1 (a lower end) or 1 (an upper end). The end reaches the new
    level if it moves by (level - h_j) / h'_j. The mass then grows by rate_j (level - h_j), with
    rate_j = side_j exp(h_j) / h'_j. So the level solves

        missing mass = sum_j rate_j (level - h_j)

    Parameters
    ----------
    pieces : the intervals of the sets; rows without any get NaN
    wanted_z : (n,), the wanted mass of each row as the z with P(|Z| <= z) = mass, Z standard normal

    Returns
    -------
    A level for each row, (n,).
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
            missing = _missing_mass(mass.astype(np.float64), wanted_z)

            # 2. Solve for the level: level * sum_j rate_j = missing + sum_j rate_j h_j.
            h, slope = log_density_and_slope(mixtures, rows, ends)
            rate = side * np.exp(h) / slope
            sum_of_rates = np.bincount(rows, rate, n_rows)
            sum_of_rates_times_h = np.bincount(rows, rate * h, n_rows)
            level = (missing + sum_of_rates_times_h) / sum_of_rates

            # 3. Move the ends there.
            ends = ends + (level[rows] - h) / slope
    return level


def _missing_mass(mass: Doubles, wanted_z: Doubles) -> Doubles:
    """Return how much more mass is wanted, to first order in z.

    With mass = P(|Z| <= z) for a standard normal Z, that is (wanted z - z) times the derivative of
    this probability, sqrt(2 / pi) exp(-z^2 / 2). In z, because the ends of one Gaussian's set are
    linear in z: then a single Newton step is right.
    """
    z = _mass_to_z(mass)
    return np.asarray((wanted_z - z) * np.exp(-0.5 * np.square(z)) * np.sqrt(2 / np.pi))


def _mass_to_z(mass: Doubles) -> Doubles:
    """Return the z with P(|Z| <= z) = mass for a standard normal Z; a mass of 1 has a finite z."""
    largest_below_one = 1 - 2.0**-52
    return np.asarray(ndtri(0.5 + 0.5 * np.clip(mass, 0.0, largest_below_one)))


register(PredictiveDensity, defaults=(PredictiveDensity(),))
register(HighestDensityMass, defaults=(HighestDensityMass(),))
