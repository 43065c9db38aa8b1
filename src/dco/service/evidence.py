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

# The alternatives c, each a factor of the odds of a hit; 0.45 takes a coverage of 0.90 to 0.80.
ODDS_FACTORS = np.array([0.65, 0.45, 0.2])
# The weights of the alternatives in the mean over them, which is the evidence; they sum to 1.
ALTERNATIVE_WEIGHTS = np.array([0.25, 0.5, 0.25])

_WEIGHT_OF_FIRST_START = 0.2  # of a change before the first row
_HALF_LIFE = 300  # half of the other weight is on changes within so many rows
SMALLEST_FLOAT = 1e-300  # about
LARGEST_BELOW_ONE = 1 - 2**-53
_LARGEST = 1e300  # evidence stops growing there: a float is not much larger


def weight_of_later_starts(n_rows: int) -> float:
    """Return the prior weight of all changes that begin after the first `n_rows` rows.

    For n_rows = 0 it is the weight of all changes but one before the first row.
    """
    return (1 - _WEIGHT_OF_FIRST_START) * _HALF_LIFE / (_HALF_LIFE + n_rows)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence for a change after some rows, of one stream of rows or of several side by side.

    A change may start with any row. The likelihood ratio of a start is the product of those of the
    rows since, for each of the A alternatives by itself.

    Attributes
    ----------
    n_rows
        How many rows there have been.
    weighted
        The sum over all starts of weight times likelihood ratio, (..., A).
    summed
        The sum over all starts of the likelihood ratio, (..., A).
    largest_martingale
        The largest value so far of the test martingale, which is made from `weighted`, (...).
    detector
        The largest value so far of the e-detector, which is made from `summed`, (...).
    """

    n_rows: int
    weighted: Floats
    summed: Floats
    largest_martingale: Floats
    detector: Floats

    @classmethod
    def before_first_row(cls, *streams: int) -> Evidence:
        """Return the evidence of no rows; `streams` is the shape of streams side by side."""
        zeros = np.zeros((*streams, len(ODDS_FACTORS)))
        return cls(
            n_rows=0,
            weighted=zeros + _WEIGHT_OF_FIRST_START,
            summed=zeros,
            largest_martingale=np.ones(streams),
            detector=np.zeros(streams),
        )

    def after(self, hit: bool | Bools, chance_of_hit: float | Floats) -> Evidence:
        """Return the evidence for a change after one more row.

        A change may start with any row. The likelihood ratio of a start says how much more likely
        the rows since are with a change than without one; it is the product of the ratios of these
        rows. The test martingale is the mean of all starts' ratios, weighted by how likely each
        start is beforehand: without a change it exceeds x ever with probability at most 1 / x.

        Parameters
        ----------
        hit
            Whether the prediction set of the row covers it; with several streams of rows side by
            side an array, a value for each.
        chance_of_hit
            The probability of that if nothing has changed, given the rows before.
        """
        # 1. The likelihood ratio of the row, for each alternative (a size of the change).
        likelihood_ratio = likelihood_ratios(hit, chance_of_hit)

        # 2. A change may start with this row: that start joins the others, with a ratio of 1 so
        # far.
        weight_from_here = weight_of_later_starts(self.n_rows)  # of starts with this row or later
        weight_of_later = weight_of_later_starts(self.n_rows + 1)
        weighted_before = self.weighted + weight_from_here - weight_of_later
        summed_before = self.summed + 1

        # 3. This row multiplies the ratio of every start.
        weighted = np.minimum(weighted_before * likelihood_ratio, _LARGEST)
        summed = np.minimum(summed_before * likelihood_ratio, _LARGEST)

        # 4. Starts after this row have a ratio of 1, so they add their weight to the martingale.
        martingale = weighted @ ALTERNATIVE_WEIGHTS + weight_of_later
        return Evidence(
            n_rows=self.n_rows + 1,
            weighted=weighted,
            summed=summed,
            largest_martingale=np.maximum(self.largest_martingale, martingale),
            detector=np.maximum(self.detector, summed @ ALTERNATIVE_WEIGHTS),
        )

    def p_value(self) -> Floats:
        """Return a p-value that is valid at any time: P(ever p <= d) <= d."""
        return np.asarray(1 / self.largest_martingale)


def likelihood_ratios(hit: ArrayLike, chance_of_hit: ArrayLike) -> Floats:
    """Return the likelihood ratio of a row for each alternative c, as a last axis.

    c / (1 - u + c u) for a hit and 1 / (1 - u + c u) for a miss, where u is the chance of a hit.
    """
    u = np.asarray(chance_of_hit, dtype=np.float64)[..., None]
    is_hit = np.asarray(hit, dtype=bool)[..., None]
    return np.where(is_hit, ODDS_FACTORS, 1.0) / (1 - u + ODDS_FACTORS * u)


def likely_start(hits: ArrayLike, chances_of_hits: ArrayLike, *, reported: int) -> int:
    """Estimate how many rows came before a change, given when it was first reported.

    It is the start whose rows are most likely under a change, against none. A change multiplies the
    odds of a hit by one of the `ODDS_FACTORS`.

    Parameters
    ----------
    hits
        Whether each row was a hit (covered by its prediction set), for all rows so far.
    chances_of_hits
        The probability of that if nothing had changed, as `Evidence.after` takes it.
    reported
        After how many rows the change was reported; there may be rows after that.
    """
    # The log likelihood ratio of each row, with a column for each factor c and u the chance of a
    # hit: log(c / (1 - u + c u)) for a hit, without the c for a miss. Summed up, cumulative[n] is
    # that of the first n rows, and cumulative[end] - cumulative[start] that of rows between.
    is_hit = np.asarray(hits, dtype=bool)[:, None]
    u = np.asarray(chances_of_hits, dtype=np.float64)[:, None]
    log_ratios = np.where(is_hit, np.log(ODDS_FACTORS), 0.0) - np.log(1 - u + ODDS_FACTORS * u)
    no_rows = np.zeros((1, len(ODDS_FACTORS)))
    cumulative = np.concatenate([no_rows, log_ratios]).cumsum(axis=0)

    # 1. The start that explains best the rows until the report.
    first_guess = _position_of_largest(cumulative[reported] - cumulative[:reported])

    # 2. The change lasts as long as the evidence for that start grows: often to the last row.
    until_later_rows = cumulative[reported:] - cumulative[first_guess]
    end = reported + _position_of_largest(until_later_rows)

    # 3. The start that explains best all rows until then.
    return _position_of_largest(cumulative[end] - cumulative[:reported])


def _position_of_largest(log_ratios: Floats) -> int:
    """Find the row with the largest likelihood ratio, as a mean over the alternatives (columns)."""
    log_means = np.logaddexp.reduce(log_ratios + np.log(ALTERNATIVE_WEIGHTS), axis=1)
    return int(np.argmax(log_means))


def confidence_sequence(hits: int, n_rows: int, *, error_rate: float) -> tuple[float, float]:
    """Return an interval (low, high) for the coverage p, valid at all times together.

    After every row there is such an interval; the probability that any of them misses p is at most
    `error_rate`, for rows that are covered independently with one and the same probability p. It
    holds all p with

        B(H + 1/2, m + 1/2) / B(1/2, 1/2) < p**H (1 - p)**m / error_rate

    for H hits (covered rows) and m misses, where B is the Beta function. The left side over
    p**H (1 - p)**m is a test martingale: it ever exceeds 1 / error_rate with probability at most
    error_rate (Robbins 1970; Howard, Ramdas, McAuliffe and Sekhon 2021).
    """
    from scipy.optimize import brentq  # slow to import
    from scipy.special import betaln, xlog1py, xlogy

    misses = n_rows - hits
    if n_rows == 0:
        return 0.0, 1.0

    # The interval holds all p with log(p**H (1 - p)**m) > log_limit.
    log_limit = betaln(hits + 0.5, misses + 0.5) - betaln(0.5, 0.5) + math.log(error_rate)
    if hits == 0:
        return 0.0, -math.expm1(log_limit / misses)
    if misses == 0:
        return math.exp(log_limit / hits), 1.0

    def log_likelihood_above_limit(p: float) -> float:
        return float(xlogy(hits, p) + xlog1py(misses, -p) - log_limit)

    # The likelihood is largest at the share of hits, and crosses the limit once on each side of it.
    share = hits / n_rows
    low = float(brentq(log_likelihood_above_limit, SMALLEST_FLOAT, share))
    high = float(brentq(log_likelihood_above_limit, share, LARGEST_BELOW_ONE))
    return low, high
