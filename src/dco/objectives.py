"""What a search minimises: objectives for the estimators' ``objective=`` and for `dco.tune`."""

from dco.tuning.objectives import (
    DecisionLoss,
    Even,
    MeanSize,
    Objective,
    Outcome,
    P95Size,
    register_objective,
)

__all__ = [
    "DecisionLoss",
    "Even",
    "MeanSize",
    "Objective",
    "Outcome",
    "P95Size",
    "register_objective",
]
