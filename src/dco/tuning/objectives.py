"""What candidates are ranked by: a sort key of a row of the ranking, smaller is better. A new one needs an entry here."""

from __future__ import annotations

from dco.tuning.ranking import Objective, RankingRow
from dco.tuning.search import mean_size


def p95_size(row: RankingRow) -> tuple[float, ...]:
    """The P95 size, then the mean size, then the threshold."""
    return row.p95_size, row.mean_size, row.ranking_threshold


OBJECTIVES: dict[str, Objective] = {"mean_size": mean_size, "p95_size": p95_size}
