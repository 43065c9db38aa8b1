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


def fingerprint(value: object) -> bytes:
    """The fingerprint of one row with one cell, whatever Python object is in it."""
    cell = np.empty(1, dtype=object)
    cell[0] = value
    return row_fingerprints(cell).tobytes()


def n_distinct(values) -> int:
    """How many fingerprints cells of these values have."""
    return len({fingerprint(value) for value in values})


def assert_same_rows(table, expected) -> None:
    """Assert that two tables have equal fingerprints row by row."""
    np.testing.assert_array_equal(row_fingerprints(table), row_fingerprints(expected))


# --------------------------------------------------------------------------------------- containers

NUMBERS = np.array([[0, 1, -3], [7, 0, 2], [0, 0, 0]])
dtypes = pytest.mark.parametrize(
    "dtype", ["int8", "int64", "float16", "float32", "float64", ">f8", "object", "longdouble"]
)
orders = pytest.mark.parametrize("order", ["C", "F"])


@dtypes
@orders
def test_a_row_does_not_depend_on_its_dtype(dtype, order):
    assert_same_rows(np.array(NUMBERS, dtype=dtype, order=order), NUMBERS)


@dtypes
@orders
def test_a_row_does_not_depend_on_its_layout(dtype, order):
    copy = np.array(NUMBERS, dtype=dtype, order=order)
    strided = np.repeat(copy, 2, axis=1)[:, ::2]
    strided.flags.writeable = False
    assert_same_rows(strided, NUMBERS)


CONTAINERS = {
    "lists": NUMBERS.tolist(),
    "csr": sparse.csr_matrix(NUMBERS),
    "coo": sparse.coo_array(NUMBERS),
    "csc": sparse.csc_array(NUMBERS.astype(float)),
    "pandas": pd.DataFrame(NUMBERS),
    "nullable": pd.DataFrame(NUMBERS).astype("Int64"),
    "category": pd.DataFrame(NUMBERS).astype("category"),
    "pandas-sparse": pd.DataFrame(NUMBERS).astype(pd.SparseDtype(int, 0)),
    "polars": pl.DataFrame(NUMBERS),
    "polars-float32": pl.DataFrame(NUMBERS).cast(pl.Float32),
}
every_container = pytest.mark.parametrize("table", CONTAINERS.values(), ids=CONTAINERS)


@every_container
def test_every_container_gives_the_row_of_the_plain_array(table):
    assert_same_rows(table, NUMBERS)


@every_container
def test_every_container_gives_the_row_of_the_plain_array_with_its_target(table):
    y = np.array([0, 1, 0])
    plain = row_fingerprints(NUMBERS, y.astype(float))
    np.testing.assert_array_equal(row_fingerprints(table, y), plain)


@every_container
def test_every_container_gives_the_uniforms_of_the_plain_array(table):
    plain = row_uniforms(NUMBERS, seed=3)
    np.testing.assert_array_equal(row_uniforms(table, seed=3), plain)


def test_stored_zeros_and_repeated_entries_of_sparse_rows_are_those_of_their_dense_form():
    values = np.array([2.0, 3.0, 0.0, -0.0, np.nan])
    positions = ([0, 0, 0, 1, 1], [1, 1, 0, 2, 0])
    stored = sparse.coo_array((values, positions), shape=(2, 3))
    assert_same_rows(stored, np.array([[0, 5, 0], [np.nan, 0, 0]]))


@pytest.fixture
def unsorted_row():
    """A sparse row whose columns are unsorted, and one of them is there twice."""
    return sparse.csr_array(
        (np.array([2.0, 1.0, 3.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3)
    )


def test_unsorted_sparse_rows_are_those_of_their_dense_form(unsorted_row):
    assert_same_rows(unsorted_row, np.array([[1, 0, 5]]))


def test_the_callers_sparse_matrix_is_not_changed(unsorted_row):
    row_fingerprints(unsorted_row)
    assert unsorted_row.data.tolist() == [2, 1, 3]


MIXED = {
    "count": [1, 2, None],
    "text": ["a", None, "ü"],
    "when": [datetime.datetime(2020, 1, 2, 3), datetime.datetime(1500, 1, 1), None],
    "flag": [True, False, None],
}
MIXED_OBJECTS = np.array(list(MIXED.values()), dtype=object).T
MIXED_PANDAS = pd.DataFrame(
    {
        "count": pd.array(MIXED["count"], dtype="Int64"),
        "text": pd.Categorical(MIXED["text"]),
        "when": pd.Series(MIXED["when"], dtype="datetime64[us]"),
        "flag": pd.array(MIXED["flag"], dtype="boolean"),
    }
)
MIXED_FRAMES = {
    "pandas": MIXED_PANDAS,
    "pandas text": MIXED_PANDAS.assign(text=MIXED_PANDAS["text"].astype("str")),
    "pandas with an index": MIXED_PANDAS.set_index(np.array([5, 5, 5])),
    "polars": pl.DataFrame(MIXED),
    "polars categories": pl.DataFrame(MIXED).with_columns(pl.col("text").cast(pl.Categorical)),
}


@pytest.mark.parametrize("frame", MIXED_FRAMES.values(), ids=MIXED_FRAMES)
def test_frames_of_mixed_columns_agree_with_an_array_of_objects(frame):
    assert_same_rows(frame, MIXED_OBJECTS)


def test_rows_of_mixed_columns_are_told_apart():
    assert len(set(row_fingerprints(MIXED_OBJECTS).tolist())) == 3


def test_a_category_is_its_value_and_not_its_code():
    two_categories = pd.DataFrame({"c": pd.Categorical(["x", "y"], categories=["x", "y"])})
    three_categories = pd.DataFrame({"c": pd.Categorical(["x", "y"], categories=["z", "y", "x"])})
    assert_same_rows(two_categories, three_categories)


def test_categories_are_told_apart():
    first, second = row_fingerprints(pd.DataFrame({"c": pd.Categorical(["x", "y"])}))
    assert first != second


# -------------------------------------------------------------------------------------------- cells

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
    assert n_distinct(NESTED.values()) == len(NESTED)


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
    assert fingerprint(value) == fingerprint(same)


@pytest.mark.parametrize(
    "value",
    [
        np.nan,
        float("nan"),
        np.float32("nan"),
        pd.NA,
        pd.NaT,
        np.datetime64("NaT"),
        Decimal("nan"),
    ],
    ids=["nan", "another nan", "float32", "NA", "pandas NaT", "NumPy NaT", "Decimal"],
)
def test_missing_is_one_value(value):
    assert fingerprint(value) == fingerprint(None)


def test_missing_in_an_array_of_floats_is_the_same_value():
    assert row_fingerprints(np.array([np.nan])).tobytes() == fingerprint(None)


def test_missing_zero_nothing_and_infinity_are_told_apart():
    assert n_distinct([None, 0, "", b"", "nan", "None", np.inf, -np.inf]) == 8


NOON = datetime.datetime(2024, 2, 29, 12)
NOON_IN_BERLIN = pd.Timestamp("2024-02-29 13:00", tz="Europe/Berlin")
AFTER_NOON = np.datetime64(NOON, "ns") + np.timedelta64(1, "ns")


@pytest.mark.parametrize(
    "moment",
    [
        np.datetime64(NOON, "s"),
        np.datetime64(NOON, "ns"),
        pd.Timestamp(NOON),
        NOON_IN_BERLIN,
        NOON.replace(tzinfo=datetime.UTC),
    ],
    ids=["seconds", "nanoseconds", "pandas", "in Berlin", "UTC"],
)
def test_moments_agree_across_units_and_zones(moment):
    assert fingerprint(moment) == fingerprint(NOON)


@pytest.mark.parametrize(
    "column",
    [pd.Series([NOON_IN_BERLIN]), pl.Series([NOON_IN_BERLIN.to_pydatetime()])],
    ids=["pandas", "polars"],
)
def test_moments_in_columns_are_those_of_objects(column):
    assert row_fingerprints(column).tobytes() == fingerprint(NOON)


def test_dates_agree():
    assert fingerprint(datetime.date(2024, 2, 29)) == fingerprint(np.datetime64("2024-02-29"))


def test_moments_keep_their_nanoseconds():
    assert fingerprint(AFTER_NOON) != fingerprint(NOON)
    assert fingerprint(pd.Timestamp(NOON) + pd.Timedelta(1, "ns")) == fingerprint(AFTER_NOON)


def test_durations_moments_and_numbers_are_told_apart():
    assert n_distinct([datetime.timedelta(0), 0, np.datetime64(0, "s")]) == 3


LARGE_INTEGERS = [2**53, 2**53 + 1, 2**62 + 1, 2**63 - 1, -(2**63)]


def test_large_integers_are_told_apart():
    assert len(set(row_fingerprints(np.array(LARGE_INTEGERS)).tolist())) == len(LARGE_INTEGERS)


def test_large_integers_in_arrays_are_those_of_python():
    assert_same_rows(np.array(LARGE_INTEGERS), np.array(LARGE_INTEGERS, dtype=object))


def test_unsigned_integers_beyond_the_signed_ones_keep_their_digits():
    unsigned = np.array([2**63 + 1], dtype=np.uint64)
    assert row_fingerprints(unsigned).tobytes() == fingerprint(2**63 + 1)


@pytest.mark.parametrize(
    ("value", "same"),
    [(np.uint64(2**62 + 1), np.int64(2**62 + 1)), (2**60, float(2**60))],
    ids=["unsigned", "float"],
)
def test_equal_large_numbers_agree(value, same):
    assert fingerprint(value) == fingerprint(same)


@pytest.mark.parametrize(
    ("value", "other"),
    [(2**64 - 1, -1), (10**400, 10**400 + 1)],
    ids=["the same bits", "beyond 64 bits"],
)
def test_large_numbers_that_differ_are_told_apart(value, other):
    assert fingerprint(value) != fingerprint(other)


CELLS = st.one_of(st.floats(), st.integers(), st.text(), st.none(), st.booleans())
ROWS_OF_TWO = st.lists(st.tuples(CELLS, CELLS), min_size=2, max_size=6)


def as_python_compares(value: object) -> object:
    """NaN and None are one value, True is 1, 0.0 is -0.0, and a text is no number."""
    is_missing = value is None or value != value
    return "missing" if is_missing else (isinstance(value, str), value)


@given(ROWS_OF_TWO)
def test_rows_agree_exactly_when_their_values_do(rows):
    table = np.empty((len(rows), 2), dtype=object)
    for i, row in enumerate(rows):
        table[i] = row
    keys = [tuple(as_python_compares(cell) for cell in row) for row in rows]

    hashes = row_fingerprints(table)

    agree = [[a == b for a in hashes] for b in hashes]
    assert agree == [[a == b for a in keys] for b in keys]


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
    assert len({version.tobytes() for version in versions}) == len(versions)


# -------------------------------------------------------------------------------------- long tables

LONG = np.random.default_rng(0).integers(0, 3, size=(100_000, 4))


@pytest.fixture(scope="module")
def long_fingerprints():
    """The fingerprints of 100,000 rows with targets, which are read in many pieces."""
    return row_fingerprints(LONG, LONG[:, 0])


@pytest.mark.parametrize("row", [0, 17, 8191, 8192, 99_999])
def test_a_row_alone_has_the_hash_that_it_has_in_a_long_table(long_fingerprints, row):
    assert row_fingerprints(LONG[[row]], LONG[[row], 0]) == long_fingerprints[row]


@pytest.mark.parametrize(
    "convert",
    [
        pd.DataFrame,
        pl.DataFrame,
        lambda table: table.reshape(-1, 2, 2),
        np.asfortranarray,
        sparse.csc_array,
    ],
    ids=["pandas", "polars", "three axes", "by columns", "sparse"],
)
def test_a_long_table_is_read_in_pieces_without_a_seam(long_fingerprints, convert):
    hashes = row_fingerprints(convert(LONG), LONG[:, 0])
    np.testing.assert_array_equal(hashes, long_fingerprints)


@pytest.mark.parametrize(
    ("column", "n_lines"),
    [
        (np.random.default_rng(0).normal(size=(10_000, 20)), 1_000),
        (np.random.default_rng(0).normal(size=10_000).round(1).astype(str).astype(object), 2_000),
    ],
    ids=["numbers", "texts"],
)
def test_the_work_in_python_is_for_each_piece_of_a_table_and_not_for_each_row(
    lines_run, column, n_lines
):
    lines_run(lambda: row_fingerprints(column), at_most=n_lines)


def test_the_work_in_python_is_for_each_piece_with_targets_too(lines_run):
    X = np.random.default_rng(0).normal(size=(10_000, 20))
    lines_run(lambda: row_fingerprints(X, X[:, 0]), at_most=1_000)


# --------------------------------------------------------------------------------- chance of a hash


def make_grid():
    return np.stack(np.meshgrid(*[np.arange(100)] * 3), axis=-1).reshape(-1, 3)


def make_binary():
    return (np.arange(2**20)[:, None] >> np.arange(20)) & 1


STRUCTURED = {
    "grid": make_grid,
    "fine grid": lambda: (make_grid() - 50) * 2.0**-30,
    "binary": make_binary,
    "signs": lambda: 1 - 2 * make_binary(),
    "permutations": lambda: np.array(list(itertools.permutations(range(9)))),
    "identity": lambda: np.eye(1000),
}


@pytest.mark.parametrize("make_table", STRUCTURED.values(), ids=STRUCTURED)
def test_rows_of_structured_tables_do_not_collide(make_table):
    """About 10^6 distinct rows in each table. By chance two of them collide with probability
    2**-89, and two of the 64-bit halves with 2**-25.
    """
    hashes = row_fingerprints(make_table())
    halves = np.frombuffer(hashes.tobytes(), np.uint64).reshape(-1, 2)
    sorted_halves = np.sort(halves, axis=0)
    assert (np.diff(sorted_halves, axis=0) > 0).all()


def bits_of(hashes):
    """The 128 bits of each hash, one row each."""
    return np.unpackbits(np.frombuffer(hashes.tobytes(), np.uint8)).reshape(len(hashes), 128)


def distance_from_half(bits):
    """How far the share of ones among rows is from one half, in the worst column."""
    return np.abs(bits.mean(axis=0) - 0.5).max()


def put_in_column(values, column):
    """Put values into one of three columns; 0, which would change nothing, becomes the largest."""
    table = np.zeros((len(values), 3), dtype=values.dtype)
    table[:, column] = np.where(values == 0, values.max(), values)
    return table


changes = pytest.mark.parametrize(
    "values",
    [np.arange(4000), np.arange(4000) / 10, 2.0 ** np.arange(-500, 500), np.arange(4000) + 2**60],
    ids=["integers", "tenths", "powers of 2", "large integers"],
)
columns = pytest.mark.parametrize("column", [0, 1, 2])


@changes
@columns
def test_one_changed_cell_changes_each_bit_of_the_hash_half_of_the_time(values, column):
    """A bit of n pairs changes n/2 times, within 6 standard deviations, by any cell."""
    table = put_in_column(values, column)
    changed = bits_of(row_fingerprints(np.zeros_like(table))) != bits_of(row_fingerprints(table))
    assert distance_from_half(changed) < 3 / np.sqrt(len(values))


@changes
@columns
def test_neighbouring_bits_of_a_hash_are_alike_half_of_the_time(values, column):
    """Within 6 standard deviations."""
    bits = bits_of(row_fingerprints(put_in_column(values, column)))
    assert distance_from_half(bits[:, 1:] == bits[:, :-1]) < 3 / np.sqrt(len(values))


def test_fingerprints_and_uniforms_are_the_same_in_another_process():
    code = (
        "import numpy as np;"
        "from dco.foundations.fingerprints import row_fingerprints, row_uniforms;"
        "cells = [1, 'a', None, {'b': {1, 'x'}}];"
        "print(row_fingerprints(np.array([cells], dtype=object)).tobytes().hex(),"
        "row_uniforms([[1.5]], seed=4)[0])"
    )
    outputs = [
        subprocess.check_output(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": hash_seed}
        )
        for hash_seed in ("1", "2")
    ]
    assert outputs[0] != b""
    assert outputs[0] == outputs[1]


# ----------------------------------------------------------------------------------------- uniforms

N_UNIFORMS = 20_000
COUNTED = np.arange(N_UNIFORMS)[:, None]


@pytest.fixture(scope="module")
def uniforms():
    return row_uniforms(COUNTED, seed=0)


def test_uniforms_are_uniform_from_0_to_below_1(uniforms):
    """KS at level 0.001 on 20,000 rows."""
    assert kstest(uniforms, "uniform").pvalue > 0.001
    assert uniforms.min() >= 0
    assert uniforms.max() < 1


def test_uniforms_of_two_seeds_are_uncorrelated(uniforms):
    """Within 5 standard errors."""
    correlation = np.corrcoef(uniforms, row_uniforms(COUNTED, seed=1))[0, 1]
    assert abs(correlation) < 5 / np.sqrt(N_UNIFORMS)


def test_uniforms_of_neighbours_are_uncorrelated(uniforms):
    """Within 5 standard errors."""
    correlation = np.corrcoef(uniforms[1:], uniforms[:-1])[0, 1]
    assert abs(correlation) < 5 / np.sqrt(N_UNIFORMS)


def test_the_uniform_of_a_row_does_not_depend_on_other_rows(uniforms):
    assert row_uniforms(COUNTED[[17]], seed=0) == uniforms[17]


def test_the_uniform_of_a_row_does_not_depend_on_its_position_and_dtype(uniforms):
    turned = row_uniforms(COUNTED[::-1].astype(np.float32), seed=0)
    np.testing.assert_array_equal(turned, uniforms[::-1])


# ----------------------------------------------------------------------- what is refused, and edges


def test_a_float32_copy_of_decimals_shares_no_fingerprint():
    X = np.random.default_rng(0).normal(size=(20, 3))
    copy = X.astype(np.float32)
    assert overlap(row_fingerprints(copy), row_fingerprints(X)).size == 0


def test_a_float32_copy_of_decimals_is_found_at_float32():
    X = np.random.default_rng(0).normal(size=(20, 3))
    rounded = row_fingerprints(X, at_float32=True)
    copies = row_fingerprints(X.astype(np.float32), at_float32=True)
    assert overlap(copies, rounded).size == 20


def test_a_number_beyond_float32_has_a_fingerprint_there():
    assert row_fingerprints(np.array([1e300]), at_float32=True).size == 1


@pytest.mark.parametrize("cell", [object(), 1j], ids=["object", "complex"])
def test_a_cell_without_a_canonical_form_is_refused(cell):
    with pytest.raises(TypeError, match="no canonical form"):
        row_fingerprints(np.array([cell]))


def test_targets_of_another_length_are_refused():
    with pytest.raises(ValueError, match="X has 3 rows and y has 2"):
        row_fingerprints(NUMBERS, [1, 2])


def test_what_has_no_rows_at_all_is_refused():
    with pytest.raises(ValueError, match="one entry per row"):
        row_fingerprints(3.0)


EMPTY = {
    "array": np.empty((0, 3)),
    "sparse": sparse.csr_matrix((0, 3)),
    "pandas": pd.DataFrame({"a": []}),
    "polars": pl.DataFrame({"a": []}),
}
without_rows = pytest.mark.parametrize("table", EMPTY.values(), ids=EMPTY)


@without_rows
def test_no_rows_have_no_fingerprints_and_no_uniforms(table):
    assert row_fingerprints(table).shape == (0,)
    assert row_uniforms(table, seed=0).shape == (0,)


@without_rows
def test_a_role_without_rows_has_a_fingerprint(table):
    assert len(role_fingerprint(row_fingerprints(table))) == 32


@pytest.mark.parametrize(
    "table", [np.empty((2, 0)), sparse.csr_matrix((2, 3))], ids=["no columns", "only zeros"]
)
def test_rows_without_columns_or_of_zeros_only_are_equal(table):
    first, second = row_fingerprints(table)
    assert first == second


# -------------------------------------------------------------------------- roles, overlap, repeats


@pytest.mark.parametrize("n_byte_values", [2, 256], ids=["halves are shared", "halves differ"])
def test_a_role_has_the_digest_of_its_sorted_hashes(n_byte_values):
    """With two values a byte, most hashes share their first half with another."""
    rng = np.random.default_rng(0)
    hash_bytes = rng.integers(0, n_byte_values, size=(300, 16), dtype=np.uint8)
    hash_bytes[:, :4] = 0
    hash_bytes[::7] = hash_bytes[1]  # repeated rows

    digest = role_fingerprint(hash_bytes.view("S16")[:, 0])

    message = struct.pack("<Q", 300) + b"".join(sorted(row.tobytes() for row in hash_bytes))
    assert digest == blake2b(message, digest_size=16, person=b"dco role").hexdigest()


def test_overlap_is_counted_as_by_hand():
    a = row_fingerprints(np.array([5, 1, 2, 1, 9]))
    b = row_fingerprints(np.array([1, 9, 9]))
    assert overlap(a, b).tolist() == [1, 3, 4]


def test_no_rows_overlap_with_none():
    a = row_fingerprints(np.array([5, 1, 2]))
    assert overlap(a, a[:0]).size == 0
    assert overlap(a[:0], a).size == 0


REPEATED = np.array([[3.0], [1], [3], [-0.0], [0.0], [3]])


def test_first_copies_remain_in_their_order():
    assert drop_repeats(REPEATED).tolist() == [0, 1, 3]


def test_rows_with_other_targets_are_no_copies():
    assert drop_repeats(REPEATED, np.array([0, 0, 0, 1, 1, 1])).tolist() == [0, 1, 3, 5]


# -------------------------------------------------------------------------------------------- codes


def test_equal_values_of_a_mixed_column_have_one_code():
    codes, count = codes_of_values(np.array([1, 1.0, "1", True, "b"], dtype=object))
    assert codes.tolist() == [0, 0, 1, 0, 2]
    assert count == 3


@pytest.mark.parametrize(
    "labels",
    [
        np.array([7, 3, 7, 5]),
        np.array([7.0, 3.0, 7.0, 5.0]),
        [7, 3, 7, 5],
        pd.Series([7, 3, 7, 5]),
        np.array(["7", "3", "7", "5"]),
    ],
    ids=["integers", "floats", "list", "pandas", "texts"],
)
def test_codes_follow_the_first_appearance_in_any_dtype(labels):
    codes, _ = codes_of_values(labels)
    assert codes.tolist() == [0, 1, 0, 2]


def test_missing_labels_are_refused():
    with pytest.raises(ValueError, match=r"groups is missing for 2 rows \(first: row 1\)"):
        codes_of_values([0.0, np.nan, np.nan])


def test_missing_labels_are_one_value_on_request():
    _, count = codes_of_values([0.0, np.nan, np.nan], missing=True)
    assert count == 2
