"""Read the cells of an Arrow column as numbers, dates or text.

These functions read a whole column or return None; `Column` decides what a column is and names the
cell that is wrong.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from dco.cli.tables.arrow import arrow, compute, types
from dco.cli.tables.dates import ISO, read_dates
from dco.foundations.arrays import AnyArray, Bools, Floats, first_inexact_position

OTHER_SIGN = {".": ",", ",": "."}  # of the two decimal signs

# What Arrow and pandas take for missing. Only numbers and dates are missing by a word: in a column
# of text NA may be Namibia, and only an empty cell is missing.
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
_CODE = r"^(\+|[+-]?0[0-9])"  # +49, 007
_WHOLE_NUMBER = r"^(0|-?[1-9][0-9]{0,14})"  # a float does not hold more digits
_LONG_NUMBER = r"^[+-]?[0-9]{16,}(\.[0-9]*)?$"  # float64 may round it
_MICROSECONDS = 1e6  # in a second


def is_text(cells: Any) -> bool:
    """Say whether a column holds text."""
    return bool(types.is_string(cells.type) or types.is_large_string(cells.type))


def is_dates(cells: Any) -> bool:
    """Say whether the type of a column is a date, with or without the time of day."""
    return bool(types.is_timestamp(cells.type) or types.is_date(cells.type))


def is_categories(cells: Any) -> bool:
    """Say whether the type of a column is one of categories: a dictionary, or true and false."""
    return bool(types.is_dictionary(cells.type) or types.is_boolean(cells.type))


def matches(texts: Any, pattern: str) -> Bools:
    """Mark the cells that match, without the blanks around them; missing cells do not."""
    trimmed = compute.utf8_trim_whitespace(texts)
    return np.asarray(compute.match_substring_regex(trimmed, pattern).fill_null(False))


def with_gaps(texts: Any) -> Any:
    """Trim blanks, and turn words such as NA into missing cells."""
    trimmed = compute.utf8_trim_whitespace(texts)
    is_missing = compute.is_in(trimmed, value_set=arrow.array(_MISSING_WORDS, trimmed.type))
    return compute.if_else(is_missing, arrow.scalar(None, trimmed.type), trimmed)


def to_floats(cells: Any, decimal: str = ".") -> Floats | None:
    """Read an Arrow column as float64, NaN where a cell is missing.

    Dates become seconds since 1970, durations seconds; text is read with `decimal` as the decimal
    sign. Returns None if the column has a cell that is not a number.
    """
    if is_categories(cells):
        return None

    try:
        if is_dates(cells):
            floats = _to_seconds(cells, arrow.timestamp("us"))
        elif types.is_duration(cells.type):
            floats = _to_seconds(cells, arrow.duration("us"))
        elif is_text(cells):
            floats = compute.cast(_with_points(with_gaps(cells), decimal), arrow.float64())
        else:
            floats = compute.cast(cells, arrow.float64(), safe=False)
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
        return None
    return np.asarray(floats)


def _to_seconds(cells: Any, type_in_microseconds: Any) -> Any:
    microseconds = compute.cast(cells, type_in_microseconds, safe=False).cast(arrow.int64())
    return compute.divide(microseconds.cast(arrow.float64(), safe=False), _MICROSECONDS)


def _with_points(texts: Any, decimal: str) -> Any:
    """Write numbers with a decimal point: "1,5" -> "1.5" if `decimal` is a comma.

    A point is then no part of a number: "1.5" -> "1?5", which is refused.
    """
    if decimal == ".":
        return texts
    without_points = compute.replace_substring(texts, ".", "?")
    return compute.replace_substring(without_points, decimal, ".")


def to_seconds(cells: Any, form: str = ISO) -> Floats | None:
    """Read dates, typed or as text of this form, as seconds since 1970; None if one is no date."""
    if is_dates(cells) or types.is_null(cells.type):
        return to_floats(cells)
    if is_text(cells):
        return read_dates(with_gaps(cells), form)
    return None


def to_texts(cells: Any, *, fill: str | None = None) -> AnyArray:
    """Read a column as texts in an array of objects, `fill` where a cell is missing.

    A whole number is written without a decimal point, also where the column is of floats.
    """
    if types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    texts = [fill if value is None else _to_text(value) for value in cells.to_pylist()]
    return np.array(texts, dtype=object)


def _to_text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def is_missing(cells: Any) -> Bools:
    """Mark the missing cells; words such as NA count in text, where they would become a label."""
    if is_text(cells):
        return np.asarray(with_gaps(cells).is_null())
    return np.asarray(cells.is_null(nan_is_null=True))


def has_codes(texts: Any) -> bool:
    """Say whether a column of numbers in text holds codes, such as 007, +49 or a postcode.

    As numbers they would lose a character. A plus is a sign like a minus if the column has both.
    """
    if matches(texts, r"^[+-]?0[0-9]+$").any():
        return True
    has_plus = matches(texts, r"^\+[0-9]+$").any()
    return bool(has_plus and not matches(texts, "^-").any())


def first_code(texts: Any) -> str:
    """Return the first cell that is a code, in a column that has some."""
    return str(texts[int(np.argmax(matches(texts, _CODE)))])


def are_whole_labels(cells: Any) -> bool:
    """Say whether labels stay different as whole numbers.

    Text must be spelled in one way, as whole numbers or all of it with .0: 1 and 1.0 are two
    labels.
    """
    if not is_text(cells):
        return first_rounded_row(cells) is None
    texts = cells.drop_null()
    return bool(
        matches(texts, _WHOLE_NUMBER + "$").all() or matches(texts, _WHOLE_NUMBER + r"\.0+$").all()
    )


def first_rounded_row(cells: Any, decimal: str = ".") -> int | None:
    """Find the first number that float64 cannot hold exactly, such as 2**53 + 1.

    Returns its row, or None if float64 holds all numbers of the column. Columns of floats are not
    searched: they hold float64 already.
    """
    # 1. Take the numbers that may be too long for float64, exactly, and note their rows.
    if is_text(cells):
        texts = _with_points(with_gaps(cells), decimal)
        rows = np.flatnonzero(matches(texts, _LONG_NUMBER))
        exact_numbers = np.array(
            [Decimal(texts[row].as_py()) for row in rows.tolist()], dtype=object
        )
    elif types.is_integer(cells.type) or types.is_decimal(cells.type):
        rows = np.flatnonzero(cells.is_valid())
        exact_numbers = cells.drop_null().to_numpy()
    else:
        return None

    # 2. Find the first that changes when it becomes a float.
    position = first_inexact_position(exact_numbers)
    return None if position is None else int(rows[position])


def first_unreadable_row(cells: Any, read: Callable[[Any], object | None]) -> int:
    """Find the first cell that `read` cannot read, in a column that has such a cell.

    `read` takes cells of a column and returns None if it cannot read one of them. A binary search
    for the shortest beginning of the column that cannot be read needs few calls.
    """

    def is_unreadable_up_to(row: int) -> bool:
        return read(cells[: row + 1]) is None

    return bisect_left(range(len(cells)), True, key=is_unreadable_up_to)
