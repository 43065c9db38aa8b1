"""Thresholds at which a candidate is ranked: one for all rows, or one for each condition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from dco.calibration.base import Calibrator
from dco.foundations.arrays import AnyArray, Floats, Integers, as_labels
from dco.rows.rows import Rows
from dco.sets.labels import codes_of
from dco.tuning.evaluated import EvaluatedCandidate
from dco.tuning.row_weights import RowWeights


@dataclass(frozen=True, eq=False)
class Cutoffs:
    """The thresholds of one candidate, in the shapes in which they are needed.

    Attributes
    ----------
    for_true_labels
        The threshold that each row's true label is compared with, (n,), or one for all rows.
    for_sets
        The same in the shape that ``score.sets`` takes: one number, (n,), (n, 1) or (1, n_labels).
    largest
        The largest of them, which a ranking shows.
    """

    for_true_labels: float | Floats
    for_sets: float | Floats
    largest: float

    @classmethod
    def equal(cls, threshold: float) -> Cutoffs:
        """Use one threshold for all rows."""
        return cls(for_true_labels=threshold, for_sets=threshold, largest=threshold)


class ThresholdKind(ABC):
    """A rule that says which rows share a threshold while candidates are ranked."""

    is_single: ClassVar[bool] = False

    @abstractmethod
    def cutoffs(
        self, candidate: EvaluatedCandidate, weights: RowWeights, alpha: Fraction
    ) -> Cutoffs:
        """Return the candidate's smallest thresholds that miss at most a share alpha of the rows.

        That share holds for every group of rows with a threshold of its own. `weights` say how much
        each row counts.
        """


class OneThreshold(ThresholdKind):
    """One threshold for all rows."""

    is_single = True

    def cutoffs(
        self, candidate: EvaluatedCandidate, weights: RowWeights, alpha: Fraction
    ) -> Cutoffs:
        """Take one order statistic of the scores of all rows."""
        return Cutoffs.equal(weights.smallest_threshold(candidate.scores, alpha))


@dataclass(frozen=True, eq=False)
class ThresholdByCondition(ThresholdKind):
    """One threshold for the rows of each condition (Mondrian)."""

    conditions: Integers  # the number of each row's condition
    names: Sequence[str]  # of the conditions

    def cutoffs(
        self, candidate: EvaluatedCandidate, weights: RowWeights, alpha: Fraction
    ) -> Cutoffs:
        """Return the smallest threshold of each condition that misses at most a share alpha of it.

        A condition is a group of rows with a threshold of its own.
        """
        _, condition_of_row = np.unique(self.conditions, return_inverse=True)
        thresholds = _threshold_of_each_group(condition_of_row, candidate, weights, alpha)
        threshold_of_row = thresholds[condition_of_row]  # (n,)

        # Sets of labels compare it with the scores of all labels of the row, (n, n_labels).
        for_sets = threshold_of_row
        predicts_labels = candidate.n_labels is not None
        if predicts_labels:
            for_sets = threshold_of_row[:, None]
        return Cutoffs(
            for_true_labels=threshold_of_row,
            for_sets=for_sets,
            largest=float(thresholds.max()),
        )


@dataclass(frozen=True, eq=False)
class ThresholdByLabel(ThresholdKind):
    """One threshold for each label. A label without tuning rows is in every set."""

    def cutoffs(
        self, candidate: EvaluatedCandidate, weights: RowWeights, alpha: Fraction
    ) -> Cutoffs:
        """Return each label's smallest threshold that misses at most a share alpha of its rows.

        A label without tuning rows gets the threshold infinity: it is in every set.
        """
        source = candidate.source
        if source is None or candidate.n_labels is None:
            raise ValueError("thresholds by label are for classes.")

        # 1. Group the rows by their true label. Labels are numbered as in the predictions.
        all_labels = source.predictions.labels
        label_of_row = codes_of(as_labels(source.y), all_labels)
        labels_with_rows, group_of_row = np.unique(label_of_row, return_inverse=True)

        # 2. Take a threshold for each of these labels.
        thresholds = _threshold_of_each_group(group_of_row, candidate, weights, alpha)
        threshold_of_label = np.full(len(all_labels), np.inf)
        threshold_of_label[labels_with_rows] = thresholds
        return Cutoffs(
            for_true_labels=thresholds[group_of_row],
            for_sets=threshold_of_label[None, :],  # (1, n_labels): the same for all rows
            largest=float(thresholds.max()),
        )


def _threshold_of_each_group(
    group_of_row: Integers, candidate: EvaluatedCandidate, weights: RowWeights, alpha: Fraction
) -> Floats:
    """Return the smallest threshold of each group of rows, as if there were no other rows.

    `group_of_row` holds the number of each row's group, from 0.
    """
    n_groups = group_of_row.max() + 1
    thresholds = np.empty(n_groups)
    for group in range(n_groups):
        rows = np.flatnonzero(group_of_row == group)
        group_weights = weights.take(rows)
        thresholds[group] = group_weights.smallest_threshold(candidate.scores[rows], alpha)
    return thresholds


def choose_threshold_kind(calibrator: Calibrator, rows: Rows) -> ThresholdKind:
    """Choose which of the tuning rows share a threshold while candidates are ranked.

    The calibrator says by which condition rows get thresholds of their own, such as a column or
    the label. Without a condition there is one threshold for all rows.
    """
    condition = calibrator.condition_for_tuning(rows.X, rows.y)
    if condition is None:
        return OneThreshold()
    if condition.needs_label:
        return ThresholdByLabel()

    keys = condition.of_rows(rows.X, rows.y)
    names = [condition.text(key) for key in distinct(keys)]
    return ThresholdByCondition(number_values(keys), names)


def number_values(values: AnyArray) -> Integers:
    """Number the values in order of appearance, from 0: ["b", "a", "b"] -> [0, 1, 0]."""
    number_of = {value: number for number, value in enumerate(distinct(values))}
    return np.asarray([number_of[value] for value in values.tolist()], dtype=np.int64)


def distinct(values: AnyArray) -> list[Any]:
    """Return the distinct values in order of appearance: ["b", "a", "b"] -> ["b", "a"]."""
    return list(dict.fromkeys(values.tolist()))
