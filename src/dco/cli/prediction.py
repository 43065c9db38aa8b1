"""The work of ``dco predict``: the sets of one file, or of a folder of Parquet files.

Finished batches of a file, or finished files of a folder, wait in a folder of unfinished work,
where ``--resume`` finds them. The outputs get their names when all are complete.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from dco import Points
from dco.cli.model_files import (
    ModelFile,
    StatedPromise,
    open_model,
    open_model_once,
    stated_promise,
)
from dco.cli.option_records import OtherPromise, Work
from dco.cli.outputs import check_apart, check_folder, check_output, finish_from_here
from dco.cli.printing import progress
from dco.cli.sets_files import (
    SIGNATURE_KEY,
    assemble,
    empty_copy,
    is_signed,
    output_format,
    sets_table,
    without_formulas,
    write_tables,
)
from dco.cli.tables.files import (
    CSV,
    FOLDER,
    column_names,
    name_file_in_errors,
    parquet_files,
    read_batches,
    row_counts,
    stated_row_count,
    table_format,
)
from dco.cli.tables.fitted import layout_of, read_model_features
from dco.cli.tables.layout import Layout, need_column
from dco.cli.tables.rows import NewValues
from dco.cli.tables.table import Table
from dco.cli.unfinished import (
    PLAN,
    UNFINISHED,
    begin_or_continue,
    file_digest,
    hold_folder,
)
from dco.foundations.display import counted
from dco.foundations.files import new_file, put_in_place
from dco.foundations.notes import Note, show
from dco.foundations.parallel import run_many
from dco.storage import versions

ALL_COLUMNS = "all"


@dataclass(frozen=True)
class SetsOptions:
    """What decides how the sets are written; a run is continued only with the same."""

    promise: OtherPromise
    key: str | None
    keep: tuple[str, ...]  # columns to copy, or ALL_COLUMNS by itself
    batch_rows: int
    decimal: str | None
    ignore_new: bool
    no_escape: bool
    trust: tuple[str, ...]


@dataclass(frozen=True)
class PredictOrder:
    """What the options of `dco predict` ask for."""

    model: Path
    data: Path
    out: Path
    sets: SetsOptions
    work: Work
    resume: bool
    force: bool


@dataclass(frozen=True)
class Predicted:
    """How many sets were written to how many files, and what they promise."""

    n_rows: int
    n_files: int
    promise: StatedPromise


def predict(order: PredictOrder, *, quiet: bool) -> Predicted:
    """Write the sets of a file, or of each file of a folder."""
    is_folder = table_format(order.data) == FOLDER
    if is_folder:
        _check_folders(order.out, order.data)
    else:
        _check_files(order)

    model = open_model(order.model, order.sets.trust)
    promise = stated_promise(model, order.sets.promise)
    signature = _sign(order.model, model, promise)
    run = _Run(order, model, signature, quiet=quiet)
    return _predict_folder(run, promise) if is_folder else _predict_file(run, promise)


def _check_files(order: PredictOrder) -> None:
    """Refuse an output that cannot be written, and options that are for folders."""
    if order.work.scheduler is not None:
        raise ValueError(
            f"--scheduler distributes the files of a Parquet folder, and {order.data} is one file; "
            "leave it out."
        )
    if order.work.jobs != 1:
        text = "One file is predicted by one process; --jobs distributes the files of a folder."
        show([Note("one-file", text)])
    output_format(order.out)
    check_output(order.out, force=order.force, inputs=[order.data, order.model])


def _check_folders(out: Path, data: Path) -> None:
    """Refuse a place where the sets of a folder cannot go, or would be read as a table."""
    if out.suffix:
        raise ValueError(
            f"{data} is a folder, so the sets go to a folder, one file per partition; {out} looks "
            "like a file."
        )
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; give the name of a folder, since DATA is a folder.")
    check_folder(out if out.exists() else out.parent)
    check_apart(out, data)


def _sign(model_file: Path, model: Any, promise: StatedPromise) -> str:
    """Write which model and which promise the sets are from."""
    facts = {
        "version": versions()["decoupled-conformal"],
        "model_sha256": file_digest(model_file),
        "structure_fingerprint": model.certificate_.structure.structure_fingerprint,
        **asdict(promise),
    }
    return json.dumps(facts)


@dataclass(frozen=True, eq=False)
class _Run:
    """An order with its model, opened and checked."""

    order: PredictOrder
    model: Any
    signature: str
    quiet: bool

    def identity(self, tables: dict[str, str]) -> dict[str, Any]:
        """Return what must not change between a run and its continuation.

        These are the options and the bytes of the model and of the tables.
        """
        return {**asdict(self.order.sets), "signature": self.signature, "tables": tables}

    def show_notes(self, new_values: NewValues, *, now: str = "") -> None:
        """Note what the fit never saw, once for each kind; `now` follows the number of rows."""
        rows = counted(new_values.rows, "row") + now
        predictor = self.model.predictor_
        show(predictor.calibration.note_new_conditions(new_values.conditions, rows))
        show(predictor.kept_rows.note_gaps(new_values.gaps, new_values.rows))
        show(new_values.notes())


# --- sets of a table ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SetsOfTable:
    """The sets of one table by a model; the columns of the table are checked."""

    model: Any
    data: Path
    options: SetsOptions
    layout: Layout
    key: str | None
    kept_columns: list[str]
    columns: list[str]  # all that are read

    @classmethod
    def open(
        cls, model: Any, data: Path, options: SetsOptions, *, notes_key: bool = True
    ) -> SetsOfTable:
        """Check the columns of a table against those of the model."""
        names = column_names(data)
        features = [name for name in names if name != options.key]
        layout = layout_of(model, features, target=None, path=data, decimal=options.decimal)
        need_column(names, options.key, path=data, option="--key")
        columns_to_keep = names if options.keep == (ALL_COLUMNS,) else options.keep
        for name in columns_to_keep:
            need_column(names, name, path=data, option="--keep")

        key = options.key
        if key is None and layout.key in names:
            key = layout.key
        elif key is None and layout.key is not None and notes_key:
            show([_note_no_key(layout.key)])

        also = [name for name in dict.fromkeys([key, *columns_to_keep]) if name is not None]
        columns = layout.columns_to_read(data, names, ignore_new=options.ignore_new, also=also)
        kept_columns = [name for name in also if name != key]
        return cls(model, data, options, layout, key, kept_columns, columns)

    def batches(self, new_values: NewValues) -> Iterator[tuple[Table, Any]]:
        """Read batches of rows, as the table has them and as the model takes them.

        What the fit never saw is counted in `new_values`.
        """
        predictor = self.model.predictor_
        for table in read_batches(
            self.data, self.columns, rows=self.options.batch_rows, decimal=self.layout.decimal
        ):
            X = read_model_features(self.model, table, self.layout)
            new_values.count(X, self.layout)
            new_values.conditions.update(predictor.calibration.new_conditions(X))
            new_values.gaps.update(predictor.kept_rows.gaps(X))
            yield table, X

    def make_sets(
        self, table: Table, X: Any, *, kind: str, signature: str, first_row: int = 0
    ) -> Any:
        """Make the sets of a batch as an Arrow table for a file of this kind.

        `first_row` is the number of the first row of the file. The signature says which model and
        promise the sets are from.
        """
        predictor = self.model.predictor_
        record = predictor.structure.prediction(X)
        promise = asdict(self.options.promise)
        sets = predictor.sets(X, predictor.at(**promise), prediction=record)
        # a model that predicts points is not asked twice
        points = record.mean if isinstance(record, Points) else self.model.predict(X)

        copied: dict[str, Any] = {}
        if self.key is None:
            copied["row"] = table.positions + first_row
        for name in [*([] if self.key is None else [self.key]), *self.kept_columns]:
            copied[name] = table.cells.column(name)

        is_csv = kind == CSV
        rows = sets_table(copied, points, sets, text=is_csv)
        if is_csv and not self.options.no_escape:
            rows = without_formulas(rows)
        return rows.replace_schema_metadata({SIGNATURE_KEY: signature})


def _note_no_key(key: str) -> Note:
    return Note(
        "no-key",
        f"The table has no column {key!r}, the key of the model, so rows are numbered from 0.",
        "--key names another column.",
    )


# --- one file -------------------------------------------------------------------------------------


def _predict_file(run: _Run, promise: StatedPromise) -> Predicted:
    """Write the sets of one file; each batch waits in a folder beside the output."""
    order = run.order
    sets = SetsOfTable.open(run.model, order.data, order.sets)
    new_values = NewValues()
    folder = order.out.with_name(f"{order.out.name}.parts")
    with hold_folder(folder, order.out):
        check_output(order.out, force=order.force)  # another run may have finished since
        in_use = folder if any(not path.name.startswith(".") for path in folder.iterdir()) else None
        identity = run.identity({order.data.name: file_digest(order.data)})
        begin_or_continue(folder, identity, in_use=in_use, resume=order.resume, force=order.force)
        with _kept_only_to_resume(folder, resume=order.resume):
            parts = _write_parts(run, sets, folder, new_values)
            if not parts:
                raise ValueError(
                    f"{order.data} has column names and no rows; give a table with rows."
                )
            assemble(parts, order.out, within=folder, force=order.force)
        shutil.rmtree(folder, ignore_errors=True)
    run.show_notes(new_values)
    return Predicted(sum(parts.values()), n_files=1, promise=promise)


def _write_parts(
    run: _Run, sets: SetsOfTable, folder: Path, new_values: NewValues
) -> dict[Path, int]:
    """Write the sets of each batch that has no part yet; return the parts with their rows.

    Batches of earlier runs are read again, since they count in the notes.
    """
    order = run.order
    kind = output_format(order.out)
    parts: dict[Path, int] = {}
    n_done = 0
    with progress("Predicting", stated_row_count(order.data), quiet=run.quiet) as reached:
        for table, X in sets.batches(new_values):
            part = folder / f"{len(parts):09d}"
            if not part.exists():
                rows = sets.make_sets(table, X, kind=kind, signature=run.signature)
                with new_file(part, temporary_folder=folder) as temporary:
                    write_tables([rows], temporary, "feather")
            parts[part] = len(table)
            n_done += len(table)
            reached(n_done)
    return parts


@contextmanager
def _kept_only_to_resume(folder: Path, *, resume: bool) -> Iterator[None]:
    """Keep finished parts after a full or failing disk; bad input cannot be continued."""
    try:
        yield
    except Exception as error:
        if not (isinstance(error, OSError) or resume):
            shutil.rmtree(folder, ignore_errors=True)
        raise


# --- a folder of files ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Partition:
    """One file of a folder and where its sets go: plain data, which travels to workers."""

    data: Path
    out: Path
    unfinished: Path
    first_row: int
    model: Path
    options: SetsOptions
    signature: str


def _predict_folder(run: _Run, promise: StatedPromise) -> Predicted:
    """Write one output for each file; finished ones wait until all are there."""
    order = run.order
    counts = row_counts(order.data)
    n_rows = sum(counts.values())
    if n_rows == 0:
        raise ValueError(f"{order.data} has column names and no rows; give a table with rows.")
    for file in counts:
        SetsOfTable.open(run.model, file, order.sets)

    names = [file.relative_to(order.data) for file in counts]
    targets = {name: order.out / name for name in names}
    unfinished = order.out / UNFINISHED
    with _new_folder(order.out), hold_folder(unfinished, order.out):
        old_sets = _begin_folder(run, list(counts), targets, unfinished)
        todo = _partitions_to_do(run, counts, unfinished)
        with _kept_only_to_resume(unfinished, resume=order.resume):
            new_values = _write_partitions(todo, run)
            _write_empty_partitions(counts, order.data, unfinished)

        finish_from_here()
        for target in targets.values():
            target.parent.mkdir(parents=True, exist_ok=True)
        put_in_place({targets[name]: unfinished / name for name in names}, remove=old_sets)
        shutil.rmtree(unfinished, ignore_errors=True)

    is_partial = len(todo) < sum(1 for n in counts.values() if n)
    run.show_notes(new_values, now=" predicted now" if is_partial else "")
    return Predicted(n_rows, n_files=len(names), promise=promise)


@contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """Make a folder if there is none; remove it at the end if nothing was written to it."""
    was_there = folder.exists()
    folder.mkdir(exist_ok=True)
    try:
        yield
    finally:
        if not was_there:
            with suppress(OSError):  # not empty
                folder.rmdir()


def _begin_folder(
    run: _Run, files: list[Path], targets: dict[Path, Path], unfinished: Path
) -> list[Path]:
    """Check that the folder is empty, may be replaced or belongs to the same order.

    Returns sets of an earlier run that --force removes when all is done: a reader of the folder
    would take them for sets of this run.
    """
    order = run.order
    old_sets = [path for path in parquet_files(order.out) if path not in targets.values()]
    for path in old_sets:
        if not is_signed(path):
            raise ValueError(
                f"{order.out} has {path.relative_to(order.out)}, which is neither an output of "
                "this run nor of an earlier one; choose another folder, or remove the file."
            )

    has_other_files = any(path != unfinished for path in order.out.iterdir())
    is_in_use = (unfinished / PLAN).exists() or has_other_files
    digests = run_many(
        file_digest,
        [file.absolute() for file in files],  # a worker may stand elsewhere
        n_jobs=order.work.jobs,
        scheduler=order.work.scheduler,
    )
    tables = {str(name): digest for name, digest in zip(targets, digests, strict=True)}
    begin_or_continue(
        unfinished,
        run.identity(tables),
        in_use=order.out if is_in_use else None,
        resume=order.resume,
        force=order.force,
    )
    return old_sets


def _partitions_to_do(run: _Run, counts: dict[Path, int], unfinished: Path) -> list[_Partition]:
    """List the files with rows whose sets are not written yet."""
    order = run.order
    first_rows = accumulate(counts.values(), initial=0)
    partitions = [
        _Partition(
            data=file.absolute(),
            out=unfinished.absolute() / file.relative_to(order.data),
            unfinished=unfinished.absolute(),
            first_row=first_row,
            model=order.model.absolute(),
            options=order.sets,
            signature=run.signature,
        )
        for file, first_row in zip(counts, first_rows, strict=False)
        if counts[file]
    ]
    return [partition for partition in partitions if not partition.out.exists()]


def _write_partitions(partitions: list[_Partition], run: _Run) -> NewValues:
    """Write the sets of files, here or on a cluster; return what the fit never saw."""
    for folder in {partition.out.parent for partition in partitions}:
        folder.mkdir(parents=True, exist_ok=True)
    work = run.order.work
    with progress("Predicting", len(partitions), quiet=run.quiet) as reached:
        counts = run_many(
            write_partition,
            partitions,
            n_jobs=work.jobs,
            scheduler=work.scheduler,
            progress=lambda done, of: reached(done),
        )
    return NewValues.total(counts)


def write_partition(partition: _Partition) -> NewValues:
    """Write the sets of one file, which appear when they are complete."""
    model = open_model_once(ModelFile(partition.model, partition.options.trust))
    sets = SetsOfTable.open(model, partition.data, partition.options, notes_key=False)
    new_values = NewValues()
    with (
        name_file_in_errors(partition.data),
        new_file(partition.out, temporary_folder=partition.unfinished) as temporary,
    ):
        tables = (
            sets.make_sets(
                table,
                X,
                kind="parquet",
                signature=partition.signature,
                first_row=partition.first_row,
            )
            for table, X in sets.batches(new_values)
        )
        write_tables(tables, temporary, "parquet")
    return new_values


def _write_empty_partitions(counts: dict[Path, int], data: Path, unfinished: Path) -> None:
    """Write a file without sets for each file without rows, with the columns of the others."""
    outputs = {file: unfinished / file.relative_to(data) for file in counts}
    with_sets = next(outputs[file] for file, n_rows in counts.items() if n_rows)
    for file, n_rows in counts.items():
        if n_rows == 0 and not outputs[file].exists():
            outputs[file].parent.mkdir(parents=True, exist_ok=True)
            with new_file(outputs[file], temporary_folder=unfinished) as temporary:
                write_tables([empty_copy(with_sets)], temporary, "parquet")
