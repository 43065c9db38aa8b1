"""Prediction sets in words: a line for ``print``, a table for notebooks."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dco.foundations.arrays import AnyArray, Bools
from dco.foundations.display import counted, html_table, number

_SETS_IN_LINE = 3
_SETS_IN_TABLE = 10


class Describable(Protocol):
    """Sets that can write themselves row by row."""

    def __len__(self) -> int: ...
    def sizes(self) -> AnyArray: ...
    def is_empty(self) -> Bools: ...
    def describe_row(self, row: int) -> str: ...
    def describe_kind(self) -> str: ...


def summarise_sets(sets: Describable) -> str:
    """Write one line about prediction sets for ``print``: how many, how large, the first few.

    For example "Intervals(200 rows, mean size 3.1, 0 empty: [1, 4], [2, 5], [0, 3], ...)".
    """
    name = type(sets).__name__
    n_rows = len(sets)
    if n_rows == 0:
        return f"{name}(0 rows{sets.describe_kind()})"

    facts = (
        f"{counted(n_rows, 'row')}{sets.describe_kind()}, mean size {_mean_size(sets)}, "
        f"{int(np.count_nonzero(sets.is_empty()))} empty"
    )
    first_sets = [sets.describe_row(row) for row in range(min(n_rows, _SETS_IN_LINE))]
    if n_rows > _SETS_IN_LINE:
        first_sets.append("...")
    return f"{name}({facts}: {', '.join(first_sets)})"


def tabulate_sets(sets: Describable) -> str:
    """Write the first prediction sets as an HTML table for notebooks.

    The caption says how many sets there are in all, and their mean size.
    """
    name = type(sets).__name__
    n_rows = len(sets)
    if n_rows == 0:
        return html_table(["row", "set", "size"], [], caption=f"{name}: no rows")

    caption = f"{name}: {counted(n_rows, 'row')}, mean size {_mean_size(sets)}"
    if n_rows > _SETS_IN_TABLE:
        caption += f", the first {_SETS_IN_TABLE} here"

    sizes = np.asarray(sets.sizes(), dtype=np.float64)
    rows = [
        [str(row), sets.describe_row(row), number(float(sizes[row]))]
        for row in range(min(n_rows, _SETS_IN_TABLE))
    ]
    return html_table(["row", "set", "size"], rows, caption=caption)


def _mean_size(sets: Describable) -> str:
    with np.errstate(over="ignore"):
        return number(float(np.asarray(sets.sizes(), dtype=np.float64).mean()))
