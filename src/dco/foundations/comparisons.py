"""How good predictions and sets are beside guesses that look at no feature, in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from dco.foundations import display
from dco.foundations.arrays import AnyArray, Floats

__all__ = ["middle_range", "point_in_words", "size_in_words"]


def point_in_words(
    y: AnyArray,
    points: AnyArray,
    *,
    are_labels: bool,
    number: Callable[[float], str] = display.number,
) -> str:
    """Say in a sentence how good point predictions are, beside the best constant guess.

    `y` are the true labels or numbers of the same rows; `are_labels` says which. The guess is the
    most frequent label, or the median. `number` writes a number as text.
    """
    if are_labels:
        percent_right = 100 * np.mean(points == y)
        largest_count = max(Counter(y.tolist()).values())
        percent_of_guess = 100 * largest_count / len(y)
        return (
            f"The point prediction is right for {percent_right:.1f} % of the rows; always "
            f"naming the most frequent label would be right for {percent_of_guess:.1f} %."
        )

    error = float(np.mean(np.abs(points - y)))
    error_of_median = float(np.mean(np.abs(np.median(y) - y)))
    return (
        f"The point prediction is off by {number(error)} on average (mean absolute error); always "
        f"predicting their median would be off by {number(error_of_median)}."
    )


def middle_range(y: Floats, *, alpha: float) -> float:
    """Return the length of the interval that holds the middle 1 - alpha of the targets.

    It is the set that somebody would predict who looks at no feature.
    """
    return float(np.ptp(np.quantile(y, [alpha / 2, 1 - alpha / 2])))


def size_in_words(
    mean_size: float,
    length: float,
    *,
    alpha: float,
    number: Callable[[float], str] = display.number,
) -> str:
    """Say in a sentence how long the mean prediction set is beside `length`, the `middle_range`.

    The text is empty if the length is 0 or the mean size is infinite. `number` writes a number as
    text.
    """
    if not length or not math.isfinite(mean_size):
        return ""
    middle = f"The middle {100 * (1 - alpha):.6g} % of the targets span {number(length)}"
    if mean_size > 2 * length:
        return f"{middle}; the mean set is {number(mean_size / length)} times as long."
    return f"{middle}; the mean set is {100 * mean_size / length:.3g} % as long."
