"""Split conformal prediction: one order statistic, marginal coverage."""

from __future__ import annotations

from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats
from dco.foundations.ranks import Level, as_rational, conformal_rank, smallest_marginal_n
from dco.foundations.threshold import Threshold, checked_scores, order_statistic, warn_infeasible


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
