"""The paper's search over thresholds: 80 quantiles of each candidate's tuning scores.

Our tables search exactly: of all thresholds the smallest feasible one is an order statistic. On a
grid the tuning risk of a candidate lands below the level by another amount for each, which can
change the winner, and nothing else: what is deployed is the same order statistic of the calibration
scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dco.foundations.arrays import Floats
from dco.foundations.ranks import Level, as_rational, size_quantile
from dco.paper.methods import METHODS, Choice, ScoredRows, Task, marginal_rule

THRESHOLDS = 80


@dataclass(frozen=True, order=True)
class GridTrial:
    """How a candidate did on tuning rows at its best threshold of the grid.

    The smallest trial wins; trials are compared field by field, from the first on.
    `infeasible_risk` is 0 where the tuning risk is at most alpha. Where no threshold of the grid is
    feasible it is the smallest tuning risk, by which the paper's fallback ranks.
    """

    infeasible_risk: float
    mean_size: float
    p95_size: float
    threshold: float


def choose_on_grid(task: Task, *, n_thresholds: int) -> Choice:
    """Choose as Algorithm 1 does, among `n_thresholds` for each candidate; then calibrate."""
    trials = {
        name: try_on_grid(on_roles.tune, alpha=task.alpha, n_thresholds=n_thresholds)
        for name, on_roles in task.candidates.items()
    }
    best = min(trials, key=lambda name: trials[name])
    deployed = task.deploy(best)
    return Choice(best, marginal_rule(task, deployed.calibrate.scores), deployed)


def try_on_grid(rows: ScoredRows, *, alpha: Level, n_thresholds: int) -> GridTrial:
    """Measure the sets of a candidate on its tuning rows at the best of `n_thresholds` thresholds.

    The best is the smallest one with risk (share of rows whose true value is not in the set) at
    most alpha on these rows. If no threshold of the grid has that, it is the smallest one with the
    lowest risk.
    """
    n = len(rows.scores)
    thresholds = grid_of(rows.scores, n_thresholds)  # ascending
    n_missed = np.array([np.count_nonzero(rows.scores > threshold) for threshold in thresholds])
    n_allowed = math.floor(as_rational(alpha) * n)

    fewest_missed = int(n_missed[-1])  # the largest threshold misses the fewest rows
    is_feasible = fewest_missed <= n_allowed
    most_missed = n_allowed if is_feasible else fewest_missed
    is_good_enough = n_missed <= most_missed
    threshold = float(thresholds[is_good_enough][0])

    sizes = rows.sizes(threshold)
    return GridTrial(
        infeasible_risk=0.0 if is_feasible else fewest_missed / n,
        mean_size=float(np.mean(sizes)),
        p95_size=size_quantile(sizes, 0.95),
        threshold=threshold,
    )


def grid_of(scores: Floats, n_thresholds: int) -> Floats:
    """Take quantiles of the finite scores at evenly spaced levels from 0 to 1, ascending.

    Between two scores they are interpolated, the usual reading of the paper's words.
    """
    finite = scores[np.isfinite(scores)]
    return np.unique(np.quantile(finite, np.linspace(0, 1, n_thresholds)))


GRID_DCO = replace(
    METHODS["dco_warmstart"], choose=partial(choose_on_grid, n_thresholds=THRESHOLDS)
)
