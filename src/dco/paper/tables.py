"""Result tables: cells as numbers, written as text, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np


@dataclass(frozen=True)
class Measured:
    """A mean over splits and its standard deviation over them (divisor n - 1); one split has no
    standard deviation.
    """

    mean: float
    sd: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Measured:
        """Mean and standard deviation of these numbers."""
        array = np.asarray(list(values), dtype=np.float64)
        known = array.size > 1 and bool(np.isfinite(array).all())
        return cls(float(array.mean()), float(array.std(ddof=1)) if known else math.nan)


def standard_errors(
    ours: Measured, paper: tuple[float, float], splits: int, paper_splits: int = 50
) -> float | None:
    """(ours - paper's) over the standard error of the difference; None for one split."""
    if math.isnan(ours.sd):
        return None
    return (ours.mean - paper[0]) / math.sqrt(ours.sd**2 / splits + paper[1] ** 2 / paper_splits)


Cell: TypeAlias = str | int | float | Measured | None


@dataclass(frozen=True)
class ResultTable:
    """A table with a title, a caption that says what was measured, named columns, and rows of
    cells.

    `digits` are the decimals of numbers in text and Markdown; CSV and JSON keep full precision. A
    `Measured` cell prints as "mean ± sd" and becomes two columns in CSV.
    """

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    digits: int = 3

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.title!r} has {len(self.columns)} columns, but a row has "
                    f"{len(row)}: {row!r:.200}"
                )

    @classmethod
    def of(
        cls, title: str, caption: str, rows: Sequence[Mapping[str, Cell]], digits: int = 3
    ) -> ResultTable:
        """A table from rows that name their cells; all rows have the columns of the first."""
        columns = tuple(rows[0]) if rows else ()
        return cls(
            title,
            caption,
            columns,
            tuple(tuple(row[name] for name in columns) for row in rows),
            digits,
        )

    @property
    def slug(self) -> str:
        """The title as a file name."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")

    def column(self, name: str) -> list[Cell]:
        """The cells of one column."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def shown(self) -> list[list[str]]:
        """The cells as text."""
        return [[_shown(cell, self.digits) for cell in row] for row in self.rows]

    def to_markdown(self) -> str:
        """Title, table and caption in Markdown."""
        lines = [f"### {self.title}", "", _bar(self.columns), _bar("---" for _ in self.columns)]
        lines += [_bar(cell.replace("|", "\\|") for cell in row) for row in self.shown()]
        return "\n".join([*lines, "", self.caption, ""])

    def to_csv(self) -> str:
        """The numbers in full precision; a `Measured` column becomes two."""
        double = [
            any(isinstance(row[place], Measured) for row in self.rows)
            for place in range(len(self.columns))
        ]
        page = io.StringIO()
        writer = csv.writer(page, lineterminator="\n")
        writer.writerow(
            [
                part
                for name, two in zip(self.columns, double, strict=True)
                for part in _header(name, two)
            ]
        )
        for row in self.rows:
            writer.writerow(
                [part for cell, two in zip(row, double, strict=True) for part in _raw(cell, two)]
            )
        return page.getvalue()

    def to_json(self) -> str:
        """The table as one JSON object; numbers that are not finite become strings."""
        cells = [[_json_cell(cell) for cell in row] for row in self.rows]
        return json.dumps(
            {
                "title": self.title,
                "caption": self.caption,
                "columns": list(self.columns),
                "rows": cells,
            },
            ensure_ascii=False,
            allow_nan=False,
        )


def _shown(cell: Cell, digits: int) -> str:
    if cell is None:
        return ""
    if isinstance(cell, Measured):
        shown = _number(cell.mean, digits)
        return shown if math.isnan(cell.sd) else f"{shown} ± {_number(cell.sd, digits)}"
    if isinstance(cell, float):
        return _number(cell, digits)
    return str(cell)


def _number(value: float, digits: int) -> str:
    if math.isfinite(value) and value != 0 and abs(value) < 0.5 * 10.0**-digits:
        return f"{value:.1e}"
    return f"{value:.{digits}f}"


def _bar(parts: Iterable[str]) -> str:
    return "| " + " | ".join(parts) + " |"


def _header(name: str, two: bool) -> list[str]:
    return [name, f"{name} sd"] if two else [name]


def _raw(cell: Cell, two: bool) -> list[str]:
    if isinstance(cell, Measured):
        return [repr(cell.mean), repr(cell.sd)]
    shown = "" if cell is None else repr(cell) if isinstance(cell, float) else str(cell)
    return [shown, ""] if two else [shown]


def _json_cell(cell: Cell) -> Any:
    if isinstance(cell, Measured):
        return {"mean": _json_cell(cell.mean), "sd": _json_cell(cell.sd)}
    if isinstance(cell, float) and not math.isfinite(cell):
        return str(cell)
    return cell
