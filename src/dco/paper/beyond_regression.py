"""Beyond the paper on its regression data: a stronger class, refit, and an auto tuning split.

Same splits, same levels, same statement (marginal coverage by split CP) as the paper's DCO. The
"stronger class" has nonlinear models where the paper's has linear ones. "Refit" fits the winner
again on training and tuning rows. The "auto tuning split" takes rows for tuning until selection has
settled.

The class and the structure called "fixed" were chosen for California Housing on the 17,640
districts outside the subsample, for Concrete and Diabetes on the same rows, in splits with seeds
from 1000 on. Over splits of the same table coverage still has its law, since roles are dealt at
random whatever was chosen on the whole table; but a gain is that of a class chosen where it is
measured.
`beyond_other_class` shows what is left of it with a class that was chosen on other data.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from dco import Splits
from dco.datasets import Table
from dco.foundations.arrays import Integers
from dco.foundations.ranks import smallest_marginal_n
from dco.paper import figures, paper_findings
from dco.paper.beyond_regression_class import (
    CLASSES,
    CandidateClass,
    FittedClass,
    fit_class,
    refit_class,
    structures_of,
)
from dco.paper.coverage_z import bonferroni_point, compare_with_theory, target_coverage
from dco.paper.experiment import (
    Experiment,
    Options,
    Row,
    SplitRecords,
    group_by,
    needs_file,
    rows_of,
)
from dco.paper.growing_split import SETTLED_REGRET, TuningSize, grow_tuning_split
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
from dco.paper.tables import Measured, ResultTable, TableRow, join_sentences

# Titles of the rows of the tables: the paper's DCO, and methods on the stronger class.
BASE = "DCO (paper's class)"
FIXED = "stronger class, fixed"
FIXED_REFIT = f"{FIXED}, refit"
SEARCHED = "stronger class, searched"
REFIT = f"{SEARCHED}, refit"
REFIT_PAC = f"{REFIT}, PAC"
AUTO_SPLIT = f"{REFIT}, auto tuning split"

DCO = METHODS["dco_warmstart"]
STRONGER_METHODS = {
    FIXED: DCO_FIXED,
    FIXED_REFIT: DCO_FIXED_REFIT,
    SEARCHED: DCO,
    REFIT: DCO_REFIT,
    REFIT_PAC: DCO_PAC_REFIT,
}

# The auto tuning split looks at 20 tuning rows first, and at half as many more each time.
FIRST_TUNING_ROWS = 20
TUNING_GROWTH = 1.5
RANK_STEP = 20  # a multiple of 1 / alpha at all levels of these tables
SETTLED = "settled"
LIMIT = "limit"


@dataclass(frozen=True)
class SizesRow(Row):
    """The sizes of the roles of one split."""

    sizes: dict[str, int]


@dataclass(frozen=True)
class BeyondOutcome(Outcome):
    """An outcome, with its number of tuning rows, and why no more rows tuned.

    `stopped` is "settled" or "limit" for the auto tuning split, and empty for the others.
    """

    n_tune: int
    stopped: str


# ---- one split


def run_split(seed: int, options: Options, *, candidate_class: CandidateClass) -> list[Row]:
    """Run the paper's DCO and the methods on the stronger candidates on one random split.

    The stronger candidates are nonlinear models; the paper's are linear. Each method chooses one
    candidate and a threshold; the rows say how its sets did on the test rows.
    """
    # 1. The paper's split and models.
    study = STUDIES[candidate_class.study]
    table = load_rows(study.name, options.data_home)
    splits = paper_split(len(table), seed)
    unit = standard_deviation(table, splits)
    priors = fit_priors(table, splits, seed=seed, draws=study.draws).on_train
    paper_candidates = {name: score_density(model, table, splits) for name, model in priors.items()}

    # 2. The stronger candidates on the same training rows.
    fitted = fit_class(table, splits.train, candidate_class=candidate_class, seed=seed)
    stronger = StrongerClass(table, candidate_class, fitted)

    # 3. At each level, all methods on the paper's roles, and the auto split on its own.
    rows: list[Row] = [SizesRow(sizes=splits.sizes)]
    for alpha in options.alphas:
        paper_task = Task(
            paper_candidates, y_tune=table.y[splits.tune], fixed=WIDE_PRIOR, alpha=alpha
        )
        rows += run_on_paper_roles(paper_task, stronger, splits, unit=unit)
        rows.append(run_auto_split(stronger, splits, alpha=alpha, seed=seed, unit=unit))
    return rows


def run_on_paper_roles(
    paper_task: Task, stronger: StrongerClass, splits: Splits, *, unit: float
) -> list[BeyondOutcome]:
    """Run all methods that tune and calibrate on the rows that the paper gives to these roles.

    First comes the paper's DCO, on its own candidates (`paper_task`), then the methods on the
    stronger candidates at the same level. Widths are divided by `unit`.
    """
    deployments = [Deployment(BASE, DCO, DCO(paper_task))]
    task = stronger.make_task(splits, float(paper_task.alpha))
    for title, method in STRONGER_METHODS.items():
        deployments.append(Deployment(title, method, method(task)))

    n_tune = len(splits.tune)
    return [
        add_tuning(outcome, n_tune=n_tune, stopped="")
        for outcome in measure(deployments, unit=unit)
    ]


def run_auto_split(
    stronger: StrongerClass, splits: Splits, *, alpha: float, seed: int, unit: float
) -> BeyondOutcome:
    """Run DCO with as many tuning rows as the choice among the stronger candidates needs.

    The rows that are left of tuning and calibration rows calibrate. Widths are divided by `unit`.
    """
    tuning = stronger.find_tuning_size(splits, alpha=alpha, seed=seed)
    task = stronger.make_task(move_cut(splits, tuning.n_tune), alpha)
    deployment = Deployment(AUTO_SPLIT, DCO_REFIT, DCO_REFIT(task))
    (outcome,) = measure([deployment], unit=unit)
    stopped = SETTLED if tuning.has_settled else LIMIT
    return add_tuning(outcome, n_tune=tuning.n_tune, stopped=stopped)


def add_tuning(outcome: Outcome, *, n_tune: int, stopped: str) -> BeyondOutcome:
    """Add to an outcome how many rows tuned, and why no more."""
    return BeyondOutcome(**outcome.cells(), n_tune=n_tune, stopped=stopped)


class StrongerClass:
    """The stronger class of a data set, fitted on the training rows of one split.

    It makes the tasks that methods get, and is fitted again where they ask for it.
    """

    def __init__(self, table: Table, candidate_class: CandidateClass, fitted: FittedClass) -> None:
        self.table = table
        self.candidate_class = candidate_class
        self.fitted = fitted
        self.structures = structures_of(candidate_class)
        self._fitted_with_tuning: dict[int, FittedClass] = {}  # by the number of tuning rows

    def make_task(self, splits: Splits, alpha: float) -> Task:
        """Make the task that methods solve at one level: to choose among the candidates.

        A candidate (a "structure": models with a score) is fitted on training rows and scored on
        the rows of each role. Methods that refit ask the task for a candidate that was fitted on
        training and tuning rows.
        """
        candidates = {
            name: self.score_structure(name, self.fitted, splits, alpha) for name in self.structures
        }
        fitted_with_tuning = self.fit_with_tuning(splits.tune)

        @cache  # several methods ask for the same candidate
        def refit(name: str) -> OnRoles:
            return self.score_structure(name, fitted_with_tuning, splits, alpha)

        return Task(
            candidates=candidates,
            y_tune=self.table.y[splits.tune],
            fixed=self.candidate_class.fixed,
            alpha=alpha,
            refit=refit,
        )

    def fit_with_tuning(self, tuning_rows: Integers) -> FittedClass:
        """Fit the class again, on training and tuning rows.

        Tuning rows are always the first ones of the same order, so that their number tells them:
        for each number the class is fitted once.
        """
        n_tune = len(tuning_rows)
        if n_tune not in self._fitted_with_tuning:
            self._fitted_with_tuning[n_tune] = refit_class(self.fitted, self.table, tuning_rows)
        return self._fitted_with_tuning[n_tune]

    def score_structure(
        self, name: str, fitted: FittedClass, splits: Splits, alpha: float
    ) -> OnRoles:
        """Score the rows of each role by one structure of a fit of the class."""
        score, predict = fitted.score_and_predictor(self.structures[name], alpha=alpha)
        return score_on_split(score, predict, self.table.y, splits)

    def find_tuning_size(self, splits: Splits, *, alpha: float, seed: int) -> TuningSize:
        """Find how many rows tune: as many as it takes until selection has settled at this level.

        Selection has settled where other tuning rows would hardly give smaller sets. Rows are taken
        in a fixed random order: tuning rows first, then calibration rows. Whether to take more is
        decided by the rows taken and no others, so that coverage is guaranteed by those left.
        """
        row_order = tuning_then_calibration(splits)

        def has_settled(n_tune: int) -> bool:
            return self.has_settled_on(row_order[:n_tune], alpha=alpha, seed=seed)

        n_reserved = calibration_reserve(len(splits.calibrate))
        n_for_finite_threshold = smallest_marginal_n(alpha=alpha)
        n_calibrate = max(n_reserved, n_for_finite_threshold)
        return grow_tuning_split(
            has_settled,
            start=FIRST_TUNING_ROWS,
            largest=len(row_order) - n_calibrate,
            growth=TUNING_GROWTH,
        )

    def has_settled_on(self, tuning_rows: Integers, *, alpha: float, seed: int) -> bool:
        """Say whether choosing on bootstrap samples of these rows costs next to nothing."""
        scored: dict[str, ScoredRows] = {}
        for name, structure in self.structures.items():
            score, predict = self.fitted.score_and_predictor(structure, alpha=alpha)
            scored[name] = ScoredRows.of(score, predict(tuning_rows), self.table.y[tuning_rows])

        rng = np.random.default_rng([seed, len(tuning_rows)])
        stability = bootstrap_stability(scored, alpha=alpha, rng=rng)
        return stability.relative_regret <= SETTLED_REGRET


def calibration_reserve(n_calibrate: int) -> int:
    """Return how many of the paper's calibration rows never tune: about half of them, m.

    It is rounded up so that m + 1 is a multiple of `RANK_STEP`: then (m + 1) (1 - alpha) is whole,
    and no part of a rank is wasted. 113 -> 59.
    """
    half = n_calibrate // 2
    return RANK_STEP * math.ceil((half + 1) / RANK_STEP) - 1


def tuning_then_calibration(splits: Splits) -> Integers:
    """Return the row numbers of the tuning part, followed by those of the calibration part."""
    return np.concatenate([splits.tune, splits.calibrate])


def move_cut(splits: Splits, n_tune: int) -> Splits:
    """Return the split in which the first `n_tune` of tuning and calibration rows tune."""
    order = tuning_then_calibration(splits)
    return Splits(
        train=splits.train,
        tune=order[:n_tune],
        calibrate=order[n_tune:],
        test=splits.test,
        seed=splits.seed,
    )


# ---- tables

# The gain of each step: its name, and the titles of the methods after and before it.
ALL_BUT_AUTO_SPLIT = "class, refit and search"
STEPS = (
    ("class", FIXED, BASE),
    ("refit", FIXED_REFIT, FIXED),
    ("search", REFIT, FIXED_REFIT),
    (ALL_BUT_AUTO_SPLIT, REFIT, BASE),
    ("auto tuning split", AUTO_SPLIT, REFIT),
    ("all together", AUTO_SPLIT, BASE),
)


def make_tables(
    records: SplitRecords, options: Options, *, candidate_class: CandidateClass, title: str
) -> list[ResultTable]:
    """Make the tables of a data set from the records of its splits."""
    return [
        outcome_table(records, options, candidate_class, title),
        gain_table(records, options, title, candidate_class),
        chosen_table(records, options, title),
        auto_split_table(records, options, title),
    ]


def outcomes_by_method(records: SplitRecords, alpha: float) -> dict[str, list[BeyondOutcome]]:
    """Return {title of a method: its outcomes} at one level, one for each split, by seed."""
    outcomes = [row for row in rows_of(records, BeyondOutcome) if row.alpha == alpha]
    return group_by(outcomes, key=lambda row: row.method)


def outcome_table(
    records: SplitRecords, options: Options, candidate_class: CandidateClass, title: str
) -> ResultTable:
    """Make the table of every method at every level: coverage beside what theory expects, widths.

    The methods are the paper's DCO and those on `candidate_class`, which has stronger models.
    `title` names the data set. The caption says how they were chosen and what the columns are.
    """
    rows: list[TableRow] = []
    for alpha in options.alphas:
        for method, outcomes in outcomes_by_method(records, alpha).items():
            rows.append(describe_method(method, outcomes, alpha))

    what_differs = (
        "Same rows, same level, same rule as the paper's DCO; only the candidate class, refit, "
        "search and the cut of tune + calibrate differ."
    )
    where_chosen = (
        f"The class and its fixed structure ({candidate_class.fixed}) were chosen on "
        f"{candidate_class.chosen_on}."
    )
    models = f"Models: {', '.join(candidate_class.models)}; and a quantile pair of boosted trees."
    auto_split = (
        "Auto tuning split: tuning takes rows until selection has settled (expected regret at most "
        "1 % of the width), or until about half of the paper's calibration rows are left; 'tuning "
        "rows' is the mean over splits."
    )
    largest_z = bonferroni_point(len(rows))
    z_column = (
        "z against the Beta-binomial law of each split's own rank and calibration rows: |z| below "
        f"{largest_z:.2f} in all {len(rows)} rows with probability 99 %."
    )
    caption = join_sentences(
        f"{len(records)} splits.",
        what_differs,
        where_chosen,
        explain_choice_on_own_rows(candidate_class),
        models,
        auto_split,
        z_column,
        "Widths in standard deviations of the split's training targets.",
    )
    return ResultTable.of(f"Beyond the paper: {title}", caption, rows)


def describe_method(method: str, outcomes: Sequence[BeyondOutcome], alpha: float) -> TableRow:
    """Make the row of one method at one level: its coverage beside theory, and its widths.

    `outcomes` has one outcome of the method for each split. In theory ("by law") the mean coverage
    is known; z says by how many standard errors ours is off.
    """
    theory = compare_with_theory(outcomes)
    mean_n_tune = float(np.mean([row.n_tune for row in outcomes]))
    return {
        "target": target_coverage(alpha),
        "method": method,
        "guarantee": outcomes[0].guarantee,
        "tuning rows": round(mean_n_tune),
        "coverage": Measured.of(row.coverage for row in outcomes),
        "by law": theory.expected,
        "z": theory.z,
        "width": Measured.of(row.width for row in outcomes),
        "P95": Measured.of(row.p95 for row in outcomes),
    }


def explain_choice_on_own_rows(candidate_class: CandidateClass) -> str:
    """Write the sentence of a caption on a class that was chosen on the rows of its tables."""
    if not candidate_class.is_chosen_on_its_rows:
        return ""
    return (
        "That is on the rows of this table: coverage over splits of it keeps its law all the same, "
        "but nothing is certified for a new row, and gains are those of a class chosen where they "
        "are measured (beyond-other-class has one that was not)."
    )


def gain_table(
    records: SplitRecords, options: Options, title: str, candidate_class: CandidateClass
) -> ResultTable:
    """Make the table of how much narrower intervals get by each step beyond the paper's DCO.

    The steps are stronger models, the refit, the search among them, and the automatic number of
    tuning rows. `title` names the data set.
    """
    rows: list[TableRow] = []
    for alpha in options.alphas:
        for step, gain in measure_gains(records, alpha).items():
            rows.append(
                {
                    "target": target_coverage(alpha),
                    "step": step,
                    "narrower %": gain.mean,
                    "low %": gain.low,
                    "high %": gain.high,
                    "p": gain.p_value,
                }
            )

    gain_column = (
        "How much narrower in % of the mean width of the paper's DCO, with paired Student 95 % "
        "intervals over these splits and Wilcoxon's p."
    )
    class_step = "Class: the fixed structure of the stronger class in place of the paper's DCO."
    refit_step = "Refit: the same structure refitted on train + tune."
    search_step = "Search: the structure chosen on tuning rows in place of the fixed one."
    auto_split_step = (
        "Auto tuning split: the same search and refit with a tuning part that grew until selection "
        "had settled."
    )
    where_chosen = ""
    if candidate_class.is_chosen_on_its_rows:
        where_chosen = f"The class was chosen on {candidate_class.chosen_on}."
    caption = join_sentences(
        gain_column,
        class_step,
        refit_step,
        search_step,
        auto_split_step,
        where_chosen,
        explain_choice_on_own_rows(candidate_class),
    )
    return ResultTable.of(f"Beyond the paper: {title}, the gain in steps", caption, rows, digits=2)


def measure_gains(records: SplitRecords, alpha: float) -> dict[str, PercentChange]:
    """Measure how much narrower the intervals get by each step, in % of the paper's DCO.

    `STEPS` says which two methods are compared: the one with the step, and the one without it. A
    gain is positive where intervals get narrower.
    """
    widths = {
        method: [row.width for row in outcomes]
        for method, outcomes in outcomes_by_method(records, alpha).items()
    }
    width_of_paper = float(np.mean(widths[BASE]))

    gains: dict[str, PercentChange] = {}
    for step, method_with, method_without in STEPS:
        # The change from the method with the step back to the one without is the gain.
        gains[step] = percent_change(
            widths[method_without], widths[method_with], base=width_of_paper
        )
    return gains


def chosen_table(records: SplitRecords, options: Options, title: str) -> ResultTable:
    """Make the table of how many splits chose each structure, the most frequent first.

    A structure is a combination of models with a score. The choice is made on the paper's tuning
    rows, and once more by the auto split, which takes as many tuning rows as it needs. `title`
    names the data set.
    """
    rows: list[TableRow] = []
    for alpha in options.alphas:
        outcomes = outcomes_by_method(records, alpha)
        counts = Counter(row.chosen for row in outcomes[REFIT])
        auto_counts = Counter(row.chosen for row in outcomes[AUTO_SPLIT])
        chosen_by_either = counts | auto_counts
        for structure in sorted(chosen_by_either, key=lambda structure: -counts[structure]):
            rows.append(
                {
                    "target": target_coverage(alpha),
                    "structure": structure,
                    "splits": counts[structure],
                    "auto split": auto_counts[structure],
                }
            )
    caption = (
        "How often each structure had the smallest mean width on the tuning rows: the paper's, and "
        "those of the auto split."
    )
    return ResultTable.of(f"Beyond the paper: {title}, structures chosen", caption, rows)


def auto_split_table(records: SplitRecords, options: Options, title: str) -> ResultTable:
    """Make the table of how many rows the auto split tuned on: mean, smallest and largest number.

    The auto split takes tuning rows until selection has settled: until other rows would hardly
    change the size of the sets. It also stops where calibration needs all the rows that are left;
    the table counts the splits in which selection settled before. `title` names the data set.
    """
    rows: list[TableRow] = []
    for alpha in options.alphas:
        outcomes = outcomes_by_method(records, alpha)[AUTO_SPLIT]
        n_tune = [row.n_tune for row in outcomes]
        n_settled = sum(row.stopped == SETTLED for row in outcomes)
        rows.append(
            {
                "target": target_coverage(alpha),
                "tuning rows": Measured.of(n_tune),
                "least": min(n_tune),
                "most": max(n_tune),
                "calibration rows": Measured.of(row.n for row in outcomes),
                "settled": n_settled,
                "of": len(outcomes),
            }
        )
    caption = (
        "How many rows tuning took, how many calibration kept, and in how many splits selection "
        "settled before calibration needed all that was left."
    )
    return ResultTable.of(f"Beyond the paper: {title}, the auto tuning split", caption, rows)


# ---- the figure


def make_figures(records: SplitRecords, options: Options) -> figures.Files:
    """Draw how much narrower each step beyond the paper's DCO makes the intervals, at each level.

    There is no figure where a width is infinite, because a gain is then not a number.
    """
    bars: dict[str, dict[str, figures.Interval]] = {}
    for alpha in options.alphas:
        gains: dict[str, figures.Interval] = {}
        for step, gain in measure_gains(records, alpha).items():
            if gain.mean is None or gain.low is None or gain.high is None:
                return {}
            if step != ALL_BUT_AUTO_SPLIT:
                gains[step] = figures.Interval(gain.mean, gain.low, gain.high)
        bars[f"{target_coverage(alpha):.2f}"] = gains
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
    """Declare the experiment beyond the paper on one data set.

    `name` is that of the data set in `CLASSES`, `title` its name in tables. `minutes` is the time
    of a run, `alphas` are its levels, and `file` is the file of the data, if they need one.
    """
    candidate_class = CLASSES[name]
    summary = (
        f"{title}: a stronger class, refit and auto tuning split at the same guarantee, against "
        f"the paper's DCO."
    )
    return Experiment(
        name=f"beyond-{name}",
        summary=summary,
        needs=file or "nothing",
        minutes=minutes,
        run_split=partial(run_split, candidate_class=candidate_class),
        tables=partial(make_tables, candidate_class=candidate_class, title=title),
        figures=make_figures,
        row_kinds=(SizesRow, BeyondOutcome),
        missing=None if file is None else needs_file(f"beyond-{name}", file),
        alphas=alphas,
        quick_splits=3,
        part_of="beyond",
        findings=paper_findings.beyond(
            title=f"Beyond the paper: {title}", module="dco.paper.beyond_regression"
        ),
    )


EXPERIMENTS = (
    make_experiment("diabetes", "Diabetes", minutes=4.0, alphas=(0.2,)),
    make_experiment(
        "california",
        "California Housing",
        minutes=14.8,
        alphas=(0.2, 0.1, 0.05),
        file="california_housing.csv.gz",
    ),
    make_experiment(
        "concrete", "Concrete", minutes=2.4, alphas=(0.2, 0.1, 0.05), file="concrete.csv"
    ),
)
