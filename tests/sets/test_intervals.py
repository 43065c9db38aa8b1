import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dco import GaussianMixtures, Points
from dco.scores import AbsoluteResidual, PredictiveDensity
from dco.sets import Intervals, IntervalUnions, PredictionSets


def unions() -> IntervalUnions:
    """Rows: two pieces, none, the whole line, one point."""
    return IntervalUnions(
        np.array([0, 2, 2, 3, 4]),
        np.array([-3.0, 1.0, -np.inf, 5.0]),
        np.array([-1.0, 2.0, np.inf, 5.0]),
    )


def test_both_kinds_are_prediction_sets():
    assert isinstance(Intervals(np.zeros(1), np.ones(1)), PredictionSets)
    assert isinstance(unions(), PredictionSets)


def test_an_interval_holds_its_ends_and_a_crossed_one_holds_nothing():
    sets = Intervals(np.array([0.0, 0.0, 2.0, -np.inf]), np.array([1.0, 1.0, 1.0, np.inf]))
    np.testing.assert_array_equal(sets.contains([0.0, 1.0, 1.5, 1e300]), [True, True, False, True])
    np.testing.assert_array_equal(sets.sizes(), [1.0, 1.0, 0.0, np.inf])
    np.testing.assert_array_equal(sets.is_empty(), [False, False, True, False])
    np.testing.assert_array_equal(sets.is_infinite(), [False, False, False, True])
    assert len(sets) == 4


def test_a_union_counts_each_piece():
    sets = unions()
    np.testing.assert_array_equal(sets.sizes(), [3.0, 0.0, np.inf, 0.0])
    np.testing.assert_array_equal(sets.is_empty(), [False, True, False, False])
    np.testing.assert_array_equal(sets.is_infinite(), [False, False, True, False])
    np.testing.assert_array_equal(sets.pieces(0), [[-3.0, -1.0], [1.0, 2.0]])
    np.testing.assert_array_equal(sets.pieces(-1), [[5.0, 5.0]])
    assert sets.pieces(1).shape == (0, 2)
    with pytest.raises(IndexError):
        sets.pieces(4)


def test_a_union_leaves_its_gaps_out():
    sets = unions()
    for y, expected in [
        ([-2.0, 0.0, 0.0, 5.0], [True, False, True, True]),
        ([0.0, 0.0, 1e308, 4.0], [False, False, True, False]),
        ([1.0, 0.0, -np.inf, 6.0], [True, False, True, False]),
        ([np.nan] * 4, [False] * 4),
    ]:
        np.testing.assert_array_equal(sets.contains(y), expected)


def test_the_hull_spans_the_pieces_and_stays_empty_where_there_are_none():
    hull = unions().hull()
    np.testing.assert_array_equal(hull.lower, [-3.0, np.inf, -np.inf, 5.0])
    np.testing.assert_array_equal(hull.upper, [2.0, -np.inf, np.inf, 5.0])
    np.testing.assert_array_equal(hull.is_empty(), [False, True, False, False])
    np.testing.assert_array_equal(hull.sizes(), [5.0, 0.0, np.inf, 0.0])


def test_a_given_rule_decides_membership_for_both_kinds():
    def odd(y):
        return np.asarray(y) % 2 == 1

    y = np.array([1.0, 2.0])
    assert Intervals(np.zeros(2), np.zeros(2), odd).contains(y).tolist() == [True, False]
    assert IntervalUnions(np.zeros(3, dtype=int), np.zeros(0), np.zeros(0), odd).contains(
        y
    ).tolist() == [True, False]


def test_lengths_beyond_the_largest_float_are_infinite():
    big = np.array([1.7e308])
    assert Intervals(-big, big).is_infinite().all()
    assert IntervalUnions(np.array([0, 1]), -big, big).is_infinite().all()


def test_no_rows_are_no_trouble():
    empty = IntervalUnions(np.zeros(1, dtype=int), np.zeros(0), np.zeros(0))
    assert len(empty) == 0
    assert empty.sizes().shape == empty.contains([]).shape == empty.hull().lower.shape == (0,)


@pytest.mark.parametrize("sets", [Intervals(np.zeros(3), np.ones(3)), unions()])
def test_a_wrong_number_of_responses_is_refused(sets):
    with pytest.raises(ValueError, match="one number for each"):
        sets.contains([0.0, 1.0])


def test_lists_and_whole_numbers_are_taken():
    sets = Intervals([0, 2], [1, 1])
    assert sets.sizes().tolist() == [1.0, 0.0]
    assert sets.contains([0.5, 1.5]).tolist() == [True, False]
    assert IntervalUnions([0, 2, 2], [0, 2], [1, 3]).sizes().tolist() == [2.0, 0.0]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Intervals(np.zeros(2), np.zeros(3)), r"shapes \(2,\) and \(3,\)"),
        (lambda: Intervals(np.zeros((2, 1)), np.zeros((2, 1))), "one number per interval"),
        (lambda: Intervals([0.0, np.nan], [1.0, 1.0]), "lower is NaN in place 1"),
        (lambda: Intervals(["a"], ["b"]), "real numbers"),
        (lambda: Intervals([0.0], [1.0]).contains(["a"]), "y must be real numbers"),
        (lambda: IntervalUnions([0, 5], [0.0], [1.0]), "number of intervals, 1"),
        (lambda: IntervalUnions([], [], []), "row_pointers"),
    ],
)
def test_bad_input_gets_one_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_frames_show_ends_pieces_and_sizes():
    pytest.importorskip("pandas")
    frame = unions().to_frame(index=list("abcd"))
    assert frame.loc["a", "pieces"] == [(-3.0, -1.0), (1.0, 2.0)]
    assert frame["size"].tolist() == [3.0, 0.0, np.inf, 0.0]
    plain = Intervals(np.array([0.0]), np.array([2.0])).to_frame()
    assert plain.to_dict("records") == [{"lower": 0.0, "upper": 2.0, "size": 2.0}]


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    st.lists(st.lists(st.integers(-20, 20), max_size=8, unique=True), min_size=1, max_size=6),
    st.integers(-21, 21),
)
def test_a_union_agrees_with_its_pieces_one_by_one(rows, value):
    """Any even number of distinct ends, sorted, is a union; membership and length follow from the
    pieces.
    """
    pieces = [np.sort(ends[: len(ends) // 2 * 2]).reshape(-1, 2).astype(float) for ends in rows]
    pointers = np.concatenate([[0], np.cumsum([len(p) for p in pieces])])
    flat = np.concatenate(pieces)
    sets = IntervalUnions(pointers, flat[:, 0], flat[:, 1])
    np.testing.assert_array_equal(
        sets.contains(np.full(len(rows), float(value))),
        [bool(np.any((p[:, 0] <= value) & (value <= p[:, 1]))) for p in pieces],
    )
    np.testing.assert_allclose(sets.sizes(), [np.sum(p[:, 1] - p[:, 0]) for p in pieces])


def test_printed_sets_are_one_short_line():
    inf = np.inf
    few = Intervals(np.array([0.0, 1.0, -inf]), np.array([1.23456, 0.0, inf]))
    assert repr(few) == "Intervals(3 rows, mean size inf, 1 empty: [0, 1.235], {}, [-inf, inf])"
    many = Intervals(np.zeros(10_000), np.ones(10_000), member=lambda y: y > 0)
    assert str(many) == "Intervals(10000 rows, mean size 1, 0 empty: [0, 1], [0, 1], [0, 1], ...)"
    unions = IntervalUnions(np.array([0, 2, 2]), np.array([0.0, 2.0]), np.array([1.0, 3.5]))
    assert str(unions) == "IntervalUnions(2 rows, mean size 1.25, 1 empty: [0, 1] or [2, 3.5], {})"
    assert str(Intervals(np.zeros(0), np.zeros(0))) == "Intervals(0 rows)"


def test_responses_are_rounded_to_float64_before_they_are_compared():
    barely_above = np.array([1 + np.finfo(np.longdouble).eps], dtype=np.longdouble)
    assert Intervals([0.0], [1.0]).contains(barely_above) == Intervals([0.0], [1.0]).contains(
        barely_above.astype(float)
    )


def test_mapped_sets_hold_what_the_sets_held():
    """exp(log(0.1)) is above 0.1, which must stay inside; empty, infinite and overflowing ends stay
    what they are.
    """
    y = np.array([0.1, 1.0, 5.0, 3.0, np.finfo(float).max, 0.0])
    with np.errstate(divide="ignore"):
        ends = np.log(y)
    sets = Intervals(
        ends, np.where(np.arange(6) == 2, -9.0, [ends[0], 2.0, 0.0, np.inf, 800.0, 0.0])
    )
    mapped = sets.mapped(np.exp, np.log)
    assert mapped.contains(y).tolist() == [True, True, False, True, True, True]
    assert (
        mapped.is_empty().tolist()
        == sets.is_empty().tolist()
        == [False, False, True, False, False, False]
    )
    assert np.all((mapped.lower <= y) & (y <= mapped.upper) == mapped.contains(y))
    np.testing.assert_allclose(mapped.upper[[0, 1]], [0.1, np.exp(2)], rtol=1e-15)
    assert (mapped.upper[3], mapped.upper[4], mapped.lower[5]) == (np.inf, np.inf, 0)
    assert not mapped.contains(np.full(6, -1.0)).any()
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(mapped)).contains(y), mapped.contains(y)
    )
    with pytest.raises(ValueError, match="function must be increasing"):
        Intervals([0.0], [1.0]).mapped(np.negative, np.negative)


def test_frames_of_single_precision_are_printed_in_full():
    """float32 prints 0.1 for 0.100000001490116, and read as float64 that is another number, on the
    inner side.
    """
    upper = np.float32([0.1])
    text = Intervals(np.float32([0.0]), upper).to_frame().to_csv(index=False)
    assert float(text.splitlines()[1].split(",")[1]) == float(upper[0]) > 0.1


# --- sets cut to where y can lie


def test_intervals_are_cut_and_those_wholly_outside_are_empty():
    sets = Intervals(
        [-2.0, -3.0, 1.0, -np.inf, 2.0, -1.0], [1.0, -1.0, 2.0, np.inf, 1.0, 0.0]
    ).clip(0, 1.5)
    np.testing.assert_array_equal(sets.is_empty(), [False, True, False, False, True, False])
    np.testing.assert_array_equal(sets.sizes(), [1.0, 0.0, 0.5, 1.5, 0.0, 0.0])
    assert sets.contains([-1, -2, 1.5, 1.6, 1.5, 0]).tolist() == [
        False,
        False,
        True,
        False,
        False,
        True,
    ]


def test_unions_lose_the_pieces_outside():
    sets = IntervalUnions([0, 2, 2, 3, 5], [-3, 1, -np.inf, -2, 4], [-1, 2, np.inf, 3, 5]).clip(
        lower=0, upper=[9, 9, 9, 4]
    )
    assert list(sets) == [[(1, 2)], [], [(0, 9)], [(0, 3), (4, 4)]]
    assert IntervalUnions([0, 1, 1], [-3], [-1]).clip(0).is_empty().all()


@settings(derandomize=True, deadline=None, max_examples=50)
@given(
    st.lists(st.lists(st.integers(-9, 9), max_size=6, unique=True), min_size=1, max_size=4),
    st.data(),
)
def test_a_cut_set_holds_what_the_set_held_between_the_limits(rows, data):
    pieces = [np.sort(ends[: len(ends) // 2 * 2]).reshape(-1, 2) for ends in rows]
    flat = np.concatenate(pieces)
    unions = IntervalUnions(np.cumsum([0, *map(len, pieces)]), flat[:, 0], flat[:, 1])
    low, high = sorted((data.draw(st.integers(-10, 10)), data.draw(st.integers(-10, 10))))
    for sets in (unions, unions.hull()):
        cut = sets.clip(low, high)
        for value in np.arange(-11, 11.5, 0.5):
            y = np.full(len(rows), value)
            np.testing.assert_array_equal(
                cut.contains(y), sets.contains(y) & (low <= value <= high)
            )


def test_coverage_of_a_positive_target_is_kept_and_sizes_shrink():
    """y = exp(z) is never below 0: membership of every y is what it was, to the last bit, by the
    score and by the ends.
    """
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
    sets = PredictiveDensity().sets(
        GaussianMixtures(3 * rng.normal(size=(30, 4)), np.full((30, 4), 0.4), draws_first=False),
        3.0,
    )
    cut = pickle.loads(pickle.dumps(sets.clip(0, 2)))
    assert sets.contains(np.full(30, 2.5)).any()
    for y in (
        sets.hull().upper,
        np.zeros(30),
        np.full(30, 2.0),
        np.full(30, 2.5),
        rng.normal(size=30) * 3,
    ):
        np.testing.assert_array_equal(cut.contains(y), sets.contains(y) & (y >= 0) & (y <= 2))
    assert cut.contains(np.zeros(30)).any()
    assert cut.contains(np.full(30, 2.0)).any()
    some = cut[5:20]
    np.testing.assert_array_equal(some.contains(y[5:20]), cut.contains(y)[5:20])


def test_limits_are_not_rounded_to_the_precision_of_the_ends():
    narrow = Intervals(np.zeros(1, np.float32), np.ones(1, np.float32)).clip(lower=0.1)
    assert narrow.contains([0.1]).all()
    assert narrow.lower[0] == 0.1


def test_no_limit_changes_nothing():
    sets = Intervals([-1.0, 2.0], [1.0, 1.0])
    for same in (sets.clip(), sets.clip(None, None), sets.clip(-np.inf, np.inf)):
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
    for sets in (
        Intervals([0.0, 0.0], [1.0, 1.0]),
        IntervalUnions([0, 1, 2], [0.0, 0.0], [1.0, 1.0]),
    ):
        with pytest.raises(ValueError, match=words):
            sets.clip(*limits)


@pytest.mark.parametrize(
    ("sets", "is_full"),
    [
        (Intervals([-np.inf, -np.inf, 0.0], [np.inf, 1.0, 1.0]), [True, False, False]),
        (
            IntervalUnions([0, 1, 3], [-np.inf, -np.inf, 1.0], [np.inf, 0.0, np.inf]),
            [True, False],
        ),
    ],
    ids=["intervals", "unions"],
)
def test_sets_of_numbers_answer_what_label_sets_answer(sets, is_full):
    assert sets.is_full().tolist() == is_full
    assert sets.knows(np.zeros(len(sets))).all()
    assert not sets.has_one_label().any()
    assert sets.n_classes is None
