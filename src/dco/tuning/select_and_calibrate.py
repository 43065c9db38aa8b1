"""Choose among candidates and calibrate on the same rows, with a finite-sample guarantee."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias, cast

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

    # 1. Find one cut-off for each candidate and new row.
    n = len(targets)
    if method == "modsel":
        rank = conformal_rank(n, alpha=level)
        cutoffs = _cutoffs_of_all(list(measured.values()), rank)
    else:
        rank = _adjusted_rank(n, alpha=float(level), n_candidates=len(measured))
        cutoffs = _cutoffs_of_winner(list(measured.values()), rank)
    if rank > n:
        _warn_too_few(n, alpha=level, n_candidates=len(measured), method=method)

    # 2. A new row's set is the union over the candidates.
    return SelectedSets(
        sets=_unite(list(measured.values()), cutoffs),
        guarantee="marginal",
        alpha=float(level),
        rank=rank,
        n=n,
        method=method,
        winners=_count_rows(list(measured), cutoffs),
    )


def _count_rows(names: Sequence[str], cutoffs: Sequence[Floats]) -> dict[str, int]:
    """Count the new rows in whose sets each candidate takes part, the largest count first.

    A candidate takes no part where its cut-off is -inf; one without any row is left out.
    """
    n_rows = {}
    for name, cutoffs_of_candidate in zip(names, cutoffs, strict=True):
        n_rows[name] = int(np.count_nonzero(cutoffs_of_candidate > -np.inf))
    largest_first = sorted(n_rows, key=lambda name: -n_rows[name])
    return {name: n_rows[name] for name in largest_first if n_rows[name] > 0}


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
    """Find the cut-off of each candidate for each new row, by the method "modsel".

    The sizes of the n rows' sets and of one new row's set add up to a sum that grows with the
    cut-off. Its budget is the smallest such sum of any candidate, each at its score of the given
    rank. A candidate's cut-off is the largest number, between its scores of the ranks `rank` - 1
    and `rank`, at which its sum is within the budget; -inf where there is none, so that it adds
    nothing to the new row's set.

    Returns an array for each candidate, with a cut-off for each new row.
    """
    # 1. The budget of each new row.
    highest_cutoffs = [order_statistic(candidate.scores, rank) for candidate in measured]
    sums_of_sizes = [
        candidate.total_size(cutoff) + candidate.new_sizes(cutoff)
        for candidate, cutoff in zip(measured, highest_cutoffs, strict=True)
    ]
    budget = np.min(sums_of_sizes, axis=0)

    # 2. The largest cut-offs within it.
    cutoffs = []
    for candidate, high in zip(measured, highest_cutoffs, strict=True):
        low = order_statistic(candidate.scores, rank - 1) if rank > 1 else -np.inf
        cutoffs.append(candidate.largest_cutoff(low, high, budget=budget))
    return cutoffs


def _cutoffs_of_winner(measured: Sequence[_MeasuredCandidate], rank: int) -> list[Floats]:
    """Find the cut-off of each candidate for each new row, by the method "yk-adjust".

    The winner is the candidate whose sets of the n rows are smallest in sum, at its score of the
    given rank; the first of equal ones. That score is its cut-off for all new rows. The others have
    the cut-off -inf, at which sets are empty, so that they add nothing.

    Returns an array for each candidate, with a cut-off for each new row.
    """
    thresholds = [order_statistic(candidate.scores, rank) for candidate in measured]
    total_sizes = [
        candidate.total_size(threshold)
        for candidate, threshold in zip(measured, thresholds, strict=True)
    ]
    winner = int(np.argmin(total_sizes))

    cutoffs = [np.full(candidate.n_new, -np.inf) for candidate in measured]
    cutoffs[winner].fill(thresholds[winner])
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
    def largest_cutoff(self, low: float, high: float, *, budget: Floats) -> Floats:
        """Find the largest cut-off from `low` to `high` for each new row, within its budget.

        ``total_size`` and the size of the new row's set must add up to at most its number in
        `budget`, (n_new,). Returns -inf for a row without such a cut-off.
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

    def largest_cutoff(self, low: float, high: float, *, budget: Floats) -> Floats:
        """Find the largest cut-off from `low` to `high` for each new row, within its budget.

        A new row's set changes only at the scores of its labels, so only these and `low` are tried.
        """
        # 1. Count the labels in all sets, at each score of a new row's labels: those of the n
        # rows, and j of the new row's own at the j-th smallest of its scores. (n_new, K)
        scores = np.sort(self.new_scores, axis=1)
        labels_of_n_rows = np.searchsorted(self.sorted_scores, scores, side="right")
        labels_of_new_row = np.arange(1, scores.shape[1] + 1)
        is_within_budget = labels_of_n_rows + labels_of_new_row <= budget[:, None]

        # 2. Labels of equal scores come together, so that only the last of them has the full count.
        has_full_count = np.ones(scores.shape, dtype=bool)
        has_full_count[:, :-1] = scores[:, :-1] != scores[:, 1:]

        # 3. Take the largest score that is in range and within the budget, or else `low`.
        is_in_range = (low < scores) & (scores <= high)
        is_allowed = is_in_range & has_full_count & is_within_budget
        largest_score = np.where(is_allowed, scores, -np.inf).max(axis=1, initial=-np.inf)
        low_is_allowed = self.total_size(low) + self.new_sizes(low) <= budget
        return np.asarray(np.maximum(np.where(low_is_allowed, low, -np.inf), largest_score))


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

    def largest_cutoff(self, low: float, high: float, *, budget: Floats) -> Floats:
        """Find the largest cut-off from `low` to `high` for each new row, within its budget.

        Lengths are sums of rounded numbers, so the cut-off may be a little larger than the exact
        one. That is safe: a larger set covers no less.
        """
        budget = budget + self._rounding_error(budget)
        if low == -np.inf:
            low = self._below_all_intervals(high)

        # At most new rows every cut-off in the range is allowed, or none is.
        is_high_allowed = self._is_within_budget(high, budget)
        is_low_allowed = self._is_within_budget(low, budget)
        cutoffs = np.where(is_high_allowed, high, -np.inf)

        must_search = is_low_allowed & ~is_high_allowed
        if not must_search.any():
            return cutoffs
        return np.where(must_search, self._bisect(low, high, budget), cutoffs)

    def _rounding_error(self, budget: Floats) -> Floats:
        """Bound by how much rounding may have raised the sums of lengths, for each new row."""
        new_lengths = np.abs(self.new_intervals.upper - self.new_intervals.lower)
        largest_addends = self.total_length.starts[-1] + new_lengths
        return np.asarray(_RELATIVE_SLACK * (budget + largest_addends) + _ABSOLUTE_SLACK)

    def _below_all_intervals(self, high: float) -> float:
        """Return a finite cut-off, at most `high`, below which all intervals are empty."""
        first_knots = self.total_length.knots[:1]
        first_new_knots = _TotalLength(self.new_intervals).knots[:1]
        return float(min(high, 0.0, *first_knots, *first_new_knots))

    def _bisect(self, low: float, high: float, budget: Floats) -> Floats:
        """Search the largest allowed cut-off of each new row by halving a range that holds it.

        `low` is allowed and `high` is not, for the rows that matter. Returns the upper end of the
        range when it can be halved no more, which is at most a rounding error too large.
        """
        allowed = np.full(budget.shape, low)
        allowed_by_n_rows = self.total_length.inverse(budget)  # the new row can only lower it
        highest = np.minimum(allowed_by_n_rows, min(high, _LARGEST_CUTOFF))
        too_large = np.maximum(allowed, highest)

        for _ in range(_MOST_HALVINGS):
            middle = allowed + (too_large - allowed) / 2
            cannot_be_halved = (middle == allowed) | (middle == too_large)
            if cannot_be_halved.all():
                break
            is_middle_allowed = self._is_within_budget(middle, budget)
            allowed = np.where(is_middle_allowed, middle, allowed)
            too_large = np.where(is_middle_allowed, too_large, middle)
        return np.asarray(too_large)

    def _is_within_budget(self, cutoff: float | Floats, budget: Floats) -> Bools:
        """For each new row, compare the sum of sizes at a cut-off with its budget."""
        return np.asarray(self.total_size(cutoff) + self.new_sizes(cutoff) <= budget)


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
    """Score the n rows, and prepare the sizes of sets, for each candidate by its name.

    `candidates` is {name: (score, predictions of the n rows)}, `y` their targets, and `new` is
    {name: predictions of the new rows}.
    """
    observed = {
        name: checked_scores(score.observed(predictions, y))
        for name, (score, predictions) in candidates.items()
    }
    _, first_predictions = next(iter(candidates.values()))
    are_of_labels = isinstance(first_predictions, ClassRecord)

    measured: dict[str, _MeasuredCandidate] = {}
    for name, (score, predictions) in candidates.items():
        if are_of_labels:
            label_scores = _score_labels(name, score, predictions, first_predictions)
            measured[name] = _MeasuredLabels(
                scores=observed[name],
                sorted_scores=np.sort(label_scores, axis=None),
                new_scores=_score_labels(name, score, new[name], first_predictions),
                labels=first_predictions.labels(),
            )
        else:
            measured[name] = _measure_intervals(score, observed[name], predictions, new[name])
    return measured


def _score_labels(name: str, score: Any, predictions: Any, first_predictions: Any) -> Floats:
    """Score every label of every row, (n, K), with the K labels in the order of the first record.

    `name` is the candidate's. Other labels than those of `first_predictions` are an error.
    """
    predictions = predictions.on_host()
    columns = _label_columns(name, predictions, first_predictions)
    label_scores = score.every_label(predictions)[:, columns]
    checked_scores(label_scores.ravel())
    return np.asarray(label_scores)


def _measure_intervals(
    score: Score, scores: Floats, record: Prediction, new_record: Prediction
) -> _MeasuredIntervals:
    """Prepare the lengths of a candidate's intervals, if they grow linearly with the cut-off.

    `scores` are those of the n rows, `record` and `new_record` the predictions of the n rows and of
    the new ones. Scores with other intervals are refused.
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


def _unite(
    measured: Sequence[_MeasuredCandidate], cutoffs: Sequence[Floats]
) -> LabelSets | IntervalUnions:
    """Unite the sets that the candidates make for each new row, at their cut-offs for that row."""
    if isinstance(measured[0], _MeasuredLabels):
        return _unite_label_sets(cast(Sequence[_MeasuredLabels], measured), cutoffs)
    return _unite_intervals(cast(Sequence[_MeasuredIntervals], measured), cutoffs)


def _unite_label_sets(measured: Sequence[_MeasuredLabels], cutoffs: Sequence[Floats]) -> LabelSets:
    """Put a label into a new row's set if any candidate scores it at most at its cut-off."""
    is_in_any = np.zeros(measured[0].new_scores.shape, dtype=bool)
    for candidate, cutoff in zip(measured, cutoffs, strict=True):
        is_in_any |= candidate.new_scores <= cutoff[:, None]
    return LabelSets(is_in_any, measured[0].labels)


def _unite_intervals(
    measured: Sequence[_MeasuredIntervals], cutoffs: Sequence[Floats]
) -> IntervalUnions:
    """Unite the intervals of all candidates, row by row; those that overlap become one piece."""
    intervals: list[Intervals] = []
    for candidate, cutoff in zip(measured, cutoffs, strict=True):
        sets: Any = candidate.score.sets(candidate.prediction, cutoff)
        intervals.append(sets)

    # An empty interval goes from inf to -inf, and so is no part of any piece.
    lower = [np.where(sets.is_empty(), np.inf, sets.lower) for sets in intervals]
    upper = [np.where(sets.is_empty(), -np.inf, sets.upper) for sets in intervals]
    pieces = _merge_pieces(np.stack(lower, axis=1), np.stack(upper, axis=1))
    return IntervalUnions(*pieces, _InAnyPart(tuple(intervals)))


def _merge_pieces(lower: Floats, upper: Floats) -> tuple[Integers, Floats, Floats]:
    """Merge the overlapping pieces of each row: [1, 3] and [2, 5] give [1, 5].

    `lower` and `upper` hold the ends of the pieces, (n rows, P pieces); an empty piece goes from
    inf to -inf. Returns (pointers, lower ends, upper ends): the ends of the merged pieces of all
    rows, one row after the other, where row i has those from pointers[i] to pointers[i + 1].
    """
    # 1. Sort the pieces of each row by their lower ends. Empty ones come last.
    order = np.argsort(lower, axis=1, kind="stable")
    lower = np.take_along_axis(lower, order, axis=1)
    upper = np.take_along_axis(upper, order, axis=1)
    is_filled = lower < np.inf

    # 2. A merged piece begins at the first piece, and at each one that begins beyond the largest
    # upper end so far.
    largest_upper = np.maximum.accumulate(upper, axis=1)
    begins = is_filled.copy()
    begins[:, 1:] &= lower[:, 1:] > largest_upper[:, :-1]

    # 3. It ends where the next piece begins a new one or is empty, and at the last piece.
    ends = is_filled.copy()
    ends[:, :-1] &= begins[:, 1:] | ~is_filled[:, 1:]

    n_merged = np.count_nonzero(begins, axis=1)  # of each row
    pointers = np.concatenate([[0], np.cumsum(n_merged)])
    return pointers, lower[begins], largest_upper[ends]


@dataclass(frozen=True, eq=False)
class _InAnyPart:
    """Decide membership in a union by the scores of its parts."""

    parts: tuple[Intervals, ...]

    def __call__(self, y: ArrayLike) -> Bools:
        return np.asarray(np.any([part.contains(y) for part in self.parts], axis=0))
