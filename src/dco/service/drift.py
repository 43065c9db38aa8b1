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
_SHARE_DEALT_ANEW = 0.01  # of the stakes, before each row
_LARGEST = 1e300  # stakes stop there: floats do

# One bet for each column: on high or low places by a slope, on middle or extreme ones by a bend.
_SLOPES = np.array([0.0, -0.9, -0.45, 0.45, 0.9, 0.0, 0.0])
_BENDS = np.array([0.0, 0.0, 0.0, 0.0, 0.0, -0.9, 0.9])


class SortedScores:
    """Scores in ascending order, among which new ones find their places."""

    def __init__(self, scores: Sequence[float] = ()) -> None:
        self._merged = sorted(scores)
        self._waiting: list[float] = []

    def place(self, score: float, *, uniform: float) -> float:
        """Return the place of one more score, in (0, 1), and keep the score.

        The place is (#{below} + v (1 + #{equal})) / (1 + #{all}), where the uniform v breaks ties.
        """
        below = bisect_left(self._merged, score) + bisect_left(self._waiting, score)
        up_to = bisect_right(self._merged, score) + bisect_right(self._waiting, score)
        total = len(self._merged) + len(self._waiting)
        relative_rank = (below + uniform * (1 + up_to - below)) / (1 + total)

        # to insert into a long list takes long, so a short one takes new scores
        insort(self._waiting, score)
        if len(self._waiting) == _MERGE_AT:
            self._merged = sorted(self._merged + self._waiting)
            self._waiting = []
        return relative_rank


@dataclass(frozen=True, eq=False)
class Stakes:
    """Bets on places that are uniform while nothing changes, of one stream or of several.

    A bet multiplies its stake by 1 + a (2x - 1) + b (6x^2 - 6x + 1) at the place x; the mean is 1
    under the law. Before each row a hundredth of all stakes is dealt anew, so that a change can
    begin at any time (Vovk's jumper). `largest_total` is the most that all bets together ever held.
    """

    by_bet: Floats
    largest_total: Floats

    @classmethod
    def before_first_row(cls, *streams: int) -> Stakes:
        """Deal equal stakes to all bets, 1 in all."""
        n_bets = len(_SLOPES)
        return cls(by_bet=np.full((*streams, n_bets), 1 / n_bets), largest_total=np.ones(streams))

    def after(self, place: float | Floats) -> Stakes:
        """Settle the bets on one more place."""
        x = np.asarray(place, dtype=np.float64)[..., None]
        mean_stake = self.by_bet.mean(axis=-1, keepdims=True)
        stakes = (1 - _SHARE_DEALT_ANEW) * self.by_bet + _SHARE_DEALT_ANEW * mean_stake

        factors = 1 + _SLOPES * (2 * x - 1) + _BENDS * (6 * x * (x - 1) + 1)
        by_bet = np.minimum(stakes * factors, _LARGEST)
        return Stakes(by_bet, np.maximum(self.largest_total, by_bet.sum(axis=-1)))

    def p_value(self) -> Floats:
        """Return a p-value that is valid at any time: P(ever p <= d) <= d."""
        return np.asarray(1 / self.largest_total)
