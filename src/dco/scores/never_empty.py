"""A score of labels whose sets always hold the most probable label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Bools, Floats, Integers
from dco.predictions import ClassDraws, ClassProbabilities, ClassRecord, on_host
from dco.scores.classification import LabelScore, TopK
from dco.scores.ranks import Doubles
from dco.scores.registry import register
from dco.scores.score import LEAST, Cutoff, OfScores, Score, cutoff
from dco.sets.labels import LabelSets


@dataclass(frozen=True)
class NeverEmpty(OfScores):
    """`score`, but the least float for the label of the largest probability (the first among
    equals; the mean over passes).

    That label is then in every calibrated set. It is a score like any other, so calibration is as
    exact as before, and the threshold is at most that of `score`: no set holds a label that the set
    of `score` does not hold, save the first. Where that label alone is right often enough, the
    threshold is `LEAST` and every set is that label; calibration scores are then tied, and coverage
    is at least the law, not equal to it.
    """

    score: LabelScore

    def __post_init__(self) -> None:
        if not isinstance(self.score, LabelScore):
            raise ValueError(
                f"NeverEmpty needs a score of labels such as dco.scores.APS(), got "
                f"{self.score!r:.200}."
            )

    def observed(self, prediction: ClassRecord, y: ArrayLike) -> Doubles:
        """The score of the label that happened, (n,); `LEAST` for the most probable one."""
        prediction = on_host(prediction)
        scores = self.score.observed(prediction, y)
        scores[prediction.codes(y) == _top(prediction)] = LEAST
        return scores

    def every_label(self, prediction: ClassRecord) -> Doubles:
        """The score of every label, (n, K)."""
        prediction = on_host(prediction)
        scores = self.score.every_label(prediction)
        scores[np.arange(len(scores)), _top(prediction)] = LEAST
        return scores

    def sets(self, prediction: ClassRecord, threshold: Cutoff) -> LabelSets:
        """All labels whose score is at most the threshold: the set of `score`, and the most
        probable label.
        """
        prediction = on_host(prediction)
        sets, top = self.score.sets(prediction, threshold), _top(prediction)
        rows = np.flatnonzero(self._left_out(prediction, top, [threshold])[0])
        if not rows.size:
            return sets
        # ascending, rows and all
        held = np.repeat(np.arange(len(sets)), sets.sizes()) * sets.n_classes + sets.codes
        places = np.searchsorted(held, rows * sets.n_classes + top[rows])
        pointers = sets.row_pointers.copy()
        pointers[1:] += np.cumsum(np.bincount(rows, minlength=len(sets)))
        return LabelSets(
            pointers, np.insert(sets.codes, places, top[rows]), sets.n_classes, sets.classes
        )

    def sizes(self, prediction: ClassRecord, threshold: Cutoff) -> Integers:
        """How many labels each set holds, (n,), without making the sets."""
        return np.asarray(self.sizes_at_several(prediction, [threshold])[0])

    def sizes_at_several(
        self, prediction: ClassRecord, thresholds: Sequence[Cutoff] | Floats
    ) -> Integers:
        """The sizes of the sets at several thresholds, (J, n)."""
        prediction = on_host(prediction)
        return self.score.sizes_at_several(prediction, thresholds) + self._left_out(
            prediction, _top(prediction), thresholds
        )

    def _left_out(
        self, prediction: ClassRecord, top: Integers, thresholds: Sequence[Cutoff] | Floats
    ) -> Bools:
        """Where `score` leaves the most probable label out of a set that is to hold it, (J, n)."""
        n, k, labels = len(top), prediction.n_classes, prediction.labels()
        scores = self.score.observed(prediction, top if labels is None else labels[top])
        given = [cutoff(threshold, n, k) for threshold in thresholds]
        rows = [
            limit if np.ndim(limit) == 0 else np.broadcast_to(limit, (n, k))[np.arange(n), top]
            for limit in given
        ]
        return np.reshape([(scores > limit) & (limit >= LEAST) for limit in rows], (len(rows), n))


def never_empty(score: Score) -> Score:
    """`NeverEmpty(score)` for a score of labels whose sets may be empty; any other score as
    it is.
    """
    return (
        NeverEmpty(score)
        if isinstance(score, LabelScore) and not isinstance(score, TopK)
        else score
    )


def _top(prediction: ClassRecord) -> Integers:
    return np.asarray(np.argmax(prediction.as_probabilities().probabilities, axis=1))


register(NeverEmpty, records=(ClassProbabilities, ClassDraws))
