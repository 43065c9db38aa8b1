"""What the statistical suites share: whether they run at full size, and how far a mean may lie from
what is claimed.

"Within 4 standard errors" of a mean over independent draws fails by chance in 1 of 16,000 checks,
or 1 of 30,000 on one side. All seeds are fixed.
"""

import os

import numpy as np

FULL = os.environ.get("DCO_GUARANTEES") == "full"
ignore_infeasible = "ignore::dco.foundations.errors.InfeasibleLevelWarning"


def check_mean(values, low=-np.inf, high=np.inf, *, errors=4.0) -> None:
    """Check that the mean of independent values lies from low to high, up to so many standard
    errors; `-s` prints it.
    """
    mean = float(np.mean(values))
    error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
    line = f"mean {mean:.4f} +- {error:.4f}, wanted {low:.4f} to {high:.4f}"
    print(f"\n{line}")
    assert low - errors * error <= mean <= high + errors * error, line


def check_loses(values, level, *, errors=5.0) -> None:
    """Check that the mean is below the level by so many standard errors: a mistake that shows."""
    check_mean(values, high=level, errors=-errors)
