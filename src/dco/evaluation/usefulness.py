"""What a reader asks besides coverage: how good the point prediction is, and how long sets are beside the targets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from dco.foundations import display
from dco.foundations.arrays import AnyArray
from dco.rows.conditions import condition_names

Written = Callable[[float], str]


def point_in_words(y: AnyArray, points: AnyArray, *, labels: bool, number: Written = display.number) -> str:
    """How good the point prediction is on these rows, beside one that looks at no feature."""
    if labels:
        right, most = np.mean(points == y), max(Counter(condition_names(y).tolist()).values()) / len(y)
        rest = f"always naming the most frequent label would be right for {100 * most:.1f} %"
        return f"The point prediction is right for {100 * right:.1f} % of the rows; {rest}."
    error, without = np.mean(np.abs(points - y)), np.mean(np.abs(np.median(y) - y))
    rest = f"always predicting their median would be off by {number(float(without))}"
    return f"The point prediction is off by {number(float(error))} on average (mean absolute error); {rest}."


def middle_range(y: AnyArray, *, alpha: float) -> float:
    """The length of the middle 1 - alpha of the targets: what a set would be without a model."""
    return float(np.ptp(np.quantile(y, [alpha / 2, 1 - alpha / 2])))


def size_in_words(mean_size: float, span: float, *, alpha: float, number: Written = display.number) -> str:
    """The mean length beside `middle_range`; empty where one of them says nothing."""
    if not span or not math.isfinite(mean_size):
        return ""
    promise = f"{100 * (1 - alpha):.6g} %"
    return (
        f"The middle {promise} of the targets span {number(span)}; the mean set is {100 * mean_size / span:.3g} % as long."
    )
