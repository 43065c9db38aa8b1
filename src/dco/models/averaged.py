"""The average of several models as one model: among near-ties it beats choosing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from dco.models.adapt import CLASS_RECORDS, predict_record, records_of
from dco.predictions import ClassDraws, ClassProbabilities, GaussianMixtures, Prediction


class AveragedModel(BaseEstimator):
    """The average of what its members predict, record by record; each is fitted by itself
    (`of_fitted`).

    Probabilities, means, spreads and quantiles are averaged; draws and mixture components are
    pooled.
    """

    def __init__(self, members: Sequence[Any]) -> None:
        self.members = members

    def of_fitted(self, fitted: list[Any]) -> AveragedModel:
        """The same with members that were fitted elsewhere, on the same rows."""
        made = AveragedModel(self.members)
        made.fitted_ = fitted
        if all(hasattr(model, "classes_") for model in fitted):
            made.classes_ = np.asarray(fitted[0].classes_)
        return made

    def records(self) -> tuple[type, ...]:
        """What every member gives."""
        return tuple(
            kind
            for kind in records_of(self.members[0])
            if all(kind in records_of(m) for m in self.members[1:])
        )

    def predict_kind(self, X: Any, kind: type) -> Prediction:
        """The average of the members' records of one kind."""
        return self.average([predict_record(model, X, kind) for model in self.fitted_])

    def predict(self, X: Any) -> Any:
        """The label with the largest average probability, or the average of the members'
        predictions.
        """
        if hasattr(self, "classes_"):
            return self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        return np.mean([model.predict(X) for model in self.fitted_], axis=0)

    def predict_proba(self, X: Any) -> Any:
        """The average probability of each class."""
        record: Any = self.predict_kind(X, ClassProbabilities)
        return record.probabilities

    @staticmethod
    def average(records: Sequence[Any]) -> Prediction:
        """One record from several of the same kind."""
        first, kind = records[0], type(records[0])
        made: Prediction
        if kind in CLASS_RECORDS:
            if any(not np.array_equal(record.classes, first.classes) for record in records[1:]):
                raise ValueError("models that know different classes cannot be averaged.")
            if kind is ClassDraws:
                values = np.concatenate([record.draws for record in records])
            else:
                values = np.minimum(
                    np.mean([record.probabilities for record in records], axis=0), 1
                )
            made = kind(values, first.classes, first.uniforms, first.unseen)
        elif kind is GaussianMixtures:
            scales = [np.broadcast_to(record.sds, record.means.shape) for record in records]
            made = kind(
                np.concatenate([record.means for record in records], axis=1),
                np.concatenate(scales, axis=1),
            )
        else:
            parts = zip(*(vars(record).values() for record in records), strict=True)
            made = kind(
                *(
                    None if any(part is None for part in each) else np.mean(each, axis=0)
                    for each in parts
                )
            )
        return made
