"""Evaluate a fitted predictor on rows with known targets, by the laws of its thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.calibration.calibration import Statement
from dco.evaluation.evaluate import Condition, evaluate_conditions, slice_by_outcome
from dco.evaluation.evaluation import Evaluation
from dco.evaluation.judging import CoverageLaw, law_of
from dco.evaluation.outcomes import Outcomes
from dco.evaluation.repeats import Repeats, decide_on_repeats
from dco.evaluation.slices import Slicing, name_of_slices, slice_by_values
from dco.foundations.arrays import AnyArray, Integers, as_labels
from dco.foundations.fingerprints import row_fingerprints
from dco.foundations.notes import Message, Note
from dco.foundations.ranks import as_rational
from dco.foundations.tables import take_features
from dco.predictor import DecoupledPredictor
from dco.rows.conditions import (
    check_condition,
    condition_names,
    condition_values,
    groups_of,
    is_label,
    rows_by_condition,
)
from dco.structure import Structure

WEIGHTED = (
    "each row has a threshold of its own, by its weight, and such sets have no known law of "
    "coverage"
)
IN_CLUSTERS = (
    "the law of coverage is for independent rows, and rows of this fit belong together in groups"
)


@dataclass(frozen=True, eq=False)
class RowsToJudge:
    """Rows that are evaluated, and what was decided about those that equal rows of the fit."""

    X: Any
    y: AnyArray
    slice_values: AnyArray | None
    repeats: Repeats


def evaluate_on_rows(
    predictor: DecoupledPredictor,
    X: Any,
    y: AnyArray,
    statements: Sequence[Statement],
    *,
    by: Any = None,
) -> tuple[list[Evaluation], list[Note]]:
    """Evaluate a predictor once for each statement; return what should be known besides, too.

    The rows are sliced `by` a column, a function of X, or one value for each row.
    """
    # 1. Rows of the fit prove nothing, so they are left out.
    slice_values = values_to_slice_by(by, X, y, predictor.structure)
    rows = leave_out_repeats(predictor, X, y, slice_values)
    notes = predictor.notes_on(rows.X, statements)
    if rows.repeats.note is not None:
        notes.append(rows.repeats.note)

    # 2. Predict once, and divide the rows once, for all statements.
    prediction = predictor.structure.prediction(rows.X)
    rows_of_conditions = condition_rows(predictor, rows.X, rows.y)
    slicings = slice_by_outcome(
        rows.y if predictor.structure.classes is not None else None, prediction.centres
    )
    if rows.slice_values is not None:
        slicings.append(slice_by_values(name_of_slices(by), rows.slice_values))
    elif rows_of_conditions and not conditions_overlap(predictor):
        slicings.append(Slicing("condition", rows_of_conditions))

    # 3. Evaluate the sets of each statement.
    no_verdict = rows.repeats.no_verdict or no_law(predictor)
    evaluations = []
    for statement in statements:
        sets = predictor.sets(rows.X, statement, prediction=prediction)
        laws = {} if no_verdict else laws_of(predictor, statement)
        evaluations.append(
            evaluate_conditions(
                Outcomes.of(sets, rows.y),
                law=laws.get(None),
                conditions=[
                    Condition(name, positions, laws.get(name))
                    for name, positions in rows_of_conditions.items()
                ],
                slicings=slicings,
                alpha=float(as_rational(statement.alpha)),
                no_verdict=no_verdict,
                repeats=rows.repeats,
                remedy=remedy_for_low_classes(predictor),
            )
        )
    return evaluations, notes


def leave_out_repeats(
    predictor: DecoupledPredictor, X: Any, y: AnyArray, slice_values: AnyArray | None
) -> RowsToJudge:
    """Leave out rows that equal rows of the fit, if there are more than by chance."""
    equal = predictor.kept.among(row_fingerprints(X, y))
    repeats = decide_on_repeats(
        equal.total,
        len(y),
        by_role=equal.counts,
        by_chance=predictor.kept.by_chance(len(y)),
        is_exact=equal.exact,
    )
    if not repeats.left_out:
        return RowsToJudge(X, y, slice_values, repeats)

    others = np.flatnonzero(~equal.known)
    return RowsToJudge(
        X=take_features(X, others),
        y=y[others],
        slice_values=None if slice_values is None else slice_values[others],
        repeats=repeats,
    )


def values_to_slice_by(by: Any, X: Any, y: AnyArray, structure: Structure) -> AnyArray | None:
    """Return the value of each row that `by` holds or names.

    None where nothing was asked for, and where `by` names the conditions: these are evaluated
    anyway, with laws of their own.
    """
    is_rule = np.ndim(by) == 0 or isinstance(by, list)
    if by is None or (is_rule and by == structure.condition_on):
        return None

    if np.ndim(by) == 0 or callable(by):
        check_condition(by, X, parameter="by")
        if is_label(by) and structure.classes is None:
            raise ValueError(
                'by="label" is for classes; a regression takes a column or a callable of X.'
            )
        return condition_values(by, X, y, parameter="by")

    values = as_labels(by)
    if values.shape != y.shape:
        raise ValueError(
            f"by must hold one value for each of {len(y)} rows, got shape {values.shape}."
        )
    return values


def condition_rows(predictor: DecoupledPredictor, X: Any, y: AnyArray) -> dict[Any, Integers]:
    """Return the rows of each condition; a row is in several where conditions overlap."""
    conditions = predictor.structure.conditions(X, y)
    if conditions is None:
        return {}
    if not conditions_overlap(predictor):
        return rows_by_condition(condition_names(conditions))

    groups_of_rows = np.asarray([groups_of(pattern) for pattern in conditions.tolist()])
    rows_of = {}
    for column in groups_of_rows.T:
        rows_of.update(rows_by_condition(column))
    return rows_of


def conditions_overlap(predictor: DecoupledPredictor) -> bool:
    """Decide whether a row may belong to several conditions."""
    return isinstance(predictor.structure.condition_on, list)


def laws_of(predictor: DecoupledPredictor, statement: Statement) -> dict[Any, CoverageLaw | None]:
    """Return the law of each condition's threshold, or the one law under None."""
    is_tied = predictor.tied(statement)
    return {
        name: law_of(threshold, is_tied=name in is_tied)
        for name, threshold in predictor.thresholds(statement).items()
    }


def remedy_for_low_classes(predictor: DecoupledPredictor) -> str:
    """Say what helps classes that are covered rarely; empty where it would be refused."""
    has_clusters = predictor.calibration.clusters is not None
    has_weights = predictor.calibration.weights is not None
    if has_clusters or has_weights or predictor.structure.condition_on is not None:
        return ""
    return Message('⟨condition_on="label"⟩ gives each class a threshold of its own.')


def no_law(predictor: DecoupledPredictor) -> str | None:
    """Say why coverage of new rows has no known law, if it has none."""
    if predictor.calibration.weights is not None:
        return WEIGHTED
    if predictor.calibration.clusters is not None:
        return IN_CLUSTERS
    return None
