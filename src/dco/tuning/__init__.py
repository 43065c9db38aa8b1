"""Candidates, and the exact search for the smallest sets on tuning rows."""

from dco.tuning.default_models import make_default_models
from dco.tuning.fitted_candidates import FittedCandidates, fit_candidates
from dco.tuning.ranking import FailedCandidate, Ranking, RankingRow
from dco.tuning.search import direct_tune, tune

__all__ = [
    "FailedCandidate",
    "FittedCandidates",
    "Ranking",
    "RankingRow",
    "direct_tune",
    "fit_candidates",
    "make_default_models",
    "tune",
]
