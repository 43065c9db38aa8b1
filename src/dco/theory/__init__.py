"""What calibration rows imply, before and after they are opened: laws of coverage, and sizes.

`coverage` has the law of coverage and the test of an observed coverage, `sizes` says how many
calibration rows a wish needs. Ranks are exact, probabilities are floats.
"""

from dco.theory.coverage import (
    Consistency,
    coverage_consistency,
    coverage_law,
    coverage_law_of_rank,
    coverage_variance,
    hits_cdf,
    hits_law,
    ranks_near_threshold,
    simultaneous_slack,
)
from dco.theory.sizes import (
    CalibrationSize,
    PacGap,
    calibration_size,
    least_wasteful_size,
    pac_gap,
)

__all__ = [
    "CalibrationSize",
    "Consistency",
    "PacGap",
    "calibration_size",
    "coverage_consistency",
    "coverage_law",
    "coverage_law_of_rank",
    "coverage_variance",
    "hits_cdf",
    "hits_law",
    "least_wasteful_size",
    "pac_gap",
    "ranks_near_threshold",
    "simultaneous_slack",
]
