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
_LARGEST_MACHINE_MASS = 2**62  # sums of larger masses may overflow 64 bits
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
    def masses(self) -> Integers:
        """Whole-number weights of the rows, so that sums of them are exact."""
        clusters, cluster_of_row, sizes = np.unique(
            self.clusters, return_inverse=True, return_counts=True
        )
        cluster_mass = math.lcm(*sizes.tolist())  # so that every row gets a whole number
        row_mass = np.array([cluster_mass // size for size in sizes.tolist()], dtype=object)
        masses: Integers = row_mass[cluster_of_row]

        total_mass = cluster_mass * len(clusters)
        return masses.astype(np.int64) if total_mass < _LARGEST_MACHINE_MASS else masses

    @cached_property
    def shares(self) -> Floats:
        """The weights of the rows, which sum to one."""
        clusters, cluster_of_row, sizes = np.unique(
            self.clusters, return_inverse=True, return_counts=True
        )
        return np.asarray(1 / (len(clusters) * sizes[cluster_of_row]))

    def smallest_threshold(self, scores: Floats, alpha: Fraction) -> float:
        """Add up masses from the smallest score on, until at most a share alpha is above."""
        order = np.argsort(scores, kind="stable")
        mass_up_to = np.cumsum(self.masses[order])
        total = int(mass_up_to[-1])
        mass_above = total - mass_up_to

        allowed = alpha.numerator * total // alpha.denominator
        first = int(np.argmax(np.asarray(mass_above <= allowed, dtype=bool)))
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
        """Count clusters: the share of a slice that is covered, times its number of clusters."""
        mass = np.bincount(slices, self.shares)
        covered_mass = np.bincount(slices, self.shares * covered)

        # Each slice and cluster that have a row in common count once.
        slices_with_clusters = np.unique(np.stack([slices, self.clusters]), axis=1)
        slice_of_pair = slices_with_clusters[0]
        n_clusters = np.bincount(slice_of_pair, minlength=len(mass)).astype(np.float64)

        covered_share = np.divide(covered_mass, mass, out=np.zeros_like(mass), where=mass > 0)
        return covered_share * n_clusters, n_clusters

    def take(self, rows: Integers) -> EqualClusters:
        """Keep the clusters of some rows."""
        return EqualClusters(self.clusters[rows])


def exact_mean(values: Floats) -> float:
    """Return the mean of an exact sum: no order of the rows changes it, nor breaks a tie."""
    largest = float(np.abs(values).max(initial=0.0))
    if math.isinf(largest):
        return math.inf
    if largest > _LARGE:
        return math.fsum(values / len(values))

    are_whole = bool(np.all(values == np.rint(values)))
    if are_whole and largest * len(values) < _LARGEST_EXACT_INTEGER:
        return float(values.sum()) / len(values)  # no sum is rounded
    return math.fsum(values) / len(values)
