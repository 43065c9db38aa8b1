"""The candidates of ``models=None`` and of ``dco fit``: named models with their own preparation,
and the scores they try.

Each model is a pipeline that imputes, scales and encodes. The preparation is fitted where the model
is fitted, so it never sees a calibration row, and neither does the choice of candidates: it looks
at training rows, and at tuning targets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray, Floats
from dco.foundations.ranks import Level, as_rational
from dco.foundations.tables import is_frame
from dco.models.own_models import copy_and_seed
from dco.models.records import records_of
from dco.models.wrapped import last_model
from dco.rows.rows import Rows
from dco.scores.names import named_scores
from dco.scores.never_empty import never_empty
from dco.scores.registry import default_scores
from dco.scores.regression import AbsoluteResidual, NormalisedResidual, QuantileResidual
from dco.scores.score import Score
from dco.scores.transformed import Transformed

# The models of each task, and those that are tried unless others are named (benchmarks/tables.py
# compares them).
NAMES = {
    "classification": ("linear", "forest", "boosting"),
    "regression": (
        "linear",
        "linear-log",
        "boosting",
        "boosting-log",
        "shallow",
        "forest",
        "quantiles",
        "spread",
    ),
}
# of a column; rarer ones share one code, so that an identifier cannot flood a model
_MOST_CATEGORIES = 30
# rows: a quarter of them would be too few to choose among so many candidates by
FOLDS_BELOW = 1_000
# rows in folds: boosting as it comes costs more than its small trees and the forest, and loses
_SCANT = 400
_RESIDUALS: tuple[Score, ...] = (AbsoluteResidual(), NormalisedResidual(), QuantileResidual())
# training rows: beyond, a forest costs more than boosting, and loses
_FEW = {"classification": 5_000, "regression": 1_500}


@dataclass(frozen=True)
class Defaults:
    """The default candidates, to be made when training rows are known; `names` are those asked for,
    None for the usual.
    """

    classes: bool
    alpha: Level
    seed: int
    names: tuple[str, ...] | None = None
    own: Mapping[str, Any] = field(default_factory=dict)  # the caller's, beside the default ones

    def scale(self, y: AnyArray) -> str | None:
        """The log that suits these targets, if any does."""
        return None if self.classes else log_scale(y)

    def on(
        self, rows: Rows, scores: Mapping[str, Score] | None, y: AnyArray, *, folds: bool = False
    ) -> tuple[dict[str, Any], Mapping[str, Score] | None]:
        """Models and scores for these training rows; a log of the target only if it suits all of
        `y`.

        `y` are the targets of training and tuning rows: the winner is fitted to both. In `folds` of
        few rows small models do as well as large ones, and each costs several fits.
        """
        task = "classification" if self.classes else "regression"
        scale, folded, scant = (
            self.scale(y),
            folds and len(rows) < FOLDS_BELOW,
            folds and len(rows) < _SCANT,
        )
        names, unknown = self.names, [name for name in self.names or () if name not in NAMES[task]]
        if unknown:
            raise ValueError(
                f"there is no default model {unknown[0]!r} for {task}: choose from "
                f"{', '.join(NAMES[task])}."
            )
        if names is None:
            few = len(rows) <= _FEW[task]
            left_out = set() if few else {"forest"}
            if scores is None:
                left_out |= {"spread"}  # levelled scores do its work at a fifth of its cost
            if not self.classes:
                left_out |= (
                    {"linear-log", "boosting-log"}
                    if scale is None
                    else {"boosting"}
                    if few
                    else set()
                )
                left_out |= {"boosting", "boosting-log"} if scant else set()
                left_out |= {"quantiles"} if folded and scores is None else set()
            names = tuple(name for name in NAMES[task] if name not in left_out)
        maker = Maker(
            columns_of(rows.X), self.classes, float(as_rational(self.alpha)), scale, scant
        )
        taken = [name for name in names if name in self.own]
        if taken:
            raise ValueError(
                f"Your model is called {taken[0]!r} as a default one is: give it another name."
            )
        models = copy_and_seed({name: maker.model(name) for name in names}, seed=self.seed)
        models |= self.own
        if scores is None and not self.classes:
            scales = (
                [scale, "sqrt"] if scale is not None else ["quantile"] if np.ptp(rows.y) > 0 else []
            )
            # towards large y
            flattened = [Transformed(score, name) for score in _RESIDUALS for name in scales]
            scores = named_scores([*_RESIDUALS, QuantileResidual(kind="relative"), *flattened])
        if scores is None:
            return models, None
        kinds = {name: records_of(model) for name, model in models.items()}
        suited = {
            name: model for name, model in models.items() if _reads(scores.values(), kinds[name])
        }
        offered = [kind for own in kinds.values() for kind in own]
        return suited or models, {
            name: score for name, score in scores.items() if _reads([score], offered)
        } or scores


def _reads(scores: Any, kinds: Sequence[type]) -> bool:
    """Whether one of the scores reads one of these records."""
    return any(kind in score.needs for score in scores for kind in kinds)


def log_scale(y: Floats) -> str | None:
    """The log that suits these targets: "log", "log1p" where some are (nearly) 0, None where some
    are negative.
    """
    least = float(np.min(y))
    if least < 0:
        return None
    return "log" if least > 0 and least >= float(np.median(y)) / 1000 else "log1p"


def columns_of(X: Any) -> tuple[list[Any], list[Any]] | None:
    """The names (or numbers) of columns that hold numbers, by their dtype, and of all others, which
    hold categories.

    Truth values are categories. None for an array of numbers, which needs no encoding.
    """
    if is_frame(X):
        types = ((name, X[name].dtype) for name in X.columns)  # those of polars have no kind
        kinds = {
            name: dtype.is_numeric() if hasattr(dtype, "is_numeric") else dtype.kind in "iuf"
            for name, dtype in types
        }
    else:
        values = np.asarray(X) if not hasattr(X, "dtype") else X
        if values.dtype.kind in "iufb":
            return None
        kinds = {
            place: not any(isinstance(cell, str) for cell in values[:, place])
            for place in range(values.shape[1])
        }
    return [name for name, number in kinds.items() if number], [
        name for name, number in kinds.items() if not number
    ]


@dataclass(frozen=True)
class Maker:
    """What models are made for: `columns_of` the table, task, level, the log of the target, and
    whether rows are `scant`.
    """

    columns: tuple[list[Any], list[Any]] | None
    classes: bool
    alpha: float
    scale: str | None = None
    scant: bool = False

    def model(self, name: str) -> Any:
        """An unfitted pipeline."""
        from sklearn.pipeline import Pipeline

        return Pipeline(
            [*self._prepared(linear=name.startswith("linear")), ("model", self._last(name))]
        )

    def _last(self, name: str) -> Any:
        from sklearn import ensemble
        from sklearn.linear_model import LogisticRegression, RidgeCV

        from dco.models import QuantilePair, ResidualSpread, TransformedTarget

        boosting = ensemble.HistGradientBoostingRegressor
        if name.startswith("linear"):
            last: Any = (
                LogisticRegression(max_iter=2000)
                if self.classes
                else RidgeCV(alphas=(0.01, 0.1, 1.0, 10.0, 100.0))
            )
        elif name == "forest":
            trees = ensemble.ExtraTreesRegressor(30 if self.scant else 50, min_samples_leaf=2)
            last = ensemble.RandomForestClassifier(100) if self.classes else trees
        elif self.classes:
            last = ensemble.HistGradientBoostingClassifier()
        elif name == "shallow":
            last = boosting(
                max_iter=60 if self.scant else 200,
                max_leaf_nodes=8,
                min_samples_leaf=5,
                max_features=0.5,
            )
        elif name == "spread":
            last = boosting(learning_rate=0.05, max_iter=200, max_leaf_nodes=15)
        elif name == "quantiles":
            return QuantilePair(boosting(max_leaf_nodes=8), alpha=self.alpha)
        else:
            last = boosting()
        if name.endswith("-log") or (
            name in ("shallow", "forest", "spread") and self.scale is not None
        ):
            last = TransformedTarget(last, self.scale or "log1p")
        if name == "spread":
            return ResidualSpread(
                last, boosting(max_iter=60, max_leaf_nodes=8), cv=3, floor=0.05, logs=True
            )
        return last

    def _prepared(self, *, linear: bool) -> list[tuple[str, Any]]:
        """For linear models medians for missing numbers, unit variance, one column per category (a
        missing text is one).

        Trees handle missing numbers and need no scaling; categories become whole numbers, unknown
        ones -1.
        """
        from sklearn.compose import ColumnTransformer
        from sklearn.impute import SimpleImputer
        from sklearn.pipeline import Pipeline
        from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

        from dco.models.plain_columns import PlainColumns

        imputer, most = SimpleImputer(strategy="median", keep_empty_features=True), _MOST_CATEGORIES
        steps = [("impute", imputer), ("scale", StandardScaler())] if linear else []
        if self.columns is None:
            return steps
        if linear:
            numbers: Any = Pipeline(steps)
            encoder = OneHotEncoder(
                handle_unknown="infrequent_if_exist", max_categories=most, sparse_output=False
            )
        else:
            codes: dict[str, Any] = {
                "unknown_value": -1,
                "encoded_missing_value": -2,
                "max_categories": most,
            }
            numbers, encoder = (
                PlainColumns(numbers=True),
                OrdinalEncoder(handle_unknown="use_encoded_value", **codes),
            )
        texts = Pipeline([("plain", PlainColumns()), ("encode", encoder)])
        parts = zip(("numbers", "texts"), (numbers, texts), self.columns, strict=True)
        return [("columns", ColumnTransformer([part for part in parts if part[2]]))]


def scores_for(model: Any, offered: Sequence[type]) -> dict[str, Score]:
    """The default scores of the records that a model offers; the one of medians where the model
    gives any.
    """
    proposed = [never_empty(score) for kind in offered for score in default_scores(kind)]
    medians = getattr(last_model(model), "median", False)
    return named_scores(
        score for score in proposed if medians or score != QuantileResidual(kind="median")
    )
