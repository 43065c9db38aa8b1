"""Prediction sets with a guarantee: search on training and tuning rows, calibrate once on sealed
rows.

Names are loaded on first use, so ``import dco`` costs little and pulls in no optional package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from dco import losses, models, scores, search, sets
    from dco.estimators import DecoupledClassifier, DecoupledRegressor
    from dco.evaluation import scoring
    from dco.evaluation.displays import (
        CoverageDisplay,
        RankingDisplay,
        SetsDisplay,
        SizeDisplay,
    )
    from dco.evaluation.evaluate import Evaluation, evaluate, paired_comparison, paired_wilcoxon
    from dco.foundations.errors import (
        CorruptModelError,
        DcoError,
        IncompatibleScoreError,
        InfeasibleLevelError,
        InfeasibleLevelWarning,
        MissingExtraError,
        NonFiniteScoreError,
        OverlappingRolesError,
        SealBrokenError,
        UntrustedTypeError,
    )
    from dco.foundations.ranks import conformal_rank, pac_rank
    from dco.guarantees import full_conformal_bayes, theory
    from dco.guarantees import rules as thresholds
    from dco.guarantees.certificate import Certificate
    from dco.guarantees.planning import Plan, plan
    from dco.guarantees.rules import (
        Threshold,
        bayesian_quadrature,
        bayesian_quadrature_risk,
        bq_confidence,
        conditional_conformal,
        conformal_risk_control,
        grouped_conformal,
        learn_then_test,
        order_of_testing,
        partitioned_conformal,
        risk_controlling,
        split_conformal,
        weighted_conformal,
    )
    from dco.guarantees.select_and_calibrate import select_and_calibrate
    from dco.guarantees.shift import ShiftWeights
    from dco.models.grid import grid
    from dco.predictions import (
        ClassDraws,
        ClassProbabilities,
        GaussianMixtures,
        Points,
        PointsWithSpread,
        Quantiles,
    )
    from dco.reproduction import datasets
    from dco.rows.roles import Role, Splits, assign_roles
    from dco.rows.rows import SealedRows
    from dco.service.displays import MonitorDisplay
    from dco.service.monitor import Monitor, MonitorReport, WatchedCondition, WatchedSlice
    from dco.service.recalibration import recalibrate
    from dco.sets import Intervals, IntervalUnions, LabelSets
    from dco.storage.saving import load, save
    from dco.tuning import (
        Ranking,
        bootstrap_stability,
        direct_tune,
        objectives,
        split_stability,
        tune,
        tune_levels,
    )

_HOME = {
    "dco.guarantees.certificate": "Certificate",
    "dco.foundations.errors": (
        "CorruptModelError DcoError IncompatibleScoreError InfeasibleLevelError "
        "InfeasibleLevelWarning MissingExtraError "
        "NonFiniteScoreError OverlappingRolesError SealBrokenError UntrustedTypeError"
    ),
    "dco.estimators": "DecoupledClassifier DecoupledRegressor",
    "dco.evaluation.displays": "CoverageDisplay RankingDisplay SetsDisplay SizeDisplay",
    "dco.service.displays": "MonitorDisplay",
    "dco.evaluation.evaluate": "Evaluation evaluate paired_comparison paired_wilcoxon",
    "dco.service.monitor": "Monitor MonitorReport WatchedCondition WatchedSlice",
    "dco.service.recalibration": "recalibrate",
    "dco.models.grid": "grid",
    "dco.guarantees.select_and_calibrate": "select_and_calibrate",
    "dco.guarantees.shift": "ShiftWeights",
    "dco.guarantees.planning": "Plan plan",
    "dco.predictions": "ClassDraws ClassProbabilities GaussianMixtures Points PointsWithSpread "
    "Quantiles",
    "dco.foundations.ranks": "conformal_rank pac_rank",
    "dco.rows.rows": "SealedRows",
    "dco.sets": "IntervalUnions Intervals LabelSets",
    "dco.rows.roles": "Role Splits assign_roles",
    "dco.storage.saving": "load save",
    "dco.guarantees.rules": (
        "Threshold bayesian_quadrature bayesian_quadrature_risk bq_confidence "
        "conditional_conformal conformal_risk_control "
        "grouped_conformal learn_then_test order_of_testing partitioned_conformal "
        "risk_controlling split_conformal "
        "weighted_conformal"
    ),
    "dco.tuning": "Ranking bootstrap_stability direct_tune split_stability tune tune_levels",
}
_MODULES = {
    "datasets": "dco.reproduction.datasets",
    "full_conformal_bayes": "dco.guarantees.full_conformal_bayes",
    "losses": "dco.losses",
    "models": "dco.models",
    "objectives": "dco.tuning.objectives",
    "scores": "dco.scores",
    "scoring": "dco.evaluation.scoring",
    "search": "dco.search",
    "sets": "dco.sets",
    "theory": "dco.guarantees.theory",
    "thresholds": "dco.guarantees.rules",
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = [*_MODULES, *_MODULE_OF]  # noqa: PLE0604  # names, listed once above


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    if name in _MODULES:
        return import_module(_MODULES[name])
    raise AttributeError(f"module 'dco' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
