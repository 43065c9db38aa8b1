"""The distribution function that many quantiles describe, linear between them and beyond them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dco.foundations.arrays import Doubles, Integers
from dco.predictions import Prediction, QuantileFunction, TargetDraws
from dco.scores.regression import smallest_denominators
from dco.scores.score import Score, expect
from dco.scores.thresholds import AnyThreshold, thresholds_of_rows

_ROUNDING_OF_MASS = 2.0**-48  # some 30 roundings of a number near 1
_ROUNDING_OF_ENDS = 16  # units in the last place
_LARGEST_WITH_SPACING = 1e307


@dataclass(frozen=True, eq=False)
class Lines:
    """One straight line per row: F(y) = level + (y - value) / run * rise, each part (n,)."""

    value: Doubles
    level: Doubles
    run: Doubles
    rise: Doubles


@dataclass(frozen=True, eq=False)
class LinearDistribution:
    """One distribution function F per row, with straight lines through (values[j], levels[j]).

    Beyond the outermost quantiles F goes on with its average slope between them, and so leaves
    [0, 1]: a y further out always has an F further out. Where quantiles are equal F jumps.
    """

    levels: Doubles
    values: Doubles

    @classmethod
    def of(cls, score: Score, prediction: Prediction) -> Self:
        """Read the distribution off the quantiles or the draws of a prediction."""
        record: Any = expect(score, prediction, QuantileFunction, TargetDraws)
        quantiles = record.quantile_function() if isinstance(record, TargetDraws) else record
        levels = quantiles.levels.astype(np.float64, copy=False)
        return cls(levels, quantiles.values.astype(np.float64, copy=False))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def total_mass(self) -> float:
        """The probability between the outermost quantiles."""
        return float(self.levels[-1] - self.levels[0])

    @property
    def scale(self) -> Doubles:
        """The distance between the outermost quantiles of each row, made positive where it is 0."""
        lowest = self.values[:, 0]
        highest = self.values[:, -1]
        return np.maximum(highest - lowest, smallest_denominators(lowest, highest))

    def before(self, y: Doubles) -> Doubles:
        """Return the limit of F from below at y, (n,)."""
        n_below = np.sum(self.values < y[:, None], axis=1)
        return self._evaluate(self._lines(n_below), y)

    def at(self, y: Doubles) -> Doubles:
        """Return F(y), (n,); where F jumps it is the upper end of the jump."""
        n_up_to = np.sum(self.values <= y[:, None], axis=1)
        return self._evaluate(self._lines(n_up_to), y)

    def quantile(self, level: float | Doubles) -> Doubles:
        """Return the y with F(y) = level, (n,), for one level or one per row."""
        wanted = np.broadcast_to(level, (len(self),))
        lines = self._lines(np.searchsorted(self.levels, wanted))
        with np.errstate(over="ignore", under="ignore"):
            return lines.value + (wanted - lines.level) / lines.rise * lines.run

    def quantile_outside(self, level: float | Doubles, *, side: int) -> Doubles:
        """Return quantiles moved by what `quantile` rounds, down for side -1 and up for side 1."""
        wanted = np.broadcast_to(level, (len(self),))
        lines = self._lines(np.searchsorted(self.levels, wanted))
        return move_outwards(
            self.quantile(level), side=side, beside=(lines.value, lines.value + lines.run)
        )

    def _lines(self, n_left: Integers) -> Lines:
        """Return the line of each row that follows its `n_left` lowest quantiles."""
        rows = np.arange(len(self))
        last = self.levels.size - 1
        left = np.clip(n_left - 1, 0, last)
        right = np.minimum(left + 1, last)
        is_between = (n_left >= 1) & (n_left <= last)

        run = self.values[rows, right] - self.values[rows, left]
        rise = self.levels[right] - self.levels[left]
        return Lines(
            value=self.values[rows, left],
            level=self.levels[left],
            run=np.where(is_between, run, self.scale),
            rise=np.where(is_between, rise, self.total_mass),
        )

    def _evaluate(self, lines: Lines, y: Doubles) -> Doubles:
        with np.errstate(over="ignore", under="ignore"):
            return lines.level + (y - lines.value) / lines.run * lines.rise


def masses_of_rows(threshold: AnyThreshold, n_rows: int) -> Doubles:
    """Return one threshold per row, (n,), in double precision."""
    limit = thresholds_of_rows(threshold, n_rows)
    return np.broadcast_to(np.asarray(limit, dtype=np.float64), (n_rows,))


def allow_for_rounding(mass: Doubles) -> Doubles:
    """Raise a mass by more than what a score that computes masses may have rounded."""
    return np.asarray(mass + _ROUNDING_OF_MASS * (1 + np.abs(mass)))


def move_outwards(ends: Doubles, *, side: int, beside: tuple[Doubles, Doubles]) -> Doubles:
    """Move ends down (side -1) or up (side 1) by a few units in the last place.

    The unit is that of the largest number from which an end was computed: itself and the two
    numbers `beside` it.
    """
    size = np.maximum(np.abs(ends), np.maximum(np.abs(beside[0]), np.abs(beside[1])))
    unit = np.spacing(np.minimum(size, _LARGEST_WITH_SPACING))
    with np.errstate(over="ignore"):
        return np.asarray(ends + side * _ROUNDING_OF_ENDS * unit)
