"""The tables by slice of a report, and what mends a slice that is covered too rarely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote

from dco import DecoupledClassifier, DecoupledRegressor, Evaluation, GroupEvaluation

MOST_SLICES = 12  # of one table


@dataclass(frozen=True)
class SliceTable:
    """The slices of one kind: by class, by fifth of the prediction, by condition, by a column.

    Fifths are five parts of about one size, from the smallest predictions to the largest.
    `too_low` names those whose whole interval lies below the promise, `remedy` says what helps them
    (empty where nothing simple does), and `n_left_out` smaller slices are not shown.
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
    """Make a table of each kind of slice; what was asked for comes first.

    `target` is the name of the targets, by which the command line conditions on them.
    """
    kinds = dict.fromkeys(row.by for row in evaluation.slices)
    own_kinds = [kind for kind in ("condition", "class", "fifth") if kind in kinds]
    if are_same_rows(evaluation.slices_by("class"), evaluation.slices_by("condition")):
        own_kinds.remove("class")
    asked_for = [kind for kind in kinds if kind not in ("condition", "class", "fifth")]
    return tuple(
        slice_table(estimator, evaluation, kind, target=target) for kind in [*asked_for, *own_kinds]
    )


def are_same_rows(slices: Sequence[GroupEvaluation], others: Sequence[GroupEvaluation]) -> bool:
    """Decide whether two divisions of the rows are the same, under the same names."""
    rows = {(str(row.group), row.n, row.coverage) for row in slices}
    other_rows = {(str(row.group), row.n, row.coverage) for row in others}
    return bool(rows) and rows == other_rows


def slice_table(
    estimator: DecoupledClassifier | DecoupledRegressor,
    evaluation: Evaluation,
    kind: str,
    *,
    target: str,
) -> SliceTable:
    """Make the table of one kind: of many classes those covered least, else the largest slices."""
    slices = evaluation.slices_by(kind)
    shown = slices
    if kind == "class":
        shown = tuple(sorted(slices, key=lambda row: row.coverage)[:MOST_SLICES])
    elif len(slices) > MOST_SLICES:
        shown = tuple(sorted(slices, key=lambda row: -row.n)[:MOST_SLICES])

    promised = 1 - estimator.certificate_.alpha
    too_low = tuple(row for row in shown if row.coverage_high < promised)
    remedy = ""
    if too_low and evaluation.verdict != "failed":
        remedy = remedy_for(estimator, kind, too_low, target=target)
    return SliceTable(
        name=table_name(estimator, evaluation, kind),
        slices=shown,
        too_low=too_low,
        remedy=remedy,
        n_left_out=len(slices) - len(shown),
        are_conditions=are_same_rows(slices, evaluation.by_condition),
    )


def table_name(
    estimator: DecoupledClassifier | DecoupledRegressor, evaluation: Evaluation, kind: str
) -> str:
    """Say what the slices of a kind have in common."""
    if kind == "fifth":
        of_numbers = evaluation.overall.sizes.one_label is None
        return "fifth of the prediction" if of_numbers else "fifth of the largest probability"
    if kind == "condition" and isinstance(estimator.condition_on, str):
        return estimator.condition_on
    return kind


def remedy_for(
    estimator: DecoupledClassifier | DecoupledRegressor,
    kind: str,
    too_low: Sequence[GroupEvaluation],
    *,
    target: str,
) -> str:
    """Say what covers these slices as often as promised; empty where nothing simple does."""
    if kind == "fifth":
        if isinstance(estimator, DecoupledClassifier):
            return ""
        return (
            "Widths that follow the row help: dco.models.ResidualSpread(model), "
            "dco.models.QuantilePair(model), or the default models of dco fit."
        )
    if kind == "condition" or not estimator.predictor_.statement.calibrator.takes_condition:
        return ""

    if kind == "class":
        if all(row.unknown_labels for row in too_low):
            return "The fit does not know these classes: fit again, with rows of them."
        return (
            'Give each class a threshold of its own: condition_on="label", or dco fit '
            f"--condition-on {quote(target)}."
        )
    if kind in getattr(estimator, "feature_names_in_", ()):
        return (
            f'Give each {kind} a threshold of its own: condition_on="{kind}", or dco fit '
            f"--condition-on {quote(kind)}."
        )
    return ""
