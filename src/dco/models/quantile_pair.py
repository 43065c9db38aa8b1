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
    """Quantile regression at two levels, for conformalised quantile regression (Romano, Patterson &
    Candès, 2019).

    estimator: a regressor with a quantile loss: scikit-learn's `HistGradientBoostingRegressor` (the
    default),
        `GradientBoostingRegressor` and `QuantileRegressor`, XGBoost's and LightGBM's regressors, or
        a pipeline or a `TransformedTargetRegressor` that ends in one. The loss and its level are
        set here; everything else stays as given.
    alpha: the levels are alpha / 2 and 1 - alpha / 2, unless `lower` and `upper` say otherwise.
    They are where calibration
        starts: the guarantee holds whatever the levels are.
    median: whether to fit a model of the median as well. `predict` then gives it; otherwise the
    middle of the two quantiles. parameter: the name of the estimator's level parameter, for
    estimators that are not known here. Their loss must be a
        quantile loss already.

    Fitted: `lower_`, `upper_` and, if asked for, `median_`. Where the two quantiles cross they are
    sorted.
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
        low, high = self._levels()
        y = y if y is None else column_or_1d(y, warn=True)
        params = self._routed(params)["estimator"]
        self.lower_ = self._at(low).fit(X, y, **params)
        self.upper_ = self._at(high).fit(X, y, **params)
        if self.median:
            self.median_ = self._at(0.5).fit(X, y, **params)
        elif hasattr(self, "median_"):
            del self.median_  # left by an earlier fit
        return self

    def predict(self, X: Any) -> Floats:
        """The median, or the middle of the two quantiles."""
        quantiles = self.predict_distribution(X)
        return (
            (quantiles.lower + quantiles.upper) / 2
            if quantiles.median is None
            else quantiles.median
        )

    def predict_distribution(self, X: Any) -> Quantiles:
        """The lower and upper quantile of each row, and the median if it was fitted."""
        check_is_fitted(self, "lower_")
        median = self.median_.predict(X) if hasattr(self, "median_") else None
        return Quantiles(self.lower_.predict(X), self.upper_.predict(X), median)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # the middle of two far quantiles is no estimate of the mean
        tags.regressor_tags.poor_score = True
        return tags

    def _at(self, level: float) -> Any:
        base = self._base()
        settings = (
            quantile_settings(base, level) if self.parameter is None else {self.parameter: level}
        )
        return clone(base).set_params(**settings)

    def _levels(self) -> tuple[float, float]:
        low = (
            as_rational(self.alpha) / 2
            if self.lower is None
            else as_rational(self.lower, name="lower")
        )
        high = (
            1 - as_rational(self.alpha) / 2
            if self.upper is None
            else as_rational(self.upper, name="upper")
        )
        if not low < high:
            raise ValueError(
                f"the quantile levels must satisfy 0 < lower < upper < 1, got {float(low)} and "
                f"{float(high)}. Set alpha in "
                "(0, 1), or both lower and upper."
            )
        return float(low), float(high)


def quantile_settings(estimator: Any, level: float) -> dict[str, Any]:
    """The parameters that make `estimator` a model of the quantile at `level`; pipelines are
    followed to their last step.
    """
    inner, path = estimator, ""
    if isinstance(estimator, Pipeline):
        name, inner = estimator.steps[-1]
        path = f"{name}__"
    elif isinstance(estimator, TransformedTargetRegressor) and estimator.regressor is not None:
        # quantiles commute with increasing transformations
        inner, path = estimator.regressor, "regressor__"
    if path:
        return {path + name: value for name, value in quantile_settings(inner, level).items()}
    known = estimator.get_params(deep=False) if hasattr(estimator, "get_params") else {}
    families = {base.__module__.split(".")[0] for base in type(estimator).__mro__}
    # XGBoost and LightGBM take their level as a free keyword that get_params need not list, so
    # their packages are named
    if "quantile_alpha" in known or ("xgboost" in families and "objective" in known):
        return {"objective": "reg:quantileerror", "quantile_alpha": level}
    if "objective" in known and ("lightgbm" in families or {"num_leaves", "alpha"} <= known.keys()):
        return {"objective": "quantile", "alpha": level}
    if isinstance(estimator, GradientBoostingRegressor):
        # `alpha` alone is no sign: most linear models call their penalty so
        return {"loss": "quantile", "alpha": level}
    if "quantile" in known:
        return {"loss": "quantile", "quantile": level} if "loss" in known else {"quantile": level}
    raise TypeError(
        f"{type(estimator).__name__} has no quantile loss that is known here. Use "
        f"HistGradientBoostingRegressor, "
        "GradientBoostingRegressor, QuantileRegressor, XGBRegressor or LGBMRegressor, or set its "
        "quantile loss yourself and "
        "name the parameter of its level: QuantilePair(estimator, parameter=...)."
    )
