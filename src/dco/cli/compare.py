"""``dco compare``: the methods of the paper on the user's own table, over repeated splits."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from dco.cli import options as opt
from dco.cli.printing import as_json, collected_notes, print_json, print_notes, print_table, say


@click.command(
    "compare",
    epilog=opt.example(
        "dco compare patients.csv --target progression --splits 4 --models linear --out comparison"
    ),
)
@opt.table_options
@click.option(
    "--splits",
    type=opt.WholeType(min=1),
    default=50,
    show_default=True,
    help="Number of random splits.",
)
@opt.level_options()
@click.option(
    "--delta",
    type=opt.LEVEL,
    default=0.05,
    show_default=True,
    help="Failure probability of a PAC guarantee.",
)
@opt.objective_option("mean_size")
@click.option(
    "--tune-size",
    type=opt.SizeType(),
    default="0.25",
    show_default=True,
    help="Rows that rank candidates.",
)
@click.option(
    "--calibrate-size",
    type=opt.SizeType(),
    default="0.25",
    show_default=True,
    help="Rows for calibration.",
)
@click.option(
    "--test-size",
    type=opt.SizeType(),
    default="0.25",
    show_default=True,
    help="Rows that measure coverage and size.",
)
@click.option(
    "--hold-out",
    type=opt.SizeType(),
    help="Rows to keep out of the comparison, in a file for `dco fit`.",
)
@opt.sample_option
@opt.seed_option
@opt.work_options
@click.option(
    "--out",
    type=opt.FILE,
    default=Path("comparison"),
    show_default=True,
    help="The folder for records and tables.",
)
@opt.resume_option
@opt.force_option
@as_json
def command(data: Path, as_json: bool, **options: Any) -> None:
    """Run split conformal prediction, CRC, CQR, ModSel-CP, BQ, BCP-CRC, LTT, DirectTune, EFCP and
    DCO on repeated splits.

    All methods see the same models and the same rows; those that tune nothing calibrate on tuning
    and calibration rows together. There is one table per kind of guarantee, with paired Wilcoxon
    tests against DCO of the same kind. Finished splits are kept, so that --resume continues a
    stopped run with the same result.
    """
    from dco.cli.comparison import ADVICE, CANDIDATE, run_comparison, shown

    options["alpha"] = opt.chosen_alpha(options["alpha"], options.pop("confidence"))
    with collected_notes() as notes:
        opt.note_large(options["alpha"])
        found = run_comparison(data, options, quiet=as_json)
    advised = None if found.held_out is None else _fit_command(found.held_out, options)
    if as_json:
        print_json(
            {
                "why": found.why,
                "splits": options["splits"],
                "alpha": options["alpha"],
                "tables": [json.loads(table.to_json()) for table in found.tables],
                "failed": found.failed,
                "advice": ADVICE,
                "held_out": found.held_out,
                "next": advised,
                "out": options["out"],
                "notes": notes,
            }
        )
        return
    say(found.why)
    for table in found.tables:
        print_table(
            table.columns, shown(table).rows, title=table.title, spare=[CANDIDATE, "P95 size"]
        )
    say(found.tables[0].caption)
    print_notes([*found.failed, *notes])
    say(f"Records and tables are in {options['out']}.", ADVICE)
    kept = f"Rows that were not in it are in {found.held_out}: {advised}"
    say("--hold-out 0.3 would have kept such rows." if advised is None else kept)


def _fit_command(held_out: Path, options: Mapping[str, Any]) -> str:
    """How to fit on the rows that were held out, with the columns, the level and the models of the
    comparison.
    """
    words = ["dco", "fit", str(held_out), "--target", options["target"]]
    if options["decimal"] != ".":
        words += ["--decimal", options["decimal"]]
    for name in ("task", "alpha", "models", "groups", "objective"):
        if options[name] not in (None, "mean_size", 0.1):  # as `dco fit` has it
            words += [f"--{name}", str(options[name])]
    for column in options["drop"]:
        words += ["--drop", column]
    return shlex.join(words)
