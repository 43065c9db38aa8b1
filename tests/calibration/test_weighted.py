"""Calibration by weights and by group: the quantile against its definition in fractions, and its
limits.
"""

import warnings
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dco
from dco.calibration import (
    grouped_conformal,
    one_row_per_group,
    split_conformal,
    weighted_conformal,
)
from dco.foundations.ranks import as_rational
from dco.scores import APS, LAC, AbsoluteResidual, NeverEmpty, TopK

ALPHAS = st.sampled_from([0.05, 0.1, 1 - 0.9, 0.2, 0.25, Fraction(1, 3), 0.5, 0.75, 0.9])
SCORES = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.5, np.inf])
WEIGHTS = [0.0, 0.1, 0.2, 0.3, 1.0, 2.0, 3.0, 1 / 3, 7.0, 1e-300, 5e-324, 1e300, 1e-17]
full_sets_are_fine = pytest.mark.filterwarnings(
    "ignore::dco.foundations.errors.InfeasibleLevelWarning"
)


# ---------------------------------------------------------------- the definition


def quantile_by_definition(scores, weights, new_weight, alpha):
    """Return the smallest value with mass at least 1 - alpha, from the definition and in fractions.

    The new row has its mass at +inf.
    """
    weights = [Fraction(weight) for weight in weights]
    needed = (1 - as_rational(alpha)) * (sum(weights) + Fraction(new_weight))
    for value in sorted(set(scores)):
        mass = sum(w for score, w in zip(scores, weights, strict=True) if score <= value)
        if mass >= needed:
            return value
    return np.inf


@full_sets_are_fine
@given(
    rows=st.lists(st.tuples(SCORES, st.sampled_from(WEIGHTS)), min_size=1, max_size=30),
    new_weights=st.lists(st.sampled_from(WEIGHTS[1:]), min_size=1, max_size=5),
    alpha=ALPHAS,
)
def test_the_quantile_is_its_definition(rows, new_weights, alpha):
    """With ties, weights of 0, and weights so far apart that float64 cannot add them."""
    scores = [score for score, _ in rows]
    weights = [weight for _, weight in rows]
    if not any(weights):
        weights[0] = 1.0

    thresholds = weighted_conformal(scores, weights, new_weights, alpha=alpha)

    assert thresholds.values.tolist() == [
        quantile_by_definition(scores, weights, new_weight, alpha) for new_weight in new_weights
    ]


def test_thresholds_by_weight_say_what_they_guarantee():
    thresholds = weighted_conformal(np.arange(50.0), np.ones(50), [1, 2], alpha=Fraction(1, 10))

    assert thresholds.guarantee == "marginal"
    assert thresholds.assumption == "given these weights"
    assert thresholds.alpha == 0.1
    assert thresholds.n == 50
    assert len(thresholds) == 2


@full_sets_are_fine
@given(rows=st.lists(st.tuples(SCORES, st.integers(0, 7)), min_size=1, max_size=40), alpha=ALPHAS)
def test_the_quantile_of_groups_is_that_of_equal_shares(rows, alpha):
    """Each group weighs 1, its rows alike, and so does the new group at infinity."""
    scores = [score for score, _ in rows]
    groups = [group for _, group in rows]
    sizes = Counter(groups)
    shares = [Fraction(1, sizes[group]) for group in groups]

    threshold = grouped_conformal(scores, groups, alpha=alpha)

    assert threshold.value == quantile_by_definition(scores, shares, 1, alpha)
    assert threshold.n == len(sizes)


def test_a_threshold_of_groups_has_no_rank():
    threshold = grouped_conformal(np.arange(60.0), np.arange(60) // 2, alpha=0.1)

    assert threshold.guarantee == "marginal"
    assert threshold.rank is None
    assert threshold.expected_coverage is None


def test_a_label_that_new_rows_never_have_may_have_weight_0():
    scores = [1.0, 2.0, 3.0, 4.0]
    weights = [1.0, 0.0, 2.0, 1.0]

    thresholds = weighted_conformal(scores, weights, [[2.0, 0.0]], alpha=0.5)

    expected = [quantile_by_definition(scores, weights, own, 0.5) for own in (2.0, 0.0)]
    assert thresholds.values.tolist() == [expected]


# ---------------------------------------------------------------- exact ranks


@full_sets_are_fine
@pytest.mark.parametrize("alpha", [0.1, 0.059, 0.05, 1 - 0.9, 0.37, Fraction(1, 3)], ids=str)
@pytest.mark.parametrize("weight", [1.0, 0.1, 1 / 3, 7, 1e-310, 1e308, np.pi])
@pytest.mark.parametrize("kind", ["distinct", "tied", "single precision"])
def test_equal_weights_are_split_conformal_to_the_last_bit(kind, weight, alpha):
    """Also where (n + 1)(1 - alpha) is a whole number, and running sums of 0.1 in float64
    miss it.
    """
    rng = np.random.default_rng(0)
    for n in (1, 2, 9, 19, 99, 100, 999, 1009):
        if kind == "tied":
            scores = rng.integers(0, 9, size=n).astype(float)
        else:
            scores = rng.normal(size=n)
        if kind == "single precision":
            scores = scores.astype(np.float32)
        weights = np.full(n, weight)

        thresholds = weighted_conformal(scores, weights, [weight] * 3, alpha=alpha)

        assert thresholds.values.tolist() == [split_conformal(scores, alpha=alpha).value] * 3
        assert thresholds.effective_n == n


SIZES_WITH_WHOLE_RANKS = range(9, 400, 10)  # (n + 1) 0.9 is a whole number


@pytest.mark.parametrize("n", SIZES_WITH_WHOLE_RANKS)
def test_whole_ranks_are_met_at_equal_weights(n):
    thresholds = weighted_conformal(np.arange(1.0, n + 1), np.full(n, 0.1), [0.1], alpha=0.1)

    assert thresholds.values == [dco.conformal_rank(n, alpha=0.1)]


def test_sums_in_floating_point_would_be_wrong_at_equal_weights():
    """Planted: the same search with running sums in float64 misses the rank at some n."""
    n_wrong = 0
    for n in SIZES_WITH_WHOLE_RANKS:
        running = np.cumsum(np.full(n, 0.1))
        position = np.searchsorted(running, 0.9 * (running[-1] + 0.1))
        n_wrong += position + 1 != dco.conformal_rank(n, alpha=0.1)

    assert n_wrong > 5


def test_groups_whose_mass_meets_the_level_exactly_are_enough():
    """9 groups at alpha = 0.1: all rows together have mass 9 = 0.9 * 10."""
    assert grouped_conformal(np.arange(27.0), np.arange(27) % 9, alpha=0.1).value == 26


ONE_ROW = Fraction(32, 310)  # 10 (1 - alpha) = 9 - 1 / 31, the mass without the last row


@pytest.mark.parametrize(
    ("alpha", "n_missed"),
    [(0.1, 0), (ONE_ROW, 1), (ONE_ROW - Fraction(1, 10**15), 0)],
    ids=["a tenth", "enough for one row", "just not enough"],
)
def test_one_row_of_the_last_group_is_missed_where_the_level_allows_it(alpha, n_missed):
    groups = np.repeat(np.arange(9), [3, 7, 11, 13, 17, 19, 23, 29, 31])
    n = len(groups)

    threshold = grouped_conformal(np.arange(n), groups, alpha=alpha)

    assert threshold.value == n - 1 - n_missed


@pytest.mark.parametrize("seed", range(8))
class TestScoresOfHighPrecision:
    """Half of these 19 scores would round down to doubles."""

    def draw(self, seed):
        normal = np.random.default_rng(seed).normal(size=19)
        return normal.astype(np.longdouble) + np.longdouble(1) / 3

    @pytest.mark.parametrize("alpha", [0.06, 0.1, 0.37])
    def test_one_row_per_group_is_split_conformal(self, seed, alpha):
        scores = self.draw(seed)
        value = split_conformal(scores, alpha=alpha).value

        assert grouped_conformal(scores, np.arange(19), alpha=alpha).value == value
        assert weighted_conformal(scores, np.ones(19), [1.0], alpha=alpha).values[0] == value

    def test_no_score_is_rounded_below_itself(self, seed):
        scores = self.draw(seed)

        assert np.sum(scores <= split_conformal(scores, alpha=0.1).value) == 18


# ---------------------------------------------------------------- what matters and what does not


@pytest.fixture
def rows():
    """Draw 300 scores with weights, in 30 groups, and 50 new weights in ascending order."""
    rng = np.random.default_rng(2)
    scores = rng.normal(size=300)
    weights = rng.exponential(size=300)
    new_weights = np.sort(rng.exponential(size=50))
    groups = rng.integers(0, 30, size=300)
    return scores, weights, new_weights, groups


def test_the_order_of_weighted_rows_does_not_matter(rows):
    scores, weights, new_weights, _ = rows
    order = np.random.default_rng(0).permutation(300)

    thresholds = weighted_conformal(scores, weights, new_weights, alpha=0.1)
    shuffled = weighted_conformal(scores[order], weights[order], new_weights, alpha=0.1)

    assert np.array_equal(shuffled, thresholds)


def test_the_scale_of_weights_does_not_matter(rows):
    scores, weights, new_weights, _ = rows
    scale = 2.0**-40

    thresholds = weighted_conformal(scores, weights, new_weights, alpha=0.1)
    scaled = weighted_conformal(scores, scale * weights, scale * new_weights, alpha=0.1)

    assert np.array_equal(scaled, thresholds)


def test_larger_new_weights_give_larger_thresholds(rows):
    scores, weights, new_weights, _ = rows

    thresholds = weighted_conformal(scores, weights, new_weights, alpha=0.1)

    assert np.all(np.diff(thresholds.values) >= 0)


def test_the_effective_number_of_rows_is_that_of_kish(rows):
    scores, weights, new_weights, _ = rows

    thresholds = weighted_conformal(scores, weights, new_weights, alpha=0.1)

    assert thresholds.effective_n == pytest.approx(weights.sum() ** 2 / np.sum(weights**2))


def test_the_order_and_names_of_groups_do_not_matter(rows):
    scores, _, _, groups = rows
    order = np.random.default_rng(0).permutation(300)
    names = [f"patient {group}" for group in groups[order]]

    threshold = grouped_conformal(scores, groups, alpha=0.1)

    assert grouped_conformal(scores[order], names, alpha=0.1).value == threshold.value


def test_a_group_weighs_the_same_however_often_its_rows_are_repeated(rows):
    """Pooled rows would follow the large group."""
    scores, _, _, groups = rows
    repeats = np.where(groups == 3, 51, 1)

    threshold = grouped_conformal(scores, groups, alpha=0.1)
    of_repeated = grouped_conformal(
        np.repeat(scores, repeats), np.repeat(groups, repeats), alpha=0.1
    )

    assert of_repeated.value == threshold.value


def test_a_row_that_only_large_groups_have_is_not_promised():
    """17 groups of one row score 0, and the two of ten rows, the only ones with a second, 1: the
    first row of a group is covered as promised, and the second never.
    """
    groups = np.r_[np.arange(17), np.repeat([17, 18], 10)]
    scores = np.where(groups >= 17, 1.0, 0.0)
    first_rows = np.unique(groups, return_index=True)[1]
    second_rows = first_rows[17:] + 1

    threshold = grouped_conformal(scores, groups, alpha=0.2).value

    assert threshold == 0
    assert np.mean(scores[first_rows] <= threshold) == 17 / 19
    assert not np.any(scores[second_rows] <= threshold)


def test_the_work_in_python_is_not_for_each_row_of_groups(lines_run):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=200_000)
    groups = rng.geometric(0.0005, size=200_000)

    lines_run(lambda: grouped_conformal(scores, groups, alpha=0.1), at_most=200_000)


def test_the_work_in_python_is_not_for_each_new_weight(lines_run):
    """Every new row falls on a running sum exactly; one row is decided in integers, and no loop
    goes over new rows.
    """
    weights = np.full(9_999, 0.1)
    new_weights = np.full(200_000, 0.1)

    lines_run(
        lambda: weighted_conformal(np.arange(9_999), weights, new_weights, alpha=0.1),
        at_most=100_000,
    )


# ---------------------------------------------------------------- thresholds by row and label


@pytest.mark.parametrize("shape", [(12, 1), (4, 3), (1, 12)], ids=str)
def test_thresholds_have_the_shape_of_the_new_weights(shape):
    rng = np.random.default_rng(3)
    scores = rng.normal(size=50)
    weights = rng.exponential(size=50)
    new_weights = rng.exponential(size=12)

    flat = weighted_conformal(scores, weights, new_weights, alpha=0.2)
    shaped = weighted_conformal(scores, weights, new_weights.reshape(shape), alpha=0.2)

    assert np.array_equal(np.asarray(shaped), flat.values.reshape(shape))
    assert np.asarray(shaped, dtype=np.float32).dtype == np.float32


def test_no_new_weights_give_no_thresholds():
    thresholds = weighted_conformal(np.arange(50.0), np.ones(50), np.empty(0), alpha=0.2)

    assert thresholds.values.shape == (0,)


@pytest.mark.parametrize("score", [LAC(), APS(), TopK(), NeverEmpty(LAC())], ids=str)
@pytest.mark.parametrize("shape", [(5,), (5, 1), (1, 5), (5, 5)], ids=str)
def test_label_sets_hold_what_scores_at_most_the_threshold(score, shape):
    """As many rows as labels: a record with one threshold per row is never read as one per
    label.
    """
    rng = np.random.default_rng(4)
    prediction = dco.ClassProbabilities(rng.dirichlet(np.ones(5), size=5))
    all_scores = score.every_label(prediction)
    scores = rng.choice(all_scores.ravel(), size=40)
    weights = rng.exponential(size=40)
    new_weights = rng.exponential(size=shape)

    thresholds = weighted_conformal(scores, weights, new_weights, alpha=0.4)
    sets = score.sets(prediction, thresholds)

    limits = thresholds.values[:, None] if shape == (5,) else thresholds.values
    assert np.array_equal(sets.to_dense(), all_scores <= limits)
    assert np.array_equal(score.sizes(prediction, thresholds), sets.sizes())


@pytest.mark.parametrize("score", [LAC(), APS()], ids=str)
def test_label_sets_of_many_chunks_of_rows(score):
    """Thresholds by row and label go with their rows."""
    rng = np.random.default_rng(5)
    p = rng.dirichlet(np.ones(300), size=2_000).astype(np.float32)
    prediction = dco.ClassProbabilities(p)
    all_scores = score.every_label(prediction)
    limits = rng.choice(all_scores.ravel()[:1000], size=all_scores.shape)
    is_in_set = all_scores <= limits

    assert np.array_equal(score.sets(prediction, limits).to_dense(), is_in_set)
    assert np.array_equal(score.sizes(prediction, limits), is_in_set.sum(axis=1))


@pytest.fixture
def two_thresholds():
    return weighted_conformal(np.arange(1.0, 10.0), np.ones(9), [1.0, 0.5], alpha=0.3)


def test_intervals_take_one_threshold_per_row(two_thresholds):
    means = np.array([0.0, 10.0])

    sets = AbsoluteResidual().sets(dco.Points(means), two_thresholds)

    assert np.all(sets.contains(means + two_thresholds.values))


def test_intervals_need_as_many_thresholds_as_rows(two_thresholds):
    with pytest.raises(ValueError, match=r"must have shape \(3,\), got \(2,\)"):
        AbsoluteResidual().sets(dco.Points([0.0, 1.0, 2.0]), two_thresholds)


def test_label_sets_need_as_many_thresholds_as_rows(two_thresholds):
    two_labels = dco.ClassProbabilities(np.full((3, 2), 0.5))
    with pytest.raises(ValueError, match=r"got \(2,\)"):
        LAC().sets(two_labels, two_thresholds)


# ---------------------------------------------------------------- infinite thresholds


def test_a_new_weight_of_exactly_the_spare_mass_is_not_too_heavy():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thresholds = weighted_conformal(np.arange(9.0), np.ones(9), [1.0], alpha=0.1)

    assert thresholds.values == [8]


def test_a_heavier_new_row_has_an_infinite_threshold():
    new_weights = [1.0, np.nextafter(1.0, 2.0)]

    sentence = r"^1 of 2 thresholds is infinite.*more than 0\.111 times.*9 have the effect of 9"
    with pytest.warns(dco.InfeasibleLevelWarning, match=sentence):
        thresholds = weighted_conformal(np.arange(9.0), np.ones(9), new_weights, alpha=0.1)

    assert thresholds.values.tolist() == [8, np.inf]


def test_without_calibration_rows_the_threshold_is_infinite():
    with pytest.warns(dco.InfeasibleLevelWarning):
        thresholds = weighted_conformal([], [], [1.0], alpha=0.1)

    assert thresholds.values == [np.inf]


def test_many_rows_of_too_few_groups_have_an_infinite_threshold():
    sentence = r"8 calibration groups are too few .* At least 9 groups"
    with pytest.warns(dco.InfeasibleLevelWarning, match=sentence):
        threshold = grouped_conformal(np.arange(800.0), np.arange(800) % 8, alpha=0.1)

    assert threshold.value == np.inf
    assert threshold.n == 8


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 1], r"one weight for each of 3 scores, got shape \(2,\)"),
        ([0, 0, 0], "weights are all 0: no calibration row"),
        (
            [1, -1, 1],
            r"^weights must be finite and not negative; 1 of 3 \(first: 1\) is negative",
        ),
        ([1, np.nan, np.nan], r"2 of 3 \(first: 1\) are NaN"),
        ([1, 1, np.inf], r"is infinite\. An infinite weight says"),
        (["a", "b", "c"], "weights must be real numbers"),
    ],
    ids=["too few", "zeros", "negative", "nan", "infinite", "text"],
)
def test_bad_weights_get_one_sentence(weights, message):
    with pytest.raises(ValueError, match=message):
        weighted_conformal([1.0, 2.0, 3.0], weights, [1], alpha=0.5)


ZERO = r"^new_weights: 1 of 2 \(first: 1\) is 0, which says that there can be no such new row"


@pytest.mark.parametrize(
    ("new_weights", "message"),
    [
        ([1, np.inf], r"^new_weights must be finite.*calibration rows cannot be like it"),
        ([1, 0], ZERO),
        ([[1, 0], [0, 0]], ZERO),
        ([[1, -1]], r"1 of 2 \(first: 0, 1\) is negative"),
        (1.0, r"shape \(m,\), \(m, 1\), \(m, K\) or \(1, K\), got \(\)"),
    ],
    ids=["infinite", "zero", "a row of zeros", "negative", "a number"],
)
def test_bad_new_weights_get_one_sentence(new_weights, message):
    with pytest.raises(ValueError, match=message):
        weighted_conformal([1.0, 2.0, 3.0], [1, 1, 1], new_weights, alpha=0.5)


@pytest.mark.parametrize(
    ("scores", "groups", "alpha", "message"),
    [
        ([1.0, np.nan], [0, 1], 0.5, "are NaN"),
        ([1.0, 2.0], [0, 1], 1.5, "alpha must be"),
        ([1.0, 2.0], [0, 1, 2], 0.5, "2 scores and 3 group labels"),
        ([1.0, 2.0], [0, None], 0.5, "groups is missing for 1 rows"),
    ],
    ids=["nan", "alpha", "too many", "missing"],
)
def test_bad_scores_levels_and_groups_are_refused(scores, groups, alpha, message):
    with pytest.raises(ValueError, match=message):
        grouped_conformal(scores, groups, alpha=alpha)


def test_scores_that_are_weighted_must_be_numbers():
    with pytest.raises(dco.NonFiniteScoreError, match="are NaN"):
        weighted_conformal([1.0, np.nan], [1, 1], [1], alpha=0.5)


def test_the_level_of_weighted_rows_is_below_one():
    with pytest.raises(ValueError, match="alpha must be"):
        weighted_conformal([1.0, 2.0], [1, 1], [1], alpha=1.5)


# ---------------------------------------------------------------- one row of each group

GROUPS = np.array(["c", "b", "a", "b", "c", "c", "c"])


def test_each_row_of_a_group_is_drawn_equally_often():
    """4,000 draws from groups of 1, 2 and 4 rows, within 5 standard errors."""
    counts = np.zeros(7)
    for seed in range(4_000):
        rows = one_row_per_group(GROUPS, seed=seed)
        assert sorted(GROUPS[rows]) == ["a", "b", "c"]
        assert (np.diff(rows) > 0).all()
        counts[rows] += 1

    share = np.array([0.25, 0.5, 1.0, 0.5, 0.25, 0.25, 0.25])
    standard_error = np.sqrt(share * (1 - share) / 4_000)
    assert (np.abs(counts / 4_000 - share) <= 5 * standard_error).all()


def test_rows_of_groups_are_drawn_by_seed():
    rows = one_row_per_group(GROUPS, seed=3)

    assert one_row_per_group(GROUPS, seed=3).tolist() == rows.tolist()
