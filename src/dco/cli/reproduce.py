"""``dco reproduce``: rebuild a table or a figure of the paper."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from dco.cli.option_types import FILE, LEVEL, WholeType
from dco.cli.options import (
    example,
    force_option,
    jobs_option,
    scheduler_option,
    seed_option,
)
from dco.cli.printing import (
    as_json,
    collected_notes,
    print_json,
    print_notes,
    print_table,
    progress,
    say,
)

_LISTED = ("name", "summary", "needs", "minutes")


@click.command("reproduce", epilog=example("dco reproduce", "dco reproduce --json"))
@click.argument("name", required=False)
@click.option(
    "--out", type=FILE, default=Path("results"), show_default=True, help="The folder for results."
)
@click.option(
    "--splits", type=WholeType(min=1), help="Number of random splits.  [default: that of the paper]"
)
@click.option(
    "--alpha",
    type=LEVEL,
    help="Share of rows whose set may miss the true value.  [default: that of the paper]",
)
@seed_option
@click.option("--quick", is_flag=True, help="A smaller run that shows the same in minutes.")
@click.option(
    "--data-home", type=FILE, help="The folder with the data sets.  [default: $DCO_DATA_HOME]"
)
@click.option(
    "--features",
    type=click.Choice(["resnet50"]),
    help="Make CIFAR-100's or ImageNet-A's features from images.",
)
@click.option("--images", type=FILE, help="With --features: the images, a folder or an archive.")
@click.option(
    "--weights", type=FILE, help="With --features: torchvision's file of weights, resnet50-*.pth."
)
@jobs_option(help="Number of processes.  [default: all cores]")
@scheduler_option
@click.option("--list", "listed", is_flag=True, help="List what can be rebuilt.")
@force_option
@as_json
def command(name: str | None, listed: bool, as_json: bool, **options: Any) -> None:
    """Rebuild NAME, a table or figure of the paper. Without NAME, list what there is, what it
    needs, how long it takes.

    Finished splits are kept in the folder of the results, so that a stopped run continues where it
    was. Results with another seed, level or number of splits are replaced only with --force.
    """
    from dco.datasets import Backbone
    from dco.paper import catalogue

    entries = catalogue.names(data_home=options["data_home"])
    if name is None or listed:
        rows = [[getattr(entry, column) for column in _LISTED] for entry in entries]
        if as_json:
            print_json({"experiments": [dict(zip(_LISTED, row, strict=True)) for row in rows]})
        else:
            print_table(["name", "what it is", "needs", "minutes"], rows)
        return
    if (
        0
        < (made := [options.pop(each) for each in ("features", "images", "weights")]).count(None)
        < 3
    ):
        raise click.UsageError(
            "--features, --images and --weights go together: give all three, or none."
        )
    options["backbone"] = None if made[0] is None else Backbone(*map(str, made[1:]))
    known = [entry.name for entry in entries]
    if name not in known:
        raise ValueError(f"There is no experiment {name!r}; there are {', '.join(known)}.")
    # of a group: its bar moves on with each experiment
    parts = len(known) if name in ("all", "beyond") else 1
    with progress(name, 100 * parts, quiet=as_json) as reached, collected_notes() as notes:
        percents: dict[str, int] = {}

        def tell(experiment: str, done: int, total: int, seconds_left: float) -> None:
            percents[experiment] = 100 * done // max(total, 1)
            reached(sum(percents.values()))

        result = catalogue.reproduce(name, progress=tell, **options)
    if as_json:
        tables = [json.loads(table.to_json()) for table in result.tables]
        written = {"paths": [str(path) for path in result.paths], "skipped": list(result.skipped)}
        print_json({"name": name, "tables": tables, **written, "notes": notes})
        return
    for table in result.tables:
        if not sys.stdout.isatty():
            say(table.to_markdown())
            continue
        left_out = print_table(
            table.columns, table.shown(), title=table.title, spare=_spare(table.columns)
        )
        say(table.caption)
        if left_out:
            say(
                f"This window is too narrow for {', '.join(reversed(left_out))}: see "
                f"{table.slug}.csv."
            )
        say("")
    print_notes(notes)
    say(
        *(f"Left out: {reason}" for reason in result.skipped),
        *(f"Wrote {path}." for path in result.paths),
    )


def _spare(columns: Sequence[str]) -> list[str]:
    """The columns of a table that a narrow terminal can leave out: differences and laws first, then
    from the right.
    """
    derived = [name for name in columns if name in ("z", "by law") or name.split()[-1] == "off"]
    return [
        *derived,
        *(name for name in reversed(columns[4:]) if name not in [*derived, "guarantee"]),
    ]
