"""Label sets: compressed storage, labels of every kind, and what is refused."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import dco
from dco import ClassProbabilities, LabelSets
from dco.scores import LAC
from dco.sets.labels import codes_of

DENSE = np.array([[True, False, True], [False, False, False], [True, True, True]])


@settings(derandomize=True, deadline=None, max_examples=60)
@given(hnp.arrays(bool, st.tuples(st.integers(0, 6), st.integers(1, 5))), st.data())
def test_compressed_sets_say_what_the_matrix_says(dense, data):
    sets = LabelSets.from_dense(dense)
    n, k = dense.shape
    y = data.draw(hnp.arrays(np.int64, n, elements=st.integers(0, k - 1)))
    assert len(sets) == n
    assert np.array_equal(sets.to_dense(), dense)
    assert np.array_equal(sets.sizes(), dense.sum(axis=1))
    assert np.array_equal(sets.contains(y), dense[np.arange(n), y])
    assert np.array_equal(sets.is_empty(), ~dense.any(axis=1))
    assert np.array_equal(sets.is_full(), dense.all(axis=1))
    assert sets.to_lists() == [np.flatnonzero(row).tolist() for row in dense]
    assert [sets[row].tolist() for row in range(n)] == sets.to_lists()


def test_sets_speak_the_labels_of_their_classes():
    sets = LabelSets.from_dense(DENSE, ["cat", "ant", "dog"])
    assert sets.to_lists() == [["cat", "dog"], [], ["cat", "ant", "dog"]]
    assert sets.contains(["dog", "dog", "ant"]).tolist() == [True, False, True]
    assert sets.contains(["a label never heard of", "cat", "cat"]).tolist() == [False, False, True]
    assert sets[-1].tolist() == ["cat", "ant", "dog"]


def test_labels_of_several_kinds_keep_their_kinds():
    """NumPy would turn the number 1 into the text "1"."""
    sets = LabelSets.from_dense(DENSE, ["one", 1, None])
    assert sets.to_lists()[2] == ["one", 1, None]
    assert sets.contains([None, 1, 1]).tolist() == [True, False, True]
    assert sets.contains([None, 1, "1"]).tolist() == [True, False, False]
    record = ClassProbabilities([[0.5, 0.3, 0.2]], classes=["one", 1, None])
    assert record.codes([1]).tolist() == [1]
    assert LAC().sets(record, 0.75).to_lists() == [["one", 1]]


def test_a_label_of_another_kind_than_the_classes_is_not_among_them():
    assert codes_of(np.array([0, 1]), np.array(["0", "1"])).tolist() == [-1, -1]
    assert codes_of(np.array(["x", 3, None], dtype=object), np.array(["x", "y"])).tolist() == [
        0,
        -1,
        -1,
    ]
    assert codes_of(np.array([2.0, 2.5]), np.array([1, 2])).tolist() == [1, -1]


@pytest.mark.parametrize("classes", [[3, 4, 5], [5, 3, 4], [-128, -127, -126], [7]])
def test_whole_numbers_in_a_row_have_the_places_that_a_search_finds(classes):
    """From the ends of int8 too, where differences would wrap."""
    for kind in (np.int8, np.int64):
        y = np.arange(-128, 128).astype(kind)
        expected = [classes.index(label) if label in classes else -1 for label in y.tolist()]
        assert codes_of(y, np.array(classes, dtype=np.int8)).tolist() == expected


def test_unseen_labels_of_another_kind_stay_what_they_are():
    record = ClassProbabilities([[0.5, 0.5]], classes=["a", "b"], unseen=[7])
    assert record.labels().tolist() == ["a", "b", 7]
    assert LAC().observed(record, [7]).tolist() == [np.inf]


@pytest.mark.parametrize(
    "y", [[0.7, 1.2, 2.0], ["0", "1", "2"], [np.nan, 1, 2], [True, False, True]]
)
def test_numbered_sets_refuse_what_is_not_a_whole_number(y):
    """A cast would turn 0.7 into label 0 without a word; `observed` refuses the same."""
    sets = LabelSets.from_dense(DENSE)
    with pytest.raises(ValueError, match=r"label numbers 0\.\.2"):
        sets.contains(y)
    with pytest.raises(ValueError, match=r"column numbers 0\.\.2"):
        LAC().observed(ClassProbabilities(np.full((3, 3), 1 / 3)), y)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LabelSets.from_dense([True]), "matrix"),
        (lambda: LabelSets.from_dense(DENSE, ["a", "b"]), "each of the 3 labels"),
        (
            lambda: LabelSets(np.array([0, 2]), np.array([1]), 3),
            "row_pointers must run from 0 to the number of codes, 1",
        ),
        (lambda: LabelSets(np.array([1, 1]), np.array([1]), 3), "row_pointers"),
        (lambda: LabelSets.from_dense(DENSE).contains([0, 1]), "each of the 3 rows"),
        (lambda: ClassProbabilities([[0.5, 0.5]], classes=[np.nan, 1.0]), "distinct labels"),
        (lambda: ClassProbabilities([[0.5, 0.5]], classes=["a", "a"]), "distinct labels"),
        (
            lambda: ClassProbabilities([[0.5, 0.5]], classes=["a", "b"], unseen=["b"]),
            "not among classes",
        ),
    ],
)
def test_bad_input_gets_one_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_another_order_of_labels_holds_the_same_labels():
    rng = np.random.default_rng(0)
    dense = rng.random((40, 4)) < 0.5
    sets = LabelSets.from_dense(dense, classes=["a", "c", "d", "b"])
    ordered = sets.in_order(["a", "b", "c", "d"])
    np.testing.assert_array_equal(ordered.to_dense(), dense[:, [0, 3, 1, 2]])
    assert [sorted(row) for row in sets.to_lists()] == ordered.to_lists()
    assert ordered.codes.dtype == sets.codes.dtype
    assert ordered.in_order(["a", "b", "c", "d"]) is ordered
    assert LabelSets.from_dense(dense).in_order([3, 2, 1, 0]).to_lists() == [
        sorted(row, reverse=True) for row in LabelSets.from_dense(dense).to_lists()
    ]
    for wrong in (["a", "b", "c"], ["a", "b", "c", "c"], ["a", "b", "c", "e"]):
        with pytest.raises(ValueError, match="4 labels of these sets"):
            sets.in_order(wrong)


def test_a_frame_has_a_row_a_set():
    frame = LabelSets.from_dense(DENSE, ["cat", "ant", "dog"]).to_frame(index=["x", "y", "z"])
    assert frame.loc["x", "set"] == ["cat", "dog"]
    assert frame["size"].tolist() == [2, 0, 3]


def test_printed_sets_are_one_short_line():
    sets = LabelSets.from_dense(DENSE, ["cat", "ant", "dog"])
    assert (
        repr(sets)
        == "LabelSets(3 rows of 3 labels, mean size 1.667, 1 empty: {cat, dog}, {}, {cat, ant, "
        "dog})"
    )
    wide = LabelSets.from_dense(
        np.ones((1000, 1000), dtype=bool), [f"a long name of label {code}" for code in range(1000)]
    )
    assert len(str(wide)) < 500
    assert str(wide).endswith(", ...)")
    assert str(LabelSets.from_dense(np.ones((0, 2), dtype=bool))) == "LabelSets(0 rows of 2 labels)"


@pytest.mark.parametrize(
    ("k", "n"),
    [(1, 0), (1, 200), (2, 40_000), (3, 200), (5, 9000), (8, 200), (9, 200), (20, 3000), (64, 200)],
)
def test_sets_held_as_marks_are_the_same_sets(k, n):
    """One bit for each label says what row pointers and codes say, in every method."""
    rng = np.random.default_rng(k)
    members = rng.uniform(size=(n, k)) < rng.uniform(size=(n, 1))
    names = np.array([f"label {j}" for j in range(k)])
    listed = LabelSets.from_dense(members, names)
    marked = LabelSets.of_marks(np.packbits(members, axis=1, bitorder="little").T, k, names)
    y = np.append(names, "another")[rng.integers(k + 1, size=n)]
    for sets in (
        marked,
        pickle.loads(pickle.dumps(marked)),
        marked[::-1][np.arange(n - 1, -1, -1)],
    ):
        assert len(sets) == n
        np.testing.assert_array_equal(sets.to_dense(), members)
        for method in ("sizes", "is_empty", "is_full"):
            np.testing.assert_array_equal(getattr(sets, method)(), getattr(listed, method)())
        for method in ("contains", "knows"):
            np.testing.assert_array_equal(getattr(sets, method)(y), getattr(listed, method)(y))
        assert sets.row_pointers.dtype == listed.row_pointers.dtype
        assert sets.codes.dtype == listed.codes.dtype
        np.testing.assert_array_equal(sets.row_pointers, listed.row_pointers)
        np.testing.assert_array_equal(sets.codes, listed.codes)
        assert sets.to_lists() == listed.to_lists()
        assert [each.tolist() for each in sets[:9]] == [each.tolist() for each in listed[:9]]
        assert repr(sets) == repr(listed)
        assert sets.in_order(names[::-1]).to_lists() == listed.in_order(names[::-1]).to_lists()
    with pytest.raises(AttributeError, match="no attribute 'pointers'"):
        marked.pointers  # noqa: B018  # read


@pytest.mark.parametrize(
    ("k", "dtype"),
    [
        (1, "float32"),
        (2, "float32"),
        (2, "float64"),
        (3, "float32"),
        (5, "float64"),
        (33, "float64"),
        (64, "float32"),
    ],
)
def test_scores_of_few_classes_mark_what_their_scores_say(k, dtype):
    """Rows with ties, zeros and tiny numbers included."""
    rng = np.random.default_rng(k)
    weights = (
        rng.integers(0, 4, size=(500, k)) * 10.0 ** -rng.integers(0, 12, size=(500, k))
        + np.eye(k)[rng.integers(k, size=500)]
    )
    record = dco.ClassProbabilities((weights / weights.sum(1, keepdims=True)).astype(dtype))
    for score in (
        dco.scores.LAC(),
        dco.scores.APS(),
        dco.scores.RAPS(0.1, 1),
        dco.scores.SAPS(0.2),
        dco.scores.TopK(),
    ):
        every = score.every_label(record)
        for threshold in np.quantile(every, [0.0, 0.3, 0.9, 1.0]).tolist():
            sets = score.sets(record, threshold)
            np.testing.assert_array_equal(sets.to_dense(), every <= threshold)
            np.testing.assert_array_equal(sets.sizes(), score.sizes(record, threshold))


def test_a_set_with_one_label_says_so():
    sets = LabelSets.from_dense(np.array([[True, False], [True, True], [False, False]]))
    assert sets.has_one_label().tolist() == [True, False, False]
