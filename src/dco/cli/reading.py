"""Tables from files as Arrow tables: CSV, Parquet and Feather, at once or in batches, with the same
cells from each.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dco.cli.arrow import arrow, ipc, parquet, types
from dco.cli.arrow import csv as arrow_csv
from dco.foundations.arrays import Integers

_CSV, _PARQUET, _FEATHER = (
    (".csv", ".tsv", ".csv.gz", ".tsv.gz"),
    (".parquet", ".pq"),
    (".feather", ".arrow"),
)
_HEAD = 2**20  # characters of a CSV in which its column names must end
_AT_ONCE = 2**16  # rows
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
        f"{path} is not a table that dco knows by its name: give a file that ends in .csv, .tsv, "
        f".parquet or .feather, or a "
        "folder of Parquet files."
    )


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder, sorted by name. Names that begin with . or _ are skipped, as
    is usual.
    """
    return sorted(
        path
        for path in folder.rglob("*")
        if path.name.lower().endswith(_PARQUET)
        and path.is_file()
        and not any(name.startswith((".", "_")) for name in path.relative_to(folder).parts)
    )


def files_of(path: Path) -> list[Path]:
    """The Parquet files of a folder that is read as one table, or the one file of a table."""
    if not path.exists():
        raise ValueError(f"There is no file {path}; check the name.")
    found = parquet_files(path) if table_format(path) == "folder" else [path]
    if not found:
        raise ValueError(
            f"The folder {path} has no Parquet file (*.parquet); give a table or a "
            f"folder with such files."
        )
    return found


def column_names(path: Path) -> list[str]:
    """The names of the columns, from the head of the file alone. Columns without a name, and
    pandas' index, are skipped.
    """
    file = files_of(path)[0]
    with _explained(file):
        kind = table_format(file)
        if kind == "csv":
            names = _csv_head(file)[0]
        elif kind == "parquet":
            names = parquet.read_schema(file).names
        else:
            with arrow.memory_map(str(file)) as source, ipc.open_file(source) as reader:
                names = reader.schema.names
    named = [
        name for name in names if name and not re.fullmatch("__index_level_.*__", name, re.DOTALL)
    ]
    twice = sorted(name for name, count in Counter(named).items() if count > 1)
    if twice:
        raise ValueError(
            f"{path} has more than one column called {twice[0]!r}; give each column its own name."
        )
    if not named:
        raise ValueError(
            f"{path} has no column names in its first line; the first line must name the columns."
        )
    return named


def read_table(path: Path, columns: Sequence[str] | None = None) -> Any:
    """The whole table, or some of its columns, as an Arrow table."""
    return _joined(path, list(_batches(path, column_names(path) if columns is None else columns)))


def _joined(path: Path, parts: list[Any]) -> Any:
    if not parts:
        raise ValueError(f"{path} has column names and no rows; give a table with rows.")
    with _explained(path):
        return arrow.concat_tables(parts, promote_options="permissive")


def read_sample(path: Path, rows: int, *, seed: int) -> tuple[Any, Integers, int]:
    """So many rows of a table, drawn at random and in their order, where they are, and the number
    of all.

    A batch is in memory at a time. Which rows are drawn does not depend on how they are cut into
    files.
    """
    rng, total = np.random.default_rng(seed), sum(row_counts(path).values())
    left, wanted, parts, places = total, min(rows, total), [], []
    for table in even_batches(path, column_names(path)):
        count = (
            int(rng.hypergeometric(wanted, left - wanted, table.num_rows))
            if left > wanted
            else table.num_rows
        )
        drawn = np.sort(rng.choice(table.num_rows, count, replace=False))
        parts.append(table.take(drawn))
        places.append(drawn + total - left)
        left, wanted = left - table.num_rows, wanted - count
    return _joined(path, parts), np.concatenate(places), total


def even_batches(path: Path, columns: Sequence[str], *, rows: int = 0) -> Iterator[Any]:
    """Arrow tables of exactly `rows` rows except the last, whatever the batches of the file: a
    resumed run needs this.

    Memory stays flat. Without `rows`, the tables are as large as suits most work.
    """
    waiting: list[Any] = []
    rows = rows or _AT_ONCE
    for batch in _batches(path, columns):
        waiting.append(batch)
        while sum(part.num_rows for part in waiting) >= rows:
            table = _joined(path, waiting)
            yield table[:rows]
            waiting = [table[rows:]] if table.num_rows > rows else []
    if waiting:
        yield _joined(path, waiting)


def row_counts(path: Path) -> dict[Path, int]:
    """The number of rows of each file of a table; files that do not say it are counted."""
    stated = {file: row_count(file) for file in files_of(path)}
    return {
        file: sum(batch.num_rows for batch in _batches(file, column_names(file)[:1]))
        if n is None
        else n
        for file, n in stated.items()
    }


def row_count(path: Path) -> int | None:
    """The number of rows, where the file says it."""
    if table_format(path) != "parquet":
        return None
    with _explained(path):
        return int(parquet.read_metadata(path).num_rows)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn whatever the readers raise about a file into a sentence that names it."""
    try:
        yield
    except PermissionError as error:
        raise ValueError(f"{path} cannot be opened: permission denied.") from error
    except (
        arrow.ArrowException,
        UnicodeError,
        EOFError,
        gzip.BadGzipFile,
        OSError,
        csv.Error,
    ) as error:
        text = " ".join(str(error).split()).rstrip(".")[:240]
        if isinstance(error, UnicodeError) or "invalid UTF8" in text:
            raise ValueError(
                f"{path} is not written in UTF-8{_guess(path)}; save it again as UTF-8."
            ) from error
        if "Empty CSV" in text:
            raise ValueError(
                f"{path} is empty; give a table with column names in its first line."
            ) from error
        # Arrow counts the header
        text = re.sub(r"\bRow #(\d+)", lambda found: f"row {int(found[1]) - 1}", text)
        kind = table_format(path)
        raise ValueError(
            f"{path} cannot be read as a {kind} table: {text}. Repair the file, or write it again."
        ) from error


def _guess(path: Path) -> str:
    with gzip.open(path) if _is_gzip(path) else open(path, "rb") as file:
        start = file.read(2)
    is_wide = start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return " (it looks like UTF-16)" if is_wide else " (perhaps in Windows-1252 or Latin-1)"


def _csv_head(path: Path) -> tuple[list[str], str]:
    """The column names and the delimiter, which follows from the file's name or else from the line
    with the names.

    Blank lines before it are skipped, as Arrow does. A quoted name may contain delimiters and line
    breaks.
    """
    opened = gzip.open if _is_gzip(path) else open
    with opened(path, "rt", encoding="utf-8-sig", newline="") as text:
        head = text.read(_HEAD)
    first = next((line for line in re.sub(r'"[^"]*("|$)', '""', head).splitlines() if line), "")
    if not first.strip():
        raise ValueError(f"{path} is empty; give a table with column names in its first line.")
    # column names may contain commas: "height, cm"
    by_name = path.name.lower().endswith((".tsv", ".tsv.gz"))
    delimiter = "\t" if by_name else max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(head, newline=""), delimiter=delimiter, strict=True)
    return next(names for names in reader if names), delimiter


def _is_gzip(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


def _batches(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    """The rows of a table as Arrow tables as they come, with the columns in the order given; none
    is empty.
    """
    for file in files_of(path):
        with _explained(file), ExitStack() as opened:
            found: Iterable[Any]
            kind = table_format(file)
            if kind == "csv":
                found = _csv_batches(file, columns, opened)
            elif kind == "parquet":
                parts = opened.enter_context(parquet.ParquetFile(file))
                found = parts.iter_batches(
                    batch_size=_AT_ONCE, columns=list(columns), use_threads=False
                )
            else:
                reader = opened.enter_context(
                    ipc.open_file(opened.enter_context(arrow.memory_map(str(file))))
                )
                found = map(reader.get_batch, range(reader.num_record_batches))
            for batch in found:
                if batch.num_rows:
                    yield _without_views(arrow.Table.from_batches([batch]).select(columns))


def _without_views(table: Any) -> Any:
    """Text views, which Polars writes into Feather files, as plain text: Arrow can do little with
    views.
    """

    def plain(kind: Any) -> Any:
        if types.is_dictionary(kind):
            return arrow.dictionary(kind.index_type, plain(kind.value_type), kind.ordered)
        return arrow.large_string() if types.is_string_view(kind) else kind

    return table.cast(arrow.schema([field.with_type(plain(field.type)) for field in table.schema]))


def _csv_batches(path: Path, columns: Sequence[str], opened: ExitStack) -> Iterable[Any]:
    """Every cell as text; only an empty cell is missing."""
    texts = dict.fromkeys(columns, arrow.string())
    convert = arrow_csv.ConvertOptions(
        column_types=texts,
        include_columns=list(columns),
        strings_can_be_null=True,
        null_values=[""],
    )
    parse = arrow_csv.ParseOptions(delimiter=_csv_head(path)[1], newlines_in_values=True)
    read = arrow_csv.ReadOptions(use_threads=False, block_size=_BLOCK)
    source = opened.enter_context(
        arrow.input_stream(str(path), compression="gzip" if _is_gzip(path) else None)
    )
    stream: Iterable[Any] = arrow_csv.open_csv(
        source, read_options=read, parse_options=parse, convert_options=convert
    )
    return stream
