"""A model of numbers with a spread that was learnt from its residuals on rows that it never saw."""

from __future__ import annotations

from typing import Any

import numpy as np

from dco.foundations.arrays import Floats
from dco.models.composed import ComposedModel
from dco.models.records import predict_record
from dco.predictions import Points, PointsWithSpread, Prediction


class SpreadModel:
    """How far off a model is for a row: learnt from the row's features.

    The prediction itself is left out on purpose. A forest jumps where a value crosses a split, so a
    prediction that moves in its last digits would move the spread.

    Parameters
    ----------
    preparation : Transformer or None
        Turns the features into numbers; None for features that are numbers already.
    regressor : Regressor
        Predicts the absolute residual from the numbers.
    floor_share : float
        Every spread is raised by this share of the mean absolute residual.
    """

    def __init__(self, preparation: Any, regressor: Any, *, floor_share: float = 0.1) -> None:
        self.preparation = preparation
        self.regressor = regressor
        self.floor_share = floor_share
        self.floor = 0.0

    def fit(self, X: Any, residuals: Floats) -> SpreadModel:
        """Learn from absolute residuals of rows that the model was not fitted on."""
        self.floor = self.floor_share * float(residuals.mean())
        if self.preparation is not None:
            self.preparation.fit(X)
        self.regressor.fit(self._numbers(X), residuals)
        return self

    def predict(self, X: Any) -> Floats:
        """Return the spread of each row, greater than 0 unless all residuals were 0."""
        spread = self.regressor.predict(self._numbers(X))
        return np.asarray(np.maximum(spread, 0) + self.floor)

    def _numbers(self, X: Any) -> Any:
        return X if self.preparation is None else self.preparation.transform(X)


class WithLearntSpread(ComposedModel):
    """A model whose predictions carry a spread that is fixed before calibration.

    When the model is fitted again on more rows, the spread stays as it was learnt: from rows that
    were then held out.
    """

    def __init__(self, model: Any, spread: SpreadModel) -> None:
        self.model = model
        self.spread = spread

    @property
    def members(self) -> list[Any]:  # type: ignore[override]
        """The one model."""
        return [self.model]

    def records(self) -> tuple[type, ...]:
        return (PointsWithSpread, Points)

    def predict_kind(self, X: Any, kind: type) -> Prediction:
        points: Any = predict_record(self.fitted_[0], X, Points)
        if kind is Points:
            return points  # type: ignore[no-any-return]
        return PointsWithSpread(points.mean, self.spread.predict(X))

    def predict(self, X: Any) -> Floats:
        return np.asarray(self.fitted_[0].predict(X))
