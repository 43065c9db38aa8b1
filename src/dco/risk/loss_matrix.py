"""What the rules for loss matrices share: checked losses, thresholds and levels, exact sums, and
tests of a column.

``losses[i, j]`` is the loss of calibration row i when the threshold is ``thresholds[j]``.
Thresholds ascend, sets grow with them, and the last column is the safest. A rule finds a column of
`LossMatrix.of(...)` and returns `threshold_at` it. A `RiskTest` tests "the risk of this column
exceeds the level", by p-values that are valid for every n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincc, rel_entr

from dco import NonFiniteScoreError, Threshold, pac_rank
from dco.foundations.arrays import Bools, Floats, real_numbers
from dco.foundations.display import counted
from dco.foundations.notes import Note, show
from dco.foundations.ranks import (
    Guarantee,
    Level,
    as_positive,
    as_rational,
    rational,
)

TestName: TypeAlias = Literal["wsr", "hoeffding-bentkus", "binomial"]


@dataclass(frozen=True, eq=False)
class LossMatrix:
    """Checked losses (n, J) in [0, bound], their thresholds (J,), and `level`, alpha / bound as the
    number that it means.
    """

    losses: Floats
    thresholds: Floats
    bound: float
    level: Fraction

    @classmethod
    def of(
        cls,
        losses: ArrayLike,
        thresholds: ArrayLike,
        *,
        alpha: Level,
        bound: float,
        falling_for: str | None = None,
    ) -> LossMatrix:
        """Check what a caller gives; `falling_for` names a rule whose losses must never rise with
        the threshold.
        """
        scale = as_positive(bound, name="bound")
        matrix, cuts = (
            checked_losses(losses, bound=scale),
            real_numbers(thresholds, name="thresholds").astype(np.float64),
        )
        columns = matrix.shape[1]
        if cuts.shape != (columns,):
            raise ValueError(
                f"thresholds must hold one number for each of the {columns} columns, "
                f"got shape {cuts.shape}."
            )
        if np.any(np.isnan(cuts)) or np.any(np.diff(cuts) <= 0):
            raise ValueError(
                "thresholds must be strictly ascending, without NaN: the last column "
                "has the largest sets."
            )
        if falling_for is not None and (rises := np.argwhere(np.diff(matrix, axis=1) > 0)).size:
            row, column = rises[0].tolist()
            raise ValueError(
                f"{falling_for} needs losses that never rise with the threshold, but row {row} "
                f"rises from column {column} "
                f"to {column + 1} ({matrix[row, column]:g} to {matrix[row, column + 1]:g}). Use "
                f"learn_then_test for such a "
                "loss, or replace each row by its running maximum from the right."
            )
        return cls(matrix, cuts, scale, relative_level(alpha, scale))

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
        """The threshold of a column, or +inf if no column passed: certified only where the caller
        declares it safe.
        """
        n, columns = self.losses.shape
        value = float(self.thresholds[column]) if column < columns else math.inf
        if column == columns:
            said = (
                "valid, because safe_at_infinity=True declares no loss there"
                if safe_at_infinity
                else "not certified"
            )
            rows = (
                f"passed with {counted(n, 'calibration row')}: the threshold is infinite ({said})."
            )
            remedy = (
                "More rows, a larger alpha, or thresholds that reach further into the safe "
                "end may help."
            )
            show([Note("infeasible", f"none of {counted(columns, 'threshold')} {rows}", remedy)])
            guarantee = guarantee if safe_at_infinity else "none"
        alpha, failure = (
            float(self.level * rational(self.bound)),
            None if delta is None else float(delta),
        )
        return Threshold(value, rank=None, n=n, guarantee=guarantee, alpha=alpha, delta=failure)


def checked_losses(losses: ArrayLike, *, bound: float, ndim: int = 2) -> Floats:
    """Losses as floats in [0, bound]; a matrix has at least one row and one column."""
    array = real_numbers(losses, name="losses")
    if array.ndim != ndim or (ndim == 2 and not array.size):
        kind = (
            "a matrix with at least one row and one column, one row per calibration row and "
            "one column per threshold"
        )
        raise ValueError(
            f"losses must be {'one number per row' if ndim == 1 else kind}, got "
            f"shape {array.shape}."
        )
    least, most = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
    if math.isnan(least):
        where = tuple(np.argwhere(np.isnan(array))[0].tolist())
        raise NonFiniteScoreError(
            f"losses holds NaN (first at {where}); every row needs a loss in every column."
        )
    if least < 0 or most > bound:
        raise ValueError(
            f"losses must lie in [0, bound] = [0, {bound:g}], but they range from {least:g} to "
            f"{most:g}. Pass bound= with a "
            "number that no loss can ever exceed; the largest loss seen is not such a number."
        )
    return array.astype(np.float64, copy=False)


def relative_level(alpha: Level, bound: float) -> Fraction:
    """alpha / bound as the rational number that the two mean, strictly between 0 and 1."""
    if bound == 1:
        return as_rational(alpha)
    try:
        return as_rational(rational(alpha) / rational(bound))
    except (TypeError, ValueError, ArithmeticError):
        raise ValueError(
            f"alpha must be a number strictly between 0 and bound = {bound:g}, got {alpha!r}."
        ) from None


def total(losses: Floats, *, border: Fraction | None = None) -> float | Fraction:
    """The sum of the losses, to be compared with a border (a whole number by default).

    Next to it each loss is taken as the simple fraction that it is the nearest float of.
    """
    found = math.fsum(losses.tolist())
    near = round(found) if border is None else float(border)
    if abs(found - near) > 2.0**-50 * (
        losses.size * max(1.0, float(losses.max(initial=0.0))) + abs(near)
    ):
        return found
    values, counts = np.unique(losses, return_counts=True)
    return sum(
        (rational(v) * c for v, c in zip(values.tolist(), counts.tolist(), strict=True)),
        Fraction(0),
    )


def is_zero_one(losses: Floats) -> bool:
    """Whether every scaled loss is 0 or 1."""
    return bool(np.all((losses == 0) | (losses == 1)))


class RiskTest:
    """One test of every column of `losses` (n, J), scaled to [0, 1], at `level`.

    WSR bets on the rows in one order, drawn from `seed`, for all columns. `wager` is the delta that
    its bets are sized for; any value is valid. `counted` (n, J) marks the rows that belong to a
    column's population; without it all do.
    """

    def __init__(
        self,
        losses: Floats,
        level: Fraction,
        *,
        name: str,
        wager: float,
        seed: int,
        counted: Bools | None = None,
    ) -> None:
        if name not in get_args(TestName):
            raise ValueError(
                f"test must be one of {', '.join(map(repr, get_args(TestName)))}, got {name!r}."
            )
        if name == "binomial" and not is_zero_one(losses if counted is None else losses[counted]):
            raise ValueError(
                'test="binomial" counts errors, so every loss must be 0 or the bound. Use "wsr" '
                "for other losses."
            )
        self.losses, self.counted, self.level, self.name, self.wager = (
            losses,
            counted,
            level,
            name,
            wager,
        )
        self.order = np.random.default_rng(seed).permutation(len(losses))

    def column(self, index: int) -> Floats:
        """The losses that count in one column."""
        values: Floats = self.losses[self.order, index]
        return values if self.counted is None else values[self.counted[self.order, index]]

    def p_value(self, index: int) -> float:
        """The p-value of one column; 1 where no row counts."""
        values = self.column(index)
        if not values.size:
            return 1.0
        if self.name == "wsr":
            return wsr_p_value(values, float(self.level), wager=self.wager)
        if self.name == "binomial":
            return binomial_p_value(int(values.sum()), values.size, self.level)
        return hoeffding_bentkus_p_value(values, self.level)

    def passes(self, index: int, failure: Fraction) -> bool:
        """Whether the p-value of one column is at most `failure`; with integers for the binomial
        test.
        """
        if self.name == "binomial":
            values = self.column(index)
            n = values.size
            return n > 0 and n - int(values.sum()) >= pac_rank(n, alpha=self.level, delta=failure)
        return self.p_value(index) <= float(failure)


def binomial_p_value(errors: int, n: int, level: Fraction) -> float:
    """P(Binomial(n, level) <= errors): exact for 0/1 loss (Clopper and Pearson 1934)."""
    return 1.0 if errors >= n else float(betaincc(errors + 1.0, float(n - errors), float(level)))


def hoeffding_bentkus_p_value(losses: Floats, level: Fraction) -> float:
    """min(exp(-n h(min(mean, level), level)), e P(Binomial(n, level) <= ceil(n mean))) (Bates et
    al. 2021).

    h is the relative entropy of two coins: the first term is Hoeffding's, the second Bentkus's
    inequality.
    """
    n, risk = losses.size, float(level)
    mean = min(math.fsum(losses.tolist()) / n, risk)
    entropy = float(rel_entr(mean, risk) + rel_entr(1 - mean, 1 - risk))
    bentkus = math.e * binomial_p_value(math.ceil(total(losses)), n, level)
    return min(1.0, math.exp(-n * max(entropy, 0.0)), bentkus)


def wsr_p_value(losses: Floats, level: float, *, wager: float) -> float:
    """exp(-max_i K_i), K_i = sum over j <= i of log(1 - nu_j (L_j - level)) (Waudby-Smith and
    Ramdas 2024).

    exp(K_i) is a non-negative supermartingale started at 1 while the risk is above the level, so
    that by Ville's inequality its maximum over the WHOLE path exceeds 1 / delta with probability at
    most delta. The bet nu_j depends on rows before j only. There is one maximum: maxima over parts
    of the path, added up, have no such bound.
    """
    n = losses.size
    steps = np.arange(1, n + 1)
    means = (0.5 + np.cumsum(losses)) / (steps + 1)
    variances = (0.25 + np.cumsum((losses - means) ** 2)) / (steps + 1)
    earlier = np.concatenate([[0.25], variances[:-1]])
    bets = np.minimum(1.0, np.sqrt(2 * math.log(1 / wager) / (n * earlier)))
    capital = np.cumsum(np.log1p(-bets * (losses - level)))
    return math.exp(-max(0.0, float(capital.max())))
