"""Names for the array types that travel between the stages, and the way in for arrays of other libraries."""

from __future__ import annotations

from contextlib import suppress
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
