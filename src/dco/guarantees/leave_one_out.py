"""ModSel-CP-LOO on arrays: for each new row one candidate makes the set, at a threshold that knows
how it was chosen.

Liang, Zhu and Barber (2024, arXiv 2408.07066). M candidates, n rows with scores S_i, and one new
row; k is the conformal rank. L(q) is a candidate's sum of set sizes at cut-off q over all n + 1
rows. Row i, left out, is judged by the candidate with the smallest L at the k-th smallest of the
other n scores, and gets V_i = L(S_i) there: a number on one scale for all candidates. A label y of
the new row stays if its own V(y), by the candidate that the n rows choose, is at most the k-th
smallest V_i, the choices without row i being made with (x, y). At the true y the n + 1 values are
exchangeable.

The k-th smallest of the other scores and S(y) is S(y) clipped to two of S_(k-1), S_(k), S_(k+1),
which two being said by where S_i stands. L is monotone, so all of it can be done on the scale of L,
and labels that are clipped alike have the same k-th smallest V_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dco.foundations.arrays import AnyArray, Bools, Floats, Integers

# of S_(k-1), S_(k), S_(k+1), for S_i below, at and above S_(k)
_LOW, _HIGH = np.array([1, 0, 0]), np.array([2, 2, 1])
_ROUNDING = 2.0**-44  # of y, at the ends
_PLACES = 36  # binary places of a sum of lengths that are compared: rounding must not break ties


@dataclass(frozen=True, eq=False)
class _Ranked:
    """What follows from the scores of the n rows by each candidate alone, (M, n).

    `cuts` are these scores and S_(k-1), S_(k) and S_(k+1), (M, n + 3). Rows that stand alike are
    left out alike: `kinds` are the distinct columns of places, (M, U), and `column` says which is
    the one of each row.
    """

    cuts: Floats
    kinds: Integers
    column: Integers
    rank: int

    @classmethod
    def of(cls, scores: Floats, rank: int) -> _Ranked:
        ends = np.pad(
            np.sort(scores, axis=1), ((0, 0), (1, 1)), constant_values=((0, 0), (-np.inf, np.inf))
        )
        middle = ends[:, [rank]]
        places = 1 + (scores > middle).astype(np.int64) - (scores < middle)
        kinds, column = np.unique(places, axis=1, return_inverse=True)
        return cls(np.hstack([scores, ends[:, rank - 1 : rank + 2]]), kinds, column.ravel(), rank)

    def left_out(self, sums: AnyArray) -> _LeftOut:
        """One new row, by L at the cuts; a choice can take those whose L(S_(k-1)) is at most the
        least L(S_(k+1)).
        """
        alive = np.flatnonzero(sums[:, -3] <= sums[:, -1].min())
        return _LeftOut(self, alive, sums[alive, :-3], sums[alive, -3:])


@dataclass(frozen=True, eq=False)
class _LeftOut:
    """One new row: the candidates that some choice may take, their values L(S_i), (M, n), and L
    around the rank, (M, 3).
    """

    ranked: _Ranked
    alive: Integers
    values: Floats
    around: Floats

    @property
    def best(self) -> int:
        """The choice of the n rows among those alive, the first of equal ones."""
        return int(np.argmin(self.around[:, 1]))

    def bracket(self) -> Floats:
        """Two limits between which the k-th smallest V_i lies, whatever y is."""
        return self._smallest(np.stack([self.values.min(axis=0), self.values.max(axis=0)]))

    def limits(self, asked: Floats) -> Floats:
        """The k-th smallest V_i for each y, given by L(S(y)) of each candidate, (M, P)."""
        clipped = np.clip(asked, self.around[:, :1], self.around[:, 2:])
        distinct, place = np.unique(clipped, axis=1, return_inverse=True)
        kinds, column = self.ranked.kinds[self.alive], self.ranked.column
        low, high = (
            np.take_along_axis(self.around, ends[kinds], axis=1)[:, None] for ends in (_LOW, _HIGH)
        )
        winners = np.argmin(np.clip(distinct[:, :, None], low, high), axis=0)  # (P, U)
        own = self.values[winners[:, column], np.arange(self.values.shape[1])]
        return self._smallest(own)[place.ravel()]

    def _smallest(self, values: Floats) -> Floats:
        return np.asarray(
            np.partition(values, self.ranked.rank - 1, axis=1)[:, self.ranked.rank - 1]
        )


def label_members(
    scores: Floats, ascending: Sequence[Floats], new: Sequence[Floats], *, rank: int
) -> tuple[Bools, Integers]:
    """Which labels of the new rows are kept, (n_new, K), and the candidate of each row.

    `ascending` has the scores of every label of all n rows, sorted, and `new` those of the new
    rows, (n_new, K), for each candidate: a set's size is the number of labels at or below the
    cut-off.
    """
    ranked = _Ranked.of(scores, rank)
    members, best = np.zeros(new[0].shape, dtype=bool), np.zeros(len(new[0]), dtype=np.int64)
    # L of the n rows alone
    known, known_new = _at_most(ascending, ranked.cuts), _at_most(ascending, new)
    for row in range(len(members)):
        scores_here = [each[row] for each in new]
        ordered = [np.sort(each) for each in scores_here]
        one = ranked.left_out(known + _at_most(ordered, ranked.cuts))
        asked = known_new[:, row] + _at_most(ordered, scores_here)
        best[row] = one.alive[one.best]
        least, most = one.bracket()
        members[row] = asked[best[row]] <= least
        unsure = np.flatnonzero(~members[row] & (asked[best[row]] <= most))
        if unsure.size:
            members[row, unsure] = asked[best[row], unsure] <= one.limits(
                asked[np.ix_(one.alive, unsure)]
            )
    return members, best


def _at_most(ascending: Sequence[Floats], cutoffs: Sequence[Floats] | Floats) -> Integers:
    """For each candidate the number of scores at or below each cut-off."""
    return np.stack(
        [
            np.searchsorted(own, cuts, side="right")
            for own, cuts in zip(ascending, cutoffs, strict=True)
        ]
    )


@dataclass(frozen=True, eq=False)
class Ends:
    """Intervals [lower - below q, upper + above q] of some rows at cut-off q, (n,) each; empty
    where the ends cross.
    """

    lower: Floats
    below: Floats
    upper: Floats
    above: Floats

    def __getitem__(self, row: slice) -> Ends:
        return Ends(self.lower[row], self.below[row], self.upper[row], self.above[row])

    def scores(self, y: Floats) -> Floats:
        """The cut-off at which the one row's interval reaches y."""
        with np.errstate(divide="ignore", invalid="ignore"):
            under, over = (self.lower - y) / self.below, (y - self.upper) / self.above
        return np.maximum(np.where(np.isnan(under), 0, under), np.where(np.isnan(over), 0, over))

    def at(self, cutoffs: Floats) -> tuple[Floats, Floats]:
        """Both ends of the one row's interval."""
        with np.errstate(invalid="ignore"):
            left, right = self.lower - self.below * cutoffs, self.upper + self.above * cutoffs
        return np.where(np.isnan(left), -np.inf, left), np.where(np.isnan(right), np.inf, right)

    def lengths(self) -> tuple[Floats, Floats]:
        """a and b of each row: its length is max(a + b q, 0), and infinite at q = inf."""
        return self.upper - self.lower, self.below + self.above


class Lengths:
    """L(q), the sum of max(a + b q, 0) over rows: piecewise linear, with a knot where an interval
    stops being empty.
    """

    def __init__(self, *rows: Ends) -> None:
        start, slope = np.concatenate([each.lengths() for each in rows], axis=1)
        start, slope = start[slope > 0], slope[slope > 0]  # others are points at any finite cut-off
        order = np.argsort(-start / slope, kind="stable")
        self.knots = (-start / slope)[order]
        self.starts, self.slopes = (
            np.concatenate([[0.0], np.cumsum(each[order])]) for each in (start, slope)
        )
        self.heights = self.starts[1:] + self.slopes[1:] * self.knots

    def __call__(self, cutoffs: Floats) -> Floats:
        """The sum at each cut-off."""
        place = np.searchsorted(self.knots, cutoffs, side="right")
        with np.errstate(over="ignore", invalid="ignore"):
            found = self.starts[place] + self.slopes[place] * cutoffs
        return np.where(cutoffs == np.inf, np.inf, np.where(place > 0, found, 0.0))

    def inverse(self, levels: Floats) -> Floats:
        """The largest cut-off at which the sum is at most each level; -inf if there is none."""
        place = np.searchsorted(self.heights, levels, side="right")
        with np.errstate(divide="ignore", invalid="ignore"):
            found = (levels - self.starts[place]) / self.slopes[place]
        return np.where(place > 0, found, np.inf if not self.knots.size else -np.inf)


def interval_pieces(
    scores: Floats, rows: Sequence[Ends], new: Sequence[Ends], *, rank: int
) -> tuple[list[Floats], Integers]:
    """Intervals whose union is the set of each new row, (P, 2), and the candidate of each row.

    `rows` and `new` are the intervals of the n rows and of the new ones by each candidate. Ends are
    rounded outwards.
    """
    ranked, pieces = _Ranked.of(scores, rank), list[Floats]()
    best = np.zeros(len(new[0].lower), dtype=np.int64)
    around = ranked.cuts[:, -3:]
    middle = np.where(np.isfinite(around[:, 1]), np.abs(around[:, 1]), 0.0)
    for row in range(len(best)):
        own = [each[row : row + 1] for each in new]
        sums = [Lengths(*pair) for pair in zip(rows, own, strict=True)]
        raw = np.stack([total(cuts) for total, cuts in zip(sums, ranked.cuts, strict=True)])
        scale = max(
            each.starts[-1] + each.slopes[-1] * cut for each, cut in zip(sums, middle, strict=True)
        )
        unit = 2.0 ** (np.floor(np.log2(max(scale, 1e-280))) - _PLACES)
        one = ranked.left_out(np.rint(raw / unit) * unit)
        best[row] = one.alive[one.best]
        kept = [own[m] for m in one.alive], [sums[m] for m in one.alive]
        pieces.append(_Line(one, *kept, around[one.alive], raw[one.alive, -3:], unit).pieces())
    return pieces, best


@dataclass(frozen=True, eq=False)
class _Line:
    """The y of one new row, cut into stretches on which no choice changes."""

    one: _LeftOut
    own: Sequence[Ends]
    sums: Sequence[Lengths]
    around: Floats  # S_(k-1), S_(k), S_(k+1) of each candidate, (M, 3)
    levels: Floats  # L there, not rounded
    unit: float

    def values(self, y: Floats) -> Floats:
        """L(S(y)) of each candidate, (M, P)."""
        return np.stack(
            [total(ends.scores(y)) for total, ends in zip(self.sums, self.own, strict=True)]
        )

    def pieces(self) -> Floats:
        """The part of each stretch where V(y) is at most the k-th smallest V_i, and the points
        between that are kept.
        """
        points = self._points()
        span = 1.0 + np.abs(points).max()
        between = np.concatenate(
            [[points[0] - span], (points[:-1] + points[1:]) / 2, [points[-1] + span]]
        )
        left, right = self._reach(self._limits(between))
        inside = np.stack(
            [np.maximum(left, [-np.inf, *points]), np.minimum(right, [*points, np.inf])], axis=1
        )
        alone = np.rint(self.values(points)[self.one.best] / self.unit) * self.unit <= self._limits(
            points
        )
        found = np.concatenate(
            [inside[inside[:, 0] <= inside[:, 1]], np.repeat(points[alone][:, None], 2, axis=1)]
        )
        centre = abs(self.own[self.one.best].lower[0]) + abs(self.own[self.one.best].upper[0])
        return np.asarray(found + _ROUNDING * (np.abs(found) + centre) * [-1, 1])

    def _limits(self, y: Floats) -> Floats:
        return self.one.limits(np.rint(self.values(y) / self.unit) * self.unit)

    def _reach(self, levels: Floats) -> tuple[Floats, Floats]:
        """The y with V(y) at most each level lie between these ends; half a unit more is the same
        after rounding.
        """
        cutoffs = self.sums[self.one.best].inverse(levels + self.unit / 2)
        left, right = self.own[self.one.best].at(cutoffs)
        none = np.isneginf(cutoffs)
        return np.where(none, np.inf, left), np.where(none, -np.inf, right)

    def _points(self) -> Floats:
        """Where a candidate passes a level that any is clipped at, a knot or its centre, and where
        two candidates cross.
        """
        found = list(self._reach(self.one.bracket()))
        for ends, total, near, cuts in zip(
            self.own, self.sums, self.levels, self.around, strict=True
        ):
            passed = total.inverse(self.levels[(self.levels >= near[0]) & (self.levels <= near[2])])
            knots = total.knots[slice(*np.searchsorted(total.knots, cuts[[0, 2]]))]
            found += ends.at(np.concatenate([cuts, passed, np.unique(knots)]))
            found.append(
                (ends.lower * ends.above + ends.upper * ends.below)
                / np.maximum(ends.below + ends.above, 1e-300)
            )
        known = np.concatenate(found)
        low, high = (each[-1] for each in found[:2])
        points = np.unique(
            np.append(known[np.isfinite(known) & (low <= known) & (known <= high)], 0.0)
        )
        span = 1.0 + np.abs(points).max()
        wide = np.concatenate([[points[0] - span], points, [points[-1] + span]])
        values, (i, j) = self.values(wide), np.triu_indices(len(self.own), 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = values[i] - values[j]
            share = gap[:, :-1] / (gap[:, :-1] - gap[:, 1:])
        # beyond the points values are straight lines
        first, last = np.arange(len(wide) - 1) == [[0], [len(wide) - 2]]
        pair, place = np.nonzero(((share > 0) | first) & ((share < 1) | last) & np.isfinite(share))
        crossed = wide[place] + share[pair, place] * (wide[place + 1] - wide[place])
        return np.unique(np.concatenate([points, crossed[(low <= crossed) & (crossed <= high)]]))
