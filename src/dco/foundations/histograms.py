"""Bins of histograms with round edges."""

from __future__ import annotations

import math

import numpy as np

from dco.foundations.arrays import Floats, Integers
from dco.foundations.ranks import size_quantile

__all__ = ["MOST_BINS", "count_in_bins", "nice_step", "size_edges"]

MOST_BINS = 24
_ROUND_STEPS = (1, 2, 2.5, 5, 10)  # times a power of ten
_ROUNDING = 1e-9  # a quotient this little above a whole number is that number
_HIGHEST_LEVEL = 0.99  # of the quantile of sizes from which the reach of the bins is made
_REACH = 1.5  # times that quantile


def nice_step(span: float, most_parts: int) -> float:
    """Return the smallest round step that cuts `span` into at most `most_parts` parts.

    Round steps are 1, 2, 2.5 and 5 times a power of ten: a span of 90 in at most 10 parts has the
    step 10.
    """
    if not (span > 0 and math.isfinite(span)):
        return 1.0

    power = 10.0 ** math.floor(math.log10(span / most_parts))
    for factor in _ROUND_STEPS:
        n_parts = span / (factor * power)
        if n_parts <= most_parts + _ROUNDING:
            return factor * power
    return 20 * power


def size_edges(sizes: Floats | Integers, *, classes: int | None) -> Floats:
    """Return the edges of a histogram of set sizes: lengths, or numbers of labels.

    `classes` is how many labels there are, and None for lengths. The bins reach to 1.5 times the
    99 % quantile of the sizes, so that one histogram serves several levels; larger sets are counted
    beyond the last edge. For labels, edges lie between whole numbers, and few labels all get a bin.
    """
    reach = _REACH * size_quantile(sizes, _HIGHEST_LEVEL) or 1.0  # 1 if all sizes are 0
    if classes is None:
        step = nice_step(reach, MOST_BINS)
        n_bins = math.ceil(reach / step - _ROUNDING)
        return step * np.arange(n_bins + 1)

    largest_size = classes
    if classes >= MOST_BINS:
        largest_size = min(classes, max(math.ceil(reach), MOST_BINS - 1))
    n_sizes = largest_size + 1  # 0 is one of them
    sizes_per_bin = max(1, math.ceil(n_sizes / MOST_BINS))
    n_bins = math.ceil(n_sizes / sizes_per_bin)
    return np.arange(0, sizes_per_bin * n_bins + 1, sizes_per_bin) - 0.5


def count_in_bins(values: Floats | Integers, edges: Floats) -> Integers:
    """Count the values in each bin [edge, next edge); the last count is of those beyond all bins.

    Values below the first edge count as in the first bin.
    """
    bins = np.searchsorted(edges, values, side="right") - 1
    return np.bincount(np.clip(bins, 0, len(edges) - 1), minlength=len(edges))
