"""``dco predict``: prediction sets for tables of any size, batch by batch.

Each finished batch is a part file in a folder beside the output, written beside and then renamed; at the end the parts are
put together beside the output, which appears under its name when it is complete. ``--resume`` keeps parts that are there.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from dco.commands.options import (
    FILE,
    WholeType,
    chosen_alpha,
    decimal_option,
    example,
    force_option,
    model_guarantee_options,
    model_level_options,
    trust_option,
    work_options,
)
from dco.commands.printing import as_json, note, noted_warnings, print_json, progress, say
from dco.display import counted

_PLAN = "plan.json"
# What spreadsheets take for a formula at the begin of a cell, also behind apostrophes, so that one can be taken off again.
_FORMULA = "^'*[=+\\-@\t\r\n＝＋－＠]"
_NUMBER = r"[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?"
_SIGNATURE = "dco"  # the key of the metadata in Parquet and Feather outputs


@click.command("predict", epilog=example("dco predict model.dco new_patients.csv --out sets.csv"))
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
@click.option("--out", type=FILE, required=True, help="CSV, Parquet or Feather; a folder if DATA is a folder.")
@model_level_options
@model_guarantee_options
@click.option(
    "--key", metavar="COL", help="Copy this column in front.  [default: the key of the model, or the row's number]"
)
@click.option("--batch-rows", type=WholeType(min=1), default=50_000, show_default=True, help="Rows in memory at a time.")
@decimal_option(default=None)
@click.option("--ignore-new", is_flag=True, help="Leave out columns that the model was not fitted on.")
@click.option("--no-escape", is_flag=True, help="CSV: keep text that begins with = + - @, which spreadsheets run.")
@click.option("--resume", is_flag=True, help="Go on with a run that was stopped; the options must be the same.")
@work_options
@force_option
@trust_option
@as_json
def command(
    model: Path,
    data: Path,
    out: Path,
    alpha: float | None,
    confidence: float | None,
    resume: bool,
    force: bool,
    jobs: int,
    scheduler: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the prediction set of every row of DATA, in order; memory stays flat however long the table is.

    The output has the row's key (or its number, from 0), the point prediction, the set and its size: labels, or the ends
    lower and upper (and all pieces, where a set has several). In a CSV, text that a spreadsheet would run as a formula gets
    an apostrophe in front. A folder of Parquet files gives a folder with one output a file, on a Dask cluster if --scheduler
    names one; its machines must see the same paths. A run that is killed leaves no half-written file.
    """
    from dco.commands.reading import table_format

    level = chosen_alpha(alpha, confidence, default=None)
    order = Order(str(model), str(data), str(out), level, options["key"], options["batch_rows"], options["ignore_new"],
                  tuple(options["trust"]), guarantee=options["guarantee"], delta=options["delta"],
                  decimal=options["decimal"], escape=not options["no_escape"])  # fmt: skip
    notes: list[str] = []
    with noted_warnings(notes):
        if table_format(data) == "folder":
            rows, files, told = _predict_folder(
                order, resume=resume, force=force, jobs=jobs, scheduler=scheduler, quiet=as_json
            )
        elif scheduler is not None:
            raise ValueError(f"--scheduler shares out the files of a Parquet folder, and {data} is one file; leave it out.")
        else:
            if jobs != 1:
                notes.append("One file is predicted by one process; --jobs shares out the files of a folder.")
            rows, files, told = _predict_file(order, resume=resume, force=force, quiet=as_json)
    if as_json:
        print_json({"rows": rows, "files": files, "out": str(out), **told, "notes": notes})
        return
    for sentence in notes:
        note(f"Note: {sentence}")
    say(
        f"Wrote the {'set of 1 row' if rows == 1 else f'sets of {rows:,} rows'} to {out}"
        + (f" ({files} files)." if files > 1 else ".")
    )


@dataclass(frozen=True)
class Order:
    """What was asked for: two runs with the same order give the same output. Plain data, so that it can travel."""

    model: str
    data: str
    out: str
    alpha: float | None
    key: str | None
    batch_rows: int
    ignore_new: bool
    trust: tuple[str, ...]
    first_row: int = 0
    unfinished: str = ""
    guarantee: str | None = None
    delta: float | None = None
    decimal: str | None = None
    escape: bool = True

    @property
    def statement(self) -> dict[str, Any]:
        """The level and the kind of promise; None is the model's own."""
        return {"alpha": self.alpha, "guarantee": self.guarantee, "delta": self.delta}


def output_format(path: Path) -> str:
    """csv, parquet or feather, by the name of the output."""
    from dco.commands.reading import table_format

    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file, since DATA is one file.")
    if not path.name.lower().endswith((".csv", ".parquet", ".pq", ".feather", ".arrow")):
        raise ValueError(f"{path}: sets are written as .csv, .parquet or .feather; choose one of these endings.")
    return table_format(path)


def _identity(order: Order) -> dict[str, Any]:
    """What must not change between a run and its continuation: the order, and the bytes of the model and of a table."""
    described = asdict(order) | {"trust": list(order.trust)}
    for name in ("out", "model", "data", "unfinished"):
        del described[name]
    described["model"] = _digest(order.model, Path(order.model).stat().st_mtime_ns)
    return described if Path(order.data).is_dir() else described | {"data": fingerprint(order.data)}


def fingerprint(path: str | Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@functools.lru_cache(maxsize=1)
def _digest(path: str, modified: int) -> str:
    return fingerprint(path)


def _signed(table: Any, order: Order, model: Any) -> Any:
    """The table with what its sets come from and promise, as JSON under the key "dco" of the schema's metadata."""
    from dco.commands.model_files import stated
    from dco.storage import versions

    told = {
        "version": versions()["decoupled-conformal"],
        "model_sha256": _digest(order.model, Path(order.model).stat().st_mtime_ns),
        "structure_fingerprint": model.certificate_.structure_fingerprint,
        **stated(model, order.statement),
    }
    return table.replace_schema_metadata({_SIGNATURE: json.dumps(told)})


@functools.lru_cache(maxsize=1)
def _opened(path: str, modified: int, trust: tuple[str, ...]) -> Any:
    """A worker that predicts many partitions reads the model once."""
    from dco.commands.model_files import open_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # told when the run began
        return open_model(Path(path), trust)


def _predict_file(order: Order, *, resume: bool, force: bool, quiet: bool) -> tuple[int, int, dict[str, Any]]:
    """How many rows and files were written, and the statement of the sets."""
    from dco.commands.model_files import open_model, stated, tell_level
    from dco.commands.outputs import check_output
    from dco.commands.reading import row_count

    out, data = Path(order.out), Path(order.data)
    output_format(out)
    check_output(out, force=force, inputs=[data, Path(order.model)])
    model = open_model(Path(order.model), order.trust)
    _tell_no_key(*_columns(order, model))
    tell_level(model, **order.statement)
    parts = out.with_name(f"{out.name}.parts")
    with _alone(parts, out):
        check_output(out, force=force)  # another run may have finished since
        begin_parts(parts, _identity(order), resume=resume, force=force)
        try:
            with progress("Predicting", row_count(data), quiet=quiet) as advance:
                written = _write_parts(order, model, parts, advance)
            _assemble(parts, out, written, force=force)
        except OSError as error:  # a full or failing disk: what is finished stays, to go on with
            raise _disk_error(error, out) from error
        except Exception:
            if not resume:
                shutil.rmtree(parts, ignore_errors=True)  # bad input: there is nothing to go on with
            raise
        shutil.rmtree(parts, ignore_errors=True)
    return sum(written), 1, stated(model, order.statement)


def _disk_error(error: OSError, out: Path) -> OSError:
    """What a disk refused, with the place and the next step."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OSError(f"There is no space left at {out.parent.resolve()}; make room, then run again with --resume.")
    if error.errno is None:  # a sentence of our own
        return error
    where = out if error.filename is None else error.filename
    return OSError(f"{where}: {error.strerror or error}. Finished parts are kept: mend this, then run again with --resume.")


@contextmanager
def _alone(parts: Path, out: Path) -> Iterator[None]:
    """Hold the folder of unfinished parts, so that no two runs write one output.

    A network disk keeps a name for the lock while it is open, and so the folder; it is removed when the lock is closed.
    """
    from dco.files import held

    there = parts.exists()
    try:
        with held(parts):
            try:
                yield
            finally:
                if not there and parts.is_dir() and not (parts / _PLAN).exists():
                    shutil.rmtree(parts, ignore_errors=True)  # refused before anything was done
    except BlockingIOError:
        raise ValueError(
            f"Another run is writing {out} at this moment; wait until it is done, or choose another --out."
        ) from None
    finally:
        with suppress(OSError):  # not empty: there is something to go on with
            parts.rmdir()


def begin_parts(parts: Path, identity: dict[str, Any], *, resume: bool, force: bool) -> None:
    """Begin the folder for finished parts, or check that what is there belongs to the same order. The folder is held."""
    plan = parts / _PLAN
    begun = any(not path.name.startswith(".") for path in parts.iterdir())
    if begun and not resume and not force:
        raise ValueError(
            f"{parts} holds the parts of a run that was stopped; --resume goes on with it, --force starts anew."
        )
    if begun and resume:
        if not _is_of(plan, identity):
            raise ValueError(
                f"{parts} belongs to a run with other options, another model or another table, or one that has changed "
                "since; --force without --resume starts anew."
            )
        return
    for path in parts.iterdir():
        if not path.name.startswith("."):  # not the lock
            path.unlink()
    _write_plan(plan, identity)


def _is_of(plan: Path, identity: dict[str, Any]) -> bool:
    """Whether a plan is there and has the same order."""
    try:
        return bool(json.loads(plan.read_text(encoding="utf-8")) == identity)
    except (OSError, ValueError):
        return False


def _write_plan(plan: Path, identity: dict[str, Any]) -> None:
    from dco.files import written_beside

    with written_beside(plan) as beside:
        beside.write_text(json.dumps(identity), encoding="utf-8")


def _columns(order: Order, model: Any) -> tuple[Any, list[str], str | None]:
    """The layout, the columns to read and the key column, all checked against the table before any work is done."""
    from dco.commands.layout import checked_columns, need_column
    from dco.commands.model_files import layout_of
    from dco.commands.reading import column_names

    data = Path(order.data)
    names = column_names(data)
    layout = layout_of(model, [name for name in names if name != order.key], target=None, path=data, decimal=order.decimal)
    key = order.key
    if key is not None:
        need_column(names, key, path=data, option="--key")
    elif layout.key is not None and layout.key in names:
        key = layout.key
    columns = checked_columns(data, layout, ignore_new=order.ignore_new, also=[] if key is None else [key])
    return layout, columns, key


def _tell_no_key(layout: Any, columns: list[str], key: str | None) -> None:
    if key is None and layout.key is not None:
        warnings.warn(
            f"The table has no column {layout.key!r}, the key of the model, so rows are named by their number, from 0; "
            "--key names another column.",
            UserWarning,
            stacklevel=2,
        )


def _write_parts(order: Order, model: Any, parts: Path, advance: Any) -> list[int]:
    """Write the parts that are not there yet; returns the number of rows of every part."""
    from dco.calibration import tell_new_groups
    from dco.commands.layout import NewValues
    from dco.commands.model_files import model_features
    from dco.commands.reading import even_batches
    from dco.files import written_beside

    data, kind = Path(order.data), output_format(Path(order.out))
    layout, columns, key = _columns(order, model)
    row = 0
    written: list[int] = []
    new: Counter[Any] = Counter()
    missing: Counter[Any] = Counter()
    values = NewValues()
    for index, table in enumerate(even_batches(data, columns, rows=order.batch_rows)):
        part = _part(parts, index)
        values.count(table, layout)
        if not part.exists():
            result = sets_table(
                model,
                table,
                layout,
                key=key,
                path=data,
                first_row=row,
                order=order,
                text=kind == "csv",
                new=new,
                missing=missing,
            )
            with written_beside(part, within=parts) as beside:
                write_arrow(_signed(result, order, model), beside, kind)
        else:  # rows of earlier runs count in the notes
            X = model_features(model, table, layout, path=data, first_row=row)
            new.update(model.predictor_.new_groups(X))
            missing.update(model.predictor_.new_gaps(X))
        row += table.num_rows
        written.append(table.num_rows)
        advance(table.num_rows)
    if row == 0:
        raise ValueError(f"{data} has column names and no rows; give a table with rows.")
    tell_new_groups(new, counted(row, "row"))
    model.predictor_.tell_new_gaps(missing, row)
    values.tell()
    return written


def _part(parts: Path, index: int) -> Path:
    return parts / f"{index:09d}"


def sets_table(
    model: Any,
    table: Any,
    layout: Any,
    *,
    key: str | None,
    path: Path,
    first_row: int,
    order: Order,
    text: bool,
    new: Counter[Any] | None = None,
    missing: Counter[Any] | None = None,
) -> Any:
    """Key, point prediction, set and size of each row, as an Arrow table.

    Rows of groups without calibration are counted in `new`, missing cells of columns that had none in `missing`.
    """
    import numpy as np

    from dco.commands.model_files import model_features
    from dco.extras import require
    from dco.sets import Intervals, IntervalUnions, LabelSets

    arrow = require("pyarrow", extra="tables")
    X = model_features(model, table, layout, path=path, first_row=first_row)
    if new is not None:
        new.update(model.predictor_.new_groups(X))
    if missing is not None:
        missing.update(model.predictor_.new_gaps(X))
    record = model.predictor_.structure.prediction(X)
    sets = model.predictor_.sets(X, **order.statement, prediction=record)
    start = order.first_row + first_row
    columns: dict[str, Any] = {}
    if key is None:
        columns["row"] = np.arange(start, start + table.num_rows)
    else:
        columns[key] = table.column(key)
    taken = set(columns)
    columns[_free("prediction", taken)] = arrow.array(_point(model, X, record))
    if isinstance(sets, LabelSets):
        columns[_free("set", taken)] = _label_column(arrow, sets, text=text)
    elif isinstance(sets, (Intervals, IntervalUnions)):
        hull = sets.hull() if isinstance(sets, IntervalUnions) else sets
        columns[_free("lower", taken)] = arrow.array(np.asarray(hull.lower, dtype=np.float64))
        columns[_free("upper", taken)] = arrow.array(np.asarray(hull.upper, dtype=np.float64))
        if isinstance(sets, IntervalUnions):
            columns[_free("pieces", taken)] = arrow.array([_pieces(sets.pieces(row)) for row in range(len(sets))])
    columns[_free("size", taken)] = arrow.array(sets.sizes())
    return _escaped(arrow.table(columns)) if text and order.escape else arrow.table(columns)


def _escaped(table: Any) -> Any:
    """The table with an apostrophe before every text and column name that a spreadsheet would run as a formula.

    Numbers, and labels that are numbers, stay as they are; taking one apostrophe off what matches `_FORMULA` with one in
    front gives the text back.
    """
    from dco.commands.cells import is_text
    from dco.extras import require

    arrow, compute = require("pyarrow", extra="tables"), require("pyarrow.compute", extra="tables")

    def told(column: Any) -> Any:
        if arrow.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if not is_text(column.type):
            return column
        plain = compute.match_substring_regex(column, rf"^{_NUMBER}(\|{_NUMBER})*$")
        risky = compute.and_not(compute.match_substring_regex(column, _FORMULA), plain)
        if compute.any(risky).as_py():
            warnings.warn(
                "Text that begins with =, +, - or @ has an apostrophe in front in the CSV, so that no spreadsheet runs it "
                "as a formula; --no-escape keeps it as it is.",
                UserWarning,
                stacklevel=2,
            )
        sign, nothing = (arrow.scalar(text, column.type) for text in ("'", ""))
        return compute.if_else(risky, compute.binary_join_element_wise(sign, column, nothing), column)

    made = [name for name in table.column_names[1:] if name.startswith("pieces")]  # of numbers, by `_pieces`
    columns = [
        column if name in made else told(column) for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return arrow.table(columns, names=told(arrow.array(table.column_names)).to_pylist())


def _free(name: str, taken: set[str]) -> str:
    """A column name that the key has not taken."""
    return name if name not in taken else _free(f"{name}_", taken)


def _point(model: Any, X: Any, record: Any) -> Any:
    """The point prediction; a record of points holds it already, and asking the model again would double the time."""
    from dco.predictions import Points

    points = record.mean if isinstance(record, Points) else model.predict(X)
    return points.tolist() if points.dtype.kind in "OU" else points


def _label_column(arrow: Any, sets: Any, *, text: bool) -> Any:
    """Lists of labels; in a CSV, labels joined by "|", or as a JSON list if a label itself holds that sign."""
    lists = sets.to_lists()
    if not text:
        kind = arrow.string() if sets.classes is not None and sets.classes.dtype.kind in "OU" else arrow.int64()
        return arrow.array(lists, type=arrow.list_(kind))
    if any("|" in str(label) for label in (sets.classes if sets.classes is not None else ())):
        return arrow.array([json.dumps([str(label) for label in labels], ensure_ascii=False) for labels in lists])
    return arrow.array(["|".join(map(str, labels)) for labels in lists])


def _pieces(ends: Any) -> str:
    return "; ".join(f"{float(lower)!r} to {float(upper)!r}" for lower, upper in ends)


def write_arrow(table: Any, path: Path, kind: str) -> None:
    """One finished part; a CSV part has no header, so that parts can be put one after the other."""
    from dco.extras import require

    if kind == "csv":
        writer = require("pyarrow.csv", extra="tables")
        writer.write_csv(table, str(path), writer.WriteOptions(include_header=False))
    elif kind == "parquet":
        require("pyarrow.parquet", extra="tables").write_table(table, str(path))
    else:
        require("pyarrow.feather", extra="tables").write_feather(table, str(path))
    _keep_names(table, path, kind)


def _keep_names(table: Any, path: Path, kind: str) -> None:
    """The header of a CSV is kept beside its first part."""
    if kind != "csv":
        return
    header = path.parent / "header"
    if not header.exists():
        from dco.extras import require
        from dco.files import written_beside

        writer = require("pyarrow.csv", extra="tables")
        with written_beside(header) as beside:
            writer.write_csv(table.slice(0, 0), str(beside))


def _assemble(parts: Path, out: Path, rows: list[int], *, force: bool) -> None:
    """Put the parts together beside the output, then give it its name; each part must be there with all its rows."""
    from dco.files import written_beside

    kind = output_format(out)
    files = [_part(parts, index) for index in range(len(rows))]
    lost = [path for path in [parts / "header"] * (kind == "csv") + files if not path.exists()]
    if lost:
        raise OSError(f"{lost[0]} is missing: a finished part was removed during the run; run again with --resume.")
    with written_beside(out, within=parts, overwrite=force) as beside:
        if kind == "csv":
            with open(beside, "wb") as target:
                target.write((parts / "header").read_bytes())
                for file, count in zip(files, rows, strict=True):
                    text = file.read_bytes()
                    _check_part(file, _csv_rows(text), count)
                    target.write(text)
            return
        read, writer = _reader_and_writer(files[0], beside, kind)
        with writer:
            for file, count in zip(files, rows, strict=True):
                table = read(file)
                _check_part(file, table.num_rows, count)
                writer.write_table(table)


def _reader_and_writer(first: Path, beside: Path, kind: str) -> tuple[Callable[[Path], Any], Any]:
    """How a part is read, and the file for all of them."""
    from dco.extras import require

    if kind == "parquet":
        parquet = require("pyarrow.parquet", extra="tables")
        return parquet.read_table, parquet.ParquetWriter(str(beside), parquet.read_schema(first))
    ipc, feather = require("pyarrow.ipc", extra="tables"), require("pyarrow.feather", extra="tables")
    options = ipc.IpcWriteOptions(compression="lz4")
    schema = feather.read_table(str(first), memory_map=False).schema
    return (lambda file: feather.read_table(str(file), memory_map=False)), ipc.new_file(str(beside), schema, options=options)


def _csv_rows(text: bytes) -> int:
    """Line ends outside quotes."""
    return sum(piece.count(b"\n") for piece in text.split(b'"')[::2])


def _check_part(file: Path, found: int, rows: int) -> None:
    if found != rows:
        raise ValueError(f"{file} has {found} rows where {rows} were written; --force without --resume starts anew.")


# --- folders ------------------------------------------------------------------------------------------------------


def _predict_folder(
    order: Order, *, resume: bool, force: bool, jobs: int, scheduler: str | None, quiet: bool
) -> tuple[int, int, dict[str, Any]]:
    """One output file per partition. Finished ones wait in a folder, where --resume finds them, until all are there."""
    from dataclasses import replace

    from dco.calibration import tell_new_groups
    from dco.commands.layout import NewValues
    from dco.commands.model_files import open_model, stated, tell_level
    from dco.commands.reading import partitions, row_count
    from dco.files import Written, take_places
    from dco.parallel import run_many

    data, out = Path(order.data), Path(order.out)
    _check_out_folder(out, data)
    model = open_model(Path(order.model), order.trust)
    tell_level(model, **order.statement)
    files = partitions(data)
    targets = {file: out / file.relative_to(data) for file in files}
    offsets = [0]
    for file in files:
        offsets.append(offsets[-1] + (row_count(file) or 0))
        _tell_no_key(*_columns(replace(order, data=str(file)), model))
    out.mkdir(exist_ok=True)
    unfinished = out / "_dco_unfinished"  # readers of Parquet folders pass over names that begin with _
    with _alone(unfinished, out):
        prints = run_many(fingerprint, map(os.path.abspath, files), n_jobs=jobs, scheduler=scheduler)
        names = [str(file.relative_to(data)) for file in files]
        identity = _identity(order) | {"files": dict(zip(names, prints, strict=True))}
        old = _begin_folder(out, unfinished / _PLAN, identity, list(targets.values()), resume=resume, force=force)
        finished = {file: unfinished / file.relative_to(data) for file in files}
        orders = [
            _partition_order(order, file, target, first, unfinished)
            for (file, target), first in zip(finished.items(), offsets[:-1], strict=True)
            if not (resume and target.exists())
        ]
        found = _predict_partitions(orders, out, jobs=jobs, scheduler=scheduler, quiet=quiet)
        lost = [file for file, target in finished.items() if not target.exists()]
        if lost:
            raise OSError(f"The sets of {lost[0]} were removed during the run; run again with --resume.")
        for target in targets.values():
            target.parent.mkdir(parents=True, exist_ok=True)
        take_places([Written(finished[file], target, overwrite=True) for file, target in targets.items()], gone=old)
        shutil.rmtree(unfinished, ignore_errors=True)
    total = NewValues()
    for _, values, _ in found:
        total.add(values)
    now = " predicted now" if len(orders) < len(files) else ""
    tell_new_groups(sum((groups for groups, _, _ in found), Counter()), counted(total.rows, "row") + now)
    model.predictor_.tell_new_gaps(sum((missing for _, _, missing in found), Counter()), total.rows)
    total.tell()
    return offsets[-1], len(files), stated(model, order.statement)


def _check_out_folder(out: Path, data: Path) -> None:
    """The sets of a folder go to a folder, which is not the one that is read."""
    from dco.commands.outputs import check_apart, check_folder

    if out.suffix:
        raise ValueError(f"{data} is a folder, so the sets go to a folder, one file a partition; {out} looks like a file.")
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; give the name of a folder, since DATA is a folder.")
    check_folder(out.parent if not out.exists() else out)
    check_apart(out, data)


def _partition_order(order: Order, file: Path, target: Path, first_row: int, unfinished: Path) -> Order:
    """The order for one file; its paths are absolute, since a worker may stand elsewhere."""
    from dataclasses import replace

    return replace(
        order,
        model=os.path.abspath(order.model),
        data=os.path.abspath(file),
        out=os.path.abspath(target),
        first_row=first_row,
        unfinished=os.path.abspath(unfinished),
    )


def _predict_partitions(
    orders: list[Order], out: Path, *, jobs: int, scheduler: str | None, quiet: bool
) -> list[tuple[Counter[Any], Any, Counter[Any]]]:
    """What `predict_partition` gives for each order, wherever they run."""
    from dco.parallel import run_many

    for order in orders:
        Path(order.out).parent.mkdir(parents=True, exist_ok=True)
    with progress("Predicting", len(orders), quiet=quiet) as advance:
        try:
            return run_many(
                predict_partition, orders, n_jobs=jobs, scheduler=scheduler, progress=lambda done, total: advance(1)
            )
        except OSError as error:
            raise _disk_error(error, out) from error


def _begin_folder(
    out: Path, plan: Path, identity: dict[str, Any], targets: list[Path], *, resume: bool, force: bool
) -> list[Path]:
    """Check that a folder is empty, may be replaced or belongs to the same order; then write the plan into it.

    Returns sets of a former run that --force removes when all is done: a reader of the folder would take them for sets of
    this run. The plan comes last, so that a kill in between leaves nothing to go on with.
    """
    from dco.commands.reading import parquet_files

    begun = plan.exists() or any(path != plan.parent for path in out.iterdir())
    if begun and not (resume or force):
        raise ValueError(f"{out} is not empty and nothing is overwritten unasked; --resume goes on, --force writes anew.")
    if begun and resume and not _is_of(plan, identity):
        raise ValueError(
            f"{out} does not belong to a stopped run with these options, this model and this table; --force without "
            "--resume writes anew."
        )
    old = [path for path in parquet_files(out) if path not in targets]
    foreign = [path for path in old if not _is_signed(path)]
    if foreign:
        raise ValueError(
            f"{out} holds {foreign[0].relative_to(out)}, which is neither an output of this run nor written by an earlier "
            "one; choose another folder, or take the file away."
        )
    if not (begun and resume):
        plan.unlink(missing_ok=True)
        for path in parquet_files(plan.parent):
            path.unlink()
        _write_plan(plan, identity)
    return old


def _is_signed(path: Path) -> bool:
    """Whether this is an output of `dco predict`."""
    from dco.extras import require

    try:
        metadata = require("pyarrow.parquet", extra="tables").read_schema(path).metadata
    except (OSError, ValueError):  # not a Parquet file in spite of its name
        return False
    return _SIGNATURE.encode() in (metadata or {})


def predict_partition(order: Order) -> tuple[Counter[Any], Any, Counter[Any]]:
    """The sets of one Parquet file, streamed into one Parquet file that appears when it is complete.

    Returns how many of its rows belong to each group that has no calibration rows, the categories that are new, and the
    missing cells of columns that had none in the fit.
    """
    from dco.commands.layout import NewValues
    from dco.commands.reading import even_batches
    from dco.extras import require
    from dco.files import written_beside

    parquet = require("pyarrow.parquet", extra="tables")
    model = _opened(order.model, Path(order.model).stat().st_mtime_ns, order.trust)
    layout, columns, key = _columns(order, model)
    data, row, writer = Path(order.data), 0, None
    new: Counter[Any] = Counter()
    missing: Counter[Any] = Counter()
    values = NewValues()
    with written_beside(Path(order.out), within=Path(order.unfinished)) as beside:
        try:
            for table in even_batches(data, columns, rows=order.batch_rows):
                values.count(table, layout)
                result = sets_table(
                    model,
                    table,
                    layout,
                    key=key,
                    path=data,
                    first_row=row,
                    order=order,
                    text=False,
                    new=new,
                    missing=missing,
                )
                result = _signed(result, order, model)
                writer = parquet.ParquetWriter(str(beside), result.schema) if writer is None else writer
                writer.write_table(result)
                row += table.num_rows
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            raise ValueError(f"{data} has no rows; remove this file from the folder.")
    return new, values, missing
