"""Beyond the paper (its Section 6 calls it open): a tuning split that grows until selection has
settled, and leaves the rest to calibration.

Why the guarantee survives: the rows come in an order fixed in advance, and whether to take more is
decided by rows already taken, so the final number of tuning rows is a stopping time; given it and
the tuning rows, the untouched rows and a new row are still exchangeable. Deciding by anything seen
on the untouched rows (the resulting width, say) loses coverage.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

SETTLED_REGRET = 0.01  # selection has settled where its expected regret is at most 1 % of the size


@dataclass(frozen=True)
class GrownSplit:
    """How many of the first rows tune, and whether selection had settled on them."""

    n_tune: int
    has_settled: bool


def grow_tuning_split(
    has_settled: Callable[[int], bool], *, start: int, largest: int, growth: float
) -> GrownSplit:
    """Take the first rows of a fixed order for tuning until selection has settled on them.

    ``has_settled(n)`` may look at the first n rows and at nothing else of these rows. It is asked
    at `start` rows and then whenever their number has grown by the factor `growth`; calibration
    needs what lies beyond `largest`.
    """
    if largest < 1:
        raise ValueError(
            "calibration needs all rows and leaves none for tuning; bring more rows, or ask for a "
            "larger alpha."
        )
    n_tune = min(start, largest)
    while not has_settled(n_tune):
        if n_tune == largest:
            return GrownSplit(n_tune, has_settled=False)
        n_tune = min(max(n_tune + 1, math.ceil(n_tune * growth)), largest)
    return GrownSplit(n_tune, has_settled=True)
