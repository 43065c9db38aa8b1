"""The tables by slice of a report, and what mends a slice that is covered too rarely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote

from dco import DecoupledClassifier, DecoupledRegressor, Evaluation, GroupEvaluation

MOST_SLICES = 12  # of one table
AUTOMATIC_SLICES = ("condition", "class", "fifth")  # that nobody asks for by `by=`


@dataclass(frozen=True)
class SliceTable:
    """Coverage and set sizes in slices of the rows: by class, say, or by the values of a column.

    Attributes
    ----------
    name
        What the rows are sliced by, in words.
    slices
        The slices that are shown; `n_left_out` others are not.
    undercovered
        The slices whose whole interval of coverage lies below the promise, 1 - alpha.
    remedy
        What covers these as often as promised; empty where nothing simple does.
    are_conditions
        Whether the slices are the conditions of the fit, which have thresholds of their own.
    """

    name: str
    slices: tuple[GroupEvaluation, ...]
    undercovered: tuple[GroupEvaluation, ...]
    remedy: str
    n_left_out: int
    are_conditions: bool


def slice_tables(
    estimator: DecoupledClassifier | DecoupledRegressor, evaluation: Evaluation, *, target: str
) -> tuple[SliceTable, ...]:
    """Make a table of coverage for each way in which an evaluation slices the rows.

    The columns that the user named in ``by=`` come first, then the slices that every evaluation
    has: by condition, by class and by fifth of the prediction. `target` is the name of the target
    column, for advice on the command line.
    """
    all_slicings = list(dict.fromkeys(row.by for row in evaluation.slices))  # each name once
    requested = [name for name in all_slicings if name not in AUTOMATIC_SLICES]
    automatic = [name for name in AUTOMATIC_SLICES if name in all_slicings]

    # Where each class is a condition, one table shows both.
    if are_same_slices(evaluation.slices_by("class"), evaluation.slices_by("condition")):
        automatic.remove("class")

    return tuple(
        slice_table(estimator, evaluation, name, target=target) for name in [*requested, *automatic]
    )


def are_same_slices(slices: Sequence[GroupEvaluation], others: Sequence[GroupEvaluation]) -> bool:
    """Decide whether two lists have the same slices, by their names, sizes and coverages."""
    facts = {(str(row.group), row.n, row.coverage) for row in slices}
    other_facts = {(str(row.group), row.n, row.coverage) for row in others}
    return bool(facts) and facts == other_facts


def slice_table(
    estimator: DecoupledClassifier | DecoupledRegressor,
    evaluation: Evaluation,
    sliced_by: str,
    *,
    target: str,
) -> SliceTable:
    """Make the table of coverage and set sizes for the rows, sliced in one way.

    Parameters
    ----------
    sliced_by
        "condition" (rows with a threshold of their own), "class", "fifth" (five parts of the rows,
        from the smallest prediction to the largest), or the name of a column.
    target
        The name of the target column, for advice on the command line.
    """
    # 1. Choose the slices to show: the classes that are covered least often, or the largest others.
    slices = evaluation.slices_by(sliced_by)
    shown = slices
    if sliced_by == "class":
        shown = tuple(sorted(slices, key=lambda row: row.coverage)[:MOST_SLICES])
    elif len(slices) > MOST_SLICES:
        shown = tuple(sorted(slices, key=lambda row: -row.n)[:MOST_SLICES])

    # 2. Find those that are covered less often than promised, even at the high end of the interval.
    #    If all rows together are, advice about single slices would miss the point.
    promised = 1 - estimator.certificate_.alpha
    undercovered = tuple(row for row in shown if row.coverage_high < promised)
    remedy = ""
    if undercovered and evaluation.verdict != "failed":
        remedy = remedy_for(estimator, sliced_by, undercovered, target=target)

    return SliceTable(
        name=name_of_slices(estimator, evaluation, sliced_by),
        slices=shown,
        undercovered=undercovered,
        remedy=remedy,
        n_left_out=len(slices) - len(shown),
        are_conditions=are_same_slices(slices, evaluation.by_condition),
    )


def name_of_slices(
    estimator: DecoupledClassifier | DecoupledRegressor, evaluation: Evaluation, sliced_by: str
) -> str:
    """Say what the rows are sliced by: "class", "fifth of the prediction", or a column."""
    if sliced_by == "fifth":
        are_numbers = evaluation.overall.sizes.one_label is None
        return "fifth of the prediction" if are_numbers else "fifth of the largest probability"
    if sliced_by == "condition" and isinstance(estimator.condition_on, str):
        return estimator.condition_on
    return sliced_by


def remedy_for(
    estimator: DecoupledClassifier | DecoupledRegressor,
    sliced_by: str,
    undercovered: Sequence[GroupEvaluation],
    *,
    target: str,
) -> str:
    """Advise how to cover slices as often as promised; "" where nothing simple helps.

    `undercovered` are the slices that are covered too rarely. `sliced_by` and `target` are as in
    `slice_table`.
    """
    # 1. Too low where predictions are large, say: the model should make wider intervals there.
    if sliced_by == "fifth":
        if isinstance(estimator, DecoupledClassifier):
            return ""
        return (
            "Widths that follow the row help: dco.models.ResidualSpread(model), "
            "dco.models.QuantilePair(model), or the default models of dco fit."
        )

    # 2. A threshold for each slice, unless it has one already or the calibrator cannot give it one.
    can_have_conditions = estimator.predictor_.statement.calibrator.takes_condition
    if sliced_by == "condition" or not can_have_conditions:
        return ""
    if sliced_by == "class":
        if all(row.unknown_labels for row in undercovered):
            return "The fit does not know these classes: fit again, with rows of them."
        return remedy_by_threshold("class", condition_on="label", column=target)

    feature_names = getattr(estimator, "feature_names_in_", ())
    if sliced_by in feature_names:
        return remedy_by_threshold(sliced_by, condition_on=sliced_by, column=sliced_by)
    return ""


def remedy_by_threshold(name: str, *, condition_on: str, column: str) -> str:
    """Advise a threshold for each slice, by the parameter in Python and by the command line."""
    return (
        f'Give each {name} a threshold of its own: condition_on="{condition_on}", or dco fit '
        f"--condition-on {quote(column)}."
    )
