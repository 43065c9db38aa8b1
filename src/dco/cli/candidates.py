"""The candidates that ``dco fit`` and ``dco compare`` try: named models with their own preparation, and named scores.

Each model is a pipeline that imputes, scales and encodes. The preparation is fitted where the model is fitted, so it never
sees a calibration row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn import ensemble
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from dco.cli.layout import Layout
from dco.models import QuantilePair, ResidualSpread

# The models of each task; "spread" is slow, and not tried unless named.
MODELS = {
    "classification": ("linear", "forest", "boosting"),
    "regression": ("linear", "forest", "boosting", "quantiles", "spread"),
}
_MOST_CATEGORIES = 30  # of a column; rarer ones share one code, so that an identifier cannot flood a model


def chosen_names(
    text: str | None, offered: Sequence[str], *, option: str, default: list[str] | None = None
) -> list[str] | None:
    """The names in a comma-separated list, each one that is offered."""
    if text is None:
        return default
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in offered]
    if unknown or not names:
        said = f"names {unknown[0]!r}, which is not offered for this task" if unknown else "names nothing"
        raise ValueError(f"{option} {said}; choose from {', '.join(offered)}, separated by commas.")
    return list(dict.fromkeys(names))


def chosen_models(text: str | None, task: str) -> list[str]:
    """The models of --models, or the defaults of the task."""
    names = chosen_names(text, MODELS[task], option="--models")
    return [name for name in MODELS[task] if name != "spread"] if names is None else names


def make_models(names: Sequence[str], layout: Layout, *, alpha: float) -> dict[str, Any]:
    """{name: pipeline}, unfitted."""
    return {name: _model(name, layout, alpha) for name in names}


def make_scores(text: str | None, task: str) -> list[Any] | None:
    """The scores of a comma-separated list of short names; None lets every model try those that suit it."""
    from dco.scores.registry import short_names

    offered = short_names(classes=task == "classification")
    names = chosen_names(text, list(offered), option="--scores")
    return None if names is None else [score for name in names for score in offered[name]]


def _model(name: str, layout: Layout, alpha: float) -> Any:
    classes = layout.task == "classification"
    if name == "linear":
        last: Any = LogisticRegression(max_iter=2000) if classes else RidgeCV(alphas=(0.01, 0.1, 1.0, 10.0, 100.0))
    elif name == "forest":
        forest = ensemble.RandomForestClassifier, ensemble.RandomForestRegressor
        last = forest[0](200) if classes else forest[1](200, min_samples_leaf=3)
    else:
        last = ensemble.HistGradientBoostingClassifier() if classes else ensemble.HistGradientBoostingRegressor()
    pipeline = Pipeline([("columns", _scaled(layout) if name == "linear" else _ordinal(layout)), ("model", last)])
    if name == "quantiles":
        return QuantilePair(pipeline, alpha=alpha)
    return ResidualSpread(pipeline) if name == "spread" else pipeline


def _scaled(layout: Layout) -> Any:
    """Medians for missing numbers, unit variance, one column per category (a missing text is one of them)."""
    parts: list[tuple[str, Any, list[str]]] = []
    if layout.numbers:
        imputer = SimpleImputer(strategy="median", keep_empty_features=True, add_indicator=False)
        parts.append(("numbers", Pipeline([("impute", imputer), ("scale", StandardScaler())]), list(layout.numbers)))
    if layout.texts:
        encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=_MOST_CATEGORIES, sparse_output=False)
        parts.append(("texts", encoder, list(layout.texts)))
    return ColumnTransformer(parts)


def _ordinal(layout: Layout) -> Any:
    """Trees handle missing numbers and need no scaling; categories become whole numbers, unknown ones -1."""
    parts: list[tuple[str, Any, list[str]]] = []
    if layout.numbers:
        parts.append(("numbers", "passthrough", list(layout.numbers)))
    if layout.texts:
        codes: dict[str, Any] = {"unknown_value": -1, "encoded_missing_value": -2, "max_categories": _MOST_CATEGORIES}
        encoder = OrdinalEncoder(handle_unknown="use_encoded_value", **codes)
        parts.append(("texts", encoder, list(layout.texts)))
    return ColumnTransformer(parts)
