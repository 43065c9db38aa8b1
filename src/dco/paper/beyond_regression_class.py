"""Beyond the paper: a stronger candidate class for its regression data.

Structures are a mean model (trees, boosting, on small data a Gaussian process, and the average of
some) with a score: absolute residual, or the residual over a spread that a forest learnt from
out-of-fold residuals; and a quantile pair for the level.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

import dco
from dco import Points, PointsWithSpread, Quantiles
from dco.datasets import Table
from dco.foundations.arrays import Floats, Integers
from dco.scores import AbsoluteResidual, NormalisedResidual, QuantileResidual, Score

FOLDS = 3
FLOORS = (0.3, 1.0)  # added to the spread, in mean absolute out-of-fold residuals
PAIR = "quantile pair"

Predictor: TypeAlias = Callable[[Integers], Any]  # from row numbers to a prediction record


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
        study="diabetes",
        averaged=("ridge", "support vectors", "gaussian process", "extra trees"),
        fixed="average, residual / (spread + 1)",
        chosen_on="splits with seeds from 1000 on",
    ),
    "california": Class(
        study="california",
        averaged=("histogram boosting", "gradient boosting", "extra trees"),
        fixed="average, residual / (spread + 0.3)",
        chosen_on="the 17,640 districts outside the subsample",
    ),
    "concrete": Class(
        study="concrete",
        averaged=("histogram boosting", "slow gradient boosting"),
        fixed="average, residual / (spread + 1)",
        chosen_on="splits with seeds from 1000 on",
        alone=("gaussian process",),
    ),
}


@dataclass(frozen=True)
class Structure:
    """The average of some mean models, scored by the residual over spread + floor.

    Without a floor the residual is not divided; without models it is the quantile pair.
    """

    models: tuple[str, ...]
    floor: float | None = None


def structures_of(members: Class) -> dict[str, Structure]:
    """Return every structure of a class by its name."""
    groups: dict[str, tuple[str, ...]] = {name: (name,) for name in members.models}
    groups["average"] = members.averaged

    structures: dict[str, Structure] = {}
    for group, models in groups.items():
        structures[f"{group}, absolute residual"] = Structure(models)
        for floor in FLOORS:
            structures[f"{group}, residual / (spread + {floor:g})"] = Structure(models, floor)
    structures[PAIR] = Structure(())
    return structures


def mean_model(name: str, *, n_columns: int, seed: int) -> Any:
    """Make an unfitted regressor by its name."""
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

    def standardise(model: Any) -> Any:
        return TransformedTargetRegressor(
            make_pipeline(StandardScaler(), model), transformer=StandardScaler()
        )

    boosting = partial(
        GradientBoostingRegressor, subsample=0.5, max_features=0.5, random_state=seed
    )
    kernel = ConstantKernel() * Matern(2.0 * np.sqrt(n_columns / 3), nu=1.5) + WhiteKernel(0.05)
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
            150, min_samples_leaf=1 if n_columns < 10 else 3, random_state=seed
        ),
        "ridge": standardise(RidgeCV(np.logspace(-1, 3, 20))),
        "support vectors": standardise(SVR(C=1.0, gamma=0.02)),
        "gaussian process": standardise(GaussianProcessRegressor(kernel, alpha=1e-8)),
    }
    if name not in models:
        raise ValueError(f"there is no mean model {name!r}.")
    return models[name]


# ---- the class, fitted


@dataclass(frozen=True, eq=False)
class Spread:
    """The residual that a forest expects at each new row, and the mean absolute residual."""

    expected: Floats
    unit: float


class Fits:
    """Models fitted on (X, y) when they are first asked for, with their predictions for new rows.

    `held_out` has for each fitted row a prediction by a model that had not seen it: the spread is
    learnt from these.
    """

    def __init__(
        self, X: Floats, y: Floats, X_new: Floats, held_out: Mapping[str, Floats], seed: int
    ) -> None:
        self.X = X
        self.y = y
        self.X_new = X_new
        self.held_out = held_out
        self.seed = seed
        self._means: dict[str, Floats] = {}
        self._spreads: dict[tuple[str, ...], Spread] = {}
        self._pairs: dict[float, Quantiles] = {}

    def predictor(self, structure: Structure, *, alpha: float) -> tuple[Score, Predictor]:
        """Return the structure's score, and what it predicts for new rows by their numbers.

        `alpha` sets the levels of a quantile pair.
        """
        if not structure.models:
            pair = self.pair(alpha)
            return QuantileResidual(), lambda rows: Quantiles(pair.lower[rows], pair.upper[rows])

        mean = self.mean(structure.models)
        if structure.floor is None:
            return AbsoluteResidual(), lambda rows: Points(mean[rows])

        spread = self.spread(structure.models)
        divisor = spread.expected + structure.floor * spread.unit
        return NormalisedResidual(), lambda rows: PointsWithSpread(mean[rows], divisor[rows])

    def mean(self, names: tuple[str, ...]) -> Floats:
        """Average these models' predictions for the new rows."""
        for name in names:
            if name not in self._means:
                model = mean_model(name, n_columns=self.X.shape[1], seed=self.seed)
                with without_convergence_warnings():
                    self._means[name] = model.fit(self.X, self.y).predict(self.X_new)
        return np.asarray(np.mean([self._means[name] for name in names], axis=0))

    def spread(self, names: tuple[str, ...]) -> Spread:
        """Learn the size of residuals by a forest, from held-out predictions."""
        from sklearn.ensemble import RandomForestRegressor

        if names not in self._spreads:
            held_out = np.mean([self.held_out[name] for name in names], axis=0)
            residuals = np.abs(self.y - held_out)
            forest = RandomForestRegressor(
                50, min_samples_leaf=10, max_features=0.5, random_state=self.seed
            )
            forest.fit(np.column_stack([self.X, held_out]), residuals)
            expected = forest.predict(np.column_stack([self.X_new, self.mean(names)]))
            self._spreads[names] = Spread(expected, float(residuals.mean()))
        return self._spreads[names]

    def pair(self, alpha: float) -> Quantiles:
        """Predict the quantiles alpha / 2 and 1 - alpha / 2 at the new rows."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        if alpha not in self._pairs:
            base = HistGradientBoostingRegressor(
                max_iter=150, learning_rate=0.06, max_leaf_nodes=8, random_state=self.seed
            )
            pair = dco.models.QuantilePair(base, alpha=alpha).fit(self.X, self.y)
            self._pairs[alpha] = pair.predict_distribution(self.X_new)
        return self._pairs[alpha]


def fit_class(table: Table, rows: Integers, *, members: Class, seed: int) -> Fits:
    """Fit the class on these rows; predictions are held out by three folds. Of the other rows it
    gets inputs only.
    """
    from sklearn.model_selection import KFold, cross_val_predict

    X = table.X[rows]
    y = table.y[rows]
    folds = KFold(FOLDS, shuffle=True, random_state=seed)
    held_out: dict[str, Floats] = {}
    for name in members.models:
        model = mean_model(name, n_columns=X.shape[1], seed=seed)
        with without_convergence_warnings():
            held_out[name] = np.asarray(cross_val_predict(model, X, y, cv=folds))
    return Fits(X, y, table.X, held_out, seed)


def refit_class(fits: Fits, table: Table, rows: Integers) -> Fits:
    """Fit the class again on the earlier rows and these; for these rows the earlier fits give the
    held-out predictions.
    """
    held_out = {
        name: np.concatenate([earlier, fits.mean((name,))[rows]])
        for name, earlier in fits.held_out.items()
    }
    return Fits(
        X=np.concatenate([fits.X, table.X[rows]]),
        y=np.concatenate([fits.y, table.y[rows]]),
        X_new=table.X,
        held_out=held_out,
        seed=fits.seed,
    )


@contextmanager
def without_convergence_warnings() -> Iterator[None]:
    """Ignore warnings about a kernel parameter at its bound: an input then does not matter."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
