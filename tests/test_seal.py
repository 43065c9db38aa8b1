"""Sealed rows open once, for one structure, and remember every request."""

import copy
import pickle

import numpy as np
import pytest

import dco
from dco.foundations.fingerprints import role_fingerprint, row_fingerprints

X = np.arange(12.0).reshape(6, 2) + 0.125
Y = np.array([5, 6, 7, 8, 9, 10])


def test_rows_open_once_and_are_not_copied():
    sealed = dco.SealedRows(X, Y)
    assert len(sealed) == 6
    assert sealed.log == ()
    assert sealed.opened_for is None

    rows = sealed.open_for("structure-1")

    assert rows.X is X
    assert rows.y is Y
    assert sealed.opened_for == "structure-1"


def test_clusters_come_with_their_rows():
    clusters = np.array([0, 0, 1, 1, 2, 2])
    positions = np.array([4, 1])
    sealed = dco.SealedRows(X, Y, clusters=clusters, positions=positions)
    assert sealed.open_for("structure").clusters.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("second", "words"),
    [("structure-2", "another structure"), ("structure-1", "the same structure")],
)
def test_a_second_request_is_refused_and_logged(second, words):
    sealed = dco.SealedRows(X, Y)
    sealed.open_for("structure-1", purpose="calibrate")
    with pytest.raises(dco.SealBrokenError, match=words):
        sealed.open_for(second, purpose="another look")

    assert [(a.structure, a.purpose, a.granted) for a in sealed.log] == [
        ("structure-1", "calibrate", True),
        (second, "another look", False),
    ]
    assert sealed.log[0].when <= sealed.log[1].when
    assert sealed.opened_for == "structure-1"


def test_an_unnamed_structure_does_not_open_the_seal():
    sealed = dco.SealedRows(X, Y)
    with pytest.raises(ValueError, match="frozen structure"):
        sealed.open_for("")
    assert sealed.log == ()


def test_the_fingerprint_is_that_of_the_role():
    assert dco.SealedRows(X, Y).fingerprint == role_fingerprint(row_fingerprints(X, Y))


def test_rows_of_another_fingerprint_stay_sealed():
    with pytest.raises(dco.SealBrokenError, match="not those that were sealed"):
        dco.SealedRows(X, Y, fingerprint="0" * 32).open_for("structure")


def test_nothing_shows_the_rows():
    sealed = dco.SealedRows(X, Y)
    for text in (repr(sealed), str(sealed)):
        assert "6 rows, sealed, 0 requests" in text
        assert ".125" not in text
    for name in ("X", "y", "rows", "_rows", "__dict__"):
        assert not hasattr(sealed, name)
    with pytest.raises(AttributeError):
        sealed.log = ()


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps])
def test_sealed_rows_cannot_be_copied(copier):
    with pytest.raises(TypeError, match="cannot be copied"):
        copier(dco.SealedRows(X, Y))


def test_rows_at_some_positions_are_copied_when_they_are_opened():
    positions = np.array([4, 1])
    sealed = dco.SealedRows(X, Y, positions=positions)
    assert len(sealed) == 2
    rows = sealed.open_for("structure")
    np.testing.assert_array_equal(rows.X, X[positions])
    np.testing.assert_array_equal(rows.y, Y[positions])


@pytest.mark.parametrize(("changed", "opens"), [(0, True), (1, False)], ids=["another row", "own"])
def test_rows_that_change_in_the_table_are_refused(changed, opens):
    table = X.copy()
    sealed = dco.SealedRows(table, Y, positions=np.array([4, 1]))
    table[changed] += 1
    if opens:
        sealed.open_for("structure")
        return
    with pytest.raises(dco.SealBrokenError, match="not those that were sealed"):
        sealed.open_for("structure")
    assert not sealed.log[0].granted
