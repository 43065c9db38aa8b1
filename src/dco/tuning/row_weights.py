"""How much each tuning row counts: all rows alike, or all clusters of rows alike."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from dco.foundations.arrays import Bools, Floats, Integers
from dco.foundations.ranks import order_statistic, size_quantile, tuning_rank

_LARGE = 1e250  # sums of larger values may overflow
_LARGEST_MACHINE_SUM = 2**62  # larger sums of integers may overflow 64 bits
_LARGEST_EXACT_INTEGER = 2**53  # in double precision
_ABOVE_P95 = Fraction(1, 20)  # the share of the weight above a 95 % quantile


class RowWeights(ABC):
    """A way of weighing the tuning rows, and the statistics that depend on it."""

    are_equal: ClassVar[bool] = False

    @abstractmethod
    def smallest_threshold(self, scores: Floats, alpha: Fraction) -> float:
        """Return the smallest score that at most a share alpha of the rows exceeds."""

    @abstractmethod
    def mean(self, values: Floats) -> float:
        """Return the mean, which does not depend on the order of the rows."""

    @abstractmethod
    def share(self, selected: Bools) -> float:
        """Return the share of the selected rows."""

    @abstractmethod
    def p95(self, sizes: Floats) -> float:
        """Return the 95 % quantile of the sizes."""

    @abstractmethod
    def count_hits(self, slices: Integers, covered: Bools) -> tuple[Floats, Floats]:
        """Count the independent units in each slice, and how many of them are covered.

        `slices` numbers the slice of each row, from 0. Returns (covered units, units).
        """

    @abstractmethod
    def take(self, rows: Integers) -> RowWeights:
        """Return the weights of some of the rows, as if there were no others."""


@dataclass(frozen=True)
class EqualRows(RowWeights):
    """Every row counts the same."""

    are_equal = True

    def smallest_threshold(self, scores: Floats, alpha: Fraction) -> float:
        """Take the order statistic at the tuning rank."""
        return order_statistic(scores, tuning_rank(len(scores), alpha=alpha))

    def mean(self, values: Floats) -> float:
        """Return the plain mean, from an exact sum."""
        return exact_mean(values)

    def share(self, selected: Bools) -> float:
        """Count the selected rows."""
        return int(np.count_nonzero(selected)) / len(selected)

    def p95(self, sizes: Floats) -> float:
        """Interpolate between two sizes, as NumPy does."""
        return size_quantile(sizes, 0.95)

    def count_hits(self, slices: Integers, covered: Bools) -> tuple[Floats, Floats]:
        """Count rows."""
        n_rows = np.bincount(slices).astype(np.float64)
        n_covered = np.bincount(slices, covered).astype(np.float64)
        return n_covered, n_rows

    def take(self, rows: Integers) -> EqualRows:
        """Return the same: every row counts as much as before."""
        return self


@dataclass(frozen=True, eq=False)
class EqualClusters(RowWeights):
    """Every cluster counts the same, and the rows of a cluster share its weight evenly."""

    clusters: Integers  # the number of each row's cluster

    @cached_property
    def whole_weights(self) -> Integers:
        """The weights of the rows as whole numbers, so that sums of them are exact.

        All clusters have the same weight, the least common multiple of their sizes: every row gets
        a whole number of it. Clusters of 2 and of 3 rows weigh 6, and their rows 3 and 2.
        """
        _, cluster_of_row, sizes = np.unique(self.clusters, return_inverse=True, return_counts=True)
        cluster_weight = math.lcm(*sizes.tolist())

        # Python's integers (dtype object) have no largest one, but add up slowly.
        total_weight = cluster_weight * len(sizes)
        dtype = np.int64 if total_weight < _LARGEST_MACHINE_SUM else object
        weight_of_a_row = [cluster_weight // size for size in sizes.tolist()]  # by cluster
        return np.array(weight_of_a_row, dtype=dtype)[cluster_of_row]

    @cached_property
    def shares(self) -> Floats:
        """The weights of the rows, which sum to one."""
        clusters, cluster_of_row, sizes = np.unique(
            self.clusters, return_inverse=True, return_counts=True
        )
        return np.asarray(1 / (len(clusters) * sizes[cluster_of_row]))

    def smallest_threshold(self, scores: Floats, alpha: Fraction) -> float:
        """Add up weights from the smallest score on, until at most a share alpha is above."""
        order = np.argsort(scores, kind="stable")
        weight_up_to = np.cumsum(self.whole_weights[order])
        total = int(weight_up_to[-1])
        weight_above = total - weight_up_to

        allowed = alpha.numerator * total // alpha.denominator
        first = int(np.argmax(np.asarray(weight_above <= allowed, dtype=bool)))
        return float(scores[order][first])

    def mean(self, values: Floats) -> float:
        """Return the weighted mean, from an exact sum."""
        return math.fsum(values * self.shares)

    def share(self, selected: Bools) -> float:
        """Add up the weights of the selected rows."""
        return math.fsum(self.shares[selected])

    def p95(self, sizes: Floats) -> float:
        """Return the smallest size that at most a twentieth of the weight exceeds."""
        return self.smallest_threshold(sizes, _ABOVE_P95)

    def count_hits(self, slices: Integers, covered: Bools) -> tuple[Floats, Floats]:
        """Count the clusters in each slice, and how many of them count as covered.

        A cluster may be covered in part. So a slice of m clusters counts m * (covered weight) /
        (weight) of them as covered, which need not be a whole number.
        """
        # 1. The weight of the rows in each slice, and of those that are covered.
        weight = np.bincount(slices, self.shares)
        covered_weight = np.bincount(slices, self.shares * covered)
        is_empty = weight == 0
        covered_share = covered_weight / np.where(is_empty, 1.0, weight)

        # 2. A cluster counts once in a slice, however many of its rows are there.
        slice_and_cluster = np.stack([slices, self.clusters])
        distinct_pairs = np.unique(slice_and_cluster, axis=1)
        n_clusters = np.bincount(distinct_pairs[0], minlength=len(weight)).astype(np.float64)
        return covered_share * n_clusters, n_clusters

    def take(self, rows: Integers) -> EqualClusters:
        """Keep some of the rows, with their clusters."""
        return EqualClusters(self.clusters[rows])


def exact_mean(values: Floats) -> float:
    """Return the mean from a sum without rounding errors: it is the same in any order of the rows.

    Candidates whose sets have the same sizes then have equal means, and neither wins by rounding.
    """
    largest = float(np.abs(values).max(initial=0.0))
    if math.isinf(largest):
        return math.inf
    if largest > _LARGE:
        return math.fsum(values / len(values))  # their sum may overflow

    are_whole = bool(np.all(values == np.rint(values)))
    if are_whole and largest * len(values) < _LARGEST_EXACT_INTEGER:
        return float(values.sum()) / len(values)  # exact as it is, and faster than fsum
    return math.fsum(values) / len(values)
