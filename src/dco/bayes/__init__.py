"""Bayesian engines: posterior draws of a sparse regression and of dropout networks, and full
conformal sets from posterior draws.

The models are imported when first used; they need scikit-learn, dropout networks also JAX.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dco.bayes.full_conformal_bayes import (
        CollapsedWeightsWarning,
        FullConformalSets,
        full_conformal_intervals,
        full_conformal_labels,
        full_conformal_p_values,
    )
    from dco.bayes.mc_dropout import MCDropoutClassifier
    from dco.bayes.sparse_regression import SparseBayesianRegression

_MODULE_OF = {
    "CollapsedWeightsWarning": "dco.bayes.full_conformal_bayes",
    "FullConformalSets": "dco.bayes.full_conformal_bayes",
    "MCDropoutClassifier": "dco.bayes.mc_dropout",
    "SparseBayesianRegression": "dco.bayes.sparse_regression",
    "full_conformal_intervals": "dco.bayes.full_conformal_bayes",
    "full_conformal_labels": "dco.bayes.full_conformal_bayes",
    "full_conformal_p_values": "dco.bayes.full_conformal_bayes",
}

__all__ = [
    "CollapsedWeightsWarning",
    "FullConformalSets",
    "MCDropoutClassifier",
    "SparseBayesianRegression",
    "full_conformal_intervals",
    "full_conformal_labels",
    "full_conformal_p_values",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'dco.bayes' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
