"""Beyond the paper: a stronger class of candidates for its regression data.

The paper's candidates are linear models. Here a structure is a mean model (trees, boosting, on
small data a Gaussian process, or the average of some) with a score: the absolute residual, or the
residual over a spread that a forest learns from out-of-fold residuals. One more structure is a
pair of quantile models, for the level at hand.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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

# From row numbers to the record of predictions that a score needs.
Predictor: TypeAlias = Callable[[Integers], Points | PointsWithSpread | Quantiles]


@dataclass(frozen=True)
class CandidateClass:
    """The mean models that a data set gets, and the structure that is used without a search.

    Attributes
    ----------
    study
        The data set.
    averaged
        Models that are structures one by one, and in their average.
    fixed
        The name of the structure that stands for the class where nothing is searched.
    chosen_on
        The rows on which class and fixed structure were chosen, in words.
    alone
        Models that are structures one by one, and not part of the average.
    is_chosen_on_its_rows
        Whether the rows on which it was chosen are those of the tables.
    """

    study: str
    averaged: tuple[str, ...]
    fixed: str
    chosen_on: str
    alone: tuple[str, ...] = ()
    is_chosen_on_its_rows: bool = False

    @property
    def models(self) -> tuple[str, ...]:
        """The names of all mean models."""
        return self.averaged + self.alone


CLASSES = {
    "diabetes": CandidateClass(
        study="diabetes",
        averaged=("ridge", "support vectors", "gaussian process", "extra trees"),
        fixed="average, residual / (spread + 1)",
        chosen_on="the same rows, in splits with seeds from 1000 on",
        is_chosen_on_its_rows=True,
    ),
    "california": CandidateClass(
        study="california",
        averaged=("histogram boosting", "gradient boosting", "extra trees"),
        fixed="average, residual / (spread + 0.3)",
        chosen_on="the 17,640 districts outside the subsample",
    ),
    "concrete": CandidateClass(
        study="concrete",
        averaged=("histogram boosting", "slow gradient boosting"),
        fixed="average, residual / (spread + 1)",
        chosen_on="the same rows, in splits with seeds from 1000 on",
        is_chosen_on_its_rows=True,
        alone=("gaussian process",),
    ),
}


@dataclass(frozen=True)
class Structure:
    """The average of some mean models with the score |y - mean| / (spread + floor).

    Without a floor the score is |y - mean|; without models the structure is the quantile pair.
    """

    models: tuple[str, ...]
    floor: float | None = None


QUANTILE_PAIR = Structure(models=())


def structures_of(candidate_class: CandidateClass) -> dict[str, Structure]:
    """List the candidates of a class by name: each mean model, and their average, with each score.

    Example: "average, absolute residual", "ridge, residual / (spread + 0.3)". One more candidate is
    a pair of quantile models, which has no mean model.
    """
    models_of_mean: dict[str, tuple[str, ...]] = {name: (name,) for name in candidate_class.models}
    models_of_mean["average"] = candidate_class.averaged

    structures: dict[str, Structure] = {}
    for mean, models in models_of_mean.items():
        structures[f"{mean}, absolute residual"] = Structure(models)
        for floor in FLOORS:
            structures[f"{mean}, residual / (spread + {floor:g})"] = Structure(models, floor)
    structures[PAIR] = QUANTILE_PAIR
    return structures


# ---- mean models


def mean_model(name: str, *, n_columns: int, seed: int) -> Any:
    """Make an unfitted regressor of scikit-learn by its name in a candidate class.

    `n_columns` is the number of inputs: with few of them some models are set otherwise.
    """
    from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
    from sklearn.linear_model import RidgeCV
    from sklearn.svm import SVR

    match name:
        case "histogram boosting":
            return HistGradientBoostingRegressor(
                max_iter=500,
                learning_rate=0.05,
                max_leaf_nodes=8,
                min_samples_leaf=10,
                random_state=seed,
            )
        case "gradient boosting":
            return gradient_boosting(300, learning_rate=0.08, max_depth=5, seed=seed)
        case "slow gradient boosting":
            return gradient_boosting(400, learning_rate=0.07, max_depth=4, seed=seed)
        case "extra trees":
            smallest_leaf = 1 if n_columns < 10 else 3
            return ExtraTreesRegressor(150, min_samples_leaf=smallest_leaf, random_state=seed)
        case "ridge":
            return standardise(RidgeCV(np.logspace(-1, 3, 20)))
        case "support vectors":
            return standardise(SVR(C=1.0, gamma=0.02))
        case "gaussian process":
            return standardise(gaussian_process(n_columns))
    raise ValueError(f"there is no mean model {name!r}.")


def gradient_boosting(n_trees: int, *, learning_rate: float, max_depth: int, seed: int) -> Any:
    """Make gradient boosting in which each tree sees half of the rows and half of the columns."""
    from sklearn.ensemble import GradientBoostingRegressor

    return GradientBoostingRegressor(
        n_estimators=n_trees,
        learning_rate=learning_rate,
        max_depth=max_depth,
        subsample=0.5,
        max_features=0.5,
        random_state=seed,
    )


def gaussian_process(n_columns: int) -> Any:
    """Make a Gaussian process with a Matérn kernel and noise, for standardised rows.

    Distances between such rows grow with the root of the number of columns, and so does the length
    scale that the fit starts from.
    """
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    length_scale = 2.0 * np.sqrt(n_columns / 3)
    kernel = ConstantKernel() * Matern(length_scale, nu=1.5) + WhiteKernel(0.05)
    return GaussianProcessRegressor(kernel, alpha=1e-8)


def standardise(model: Any) -> Any:
    """Let a model see inputs and targets with mean 0 and standard deviation 1."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return TransformedTargetRegressor(
        make_pipeline(StandardScaler(), model), transformer=StandardScaler()
    )


# ---- the class, fitted


@dataclass(frozen=True, eq=False)
class Spread:
    """How large residuals are: expected at each new row, and on average over the fitted rows."""

    expected: Floats
    mean_residual: float


class FittedClass:
    """The models of a class on rows (X, y), and what they predict for the rows `X_new`.

    Each model is fitted when it is first asked for, and its predictions are kept. `held_out` has
    by model a prediction for each fitted row, by a model that had not seen that row: the size of
    residuals is learnt from these.
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

    def score_and_predictor(self, structure: Structure, *, alpha: float) -> tuple[Score, Predictor]:
        """Return the score of a candidate, and a function that predicts what the score needs.

        The function takes numbers of rows of `X_new`. Three kinds of candidates have a score each:

            a pair of quantile models     max(lower - y, y - upper)
            mean models without a floor   |y - mean|
            mean models with a floor      |y - mean| / (spread + floor)

        The pair predicts the quantiles alpha / 2 and 1 - alpha / 2; the others ignore `alpha`.
        """
        if structure == QUANTILE_PAIR:
            pair = self.quantile_pair(alpha)

            def predict_quantiles(rows: Integers) -> Quantiles:
                return Quantiles(pair.lower[rows], pair.upper[rows])

            return QuantileResidual(), predict_quantiles

        mean = self.mean(structure.models)
        if structure.floor is None:

            def predict_points(rows: Integers) -> Points:
                return Points(mean[rows])

            return AbsoluteResidual(), predict_points

        # The floor of a structure is in units of the mean residual.
        spread = self.spread(structure.models)
        divisor = spread.expected + structure.floor * spread.mean_residual

        def predict_with_spread(rows: Integers) -> PointsWithSpread:
            return PointsWithSpread(mean[rows], divisor[rows])

        return NormalisedResidual(), predict_with_spread

    def mean(self, models: tuple[str, ...]) -> Floats:
        """Average the predictions of these models for the new rows."""
        for name in models:
            if name not in self._means:
                model = mean_model(name, n_columns=self.X.shape[1], seed=self.seed)
                with without_convergence_warnings():
                    self._means[name] = model.fit(self.X, self.y).predict(self.X_new)
        return np.asarray(np.mean([self._means[name] for name in models], axis=0))

    def spread(self, models: tuple[str, ...]) -> Spread:
        """Predict how large the residual |y - mean| is at each new row, for an average of models.

        A random forest learns it from the residuals of the fitted rows, where the mean is that of
        held-out predictions. Its inputs are the columns of X and the mean. Results are kept.
        """
        from sklearn.ensemble import RandomForestRegressor

        if models not in self._spreads:
            forest = RandomForestRegressor(
                50, min_samples_leaf=10, max_features=0.5, random_state=self.seed
            )
            held_out_mean = np.mean([self.held_out[name] for name in models], axis=0)
            residuals = np.abs(self.y - held_out_mean)
            forest.fit(np.column_stack([self.X, held_out_mean]), residuals)

            inputs = np.column_stack([self.X_new, self.mean(models)])
            expected = forest.predict(inputs)
            self._spreads[models] = Spread(expected, float(residuals.mean()))
        return self._spreads[models]

    def quantile_pair(self, alpha: float) -> Quantiles:
        """Predict the quantiles alpha / 2 and 1 - alpha / 2 at the new rows."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        if alpha not in self._pairs:
            base = HistGradientBoostingRegressor(
                max_iter=150, learning_rate=0.06, max_leaf_nodes=8, random_state=self.seed
            )
            pair = dco.models.QuantilePair(base, alpha=alpha).fit(self.X, self.y)
            self._pairs[alpha] = pair.predict_distribution(self.X_new)
        return self._pairs[alpha]


def fit_class(
    table: Table, rows: Integers, *, candidate_class: CandidateClass, seed: int
) -> FittedClass:
    """Fit the models of a class on some rows of a table; they predict for all rows of it.

    For the fitted rows there are also held-out predictions, by models that had not seen the row:
    they come from cross-validation. The targets of other rows are not looked at.
    """
    from sklearn.model_selection import KFold, cross_val_predict

    X = table.X[rows]
    y = table.y[rows]
    folds = KFold(FOLDS, shuffle=True, random_state=seed)
    held_out: dict[str, Floats] = {}
    for name in candidate_class.models:
        model = mean_model(name, n_columns=X.shape[1], seed=seed)
        with without_convergence_warnings():
            held_out[name] = np.asarray(cross_val_predict(model, X, y, cv=folds))
    return FittedClass(X=X, y=y, X_new=table.X, held_out=held_out, seed=seed)


def refit_class(fitted: FittedClass, table: Table, more_rows: Integers) -> FittedClass:
    """Fit the models of a class again, on the rows of an earlier fit and on `more_rows`.

    `more_rows` are row numbers of the same table. Held-out predictions for them, by models that had
    not seen them, are simply those of the earlier fit; for the earlier rows they stay as they are.
    """
    held_out: dict[str, Floats] = {}
    for name, of_earlier_rows in fitted.held_out.items():
        of_more_rows = fitted.mean((name,))[more_rows]
        held_out[name] = np.concatenate([of_earlier_rows, of_more_rows])
    return FittedClass(
        X=np.concatenate([fitted.X, table.X[more_rows]]),
        y=np.concatenate([fitted.y, table.y[more_rows]]),
        X_new=table.X,
        held_out=held_out,
        seed=fitted.seed,
    )


@contextmanager
def without_convergence_warnings() -> Iterator[None]:
    """Ignore the warning that a kernel parameter is at its bound: that input does not matter."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
