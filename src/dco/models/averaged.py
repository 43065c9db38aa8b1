"""The average of several models as one model: among near-ties it beats choosing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from dco.foundations.arrays import AnyArray, Floats
from dco.models.records import predict_record, records_of
from dco.predictions import (
    ClassDraws,
    ClassProbabilities,
    GaussianMixtures,
    Points,
    PointsWithSpread,
    Prediction,
    Quantiles,
)


class AveragedModel(BaseEstimator):
    """The average of what its members predict; each member is fitted by itself (`of_fitted`).

    Probabilities, means, spreads and quantiles are averaged; draws and mixture components are
    pooled.
    """

    def __init__(self, members: Sequence[Any]) -> None:
        self.members = members

    def of_fitted(self, fitted: list[Any]) -> AveragedModel:
        """Return the average of members that were fitted elsewhere, on the same rows."""
        average = AveragedModel(self.members)
        average.fitted_ = fitted
        if all(hasattr(model, "classes_") for model in fitted):
            average.classes_ = np.asarray(fitted[0].classes_)
        return average

    def records(self) -> tuple[type, ...]:
        """Return the types of record that every member gives."""
        offered = [records_of(member) for member in self.members]
        common = set(offered[0]).intersection(*offered)
        return tuple(record for record in offered[0] if record in common)

    def predict_kind(self, X: Any, kind: type) -> Prediction:
        """Return the average of the members' records of one type."""
        return average_records([predict_record(model, X, kind) for model in self.fitted_])

    def predict(self, X: Any) -> AnyArray:
        """Return the label with the largest average probability, or the average prediction."""
        if hasattr(self, "classes_"):
            best = np.argmax(self.predict_proba(X), axis=1)
            return np.asarray(self.classes_[best])
        return np.asarray(np.mean([model.predict(X) for model in self.fitted_], axis=0))

    def predict_proba(self, X: Any) -> Floats:
        """Return the average probability of each class."""
        record: Any = self.predict_kind(X, ClassProbabilities)
        return np.asarray(record.probabilities)


def average_records(records: Sequence[Any]) -> Prediction:
    """Make one record of several of the same type."""
    match records[0]:
        case ClassDraws() as first:
            _check_same_classes(records)
            draws = np.concatenate([record.draws for record in records])
            return ClassDraws(draws, first.classes, first.uniforms, first.unseen)
        case ClassProbabilities() as first:
            _check_same_classes(records)
            mean = np.mean([record.probabilities for record in records], axis=0)
            probabilities = np.minimum(mean, 1)  # not above 1 by a rounding error
            return ClassProbabilities(probabilities, first.classes, first.uniforms, first.unseen)
        case GaussianMixtures():
            means = [record.means.T for record in records]  # (n, T)
            sds = [np.broadcast_to(record.sds.T, record.means.T.shape) for record in records]
            return GaussianMixtures(
                np.concatenate(means, axis=1),
                np.concatenate(sds, axis=1),
                draws_first=False,
            )
        case Quantiles():
            medians = [record.median for record in records]
            has_medians = all(median is not None for median in medians)
            return Quantiles(
                np.mean([record.lower for record in records], axis=0),
                np.mean([record.upper for record in records], axis=0),
                np.mean(medians, axis=0) if has_medians else None,
            )
        case PointsWithSpread():
            return PointsWithSpread(
                np.mean([record.mean for record in records], axis=0),
                np.mean([record.spread for record in records], axis=0),
            )
        case Points():
            return Points(np.mean([record.mean for record in records], axis=0))
    raise TypeError(f"records of type {type(records[0]).__name__} cannot be averaged.")


def _check_same_classes(records: Sequence[Any]) -> None:
    """Refuse records whose columns are not the same classes in the same order."""
    first = records[0]
    if any(not np.array_equal(record.classes, first.classes) for record in records[1:]):
        raise ValueError("models that know different classes cannot be averaged.")
