"""Types of arrays, and the way in for arrays of other libraries and for numbers of any type."""

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
    "as_float_targets",
    "as_labels",
    "as_real_numbers",
    "check_exact_in_float64",
    "first_inexact_position",
    "namespace",
    "start_positions",
    "to_array",
    "to_device_of",
    "to_numpy",
    "without_mask",
]

Floats: TypeAlias = NDArray[np.floating[Any]]
Doubles: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.integer[Any]]
Bools: TypeAlias = NDArray[np.bool_]
AnyArray: TypeAlias = NDArray[Any]
Array: TypeAlias = Any  # of NumPy, torch, CuPy, JAX or another library of the array API standard

_NAMESPACES: dict[type, Any] = {}  # of the array types that were met


def to_array(values: Any) -> Array:
    """Return arrays of torch, CuPy, JAX and others of the standard as they are; else NumPy's.

    Tensors of torch on a CPU become NumPy arrays of the same memory. Scores need double precision:
    what cannot hold it (JAX by default, torch on Apple's GPUs) is copied to the host too.
    """
    if isinstance(values, np.ndarray):
        return values
    library = type(values).__module__.partition(".")[0]  # neither torch nor CuPy is imported here
    if library == "torch":
        return to_numpy(values) if values.device.type in ("cpu", "mps") else values.detach()
    if library == "cupy":
        return values
    if not hasattr(values, "__array_namespace__") or isinstance(values, np.generic):
        return to_numpy(values)
    floats = namespace(values).__array_namespace_info__().dtypes(kind="real floating")
    return values if "float64" in floats else to_numpy(values)


def namespace(array: Array) -> Any:
    """Return the functions of the array API standard for the library of an array."""
    if isinstance(array, np.ndarray):
        return np
    array_type = type(array)
    if array_type not in _NAMESPACES:
        import array_api_compat  # only where it is needed: it costs an import

        _NAMESPACES[array_type] = array_api_compat.array_namespace(array)
    return _NAMESPACES[array_type]


def to_device_of(values: Any, like: Array) -> Array:
    """Return the values as an array of the library, and on the device, of another array."""
    if isinstance(like, np.ndarray):
        return to_numpy(values)
    if not isinstance(values, type(like)):
        values = to_numpy(values)
    return namespace(like).asarray(values, device=like.device)


def start_positions(counts: AnyArray) -> Integers:
    """Return where each of several runs of these lengths starts, and where the last one ends.

    Runs of 2, 3 and 1 entries, one after the other, give 0, 2, 5 and 6.
    """
    starts = np.zeros(counts.size + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def to_numpy(values: Any) -> AnyArray:
    """Return the values as a NumPy array, copied to the host from an accelerator.

    NumPy's own arrays are not copied. `numpy.asarray` refuses torch tensors and CuPy arrays on a
    GPU, torch tensors with a gradient, and torch's bfloat16. JAX copies by itself but keeps
    bfloat16, which NumPy does not count among real numbers: it becomes float32, exactly.
    """
    is_torch = hasattr(values, "detach") and hasattr(values, "cpu")  # torch is not imported here
    is_cupy = hasattr(values, "__cuda_array_interface__") and hasattr(values, "get")
    if is_torch:
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":
            values = values.float()
    elif is_cupy:
        values = values.get()

    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def without_mask(array: np.ma.MaskedArray[Any, Any]) -> AnyArray:
    """Return a plain array in which masked cells are missing: NaN among numbers, None elsewhere."""
    mask = np.ma.getmaskarray(array)
    if not mask.any():
        return np.asarray(array.data)
    if array.dtype.kind == "f":
        return np.asarray(array.filled(np.nan))

    is_number = array.dtype.kind in "iub"
    cells: AnyArray = array.data.astype(np.float64 if is_number else object)
    cells[mask] = np.nan if is_number else None
    return cells


def as_labels(values: Any) -> AnyArray:
    """Return labels as an array, each in the type that it has.

    Of a list [1, "a"] NumPy alone would make "1" and "a".
    """
    array = to_numpy(values)
    is_list = isinstance(values, (list, tuple))
    if not is_list or array.dtype.kind not in "US":
        return array
    is_all_text = all(isinstance(value, (str, bytes)) for value in values)
    return array if is_all_text else np.array(values, dtype=object)


def as_real_numbers(values: Any, *, name: str) -> AnyArray:
    """Return the values as an array of real numbers, in the type that they have.

    Text, dates and ragged lists are refused.
    """
    try:
        array = to_numpy(values)
    except ValueError:
        raise ValueError(f"{name} must be real numbers, got lists of different lengths.") from None
    if array.dtype.kind == "O":  # decimals, fractions, a mixed column of a table
        with suppress(TypeError, ValueError, OverflowError):  # refused below
            array = array.astype(np.float64)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be real numbers, got dtype {array.dtype}.")
    return array


def check_exact_in_float64(targets: Any, *, name: str) -> None:
    """Refuse targets of a regression that float64 would change.

    These are dates, durations, and large integers that it rounds.
    """
    values = to_numpy(targets).ravel()
    are_objects = values.dtype.kind == "O" and values.size > 0
    first = values[0] if are_objects else None
    is_date = isinstance(first, (datetime.date, np.datetime64)) or type(first).__name__ == "Period"
    is_duration = isinstance(first, (datetime.timedelta, np.timedelta64))

    if values.dtype.kind == "M" or is_date:
        raise ValueError(
            f"{name} holds dates, and a regression needs numbers: give days since one of them, "
            f"such as ({name} - {name}.min()) / np.timedelta64(1, 'D')."
        )
    if values.dtype.kind == "m" or is_duration:
        raise ValueError(
            f"{name} holds durations, and a regression needs numbers: give them in one unit, such "
            f"as {name} / np.timedelta64(1, 's')."
        )
    row = first_inexact_position(values)
    if row is not None:
        raise ValueError(
            f"{name} is {values[row]!s:.40} in row {row}, which float64 rounds, so that "
            "neighbours would be one value: subtract a whole number first, such as "
            f"{name} - {name}.min()."
        )


def first_inexact_position(values: AnyArray) -> int | None:
    """Find the first of (n,) numbers beyond 2**53 that float64 does not hold exactly."""
    kind = values.dtype.kind
    if kind in "iu" and values.dtype.itemsize == 8:
        is_inexact = _is_inexact_integer(values)
    elif kind == "f" and values.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            is_inexact = (np.abs(values) > 2**53) & (values.astype(np.float64) != values)
    elif kind in "OU":
        is_inexact = np.array([_is_inexact(value) for value in values.tolist()], dtype=bool)
    else:
        return None
    positions = np.flatnonzero(is_inexact)
    return int(positions[0]) if positions.size else None


def _is_inexact_integer(values: AnyArray) -> Bools:
    """Mark integers of 64 bits with more than 53 digits from the first binary one to the last."""
    size = np.abs(values).astype(np.uint64)
    last_digit = size & (~size + np.uint64(1))
    is_inexact: Bools = size // np.maximum(last_digit, np.uint64(1)) > np.uint64(2**53)
    return is_inexact


def _is_inexact(value: Any) -> bool:
    """Say whether float64 rounds a large number; text that is no number is refused elsewhere."""
    if isinstance(value, np.integer):
        value = int(value)
    elif isinstance(value, str):
        with suppress(InvalidOperation):
            value = Decimal(value)
    if not isinstance(value, (int, Decimal, Fraction)):
        return False
    if value != value or -(2**53) <= value <= 2**53:
        return False
    try:
        return float(value) != value
    except OverflowError:
        return True


def as_float_targets(y: Any, n_rows: int) -> Floats:
    """Return y as `n_rows` numbers in float64.

    Membership in a set must not depend on the precision in which y happens to be stored.
    """
    is_float_array = isinstance(y, np.ndarray) and y.dtype.kind == "f"
    values = y if is_float_array else to_numpy(y)
    if values.shape != (n_rows,):
        raise ValueError(
            f"y must hold one number for each of the {n_rows} rows, got shape {values.shape}."
        )
    if values.dtype == np.float64:
        return values
    check_exact_in_float64(values, name="y")
    return as_real_numbers(values, name="y").astype(np.float64)
