"""Beyond the paper on its regression data: a stronger class, refit and a tuning split that grows, at the same level.

Same splits, same levels, same statement (marginal coverage by split CP) as the paper's DCO. Structures are a mean model
(trees, boosting, on small data a Gaussian process, and the average of some) with a score: absolute residual, or the residual
over a spread that a forest learnt from out-of-fold residuals; and a quantile pair for the level.

The class and the structure called "fixed" were chosen on rows or seeds that no split here uses: for California Housing on
the 17,640 districts outside the subsample, for Concrete and Diabetes on splits with seeds from 1000 on.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dco.evaluation.evaluate import paired_comparison
from dco.foundations.arrays import Floats, Integers
from dco.foundations.ranks import order_statistic, tuning_rank
from dco.guarantees.rules import bayesian_quadrature, split_conformal
from dco.predictions import Points, PointsWithSpread, Prediction, Quantiles, take
from dco.reproduction import figures
from dco.reproduction.coverage_z import bonferroni_point, coverage_sd, expected_coverage, target
from dco.reproduction.datasets.tabular import Table
from dco.reproduction.experiment import Experiment, Options, Records, needs_file
from dco.reproduction.regression import (
    DENSITY,
    PRIOR_SCALES,
    STUDIES,
    Candidate,
    deployed,
    load_rows,
    paper_fits,
    paper_split,
    rows_by,
)
from dco.reproduction.tables import Cell, Measured, ResultTable
from dco.rows.roles import Splits
from dco.scores.regression import AbsoluteResidual, NormalisedResidual, QuantileResidual
from dco.scores.score import Score
from dco.tuning import grow_tuning_split
from dco.tuning.search import Candidates

BASE = "DCO (paper's class)"
SEARCHED = "stronger class, searched, refit"
AUTO = f"{SEARCHED}, auto tuning split"
FOLDS = 3
WHOLE = 20  # a multiple of 1 / alpha at all levels of these tables
FLOORS = (0.3, 1.0)  # added to the spread, in mean absolute out-of-fold residuals


@dataclass(frozen=True)
class Class:
    """Which mean models a data set gets, and the structure that stands for the class when nothing is searched.

    `averaged` models are structures one by one and in their average; those `alone` are offered to the search only.
    """

    study: str
    averaged: tuple[str, ...]
    fixed: str
    chosen_on: str
    alone: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        """All mean models."""
        return self.averaged + self.alone


CLASSES = {
    "diabetes": Class(
        "diabetes", ("ridge", "support vectors", "gaussian process", "extra trees"), "average, residual / (spread + 1)",
        "splits with seeds from 1000 on",
    ),
    "california": Class(
        "california", ("histogram boosting", "gradient boosting", "extra trees"), "average, residual / (spread + 0.3)",
        "the 17,640 districts outside the subsample",
    ),
    "concrete": Class(
        "concrete", ("histogram boosting", "slow gradient boosting"), "average, residual / (spread + 1)",
        "splits with seeds from 1000 on", alone=("gaussian process",),
    ),
}  # fmt: skip


def mean_model(name: str, *, columns: int, seed: int) -> Any:
    """An unfitted regressor by its name."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor, HistGradientBoostingRegressor
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVR

    def standardised(model: Any) -> Any:
        return TransformedTargetRegressor(make_pipeline(StandardScaler(), model), transformer=StandardScaler())

    if name == "histogram boosting":
        return HistGradientBoostingRegressor(
            max_iter=500, learning_rate=0.05, max_leaf_nodes=8, min_samples_leaf=10, random_state=seed
        )
    if name == "gradient boosting":
        return GradientBoostingRegressor(
            n_estimators=300, learning_rate=0.08, max_depth=5, subsample=0.5, max_features=0.5, random_state=seed
        )
    if name == "slow gradient boosting":
        return GradientBoostingRegressor(
            n_estimators=400, learning_rate=0.07, max_depth=4, subsample=0.5, max_features=0.5, random_state=seed
        )
    if name == "extra trees":
        return ExtraTreesRegressor(150, min_samples_leaf=1 if columns < 10 else 3, random_state=seed)
    if name == "ridge":
        return standardised(RidgeCV(np.logspace(-1, 3, 20)))
    if name == "support vectors":
        return standardised(SVR(C=1.0, gamma=0.02))
    if name == "gaussian process":
        kernel = ConstantKernel() * Matern(2.0 * np.sqrt(columns / 3), nu=1.5) + WhiteKernel(0.05)
        return standardised(GaussianProcessRegressor(kernel, alpha=1e-8))
    raise ValueError(f"there is no mean model {name!r}.")


@dataclass(frozen=True)
class Structure:
    """The average of some mean models, scored by residual over spread + floor (None: no spread); no model: the pair."""

    models: tuple[str, ...]
    floor: float | None = None


PAIR = "quantile pair"


def structures(members: Class) -> dict[str, Structure]:
    """Every structure of the class by its name: models and their average, with and without a spread; the quantile pair."""
    groups = {name: (name,) for name in members.models} | {"average": members.averaged}
    found = {}
    for group, models in groups.items():
        found[f"{group}, absolute residual"] = Structure(models)
        for floor in FLOORS:
            found[f"{group}, residual / (spread + {floor:g})"] = Structure(models, floor)
    return found | {PAIR: Structure(())}


@dataclass(frozen=True, eq=False)
class Fits:
    """Models fitted on the rows X, y when they are first asked for; their predictions for the inputs `new` are kept.

    `held_out` has for each of the rows a prediction by a model that had not seen it: the spread is learnt from these.
    """

    X: Floats
    y: Floats
    new: Floats
    held_out: Mapping[str, Floats]
    seed: int
    kept: dict[Any, Any] = field(default_factory=dict)

    def mean(self, names: tuple[str, ...]) -> Floats:
        """The average of these models' predictions for the new inputs."""
        return np.asarray(np.mean([self._once(name, partial(self._predicted, name)) for name in names], axis=0))

    def spread(self, names: tuple[str, ...]) -> tuple[Floats, float]:
        """The size of residual that a forest expects at the new inputs, and the mean absolute held-out residual."""
        return self._once(names, partial(self._spread, names))  # type: ignore[no-any-return]

    def pair(self, alpha: float) -> Quantiles:
        """Quantiles alpha / 2 and 1 - alpha / 2 at the new inputs."""
        return self._once(alpha, partial(self._pair, alpha))  # type: ignore[no-any-return]

    def predict(self, structure: Structure, *, alpha: float) -> tuple[Score, Prediction]:
        """The structure's score, and what it predicts for the new inputs; `alpha` sets the levels of a quantile pair."""
        if not structure.models:
            return QuantileResidual(), self.pair(alpha)
        mean = self.mean(structure.models)
        if structure.floor is None:
            return AbsoluteResidual(), Points(mean)
        spread, unit = self.spread(structure.models)
        return NormalisedResidual(), PointsWithSpread(mean, spread + structure.floor * unit)

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]

    def _predicted(self, name: str) -> Floats:
        model = mean_model(name, columns=self.X.shape[1], seed=self.seed)
        return np.asarray(_quietly(model.fit, self.X, self.y).predict(self.new))

    def _spread(self, names: tuple[str, ...]) -> tuple[Floats, float]:
        from sklearn.ensemble import RandomForestRegressor

        mean = np.mean([self.held_out[name] for name in names], axis=0)
        residuals = np.abs(self.y - mean)
        forest = RandomForestRegressor(50, min_samples_leaf=10, max_features=0.5, random_state=self.seed)
        forest.fit(np.column_stack([self.X, mean]), residuals)
        return forest.predict(np.column_stack([self.new, self.mean(names)])), float(residuals.mean())

    def _pair(self, alpha: float) -> Quantiles:
        from sklearn.ensemble import HistGradientBoostingRegressor

        from dco.models.quantile_pair import QuantilePair

        base = HistGradientBoostingRegressor(max_iter=150, learning_rate=0.06, max_leaf_nodes=8, random_state=self.seed)
        return QuantilePair(base, alpha=alpha).fit(self.X, self.y).predict_distribution(self.new)


def first_fits(table: Table, rows: Integers, *, members: Class, seed: int) -> Fits:
    """The class on these rows; predictions held out by three folds. Of the other rows it gets inputs only."""
    from sklearn.model_selection import KFold, cross_val_predict

    X, y = table.X[rows], table.y[rows]
    folds = KFold(FOLDS, shuffle=True, random_state=seed)
    held_out = {}
    for name in members.models:
        model = mean_model(name, columns=X.shape[1], seed=seed)
        held_out[name] = np.asarray(_quietly(cross_val_predict, model, X, y, cv=folds))
    return Fits(X, y, table.X, held_out, seed)


def refits(earlier: Fits, table: Table, rows: Integers) -> Fits:
    """The same on the earlier rows and these; for these rows the earlier fits give the held-out predictions."""
    X, y = np.concatenate([earlier.X, table.X[rows]]), np.concatenate([earlier.y, table.y[rows]])
    held_out = {name: np.concatenate([known, earlier.mean((name,))[rows]]) for name, known in earlier.held_out.items()}
    return Fits(X, y, table.X, held_out, earlier.seed)


def _quietly(call: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """Without warnings about a kernel parameter at its bound, which only says that an input does not matter."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return call(*args, **keywords)


def reserve(calibrate: int) -> int:
    """Half of the calibration rows, or a few more so that (m + 1) (1 - alpha) is whole and no part of a rank is wasted."""
    return -(-(calibrate // 2 + 1) // WHOLE) * WHOLE - 1


def grown_split(fits: Fits, table: Table, splits: Splits, *, members: Class, alpha: float, seed: int) -> tuple[Splits, str]:
    """The split whose tuning part grew until selection had settled at this level, and why it stopped ("settled", "limit").

    Rows are taken from tune, then from calibrate, in the order in which the split dealt them: a fixed random order. The
    verdict sees the targets of the rows taken and no others, so the tuning size is a stopping time and coverage has the law
    of the calibration rows that are left. Calibration keeps at least `reserve` rows.
    """
    offered = {name: fits.predict(each, alpha=alpha) for name, each in structures(members).items()}

    def candidates_on(rows: Integers) -> tuple[Candidates, Floats]:
        return {name: (score, take(prediction, rows)) for name, (score, prediction) in offered.items()}, table.y[rows]

    allocation = grow_tuning_split(
        np.concatenate([splits.tune, splits.calibrate]),
        candidates_on,
        alpha=alpha,
        seed=seed,
        calibrate_size=reserve(len(splits.calibrate)),
    )
    return Splits(splits.train, allocation.tune, allocation.calibrate, splits.test, seed=splits.seed), allocation.reason


def run_split(seed: int, options: Options, *, members: Class) -> list[dict[str, Any]]:
    """The paper's DCO and the stronger class on one split, with and without search, refit and a tuning part that grows."""
    table = load_rows(members.study, options.data_home)
    splits = paper_split(len(table), seed)
    unit = float(table.y[splits.train].std())
    priors, _ = paper_fits(table, splits, seed=seed, draws=STUDIES[members.study].draws)
    linear = {
        f"c = {c:g}": Candidate.of(DENSITY, model.predict_distribution, table, splits)
        for c, model in zip(PRIOR_SCALES, priors, strict=True)
    }
    fits = first_fits(table, splits.train, members=members, seed=seed)
    refitted = {len(splits.tune): refits(fits, table, splits.tune)}  # by the number of tuning rows
    rows: list[dict[str, Any]] = [{"sizes": splits.sizes}]
    for alpha in options.alphas:
        place = partial(_row, alpha=alpha, unit=unit)
        on = partial(_candidate, table=table, members=members, alpha=alpha)
        paper, fixed, again = _tuned(linear, alpha), members.fixed, refitted[len(splits.tune)]
        strong = {name: on(fits, name, splits=splits) for name in structures(members)}
        best = _tuned(strong, alpha)
        winner = on(again, best, splits=splits)
        grown, reason = grown_split(fits, table, splits, members=members, alpha=alpha, seed=seed)
        settled = _tuned({name: on(fits, name, splits=grown) for name in strong}, alpha)
        if len(grown.tune) not in refitted:
            refitted[len(grown.tune)] = refits(fits, table, grown.tune)
        rows += [
            place(BASE, linear[paper], chosen=paper),
            place("stronger class, fixed", strong[fixed], chosen=fixed),
            place("stronger class, fixed, refit", on(again, fixed, splits=splits), chosen=fixed),
            place("stronger class, searched", strong[best], chosen=best),
            place(SEARCHED, winner, chosen=best),
            place(f"{SEARCHED}, PAC", winner, chosen=best, delta=0.05),
            place(AUTO, on(refitted[len(grown.tune)], settled, splits=grown), chosen=settled, stopped=reason),
        ]
    return rows


def _row(
    method: str,
    candidate: Candidate,
    *,
    alpha: float,
    unit: float,
    chosen: str,
    delta: float | None = None,
    stopped: str = "",
) -> dict[str, Any]:
    scores = candidate.scores_calibrate
    rule = split_conformal(scores, alpha=alpha) if delta is None else bayesian_quadrature(scores, alpha=alpha, delta=delta)
    row = deployed(method, candidate, rule, unit=unit, alpha=alpha, law=True, chosen=chosen)
    return row | {"n_tune": len(candidate.scores_tune), "stopped": stopped}


def _candidate(fits: Fits, name: str, *, table: Table, splits: Splits, members: Class, alpha: float) -> Candidate:
    score, prediction = fits.predict(structures(members)[name], alpha=alpha)
    tune, calibrate, test = splits.tune, splits.calibrate, splits.test
    records = (take(prediction, tune), take(prediction, calibrate), take(prediction, test))
    observed = (score.observed(record, table.y[rows]) for record, rows in zip(records, (tune, calibrate, test), strict=True))
    return Candidate(score, *records, *observed)  # type: ignore[arg-type]


def _tuned(candidates: Mapping[str, Candidate], alpha: float) -> str:
    """The smallest mean size on tuning rows at empirical risk <= alpha."""

    def size(name: str) -> float:
        scores = candidates[name].scores_tune
        return candidates[name].tune_size(order_statistic(scores, tuning_rank(len(scores), alpha=alpha)))

    return min(candidates, key=size)


# ---- tables ----------------------------------------------------------------------------------------------------------

THREE = "class, refit and search"
STEPS = (
    ("class", "stronger class, fixed", BASE),
    ("refit", "stronger class, fixed, refit", "stronger class, fixed"),
    ("search", SEARCHED, "stronger class, fixed, refit"),
    (THREE, SEARCHED, BASE),
    ("auto tuning split", AUTO, SEARCHED),
    ("all together", AUTO, BASE),
)


def beyond_tables(records: Records, options: Options, *, members: Class, title: str) -> list[ResultTable]:
    """Coverage and width of each row, the gain in steps, which structures were chosen, and how far tuning grew."""
    return [
        _main_table(records, options, members=members, title=title),
        _gain_table(records, options, title=title),
        _chosen_table(records, options, title=title),
        _growth_table(records, options, title=title),
    ]


def _main_table(records: Records, options: Options, *, members: Class, title: str) -> ResultTable:
    rows: list[tuple[Cell, ...]] = []
    for alpha in options.alphas:
        for method, entries in rows_by(records, alpha).items():
            expected, z = own_law(entries)
            rows.append(
                (target(alpha), method, str(entries[0]["guarantee"]))
                + (round(float(np.mean([row["n_tune"] for row in entries]))),)
                + (Measured.of(row["coverage"] for row in entries), expected, z)
                + (Measured.of(row["width"] for row in entries), Measured.of(row["p95"] for row in entries))
            )
    return ResultTable(
        f"Beyond the paper: {title}",
        f"{len(records)} splits. Same rows, same level, same rule as the paper's DCO; only the candidate class, refit, "
        f"search and the cut of tune + calibrate differ. The class and its fixed structure ({members.fixed}) were chosen on "
        f"{members.chosen_on}. Models: {', '.join(members.models)}; and a quantile pair of boosted trees. Auto tuning "
        "split: tuning takes rows until selection has settled (expected regret at most 1 % of the width), or until about "
        "half of the paper's calibration rows are left; 'tuning rows' is the mean over splits. z against the Beta-binomial "
        f"law of each split's own rank and calibration rows: |z| below {bonferroni_point(len(rows)):.2f} in all "
        f"{len(rows)} rows with probability 99 %. Widths in standard deviations of the split's training targets.",
        ("target", "method", "guarantee", "tuning rows", "coverage", "by law", "z", "width", "P95"),
        tuple(rows),
    )


def own_law(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Expected coverage by theory and z where each split has its own rank and number of calibration rows.

    Given what was chosen, split i has mean rank_i / (n_i + 1) and the Beta-binomial variance; the sum of the differences
    over the root of the sum of the variances is z. Equal ranks give `coverage_z`.
    """
    means = [expected_coverage(int(row["rank"]), int(row["n"])) for row in rows]
    laws = Counter((int(row["rank"]), int(row["n"]), int(row["n_test"])) for row in rows)
    variance = math.fsum(count * coverage_sd(*law) ** 2 for law, count in laws.items())
    excess = math.fsum(row["coverage"] - mean for row, mean in zip(rows, means, strict=True))
    return math.fsum(means) / len(means), excess / math.sqrt(variance) if variance > 0 else 0.0


def _gain_table(records: Records, options: Options, *, title: str) -> ResultTable:
    rows: list[tuple[Cell, ...]] = []
    for alpha in options.alphas:
        for step, (gain, low, high, p_value) in gains(records, alpha).items():
            rows.append((target(alpha), step, gain, low, high, p_value))
    return ResultTable(
        f"Beyond the paper: {title}, the gain in steps",
        "How much narrower in % of the mean width of the paper's DCO, with paired Student 95 % intervals over these splits "
        "and Wilcoxon's p. Class: the fixed structure of the stronger class in place of the paper's DCO. Refit: the same "
        "structure refitted on train + tune. Search: the structure chosen on tuning rows in place of the fixed one. Auto "
        "tuning split: the same search and refit with a tuning part that grew until selection had settled.",
        ("target", "step", "narrower %", "low %", "high %", "p"),
        tuple(rows),
        digits=2,
    )


def gains(records: Records, alpha: float) -> dict[str, tuple[float, float, float, float]]:
    """For each step (gain, low, high, p) in % of the mean width of the paper's DCO; positive is narrower."""
    found = rows_by(records, alpha)
    widths = {method: [row["width"] for row in entries] for method, entries in found.items()}
    base = float(np.mean(widths[BASE]))
    result = {}
    for step, method, against in STEPS:
        compared = paired_comparison(widths[against], widths[method])
        scaled = (100 * value / base for value in (compared.mean_difference, compared.low, compared.high))
        result[step] = (*scaled, compared.p_value)
    return result  # type: ignore[return-value]


def _chosen_table(records: Records, options: Options, *, title: str) -> ResultTable:
    rows: list[tuple[Cell, ...]] = []
    for alpha in options.alphas:
        found = rows_by(records, alpha)
        names, grown = ([row["chosen"] for row in found[method]] for method in (SEARCHED, AUTO))
        every = sorted(dict.fromkeys(names + grown), key=lambda name: -names.count(name))
        rows += [(target(alpha), name, names.count(name), grown.count(name)) for name in every]
    return ResultTable(
        f"Beyond the paper: {title}, structures chosen",
        "How often each structure had the smallest mean width on the tuning rows: the paper's, and those of the auto split.",
        ("target", "structure", "splits", "auto split"),
        tuple(rows),
    )


def _growth_table(records: Records, options: Options, *, title: str) -> ResultTable:
    rows: list[tuple[Cell, ...]] = []
    for alpha in options.alphas:
        entries = rows_by(records, alpha)[AUTO]
        sizes = [row["n_tune"] for row in entries]
        settled = sum(row["stopped"] == "settled" for row in entries)
        left = Measured.of(row["n"] for row in entries)
        rows.append((target(alpha), Measured.of(sizes), min(sizes), max(sizes), left, settled, len(entries)))
    return ResultTable(
        f"Beyond the paper: {title}, the auto tuning split",
        "How many rows tuning took, how many calibration kept, and in how many splits selection settled before calibration "
        "needed all that was left.",
        ("target", "tuning rows", "least", "most", "calibration rows", "settled", "of"),
        tuple(rows),
    )


def beyond_figures(records: Records, options: Options, folder: Path) -> list[Path]:
    """The gain in steps at each level."""
    bars = {
        f"{target(alpha):.2f}": {step: each[:3] for step, each in gains(records, alpha).items() if step != THREE}
        for alpha in options.alphas
    }
    return figures.gains(bars, folder=folder, name="gain")


def _experiment(name: str, title: str, minutes: float, file: str | None, alphas: tuple[float, ...]) -> Experiment:
    members = CLASSES[name]
    return Experiment(
        name=f"beyond-{name}",
        summary=f"{title}: a stronger class, refit and auto tuning split at the same guarantee, against the paper's DCO.",
        needs=file or "nothing",
        minutes=minutes,
        run_split=partial(run_split, members=members),
        tables=partial(beyond_tables, members=members, title=title),
        figures=beyond_figures,
        missing=None if file is None else needs_file(f"beyond-{name}", file),
        alphas=alphas,
        quick_splits=3,
        part_of="beyond",
    )


EXPERIMENTS = (
    _experiment("diabetes", "Diabetes", 1.0, None, (0.2,)),
    _experiment("california", "California Housing", 5.0, "california_housing.csv.gz", (0.2, 0.1, 0.05)),
    _experiment("concrete", "Concrete", 2.5, "concrete.csv", (0.2, 0.1, 0.05)),
)
