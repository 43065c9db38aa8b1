"""What the cells of an Arrow column hold: numbers, dates or text.

Columns of a CSV are read as text and become numbers if all their cells are numbers and none is a code: ``007`` and ``+49``
would lose a sign as numbers, so their column stays as it is written. Words such as ``NA`` are missing among numbers; in a
column of text only an empty cell is, since ``NA`` may be Namibia.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from dco.arrays import AnyArray, first_rounded
from dco.extras import require

# missing, among numbers; the spellings are those that Arrow and pandas take for missing
_MISSING_WORDS = ("", "#N/A", "#N/A N/A", "#NA", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null")
_ISO_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?$"
_MOST = 0.9  # of the cells
_MONEY = r"(€|\$|£|¥|EUR|USD|GBP|CHF|%)?"


def kind_of(column: Any, name: str, path: Path, decimal: str) -> str:
    """number, date or text, of the cells of a column; anything else cannot be used."""
    types = require("pyarrow.types", extra="tables")
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_dictionary(column.type) or types.is_boolean(kind):
        return "text"
    if is_text(kind):
        if as_float(column, decimal) is None:
            return "text" if _as_seconds(column) is None else "date"
        return "text" if _holds_codes(column) else "number"
    if is_date(kind):
        return "date"
    numeric = (types.is_integer, types.is_floating, types.is_decimal, types.is_duration, types.is_null)
    if any(is_kind(kind) for is_kind in numeric):
        return "number"
    raise ValueError(
        f"{path}: the column {name!r} holds {kind}, which no model here can use; leave it out with --drop {name!r}, or turn "
        "it into numbers or text."
    )


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text."""
    types = require("pyarrow.types", extra="tables")
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_date(kind: Any) -> bool:
    """Whether an Arrow type is a date, with or without the time of day."""
    types = require("pyarrow.types", extra="tables")
    return bool(types.is_timestamp(kind) or types.is_date(kind))


def numbers(column: Any, name: str, *, path: Path, first_row: int = 0, decimal: str = ".") -> AnyArray:
    """A column as float64; a cell that is no number, or infinite, is an error that names it."""
    arrow, compute = require("pyarrow", extra="tables"), require("pyarrow.compute", extra="tables")
    values = as_float(column, decimal)
    if values is None:
        row, cell = first_text(column, decimal)
        other, sign = (",", "a comma") if decimal == "." else (".", "a point")
        turned = f"; if decimals follow {sign}, say --decimal {other}" if as_float(column, other) is not None else "."
        raise ValueError(
            f"{path}: the column {name!r} holds {cell!r:.40} in row {first_row + row + 1}, where a number is expected; mend "
            f"the cell, or leave it empty if the value is missing{turned}"
        )
    if compute.any(compute.is_inf(values)).as_py():
        row = first_true(compute.is_inf(values))
        raise ValueError(
            f"{path}: the column {name!r} is infinite in row {first_row + row + 1}; write a finite number, or leave "
            "the cell empty if the value is missing."
        )
    assert values.type == arrow.float64()
    return np.asarray(values.to_numpy(zero_copy_only=False))


def first_rounded_cell(column: Any, decimal: str = ".") -> int | None:
    """The first row whose number is beyond 2**53 and that float64 would round; None if there is none."""
    types = require("pyarrow.types", extra="tables")
    if is_text(column.type):
        cells = _with_points(with_gaps(column), decimal)
        rows = np.flatnonzero(_like(cells, r"^[+-]?[0-9]{16,}(\.[0-9]*)?$"))
        values = np.array([Decimal(cells[row].as_py()) for row in rows.tolist()], dtype=object)
    elif types.is_integer(column.type) or types.is_decimal(column.type):
        rows, values = np.flatnonzero(~_like(column, None)), column.drop_null().to_numpy()
    else:
        return None
    place = first_rounded(values)
    return None if place is None else int(rows[place])


def seconds(column: Any, name: str, *, path: Path, first_row: int) -> AnyArray:
    """A column of dates, as such or in ISO's form, in seconds since 1970; anything else is an error that names it."""
    types = require("pyarrow.types", extra="tables")
    values = as_float(column) if is_date(column.type) or types.is_null(column.type) else _as_seconds(column)
    if values is None:
        cells = (with_gaps(column) if is_text(column.type) else column).to_pylist()
        row = next(row for row, cell in enumerate(cells) if cell is not None and not _is_iso_date(cell))
        raise ValueError(
            f"{path}: the column {name!r} holds {str(column[row])!r:.40} in row {first_row + row + 1}, where the fit had "
            "dates; write dates as 2026-01-31, or leave the cell empty if the date is missing."
        )
    return np.asarray(values.to_numpy(zero_copy_only=False))


def as_texts(column: Any, fill: str | None = None) -> AnyArray:
    """A column as texts in an array of objects, `fill` where a cell is missing."""
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


def are_whole_labels(column: Any) -> bool:
    """Whether labels are the same labels as whole numbers: as text, spelt as such, or all of them with a .0."""
    if not is_text(column.type):
        return first_rounded_cell(column) is None
    spelt = r"^(0|-?[1-9][0-9]{0,14})"  # more digits than these do not fit into a float
    return _any_like(column, spelt + "$", every=True) or _any_like(column, spelt + r"\.0+$", every=True)


def first_code(column: Any) -> str:
    """The first cell that is a code."""
    compute = require("pyarrow.compute", extra="tables")
    return str(column[first_true(compute.match_substring_regex(column, r"^\s*(\+|[+-]?0[0-9])").fill_null(False))])


def first_text(column: Any, decimal: str) -> tuple[int, str]:
    """The first cell that is not a number, with its row."""
    if not is_text(column.type):
        return 0, str(column[0]) if len(column) else ""
    cells = with_gaps(column)
    row = int(np.argmax(~_like(cells, rf"^{_number(decimal)}$") & ~_like(cells, None)))
    return row, str(column[row])


def first_true(mask: Any) -> int:
    """The place of the first true cell."""
    return int(np.argmax(mask.to_numpy(zero_copy_only=False)))


def as_float(column: Any, decimal: str = ".") -> Any:
    """The column as float64, or None if a cell is no number. Dates become seconds since 1970, durations seconds."""
    arrow, compute = require("pyarrow", extra="tables"), require("pyarrow.compute", extra="tables")
    types = require("pyarrow.types", extra="tables")
    kind = column.type
    if types.is_boolean(kind) or types.is_dictionary(kind):
        return None
    try:
        if is_date(kind) or types.is_duration(kind):
            unit = arrow.timestamp("us") if is_date(kind) else arrow.duration("us")
            micro = compute.cast(column, unit, safe=False).cast(arrow.int64())
            return compute.divide(micro.cast(arrow.float64(), safe=False), 1e6)
        if is_text(kind):
            column = _with_points(with_gaps(column), decimal)
        values = compute.cast(column, arrow.float64(), safe=False)
        return compute.if_else(compute.is_nan(values), arrow.scalar(None, arrow.float64()), values)
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
        return None


def _as_seconds(column: Any) -> Any:
    """Text in which every cell is a date in ISO's form, as seconds since 1970; otherwise None."""
    arrow, compute = require("pyarrow", extra="tables"), require("pyarrow.compute", extra="tables")
    if not is_text(column.type):
        return None
    cells = with_gaps(column)
    if not _any_like(cells, _ISO_DATE, every=True):
        return None
    try:
        return as_float(compute.cast(cells, arrow.timestamp("us")))
    except arrow.ArrowInvalid:  # no day of the calendar
        return None


def _is_iso_date(cell: Any) -> bool:
    if not isinstance(cell, str) or re.match(_ISO_DATE, cell) is None:
        return False
    try:
        datetime.fromisoformat(cell)
    except ValueError:  # the 30th of February
        return False
    return True


def with_gaps(column: Any) -> Any:
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


def _holds_codes(column: Any) -> bool:
    """Whether a cell is a whole number that begins with 0, or with + where no cell of the column has a minus."""
    if _any_like(column, r"^[+-]?0[0-9]+$"):
        return True
    return _any_like(column, r"^\+[0-9]+$") and not _any_like(column, r"^-")


def _any_like(column: Any, pattern: str, *, every: bool = False) -> bool:
    """Whether any cell, or every one, matches once the blanks around it are gone. Missing cells do not count."""
    compute = require("pyarrow.compute", extra="tables")
    matches = compute.match_substring_regex(compute.utf8_trim_whitespace(column), pattern)
    return bool((compute.all if every else compute.any)(matches, min_count=0).as_py())


# --- text that looks like numbers -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
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


def look_of(column: Any, decimal: str) -> Look | None:
    """How a column of text looks like numbers, if nine of ten cells do."""
    if not is_text(column.type) or as_float(column, decimal) is not None:
        return None
    cells = with_gaps(column)
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
        return Look(
            "cells",
            f"holds numbers in {np.count_nonzero(plain):,} of {count:,} cells, and {wrong}; mend such cells, or leave them "
            "empty if the value is missing",
        )
    if most(plain | turned) and np.any(turned & ~plain & ~apart):
        written, advice = ("commas", "say --decimal ,") if decimal == "." else ("points", "leave out --decimal ,")
        example = shown(turned & ~plain & ~apart)
        return Look("decimal", f"looks like numbers with decimal {written} ({example}); {advice} to read them so")
    if most(signs):
        return Look("signs", f"looks like numbers with signs in them ({shown(signs & ~plain)}); write plain numbers")
    return None


def _like(column: Any, pattern: str | None) -> AnyArray:
    """Which cells match; missing ones do not. Without a pattern: which are missing."""
    compute = require("pyarrow.compute", extra="tables")
    found = column.is_null() if pattern is None else compute.match_substring_regex(column, pattern).fill_null(False)
    return np.asarray(found.to_numpy(zero_copy_only=False))
