"""Read the rows of a table as models take them: features, targets and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from dco.cli.tables.cells import (
    are_whole_labels,
    is_dates,
    is_missing,
    to_floats,
    to_texts,
)
from dco.cli.tables.infer import target_column
from dco.cli.tables.layout import CategoryFeature, Layout
from dco.cli.tables.table import Column, Table
from dco.foundations.arrays import AnyArray
from dco.foundations.display import are, counted
from dco.foundations.extras import require
from dco.foundations.notes import Note
from dco.foundations.tables import MISSING

_EXAMPLES = 3  # of unseen categories, in a note
_LABELS_SHOWN = 5  # of a fitted model, in an error


def read_features(table: Table, layout: Layout) -> Any:
    """Read the features as a pandas frame.

    Numbers are float64 (NaN is missing), texts are objects (None is missing).
    """
    pandas = require("pandas", extra="tables")
    columns: dict[str, Any] = {}
    for name, feature in layout.features.items():
        values = feature.read(table.column(name))
        if values.dtype == object:
            values = pandas.Series(values, dtype=object)  # pandas would choose by its version
        columns[name] = values
    return pandas.DataFrame(columns, copy=False)


def read_targets(table: Table, layout: Layout, *, classes: AnyArray | None = None) -> AnyArray:
    """Read the target: float64 for a regression, whole numbers or texts for labels.

    `classes` are the labels of a fitted model: new labels are read in the same way, as whole
    numbers or as texts. A missing cell is an error.
    """
    assert layout.target is not None
    column = target_column(table, layout.target)
    _check_none_missing(column)
    if layout.task == "regression":
        return _read_quantities(column)
    return _read_labels(column, classes)


def _check_none_missing(column: Column) -> None:
    missing = np.flatnonzero(is_missing(column.cells))
    if missing.size:
        raise ValueError(
            f"{column.title} is missing in {counted(missing.size, 'row')} (first: row "
            f"{column.row_number(missing[0])}); remove such rows, or fit with "
            "--drop-missing-target."
        )


def _read_quantities(column: Column) -> AnyArray:
    """Read the target of a regression; dates and numbers that float64 would round are errors."""
    column.check_floats_hold()
    if is_dates(column.cells):
        raise ValueError(
            f"{column.title} contains dates; convert them to numbers, such as days since one of "
            "them."
        )
    return column.numbers()


def _read_labels(column: Column, classes: AnyArray | None) -> AnyArray:
    """Read labels as whole numbers or as texts.

    For a fitted model with these `classes`, labels are read as the fit read them. Without one, they
    are whole numbers if no two different labels become the same number.
    """
    if classes is not None:
        has_whole_classes = classes.dtype.kind in "iu"
    else:
        has_whole_classes = column.kind() == "number" and are_whole_labels(column.cells)

    labels = _whole_numbers(column) if has_whole_classes else None
    if labels is not None:
        return labels
    if classes is not None and has_whole_classes:
        raise ValueError(
            f"{column.title} has labels that are not whole numbers, unlike those of the model "
            f"({', '.join(map(str, classes[:_LABELS_SHOWN]))}); write the labels as for the fit."
        )
    return to_texts(column.cells).astype(np.str_)


def _whole_numbers(column: Column) -> AnyArray | None:
    """Read a column as integers; None if a cell is not a whole number."""
    if to_floats(column.cells, column.decimal) is None:
        return None
    values = column.numbers()
    return values.astype(np.int64) if np.all(values == np.floor(values)) else None


def read_as_text(table: Table, name: str) -> AnyArray:
    """Read a column as text, one value for each row; a missing cell is a value of its own."""
    texts: AnyArray = to_texts(table.column(name).cells, fill=MISSING).astype(np.str_)
    return texts


def name_rows(table: Table, key: str) -> list[str]:
    """Name the rows by the values of the column `key`, for a page: "patient 17"."""
    return [f"{key} {value}" for value in read_as_text(table, key)]


def without_missing_targets(table: Table, target: str) -> Table:
    """Leave out the rows whose target is missing."""
    return table.take(~is_missing(table.column(target).cells))


def note_missing_targets(n_left_out: int, n_rows: int) -> list[Note]:
    """Note how many rows were left out since their target is missing."""
    if n_left_out == 0:
        return []
    text = f"{counted(n_left_out, 'row')} of {n_rows} without a target {are(n_left_out)} left out."
    return [Note("missing-targets", text)]


class NewValues:
    """Counts of what new rows have that the rows of the fit had not, over batches and files.

    `count` adds the rows of a batch. The caller, who knows the model, adds to `new_conditions` and
    `new_gaps`.
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self.n_without_target = 0  # rows that were left out, not among `n_rows`
        self.n_new_cells: Counter[str] = Counter()  # with a category that is new, by column
        self.examples: dict[str, list[str]] = {}  # of new categories, by column
        self.new_conditions: Counter[Any] = Counter()  # rows by condition, if it is new
        self.new_gaps: Counter[Any] = Counter()  # missing cells by column, if the fit had none

    @classmethod
    def total(cls, counts: Iterable[NewValues]) -> NewValues:
        """Add up the counts of several files."""
        total = cls()
        for file_counts in counts:
            total.n_rows += file_counts.n_rows
            total.n_without_target += file_counts.n_without_target
            total.new_conditions += file_counts.new_conditions
            total.new_gaps += file_counts.new_gaps
            for column, n_cells in file_counts.n_new_cells.items():
                total._add_new_cells(column, n_cells, file_counts.examples[column])
        return total

    def count(self, X: Any, layout: Layout) -> None:
        """Count the rows of X, a frame of features, and the cells with categories that are new.

        Conditions are not counted here, since rows with a new one get a note of their own.
        """
        self.n_rows += len(X)
        for column, feature in layout.features_of(CategoryFeature).items():
            if column in layout.conditions:
                continue
            is_new = ~X[column].isin([*feature.values, None])
            new_cells = X[column][is_new]
            self._add_new_cells(column, len(new_cells), new_cells.unique())

    def _add_new_cells(self, column: str, n_cells: int, examples: Iterable[str]) -> None:
        if n_cells:
            self.n_new_cells[column] += n_cells
            all_examples = dict.fromkeys([*self.examples.get(column, []), *examples])
            self.examples[column] = list(all_examples)[:_EXAMPLES]

    def notes(self) -> list[Note]:
        """Note rows without a target, and each column with categories that the fit never saw."""
        return [
            *note_missing_targets(self.n_without_target, self.n_without_target + self.n_rows),
            *(self._note_new_cells(column) for column in self.n_new_cells),
        ]

    def _note_new_cells(self, column: str) -> Note:
        examples = ", ".join(f"{text!r:.40}" for text in self.examples[column])
        return Note(
            "new-values",
            f"The column {column!r}: {self.n_new_cells[column]:,} of {self.n_rows:,} cells have "
            f"values that the fit never saw, such as {examples}.",
        )
