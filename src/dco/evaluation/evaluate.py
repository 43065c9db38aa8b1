"""Evaluate prediction sets on rows with known targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    slicings = slice_by_outcome(targets if sets.holds_labels else None, centres)
    conditions: list[ConditionRows] = []
    one_threshold = None
    if isinstance(threshold, Mapping):
        slicing = slice_by_values("condition", read_by(by, sets))
        slicings.append(slicing)
        conditions = [
            ConditionRows(value, rows, law_of(threshold.get(value), is_tied=tied))
            for value, rows in slicing.rows_of.items()
        ]
    else:
        one_threshold = threshold
        if by is not None:
            slicings.append(slice_by_values(name_of_slices(by), read_by(by, sets)))

    return evaluate_conditions(
        outcomes,
        law=law_of(one_threshold, is_tied=tied),
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
    """Evaluate all rows, each condition by its own law, and the slices.

    `remedy` says what helps classes that are covered rarely.
    """
    overall = evaluate_outcomes(outcomes, law=law)
    by_condition = tuple(
        evaluate_outcomes(
            outcomes.take(condition.rows), by="condition", group=condition.value, law=condition.law
        )
        for condition in conditions
    )
    slices = evaluate_slices(outcomes, slicings)
    notes = note_low_classes(slices, remedy)
    if repeats.note is not None:
        notes.insert(0, repeats.note)
    if overall.unknown_labels == overall.n:
        no_verdict = "no row has a label that a set can hold"

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
    """Name every class that is covered rarely, and what helps.

    For a class that the fit does not know only rows of it help, whatever the `remedy`.
    """
    low = [row for row in slices if row.by == "class" and row.coverage < LOW_COVERAGE]
    if not low:
        return []

    lowest_first = sorted(low, key=lambda row: row.coverage)
    names = [
        f"{row.group} ({100 * row.coverage:.0f} % of {counted(row.n, 'row')})"
        for row in lowest_first
    ]
    how_many = "1 class is" if len(low) == 1 else f"{len(low)} classes are"
    text = (
        f"{how_many} covered in less than {100 * LOW_COVERAGE:.0f} % of rows: {first_few(names)}."
    )
    if all(row.unknown_labels for row in low):
        remedy = "The fit does not know these labels: fit again, with rows of them."
    return [Note("low-classes", text, remedy)]


def check_arguments(sets: PredictionSets, threshold: Thresholds, by: ArrayLike | None) -> None:
    """Raise an error that says what is needed instead of sets or a threshold."""
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

    for entry in thresholds:
        if not isinstance(entry, Threshold):
            raise ValueError(
                f"threshold must be what a calibration rule returned, a dco.Threshold, "
                f"got {entry!r}."
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
    """Return the level of the sets: the one given, or the one that all thresholds share.

    None where the level is not known. A level that differs from that of the thresholds is refused.
    """
    levels = set()
    if isinstance(threshold, Mapping):
        levels = {as_rational(entry.alpha) for entry in threshold.values()}
    elif threshold is not None:
        levels = {as_rational(threshold.alpha)}

    if alpha is not None:
        levels.add(as_rational(alpha))
        if len(levels) > 1:
            stated = ", ".join(sorted(f"{float(level):g}" for level in levels))
            raise ValueError(f"alpha must be the level of the thresholds, got the levels {stated}.")
    return float(levels.pop()) if len(levels) == 1 else None
