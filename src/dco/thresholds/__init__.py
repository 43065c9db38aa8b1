"""Calibration rules: scores or losses in, one `Threshold` out."""

from dco.thresholds.bayesian_quadrature import bayesian_quadrature
from dco.thresholds.split_conformal import split_conformal
from dco.thresholds.threshold import Guarantee, Threshold

__all__ = ["Guarantee", "Threshold", "bayesian_quadrature", "split_conformal"]
