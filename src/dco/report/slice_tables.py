"""The tables by slice of a report, and what mends a slice that is covered too rarely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote

from dco import DecoupledClassifier, DecoupledRegressor, Evaluation, GroupEvaluation

MOST_SLICES = 12  # of one table
OWN_DIVISIONS = ("condition", "class", "fifth")  # of every evaluation; others were asked for


@dataclass(frozen=True)
class SliceTable:
    """Coverage and sizes in the slices of one division of the rows.

    A division is by condition, by class, by fifth of the prediction, or by a column that was asked
    for. Fifths are five parts of about one size, from the smallest predictions to the largest.

    Attributes
    ----------
    name
        What the rows are divided by, in words.
    slices
        The slices that are shown; `n_left_out` others are not.
    too_low
        The slices whose whole interval of coverage lies below the promise.
    remedy
        What covers these as often as promised; empty where nothing simple does.
    are_conditions
        Whether the slices are the conditions of the fit, under the same names.
    """

    name: str
    slices: tuple[GroupEvaluation, ...]
    too_low: tuple[GroupEvaluation, ...]
    remedy: str
    n_left_out: int
    are_conditions: bool


def slice_tables(
    estimator: DecoupledClassifier | DecoupledRegressor, evaluation: Evaluation, *, target: str
) -> tuple[SliceTable, ...]:
    """Make a table for each division of the rows; those that were asked for come first.

    `target` is the name of the targets, which a remedy on the command line needs.
    """
    divisions = dict.fromkeys(row.by for row in evaluation.slices)  # each once, in their order
    asked_for = [division for division in divisions if division not in OWN_DIVISIONS]
    own = [division for division in OWN_DIVISIONS if division in divisions]
    if are_same_slices(evaluation.slices_by("class"), evaluation.slices_by("condition")):
        own.remove("class")  # each class is a condition, and one table shows both
    return tuple(
        slice_table(estimator, evaluation, division, target=target)
        for division in [*asked_for, *own]
    )


def are_same_slices(slices: Sequence[GroupEvaluation], others: Sequence[GroupEvaluation]) -> bool:
    """Decide whether two divisions have the same slices, by their names, sizes and coverages."""
    facts = {(str(row.group), row.n, row.coverage) for row in slices}
    other_facts = {(str(row.group), row.n, row.coverage) for row in others}
    return bool(facts) and facts == other_facts


def slice_table(
    estimator: DecoupledClassifier | DecoupledRegressor,
    evaluation: Evaluation,
    division: str,
    *,
    target: str,
) -> SliceTable:
    """Make the table of one division of the rows.

    `division` is "condition", "class" or "fifth" (of the prediction), or the name of a column by
    which slices were asked for. Of many classes those that are covered least often are shown, of
    other slices the largest. `target` is the name of the targets.
    """
    slices = evaluation.slices_by(division)
    shown = slices
    if division == "class":
        shown = tuple(sorted(slices, key=lambda row: row.coverage)[:MOST_SLICES])
    elif len(slices) > MOST_SLICES:
        shown = tuple(sorted(slices, key=lambda row: -row.n)[:MOST_SLICES])

    promised = 1 - estimator.certificate_.alpha
    too_low = tuple(row for row in shown if row.coverage_high < promised)
    remedy = ""
    if too_low and evaluation.verdict != "failed":
        remedy = remedy_for(estimator, division, too_low, target=target)
    return SliceTable(
        name=name_of_division(estimator, evaluation, division),
        slices=shown,
        too_low=too_low,
        remedy=remedy,
        n_left_out=len(slices) - len(shown),
        are_conditions=are_same_slices(slices, evaluation.by_condition),
    )


def name_of_division(
    estimator: DecoupledClassifier | DecoupledRegressor, evaluation: Evaluation, division: str
) -> str:
    """Say what the rows are divided by: "class", "fifth of the prediction", or a column."""
    if division == "fifth":
        are_numbers = evaluation.overall.sizes.one_label is None
        return "fifth of the prediction" if are_numbers else "fifth of the largest probability"
    if division == "condition" and isinstance(estimator.condition_on, str):
        return estimator.condition_on
    return division


def remedy_for(
    estimator: DecoupledClassifier | DecoupledRegressor,
    division: str,
    too_low: Sequence[GroupEvaluation],
    *,
    target: str,
) -> str:
    """Say how to cover these slices as often as promised; empty where nothing simple helps.

    `division` says what the slices are by: "condition", "class" or "fifth" (of the prediction), or
    a column that was asked for. `target` is the name of the targets.
    """
    if division == "fifth":
        if isinstance(estimator, DecoupledClassifier):
            return ""
        return (
            "Widths that follow the row help: dco.models.ResidualSpread(model), "
            "dco.models.QuantilePair(model), or the default models of dco fit."
        )

    # Thresholds by condition: not where there are some, nor where the calibration takes none.
    takes_condition = estimator.predictor_.statement.calibrator.takes_condition
    if division == "condition" or not takes_condition:
        return ""
    if division == "class":
        if all(row.unknown_labels for row in too_low):
            return "The fit does not know these classes: fit again, with rows of them."
        return remedy_by_threshold("class", condition_on="label", column=target)
    if division in getattr(estimator, "feature_names_in_", ()):
        return remedy_by_threshold(division, condition_on=division, column=division)
    return ""


def remedy_by_threshold(name: str, *, condition_on: str, column: str) -> str:
    """Advise a threshold for each slice, by the parameter in Python and by the command line."""
    return (
        f'Give each {name} a threshold of its own: condition_on="{condition_on}", or dco fit '
        f"--condition-on {quote(column)}."
    )
