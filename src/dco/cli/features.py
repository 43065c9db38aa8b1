"""The rows of an Arrow table as models take them: features, targets, groups, and categories that the fit never saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dco.cli import cells
from dco.cli.arrow import arrow, compute
from dco.cli.columns import Asked
from dco.cli.layout import Layout, need_column
from dco.foundations.arrays import AnyArray
from dco.foundations.display import are, counted
from dco.foundations.extras import require
from dco.foundations.notes import Note, show
from dco.rows.conditions import MISSING

_EXAMPLES = 3


def features(table: Any, layout: Layout, *, path: Path, first_row: int = 0) -> Any:
    """The features as a pandas frame: numbers as float64 (NaN is missing), texts as str (None is missing)."""
    pandas = require("pandas", extra="tables")
    columns: dict[str, Any] = {}
    are_texts, are_dates = set(layout.texts), set(layout.dates or ())
    for name in layout.order:
        column = table.column(name)
        if name in are_texts:
            if cells.is_date(column.type):
                raise ValueError(
                    f"{path}: the column {name!r} contains dates, and the fit read it as text; write it as for the fit."
                )
            texts = cells.as_texts(column, fill=MISSING if name in layout.conditions else None)
            columns[name] = pandas.Series(texts, dtype=object)  # pandas would choose by its version
        elif name in are_dates:
            columns[name] = cells.seconds(column, name, path=path, first_row=first_row)
        elif layout.dates is not None and cells.is_date(column.type):
            raise ValueError(f"{path}: the column {name!r} contains dates, and the fit had numbers there; give numbers.")
        else:
            columns[name] = cells.numbers(column, name, path=path, first_row=first_row, decimal=layout.decimal)
    frame = pandas.DataFrame(columns, copy=False)
    frame.attrs["dates"] = layout.dates  # so that slices of them read as dates
    return frame


def known_targets(table: Any, asked: Asked | Layout, *, path: Path) -> Any:
    """The rows whose target is known, if rows without one are to be left out; otherwise the table as it is."""
    if not asked.drop_missing_target or asked.target is None:
        return table
    need_column(table.column_names, asked.target, path=path, option="--target")
    missing = _missing(table.column(asked.target))
    count = int(np.count_nonzero(missing.to_numpy(zero_copy_only=False)))
    if count:
        text = f"{counted(count, 'row')} of {table.num_rows} without a target {are(count)} left out."
        show([Note("missing-targets", text)])
    return table.filter(compute.invert(missing))


def _missing(column: Any) -> Any:
    """Which cells of a target are missing; a label called NA would be taken for a class."""
    return cells.with_gaps(column).is_null() if cells.is_text(column.type) else column.is_null(nan_is_null=True)


def targets(table: Any, layout: Layout, *, path: Path, classes: AnyArray | None = None) -> AnyArray:
    """The target column: float64 for a regression, whole numbers or texts for classes. No cell may be missing."""
    assert layout.target is not None
    column, target = table.column(layout.target), f"{path}: the target {layout.target!r}"
    missing = _missing(column)
    count = int(np.count_nonzero(missing.to_numpy(zero_copy_only=False)))
    if count:
        row = cells.first_true(missing)
        raise ValueError(
            f"{target} is missing in {counted(count, 'row')} (first: row {row + 1}); remove such rows, or fit "
            "with --drop-missing-target."
        )
    if layout.task == "regression":
        rounded = cells.first_rounded_cell(column, layout.decimal)
        if rounded is not None:
            raise ValueError(
                f"{target} is {column[rounded]} in row {rounded + 1}, which float64 rounds, so that different values would "
                "become equal; subtract a whole number from the column first."
            )
        if cells.is_date(column.type):
            raise ValueError(f"{target} contains dates; convert them to numbers, such as days since one of them.")
        return cells.numbers(column, layout.target, path=path, decimal=layout.decimal)
    if classes is None:
        whole = cells.kind_of(column, layout.target, path, layout.decimal) == "number" and cells.are_whole_labels(column)
    else:
        whole = classes.dtype.kind in "iu" and cells.as_float(column, layout.decimal) is not None
    if whole:
        values = cells.numbers(column, layout.target, path=path, decimal=layout.decimal)
        if np.all(values == np.floor(values)):
            return values.astype(np.int64)
    if classes is not None and classes.dtype.kind in "iu":
        raise ValueError(
            f"{target} has labels that are not whole numbers, unlike those of the model "
            f"({', '.join(map(str, classes[:5]))}); write the labels as for the fit."
        )
    return np.asarray([str(value) for value in cells.as_texts(column)])


def labels(table: Any, name: str | None, rows: AnyArray | None = None) -> AnyArray | None:
    """A column as text, one value per row (of `rows`), for groups; None if no column is named."""
    if name is None:
        return None
    found = np.asarray([str(value) for value in cells.as_texts(table.column(name), fill=MISSING)])
    return found if rows is None else found[rows]


def row_names(table: Any, key: str | None, rows: AnyArray | None = None) -> list[str] | None:
    """What the rows are called on a page, if there is a key column."""
    found = labels(table, key, rows)
    return None if found is None else [f"{key} {value}" for value in found]


class NewValues:
    """Cells with categories that the fit never saw, counted by column."""

    def __init__(self) -> None:
        self.rows = 0
        self.cells: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def count(self, table: Any, layout: Layout) -> None:
        """Count the cells of a table; not of the condition's column, since such rows get another note."""
        self.rows += table.num_rows
        there = set(table.column_names)
        for name, kept in layout.categories.items():
            if name not in layout.conditions and name in there:
                unknown = _unlike(table.column(name), kept)
                self._add(name, unknown, len(unknown))

    def add(self, other: NewValues) -> None:
        """Add what was counted elsewhere."""
        self.rows += other.rows
        for name, examples in other.examples.items():
            self._add(name, examples, other.cells[name])

    def _add(self, name: str, texts: list[str], count: int) -> None:
        if count:
            self.cells[name] += count
            self.examples[name] = list(dict.fromkeys([*self.examples.get(name, []), *texts]))[:_EXAMPLES]

    def notes(self) -> list[Note]:
        """One note per column."""
        found = []
        for name, count in self.cells.items():
            shown = ", ".join(f"{text!r:.40}" for text in self.examples[name])
            text = (
                f"The column {name!r}: {count:,} of {self.rows:,} cells have values that the fit never saw, such as {shown}."
            )
            found.append(Note("new-values", text))
        return found


def _unlike(column: Any, kept: Sequence[str]) -> list[str]:
    """The cells that are neither missing nor among these."""
    if not cells.is_text(column.type):
        column = arrow.chunked_array([arrow.array(cells.as_texts(column), arrow.string())])
    known = compute.is_in(column, value_set=arrow.array(kept, column.type))
    return [str(text) for text in column.filter(compute.and_not(compute.is_valid(column), known)).to_pylist()]
