import numpy as np
import pytest

from dco.risk import (
    accepted,
    false_discovery_rate,
    false_negative_rate,
    miscoverage,
    selective_error,
    set_loss,
)

CUTS = np.array([0.1, 0.4, 0.8, np.inf])


def problem(seed=0, n=30, k=6):
    rng = np.random.default_rng(seed)
    return rng.uniform(size=(n, k)), rng.uniform(size=(n, k)) < 0.4


def test_each_loss_against_plain_loops():
    scores, truth = problem()
    truth[0] = False  # a row without true labels
    labels = np.arange(30) % 6
    for j, cut in enumerate(CUTS):
        for i in range(30):
            members, true = (
                {k for k in range(6) if scores[i, k] <= cut},
                set(np.flatnonzero(truth[i])),
            )
            left_out = len(true - members) / len(true) if true else 0.0
            wrong = len(members - true) / len(members) if members else 0.0
            assert false_negative_rate(scores, truth, CUTS)[i, j] == left_out
            assert false_discovery_rate(scores, truth, CUTS)[i, j] == wrong
            assert miscoverage(scores, labels, CUTS)[i, j] == (labels[i] not in members)
            assert selective_error(scores[:, 0], truth[:, 0], CUTS)[i, j] == (
                scores[i, 0] <= cut and truth[i, 0]
            )
    assert np.array_equal(
        miscoverage(scores, labels, CUTS), miscoverage(scores[np.arange(30), labels], None, CUTS)
    )


def test_which_losses_fall():
    scores, truth = problem()
    assert np.all(np.diff(miscoverage(scores, np.arange(30) % 6, CUTS), axis=1) <= 0)
    assert np.all(np.diff(false_negative_rate(scores, truth, CUTS), axis=1) <= 0)
    changes = np.diff(false_discovery_rate(scores, truth, CUTS), axis=1)
    assert changes.min() < 0 < changes.max()


def test_a_custom_loss_has_the_same_shape():
    scores, truth = problem()
    none_right = set_loss(lambda members, true: ~(members & true).any(axis=1))
    losses = none_right(scores, truth, CUTS)
    assert losses.shape == (30, 4)
    assert losses[:, -1].tolist() == [float(not row.any()) for row in truth]


def test_a_score_at_the_threshold_is_inside():
    """A set is {score <= t}."""
    assert miscoverage([0.5], None, [0.4, 0.5, 0.6]).tolist() == [[1.0, 0.0, 0.0]]
    assert miscoverage([[0.5, 0.9]], [0], [0.4, 0.5]).tolist() == [[1.0, 0.0]]
    assert accepted([0.5], [0.4, 0.5, 0.6]).tolist() == [[False, True, True]]
    assert selective_error([0.5], [1], [0.4, 0.5]).tolist() == [[0.0, 1.0]]
    assert false_negative_rate([[0.5, 0.9]], [[1, 0]], [0.4, 0.5]).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize(
    ("loss", "scores", "truth", "cuts", "message"),
    [
        (false_negative_rate, np.zeros((30, 6)), np.zeros((30, 5)), CUTS, "in the shape of scores"),
        (miscoverage, np.zeros((30, 6)), np.full(30, 6), CUTS, "column numbers from 0 to 5"),
        (miscoverage, np.zeros((2, 3)), [-1, 0], CUTS, "column numbers from 0 to 2"),
        (miscoverage, np.zeros((2, 3)), None, CUTS, "must hold each row's label"),
        (
            miscoverage,
            np.zeros((2, 3)),
            [0.0, 1.0],
            CUTS,
            "one column number for each of the 2 rows",
        ),
        (miscoverage, np.zeros((2, 3, 1)), None, CUTS, r"\(n, K\) or \(n,\), got shape"),
        (miscoverage, np.zeros(2), None, [[1.0]], "thresholds must be a list of numbers"),
        (selective_error, np.zeros((2, 3)), [0, 1], CUTS, "one number per row"),
        (false_negative_rate, np.zeros(2), [0, 1], CUTS, r"\(n, K\) matrix"),
        (miscoverage, np.zeros((30, 6)), np.arange(30) % 6, [np.nan], "NaN"),
        (selective_error, np.zeros(30), np.full(30, 2), CUTS, "whether the prediction is wrong"),
        (
            set_loss(lambda members, true: members),
            *problem(),
            CUTS,
            "one number for each of the 30 rows",
        ),
    ],
)
def test_bad_input_is_refused(loss, scores, truth, cuts, message):
    with pytest.raises(ValueError, match=message):
        loss(scores, truth, cuts)
