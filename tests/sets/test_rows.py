"""Choosing rows of prediction sets: the same for every kind."""

import pickle

import numpy as np
import pytest

from dco import GaussianMixtures, Points
from dco.scores import AbsoluteResidual, PredictiveDensity
from dco.sets import Intervals, IntervalUnions, LabelSets

N = 5
LABELS = LabelSets([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0], [0, 0, 1]], ["cat", "ant", "dog"])
LINE = Intervals([0.0, 1.0, -np.inf, 3.0, 4.0], [1.0, 0.5, np.inf, 3.0, 9.0])
UNIONS = IntervalUnions([0, 2, 2, 3, 4, 6], [-3, 1, -np.inf, 5, 0, 8], [-1, 2, np.inf, 5, 7, 9])
KINDS = {"labels": LABELS, "intervals": LINE, "unions": UNIONS}
KEYS = {
    "slice": slice(1, None),
    "backwards": slice(None, None, -2),
    "none": slice(0, 0),
    "numbers": [3, 0, -1],
    "repeats": np.array([2, 2, 0, 2], dtype=np.uint8),
    "empty list": [],
    "mask": np.array([True, False, True, True, False]),
    "list mask": [False, True, False, False, True],
}


def plain(one):
    return one.tolist() if isinstance(one, np.ndarray) else one


@pytest.mark.parametrize("sets", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_some_rows_are_sets_of_the_same_kind_with_those_rows(sets, key):
    some, rows = (
        sets[key],
        np.arange(N)[np.asarray(key, dtype=int) if isinstance(key, list) and not key else key],
    )
    assert type(some) is type(sets)
    assert len(some) == len(rows)
    assert [plain(one) for one in some] == [plain(sets[int(row)]) for row in rows]
    np.testing.assert_array_equal(some.sizes(), sets.sizes()[rows])
    np.testing.assert_array_equal(some.is_empty(), sets.is_empty()[rows])
    y = (
        np.array(["dog", "dog", "ant", "cat", "dog"])
        if sets is LABELS
        else np.array([0.5, 0.7, 1e300, 5.0, 8.5])
    )
    np.testing.assert_array_equal(some.contains(y[rows]), sets.contains(y)[rows])


@pytest.mark.parametrize("sets", KINDS.values(), ids=KINDS)
def test_one_row_comes_as_plain_python_and_iteration_gives_them_all(sets):
    assert [plain(sets[row]) for row in range(-N, 0)] == [plain(one) for one in sets]
    assert len(list(sets)) == N
    for row in (np.int8(2), np.array(2)):
        assert plain(sets[row]) == plain(sets[2])


def test_what_one_row_looks_like():
    assert LABELS[0].tolist() == ["cat", "dog"]
    assert LINE[0] == (0.0, 1.0)
    assert UNIONS[0] == [(-3.0, -1.0), (1.0, 2.0)]
    assert UNIONS[1] == []
    assert all(type(end) is float for end in LINE[0] + UNIONS[0][0])


@pytest.mark.parametrize("sets", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    ("key", "words"),
    [
        (5, "no row 5: there are 5 rows"),
        (-6, "no row -6"),
        ([0, 7], "no row 7"),
        ([0, 5], "no row 5"),
        ([-6], "no row -6"),
        ([True, False], "a mark for each row: got 2 marks for 5 rows"),
        (1.0, "a number, a slice, a list of numbers or a mask, got 1.0"),
        ("a", "got 'a'"),
        (True, "got True"),
        (None, "got None"),
        ((0, 1), "got \\(0, 1\\)"),
        ([[0, 1]], "got \\[\\[0, 1\\]\\]"),
        ([0.5], "got \\[0.5\\]"),
    ],
)
def test_rows_that_are_not_there_are_told_in_one_sentence(sets, key, words):
    with pytest.raises(IndexError, match=words):
        sets[key]


def scored(rng) -> dict[str, Intervals | IntervalUnions]:
    means = rng.normal(size=(40, 6))
    return {
        "intervals": AbsoluteResidual().sets(Points(means[:, 0]), 0.7),
        "unions": PredictiveDensity().sets(
            GaussianMixtures(4 * means, np.full(means.shape, 0.3), draws_first=False), 3.0
        ),
    }


@pytest.mark.parametrize("kind", ["intervals", "unions"])
def test_the_score_goes_on_deciding_membership_for_some_rows(kind):
    """To the last bit: responses lie on the ends of the sets, where the ends and the score disagree
    for some.
    """
    rng = np.random.default_rng(0)
    sets = scored(rng)[kind]
    ends = sets.upper if kind == "intervals" else sets.hull().upper
    for rows in (rng.permutation(40), rng.integers(40, size=100), rng.integers(40, size=7)):
        some = pickle.loads(pickle.dumps(sets[rows]))
        np.testing.assert_array_equal(some.contains(ends[rows]), sets.contains(ends)[rows])
        np.testing.assert_array_equal(
            some[::-1].contains(ends[rows][::-1]), sets.contains(ends)[rows][::-1]
        )
    assert not sets.contains(ends).all()  # the ends alone would say that every end is in


def test_a_row_chosen_twice_can_be_asked_about_two_values():
    sets = AbsoluteResidual().sets(Points([0.0, 10.0]), 1.0)[[1, 1, 0]]
    assert sets.contains([10.5, 12.0, 0.0]).tolist() == [True, False, True]


def test_intervals_are_an_array_of_their_ends():
    np.testing.assert_array_equal(np.asarray(LINE), np.column_stack([LINE.lower, LINE.upper]))
    assert np.asarray(LINE, dtype=np.float32).dtype == np.float32
    assert (
        np.asarray(Intervals(np.zeros(2, np.float32), np.ones(2, np.float32))).dtype == np.float32
    )
    assert np.asarray(LINE[:0]).shape == (0, 2)
    low, high = np.asarray(LINE[[0, 4]]).T
    assert (low.tolist(), high.tolist()) == ([0.0, 4.0], [1.0, 9.0])
    with pytest.raises(ValueError, match="always a copy"):
        np.asarray(LINE, copy=False)


FULL_ONE_NONE_LABELS = LabelSets([[1, 1], [1, 0], [0, 0]], ["a", "b"])
FULL_ONE_NONE_INTERVALS = Intervals([-np.inf, 0.0, 2.0], [np.inf, 1.0, 1.0])
FULL_TWO_NONE_UNIONS = IntervalUnions([0, 1, 3, 3], [-np.inf, 0.0, 2.0], [np.inf, 1.0, 3.0])


@pytest.mark.parametrize(
    ("sets", "one_label", "known"),
    [
        (FULL_ONE_NONE_LABELS, [False, True, False], [True, True, False]),
        (FULL_ONE_NONE_INTERVALS, [False] * 3, [True] * 3),
        (FULL_TWO_NONE_UNIONS, [False] * 3, [True] * 3),
    ],
    ids=["labels", "intervals", "unions"],
)
def test_sets_answer_for_themselves(sets, one_label, known):
    """Whoever evaluates or prints sets need not ask of which kind they are."""
    assert sets.is_full().tolist() == [True, False, False]
    assert sets.is_empty().tolist() == [False, False, True]
    assert sets.has_one_label().tolist() == one_label
    assert (
        sets.knows(np.array(["a", "b", "c"] if sets.holds_labels else [0.0] * 3)).tolist() == known
    )
    assert sets.with_sorted_labels().sizes().tolist() == sets.sizes().tolist()
    assert list(sets.columns())[-1] == "size"


@pytest.mark.parametrize(
    "sets", [FULL_ONE_NONE_INTERVALS, FULL_TWO_NONE_UNIONS], ids=["intervals", "unions"]
)
def test_sets_on_the_line_give_their_hull_and_their_pieces(sets):
    assert sets.hull().lower[:2].tolist() == [-np.inf, 0.0]
    assert sets.pieces(1).tolist()[0] == [0.0, 1.0]
    assert sets.pieces(2).shape == (0, 2)
