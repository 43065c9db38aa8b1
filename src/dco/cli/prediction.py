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
    FEATHER,
    FOLDER,
    PARQUET,
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
    """The options that decide what is written; a run is continued only with the same."""

    promise: OtherPromise
    key: str | None  # the column that names the rows
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
    """Write the prediction sets of a table: one file for a file, a folder of files for a folder.

    `quiet` shows no progress bar.
    """
    is_folder = table_format(order.data) == FOLDER
    if is_folder:
        _check_folders(order.out, order.data)
    else:
        _check_files(order)

    model = open_model(order.model, order.sets.trust)
    promise = stated_promise(model, order.sets.promise)
    run = _Run(order, model, signature=_sign(order.model, model, promise), quiet=quiet)
    predict_data = _predict_folder if is_folder else _predict_file
    return predict_data(run, promise)


def _check_files(order: PredictOrder) -> None:
    """Check the options for a table that is one file, before anything is read.

    An output that cannot be written is an error, and so is --scheduler, which is for folders.
    """
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
    """Refuse an output to which the sets of a folder cannot be written.

    It must be a folder, and not lie in the folder that is read.
    """
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
    """Write as JSON which model and which promise the sets are from; outputs store this text."""
    facts = {
        "version": versions()["decoupled-conformal"],
        "model_sha256": file_digest(model_file),
        "structure_fingerprint": model.certificate_.structure.structure_fingerprint,
        **asdict(promise),
    }
    return json.dumps(facts)


@dataclass(frozen=True, eq=False)
class _Run:
    """The order of one `dco predict` with its opened model; `signature` is the text of `_sign`."""

    order: PredictOrder
    model: Any
    signature: str
    quiet: bool

    def identity(self, tables: dict[str, str]) -> dict[str, Any]:
        """Return what must be the same for --resume to continue a run.

        These are the options and the contents of the model file and of the tables; `tables` has a
        hash of each file, by name.
        """
        return {**asdict(self.order.sets), "signature": self.signature, "tables": tables}

    def show_notes(self, new_values: NewValues, *, now: str = "") -> None:
        """Show notes about values that the fit never saw, one for each kind of value.

        `now` is put behind the number of rows: " predicted now" if there were rows before.
        """
        rows = counted(new_values.n_rows, "row") + now
        predictor = self.model.predictor_
        show(predictor.calibration.note_new_conditions(new_values.new_conditions, rows))
        show(predictor.kept_rows.note_gaps(new_values.new_gaps, new_values.n_rows))
        show(new_values.notes())


# --- sets of a table ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SetsOfTable:
    """Makes the sets of one table, batch by batch.

    Attributes
    ----------
    model
        The fitted estimator.
    data
        The table.
    options
        How the sets are made and written.
    layout
        What each column of the table is for.
    key
        The column that names the rows; None numbers them.
    copied_columns
        The columns that are copied to the output, the key first.
    columns
        All columns that are read.
    """

    model: Any
    data: Path
    options: SetsOptions
    layout: Layout
    key: str | None
    copied_columns: list[str]
    columns: list[str]

    @classmethod
    def open(
        cls, model: Any, data: Path, options: SetsOptions, *, notes_key: bool = True
    ) -> SetsOfTable:
        """Prepare the sets of a table: find the columns that the model and the options need in it.

        It is an error if one of them is missing. The key is the column that names the rows; with
        `notes_key`, a note says if the table lacks the one that the fit had.
        """
        # 1. The columns of the model. A key that an option names is no feature.
        names = column_names(data)
        possible_features = [name for name in names if name != options.key]
        layout = layout_of(
            model, possible_features, target=None, path=data, decimal=options.decimal
        )

        # 2. The columns that options name.
        need_column(names, options.key, path=data, option="--key")
        columns_to_keep = names if options.keep == (ALL_COLUMNS,) else options.keep
        for name in columns_to_keep:
            need_column(names, name, path=data, option="--keep")

        # 3. The key: that of the option, or that of the fit.
        key = options.key
        if key is None and layout.key in names:
            key = layout.key
        elif key is None and layout.key is not None and notes_key:
            show([_note_no_key(layout.key)])

        # 4. The columns to copy, the key first and each once.
        columns_with_key = [*columns_to_keep] if key is None else [key, *columns_to_keep]
        copied_columns = list(dict.fromkeys(columns_with_key))
        return cls(
            model=model,
            data=data,
            options=options,
            layout=layout,
            key=key,
            copied_columns=copied_columns,
            columns=layout.columns_to_read(
                data, names, ignore_new=options.ignore_new, also=copied_columns
            ),
        )

    def batches(self, new_values: NewValues) -> Iterator[tuple[Table, Any]]:
        """Read the table in batches; yield each batch as a `Table` and as features for the model.

        What the fit never saw is added to `new_values`: categories, conditions (groups of rows with
        thresholds of their own), and missing cells in a column that had none.
        """
        predictor = self.model.predictor_
        for table in read_batches(
            self.data, self.columns, rows=self.options.batch_rows, decimal=self.layout.decimal
        ):
            X = read_model_features(self.model, table, self.layout)
            new_values.count(X, self.layout)
            new_values.new_conditions.update(predictor.calibration.new_conditions(X))
            new_values.new_gaps.update(predictor.kept_rows.gaps(X))
            yield table, X

    def make_sets(
        self, table: Table, X: Any, *, kind: str, signature: str, first_row: int = 0
    ) -> Any:
        """Make the prediction sets of one batch, as an Arrow table that is ready to be written.

        Parameters
        ----------
        table, X
            The batch as `batches` yields it: its cells, and its features.
        kind
            The format of the output, such as `CSV`.
        signature
            A text that says which model and which guarantee the sets are from; the table stores it.
        first_row
            The number of the first row of the file, if rows have no key (a column that names them).
        """
        # 1. Predict sets and points. A model of points has made them on the way to the sets.
        predictor = self.model.predictor_
        calibration = predictor.calibrate_at(**asdict(self.options.promise))
        prediction = predictor.structure.prediction(X)
        sets = predictor.sets(X, calibration, prediction=prediction)
        points = prediction.mean if isinstance(prediction, Points) else self.model.predict(X)

        # 2. Put them beside the columns that are copied from the table.
        copied: dict[str, Any] = {}
        if self.key is None:
            copied["row"] = table.positions + first_row
        for name in self.copied_columns:
            copied[name] = table.cells.column(name)
        output = sets_table(copied, points, sets, text=kind == CSV)
        if kind == CSV and not self.options.no_escape:
            output = without_formulas(output)
        return output.replace_schema_metadata({SIGNATURE_KEY: signature})


def _note_no_key(key: str) -> Note:
    return Note(
        "no-key",
        f"The table has no column {key!r}, the key of the model, so rows are numbered from 0.",
        "--key names another column.",
    )


# --- one file -------------------------------------------------------------------------------------


def _predict_file(run: _Run, promise: StatedPromise) -> Predicted:
    """Write the prediction sets of one file.

    The sets of each batch are written to a file of their own (a part), in a folder beside the
    output. When all parts are there, they are put together. A stopped run leaves the folder, so
    that --resume can continue.
    """
    order = run.order
    sets = SetsOfTable.open(run.model, order.data, order.sets)
    new_values = NewValues()
    folder = order.out.with_name(f"{order.out.name}.parts")
    with hold_folder(folder, order.out):
        # 1. Begin, or continue a stopped run.
        check_output(order.out, force=order.force)  # another run may have finished since
        has_parts = any(not path.name.startswith(".") for path in folder.iterdir())
        begin_or_continue(
            folder,
            run.identity({order.data.name: file_digest(order.data)}),
            in_use=folder if has_parts else None,
            resume=order.resume,
            force=order.force,
        )

        # 2. Write the parts, and put them together.
        with _kept_only_to_resume(folder, resume=order.resume):
            n_rows_of_part = _write_parts(run, sets, folder, new_values)
            if not n_rows_of_part:
                raise ValueError(
                    f"{order.data} has column names and no rows; give a table with rows."
                )
            assemble(n_rows_of_part, order.out, within=folder, force=order.force)
        shutil.rmtree(folder, ignore_errors=True)

    run.show_notes(new_values)
    return Predicted(sum(n_rows_of_part.values()), n_files=1, promise=promise)


def _write_parts(
    run: _Run, sets: SetsOfTable, folder: Path, new_values: NewValues
) -> dict[Path, int]:
    """Write the sets of each batch to a file of its own, unless an earlier run has written it.

    Returns the files with their numbers of rows. Batches of an earlier run are read all the same,
    since `new_values` counts what the fit never saw.
    """
    order = run.order
    kind = output_format(order.out)
    n_rows_of_part: dict[Path, int] = {}
    n_rows_done = 0
    with progress("Predicting", stated_row_count(order.data), quiet=run.quiet) as show_n_done:
        for table, X in sets.batches(new_values):
            part = folder / f"{len(n_rows_of_part):09d}"
            if not part.exists():
                rows = sets.make_sets(table, X, kind=kind, signature=run.signature)
                with new_file(part, temporary_folder=folder) as temporary:
                    write_tables([rows], temporary, FEATHER)

            n_rows_of_part[part] = len(table)
            n_rows_done += len(table)
            show_n_done(n_rows_done)
    return n_rows_of_part


@contextmanager
def _kept_only_to_resume(folder: Path, *, resume: bool) -> Iterator[None]:
    """Remove the folder of finished parts if the `with` block fails for good.

    It stays if the disk was full or failed, since --resume can then continue, and in a run that was
    resumed itself. Bad input cannot be continued.
    """
    try:
        yield
    except Exception as error:
        if not (isinstance(error, OSError) or resume):
            shutil.rmtree(folder, ignore_errors=True)
        raise


# --- a folder of files ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Partition:
    """One file of a folder, and where its sets go: plain data, which workers get.

    `first_row` is the number of its first row in the whole table. A file that is not complete yet
    lies in `unfinished`.
    """

    data: Path
    out: Path
    unfinished: Path
    first_row: int
    model: Path
    options: SetsOptions
    signature: str


def _predict_folder(run: _Run, promise: StatedPromise) -> Predicted:
    """Write the prediction sets of each file of a folder to a file of the same name elsewhere.

    Finished files wait in a folder inside the output folder until all are there. A stopped run
    leaves that folder, so that --resume can continue.
    """
    # 1. Check all files before anything is written.
    order = run.order
    counts = row_counts(order.data)
    n_rows = sum(counts.values())
    if n_rows == 0:
        raise ValueError(f"{order.data} has column names and no rows; give a table with rows.")
    for file in counts:
        SetsOfTable.open(run.model, file, order.sets)

    names = [file.relative_to(order.data) for file in counts]
    outputs = {name: order.out / name for name in names}
    unfinished = order.out / UNFINISHED
    with _new_folder(order.out), hold_folder(unfinished, order.out):
        # 2. Write the sets of each file, unless an earlier run has written them.
        old_outputs = _find_old_outputs(order.out, set(outputs.values()))
        _begin_folder(run, list(counts), names, unfinished)
        partitions = _partitions_to_do(run, counts, unfinished)
        with _kept_only_to_resume(unfinished, resume=order.resume):
            new_values = _write_partitions(partitions, run)
            _write_empty_partitions(counts, order.data, unfinished)

        # 3. Give all files their names. From here on Ctrl-C is ignored.
        finish_from_here()
        for output in outputs.values():
            output.parent.mkdir(parents=True, exist_ok=True)
        put_in_place({outputs[name]: unfinished / name for name in names}, remove=old_outputs)
        shutil.rmtree(unfinished, ignore_errors=True)

    n_files_with_rows = sum(1 for n in counts.values() if n > 0)
    was_resumed = len(partitions) < n_files_with_rows
    run.show_notes(new_values, now=" predicted now" if was_resumed else "")
    return Predicted(n_rows, n_files=len(names), promise=promise)


@contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """Make a folder for the `with` block; remove it afterwards if it is new and still empty."""
    was_there = folder.exists()
    folder.mkdir(exist_ok=True)
    try:
        yield
    finally:
        if not was_there:
            with suppress(OSError):  # not empty
                folder.rmdir()


def _find_old_outputs(out: Path, new_outputs: set[Path]) -> list[Path]:
    """Find the files of an earlier run in an output folder that this run does not replace.

    They must be removed at the end: who reads the folder would take them for sets of this run. A
    Parquet file that `dco predict` did not write is an error. `new_outputs` are the files that this
    run writes.
    """
    old_outputs = [path for path in parquet_files(out) if path not in new_outputs]
    for path in old_outputs:
        if not is_signed(path):
            raise ValueError(
                f"{out} has {path.relative_to(out)}, which is neither an output of this run nor of "
                "an earlier one; choose another folder, or remove the file."
            )
    return old_outputs


def _begin_folder(run: _Run, files: list[Path], names: list[Path], unfinished: Path) -> None:
    """Begin to write an output folder, or continue a stopped run.

    A run is continued only if options and contents of the files are the same.

    Parameters
    ----------
    files, names
        The files of the table, and their names inside its folder.
    unfinished
        The folder in which finished files wait for the others.
    """
    order = run.order
    digests = run_many(
        file_digest,
        [file.absolute() for file in files],  # a worker may have another directory
        n_jobs=order.work.jobs,
        scheduler=order.work.scheduler,
    )
    digest_of_name = {str(name): digest for name, digest in zip(names, digests, strict=True)}

    has_plan = (unfinished / PLAN).exists()
    has_other_files = any(path != unfinished for path in order.out.iterdir())
    begin_or_continue(
        unfinished,
        run.identity(digest_of_name),
        in_use=order.out if has_plan or has_other_files else None,
        resume=order.resume,
        force=order.force,
    )


def _partitions_to_do(run: _Run, counts: dict[Path, int], unfinished: Path) -> list[_Partition]:
    """List the files of a folder whose prediction sets are not written yet.

    `counts` has the number of rows of each file; files without rows are left out. Finished sets are
    in the folder `unfinished`, where they wait for the others.
    """
    order = run.order
    partitions = []
    first_row = 0  # of the file, in the whole table
    for file, n_rows in counts.items():
        partition = _Partition(
            data=file.absolute(),
            out=unfinished.absolute() / file.relative_to(order.data),
            unfinished=unfinished.absolute(),
            first_row=first_row,
            model=order.model.absolute(),
            options=order.sets,
            signature=run.signature,
        )
        if n_rows > 0 and not partition.out.exists():
            partitions.append(partition)
        first_row += n_rows
    return partitions


def _write_partitions(partitions: list[_Partition], run: _Run) -> NewValues:
    """Write the prediction sets of files, in processes here or on a cluster of machines.

    Returns counts of what the fit never saw, such as new categories.
    """
    for folder in {partition.out.parent for partition in partitions}:
        folder.mkdir(parents=True, exist_ok=True)

    work = run.order.work
    with progress("Predicting", len(partitions), quiet=run.quiet) as show_n_done:
        new_values_of_files = run_many(
            write_partition,
            partitions,
            n_jobs=work.jobs,
            scheduler=work.scheduler,
            progress=lambda n_done, n_files: show_n_done(n_done),
        )
    return NewValues.total(new_values_of_files)


def write_partition(partition: _Partition) -> NewValues:
    """Write the prediction sets of one file of a folder; this runs in a worker process.

    The output gets its name when it is complete. Returns counts of what the fit never saw, such as
    new categories.
    """
    model = open_model_once(ModelFile(partition.model, partition.options.trust))
    sets = SetsOfTable.open(model, partition.data, partition.options, notes_key=False)
    new_values = NewValues()
    with (
        name_file_in_errors(partition.data),
        new_file(partition.out, temporary_folder=partition.unfinished) as temporary,
    ):
        sets_of_batches = (
            sets.make_sets(
                table,
                X,
                kind=PARQUET,
                signature=partition.signature,
                first_row=partition.first_row,
            )
            for table, X in sets.batches(new_values)
        )
        write_tables(sets_of_batches, temporary, PARQUET)
    return new_values


def _write_empty_partitions(counts: dict[Path, int], data: Path, unfinished: Path) -> None:
    """Write an output without rows for each file without rows, with the columns of the others."""
    outputs = {file: unfinished / file.relative_to(data) for file in counts}
    output_with_rows = next(outputs[file] for file, n_rows in counts.items() if n_rows > 0)
    for file, n_rows in counts.items():
        output = outputs[file]
        if n_rows > 0 or output.exists():
            continue
        output.parent.mkdir(parents=True, exist_ok=True)
        with new_file(output, temporary_folder=unfinished) as temporary:
            write_tables([empty_copy(output_with_rows)], temporary, PARQUET)
