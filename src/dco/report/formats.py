"""How the report writes numbers and hostile text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

LONGEST_LABEL = 60


def number(value: float) -> str:
    """Four significant digits, no exponent where a person would write none."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if abs(value) >= 1e7 or 0 < abs(value) < 1e-4:
        return exponential(value)
    text = f"{value:,.0f}".replace(",", "\u202f") if abs(value) >= 1000 else f"{value:.4g}"
    return text.replace("-", "−")


def exponential(value: float) -> str:
    """Up to four digits and a power of ten."""
    digits, power = f"{value:.3e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}".replace("-", "−")


def decimals_for(values: Iterable[float], digits: int = 4) -> int:
    """How many decimals give the largest of the values so many digits: one column, one number of
    decimals.
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return 0 if largest == 0 else min(max(digits - 1 - math.floor(math.log10(largest)), 0), 6)


def fixed(value: float, decimals: int) -> str:
    """A number with so many decimals, to stand under others in a column; what these would write as
    0 is in full.
    """
    lost = value != 0 and (round(value, decimals) == 0 or (decimals >= 6 and abs(value) < 1e-4))
    if lost or not math.isfinite(value) or abs(value) >= 1e7:
        return number(value)
    return f"{value:,.{decimals}f}".replace(",", "\u202f").replace("-", "−")


def percent(share: float | None) -> str:
    """A share in per cent; a share that is not 1 is never written as 100 %."""
    if share is None or math.isnan(share):
        return "–"
    value = round(100 * share, 1)
    return f"{min(max(value, 0.1), 99.9) if 0 < share < 1 else value:.1f}\u202f%"


def level_percent(alpha: float) -> str:
    """1 - alpha in per cent, with the digits that tell it from 100."""
    places = max(4, -math.floor(math.log10(alpha)))
    return f"{100 * (1 - alpha):.{places}f}".rstrip("0").rstrip(".") + "\u202f%"


def shortened(value: Any, longest: int = LONGEST_LABEL) -> str:
    """Hostile text cut to a length that a table can hold."""
    text = str(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def label(value: Any) -> str:
    """A label or a number of an example as a reader would write it."""
    return number(float(value)) if isinstance(value, (float, np.floating)) else shortened(value)
