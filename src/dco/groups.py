"""Labels that say which group a row belongs to: text, numbers, dates, or several kinds in one column."""

from __future__ import annotations

from typing import Any

import numpy as np

from dco.arrays import AnyArray


def as_labels(values: Any) -> AnyArray:
    """Labels as an array, each of the kind it was given in: of a list [1, "a"] NumPy alone would make "1" and "a"."""
    array = np.asarray(values)
    if array.dtype.kind in "US" and isinstance(values, (list, tuple)):
        array = np.array(values, dtype=object)
    return array
