"""Risk-controlling prediction sets (Bates, Angelopoulos, Lei, Malik and Jordan 2021): a PAC statement for a bounded loss."""

from __future__ import annotations

from typing import Literal

from numpy.typing import ArrayLike

from dco.foundations.ranks import Level, Threshold, as_rational
from dco.guarantees.rules.loss_matrix import (
    absolute_level,
    checked_bound,
    checked_losses,
    checked_thresholds,
    relative_level,
    threshold_of,
)
from dco.guarantees.rules.risk_tests import risk_test


def risk_controlling(
    losses: ArrayLike,
    thresholds: ArrayLike,
    *,
    alpha: Level,
    delta: Level,
    bound: float = 1.0,
    test: Literal["wsr", "hoeffding-bentkus", "binomial"] = "wsr",
    seed: int = 0,
    safe_at_infinity: bool = False,
) -> Threshold:
    """The smallest threshold reached from the safe end before the first column whose risk may exceed alpha.

    `losses` is (n, J), `thresholds` (J,), ascending. Columns are tested from the last to the first, each at level delta, and
    the scan stops at the first failure. Claim (i.i.d. rows): with probability >= 1 - delta over the calibration rows the
    risk at the threshold is at most alpha. For thresholds fixed beforehand this needs no monotone loss (it is fixed-sequence
    testing). Thresholds taken from the calibration scores need a loss that falls with the threshold in every row, and a test
    whose p-value falls with every loss, "binomial" or "hoeffding-bentkus": what passes at a threshold passes at all between
    it and the next. "wsr" is no such test. It needs all the thresholds at which a loss of these rows changes.

    `test`: "wsr" bets on the rows in one random order drawn from `seed`, shared by all columns; "hoeffding-bentkus" needs
    the mean only; "binomial" is exact for losses that are 0 or the bound, and is then `pac_rank`, rank for rank.
    """
    scale = checked_bound(bound)
    matrix = checked_losses(losses, bound=scale) / scale
    cuts = checked_thresholds(thresholds, matrix.shape[1])
    level, failure = relative_level(alpha, scale), as_rational(delta, name="delta")
    columns = risk_test(matrix, level, name=test, wager=float(failure), seed=seed)
    column = len(cuts)
    while column > 0 and columns.passes(column - 1, failure):
        column -= 1
    return threshold_of(
        column,
        cuts,
        n=len(matrix),
        guarantee="pac",
        alpha=float(absolute_level(level, scale)),
        delta=float(failure),
        safe_at_infinity=safe_at_infinity,
    )
