"""Pieces of sets on the line, and bounds of each row's level set, between which it is searched."""

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
    """Closed intervals [lower[j], upper[j]], each a part of the set of row rows[j]."""

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
        """Return some of the pieces, chosen by a mask or by position."""
        return Pieces(self.rows[chosen], self.lower[chosen], self.upper[chosen])


def unite(n_rows: int, parts: Sequence[Pieces]) -> IntervalUnions:
    """Unite the pieces of each row that overlap or touch: [0, 2], [1, 3], [5, 6] -> [0, 3], [5, 6].

    A row's pieces come from different searches, in any order, but none lies inside another.
    """
    pieces = Pieces.together(parts)
    from_left_to_right = np.lexsort((pieces.upper, pieces.lower, pieces.rows))
    pieces = pieces.take(from_left_to_right)

    # an interval of the union begins with each piece that lies beyond the piece before it ...
    begins = np.ones(len(pieces.rows), dtype=bool)
    is_new_row = pieces.rows[1:] != pieces.rows[:-1]
    is_apart = pieces.lower[1:] > pieces.upper[:-1]
    begins[1:] = is_new_row | is_apart

    # ... and ends with the piece before the next beginning, the last one with the last piece
    ends = np.append(begins[1:], True) if begins.size else begins
    return IntervalUnions.of_pieces(
        n_rows, pieces.rows[begins], pieces.lower[begins], pieces.upper[ends]
    )


@dataclass(frozen=True, eq=False)
class Outlines:
    """Where to search for the level set of each row, {y : log f(y) >= level}.

    - `first_mean`, `last_mean`: the smallest and the largest mean of the row's components
    - `smallest_sd`: the smallest sd of the components; f holds no finer detail
    - `lower`, `upper`: bounds of the level set; lower > upper if the set is empty for certain
    """

    first_mean: Doubles
    last_mean: Doubles
    smallest_sd: Doubles
    lower: Doubles
    upper: Doubles

    @classmethod
    def of(cls, mixtures: GaussianMixtures, levels: Doubles) -> Outlines:
        """Compute the outlines of all rows, for one level per row.

        f is the mean of its T Gaussian densities, so where f reaches the level, so does the largest
        of them. A Gaussian whose log density at its mean is p does so up to

            reach = sd sqrt(2 (p - level))

        from its mean, and nowhere if p < level. The bounds of the row enclose the intervals
        mean +- reach of all its Gaussians.
        """
        n_rows = len(mixtures)
        outlines = cls(
            first_mean=np.empty(n_rows),
            last_mean=np.empty(n_rows),
            smallest_sd=np.empty(n_rows),
            lower=np.empty(n_rows),
            upper=np.empty(n_rows),
        )
        log_n_components = np.log(mixtures.means.shape[0])
        largest_float = np.finfo(np.float64).max
        with np.errstate(over="ignore", invalid="ignore"):
            for components in component_blocks(mixtures, np.arange(n_rows)):
                block = components.positions
                means = components.means
                outlines.first_mean[block] = means.min(axis=1)
                outlines.last_mean[block] = means.max(axis=1)
                outlines.smallest_sd[block] = 1 / components.inverse_sds.max(axis=1)

                # log peaks hold the weight 1 / T of a component; adding log T takes it out
                squared_reach = 2 * (components.log_peaks + log_n_components - levels[block, None])
                # a component that is below the level everywhere gets a reach of -inf, which makes
                # its interval empty
                reach_in_sds = np.where(squared_reach >= 0, np.sqrt(squared_reach), -np.inf)
                reach = reach_in_sds / components.inverse_sds
                outlines.lower[block] = np.maximum((means - reach).min(axis=1), -largest_float)
                outlines.upper[block] = np.minimum((means + reach).max(axis=1), largest_float)
        return outlines
