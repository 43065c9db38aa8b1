"""A score of labels whose sets always hold the most probable label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dco.foundations.arrays import Array, namespace
from dco.predictions import ClassDraws, ClassProbabilities, ClassRecord
from dco.scores.label_arrays import count_true
from dco.scores.label_score import LabelScore, is_by_row
from dco.scores.registry import register
from dco.scores.score import CompositeScore, Score
from dco.scores.thresholds import LOWEST_SCORE
from dco.scores.top_k import TopK


@dataclass(frozen=True)
class NeverEmpty(CompositeScore, LabelScore):  # type: ignore[override]
    """`score`, but the lowest float for the most probable label, so that no set is empty.

    The most probable label (the first among equals; by the mean over dropout passes) is then in
    every calibrated set. It is a score like any other, so calibration is as exact as before, and
    the threshold is at most that of `score`: apart from the most probable label, no set holds a
    label that the set of `score` does not hold. Where the most probable label alone is right often
    enough, the threshold is the lowest float and every set is that label. Calibration scores are
    then tied, and coverage is at least what it would be without ties, not equal to it.
    """

    score: LabelScore

    def __post_init__(self) -> None:
        if not isinstance(self.score, LabelScore):
            raise ValueError(
                f"NeverEmpty needs a score of labels such as dco.scores.APS(), got "
                f"{self.score!r:.200}."
            )

    def read(self, prediction: Any) -> ClassRecord:
        """Check a prediction, and return it in the form that `score` reads."""
        return self.score.read(prediction)

    def score_labels(self, record: ClassRecord) -> Array:
        """Score every label by `score`, the most probable one lowest."""
        scores = self.score.score_labels(record)
        return namespace(scores).where(_is_top(record), LOWEST_SCORE, scores)

    def score_one_label(self, record: ClassRecord, labels: Array) -> Array:
        """Score one label of each row by `score`, the most probable one lowest."""
        scores = self.score.score_one_label(record, labels)
        is_top = labels == _top_label(record)
        return namespace(scores).where(is_top, LOWEST_SCORE, scores)

    def find_members(self, record: ClassRecord, thresholds: Array) -> Array:
        """Mark the labels that are members by `score`, and the most probable label, (n, K)."""
        members = self.score.find_members(record, thresholds)
        holds_top = thresholds >= LOWEST_SCORE
        return members | (_is_top(record) & holds_top)

    def count_members(self, record: ClassRecord, several: Sequence[Array]) -> list[Array]:
        """Count the members by `score` in each row, and the most probable label if it is none.

        `several` are matrices of thresholds; there is one array (n,) of counts for each. The most
        probable label scores the lowest float, so it is a member at all thresholds from there on.
        """
        if not all(is_by_row(thresholds) for thresholds in several):
            return super().count_members(record, several)

        top_label = _top_label(record)
        score_of_top = self.score.score_one_label(record, top_label)[:, None]
        counts_by_score = self.score.count_members(record, several)

        counts = []
        for count, thresholds in zip(counts_by_score, several, strict=True):
            is_member = thresholds >= LOWEST_SCORE
            is_no_member_by_score = score_of_top > thresholds
            counts.append(count + count_true(is_member & is_no_member_by_score))
        return counts


def never_empty(score: Score) -> Score:
    """Wrap a score of labels whose sets may be empty in `NeverEmpty`; return others as they are."""
    if isinstance(score, LabelScore) and not isinstance(score, TopK | NeverEmpty):
        return NeverEmpty(score)
    return score


def _top_label(record: ClassRecord) -> Array:
    """Return the column of the largest probability of each row, the first among equals."""
    probabilities = record.as_probabilities().probabilities
    xp = namespace(probabilities)
    n_labels = probabilities.shape[1]
    columns = xp.arange(n_labels, device=probabilities.device)[None, :]
    is_largest = probabilities == xp.max(probabilities, axis=1, keepdims=True)
    return xp.min(xp.where(is_largest, columns, n_labels), axis=1)


def _is_top(record: ClassRecord) -> Array:
    """Mark the most probable label of each row, (n, K)."""
    top = _top_label(record)
    columns = namespace(top).arange(record.n_known, device=top.device)
    return columns[None, :] == top[:, None]


register(NeverEmpty, records=(ClassProbabilities, ClassDraws))
