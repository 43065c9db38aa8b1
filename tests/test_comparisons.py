"""Predictions and sets beside guesses that look at no feature, in words."""

import math

import numpy as np
import pytest

from dco.foundations.comparisons import middle_range, point_in_words, size_in_words


@pytest.mark.parametrize(
    ("mean_size", "words"),
    [
        (5.0, "the mean set is 50 % as long."),
        (19.5, "the mean set is 195 % as long."),
        (121.0, "the mean set is 12.1 times as long."),
    ],
)
def test_a_set_is_compared_with_the_middle_of_the_targets(mean_size, words):
    said = size_in_words(mean_size, 10.0, alpha=0.1)
    assert said == f"The middle 90 % of the targets span 10; {words}"


@pytest.mark.parametrize(("mean_size", "length"), [(math.inf, 10.0), (5.0, 0.0)])
def test_nothing_is_said_where_one_of_them_says_nothing(mean_size, length):
    assert size_in_words(mean_size, length, alpha=0.1) == ""


def test_the_middle_of_the_targets_leaves_out_alpha():
    assert middle_range(np.arange(101.0), alpha=0.1) == pytest.approx(90)


def test_numbers_are_compared_with_their_median():
    said = point_in_words(np.array([0.0, 1.0, 5.0]), np.array([0.0, 1.0, 4.0]), are_labels=False)
    assert said == (
        "The point prediction is off by 0.3333 on average (mean absolute error); always predicting "
        "their median would be off by 1.667."
    )


def test_labels_are_compared_with_the_most_frequent_one():
    y, points = np.array(["a", "a", "a", "b"]), np.array(["a", "a", "b", "b"])
    assert point_in_words(y, points, are_labels=True) == (
        "The point prediction is right for 75.0 % of the rows; always naming the most frequent "
        "label would be right for 75.0 %."
    )
