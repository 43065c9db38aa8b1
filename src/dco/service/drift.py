"""Bets on where new scores fall among earlier ones.

The place of a new score among the calibration scores and all earlier new ones, ties broken at
random, is exactly uniform and independent of the places before it while rows are exchangeable
(Vovk, Gammerman and Shafer 2005). Bets on these places see changes that leave coverage alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dco.foundations.arrays import Floats

_MERGE_AT = 4096  # scores that may wait to be merged into the sorted ones
_SHARE_SHARED_OUT = 0.01  # of all stakes, equally to all bets before each row
_LARGEST = 1e300  # stakes stop growing there: a float is not much larger

# One bet for each column: on high or low places by a slope a, on extreme (b > 0) or middle places
# (b < 0) by a bend b.
_SLOPES = np.array([0.0, -0.9, -0.45, 0.45, 0.9, 0.0, 0.0])
_BENDS = np.array([0.0, 0.0, 0.0, 0.0, 0.0, -0.9, 0.9])


class SortedScores:
    """Scores in ascending order, among which new ones find their places."""

    def __init__(self, scores: Sequence[float] = ()) -> None:
        self._merged = sorted(scores)
        self._waiting: list[float] = []

    def place(self, score: float, *, uniform: float) -> float:
        """Return how far up one more score stands among those so far, and keep the score.

        That is the share of scores below it, from 0 to 1. The score itself and scores equal to it
        count by a random part, the `uniform` number v from 0 to 1:

            place = (n_below + v (1 + n_equal)) / (1 + n)
        """
        n_below = bisect_left(self._merged, score) + bisect_left(self._waiting, score)
        n_up_to = bisect_right(self._merged, score) + bisect_right(self._waiting, score)
        n_equal = n_up_to - n_below
        n = len(self._merged) + len(self._waiting)
        place = (n_below + uniform * (1 + n_equal)) / (1 + n)

        # Keep it in the short list: to insert into the long one takes long.
        insort(self._waiting, score)
        if len(self._waiting) == _MERGE_AT:
            self._merged = sorted(self._merged + self._waiting)
            self._waiting = []
        return place


@dataclass(frozen=True, eq=False)
class Stakes:
    """Bets against "places are uniform", which they are while nothing changes.

    A bet multiplies its stake by 1 + a (2x - 1) + b (6x^2 - 6x + 1) at the place x, which is 1 on
    average if x is uniform. Before each row a hundredth of all stakes is shared out equally, so
    that a bet that has lost can win when a change begins (Vovk's jumper).

    `by_bet` (..., B) holds the stakes now, of one stream of rows or of several side by side, and
    `largest_total` (...) the most that all bets of a stream ever held together.
    """

    by_bet: Floats
    largest_total: Floats

    @classmethod
    def before_first_row(cls, *streams: int) -> Stakes:
        """Give equal stakes to all bets, 1 in all; `streams` is the shape of several streams."""
        n_bets = len(_SLOPES)
        return cls(by_bet=np.full((*streams, n_bets), 1 / n_bets), largest_total=np.ones(streams))

    def after(self, place: float | Floats) -> Stakes:
        """Return the stakes after the bets on one more place in (0, 1) were settled."""
        x = np.asarray(place, dtype=np.float64)[..., None]
        mean_stake = self.by_bet.mean(axis=-1, keepdims=True)
        stakes = (1 - _SHARE_SHARED_OUT) * self.by_bet + _SHARE_SHARED_OUT * mean_stake

        factors = 1 + _SLOPES * (2 * x - 1) + _BENDS * (6 * x * (x - 1) + 1)
        by_bet = np.minimum(stakes * factors, _LARGEST)
        return Stakes(by_bet, np.maximum(self.largest_total, by_bet.sum(axis=-1)))

    def p_value(self) -> Floats:
        """Return a p-value that is valid at any time: P(ever p <= d) <= d."""
        return np.asarray(1 / self.largest_total)
