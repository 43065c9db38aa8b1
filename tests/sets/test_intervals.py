"""Sets of numbers: intervals, and unions of intervals."""

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


@pytest.fixture
def intervals() -> Intervals:
    """Rows: two of [0, 1], one whose ends cross, the whole line."""
    return Intervals([0.0, 0.0, 2.0, -np.inf], [1.0, 1.0, 1.0, np.inf])


def test_an_interval_holds_its_ends_and_a_crossed_one_holds_nothing(intervals):
    assert intervals.contains([0.0, 1.0, 1.5, 1e300]).tolist() == [True, True, False, True]
    assert intervals.is_empty().tolist() == [False, False, True, False]


def test_the_size_of_an_interval_is_its_length(intervals):
    assert len(intervals) == 4
    assert intervals.sizes().tolist() == [1.0, 1.0, 0.0, np.inf]
    assert intervals.is_infinite().tolist() == [False, False, False, True]


def test_the_size_of_a_union_is_that_of_its_pieces():
    sets = unions()
    assert sets.sizes().tolist() == [3.0, 0.0, np.inf, 0.0]
    assert sets.is_empty().tolist() == [False, True, False, False]
    assert sets.is_infinite().tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("row", "pieces"),
    [(0, [[-3.0, -1.0], [1.0, 2.0]]), (1, []), (-1, [[5.0, 5.0]])],
    ids=["two pieces", "no piece", "from the end"],
)
def test_pieces_of_a_row_are_pairs_of_ends(row, pieces):
    assert unions().pieces(row).shape == (len(pieces), 2)
    assert unions().pieces(row).tolist() == pieces


def test_a_row_that_is_not_there_has_no_pieces():
    with pytest.raises(IndexError):
        unions().pieces(4)


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        ([-2.0, 0.0, 0.0, 5.0], [True, False, True, True]),
        ([0.0, 0.0, 1e308, 4.0], [False, False, True, False]),
        ([1.0, 0.0, -np.inf, 6.0], [True, False, True, False]),
        ([np.nan] * 4, [False] * 4),
    ],
    ids=["inside", "between pieces", "at ends", "nan"],
)
def test_a_union_leaves_its_gaps_out(y, expected):
    assert unions().contains(y).tolist() == expected


def test_the_hull_spans_the_pieces_and_stays_empty_where_there_are_none():
    hull = unions().hull()
    np.testing.assert_array_equal(hull.lower, [-3.0, np.inf, -np.inf, 5.0])
    np.testing.assert_array_equal(hull.upper, [2.0, -np.inf, np.inf, 5.0])
    np.testing.assert_array_equal(hull.is_empty(), [False, True, False, False])
    np.testing.assert_array_equal(hull.sizes(), [5.0, 0.0, np.inf, 0.0])


def is_odd(y):
    return np.asarray(y) % 2 == 1


@pytest.mark.parametrize(
    "sets",
    [Intervals([0, 0], [0, 0], is_odd), IntervalUnions([0, 0, 0], [], [], is_odd)],
    ids=["intervals", "unions"],
)
def test_a_rule_decides_membership_where_there_is_one(sets):
    assert sets.contains([1.0, 2.0]).tolist() == [True, False]


@pytest.mark.parametrize(
    "sets",
    [Intervals([-1.7e308], [1.7e308]), IntervalUnions([0, 1], [-1.7e308], [1.7e308])],
    ids=["intervals", "unions"],
)
def test_lengths_beyond_the_largest_float_are_infinite(sets):
    assert sets.is_infinite().all()


def test_no_rows_are_no_trouble():
    empty = IntervalUnions([0], [], [])
    assert len(empty) == 0
    assert empty.sizes().shape == (0,)
    assert empty.contains([]).shape == (0,)
    assert empty.hull().lower.shape == (0,)


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


def test_frames_of_unions_show_pieces_and_sizes():
    pytest.importorskip("pandas")
    frame = unions().to_frame(index=list("abcd"))
    assert frame.loc["a", "pieces"] == [(-3.0, -1.0), (1.0, 2.0)]
    assert frame["size"].tolist() == [3.0, 0.0, np.inf, 0.0]


def test_frames_of_intervals_show_ends_and_sizes():
    pytest.importorskip("pandas")
    frame = Intervals([0.0], [2.0]).to_frame()
    assert frame.to_dict("records") == [{"lower": 0.0, "upper": 2.0, "size": 2.0}]


def pieces_between(ends):
    """Sort an even number of distinct ends into pieces, a row of two ends each."""
    n_pieces = len(ends) // 2
    return np.sort(ends[: 2 * n_pieces]).reshape(-1, 2).astype(float)


def union_of(pieces):
    """Make the unions of lists of pieces, one list a row."""
    pointers = np.cumsum([0, *(len(of_row) for of_row in pieces)])
    lower, upper = np.concatenate(pieces).T
    return IntervalUnions(pointers, lower, upper)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    st.lists(st.lists(st.integers(-20, 20), max_size=8, unique=True), min_size=1, max_size=6),
    st.integers(-21, 21),
)
def test_a_union_agrees_with_its_pieces_one_by_one(rows, value):
    """Membership and length follow from the pieces."""
    pieces = [pieces_between(ends) for ends in rows]
    sets = union_of(pieces)
    is_inside = [np.any((p[:, 0] <= value) & (value <= p[:, 1])) for p in pieces]
    lengths = [np.sum(p[:, 1] - p[:, 0]) for p in pieces]
    np.testing.assert_array_equal(sets.contains(np.full(len(rows), float(value))), is_inside)
    np.testing.assert_allclose(sets.sizes(), lengths)


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        (
            Intervals([0.0, 1.0, -np.inf], [1.23456, 0.0, np.inf]),
            "Intervals(3 rows, mean size inf, 1 empty: [0, 1.235], {}, [-inf, inf])",
        ),
        (
            Intervals(np.zeros(10_000), np.ones(10_000), member=lambda y: y > 0),
            "Intervals(10000 rows, mean size 1, 0 empty: [0, 1], [0, 1], [0, 1], ...)",
        ),
        (
            IntervalUnions([0, 2, 2], [0.0, 2.0], [1.0, 3.5]),
            "IntervalUnions(2 rows, mean size 1.25, 1 empty: [0, 1] or [2, 3.5], {})",
        ),
        (Intervals([], []), "Intervals(0 rows)"),
    ],
    ids=["few", "many", "unions", "none"],
)
def test_printed_sets_are_one_short_line(sets, text):
    assert repr(sets) == text
    assert str(sets) == text


def test_responses_are_rounded_to_float64_before_they_are_compared():
    """As a number a little above 1 in extended precision is 1 in double precision."""
    barely_above = np.array([1 + np.finfo(np.longdouble).eps], dtype=np.longdouble)
    sets = Intervals([0.0], [1.0])
    assert sets.contains(barely_above) == sets.contains(barely_above.astype(float))


# --- sets of a function of y ----------------------------------------------------------------------

LARGEST = np.finfo(float).max


@pytest.fixture
def logs() -> Intervals:
    """Intervals of log y: at one point, wide, empty, infinite, overflowing, and below all y."""
    lower = np.log([0.1, 1.0, 5.0, 3.0, LARGEST])
    upper = np.array([lower[0], 2.0, -9.0, np.inf, 800.0])
    return Intervals([*lower, -np.inf], [*upper, 0.0])


def test_mapped_sets_hold_what_the_sets_held(logs):
    """exp(log(0.1)) is above 0.1, which must stay inside."""
    y = np.array([0.1, 1.0, 5.0, 3.0, LARGEST, 0.0])
    mapped = logs.mapped(np.exp, np.log)
    assert mapped.contains(y).tolist() == [True, True, False, True, True, True]
    assert ((mapped.lower <= y) & (y <= mapped.upper)).tolist() == mapped.contains(y).tolist()
    assert not mapped.contains(np.full(6, -1.0)).any()


def test_mapped_sets_are_empty_where_the_sets_were(logs):
    expected = [False, False, True, False, False, False]
    assert logs.is_empty().tolist() == expected
    assert logs.mapped(np.exp, np.log).is_empty().tolist() == expected


def test_ends_are_mapped(logs):
    """Infinite and overflowing ones are infinite."""
    mapped = logs.mapped(np.exp, np.log)
    np.testing.assert_allclose(mapped.upper[[0, 1]], [0.1, np.exp(2)], rtol=1e-15)
    assert mapped.upper[[3, 4]].tolist() == [np.inf, np.inf]
    assert mapped.lower[5] == 0


def test_mapped_sets_can_be_stored(logs):
    y = np.array([0.1, 1.0, 5.0, 3.0, LARGEST, 0.0])
    mapped = logs.mapped(np.exp, np.log)
    again = pickle.loads(pickle.dumps(mapped))
    np.testing.assert_array_equal(again.contains(y), mapped.contains(y))


def test_sets_are_mapped_by_increasing_functions_alone():
    with pytest.raises(ValueError, match="function must be increasing"):
        Intervals([0.0], [1.0]).mapped(np.negative, np.negative)


def test_frames_of_single_precision_are_printed_in_full():
    """float32 prints 0.1 for 0.100000001490116, and read as float64 that is another number, on the
    inner side.
    """
    upper = np.float32(0.1)
    text = Intervals(np.float32([0.0]), upper[None]).to_frame().to_csv(index=False)
    cell = text.splitlines()[1].split(",")[1]
    assert float(cell) == float(upper)
    assert float(cell) > 0.1


# --- sets cut to where y can lie ------------------------------------------------------------------


@pytest.fixture
def cut_intervals() -> Intervals:
    """Intervals cut to [0, 1.5]: across 0, below, across 1.5, the whole line, crossed, to 0."""
    sets = Intervals([-2.0, -3.0, 1.0, -np.inf, 2.0, -1.0], [1.0, -1.0, 2.0, np.inf, 1.0, 0.0])
    return sets.clip(0, 1.5)


def test_intervals_are_cut_and_those_wholly_outside_are_empty(cut_intervals):
    assert cut_intervals.is_empty().tolist() == [False, True, False, False, True, False]
    assert cut_intervals.sizes().tolist() == [1.0, 0.0, 0.5, 1.5, 0.0, 0.0]


def test_cut_intervals_hold_nothing_beyond_the_limits(cut_intervals):
    is_inside = cut_intervals.contains([-1, -2, 1.5, 1.6, 1.5, 0])
    assert is_inside.tolist() == [False, False, True, False, False, True]


def test_unions_lose_the_pieces_outside():
    sets = IntervalUnions([0, 2, 2, 3, 5], [-3, 1, -np.inf, -2, 4], [-1, 2, np.inf, 3, 5])
    cut = sets.clip(lower=0, upper=[9, 9, 9, 4])
    assert list(cut) == [[(1, 2)], [], [(0, 9)], [(0, 3), (4, 4)]]


def test_unions_without_a_piece_inside_are_empty():
    assert IntervalUnions([0, 1, 1], [-3], [-1]).clip(0).is_empty().all()


@settings(derandomize=True, deadline=None, max_examples=50)
@given(
    st.lists(st.lists(st.integers(-9, 9), max_size=6, unique=True), min_size=1, max_size=4),
    st.data(),
)
def test_a_cut_set_holds_what_the_set_held_between_the_limits(rows, data):
    unions = union_of([pieces_between(ends) for ends in rows])
    limits = data.draw(st.tuples(st.integers(-10, 10), st.integers(-10, 10)))
    low, high = sorted(limits)
    for sets in (unions, unions.hull()):
        cut = sets.clip(low, high)
        for value in np.arange(-11, 11.5, 0.5):  # every end, and between ends
            y = np.full(len(rows), value)
            expected = sets.contains(y) & (low <= value <= high)
            np.testing.assert_array_equal(cut.contains(y), expected)


@pytest.fixture(params=["by the score", "by the ends"])
def sets_of_positive_targets(request):
    """Positive targets, and sets of which many reach below 0."""
    rng = np.random.default_rng(0)
    y = np.exp(rng.normal(size=500))
    sets = AbsoluteResidual().sets(Points(np.exp(rng.normal(size=500))), 1.5)
    if request.param == "by the ends":
        sets = Intervals(sets.lower, sets.upper)
    assert (sets.lower < 0).mean() > 0.3
    return sets, y


def test_coverage_of_a_positive_target_is_kept_to_the_last_bit(sets_of_positive_targets):
    sets, y = sets_of_positive_targets
    np.testing.assert_array_equal(sets.clip(lower=0).contains(y), sets.contains(y))


def test_sets_of_a_positive_target_shrink(sets_of_positive_targets):
    sets, _ = sets_of_positive_targets
    cut = sets.clip(lower=0)
    assert cut.lower.min() == 0
    assert cut.sizes().mean() < sets.sizes().mean()
    assert not cut.contains(np.full(500, -1e-9)).any()


@pytest.fixture
def density_sets() -> IntervalUnions:
    """Sets of a predictive density in 30 rows, which decide membership by the density."""
    means = 3 * np.random.default_rng(1).normal(size=(30, 4))
    mixtures = GaussianMixtures(means, np.full((30, 4), 0.4), draws_first=False)
    return PredictiveDensity().sets(mixtures, 3.0)


@pytest.fixture(params=["upper ends", "0", "2", "2.5", "anywhere"])
def density_y(request, density_sets):
    """A number for each of these sets."""
    return {
        "upper ends": density_sets.hull().upper,
        "0": np.zeros(30),
        "2": np.full(30, 2.0),
        "2.5": np.full(30, 2.5),
        "anywhere": 3 * np.random.default_rng(2).normal(size=30),
    }[request.param]


def test_a_union_made_by_a_score_keeps_its_rule(density_sets, density_y):
    cut = pickle.loads(pickle.dumps(density_sets.clip(0, 2)))
    is_between = (density_y >= 0) & (density_y <= 2)
    expected = density_sets.contains(density_y) & is_between
    np.testing.assert_array_equal(cut.contains(density_y), expected)


def test_some_rows_of_a_union_keep_its_rule(density_sets, density_y):
    cut = density_sets.clip(0, 2)
    np.testing.assert_array_equal(
        cut[5:20].contains(density_y[5:20]), cut.contains(density_y)[5:20]
    )


def test_limits_belong_to_a_cut_union(density_sets):
    cut = density_sets.clip(0, 2)
    assert cut.contains(np.zeros(30)).any()
    assert cut.contains(np.full(30, 2.0)).any()
    assert density_sets.contains(np.full(30, 2.5)).any()


def test_limits_are_not_rounded_to_the_precision_of_the_ends():
    narrow = Intervals(np.zeros(1, np.float32), np.ones(1, np.float32)).clip(lower=0.1)
    assert narrow.contains([0.1]).all()
    assert narrow.lower[0] == 0.1


@pytest.mark.parametrize("limits", [(), (None, None), (-np.inf, np.inf)], ids=str)
def test_no_limit_changes_nothing(limits):
    sets = Intervals([-1.0, 2.0], [1.0, 1.0])
    np.testing.assert_array_equal(np.asarray(sets.clip(*limits)), np.asarray(sets))


def test_no_rows_can_be_cut():
    assert len(Intervals([], []).clip(0)) == 0


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
@pytest.mark.parametrize(
    "sets",
    [Intervals([0.0, 0.0], [1.0, 1.0]), IntervalUnions([0, 1, 2], [0.0, 0.0], [1.0, 1.0])],
    ids=["intervals", "unions"],
)
def test_bad_limits_get_one_sentence(limits, words, sets):
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
