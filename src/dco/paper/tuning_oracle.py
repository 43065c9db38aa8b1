"""Proposition 3.2 on data whose truth is known: how well a number of tuning rows chooses.

The eight structures are scores |y - mean| / (spread + floor) with eight floors, where mean and
spread are the true ones of a heteroscedastic population. A prediction set at threshold t is
mean ± t (spread + floor). So the regret of a choice is known exactly: the mean width of the chosen
structure less that of the best one, each at the threshold where it covers exactly the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

import dco
from dco.datasets import HeteroscedasticGaussian
from dco.foundations.arrays import Floats
from dco.paper import figures, paper_findings
from dco.paper.bounds import (
    TuningAccuracy,
    TuningMethod,
    size_after_recalibration,
    tuning_accuracy,
)
from dco.paper.coverage_z import target_coverage
from dco.paper.experiment import Experiment, Options, Row, SplitRecords, group_by, rows_of
from dco.paper.tables import Measured, ResultTable, TableRow, join_sentences
from dco.scores import NormalisedResidual

POPULATION = HeteroscedasticGaussian()
DELTA = 0.05
FLOORS = (0.0, 0.05, 0.15, 0.3, 0.6, 1.0, 2.0, 5.0)  # one structure each
TUNING_ROWS = (50, 100, 200, 500, 1000, 5000, 20_000, 100_000)
QUICK_TUNING_ROWS = (50, 200, 1000)
SIZE_BOUND = 12.0  # B of the proposition: [-6, 6] holds all but 2e-6 of the responses
HIGHEST_THRESHOLD = 60.0  # there every structure covers nearly all rows
HIGHEST_COVERAGE = 1 - 1e-9  # at more than this, sets are as good as infinite

# Columns of the table that are lines of the figure.
LINES = ("regret", "tightened", "bound, paper", "bound, uniform", "bound, recalibrated")


@dataclass(frozen=True)
class OracleRow(Row):
    """The structure chosen on n tuning rows, and what is true of it in the population.

    Attributes
    ----------
    chosen
        The floor of the structure that Algorithm 1 chooses, by empirical risk <= alpha.
    regret
        Its width less that of the best structure, both at exact coverage 1 - alpha.
    risk, size
        Its miscoverage and its mean width at the threshold that was found on the tuning rows.
    tight_risk, tight_size
        The same of the choice by the rule that the proposition states, empirical risk <= alpha -
        ε. None where ε is not below alpha.
    """

    n: int
    alpha: float
    chosen: float
    regret: float
    risk: float
    size: float
    tight_risk: float | None = None
    tight_size: float | None = None


# ---- the truth


@lru_cache(maxsize=1)
def spread_quadrature() -> tuple[Floats, Floats]:
    """Return values of the spread s and weights w with E[f(s)] = Σ w f(s), up to rounding.

    The spread of a row is uniform, so Gauss-Legendre nodes do it.
    """
    nodes, weights = np.polynomial.legendre.leggauss(200)
    return POPULATION.least + POPULATION.slope * (nodes + 1) / 2, weights / 2


def true_coverage(floor: float, threshold: float) -> float:
    """Return P(|y - mean| <= t (s + floor)) = E[2 Φ(t (s + floor) / s) - 1].

    t is the threshold and s the spread of a random row.
    """
    spread, weights = spread_quadrature()
    coverage_given_spread = 2 * ndtr(threshold * (spread + floor) / spread) - 1
    return float(weights @ coverage_given_spread)


def true_size(floor: float, threshold: float) -> float:
    """Return the mean width E[2 t (s + floor)] at threshold t; s is the spread of a random row."""
    mean_spread = POPULATION.least + POPULATION.slope / 2
    return 2 * threshold * (mean_spread + floor)


@lru_cache(maxsize=4096)
def oracle_size(floor: float, alpha: float) -> float:
    """Return the mean width of a structure at the threshold where it covers exactly 1 - alpha."""
    from scipy.optimize import brentq

    def excess_coverage(threshold: float) -> float:
        return true_coverage(floor, threshold) - (1 - alpha)

    threshold = brentq(excess_coverage, 0.0, HIGHEST_THRESHOLD, xtol=1e-13)
    return true_size(floor, float(threshold))


def best_floor(alpha: float) -> float:
    """Return the floor of the structure with the smallest width at exact coverage."""
    return min(FLOORS, key=lambda floor: oracle_size(floor, alpha))


def best_size(alpha: float) -> float:
    """Return the smallest width at exact coverage."""
    return oracle_size(best_floor(alpha), alpha)


# ---- one split


def run_split(seed: int, options: Options) -> list[Row]:
    """Simulate one data set: choose a structure on tuning rows of every number, at every level."""
    rng = np.random.default_rng([seed, 2])
    tuning_rows = QUICK_TUNING_ROWS if options.quick else TUNING_ROWS
    rows: list[Row] = []
    for n in tuning_rows:
        X, y = POPULATION.sample(n, rng)
        for alpha in options.alphas:
            rows.append(choose_on(X, y, alpha))
    return rows


class Selection(NamedTuple):
    """The floor of the structure with the smallest sets on tuning rows, and its threshold there."""

    floor: float
    threshold: float


def choose_on(X: Floats, y: Floats, alpha: float) -> OracleRow:
    """Choose a structure on the tuning rows (X, y), and record what is true of it.

    A structure is the score |y - mean| / (spread + floor) with one of eight floors. It is chosen
    twice, each time by the smallest sets: with empirical risk at most alpha, as Algorithm 1 does,
    and at most alpha - ε, as Proposition 3.2 asks (the "tight" rule), where that is positive.
    """
    n = len(y)
    choice = select_smallest(X, y, alpha)
    regret = oracle_size(choice.floor, alpha) - best_size(alpha)
    risk = 1 - true_coverage(choice.floor, choice.threshold)
    size = true_size(choice.floor, choice.threshold)

    epsilon = tuning_errors(n, "uniform").risk_error
    tight_risk: float | None = None
    tight_size: float | None = None
    if epsilon < alpha:
        tight_choice = select_smallest(X, y, alpha - epsilon)
        tight_risk = 1 - true_coverage(tight_choice.floor, tight_choice.threshold)
        tight_size = true_size(tight_choice.floor, tight_choice.threshold)

    return OracleRow(
        n=n,
        alpha=alpha,
        chosen=choice.floor,
        regret=regret,
        risk=risk,
        size=size,
        tight_risk=tight_risk,
        tight_size=tight_size,
    )


def select_smallest(X: Floats, y: Floats, risk_limit: float) -> Selection:
    """Select the structure with the smallest sets at empirical risk <= `risk_limit` on (X, y)."""
    prediction = POPULATION.prediction(X)
    floors = {f"floor {floor:g}": floor for floor in FLOORS}
    candidates = {name: (NormalisedResidual(floor), prediction) for name, floor in floors.items()}
    best = dco.tune(candidates, y, alpha=risk_limit).table[0]
    return Selection(floor=floors[best.name], threshold=best.ranking_threshold)


# ---- the table and the figure


def make_tables(records: SplitRecords, options: Options) -> list[ResultTable]:
    """Make the tables of how well a structure is chosen on n tuning rows, beside bounds on it.

    A structure is one of eight scores on simulated data, whose best one is known. There is a row
    for each level and each n; `records` has the choices on one simulated data set in each record.
    """
    return [make_regret_table(records, options), make_own_rule_table(records)]


def make_regret_table(records: SplitRecords, options: Options) -> ResultTable:
    """Make the table of the regret of the chosen structure, beside three bounds on it."""
    groups = group_by(rows_of(records, OracleRow), key=lambda row: (row.alpha, row.n))
    rows = [describe_choices(choices, alpha, n) for (alpha, n), choices in groups.items()]

    # The caption explains the data, then the columns from left to right.
    structures = (
        f"{len(FLOORS)} structures |y - mean| / (spread + floor) on known truth, {len(records)} "
        "tuning sets of each size n."
    )
    regret = (
        "'Regret': mean width of the chosen structure less that of the best, each at the threshold "
        "where it covers exactly the target (best at the first level: "
        f"{best_size(options.alphas[0]):.3f})."
    )
    tightened = (
        "'Tightened': the rule that the proposition states, risk <= α - ε, with its own threshold; "
        "its width less the best at α, and how often its risk exceeded α."
    )
    bounds = (
        "Bounds on that difference with probability 95 %: the paper's (80 thresholds fixed in "
        f"advance) and the uniform one (every threshold), with B = {SIZE_BOUND:g}; last, the one "
        "for sets recalibrated on as many rows, which the paper leaves open."
    )
    caption = join_sentences(
        structures,
        regret,
        tightened,
        bounds,
        "Empty: the bound says nothing at this n.",
        "The bounds hold and are loose: a few hundred rows choose well.",
    )
    return ResultTable.of("Tuning oracle", caption, rows)


def make_own_rule_table(records: SplitRecords) -> ResultTable:
    """Make the table of what Appendix B proves of Algorithm 1's own rule, empirical risk <= α.

    With its own threshold the choice has a risk of at most α + ε_R, and a size of at most the best
    one at risk α - ε_R plus 2 ε_S, both with probability 95 %.
    """
    groups = group_by(rows_of(records, OracleRow), key=lambda row: (row.alpha, row.n))
    rows = [describe_own_rule(choices, alpha, n) for (alpha, n), choices in groups.items()]
    caption = join_sentences(
        "The proof of Proposition 3.2 treats Algorithm 1's rule, empirical risk <= α, first. With "
        "its own threshold the choice has a true risk of at most α + ε_R ('risk limit') and a "
        "width of at most the best one at risk α - ε_R plus 2 ε_S ('bound', less the best one at "
        "α), both with probability 95 %.",
        "'Paper': 80 thresholds fixed in advance; 'uniform': every threshold, as ours are.",
        f"'Width less best' is negative where the risk exceeds α. {len(records)} tuning sets.",
        "'Broken': tuning sets in which the choice exceeds the uniform risk limit or bound.",
        "Empty: the bound says nothing at this n.",
    )
    return ResultTable.of("Tuning oracle: Algorithm 1's own rule", caption, rows)


def describe_own_rule(choices: Sequence[OracleRow], alpha: float, n: int) -> TableRow:
    """Make the row of one level and one number n of tuning rows, for Algorithm 1's own rule.

    `choices` has the structure and threshold that were chosen on each of many tuning sets.
    """
    excess_sizes = [choice.size - best_size(alpha) for choice in choices]
    risk_limit = alpha + tuning_errors(n, "uniform").risk_error
    bound = tuning_bound(n, alpha, "uniform", tightened=False)
    broken = [
        choice.risk > risk_limit or (bound is not None and excess > bound)
        for choice, excess in zip(choices, excess_sizes, strict=True)
    ]
    return {
        "target": target_coverage(alpha),
        "n": n,
        "width less best": Measured.of(excess_sizes),
        "risk": Measured.of(choice.risk for choice in choices),
        "risk > α": sum(choice.risk > alpha for choice in choices),
        "risk limit, paper": alpha + tuning_errors(n, "paper").risk_error,
        "risk limit, uniform": risk_limit,
        "bound, paper": tuning_bound(n, alpha, "paper", tightened=False),
        "bound, uniform": bound,
        "broken": sum(broken),
    }


def describe_choices(choices: Sequence[OracleRow], alpha: float, n: int) -> TableRow:
    """Make the row of the table for one level and one number n of tuning rows.

    `choices` has the structure that was chosen on each of many tuning sets of n rows. The regret is
    its width less that of the best structure. "Tightened" is the same for the proposition's rule,
    which exists for large n only. The last columns are bounds on the regret.
    """
    regrets = [choice.regret for choice in choices]
    is_best = [choice.chosen == best_floor(alpha) for choice in choices]

    tight_sizes = [choice.tight_size for choice in choices if choice.tight_size is not None]
    tight_risks = [choice.tight_risk for choice in choices if choice.tight_risk is not None]
    tight_regret: Measured | None = None
    n_above_alpha: int | None = None
    if tight_sizes:
        tight_regret = Measured.of(size - best_size(alpha) for size in tight_sizes)
        n_above_alpha = sum(risk > alpha for risk in tight_risks)

    return {
        "target": target_coverage(alpha),
        "n": n,
        "best chosen": float(np.mean(is_best)),
        "regret": Measured.of(regrets),
        "regret P95": float(np.quantile(regrets, 0.95)),
        "tightened": tight_regret,
        "risk > α": n_above_alpha,
        "bound, paper": tuning_bound(n, alpha, "paper"),
        "bound, uniform": tuning_bound(n, alpha, "uniform"),
        "bound, recalibrated": recalibration_bound(n, alpha),
    }


def tuning_errors(n: int, method: TuningMethod) -> TuningAccuracy:
    """Bound the errors of risk and size on n tuning rows, for all structures at once."""
    return tuning_accuracy(
        n, candidates=len(FLOORS), size_bound=SIZE_BOUND, delta=DELTA, method=method
    )


def tuning_bound(
    n: int, alpha: float, method: TuningMethod, *, tightened: bool = True
) -> float | None:
    """Bound the width that is chosen on n tuning rows, less the best width at alpha.

    With the errors ε_R and ε_S of `tuning_accuracy` the bound for the tightened rule, empirical
    risk <= alpha - ε_R, is

        best width at risk alpha - 2 ε_R, plus 2 ε_S, less the best width at risk alpha

    For Algorithm 1's rule, empirical risk <= alpha, it has ε_R in place of 2 ε_R. None where that
    risk is not positive: the bound says nothing then.
    """
    accuracy = tuning_errors(n, method)
    n_errors = 2 if tightened else 1
    coverage = 1 - alpha + n_errors * accuracy.risk_error
    if coverage >= HIGHEST_COVERAGE:
        return None
    return best_size(1 - coverage) + 2 * accuracy.size_error - best_size(alpha)


def recalibration_bound(n: int, alpha: float) -> float | None:
    """Bound the width of sets that are tuned on n rows and calibrated on n more, less the best one.

    The best width is that at exact coverage 1 - alpha. See `size_after_recalibration`; None where
    that bound says nothing.
    """
    bound = size_after_recalibration(
        n, n, alpha=alpha, candidates=len(FLOORS), size_bound=SIZE_BOUND, delta=DELTA
    )
    if bound.vacuous or bound.oracle_level >= HIGHEST_COVERAGE:
        return None
    return best_size(1 - bound.oracle_level) + bound.size_excess - best_size(alpha)


def make_figures(records: SplitRecords, options: Options) -> figures.Files:
    """Draw some columns of the table, regret and its bounds, against n, the number of tuning rows.

    `LINES` names the columns. Drawn are the rows at the first level; an empty cell has no point.
    """
    table = make_tables(records, options)[0]
    first_target = target_coverage(options.alphas[0])
    all_rows = [dict(zip(table.columns, cells, strict=True)) for cells in table.rows]
    rows = [row for row in all_rows if row["target"] == first_target]

    lines: dict[str, dict[int, float]] = {}
    for column in LINES:
        line: dict[int, float] = {}
        for row in rows:
            n = row["n"]
            cell = row[column]
            value = cell.mean if isinstance(cell, Measured) else cell
            if isinstance(n, int) and isinstance(value, float):
                line[n] = value
        if line:
            lines[column] = line
    return figures.tuning_regret(lines, name="tuning-oracle")


EXPERIMENTS = (
    Experiment(
        name="tuning-oracle",
        summary="Regret of the chosen structure against the number of tuning rows, beside the "
        "bounds.",
        needs="nothing",
        minutes=0.6,
        run_split=run_split,
        tables=make_tables,
        figures=make_figures,
        row_kinds=(OracleRow,),
        alphas=(0.2, 0.1),
        splits=100,
        quick_splits=20,
        protocol=2,
        findings=paper_findings.TUNING_ORACLE,
    ),
)
