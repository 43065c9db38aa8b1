"""What the cells of an Arrow column are: numbers, dates or text.

Columns of a CSV are read as text. They become numbers if all cells are numbers and none is a code: ``007`` and ``+49`` would
lose a character as numbers, so such a column stays text. Words such as ``NA`` are missing values among numbers; in a column
of text only an empty cell is missing, since ``NA`` may be Namibia.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from dco.cli.arrow import arrow, compute, types
from dco.foundations.arrays import AnyArray, first_rounded

# missing, among numbers; the spellings are those that Arrow and pandas take for missing
_MISSING_WORDS = ("", "#N/A", "#N/A N/A", "#NA", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null")
_ISO_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?$"
_ZONE = r"(Z|[+-][0-9]{2}:?[0-9]{2})$"
_ISO_TIME_IN_ZONE = _ISO_DATE.removesuffix("?$") + _ZONE  # a zone belongs to a time of day
_MOST = 0.9  # of the cells
_MONEY = r"(€|\$|£|¥|EUR|USD|GBP|CHF|%)?"


def kind_of(column: Any, name: str, path: Path, decimal: str) -> str:
    """number, date or text; a column of another type is an error."""
    kind = column.type
    if types.is_dictionary(kind) or types.is_boolean(kind):
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
        f"{path}: the column {name!r} holds {kind}, which no model here can use; leave it out with --drop {name!r}, or "
        "convert it to numbers or text."
    )


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text."""
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_date(kind: Any) -> bool:
    """Whether an Arrow type is a date, with or without the time of day."""
    return bool(types.is_timestamp(kind) or types.is_date(kind))


def numbers(column: Any, name: str, *, path: Path, first_row: int = 0, decimal: str = ".") -> AnyArray:
    """A column as float64; a cell that is not a finite number is an error that names it."""
    values = as_float(column, decimal)
    if values is None:
        row, cell = first_text(column, decimal)
        other, sign = (",", "a comma") if decimal == "." else (".", "a point")
        turned = f"; if {sign} is the decimal sign, use --decimal {other}" if as_float(column, other) is not None else "."
        raise ValueError(
            f"{path}: the column {name!r} has {cell!r:.40} in row {first_row + row + 1}, where a number is expected; "
            f"correct the cell, or leave it empty if the value is missing{turned}"
        )
    if compute.any(compute.is_inf(values)).as_py():
        row = first_true(compute.is_inf(values))
        raise ValueError(
            f"{path}: the column {name!r} is infinite in row {first_row + row + 1}; write a finite number, or leave "
            "the cell empty if the value is missing."
        )
    return np.asarray(values.to_numpy(zero_copy_only=False))


def first_rounded_cell(column: Any, decimal: str = ".") -> int | None:
    """The first row whose number float64 would round (beyond 2**53); None if there is none."""
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
    """A column of dates, typed or as ISO text, in seconds since 1970; any other cell is an error that names it."""
    values = as_float(column) if is_date(column.type) or types.is_null(column.type) else _as_seconds(column)
    if values is None:
        cells = (with_gaps(column) if is_text(column.type) else column).to_pylist()
        row = next(row for row, cell in enumerate(cells) if cell is not None and not _is_iso_date(cell))
        raise ValueError(
            f"{path}: the column {name!r} has {str(column[row])!r:.40} in row {first_row + row + 1}, where the fit had "
            "dates; write dates as 2026-01-31, or leave the cell empty if the date is missing."
        )
    return np.asarray(values.to_numpy(zero_copy_only=False))


def as_texts(column: Any, fill: str | None = None) -> AnyArray:
    """A column as texts in an array of objects, `fill` where a cell is missing."""
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
    """Whether labels stay different as whole numbers: typed, spelled as whole numbers, or all of them with a .0."""
    if not is_text(column.type):
        return first_rounded_cell(column) is None
    spelt = r"^(0|-?[1-9][0-9]{0,14})"  # more digits than these do not fit into a float
    return _any_like(column, spelt + "$", every=True) or _any_like(column, spelt + r"\.0+$", every=True)


def first_code(column: Any) -> str:
    """The first cell that is a code."""
    return str(column[first_true(compute.match_substring_regex(column, r"^\s*(\+|[+-]?0[0-9])").fill_null(False))])


def first_text(column: Any, decimal: str) -> tuple[int, str]:
    """The first cell that is not a number, and its row."""
    if not is_text(column.type):
        return 0, str(column[0]) if len(column) else ""
    cells = with_gaps(column)
    row = int(np.argmax(~_like(cells, rf"^{_number(decimal)}$") & ~_like(cells, None)))
    return row, str(column[row])


def first_true(mask: Any) -> int:
    """The row of the first true cell."""
    return int(np.argmax(mask.to_numpy(zero_copy_only=False)))


def as_float(column: Any, decimal: str = ".") -> Any:
    """The column as float64, or None if a cell is not a number. Dates become seconds since 1970, durations seconds."""
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
    """Text in which every cell is an ISO date, as seconds since 1970; otherwise None."""
    if not is_text(column.type):
        return None
    cells = with_gaps(column)
    zoned = _any_like(cells, _ISO_TIME_IN_ZONE, every=True) and cells.null_count < len(cells)
    if not zoned and not _any_like(cells, _ISO_DATE, every=True):  # with and without a zone: not on one clock
        return None
    try:
        return as_float(compute.cast(cells, arrow.timestamp("us", "UTC") if zoned else arrow.timestamp("us")))
    except arrow.ArrowInvalid:  # not a day of the calendar
        return None


def _is_iso_date(cell: Any) -> bool:
    if not isinstance(cell, str) or not (re.match(_ISO_DATE, cell) or re.match(_ISO_TIME_IN_ZONE, cell)):
        return False
    try:
        datetime.fromisoformat(cell)
    except ValueError:  # the 30th of February
        return False
    return True


def with_gaps(column: Any) -> Any:
    """Text without blanks around it, and null where a word says that a value is missing."""
    trimmed = compute.utf8_trim_whitespace(column)
    missing = compute.is_in(trimmed, value_set=arrow.array(_MISSING_WORDS, trimmed.type))
    return compute.if_else(missing, arrow.scalar(None, trimmed.type), trimmed)


def _with_points(column: Any, decimal: str) -> Any:
    """Text with decimal points; if the sign is a comma, a cell with a point is not a number."""
    if decimal == ".":
        return column
    return compute.replace_substring(compute.replace_substring(column, ".", "?"), decimal, ".")


def _holds_codes(column: Any) -> bool:
    """Whether a cell is a whole number that begins with 0, or with + in a column without a minus."""
    if _any_like(column, r"^[+-]?0[0-9]+$"):
        return True
    return _any_like(column, r"^\+[0-9]+$") and not _any_like(column, r"^-")


def _any_like(column: Any, pattern: str, *, every: bool = False) -> bool:
    """Whether any cell, or every one, matches without the blanks around it. Missing cells do not count."""
    matches = compute.match_substring_regex(compute.utf8_trim_whitespace(column), pattern)
    return bool((compute.all if every else compute.any)(matches, min_count=0).as_py())


# --- text that looks like numbers -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """Why a column of text looks like numbers: "cells" (some are not), "decimal" or "signs"; and the words for it."""

    kind: str
    words: str


def _number(decimal: str) -> str:
    """What Arrow reads as a number, with this decimal sign."""
    sign = re.escape(decimal)
    return rf"[+-]?(([0-9]+({sign}[0-9]*)?|{sign}[0-9]+)([eE][+-]?[0-9]+)?|(?i:inf|infinity|nan))"


def _grouped(decimal: str) -> str:
    """A number with separated thousands: 1,549.34 or 1 549.34."""
    thousands = {".": "[,' ’\u00a0]", ",": "[.' ’\u00a0]"}[decimal]
    return rf"[+-]?[0-9]{{1,3}}({thousands}[0-9]{{3}})+({re.escape(decimal)}[0-9]+)?"


def look_of(column: Any, decimal: str) -> Look | None:
    """How a column of text looks like numbers, if at least nine of ten cells do."""
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
            f"has numbers in {np.count_nonzero(plain):,} of {count:,} cells, and {wrong}; correct such cells, or leave them "
            "empty if the value is missing",
        )
    if most(plain | turned) and np.any(turned & ~plain & ~apart):
        written, advice = ("commas", "use --decimal ,") if decimal == "." else ("points", "leave out --decimal ,")
        example = shown(turned & ~plain & ~apart)
        return Look("decimal", f"looks like numbers with decimal {written} ({example}); {advice} to read them as numbers")
    if most(signs):
        return Look("signs", f"looks like numbers with other signs ({shown(signs & ~plain)}); write plain numbers")
    return None


def _like(column: Any, pattern: str | None) -> AnyArray:
    """Which cells match; missing ones do not. Without a pattern: which cells are missing."""
    found = column.is_null() if pattern is None else compute.match_substring_regex(column, pattern).fill_null(False)
    return np.asarray(found.to_numpy(zero_copy_only=False))
