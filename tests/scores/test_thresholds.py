"""Thresholds of every shape that a score accepts."""

import numpy as np
import pytest

from dco import ClassProbabilities, Points, split_conformal
from dco.scores import LAC, AbsoluteResidual


def label_sets(threshold, n_rows, n_labels):
    """Make the sets of rows whose scores are their row and their label."""
    rows, labels = np.indices((n_rows, n_labels))
    return LAC().sets(ClassProbabilities(1 - (10 * rows + labels) / 128), threshold)


@pytest.mark.parametrize(
    "threshold",
    [split_conformal([0.3, 0.1, 0.2], alpha=0.5), 0.2, np.float32(0.2), np.array(0.2)],
    ids=["with its statement", "float", "single precision", "array"],
)
def test_one_threshold_for_all(threshold):
    assert label_sets(threshold, 4, 3).sizes().tolist() == [3, 3, 3, 0]


@pytest.mark.parametrize(
    ("shape", "n_rows", "n_labels", "by"),
    [
        ((4,), 4, 3, "row"),
        ((3,), 4, 3, "label"),
        ((4, 1), 4, 4, "row"),
        ((1, 4), 4, 4, "label"),
        ((1,), 1, 1, "row"),
        ((1,), 1, 3, "row"),
        ((1,), 4, 1, "label"),
        ((4, 3), 4, 3, "both"),
    ],
)
def test_one_threshold_by_row_or_by_label(shape, n_rows, n_labels, by):
    """An infinite threshold at one place shows what it is for."""
    threshold = np.full(shape, -np.inf)
    threshold.flat[-1] = np.inf
    expected = np.zeros((n_rows, n_labels), dtype=bool)
    if by == "row":
        expected[-1, :] = True
    elif by == "label":
        expected[:, -1] = True
    else:
        expected[-1, -1] = True
    assert np.array_equal(label_sets(threshold, n_rows, n_labels).to_dense(), expected)


@pytest.mark.parametrize(
    ("threshold", "n_rows", "n_labels", "words"),
    [
        (np.zeros(4), 4, 4, r"\(4, 1\) for one per row or \(1, 4\) for one per label"),
        (np.zeros(5), 4, 3, r"\(4,\), per row, \(3,\), per label, or \(4, 3\)"),
        (np.zeros((3, 4)), 4, 3, r"\(4,\), per row, \(3,\), per label, or \(4, 3\)"),
        (np.nan, 4, 3, "not NaN"),
        ("0.5", 4, 3, "must be a number"),
        (None, 4, 3, "must be a number"),
        ([0.1, np.nan], 2, 3, "not NaN"),
    ],
)
def test_other_thresholds_of_labels_are_refused(threshold, n_rows, n_labels, words):
    with pytest.raises(ValueError, match=words):
        label_sets(threshold, n_rows, n_labels)


@pytest.mark.parametrize(
    "threshold", [split_conformal([3.0, 1.0, 2.0], alpha=0.5), 2, np.full(4, 2.0)]
)
def test_sets_of_numbers_take_one_threshold_or_one_by_row(threshold):
    assert AbsoluteResidual().sizes(Points(np.zeros(4)), threshold).tolist() == [4.0] * 4


@pytest.mark.parametrize(
    ("threshold", "words"),
    [
        (np.zeros(5), r"must have shape \(4,\)"),
        (np.zeros((4, 1)), r"must have shape \(4,\)"),
        (np.nan, "not NaN"),
        ("0.5", "must be a number"),
    ],
)
def test_other_thresholds_of_numbers_are_refused(threshold, words):
    with pytest.raises(ValueError, match=words):
        AbsoluteResidual().sets(Points(np.zeros(4)), threshold)
