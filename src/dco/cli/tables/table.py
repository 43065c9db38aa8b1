"""Some rows of a table as Arrow columns, with what a message about a cell needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from dco.cli.tables.cells import (
    OTHER_SIGN,
    first_rounded_row,
    first_unreadable_row,
    has_codes,
    is_categories,
    is_dates,
    is_text,
    to_floats,
    to_seconds,
    with_gaps,
)
from dco.cli.tables.dates import FORMS, ISO, forms_of
from dco.foundations.arrays import Bools, Floats, Integers

CellKind: TypeAlias = Literal["number", "date", "text"]

_LONGEST_CELL = 40  # characters of a cell in a message


@dataclass(frozen=True, eq=False)
class Table:
    """Some rows of a table file.

    `positions` says where the rows are in the file, from 0; messages count rows from 1. `decimal`
    is the decimal sign of numbers in text.
    """

    cells: Any  # a pyarrow.Table
    path: Path
    positions: Integers
    decimal: str = "."

    def __len__(self) -> int:
        return int(self.cells.num_rows)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.cells.column_names)

    def column(self, name: str, *, called: str = "the column") -> Column:
        """Return a column; messages about it begin with the file, `called` and the name."""
        return Column(
            cells=self.cells.column(name),
            name=name,
            title=f"{self.path}: {called} {name!r}",
            positions=self.positions,
            decimal=self.decimal,
        )

    def take(self, rows: Integers | Bools) -> Table:
        """Return some of the rows, by their numbers or by a mask."""
        cells = self.cells.filter(rows) if rows.dtype == bool else self.cells.take(rows)
        return Table(cells, self.path, positions=self.positions[rows], decimal=self.decimal)


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a table; `title` is what messages call it, with the file."""

    cells: Any  # a pyarrow.ChunkedArray
    name: str
    title: str
    positions: Integers
    decimal: str = "."

    def describe_cell(self, row: int) -> str:
        """Quote a cell and say in which row of the file it is: "'oops' in row 2"."""
        quoted = repr(str(self.cells[row]))[:_LONGEST_CELL]
        return f"{quoted} in row {self.row_number(row)}"

    def row_number(self, row: int) -> int:
        """Number a row as people count the rows of the file, from 1."""
        return int(self.positions[row]) + 1

    def kind(self) -> CellKind:
        """Decide whether the cells are numbers, dates or text.

        A column of text holds numbers if all its cells are numbers and none is a code such as 007,
        which would lose a character as a number.
        """
        if is_categories(self.cells):
            return "text"
        if is_dates(self.cells):
            return "date"
        if not is_text(self.cells):
            return self._kind_of_typed_cells()
        if to_floats(self.cells, self.decimal) is not None:
            return "text" if has_codes(self.cells) else "number"
        return "date" if forms_of(with_gaps(self.cells)) else "text"

    def _kind_of_typed_cells(self) -> CellKind:
        """Accept cells of a type that can be read as numbers; others are an error."""
        if to_floats(self.cells) is None:
            raise ValueError(
                f"{self.title} holds {self.cells.type}, which no model here can use; leave it out "
                f"with --drop {self.name!r}, or convert it to numbers or text."
            )
        return "number"

    def numbers(self) -> Floats:
        """Read the column as float64, NaN where a cell is missing.

        If a cell is not a finite number, the error says which cell it is and what to do.
        """
        values = to_floats(self.cells, self.decimal)
        if values is None:
            raise self._not_a_number()

        is_infinite = np.isinf(values)
        if is_infinite.any():
            raise ValueError(
                f"{self.title} is infinite in row {self.row_number(int(np.argmax(is_infinite)))}; "
                "write a finite number, or leave the cell empty if the value is missing."
            )
        return values

    def _not_a_number(self) -> ValueError:
        """Make the error about the first cell that is no number, with advice."""
        other = OTHER_SIGN[self.decimal]
        advice = "."
        if to_floats(self.cells, other) is not None:
            sign = "a comma" if other == "," else "a point"
            advice = f"; if {sign} is the decimal sign, use --decimal {other}"
        return ValueError(
            f"{self.title} has {self.describe_not_a_number()}, where a number is expected; correct "
            f"the cell, or leave it empty if the value is missing{advice}"
        )

    def describe_not_a_number(self) -> str:
        """Describe the first cell that is no number, such as "'oops' in row 2"."""
        return self._describe_unreadable(lambda cells: to_floats(cells, self.decimal))

    def _describe_unreadable(self, read: Callable[[Any], object | None]) -> str:
        """Describe the first cell that `read` cannot read; it returns None for such cells."""
        return self.describe_cell(first_unreadable_row(self.cells, read))

    def seconds(self, form: str) -> Floats:
        """Read dates as seconds since 1970.

        The column has dates, or text that is written as 2026-01-31 or in the form of the fit:
        `form` is a name in `FORMS`, such as "day-first". If a cell is none of these, the error says
        which cell it is and what to do.
        """
        values = to_seconds(self.cells, form)
        if values is not None:
            return values

        unreadable = self._describe_unreadable(lambda cells: to_seconds(cells, form))
        other_form = "" if form == ISO else f" or as {FORMS[form].example} ({form})"
        raise ValueError(
            f"{self.title} has {unreadable}, where the fit had dates; write dates as 2026-01-31"
            f"{other_form} (all or no times with a zone), or leave the cell empty if the date is "
            "missing."
        )

    def check_floats_hold(self) -> None:
        """Refuse numbers that float64 would round, since different ones would become equal."""
        row = first_rounded_row(self.cells, self.decimal)
        if row is not None:
            raise ValueError(
                f"{self.title} is {self.cells[row]} in row {self.row_number(row)}, which float64 "
                "rounds, so that different values would become equal; subtract a whole number "
                "from the column first."
            )
