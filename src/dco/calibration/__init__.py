"""The kinds of calibration: from scores of sealed rows to thresholds, and what these guarantee."""

from dco.calibration.by_cluster import grouped_conformal, one_row_per_group
from dco.calibration.guarantee import GUARANTEES, RankGuarantee, register
from dco.calibration.marginal import Marginal, split_conformal
from dco.calibration.overlapping_groups import conditional_conformal
from dco.calibration.pac import Pac, bayesian_quadrature
from dco.calibration.partitioned import partitioned_conformal
from dco.calibration.weighted import ShiftWeights, weighted_conformal
from dco.foundations.ranks import Threshold, WeightedThresholds

__all__ = [
    "GUARANTEES",
    "Marginal",
    "Pac",
    "RankGuarantee",
    "ShiftWeights",
    "Threshold",
    "WeightedThresholds",
    "bayesian_quadrature",
    "conditional_conformal",
    "grouped_conformal",
    "one_row_per_group",
    "partitioned_conformal",
    "register",
    "split_conformal",
    "weighted_conformal",
]
