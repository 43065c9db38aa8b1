"""Evaluate tables that do not fit into memory: count part by part, and judge the sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np

from dco.calibration.base import Calibration, ConditionRows, CoverageLaw
from dco.evaluation.evaluation import Evaluation
from dco.evaluation.group_evaluation import GroupEvaluation, SizeSummary, evaluate_group
from dco.evaluation.outcomes import Counts, Outcomes
from dco.evaluation.repeats import decide_on_repeats
from dco.foundations.arrays import AnyArray, Bools
from dco.foundations.fingerprints import row_fingerprints
from dco.predictor import DecoupledPredictor


@dataclass(frozen=True)
class GroupCounts:
    """Counts of all rows, and of those of each condition."""

    overall: Counts = field(default_factory=Counts)
    by_condition: Mapping[Any, Counts] = field(default_factory=dict)

    @classmethod
    def of(cls, outcomes: Outcomes, groups: Sequence[ConditionRows], *, where: Bools) -> Self:
        """Count the rows of one part that are marked."""
        by_condition = {}
        for group in groups:
            marked_rows = group.rows[where[group.rows]]
            if marked_rows.size:
                by_condition[group.value] = Counts.of(outcomes.take(marked_rows))
        return cls(Counts.of(outcomes.take(np.flatnonzero(where))), by_condition)

    def __add__(self, other: GroupCounts) -> GroupCounts:
        names = dict.fromkeys([*self.by_condition, *other.by_condition])
        zero = Counts()
        by_condition = {
            name: self.by_condition.get(name, zero) + other.by_condition.get(name, zero)
            for name in names
        }
        return GroupCounts(self.overall + other.overall, by_condition)


@dataclass(frozen=True)
class PartCounts:
    """What is counted in a part of a table: in rows that equal rows of the fit, and in others.

    `is_exact` is False if the fit kept a sample of its rows, so that some are not recognised.
    """

    repeated: GroupCounts = field(default_factory=GroupCounts)
    others: GroupCounts = field(default_factory=GroupCounts)
    is_exact: bool = True

    @classmethod
    def of(
        cls, predictor: DecoupledPredictor, X: Any, y: AnyArray, calibration: Calibration
    ) -> Self:
        """Count one part."""
        outcomes = Outcomes.of(predictor.sets(X, calibration), y)
        groups = calibration.evaluated_groups(X, y)
        equal = predictor.kept_rows.recognise(row_fingerprints(X, y))
        return cls(
            repeated=GroupCounts.of(outcomes, groups, where=equal.is_recognised),
            others=GroupCounts.of(outcomes, groups, where=~equal.is_recognised),
            is_exact=equal.is_exact,
        )

    def __add__(self, other: PartCounts) -> PartCounts:
        return PartCounts(
            repeated=self.repeated + other.repeated,
            others=self.others + other.others,
            is_exact=self.is_exact and other.is_exact,
        )

    @classmethod
    def total(cls, parts: Iterable[PartCounts]) -> PartCounts:
        """Add up the counts of all parts."""
        return sum(parts, start=PartCounts())

    @property
    def rows(self) -> int:
        """The number of rows that were counted."""
        return self.repeated.overall.rows + self.others.overall.rows


def evaluate_counts(
    predictor: DecoupledPredictor, calibration: Calibration, counts: PartCounts
) -> Evaluation:
    """Judge a table by its counts: the same verdict as that of the whole table.

    Slices and quantiles of sizes would need all rows at once: there are none.
    """
    repeats = decide_on_repeats(
        counts.repeated.overall.rows,
        counts.rows,
        by_role={},
        by_chance=predictor.kept_rows.by_chance(counts.rows),
        is_exact=counts.is_exact,
    )
    judged = counts.others if repeats.left_out else counts.others + counts.repeated
    no_verdict = repeats.no_verdict or calibration.no_law
    if judged.overall.unknown == judged.overall.rows:
        no_verdict = "no row has a label that a set can hold"
    laws = {} if no_verdict else calibration.laws()
    evaluate_sums = partial(evaluate_counted, has_labels=predictor.structure.classes is not None)

    return Evaluation(
        overall=evaluate_sums(judged.overall, law=None if no_verdict else calibration.law),
        by_condition=tuple(
            evaluate_sums(sums, by="condition", group=name, law=laws.get(name))
            for name, sums in judged.by_condition.items()
        ),
        alpha=float(calibration.alpha),
        no_verdict=no_verdict,
        left_out=repeats.left_out,
        notes=() if repeats.note is None else (repeats.note,),
    )


def evaluate_counted(
    counts: Counts,
    *,
    has_labels: bool,
    law: CoverageLaw | None,
    by: str = "rows",
    group: Any = None,
) -> GroupEvaluation:
    """Evaluate rows that were counted and let go."""
    sizes = SizeSummary.of_counts(counts, has_labels=has_labels)
    return evaluate_group(counts, sizes, by=by, group=group, law=law)
