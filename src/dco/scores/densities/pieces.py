"""Pieces of sets on the line, and the outline of a row in which they are searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dco.foundations.arrays import Bools, Doubles, Floats, Integers
from dco.predictions import GaussianMixtures
from dco.scores.densities.mixtures import component_blocks
from dco.sets.intervals import IntervalUnions


@dataclass(frozen=True, eq=False)
class Pieces:
    """Closed intervals, and the row of each."""

    rows: Integers
    lower: Floats
    upper: Floats

    @classmethod
    def none(cls) -> Pieces:
        """Return no pieces."""
        return cls(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))

    @classmethod
    def whole_line(cls, rows: Integers) -> Pieces:
        """Return one piece without ends for each row."""
        return cls(rows, np.full(rows.size, -np.inf), np.full(rows.size, np.inf))

    @classmethod
    def together(cls, parts: Sequence[Pieces]) -> Pieces:
        """Join pieces."""
        return cls(
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.lower for part in parts]),
            np.concatenate([part.upper for part in parts]),
        )

    def take(self, chosen: Bools | Integers) -> Pieces:
        """Return some of the pieces."""
        return Pieces(self.rows[chosen], self.lower[chosen], self.upper[chosen])


def unite(n_rows: int, parts: Sequence[Pieces]) -> IntervalUnions:
    """Unite pieces that overlap or touch, row by row."""
    pieces = Pieces.together(parts)
    pieces = pieces.take(np.lexsort((pieces.upper, pieces.lower, pieces.rows)))

    begins = np.ones(len(pieces.rows), dtype=bool)
    is_new_row = pieces.rows[1:] != pieces.rows[:-1]
    is_apart = pieces.lower[1:] > pieces.upper[:-1]
    begins[1:] = is_new_row | is_apart
    ends = np.append(begins[1:], True) if begins.size else begins
    return IntervalUnions.of_pieces(
        n_rows, pieces.rows[begins], pieces.lower[begins], pieces.upper[ends]
    )


@dataclass(frozen=True, eq=False)
class Outlines:
    """What a search needs to know of each row: hull of the means, smallest sd, and bounds of the
    level set.

    Where lower > upper every component is below the level, so the set is empty.
    """

    first_mean: Doubles
    last_mean: Doubles
    smallest_sd: Doubles
    lower: Doubles
    upper: Doubles

    @classmethod
    def of(cls, mixtures: GaussianMixtures, levels: Doubles) -> Outlines:
        """Look at every component once."""
        n_rows = len(mixtures)
        outlines = cls(*(np.empty(n_rows) for _ in range(5)))
        log_draws = np.log(mixtures.means.shape[0])
        largest = np.finfo(np.float64).max
        with np.errstate(over="ignore", invalid="ignore"):
            for components in component_blocks(mixtures, np.arange(n_rows)):
                places, means = components.places, components.means
                # a component with all the weight reaches the level at most this far out
                room = 2 * (components.log_peaks + log_draws - levels[places, None])
                reach = np.where(room >= 0, np.sqrt(room), -np.inf) / components.inverse_sds
                outlines.first_mean[places] = means.min(axis=1)
                outlines.last_mean[places] = means.max(axis=1)
                outlines.smallest_sd[places] = 1 / components.inverse_sds.max(axis=1)
                outlines.lower[places] = np.maximum((means - reach).min(axis=1), -largest)
                outlines.upper[places] = np.minimum((means + reach).max(axis=1), largest)
        return outlines
