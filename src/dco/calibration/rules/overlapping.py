"""Calibration for groups that overlap: one linear program for each pattern of features, solved
exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dco.calibration.rules.weighted import rounded_up
from dco.foundations.arrays import AnyArray, Floats, Integers, real_numbers
from dco.foundations.display import are, counted
from dco.foundations.notes import Note, show
from dco.foundations.ranks import Level, as_rational, checked_scores
from dco.scores.thresholds import LOWEST_SCORE

_ZERO = 1e-9  # features are scaled to at most 1: what is smaller is rounding
_FINEST = 10**9  # the largest denominator of a level that float64 counts without rounding
_TIE = 2.0**-42  # of a score: how far apart tied scores are moved while the program is solved
_FRESH = 32  # steps after which an inverse is computed anew


def conditional_conformal(
    scores: ArrayLike, features: ArrayLike, new_features: ArrayLike, *, alpha: Level
) -> Floats:
    """A cut-off (m,) for each new row: coverage 1 - alpha in every group that a column of the
    features marks, at once.

    Gibbs, Cherian and Candès (2025). With phi the new row's features and S its unknown score, let g
    be the linear quantile regression at 1 - alpha of all n + 1 scores on their features. The set {S
    : every such g has g(phi) >= S} is S <= c with

        c = min phi'b over the b that minimise sum_i pinball(S_i - f_i'b) - (1 - alpha) phi'b,

    and +inf where that sum has no minimum. Claim: if rows are exchangeable, E[w(X) (covered - (1 -
    alpha))] >= 0 for every combination w >= 0 of the columns, so that each group of a 0/1 column is
    covered with probability >= 1 - alpha, whether groups overlap or not; for distinct scores a
    group's coverage is at most d / ((n + 1) P(group)) above that, with d the number of independent
    columns. A constant alone is `split_conformal`, groups that do not overlap are one split
    conformal threshold each, to the last bit. No constant is added: without one nothing is said of
    all rows together.

    `features` (n, d) and `new_features` (m, d) may hold any numbers. A new row outside the span of
    the calibration rows' features (a group without calibration rows), or with all features 0, gets
    +inf. Counts are whole numbers: for features that are whole numbers the rank is exact at every
    level with up to nine decimals. The least float, which `NeverEmpty` gives the label that every
    set holds, counts as 0: a score of -1.8e308 would decide every sum that it is in.
    """
    values, level = checked_scores(scores), as_rational(alpha)
    old, new = (
        _checked_features(features, "features"),
        _checked_features(new_features, "new_features"),
    )
    if len(old) != values.size or old.shape[1] != new.shape[1]:
        raise ValueError(
            f"features must have one row for each of {values.size} scores and as many columns as "
            f"new_features, got shapes "
            f"{old.shape} and {new.shape}."
        )
    patterns, pattern_of = distinct_rows(new)
    cutoffs = pattern_cutoffs(rounded_up(values), old, patterns, level=level)[pattern_of]
    if lost := int(np.count_nonzero(cutoffs == np.inf)):
        text = (
            f"{lost} of {counted(len(new), 'cut-off')} {are(lost)} infinite, and sets are "
            f"full there (valid, but useless)"
        )
        show(
            [
                Note(
                    "infeasible",
                    f"{text}: too few calibration rows share these features.",
                    "More of them are needed.",
                )
            ]
        )
    return cutoffs


def pattern_cutoffs(scores: Floats, features: Floats, new: Floats, *, level: Fraction) -> Floats:
    """`conditional_conformal` of checked float64 arrays, without the warning; the rows of `new`
    should differ.
    """
    cutoffs = np.full(len(new), np.inf)
    scores = np.where(scores <= LOWEST_SCORE, 0.0, scores)
    scale = np.abs(features).max(axis=0, initial=0.0)
    if not scale.any():
        return cutoffs
    scale[scale == 0] = 1.0
    kinds, kind_of = distinct_rows(features)
    scaled, own = kinds / scale, new / scale
    rows = _independent(scaled)
    columns = _independent(scaled[rows].T)
    spanned = np.linalg.solve(scaled[np.ix_(rows, columns)], scaled[rows])
    # a feature may be new
    known = np.all(np.abs(own[:, columns] @ spanned - own) <= _ZERO * (1 + np.abs(own)), axis=1)
    known &= own.any(axis=1)
    program = _Program.of(scores, scaled[:, columns], kind_of, level)
    start = program.minimised(program.start(rows), np.zeros(len(columns)))
    assert start is not None  # without a new row the sum is bounded
    for place in np.flatnonzero(known):
        found = program.minimised(start, own[place, columns])
        if found is not None:
            cutoffs[place] = program.value(found, own[place, columns])
    return cutoffs


@dataclass(frozen=True, eq=False)
class _Vertex:
    """Where as many rows as there are features have residual 0, one of each of these `kinds` of
    rows.

    The first `below[p]` scores of kind p count as below the regression; if p is among `kinds`, the
    next one is on it.
    """

    kinds: Integers
    below: Integers
    inverse: Floats  # of the features of these kinds


@dataclass(frozen=True, eq=False)
class _Program:
    """The pinball sum as a function of b: piecewise linear, minimised from vertex to vertex along
    the steepest edge.

    Rows with the same features are of one kind; their scores are sorted, so that an edge crosses
    them in order and a step costs one pass over the kinds. Residuals pull with weights between
    `low` and `high`, whole numbers proportional to
    -alpha and 1 - alpha. `moved` are the scores with ties broken in their order, so that every step
    leads down.
    """

    features: Floats  # (kinds, d)
    starts: Integers  # where the scores of each kind begin
    sizes: Integers
    scores: Floats
    moved: Floats
    low: int
    high: int

    @classmethod
    def of(cls, scores: Floats, features: Floats, kind_of: Integers, level: Fraction) -> _Program:
        if level.denominator > _FINEST:
            level = Fraction(int(level * _FINEST), _FINEST) or level.limit_denominator(_FINEST)
        sizes = np.bincount(kind_of, minlength=len(features))
        finite = np.abs(scores[np.isfinite(scores)])
        usual, beyond = (
            np.median(finite) if finite.size else 1.0,
            2.0**20 * (1 + finite.max(initial=0.0)),
        )
        near = np.clip(scores, -beyond, beyond)
        tie = np.random.default_rng(0).uniform(size=near.size)
        moved = near + _TIE * (np.abs(near) + usual + (usual == 0)) * tie
        in_order, as_moved = np.lexsort((scores, kind_of)), np.lexsort((moved, kind_of))
        low, high = -level.numerator, level.denominator - level.numerator
        return cls(
            features, np.cumsum(sizes) - sizes, sizes, scores[in_order], moved[as_moved], low, high
        )

    def start(self, kinds: Integers) -> _Vertex:
        """Each of these kinds at its own quantile."""
        below = np.minimum(
            self.sizes[kinds] * self.high // (self.high - self.low), self.sizes[kinds] - 1
        )
        fitted = self.features @ np.linalg.solve(
            self.features[kinds], self.moved[self.starts[kinds] + below]
        )
        counts = np.add.reduceat(
            self.moved < np.repeat(fitted, self.sizes), self.starts, dtype=np.int64
        )
        counts[kinds] = below
        return _Vertex(kinds, counts, np.linalg.inv(self.features[kinds]))

    def minimised(self, vertex: _Vertex, own: Floats) -> _Vertex | None:
        """The minimum with a new row of features `own`, of least own'b where there are several;
        None if there is none.

        The new row pulls by `high` less an infinitesimal, which decides between minima. At a vertex
        the d rows on the regression must pull by what balances all others; one that would have to
        pull harder than it can is left behind.
        """
        kinds, below, inverse = vertex.kinds.copy(), vertex.below.copy(), vertex.inverse
        small = max(1e-6, 1e-13 * (self.high - self.low))
        whole, if_above = self.high - self.low, -self.high * (own + self.sizes @ self.features)
        for step in count(1):
            less = whole * below
            less[kinds] += self.high
            weights = (if_above + less @ self.features) @ inverse
            over, under = weights - self.high, self.low - weights
            excess = np.maximum(over, under)
            place = int(excess.argmax())
            if excess[place] <= small:  # only the infinitesimal can still decide
                wrong = (excess > -small) & (own @ inverse * np.where(over > under, 1, -1) > _ZERO)
                if not wrong.any():
                    break
                place = int(np.where(wrong, excess, -np.inf).argmax())
            leaving, way = kinds[place], 1.0 if under[place] > over[place] else -1.0
            there = inverse @ self.moved[self.starts[kinds] + below[kinds]]
            fitted, rates = np.array([there, way * inverse[:, place]]) @ self.features.T
            rates[kinds] = 0.0
            rates *= np.abs(rates) > _ZERO
            rates[leaving] = way
            below[leaving] += way > 0
            needed = excess[place] + (small if own @ inverse[:, place] * -way > _ZERO else -small)
            crossed = self._crossed(fitted, rates, below, needed)
            if crossed is None:
                return None
            passed, entering = crossed[:-1], crossed[-1]
            if passed.size:
                np.add.at(below, passed, np.where(rates[passed] > 0, 1, -1))
            below[entering] -= rates[entering] < 0
            kinds[place] = entering
            row = self.features[entering] @ inverse
            pivot, row[place] = row[place], row[place] - 1
            inverse = inverse - inverse[:, place, None] / pivot * row
            if step % _FRESH == 0:
                inverse = np.linalg.inv(self.features[kinds])
        return _Vertex(kinds, below, inverse)

    def _crossed(self, fitted: Floats, rates: Floats, below: Integers, needed: float) -> Any:
        """The kinds whose scores an edge crosses, in order, until their weights reach `needed`;
        None if they never do.
        """
        moving = (np.where(rates > 0, self.sizes - below, below) * rates).nonzero()[0]
        if not moving.size:
            return None
        rate, at, place = rates[moving], fitted[moving], self.starts[moving] + below[moving]
        weight = (self.high - self.low) * np.abs(rate)
        up = rate > 0
        first = int(((self.moved[place - ~up] - at) / rate).argmin())
        if weight[first] >= needed:  # mostly
            return moving[first : first + 1]
        ahead = np.where(up, self.sizes[moving] - below[moving], below[moving])
        ahead = np.minimum(ahead, np.floor(needed / weight) + 1).astype(np.int64)
        each = np.repeat(np.arange(moving.size), ahead)
        step = np.arange(each.size) - np.repeat(np.cumsum(ahead) - ahead, ahead)
        crossing = self.moved[place[each] + np.where(up[each], step, -1 - step)]
        order = np.argsort((crossing - at[each]) / rate[each], kind="stable")
        total = np.cumsum(weight[each[order]])
        last = int(np.searchsorted(total, needed))
        return None if last == total.size else moving[each[order[: last + 1]]]

    def value(self, vertex: _Vertex, own: Floats) -> float:
        """own'b at a vertex, from the scores as they are, not below what rounding may have lost."""
        shares = np.linalg.solve(self.features[vertex.kinds].T, own)
        whole = np.rint(shares)
        shares = whole if np.all(np.abs(shares - whole) <= _ZERO) else shares
        used = np.abs(shares) > _ZERO
        scores = self.scores[(self.starts + vertex.below)[vertex.kinds]][used]
        if np.any(np.isinf(scores)):
            return np.inf
        if np.array_equal(shares[used], [1.0]):
            return float(scores[0])
        return float(shares[used] @ scores + 2.0**-48 * np.abs(shares[used]) @ np.abs(scores))


def distinct_rows(rows: AnyArray) -> tuple[AnyArray, Integers]:
    """The different rows of a matrix of numbers, and which of them each row is."""
    whole = np.ascontiguousarray(rows + 0.0)  # -0 is 0
    as_bytes = whole.view(np.dtype((np.void, whole.dtype.itemsize * whole.shape[1]))).ravel()
    _, first, inverse = np.unique(as_bytes, return_index=True, return_inverse=True)
    return whole[first], inverse.ravel()


def _independent(rows: Floats) -> Integers:
    """Which rows of a matrix are independent and span it."""
    from scipy.linalg import qr

    triangle, order = qr(rows.T, mode="r", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    return np.asarray(order[: int(np.count_nonzero(sizes > _ZERO * sizes.max(initial=0.0)))])


def _checked_features(values: Any, name: str) -> Floats:
    features = real_numbers(values, name=name).astype(np.float64)
    if features.ndim != 2 or features.shape[1] == 0:
        raise ValueError(
            f"{name} must be a matrix with one row of features for each row, got "
            f"shape {features.shape}."
        )
    if not np.all(np.isfinite(features)):
        row = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
        raise ValueError(
            f"{name} must be finite numbers; row {row} is {features[row].tolist()}. Give missing "
            f"values a column."
        )
    return features
