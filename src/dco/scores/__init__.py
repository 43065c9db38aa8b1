"""Scores: larger is stranger. Each offers `observed` for the label that happened and `sets`, its
inverse.

Names are loaded on first use, so that asking for one score does not load what the others need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dco.scores.bayesian_classes import AddOneIn, PosteriorNLL
    from dco.scores.classification import APS, LAC, RAPS, SAPS, LabelScore, Margin, TopK
    from dco.scores.decision import Actions, DecisionScore, RiskAverse, RiskOptimal, act
    from dco.scores.density import HighestDensityMass, PredictiveDensity
    from dco.scores.levelled import Levelled
    from dco.scores.never_empty import NeverEmpty
    from dco.scores.registry import register
    from dco.scores.regression import (
        AbsoluteResidual,
        NormalisedResidual,
        QuantileResidual,
    )
    from dco.scores.score import Score
    from dco.scores.transformed import Transformed, Within

# Each module's names; scores in the order in which they are tried.
HOMES = {
    "score": "Score",
    "registry": "register",
    "bayesian_classes": "AddOneIn PosteriorNLL",
    "classification": "APS LAC RAPS SAPS LabelScore Margin TopK",
    "never_empty": "NeverEmpty",
    "decision": "Actions DecisionScore RiskAverse RiskOptimal act",
    "regression": "AbsoluteResidual NormalisedResidual QuantileResidual",
    "transformed": "Transformed Within",
    "levelled": "Levelled",
    "density": "HighestDensityMass PredictiveDensity",
}
_MODULE_OF = {name: module for module, names in HOMES.items() for name in names.split()}

__all__ = [
    "APS",
    "LAC",
    "RAPS",
    "SAPS",
    "AbsoluteResidual",
    "Actions",
    "AddOneIn",
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
    "TopK",
    "Transformed",
    "Within",
    "act",
    "register",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"dco.scores.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'dco.scores' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
