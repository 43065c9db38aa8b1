"""Prediction sets as Arrow tables, and the files they are written to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dco.cli.tables.arrow import arrow, compute, csv, feather, ipc, parquet, types
from dco.cli.tables.files import table_format
from dco.foundations.files import written_beside
from dco.foundations.notes import Note, show

# What spreadsheets take for a formula at the start of a cell, also behind apostrophes, so that one
# can be removed again.
_FORMULA = "^'*[=+\\-@\t\r\n＝＋－＠]"
_NUMBER = r"[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?"
_PIECE = f"({_NUMBER}|-inf) to ({_NUMBER}|inf)"  # of a set with several


def sets_table(given: Mapping[str, Any], points: Any, sets: Any, *, text: bool) -> Any:
    """Columns of the table (the key first), point prediction, set and size; `text` for a CSV, which
    has no lists.

    A column of ours whose name is taken gets an underscore.
    """
    columns: dict[str, Any] = {
        "prediction": arrow.array(points.tolist() if points.dtype.kind in "OU" else points)
    }
    for name, values in sets.columns().items():
        columns[name] = (
            _label_column(sets, text=text)
            if name == "set"
            else arrow.array(map(_pieces_in_words, values) if name == "pieces" else values)
        )
    made = dict(given)
    for name, column in columns.items():
        while name in made:
            name += "_"
        made[name] = column
    return arrow.table(made)


def _pieces_in_words(pieces: Iterable[tuple[float, float]]) -> str:
    """Write "1.0 to 2.5; 4.0 to inf"."""
    return "; ".join(f"{low!r} to {high!r}" for low, high in pieces)


def _label_column(sets: Any, *, text: bool) -> Any:
    """Lists of labels; in a CSV, labels joined by "|", or a JSON list if a label itself contains
    that sign.
    """
    lists = sets.to_lists()
    if not text:
        return arrow.array(lists, type=arrow.list_(arrow.array(sets.classes).type))
    if any("|" in str(label) for label in sets.classes):
        return arrow.array(
            [json.dumps(list(map(str, labels)), ensure_ascii=False) for labels in lists]
        )
    return arrow.array(["|".join(map(str, labels)) for labels in lists])


def without_formulas(table: Any) -> Any:
    """The table with an apostrophe before every text and column name that a spreadsheet would run
    as a formula.

    Numbers, sets of them and pieces stay as they are. Removing one apostrophe from what matches
    `_FORMULA` with one in front gives the text back.
    """

    def escaped(column: Any) -> Any:
        if types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if not (types.is_string(column.type) or types.is_large_string(column.type)):
            return column
        plain = compute.match_substring_regex(
            column,
            rf"^({_NUMBER}(\|{_NUMBER})*|{_PIECE}(; "
            rf"{_PIECE})*)$",
        )
        risky = compute.and_not(compute.match_substring_regex(column, _FORMULA), plain)
        if compute.any(risky).as_py():
            text = (
                "In the CSV, text that begins with =, +, - or @ has an apostrophe in front: "
                "spreadsheets would run it."
            )
            show([Note("formulas", text, "--no-escape keeps it unchanged.")])
        sign, nothing = (arrow.scalar(text, column.type) for text in ("'", ""))
        return compute.if_else(
            risky, compute.binary_join_element_wise(sign, column, nothing), column
        )

    return arrow.table(
        [escaped(column) for column in table.columns],
        names=escaped(arrow.array(table.column_names)).to_pylist(),
    )


def output_format(path: Path) -> str:
    """csv, parquet or feather, by the name of the output."""
    if not path.name.lower().endswith((".csv", ".parquet", ".pq", ".feather", ".arrow")):
        raise ValueError(
            f"{path}: sets are written as .csv, .parquet or .feather; choose one of these endings."
        )
    return table_format(path)


def write_tables(tables: Iterable[Any], path: Path, kind: str) -> None:
    """Arrow tables with one schema as a CSV, Parquet or Feather file."""

    def opened(schema: Any) -> Any:
        if kind == "feather":
            return ipc.new_file(str(path), schema, options=ipc.IpcWriteOptions(compression="lz4"))
        return (csv.CSVWriter if kind == "csv" else parquet.ParquetWriter)(str(path), schema)

    writer = None
    with ExitStack() as stack:
        for table in tables:
            writer = writer or stack.enter_context(opened(table.schema))
            writer.write_table(table)


def assemble(parts: Mapping[Path, int], out: Path, *, within: Path, force: bool) -> None:
    """Put finished parts together, each with all its rows, then give the output its name."""

    def whole() -> Iterator[Any]:
        for part, rows in parts.items():
            table = feather.read_table(str(part), memory_map=False)
            if table.num_rows != rows:
                found = f"{part} has {table.num_rows} rows where {rows} were written"
                raise ValueError(f"{found}; --force without --resume starts again.")
            yield table

    with written_beside(out, within=within, overwrite=force) as beside:
        write_tables(whole(), beside, output_format(out))
