"""Appendix C.2 to the letter: regression with one deviation of ours taken back at a time, and all.

Our tables search thresholds exactly, take interval ends by root finding, and sample by Gibbs steps.
The paper searches 80 quantiles of the tuning scores, takes the extreme accepted points of a
response grid (400 points on Diabetes, 300 elsewhere, from two standard deviations below the
smallest training target to two above the largest), and samples by NUTS with one chain of 600
warm-up steps. Splits, priors, scores and ranks are those of `regression` throughout.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

import dco
from dco import GaussianMixtures, Intervals, IntervalUnions, Splits
from dco.datasets import Table
from dco.foundations.arrays import Floats
from dco.paper.experiment import Experiment, Options, Records, Row, group_by, needs_file, rows_of
from dco.paper.methods import METHODS, Method, Task
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
from dco.paper.tables import Cells, Measured, ResultTable, standard_errors
from dco.paper.threshold_grid import GRID_DCO, THRESHOLDS
from dco.scores import Score

LEVELS = {"diabetes": (0.2,), "california": (0.2, 0.1, 0.05), "concrete": (0.2, 0.1, 0.05)}
RESPONSES = {"diabetes": 400, "california": 300, "concrete": 300}
QUICK_DRAWS = 400  # of NUTS
DCO = METHODS["dco_warmstart"]


@dataclass(frozen=True)
class Variant:
    """Which parts of the protocol are the paper's: the sampler, the thresholds, the ends."""

    name: str
    sampler: Literal["gibbs", "nuts"] = "gibbs"
    dco: Method = DCO
    has_response_grid: bool = False


OURS = Variant("ours")
VARIANTS = (
    OURS,
    Variant(f"{THRESHOLDS} thresholds", dco=GRID_DCO),
    Variant("response grid", has_response_grid=True),
    Variant("NUTS", sampler="nuts"),
    Variant("all three, as the paper", sampler="nuts", dco=GRID_DCO, has_response_grid=True),
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
    """Return from the first grid point in a set to the last one, for each row; (inf, -inf) where no
    grid point is in it.
    """
    first = np.searchsorted(grid, sets.lower, side="left")
    last = np.searchsorted(grid, sets.upper, side="right") - 1
    rows = np.repeat(np.arange(len(sets)), np.diff(sets.row_pointers))
    has_points = first <= last

    lower = np.full(len(sets), np.inf)
    upper = np.full(len(sets), -np.inf)
    np.minimum.at(lower, rows[has_points], grid[first[has_points]])
    np.maximum.at(upper, rows[has_points], grid[last[has_points]])
    return Intervals(lower, upper)


def response_grid(study: Study, y_train: Floats) -> Floats:
    """Return the paper's grid of responses."""
    margin = 2 * float(y_train.std())
    return np.linspace(
        float(y_train.min()) - margin, float(y_train.max()) + margin, RESPONSES[study.name]
    )


# ---- one split


def run_split(seed: int, options: Options) -> list[Row]:
    """Run BQ and DCO-Warmstart in every variant on one split of each data set."""
    rows: list[Row] = []
    for study in STUDIES.values():
        table = load_rows(study.name, options.data_home)
        splits = paper_split(len(table), seed)
        gibbs = fit_priors(table, splits, seed=seed, draws=study.draws).on_train
        nuts = fit_by_nuts(
            table, splits, seed=seed, draws=QUICK_DRAWS if options.quick else study.draws
        )
        split = StudySplit(study, table, splits, models={"gibbs": gibbs, "nuts": nuts})
        for alpha in LEVELS[study.name]:
            for variant in VARIANTS:
                rows += run_variant(split, variant, alpha)
    return rows


@dataclass(frozen=True, eq=False)
class StudySplit:
    """One split of a data set, and the models that were fitted on it by each sampler."""

    study: Study
    table: Table
    splits: Splits
    models: Mapping[str, Mapping[str, Any]]


def fit_by_nuts(table: Table, splits: Splits, *, seed: int, draws: int) -> dict[str, Any]:
    """Fit both prior scales as the paper says: one chain, 600 warm-up steps."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        (models,) = dco.bayes.SparseBayesianRegression.fit_many(
            [(table.X[splits.train], table.y[splits.train])],
            PRIOR_SCALES,
            draws=draws,
            chains=1,
            warmup=600,
            sampler="nuts",
            random_state=seed,
        )
    return name_by_prior(models)


def run_variant(split: StudySplit, variant: Variant, alpha: float) -> list[ProtocolRow]:
    """Run BQ and DCO-Warmstart in one variant at one level."""
    table = split.table
    splits = split.splits
    grid = response_grid(split.study, table.y[splits.train])
    score = OnResponseGrid(grid) if variant.has_response_grid else DENSITY
    models = split.models[variant.sampler]
    candidates = {
        name: score_on_split(
            score,
            lambda rows, model=model: model.predict_distribution(table.X[rows]),  # type: ignore[misc]
            table.y,
            splits,
        )
        for name, model in models.items()
    }
    task = Task(candidates, y_tune=table.y[splits.tune], fixed=WIDE_PRIOR, alpha=alpha)

    rows: list[ProtocolRow] = []
    for title, method in (("BQ", METHODS["bq"]), ("DCO-Warmstart", variant.dco)):
        choice = method(task)
        test = choice.deployed.test
        assert test is not None
        sets = test.score.sets(test.prediction, choice.threshold)
        rows.append(
            ProtocolRow(
                data=split.study.name,
                alpha=alpha,
                variant=variant.name,
                method=title,
                chosen=choice.candidate,
                threshold=choice.threshold.value,
                coverage=float(np.mean(sets.contains(table.y[splits.test]))),
                width=float(np.mean(sets.sizes()) / standard_deviation(table, splits)),
            )
        )
    return rows


# ---- the table


def make_tables(records: Records, options: Options) -> list[ResultTable]:
    """Show every printed mean of the regression tables beside each variant."""
    groups = group_by(
        rows_of(records, ProtocolRow),
        key=lambda row: (row.data, row.alpha, row.method, row.variant),
    )
    rows: list[Cells] = []
    for study in STUDIES.values():
        for alpha in LEVELS[study.name]:
            for method in ("BQ", "DCO-Warmstart"):
                ours = groups[study.name, alpha, method, OURS.name]
                for variant in VARIANTS:
                    same = groups[study.name, alpha, method, variant.name]
                    rows.append(describe_variant(study, same, ours))
    return [
        ResultTable.of(
            "The paper's protocol to the letter: regression",
            f"{len(records)} splits, mean ± sd. 'Ours': exact thresholds, exact interval ends, "
            "Gibbs steps. Each variant changes one thing, the last one all three: "
            f"{THRESHOLDS} quantiles of the tuning scores as thresholds; a response grid whose "
            "extreme accepted points are the ends (widths in tuning too); NUTS, one chain. 'Off': "
            "our mean less the paper's, in standard errors of the difference. 'Other winner': "
            "splits in which the prior scale differs from ours.",
            rows,
        )
    ]


def describe_variant(study: Study, rows: list[ProtocolRow], ours: list[ProtocolRow]) -> Cells:
    """Set one method in one variant beside the paper's row, and count other winners than ours."""
    first = rows[0]
    paper = study.printed[first.alpha, first.method]
    coverage = Measured.of(row.coverage for row in rows)
    width = Measured.of(row.width for row in rows)
    n_other = sum(row.chosen != other.chosen for row, other in zip(rows, ours, strict=True))
    return {
        "data": study.title,
        "target": 1 - first.alpha,
        "method": first.method,
        "variant": first.variant,
        "coverage": coverage,
        "paper coverage": paper.coverage,
        "off": standard_errors(coverage, paper.coverage, len(rows)),
        "width": width,
        "paper width": paper.size,
        "width off": standard_errors(width, paper.size, len(rows)),
        "other winner": None if first.method == "BQ" else n_other,
    }


EXPERIMENTS = (
    Experiment(
        name="protocol",
        summary="Regression with the paper's threshold grid, response grid and NUTS, one at a "
        "time and together.",
        needs="concrete.csv and california_housing.csv.gz",
        minutes=8.0,
        run_split=run_split,
        tables=make_tables,
        row_kinds=(ProtocolRow,),
        missing=needs_file("protocol", "california_housing.csv.gz"),
        alphas=(0.2,),
        quick_splits=2,
    ),
)
