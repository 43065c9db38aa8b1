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
    """Recognise a column of text that was meant as numbers or dates, and say how to mend it.

    Nine of ten cells must look alike: numbers with some wrong cells, numbers with the other decimal
    sign, amounts of money, or dates. None for other columns.
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
    """Recognise a column of numbers in which a few cells are something else: 3.2, 4.1, unknown.

    None if fewer than nine of ten cells are numbers.
    """
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

    1,549 does not decide: with a decimal point it is 1549 with separated thousands. So at least one
    cell, such as 1,5, must be a number with the other sign and none with the expected one. Returns
    None if the column does not look so.
    """
    decimal = column.decimal
    other_decimal = OTHER_SIGN[decimal]

    # 1. Read each cell with the expected sign and with the other one.
    is_plain_number = matches(texts, f"^({_number_pattern(decimal)})$")
    is_number_with_thousands = matches(texts, f"^({_thousands_pattern(decimal)})$")
    is_number_with_other_sign = matches(
        texts, f"^({_number_pattern(other_decimal)}|{_thousands_pattern(other_decimal)})$"
    )
    needs_other_sign = is_number_with_other_sign & ~is_plain_number & ~is_number_with_thousands

    # 2. Decide.
    is_number = is_plain_number | is_number_with_other_sign
    if not needs_other_sign.any() or not _are_most(is_number, texts):
        return None

    # 3. Say what to do, with an example.
    example = column.describe_cell(_first(needs_other_sign))
    sign = "commas" if decimal == "." else "points"
    advice = "use --decimal ," if decimal == "." else "leave out --decimal ,"
    return Look(
        f"looks like numbers with decimal {sign} ({example}); {advice} to read them as numbers",
        is_quantity=True,
    )


def _look_of_money(column: Column, texts: Any) -> Look | None:
    """Recognise numbers with a currency, a percent sign or separated thousands: € 1,549.34.

    None if fewer than nine of ten cells are such numbers, or plain ones.
    """
    # 1. Match numbers with either decimal sign, with or without a currency.
    decimal = column.decimal
    other_decimal = OTHER_SIGN[decimal]
    plain_number = _number_pattern(decimal)
    any_number = "|".join(
        [
            plain_number,
            _thousands_pattern(decimal),
            _number_pattern(other_decimal),
            _thousands_pattern(other_decimal),
        ]
    )
    is_amount = matches(texts, f"^({_CURRENCY} *({any_number}) *{_CURRENCY})$")
    if not _are_most(is_amount, texts):
        return None

    # 2. Show one that is not a plain number.
    is_plain_number = matches(texts, f"^({plain_number})$")
    example = column.describe_cell(_first(is_amount & ~is_plain_number))
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
