"""Kernels of full conformal prediction: how alike the rows of a table are.

A kernel is a function of all rows, (m, p), that returns the matrix of how alike each two of them
are, (m, m). It must treat the rows alike: rows in another order give the same matrix in that order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from dco.foundations.arrays import Floats

Kernel: TypeAlias = Callable[[Floats], Any]

_ROUNDING = 1e-8  # entries of kernel matrices that differ by less, relatively, are equal


def linear(rows: Floats) -> Floats:
    """Compare rows by their inner products: the predictions are those of ridge regression."""
    return np.asarray(rows @ rows.T / _half_mean_squared_distance(rows))


def smooth(rows: Floats) -> Floats:
    """Compare rows by their distance (a Gaussian kernel), and add the linear kernel.

    Predictions are a line plus a smooth curve. Half of the mean squared distance between two rows
    is the squared width of the Gaussian.
    """
    squared_width = _half_mean_squared_distance(rows)
    gaussian = np.exp(-_squared_distances(rows) / (2 * squared_width))
    return np.asarray(gaussian + linear(rows))


KERNELS: dict[str, Kernel] = {"smooth": smooth, "linear": linear}


def kernel_called(kernel: str | Kernel) -> Kernel:
    """Return the kernel of this name, or the function itself."""
    if callable(kernel):
        return kernel
    if kernel in KERNELS:
        return KERNELS[kernel]
    names = ", ".join(f'"{name}"' for name in KERNELS)
    raise ValueError(f"kernel must be one of {names}, or a function of all rows, got {kernel!r}.")


def check_kernel(kernel: Kernel, rows: Floats) -> None:
    """Refuse a function that returns no kernel matrix of these rows, or treats rows differently."""
    matrix = np.asarray(kernel(rows), dtype=np.float64)
    n = len(rows)
    is_kernel_matrix = matrix.shape == (n, n) and np.allclose(matrix, matrix.T, rtol=_ROUNDING)
    if not is_kernel_matrix or not np.all(np.isfinite(matrix)):
        raise ValueError(
            f"kernel must return a symmetric matrix of finite numbers, one row and one column for "
            f"each of {n} rows, got shape {matrix.shape}."
        )

    backwards = np.asarray(kernel(rows[::-1]), dtype=np.float64)
    if not np.allclose(backwards[::-1, ::-1], matrix, rtol=_ROUNDING):
        raise ValueError(
            "kernel must treat the rows alike, but the same rows in another order get other "
            "entries: there would be no guarantee."
        )


def _squared_distances(rows: Floats) -> Floats:
    """Return the squared distance of each two rows, (m, m)."""
    squares = np.sum(rows**2, axis=1)
    distances = squares[:, None] + squares - 2 * rows @ rows.T
    return np.asarray(np.maximum(distances, 0.0))


def _half_mean_squared_distance(rows: Floats) -> float:
    """Return half of the mean squared distance between two rows; 1 if all rows are equal.

    It is the number of columns if each has unit variance.
    """
    variances = np.var(rows, axis=0)
    return float(np.sum(variances)) or 1.0
