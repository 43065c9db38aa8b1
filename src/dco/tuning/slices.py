"""Slices of the tuning rows: parts that an objective looks at one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.predictions import fifths
from dco.rows.conditions import check_condition, condition_values
from dco.rows.rows import Rows
from dco.tuning.cutoffs import ThresholdByCondition, ThresholdKind, distinct, number_values

_FIFTHS = (
    "the fifth of the rows with the lowest predictions",
    "the second fifth of the rows by prediction",
    "the middle fifth of the rows by prediction",
    "the fourth fifth of the rows by prediction",
    "the fifth of the rows with the highest predictions",
)
_FIFTHS_OF_CONFIDENCE = (
    "the fifth of the rows whose largest probability is lowest",
    "the second fifth of the rows by their largest probability",
    "the middle fifth of the rows by their largest probability",
    "the fourth fifth of the rows by their largest probability",
    "the fifth of the rows whose largest probability is highest",
)


@dataclass(frozen=True, eq=False)
class Slicing:
    """A way to cut the tuning rows into slices, such as by class.

    `numbers` has the number of each row's slice, from 0, and `names` the name of each slice.
    """

    numbers: Integers
    names: Sequence[str]

    def take(self, rows: Integers) -> Slicing:
        """Keep some of the rows."""
        return Slicing(self.numbers[rows], self.names)

    @classmethod
    def by_value(cls, values: AnyArray, *, column_name: str) -> Slicing:
        """Cut by the values of a column."""
        return cls(
            numbers=number_values(values),
            names=[f"{column_name} = {value}" for value in distinct(values)],
        )

    @classmethod
    def by_class(cls, y: AnyArray) -> Slicing:
        """Cut by the true label."""
        labels, numbers = np.unique(y, return_inverse=True)
        return cls(numbers, [f"class {label}" for label in labels.tolist()])

    @classmethod
    def by_prediction(cls, centres: Floats, *, of_classes: bool) -> Slicing:
        """Cut into fifths of the prediction; for classes, of the largest probability."""
        names = _FIFTHS_OF_CONFIDENCE if of_classes else _FIFTHS
        return cls(fifths(centres), names)


def named_slicings(
    rows: Rows, columns: Sequence[Any], thresholds: ThresholdKind
) -> tuple[Slicing, ...]:
    """Slice the tuning rows by each of some columns, and by condition.

    `columns` are names or numbers of columns, or functions of X that give a value for each row. A
    condition is a group of rows with a threshold of its own, where `thresholds` has such groups.
    """
    slicings = []
    for column in columns:
        check_condition(column, rows.X, parameter="by")
        values = condition_values(column, rows.X, rows.y, parameter="by")
        if values is not None:
            column_name = getattr(column, "__name__", str(column))  # of a function, its name
            slicings.append(Slicing.by_value(values, column_name=column_name))

    if isinstance(thresholds, ThresholdByCondition):
        slicings.append(Slicing(thresholds.conditions, thresholds.names))
    return tuple(slicings)
