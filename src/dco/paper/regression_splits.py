"""Section 5.1 and Appendix C.2: one split of Diabetes, California Housing or Concrete.

Protocol: 15 % of rows for test (rounded up), of the others 30 % tune, 30 % calibrate, the rest
train; inputs and targets standardised on the training rows; a sparse Bayesian linear model with
noise prior HalfNormal(c), c in {1, 0.02}; score -log posterior predictive density. BQ takes c = 1
and calibrates on tune + calibrate. Widths are in standard deviations of the split's training
targets, also for models refitted on more rows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

import dco
from dco import GaussianMixtures, Points, Quantiles, Splits, Threshold
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
from dco.paper.paper_values import PaperResult
from dco.scores import AbsoluteResidual, PredictiveDensity, QuantileResidual, Score

SUBSAMPLE = 3000  # rows of California Housing, one fixed draw (the paper's rows fit one subsample)
PRIOR_SCALES = (1.0, 0.02)
WIDE_PRIOR = "c = 1"  # the structure of BQ, and of methods that search nothing
CHAINS = 16
WARMUP = 100  # Gibbs steps forget their start within a few steps, so this is long
DENSITY = PredictiveDensity()


@dataclass(frozen=True)
class Study:
    """What differs between the experiments on the three data sets.

    Attributes
    ----------
    name, title
        The data set, in file names and in tables.
    draws
        How many posterior draws each fit has.
    has_baselines
        Whether split CP on a ridge regression and CQR are run too; the paper has them for Diabetes.
    paper_results
        What the paper prints, by (alpha, method).
    width_sd_over_subsamples
        By (alpha, method), how much the mean width varies with the subsample of rows, where the
        paper took one and does not say which.
    """

    name: str
    title: str
    draws: int
    has_baselines: bool
    paper_results: Mapping[tuple[float, str], PaperResult]
    width_sd_over_subsamples: Mapping[tuple[float, str], float] = field(default_factory=dict)


# The experiment california-subsamples measures it, by (alpha, method).
CALIFORNIA_WIDTH_SD = {
    (0.2, "BQ"): 0.019,
    (0.2, "DCO-Warmstart"): 0.014,
    (0.1, "BQ"): 0.051,
    (0.1, "DCO-Warmstart"): 0.046,
    (0.05, "BQ"): 0.089,
    (0.05, "DCO-Warmstart"): 0.078,
}
STUDIES = {
    "diabetes": Study(
        name="diabetes",
        title="Diabetes",
        draws=8000,
        has_baselines=True,
        paper_results={(0.2, method): row for method, row in paper_values.DIABETES.items()},
    ),
    "california": Study(
        name="california",
        title="California Housing",
        draws=3000,
        has_baselines=False,
        paper_results=paper_values.CALIFORNIA,
        width_sd_over_subsamples=CALIFORNIA_WIDTH_SD,
    ),
    "concrete": Study(
        name="concrete",
        title="Concrete",
        draws=3000,
        has_baselines=False,
        paper_results=paper_values.CONCRETE,
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
    """How each candidate did on the tuning rows at its best threshold there, best candidate first.

    The lists have one entry per candidate.
    """

    alpha: float
    candidates: list[str]
    tuning_thresholds: list[float]
    miscoverages: list[float]
    tuning_sizes: list[float]
    feasible: list[bool]  # whether the threshold has an empirical risk of at most alpha


@dataclass(frozen=True)
class Outcome(Row):
    """What a method deployed on one split at one level, and how its sets did on the test rows.

    The threshold is the `rank`-th smallest of `n` scores. `coverage` is the share of the `n_test`
    test rows that were covered; `width` and `p95` are the mean and the 95 % quantile of the widths.
    """

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
    """Load the rows of a study: all of them, or of California Housing a fixed subsample."""
    if name == "diabetes":
        return load_diabetes()
    if name == "concrete":
        return load_concrete(data_home)
    full = load_california_housing(data_home)
    rows = california_order(len(full))[:SUBSAMPLE]
    return Table(full.X[rows], full.y[rows], full.feature_names, full.name)


def california_order(n: int) -> Integers:
    """Return the n districts in a fixed random order; the first 3,000 are the subsample."""
    return np.random.default_rng(3000).permutation(n)


def paper_split(n: int, seed: int) -> Splits:
    """Deal n rows to roles at random, with the paper's sizes.

    15 % are test rows, rounded up. Of the rest 30 % tune, and 60 % tune or calibrate, both rounded
    down; the others train.
    """
    n_test = math.ceil(15 * n / 100)
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
    """The paper's model at both prior scales, fitted twice: on training rows alone, and with tuning
    rows.

    Models are named after their prior scale, "c = 1" and "c = 0.02".
    """

    on_train: dict[str, dco.bayes.SparseBayesianRegression]
    on_train_and_tune: dict[str, dco.bayes.SparseBayesianRegression]

    def all(self) -> list[dco.bayes.SparseBayesianRegression]:
        """Return every fit."""
        return [*self.on_train.values(), *self.on_train_and_tune.values()]


def fit_priors(table: Table, splits: Splits, *, seed: int, draws: int) -> PriorFits:
    """Fit the paper's Bayesian linear model at both prior scales, the candidates of the search.

    A prior scale says how much noise the model expects. Each of the two is fitted on the training
    rows, and again on training and tuning rows for methods that refit. `draws` is the number of
    posterior draws of a fit; all four are sampled side by side.
    """
    from sklearn.exceptions import ConvergenceWarning

    train_and_tune = np.concatenate([splits.train, splits.tune])
    datasets = [(table.X[rows], table.y[rows]) for rows in (splits.train, train_and_tune)]
    with warnings.catch_warnings():
        # The tables say how well the draws are mixed, so that no warning is needed.
        warnings.simplefilter("ignore", ConvergenceWarning)
        on_train, on_train_and_tune = dco.bayes.SparseBayesianRegression.fit_many(
            datasets,
            PRIOR_SCALES,
            draws=draws,
            chains=CHAINS,
            warmup=WARMUP,
            random_state=seed,
        )
    return PriorFits(
        on_train=name_by_prior(on_train), on_train_and_tune=name_by_prior(on_train_and_tune)
    )


def name_by_prior(
    models: Sequence[dco.bayes.SparseBayesianRegression],
) -> dict[str, dco.bayes.SparseBayesianRegression]:
    """Name models that come in the order of `PRIOR_SCALES`."""
    return {f"c = {scale:g}": model for scale, model in zip(PRIOR_SCALES, models, strict=True)}


# ---- candidates on the rows of each role


def score_on_split(
    score: Score, predict: Callable[[Integers], Any], y: Floats, splits: Splits
) -> OnRoles:
    """Score the true values of every role by one candidate.

    `predict` takes row numbers and returns the record of predictions that the score needs. Sizes of
    sets need no true values, so those of the pool (tuning and calibration rows) are measured on its
    tuning rows, where other methods need them too.
    """
    tune = ScoredRows.of(score, predict(splits.tune), y[splits.tune])
    calibrate = ScoredRows.of(score, predict(splits.calibrate), y[splits.calibrate])
    test = ScoredRows.of(score, predict(splits.test), y[splits.test])
    pool = replace(tune, scores=np.concatenate([tune.scores, calibrate.scores]))
    return OnRoles(tune=tune, calibrate=calibrate, pool=pool, test=test)


def score_density(
    model: dco.bayes.SparseBayesianRegression, table: Table, splits: Splits
) -> OnRoles:
    """Score every role by a fit of the paper's model, with the paper's score -log p(y | x)."""

    def predict(rows: Integers) -> GaussianMixtures:
        return model.predict_distribution(table.X[rows])

    return score_on_split(DENSITY, predict, table.y, splits)


# ---- one split


def run_split(seed: int, options: Options, *, study: Study) -> list[Row]:
    """Run all methods on one random split of a data set (`study`), at every level.

    The rows that are returned say how each method did on the test rows (`Outcome`), how the
    candidates did on the tuning rows (`TuningOutcome`), and what is common to them (`SplitFacts`).
    """
    table = load_rows(study.name, options.data_home)
    splits = paper_split(len(table), seed)
    width_unit = standard_deviation(table, splits)

    # 1. Fit the model at both prior scales: the two candidates of the search.
    fits = fit_priors(table, splits, seed=seed, draws=study.draws)
    candidates = {
        name: score_density(model, table, splits) for name, model in fits.on_train.items()
    }

    @cache  # several methods and levels ask for the same candidate
    def refit(name: str) -> OnRoles:
        return score_density(fits.on_train_and_tune[name], table, splits)

    facts = SplitFacts(
        sizes=splits.sizes,
        ess=min(model.ess_ for model in fits.all()),
        rhat=max(model.rhat_ for model in fits.all()),
    )
    rows: list[Row] = [facts]

    # 2. At each level let every method choose and calibrate, and measure it on the test rows.
    for alpha in options.alphas:
        task = Task(
            candidates,
            y_tune=table.y[splits.tune],
            fixed=WIDE_PRIOR,
            alpha=alpha,
            refit=refit,
        )
        rows.append(describe_tuning(task))
        rows += measure(run_density_methods(task), unit=width_unit)
        if study.has_baselines:
            rows += measure(run_baselines(table, splits, alpha=alpha, seed=seed), unit=width_unit)
    return rows


@dataclass(frozen=True, eq=False)
class Deployment:
    """A row of the result tables: its title, its method, and what the method chose on a split."""

    title: str
    method: Method
    choice: Choice

    @property
    def threshold(self) -> Threshold:
        """The threshold of its sets."""
        return self.choice.threshold


def run_density_methods(task: Task) -> list[Deployment]:
    """Run every method of the result tables on the candidates of a task, the Bayesian models.

    "DCO, φ fixed" searches nothing: it is run once for each candidate, with the candidate in its
    title, "DCO, φ fixed (c = 1)".
    """
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
    """Run the paper's baselines without Bayesian models, all calibrated on the calibration rows.

    They are split CP (split conformal prediction) on a ridge regression, and CQR (conformalised
    quantile regression) with two kinds of boosting.
    """
    from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor

    gradient = GradientBoostingRegressor(n_estimators=200, max_depth=3, random_state=seed)
    histogram = HistGradientBoostingRegressor(max_iter=200, max_depth=3, random_state=seed)

    ridge_rows = score_ridge(table, splits)
    gradient_rows = score_quantiles(gradient, table, splits, alpha=alpha)
    histogram_rows = score_quantiles(histogram, table, splits, alpha=alpha)

    y_tune = table.y[splits.tune]
    split_cp = METHODS["split_cp"]
    cqr = METHODS["cqr"]
    return [
        run_alone("Split CP (ridge)", split_cp, ridge_rows, y_tune, alpha),
        run_alone("CQR (gradient boosting)", cqr, gradient_rows, y_tune, alpha),
        run_alone("CQR (histogram boosting)", cqr, histogram_rows, y_tune, alpha),
    ]


def score_ridge(table: Table, splits: Splits) -> OnRoles:
    """Fit a ridge regression on the training rows, and score every role by |y - prediction|."""
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    ridge = make_pipeline(StandardScaler(), Ridge())
    ridge.fit(table.X[splits.train], table.y[splits.train])

    def predict(rows: Integers) -> Points:
        return Points(ridge.predict(table.X[rows]))

    return score_on_split(AbsoluteResidual(), predict, table.y, splits)


def score_quantiles(model: Any, table: Table, splits: Splits, *, alpha: float) -> OnRoles:
    """Fit `model` for the quantiles alpha / 2 and 1 - alpha / 2, and score every role as CQR does.

    The score is max(lower - y, y - upper).
    """
    pair = dco.models.QuantilePair(model, alpha=alpha)
    pair.fit(table.X[splits.train], table.y[splits.train])

    def predict(rows: Integers) -> Quantiles:
        return pair.predict_distribution(table.X[rows])

    return score_on_split(QuantileResidual(), predict, table.y, splits)


def run_alone(
    title: str, method: Method, on_roles: OnRoles, y_tune: Floats, alpha: float
) -> Deployment:
    """Run a method on a single candidate, calibrated on the calibration rows alone."""
    # Methods without a search calibrate on the pool: leave the tuning rows out of it.
    without_tuning = replace(on_roles, pool=on_roles.calibrate)
    task = Task({title: without_tuning}, y_tune=y_tune, fixed=title, alpha=alpha)
    return Deployment(title, method, method(task))


# ---- what is recorded


def describe_tuning(task: Task) -> TuningOutcome:
    """Record how the candidates did on the tuning rows."""
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
    """Measure the sets of every method on the test rows, in the order of `deployments`.

    A deployment is what a method chose: a candidate and a threshold. Widths are divided by `unit`.
    Methods that chose the same candidate differ in their thresholds only, so its sets are found at
    all of them in one pass: this halves the time of a split.
    """
    by_candidate = group_by(deployments, key=lambda deployment: id(deployment.choice.deployed))

    outcomes: dict[str, Outcome] = {}  # by the title of the method
    for deployments_of_candidate in by_candidate.values():
        test_rows = deployments_of_candidate[0].choice.deployed.test
        assert test_rows is not None
        thresholds = [deployment.threshold.value for deployment in deployments_of_candidate]
        widths = test_rows.sizes_at_each(thresholds) / unit  # (thresholds, test rows)
        for deployment, widths_at_threshold in zip(deployments_of_candidate, widths, strict=True):
            outcomes[deployment.title] = describe_outcome(
                deployment, test_rows.scores, widths_at_threshold
            )
    return [outcomes[deployment.title] for deployment in deployments]


def describe_outcome(deployment: Deployment, test_scores: Floats, widths: Floats) -> Outcome:
    """Record what a method chose, and how its sets did on the test rows.

    `deployment` has the method, its candidate and its threshold. `test_scores` are the scores of
    the true values of the test rows: a row is covered where its score is at most the threshold.
    `widths` are the widths of the rows' sets.
    """
    threshold = deployment.threshold
    assert threshold.rank is not None
    is_covered = test_scores <= threshold.value
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
        coverage=float(np.mean(is_covered)),
        width=float(np.mean(widths)),
        p95=size_quantile(widths, 0.95),
    )
