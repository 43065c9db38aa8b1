"""Ways to slice the rows of an evaluation: by class, by fifth of the prediction, by a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.evaluation.group_evaluation import GroupEvaluation, evaluate_outcomes
from dco.evaluation.outcomes import Outcomes
from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.foundations.display import number
from dco.predictions import fifths
from dco.rows.conditions import condition_names, rows_by_condition

FAMILY_ERROR_RATE = 0.05  # how often any interval of all slices misses its coverage
OWN_KINDS = ("class", "fifth", "condition")  # slices that nobody needs to ask for


@dataclass(frozen=True, eq=False)
class Slicing:
    """One way to slice rows, such as by class: the rows of each value, in sorted order."""

    by: str
    rows_of: Mapping[Any, Integers]


def slice_by_values(by: str, values: AnyArray) -> Slicing:
    """Slice rows by one value for each row. `by` is the name of this slicing, such as "class"."""
    return Slicing(by, rows_by_condition(condition_names(values)))


def name_of_slices(by: Any) -> str:
    """Return the name for slices by a column, by a function, or by one value for each row.

    It is "slice" where nothing gives a name, or one that other slices have.
    """
    if isinstance(by, str):
        name = by
    elif isinstance(by, (int, np.integer)):
        name = f"column {by}"
    else:
        name = str(getattr(by, "__name__", None) or getattr(by, "name", None) or "slice")
    return "slice" if name in OWN_KINDS or name == "<lambda>" else name


def slice_by_fifths(centres: Floats) -> Slicing:
    """Slice rows into five parts of about one size, from the smallest predictions to the largest.

    Each part is named by its number and its range of predictions: "1: 0.2 to 3.5".
    """
    fifth_of_row = fifths(centres)
    rows_of = {}
    for fifth in np.unique(fifth_of_row).tolist():
        rows = np.flatnonzero(fifth_of_row == fifth)
        rows_of[f"{fifth + 1}: {range_in_words(centres[rows])}"] = rows
    return Slicing("fifth", rows_of)


def range_in_words(values: Floats) -> str:
    """Write the smallest and the largest value, or one of them if both read alike."""
    low = number(float(values.min()))
    high = number(float(values.max()))
    return low if low == high else f"{low} to {high}"


def evaluate_slices(outcomes: Outcomes, slicings: Sequence[Slicing]) -> tuple[GroupEvaluation, ...]:
    """Evaluate every slice of the rows, such as each class, with an interval for its coverage.

    All intervals hold at once with 95 % confidence. For that, each may be wrong only at a share of
    the error rate: 5 % divided by the number of slices (Bonferroni).
    """
    n_slices = sum(len(slicing.rows_of) for slicing in slicings)
    evaluations = []
    for slicing in slicings:
        for value, rows in slicing.rows_of.items():
            confidence = 1 - FAMILY_ERROR_RATE / n_slices
            evaluation = evaluate_outcomes(
                outcomes.take(rows), by=slicing.by, group=value, confidence=confidence
            )
            evaluations.append(evaluation)
    return tuple(evaluations)
