"""The work of ``dco predict``: sets of one file, batch by batch, or of a folder of Parquet files,
file by file.

Finished batches or files wait in a folder of unfinished work, where ``--resume`` finds them. The
outputs get their names when all are complete.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dco.calibration.calibration import note_new_conditions
from dco.cli.model_files import open_model, opened_once, stated
from dco.cli.outputs import (
    PLAN,
    UNFINISHED,
    begin,
    check_apart,
    check_folder,
    check_output,
    fingerprint,
    only_run,
)
from dco.cli.printing import progress
from dco.cli.sets_files import assemble, output_format, sets_table, without_formulas, write_tables
from dco.cli.tables.arrow import parquet
from dco.cli.tables.files import (
    column_names,
    parquet_files,
    read_batches,
    row_counts,
    stated_row_count,
    table_format,
)
from dco.cli.tables.fitted import layout_of, read_model_features
from dco.cli.tables.layout import Layout, need_column
from dco.cli.tables.rows import NewValues
from dco.foundations.display import counted
from dco.foundations.files import Written, take_places, written_beside
from dco.foundations.notes import Note, show
from dco.foundations.parallel import run_many
from dco.predictions import Points
from dco.storage.saving import versions

_SIGNATURE = "dco"  # the key of the metadata in Parquet and Feather outputs
# the options of the command, and what is added here: plain data, which travels to workers
Order = Mapping[str, Any]
_SAME = ("key", "keep", "batch_rows", "ignore_new", "trust", "decimal", "no_escape", "signature")


def predict(order: Order) -> tuple[int, int, dict[str, Any]]:
    """Write the sets; returns the number of rows and files, and the statement of the sets."""
    data, out, model_file = order["data"], order["out"], order["model"]
    folder = table_format(data) == "folder"
    if folder:
        _check_out_folder(out, data)
    else:
        if order["scheduler"] is not None:
            raise ValueError(
                f"--scheduler distributes the files of a Parquet folder, and {data} "
                f"is one file; leave it out."
            )
        if order["jobs"] != 1:
            show(
                [
                    Note(
                        "one-file",
                        "One file is predicted by one process; --jobs distributes the "
                        "files of a folder.",
                    )
                ]
            )
        output_format(out)
        check_output(out, force=order["force"], inputs=[data, model_file])
    model = open_model(model_file, order["trust"])
    asked = {name: order[name] for name in ("alpha", "guarantee", "delta")}
    facts = {
        "version": versions()["decoupled-conformal"],
        "model_sha256": fingerprint(model_file),
        "structure_fingerprint": model.certificate_.structure_fingerprint,
        **(promise := stated(model, asked)),
    }
    order = {**order, "asked": asked, "signature": json.dumps(facts), "first_row": 0}
    rows, files = _predict_folder(order, model) if folder else (_predict_file(order, model), 1)
    return rows, files, promise


def _show_new(found: NewValues, model: Any, *, now: str = "") -> None:
    """One note per kind; `now` follows the number of rows."""
    conditions = note_new_conditions(found.conditions, counted(found.rows, "row") + now)
    show([*conditions, *model.predictor_.kept.note_gaps(found.gaps, found.rows), *found.notes()])


@dataclass(frozen=True, eq=False)
class Job:
    """An order with its model and the columns of its table, checked before any work is done."""

    order: Order
    model: Any
    layout: Layout
    columns: list[str]
    key: str | None
    kept: list[str]

    @classmethod
    def of(cls, order: Order, model: Any) -> Job:
        """Check the table's columns against those of the model."""
        data, key, keep = order["data"], order["key"], order["keep"] or ""
        names = column_names(data)
        layout = layout_of(
            model,
            [name for name in names if name != key],
            target=None,
            path=data,
            decimal=order["decimal"],
        )
        need_column(names, key, path=data, option="--key")
        if key is None and layout.key in names:
            key = layout.key
        elif key is None and layout.key is not None and "unfinished" not in order:
            text = (
                f"The table has no column {layout.key!r}, the key of the model, so rows are "
                f"numbered from 0."
            )
            show([Note("no-key", text, "--key names another column.")])
        kept = (
            names if keep == "all" else [name.strip() for name in keep.split(",") if name.strip()]
        )
        for name in kept:
            need_column(names, name, path=data, option="--keep")
        also = [name for name in dict.fromkeys([key, *kept]) if name is not None]
        columns = layout.columns_to_read(data, names, ignore_new=order["ignore_new"], also=also)
        return cls(order, model, layout, columns, key, [name for name in also if name != key])

    def batches(self, found: NewValues) -> Iterator[tuple[Any, Any, int]]:
        """Some rows at a time: as the table has them, as the model takes them, and the number of
        the first.

        What is new in them is counted in `found`.
        """
        data, row, predictor = self.order["data"], 0, self.model.predictor_
        rows, decimal = self.order["batch_rows"], self.layout.decimal
        for table in read_batches(data, self.columns, rows=rows, decimal=decimal):
            X = read_model_features(self.model, table, self.layout)
            found.count(X, self.layout)
            found.conditions.update(predictor.new_conditions(X))
            found.gaps.update(predictor.kept.gaps(X))
            yield table.cells, X, row
            row += len(table)
        if row == 0:
            advice = (
                "remove this file from the folder"
                if "unfinished" in self.order
                else "give a table with rows"
            )
            raise ValueError(f"{data} has column names and no rows; {advice}.")

    def sets(self, table: Any, X: Any, first_row: int) -> Any:
        """The sets of a batch as an Arrow table that says which model and statement they are
        from.
        """
        predictor, start = self.model.predictor_, self.order["first_row"] + first_row
        text = output_format(self.order["out"]) == "csv"
        record = predictor.structure.prediction(X)
        sets = predictor.sets(X, predictor.stated(**self.order["asked"]), prediction=record)
        # to predict again would take time
        points = record.mean if isinstance(record, Points) else self.model.predict(X)
        numbers = np.arange(start, start + table.num_rows)
        key = ("row", numbers) if self.key is None else (self.key, table.column(self.key))
        made = sets_table(
            dict([key, *((name, table.column(name)) for name in self.kept)]),
            points,
            sets,
            text=text,
        )
        made = without_formulas(made) if text and not self.order["no_escape"] else made
        return made.replace_schema_metadata({_SIGNATURE: self.order["signature"]})


def _predict_file(order: Order, model: Any) -> int:
    """Batches become parts in a folder beside the output; returns the number of rows."""
    out, data = order["out"], order["data"]
    job, found = Job.of(order, model), NewValues()
    unfinished = out.with_name(f"{out.name}.parts")
    with only_run(unfinished, out):
        check_output(out, force=order["force"])  # another run may have finished since
        # not the lock
        begun = (
            unfinished
            if any(not path.name.startswith(".") for path in unfinished.iterdir())
            else None
        )
        identity = _identity(order, {data.name: fingerprint(data)})
        begin(unfinished, identity, begun=begun, resume=order["resume"], force=order["force"])
        parts: dict[Path, int] = {}  # and their rows
        try:
            with progress("Predicting", stated_row_count(data), quiet=order["quiet"]) as reached:
                # rows of earlier runs count in the notes
                for table, X, first_row in job.batches(found):
                    part = unfinished / f"{len(parts):09d}"
                    if not part.exists():
                        with written_beside(part, within=unfinished) as beside:
                            write_tables([job.sets(table, X, first_row)], beside, "feather")
                    parts[part] = table.num_rows
                    reached(first_row + table.num_rows)
            assemble(parts, out, within=unfinished, force=order["force"])
        # on a full or failing disk finished parts stay; of bad input nothing can be continued
        except Exception as error:
            if not (isinstance(error, OSError) or order["resume"]):
                shutil.rmtree(unfinished, ignore_errors=True)
            raise
        shutil.rmtree(unfinished, ignore_errors=True)
    _show_new(found, model)
    return sum(parts.values())


def _predict_folder(order: Order, model: Any) -> tuple[int, int]:
    """One output file per partition. Finished ones wait until all are there; returns the numbers of
    rows and files.
    """
    data, out, counts = order["data"], order["out"], row_counts(order["data"])
    for file in counts:
        Job.of({**order, "data": file}, model)
    out.mkdir(exist_ok=True)
    unfinished, names = out / UNFINISHED, [file.relative_to(data) for file in counts]
    with only_run(unfinished, out):
        where: dict[str, Any] = {"n_jobs": order["jobs"], "scheduler": order["scheduler"]}
        files = [file.absolute() for file in counts]  # a worker may stand elsewhere
        identity = _identity(
            order, dict(zip(map(str, names), run_many(fingerprint, files, **where), strict=True))
        )
        old = _begin_folder(order, identity, [out / name for name in names])
        here = {**order, "model": order["model"].absolute(), "unfinished": unfinished.absolute()}
        starts = np.cumsum([0, *counts.values()]).tolist()
        orders = [
            {**here, "data": file, "out": here["unfinished"] / name, "first_row": start}
            for file, name, start in zip(files, names, starts[:-1], strict=True)
            if not (unfinished / name).exists()  # kept by `begin`
        ]
        for folder in {folder / name.parent for name in names for folder in (unfinished, out)}:
            folder.mkdir(parents=True, exist_ok=True)
        with progress("Predicting", len(orders), quiet=order["quiet"]) as reached:
            found = NewValues.total(
                run_many(
                    predict_partition, orders, progress=lambda done, of: reached(done), **where
                )
            )
        take_places(
            [Written(unfinished / name, out / name, overwrite=True) for name in names], gone=old
        )
        shutil.rmtree(unfinished, ignore_errors=True)
    _show_new(found, model, now=" predicted now" if len(orders) < len(names) else "")
    return starts[-1], len(names)


def _identity(order: Order, tables: dict[str, str]) -> dict[str, Any]:
    """What must not change between a run and its continuation: the order, and the bytes of the
    model and of the tables.
    """
    return {name: order[name] for name in _SAME} | {"tables": tables}


def _check_out_folder(out: Path, data: Path) -> None:
    """The sets of a folder go to a folder, which is not the one that is read."""
    if out.suffix:
        raise ValueError(
            f"{data} is a folder, so the sets go to a folder, one file per "
            f"partition; {out} looks like a file."
        )
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; give the name of a folder, since DATA is a folder.")
    check_folder(out.parent if not out.exists() else out)
    check_apart(out, data)


def _begin_folder(order: Order, identity: dict[str, Any], targets: list[Path]) -> list[Path]:
    """Check that a folder is empty, may be replaced or belongs to the same order.

    Returns sets of an earlier run that --force removes when all is done: a reader of the folder
    would take them for sets of this run.
    """
    out = order["out"]
    old = [path for path in parquet_files(out) if path not in targets]
    for path in old:
        if not _is_signed(path):
            raise ValueError(
                f"{out} has {path.relative_to(out)}, which is neither an output of this run nor "
                f"of an earlier one; choose "
                "another folder, or remove the file."
            )
    unfinished = out / UNFINISHED
    begun = (
        out
        if (unfinished / PLAN).exists() or any(path != unfinished for path in out.iterdir())
        else None
    )
    begin(unfinished, identity, begun=begun, resume=order["resume"], force=order["force"])
    return old


def _is_signed(path: Path) -> bool:
    """Whether this is an output of `dco predict`."""
    with suppress(OSError, ValueError):  # not a Parquet file in spite of its name
        return _SIGNATURE.encode() in (parquet.read_schema(path).metadata or {})
    return False


def predict_partition(order: Order) -> NewValues:
    """Write the sets of one Parquet file to one Parquet file that appears when it is complete."""
    job, found = Job.of(order, opened_once(order["model"], order["trust"])), NewValues()
    with written_beside(order["out"], within=order["unfinished"]) as beside:
        write_tables((job.sets(*batch) for batch in job.batches(found)), beside, "parquet")
    return found
