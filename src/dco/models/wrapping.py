"""What a regressor that is made of other regressors owes to scikit-learn: columns, metadata and tags of those inside."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted


class MadeOfRegressors(MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    """A regressor whose `fit` fits clones of other regressors; `fitted_as` names the attribute that holds the first."""

    fitted_as: str

    @abstractmethod
    def _parts(self) -> dict[str, Any]:
        """The unfitted regressors, by the names of the parameters that hold them."""

    def _first(self) -> Any:
        check_is_fitted(self, self.fitted_as)
        return getattr(self, self.fitted_as)

    @property
    def n_features_in_(self) -> int:
        """How many columns the models were fitted on."""
        return int(self._first().n_features_in_)

    @property
    def feature_names_in_(self) -> Any:
        """The names of the columns the models were fitted on, if they had names."""
        return self._first().feature_names_in_

    def get_metadata_routing(self) -> MetadataRouter:
        """`fit` passes metadata on to the `fit` of every model."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=type(self).__name__).add(**self._parts(), method_mapping=mapping)

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), [get_tags(part) for part in self._parts().values()]
        tags.input_tags = inner[0].input_tags
        tags.input_tags.allow_nan = all(part.input_tags.allow_nan for part in inner)
        tags.input_tags.sparse = all(part.input_tags.sparse for part in inner)
        tags.non_deterministic = any(part.non_deterministic for part in inner)
        return tags
