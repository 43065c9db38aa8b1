"""What every kind of prediction set offers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from dco.arrays import Bools, Floats, Integers

_FIRST = 3  # sets that are printed


@runtime_checkable
class PredictionSets(Protocol):
    """One set a row. ``contains(y)`` is exactly ``observed(prediction, y) <= threshold``."""

    def __len__(self) -> int:
        """The number of rows."""
        ...

    def sizes(self) -> Floats | Integers:
        """The size of each set: labels counted, or length on the real line."""
        ...

    def contains(self, y: ArrayLike) -> Bools:
        """Whether each row's set holds that row's y."""
        ...

    def is_empty(self) -> Bools:
        """Rows whose set is empty."""
        ...

    def to_frame(self, index: Any = None) -> Any:
        """A pandas DataFrame, a row a set (needs the extra ``tables``)."""
        ...


def described(sets: PredictionSets, shown: Callable[[int], str], *, of: str = "") -> str:
    """A line about sets, for ``print``: how many, how large, and the first few as `shown` writes them."""
    n, sizes = len(sets), np.asarray(sets.sizes(), dtype=np.float64)
    if n == 0:
        return f"{type(sets).__name__}(0 rows{of})"
    with np.errstate(over="ignore"):
        facts = f"{n} rows{of}, mean size {sizes.mean():.4g}, {int(np.count_nonzero(sets.is_empty()))} empty"
    first = ", ".join(shown(row) for row in range(min(n, _FIRST)))
    return f"{type(sets).__name__}({facts}: {first}{', ...' if n > _FIRST else ''})"


def size_quantile(sizes: Floats | Integers, level: float) -> float:
    """The quantile of sizes by linear interpolation (NumPy's default), right also where sizes are infinite.

    ``np.quantile`` subtracts infinity from infinity and answers NaN.
    """
    low, high, share = linear_quantile_places(len(sizes), level)
    ordered = np.partition(np.asarray(sizes, dtype=np.float64), (low - 1, high - 1))
    return interpolated(float(ordered[low - 1]), float(ordered[high - 1]), share)


def linear_quantile_places(n: int, level: float) -> tuple[int, int, float]:
    """Which two order statistics (1-based) of n the linear quantile lies between, and how far."""
    position = (n - 1) * level
    return math.floor(position) + 1, math.ceil(position) + 1, position - math.floor(position)


def interpolated(below: float, above: float, share: float) -> float:
    """A share of the way from one number to another; between equal infinities there is no way to go."""
    return below if below == above or share == 0 else below + share * (above - below)
