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
    """Write a line about sets: how many, how large, and the first few."""
    name = type(sets).__name__
    n_rows = len(sets)
    if n_rows == 0:
        return f"{name}(0 rows{sets.describe_kind()})"

    facts = (
        f"{counted(n_rows, 'row')}{sets.describe_kind()}, mean size {_mean_size(sets)}, "
        f"{int(np.count_nonzero(sets.is_empty()))} empty"
    )
    shown = [sets.describe_row(row) for row in range(min(n_rows, _SETS_IN_LINE))]
    if n_rows > _SETS_IN_LINE:
        shown.append("...")
    return f"{name}({facts}: {', '.join(shown)})"


def tabulate_sets(sets: Describable) -> str:
    """Write the first sets as an HTML table, below a line about all of them."""
    n_rows = len(sets)
    sizes = np.asarray(sets.sizes(), dtype=np.float64)
    rows = [
        [str(row), sets.describe_row(row), number(float(sizes[row]))]
        for row in range(min(n_rows, _SETS_IN_TABLE))
    ]

    caption = f"{type(sets).__name__}: no rows"
    if n_rows:
        caption = f"{type(sets).__name__}: {counted(n_rows, 'row')}, mean size {_mean_size(sets)}"
    if n_rows > _SETS_IN_TABLE:
        caption += f", the first {_SETS_IN_TABLE} here"
    return html_table(["row", "set", "size"], rows, caption=caption)


def _mean_size(sets: Describable) -> str:
    with np.errstate(over="ignore"):
        return number(float(np.asarray(sets.sizes(), dtype=np.float64).mean()))
