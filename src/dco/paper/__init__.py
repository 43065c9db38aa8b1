"""The experiments of the paper, one after the other by its sections, and those beyond it.

`reproduce` rebuilds a table or a figure; `METHODS` is the paper's Table 1, which `dco compare` runs
on a table of the user. Modules are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dco.paper.bounds import (
        quantile_accuracy,
        quantile_distance,
        size_after_recalibration,
        tuning_accuracy,
        tuning_sample_size,
    )
    from dco.paper.catalogue import Reproduction, experiments_of, list_experiments, reproduce
    from dco.paper.experiment import (
        Experiment,
        Options,
        Row,
        SplitRecord,
        group_by,
        rows_of,
    )
    from dco.paper.methods import (
        EFCP,
        METHODS,
        TABLE_ROWS,
        Choice,
        Method,
        OnRoles,
        RoleName,
        ScoredRows,
        Task,
        score_on_roles,
    )
    from dco.paper.paired import PairedComparison, paired_comparison, paired_wilcoxon
    from dco.paper.records import run_splits
    from dco.paper.stability import Stability, bootstrap_stability
    from dco.paper.tables import Measured, ResultTable

_NAMES = {
    "bounds": "quantile_accuracy quantile_distance size_after_recalibration tuning_accuracy "
    "tuning_sample_size",
    "catalogue": "Reproduction experiments_of list_experiments reproduce",
    "experiment": "Experiment Options Row SplitRecord group_by rows_of",
    "methods": "EFCP METHODS TABLE_ROWS Choice Method OnRoles RoleName ScoredRows Task "
    "score_on_roles",
    "paired": "PairedComparison paired_comparison paired_wilcoxon",
    "records": "run_splits",
    "stability": "Stability bootstrap_stability",
    "tables": "Measured ResultTable",
}
_MODULE_OF = {
    name: f"dco.paper.{module}" for module, names in _NAMES.items() for name in names.split()
}

__all__ = [
    "EFCP",
    "METHODS",
    "TABLE_ROWS",
    "Choice",
    "Experiment",
    "Measured",
    "Method",
    "OnRoles",
    "Options",
    "PairedComparison",
    "Reproduction",
    "ResultTable",
    "RoleName",
    "Row",
    "ScoredRows",
    "SplitRecord",
    "Stability",
    "Task",
    "bootstrap_stability",
    "experiments_of",
    "group_by",
    "list_experiments",
    "paired_comparison",
    "paired_wilcoxon",
    "quantile_accuracy",
    "quantile_distance",
    "reproduce",
    "rows_of",
    "run_splits",
    "score_on_roles",
    "size_after_recalibration",
    "tuning_accuracy",
    "tuning_sample_size",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'dco.paper' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
