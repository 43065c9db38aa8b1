"""Cells of a table as numbers and categories, and their preparation, which treats rows alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray, Floats
from dco.foundations.tables import MISSING, is_frame, is_missing

_CONSTANT = 1e-12  # a column whose standard deviation is smaller, relatively, is constant


@dataclass(frozen=True, eq=False)
class ColumnKinds:
    """The positions of the columns that hold numbers, and of those that hold categories."""

    numbers: list[int]
    categories: list[int]


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a table.

    `numbers` (n, p) are NaN where they are missing. `categories` (n, q) are texts; a missing one is
    a category like the others.
    """

    numbers: Floats
    categories: AnyArray

    def __len__(self) -> int:
        return len(self.numbers)

    def with_row(self, other: Cells, row: int) -> Cells:
        """Return these rows and, below them, one row of another table."""
        return Cells(
            numbers=np.vstack([self.numbers, other.numbers[row]]),
            categories=np.vstack([self.categories, other.categories[row]]),
        )


def column_kinds_of(X: Any) -> ColumnKinds:
    """Tell columns of numbers from columns of categories.

    In a frame the type of a column decides, and truth values are categories. A column of an array
    holds categories if one of its cells is a text.
    """
    n_columns = X.shape[1]
    holds_numbers = [_holds_numbers(_column(X, position)) for position in range(n_columns)]
    return ColumnKinds(
        numbers=[position for position in range(n_columns) if holds_numbers[position]],
        categories=[position for position in range(n_columns) if not holds_numbers[position]],
    )


def read_cells(X: Any, kinds: ColumnKinds) -> Cells:
    """Read the cells of a frame or an array."""
    n = X.shape[0]
    numbers = np.empty((n, len(kinds.numbers)))
    for number, position in enumerate(kinds.numbers):
        numbers[:, number] = _read_numbers(_column(X, position), position)

    categories = np.empty((n, len(kinds.categories)), dtype=object)
    for number, position in enumerate(kinds.categories):
        cells = _column(X, position)
        categories[:, number] = [MISSING if is_missing(cell) else str(cell) for cell in cells]
    return Cells(numbers=numbers, categories=categories.astype(str))


def prepare(cells: Cells) -> Floats:
    """Turn cells into numbers: columns of unit variance, and one column for each category.

    Missing numbers become the median of their column. Everything is computed from all rows of
    `cells`, in the same way for each.
    """
    scaled = _scale(_fill_gaps(cells.numbers))
    indicators = [column[:, None] == np.unique(column) for column in cells.categories.T]
    return np.hstack([scaled, *indicators]).astype(np.float64)


def _fill_gaps(numbers: Floats) -> Floats:
    """Replace NaN by the median of the column, or by 0 in a column of NaN only."""
    filled = numbers.copy()
    for column in filled.T:
        is_gap = np.isnan(column)
        if is_gap.any():
            column[is_gap] = 0.0 if is_gap.all() else np.median(column[~is_gap])
    return filled


def _scale(numbers: Floats) -> Floats:
    """Give each column mean 0 and variance 1; a constant one becomes 0."""
    centred = numbers - np.mean(numbers, axis=0)
    sd = np.std(numbers, axis=0)
    is_constant = sd <= _CONSTANT * np.max(np.abs(numbers), axis=0, initial=0.0)
    return np.where(is_constant, 0.0, centred / np.where(is_constant, 1.0, sd))


def _column(X: Any, position: int) -> Any:
    """Return one column of a frame of pandas or polars, or of an array."""
    if hasattr(X, "iloc"):
        return X.iloc[:, position]
    if is_frame(X):
        return X.to_series(position)
    return X[:, position]


def _holds_numbers(column: Any) -> bool:
    """Tell whether a column of a frame or an array holds numbers."""
    dtype = column.dtype
    if hasattr(dtype, "is_numeric"):  # polars
        return bool(dtype.is_numeric())
    is_of_frame = hasattr(column, "isna")
    if is_of_frame:
        return dtype.kind in "iuf"
    return not any(isinstance(cell, str) for cell in column)


def _read_numbers(column: Any, position: int) -> Floats:
    """Read a column of numbers; missing ones are NaN, infinite ones and texts are refused."""
    try:
        if hasattr(column, "isna"):  # pandas
            numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            numbers = np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Column {position} of X held numbers in fit, and now holds {error}."
        ) from error
    if np.isinf(numbers).any():
        raise ValueError(f"Column {position} of X holds an infinite number: replace it first.")
    return np.asarray(numbers)
