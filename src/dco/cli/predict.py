"""``dco predict``: prediction sets for tables of any size, batch by batch."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from dco.cli import options as opt
from dco.cli.option_records import OtherPromise, Work
from dco.cli.option_types import FILE, WholeType
from dco.cli.printing import as_json, collected_notes, print_json, print_notes, say


def _split_columns(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Read names of columns separated by commas: "age, sex" -> ("age", "sex")."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


@click.command(
    "predict", epilog=opt.example("dco predict model.dco new_patients.csv --out sets.csv")
)
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
@click.option(
    "--out",
    type=FILE,
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
    callback=_split_columns,
    help="Copy these columns too, separated by commas, or all of the table.",
)
@click.option(
    "--batch-rows",
    type=WholeType(min=1),
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
def command(
    model: Path,
    data: Path,
    out: Path,
    promise: OtherPromise,
    work: Work,
    resume: bool,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the prediction set of every row of DATA, in order. Memory stays flat however long the
    table is.

    The output has the key of the row (or its number, from 0), the point prediction, the set and its
    size. A set is a list of labels, or lower and upper ends (and all pieces, if it has several). In
    a CSV, text that a spreadsheet would run as a formula gets an apostrophe in front. A folder of
    Parquet files gives a folder with one output per file, on a Dask cluster if --scheduler names
    one; its machines must see the same paths. A run that is killed leaves no half-written file.
    """
    from dco.cli.prediction import PredictOrder, SetsOptions, predict

    order = PredictOrder(
        model=model,
        data=data,
        out=out,
        sets=SetsOptions(promise=promise, **options),
        work=work,
        resume=resume,
        force=force,
    )
    with collected_notes() as notes:
        predicted = predict(order, quiet=as_json)

    if as_json:
        counts = {"rows": predicted.n_rows, "files": predicted.n_files, "out": str(out)}
        print_json({**counts, **asdict(predicted.promise), "notes": notes})
        return
    print_notes(notes)
    n_rows = predicted.n_rows
    sets = "set of 1 row" if n_rows == 1 else f"sets of {n_rows:,} rows"
    files = f" ({predicted.n_files} files)" if predicted.n_files > 1 else ""
    say(f"Wrote the {sets} to {out}{files}.")
