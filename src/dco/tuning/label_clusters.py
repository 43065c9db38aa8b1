"""Labels that share a threshold: those too rare for one of their own join labels whose scores are
like theirs.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray, Floats
from dco.rows.conditions import rows_by_condition

# times the rows that a finite threshold needs: so many are expected that it is finite almost surely
ENOUGH = 4
_AVERAGE_ROWS = 2  # of the average label, added to each label: few rows say little


def label_clusters(
    scores: Floats, labels: AnyArray, seen: AnyArray, classes: AnyArray, *, rows: int, least: int
) -> tuple[tuple[Any, ...], ...]:
    """The labels that share each threshold: one alone if it expects `least` of `rows` calibration
    rows, or several.

    `scores` and `labels` are those of the tuning rows, `seen` the labels of all rows but
    calibration rows, which say how many rows a label expects. Rare labels are ordered by how high
    their scores are, and neighbours share a threshold until `least` rows are expected; what is left
    over joins the cluster nearest to it, and so do, together, the labels that only calibration rows
    may have. After Ding, Angelopoulos, Bates, Jordan and Tibshirani (2023), who learn clusters of
    score quantiles on a part of the calibration rows. Claim: clusters do not depend on calibration
    rows, so each cluster has the guarantee of a condition (Mondrian); a label in it has none.
    """
    count = Counter(seen.tolist())
    expected = {label: rows * count[label] / max(len(seen), 1) for label in classes.tolist()}
    ranks = np.searchsorted(np.sort(scores), scores, side="right") / max(len(scores), 1)
    own = {label: ranks[places] for label, places in rows_by_condition(labels).items()}
    height = {label: _height(own.get(label, ranks[:0])) for label in expected}
    made: list[list[Any]] = [[label] for label in expected if expected[label] >= least]
    run: list[Any] = []
    rare = [label for label in expected if 0 < expected[label] < least]
    for label in sorted(rare, key=lambda label: height[label]):
        run.append(label)
        if sum(expected[one] for one in run) >= least:
            made.append(run)
            run = []
    if run and made:
        _nearest(made, height, [height[label] for label in run]).extend(run)
    elif run:
        made.append(run)
    # together, so that they move no other label
    if new := [label for label in expected if not expected[label]]:
        _nearest(made, height, [_height(ranks[:0])]).extend(new)
    place = {label: number for number, label in enumerate(expected)}
    ordered = (tuple(sorted(cluster, key=lambda label: place[label])) for cluster in made)
    return tuple(sorted(ordered, key=lambda cluster: place[cluster[0]]))


def _nearest(made: list[list[Any]], height: dict[Any, float], heights: list[float]) -> list[Any]:
    """The cluster whose mean height is nearest to that of these."""
    middle = np.mean(heights)
    return min(
        made, key=lambda cluster: abs(np.mean([height[label] for label in cluster]) - middle)
    )


def _height(ranks: Floats) -> float:
    """The mean of the quantiles from 1/2 up, as ranks among the scores of all labels: thresholds
    are upper quantiles.
    """
    upper = np.sort(ranks)[len(ranks) // 2 :]
    return float((upper.sum() + 0.75 * _AVERAGE_ROWS) / (len(upper) + _AVERAGE_ROWS))
