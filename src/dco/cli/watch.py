"""``dco watch``: take labelled rows as they arrive, and say whether the promise still holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dco.cli.options import FILE, LEVEL, WholeType, example, target_options
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
    default="0.05",
    show_default=True,
    help="Chance of ever giving a false alarm.",
)
@click.option(
    "--run-length",
    type=WholeType(min=1),
    default=10_000,
    show_default=True,
    help="Average number of rows between false reports of change.",
)
@click.option(
    "--duplicates",
    type=click.Choice(["drop", "natural"]),
    default="drop",
    show_default=True,
    help="Count rows that are equal to earlier ones once, or (natural) each time.",
)
@click.option(
    "--by",
    metavar="COL",
    help="Also watch the scores of each slice: the rows of one value of this column.",
)
@click.option("--report", type=FILE, help="Also write an HTML page with the timeline.")
@target_options
@as_json
def command(
    model: Path,
    data: Path,
    state: Path,
    by: str | None,
    report: Path | None,
    trust: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Take the rows of DATA in order, after those of earlier calls, and say whether the promise of
    MODEL still holds.

    The exit status is 1 on an alarm. DATA holds labelled rows that came after the fit; rows of
    earlier calls count once. It is read in batches: a file or a folder may be larger than memory.
    State and page are replaced only when all rows have been taken, so a call that was stopped can
    be repeated.
    """
    from dataclasses import asdict

    from dco.cli.columns import NewValues
    from dco.cli.model_files import fitted_layout, open_model
    from dco.cli.model_tables import known_batches
    from dco.cli.outputs import check_output, check_suffix
    from dco.foundations.extras import require
    from dco.foundations.files import alone_in, write_whole, written_together
    from dco.foundations.notes import show
    from dco.service.monitor import Monitor

    asked = {name: options.pop(name) for name in ("error_rate", "run_length", "duplicates")}
    if report is not None:
        check_output(report, force=True, inputs=[model, data, state])
        check_suffix(report, ".html", ".htm")
        require("matplotlib", extra="report")  # said before the work, not after it
    with progress("Watching", None, quiet=as_json), collected_notes() as notes:
        estimator, known = open_model(model, trust), _known(state)
        monitor = Monitor(estimator, state=known, **asked)
        before, values = monitor.report().rows, NewValues()
        batches = known_batches(estimator, data, {"by": by, **options}, values)
        found = monitor.update_all((rows.X, rows.y, rows.by) for rows in batches)
        show(values.notes())
        if not values.rows:
            raise ValueError(f"{data} has column names and no rows; give a table with rows.")
        with alone_in(state.resolve().parent), written_together():
            if _known(state) != known:
                raise ValueError(
                    f"{state} was written by another call meanwhile. Repeat this "
                    f"call: no row is lost."
                )
            write_whole(state, json.dumps(monitor.state()) + "\n")
            if report is not None:
                from dco.report.timeline import write_timeline

                layout = fitted_layout(estimator)
                target = options["target"] or (layout and layout.target)
                write_timeline(monitor, report, title=f"{target} by {model.name}, in service")
    if as_json:
        print_json(
            asdict(found) | {"new_rows": found.rows - before, "notes": notes, "state": str(state)}
        )
    else:
        say(f"{counted(found.rows - before, 'new row')} of {data}.")
        say(*str(found).splitlines())
        for name, words, columns, cells in found.tables():
            print_table(columns, cells, title=f"{name} ({words})")
        print_notes(notes)
    if found.alarm:
        raise click.exceptions.Exit(1)


def _known(path: Path) -> Any:
    """The state in a file; None if there is none yet."""
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise ValueError(
            f"{path} is not the state of a monitor: name the file of an earlier call, or a new one."
        ) from None
