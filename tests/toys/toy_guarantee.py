"""A guarantee in one file: split conformal at half the level."""

from dataclasses import dataclass

from dco import conformal_rank
from dco.calibration import RankGuarantee, register
from dco.foundations.ranks import smallest_marginal_n


@register
@dataclass(frozen=True)
class Halved(RankGuarantee):
    """The (n + 1)(1 - alpha / 2)-th smallest score."""

    name = "halved"
    certifies = "marginal"
    claim = "marginal coverage, with room to spare"
    sentence = (
        "For {who}, the prediction set contains the true value with probability well "
        "above {level}{where}."
    )

    def rank(self, n, *, alpha):
        return conformal_rank(n, alpha=alpha / 2)

    def smallest_size(self, *, alpha):
        return smallest_marginal_n(alpha=alpha / 2)
