"""``dco reproduce``: rebuild a table or a figure of the paper."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from dco.commands.options import FILE, LEVEL, JobsType, WholeType, example, force_option
from dco.commands.printing import as_json, note, noted_warnings, print_json, print_table, progress, say


@click.command("reproduce", epilog=example("dco reproduce", "dco reproduce --json"))
@click.argument("name", required=False)
@click.option("--out", type=FILE, default=Path("results"), show_default=True, help="The folder for results.")
@click.option("--splits", type=WholeType(min=1), help="How many random splits.  [default: those of the paper]")
@click.option("--alpha", type=LEVEL, help="The share of rows that may be missed.  [default: that of the paper]")
@click.option("--seed", type=WholeType(min=0), default=0, show_default=True, help="Fixes every split.")
@click.option("--quick", is_flag=True, help="A smaller run that shows the same things in minutes.")
@click.option("--data-home", type=FILE, help="The folder with the data sets.  [default: $DCO_DATA_HOME]")
@click.option("--jobs", type=JobsType(), help="Processes.  [default: one a core]")
@click.option("--scheduler", metavar="ADDRESS", help="Run on a Dask cluster, e.g. tcp://host:8786.")
@click.option("--list", "listed", is_flag=True, help="List what can be rebuilt.")
@force_option
@as_json
def command(name: str | None, listed: bool, as_json: bool, **options: Any) -> None:
    """Rebuild what NAME stands for in the paper; without NAME, list what can be rebuilt, what it needs, how long it takes.

    Finished splits are kept in the folder of the results, so that a run that was stopped goes on where it was. Results with
    another seed, level or number of splits are replaced only with --force.
    """
    try:
        from dco.experiments import catalogue
    except ModuleNotFoundError as missing:
        if missing.name != "dco.experiments.catalogue":
            raise
        raise ValueError(
            "This installation has no experiments to reproduce (dco.experiments.catalogue is missing)."
        ) from None

    entries = catalogue.names(data_home=options["data_home"])
    if name is None or listed:
        rows = [[entry.name, entry.summary, entry.needs, entry.minutes] for entry in entries]
        if as_json:
            names = ("name", "summary", "needs", "minutes")
            print_json({"experiments": [dict(zip(names, row, strict=True)) for row in rows]})
        else:
            print_table(["name", "what it is", "needs", "minutes"], rows)
        return
    known = [entry.name for entry in entries]
    if name not in known:
        raise ValueError(f"There is nothing called {name!r} to reproduce; there are {', '.join(known)}.")
    notes: list[str] = []
    with progress(name, 100 * _parts(name, known), quiet=as_json) as advance, noted_warnings(notes):
        shown: dict[str, int] = {}

        def tell(experiment: str, done: int, total: int, seconds_left: float) -> None:
            percent = 100 * done // max(total, 1)
            advance(percent - shown.get(experiment, 0))
            shown[experiment] = percent

        result = catalogue.reproduce(name, progress=tell, **options)
    if as_json:
        tables = [json.loads(table.to_json()) for table in result.tables]
        print_json(
            {
                "name": name,
                "tables": tables,
                "paths": [str(path) for path in result.paths],
                "skipped": list(result.skipped),
                "notes": notes,
            }
        )
        return
    for table in result.tables:
        if not sys.stdout.isatty():
            say(table.to_markdown())
            continue
        left_out = print_table(table.columns, table.shown(), title=table.title, spare=_spare(table.columns))
        say(table.caption)
        if left_out:
            say(f"This window is too narrow for {', '.join(reversed(left_out))}: see {table.slug}.csv.")
        say("")
    for sentence in notes:
        note(f"Note: {sentence}")
    for reason in result.skipped:
        say(f"Left out: {reason}")
    for path in result.paths:
        say(f"Wrote {path}.")


def _spare(columns: Sequence[str]) -> list[str]:
    """The columns of a table that a narrow terminal can do without: differences and laws first, then from the right."""
    derived = [name for name in columns if name in ("z", "by law") or name.split()[-1] == "off"]
    return [*derived, *(name for name in reversed(columns[4:]) if name not in [*derived, "guarantee"])]


def _parts(name: str, known: list[str]) -> int:
    """How many experiments a group may hold at most: the bar of a group moves on with each of them."""
    return len(known) if name in ("all", "beyond") else 1
