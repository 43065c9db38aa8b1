"""Recognise text that people mean as numbers or dates, and say what keeps it from being read so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.cli.tables.cells import OTHER_SIGN, is_text, matches, to_floats, with_gaps
from dco.cli.tables.dates import forms_of, look_like_dates
from dco.cli.tables.table import Column
from dco.foundations.arrays import Bools

_SHARE = 0.9  # of the cells, which must look alike
_CURRENCY = r"(€|\$|£|¥|EUR|USD|GBP|CHF|%)?"


@dataclass(frozen=True)
class Look:
    """What a column of text looks like.

    `problem` is the end of a sentence that begins with the name of the column: it says what the
    cells look like and what to do. `is_quantity` says that the cells are numbers with the other
    decimal sign, so that they cannot be labels.
    """

    problem: str
    is_quantity: bool = False


def look_of(column: Column) -> Look | None:
    """Recognise a column of text that should have been numbers or dates; None for other columns.

    Nine of ten cells must look alike: numbers with some wrong cells, numbers with the other decimal
    sign, amounts of money, or dates.
    """
    cells = column.cells
    if not is_text(cells) or to_floats(cells, column.decimal) is not None:
        return None

    texts = with_gaps(cells)
    return (
        _look_of_numbers(column, texts)
        or _look_of_other_decimal(column, texts)
        or _look_of_money(column, texts)
        or _look_of_dates(column, texts)
    )


def _look_of_numbers(column: Column, texts: Any) -> Look | None:
    """Recognise numbers among which a few cells are none."""
    is_filled = np.asarray(texts.is_valid())
    is_number = matches(texts, f"^({_number_pattern(column.decimal)})$")
    if not _are_most(is_number, texts):
        return None

    exception = column.describe_cell(_first(is_filled & ~is_number))
    return Look(
        f"has numbers in {np.count_nonzero(is_number):,} of {np.count_nonzero(is_filled):,} "
        f"cells, and {exception}; correct such cells, or leave them empty if the value is missing"
    )


def _look_of_other_decimal(column: Column, texts: Any) -> Look | None:
    """Recognise numbers with the other decimal sign: 1,5 where a point is expected.

    1,549 may also be 1549 with separated thousands. So one cell at least must be a number only with
    the other sign.
    """
    decimal = column.decimal
    other_decimal = OTHER_SIGN[decimal]
    is_number = matches(texts, f"^({_number_pattern(decimal)})$")
    has_thousands = matches(texts, f"^({_thousands_pattern(decimal)})$")
    has_other_decimal = matches(
        texts, f"^({_number_pattern(other_decimal)}|{_thousands_pattern(other_decimal)})$"
    )
    has_surely_other_decimal = has_other_decimal & ~is_number & ~has_thousands
    if not has_surely_other_decimal.any() or not _are_most(is_number | has_other_decimal, texts):
        return None

    example = column.describe_cell(_first(has_surely_other_decimal))
    sign = "commas" if decimal == "." else "points"
    advice = "use --decimal ," if decimal == "." else "leave out --decimal ,"
    return Look(
        f"looks like numbers with decimal {sign} ({example}); {advice} to read them as numbers",
        is_quantity=True,
    )


def _look_of_money(column: Column, texts: Any) -> Look | None:
    """Recognise numbers with a currency, a percent sign or separated thousands: € 1,549.34."""
    decimal = column.decimal
    number = _number_pattern(decimal)
    any_number = "|".join(
        [
            number,
            _thousands_pattern(decimal),
            _number_pattern(OTHER_SIGN[decimal]),
            _thousands_pattern(OTHER_SIGN[decimal]),
        ]
    )
    is_money = matches(texts, f"^({_CURRENCY} *({any_number}) *{_CURRENCY})$")
    if not _are_most(is_money, texts):
        return None

    is_plain_number = matches(texts, f"^({number})$")
    example = column.describe_cell(_first(is_money & ~is_plain_number))
    return Look(f"looks like numbers with other signs ({example}); write plain numbers")


def _look_of_dates(column: Column, texts: Any) -> Look | None:
    """Recognise dates that are not all written in one way, or have two digits for the year."""
    is_date = look_like_dates(texts)
    if not is_date.any() or not _are_most(is_date, texts) or forms_of(texts):
        return None

    example = column.describe_cell(_first(is_date))
    return Look(
        f"looks like dates ({example}) that do not all have one form with four digits for the "
        "year; write them all as 2026-01-31 to read them as dates"
    )


def _number_pattern(decimal: str) -> str:
    """Match what Arrow reads as a number once the decimal sign is a point."""
    digits = f"([0-9]+([{decimal}][0-9]*)?|[{decimal}][0-9]+)([eE][+-]?[0-9]+)?"
    return f"[+-]?({digits}|(?i:inf|infinity|nan))"


def _thousands_pattern(decimal: str) -> str:
    """Match numbers with separated thousands, such as 1,549.34 or 1 549.34."""
    separator = f"[{OTHER_SIGN[decimal]}' ’\u00a0]"
    return f"[+-]?[0-9]{{1,3}}({separator}[0-9]{{3}})+([{decimal}][0-9]+)?"


def _are_most(mask: Bools, texts: Any) -> bool:
    """Say whether nine of ten cells that are not missing are marked."""
    n_filled = len(texts) - texts.null_count
    return bool(np.count_nonzero(mask) >= _SHARE * n_filled)


def _first(mask: Bools) -> int:
    """Return the row of the first cell that is marked."""
    return int(np.argmax(mask))
