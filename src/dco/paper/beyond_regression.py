"""Beyond the paper on its regression data: a stronger class, refit and a tuning split that grows,
at the same level.

Same splits, same levels, same statement (marginal coverage by split CP) as the paper's DCO.
Structures are a mean model (trees, boosting, on small data a Gaussian process, and the average of
some) with a score: absolute residual, or the residual over a spread that a forest learnt from
out-of-fold residuals; and a quantile pair for the level.

The class and the structure called "fixed" were chosen on rows or seeds that no split here uses: for
California Housing on the 17,640 districts outside the subsample, for Concrete and Diabetes on
splits with seeds from 1000 on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from dco.datasets import Table
from dco.foundations.arrays import Floats, Integers
from dco.paper import figures
from dco.paper.coverage_z import bonferroni_point, own_law, target
from dco.paper.experiment import Experiment, Options, Records, column, needs_file, rows_by
from dco.paper.growing_split import grow_tuning_split
from dco.paper.methods import METHODS, TABLE_ROWS, ByRole, Given
from dco.paper.paired import paired_comparison
from dco.paper.regression import (
    density_candidate,
    load_rows,
    on_roles,
    paper_fits,
    paper_split,
    recorded,
)
from dco.paper.regression_tables import STUDIES
from dco.paper.tables import Cell, Measured, ResultTable
from dco.predictions import Points, PointsWithSpread, Prediction, Quantiles
from dco.rows.splits import Splits
from dco.scores.regression import AbsoluteResidual, NormalisedResidual, QuantileResidual
from dco.scores.score import Score
from dco.tuning.search import Candidates

BASE = "DCO (paper's class)"
SEARCHED = "stronger class, searched, refit"
AUTO = f"{SEARCHED}, auto tuning split"
FOLDS = 3
WHOLE = 20  # a multiple of 1 / alpha at all levels of these tables
FLOORS = (0.3, 1.0)  # added to the spread, in mean absolute out-of-fold residuals


@dataclass(frozen=True)
class Class:
    """Which mean models a data set gets, and the structure that stands for the class when nothing
    is searched.

    `averaged` models are structures one by one and in their average; those `alone` are offered to
    the search only.
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
        "diabetes",
        ("ridge", "support vectors", "gaussian process", "extra trees"),
        "average, residual / (spread + 1)",
        "splits with seeds from 1000 on",
    ),
    "california": Class(
        "california",
        ("histogram boosting", "gradient boosting", "extra trees"),
        "average, residual / (spread + 0.3)",
        "the 17,640 districts outside the subsample",
    ),
    "concrete": Class(
        "concrete",
        ("histogram boosting", "slow gradient boosting"),
        "average, residual / (spread + 1)",
        "splits with seeds from 1000 on",
        alone=("gaussian process",),
    ),
}


def mean_model(name: str, *, columns: int, seed: int) -> Any:
    """An unfitted regressor by its name."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.ensemble import (
        ExtraTreesRegressor,
        GradientBoostingRegressor,
        HistGradientBoostingRegressor,
    )
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVR

    def standardised(model: Any) -> Any:
        return TransformedTargetRegressor(
            make_pipeline(StandardScaler(), model), transformer=StandardScaler()
        )

    boosting = partial(
        GradientBoostingRegressor, subsample=0.5, max_features=0.5, random_state=seed
    )
    kernel = ConstantKernel() * Matern(2.0 * np.sqrt(columns / 3), nu=1.5) + WhiteKernel(0.05)
    models = {
        "histogram boosting": HistGradientBoostingRegressor(
            max_iter=500,
            learning_rate=0.05,
            max_leaf_nodes=8,
            min_samples_leaf=10,
            random_state=seed,
        ),
        "gradient boosting": boosting(n_estimators=300, learning_rate=0.08, max_depth=5),
        "slow gradient boosting": boosting(n_estimators=400, learning_rate=0.07, max_depth=4),
        "extra trees": ExtraTreesRegressor(
            150, min_samples_leaf=1 if columns < 10 else 3, random_state=seed
        ),
        "ridge": standardised(RidgeCV(np.logspace(-1, 3, 20))),
        "support vectors": standardised(SVR(C=1.0, gamma=0.02)),
        "gaussian process": standardised(GaussianProcessRegressor(kernel, alpha=1e-8)),
    }
    if name not in models:
        raise ValueError(f"there is no mean model {name!r}.")
    return models[name]


@dataclass(frozen=True)
class Average:
    """The average of some mean models, scored by residual over spread + floor (None: no spread); no
    model: the pair.
    """

    models: tuple[str, ...]
    floor: float | None = None


PAIR = "quantile pair"


def structures(members: Class) -> dict[str, Average]:
    """Every structure of the class by its name: models and their average, with and without a
    spread; the quantile pair.
    """
    groups = {name: (name,) for name in members.models} | {"average": members.averaged}
    found = {}
    for group, models in groups.items():
        found[f"{group}, absolute residual"] = Average(models)
        for floor in FLOORS:
            found[f"{group}, residual / (spread + {floor:g})"] = Average(models, floor)
    return found | {PAIR: Average(())}


@dataclass(frozen=True, eq=False)
class Fits:
    """Models fitted on the rows X, y when they are first asked for; their predictions for the
    inputs `new` are kept.

    `held_out` has for each of the rows a prediction by a model that had not seen it: the spread is
    learnt from these.
    """

    X: Floats
    y: Floats
    new: Floats
    held_out: Mapping[str, Floats]
    seed: int
    kept: dict[Any, Any] = field(default_factory=dict)

    def mean(self, names: tuple[str, ...]) -> Floats:
        """The average of these models' predictions for the new inputs."""
        return np.asarray(
            np.mean([self._once(name, partial(self._predicted, name)) for name in names], axis=0)
        )

    def spread(self, names: tuple[str, ...]) -> tuple[Floats, float]:
        """The size of residual that a forest expects at the new inputs, and the mean absolute
        held-out residual.
        """
        return self._once(names, partial(self._spread, names))  # type: ignore[no-any-return]

    def pair(self, alpha: float) -> Quantiles:
        """Quantiles alpha / 2 and 1 - alpha / 2 at the new inputs."""
        return self._once(alpha, partial(self._pair, alpha))  # type: ignore[no-any-return]

    def predict(self, structure: Average, *, alpha: float) -> tuple[Score, Prediction]:
        """The structure's score, and what it predicts for the new inputs; `alpha` sets the levels
        of a quantile pair.
        """
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
        forest = RandomForestRegressor(
            50, min_samples_leaf=10, max_features=0.5, random_state=self.seed
        )
        forest.fit(np.column_stack([self.X, mean]), residuals)
        return forest.predict(np.column_stack([self.new, self.mean(names)])), float(
            residuals.mean()
        )

    def _pair(self, alpha: float) -> Quantiles:
        from sklearn.ensemble import HistGradientBoostingRegressor

        from dco.models.quantile_pair import QuantilePair

        base = HistGradientBoostingRegressor(
            max_iter=150, learning_rate=0.06, max_leaf_nodes=8, random_state=self.seed
        )
        return QuantilePair(base, alpha=alpha).fit(self.X, self.y).predict_distribution(self.new)


def first_fits(table: Table, rows: Integers, *, members: Class, seed: int) -> Fits:
    """The class on these rows; predictions held out by three folds. Of the other rows it gets
    inputs only.
    """
    from sklearn.model_selection import KFold, cross_val_predict

    X, y = table.X[rows], table.y[rows]
    folds = KFold(FOLDS, shuffle=True, random_state=seed)
    held_out = {}
    for name in members.models:
        model = mean_model(name, columns=X.shape[1], seed=seed)
        held_out[name] = np.asarray(_quietly(cross_val_predict, model, X, y, cv=folds))
    return Fits(X, y, table.X, held_out, seed)


def refits(earlier: Fits, table: Table, rows: Integers) -> Fits:
    """The same on the earlier rows and these; for these rows the earlier fits give the held-out
    predictions.
    """
    X, y = np.concatenate([earlier.X, table.X[rows]]), np.concatenate([earlier.y, table.y[rows]])
    held_out = {
        name: np.concatenate([known, earlier.mean((name,))[rows]])
        for name, known in earlier.held_out.items()
    }
    return Fits(X, y, table.X, held_out, earlier.seed)


def _quietly(call: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """Without warnings about a kernel parameter at its bound, which only says that an input does
    not matter.
    """
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return call(*args, **keywords)


def reserve(calibrate: int) -> int:
    """Half of the calibration rows, or a few more so that (m + 1) (1 - alpha) is whole and no part
    of a rank is wasted.
    """
    return -(-(calibrate // 2 + 1) // WHOLE) * WHOLE - 1


def grown_split(
    fits: Fits, table: Table, splits: Splits, *, members: Class, alpha: float, seed: int
) -> tuple[Splits, str]:
    """The split whose tuning part grew until selection had settled at this level, and why it
    stopped ("settled", "limit").

    Rows are taken from tune, then from calibrate, in the order in which the split dealt them: a
    fixed random order. The verdict sees the targets of the rows taken and no others, so the tuning
    size is a stopping time and coverage has the law of the calibration rows that are left.
    Calibration keeps at least `reserve` rows.
    """
    offered = {name: fits.predict(each, alpha=alpha) for name, each in structures(members).items()}

    def candidates_on(rows: Integers) -> tuple[Candidates, Floats]:
        return {
            name: (score, prediction.take(rows)) for name, (score, prediction) in offered.items()
        }, table.y[rows]

    allocation = grow_tuning_split(
        np.concatenate([splits.tune, splits.calibrate]),
        candidates_on,
        alpha=alpha,
        seed=seed,
        calibrate_size=reserve(len(splits.calibrate)),
    )
    return Splits(
        splits.train, allocation.tune, allocation.calibrate, splits.test, seed=splits.seed
    ), allocation.reason


def run_split(seed: int, options: Options, *, members: Class) -> list[dict[str, Any]]:
    """The paper's DCO and the stronger class on one split, with and without search, refit and a
    tuning part that grows.
    """
    table = load_rows(members.study, options.data_home)
    splits = paper_split(len(table), seed)
    unit = float(table.y[splits.train].std())
    priors, _ = paper_fits(table, splits, seed=seed, draws=STUDIES[members.study].draws)
    linear = {name: density_candidate(name, model, table, splits) for name, model in priors.items()}
    fits = first_fits(table, splits.train, members=members, seed=seed)
    # by the number of tuning rows, which are the first ones of a fixed order
    refitted: dict[int, Fits] = {}
    dco, dco_fixed = METHODS["dco_warmstart"], TABLE_ROWS["DCO, φ fixed"]
    rows: list[dict[str, Any]] = [{"sizes": splits.sizes}]
    for alpha in options.alphas:
        grown, reason = grown_split(fits, table, splits, members=members, alpha=alpha, seed=seed)
        for dealt in (splits, grown):
            if len(dealt.tune) not in refitted:
                refitted[len(dealt.tune)] = refits(fits, table, dealt.tune)
        on = partial(class_rows, fits, table, members=members, alpha=alpha)
        refit, auto = (on(dealt, refit=refitted[len(dealt.tune)]) for dealt in (splits, grown))
        given = replace(refit, refit=None)
        planned = {
            BASE: (dco, Given(linear, next(iter(linear)), alpha)),
            "stronger class, fixed": (dco_fixed, given),
            "stronger class, fixed, refit": (dco_fixed, refit),
            "stronger class, searched": (dco, given),
            SEARCHED: (dco, refit),
            f"{SEARCHED}, PAC": (METHODS["dco_pac"], refit),
            AUTO: (dco, auto),
        }
        choices = {title: (method, method(seen)) for title, (method, seen) in planned.items()}
        for row in recorded(choices, alpha=alpha, unit=unit):
            dealt, stopped = (grown, reason) if row["method"] == AUTO else (splits, "")
            rows.append(row | {"n_tune": len(dealt.tune), "stopped": stopped})
    return rows


def class_rows(
    fits: Fits,
    table: Table,
    splits: Splits,
    *,
    members: Class,
    alpha: float,
    refit: Fits | None = None,
) -> Given:
    """Every structure of the class, as the methods of the registry look at them; `refit` has the
    same on more rows.
    """

    def on_split(fits: Fits, name: str) -> ByRole:
        score, prediction = fits.predict(offered[name], alpha=alpha)
        return on_roles(name, score, prediction.take, table.y, splits)

    offered = structures(members)
    candidates = {name: on_split(fits, name) for name in offered}
    return Given(
        candidates,
        members.fixed,
        alpha,
        refit=None if refit is None else cache(partial(on_split, refit)),
    )


# ---- tables --------------------------------------------------------------------------------------
# --------------------

THREE = "class, refit and search"
STEPS = (
    ("class", "stronger class, fixed", BASE),
    ("refit", "stronger class, fixed, refit", "stronger class, fixed"),
    ("search", SEARCHED, "stronger class, fixed, refit"),
    (THREE, SEARCHED, BASE),
    ("auto tuning split", AUTO, SEARCHED),
    ("all together", AUTO, BASE),
)


def beyond_tables(
    records: Records, options: Options, *, members: Class, title: str
) -> list[ResultTable]:
    """Coverage and width of each row, the gain in steps, which structures were chosen, and how far
    tuning grew.
    """
    main: list[dict[str, Cell]] = []
    gain: list[dict[str, Cell]] = []
    chosen: list[dict[str, Cell]] = []
    growth: list[dict[str, Cell]] = []
    for alpha in options.alphas:
        found, level = rows_by(records, alpha=alpha), target(alpha)
        for method, rows in found.items():
            expected, z = own_law(rows)
            measured = {key: Measured.of(column(rows, key)) for key in ("coverage", "width", "p95")}
            main.append(
                {
                    "target": level,
                    "method": method,
                    "guarantee": str(rows[0]["guarantee"]),
                    "tuning rows": round(float(np.mean(column(rows, "n_tune")))),
                    "coverage": measured["coverage"],
                    "by law": expected,
                    "z": z,
                    "width": measured["width"],
                    "P95": measured["p95"],
                }
            )
        gain += [
            {
                "target": level,
                "step": step,
                "narrower %": each,
                "low %": low,
                "high %": high,
                "p": p,
            }
            for step, (each, low, high, p) in gains(records, alpha).items()
        ]
        given, grown = ([row["chosen"] for row in found[method]] for method in (SEARCHED, AUTO))
        chosen += [
            {
                "target": level,
                "structure": name,
                "splits": given.count(name),
                "auto split": grown.count(name),
            }
            for name in sorted(dict.fromkeys(given + grown), key=lambda name: -given.count(name))
        ]
        sizes = [row["n_tune"] for row in found[AUTO]]
        growth.append(
            {
                "target": level,
                "tuning rows": Measured.of(sizes),
                "least": min(sizes),
                "most": max(sizes),
                "calibration rows": Measured.of(row["n"] for row in found[AUTO]),
                "settled": sum(row["stopped"] == "settled" for row in found[AUTO]),
                "of": len(sizes),
            }
        )
    return [
        ResultTable.of(
            f"Beyond the paper: {title}",
            f"{len(records)} splits. Same rows, same level, same rule as the paper's DCO; only "
            f"the candidate class, refit, "
            "search and the cut of tune + calibrate differ. The class and its fixed structure "
            f"({members.fixed}) were chosen on {members.chosen_on}. Models: "
            f"{', '.join(members.models)}; and a quantile "
            "pair of boosted trees. Auto tuning split: tuning takes rows until selection has "
            "settled (expected regret at "
            "most 1 % of the width), or until about half of the paper's calibration rows are "
            "left; 'tuning rows' is the "
            "mean over splits. z against the Beta-binomial law of each split's own rank and "
            "calibration rows: |z| below "
            f"{bonferroni_point(len(main)):.2f} in all {len(main)} rows with probability 99 %. "
            f"Widths in standard "
            "deviations of the split's training targets.",
            main,
        ),
        ResultTable.of(
            f"Beyond the paper: {title}, the gain in steps",
            "How much narrower in % of the mean width of the paper's DCO, with paired Student 95 "
            "% intervals over these "
            "splits and Wilcoxon's p. Class: the fixed structure of the stronger class in place "
            "of the paper's DCO. Refit: "
            "the same structure refitted on train + tune. Search: the structure chosen on tuning "
            "rows in place of the fixed "
            "one. Auto tuning split: the same search and refit with a tuning part that grew until "
            "selection had settled.",
            gain,
            digits=2,
        ),
        ResultTable.of(
            f"Beyond the paper: {title}, structures chosen",
            "How often each structure had the smallest mean width on the tuning rows: the "
            "paper's, and those of the auto "
            "split.",
            chosen,
        ),
        ResultTable.of(
            f"Beyond the paper: {title}, the auto tuning split",
            "How many rows tuning took, how many calibration kept, and in how many splits "
            "selection settled before "
            "calibration needed all that was left.",
            growth,
        ),
    ]


def gains(records: Records, alpha: float) -> dict[str, tuple[float, float, float, float]]:
    """For each step (gain, low, high, p) in % of the mean width of the paper's DCO; positive is
    narrower.
    """
    widths = {
        method: column(rows, "width") for method, rows in rows_by(records, alpha=alpha).items()
    }
    base = float(np.mean(widths[BASE]))
    found = {}
    for step, method, against in STEPS:
        each = paired_comparison(widths[against], widths[method])
        found[step] = (
            100 * each.mean_difference / base,
            100 * each.low / base,
            100 * each.high / base,
            each.p_value,
        )
    return found


def beyond_figures(records: Records, options: Options, folder: Path) -> list[Path]:
    """The gain in steps at each level."""
    bars = {
        f"{target(alpha):.2f}": {
            step: each[:3] for step, each in gains(records, alpha).items() if step != THREE
        }
        for alpha in options.alphas
    }
    return figures.gains(bars, folder=folder, name="gain")


def _experiment(
    name: str, title: str, minutes: float, file: str | None, alphas: tuple[float, ...]
) -> Experiment:
    members = CLASSES[name]
    return Experiment(
        name=f"beyond-{name}",
        summary=f"{title}: a stronger class, refit and auto tuning split at the same guarantee, "
        f"against the paper's DCO.",
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
    _experiment(
        "california", "California Housing", 5.0, "california_housing.csv.gz", (0.2, 0.1, 0.05)
    ),
    _experiment("concrete", "Concrete", 2.5, "concrete.csv", (0.2, 0.1, 0.05)),
)
