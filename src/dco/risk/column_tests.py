"""Tests of "the risk exceeds alpha", by p-values that are valid for every number of rows.

Losses are divided by their bound here, so that they lie in [0, 1], and so is alpha. The risk is the
mean loss of new rows. A test at level delta passes if its p-value is at most delta; a risk above
alpha passes with probability at most delta.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np
from scipy.special import betaincc, rel_entr

from dco import pac_rank
from dco.foundations.arrays import Bools, Floats, Integers
from dco.risk.loss_matrix import ceil_of_sum, is_zero_one

TestName: TypeAlias = Literal["wsr", "hoeffding-bentkus", "binomial"]


@dataclass(frozen=True)
class RiskTest(ABC):
    """A test of "the mean of these losses, in [0, 1], exceeds `alpha`"."""

    alpha: Fraction

    @abstractmethod
    def p_value(self, losses: Floats) -> float:
        """Return the p-value of the losses of one column; there is at least one row."""

    def passes(self, losses: Floats, delta: Fraction) -> bool:
        """Decide whether the p-value is at most `delta`; without rows it is 1."""
        return losses.size > 0 and self.p_value(losses) <= float(delta)

    def check(self, losses: Floats) -> None:  # noqa: B027  # most tests fit all losses
        """Raise if the test does not fit such losses."""


@dataclass(frozen=True)
class BinomialTest(RiskTest):
    """Count errors: P(Binomial(n, alpha) <= errors), exact for losses of 0 and 1."""

    def p_value(self, losses: Floats) -> float:
        return binomial_p_value(int(losses.sum()), losses.size, self.alpha)

    def passes(self, losses: Floats, delta: Fraction) -> bool:
        """Decide in integers: enough rows are without a loss, as many as `pac_rank` asks for."""
        n = losses.size
        n_without_loss = n - int(losses.sum())
        return n > 0 and n_without_loss >= pac_rank(n, alpha=self.alpha, delta=delta)

    def check(self, losses: Floats) -> None:
        if not is_zero_one(losses):
            raise ValueError(
                'test="binomial" counts errors, so every loss must be 0 or the bound. Use "wsr" '
                "for other losses."
            )


@dataclass(frozen=True)
class HoeffdingBentkusTest(RiskTest):
    """Judge by the mean of the losses (Bates et al. 2021)."""

    def p_value(self, losses: Floats) -> float:
        return hoeffding_bentkus_p_value(losses, self.alpha)


@dataclass(frozen=True)
class BettingTest(RiskTest):
    """Bet on the rows in their order (Waudby-Smith and Ramdas 2024).

    `expected_delta` is the level at which the test will be used. The bets are sized for it, and the
    p-value is valid at any other level too.
    """

    expected_delta: float

    def p_value(self, losses: Floats) -> float:
        return betting_p_value(losses, float(self.alpha), delta=self.expected_delta)


def make_test(name: str, alpha: Fraction, *, delta: float) -> RiskTest:
    """Return the test of this name, to be used at level `delta`."""
    if name == "wsr":
        return BettingTest(alpha, expected_delta=delta)
    if name == "hoeffding-bentkus":
        return HoeffdingBentkusTest(alpha)
    if name == "binomial":
        return BinomialTest(alpha)
    raise ValueError(f"test must be one of 'wsr', 'hoeffding-bentkus', 'binomial', got {name!r}.")


@dataclass(frozen=True, eq=False)
class ColumnTests:
    """One test, applied to each column of a matrix of losses in [0, 1].

    Attributes
    ----------
    test
        The test of one column.
    losses
        The losses (n, J), a column for each threshold or setting.
    betting_order
        The row numbers in the order in which "wsr" bets on them, the same for all columns.
    counted
        Which rows count in which column (n, J); None if all do.
    """

    test: RiskTest
    losses: Floats
    betting_order: Integers
    counted: Bools | None

    def losses_of(self, column: int) -> Floats:
        """Return the losses that count in one column, in the order of betting."""
        losses: Floats = self.losses[self.betting_order, column]
        if self.counted is None:
            return losses
        is_counted = self.counted[self.betting_order, column]
        return np.asarray(losses[is_counted])

    def p_value(self, column: int) -> float:
        """Return the p-value of one column; 1 where no row counts."""
        losses = self.losses_of(column)
        return self.test.p_value(losses) if losses.size else 1.0

    def passes(self, column: int, delta: Fraction) -> bool:
        """Decide whether one column passes its test at level `delta`."""
        return self.test.passes(self.losses_of(column), delta)


def prepare_tests(
    losses: Floats,
    alpha: Fraction,
    *,
    name: str,
    delta: float,
    random_state: int,
    counted: Bools | None = None,
) -> ColumnTests:
    """Prepare one test of "the risk exceeds alpha" for each column of a matrix of losses.

    Parameters
    ----------
    losses
        (n, J) losses in [0, 1], a column for each threshold or setting.
    alpha
        The limit of the risk, the mean loss of new rows.
    name
        "hoeffding-bentkus", "binomial" or "wsr" (bets on one row after the other, after
        Waudby-Smith and Ramdas).
    delta
        The level at which the tests will be used: their probability to err.
    random_state
        The seed of the order in which "wsr" bets on rows, the same for all columns.
    counted
        (n, J) marks of the rows that count in each column; None if all do.
    """
    test = make_test(name, alpha, delta=delta)
    test.check(losses if counted is None else losses[counted])
    betting_order = np.random.default_rng(random_state).permutation(len(losses))
    return ColumnTests(test, losses, betting_order, counted)


def binomial_p_value(errors: int, n: int, alpha: Fraction) -> float:
    """Return P(Binomial(n, alpha) <= errors) (Clopper and Pearson 1934)."""
    if errors >= n:
        return 1.0
    return float(betaincc(errors + 1.0, float(n - errors), float(alpha)))


def hoeffding_bentkus_p_value(losses: Floats, alpha: Fraction) -> float:
    """Return the smaller of Hoeffding's and Bentkus's bounds, at most 1.

    For n losses with this mean, and a = min(mean, alpha):

    - Hoeffding: exp(-n h(a, alpha)), where h(a, b) = a log(a / b) + (1 - a) log((1 - a) / (1 - b));
    - Bentkus: e P(Binomial(n, alpha) <= ceil(n mean)), where e = 2.718...
    """
    n = losses.size
    b = float(alpha)
    a = min(math.fsum(losses.tolist()) / n, b)

    h = float(rel_entr(a, b) + rel_entr(1 - a, 1 - b))
    hoeffding = math.exp(-n * max(h, 0.0))  # rounding can make h negative
    bentkus = math.e * binomial_p_value(ceil_of_sum(losses), n, alpha)
    return min(1.0, hoeffding, bentkus)


def betting_p_value(losses: Floats, alpha: float, *, delta: float) -> float:
    """Bet against "the risk exceeds alpha" on one row after the other; return 1 / largest capital.

    With the losses L_1, ..., L_n in the order of betting:

    - mean_i = (1/2 + sum of L_j for j <= i) / (i + 1)
    - variance_i = (1/4 + sum of (L_j - mean_j)^2 for j <= i) / (i + 1)
    - bet_i = min(1, sqrt(2 log(1 / delta) / (n variance_{i-1}))), by earlier rows only
    - capital_i = product of 1 - bet_j (L_j - alpha) for j <= i

    While the risk is above alpha, the capital is a non-negative supermartingale that starts at 1:
    its largest value exceeds 1 / p with probability at most p (Ville's inequality).
    """
    n = losses.size
    i = np.arange(1, n + 1)
    means = (0.5 + np.cumsum(losses)) / (i + 1)
    variances = (0.25 + np.cumsum((losses - means) ** 2)) / (i + 1)
    earlier_variances = np.concatenate([[0.25], variances[:-1]])

    bets = np.minimum(1.0, np.sqrt(2 * math.log(1 / delta) / (n * earlier_variances)))
    log_capital = np.cumsum(np.log1p(-bets * (losses - alpha)))
    largest_log_capital = max(0.0, float(log_capital.max()))  # 0 before the first row
    return math.exp(-largest_log_capital)
