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

    It measures how settled a choice is: near 1 if the winner is clearly best, lower if chance
    decided. `winner` is the name of the candidate that won on all tuning rows; `candidates` are
    those that are compared again, the winner among them. The comparison must take one threshold for
    all rows, and an objective that reads no sets.
    """
    # 1. Draw the halves.
    n_rows = len(candidates[0])
    half_size = max(1, round(n_rows / 2))
    rng = np.random.default_rng([seed, _STREAM])
    halves = [rng.permutation(n_rows)[:half_size] for _ in range(N_HALVES)]

    # 2. Measure every candidate on every half.
    measured = [measure_on_halves(candidate, halves, comparison) for candidate in candidates]

    # 3. Count the halves that the winner wins.
    n_wins = 0
    for number in range(N_HALVES):
        rows_of_half = [rows_of_candidate[number] for rows_of_candidate in measured]
        best = put_in_order(rows_of_half, comparison.objective)[0]
        n_wins += best.name == winner
    return n_wins / N_HALVES


def measure_on_halves(
    candidate: EvaluatedCandidate, halves: Sequence[Integers], comparison: Comparison
) -> list[RankingRow]:
    """Measure a candidate on each half of the tuning rows, as if there were no other rows.

    `halves` holds the positions of the rows of each half. Returns a row of a ranking for each.
    """
    # 1. Take the smallest threshold that each half allows.
    thresholds = []
    for half in halves:
        weights = comparison.weights.take(half)
        scores = candidate.scores[half]
        thresholds.append(weights.smallest_threshold(scores, comparison.alpha))

    # 2. Compute the sizes of all sets, once for each different threshold: many halves share one.
    different_thresholds = np.unique(thresholds)
    sizes_of_all = candidate.size_curves(different_thresholds)  # a line for each, (J, n)
    sizes_at = dict(zip(different_thresholds.tolist(), sizes_of_all, strict=True))

    # 3. Measure the rows of each half at its threshold.
    measured = []
    for half, threshold in zip(halves, thresholds, strict=True):
        cutoffs = Cutoffs.equal(threshold)
        outcome = comparison.outcome_at(candidate, cutoffs, sizes_at[threshold])
        measured.append(comparison.make_row(outcome.on(half)))
    return measured
