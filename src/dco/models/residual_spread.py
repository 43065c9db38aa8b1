"""A regressor with a spread: a second model learns how far off the first one is."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.utils.validation import check_is_fitted, column_or_1d

from dco.foundations.arrays import Floats
from dco.models.wrapping import MadeOfRegressors
from dco.predictions import PointsWithSpread


class ResidualSpread(MadeOfRegressors):
    """A model of y, and a model of its absolute residuals, for normalised residual scores (Lei et
    al., 2018).

    The residuals that the spread model learns from are out-of-fold: each comes from a model that
    has not seen its row. In-sample residuals of a forest or a boosted model are near zero wherever
    it has memorised, and say little.

    estimator: any regressor (default: `HistGradientBoostingRegressor`). It is fitted once per fold,
    and once on all rows. spread_estimator: any regressor; default: the same kind as `estimator`.
    cv: a number of folds, which are shuffled by `random_state`, or a scikit-learn splitter. The
    splitter gets `groups`. floor: the spread is at least this share of the mean absolute
    out-of-fold residual, so it is positive everywhere. logs: whether the spread model learns
    log(residual + floor) instead, which a few large residuals do not rule; the spread
        is the exponential of what it predicts, no larger than the largest residual.

    Fitted: `estimator_`, `spread_estimator_`, `floor_` and `largest_` (in units of y).
    """

    fitted_as = "estimator_"

    def __init__(
        self,
        estimator: Any = None,
        spread_estimator: Any = None,
        *,
        cv: Any = 5,
        floor: float = 0.1,
        logs: bool = False,
        n_jobs: int | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.estimator = estimator
        self.spread_estimator = spread_estimator
        self.cv = cv
        self.floor = floor
        self.logs = logs
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, groups: Any = None, **params: Any) -> ResidualSpread:
        """Fit both models. `params` (sample_weight ...) go to every fit, cut by fold if they have
        one value per row.
        """
        if not self.floor > 0:
            raise ValueError(
                f"floor must be greater than 0, so that no residual is divided by 0; "
                f"got {self.floor}."
            )
        base, routing = self._base(), get_config()["enable_metadata_routing"]
        y = y if y is None else column_or_1d(y, warn=True)
        for_model, for_spread = self._routed(params).values()
        for_folds = {**for_model, "groups": groups} if routing and groups is not None else for_model
        self.estimator_ = clone(base).fit(X, y, **for_model)
        options = {
            "groups": None if routing else groups,
            "params": for_folds,
            "n_jobs": self.n_jobs,
        }
        held_out = cross_val_predict(clone(base), X, y, cv=self._folds(len(y)), **options)
        residuals = np.abs(y - held_out)
        # all residuals 0: any positive constant will do
        smallest = float(np.sqrt(np.finfo(np.float64).tiny))
        self.floor_ = max(float(self.floor * residuals.mean()), smallest)
        self.largest_ = float(residuals.max() + self.floor_)
        learnt = np.log(residuals + self.floor_) if self.logs else residuals
        self.spread_estimator_ = clone(self._spread_base()).fit(X, learnt, **for_spread)
        return self

    def predict(self, X: Any) -> Floats:
        """The model's prediction of y."""
        check_is_fitted(self, "estimator_")
        return np.asarray(self.estimator_.predict(X))

    def predict_distribution(self, X: Any) -> PointsWithSpread:
        """The prediction and its spread, the expected absolute residual."""
        check_is_fitted(self, "estimator_")
        spread = self.spread_estimator_.predict(X)
        if self.logs:
            spread = np.exp(np.minimum(spread, np.log(self.largest_)))
        return PointsWithSpread(self.predict(X), np.maximum(spread, self.floor_))

    def _parts(self) -> dict[str, Any]:
        return {"estimator": self._base(), "spread_estimator": self._spread_base()}

    def _spread_base(self) -> Any:
        return self._base() if self.spread_estimator is None else self.spread_estimator

    def _folds(self, n: int) -> Any:
        if not isinstance(self.cv, Integral):
            return self.cv
        if self.cv < 2:
            raise ValueError(
                f"cv must be at least 2 folds, so that residuals are of rows not "
                f"seen; got {self.cv}."
            )
        if n < 2:
            raise ValueError(f"out-of-fold residuals need at least 2 rows, got n_samples={n}.")
        # few rows: leave one out. Shuffled, because rows often come sorted by something that
        # matters
        return KFold(min(int(self.cv), n), shuffle=True, random_state=self.random_state)
