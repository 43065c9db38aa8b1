"""Shortest intervals of a predicted distribution, each inside the next larger one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Doubles, Floats, Integers, as_float_targets
from dco.predictions import Prediction, QuantileFunction, TargetDraws
from dco.scores.linear_distribution import (
    LinearDistribution,
    allow_for_rounding,
    masses_of_rows,
    move_outwards,
)
from dco.scores.registry import register
from dco.scores.score import Score, membership_by_score
from dco.scores.thresholds import AnyThreshold
from dco.sets.intervals import Intervals

_ROUNDING_OF_LEVELS = 1e-9  # 0.9 - 0.1 is a mass of 0.8


@dataclass(frozen=True)
class ShortestMass(Score):
    """The mass of the smallest interval that reaches y, of a family of nested short intervals.

    In the spirit of CHR, Sesia and Romano (2021). The family starts from the shortest interval
    between two predicted quantiles that has the probability `mass`. Larger ones grow from it, at
    each moment on the side where the predicted density is higher; smaller ones shrink from it on
    the side where it is lower. If the density has one mode and the levels are evenly spaced, every
    set is the shortest of its mass. So sets of skewed distributions are shorter than central ones.

    The density is constant between two quantiles. Beyond the outermost quantiles sets grow on both
    sides alike, so that they are bounded for every finite threshold.
    """

    mass: float = 0.8
    needs: ClassVar[tuple[type, ...]] = (QuantileFunction, TargetDraws)

    def __post_init__(self) -> None:
        if not 0 < self.mass < 1:
            raise ValueError(f"mass must lie between 0 and 1, got {self.mass!r}.")

    def observed(self, prediction: Prediction, y: ArrayLike) -> Floats:
        """Return the mass of the smallest interval of the family that reaches y, (n,)."""
        family = self._family(prediction)
        value = as_float_targets(y, len(family.core)).astype(np.float64, copy=False)
        core_value = family.core_values()

        at_core = np.where(np.isnan(value), np.nan, 0.0)
        below_or_at_core = np.where(value < core_value, family.mirrored().reach(-value), at_core)
        return np.where(value > core_value, family.reach(value), below_or_at_core)

    def sets(self, prediction: Prediction, threshold: AnyThreshold) -> Intervals:
        """Return the intervals of the family of mass t; empty for t < 0."""
        limit = masses_of_rows(threshold, len(prediction))
        mass = allow_for_rounding(limit)
        is_empty = limit < 0
        family = self._family(prediction)
        return Intervals(
            np.where(is_empty, np.inf, -family.mirrored().upper_ends_outside(mass)),
            np.where(is_empty, -np.inf, family.upper_ends_outside(mass)),
            membership_by_score(self, prediction, limit),
        )

    def sizes(self, prediction: Prediction, threshold: AnyThreshold) -> Floats:
        """Return the length of each row's set, without rounding its ends outwards."""
        return np.asarray(self.sizes_at_several(prediction, [threshold])[0])

    def sizes_at_several(
        self, prediction: Prediction, thresholds: Sequence[AnyThreshold] | Floats
    ) -> Floats:
        """Return the lengths of the sets at J thresholds, (J, n); the family is made once."""
        n_rows = len(prediction)
        family = self._family(prediction)
        mirrored = family.mirrored()
        lengths = np.zeros((len(thresholds), n_rows))
        for position, threshold in enumerate(thresholds):
            mass = masses_of_rows(threshold, n_rows)
            length = family.upper_ends(mass) + mirrored.upper_ends(mass)
            lengths[position] = np.where(mass < 0, 0.0, np.maximum(length, 0.0))
        return lengths

    def _family(self, prediction: Prediction) -> _Family:
        return _make_family(LinearDistribution.of(self, prediction), self.mass)


@dataclass(frozen=True, eq=False)
class _Family:
    """For each row a family of nested intervals, which grow from one predicted quantile, its core.

    Between quantiles j and j + 1 lies piece j. Pieces from the core on are entered from their left
    ends, pieces below it from their right ends. `mass_before[i, j]` is the mass of the interval
    that row i has when it enters piece j.

    - `values` (n, L): the quantiles
    - `rises` (L - 1,): the mass of each piece
    - `core` (n,): the position of the core among the quantiles
    - `mass_before` (n, L - 1)
    - `total_mass`, `scale` (n,): mass and distance between the outermost quantiles
    """

    values: Doubles
    rises: Doubles
    core: Integers
    mass_before: Doubles
    total_mass: float
    scale: Doubles

    def mirrored(self) -> Self:
        """Return the family of -y, whose upper ends are minus the lower ends of this one."""
        return replace(
            self,
            values=-self.values[:, ::-1],
            rises=self.rises[::-1],
            core=self.values.shape[1] - 1 - self.core,
            mass_before=self.mass_before[:, ::-1],
        )

    def core_values(self) -> Doubles:
        """Return the quantile from which each row's intervals grow."""
        return self.values[np.arange(len(self.core)), self.core]

    def reach(self, y: Doubles) -> Doubles:
        """Return the mass of the smallest interval that reaches y, for rows with y above the core.

        What it returns for other rows has no meaning.
        """
        rows = np.arange(len(y))
        n_below = np.sum(self.values < y[:, None], axis=1)
        piece = np.clip(n_below - 1, 0, len(self.rises) - 1)
        left = self.values[rows, piece]
        with np.errstate(all="ignore"):
            share = (y - left) / (self.values[rows, piece + 1] - left)
            inside = self.mass_before[rows, piece] + share * self.rises[piece]
            beyond = (y - self.values[:, -1]) / self.scale * self.total_mass
        return np.where(y > self.values[:, -1], self.total_mass + 2 * beyond, inside)

    def upper_ends(self, mass: Doubles) -> Doubles:
        """Return the upper end of the interval of this mass, (n,)."""
        return self._upper_ends_from(self._last_pieces(mass), mass)

    def upper_ends_outside(self, mass: Doubles) -> Doubles:
        """Return upper ends moved up by what `upper_ends` rounds."""
        rows = np.arange(len(mass))
        piece = self._last_pieces(mass)
        beside = (self.values[rows, piece], self.values[rows, piece + 1])
        return move_outwards(self._upper_ends_from(piece, mass), side=1, beside=beside)

    def _last_pieces(self, mass: Doubles) -> Integers:
        """Return the last piece above the core that the interval of this mass has entered.

        Where it has entered none, return the piece below the core.
        """
        pieces = np.arange(len(self.rises))
        is_above_core = pieces >= self.core[:, None]
        is_entered = is_above_core & (self.mass_before <= mass[:, None])
        last = np.max(np.where(is_entered, pieces, -1), axis=1)
        return np.where(last >= 0, last, np.maximum(self.core - 1, 0))

    def _upper_ends_from(self, piece: Integers, mass: Doubles) -> Doubles:
        rows = np.arange(len(mass))
        left = self.values[rows, piece]
        run = self.values[rows, piece + 1] - left
        with np.errstate(over="ignore", under="ignore"):
            share = (mass - self.mass_before[rows, piece]) / self.rises[piece]
            end_in_piece = left + np.clip(share, 0, 1) * run
            beyond = np.maximum(mass - self.total_mass, 0) / (2 * self.total_mass) * self.scale
        is_above_core = piece >= self.core
        return np.where(is_above_core, end_in_piece, self.core_values()) + beyond


def _make_family(distribution: LinearDistribution, mass: float) -> _Family:
    """Build the nested intervals of each row, piece by piece, inwards and outwards from a start."""
    levels = distribution.levels
    values = distribution.values
    rises = np.diff(levels)
    with np.errstate(over="ignore"):
        length_per_mass = np.diff(values, axis=1) / rises
    rows = np.arange(len(values))
    last = levels.size - 1
    mass_before = np.zeros(length_per_mass.shape)

    # 1. Start from the shortest interval of the wanted mass.
    start_left, start_right = _shortest_intervals(distribution, mass)

    # 2. Shrink it: leave the piece at one of its ends where the density is lower.
    left = start_left.copy()
    right = start_right.copy()
    while (active := rows[left < right]).size:
        first_piece = left[active]
        last_piece = right[active] - 1
        is_left = length_per_mass[active, first_piece] > length_per_mass[active, last_piece]
        left[active] += is_left
        right[active] -= ~is_left
        piece = np.where(is_left, first_piece, last_piece)
        mass_before[active, piece] = levels[right[active]] - levels[left[active]]
    core = left

    # 3. Grow it: enter the piece beside one of its ends where the density is higher.
    left = start_left.copy()
    right = start_right.copy()
    while (active := rows[(left > 0) | (right < last)]).size:
        piece_below = np.maximum(left[active] - 1, 0)
        piece_above = np.minimum(right[active], last - 1)
        is_denser = length_per_mass[active, piece_below] < length_per_mass[active, piece_above]
        is_left = (left[active] > 0) & (is_denser | (right[active] == last))
        piece = np.where(is_left, piece_below, piece_above)
        mass_before[active, piece] = levels[right[active]] - levels[left[active]]
        left[active] -= is_left
        right[active] += ~is_left

    return _Family(
        values=values,
        rises=rises,
        core=core,
        mass_before=mass_before,
        total_mass=distribution.total_mass,
        scale=distribution.scale,
    )


def _shortest_intervals(distribution: LinearDistribution, mass: float) -> tuple[Integers, Integers]:
    """Find the shortest interval between two quantiles of each row with at least this mass.

    Return the positions of the two quantiles. If no two quantiles have the mass between them, they
    are the outermost ones.
    """
    levels = distribution.levels
    lowest_right_level = levels + mass - _ROUNDING_OF_LEVELS
    lefts = np.flatnonzero(lowest_right_level <= levels[-1])
    if not lefts.size:
        lefts = np.array([0])
    rights = np.minimum(np.searchsorted(levels, lowest_right_level[lefts]), levels.size - 1)

    lengths = distribution.values[:, rights] - distribution.values[:, lefts]
    shortest = np.argmin(lengths, axis=1)
    return lefts[shortest], rights[shortest]


register(ShortestMass, defaults=(ShortestMass(),))
