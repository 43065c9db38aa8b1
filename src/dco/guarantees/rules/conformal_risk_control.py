"""Conformal risk control (Angelopoulos, Bates, Fisch, Lei and Schuster 2024): the expected loss, without a delta."""

from __future__ import annotations

from numpy.typing import ArrayLike

from dco.foundations.ranks import Level, Threshold
from dco.guarantees.rules.loss_matrix import (
    absolute_level,
    check_monotone,
    checked_bound,
    checked_losses,
    checked_thresholds,
    first_passing,
    relative_level,
    threshold_of,
    total_at_most,
)


def conformal_risk_control(
    losses: ArrayLike, thresholds: ArrayLike, *, alpha: Level, bound: float = 1.0, safe_at_infinity: bool = False
) -> Threshold:
    """The smallest threshold whose losses satisfy (sum + bound) / (n + 1) <= alpha.

    `losses` is (n, J), never rising along a row; `thresholds` is (J,), ascending. Claim (exchangeable rows): the expected
    loss of a new row is at most alpha. The expectation is also over the calibration rows: this is not a PAC statement. With
    0/1 loss and the calibration scores as thresholds it is split conformal prediction, rank for rank.

    When no column passes the value is +inf; it is certified only with ``safe_at_infinity=True``, by which the caller
    declares that an infinite threshold loses at most alpha. Without it the claim is about all draws of the calibration rows,
    with no loss counted in those that certify nothing: over the others alone the expected loss can exceed alpha.
    """
    scale = checked_bound(bound)
    matrix = checked_losses(losses, bound=scale)
    cuts = checked_thresholds(thresholds, matrix.shape[1])
    check_monotone(matrix, "conformal_risk_control")
    level = relative_level(alpha, scale)
    limit = absolute_level(level * (len(matrix) + 1) - 1, scale)
    column = first_passing(len(cuts), lambda j: total_at_most(matrix[:, j], limit))
    return threshold_of(
        column,
        cuts,
        n=len(matrix),
        guarantee="expected_risk",
        alpha=float(absolute_level(level, scale)),
        delta=None,
        safe_at_infinity=safe_at_infinity,
    )
