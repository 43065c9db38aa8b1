"""Sets cut to where y can lie."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression

import dco
from dco import GaussianMixtures, Points
from dco.scores import AbsoluteResidual, PredictiveDensity
from dco.sets import Intervals, IntervalUnions

INF = np.inf


def test_intervals_are_cut_and_those_wholly_outside_are_empty():
    sets = Intervals([-2.0, -3.0, 1.0, -INF, 2.0, -1.0], [1.0, -1.0, 2.0, INF, 1.0, 0.0]).clip(0, 1.5)
    np.testing.assert_array_equal(sets.is_empty(), [False, True, False, False, True, False])
    np.testing.assert_array_equal(sets.sizes(), [1.0, 0.0, 0.5, 1.5, 0.0, 0.0])
    assert sets.contains([-1, -2, 1.5, 1.6, 1.5, 0]).tolist() == [False, False, True, False, False, True]


def test_unions_lose_the_pieces_outside():
    sets = IntervalUnions([0, 2, 2, 3, 5], [-3, 1, -INF, -2, 4], [-1, 2, INF, 3, 5]).clip(lower=0, upper=[9, 9, 9, 4])
    assert list(sets) == [[(1, 2)], [], [(0, 9)], [(0, 3), (4, 4)]]
    assert IntervalUnions([0, 1, 1], [-3], [-1]).clip(0).is_empty().all()


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(-9, 9), max_size=6, unique=True), min_size=1, max_size=4), st.data())
def test_a_cut_set_holds_what_the_set_held_between_the_limits(rows, data):
    pieces = [np.sort(ends[: len(ends) // 2 * 2]).reshape(-1, 2) for ends in rows]
    flat = np.concatenate(pieces)
    unions = IntervalUnions(np.cumsum([0, *map(len, pieces)]), flat[:, 0], flat[:, 1])
    low, high = sorted((data.draw(st.integers(-10, 10)), data.draw(st.integers(-10, 10))))
    for sets in (unions, unions.hull()):
        cut = sets.clip(low, high)
        for value in np.arange(-11, 11.5, 0.5):
            y = np.full(len(rows), value)
            np.testing.assert_array_equal(cut.contains(y), sets.contains(y) & (low <= value <= high))


def test_coverage_of_a_positive_target_is_kept_and_sizes_shrink():
    """y = exp(z) is never below 0: membership of every y is what it was, to the last bit, by the score and by the ends."""
    rng = np.random.default_rng(0)
    y = np.exp(rng.normal(size=500))
    mean = np.exp(rng.normal(size=500))
    by_score = AbsoluteResidual().sets(Points(mean), 1.5)
    for sets in (by_score, Intervals(by_score.lower, by_score.upper)):
        cut = sets.clip(lower=0)
        assert (sets.lower < 0).mean() > 0.3
        assert cut.lower.min() == 0
        np.testing.assert_array_equal(cut.contains(y), sets.contains(y))
        assert cut.sizes().mean() < sets.sizes().mean()
        assert not cut.contains(np.full(500, -1e-9)).any()


def test_a_union_made_by_a_score_keeps_its_rule():
    rng = np.random.default_rng(1)
    sets = PredictiveDensity().sets(GaussianMixtures(3 * rng.normal(size=(30, 4)), np.full((30, 4), 0.4)), 3.0)
    cut = pickle.loads(pickle.dumps(sets.clip(0)))
    for y in (sets.hull().upper, rng.normal(size=30) * 3):
        np.testing.assert_array_equal(cut.contains(y), sets.contains(y) & (y >= 0))
    some = cut[5:20]
    np.testing.assert_array_equal(some.contains(y[5:20]), cut.contains(y)[5:20])


def test_limits_are_not_rounded_to_the_precision_of_the_ends():
    narrow = Intervals(np.zeros(1, np.float32), np.ones(1, np.float32)).clip(lower=0.1)
    assert narrow.contains([0.1]).all()
    assert narrow.lower[0] == 0.1


def test_no_limit_changes_nothing():
    sets = Intervals([-1.0, 2.0], [1.0, 1.0])
    for same in (sets.clip(), sets.clip(None, None), sets.clip(-INF, INF)):
        np.testing.assert_array_equal(np.asarray(same), np.asarray(sets))
    assert len(sets[:0].clip(0)) == 0


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ((1, 0), "lower must not exceed upper, got 1 and 0 for row 0"),
        (([0, 5], 3), "got 5 and 3 for row 1"),
        ((np.nan,), "lower must be one number or one for each of the 2 rows"),
        ((0, [1, 2, 3]), "upper must be one number or one for each of the 2 rows"),
        (("0",), "lower must be real numbers"),
    ],
)
def test_bad_limits_get_one_sentence(limits, words):
    for sets in (Intervals([0.0, 0.0], [1.0, 1.0]), IntervalUnions([0, 1, 2], [0.0, 0.0], [1.0, 1.0])):
        with pytest.raises(ValueError, match=words):
            sets.clip(*limits)


def test_the_two_ways_to_a_log_target_keep_coverage():
    """Both cover 90 % or more of new rows but for a deviation of 4 sd; neither reaches below 0."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(6000, 1))
    y = np.exp(X[:, 0] + 0.5 * rng.normal(size=6000))
    new = slice(4000, None)
    logs = dco.DecoupledRegressor(LinearRegression(), alpha=0.1, random_state=0).fit(X[:4000], np.log(y[:4000]))
    on_logs = logs.predict_set(X[new])
    exp = Intervals(np.exp(on_logs.lower), np.exp(on_logs.upper))
    wrapped = TransformedTargetRegressor(LinearRegression(), func=np.log, inverse_func=np.exp)
    plain = dco.DecoupledRegressor(wrapped, alpha=0.1, random_state=0).fit(X[:4000], y[:4000]).predict_set(X[new]).clip(0)
    for sets in (exp, plain):
        assert sets.contains(y[new]).mean() > 0.9 - 4 * np.sqrt(0.09 * (1 / 2000 + 1 / 1000))
        assert sets.lower.min() >= 0
    assert np.median(exp.sizes()) < np.median(plain.sizes())  # narrow where y is small; not narrower on average


def test_the_upper_limit_cuts_sets_whose_score_decides():
    y = np.linspace(-3, 3, 61)
    sets = AbsoluteResidual().sets(Points(np.zeros(61)), 2.0)
    np.testing.assert_array_equal(sets.clip(upper=1).contains(y), sets.contains(y) & (y <= 1))
    np.testing.assert_array_equal(sets.clip(-1, 1).contains(y), np.abs(y) <= 1)
