"""Calibration rules: scores or losses in, one `Threshold` out."""

from dco.foundations.ranks import Guarantee, Threshold, WeightedThresholds
from dco.guarantees.rules.bq_confidence import bq_confidence
from dco.guarantees.rules.learn_then_test import (
    CertifiedSettings,
    learn_then_test,
    order_of_testing,
)
from dco.guarantees.rules.overlapping import conditional_conformal
from dco.guarantees.rules.risk_control import (
    bayesian_quadrature_risk,
    conformal_risk_control,
    risk_controlling,
)
from dco.guarantees.rules.rule import (
    RULES,
    Rule,
    bayesian_quadrature,
    partitioned_conformal,
    register_rule,
    split_conformal,
)
from dco.guarantees.rules.weighted import grouped_conformal, one_row_per_group, weighted_conformal

__all__ = [
    "RULES",
    "CertifiedSettings",
    "Guarantee",
    "Rule",
    "Threshold",
    "WeightedThresholds",
    "bayesian_quadrature",
    "bayesian_quadrature_risk",
    "bq_confidence",
    "conditional_conformal",
    "conformal_risk_control",
    "grouped_conformal",
    "learn_then_test",
    "one_row_per_group",
    "order_of_testing",
    "partitioned_conformal",
    "register_rule",
    "risk_controlling",
    "split_conformal",
    "weighted_conformal",
]
