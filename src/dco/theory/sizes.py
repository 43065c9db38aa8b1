"""How many calibration rows a wish about coverage needs."""

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

MOST_ROWS_SEARCHED = 20_000_000  # a wish that needs more than this is a slip of the pen
WIDEST_WINDOW = 10_000  # sizes compared for the least waste, where alpha is tiny


@dataclass(frozen=True)
class CalibrationSize:
    """How many calibration rows a wish needs.

    Attributes
    ----------
    first
        The smallest size at which the wish holds. Ranks are whole numbers, so that it may fail
        again at a larger one.
    safe_from
        The wish holds at this size and at every larger one.
    recommended
        The size within 1 / alpha rows of `safe_from` whose rank wastes least: where 1 / alpha is
        whole, n + 1 is a multiple of it and k / (n + 1) is 1 - alpha exactly.
    closed_form
        For a wish about the spread, ceil(alpha (1 - alpha) / spread^2) - 2, or the least size with
        a finite threshold if that is larger; None for other wishes.
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
    """Find the calibration rows for ``sd(coverage) <= spread``, or for a rare shortfall.

    Give either `spread`, or `shortfall` and `delta` for ``P(coverage < 1 - alpha - shortfall) <=
    delta``. Coverage is Beta(k, n + 1 - k), where k is the marginal rank or, with `pac_delta`, the
    PAC rank. Both wishes come and go with n, so every n is looked at, up to a size from which the
    wish is proved to hold. Sizes too small for a finite threshold do not count.
    """
    level = as_rational(alpha)
    failure = None if pac_delta is None else as_rational(pac_delta, name="pac_delta")
    if spread is not None and shortfall is None and delta is None:
        return _size_for_spread(level, as_positive(spread, name="spread"), failure)
    if spread is None and shortfall is not None and delta is not None:
        missed = as_positive(shortfall, name="shortfall")
        return _size_for_shortfall(level, missed, as_rational(delta, name="delta"), failure)
    raise ValueError("give either spread=, or both shortfall= and delta=.")


def _size_for_spread(alpha: Fraction, spread: float, pac_delta: Fraction | None) -> CalibrationSize:
    """Find the rows for which the standard deviation of coverage is at most `spread`."""
    smallest = smallest_n_for(alpha=alpha, delta=pac_delta)
    enough = math.ceil(0.25 / spread**2)  # since the variance is at most 1 / (4 (n + 2))
    sizes = _sizes_to_search(smallest, enough)
    ranks = _ranks_of_sizes(sizes, alpha, pac_delta)
    holds = coverage_variance(ranks, sizes) <= spread**2 * (1 + 1e-12)

    wanted_variance = Fraction(repr(spread)) ** 2
    closed_form = math.ceil(alpha * (1 - alpha) / wanted_variance) - 2
    return _summarise(sizes, holds, alpha, pac_delta, max(smallest, closed_form))


def _size_for_shortfall(
    alpha: Fraction, shortfall: float, delta: Fraction, pac_delta: Fraction | None
) -> CalibrationSize:
    """Find the rows for which P(coverage < 1 - alpha - shortfall) is at most delta."""
    covered = float(1 - alpha)
    lowest = covered - shortfall
    if lowest <= 0:
        raise ValueError(f"shortfall must be below 1 - alpha = {covered:g}, got {shortfall!r}.")
    if pac_delta is not None and pac_delta > Fraction(1, 2):
        raise ValueError(
            f"pac_delta must be at most 1/2 where a shortfall is asked for, got {float(pac_delta)}."
        )

    smallest = smallest_n_for(alpha=alpha, delta=pac_delta)
    allowed = float(delta)
    sizes = _sizes_to_search(smallest, _rows_by_chernoff(covered, lowest, allowed))
    ranks = _ranks_of_sizes(sizes, alpha, pac_delta)
    holds = betainc(ranks, np.maximum(sizes + 1 - ranks, 1), lowest) <= allowed
    return _summarise(sizes, holds, alpha, pac_delta)


def _rows_by_chernoff(covered: float, lowest: float, allowed: float) -> int:
    """Return a size from which P(coverage < lowest) <= allowed: exp(-n KL(covered || lowest)).

    It applies because ranks are at least n times the level (for a PAC delta of at most 1/2).
    """
    missed = 1 - covered
    divergence = covered * math.log(covered / lowest) + missed * math.log(missed / (1 - lowest))
    return math.ceil(-math.log(allowed) / divergence)


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
    holds: Bools,
    alpha: Fraction,
    pac_delta: Fraction | None,
    closed_form: int | None = None,
) -> CalibrationSize:
    """Find the first size at which the wish holds, and the one from which it always does."""
    first = int(sizes[np.argmax(holds)])

    safe_from = int(sizes[0])
    sizes_that_fail = sizes[~holds]
    if sizes_that_fail.size:
        safe_from = int(sizes_that_fail[-1]) + 1

    return CalibrationSize(
        first=first,
        safe_from=safe_from,
        recommended=least_wasteful_size(safe_from, alpha=alpha, delta=pac_delta),
        closed_form=closed_form,
    )


def _ranks_of_sizes(sizes: Integers, alpha: Fraction, pac_delta: Fraction | None) -> Integers:
    """Return the rank of the threshold at each size: ceil((n + 1)(1 - alpha)), or the PAC rank."""
    if pac_delta is not None:
        ranks = [rank_for(int(n), alpha=alpha, delta=pac_delta) for n in sizes]
        return np.array(ranks, dtype=np.int64)

    # In whole numbers: those of Python where a product would not fit in 64 bits.
    covered = alpha.denominator - alpha.numerator
    fits_in_64_bits = covered * (int(sizes[-1]) + 1) < 2**62
    exact_sizes = sizes if fits_in_64_bits else sizes.astype(object)
    rounded_up = -(-(exact_sizes + 1) * covered // alpha.denominator)
    return np.asarray(rounded_up, dtype=np.int64)


def least_wasteful_size(
    n: SupportsIndex, *, alpha: Level, delta: Level | None = None, downwards: bool = False
) -> int:
    """Find the size within 1 / alpha rows of n, from n upwards, with the least rank / (size + 1).

    Whole ranks make some sizes a bargain: where n + 1 is a multiple of 1 / alpha, mean coverage is
    1 - alpha and not more. With `downwards`, sizes up to n are compared instead.
    """
    count = as_count(n)
    level = as_rational(alpha)
    failure = None if delta is None else as_rational(delta, name="delta")

    def expected_coverage(size: int) -> Fraction:
        return Fraction(rank_for(size, alpha=level, delta=failure), size + 1)

    window = min(math.ceil(1 / level), WIDEST_WINDOW)
    if downwards:
        sizes = range(count, max(-1, count - window), -1)
    else:
        sizes = range(count, count + window)
    return min(sizes, key=expected_coverage)


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
    """Compare the mean coverage of a PAC threshold with that of a marginal one."""
    n = as_count(n_cal, name="n_cal", least=1)
    missed = float(as_rational(alpha))
    failure = float(as_rational(delta, name="delta"))

    marginal_rank = rank_for(n, alpha=alpha)
    pac_rank = rank_for(n, alpha=alpha, delta=delta)
    normal_quantile = -float(ndtri(failure))
    return PacGap(
        exact=(pac_rank - marginal_rank) / (n + 1),
        approximate=normal_quantile * math.sqrt(missed * (1 - missed) / n),
        marginal_rank=marginal_rank,
        pac_rank=pac_rank,
    )
