"""The paper's regression experiments: Diabetes (Section 5.1), California Housing and Concrete
(three levels each).

Protocol: 15 % of rows for test (rounded up), of the others 30 % tune, 30 % calibrate, the rest
train; inputs and targets standardised on the training rows; a sparse Bayesian linear model with
noise prior HalfNormal(c), c in {1, 0.02}; score
-log posterior predictive density. BQ takes c = 1 and calibrates on tune + calibrate. Widths are in
standard deviations of the split's training targets, also for models refitted on more rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from dco.datasets import (
    Table,
    load_california_housing,
    load_concrete,
    load_diabetes,
)
from dco.foundations.arrays import Floats, Integers
from dco.paper.experiment import Experiment, Options, needs_file
from dco.paper.methods import (
    METHODS,
    TABLE_ROWS,
    ByRole,
    Choice,
    Given,
    Method,
    Role,
    compared_thresholds,
)
from dco.paper.regression_tables import (
    PRIOR_SCALES,
    STUDIES,
    Study,
    study_figures,
    study_tables,
)
from dco.predictions import Points, Prediction
from dco.rows.splits import Splits, assign_roles
from dco.scores.density import PredictiveDensity
from dco.scores.regression import AbsoluteResidual, QuantileResidual
from dco.scores.score import Score
from dco.tuning import EvaluatedCandidate, evaluate_candidate

SUBSAMPLE = 3000  # rows of California Housing, one fixed draw (the paper's rows fit one subsample)
DENSITY = PredictiveDensity()


@lru_cache(maxsize=4)
def load_rows(name: str, data_home: str | None) -> Table:
    """The rows of a study; of California Housing the fixed subsample."""
    if name == "diabetes":
        return load_diabetes()
    if name == "concrete":
        return load_concrete(data_home)
    full = load_california_housing(data_home)
    chosen = california_order(len(full))[:SUBSAMPLE]
    return Table(full.X[chosen], full.y[chosen], full.feature_names, full.name)


def california_order(n: int) -> Integers:
    """A fixed random order of all districts: the first 3,000 are the paper's kind of subsample, the
    others are left over.
    """
    return np.random.default_rng(3000).permutation(n)


def paper_split(n: int, seed: int) -> Splits:
    """15 % test rounded up; of the rest 30 % tune, 60 % tune and calibrate together, both rounded
    down; the others train.
    """
    test = -(-15 * n // 100)
    rest = n - test
    tune = 3 * rest // 10
    return assign_roles(n, tune=tune, calibrate=6 * rest // 10 - tune, test=test, random_state=seed)


# ---- one split -----------------------------------------------------------------------------------
# --------------------


def on_roles(
    name: str, score: Score, predict: Callable[[Integers], Prediction], y: Floats, splits: Splits
) -> ByRole:
    """A candidate on tuning, calibration and test rows, and on the pool of tuning and calibration
    rows.

    Sizes need no labels: those of the pool are measured on the tuning rows, where other methods
    need them too.
    """
    roles: dict[Role, Integers] = {
        "tune": splits.tune,
        "calibrate": splits.calibrate,
        "test": splits.test,
    }
    found = {role: _on_rows(name, score, predict(rows), y[rows]) for role, rows in roles.items()}
    scores = np.concatenate([found["tune"].scores, found["calibrate"].scores])
    return {**found, "pool": replace(found["tune"], scores=scores)}


def _on_rows(name: str, score: Score, prediction: Prediction, y: Floats) -> EvaluatedCandidate:
    return evaluate_candidate(name, score, prediction, y)


def knowing_sizes(entry: EvaluatedCandidate, thresholds: Iterable[float]) -> EvaluatedCandidate:
    """The candidate with its sizes at these thresholds, found in one pass where the score can."""
    asked = list(dict.fromkeys(thresholds))
    if len(asked) < 2:
        return entry
    known: dict[float, Floats] = dict(zip(asked, entry.size_curves(np.asarray(asked)), strict=True))

    def sizes_at(threshold: float | Floats) -> Floats:
        if isinstance(threshold, float) and threshold in known:
            return known[threshold]
        return entry.sizes_at(threshold)

    return replace(entry, sizes_at=sizes_at)


def recorded(
    choices: Mapping[str, tuple[Method, Choice]], *, alpha: float, unit: float
) -> list[dict[str, Any]]:
    """The rows of the record: what each method deployed and what it did on the test rows, widths in
    `unit`.
    """
    asked: dict[int, list[float]] = {}  # by candidate: one that was refitted is another
    for _, choice in choices.values():
        asked.setdefault(id(choice.deployed["test"]), []).append(choice.threshold.value)
    tests = {id(choice.deployed["test"]): choice.deployed["test"] for _, choice in choices.values()}
    tests = {key: knowing_sizes(test, asked[key]) for key, test in tests.items()}
    rows = []
    for title, (method, choice) in choices.items():
        threshold, test = choice.threshold, tests[id(choice.deployed["test"])]
        widths = test.sizes_at(threshold.value) / unit
        rows.append(
            {
                "method": title,
                "alpha": alpha,
                "guarantee": threshold.guarantee,
                "chosen": choice.candidate,
                "threshold": threshold.value,
                "rank": threshold.rank,
                "n": threshold.n,
                "law": method.law,
                "n_test": len(widths),
                "coverage": float(np.mean(test.scores <= threshold.value)),
                "width": float(np.mean(widths)),
                "p95": float(np.quantile(widths, 0.95)),
            }
        )
    return rows


def run_split(seed: int, options: Options, *, study: Study) -> list[dict[str, Any]]:
    """All methods on one split at every level."""
    table = load_rows(study.name, options.data_home)
    splits = paper_split(len(table), seed)
    unit = float(table.y[splits.train].std())
    models, again = paper_fits(table, splits, seed=seed, draws=study.draws)
    candidates = {
        name: density_candidate(name, model, table, splits) for name, model in models.items()
    }

    @cache
    def refit(name: str) -> ByRole:  # asked for the winner only
        return density_candidate(name, again[name], table, splits)

    fits = [*models.values(), *again.values()]
    rows: list[dict[str, Any]] = [
        {
            "sizes": splits.sizes,
            "ess": min(fit.ess_ for fit in fits),
            "rhat": max(fit.rhat_ for fit in fits),
        }
    ]
    for alpha in options.alphas:
        rows += recorded(density_choices(candidates, refit, alpha=alpha), alpha=alpha, unit=unit)
        if study.baselines:
            rows += recorded(
                baseline_choices(table, splits, alpha=alpha, seed=seed), alpha=alpha, unit=unit
            )
    return rows


def paper_fits(
    table: Table, splits: Splits, *, seed: int, draws: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The model at both prior scales on the training rows, and again with the tuning rows, all
    sampled side by side.

    Gibbs steps forget their start within a few steps, so 100 of them are a long warm-up.
    """
    from sklearn.exceptions import ConvergenceWarning

    from dco.bayes.sparse_regression import SparseBayesianRegression

    row_sets = (splits.train, np.concatenate([splits.train, splits.tune]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        first, again = SparseBayesianRegression.fit_many(
            [(table.X[rows], table.y[rows]) for rows in row_sets],
            PRIOR_SCALES,
            draws=draws,
            chains=16,
            warmup=100,
            random_state=seed,
        )
    names = [f"c = {c:g}" for c in PRIOR_SCALES]
    return dict(zip(names, first, strict=True)), dict(zip(names, again, strict=True))


def density_candidate(name: str, model: Any, table: Table, splits: Splits) -> ByRole:
    """A fit of the paper's model with the paper's score."""
    return on_roles(
        name, DENSITY, lambda rows: model.predict_distribution(table.X[rows]), table.y, splits
    )


def density_choices(
    candidates: Mapping[str, ByRole], refit: Callable[[str], ByRole], *, alpha: float
) -> dict[str, tuple[Method, Choice]]:
    """Every method that uses the predictive density, from the same fits."""
    rows = Given(candidates, next(iter(candidates)), alpha)
    known: dict[str, ByRole] = {}
    for name, parts in candidates.items():
        tune = knowing_sizes(parts["tune"], compared_thresholds(rows, name))
        known[name] = {
            **parts,
            "tune": tune,
            "pool": replace(parts["pool"], sizes_at=tune.sizes_at),
        }
    rows = replace(rows, candidates=known)
    found: dict[str, tuple[Method, Choice]] = {}
    for title, method in TABLE_ROWS.items():
        if title == "DCO, φ fixed":
            found |= {
                f"{title} ({name})": (method, method(replace(rows, fixed=name))) for name in known
            }
        else:
            found[title] = (
                method,
                method(replace(rows, refit=refit) if title == "DCO, refit" else rows),
            )
    return found


def baseline_choices(
    table: Table, splits: Splits, *, alpha: float, seed: int
) -> dict[str, tuple[Method, Choice]]:
    """Split CP on a ridge regression, and CQR with two kinds of boosting, all calibrated on the
    calibration rows alone.
    """
    from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from dco.models.quantile_pair import QuantilePair

    X, y = table.X[splits.train], table.y[splits.train]
    ridge = make_pipeline(StandardScaler(), Ridge()).fit(X, y)
    trees = {
        "gradient boosting": GradientBoostingRegressor(
            n_estimators=200, max_depth=3, random_state=seed
        ),
        "histogram boosting": HistGradientBoostingRegressor(
            max_iter=200, max_depth=3, random_state=seed
        ),
    }
    predict: dict[str, Callable[[Floats], Prediction]] = {
        "Split CP (ridge)": lambda X: Points(ridge.predict(X))
    }
    for name, model in trees.items():
        predict[f"CQR ({name})"] = QuantilePair(model, alpha=alpha).fit(X, y).predict_distribution
    found = {}
    for title, each in predict.items():
        method, score = (
            (METHODS["cqr"], QuantileResidual())
            if "CQR" in title
            else (METHODS["split_cp"], AbsoluteResidual())
        )
        parts = on_roles(title, score, lambda rows, each=each: each(table.X[rows]), table.y, splits)  # type: ignore[misc]
        rows = Given({title: {**parts, "pool": parts["calibrate"]}}, title, alpha)
        found[title] = method, method(rows)
    return found


# ---- the catalogue's entries
# -----------------------------------------------------------------------------------------


def _experiment(
    name: str, summary: str, minutes: float, file: str | None, alphas: tuple[float, ...]
) -> Experiment:
    study = STUDIES[name]
    return Experiment(
        name=name,
        summary=summary,
        needs=file or "nothing",
        minutes=minutes,
        run_split=partial(run_split, study=study),
        tables=partial(study_tables, study=study),
        figures=partial(study_figures, study=study),
        missing=None if file is None else needs_file(name, file),
        alphas=alphas,
        quick_splits=4,
    )


EXPERIMENTS = (
    _experiment(
        "diabetes",
        "Main regression table, prior scales, selection outcomes, DirectTune diagnostic.",
        1.0,
        None,
        (0.2,),
    ),
    _experiment(
        "california",
        "California Housing at three levels, one subsample of 3,000 rows.",
        3.0,
        "california_housing.csv.gz",
        (0.2, 0.1, 0.05),
    ),
    _experiment(
        "concrete",
        "Concrete compressive strength at three levels.",
        1.5,
        "concrete.csv",
        (0.2, 0.1, 0.05),
    ),
)
