"""Scores of Monte-Carlo-dropout passes or posterior draws of class probabilities.

Passes are added one after the other, label by label, so that a label's score is the same float
however it is asked for, and so that nothing of the size of all passes is made a second time.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dco.foundations.arrays import Doubles, Floats, Integers
from dco.predictions import ClassDraws, ClassProbabilities, ClassRecord
from dco.scores.label_score import LabelScore
from dco.scores.registry import register
from dco.scores.score import expect

# a power of two, so nothing rounds: squares of probabilities down to 1e-289 stay above 0
_SCALE_OF_SQUARES = 2.0**900


class NegativeLogScore(LabelScore):
    """-log of something like a probability, in double precision; +inf where it is 0."""

    @abstractmethod
    def evidence(self, passes: Floats) -> Doubles:
        """Return what the logarithm is taken of, from the probabilities of T passes.

        `passes` are (T, n, K) for all labels or (T, n) for one label of each row; the result is
        (n, K) or (n,).
        """

    def read(self, prediction: Any) -> ClassRecord:
        """Check a prediction, and return it with its passes in NumPy's arrays."""
        record: ClassRecord = expect(self, prediction, *self.needs)
        return record.on_host()

    def score_labels(self, record: ClassRecord) -> Doubles:
        """Return -log of every label's evidence."""
        return _negative_log(self.evidence(_passes(record)))

    def score_one_label(self, record: ClassRecord, labels: Integers) -> Doubles:
        """Return -log of the evidence of one label of each row."""
        passes_of_labels = _passes(record)[:, np.arange(len(record)), labels]
        return _negative_log(self.evidence(passes_of_labels))


@dataclass(frozen=True)
class PosteriorNLL(NegativeLogScore):
    """-log of the posterior predictive probability, the mean over passes.

    This is the paper's posterior_nll. It orders labels as LAC does on the same mean, so calibrated
    sets are the same.
    """

    needs: ClassVar[tuple[type, ...]] = (ClassDraws, ClassProbabilities)

    def evidence(self, passes: Floats) -> Doubles:
        """Return the mean over passes."""
        return _sum(passes) / float(len(passes))


@dataclass(frozen=True)
class AddOneIn(NegativeLogScore):
    """-log of sum p_t^2 / sum p_t over passes t (the paper's aoi_nll).

    With mean m and coefficient of variation cv over passes it is m (1 + cv^2): labels on which
    passes disagree gain. It is the last line of Fong and Holmes's (2021) add-one-in rule, used as a
    split score.
    """

    needs: ClassVar[tuple[type, ...]] = (ClassDraws,)

    def evidence(self, passes: Floats) -> Doubles:
        """Return sum p_t^2 / sum p_t over passes t, 0 where every pass gives 0."""
        total = _sum(passes)
        scaled_squares = _sum_of_squares(passes)
        scaled = np.divide(scaled_squares, total, out=np.zeros_like(total), where=total > 0)
        return scaled / _SCALE_OF_SQUARES


def _passes(record: ClassRecord) -> Floats:
    """Return the passes of a record; probabilities are one pass."""
    if isinstance(record, ClassDraws):
        return record.draws
    return record.as_probabilities().probabilities[None]


def _sum(passes: Floats) -> Doubles:
    """Add up passes in their order. np.sum would choose the order by the layout in memory."""
    total = np.zeros(passes.shape[1:])
    for values in passes:
        total += values
    return total


def _sum_of_squares(passes: Floats) -> Doubles:
    """Add up squares of passes in their order, each times `_SCALE_OF_SQUARES`."""
    total = np.zeros(passes.shape[1:])
    for values in passes:
        total += np.multiply(values, _SCALE_OF_SQUARES, dtype=np.float64) * values
    return total


def _negative_log(evidence: Doubles) -> Doubles:
    with np.errstate(divide="ignore"):
        return -np.log(evidence)


register(PosteriorNLL, defaults=(PosteriorNLL(),), records=(ClassDraws,))
register(AddOneIn, defaults=(AddOneIn(),))
