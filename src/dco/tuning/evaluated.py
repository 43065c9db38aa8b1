"""Candidates on the tuning rows: scores of the true labels, and set sizes at any threshold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray, Floats, Integers, to_numpy
from dco.foundations.ranks import checked_scores
from dco.predictions import ClassRecord, Prediction
from dco.scores.inverse import check_inverse, is_ours
from dco.scores.names import checked_score
from dco.scores.score import Score
from dco.sets.labels import codes_of
from dco.sets.prediction_sets import PredictionSets

Positions: TypeAlias = Integers | slice
ALL_ROWS = slice(None)


@dataclass(frozen=True, eq=False)
class TuningPredictions:
    """Predictions of the tuning rows: one record, or one for each fold with its rows."""

    records: tuple[Prediction, ...]
    positions: tuple[Positions, ...] = (ALL_ROWS,)

    @property
    def are_of_classes(self) -> bool:
        """Whether the predictions are of labels."""
        return isinstance(self.records[0], ClassRecord)

    @cached_property
    def labels(self) -> AnyArray:
        """All labels: those of the one record in its order, or those of all folds, ascending."""
        names = [label_names(record) for record in self.records if isinstance(record, ClassRecord)]
        if len(names) == 1:
            return names[0]
        return np.unique(np.concatenate(names))

    @cached_property
    def centres(self) -> Floats:
        """One number for each row to order rows by: the prediction, or its largest probability."""
        return self._join([record.centres for record in self.records])

    def observed(self, score: Score, y: AnyArray) -> Floats:
        """Score the true label of each row."""
        return self._join([score.observed(record, y[rows]) for record, rows in self.folds()])

    def sizes(self, score: Score, thresholds: float | Floats) -> Floats:
        """Return the size of each row's set at these thresholds, (n,); a size of NaN is refused.

        `thresholds` are one number, or an array with one for each row or for each label.
        """
        sizes_of_folds = []
        for record, rows in self.folds():
            fold_thresholds = self._thresholds_of_fold(thresholds, record, rows)
            sizes_of_folds.append(to_numpy(score.sizes(record, fold_thresholds)))
        sizes = np.asarray(self._join(sizes_of_folds), dtype=np.float64)

        nan_rows = np.flatnonzero(np.isnan(sizes))
        if nan_rows.size:
            raise ValueError(f"{type(score).__name__} gave a set of size NaN (row {nan_rows[0]}).")
        return sizes

    def sizes_at_several(self, score: Score, thresholds: Floats) -> Floats:
        """Return the set sizes at several thresholds: a line for each threshold, (J, n)."""
        parts = [to_numpy(score.sizes_at_several(record, thresholds)) for record in self.records]
        return self._join(parts).astype(np.float64)

    def sets(
        self, score: Score, thresholds: float | Floats
    ) -> Iterator[tuple[Positions, Prediction, PredictionSets]]:
        """Yield the rows of each fold, their predictions and their sets."""
        for record, rows in self.folds():
            fold_thresholds = self._thresholds_of_fold(thresholds, record, rows)
            yield rows, record, score.sets(record, fold_thresholds)

    def folds(self) -> Iterator[tuple[Prediction, Positions]]:
        """Yield each record with the positions of its rows."""
        return zip(self.records, self.positions, strict=True)

    def _join(self, parts: Sequence[AnyArray]) -> Floats:
        """Join the values of all folds in the order of the tuning rows.

        Each part holds the values of one fold, with its rows along the last axis: (..., n_fold).
        """
        if len(parts) == 1:
            return parts[0]
        n_rows = sum(part.shape[-1] for part in parts)
        other_axes = parts[0].shape[:-1]
        joined = np.empty((*other_axes, n_rows))
        for part, rows in zip(parts, self.positions, strict=True):
            joined[..., rows] = part
        return joined

    def _thresholds_of_fold(
        self, thresholds: float | Floats, record: Prediction, rows: Positions
    ) -> float | Floats:
        """Pick the thresholds that apply to one fold, out of those for all tuning rows.

        Parameters
        ----------
        thresholds
            One number for all rows; or one for each row, (n,) or (n, 1); or one for each label,
            (1, K), in the order of `labels`.
        record, rows
            The predictions of the fold, and the positions of its rows among the tuning rows.
        """
        all_thresholds = np.asarray(thresholds)
        if all_thresholds.ndim == 0:
            return float(all_thresholds)
        has_one_fold = len(self.records) == 1
        if has_one_fold:
            return all_thresholds

        is_for_labels = all_thresholds.ndim == 2 and all_thresholds.shape[0] == 1
        if is_for_labels and isinstance(record, ClassRecord):
            # The model of this fold may know fewer labels, and in another order.
            columns = codes_of(label_names(record), self.labels)
            return np.asarray(all_thresholds[:, columns])
        return np.asarray(all_thresholds[rows])


def label_names(record: ClassRecord) -> AnyArray:
    """Return the labels of a record, or their numbers if they have no names."""
    labels = record.labels()
    return np.arange(record.n_classes) if labels is None else labels


Pairs: TypeAlias = Mapping[str, tuple[Score, TuningPredictions]]


@dataclass(frozen=True, eq=False)
class ScoredPredictions:
    """The score and the predictions behind an evaluated candidate, with the true labels."""

    score: Score
    predictions: TuningPredictions
    y: AnyArray

    def sizes_at(self, thresholds: float | Floats) -> Floats:
        """Return the set sizes at a threshold."""
        return self.predictions.sizes(self.score, thresholds)

    def sizes_at_several(self, thresholds: Floats) -> Floats:
        """Return the set sizes at several thresholds, (J, n)."""
        return self.predictions.sizes_at_several(self.score, thresholds)

    def check_inverse(self, scores: Floats) -> None:
        """Refuse a user's score whose sets leave out labels that score below the threshold."""
        if is_ours(self.score):
            return
        for record, rows in self.predictions.folds():
            check_inverse(self.score, record, self.y[rows], scores[rows])


@dataclass(frozen=True, eq=False)
class EvaluatedCandidate:
    """A candidate on the tuning rows.

    Attributes
    ----------
    name
        The name of the candidate.
    scores
        The score of each row's true label, (n,).
    sizes_at
        Returns the size of each row's set at a threshold, (n,). Sizes must not decrease when the
        threshold grows.
    source
        The score and the predictions behind it, which some objectives look at. None for people who
        bring their own `sizes_at`.
    """

    name: str
    scores: Floats
    sizes_at: Callable[[float | Floats], Floats]
    source: ScoredPredictions | None = None

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def n_labels(self) -> int | None:
        """The number of labels, None for numbers and for size curves."""
        if self.source is None or not self.source.predictions.are_of_classes:
            return None
        return len(self.source.predictions.labels)

    def size_curves(self, thresholds: Floats) -> Floats:
        """Return set sizes at several thresholds, (J, n)."""
        if self.source is None:
            return np.stack([self.sizes_at(float(threshold)) for threshold in thresholds])
        return self.source.sizes_at_several(thresholds)


def evaluate_candidate(
    name: str, score: Score, prediction: Prediction, y: ArrayLike
) -> EvaluatedCandidate:
    """Score the true labels of one candidate; sizes are computed where they are asked for."""
    predictions = TuningPredictions((prediction,))
    return evaluate_pair(name, checked_score(score), predictions, to_numpy(y))


def evaluate_pair(
    name: str, score: Score, predictions: TuningPredictions, y: AnyArray
) -> EvaluatedCandidate:
    """Score the true target of each tuning row, and check the scores.

    There must be one for each row, and a score that a user wrote must agree with its own sets.
    """
    scores = checked_scores(predictions.observed(score, y))
    if scores.shape != (len(y),):
        raise ValueError(
            f"{type(score).__name__} gave {scores.size} scores for {len(y)} tuning rows."
        )
    source = ScoredPredictions(score, predictions, y)
    source.check_inverse(scores)
    return EvaluatedCandidate(name, scores, source.sizes_at, source)


def evaluate_pairs(
    pairs: Pairs, y: AnyArray
) -> tuple[list[EvaluatedCandidate], dict[str, Exception]]:
    """Evaluate candidates, given as {name: (score, predictions)}.

    Returns those that could be evaluated, and the errors of the others by name.
    """
    evaluated = []
    errors = {}
    for name, (score, predictions) in pairs.items():
        try:
            evaluated.append(evaluate_pair(name, score, predictions, y))
        except Exception as error:
            errors[name] = error
    return evaluated, errors
