"""What choosing costs: the same n rows, several ways to choose among the same candidates, at the
same level.

Half of the rows train, a quarter tunes and a quarter calibrates. DCO chooses on the tuning rows and
refits on training and tuning rows; so do its folds, and its choice row by row. Joint selection fits
on training and tuning rows at once, and both chooses and calibrates on the calibration rows.
"Hindsight" is split CP with the candidate that is best over all splits.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.estimators import DecoupledRegressor
from dco.foundations.errors import InfeasibleLevelWarning
from dco.guarantees.joint_selection import Method, select_and_calibrate
from dco.guarantees.rules import split_conformal
from dco.models.adapt import predict_record
from dco.models.residual_spread import ResidualSpread
from dco.predictions import Points, PointsWithSpread
from dco.reproduction.datasets.tabular import (
    Table,
    load_california_housing,
    load_concrete,
    load_diabetes,
)
from dco.reproduction.experiment import Experiment, Options, Records, column, needs_file
from dco.reproduction.tables import Cell, ResultTable
from dco.scores.regression import AbsoluteResidual, NormalisedResidual
from dco.scores.score import Score

DATA: dict[str, Callable[[str | None], Table]] = {
    "Diabetes": lambda home: load_diabetes(),
    "Concrete": load_concrete,
    "California": load_california_housing,
}
ROWS, QUICK_ROWS, TEST = (50, 100, 200, 500, 1000, 3000), (50, 100), 40
OURS: dict[str, dict[str, Any]] = {
    "DCO": {},
    "DCO, folds": {"tune_folds": 5},
    "DCO, pointwise": {"selection": "pointwise"},
}
JOINT: dict[str, Method] = {
    "ModSel": "modsel",
    "ModSel-LOO": "modsel-loo",
    "YK-adjust": "yk-adjust",
}


def _models() -> dict[str, Any]:
    from sklearn.linear_model import Ridge
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeRegressor

    bases = {
        "ridge": Ridge(),
        "stiff ridge": Ridge(alpha=30),
        "5 neighbours": KNeighborsRegressor(5),
        "15 neighbours": KNeighborsRegressor(15),
        "tree": DecisionTreeRegressor(max_depth=4, random_state=0),
    }
    plain = {name: make_pipeline(StandardScaler(), base) for name, base in bases.items()}
    spread = make_pipeline(StandardScaler(), KNeighborsRegressor(15))
    return plain | {"ridge with spread": ResidualSpread(plain["ridge"], spread)}


def _candidates() -> list[tuple[str, str, Score, type]]:
    """Name, model, score and record of each candidate."""
    points = [
        (name, name, AbsoluteResidual(), Points)
        for name in _models()
        if name != "ridge with spread"
    ]
    return [*points, ("normalised", "ridge with spread", NormalisedResidual(), PointsWithSpread)]


@dataclass(frozen=True)
class Field:
    """The candidates that every method chooses from: models, and (name, model, score, record) of
    each pair.
    """

    estimator: Callable[..., Any]
    models: Callable[[], dict[str, Any]]
    candidates: Callable[[], list[tuple[str, str, Score, type]]]


NUMBERS = Field(DecoupledRegressor, _models, _candidates)


def selection_split(seed: int, options: Options) -> list[dict[str, Any]]:
    """Every method on the first n rows of a permutation, measured on the same rows at its end."""
    found: list[dict[str, Any]] = []
    for data, load in DATA.items():
        table = load(options.data_home)
        order = np.random.default_rng([seed, 17]).permutation(len(table))
        X, y = table.X[order], (table.y / table.y.std())[order]
        for n in QUICK_ROWS if options.quick else ROWS:
            if n > len(y) - TEST:
                continue
            for alpha in options.alphas:
                rows = methods_rows(
                    NUMBERS, X[:n], y[:n], X[-TEST:], y[-TEST:], alpha=alpha, seed=seed
                )
                found += [{"data": data, "n": n, "alpha": alpha, **row} for row in rows]
    return found


def methods_rows(
    field: Field, X: Any, y: Any, X_new: Any, y_new: Any, *, alpha: float, seed: int
) -> list[dict[str, Any]]:
    """Every method fitted to X and y, measured on the new rows; each candidate alone, by split CP,
    as well.
    """
    found = []

    def measure(method: str, sets: Any) -> None:
        sizes = sets.sizes()
        found.append(
            {
                "method": method,
                "size": float(sizes.mean()),
                "coverage": float(sets.contains(y_new).mean()),
            }
        )

    models, candidates = field.models(), field.candidates()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleLevelWarning)
        for method, options in OURS.items():
            est = field.estimator(models, alpha=alpha, random_state=seed, **options).fit(X, y)
            measure(method, est.predict_set(X_new))
            if method == "DCO":
                roles = est.splits_
        fitting = np.concatenate([roles.train, roles.tune])
        fitted = {name: model.fit(X[fitting], y[fitting]) for name, model in models.items()}
        X_cal, y_cal = X[roles.calibrate], y[roles.calibrate]
        own, new = {}, {}
        for name, model, score, kind in candidates:
            own[name] = score, predict_record(fitted[model], X_cal, kind)
            new[name] = predict_record(fitted[model], X_new, kind)
            measure(
                name,
                score.sets(
                    new[name], split_conformal(score.observed(own[name][1], y_cal), alpha=alpha)
                ),
            )
        for title, method in JOINT.items():
            measure(title, select_and_calibrate(own, y_cal, new, alpha=alpha, method=method))
    return found


def selection_tables(records: Records, options: Options) -> list[ResultTable]:
    """The costs on numbers."""
    text = (
        f"{len(records)} splits, {len(_candidates())} candidates, {TEST} test rows each. n rows "
        f"in all: half train, a "
        "quarter tunes, a quarter calibrates; joint selection trains on three quarters, and "
        "chooses and calibrates on the "
        "last."
    )
    shown = (
        "DCO: mean size in units of the sd of y; others: change in per cent ± half of its 95 % "
        "interval, paired by split."
    )
    full = (
        " 'full': some sets are the whole line. Hindsight: the one candidate that is best "
        "over all splits, by split CP."
    )
    sizes, covers = cost_rows(records)
    return [
        ResultTable.of("What selection costs: size", f"{text} {shown}{full}", sizes),
        ResultTable.of(
            "What selection costs: coverage", f"{text} Mean coverage of the test rows.", covers
        ),
    ]


def cost_rows(
    records: Records, names: Sequence[str] = (*OURS, *JOINT, "hindsight")
) -> tuple[list[dict[str, Cell]], list[dict[str, Cell]]]:
    """Size of each method against that of the first on the same splits, in per cent with a 95 %
    interval, and coverage.
    """
    rows = [row for record in records for row in record.rows]
    sizes: list[dict[str, Cell]] = []
    covers: list[dict[str, Cell]] = []
    for data, n, alpha in dict.fromkeys((row["data"], row["n"], row["alpha"]) for row in rows):
        same = [row for row in rows if (row["data"], row["n"], row["alpha"]) == (data, n, alpha)]
        by = {
            name: [row for row in same if row["method"] == name]
            for name in dict.fromkeys(row["method"] for row in same)
        }
        if "hindsight" in names:
            by["hindsight"] = by[
                min(
                    (name for name in by if name not in names),
                    key=lambda name: _mean(by[name], "size"),
                )
            ]
        where: dict[str, Cell] = {"data": data, "n": n, "target": 1 - alpha}
        first, *others = names
        against = np.asarray(column(by[first], "size"))
        sizes.append(
            {
                **where,
                first: _mean(by[first], "size"),
                **{each: _change(by[each], against) for each in others},
            }
        )
        covers.append({**where, **{each: _mean(by[each], "coverage") for each in names}})
    return sizes, covers


def _mean(rows: list[Any], key: str) -> float:
    return float(np.mean(column(rows, key)))


def _change(rows: list[Any], against: Any) -> str:
    own = np.asarray(column(rows, "size"))
    if not np.isfinite(own).all() or not np.isfinite(against).all():
        return "full"
    change = 100 * (own - against) / against.mean()
    half = 1.96 * change.std(ddof=1) / math.sqrt(len(change)) if len(change) > 1 else math.nan
    return f"{change.mean():+.1f} ± {half:.1f}"


EXPERIMENTS = (
    Experiment(
        name="selection",
        summary="What choosing costs at n = 50 to 3,000: DCO, its folds, row by row, and "
        "selection on the calibration rows.",
        needs="concrete.csv and california_housing.csv.gz",
        minutes=12.0,
        run_split=selection_split,
        tables=selection_tables,
        missing=needs_file("selection", "california_housing.csv.gz"),
        alphas=(0.1,),
    ),
)
