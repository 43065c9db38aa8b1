"""Candidates, and the one structure that is fixed before calibration rows are opened."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.foundations.fingerprints import row_uniforms
from dco.models.records import predict_record
from dco.predictions import Prediction
from dco.scores.score import Score
from dco.sets.prediction_sets import PredictionSets

# Calibration rows that are scored a second time, to see whether scores depend on other rows.
MOST_SCORED_IN_ONE_BATCH = 256
MOST_SCORED_ALONE = 32


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
    scores from the rows themselves.
    """

    name: str
    model: Any
    score: Score
    record_type: type
    classes: AnyArray | None
    uniform_seed: int
    fingerprint: str

    def prediction(self, X: Any) -> Prediction:
        """Predict the rows of X, as the record that the score reads."""
        uniforms = row_uniforms(X, seed=self.uniform_seed) if self.score.randomised else None
        return predict_record(
            self.model, X, self.record_type, uniforms=uniforms, classes=self.classes
        )

    def scores(self, X: Any, y: AnyArray) -> Floats:
        """Score each row with its y."""
        return np.asarray(self.score.observed(self.prediction(X), y))

    def sets(self, prediction: Prediction, thresholds: float | Floats) -> PredictionSets:
        """Make prediction sets: all values whose score is at most the threshold of their row.

        Labels ascend, as those of ``classes_`` and of p-values do.
        """
        return self.score.sets(prediction, thresholds).with_sorted_labels()


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """The scores of some rows with their own targets, and what else a calibration needs of them.

    `covariates` has what the kind of calibration reads of each row beside its score: its condition,
    say, or its weight. `clusters` says which rows belong together, and `one_per_cluster` has the
    positions of one row of each, picked before any score was seen. `rounding` is what was added to
    every score because some are tied (`tie_rounding`).
    """

    scores: Floats
    covariates: AnyArray | None = None
    clusters: AnyArray | None = None
    one_per_cluster: Integers | None = None
    rounding: float = 0.0

    def __len__(self) -> int:
        return len(self.scores)

    def __getstate__(self) -> dict[str, Any]:
        """Write each distinct object of the covariates once, and which of them each row has."""
        state = dict(vars(self))
        if self.covariates is None or self.covariates.dtype != object:
            return state

        values = self.covariates.tolist()
        distinct = list(dict.fromkeys(values))
        position_of = {value: position for position, value in enumerate(distinct)}
        positions = np.array([position_of[value] for value in values], dtype=np.int64)
        state["covariates"] = (distinct, positions)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Read what `__getstate__` wrote."""
        vars(self).update(state)
        if isinstance(state["covariates"], tuple):
            distinct, positions = state["covariates"]
            values = np.fromiter(distinct, dtype=object, count=len(distinct))
            vars(self)["covariates"] = values[positions]


def rows_scored_again(n: int) -> tuple[Integers, Integers]:
    """Choose which of n calibration rows are scored again: the first in one batch, some alone.

    Return the positions of both. A score that then differs depends on the rows beside it.
    """
    in_one_batch = np.arange(min(MOST_SCORED_IN_ONE_BATCH, (n + 1) // 2))
    spread_evenly = np.linspace(0, n - 1, min(MOST_SCORED_ALONE, n))
    alone = np.unique(spread_evenly.astype(np.int64))
    return in_one_batch, alone


def structure_digest(
    *,
    candidate: str,
    model: str,
    score: str,
    fitted_on: Sequence[str],
    seed: int,
) -> str:
    """Return a hash by which a certificate names its structure, in hex.

    It depends on the name of the candidate, on model and score as `describe` writes them, on the
    digests of the rows that the model was fitted on, and on the seed of randomised scores. The
    numbers inside a fitted model do not enter.
    """
    facts = {
        "candidate": candidate,
        "model": model,
        "score": score,
        "fitted on": list(fitted_on),
        "seed": seed,
    }
    text = json.dumps(facts, sort_keys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def describe(value: Any) -> str:
    """Write a model, a score, a function or a setting as text that is the same in every run.

    Unlike `repr`, it has no memory addresses, and it writes all settings of a model:
    "Ridge(alpha=1.0, copy_X=True, ...)".
    """
    # 1. Single values.
    if isinstance(value, np.generic):
        return repr(value.item())
    if value is None or isinstance(value, (str, int, float, bool)):
        return repr(value)

    # 2. Collections.
    if isinstance(value, (list, tuple)):
        items = [describe(item) for item in value]
        return "[" + ", ".join(items) + "]"
    if isinstance(value, Mapping):
        items = [f"{describe(key)}: {describe(item)}" for key, item in value.items()]
        return "{" + ", ".join(items) + "}"
    if isinstance(value, np.ndarray):
        digest = blake2b(np.ascontiguousarray(value).tobytes(), digest_size=8).hexdigest()
        return f"array of shape {value.shape}, {digest}"

    # 3. Models with their settings, functions and classes by name, others by their class.
    is_class = isinstance(value, type)
    if hasattr(value, "get_params") and not is_class:
        params = sorted(value.get_params(deep=False).items())
        settings = ", ".join(f"{name}={describe(param)}" for name, param in params)
        return f"{type(value).__name__}({settings})"
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__name__))
    return type(value).__name__
