"""How settled a choice is: compare the candidates again on random halves of the tuning rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dco.tuning.comparison import Comparison, put_in_order
from dco.tuning.cutoffs import Cutoffs
from dco.tuning.evaluated import EvaluatedCandidate
from dco.tuning.ranking import RankingRow

N_HALVES = 50


def share_of_wins(
    winner: str, candidates: Sequence[EvaluatedCandidate], comparison: Comparison, *, seed: int
) -> float:
    """Return the share of 50 random halves of the tuning rows on which the winner wins again.

    The comparison is by one threshold for all rows and by an objective that reads no sets.
    """
    # 1. Draw the halves.
    n_rows = len(candidates[0])
    half_size = max(1, round(n_rows / 2))
    rng = np.random.default_rng([seed, 3])  # not the draws that dealt roles and clusters
    halves = [rng.permutation(n_rows)[:half_size] for _ in range(N_HALVES)]

    # 2. Measure every candidate on every half.
    rows_of_halves: list[list[RankingRow]] = [[] for _ in halves]
    for candidate in candidates:
        thresholds = [
            comparison.weights.take(half).smallest_threshold(
                candidate.scores[half], comparison.alpha
            )
            for half in halves
        ]
        # Many halves share a threshold, and one pass gives the sizes at all different ones.
        different = np.unique(thresholds)
        sizes_at = dict(zip(different.tolist(), candidate.size_curves(different), strict=True))

        for half, threshold, rows in zip(halves, thresholds, rows_of_halves, strict=True):
            cutoffs = Cutoffs.equal(threshold)
            outcome = comparison.outcome_at(candidate, cutoffs, sizes_at[threshold])
            rows.append(comparison.row(outcome.on(half)))

    # 3. Count the halves that the winner wins.
    winners = [put_in_order(rows, comparison.objective)[0].name for rows in rows_of_halves]
    return winners.count(winner) / N_HALVES
