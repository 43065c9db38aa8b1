"""Candidates, and the exact search for the smallest sets on tuning rows."""

from dco.tuning.evaluated import EvaluatedCandidate, evaluate_candidate
from dco.tuning.ranking import FailedCandidate, Ranking, RankingRow
from dco.tuning.search import direct_tune, rank_evaluated, tune, tuning_threshold

__all__ = [
    "EvaluatedCandidate",
    "FailedCandidate",
    "Ranking",
    "RankingRow",
    "direct_tune",
    "evaluate_candidate",
    "rank_evaluated",
    "tune",
    "tuning_threshold",
]
