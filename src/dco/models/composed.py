"""Models made of other models, which are fitted one by one on the same rows."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from dco.foundations.arrays import AnyArray
from dco.predictions import Prediction


class ComposedModel(BaseEstimator, ABC):
    """A model that predicts from what its members predict.

    It has no `fit`: its members are fitted by themselves, so that each takes fit parameters under
    its own names, and `with_fitted` puts them together.
    """

    members: Sequence[Any]
    fitted_: list[Any]
    classes_: AnyArray  # of classifiers

    @abstractmethod
    def records(self) -> tuple[type, ...]:
        """Return the types of record that the model gives, the richest first."""

    @abstractmethod
    def predict_kind(self, X: Any, kind: type) -> Prediction:
        """Return the prediction of the rows of X, as a record of this type."""

    @abstractmethod
    def predict(self, X: Any) -> AnyArray:
        """Return the label or the number that is predicted for each row."""

    def with_fitted(self, fitted: list[Any]) -> Self:
        """Return the model with members that were fitted elsewhere, in the order of `members`."""
        model = copy.copy(self)
        model.fitted_ = fitted
        if all(hasattr(member, "classes_") for member in fitted):
            model.classes_ = np.asarray(fitted[0].classes_)
        return model
