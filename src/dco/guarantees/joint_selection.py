"""Selection that costs no rows: the same n rows choose among candidates and calibrate, with a
finite-sample guarantee.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations import ranks
from dco.foundations.arrays import AnyArray, Bools, Floats, Integers, as_labels
from dco.foundations.display import counted
from dco.foundations.errors import IncompatibleScoreError
from dco.foundations.ranks import (
    Guarantee,
    Level,
    as_rational,
    checked_scores,
    conformal_rank,
    order_statistic,
)
from dco.guarantees.leave_one_out import Ends, Lengths, interval_pieces, label_members
from dco.predictions import ClassRecord, Prediction, on_host
from dco.scores.regression import AbsoluteResidual, NormalisedResidual, QuantileResidual
from dco.scores.score import Score
from dco.sets.intervals import Intervals, IntervalUnions
from dco.sets.labels import LabelSets, codes_of
from dco.tuning.search import Candidates, checked_pairs, checked_targets

Method: TypeAlias = Literal["modsel", "modsel-loo", "yk-adjust"]

_METHODS = ("modsel", "modsel-loo", "yk-adjust")
_INTERVAL_SCORES = (AbsoluteResidual, NormalisedResidual, QuantileResidual)
# sums of lengths are rounded: equal ones must count as equal, and a larger set stays valid
_SLACK = 1e-12
_LEAST = 1e-300  # points have ends that were rounded outwards
_HALVINGS = 100
_FAR = 2.0**64  # a cut-off at which the growth of an interval is all that its ends show
_MOST = 2.0**1000  # of a cut-off that is tried
_STEEPEST = 2.0**900  # of the growth of an interval: sums over rows stay finite


@dataclass(frozen=True, eq=False)
class JointSelection:
    """Prediction sets of new rows, and what they certify.

    `rank` is the rank among `n` rows at which every candidate was cut; n + 1 means that the sets
    are full. `winners` counts, for each candidate that takes part in a set, the new rows where it
    does, most rows first.
    """

    sets: LabelSets | IntervalUnions
    guarantee: Guarantee
    alpha: float
    rank: int
    n: int
    method: Method
    winners: Mapping[str, int]


def select_and_calibrate(
    candidates: Candidates,
    y: ArrayLike,
    new: Mapping[str, Prediction],
    *,
    alpha: Level,
    method: Method = "modsel",
) -> LabelSets | IntervalUnions:
    """Prediction sets of new rows, where the same n rows choose the candidate and calibrate it.

    `candidates` is {name: (score, prediction of the n rows)}, `y` holds their labels, and `new` is
    {name: prediction of the new rows}. Models must have been fitted on other rows. Each new row is
    covered with probability at least 1 - alpha. `joint_selection` does the same and also says what
    was certified, and which candidates the sets are made of.

    Let S_(j) be the j-th smallest of a candidate's n scores, S(y) its score of a label y of the new
    row, and L(q) the sum of its set sizes at cut-off q over the n rows and the new one.

    - ``"modsel"`` (Liang, Zhu and Barber 2024, arXiv 2408.07066): for each y choose the candidate
      with the smallest L at the k-th smallest of all n + 1 scores, k = ceil((n + 1)(1 - alpha)),
      and keep y if its score there is at most S_(k). At the true y that choice is symmetric in n +
      1 rows, so exchangeable rows are enough. What is returned is the union over the candidates of
      {y : S(y) <= S_(k), L(max(S_(k-1), S(y))) <= T} with T the smallest L(S_(k)) of all
      candidates. It contains every y of the definition and needs no loop over y; without ties in L
      the two are equal.
    - ``"modsel-loo"`` (the same authors, ModSel-CP-LOO): one candidate makes the set of a new row,
      the one with the smallest L(S_(k)). A row i, left out, is judged by the candidate with the
      smallest L at the k-th smallest of the other scores and S(y), and V_i = L(S_i) there; y is
      kept if L(S(y)) is at most the k-th smallest V_i. The n + 1 values are exchangeable at the
      true y, ties included, so exchangeable rows are enough. Sets are those of the definition.
    - ``"yk-adjust"`` (Yang and Kuchibhotla, arXiv 2104.13871): choose by the n rows alone and use
      S_(k) of the winner, at k = ceil(n (1 - alpha) + sqrt(n) / 3 + sqrt(n log(2 M) / 2)) for M
      candidates, the price of a DKW bound over all of them. It needs independent rows, and many:
      below ((1 / 3 + sqrt(log(2 M) / 2)) / alpha)^2 of them, sets are full.

    Scores of labels need `every_label`; intervals come from `AbsoluteResidual`,
    `NormalisedResidual` and `QuantileResidual`.
    """
    return joint_selection(candidates, y, new, alpha=alpha, method=method).sets


def joint_selection(
    candidates: Candidates,
    y: ArrayLike,
    new: Mapping[str, Prediction],
    *,
    alpha: Level,
    method: Method = "modsel",
) -> JointSelection:
    """`select_and_calibrate` with its facts: guarantee, rank, n, and the candidates that the sets
    are made of.
    """
    if method not in _METHODS:
        raise ValueError(f'method must be "modsel", "modsel-loo" or "yk-adjust", got {method!r}.')
    level, targets = as_rational(alpha), as_labels(checked_targets(y, "y"))
    measures = _measures(candidates, targets, new)
    n, count, adjusted = len(targets), len(measures), method == "yk-adjust"
    rank = conformal_rank(n, alpha=level)
    if adjusted:
        rank = min(math.ceil(n * (1 - float(level)) + math.sqrt(n) * _price(count)), n + 1)
    if rank > n:
        smallest = (
            math.ceil((_price(count) / float(level)) ** 2)
            if adjusted
            else ranks.smallest_marginal_n(alpha=level)
        )
        among = f' with method="yk-adjust" and {counted(count, "candidate")}' if adjusted else ""
        ranks.warn_infeasible(n, smallest, f"marginal coverage at alpha = {float(level):g}{among}")
    sets, taken = _sets_and_rows(list(measures.values()), rank, method)
    rows = Counter(dict(zip(measures, taken.tolist(), strict=True)))
    return JointSelection(
        sets, "marginal", float(level), rank, n, method, winners=dict((+rows).most_common())
    )


def joint_sets(
    parts: Sequence[tuple[Score, Floats, Any, Any]], *, alpha: Level
) -> LabelSets | IntervalUnions:
    """The sets of `select_and_calibrate` by "modsel", from what a fit has kept.

    `parts` has for each candidate its score, the scores of the n rows, and the predictions of these
    rows and of new ones.
    """
    first, n = parts[0][2], len(parts[0][1])
    measures = [_measure(str(place), *part, first) for place, part in enumerate(parts)]
    return _sets_and_rows(measures, conformal_rank(n, alpha=alpha), "modsel")[0]


def sizes_are_known(score: Score) -> bool:
    """Whether the score makes intervals whose length is known at any cut-off."""
    return type(score) in _INTERVAL_SCORES


def _sets_and_rows(
    measures: Sequence[Any], rank: int, method: Method
) -> tuple[LabelSets | IntervalUnions, Integers]:
    """The sets, and in how many of them each candidate takes part."""
    if method == "modsel-loo" and rank <= len(measures[0].scores):
        return _leave_one_out(measures, rank)
    cutoffs = _cutoffs(measures, rank, method)
    return _union(measures, cutoffs), np.count_nonzero(np.stack(cutoffs) > -np.inf, axis=1)


def _price(count: int) -> float:
    """A bound of sqrt(n) E max_m sup_t |F_n(t) - F(t)| over `count` score distributions."""
    return 1 / 3 + math.sqrt(math.log(2 * count) / 2)


def _cutoffs(measures: Sequence[Any], rank: int, method: Method) -> list[Floats]:
    """The cut-off of each candidate for each new row; -inf where a candidate takes no part."""
    tops = [order_statistic(each.scores, rank) for each in measures]
    totals = [each.total(top) for each, top in zip(measures, tops, strict=True)]
    sizes = [each.new_sizes(top) for each, top in zip(measures, tops, strict=True)]
    # the n rows choose alone: one candidate for all new rows, the first of equal ones
    if method == "yk-adjust":
        best = int(np.argmin(totals))
        return [
            np.full(len(own), tops[best] if m == best else -np.inf) for m, own in enumerate(sizes)
        ]
    limit = np.min([own + new for own, new in zip(totals, sizes, strict=True)], axis=0)
    lows = [order_statistic(each.scores, rank - 1) if rank > 1 else -np.inf for each in measures]
    return [
        each.reach(low, top, limit) for each, low, top in zip(measures, lows, tops, strict=True)
    ]


def _leave_one_out(
    measures: Sequence[Any], rank: int
) -> tuple[LabelSets | IntervalUnions, Integers]:
    """The sets, and for how many new rows each candidate makes them."""
    scores, first = np.stack([each.scores for each in measures]), measures[0]
    new = [each.new for each in measures]
    if isinstance(first, _OfLabels):
        members, best = label_members(scores, [each.ascending for each in measures], new, rank=rank)
        return LabelSets.from_dense(members, first.labels), np.bincount(
            best, minlength=len(measures)
        )
    pieces, best = interval_pieces(scores, [each.rows for each in measures], new, rank=rank)
    lower, upper = (
        np.full((len(pieces), max(map(len, pieces), default=0)), empty)
        for empty in (np.inf, -np.inf)
    )
    for row, own in enumerate(pieces):
        lower[row, : len(own)], upper[row, : len(own)] = own.T
    return IntervalUnions(*_merged(lower, upper)), np.bincount(best, minlength=len(measures))


@dataclass(frozen=True, eq=False)
class _OfLabels:
    """Sizes by counting the scores of all labels, exactly: a set's size is the number of labels at
    or below the cut-off.
    """

    scores: Floats
    ascending: Floats  # the scores of every label of all n rows
    new: Floats  # (n_new, K)
    labels: AnyArray | None

    def total(self, cutoff: float) -> int:
        """The sum of the sizes of the n rows' sets; the same in any order of the rows."""
        return int(np.searchsorted(self.ascending, cutoff, side="right"))

    def new_sizes(self, cutoff: float) -> Floats:
        """The sizes of the new rows' sets, (n_new,)."""
        return np.asarray(np.count_nonzero(self.new <= cutoff, axis=1), dtype=np.float64)

    def reach(self, low: float, top: float, limit: Floats) -> Floats:
        """The largest cut-off in [low, top] at which `total` + `new_sizes` is at most each row's
        limit; -inf if none is.
        """
        # sizes change here alone, so no other cut-off above `low` need be tried
        values = np.sort(self.new, axis=1)
        last = np.ones(values.shape, dtype=bool)
        # of a run of equal values, the last one knows the count
        last[:, :-1] = values[:, :-1] != values[:, 1:]
        sizes = np.searchsorted(self.ascending, values, side="right") + np.arange(
            1, values.shape[1] + 1
        )
        fits = last & (low < values) & (values <= top) & (sizes <= limit[:, None])
        lowest = np.where(self.total(low) + self.new_sizes(low) <= limit, low, -np.inf)
        return np.asarray(
            np.maximum(lowest, np.where(fits, values, -np.inf).max(axis=1, initial=-np.inf))
        )


@dataclass(frozen=True, eq=False)
class _OfIntervals:
    """Sizes of intervals that grow linearly with the cut-off, so that their sum is piecewise
    linear.
    """

    scores: Floats
    score: Score
    prediction: Prediction  # of the new rows
    rows: Ends
    new: Ends
    total: Lengths

    def new_sizes(self, cutoffs: float | Floats) -> Floats:
        start, slope = self.new.lengths()
        with np.errstate(over="ignore", invalid="ignore"):
            return np.where(cutoffs == np.inf, np.inf, np.maximum(start + slope * cutoffs, 0.0))

    def reach(self, low: float, top: float, limit: Floats) -> Floats:
        """As for labels, by bisection, and not below the cut-off itself."""
        limit = (
            limit
            + _SLACK * (limit + self.total.starts[-1] + np.abs(self.new.upper - self.new.lower))
            + _LEAST
        )

        def fits(cutoffs: Any) -> Bools:
            return np.asarray(self.total(cutoffs) + self.new_sizes(cutoffs) <= limit)

        if low == -np.inf:  # below any at which an interval appears
            low = min(top, 0.0, *self.total.knots[:1], *Lengths(self.new).knots[:1])
        whole, none = fits(top), ~fits(low)
        if (whole | none).all():
            return np.where(whole, top, -np.inf)
        below = np.full(limit.shape, low)
        # what the n rows alone allow
        above = np.maximum(below, np.minimum(self.total.inverse(limit), min(top, _MOST)))
        for _ in range(_HALVINGS):
            middle = below + (above - below) / 2
            if ((middle == below) | (middle == above)).all():
                break
            inside = fits(middle)
            below, above = np.where(inside, middle, below), np.where(inside, above, middle)
        return np.where(whole, top, np.where(none, -np.inf, above))


def _measures(
    candidates: Candidates, y: AnyArray, new: Mapping[str, Prediction]
) -> dict[str, _OfLabels | _OfIntervals]:
    """Validate what was given, and evaluate each candidate."""
    checked_pairs(candidates)
    if not isinstance(new, Mapping) or set(new) != set(candidates):
        names = sorted(map(str, new)) if isinstance(new, Mapping) else type(new).__name__
        raise ValueError(
            f"new must be a dict with a prediction of the new rows for each candidate "
            f"({', '.join(map(str, candidates))}), "
            f"got {names}."
        )
    records = [record for _, record in candidates.values()] + list(new.values())
    for record in records:
        if not isinstance(record, Prediction):
            raise ValueError(
                f"a prediction must be a record such as dco.Points, got {type(record).__name__}."
            )
    lengths = {len(record) for record in new.values()}
    if len(lengths) > 1:
        raise ValueError(
            f"the predictions in new must be of the same rows, got {sorted(lengths)} rows."
        )
    of_labels = {isinstance(record, ClassRecord) for record in records}
    if len(of_labels) > 1:
        raise ValueError(
            "candidates must all predict labels or all predict numbers, got some of each."
        )
    known = {
        name: checked_scores(score.observed(record, y))
        for name, (score, record) in candidates.items()
    }
    return {
        name: _measure(name, pair[0], known[name], pair[1], new[name], records[0])
        for name, pair in candidates.items()
    }


def _measure(
    name: str, score: Score, known: Floats, record: Any, new: Any, first: Any
) -> _OfLabels | _OfIntervals:
    """One candidate, with the scores `known` of the rows of `record`; `first` is the record that
    names the labels.
    """
    if isinstance(record, ClassRecord):
        record, new = on_host(record), on_host(new)
        _columns(name, record, first)
        every, every_new = (
            score.every_label(record),
            score.every_label(new)[:, _columns(name, new, first)],
        )
        for values in (every, every_new):
            checked_scores(values.ravel())
        return _OfLabels(known, np.sort(every, axis=None), every_new, first.labels())
    if not sizes_are_known(score):
        kinds = ", ".join(kind.__name__ for kind in _INTERVAL_SCORES)
        raise IncompatibleScoreError(
            f"select_and_calibrate needs intervals whose length is known at any cut-off, as with "
            f"{kinds}; for "
            f"{type(score).__name__} choose by dco.tune on tuning rows."
        )
    rows = _ends(score, record)
    return _OfIntervals(known, score, new, rows, _ends(score, new), Lengths(rows))


def _ends(score: Any, record: Prediction) -> Ends:
    """The intervals of a record, which grow linearly with the cut-off on either side."""
    start, far = (score.sets(record, cut) for cut in (0.0, _FAR))
    below, above = (
        np.minimum(growth / _FAR, _STEEPEST)
        for growth in (start.lower - far.lower, far.upper - start.upper)
    )
    return Ends(start.lower, below, start.upper, above)


def _columns(name: str, record: ClassRecord, first: ClassRecord) -> AnyArray:
    """Where the record has each label of the first one."""
    wanted, own = (
        np.arange(each.n_classes) if each.labels() is None else each.labels()
        for each in (first, record)
    )
    places = codes_of(np.asarray(wanted), np.asarray(own))
    if len(places) != record.n_classes or (places < 0).any():
        raise ValueError(
            f"all predictions must name the same labels, but those of {name!r} "
            f"differ from the first."
        )
    return places


def _union(measures: Sequence[Any], cutoffs: Sequence[Floats]) -> LabelSets | IntervalUnions:
    """The union over the candidates of each row's set at its cut-off; overlapping intervals of a
    row become one.
    """
    if isinstance(measures[0], _OfLabels):
        members = np.any(
            [each.new <= own[:, None] for each, own in zip(measures, cutoffs, strict=True)], axis=0
        )
        return LabelSets.from_dense(members, measures[0].labels)
    parts = [
        each.score.sets(each.prediction, own) for each, own in zip(measures, cutoffs, strict=True)
    ]
    lower = np.stack([np.where(part.is_empty(), np.inf, part.lower) for part in parts], axis=1)
    upper = np.stack([np.where(part.is_empty(), -np.inf, part.upper) for part in parts], axis=1)
    return IntervalUnions(*_merged(lower, upper), _AnyOf(tuple(parts)))


def _merged(lower: Floats, upper: Floats) -> tuple[Integers, Floats, Floats]:
    """The pieces of each row, (n, P), empty ones from inf to -inf, as row pointers and ends of
    disjoint pieces.
    """
    order = np.argsort(lower, axis=1, kind="stable")
    lower = np.take_along_axis(lower, order, axis=1)
    reached = np.maximum.accumulate(np.take_along_axis(upper, order, axis=1), axis=1)
    filled = lower < np.inf
    starts, ends = filled.copy(), filled.copy()
    starts[:, 1:] &= lower[:, 1:] > reached[:, :-1]
    ends[:, :-1] &= starts[:, 1:] | ~filled[:, 1:]
    pointers = np.concatenate([[0], np.cumsum(np.count_nonzero(starts, axis=1))])
    return pointers, lower[starts], reached[ends]


@dataclass(frozen=True, eq=False)
class _AnyOf:
    """Membership in a union: decided by the scores of its parts."""

    parts: tuple[Intervals, ...]

    def __call__(self, y: ArrayLike) -> Bools:
        return np.asarray(np.any([part.contains(y) for part in self.parts], axis=0))
