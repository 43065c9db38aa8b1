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
    """What a search needs to know of each row: its first and last mean, its smallest sd, and
    bounds of its level set.

    Where lower > upper every component is below the level, so the set is empty.
    """

    first_mean: Doubles
    last_mean: Doubles
    smallest_sd: Doubles
    lower: Doubles
    upper: Doubles

    @classmethod
    def of(cls, mixtures: GaussianMixtures, levels: Doubles) -> Outlines:
        """Compute the outlines of all rows, a block of components at a time.

        f is the mean of its T Gaussian densities, so where f reaches the level, so does the largest
        of them. A Gaussian whose log density at its mean is p does so up to sqrt(2 (p - level)) sds
        from the mean. The bounds of the row enclose these ranges of all its Gaussians.
        """
        n_rows = len(mixtures)
        outlines = cls(
            first_mean=np.empty(n_rows),
            last_mean=np.empty(n_rows),
            smallest_sd=np.empty(n_rows),
            lower=np.empty(n_rows),
            upper=np.empty(n_rows),
        )
        log_draws = np.log(mixtures.means.shape[0])
        largest = np.finfo(np.float64).max
        with np.errstate(over="ignore", invalid="ignore"):
            for components in component_blocks(mixtures, np.arange(n_rows)):
                rows = components.places
                means = components.means
                outlines.first_mean[rows] = means.min(axis=1)
                outlines.last_mean[rows] = means.max(axis=1)
                outlines.smallest_sd[rows] = 1 / components.inverse_sds.max(axis=1)

                # log_peaks hold the weight 1 / T, which log T undoes; the reach is -inf for a
                # component that is below the level everywhere
                squared_reach = 2 * (components.log_peaks + log_draws - levels[rows, None])
                reach_in_sds = np.where(squared_reach >= 0, np.sqrt(squared_reach), -np.inf)
                reach = reach_in_sds / components.inverse_sds
                outlines.lower[rows] = np.maximum((means - reach).min(axis=1), -largest)
                outlines.upper[rows] = np.minimum((means + reach).max(axis=1), largest)
        return outlines
