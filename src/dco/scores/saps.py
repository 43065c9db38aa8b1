"""SAPS, which replaces all probabilities but the largest by the rank of the label."""

from __future__ import annotations

from dataclasses import dataclass

from dco.foundations.arrays import Array, namespace
from dco.predictions import ClassProbabilities
from dco.scores.rank_score import RankedLabels, RankScore, check_not_negative
from dco.scores.registry import register


@dataclass(frozen=True)
class SAPS(RankScore):
    """U p_max for the top label, else p_max + (rank - 2 + U) weight, Huang et al. (2024).

    Of the probabilities only the largest is used, and otherwise the ranks. U is a uniform number
    per row if the score is randomised, and 1 if not.
    """

    weight: float
    randomised: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", check_not_negative(self.weight, "weight"))

    def along_ranks(self, labels: RankedLabels) -> Array:
        """Return the formula above."""
        later = labels.largest + (labels.rank - 2.0 + labels.uniform) * self.weight
        if not self.randomised:  # at the first rank this is p_max already
            return later
        top = labels.uniform * labels.largest
        return namespace(later).where(labels.rank == 1.0, top, later)


register(SAPS, name="saps", defaults=(SAPS(weight=0.1),), records=(ClassProbabilities,))
