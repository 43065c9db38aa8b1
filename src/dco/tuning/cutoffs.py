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
    """The thresholds of one candidate.

    `of_rows` are those of the rows' true labels, `for_score` are in the shape that a score reads,
    and `largest` stands for all of them in a ranking.
    """

    of_rows: float | Floats
    for_score: float | Floats
    largest: float

    @classmethod
    def equal(cls, threshold: float) -> Cutoffs:
        """Use one threshold for all rows."""
        return cls(of_rows=threshold, for_score=threshold, largest=threshold)


class ThresholdKind(ABC):
    """Which rows share a threshold."""

    is_single: ClassVar[bool] = False

    @abstractmethod
    def cutoffs(
        self, candidate: EvaluatedCandidate, weights: RowWeights, alpha: Fraction
    ) -> Cutoffs:
        """Return the smallest thresholds that miss at most a share alpha of the rows."""


class OneThreshold(ThresholdKind):
    """One threshold for all rows."""

    is_single = True

    def cutoffs(
        self, candidate: EvaluatedCandidate, weights: RowWeights, alpha: Fraction
    ) -> Cutoffs:
        """Take one order statistic of all scores."""
        return Cutoffs.equal(weights.smallest_threshold(candidate.scores, alpha))


@dataclass(frozen=True, eq=False)
class ThresholdByCondition(ThresholdKind):
    """One threshold for the rows of each condition (Mondrian)."""

    conditions: Integers  # the number of each row's condition
    names: Sequence[str]  # of the conditions

    def cutoffs(
        self, candidate: EvaluatedCandidate, weights: RowWeights, alpha: Fraction
    ) -> Cutoffs:
        """Take one order statistic for each condition."""
        _, codes = np.unique(self.conditions, return_inverse=True)
        thresholds = _thresholds_by_code(codes, candidate, weights, alpha)
        of_rows = thresholds[codes]

        is_for_classes = candidate.n_labels is not None
        for_score = of_rows[:, None] if is_for_classes else of_rows
        return Cutoffs(of_rows, for_score, largest=float(thresholds.max()))


@dataclass(frozen=True, eq=False)
class ThresholdByLabel(ThresholdKind):
    """One threshold for each label. A label without tuning rows is in every set."""

    def cutoffs(
        self, candidate: EvaluatedCandidate, weights: RowWeights, alpha: Fraction
    ) -> Cutoffs:
        """Take one order statistic for each label that has tuning rows."""
        if candidate.source is None or candidate.n_labels is None:
            raise ValueError("thresholds by label are for classes.")

        labels = candidate.source.predictions.labels
        label_numbers = codes_of(as_labels(candidate.source.y), labels)
        present_labels, codes = np.unique(label_numbers, return_inverse=True)
        thresholds = _thresholds_by_code(codes, candidate, weights, alpha)

        by_label = np.full(len(labels), np.inf)
        by_label[present_labels] = thresholds
        return Cutoffs(
            of_rows=thresholds[codes],
            for_score=by_label[None, :],
            largest=float(thresholds.max()),
        )


def _thresholds_by_code(
    codes: Integers, candidate: EvaluatedCandidate, weights: RowWeights, alpha: Fraction
) -> Floats:
    """Return the threshold of the rows of each code, as if there were no others."""
    thresholds = np.empty(codes.max() + 1)
    for code in range(len(thresholds)):
        rows = np.flatnonzero(codes == code)
        thresholds[code] = weights.take(rows).smallest_threshold(candidate.scores[rows], alpha)
    return thresholds


def threshold_kind(calibrator: Calibrator, rows: Rows) -> ThresholdKind:
    """Return which of the tuning rows share a threshold while candidates are ranked."""
    condition = calibrator.condition_for_tuning(rows.X, rows.y)
    if condition is None:
        return OneThreshold()
    if condition.needs_label:
        return ThresholdByLabel()

    keys = condition.of_rows(rows.X, rows.y)
    names = [condition.text(key) for key in distinct(keys)]
    return ThresholdByCondition(number_values(keys), names)


def number_values(values: AnyArray) -> Integers:
    """Number the values in order of appearance, from 0."""
    number_of = {value: number for number, value in enumerate(distinct(values))}
    return np.asarray([number_of[value] for value in values.tolist()], dtype=np.int64)


def distinct(values: AnyArray) -> list[Any]:
    """Return the distinct values in order of appearance."""
    return list(dict.fromkeys(values.tolist()))
