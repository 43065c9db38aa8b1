from __future__ import annotations

import numpy as np
import pytest

from dco.predictions import ClassDraws, ClassProbabilities

SOUND = np.array([[0.2, 0.8], [0.5, 0.5], [1.0, 0.0]])


def test_probabilities_that_are_missing_are_named_by_their_rows():
    missing = SOUND.copy()
    missing[1:, 0] = np.nan
    with pytest.raises(ValueError, match=r"probabilities are NaN in 2 rows \(first: row 1\)"):
        ClassProbabilities(missing)
    with pytest.raises(ValueError, match=r"draws are NaN in 2 rows \(first: row 1\)"):
        ClassDraws(np.stack([SOUND, missing, SOUND]))


def test_percentages_and_logits_are_told_apart():
    for percentages in (100 * SOUND, np.array([[33.3, 33.3, 33.3], [0.0, 99.0, 1.0]])):
        with pytest.raises(ValueError, match="divide them by 100"):
            ClassProbabilities(percentages)
    with pytest.raises(ValueError, match="divide them by 100"):
        ClassDraws(np.stack([100 * SOUND, 100 * SOUND]))
    for logits in (np.log(SOUND + 0.01), 3 * SOUND, np.full((2, 3), np.inf)):
        with pytest.raises(ValueError, match="softmax first"):
            ClassProbabilities(logits)
    assert len(ClassProbabilities(SOUND)) == 3


@pytest.mark.parametrize("unseen", ["a", "", 3, {"a"}, [["a", "b"]]])
def test_unseen_labels_come_in_a_list(unseen):
    with pytest.raises(ValueError, match=r"^unseen must be a list of labels, got "):
        ClassProbabilities([[0.5, 0.5]], classes=["x", "y"], unseen=unseen)
    with pytest.raises(ValueError, match=r"^unseen must be a list of labels, got "):
        ClassDraws([[[0.5, 0.5]]], classes=["x", "y"], unseen=unseen)


@pytest.mark.parametrize("unseen", [None, []])
def test_no_unseen_labels_may_be_said_in_two_ways(unseen):
    assert ClassProbabilities([[0.5, 0.5]], classes=["x", "y"], unseen=unseen).unseen is None
