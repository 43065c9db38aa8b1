"""The two rules that deploy one order statistic of the calibration scores: split conformal and its PAC counterpart."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats, Integers
from dco.foundations.ranks import (
    Level,
    Threshold,
    checked_scores,
    conformal_rank,
    pac_rank,
    smallest_marginal_n,
    smallest_pac_n,
    warn_infeasible,
)
from dco.guarantees.rules.grouped import grouped_threshold
from dco.guarantees.rules.rule import Rule, register_rule


@dataclass(frozen=True)
class SplitConformal(Rule):
    """`split_conformal` for checked scores; rows that belong together weigh as one (`grouped_conformal`)."""

    name = "marginal"
    certifies = "marginal"
    needs_delta = False
    exchangeable = True
    one_per_cluster = False
    claim = "marginal coverage"
    sentence = "For {who}, the prediction set contains the true value with probability at least {level}{where}."

    def rank(self, n: int, *, alpha: Level, delta: Level | None = None) -> int:
        """`conformal_rank`."""
        return conformal_rank(n, alpha=alpha)

    def smallest_n(self, *, alpha: Level, delta: Level | None = None) -> int:
        """`smallest_marginal_n`."""
        return smallest_marginal_n(alpha=alpha)

    def threshold(
        self, scores: Floats, *, alpha: Level, delta: Level | None = None, clusters: Integers | None = None
    ) -> Threshold:
        """The order statistic, or with `clusters` the quantile in which each cluster weighs the same."""
        return (
            super().threshold(scores, alpha=alpha) if clusters is None else grouped_threshold(scores, clusters, alpha=alpha)
        )


@dataclass(frozen=True)
class Pac(Rule):
    """`bayesian_quadrature` for checked scores."""

    name = "pac"
    certifies = "pac"
    needs_delta = True
    exchangeable = False
    one_per_cluster = True
    claim = "a PAC statement"
    sentence = (
        "With confidence at least {sure} over the draw of the calibration rows, the prediction sets contain the true value "
        "for at least {level} of {many}{where}."
    )

    def rank(self, n: int, *, alpha: Level, delta: Level | None = None) -> int:
        """`pac_rank`."""
        return pac_rank(n, alpha=alpha, delta=delta)  # type: ignore[arg-type]  # None is refused there

    def smallest_n(self, *, alpha: Level, delta: Level | None = None) -> int:
        """`smallest_pac_n`."""
        return smallest_pac_n(alpha=alpha, delta=delta)  # type: ignore[arg-type]  # None is refused there


SPLIT_CONFORMAL = register_rule(SplitConformal())
PAC = register_rule(Pac())


def split_conformal(scores: ArrayLike, *, alpha: Level) -> Threshold:
    """The k-th smallest score, k = ceil((n + 1)(1 - alpha)); +inf if k = n + 1.

    Theorem 3.1 of the paper: a new row exchangeable with the n calibration rows is covered with probability >= 1 - alpha
    (and with probability k / (n + 1) when scores have no ties). It needs exchangeability and nothing else.
    """
    return _with_warning(SPLIT_CONFORMAL, scores, alpha, None)


def bayesian_quadrature(scores: ArrayLike, *, alpha: Level, delta: Level) -> Threshold:
    """The smallest score whose risk bound L+ is at most alpha with probability at least 1 - delta.

    Bayesian quadrature (Snell and Griffiths 2025) for 0/1 loss, in closed form. With e uncovered rows, L+ is a sum of e + 1
    of n + 1 uniform Dirichlet weights, hence Beta(e + 1, n - e), and no sampling is needed: the threshold is the (n - e)-th
    smallest score for the largest e with I_alpha(e + 1, n - e) >= 1 - delta.
    Claim (i.i.d. rows): P(coverage >= 1 - alpha) >= 1 - delta over the draw of the calibration rows.
    """
    return _with_warning(PAC, scores, alpha, delta)


def _with_warning(rule: Rule, scores: ArrayLike, alpha: Level, delta: Level | None) -> Threshold:
    threshold = rule.threshold(checked_scores(scores), alpha=alpha, delta=delta)
    if threshold.rank == threshold.n + 1:
        at = f"alpha = {threshold.alpha:g}" + ("" if threshold.delta is None else f", delta = {threshold.delta:g}")
        warn_infeasible(threshold.n, rule.smallest_n(alpha=alpha, delta=delta), f"{rule.claim} at {at}")
    return threshold
