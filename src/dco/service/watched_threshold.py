"""One threshold in service: the law of its hits, and the scores that new ones are placed among."""

from __future__ import annotations

import math

import numpy as np

from dco.foundations.arrays import Floats
from dco.service.drift import SortedScores
from dco.service.evidence import Evidence


class WatchedThreshold:
    """A threshold that is the `rank`-th smallest of its calibration scores, and the rows it met.

    A row whose score equals the threshold is covered, and is a hit if its tie is broken that way:
    of the calibration scores that are equal to the threshold, put in random order, the threshold is
    one at random too. The law of hits is then exact.
    """

    def __init__(
        self, value: float, *, rank: int, scores: Floats, random: np.random.Generator
    ) -> None:
        self.value = value
        self.rank = rank
        self.n_calibration = scores.size
        self.n_rows = 0
        self.n_hits = 0
        self.n_covered = 0
        self.evidence = Evidence.before_first_row()
        self.scores = SortedScores(scores.tolist())

        n_below = int(np.sum(scores < value))
        n_equal = int(np.sum(scores == value))
        self._share_of_ties = 1.0  # up to which a tied row is a hit
        if n_equal and rank <= scores.size:  # rank n + 1 is beyond all scores, infinite ones too
            rank_among_equal = rank - n_below
            self._share_of_ties = random.beta(rank_among_equal, n_equal - rank_among_equal + 1)

    @property
    def expected_coverage(self) -> float:
        """The mean of the law of coverage."""
        return self.rank / (self.n_calibration + 1)

    def chance_of_hit(self) -> float:
        """Return the probability that the next row is a hit, given the rows so far."""
        return (self.rank + self.n_hits) / (self.n_calibration + 1 + self.n_rows)

    def is_hit(self, score: float, *, uniform: float, covered: bool) -> bool:
        """Decide whether a row is a hit; `uniform` breaks a tie."""
        if math.isinf(self.value):
            return covered
        return score < self.value or (score == self.value and uniform <= self._share_of_ties)

    def count(self, *, hit: bool, covered: bool) -> None:
        """Count a row."""
        self.evidence = self.evidence.after(hit, self.chance_of_hit())
        self.n_rows += 1
        self.n_hits += hit
        self.n_covered += covered
