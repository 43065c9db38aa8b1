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
ROUNDING_UNITS = 4  # units in the last place of an end that a correction may be by rounding alone


@dataclass(frozen=True, eq=False)
class Curves:
    """A Chebyshev series for each of several rows, p(a) = sum_k coefficients[k] cos(k a).

    It equals log f, or log f - level, at y = centre + half cos(a). Angles a from 0 to pi cover the
    interval centre +- half of the row. `smallest_sd` is the smallest sd of the row's components.
    """

    rows: Integers
    centre: Doubles
    half: Doubles
    coefficients: Doubles
    smallest_sd: Doubles

    def take(self, chosen: Bools | Integers) -> Curves:
        """Return some of the curves, chosen by a mask or by position."""
        return Curves(
            self.rows[chosen],
            self.centre[chosen],
            self.half[chosen],
            self.coefficients[chosen],
            self.smallest_sd[chosen],
        )

    def minus_levels(self, levels: Doubles) -> Curves:
        """Turn curves of log f into curves of log f - level; `levels` has one for every row."""
        coefficients = self.coefficients.copy()
        coefficients[:, 0] -= levels[self.rows]
        return Curves(self.rows, self.centre, self.half, coefficients, self.smallest_sd)


def interpolate(
    mixtures: GaussianMixtures, outlines: Outlines, rows: Integers, n_nodes: int
) -> tuple[Curves, Integers]:
    """Interpolate log f of some rows at `n_nodes` Chebyshev nodes, where so many are enough.

    The interval of a row is that between the bounds of its level set in `outlines`. Return the
    curves of the rows for which the nodes are enough, and the numbers of the other rows.
    """
    # 1. The interval centre +- half of each row.
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
    coefficients = _chebyshev_coefficients(
        mixtures, suitable_rows, centre[is_suitable], half[is_suitable], n_nodes
    )
    curves = Curves(
        rows=suitable_rows,
        centre=centre[is_suitable],
        half=half[is_suitable],
        coefficients=coefficients,
        smallest_sd=outlines.smallest_sd[suitable_rows],
    )
    last_coefficients = np.abs(coefficients[:, -N_LAST:])
    has_converged = last_coefficients.max(axis=1) <= RESOLVED
    other_rows = np.concatenate([rows[~is_suitable], suitable_rows[~has_converged]])
    return curves.take(has_converged), other_rows


def _chebyshev_coefficients(
    mixtures: GaussianMixtures, rows: Integers, centre: Doubles, half: Doubles, n_nodes: int
) -> Doubles:
    """Compute the Chebyshev coefficients of log f on centre +- half, (rows, n) for n = n_nodes.

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
    """Find the pieces of {y : log f(y) >= level} from the curves of log f.

    `levels` has a level for every row of `mixtures`. Return the pieces of the rows that the curves
    decide, and the numbers of the rows that they do not.
    """
    n_nodes = curves.coefficients.shape[1]
    orders = np.arange(n_nodes)
    curves = curves.minus_levels(levels)

    # 1. Both ends of the interval must lie outside the set. There the angle is pi or 0, and
    # cos(k pi) = (-1)^k, cos(k 0) = 1.
    cosines_at_ends = np.stack([(-1.0) ** orders, np.ones(n_nodes)], axis=1)
    is_outside_at_ends = np.all(_product(curves.coefficients, cosines_at_ends) < 0, axis=1)
    undecided = [curves.rows[~is_outside_at_ends]]
    curves = curves.take(is_outside_at_ends)

    # 2. Look at the curve on a grid, and on a finer one where a peak or a valley may touch 0.
    pieces = [Pieces.none()]
    for density in GRID_DENSITIES:
        if not curves.rows.size:
            break
        grid = np.linspace(np.pi, 0, density * n_nodes + 1)  # descending angles: ascending y
        heights = _product(curves.coefficients, np.cos(np.outer(orders, grid)))

        shows_all_crossings = ~_may_hide_crossings(heights)
        clear_pieces, unconfirmed_rows = _cut_at_crossings(
            mixtures,
            curves.take(shows_all_crossings),
            levels,
            grid=grid,
            heights=heights[shows_all_crossings],
        )
        pieces.append(clear_pieces)
        undecided.append(unconfirmed_rows)
        curves = curves.take(~shows_all_crossings)

    undecided.append(curves.rows)
    return Pieces.together(pieces), np.concatenate(undecided)


def _cut_at_crossings(
    mixtures: GaussianMixtures, curves: Curves, levels: Doubles, *, grid: Doubles, heights: Doubles
) -> tuple[Pieces, Integers]:
    """Return the pieces between the crossings of 0 that a grid shows.

    `heights[i, j]` is curve i, log f - level, at the angle grid[j]. Also return the rows of which a
    crossing is not confirmed by log f itself; they get no pieces.
    """
    # 1. A crossing lies between two grid points of which one is inside the set.
    is_inside = heights >= 0
    is_inside[:, [0, -1]] = False  # as checked before; the product may round differently here
    curve_of_crossing, left = np.nonzero(is_inside[:, 1:] != is_inside[:, :-1])
    right = left + 1
    ends, is_confirmed = _find_ends(
        mixtures,
        curves.take(curve_of_crossing),
        levels,
        angles=np.stack([grid[left], grid[right]]),
        heights=np.stack([heights[curve_of_crossing, left], heights[curve_of_crossing, right]]),
    )

    # 2. Give up curves with an end that is not confirmed, or not to the right of the end before.
    is_given_up = np.zeros(len(curves.rows), dtype=bool)
    is_given_up[curve_of_crossing[~is_confirmed]] = True
    is_of_same_curve = curve_of_crossing[1:] == curve_of_crossing[:-1]
    is_out_of_order = is_of_same_curve & (ends[1:] <= ends[:-1])
    is_given_up[curve_of_crossing[1:][is_out_of_order]] = True

    # 3. Ends alternate, lower and upper, because a curve starts and finishes outside the set.
    is_usable = ~is_given_up[curve_of_crossing]
    rows = curves.rows[curve_of_crossing[is_usable]]
    usable_ends = ends[is_usable]
    pieces = Pieces(rows[::2], lower=usable_ends[::2], upper=usable_ends[1::2])
    return pieces, curves.rows[is_given_up]


def _find_ends(
    mixtures: GaussianMixtures,
    curves: Curves,
    levels: Doubles,
    *,
    angles: Doubles,
    heights: Doubles,
) -> tuple[Doubles, Bools]:
    """Find where curves cross 0 between two angles, and correct the point by log f itself.

    Curve j, log f - level of its row, is heights[0, j] at angles[0, j] and heights[1, j], of the
    other sign, at angles[1, j]. Return the crossings as values of y, and whether each is confirmed.
    """
    # 1. Solve for the angle.
    is_falling = heights[0] >= 0  # inside the set before the crossing, outside after it
    angle, slope_in_angle = _solve_for_angle(
        curves, angles=angles, heights=heights, is_falling=is_falling
    )

    # 2. From the angle a to y = centre + half cos(a), where dy / da = -half sin(a).
    ends = curves.centre + curves.half * np.cos(angle)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope_in_y = -slope_in_angle / (np.sin(angle) * curves.half)

    # 3. Where the curve falls its slope must be negative, and where it rises positive or 0.
    # Crossings whose slope says otherwise are not corrected, and so not confirmed.
    has_right_slope = np.where(is_falling, slope_in_y < 0, slope_in_y >= 0)
    return _correct_by_density(
        mixtures, curves, levels, ends, slope_in_y, todo=np.flatnonzero(has_right_slope)
    )


def _solve_for_angle(
    curves: Curves, *, angles: Doubles, heights: Doubles, is_falling: Bools
) -> tuple[Doubles, Doubles]:
    """Solve p(a) = sum_k coefficients[k] cos(k a) = 0 for the angle a of each curve.

    There is a solution between angles[0], where p is heights[0], and the smaller angles[1], where p
    is heights[1], of the other sign. `is_falling` says for which curves heights[0] is not negative.

    Newton steps; one that would leave the bracket is replaced by halving the bracket. Return the
    solutions, and the slopes dp / da there.
    """
    coefficients = curves.coefficients
    orders = np.arange(coefficients.shape[1])

    # the solution stays between these two; angles descend as y ascends
    before = angles[0].copy()
    after = angles[1].copy()
    # start where a straight line through both points is 0
    angle = before + (after - before) * heights[0] / (heights[0] - heights[1])
    slope = np.zeros_like(angle)

    todo = np.arange(len(angle))  # the curves whose solution is not yet found
    for _ in range(NEWTON_STEPS):
        if not todo.size:
            break

        # 1. The height and the slope of the curve at this angle.
        angle_now = angle[todo]
        phase = angle_now[:, None] * orders
        height = np.sum(coefficients[todo] * np.cos(phase), axis=1)
        slope[todo] = -np.sum(coefficients[todo] * orders * np.sin(phase), axis=1)

        # 2. Narrow the bracket: the solution is still to come where the height has the first sign.
        is_before = np.where(is_falling[todo], height >= 0, height < 0)
        before[todo[is_before]] = angle_now[is_before]
        after[todo[~is_before]] = angle_now[~is_before]

        # 3. Step.
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = angle_now - height / slope[todo]
        is_in_bracket = (newton <= before[todo]) & (newton >= after[todo])
        middle = 0.5 * (before[todo] + after[todo])
        angle[todo] = np.where(is_in_bracket, newton, middle)

        has_converged = is_in_bracket & (np.abs(newton - angle_now) <= SMALL_ANGLE_STEP)
        todo = todo[~has_converged]
    return angle, slope


def _correct_by_density(
    mixtures: GaussianMixtures,
    curves: Curves,
    levels: Doubles,
    ends: Doubles,
    slopes: Doubles,
    *,
    todo: Integers,
) -> tuple[Doubles, Bools]:
    """Move ends of level sets, found on curves, to where log f itself is the level.

    `ends[j]` is a value of y in row curves.rows[j], `slopes[j]` the slope of the curve there, and
    `todo` holds the positions j of the ends to correct. Newton steps y -> y - (log f(y) - level) /
    slope: the slope of the curve is right to about 1 %, so what remains after a step is about a
    hundredth of it. An end is confirmed by a tiny step, and given up after a large one.

    Return all ends, and whether each is confirmed.
    """
    rows = curves.rows
    ends = ends.copy()
    is_confirmed = np.zeros(len(rows), dtype=bool)
    for _ in range(CORRECTIONS):
        if not todo.size:
            break

        # 1. The Newton step of each end.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            excess = log_density(mixtures, ends[todo], rows[todo]) - levels[rows[todo]]
            step = excess / slopes[todo]

        # 2. Take it unless it is large, which means that the curve is not log f.
        smallest_sd = curves.smallest_sd[todo]
        is_plausible = np.abs(step) <= LARGEST_CORRECTION * smallest_sd
        ends[todo[is_plausible]] -= step[is_plausible]

        # 3. Confirm ends with a tiny step; a few units in the last place of the end are tiny too.
        rounding = ROUNDING_UNITS * np.spacing(np.abs(ends[todo]))
        is_tiny = np.abs(step) <= ACCEPTED_CORRECTION * smallest_sd + rounding
        is_confirmed[todo[is_plausible & is_tiny]] = True
        todo = todo[is_plausible & ~is_tiny]
    return ends, is_confirmed


def _may_hide_crossings(heights: Doubles) -> Bools:
    """Tell which curves may cross 0 between two grid points and back, unseen by the grid.

    `heights` are the curves at the grid points, (rows, points). A peak below 0 may reach above it
    between the points, or a valley above 0 below it. With three neighbouring heights, a parabola
    through them rises at most 1/8 of |before - 2 here + after| above the middle one, where the
    middle one is the highest; eight times as much is allowed for.
    """
    before = heights[:, :-2]
    here = heights[:, 1:-1]
    after = heights[:, 2:]
    margin = np.abs(before - 2 * here + after)

    is_peak = (here >= before) & (here >= after)
    may_reach_above = is_peak & (here < 0) & (here + margin >= 0)
    is_valley = (here <= before) & (here <= after)
    may_reach_below = is_valley & (here >= 0) & (here - margin < 0)
    return np.asarray(np.any(may_reach_above | may_reach_below, axis=1))


def _product(left: Doubles, right: Doubles) -> Doubles:
    """Compute the matrix product left @ right, always summed in the same order.

    Then a row gets the same result whatever rows come with it; BLAS may round it differently in
    another batch.
    """
    total: Doubles = np.multiply(left[:, :1], right[0])
    for k in range(1, left.shape[1]):
        total += left[:, k : k + 1] * right[k]
    return total
