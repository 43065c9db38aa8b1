"""Exact level sets of even mixtures of Gaussians: {y : log f(y) >= level}, what a
predictive-density score inverts.

Facts used:

- f is at most its largest component, so the set lies in the hull of mu_t +- s_t sqrt(2 (c_t -
  level)), c_t the log of component t's peak: a finite set is never cut off.
- Outside the hull of the means f is monotone on either side, whatever the sds: every mode lies
  between two means.
- f holds no detail finer than its smallest sd. Where Chebyshev nodes lie closer than that and the
  coefficients of log f have died out, the interpolant shows every crossing (`_cut`), and one exact
  evaluation polishes each.
- Elsewhere intervals are halved until bounds on f or f' decide them (`_certified_segments`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from dco.foundations.arrays import Bools, Floats, Integers
from dco.predictions import GaussianMixtures
from dco.scores.mixtures import F64, blocks_of, log_density, log_density_and_slope
from dco.sets.intervals import IntervalUnions

Segments: TypeAlias = tuple[Integers, Floats, Floats]  # row, lower end, upper end

# rows searched together: what is kept for each of them, some hundred numbers, stays a few megabytes
ROWS = 1024
NODES = (16, 32, 64)  # Chebyshev nodes per row, tried in this order before the certified search
# points per node at which the interpolant is looked at, the finer grid where a peak is close to the
# level
GRID = (4, 64)
RESOLVED = 1e-6  # the last coefficients of log f must be below this
# an end is accepted when its last correction, in units of the smallest sd, is below this
POLISHED = 1e-7


@dataclass(frozen=True, eq=False)
class _Summary:
    """What the search needs to know of each row: hull of the means, smallest sd, and bounds of the
    level set.
    """

    first_mean: F64
    last_mean: F64
    smallest_sd: F64
    lower: F64
    upper: F64  # lower > upper: every component is below the level, so the set is empty


def _summarise(mixtures: GaussianMixtures, levels: F64) -> _Summary:
    summary = _Summary(*(np.empty(len(mixtures)) for _ in range(5)))
    log_draws, limit = np.log(mixtures.means.shape[1]), np.finfo(np.float64).max
    with np.errstate(over="ignore", invalid="ignore"):
        for where, means, inverse, peaks in blocks_of(mixtures, np.arange(len(mixtures))):
            # f <= max_t N(y; mu_t, s_t): a component with all the weight reaches the level at most
            # this far out
            room = 2 * (peaks + log_draws - levels[where, None])
            reach = np.where(room >= 0, np.sqrt(room), -np.inf) / inverse
            summary.first_mean[where] = means.min(axis=1)
            summary.last_mean[where] = means.max(axis=1)
            summary.smallest_sd[where] = 1 / inverse.max(axis=1)
            summary.lower[where] = np.maximum((means - reach).min(axis=1), -limit)
            summary.upper[where] = np.minimum((means + reach).max(axis=1), limit)
    return summary


def level_sets(mixtures: GaussianMixtures, levels: Floats) -> IntervalUnions:
    """{y : log f_i(y) >= levels[i]} for each row: closed pieces, ascending; the whole line for a
    level of -inf.

    Ends are right to about 1e-9 of the row's smallest sd (or to the spacing of floats near them,
    where that is larger). Pieces, and gaps between pieces, that are shorter than that may be
    missed.
    """
    n = len(mixtures)
    wanted = np.broadcast_to(np.asarray(levels, dtype=np.float64), (n,))
    everything = np.flatnonzero(np.isneginf(wanted))
    segments: list[Segments] = [
        (everything, np.full(everything.size, -np.inf), np.full(everything.size, np.inf))
    ]
    return _merged(n, segments + _searched(mixtures, wanted, np.flatnonzero(np.isfinite(wanted))))


def outer_level_sets(mixtures: GaussianMixtures, levels: Floats) -> IntervalUnions:
    """Pieces that hold every float y with ``log_density(mixtures, y) >= levels``, at a peak or in a
    valley as well.

    They lie beyond the outermost such y by about what `log_density` rounds, 1e-14, over its slope
    there.
    """
    wanted = np.broadcast_to(np.asarray(levels, dtype=np.float64), (len(mixtures),))
    return _moved_out(
        mixtures, level_sets(mixtures, wanted - 2 * _rounding(mixtures, wanted)), wanted
    )


def _moved_out(mixtures: GaussianMixtures, found: IntervalUnions, levels: F64) -> IntervalUnions:
    """The pieces with their ends where log f is below the level by what it rounds; f falls from
    there on outwards.
    """
    rows, smallest_sd = found.rows(), _smallest_sd(mixtures)
    margin = _rounding(mixtures, levels)
    ends = []
    for side, start in ((-1.0, found.lower), (1.0, found.upper)):
        end = start.copy()
        todo = np.flatnonzero(np.isfinite(start))
        owner = rows[todo]
        height, slope = log_density_and_slope(mixtures, owner, end[todo])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ahead = (height - levels[owner] + 2 * margin[owner]) / (-side * slope)  # a Newton step
            # a longer one is no polish: f is flat here
            near = np.abs(ahead) <= 1e-6 * smallest_sd[owner]
            end[todo[near]] += side * ahead[near]
            step = np.maximum(1e-15 * smallest_sd[owner], np.spacing(np.abs(end[todo])))
            while todo.size:
                out = log_density(mixtures, end[todo], owner) < levels[owner] - margin[owner]
                todo, owner, step = todo[~out], owner[~out], step[~out]
                end[todo] += side * step
                step *= 2
        ends.append(end)
    return _merged(len(mixtures), [(rows, ends[0], ends[1])])


def _rounding(mixtures: GaussianMixtures, levels: F64) -> F64:
    """More than twice what `log_density` rounds near a level, 0 at infinity.

    An exponent rounds by some 8 units of 2**-53 of itself; exponents, weighted by what they add to
    f, are at most the highest peak less the level and log T. The sum, its logarithm and the peak
    add less than as much again.
    """
    finite = np.isfinite(levels)
    terms = 2 + np.log(mixtures.means.shape[1]) + np.abs(np.log(_smallest_sd(mixtures)))
    terms = terms + np.abs(np.where(finite, levels, 0.0))
    return np.where(finite, 2.0**-47 * terms, 0.0)


def _smallest_sd(mixtures: GaussianMixtures) -> F64:
    return np.broadcast_to(mixtures.sds.min(axis=-1), (len(mixtures),)).astype(np.float64)


def level_sets_at(mixtures: GaussianMixtures, levels: Floats) -> list[IntervalUnions]:
    """`level_sets` at several levels per row, (J, n): an interpolant on the interval of the lowest
    serves all of them.
    """
    wanted = np.asarray(levels, dtype=np.float64)
    if len(wanted) < 2 or not np.all(np.isfinite(wanted)) or mixtures.means.shape[1] == 1:
        return [level_sets(mixtures, each) for each in wanted]
    summary = _summarise(mixtures, wanted.min(axis=0))
    curves: list[_Curves] = []
    unresolved: list[Integers] = []
    for batch in _batches(np.flatnonzero(summary.lower < summary.upper)):
        for nodes in NODES:
            found, batch = _interpolated(mixtures, summary, batch, nodes)
            curves.append(found)
        unresolved.append(batch)
    result = []
    for each in wanted:
        segments: list[Segments] = []
        left = [*unresolved, *(_cut(mixtures, curve, each, segments) for curve in curves)]
        rows = np.concatenate(left) if left else np.empty(0, dtype=np.int64)
        result.append(_merged(len(mixtures), segments + _searched(mixtures, each, rows)))
    return result


def _searched(mixtures: GaussianMixtures, levels: F64, rows: Integers) -> list[Segments]:
    """The pieces of these rows, whose levels are finite."""
    segments: list[Segments] = [(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))]
    if not rows.size:
        return segments
    # the other rows take part in the summary with a harmless level and are never looked at
    summary = _summarise(mixtures, np.where(np.isfinite(levels), levels, 0.0))
    if mixtures.means.shape[1] == 1:
        filled = rows[summary.lower[rows] <= summary.upper[rows]]
        return [(filled, summary.lower[filled], summary.upper[filled])]
    for batch in _batches(rows[summary.lower[rows] < summary.upper[rows]]):
        for nodes in NODES:
            curves, left = _interpolated(mixtures, summary, batch, nodes)
            batch = np.concatenate([left, _cut(mixtures, curves, levels, segments)])
        segments.extend(_certified_segments(mixtures, summary, levels, batch))
    return segments


def _batches(rows: Integers) -> list[Integers]:
    return np.split(rows, range(ROWS, rows.size, ROWS))


def _merged(n: int, segments: list[Segments]) -> IntervalUnions:
    rows, lower, upper = (np.concatenate(part) for part in zip(*segments, strict=True))
    order = np.lexsort((upper, lower, rows))
    rows, lower, upper = rows[order], lower[order], upper[order]
    starts = np.ones(len(rows), dtype=bool)
    starts[1:] = (rows[1:] != rows[:-1]) | (lower[1:] > upper[:-1])
    ends = np.append(starts[1:], True) if len(rows) else starts
    return IntervalUnions.of_pieces(n, rows[starts], lower[starts], upper[ends])


# --- the fast path: a Chebyshev interpolant of log f on the interval that holds the set


@dataclass(frozen=True, eq=False)
class _Curves:
    """log f of some rows as a Chebyshev series on centre +- half."""

    rows: Integers
    centre: F64
    half: F64
    coefficients: F64
    smallest_sd: F64

    def of(self, chosen: Bools | Integers) -> _Curves:
        """Those of some rows."""
        return _Curves(
            self.rows[chosen],
            self.centre[chosen],
            self.half[chosen],
            self.coefficients[chosen],
            self.smallest_sd[chosen],
        )


def _interpolated(
    mixtures: GaussianMixtures, summary: _Summary, rows: Integers, nodes: int
) -> tuple[_Curves, Integers]:
    """Interpolants of the rows that `nodes` nodes resolve, and the other rows."""
    centre = 0.5 * summary.lower[rows] + 0.5 * summary.upper[rows]
    # a little wider than the bound, so that a crossing on the bound itself is inside
    with np.errstate(over="ignore"):
        half = 0.505 * summary.upper[rows] - 0.505 * summary.lower[rows]
    # neighbouring nodes closer than the smallest sd
    fine = half <= nodes / np.pi * summary.smallest_sd[rows]
    fine &= half > 1e-9 * np.abs(centre)  # otherwise the spacing of floats shows
    coarse, rows, centre, half = rows[~fine], rows[fine], centre[fine], half[fine]
    angles = np.pi * (np.arange(nodes) + 0.5) / nodes
    heights = log_density(mixtures, centre[:, None] + half[:, None] * np.cos(angles), rows)
    transform = np.cos(np.outer(angles, np.arange(nodes))) * (2.0 / nodes)
    transform[:, 0] *= 0.5
    curves = _Curves(rows, centre, half, _product(heights, transform), summary.smallest_sd[rows])
    resolved = np.abs(curves.coefficients[:, -3:]).max(axis=1) <= RESOLVED
    return curves.of(resolved), np.concatenate([coarse, rows[~resolved]])


def _cut(
    mixtures: GaussianMixtures, curves: _Curves, levels: F64, found: list[Segments]
) -> Integers:
    """Append the pieces above the levels to `found`; return the rows that the interpolant does not
    decide.
    """
    nodes = curves.coefficients.shape[1]
    orders = np.arange(nodes)
    above = curves.coefficients.copy()
    above[:, 0] -= levels[curves.rows]
    at_ends = _product(above, np.stack([(-1.0) ** orders, np.ones(nodes)], axis=1))
    inner = np.all(at_ends < 0, axis=1)
    left, curves = [curves.rows[~inner]], replace(curves, coefficients=above).of(inner)
    for density in GRID:
        if not curves.rows.size:
            break
        grid = np.linspace(np.pi, 0, density * nodes + 1)  # descending angles: ascending y
        curve = _product(curves.coefficients, np.cos(np.outer(orders, grid)))
        clear = ~_nearly_touches(curve)
        inside = curve >= 0
        inside[:, [0, -1]] = False  # as at_ends says; the product may round differently
        owner, place = np.nonzero((inside[:, 1:] != inside[:, :-1]) & clear[:, None])
        bracket = np.stack([grid[place], grid[place + 1]])
        values = np.stack([curve[owner, place], curve[owner, place + 1]])
        ends, good = _smooth_ends(mixtures, curves.of(owner), levels, bracket, values)
        # crossings alternate, up and down, because the curve is below the level at both ends
        bad = np.zeros(len(curves.rows), dtype=bool)
        bad[owner[~good]] = True
        bad[owner[1:][(owner[1:] == owner[:-1]) & (ends[1:] <= ends[:-1])]] = True
        left.append(curves.rows[bad])
        keep = ~bad[owner]
        found.append((curves.rows[owner[keep]][::2], ends[keep][::2], ends[keep][1::2]))
        curves = curves.of(~clear)
    return np.concatenate([*left, curves.rows])


def _smooth_ends(
    mixtures: GaussianMixtures, curves: _Curves, levels: F64, bracket: F64, values: F64
) -> tuple[F64, Bools]:
    """Crossings of the interpolant by Newton steps in the angle, then polished with the density
    itself.
    """
    coefficients, rows, smallest_sd = curves.coefficients, curves.rows, curves.smallest_sd
    orders = np.arange(coefficients.shape[1])
    falling = values[0] >= 0  # inside the set before the crossing, outside after it
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
        early = (height >= 0) == falling[todo]  # still on the side of `before`
        before[todo[early]] = angle[todo[early]]
        after[todo[~early]] = angle[todo[~early]]
        with np.errstate(divide="ignore", invalid="ignore"):
            target = angle[todo] - height / slope[todo]
        held = (target <= before[todo]) & (target >= after[todo])
        target = np.where(held, target, 0.5 * (before[todo] + after[todo]))
        moved = np.abs(target - angle[todo])
        angle[todo] = target
        # Newton converges quadratically: what remains is far below 1e-9
        todo = todo[~(held & (moved <= 1e-6))]
    ends = curves.centre + curves.half * np.cos(angle)
    with np.errstate(divide="ignore", invalid="ignore"):
        per_unit = -slope / (np.sin(angle) * curves.half)
    good = np.zeros(len(rows), dtype=bool)
    # a slope of the wrong sign is no crossing of this kind
    todo = np.flatnonzero((per_unit < 0) == falling)
    for _ in range(3):
        if not todo.size:
            break
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = (log_density(mixtures, ends[todo], rows[todo]) - levels[rows[todo]]) / per_unit[
                todo
            ]
        # the slope is right to about 1 %, so what remains is about a hundredth of the step; a large
        # step means that the interpolant was wrong here, and the row goes to the certified search
        sane = np.abs(step) <= 1e-3 * smallest_sd[todo]
        ends[todo[sane]] -= step[sane]
        done = sane & (
            np.abs(step) <= POLISHED * smallest_sd[todo] + 4 * np.spacing(np.abs(ends[todo]))
        )
        good[todo[done]] = True
        todo = todo[sane & ~done]
    return ends, good


def _nearly_touches(curve: F64) -> Bools:
    """Rows where a peak between grid points may reach above 0, or a valley below, unseen by the
    grid.
    """
    before, here, after = curve[:, :-2], curve[:, 1:-1], curve[:, 2:]
    # about eight times what a parabola can rise between grid points
    margin = np.abs(before - 2 * here + after)
    peak = (here >= before) & (here >= after) & (here < 0) & (here + margin >= 0)
    valley = (here <= before) & (here <= after) & (here >= 0) & (here - margin < 0)
    return np.asarray(np.any(peak | valley, axis=1))


def _product(left: F64, right: F64) -> F64:
    """left @ right, summed in a fixed order: a BLAS product may round a row differently in another
    batch.
    """
    total: F64 = np.multiply(left[:, :1], right[0])
    for k in range(1, left.shape[1]):
        total += left[:, k : k + 1] * right[k]
    return total


# --- the certified path: bounds on f and f' over intervals, halved until they decide


def _certified_segments(
    mixtures: GaussianMixtures, summary: _Summary, levels: F64, rows: Integers
) -> list[Segments]:
    if not rows.size:
        return []
    first, last = summary.first_mean[rows], summary.last_mean[rows]
    segments: list[Segments] = []
    brackets: list[Segments] = []  # row, a point inside the set, a point outside
    for edge, bound in ((first, summary.lower[rows]), (last, summary.upper[rows])):
        holds = log_density(mixtures, edge, rows) >= levels[rows]
        brackets.append((rows[holds], edge[holds], bound[holds]))

    row, low, high = rows, first, last
    while row.size:
        inside, outside, monotone = _decide(mixtures, row, levels[row], low, high)
        tiny = ~(inside | outside | monotone) & (
            high - low
            <= 1e-10 * summary.smallest_sd[row]
            + 2 * np.spacing(np.maximum(np.abs(low), np.abs(high)))
        )
        middle = 0.5 * low + 0.5 * high
        if np.any(tiny):
            held = np.flatnonzero(tiny)
            inside[held] = log_density(mixtures, middle[held], row[held]) >= levels[row[held]]
        segments.append((row[inside], low[inside], high[inside]))
        if np.any(monotone):
            r, a, b = row[monotone], low[monotone], high[monotone]
            at_a, at_b = (log_density(mixtures, point, r) >= levels[r] for point in (a, b))
            segments.append((r[at_a & at_b], a[at_a & at_b], b[at_a & at_b]))
            brackets.append((r[at_a & ~at_b], a[at_a & ~at_b], b[at_a & ~at_b]))
            brackets.append((r[at_b & ~at_a], b[at_b & ~at_a], a[at_b & ~at_a]))
        split = ~(inside | outside | monotone | tiny)
        row, low, middle, high = row[split], low[split], middle[split], high[split]
        row, low, high = (
            np.concatenate([row, row]),
            np.concatenate([low, middle]),
            np.concatenate([middle, high]),
        )

    owner, within, beyond = (np.concatenate(part) for part in zip(*brackets, strict=True))
    roots = _crossings(mixtures, owner, levels[owner], within, beyond, summary.smallest_sd[owner])
    segments.append((owner, np.minimum(within, roots), np.maximum(within, roots)))
    return segments


def _decide(
    mixtures: GaussianMixtures, rows: Integers, levels: F64, low: F64, high: F64
) -> tuple[Bools, Bools, Bools]:
    """For each interval: f >= level throughout, f < level throughout, or f monotone; all three
    proved by bounds.

    Wide intervals: each component is largest at the point nearest to its mean and smallest at the
    farthest. Narrow ones: a Taylor polynomial at the midpoint, with |N''| <= max(1, z^2) exp(-z^2 /
    2) / s^2 times the peak as its remainder.
    """
    inside, outside, monotone = (np.zeros(len(rows), dtype=bool) for _ in range(3))
    ceiling = 600.0  # keeps exp finite; the polynomial is not trusted where it bites
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for where, means, inverse, peaks in blocks_of(mixtures, rows):
            width = (0.5 * high[where] - 0.5 * low[where])[:, None]
            offset = means - (0.5 * high[where] + 0.5 * low[where])[:, None]
            distance = np.abs(offset)
            near = np.maximum(distance - width, 0) * inverse
            # what follows is in sds of each component, cut where its square could overflow: nothing
            # is left of f there
            far, offset, half = (
                np.clip(v * inverse, -1e70, 1e70) for v in (distance + width, offset, width)
            )
            excess = peaks - levels[where, None]
            largest = excess - 0.5 * np.square(near)
            most = np.exp(np.minimum(largest, ceiling))
            least = np.exp(np.minimum(excess - 0.5 * np.square(far), ceiling))
            here = np.exp(np.minimum(excess - 0.5 * np.square(offset), ceiling))
            value = here.sum(axis=1)
            change = (here * offset * half).sum(axis=1)  # f' times half the width
            bend = (most * np.maximum(1, np.square(far)) * np.square(half)).sum(axis=1)
            trusted = (largest.max(axis=1) < ceiling) & np.isfinite(bend)
            slack = 1e-12 * value
            margin = np.abs(change) + 0.5 * bend + slack
            inside[where] = (least.sum(axis=1) > 1 + 1e-12) | (trusted & (value - margin > 1))
            outside[where] = (most.sum(axis=1) < 1 - 1e-12) | (trusted & (value + margin < 1))
            monotone[where] = trusted & (
                np.abs(change) > bend + 1e-12 * (here * np.abs(offset) * half).sum(axis=1)
            )
    return inside, outside & ~inside, monotone & ~inside & ~outside


def _crossings(
    mixtures: GaussianMixtures,
    rows: Integers,
    levels: F64,
    within: F64,
    beyond: F64,
    smallest_sd: F64,
) -> F64:
    """The one point between `within` (log f >= level) and `beyond` (log f < level): Newton steps
    kept in the bracket.
    """
    inner, outer = within.copy(), beyond.copy()
    point = 0.5 * inner + 0.5 * outer
    with np.errstate(over="ignore"):
        previous = np.abs(outer - inner)
    todo = np.arange(len(rows))
    for _ in range(2200):  # bisection alone ends in fewer
        if not todo.size:
            break
        value, slope = log_density_and_slope(mixtures, rows[todo], point[todo])
        holds = value >= levels[todo]
        inner[todo[holds]] = point[todo[holds]]
        outer[todo[~holds]] = point[todo[~holds]]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            target = point[todo] - (value - levels[todo]) / slope
        small, large = np.minimum(inner[todo], outer[todo]), np.maximum(inner[todo], outer[todo])
        useful = (
            (target >= small)
            & (target <= large)
            & (np.abs(target - point[todo]) <= 0.5 * previous[todo])
        )
        target = np.where(useful, target, 0.5 * small + 0.5 * large)
        step = np.abs(target - point[todo])
        previous[todo] = step
        point[todo] = target
        todo = todo[step > 1e-12 * smallest_sd[todo] + np.spacing(np.abs(target))]
    return point
