"""The default models, each a pipeline with its own preparation.

The preparation is fitted where the model is fitted, so it never sees a calibration row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.foundations.tables import is_frame

# Compared in benchmarks/tables.py.
CLASSIFIERS = ("linear", "forest", "boosting")
REGRESSORS = (
    "linear",
    "linear-log",
    "boosting",
    "boosting-log",
    "shallow",
    "forest",
    "quantiles",
    "spread",
    "smooth",
    "networks",
)
# These need columns of unit variance without gaps; the others are trees.
NEED_SCALING = ("linear", "linear-log", "smooth", "networks")
# Rarer categories of a column share one code, so that an identifier cannot flood a model.
_MOST_CATEGORIES = 30
_RIDGE_PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
_TREES_TIMES_RATE = 24  # of boosting; scikit-learn's defaults have 100 trees times 0.1 = 10
# Codes of categories are whole numbers from 0. These stand for other cells.
_UNKNOWN_CATEGORY = -1
_MISSING_CATEGORY = -2


@dataclass(frozen=True)
class Columns:
    """The columns that hold numbers and those that hold categories, by name or by position."""

    numbers: list[Any]
    categories: list[Any]


@dataclass(frozen=True)
class Effort:
    """How much time the default models for numbers may take.

    A Gaussian process rests on at most `process_rows` rows, and `n_networks` networks take
    `network_steps` steps each; 0 means that there is none.
    """

    process_rows: int = 0
    n_networks: int = 0
    network_steps: int = 0
    boosting_rounds: int = 100


EFFORTS = {
    "quick": Effort(),
    "usual": Effort(process_rows=1500, n_networks=2, network_steps=1500, boosting_rounds=300),
    "thorough": Effort(process_rows=4000, n_networks=4, network_steps=8000, boosting_rounds=600),
}


@dataclass(frozen=True)
class Recipe:
    """What default models are made for.

    Attributes
    ----------
    of_classes
        Whether the targets are labels.
    alpha
        The level for which quantiles are predicted.
    columns
        The columns of a table; None for an array of numbers.
    log
        The logarithm that suits the targets, "log" or "log1p"; None if none does.
    is_small
        Whether rows are so few that smaller models do as well.
    """

    of_classes: bool
    alpha: float
    columns: Columns | None = None
    log: str | None = None
    is_small: bool = False
    effort: Effort = EFFORTS["usual"]


def check_default_names(names: Iterable[str], *, of_classes: bool) -> None:
    """Refuse names that no default model has."""
    offered = CLASSIFIERS if of_classes else REGRESSORS
    task = "classification" if of_classes else "regression"
    for name in names:
        if name not in offered:
            raise ValueError(
                f"there is no default model {name!r} for {task}: choose from {', '.join(offered)}."
            )


def make_default_models(
    names: Iterable[str], X: Any, *, of_classes: bool, alpha: float = 0.1
) -> dict[str, Any]:
    """Make unfitted default models for the columns of a table, by their names.

    `alpha` is the level for which ``quantiles`` predicts its two quantiles.
    """
    listed_names = list(names)
    check_default_names(listed_names, of_classes=of_classes)
    recipe = Recipe(of_classes=of_classes, alpha=alpha, columns=columns_of(X))
    return {name: make_default_model(name, recipe) for name in listed_names}


def make_default_model(name: str, recipe: Recipe) -> Any:
    """Make an unfitted pipeline: the preparation of the columns, then the model of this name."""
    from sklearn.pipeline import Pipeline

    model = _classifier(name) if recipe.of_classes else _regressor(name, recipe)
    steps = prepare_columns(recipe.columns, needs_scaling=name in NEED_SCALING)
    return Pipeline([*steps, ("model", model)])


def _classifier(name: str) -> Any:
    """Make the default classifier of this name."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    match name:
        case "linear":
            return LogisticRegression(max_iter=2000)
        case "forest":
            return RandomForestClassifier(100)
        case "boosting":
            return HistGradientBoostingClassifier()
    raise KeyError(name)


def _regressor(name: str, recipe: Recipe) -> Any:
    """Make the default regressor of this name, for the targets and the number of rows.

    "...-log" models learn the logarithm of the target. So do most of the others where the recipe
    has a logarithm that suits the targets.
    """
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.ensemble import HistGradientBoostingRegressor as Boosting
    from sklearn.linear_model import RidgeCV

    from dco.models import (
        QuantilePair,
        ResidualSpread,
        SmallGaussianProcess,
        SmallNetworks,
        TransformedTarget,
    )

    def learn_log(model: Any) -> Any:
        return TransformedTarget(model, recipe.log or "log1p")

    def learn_log_if_suitable(model: Any) -> Any:
        return model if recipe.log is None else learn_log(model)

    match name:
        case "linear":
            return RidgeCV(alphas=_RIDGE_PENALTIES)
        case "linear-log":
            return learn_log(RidgeCV(alphas=_RIDGE_PENALTIES))
        case "boosting":
            return _boosting(recipe.effort)
        case "boosting-log":
            return learn_log(_boosting(recipe.effort))
        case "smooth":
            return learn_log_if_suitable(SmallGaussianProcess(recipe.effort.process_rows))
        case "networks":
            networks = SmallNetworks(recipe.effort.n_networks, steps=recipe.effort.network_steps)
            return learn_log_if_suitable(networks)
        case "shallow":
            n_trees = 60 if recipe.is_small else 200
            shallow = Boosting(
                max_iter=n_trees, max_leaf_nodes=8, min_samples_leaf=5, max_features=0.5
            )
            return learn_log_if_suitable(shallow)
        case "forest":
            n_trees = 30 if recipe.is_small else 50
            return learn_log_if_suitable(ExtraTreesRegressor(n_trees, min_samples_leaf=2))
        case "quantiles":
            return QuantilePair(Boosting(max_leaf_nodes=8), alpha=recipe.alpha)
        case "spread":
            centre = Boosting(learning_rate=0.05, max_iter=200, max_leaf_nodes=15)
            spread = Boosting(max_iter=60, max_leaf_nodes=8)
            centre = learn_log_if_suitable(centre)
            return ResidualSpread(centre, spread, cv=3, floor=0.05, logs=True)
    raise KeyError(name)


def _boosting(effort: Effort) -> Any:
    """Make boosting as scikit-learn has it, or with more trees that each correct less.

    With more trees the learning rate falls, so that trees times rate, which decides how closely the
    training rows are followed, stays the same.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    if effort == EFFORTS["quick"]:
        return HistGradientBoostingRegressor()
    return HistGradientBoostingRegressor(
        max_iter=effort.boosting_rounds,
        learning_rate=_TREES_TIMES_RATE / effort.boosting_rounds,
        max_features=0.5,
        min_samples_leaf=10,
    )


def prepare_columns(columns: Columns | None, *, needs_scaling: bool) -> list[tuple[str, Any]]:
    """Make the steps of a pipeline that prepare the columns of a table for a model.

    With `needs_scaling` they are for linear and smooth models, otherwise for trees, which handle
    missing numbers and need no scaling. `columns` are None for an array of numbers.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline

    from dco.models.plain_columns import PlainColumns

    if columns is None:
        return _scaling_steps() if needs_scaling else []

    transformers: list[tuple[str, Any, list[Any]]] = []
    if columns.numbers:
        numbers = Pipeline(_scaling_steps()) if needs_scaling else PlainColumns(numbers=True)
        transformers.append(("numbers", numbers, columns.numbers))
    if columns.categories:
        encoder = _one_hot_encoder() if needs_scaling else _whole_number_encoder()
        categories = Pipeline([("plain", PlainColumns()), ("encode", encoder)])
        transformers.append(("texts", categories, columns.categories))
    return [("columns", ColumnTransformer(transformers))]


def _scaling_steps() -> list[tuple[str, Any]]:
    """Make the steps that put the median for missing numbers, and scale to unit variance."""
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import StandardScaler

    return [
        ("impute", SimpleImputer(strategy="median", keep_empty_features=True)),
        ("scale", StandardScaler()),
    ]


def _one_hot_encoder() -> Any:
    """Make an encoder that gives each category a column; missing is a category too."""
    from sklearn.preprocessing import OneHotEncoder

    return OneHotEncoder(
        handle_unknown="infrequent_if_exist",
        max_categories=_MOST_CATEGORIES,
        sparse_output=False,
    )


def _whole_number_encoder() -> Any:
    """Make an encoder that gives each category a whole number."""
    from sklearn.preprocessing import OrdinalEncoder

    return OrdinalEncoder(
        handle_unknown="use_encoded_value",
        unknown_value=_UNKNOWN_CATEGORY,
        encoded_missing_value=_MISSING_CATEGORY,
        max_categories=_MOST_CATEGORIES,
    )


def columns_of(X: Any) -> Columns | None:
    """List the columns of numbers and the columns of categories; None for an array of numbers.

    In a frame the type of a column decides, and truth values are categories. A column of an array
    of objects holds categories if one of its cells is a text.
    """
    if is_frame(X):
        return _columns_by({name: _holds_numbers(X[name].dtype) for name in X.columns})

    values = X if hasattr(X, "dtype") else np.asarray(X)
    is_of_numbers = values.dtype.kind in "iufb"  # integers, floats, truth values
    if is_of_numbers:
        return None

    holds_numbers = {}
    for column in range(values.shape[1]):
        has_text = any(isinstance(cell, str) for cell in values[:, column])
        holds_numbers[column] = not has_text
    return _columns_by(holds_numbers)


def _columns_by(holds_numbers: Mapping[Any, bool]) -> Columns:
    """Divide columns, {name: whether it holds numbers}, into numbers and categories."""
    return Columns(
        numbers=[name for name, is_number in holds_numbers.items() if is_number],
        categories=[name for name, is_number in holds_numbers.items() if not is_number],
    )


def _holds_numbers(dtype: Any) -> bool:
    """Return whether a column of this type, of pandas or polars, holds numbers."""
    if hasattr(dtype, "is_numeric"):  # polars
        return bool(dtype.is_numeric())
    return dtype.kind in "iuf"
