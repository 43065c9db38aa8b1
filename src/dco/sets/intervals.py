"""Sets on the real line: one closed interval per row, or a union of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import (
    AnyArray,
    Bools,
    Floats,
    Integers,
    as_float_targets,
    as_real_numbers,
    start_positions,
)
from dco.foundations.display import number
from dco.sets.prediction_sets import PredictionSets, Row, Rows, positions_of

# Decides for one y per row whether the row's set holds it.
Member: TypeAlias = Callable[[ArrayLike], Bools]

_MOST_INTERVALS_PRINTED = 3  # of one set


class SetsOnTheLine(PredictionSets):
    """Sets of numbers, made of closed intervals.

    `member` decides membership where it is given; otherwise the ends decide.
    """

    lower: Floats
    upper: Floats
    member: Member | None

    def __post_init__(self) -> None:
        """Check that lower and upper ends are real numbers, one of each per interval."""
        lower = _read_ends(self.lower, "lower")
        upper = _read_ends(self.upper, "upper")
        if lower.ndim != 1 or lower.shape != upper.shape:
            raise ValueError(
                f"lower and upper must hold one number per interval, got shapes {lower.shape} and "
                f"{upper.shape}."
            )
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    @abstractmethod
    def hull(self) -> Intervals:
        """Return the smallest interval around each row's set."""

    @abstractmethod
    def pieces(self, row: int) -> Floats:
        """Return the intervals of one row's set, (p, 2)."""

    def is_infinite(self) -> Bools:
        """Say for each row whether its set reaches to infinity on a side."""
        return np.asarray(np.isinf(self.sizes()))

    def describe_row(self, row: int) -> str:
        """Write the set of one row as text, such as "[1, 2] or [5, 8] or [9, 10] or ..."."""
        intervals = [f"[{number(low)}, {number(high)}]" for low, high in self.pieces(row)]
        if not intervals:
            return "{}"
        parts = intervals[:_MOST_INTERVALS_PRINTED]
        if len(intervals) > _MOST_INTERVALS_PRINTED:
            parts.append("...")
        return " or ".join(parts)


@dataclass(frozen=True, eq=False, repr=False)
class Intervals(SetsOnTheLine):
    """One closed interval per row; lower > upper means the empty set.

    `member` decides membership where it is given: sets that a score makes carry
    ``observed(prediction, y) <= threshold``. Their ends are rounded outwards: every member lies
    between them, and few other floats do. Without it the ends decide.
    """

    lower: Floats
    upper: Floats
    member: Member | None = None

    def __len__(self) -> int:
        return len(self.lower)

    @overload
    def __getitem__(self, key: Row) -> tuple[float, float]: ...
    @overload
    def __getitem__(self, key: Rows) -> Intervals: ...
    def __getitem__(self, key: Row | Rows) -> tuple[float, float] | Intervals:
        """Return some rows: ``intervals[3]`` as (lower, upper), several rows as `Intervals`.

        Several rows are chosen by a slice, a list of row numbers or a mask.
        """
        rows = positions_of(key, len(self))
        if isinstance(rows, int):
            return float(self.lower[rows]), float(self.upper[rows])
        return Intervals(
            lower=self.lower[rows],
            upper=self.upper[rows],
            member=_member_of_rows(self.member, len(self), rows),
        )

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return zip(self.lower.tolist(), self.upper.tolist(), strict=True)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        """Return the ends, (n, 2)."""
        if copy is False:
            raise ValueError(
                "the ends are stored in two arrays, so one array of both is always a copy."
            )
        return np.asarray(np.stack([self.lower, self.upper], axis=1), dtype=dtype)

    def contains(self, y: ArrayLike) -> Bools:
        """Say for each row whether its interval holds its y."""
        values = as_float_targets(y, len(self))
        if self.member is not None:
            return self.member(values)
        return np.asarray((self.lower <= values) & (values <= self.upper))

    def sizes(self) -> Floats:
        """Return the length of each interval, 0 for an empty one."""
        with np.errstate(over="ignore"):  # ends near the largest float: the length is inf
            return np.maximum(self.upper - self.lower, 0)

    def is_empty(self) -> Bools:
        """Say for each row whether its interval is empty."""
        return np.asarray(self.lower > self.upper)

    def is_full(self) -> Bools:
        """Say for each row whether its interval is the whole line."""
        return np.asarray((self.lower == -np.inf) & (self.upper == np.inf))

    def hull(self) -> Intervals:
        """Return the intervals themselves."""
        return self

    def pieces(self, row: int) -> Floats:
        """Return the interval of one row, (1, 2), or nothing, (0, 2), if it is empty."""
        lower, upper = self[row]
        ends = [(lower, upper)] if lower <= upper else []
        return np.array(ends, dtype=np.float64).reshape(-1, 2)

    def clip(self, lower: ArrayLike | None = None, upper: ArrayLike | None = None) -> Intervals:
        """Cut each interval at [lower, upper]; one number for all rows, or one per row.

        Coverage is kept where y always lies there, such as ``clip(lower=0)`` for a price: only what
        cannot happen is cut off. An interval wholly outside becomes empty.

        Where errors grow with a positive y, widths should too: fit on ``np.log(y)`` and take
        ``sets.mapped(np.exp, np.log)``, which keeps coverage and stays above 0 by itself. A model
        in scikit-learn's `TransformedTargetRegressor` learns on the scale of log y too, but its
        intervals are made on that of y: clip them.
        """
        low, high = _read_limits(lower, upper, len(self))
        return Intervals(
            np.maximum(self.lower, low),
            np.minimum(self.upper, high),
            self.member and partial(_is_member_within, self.member, low, high),
        )

    def mapped(self, function: Callable[[Any], Any], inverse: Callable[[Any], Any]) -> Intervals:
        """Map the intervals to another scale by an increasing function.

        ``sets.mapped(np.exp, np.log)`` turns intervals for log y into intervals for y. A value y is
        in a mapped interval exactly where inverse(y) is in the original one, so coverage is kept.
        Ends are rounded outwards, since exp(log(y)) may differ from y.
        """
        is_empty = self.is_empty()
        with np.errstate(all="ignore"):  # ends outside the domain become NaN, and compare as false
            is_reversed = function(self.lower) > function(self.upper)
        if np.any(is_reversed & ~is_empty):
            raise ValueError(
                "function must be increasing, but it maps some lower ends above the upper ones."
            )

        lower = _map_ends(self.lower, function, inverse, side=-1.0)
        upper = _map_ends(self.upper, function, inverse, side=1.0)
        return Intervals(
            np.where(is_empty, np.inf, lower),
            np.where(is_empty, -np.inf, upper),
            partial(_is_member_on_scale, self.contains, inverse),
        )

    def columns(self) -> Mapping[str, Any]:
        """Return the columns ``lower``, ``upper`` and ``size``."""
        # float32 would be printed short, and the text means another float64
        return {
            "lower": np.asarray(self.lower, dtype=np.float64),
            "upper": np.asarray(self.upper, dtype=np.float64),
            "size": self.sizes(),
        }


@dataclass(frozen=True, eq=False, repr=False)
class IntervalUnions(SetsOnTheLine):
    """Any number of disjoint closed intervals per row, ascending.

    Row i is the union of [lower[j], upper[j]] for j from ``row_pointers[i]`` to ``row_pointers[i +
    1] - 1``. `member`, where it is given, decides membership by the score that made the sets, and
    every member lies in one of the intervals; see `Intervals`.
    """

    row_pointers: Integers
    lower: Floats
    upper: Floats
    member: Member | None = None

    def __post_init__(self) -> None:
        """Check that the pointers cover all intervals; the ends are checked by the parent class."""
        super().__post_init__()
        pointers = np.asarray(self.row_pointers)
        covers_all_intervals = (
            pointers.ndim == 1
            and pointers.size > 0
            and pointers[0] == 0
            and pointers[-1] == len(self.lower)
        )
        if not covers_all_intervals:
            raise ValueError(
                f"row_pointers must run from 0 to the number of intervals, {len(self.lower)}, one "
                f"more than there are rows; got shape {pointers.shape}."
            )
        object.__setattr__(self, "row_pointers", pointers)

    @classmethod
    def of_pieces(
        cls, n: int, rows: Integers, lower: Floats, upper: Floats, member: Member | None = None
    ) -> IntervalUnions:
        """Make the unions of n rows from a list of intervals that says which row each belongs to.

        `rows`, `lower` and `upper` have one entry per interval. Intervals of different rows may be
        mixed; those of one row must be listed from left to right.
        """
        by_row = np.argsort(rows, kind="stable")
        n_intervals = np.bincount(rows, minlength=n)
        return cls(start_positions(n_intervals), lower[by_row], upper[by_row], member)

    def __len__(self) -> int:
        return len(self.row_pointers) - 1

    @overload
    def __getitem__(self, key: Row) -> list[tuple[float, float]]: ...
    @overload
    def __getitem__(self, key: Rows) -> IntervalUnions: ...
    def __getitem__(self, key: Row | Rows) -> list[tuple[float, float]] | IntervalUnions:
        """Return some rows: ``unions[3]`` as a list of (lower, upper), several rows as unions.

        Several rows are chosen by a slice, a list of row numbers or a mask.
        """
        rows = positions_of(key, len(self))
        if isinstance(rows, int):
            return [(low, high) for low, high in self.pieces(rows).tolist()]

        # The intervals of all rows lie in one array, those of a row side by side.
        n_intervals = np.diff(self.row_pointers)[rows]
        starts = self.row_pointers[:-1][rows]
        positions = _concatenate_ranges(starts, n_intervals)

        return IntervalUnions(
            row_pointers=start_positions(n_intervals),
            lower=self.lower[positions],
            upper=self.upper[positions],
            member=_member_of_rows(self.member, len(self), rows),
        )

    def __iter__(self) -> Iterator[list[tuple[float, float]]]:
        return (self[row] for row in range(len(self)))

    def pieces(self, row: int) -> Floats:
        """Return the intervals of one row, (p, 2)."""
        row = range(len(self))[row]  # counts from the end if negative
        pieces = slice(int(self.row_pointers[row]), int(self.row_pointers[row + 1]))
        return np.stack([self.lower[pieces], self.upper[pieces]], axis=1)

    def rows(self) -> Integers:
        """Return the row of each interval."""
        return np.repeat(np.arange(len(self)), np.diff(self.row_pointers))

    def contains(self, y: ArrayLike) -> Bools:
        """Say for each row whether one of its intervals holds its y."""
        values = as_float_targets(y, len(self))
        if self.member is not None:
            return self.member(values)
        rows = self.rows()
        is_in_piece = (self.lower <= values[rows]) & (values[rows] <= self.upper)
        is_covered = np.zeros(len(self), dtype=bool)
        is_covered[rows[is_in_piece]] = True
        return is_covered

    def sizes(self) -> Floats:
        """Return the total length of each row's intervals."""
        with np.errstate(over="ignore"):
            lengths = np.asarray(self.upper - self.lower, dtype=np.float64)
        return np.bincount(self.rows(), weights=lengths, minlength=len(self)).astype(np.float64)

    def is_empty(self) -> Bools:
        """Say for each row whether it holds no interval."""
        return np.asarray(np.diff(self.row_pointers) == 0)

    def is_full(self) -> Bools:
        """Say for each row whether its set is the whole line, in one piece."""
        has_one_piece = np.diff(self.row_pointers) == 1
        return np.asarray(has_one_piece & self.hull().is_full())

    def clip(
        self, lower: ArrayLike | None = None, upper: ArrayLike | None = None
    ) -> IntervalUnions:
        """Cut each row's set at [lower, upper]; one number for all rows, or one per row.

        Intervals of the union that lie wholly outside are left out. Coverage is kept where y always
        lies in [lower, upper]; see `Intervals.clip`.
        """
        low, high = _read_limits(lower, upper, len(self))

        # Every interval is cut at the limits of its row. It is empty if it lies wholly outside.
        row_of_interval = self.rows()
        cut_lower = np.maximum(self.lower, low[row_of_interval])
        cut_upper = np.minimum(self.upper, high[row_of_interval])
        is_kept = cut_lower <= cut_upper

        return IntervalUnions.of_pieces(
            len(self),
            row_of_interval[is_kept],
            lower=cut_lower[is_kept],
            upper=cut_upper[is_kept],
            member=self.member and partial(_is_member_within, self.member, low, high),
        )

    def hull(self) -> Intervals:
        """Return the smallest interval around each row's set, gaps included.

        An empty set has lower = inf and upper = -inf.
        """
        lower = np.full(len(self), np.inf)
        upper = np.full(len(self), -np.inf)
        has_pieces = ~self.is_empty()
        lower[has_pieces] = self.lower[self.row_pointers[:-1][has_pieces]]
        upper[has_pieces] = self.upper[self.row_pointers[1:][has_pieces] - 1]
        return Intervals(lower, upper)

    def columns(self) -> Mapping[str, Any]:
        """Return the columns ``lower`` and ``upper`` of the hull, ``pieces`` as lists of pairs, and
        ``size``.
        """
        hull = self.hull()
        return {
            "lower": np.asarray(hull.lower, dtype=np.float64),
            "upper": np.asarray(hull.upper, dtype=np.float64),
            "pieces": list(self),
            "size": self.sizes(),
        }


def _read_ends(ends: ArrayLike, name: str) -> Floats:
    """Read interval ends as floating-point numbers; they may be infinite, but not NaN."""
    array = np.asarray(ends)
    if array.size and array.dtype.kind not in "iubf":
        raise ValueError(f"{name} must be real numbers, got dtype {array.dtype}.")
    if array.dtype.kind != "f":
        return array.astype(np.float64)
    if np.isnan(array.min(initial=np.inf)):
        position = int(np.flatnonzero(np.isnan(array))[0])
        raise ValueError(f"{name} is NaN in place {position}; an end is a number or infinite.")
    return array


def _read_limits(
    lower: ArrayLike | None, upper: ArrayLike | None, n_rows: int
) -> tuple[Floats, Floats]:
    """Read the limits of `clip`: (n,) lower and (n,) upper ones, infinite where None was passed."""
    low = _read_limit(-np.inf if lower is None else lower, "lower", n_rows)
    high = _read_limit(np.inf if upper is None else upper, "upper", n_rows)
    crossed_rows = np.flatnonzero(low > high)
    if crossed_rows.size:
        row = int(crossed_rows[0])
        raise ValueError(
            f"lower must not exceed upper, got {low[row]:g} and {high[row]:g} for row {row}."
        )
    return low, high


def _read_limit(limit: ArrayLike, name: str, n_rows: int) -> Floats:
    """Return one limit per row in float64: sets stored in float32 must not round it."""
    values = as_real_numbers(limit, name=name)
    if values.shape not in ((), (n_rows,)) or np.any(np.isnan(values)):
        raise ValueError(
            f"{name} must be one number or one for each of the {n_rows} rows, and not "
            f"NaN; got {limit!r:.100}."
        )
    return np.broadcast_to(values.astype(np.float64), n_rows)


def _concatenate_ranges(starts: Integers, lengths: Integers) -> Integers:
    """Join ranges of numbers: starts [5, 0] and lengths [2, 3] give [5, 6, 0, 1, 2]."""
    positions_of_starts = start_positions(lengths)
    shifts = starts - positions_of_starts[:-1]
    return np.arange(positions_of_starts[-1]) + np.repeat(shifts, lengths)


def _member_of_rows(member: Member | None, n_rows: int, rows: Integers) -> Member | None:
    """Restrict a rule of membership for n rows to some of them, in the order of `rows`."""
    return None if member is None else partial(_is_member_of_rows, member, n_rows, rows)


def _is_member_of_rows(member: Member, n_rows: int, selected_rows: Integers, y: ArrayLike) -> Bools:
    """Decide membership for a selection of rows, by a rule that needs a value for every row.

    The selection may repeat a row, as in ``sets[[3, 3, 1]]``, but one call of the rule takes only
    one value for each row. So the first call decides the first occurrence of every selected row,
    the second call the second occurrence, and so on.

    Parameters
    ----------
    member
        The rule: takes `n_rows` values and returns `n_rows` booleans.
    selected_rows
        (m,) row numbers, in any order.
    y
        (m,) the value to look up in the set of each selected row.
    """
    values = as_float_targets(y, len(selected_rows))
    occurrences = _number_occurrences(selected_rows)
    n_calls = occurrences.max(initial=-1) + 1

    is_member = np.zeros(len(selected_rows), dtype=bool)
    for call in range(n_calls):
        in_this_call = np.flatnonzero(occurrences == call)
        rows = selected_rows[in_this_call]  # no row twice

        value_of_row = np.zeros(n_rows)  # the answer for rows that are not selected is ignored
        value_of_row[rows] = values[in_this_call]
        is_member[in_this_call] = member(value_of_row)[rows]
    return is_member


def _number_occurrences(numbers: Integers) -> Integers:
    """Count the earlier occurrences of each number: [7, 3, 7, 7] -> [0, 0, 1, 2]."""
    order = np.argsort(numbers, kind="stable")
    ascending = numbers[order]
    first_positions = np.searchsorted(ascending, ascending, side="left")

    occurrences = np.empty(len(numbers), dtype=np.int64)
    occurrences[order] = np.arange(len(numbers)) - first_positions
    return occurrences


def _is_member_within(member: Member, low: Floats, high: Floats, y: ArrayLike) -> Bools:
    """Decide membership of sets that were cut at the limits `low` and `high` of each row."""
    values = as_float_targets(y, len(low))
    return np.asarray(member(values) & (low <= values) & (values <= high))


def _is_member_on_scale(member: Member, inverse: Callable[[Any], Any], y: ArrayLike) -> Bools:
    """Decide membership of sets that were mapped to another scale: take y back, then ask."""
    with np.errstate(all="ignore"):  # a y outside the domain, such as log(-1): NaN is in no set
        return member(inverse(np.asarray(y, dtype=np.float64)))


def _map_ends(
    ends: Floats, function: Callable[[Any], Any], inverse: Callable[[Any], Any], *, side: float
) -> Floats:
    """Map one end of each interval to another scale, and round it outwards.

    Because of rounding errors, inverse(function(end)) may lie inside the interval, and members
    close to the end would then be lost. Such an end is moved outwards, by steps that double, until
    its inverse lies beyond the end it came from.

    Parameters
    ----------
    ends
        (n,) the lower ends, or the upper ones, on the scale of the intervals.
    function, inverse
        An increasing function of an array to the new scale, and its inverse.
    side
        -1.0 for lower ends, 1.0 for upper ones: the direction that leads outwards.
    """
    largest_float = np.finfo(np.float64).max
    with np.errstate(all="ignore"):
        mapped = np.array(function(ends.astype(np.float64)), dtype=np.float64)

        # 1. An infinite end stays. A finite one that overflowed inwards, a lower end to inf or an
        # upper one to -inf, starts at the largest float in its place.
        outermost = side * np.maximum(side * mapped, -largest_float)
        mapped = np.where(np.isfinite(ends), outermost, mapped)

        # 2. Move finite ends outwards until none is inside any more.
        inner = np.flatnonzero(np.isfinite(ends))  # the ends that may still be inside
        steps = np.spacing(np.abs(mapped[inner]))
        while inner.size:
            is_inside = side * inverse(mapped[inner]) <= side * ends[inner]
            must_move = is_inside & np.isfinite(mapped[inner])
            inner = inner[must_move]
            steps = steps[must_move]
            mapped[inner] += side * steps
            steps *= 2
    return mapped
