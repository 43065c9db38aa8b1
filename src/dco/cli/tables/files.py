"""Read CSV, Parquet and Feather files, and folders of Parquet files, as Arrow tables.

Every cell of a CSV is read as text, and only an empty cell is missing: what the cells mean is
decided later, for whole columns. Arrow reads the CSV, since it refuses a row with a cell too few or
too many; pandas would fill up a short row, such as a last line that was cut off.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dco.cli.tables.arrow import arrow, ipc, parquet, types
from dco.cli.tables.arrow import csv as arrow_csv
from dco.cli.tables.table import Table
from dco.foundations.notes import Message

CSV = "csv"
PARQUET = "parquet"
FEATHER = "feather"
FOLDER = "folder"

_ENDINGS = {
    CSV: (".csv", ".tsv", ".csv.gz", ".tsv.gz"),
    PARQUET: (".parquet", ".pq"),
    FEATHER: (".feather", ".arrow"),
}
_HEAD_CHARACTERS = 2**20  # at the start of a CSV, in which its column names must end
BATCH_ROWS = 2**16
_CSV_BLOCK_BYTES = 4 * 2**20
_DELIMITERS = ",;\t"  # of a CSV; the first wins if the first line has none of them
_LONGEST_ERROR = 240  # characters of what Arrow says


# --- which files ----------------------------------------------------------------------------------


def table_format(path: Path) -> str:
    """Tell the format of a table from its name: CSV, PARQUET, FEATHER, or FOLDER.

    A folder is a table of all Parquet files in it.
    """
    if path.is_dir():
        return FOLDER

    name = path.name.lower()
    for file_format, endings in _ENDINGS.items():
        if name.endswith(endings):
            return file_format
    raise ValueError(
        f"{path} is not a table that dco knows by its name: give a file that ends in .csv, .tsv, "
        ".parquet or .feather, or a folder of Parquet files."
    )


def parquet_files(folder: Path) -> list[Path]:
    """List the Parquet files in a folder and below, sorted by name.

    Names that begin with . or _ are skipped, as is usual.
    """
    return sorted(
        path
        for path in folder.rglob("*")
        if path.name.lower().endswith(_ENDINGS[PARQUET])
        and path.is_file()
        and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    )


def files_of(path: Path) -> list[Path]:
    """List the files of a table: the Parquet files of a folder, or the one file."""
    if not path.exists():
        raise ValueError(f"There is no file {path}; check the name.")
    if table_format(path) != FOLDER:
        return [path]

    files = parquet_files(path)
    if not files:
        raise ValueError(
            f"The folder {path} has no Parquet file (*.parquet); give a table, or a folder with "
            "such files."
        )
    return files


# --- names and numbers of rows, before the rows are read ------------------------------------------


def column_names(path: Path) -> list[str]:
    """Read the names of the columns of a table, from its first file.

    Columns without a name, and the index that pandas stores as a column, are left out. Two columns
    with one name are an error.
    """
    first_file = files_of(path)[0]
    with _errors_explained(first_file):
        all_names = _names_in_file(first_file)

    names = [name for name in all_names if name and not _is_pandas_index(name)]
    if not names:
        raise ValueError(
            f"{path} has no column names in its first line; the first line must name the columns."
        )
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise ValueError(
            f"{path} has more than one column called {repeated[0]!r}; give each column its own "
            "name."
        )
    return names


def _names_in_file(file: Path) -> list[str]:
    """Read the names of all columns of a file, without its rows."""
    file_format = table_format(file)
    if file_format == CSV:
        return _read_csv_head(file).names
    if file_format == PARQUET:
        return list(parquet.read_schema(file).names)
    with arrow.memory_map(str(file)) as source, ipc.open_file(source) as reader:
        return list(reader.schema.names)


def _is_pandas_index(name: str) -> bool:
    return re.fullmatch("__index_level_.*__", name, re.DOTALL) is not None


def row_counts(path: Path) -> dict[Path, int]:
    """Count the rows of each file of a table; files that do not state their number are read."""
    counts = {}
    for file in files_of(path):
        stated = stated_row_count(file)
        counts[file] = _count_rows(file) if stated is None else stated
    return counts


def stated_row_count(path: Path) -> int | None:
    """Return the number of rows where the file states it."""
    if table_format(path) != PARQUET:
        return None
    with _errors_explained(path):
        return int(parquet.read_metadata(path).num_rows)


def _count_rows(file: Path) -> int:
    one_column = column_names(file)[:1]
    return sum(batch.num_rows for batch in _read_file(file, one_column))


# --- rows -----------------------------------------------------------------------------------------


def read_table(path: Path, columns: Sequence[str] | None = None, *, decimal: str = ".") -> Table:
    """Read a whole table, or some of its columns."""
    wanted = column_names(path) if columns is None else columns
    batches = list(_read_files(path, wanted))
    cells = _concatenate(batches, path)
    return Table(cells, path, positions=np.arange(cells.num_rows), decimal=decimal)


def read_batches(
    path: Path,
    columns: Sequence[str],
    *,
    rows: int | None = None,
    decimal: str = ".",
    complete_lines: bool = False,
) -> Iterator[Table]:
    """Read a table in batches of exactly `rows` rows; only the last batch may be shorter.

    Batches do not depend on how the file stores its rows, so that a stopped run finds the same
    batches again.

    Parameters
    ----------
    path, columns
        The table, and the columns to read.
    rows
        The number of rows of a batch; None takes the usual one.
    decimal
        The decimal sign of numbers in text.
    complete_lines
        Leave out the last line of a CSV if it has no line break: somebody may still be writing it.
    """
    first_row = 0
    stored_batches = _read_files(path, columns, complete_lines=complete_lines)
    for cells in _cut_evenly(stored_batches, rows or BATCH_ROWS, path):
        positions = np.arange(first_row, first_row + cells.num_rows)
        yield Table(cells, path, positions=positions, decimal=decimal)
        first_row += cells.num_rows


def _cut_evenly(stored_batches: Iterable[Any], rows: int, path: Path) -> Iterator[Any]:
    """Cut Arrow tables of any length into tables of `rows` rows; the last one may be shorter.

    Tables of 2, 5 and 4 rows with `rows=3` become tables of 3, 3, 3 and 2 rows.
    """
    waiting: list[Any] = []  # tables whose rows have not been yielded yet
    n_waiting = 0  # rows in them
    for stored_batch in stored_batches:
        waiting.append(stored_batch)
        n_waiting += stored_batch.num_rows
        if n_waiting < rows:
            continue

        cells = _concatenate(waiting, path)
        n_in_full_batches = n_waiting - n_waiting % rows
        for start in range(0, n_in_full_batches, rows):
            yield cells.slice(start, rows)
        n_waiting -= n_in_full_batches
        waiting = [cells.slice(n_in_full_batches)] if n_waiting else []

    if waiting:
        yield _concatenate(waiting, path)


def read_sample(path: Path, rows: int, *, seed: int, decimal: str = ".") -> tuple[Table, int]:
    """Draw `rows` rows of a table at random, without replacement; they keep their order.

    One batch is in memory at a time. First the number of rows to draw from it is drawn, which has a
    hypergeometric distribution, then the rows. The draw does not depend on how rows are cut into
    files. Returns the rows drawn, and the number of rows of the whole table.
    """
    rng = np.random.default_rng(seed)
    n_rows = sum(row_counts(path).values())
    n_not_read = n_rows
    n_to_draw = min(rows, n_rows)
    samples = []

    for batch in read_batches(path, column_names(path)):
        # 1. Draw how many of the rows that are still to be drawn lie in this batch.
        n_drawn = len(batch)
        if n_to_draw < n_not_read:
            n_not_to_draw = n_not_read - n_to_draw
            n_drawn = int(rng.hypergeometric(n_to_draw, n_not_to_draw, len(batch)))

        # 2. Draw these rows.
        drawn = rng.choice(len(batch), n_drawn, replace=False)
        samples.append(batch.take(np.sort(drawn)))
        n_not_read -= len(batch)
        n_to_draw -= n_drawn

    cells = _concatenate([sample.cells for sample in samples], path)
    positions = np.concatenate([sample.positions for sample in samples])
    return Table(cells, path, positions=positions, decimal=decimal), n_rows


def _concatenate(batches: list[Any], path: Path) -> Any:
    """Put Arrow tables together; one file may have int32 where another has int64."""
    if not batches:
        raise ValueError(f"{path} has column names and no rows; give a table with rows.")
    with _errors_explained(path):
        return arrow.concat_tables(batches, promote_options="permissive")


def _read_files(
    path: Path, columns: Sequence[str], *, complete_lines: bool = False
) -> Iterator[Any]:
    """Read the files of a table as Arrow tables with these columns, as the files are cut."""
    for file in files_of(path):
        yield from _read_file(file, columns, complete_lines=complete_lines)


def _read_file(
    file: Path, columns: Sequence[str], *, complete_lines: bool = False
) -> Iterator[Any]:
    """Read some columns of a CSV, Parquet or Feather file as Arrow tables, as the file is cut.

    Tables without rows are left out. `complete_lines` is for a CSV, as in `read_batches`.
    """
    file_format = table_format(file)
    if file_format == CSV:
        batches = _read_csv(file, columns, complete_lines=complete_lines)
    elif file_format == PARQUET:
        batches = _read_parquet(file, columns)
    else:
        batches = _read_feather(file)

    with _errors_explained(file):
        for batch in batches:
            if batch.num_rows:
                yield _without_views(arrow.Table.from_batches([batch]).select(columns))


def _read_parquet(file: Path, columns: Sequence[str]) -> Iterator[Any]:
    with parquet.ParquetFile(file) as reader:
        yield from reader.iter_batches(
            batch_size=BATCH_ROWS, columns=list(columns), use_threads=False
        )


def _read_feather(file: Path) -> Iterator[Any]:
    with arrow.memory_map(str(file)) as source, ipc.open_file(source) as reader:
        for index in range(reader.num_record_batches):
            yield reader.get_batch(index)


def _without_views(cells: Any) -> Any:
    """Turn text views, which Polars writes into Feather files, into plain text.

    Arrow can do little with views.
    """
    plain_fields = [field.with_type(_without_view(field.type)) for field in cells.schema]
    return cells.cast(arrow.schema(plain_fields))


def _without_view(arrow_type: Any) -> Any:
    if types.is_dictionary(arrow_type):
        values = _without_view(arrow_type.value_type)
        return arrow.dictionary(arrow_type.index_type, values, arrow_type.ordered)
    if types.is_string_view(arrow_type):
        return arrow.large_string()
    return arrow_type


# --- CSV ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _CsvHead:
    """The column names of a CSV, and the sign between its cells."""

    names: list[str]
    delimiter: str


def _read_csv_head(file: Path) -> _CsvHead:
    """Read the column names of a CSV file, and find its delimiter (the sign between cells).

    A .tsv is cut at tabs. Otherwise the delimiter is the sign, such as a comma, that is most
    frequent in the line with the names; signs in quoted names do not count. Blank lines before the
    names are skipped, as Arrow does.
    """
    open_file = gzip.open if _is_gzip(file) else open
    with open_file(file, "rt", encoding="utf-8-sig", newline="") as stream:
        head = stream.read(_HEAD_CHARACTERS)

    # 1. Find the line with the names: the first that is not blank. Quoted names are emptied first,
    #    since they may contain delimiters and line breaks.
    with_quotes_emptied = re.sub(r'"[^"]*("|$)', '""', head)
    first_line = next((line for line in with_quotes_emptied.splitlines() if line), "")
    if not first_line.strip():
        raise _empty_csv(file)

    # 2. Choose the delimiter, and read the names with it.
    is_tsv = file.name.lower().endswith((".tsv", ".tsv.gz"))
    delimiter = "\t" if is_tsv else max(_DELIMITERS, key=first_line.count)
    reader = csv.reader(io.StringIO(head, newline=""), delimiter=delimiter, strict=True)
    names = next(cells for cells in reader if cells)
    return _CsvHead(names, delimiter)


def _read_csv(file: Path, columns: Sequence[str], *, complete_lines: bool) -> Iterator[Any]:
    """Read some columns of a CSV file as text, in batches; an empty cell is missing.

    With `complete_lines`, a last line without a line break is left out.
    """
    delimiter = _read_csv_head(file).delimiter
    all_as_text = arrow_csv.ConvertOptions(
        column_types=dict.fromkeys(columns, arrow.string()),
        include_columns=list(columns),
        strings_can_be_null=True,
        null_values=[""],
    )
    with _open_csv(file, complete_lines=complete_lines) as source:
        yield from arrow_csv.open_csv(
            source,
            read_options=arrow_csv.ReadOptions(use_threads=False, block_size=_CSV_BLOCK_BYTES),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=all_as_text,
        )


@contextmanager
def _open_csv(file: Path, *, complete_lines: bool) -> Iterator[Any]:
    """Open a CSV file as a stream of bytes, unpacked if it is a .gz.

    With `complete_lines`, the stream ends before a last line that has no line break.
    """
    if _is_gzip(file) or not complete_lines:
        compression = "gzip" if _is_gzip(file) else None
        with arrow.input_stream(str(file), compression=compression) as source:
            yield source
        return
    with open(file, "rb") as stream:
        yield arrow.PythonFile(_FirstBytes(stream, end_of_last_line(file)), mode="r")


class _FirstBytes(io.RawIOBase):
    """A stream that ends after the first bytes of another one."""

    def __init__(self, stream: BinaryIO, n_bytes: int) -> None:
        self._stream = stream
        self._n_left = n_bytes

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        wanted = self._n_left if size < 0 else min(size, self._n_left)
        content = self._stream.read(wanted)
        self._n_left -= len(content)
        return content


def end_of_last_line(file: Path) -> int:
    """Return the position in bytes just after the last line break of a CSV file.

    A line break between quotation marks is part of a cell and ends no line. So the file is cut at
    its quotation marks: pieces are in turn outside and inside of quotes.
    """
    end = 0  # after the last line break so far
    piece_start = 0
    is_quoted = False
    with open(file, "rb") as stream:
        while block := stream.read(_CSV_BLOCK_BYTES):
            for index, piece in enumerate(block.split(b'"')):
                is_after_quotation_mark = index > 0
                if is_after_quotation_mark:
                    piece_start += 1
                    is_quoted = not is_quoted
                last_break = max(piece.rfind(b"\n"), piece.rfind(b"\r"))
                if last_break >= 0 and not is_quoted:
                    end = piece_start + last_break + 1
                piece_start += len(piece)
    return end


def has_unfinished_line(path: Path) -> bool:
    """Say whether a CSV ends without a line break."""
    if table_format(path) != CSV or _is_gzip(path):
        return False
    return end_of_last_line(path) < path.stat().st_size


def _is_gzip(file: Path) -> bool:
    return file.name.lower().endswith(".gz")


def _empty_csv(file: Path) -> ValueError:
    return ValueError(f"{file} is empty; give a table with column names in its first line.")


# --- files that cannot be read --------------------------------------------------------------------


@contextmanager
def name_file_in_errors(path: Path) -> Iterator[None]:
    """Say in an error of the `with` block which file it is about: "sites/north.csv: ...".

    Only a ValueError is changed, and only if its message does not name the file already. A message
    may be a `Message`, which Python and the command line spell differently ("alpha=" or "--alpha");
    it stays one.
    """
    try:
        yield
    except ValueError as error:
        is_plain_value_error = type(error) is ValueError
        if not is_plain_value_error or path.name in str(error):
            raise
        message = error.args[0] if error.args else ""
        text = message.template if isinstance(message, Message) else str(message)
        raise ValueError(Message(f"{path}: {text}")) from error


@contextmanager
def _errors_explained(path: Path) -> Iterator[None]:
    """Turn an error of Arrow or Python about a file into a sentence that names the file."""
    try:
        yield
    except PermissionError as error:
        raise ValueError(f"{path} cannot be opened: permission denied.") from error
    except UnicodeError as error:
        raise _not_utf8(path) from error
    except (arrow.ArrowException, OSError, EOFError, csv.Error) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ValueError:
    """Make an error that names the file, from an error of a reader of Arrow or Python."""
    problem = " ".join(str(error).split()).rstrip(".")[:_LONGEST_ERROR]
    if "invalid UTF8" in problem:
        return _not_utf8(path)
    if "Empty CSV" in problem:
        return _empty_csv(path)

    # Arrow counts the line with the names as a row
    problem = re.sub(r"\bRow #(\d+)", lambda match: f"row {int(match[1]) - 1}", problem)
    return ValueError(
        f"{path} cannot be read as a {table_format(path)} table: {problem}. Repair the file, or "
        "write it again."
    )


def _not_utf8(path: Path) -> ValueError:
    """Make the error about a file that is not UTF-8, with a guess at its encoding."""
    open_file = gzip.open if _is_gzip(path) else open
    with open_file(path, "rb") as stream:
        start = stream.read(2)
    if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        guess = "it looks like UTF-16"
    else:
        guess = "perhaps in Windows-1252 or Latin-1"
    return ValueError(f"{path} is not written in UTF-8 ({guess}); save it again as UTF-8.")
