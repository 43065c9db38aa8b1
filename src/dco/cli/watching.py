"""The work of ``dco watch``: give labelled rows to a monitor, and keep its state in a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dco import Monitor
from dco.cli.model_files import fitted_layout, open_model
from dco.cli.option_records import TargetOptions
from dco.cli.outputs import finish_from_here
from dco.cli.tables.files import has_unfinished_line
from dco.cli.tables.fitted import read_rows_with_targets
from dco.cli.tables.rows import NewValues
from dco.foundations.files import wait_for_folder, write_files
from dco.foundations.notes import Note, show
from dco.service import MonitorReport, settings_of


@dataclass(frozen=True)
class WatchOrder:
    """What the options of `dco watch` ask for."""

    model: Path
    data: Path
    state: Path
    settings: dict[str, Any]  # of the monitor, as far as options give them
    restart: bool
    page: Path | None
    trust: tuple[str, ...]
    reading: TargetOptions


@dataclass(frozen=True)
class Watched:
    """The report of the monitor after the rows of a table, and how many of the rows were new."""

    report: MonitorReport
    n_new_rows: int


def watch_table(order: WatchOrder) -> Watched:
    """Give new labelled rows to the monitor of a model, which watches whether its promise holds.

    The monitor continues from the state that earlier calls stored, unless there is none or
    --restart is given. Its new state, and the page, are written when all rows have been taken.
    """
    # 1. Continue the monitor of earlier calls, or begin a new one.
    estimator = open_model(order.model, order.trust)
    old_text = _read_if_there(order.state)
    monitor = _make_monitor(estimator, order, old_text)
    n_rows_before = monitor.report().rows

    # 2. Take the rows.
    new_values = NewValues()
    batches = read_rows_with_targets(
        estimator, order.data, order.reading, new_values, complete_lines=True
    )
    report = monitor.update_all((rows.X, rows.y, rows.by) for rows in batches)
    show(new_values.notes())
    if has_unfinished_line(order.data):
        show([_note_unfinished_line(order.data)])
    if not new_values.n_rows:
        raise ValueError(f"{order.data} has column names and no rows; give a table with rows.")

    # 3. Write the new state, and the page.
    contents = {order.state: json.dumps(monitor.state()) + "\n"}
    if order.page is not None:
        contents[order.page] = _make_page(monitor, estimator, order)
    _replace_state(order.state, contents, old_text=old_text)
    return Watched(report, n_new_rows=report.rows - n_rows_before)


def _make_monitor(estimator: Any, order: WatchOrder, old_text: str | None) -> Monitor:
    """Make a monitor with the state of earlier calls, or a new one.

    `old_text` is what the state file contains, None if there is no such file.
    """
    if old_text is None:
        return Monitor(estimator, **order.settings)
    if order.restart:
        _check_looks_like_state(old_text, order.state)
        return Monitor(estimator, **order.settings)

    state = _parse_state(old_text, order.state)
    settings = settings_of(state) | order.settings  # the monitor refuses settings that differ
    return Monitor(estimator, state=state, **settings)


def _read_if_there(path: Path) -> str | None:
    """Return the text of a file; None if there is no file, "" if it is not text."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeError:
        return ""


def _parse_state(text: str, path: Path) -> Any:
    """Read the state of a monitor from JSON; another text is an error that names the file."""
    try:
        state = json.loads(text)
        settings_of(state)  # raises an error if this is no state
    except (ValueError, RecursionError):
        raise ValueError(
            f"{path} is not the state of a monitor, or was changed since `dco watch` wrote it: "
            "name the file of an earlier call, or a new one; --restart begins this one anew."
        ) from None
    return state


def _check_looks_like_state(text: str, path: Path) -> None:
    """Refuse to overwrite a file that something else than `dco watch` wrote."""
    if not text.startswith('{"format": '):
        raise ValueError(
            f"{path} is not the state of a monitor, so --restart keeps it: name another file."
        )


def _note_unfinished_line(data: Path) -> Note:
    return Note(
        "unfinished-line",
        f"The last line of {data} has no line break, so it is left for the next call.",
        "If the table is complete, add a line break.",
    )


def _make_page(monitor: Monitor, estimator: Any, order: WatchOrder) -> str:
    """Make the HTML page with the timeline of the monitor."""
    from dco.report import timeline_html

    target = order.reading.target
    layout = fitted_layout(estimator)
    if target is None and layout is not None:
        target = layout.target
    return timeline_html(monitor, title=f"{target} by {order.model.name}, in service")


def _replace_state(state_file: Path, contents: dict[Path, str], *, old_text: str | None) -> None:
    """Write the state and the page, unless another call has written the state meanwhile.

    `old_text` is what the state file contained when this call began.
    """
    with wait_for_folder(state_file.resolve().parent):
        if _read_if_there(state_file) != old_text:
            raise ValueError(
                f"{state_file} was written by another call meanwhile. Repeat this call: no row is "
                "lost."
            )
        finish_from_here()  # Ctrl-C is ignored while files get their names
        write_files(contents)
