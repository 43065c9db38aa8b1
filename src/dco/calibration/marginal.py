"""Marginal coverage: split conformal prediction."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from numpy.typing import ArrayLike

from dco.calibration.guarantee import RankGuarantee, register
from dco.foundations.ranks import (
    Level,
    Threshold,
    as_rational,
    checked_scores,
    conformal_rank,
    smallest_marginal_n,
)


@register
@dataclass(frozen=True)
class Marginal(RankGuarantee):
    """The k-th smallest score, k = ceil((n + 1)(1 - alpha)).

    A new row that is exchangeable with the calibration rows is covered with probability at least
    1 - alpha (the paper's Theorem 3.1).
    """

    name = "marginal"
    certifies = "marginal"
    weighs_rows = True
    claim = "marginal coverage"
    sentence = (
        "For {who}, the prediction set contains the true value with probability at least "
        "{level}{where}."
    )

    def rank(self, n: int, *, alpha: Fraction) -> int:
        return conformal_rank(n, alpha=alpha)

    def smallest_size(self, *, alpha: Fraction) -> int:
        return smallest_marginal_n(alpha=alpha)


def split_conformal(scores: ArrayLike, *, alpha: Level) -> Threshold:
    """Return the k-th smallest score, k = ceil((n + 1)(1 - alpha)); +inf if k = n + 1.

    Theorem 3.1 of the paper: a new row exchangeable with the n calibration rows is covered with
    probability >= 1 - alpha (and with probability k / (n + 1) when scores have no ties). It needs
    exchangeability and nothing else.
    """
    level = as_rational(alpha)
    guarantee = Marginal()
    threshold = guarantee.threshold(checked_scores(scores), alpha=level)
    guarantee.warn_if_infinite(threshold, alpha=level)
    return threshold
