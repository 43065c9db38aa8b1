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
    beyond the last edge.
    """
    reach = _REACH * size_quantile(sizes, _HIGHEST_LEVEL)
    if reach == 0:  # nearly all sets are empty
        reach = 1.0
    if classes is None:
        return _edges_for_lengths(reach)
    return _edges_for_counts(reach, n_labels=classes)


def _edges_for_lengths(reach: float) -> Floats:
    """Return edges from 0 to `reach` or a little beyond it, at multiples of a round step."""
    step = nice_step(reach, MOST_BINS)
    n_bins = math.ceil(reach / step - _ROUNDING)
    return step * np.arange(n_bins + 1)


def _edges_for_counts(reach: float, *, n_labels: int) -> Floats:
    """Return edges between whole numbers, from -0.5 on, for sets of 0 to `n_labels` labels.

    If the labels are few, every size gets a bin. Otherwise the bins go up to `reach` labels, and
    each may hold several sizes: [-0.5, 1.5, 3.5] for the sizes 0 and 1, 2 and 3.
    """
    largest_size = n_labels
    if n_labels >= MOST_BINS:
        largest_size = min(n_labels, max(math.ceil(reach), MOST_BINS - 1))

    n_sizes = largest_size + 1  # 0 is one of them
    sizes_per_bin = max(1, math.ceil(n_sizes / MOST_BINS))
    n_bins = math.ceil(n_sizes / sizes_per_bin)
    return sizes_per_bin * np.arange(n_bins + 1) - 0.5


def count_in_bins(values: Floats | Integers, edges: Floats) -> Integers:
    """Count the values in each bin [edge, next edge); the last count is of those beyond all bins.

    Values below the first edge count as in the first bin.
    """
    bins = np.searchsorted(edges, values, side="right") - 1
    return np.bincount(np.clip(bins, 0, len(edges) - 1), minlength=len(edges))
