"""What the statistical suites share: whether they run at full size, and how far a mean may lie from
what is claimed.

"Within 4 standard errors" of a mean over independent draws fails by chance in 1 of 16,000 checks,
or 1 of 30,000 on one side. All seeds are fixed.
"""

import os

import numpy as np

FULL = os.environ.get("DCO_GUARANTEES") == "full"
ignore_infeasible = "ignore::dco.foundations.errors.InfeasibleLevelWarning"


def check_mean(values, least=-np.inf, most=np.inf, *, errors=4.0) -> None:
    """The mean of independent values lies between these ends, up to so many standard errors;
    printed by `-s`.
    """
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
    told = f"mean {mean:.4f} +- {error:.4f}, wanted {least:.4f} to {most:.4f}"
    print(f"\n{told}")
    assert least - errors * error <= mean <= most + errors * error, told


def check_loses(values, level, *, errors=5.0) -> None:
    """The mean is below the level by so many standard errors: a mistake that coverage shows."""
    check_mean(values, most=level, errors=-errors)
