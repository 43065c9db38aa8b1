"""The work of ``dco compare``: hold rows out, run the splits, write records and tables."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import dco
from dco.cli.comparison import (
    ADVICE,
    FailedRow,
    MethodRow,
    Split,
    SplitSizes,
    comparison_tables,
    failures,
    round_for_reading,
)
from dco.cli.option_records import AskedColumns, Work
from dco.cli.outputs import check_apart, check_folder, finish_from_here
from dco.cli.printing import progress
from dco.cli.sets_files import write_tables
from dco.cli.tables.files import FOLDER, PARQUET, table_format
from dco.cli.tables.table import Table
from dco.cli.training import TrainingTable, read_training_table
from dco.cli.unfinished import UNFINISHED, find_plan_to_continue
from dco.foundations.arrays import Integers
from dco.foundations.files import plain, put_in_place, write_file, write_files
from dco.foundations.fingerprints import role_fingerprint, row_fingerprints
from dco.paper import Experiment, Options, run_splits
from dco.tuning import make_default_models

_SETTINGS_FILE = "settings.json"
_RECORDS_FILE = "records.jsonl"
_OUTPUT_FILES = (
    _RECORDS_FILE,
    "held-out.csv",
    "held-out.parquet",
    "held-out.feather",
    "tables.json",
    "tables.md",
)


@dataclass(frozen=True)
class CompareOrder:
    """What the options of `dco compare` ask for."""

    data: Path
    columns: AskedColumns
    splits: int
    alpha: float
    delta: float
    models: list[str] | None
    objective: str
    tune_size: int | float
    calibrate_size: int | float
    test_size: int | float
    hold_out: int | float | None
    sample_rows: int | None
    seed: int
    work: Work
    out: Path
    resume: bool
    force: bool


@dataclass(frozen=True, eq=False)
class Comparison:
    """Tables by kind of guarantee, and what else there is to say."""

    tables: list[Any]
    reason: str  # which task was found, and why
    failed: list[str]  # models that failed in some split
    held_out: Path | None  # the file with the rows that were held out


@dataclass(frozen=True)
class _Settings(Options):
    """What all records of one comparison have in common."""

    common: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """Return what a record must share to be taken up again."""
        # another release may have other default models
        return {**self.common, "dco": version("decoupled-conformal")}


def run_comparison(order: CompareOrder, *, quiet: bool) -> Comparison:
    """Read, hold rows out, run the splits that are not on record, make the tables."""
    # 1. Read the table, and hold rows out that no split sees.
    _check_input_is_kept(order.data, order.out)
    source = read_training_table(
        order.data, order.columns, sample_rows=order.sample_rows, seed=order.seed
    )
    _check_classes(source)
    parts = _hold_rows_out(source, order)
    model_names = order.models or _usual_models(source.layout.task)
    split = _make_split(source, parts.compared, model_names, order)
    split.deal(order.seed)  # impossible sizes are refused before anything is written

    # 2. Take a folder to work in.
    settings = _settings_of(order, source, model_names, has_held_out=parts.held_out.size > 0)
    folder = _begin(order.out, settings, resume=order.resume, force=order.force)

    # 3. Run the splits that have no record.
    records = _run_splits(split, settings, folder, order, quiet=quiet)

    # 4. Write tables and the rows held out.
    tables = comparison_tables(records, order.alpha, groups=order.columns.groups)
    held_out = source.table.take(parts.held_out)
    name = _held_out_name(order.data) if len(held_out) else None
    finish_from_here()
    _write_outputs(folder, tables, held_out, name)
    if folder != order.out:
        _replace_results(folder, order.out)

    return Comparison(
        tables=tables,
        reason=_explain(source, order),
        failed=failures(records),
        held_out=None if name is None else order.out / name,
    )


# --- the rows -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Parts:
    compared: Integers
    held_out: Integers


def _check_classes(source: TrainingTable) -> None:
    if source.layout.task == "classification" and len(np.unique(source.y)) < 2:
        raise ValueError(
            f"{source.table.path}: the target {source.layout.target!r} has one class only; a "
            "comparison needs at least two."
        )


def _hold_rows_out(source: TrainingTable, order: CompareOrder) -> _Parts:
    """Draw the rows to keep out; not by the seeds of the splits."""
    seed = int(np.random.SeedSequence([order.seed, 3]).generate_state(1)[0])
    splits = dco.assign_roles(
        len(source.y),
        tune=0,
        calibrate=0,
        test=order.hold_out or 0,
        groups=source.groups,
        random_state=seed,
    )
    return _Parts(compared=np.sort(splits.train), held_out=np.sort(splits.test))


def _usual_models(task: str) -> list[str]:
    """Name the models that are compared if --models names none."""
    names = ["linear", "forest", "boosting"]
    if task == "regression":
        names.append("quantiles")
    return names


def _make_split(
    source: TrainingTable, rows: Integers, model_names: list[str], order: CompareOrder
) -> Split:
    """Make the split that is run with each seed."""
    models = make_default_models(
        model_names,
        source.X,
        of_classes=source.layout.task == "classification",
        alpha=order.alpha,
    )
    return Split(
        X=source.X.iloc[rows].reset_index(drop=True),
        y=source.y[rows],
        groups=None if source.groups is None else source.groups[rows],
        models=models,
        alpha=order.alpha,
        delta=order.delta,
        sizes=SplitSizes(
            tune=order.tune_size, calibrate=order.calibrate_size, test=order.test_size
        ),
        objective=order.objective,
    )


def _settings_of(
    order: CompareOrder, source: TrainingTable, model_names: list[str], *, has_held_out: bool
) -> dict[str, Any]:
    """Return what the records of a comparison share: everything that changes a number."""
    return {
        "rows": role_fingerprint(row_fingerprints(source.X, source.y)),
        "target": source.layout.target,
        "task": source.layout.task,
        "models": model_names,
        "features": list(source.layout.features),
        "groups": order.columns.groups,
        "alpha": order.alpha,
        "delta": order.delta,
        "sizes": [order.tune_size, order.calibrate_size, order.test_size],
        "hold_out": order.hold_out,
        "hold_out_seed": order.seed if has_held_out else None,
        "objective": order.objective,
    }


def _explain(source: TrainingTable, order: CompareOrder) -> str:
    if order.sample_rows is None:
        return source.reason
    return (
        f"{source.reason} The comparison is on {len(source.y):,} of {source.n_rows:,} rows, drawn "
        "at random."
    )


def _run_splits(
    split: Split, settings: Mapping[str, Any], folder: Path, order: CompareOrder, *, quiet: bool
) -> list[Any]:
    """Run, keep and resume the splits like those of the paper; return their records."""
    experiment = Experiment(
        name="compare",
        summary="The methods of the paper on a table.",
        needs="a table",
        minutes=0,
        tables=lambda records, options: comparison_tables(
            records, order.alpha, groups=order.columns.groups
        ),
        run_split=split,
        row_kinds=(MethodRow, FailedRow),
    )
    with progress("Splits", order.splits, quiet=quiet) as reached:
        return run_splits(
            experiment,
            folder / _RECORDS_FILE,
            seeds=range(order.seed, order.seed + order.splits),
            options=_Settings((order.alpha,), common=settings),
            jobs=order.work.jobs,
            scheduler=order.work.scheduler,
            progress=lambda done, total, seconds_left: reached(done),
        )


# --- the folder -----------------------------------------------------------------------------------


def _check_input_is_kept(data: Path, out: Path) -> None:
    """Refuse to write where the table is: rows that are held out could be written over it."""
    if data.is_dir():
        check_apart(out, data)
    folder = data.parent.resolve()
    if out.resolve() in (folder, *folder.parents, *data.resolve().parents):
        raise ValueError(
            f"{data} lies in {out}, where the results would go; choose another folder for --out."
        )


def _begin(out: Path, settings: Mapping[str, Any], *, resume: bool, force: bool) -> Path:
    """Return the folder to work in, which is empty or belongs to the same order.

    It is the folder of the results; where --force replaces earlier results, a folder in it until
    all is done.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; the results go to a folder. Choose another name.")
    check_folder(out if out.exists() else out.parent)

    plain_settings = plain(settings)
    is_in_use = out.exists() and any(out.iterdir())
    in_results = out / _SETTINGS_FILE
    in_unfinished = out / UNFINISHED / _SETTINGS_FILE
    same = find_plan_to_continue(
        [in_unfinished, in_results],
        plain_settings,
        in_use=out if is_in_use else None,
        resume=resume,
        force=force,
    )
    if same is not None:
        return same.parent

    settings_file = in_unfinished if is_in_use else in_results
    shutil.rmtree(in_unfinished.parent, ignore_errors=True)
    settings_file.parent.mkdir(exist_ok=True)
    write_file(settings_file, json.dumps(plain_settings, indent=1))
    return settings_file.parent


def _held_out_name(data: Path) -> str:
    """Name the file of the rows held out, which the other commands read like the table."""
    kind = table_format(data)
    return f"held-out.{PARQUET if kind == FOLDER else kind}"


def _write_outputs(folder: Path, tables: Sequence[Any], held_out: Table, name: str | None) -> None:
    """Write the tables and the rows held out: all, or none."""
    # The caption is the same for all tables, so it stands under the first alone.
    others = [replace(table, caption="") for table in tables[1:]]
    pages = [round_for_reading(table).to_markdown() for table in [tables[0], *others]]
    json_of_tables = ",\n".join(table.to_json() for table in tables)
    contents: dict[Path, str | bytes] = {
        folder / "tables.md": "\n".join([*pages, ADVICE, ""]),
        folder / "tables.json": f"[{json_of_tables}]\n",
    }
    if name is not None:
        buffer = io.BytesIO()
        write_tables([held_out.cells], buffer, name.partition(".")[2])
        contents[folder / name] = buffer.getvalue()
    write_files(contents)


def _replace_results(folder: Path, out: Path) -> None:
    """Replace earlier results by finished ones, and leave none of those.

    Rows that were held out then may be compared now.
    """
    names = [name for name in (_SETTINGS_FILE, *_OUTPUT_FILES) if (folder / name).exists()]
    put_in_place(
        {out / name: folder / name for name in names},
        remove=[out / name for name in _OUTPUT_FILES if name not in names],
    )
    shutil.rmtree(folder, ignore_errors=True)
