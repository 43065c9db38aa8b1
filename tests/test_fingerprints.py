"""Rows that are equal have equal fingerprints however they are stored; rows that differ do not."""

import datetime
import itertools
import os
import struct
import subprocess
import sys
from decimal import Decimal
from hashlib import blake2b

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from dco.foundations.fingerprints import (
    codes_of_values,
    drop_repeats,
    overlap,
    role_fingerprint,
    row_fingerprints,
    row_uniforms,
)


def one(value: object, **options: bool) -> bytes:
    cell = np.empty(1, dtype=object)
    cell[0] = value
    return row_fingerprints(cell, **options).tobytes()


NUMBERS = np.array([[0, 1, -3], [7, 0, 2], [0, 0, 0]])


@pytest.mark.parametrize(
    "dtype", ["int8", "int64", "float16", "float32", "float64", ">f8", "object", "longdouble"]
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_row_does_not_depend_on_its_dtype_or_layout(dtype, order):
    copy = np.array(NUMBERS, dtype=dtype, order=order)
    assert (row_fingerprints(copy) == row_fingerprints(NUMBERS)).all()
    strided = np.repeat(copy, 2, axis=1)[:, ::2]
    strided.flags.writeable = False
    assert (row_fingerprints(strided) == row_fingerprints(NUMBERS)).all()


@pytest.mark.parametrize(
    "table",
    [
        NUMBERS.tolist(),
        sparse.csr_matrix(NUMBERS),
        sparse.coo_array(NUMBERS),
        sparse.csc_array(NUMBERS.astype(float)),
        pd.DataFrame(NUMBERS),
        pd.DataFrame(NUMBERS).astype("Int64"),
        pd.DataFrame(NUMBERS).astype("category"),
        pd.DataFrame(NUMBERS).astype(pd.SparseDtype(int, 0)),
        pl.DataFrame(NUMBERS),
        pl.DataFrame(NUMBERS).cast(pl.Float32),
    ],
    ids=[
        "lists",
        "csr",
        "coo",
        "csc",
        "pandas",
        "nullable",
        "category",
        "pandas-sparse",
        "polars",
        "polars-float32",
    ],
)
def test_every_container_gives_the_row_of_the_plain_array(table):
    y = np.array([0, 1, 0])
    assert (row_fingerprints(table) == row_fingerprints(NUMBERS)).all()
    assert (row_fingerprints(table, y) == row_fingerprints(NUMBERS, y.astype(float))).all()
    assert (row_uniforms(table, seed=3) == row_uniforms(NUMBERS, seed=3)).all()


def test_sparse_rows_with_stored_zeros_and_repeated_entries_equal_their_dense_form():
    stored = sparse.coo_array(
        (np.array([2.0, 3.0, 0.0, -0.0, np.nan]), ([0, 0, 0, 1, 1], [1, 1, 0, 2, 0])), shape=(2, 3)
    )
    assert (
        row_fingerprints(stored) == row_fingerprints(np.array([[0, 5, 0], [np.nan, 0, 0]]))
    ).all()
    raw = sparse.csr_array(
        (np.array([2.0, 1.0, 3.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3)
    )  # unsorted, twice
    assert row_fingerprints(raw) == row_fingerprints(np.array([[1, 0, 5]]))
    assert raw.data.tolist() == [2, 1, 3]  # the caller's matrix is left as it was


MIXED = {
    "count": [1, 2, None],
    "text": ["a", None, "ü"],
    "when": [datetime.datetime(2020, 1, 2, 3), datetime.datetime(1500, 1, 1), None],
    "flag": [True, False, None],
}


def test_frames_of_mixed_columns_agree_between_pandas_polars_and_objects():
    objects = np.array([MIXED[name] for name in MIXED], dtype=object).T
    expected = row_fingerprints(objects)
    frame = pd.DataFrame(
        {
            "count": pd.array(MIXED["count"], dtype="Int64"),
            "text": pd.Categorical(MIXED["text"]),
            "when": pd.Series(MIXED["when"], dtype="datetime64[us]"),
            "flag": pd.array(MIXED["flag"], dtype="boolean"),
        }
    )
    assert (row_fingerprints(frame) == expected).all()
    assert (row_fingerprints(frame.assign(text=frame["text"].astype("str"))) == expected).all()
    assert (row_fingerprints(frame.set_index(np.array([5, 5, 5]))) == expected).all()
    other = pl.DataFrame(MIXED).with_columns(pl.col("text").cast(pl.Categorical))
    assert (row_fingerprints(other) == expected).all()
    assert (row_fingerprints(pl.DataFrame(MIXED)) == expected).all()
    assert len(set(expected.tolist())) == 3


def test_a_category_is_its_value_and_not_its_code():
    left = pd.DataFrame({"c": pd.Categorical(["x", "y"], categories=["x", "y"])})
    right = pd.DataFrame({"c": pd.Categorical(["x", "y"], categories=["z", "y", "x"])})
    assert (row_fingerprints(left) == row_fingerprints(right)).all()
    assert row_fingerprints(left)[0] != row_fingerprints(left)[1]


NESTED = {
    "list": [1, "a"],
    "other order": ["a", 1],
    "deeper": [1, ["a"]],
    "set": {1, "a"},
    "mapping": {1: "a"},
    "turned": {"a": 1},
    "empty": [],
}


def test_nested_cells_that_differ_are_told_apart():
    assert len({one(value) for value in NESTED.values()}) == len(NESTED)


@pytest.mark.parametrize(
    ("value", "same"),
    [
        ((1, "a"), [1.0, "a"]),
        (np.array([1, 2], dtype=np.int8), [1, 2]),
        ({"a": 1, "b": [2]}, {"b": (2.0,), "a": True}),
        (frozenset({3, "x", 5}), {5, "x", 3}),
    ],
    ids=["tuple", "array", "mapping", "set"],
)
def test_nested_cells_that_are_equal_agree(value, same):
    assert one(value) == one(same)


def test_missing_is_one_value_and_zero_another():
    missing = [
        None,
        np.nan,
        float("nan"),
        np.float32("nan"),
        pd.NA,
        pd.NaT,
        np.datetime64("NaT"),
        Decimal("nan"),
    ]
    assert len({one(value) for value in missing}) == 1
    assert one(None) == row_fingerprints(np.array([np.nan])).tobytes()
    assert len({one(value) for value in (None, 0, "", b"", "nan", "None", np.inf, -np.inf)}) == 8


def test_moments_agree_across_units_and_zones_and_keep_their_nanoseconds():
    noon = datetime.datetime(2024, 2, 29, 12)
    berlin = pd.Timestamp("2024-02-29 13:00", tz="Europe/Berlin")
    same = [
        noon,
        np.datetime64(noon, "s"),
        np.datetime64(noon, "ns"),
        pd.Timestamp(noon),
        berlin,
        noon.replace(tzinfo=datetime.UTC),
    ]
    assert len({one(value) for value in same}) == 1
    assert row_fingerprints(pd.Series([berlin])).tobytes() == one(noon)
    assert row_fingerprints(pl.Series([berlin.to_pydatetime()])).tobytes() == one(noon)
    assert one(datetime.date(2024, 2, 29)) == one(np.datetime64("2024-02-29"))
    assert one(np.datetime64(noon, "ns") + np.timedelta64(1, "ns")) != one(noon)
    assert one(pd.Timestamp(noon) + pd.Timedelta(1, "ns")) == one(
        np.datetime64(noon, "ns") + np.timedelta64(1, "ns")
    )
    assert one(datetime.timedelta(0)) not in (one(0), one(np.datetime64(0, "s")))


def test_large_integers_keep_all_their_digits():
    ids = np.array([2**53, 2**53 + 1, 2**62 + 1, 2**63 - 1, -(2**63)], dtype=np.int64)
    assert len(set(row_fingerprints(ids).tolist())) == 5
    assert row_fingerprints(ids).tobytes() == row_fingerprints(ids.astype(object)).tobytes()
    assert one(2**63 + 1) == row_fingerprints(np.array([2**63 + 1], dtype=np.uint64)).tobytes()
    assert one(np.uint64(2**62 + 1)) == one(np.int64(2**62 + 1))
    assert one(2**64 - 1) != one(-1)
    assert one(10**400) != one(10**400 + 1)
    assert one(2**60) == one(float(2**60))


@given(
    st.lists(
        st.lists(
            st.one_of(st.floats(), st.integers(), st.text(), st.none(), st.booleans()),
            min_size=2,
            max_size=2,
        ),
        min_size=2,
        max_size=6,
    )
)
def test_rows_agree_exactly_when_their_values_do(rows):
    """The oracle compares Python values: NaN and None are one, True is 1, and 0.0 is -0.0."""
    table = np.empty((len(rows), 2), dtype=object)
    for i, row in enumerate(rows):
        table[i] = row

    def key(value):
        return "missing" if value is None or value != value else (isinstance(value, str), value)

    keys = [tuple(map(key, row)) for row in rows]
    hashes = row_fingerprints(table)
    for i, j in itertools.product(range(len(rows)), repeat=2):
        assert (hashes[i] == hashes[j]) == (keys[i] == keys[j])


def test_columns_and_targets_cannot_be_mistaken_for_each_other():
    row = np.array([[1.0, 2.0]])
    versions = [
        row_fingerprints(row),
        row_fingerprints(row[:, ::-1]),
        row_fingerprints(row[:, :1], row[:, 1]),
        row_fingerprints(np.array([[1.0, 2.0, 0.0]])),
        row_fingerprints(row, [0.0]),
        row_fingerprints(np.array([["1.0", "2.0"]])),
    ]
    assert len({v.tobytes() for v in versions}) == len(versions)


def test_long_tables_are_read_in_pieces_without_a_seam():
    """A row alone has the hash that it has in a table of 100,000 rows, which is read in many
    pieces.
    """
    X = np.random.default_rng(0).integers(0, 3, size=(100_000, 4))
    whole = row_fingerprints(X, X[:, 0])
    for row in (0, 17, 8191, 8192, 99_999):
        assert row_fingerprints(X[[row]], X[[row], 0]) == whole[row]
    for table in (
        pd.DataFrame(X),
        pl.DataFrame(X),
        X.reshape(-1, 2, 2),
        np.asfortranarray(X),
        sparse.csc_array(X),
    ):
        assert (row_fingerprints(table, X[:, 0]) == whole).all()


def bits_of(hashes):
    return np.unpackbits(np.frombuffer(hashes.tobytes(), np.uint8)).reshape(len(hashes), 128)


def test_rows_of_structured_tables_do_not_collide():
    """About 10^6 distinct rows in each table. By chance two of them collide with probability
    2**-89, and two of the 64-bit halves with 2**-25.
    """
    grid = np.stack(np.meshgrid(*[np.arange(100)] * 3), axis=-1).reshape(-1, 3)
    binary = (np.arange(2**20)[:, None] >> np.arange(20)) & 1
    permuted = np.array(list(itertools.permutations(range(9))))
    for table in (grid, (grid - 50) * 2.0**-30, binary, 1 - 2 * binary, permuted, np.eye(1000)):
        halves = np.frombuffer(row_fingerprints(table).tobytes(), np.uint64).reshape(-1, 2)
        for half in halves.T:
            assert (np.diff(np.sort(half)) > 0).all()


@pytest.mark.parametrize(
    "values",
    [np.arange(4000), np.arange(4000) / 10, 2.0 ** np.arange(-500, 500), np.arange(4000) + 2**60],
)
def test_one_changed_cell_changes_each_bit_of_the_hash_half_of_the_time(values):
    """A bit of n pairs changes n/2 times, within 6 standard deviations, by any cell; neighbouring
    bits are not alike.
    """
    n = len(values)
    before = np.zeros((n, 3), dtype=values.dtype)
    for column in range(3):
        after = before.copy()
        after[:, column] = values
        after[values == 0, column] = values.max()
        changed = bits_of(row_fingerprints(before)) != bits_of(row_fingerprints(after))
        hashes = bits_of(row_fingerprints(after))
        for share in (changed.mean(axis=0), (hashes[:, 1:] == hashes[:, :-1]).mean(axis=0)):
            assert np.abs(share - 0.5).max() < 3 / np.sqrt(n)


def test_a_float32_copy_of_decimals_is_found_at_float32_only():
    X = np.random.default_rng(0).normal(size=(20, 3))
    copy = X.astype(np.float32)
    assert overlap(row_fingerprints(copy), row_fingerprints(X)).size == 0
    assert (
        overlap(row_fingerprints(copy, at_float32=True), row_fingerprints(X, at_float32=True)).size
        == 20
    )
    assert row_fingerprints(np.array([1e300]), at_float32=True).size == 1


def test_unknown_things_and_bad_shapes_are_refused_in_one_sentence():
    with pytest.raises(TypeError, match="no canonical form"):
        one(object())
    with pytest.raises(TypeError, match="no canonical form"):
        row_fingerprints(np.array([1j]))
    with pytest.raises(ValueError, match="X has 3 rows and y has 2"):
        row_fingerprints(NUMBERS, [1, 2])
    with pytest.raises(ValueError, match="one entry per row"):
        row_fingerprints(3.0)


@pytest.mark.parametrize(
    "empty",
    [np.empty((0, 3)), sparse.csr_matrix((0, 3)), pd.DataFrame({"a": []}), pl.DataFrame({"a": []})],
)
def test_no_rows_have_no_fingerprints(empty):
    assert row_fingerprints(empty).shape == (0,)
    assert row_uniforms(empty, seed=0).shape == (0,)
    assert len(role_fingerprint(row_fingerprints(empty))) == 32


def test_rows_without_columns_or_of_zeros_only_are_legal():
    for table in (np.empty((2, 0)), sparse.csr_matrix((2, 3))):
        assert len(set(row_fingerprints(table).tolist())) == 1


def test_fingerprints_are_the_same_in_another_process():
    code = (
        "import numpy as np;"
        "from dco.foundations.fingerprints import row_fingerprints, row_uniforms;"
        "cells = [1, 'a', None, {'b': {1, 'x'}}];"
        "print(row_fingerprints(np.array([cells], dtype=object)).tobytes().hex(),"
        "row_uniforms([[1.5]], seed=4)[0])"
    )
    command = [sys.executable, "-c", code]
    one, other = (
        subprocess.check_output(command, env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    )
    assert one == other != b""


def test_uniforms_are_uniform_and_depend_on_x_and_seed_only():
    """KS at level 0.001 on 20,000 rows; neighbours and other seeds are uncorrelated (5 standard
    errors).
    """
    X = np.arange(20_000)[:, None]
    u, other = row_uniforms(X, seed=0), row_uniforms(X, seed=1)
    assert u.min() >= 0
    assert u.max() < 1
    assert kstest(u, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(u, other)[0, 1]) < 5 / np.sqrt(u.size)
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 5 / np.sqrt(u.size)
    assert (row_uniforms(X[[17]], seed=0) == u[17]).all()
    assert (row_uniforms(X[::-1].astype(np.float32), seed=0) == u[::-1]).all()


def test_a_role_has_the_digest_of_its_sorted_hashes_where_halves_are_shared_too():
    rng = np.random.default_rng(0)
    for values in (2, 256):  # with 2, most hashes share their first half with another
        bytes_of = rng.integers(0, values, size=(300, 16), dtype=np.uint8)
        bytes_of[:, :4] = 0
        bytes_of[::7] = bytes_of[1]  # repeated rows
        hashes = bytes_of.view("S16")[:, 0]
        plain = struct.pack("<Q", 300) + b"".join(sorted(row.tobytes() for row in bytes_of))
        assert (
            role_fingerprint(hashes)
            == blake2b(plain, digest_size=16, person=b"dco role").hexdigest()
        )


def test_overlap_is_counted_as_by_hand():
    a, b = row_fingerprints(np.array([5, 1, 2, 1, 9])), row_fingerprints(np.array([1, 9, 9]))
    assert overlap(a, b).tolist() == [1, 3, 4]
    assert overlap(a, b[:0]).size == overlap(a[:0], b).size == 0


def test_first_copies_are_kept_in_their_order():
    X, y = np.array([[3.0], [1], [3], [-0.0], [0.0], [3]]), np.array([0, 0, 0, 1, 1, 1])
    assert drop_repeats(X, y).tolist() == [0, 1, 3, 5]
    assert drop_repeats(X).tolist() == [0, 1, 3]


def test_codes_of_labels_are_dtype_proof_and_missing_labels_are_refused():
    codes, count = codes_of_values(np.array([1, 1.0, "1", True, "b"], dtype=object))
    assert count == 3
    assert codes.tolist() == [0, 0, 1, 0, 2]
    numbers = np.array([7, 3, 7, 5])
    for labels in (
        numbers,
        numbers.astype(float),
        numbers.tolist(),
        pd.Series(numbers),
        numbers.astype(str),
    ):
        assert codes_of_values(labels)[0].tolist() == [0, 1, 0, 2]
    with pytest.raises(ValueError, match=r"groups is missing for 2 rows \(first: row 1\)"):
        codes_of_values([0.0, np.nan, np.nan])
    assert codes_of_values([0.0, np.nan, np.nan], missing=True)[1] == 2


def test_the_work_in_python_is_for_each_piece_of_a_table_and_not_for_each_row(lines_run):
    X = np.random.default_rng(0).normal(size=(10_000, 20))
    lines_run(lambda: row_fingerprints(X, X[:, 0]), at_most=1_000)
    texts = X.round(1).astype(str).astype(object)
    lines_run(lambda: row_fingerprints(texts[:, 0]), at_most=2_000)
