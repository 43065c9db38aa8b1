"""Three rules that keep a bounded loss at or below alpha: CRC, Bayesian quadrature and RCPS.

Each takes losses (n, J) at ascending thresholds (J,) and gives the threshold of the first column
that passes its test. If none passes, the value is +inf, which is certified only if the caller
declares it safe with ``safe_at_infinity=True``.
"""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction

from numpy.typing import ArrayLike

from dco import Threshold, pac_rank
from dco.foundations.arrays import Floats
from dco.foundations.ranks import Guarantee, Level, as_rational, rational
from dco.risk.column_tests import TestName, prepare_tests
from dco.risk.loss_matrix import (
    check_losses_fall,
    is_zero_one,
    read_loss_matrix,
    sum_is_at_most,
)
from dco.risk.quadrature import bq_failure


def conformal_risk_control(
    losses: ArrayLike,
    thresholds: ArrayLike,
    *,
    alpha: Level,
    bound: float = 1.0,
    safe_at_infinity: bool = False,
) -> Threshold:
    """Find the smallest threshold whose losses satisfy (sum + bound) / (n + 1) <= alpha.

    Claim (exchangeable rows): the expected loss of a new row is at most alpha (Angelopoulos, Bates,
    Fisch, Lei and Schuster 2024). The expectation is also over the calibration rows: this is not a
    PAC statement. With 0/1 loss and the calibration scores as thresholds it is split conformal
    prediction, rank for rank.

    Parameters
    ----------
    losses, thresholds
        Losses (n, J) that never rise along a row, and ascending thresholds (J,).
    alpha
        What the expected loss may be at most.
    bound
        The largest loss that is possible at all.
    safe_at_infinity
        Whether an infinite threshold loses at most alpha. Without it the claim is about all draws
        of the calibration rows, with no loss counted in those that certify nothing: over the others
        alone the expected loss can exceed alpha.
    """
    matrix = read_loss_matrix(losses, thresholds, alpha=alpha, bound=bound)
    check_losses_fall(matrix.losses, rule="conformal_risk_control")

    n, n_columns = matrix.losses.shape
    limit = (matrix.level * (n + 1) - 1) * rational(matrix.bound)

    def passes(column: int) -> bool:
        return sum_is_at_most(matrix.losses[:, column], limit)

    column = bisect_left(range(n_columns), True, key=passes)
    return matrix.threshold_at(column, "expected_risk", safe_at_infinity=safe_at_infinity)


def bayesian_quadrature_risk(
    losses: ArrayLike,
    thresholds: ArrayLike,
    *,
    alpha: Level,
    delta: Level,
    bound: float = 1.0,
    safe_at_infinity: bool = False,
) -> Threshold:
    """Find the smallest threshold whose risk is at most alpha with probability 1 - delta.

    Bayesian quadrature (Snell and Griffiths 2025): rows get uniform random weights, and the
    largest possible loss counts once more. A threshold passes if the weighted loss is at most alpha
    with probability at least 1 - delta over the weights, which `bq_confidence` computes without
    sampling. `losses` (n, J) never rise along a row, `thresholds` (J,) ascend.

    Where every loss given is 0 or `bound`, the guarantee is "pac" (i.i.d. rows): with probability
    at least 1 - delta over the calibration rows the risk is at most alpha. The threshold is then
    that of `bayesian_quadrature`. For other losses this is a conjecture (Gaffke 2005), without a
    known counterexample: the guarantee is "pac-conjectured". `risk_controlling` has a proof.
    """
    matrix = read_loss_matrix(losses, thresholds, alpha=alpha, bound=bound)
    check_losses_fall(matrix.losses, rule="bayesian_quadrature_risk")
    exact_delta = as_rational(delta, name="delta")
    scaled = matrix.scaled

    def passes(column: int) -> bool:
        return _is_risk_small(scaled[:, column], matrix.level, exact_delta)

    n_columns = scaled.shape[1]
    column = bisect_left(range(n_columns), True, key=passes)
    guarantee: Guarantee = "pac" if is_zero_one(scaled) else "pac-conjectured"
    return matrix.threshold_at(
        column, guarantee, delta=exact_delta, safe_at_infinity=safe_at_infinity
    )


def _is_risk_small(losses: Floats, level: Fraction, delta: Fraction) -> bool:
    """Whether the weighted loss exceeds the level with probability at most delta.

    For losses of 0 and 1 this is a question of ranks, decided in integers.
    """
    if is_zero_one(losses):
        n = len(losses)
        n_without_loss = n - losses.sum()
        return bool(n_without_loss >= pac_rank(n, alpha=level, delta=delta))
    return bq_failure(losses, level, at_most=float(delta)) <= float(delta)


def risk_controlling(
    losses: ArrayLike,
    thresholds: ArrayLike,
    *,
    alpha: Level,
    delta: Level,
    bound: float = 1.0,
    test: TestName = "wsr",
    random_state: int = 0,
    safe_at_infinity: bool = False,
) -> Threshold:
    """Find the smallest threshold before the first column, from the safe end, that fails its test.

    Risk-controlling prediction sets (Bates, Angelopoulos, Lei, Malik and Jordan 2021). Columns are
    tested from the last to the first, each at level delta. Claim (i.i.d. rows): with probability at
    least 1 - delta over the calibration rows the risk at the threshold is at most alpha.

    Parameters
    ----------
    losses, thresholds
        Losses (n, J), and ascending thresholds (J,). For thresholds fixed beforehand any losses
        will do. Thresholds taken from the calibration scores need losses that never rise along a
        row, and the test "binomial" or "hoeffding-bentkus".
    alpha, delta, bound
        The limit of the risk, the failure probability, and the largest loss that is possible.
    test
        "wsr" bets on the rows in one random order, shared by all columns; "hoeffding-bentkus" needs
        the mean only; "binomial" is exact for losses that are 0 or the bound, and is then
        `pac_rank`, rank for rank.
    random_state
        The seed of the order of betting.
    safe_at_infinity
        Whether an infinite threshold loses at most alpha.
    """
    matrix = read_loss_matrix(losses, thresholds, alpha=alpha, bound=bound)
    failure = as_rational(delta, name="delta")
    tests = prepare_tests(
        matrix.scaled, matrix.level, name=test, delta=float(failure), random_state=random_state
    )

    column = len(matrix.thresholds)
    while column > 0 and tests.passes(column - 1, failure):
        column -= 1
    return matrix.threshold_at(column, "pac", delta=failure, safe_at_infinity=safe_at_infinity)
