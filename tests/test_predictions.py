"""Prediction records: what they take, what they refuse, and some of their rows."""

import numpy as np
import pytest

from dco import (
    ClassDraws,
    ClassProbabilities,
    GaussianMixtures,
    Points,
    PointsWithSpread,
    QuantileFunction,
    Quantiles,
    TargetDraws,
)
from dco.scores import APS, RAPS

SOUND = np.array([[0.2, 0.8], [0.5, 0.5], [1.0, 0.0]])
ROWS = np.array([3, 0, 3])
CLASS_RECORDS = {
    "probabilities": ClassProbabilities,
    "draws": lambda values, **labels: ClassDraws(np.stack([values, values]), **labels),
}
every_class_record = pytest.mark.parametrize(
    "make", CLASS_RECORDS.values(), ids=CLASS_RECORDS.keys()
)


# --- probabilities


@every_class_record
def test_probabilities_that_are_missing_are_named_by_their_rows(make):
    missing = SOUND.copy()
    missing[1:, 0] = np.nan
    with pytest.raises(ValueError, match=r"are NaN in 2 rows \(first: row 1\)"):
        make(missing)


@every_class_record
@pytest.mark.parametrize(
    "percentages", [100 * SOUND, np.array([[33.3, 33.3, 33.3], [0.0, 99.0, 1.0]])]
)
def test_percentages_are_told(make, percentages):
    with pytest.raises(ValueError, match="divide them by 100"):
        make(percentages)


@every_class_record
@pytest.mark.parametrize("logits", [np.log(SOUND + 0.01), 3 * SOUND, np.full((2, 3), np.inf)])
def test_logits_are_told(make, logits):
    with pytest.raises(ValueError, match="softmax first"):
        make(logits)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.longdouble, int, bool])
def test_numbers_of_every_kind_become_single_or_double_precision(kind):
    record = ClassProbabilities(np.eye(2).astype(kind))
    single = kind in (np.float16, np.float32)
    assert record.probabilities.dtype == (np.float32 if single else np.float64)


def test_a_rounded_sum_may_exceed_one():
    assert ClassProbabilities([[1.0005, 0.0]], uniforms=[1.0]).probabilities[0, 0] == 1.0005
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        ClassProbabilities([[1.5, 0.0]])


# --- logits


def test_softmax_of_large_logits_and_of_masked_labels():
    record = ClassProbabilities.from_logits([[1e4, 1e4 - 1, -np.inf], [0.0, -1e5, 0.0]])
    np.testing.assert_allclose(
        record.probabilities, [[0.73105858, 0.26894142, 0.0], [0.5, 0.0, 0.5]], rtol=1e-7
    )


def test_logits_take_all_that_probabilities_take():
    """Randomised scores too, which need uniforms."""
    logits = np.random.default_rng(0).normal(size=(5, 3))
    more = {"classes": list("abc"), "uniforms": np.linspace(0, 1, 5), "unseen": ["d"]}
    record = ClassProbabilities.from_logits(logits, temperature=2.0, **more)
    same = ClassProbabilities(record.probabilities, **more)
    for score in (APS(randomised=True), RAPS(0.1, 1, randomised=True)):
        assert score.sets(record, 0.9).to_lists() == score.sets(same, 0.9).to_lists()
    assert record.labels().tolist() == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("logits", "temperature", "message"),
    [
        ([[0.0, np.nan], [0.0, 1.0]], 1.0, "which row 0 breaks"),
        ([[0.0, 1.0], [0.0, np.inf]], 1.0, "which row 1 breaks"),
        ([0.0, 1.0], 1.0, r"\(n, K\) matrix"),
        ([["a", "b"]], 1.0, "real numbers"),
        ([[0.0, 1.0]], 0.0, "temperature must be"),
        ([[0.0, 1.0]], "hot", "temperature must be"),
    ],
)
def test_bad_logits_are_told(logits, temperature, message):
    with pytest.raises(ValueError, match=message):
        ClassProbabilities.from_logits(logits, temperature=temperature)


# --- labels


@every_class_record
@pytest.mark.parametrize("unseen", ["a", "", 3, {"a"}, [["a", "b"]]])
def test_unseen_labels_come_in_a_list(make, unseen):
    with pytest.raises(ValueError, match=r"^unseen must be a list of labels, got "):
        make([[0.5, 0.5]], classes=["x", "y"], unseen=unseen)


@pytest.mark.parametrize("unseen", [None, []])
def test_no_unseen_labels_may_be_said_in_two_ways(unseen):
    assert ClassProbabilities([[0.5, 0.5]], classes=["x", "y"], unseen=unseen).unseen is None


def test_labels_of_several_kinds_keep_their_kinds():
    record = ClassProbabilities([[0.5, 0.3, 0.2]], classes=["one", 1, None], unseen=[7])
    assert record.labels().tolist() == ["one", 1, None, 7]
    assert record.codes([1]).tolist() == [1]


def test_unseen_labels_of_another_kind_stay_what_they_are():
    record = ClassProbabilities([[0.5, 0.5]], classes=["a", "b"], unseen=[7])
    assert record.labels().tolist() == ["a", "b", 7]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"classes": ["a"]}, "distinct labels"),
        ({"classes": ["a", "a"]}, "distinct labels"),
        ({"classes": [1.0, np.nan]}, "distinct labels"),
        ({"classes": ["a", "b"], "unseen": ["b"]}, "not among classes"),
        ({"classes": ["a", "b"], "unseen": ["c", "c"]}, "not among classes"),
        ({"unseen": ["c"]}, "classes= must name the columns too"),
        ({"uniforms": [1.5]}, r"uniforms must lie in \[0, 1\]"),
        ({"uniforms": [0.5, 0.5]}, "one number for each of the 1 rows"),
    ],
    ids=str,
)
@every_class_record
def test_labels_that_do_not_fit_are_refused(make, labels, words):
    with pytest.raises(ValueError, match=words):
        make([[1.0, 0.0]], **labels)


@pytest.mark.parametrize(
    ("labels", "y", "words"),
    [
        ({}, [-1], "labels from -1 to -1"),
        ({}, [0.5], "without classes= labels are the column numbers 0..1"),
        ({}, ["a"], "without classes= labels are the column numbers 0..1"),
        ({"classes": ["a", "b"]}, ["c"], r"label 'c' \(row 0\), which is not among the 2 classes"),
        ({"classes": ["a", "b"]}, ["a", "b"], "one label for each of the 1 rows"),
    ],
    ids=str,
)
def test_labels_that_are_not_there_are_named(labels, y, words):
    with pytest.raises(ValueError, match=words):
        ClassProbabilities([[1.0, 0.0]], **labels).codes(y)


# --- some of the rows


@pytest.fixture
def drawn() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "probabilities": rng.dirichlet(np.ones(2), size=4),
        "draws": rng.dirichlet(np.ones(2), size=(5, 4)),
        "uniforms": rng.uniform(size=4),
    }


def test_rows_of_probabilities_keep_their_uniforms_and_labels(drawn):
    record = ClassProbabilities(
        drawn["probabilities"], classes=["a", "b"], uniforms=drawn["uniforms"], unseen=["c"]
    ).take(ROWS)
    np.testing.assert_array_equal(record.probabilities, drawn["probabilities"][ROWS])
    np.testing.assert_array_equal(record.uniforms, drawn["uniforms"][ROWS])
    assert record.labels().tolist() == ["a", "b", "c"]


def test_rows_of_draws_keep_their_uniforms_and_labels(drawn):
    record = ClassDraws(
        drawn["draws"], classes=["a", "b"], uniforms=drawn["uniforms"], unseen=["c"]
    ).take(ROWS)
    np.testing.assert_array_equal(record.draws, drawn["draws"][:, ROWS])
    np.testing.assert_array_equal(record.uniforms, drawn["uniforms"][ROWS])
    assert record.labels().tolist() == ["a", "b", "c"]


def test_rows_of_mixtures_share_the_sds_that_all_share():
    rng = np.random.default_rng(0)
    means, sds = rng.normal(size=(4, 3)), rng.uniform(1, 2, size=(4, 3))
    shared = GaussianMixtures(means.T, sds[0]).take(ROWS)
    own = GaussianMixtures(means.T, sds.T).take(ROWS)
    np.testing.assert_array_equal(shared.means, means[ROWS].T)
    np.testing.assert_array_equal(shared.sds, sds[0])
    np.testing.assert_array_equal(own.sds, sds[ROWS].T)


def test_rows_of_numbers():
    columns = np.arange(12.0).reshape(3, 4)
    assert Points(columns[0]).take(ROWS).mean.tolist() == [3, 0, 3]
    assert PointsWithSpread(*columns[:2]).take(ROWS).spread.tolist() == [7, 4, 7]
    assert Quantiles(columns[0], columns[2], columns[1]).take(slice(2)).median.tolist() == [4, 5]
    assert Quantiles(columns[0], columns[2]).take(ROWS).median is None


# --- draws


def test_the_mean_over_draws_keeps_labels_and_uniforms():
    rng = np.random.default_rng(0)
    draws, u = rng.dirichlet(np.ones(3), size=(6, 4)), rng.uniform(size=4)
    mean = ClassDraws(draws, ["a", "b", "c"], u, ["d"]).mean()
    np.testing.assert_allclose(mean.probabilities, draws.mean(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(mean.uniforms, u)
    assert mean.labels().tolist() == ["a", "b", "c", "d"]


def test_draws_come_first_in_every_record_that_holds_them():
    means = np.arange(6.0).reshape(2, 3)
    mixtures = GaussianMixtures(means, [1.0, 2.0])
    assert len(mixtures) == 3
    assert mixtures.centres.tolist() == [1.5, 2.5, 3.5]
    turned = GaussianMixtures(means.T, [1.0, 2.0], draws_first=False)
    assert turned.means.tolist() == mixtures.means.tolist() == means.tolist()


@pytest.mark.parametrize("draws_first", [True, False])
def test_as_many_draws_as_rows_need_a_word(draws_first):
    """Nothing else tells (T, n) from (n, T), and the sets would be wrong in silence."""
    means = np.array([[0.0, 10.0], [1.0, 11.0]])
    with pytest.raises(ValueError, match="as many draws as rows, 2: pass draws_first=True"):
        GaussianMixtures(means, [1.0, 1.0])
    mixtures = GaussianMixtures(means, [1.0, 1.0], draws_first=draws_first)
    assert mixtures.centres.tolist() == ([0.5, 10.5] if draws_first else [5.0, 6.0])


def test_means_in_the_other_order_are_told():
    with pytest.raises(ValueError, match=r"draws_first=False is for means of shape \(n, T\)"):
        GaussianMixtures(np.zeros((5, 3)), np.ones(3))


# --- numbers


def test_crossed_quantiles_are_sorted_row_by_row_and_hold_the_median():
    record = Quantiles([1.0, 5.0, 0.0], [2.0, 3.0, 1.0], median=[0.0, 4.0, 7.0])
    assert record.lower.tolist() == [1.0, 3.0, 0.0]
    assert record.upper.tolist() == [2.0, 5.0, 1.0]
    assert record.median.tolist() == [1.0, 4.0, 1.0]


def test_whole_numbers_keep_all_their_digits():
    assert float(Points([2**24 + 1]).mean[0]) == 2**24 + 1


def test_a_spread_may_be_zero_and_not_less():
    assert PointsWithSpread([0.0], [0.0]).spread[0] == 0
    with pytest.raises(ValueError, match="spread must not be negative"):
        PointsWithSpread([0.0], [-1e-300])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Points([[1.0]]), "one number per row"),
        (lambda: Points([np.inf]), "mean must be finite, but row 0 is inf"),
        (lambda: Points(["a"]), "mean must be real numbers"),
        (lambda: PointsWithSpread([1.0], [1.0, 2.0]), "spread has 2 rows where 1 were expected"),
        (lambda: GaussianMixtures([[0.0]], [0.0]), "greater than 0"),
    ],
    ids=["matrix", "infinite", "text", "lengths", "sd of 0"],
)
def test_numbers_that_do_not_fit_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


# --- quantiles at many levels, and draws of y


def test_crossing_quantiles_of_a_row_are_sorted():
    record = QuantileFunction([0.1, 0.5, 0.9], [[3.0, 1.0, 2.0], [4.0, 5.0, 6.0]])
    assert record.values.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_quantiles_at_other_levels_are_interpolated():
    record = QuantileFunction([0.2, 0.4], [[0.0, 1.0]])
    assert record.values_at([0.1, 0.2, 0.25, 0.4, 0.9])[0] == pytest.approx([0, 0, 0.25, 1, 1])


def test_centres_of_quantiles_are_medians():
    record = QuantileFunction([0.25, 0.75], [[0.0, 2.0], [1.0, 5.0]])
    assert record.centres.tolist() == [1, 3]


def test_some_rows_of_quantiles_and_draws():
    draws = TargetDraws(np.arange(8.0).reshape(2, 4)).take(ROWS)
    assert draws.draws.tolist() == [[3, 0, 3], [7, 4, 7]]
    assert draws.quantile_function().take(slice(1)).values.tolist() == [[3, 7]]


def test_quantiles_of_few_draws_are_the_draws_in_order():
    record = TargetDraws([[3.0], [1.0], [2.0]]).quantile_function()
    assert record.levels.tolist() == [0.25, 0.5, 0.75]
    assert record.values.tolist() == [[1, 2, 3]]


def test_many_draws_give_199_quantiles():
    draws = np.random.default_rng(0).uniform(size=(5000, 2))
    record = TargetDraws(draws).quantile_function()
    assert record.levels.tolist() == (np.arange(1, 200) / 200).tolist()
    assert np.abs(record.values - record.levels).max() < 4 * 0.5 / np.sqrt(5000)


@pytest.mark.parametrize(
    "levels",
    [[0.5], [0.5, 0.5], [0.9, 0.1], [0.0, 0.5], [0.5, 1.0]],
    ids=["one", "equal", "descending", "zero", "one hundred percent"],
)
def test_levels_that_are_not_ascending_between_zero_and_one_are_refused(levels):
    with pytest.raises(ValueError, match="levels must be at least two ascending numbers"):
        QuantileFunction(levels, np.zeros((3, len(levels))))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(2), "values must be a matrix, got shape"),
        (np.zeros((2, 3)), r"a column for each of the 2 levels, got shape \(2, 3\)"),
        ([[0.0, np.nan]], "values must be finite"),
        ([[0.0, 1e308]], "not beyond 1e"),
    ],
    ids=["a column", "three columns", "missing", "huge"],
)
def test_values_that_are_no_quantiles_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        QuantileFunction([0.1, 0.9], values)


def test_a_single_draw_is_refused():
    with pytest.raises(ValueError, match="at least two draws of y per row, draws first"):
        TargetDraws(np.zeros((1, 5)))
