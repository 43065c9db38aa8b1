"""Sealed rows open once, for one structure, and remember every request."""

import copy
import pickle

import numpy as np
import pytest

import dco
from dco.foundations.fingerprints import role_fingerprint, row_fingerprints

X = np.arange(12.0).reshape(6, 2) + 0.125
Y = np.array([5, 6, 7, 8, 9, 10])


def test_sealed_rows_have_a_number_and_an_empty_log():
    sealed = dco.SealedRows(X, Y)
    assert len(sealed) == 6
    assert sealed.log == ()
    assert sealed.opened_for is None


def test_rows_are_opened_for_a_structure_and_not_copied():
    sealed = dco.SealedRows(X, Y)

    rows = sealed.open_for("structure-1")

    assert rows.X is X
    assert rows.y is Y
    assert sealed.opened_for == "structure-1"


def test_clusters_come_with_their_rows():
    clusters = np.array([0, 0, 1, 1, 2, 2])
    sealed = dco.SealedRows(X, Y, clusters=clusters, positions=np.array([4, 1]))
    assert sealed.open_for("structure").clusters.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("second", "words"),
    [("structure-2", "another structure"), ("structure-1", "the same structure")],
    ids=["another structure", "the same structure"],
)
def test_a_second_request_is_refused_and_logged(second, words):
    sealed = dco.SealedRows(X, Y)
    sealed.open_for("structure-1", purpose="calibrate")

    with pytest.raises(dco.SealBrokenError, match=words):
        sealed.open_for(second, purpose="another look")

    first_request, second_request = sealed.log
    assert first_request.structure == "structure-1"
    assert first_request.purpose == "calibrate"
    assert first_request.granted
    assert second_request.structure == second
    assert second_request.purpose == "another look"
    assert not second_request.granted


def test_requests_are_logged_in_order_of_time():
    sealed = dco.SealedRows(X, Y)
    sealed.open_for("structure")
    with pytest.raises(dco.SealBrokenError):
        sealed.open_for("structure")
    assert sealed.log[0].when <= sealed.log[1].when


def test_a_second_request_does_not_change_for_whom_the_rows_were_opened():
    sealed = dco.SealedRows(X, Y)
    sealed.open_for("structure-1")
    with pytest.raises(dco.SealBrokenError):
        sealed.open_for("structure-2")
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


@pytest.mark.parametrize("show", [repr, str])
def test_sealed_rows_are_printed_without_a_value(show):
    text = show(dco.SealedRows(X, Y))
    assert "6 rows, sealed, 0 requests" in text
    assert ".125" not in text


@pytest.mark.parametrize("name", ["X", "y", "rows", "_rows", "__dict__"])
def test_no_attribute_has_the_rows(name):
    assert not hasattr(dco.SealedRows(X, Y), name)


def test_the_log_cannot_be_replaced():
    sealed = dco.SealedRows(X, Y)
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


@pytest.fixture
def table():
    """A table of which the rows 4 and 1 are sealed, and may change afterwards."""
    return X.copy()


@pytest.fixture
def sealed(table):
    return dco.SealedRows(table, Y, positions=np.array([4, 1]))


def test_other_rows_of_the_table_may_change(table, sealed):
    table[0] += 1
    assert len(sealed.open_for("structure").y) == 2


def test_sealed_rows_that_change_in_the_table_are_refused(table, sealed):
    table[1] += 1
    with pytest.raises(dco.SealBrokenError, match="not those that were sealed"):
        sealed.open_for("structure")
    assert not sealed.log[0].granted
