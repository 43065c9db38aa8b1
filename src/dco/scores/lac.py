"""LAC, one minus the probability of the label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from dco.foundations.arrays import Array, namespace
from dco.predictions import ClassProbabilities
from dco.scores.label_arrays import count_true, take_label
from dco.scores.label_score import LabelScore
from dco.scores.registry import register


@dataclass(frozen=True)
class LAC(LabelScore):
    """1 - p(y), Sadinle, Lei and Wasserman (2019).

    It gives the smallest sets on average where the probabilities are right.
    """

    works_on_devices: ClassVar[bool] = True

    def score_labels(self, record: ClassProbabilities) -> Array:
        """Return 1 - p for every label."""
        return _one_minus(record.probabilities)

    def score_one_label(self, record: ClassProbabilities, labels: Array) -> Array:
        """Return 1 - p for one label of each row."""
        return _one_minus(take_label(record.probabilities, labels))

    def find_members(self, record: ClassProbabilities, thresholds: Array) -> Array:
        """Mark the labels that score at most the thresholds, (n, K)."""
        if thresholds.shape != (1, 1):
            return super().find_members(record, thresholds)
        is_single = record.probabilities.dtype == namespace(record.probabilities).float32
        precision = np.float32 if is_single else np.float64
        return record.probabilities >= smallest_probability(float(thresholds[0, 0]), precision)

    def count_members(self, record: ClassProbabilities, several: Sequence[Array]) -> list[Array]:
        """Count the labels of each row that score at most the thresholds.

        `several` are matrices of thresholds; there is one array (n,) of counts for each.
        """
        return [count_true(self.find_members(record, thresholds)) for thresholds in several]


@lru_cache
def smallest_probability(threshold: float, precision: type[np.floating[Any]]) -> float:
    """Find the smallest probability p, as a float of this precision, with 1 - p <= threshold.

    1 - p is meant as the computer rounds it in double precision. So `p >= smallest` gives exactly
    the same sets as `1 - p <= threshold`, and saves a matrix of scores: LAC takes about half the
    time.
    """
    if math.isinf(threshold):
        return -threshold  # everything is at most +inf, nothing finite is at most -inf
    float_above = math.nextafter(threshold, math.inf)
    if math.isinf(float_above):
        return -math.inf  # every finite number is at most the largest float

    # 1 - p rounds to the nearest float. So the rounded number is at most the threshold where the
    # exact one lies below the middle between the threshold and the float above it.
    middle = (Fraction(threshold) + Fraction(float_above)) / 2
    with np.errstate(over="ignore"):
        smallest = precision(float(1 - middle))

    # This p may still be too small: 1 - middle was rounded down, or 1 - p is the middle itself, and
    # rounds up. Then one of the next larger floats is the answer.
    while 1.0 - float(smallest) > threshold:
        smallest = np.nextafter(smallest, precision(np.inf))
    return float(smallest)


def _one_minus(probabilities: Array) -> Array:
    xp = namespace(probabilities)
    return 1.0 - xp.astype(probabilities, xp.float64)


register(LAC, name="lac", defaults=(LAC(),), records=(ClassProbabilities,))
