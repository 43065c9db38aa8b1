"""Tables from files as Arrow tables: CSV, Parquet and Feather, at once or in batches, the same whichever way they come."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dco.extras import require

_CSV, _PARQUET, _FEATHER = (".csv", ".tsv", ".csv.gz", ".tsv.gz"), (".parquet", ".pq"), (".feather", ".arrow")
_HEAD = 2**20  # characters of a CSV in which its column names must end
_BLOCK = 4 * 2**20  # bytes of a CSV at a time


def table_format(path: Path) -> str:
    """csv, parquet, feather, or folder (of Parquet files), by name."""
    name = path.name.lower()
    if path.is_dir():
        return "folder"
    for kind, endings in (("csv", _CSV), ("parquet", _PARQUET), ("feather", _FEATHER)):
        if name.endswith(endings):
            return kind
    raise ValueError(
        f"{path} is not a table that dco knows by its name: give a file that ends in .csv, .tsv, .parquet or .feather, or a "
        "folder of Parquet files."
    )


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder, in the order of their names; names of files and folders that begin with . or _ are not
    read, by custom."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.name.lower().endswith(_PARQUET)
        and path.is_file()
        and not any(name.startswith((".", "_")) for name in path.relative_to(folder).parts)
    )


def partitions(folder: Path) -> list[Path]:
    """The Parquet files of a folder that is read as one table."""
    found = parquet_files(folder)
    if not found:
        raise ValueError(f"The folder {folder} holds no Parquet file (*.parquet); give a table or such a folder.")
    return found


def column_names(path: Path) -> list[str]:
    """The names of the columns, from the head of the file alone."""
    with _told(path):
        names = _column_names(path)
    named = [name for name in names if not _is_row_number(name)]
    twice = sorted(name for name, count in Counter(named).items() if count > 1)
    if twice:
        raise ValueError(f"{path} has more than one column called {twice[0]!r}; give each column its own name.")
    if not named:
        raise ValueError(f"{path} has no column names in its first line; the first line must name the columns.")
    return named


def _is_row_number(name: str) -> bool:
    """The first column of many CSV files, which has no name, and what pandas adds to Parquet files, are no features."""
    return not name or (name.startswith("__index_level_") and name.endswith("__"))


def read_table(path: Path, columns: Sequence[str] | None = None) -> Any:
    """The whole table, or some of its columns, as an Arrow table."""
    names = column_names(path) if columns is None else list(columns)
    arrow = require("pyarrow", extra="tables")
    parts = list(batches(path, names, rows=2**20))
    if not parts:
        raise ValueError(f"{path} has column names and no rows; give a table with rows.")
    if table_format(path) == "folder":
        with _told(path):
            return arrow.concat_tables([arrow.Table.from_batches([part]) for part in parts], promote_options="permissive")
    return arrow.Table.from_batches(parts)


def batches(path: Path, columns: Sequence[str], *, rows: int) -> Iterator[Any]:
    """Arrow record batches of at most `rows` rows, in order, with the columns in the order given; memory stays flat."""
    with _told(path):
        for batch in _batches(path, list(columns)):
            ordered = _without_views(batch.select(list(columns)))
            for start in range(0, ordered.num_rows, rows):
                yield ordered.slice(start, rows)


def _without_views(batch: Any) -> Any:
    """Views of text, which Polars writes into Feather files, as plain text: Arrow can do little with views."""
    arrow, types = require("pyarrow", extra="tables"), require("pyarrow.types", extra="tables")

    def plain(kind: Any) -> Any:
        if types.is_dictionary(kind):
            return arrow.dictionary(kind.index_type, plain(kind.value_type), kind.ordered)
        return arrow.large_string() if types.is_string_view(kind) else kind

    return batch.cast(arrow.schema([field.with_type(plain(field.type)) for field in batch.schema]))


def even_batches(path: Path, columns: Sequence[str], *, rows: int) -> Iterator[Any]:
    """Arrow tables of exactly `rows` rows but for the last, wherever the file's own batches end: so that runs can go on."""
    arrow = require("pyarrow", extra="tables")
    waiting: list[Any] = []
    count = 0
    for batch in batches(path, columns, rows=rows):
        waiting.append(batch)
        count += batch.num_rows
        if count >= rows:
            table = arrow.Table.from_batches(waiting)
            yield table.slice(0, rows)
            rest = table.slice(rows)
            waiting, count = rest.to_batches() if rest.num_rows else [], rest.num_rows
    if count:
        yield arrow.Table.from_batches(waiting)


def row_count(path: Path) -> int | None:
    """How many rows there are, where the file says so."""
    if table_format(path) != "parquet":
        return None
    parquet = require("pyarrow.parquet", extra="tables")
    with _told(path), parquet.ParquetFile(path) as file:
        return int(file.metadata.num_rows)


class _told:  # noqa: N801  # reads as a sentence: with told(path)
    """Whatever the readers raise about a file becomes a sentence that names it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        if not self.path.exists():
            raise ValueError(f"There is no file {self.path}; check the name.")

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None or isinstance(error, (GeneratorExit, KeyboardInterrupt)) or not isinstance(error, Exception):
            return
        arrow = require("pyarrow", extra="tables")
        if isinstance(error, PermissionError):
            raise ValueError(f"{self.path} cannot be opened: permission denied.") from error
        if isinstance(error, (arrow.ArrowException, UnicodeError, EOFError, gzip.BadGzipFile, OSError, csv.Error)):
            raise ValueError(self._sentence(error)) from error

    def _sentence(self, error: Exception) -> str:
        text = " ".join(str(error).split()).rstrip(".")[:240]
        if isinstance(error, UnicodeError) or "invalid UTF8" in text:
            return f"{self.path} is not written in UTF-8{self._guess()}; save it again as UTF-8."
        if "Empty CSV" in text:
            return f"{self.path} is empty; give a table with column names in its first line."
        text = re.sub(r"\bRow #(\d+)", lambda found: f"row {int(found[1]) - 1}", text)  # Arrow counts the header
        return f"{self.path} cannot be read as a {table_format(self.path)} table: {text}. Mend the file, or write it again."

    def _guess(self) -> str:
        with gzip.open(self.path) if _is_gzip(self.path) else open(self.path, "rb") as file:
            begin = file.read(2)
        if begin in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return " (it looks like UTF-16)"
        return " (perhaps in Windows-1252 or Latin-1)"


def _column_names(path: Path) -> list[str]:
    kind = table_format(path)
    if kind == "csv":
        return _csv_head(path)[0]
    if kind == "folder":
        return _column_names(partitions(path)[0])
    if kind == "parquet":
        parquet = require("pyarrow.parquet", extra="tables")
        with parquet.ParquetFile(path) as file:
            return list(file.schema_arrow.names)
    ipc = require("pyarrow.ipc", extra="tables")
    with require("pyarrow", extra="tables").memory_map(str(path)) as source, ipc.open_file(source) as reader:
        return list(reader.schema.names)


def _csv_head(path: Path) -> tuple[list[str], str]:
    """The column names and the delimiter, which is told by the file's name or else by the line with the names.

    Blank lines before it are passed over, as Arrow does. A quoted name may hold delimiters and line breaks.
    """
    opened = gzip.open if _is_gzip(path) else open
    with opened(path, "rt", encoding="utf-8-sig", newline="") as text:
        head = text.read(_HEAD)
    first = next((line for line in re.sub(r'"[^"]*("|$)', '""', head).splitlines() if line), "")
    if not first.strip():
        raise ValueError(f"{path} is empty; give a table with column names in its first line.")
    by_name = path.name.lower().endswith((".tsv", ".tsv.gz"))  # names of columns may hold commas: "height, cm"
    delimiter = "\t" if by_name else max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(head, newline=""), delimiter=delimiter, strict=True)
    return next(names for names in reader if names), delimiter


def _is_gzip(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


def _batches(path: Path, columns: list[str]) -> Iterator[Any]:
    kind = table_format(path)
    if kind == "csv":
        yield from _csv_batches(path, columns)
    elif kind == "parquet":
        parquet = require("pyarrow.parquet", extra="tables")
        with parquet.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=2**16, columns=columns, use_threads=False)
    elif kind == "folder":
        for part in partitions(path):
            yield from batches(part, columns, rows=2**16)
    else:
        ipc, arrow = require("pyarrow.ipc", extra="tables"), require("pyarrow", extra="tables")
        with arrow.memory_map(str(path)) as source, ipc.open_file(source) as reader:
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)


def _csv_batches(path: Path, columns: list[str]) -> Iterator[Any]:
    arrow, reader = require("pyarrow", extra="tables"), require("pyarrow.csv", extra="tables")
    _, delimiter = _csv_head(path)
    convert = reader.ConvertOptions(
        column_types=dict.fromkeys(columns, arrow.string()),
        include_columns=columns,
        strings_can_be_null=True,
        null_values=[""],
    )
    parse = reader.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    read = reader.ReadOptions(use_threads=False, block_size=_BLOCK)
    with (
        arrow.input_stream(str(path), compression="gzip" if _is_gzip(path) else None) as source,
        reader.open_csv(source, read_options=read, parse_options=parse, convert_options=convert) as stream,
    ):
        yield from stream
