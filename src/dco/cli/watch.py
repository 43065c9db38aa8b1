"""``dco watch``: take labelled rows as they arrive, and say whether the promise still holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dco.cli.options import FILE, LEVEL, example, target_options
from dco.cli.printing import as_json, collected_notes, print_json, print_notes, print_table, progress, say
from dco.foundations.display import counted


@click.command("watch", epilog=example("dco watch model.dco new_patients.csv --state watch.json"))
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
@click.option("--state", type=FILE, required=True, help="What is known so far; made by the first call, then continued.")
@click.option("--error-rate", type=LEVEL, default="0.05", show_default=True, help="P(ever a false alarm) is at most this.")
@click.option("--run-length", type=click.IntRange(1), default=10_000, show_default=True, help="Rows between false changes.")
@click.option("--count-copies", is_flag=True, help="Count rows that are equal to earlier ones; by default they count once.")
@target_options
@as_json
def command(model: Path, data: Path, state: Path, trust: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Watch MODEL on the rows of DATA, in their order, and go on from earlier calls. Exit status 1 on an alarm.

    DATA holds labelled rows that came after the fit, and may hold rows of earlier calls again: they count once. The state is
    replaced only when all rows of DATA have been taken, so a call that was stopped can be repeated.
    """
    from dataclasses import asdict

    from dco.cli.model_files import open_model, rows_with_targets
    from dco.evaluation.monitor import Monitor
    from dco.foundations.files import written_beside

    asked = {name: options.pop(name) for name in ("error_rate", "run_length")}
    asked["duplicates"] = "natural" if options.pop("count_copies") else "drop"
    with progress("Watching", None, quiet=as_json), collected_notes() as notes:
        estimator = open_model(model, trust)
        monitor = Monitor(estimator, state=_known(state), **asked)
        before = monitor.report().rows
        rows = rows_with_targets(estimator, data, by=None, **options)
        report = monitor.update(rows.X, rows.y)
        with written_beside(state, overwrite=True) as beside:
            beside.write_text(json.dumps(monitor.state()) + "\n", encoding="utf-8")
    if as_json:
        print_json(asdict(report) | {"new_rows": report.rows - before, "notes": notes, "state": str(state)})
    else:
        say(f"{counted(report.rows - before, 'new row')} of {data}.")
        _print(report)
        print_notes(notes)
    if report.alarm:
        raise click.exceptions.Exit(1)


def _known(path: Path) -> Any:
    """The state in a file; None if there is none yet."""
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise ValueError(f"{path} is not the state of a monitor: name the file of an earlier call, or a new one.") from None


def _print(report: Any) -> None:
    say(*str(report).splitlines())
    if report.conditions:
        print_table(
            ["group", "rows", "coverage", "expected", "p-value"],
            [
                [each.condition, each.rows, f"{each.coverage:.4f}", f"{each.expected_coverage:.4f}", f"{each.p_value:.2g}"]
                for each in report.conditions
            ],
            title="By group (p-values account for the number of groups)",
        )
