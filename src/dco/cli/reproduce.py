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
@click.option("--list", "wants_list", is_flag=True, help="List what can be rebuilt.")
@force_option
@as_json
def command(
    name: str | None,
    out: Path,
    splits: int | None,
    alpha: str | None,
    seed: int,
    quick: bool,
    data_home: Path | None,
    features: str | None,
    images: Path | None,
    weights: Path | None,
    jobs: int | None,
    scheduler: str | None,
    wants_list: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Rebuild NAME: an experiment, or a number of the paper such as "table 6". Without NAME, list
    what there is, what it needs, how long it takes.

    Finished splits are kept in the folder of the results, so that a stopped run continues where it
    was, and tables and figures can be drawn again from them. Results with another seed, level or
    number of splits are replaced only with --force.
    """
    from dco.paper import experiments_of, reproduce

    if name is None or wants_list:
        print_list(data_home, as_json=as_json)
        return

    backbone = make_backbone(features, images, weights)
    n_experiments = len(experiments_of(name))
    with (
        progress(name, 100 * n_experiments, quiet=as_json) as move_bar,
        collected_notes() as notes,
    ):
        percent_done: dict[str, int] = {}

        def report(experiment: str, done: int, total: int, seconds_left: float) -> None:
            percent_done[experiment] = 100 * done // max(total, 1)
            move_bar(sum(percent_done.values()))

        result = reproduce(
            name,
            out=out,
            splits=splits,
            alpha=alpha,
            seed=seed,
            jobs=jobs,
            scheduler=scheduler,
            quick=quick,
            data_home=data_home,
            backbone=backbone,
            force=force,
            progress=report,
        )

    if as_json:
        print_json(
            {
                "name": name,
                "tables": [json.loads(table.to_json()) for table in result.tables],
                "paths": [str(path) for path in result.paths],
                "skipped": list(result.skipped),
                "notes": notes,
            }
        )
        return
    for table in result.tables:
        print_result_table(table)
    print_notes(notes)
    say(
        *(f"Left out: {reason}" for reason in result.skipped),
        *(f"Wrote {path}." for path in result.paths),
    )


def print_list(data_home: Path | None, *, as_json: bool) -> None:
    """Print all experiments: their parts of the paper, what they need and how long they take.

    In a file or a pipe every experiment has one line, however long.
    """
    from dco.paper import list_experiments

    entries = list_experiments(data_home=data_home)
    if as_json:
        print_json({"experiments": [vars(entry) for entry in entries]})
        return
    rows = [
        [entry.name, entry.minutes, entry.paper, entry.needs, entry.summary] for entry in entries
    ]
    columns = ["name", "minutes", "in the paper", "needs", "what it is"]
    if sys.stdout.isatty():
        print_table(columns, rows, optional=["needs", "what it is"])
        return
    lines = [columns, *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        say("  ".join(padded).rstrip())


def make_backbone(features: str | None, images: Path | None, weights: Path | None) -> Any:
    """Return the network that makes features from images; None without --features."""
    from dco.datasets import Backbone

    if features is None and images is None and weights is None:
        return None
    if features is None or images is None or weights is None:
        raise click.UsageError(
            "--features, --images and --weights go together: give all three, or none."
        )
    return Backbone(str(images), str(weights))


def print_result_table(table: Any) -> None:
    """Print a table of results: on a terminal as wide as it fits, elsewhere as Markdown.

    If columns were left out on a narrow terminal, the last sentence says where they are.
    """
    if not sys.stdout.isatty():
        say(table.to_markdown())
        return
    left_out = print_table(
        table.columns, table.shown(), title=table.title, optional=optional_columns(table.columns)
    )
    say(table.caption)
    if left_out:
        say(f"This window is too narrow for {', '.join(reversed(left_out))}: see {table.slug}.csv.")
    say("")


def optional_columns(columns: Sequence[str]) -> list[str]:
    """List the columns that a narrow terminal may leave out, the first to go first.

    Columns that follow from others ("z", "width off") go first, then the others from the right. The
    first four columns and the guarantee always stay.
    """
    derived = [name for name in columns if name in ("z", "by law") or name.split()[-1] == "off"]
    others = [name for name in columns[4:] if name not in [*derived, "guarantee"]]
    return [*derived, *reversed(others)]
