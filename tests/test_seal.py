"""Sealed rows open once, for one structure, and remember every request."""

import copy
import pickle

import numpy as np
import pytest

from dco.foundations.errors import SealBrokenError
from dco.rows.fingerprints import role_fingerprint, row_fingerprints
from dco.rows.rows import SealedRows

X, Y = np.arange(12.0).reshape(6, 2) + 0.125, np.array([5, 6, 7, 8, 9, 10])


def test_rows_open_once_and_unchanged():
    sealed = SealedRows(X, Y)
    assert len(sealed) == 6
    assert sealed.log == ()
    assert sealed.opened_for is None
    rows, target = sealed.open_for("structure-1")
    assert rows is X
    assert target is Y
    assert sealed.opened_for == "structure-1"


@pytest.mark.parametrize(
    ("second", "words"),
    [("structure-2", "another structure"), ("structure-1", "the same structure")],
)
def test_a_second_request_is_refused_and_logged(second, words):
    sealed = SealedRows(X, Y)
    sealed.open_for("structure-1", purpose="calibrate")
    with pytest.raises(SealBrokenError, match=words):
        sealed.open_for(second, purpose="another look")
    assert [(a.structure, a.purpose, a.granted) for a in sealed.log] == [
        ("structure-1", "calibrate", True),
        (second, "another look", False),
    ]
    assert sealed.log[0].when <= sealed.log[1].when
    assert sealed.opened_for == "structure-1"


def test_an_unnamed_structure_does_not_open_the_seal():
    sealed = SealedRows(X, Y)
    with pytest.raises(ValueError, match="frozen structure"):
        sealed.open_for("")
    assert sealed.log == ()


def test_the_fingerprint_is_that_of_the_role():
    assert SealedRows(X, Y).fingerprint == role_fingerprint(row_fingerprints(X, Y))
    with pytest.raises(SealBrokenError, match="not those that were sealed"):
        SealedRows(X, Y, fingerprint="0" * 32).open_for("structure")


def test_nothing_shows_the_rows_or_copies_them():
    sealed = SealedRows(X, Y)
    for text in (repr(sealed), str(sealed)):
        assert "6 rows, sealed, 0 requests" in text
        assert ".125" not in text
    for copier in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            copier(sealed)
    for name in ("X", "y", "rows", "_rows", "__dict__"):
        assert not hasattr(sealed, name)
    with pytest.raises(AttributeError):
        sealed.log = ()


def test_rows_at_some_positions_are_copied_when_they_are_opened():
    """What is dealt to calibration waits in the table that the caller brought: changed there, it is
    refused.
    """
    at = np.array([4, 1])
    known = role_fingerprint(row_fingerprints(X[at], Y[at]))
    sealed = SealedRows(X, Y, fingerprint=known, at=at)
    assert len(sealed) == 2
    rows, target = sealed.open_for("structure")
    np.testing.assert_array_equal(rows, X[at])
    np.testing.assert_array_equal(target, Y[at])
    rows = X.copy()
    sealed = SealedRows(rows, Y, fingerprint=known, at=at)
    rows[0] += 1  # not one of them
    sealed.open_for("structure")
    sealed = SealedRows(rows, Y, fingerprint=known, at=at)
    rows[1] += 1
    with pytest.raises(SealBrokenError, match="not those that were sealed"):
        sealed.open_for("structure")
    assert not sealed.log[0].granted
