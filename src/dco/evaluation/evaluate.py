"""Evaluate prediction sets on rows with known targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.calibration.base import ConditionRows, CoverageLaw
from dco.evaluation.evaluation import Evaluation
from dco.evaluation.group_evaluation import GroupEvaluation, evaluate_outcomes
from dco.evaluation.outcomes import Outcomes
from dco.evaluation.repeats import NO_REPEATS, Repeats
from dco.evaluation.slices import (
    Slicing,
    evaluate_slices,
    name_of_slices,
    slice_by_fifths,
    slice_by_values,
)
from dco.foundations.arrays import AnyArray, as_labels, as_real_numbers
from dco.foundations.display import counted, first_few
from dco.foundations.notes import Note
from dco.foundations.ranks import Level, Threshold, as_rational
from dco.rows.targets import read_targets
from dco.sets.prediction_sets import PredictionSets

LOW_COVERAGE = 0.7  # a class that is covered less often is named in a note

Thresholds: TypeAlias = Threshold | Mapping[Any, Threshold] | None


def evaluate(
    sets: PredictionSets,
    y: ArrayLike,
    *,
    threshold: Thresholds = None,
    by: ArrayLike | None = None,
    centres: ArrayLike | None = None,
    tied: bool = False,
    alpha: Level | None = None,
) -> Evaluation:
    """Evaluate prediction sets against the targets of the same rows.

    The rows must be new: rows that trained, tuned or calibrated prove nothing.

    Parameters
    ----------
    sets, y
        The sets, and the target of each row.
    threshold
        What a rule returned for these sets. If it certifies coverage by its rank ("marginal" or
        "pac"), coverage is tested against the law of that rank. A mapping gives the threshold of
        each value of `by`: each value is then judged by its own.
    by
        One value for each row: results are added for each value.
    centres
        One number for each row, such as the point prediction: results are added for five parts of
        the rows, from the smallest numbers to the largest.
    tied
        Whether calibration scores are equal near a threshold: high coverage is then no evidence.
    alpha
        The level of the sets, where no threshold says it.
    """
    check_arguments(sets, threshold, by)
    targets = read_targets(y, as_numbers=not sets.holds_labels)
    outcomes = Outcomes.of(sets, targets)
    if len(outcomes) == 0:
        raise ValueError("there are no rows to evaluate; give at least one.")

    # 1. Divide the rows into slices.
    slicings = slice_by_outcome(targets if sets.holds_labels else None, centres)
    has_several_thresholds = isinstance(threshold, Mapping)
    if by is not None:
        name = "condition" if has_several_thresholds else name_of_slices(by)
        slicings.append(slice_by_values(name, read_by(by, sets)))

    # 2. Find the law of coverage (how coverage varies by chance) of the threshold, or of each.
    law = None
    conditions: list[ConditionRows] = []
    if isinstance(threshold, Mapping):
        slicing_by_threshold = slicings[-1]  # `by` is given where there are several thresholds
        for value, rows in slicing_by_threshold.rows_of.items():
            law_of_value = law_of(threshold.get(value), is_tied=tied)
            conditions.append(ConditionRows(value, rows, law_of_value))
    else:
        law = law_of(threshold, is_tied=tied)

    # 3. Compare the coverage with these.
    return evaluate_conditions(
        outcomes,
        law=law,
        conditions=conditions,
        slicings=slicings,
        alpha=stated_level(threshold, alpha),
    )


def law_of(threshold: Threshold | None, *, is_tied: bool) -> CoverageLaw | None:
    """Return the law of coverage of a threshold; None without a threshold, or if it has no law."""
    if threshold is None:
        return None
    return CoverageLaw.of_threshold(threshold, is_tied=is_tied)


def evaluate_conditions(
    outcomes: Outcomes,
    *,
    law: CoverageLaw | None,
    conditions: Sequence[ConditionRows],
    slicings: Sequence[Slicing],
    alpha: float | None,
    no_verdict: str | None = None,
    repeats: Repeats = NO_REPEATS,
    remedy: str = "",
) -> Evaluation:
    """Evaluate all rows, each condition by its own law of coverage, and the slices.

    Parameters
    ----------
    outcomes
        For each row, whether its set holds the target, and its size.
    law
        The law of coverage of all rows (how their coverage varies by chance), with which it is
        compared; None if they have no threshold in common.
    conditions
        Groups of rows with a threshold of their own, and its law.
    slicings
        Ways to divide the rows, such as by class.
    alpha
        The level of the sets, if it is known.
    no_verdict
        Why these rows cannot show whether the coverage is as promised; None if they can.
    repeats
        What was decided about rows that equal rows of the fit.
    remedy
        What helps classes that are covered rarely, in words.
    """
    # 1. All rows, and each condition.
    overall = evaluate_outcomes(outcomes, law=law)
    by_condition = tuple(
        evaluate_outcomes(
            outcomes.take(condition.rows), by="condition", group=condition.value, law=condition.law
        )
        for condition in conditions
    )
    if overall.unknown_labels == overall.n:
        no_verdict = "no row has a label that a set can hold"

    # 2. The slices.
    slices = evaluate_slices(outcomes, slicings)
    notes = note_low_classes(slices, remedy)
    if repeats.note is not None:
        notes.insert(0, repeats.note)

    return Evaluation(
        overall=overall,
        by_condition=by_condition,
        slices=slices,
        alpha=alpha,
        no_verdict=no_verdict,
        left_out=repeats.left_out,
        left_out_rows=repeats.rows,
        notes=tuple(notes),
    )


def slice_by_outcome(labels: AnyArray | None, centres: ArrayLike | None) -> list[Slicing]:
    """Slice rows by their class and by the fifth of their prediction, where these are known."""
    slicings = []
    if labels is not None:
        slicings.append(slice_by_values("class", as_labels(labels)))
    if centres is not None:
        numbers = as_real_numbers(centres, name="centres").astype(np.float64)
        slicings.append(slice_by_fifths(numbers))
    return slicings


def note_low_classes(slices: Sequence[GroupEvaluation], remedy: str) -> list[Note]:
    """Note the classes that are covered rarely, and what helps.

    `slices` are the evaluated slices of all kinds; those by class are looked at. `remedy` says what
    helps, but for classes that the fit does not know only rows of them help.
    """
    classes = [evaluated for evaluated in slices if evaluated.by == "class"]
    low_classes = [evaluated for evaluated in classes if evaluated.coverage < LOW_COVERAGE]
    if not low_classes:
        return []

    names = []
    for low_class in sorted(low_classes, key=attrgetter("coverage")):
        coverage = f"{100 * low_class.coverage:.0f} % of {counted(low_class.n, 'row')}"
        names.append(f"{low_class.group} ({coverage})")
    how_many = "1 class is" if len(names) == 1 else f"{len(names)} classes are"
    text = (
        f"{how_many} covered in less than {100 * LOW_COVERAGE:.0f} % of rows: {first_few(names)}."
    )
    if all(low_class.unknown_labels for low_class in low_classes):
        remedy = "The fit does not know these labels: fit again, with rows of them."
    return [Note("low-classes", text, remedy)]


def check_arguments(sets: PredictionSets, threshold: Thresholds, by: ArrayLike | None) -> None:
    """Refuse sets and thresholds of a wrong type, and thresholds by value without values."""
    if not isinstance(sets, PredictionSets):
        raise ValueError(
            f"sets must be LabelSets, Intervals or IntervalUnions, got {type(sets).__name__}."
        )
    if isinstance(threshold, Mapping):
        if by is None:
            raise ValueError("threshold maps values of by= to thresholds: give by= too.")
        thresholds = list(threshold.values())
    else:
        thresholds = [] if threshold is None else [threshold]

    for value in thresholds:
        if not isinstance(value, Threshold):
            raise ValueError(
                f"threshold must be what a calibration rule returned, a dco.Threshold, "
                f"got {value!r}."
            )


def read_by(by: ArrayLike | None, sets: PredictionSets) -> AnyArray:
    """Read the values to slice by, one for each row."""
    values = as_labels(by)
    if values.shape != (len(sets),):
        raise ValueError(
            f"by must hold one value for each of the {len(sets)} rows, got shape {values.shape}."
        )
    return values


def stated_level(threshold: Thresholds, alpha: Level | None) -> float | None:
    """Return the level of the sets: `alpha` if it is given, or the one that all thresholds share.

    None where the level is not known. An `alpha` that differs from the thresholds' is refused.
    """
    thresholds: list[Threshold] = []
    if isinstance(threshold, Mapping):
        thresholds = list(threshold.values())
    elif threshold is not None:
        thresholds = [threshold]
    levels = {as_rational(one_threshold.alpha) for one_threshold in thresholds}

    if alpha is not None:
        levels.add(as_rational(alpha))
        if len(levels) > 1:
            stated = ", ".join(sorted(f"{float(level):g}" for level in levels))
            raise ValueError(f"alpha must be the level of the thresholds, got the levels {stated}.")
    return float(levels.pop()) if len(levels) == 1 else None
