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
ROUNDING_UNIT = 2.0**-47  # see `_bound_rounding`: 64 units of 2**-53


def level_sets(
    mixtures: GaussianMixtures, levels: Floats, *, nodes: Sequence[int] = NODES
) -> IntervalUnions:
    """Find {y : log f_i(y) >= levels[i]} for each row i, f_i the density of its mixture.

    Ends are right to about 1e-9 of the row's smallest sd (or to the spacing of floats near them,
    where that is larger). Pieces, and gaps between pieces, that are shorter than that may be
    missed.

    Parameters
    ----------
    mixtures : one mixture of Gaussians per row
    levels : one for each row, or one for all; -inf gives the whole line, inf gives nothing
    nodes : numbers of Chebyshev nodes to try; without any, all rows are searched by bounds
    """
    n_rows = len(mixtures)
    level_of_row = np.broadcast_to(np.asarray(levels, dtype=np.float64), (n_rows,))
    whole_line_rows = np.flatnonzero(np.isneginf(level_of_row))
    finite_rows = np.flatnonzero(np.isfinite(level_of_row))

    pieces = _search_rows(mixtures, level_of_row, finite_rows, nodes)
    return unite(n_rows, [Pieces.whole_line(whole_line_rows), *pieces])


def level_sets_at(mixtures: GaussianMixtures, levels: Floats) -> list[IntervalUnions]:
    """Find the level sets at several levels per row: `levels` is (J, n), the result has J entries.

    log f of a row is interpolated once, on the interval of its lowest level, which holds the sets
    of its other levels too.
    """
    levels = np.asarray(levels, dtype=np.float64)

    # Nothing to share: fewer than two levels, a level of -inf, for which there are no bounds, or
    # one Gaussian per row, whose set has a closed form.
    has_one_component = mixtures.means.shape[0] == 1
    if len(levels) < 2 or not np.all(np.isfinite(levels)) or has_one_component:
        return [level_sets(mixtures, level_of_row) for level_of_row in levels]

    interpolants = _interpolate_rows(mixtures, lowest_levels=levels.min(axis=0))
    return [_cut_interpolants(mixtures, interpolants, level_of_row) for level_of_row in levels]


@dataclass(frozen=True, eq=False)
class _Interpolants:
    """Curves of log f, those of one number of nodes and one batch of rows together.

    `unresolved_rows` are the rows for which no number of nodes is enough.
    """

    curves: tuple[Curves, ...]
    unresolved_rows: Integers


def _interpolate_rows(mixtures: GaussianMixtures, *, lowest_levels: Doubles) -> _Interpolants:
    """Replace log f of each row by a polynomial, with as few nodes (points) as are enough.

    The polynomial is for the interval that holds the set {y : log f(y) >= lowest level} of the row;
    rows whose set is certainly empty get none.
    """
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
    """Find the level sets from polynomials in place of log f, and the rest by a search.

    `levels` has one for each row, not below that for which the polynomials were made.
    """
    parts = []
    rows_to_search: list[Integers] = [interpolants.unresolved_rows]
    for curves in interpolants.curves:
        pieces, undecided = cut(mixtures, curves, levels)
        parts.append(pieces)
        rows_to_search.append(undecided)

    parts += _search_rows(mixtures, levels, np.concatenate(rows_to_search), NODES)
    return unite(len(mixtures), parts)


def outer_level_sets(mixtures: GaussianMixtures, levels: Floats) -> IntervalUnions:
    """Find sets that hold every float y with ``log_density(mixtures, y) >= levels``.

    `log_density` rounds, so floats a little outside the exact level set may satisfy this. The ends
    of these sets lie beyond the outermost such y, by about the rounding error (1e-14) divided by
    the slope of log f there. `levels` has one level for each row, or one for all.
    """
    n_rows = len(mixtures)
    level_of_row = np.broadcast_to(np.asarray(levels, dtype=np.float64), (n_rows,))
    margin = _bound_rounding(mixtures, level_of_row)  # more than log_density rounds

    # 1. The sets of a slightly lower level, so that no peak that just reaches the level is missed.
    sets = level_sets(mixtures, level_of_row - 2 * margin)

    # 2. Move each end outwards to where no y can be a member.
    rows = sets.rows()
    lower = _move_out(mixtures, rows, sets.lower, level_of_row, margin, direction=-1.0)
    upper = _move_out(mixtures, rows, sets.upper, level_of_row, margin, direction=1.0)
    return unite(n_rows, [Pieces(rows, lower, upper)])


def _search_rows(
    mixtures: GaussianMixtures, levels: Doubles, rows: Integers, nodes: Sequence[int]
) -> list[Pieces]:
    """Find the level sets {y : log f(y) >= level} of some rows, as pieces of the line.

    First log f is interpolated by polynomials, with each number of nodes in `nodes` for the rows
    that the number before it left undecided. A slower search by bounds decides the rest.

    `levels` has a level for every row of `mixtures`; those of `rows`, the row numbers to search,
    are finite.
    """
    if not rows.size:
        return [Pieces.none()]

    # Bounds of the sets. Rows with an infinite level get any finite one: they are not searched.
    outlines = Outlines.of(mixtures, np.where(np.isfinite(levels), levels, 0.0))
    lower = outlines.lower[rows]
    upper = outlines.upper[rows]
    if mixtures.means.shape[0] == 1:  # one Gaussian: its bounds are its ends
        return [Pieces(rows, lower, upper).take(lower <= upper)]

    parts = [Pieces.none()]
    for batch in _batches(rows[lower < upper]):
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
    direction: float,
) -> Floats:
    """Move ends of level sets outwards until log f there is certainly below the level.

    That is so where log f, as the computer rounds it, is below level - margin. f falls from an end
    outwards, so every end gets there.

    Parameters
    ----------
    rows : the row of each end, a row number of `mixtures`
    ends : all lower ends (direction -1) or all upper ends (direction 1); infinite ones stay
    levels, margin : of each row of `mixtures`; the margin is more than log f rounds near the level
    """
    moved = ends.copy()
    inner = np.flatnonzero(np.isfinite(ends))  # the ends that are not yet moved far enough
    y = ends[inner]
    row = rows[inner]
    smallest_sd = smallest_sds(mixtures)[row]
    height, slope = log_density_and_slope(mixtures, row, y)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # 1. A Newton step to where log f = level - 2 margin. A long one is not taken: f is so flat
        # there that it would end anywhere.
        newton_step = (height - levels[row] + 2 * margin[row]) / (-direction * slope)
        is_short = np.abs(newton_step) <= LARGEST_CORRECTION * smallest_sd
        y = np.where(is_short, y + direction * newton_step, y)
        moved[inner] = y

        # 2. Where that is not enough, steps that double, from the smallest that matters on.
        step = np.maximum(FIRST_STEP * smallest_sd, np.spacing(np.abs(y)))
        while inner.size:
            row = rows[inner]
            is_out = log_density(mixtures, moved[inner], row) < levels[row] - margin[row]
            inner = inner[~is_out]
            step = step[~is_out]
            moved[inner] += direction * step
            step *= 2
    return moved


def _bound_rounding(mixtures: GaussianMixtures, levels: Doubles) -> Doubles:
    """Bound twice the rounding error of `log_density` near a level; 0 for an infinite level.

    The bound is 2**-47 (2 + log T + |log(smallest sd)| + |level|), T the number of components. An
    exponent rounds by some 8 units of 2**-53 of itself. The exponents, weighted by what they add to
    f, are at most the highest log peak less the level, plus log T. The sum, its logarithm and the
    peak add less than as much again.
    """
    is_finite = np.isfinite(levels)
    log_n_components = np.log(mixtures.means.shape[0])
    size = 2 + log_n_components + np.abs(np.log(smallest_sds(mixtures)))
    size = size + np.abs(np.where(is_finite, levels, 0.0))
    return np.where(is_finite, ROUNDING_UNIT * size, 0.0)
