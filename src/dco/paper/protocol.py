"""The paper's regression protocol to the letter, one deviation of ours at a time, and all of them
together.

Our tables search thresholds exactly, take interval ends by root finding, and sample by Gibbs steps.
The paper searches 80 quantiles of the tuning scores, takes the extreme accepted points of a
response grid (400 points on Diabetes, 300 elsewhere, from two standard deviations below the
smallest training target to two above the largest), and samples by NUTS with one chain of 600
warm-up steps. Splits, priors, scores and ranks are those of `regression` throughout.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dco.calibration import bayesian_quadrature, split_conformal
from dco.datasets import Table
from dco.foundations.arrays import Floats
from dco.paper.experiment import Experiment, Options, Records, column, needs_file, rows_by
from dco.paper.regression import DENSITY, load_rows, paper_fits, paper_split
from dco.paper.regression_tables import PRIOR_SCALES, STUDIES, Study
from dco.paper.tables import Cell, Measured, ResultTable, standard_errors
from dco.paper.threshold_grid import best_on_grid
from dco.predictions import Prediction
from dco.rows.splits import Splits
from dco.sets.intervals import Intervals
from dco.tuning import EvaluatedCandidate, rank_evaluated

LEVELS = {"diabetes": (0.2,), "california": (0.2, 0.1, 0.05), "concrete": (0.2, 0.1, 0.05)}
RESPONSES = {"diabetes": 400, "california": 300, "concrete": 300}
THRESHOLDS = 80
FIXED = f"c = {PRIOR_SCALES[0]:g}"
VARIANTS: dict[str, tuple[str, int | None, bool]] = {  # sampler, threshold grid, response grid
    "ours": ("gibbs", None, False),
    "80 thresholds": ("gibbs", THRESHOLDS, False),
    "response grid": ("gibbs", None, True),
    "NUTS": ("nuts", None, False),
    "all three, as the paper": ("nuts", THRESHOLDS, True),
}


def on_grid(sets: Any, grid: Floats) -> Intervals:
    """From the first grid point in a set to the last one, per row; (inf, -inf) where no grid point
    is in it.
    """
    first, last = (
        np.searchsorted(grid, sets.lower, side="left"),
        np.searchsorted(grid, sets.upper, side="right") - 1,
    )
    rows, there = np.repeat(np.arange(len(sets)), np.diff(sets.row_pointers)), first <= last
    lower, upper = np.full(len(sets), np.inf), np.full(len(sets), -np.inf)
    np.minimum.at(lower, rows[there], grid[first[there]])
    np.maximum.at(upper, rows[there], grid[last[there]])
    return Intervals(lower, upper)


def protocol_split(seed: int, options: Options) -> list[dict[str, Any]]:
    """BQ and DCO-Warmstart in every variant on one split of each data set."""
    found: list[dict[str, Any]] = []
    for study in STUDIES.values():
        table = load_rows(study.name, options.data_home)
        splits = paper_split(len(table), seed)
        models = {"gibbs": paper_fits(table, splits, seed=seed, draws=study.draws)[0]}
        models["nuts"] = nuts_fits(
            table, splits, seed=seed, study=study, draws=400 if options.quick else study.draws
        )
        for sampler, fits in models.items():
            records = {
                name: {
                    role: fit.predict_distribution(table.X[splits[role]])
                    for role in ("tune", "calibrate", "test")
                }
                for name, fit in fits.items()
            }
            for alpha in LEVELS[study.name]:
                found += _rows(study, table, splits, records, sampler=sampler, alpha=alpha)
    return found


def nuts_fits(
    table: Table, splits: Splits, *, seed: int, study: Study, draws: int
) -> dict[str, Any]:
    """Both prior scales on the training rows, sampled as the paper says: one chain, 600 warm-up
    steps.
    """
    from sklearn.exceptions import ConvergenceWarning

    from dco.bayes.sparse_regression import SparseBayesianRegression

    rows = [(table.X[splits.train], table.y[splits.train])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        (fits,) = SparseBayesianRegression.fit_many(
            rows, PRIOR_SCALES, draws=draws, chains=1, warmup=600, sampler="nuts", random_state=seed
        )
    return {f"c = {scale:g}": fit for scale, fit in zip(PRIOR_SCALES, fits, strict=True)}


def _rows(
    study: Study,
    table: Table,
    splits: Splits,
    records: Mapping[str, Mapping[str, Prediction]],
    *,
    sampler: str,
    alpha: float,
) -> list[dict[str, Any]]:
    y, unit = table.y, float(table.y[splits.train].std())
    low, high = float(y[splits.train].min()), float(y[splits.train].max())
    grid = np.linspace(low - 2 * unit, high + 2 * unit, RESPONSES[study.name])
    scores = {
        name: {role: DENSITY.observed(record, y[splits[role]]) for role, record in own.items()}
        for name, own in records.items()
    }
    pool = np.concatenate([scores[FIXED]["tune"], scores[FIXED]["calibrate"]])
    found = []
    for variant, (engine, thresholds, gridded) in VARIANTS.items():
        if engine != sampler:
            continue
        tuning = [
            EvaluatedCandidate(
                name,
                scores[name]["tune"],
                lambda cut, own=own, gridded=gridded: _widths(
                    own["tune"], cut, grid if gridded else None
                ),  # type: ignore[misc]
            )
            for name, own in records.items()
        ]
        best = winner(tuning, alpha=alpha, grid=thresholds)
        chosen = {
            "BQ": (FIXED, bayesian_quadrature(pool, alpha=alpha, delta=0.05)),
            "DCO-Warmstart": (best, split_conformal(scores[best]["calibrate"], alpha=alpha)),
        }
        for method, (name, threshold) in chosen.items():
            sets: Any = DENSITY.sets(records[name]["test"], threshold)
            sets = on_grid(sets, grid) if gridded else sets
            covered, width = sets.contains(y[splits.test]), float(np.mean(sets.sizes()) / unit)
            found.append(
                {
                    "data": study.name,
                    "alpha": alpha,
                    "variant": variant,
                    "method": method,
                    "chosen": name,
                    "threshold": threshold.value,
                    "coverage": float(np.mean(covered)),
                    "width": width,
                }
            )
    return found


def winner(tuning: Sequence[EvaluatedCandidate], *, alpha: float, grid: int | None) -> str:
    """The candidate with the smallest mean size at tuning risk <= alpha, by so many thresholds
    each, or by all.
    """
    if grid is None:
        return rank_evaluated(tuning, alpha=alpha).best
    return best_on_grid(tuning, alpha=alpha, n_thresholds=grid)


def _widths(record: Prediction, cut: Any, grid: Floats | None) -> Floats:
    if grid is None:
        return DENSITY.sizes(record, cut)
    return np.asarray(on_grid(DENSITY.sets(record, cut), grid).sizes(), dtype=np.float64)


def protocol_tables(records: Records, options: Options) -> list[ResultTable]:
    """Every printed mean of the regression tables beside each variant."""
    rows: list[dict[str, Cell]] = []
    for study in STUDIES.values():
        for alpha in LEVELS[study.name]:
            for method in ("BQ", "DCO-Warmstart"):
                paper = study.printed[alpha, method]
                wanted = {"data": study.name, "alpha": alpha, "method": method}
                for variant, own in rows_by(records, "variant", **wanted).items():
                    ours = rows_by(records, "variant", **wanted)["ours"]
                    coverage, width = (
                        Measured.of(column(own, key)) for key in ("coverage", "width")
                    )
                    moved = sum(a["chosen"] != b["chosen"] for a, b in zip(own, ours, strict=True))
                    rows.append(
                        {
                            "data": study.title,
                            "target": 1 - alpha,
                            "method": method,
                            "variant": variant,
                            "coverage": coverage,
                            "paper coverage": Measured(*paper.coverage),
                            "off": standard_errors(coverage, paper.coverage, len(own)),
                            "width": width,
                            "paper width": Measured(*paper.width),
                            "width off": standard_errors(width, paper.width, len(own)),
                            "other winner": moved if method != "BQ" else None,
                        }
                    )
    text = (
        f"{len(records)} splits, mean ± sd. 'Ours': exact thresholds, exact interval ends, Gibbs "
        f"steps. Each variant "
        f"changes one thing, the last one all three: {THRESHOLDS} quantiles of the tuning scores "
        f"as thresholds; a response "
        "grid whose extreme accepted points are the ends (widths in tuning too); NUTS, one chain. "
        "'Off': our mean less the "
        "paper's, in standard errors of the difference. 'Other winner': splits in which the prior "
        "scale differs from ours."
    )
    return [ResultTable.of("The paper's protocol to the letter: regression", text, rows)]


EXPERIMENTS = (
    Experiment(
        name="protocol",
        summary="Regression with the paper's threshold grid, response grid and NUTS, one at a "
        "time and together.",
        needs="concrete.csv and california_housing.csv.gz",
        minutes=8.0,
        run_split=protocol_split,
        tables=protocol_tables,
        missing=needs_file("protocol", "california_housing.csv.gz"),
        alphas=(0.2,),
        quick_splits=2,
    ),
)
