"""Three rules that keep a bounded loss at or below alpha: conformal risk control, Bayesian
quadrature, RCPS.

Each takes losses (n, J) at ascending thresholds (J,) and gives the threshold of the first column
that passes its test. If none passes, the value is +inf, which is certified only if the caller
declares it safe with ``safe_at_infinity=True``.
"""

from __future__ import annotations

from bisect import bisect_left

from numpy.typing import ArrayLike

from dco import Threshold, pac_rank
from dco.foundations.ranks import Guarantee, Level, as_rational, rational
from dco.risk.loss_matrix import LossMatrix, RiskTest, TestName, is_zero_one, total
from dco.risk.quadrature import bq_failure


def conformal_risk_control(
    losses: ArrayLike,
    thresholds: ArrayLike,
    *,
    alpha: Level,
    bound: float = 1.0,
    safe_at_infinity: bool = False,
) -> Threshold:
    """The smallest threshold whose losses satisfy (sum + bound) / (n + 1) <= alpha.

    Angelopoulos, Bates, Fisch, Lei and Schuster (2024). `losses` is (n, J), never rising along a
    row; `thresholds` is (J,), ascending. Claim (exchangeable rows): the expected loss of a new row
    is at most alpha. The expectation is also over the calibration rows: this is not a PAC
    statement. With 0/1 loss and the calibration scores as thresholds it is split conformal
    prediction, rank for rank.

    Without ``safe_at_infinity=True`` (an infinite threshold loses at most alpha) the claim is about
    all draws of the calibration rows, with no loss counted in those that certify nothing: over the
    others alone the expected loss can exceed alpha.
    """
    given = LossMatrix.of(
        losses, thresholds, alpha=alpha, bound=bound, falling_for="conformal_risk_control"
    )
    n, columns = given.losses.shape
    limit = (given.level * (n + 1) - 1) * rational(given.bound)
    column = bisect_left(
        range(columns), True, key=lambda j: total(given.losses[:, j], border=limit) <= limit
    )
    return given.threshold_at(column, "expected_risk", safe_at_infinity=safe_at_infinity)


def bayesian_quadrature_risk(
    losses: ArrayLike,
    thresholds: ArrayLike,
    *,
    alpha: Level,
    delta: Level,
    bound: float = 1.0,
    safe_at_infinity: bool = False,
) -> Threshold:
    """The smallest threshold with P(L+ <= alpha) >= 1 - delta; L+ is the randomly weighted loss of
    `bq_confidence`.

    Snell and Griffiths (2025), without sampling. `losses` is (n, J), never rising along a row;
    `thresholds` is (J,), ascending.

    Where every loss given is 0 or `bound`, the claim is proved for i.i.d. rows: with probability >=
    1 - delta over the calibration rows the risk is at most alpha (guarantee "pac"); the threshold
    is `bayesian_quadrature`'s, rank for rank. It is proved even if the loss can take values between
    that these rows happen not to show. Such a loss, rounded up to the bound wherever it is above 0,
    is a 0/1 loss that falls with the threshold and is never smaller; on these rows the two agree
    and so do their thresholds. Hence "pac" with a risk above alpha comes with probability at most
    delta.

    For other losses the (1 - delta) quantile of L+ is Gaffke's (2005) bound on a mean, whose
    validity is conjectured and has no known counterexample (guarantee "pac-conjectured");
    `risk_controlling` has a proof.
    """
    given = LossMatrix.of(
        losses, thresholds, alpha=alpha, bound=bound, falling_for="bayesian_quadrature_risk"
    )
    scaled, failure = given.scaled, as_rational(delta, name="delta")
    n, columns = scaled.shape

    def passes(column: int) -> bool:
        row_losses = scaled[:, column]
        if is_zero_one(row_losses):
            return bool(n - row_losses.sum() >= pac_rank(n, alpha=given.level, delta=failure))
        return bq_failure(row_losses, given.level, at_most=float(failure)) <= float(failure)

    column = bisect_left(range(columns), True, key=passes)
    guarantee: Guarantee = "pac" if is_zero_one(scaled) else "pac-conjectured"
    return given.threshold_at(column, guarantee, delta=failure, safe_at_infinity=safe_at_infinity)


def risk_controlling(
    losses: ArrayLike,
    thresholds: ArrayLike,
    *,
    alpha: Level,
    delta: Level,
    bound: float = 1.0,
    test: TestName = "wsr",
    seed: int = 0,
    safe_at_infinity: bool = False,
) -> Threshold:
    """The smallest threshold reached from the safe end before the first column whose risk may
    exceed alpha.

    Risk-controlling prediction sets (Bates, Angelopoulos, Lei, Malik and Jordan 2021). `losses` is
    (n, J), `thresholds` (J,), ascending. Columns are tested from the last to the first, each at
    level delta, and the scan stops at the first failure. Claim (i.i.d. rows): with probability >= 1
    - delta over the calibration rows the risk at the threshold is at most alpha. For thresholds
      fixed beforehand this needs no monotone loss (it is fixed-sequence testing). Thresholds taken
    from the calibration scores need a loss that falls with the threshold in every row, and a test
    whose p-value falls with every loss, "binomial" or "hoeffding-bentkus": what passes at a
    threshold passes at all between it and the next. "wsr" is no such test. It needs all the
    thresholds at which a loss of these rows changes.

    `test`: "wsr" bets on the rows in one random order drawn from `seed`, shared by all columns;
    "hoeffding-bentkus" needs the mean only; "binomial" is exact for losses that are 0 or the bound,
    and is then `pac_rank`, rank for rank.
    """
    given = LossMatrix.of(losses, thresholds, alpha=alpha, bound=bound)
    failure = as_rational(delta, name="delta")
    columns = RiskTest(given.scaled, given.level, name=test, wager=float(failure), seed=seed)
    column = len(given.thresholds)
    while column > 0 and columns.passes(column - 1, failure):
        column -= 1
    return given.threshold_at(column, "pac", delta=failure, safe_at_infinity=safe_at_infinity)
