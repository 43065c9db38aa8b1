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

# Where all residuals are 0 any positive floor will do; this one does not overflow a quotient.
SMALLEST_FLOOR = float(np.sqrt(np.finfo(np.float64).tiny))


class ResidualSpread(MadeOfRegressors):
    """A model of y, and a model of its absolute residuals, for normalised residual scores.

    Lei et al. (2018). The residuals that the spread model learns from are out-of-fold: each comes
    from a model that has not seen its row. In-sample residuals of a forest or a boosted model are
    near zero wherever it has memorised, and say little.

    Parameters
    ----------
    estimator
        Any regressor (default: `HistGradientBoostingRegressor`). It is fitted once per fold, and
        once on all rows.
    spread_estimator
        Any regressor; default: the same kind as `estimator`.
    cv
        A number of folds, which are shuffled by `random_state`, or a scikit-learn splitter. The
        splitter gets `groups`.
    floor
        The spread is at least this share of the mean absolute out-of-fold residual, so it is
        positive everywhere.
    logs
        Whether the spread model learns log(residual + floor) instead, which a few large residuals
        do not rule; the spread is the exponential of what it predicts, no larger than the largest
        residual.
    n_jobs, random_state
        joblib's number of jobs for the folds, and the seed that shuffles them.

    Attributes
    ----------
    estimator_, spread_estimator_
        The fitted models.
    floor_, largest_
        The least and the largest spread, in units of y.
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
        """Fit a model of y, then a model of its absolute out-of-fold residuals (the spread).

        `groups` go to the splitter `cv`. `params` (sample_weight ...) go to every fit, cut by fold
        if they have one value per row.
        """
        if not self.floor > 0:
            raise ValueError(
                f"floor must be greater than 0, so that no residual is divided by 0; "
                f"got {self.floor}."
            )
        if y is not None:
            y = column_or_1d(y, warn=True)
        routed_params = self._route(params)
        model_params = routed_params["estimator"]
        spread_params = routed_params["spread_estimator"]

        # 1. The model of y, fitted on all rows and, for the residuals, once per fold.
        self.estimator_ = clone(self._regressor()).fit(X, y, **model_params)
        residuals = self._out_of_fold_residuals(X, y, groups, model_params)

        # 2. The model of the spread, of the residuals or of their logarithm. What it predicts will
        # be kept between a floor and the largest residual.
        self.floor_ = max(float(self.floor * residuals.mean()), SMALLEST_FLOOR)
        self.largest_ = float(residuals.max() + self.floor_)
        target = np.log(residuals + self.floor_) if self.logs else residuals
        spread_model = clone(self._spread_regressor())
        self.spread_estimator_ = spread_model.fit(X, target, **spread_params)
        return self

    def predict(self, X: Any) -> Floats:
        """Return the model's prediction of y."""
        check_is_fitted(self, "estimator_")
        return np.asarray(self.estimator_.predict(X))

    def predict_distribution(self, X: Any) -> PointsWithSpread:
        """Return the prediction and its spread, the expected absolute residual."""
        check_is_fitted(self, "estimator_")
        spread = self.spread_estimator_.predict(X)
        if self.logs:
            spread = np.exp(np.minimum(spread, np.log(self.largest_)))
        return PointsWithSpread(self.predict(X), np.maximum(spread, self.floor_))

    def _out_of_fold_residuals(self, X: Any, y: Any, groups: Any, params: dict[str, Any]) -> Floats:
        """Return |y - prediction| of each row, predicted by a model that was fitted without it.

        `groups` go to the splitter, `params` to the fits.
        """
        # With metadata routing, cross_val_predict takes groups among the other parameters.
        routes_metadata = get_config()["enable_metadata_routing"]
        if routes_metadata and groups is not None:
            params = {**params, "groups": groups}
        predictions = cross_val_predict(
            clone(self._regressor()),
            X,
            y,
            cv=self._folds(len(y)),
            groups=None if routes_metadata else groups,
            params=params,
            n_jobs=self.n_jobs,
        )
        return np.asarray(np.abs(y - predictions))

    def _parts(self) -> dict[str, Any]:
        return {"estimator": self._regressor(), "spread_estimator": self._spread_regressor()}

    def _spread_regressor(self) -> Any:
        return self._regressor() if self.spread_estimator is None else self.spread_estimator

    def _folds(self, n: int) -> Any:
        """Return the splitter for n rows: `cv` itself, or that many shuffled folds.

        With fewer rows than folds, each row is a fold.
        """
        if not isinstance(self.cv, Integral):
            return self.cv
        if self.cv < 2:
            raise ValueError(
                f"cv must be at least 2 folds, so that residuals are of rows not seen; "
                f"got {self.cv}."
            )
        if n < 2:
            raise ValueError(f"out-of-fold residuals need at least 2 rows, got n_samples={n}.")
        # Shuffled, because rows often come sorted by something that matters.
        return KFold(min(int(self.cv), n), shuffle=True, random_state=self.random_state)
