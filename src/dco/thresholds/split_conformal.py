"""Split conformal prediction: one order statistic, marginal coverage."""

from __future__ import annotations

from numpy.typing import ArrayLike

from dco.ranks import Level, as_rational, conformal_rank, smallest_marginal_n
from dco.thresholds.threshold import Threshold, checked_scores, order_statistic, warn_infeasible


def split_conformal(scores: ArrayLike, *, alpha: Level) -> Threshold:
    """The k-th smallest score, k = ceil((n + 1)(1 - alpha)); +inf if k = n + 1.

    Theorem 3.1 of the paper: a new row exchangeable with the n calibration rows is covered with probability >= 1 - alpha
    (and with probability k / (n + 1) when scores have no ties). It needs exchangeability and nothing else.
    """
    values = checked_scores(scores)
    rank = conformal_rank(values.size, alpha=alpha)
    if rank > values.size:
        warn_infeasible(
            values.size, smallest_marginal_n(alpha=alpha), f"marginal coverage at alpha = {float(as_rational(alpha)):g}"
        )
    return Threshold(
        order_statistic(values, rank), rank=rank, n=values.size, guarantee="marginal", alpha=float(as_rational(alpha))
    )
