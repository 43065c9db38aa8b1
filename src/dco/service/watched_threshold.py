"""One threshold in service: the law of its hits, and the scores that new ones are placed among."""

from __future__ import annotations

import math

import numpy as np

from dco.foundations.arrays import Floats
from dco.service.drift import SortedScores
from dco.service.evidence import Evidence


class WatchedThreshold:
    """A threshold that is the `rank`-th smallest of its calibration scores, and the rows it met.

    A row whose score is below the threshold is a hit, and one whose score equals it is a hit with a
    probability that is drawn once: scores that tie with the threshold count as if they, and the
    threshold among them, stood in random order. The law of hits is then exact; a tied row is
    covered whether it is a hit or not.

    `random` draws that probability.
    """

    def __init__(
        self, value: float, *, rank: int, scores: Floats, random: np.random.Generator
    ) -> None:
        """Begin to watch a threshold, before the first row.

        Parameters
        ----------
        value, rank
            The threshold, and its rank among the calibration scores; n + 1 if it is above all n.
        scores
            (n,) the calibration scores.
        random
            Draws the probability that a row whose score equals the threshold is a hit.
        """
        self.value = value
        self.rank = rank
        self.n_calibration = scores.size
        self.n_rows = 0
        self.n_hits = 0
        self.n_covered = 0
        self.evidence = Evidence.before_first_row()
        self.scores = SortedScores(scores.tolist())
        self._chance_of_tie = _draw_chance_of_tie(value, rank=rank, scores=scores, random=random)

    @property
    def expected_coverage(self) -> float:
        """The mean of the law of coverage."""
        return self.rank / (self.n_calibration + 1)

    def chance_of_hit(self) -> float:
        """Return the probability that the next row is a hit, given the rows so far."""
        return (self.rank + self.n_hits) / (self.n_calibration + 1 + self.n_rows)

    def is_hit(self, score: float, *, uniform: float, covered: bool) -> bool:
        """Decide whether a row is a hit; the `uniform` in (0, 1) breaks a tie with the threshold.

        Where the threshold is infinite, a hit is a row that is `covered`.
        """
        if math.isinf(self.value):
            return covered
        return score < self.value or (score == self.value and uniform <= self._chance_of_tie)

    def count(self, *, hit: bool, covered: bool) -> None:
        """Count one more row, with the evidence that it is."""
        self.evidence = self.evidence.after(hit, self.chance_of_hit())
        self.n_rows += 1
        self.n_hits += hit
        self.n_covered += covered


def _draw_chance_of_tie(
    threshold: float, *, rank: int, scores: Floats, random: np.random.Generator
) -> float:
    """Draw the probability that a new score equal to the threshold counts as below it.

    Calibration scores that are equal count as if each had another place, uniform and independent,
    among infinitely many. The threshold is the r-th smallest of the m that are equal to it, so its
    place has the distribution Beta(r, m - r + 1). A new score is below it with just that chance.
    """
    n_below = int(np.sum(scores < threshold))
    n_equal = int(np.sum(scores == threshold))
    is_above_all = rank > scores.size  # rank n + 1, even where scores are infinite too
    if n_equal == 0 or is_above_all:
        return 1.0
    rank_among_equal = rank - n_below
    return float(random.beta(rank_among_equal, n_equal - rank_among_equal + 1))
