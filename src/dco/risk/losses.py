"""Losses that people control, as matrices: functions of (scores, truth, thresholds).

Scores are large for strange labels, so that the set of row i at threshold t is {k : scores[i, k] <=
t}, as everywhere in dco. Column j of the result, which is (n, J), belongs to ``thresholds[j]``; the
rules of `dco.risk` take the matrix as it is.

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

from dco.foundations.arrays import AnyArray, Bools, Floats, as_real_numbers

Loss: TypeAlias = Callable[[ArrayLike, ArrayLike, ArrayLike], Floats]


def miscoverage(scores: ArrayLike, truth: ArrayLike | None, thresholds: ArrayLike) -> Floats:
    """Return 1 where the true label is not in the set, else 0.

    `scores` is (n, K) with `truth` the column of each row's label, or (n,), the scores of the true
    labels (`truth` None).
    """
    values = _read_numbers(scores, "scores")
    if values.ndim == 2:
        values = _scores_of_true_labels(values, truth)
    if values.ndim != 1:
        raise ValueError(f"scores must be (n, K) or (n,), got shape {values.shape}.")
    is_covered = accepted(values, thresholds)
    return (~is_covered).astype(np.float64)


def false_negative_rate(scores: ArrayLike, truth: ArrayLike, thresholds: ArrayLike) -> Floats:
    """Return the share of a row's true labels that its set leaves out; 0 where there are none.

    `truth` (n, K) marks the true labels of each row with 1.
    """
    loss = set_loss(_share_of_truth_left_out)
    return loss(scores, _read_true_labels(scores, truth), thresholds)


def _share_of_truth_left_out(members: Bools, is_true: Bools) -> Floats:
    return _share_of(is_true, ~members)


def false_discovery_rate(scores: ArrayLike, truth: ArrayLike, thresholds: ArrayLike) -> Floats:
    """Return the share of a row's set that is not true; 0 for an empty set.

    It may rise and fall with the threshold. `truth` (n, K) marks the true labels of each row with
    1.
    """
    loss = set_loss(_share_of_set_not_true)
    return loss(scores, _read_true_labels(scores, truth), thresholds)


def _share_of_set_not_true(members: Bools, is_true: Bools) -> Floats:
    return _share_of(members, ~is_true)


def selective_error(scores: ArrayLike, truth: ArrayLike, thresholds: ArrayLike) -> Floats:
    """Return 1 where a prediction is accepted (score <= t) and wrong, else 0.

    `scores` (n,) says how little a prediction is trusted, and `truth` (n,) is whether it is wrong.
    The error AMONG accepted rows is controlled by ``learn_then_test(losses, thresholds,
    where=accepted(scores, thresholds))``; without `where` it is the share of all rows that are
    accepted and wrong.
    """
    is_accepted = accepted(scores, thresholds)
    is_wrong = np.asarray(truth)
    n = len(is_accepted)
    if is_wrong.shape != (n,) or not np.all((is_wrong == 0) | (is_wrong == 1)):
        raise ValueError(
            f"truth must say for each of the {n} rows whether the prediction is wrong (0 or 1)."
        )
    is_accepted_and_wrong = is_accepted & is_wrong.astype(bool)[:, None]
    return np.asarray(is_accepted_and_wrong, dtype=np.float64)


def accepted(scores: ArrayLike, thresholds: ArrayLike) -> Bools:
    """Say which rows (n,) are accepted at which thresholds (J,): score <= t, an (n, J) matrix."""
    values = _read_numbers(scores, "scores")
    if values.ndim != 1:
        raise ValueError(f"scores must be one number per row, got shape {values.shape}.")
    columns = _read_thresholds(thresholds)[None, :]
    return np.asarray(values[:, None] <= columns)


def set_loss(loss: Callable[[Bools, Any], ArrayLike]) -> Loss:
    """Turn a loss of prediction sets into a function of (scores, truth, thresholds).

    Parameters
    ----------
    loss
        A function `loss(members, truth)` that returns the loss of each row (n,). `members` (n, K)
        says which labels are in the sets at one threshold; `truth` is handed on untouched.

    Returns
    -------
    A function of label scores (n, K), truth and thresholds (J,), like `false_negative_rate`. The
    set of a row at a threshold holds the labels with scores up to it, and the result holds the
    losses (n, J).
    """

    def loss_at_thresholds(scores: ArrayLike, truth: ArrayLike, thresholds: ArrayLike) -> Floats:
        label_scores = _read_numbers(scores, "scores")
        if label_scores.ndim != 2:
            raise ValueError(f"scores must be an (n, K) matrix, got shape {label_scores.shape}.")
        columns = [
            _losses_of_rows(loss, label_scores <= threshold, truth)
            for threshold in _read_thresholds(thresholds)
        ]
        return np.column_stack(columns) if columns else np.empty((len(label_scores), 0))

    return loss_at_thresholds


def _losses_of_rows(
    loss: Callable[[Bools, Any], ArrayLike], members: Bools, truth: ArrayLike
) -> Floats:
    """Call a loss of the user at one threshold, and check that it gives one number for each row."""
    row_losses = np.asarray(loss(members, truth), dtype=np.float64)
    n = len(members)
    if row_losses.shape != (n,):
        raise ValueError(
            f"the loss must give one number for each of the {n} rows, got shape {row_losses.shape}."
        )
    return row_losses


def _share_of(labels: Bools, marked: Bools) -> Floats:
    """Return the share of each row's labels that are marked; 0 for a row without labels.

    `labels` and `marked` (n, K) say which labels the row has, and which are marked.
    """
    n_labels = np.count_nonzero(labels, axis=1)
    n_marked = np.count_nonzero(labels & marked, axis=1)
    return np.asarray(n_marked / np.maximum(n_labels, 1))


def _scores_of_true_labels(scores: AnyArray, truth: ArrayLike | None) -> AnyArray:
    """Return the score of each row's label, from the scores (n, K) of all labels.

    `truth` (n,) holds the column of each row's label.
    """
    if truth is None:
        raise ValueError("truth must hold each row's label when scores is (n, K).")
    n, n_labels = scores.shape
    labels = np.asarray(truth)
    if labels.shape != (n,) or labels.dtype.kind not in "iu":
        raise ValueError(f"truth must hold one column number for each of the {n} rows.")
    if labels.size and not (labels.min() >= 0 and labels.max() < n_labels):
        raise ValueError(f"truth must hold column numbers from 0 to {n_labels - 1}.")
    return np.take_along_axis(scores, labels[:, None], axis=1)[:, 0]


def _read_numbers(values: ArrayLike, name: str) -> AnyArray:
    """Return an array of numbers; NaN is an error."""
    array = as_real_numbers(values, name=name)
    if array.dtype.kind == "f" and np.any(np.isnan(array)):
        raise ValueError(f"{name} must not hold NaN: a NaN is neither inside nor outside a set.")
    return array


def _read_thresholds(thresholds: ArrayLike) -> AnyArray:
    """Return the thresholds as an array (J,)."""
    numbers = _read_numbers(thresholds, "thresholds")
    if numbers.ndim != 1:
        raise ValueError(f"thresholds must be a list of numbers, got shape {numbers.shape}.")
    return numbers


def _read_true_labels(scores: ArrayLike, truth: ArrayLike) -> Bools:
    """Return which labels of each row are true (n, K); marks may be booleans, or 0 and 1."""
    labels = np.asarray(truth)
    shape = np.shape(scores)
    if labels.shape != shape or not np.all((labels == 0) | (labels == 1)):
        raise ValueError(
            f"truth must mark the true labels with 0 or 1 in the shape of scores, {shape}."
        )
    return labels.astype(bool)
