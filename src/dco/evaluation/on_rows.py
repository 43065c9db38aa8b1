"""Evaluate a fitted predictor on rows with known targets, by the laws of its thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dco.calibration.base import Calibration
from dco.evaluation.evaluate import evaluate_conditions, slice_by_outcome
from dco.evaluation.evaluation import Evaluation
from dco.evaluation.outcomes import Outcomes
from dco.evaluation.repeats import Repeats, decide_on_repeats, without_verdict
from dco.evaluation.slices import Slicing, name_of_slices, slice_by_values
from dco.foundations.arrays import AnyArray, as_labels
from dco.foundations.fingerprints import Hashes, role_fingerprint, row_fingerprints
from dco.foundations.notes import Message, Note
from dco.foundations.tables import take_features
from dco.predictor import DecoupledPredictor
from dco.rows.conditions import (
    check_condition,
    condition_values,
    is_label,
)


@dataclass(frozen=True, eq=False)
class RowsToJudge:
    """Rows that are evaluated, and what was decided about those that equal rows of the fit.

    `slice_values` has the value of each row to slice by, if slices were asked for.
    """

    X: Any
    y: AnyArray
    slice_values: AnyArray | None
    repeats: Repeats


def evaluate_on_rows(
    predictor: DecoupledPredictor,
    X: Any,
    y: AnyArray,
    calibrations: Sequence[Calibration],
    *,
    by: Any = None,
) -> tuple[list[Evaluation], list[Note]]:
    """Evaluate a predictor on rows with known targets, once for each calibration.

    The calibrations are those of the predictor at several levels. Rows are sliced `by` a column, a
    function of X, or one value for each row. Returns an evaluation for each calibration, and notes
    about the rows.
    """
    # 1. Rows of the fit prove nothing, so they are left out.
    slice_values = values_to_slice_by(by, X, y, predictor)
    repeats = find_repeats(predictor, X, y)
    rows = leave_out(repeats, X, y, slice_values)
    notes = predictor.notes_on(rows.X, calibrations)
    if repeats.note is not None:
        notes.append(repeats.note)

    # 2. Predict once, and divide the rows once, for all calibrations.
    prediction = predictor.structure.prediction(rows.X)
    conditions = predictor.calibration.evaluated_groups(rows.X, rows.y)
    has_labels = predictor.structure.classes is not None
    slicings = slice_by_outcome(rows.y if has_labels else None, prediction.centres)
    if rows.slice_values is not None:
        slicings.append(slice_by_values(name_of_slices(by), rows.slice_values))
    elif conditions:
        rows_of = {condition.value: condition.rows for condition in conditions}
        slicings.append(Slicing("condition", rows_of))

    # 3. Evaluate the sets of each calibration. Without a verdict, no law is needed.
    no_verdict = repeats.no_verdict or predictor.calibration.no_law
    evaluations = []
    for calibration in calibrations:
        sets = predictor.sets(rows.X, calibration, prediction=prediction)
        laws = {} if no_verdict else calibration.laws()
        evaluation = evaluate_conditions(
            Outcomes.of(sets, rows.y),
            law=None if no_verdict else calibration.law,
            conditions=[
                replace(condition, law=laws.get(condition.value)) for condition in conditions
            ],
            slicings=slicings,
            alpha=float(calibration.alpha),
            no_verdict=no_verdict,
            repeats=repeats,
            remedy=remedy_for_low_classes(predictor),
        )
        evaluations.append(evaluation)
    return evaluations, notes


def find_repeats(predictor: DecoupledPredictor, X: Any, y: AnyArray) -> Repeats:
    """Find rows that equal rows of the fit, and decide what to do with them.

    Such rows prove nothing about new ones. See `decide_on_repeats` for what may be decided.
    """
    # 1. Compare hashes of the rows with those that the predictor keeps.
    hashes = row_fingerprints(X, y)
    recognised = predictor.kept_rows.recognise(hashes)
    repeats = decide_on_repeats(
        recognised.n_rows,
        len(y),
        by_role=recognised.n_rows_by_role,
        by_chance=predictor.kept_rows.by_chance(len(y)),
        is_exact=recognised.is_exact,
        rows=tuple(np.flatnonzero(recognised.is_recognised).tolist()),
    )
    if repeats.no_verdict is not None:
        return repeats

    # 2. In data where rows often repeat, equal rows are no sign that rows of the fit were used. But
    # it is one if these are exactly the rows of one role in the fit, such as calibration.
    role = role_of_these_rows(predictor, hashes)
    if role is not None:
        these_rows = f"these are the {role} rows of the fit"
        return without_verdict(these_rows, sentence=these_rows.capitalize())
    return repeats


def leave_out(repeats: Repeats, X: Any, y: AnyArray, slice_values: AnyArray | None) -> RowsToJudge:
    """Leave out the rows that equal rows of the fit, if that was decided."""
    if not repeats.left_out:
        return RowsToJudge(X, y, slice_values, repeats)

    other_rows = np.setdiff1d(np.arange(len(y)), repeats.rows)
    return RowsToJudge(
        X=take_features(X, other_rows),
        y=y[other_rows],
        slice_values=None if slice_values is None else slice_values[other_rows],
        repeats=repeats,
    )


def role_of_these_rows(predictor: DecoupledPredictor, hashes: Hashes) -> str | None:
    """Return the role of the fit that has exactly these rows; None if no role has."""
    digest = role_fingerprint(hashes)
    for role, role_digest in predictor.certificate.provenance.row_fingerprints.items():
        if role_digest == digest:
            return role
    return None


def values_to_slice_by(
    by: Any, X: Any, y: AnyArray, predictor: DecoupledPredictor
) -> AnyArray | None:
    """Return the value of each row to slice by, (n,); None for no slices.

    `by` is the name or number of a column, a function of X, "label", or an array of the values. If
    it is what the predictor's thresholds are conditioned on there are no slices: conditions are
    evaluated anyway, each by its own law of coverage.
    """
    if by is None or predictor.statement.calibrator.is_conditioned_on(by):
        return None

    names_values = np.ndim(by) == 0 or callable(by)
    if names_values:
        check_condition(by, X, parameter="by")
        if is_label(by) and predictor.structure.classes is None:
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


def remedy_for_low_classes(predictor: DecoupledPredictor) -> str:
    """Say what helps classes that are covered rarely; empty where it would be refused."""
    if not predictor.statement.calibrator.takes_condition:
        return ""
    return Message('⟨condition_on="label"⟩ gives each class a threshold of its own.')
