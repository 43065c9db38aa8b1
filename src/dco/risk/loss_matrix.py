"""Losses of calibration rows at candidate thresholds, checked, and exact sums of them.

``losses[i, j]`` is the loss of calibration row i when the threshold is ``thresholds[j]``.
Thresholds ascend, sets grow with them, and the last column is the safest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from dco import NonFiniteScoreError, Threshold
from dco.foundations.arrays import Floats, as_real_numbers
from dco.foundations.display import counted
from dco.foundations.notes import Note, show
from dco.foundations.ranks import Guarantee, Level, as_positive, as_rational, rational


@dataclass(frozen=True, eq=False)
class LossMatrix:
    """Losses (n, J) in [0, bound] at J thresholds, and the level that their mean may not exceed.

    `level` is alpha / bound, as the rational number that the two mean.
    """

    losses: Floats
    thresholds: Floats
    bound: float
    level: Fraction

    @property
    def scaled(self) -> Floats:
        """The losses over their bound, in [0, 1]."""
        return np.asarray(self.losses / self.bound)

    def threshold_at(
        self,
        column: int,
        guarantee: Guarantee,
        *,
        delta: Fraction | None = None,
        safe_at_infinity: bool,
    ) -> Threshold:
        """Return the threshold of a column, or +inf where the column is J: none has passed.

        An infinite threshold is certified only if the caller declares it safe.
        """
        n, n_columns = self.losses.shape
        value = math.inf
        if column < n_columns:
            value = float(self.thresholds[column])
        else:
            _warn_none_passed(n, n_columns, safe_at_infinity=safe_at_infinity)
            guarantee = guarantee if safe_at_infinity else "none"
        return Threshold(
            value=value,
            rank=None,
            n=n,
            guarantee=guarantee,
            alpha=float(self.level * rational(self.bound)),
            delta=None if delta is None else float(delta),
        )


def read_loss_matrix(
    losses: ArrayLike, thresholds: ArrayLike, *, alpha: Level, bound: float
) -> LossMatrix:
    """Check the losses, thresholds and level that a caller gives."""
    largest_loss = as_positive(bound, name="bound")
    matrix = checked_losses(losses, bound=largest_loss)
    cuts = as_real_numbers(thresholds, name="thresholds").astype(np.float64)

    n_columns = matrix.shape[1]
    if cuts.shape != (n_columns,):
        raise ValueError(
            f"thresholds must hold one number for each of the {n_columns} columns, "
            f"got shape {cuts.shape}."
        )
    if np.any(np.isnan(cuts)) or np.any(np.diff(cuts) <= 0):
        raise ValueError(
            "thresholds must be strictly ascending, without NaN: the last column "
            "has the largest sets."
        )
    return LossMatrix(matrix, cuts, largest_loss, relative_level(alpha, largest_loss))


def check_losses_fall(losses: Floats, *, rule: str) -> None:
    """Refuse losses that rise with the threshold in some row; `rule` names who needs this."""
    rises = np.argwhere(np.diff(losses, axis=1) > 0)
    if not rises.size:
        return
    row, column = rises[0].tolist()
    raise ValueError(
        f"{rule} needs losses that never rise with the threshold, but row {row} rises from column "
        f"{column} to {column + 1} ({losses[row, column]:g} to {losses[row, column + 1]:g}). Use "
        f"learn_then_test for such a loss, or replace each row by its running maximum from the "
        f"right."
    )


def checked_losses(losses: ArrayLike, *, bound: float) -> Floats:
    """Return a matrix of losses as floats in [0, bound]; anything else is an error."""
    matrix = as_real_numbers(losses, name="losses")
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError(
            f"losses must be a matrix with at least one row and one column, one row per "
            f"calibration row and one column per threshold, got shape {matrix.shape}."
        )
    _check_range(matrix, bound=bound)
    return matrix.astype(np.float64, copy=False)


def checked_column(losses: ArrayLike, *, bound: float) -> Floats:
    """Return the losses of rows at one threshold as floats in [0, bound]."""
    column = as_real_numbers(losses, name="losses")
    if column.ndim != 1:
        raise ValueError(f"losses must be one number per row, got shape {column.shape}.")
    _check_range(column, bound=bound)
    return column.astype(np.float64, copy=False)


def _check_range(losses: Floats, *, bound: float) -> None:
    if np.isnan(losses).any():
        first = tuple(np.argwhere(np.isnan(losses))[0].tolist())
        raise NonFiniteScoreError(
            f"losses holds NaN (first at {first}); every row needs a loss in every column."
        )
    if not losses.size:
        return
    smallest = float(losses.min())
    largest = float(losses.max())
    if smallest < 0 or largest > bound:
        raise ValueError(
            f"losses must lie in [0, bound] = [0, {bound:g}], but they range from {smallest:g} to "
            f"{largest:g}. Pass bound= with a number that no loss can ever exceed; the largest "
            f"loss in these rows is not such a number."
        )


def relative_level(alpha: Level, bound: float) -> Fraction:
    """Return alpha / bound as the rational number that the two mean, strictly between 0 and 1."""
    if bound == 1:
        return as_rational(alpha)
    try:
        return as_rational(rational(alpha) / rational(bound))
    except (TypeError, ValueError, ArithmeticError):
        raise ValueError(
            f"alpha must be a number strictly between 0 and bound = {bound:g}, got {alpha!r}."
        ) from None


def is_zero_one(losses: Floats) -> bool:
    """Whether every scaled loss is 0 or 1."""
    return bool(np.all((losses == 0) | (losses == 1)))


def sum_is_at_most(losses: Floats, limit: Fraction) -> bool:
    """Whether the sum of the losses is at most the limit, as the decimals mean that they show."""
    return exact_sum_near(losses, float(limit)) <= limit


def ceil_of_sum(losses: Floats) -> int:
    """Return the least whole number that is not below the sum of the losses."""
    whole = round(math.fsum(losses.tolist()))
    return math.ceil(exact_sum_near(losses, whole))


def exact_sum_near(losses: Floats, border: float) -> float | Fraction:
    """Add up losses; next to the border each counts as the simple fraction that it stands for.

    0.1 + 0.1 + 0.1 is above 0.3 in floats, and three losses of one tenth are not.
    """
    approximate = math.fsum(losses.tolist())
    largest_loss = max(1.0, float(losses.max(initial=0.0)))
    rounding = 2.0**-50 * (losses.size * largest_loss + abs(border))
    if abs(approximate - border) > rounding:
        return approximate

    values, counts = np.unique(losses, return_counts=True)
    terms = (
        rational(value) * count
        for value, count in zip(values.tolist(), counts.tolist(), strict=True)
    )
    return sum(terms, Fraction(0))


def _warn_none_passed(n_rows: int, n_columns: int, *, safe_at_infinity: bool) -> None:
    status = "not certified"
    if safe_at_infinity:
        status = "valid, because safe_at_infinity=True declares no loss there"
    text = (
        f"none of {counted(n_columns, 'threshold')} passed with "
        f"{counted(n_rows, 'calibration row')}: the threshold is infinite ({status})."
    )
    remedy = (
        "More rows, a larger alpha, or thresholds that reach further into the safe end may help."
    )
    show([Note("infeasible", text, remedy)])
