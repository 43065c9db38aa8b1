"""Several models side by side, for a structure that depends on x."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from dco.models.adapt import predict_record, records_of
from dco.predictions import Prediction, Several


class SeveralModels(BaseEstimator):
    """Members fitted on the same rows; `reads` lists (member, kind of record) for each candidate.

    Point predictions are those of the candidate `lead`, the first one unless told otherwise.
    """

    lead = 0  # of files written before there was a choice

    def __init__(
        self, members: Sequence[Any], reads: Sequence[tuple[int, type]], lead: int = 0
    ) -> None:
        self.members = members
        self.reads = reads
        self.lead = lead

    def of_fitted(self, fitted: list[Any]) -> SeveralModels:
        """The same models, fitted elsewhere on the same rows."""
        made = SeveralModels(self.members, self.reads, self.lead)
        made.fitted_ = fitted
        if hasattr(made.first, "classes_"):
            made.classes_ = np.asarray(made.first.classes_)
        return made

    def led_by(self, lead: int) -> SeveralModels:
        """The same with the point predictions of another candidate's model."""
        return SeveralModels(self.members, self.reads, lead).of_fitted(self.fitted_)

    @property
    def first(self) -> Any:
        """The fitted model of the candidate that predicts points."""
        return self.fitted_[self.reads[self.lead][0]]

    def predict(self, X: Any) -> Any:
        """The first model's point predictions."""
        return self.first.predict(X)

    def predict_several(self, X: Any, *, uniforms: Any, classes: Any) -> Several:
        """The record that each candidate reads."""
        each = ((self.fitted_[place], kind) for place, kind in self.reads)
        return Several(
            tuple(
                predict_record(model, X, kind, uniforms=uniforms, classes=classes)
                for model, kind in each
            )
        )

    def records(self) -> tuple[type, ...]:
        """What the first model gives."""
        return records_of(self.members[self.reads[self.lead][0]])

    def predict_kind(self, X: Any, kind: type) -> Prediction:
        """The first model's record of one kind."""
        return predict_record(self.first, X, kind)
