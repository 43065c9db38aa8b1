"""Tables from files: CSV, Parquet and Feather, at once or in batches, with the same cells whichever way they come.

Every table goes through Arrow. Columns of a CSV are read as text and become numbers if all their cells are numbers and none
is a code: ``007`` and ``+49`` would lose a sign as numbers, so their column stays as it is written. Words such as ``NA`` are
missing among numbers; in a column of text only an empty cell is, since ``NA`` may be Namibia. What a model needs to know of
its columns is its `Layout`, which travels with it.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from dco.arrays import AnyArray
from dco.display import counted
from dco.extras import require
from dco.groups import MISSING

_CSV, _PARQUET, _FEATHER = (".csv", ".tsv", ".csv.gz", ".tsv.gz"), (".parquet", ".pq"), (".feather", ".arrow")
_HEAD = 2**20  # characters of a CSV in which its column names must end
_BLOCK = 4 * 2**20  # bytes of a CSV at a time
# missing, among numbers; the spellings are those that Arrow and pandas take for missing
_MISSING_WORDS = ("", "#N/A", "#N/A N/A", "#NA", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null")
_MOST_KEPT = 1000  # categories of a column that travel with the model
_EXAMPLES = 3
_FEW_LABELS = 20  # whole numbers with more values than this are quantities, not classes


@dataclass(frozen=True)
class Layout:
    """The columns of a table by what they are for; it travels with the model."""

    target: str | None
    task: str
    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    order: tuple[str, ...]
    condition: str | None = None
    groups: str | None = None
    key: str | None = None
    dropped: tuple[str, ...] = ()
    decimal: str = "."
    dates: tuple[str, ...] | None = None  # those of the numbers that are dates; None: not known
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the values that the fit saw, unless too many

    def to_plain(self) -> dict[str, Any]:
        """Lists and texts only, so that it can be stored in a model file."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return plain | {"categories": {name: list(values) for name, values in self.categories.items()}}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Layout:
        """The inverse of `to_plain`."""
        values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
        values["categories"] = {name: tuple(kept) for name, kept in values.get("categories", {}).items()}
        return cls(**values)

    @property
    def known(self) -> set[str]:
        """Every column that the model has an opinion about."""
        named = {self.target, self.groups, self.key} - {None}
        return {*self.order, *self.dropped, *(name for name in named if name is not None)}


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
    """The Parquet files of a folder, in the order of their names; hidden files and those that begin with _ are left out."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.name.lower().endswith(_PARQUET) and path.is_file() and not path.name.startswith((".", "_"))
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
    twice = sorted({name for name in named if named.count(name) > 1})
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
            ordered = batch.select(list(columns))
            for start in range(0, ordered.num_rows, rows):
                yield ordered.slice(start, rows)


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


# --- cells --------------------------------------------------------------------------------------------------------


def make_layout(
    table: Any,
    *,
    path: Path,
    target: str,
    task: str | None,
    condition: str | None = None,
    groups: str | None = None,
    key: str | None = None,
    drop: Iterable[str] = (),
    decimal: str = ".",
) -> tuple[Layout, str]:
    """What each column is for, and a sentence that says which task was found and why.

    Columns of text that look like numbers are told in warnings. `decimal` is the sign before the decimals, "." or ",".
    """
    dropped = tuple(drop)
    for name, option in ((target, "--target"), (condition, "--condition-on"), (groups, "--groups"), (key, "--key")):
        if name is not None:
            need_column(table.column_names, name, path=path, option=option)
    for name in dropped:
        need_column(table.column_names, name, path=path, option="--drop")
    if condition is not None and condition in (groups, key, *dropped):
        raise ValueError(
            f"--condition-on {condition} must be the target or a column that the models may use; it has another role."
        )
    left_out = {target, groups, key, *dropped}
    order = tuple(name for name in table.column_names if name not in left_out)
    if not order:
        raise ValueError(f"{path} has no column left to predict {target!r} from; give a table with features.")
    kinds = {name: _kind(table.column(name), name, path, decimal) for name in order}
    task, why = _task(table.column(target), target, path, task, decimal)
    if condition == target and task == "regression":
        raise ValueError(
            f"--condition-on {target} names the target, which gives each class its own threshold, and {target!r} is a "
            "quantity here; name a feature, or say --task classification."
        )
    if condition == "label" != target:
        raise ValueError('--condition-on label is kept for the classes of the target; give the column "label" another name.')
    layout = Layout(
        target=target,
        task=task,
        numbers=tuple(name for name in order if kinds[name] != "text"),
        texts=tuple(name for name in order if kinds[name] == "text"),
        order=order,
        condition=condition,
        groups=groups,
        key=key,
        dropped=dropped,
        decimal=decimal,
        dates=tuple(name for name in order if kinds[name] == "date"),
    )
    _tell_lookalikes(table, layout)
    return layout, why


def with_categories(layout: Layout, X: Any) -> Layout:
    """The layout with the values of each column of text in X, the features of the fit."""
    found = {name: sorted(X[name].dropna().unique()) for name in layout.texts}
    return replace(layout, categories={name: tuple(seen) for name, seen in found.items() if len(seen) <= _MOST_KEPT})


def columns_by_kind(layout: Layout) -> dict[str, Any]:
    """How each feature is read; categories with the number of their values, which is None where they are too many."""
    dates = layout.dates or ()
    kept = {name: layout.categories.get(name) for name in layout.texts}
    return {
        "numbers": [name for name in layout.numbers if name not in dates],
        "dates": list(dates),
        "categories": {name: None if values is None else len(values) for name, values in kept.items()},
    }


def told_columns(layout: Layout) -> str:
    """The same in a sentence."""
    kinds = columns_by_kind(layout)
    kinds["categories"] = [f"{name} ({_how_many(count)})" for name, count in kinds["categories"].items()]
    sentence = "; ".join(f"{kind}: {_listed(names)}" for kind, names in kinds.items() if names)
    return f"{sentence[0].upper()}{sentence[1:]}."


def _how_many(count: int | None) -> str:
    if count is None:
        return f"more than {_MOST_KEPT:,} values"
    return "1 value" if count == 1 else f"{count:,} values"


class NewValues:
    """Cells of tables that hold categories which the fit never saw, counted by column."""

    def __init__(self) -> None:
        self.rows = 0
        self.cells: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def count(self, table: Any, layout: Layout) -> None:
        """Count the cells of a table; not of a column whose values have thresholds, since such rows get another note."""
        self.rows += table.num_rows
        for name, kept in layout.categories.items():
            if name != layout.condition and name in table.column_names:
                self._add(name, _unlike(table.column(name), kept))

    def add(self, other: NewValues) -> None:
        """What was counted elsewhere."""
        self.rows += other.rows
        for name, examples in other.examples.items():
            self._add(name, examples, other.cells[name])

    def _add(self, name: str, texts: list[str], count: int | None = None) -> None:
        if texts:
            self.cells[name] += len(texts) if count is None else count
            self.examples[name] = list(dict.fromkeys([*self.examples.get(name, []), *texts]))[:_EXAMPLES]

    def tell(self) -> None:
        """Warn once a column."""
        for name, count in self.cells.items():
            shown = ", ".join(f"{text!r:.40}" for text in self.examples[name])
            warnings.warn(
                f"The column {name!r}: {count:,} of {self.rows:,} cells hold values that the fit never saw, such as "
                f"{shown}.",
                UserWarning,
                stacklevel=2,
            )


def _unlike(column: Any, kept: Sequence[str]) -> list[str]:
    """The cells that are neither missing nor among these."""
    arrow, compute = require("pyarrow", extra="tables"), require("pyarrow.compute", extra="tables")
    if not _is_text(column.type):
        column = arrow.chunked_array([arrow.array(_texts(column), arrow.string())])
    known = compute.is_in(column, value_set=arrow.array(kept, column.type))
    return [str(text) for text in column.filter(compute.and_not(compute.is_valid(column), known)).to_pylist()]


def _listed(names: list[str], most: int = 12) -> str:
    shown = [" ".join(name.split()) for name in names[:most]]  # a name may hold line breaks
    return ", ".join(shown) + (f", ... ({len(names)} in all)" if len(names) > most else "")


def need_column(names: Sequence[str], name: str, *, path: Path, option: str) -> None:
    """The column is there, or a sentence lists what is."""
    if name in names:
        return
    from difflib import get_close_matches

    near = get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    raise ValueError(f"{path} has no column {name!r}, which {option} names{hint} Its columns are: {shown}.")


def features(table: Any, layout: Layout, *, path: Path, first_row: int = 0) -> Any:
    """The features as a pandas frame: numbers as float64 (NaN is missing), texts as str (None is missing)."""
    pandas = require("pandas", extra="tables")
    columns: dict[str, Any] = {}
    for name in layout.order:
        column = table.column(name)
        if name in layout.texts:
            if _is_date(column.type):
                raise ValueError(
                    f"{path}: the column {name!r} holds dates, and the fit read it as text; write it as the fit had it."
                )
            texts = _texts(column, fill=MISSING if name == layout.condition else None)
            columns[name] = pandas.Series(texts, dtype=object)  # pandas would choose by its version
        elif layout.dates is not None and name in layout.dates:
            columns[name] = _dates(column, name, path=path, first_row=first_row)
        elif layout.dates is not None and _is_date(column.type):
            raise ValueError(f"{path}: the column {name!r} holds dates, and the fit had numbers there; give numbers.")
        else:
            columns[name] = numbers(column, name, path=path, first_row=first_row, decimal=layout.decimal)
    return pandas.DataFrame(columns, copy=False)


def targets(table: Any, layout: Layout, *, path: Path, classes: AnyArray | None = None) -> AnyArray:
    """The target column: float64 for a regression, whole numbers or texts for classes. No cell may be missing."""
    assert layout.target is not None
    column = table.column(layout.target)
    if _is_text(column.type):
        missing = _with_gaps(column).is_null()  # a label called NA would be taken for a class
    else:
        missing = column.is_null(nan_is_null=True)
    count = int(np.count_nonzero(missing.to_numpy(zero_copy_only=False)))
    if count:
        row = _first(missing)
        raise ValueError(
            f"{path}: the target {layout.target!r} is missing in {counted(count, 'row')} (first: row {row + 1}); leave "
            "such rows out of the table."
        )
    if layout.task == "regression":
        return numbers(column, layout.target, path=path, decimal=layout.decimal)
    if classes is None:
        whole = _kind(column, layout.target, path, layout.decimal) == "number" and _whole_labels(column)
    else:
        whole = classes.dtype.kind in "iu" and _as_float(column, layout.decimal) is not None
    if whole:
        values = numbers(column, layout.target, path=path, decimal=layout.decimal)
        if np.all(values == np.floor(values)):
            return values.astype(np.int64)
    if classes is not None and classes.dtype.kind in "iu":
        raise ValueError(
            f"{path}: the target {layout.target!r} holds labels that are not whole numbers, unlike those that the model "
            f"knows ({', '.join(map(str, classes[:5]))}); give the labels in the form used for fitting."
        )
    return np.asarray([str(value) for value in _texts(column)])


def labels(table: Any, name: str) -> AnyArray:
    """A column as texts, one a row, for groups."""
    return np.asarray([str(value) for value in _texts(table.column(name), fill=MISSING)])


def numbers(column: Any, name: str, *, path: Path, first_row: int = 0, decimal: str = ".") -> AnyArray:
    """A column as float64; a cell that is no number, or infinite, is an error that names it."""
    arrow, compute = require("pyarrow", extra="tables"), require("pyarrow.compute", extra="tables")
    values = _as_float(column, decimal)
    if values is None:
        row, cell = _first_text(column, decimal)
        other, sign = (",", "a comma") if decimal == "." else (".", "a point")
        turned = f"; if decimals follow {sign}, say --decimal {other}" if _as_float(column, other) is not None else "."
        raise ValueError(
            f"{path}: the column {name!r} holds {cell!r:.40} in row {first_row + row + 1}, where a number is expected; mend "
            f"the cell, or leave it empty if the value is missing{turned}"
        )
    if compute.any(compute.is_inf(values)).as_py():
        row = _first(compute.is_inf(values))
        raise ValueError(
            f"{path}: the column {name!r} is infinite in row {first_row + row + 1}; write a finite number, or leave "
            "the cell empty if the value is missing."
        )
    assert values.type == arrow.float64()
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _dates(column: Any, name: str, *, path: Path, first_row: int) -> AnyArray:
    """A column of dates, as such or in ISO's form, in seconds since 1970; anything else is an error that names it."""
    types = require("pyarrow.types", extra="tables")
    values = _as_float(column) if _is_date(column.type) or types.is_null(column.type) else _as_seconds(column)
    if values is None:
        cells = (_with_gaps(column) if _is_text(column.type) else column).to_pylist()
        row = next(row for row, cell in enumerate(cells) if cell is not None and not _is_iso_date(cell))
        raise ValueError(
            f"{path}: the column {name!r} holds {str(column[row])!r:.40} in row {first_row + row + 1}, where the fit had "
            "dates; write dates as 2026-01-31, or leave the cell empty if the date is missing."
        )
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _is_iso_date(cell: Any) -> bool:
    if not isinstance(cell, str) or re.match(_ISO_DATE, cell) is None:
        return False
    try:
        datetime.fromisoformat(cell)
    except ValueError:  # the 30th of February
        return False
    return True


def _as_seconds(column: Any) -> Any:
    """Text in which every cell is a date in ISO's form, as seconds since 1970; otherwise None."""
    arrow, compute = require("pyarrow", extra="tables"), require("pyarrow.compute", extra="tables")
    if not _is_text(column.type):
        return None
    cells = _with_gaps(column)
    if not _any_like(cells, _ISO_DATE, every=True):
        return None
    try:
        return _as_float(compute.cast(cells, arrow.timestamp("us")))
    except arrow.ArrowInvalid:  # no day of the calendar
        return None


def _is_date(kind: Any) -> bool:
    types = require("pyarrow.types", extra="tables")
    return bool(types.is_timestamp(kind) or types.is_date(kind))


def _kind(column: Any, name: str, path: Path, decimal: str) -> str:
    """number, date or text; anything else cannot be used."""
    types = require("pyarrow.types", extra="tables")
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_dictionary(column.type) or types.is_boolean(kind):
        return "text"
    if _is_text(kind):
        if _as_float(column, decimal) is None:
            return "text" if _as_seconds(column) is None else "date"
        return "text" if _holds_codes(column) else "number"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind):
        return "number"
    if _is_date(kind):
        return "date"
    if types.is_duration(kind):
        return "number"
    raise ValueError(
        f"{path}: the column {name!r} holds {kind}, which no model here can use; leave it out with --drop {name!r}, or turn "
        "it into numbers or text."
    )


def _is_text(kind: Any) -> bool:
    types = require("pyarrow.types", extra="tables")
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _holds_codes(column: Any) -> bool:
    """Whether a cell is a whole number that begins with 0, or with + where no cell of the column has a minus."""
    if _any_like(column, r"^[+-]?0[0-9]+$"):
        return True
    return _any_like(column, r"^\+[0-9]+$") and not _any_like(column, r"^-")


def _whole_labels(column: Any) -> bool:
    """Whether labels written as text are the same labels as whole numbers: spelt as such, or all of them with a .0."""
    if not _is_text(column.type):
        return True
    spelt = r"^(0|-?[1-9][0-9]{0,14})"  # more digits than these do not fit into a float
    return _any_like(column, spelt + "$", every=True) or _any_like(column, spelt + r"\.0+$", every=True)


def _any_like(column: Any, pattern: str, *, every: bool = False) -> bool:
    """Whether any cell, or every one, matches once the blanks around it are gone. Missing cells do not count."""
    compute = require("pyarrow.compute", extra="tables")
    matches = compute.match_substring_regex(compute.utf8_trim_whitespace(column), pattern)
    return bool((compute.all if every else compute.any)(matches, min_count=0).as_py())


def _as_float(column: Any, decimal: str = ".") -> Any:
    """The column as float64, or None if a cell is no number. Dates become seconds since 1970."""
    arrow, compute = require("pyarrow", extra="tables"), require("pyarrow.compute", extra="tables")
    types = require("pyarrow.types", extra="tables")
    kind = column.type
    if types.is_boolean(kind) or types.is_dictionary(kind):
        return None
    try:
        if _is_date(kind):
            micro = compute.cast(column, arrow.timestamp("us"), safe=False).cast(arrow.int64())
            return compute.divide(micro.cast(arrow.float64(), safe=False), 1e6)
        if types.is_duration(kind):
            micro = compute.cast(column, arrow.duration("us"), safe=False).cast(arrow.int64())
            return compute.divide(micro.cast(arrow.float64(), safe=False), 1e6)
        if _is_text(kind):
            column = _with_points(_with_gaps(column), decimal)
        values = compute.cast(column, arrow.float64(), safe=False)
        return compute.if_else(compute.is_nan(values), arrow.scalar(None, arrow.float64()), values)
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
        return None


def _with_gaps(column: Any) -> Any:
    """Text without the blanks around it, and nothing where a word says that a value is missing."""
    arrow, compute = require("pyarrow", extra="tables"), require("pyarrow.compute", extra="tables")
    trimmed = compute.utf8_trim_whitespace(column)
    missing = compute.is_in(trimmed, value_set=arrow.array(_MISSING_WORDS, trimmed.type))
    return compute.if_else(missing, arrow.scalar(None, trimmed.type), trimmed)


def _with_points(column: Any, decimal: str) -> Any:
    """Text in which decimals follow a point; where they follow a comma, a cell with a point is no number."""
    if decimal == ".":
        return column
    compute = require("pyarrow.compute", extra="tables")
    return compute.replace_substring(compute.replace_substring(column, ".", "?"), decimal, ".")


def _texts(column: Any, fill: str | None = None) -> AnyArray:
    arrow, types = require("pyarrow", extra="tables"), require("pyarrow.types", extra="tables")
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if isinstance(column, arrow.ChunkedArray):
        column = column.combine_chunks()
    found = np.empty(len(column), dtype=object)
    found[:] = [fill if value is None else _text(value) for value in column.to_pylist()]
    return found


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _task(column: Any, target: str, path: Path, task: str | None, decimal: str) -> tuple[str, str]:
    kind = _kind(column, target, path, decimal)
    distinct = len(column.unique())
    is_number = _as_float(column, decimal) is not None
    if task == "regression" and kind == "text" and not is_number:
        row, cell = _first_text(column, decimal)
        raise ValueError(
            f"{path}: the target {target!r} holds {cell!r:.40} in row {row + 1}, and a regression needs numbers; mend the "
            "cell, or say --task classification."
        )
    if kind == "date" and task != "classification":
        raise ValueError(
            f"{path}: the target {target!r} holds dates; turn them into numbers, such as days since one of them, or say "
            "--task classification."
        )
    if task is not None:
        return task, f"Task: {task}, as asked for."
    if kind == "text" and is_number:
        return "classification", (
            f"Task: classification, because the target {target!r} holds codes such as {_first_code(column)} ({distinct} "
            "values); --task regression treats them as numbers."
        )
    if kind == "text":
        look = _look(column, decimal)
        if look is not None and (look.kind == "decimal" or distinct > _FEW_LABELS):
            raise ValueError(f"{path}: the target {target!r} {look.told}, or say --task classification if these are labels.")
        return "classification", f"Task: classification, because the target {target!r} is text with {distinct} values."
    values = numbers(column, target, path=path, decimal=decimal)
    values = values[~np.isnan(values)]
    if np.all(values == np.floor(values)) and distinct <= _FEW_LABELS:
        return "classification", (
            f"Task: classification, because the target {target!r} has {distinct} different whole numbers only; --task "
            "regression treats it as a quantity."
        )
    return "regression", (
        f"Task: regression, because the target {target!r} is a number with {distinct} different values; --task "
        "classification treats them as labels."
    )


def _first_code(column: Any) -> str:
    compute = require("pyarrow.compute", extra="tables")
    return str(column[_first(compute.match_substring_regex(column, r"^\s*(\+|[+-]?0[0-9])").fill_null(False))])


def _first(mask: Any) -> int:
    """The place of the first true cell."""
    return int(np.argmax(mask.to_numpy(zero_copy_only=False)))


def _first_text(column: Any, decimal: str = ".") -> tuple[int, str]:
    """The first cell that is not a number, with its row."""
    if not _is_text(column.type):
        return 0, str(column[0]) if len(column) else ""
    cells = _with_gaps(column)
    row = int(np.argmax(~_like(cells, rf"^{_number(decimal)}$") & ~_like(cells, None)))
    return row, str(column[row])


# --- text that looks like numbers -----------------------------------------------------------------------------------

_ISO_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?$"
_MOST = 0.9  # of the cells
_MONEY = r"(€|\$|£|¥|EUR|USD|GBP|CHF|%)?"


@dataclass(frozen=True)
class _Look:
    """Why a column of text looks like numbers: "cells" (some are none), "decimal" or "signs"; and what there is to say."""

    kind: str
    told: str


def _number(decimal: str) -> str:
    """What Arrow takes for a number, with this sign before the decimals."""
    sign = re.escape(decimal)
    return rf"[+-]?(([0-9]+({sign}[0-9]*)?|{sign}[0-9]+)([eE][+-]?[0-9]+)?|(?i:inf|infinity|nan))"


def _grouped(decimal: str) -> str:
    """A number with thousands apart: 1,549.34 or 1 549.34."""
    thousands = {".": "[,' ’\u00a0]", ",": "[.' ’\u00a0]"}[decimal]
    return rf"[+-]?[0-9]{{1,3}}({thousands}[0-9]{{3}})+({re.escape(decimal)}[0-9]+)?"


def _look(column: Any, decimal: str) -> _Look | None:
    """How a column of text looks like numbers, if nine of ten cells do."""
    if not _is_text(column.type) or _as_float(column, decimal) is not None:
        return None
    cells = _with_gaps(column)
    count = len(cells) - cells.null_count
    other = "," if decimal == "." else "."
    plain = _like(cells, rf"^{_number(decimal)}$")
    turned = _like(cells, rf"^({_number(other)}|{_grouped(other)})$")
    apart = _like(cells, rf"^{_grouped(decimal)}$")
    signs = _like(cells, rf"^{_MONEY} *({_number('.')}|{_number(',')}|{_grouped('.')}|{_grouped(',')}) *{_MONEY}$")

    def most(mask: AnyArray) -> bool:
        return bool(np.count_nonzero(mask) >= _MOST * count)

    def shown(mask: AnyArray) -> str:
        row = int(np.argmax(mask))
        return f"{str(column[row])!r:.40} in row {row + 1}"

    if most(plain):
        wrong = shown(~plain & ~_like(cells, None))
        return _Look(
            "cells",
            f"holds numbers in {np.count_nonzero(plain):,} of {count:,} cells, and {wrong}; mend such cells, or leave them "
            "empty if the value is missing",
        )
    if most(plain | turned) and np.any(turned & ~plain & ~apart):
        written, advice = ("commas", "say --decimal ,") if decimal == "." else ("points", "leave out --decimal ,")
        example = shown(turned & ~plain & ~apart)
        return _Look("decimal", f"looks like numbers with decimal {written} ({example}); {advice} to read them so")
    if most(signs):
        return _Look("signs", f"looks like numbers with signs in them ({shown(signs & ~plain)}); write plain numbers")
    return None


def _tell_lookalikes(table: Any, layout: Layout) -> None:
    """Warn about columns that are read as categories and look like numbers."""
    for name in layout.texts:
        look = _look(table.column(name), layout.decimal)
        if look is not None:
            warnings.warn(f"The column {name!r} is read as categories, but {look.told}.", UserWarning, stacklevel=3)


def _like(column: Any, pattern: str | None) -> AnyArray:
    """Which cells match; missing ones do not. Without a pattern: which are missing."""
    compute = require("pyarrow.compute", extra="tables")
    found = column.is_null() if pattern is None else compute.match_substring_regex(column, pattern).fill_null(False)
    return np.asarray(found.to_numpy(zero_copy_only=False))


# --- files --------------------------------------------------------------------------------------------------------


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


def checked_columns(path: Path, layout: Layout, *, ignore_new: bool, also: Iterable[str] = ()) -> list[str]:
    """The columns to read for a fitted model: all features are there, and nothing that the model never saw."""
    names = column_names(path)
    missing = [name for name in layout.order if name not in names]
    if missing:
        shown = ", ".join(repr(name) for name in missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise ValueError(f"{path} lacks {len(missing)} of the columns that the model was fitted on: {shown}; add them.")
    new = [name for name in names if name not in layout.known and name not in also]
    if new and not ignore_new:
        shown = ", ".join(repr(name) for name in new[:5]) + (", ..." if len(new) > 5 else "")
        raise ValueError(f"{path} has columns that the model was not fitted on: {shown}; remove them, or say --ignore-new.")
    return [*layout.order, *(name for name in dict.fromkeys(also) if name not in layout.order)]
