"""What the cells of an Arrow column are: numbers, dates or text.

Columns of a CSV are read as text. They become numbers if all cells are numbers and none is a code:
``007`` and ``+49`` would lose a character as numbers, so such a column stays text. Words such as
``NA`` are missing values among numbers; in a column of text only an empty cell is missing, since
``NA`` may be Namibia.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from dco.cli.arrow import arrow, compute, types
from dco.cli.dates import FORMS, ISO, forms_of, look_like_dates, read_dates
from dco.foundations.arrays import AnyArray, first_rounded

# missing, among numbers; the spellings are those that Arrow and pandas take for missing
_MISSING_WORDS = (
    "",
    "#N/A",
    "#N/A N/A",
    "#NA",
    "<NA>",
    "N/A",
    "NA",
    "NULL",
    "NaN",
    "None",
    "n/a",
    "nan",
    "null",
)
_OTHER = {".": ",", ",": "."}  # decimal signs
# what Arrow reads as a number, by the decimal sign; and numbers with separated thousands, such as
# 1,549.34 or 1 549.34
_NUMBER = {
    sign: (
        rf"[+-]?(([0-9]+([{sign}][0-9]*)?|[{sign}][0-9]+)([eE][+-]?[0-9]+)?"
        r"|(?i:inf|infinity|nan))"
    )
    for sign in _OTHER
}
_GROUPED = {
    sign: f"[+-]?[0-9]{{1,3}}([{other}' ’\u00a0][0-9]{{3}})+([{sign}][0-9]+)?"
    for sign, other in _OTHER.items()
}
_MONEY = r"(€|\$|£|¥|EUR|USD|GBP|CHF|%)?"
_MOST = 0.9  # of the cells


def kind_of(column: Any, name: str, path: Path, decimal: str) -> str:
    """number, date or text; a column of another type is an error."""
    kind = column.type
    if types.is_dictionary(kind) or types.is_boolean(kind):
        return "text"
    if is_date(kind):
        return "date"
    if is_text(kind):
        if as_float(column, decimal) is None:
            return "date" if forms_of(with_gaps(column)) else "text"
        return "text" if _holds_codes(column) else "number"
    if as_float(column) is None:
        raise ValueError(
            f"{path}: the column {name!r} holds {kind}, which no model here can use; leave it out "
            f"with --drop {name!r}, or "
            "convert it to numbers or text."
        )
    return "number"


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text."""
    return bool(types.is_string(kind) or types.is_large_string(kind))


def is_date(kind: Any) -> bool:
    """Whether an Arrow type is a date, with or without the time of day."""
    return bool(types.is_timestamp(kind) or types.is_date(kind))


def numbers(
    column: Any, name: str, *, path: Path, first_row: int = 0, decimal: str = "."
) -> AnyArray:
    """A column as float64; a cell that is not a finite number is an error that names it."""
    values = as_float(column, decimal)
    if values is None:
        wrong, other = (
            first_unread(column, lambda part: as_float(part, decimal), first_row),
            _OTHER[decimal],
        )
        sign = {",": "a comma", ".": "a point"}[other]
        turned = (
            f"; if {sign} is the decimal sign, use --decimal {other}"
            if as_float(column, other) is not None
            else "."
        )
        raise ValueError(
            f"{path}: the column {name!r} has {wrong}, where a number is expected; correct the "
            f"cell, or leave it empty if "
            f"the value is missing{turned}"
        )
    found = np.asarray(values)
    if np.any(infinite := np.isinf(found)):
        raise ValueError(
            f"{path}: the column {name!r} is infinite in row "
            f"{first_row + int(np.argmax(infinite)) + 1}; write a finite "
            "number, or leave the cell empty if the value is missing."
        )
    return found


def seconds(column: Any, name: str, *, form: str, path: Path, first_row: int) -> AnyArray:
    """Read a column of dates as seconds since 1970: typed, as ISO text or in the form of the fit.

    Any other cell is an error that names it.
    """
    values = as_seconds(column, form)
    if values is None:
        unread = first_unread(column, lambda part: as_seconds(part, form), first_row)
        of_the_fit = "" if form == ISO else f" or as {FORMS[form].example} ({form})"
        raise ValueError(
            f"{path}: the column {name!r} has {unread}, where the fit had dates; write dates as "
            f"2026-01-31{of_the_fit} (all or no times with a zone), or leave the cell empty if "
            "the date is missing."
        )
    return values


def first_unread(column: Any, read: Callable[[Any], Any], first_row: int = 0) -> str:
    """The first cell, and its row, for which `read` gives None, as it does for every part that has
    the cell.
    """
    row = bisect_left(range(len(column)), True, key=lambda row: read(column[: row + 1]) is None)
    return f"{str(column[row])!r:.40} in row {first_row + row + 1}"


def first_rounded_cell(column: Any, decimal: str = ".") -> int | None:
    """The first row whose number float64 would round (beyond 2**53); None if there is none."""
    if is_text(column.type):
        cells = _with_points(with_gaps(column), decimal)
        rows = np.flatnonzero(_like(cells, r"^[+-]?[0-9]{16,}(\.[0-9]*)?$"))
        values = np.array([Decimal(cells[row].as_py()) for row in rows.tolist()], dtype=object)
    elif types.is_integer(column.type) or types.is_decimal(column.type):
        rows, values = np.flatnonzero(column.is_valid()), column.drop_null().to_numpy()
    else:
        return None
    place = first_rounded(values)
    return None if place is None else int(rows[place])


def as_texts(column: Any, fill: str | None = None) -> AnyArray:
    """A column as texts in an array of objects, `fill` where a cell is missing."""
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return np.array(
        [fill if value is None else _text(value) for value in column.to_pylist()], dtype=object
    )


def _text(value: Any) -> str:
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def are_whole_labels(column: Any) -> bool:
    """Whether labels stay different as whole numbers: typed, spelled as whole numbers, or all of
    them with a .0.
    """
    if not is_text(column.type):
        return first_rounded_cell(column) is None
    spelt = r"^(0|-?[1-9][0-9]{0,14})"  # more digits than these do not fit into a float
    return any(_like(column.drop_null(), spelt + end).all() for end in ("$", r"\.0+$"))


def first_code(column: Any) -> str:
    """The first cell that is a code."""
    return str(column[int(np.argmax(_like(column, r"^(\+|[+-]?0[0-9])")))])


def as_float(column: Any, decimal: str = ".") -> Any:
    """The column as float64, or None if a cell is not a number. Dates become seconds since 1970,
    durations seconds.
    """
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
        return compute.cast(column, arrow.float64(), safe=False)
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
        return None


def as_seconds(column: Any, form: str = ISO) -> AnyArray | None:
    """Read dates, typed or as text, as seconds since 1970; None if a cell is no date."""
    if is_date(column.type) or types.is_null(column.type):
        return np.asarray(as_float(column))
    if not is_text(column.type):
        return None
    return read_dates(with_gaps(column), form)


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
    """Whether a cell is a whole number that begins with 0, or with + in a column without a
    minus.
    """
    zeros, plus, minus = (
        _like(column, pattern).any() for pattern in (r"^[+-]?0[0-9]+$", r"^\+[0-9]+$", "^-")
    )
    return bool(zeros or (plus and not minus))


def _like(column: Any, pattern: str) -> AnyArray:
    """Which cells match without the blanks around them; missing ones do not."""
    return np.asarray(
        compute.match_substring_regex(compute.utf8_trim_whitespace(column), pattern).fill_null(
            False
        )
    )


def look_of(column: Any, decimal: str) -> tuple[str, str] | None:
    """How text looks like numbers or dates, if nine of ten cells do: "cells" (some do not),
    "decimal", "signs" or "dates"; and the words.
    """
    if not is_text(column.type) or as_float(column, decimal) is not None:
        return None
    cells, other = with_gaps(column), _OTHER[decimal]
    there = np.asarray(cells.is_valid())
    number, turned_number = _NUMBER[decimal], f"{_NUMBER[other]}|{_GROUPED[other]}"
    money = f"{_MONEY} *({number}|{_GROUPED[decimal]}|{turned_number}) *{_MONEY}"
    plain, turned, apart, signs = (
        _like(cells, f"^({pattern})$")
        for pattern in (number, turned_number, _GROUPED[decimal], money)
    )

    def most(mask: AnyArray) -> bool:
        return bool(np.count_nonzero(mask) >= _MOST * np.count_nonzero(there))

    def shown(mask: AnyArray) -> str:
        row = int(np.argmax(mask))
        return f"{str(column[row])!r:.40} in row {row + 1}"

    if most(plain):
        counts = f"{np.count_nonzero(plain):,} of {np.count_nonzero(there):,}"
        advice = "correct such cells, or leave them empty if the value is missing"
        return "cells", f"has numbers in {counts} cells, and {shown(there & ~plain)}; {advice}"
    if most(plain | turned) and np.any(swapped := turned & ~plain & ~apart):
        written, advice = (
            ("commas", "use --decimal ,") if decimal == "." else ("points", "leave out --decimal ,")
        )
        words = (
            f"looks like numbers with decimal {written} ({shown(swapped)}); {advice} to read "
            f"them as numbers"
        )
        return "decimal", words
    if most(signs):
        return (
            "signs",
            f"looks like numbers with other signs ({shown(signs & ~plain)}); write plain numbers",
        )
    dates = look_like_dates(cells)
    if np.any(dates) and most(dates) and not forms_of(cells):
        words = (
            f"looks like dates ({shown(dates)}) that do not all have one form with four digits for "
            "the year; write them all as 2026-01-31 to read them as dates"
        )
        return "dates", words
    return None
