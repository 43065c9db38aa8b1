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
        """Fit a model of the lower quantile, one of the upper, and one of the median if asked for.

        `params` (sample_weight ...) go to each of these fits.
        """
        lower_level, upper_level = self._levels()
        if y is not None:
            y = column_or_1d(y, warn=True)
        params = self._route(params)["estimator"]

        self.lower_ = self._unfitted_at(lower_level).fit(X, y, **params)
        self.upper_ = self._unfitted_at(upper_level).fit(X, y, **params)
        if self.median:
            self.median_ = self._unfitted_at(0.5).fit(X, y, **params)
        elif hasattr(self, "median_"):
            del self.median_  # it comes from an earlier fit with median=True
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
        """Return the levels of the two quantiles: `lower` and `upper`, or alpha / 2 from the ends.

        With alpha = 0.1 they are 0.05 and 0.95.
        """
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
    """Return the parameters that make a regressor predict the quantile at `level`.

    For a `HistGradientBoostingRegressor` and level 0.05 they are {"loss": "quantile", "quantile":
    0.05}. Those of a pipeline belong to its last step, and those of a `TransformedTargetRegressor`
    to its regressor: quantiles commute with increasing transformations.
    """
    # 1. Regressors inside others.
    if isinstance(estimator, Pipeline):
        step_name, last_step = estimator.steps[-1]
        return _with_prefix(step_name, quantile_settings(last_step, level))
    if isinstance(estimator, TransformedTargetRegressor) and estimator.regressor is not None:
        return _with_prefix("regressor", quantile_settings(estimator.regressor, level))

    # 2. XGBoost and LightGBM. They take the level as a free keyword, which get_params need not
    #    list, so the packages of the class and its parents are looked at too.
    params = estimator.get_params(deep=False) if hasattr(estimator, "get_params") else {}
    packages = {base.__module__.split(".")[0] for base in type(estimator).__mro__}
    is_xgboost = "xgboost" in packages and "objective" in params
    if is_xgboost or "quantile_alpha" in params:
        return {"objective": "reg:quantileerror", "quantile_alpha": level}
    is_lightgbm = "lightgbm" in packages or {"num_leaves", "alpha"} <= params.keys()
    if is_lightgbm and "objective" in params:
        return {"objective": "quantile", "alpha": level}

    # 3. scikit-learn. A parameter `alpha` says nothing: most linear models call their penalty so.
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


def _with_prefix(part: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Write parameters of a part as parameters of the whole: "loss" -> "step__loss"."""
    return {f"{part}__{name}": value for name, value in settings.items()}
