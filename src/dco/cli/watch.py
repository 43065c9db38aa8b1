"""``dco watch``: take labelled rows as they arrive, and say whether the promise still holds."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from dco.cli.watching import Watched


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
    from dco.cli.outputs import check_output, check_outputs, check_page
    from dco.cli.watching import WatchOrder, watch_table
    from dco.foundations.extras import require

    check_outputs({"state": state, "report": report}, force=True, inputs=[model, data])
    if report is not None:
        check_page(report)
        check_output(report, force=force)
        require("matplotlib", extra="report")

    settings = {"error_rate": error_rate, "run_length": run_length, "duplicates": duplicates}
    order = WatchOrder(
        model=model,
        data=data,
        state=state,
        settings={name: value for name, value in settings.items() if value is not None},
        restart=restart,
        page=report,
        trust=trust,
        reading=reading,
    )
    with progress("Watching", None, quiet=as_json), collected_notes() as notes:
        watched = watch_table(order)

    if as_json:
        facts = {"new_rows": watched.n_new_rows, "notes": notes, "state": str(state)}
        print_json(asdict(watched.report) | facts)
    else:
        _print_report(watched, data)
        print_notes(notes)
    if watched.report.alarm:
        raise click.exceptions.Exit(1)


def _print_report(watched: Watched, data: Path) -> None:
    """Print whether the promise still holds, with tables by condition and by slice."""
    from dco.service import report_sentences, report_tables

    say(f"{counted(watched.n_new_rows, 'new row')} of {data}.")
    say(*report_sentences(watched.report))
    for table in report_tables(watched.report):
        print_table(table.columns, table.cells, title=f"{table.title} ({table.explanation})")
