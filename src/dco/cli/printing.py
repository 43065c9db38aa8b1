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

_WIDTH_OFF_TERMINAL = 80  # characters in a line of a table; sentences are not wrapped there
_LONGEST_WORD = 30  # a longer one, such as the name of a file, may be broken
_GAP = 2  # blanks between the columns of a table
_BLOCK_INDENT = 2  # blanks before the cells of a row that is printed as a block of lines
_NUMBER = r"[-−+]?(\d+(\.\d*)?(e[-+]?\d+)?|inf)( ?%)?"
_SILENT_WARNINGS = (DeprecationWarning, PendingDeprecationWarning, ResourceWarning)

as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."
)


def print_json(value: Any) -> None:
    """Print strict JSON: infinity is the text "inf", NaN is null, and what JSON lacks is text."""
    click.echo(json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False, default=str))


def say(*sentences: str, err: bool = False) -> None:
    """Print sentences, wrapped on a terminal only; with `err` to standard error."""
    console = _console(sys.stderr if err else sys.stdout)
    for sentence in sentences:
        console.print(printable(sentence), soft_wrap=not console.is_terminal)


def printable(text: str) -> str:
    """Replace control characters, which a table may hold and a terminal would obey."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "�" for sign in text)


def number(value: Any) -> str:
    """Write a number in four significant digits, a count in full, and "–" if there is none."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return "–" if math.isnan(value) else format_number(value)
    return str(value)


def _console(file: Any) -> Any:
    """Make a console that prints text as it is, without markup, colours or emoji."""
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
    """A column of a table as text.

    Attributes
    ----------
    name
        The heading.
    cells
        The text of each row.
    is_numeric
        Whether all cells are numbers; they are then aligned to the right.
    min_width
        The width in characters that breaks no number and no word.
    full_width
        The width in characters that has every cell on one line.
    """

    name: str
    cells: list[str]
    is_numeric: bool
    min_width: int
    full_width: int


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    title: str | None = None,
    optional: Sequence[str] = (),
) -> list[str]:
    """Print a table, without breaking numbers or words.

    Where the table is too wide for a terminal, columns named in `optional` are left out, the first
    of them first, until the others fit. If they never fit, all columns are printed, each row as a
    block of lines. Nothing is left out in a file or a pipe.

    Returns the names of the columns that were left out.
    """
    console = _console(sys.stdout)
    all_columns = _make_columns(columns, rows)

    # 1. Leave columns out until the others fit.
    columns_to_print = all_columns
    left_out: list[str] = []
    if console.is_terminal:
        for name in optional:
            if _min_table_width(columns_to_print) <= console.width:
                break
            columns_to_print = [column for column in columns_to_print if column.name != name]
            left_out.append(name)

    # 2. Print the table, or blocks of lines if it is still too wide.
    if title is not None:
        _print_title(console, title)
    if _min_table_width(columns_to_print) > console.width:
        _print_blocks(console, all_columns)
        return []
    _print_grid(console, columns_to_print)
    return left_out


def width_left(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, at_most: int) -> int:
    """Return how many characters wide one more column of this table may be, up to `at_most`."""
    table_width = _min_table_width(_make_columns(columns, rows))
    n_characters: int = _console(sys.stdout).width - table_width - _GAP
    return max(0, min(at_most, n_characters))


def _make_columns(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[_Column]:
    all_rows = list(rows)
    return [
        _make_column(name, [row[position] for row in all_rows])
        for position, name in enumerate(names)
    ]


def _make_column(name: str, values: list[Any]) -> _Column:
    """Turn the values of a column into text, and measure how wide the column must be.

    `name` is its heading. Widths are in characters of a terminal, where "水" takes two.
    """
    from rich.cells import cell_len as width_of

    cells = [printable(value if isinstance(value, str) else number(value)) for value in values]
    are_numbers = all(cell == "–" or re.fullmatch(_NUMBER, cell) for cell in cells)

    words = name.split()
    for cell in cells:
        words += [cell] if _must_stay_whole(cell) else cell.split()
    longest_word = max((width_of(word) for word in words), default=0)

    return _Column(
        name=name,
        cells=cells,
        is_numeric=are_numbers,
        min_width=min(longest_word, _LONGEST_WORD),
        full_width=max(width_of(text) for text in [*cells, name]),
    )


def _must_stay_whole(cell: str) -> bool:
    """Say whether a cell must not be broken at its blanks: "0.1 to 0.3", "0.2 ± 0.1", a drawing."""
    return re.fullmatch(rf"{_NUMBER} (to|±) {_NUMBER}|[ ─|o]+", cell) is not None


def _min_table_width(columns: Iterable[_Column]) -> int:
    return sum(column.min_width + _GAP for column in columns)


def _print_title(console: Any, title: str) -> None:
    """Print a title by itself: rich would wrap it to the width of the table."""
    from rich.text import Text

    console.print(Text(printable(title), style="italic"), soft_wrap=not console.is_terminal)


def _print_grid(console: Any, columns: Sequence[_Column]) -> None:
    """Print columns side by side.

    Every column gets its smallest width; what is left of the line goes to the first columns, up to
    their full width. (rich would make all columns narrower in proportion, and break words.)
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # 1. Give each column its width.
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    width_left_over = console.width - _min_table_width(columns)
    for column in columns:
        wanted_width = column.full_width - column.min_width
        extra_width = max(0, min(width_left_over, wanted_width))
        width_left_over -= extra_width
        table.add_column(
            Text(column.name),
            justify="right" if column.is_numeric else "left",
            width=column.min_width + extra_width,
            overflow="fold",
        )

    # 2. Print the rows.
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*map(Text, row))
    console.print(table)


def _print_blocks(console: Any, columns: Sequence[_Column]) -> None:
    """Print each row as a block of lines, for a table that is too wide for the terminal.

    The first line of a block is the cell of the first column that holds words, in bold. The other
    cells follow, one on each line: "coverage: 0.91".
    """
    from rich.padding import Padding
    from rich.text import Text

    name_column = next((column for column in columns if not column.is_numeric), columns[0])
    other_columns = [column for column in columns if column is not name_column]
    for row, row_name in enumerate(name_column.cells):
        console.print(Text(row_name, style="bold"))
        for column in other_columns:
            cell = column.cells[row]
            if cell:
                line = f"{column.name}: {cell}" if column.name else cell
                console.print(Padding(Text(line), (0, 0, 0, _BLOCK_INDENT)))
    console.print()


# --- progress -------------------------------------------------------------------------------------


@contextmanager
def progress(
    description: str, total: int | None, *, quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error while the `with` block runs.

    The block gets a function to call with the number of steps done so far; `total` is the number of
    all steps, or None for a running clock. During a fit the bar says by itself which model is being
    fitted. Nothing is shown with `quiet`, or where standard error is no terminal.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda n_done: None
        return

    with _progress_bar(has_total=total is not None) as bar:
        task = bar.add_task(description, total=total)

        def show_search(search: SearchProgress) -> None:
            bar.update(task, description=f"{description}: {search_in_words(search)}")

        with watch_search(show_search):
            yield lambda n_done: bar.update(task, completed=n_done)


def _progress_bar(*, has_total: bool) -> Any:
    """Make a bar with the share done and the time left, or with the time elapsed."""
    from rich import progress as rich_progress
    from rich.console import Console

    columns: list[rich_progress.ProgressColumn] = [
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
    ]
    if has_total:
        columns += [rich_progress.TaskProgressColumn(), rich_progress.TimeRemainingColumn()]
    else:
        columns += [rich_progress.TimeElapsedColumn()]
    return rich_progress.Progress(*columns, console=Console(file=sys.stderr), transient=True)


def search_in_words(search: SearchProgress) -> str:
    """Say how many candidates there are, how many fits are done, and what is fitted now."""
    return (
        f"{search.n_candidates} candidates, {search.n_done} of {search.n_fits} fits done, now "
        f"{search.model_now or 'the winner'}"
    )


# --- notes ----------------------------------------------------------------------------------------


@contextmanager
def collected_notes(target: str | None = None) -> Iterator[list[str]]:
    """Collect the Python warnings of the `with` block as sentences for the user, each of them once.

    The block gets an empty list, which is filled when the block ends. Sentences name options
    instead of parameters (--alpha for alpha=), and the column `target` where they are about the
    label.
    """
    # 1. Run the block.
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # joblib replaces processes that were idle for long: nothing that a user can act on
        warnings.filterwarnings(
            "ignore", "A worker stopped while some jobs were given", UserWarning
        )
        yield notes

    # 2. Put its warnings into words.
    for warning in caught:
        if issubclass(warning.category, _SILENT_WARNINGS):
            continue
        assert isinstance(warning.message, Warning)  # the type allows a text, too
        sentence = _in_one_line(spell_error(warning.message, target=target))
        if sentence not in notes:
            notes.append(sentence)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes beside the result, to standard error."""
    for sentence in notes:
        say(f"Note: {_in_one_line(sentence)}", err=True)


def _in_one_line(text: str) -> str:
    return " ".join(text.split())
