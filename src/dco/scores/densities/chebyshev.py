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
ANGLES_OF_ENDS = np.array([np.pi, 0.0])  # of the interval: lower and upper end
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

    @property
    def n_nodes(self) -> int:
        """How many nodes, and so coefficients, each curve has."""
        return int(self.coefficients.shape[1])

    def heights_at(self, angles: Doubles) -> Doubles:
        """Return the height p(a) of each curve at each angle a, (curves, angles)."""
        orders = np.arange(self.n_nodes)
        return _product(self.coefficients, np.cos(np.outer(orders, angles)))

    def minus_levels(self, levels: Doubles) -> Curves:
        """Turn curves of log f into curves of log f - level; `levels` has one for every row."""
        coefficients = self.coefficients.copy()
        coefficients[:, 0] -= levels[self.rows]
        return Curves(self.rows, self.centre, self.half, coefficients, self.smallest_sd)


def interpolate(
    mixtures: GaussianMixtures, outlines: Outlines, rows: Integers, n_nodes: int
) -> tuple[Curves, Integers]:
    """Replace log f of some rows by polynomials through `n_nodes` points, where so many are enough.

    The points are Chebyshev nodes (dense at the ends of an interval, which keeps the polynomial
    close to log f everywhere). The interval of a row is that between the bounds of its level set
    in `outlines`, a little widened.

    Return the curves of the rows for which `n_nodes` are enough, and the numbers of the other rows.
    """
    # 1. The interval centre +- half of each row.
    lower = outlines.lower[rows]
    upper = outlines.upper[rows]
    centre = 0.5 * lower + 0.5 * upper
    with np.errstate(over="ignore"):
        half = HALF_SHARE * upper - HALF_SHARE * lower

    # 2. Nodes in the middle are pi / n_nodes * half apart. They must be closer than the smallest
    # sd, the finest detail of f, and not as close as floats are.
    has_close_nodes = half <= n_nodes / np.pi * outlines.smallest_sd[rows]
    has_distinct_nodes = half > SMALLEST_RELATIVE_HALF * np.abs(centre)
    is_suitable = has_close_nodes & has_distinct_nodes

    # 3. Interpolate.
    suitable_rows = rows[is_suitable]
    suitable_centre = centre[is_suitable]
    suitable_half = half[is_suitable]
    curves = Curves(
        rows=suitable_rows,
        centre=suitable_centre,
        half=suitable_half,
        coefficients=_chebyshev_coefficients(
            mixtures, suitable_rows, suitable_centre, suitable_half, n_nodes
        ),
        smallest_sd=outlines.smallest_sd[suitable_rows],
    )

    # 4. Keep the curves whose coefficients have died out: more nodes would not change them.
    last_coefficients = np.abs(curves.coefficients[:, -N_LAST:])
    has_converged = last_coefficients.max(axis=1) <= RESOLVED
    other_rows = np.concatenate([rows[~is_suitable], suitable_rows[~has_converged]])
    return curves.take(has_converged), other_rows


def _chebyshev_coefficients(
    mixtures: GaussianMixtures, rows: Integers, centre: Doubles, half: Doubles, n_nodes: int
) -> Doubles:
    """Compute the Chebyshev coefficients of log f on the interval centre +- half of each row.

    With n nodes, the angles a_j = pi (j + 1/2) / n and the nodes y_j = centre + half cos(a_j),
    j = 0, ..., n - 1, the coefficients of orders k = 0, ..., n - 1 are

        coefficient_k = (2 / n) sum_j log f(y_j) cos(k a_j),   and half of that for k = 0

    The result is (rows, n).
    """
    angles = np.pi * (np.arange(n_nodes) + 0.5) / n_nodes
    nodes = centre[:, None] + half[:, None] * np.cos(angles)
    heights = log_density(mixtures, nodes, rows)

    factors = np.cos(np.outer(angles, np.arange(n_nodes))) * (2.0 / n_nodes)  # (j, k)
    factors[:, 0] *= 0.5
    return _product(heights, factors)


def cut(mixtures: GaussianMixtures, curves: Curves, levels: Doubles) -> tuple[Pieces, Integers]:
    """Find the level sets {y : log f(y) >= level} of rows whose log f is given as curves.

    A curve is a polynomial that equals log f to about 1e-6 on an interval around the set. It shows
    where the level is crossed; each crossing is then corrected by log f itself.

    Parameters
    ----------
    curves : one for each row to be decided, of which all have the same number of coefficients
    levels : one for every row of `mixtures`

    Returns
    -------
    The pieces of the level sets, and the numbers of the rows that the curves do not decide.
    """
    curves = curves.minus_levels(levels)

    # 1. Both ends of the interval must lie outside the set.
    is_outside_at_ends = np.all(curves.heights_at(ANGLES_OF_ENDS) < 0, axis=1)
    undecided = [curves.rows[~is_outside_at_ends]]
    curves = curves.take(is_outside_at_ends)

    # 2. Look at the curves on a grid, and on a finer one where the first may hide crossings.
    pieces = [Pieces.none()]
    for points_per_node in GRID_DENSITIES:
        if not curves.rows.size:
            break
        n_steps = points_per_node * curves.n_nodes
        grid = np.linspace(np.pi, 0, n_steps + 1)  # descending angles: ascending y
        heights = curves.heights_at(grid)

        is_clear = ~_may_hide_crossings(heights)
        clear_pieces, unconfirmed_rows = _cut_at_crossings(
            mixtures, curves.take(is_clear), levels, grid=grid, heights=heights[is_clear]
        )
        pieces.append(clear_pieces)
        undecided.append(unconfirmed_rows)
        curves = curves.take(~is_clear)

    undecided.append(curves.rows)
    return Pieces.together(pieces), np.concatenate(undecided)


def _cut_at_crossings(
    mixtures: GaussianMixtures, curves: Curves, levels: Doubles, *, grid: Doubles, heights: Doubles
) -> tuple[Pieces, Integers]:
    """Find the parts of the line where curves are at least 0, from their heights on a grid.

    Parameters
    ----------
    curves : curves of log f - level, negative at both ends of the grid
    levels : one for every row of `mixtures`
    grid : descending angles, which is ascending y
    heights : (curves, angles), the height of each curve at each angle

    Returns
    -------
    The pieces, and the numbers of rows without pieces because log f does not confirm a crossing.
    """
    # 1. A crossing lies between two grid points of which one is inside the set.
    is_inside = heights >= 0
    is_inside[:, [0, -1]] = False  # known, though this product may round to 0
    changes = is_inside[:, 1:] != is_inside[:, :-1]
    curve_of_crossing, before = np.nonzero(changes)  # ordered by curve, then from left to right
    after = before + 1
    ends, is_confirmed = _find_ends(
        mixtures,
        curves.take(curve_of_crossing),
        levels,
        angles=np.stack([grid[before], grid[after]]),
        heights=np.stack([heights[curve_of_crossing, before], heights[curve_of_crossing, after]]),
    )

    # 2. Give up curves with a crossing that is not confirmed, or not to the right of the one
    # before.
    is_wrong = ~is_confirmed
    is_of_same_curve = curve_of_crossing[1:] == curve_of_crossing[:-1]
    is_wrong[1:] |= is_of_same_curve & (ends[1:] <= ends[:-1])
    is_given_up = np.zeros(len(curves.rows), dtype=bool)
    is_given_up[curve_of_crossing[is_wrong]] = True

    # 3. A curve starts and finishes outside the set, so its crossings take turns: one into the set,
    # the next one out of it.
    is_usable = ~is_given_up[curve_of_crossing]
    rows = curves.rows[curve_of_crossing][is_usable]
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
    """Find where curves cross 0 between two angles, and correct the points by log f itself.

    Parameters
    ----------
    curves : n curves of log f - level, one for each crossing (a row has several, so it may repeat)
    levels : one for every row of `mixtures`
    angles, heights : (2, n); curve j has the height heights[0, j] at angles[0, j], and
        heights[1, j], of the other sign, at the smaller angles[1, j]

    Returns
    -------
    The crossings as values of y, (n,), and whether log f confirms each, (n,).
    """
    # 1. Solve for the angle.
    is_falling = heights[0] >= 0  # y goes from inside the level set to outside it
    angle, slope_in_angle = _solve_for_angle(
        curves, angles=angles, heights=heights, is_falling=is_falling
    )

    # 2. From the angle a to y = centre + half cos(a), where dy / da = -half sin(a).
    ends = curves.centre + curves.half * np.cos(angle)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope_in_y = -slope_in_angle / (np.sin(angle) * curves.half)

    # 3. Where the curve falls its slope must be negative, and where it rises positive or 0.
    has_right_slope = np.where(is_falling, slope_in_y < 0, slope_in_y >= 0)
    return _correct_by_density(
        mixtures, curves, levels, ends, slope_in_y, is_trusted=has_right_slope
    )


def _solve_for_angle(
    curves: Curves, *, angles: Doubles, heights: Doubles, is_falling: Bools
) -> tuple[Doubles, Doubles]:
    """Solve p(a) = sum_k coefficients[k] cos(k a) = 0 for the angle a, for all curves at once.

    By Newton steps a -> a - p(a) / p'(a). One that would leave the bracket, the two angles between
    which the solution is known to lie, is replaced by a step to the middle of the bracket.

    Parameters
    ----------
    curves : one for each equation, with its coefficients
    angles, heights : (2, n); curve j has the height heights[0, j] at angles[0, j], and
        heights[1, j], of the other sign, at the smaller angles[1, j]
    is_falling : whether heights[0, j] >= 0

    Returns
    -------
    The solutions, (n,), and the slopes p' there, (n,).
    """
    orders = np.arange(curves.coefficients.shape[1])
    larger_angle = angles[0].copy()
    smaller_angle = angles[1].copy()
    # start where a straight line through both points is 0
    angle = larger_angle + (smaller_angle - larger_angle) * heights[0] / (heights[0] - heights[1])
    slope = np.zeros_like(angle)

    unsolved = np.arange(len(angle))  # the curves whose solution is not yet found
    for _ in range(NEWTON_STEPS):
        if not unsolved.size:
            break

        # 1. The height and the slope of the curve at this angle.
        angle_now = angle[unsolved]
        coefficients = curves.coefficients[unsolved]
        phase = angle_now[:, None] * orders
        height = np.sum(coefficients * np.cos(phase), axis=1)
        slope_now = -np.sum(coefficients * orders * np.sin(phase), axis=1)

        # 2. Narrow the bracket. Where the height has the sign that it has at the larger angle, the
        # solution is at a smaller angle than this.
        has_sign_of_larger = np.where(is_falling[unsolved], height >= 0, height < 0)
        upper_end = np.where(has_sign_of_larger, angle_now, larger_angle[unsolved])
        lower_end = np.where(has_sign_of_larger, smaller_angle[unsolved], angle_now)

        # 3. Step.
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = angle_now - height / slope_now
        is_in_bracket = (newton <= upper_end) & (newton >= lower_end)
        middle = 0.5 * (upper_end + lower_end)

        # 4. Store the new state, and go on where the step was not yet small.
        larger_angle[unsolved] = upper_end
        smaller_angle[unsolved] = lower_end
        slope[unsolved] = slope_now
        angle[unsolved] = np.where(is_in_bracket, newton, middle)
        has_converged = is_in_bracket & (np.abs(newton - angle_now) <= SMALL_ANGLE_STEP)
        unsolved = unsolved[~has_converged]
    return angle, slope


def _correct_by_density(
    mixtures: GaussianMixtures,
    curves: Curves,
    levels: Doubles,
    ends: Doubles,
    slopes: Doubles,
    *,
    is_trusted: Bools,
) -> tuple[Doubles, Bools]:
    """Move ends of level sets, found on curves, to where log f itself is the level.

    By at most a few steps y -> y - (log f(y) - level) / slope, with the slope of the curve: it is
    right to about 1 %, so what remains after a step is about a hundredth of it. An end is confirmed
    by a tiny step, and given up after a large one, which means that the curve is not log f.

    Parameters
    ----------
    curves : the curve on which each end was found, n of them
    levels : one for every row of `mixtures`
    ends, slopes : (n,), values of y, and the slope of the curve there
    is_trusted : (n,), which ends to correct; the others stay, and are not confirmed

    Returns
    -------
    All ends, (n,), and whether each is confirmed, (n,).
    """
    corrected = ends.copy()
    is_confirmed = np.zeros(len(ends), dtype=bool)
    unconfirmed = np.flatnonzero(is_trusted)
    for _ in range(CORRECTIONS):
        if not unconfirmed.size:
            break
        y = corrected[unconfirmed]
        rows = curves.rows[unconfirmed]
        smallest_sd = curves.smallest_sd[unconfirmed]

        # 1. Take the step unless it is large.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            excess = log_density(mixtures, y, rows) - levels[rows]
            step = excess / slopes[unconfirmed]
        is_plausible = np.abs(step) <= LARGEST_CORRECTION * smallest_sd
        y = np.where(is_plausible, y - step, y)
        corrected[unconfirmed] = y

        # 2. Confirm ends with a tiny step; a few units in the last place of y are tiny too.
        rounding = ROUNDING_UNITS * np.spacing(np.abs(y))
        is_tiny = np.abs(step) <= ACCEPTED_CORRECTION * smallest_sd + rounding
        is_confirmed[unconfirmed] = is_plausible & is_tiny
        unconfirmed = unconfirmed[is_plausible & ~is_tiny]
    return corrected, is_confirmed


def _may_hide_crossings(heights: Doubles) -> Bools:
    """Tell which curves may cross 0 and come back between two grid points, unseen by the grid.

    `heights` are the curves at the grid points, (curves, points). A peak below 0 might reach above
    it between the points, or a valley above 0 below it. The parabola through three neighbouring
    points whose middle one is the highest rises at most |bend| / 8 above that point, where
    bend = before - 2 here + after. A curve is not quite a parabola: the whole |bend| is allowed.
    """
    before = heights[:, :-2]
    here = heights[:, 1:-1]
    after = heights[:, 2:]
    largest_rise = np.abs(before - 2 * here + after)

    is_peak = (here >= before) & (here >= after)
    may_reach_above = is_peak & (here < 0) & (here + largest_rise >= 0)
    is_valley = (here <= before) & (here <= after)
    may_reach_below = is_valley & (here >= 0) & (here - largest_rise < 0)
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
