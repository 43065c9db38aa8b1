"""``dco predict``: prediction sets for tables of any size, batch by batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dco.cli import options as opt
from dco.cli.printing import as_json, collected_notes, print_json, print_notes, say


@click.command(
    "predict", epilog=opt.example("dco predict model.dco new_patients.csv --out sets.csv")
)
@click.argument("model", type=opt.FILE)
@click.argument("data", type=opt.FILE)
@click.option(
    "--out",
    type=opt.FILE,
    required=True,
    help="CSV, Parquet or Feather; a folder if DATA is a folder.",
)
@opt.model_options
@click.option(
    "--key",
    metavar="COL",
    help="Copy this column as the first.  [default: the key of the model, or row numbers]",
)
@click.option(
    "--keep",
    metavar="COLS|all",
    help="Copy these columns too, separated by commas, or all of the table.",
)
@click.option(
    "--batch-rows",
    type=opt.WholeType(min=1),
    default=50_000,
    show_default=True,
    help="Rows in memory at a time.",
)
@opt.decimal_option(default=None)
@click.option("--ignore-new", is_flag=True, help="Ignore columns that the model was not fitted on.")
@click.option(
    "--no-escape",
    is_flag=True,
    help="CSV: keep text that begins with = + - @, which spreadsheets run.",
)
@opt.resume_option
@opt.work_options
@opt.force_option
@opt.trust_option
@as_json
def command(out: Path, as_json: bool, **asked: Any) -> None:
    """Write the prediction set of every row of DATA, in order. Memory stays flat however long the
    table is.

    The output has the key of the row (or its number, from 0), the point prediction, the set and its
    size. A set is a list of labels, or lower and upper ends (and all pieces, if it has several). In
    a CSV, text that a spreadsheet would run as a formula gets an apostrophe in front. A folder of
    Parquet files gives a folder with one output per file, on a Dask cluster if --scheduler names
    one; its machines must see the same paths. A run that is killed leaves no half-written file.
    """
    from dco.cli.prediction import predict

    asked["alpha"] = opt.chosen_alpha(asked["alpha"], asked.pop("confidence"), default=None)
    with collected_notes() as notes:
        rows, files, promise = predict({**asked, "out": out, "quiet": as_json})
    if as_json:
        print_json({"rows": rows, "files": files, "out": str(out), **promise, "notes": notes})
        return
    print_notes(notes)
    sets = "set of 1 row" if rows == 1 else f"sets of {rows:,} rows"
    say(f"Wrote the {sets} to {out}" + (f" ({files} files)." if files > 1 else "."))
