"""Bayesian quadrature (Snell and Griffiths 2025) for any bounded loss that falls with the threshold, without sampling."""

from __future__ import annotations

from numpy.typing import ArrayLike

from dco.foundations.ranks import Level, Threshold, as_rational, pac_rank
from dco.guarantees.rules.bq_confidence import bq_failure
from dco.guarantees.rules.loss_matrix import (
    absolute_level,
    check_monotone,
    checked_bound,
    checked_losses,
    checked_thresholds,
    first_passing,
    is_zero_one,
    relative_level,
    threshold_of,
)


def bayesian_quadrature_risk(
    losses: ArrayLike,
    thresholds: ArrayLike,
    *,
    alpha: Level,
    delta: Level,
    bound: float = 1.0,
    safe_at_infinity: bool = False,
) -> Threshold:
    """The smallest threshold with P(L+ <= alpha) >= 1 - delta; L+ is the randomly weighted loss of `bq_confidence`.

    `losses` is (n, J), never rising along a row; `thresholds` is (J,), ascending.

    Where every loss given is 0 or `bound`, the claim is proved for i.i.d. rows: with probability >= 1 - delta over the
    calibration rows the risk is at most alpha (guarantee "pac"); the threshold is `bayesian_quadrature`'s, rank for rank.
    It is proved even if the loss can take values between that these rows happen not to show. Such a loss, rounded up to
    the bound wherever it is above 0, is a 0/1 loss that falls with the threshold and is never smaller; on these rows the
    two agree and so do their thresholds. Hence "pac" with a risk above alpha comes with probability at most delta.

    For other losses the (1 - delta) quantile of L+ is Gaffke's (2005) bound on a mean, whose validity is conjectured and
    has no known counterexample (guarantee "pac-conjectured"); `risk_controlling` has a proof.
    """
    scale = checked_bound(bound)
    matrix = checked_losses(losses, bound=scale)
    cuts = checked_thresholds(thresholds, matrix.shape[1])
    check_monotone(matrix, "bayesian_quadrature_risk")
    level, failure = relative_level(alpha, scale), as_rational(delta, name="delta")
    n = len(matrix)
    scaled = matrix / scale

    def passes(column: int) -> bool:
        row_losses = scaled[:, column]
        if is_zero_one(row_losses, 1.0):
            return n - int(row_losses.sum()) >= pac_rank(n, alpha=level, delta=failure)
        return bq_failure(row_losses, level, at_most=float(failure)) <= float(failure)

    return threshold_of(
        first_passing(len(cuts), passes),
        cuts,
        n=n,
        guarantee="pac" if is_zero_one(scaled, 1.0) else "pac-conjectured",
        alpha=float(absolute_level(level, scale)),
        delta=float(failure),
        safe_at_infinity=safe_at_infinity,
    )
