"""A rule in one file: split conformal at half the level."""

from dataclasses import dataclass

from dco.calibration.rules.rule import Rule, register_rule
from dco.foundations.ranks import as_rational, conformal_rank, smallest_marginal_n


@dataclass(frozen=True)
class Halved(Rule):
    """The (n + 1)(1 - alpha / 2)-th smallest score."""

    name = "halved"
    certifies = "marginal"
    needs_delta = False
    exchangeable = True
    claim = "marginal coverage, with room to spare"
    sentence = (
        "For {who}, the prediction set contains the true value with probability well "
        "above {level}{where}."
    )

    def rank(self, n, *, alpha, delta=None):
        return conformal_rank(n, alpha=as_rational(alpha) / 2)

    def smallest_n(self, *, alpha, delta=None):
        return smallest_marginal_n(alpha=as_rational(alpha) / 2)


register_rule(Halved())
