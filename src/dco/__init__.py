"""Prediction sets with a guarantee: search on training and tuning rows, calibrate once on sealed rows.

Names are loaded on first use, so ``import dco`` costs little and pulls in no optional package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dco import scores, sets, theory
    from dco.errors import (
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
    from dco.predictions import (
        ClassDraws,
        ClassProbabilities,
        GaussianMixtures,
        Points,
        PointsWithSpread,
        Quantiles,
    )
    from dco.ranks import conformal_rank, pac_rank
    from dco.sets import Intervals, IntervalUnions, LabelSets
    from dco.thresholds import Threshold, bayesian_quadrature, split_conformal

_HOME = {
    "dco.errors": (
        "CorruptModelError DcoError IncompatibleScoreError InfeasibleLevelError InfeasibleLevelWarning MissingExtraError "
        "NonFiniteScoreError OverlappingRolesError SealBrokenError UntrustedTypeError"
    ),
    "dco.ranks": "conformal_rank pac_rank",
    "dco.predictions": "ClassDraws ClassProbabilities GaussianMixtures Points PointsWithSpread Quantiles",
    "dco.sets": "IntervalUnions Intervals LabelSets",
    "dco.thresholds": "Threshold bayesian_quadrature split_conformal",
}
_MODULES = ("scores", "sets", "theory")
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = [*_MODULES, *_MODULE_OF]  # noqa: PLE0604  # names, listed once above


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    if name in _MODULES:
        return import_module(f"dco.{name}")
    raise AttributeError(f"module 'dco' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
