"""Write prediction sets to CSV, Parquet and Feather files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from dco.cli.outputs import finish_from_here
from dco.cli.tables.arrow import arrow, compute, csv, feather, ipc, parquet, types
from dco.cli.tables.files import CSV, FEATHER, table_format
from dco.foundations.arrays import AnyArray
from dco.foundations.files import new_file
from dco.foundations.notes import Note, show

SIGNATURE_KEY = "dco"  # in the metadata of Parquet and Feather outputs

# What spreadsheets take for a formula at the start of a cell, also behind apostrophes, so that one
# can be removed again.
_FORMULA = "^'*[=+\\-@\t\r\n＝＋－＠]"
_NUMBER = r"[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?"
_INTERVAL = f"({_NUMBER}|-inf) to ({_NUMBER}|inf)"
# No formulas, though they may begin with + or -: numbers, sets of numbers, unions of intervals.
_NUMBERS = rf"^({_NUMBER}(\|{_NUMBER})*|{_INTERVAL}(; {_INTERVAL})*)$"


def sets_table(copied: Mapping[str, Any], points: AnyArray, sets: Any, *, text: bool) -> Any:
    """Make an Arrow table of prediction sets.

    It has the columns `copied` from the input, and then point predictions, sets and sizes. If a
    copied column has the name of one of these, "size" say, the latter is called "size_". With
    `text` (for a CSV), a set of labels is one text, otherwise a list.
    """
    columns = dict(copied)
    for name, column in _set_columns(points, sets, text=text).items():
        free_name = name
        while free_name in columns:
            free_name += "_"
        columns[free_name] = column
    return arrow.table(columns)


def _set_columns(points: AnyArray, sets: Any, *, text: bool) -> dict[str, Any]:
    """Make the columns of the output for the predictions of some rows, by name.

    `points` are single values, one for each row; `sets` become the column of sets (or of their
    ends) and of their sizes. With `text`, a set of labels is written as text, for a CSV.
    """
    has_texts = points.dtype.kind in "OU"
    columns = {"prediction": arrow.array(points.tolist() if has_texts else points)}
    for name, values in sets.columns().items():
        if name == "set":
            columns[name] = _label_column(values, np.asarray(sets.classes), text=text)
        elif name == "pieces":
            columns[name] = arrow.array([_describe_pieces(pieces) for pieces in values])
        else:
            columns[name] = arrow.array(values)
    return columns


def _label_column(lists: list[list[Any]], classes: AnyArray, *, text: bool) -> Any:
    """Make a column of label sets: lists, or texts for a CSV.

    A text joins labels with "|": "cat|dog". If a label itself contains that sign, it is a JSON
    list: '["cat", "dog"]'.
    """
    if not text:
        return arrow.array(lists, type=arrow.list_(arrow.array(classes).type))
    if any("|" in str(label) for label in classes):
        as_json = [json.dumps([str(label) for label in row], ensure_ascii=False) for row in lists]
        return arrow.array(as_json)
    return arrow.array(["|".join(str(label) for label in row) for row in lists])


def _describe_pieces(pieces: Any) -> str:
    """Write a union of intervals: "0.5 to 1.0; 2.0 to inf"."""
    return "; ".join(f"{float(low)!r} to {float(high)!r}" for low, high in pieces)


def without_formulas(table: Any) -> Any:
    """Put an apostrophe before every text and column name that a spreadsheet would run.

    Numbers, sets of numbers and unions of intervals stay as they are. To get the old text back,
    remove one apostrophe from every text that begins with one and matches `_FORMULA`.
    """
    columns = [_escape_formulas(column) for column in table.columns]
    names = _escape_formulas(arrow.array(table.column_names))
    return arrow.table(columns, names=names.to_pylist())


def _escape_formulas(column: Any) -> Any:
    """Put an apostrophe before cells that a spreadsheet would run as a formula: =A1 -> '=A1.

    Columns that are no text do not change. A note is shown if there are such cells.
    """
    # 1. Leave columns alone that are no text.
    texts = column
    if types.is_dictionary(column.type):
        texts = column.cast(column.type.value_type)
    if not (types.is_string(texts.type) or types.is_large_string(texts.type)):
        return texts

    # 2. Find the cells. "-3.2" begins like a formula and is a number.
    begins_like_formula = compute.match_substring_regex(texts, _FORMULA)
    is_numbers = compute.match_substring_regex(texts, _NUMBERS)
    is_formula = compute.and_not(begins_like_formula, is_numbers)
    if not compute.any(is_formula).as_py():
        return texts

    # 3. Put an apostrophe before them, and say so.
    apostrophe = arrow.scalar("'", texts.type)
    no_separator = arrow.scalar("", texts.type)
    escaped = compute.binary_join_element_wise(apostrophe, texts, no_separator)
    note = (
        "In the CSV, text that begins with =, +, - or @ has an apostrophe in front: spreadsheets "
        "would run it."
    )
    show([Note("formulas", note, "--no-escape keeps it unchanged.")])
    return compute.if_else(is_formula, escaped, texts)


# --- files ----------------------------------------------------------------------------------------


def output_format(path: Path) -> str:
    """Tell the format of an output from its name: CSV, PARQUET or FEATHER of `tables.files`."""
    if not path.name.lower().endswith((".csv", ".parquet", ".pq", ".feather", ".arrow")):
        raise ValueError(
            f"{path}: sets are written as .csv, .parquet or .feather; choose one of these endings."
        )
    return table_format(path)


def write_tables(tables: Iterable[Any], sink: Path | BytesIO, kind: str) -> None:
    """Write Arrow tables, which all have the same columns, one after the other to one file.

    `kind` is the format of the file, as in `tables.files`. Without tables nothing is written.
    """
    remaining = iter(tables)
    first = next(remaining, None)
    if first is None:
        return
    with _open_writer(sink, kind, first.schema) as writer:
        writer.write_table(first)
        for table in remaining:
            writer.write_table(table)


@contextmanager
def _open_writer(sink: Path | BytesIO, kind: str, schema: Any) -> Iterator[Any]:
    """Open a file, or a buffer in memory, to write Arrow tables to it.

    `kind` is the format: CSV, FEATHER or PARQUET. `schema` has the columns of the tables.
    """
    destination = str(sink) if isinstance(sink, Path) else sink
    if kind == CSV:
        writer = csv.CSVWriter(destination, schema)
    elif kind == FEATHER:
        options = ipc.IpcWriteOptions(compression="lz4")
        writer = ipc.new_file(destination, schema, options=options)
    else:
        writer = parquet.ParquetWriter(destination, schema)
    with writer:
        yield writer


def assemble(parts: Mapping[Path, int], out: Path, *, within: Path, force: bool) -> None:
    """Put the finished parts of an output together, and give the output its name.

    `parts` are files with their numbers of rows. The output is written in the folder `within`
    first, so that no half of it ever has its name.
    """
    with new_file(out, temporary_folder=within, overwrite=force) as temporary:
        write_tables(_read_parts(parts), temporary, output_format(out))
        finish_from_here()


def _read_parts(parts: Mapping[Path, int]) -> Iterator[Any]:
    """Read parts one by one; one with another number of rows than it should have is an error."""
    for part, n_rows in parts.items():
        table = feather.read_table(str(part), memory_map=False)
        if table.num_rows != n_rows:
            raise ValueError(
                f"{part} has {table.num_rows} rows where {n_rows} were written; --force without "
                "--resume starts again."
            )
        yield table


def empty_copy(path: Path) -> Any:
    """Make an Arrow table without rows, with the columns and the signature of a Parquet file."""
    return parquet.read_schema(path).empty_table()


def is_signed(path: Path) -> bool:
    """Say whether a Parquet file is an output of `dco predict`."""
    with suppress(OSError, ValueError):  # not a Parquet file in spite of its name
        return SIGNATURE_KEY.encode() in (parquet.read_schema(path).metadata or {})
    return False
