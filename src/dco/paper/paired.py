"""Compare two methods that were run on the same splits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats, as_real_numbers

UPPER_LEVEL = 0.975  # of the t-quantile of a two-sided 95 % interval


@dataclass(frozen=True)
class PairedComparison:
    """The mean of a - b over `n` pairs, its 95 % t-interval, and Wilcoxon's p-value."""

    n: int
    mean_difference: float
    low: float
    high: float
    p_value: float


def paired_comparison(a: ArrayLike, b: ArrayLike) -> PairedComparison:
    """Compare two methods by the differences a - b of their values on the same splits.

    Returns the mean difference with Student's 95 % interval, which is infinite for a single pair,
    and the p-value of Wilcoxon's signed-rank test.
    """
    from scipy.special import stdtrit

    differences = pair_differences(a, b)
    n = differences.size
    mean = float(differences.mean())

    half_width = math.inf
    if n > 1:
        standard_error = float(differences.std(ddof=1)) / math.sqrt(n)
        half_width = float(stdtrit(n - 1, UPPER_LEVEL)) * standard_error

    return PairedComparison(
        n=n,
        mean_difference=mean,
        low=mean - half_width,
        high=mean + half_width,
        p_value=paired_wilcoxon(a, b),
    )


@dataclass(frozen=True)
class PercentChange:
    """How much larger sizes are, in % of a mean, with a 95 % interval and a p-value.

    All are None where it is not known, because a size is infinite.
    """

    mean: float | None
    low: float | None
    high: float | None
    p_value: float | None


UNKNOWN_CHANGE = PercentChange(mean=None, low=None, high=None, p_value=None)


def percent_change(
    after: Sequence[float], before: Sequence[float], *, base: float | None = None
) -> PercentChange:
    """Return by how many percent sizes change from one method to another on the same splits.

    `before` and `after` have the size of each method on each split. The mean of their differences
    is given in percent of `base`, by default the mean of `before`. Infinite sizes have no
    difference: the change is then `UNKNOWN_CHANGE`.
    """
    if not are_finite(after, before):
        return UNKNOWN_CHANGE
    if base is None:
        base = float(np.mean(before))
    one_percent = base / 100
    comparison = paired_comparison(after, before)
    return PercentChange(
        mean=comparison.mean_difference / one_percent,
        low=comparison.low / one_percent,
        high=comparison.high / one_percent,
        p_value=comparison.p_value,
    )


def wilcoxon_if_finite(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return the p-value of `paired_wilcoxon`, or None where a value is infinite."""
    return paired_wilcoxon(a, b) if are_finite(a, b) else None


def are_finite(a: Sequence[float], b: Sequence[float]) -> bool:
    """Say whether every value of both sequences is finite."""
    return all(math.isfinite(value) for value in [*a, *b])


def paired_wilcoxon(a: ArrayLike, b: ArrayLike) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test of a against b.

    Equal pairs are left out, as Wilcoxon did; the p-value is 1 if all pairs are equal. SciPy leaves
    them out too, but one of them makes it fall back to a normal approximation. Without them the
    test is exact for up to 50 pairs without ties.

    Repeated splits of one table are not independent samples of the population: the p-value speaks
    of splits of this table.
    """
    from scipy.stats import wilcoxon

    differences = pair_differences(a, b)
    unequal = differences[differences != 0]
    return float(wilcoxon(unequal).pvalue) if unequal.size else 1.0


def pair_differences(a: ArrayLike, b: ArrayLike) -> Floats:
    """Return the differences a - b, pair by pair.

    It is a ValueError if a and b are not of the same length, or if a value is not finite.
    """
    first = as_real_numbers(a, name="a").astype(np.float64)
    second = as_real_numbers(b, name="b").astype(np.float64)

    if first.ndim != 1 or first.shape != second.shape or first.size == 0:
        raise ValueError(
            f"a and b must be pairs of numbers, one per split, got shapes {first.shape} and "
            f"{second.shape}."
        )
    is_finite = np.isfinite(first) & np.isfinite(second)
    if not is_finite.all():
        bad_pairs = np.flatnonzero(~is_finite)
        raise ValueError(
            f"{bad_pairs.size} of {first.size} pairs are not finite (first: pair "
            f"{bad_pairs[0]}); a difference of infinite sizes has no value. Compare the median or "
            f"the P95 size, or leave such splits out of both runs and say so."
        )
    return np.asarray(first - second)
