"""Tables of results: cells as numbers, written as text, Markdown, CSV or JSON."""

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

PAPER_SPLITS = 50  # the number of random splits behind every mean that the paper prints


@dataclass(frozen=True)
class Measured:
    """A mean over splits and its standard deviation over them (divisor n - 1).

    The standard deviation is NaN for a single split, and where a value is infinite.
    """

    mean: float
    sd: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Measured:
        """Take the mean and the standard deviation of these numbers."""
        array = np.asarray(list(values), dtype=np.float64)
        has_sd = array.size > 1 and bool(np.isfinite(array).all())
        sd = float(array.std(ddof=1)) if has_sd else math.nan
        return cls(mean=float(array.mean()), sd=sd)


def difference_in_standard_errors(
    ours: Measured, paper: Measured | None, splits: int, *, sd_over_subsamples: float = 0.0
) -> float | None:
    """Return (our mean - the paper's) over the standard error of the difference.

    Our mean is over `splits` splits, the paper's over 50. Where each is of another subsample of the
    rows, `sd_over_subsamples` is the standard deviation of a mean from one subsample to the next.
    None where the paper prints no mean, or our standard deviation is unknown.
    """
    if paper is None or math.isnan(ours.sd):
        return None
    variance = ours.sd**2 / splits + paper.sd**2 / PAPER_SPLITS + 2 * sd_over_subsamples**2
    return (ours.mean - paper.mean) / math.sqrt(variance)


def ratio_of_means(first: Measured | None, second: Measured | None) -> float | None:
    """Return the first mean over the second; None where one of them is missing."""
    if first is None or second is None:
        return None
    return first.mean / second.mean


Cell: TypeAlias = str | int | float | Measured | None
TableRow: TypeAlias = dict[str, Cell]  # a row of a table: its cells by the names of the columns


@dataclass(frozen=True)
class ResultTable:
    """A table with a title, a caption that says what was measured, named columns, and rows.

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
        """Make a table from rows that name their cells; all have the columns of the first row.

        Without rows the table has no columns.
        """
        columns = tuple(rows[0]) if rows else ()
        cells = tuple(tuple(row[name] for name in columns) for row in rows)
        return cls(title=title, caption=caption, columns=columns, rows=cells, digits=digits)

    @property
    def slug(self) -> str:
        """The title as the name of a file."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")

    def column(self, name: str) -> list[Cell]:
        """Return the cells of one column."""
        position = self.columns.index(name)
        return [row[position] for row in self.rows]

    def shown(self) -> list[list[str]]:
        """Write every cell as text, row by row."""
        return [[cell_as_text(cell, self.digits) for cell in row] for row in self.rows]

    def to_markdown(self) -> str:
        """Write title, table and caption in Markdown."""
        lines = [f"### {self.title}", ""]
        lines.append(markdown_row(self.columns))
        lines.append(markdown_row("---" for _ in self.columns))
        for row in self.shown():
            lines.append(markdown_row(cell.replace("|", "\\|") for cell in row))
        return "\n".join([*lines, "", self.caption, ""])

    def to_csv(self) -> str:
        """Write the table as the text of a CSV file, with numbers in full precision.

        A column in which a cell is a mean with its standard deviation (`Measured`) becomes two
        columns: "size" and "size sd".
        """
        is_measured = [
            any(isinstance(cell, Measured) for cell in self.column(name)) for name in self.columns
        ]
        header: list[str] = []
        for name, has_sd in zip(self.columns, is_measured, strict=True):
            header.append(name)
            if has_sd:
                header.append(f"{name} sd")

        page = io.StringIO()
        writer = csv.writer(page, lineterminator="\n")
        writer.writerow(header)
        for row in self.rows:
            values: list[str] = []
            for cell, has_sd in zip(row, is_measured, strict=True):
                values += csv_values(cell, with_sd=has_sd)
            writer.writerow(values)
        return page.getvalue()

    def to_json(self) -> str:
        """Write the table as one JSON object; numbers that are not finite become strings."""
        content = {
            "title": self.title,
            "caption": self.caption,
            "columns": list(self.columns),
            "rows": [[json_value(cell) for cell in row] for row in self.rows],
        }
        return json.dumps(content, ensure_ascii=False, allow_nan=False)


def join_sentences(*sentences: str) -> str:
    """Join the sentences of a caption by spaces; an empty one is left out."""
    return " ".join(sentence for sentence in sentences if sentence)


def cell_as_text(cell: Cell, digits: int) -> str:
    """Write a cell for people, numbers with `digits` decimals: "1.914 ± 0.192", "0.805"."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        return number_as_text(cell, digits)
    if isinstance(cell, Measured):
        mean = number_as_text(cell.mean, digits)
        if math.isnan(cell.sd):
            return mean
        return f"{mean} ± {number_as_text(cell.sd, digits)}"
    return str(cell)


def number_as_text(value: float, digits: int) -> str:
    """Write a number with `digits` decimals, or as 1.2e-07 where these would show only zeros."""
    would_show_zero = value != 0 and abs(value) < 0.5 * 10.0**-digits
    return f"{value:.1e}" if would_show_zero else f"{value:.{digits}f}"


def markdown_row(cells: Iterable[str]) -> str:
    """Join cells into one line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def csv_values(cell: Cell, *, with_sd: bool) -> list[str]:
    """Write a cell for CSV: one value, or mean and sd where its column has become two."""
    if isinstance(cell, Measured):
        return [repr(cell.mean), repr(cell.sd)]
    if cell is None:
        text = ""
    elif isinstance(cell, float):
        text = repr(cell)
    else:
        text = str(cell)
    return [text, ""] if with_sd else [text]


def json_value(cell: Cell) -> Any:
    """Turn a cell into what JSON can hold: infinity and NaN become the strings "inf" and "nan"."""
    if isinstance(cell, Measured):
        return {"mean": json_value(cell.mean), "sd": json_value(cell.sd)}
    if isinstance(cell, float) and not math.isfinite(cell):
        return str(cell)
    return cell
