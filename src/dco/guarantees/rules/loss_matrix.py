"""What the rules for loss matrices share: one checked record of losses, thresholds and levels, and exact sums.

``losses[i, j]`` is the loss of calibration row i when the threshold is ``thresholds[j]``. Thresholds ascend, sets grow with
them, and the last column is the safest. A rule finds a column of `LossMatrix.of(...)` and returns `threshold_at` it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats, real_numbers
from dco.foundations.display import counted
from dco.foundations.errors import NonFiniteScoreError
from dco.foundations.notes import Note, show
from dco.foundations.ranks import Guarantee, Level, Threshold, as_rational, rational


@dataclass(frozen=True, eq=False)
class LossMatrix:
    """Checked losses (n, J) in [0, bound], their thresholds (J,), and `level`, alpha / bound as the number that it means."""

    losses: Floats
    thresholds: Floats
    bound: float
    level: Fraction

    @classmethod
    def of(
        cls, losses: ArrayLike, thresholds: ArrayLike, *, alpha: Level, bound: float, falling_for: str | None = None
    ) -> LossMatrix:
        """Check what a caller gives; `falling_for` names a rule whose losses must never rise with the threshold."""
        scale = checked_bound(bound)
        matrix = checked_losses(losses, bound=scale)
        cuts = _checked_thresholds(thresholds, matrix.shape[1])
        if falling_for is not None:
            _check_falling(matrix, falling_for)
        return cls(matrix, cuts, scale, relative_level(alpha, scale))

    @property
    def scaled(self) -> Floats:
        """The losses over their bound, in [0, 1]."""
        return np.asarray(self.losses / self.bound)

    def threshold_at(
        self, column: int, guarantee: Guarantee, *, delta: Fraction | None = None, safe_at_infinity: bool
    ) -> Threshold:
        """The threshold of a column, or +inf if no column passed: certified only where the caller declares it safe."""
        n, columns = self.losses.shape
        value = float(self.thresholds[column]) if column < columns else math.inf
        if column == columns:
            said = "valid, because safe_at_infinity=True declares no loss there" if safe_at_infinity else "not certified"
            rows = f"passed with {counted(n, 'calibration row')}: the threshold is infinite ({said})."
            remedy = "More rows, a larger alpha, or thresholds that reach further into the safe end may help."
            show([Note("infeasible", f"none of {counted(columns, 'threshold')} {rows}", remedy)])
            guarantee = guarantee if safe_at_infinity else "none"
        alpha, failure = float(self.level * rational(self.bound)), None if delta is None else float(delta)
        return Threshold(value, rank=None, n=n, guarantee=guarantee, alpha=alpha, delta=failure)


def checked_losses(losses: ArrayLike, *, bound: float, name: str = "losses", ndim: int = 2) -> Floats:
    """Losses as floats in [0, bound], with at least one row and one column."""
    array = real_numbers(losses, name=name)
    if array.dtype.kind in "iub":
        array = array.astype(np.float64)
    if array.ndim != ndim:
        wanted = (
            "one number per row" if ndim == 1 else "a matrix with one row per calibration row and one column per threshold"
        )
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


def _checked_thresholds(thresholds: ArrayLike, columns: int) -> Floats:
    """Strictly ascending thresholds, one per column."""
    values = real_numbers(thresholds, name="thresholds").astype(np.float64)
    if values.shape != (columns,):
        raise ValueError(f"thresholds must hold one number for each of the {columns} columns, got shape {values.shape}.")
    if np.any(np.isnan(values)) or np.any(np.diff(values) <= 0):
        raise ValueError("thresholds must be strictly ascending, without NaN: the last column belongs to the largest sets.")
    return values


def _check_falling(losses: Floats, rule: str) -> None:
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
        return as_rational(rational(alpha) / rational(bound))
    except (TypeError, ValueError, ArithmeticError):
        raise ValueError(f"alpha must be a number strictly between 0 and bound = {bound:g}, got {alpha!r}.") from None


def exact_total(losses: Floats) -> Fraction:
    """The sum of the losses, each taken as the simple fraction that it is the nearest float of."""
    values, counts = np.unique(losses, return_counts=True)
    return sum((rational(v) * c for v, c in zip(values.tolist(), counts.tolist(), strict=True)), Fraction(0))


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


def is_zero_one(losses: Floats) -> bool:
    """Whether every scaled loss is 0 or 1."""
    return bool(np.all((losses == 0) | (losses == 1)))
