"""Names for the array types that travel between the stages, and the way in for arrays of other
libraries.
"""

from __future__ import annotations

import datetime
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "AnyArray",
    "Array",
    "Bools",
    "Doubles",
    "Floats",
    "Integers",
    "as_labels",
    "beside",
    "check_floats_hold",
    "doubles",
    "first_rounded",
    "joined",
    "namespace",
    "one_number",
    "real_numbers",
    "responses",
    "sums_from_zero",
    "to_numpy",
    "where_they_are",
    "whole_numbers",
    "without_mask",
]

Floats: TypeAlias = NDArray[np.floating[Any]]
Doubles: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.integer[Any]]
Bools: TypeAlias = NDArray[np.bool_]
AnyArray: TypeAlias = NDArray[Any]
Array: TypeAlias = Any  # of NumPy, torch, CuPy, JAX or another library of the array API standard

_NAMESPACES: dict[type, Any] = {}  # of the array types that were met


def where_they_are(values: Any) -> Any:
    """An array of torch, CuPy, JAX or another library of the array API standard as it comes; all
    else as a NumPy array.

    Tensors of torch on a CPU become NumPy arrays of the same memory. Scores need double precision:
    what cannot hold it (JAX by default, torch on Apple's GPUs) is copied to the host too.
    """
    if isinstance(values, np.ndarray):
        return values
    # told by its name: neither torch nor CuPy is imported here
    library = type(values).__module__.partition(".")[0]
    if library == "torch":
        return to_numpy(values) if values.device.type in ("cpu", "mps") else values.detach()
    if library == "cupy":
        return values
    if not hasattr(values, "__array_namespace__") or isinstance(values, np.generic):
        return to_numpy(values)
    floats = namespace(values).__array_namespace_info__().dtypes(kind="real floating")
    return values if "float64" in floats else to_numpy(values)


def namespace(array: Any) -> Any:
    """NumPy, or the functions of the array API standard for the library that an array is of."""
    if isinstance(array, np.ndarray):
        return np
    kind = type(array)
    if kind not in _NAMESPACES:
        import array_api_compat  # only where it is needed: it costs an import

        _NAMESPACES[kind] = array_api_compat.array_namespace(array)
    return _NAMESPACES[kind]


def beside(values: Any, like: Any) -> Any:
    """The values as an array of the library and on the device of `like`."""
    if isinstance(like, np.ndarray):
        return to_numpy(values)
    if not isinstance(values, type(like)):
        values = to_numpy(values)
    return namespace(like).asarray(values, device=like.device)


def one_number(value: float, like: Any) -> Any:
    """The number in double precision, (1, 1), beside `like`; torch on a GPU divides by arrays
    exactly, by numbers not.
    """
    xp = namespace(like)
    return xp.full((1, 1), value, dtype=xp.float64, device=like.device)


def whole_numbers(n: int, like: Any) -> Any:
    """0 to n - 1 beside `like`."""
    return namespace(like).arange(n, device=like.device)


def doubles(array: Any) -> NDArray[np.float64]:
    """A copy in double precision."""
    xp = namespace(array)
    copied: NDArray[np.float64] = xp.astype(array, xp.float64, copy=True)
    return copied


def joined(parts: list[Any], *, axis: int = 0) -> Any:
    """The parts, one after the other."""
    return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(parts, axis=axis)


def sums_from_zero(counts: Any) -> Any:
    """0 and the sums of the first 1, 2, ... numbers of (n,) counts or marks, in int64."""
    if not isinstance(counts, np.ndarray):
        xp = namespace(counts)
        return xp.cumulative_sum(xp.astype(counts, xp.int64, copy=False), include_initial=True)
    sums = np.zeros(counts.size + 1, dtype=np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def to_numpy(values: Any) -> AnyArray:
    """The values as a NumPy array, copied to the host where they live on an accelerator; NumPy's
    own arrays are not copied.

    `numpy.asarray` refuses torch tensors and CuPy arrays on a GPU, torch tensors with a gradient,
    and torch's bfloat16. JAX copies by itself but keeps bfloat16, which NumPy does not count among
    real numbers. bfloat16 becomes float32, exactly.
    """
    # torch, told by its methods: torch is not imported here
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":
            values = values.float()
    elif hasattr(values, "__cuda_array_interface__") and hasattr(values, "get"):  # CuPy
        values = values.get()
    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def without_mask(array: np.ma.MaskedArray[Any, Any]) -> AnyArray:
    """Return a plain array in which masked cells are missing: NaN among numbers, None elsewhere."""
    if not np.ma.getmaskarray(array).any():
        return np.asarray(array.data)
    if array.dtype.kind == "f":
        return np.asarray(array.filled(np.nan))
    numbers = array.dtype.kind in "iub"
    cells: AnyArray = array.data.astype(np.float64 if numbers else object)
    cells[np.ma.getmaskarray(array)] = np.nan if numbers else None
    return cells


def as_labels(values: Any) -> AnyArray:
    """Labels as an array, each of the kind it was given in: of a list [1, "a"] NumPy alone would
    make "1" and "a".
    """
    array = to_numpy(values)
    mixed = isinstance(values, (list, tuple)) and not all(
        isinstance(value, (str, bytes)) for value in values
    )
    return np.array(values, dtype=object) if array.dtype.kind in "US" and mixed else array


def real_numbers(values: Any, *, name: str) -> AnyArray:
    """The values as an array of real numbers, of the kind that they have; text, dates and ragged
    lists are refused.
    """
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
    """Refuse targets of a regression that float64 would change: dates, durations, and large
    integers that it rounds.
    """
    values = to_numpy(targets).ravel()
    first = values[0] if values.dtype.kind == "O" and values.size else None
    if (
        values.dtype.kind == "M"
        or isinstance(first, (datetime.date, np.datetime64))
        or type(first).__name__ == "Period"
    ):
        raise ValueError(
            f"{name} holds dates, and a regression needs numbers: give days since one of them, "
            f"such as "
            f"({name} - {name}.min()) / np.timedelta64(1, 'D')."
        )
    if values.dtype.kind == "m" or isinstance(first, (datetime.timedelta, np.timedelta64)):
        raise ValueError(
            f"{name} holds durations, and a regression needs numbers: give them in one unit, such "
            f"as "
            f"{name} / np.timedelta64(1, 's')."
        )
    row = first_rounded(values)
    if row is not None:
        raise ValueError(
            f"{name} is {values[row]!s:.40} in row {row}, which float64 rounds, so that "
            f"neighbours would be one value: "
            f"subtract a whole number first, such as {name} - {name}.min()."
        )


def first_rounded(values: AnyArray) -> int | None:
    """The first of (n,) numbers that is beyond 2**53 and that float64 does not hold exactly; None
    if there is none.
    """
    kind = values.dtype.kind
    # exact iff no more than 53 digits follow the first binary one
    if kind in "iu" and values.dtype.itemsize == 8:
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
    if (
        not isinstance(value, (int, Decimal, Fraction))
        or value != value
        or -(2**53) <= value <= 2**53
    ):
        return False
    try:
        return float(value) != value
    except OverflowError:
        return True


def responses(y: Any, n: int) -> Floats:
    """y as n numbers in float64: membership must not depend on the precision that y happens to be
    stored in.
    """
    values = y if isinstance(y, np.ndarray) and y.dtype.kind == "f" else to_numpy(y)
    if values.shape != (n,):
        raise ValueError(
            f"y must hold one number for each of the {n} rows, got shape {values.shape}."
        )
    if values.dtype == np.float64:
        return values
    check_floats_hold(values, name="y")
    return real_numbers(values, name="y").astype(np.float64)
