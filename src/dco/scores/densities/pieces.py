"""Pieces of sets on the line, and bounds of each row's level set, between which it is searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dco.foundations.arrays import Bools, Doubles, Floats, Integers
from dco.predictions import GaussianMixtures
from dco.scores.densities.mixtures import Components, component_blocks
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
    def none(cls) -> Outlines:
        """Return the outlines of no rows."""
        return cls(np.empty(0), np.empty(0), np.empty(0), np.empty(0), np.empty(0))

    @classmethod
    def of(cls, mixtures: GaussianMixtures, levels: Doubles) -> Outlines:
        """Compute the outlines of all rows, for one level per row."""
        parts = [cls.none()]
        rows = np.arange(len(mixtures))
        with np.errstate(over="ignore", invalid="ignore"):
            for components in component_blocks(mixtures, rows):
                parts.append(cls._of_block(components, levels[components.positions]))
        return cls(
            first_mean=np.concatenate([part.first_mean for part in parts]),
            last_mean=np.concatenate([part.last_mean for part in parts]),
            smallest_sd=np.concatenate([part.smallest_sd for part in parts]),
            lower=np.concatenate([part.lower for part in parts]),
            upper=np.concatenate([part.upper for part in parts]),
        )

    @classmethod
    def _of_block(cls, components: Components, levels: Doubles) -> Outlines:
        """Compute the outlines of a block of rows, given their Gaussian components and levels.

        f is the mean of the T Gaussian densities of its row, so where f reaches the level, so does
        the largest of them. A Gaussian whose log density at its mean is p does so up to

            reach = sd sqrt(2 (p - level))

        from its mean, and nowhere if p < level. The bounds of the row enclose the intervals
        mean +- reach of all its Gaussians.
        """
        means = components.means
        n_components = means.shape[1]
        # log peaks hold the weight 1 / T of a component; adding log T takes it out
        log_densities_at_mean = components.log_peaks + np.log(n_components)
        squared_reach = 2 * (log_densities_at_mean - levels[:, None])
        # a reach of -inf gives an empty interval to a Gaussian that is below the level everywhere
        reach_in_sds = np.where(squared_reach >= 0, np.sqrt(squared_reach), -np.inf)
        reach = reach_in_sds / components.inverse_sds

        largest_float = np.finfo(np.float64).max
        return cls(
            first_mean=means.min(axis=1),
            last_mean=means.max(axis=1),
            smallest_sd=np.broadcast_to(1 / components.inverse_sds.max(axis=1), (len(means),)),
            lower=np.maximum((means - reach).min(axis=1), -largest_float),
            upper=np.minimum((means + reach).max(axis=1), largest_float),
        )
