"""Scores: how strange a label is for a prediction. Each inverts itself into prediction sets.

Names are loaded on first use, so that asking for one score does not load what the others need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dco.scores.aps import APS, RAPS
    from dco.scores.bayesian_classes import AddOneIn, PosteriorNLL
    from dco.scores.central_mass import CentralMass
    from dco.scores.decision import Actions, DecisionScore, RiskAverse, RiskOptimal, act
    from dco.scores.density import HighestDensityMass, PredictiveDensity
    from dco.scores.label_score import LabelScore
    from dco.scores.lac import LAC
    from dco.scores.levelled import Levelled
    from dco.scores.margin import Margin
    from dco.scores.never_empty import NeverEmpty
    from dco.scores.registry import register, short_names
    from dco.scores.regression import AbsoluteResidual, NormalisedResidual, QuantileResidual
    from dco.scores.saps import SAPS
    from dco.scores.score import Score
    from dco.scores.shortest_mass import ShortestMass
    from dco.scores.top_k import TopK
    from dco.scores.transformed import Transformed, Within

# Modules with their public names. Their order is that in which scores are tried.
NAMES_BY_MODULE = {
    "score": ["Score"],
    "registry": ["register", "short_names"],
    "label_score": ["LabelScore"],
    "bayesian_classes": ["PosteriorNLL", "AddOneIn"],
    "lac": ["LAC"],
    "aps": ["APS", "RAPS"],
    "saps": ["SAPS"],
    "top_k": ["TopK"],
    "margin": ["Margin"],
    "never_empty": ["NeverEmpty"],
    "decision": ["Actions", "DecisionScore", "RiskAverse", "RiskOptimal", "act"],
    "regression": ["AbsoluteResidual", "NormalisedResidual", "QuantileResidual"],
    "transformed": ["Transformed", "Within"],
    "levelled": ["Levelled"],
    "central_mass": ["CentralMass"],
    "shortest_mass": ["ShortestMass"],
    "density": ["PredictiveDensity", "HighestDensityMass"],
}

__all__ = [
    "APS",
    "LAC",
    "RAPS",
    "SAPS",
    "AbsoluteResidual",
    "Actions",
    "AddOneIn",
    "CentralMass",
    "DecisionScore",
    "HighestDensityMass",
    "LabelScore",
    "Levelled",
    "Margin",
    "NeverEmpty",
    "NormalisedResidual",
    "PosteriorNLL",
    "PredictiveDensity",
    "QuantileResidual",
    "RiskAverse",
    "RiskOptimal",
    "Score",
    "ShortestMass",
    "TopK",
    "Transformed",
    "Within",
    "act",
    "register",
    "short_names",
]


def __getattr__(name: str) -> Any:
    for module, names in NAMES_BY_MODULE.items():
        if name in names:
            return getattr(import_module(f"dco.scores.{module}"), name)
    raise AttributeError(f"module 'dco.scores' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
