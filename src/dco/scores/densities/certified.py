"""Level sets by bounds on f and f' over intervals, which are halved until the bounds decide."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dco.foundations.arrays import Bools, Doubles, Floats, Integers
from dco.predictions import GaussianMixtures
from dco.scores.densities.mixtures import component_blocks, log_density, log_density_and_slope
from dco.scores.densities.pieces import Outlines, Pieces

_CEILING = 600.0  # of exponents: keeps exp finite; the polynomial is not trusted where it bites
_LARGEST = 1e70  # of deviations, whose squares then do not overflow; nothing is left of f there
_MARGIN = 1e-12  # of rounding
_MOST_STEPS = 2200  # to a crossing: halving alone ends in fewer, whatever the floats


@dataclass(frozen=True, eq=False)
class _Brackets:
    """One crossing of the level in each: a point inside the set and a point outside."""

    rows: Integers
    inside: Floats
    outside: Floats


def search(
    mixtures: GaussianMixtures, outlines: Outlines, levels: Doubles, rows: Integers
) -> Pieces:
    """Return the level sets of some rows, whatever their shape."""
    if not rows.size:
        return Pieces.none()
    pieces = []
    brackets = _brackets_at_edges(mixtures, outlines, levels, rows)

    # Halve intervals, from the hull of the means on, until each is decided.
    row = rows
    low = outlines.first_mean[rows]
    high = outlines.last_mean[rows]
    while row.size:
        is_inside, is_outside, is_monotone = _decide(mixtures, row, levels[row], low, high)
        is_decided = is_inside | is_outside | is_monotone
        middle = 0.5 * low + 0.5 * high

        spacing = np.spacing(np.maximum(np.abs(low), np.abs(high)))
        is_tiny = high - low <= 1e-10 * outlines.smallest_sd[row] + 2 * spacing
        is_tiny &= ~is_decided
        if np.any(is_tiny):  # too short to matter: the middle decides
            tiny = np.flatnonzero(is_tiny)
            is_inside[tiny] = log_density(mixtures, middle[tiny], row[tiny]) >= levels[row[tiny]]

        pieces.append(Pieces(row, low, high).take(is_inside))
        if np.any(is_monotone):
            monotone = Pieces(row, low, high).take(is_monotone)
            whole, crossed = _sort_monotone(mixtures, levels, monotone)
            pieces.append(whole)
            brackets += crossed

        is_open = ~(is_decided | is_tiny)
        open_middle = middle[is_open]
        row = np.concatenate([row[is_open], row[is_open]])
        low = np.concatenate([low[is_open], open_middle])
        high = np.concatenate([open_middle, high[is_open]])

    pieces.append(_pieces_to_crossings(mixtures, outlines, levels, brackets))
    return Pieces.together(pieces)


def _brackets_at_edges(
    mixtures: GaussianMixtures, outlines: Outlines, levels: Doubles, rows: Integers
) -> list[_Brackets]:
    """Bracket the crossings beyond the first and the last mean, where f is monotone."""
    brackets = []
    for edge, bound in (
        (outlines.first_mean[rows], outlines.lower[rows]),
        (outlines.last_mean[rows], outlines.upper[rows]),
    ):
        is_inside = log_density(mixtures, edge, rows) >= levels[rows]
        brackets.append(_Brackets(rows[is_inside], edge[is_inside], bound[is_inside]))
    return brackets


def _sort_monotone(
    mixtures: GaussianMixtures, levels: Doubles, intervals: Pieces
) -> tuple[Pieces, list[_Brackets]]:
    """Sort intervals on which f is monotone: return those wholly in the set, and brackets of the
    crossing for those with one end in it.
    """
    rows = intervals.rows
    low = intervals.lower
    high = intervals.upper
    at_low = log_density(mixtures, low, rows) >= levels[rows]
    at_high = log_density(mixtures, high, rows) >= levels[rows]
    falls = at_low & ~at_high
    rises = at_high & ~at_low
    return intervals.take(at_low & at_high), [
        _Brackets(rows[falls], low[falls], high[falls]),
        _Brackets(rows[rises], high[rises], low[rises]),
    ]


def _pieces_to_crossings(
    mixtures: GaussianMixtures, outlines: Outlines, levels: Doubles, brackets: list[_Brackets]
) -> Pieces:
    """Return the part of each bracket that is in the set."""
    rows = np.concatenate([bracket.rows for bracket in brackets])
    inside = np.concatenate([bracket.inside for bracket in brackets])
    outside = np.concatenate([bracket.outside for bracket in brackets])
    crossings = _find_crossings(
        mixtures, _Brackets(rows, inside, outside), levels[rows], outlines.smallest_sd[rows]
    )
    return Pieces(rows, np.minimum(inside, crossings), np.maximum(inside, crossings))


def _decide(
    mixtures: GaussianMixtures, rows: Integers, levels: Doubles, low: Doubles, high: Doubles
) -> tuple[Bools, Bools, Bools]:
    """Say of each interval: f >= level throughout, f < level throughout, or f monotone.

    All three are proved by bounds. Wide intervals: each component is largest at the point nearest
    to its mean and smallest at the farthest. Narrow ones: a Taylor polynomial at the midpoint, with
    |N''| <= max(1, z^2) exp(-z^2 / 2) / s^2 times the peak as its remainder.
    """
    is_inside = np.zeros(len(rows), dtype=bool)
    is_outside = np.zeros(len(rows), dtype=bool)
    is_monotone = np.zeros(len(rows), dtype=bool)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for components in component_blocks(mixtures, rows):
            places = components.places
            inverse = components.inverse_sds
            half = (0.5 * high[places] - 0.5 * low[places])[:, None]
            offset = components.means - (0.5 * high[places] + 0.5 * low[places])[:, None]
            distance = np.abs(offset)
            excess = components.log_peaks - levels[places, None]

            # in sds of each component: the nearest and the farthest point, the midpoint, the half
            near = np.maximum(distance - half, 0) * inverse
            far = np.clip((distance + half) * inverse, -_LARGEST, _LARGEST)
            offset_in_sds = np.clip(offset * inverse, -_LARGEST, _LARGEST)
            half_in_sds = np.clip(half * inverse, -_LARGEST, _LARGEST)

            # components over the level: at most, at least, at the midpoint
            log_most = excess - 0.5 * np.square(near)
            most = np.exp(np.minimum(log_most, _CEILING))
            least = np.exp(np.minimum(excess - 0.5 * np.square(far), _CEILING))
            here = np.exp(np.minimum(excess - 0.5 * np.square(offset_in_sds), _CEILING))

            # the Taylor polynomial: value, slope times half the width, remainder
            value = here.sum(axis=1)
            change = (here * offset_in_sds * half_in_sds).sum(axis=1)
            bend_of_components = most * np.maximum(1, np.square(far)) * np.square(half_in_sds)
            bend = bend_of_components.sum(axis=1)
            is_trusted = (log_most.max(axis=1) < _CEILING) & np.isfinite(bend)
            margin = np.abs(change) + 0.5 * bend + _MARGIN * value
            rounding = _MARGIN * (here * np.abs(offset_in_sds) * half_in_sds).sum(axis=1)

            is_above = is_trusted & (value - margin > 1)
            is_below = is_trusted & (value + margin < 1)
            is_inside[places] = (least.sum(axis=1) > 1 + _MARGIN) | is_above
            is_outside[places] = (most.sum(axis=1) < 1 - _MARGIN) | is_below
            is_monotone[places] = is_trusted & (np.abs(change) > bend + rounding)

    is_outside &= ~is_inside
    is_monotone &= ~is_inside & ~is_outside
    return is_inside, is_outside, is_monotone


def _find_crossings(
    mixtures: GaussianMixtures, brackets: _Brackets, levels: Doubles, smallest_sd: Doubles
) -> Doubles:
    """Find the one crossing in each bracket, by Newton steps guarded by bisection.

    A step that leaves the bracket, or is not half as long as the one before, is replaced by the
    middle of the bracket.
    """
    inner = brackets.inside.copy()
    outer = brackets.outside.copy()
    point = 0.5 * inner + 0.5 * outer
    with np.errstate(over="ignore"):
        last_step = np.abs(outer - inner)

    todo = np.arange(len(brackets.rows))
    for _ in range(_MOST_STEPS):
        if not todo.size:
            break
        value, slope = log_density_and_slope(mixtures, brackets.rows[todo], point[todo])
        is_inside = value >= levels[todo]
        inner[todo[is_inside]] = point[todo[is_inside]]
        outer[todo[~is_inside]] = point[todo[~is_inside]]

        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            target = point[todo] - (value - levels[todo]) / slope
        small = np.minimum(inner[todo], outer[todo])
        large = np.maximum(inner[todo], outer[todo])
        is_useful = (
            (target >= small)
            & (target <= large)
            & (np.abs(target - point[todo]) <= 0.5 * last_step[todo])
        )
        target = np.where(is_useful, target, 0.5 * small + 0.5 * large)

        step = np.abs(target - point[todo])
        last_step[todo] = step
        point[todo] = target
        todo = todo[step > 1e-12 * smallest_sd[todo] + np.spacing(np.abs(target))]
    return point
