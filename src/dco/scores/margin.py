"""The margin by which a label is behind the best of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dco.foundations.arrays import Array, namespace
from dco.predictions import ClassProbabilities
from dco.scores.label_arrays import sort_falling, store_few_labels_by_columns, take_label
from dco.scores.label_score import LabelScore
from dco.scores.registry import register


@dataclass(frozen=True)
class Margin(LabelScore):
    """max over j != y of p(j), minus p(y): how far the label is behind the best of the others.

    Where there is one label only, the best of the others counts as 0.
    """

    works_on_devices: ClassVar[bool] = True

    def score_labels(self, record: ClassProbabilities) -> Array:
        """Return the margin of every label."""
        probabilities = store_few_labels_by_columns(record.probabilities)
        return _margins(probabilities, probabilities)

    def score_one_label(self, record: ClassProbabilities, labels: Array) -> Array:
        """Return the margin of one label of each row."""
        probabilities = store_few_labels_by_columns(record.probabilities)
        return _margins(probabilities, take_label(probabilities, labels)[:, None])[:, 0]


def _margins(probabilities: Array, of_labels: Array) -> Array:
    """Return the margins of some labels of each row, max over other labels of p(j), minus p(y).

    `probabilities` are those of all labels, (n, K); `of_labels` those of the labels in question,
    (n, K) or (n, 1).
    """
    xp: Any = namespace(probabilities)
    falling = sort_falling(probabilities)
    largest = falling[:, :1]
    second = falling[:, 1:2] if falling.shape[1] > 1 else xp.zeros_like(largest)

    # the best other label of the most probable one is the second, of all others the most probable
    best_other = xp.where(of_labels == largest, second, largest)
    return xp.astype(best_other, xp.float64) - xp.astype(of_labels, xp.float64)


register(Margin, name="margin", defaults=(Margin(),), records=(ClassProbabilities,))
