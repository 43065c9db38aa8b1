"""Section 6, the diagnostic that the paper proposes: does selection change on other tuning rows?

The paper would watch whether the chosen structure changes. Near-ties change often and cost nothing,
so what is measured here is the cost: the regret in mean size.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from dco.foundations.arrays import Floats, Integers
from dco.foundations.ranks import Level, order_statistic, size_quantile, tuning_rank
from dco.paper.methods import ScoredRows


@dataclass(frozen=True)
class Stability:
    """How selection behaves when the tuning rows are drawn again.

    ``best`` wins on all rows, ``wins`` counts the repetitions that each candidate wins.
    ``relative_regret`` is the mean of S(winner) - S(best) over repetitions, divided by S(best),
    where S is the mean size on all tuning rows: what unsettled selection costs.
    """

    best: str
    wins: Mapping[str, int]
    relative_regret: float
    repetitions: int


@dataclass(frozen=True, order=True)
class SampleResult:
    """How a candidate did on a sample of its tuning rows, at the threshold taken there.

    The smallest result wins: by mean size, then by P95 size, then by threshold, as in Algorithm 1.
    """

    mean_size: float
    p95_size: float
    threshold: float


def bootstrap_stability(
    candidates: Mapping[str, ScoredRows],
    *,
    alpha: Level,
    rng: np.random.Generator,
    repetitions: int = 200,
) -> Stability:
    """Measure how much the choice among candidates depends on the tuning rows that were drawn.

    The choice is that of Algorithm 1: the candidate with the smallest sets at risk <= alpha on the
    tuning rows. It is repeated on bootstrap samples, which draw as many of the rows again with
    replacement. `candidates` are scored on the same rows.
    """
    n = len(next(iter(candidates.values())).scores)
    sampled = {name: SampledCandidate(rows, alpha) for name, rows in candidates.items()}

    on_all_rows = {name: candidate.measure(np.arange(n)) for name, candidate in sampled.items()}
    best = min(on_all_rows, key=lambda name: on_all_rows[name])
    best_size = on_all_rows[best].mean_size

    wins: Counter[str] = Counter()
    losses: list[float] = []
    # Drawing n rows with replacement is drawing how often each row is in the sample.
    for times_drawn in rng.multinomial(n, np.full(n, 1 / n), size=repetitions):
        sample = np.repeat(np.arange(n), times_drawn)
        results = {name: candidate.measure(sample) for name, candidate in sampled.items()}
        winner = min(results, key=lambda name: results[name])
        wins[winner] += 1
        losses.append(on_all_rows[winner].mean_size - best_size)

    regret = math.fsum(losses) / repetitions
    return Stability(
        best=best,
        wins={name: wins[name] for name in candidates},
        relative_regret=regret / best_size if regret > 0 else 0.0,
        repetitions=repetitions,
    )


class SampledCandidate:
    """A candidate that is measured on samples of its tuning rows.

    Samples often have the same threshold, and the sizes of all sets at a threshold are computed
    once.
    """

    def __init__(self, rows: ScoredRows, alpha: Level) -> None:
        self.scores = rows.scores
        self.alpha = alpha
        self.sizes_at = cache(rows.sizes)

    def measure(self, sample: Integers) -> SampleResult:
        """Measure the sets of some rows at the smallest threshold with risk at most alpha there.

        `sample` holds positions of tuning rows; a row that was drawn twice is there twice.
        """
        rank = tuning_rank(len(sample), alpha=self.alpha)
        threshold = order_statistic(self.scores[sample], rank)
        sizes: Floats = self.sizes_at(threshold)[sample]
        return SampleResult(
            mean_size=float(sizes.mean()),
            p95_size=size_quantile(sizes, 0.95),
            threshold=threshold,
        )
