"""What the commands print: tables and sentences for people, strict JSON for machines, progress on
terminals only.
"""

from __future__ import annotations

import json
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from dco.cli.spelling import spell_error
from dco.foundations import display
from dco.foundations.files import plain
from dco.foundations.parallel import followed

_PIPED = 80  # columns of a table that is not on a terminal, where sentences are not wrapped
_LONGEST = 30  # a longer word, such as the name of a file, may be broken
_GAP = 2  # between the columns of a table, and half of it on either side

as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."
)


def print_json(value: Any) -> None:
    """Strict JSON: infinity is the string "inf", NaN is null, and what JSON does not know is
    text.
    """
    click.echo(json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False, default=str))


def say(*sentences: str, err: bool = False) -> None:
    """Sentences to standard output, or beside the result to standard error, wrapped on a terminal
    only.
    """
    console = _console(sys.stderr if err else sys.stdout)
    for sentence in sentences:
        console.print(printable(sentence), soft_wrap=not console.is_terminal)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    title: str | None = None,
    spare: Sequence[str] = (),
) -> list[str]:
    """A table: numbers to the right, numbers and words whole; 80 columns wide at most when the
    output is not a terminal.

    On a terminal columns of `spare` are left out, in that order, until the others fit, and are
    returned. Where not even those fit, each row is a block of lines, with nothing left out;
    elsewhere nothing is ever left out.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console, found, left_out = _console(sys.stdout), _columns(columns, rows), list[str]()
    every = found
    for name in spare if console.is_terminal else ():
        if _least(found) > console.width:
            found = [column for column in found if column.name != name]
            left_out.append(name)
    # not the table's own title, which would be wrapped to the width of the table
    if title is not None:
        console.print(Text(printable(title), style="italic"), soft_wrap=not console.is_terminal)
    room = console.width - _least(found)
    if room < 0:
        _print_blocks(console, every)
        return []
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in found:  # rich would narrow columns by their share, through words
        more = max(0, min(room, column.full - column.least))
        room -= more
        justify: Any = "right" if column.numeric else "left"
        table.add_column(
            Text(column.name), justify=justify, width=column.least + more, overflow="fold"
        )
    for cells in zip(*(column.cells for column in found), strict=True):
        table.add_row(*map(Text, cells))
    console.print(table)
    return left_out


def _print_blocks(console: Any, columns: Sequence[_Column]) -> None:
    """The name of each row, from the first column that holds words, and below it the other cells
    after their columns.
    """
    from rich.padding import Padding
    from rich.text import Text

    name = next((column for column in columns if not column.numeric), columns[0])
    others = [column for column in columns if column is not name]
    for row, head in enumerate(name.cells):
        console.print(Text(head, style="bold"))
        for column in others:
            if column.cells[row]:
                console.print(
                    Padding(
                        Text(f"{column.name}: {column.cells[row]}".removeprefix(": ")), (0, 0, 0, 2)
                    )
                )
    console.print()


def spare_width(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, most: int) -> int:
    """How wide one more column of a table may be, up to `most`."""
    room: int = _console(sys.stdout).width - _least(_columns(columns, rows)) - _GAP
    return max(0, min(most, room))


@dataclass(frozen=True)
class _Column:
    """The texts of a column, the least width at which no number and no word is broken, and the
    width of all on one line.
    """

    name: str
    cells: list[str]
    numeric: bool
    least: int
    full: int


def _columns(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[_Column]:
    from rich.cells import cell_len

    body, found = list(rows), []
    for place, name in enumerate(names):
        cells = [
            printable(row[place] if isinstance(row[place], str) else number(row[place]))
            for row in body
        ]
        words = [word for cell in cells for word in ([cell] if _is_whole(cell) else cell.split())]
        widest, full = (
            max(map(cell_len, texts)) for texts in ([*words, *name.split(), ""], [*cells, name])
        )
        numeric = all(cell == "–" or re.fullmatch(_NUMBER, cell) for cell in cells)
        found.append(_Column(name, cells, numeric, min(widest, _LONGEST), full))
    return found


def _least(columns: Iterable[_Column]) -> int:
    return sum(column.least + _GAP for column in columns)


def number(value: Any) -> str:
    """A number in four significant digits, a count in full."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return "–" if math.isnan(value) else display.number(value)
    return str(value)


def printable(text: str) -> str:
    """Text from a table may hold control characters, which a terminal would obey."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "�" for sign in text)


@contextmanager
def progress(
    description: str, total: int | None, *, quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, on terminals only; yields ``reached(steps)``. Without a
    total, a running clock.

    What long work tells of itself stands beside it.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda steps: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns: list[Any] = [TextColumn("{task.description}"), BarColumn()]
    columns += (
        [TimeElapsedColumn()] if total is None else [TaskProgressColumn(), TimeRemainingColumn()]
    )
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(description, total=total)
        with followed(
            lambda *facts: bar.update(task, description=f"{description}: {search_in_words(*facts)}")
        ):
            yield lambda steps: bar.update(task, completed=steps)


def search_in_words(candidates: int, models: Sequence[str], done: int, total: int) -> str:
    """How many candidates there are, how many fits are done, and which model is fitted now."""
    now = models[done] if done < total else "the winner"
    return f"{candidates} candidates, {done} of {total} fits done, now {now}"


@contextmanager
def collected_notes(target: str | None = None) -> Iterator[list[str]]:
    """Yields a list that holds, at the end, each note and warning once, as a sentence that names
    options and the target.
    """
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # joblib's processes end when they were idle for long, and new ones take over: nothing that
        # a user can act on
        warnings.filterwarnings(
            "ignore", "A worker stopped while some jobs were given", UserWarning
        )
        yield notes
    for warning in caught:
        if not issubclass(
            warning.category, (DeprecationWarning, PendingDeprecationWarning, ResourceWarning)
        ):
            assert isinstance(warning.message, Warning)
            text = " ".join(spell_error(warning.message, target=target).split())
            notes += [text] if text not in notes else []


def print_notes(notes: Iterable[str]) -> None:
    """Notes beside the result, to standard error."""
    for sentence in notes:
        say(f"Note: {' '.join(sentence.split())}", err=True)


def _console(file: Any) -> Any:
    from rich.console import Console

    return Console(
        file=file,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if file.isatty() else _PIPED,
    )


_NUMBER = r"[-−+]?(\d+(\.\d*)?(e[-+]?\d+)?|inf)( ?%)?"


def _is_whole(cell: str) -> bool:
    """A number, a range, a mean with its deviation or a drawing: not to be broken over lines."""
    return re.fullmatch(rf"{_NUMBER} (to|±) {_NUMBER}|[ ─|o]+", cell) is not None
