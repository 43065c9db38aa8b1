"""The paper's search: each candidate may take one of a few thresholds, quantiles of its scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dco.foundations.arrays import Floats
from dco.foundations.ranks import Level, as_rational, size_quantile
from dco.tuning import EvaluatedCandidate


def best_on_grid(
    candidates: Sequence[EvaluatedCandidate], *, alpha: Level, n_thresholds: int
) -> str:
    """Return the candidate with the smallest mean size at its smallest feasible threshold.

    Each candidate's thresholds are linear quantiles of its scores at evenly spaced levels from 0 to
    1, as the paper's words are usually read. Where no threshold is feasible, the paper's fallback
    takes the smallest risk, then the smallest size. Ties in size are broken by the P95 size, then
    by the threshold, then by the order of candidates.
    """
    level = as_rational(alpha)

    def key(candidate: EvaluatedCandidate) -> tuple[float, ...]:
        threshold = threshold_on_grid(candidate.scores, level, n_thresholds)
        n_missed = int(np.count_nonzero(candidate.scores > threshold))
        is_feasible = Fraction(n_missed, len(candidate)) <= level
        sizes = np.asarray(candidate.sizes_at(threshold), dtype=np.float64)
        return (
            0 if is_feasible else 1 + n_missed / len(candidate),
            math.fsum(sizes) / len(sizes),
            size_quantile(sizes, 0.95),
            threshold,
        )

    return min(candidates, key=key).name


def threshold_on_grid(scores: Floats, level: Fraction, n_thresholds: int) -> float:
    """Return the smallest quantile that misses at most a share `level`, or that misses least."""
    finite = scores[np.isfinite(scores)].astype(np.float64)
    if not finite.size:
        return math.inf
    grid = np.unique(np.quantile(finite, np.linspace(0, 1, n_thresholds)))
    n_missed = np.array([np.count_nonzero(scores > threshold) for threshold in grid])

    allowed = level.numerator * len(scores) // level.denominator
    enough = n_missed <= max(allowed, n_missed.min())
    return float(grid[np.argmax(enough)])
