"""Section 5.1 and Appendix C.2: one split of Diabetes, California Housing or Concrete.

Protocol: 15 % of rows for test (rounded up), of the others 30 % tune, 30 % calibrate, the rest
train; inputs and targets standardised on the training rows; a sparse Bayesian linear model with
noise prior HalfNormal(c), c in {1, 0.02}; score -log posterior predictive density. BQ takes c = 1
and calibrates on tune + calibrate. Widths are in standard deviations of the split's training
targets, also for models refitted on more rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

import dco
from dco import Points, Splits
from dco.datasets import Table, load_california_housing, load_concrete, load_diabetes
from dco.foundations.arrays import Floats, Integers
from dco.foundations.ranks import size_quantile
from dco.paper import paper_values
from dco.paper.experiment import Options, Row, group_by
from dco.paper.methods import (
    DCO_FIXED,
    METHODS,
    TABLE_ROWS,
    Choice,
    Method,
    OnRoles,
    ScoredRows,
    Task,
)
from dco.paper.paper_values import Printed
from dco.scores import AbsoluteResidual, PredictiveDensity, QuantileResidual, Score

SUBSAMPLE = 3000  # rows of California Housing, one fixed draw (the paper's rows fit one subsample)
PRIOR_SCALES = (1.0, 0.02)
WIDE_PRIOR = "c = 1"  # the structure of BQ, and of methods that search nothing
DENSITY = PredictiveDensity()


@dataclass(frozen=True)
class Study:
    """What differs between the three data sets.

    `printed` is what the paper prints, by level and method. Only Diabetes has the baselines that
    are no Bayesian models: ridge regression and CQR.
    """

    name: str
    title: str
    draws: int
    has_baselines: bool
    printed: Mapping[tuple[float, str], Printed]


STUDIES = {
    "diabetes": Study(
        name="diabetes",
        title="Diabetes",
        draws=8000,
        has_baselines=True,
        printed={(0.2, method): row for method, row in paper_values.DIABETES.items()},
    ),
    "california": Study(
        name="california",
        title="California Housing",
        draws=3000,
        has_baselines=False,
        printed=paper_values.CALIFORNIA,
    ),
    "concrete": Study(
        name="concrete",
        title="Concrete",
        draws=3000,
        has_baselines=False,
        printed=paper_values.CONCRETE,
    ),
}


# ---- rows of a record


@dataclass(frozen=True)
class SplitFacts(Row):
    """The sizes of the roles; over all fits the fewest effective draws and the largest R-hat."""

    sizes: dict[str, int]
    ess: float
    rhat: float


@dataclass(frozen=True)
class TuningOutcome(Row):
    """The candidates at their own best thresholds on the tuning rows, in order of the ranking."""

    alpha: float
    candidates: list[str]
    tuning_thresholds: list[float]
    miscoverages: list[float]
    tuning_sizes: list[float]
    feasible: list[bool]  # whether the threshold has an empirical risk of at most alpha


@dataclass(frozen=True)
class Outcome(Row):
    """What a method deployed, and what its sets did on the test rows."""

    method: str
    alpha: float
    guarantee: str
    chosen: str
    threshold: float
    rank: int
    n: int
    law: bool  # whether coverage has the Beta-binomial law of the rank among n scores
    n_test: int
    coverage: float
    width: float
    p95: float


# ---- data and splits


@lru_cache(maxsize=4)
def load_rows(name: str, data_home: str | None) -> Table:
    """Load the rows of a study; of California Housing the fixed subsample."""
    if name == "diabetes":
        return load_diabetes()
    if name == "concrete":
        return load_concrete(data_home)
    full = load_california_housing(data_home)
    rows = california_order(len(full))[:SUBSAMPLE]
    return Table(full.X[rows], full.y[rows], full.feature_names, full.name)


def california_order(n: int) -> Integers:
    """Put all districts into a fixed random order: the first 3,000 are the subsample."""
    return np.random.default_rng(3000).permutation(n)


def paper_split(n: int, seed: int) -> Splits:
    """Deal n rows: 15 % test rounded up; of the rest 30 % tune, 60 % tune and calibrate together,
    both rounded down; the others train.
    """
    n_test = -(-15 * n // 100)
    n_rest = n - n_test
    n_tune = 3 * n_rest // 10
    n_calibrate = 6 * n_rest // 10 - n_tune
    return dco.assign_roles(n, tune=n_tune, calibrate=n_calibrate, test=n_test, random_state=seed)


def standard_deviation(table: Table, splits: Splits) -> float:
    """Return the standard deviation of the training targets, the unit of widths."""
    return float(table.y[splits.train].std())


# ---- the paper's models


@dataclass(frozen=True, eq=False)
class PriorFits:
    """The model at both prior scales, fitted on training rows, and on training and tuning rows."""

    on_train: dict[str, Any]
    on_train_and_tune: dict[str, Any]

    def all(self) -> list[Any]:
        """Return every fit."""
        return [*self.on_train.values(), *self.on_train_and_tune.values()]


def fit_priors(table: Table, splits: Splits, *, seed: int, draws: int) -> PriorFits:
    """Fit the model at both prior scales on both sets of rows, all sampled side by side.

    Gibbs steps forget their start within a few steps, so 100 of them are a long warm-up.
    """
    from sklearn.exceptions import ConvergenceWarning

    row_sets = [splits.train, np.concatenate([splits.train, splits.tune])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        first, again = dco.bayes.SparseBayesianRegression.fit_many(
            [(table.X[rows], table.y[rows]) for rows in row_sets],
            PRIOR_SCALES,
            draws=draws,
            chains=16,
            warmup=100,
            random_state=seed,
        )
    return PriorFits(on_train=by_prior(first), on_train_and_tune=by_prior(again))


def by_prior(models: Sequence[Any]) -> dict[str, Any]:
    """Name models by their prior scale."""
    return {f"c = {scale:g}": model for scale, model in zip(PRIOR_SCALES, models, strict=True)}


def score_on_split(
    score: Score, predict: Callable[[Integers], Any], y: Floats, splits: Splits
) -> OnRoles:
    """Score a candidate on the rows of each role; `predict` takes row numbers.

    Sizes need no true values: those of the pool are measured on the tuning rows, where other
    methods need them too.
    """
    tune, calibrate, test = (
        ScoredRows.of(score, predict(rows), y[rows])
        for rows in (splits.tune, splits.calibrate, splits.test)
    )
    pool = replace(tune, scores=np.concatenate([tune.scores, calibrate.scores]))
    return OnRoles(tune=tune, calibrate=calibrate, pool=pool, test=test)


def score_density(model: Any, table: Table, splits: Splits) -> OnRoles:
    """Score a fit of the paper's model with the paper's score."""
    return score_on_split(
        DENSITY, lambda rows: model.predict_distribution(table.X[rows]), table.y, splits
    )


# ---- one split


def run_split(seed: int, options: Options, *, study: Study) -> list[Row]:
    """Run all methods on one split at every level."""
    table = load_rows(study.name, options.data_home)
    splits = paper_split(len(table), seed)
    unit = standard_deviation(table, splits)

    fits = fit_priors(table, splits, seed=seed, draws=study.draws)
    candidates = {
        name: score_density(model, table, splits) for name, model in fits.on_train.items()
    }

    @cache
    def refit(name: str) -> OnRoles:
        return score_density(fits.on_train_and_tune[name], table, splits)

    rows: list[Row] = [
        SplitFacts(
            sizes=splits.sizes,
            ess=min(model.ess_ for model in fits.all()),
            rhat=max(model.rhat_ for model in fits.all()),
        )
    ]
    for alpha in options.alphas:
        task = Task(
            candidates,
            y_tune=table.y[splits.tune],
            fixed=WIDE_PRIOR,
            alpha=alpha,
            refit=refit,
        )
        rows.append(describe_tuning(task))
        rows += measure(run_density_methods(task), unit=unit)
        if study.has_baselines:
            rows += measure(run_baselines(table, splits, alpha=alpha, seed=seed), unit=unit)
    return rows


@dataclass(frozen=True, eq=False)
class Deployment:
    """A row of the tables: its title, its method, and what the method chose."""

    title: str
    method: Method
    choice: Choice


def run_density_methods(task: Task) -> list[Deployment]:
    """Run every method that uses the predictive density, from the same fits."""
    deployments: list[Deployment] = []
    for title, method in TABLE_ROWS.items():
        if method is DCO_FIXED:
            for name in task.candidates:
                choice = method(replace(task, fixed=name))
                deployments.append(Deployment(f"{title} ({name})", method, choice))
        else:
            deployments.append(Deployment(title, method, method(task)))
    return deployments


def run_baselines(table: Table, splits: Splits, *, alpha: float, seed: int) -> list[Deployment]:
    """Run split CP on a ridge regression and CQR with two kinds of boosting, calibrated on the
    calibration rows alone.
    """
    from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X = table.X[splits.train]
    y = table.y[splits.train]

    ridge = make_pipeline(StandardScaler(), Ridge()).fit(X, y)
    on_roles = score_on_split(
        AbsoluteResidual(), lambda rows: Points(ridge.predict(table.X[rows])), table.y, splits
    )
    deployments = [
        calibrate_alone("Split CP (ridge)", METHODS["split_cp"], on_roles, table, splits, alpha)
    ]

    boosting = {
        "gradient boosting": GradientBoostingRegressor(
            n_estimators=200, max_depth=3, random_state=seed
        ),
        "histogram boosting": HistGradientBoostingRegressor(
            max_iter=200, max_depth=3, random_state=seed
        ),
    }
    for name, model in boosting.items():
        pair = dco.models.QuantilePair(model, alpha=alpha).fit(X, y)
        on_roles = score_on_split(
            QuantileResidual(),
            lambda rows, pair=pair: pair.predict_distribution(table.X[rows]),  # type: ignore[misc]
            table.y,
            splits,
        )
        deployments.append(
            calibrate_alone(f"CQR ({name})", METHODS["cqr"], on_roles, table, splits, alpha)
        )
    return deployments


def calibrate_alone(
    title: str, method: Method, on_roles: OnRoles, table: Table, splits: Splits, alpha: float
) -> Deployment:
    """Calibrate a single candidate on the calibration rows."""
    without_tuning = replace(on_roles, pool=on_roles.calibrate)
    task = Task({title: without_tuning}, y_tune=table.y[splits.tune], fixed=title, alpha=alpha)
    return Deployment(title, method, method(task))


# ---- what is recorded


def describe_tuning(task: Task) -> TuningOutcome:
    """Write down how the candidates did on the tuning rows."""
    ranked = task.ranking.table
    return TuningOutcome(
        alpha=float(task.alpha),
        candidates=[row.name for row in ranked],
        tuning_thresholds=[row.ranking_threshold for row in ranked],
        miscoverages=[row.miscoverage for row in ranked],
        tuning_sizes=[row.mean_size for row in ranked],
        feasible=[row.feasible for row in ranked],
    )


def measure(deployments: Sequence[Deployment], *, unit: float) -> list[Outcome]:
    """Measure coverage and widths of what was deployed on the test rows, widths in `unit`.

    The sets of a candidate are found at all its thresholds in one pass, which halves the time of a
    split.
    """
    outcomes: dict[str, Outcome] = {}
    for same in group_by(
        deployments, key=lambda deployment: id(deployment.choice.deployed)
    ).values():
        test = same[0].choice.deployed.test
        assert test is not None
        widths = (
            test.sizes_at_each([deployment.choice.threshold.value for deployment in same]) / unit
        )
        for deployment, row_widths in zip(same, widths, strict=True):
            outcomes[deployment.title] = describe_outcome(deployment, test.scores, row_widths)
    return [outcomes[deployment.title] for deployment in deployments]


def describe_outcome(deployment: Deployment, test_scores: Floats, widths: Floats) -> Outcome:
    """Write down what a method deployed, and how its sets did on the test rows."""
    threshold = deployment.choice.threshold
    assert threshold.rank is not None
    return Outcome(
        method=deployment.title,
        alpha=threshold.alpha,
        guarantee=threshold.guarantee,
        chosen=deployment.choice.candidate,
        threshold=threshold.value,
        rank=threshold.rank,
        n=threshold.n,
        law=deployment.method.has_law,
        n_test=len(widths),
        coverage=float(np.mean(test_scores <= threshold.value)),
        width=float(np.mean(widths)),
        p95=size_quantile(widths, 0.95),
    )
