"""Candidates, and the one structure that is fixed before calibration rows are opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray, Floats
from dco.foundations.fingerprints import row_uniforms
from dco.models.records import predict_record
from dco.predictions import Prediction
from dco.rows.conditions import cluster_names, condition_values
from dco.scores.score import Score


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model and a score that may become the structure (an element of the paper's Phi).

    They meet through `record_type`: what the model predicts and the score reads.
    """

    model_name: str
    score_name: str
    model: Any
    score: Score
    record_type: type

    @property
    def name(self) -> str:
        """The name that rankings show."""
        return f"{self.model_name} / {self.score_name}"


@dataclass(frozen=True, eq=False)
class Structure:
    """A fitted model and a score, fixed before calibration rows are opened: the paper's phi.

    `classes` are the labels, None for numbers. `uniform_seed` draws the uniforms of randomised
    scores from the rows themselves. `label_clusters` are the labels that share a threshold.
    """

    name: str
    model: Any
    score: Score
    record_type: type
    condition_on: Any
    classes: AnyArray | None
    uniform_seed: int
    fingerprint: str
    label_clusters: tuple[tuple[Any, ...], ...] = ()

    def prediction(self, X: Any) -> Prediction:
        """Predict the rows of X, as the record that the score reads."""
        uniforms = row_uniforms(X, seed=self.uniform_seed) if self.score.randomised else None
        return predict_record(
            self.model, X, self.record_type, uniforms=uniforms, classes=self.classes
        )

    def scores(self, X: Any, y: AnyArray) -> Floats:
        """Score each row with its y."""
        return np.asarray(self.score.observed(self.prediction(X), y))

    def conditions(self, X: Any, y: AnyArray | None = None) -> AnyArray | None:
        """Return the condition of each row; for "label" the label itself, or its cluster."""
        if self.condition_on is None:
            return None
        conditions = condition_values(self.condition_on, X, y)
        if not self.label_clusters or conditions is None:
            return conditions
        return cluster_names(self.label_clusters, conditions)
