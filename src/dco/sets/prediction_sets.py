"""What every kind of prediction set offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Bools, Floats, Integers, to_numpy
from dco.foundations.display import are, counted, html_table, number
from dco.foundations.extras import require

Row: TypeAlias = int | np.integer[Any]
Rows: TypeAlias = slice | Sequence[int] | Integers | Bools

_FIRST, _ROWS = 3, 10  # sets that are printed, and that a notebook shows


class PredictionSets(ABC):
    """One set per row: labels, or numbers on the real line.

    ``contains(y)`` is exactly ``observed(prediction, y) <= threshold``.
    """

    holds_labels: ClassVar[bool] = False
    n_classes: Any  # how many labels a set can hold; None for sets of numbers

    @abstractmethod
    def __len__(self) -> int:
        """Count the rows."""

    @abstractmethod
    def sizes(self) -> Floats | Integers:
        """Count the labels of each set, or measure its length on the real line."""

    @abstractmethod
    def contains(self, y: ArrayLike) -> Bools:
        """Say for each row whether its set holds its y."""

    @abstractmethod
    def is_empty(self) -> Bools:
        """Say for each row whether its set holds nothing."""

    @abstractmethod
    def is_full(self) -> Bools:
        """Say for each row whether its set rules nothing out."""

    @abstractmethod
    def columns(self) -> Mapping[str, Any]:
        """Return the sets as columns of a table, by name."""

    def has_one_label(self) -> Bools:
        """Say for each row whether its set is a single label. A set of numbers never is."""
        return np.zeros(len(self), dtype=bool)

    def knows(self, y: ArrayLike) -> Bools:
        """Say for each row whether some set could hold its y. Sets of numbers can hold any."""
        return np.ones(len(self), dtype=bool)

    def with_sorted_labels(self) -> Self:
        """Return the same sets with their labels in ascending order. Sets of numbers have none."""
        return self

    def on_host(self) -> Self:
        """Return the same sets in NumPy's arrays."""
        return self

    def to_frame(self, index: Any = None) -> Any:
        """Return a pandas DataFrame with one row per set (needs the extra ``tables``)."""
        return require("pandas", extra="tables").DataFrame(dict(self.columns()), index=index)


def described(sets: PredictionSets, shown: Callable[[int], str], *, of: str = "") -> str:
    """A line about sets, for ``print``: how many, how large, and the first few as `shown` writes
    them.
    """
    n, sizes = len(sets), np.asarray(sets.sizes(), dtype=np.float64)
    if n == 0:
        return f"{type(sets).__name__}(0 rows{of})"
    with np.errstate(over="ignore"):
        mean, empty = number(float(sizes.mean())), int(np.count_nonzero(sets.is_empty()))
    facts = f"{counted(n, 'row')}{of}, mean size {mean}, {empty} empty"
    first = ", ".join(shown(row) for row in range(min(n, _FIRST)))
    return f"{type(sets).__name__}({facts}: {first}{', ...' if n > _FIRST else ''})"


def html_of_sets(sets: PredictionSets, shown: Callable[[int], str]) -> str:
    """The first sets as a table, for notebooks, below the line of `described`."""
    n, sizes = len(sets), np.asarray(sets.sizes(), dtype=np.float64)
    rows = [[str(row), shown(row), number(float(sizes[row]))] for row in range(min(n, _ROWS))]
    with np.errstate(over="ignore"):
        facts = f"{counted(n, 'row')}, mean size {number(float(sizes.mean()))}" if n else "no rows"
    more = f", the first {_ROWS} here" if n > _ROWS else ""
    return html_table(["row", "set", "size"], rows, caption=f"{type(sets).__name__}: {facts}{more}")


def chosen(key: Row | Rows, n: int) -> int | Integers:
    """The row, or the rows, that an index means: a number, a slice, numbers or a mask, as in
    NumPy.
    """
    if isinstance(key, slice):
        return np.arange(n)[key]
    rows = np.asarray(key, dtype=object) if isinstance(key, tuple) else to_numpy(key)
    if rows.ndim == 1 and rows.dtype.kind == "b":
        if rows.size != n:
            raise IndexError(
                f"a mask must have a mark for each row: got {counted(rows.size, 'mark')} for "
                f"{counted(n, 'row')}."
            )
        return np.flatnonzero(rows)
    if rows.ndim > 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise IndexError(
            f"rows are chosen by a number, a slice, a list of numbers or a mask, got {key!r:.100}."
        )
    outside = rows[(rows < -n) | (rows >= n)]
    if outside.size:
        raise IndexError(f"there is no row {int(outside[0])}: there {are(n)} {counted(n, 'row')}.")
    places = rows.astype(np.int64) % max(n, 1)
    return places if rows.ndim else int(places)


def compressed_rows(row_pointers: Integers, rows: Integers) -> tuple[Integers, Integers]:
    """Row pointers of the chosen rows, and where their entries are: ``codes[places]`` are the codes
    of those rows.
    """
    lengths = np.diff(row_pointers)[rows]
    pointers = np.zeros(rows.size + 1, dtype=np.int64)
    np.cumsum(lengths, out=pointers[1:])
    shift = np.asarray(row_pointers)[:-1][rows] - pointers[:-1]
    return pointers, np.arange(pointers[-1]) + np.repeat(shift, lengths)
