"""Level sets by Chebyshev interpolation of log f: fast, for rows that few nodes resolve.

log f is replaced by the polynomial that equals it at the Chebyshev nodes of an interval that holds
the level set. The polynomial is cheap to evaluate, so its crossings of the level are found first,
and corrected by log f itself. Rows for which a step is in doubt are handed back, undecided.

Source: Trefethen, Approximation Theory and Approximation Practice (2013), chapters 2 to 8.
"""

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
# half the interval of the interpolant, as a share of upper - lower: 1 % wider than the bounds, so
# that a crossing on a bound itself is inside
HALF_SHARE = 0.505
# half the interval must be more than this share of |centre|; on a shorter one neighbouring nodes
# would be almost the same float
SMALLEST_RELATIVE_HALF = 1e-9
N_LAST = 3  # coefficients that show whether the series of log f has converged
RESOLVED = 1e-6  # the last coefficients of log f must be below this
NEWTON_STEPS = 12  # on the interpolant, at most
SMALL_ANGLE_STEP = 1e-6  # Newton converges quadratically: what remains is far below 1e-9
CORRECTIONS = 3  # of an end by log f itself, at most
# an end is accepted when its last correction, in units of the smallest sd, is below this
ACCEPTED_CORRECTION = 1e-7
# in units of the smallest sd; a larger correction means that the interpolant was wrong
LARGEST_CORRECTION = 1e-3


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
    """Interpolate log f of each row at Chebyshev nodes between the bounds of its level set.

    Return the curves of the rows for which `n_nodes` nodes are enough, and the other rows.
    """
    # 1. The interval of each row.
    lower = outlines.lower[rows]
    upper = outlines.upper[rows]
    centre = 0.5 * lower + 0.5 * upper
    with np.errstate(over="ignore"):
        half = HALF_SHARE * upper - HALF_SHARE * lower

    # 2. Nodes in the middle are pi / n_nodes * half apart. They must be closer than the smallest
    # sd, and not as close as floats are.
    has_close_nodes = half <= n_nodes / np.pi * outlines.smallest_sd[rows]
    has_distinct_nodes = half > SMALLEST_RELATIVE_HALF * np.abs(centre)
    is_suitable = has_close_nodes & has_distinct_nodes

    # 3. Interpolate, and keep the rows whose series has converged.
    suitable_rows = rows[is_suitable]
    curves = Curves(
        rows=suitable_rows,
        centre=centre[is_suitable],
        half=half[is_suitable],
        coefficients=_chebyshev_coefficients(
            mixtures, suitable_rows, centre[is_suitable], half[is_suitable], n_nodes
        ),
        smallest_sd=outlines.smallest_sd[suitable_rows],
    )
    last_coefficients = np.abs(curves.coefficients[:, -N_LAST:])
    is_resolved = last_coefficients.max(axis=1) <= RESOLVED
    other_rows = np.concatenate([rows[~is_suitable], suitable_rows[~is_resolved]])
    return curves.take(is_resolved), other_rows


def _chebyshev_coefficients(
    mixtures: GaussianMixtures, rows: Integers, centre: Doubles, half: Doubles, n_nodes: int
) -> Doubles:
    """Compute the Chebyshev coefficients of log f on centre +- half, (n, n_nodes).

    With angles a_j = pi (j + 1/2) / n and nodes y_j = centre + half cos(a_j), the coefficient of
    order k is 2/n times the sum over j of log f(y_j) cos(k a_j), and half of that for k = 0.
    """
    angles = np.pi * (np.arange(n_nodes) + 0.5) / n_nodes
    nodes = centre[:, None] + half[:, None] * np.cos(angles)
    heights = log_density(mixtures, nodes, rows)

    transform = np.cos(np.outer(angles, np.arange(n_nodes))) * (2.0 / n_nodes)
    transform[:, 0] *= 0.5
    return _product(heights, transform)


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
        clear_pieces, bad_rows = _cut_at_crossings(
            mixtures, curves, levels, grid, heights, is_clear
        )
        pieces.append(clear_pieces)
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
    with a crossing that log f itself does not confirm.
    """
    is_inside = heights >= 0
    is_inside[:, [0, -1]] = False  # as at the ends; the product may round differently
    is_crossing = (is_inside[:, 1:] != is_inside[:, :-1]) & is_clear[:, None]
    curve_of, step = np.nonzero(is_crossing)  # the curve and the grid step of each crossing
    ends, is_good = _find_ends(
        mixtures,
        curves.take(curve_of),
        levels,
        bracket=np.stack([grid[step], grid[step + 1]]),
        values=np.stack([heights[curve_of, step], heights[curve_of, step + 1]]),
    )

    # crossings alternate, up and down, because the curve is below the level at both ends
    is_bad = np.zeros(len(curves.rows), dtype=bool)
    is_bad[curve_of[~is_good]] = True
    is_disorder = (curve_of[1:] == curve_of[:-1]) & (ends[1:] <= ends[:-1])
    is_bad[curve_of[1:][is_disorder]] = True

    is_usable = ~is_bad[curve_of]
    rows = curves.rows[curve_of[is_usable]]
    usable_ends = ends[is_usable]
    return Pieces(rows[::2], usable_ends[::2], usable_ends[1::2]), curves.rows[is_bad]


def _find_ends(
    mixtures: GaussianMixtures, curves: Curves, levels: Doubles, bracket: Doubles, values: Doubles
) -> tuple[Doubles, Bools]:
    """Find where each curve crosses 0 in its bracket of angles, and correct the point by log f.

    `values` are the heights of the curves at both ends of the bracket. Return the crossings as
    values of y, and for each whether it can be trusted.
    """
    # 1. Solve for the angle.
    is_falling = values[0] >= 0  # inside the set before the crossing, outside after it
    angle, slope_in_angle = _cross(curves, bracket, values, is_falling)

    # 2. From angles to y = centre + half cos(angle), where dy / dangle = -half sin(angle).
    ends = curves.centre + curves.half * np.cos(angle)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope_in_y = -slope_in_angle / (np.sin(angle) * curves.half)

    # 3. Where the curve falls its slope must be negative, and where it rises not; crossings whose
    # slope says otherwise are not trusted.
    slope_agrees = (slope_in_y < 0) == is_falling
    return _correct_by_density(
        mixtures, curves, levels, ends, slope_in_y, np.flatnonzero(slope_agrees)
    )


def _cross(
    curves: Curves, bracket: Doubles, values: Doubles, is_falling: Bools
) -> tuple[Doubles, Doubles]:
    """Solve for the angle at which each curve is 0; return it, and the slope there in the angle.

    Newton steps; one that would leave the bracket is replaced by halving the bracket.
    """
    coefficients = curves.coefficients
    orders = np.arange(coefficients.shape[1])
    before, after = bracket.copy()  # the crossing stays between; angles descend as y ascends
    angle = before + (after - before) * values[0] / (values[0] - values[1])
    slope = np.zeros_like(angle)

    todo = np.arange(len(angle))
    for _ in range(NEWTON_STEPS):
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
        has_converged = is_between & (step <= SMALL_ANGLE_STEP)
        todo = todo[~has_converged]
    return angle, slope


def _correct_by_density(
    mixtures: GaussianMixtures,
    curves: Curves,
    levels: Doubles,
    ends: Doubles,
    slope: Doubles,
    todo: Integers,
) -> tuple[Doubles, Bools]:
    """Move the ends numbered in `todo` by Newton steps with log f and the slopes of the curves.

    Return all ends, and for each whether its last step was small enough to accept it. The slope of
    the curve is right to about 1 %, so what remains after a step is about a hundredth of it. An end
    with a large step is given up; its row goes to the certified search.
    """
    rows = curves.rows
    smallest_sd = curves.smallest_sd
    is_accepted = np.zeros(len(rows), dtype=bool)
    for _ in range(CORRECTIONS):
        if not todo.size:
            break
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            excess = log_density(mixtures, ends[todo], rows[todo]) - levels[rows[todo]]
            step = excess / slope[todo]
        is_plausible = np.abs(step) <= LARGEST_CORRECTION * smallest_sd[todo]
        ends[todo[is_plausible]] -= step[is_plausible]

        # accept small steps; a few units in the last place of the end itself are small too
        rounding = 4 * np.spacing(np.abs(ends[todo]))
        is_small = np.abs(step) <= ACCEPTED_CORRECTION * smallest_sd[todo] + rounding
        is_done = is_plausible & is_small
        is_accepted[todo[is_done]] = True
        todo = todo[is_plausible & ~is_done]
    return ends, is_accepted


def _nearly_touches(heights: Doubles) -> Bools:
    """Say for each row whether a peak between grid points may reach above 0, or a valley below,
    unseen by the grid.
    """
    before = heights[:, :-2]
    here = heights[:, 1:-1]
    after = heights[:, 2:]
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
