"""Coverage laws and sample sizes: what a split can be expected to give, before and after it is made."""

from dco.guarantees.theory.coverage import (
    Consistency,
    PacGap,
    coverage_consistency,
    coverage_law,
    coverage_law_of_rank,
    coverage_variance,
    hits_cdf,
    hits_law,
    pac_gap,
    ranks_near_threshold,
    simultaneous_slack,
)
from dco.guarantees.theory.sample_sizes import (
    CalibrationSize,
    RecalibrationBound,
    TuningAccuracy,
    calibration_size,
    least_wasteful_size,
    quantile_accuracy,
    quantile_distance,
    size_after_recalibration,
    tuning_accuracy,
    tuning_sample_size,
)

__all__ = [
    "CalibrationSize", "Consistency", "PacGap", "RecalibrationBound", "TuningAccuracy", "calibration_size",
    "coverage_consistency", "coverage_law", "coverage_law_of_rank", "coverage_variance", "hits_cdf", "hits_law",
    "least_wasteful_size", "pac_gap", "quantile_accuracy", "quantile_distance", "ranks_near_threshold", "simultaneous_slack",
    "size_after_recalibration", "tuning_accuracy", "tuning_sample_size",
]  # fmt: skip
