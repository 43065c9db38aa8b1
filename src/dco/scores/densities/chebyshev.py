"""Level sets by a Chebyshev interpolant of log f: fast, for rows that few nodes resolve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dco.foundations.arrays import Bools, Doubles, Integers
from dco.predictions import GaussianMixtures
from dco.scores.densities.mixtures import log_density
from dco.scores.densities.pieces import Outlines, Pieces

# points per node at which the interpolant is looked at, the finer grid where a peak is close to the
# level
GRID_DENSITIES = (4, 64)
RESOLVED = 1e-6  # the last coefficients of log f must be below this
# an end is accepted when its last correction, in units of the smallest sd, is below this
POLISHED = 1e-7
LARGEST_POLISH = 1e-3  # in units of the smallest sd; a larger one means that the curve was wrong


@dataclass(frozen=True, eq=False)
class Curves:
    """log f of some rows as a Chebyshev series on centre +- half."""

    rows: Integers
    centre: Doubles
    half: Doubles
    coefficients: Doubles
    smallest_sd: Doubles

    def take(self, chosen: Bools | Integers) -> Curves:
        """Return the curves of some rows."""
        return Curves(
            self.rows[chosen],
            self.centre[chosen],
            self.half[chosen],
            self.coefficients[chosen],
            self.smallest_sd[chosen],
        )

    def above(self, levels: Doubles) -> Curves:
        """Return the curves less the levels of their rows."""
        coefficients = self.coefficients.copy()
        coefficients[:, 0] -= levels[self.rows]
        return Curves(self.rows, self.centre, self.half, coefficients, self.smallest_sd)


def interpolate(
    mixtures: GaussianMixtures, outlines: Outlines, rows: Integers, n_nodes: int
) -> tuple[Curves, Integers]:
    """Return interpolants of the rows that `n_nodes` nodes resolve, and the other rows."""
    lower, upper = outlines.lower[rows], outlines.upper[rows]
    centre = 0.5 * lower + 0.5 * upper
    with np.errstate(over="ignore"):
        # a little wider than the bounds, so that a crossing on a bound itself is inside
        half = 0.505 * upper - 0.505 * lower

    # neighbouring nodes must be closer than the smallest sd, and not as close as floats are
    is_fine = half <= n_nodes / np.pi * outlines.smallest_sd[rows]
    is_fine &= half > 1e-9 * np.abs(centre)
    coarse_rows = rows[~is_fine]
    rows, centre, half = rows[is_fine], centre[is_fine], half[is_fine]

    angles = np.pi * (np.arange(n_nodes) + 0.5) / n_nodes
    heights = log_density(mixtures, centre[:, None] + half[:, None] * np.cos(angles), rows)
    transform = np.cos(np.outer(angles, np.arange(n_nodes))) * (2.0 / n_nodes)
    transform[:, 0] *= 0.5
    coefficients = _product(heights, transform)

    curves = Curves(rows, centre, half, coefficients, outlines.smallest_sd[rows])
    is_resolved = np.abs(coefficients[:, -3:]).max(axis=1) <= RESOLVED
    return curves.take(is_resolved), np.concatenate([coarse_rows, rows[~is_resolved]])


def cut(mixtures: GaussianMixtures, curves: Curves, levels: Doubles) -> tuple[Pieces, Integers]:
    """Return the pieces above the levels, and the rows that the interpolant does not decide."""
    n_nodes = curves.coefficients.shape[1]
    orders = np.arange(n_nodes)
    curves = curves.above(levels)

    # 1. Both ends of the interval must lie outside the set.
    values_at_ends = np.stack([(-1.0) ** orders, np.ones(n_nodes)], axis=1)
    is_below_at_ends = np.all(_product(curves.coefficients, values_at_ends) < 0, axis=1)
    undecided = [curves.rows[~is_below_at_ends]]
    curves = curves.take(is_below_at_ends)

    # 2. Look at the curve on a grid, and on a finer one where a peak or a valley may touch 0.
    pieces = [Pieces.none()]
    for density in GRID_DENSITIES:
        if not curves.rows.size:
            break
        grid = np.linspace(np.pi, 0, density * n_nodes + 1)  # descending angles: ascending y
        heights = _product(curves.coefficients, np.cos(np.outer(orders, grid)))
        is_clear = ~_nearly_touches(heights)
        found, bad_rows = _cut_at_crossings(mixtures, curves, levels, grid, heights, is_clear)
        pieces.append(found)
        undecided.append(bad_rows)
        curves = curves.take(~is_clear)

    undecided.append(curves.rows)
    return Pieces.together(pieces), np.concatenate(undecided)


def _cut_at_crossings(
    mixtures: GaussianMixtures,
    curves: Curves,
    levels: Doubles,
    grid: Doubles,
    heights: Doubles,
    is_clear: Bools,
) -> tuple[Pieces, Integers]:
    """Return the pieces of the clear rows between the crossings that the grid shows, and the rows
    whose crossings could not be polished.
    """
    is_inside = heights >= 0
    is_inside[:, [0, -1]] = False  # as at the ends; the product may round differently
    is_crossing = (is_inside[:, 1:] != is_inside[:, :-1]) & is_clear[:, None]
    curve_of, place = np.nonzero(is_crossing)
    ends, is_good = _find_ends(
        mixtures,
        curves.take(curve_of),
        levels,
        bracket=np.stack([grid[place], grid[place + 1]]),
        values=np.stack([heights[curve_of, place], heights[curve_of, place + 1]]),
    )

    # crossings alternate, up and down, because the curve is below the level at both ends
    is_bad = np.zeros(len(curves.rows), dtype=bool)
    is_bad[curve_of[~is_good]] = True
    is_disorder = (curve_of[1:] == curve_of[:-1]) & (ends[1:] <= ends[:-1])
    is_bad[curve_of[1:][is_disorder]] = True

    is_usable = ~is_bad[curve_of]
    rows, usable_ends = curves.rows[curve_of[is_usable]], ends[is_usable]
    return Pieces(rows[::2], usable_ends[::2], usable_ends[1::2]), curves.rows[is_bad]


def _find_ends(
    mixtures: GaussianMixtures, curves: Curves, levels: Doubles, bracket: Doubles, values: Doubles
) -> tuple[Doubles, Bools]:
    """Return the crossing of each curve in its bracket of angles, and whether it is right.

    `values` are the heights of the curves at both ends of the bracket.
    """
    is_falling = values[0] >= 0  # inside the set before the crossing, outside after it
    angle, slope = _cross(curves, bracket, values, is_falling)
    ends = curves.centre + curves.half * np.cos(angle)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope_in_y = -slope / (np.sin(angle) * curves.half)
    is_right_way = (slope_in_y < 0) == is_falling  # otherwise no crossing of this kind
    return _polish(mixtures, curves, levels, ends, slope_in_y, np.flatnonzero(is_right_way))


def _cross(
    curves: Curves, bracket: Doubles, values: Doubles, is_falling: Bools
) -> tuple[Doubles, Doubles]:
    """Return the angle at which each curve is 0, by Newton steps in its bracket, and the slope."""
    coefficients = curves.coefficients
    orders = np.arange(coefficients.shape[1])
    before, after = bracket.copy()  # the crossing stays between; angles descend as y ascends
    angle = before + (after - before) * values[0] / (values[0] - values[1])
    slope = np.zeros_like(angle)

    todo = np.arange(len(angle))
    for _ in range(12):
        if not todo.size:
            break
        phase = angle[todo, None] * orders
        height = np.sum(coefficients[todo] * np.cos(phase), axis=1)
        slope[todo] = -np.sum(coefficients[todo] * orders * np.sin(phase), axis=1)

        is_early = (height >= 0) == is_falling[todo]  # still on the side of `before`
        before[todo[is_early]] = angle[todo[is_early]]
        after[todo[~is_early]] = angle[todo[~is_early]]

        with np.errstate(divide="ignore", invalid="ignore"):
            target = angle[todo] - height / slope[todo]
        is_between = (target <= before[todo]) & (target >= after[todo])
        target = np.where(is_between, target, 0.5 * (before[todo] + after[todo]))
        step = np.abs(target - angle[todo])
        angle[todo] = target
        # Newton converges quadratically: what remains is far below 1e-9
        todo = todo[~(is_between & (step <= 1e-6))]
    return angle, slope


def _polish(
    mixtures: GaussianMixtures,
    curves: Curves,
    levels: Doubles,
    ends: Doubles,
    slope: Doubles,
    todo: Integers,
) -> tuple[Doubles, Bools]:
    """Move some ends by the density itself, and say which of all are right.

    The slope of the curve is right to about 1 %, so what remains after a step is about a hundredth
    of it. After a large step the row goes to the certified search.
    """
    rows, smallest_sd = curves.rows, curves.smallest_sd
    is_good = np.zeros(len(rows), dtype=bool)
    for _ in range(3):
        if not todo.size:
            break
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            excess = log_density(mixtures, ends[todo], rows[todo]) - levels[rows[todo]]
            step = excess / slope[todo]
        is_sane = np.abs(step) <= LARGEST_POLISH * smallest_sd[todo]
        ends[todo[is_sane]] -= step[is_sane]
        close = POLISHED * smallest_sd[todo] + 4 * np.spacing(np.abs(ends[todo]))
        is_done = is_sane & (np.abs(step) <= close)
        is_good[todo[is_done]] = True
        todo = todo[is_sane & ~is_done]
    return ends, is_good


def _nearly_touches(heights: Doubles) -> Bools:
    """Say for each row whether a peak between grid points may reach above 0, or a valley below,
    unseen by the grid.
    """
    before, here, after = heights[:, :-2], heights[:, 1:-1], heights[:, 2:]
    # about eight times what a parabola can rise between grid points
    margin = np.abs(before - 2 * here + after)
    is_peak = (here >= before) & (here >= after) & (here < 0) & (here + margin >= 0)
    is_valley = (here <= before) & (here <= after) & (here >= 0) & (here - margin < 0)
    return np.asarray(np.any(is_peak | is_valley, axis=1))


def _product(left: Doubles, right: Doubles) -> Doubles:
    """Return left @ right, summed in a fixed order.

    A BLAS product may round a row differently in another batch.
    """
    total: Doubles = np.multiply(left[:, :1], right[0])
    for k in range(1, left.shape[1]):
        total += left[:, k : k + 1] * right[k]
    return total
