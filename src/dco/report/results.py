"""A folder of reproduced results as one page: its tables, and its figures embedded as images."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

from dco.foundations.files import write_whole
from dco.report.finding import Finding, explained, findings
from dco.report.rendering import render_template

_IMAGES = {".svg": "image/svg+xml", ".png": "image/png"}
_MOST_ROWS = 200
_METHOD_COLUMNS = ("method", "first", "second")
_PHONE = 46  # characters of a line of a table
_NUMBER = re.compile(r"–|[-−+]?(\d[\d\s,.\u202f]*|inf|∞)(e[-+]?\d+)?\s*%?(\s*(±|\()\s*[\d.,]+\)?)?")


@dataclass(frozen=True)
class Block:
    """A paragraph (`text`) or a table (`head`, `rows`); a column is aligned right where all its
    cells are numbers.
    """

    text: str = ""
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    left_out: int = 0

    @classmethod
    def table(cls, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Block:
        """A table; a row may be longer than its head."""
        names = (*head, *[""] * (max(map(len, rows), default=0) - len(head)))
        return cls(
            head=names,
            rows=tuple(map(tuple, rows[:_MOST_ROWS])),
            left_out=max(0, len(rows) - _MOST_ROWS),
        )

    @cached_property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        """The cells of each column that have text."""
        columns = zip_longest(*self.rows, fillvalue="") if self.rows else [()] * len(self.head)
        return tuple(tuple(filter(str.strip, column)) for column in columns)

    @cached_property
    def numeric(self) -> tuple[bool, ...]:
        """Whether each column holds numbers."""
        return tuple(
            bool(self.rows) and all(_NUMBER.fullmatch(cell.strip()) for cell in cells)
            for cells in self.columns
        )

    @property
    def name(self) -> int | None:
        """The column that names the rows: the first of words."""
        return next((place for place, numeric in enumerate(self.numeric) if not numeric), None)

    def methods(self) -> list[str]:
        """The cells that name methods."""
        places = [place for place, head in enumerate(self.head) if head in _METHOD_COLUMNS]
        return [row[place] for row in self.rows for place in places if place < len(row)]

    @property
    def layout(self) -> tuple[str, ...]:
        """Classes of the table: small print for many columns, narrow columns of sentences, rows as
        blocks on a phone.
        """
        sentences = {
            place
            for row in self.rows
            for place, cell in enumerate(row)
            if self.kind(place, cell) == "long"
        }
        holds = {
            "wide": len(self.head) > 10,
            "prose": len(sentences) > 1,
            "stack": self.least_width() > _PHONE,
        }
        return tuple(name for name, held in holds.items() if held)

    def least_width(self) -> int:
        """Characters that a line takes at least: words may be wrapped, and a column is two apart
        from the next.
        """
        total = 0
        for head, cells, numeric in zip(self.head, self.columns, self.numeric, strict=True):
            parts = [*head.split(), *(cells if numeric else " ".join(cells).split())]
            longest = 0 if numeric else min(14, max(map(len, cells), default=0))
            total += 2 + max(longest, *map(len, parts), 0)
        return total

    def kind(self, place: int, cell: str) -> str:
        """The class of a cell: a number, or words by how much room they need."""
        if self.numeric[place]:
            return "n"
        if len(cell) > 40:
            return "long"
        return "short wordy" if any(len(other) > 16 for other in self.columns[place]) else "short"


Content = tuple[str, tuple[Block, ...]]  # a title, which may be empty, and what stands below it


@dataclass(frozen=True)
class Result:
    """One section of the page: a heading, blocks, and a figure as a data address."""

    title: str
    blocks: tuple[Block, ...]
    figure: str | None = None


def write_results_page(folder: Any, path: Any, *, title: str | None = None) -> Path:
    """Write the tables (``*.md``, ``*.csv``) and figures (``*.svg``, ``*.png``) of `folder` as one
    page.
    """
    write_whole(path, results_html(folder, title=title))
    return Path(path)


def results_html(folder: Any, *, title: str | None = None) -> str:
    """The page as text."""
    place = Path(folder)
    if not place.is_dir():
        raise ValueError(
            f"{place} is not a folder of results; run `dco reproduce` first, or give "
            f"another folder."
        )
    results = read_results(place)
    if not results:
        raise ValueError(f"{place} holds no table (*.md, *.csv) and no figure (*.svg, *.png).")
    kicker, usual = _headings(place)
    tables = [block for result in results for block in result.blocks if block.head]
    named = dict.fromkeys(cell for block in tables for cell in block.methods())
    return render_template(
        "results.html",
        images=True,
        kicker=kicker,
        title=title or usual,
        findings=found_in(results),
        results=results,
        has_tables=bool(tables),
        explained={name: words for name in named if (words := explained(name)) is not None},
    )


def found_in(results: Sequence[Result]) -> tuple[Finding, ...]:
    """What the tables of the results found, to be said first."""
    return findings(
        (result.title, block.head, block.rows)
        for result in results
        for block in result.blocks
        if block.head
    )


def _headings(folder: Path) -> tuple[str, str]:
    """What kind of results these are, and a title: `dco compare` leaves its settings beside its
    tables.
    """
    try:
        target = json.loads((folder / "settings.json").read_text(encoding="utf-8"))["target"]
    except (OSError, ValueError, KeyError, TypeError):
        return "Report on reproduced results", f"Results in {folder.resolve().name}"
    return "Report on a comparison of methods", f"Methods compared by their sets for {target}"


def read_results(folder: Path) -> tuple[Result, ...]:
    """The results of a folder, then those of its folders.

    Where there is a ``tables.md`` (what `dco reproduce` and `dco compare` write), each of its
    headings is a result and other tables beside it are copies of these or data. Otherwise each file
    name is a result, numbers in names counted by value.
    """
    found = _results_here(folder)
    # finished
    inside = [
        entry
        for entry in folder.iterdir()
        if entry.is_dir() and not entry.name.startswith((".", "_"))
    ]
    for inner in sorted(inside, key=lambda entry: _natural(entry.name)):
        for result in _results_here(inner):  # a title begins with the folder's name, as a word
            told = re.match(rf"{re.escape(inner.name)}\b", result.title, re.IGNORECASE)
            found.append(result if told else replace(result, title=f"{inner.name}: {result.title}"))
    return tuple(found)


def _results_here(folder: Path) -> list[Result]:
    files = sorted(
        (file for file in folder.iterdir() if file.is_file()), key=lambda file: _natural(file.stem)
    )
    found, readers = [], _READERS
    if folder / "tables.md" in files:
        sections = re.split(r"(?m)^(?=#+ )", _text(folder / "tables.md"))
        found = [
            Result(title or "Tables", blocks)
            for title, blocks in map(_markdown, sections)
            if blocks
        ]
        readers = {}
    for name in dict.fromkeys(file.stem for file in files if file.suffix in (*readers, *_IMAGES)):
        there = {
            end: folder / f"{name}{end}"
            for end in (*readers, *_IMAGES)
            if folder / f"{name}{end}" in files
        }
        contents = [read(_text(there[end])) for end, read in readers.items() if end in there]
        title, blocks = next((content for content in contents if content[1]), ("", ()))
        # it runs no script
        image = next(((kind, there[end]) for end, kind in _IMAGES.items() if end in there), None)
        figure = (
            image and f"data:{image[0]};base64,{base64.b64encode(image[1].read_bytes()).decode()}"
        )
        if blocks or figure:
            said = name.replace("-", " ").replace("_", " ")
            found.append(Result(title or (said if blocks else f"Figure: {said}"), blocks, figure))
    return found


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _markdown(text: str) -> Content:
    """Headings, paragraphs and pipe tables; all else is shown as it is written."""
    title, blocks = "", []
    for mark, group in groupby(
        map(str.strip, text.splitlines()), key=lambda line: line[:1] if line[:1] in "#|" else "text"
    ):
        lines = list(group)
        if mark == "#":
            headings = [line.lstrip("#").strip() for line in lines]
            blocks += [Block(text=heading) for heading in (headings if title else headings[1:])]
            title = title or headings[0]
        elif mark == "|" and len(lines) > 1 and re.fullmatch(r"[\s:|-]+", lines[1]):
            blocks.append(Block.table(_cells(lines[0]), [_cells(line) for line in lines[2:]]))
        elif mark:
            blocks.append(Block(text=" ".join(lines)))
    return title, tuple(blocks)


def _cells(line: str) -> tuple[str, ...]:
    inside = line.removeprefix("|").removesuffix("|")
    return tuple(
        cell.strip().replace("\\|", "|").replace("**", "")
        for cell in re.split(r"(?<!\\)\|", inside)
    )


def _csv(text: str) -> Content:
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    return "", (Block.table(rows[0], rows[1:]),) if rows else ()


_READERS = {".md": _markdown, ".csv": _csv}  # for the same name the first that exists is shown


def _natural(name: str) -> list[tuple[int, str]]:
    return [
        (int(part), "") if part.isdigit() else (-1, part)
        for part in re.split(r"(\d+)", name)
        if part
    ]
