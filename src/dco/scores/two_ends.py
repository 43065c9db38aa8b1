"""A threshold for each of two scores, with one exact law of coverage for both: statistical blocks."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations import ranks
from dco.foundations.ranks import Level, Threshold


def two_ends(
    first: ArrayLike, second: ArrayLike, *, alpha: Level, delta: Level | None = None
) -> tuple[Threshold, Threshold]:
    """Thresholds s and t, so that a new row has ``first <= s`` and ``second <= t`` with probability at least 1 - alpha.

    Let k be `conformal_rank`, or with `delta` `pac_rank`, and e = n + 1 - k the rows that may be missed: a = ceil(e / 2) by
    the first score, b = floor(e / 2) by the second. s is the a-th largest first score. The a rows that lie highest there
    (of equal ones those with the larger second score) are put aside, and t is the b-th largest second score of the rest.
    This order is part of the rule: it must not be chosen by looking at the calibration rows.

    A new row is missed if it is among the a highest of all n + 1 by the first score, or among the b highest of the others
    by the second: exchangeable rows are covered with probability k / (n + 1) without ties, and at least that with ties. For
    i.i.d. rows coverage is Beta(n + 1 - a, a) times an independent Beta(k, b), which is Beta(k, n + 1 - k): with `delta` it
    is at least 1 - alpha with probability at least 1 - delta (Wald 1943; Tukey 1947). Neither threshold is ever above that
    of its score alone at alpha / 2 and delta / 2. With e < 2 both are infinite.

    Neither certifies anything by itself: each says so, and keeps its rank among the n or n - a rows it was taken from.
    """
    lower, upper = ranks.checked_scores(first), ranks.checked_scores(second)
    if lower.shape != upper.shape:
        raise ValueError(f"two scores per row are needed, got {lower.size} first and {upper.size} second scores.")
    n, level = lower.size, ranks.as_rational(alpha)
    failure = None if delta is None else ranks.as_rational(delta, name="delta")
    misses = n + 1 - ranks.rank_for(n, alpha=level, delta=failure)
    statement = {"guarantee": "none", "alpha": float(level), "delta": None if failure is None else float(failure)}
    if misses < 2:
        at = f"alpha = {float(level):g}" + ("" if failure is None else f", delta = {float(failure):g}")
        ranks.warn_infeasible(n, smallest_two_ended_n(alpha=level, delta=failure), f"a threshold at each end at {at}")
        none = Threshold(math.inf, rank=n + 1, n=n, **statement)  # type: ignore[arg-type]
        return none, none
    b = misses // 2
    a = misses - b
    rest = upper[np.lexsort((upper, lower))[: n - a]]
    return (
        Threshold(ranks.order_statistic(lower, n + 1 - a), rank=n + 1 - a, n=n, **statement),  # type: ignore[arg-type]
        Threshold(ranks.order_statistic(rest, n - a + 1 - b), rank=n - a + 1 - b, n=n - a, **statement),  # type: ignore[arg-type]
    )


def smallest_two_ended_n(*, alpha: Level, delta: Level | None = None) -> int:
    """The least n at which two rows may be missed, one at each end: ceil(2 / alpha) - 1, or by `pac_rank`."""
    level = ranks.as_rational(alpha)
    if delta is None:
        return ranks.smallest_marginal_n(alpha=level / 2)
    n = ranks.smallest_pac_n(alpha=level, delta=delta)
    while ranks.pac_rank(n, alpha=level, delta=delta) > n - 1:
        n += 1
    return n
