"""Beyond the paper (its Section 6 calls it open): tune on more rows until selection has settled.

The rows that are left calibrate.

Why the guarantee survives: the rows come in an order fixed in advance, and whether to take more is
decided by rows already taken, so the final number of tuning rows is a stopping time; given it and
the tuning rows, the untouched rows and a new row are still exchangeable. Deciding by anything seen
on the untouched rows (the resulting width, say) loses coverage.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

# Selection has settled where choosing on other tuning rows would cost at most 1 % of the size.
SETTLED_REGRET = 0.01


@dataclass(frozen=True)
class TuningSize:
    """How many of the first rows tune, and whether selection had settled on them."""

    n_tune: int
    has_settled: bool


def grow_tuning_split(
    has_settled: Callable[[int], bool], *, start: int, largest: int, growth: float
) -> TuningSize:
    """Find how many rows tune: more and more of them, until selection has settled.

    Parameters
    ----------
    has_settled
        Says whether selection has settled on the first n rows of a fixed order. It may look at
        these rows and at no others.
    start
        The number of rows that is tried first.
    largest
        The number of rows at which to stop in any case; calibration needs the others.
    growth
        The factor between one number and the next.
    """
    if largest < 1:
        raise ValueError(
            "calibration needs all rows and leaves none for tuning; bring more rows, or ask for a "
            "larger alpha."
        )
    n_tune = min(start, largest)
    while not has_settled(n_tune):
        if n_tune == largest:
            return TuningSize(n_tune, has_settled=False)
        more_rows = max(n_tune + 1, math.ceil(n_tune * growth))
        n_tune = min(more_rows, largest)
    return TuningSize(n_tune, has_settled=True)
