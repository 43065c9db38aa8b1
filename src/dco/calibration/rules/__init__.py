"""Calibration rules: scores or losses in, one `Threshold` out."""

from dco.calibration.rules.overlapping import conditional_conformal
from dco.calibration.rules.rule import (
    RULES,
    Rule,
    bayesian_quadrature,
    partitioned_conformal,
    register_rule,
    split_conformal,
)
from dco.calibration.rules.weighted import grouped_conformal, one_row_per_group, weighted_conformal
from dco.foundations.ranks import Guarantee, Threshold, WeightedThresholds

__all__ = [
    "RULES",
    "Guarantee",
    "Rule",
    "Threshold",
    "WeightedThresholds",
    "bayesian_quadrature",
    "conditional_conformal",
    "grouped_conformal",
    "one_row_per_group",
    "partitioned_conformal",
    "register_rule",
    "split_conformal",
    "weighted_conformal",
]
