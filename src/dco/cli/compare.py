"""``dco compare``: the methods of the paper on the user's own table, over repeated splits."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dco.cli import options as opt
from dco.cli.option_types import FILE, LEVEL, SizeType, WholeType
from dco.cli.printing import as_json, collected_notes, print_json, print_notes, print_table, say
from dco.foundations.notes import show

if TYPE_CHECKING:
    from dco.cli.comparing import CompareOrder, Comparison


@click.command(
    "compare",
    epilog=opt.example(
        "dco compare patients.csv --target progression --splits 4 --models linear --out comparison"
    ),
)
@click.argument("data", type=FILE)
@opt.column_options
@opt.models_option
@click.option(
    "--splits",
    type=WholeType(min=1),
    default=50,
    show_default=True,
    help="Number of random splits.",
)
@opt.level_option
@click.option(
    "--delta",
    type=LEVEL,
    default=0.05,
    show_default=True,
    help="Failure probability of a PAC guarantee.",
)
@opt.objective_option("mean_size")
@click.option(
    "--tune-size",
    type=SizeType(),
    default="0.25",
    show_default=True,
    help="Rows that rank candidates.",
)
@click.option(
    "--calibrate-size",
    type=SizeType(),
    default="0.25",
    show_default=True,
    help="Rows for calibration.",
)
@click.option(
    "--test-size",
    type=SizeType(),
    default="0.25",
    show_default=True,
    help="Rows that measure coverage and size.",
)
@click.option(
    "--hold-out",
    type=SizeType(),
    help="Rows to keep out of the comparison, in a file for `dco fit`.",
)
@opt.sample_option
@opt.seed_option
@opt.work_options
@click.option(
    "--out",
    type=FILE,
    default=Path("comparison"),
    show_default=True,
    help="The folder for records and tables.",
)
@opt.resume_option
@opt.force_option
@as_json
def command(as_json: bool, **options: Any) -> None:
    """Run split conformal prediction, CRC, CQR, ModSel-CP, BQ, BCP-CRC, LTT, DirectTune, EFCP and
    DCO on repeated splits.

    All methods see the same models and the same rows; those that tune nothing calibrate on tuning
    and calibration rows together. There is one table per kind of guarantee, with paired Wilcoxon
    tests against DCO of the same kind. Finished splits are kept, so that --resume continues a
    stopped run with the same result.
    """
    from dco.cli.comparing import CompareOrder, run_comparison

    order = CompareOrder(**options)
    with collected_notes() as notes:
        show(opt.note_large_alpha(order.alpha))
        comparison = run_comparison(order, quiet=as_json)

    if as_json:
        print_json({**_facts(comparison, order), "notes": notes})
    else:
        _print_comparison(comparison, order, notes)


def _facts(comparison: Comparison, order: CompareOrder) -> dict[str, Any]:
    """Collect what --json prints: the tables, what failed, and the command that comes next."""
    from dco.cli.comparison import ADVICE

    return {
        "why": comparison.reason,
        "splits": order.splits,
        "alpha": order.alpha,
        "tables": [json.loads(table.to_json()) for table in comparison.tables],
        "failed": comparison.failed,
        "advice": ADVICE,
        "held_out": comparison.held_out,
        "next": _fit_command(comparison.held_out, order),
        "out": order.out,
    }


def _print_comparison(comparison: Comparison, order: CompareOrder, notes: list[str]) -> None:
    """Print the tables of a comparison, one for each kind of guarantee, and what to do next."""
    from dco.cli.comparison import ADVICE, CANDIDATE, round_for_reading

    # 1. The tables.
    say(comparison.reason)
    for table in comparison.tables:
        print_table(
            table.columns,
            round_for_reading(table).rows,
            title=table.title,
            optional=[CANDIDATE, "P95 size"],
        )
    say(comparison.tables[0].caption)  # all tables have the same
    print_notes([*comparison.failed, *notes])

    # 2. The advice to fit on rows that were not in the tables, and how.
    say(f"Records and tables are in {order.out}.", ADVICE)
    if comparison.held_out is None:
        say("--hold-out 0.3 would have kept such rows.")
    else:
        fit = _fit_command(comparison.held_out, order)
        say(f"Rows that were not in it are in {comparison.held_out}: {fit}")


def _fit_command(held_out: Path | None, order: CompareOrder) -> str | None:
    """Write the `dco fit` command for the rows held out; None if there are none.

    It has the columns, the level and the models of the comparison. Options that have the default of
    `dco fit` are left out.
    """
    if held_out is None:
        return None

    columns = order.columns
    words = ["dco", "fit", str(held_out), "--target", columns.target]
    if columns.decimal != ".":
        words += ["--decimal", columns.decimal]
    if columns.date_order is not None:
        words += ["--dates", columns.date_order]
    if columns.task is not None:
        words += ["--task", columns.task]
    if order.alpha != opt.USUAL_ALPHA:
        words += ["--alpha", str(order.alpha)]
    if order.models is not None:
        words += ["--models", ",".join(order.models)]
    if columns.groups is not None:
        words += ["--groups", columns.groups]
    if order.objective != "mean_size":
        words += ["--objective", order.objective]
    for column in columns.dropped:
        words += ["--drop", column]
    return shlex.join(words)
