"""Tests of "the risk exceeds alpha" on a column of losses in [0, 1]: p-values that are valid for every n.

Each test takes scaled losses and a rational level and gives a p-value for the hypothesis that the mean loss is above the
level. `RiskTest.passes` decides ``p <= failure`` in exact arithmetic where the losses are 0 or 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias, get_args

import numpy as np
from scipy.special import betaincc

from dco.foundations.arrays import Bools, Floats
from dco.foundations.ranks import pac_rank
from dco.guarantees.rules.loss_matrix import ceil_total, is_zero_one

TestName: TypeAlias = Literal["wsr", "hoeffding-bentkus", "binomial"]


@dataclass(frozen=True, eq=False)
class RiskTest:
    """One test of every column of `losses` (n, J), scaled to [0, 1], at `level`.

    The order of the rows is that of the WSR martingale, the same for every column. `wager` is the delta that its bets are
    sized for; any value is valid. `counted` (n, J) marks the rows that belong to a column's population; without it all do.
    """

    losses: Floats
    level: Fraction
    name: TestName
    wager: float
    counted: Bools | None = None

    def column(self, index: int) -> Floats:
        """The losses that count in one column."""
        values: Floats = self.losses[:, index]
        return values if self.counted is None else values[self.counted[:, index]]

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
        """Whether the p-value of one column is at most `failure`; with integers for the binomial test."""
        if self.name == "binomial":
            values = self.column(index)
            n = values.size
            return n > 0 and n - int(values.sum()) >= pac_rank(n, alpha=self.level, delta=failure)
        return self.p_value(index) <= float(failure)


def risk_test(
    losses: Floats, level: Fraction, *, name: str, wager: float, seed: int, counted: Bools | None = None
) -> RiskTest:
    """A test by its name; the row order is one permutation drawn from `seed`, without looking at the losses."""
    if name not in get_args(TestName):
        raise ValueError(f"test must be one of {', '.join(map(repr, get_args(TestName)))}, got {name!r}.")
    relevant = losses if counted is None else losses[counted]
    if name == "binomial" and not is_zero_one(relevant):
        raise ValueError('test="binomial" counts errors, so every loss must be 0 or the bound. Use "wsr" for other losses.')
    order = np.random.default_rng(seed).permutation(len(losses))
    return RiskTest(losses[order], level, name, wager, None if counted is None else counted[order])  # type: ignore[arg-type]


def binomial_p_value(errors: int, n: int, level: Fraction) -> float:
    """P(Binomial(n, level) <= errors): exact for 0/1 loss (Clopper and Pearson 1934)."""
    return 1.0 if errors >= n else float(betaincc(errors + 1.0, float(n - errors), float(level)))


def hoeffding_bentkus_p_value(losses: Floats, level: Fraction) -> float:
    """min(exp(-n h(min(mean, level), level)), e P(Binomial(n, level) <= ceil(n mean))) (Bates et al. 2021).

    h is the relative entropy of two coins: the first term is Hoeffding's, the second Bentkus's inequality.
    """
    n, level_float = losses.size, float(level)
    mean = min(math.fsum(losses.tolist()) / n, level_float)
    entropy = (0.0 if mean == 0 else mean * math.log(mean / level_float)) + (
        0.0 if mean == 1 else (1 - mean) * (math.log1p(-mean) - math.log1p(-level_float))
    )
    bentkus = math.e * binomial_p_value(ceil_total(losses), n, level)
    return min(1.0, math.exp(-n * max(entropy, 0.0)), bentkus)


def wsr_p_value(losses: Floats, level: float, *, wager: float) -> float:
    """exp(-max_i K_i), K_i = sum over j <= i of log(1 - nu_j (L_j - level)) (Waudby-Smith and Ramdas 2024).

    exp(K_i) is a non-negative supermartingale started at 1 while the risk is above the level, so that by Ville's inequality
    its maximum over the WHOLE path exceeds 1 / delta with probability at most delta. The bet nu_j depends on rows before j
    only. There is one maximum: maxima over parts of the path, added up, have no such bound.
    """
    n = losses.size
    steps = np.arange(1, n + 1)
    means = (0.5 + np.cumsum(losses)) / (steps + 1)
    variances = (0.25 + np.cumsum((losses - means) ** 2)) / (steps + 1)
    earlier = np.concatenate([[0.25], variances[:-1]])
    bets = np.minimum(1.0, np.sqrt(2 * math.log(1 / wager) / (n * earlier)))
    capital = np.cumsum(np.log1p(-bets * (losses - level)))
    return math.exp(-max(0.0, float(capital.max())))
