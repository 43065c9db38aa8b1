"""The average of several models as one model: among near-ties it beats choosing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray, Floats
from dco.models.composed import ComposedModel
from dco.models.records import predict_record, records_of
from dco.predictions import (
    ClassDraws,
    ClassProbabilities,
    ClassRecord,
    GaussianMixtures,
    Points,
    PointsWithSpread,
    Prediction,
    QuantileFunction,
    Quantiles,
    TargetDraws,
)


class AveragedModel(ComposedModel):
    """The average of what its members predict.

    Probabilities, means, spreads and quantiles are averaged; draws and mixture components are
    pooled. With `weights`, one for each member, it predicts points: the weighted average of theirs.
    """

    def __init__(self, members: Sequence[Any], weights: Sequence[float] | None = None) -> None:
        self.members = members
        self.weights = weights

    def records(self) -> tuple[type, ...]:
        """Return the types of record that every member gives; with weights, points alone."""
        if self.weights is not None:
            return (Points,)
        offered = [records_of(member) for member in self.members]
        common = set(offered[0]).intersection(*offered)
        return tuple(record for record in offered[0] if record in common)

    def predict_kind(self, X: Any, kind: type) -> Prediction:
        """Return the average of the members' records of one type."""
        if self.weights is not None:
            return Points(self.predict(X))
        return average_records([predict_record(model, X, kind) for model in self.fitted_])

    def predict(self, X: Any) -> AnyArray:
        """Return the label with the largest average probability, or the average prediction."""
        if hasattr(self, "classes_"):
            best = np.argmax(self.predict_proba(X), axis=1)
            return np.asarray(self.classes_[best])
        predictions = [model.predict(X) for model in self.fitted_]
        return np.asarray(np.average(predictions, axis=0, weights=self.weights))

    def predict_proba(self, X: Any) -> Floats:
        """Return the average probability of each class."""
        record: Any = self.predict_kind(X, ClassProbabilities)
        return np.asarray(record.probabilities)


def average_records(records: Sequence[Any]) -> Prediction:
    """Average the predictions of several models for the same rows.

    `records` has one prediction record per model, all of the same type. Probabilities, points,
    spreads and quantiles are averaged, quantiles at many levels at those of the first record; draws
    and mixture components are pooled.
    """
    match records[0]:
        case ClassDraws() | ClassProbabilities():
            return _average_class_records(records)
        case GaussianMixtures():
            return _pool_mixtures(records)
        case Quantiles():
            has_medians = all(record.median is not None for record in records)
            return Quantiles(
                lower=_mean_of(records, "lower"),
                upper=_mean_of(records, "upper"),
                median=_mean_of(records, "median") if has_medians else None,
            )
        case QuantileFunction():
            levels = records[0].levels
            return QuantileFunction(
                levels, np.mean([record.values_at(levels) for record in records], axis=0)
            )
        case TargetDraws():
            return TargetDraws(np.concatenate([record.draws for record in records]))
        case PointsWithSpread():
            return PointsWithSpread(
                mean=_mean_of(records, "mean"), spread=_mean_of(records, "spread")
            )
        case Points():
            return Points(_mean_of(records, "mean"))
    raise TypeError(f"records of type {type(records[0]).__name__} cannot be averaged.")


def _mean_of(records: Sequence[Any], field: str) -> Floats:
    """Average a field of several records, row by row."""
    return np.asarray(np.mean([getattr(record, field) for record in records], axis=0))


def _average_class_records(records: Sequence[Any]) -> ClassRecord:
    """Average class probabilities, or pool draws of them; all records name the same classes."""
    _check_same_classes(records)
    first = records[0]
    if isinstance(first, ClassDraws):
        draws = np.concatenate([record.draws for record in records])
        return ClassDraws(draws, first.classes, first.uniforms, first.unseen)

    probabilities = _mean_of(records, "probabilities")
    probabilities = np.minimum(probabilities, 1)  # not above 1 by a rounding error
    return ClassProbabilities(probabilities, first.classes, first.uniforms, first.unseen)


def _pool_mixtures(records: Sequence[GaussianMixtures]) -> GaussianMixtures:
    """Average the mixtures of several models: one mixture per row, of all their components.

    A record holds the means of its components, (n_components, n_rows), and their standard
    deviations, of the same shape, or (n_components,) if these are the same for all rows.
    """
    all_means = []
    all_sds = []
    for record in records:
        means = record.means.T  # (n_rows, n_components)
        all_means.append(means)
        all_sds.append(np.broadcast_to(record.sds.T, means.shape))
    return GaussianMixtures(
        np.concatenate(all_means, axis=1), np.concatenate(all_sds, axis=1), draws_first=False
    )


def _check_same_classes(records: Sequence[Any]) -> None:
    """Refuse records whose columns are not the same classes in the same order."""
    first = records[0]
    if any(not np.array_equal(record.classes, first.classes) for record in records[1:]):
        raise ValueError("models that know different classes cannot be averaged.")
