"""Level sets by bounds on f and f' over intervals, which are halved until the bounds decide."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dco.foundations.arrays import Bools, Doubles, Floats, Integers
from dco.predictions import GaussianMixtures
from dco.scores.densities.mixtures import (
    Components,
    component_blocks,
    log_density,
    log_density_and_slope,
)
from dco.scores.densities.pieces import Outlines, Pieces

# Exponents are cut off here, so that exp stays finite. Where that happens, the Taylor polynomial is
# not the function's, and is not used.
_LARGEST_EXPONENT = 600.0
# Distances in sds are cut off here, so that their squares stay finite. f is 0 that far out.
_LARGEST_DISTANCE = 1e70
_ROUNDING = 1e-12  # bounds must decide by this relative margin, far above what they round
_SHORTEST_IN_SDS = 1e-10  # an interval shorter than this is not halved further
_CROSSING_TOLERANCE = 1e-12  # of a crossing, in units of the row's smallest sd
_MOST_STEPS = 2200  # to a crossing: halving alone ends in fewer, whatever the floats


@dataclass(frozen=True, eq=False)
class _Brackets:
    """Pairs of points between which the set of row rows[j] ends.

    inside[j] is in the set and outside[j] is not. Either may be the left one.
    """

    rows: Integers
    inside: Floats
    outside: Floats

    def take(self, chosen: Bools) -> _Brackets:
        """Return some of the brackets, chosen by a mask."""
        return _Brackets(self.rows[chosen], self.inside[chosen], self.outside[chosen])


@dataclass(frozen=True, eq=False)
class _Verdicts:
    """What bounds prove about f on each of several intervals; at most one of the three is true."""

    is_inside: Bools  # f > level throughout
    is_outside: Bools  # f < level throughout
    is_monotone: Bools  # f rises throughout, or falls throughout


def search(
    mixtures: GaussianMixtures, outlines: Outlines, levels: Doubles, rows: Integers
) -> Pieces:
    """Find the level sets {y : log f(y) >= level} of some rows, whatever the shape of f.

    f is the density of the row's mixture of Gaussians. Beyond the first and the last of their means
    it is monotone, so the level is crossed at most once on either side. The interval between these
    means is halved until each part is decided:

    - inside or outside the set throughout, as bounds of f prove,
    - f is monotone there, as bounds of its slope prove: both ends tell whether the level is
      crossed,
    - too short to matter: its middle decides.

    Parameters
    ----------
    outlines : the outer means and the smallest sd of every row, and bounds of its level set
    levels : one for every row of `mixtures`
    rows : the numbers of the rows to search
    """
    if not rows.size:
        return Pieces.none()
    pieces = []
    brackets = _bracket_outer_crossings(mixtures, outlines, levels, rows)

    open_intervals = Pieces(rows, outlines.first_mean[rows], outlines.last_mean[rows])
    while open_intervals.rows.size:
        # 1. Ask the bounds.
        verdicts = _decide_by_bounds(mixtures, open_intervals, levels)
        pieces.append(open_intervals.take(verdicts.is_inside))

        # 2. Where f is monotone, its values at both ends decide.
        monotone = open_intervals.take(verdicts.is_monotone)
        whole, crossed = _decide_monotone(mixtures, levels, monotone)
        pieces.append(whole)
        brackets += crossed

        # 3. Halve the intervals that are left, but decide very short ones by their middle.
        is_decided = verdicts.is_inside | verdicts.is_outside | verdicts.is_monotone
        undecided = open_intervals.take(~is_decided)
        is_short = _are_too_short_to_halve(undecided, outlines.smallest_sd[undecided.rows])
        pieces.append(_keep_by_middle(mixtures, levels, undecided.take(is_short)))
        open_intervals = _halve(undecided.take(~is_short))

    pieces.append(_pieces_to_crossings(mixtures, outlines, levels, brackets))
    return Pieces.together(pieces)


def _bracket_outer_crossings(
    mixtures: GaussianMixtures, outlines: Outlines, levels: Doubles, rows: Integers
) -> list[_Brackets]:
    """Bracket the crossings left of the first mean and right of the last, where f is monotone.

    Where an outer mean is in the set, the set ends between it and the bound of the level set.
    """
    first_mean = outlines.first_mean[rows]
    last_mean = outlines.last_mean[rows]
    first_is_inside = log_density(mixtures, first_mean, rows) >= levels[rows]
    last_is_inside = log_density(mixtures, last_mean, rows) >= levels[rows]

    left = _Brackets(rows, inside=first_mean, outside=outlines.lower[rows])
    right = _Brackets(rows, inside=last_mean, outside=outlines.upper[rows])
    return [left.take(first_is_inside), right.take(last_is_inside)]


def _decide_monotone(
    mixtures: GaussianMixtures, levels: Doubles, intervals: Pieces
) -> tuple[Pieces, list[_Brackets]]:
    """Compare f with the level at both ends of intervals on which f is monotone.

    Return the intervals that are wholly in the set, and a bracket of the crossing for each interval
    with only one end in it.
    """
    rows = intervals.rows
    low = intervals.lower
    high = intervals.upper
    low_is_inside = log_density(mixtures, low, rows) >= levels[rows]
    high_is_inside = log_density(mixtures, high, rows) >= levels[rows]

    is_whole = low_is_inside & high_is_inside
    falling = _Brackets(rows, inside=low, outside=high).take(low_is_inside & ~high_is_inside)
    rising = _Brackets(rows, inside=high, outside=low).take(high_is_inside & ~low_is_inside)
    return intervals.take(is_whole), [falling, rising]


def _are_too_short_to_halve(intervals: Pieces, smallest_sd: Doubles) -> Bools:
    """Mark intervals that are tiny beside the smallest sd, or hold hardly any floats."""
    largest_end = np.maximum(np.abs(intervals.lower), np.abs(intervals.upper))
    shortest = _SHORTEST_IN_SDS * smallest_sd + 2 * np.spacing(largest_end)
    return np.asarray(intervals.upper - intervals.lower <= shortest)


def _keep_by_middle(mixtures: GaussianMixtures, levels: Doubles, intervals: Pieces) -> Pieces:
    """Return the intervals whose middle is in the level set."""
    rows = intervals.rows
    is_inside = log_density(mixtures, _middle(intervals), rows) >= levels[rows]
    return intervals.take(is_inside)


def _halve(intervals: Pieces) -> Pieces:
    """Cut each interval in two: first all left halves, then all right halves."""
    middle = _middle(intervals)
    return Pieces(
        rows=np.concatenate([intervals.rows, intervals.rows]),
        lower=np.concatenate([intervals.lower, middle]),
        upper=np.concatenate([middle, intervals.upper]),
    )


def _middle(intervals: Pieces) -> Floats:
    return 0.5 * intervals.lower + 0.5 * intervals.upper  # half the sum could overflow


def _pieces_to_crossings(
    mixtures: GaussianMixtures, outlines: Outlines, levels: Doubles, brackets: list[_Brackets]
) -> Pieces:
    """Return the part of each bracket that is in the set: from its inner point to the crossing.

    A bracket holds a point inside a row's level set and one outside; between them log f crosses the
    level once. `outlines` and `levels` have an entry for every row of `mixtures`.
    """
    joined = _Brackets(
        rows=np.concatenate([bracket.rows for bracket in brackets]),
        inside=np.concatenate([bracket.inside for bracket in brackets]),
        outside=np.concatenate([bracket.outside for bracket in brackets]),
    )
    rows = joined.rows
    crossings = _find_crossings(mixtures, joined, levels[rows], outlines.smallest_sd[rows])
    return Pieces(rows, np.minimum(joined.inside, crossings), np.maximum(joined.inside, crossings))


# ------------------------------------------------------------------------------------------ bounds


def _decide_by_bounds(mixtures: GaussianMixtures, intervals: Pieces, levels: Doubles) -> _Verdicts:
    """Prove, where bounds can, that intervals are inside a level set, outside it, or f monotone.

    `intervals` say which row of `mixtures` each belongs to, and `levels` has a level for every row.
    """
    n_intervals = len(intervals.rows)
    is_inside = np.zeros(n_intervals, dtype=bool)
    is_outside = np.zeros(n_intervals, dtype=bool)
    is_monotone = np.zeros(n_intervals, dtype=bool)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        # block by block, so that arrays of intervals x components fit into the cache
        for components in component_blocks(mixtures, intervals.rows):
            block = components.positions
            verdicts = _decide_block_by_bounds(
                components,
                levels[intervals.rows[block]],
                low=intervals.lower[block],
                high=intervals.upper[block],
            )
            is_inside[block] = verdicts.is_inside
            is_outside[block] = verdicts.is_outside
            is_monotone[block] = verdicts.is_monotone
    return _Verdicts(is_inside, is_outside, is_monotone)


def _decide_block_by_bounds(
    components: Components, levels: Doubles, *, low: Floats, high: Floats
) -> _Verdicts:
    """Prove, where bounds can, that intervals are inside a level set, outside it, or f monotone.

    Interval j is [low[j], high[j]], for the mixture of row j of `components` and levels[j]. What is
    bounded is g = f / exp(level), which is at least 1 inside the set. g is a sum over components,
    each largest at the point of the interval nearest to its mean, and smallest at the farthest.
    These bounds decide wide intervals; Taylor's theorem decides narrow ones.
    """
    # 1. Bounds of each component of g on the interval, and its value at the middle; all (b, T).
    distances = _measure_distances(components, low=low, high=high)
    log_peaks = components.log_peaks - levels[:, None]  # its log at the component's mean
    log_largest = log_peaks - 0.5 * np.square(distances.nearest)
    largest = _exp_cut_off(log_largest)
    smallest = _exp_cut_off(log_peaks - 0.5 * np.square(distances.farthest))
    at_middle = _exp_cut_off(log_peaks - 0.5 * np.square(distances.middle))

    # 2. Decide by the sum of the smallest and by that of the largest values.
    is_inside = smallest.sum(axis=1) > 1 + _ROUNDING
    is_outside = largest.sum(axis=1) < 1 - _ROUNDING

    # 3. Decide by Taylor's theorem too, where no exponent was cut off.
    by_taylor = _decide_by_taylor(at_middle, largest, distances)
    is_exact = log_largest.max(axis=1) < _LARGEST_EXPONENT
    is_inside |= is_exact & by_taylor.is_inside
    is_outside |= is_exact & by_taylor.is_outside
    is_outside &= ~is_inside
    return _Verdicts(
        is_inside=is_inside,
        is_outside=is_outside,
        is_monotone=is_exact & by_taylor.is_monotone & ~is_inside & ~is_outside,
    )


@dataclass(frozen=True, eq=False)
class _Distances:
    """Where an interval lies as seen from the mean of each component, in its sds; all (b, T)."""

    nearest: Doubles  # from the mean to the nearest point of the interval, 0 if that is the mean
    farthest: Doubles  # from the mean to the farthest point of the interval
    middle: Doubles  # mean - middle of the interval, with its sign
    half_length: Doubles  # half the length of the interval


def _measure_distances(components: Components, *, low: Floats, high: Floats) -> _Distances:
    """Measure how far the intervals [low, high], one for each row, are from all components."""
    half_length = (0.5 * high - 0.5 * low)[:, None]
    to_middle = components.means - (0.5 * high + 0.5 * low)[:, None]
    inverse_sds = components.inverse_sds
    return _Distances(
        nearest=np.maximum(np.abs(to_middle) - half_length, 0) * inverse_sds,
        farthest=_cut_off_distance((np.abs(to_middle) + half_length) * inverse_sds),
        middle=_cut_off_distance(to_middle * inverse_sds),
        half_length=_cut_off_distance(half_length * inverse_sds),
    )


def _cut_off_distance(distance: Doubles) -> Doubles:
    return np.clip(distance, -_LARGEST_DISTANCE, _LARGEST_DISTANCE)


def _exp_cut_off(exponents: Doubles) -> Doubles:
    return np.asarray(np.exp(np.minimum(exponents, _LARGEST_EXPONENT)))


def _decide_by_taylor(at_middle: Doubles, largest: Doubles, distances: _Distances) -> _Verdicts:
    """Compare g with 1 on narrow intervals, by Taylor's theorem at the middle c of each.

    With h half the length of the interval, change = h g'(c), and bend at least h^2 |g''| on it,

        |g(y) - g(c)| <= |change| + bend / 2,

    and g is monotone where its slope at c exceeds all that g'' can take away: |change| > bend.

    `at_middle` holds the components of g at c, and `largest` their largest values on the interval;
    both are (b, T). A component e of g has e'(c) = e(c) z / sd, z being its mean - c in sds, and
    |e''| is at most its largest value times max(1, farthest^2) / sd^2.
    """
    value = at_middle.sum(axis=1)
    change_of_components = at_middle * distances.middle * distances.half_length
    change = change_of_components.sum(axis=1)
    largest_curvature = largest * np.maximum(1, np.square(distances.farthest))
    bend = (largest_curvature * np.square(distances.half_length)).sum(axis=1)

    variation = np.abs(change) + 0.5 * bend + _ROUNDING * value
    rounding_of_change = _ROUNDING * np.abs(change_of_components).sum(axis=1)
    is_exact = np.isfinite(bend)
    return _Verdicts(
        is_inside=is_exact & (value - variation > 1),
        is_outside=is_exact & (value + variation < 1),
        is_monotone=is_exact & (np.abs(change) > bend + rounding_of_change),
    )


# --------------------------------------------------------------------------------------- crossings


def _find_crossings(
    mixtures: GaussianMixtures, brackets: _Brackets, levels: Doubles, smallest_sd: Doubles
) -> Doubles:
    """Find the point y between each pair of points where log f(y) is the level.

    All points are searched at once, by Newton steps y -> y - (log f(y) - level) / (log f)'(y). A
    step that leaves the bracket, or is more than half as long as the step before, is replaced by a
    step to the middle of the bracket.

    Parameters
    ----------
    brackets : the pairs of points, one in the level set and one outside it
    levels, smallest_sd : of each bracket's row; the smallest sd is the scale of the tolerance
    """
    inside = brackets.inside.copy()
    outside = brackets.outside.copy()
    y = 0.5 * inside + 0.5 * outside
    with np.errstate(over="ignore"):
        last_step = np.abs(outside - inside)

    unsolved = np.arange(len(y))  # the brackets whose crossing is not yet found
    for _ in range(_MOST_STEPS):
        if not unsolved.size:
            break

        # 1. Look at f, and move the end of the bracket that is on the same side of the level.
        y_now = y[unsolved]
        level = levels[unsolved]
        value, slope = log_density_and_slope(mixtures, brackets.rows[unsolved], y_now)
        is_inside = value >= level
        inner_end = np.where(is_inside, y_now, inside[unsolved])
        outer_end = np.where(is_inside, outside[unsolved], y_now)

        # 2. Take the Newton step if it is useful, otherwise go to the middle.
        left = np.minimum(inner_end, outer_end)
        right = np.maximum(inner_end, outer_end)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = y_now - (value - level) / slope
        is_in_bracket = (newton >= left) & (newton <= right)
        is_shorter = np.abs(newton - y_now) <= 0.5 * last_step[unsolved]
        y_next = np.where(is_in_bracket & is_shorter, newton, 0.5 * left + 0.5 * right)
        step = np.abs(y_next - y_now)

        # 3. Store the new state, and go on where the step was not yet tiny.
        inside[unsolved] = inner_end
        outside[unsolved] = outer_end
        last_step[unsolved] = step
        y[unsolved] = y_next
        tolerance = _CROSSING_TOLERANCE * smallest_sd[unsolved] + np.spacing(np.abs(y_next))
        unsolved = unsolved[step > tolerance]
    return y
