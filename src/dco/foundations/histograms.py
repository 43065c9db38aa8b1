"""Bins of histograms with round edges."""

from __future__ import annotations

import math

import numpy as np

from dco.foundations.arrays import Floats, Integers
from dco.foundations.ranks import size_quantile

__all__ = ["MOST_BINS", "count_in_bins", "nice_step", "size_edges"]

MOST_BINS = 24


def nice_step(span: float, most_parts: int) -> float:
    """Return the smallest round step that cuts `span` into at most so many parts.

    Round steps are 1, 2, 2.5 and 5 times a power of ten.
    """
    if not (span > 0 and math.isfinite(span)):
        return 1.0

    power = 10.0 ** math.floor(math.log10(span / most_parts))
    for step in (1, 2, 2.5, 5, 10):
        if span / (step * power) <= most_parts + 1e-9:
            return step * power
    return 20 * power


def size_edges(sizes: Floats | Integers, *, classes: int | None) -> Floats:
    """Return the edges of a histogram of set sizes.

    The bins reach to 1.5 times the 99 % quantile, so that one histogram serves several levels;
    larger sets are counted beyond the last edge. Edges lie between whole numbers for labels.
    """
    upper = 1.5 * size_quantile(sizes, 0.99) or 1.0
    if classes is None:
        step = nice_step(upper, MOST_BINS)
        n_bins = math.ceil(upper / step - 1e-9)
        return step * np.arange(n_bins + 1)

    largest = classes
    if classes >= MOST_BINS:
        largest = min(classes, max(math.ceil(upper), MOST_BINS - 1))
    width = max(1, math.ceil((largest + 1) / MOST_BINS))
    n_bins = math.ceil((largest + 1) / width)
    return np.arange(0, width * n_bins + 1, width) - 0.5


def count_in_bins(values: Floats | Integers, edges: Floats) -> Integers:
    """Count values in each bin [a, b), and as the last count those at or beyond the last edge."""
    bins = np.searchsorted(edges, values, side="right") - 1
    return np.bincount(np.clip(bins, 0, len(edges) - 1), minlength=len(edges))
