"""Recognise text that people mean as numbers or dates, and say what keeps it from being read so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dco.cli.tables.cells import OTHER_SIGN, is_text, matches, to_floats, with_gaps
from dco.cli.tables.dates import forms_of, look_like_dates
from dco.cli.tables.table import Column
from dco.foundations.arrays import Bools

_SHARE = 0.9  # of the cells must look alike
_CURRENCY = r"(€|\$|£|¥|EUR|USD|GBP|CHF|%)?"


@dataclass(frozen=True)
class Look:
    """What a column of text looks like, in words that follow its name.

    `is_quantity` says that the cells are numbers with the other decimal sign, and no labels.
    """

    problem: str
    is_quantity: bool = False


def look_of(column: Column) -> Look | None:
    """Say what text looks like if nine of ten cells look alike; None if it looks like text."""
    cells = column.cells
    decimal = column.decimal
    if not is_text(cells) or to_floats(cells, decimal) is not None:
        return None

    texts = with_gaps(cells)
    is_filled = np.asarray(texts.is_valid())
    number = _number_pattern(decimal)
    grouped = _grouped_pattern(decimal)
    turned = f"{_number_pattern(OTHER_SIGN[decimal])}|{_grouped_pattern(OTHER_SIGN[decimal])}"

    is_number = matches(texts, f"^({number})$")
    if _are_most(is_number, is_filled):
        exception = column.describe_cell(_first(is_filled & ~is_number))
        return Look(
            f"has numbers in {np.count_nonzero(is_number):,} of {np.count_nonzero(is_filled):,} "
            f"cells, and {exception}; correct such cells, or leave them empty if the value is "
            "missing"
        )

    is_turned = matches(texts, f"^({turned})$")
    # 1,549 may be a thousand and more: only what must have the other sign decides
    is_surely_turned = is_turned & ~is_number & ~matches(texts, f"^({grouped})$")
    if _are_most(is_number | is_turned, is_filled) and is_surely_turned.any():
        example = column.describe_cell(_first(is_surely_turned))
        sign = "commas" if decimal == "." else "points"
        advice = "use --decimal ," if decimal == "." else "leave out --decimal ,"
        return Look(
            f"looks like numbers with decimal {sign} ({example}); {advice} to read them as numbers",
            is_quantity=True,
        )

    is_money = matches(texts, f"^({_CURRENCY} *({number}|{grouped}|{turned}) *{_CURRENCY})$")
    if _are_most(is_money, is_filled):
        example = column.describe_cell(_first(is_money & ~is_number))
        return Look(f"looks like numbers with other signs ({example}); write plain numbers")

    is_date = look_like_dates(texts)
    if is_date.any() and _are_most(is_date, is_filled) and not forms_of(texts):
        example = column.describe_cell(_first(is_date))
        return Look(
            f"looks like dates ({example}) that do not all have one form with four digits for the "
            "year; write them all as 2026-01-31 to read them as dates"
        )
    return None


def _number_pattern(decimal: str) -> str:
    """Match what Arrow reads as a number once the decimal sign is a point."""
    digits = f"([0-9]+([{decimal}][0-9]*)?|[{decimal}][0-9]+)([eE][+-]?[0-9]+)?"
    return f"[+-]?({digits}|(?i:inf|infinity|nan))"


def _grouped_pattern(decimal: str) -> str:
    """Match numbers with separated thousands, such as 1,549.34 or 1 549.34."""
    separator = f"[{OTHER_SIGN[decimal]}' ’\u00a0]"
    return f"[+-]?[0-9]{{1,3}}({separator}[0-9]{{3}})+([{decimal}][0-9]+)?"


def _are_most(mask: Bools, is_filled: Bools) -> bool:
    return bool(np.count_nonzero(mask) >= _SHARE * np.count_nonzero(is_filled))


def _first(mask: Bools) -> int:
    return int(np.argmax(mask))
