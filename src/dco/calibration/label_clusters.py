"""Labels that share a threshold: rare ones join labels whose scores are like theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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

# How many times as many calibration rows as a finite threshold needs a cluster of labels should
# expect: its threshold is then finite almost surely.
_RESERVE_FACTOR = 4
# Rows of an average label that are added to each label: few rows of its own say little.
_PRIOR_ROWS = 2
_MEAN_OF_UPPER_HALF = 0.75  # of ranks spread evenly between 0 and 1


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
        """Cluster the labels, and return the calibrator that gives each cluster a threshold.

        Labels of few rows cannot have a finite threshold each, so those with similar scores share
        one. Calibration rows are still sealed: clusters are learnt from training and tuning rows.

        Parameters
        ----------
        tuning_scores, tuning_labels
            The scores of the tuning rows, with their labels; None instead of scores is an error.
        fitting_labels
            The labels of the training and tuning rows. Their shares tell how many of the
            `n_calibration_rows` rows to expect of each label.
        classes
            All labels.
        alpha
            One minus the coverage wanted, on which the rows for a finite threshold depend.
        """
        if tuning_scores is None or classes is None:
            advice = "raise ⟨tune_size⟩, or use folds: ⟨tune_folds=5⟩."
            raise ValueError(Message(f"Clusters of labels are learnt on tuning rows: {advice}"))

        clusters = cluster_labels(
            tuning_scores,
            tuning_labels,
            expected_rows=expect_rows(fitting_labels, classes, n_rows=n_calibration_rows),
            n_enough=_RESERVE_FACTOR * self.smallest_size(alpha=alpha),
        )
        return ByCondition(LabelClusterCondition(clusters), self.guarantee)


def expect_rows(labels: AnyArray, classes: AnyArray, *, n_rows: int) -> dict[Any, float]:
    """Return how many of n rows are expected to have each class, by its share of `labels`."""
    count = Counter(labels.tolist())
    return {label: n_rows * count[label] / max(len(labels), 1) for label in classes.tolist()}


def cluster_labels(
    scores: Floats, labels: AnyArray, *, expected_rows: dict[Any, float], n_enough: int
) -> tuple[tuple[Any, ...], ...]:
    """Group labels into clusters that share a threshold: rare labels with others of like scores.

    The result has a tuple of labels for each cluster: (("a",), ("b", "d"), ("c", "e")).

    After Ding, Angelopoulos, Bates, Jordan and Tibshirani (2023), who learn clusters of score
    quantiles on a part of the calibration rows.

    Parameters
    ----------
    scores, labels
        The scores of the tuning rows, with their labels.
    expected_rows
        Every label, in order, with the number of calibration rows that it is expected to have.
    n_enough
        How many calibration rows a cluster should be expected to have. A label that is expected to
        have as many by itself is a cluster alone.
    """
    rank_of = _score_ranks(scores, labels, list(expected_rows))

    # 1. Frequent labels are clusters of their own.
    clusters = [[label] for label, n_rows in expected_rows.items() if n_rows >= n_enough]

    # 2. Rare labels form clusters with the next higher scores, as many as make enough rows.
    rare_labels = [label for label, n_rows in expected_rows.items() if 0 < n_rows < n_enough]
    rare_labels.sort(key=rank_of.__getitem__)
    new_clusters, leftover = _cut_into_clusters(rare_labels, expected_rows, n_enough)
    clusters += new_clusters

    # 3. Rare labels that are left over join the cluster whose scores are nearest.
    if leftover and clusters:
        mean_rank = float(np.mean([rank_of[label] for label in leftover]))
        _nearest_cluster(clusters, rank_of, mean_rank).extend(leftover)
    elif leftover:
        clusters.append(leftover)

    # 4. Labels without rows join last, where scores are average: nothing is known of theirs.
    absent_labels = [label for label, n_rows in expected_rows.items() if n_rows == 0]
    if absent_labels:
        average_rank = _upper_mean(np.empty(0))
        _nearest_cluster(clusters, rank_of, average_rank).extend(absent_labels)

    return _sort_clusters(clusters, list(expected_rows))


def _cut_into_clusters(
    labels: Sequence[Any], expected_rows: Mapping[Any, float], n_enough: int
) -> tuple[list[list[Any]], list[Any]]:
    """Cut a list of labels into clusters, in their order, and return them and what is left over.

    A cluster ends as soon as it expects `n_enough` rows. With "a": 3 rows, "b": 2, "c": 4 and
    "d": 1, and 5 rows enough, the clusters are ["a", "b"], and ["c", "d"]; nothing is left over.
    """
    clusters = []
    unfinished: list[Any] = []
    for label in labels:
        unfinished.append(label)
        if sum(expected_rows[member] for member in unfinished) >= n_enough:
            clusters.append(unfinished)
            unfinished = []
    return clusters, unfinished


def _sort_clusters(
    clusters: Sequence[Sequence[Any]], labels: Sequence[Any]
) -> tuple[tuple[Any, ...], ...]:
    """Put the labels of each cluster in the order of `labels`, and clusters by their first one."""
    position_of = {label: position for position, label in enumerate(labels)}
    sorted_clusters = [sorted(cluster, key=position_of.__getitem__) for cluster in clusters]
    sorted_clusters.sort(key=lambda cluster: position_of[cluster[0]])
    return tuple(tuple(cluster) for cluster in sorted_clusters)


def _score_ranks(scores: Floats, labels: AnyArray, classes: Sequence[Any]) -> dict[Any, float]:
    """Return for each label how high its scores rank among all scores, between 0 and 1."""
    ranks = np.searchsorted(np.sort(scores), scores, side="right") / max(len(scores), 1)
    rows_of_label = rows_by_condition(labels)
    no_rows = np.empty(0, dtype=np.int64)
    return {label: _upper_mean(ranks[rows_of_label.get(label, no_rows)]) for label in classes}


def _upper_mean(ranks: Floats) -> float:
    """Average the upper half of a label's ranks, since thresholds are upper quantiles.

    A few ranks of an average label are added, which draw labels of few rows to the middle.
    """
    upper_half = np.sort(ranks)[len(ranks) // 2 :]
    total = upper_half.sum() + _MEAN_OF_UPPER_HALF * _PRIOR_ROWS
    return float(total / (len(upper_half) + _PRIOR_ROWS))


def _nearest_cluster(
    clusters: list[list[Any]], rank_of: dict[Any, float], rank: float
) -> list[Any]:
    """Return the cluster of labels whose mean rank (`_score_ranks`) is nearest to this one."""

    def distance(cluster: list[Any]) -> float:
        mean_rank = np.mean([rank_of[label] for label in cluster])
        return abs(float(mean_rank) - rank)

    return min(clusters, key=distance)
