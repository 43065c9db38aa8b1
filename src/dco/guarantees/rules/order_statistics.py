"""The two rules that deploy one order statistic of the calibration scores: split conformal and its PAC counterpart."""

from __future__ import annotations

from numpy.typing import ArrayLike

from dco.foundations.ranks import Level, Threshold, checked_scores, warn_infeasible
from dco.guarantees.rules.rule import PAC, SPLIT_CONFORMAL, Rule


def split_conformal(scores: ArrayLike, *, alpha: Level) -> Threshold:
    """The k-th smallest score, k = ceil((n + 1)(1 - alpha)); +inf if k = n + 1.

    Theorem 3.1 of the paper: a new row exchangeable with the n calibration rows is covered with probability >= 1 - alpha
    (and with probability k / (n + 1) when scores have no ties). It needs exchangeability and nothing else.
    """
    return with_warning(SPLIT_CONFORMAL, SPLIT_CONFORMAL.threshold(checked_scores(scores), alpha=alpha), alpha, None)


def bayesian_quadrature(scores: ArrayLike, *, alpha: Level, delta: Level) -> Threshold:
    """The smallest score whose risk bound L+ is at most alpha with probability at least 1 - delta.

    Bayesian quadrature (Snell and Griffiths 2025) for 0/1 loss, in closed form. With e uncovered rows, L+ is a sum of e + 1
    of n + 1 uniform Dirichlet weights, hence Beta(e + 1, n - e), and no sampling is needed: the threshold is the (n - e)-th
    smallest score for the largest e with I_alpha(e + 1, n - e) >= 1 - delta.
    Claim (i.i.d. rows): P(coverage >= 1 - alpha) >= 1 - delta over the draw of the calibration rows.
    """
    return with_warning(PAC, PAC.threshold(checked_scores(scores), alpha=alpha, delta=delta), alpha, delta)


def with_warning(rule: Rule, threshold: Threshold, alpha: Level, delta: Level | None) -> Threshold:
    """The threshold, with a warning if there are too few rows for a finite one."""
    if threshold.rank == threshold.n + 1:
        at = f"alpha = {threshold.alpha:g}" + ("" if threshold.delta is None else f", delta = {threshold.delta:g}")
        warn_infeasible(threshold.n, rule.smallest_n(alpha=alpha, delta=delta), f"{rule.claim} at {at}")
    return threshold
