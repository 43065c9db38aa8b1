"""A fitted model with every score that reads its predictions, ready for `tune`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dco.foundations.arrays import AnyArray
from dco.models.fitting import fit_model
from dco.models.records import predict_record
from dco.predictions import Prediction
from dco.rows.rows import Rows
from dco.scores.score import Score
from dco.structure import Candidate
from dco.tuning.candidates import learn_scores, pair_models_with_scores


@dataclass(frozen=True, eq=False)
class FittedCandidates:
    """A fitted model with its scores. Together with each of them it is one candidate.

    `classes` are the labels of the task; None for numbers.
    """

    model: Any
    candidates: tuple[Candidate, ...]
    classes: AnyArray | None

    def predict(self, X: Any) -> dict[str, tuple[Score, Prediction]]:
        """Predict rows for every candidate: its score and its prediction, by its name.

        This is what `tune` and `select_and_calibrate` take.
        """
        record_types = dict.fromkeys(candidate.record_type for candidate in self.candidates)
        predictions = {
            record_type: predict_record(self.model, X, record_type, classes=self.classes)
            for record_type in record_types
        }
        return {
            candidate.name: (candidate.score, predictions[candidate.record_type])
            for candidate in self.candidates
        }


def fit_candidates(
    name: str, model: Any, X: Any, y: AnyArray, *, classes: AnyArray | None
) -> FittedCandidates:
    """Fit a copy of a model, and pair it with the default scores that read its predictions.

    `name` is the model's part in the names of the candidates. `classes` are all labels of the
    task, also those that are not in `y`; None for numbers.
    """
    fitted_model = fit_model(model, Rows(X, y))
    pairs = pair_models_with_scores({name: model}, None, of_classes=classes is not None)
    candidates = learn_scores(pairs, y, support=None)
    return FittedCandidates(model=fitted_model, candidates=tuple(candidates), classes=classes)
