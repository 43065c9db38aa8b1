"""Laws of rows that come after the calibration, on hits and scores alone.

Hits. Let the threshold be the k-th smallest of n calibration scores. If new rows are exchangeable
with the calibration rows, and ties are broken at random, hits follow a Polya urn: after H hits in t
rows the next row is a hit with probability

    u = (k + H) / (n + 1 + t),

so the chance of the calibration rows themselves is in it. Conditions with thresholds of their own
have urns of their own.

Evidence. The alternative c multiplies the odds of a hit by c < 1. Its likelihood ratio for one row
is c / (1 - u + c u) for a hit and 1 / (1 - u + c u) for a miss; the product over the rows after a
start is a test martingale (mean 1 under the law, P(ever >= x) <= 1 / x; Ville 1939). A change may
begin with any row, so there is one product for each start, with weights that sum to 1: their mean
is a test martingale too. The sum of all products *without* weights is an e-detector: it grows by 1
per row on average, so its first passage above A takes at least A rows on average (Shin, Ramdas and
Rinaldo 2024).

Ranks. The place of a new score among the calibration scores and all earlier new ones, ties broken
at random, is exactly uniform and independent of the places before it (Vovk, Gammerman and Shafer
2005). Bets on these places see changes that leave coverage alone.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Bools, Floats

ODDS = np.array([0.65, 0.45, 0.2])  # the alternatives c; 0.45 takes a coverage of 0.90 to 0.80
SHARES = np.array([0.25, 0.5, 0.25])  # of the evidence that each alternative carries
# the weight of a change before the first row; half of the other weight is on the next 300 rows
_FIRST, _HALF = 0.2, 300
_MOST = 1e300  # evidence stops there: floats do
_RECENT = 4096  # scores
_JUMP = 0.01  # the share of the stakes that is dealt anew before each row
_SLOPES, _BENDS = (
    np.array([0.0, -0.9, -0.45, 0.45, 0.9, 0.0, 0.0]),
    np.array([0.0, 0.0, 0.0, 0.0, 0.0, -0.9, 0.9]),
)


def weight_after(rows: int) -> float:
    """The weight of all starts after `rows` rows; at 0 rows it is that of every start but the
    first.
    """
    return (1 - _FIRST) * _HALF / (_HALF + rows)


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known after some rows, of one stream or of several side by side.

    `weighted` and `summed` hold, for each alternative, the sum over starts of the likelihood ratio
    of the rows since, with weights and without. `most` is the largest mean so far, `detector` the
    largest sum.
    """

    rows: int
    weighted: Floats
    summed: Floats
    most: Floats
    detector: Floats

    @classmethod
    def none(cls, *streams: int) -> Evidence:
        """Before the first row."""
        zeros = np.zeros((*streams, len(ODDS)))
        return cls(0, zeros + _FIRST, zeros, np.ones(streams), np.zeros(streams))

    def after(self, hit: bool | Bools, expected: float | Floats) -> Evidence:
        """After one more row, which the urn expected to be a hit with probability `expected`."""
        u = np.asarray(expected, dtype=np.float64)[..., None]
        ratio = np.where(np.asarray(hit)[..., None], ODDS, 1.0) / (1 - u + ODDS * u)
        left = weight_after(self.rows + 1)
        weighted = np.minimum((self.weighted + weight_after(self.rows) - left) * ratio, _MOST)
        summed = np.minimum((self.summed + 1) * ratio, _MOST)
        most, detector = (
            np.maximum(self.most, weighted @ SHARES + left),
            np.maximum(self.detector, summed @ SHARES),
        )
        return Evidence(self.rows + 1, weighted, summed, most, detector)

    def p_value(self) -> Floats:
        """Valid at any time: P(ever p <= d) <= d."""
        return np.asarray(1 / self.most)


def likely_start(hits: ArrayLike, expected: ArrayLike, *, reported: int) -> int:
    """The number of rows before a change that was first reported after `reported` rows.

    The start whose rows have the largest likelihood ratio up to its peak, which is the last row
    while a change lasts.
    """
    hit, u = np.asarray(hits, dtype=bool)[:, None], np.asarray(expected, dtype=np.float64)[:, None]
    steps = np.where(hit, np.log(ODDS), 0.0) - np.log(1 - u + ODDS * u)
    total = np.concatenate([np.zeros_like(ODDS)[None], steps]).cumsum(axis=0)

    def largest(ratios: Floats) -> int:
        return int(np.argmax(np.logaddexp.reduce(ratios + np.log(SHARES), axis=1)))

    start = largest(total[reported] - total[:reported])
    end = reported + largest(total[reported:] - total[start])
    return largest(total[end] - total[:reported])


class Places:
    """Scores in order, among which new ones find their places: exactly uniform, and independent of
    the places before.

    The place is (#{below} + v (1 + #{equal})) / (1 + #), in (0, 1), for a uniform v that breaks
    ties.
    """

    def __init__(self, scores: Sequence[float] = ()) -> None:
        self._sorted, self._recent = sorted(scores), list[float]()

    def take(self, score: float, uniform: float) -> float:
        """The place of one more score, which is then one of them. Recent scores are merged now and
        then, in linear time.
        """
        parts = self._sorted, self._recent
        below, up_to = (
            sum(side(part, score) for part in parts) for side in (bisect_left, bisect_right)
        )
        found = (below + uniform * (1 + up_to - below)) / (1 + sum(map(len, parts)))
        insort(self._recent, score)
        if len(self._recent) == _RECENT:
            self._sorted, self._recent = sorted(self._sorted + self._recent), []
        return found


@dataclass(frozen=True, eq=False)
class Stakes:
    """Bets on places that are uniform while nothing changes: what each bet holds, and the most that
    all ever held.

    A bet multiplies its stake by 1 + a (2x - 1) + b (6x^2 - 6x + 1) at the place x; the mean is 1
    under the law. Before each row a hundredth of all stakes is dealt anew, so that a change can
    begin at any time (Vovk's jumper).
    """

    held: Floats
    most: Floats

    @classmethod
    def none(cls, *streams: int) -> Stakes:
        """Before the first row."""
        return cls(np.full((*streams, len(_SLOPES)), 1 / len(_SLOPES)), np.ones(streams))

    def after(self, found: float | Floats) -> Stakes:
        """After one more place."""
        x = np.asarray(found, dtype=np.float64)[..., None]
        dealt = (1 - _JUMP) * self.held + _JUMP * self.held.mean(axis=-1, keepdims=True)
        held = np.minimum(
            dealt * (1 + _SLOPES * (2 * x - 1) + _BENDS * (6 * x * (x - 1) + 1)), _MOST
        )
        return Stakes(held, np.maximum(self.most, held.sum(axis=-1)))

    def p_value(self) -> Floats:
        """Valid at any time: P(ever p <= d) <= d."""
        return np.asarray(1 / self.most)


def confidence_sequence(hits: int, rows: int, *, error_rate: float) -> tuple[float, float]:
    """An interval for the coverage p that holds at all times together with probability at least 1 -
    error_rate.

    All p with  B(H + 1/2, m + 1/2) / B(1/2, 1/2) < p**H (1 - p)**m / error_rate,  for H hits and m
    misses. The ratio of the two sides is a test martingale for rows that are covered independently
    with one and the same probability p (Robbins 1970; Howard, Ramdas, McAuliffe and Sekhon 2021).
    """
    from scipy.optimize import brentq
    from scipy.special import betaln, xlog1py, xlogy

    misses = rows - hits
    line = betaln(hits + 0.5, misses + 0.5) - betaln(0.5, 0.5) + math.log(error_rate)

    def above(p: float) -> float:
        return float(xlogy(hits, p) + xlog1py(misses, -p) - line)

    share = hits / max(rows, 1)
    low = (
        0.0
        if hits == 0
        else float(brentq(above, 1e-300, share))
        if share < 1
        else math.exp(line / hits)
    )
    high = (
        1.0
        if misses == 0
        else -math.expm1(line / misses)
        if hits == 0
        else float(brentq(above, share, 1 - 2**-53))
    )
    return low, high
