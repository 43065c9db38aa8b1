"""The two rules that deploy one order statistic of the calibration scores: split conformal and its PAC counterpart."""

from __future__ import annotations

from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats
from dco.foundations.ranks import (
    Level,
    Threshold,
    as_rational,
    checked_scores,
    conformal_rank,
    order_statistic,
    pac_rank,
    smallest_marginal_n,
    smallest_pac_n,
    warn_infeasible,
)


def split_conformal(scores: ArrayLike, *, alpha: Level) -> Threshold:
    """The k-th smallest score, k = ceil((n + 1)(1 - alpha)); +inf if k = n + 1.

    Theorem 3.1 of the paper: a new row exchangeable with the n calibration rows is covered with probability >= 1 - alpha
    (and with probability k / (n + 1) when scores have no ties). It needs exchangeability and nothing else.
    """
    threshold = split_threshold(checked_scores(scores), alpha=alpha)
    if threshold.rank == threshold.n + 1:
        warn_infeasible(threshold.n, smallest_marginal_n(alpha=alpha), f"marginal coverage at alpha = {threshold.alpha:g}")
    return threshold


def split_threshold(scores: Floats, *, alpha: Level) -> Threshold:
    """`split_conformal` of checked scores, without the warning."""
    rank = conformal_rank(scores.size, alpha=alpha)
    value = order_statistic(scores, rank)
    return Threshold(value, rank=rank, n=scores.size, guarantee="marginal", alpha=float(as_rational(alpha)))


def bayesian_quadrature(scores: ArrayLike, *, alpha: Level, delta: Level) -> Threshold:
    """The smallest score whose risk bound L+ is at most alpha with probability at least 1 - delta.

    Bayesian quadrature (Snell and Griffiths 2025) for 0/1 loss, in closed form.
    With e uncovered rows, L+ is a sum of e + 1 of n + 1 uniform Dirichlet weights, hence Beta(e + 1, n - e), and no sampling
    is needed: the threshold is the (n - e)-th smallest score for the largest e with I_alpha(e + 1, n - e) >= 1 - delta.
    Claim (i.i.d. rows): P(coverage >= 1 - alpha) >= 1 - delta over the draw of the calibration rows.
    """
    threshold = quadrature_threshold(checked_scores(scores), alpha=alpha, delta=delta)
    if threshold.rank == threshold.n + 1:
        warn_infeasible(
            threshold.n,
            smallest_pac_n(alpha=alpha, delta=delta),
            f"a PAC statement at alpha = {threshold.alpha:g}, delta = {float(as_rational(delta)):g}",
        )
    return threshold


def quadrature_threshold(scores: Floats, *, alpha: Level, delta: Level) -> Threshold:
    """`bayesian_quadrature` of checked scores, without the warning."""
    rank = pac_rank(scores.size, alpha=alpha, delta=delta)
    level, failure = float(as_rational(alpha)), float(as_rational(delta, name="delta"))
    return Threshold(order_statistic(scores, rank), rank=rank, n=scores.size, guarantee="pac", alpha=level, delta=failure)
