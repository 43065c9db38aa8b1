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

# How far a float is from the fraction that it stands for, relative to its size: eight times the
# rounding of one number.
ROUNDING = 2.0**-50


@dataclass(frozen=True, eq=False)
class LossMatrix:
    """Losses of calibration rows at candidate thresholds, with the limit of their mean.

    Attributes
    ----------
    losses
        Losses (n, J) in [0, bound].
    thresholds
        The J thresholds of the columns, ascending.
    bound
        The largest loss that is possible at all.
    scaled_alpha
        alpha / bound, the limit of the mean of `scaled_losses`, as an exact rational number.
    """

    losses: Floats
    thresholds: Floats
    bound: float
    scaled_alpha: Fraction

    @property
    def scaled_losses(self) -> Floats:
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
        """Return the threshold of the first column that passed, with its guarantee.

        `column` is J where no column passed. The threshold is then infinite, with a note, and has
        a guarantee only if the caller declares that `safe_at_infinity`.
        """
        n, n_columns = self.losses.shape
        has_passed = column < n_columns
        value = float(self.thresholds[column]) if has_passed else math.inf
        if not has_passed:
            _warn_none_passed(n, n_columns, safe_at_infinity=safe_at_infinity)
        if not has_passed and not safe_at_infinity:
            guarantee = "none"
        return Threshold(
            value=value,
            rank=None,
            n=n,
            guarantee=guarantee,
            alpha=float(self.scaled_alpha * rational(self.bound)),
            delta=None if delta is None else float(delta),
        )


def read_loss_matrix(
    losses: ArrayLike, thresholds: ArrayLike, *, alpha: Level, bound: float
) -> LossMatrix:
    """Check losses (n, J), their J ascending thresholds and alpha, as a caller passes them."""
    largest_loss = as_positive(bound, name="bound")
    matrix = check_losses(losses, bound=largest_loss)
    n_columns = matrix.shape[1]

    numbers = as_real_numbers(thresholds, name="thresholds").astype(np.float64)
    if numbers.shape != (n_columns,):
        raise ValueError(
            f"thresholds must hold one number for each of the {n_columns} columns, "
            f"got shape {numbers.shape}."
        )
    if np.any(np.isnan(numbers)) or np.any(np.diff(numbers) <= 0):
        raise ValueError(
            "thresholds must be strictly ascending, without NaN: the last column "
            "has the largest sets."
        )
    return LossMatrix(
        losses=matrix,
        thresholds=numbers,
        bound=largest_loss,
        scaled_alpha=alpha_over_bound(alpha, largest_loss),
    )


def check_losses_fall(losses: Floats, *, rule: str) -> None:
    """Refuse losses that rise from a column to the next in some row.

    `rule` is the name of the function that needs falling losses, for the message.
    """
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


def check_losses(losses: ArrayLike, *, bound: float) -> Floats:
    """Return a matrix of losses (n, J) as floats in [0, bound]; anything else is an error."""
    matrix = as_real_numbers(losses, name="losses")
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError(
            f"losses must be a matrix with at least one row and one column, one row per "
            f"calibration row and one column per threshold, got shape {matrix.shape}."
        )
    _check_range(matrix, bound=bound)
    return matrix.astype(np.float64, copy=False)


def check_column_of_losses(losses: ArrayLike, *, bound: float) -> Floats:
    """Return the losses of rows at one threshold as floats in [0, bound]."""
    column = as_real_numbers(losses, name="losses")
    if column.ndim != 1:
        raise ValueError(f"losses must be one number per row, got shape {column.shape}.")
    _check_range(column, bound=bound)
    return column.astype(np.float64, copy=False)


def _check_range(losses: Floats, *, bound: float) -> None:
    """Refuse NaN and losses outside [0, bound]."""
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


def alpha_over_bound(alpha: Level, bound: float) -> Fraction:
    """Return alpha / bound as an exact rational number, strictly between 0 and 1.

    A decimal means the decimal that it shows: 0.1 / 0.3 is 1/3.
    """
    if bound == 1:
        return as_rational(alpha)  # its message names alpha alone
    try:
        return as_rational(rational(alpha) / rational(bound))
    except (TypeError, ValueError, ArithmeticError):
        raise ValueError(
            f"alpha must be a number strictly between 0 and bound = {bound:g}, got {alpha!r}."
        ) from None


def is_zero_one(losses: Floats) -> bool:
    """Decide whether every loss is 0 or 1."""
    return bool(np.all((losses == 0) | (losses == 1)))


def sum_is_at_most(losses: Floats, limit: Fraction) -> bool:
    """Decide whether the losses, as the decimals that they show, add up to at most the limit."""
    return exact_sum_near(losses, float(limit)) <= limit


def ceil_of_sum(losses: Floats) -> int:
    """Round the sum of the losses up to a whole number: 100 losses of 0.55 give 55, not 56."""
    nearest_whole = round(math.fsum(losses.tolist()))
    return math.ceil(exact_sum_near(losses, nearest_whole))


def exact_sum_near(losses: Floats, border: float) -> float | Fraction:
    """Add up losses, so exactly that the sum is on the right side of the border.

    A float sum is good enough far from the border. Near to it each loss counts as the simple
    fraction that it stands for: in floats 0.1 + 0.1 + 0.1 is above 0.3, and three losses of one
    tenth are not.
    """
    approximate = math.fsum(losses.tolist())
    largest_loss = max(1.0, float(losses.max(initial=0.0)))
    largest_rounding = ROUNDING * (losses.size * largest_loss + abs(border))
    if abs(approximate - border) > largest_rounding:
        return approximate

    exact = Fraction(0)
    values, counts = np.unique(losses, return_counts=True)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        exact += rational(value) * count
    return exact


def _warn_none_passed(n_rows: int, n_columns: int, *, safe_at_infinity: bool) -> None:
    """Show a note that the threshold is infinite, whether that is valid, and what helps."""
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
