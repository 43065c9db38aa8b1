"""What a reader asks besides coverage: how good the point prediction is, how long sets are, and how
lengths are spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dco.foundations import display
from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.foundations.ranks import size_quantile
from dco.rows.conditions import condition_names, rows_by_condition

BINS = 24
Written = Callable[[float], str]


def point_in_words(
    y: AnyArray, points: AnyArray, *, labels: bool, number: Written = display.number
) -> str:
    """How good the point prediction is on these rows, beside one that looks at no feature."""
    if labels:
        most = max(rows.size for rows in rows_by_condition(condition_names(y)).values()) / len(y)
        rest = f"always naming the most frequent label would be right for {100 * most:.1f} %"
        return (
            f"The point prediction is right for {100 * np.mean(points == y):.1f} % of the "
            f"rows; {rest}."
        )
    error, without = np.mean(np.abs(points - y)), np.mean(np.abs(np.median(y) - y))
    rest = f"always predicting their median would be off by {number(float(without))}"
    return (
        f"The point prediction is off by {number(float(error))} on average (mean absolute "
        f"error); {rest}."
    )


def middle_range(y: AnyArray, *, alpha: float) -> float:
    """The length of the middle 1 - alpha of the targets: what a set would be without a model."""
    return float(np.ptp(np.quantile(y, [alpha / 2, 1 - alpha / 2])))


def size_in_words(
    mean_size: float, span: float, *, alpha: float, number: Written = display.number
) -> str:
    """The mean length beside `middle_range`; empty where one of them says nothing."""
    if not span or not math.isfinite(mean_size):
        return ""
    said, share = (
        f"The middle {100 * (1 - alpha):.6g} % of the targets span {number(span)}",
        100 * mean_size / span,
    )
    return f"{said}; the mean set is {share:.3g} % as long."


def nice_step(span: float, most: int) -> float:
    """The least of 1, 2, 2.5, 5 times a power of ten that cuts `span` into at most `most` parts."""
    if not (span > 0 and math.isfinite(span)):
        return 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(
        step * power for step in (1, 2, 2.5, 5, 10, 20) if span / (step * power) <= most + 1e-9
    )


def size_edges(sizes: Floats | Integers, *, classes: int | None) -> Floats:
    """Edges of the size histogram, common to all levels: up to 1.5 times the P99 size; larger sets
    are counted beyond.
    """
    upper = 1.5 * size_quantile(sizes, 0.99) or 1.0
    if classes is not None:
        top = classes if classes < BINS else min(classes, max(math.ceil(upper), BINS - 1))
        width = max(1, math.ceil((top + 1) / BINS))
        return np.arange(0, width * (math.ceil((top + 1) / width) + 1), width) - 0.5
    step = nice_step(upper, BINS)
    return step * np.arange(math.ceil(upper / step - 1e-9) + 1)


def size_counts(sizes: Floats | Integers, edges: Floats) -> Integers:
    """Sets in each bin [a, b), and in the last place those at or beyond the last edge."""
    place = np.searchsorted(edges, sizes, side="right") - 1
    return np.bincount(np.clip(place, 0, len(edges) - 1), minlength=len(edges))
