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
from dco.foundations.errors import InfeasibleLevelWarning, NonFiniteScoreError
from dco.foundations.ranks import as_rational

ALPHAS = st.sampled_from([0.05, 0.1, 1 - 0.9, 0.2, 0.25, Fraction(1, 3), 0.5, 0.75, 0.9])
SCORES = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.5, np.inf])
WEIGHTS = [0.0, 0.1, 0.2, 0.3, 1.0, 2.0, 3.0, 1 / 3, 7.0, 1e-300, 5e-324, 1e300, 1e-17]
full_sets_are_fine = pytest.mark.filterwarnings(
    "ignore::dco.foundations.errors.InfeasibleLevelWarning"
)


def by_definition(scores, weights, own, alpha):
    """The least value with mass at least 1 - alpha, +inf included, from the definition and in
    fractions.
    """
    whole = sum(map(Fraction, weights), Fraction(own))
    for value in [*sorted(set(scores)), np.inf]:
        mass = sum(
            (Fraction(w) for s, w in zip(scores, weights, strict=True) if s <= value), Fraction(0)
        )
        if mass + (Fraction(own) if value == np.inf else 0) >= (1 - as_rational(alpha)) * whole:
            return value
    raise AssertionError("the mass is one")


@full_sets_are_fine
@given(
    rows=st.lists(st.tuples(SCORES, st.sampled_from(WEIGHTS)), min_size=1, max_size=30),
    new=st.lists(st.sampled_from(WEIGHTS[1:]), min_size=1, max_size=5),
    alpha=ALPHAS,
)
def test_the_quantile_is_its_definition(rows, new, alpha):
    """With ties, weights of 0, and weights so far apart that float64 cannot add them."""
    scores, weights = [s for s, _ in rows], [w for _, w in rows]
    if not any(weights):
        weights[0] = 1.0
    found = weighted_conformal(scores, weights, new, alpha=alpha)
    assert found.values.tolist() == [by_definition(scores, weights, own, alpha) for own in new]
    assert (found.guarantee, found.assumption) == ("marginal", "given these weights")
    assert (found.n, found.alpha, len(found)) == (len(rows), float(as_rational(alpha)), len(new))


@full_sets_are_fine
@given(rows=st.lists(st.tuples(SCORES, st.integers(0, 7)), min_size=1, max_size=40), alpha=ALPHAS)
def test_the_quantile_of_groups_is_that_of_equal_shares(rows, alpha):
    """Each group weighs 1, its rows alike, and so does the new group at infinity."""
    scores, groups = [s for s, _ in rows], [g for _, g in rows]
    sizes, threshold = Counter(groups), grouped_conformal(scores, groups, alpha=alpha)
    assert threshold.value == by_definition(
        scores, [Fraction(1, sizes[g]) for g in groups], 1, alpha
    )
    assert (threshold.n, threshold.guarantee) == (len(sizes), "marginal")
    assert threshold.rank is threshold.expected_coverage is None


@full_sets_are_fine
@pytest.mark.parametrize("weight", [1.0, 0.1, 1 / 3, 7, 1e-310, 1e308, np.pi])
def test_equal_weights_are_split_conformal_to_the_last_bit(weight):
    """Also where (n + 1)(1 - alpha) is a whole number, and running sums of 0.1 in float64
    miss it.
    """
    rng = np.random.default_rng(0)
    for n in (1, 2, 9, 19, 99, 100, 999, 1009):
        for scores in (
            rng.normal(size=n),
            rng.integers(0, 9, size=n).astype(float),
            rng.normal(size=n).astype(np.float32),
        ):
            for alpha in (0.1, 0.059, 0.05, 1 - 0.9, 0.37, Fraction(1, 3)):
                found = weighted_conformal(
                    scores, np.full(n, weight), np.full(3, weight), alpha=alpha
                )
                assert found.values.tolist() == [split_conformal(scores, alpha=alpha).value] * 3
                assert found.effective_n == n


def test_sums_in_floating_point_would_be_wrong_at_equal_weights():
    """Planted: the same search with running sums in float64 and no doubt misses the rank at
    some n.
    """
    wrong = 0
    for n in range(9, 400, 10):  # (n + 1) 0.9 is a whole number
        weights, rank = np.full(n, 0.1), dco.conformal_rank(n, alpha=0.1)
        running = np.cumsum(weights)
        wrong += int(np.searchsorted(running, 0.9 * (running[-1] + 0.1))) + 1 != rank
        assert weighted_conformal(np.arange(1.0, n + 1), weights, [0.1], alpha=0.1).values == [rank]
    assert wrong > 5


def test_masses_of_groups_that_meet_the_level_exactly_are_enough():
    """9 groups at alpha = 0.1: all rows together have mass 9 = 0.9 * 10 exactly; one row less is
    short by 1 / 31.
    """
    assert grouped_conformal(np.arange(27.0), np.arange(27) % 9, alpha=0.1).value == 26
    groups = np.repeat(np.arange(9), [3, 7, 11, 13, 17, 19, 23, 29, 31])
    spare = Fraction(32, 310)  # 10 (1 - spare) = 9 - 1 / 31
    for alpha, missed in ((0.1, 0), (spare, 1), (spare - Fraction(1, 10**15), 0)):
        assert (
            grouped_conformal(np.arange(groups.size), groups, alpha=alpha).value
            == groups.size - 1 - missed
        )


def test_one_row_per_group_is_split_conformal_and_no_score_is_rounded_below_itself():
    """In the dtype of the scores 18 of 19 distinct ones are at most the value; half of the
    longdoubles would round down.
    """
    for seed in range(8):
        scores = (
            np.random.default_rng(seed).normal(size=19).astype(np.longdouble) + np.longdouble(1) / 3
        )
        for alpha in (0.06, 0.1, 0.37):
            value = split_conformal(scores, alpha=alpha).value
            assert grouped_conformal(scores, np.arange(19), alpha=alpha).value == value
            assert weighted_conformal(scores, np.ones(19), [1.0], alpha=alpha).values[0] == value
        assert np.sum(scores <= split_conformal(scores, alpha=0.1).value) == 18


def test_order_scale_and_names_do_not_matter_and_larger_new_weights_give_larger_thresholds():
    rng = np.random.default_rng(2)
    scores, weights, new = (
        rng.normal(size=300),
        rng.exponential(size=300),
        np.sort(rng.exponential(size=50)),
    )
    groups, turn = rng.integers(0, 30, size=300), rng.permutation(300)
    found = weighted_conformal(scores, weights, new, alpha=0.1)
    assert np.array_equal(weighted_conformal(scores[turn], weights[turn], new, alpha=0.1), found)
    assert np.array_equal(
        weighted_conformal(scores, weights * 2.0**-40, new * 2.0**-40, alpha=0.1), found
    )
    assert np.all(np.diff(found.values) >= 0)
    assert found.effective_n == pytest.approx(weights.sum() ** 2 / np.sum(weights**2))
    value = grouped_conformal(scores, groups, alpha=0.1).value
    assert (
        grouped_conformal(scores[turn], [f"patient {g}" for g in groups[turn]], alpha=0.1).value
        == value
    )
    # A group weighs the same however often its rows are repeated; pooled rows would follow the
    # large group.
    more, many = (
        np.r_[scores, np.repeat(scores[groups == 3], 50)],
        np.r_[groups, np.full(50 * np.sum(groups == 3), 3)],
    )
    assert grouped_conformal(more, many, alpha=0.1).value == value


def test_thresholds_have_the_shape_of_the_new_weights():
    rng = np.random.default_rng(3)
    scores, weights, new = rng.normal(size=50), rng.exponential(size=50), rng.exponential(size=12)
    flat = weighted_conformal(scores, weights, new, alpha=0.2).values
    for shape in ((12, 1), (4, 3), (1, 12)):
        found = weighted_conformal(scores, weights, new.reshape(shape), alpha=0.2)
        assert np.array_equal(np.asarray(found), flat.reshape(shape))
        assert np.asarray(found, dtype=np.float32).dtype == np.float32
    assert weighted_conformal(scores, weights, np.empty(0), alpha=0.2).values.shape == (0,)


@pytest.mark.parametrize(
    "score",
    [
        dco.scores.LAC(),
        dco.scores.APS(),
        dco.scores.TopK(),
        dco.scores.NeverEmpty(dco.scores.LAC()),
    ],
)
@pytest.mark.parametrize("shape", [(5,), (5, 1), (1, 5), (5, 5)])
def test_label_sets_hold_what_scores_at_most_the_threshold(score, shape):
    """As many rows as labels: a record with one threshold per row is never read as one per
    label.
    """
    rng = np.random.default_rng(4)
    prediction = dco.ClassProbabilities(rng.dirichlet(np.ones(5), size=5))
    every = score.every_label(prediction)
    known, weights, new = (
        rng.choice(every.ravel(), size=40),
        rng.exponential(size=40),
        rng.exponential(size=shape),
    )
    cutoffs = weighted_conformal(known, weights, new, alpha=0.4)
    sets = score.sets(prediction, cutoffs)
    assert np.array_equal(
        sets.to_dense(), every <= (cutoffs.values[:, None] if shape == (5,) else cutoffs.values)
    )
    assert np.array_equal(score.sizes(prediction, cutoffs), sets.sizes())


def test_label_sets_of_many_chunks_of_rows():
    """Thresholds by row and label go with their rows."""
    rng = np.random.default_rng(5)
    prediction = dco.ClassProbabilities(rng.dirichlet(np.ones(300), size=2_000).astype(np.float32))
    for score in (dco.scores.LAC(), dco.scores.APS()):
        every = score.every_label(prediction)
        limits = rng.choice(every.ravel()[:1000], size=every.shape)
        assert np.array_equal(score.sets(prediction, limits).to_dense(), every <= limits)
        assert np.array_equal(score.sizes(prediction, limits), np.sum(every <= limits, axis=1))


def test_intervals_take_one_threshold_per_row():
    cutoffs = weighted_conformal(np.arange(1.0, 10.0), np.ones(9), [1.0, 0.5], alpha=0.3)
    sets = dco.scores.AbsoluteResidual().sets(dco.Points([0.0, 10.0]), cutoffs)
    assert np.all(sets.contains(np.array([0.0, 10.0]) + cutoffs.values))
    with pytest.raises(ValueError, match=r"must have shape \(3,\), got \(2,\)"):
        dco.scores.AbsoluteResidual().sets(dco.Points([0.0, 1.0, 2.0]), cutoffs)
    # one per row, although there are two labels
    with pytest.raises(ValueError, match=r"got \(2,\)"):
        dco.scores.LAC().sets(dco.ClassProbabilities(np.full((3, 2), 0.5)), cutoffs)


def test_a_heavy_new_row_and_too_few_groups_have_an_infinite_threshold():
    """9 rows of weight 1 at alpha = 0.1: a new weight of exactly 1 is still enough. Of groups any
    number of rows is not.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert weighted_conformal(np.arange(9.0), np.ones(9), [1.0], alpha=0.1).values == [8]
    said = r"^1 of 2 thresholds is infinite.*more than 0\.111 times.*9 have the effect of 9"
    with pytest.warns(InfeasibleLevelWarning, match=said):
        found = weighted_conformal(
            np.arange(9.0), np.ones(9), [1.0, np.nextafter(1.0, 2.0)], alpha=0.1
        )
    assert found.values.tolist() == [8, np.inf]
    with pytest.warns(InfeasibleLevelWarning):
        assert weighted_conformal([], [], [1.0], alpha=0.1).values == [np.inf]
    with pytest.warns(
        InfeasibleLevelWarning,
        match=r"8 calibration groups are too few .* At "
        r"least 9 groups",
    ):
        threshold = grouped_conformal(np.arange(800.0), np.arange(800) % 8, alpha=0.1)
    assert (threshold.value, threshold.n) == (np.inf, 8)


@pytest.mark.parametrize(
    ("weights", "new", "words"),
    [
        ([1, 1], [1], r"one weight for each of 3 scores, got shape \(2,\)"),
        ([0, 0, 0], [1], "weights are all 0: no calibration row"),
        (
            [1, -1, 1],
            [1],
            r"^weights must be finite and not negative; 1 of 3 \(first: 1\) is "
            r"negative",
        ),
        ([1, np.nan, np.nan], [1], r"2 of 3 \(first: 1\) are NaN"),
        ([1, 1, np.inf], [1], r"is infinite\. An infinite weight says"),
        (
            [1, 1, 1],
            [1, np.inf],
            r"^new_weights must be finite.*calibration rows cannot be like "
            r"it",
        ),
        (
            [1, 1, 1],
            [1, 0],
            r"^new_weights: 1 of 2 \(first: 1\) is 0, which says that there can "
            r"be no such new row",
        ),
        ([1, 1, 1], [[1, 0], [0, 0]], r"^new_weights: 1 of 2 \(first: 1\) is 0"),
        ([1, 1, 1], [[1, -1]], r"1 of 2 \(first: 0, 1\) is negative"),
        ([1, 1, 1], 1.0, r"shape \(m,\), \(m, 1\), \(m, K\) or \(1, K\), got \(\)"),
        (["a", "b", "c"], [1], "weights must be real numbers"),
    ],
)
def test_bad_weights_get_one_sentence(weights, new, words):
    with pytest.raises(ValueError, match=words):
        weighted_conformal([1.0, 2.0, 3.0], weights, new, alpha=0.5)


@pytest.mark.parametrize(
    ("scores", "groups", "alpha", "message"),
    [
        ([1.0, np.nan], [0, 1], 0.5, "are NaN"),
        ([1.0, 2.0], [0, 1], 1.5, "alpha must be"),
        ([1.0, 2.0], [0, 1, 2], 0.5, "2 scores and 3 group labels"),
        ([1.0, 2.0], [0, None], 0.5, "groups is missing for 1 rows"),
    ],
)
def test_bad_scores_levels_and_groups_are_refused(scores, groups, alpha, message):
    with pytest.raises(ValueError, match=message):
        grouped_conformal(scores, groups, alpha=alpha)
    if len(groups) == 2 and groups[1]:
        with pytest.raises(NonFiniteScoreError if "NaN" in message else ValueError, match=message):
            weighted_conformal(scores, [1, 1], [1], alpha=alpha)


def test_a_label_that_new_rows_never_have_may_have_weight_0():
    scores, weights = [1.0, 2.0, 3.0, 4.0], [1.0, 0.0, 2.0, 1.0]
    found = weighted_conformal(scores, weights, [[2.0, 0.0]], alpha=0.5)
    assert found.values.tolist() == [
        [by_definition(scores, weights, own, 0.5) for own in (2.0, 0.0)]
    ]


def test_a_row_that_only_large_groups_have_is_not_promised():
    """Rows of a group are alike: 17 groups of one row score 0, and the two of ten rows, the only
    ones with a second, 1.
    """
    labels = np.r_[np.arange(17), np.repeat([17, 18], 10)]
    value = grouped_conformal((labels >= 17) * 1.0, labels, alpha=0.2).value
    assert value == 0
    first = np.unique(labels, return_index=True)[1]
    assert np.mean((labels >= 17)[first] <= value) == 17 / 19
    assert not np.any((labels >= 17)[first[17:] + 1] <= value)


def test_the_work_in_python_is_not_for_each_row(lines_run):
    """Every new row falls on a running sum exactly; one row is decided in integers, and no loop
    goes over new rows.
    """
    rng, n, few = np.random.default_rng(0), 200_000, 9_999
    scores, groups = rng.normal(size=n), rng.geometric(0.0005, size=n)
    lines_run(lambda: grouped_conformal(scores, groups, alpha=0.1), at_most=n)
    equal, new = np.full(few, 0.1), np.full(n, 0.1)
    lines_run(lambda: weighted_conformal(np.arange(few), equal, new, alpha=0.1), at_most=100_000)


def test_one_row_of_each_group_evenly_and_by_seed():
    """4,000 draws from groups of 1, 2 and 4 rows: each row of a group equally often, within 5
    standard errors.
    """
    groups = np.array(["c", "b", "a", "b", "c", "c", "c"])
    counts = np.zeros(7)
    for seed in range(4_000):
        rows = one_row_per_group(groups, seed=seed)
        assert sorted(groups[rows]) == ["a", "b", "c"]
        assert (np.diff(rows) > 0).all()
        counts[rows] += 1
    share = np.array([{"a": 1.0, "b": 0.5, "c": 0.25}[g] for g in groups])
    assert (np.abs(counts / 4_000 - share) <= 5 * np.sqrt(share * (1 - share) / 4_000)).all()
    assert one_row_per_group(groups, seed=3).tolist() == one_row_per_group(groups, seed=3).tolist()
