"""Print what the commands have to say: tables and sentences for people, strict JSON for programs.

Progress is shown on terminals only.
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
from dco.foundations.display import number as format_number
from dco.foundations.files import plain
from dco.foundations.progress import SearchProgress, watch_search

_WIDTH_OFF_TERMINAL = 80  # columns of a table; sentences are not wrapped there
_LONGEST_WORD = 30  # a longer one, such as the name of a file, may be broken
_GAP = 2  # between the columns of a table, and half of it on either side
_NUMBER = r"[-−+]?(\d+(\.\d*)?(e[-+]?\d+)?|inf)( ?%)?"
_SILENT_WARNINGS = (DeprecationWarning, PendingDeprecationWarning, ResourceWarning)

as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."
)


def print_json(value: Any) -> None:
    """Print strict JSON: infinity is the text "inf", NaN is null, and what JSON lacks is text."""
    click.echo(json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False, default=str))


def say(*sentences: str, err: bool = False) -> None:
    """Print sentences, wrapped on a terminal only; with `err` beside the result."""
    console = _console(sys.stderr if err else sys.stdout)
    for sentence in sentences:
        console.print(printable(sentence), soft_wrap=not console.is_terminal)


def printable(text: str) -> str:
    """Replace control characters, which a table may hold and a terminal would obey."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "�" for sign in text)


def number(value: Any) -> str:
    """Write a number in four significant digits, a count in full."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return "–" if math.isnan(value) else format_number(value)
    return str(value)


def _console(file: Any) -> Any:
    from rich.console import Console

    return Console(
        file=file,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if file.isatty() else _WIDTH_OFF_TERMINAL,
    )


# --- tables ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """The texts of a column, and how wide it must and would like to be.

    `least_width` breaks no number and no word, `full_width` has every cell on one line.
    """

    name: str
    cells: list[str]
    is_numeric: bool
    least_width: int
    full_width: int


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    title: str | None = None,
    spare: Sequence[str] = (),
) -> list[str]:
    """Print a table: numbers to the right, numbers and words whole.

    On a terminal columns of `spare` are left out, in that order, until the others fit, and are
    returned. Where not even those fit, each row is a block of lines, with nothing left out;
    elsewhere nothing is ever left out.
    """
    console = _console(sys.stdout)
    all_columns = _lay_out(columns, rows)
    shown = all_columns
    left_out: list[str] = []
    for name in spare if console.is_terminal else ():
        if _least_width(shown) > console.width:
            shown = [column for column in shown if column.name != name]
            left_out.append(name)

    if title is not None:
        _print_title(console, title)
    if _least_width(shown) > console.width:
        _print_blocks(console, all_columns)
        return []
    _print_grid(console, shown)
    return left_out


def spare_width(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, most: int) -> int:
    """Return how wide one more column of a table may be, up to `most`."""
    room: int = _console(sys.stdout).width - _least_width(_lay_out(columns, rows)) - _GAP
    return max(0, min(most, room))


def _lay_out(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[_Column]:
    body = list(rows)
    return [
        _lay_out_column(name, [row[position] for row in body])
        for position, name in enumerate(names)
    ]


def _lay_out_column(name: str, values: list[Any]) -> _Column:
    """Turn the values of a column into text, and measure how wide it must and may be."""
    from rich.cells import cell_len

    cells = [printable(value if isinstance(value, str) else number(value)) for value in values]
    words = name.split()
    for cell in cells:
        words += [cell] if _must_stay_whole(cell) else cell.split()
    longest_word = max((cell_len(word) for word in words), default=0)
    return _Column(
        name=name,
        cells=cells,
        is_numeric=all(cell == "–" or re.fullmatch(_NUMBER, cell) for cell in cells),
        least_width=min(longest_word, _LONGEST_WORD),
        full_width=max(cell_len(text) for text in [*cells, name]),
    )


def _must_stay_whole(cell: str) -> bool:
    """Say whether a cell is a range, a mean with its deviation, or a drawing."""
    return re.fullmatch(rf"{_NUMBER} (to|±) {_NUMBER}|[ ─|o]+", cell) is not None


def _least_width(columns: Iterable[_Column]) -> int:
    return sum(column.least_width + _GAP for column in columns)


def _print_title(console: Any, title: str) -> None:
    """Print a title by itself: rich would wrap it to the width of the table."""
    from rich.text import Text

    console.print(Text(printable(title), style="italic"), soft_wrap=not console.is_terminal)


def _print_grid(console: Any, columns: Sequence[_Column]) -> None:
    """Print columns side by side; the first ones get the room that is left.

    Widths are set here, since rich would narrow columns by their share, through words.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    room = console.width - _least_width(columns)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in columns:
        more = max(0, min(room, column.full_width - column.least_width))
        room -= more
        table.add_column(
            Text(column.name),
            justify="right" if column.is_numeric else "left",
            width=column.least_width + more,
            overflow="fold",
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*map(Text, cells))
    console.print(table)


def _print_blocks(console: Any, columns: Sequence[_Column]) -> None:
    """Print each row as a block: a head, and below it the other cells after their columns.

    The head is the cell of the first column that holds words.
    """
    from rich.padding import Padding
    from rich.text import Text

    head = next((column for column in columns if not column.is_numeric), columns[0])
    others = [column for column in columns if column is not head]
    for row, name in enumerate(head.cells):
        console.print(Text(name, style="bold"))
        for column in others:
            cell = column.cells[row]
            if cell:
                text = f"{column.name}: {cell}" if column.name else cell
                console.print(Padding(Text(text), (0, 0, 0, 2)))
    console.print()


# --- progress -------------------------------------------------------------------------------------


@contextmanager
def progress(
    description: str, total: int | None, *, quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar, or a running clock without a total; yield ``reached(steps)``.

    It is shown on standard error, on terminals only. What a search says of itself stands beside it.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda steps: None
        return

    with _progress_bar(has_total=total is not None) as bar:
        task = bar.add_task(description, total=total)

        def show_search(search: SearchProgress) -> None:
            bar.update(task, description=f"{description}: {search_in_words(search)}")

        with watch_search(show_search):
            yield lambda steps: bar.update(task, completed=steps)


def _progress_bar(*, has_total: bool) -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn()]
    if has_total:
        columns += [TaskProgressColumn(), TimeRemainingColumn()]
    else:
        columns += [TimeElapsedColumn()]
    return Progress(*columns, console=Console(file=sys.stderr), transient=True)


def search_in_words(search: SearchProgress) -> str:
    """Say how many candidates there are, how many fits are done, and what is fitted now."""
    return (
        f"{search.n_candidates} candidates, {search.n_done} of {search.n_fits} fits done, now "
        f"{search.model_now or 'the winner'}"
    )


# --- notes ----------------------------------------------------------------------------------------


@contextmanager
def collected_notes(target: str | None = None) -> Iterator[list[str]]:
    """Yield a list that holds, at the end, each note and warning once, as a sentence.

    Sentences name options, and the column of the target.
    """
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # joblib replaces processes that were idle for long: nothing that a user can act on
        warnings.filterwarnings(
            "ignore", "A worker stopped while some jobs were given", UserWarning
        )
        yield notes

    for warning in caught:
        if issubclass(warning.category, _SILENT_WARNINGS):
            continue
        assert isinstance(warning.message, Warning)
        text = " ".join(spell_error(warning.message, target=target).split())
        if text not in notes:
            notes.append(text)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes beside the result, to standard error."""
    for sentence in notes:
        say(f"Note: {' '.join(sentence.split())}", err=True)
