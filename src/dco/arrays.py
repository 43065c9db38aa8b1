"""Names for the array types that travel between the stages, and the way in for arrays of other libraries."""

from __future__ import annotations

import datetime
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating[Any]]
Integers: TypeAlias = NDArray[np.integer[Any]]
Bools: TypeAlias = NDArray[np.bool_]
AnyArray: TypeAlias = NDArray[Any]


def to_numpy(values: Any) -> AnyArray:
    """The values as a NumPy array, copied to the host where they live on an accelerator; NumPy's own arrays are not copied.

    `numpy.asarray` refuses torch tensors and CuPy arrays on a GPU, torch tensors with a gradient, and torch's bfloat16. JAX
    copies by itself but keeps bfloat16, which NumPy does not count among real numbers. bfloat16 becomes float32, exactly.
    """
    if hasattr(values, "detach") and hasattr(values, "cpu"):  # torch, told by its methods: torch is not imported here
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":
            values = values.float()
    elif hasattr(values, "__cuda_array_interface__") and hasattr(values, "get"):  # CuPy
        values = values.get()
    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def real_numbers(values: Any, *, name: str) -> AnyArray:
    """The values as an array of real numbers, of the kind that they have; text, dates and ragged lists are refused."""
    try:
        array = to_numpy(values)
    except ValueError:
        raise ValueError(f"{name} must be real numbers, got lists of different lengths.") from None
    if array.dtype.kind == "O":  # decimals, fractions, a mixed column of a table
        with suppress(TypeError, ValueError, OverflowError):  # told below
            array = array.astype(np.float64)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be real numbers, got dtype {array.dtype}.")
    return array


def check_floats_hold(targets: Any, *, name: str) -> None:
    """Refuse targets of a regression that float64 would change: dates, durations, and large integers that it rounds."""
    values = to_numpy(targets).ravel()
    first = values[0] if values.dtype.kind == "O" and values.size else None
    if values.dtype.kind == "M" or isinstance(first, (datetime.date, np.datetime64)) or type(first).__name__ == "Period":
        raise ValueError(
            f"{name} holds dates, and a regression needs numbers: give days since one of them, such as "
            f"({name} - {name}.min()) / np.timedelta64(1, 'D')."
        )
    if values.dtype.kind == "m" or isinstance(first, (datetime.timedelta, np.timedelta64)):
        raise ValueError(
            f"{name} holds durations, and a regression needs numbers: give them in one unit, such as "
            f"{name} / np.timedelta64(1, 's')."
        )
    row = first_rounded(values)
    if row is not None:
        raise ValueError(
            f"{name} is {values[row]!s:.40} in row {row}, which float64 rounds, so that neighbours would be one value: "
            f"subtract a whole number first, such as {name} - {name}.min()."
        )


def first_rounded(values: AnyArray) -> int | None:
    """The first of (n,) numbers that is beyond 2**53 and that float64 does not hold exactly; None if there is none."""
    kind = values.dtype.kind
    if kind in "iu" and values.dtype.itemsize == 8:  # exact iff no more than 53 digits follow the first binary one
        size = np.abs(values).astype(np.uint64)
        lost = size // np.maximum(size & (~size + np.uint64(1)), np.uint64(1)) > np.uint64(2**53)
    elif kind == "f" and values.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            lost = (np.abs(values) > 2**53) & (values.astype(np.float64) != values)
    elif kind in "OU":
        lost = np.array([_is_rounded(value) for value in values.tolist()], dtype=bool)
    else:
        return None
    rows = np.flatnonzero(lost)
    return int(rows[0]) if rows.size else None


def _is_rounded(value: Any) -> bool:
    if isinstance(value, np.integer):
        value = int(value)
    elif isinstance(value, str):  # a number, or refused elsewhere
        with suppress(InvalidOperation):
            value = Decimal(value)
    if not isinstance(value, (int, Decimal, Fraction)) or value != value or -(2**53) <= value <= 2**53:
        return False
    try:
        return float(value) != value
    except OverflowError:
        return True
