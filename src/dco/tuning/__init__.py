"""Candidates and the exact search for the smallest sets on tuning rows."""

from dco.tuning.ranking import EvaluatedCandidate, FailedCandidate, Ranking, RankingRow
from dco.tuning.search import direct_tune, evaluate_candidate, rank_evaluated, tune, tune_levels
from dco.tuning.stability import (
    Stability,
    bootstrap_stability,
    split_stability,
)
from dco.tuning.strategies import Exhaustive, Found, Optuna, Random, Strategy, Trial

__all__ = [
    "EvaluatedCandidate",
    "Exhaustive",
    "FailedCandidate",
    "Found",
    "Optuna",
    "Random",
    "Ranking",
    "RankingRow",
    "Stability",
    "Strategy",
    "Trial",
    "bootstrap_stability",
    "direct_tune",
    "evaluate_candidate",
    "rank_evaluated",
    "split_stability",
    "tune",
    "tune_levels",
]
