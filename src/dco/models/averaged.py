"""The average of several models as one model: among near-ties it beats choosing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from dco.models.adapt import is_frozen, predict_record, records_of
from dco.predictions import ClassDraws, ClassProbabilities, GaussianMixtures, Points, PointsWithSpread, Prediction, Quantiles


class AveragedModel(BaseEstimator):
    """Fits every member on the same rows and averages their predictions, record by record.

    Probabilities, means, spreads and quantiles are averaged; draws and mixture components are pooled.
    """

    def __init__(self, members: Sequence[Any]) -> None:
        self.members = members

    def fit(self, X: Any, y: Any, **params: Any) -> AveragedModel:
        """Fit a clone of each member; frozen members are used as they are."""
        fitted = [model if is_frozen(model) else clone(model).fit(X, y, **params) for model in self.members]
        return self._adopt(fitted)

    def of_fitted(self, fitted: list[Any]) -> AveragedModel:
        """An averaged model whose members were fitted elsewhere, on the same rows."""
        return AveragedModel(self.members)._adopt(fitted)

    def _adopt(self, fitted: list[Any]) -> AveragedModel:
        self.fitted_ = fitted
        if all(hasattr(model, "classes_") for model in fitted):
            self.classes_ = np.asarray(fitted[0].classes_)
        return self

    def records(self) -> tuple[type, ...]:
        """What every member gives."""
        return tuple(kind for kind in records_of(self.members[0]) if all(kind in records_of(m) for m in self.members[1:]))

    def predict_kind(self, X: Any, kind: type) -> Prediction:
        """The average of the members' records of one kind."""
        check_is_fitted(self, "fitted_")
        return self.average([predict_record(model, X, kind) for model in self.fitted_])

    def predict(self, X: Any) -> Any:
        """The label with the largest average probability, or the average of the members' predictions."""
        check_is_fitted(self, "fitted_")
        if hasattr(self, "classes_"):
            return self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        return np.mean([model.predict(X) for model in self.fitted_], axis=0)

    def predict_proba(self, X: Any) -> Any:
        """The average probability of each class."""
        record = self.predict_kind(X, ClassProbabilities)
        assert isinstance(record, ClassProbabilities)
        return record.probabilities

    @staticmethod
    def average(records: Sequence[Any]) -> Prediction:
        """One record from several of the same kind."""
        first = records[0]
        match first:
            case ClassProbabilities():
                _same_classes(records)
                mean = np.mean([record.probabilities for record in records], axis=0)
                return ClassProbabilities(np.minimum(mean, 1), first.classes, first.uniforms, first.unseen)
            case ClassDraws():
                _same_classes(records)
                pooled = np.concatenate([record.draws for record in records])
                return ClassDraws(pooled, first.classes, first.uniforms, first.unseen)
            case Points():
                return Points(np.mean([record.mean for record in records], axis=0))
            case PointsWithSpread():
                spread = np.mean([record.spread for record in records], axis=0)
                return PointsWithSpread(np.mean([record.mean for record in records], axis=0), spread)
            case Quantiles():
                median = None
                if all(record.median is not None for record in records):
                    median = np.mean([record.median for record in records], axis=0)
                lower = np.mean([record.lower for record in records], axis=0)
                return Quantiles(lower, np.mean([record.upper for record in records], axis=0), median)
            case GaussianMixtures():
                scales = [np.broadcast_to(record.sds, record.means.shape) for record in records]
                return GaussianMixtures(
                    np.concatenate([record.means for record in records], axis=1), np.concatenate(scales, axis=1)
                )
        raise TypeError(f"not a prediction record: {type(first).__name__}")


def _same_classes(records: Sequence[Any]) -> None:
    if any(not np.array_equal(record.classes, records[0].classes) for record in records[1:]):
        raise ValueError("models that know different classes cannot be averaged.")
