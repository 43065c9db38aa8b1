"""A folder of results as one page: its tables, and its figures embedded as images."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, zip_longest
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeAlias

from dco.foundations.files import write_file
from dco.report.finding import Finding, explain_method, find_differences
from dco.report.rendering import data_address, render_template

IMAGES = {".svg": "image/svg+xml", ".png": "image/png"}
MOST_ROWS = 200  # of a table that is shown
PHONE_WIDTH = 46  # characters of a line of a table
METHOD_COLUMNS = ("method", "first", "second")
NUMBER = re.compile(r"–|[-−+]?(\d[\d\s,.\u202f]*|inf|∞)(e[-+]?\d+)?\s*%?(\s*(±|\()\s*[\d.,]+\)?)?")


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of a result."""

    text: str
    is_table: ClassVar[bool] = False


@dataclass(frozen=True)
class Table:
    """A table of a result; `left_out` of its rows are not shown.

    A column is aligned right where all its cells are numbers.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0
    is_table: ClassVar[bool] = True

    @classmethod
    def of(cls, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
        """Make a table; a row may be longer than the head."""
        width = max(map(len, rows), default=0)
        missing_names = [""] * (width - len(head))
        return cls(
            head=(*head, *missing_names),
            rows=tuple(map(tuple, rows[:MOST_ROWS])),
            left_out=max(0, len(rows) - MOST_ROWS),
        )

    @cached_property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        """The cells of each column that hold text."""
        if not self.rows:
            return ((),) * len(self.head)
        columns = zip_longest(*self.rows, fillvalue="")
        return tuple(tuple(cell for cell in column if cell.strip()) for column in columns)

    @cached_property
    def numeric(self) -> tuple[bool, ...]:
        """Whether each column holds numbers."""
        return tuple(
            bool(self.rows) and all(NUMBER.fullmatch(cell.strip()) for cell in cells)
            for cells in self.columns
        )

    @property
    def name_column(self) -> int | None:
        """The column that names the rows: the first one of words."""
        for position, is_numeric in enumerate(self.numeric):
            if not is_numeric:
                return position
        return None

    @property
    def layout(self) -> tuple[str, ...]:
        """The classes of the table: small print, columns of sentences, blocks on a phone."""
        n_sentence_columns = sum(
            any(len(cell) > 40 for cell in cells)
            for cells, is_numeric in zip(self.columns, self.numeric, strict=True)
            if not is_numeric
        )
        classes = []
        if len(self.head) > 10:
            classes.append("wide")
        if n_sentence_columns > 1:
            classes.append("prose")
        if self.narrowest_width() > PHONE_WIDTH:
            classes.append("stack")
        return tuple(classes)

    def narrowest_width(self) -> int:
        """Count the characters that a line takes at least: words are wrapped, numbers are not."""
        total = 0
        for head, cells, is_numeric in zip(self.head, self.columns, self.numeric, strict=True):
            unbroken = head.split()
            narrowest = 0
            if is_numeric:
                unbroken += cells
            else:
                unbroken += " ".join(cells).split()
                narrowest = min(14, max(map(len, cells), default=0))
            total += 2 + max([narrowest, *map(len, unbroken)])
        return total

    def kind(self, column: int, cell: str) -> str:
        """Return the class of a cell: a number, or words by how much room they need."""
        if self.numeric[column]:
            return "n"
        if len(cell) > 40:
            return "long"
        has_long_words = any(len(other) > 16 for other in self.columns[column])
        return "short wordy" if has_long_words else "short"

    def methods(self) -> list[str]:
        """Return the cells that name methods."""
        positions = [k for k, head in enumerate(self.head) if head in METHOD_COLUMNS]
        return [row[k] for row in self.rows for k in positions if k < len(row)]


class Content(NamedTuple):
    """The content of a file or section: a title, empty if it has none, and what is below it."""

    title: str
    blocks: tuple[Paragraph | Table, ...]


@dataclass(frozen=True)
class Result:
    """One section of the page: a heading, blocks, and a figure as a data address."""

    title: str
    blocks: tuple[Paragraph | Table, ...]
    figure: str | None = None

    def tables(self) -> list[Table]:
        """Return the blocks that are tables."""
        return [block for block in self.blocks if isinstance(block, Table)]


def write_results_page(folder: Path | str, path: Path | str, *, title: str | None = None) -> Path:
    """Write the tables (``*.md``, ``*.csv``) and figures (``*.svg``, ``*.png``) of a folder."""
    write_file(path, results_html(folder, title=title), overwrite=True)
    return Path(path)


def results_html(folder: Path | str, *, title: str | None = None) -> str:
    """Return the page of a folder as text."""
    if not Path(folder).is_dir():
        raise ValueError(
            f"{folder} is not a folder of results; run `dco reproduce` first, or give another "
            f"folder."
        )
    results = read_results(Path(folder))
    if not results:
        raise ValueError(f"{folder} holds no table (*.md, *.csv) and no figure (*.svg, *.png).")

    kicker, usual_title = headings(Path(folder))
    tables = [table for result in results for table in result.tables()]
    methods = dict.fromkeys(cell for table in tables for cell in table.methods())
    explanations = {name: explain_method(name) for name in methods}
    return render_template(
        "results.html",
        images=True,
        kicker=kicker,
        title=title or usual_title,
        findings=findings_of(results),
        results=results,
        has_tables=bool(tables),
        explained={name: words for name, words in explanations.items() if words is not None},
    )


def findings_of(results: Iterable[Result]) -> tuple[Finding, ...]:
    """Return what the tables of the results found, which a page says first."""
    findings = (
        find_differences(result.title, table.head, table.rows)
        for result in results
        for table in result.tables()
    )
    return tuple(finding for finding in findings if finding is not None)


def headings(folder: Path) -> tuple[str, str]:
    """Say what kind of results these are, and return a title.

    `dco compare` leaves its settings beside its tables.
    """
    try:
        target = json.loads((folder / "settings.json").read_text(encoding="utf-8"))["target"]
    except (OSError, ValueError, KeyError, TypeError):
        return "Report on reproduced results", f"Results in {folder.resolve().name}"
    return "Report on a comparison of methods", f"Methods compared by their sets for {target}"


# ---- reading


def read_results(folder: Path) -> tuple[Result, ...]:
    """Read the results of a folder, then those of its folders.

    Where there is a ``tables.md`` (what `dco reproduce` and `dco compare` write), each of its
    headings is a result, and other tables beside it are copies of these, or data. Otherwise each
    file name is a result; numbers in names are counted by value.
    """
    results = results_of_files(folder)
    finished_folders = [
        entry
        for entry in folder.iterdir()
        if entry.is_dir() and not entry.name.startswith((".", "_"))
    ]
    for inner in sorted(finished_folders, key=lambda entry: natural_key(entry.name)):
        results += [named_by_folder(result, inner.name) for result in results_of_files(inner)]
    return tuple(results)


def named_by_folder(result: Result, folder_name: str) -> Result:
    """Begin the title with the name of the folder, unless it does."""
    if re.match(rf"{re.escape(folder_name)}\b", result.title, re.IGNORECASE):
        return result
    return replace(result, title=f"{folder_name}: {result.title}")


def results_of_files(folder: Path) -> list[Result]:
    """Read the results of the files that are directly in a folder."""
    files = sorted(
        (file for file in folder.iterdir() if file.is_file()),
        key=lambda file: natural_key(file.stem),
    )
    if folder / "tables.md" in files:
        results = results_of_tables(folder / "tables.md")
        readers = {}
    else:
        results = []
        readers = READERS

    names = dict.fromkeys(file.stem for file in files if file.suffix in {*readers, *IMAGES})
    for name in names:
        result = result_called(folder, name, files, readers)
        if result is not None:
            results.append(result)
    return results


def results_of_tables(file: Path) -> list[Result]:
    """Read one result for each heading of a file of tables."""
    sections = re.split(r"(?m)^(?=#+ )", read_text(file))
    contents = [read_markdown(section) for section in sections]
    return [
        Result(content.title or "Tables", content.blocks) for content in contents if content.blocks
    ]


def result_called(
    folder: Path, name: str, files: Sequence[Path], readers: dict[str, Reader]
) -> Result | None:
    """Read the result of all files of one name: the first table that is not empty, and a figure.

    None where there is neither.
    """
    content = Content("", ())
    for ending, read in readers.items():
        file = folder / f"{name}{ending}"
        if file in files and not content.blocks:
            content = read(read_text(file))

    figure = None
    for ending, kind in IMAGES.items():
        file = folder / f"{name}{ending}"
        if file in files and figure is None:
            figure = data_address(kind, file.read_bytes())

    if not content.blocks and figure is None:
        return None
    words = name.replace("-", " ").replace("_", " ")
    usual_title = words if content.blocks else f"Figure: {words}"
    return Result(content.title or usual_title, content.blocks, figure)


def read_text(file: Path) -> str:
    """Read a file; bytes that are no text are replaced."""
    return file.read_text(encoding="utf-8", errors="replace")


def read_markdown(text: str) -> Content:
    """Read headings, paragraphs and pipe tables; all else is shown as it is written."""
    title = ""
    blocks: list[Paragraph | Table] = []
    for kind, group in groupby(map(str.strip, text.splitlines()), key=kind_of_line):
        lines = list(group)
        if kind == "#":
            names = [line.lstrip("#").strip() for line in lines]
            further_names = names if title else names[1:]
            title = title or names[0]
            blocks += [Paragraph(name) for name in further_names]
        elif kind == "|" and len(lines) > 1 and re.fullmatch(r"[\s:|-]+", lines[1]):
            # the second line only separates the head from the rows
            blocks.append(Table.of(cells_of(lines[0]), [cells_of(line) for line in lines[2:]]))
        elif kind:
            blocks.append(Paragraph(" ".join(lines)))
    return Content(title, tuple(blocks))


def kind_of_line(line: str) -> str:
    """Return "#" for a heading, "|" for a row of a table, "text", or "" for an empty line."""
    if line[:1] in ("#", "|", ""):
        return line[:1]
    return "text"


def cells_of(line: str) -> tuple[str, ...]:
    """Cut a row of a table into its cells."""
    inside = line.removeprefix("|").removesuffix("|")
    cells = re.split(r"(?<!\\)\|", inside)
    return tuple(cell.strip().replace("\\|", "|").replace("**", "") for cell in cells)


def read_csv(text: str) -> Content:
    """Read one table, whose first row is its head."""
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    if not rows:
        return Content("", ())
    return Content("", (Table.of(rows[0], rows[1:]),))


Reader: TypeAlias = Callable[[str], Content]
READERS: dict[str, Reader] = {".md": read_markdown, ".csv": read_csv}


def natural_key(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers in names by their value."""
    parts = [part for part in re.split(r"(\d+)", name) if part]
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
