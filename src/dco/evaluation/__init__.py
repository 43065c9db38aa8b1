"""Coverage and size on rows with known targets, of a whole table or of its parts.

Names are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dco.evaluation.evaluation import Evaluation as Evaluation
    from dco.evaluation.group_evaluation import GroupEvaluation as GroupEvaluation
    from dco.evaluation.group_evaluation import SizeSummary as SizeSummary
    from dco.evaluation.in_parts import PartCounts as PartCounts
    from dco.evaluation.in_parts import evaluate_counts as evaluate_counts

_MODULE_OF = {
    "Evaluation": "dco.evaluation.evaluation",
    "GroupEvaluation": "dco.evaluation.group_evaluation",
    "SizeSummary": "dco.evaluation.group_evaluation",
    "PartCounts": "dco.evaluation.in_parts",
    "evaluate_counts": "dco.evaluation.in_parts",
}

__all__ = [
    "Evaluation",
    "GroupEvaluation",
    "PartCounts",
    "SizeSummary",
    "evaluate_counts",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'dco.evaluation' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
