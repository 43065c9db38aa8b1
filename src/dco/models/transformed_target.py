"""A model of a transformed target whose predictions are in units of y."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, column_or_1d

from dco.foundations.arrays import Floats
from dco.models.wrapping import MadeOfRegressors
from dco.scores.scales import Transform, checked_transform, fitted_transform, on_scale, scale_of


class TransformedTarget(MadeOfRegressors):
    """`estimator` fitted to g(y); predictions are mapped back by the inverse of g.

    estimator: any regressor (default: `HistGradientBoostingRegressor`).
    scale: the transform g as in `dco.scores.Transformed`, which compares residuals on that scale:
    "log", "log1p", "sqrt",
        "asinh", "quantile" (fitted to the training targets) or a pair (g, inverse of g).

    Predictions of g(y) are kept within half a range of the training targets' g(y), so that a linear
    model that extrapolates gives no infinite y. Targets that g does not take are a ValueError.

    Fitted: `estimator_`, `scale_`, `limits_` (the least and the largest prediction of g(y)).
    """

    fitted_as = "estimator_"

    def __init__(self, estimator: Any = None, scale: Transform = "log1p") -> None:
        self.estimator = estimator
        self.scale = scale  # `transform` would make it a transformer to scikit-learn

    def fit(self, X: Any, y: Any, **params: Any) -> TransformedTarget:
        """Fit the model to g(y). `params` (sample_weight ...) go to its fit."""
        checked_transform(self.scale)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None.")
        params = self._routed(params)["estimator"]
        target: Any = column_or_1d(y, warn=True, dtype=np.float64)
        transform = fitted_transform(self.scale, target)
        z = on_scale(scale_of(transform), target)
        outside = np.isfinite(target) & (~np.isfinite(z) | (target < scale_of(transform).least))
        if outside.any():
            row = int(np.flatnonzero(outside)[0])
            raise ValueError(
                f"the transform {self.scale!r} does not take {outside.sum()} of the training "
                f"targets (row {row} has "
                f"{target[row]:g}): use another transform, such as asinh."
            )
        self.estimator_ = clone(self._base()).fit(X, z, **params)
        margin = (z.max() - z.min()) / 2
        self.scale_, self.limits_ = transform, (float(z.min() - margin), float(z.max() + margin))
        return self

    def predict(self, X: Any) -> Floats:
        """The prediction of g(y), mapped back to y."""
        check_is_fitted(self, "estimator_")
        scale = scale_of(self.scale_)
        return np.asarray(
            np.maximum(
                scale.inverse(np.clip(self.estimator_.predict(X), *self.limits_)), scale.least
            )
        )
