"""Thresholds of every shape that a score accepts."""

import numpy as np
import pytest

from dco import split_conformal
from dco.scores.score import cutoff


def test_a_record_and_a_number_are_one_cutoff():
    assert cutoff(split_conformal([3.0, 1.0, 2.0], alpha=0.5), 4, 2) == 2.0
    assert cutoff(2, 4, 2) == 2.0
    assert cutoff(np.float32(0.5), 4) == 0.5


@pytest.mark.parametrize(
    ("shape", "n", "n_classes", "becomes"),
    [
        ((4,), 4, 3, (4, 1)),
        ((3,), 4, 3, (1, 3)),
        ((4, 1), 4, 4, (4, 1)),
        ((1, 4), 4, 4, (1, 4)),
        ((1,), 1, 1, (1, 1)),
        ((1,), 1, 3, (1, 1)),
        ((1,), 4, 1, (1, 1)),
        ((4, 3), 4, 3, (4, 3)),
        ((4,), 4, None, (4,)),
    ],
)
def test_one_per_row_or_one_per_label(shape, n, n_classes, becomes):
    assert cutoff(np.zeros(shape), n, n_classes).shape == becomes


@pytest.mark.parametrize(
    ("threshold", "n", "n_classes", "words"),
    [
        (np.zeros(4), 4, 4, r"\(4, 1\) for one per row or \(1, 4\) for one per label"),
        (np.zeros(5), 4, 3, r"\(4,\), per row, \(3,\), per label, or \(4, 3\)"),
        (np.zeros((3, 4)), 4, 3, r"\(4,\), per row, \(3,\), per label, or \(4, 3\)"),
        (np.zeros(5), 4, None, r"must have shape \(4,\)"),
        (np.nan, 4, 3, "not NaN"),
        ("0.5", 4, 3, "must be a number"),
        (None, 4, 3, "must be a number"),
        ([0.1, np.nan], 2, 3, "not NaN"),
    ],
)
def test_what_is_neither_is_refused(threshold, n, n_classes, words):
    with pytest.raises(ValueError, match=words):
        cutoff(threshold, n, n_classes)
