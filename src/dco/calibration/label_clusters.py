"""Labels that share a threshold: rare ones join labels whose scores are like theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dco.calibration.base import Calibration, Calibrator
from dco.calibration.by_condition import ByCondition
from dco.calibration.conditions import Condition, LabelClusterCondition, LabelCondition
from dco.calibration.guarantee import RankGuarantee, guarantee_called
from dco.foundations.arrays import AnyArray, Floats
from dco.foundations.notes import Message
from dco.rows.conditions import LABEL_CLUSTERS, rows_by_condition
from dco.structure import ScoredRows, describe

# A threshold is finite almost surely if so many times the rows that it needs are expected.
_ENOUGH = 4
_PRIOR_ROWS = 2  # rows of the average label, added to each label: few rows say little
_MEAN_OF_UPPER_HALF = 0.75  # of ranks between 0 and 1


@dataclass(frozen=True)
class ByLabelCluster(Calibrator):
    """Learn clusters of labels on training and tuning rows, then calibrate each cluster.

    Clusters do not depend on calibration rows, so each has the guarantee of a condition; a label
    in it has none.
    """

    guarantee: RankGuarantee

    learns_from_tuning = True

    def calibrate(self, scored: ScoredRows, *, alpha: Fraction) -> Calibration:
        raise RuntimeError("Clusters of labels are learnt before rows are calibrated: call learn.")

    def smallest_size(self, *, alpha: Fraction) -> int:
        return self.guarantee.smallest_size(alpha=alpha)

    def with_guarantee(self, guarantee: str, *, delta: Fraction | None) -> ByLabelCluster:
        return replace(self, guarantee=guarantee_called(guarantee, delta=delta))

    def condition_for_tuning(self, X: Any, y: AnyArray) -> Condition:
        return LabelCondition()

    def is_conditioned_on(self, source: Any) -> bool:
        return isinstance(source, str) and source == LABEL_CLUSTERS

    def condition_in_words(self) -> str:
        return describe(LABEL_CLUSTERS)

    def learn(
        self,
        *,
        tuning_scores: Floats | None,
        tuning_labels: AnyArray,
        fitting_labels: AnyArray,
        classes: AnyArray | None,
        n_calibration_rows: int,
        alpha: Fraction,
    ) -> ByCondition:
        """Cluster the labels so that each threshold is finite almost surely."""
        if tuning_scores is None or classes is None:
            advice = "raise ⟨tune_size⟩, or use folds: ⟨tune_folds=5⟩."
            raise ValueError(Message(f"Clusters of labels are learnt on tuning rows: {advice}"))
        clusters = cluster_labels(
            tuning_scores,
            tuning_labels,
            expected_rows=expect_rows(fitting_labels, classes, n_rows=n_calibration_rows),
            enough=_ENOUGH * self.smallest_size(alpha=alpha),
        )
        return ByCondition(LabelClusterCondition(clusters), self.guarantee)


def expect_rows(labels: AnyArray, classes: AnyArray, *, n_rows: int) -> dict[Any, float]:
    """Return how many of n rows each class expects, by its share of these labels."""
    count = Counter(labels.tolist())
    return {label: n_rows * count[label] / max(len(labels), 1) for label in classes.tolist()}


def cluster_labels(
    scores: Floats, labels: AnyArray, *, expected_rows: dict[Any, float], enough: int
) -> tuple[tuple[Any, ...], ...]:
    """Group labels into clusters that share a threshold, so that each expects `enough` rows.

    A label that expects enough calibration rows by itself is a cluster alone. The others (rare
    ones) are ordered by how high their scores on the tuning rows are, and put together with their
    neighbours in this order. `scores` and `labels` are those of the tuning rows; `expected_rows`
    has every class, in order, with the number of calibration rows that it expects.

    After Ding, Angelopoulos, Bates, Jordan and Tibshirani (2023), who learn clusters of score
    quantiles on a part of the calibration rows.
    """
    height_of = _score_heights(scores, labels, list(expected_rows))
    clusters = [[label] for label, rows in expected_rows.items() if rows >= enough]
    rare = [label for label, rows in expected_rows.items() if 0 < rows < enough]
    absent = [label for label, rows in expected_rows.items() if rows == 0]

    # 1. Rare labels: a cluster takes neighbours until it expects enough rows.
    cluster: list[Any] = []
    for label in sorted(rare, key=height_of.__getitem__):
        cluster.append(label)
        if sum(expected_rows[member] for member in cluster) >= enough:
            clusters.append(cluster)
            cluster = []

    # 2. The last cluster, if it does not expect enough rows, joins the one with nearest scores.
    if cluster and clusters:
        mean_height = float(np.mean([height_of[label] for label in cluster]))
        _nearest_cluster(clusters, height_of, mean_height).extend(cluster)
    elif cluster:
        clusters.append(cluster)

    # 3. Labels without tuning rows join a cluster last, so that they change no other label's.
    if absent:
        _nearest_cluster(clusters, height_of, _height(np.empty(0))).extend(absent)

    # 4. Labels and clusters come in the order of the classes.
    position_of = {label: position for position, label in enumerate(expected_rows)}
    in_order = [tuple(sorted(cluster, key=position_of.__getitem__)) for cluster in clusters]
    return tuple(sorted(in_order, key=lambda cluster: position_of[cluster[0]]))


def _score_heights(scores: Floats, labels: AnyArray, classes: Sequence[Any]) -> dict[Any, float]:
    """Return how high the scores of each label are among those of all labels."""
    ranks = np.searchsorted(np.sort(scores), scores, side="right") / max(len(scores), 1)
    rows_of = rows_by_condition(labels)
    no_rows = np.empty(0, dtype=np.int64)
    return {label: _height(ranks[rows_of.get(label, no_rows)]) for label in classes}


def _height(ranks: Floats) -> float:
    """Average the upper half of a label's ranks, since thresholds are upper quantiles."""
    upper = np.sort(ranks)[len(ranks) // 2 :]
    total = upper.sum() + _MEAN_OF_UPPER_HALF * _PRIOR_ROWS
    return float(total / (len(upper) + _PRIOR_ROWS))


def _nearest_cluster(
    clusters: list[list[Any]], height_of: dict[Any, float], height: float
) -> list[Any]:
    """Return the cluster whose mean height is nearest to this one."""
    return min(
        clusters,
        key=lambda cluster: abs(np.mean([height_of[label] for label in cluster]) - height),
    )
