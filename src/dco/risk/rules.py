"""Three rules that keep a bounded loss at or below alpha: CRC, Bayesian quadrature and RCPS.

Each takes losses (n, J) at ascending thresholds (J,) and gives the threshold of the first column
that passes its test. If none passes, the value is +inf, which is certified only if the caller
declares it safe with ``safe_at_infinity=True``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from functools import partial

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

    # (sum + bound) / (n + 1) <= alpha, solved for the sum of the losses.
    n = len(matrix.losses)
    largest_sum = (matrix.scaled_alpha * (n + 1) - 1) * rational(matrix.bound)
    column = find_first_column(matrix.losses, partial(sum_is_at_most, limit=largest_sum))
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

    The risk of a threshold is the mean loss of new rows. It is judged by Bayesian quadrature (Snell
    and Griffiths 2025): calibration rows get random weights, uniform among those that sum to 1, and
    the largest possible loss counts as one row more. A threshold passes if the weighted loss is at
    most alpha with probability at least 1 - delta over the weights, which `bq_confidence` computes
    without sampling.

    Where every loss given is 0 or `bound`, the guarantee is "pac" (i.i.d. rows): with probability
    at least 1 - delta over the calibration rows the risk is at most alpha. The threshold is then
    that of `bayesian_quadrature`. For other losses this is a conjecture (Gaffke 2005), without a
    known counterexample: the guarantee is "pac-conjectured". `risk_controlling` has a proof.

    Parameters
    ----------
    losses, thresholds
        Losses (n, J) that never rise along a row, and ascending thresholds (J,).
    alpha, delta, bound
        The limit of the risk, the failure probability, and the largest loss that is possible.
    safe_at_infinity
        Whether an infinite threshold, where no column passes, loses at most alpha.
    """
    matrix = read_loss_matrix(losses, thresholds, alpha=alpha, bound=bound)
    check_losses_fall(matrix.losses, rule="bayesian_quadrature_risk")
    exact_delta = as_rational(delta, name="delta")
    scaled_losses = matrix.scaled_losses

    is_small = partial(_is_risk_small, alpha=matrix.scaled_alpha, delta=exact_delta)
    column = find_first_column(scaled_losses, is_small)

    guarantee: Guarantee = "pac" if is_zero_one(scaled_losses) else "pac-conjectured"
    return matrix.threshold_at(
        column, guarantee, delta=exact_delta, safe_at_infinity=safe_at_infinity
    )


def _is_risk_small(losses: Floats, *, alpha: Fraction, delta: Fraction) -> bool:
    """Decide whether the weighted loss exceeds alpha with probability at most delta.

    The losses of one column, in [0, 1], get uniform random weights. For losses of 0 and 1 this is a
    question of ranks, decided in integers.
    """
    if is_zero_one(losses):
        n = len(losses)
        n_without_loss = n - losses.sum()
        return bool(n_without_loss >= pac_rank(n, alpha=alpha, delta=delta))
    return bq_failure(losses, alpha, at_most=float(delta)) <= float(delta)


def find_first_column(losses: Floats, passes: Callable[[Floats], bool]) -> int:
    """Find the first column whose losses pass, by bisection; the number of columns if none does.

    Losses fall from left to right, so that all columns after one that passes do so too.
    """
    n_columns = losses.shape[1]
    return bisect_left(range(n_columns), True, key=lambda column: passes(losses[:, column]))


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
    """Find the smallest threshold up to which, from the safe end, every column passes its test.

    Risk-controlling prediction sets (Bates, Angelopoulos, Lei, Malik and Jordan 2021). Columns are
    tested from the last to the first, each at level delta, until one fails. Claim (i.i.d. rows):
    with probability at least 1 - delta over the calibration rows the risk at the threshold is at
    most alpha.

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
    exact_delta = as_rational(delta, name="delta")
    tests = prepare_tests(
        matrix.scaled_losses,
        matrix.scaled_alpha,
        name=test,
        delta=float(exact_delta),
        random_state=random_state,
    )

    # From the safe end to the left, as long as the next column passes.
    column = len(matrix.thresholds)
    while column > 0 and tests.passes(column - 1, exact_delta):
        column -= 1
    return matrix.threshold_at(column, "pac", delta=exact_delta, safe_at_infinity=safe_at_infinity)
