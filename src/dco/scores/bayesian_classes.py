"""Scores of Monte-Carlo-dropout passes or posterior draws of class probabilities.

Passes are added one after the other, label by label, so that a label's score is the same float
however it is asked for, and so that nothing of the size of all passes is held a second time.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dco.foundations.arrays import Floats, Integers
from dco.predictions import ClassDraws, ClassProbabilities, ClassRecord, on_host
from dco.scores.classification import LabelScore
from dco.scores.ranks import Doubles, picked
from dco.scores.registry import register

# a power of two, so nothing rounds: squares of probabilities down to 1e-289 stay above 0
_SCALE = 2.0**900


class NegativeLogScore(LabelScore):
    """-log of something like a probability, in double precision; +inf where it is 0."""

    @abstractmethod
    def evidence(self, values: Floats) -> Doubles:
        """What the logarithm is taken of, from the probabilities of all passes, (T, ...) to
        (...).
        """

    def row_scores(self, probabilities: Floats, uniforms: Doubles) -> Doubles:
        """-log of every label's evidence."""
        return _negative_log(probabilities)

    def label_scores(self, probabilities: Floats, codes: Integers, uniforms: Doubles) -> Doubles:
        """-log of one label's evidence per row."""
        return _negative_log(picked(probabilities, codes))

    def bound(self, prediction: Any) -> tuple[LabelScore, ClassRecord]:
        """The score and the record with its passes."""
        return self, on_host(self._expected(prediction))

    def _probabilities(self, record: Any, rows: slice) -> Floats:
        return self.evidence(_passes(record)[:, rows])

    def _observed(self, record: Any, rows: slice, codes: Integers, uniforms: Doubles) -> Doubles:
        chosen = _passes(record)[:, np.arange(rows.start, rows.stop), codes]
        return _negative_log(self.evidence(chosen))


@dataclass(frozen=True)
class PosteriorNLL(NegativeLogScore):
    """-log of the posterior predictive probability, the mean over passes (the paper's
    posterior_nll).

    It orders labels as LAC does on the same mean, so calibrated sets are the same.
    """

    needs: ClassVar[tuple[type, ...]] = (ClassDraws, ClassProbabilities)

    def evidence(self, values: Floats) -> Doubles:
        """The mean over passes."""
        return _sum(values) / float(len(values))


@dataclass(frozen=True)
class AddOneIn(NegativeLogScore):
    """-log of sum p_t^2 / sum p_t over passes t (the paper's aoi_nll).

    With mean m and coefficient of variation cv over passes it is m (1 + cv^2): labels on which
    passes disagree gain. It is the last line of Fong and Holmes's (2021) add-one-in rule, used as a
    split score.
    """

    needs: ClassVar[tuple[type, ...]] = (ClassDraws,)

    def evidence(self, values: Floats) -> Doubles:
        """The mean of p weighted by p, 0 where every pass gives 0."""
        total = _sum(values)
        weighted = _sum(values, squared=True)
        return np.divide(weighted, total, out=np.zeros_like(total), where=total > 0) / _SCALE


def _passes(record: ClassRecord) -> Floats:
    return (
        record.draws
        if isinstance(record, ClassDraws)
        else record.as_probabilities().probabilities[None]
    )


def _sum(values: Floats, *, squared: bool = False) -> Doubles:
    """The sum over the first axis, in its order: np.sum would choose the order by the layout in
    memory.

    Squares are multiplied by `_SCALE`.
    """
    total = np.zeros(values.shape[1:])
    for value in values:
        total += np.multiply(value, _SCALE, dtype=np.float64) * value if squared else value
    return total


def _negative_log(values: Doubles | Floats) -> Doubles:
    with np.errstate(divide="ignore"):
        return np.negative(np.log(values, dtype=np.float64))


register(PosteriorNLL, defaults=(PosteriorNLL(),), records=(ClassDraws,))
register(AddOneIn, defaults=(AddOneIn(),))
