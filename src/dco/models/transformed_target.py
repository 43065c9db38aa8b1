"""A model of a transformed target whose predictions are in units of y."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, column_or_1d

from dco.foundations.arrays import Floats
from dco.models.wrapping import MadeOfRegressors
from dco.scores.scales import Transform, check_transform, fit_transform, map_to_scale, scale_of


class TransformedTarget(MadeOfRegressors):
    """A regressor fitted to g(y); predictions are mapped back by the inverse of g.

    Predictions of g(y) are kept within half a range of the training targets' g(y), so that a linear
    model that extrapolates gives no infinite y. Targets that g does not take are a ValueError.

    Parameters
    ----------
    estimator
        Any regressor (default: `HistGradientBoostingRegressor`).
    scale
        The transform g as in `dco.scores.Transformed`, which compares residuals on that scale:
        "log", "log1p", "sqrt", "asinh", "quantile" (fitted to the training targets) or a pair
        (g, inverse of g).

    Attributes
    ----------
    estimator_, scale_
        The fitted model and transform.
    limits_
        The least and the largest prediction of g(y).
    """

    fitted_as = "estimator_"

    def __init__(self, estimator: Any = None, scale: Transform = "log1p") -> None:
        self.estimator = estimator
        self.scale = scale  # `transform` would make it a transformer to scikit-learn

    def fit(self, X: Any, y: Any, **params: Any) -> TransformedTarget:
        """Fit the transform g to the targets, and the regressor to g(y).

        `params` (sample_weight ...) go to the fit of the regressor.
        """
        check_transform(self.scale)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None.")
        params = self._route(params)["estimator"]

        # 1. The transform. Some, such as quantiles, depend on the targets.
        target: Floats = column_or_1d(y, warn=True, dtype=np.float64)
        self.scale_ = fit_transform(self.scale, target)
        transformed = map_to_scale(scale_of(self.scale_), target)
        self._check_targets(target, transformed)

        # 2. The regressor.
        self.estimator_ = clone(self._regressor()).fit(X, transformed, **params)

        # 3. Bounds: predictions of g(y) may leave the range of the training targets by half of its
        # length, so that y = inverse of g is not huge.
        lowest = float(transformed.min())
        highest = float(transformed.max())
        margin = (highest - lowest) / 2
        self.limits_ = (lowest - margin, highest + margin)
        return self

    def predict(self, X: Any) -> Floats:
        """Return the prediction of g(y), mapped back to y."""
        check_is_fitted(self, "estimator_")
        scale = scale_of(self.scale_)
        transformed = np.clip(self.estimator_.predict(X), *self.limits_)
        return np.asarray(np.maximum(scale.inverse(transformed), scale.smallest_y))

    def _check_targets(self, target: Floats, transformed: Floats) -> None:
        """Refuse training targets that the transform does not take."""
        lowest = scale_of(self.scale_).smallest_y
        is_refused = np.isfinite(target) & (~np.isfinite(transformed) | (target < lowest))
        if not is_refused.any():
            return
        row = int(np.flatnonzero(is_refused)[0])
        raise ValueError(
            f"the transform {self.scale!r} does not take {is_refused.sum()} of the training "
            f"targets (row {row} has {target[row]:g}): use another transform, such as asinh."
        )
