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

_NAMESPACES: dict[type, Any] = {}  # the functions of `namespace`, by type of array

_FLOAT_DIGITS = 53  # binary digits that a float64 holds
_FLOAT_INTEGERS = 2**_FLOAT_DIGITS  # a float64 holds every integer up to this one


def to_array(values: Any) -> Array:
    """Return an array to compute with: the values themselves if they are on a GPU, else NumPy's.

    Tensors of torch on a CPU become NumPy arrays of the same memory. Arrays of other libraries of
    the array API standard (CuPy, JAX ...) are returned as they are if they hold double precision,
    which scores need. What cannot hold it (JAX by default, torch on Apple's GPUs), lists and all
    else are converted to NumPy.
    """
    if isinstance(values, np.ndarray):
        return values

    # by the name of the module, so that neither torch nor CuPy is imported here
    library = type(values).__module__.partition(".")[0]
    if library == "torch":
        return to_numpy(values) if values.device.type in ("cpu", "mps") else values.detach()
    if library == "cupy":
        return values

    is_of_the_standard = hasattr(values, "__array_namespace__")
    is_numpy_scalar = isinstance(values, np.generic)
    if not is_of_the_standard or is_numpy_scalar:
        return to_numpy(values)
    float_types = namespace(values).__array_namespace_info__().dtypes(kind="real floating")
    return values if "float64" in float_types else to_numpy(values)


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
    """Return where parts of these lengths start, and where the last one ends.

    Lengths [2, 3, 1] give starts [0, 2, 5, 6]; part i of an array is array[starts[i]:starts[i+1]].
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
    """Turn a masked array into a plain one; masked cells become NaN among numbers, None elsewhere.

    Integers and booleans with masked cells become float64, which can hold NaN.
    """
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
    """Return labels as an array, each in the type that it has: [1, "a"] stays 1 and "a".

    NumPy alone would turn the 1 of such a list into the text "1".
    """
    array = to_numpy(values)
    is_list = isinstance(values, (list, tuple))
    became_text = array.dtype.kind in "US"
    if not is_list or not became_text:
        return array
    was_all_text = all(isinstance(value, (str, bytes)) for value in values)
    return array if was_all_text else np.array(values, dtype=object)


def as_real_numbers(values: Any, *, name: str) -> AnyArray:
    """Return the values as an array of real numbers, in the type that they have.

    Text, dates and lists of different lengths are refused; `name` is what the error calls them.
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
    """Refuse targets of a regression that float64 would change, and say what to give instead.

    These are dates, durations, and large integers that it rounds. `name` is what the error calls
    the targets.
    """
    values = to_numpy(targets).ravel()
    if _are_dates(values):
        raise ValueError(
            f"{name} holds dates, and a regression needs numbers: give days since one of them, "
            f"such as ({name} - {name}.min()) / np.timedelta64(1, 'D')."
        )
    if _are_durations(values):
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


def _are_dates(values: AnyArray) -> bool:
    """Tell whether an array holds dates; of objects, the first one tells."""
    if values.dtype.kind != "O" or values.size == 0:
        return values.dtype.kind == "M"
    first = values[0]
    is_pandas_period = type(first).__name__ == "Period"
    return isinstance(first, (datetime.date, np.datetime64)) or is_pandas_period


def _are_durations(values: AnyArray) -> bool:
    """Tell whether an array holds durations; of objects, the first one tells."""
    if values.dtype.kind != "O" or values.size == 0:
        return values.dtype.kind == "m"
    return isinstance(values[0], (datetime.timedelta, np.timedelta64))


def first_inexact_position(values: AnyArray) -> int | None:
    """Find the first of (n,) numbers that float64 rounds to another number; None if there is none.

    Only numbers beyond 2**53 count: below, all integers are exact, and decimals are meant to be
    rounded. Smaller formats than float64 and 64-bit integers are never rounded.
    """
    kind = values.dtype.kind
    n_bytes = values.dtype.itemsize
    is_64_bit_integer = kind in "iu" and n_bytes == 8
    is_long_float = kind == "f" and n_bytes > 8
    is_object_or_text = kind in "OU"

    if is_64_bit_integer:
        is_inexact = _are_inexact_integers(values)
    elif is_long_float:
        with np.errstate(over="ignore"):
            is_large = np.abs(values) > _FLOAT_INTEGERS
            is_inexact = is_large & (values.astype(np.float64) != values)
    elif is_object_or_text:
        is_inexact = np.array([_is_inexact(value) for value in values.tolist()], dtype=bool)
    else:
        return None
    positions = np.flatnonzero(is_inexact)
    return int(positions[0]) if positions.size else None


def _are_inexact_integers(values: AnyArray) -> Bools:
    """Mark 64-bit integers that float64 rounds.

    It holds an integer whose binary digits, from the first 1 to the last 1, are at most 53. Without
    the zeros behind its last 1, such an integer is at most 2**53.
    """
    magnitude = np.abs(values).astype(np.uint64)
    # n & -n is the value of the last 1: 0b10100 -> 0b100. Unsigned integers have no minus: ~n + 1.
    last_one = magnitude & (~magnitude + np.uint64(1))
    without_last_zeros = magnitude // np.maximum(last_one, np.uint64(1))  # 0 is not divided by 0
    return np.asarray(without_last_zeros > np.uint64(_FLOAT_INTEGERS))


def _is_inexact(value: Any) -> bool:
    """Tell whether float64 rounds a number beyond 2**53, which may be written as text.

    Objects that are no exact numbers (floats, text that is no number) are False.
    """
    if isinstance(value, np.integer):
        value = int(value)
    elif isinstance(value, str):
        with suppress(InvalidOperation):
            value = Decimal(value)
    if not isinstance(value, (int, Decimal, Fraction)):
        return False
    is_nan = value != value
    if is_nan or -_FLOAT_INTEGERS <= value <= _FLOAT_INTEGERS:
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
