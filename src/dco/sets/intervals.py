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
    real_numbers,
    responses,
    sums_from_zero,
)
from dco.foundations.display import number
from dco.sets.prediction_sets import (
    PredictionSets,
    Row,
    Rows,
    chosen,
    compressed_rows,
    described,
    html_of_sets,
)

Member: TypeAlias = Callable[[ArrayLike], Bools]


class _OnTheLine(PredictionSets):
    """What intervals and unions of them share: ends that are checked, and a `member` that decides
    where it is given.
    """

    lower: Floats
    upper: Floats
    member: Member | None
    n_classes = None

    def __post_init__(self) -> None:
        lower, upper = np.asarray(self.lower), np.asarray(self.upper)
        if lower.ndim != 1 or lower.shape != upper.shape:
            raise ValueError(
                f"lower and upper must hold one number per interval, got shapes {lower.shape} and "
                f"{upper.shape}."
            )
        for name, ends in (("lower", lower), ("upper", upper)):
            if ends.size and ends.dtype.kind not in "iubf":
                raise ValueError(f"{name} must be real numbers, got dtype {ends.dtype}.")
            if ends.dtype.kind == "f" and np.isnan(ends.min(initial=np.inf)):
                place = int(np.flatnonzero(np.isnan(ends))[0])
                raise ValueError(f"{name} is NaN in place {place}; an end is a number or infinite.")
            object.__setattr__(
                self, name, ends if ends.dtype.kind == "f" else ends.astype(np.float64)
            )

    def __repr__(self) -> str:
        return described(self, self._shown)

    def _repr_html_(self) -> str:
        return html_of_sets(self, self._shown)

    def _shown(self, row: int) -> str:
        pieces = np.reshape(self[row], (-1, 2))  # type: ignore[index]
        texts = [f"[{number(low)}, {number(high)}]" for low, high in pieces if low <= high]
        return " or ".join(texts[:3]) + (" or ..." if len(texts) > 3 else "") if texts else "{}"

    @abstractmethod
    def hull(self) -> Intervals:
        """Return the smallest interval around each row's set."""

    @abstractmethod
    def pieces(self, row: int) -> Floats:
        """Return the intervals of one row's set, (p, 2)."""

    def is_infinite(self) -> Bools:
        """Rows whose set reaches to infinity on a side."""
        return np.asarray(np.isinf(self.sizes()))


@dataclass(frozen=True, eq=False, repr=False)
class Intervals(_OnTheLine):
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
        """The ends of one row's interval; for a slice, a list of row numbers or a mask, the
        intervals of those rows.
        """
        rows = chosen(key, len(self))
        if isinstance(rows, int):
            return float(self.lower[rows]), float(self.upper[rows])
        member = self.member and partial(_of_some_rows, self.member, len(self), rows)
        return Intervals(self.lower[rows], self.upper[rows], member)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return zip(self.lower.tolist(), self.upper.tolist(), strict=True)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        """The ends, (n, 2)."""
        if copy is False:
            raise ValueError(
                "the ends are stored in two arrays, so one array of both is always a copy."
            )
        return np.asarray(np.stack([self.lower, self.upper], axis=1), dtype=dtype)

    def contains(self, y: ArrayLike) -> Bools:
        """Whether each row's interval holds that row's y."""
        value = responses(y, len(self))
        if self.member is not None:
            return self.member(value)
        return np.asarray((self.lower <= value) & (value <= self.upper))

    def sizes(self) -> Floats:
        """The length of each interval, 0 for an empty one."""
        with np.errstate(over="ignore"):  # ends near the largest float: the length is inf
            return np.maximum(self.upper - self.lower, 0)

    def is_empty(self) -> Bools:
        """Rows whose set is empty."""
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
        return np.array([[lower, upper]] if lower <= upper else [], dtype=np.float64).reshape(-1, 2)

    def clip(self, lower: ArrayLike | None = None, upper: ArrayLike | None = None) -> Intervals:
        """The part of each interval in [lower, upper]; one number for all rows, or one per row.

        Coverage is kept where y always lies there, such as ``clip(lower=0)`` for a price: only what
        cannot happen is cut off. An interval wholly outside becomes empty.

        Where errors grow with a positive y, widths should too: fit on ``np.log(y)`` and take
        ``sets.mapped(np.exp, np.log)``, which keeps coverage and stays above 0 by itself. A model
        in scikit-learn's `TransformedTargetRegressor` learns on the scale of log y too, but its
        intervals are made on that of y: clip them.
        """
        least, most = _limits(lower, upper, len(self))
        member = self.member and partial(_inside, self.member, least, most)
        return Intervals(np.maximum(self.lower, least), np.minimum(self.upper, most), member)

    def mapped(self, function: Callable[[Any], Any], inverse: Callable[[Any], Any]) -> Intervals:
        """The sets on the scale of an increasing function: ``sets.mapped(np.exp, np.log)`` for
        those of a model of log y.

        y is in them where inverse(y) is in these, so coverage is kept. Ends are rounded outwards:
        exp(log(y)) may differ from y.
        """
        empty = self.is_empty()
        with np.errstate(all="ignore"):
            if np.any((function(self.lower) > function(self.upper)) & ~empty):
                raise ValueError(
                    "function must be increasing, but it maps some lower ends above the upper ones."
                )
        lower = np.where(empty, np.inf, _mapped_ends(self.lower, -1.0, function, inverse))
        upper = np.where(empty, -np.inf, _mapped_ends(self.upper, 1.0, function, inverse))
        return Intervals(lower, upper, partial(_through, self.contains, inverse))

    def columns(self) -> Mapping[str, Any]:
        """Return the columns ``lower``, ``upper`` and ``size``."""
        # float32 would be printed short, and the text means another float64
        return {
            "lower": np.asarray(self.lower, dtype=np.float64),
            "upper": np.asarray(self.upper, dtype=np.float64),
            "size": self.sizes(),
        }


@dataclass(frozen=True, eq=False, repr=False)
class IntervalUnions(_OnTheLine):
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
        if (
            pointers.ndim != 1
            or not pointers.size
            or pointers[0] != 0
            or pointers[-1] != len(self.lower)
        ):
            raise ValueError(
                f"row_pointers must run from 0 to the number of intervals, {len(self.lower)}, one "
                f"more than there are rows; "
                f"got shape {pointers.shape}."
            )
        object.__setattr__(self, "row_pointers", pointers)

    @classmethod
    def of_pieces(
        cls, n: int, rows: Integers, lower: Floats, upper: Floats, member: Member | None = None
    ) -> IntervalUnions:
        """The unions of n rows, from pieces and the row of each; the pieces of one row ascend."""
        order = np.argsort(rows, kind="stable")
        return cls(
            sums_from_zero(np.bincount(rows, minlength=n)), lower[order], upper[order], member
        )

    def __len__(self) -> int:
        return len(self.row_pointers) - 1

    @overload
    def __getitem__(self, key: Row) -> list[tuple[float, float]]: ...
    @overload
    def __getitem__(self, key: Rows) -> IntervalUnions: ...
    def __getitem__(self, key: Row | Rows) -> list[tuple[float, float]] | IntervalUnions:
        """The intervals of one row as pairs; for a slice, a list of row numbers or a mask, the
        unions of those rows.
        """
        rows = chosen(key, len(self))
        if isinstance(rows, int):
            return [(low, high) for low, high in self.pieces(rows).tolist()]
        pointers, places = compressed_rows(self.row_pointers, rows)
        member = self.member and partial(_of_some_rows, self.member, len(self), rows)
        return IntervalUnions(pointers, self.lower[places], self.upper[places], member)

    def __iter__(self) -> Iterator[list[tuple[float, float]]]:
        return (self[row] for row in range(len(self)))

    def pieces(self, row: int) -> Floats:
        """The intervals of one row, (p, 2)."""
        row = range(len(self))[row]
        inside = slice(int(self.row_pointers[row]), int(self.row_pointers[row + 1]))
        return np.stack([self.lower[inside], self.upper[inside]], axis=1)

    def contains(self, y: ArrayLike) -> Bools:
        """Whether one of each row's intervals holds that row's y."""
        value = responses(y, len(self))
        if self.member is not None:
            return self.member(value)
        rows = self.rows()
        value = value[rows]
        found = np.zeros(len(self), dtype=bool)
        found[rows[(self.lower <= value) & (value <= self.upper)]] = True
        return found

    def sizes(self) -> Floats:
        """The total length of each row's intervals."""
        with np.errstate(over="ignore"):
            lengths = np.asarray(self.upper - self.lower, dtype=np.float64)
        return np.bincount(self.rows(), weights=lengths, minlength=len(self)).astype(np.float64)

    def is_empty(self) -> Bools:
        """Rows that hold no interval."""
        return np.asarray(np.diff(self.row_pointers) == 0)

    def is_full(self) -> Bools:
        """Say for each row whether its set is the whole line, in one piece."""
        return np.asarray((np.diff(self.row_pointers) == 1) & self.hull().is_full())

    def clip(
        self, lower: ArrayLike | None = None, upper: ArrayLike | None = None
    ) -> IntervalUnions:
        """The part of each row's set in [lower, upper]; see `Intervals.clip`. Pieces wholly outside
        are left out.
        """
        least, most = _limits(lower, upper, len(self))
        rows = self.rows()
        low, high = np.maximum(self.lower, least[rows]), np.minimum(self.upper, most[rows])
        kept = low <= high
        member = self.member and partial(_inside, self.member, least, most)
        return IntervalUnions.of_pieces(len(self), rows[kept], low[kept], high[kept], member)

    def hull(self) -> Intervals:
        """The smallest interval around each row's set, members and gaps (lower = inf, upper = -inf
        for an empty one).
        """
        lower, upper = np.full(len(self), np.inf), np.full(len(self), -np.inf)
        filled = ~self.is_empty()
        lower[filled] = self.lower[self.row_pointers[:-1][filled]]
        upper[filled] = self.upper[self.row_pointers[1:][filled] - 1]
        return Intervals(lower, upper)

    def columns(self) -> Mapping[str, Any]:
        """Return the columns ``lower`` and ``upper``, the ends of the hull, ``pieces``, lists of
        pairs, and ``size``.
        """
        hull = self.hull()
        return {
            "lower": np.asarray(hull.lower, dtype=np.float64),
            "upper": np.asarray(hull.upper, dtype=np.float64),
            "pieces": list(self),
            "size": self.sizes(),
        }

    def rows(self) -> Integers:
        """The row of each interval."""
        return np.repeat(np.arange(len(self)), np.diff(self.row_pointers))


def _of_some_rows(member: Member, n: int, rows: Integers, y: ArrayLike) -> Bools:
    """Membership for some rows of sets whose own rule asks for a value of every row."""
    value, found, left = (
        responses(y, len(rows)),
        np.zeros(len(rows), dtype=bool),
        np.arange(len(rows)),
    )
    while left.size:  # one round, or as many as the commonest row was chosen times
        distinct, first = np.unique(rows[left], return_index=True)
        asked = np.zeros(n)
        asked[distinct] = value[left[first]]
        found[left[first]] = member(asked)[distinct]
        left = np.delete(left, first)
    return found


def _inside(member: Member, least: Floats, most: Floats, y: ArrayLike) -> Bools:
    """Membership of sets that were cut at limits."""
    value = responses(y, len(least))
    return np.asarray(member(value) & (least <= value) & (value <= most))


def _through(member: Member, inverse: Callable[[Any], Any], y: ArrayLike) -> Bools:
    """Membership of sets that were mapped to another scale."""
    with np.errstate(all="ignore"):  # a y outside the domain, such as log(-1): NaN is in no set
        return member(inverse(np.asarray(y, dtype=np.float64)))


def _mapped_ends(
    ends: Floats, side: float, function: Callable[[Any], Any], inverse: Callable[[Any], Any]
) -> Floats:
    """function(ends), moved to `side` (-1 is down) until the inverse is beyond the end there."""
    with np.errstate(all="ignore"):
        moved = np.array(function(ends.astype(np.float64)), dtype=np.float64)
        todo = np.flatnonzero(np.isfinite(ends))
        most = np.finfo(np.float64).max
        moved[todo] = np.minimum(moved[todo], most) if side < 0 else np.maximum(moved[todo], -most)
        step = np.spacing(np.abs(moved[todo]))
        while todo.size:
            held = np.isfinite(moved[todo]) & (side * inverse(moved[todo]) <= side * ends[todo])
            todo, step = todo[held], step[held]
            moved[todo] += side * step
            step *= 2
    return moved


def _limits(lower: ArrayLike | None, upper: ArrayLike | None, n: int) -> tuple[Floats, Floats]:
    """The limits of each row in float64: sets stored in float32 must not round them."""
    limits = []
    for name, limit, none in (("lower", lower, -np.inf), ("upper", upper, np.inf)):
        values = real_numbers(none if limit is None else limit, name=name)
        if values.shape not in ((), (n,)) or np.any(np.isnan(values)):
            raise ValueError(
                f"{name} must be one number or one for each of the {n} rows, and not "
                f"NaN; got {limit!r:.100}."
            )
        limits.append(np.broadcast_to(values.astype(np.float64), n))
    least, most = limits
    crossed = np.flatnonzero(least > most)
    if crossed.size:
        row = int(crossed[0])
        raise ValueError(
            f"lower must not exceed upper, got {least[row]:g} and {most[row]:g} for row {row}."
        )
    return least, most
