"""What is certified: facts and words of a certificate, their verification, and planning.

Names are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dco.calibration.facts import Check as Check
    from dco.certificate.certificate import Certificate as Certificate
    from dco.certificate.planning import Plan as Plan
    from dco.certificate.planning import PlannedSplit as PlannedSplit
    from dco.certificate.planning import plan as plan
    from dco.certificate.verification import VerificationReport as VerificationReport

_MODULE_OF = {
    "Check": "dco.calibration.facts",
    "Certificate": "dco.certificate.certificate",
    "Plan": "dco.certificate.planning",
    "PlannedSplit": "dco.certificate.planning",
    "plan": "dco.certificate.planning",
    "VerificationReport": "dco.certificate.verification",
}

__all__ = [
    "Certificate",
    "Check",
    "Plan",
    "PlannedSplit",
    "VerificationReport",
    "plan",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'dco.certificate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
