"""Prediction sets with a guarantee: search on training and tuning rows, calibrate once on sealed
rows.

Names are loaded on first use, so ``import dco`` costs little and pulls in no optional package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from dco import (
        bayes,
        calibration,
        certificate,
        datasets,
        evaluation,
        models,
        objectives,
        paper,
        recalibration,
        report,
        risk,
        scores,
        search,
        service,
        sets,
        storage,
        theory,
        tuning,
    )
    from dco.calibration import (
        ShiftWeights,
        Threshold,
        WeightedThresholds,
        bayesian_quadrature,
        conditional_conformal,
        grouped_conformal,
        one_row_per_group,
        partitioned_conformal,
        split_conformal,
        weighted_conformal,
    )
    from dco.calibration.facts import CertifiedThreshold
    from dco.certificate.certificate import Certificate
    from dco.certificate.planning import Plan, plan
    from dco.estimators import DecoupledClassifier, DecoupledRegressor
    from dco.evaluation.displays import (
        CoverageDisplay,
        RankingDisplay,
        SetsDisplay,
        SizeDisplay,
    )
    from dco.evaluation.evaluate import evaluate
    from dco.evaluation.evaluation import Evaluation
    from dco.evaluation.group_evaluation import GroupEvaluation, SizeSummary
    from dco.foundations.errors import (
        CorruptModelError,
        DcoError,
        IncompatibleScoreError,
        InfeasibleLevelError,
        InfeasibleLevelWarning,
        MissingExtraError,
        MissingTypeError,
        NonFiniteScoreError,
        OverlappingRolesError,
        SealBrokenError,
        UnsuitableWorkerError,
        UntrustedTypeError,
    )
    from dco.foundations.ranks import conformal_rank, pac_rank
    from dco.full_conformal.regressor import FullConformalRegressor
    from dco.models.grid import grid
    from dco.predictions import (
        ClassDraws,
        ClassProbabilities,
        GaussianMixtures,
        Points,
        PointsWithSpread,
        QuantileFunction,
        Quantiles,
        TargetDraws,
    )
    from dco.recalibration import recalibrate
    from dco.rows.seal import SealedRows
    from dco.rows.splits import Role, Splits, assign_roles
    from dco.service.displays import MonitorDisplay
    from dco.service.monitor import Monitor
    from dco.service.monitor_report import MonitorReport, WatchedCondition, WatchedSlice
    from dco.sets import Intervals, IntervalUnions, LabelSets
    from dco.storage.saving import load, save
    from dco.theory import coverage_law
    from dco.tuning import Ranking, direct_tune, tune
    from dco.tuning.select_and_calibrate import select_and_calibrate

_HOME = {
    "dco.certificate.certificate": "Certificate",
    "dco.foundations.errors": (
        "CorruptModelError DcoError IncompatibleScoreError InfeasibleLevelError "
        "InfeasibleLevelWarning MissingExtraError MissingTypeError "
        "NonFiniteScoreError OverlappingRolesError SealBrokenError UnsuitableWorkerError "
        "UntrustedTypeError"
    ),
    "dco.estimators": "DecoupledClassifier DecoupledRegressor",
    "dco.full_conformal": "FullConformalRegressor",
    "dco.evaluation.displays": "CoverageDisplay RankingDisplay SetsDisplay SizeDisplay",
    "dco.service.displays": "MonitorDisplay",
    "dco.evaluation.evaluate": "evaluate",
    "dco.evaluation.evaluation": "Evaluation",
    "dco.evaluation.group_evaluation": "GroupEvaluation SizeSummary",
    "dco.calibration.facts": "CertifiedThreshold",
    "dco.service.monitor": "Monitor",
    "dco.service.monitor_report": "MonitorReport WatchedCondition WatchedSlice",
    "dco.recalibration": "recalibrate",
    "dco.models.grid": "grid",
    "dco.tuning.select_and_calibrate": "select_and_calibrate",
    "dco.certificate.planning": "Plan plan",
    "dco.predictions": "ClassDraws ClassProbabilities GaussianMixtures Points PointsWithSpread "
    "QuantileFunction Quantiles TargetDraws",
    "dco.foundations.ranks": "conformal_rank pac_rank",
    "dco.rows.seal": "SealedRows",
    "dco.sets": "IntervalUnions Intervals LabelSets",
    "dco.rows.splits": "Role Splits assign_roles",
    "dco.storage.saving": "load save",
    "dco.calibration": (
        "ShiftWeights Threshold WeightedThresholds bayesian_quadrature conditional_conformal "
        "grouped_conformal one_row_per_group partitioned_conformal "
        "split_conformal weighted_conformal"
    ),
    "dco.theory": "coverage_law",
    "dco.tuning": "Ranking direct_tune tune",
}
# public modules, and where each lies
_MODULES = {
    "bayes": "dco.bayes",
    "calibration": "dco.calibration",
    "certificate": "dco.certificate",
    "datasets": "dco.datasets",
    "evaluation": "dco.evaluation",
    "models": "dco.models",
    "objectives": "dco.objectives",
    "paper": "dco.paper",
    "recalibration": "dco.recalibration",
    "report": "dco.report",
    "risk": "dco.risk",
    "scores": "dco.scores",
    "search": "dco.search",
    "service": "dco.service",
    "sets": "dco.sets",
    "storage": "dco.storage",
    "theory": "dco.theory",
    "tuning": "dco.tuning",
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = [
    "Certificate",
    "CertifiedThreshold",
    "ClassDraws",
    "ClassProbabilities",
    "CorruptModelError",
    "CoverageDisplay",
    "DcoError",
    "DecoupledClassifier",
    "DecoupledRegressor",
    "Evaluation",
    "FullConformalRegressor",
    "GaussianMixtures",
    "GroupEvaluation",
    "IncompatibleScoreError",
    "InfeasibleLevelError",
    "InfeasibleLevelWarning",
    "IntervalUnions",
    "Intervals",
    "LabelSets",
    "MissingExtraError",
    "MissingTypeError",
    "Monitor",
    "MonitorDisplay",
    "MonitorReport",
    "NonFiniteScoreError",
    "OverlappingRolesError",
    "Plan",
    "Points",
    "PointsWithSpread",
    "QuantileFunction",
    "Quantiles",
    "Ranking",
    "RankingDisplay",
    "Role",
    "SealBrokenError",
    "SealedRows",
    "SetsDisplay",
    "ShiftWeights",
    "SizeDisplay",
    "SizeSummary",
    "Splits",
    "TargetDraws",
    "Threshold",
    "UnsuitableWorkerError",
    "UntrustedTypeError",
    "WatchedCondition",
    "WatchedSlice",
    "WeightedThresholds",
    "assign_roles",
    "bayes",
    "bayesian_quadrature",
    "calibration",
    "certificate",
    "conditional_conformal",
    "conformal_rank",
    "coverage_law",
    "datasets",
    "direct_tune",
    "evaluate",
    "evaluation",
    "grid",
    "grouped_conformal",
    "load",
    "models",
    "objectives",
    "one_row_per_group",
    "pac_rank",
    "paper",
    "partitioned_conformal",
    "plan",
    "recalibrate",
    "recalibration",
    "report",
    "risk",
    "save",
    "scores",
    "search",
    "select_and_calibrate",
    "service",
    "sets",
    "split_conformal",
    "storage",
    "theory",
    "tune",
    "tuning",
    "weighted_conformal",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    if name in _MODULES:
        return import_module(_MODULES[name])
    raise AttributeError(f"module 'dco' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
