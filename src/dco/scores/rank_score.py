"""Scores that go by the rank of a label: by falling probability, equal ones by their column.

The score of a label follows from its rank, the mass of the labels up to it, and the largest
probability. Along the ranks of a row it never falls, in floating point too. A set is therefore the
first labels of its row, and how many they are is counted among sorted probabilities: no index is
sorted, and one comparison with the last of them makes the set.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar

from dco.foundations.arrays import Array, namespace
from dco.predictions import ClassProbabilities
from dco.scores.label_arrays import (
    check_masses,
    count_true,
    exact_masses,
    first_labels,
    running_sums,
    sort_falling,
    store_few_labels_by_columns,
    take_label,
)
from dco.scores.label_score import LabelScore, is_by_row


class RankedLabels(ABC):
    """Some labels of each row, with what a score may be made of: ranks, masses, probabilities.

    `uniform` holds the uniform random number U of each row, as a column, or 1 for scores that are
    not randomised. The properties have one row for each row, and a column for each of the labels.
    """

    uniform: Any

    @property
    @abstractmethod
    def rank(self) -> Array:
        """The ranks of the labels in their rows; 1 is the most probable."""

    @property
    @abstractmethod
    def largest(self) -> Array:
        """The largest probability of each row."""

    @property
    @abstractmethod
    def probability(self) -> Array:
        """The labels' own probabilities, rounded so that sums are exact (see `exact_masses`)."""

    @property
    @abstractmethod
    def mass_up_to(self) -> Array:
        """The sum of the probabilities of each label and of those ranked before it."""

    def mass(self, *, randomised: bool) -> Array:
        """Return the mass before each label plus its probability, times 1 - U if randomised."""
        if not randomised:
            return self.mass_up_to
        before = self.mass_up_to - self.probability
        return before + self.probability * (1.0 - self.uniform)


@dataclass(frozen=True, eq=False)
class SortedRows(RankedLabels):
    """All labels of some rows; `falling` are their probabilities, sorted from the largest."""

    falling: Array
    uniform: Any

    @cached_property
    def rank(self) -> Array:
        """1, 2, 3, ... for every row, (1, K)."""
        xp = namespace(self.falling)
        last = self.falling.shape[1]
        return xp.arange(1, last + 1, dtype=xp.float64, device=self.falling.device)[None, :]

    @cached_property
    def largest(self) -> Array:
        """The first probability of each row."""
        xp = namespace(self.falling)
        return xp.astype(self.falling[:, :1], xp.float64)

    @cached_property
    def probability(self) -> Array:
        """The labels' own probabilities, as exact masses."""
        return exact_masses(self.falling)

    @cached_property
    def mass_up_to(self) -> Array:
        """The mass of each label and of those before it."""
        masses = running_sums(self.probability)
        check_masses(masses[:, -1:])
        return masses


@dataclass(frozen=True, eq=False)
class OneLabelPerRow(RankedLabels):
    """One label of each row, given by its column.

    Its rank is counted by comparing it with the other labels; nothing is sorted.
    """

    probabilities: Array
    columns: Array
    uniform: Any

    @cached_property
    def own_probability(self) -> Array:
        """The probability of the label, as the record has it, (n, 1)."""
        return take_label(self.probabilities, self.columns)[:, None]

    @cached_property
    def is_up_to_label(self) -> Array:
        """Which labels are ranked up to the row's own label, that label included, (n, K).

        These are the more probable ones, and of equally probable ones those in earlier columns.
        """
        xp = namespace(self.probabilities)
        is_as_probable = self.probabilities >= self.own_probability
        is_tied = self.probabilities == self.own_probability
        has_ties = xp.any(count_true(is_tied) > 1)  # every label is tied with itself
        if not has_ties:
            return is_as_probable

        columns = xp.arange(self.probabilities.shape[1], device=self.probabilities.device)
        own_column = self.columns[:, None]
        is_later = columns[None, :] > own_column
        return is_as_probable & ~(is_tied & is_later)

    @cached_property
    def rank(self) -> Array:
        """How many labels there are up to this one, (n, 1)."""
        xp = namespace(self.probabilities)
        return xp.astype(count_true(self.is_up_to_label), xp.float64)[:, None]

    @cached_property
    def largest(self) -> Array:
        """The largest probability of each row, (n, 1)."""
        xp = namespace(self.probabilities)
        return xp.astype(xp.max(self.probabilities, axis=1, keepdims=True), xp.float64)

    @cached_property
    def probability(self) -> Array:
        """The label's own probability, as an exact mass, (n, 1)."""
        return exact_masses(self.own_probability)

    @cached_property
    def mass_up_to(self) -> Array:
        """The mass of the label and of those before it, (n, 1)."""
        xp = namespace(self.probabilities)
        counted = xp.where(self.is_up_to_label, exact_masses(self.probabilities), 0.0)
        masses = xp.sum(counted, axis=1, keepdims=True)
        check_masses(masses)
        return masses


class RankScore(LabelScore):
    """A score that never falls from a label to the next less probable one of its row.

    A subclass gives the formula in `along_ranks`, from ranks, masses and probabilities.
    """

    works_on_devices: ClassVar[bool] = True

    @abstractmethod
    def along_ranks(self, labels: RankedLabels) -> Array:
        """Score these labels: a row for each row, a column for each of the labels."""

    def score_labels(self, record: ClassProbabilities) -> Array:
        """Score every label, (n, K): sort each row, score it, and undo the sort."""
        probabilities = record.probabilities
        xp = namespace(probabilities)
        columns_by_rank = xp.argsort(-probabilities, axis=1, stable=True)
        falling = xp.take_along_axis(probabilities, columns_by_rank, axis=1)
        scores_by_rank = self._score_sorted(falling, record)

        position_of_column = xp.argsort(columns_by_rank, axis=1)
        return xp.take_along_axis(scores_by_rank, position_of_column, axis=1)

    def score_one_label(self, record: ClassProbabilities, labels: Array) -> Array:
        """Score one label of each row, given by its column, (n,)."""
        probabilities = store_few_labels_by_columns(record.probabilities)
        ranked = OneLabelPerRow(probabilities, labels, self._uniform(record))
        return self.along_ranks(ranked)[:, 0]

    def find_members(self, record: ClassProbabilities, thresholds: Array) -> Array:
        """Mark the labels that score at most the thresholds, (n, K).

        With one threshold for all labels of a row they are the most probable ones, so that it is
        enough to count them among sorted probabilities.
        """
        if not is_by_row(thresholds):
            return super().find_members(record, thresholds)
        probabilities = store_few_labels_by_columns(record.probabilities)
        falling = sort_falling(probabilities)
        n_members = count_true(self._score_sorted(falling, record) <= thresholds)
        return first_labels(probabilities, falling, n_members)

    def count_members(self, record: ClassProbabilities, several: Sequence[Array]) -> list[Array]:
        """Count the labels of each row that score at most the thresholds.

        `several` are matrices of thresholds; there is one array (n,) of counts for each.
        """
        if not all(is_by_row(thresholds) for thresholds in several):
            return super().count_members(record, several)
        falling = sort_falling(store_few_labels_by_columns(record.probabilities))
        scores = self._score_sorted(falling, record)
        return [count_true(scores <= thresholds) for thresholds in several]

    def _score_sorted(self, falling: Array, record: ClassProbabilities) -> Array:
        """Score the labels of rows whose probabilities fall, (n, K)."""
        scores = self.along_ranks(SortedRows(falling, self._uniform(record)))
        return namespace(falling).broadcast_to(scores, falling.shape)

    def _uniform(self, record: ClassProbabilities) -> Any:
        """Return the uniform numbers of the rows as a column, or 1 if the score draws none."""
        if not self.randomised or record.uniforms is None:
            return 1.0
        xp = namespace(record.uniforms)
        return xp.astype(record.uniforms, xp.float64)[:, None]


def check_not_negative(value: float, name: str) -> float:
    """Return a parameter of a score as a float, if it is a finite number that is not negative."""
    if not (isinstance(value, Real) and math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a finite number that is not negative, got {value!r}.")
    return float(value)
