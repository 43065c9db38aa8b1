"""The law of coverage of a threshold, and the test of observed coverage against it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dco.foundations.ranks import Threshold
from dco.theory import Consistency, coverage_consistency


@dataclass(frozen=True)
class CoverageLaw:
    """What is known of the coverage of a threshold: the `rank`-th smallest of `n_cal` scores.

    Calibration scores that are equal near the threshold make it `is_tied`: coverage is then at
    least this law. An infinite threshold covers every label that the fit knows.
    """

    rank: int
    n_cal: int
    is_tied: bool = False
    is_infinite: bool = False

    def judge(self, covered: int, n: int, *, unknown_labels: int) -> Consistency | None:
        """Test the number of covered rows, `unknown_labels` of which no set can hold.

        Return None if no row has a label that a set can hold. A label that the fit does not know
        scores infinity, in calibration rows as in these, so that it is a miss like others. Only
        full sets, which cover every known label whichever score it has, are judged by the other
        rows.
        """
        if unknown_labels == n:
            return None
        if self.is_infinite:
            return coverage_consistency(
                covered,
                n - unknown_labels,
                rank=self.n_cal + 1,
                n_cal=self.n_cal,
                tied=self.is_tied,
                unknown_labels=unknown_labels,
            )
        return coverage_consistency(covered, n, rank=self.rank, n_cal=self.n_cal, tied=self.is_tied)


def law_of(threshold: Threshold | None, *, is_tied: bool) -> CoverageLaw | None:
    """Return the law of a threshold; None if it certifies no coverage by its rank."""
    if threshold is None or threshold.rank is None:
        return None
    if threshold.guarantee not in ("marginal", "pac"):
        return None
    return CoverageLaw(
        rank=threshold.rank,
        n_cal=threshold.n,
        is_tied=is_tied,
        is_infinite=threshold.value == math.inf,
    )
