"""Losses of sets {score <= t} as matrices, (rows, thresholds): against plain loops."""

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
RNG = np.random.default_rng(0)
SCORES = RNG.uniform(size=(30, 6))
TRUTH = RNG.uniform(size=(30, 6)) < 0.4
TRUTH[0] = False  # a row without true labels
LABELS = np.arange(30) % 6


def by_loops(loss_of_row):
    """Apply a loss to the members of each row's set, a row and a threshold at a time."""
    return [
        [loss_of_row(i, {k for k in range(6) if SCORES[i, k] <= cut}) for cut in CUTS]
        for i in range(30)
    ]


def true_labels(i):
    return set(np.flatnonzero(TRUTH[i]))


def test_the_false_negative_rate_is_the_share_of_true_labels_left_out():
    expected = by_loops(
        lambda i, members: len(true_labels(i) - members) / max(1, len(true_labels(i)))
    )

    assert false_negative_rate(SCORES, TRUTH, CUTS).tolist() == expected


def test_the_false_discovery_rate_is_the_share_of_members_that_are_wrong():
    expected = by_loops(lambda i, members: len(members - true_labels(i)) / max(1, len(members)))

    assert false_discovery_rate(SCORES, TRUTH, CUTS).tolist() == expected


def test_miscoverage_is_whether_the_label_is_left_out():
    expected = by_loops(lambda i, members: LABELS[i] not in members)

    assert miscoverage(SCORES, LABELS, CUTS).tolist() == expected


def test_miscoverage_takes_scores_of_the_labels_too():
    of_labels = SCORES[np.arange(30), LABELS]

    losses = miscoverage(of_labels, None, CUTS)

    assert np.array_equal(losses, miscoverage(SCORES, LABELS, CUTS))


def test_the_selective_error_is_whether_a_row_is_accepted_and_wrong():
    expected = by_loops(lambda i, members: 0 in members and bool(TRUTH[i, 0]))

    assert selective_error(SCORES[:, 0], TRUTH[:, 0], CUTS).tolist() == expected


def test_a_custom_loss_is_of_members_and_true_labels():
    none_right = set_loss(lambda members, true: ~(members & true).any(axis=1))

    losses = none_right(SCORES, TRUTH, CUTS)

    assert losses.tolist() == by_loops(lambda i, members: not members & true_labels(i))


@pytest.mark.parametrize(
    "losses",
    [miscoverage(SCORES, LABELS, CUTS), false_negative_rate(SCORES, TRUTH, CUTS)],
    ids=["miscoverage", "false negatives"],
)
def test_losses_of_what_is_left_out_fall_with_the_threshold(losses):
    assert np.all(np.diff(losses, axis=1) <= 0)


def test_the_false_discovery_rate_may_rise_and_fall():
    changes = np.diff(false_discovery_rate(SCORES, TRUTH, CUTS), axis=1)

    assert changes.min() < 0 < changes.max()


@pytest.mark.parametrize(
    ("loss", "scores", "truth", "losses"),
    [
        (miscoverage, [0.5], None, [1.0, 0.0]),
        (miscoverage, [[0.5, 0.9]], [0], [1.0, 0.0]),
        (selective_error, [0.5], [1], [0.0, 1.0]),
        (false_negative_rate, [[0.5, 0.9]], [[1, 0]], [1.0, 0.0]),
    ],
    ids=["score of the label", "scores", "selective error", "false negatives"],
)
def test_a_score_at_the_threshold_is_inside(loss, scores, truth, losses):
    assert loss(scores, truth, [0.4, 0.5]).tolist() == [losses]


def test_a_row_at_the_threshold_is_accepted():
    assert accepted([0.5], [0.4, 0.5, 0.6]).tolist() == [[False, True, True]]


@pytest.mark.parametrize(
    ("loss", "scores", "truth", "message"),
    [
        (false_negative_rate, SCORES, TRUTH[:, :5], "in the shape of scores"),
        (false_negative_rate, np.zeros(2), [0, 1], r"\(n, K\) matrix"),
        (miscoverage, SCORES, np.full(30, 6), "column numbers from 0 to 5"),
        (miscoverage, np.zeros((2, 3)), [-1, 0], "column numbers from 0 to 2"),
        (miscoverage, np.zeros((2, 3)), [0.0, 1.0], "one column number for each of the 2 rows"),
        (miscoverage, np.zeros((2, 3)), None, "must hold each row's label"),
        (miscoverage, np.zeros((2, 3, 1)), None, r"\(n, K\) or \(n,\), got shape"),
        (selective_error, np.zeros((2, 3)), [0, 1], "one number per row"),
        (selective_error, np.zeros(30), np.full(30, 2), "whether the prediction is wrong"),
    ],
)
def test_bad_scores_and_truth_are_refused(loss, scores, truth, message):
    with pytest.raises(ValueError, match=message):
        loss(scores, truth, CUTS)


def test_a_custom_loss_of_another_shape_is_refused():
    members_themselves = set_loss(lambda members, true: members)

    with pytest.raises(ValueError, match="one number for each of the 30 rows"):
        members_themselves(SCORES, TRUTH, CUTS)


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [([[1.0]], "thresholds must be a list of numbers"), ([np.nan], "NaN")],
    ids=["nested", "missing"],
)
def test_bad_thresholds_are_refused(thresholds, message):
    with pytest.raises(ValueError, match=message):
        miscoverage(SCORES, LABELS, thresholds)
