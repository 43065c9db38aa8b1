"""Level sets of Gaussian mixtures: {y : log f(y) >= level} for each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dco.foundations.arrays import Doubles, Floats, Integers
from dco.predictions import GaussianMixtures
from dco.scores.densities import certified
from dco.scores.densities.chebyshev import Curves, cut, interpolate
from dco.scores.densities.mixtures import log_density, log_density_and_slope, smallest_sds
from dco.scores.densities.pieces import Outlines, Pieces, unite
from dco.sets.intervals import IntervalUnions

# rows searched together: what is made for each of them, some hundred numbers, stays a few megabytes
BATCH_SIZE = 1024
LARGEST_CORRECTION = 1e-6  # of an outer end by a Newton step, in units of the smallest sd
FIRST_STEP = 1e-15  # of an outer end outwards, in units of the smallest sd
NODES = (16, 32, 64)  # Chebyshev nodes per row, tried in this order before the certified search


def level_sets(
    mixtures: GaussianMixtures, levels: Floats, *, nodes: Sequence[int] = NODES
) -> IntervalUnions:
    """Return {y : log f_i(y) >= levels[i]} for each row; the whole line for a level of -inf.

    Ends are right to about 1e-9 of the row's smallest sd (or to the spacing of floats near them,
    where that is larger). Pieces, and gaps between pieces, that are shorter than that may be
    missed. `nodes` are numbers of Chebyshev nodes to try; without any, all rows are searched by
    bounds.
    """
    n_rows = len(mixtures)
    wanted = np.broadcast_to(np.asarray(levels, dtype=np.float64), (n_rows,))
    is_whole_line = np.isneginf(wanted)
    finite_rows = np.flatnonzero(np.isfinite(wanted))
    parts = [
        Pieces.whole_line(np.flatnonzero(is_whole_line)),
        *_search(mixtures, wanted, finite_rows, nodes),
    ]
    return unite(n_rows, parts)


def level_sets_at(mixtures: GaussianMixtures, levels: Floats) -> list[IntervalUnions]:
    """Compute the level sets at several levels per row, (J, n).

    The interpolant of a row is fitted once, on the interval of its lowest level, which holds the
    sets of its other levels too.
    """
    wanted = np.asarray(levels, dtype=np.float64)

    # Nothing to share: fewer than two levels, a level of -inf, for which there are no bounds, or
    # one Gaussian per row, whose set has a closed form.
    has_one_component = mixtures.means.shape[0] == 1
    if len(wanted) < 2 or not np.all(np.isfinite(wanted)) or has_one_component:
        return [level_sets(mixtures, level_of_rows) for level_of_rows in wanted]

    shared = _interpolate_rows(mixtures, lowest_levels=wanted.min(axis=0))
    return [_cut_interpolants(mixtures, shared, level_of_rows) for level_of_rows in wanted]


@dataclass(frozen=True, eq=False)
class _Interpolants:
    """The curves of many rows, in groups, and the rows that no number of nodes resolves."""

    curves: tuple[Curves, ...]
    unresolved_rows: Integers


def _interpolate_rows(mixtures: GaussianMixtures, *, lowest_levels: Doubles) -> _Interpolants:
    """Interpolate each row whose set is not empty, with as few nodes as resolve it."""
    outlines = Outlines.of(mixtures, lowest_levels)
    curves = []
    unresolved: list[Integers] = [np.empty(0, dtype=np.int64)]
    for batch in _batches(np.flatnonzero(outlines.lower < outlines.upper)):
        remaining = batch
        for n_nodes in NODES:
            resolved, remaining = interpolate(mixtures, outlines, remaining, n_nodes)
            curves.append(resolved)
        unresolved.append(remaining)
    return _Interpolants(tuple(curves), np.concatenate(unresolved))


def _cut_interpolants(
    mixtures: GaussianMixtures, interpolants: _Interpolants, levels: Doubles
) -> IntervalUnions:
    """Compute the level sets from interpolants, and search the rows that these do not decide."""
    parts = []
    rows_to_search: list[Integers] = [interpolants.unresolved_rows]
    for curves in interpolants.curves:
        pieces, undecided = cut(mixtures, curves, levels)
        parts.append(pieces)
        rows_to_search.append(undecided)

    parts += _search(mixtures, levels, np.concatenate(rows_to_search), NODES)
    return unite(len(mixtures), parts)


def outer_level_sets(mixtures: GaussianMixtures, levels: Floats) -> IntervalUnions:
    """Return pieces that hold every float y with ``log_density(mixtures, y) >= levels``.

    At a peak or in a valley as well. They lie beyond the outermost such y by about what
    `log_density` rounds, 1e-14, over its slope there.
    """
    wanted = np.broadcast_to(np.asarray(levels, dtype=np.float64), (len(mixtures),))
    margin = _bound_rounding(mixtures, wanted)
    inner = level_sets(mixtures, wanted - 2 * margin)
    rows = inner.rows()
    lower = _move_out(mixtures, rows, inner.lower, wanted, margin, side=-1.0)
    upper = _move_out(mixtures, rows, inner.upper, wanted, margin, side=1.0)
    return unite(len(mixtures), [Pieces(rows, lower, upper)])


def _search(
    mixtures: GaussianMixtures, levels: Doubles, rows: Integers, nodes: Sequence[int]
) -> list[Pieces]:
    """Find the pieces of these rows, whose levels are finite.

    Each number of nodes is tried on the rows that the one before left undecided; the certified
    search decides the rest.
    """
    if not rows.size:
        return [Pieces.none()]

    # the other rows get a harmless level and are never looked at
    outlines = Outlines.of(mixtures, np.where(np.isfinite(levels), levels, 0.0))
    if mixtures.means.shape[0] == 1:  # one Gaussian: its bounds are its ends
        filled = rows[outlines.lower[rows] <= outlines.upper[rows]]
        return [Pieces(filled, outlines.lower[filled], outlines.upper[filled])]

    parts = [Pieces.none()]
    for batch in _batches(rows[outlines.lower[rows] < outlines.upper[rows]]):
        remaining = batch
        for n_nodes in nodes:
            curves, unresolved = interpolate(mixtures, outlines, remaining, n_nodes)
            pieces, undecided = cut(mixtures, curves, levels)
            parts.append(pieces)
            remaining = np.concatenate([unresolved, undecided])
        parts.append(certified.search(mixtures, outlines, levels, remaining))
    return parts


def _batches(rows: Integers) -> list[Integers]:
    return np.split(rows, range(BATCH_SIZE, rows.size, BATCH_SIZE))


def _move_out(
    mixtures: GaussianMixtures,
    rows: Integers,
    ends: Floats,
    levels: Doubles,
    margin: Doubles,
    *,
    side: float,
) -> Floats:
    """Move each end outwards until log f is below the level by more than its rounding error.

    `side` is -1 for lower ends and 1 for upper ones. f falls from there on outwards.
    """
    smallest_sd = smallest_sds(mixtures)
    moved = ends.copy()
    todo = np.flatnonzero(np.isfinite(ends))
    row = rows[todo]
    height, slope = log_density_and_slope(mixtures, row, moved[todo])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        newton_step = (height - levels[row] + 2 * margin[row]) / (-side * slope)
        # a longer one is not to be trusted: f is flat here
        is_short = np.abs(newton_step) <= LARGEST_CORRECTION * smallest_sd[row]
        moved[todo[is_short]] += side * newton_step[is_short]

        # then steps that double, from the smallest that matters on
        step = np.maximum(FIRST_STEP * smallest_sd[row], np.spacing(np.abs(moved[todo])))
        while todo.size:
            is_out = log_density(mixtures, moved[todo], row) < levels[row] - margin[row]
            todo = todo[~is_out]
            row = row[~is_out]
            step = step[~is_out]
            moved[todo] += side * step
            step *= 2
    return moved


def _bound_rounding(mixtures: GaussianMixtures, levels: Doubles) -> Doubles:
    """Bound twice the rounding error of `log_density` near a level; 0 for an infinite level.

    An exponent rounds by some 8 units of 2**-53 of itself; exponents, weighted by what they add to
    f, are at most the highest peak less the level and log T. The sum, its logarithm and the peak
    add less than as much again.
    """
    is_finite = np.isfinite(levels)
    terms = 2 + np.log(mixtures.means.shape[0]) + np.abs(np.log(smallest_sds(mixtures)))
    terms = terms + np.abs(np.where(is_finite, levels, 0.0))
    return np.where(is_finite, 2.0**-47 * terms, 0.0)
