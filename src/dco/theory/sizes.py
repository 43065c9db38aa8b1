"""How many calibration rows coverage needs to be as even as wanted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import SupportsIndex

import numpy as np
from scipy.special import betainc, ndtri

from dco.foundations.arrays import Bools, Integers
from dco.foundations.ranks import (
    Level,
    as_count,
    as_positive,
    as_rational,
    rank_for,
    smallest_n_for,
)
from dco.theory.coverage import coverage_variance

MOST_ROWS_SEARCHED = 20_000_000  # who asks for more than this has most likely mistyped a number
WIDEST_WINDOW = 10_000  # sizes compared for the least waste, where alpha is tiny
VARIANCE_ROUNDING = 1e-12  # a variance that exceeds its bound by this share alone is rounding


@dataclass(frozen=True)
class CalibrationSize:
    """How many calibration rows it takes for coverage to be as `calibration_size` was asked.

    Attributes
    ----------
    first
        The smallest size that is enough. Ranks are whole numbers, so that a larger one may not be.
    safe_from
        This size is enough, and so is every larger one.
    recommended
        The size within 1 / alpha rows of `safe_from` whose rank wastes least: where 1 / alpha is
        whole, n + 1 is a multiple of it and k / (n + 1) is 1 - alpha exactly.
    closed_form
        For a spread, ceil(alpha (1 - alpha) / spread^2) - 2, or the least size with a finite
        threshold if that is larger; None for a shortfall.
    """

    first: int
    safe_from: int
    recommended: int
    closed_form: int | None = None


def calibration_size(
    *,
    alpha: Level,
    spread: float | None = None,
    shortfall: float | None = None,
    delta: Level | None = None,
    pac_delta: Level | None = None,
) -> CalibrationSize:
    """Find how many calibration rows make coverage vary little, or fall short rarely.

    With n calibration rows coverage is a random number, Beta(k, n + 1 - k), where k is the rank of
    the threshold among the calibration scores. Either demand may hold at some n and fail at the
    next, so every n is tried, up to a size from which it is proved to hold. Sizes too small for a
    finite threshold do not count.

    Parameters
    ----------
    alpha
        One minus the coverage wanted.
    spread
        The demand ``sd(coverage) <= spread``.
    shortfall, delta
        In place of `spread`, the demand ``P(coverage < 1 - alpha - shortfall) <= delta``.
    pac_delta
        The failure probability of a PAC guarantee; None for the marginal one.
    """
    exact_alpha = as_rational(alpha)
    exact_pac_delta = None if pac_delta is None else as_rational(pac_delta, name="pac_delta")

    if spread is not None and shortfall is None and delta is None:
        return _size_for_spread(exact_alpha, as_positive(spread, name="spread"), exact_pac_delta)
    if spread is None and shortfall is not None and delta is not None:
        return _size_for_shortfall(
            exact_alpha,
            shortfall=as_positive(shortfall, name="shortfall"),
            delta=as_rational(delta, name="delta"),
            pac_delta=exact_pac_delta,
        )
    raise ValueError("give either spread=, or both shortfall= and delta=.")


def _size_for_spread(alpha: Fraction, spread: float, pac_delta: Fraction | None) -> CalibrationSize:
    """Find the rows for which the standard deviation of coverage is at most `spread`."""
    smallest = smallest_n_for(alpha=alpha, delta=pac_delta)
    enough = math.ceil(0.25 / spread**2)  # since the variance is at most 1 / (4 (n + 2))
    sizes = _sizes_to_search(smallest, enough)
    ranks = _ranks_of_sizes(sizes, alpha, pac_delta)
    is_enough = coverage_variance(ranks, sizes) <= spread**2 * (1 + VARIANCE_ROUNDING)

    wanted_variance = Fraction(repr(spread)) ** 2
    closed_form = math.ceil(alpha * (1 - alpha) / wanted_variance) - 2
    return _summarise(sizes, is_enough, alpha, pac_delta, max(smallest, closed_form))


def _size_for_shortfall(
    alpha: Fraction, *, shortfall: float, delta: Fraction, pac_delta: Fraction | None
) -> CalibrationSize:
    """Find how many calibration rows n give P(coverage < 1 - alpha - shortfall) <= delta.

    Coverage is Beta(k, n + 1 - k), where k is the rank of the threshold: the marginal rank or, with
    `pac_delta`, the PAC rank. So the probability is betainc(k, n + 1 - k, 1 - alpha - shortfall).
    """
    level = float(1 - alpha)
    lowest_coverage = level - shortfall
    if lowest_coverage <= 0:
        raise ValueError(f"shortfall must be below 1 - alpha = {level:g}, got {shortfall!r}.")
    if pac_delta is not None and pac_delta > Fraction(1, 2):
        raise ValueError(
            f"pac_delta must be at most 1/2 where a shortfall is asked for, got {float(pac_delta)}."
        )

    # Try every size, from the smallest with a finite threshold to one that is surely enough.
    smallest = smallest_n_for(alpha=alpha, delta=pac_delta)
    enough = _size_by_chernoff(level, lowest_coverage, float(delta))
    sizes = _sizes_to_search(smallest, enough)
    ranks = _ranks_of_sizes(sizes, alpha, pac_delta)
    ranks_from_top = np.maximum(sizes + 1 - ranks, 1)  # betainc takes no 0
    probability = betainc(ranks, ranks_from_top, lowest_coverage)
    return _summarise(sizes, probability <= float(delta), alpha, pac_delta)


def _size_by_chernoff(level: float, lowest: float, delta: float) -> int:
    """Return a size n from which P(coverage < lowest) <= delta, by Chernoff's bound.

    The bound is P(coverage < lowest) <= exp(-n KL(level || lowest)), where
    KL(p || q) = p log(p / q) + (1 - p) log((1 - p) / (1 - q)). It needs ranks of at least n times
    the level, which all are but those for a PAC delta above 1/2.
    """
    p = level
    q = lowest
    divergence = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    return math.ceil(-math.log(delta) / divergence)


def _sizes_to_search(smallest: int, enough: int) -> Integers:
    """List the sizes from `smallest` to `enough`; too many to search are an error."""
    largest = max(enough, smallest)
    if largest > MOST_ROWS_SEARCHED:
        raise ValueError(
            f"this may need up to {largest:,} calibration rows, beyond the "
            f"{MOST_ROWS_SEARCHED:,} that are searched."
        )
    return np.arange(smallest, largest + 1, dtype=np.int64)


def _summarise(
    sizes: Integers,
    is_enough: Bools,
    alpha: Fraction,
    pac_delta: Fraction | None,
    closed_form: int | None = None,
) -> CalibrationSize:
    """Find the first size that is enough, and the one from which all are.

    `sizes` are successive numbers of calibration rows, such as [9, 10, 11, 12], and `is_enough`
    says which of them are enough. The last one always is. With [False, True, False, True] the first
    is 10, and all are enough from 12 on. `alpha` and `pac_delta` decide the rank of the threshold,
    and with it which size from there on is recommended.
    """
    first = int(sizes[is_enough][0])

    safe_from = int(sizes[0])
    too_small = sizes[~is_enough]
    if too_small.size > 0:
        safe_from = int(too_small[-1]) + 1

    return CalibrationSize(
        first=first,
        safe_from=safe_from,
        recommended=least_wasteful_size(safe_from, alpha=alpha, delta=pac_delta),
        closed_form=closed_form,
    )


def _ranks_of_sizes(sizes: Integers, alpha: Fraction, pac_delta: Fraction | None) -> Integers:
    """Return the rank of the threshold for each number n of calibration rows in `sizes`.

    It is the PAC rank with `pac_delta`, otherwise the marginal rank ceil((n + 1) (1 - alpha)).
    """
    if pac_delta is not None:
        ranks = [rank_for(int(n), alpha=alpha, delta=pac_delta) for n in sizes]
        return np.array(ranks, dtype=np.int64)

    # Compute (n + 1) p / q, with 1 - alpha = p / q, in whole numbers. Where a product would not fit
    # in 64 bits, these are Python's, which have no limit.
    level = 1 - alpha
    largest_product = level.numerator * (int(sizes[-1]) + 1)
    exact_sizes = sizes if largest_product < 2**62 else sizes.astype(object)
    products = (exact_sizes + 1) * level.numerator
    marginal_ranks = -(-products // level.denominator)  # // rounds down, so this rounds up
    return np.asarray(marginal_ranks, dtype=np.int64)


def least_wasteful_size(
    n: SupportsIndex, *, alpha: Level, delta: Level | None = None, downwards: bool = False
) -> int:
    """Find the calibration size near n whose mean coverage is least above 1 - alpha.

    Mean coverage is rank / (size + 1), where the rank of the threshold is (size + 1) (1 - alpha)
    rounded up to a whole number. It is 1 - alpha, and not more, only where nothing is rounded: with
    alpha = 0.1, n = 95 gives 99, whose rank is 90. Sizes from n up to n + 1 / alpha are compared
    or, with `downwards`, from n down to n - 1 / alpha. With `delta` the rank is the PAC rank.
    """
    size_asked = as_count(n)
    exact_alpha = as_rational(alpha)
    exact_delta = None if delta is None else as_rational(delta, name="delta")

    def mean_coverage(size: int) -> Fraction:
        return Fraction(rank_for(size, alpha=exact_alpha, delta=exact_delta), size + 1)

    n_sizes = min(math.ceil(1 / exact_alpha), WIDEST_WINDOW)
    if downwards:
        sizes = range(size_asked, max(-1, size_asked - n_sizes), -1)
    else:
        sizes = range(size_asked, size_asked + n_sizes)
    return min(sizes, key=mean_coverage)


@dataclass(frozen=True)
class PacGap:
    """What a PAC guarantee costs in mean coverage over a marginal one.

    ``exact`` is (pac_rank - marginal_rank) / (n + 1), and ``approximate`` is
    z_(1 - delta) sqrt(alpha (1 - alpha) / n).
    """

    exact: float
    approximate: float
    marginal_rank: int
    pac_rank: int


def pac_gap(n_cal: SupportsIndex, *, alpha: Level, delta: Level) -> PacGap:
    """Compute how much mean coverage a PAC guarantee adds to a marginal one.

    PAC means coverage of at least 1 - alpha with probability 1 - delta over calibrations, and not
    only on average. Its threshold has a higher rank among the n = `n_cal` calibration scores. The
    gap is (PAC rank - marginal rank) / (n + 1) exactly, and z sqrt(alpha (1 - alpha) / n)
    approximately, where z is the normal quantile of 1 - delta.
    """
    n = as_count(n_cal, name="n_cal", least=1)
    float_alpha = float(as_rational(alpha))
    float_delta = float(as_rational(delta, name="delta"))

    marginal_rank = rank_for(n, alpha=alpha)
    pac_rank = rank_for(n, alpha=alpha, delta=delta)
    z = -float(ndtri(float_delta))
    return PacGap(
        exact=(pac_rank - marginal_rank) / (n + 1),
        approximate=z * math.sqrt(float_alpha * (1 - float_alpha) / n),
        marginal_rank=marginal_rank,
        pac_rank=pac_rank,
    )
