"""Beyond the paper on its regression data: a stronger class, refit and a tuning split that grows,
at the same level.

Same splits, same levels, same statement (marginal coverage by split CP) as the paper's DCO. The
class and the structure called "fixed" were chosen on rows or seeds that no split here uses: for
California Housing on the 17,640 districts outside the subsample, for Concrete and Diabetes on
splits with seeds from 1000 on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from dco import Splits
from dco.datasets import Table
from dco.foundations.arrays import Integers
from dco.foundations.ranks import smallest_marginal_n
from dco.paper import figures
from dco.paper.beyond_regression_class import (
    CLASSES,
    Class,
    Fits,
    fit_class,
    refit_class,
    structures_of,
)
from dco.paper.coverage_z import bonferroni_point, law_of_mean, target
from dco.paper.experiment import Experiment, Options, Records, Row, group_by, needs_file, rows_of
from dco.paper.growing_split import SETTLED_REGRET, GrownSplit, grow_tuning_split
from dco.paper.methods import (
    DCO_FIXED,
    DCO_FIXED_REFIT,
    DCO_PAC_REFIT,
    DCO_REFIT,
    METHODS,
    OnRoles,
    ScoredRows,
    Task,
)
from dco.paper.paired import PercentChange, percent_change
from dco.paper.regression_splits import (
    STUDIES,
    WIDE_PRIOR,
    Deployment,
    Outcome,
    fit_priors,
    load_rows,
    measure,
    paper_split,
    score_density,
    score_on_split,
    standard_deviation,
)
from dco.paper.stability import bootstrap_stability
from dco.paper.tables import Cells, Measured, ResultTable

BASE = "DCO (paper's class)"
FIXED = "stronger class, fixed"
FIXED_REFIT = f"{FIXED}, refit"
SEARCHED = "stronger class, searched"
REFIT = f"{SEARCHED}, refit"
REFIT_PAC = f"{REFIT}, PAC"
GROWN = f"{REFIT}, auto tuning split"
DCO = METHODS["dco_warmstart"]
STRONGER_METHODS = {
    FIXED: DCO_FIXED,
    FIXED_REFIT: DCO_FIXED_REFIT,
    SEARCHED: DCO,
    REFIT: DCO_REFIT,
    REFIT_PAC: DCO_PAC_REFIT,
}
FIRST_LOOK = 20  # tuning rows at the first look of a split that grows
GROWTH = 1.5
WHOLE = 20  # a multiple of 1 / alpha at all levels of these tables


@dataclass(frozen=True)
class SizesRow(Row):
    """The sizes of the roles of one split."""

    sizes: dict[str, int]


@dataclass(frozen=True)
class BeyondOutcome(Outcome):
    """An outcome with its number of tuning rows, and why a split stopped growing: "settled" or
    "limit"; empty where it does not grow.
    """

    n_tune: int
    stopped: str


# ---- one split


def run_split(seed: int, options: Options, *, members: Class) -> list[Row]:
    """Run the paper's DCO and the stronger class on one split, with and without search, refit and a
    tuning part that grows.
    """
    table = load_rows(members.study, options.data_home)
    splits = paper_split(len(table), seed)
    unit = standard_deviation(table, splits)

    priors = fit_priors(table, splits, seed=seed, draws=STUDIES[members.study].draws).on_train
    linear = {name: score_density(model, table, splits) for name, model in priors.items()}
    stronger = StrongerClass(
        table, members, fit_class(table, splits.train, members=members, seed=seed)
    )

    rows: list[Row] = [SizesRow(sizes=splits.sizes)]
    for alpha in options.alphas:
        base = Task(linear, y_tune=table.y[splits.tune], fixed=WIDE_PRIOR, alpha=alpha)
        task = stronger.make_task(splits, alpha)
        deployments = [Deployment(BASE, DCO, DCO(base))]
        for title, method in STRONGER_METHODS.items():
            deployments.append(Deployment(title, method, method(task)))
        for outcome in measure(deployments, unit=unit):
            rows.append(BeyondOutcome(**outcome.cells(), n_tune=len(splits.tune), stopped=""))

        grown = stronger.grow_split(splits, alpha=alpha, seed=seed)
        grown_task = stronger.make_task(cut_after(splits, grown.n_tune), alpha)
        deployment = Deployment(GROWN, DCO_REFIT, DCO_REFIT(grown_task))
        (outcome,) = measure([deployment], unit=unit)
        stopped = "settled" if grown.has_settled else "limit"
        rows.append(BeyondOutcome(**outcome.cells(), n_tune=grown.n_tune, stopped=stopped))
    return rows


class StrongerClass:
    """The stronger class on the rows of one split; it is refitted once for each tuning part."""

    def __init__(self, table: Table, members: Class, fits: Fits) -> None:
        self.table = table
        self.members = members
        self.fits = fits
        self.structures = structures_of(members)
        self._refits: dict[int, Fits] = {}

    def make_task(self, splits: Splits, alpha: float) -> Task:
        """Show methods every structure of the class, with refit on training and tuning rows."""
        n_tune = len(splits.tune)
        if n_tune not in self._refits:  # tuning rows are the first ones of a fixed order
            self._refits[n_tune] = refit_class(self.fits, self.table, splits.tune)
        refits = self._refits[n_tune]
        return Task(
            candidates={
                name: self.score(self.fits, name, splits, alpha) for name in self.structures
            },
            y_tune=self.table.y[splits.tune],
            fixed=self.members.fixed,
            alpha=alpha,
            refit=cache(lambda name: self.score(refits, name, splits, alpha)),
        )

    def score(self, fits: Fits, name: str, splits: Splits, alpha: float) -> OnRoles:
        """Score a structure on the rows of each role."""
        score, predict = fits.predictor(self.structures[name], alpha=alpha)
        return score_on_split(score, predict, self.table.y, splits)

    def grow_split(self, splits: Splits, *, alpha: float, seed: int) -> GrownSplit:
        """Find how many rows tune: until selection has settled at this level.

        Rows are taken from tune, then from calibrate, in the order in which the split dealt them: a
        fixed random order. The verdict sees the targets of the rows taken and no others, so their
        number is a stopping time and coverage has the law of the calibration rows that are left.
        """
        order = np.concatenate([splits.tune, splits.calibrate])

        def has_settled(n_tune: int) -> bool:
            stability = bootstrap_stability(
                self.score_rows(order[:n_tune], alpha),
                alpha=alpha,
                rng=np.random.default_rng([seed, n_tune]),
            )
            return stability.relative_regret <= SETTLED_REGRET

        n_to_calibrate = max(reserve(len(splits.calibrate)), smallest_marginal_n(alpha=alpha))
        return grow_tuning_split(
            has_settled, start=FIRST_LOOK, largest=len(order) - n_to_calibrate, growth=GROWTH
        )

    def score_rows(self, rows: Integers, alpha: float) -> dict[str, ScoredRows]:
        """Score every structure on some rows."""
        scored: dict[str, ScoredRows] = {}
        for name, structure in self.structures.items():
            score, predict = self.fits.predictor(structure, alpha=alpha)
            scored[name] = ScoredRows.of(score, predict(rows), self.table.y[rows])
        return scored


def reserve(n_calibrate: int) -> int:
    """Return half of the calibration rows, or a few more so that (m + 1) (1 - alpha) is whole and
    no part of a rank is wasted.
    """
    return -(-(n_calibrate // 2 + 1) // WHOLE) * WHOLE - 1


def cut_after(splits: Splits, n_tune: int) -> Splits:
    """Cut tuning and calibration rows at another place."""
    order = np.concatenate([splits.tune, splits.calibrate])
    return Splits(
        train=splits.train,
        tune=order[:n_tune],
        calibrate=order[n_tune:],
        test=splits.test,
        seed=splits.seed,
    )


# ---- tables

ALL_BUT_GROWTH = "class, refit and search"
STEPS = (
    ("class", FIXED, BASE),
    ("refit", FIXED_REFIT, FIXED),
    ("search", REFIT, FIXED_REFIT),
    (ALL_BUT_GROWTH, REFIT, BASE),
    ("auto tuning split", GROWN, REFIT),
    ("all together", GROWN, BASE),
)


def make_tables(
    records: Records, options: Options, *, members: Class, title: str
) -> list[ResultTable]:
    """Make the tables of a data set."""
    return [
        outcome_table(records, options, members, title),
        gain_table(records, options, title),
        chosen_table(records, options, title),
        grown_split_table(records, options, title),
    ]


def outcomes_at(records: Records, alpha: float) -> dict[str, list[BeyondOutcome]]:
    """Return the outcomes of every row of the tables at one level."""
    outcomes = [row for row in rows_of(records, BeyondOutcome) if row.alpha == alpha]
    return group_by(outcomes, key=lambda row: row.method)


def outcome_table(records: Records, options: Options, members: Class, title: str) -> ResultTable:
    """Show coverage beside its law, and widths."""
    rows: list[Cells] = []
    for alpha in options.alphas:
        for method, outcomes in outcomes_at(records, alpha).items():
            law = law_of_mean(outcomes)
            rows.append(
                {
                    "target": target(alpha),
                    "method": method,
                    "guarantee": outcomes[0].guarantee,
                    "tuning rows": round(float(np.mean([row.n_tune for row in outcomes]))),
                    "coverage": Measured.of(row.coverage for row in outcomes),
                    "by law": law.expected,
                    "z": law.z,
                    "width": Measured.of(row.width for row in outcomes),
                    "P95": Measured.of(row.p95 for row in outcomes),
                }
            )
    return ResultTable.of(
        f"Beyond the paper: {title}",
        f"{len(records)} splits. Same rows, same level, same rule as the paper's DCO; only the "
        "candidate class, refit, search and the cut of tune + calibrate differ. The class and its "
        f"fixed structure ({members.fixed}) were chosen on {members.chosen_on}. Models: "
        f"{', '.join(members.models)}; and a quantile pair of boosted trees. Auto tuning split: "
        "tuning takes rows until selection has settled (expected regret at most 1 % of the width), "
        "or until about half of the paper's calibration rows are left; 'tuning rows' is the mean "
        "over splits. z against the Beta-binomial law of each split's own rank and calibration "
        f"rows: |z| below {bonferroni_point(len(rows)):.2f} in all {len(rows)} rows with "
        "probability 99 %. Widths in standard deviations of the split's training targets.",
        rows,
    )


def gain_table(records: Records, options: Options, title: str) -> ResultTable:
    """Show how much narrower each step makes the intervals."""
    rows: list[Cells] = [
        {
            "target": target(alpha),
            "step": step,
            "narrower %": gain.mean,
            "low %": gain.low,
            "high %": gain.high,
            "p": gain.p_value,
        }
        for alpha in options.alphas
        for step, gain in measure_gains(records, alpha).items()
    ]
    return ResultTable.of(
        f"Beyond the paper: {title}, the gain in steps",
        "How much narrower in % of the mean width of the paper's DCO, with paired Student 95 % "
        "intervals over these splits and Wilcoxon's p. Class: the fixed structure of the stronger "
        "class in place of the paper's DCO. Refit: the same structure refitted on train + tune. "
        "Search: the structure chosen on tuning rows in place of the fixed one. Auto tuning split: "
        "the same search and refit with a tuning part that grew until selection had settled.",
        rows,
        digits=2,
    )


def measure_gains(records: Records, alpha: float) -> dict[str, PercentChange]:
    """Measure each step in % of the mean width of the paper's DCO; positive is narrower."""
    widths = {
        method: [row.width for row in outcomes]
        for method, outcomes in outcomes_at(records, alpha).items()
    }
    base = float(np.mean(widths[BASE]))
    return {
        step: percent_change(widths[before], widths[after], base=base)
        for step, after, before in STEPS
    }


def chosen_table(records: Records, options: Options, title: str) -> ResultTable:
    """Show how often each structure was chosen."""
    rows: list[Cells] = []
    for alpha in options.alphas:
        outcomes = outcomes_at(records, alpha)
        fixed_split = Counter(row.chosen for row in outcomes[REFIT])
        grown_split = Counter(row.chosen for row in outcomes[GROWN])
        for name in sorted(fixed_split | grown_split, key=lambda name: -fixed_split[name]):
            rows.append(
                {
                    "target": target(alpha),
                    "structure": name,
                    "splits": fixed_split[name],
                    "auto split": grown_split[name],
                }
            )
    return ResultTable.of(
        f"Beyond the paper: {title}, structures chosen",
        "How often each structure had the smallest mean width on the tuning rows: the paper's, and "
        "those of the auto split.",
        rows,
    )


def grown_split_table(records: Records, options: Options, title: str) -> ResultTable:
    """Show how many rows the growing split tuned on, and in how many splits selection settled."""
    rows: list[Cells] = []
    for alpha in options.alphas:
        outcomes = outcomes_at(records, alpha)[GROWN]
        n_tune = [row.n_tune for row in outcomes]
        rows.append(
            {
                "target": target(alpha),
                "tuning rows": Measured.of(n_tune),
                "least": min(n_tune),
                "most": max(n_tune),
                "calibration rows": Measured.of(row.n for row in outcomes),
                "settled": sum(row.stopped == "settled" for row in outcomes),
                "of": len(outcomes),
            }
        )
    return ResultTable.of(
        f"Beyond the paper: {title}, the auto tuning split",
        "How many rows tuning took, how many calibration kept, and in how many splits selection "
        "settled before calibration needed all that was left.",
        rows,
    )


def make_figures(records: Records, options: Options) -> figures.Files:
    """Draw the gain in steps at each level."""
    bars: dict[str, dict[str, figures.Interval]] = {}
    for alpha in options.alphas:
        gains: dict[str, figures.Interval] = {}
        for step, gain in measure_gains(records, alpha).items():
            if gain.mean is None or gain.low is None or gain.high is None:
                return {}  # infinite intervals have no gain
            if step != ALL_BUT_GROWTH:
                gains[step] = figures.Interval(gain.mean, gain.low, gain.high)
        bars[f"{target(alpha):.2f}"] = gains
    return figures.size_reductions(bars, name="gain")


# ---- the catalogue's entries


def make_experiment(
    name: str,
    title: str,
    *,
    minutes: float,
    alphas: tuple[float, ...],
    file: str | None = None,
) -> Experiment:
    """Declare the experiment of one data set; Diabetes needs no file."""
    members = CLASSES[name]
    return Experiment(
        name=f"beyond-{name}",
        summary=f"{title}: a stronger class, refit and auto tuning split at the same guarantee, "
        f"against the paper's DCO.",
        needs=file or "nothing",
        minutes=minutes,
        run_split=partial(run_split, members=members),
        tables=partial(make_tables, members=members, title=title),
        figures=make_figures,
        row_kinds=(SizesRow, BeyondOutcome),
        missing=None if file is None else needs_file(f"beyond-{name}", file),
        alphas=alphas,
        quick_splits=3,
        part_of="beyond",
    )


EXPERIMENTS = (
    make_experiment("diabetes", "Diabetes", minutes=1.0, alphas=(0.2,)),
    make_experiment(
        "california",
        "California Housing",
        minutes=5.0,
        alphas=(0.2, 0.1, 0.05),
        file="california_housing.csv.gz",
    ),
    make_experiment(
        "concrete", "Concrete", minutes=2.5, alphas=(0.2, 0.1, 0.05), file="concrete.csv"
    ),
)
