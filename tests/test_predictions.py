import numpy as np
import pytest

from dco.predictions import (
    ClassDraws,
    ClassProbabilities,
    GaussianMixtures,
    Points,
    PointsWithSpread,
    Quantiles,
    take,
)

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


def test_some_rows_of_a_record_are_those_rows_of_all_its_parts():
    rng, rows = np.random.default_rng(0), np.array([3, 0, 3])
    p, draws, u = (
        rng.dirichlet(np.ones(2), size=4),
        rng.dirichlet(np.ones(2), size=(5, 4)),
        rng.uniform(size=4),
    )
    names = {"classes": ["a", "b"], "unseen": ["c"]}
    some, passes = (
        take(ClassProbabilities(p, uniforms=u, **names), rows),
        take(ClassDraws(draws, uniforms=u, **names), rows),
    )
    np.testing.assert_array_equal(some.probabilities, p[rows])
    np.testing.assert_array_equal(passes.draws, draws[:, rows])
    for record in (some, passes):
        np.testing.assert_array_equal(record.uniforms, u[rows])
        assert record.labels().tolist() == ["a", "b", "c"]
    means, shared, own = rng.normal(size=(4, 3)), rng.uniform(size=3), rng.uniform(size=(4, 3))
    np.testing.assert_array_equal(take(GaussianMixtures(means, shared), rows).sds, shared)
    np.testing.assert_array_equal(take(GaussianMixtures(means, own), rows).sds, own[rows])
    assert take(Quantiles([1, 2, 3, 4], [5, 6, 7, 8], [2, 3, 4, 5]), rows).median.tolist() == [
        5,
        2,
        5,
    ]


def test_the_mean_over_draws_keeps_labels_and_uniforms():
    rng = np.random.default_rng(0)
    draws, u = rng.dirichlet(np.ones(3), size=(6, 4)), rng.uniform(size=4)
    mean = ClassDraws(draws, ["a", "b", "c"], u, ["d"]).mean()
    np.testing.assert_allclose(mean.probabilities, draws.mean(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(mean.uniforms, u)
    assert mean.labels().tolist() == ["a", "b", "c", "d"]


def test_crossed_quantiles_are_sorted_row_by_row_and_hold_the_median():
    record = Quantiles([1.0, 5.0, 0.0], [2.0, 3.0, 1.0], median=[0.0, 4.0, 7.0])
    assert record.lower.tolist() == [1.0, 3.0, 0.0]
    assert record.upper.tolist() == [2.0, 5.0, 1.0]
    assert record.median.tolist() == [1.0, 4.0, 1.0]


def test_what_lies_on_a_border_is_taken_and_what_lies_beyond_is_not():
    assert PointsWithSpread([0.0], [0.0]).spread[0] == 0
    # a sum that was rounded
    assert ClassProbabilities([[1.0005, 0.0]], uniforms=[1.0]).probabilities[0, 0] == 1.0005
    assert float(Points([2**24 + 1]).mean[0]) == 2**24 + 1  # whole numbers keep all their digits
    for make, words in (
        (lambda: PointsWithSpread([0.0], [-1e-300]), "spread must not be negative"),
        (lambda: GaussianMixtures([[0.0]], [0.0]), "greater than 0"),
        (lambda: ClassProbabilities([[1.5, 0.0]]), r"must lie in \[0, 1\]"),
        (
            lambda: ClassProbabilities([[1.0, 0.0]], uniforms=[1.5]),
            r"uniforms must lie in \[0, "
            r"1\]",
        ),
        (lambda: ClassProbabilities([[1.0, 0.0]], ["a", "b"], unseen=["b"]), "not among classes"),
        (lambda: ClassProbabilities([[1.0, 0.0]], [1.0, np.nan]), "distinct labels"),
        (lambda: ClassProbabilities([[1.0, 0.0]]).codes([-1]), "labels from -1 to -1"),
    ):
        with pytest.raises(ValueError, match=words):
            make()
