"""Rows that belong together, such as the visits of a patient."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dco.calibration.base import (
    CalibratedCondition,
    Calibration,
    Calibrator,
    CoverageLaw,
    has_ties_near,
)
from dco.calibration.facts import CalibrationFacts, ClusterFacts, OrderStatisticFacts
from dco.calibration.full_sets import note_full_sets
from dco.calibration.guarantee import RankGuarantee, guarantee_called
from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.foundations.fingerprints import codes_of_values
from dco.foundations.notes import Note
from dco.foundations.ranks import (
    Level,
    Threshold,
    as_rational,
    checked_scores,
    order_statistic,
    smallest_marginal_n,
    warn_infeasible,
)
from dco.foundations.seeds import Seed, as_seed
from dco.structure import ScoredRows

NO_LAW = (
    "the law of coverage is for independent rows, and rows of this fit belong together in groups"
)


def cluster_calibrator(guarantee: RankGuarantee) -> Calibrator:
    """Return the kind for rows in clusters that has this guarantee."""
    return ByCluster() if guarantee.weighs_rows else OneRowPerCluster(guarantee)


@dataclass(frozen=True)
class ByCluster(Calibrator):
    """Take the smallest score with weight 1 - alpha below it, when every cluster weighs the same.

    A row picked at random from a new cluster is covered with probability at least 1 - alpha if the
    clusters are exchangeable (`grouped_conformal`).
    """

    def calibrate(self, scored: ScoredRows, *, alpha: Fraction) -> ClusterThreshold:
        return ClusterThreshold(self, scored, alpha)

    def smallest_size(self, *, alpha: Fraction) -> int:
        return smallest_marginal_n(alpha=alpha)  # clusters, not rows

    def with_guarantee(self, guarantee: str, *, delta: Fraction | None) -> Calibrator:
        return cluster_calibrator(guarantee_called(guarantee, delta=delta))


@dataclass(frozen=True)
class OneRowPerCluster(Calibrator):
    """Take an order statistic of one row of each cluster, picked before any score was seen."""

    guarantee: RankGuarantee

    def calibrate(self, scored: ScoredRows, *, alpha: Fraction) -> OnePerClusterThreshold:
        return OnePerClusterThreshold(self, scored, alpha)

    def smallest_size(self, *, alpha: Fraction) -> int:
        return self.guarantee.smallest_size(alpha=alpha)  # clusters, not rows

    def with_guarantee(self, guarantee: str, *, delta: Fraction | None) -> Calibrator:
        return cluster_calibrator(guarantee_called(guarantee, delta=delta))


@dataclass(frozen=True, eq=False)
class _ClusterCalibration(Calibration):
    """One threshold for rows of new clusters."""

    no_law = NO_LAW
    follows_from_rows = False  # it takes to know which rows belong together

    @property
    def clusters(self) -> AnyArray:
        """The cluster of each calibration row."""
        assert self.scored.clusters is not None
        return self.scored.clusters

    def p_values(
        self,
        scores: Floats,
        X: Any,
        *,
        targets: AnyArray | None = None,
        labels: AnyArray | None = None,
    ) -> Floats:
        """Compute a p-value for each score: the weight of the calibration rows at or above it.

        Rows that belong together, such as the visits of a patient, are a cluster. Every cluster has
        the same weight, which its rows share, and all have weight 1 together with the cluster of
        the new row, which counts as above. `scores` has any shape, and the p-values have it too.
        """
        # 1. Sort the calibration rows by score.
        calibration_scores = self.scored.scores.astype(np.float64)
        order = np.argsort(calibration_scores, kind="stable")
        ascending_scores = calibration_scores[order]
        clusters_by_score = self.clusters[order]

        # 2. Compute the p-value for every number of calibration scores below, and look it up.
        p_value_by_n_below = weights_at_or_above(clusters_by_score)
        n_below = np.searchsorted(
            ascending_scores, np.asarray(scores, dtype=np.float64), side="left"
        )
        return np.asarray(p_value_by_n_below[n_below])


@dataclass(frozen=True, eq=False)
class ClusterThreshold(_ClusterCalibration):
    """The weighted quantile of all scores."""

    @cached_property
    def conditions(self) -> tuple[CalibratedCondition, ...]:
        threshold = cluster_threshold(self.scored.scores, self.clusters, alpha=self.alpha)
        return (CalibratedCondition.of_all_rows(threshold, self.scored.scores),)

    def facts(self) -> CalibrationFacts:
        return ClusterFacts(
            rule="marginal",
            alpha=float(self.alpha),
            thresholds=tuple(condition.certified() for condition in self.conditions),
        )

    def notes(self, *, n_in_fit: int | None = None, classes: AnyArray | None = None) -> list[Note]:
        return note_full_sets(
            self.conditions[0].threshold,
            smallest=self.calibrator.smallest_size(alpha=self.alpha),
            unit="group",
            n_in_fit=n_in_fit,
        )


@dataclass(frozen=True, eq=False)
class OnePerClusterThreshold(_ClusterCalibration):
    """An order statistic of the scores of one row of each cluster."""

    calibrator: OneRowPerCluster

    @cached_property
    def conditions(self) -> tuple[CalibratedCondition, ...]:
        scores = self.scored.scores[self.scored.one_per_cluster]
        threshold = self.calibrator.guarantee.threshold(scores, alpha=self.alpha)
        law = CoverageLaw.of_threshold(threshold, is_tied=has_ties_near(threshold, scores))
        return (CalibratedCondition.of_all_rows(threshold, scores, law=law),)

    def facts(self) -> CalibrationFacts:
        """State the rule, the level and the threshold of one row of each cluster."""
        guarantee = self.calibrator.guarantee
        return OrderStatisticFacts(
            rule=guarantee.name,
            alpha=float(self.alpha),
            delta=None if guarantee.delta is None else float(guarantee.delta),
            thresholds=tuple(condition.certified() for condition in self.conditions),
            takes_one_of_each_cluster=True,
        )

    def notes(self, *, n_in_fit: int | None = None, classes: AnyArray | None = None) -> list[Note]:
        """Say why the threshold is infinite, if it is: clusters count, and not rows."""
        name = self.calibrator.guarantee.name.upper()
        return note_full_sets(
            self.conditions[0].threshold,
            smallest=self.calibrator.smallest_size(alpha=self.alpha),
            unit="group",
            n_in_fit=n_in_fit,
            reason=f" (a {name} statement uses one row of each)",
        )


def weights_at_or_above(clusters: AnyArray) -> Floats:
    """Return for i = 0 ... n the weight of all rows but the i with the lowest scores, (n + 1,).

    `clusters` (n,) has the cluster of each row, by ascending score. Every cluster has the same
    weight, which its rows share evenly, and so has a new cluster, whose scores count as the highest
    of all. Together they have weight 1. Clusters ["a", "b", "b"] give [1, 2/3, 1/2, 1/3]: each
    cluster has weight 1/3, row "a" has 1/3 and the rows "b" have 1/6 each.
    """
    # 1. Weigh the rows in whole numbers, to add them up without rounding. The least common multiple
    # of the sizes is a cluster's weight that every size divides.
    cluster_of_row, n_clusters = codes_of_values(clusters)
    cluster_sizes = np.bincount(cluster_of_row, minlength=n_clusters).tolist()
    cluster_weight = math.lcm(*cluster_sizes)
    row_weights = [cluster_weight // cluster_sizes[cluster] for cluster in cluster_of_row.tolist()]

    # 2. Add them up from the highest score downwards, beginning with the new cluster. Each sum is
    # divided once and so rounded once: comparing it with alpha is exact.
    sums_from_top = accumulate(reversed(row_weights), initial=cluster_weight)
    total = cluster_weight * (n_clusters + 1)
    shares_from_top = np.array([weight / total for weight in sums_from_top])
    return shares_from_top[::-1]


def grouped_conformal(scores: ArrayLike, groups: Any, *, alpha: Level) -> Threshold:
    """Return the (1 - alpha) quantile of scores whose groups weigh the same.

    It is the quantile of sum_g sum_i delta(s_gi) / (n_g (G + 1)) + delta(inf) / (G + 1). Every
    group weighs the same, however many rows it has, so that this says nothing about the share of
    all new rows. Claim (Lee, Barber and Willett 2023, hierarchical conformal prediction): if the
    G groups and the new one are exchangeable, a row picked at random from the new group is covered
    with probability >= 1 - alpha; so is a row that every group has (its first, its last), if rows
    within a group are exchangeable too. A tenth row is another matter: only large groups have one.
    With one row per group this is split conformal. `n` is G, and there is no rank. All comparisons
    are exact: masses are rationals with the group sizes as denominators.
    """
    level = as_rational(alpha)
    threshold = cluster_threshold(checked_scores(scores), groups, alpha=level)
    smallest = smallest_marginal_n(alpha=level)
    if threshold.n < smallest:
        claim = f"marginal coverage of a new group at alpha = {threshold.alpha:g}"
        warn_infeasible(threshold.n, smallest, claim, unit="group")
    return threshold


def cluster_threshold(scores: Floats, clusters: Any, *, alpha: Fraction) -> Threshold:
    """Compute the (1 - alpha) quantile of scores, where every cluster has weight 1.

    `clusters` (n,) says which rows belong together, such as the visits of a patient. They share the
    weight of their cluster: each weighs 1 / (size of its cluster). The threshold is the smallest
    score up to which rows weigh at least (1 - alpha) (number of clusters + 1), and infinite if all
    rows weigh less. This is `grouped_conformal` for checked scores, without its warning.
    """
    cluster_of_row, n_clusters = codes_of_values(clusters)
    if cluster_of_row.size != scores.size:
        raise ValueError(
            f"There are {scores.size} scores and {cluster_of_row.size} group labels; give one "
            f"label per score."
        )

    # 1. Find for each row, by ascending score, the size of its cluster.
    cluster_sizes = np.bincount(cluster_of_row)
    order = np.argsort(scores, kind="stable")
    size_by_score = cluster_sizes[cluster_of_row[order]]

    # 2. Find by bisection how many of the lowest scores it takes to weigh enough. If all n weigh
    # too little, the rank is n + 1, which stands for infinity.
    def weight_of_lowest(n_rows: int) -> Fraction:
        return _sum_of_reciprocals(size_by_score[:n_rows])

    needed_weight = (1 - alpha) * (n_clusters + 1)
    rank = bisect_left(range(scores.size + 1), needed_weight, key=weight_of_lowest)
    return Threshold(
        value=order_statistic(scores, rank),
        rank=None,  # how high it ranks depends on the sizes of the clusters, so no law follows
        n=n_clusters,
        guarantee="marginal",
        alpha=float(alpha),
    )


def _sum_of_reciprocals(numbers: Integers) -> Fraction:
    """Add up 1 / number exactly, with one term for each distinct number: [2, 2, 3] -> 4/3."""
    count_of_number = Counter(numbers.tolist())
    terms = (Fraction(count, number) for number, count in count_of_number.items())
    return sum(terms, Fraction(0))


def one_row_per_group(groups: Any, *, seed: Seed = None) -> Integers:
    """Pick one row of each group at random, as ascending positions.

    `groups` has the group of each row. Independent groups then give independent rows, which PAC
    statements need. Pick before any score is seen.
    """
    codes, _ = codes_of_values(groups)
    generator = np.random.default_rng(as_seed(seed))
    shuffled = generator.permutation(codes.size)

    _, first_of_each_group = np.unique(codes[shuffled], return_index=True)
    return np.sort(shuffled[first_of_each_group])
