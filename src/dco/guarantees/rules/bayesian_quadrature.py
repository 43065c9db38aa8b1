"""Bayesian quadrature (Snell and Griffiths 2025) for 0/1 loss, in closed form."""

from __future__ import annotations

from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats
from dco.foundations.ranks import Level, as_rational, pac_rank, smallest_pac_n
from dco.foundations.threshold import Threshold, checked_scores, order_statistic, warn_infeasible


def bayesian_quadrature(scores: ArrayLike, *, alpha: Level, delta: Level) -> Threshold:
    """The smallest score whose risk bound L+ is at most alpha with probability at least 1 - delta.

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
