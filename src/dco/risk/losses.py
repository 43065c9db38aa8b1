"""Losses people control, as matrices: every function takes (scores, truth, thresholds) and gives
losses (n, J).

Scores are large for strange labels, so that the set of row i at threshold t is {k : scores[i, k] <=
t}, as everywhere in dco. Column j of the result belongs to ``thresholds[j]``; the rules of
`dco.risk` take the matrix as it is.

| function | scores | truth | falls with t |
|---|---|---|---|
| `miscoverage` | (n, K), or (n,) of y | (n,) label codes | yes |
| `false_negative_rate` | (n, K) | (n, K) true labels | yes |
| `false_discovery_rate` | (n, K) | (n, K) true labels | no: learn_then_test |
| `selective_error` | (n,) distrust | (n,) whether the prediction is wrong | no: learn_then_test |
| `set_loss(your function)` | (n, K) | whatever your function takes | as your function |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray, Bools, Floats, real_numbers

Loss: TypeAlias = Callable[[ArrayLike, ArrayLike, ArrayLike], Floats]


def miscoverage(scores: ArrayLike, truth: ArrayLike | None, thresholds: ArrayLike) -> Floats:
    """1 where the true label is not in the set, else 0.

    `scores` is (n, K) with `truth` the column of each row's label, or (n,), the scores of the true
    labels (`truth` None).
    """
    values = _numbers(scores, "scores")
    if values.ndim == 2:
        if truth is None:
            raise ValueError("truth must hold each row's label when scores is (n, K).")
        labels = np.asarray(truth)
        if labels.shape != values.shape[:1] or labels.dtype.kind not in "iu":
            raise ValueError(
                f"truth must hold one column number for each of the {len(values)} rows."
            )
        if labels.size and not (labels.min() >= 0 and labels.max() < values.shape[1]):
            raise ValueError(f"truth must hold column numbers from 0 to {values.shape[1] - 1}.")
        values = np.take_along_axis(values, labels[:, None], axis=1)[:, 0]
    if values.ndim != 1:
        raise ValueError(f"scores must be (n, K) or (n,), got shape {values.shape}.")
    return (~accepted(values, thresholds)).astype(np.float64)


def false_negative_rate(scores: ArrayLike, truth: ArrayLike, thresholds: ArrayLike) -> Floats:
    """The share of a row's true labels that its set leaves out; 0 for a row without true labels."""
    return set_loss(lambda members, true: _share(~members, of=true))(
        scores, _true_labels(scores, truth), thresholds
    )


def false_discovery_rate(scores: ArrayLike, truth: ArrayLike, thresholds: ArrayLike) -> Floats:
    """The share of a row's set that is not true; 0 for an empty set. It need not be monotone in the
    threshold.
    """
    return set_loss(lambda members, true: _share(~true, of=members))(
        scores, _true_labels(scores, truth), thresholds
    )


def selective_error(scores: ArrayLike, truth: ArrayLike, thresholds: ArrayLike) -> Floats:
    """1 where a prediction is accepted (score <= t) and wrong, else 0.

    `scores` (n,) says how little a prediction is trusted, and `truth` (n,) is whether it is wrong.
    The error AMONG accepted rows is controlled by ``learn_then_test(losses, where=accepted(scores,
    thresholds))``; without `where` it is the share of all rows that are accepted and wrong.
    """
    wrong = np.asarray(truth)
    taken = accepted(scores, thresholds)
    if wrong.shape != (len(taken),) or not np.all((wrong == 0) | (wrong == 1)):
        raise ValueError(
            f"truth must say for each of the {len(taken)} rows whether the "
            f"prediction is wrong (0 or 1)."
        )
    return np.asarray(taken & wrong.astype(bool)[:, None], dtype=np.float64)


def accepted(scores: ArrayLike, thresholds: ArrayLike) -> Bools:
    """Which rows (n,) are accepted at which thresholds (J,): score <= t, as an (n, J) matrix."""
    values = _numbers(scores, "scores")
    if values.ndim != 1:
        raise ValueError(f"scores must be one number per row, got shape {values.shape}.")
    return np.asarray(values[:, None] <= _thresholds(thresholds)[None, :])


def set_loss(loss: Callable[[Bools, Any], ArrayLike]) -> Loss:
    """A custom loss in the common shape: `loss(members, truth)` gets the (n, K) sets at one
    threshold and gives (n,) losses.

    `truth` is handed on untouched.
    """

    def over_thresholds(scores: ArrayLike, truth: ArrayLike, thresholds: ArrayLike) -> Floats:
        values, cuts = _numbers(scores, "scores"), _thresholds(thresholds)
        if values.ndim != 2:
            raise ValueError(f"scores must be an (n, K) matrix, got shape {values.shape}.")
        losses = np.empty((len(values), len(cuts)))
        for column, cut in enumerate(cuts):
            one = np.asarray(loss(values <= cut, truth), dtype=np.float64)
            if one.shape != (len(values),):
                raise ValueError(
                    f"the loss must give one number for each of the {len(values)} "
                    f"rows, got shape {one.shape}."
                )
            losses[:, column] = one
        return losses

    return over_thresholds


def _share(marked: Bools, *, of: Bools) -> Floats:
    return np.asarray(
        np.count_nonzero(marked & of, axis=1) / np.maximum(np.count_nonzero(of, axis=1), 1)
    )


def _numbers(values: ArrayLike, name: str) -> AnyArray:
    array = real_numbers(values, name=name)
    if array.dtype.kind == "f" and np.any(np.isnan(array)):
        raise ValueError(f"{name} must not hold NaN: a NaN is neither inside nor outside a set.")
    return array


def _thresholds(thresholds: ArrayLike) -> AnyArray:
    cuts = _numbers(thresholds, "thresholds")
    if cuts.ndim != 1:
        raise ValueError(f"thresholds must be a list of numbers, got shape {cuts.shape}.")
    return cuts


def _true_labels(scores: ArrayLike, truth: ArrayLike) -> Bools:
    labels = np.asarray(truth)
    if labels.shape != np.shape(scores) or not np.all((labels == 0) | (labels == 1)):
        raise ValueError(
            f"truth must mark the true labels with 0 or 1 in the shape of scores, "
            f"{np.shape(scores)}."
        )
    return labels.astype(bool)
