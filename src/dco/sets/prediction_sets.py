"""What every kind of prediction set offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Bools, Floats, Integers, to_numpy
from dco.foundations.display import are, counted
from dco.foundations.extras import require
from dco.sets.printing import summarise_sets, tabulate_sets

Row: TypeAlias = int | np.integer[Any]
Rows: TypeAlias = slice | Sequence[int] | Integers | Bools


class PredictionSets(ABC):
    """One set per row: labels, or numbers on the real line.

    ``contains(y)`` is exactly ``observed(prediction, y) <= threshold``.
    """

    holds_labels: ClassVar[bool] = False

    @property
    def n_classes(self) -> int | None:
        """The number of labels that a set can hold; None for sets of numbers."""
        return None

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

    @abstractmethod
    def describe_row(self, row: int) -> str:
        """Write the set of one row in a few words."""

    def describe_kind(self) -> str:
        """Say what the sets hold, where printing them needs to."""
        return ""

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

    def __repr__(self) -> str:
        return summarise_sets(self.on_host())

    def _repr_html_(self) -> str:
        return tabulate_sets(self.on_host())


def positions_of(key: Row | Rows, n_rows: int) -> int | Integers:
    """Translate the key of ``sets[key]`` into row numbers from 0 to n_rows - 1.

    One row number gives an int. A slice, a list of row numbers, or a mask (one boolean per row)
    gives an array. As in NumPy, negative numbers count from the end: with 5 rows, -1 gives 4.
    """
    if isinstance(key, slice):
        return np.arange(n_rows)[key]
    rows = np.asarray(key, dtype=object) if isinstance(key, tuple) else to_numpy(key)

    is_mask = rows.ndim == 1 and rows.dtype.kind == "b"
    if is_mask:
        if rows.size != n_rows:
            raise IndexError(
                f"a mask must have a mark for each row: got {counted(rows.size, 'mark')} for "
                f"{counted(n_rows, 'row')}."
            )
        return np.flatnonzero(rows)

    are_integers = rows.size == 0 or rows.dtype.kind in "iu"
    if rows.ndim > 1 or not are_integers:
        raise IndexError(
            f"rows are chosen by a number, a slice, a list of numbers or a mask, got {key!r:.100}."
        )
    outside = rows[(rows < -n_rows) | (rows >= n_rows)]
    if outside.size:
        raise IndexError(
            f"there is no row {int(outside[0])}: there {are(n_rows)} {counted(n_rows, 'row')}."
        )
    positions = rows.astype(np.int64) % max(n_rows, 1)
    return positions if rows.ndim else int(positions)
