"""Control the risk of a bounded loss: losses as matrices, and rules that take a threshold from
them.

``losses[i, j]`` is the loss of calibration row i at ``thresholds[j]``. The functions that make such
matrices are `miscoverage`, `false_negative_rate`, `false_discovery_rate`, `selective_error`,
`accepted` and `set_loss`; the rules are the other functions.
"""

from dco.risk.certified_settings import CertifiedSettings, learn_then_test, order_of_testing
from dco.risk.losses import (
    accepted,
    false_discovery_rate,
    false_negative_rate,
    miscoverage,
    selective_error,
    set_loss,
)
from dco.risk.quadrature import bq_confidence
from dco.risk.rules import (
    bayesian_quadrature_risk,
    conformal_risk_control,
    risk_controlling,
)

__all__ = [
    "CertifiedSettings",
    "accepted",
    "bayesian_quadrature_risk",
    "bq_confidence",
    "conformal_risk_control",
    "false_discovery_rate",
    "false_negative_rate",
    "learn_then_test",
    "miscoverage",
    "order_of_testing",
    "risk_controlling",
    "selective_error",
    "set_loss",
]
