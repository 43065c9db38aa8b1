"""Evidence against the law of hits, and what else can be said about a sequence of them.

Let the threshold be the k-th smallest of n calibration scores. If new rows are exchangeable with
the calibration rows, and ties are broken at random, hits follow a Polya urn (an urn from which a
ball is drawn and put back with one more of its colour; here the colours are hit and miss): after H
hits in t rows the next row is a hit with probability

    u = (k + H) / (n + 1 + t),

so the chance of the calibration rows themselves is in it.

The alternative c multiplies the odds of a hit by c < 1. Its likelihood ratio for one row is
c / (1 - u + c u) for a hit and 1 / (1 - u + c u) for a miss; the product over the rows after a
start is a test martingale (mean 1 under the law, P(ever >= x) <= 1 / x; Ville 1939). A change may
begin with any row, so there is one product for each start, with weights that sum to 1: their mean
is a test martingale too. The sum of all products without weights is an e-detector: it grows by 1
per row on average, so its first passage above A takes at least A rows on average (Shin, Ramdas and
Rinaldo 2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Bools, Floats

# the alternatives c, each a factor of the odds of a hit; 0.45 takes a coverage of 0.90 to 0.80
ODDS = np.array([0.65, 0.45, 0.2])
# the weights of the alternatives in the mean over them, which is the evidence; they sum to 1
SHARES = np.array([0.25, 0.5, 0.25])
_WEIGHT_OF_FIRST_START = 0.2  # of a change before the first row
_HALF_LIFE = 300  # half of the other weight is on changes within so many rows
_LARGEST = 1e300  # evidence stops there: floats do


def weight_of_later_starts(n_rows: int) -> float:
    """Return the weight of all changes that begin after so many rows.

    At 0 rows it is the weight of every start but the first.
    """
    return (1 - _WEIGHT_OF_FIRST_START) * _HALF_LIFE / (_HALF_LIFE + n_rows)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence after some rows, of one stream or of several side by side.

    A start is a row with which a change may have begun. The likelihood ratio of a start is that of
    the rows since, taken for each of the A alternatives by itself.
    """

    n_rows: int
    weighted: Floats  # (..., A): sum over starts of weight times likelihood ratio
    summed: Floats  # (..., A): sum over starts of the likelihood ratio, the e-detector
    largest_mean: Floats  # (...): the largest value of the test martingale so far
    detector: Floats  # (...): the largest value of the e-detector so far

    @classmethod
    def before_first_row(cls, *streams: int) -> Evidence:
        """Start with no rows."""
        zeros = np.zeros((*streams, len(ODDS)))
        return cls(
            n_rows=0,
            weighted=zeros + _WEIGHT_OF_FIRST_START,
            summed=zeros,
            largest_mean=np.ones(streams),
            detector=np.zeros(streams),
        )

    def after(self, hit: bool | Bools, expected: float | Floats) -> Evidence:
        """Return the evidence after one more row.

        `hit` says whether its set covered it, `expected` is the probability of that if nothing has
        changed: u, which the urn gives from the rows before.
        """
        u = np.asarray(expected, dtype=np.float64)[..., None]
        is_hit = np.asarray(hit)[..., None]
        likelihood_ratio = np.where(is_hit, ODDS, 1.0) / (1 - u + ODDS * u)

        # a change may start with this row: that start joins the others, with a ratio of 1 so far
        weight_from_here = weight_of_later_starts(self.n_rows)
        weight_later = weight_of_later_starts(self.n_rows + 1)
        weighted_before = self.weighted + weight_from_here - weight_later
        summed_before = self.summed + 1

        weighted = np.minimum(weighted_before * likelihood_ratio, _LARGEST)
        summed = np.minimum(summed_before * likelihood_ratio, _LARGEST)

        # starts after this row have a ratio of 1, so they add their weight to the martingale
        martingale = weighted @ SHARES + weight_later
        return Evidence(
            n_rows=self.n_rows + 1,
            weighted=weighted,
            summed=summed,
            largest_mean=np.maximum(self.largest_mean, martingale),
            detector=np.maximum(self.detector, summed @ SHARES),
        )

    def p_value(self) -> Floats:
        """Return a p-value that is valid at any time: P(ever p <= d) <= d."""
        return np.asarray(1 / self.largest_mean)


def likely_start(hits: ArrayLike, expected: ArrayLike, *, reported: int) -> int:
    """Estimate how many rows came before a change that was first reported after `reported` rows.

    It is the start whose rows have the largest likelihood ratio up to its peak. While a change
    lasts, the peak is at the last row.
    """
    is_hit = np.asarray(hits, dtype=bool)[:, None]
    u = np.asarray(expected, dtype=np.float64)[:, None]
    log_ratios = np.where(is_hit, np.log(ODDS), 0.0) - np.log(1 - u + ODDS * u)
    log_ratio_up_to = np.concatenate([np.zeros_like(ODDS)[None], log_ratios]).cumsum(axis=0)

    start = _position_of_largest(log_ratio_up_to[reported] - log_ratio_up_to[:reported])
    peak = reported + _position_of_largest(log_ratio_up_to[reported:] - log_ratio_up_to[start])
    return _position_of_largest(log_ratio_up_to[peak] - log_ratio_up_to[:reported])


def _position_of_largest(log_ratios: Floats) -> int:
    """Find the largest mean over the alternatives, whose logarithms are in the columns."""
    return int(np.argmax(np.logaddexp.reduce(log_ratios + np.log(SHARES), axis=1)))


def confidence_sequence(hits: int, n_rows: int, *, error_rate: float) -> tuple[float, float]:
    """Return an interval for the coverage p that holds at all times together.

    The probability that it ever misses p is at most `error_rate`, for rows that are covered
    independently with one and the same probability p. It holds all p with

        B(H + 1/2, m + 1/2) / B(1/2, 1/2) < p**H (1 - p)**m / error_rate

    for H hits and m misses. The ratio of the two sides is a test martingale (Robbins 1970; Howard,
    Ramdas, McAuliffe and Sekhon 2021).
    """
    from scipy.optimize import brentq  # slow to import
    from scipy.special import betaln, xlog1py, xlogy

    misses = n_rows - hits
    level = betaln(hits + 0.5, misses + 0.5) - betaln(0.5, 0.5) + math.log(error_rate)

    def height(p: float) -> float:
        """Return how far the logarithm of the likelihood at p is above the level."""
        return float(xlogy(hits, p) + xlog1py(misses, -p) - level)

    if hits == 0 and misses == 0:
        return 0.0, 1.0
    if hits == 0:
        return 0.0, -math.expm1(level / misses)
    if misses == 0:
        return math.exp(level / hits), 1.0

    share = hits / n_rows
    low = float(brentq(height, 1e-300, share))
    high = float(brentq(height, share, 1 - 2**-53))
    return low, high
