"""TopK, the rank of the label."""

from __future__ import annotations

from dataclasses import dataclass

from dco.foundations.arrays import Array
from dco.predictions import ClassProbabilities
from dco.scores.rank_score import RankedLabels, RankScore
from dco.scores.registry import register


@dataclass(frozen=True)
class TopK(RankScore):
    """The rank of the label, 1 to K: sets of one size."""

    def along_ranks(self, labels: RankedLabels) -> Array:
        """Return the ranks."""
        return labels.rank


register(TopK, name="topk", defaults=(TopK(),), records=(ClassProbabilities,))
