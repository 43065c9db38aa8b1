"""Choose among candidates and calibrate on the same rows, with a finite-sample guarantee."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
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
_HALVINGS = 100
_FAR_CUTOFF = 2.0**64  # here the growth of an interval is all that its ends show
_LARGEST_CUTOFF = 2.0**1000
_STEEPEST_GROWTH = 2.0**900  # so that sums over rows stay finite


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
    measured = _measure_candidates(candidates, targets, new)

    n = len(targets)
    if method == "modsel":
        rank = conformal_rank(n, alpha=level)
    else:
        rank = _adjusted_rank(n, alpha=float(level), candidates=len(measured))
    if rank > n:
        _warn_too_few(n, alpha=level, candidates=len(measured), method=method)

    # One cut-off for each candidate and new row; a set is the union over the candidates.
    cutoffs = _cutoffs(list(measured.values()), rank, method)
    takes_part = np.count_nonzero(np.stack(cutoffs) > -np.inf, axis=1)
    counts = dict(zip(measured, takes_part.tolist(), strict=True))
    most_rows_first = sorted(counts, key=lambda name: -counts[name])

    return SelectedSets(
        sets=_unite(list(measured.values()), cutoffs),
        guarantee="marginal",
        alpha=float(level),
        rank=rank,
        n=n,
        method=method,
        winners={name: counts[name] for name in most_rows_first if counts[name]},
    )


def _adjusted_rank(n: int, *, alpha: float, candidates: int) -> int:
    """Compute the rank of Yang and Kuchibhotla; n + 1 if there are too few rows."""
    rank = math.ceil(n * (1 - alpha) + math.sqrt(n) * _price_of_choice(candidates))
    return min(rank, n + 1)


def _price_of_choice(candidates: int) -> float:
    """Bound sqrt(n) E max_m sup_t |F_n(t) - F(t)| over the candidates' score distributions."""
    return 1 / 3 + math.sqrt(math.log(2 * candidates) / 2)


def _warn_too_few(n: int, *, alpha: Any, candidates: int, method: Method) -> None:
    """Warn that sets are full, and say how many rows would be enough."""
    statement = f"marginal coverage at alpha = {float(alpha):g}"
    if method == "modsel":
        smallest = ranks.smallest_marginal_n(alpha=alpha)
    else:
        smallest = math.ceil((_price_of_choice(candidates) / float(alpha)) ** 2)
        statement += f' with method="yk-adjust" and {counted(candidates, "candidate")}'
    ranks.warn_infeasible(n, smallest, statement)


def _cutoffs(measured: Sequence[_Measured], rank: int, method: Method) -> list[Floats]:
    """Find the cut-off of each candidate for each new row; -inf where it takes no part."""
    # Each candidate's sets at its S_(k): their total size over the n rows, and sizes of new rows.
    tops = [order_statistic(candidate.scores, rank) for candidate in measured]
    totals = []
    new_sizes = []
    for candidate, top in zip(measured, tops, strict=True):
        totals.append(candidate.total(top))
        new_sizes.append(candidate.new_sizes(top))

    if method == "yk-adjust":  # the n rows alone choose one candidate, the first of equal ones
        cutoffs = [np.full(len(sizes), -np.inf) for sizes in new_sizes]
        best = int(np.argmin(totals))
        cutoffs[best].fill(tops[best])
        return cutoffs

    # A label of a new row is kept while the candidate's total is at most the smallest total, T.
    sums = [total + sizes for total, sizes in zip(totals, new_sizes, strict=True)]
    limit = np.min(sums, axis=0)
    cutoffs = []
    for candidate, top in zip(measured, tops, strict=True):
        low = order_statistic(candidate.scores, rank - 1) if rank > 1 else -np.inf
        cutoffs.append(candidate.largest_cutoff(low, top, limit))
    return cutoffs


# ----------------------------------------------------------------------------------------------
# candidates, with the sizes of their sets


class _Measured(ABC):
    """A candidate's scores of the n rows, and the sizes of its sets at any cut-off."""

    scores: Floats

    @abstractmethod
    def total(self, cutoff: float) -> float:
        """Sum the sizes of the n rows' sets."""

    @abstractmethod
    def new_sizes(self, cutoff: float) -> Floats:
        """Return the sizes of the new rows' sets, (n_new,)."""

    @abstractmethod
    def largest_cutoff(self, low: float, top: float, limit: Floats) -> Floats:
        """For each new row, find the largest cut-off in [low, top] at which `total` + `new_sizes`
        is at most its limit; -inf if there is none.
        """


@dataclass(frozen=True, eq=False)
class _MeasuredLabels(_Measured):
    """A candidate for labels. A set's size is the number of labels at or below the cut-off."""

    scores: Floats
    ascending: Floats  # the scores of every label of all n rows
    new: Floats  # (n_new, K)
    labels: AnyArray | None

    def total(self, cutoff: float) -> int:
        return int(np.searchsorted(self.ascending, cutoff, side="right"))

    def new_sizes(self, cutoff: float) -> Floats:
        return np.asarray(np.count_nonzero(self.new <= cutoff, axis=1), dtype=np.float64)

    def largest_cutoff(self, low: float, top: float, limit: Floats) -> Floats:
        # A new row's size changes only at its own scores, so no other cut-off above `low` matters.
        values = np.sort(self.new, axis=1)
        sizes = np.searchsorted(self.ascending, values, side="right")
        sizes = sizes + np.arange(1, values.shape[1] + 1)

        # In a run of equal values the last one has the right count.
        is_last = np.ones(values.shape, dtype=bool)
        is_last[:, :-1] = values[:, :-1] != values[:, 1:]

        fits = is_last & (low < values) & (values <= top) & (sizes <= limit[:, None])
        highest = np.where(fits, values, -np.inf).max(axis=1, initial=-np.inf)
        lowest = np.where(self.total(low) + self.new_sizes(low) <= limit, low, -np.inf)
        return np.asarray(np.maximum(lowest, highest))


@dataclass(frozen=True, eq=False)
class _MeasuredIntervals(_Measured):
    """A candidate for numbers. Its intervals grow linearly with the cut-off, and so their total
    length is piecewise linear.
    """

    scores: Floats
    score: Score
    prediction: Prediction  # of the new rows
    new: _Ends
    lengths: _TotalLength

    def total(self, cutoff: float | Floats) -> Any:
        return self.lengths.at(cutoff)

    def new_sizes(self, cutoff: float | Floats) -> Floats:
        start, slope = self.new.lengths()
        with np.errstate(over="ignore", invalid="ignore"):
            sizes = np.maximum(start + slope * cutoff, 0.0)
        return np.where(cutoff == np.inf, np.inf, sizes)

    def largest_cutoff(self, low: float, top: float, limit: Floats) -> Floats:
        """Find it by bisection, and return a cut-off not below it."""
        size_scale = self.lengths.starts[-1] + np.abs(self.new.upper - self.new.lower)
        limit = limit + _RELATIVE_SLACK * (limit + size_scale) + _ABSOLUTE_SLACK

        def fits(cutoffs: Any) -> Bools:
            return np.asarray(self.total(cutoffs) + self.new_sizes(cutoffs) <= limit)

        if low == -np.inf:  # start below every cut-off at which an interval appears
            first_knots = (*self.lengths.knots[:1], *_TotalLength(self.new).knots[:1])
            low = min(top, 0.0, *first_knots)

        top_fits = fits(top)
        nothing_fits = ~fits(low)
        if (top_fits | nothing_fits).all():
            return np.where(top_fits, top, -np.inf)

        # Halve the intervals (below, above) between a cut-off that fits and one that may not.
        below = np.full(limit.shape, low)
        allowed_by_n_rows = np.minimum(self.lengths.inverse(limit), min(top, _LARGEST_CUTOFF))
        above = np.maximum(below, allowed_by_n_rows)
        for _ in range(_HALVINGS):
            middle = below + (above - below) / 2
            if ((middle == below) | (middle == above)).all():
                break
            inside = fits(middle)
            below = np.where(inside, middle, below)
            above = np.where(inside, above, middle)

        cutoffs = np.where(nothing_fits, -np.inf, above)
        return np.where(top_fits, top, cutoffs)


@dataclass(frozen=True, eq=False)
class _Ends:
    """Intervals [lower - below q, upper + above q] of some rows at cut-off q, (n,) each; empty
    where the ends cross.
    """

    lower: Floats
    below: Floats
    upper: Floats
    above: Floats

    @classmethod
    def of(cls, score: Any, record: Prediction) -> _Ends:
        """Read both ends, and how fast they grow, from the sets at two cut-offs."""
        near = score.sets(record, 0.0)
        far = score.sets(record, _FAR_CUTOFF)
        return cls(
            lower=near.lower,
            below=np.minimum((near.lower - far.lower) / _FAR_CUTOFF, _STEEPEST_GROWTH),
            upper=near.upper,
            above=np.minimum((far.upper - near.upper) / _FAR_CUTOFF, _STEEPEST_GROWTH),
        )

    def lengths(self) -> tuple[Floats, Floats]:
        """Return a and b of each row: its length is max(a + b q, 0), and infinite at q = inf."""
        return self.upper - self.lower, self.below + self.above


class _TotalLength:
    """L(q), the sum of max(a + b q, 0) over rows: piecewise linear, with a knot where an interval
    stops being empty.
    """

    def __init__(self, rows: _Ends) -> None:
        start, slope = rows.lengths()
        grows = slope > 0  # others are points at any finite cut-off
        order = np.argsort(-start[grows] / slope[grows], kind="stable")
        start = start[grows][order]
        slope = slope[grows][order]

        self.knots = -start / slope
        self.starts = np.concatenate([[0.0], np.cumsum(start)])
        self.slopes = np.concatenate([[0.0], np.cumsum(slope)])
        self.heights = self.starts[1:] + self.slopes[1:] * self.knots

    def at(self, cutoff: float | Floats) -> Floats:
        """Return the sum at each cut-off."""
        segment = np.searchsorted(self.knots, cutoff, side="right")
        with np.errstate(over="ignore", invalid="ignore"):
            length = self.starts[segment] + self.slopes[segment] * cutoff
        length = np.where(segment > 0, length, 0.0)
        return np.where(cutoff == np.inf, np.inf, length)

    def inverse(self, levels: Floats) -> Floats:
        """Find the largest cut-off at which the sum is at most each level; -inf if none is."""
        segment = np.searchsorted(self.heights, levels, side="right")
        with np.errstate(divide="ignore", invalid="ignore"):
            cutoff = (levels - self.starts[segment]) / self.slopes[segment]

        # The sum is nowhere below its first height; without a knot it is 0 everywhere.
        outside = -np.inf if self.knots.size else np.inf
        return np.where(segment > 0, cutoff, outside)


def _measure_candidates(
    candidates: Candidates, y: AnyArray, new: Mapping[str, Prediction]
) -> dict[str, _Measured]:
    """Validate what was given, and measure each candidate."""
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
    lengths = {len(record) for record in new.values()}
    if len(lengths) > 1:
        raise ValueError(
            f"the predictions in new must be of the same rows, got {sorted(lengths)} rows."
        )
    if len({isinstance(record, ClassRecord) for record in records}) > 1:
        raise ValueError(
            "candidates must all predict labels or all predict numbers, got some of each."
        )

    scores = {
        name: checked_scores(score.observed(record, y))
        for name, (score, record) in candidates.items()
    }
    measured: dict[str, _Measured] = {}
    for name, (score, record) in candidates.items():
        if isinstance(record, ClassRecord):
            measured[name] = _measure_labels(
                name, score, scores[name], record, new[name], first=records[0]
            )
        else:
            measured[name] = _measure_intervals(score, scores[name], record, new[name])
    return measured


def _measure_labels(
    name: str, score: Any, scores: Floats, record: Any, new: Any, *, first: Any
) -> _MeasuredLabels:
    """Measure a candidate for labels; `first` is the record whose order of labels all take."""
    record = record.on_host()
    new = new.on_host()
    _label_columns(name, record, first)  # the same labels, or an error
    columns = _label_columns(name, new, first)

    every = score.every_label(record)
    every_new = score.every_label(new)[:, columns]
    checked_scores(every.ravel())
    checked_scores(every_new.ravel())
    return _MeasuredLabels(
        scores=scores,
        ascending=np.sort(every, axis=None),
        new=every_new,
        labels=first.labels(),
    )


def _measure_intervals(score: Any, scores: Floats, record: Any, new: Any) -> _MeasuredIntervals:
    """Measure a candidate for numbers, if its intervals grow linearly with the cut-off."""
    if type(score) not in _INTERVAL_SCORES:
        kinds = ", ".join(kind.__name__ for kind in _INTERVAL_SCORES)
        raise IncompatibleScoreError(
            f"select_and_calibrate needs intervals whose length is known at any cut-off, as with "
            f"{kinds}; for {type(score).__name__} choose by dco.tune on tuning rows."
        )
    return _MeasuredIntervals(
        scores=scores,
        score=score,
        prediction=new,
        new=_Ends.of(score, new),
        lengths=_TotalLength(_Ends.of(score, record)),
    )


def _label_columns(name: str, record: ClassRecord, first: ClassRecord) -> AnyArray:
    """Return the column that the record has for each label of the first record."""
    wanted = label_names(first)
    columns = codes_of(np.asarray(wanted), np.asarray(label_names(record)))
    if len(columns) != record.n_classes or (columns < 0).any():
        raise ValueError(
            f"all predictions must name the same labels, but those of {name!r} "
            f"differ from the first."
        )
    return columns


# ----------------------------------------------------------------------------------------------
# unions of sets


def _unite(measured: Sequence[Any], cutoffs: Sequence[Floats]) -> LabelSets | IntervalUnions:
    """Unite the sets that the candidates make for each new row at their cut-offs."""
    pairs = list(zip(measured, cutoffs, strict=True))
    if isinstance(measured[0], _MeasuredLabels):
        is_member = [candidate.new <= cutoff[:, None] for candidate, cutoff in pairs]
        return LabelSets(np.any(is_member, axis=0), measured[0].labels)

    parts = [candidate.score.sets(candidate.prediction, cutoff) for candidate, cutoff in pairs]
    lower = np.stack([np.where(part.is_empty(), np.inf, part.lower) for part in parts], axis=1)
    upper = np.stack([np.where(part.is_empty(), -np.inf, part.upper) for part in parts], axis=1)
    pointers, lower_ends, upper_ends = _merge_pieces(lower, upper)
    return IntervalUnions(pointers, lower_ends, upper_ends, _InAnyPart(tuple(parts)))


def _merge_pieces(lower: Floats, upper: Floats) -> tuple[Integers, Floats, Floats]:
    """Merge the overlapping pieces of each row, given by their ends, (n, P).

    An empty piece goes from inf to -inf. Returns the lower and upper ends of the merged pieces of
    all rows, one row after the other, and before them the positions at which each row begins.
    """
    # 1. Sort the pieces of each row, and note how far they reach up to each one.
    order = np.argsort(lower, axis=1, kind="stable")
    lower = np.take_along_axis(lower, order, axis=1)
    upper = np.take_along_axis(upper, order, axis=1)
    reached = np.maximum.accumulate(upper, axis=1)

    # 2. A merged piece starts beyond what was reached, and ends before the next start.
    is_filled = lower < np.inf
    starts = is_filled.copy()
    starts[:, 1:] &= lower[:, 1:] > reached[:, :-1]
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
