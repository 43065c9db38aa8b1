"""The exact full conformal set, from the points where residuals cross.

A value t of the new target is in the set if its residual is not among the largest:

    #{i <= n + 1 : |e_i(t)| >= |e_{n+1}(t)|} > alpha (n + 1)

Residuals are linear in t, so the values with |e_i(t)| >= |e_{n+1}(t)| are an interval around the
centre, or the line without an open interval. The set is where enough of them overlap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dco.foundations.arrays import Floats
from dco.foundations.ranks import Level, as_rational
from dco.full_conformal.residuals import Residuals

# Crossing points are moved outwards by this share of the residuals: equal rows have equal
# residuals, and rounding must not decide between them.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Overlaps:
    """For each of n rows, the values t for which its residual is at least as large as the new one.

    They are closed intervals [lower, upper], disjoint for each row; rows may have two.
    """

    n: int
    lower: Floats
    upper: Floats

    def p_value(self, t: float) -> float:
        """Return the share of the n + 1 rows whose residual is at least as large as the new one."""
        n_rows = np.count_nonzero((self.lower <= t) & (t <= self.upper))
        return float((n_rows + 1) / (self.n + 1))

    def find_set(self, alpha: Level) -> Floats:
        """Return the values t whose p-value exceeds alpha, as intervals (p, 2) from left to right.

        The new row counts as one of the n + 1. Without any other row the set is the whole line.
        """
        n_needed = math.floor(as_rational(alpha) * (self.n + 1))
        if n_needed == 0:
            return np.array([[-np.inf, np.inf]])

        # 1. Go along the line from end to end. Intervals that start are counted before others end.
        ends = np.concatenate([self.lower, self.upper])
        steps = np.repeat([1, -1], len(self.lower))
        from_left = np.lexsort((-steps, ends))
        is_in = np.cumsum(steps[from_left]) >= n_needed

        # 2. An interval of the set starts where the count reaches the number, and ends where it
        # falls below it.
        was_in = np.concatenate([[False], is_in[:-1]])
        starts = ends[from_left][is_in & ~was_in]
        stops = ends[from_left][was_in & ~is_in]
        return np.stack([starts, stops], axis=1)


def find_overlaps(residuals: Residuals) -> Overlaps:
    """Find for each row where its residual is at least as large as that of the new row.

    With u = t - centre, |r + b u| = |u| at u = r / (1 - b) and at u = -r / (1 + b).
    """
    r = residuals.at_centre
    b = residuals.slopes

    # 1. The two crossing points. If both residuals always are equal, there is none.
    with np.errstate(divide="ignore", invalid="ignore"):
        crossings = np.stack([r / (1 - b), -r / (1 + b)])
    always_equal = np.isnan(crossings).any(axis=0)
    left = np.where(always_equal, -np.inf, crossings.min(axis=0))
    right = np.where(always_equal, np.inf, crossings.max(axis=0))

    # 2. A residual that moves no faster than that of the new row is larger between these points.
    centre = residuals.centre
    slack = _ROUNDING * float(np.max(np.abs(r))) + 4 * float(np.spacing(abs(centre)))
    is_slow = np.abs(b) <= 1
    slow_lower = centre + left[is_slow] * (1 + _ROUNDING) - slack
    slow_upper = centre + right[is_slow] * (1 + _ROUNDING) + slack

    # 3. One that moves faster is larger outside of them. Both points lie on one side of the centre.
    fast_slack = slack + _ROUNDING * np.maximum(np.abs(left), np.abs(right))[~is_slow]
    gap_lower = centre + left[~is_slow] + fast_slack
    gap_upper = centre + right[~is_slow] - fast_slack
    has_gap = gap_lower < gap_upper

    below_gaps = np.where(has_gap, gap_lower, np.inf)  # up to here, or everywhere
    above_gaps = gap_upper[has_gap]
    return Overlaps(
        n=len(r),
        lower=np.concatenate([slow_lower, np.full(len(below_gaps), -np.inf), above_gaps]),
        upper=np.concatenate([slow_upper, below_gaps, np.full(len(above_gaps), np.inf)]),
    )
