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
        assert self.scored.covariates is not None
        condition = self.calibrator.condition
        rows_of = rows_by_condition(self.scored.covariates)
        name_of = distinct_names({key: condition.text(key) for key in rows_of})

        conditions = []
        for key, rows in rows_of.items():
            scores = self.scored.scores[rows]
            threshold = self.calibrator.guarantee.threshold(scores, alpha=self.alpha)
            law = CoverageLaw.of_threshold(threshold, is_tied=has_ties_near(threshold, scores))
            conditions.append(
                CalibratedCondition(
                    key=key,
                    value=condition.value(key),
                    name=name_of[key],
                    threshold=threshold,
                    scores=scores,
                    law=law,
                )
            )
        return tuple(conditions)

    def thresholds(self, X: Any, labels: AnyArray | None = None) -> Floats:
        positions = self._find(self.calibrator.condition.of_trials(X, labels))
        values = [condition.threshold.value for condition in self.conditions]
        return np.array([*values, np.inf])[positions]  # position -1 is a new condition

    def p_values(
        self,
        scores: Floats,
        X: Any,
        *,
        targets: AnyArray | None = None,
        labels: AnyArray | None = None,
    ) -> Floats:
        """Compute p-values within each condition; in a condition without rows they are 1."""
        if targets is not None:
            keys = self.calibrator.condition.of_rows(X, targets)
        else:
            keys = self.calibrator.condition.of_trials(X, labels)

        # Sort the scores by condition, so that those of each lie between two borders.
        flat_scores = scores.ravel()
        positions = np.broadcast_to(self._find(keys), scores.shape).ravel()
        order = np.argsort(positions, kind="stable")
        borders = np.searchsorted(positions[order], np.arange(len(self.conditions) + 1))

        p_values = np.ones(scores.size)
        for number, condition in enumerate(self.conditions):
            cells = order[borders[number] : borders[number + 1]]
            p_values[cells] = p_values_among(condition.scores, flat_scores[cells])
        return p_values.reshape(scores.shape)

    def condition_positions(self, X: Any, y: AnyArray) -> Integers:
        return self._find(self.calibrator.condition.of_rows(X, y))

    def evaluated_groups(self, X: Any, y: AnyArray) -> tuple[ConditionRows, ...]:
        """Find the rows of each condition, with the law of its coverage if it has a threshold."""
        condition = self.calibrator.condition
        law_of = {calibrated.key: calibrated.law for calibrated in self.conditions}
        rows_of = rows_by_condition(condition.of_rows(X, y))
        return tuple(
            ConditionRows(value=condition.value(key), rows=rows, law=law_of.get(key))
            for key, rows in rows_of.items()
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
        is_new = self._find(keys) < 0
        return Counter(condition.quote(key) for key in keys[is_new].tolist())

    def facts(self) -> OrderStatisticFacts:
        guarantee = self.calibrator.guarantee
        return OrderStatisticFacts(
            rule=guarantee.name,
            alpha=float(self.alpha),
            delta=None if guarantee.delta is None else float(guarantee.delta),
            condition_on=self.calibrator.condition_in_words(),
            thresholds=tuple(condition.certified() for condition in self.conditions),
        )

    def notes(self, *, n_in_fit: int | None = None, classes: AnyArray | None = None) -> list[Note]:
        """Say which labels have no calibration rows, and which conditions have too few."""
        condition = self.calibrator.condition
        smallest = self.calibrator.smallest_size(alpha=self.alpha)
        notes = []

        if classes is not None and condition.needs_label:
            has_rows = self._find(condition.of_rows(None, classes)) >= 0
            absent = [repr(label) for label in classes[~has_rows].tolist()]
            notes += note_absent_labels(absent, n_labels=len(classes), smallest=smallest)

        thresholds = {
            condition.quote(calibrated.key): calibrated.threshold for calibrated in self.conditions
        }
        notes += note_full_conditions(thresholds, smallest=smallest, alpha=float(self.alpha))
        return notes

    def _find(self, keys: AnyArray) -> Integers:
        """Find the position of each key among the conditions; -1 if it has no calibration rows."""
        position_of = {
            condition.key: position for position, condition in enumerate(self.conditions)
        }
        positions = [position_of.get(key, -1) for key in keys.ravel().tolist()]
        return np.array(positions, dtype=np.int64).reshape(keys.shape)
