"""How a report writes numbers, and text that it does not trust."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import numpy as np

from dco.foundations.ranks import LOWEST_SCORE

NARROW_SPACE = "\u202f"
LONGEST_LABEL = 60  # characters
HALVES_UP = 1e-9  # added before rounding, so that Python and the script of the page agree


def number(value: float) -> str:
    """Write four significant digits, and no exponent where a person would write none.

    0.123456 -> "0.1235", 12345 -> "12 345", 1.5e-7 -> "1.5e−7", infinity -> "∞".
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if abs(value) >= 1e7 or 0 < abs(value) < 1e-4:
        return exponential(value)
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return with_signs(text)


def exponential(value: float) -> str:
    """Write up to four digits and a power of ten."""
    digits, power = f"{value:.3e}".split("e")
    return with_signs(f"{digits.rstrip('0').rstrip('.')}e{int(power)}")


def with_signs(text: str) -> str:
    """Use a minus sign for a hyphen, and narrow spaces between thousands."""
    return text.replace(",", NARROW_SPACE).replace("-", "−")


def decimals_for(values: Iterable[float], *, digits: int = 4) -> int:
    """Return how many decimals the numbers of a column need, at most 6.

    They give the largest of the values so many significant digits: [0.5, 12.3] -> 2 for four.
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest == 0:
        return 0
    return min(max(digits - 1 - math.floor(math.log10(largest)), 0), 6)


def fixed(value: float, decimals: int) -> str:
    """Write a number with so many decimals, to stand under others in a column.

    A number that these decimals would write as 0 has four digits instead, as does one too large.
    """
    would_be_zero = value != 0 and round(value, decimals) == 0
    too_small = decimals >= 6 and 0 < abs(value) < 1e-4
    if would_be_zero or too_small or not math.isfinite(value) or abs(value) >= 1e7:
        return number(value)
    return with_signs(f"{value:,.{decimals}f}")


def percent(share: float | None) -> str:
    """Write a share in per cent; a share that is not 1 is never written as 100 %."""
    if share is None or math.isnan(share):
        return "–"
    value = round(100 * share + HALVES_UP, 1)
    if 0 < share < 1:
        value = min(max(value, 0.1), 99.9)
    return f"{value:.1f}{NARROW_SPACE}%"


def level_percent(alpha: float) -> str:
    """Write 1 - alpha in per cent, with the digits that tell it from 100: "90 %", "99.9999 %"."""
    decimals = max(4, -math.floor(math.log10(alpha)))
    digits = f"{100 * (1 - alpha):.{decimals}f}".rstrip("0").rstrip(".")
    return f"{digits}{NARROW_SPACE}%"


def threshold_in_words(value: float, decimals: int | None = None) -> str:
    """Write a threshold; the lowest score of `NeverEmpty` is a word, and no number."""
    if value == LOWEST_SCORE:
        return "lowest score"
    return number(value) if decimals is None else fixed(value, decimals)


def threshold_decimals(values: Iterable[float]) -> int:
    """Return the decimals of a column of thresholds."""
    return decimals_for(value for value in values if value != LOWEST_SCORE)


def plain_score(text: str) -> str:
    """Write a score without the digests of its arrays, which only a certificate needs."""
    without_arrays = re.sub(r",? ?\w+=<[^<>]*>", "", text)
    return without_arrays.replace("(, ", "(").removesuffix("()")


def shortened(value: object, longest: int = LONGEST_LABEL) -> str:
    """Cut text to a length that a table can hold."""
    text = str(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def label(value: object) -> str:
    """Write a label or a number of an example as a reader would."""
    if isinstance(value, (float, np.floating)):
        return number(float(value))
    return shortened(value)
