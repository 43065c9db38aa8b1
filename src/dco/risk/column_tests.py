"""Tests of "the risk exceeds the level", by p-values that are valid for every number of rows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
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
    """A test of "the mean of these losses, in [0, 1], exceeds `level`"."""

    level: Fraction

    @abstractmethod
    def p_value(self, losses: Floats) -> float:
        """Return the p-value of the losses of one column; there is at least one row."""

    def passes(self, losses: Floats, failure: Fraction) -> bool:
        """Whether the p-value is at most `failure`; without rows it is 1."""
        return losses.size > 0 and self.p_value(losses) <= float(failure)

    def check(self, losses: Floats) -> None:  # noqa: B027  # most tests fit all losses
        """Raise if the test does not fit such losses."""


@dataclass(frozen=True)
class BinomialTest(RiskTest):
    """Count errors: P(Binomial(n, level) <= errors), exact for losses of 0 and 1."""

    def p_value(self, losses: Floats) -> float:
        return binomial_p_value(int(losses.sum()), losses.size, self.level)

    def passes(self, losses: Floats, failure: Fraction) -> bool:
        n = losses.size
        n_without_loss = n - int(losses.sum())
        return n > 0 and n_without_loss >= pac_rank(n, alpha=self.level, delta=failure)

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
        return hoeffding_bentkus_p_value(losses, self.level)


@dataclass(frozen=True)
class BettingTest(RiskTest):
    """Bet on the rows in the order given (Waudby-Smith and Ramdas 2024).

    `delta` is the level that the bets are sized for; any value is valid.
    """

    delta: float

    def p_value(self, losses: Floats) -> float:
        return betting_p_value(losses, float(self.level), delta=self.delta)


def make_test(name: str, level: Fraction, *, delta: float) -> RiskTest:
    """Return the test of this name."""
    makers: dict[str, Callable[[], RiskTest]] = {
        "wsr": lambda: BettingTest(level, delta),
        "hoeffding-bentkus": lambda: HoeffdingBentkusTest(level),
        "binomial": lambda: BinomialTest(level),
    }
    if name not in makers:
        names = ", ".join(map(repr, makers))
        raise ValueError(f"test must be one of {names}, got {name!r}.")
    return makers[name]()


@dataclass(frozen=True, eq=False)
class ColumnTests:
    """One test applied to every column of a loss matrix scaled to [0, 1].

    `order` is the order in which rows are bet on, the same for all columns. `counted` marks the
    rows that belong to a column's population; None if all do.
    """

    test: RiskTest
    losses: Floats
    order: Integers
    counted: Bools | None

    def column(self, index: int) -> Floats:
        """Return the losses that count in one column, in the order of betting."""
        losses: Floats = self.losses[self.order, index]
        if self.counted is None:
            return losses
        return np.asarray(losses[self.counted[self.order, index]])

    def p_value(self, index: int) -> float:
        """Return the p-value of one column; 1 where no row counts."""
        losses = self.column(index)
        return self.test.p_value(losses) if losses.size else 1.0

    def passes(self, index: int, failure: Fraction) -> bool:
        """Whether one column passes at level `failure`."""
        return self.test.passes(self.column(index), failure)


def prepare_tests(
    losses: Floats,
    level: Fraction,
    *,
    name: str,
    delta: float,
    random_state: int,
    counted: Bools | None = None,
) -> ColumnTests:
    """Prepare the tests of all columns; `random_state` draws the order of betting."""
    test = make_test(name, level, delta=delta)
    test.check(losses if counted is None else losses[counted])
    order = np.random.default_rng(random_state).permutation(len(losses))
    return ColumnTests(test, losses, order, counted)


def binomial_p_value(errors: int, n: int, level: Fraction) -> float:
    """Return P(Binomial(n, level) <= errors) (Clopper and Pearson 1934)."""
    if errors >= n:
        return 1.0
    return float(betaincc(errors + 1.0, float(n - errors), float(level)))


def hoeffding_bentkus_p_value(losses: Floats, level: Fraction) -> float:
    """Return the smaller of Hoeffding's and Bentkus's bounds, at most 1.

    Hoeffding's is exp(-n h(min(mean, level), level)), with h the relative entropy of two coins;
    Bentkus's is e P(Binomial(n, level) <= ceil(n mean)).
    """
    n = losses.size
    risk = float(level)
    mean = min(math.fsum(losses.tolist()) / n, risk)

    entropy = float(rel_entr(mean, risk) + rel_entr(1 - mean, 1 - risk))
    hoeffding = math.exp(-n * max(entropy, 0.0))
    bentkus = math.e * binomial_p_value(ceil_of_sum(losses), n, level)
    return min(1.0, hoeffding, bentkus)


def betting_p_value(losses: Floats, level: float, *, delta: float) -> float:
    """Return exp(-max_i K_i), where K_i is the log capital after betting on i rows.

    K_i = sum over j <= i of log(1 - nu_j (L_j - level)), and the bet nu_j depends on earlier rows
    only. While the risk is above the level the capital is a non-negative supermartingale started at
    1, so that by Ville's inequality its maximum over the whole path exceeds 1 / delta with
    probability at most delta.
    """
    n = losses.size
    steps = np.arange(1, n + 1)
    means = (0.5 + np.cumsum(losses)) / (steps + 1)
    variances = (0.25 + np.cumsum((losses - means) ** 2)) / (steps + 1)
    earlier_variances = np.concatenate([[0.25], variances[:-1]])

    bets = np.minimum(1.0, np.sqrt(2 * math.log(1 / delta) / (n * earlier_variances)))
    log_capital = np.cumsum(np.log1p(-bets * (losses - level)))
    return math.exp(-max(0.0, float(log_capital.max())))
