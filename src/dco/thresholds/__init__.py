"""Calibration rules: scores or losses in, one `Threshold` out."""

from dco.thresholds.bayesian_quadrature import bayesian_quadrature
from dco.thresholds.bayesian_quadrature_risk import bayesian_quadrature_risk
from dco.thresholds.bq_confidence import bq_confidence
from dco.thresholds.conformal_risk_control import conformal_risk_control
from dco.thresholds.grouped import grouped_conformal, one_row_per_group
from dco.thresholds.learn_then_test import CertifiedSettings, learn_then_test, order_of_testing
from dco.thresholds.risk_controlling import risk_controlling
from dco.thresholds.split_conformal import split_conformal
from dco.thresholds.threshold import Guarantee, Threshold
from dco.thresholds.two_ends import two_ends

__all__ = [
    "CertifiedSettings",
    "Guarantee",
    "Threshold",
    "bayesian_quadrature",
    "bayesian_quadrature_risk",
    "bq_confidence",
    "conformal_risk_control",
    "grouped_conformal",
    "learn_then_test",
    "one_row_per_group",
    "order_of_testing",
    "risk_controlling",
    "split_conformal",
    "two_ends",
]
