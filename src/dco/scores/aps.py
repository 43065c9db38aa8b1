"""APS and RAPS, the mass of all labels that are at least as probable."""

from __future__ import annotations

from dataclasses import dataclass

from dco.foundations.arrays import Array, namespace
from dco.foundations.ranks import as_count
from dco.scores.rank_score import RankedLabels, RankScore, check_not_negative
from dco.scores.registry import register


@dataclass(frozen=True)
class APS(RankScore):
    """The mass of all labels ranked up to y, Romano, Sesia and Candes (2020).

    Randomised: less U p(y), one uniform U per row; coverage is then not inflated by large steps,
    and sets may be empty.
    """

    randomised: bool = False

    def along_ranks(self, labels: RankedLabels) -> Array:
        """Return the mass up to each label."""
        return labels.mass(randomised=self.randomised)


@dataclass(frozen=True)
class RAPS(RankScore):
    """APS plus penalty * max(0, rank - rank_free), Angelopoulos et al. (2021).

    The penalty keeps labels far down the ranks out of the sets.
    """

    penalty: float
    rank_free: int
    randomised: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "penalty", check_not_negative(self.penalty, "penalty"))
        object.__setattr__(self, "rank_free", as_count(self.rank_free, name="rank_free"))

    def along_ranks(self, labels: RankedLabels) -> Array:
        """Return the mass up to each label plus the penalty on its rank."""
        xp = namespace(labels.rank)
        ranks_to_pay = xp.clip(labels.rank - self.rank_free, 0.0, None)
        return labels.mass(randomised=self.randomised) + self.penalty * ranks_to_pay


register(APS, name="aps", defaults=(APS(),))
register(
    RAPS, name="raps", defaults=(RAPS(penalty=0.01, rank_free=1), RAPS(penalty=0.1, rank_free=1))
)
