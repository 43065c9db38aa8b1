"""A folder of reproduced results as one page: its tables, and its figures embedded as images."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dco.report.rendering import render_template, write_text

_IMAGES = {".svg": "image/svg+xml", ".png": "image/png"}
_TABLES = (".md", ".csv", ".json")  # for the same name the first that exists is shown
_MOST_ROWS = 200
_TELEPHONE = 46  # characters of a line of a table


@dataclass(frozen=True)
class Block:
    """A paragraph (`text`) or a table (`head`, `rows`); a column is aligned right where all its cells are numbers."""

    text: str = ""
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    left_out: int = 0

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Whether each column holds numbers."""
        return tuple(
            bool(self.rows) and all(_is_number(row[place]) for row in self.rows if place < len(row) and row[place].strip())
            for place in range(len(self.head))
        )

    @property
    def name(self) -> int | None:
        """The column that names the rows: the first of words."""
        return next((place for place, numeric in enumerate(self.numeric) if not numeric), None)

    @property
    def layout(self) -> tuple[str, ...]:
        """Classes of the table: small print for many columns, narrow columns of sentences, rows as blocks on a telephone."""
        sentences = {place for row in self.rows for place, cell in enumerate(row) if self.kind(place, cell) == "long"}
        holds = {
            "wide": len(self.head) > 10,
            "prose": len(sentences) > 1,
            "stack": self.least_width() > _TELEPHONE,
        }
        return tuple(name for name, held in holds.items() if held)

    def least_width(self) -> int:
        """Characters that a line takes at least: words may be wrapped, and a column is two apart from the next."""
        total = 0
        for place, (head, numeric) in enumerate(zip(self.head, self.numeric, strict=True)):
            cells = [row[place] for row in self.rows if place < len(row)]
            parts = [*head.split(), *(cells if numeric else [word for cell in cells for word in cell.split()])]
            least = max(map(len, parts), default=0)
            total += 2 + (least if numeric else max(least, min(14, max(map(len, cells), default=0))))
        return total

    def kind(self, place: int, cell: str) -> str:
        """The class of a cell: a number, or words by how much room they need."""
        if self.numeric[place]:
            return "n"
        if len(cell) > 40:
            return "long"
        return "short wordy" if any(len(row[place]) > 16 for row in self.rows if place < len(row)) else "short"


@dataclass(frozen=True)
class Result:
    """What one name in the folder holds: a heading, blocks, and a figure as a data address."""

    name: str
    title: str
    blocks: tuple[Block, ...]
    figure: str | None


def write_results_page(folder: Any, path: Any, *, title: str | None = None) -> Path:
    """Write the tables (``*.md``, ``*.csv``, ``*.json``) and figures (``*.svg``, ``*.png``) of `folder` as one page."""
    return write_text(path, results_html(folder, title=title))


def results_html(folder: Any, *, title: str | None = None) -> str:
    """The page as text."""
    place = Path(folder)
    if not place.is_dir():
        raise ValueError(f"{place} is not a folder of results; run `dco reproduce` first, or give another folder.")
    results = read_results(place)
    if not results:
        raise ValueError(f"{place} holds no table (*.md, *.csv, *.json) and no figure (*.svg, *.png).")
    kicker, usual = _headings(place)
    has_tables = any(block.head for result in results for block in result.blocks)
    return render_template(
        "results.html", images=True, kicker=kicker, title=title or usual, results=results, has_tables=has_tables
    )


def _headings(folder: Path) -> tuple[str, str]:
    """What kind of results these are, and a title: `dco compare` leaves its settings beside its tables."""
    try:
        target = json.loads((folder / "settings.json").read_text(encoding="utf-8"))["target"]
    except (OSError, ValueError, KeyError, TypeError):
        return "Report on reproduced results", f"Results in {folder.resolve().name}"
    return "Report on a comparison of methods", f"Methods compared by their sets for {target}"


def read_results(folder: Path) -> tuple[Result, ...]:
    """The results of a folder, then those of its folders.

    Where there is a ``tables.md`` (what `dco reproduce` and `dco compare` write), each of its headings is a result and other
    tables beside it are copies of these or data. Otherwise each file name is a result, numbers in names counted by value.
    """
    found = _results_here(folder)
    inside = [entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith((".", "_"))]  # finished
    for inner in sorted(inside, key=lambda entry: _natural(entry.name)):
        found += [replace(result, title=_title_in(inner.name, result.title)) for result in _results_here(inner)]
    return tuple(found)


def _title_in(folder: str, title: str) -> str:
    """A title that tells its folder: the folder's name in front, unless the title begins with it as a word."""
    return title if re.match(rf"{re.escape(folder)}\b", title, re.IGNORECASE) else f"{folder}: {title}"


def _results_here(folder: Path) -> list[Result]:
    files = sorted((file for file in folder.iterdir() if file.is_file()), key=lambda file: _natural(file.stem))
    written = folder / "tables.md"
    if written.is_file():
        sections = re.split(r"(?m)^(?=#+ )", written.read_text(encoding="utf-8", errors="replace"))
        tables = [(title or "Tables", blocks) for title, blocks in map(_markdown, sections) if blocks]
        found = [Result(title, title, blocks, None) for title, blocks in tables]
        names = [file.stem for file in files if file.suffix in _IMAGES]
    else:
        found = []
        names = [file.stem for file in files if file.suffix in (*_TABLES, *_IMAGES)]
    for name in dict.fromkeys(names):
        title, blocks = ("", ()) if written.is_file() else _read_blocks(folder, name)
        figure = next((_embedded(folder / f"{name}{end}") for end in _IMAGES if (folder / f"{name}{end}").is_file()), None)
        if blocks or figure:
            said = name.replace("-", " ").replace("_", " ")
            found.append(Result(name, title or (said if blocks else f"Figure: {said}"), blocks, figure))
    return found


def _read_blocks(folder: Path, name: str) -> tuple[str, tuple[Block, ...]]:
    readers = {".md": _markdown, ".csv": _csv, ".json": _json}
    for end in _TABLES:
        file = folder / f"{name}{end}"
        if file.is_file():
            title, blocks = readers[end](file.read_text(encoding="utf-8", errors="replace"))
            if blocks:
                return title, blocks
    return "", ()


def _markdown(text: str) -> tuple[str, tuple[Block, ...]]:
    """Headings, paragraphs and pipe tables; all else is shown as it is written."""
    title, place, lines = "", 0, text.splitlines()
    blocks: list[Block] = []
    paragraph: list[str] = []
    while place < len(lines):
        line = lines[place].strip()
        is_table = (
            line.startswith("|") and place + 1 < len(lines) and re.fullmatch(r"\|?[\s:|-]+\|?", lines[place + 1].strip())
        )
        if paragraph and (is_table or not line or line.startswith("#")):
            blocks.append(Block(text=" ".join(paragraph)))
            paragraph = []
        if line.startswith("#"):
            heading = line.lstrip("#").strip()
            if title:
                blocks.append(Block(text=heading))
            title = title or heading
        elif is_table:
            rows = []
            end = place + 2
            while end < len(lines) and lines[end].strip().startswith("|"):
                rows.append(_cells(lines[end]))
                end += 1
            blocks.append(_table(_cells(line), rows))
            place = end
            continue
        elif line:
            paragraph.append(line)
        place += 1
    if paragraph:
        blocks.append(Block(text=" ".join(paragraph)))
    return title, tuple(blocks)


def _cells(line: str) -> tuple[str, ...]:
    inside = line.strip().removeprefix("|").removesuffix("|")
    return tuple(cell.strip().replace("\\|", "|").replace("**", "") for cell in re.split(r"(?<!\\)\|", inside))


def _csv(text: str) -> tuple[str, tuple[Block, ...]]:
    rows = [tuple(row) for row in csv.reader(io.StringIO(text)) if row]
    return ("", (_table(rows[0], rows[1:]),)) if rows else ("", ())


def _json(text: str) -> tuple[str, tuple[Block, ...]]:
    """A list of records, or an object with such a list under "rows" and perhaps a "title"."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError:
        return "", ()
    title = str(data.get("title", "")) if isinstance(data, Mapping) else ""
    records = data.get("rows") if isinstance(data, Mapping) else data
    if not isinstance(records, list) or not records or not all(isinstance(record, Mapping) for record in records):
        return title, ()
    head = tuple(dict.fromkeys(str(key) for record in records for key in record))
    rows = [tuple(_cell(record.get(key)) for key in head) for record in records]
    return title, (_table(head, rows),)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(head: Iterable[str], rows: list[tuple[str, ...]]) -> Block:
    names = tuple(head)
    names += ("",) * (max(map(len, rows), default=0) - len(names))  # a row may be longer than its head
    return Block(head=names, rows=tuple(rows[:_MOST_ROWS]), left_out=max(0, len(rows) - _MOST_ROWS))


def _is_number(text: str) -> bool:
    return (
        text.strip() == "–"
        or re.fullmatch(r"[-−+]?(\d[\d\s,.\u202f]*|inf|∞)(e[-+]?\d+)?\s*%?(\s*(±|\()\s*[\d.,]+\)?)?", text.strip())
        is not None
    )


def _embedded(file: Path) -> str:
    """An image as a data address: inside an image element an SVG runs no script and loads nothing."""
    return f"data:{_IMAGES[file.suffix]};base64,{base64.b64encode(file.read_bytes()).decode()}"


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]
