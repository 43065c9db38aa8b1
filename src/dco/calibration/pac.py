"""Coverage with confidence over calibrations (PAC): Bayesian quadrature."""

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
    pac_rank,
    smallest_pac_n,
)


@register
@dataclass(frozen=True)
class Pac(RankGuarantee):
    """The smallest score for which coverage is at least 1 - alpha with probability 1 - delta.

    The probability is over the draw of the calibration rows, which must be independent. On 0/1 loss
    this is Bayesian quadrature, and the binomial bound of Clopper and Pearson.
    """

    name = "pac"
    certifies = "pac"
    needs_delta = True
    needs_independent_rows = True
    claim = "a PAC statement"
    sentence = (
        "With confidence at least {sure} over the draw of the calibration rows, the prediction "
        "sets contain the true value for at least {level} of {many}{where}."
    )

    def __post_init__(self) -> None:
        as_rational(self.delta, name="delta")  # type: ignore[arg-type]  # None is refused there

    def rank(self, n: int, *, alpha: Fraction) -> int:
        return pac_rank(n, alpha=alpha, delta=self._failure_probability)

    def smallest_size(self, *, alpha: Fraction) -> int:
        return smallest_pac_n(alpha=alpha, delta=self._failure_probability)

    @property
    def _failure_probability(self) -> Fraction:
        assert self.delta is not None
        return self.delta


def bayesian_quadrature(scores: ArrayLike, *, alpha: Level, delta: Level) -> Threshold:
    """Return the smallest score whose risk bound L+ is at most alpha with probability 1 - delta.

    Bayesian quadrature (Snell and Griffiths 2025) for 0/1 loss, in closed form. With e uncovered
    rows, L+ is a sum of e + 1 of n + 1 uniform Dirichlet weights, hence Beta(e + 1, n - e), and no
    sampling is needed: the threshold is the (n - e)-th smallest score for the largest e with
    I_alpha(e + 1, n - e) >= 1 - delta. Claim (i.i.d. rows): P(coverage >= 1 - alpha) >= 1 - delta
    over the draw of the calibration rows.
    """
    level = as_rational(alpha)
    guarantee = Pac(as_rational(delta, name="delta"))
    threshold = guarantee.threshold(checked_scores(scores), alpha=level)
    guarantee.warn_if_infinite(threshold, alpha=level)
    return threshold
