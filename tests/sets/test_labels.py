"""Label sets: a matrix of members, labels of every kind, and what is refused."""

import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dco import ClassProbabilities, LabelSets
from dco.scores import LAC
from dco.sets.labels import codes_of

DENSE = np.array([[True, False, True], [False, False, False], [True, True, True]])
ANIMALS = ["cat", "ant", "dog"]


@settings(max_examples=60)
@given(hnp.arrays(bool, st.tuples(st.integers(0, 6), st.integers(1, 5))), st.data())
def test_sets_say_what_the_matrix_says(members, data):
    sets = LabelSets(members)
    n, k = members.shape
    y = data.draw(hnp.arrays(np.int64, n, elements=st.integers(0, k - 1)))
    assert len(sets) == n
    assert np.array_equal(sets.to_dense(), members)
    assert np.array_equal(sets.sizes(), members.sum(axis=1))
    assert np.array_equal(sets.contains(y), members[np.arange(n), y])
    assert np.array_equal(sets.is_empty(), ~members.any(axis=1))
    assert np.array_equal(sets.is_full(), members.all(axis=1))
    assert np.array_equal(sets.has_one_label(), members.sum(axis=1) == 1)
    assert sets.to_lists() == [np.flatnonzero(row).tolist() for row in members]
    assert [sets[row].tolist() for row in range(n)] == sets.to_lists()


def test_sets_may_be_made_from_nested_lists():
    assert LabelSets([[1, 0], [0, 0]], ["a", "b"]).to_lists() == [["a"], []]


def test_sets_speak_the_labels_of_their_classes():
    sets = LabelSets(DENSE, ANIMALS)
    assert sets.to_lists() == [["cat", "dog"], [], ["cat", "ant", "dog"]]
    assert sets.contains(["dog", "dog", "ant"]).tolist() == [True, False, True]
    assert sets[-1].tolist() == ["cat", "ant", "dog"]


def test_a_label_that_is_not_among_the_classes_is_in_no_set():
    sets = LabelSets(DENSE, ANIMALS)
    y = ["a label never heard of", "cat", "cat"]
    assert sets.contains(y).tolist() == [False, False, True]
    assert sets.knows(y).tolist() == [False, True, True]
    assert LabelSets(DENSE).knows([-1, 3, 0]).tolist() == [False, False, True]
    assert LabelSets(DENSE).contains([-1, 3, 0]).tolist() == [False, False, True]


def test_labels_of_several_kinds_keep_their_kinds():
    """NumPy would turn the number 1 into the text "1"."""
    sets = LabelSets(DENSE, ["one", 1, None])
    assert sets.to_lists()[2] == ["one", 1, None]
    assert sets.contains([None, 1, 1]).tolist() == [True, False, True]
    assert sets.contains([None, 1, "1"]).tolist() == [True, False, False]


def test_the_sets_of_a_record_keep_the_kinds_of_its_labels():
    record = ClassProbabilities([[0.5, 0.3, 0.2]], classes=["one", 1, None])
    assert LAC().sets(record, 0.75).to_lists() == [["one", 1]]


@pytest.mark.parametrize(
    ("y", "classes", "expected"),
    [
        (np.array([0, 1]), np.array(["0", "1"]), [-1, -1]),
        (np.array(["x", 3, None], dtype=object), np.array(["x", "y"]), [0, -1, -1]),
        (np.array([2.0, 2.5]), np.array([1, 2]), [1, -1]),
    ],
    ids=["text and numbers", "several kinds", "floats"],
)
def test_a_label_of_another_kind_than_the_classes_is_not_among_them(y, classes, expected):
    assert codes_of(y, classes).tolist() == expected


@pytest.mark.parametrize("classes", [[3, 4, 5], [5, 3, 4], [-128, -127, -126], [7]])
@pytest.mark.parametrize("kind", [np.int8, np.int64])
def test_whole_numbers_in_a_row_have_the_places_that_a_search_finds(classes, kind):
    """From the ends of int8 too, where differences would wrap."""
    y = np.arange(-128, 128).astype(kind)
    expected = [classes.index(label) if label in classes else -1 for label in y.tolist()]
    assert codes_of(y, np.array(classes, dtype=np.int8)).tolist() == expected


@pytest.mark.parametrize(
    "y", [[0.7, 1.2, 2.0], ["0", "1", "2"], [np.nan, 1, 2], [True, False, True]]
)
def test_numbered_sets_refuse_what_is_not_a_whole_number(y):
    """A cast would turn 0.7 into label 0 without a word."""
    with pytest.raises(ValueError, match=r"label numbers 0\.\.2"):
        LabelSets(DENSE).contains(y)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LabelSets([True]), r"\(n, K\) matrix, got shape \(1,\)"),
        (lambda: LabelSets(DENSE, ["a", "b"]), "each of the 3 labels"),
        (lambda: LabelSets(DENSE).contains([0, 1]), "each of the 3 rows"),
        (lambda: LabelSets(DENSE, ANIMALS).knows("cat"), "each of the 3 rows"),
    ],
    ids=["one dimension", "two names", "two labels", "one label"],
)
def test_bad_input_gets_one_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_another_order_of_labels_holds_the_same_labels():
    rng = np.random.default_rng(0)
    members = rng.random((40, 4)) < 0.5
    sets = LabelSets(members, classes=["a", "c", "d", "b"])
    ordered = sets.in_order(["a", "b", "c", "d"])
    assert np.array_equal(ordered.to_dense(), members[:, [0, 3, 1, 2]])
    assert ordered.to_lists() == [sorted(row) for row in sets.to_lists()]
    assert sets.with_sorted_labels().to_lists() == ordered.to_lists()
    assert ordered.in_order(["a", "b", "c", "d"]) is ordered


def test_numbered_labels_may_be_put_in_another_order():
    assert LabelSets(DENSE).in_order([2, 1, 0]).to_lists() == [[2, 0], [], [2, 1, 0]]


@pytest.mark.parametrize(
    "wrong", [["cat", "dog"], ["cat", "dog", "dog"], ["cat", "dog", "emu"]], ids=str
)
def test_another_order_names_the_same_labels(wrong):
    with pytest.raises(ValueError, match="3 labels of these sets"):
        LabelSets(DENSE, ANIMALS).in_order(wrong)


def test_a_frame_has_a_row_per_set():
    frame = LabelSets(DENSE, ANIMALS).to_frame(index=["x", "y", "z"])
    assert frame.loc["x", "set"] == ["cat", "dog"]
    assert frame["size"].tolist() == [2, 0, 3]


def test_printed_sets_are_one_short_line():
    assert repr(LabelSets(DENSE, ANIMALS)) == (
        "LabelSets(3 rows of 3 labels, mean size 1.667, 1 empty: {cat, dog}, {}, {cat, ant, dog})"
    )
    assert str(LabelSets(np.ones((0, 2), dtype=bool))) == "LabelSets(0 rows of 2 labels)"


def test_large_sets_are_printed_with_their_first_labels():
    names = [f"a long name of label {code}" for code in range(1000)]
    text = str(LabelSets(np.ones((1000, 1000), dtype=bool), names))
    assert len(text) < 500
    assert text.endswith(", ...)")


def test_sets_are_pickled():
    again = pickle.loads(pickle.dumps(LabelSets(DENSE, ANIMALS)))
    assert again.to_lists() == LabelSets(DENSE, ANIMALS).to_lists()


def test_methods_make_no_second_matrix():
    """The matrix takes one byte for each row and label; answers about it take little more."""
    members = np.zeros((20_000, 1000), dtype=bool)
    members[:, :3] = True
    sets = LabelSets(members)
    y = np.zeros(20_000, dtype=int)
    tracemalloc.start()
    assert sets.sizes().sum() == 60_000
    assert sets.contains(y).all()
    assert not sets.is_full().any()
    assert len(sets.to_lists()) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < members.nbytes / 2
