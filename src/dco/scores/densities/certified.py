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

    Beyond the first and the last mean of a row f is monotone, so there is at most one crossing on
    either side. Between them intervals are halved until each is decided:

    - inside or outside the set throughout, as bounds prove,
    - f is monotone there, as bounds prove: its ends tell whether the level is crossed,
    - too short to matter: its middle decides.
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
    lower_bound = outlines.lower[rows]
    upper_bound = outlines.upper[rows]

    is_inside = log_density(mixtures, first_mean, rows) >= levels[rows]
    on_the_left = _Brackets(rows[is_inside], first_mean[is_inside], lower_bound[is_inside])
    is_inside = log_density(mixtures, last_mean, rows) >= levels[rows]
    on_the_right = _Brackets(rows[is_inside], last_mean[is_inside], upper_bound[is_inside])
    return [on_the_left, on_the_right]


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

    falls = low_is_inside & ~high_is_inside
    rises = high_is_inside & ~low_is_inside
    brackets = [
        _Brackets(rows[falls], inside=low[falls], outside=high[falls]),
        _Brackets(rows[rises], inside=high[rises], outside=low[rises]),
    ]
    return intervals.take(low_is_inside & high_is_inside), brackets


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
    """Return the part of each bracket that is in the set: from its inner point to the crossing."""
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
    """Prove, where bounds can, that an interval is inside the set, outside it, or f monotone."""
    n_intervals = len(intervals.rows)
    is_inside = np.zeros(n_intervals, dtype=bool)
    is_outside = np.zeros(n_intervals, dtype=bool)
    is_monotone = np.zeros(n_intervals, dtype=bool)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
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
    """Compare bounds of g = f / exp(level) with 1 on a block of intervals [low, high].

    With c the middle of an interval, h half its length, z_t = (mean_t - c) / sd_t and
    h_t = h / sd_t, component t of g is exp(p_t - level - z_t^2 / 2) at the middle (p_t: its log
    peak). Two kinds of bounds:

    - For wide intervals: a component is largest at the point nearest to its mean, near_t sds away,
      and smallest at the farthest, far_t sds away.
    - For narrow ones, Taylor's theorem at the middle: |g(y) - g(c)| <= |change| + bend / 2 with
      change = h g'(c) and bend a bound of h^2 |g''|. A component's second derivative is at most
      max(1, far_t^2) / sd_t^2 times its largest value.

    g is monotone where its slope at the middle exceeds all that g'' can take away: |change| > bend.
    """
    # 1. Distances in sds of each component, (b, T).
    half_length = (0.5 * high - 0.5 * low)[:, None]
    offset = components.means - (0.5 * high + 0.5 * low)[:, None]
    inverse_sds = components.inverse_sds
    distance = np.abs(offset)
    near = np.maximum(distance - half_length, 0) * inverse_sds
    far = np.clip((distance + half_length) * inverse_sds, -_LARGEST_DISTANCE, _LARGEST_DISTANCE)
    z = np.clip(offset * inverse_sds, -_LARGEST_DISTANCE, _LARGEST_DISTANCE)
    half = np.clip(half_length * inverse_sds, -_LARGEST_DISTANCE, _LARGEST_DISTANCE)

    # 2. Each component of g: its largest and its smallest value, and that at the middle.
    log_peak = components.log_peaks - levels[:, None]
    log_largest = log_peak - 0.5 * np.square(near)
    largest = np.exp(np.minimum(log_largest, _LARGEST_EXPONENT))
    smallest = np.exp(np.minimum(log_peak - 0.5 * np.square(far), _LARGEST_EXPONENT))
    at_middle = np.exp(np.minimum(log_peak - 0.5 * np.square(z), _LARGEST_EXPONENT))

    # 3. Taylor's bounds of g.
    value = at_middle.sum(axis=1)
    change = (at_middle * z * half).sum(axis=1)
    bend = (largest * np.maximum(1, np.square(far)) * np.square(half)).sum(axis=1)
    is_exact = (log_largest.max(axis=1) < _LARGEST_EXPONENT) & np.isfinite(bend)
    variation = np.abs(change) + 0.5 * bend + _ROUNDING * value
    rounding_of_change = _ROUNDING * (at_middle * np.abs(z) * half).sum(axis=1)

    # 4. Compare with 1, which is g at the level.
    is_inside = (smallest.sum(axis=1) > 1 + _ROUNDING) | (is_exact & (value - variation > 1))
    is_outside = (largest.sum(axis=1) < 1 - _ROUNDING) | (is_exact & (value + variation < 1))
    is_monotone = is_exact & (np.abs(change) > bend + rounding_of_change)
    return _Verdicts(
        is_inside=is_inside,
        is_outside=is_outside & ~is_inside,
        is_monotone=is_monotone & ~is_inside & ~is_outside,
    )


# --------------------------------------------------------------------------------------- crossings


def _find_crossings(
    mixtures: GaussianMixtures, brackets: _Brackets, levels: Doubles, smallest_sd: Doubles
) -> Doubles:
    """Find the y with log f(y) = level in each bracket, by Newton steps guarded by bisection.

    A Newton step that leaves the bracket, or is not half as long as the step before, is replaced by
    a step to the middle of the bracket. `levels` and `smallest_sd` have one entry per bracket.
    """
    inside = brackets.inside.copy()
    outside = brackets.outside.copy()
    y = 0.5 * inside + 0.5 * outside
    with np.errstate(over="ignore"):
        last_step = np.abs(outside - inside)

    todo = np.arange(len(brackets.rows))  # the brackets whose crossing is not yet found
    for _ in range(_MOST_STEPS):
        if not todo.size:
            break

        # 1. Look at f, and move the end of the bracket that is on the same side of the level.
        y_now = y[todo]
        value, slope = log_density_and_slope(mixtures, brackets.rows[todo], y_now)
        is_inside = value >= levels[todo]
        inside[todo[is_inside]] = y_now[is_inside]
        outside[todo[~is_inside]] = y_now[~is_inside]

        # 2. Take the Newton step if it is useful, otherwise go to the middle.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = y_now - (value - levels[todo]) / slope
        left = np.minimum(inside[todo], outside[todo])
        right = np.maximum(inside[todo], outside[todo])
        is_in_bracket = (newton >= left) & (newton <= right)
        is_shorter = np.abs(newton - y_now) <= 0.5 * last_step[todo]
        y_next = np.where(is_in_bracket & is_shorter, newton, 0.5 * left + 0.5 * right)

        # 3. Go on where the step was not yet tiny.
        step = np.abs(y_next - y_now)
        last_step[todo] = step
        y[todo] = y_next
        tolerance = _CROSSING_TOLERANCE * smallest_sd[todo] + np.spacing(np.abs(y_next))
        todo = todo[step > tolerance]
    return y
