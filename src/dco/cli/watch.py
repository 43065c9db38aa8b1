"""``dco watch``: take labelled rows as they arrive, and say whether the promise still holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from dco.cli.option_records import TargetOptions
from dco.cli.option_types import FILE, LEVEL, WholeType
from dco.cli.options import example, force_option, target_options
from dco.cli.printing import (
    as_json,
    collected_notes,
    print_json,
    print_notes,
    print_table,
    progress,
    say,
)
from dco.foundations.display import counted


@click.command("watch", epilog=example("dco watch model.dco new_patients.csv --state watch.json"))
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
@click.option(
    "--state",
    type=FILE,
    required=True,
    help="The file that keeps the state; the first call creates it.",
)
@click.option(
    "--error-rate",
    type=LEVEL,
    help="Chance of ever giving a false alarm.  [default: 0.05, or that of the state]",
)
@click.option(
    "--run-length",
    type=WholeType(min=1),
    help="Average number of rows between false reports of change.  [default: 10000, or that of "
    "the state]",
)
@click.option(
    "--duplicates",
    type=click.Choice(["drop", "natural"]),
    help="Count rows that are equal to earlier ones once, or (natural) each time.  [default: drop, "
    "or that of the state]",
)
@click.option(
    "--restart", is_flag=True, help="Begin a new state: the rows of earlier calls are forgotten."
)
@click.option(
    "--by",
    metavar="COL",
    help="Also watch the scores of each slice: the rows of one value of this column.",
)
@click.option("--report", type=FILE, help="Also write an HTML page with the timeline.")
@target_options
@force_option
@as_json
def command(
    model: Path,
    data: Path,
    state: Path,
    error_rate: float | None,
    run_length: int | None,
    duplicates: str | None,
    restart: bool,
    report: Path | None,
    force: bool,
    as_json: bool,
    trust: tuple[str, ...],
    reading: TargetOptions,
) -> None:
    """Take the rows of DATA in order, after those of earlier calls, and say whether the promise of
    MODEL still holds.

    The exit status is 1 on an alarm. DATA holds labelled rows that came after the fit; rows of
    earlier calls count once. It is read in batches: a file or a folder may be larger than memory.
    State and page are replaced only when all rows have been taken, so a call that was stopped can
    be repeated. What the state was begun with (--error-rate, --run-length, --duplicates) stays as
    it is.
    """
    from dataclasses import asdict

    from dco.cli.outputs import check_output, check_outputs, check_page
    from dco.foundations.extras import require

    check_outputs({"state": state, "report": report}, force=True, inputs=[model, data])
    if report is not None:
        check_page(report)
        check_output(report, force=force)
        require("matplotlib", extra="report")

    settings = {"error_rate": error_rate, "run_length": run_length, "duplicates": duplicates}
    with progress("Watching", None, quiet=as_json), collected_notes() as notes:
        watched = watch_table(
            model,
            data,
            state,
            settings={name: value for name, value in settings.items() if value is not None},
            restart=restart,
            page=report,
            trust=trust,
            reading=reading,
        )

    if as_json:
        facts = {"new_rows": watched.n_new_rows, "notes": notes, "state": str(state)}
        print_json(asdict(watched.report) | facts)
    else:
        print_report(watched, data)
        print_notes(notes)
    if watched.report.alarm:
        raise click.exceptions.Exit(1)


@dataclass(frozen=True)
class Watched:
    """What is known after the rows of a table, and how many of them are new."""

    report: Any  # MonitorReport, which is slow to import
    n_new_rows: int


def watch_table(
    model_file: Path,
    data: Path,
    state_file: Path,
    *,
    settings: dict[str, Any],
    restart: bool,
    page: Path | None,
    trust: tuple[str, ...],
    reading: TargetOptions,
) -> Watched:
    """Take the rows of a table after those of a state, and replace the state and the page."""
    from dco.cli.model_files import open_model
    from dco.cli.tables.files import has_unfinished_line
    from dco.cli.tables.fitted import read_rows_with_targets
    from dco.cli.tables.rows import NewValues
    from dco.foundations.notes import Note, show
    from dco.service import Monitor, settings_of

    estimator = open_model(model_file, trust)
    text_before = read_if_there(state_file)
    state = None
    if text_before is not None and restart:
        check_looks_like_state(text_before, state_file)
    elif text_before is not None:
        state = parse_state(text_before, state_file)
        settings = settings_of(state) | settings
    monitor = Monitor(estimator, state=state, **settings)
    n_before = monitor.report().rows

    new_values = NewValues()
    batches = read_rows_with_targets(estimator, data, reading, new_values, complete_lines=True)
    report = monitor.update_all((rows.X, rows.y, rows.by) for rows in batches)
    show(new_values.notes())
    if has_unfinished_line(data):
        text = f"The last line of {data} has no line break, so it is left for the next call."
        show([Note("unfinished-line", text, "If the table is complete, add a line break.")])
    if not new_values.rows:
        raise ValueError(f"{data} has column names and no rows; give a table with rows.")

    contents = {state_file: json.dumps(monitor.state()) + "\n"}
    if page is not None:
        contents[page] = page_of(monitor, estimator, model_file, target=reading.target)
    replace_state(state_file, contents, text_before=text_before)
    return Watched(report, n_new_rows=report.rows - n_before)


def read_if_there(path: Path) -> str | None:
    """Return the text of a file; None if there is no file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeError:
        return ""  # no state


def parse_state(text: str, path: Path) -> Any:
    """Read the state in a file, or say that it is none."""
    from dco.service import settings_of

    try:
        state = json.loads(text)
        settings_of(state)
    except (ValueError, RecursionError):
        raise ValueError(
            f"{path} is not the state of a monitor, or was changed since `dco watch` wrote it: "
            "name the file of an earlier call, or a new one; --restart begins this one anew."
        ) from None
    return state


def check_looks_like_state(text: str, path: Path) -> None:
    """Refuse to begin a state anew in a file that something else wrote."""
    if not text.startswith('{"format": '):
        raise ValueError(
            f"{path} is not the state of a monitor, so --restart keeps it: name another file."
        )


def page_of(monitor: Any, estimator: Any, model_file: Path, *, target: str | None) -> str:
    """Make the page with the timeline."""
    from dco.cli.model_files import fitted_layout
    from dco.report import timeline_html

    layout = fitted_layout(estimator)
    if target is None and layout is not None:
        target = layout.target
    return timeline_html(monitor, title=f"{target} by {model_file.name}, in service")


def replace_state(state_file: Path, contents: dict[Path, str], *, text_before: str | None) -> None:
    """Write the state and the page, unless another call has written the state meanwhile."""
    from dco.cli.outputs import finish_from_here
    from dco.foundations.files import wait_for_folder, write_files

    with wait_for_folder(state_file.resolve().parent):
        if read_if_there(state_file) != text_before:
            raise ValueError(
                f"{state_file} was written by another call meanwhile. Repeat this call: no row is "
                "lost."
            )
        finish_from_here()
        write_files(contents)


def print_report(watched: Watched, data: Path) -> None:
    """Print what is known, with tables by condition and by slice."""
    from dco.service import report_sentences, report_tables

    say(f"{counted(watched.n_new_rows, 'new row')} of {data}.")
    say(*report_sentences(watched.report))
    for table in report_tables(watched.report):
        print_table(table.columns, table.cells, title=f"{table.title} ({table.explanation})")
