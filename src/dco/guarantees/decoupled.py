"""DCO on arrays: choose a structure on tuning rows, then take one order statistic of its calibration scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dco.foundations.arrays import Floats
from dco.foundations.ranks import Level
from dco.guarantees.rules import Threshold
from dco.tuning import EvaluatedCandidate, Ranking, rank_evaluated
from dco.tuning.objectives import Aimed


@dataclass(frozen=True)
class Decoupled:
    """The chosen structure, the ranking that chose it, and the threshold of its calibration scores."""

    best: str
    threshold: Threshold
    ranking: Ranking


def choose_and_calibrate(
    tuning: Sequence[EvaluatedCandidate],
    calibration_scores: Callable[[str], Floats],
    rule: Callable[[Floats], Threshold],
    *,
    alpha: Level,
    objective: Aimed = "mean_size",
) -> Decoupled:
    """Algorithm 1 of the paper: the smallest mean size at tuning risk <= alpha wins; `rule` certifies it.

    ``calibration_scores(name)`` is called once, with the name of the winner: this is where a caller refits and opens the
    calibration rows. The tuning threshold stays in the ranking and is not deployed. The claim is the one of `rule` for a
    structure fixed in advance, because the winner is a function of the tuning rows alone. Another `objective` may choose.
    """
    ranking = rank_evaluated(tuning, alpha=alpha, objective=objective)
    return Decoupled(ranking.best, rule(calibration_scores(ranking.best)), ranking)
