"""One threshold for each condition: a column, a function of the row, or the label (Mondrian)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dco.calibration.base import (
    CalibratedCondition,
    Calibration,
    Calibrator,
    ConditionRows,
    CoverageLaw,
    has_ties_near,
    p_values_among,
)
from dco.calibration.conditions import (
    Condition,
    check_condition_ignores_other_rows,
    distinct_names,
)
from dco.calibration.facts import OrderStatisticFacts
from dco.calibration.full_sets import note_absent_labels, note_full_conditions
from dco.calibration.guarantee import RankGuarantee, guarantee_called
from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.foundations.notes import Note
from dco.rows.conditions import rows_by_condition
from dco.structure import ScoredRows


@dataclass(frozen=True)
class ByCondition(Calibrator):
    """Take one order statistic in each condition.

    What the guarantee says of all rows then holds for the rows of every condition.
    """

    condition: Condition
    guarantee: RankGuarantee

    def calibrate(self, scored: ScoredRows, *, alpha: Fraction) -> ThresholdPerCondition:
        return ThresholdPerCondition(self, scored, alpha)

    def smallest_size(self, *, alpha: Fraction) -> int:
        return self.guarantee.smallest_size(alpha=alpha)

    def with_guarantee(self, guarantee: str, *, delta: Fraction | None) -> ByCondition:
        return replace(self, guarantee=guarantee_called(guarantee, delta=delta))

    def covariates(self, X: Any, y: AnyArray) -> AnyArray:
        return self.condition.of_rows(X, y)

    def check_covariates(self, X: Any, y: AnyArray, covariates: AnyArray | None) -> None:
        assert covariates is not None
        check_condition_ignores_other_rows(self.condition, X, y, covariates)

    def condition_for_tuning(self, X: Any, y: AnyArray) -> Condition:
        return self.condition

    def is_conditioned_on(self, source: Any) -> bool:
        return self.condition.comes_from(source)

    def condition_column(self) -> Any:
        return self.condition.column()

    def condition_in_words(self) -> str:
        return self.condition.in_words()


@dataclass(frozen=True, eq=False)
class ThresholdPerCondition(Calibration):
    """A threshold for each condition. Rows of a new condition get full sets."""

    calibrator: ByCondition

    @cached_property
    def conditions(self) -> tuple[CalibratedCondition, ...]:
        """Take a threshold from the calibration scores of each condition.

        A condition is a group of rows that gets a threshold of its own. Its key is what its rows
        share: a value of a column, such as "north", or a label. The law is the distribution of
        coverage that follows from the rank of the threshold.
        """
        condition = self.calibrator.condition
        key_of_row = self.scored.covariates
        assert key_of_row is not None
        rows_of_key = rows_by_condition(key_of_row)
        name_of_key = distinct_names({key: condition.text(key) for key in rows_of_key})

        conditions = []
        for key, rows in rows_of_key.items():
            scores = self.scored.scores[rows]
            threshold = self.calibrator.guarantee.threshold(scores, alpha=self.alpha)
            law = CoverageLaw.of_threshold(threshold, is_tied=has_ties_near(threshold, scores))
            conditions.append(
                CalibratedCondition(
                    key=key,
                    value=condition.value(key),
                    name=name_of_key[key],
                    threshold=threshold,
                    scores=scores,
                    law=law,
                )
            )
        return tuple(conditions)

    def thresholds(self, X: Any, labels: AnyArray | None = None) -> Floats:
        positions = self._find_positions(self.calibrator.condition.of_trials(X, labels))
        values = [condition.threshold.value for condition in self.conditions]
        values_and_infinity = np.array([*values, np.inf])
        return values_and_infinity[positions]  # position -1, a new condition, takes the last one

    def p_values(
        self,
        scores: Floats,
        X: Any,
        *,
        targets: AnyArray | None = None,
        labels: AnyArray | None = None,
    ) -> Floats:
        """Compute p-values of new rows, each among the calibration scores of its own condition.

        A condition is a group of rows with a threshold of its own. `scores` are those of `targets`,
        one for each row of X, (n,), or of `labels` that are tried in every row, (n, K). In a
        condition without calibration rows the p-values are 1.
        """
        # 1. Find the condition of each score, as a number; -1 for one without calibration rows.
        if targets is not None:
            keys = self.calibrator.condition.of_rows(X, targets)
        else:
            keys = self.calibrator.condition.of_trials(X, labels)
        condition_numbers = np.broadcast_to(self._find_positions(keys), scores.shape).ravel()

        # 2. Sort the scores by condition, and find where each condition starts among them.
        order = np.argsort(condition_numbers, kind="stable")
        n_conditions = len(self.conditions)
        starts = np.searchsorted(condition_numbers[order], np.arange(n_conditions + 1))

        # 3. Compute the p-values of one condition after the other.
        flat_scores = scores.ravel()
        p_values = np.ones(scores.size)
        for number, condition in enumerate(self.conditions):
            indices = order[starts[number] : starts[number + 1]]
            p_values[indices] = p_values_among(condition.scores, flat_scores[indices])
        return p_values.reshape(scores.shape)

    def condition_positions(self, X: Any, y: AnyArray) -> Integers:
        return self._find_positions(self.calibrator.condition.of_rows(X, y))

    def evaluated_groups(self, X: Any, y: AnyArray) -> tuple[ConditionRows, ...]:
        """Find the rows of each condition, with the law of its coverage if it has a threshold."""
        condition = self.calibrator.condition
        law_of_key = {calibrated.key: calibrated.law for calibrated in self.conditions}
        rows_of_key = rows_by_condition(condition.of_rows(X, y))
        return tuple(
            ConditionRows(value=condition.value(key), rows=rows, law=law_of_key.get(key))
            for key, rows in rows_of_key.items()
        )

    def laws(self) -> dict[Any, CoverageLaw]:
        return {
            condition.value: condition.law
            for condition in self.conditions
            if condition.law is not None
        }

    def new_conditions(self, X: Any) -> Counter[str]:
        """Count the rows of each new condition; none where the label decides, which is unknown."""
        condition = self.calibrator.condition
        if condition.needs_label:
            return Counter()

        keys = condition.of_rows(X, np.empty(0))
        is_new = self._find_positions(keys) < 0
        return Counter(condition.quote(key) for key in keys[is_new].tolist())

    def facts(self) -> OrderStatisticFacts:
        """State the rule, the levels, what decides the condition, and each threshold."""
        guarantee = self.calibrator.guarantee
        return OrderStatisticFacts(
            rule=guarantee.name,
            alpha=float(self.alpha),
            delta=None if guarantee.delta is None else float(guarantee.delta),
            condition_on=self.calibrator.condition_in_words(),
            thresholds=tuple(condition.certified() for condition in self.conditions),
        )

    def notes(self, *, n_in_fit: int | None = None, classes: AnyArray | None = None) -> list[Note]:
        """Say which labels have no calibration rows, and which conditions have too few.

        A condition is a group of rows with a threshold of its own. `classes` are all labels of the
        fit; None for a regression. `n_in_fit` is used by other calibrations.
        """
        condition = self.calibrator.condition
        n_needed = self.calibrator.smallest_size(alpha=self.alpha)  # for a finite threshold
        notes = []

        # 1. If labels are the conditions, name those without calibration rows.
        if classes is not None and condition.needs_label:
            has_rows = self._find_positions(condition.of_rows(None, classes)) >= 0
            absent = [repr(label) for label in classes[~has_rows].tolist()]
            notes += note_absent_labels(absent, n_labels=len(classes), smallest=n_needed)

        # 2. Name the conditions whose thresholds are infinite.
        threshold_of_name = {}
        for calibrated in self.conditions:
            name = condition.quote(calibrated.key)
            threshold_of_name[name] = calibrated.threshold
        notes += note_full_conditions(threshold_of_name, smallest=n_needed, alpha=float(self.alpha))
        return notes

    def _find_positions(self, keys: AnyArray) -> Integers:
        """Find the position of each key in `conditions`; -1 if it has no calibration rows."""
        position_of = {
            condition.key: position for position, condition in enumerate(self.conditions)
        }
        positions = [position_of.get(key, -1) for key in keys.ravel().tolist()]
        return np.array(positions, dtype=np.int64).reshape(keys.shape)
