"""What every rule for loss matrices shares: checks, exact sums, and the search over columns.

``losses[i, j]`` is the loss of calibration row i when the threshold is ``thresholds[j]``. Thresholds ascend, sets grow with
them, and the last column is the safest.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats, real_numbers
from dco.foundations.display import counted
from dco.foundations.errors import InfeasibleLevelWarning, NonFiniteScoreError
from dco.foundations.ranks import Guarantee, Level, Threshold, as_rational, rational


def checked_losses(losses: ArrayLike, *, bound: float, name: str = "losses", ndim: int = 2) -> Floats:
    """Losses as floats in [0, bound], with at least one row and one column."""
    array = real_numbers(losses, name=name)
    if array.dtype.kind in "iub":
        array = array.astype(np.float64)
    if array.ndim != ndim:
        wanted = "one number a row" if ndim == 1 else "a matrix with a row a calibration row and a column a threshold"
        raise ValueError(f"{name} must be {wanted}, got an array of shape {array.shape}.")
    if ndim == 2 and 0 in array.shape:
        raise ValueError(f"{name} must have at least one row and one column, got shape {array.shape}.")
    if array.size == 0:
        return array.astype(np.float64)
    least, most = float(array.min()), float(array.max())
    if math.isnan(least):
        where = tuple(int(i) for i in np.argwhere(np.isnan(array))[0])
        raise NonFiniteScoreError(f"{name} holds NaN (first at {where}); every row needs a loss in every column.")
    if least < 0 or most > bound:
        raise ValueError(
            f"{name} must lie in [0, bound] = [0, {bound:g}], but they range from {least:g} to {most:g}. Pass bound= with a "
            "number that no loss can ever exceed; the largest loss seen is not such a number."
        )
    return array.astype(np.float64, copy=False)


def checked_bound(bound: float) -> float:
    """The bound on the loss as a float, greater than 0."""
    try:
        value = float(bound)
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"bound must be a finite number greater than 0, got {bound!r}.")
    return value


def checked_thresholds(thresholds: ArrayLike, columns: int) -> Floats:
    """Strictly ascending thresholds, one a column."""
    values = real_numbers(thresholds, name="thresholds").astype(np.float64)
    if values.shape != (columns,):
        raise ValueError(f"thresholds must hold one number for each of the {columns} columns, got shape {values.shape}.")
    if np.any(np.isnan(values)) or np.any(np.diff(values) <= 0):
        raise ValueError("thresholds must be strictly ascending, without NaN: the last column belongs to the largest sets.")
    return values


def check_monotone(losses: Floats, rule: str) -> None:
    """Refuse losses that rise with the threshold."""
    rises = np.diff(losses, axis=1) > 0
    if np.any(rises):
        row, column = (int(i) for i in np.argwhere(rises)[0])
        raise ValueError(
            f"{rule} needs losses that never rise with the threshold, but row {row} rises from column {column} to "
            f"{column + 1} ({losses[row, column]:g} to {losses[row, column + 1]:g}). Use learn_then_test for such a loss, "
            "or replace each row by its running maximum from the right."
        )


def relative_level(alpha: Level, bound: float) -> Fraction:
    """alpha / bound as the rational number that the two mean, strictly between 0 and 1."""
    if bound == 1:
        return as_rational(alpha)
    try:
        level, scale = rational(alpha), rational(bound)
    except (TypeError, ValueError, OverflowError, ArithmeticError):
        level = scale = None
    if level is None or scale is None or not 0 < level < scale:
        raise ValueError(f"alpha must be a number strictly between 0 and bound = {bound:g}, got {alpha!r}.")
    return level / scale


def absolute_level(level: Fraction, bound: float) -> Fraction:
    """The inverse of `relative_level`: level * bound."""
    scale = rational(bound)
    return level * (Fraction(bound) if scale is None else scale)


def exact_total(losses: Floats) -> Fraction:
    """The sum of the losses, each taken as the simple fraction that it is the nearest float of."""
    values, counts = np.unique(losses, return_counts=True)
    total = Fraction(0)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        meant = rational(value)
        total += (Fraction(value) if meant is None else meant) * count
    return total


def total_at_most(losses: Floats, limit: Fraction) -> bool:
    """Whether the losses sum to at most `limit`; a sum too near to it for floating point is done in fractions."""
    total, border = math.fsum(losses.tolist()), float(limit)
    doubt = 2.0**-50 * (losses.size * max(1.0, float(losses.max(initial=0.0))) + abs(border))
    if abs(total - border) > doubt:
        return total < border
    return exact_total(losses) <= limit


def ceil_total(losses: Floats) -> int:
    """The sum of the losses rounded up, in fractions where the float sum is next to a whole number."""
    total = math.fsum(losses.tolist())
    if abs(total - round(total)) > 2.0**-50 * losses.size:
        return math.ceil(total)
    return math.ceil(exact_total(losses))


def is_zero_one(losses: Floats, bound: float) -> bool:
    """Whether every loss is 0 or the bound."""
    return bool(np.all((losses == 0) | (losses == bound)))


def first_passing(columns: int, passes: Callable[[int], bool]) -> int:
    """The first column that passes, `columns` if none does; passing must be monotone in the column."""
    refused, allowed = -1, columns
    while allowed - refused > 1:
        middle = (allowed + refused) // 2
        if passes(middle):
            allowed = middle
        else:
            refused = middle
    return allowed


def threshold_of(
    column: int,
    thresholds: Floats,
    *,
    n: int,
    guarantee: Guarantee,
    alpha: float,
    delta: float | None,
    safe_at_infinity: bool,
) -> Threshold:
    """The threshold of a column, or +inf when no column passed: certified only where the caller declares it safe."""
    if column < len(thresholds):
        return Threshold(float(thresholds[column]), rank=None, n=n, guarantee=guarantee, alpha=alpha, delta=delta)
    certified = "valid, because safe_at_infinity=True declares no loss there" if safe_at_infinity else "not certified"
    warnings.warn(
        f"none of {counted(len(thresholds), 'threshold')} passed with {counted(n, 'calibration row')}: the threshold is "
        f"infinite ({certified}). More rows, a larger alpha, or thresholds that reach further into the safe end may help.",
        InfeasibleLevelWarning,
        stacklevel=3,
    )
    return Threshold(
        float("inf"), rank=None, n=n, guarantee=guarantee if safe_at_infinity else "none", alpha=alpha, delta=delta
    )
