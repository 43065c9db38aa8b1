"""How settled a choice is: compare the candidates again on random halves of the tuning rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dco.foundations.arrays import Integers
from dco.tuning.comparison import Comparison, put_in_order
from dco.tuning.cutoffs import Cutoffs
from dco.tuning.evaluated import EvaluatedCandidate
from dco.tuning.ranking import RankingRow

N_HALVES = 50
_STREAM = 3  # of random numbers: other ones than those that dealt roles and clusters


def share_of_wins(
    winner: str, candidates: Sequence[EvaluatedCandidate], comparison: Comparison, *, seed: int
) -> float:
    """Return the share of 50 random halves of the tuning rows on which the winner wins again.

    `winner` is the name of the candidate that won on all tuning rows, `candidates` are those that
    are compared again, the winner among them. The comparison must take one threshold for all rows,
    and an objective that reads no sets.
    """
    # 1. Draw the halves.
    n_rows = len(candidates[0])
    half_size = max(1, round(n_rows / 2))
    rng = np.random.default_rng([seed, _STREAM])
    halves = [rng.permutation(n_rows)[:half_size] for _ in range(N_HALVES)]

    # 2. Measure every candidate on every half.
    rows_of_halves: list[list[RankingRow]] = [[] for _ in halves]
    for candidate in candidates:
        measured = measure_on_halves(candidate, halves, comparison)
        for rows, row in zip(rows_of_halves, measured, strict=True):
            rows.append(row)

    # 3. Count the halves that the winner wins.
    winners = [put_in_order(rows, comparison.objective)[0].name for rows in rows_of_halves]
    return winners.count(winner) / N_HALVES


def measure_on_halves(
    candidate: EvaluatedCandidate, halves: Sequence[Integers], comparison: Comparison
) -> list[RankingRow]:
    """Measure a candidate on each half of the tuning rows, at the threshold that the half gives.

    `halves` holds the positions of the rows of each half.
    """
    thresholds = []
    for half in halves:
        weights = comparison.weights.take(half)
        scores = candidate.scores[half]
        thresholds.append(weights.smallest_threshold(scores, comparison.alpha))

    # Many halves share a threshold, and one pass gives the sizes at all different ones.
    different_thresholds = np.unique(thresholds)
    size_curves = candidate.size_curves(different_thresholds)
    sizes_at = dict(zip(different_thresholds.tolist(), size_curves, strict=True))

    measured = []
    for half, threshold in zip(halves, thresholds, strict=True):
        cutoffs = Cutoffs.equal(threshold)
        outcome = comparison.outcome_at(candidate, cutoffs, sizes_at[threshold])
        measured.append(comparison.make_row(outcome.on(half)))
    return measured
