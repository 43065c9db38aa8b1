"""Choose among candidates and calibrate on the same rows, with a finite-sample guarantee."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
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
from dco.predictions import ClassRecord, Prediction
from dco.scores.regression import AbsoluteResidual, NormalisedResidual, QuantileResidual
from dco.scores.score import Score
from dco.sets.intervals import Intervals, IntervalUnions
from dco.sets.labels import LabelSets, codes_of
from dco.tuning.evaluated import label_names
from dco.tuning.search import Candidates, checked_pairs, checked_targets

Method: TypeAlias = Literal["modsel", "yk-adjust"]

_METHODS = ("modsel", "yk-adjust")
_INTERVAL_SCORES = (AbsoluteResidual, NormalisedResidual, QuantileResidual)

# Sums of lengths are rounded. Equal ones must count as equal, and a larger set stays valid.
_RELATIVE_SLACK = 1e-12
_ABSOLUTE_SLACK = 1e-300  # for intervals that are points, whose ends were rounded outwards
_MOST_HALVINGS = 100
_FAR_CUTOFF = 2.0**64  # so far out that only the growth of an interval shows in its ends
_LARGEST_CUTOFF = 2.0**1000  # since only a finite range can be halved
_LARGEST_SLOPE = 2.0**900  # so that sums over rows stay finite


@dataclass(frozen=True, eq=False)
class SelectedSets:
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
) -> SelectedSets:
    """Make prediction sets of new rows from n rows that both choose the candidate and calibrate it.

    `candidates` is {name: (score, prediction of the n rows)}, `y` holds their labels, and `new` is
    {name: prediction of the new rows}. Models must have been fitted on other rows. Each new row is
    covered with probability at least 1 - alpha.

    Let S_(j) be the j-th smallest of a candidate's n scores, S(y) its score of a label y of the new
    row, and L(q) the sum of its set sizes at cut-off q over the n rows and the new one.

    - ``"modsel"`` (Liang, Zhu and Barber 2024, arXiv 2408.07066): for each y choose the candidate
      with the smallest L at the k-th smallest of all n + 1 scores, k = ceil((n + 1)(1 - alpha)),
      and keep y if its score there is at most S_(k). At the true y that choice is symmetric in n +
      1 rows, so exchangeable rows are enough. What is returned is the union over the candidates of
      {y : S(y) <= S_(k), L(max(S_(k-1), S(y))) <= T} with T the smallest L(S_(k)) of all
      candidates. It contains every y of the definition and needs no loop over y; without ties in L
      the two are equal.
    - ``"yk-adjust"`` (Yang and Kuchibhotla, arXiv 2104.13871): choose by the n rows alone and use
      S_(k) of the winner, at k = ceil(n (1 - alpha) + sqrt(n) / 3 + sqrt(n log(2 M) / 2)) for M
      candidates, the price of a DKW bound over all of them. It needs independent rows, and many:
      below ((1 / 3 + sqrt(log(2 M) / 2)) / alpha)^2 of them, sets are full.

    Scores of labels need `every_label`; intervals come from `AbsoluteResidual`,
    `NormalisedResidual` and `QuantileResidual`.
    """
    if method not in _METHODS:
        raise ValueError(f'method must be "modsel" or "yk-adjust", got {method!r}.')
    level = as_rational(alpha)
    targets = as_labels(checked_targets(y, "y"))
    _check_predictions(candidates, new)
    measured = _measure_candidates(candidates, targets, new)
    names = list(measured)
    measured_candidates = list(measured.values())

    # 1. Find one cut-off for each candidate and new row.
    n = len(targets)
    if method == "modsel":
        rank = conformal_rank(n, alpha=level)
        cutoffs = _cutoffs_of_all(measured_candidates, rank)
    else:
        rank = _adjusted_rank(n, alpha=float(level), n_candidates=len(names))
        cutoffs = _cutoffs_of_winner(measured_candidates, rank)
    if rank > n:
        _warn_too_few(n, alpha=level, n_candidates=len(names), method=method)

    # 2. Count the new rows in whose sets a candidate takes part.
    row_counts = np.count_nonzero(np.stack(cutoffs) > -np.inf, axis=1)
    rows_of = dict(zip(names, row_counts.tolist(), strict=True))
    most_rows_first = sorted(names, key=lambda name: -rows_of[name])

    # 3. A set is the union over the candidates.
    return SelectedSets(
        sets=_unite(measured_candidates, cutoffs),
        guarantee="marginal",
        alpha=float(level),
        rank=rank,
        n=n,
        method=method,
        winners={name: rows_of[name] for name in most_rows_first if rows_of[name]},
    )


def _adjusted_rank(n: int, *, alpha: float, n_candidates: int) -> int:
    """Compute the rank of Yang and Kuchibhotla; n + 1 if there are too few rows."""
    rank = math.ceil(n * (1 - alpha) + math.sqrt(n) * _price_of_choice(n_candidates))
    return min(rank, n + 1)


def _price_of_choice(n_candidates: int) -> float:
    """Bound sqrt(n) E max_m sup_t |F_n(t) - F(t)| over the candidates' score distributions."""
    return 1 / 3 + math.sqrt(math.log(2 * n_candidates) / 2)


def _warn_too_few(n: int, *, alpha: Fraction, n_candidates: int, method: Method) -> None:
    """Warn that sets are full, and say how many rows would be enough."""
    statement = f"marginal coverage at alpha = {float(alpha):g}"
    if method == "modsel":
        smallest_n = ranks.smallest_marginal_n(alpha=alpha)
    else:
        smallest_n = math.ceil((_price_of_choice(n_candidates) / float(alpha)) ** 2)
        statement += f' with method="yk-adjust" and {counted(n_candidates, "candidate")}'
    ranks.warn_infeasible(n, smallest_n, statement)


def _cutoffs_of_all(measured: Sequence[_MeasuredCandidate], rank: int) -> list[Floats]:
    """Find each candidate's cut-off for each new row with "modsel".

    In the symbols of `select_and_calibrate`: the largest q in [S_(k-1), S_(k)] with L(q) <= T, for
    T the smallest L(S_(k)) of all candidates. It is -inf where there is none: the candidate takes
    no part in the set of that row.
    """
    thresholds = [order_statistic(candidate.scores, rank) for candidate in measured]
    totals = [
        candidate.total_size(threshold) + candidate.new_sizes(threshold)
        for candidate, threshold in zip(measured, thresholds, strict=True)
    ]
    smallest_total = np.min(totals, axis=0)

    cutoffs = []
    for candidate, threshold in zip(measured, thresholds, strict=True):
        previous = order_statistic(candidate.scores, rank - 1) if rank > 1 else -np.inf
        cutoffs.append(candidate.largest_cutoff(previous, threshold, limit=smallest_total))
    return cutoffs


def _cutoffs_of_winner(measured: Sequence[_MeasuredCandidate], rank: int) -> list[Floats]:
    """Find each candidate's cut-off for each new row with "yk-adjust".

    The winner has the smallest sets of the n rows (the first of equal ones); all new rows have its
    threshold. The cut-offs of the others are -inf: they take no part.
    """
    thresholds = [order_statistic(candidate.scores, rank) for candidate in measured]
    total_sizes = [
        candidate.total_size(threshold)
        for candidate, threshold in zip(measured, thresholds, strict=True)
    ]
    winner = int(np.argmin(total_sizes))

    cutoffs = []
    for number, candidate in enumerate(measured):
        cutoff = thresholds[number] if number == winner else -np.inf
        cutoffs.append(np.full(candidate.n_new, cutoff))
    return cutoffs


# ----------------------------------------------------------------------------------------------
# candidates, with the sizes of their sets


class _MeasuredCandidate(ABC):
    """A candidate's scores of the n rows, and the sizes of its sets at any cut-off.

    The n rows choose and calibrate; the new rows are those that sets are made for.
    """

    scores: Floats

    @property
    @abstractmethod
    def n_new(self) -> int:
        """The number of new rows."""

    @abstractmethod
    def total_size(self, cutoff: float) -> float:
        """Sum the sizes of the n rows' sets."""

    @abstractmethod
    def new_sizes(self, cutoff: float) -> Floats:
        """Return the sizes of the new rows' sets, (n_new,)."""

    @abstractmethod
    def largest_cutoff(self, low: float, top: float, *, limit: Floats) -> Floats:
        """Find the largest cut-off in [low, top] for each new row, so that sets are small enough.

        They are if ``total_size`` and the size of the new row's set sum to at most its `limit`.
        Returns -inf for a row without such a cut-off.
        """


@dataclass(frozen=True, eq=False)
class _MeasuredLabels(_MeasuredCandidate):
    """A candidate for labels. A set's size is the number of labels at or below the cut-off."""

    scores: Floats
    sorted_scores: Floats  # of every label of all n rows, ascending
    new_scores: Floats  # of every label of the new rows, (n_new, K)
    labels: AnyArray | None

    @property
    def n_new(self) -> int:
        return len(self.new_scores)

    def total_size(self, cutoff: float) -> int:
        return int(np.searchsorted(self.sorted_scores, cutoff, side="right"))

    def new_sizes(self, cutoff: float) -> Floats:
        return np.asarray(np.count_nonzero(self.new_scores <= cutoff, axis=1), dtype=np.float64)

    def largest_cutoff(self, low: float, top: float, *, limit: Floats) -> Floats:
        """Find the largest cut-off in [low, top] for each new row, so that sets are small enough.

        A new row's set changes only at the scores of its labels: the cut-off is one of them, or
        `low`.
        """
        # 1. Compute the sum of sizes at each score of a new row: the labels of the n rows up to
        # there, and the new row's own.
        scores = np.sort(self.new_scores, axis=1)
        n_labels = scores.shape[1]
        total_sizes = np.searchsorted(self.sorted_scores, scores, side="right")
        sums_of_sizes = total_sizes + np.arange(1, n_labels + 1)

        # 2. Of equal scores only the last one has the right count.
        is_last_of_equal = np.ones(scores.shape, dtype=bool)
        is_last_of_equal[:, :-1] = scores[:, :-1] != scores[:, 1:]

        # 3. Take the largest score that is in range and within the limit, or else `low`.
        is_in_range = (low < scores) & (scores <= top)
        is_small_enough = is_last_of_equal & (sums_of_sizes <= limit[:, None])
        allowed_scores = np.where(is_in_range & is_small_enough, scores, -np.inf)
        low_is_allowed = self.total_size(low) + self.new_sizes(low) <= limit
        lowest = np.where(low_is_allowed, low, -np.inf)
        return np.asarray(np.maximum(lowest, allowed_scores.max(axis=1, initial=-np.inf)))


@dataclass(frozen=True, eq=False)
class _MeasuredIntervals(_MeasuredCandidate):
    """A candidate for numbers. Its intervals grow linearly with the cut-off, and so their total
    length is piecewise linear.
    """

    scores: Floats
    score: Score
    prediction: Prediction  # of the new rows
    new_intervals: _GrowingIntervals
    total_length: _TotalLength  # of the n rows' intervals

    @property
    def n_new(self) -> int:
        return len(self.new_intervals.lower)

    def total_size(self, cutoff: float | Floats) -> Any:
        return self.total_length.at(cutoff)

    def new_sizes(self, cutoff: float | Floats) -> Floats:
        start, slope = self.new_intervals.length_coefficients()
        with np.errstate(over="ignore", invalid="ignore"):
            sizes = np.maximum(start + slope * cutoff, 0.0)
        return np.where(cutoff == np.inf, np.inf, sizes)

    def largest_cutoff(self, low: float, top: float, *, limit: Floats) -> Floats:
        """Find the largest cut-off in [low, top] for each new row, so that sets are small enough.

        It is found by bisection. What is returned is not below it, for a larger set stays valid.
        """
        # 1. Allow for rounding in the sums of sizes.
        new_lengths = np.abs(self.new_intervals.upper - self.new_intervals.lower)
        size_scale = self.total_length.starts[-1] + new_lengths
        limit = limit + _RELATIVE_SLACK * (limit + size_scale) + _ABSOLUTE_SLACK

        # 2. Instead of -inf, start below every cut-off at which an interval appears.
        if low == -np.inf:
            first_knots = self.total_length.knots[:1]
            first_new_knots = _TotalLength(self.new_intervals).knots[:1]
            low = min(top, 0.0, *first_knots, *first_new_knots)

        # 3. For many rows all cut-offs are small enough, or none is.
        top_is_allowed = self._are_small_enough(top, limit)
        none_is_allowed = ~self._are_small_enough(low, limit)
        if (top_is_allowed | none_is_allowed).all():
            return np.where(top_is_allowed, top, -np.inf)

        # 4. Halve the range between an allowed cut-off and one that may not be.
        allowed = np.full(limit.shape, low)
        allowed_by_n_rows = self.total_length.inverse(limit)
        too_large = np.maximum(allowed, np.minimum(allowed_by_n_rows, min(top, _LARGEST_CUTOFF)))
        for _ in range(_MOST_HALVINGS):
            middle = allowed + (too_large - allowed) / 2
            if ((middle == allowed) | (middle == too_large)).all():
                break
            middle_is_allowed = self._are_small_enough(middle, limit)
            allowed = np.where(middle_is_allowed, middle, allowed)
            too_large = np.where(middle_is_allowed, too_large, middle)

        cutoffs = np.where(none_is_allowed, -np.inf, too_large)
        return np.where(top_is_allowed, top, cutoffs)

    def _are_small_enough(self, cutoff: float | Floats, limit: Floats) -> Bools:
        """For each new row, compare the sum of sizes at a cut-off with its limit."""
        return np.asarray(self.total_size(cutoff) + self.new_sizes(cutoff) <= limit)


@dataclass(frozen=True, eq=False)
class _GrowingIntervals:
    """The intervals [lower - lower_slope q, upper + upper_slope q] of some rows at cut-off q.

    All four are arrays with a number for each row. Where the ends cross, the interval is empty.
    """

    lower: Floats
    lower_slope: Floats
    upper: Floats
    upper_slope: Floats

    @classmethod
    def of(cls, score: Score, record: Prediction) -> _GrowingIntervals:
        """Read both ends, and how fast they grow, from the sets at two cut-offs."""
        near: Any = score.sets(record, 0.0)
        far: Any = score.sets(record, _FAR_CUTOFF)
        return cls(
            lower=near.lower,
            lower_slope=np.minimum((near.lower - far.lower) / _FAR_CUTOFF, _LARGEST_SLOPE),
            upper=near.upper,
            upper_slope=np.minimum((far.upper - near.upper) / _FAR_CUTOFF, _LARGEST_SLOPE),
        )

    def length_coefficients(self) -> tuple[Floats, Floats]:
        """Return a and b of each row: its length is max(a + b q, 0), and infinite at q = inf."""
        return self.upper - self.lower, self.lower_slope + self.upper_slope


class _TotalLength:
    """The sum L(q) = sum_i max(a_i + b_i q, 0) of the lengths of some rows' intervals.

    It is piecewise linear, with a knot -a_i / b_i where interval i stops being empty.

    Attributes
    ----------
    knots
        The cut-offs where an interval appears, ascending.
    starts, slopes
        Beyond j knots the sum is ``starts[j] + slopes[j] * q``.
    heights
        The sum at each knot.
    """

    def __init__(self, intervals: _GrowingIntervals) -> None:
        a, b = intervals.length_coefficients()
        grows = b > 0  # other intervals are points at any finite cut-off
        order = np.argsort(-a[grows] / b[grows], kind="stable")
        a = a[grows][order]
        b = b[grows][order]

        self.knots = -a / b
        self.starts = np.concatenate([[0.0], np.cumsum(a)])
        self.slopes = np.concatenate([[0.0], np.cumsum(b)])
        self.heights = self.starts[1:] + self.slopes[1:] * self.knots

    def at(self, cutoff: float | Floats) -> Floats:
        """Return the sum at each cut-off."""
        n_knots = np.searchsorted(self.knots, cutoff, side="right")
        with np.errstate(over="ignore", invalid="ignore"):
            length = self.starts[n_knots] + self.slopes[n_knots] * cutoff
        length = np.where(n_knots > 0, length, 0.0)
        return np.where(cutoff == np.inf, np.inf, length)

    def inverse(self, levels: Floats) -> Floats:
        """Find the largest cut-off at which the sum is at most each level; -inf if none is."""
        n_knots = np.searchsorted(self.heights, levels, side="right")
        with np.errstate(divide="ignore", invalid="ignore"):
            cutoff = (levels - self.starts[n_knots]) / self.slopes[n_knots]

        # The sum is nowhere below its first height; without a knot it is 0 everywhere.
        cutoff_before_knots = -np.inf if self.knots.size else np.inf
        return np.where(n_knots > 0, cutoff, cutoff_before_knots)


def _check_predictions(candidates: Candidates, new: Mapping[str, Prediction]) -> None:
    """Refuse candidates without predictions of the same new rows, or of unlike kinds."""
    checked_pairs(candidates)
    if not isinstance(new, Mapping) or set(new) != set(candidates):
        names = sorted(map(str, new)) if isinstance(new, Mapping) else type(new).__name__
        raise ValueError(
            f"new must be a dict with a prediction of the new rows for each candidate "
            f"({', '.join(map(str, candidates))}), got {names}."
        )

    records = [record for _, record in candidates.values()] + list(new.values())
    for record in records:
        if not isinstance(record, Prediction):
            raise ValueError(
                f"a prediction must be a record such as dco.Points, got {type(record).__name__}."
            )
    row_counts = {len(record) for record in new.values()}
    if len(row_counts) > 1:
        raise ValueError(
            f"the predictions in new must be of the same rows, got {sorted(row_counts)} rows."
        )
    of_classes = {isinstance(record, ClassRecord) for record in records}
    if len(of_classes) > 1:
        raise ValueError(
            "candidates must all predict labels or all predict numbers, got some of each."
        )


def _measure_candidates(
    candidates: Candidates, y: AnyArray, new: Mapping[str, Prediction]
) -> dict[str, _MeasuredCandidate]:
    """Score the n rows, and find the sizes of sets, for each candidate."""
    scores = {
        name: checked_scores(score.observed(record, y))
        for name, (score, record) in candidates.items()
    }
    _, first_record = next(iter(candidates.values()))

    measured: dict[str, _MeasuredCandidate] = {}
    for name, (score, record) in candidates.items():
        if isinstance(first_record, ClassRecord):
            measured[name] = _measure_labels(
                name, score, scores[name], record, new[name], first_record=first_record
            )
        else:
            measured[name] = _measure_intervals(score, scores[name], record, new[name])
    return measured


def _measure_labels(
    name: str,
    score: Any,
    scores: Floats,
    record: Any,
    new_record: Any,
    *,
    first_record: ClassRecord,
) -> _MeasuredLabels:
    """Measure a candidate for labels.

    `scores` are those of the n rows, `record` and `new_record` the predictions of the n rows and of
    the new ones. The sets of all candidates have the labels in the order of `first_record`.
    """
    record = record.on_host()
    new_record = new_record.on_host()
    _label_columns(name, record, first_record)  # the same labels, or an error
    columns = _label_columns(name, new_record, first_record)

    label_scores = score.every_label(record)
    new_label_scores = score.every_label(new_record)[:, columns]
    checked_scores(label_scores.ravel())
    checked_scores(new_label_scores.ravel())
    return _MeasuredLabels(
        scores=scores,
        sorted_scores=np.sort(label_scores, axis=None),
        new_scores=new_label_scores,
        labels=first_record.labels(),
    )


def _measure_intervals(
    score: Score, scores: Floats, record: Prediction, new_record: Prediction
) -> _MeasuredIntervals:
    """Measure a candidate for numbers, if its intervals grow linearly with the cut-off.

    `scores` are those of the n rows, `record` and `new_record` the predictions of the n rows and of
    the new ones.
    """
    if type(score) not in _INTERVAL_SCORES:
        suitable = ", ".join(kind.__name__ for kind in _INTERVAL_SCORES)
        raise IncompatibleScoreError(
            f"select_and_calibrate needs intervals whose length is known at any cut-off, as with "
            f"{suitable}; for {type(score).__name__} choose by dco.tune on tuning rows."
        )
    return _MeasuredIntervals(
        scores=scores,
        score=score,
        prediction=new_record,
        new_intervals=_GrowingIntervals.of(score, new_record),
        total_length=_TotalLength(_GrowingIntervals.of(score, record)),
    )


def _label_columns(name: str, record: ClassRecord, first: ClassRecord) -> AnyArray:
    """Return the column that the record has for each label of the first record.

    Labels ["b", "a"] in the record and ["a", "b"] in the first one give [1, 0].
    """
    labels = np.asarray(label_names(first))
    columns = codes_of(labels, np.asarray(label_names(record)))
    if len(columns) != record.n_classes or (columns < 0).any():
        raise ValueError(
            f"all predictions must name the same labels, but those of {name!r} "
            f"differ from the first."
        )
    return columns


# ----------------------------------------------------------------------------------------------
# unions of sets


def _unite(measured: Sequence[Any], cutoffs: Sequence[Floats]) -> LabelSets | IntervalUnions:
    """Unite the sets that the candidates make for each new row.

    The candidates are all `_MeasuredLabels` or all `_MeasuredIntervals`; `cutoffs` has a cut-off
    for each new row, in an array for each candidate.
    """
    pairs = list(zip(measured, cutoffs, strict=True))
    if isinstance(measured[0], _MeasuredLabels):
        is_member = [candidate.new_scores <= cutoff[:, None] for candidate, cutoff in pairs]
        return LabelSets(np.any(is_member, axis=0), measured[0].labels)

    parts = [candidate.score.sets(candidate.prediction, cutoff) for candidate, cutoff in pairs]
    lower = np.stack([np.where(part.is_empty(), np.inf, part.lower) for part in parts], axis=1)
    upper = np.stack([np.where(part.is_empty(), -np.inf, part.upper) for part in parts], axis=1)
    pointers, lower_ends, upper_ends = _merge_pieces(lower, upper)
    return IntervalUnions(pointers, lower_ends, upper_ends, _InAnyPart(tuple(parts)))


def _merge_pieces(lower: Floats, upper: Floats) -> tuple[Integers, Floats, Floats]:
    """Merge the overlapping pieces of each row: [1, 3] and [2, 5] give [1, 5].

    `lower` and `upper` hold the ends of the pieces, (n rows, P pieces); an empty piece goes from
    inf to -inf. Returns (pointers, lower ends, upper ends): the ends of the merged pieces of all
    rows, one row after the other, where row i has those from pointers[i] to pointers[i + 1].
    """
    # 1. Sort the pieces of each row, and note how far they reach up to each one.
    order = np.argsort(lower, axis=1, kind="stable")
    lower = np.take_along_axis(lower, order, axis=1)
    upper = np.take_along_axis(upper, order, axis=1)
    reached = np.maximum.accumulate(upper, axis=1)

    # 2. A merged piece starts at the first piece, and at each one beyond what was reached before.
    is_filled = lower < np.inf
    starts = is_filled.copy()
    starts[:, 1:] &= lower[:, 1:] > reached[:, :-1]

    # 3. It ends where the next one starts, or where no filled piece follows.
    ends = is_filled.copy()
    ends[:, :-1] &= starts[:, 1:] | ~is_filled[:, 1:]

    pieces_of_row = np.count_nonzero(starts, axis=1)
    pointers = np.concatenate([[0], np.cumsum(pieces_of_row)])
    return pointers, lower[starts], reached[ends]


@dataclass(frozen=True, eq=False)
class _InAnyPart:
    """Decide membership in a union by the scores of its parts."""

    parts: tuple[Intervals, ...]

    def __call__(self, y: ArrayLike) -> Bools:
        return np.asarray(np.any([part.contains(y) for part in self.parts], axis=0))
