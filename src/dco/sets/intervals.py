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

_PIECES_SHOWN = 3  # of a set that is printed


class SetsOnTheLine(PredictionSets):
    """Sets of numbers, made of closed intervals.

    `member` decides membership where it is given; otherwise the ends decide.
    """

    lower: Floats
    upper: Floats
    member: Member | None

    def __post_init__(self) -> None:
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
        """Write the set of one row as [a, b] or [c, d], with its first intervals."""
        pieces = [f"[{number(low)}, {number(high)}]" for low, high in self.pieces(row)]
        if not pieces:
            return "{}"
        shown = pieces[:_PIECES_SHOWN]
        if len(pieces) > _PIECES_SHOWN:
            shown.append("...")
        return " or ".join(shown)


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
        """Return the ends of one row's interval; for a slice, a list of row numbers or a mask, the
        intervals of those rows.
        """
        rows = positions_of(key, len(self))
        if isinstance(rows, int):
            return float(self.lower[rows]), float(self.upper[rows])
        return Intervals(
            self.lower[rows], self.upper[rows], _member_of_rows(self.member, len(self), rows)
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
        """Return the part of each interval in [lower, upper]; one number for all rows, or one per
        row.

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
        """Return the sets on the scale of an increasing function.

        ``sets.mapped(np.exp, np.log)`` is for those of a model of log y. y is in them where
        inverse(y) is in these, so coverage is kept. Ends are rounded outwards: exp(log(y)) may
        differ from y.
        """
        is_empty = self.is_empty()
        with np.errstate(all="ignore"):
            is_turned = function(self.lower) > function(self.upper)
        if np.any(is_turned & ~is_empty):
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
    every member lies in a piece; see `Intervals`.
    """

    row_pointers: Integers
    lower: Floats
    upper: Floats
    member: Member | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        pointers = np.asarray(self.row_pointers)
        is_sound = (
            pointers.ndim == 1
            and pointers.size > 0
            and pointers[0] == 0
            and pointers[-1] == len(self.lower)
        )
        if not is_sound:
            raise ValueError(
                f"row_pointers must run from 0 to the number of intervals, {len(self.lower)}, one "
                f"more than there are rows; got shape {pointers.shape}."
            )
        object.__setattr__(self, "row_pointers", pointers)

    @classmethod
    def of_pieces(
        cls, n: int, rows: Integers, lower: Floats, upper: Floats, member: Member | None = None
    ) -> IntervalUnions:
        """Make the unions of n rows from pieces and the row of each; those of a row ascend."""
        order = np.argsort(rows, kind="stable")
        pieces_of_row = np.bincount(rows, minlength=n)
        return cls(start_positions(pieces_of_row), lower[order], upper[order], member)

    def __len__(self) -> int:
        return len(self.row_pointers) - 1

    @overload
    def __getitem__(self, key: Row) -> list[tuple[float, float]]: ...
    @overload
    def __getitem__(self, key: Rows) -> IntervalUnions: ...
    def __getitem__(self, key: Row | Rows) -> list[tuple[float, float]] | IntervalUnions:
        """Return the intervals of one row as pairs; for a slice, a list of row numbers or a mask,
        the unions of those rows.
        """
        rows = positions_of(key, len(self))
        if isinstance(rows, int):
            return [(low, high) for low, high in self.pieces(rows).tolist()]

        # number the pieces of the wanted rows one after the other, then move the numbers of each
        # row by the distance from its new first piece to its old one
        n_pieces = np.diff(self.row_pointers)[rows]
        new_pointers = start_positions(n_pieces)
        old_starts = self.row_pointers[:-1][rows]
        distances = old_starts - new_pointers[:-1]
        positions = np.arange(new_pointers[-1]) + np.repeat(distances, n_pieces)

        return IntervalUnions(
            row_pointers=new_pointers,
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
        """Return the part of each row's set in [lower, upper]; see `Intervals.clip`.

        Pieces wholly outside are left out.
        """
        low, high = _read_limits(lower, upper, len(self))
        rows = self.rows()
        cut_lower = np.maximum(self.lower, low[rows])
        cut_upper = np.minimum(self.upper, high[rows])
        remains = cut_lower <= cut_upper
        return IntervalUnions.of_pieces(
            len(self),
            rows[remains],
            cut_lower[remains],
            cut_upper[remains],
            self.member and partial(_is_member_within, self.member, low, high),
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
    """Return ends as floating-point numbers."""
    array = np.asarray(ends)
    if array.size and array.dtype.kind not in "iubf":
        raise ValueError(f"{name} must be real numbers, got dtype {array.dtype}.")
    if array.dtype.kind != "f":
        return array.astype(np.float64)
    if np.isnan(array.min(initial=np.inf)):
        first = int(np.flatnonzero(np.isnan(array))[0])
        raise ValueError(f"{name} is NaN in place {first}; an end is a number or infinite.")
    return array


def _read_limits(
    lower: ArrayLike | None, upper: ArrayLike | None, n_rows: int
) -> tuple[Floats, Floats]:
    """Return the limits of each row, infinite where None was given."""
    low = _read_limit(-np.inf if lower is None else lower, "lower", n_rows)
    high = _read_limit(np.inf if upper is None else upper, "upper", n_rows)
    crossed = np.flatnonzero(low > high)
    if crossed.size:
        row = int(crossed[0])
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


def _member_of_rows(member: Member | None, n_rows: int, rows: Integers) -> Member | None:
    """Return the rule of membership for some rows of n."""
    return None if member is None else partial(_is_member_of_rows, member, n_rows, rows)


def _is_member_of_rows(member: Member, n_rows: int, rows: Integers, y: ArrayLike) -> Bools:
    """Ask a rule that wants a value of every row about some rows.

    One question is enough, or as many as the commonest row was chosen times.
    """
    values = as_float_targets(y, len(rows))
    is_member = np.zeros(len(rows), dtype=bool)
    open_questions = np.arange(len(rows))
    while open_questions.size:
        asked_rows, first = np.unique(rows[open_questions], return_index=True)
        value_of_row = np.zeros(n_rows)
        value_of_row[asked_rows] = values[open_questions[first]]
        is_member[open_questions[first]] = member(value_of_row)[asked_rows]
        open_questions = np.delete(open_questions, first)
    return is_member


def _is_member_within(member: Member, low: Floats, high: Floats, y: ArrayLike) -> Bools:
    """Decide membership of sets that were cut at limits."""
    values = as_float_targets(y, len(low))
    return np.asarray(member(values) & (low <= values) & (values <= high))


def _is_member_on_scale(member: Member, inverse: Callable[[Any], Any], y: ArrayLike) -> Bools:
    """Decide membership of sets that were mapped to another scale."""
    with np.errstate(all="ignore"):  # a y outside the domain, such as log(-1): NaN is in no set
        return member(inverse(np.asarray(y, dtype=np.float64)))


def _map_ends(
    ends: Floats, function: Callable[[Any], Any], inverse: Callable[[Any], Any], *, side: float
) -> Floats:
    """Return function(ends), moved outwards until the inverse is beyond the end.

    `side` is -1 for lower ends and 1 for upper ones.
    """
    largest = np.finfo(np.float64).max
    with np.errstate(all="ignore"):
        mapped = np.array(function(ends.astype(np.float64)), dtype=np.float64)
        inside = np.flatnonzero(np.isfinite(ends))  # ends that may have to move
        if side < 0:
            mapped[inside] = np.minimum(mapped[inside], largest)
        else:
            mapped[inside] = np.maximum(mapped[inside], -largest)

        step = np.spacing(np.abs(mapped[inside]))
        while inside.size:
            is_inside = side * inverse(mapped[inside]) <= side * ends[inside]
            is_inside &= np.isfinite(mapped[inside])
            inside = inside[is_inside]
            step = step[is_inside]
            mapped[inside] += side * step
            step *= 2
    return mapped
