"""Thresholds as scores compare with them: one for all, one per row, per label, or for both."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dco.foundations.arrays import AnyArray, Floats, to_numpy
from dco.foundations.ranks import LOWEST_SCORE, Threshold, WeightedThresholds

__all__ = [
    "LOWEST_SCORE",
    "AnyThreshold",
    "thresholds_of_labels",
    "thresholds_of_rows",
]

AnyThreshold: TypeAlias = Threshold | WeightedThresholds | float | Floats


def thresholds_of_rows(threshold: AnyThreshold, n_rows: int) -> float | Floats:
    """Return one threshold for all rows as a float, or one per row as an array (n,)."""
    if isinstance(threshold, Threshold):
        return threshold.value
    values = _read_numbers(threshold)
    if values.ndim == 0:
        return float(values)
    if values.shape != (n_rows,):
        raise ValueError(f"thresholds per row must have shape ({n_rows},), got {values.shape}.")
    return values


def thresholds_of_labels(
    threshold: AnyThreshold, n_rows: int, n_labels: int
) -> NDArray[np.float64]:
    """Return thresholds that broadcast to (n, K): (1, 1), (n, 1), (1, K) or (n, K)."""
    values = _read_numbers(threshold)
    shape = _matrix_shape(threshold, values.shape, n_rows, n_labels)
    return values.reshape(shape).astype(np.float64)


def _matrix_shape(
    threshold: AnyThreshold, shape: tuple[int, ...], n_rows: int, n_labels: int
) -> tuple[int, int]:
    """Return the shape in which thresholds broadcast to (n, K): thresholds (n,) -> (n, 1).

    `shape` is the shape in which they were given. One of another length is an error, and so is one
    that could be per row or per label.
    """
    if shape == ():
        return (1, 1)
    if len(shape) == 2 and shape in ((n_rows, 1), (1, n_labels), (n_rows, n_labels)):
        return shape

    is_per_row = shape == (n_rows,)
    # those from weights are never per label if they have one dimension
    is_per_label = shape == (n_labels,) and not isinstance(threshold, WeightedThresholds)
    if is_per_row and is_per_label and n_rows > 1:
        raise ValueError(
            f"{n_rows} thresholds for {n_rows} rows and {n_rows} labels: pass shape "
            f"({n_rows}, 1) for one per row or (1, {n_rows}) for one per label."
        )
    if is_per_row:
        return (n_rows, 1)
    if is_per_label:
        return (1, n_labels)
    raise ValueError(
        f"thresholds must have shape ({n_rows},), per row, ({n_labels},), per label, or "
        f"({n_rows}, {n_labels}), got {shape}."
    )


def _read_numbers(threshold: AnyThreshold) -> AnyArray:
    """Return thresholds as an array of floats, of the shape that they have; refuse NaN."""
    values = to_numpy(threshold.value if isinstance(threshold, Threshold) else threshold)
    if values.dtype.kind in "iub":
        values = values.astype(np.float64)
    if values.dtype.kind != "f" or np.any(np.isnan(values)):
        raise ValueError(f"a threshold must be a number and not NaN, got {threshold!r}.")
    return values
