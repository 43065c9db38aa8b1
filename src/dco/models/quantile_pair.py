"""A lower and an upper quantile model made of any regressor with a quantile loss."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted, column_or_1d

from dco.foundations.arrays import Floats
from dco.foundations.ranks import as_rational
from dco.models.wrapping import MadeOfRegressors
from dco.predictions import Quantiles


class QuantilePair(MadeOfRegressors):
    """Quantile regression at two levels, for conformalised quantile regression.

    Romano, Patterson and Candès (2019). Where the two quantiles cross they are sorted.

    Parameters
    ----------
    estimator
        A regressor with a quantile loss: scikit-learn's `HistGradientBoostingRegressor` (the
        default), `GradientBoostingRegressor` and `QuantileRegressor`, XGBoost's and LightGBM's
        regressors, or a pipeline or a `TransformedTargetRegressor` that ends in one. The loss and
        its level are set here; everything else stays as given.
    alpha, lower, upper
        The levels are alpha / 2 and 1 - alpha / 2, unless `lower` and `upper` say otherwise. They
        are where calibration starts: the guarantee holds whatever the levels are.
    median
        Whether to fit a model of the median as well. `predict` then gives it; otherwise the middle
        of the two quantiles.
    parameter
        The name of the estimator's level parameter, for estimators that are not known here. Their
        loss must be a quantile loss already.

    Attributes
    ----------
    lower_, upper_, median_
        The fitted models; the last only if it was asked for.
    """

    fitted_as = "lower_"

    def __init__(
        self,
        estimator: Any = None,
        *,
        alpha: float = 0.1,
        lower: float | None = None,
        upper: float | None = None,
        median: bool = False,
        parameter: str | None = None,
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.lower = lower
        self.upper = upper
        self.median = median
        self.parameter = parameter

    def fit(self, X: Any, y: Any, **params: Any) -> QuantilePair:
        """Fit one model per level. `params` (sample_weight ...) go to each of them."""
        lower_level, upper_level = self._levels()
        if y is not None:
            y = column_or_1d(y, warn=True)
        params = self._route(params)["estimator"]

        self.lower_ = self._unfitted_at(lower_level).fit(X, y, **params)
        self.upper_ = self._unfitted_at(upper_level).fit(X, y, **params)
        if self.median:
            self.median_ = self._unfitted_at(0.5).fit(X, y, **params)
        elif hasattr(self, "median_"):
            del self.median_  # left by an earlier fit
        return self

    def predict(self, X: Any) -> Floats:
        """Return the median, or the middle of the two quantiles."""
        quantiles = self.predict_distribution(X)
        if quantiles.median is not None:
            return quantiles.median
        return (quantiles.lower + quantiles.upper) / 2

    def predict_distribution(self, X: Any) -> Quantiles:
        """Return the lower and upper quantile of each row, and the median if it was fitted."""
        check_is_fitted(self, "lower_")
        median = self.median_.predict(X) if hasattr(self, "median_") else None
        return Quantiles(self.lower_.predict(X), self.upper_.predict(X), median)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The middle of two far quantiles is no estimate of the mean.
        tags.regressor_tags.poor_score = True
        return tags

    def _unfitted_at(self, level: float) -> Any:
        """Return a copy of the estimator whose loss is that of the quantile at `level`."""
        estimator = self._regressor()
        if self.parameter is None:
            settings = quantile_settings(estimator, level)
        else:
            settings = {self.parameter: level}
        return clone(estimator).set_params(**settings)

    def _levels(self) -> tuple[float, float]:
        """Return the lower and the upper level."""
        if self.lower is None:
            lower = as_rational(self.alpha) / 2
        else:
            lower = as_rational(self.lower, name="lower")
        if self.upper is None:
            upper = 1 - as_rational(self.alpha) / 2
        else:
            upper = as_rational(self.upper, name="upper")

        if not lower < upper:
            raise ValueError(
                f"the quantile levels must satisfy 0 < lower < upper < 1, got {float(lower)} and "
                f"{float(upper)}. Set alpha in (0, 1), or both lower and upper."
            )
        return float(lower), float(upper)


def quantile_settings(estimator: Any, level: float) -> dict[str, Any]:
    """Return the parameters that make an estimator a model of the quantile at `level`.

    Pipelines are followed to their last step, and transformed targets to their regressor: quantiles
    commute with increasing transformations.
    """
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        return _under(name, quantile_settings(last, level))
    if isinstance(estimator, TransformedTargetRegressor) and estimator.regressor is not None:
        return _under("regressor", quantile_settings(estimator.regressor, level))

    params = estimator.get_params(deep=False) if hasattr(estimator, "get_params") else {}
    packages = {base.__module__.split(".")[0] for base in type(estimator).__mro__}
    # XGBoost and LightGBM take their level as a free keyword that get_params need not list, so
    # their packages are looked at too.
    is_xgboost = "xgboost" in packages and "objective" in params
    if is_xgboost or "quantile_alpha" in params:
        return {"objective": "reg:quantileerror", "quantile_alpha": level}
    is_lightgbm = "lightgbm" in packages or {"num_leaves", "alpha"} <= params.keys()
    if is_lightgbm and "objective" in params:
        return {"objective": "quantile", "alpha": level}
    # `alpha` alone is no sign: most linear models call their penalty so.
    if isinstance(estimator, GradientBoostingRegressor):
        return {"loss": "quantile", "alpha": level}
    if "quantile" in params and "loss" in params:
        return {"loss": "quantile", "quantile": level}
    if "quantile" in params:
        return {"quantile": level}
    raise TypeError(
        f"{type(estimator).__name__} has no quantile loss that is known here. Use "
        f"HistGradientBoostingRegressor, GradientBoostingRegressor, QuantileRegressor, "
        f"XGBRegressor or LGBMRegressor, or set its quantile loss yourself and name the parameter "
        f"of its level: QuantilePair(estimator, parameter=...)."
    )


def _under(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Write parameters of a part as parameters of the whole."""
    return {f"{name}__{key}": value for key, value in settings.items()}
