"""Coverage and size by slice of the rows, with exact intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray, Bools, Floats, Integers
from dco.foundations.display import number
from dco.rows.conditions import condition_names, rows_by_condition


@dataclass(frozen=True)
class Slice:
    """Coverage and size in one slice of the rows.

    `coverage_low` and `coverage_high` are exact (Clopper-Pearson), and hold for all slices at once
    with confidence 95 %.
    """

    by: str
    value: Any
    n: int
    coverage: float
    coverage_low: float
    coverage_high: float
    mean_size: float


def slices_of(named: Mapping[str, AnyArray], covered: Bools, sizes: Floats) -> tuple[Slice, ...]:
    """One row for each value of each named array, in sorted order; intervals hold for all rows of
    the table at once.
    """
    parts = [
        (by, value, rows)
        for by, values in named.items()
        for value, rows in rows_by_condition(values).items()
    ]
    found = []
    for by, value, rows in parts:
        hits = int(covered[rows].sum())
        low, high = share_interval(hits, rows.size, confidence=1 - 0.05 / len(parts))
        found.append(
            Slice(by, value, rows.size, hits / rows.size, low, high, float(sizes[rows].mean()))
        )
    return tuple(found)


def fifths_in_words(values: Floats, codes: Integers) -> AnyArray:
    """The fifth of each row as its range, "1: 0.2 to 3.5"."""
    ends = {
        code: (values[codes == code].min(), values[codes == code].max())
        for code in np.unique(codes).tolist()
    }
    names = {
        code: f"{code + 1}: {' to '.join(dict.fromkeys(map(number, pair)))}"
        for code, pair in ends.items()
    }
    return condition_names([names[code] for code in codes.tolist()])


def share_interval(hits: int, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """The exact (Clopper-Pearson) confidence interval for a probability, `hits` of `n` observed."""
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else float(betaincinv(hits, n - hits + 1, tail))
    return low, 1.0 if hits == n else float(betaincinv(hits + 1, n - hits, 1 - tail))
