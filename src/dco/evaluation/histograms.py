"""Bins of histograms, for the report and the displays alike."""

from __future__ import annotations

import math

import numpy as np

from dco.foundations.arrays import Floats, Integers
from dco.foundations.ranks import size_quantile

BINS = 24


def nice_step(span: float, most: int) -> float:
    """The least of 1, 2, 2.5, 5 times a power of ten that cuts `span` into at most `most` parts."""
    if not (span > 0 and math.isfinite(span)):
        return 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(step * power for step in (1, 2, 2.5, 5, 10, 20) if span / (step * power) <= most + 1e-9)


def size_edges(sizes: Floats | Integers, *, classes: int | None) -> Floats:
    """Edges of the size histogram, common to all levels: up to 1.5 times the P99 size; larger sets are counted beyond."""
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
