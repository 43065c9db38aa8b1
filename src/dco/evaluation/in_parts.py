"""Evaluate tables that do not fit into memory: count part by part, and judge the sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    """Counts of all rows, and of the rows of each condition (with a threshold of their own)."""

    overall: Counts = field(default_factory=Counts)
    by_condition: Mapping[Any, Counts] = field(default_factory=dict)

    @classmethod
    def of(
        cls, outcomes: Outcomes, conditions: Sequence[ConditionRows], *, is_selected: Bools
    ) -> Self:
        """Count the selected rows of one part of a table, together and by condition.

        `is_selected` tells for each row of the part whether it is counted.
        """
        selected_rows = np.flatnonzero(is_selected)
        overall = Counts.of(outcomes.take(selected_rows))

        by_condition = {}
        for condition in conditions:
            is_selected_there = is_selected[condition.rows]
            rows = condition.rows[is_selected_there]
            if rows.size:
                by_condition[condition.value] = Counts.of(outcomes.take(rows))
        return cls(overall=overall, by_condition=by_condition)

    def __add__(self, other: GroupCounts) -> GroupCounts:
        """Add up, condition by condition; one that only one of both has is kept."""
        by_condition = dict(self.by_condition)
        for condition, counts in other.by_condition.items():
            by_condition[condition] = by_condition.get(condition, Counts()) + counts
        return GroupCounts(self.overall + other.overall, by_condition)


@dataclass(frozen=True)
class PartCounts:
    """Counts of a part of a table: of rows that equal rows of the fit, and of new rows.

    `is_exact` is False if the fit kept only a sample of its rows, so that some rows that equal rows
    of the fit are counted as new.
    """

    repeated: GroupCounts = field(default_factory=GroupCounts)
    new: GroupCounts = field(default_factory=GroupCounts)
    is_exact: bool = True

    @classmethod
    def of(
        cls, predictor: DecoupledPredictor, X: Any, y: AnyArray, calibration: Calibration
    ) -> Self:
        """Make the sets of the rows of one part, and count how many hold their target in `y`.

        Rows that equal rows of the fit are counted apart from new ones, and the rows of each
        condition (a group of rows with a threshold of its own) are counted too.
        """
        # 1. Did the sets hold the targets?
        outcomes = Outcomes.of(predictor.sets(X, calibration), y)
        conditions = calibration.evaluated_groups(X, y)

        # 2. Which rows equal rows of the fit? The predictor keeps hashes of those.
        recognised = predictor.kept_rows.recognise(row_fingerprints(X, y))
        is_repeated = recognised.is_recognised
        return cls(
            repeated=GroupCounts.of(outcomes, conditions, is_selected=is_repeated),
            new=GroupCounts.of(outcomes, conditions, is_selected=~is_repeated),
            is_exact=recognised.is_exact,
        )

    def __add__(self, other: PartCounts) -> PartCounts:
        return PartCounts(
            repeated=self.repeated + other.repeated,
            new=self.new + other.new,
            is_exact=self.is_exact and other.is_exact,
        )

    @classmethod
    def total(cls, parts: Iterable[PartCounts]) -> PartCounts:
        """Add up the counts of all parts."""
        return sum(parts, start=PartCounts())

    @property
    def rows(self) -> int:
        """The number of rows that were counted."""
        return self.repeated.overall.rows + self.new.overall.rows


def evaluate_counts(
    predictor: DecoupledPredictor, calibration: Calibration, counts: PartCounts
) -> Evaluation:
    """Evaluate a table of which only counts are left, with the same verdict as on the table itself.

    Slices and quantiles of sizes would need all rows at once, so there are none.
    """
    # 1. Decide what to do with rows that equal rows of the fit, which prove nothing.
    repeats = decide_on_repeats(
        counts.repeated.overall.rows,
        counts.rows,
        by_role={},
        by_chance=predictor.kept_rows.by_chance(counts.rows),
        is_exact=counts.is_exact,
    )
    judged = counts.new
    if not repeats.left_out:
        judged = counts.new + counts.repeated

    # 2. Is there a reason why these rows can show nothing? Otherwise their coverage is compared
    # with its law, which says how it varies by chance.
    no_verdict = repeats.no_verdict or calibration.no_law
    if judged.overall.unknown == judged.overall.rows:
        no_verdict = "no row has a label that a set can hold"
    law = None if no_verdict else calibration.law
    law_by_condition = {} if no_verdict else calibration.laws()

    # 3. Evaluate all rows, and those of each condition (a group with a threshold of its own).
    has_labels = predictor.structure.classes is not None
    by_condition = tuple(
        evaluate_counted(
            condition_counts,
            has_labels=has_labels,
            law=law_by_condition.get(condition),
            by="condition",
            group=condition,
        )
        for condition, condition_counts in judged.by_condition.items()
    )
    return Evaluation(
        overall=evaluate_counted(judged.overall, has_labels=has_labels, law=law),
        by_condition=by_condition,
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
    """Evaluate rows of which only the counts are left. `by` and `group` say which rows they are."""
    sizes = SizeSummary.of_counts(counts, has_labels=has_labels)
    return evaluate_group(counts, sizes, by=by, group=group, law=law)
