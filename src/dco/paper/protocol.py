"""Appendix C.2 to the letter: where our regression differs from the paper's protocol, and if it
matters.

Our tables search thresholds exactly, take interval ends by root finding, and sample by Gibbs steps.
The paper takes the extreme accepted points of a response grid (400 points on Diabetes, 300
elsewhere, from two standard deviations below the smallest training target to two above the
largest), and samples by NUTS, on California Housing and Concrete with one chain of 600 warm-up
steps; of Diabetes it does not say how many. How many thresholds it tries it says for
classification only: 80 quantiles of the tuning scores. Each variant here takes one of these three,
on all three data sets, and the last one takes all. Splits,
priors, scores and ranks are those of `regression` throughout.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

import dco
from dco import GaussianMixtures, Intervals, IntervalUnions, Splits
from dco.datasets import Table
from dco.foundations.arrays import Floats, Integers
from dco.paper import paper_findings
from dco.paper.experiment import (
    Experiment,
    Options,
    Row,
    SplitRecords,
    group_by,
    needs_file,
    rows_of,
)
from dco.paper.methods import METHODS, Choice, Method, OnRoles, Task
from dco.paper.regression_splits import (
    DENSITY,
    PRIOR_SCALES,
    STUDIES,
    WIDE_PRIOR,
    Study,
    fit_priors,
    load_rows,
    name_by_prior,
    paper_split,
    score_on_split,
    standard_deviation,
)
from dco.paper.tables import (
    Measured,
    ResultTable,
    TableRow,
    difference_in_standard_errors,
    join_sentences,
)
from dco.paper.threshold_grid import GRID_DCO, THRESHOLDS
from dco.scores import Score

LEVELS = {"diabetes": (0.2,), "california": (0.2, 0.1, 0.05), "concrete": (0.2, 0.1, 0.05)}
RESPONSE_GRID_POINTS = {"diabetes": 400, "california": 300, "concrete": 300}
QUICK_DRAWS = 400  # of NUTS
NUTS_WARMUP = 600
DCO = METHODS["dco_warmstart"]


@dataclass(frozen=True)
class Variant:
    """Which parts of the protocol are the paper's: the sampler, the thresholds, the ends.

    `dco` is DCO-Warmstart with exact thresholds or with the paper's grid of them. On a response
    grid the ends of an interval are grid points; without one they are computed exactly.
    """

    name: str
    sampler: Literal["gibbs", "nuts"] = "gibbs"
    dco: Method = DCO
    has_response_grid: bool = False


OURS = Variant("ours")
RESPONSE_GRID = Variant("response grid", has_response_grid=True)
VARIANTS = (
    OURS,
    Variant(f"{THRESHOLDS} thresholds", dco=GRID_DCO),
    RESPONSE_GRID,
    Variant("NUTS", sampler="nuts"),
    Variant("all three", sampler="nuts", dco=GRID_DCO, has_response_grid=True),
)


@dataclass(frozen=True)
class ProtocolRow(Row):
    """What BQ or DCO-Warmstart did on one split of one data set in one variant."""

    data: str
    alpha: float
    variant: str
    method: str
    chosen: str
    threshold: float
    coverage: float
    width: float


# ---- ends on a response grid


@dataclass(frozen=True, eq=False)
class OnResponseGrid(Score):
    """The paper's density score with sets from the first to the last accepted point of a grid."""

    grid: Floats
    needs: ClassVar[tuple[type, ...]] = (GaussianMixtures,)

    def observed(self, prediction: GaussianMixtures, y: ArrayLike) -> Floats:
        """Score the true values as without a grid."""
        return DENSITY.observed(prediction, y)

    def sets(self, prediction: GaussianMixtures, threshold: Any) -> Intervals:
        """Make the interval between the extreme accepted points of each row."""
        return extreme_grid_points(DENSITY.sets(prediction, threshold), self.grid)


def extreme_grid_points(sets: IntervalUnions, grid: Floats) -> Intervals:
    """Return for each set the interval from the first grid point in it to the last one.

    A set is a union of intervals. With the grid 0, 1, 2, 3, 4 the set [0.5, 1.5] ∪ [2.5, 3.5]
    becomes [1, 3]. A set without any grid point becomes the empty interval (inf, -inf).

    `sets` holds the intervals of all sets one after the other, in `lower` and `upper`; those of
    set i begin at position row_pointers[i].
    """
    # 1. The positions of the first and of the last grid point in each interval.
    first_position = np.searchsorted(grid, sets.lower, side="left")
    last_position = np.searchsorted(grid, sets.upper, side="right") - 1

    # 2. Leave out intervals that lie between two neighbouring grid points.
    n_intervals = np.diff(sets.row_pointers)  # of each set
    set_of_interval = np.repeat(np.arange(len(sets)), n_intervals)
    has_points = first_position <= last_position
    set_numbers = set_of_interval[has_points]
    first_points = grid[first_position[has_points]]
    last_points = grid[last_position[has_points]]

    # 3. For each set the smallest and the largest of its points. `minimum.at` lowers lower[i] once
    #    for every interval of set i.
    lower = np.full(len(sets), np.inf)
    upper = np.full(len(sets), -np.inf)
    np.minimum.at(lower, set_numbers, first_points)
    np.maximum.at(upper, set_numbers, last_points)
    return Intervals(lower, upper)


def response_grid(study: Study, y_train: Floats) -> Floats:
    """Return the paper's grid of responses: evenly spaced points around the training targets.

    It goes from two standard deviations below the smallest target to two above the largest.
    """
    margin = 2 * float(y_train.std())
    lowest = float(y_train.min()) - margin
    highest = float(y_train.max()) + margin
    return np.linspace(lowest, highest, RESPONSE_GRID_POINTS[study.name])


# ---- one split


def run_split(seed: int, options: Options) -> list[Row]:
    """Run BQ and DCO-Warmstart in every variant of the protocol on one split of each data set.

    A variant does some parts as the paper does and the others as our tables do. One part is the
    sampler of the Bayesian models: both samplers fit them once, for all variants and levels.
    """
    rows: list[Row] = []
    for study in STUDIES.values():
        table = load_rows(study.name, options.data_home)
        splits = paper_split(len(table), seed)

        nuts_draws = QUICK_DRAWS if options.quick else study.draws
        models = {
            "gibbs": fit_priors(table, splits, seed=seed, draws=study.draws).on_train,
            "nuts": fit_by_nuts(table, splits, seed=seed, draws=nuts_draws),
        }
        split = StudySplit(study, table, splits, models)
        for alpha in LEVELS[study.name]:
            for variant in VARIANTS:
                rows += run_variant(split, variant, alpha)
    return rows


@dataclass(frozen=True, eq=False)
class StudySplit:
    """One split of a data set, and the models fitted on its training rows.

    `models` are by sampler ("gibbs" or "nuts"), then by prior scale: the candidates of a method.
    """

    study: Study
    table: Table
    splits: Splits
    models: Mapping[str, Mapping[str, Any]]

    def score_candidates(self, sampler: str, score: Score) -> dict[str, OnRoles]:
        """Score the models of one sampler on the rows of each role, by prior scale."""
        candidates: dict[str, OnRoles] = {}
        for name, model in self.models[sampler].items():
            predict = partial(predict_rows, model, self.table)
            candidates[name] = score_on_split(score, predict, self.table.y, self.splits)
        return candidates


def predict_rows(model: Any, table: Table, rows: Integers) -> Any:
    """Predict the distribution of the target on rows of the table, given by their numbers."""
    return model.predict_distribution(table.X[rows])


def fit_by_nuts(table: Table, splits: Splits, *, seed: int, draws: int) -> dict[str, Any]:
    """Fit the paper's model on the training rows, at both prior scales, by the sampler NUTS.

    There is one chain of 600 warm-up steps, as the paper says for California Housing and Concrete.
    Returned is {name of the prior scale: model}: "c = 1", ....
    """
    from sklearn.exceptions import ConvergenceWarning

    train = (table.X[splits.train], table.y[splits.train])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # one short chain is the paper's
        (models,) = dco.bayes.SparseBayesianRegression.fit_many(
            [train],
            PRIOR_SCALES,
            draws=draws,
            chains=1,
            warmup=NUTS_WARMUP,
            sampler="nuts",
            random_state=seed,
        )
    return name_by_prior(models)


def run_variant(split: StudySplit, variant: Variant, alpha: float) -> list[ProtocolRow]:
    """Run BQ (the baseline) and DCO-Warmstart in one variant of the protocol at one level.

    A variant says which parts are done as in the paper: the sampler of the models, the search for
    thresholds, and the ends of intervals, which the paper takes from a grid of responses.
    """
    score: Score = DENSITY
    if variant.has_response_grid:
        y_train = split.table.y[split.splits.train]
        score = OnResponseGrid(response_grid(split.study, y_train))
    task = Task(
        split.score_candidates(variant.sampler, score),
        y_tune=split.table.y[split.splits.tune],
        fixed=WIDE_PRIOR,
        alpha=alpha,
    )

    rows: list[ProtocolRow] = []
    for title, method in (("BQ", METHODS["bq"]), ("DCO-Warmstart", variant.dco)):
        choice = method(task)
        rows.append(measure_choice(split, choice, alpha=alpha, variant=variant, method=title))
    return rows


def measure_choice(
    split: StudySplit, choice: Choice, *, alpha: float, variant: Variant, method: str
) -> ProtocolRow:
    """Record what a method chose, and its coverage and mean width on the test rows.

    Widths are in standard deviations of the training targets.
    """
    test_rows = choice.deployed.test
    assert test_rows is not None
    sets = test_rows.score.sets(test_rows.prediction, choice.threshold)
    y_test = split.table.y[split.splits.test]
    width_unit = standard_deviation(split.table, split.splits)
    return ProtocolRow(
        data=split.study.name,
        alpha=alpha,
        variant=variant.name,
        method=method,
        chosen=choice.candidate,
        threshold=choice.threshold.value,
        coverage=float(np.mean(sets.contains(y_test))),
        width=float(np.mean(sets.sizes()) / width_unit),
    )


# ---- the table


def make_tables(records: SplitRecords, options: Options) -> list[ResultTable]:
    """Make one table of BQ and DCO-Warmstart in every variant, beside the paper's results.

    A variant does some parts of the protocol as the paper does, and "ours" none. There is a row for
    each data set, level, method and variant. Each of `records` has the outcomes of one split.
    """
    outcomes_of = group_by(
        rows_of(records, ProtocolRow),
        key=lambda row: (row.data, row.alpha, row.method, row.variant),
    )
    rows: list[TableRow] = []
    for study in STUDIES.values():
        for alpha in LEVELS[study.name]:
            for method in ("BQ", "DCO-Warmstart"):
                our_outcomes = outcomes_of[study.name, alpha, method, OURS.name]
                for variant in VARIANTS:
                    outcomes = outcomes_of[study.name, alpha, method, variant.name]
                    rows.append(describe_variant(study, outcomes, our_outcomes))

    variants = (
        "'Ours': exact thresholds, exact interval ends, Gibbs steps. Each variant changes one "
        f"thing, the last one all three: {THRESHOLDS} quantiles of the tuning scores as thresholds "
        "(stated by the paper for classification only); a response grid whose extreme accepted "
        "points are the ends (widths in tuning too); NUTS, one chain of 600 warm-up steps (not "
        "stated for Diabetes)."
    )
    off_columns = (
        "'Off': our mean less the paper's, in standard errors of the difference; of widths on "
        "California Housing they include that the paper's subsample of rows is another one."
    )
    other_winner_column = "'Other winner': splits in which the prior scale differs from ours."
    caption = join_sentences(
        f"{len(records)} splits, mean ± sd.", variants, off_columns, other_winner_column
    )
    return [ResultTable.of("The paper's protocol to the letter: regression", caption, rows)]


def describe_variant(
    study: Study, outcomes: list[ProtocolRow], our_outcomes: list[ProtocolRow]
) -> TableRow:
    """Make the row of one method in one variant of the protocol, beside the paper's results.

    A variant does some parts as the paper does. `outcomes` has one outcome for each split;
    `our_outcomes` are those of the same method and splits without any part of the paper's. The last
    column counts the splits in which the two chose another candidate. BQ chooses none.
    """
    first = outcomes[0]
    n_splits = len(outcomes)
    coverage = Measured.of(outcome.coverage for outcome in outcomes)
    width = Measured.of(outcome.width for outcome in outcomes)
    paper = study.paper_results[first.alpha, first.method]

    sd_over_subsamples = study.width_sd_over_subsamples.get((first.alpha, first.method), 0.0)

    n_other_winner: int | None = None
    if first.method != "BQ":
        pairs = zip(outcomes, our_outcomes, strict=True)
        n_other_winner = sum(outcome.chosen != ours.chosen for outcome, ours in pairs)

    return {
        "data": study.title,
        "target": 1 - first.alpha,
        "method": first.method,
        "variant": first.variant,
        "coverage": coverage,
        "paper coverage": paper.coverage,
        "off": difference_in_standard_errors(coverage, paper.coverage, n_splits),
        "width": width,
        "paper width": paper.size,
        "width off": difference_in_standard_errors(
            width, paper.size, n_splits, sd_over_subsamples=sd_over_subsamples
        ),
        "other winner": n_other_winner,
    }


EXPERIMENTS = (
    Experiment(
        name="protocol",
        summary="Regression with the paper's threshold grid, response grid and NUTS, one at a "
        "time and together.",
        needs="concrete.csv and california_housing.csv.gz",
        minutes=8.7,
        run_split=run_split,
        tables=make_tables,
        row_kinds=(ProtocolRow,),
        missing=needs_file("protocol", "california_housing.csv.gz"),
        alphas=(0.2,),
        quick_splits=2,
        findings=paper_findings.PROTOCOL,
    ),
)
