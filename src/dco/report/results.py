"""A folder of results as one page: its tables, and its figures embedded as images."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, zip_longest
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeAlias

from dco.foundations.files import write_file
from dco.report.finding import Finding, explain_method, find_differences
from dco.report.rendering import data_address, render_template

IMAGES = {".svg": "image/svg+xml", ".png": "image/png"}
METHOD_COLUMNS = ("method", "first", "second")
NUMBER = re.compile(  # "1 234.5", "−3.2 %", "0.91 ± 0.02", "1.5 (0.1)", "∞"; a dash is none
    r"–|[-−+]?(\d[\d\s,.\u202f]*|inf|∞)(e[-+]?\d+)?\s*%?(\s*(±|\()\s*[\d.,]+\)?)?"
)
LINE_BETWEEN_HEAD_AND_ROWS = re.compile(r"[\s:|-]+")  # "|---|:--:|" of a table in Markdown

# How tables are shown. Widths are in characters.
MOST_ROWS = 200
MANY_COLUMNS = 10  # a table with more is in small print
PHONE_WIDTH = 46  # of a line; wider tables are blocks on a phone
LONG_CELL = 40  # a longer one is a sentence
LONG_WORDS = 16  # a longer cell of words may be wrapped
NARROWEST_WORDS = 14  # to which a column of words is wrapped
SPACE_BETWEEN_COLUMNS = 2


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of a result."""

    text: str
    is_table: ClassVar[bool] = False


@dataclass(frozen=True)
class Table:
    """A table of a result, with the names of its columns in `head`.

    A column is aligned right where all its cells are numbers. `left_out` rows are not shown.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0
    is_table: ClassVar[bool] = True

    @classmethod
    def of(cls, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
        """Make a table; columns beyond the head have no name."""
        n_columns = max(map(len, rows), default=0)
        missing_names = [""] * (n_columns - len(head))
        return cls(
            head=(*head, *missing_names),
            rows=tuple(map(tuple, rows[:MOST_ROWS])),
            left_out=max(0, len(rows) - MOST_ROWS),
        )

    @cached_property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        """The cells of each column that hold text, without the head."""
        columns = zip_longest(self.head, *self.rows, fillvalue="")
        return tuple(tuple(cell for cell in cells if cell.strip()) for _, *cells in columns)

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
        """The CSS classes of the table.

        "wide" is small print, "prose" has columns of sentences, "stack" is blocks on a phone.
        """
        sentence_columns = [
            position
            for position, cells in enumerate(self.columns)
            if not self.numeric[position] and any(len(cell) > LONG_CELL for cell in cells)
        ]
        classes = []
        if len(self.head) > MANY_COLUMNS:
            classes.append("wide")
        if len(sentence_columns) > 1:
            classes.append("prose")
        if self.narrowest_width() > PHONE_WIDTH:
            classes.append("stack")
        return tuple(classes)

    def narrowest_width(self) -> int:
        """Count the characters that a line of the table takes at least."""
        widths = [self.narrowest_column(position) for position in range(len(self.head))]
        return sum(SPACE_BETWEEN_COLUMNS + width for width in widths)

    def narrowest_column(self, position: int) -> int:
        """Count the characters that a column takes at least: words are wrapped, numbers are not."""
        cells = self.columns[position]
        words_of_head = self.head[position].split()
        if self.numeric[position]:
            return max(map(len, [*words_of_head, *cells]), default=0)

        words = " ".join(cells).split()
        longest_word = max(map(len, [*words_of_head, *words]), default=0)
        longest_cell = max(map(len, cells), default=0)
        return max(longest_word, min(NARROWEST_WORDS, longest_cell))

    def kind(self, column: int, cell: str) -> str:
        """Return the CSS class of a cell: "n" for a number, or words by the width they need."""
        if self.numeric[column]:
            return "n"
        if len(cell) > LONG_CELL:
            return "long"
        has_long_words = any(len(other) > LONG_WORDS for other in self.columns[column])
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
    """Return the page of a folder of results as text.

    It begins with what the tables found, shows every table and figure, and explains the methods.
    """
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
    return render_template(
        "results.html",
        images=True,
        kicker=kicker,
        title=title or usual_title,
        findings=findings_of(results),
        results=results,
        has_tables=bool(tables),
        explained=explain_methods(tables),
    )


def explain_methods(tables: Iterable[Table]) -> dict[str, str]:
    """Explain the methods of the paper that tables name, by name, in the order of the tables."""
    names = dict.fromkeys(name for table in tables for name in table.methods())  # each once
    explained = {}
    for name in names:
        explanation = explain_method(name)
        if explanation is not None:
            explained[name] = explanation
    return explained


def findings_of(results: Iterable[Result]) -> tuple[Finding, ...]:
    """Say how DCO's sets compare with BQ's, for each table that compares them.

    A page says this first.
    """
    findings = []
    for result in results:
        for table in result.tables():
            finding = find_differences(result.title, table.head, table.rows)
            if finding is not None:
                findings.append(finding)
    return tuple(findings)


def headings(folder: Path) -> tuple[str, str]:
    """Return the line above the title, which says what kind of results these are, and the title.

    A folder of `dco compare` is known by its settings, which that command leaves beside its tables.
    """
    try:
        target = json.loads((folder / "settings.json").read_text(encoding="utf-8"))["target"]
    except (OSError, ValueError, KeyError, TypeError):
        return "Report on reproduced results", f"Results in {folder.resolve().name}"
    return "Report on a comparison of methods", f"Methods compared by their sets for {target}"


# ---- reading


def read_results(folder: Path) -> tuple[Result, ...]:
    """Read the results of a folder, then those of its inner folders.

    Where there is a ``tables.md`` (what `dco reproduce` and `dco compare` write), each of its
    headings is a result, and other tables beside it are copies of these, or data. Otherwise each
    file name is a result. Names are sorted with their numbers by value: "run 9" before "run 10".
    """
    # Folders whose names begin with . or _ hold unfinished or hidden files.
    inner_folders = [
        path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "_"))
    ]

    results = results_of_files(folder)
    for inner in sorted(inner_folders, key=lambda path: natural_key(path.name)):
        results += [named_by_folder(result, inner.name) for result in results_of_files(inner)]
    return tuple(results)


def named_by_folder(result: Result, folder_name: str) -> Result:
    """Put the name of the folder before the title, unless the title begins with it."""
    if re.match(rf"{re.escape(folder_name)}\b", result.title, re.IGNORECASE):
        return result
    return replace(result, title=f"{folder_name}: {result.title}")


def results_of_files(folder: Path) -> list[Result]:
    """Read the results in the files of a folder, but not in its inner folders.

    A file tables.md has all tables of its folder, so that other tables are ignored. Otherwise files
    with the same name (width.csv, width.png) are one result, and names are in natural order.
    """
    paths = [path for path in folder.iterdir() if path.is_file()]
    files = sorted(paths, key=lambda path: natural_key(path.stem))
    table_of_all = folder / "tables.md"
    has_table_of_all = table_of_all in files

    results = results_of_tables(table_of_all) if has_table_of_all else []
    readers = {} if has_table_of_all else READERS

    endings = {*readers, *IMAGES}
    names = dict.fromkeys(file.stem for file in files if file.suffix in endings)  # each once
    for name in names:
        result = result_of_name(name, folder, files, readers)
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


def result_of_name(
    name: str, folder: Path, files: Sequence[Path], readers: Mapping[str, Reader]
) -> Result | None:
    """Read the files with one name (width.csv, width.png) as one result: a table and a figure.

    Parameters
    ----------
    name, folder
        The name without its ending, and where the files are.
    files
        The files of the folder.
    readers
        For each ending of a table, such as ".csv", the function that reads it.

    Returns
    -------
    None if there is neither a table that is not empty nor a figure.
    """
    content = first_table(name, folder, files, readers)
    figure = first_figure(name, folder, files)
    if not content.blocks and figure is None:
        return None

    name_in_words = name.replace("-", " ").replace("_", " ")
    usual_title = name_in_words if content.blocks else f"Figure: {name_in_words}"
    return Result(content.title or usual_title, content.blocks, figure)


def first_table(
    name: str, folder: Path, files: Sequence[Path], readers: Mapping[str, Reader]
) -> Content:
    """Read the first table with this name that is not empty; parameters as in `result_of_name`."""
    content = Content("", ())
    for ending, read in readers.items():
        file = folder / f"{name}{ending}"
        if file in files:
            content = read(read_text(file))
        if content.blocks:
            break
    return content


def first_figure(name: str, folder: Path, files: Sequence[Path]) -> str | None:
    """Read the first image with this name, as an address that contains the image itself."""
    for ending, media_type in IMAGES.items():
        file = folder / f"{name}{ending}"
        if file in files:
            return data_address(media_type, file.read_bytes())
    return None


def read_text(file: Path) -> str:
    """Read a file; bytes that are no text are replaced."""
    return file.read_text(encoding="utf-8", errors="replace")


def read_markdown(text: str) -> Content:
    """Read a title, paragraphs and tables from Markdown; all else becomes a paragraph as it is.

    The first heading is the title; later ones are paragraphs. Tables are of lines "| a | b |".
    """
    title = ""
    blocks: list[Paragraph | Table] = []
    stripped_lines = map(str.strip, text.splitlines())

    # Neighbouring lines of one kind belong together.
    for kind, neighbours in groupby(stripped_lines, key=kind_of_line):
        lines = list(neighbours)
        if kind == "heading":
            headings = [line.lstrip("#").strip() for line in lines]
            if not title:
                title = headings.pop(0)
            blocks += [Paragraph(heading) for heading in headings]
        elif kind == "table" and is_whole_table(lines):
            rows = [cells_of(line) for line in lines[2:]]
            blocks.append(Table.of(cells_of(lines[0]), rows))
        elif kind != "empty":
            blocks.append(Paragraph(" ".join(lines)))
    return Content(title, tuple(blocks))


def kind_of_line(line: str) -> str:
    """Return whether a line is "empty", a "heading", the row of a "table", or "text"."""
    if not line:
        return "empty"
    return {"#": "heading", "|": "table"}.get(line[0], "text")


def is_whole_table(lines: Sequence[str]) -> bool:
    """Decide whether lines with pipes are a head, the line below it, and rows."""
    return len(lines) > 1 and LINE_BETWEEN_HEAD_AND_ROWS.fullmatch(lines[1]) is not None


def cells_of(line: str) -> tuple[str, ...]:
    """Cut a row of a table into its cells, without bold: "| a | **b** |" -> ("a", "b").

    A pipe with a backslash before it is part of a cell.
    """
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
    """Return a key that sorts numbers in names by their value: "run 9" before "run 10"."""
    parts = [part for part in re.split(r"(\d+)", name) if part]
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
