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
from dco.cli.training import TrainingTable, derive_seed, read_training_table
from dco.cli.unfinished import UNFINISHED, find_plan_to_continue
from dco.foundations.arrays import Integers
from dco.foundations.files import plain, put_in_place, write_file, write_files
from dco.foundations.fingerprints import role_fingerprint, row_fingerprints
from dco.paper import Experiment, Options, run_splits
from dco.tuning import make_default_models

_SETTINGS_FILE = "settings.json"
_RECORDS_FILE = "records.jsonl"
_HOLD_OUT_STREAM = 3  # differs from the number of every other draw that --seed decides
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
    """The result of `dco compare`: one table for each kind of guarantee, and sentences."""

    tables: list[Any]
    reason: str  # why the target was taken for a quantity or for labels
    failed: list[str]  # models that failed in some split
    held_out: Path | None  # the file with the rows that were held out


@dataclass(frozen=True)
class _Settings(Options):
    """The settings that all records of one comparison share."""

    common: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """Return the settings that a stored record must have, so that a run can be resumed."""
        # another release may have other default models
        return {**self.common, "dco": version("decoupled-conformal")}


def run_comparison(order: CompareOrder, *, quiet: bool) -> Comparison:
    """Run every method of the paper on many random splits of a table, and write the results.

    A stopped run continues with --resume: splits that have a record are not run again. `quiet`
    shows no progress bar.
    """
    # 1. Read the table, and hold rows out that no split sees.
    _check_out_is_apart(order.data, order.out)
    source = read_training_table(
        order.data, order.columns, sample_rows=order.sample_rows, seed=order.seed
    )
    _check_classes(source)
    rows = _hold_rows_out(source, order)
    model_names = order.models or _usual_models(source.layout.task)
    split = _make_split(source, rows.compared, model_names, order)
    split.deal(order.seed)  # impossible sizes are refused before anything is written

    # 2. Choose a folder to work in.
    settings = _settings_of(order, source, model_names, has_held_out=rows.held_out.size > 0)
    folder = _prepare_folder(order.out, settings, resume=order.resume, force=order.force)

    # 3. Run the splits that have no record.
    records = _run_splits(split, settings, folder, order, quiet=quiet)

    # 4. Write the tables and the rows held out. From here on Ctrl-C is ignored.
    tables = comparison_tables(records, order.alpha, groups=order.columns.groups)
    held_out = source.table.take(rows.held_out)
    held_out_format = _held_out_format(order.data)
    finish_from_here()
    _write_outputs(folder, tables, held_out, held_out_format)
    if folder != order.out:
        _replace_results(folder, order.out)

    held_out_file = order.out / f"held-out.{held_out_format}"
    return Comparison(
        tables=tables,
        reason=_explain(source, order),
        failed=failures(records),
        held_out=held_out_file if len(held_out) else None,
    )


# --- the rows -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _RowPositions:
    """Which rows of the table are compared, and which are held out; ascending."""

    compared: Integers
    held_out: Integers


def _check_classes(source: TrainingTable) -> None:
    if source.layout.task == "classification" and len(np.unique(source.y)) < 2:
        raise ValueError(
            f"{source.table.path}: the target {source.layout.target!r} has one class only; a "
            "comparison needs at least two."
        )


def _hold_rows_out(source: TrainingTable, order: CompareOrder) -> _RowPositions:
    """Draw the rows that --hold-out keeps out of the comparison.

    Rows that belong together (the same value in the column `--groups`) stay together.
    """
    splits = dco.assign_roles(
        len(source.y),
        tune=0,
        calibrate=0,
        test=order.hold_out or 0,
        groups=source.groups,
        random_state=derive_seed(order.seed, _HOLD_OUT_STREAM),
    )
    return _RowPositions(compared=np.sort(splits.train), held_out=np.sort(splits.test))


def _usual_models(task: str) -> list[str]:
    """Return the names of the models that are compared without --models."""
    names = ["linear", "forest", "boosting"]
    if task == "regression":
        names.append("quantiles")
    return names


def _make_split(
    source: TrainingTable, rows: Integers, model_names: list[str], order: CompareOrder
) -> Split:
    """Put the rows to compare, the models and the options together, for splits with any seed."""
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
    """Collect everything that changes a number in the results.

    A run is resumed only if these settings are the same. `has_held_out` says whether rows were held
    out: only then does the seed matter for which rows are compared.
    """
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
    """Say why the target is a quantity or labels, and how many rows --sample-rows drew."""
    if order.sample_rows is None:
        return source.reason
    return (
        f"{source.reason} The comparison is on {len(source.y):,} of {source.n_rows:,} rows, drawn "
        "at random."
    )


def _run_splits(
    split: Split, settings: Mapping[str, Any], folder: Path, order: CompareOrder, *, quiet: bool
) -> list[Any]:
    """Run the methods on many random splits of the table, and return the results of all.

    The results of a split (its record) are stored in the folder when it is finished; a split that
    has a record is not run again. The seeds are `order.seed`, `order.seed + 1`, and so on.
    `settings` is everything that results depend on: records with other settings are not used.
    """
    experiment = _as_experiment(split, order)
    with progress("Splits", order.splits, quiet=quiet) as show_n_done:
        return run_splits(
            experiment,
            folder / _RECORDS_FILE,
            seeds=range(order.seed, order.seed + order.splits),
            options=_Settings((order.alpha,), common=settings),
            jobs=order.work.jobs,
            scheduler=order.work.scheduler,
            progress=lambda n_done, n_splits, seconds_left: show_n_done(n_done),
        )


def _as_experiment(split: Split, order: CompareOrder) -> Experiment:
    """Describe the comparison as an experiment of the paper, so that the same code runs its splits.

    The texts are for `dco reproduce --list`, which does not list this one.
    """

    def make_tables(records: Sequence[Any], options: Options) -> list[Any]:
        return comparison_tables(records, order.alpha, groups=order.columns.groups)

    return Experiment(
        name="compare",
        summary="The methods of the paper on a table.",
        needs="a table",
        minutes=0,
        tables=make_tables,
        run_split=split,
        row_kinds=(MethodRow, FailedRow),
    )


# --- the folder -----------------------------------------------------------------------------------


def _check_out_is_apart(data: Path, out: Path) -> None:
    """Refuse to write results to a folder that has the table in it.

    The file with the rows held out could otherwise replace the table.
    """
    if data.is_dir():
        check_apart(out, data)
    folder = data.parent.resolve()
    if out.resolve() in (folder, *folder.parents, *data.resolve().parents):
        raise ValueError(
            f"{data} lies in {out}, where the results would go; choose another folder for --out."
        )


def _prepare_folder(out: Path, settings: Mapping[str, Any], *, resume: bool, force: bool) -> Path:
    """Choose the folder in which this run writes its files, and store the settings there.

    With --resume, that is the folder of a stopped run with the same settings, which continues
    there. Otherwise it is `out` if that is new or empty. If --force replaces earlier results in
    `out`, it is a folder inside it, so that they stay until this run is complete.
    """
    # 1. Refuse an output that is no folder.
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; the results go to a folder. Choose another name.")
    check_folder(out if out.exists() else out.parent)

    # 2. Look for a stopped run with the same settings.
    unfinished = out / UNFINISHED
    plain_settings = plain(settings)
    has_files = out.exists() and any(out.iterdir())
    settings_to_continue = find_plan_to_continue(
        [unfinished / _SETTINGS_FILE, out / _SETTINGS_FILE],
        plain_settings,
        in_use=out if has_files else None,
        resume=resume,
        force=force,
    )
    if settings_to_continue is not None:
        return settings_to_continue.parent

    # 3. Begin a new run.
    shutil.rmtree(unfinished, ignore_errors=True)
    folder = unfinished if has_files else out
    folder.mkdir(exist_ok=True)
    write_file(folder / _SETTINGS_FILE, json.dumps(plain_settings, indent=1))
    return folder


def _held_out_format(data: Path) -> str:
    """Return the format for the rows held out: that of the table, Parquet for a folder."""
    data_format = table_format(data)
    return PARQUET if data_format == FOLDER else data_format


def _write_outputs(
    folder: Path, tables: Sequence[Any], held_out: Table, held_out_format: str
) -> None:
    """Write the tables as Markdown and JSON, and the rows held out: all files, or none of them.

    `held_out` are the rows of --hold-out, which no method has seen; there may be none.
    """
    # 1. The tables. They have the same caption, which is printed under the first only.
    without_caption = [replace(table, caption="") for table in tables[1:]]
    tables_to_read = [round_for_reading(table) for table in [tables[0], *without_caption]]
    markdown = [table.to_markdown() for table in tables_to_read]
    json_of_tables = ",\n".join(table.to_json() for table in tables)
    contents: dict[Path, str | bytes] = {
        folder / "tables.md": "\n".join([*markdown, ADVICE, ""]),
        folder / "tables.json": f"[{json_of_tables}]\n",
    }

    # 2. The rows held out.
    if len(held_out):
        buffer = io.BytesIO()
        write_tables([held_out.cells], buffer, held_out_format)
        contents[folder / f"held-out.{held_out_format}"] = buffer.getvalue()
    write_files(contents)


def _replace_results(folder: Path, out: Path) -> None:
    """Move the files of a finished run from `folder` to `out`, over those of an earlier run.

    No file of the earlier run stays: an old file of rows held out may have rows that this run has
    compared.
    """
    new_names = [name for name in (_SETTINGS_FILE, *_OUTPUT_FILES) if (folder / name).exists()]
    put_in_place(
        {out / name: folder / name for name in new_names},
        remove=[out / name for name in _OUTPUT_FILES if name not in new_names],
    )
    shutil.rmtree(folder, ignore_errors=True)
