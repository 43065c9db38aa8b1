"""What estimators made of other models owe to scikit-learn: parameters, columns and metadata of
those inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted

from dco.models.own_models import own_models, with_model_param


class MadeOfRegressors(MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    """A regressor whose `fit` fits clones of other regressors.

    `fitted_as` names the attribute that holds the first of them after `fit`.
    """

    fitted_as: str
    estimator: Any

    def _regressor(self) -> Any:
        """Return the regressor that was given, or boosting."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        if self.estimator is not None:
            return self.estimator
        return HistGradientBoostingRegressor(random_state=getattr(self, "random_state", 0))

    def _parts(self) -> dict[str, Any]:
        """Return the unfitted regressors, by the names of the parameters that hold them."""
        return {"estimator": self._regressor()}

    def _route(self, params: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the parameters of `fit` that each of the parts gets."""
        if not get_config()["enable_metadata_routing"]:
            return dict.fromkeys(self._parts(), params)
        routed = process_routing(self, "fit", **params)
        return {name: routed[name].fit for name in self._parts()}

    @property
    def n_features_in_(self) -> int:
        """How many columns the models were fitted on."""
        check_is_fitted(self, self.fitted_as)
        return int(getattr(self, self.fitted_as).n_features_in_)

    @property
    def feature_names_in_(self) -> Any:
        """The names of the columns the models were fitted on, if they had names."""
        check_is_fitted(self, self.fitted_as)
        return getattr(self, self.fitted_as).feature_names_in_

    def get_metadata_routing(self) -> MetadataRouter:
        """Pass the metadata of `fit` on to the `fit` of every model."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=type(self).__name__)
        return router.add(**self._parts(), method_mapping=mapping)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        parts = [get_tags(part) for part in self._parts().values()]
        tags.input_tags = parts[0].input_tags
        tags.input_tags.allow_nan = all(part.input_tags.allow_nan for part in parts)
        tags.input_tags.sparse = all(part.input_tags.sparse for part in parts)
        tags.non_deterministic = any(part.non_deterministic for part in parts)
        return tags


def _count_parts(path: str) -> int:
    """Count the parts of a path to a parameter: 3 for "models__ridge__alpha"."""
    return path.count("__") + 1


class HoldsModels(BaseEstimator):
    """An estimator with candidate models in `models`."""

    models: Any

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return parameters by name.

        Models in a list or a dict are reached as ``models__name``, and their parameters as
        ``models__name__param``.
        """
        params: dict[str, Any] = super().get_params(deep=deep)
        if not deep or not isinstance(self.models, (list, tuple, Mapping)):
            return params
        for name, model in own_models(self.models).items():
            params[f"models__{name}"] = model
            if hasattr(model, "get_params"):
                for key, value in model.get_params().items():
                    params[f"models__{name}__{key}"] = value
        return params

    def set_params(self, **params: Any) -> Any:
        """Set parameters of the estimator, and of its models where these are a list or a dict.

        ``models__name`` replaces a model, ``models__name__param`` sets one of its parameters.
        """
        if "models" in params:
            self.models = params.pop("models")

        if isinstance(self.models, (list, tuple, Mapping)):
            keys = [key for key in params if key.startswith("models__")]
            keys.sort(key=_count_parts)  # a model is replaced before its parameters are set
            for key in keys:
                path = key.removeprefix("models__")
                self.models = with_model_param(self.models, path, params.pop(key))
        super().set_params(**params)
        return self

    def get_metadata_routing(self) -> MetadataRouter:
        """Pass fit parameters on to the models that ask for them."""
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        for name, model in own_models(self.models).items():
            if hasattr(model, "get_metadata_routing"):
                mapping = MethodMapping().add(caller="fit", callee="fit")
                router.add(**{name: model}, method_mapping=mapping)
        return router
