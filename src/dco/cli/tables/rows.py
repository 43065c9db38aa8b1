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


def read_groups(table: Table, name: str) -> AnyArray:
    """Read a column as text, one value for each row; a missing cell is a value of its own."""
    texts: AnyArray = to_texts(table.column(name).cells, fill=MISSING).astype(np.str_)
    return texts


def name_rows(table: Table, key: str) -> list[str]:
    """Name the rows by the values of the column `key`, for a page: "patient 17"."""
    return [f"{key} {value}" for value in read_groups(table, key)]


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

    `count` adds the rows of a batch. The caller, who knows the model, adds to `conditions` and
    `gaps`.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.left_out = 0  # rows without a target, not among `rows`
        self.cells: Counter[str] = Counter()  # with a category that is new, by column
        self.examples: dict[str, list[str]] = {}  # of new categories, by column
        self.conditions: Counter[Any] = Counter()  # rows of conditions without calibration rows
        self.gaps: Counter[Any] = Counter()  # missing values, by column

    @classmethod
    def total(cls, counts: Iterable[NewValues]) -> NewValues:
        """Add up the counts of several files."""
        total = cls()
        for part in counts:
            total.rows += part.rows
            total.left_out += part.left_out
            total.conditions += part.conditions
            total.gaps += part.gaps
            for name, n_cells in part.cells.items():
                total._add_cells(name, n_cells, part.examples[name])
        return total

    def count(self, X: Any, layout: Layout) -> None:
        """Count the rows of X, a frame of features, and the cells with categories that are new.

        Conditions are not counted here, since rows with a new one get a note of their own.
        """
        self.rows += len(X)
        for name, feature in layout.features_of(CategoryFeature).items():
            if name in layout.conditions:
                continue
            is_new = ~X[name].isin([*feature.values, None])
            new_cells = X[name][is_new]
            self._add_cells(name, len(new_cells), new_cells.unique())

    def _add_cells(self, name: str, n_cells: int, examples: Iterable[str]) -> None:
        if n_cells:
            self.cells[name] += n_cells
            all_examples = dict.fromkeys([*self.examples.get(name, []), *examples])
            self.examples[name] = list(all_examples)[:_EXAMPLES]

    def notes(self) -> list[Note]:
        """Note rows without a target, and each column with categories that the fit never saw."""
        return [
            *note_missing_targets(self.left_out, self.left_out + self.rows),
            *(self._note_new_cells(name) for name in self.cells),
        ]

    def _note_new_cells(self, name: str) -> Note:
        examples = ", ".join(f"{text!r:.40}" for text in self.examples[name])
        return Note(
            "new-values",
            f"The column {name!r}: {self.cells[name]:,} of {self.rows:,} cells have values that "
            f"the fit never saw, such as {examples}.",
        )
