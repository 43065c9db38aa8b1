"""Fingerprints of rows: the same row has the same 128-bit hash, however it is stored.

Every cell is written in its canonical form (`canonical`), as two 64-bit words. The hash has two
halves of 64 bits, one for each word. With h the one-to-one hash of a word (`hash_words`), a half is

    h( sum over columns of h(word XOR key of the column) + h(numbers of columns XOR another key) )

with sums modulo 2**64. What a zero adds does not depend on the row, so a sparse row is hashed by
its other cells, and agrees with its dense copy.

Rows that differ in one number never collide, as h is one-to-one. Other rows collide with
probability 2**-128 for each pair: some pair among 10 million rows with probability 2**-82. Rows can
be made to collide on purpose.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from dco.foundations.arrays import Bools, Floats, Integers, as_labels
from dco.foundations.canonical import (
    Words,
    column_words,
    halves_of_digest,
    hash_words,
    number_words,
)

__all__ = [
    "Hashes",
    "codes_of_values",
    "drop_repeats",
    "first_words",
    "overlap",
    "role_fingerprint",
    "row_fingerprints",
    "row_uniforms",
]

Hashes: TypeAlias = NDArray[np.bytes_]

_CELLS_AT_ONCE = 2**15  # what is hashed at once stays in the cache of a processor
# Keys are made from numbers: columns of X count from 0, those of y from here ...
_FIRST_TARGET_COLUMN = 2**40
_NUMBER_OF_SHAPE = 2**41  # ... and this one stands for the numbers of columns
_BITS_OF_FRACTION = 53  # of a float64


def row_fingerprints(X: Any, y: Any = None, *, at_float32: bool = False) -> Hashes:
    """Return a 16-byte hash of each row of X (and of y), (n,) of dtype 'S16'.

    X may be an array of any dtype, nested lists, a SciPy sparse matrix, a pandas or a polars frame;
    the columns are taken in the order given, and their names are not part of a row. With
    `at_float32`, numbers are rounded to float32 first, so that a float32 copy of decimals meets its
    original.
    """
    # 1. Hash the cells of X and add them up. A hash has two halves of 64 bits: (2, n).
    features = _as_table(X, "X")
    n_rows, n_features = features.shape
    sums = _sum_of_cells(features, first_column=0, at_float32=at_float32)

    # 2. Add the cells of y.
    n_targets = 0
    if y is not None:
        targets = _as_table(y, "y")
        n_targets = targets.shape[1]
        if targets.shape[0] != n_rows:
            raise ValueError(
                f"X has {n_rows} rows and y has {targets.shape[0]}; give one target per row."
            )
        sums = sums + _sum_of_cells(
            targets, first_column=_FIRST_TARGET_COLUMN, at_float32=at_float32
        )

    # 3. Add the numbers of columns: otherwise a row of 3 cells would equal one of 4 with a 0.
    sums = sums + _hash_of_shape(n_features, n_targets)

    # 4. Hash the sums, and write both halves of a row one after the other: 16 bytes.
    halves = np.ascontiguousarray(hash_words(sums).T, dtype="<u8")
    return halves.view("S16")[:, 0]


def _hash_of_shape(n_features: int, n_targets: int) -> Words:
    """Hash the numbers of columns of X and y, written into one 64-bit integer, (2, 1)."""
    both_numbers = np.array(n_features + (n_targets << 32), dtype=np.uint64)
    key = _column_keys(_NUMBER_OF_SHAPE, 1)
    return hash_words(both_numbers ^ key)


def row_uniforms(X: Any, *, seed: int) -> Floats:
    """Return one number in [0, 1) per row of X, which randomised scores use as a random number.

    It is a hash of the seed and the row's features x, and depends neither on y nor on the row's
    position or batch: a row alone gets the same number as in a table. Given the seed it is a fixed
    function of x, so scores stay exchangeable when rows are.
    """
    halves = np.ascontiguousarray(row_fingerprints(X)).view("<u8").reshape(-1, 2)
    key, _ = halves_of_digest(b"dco uniforms", str(int(seed)).encode())
    words = hash_words(hash_words(halves[:, 0] ^ np.uint64(key)) + halves[:, 1])

    # a float64 holds 53 bits: keep the first 53 of the word's 64, as an integer below 2**53
    integers = words >> np.uint64(64 - _BITS_OF_FRACTION)
    return integers.astype(np.float64) * 2.0**-_BITS_OF_FRACTION


# ---------------------------------------------------------------------------------- compare hashes


def role_fingerprint(hashes: Hashes) -> str:
    """Return a digest, in hex, of the rows of one role (such as calibration), from their hashes.

    It does not change with the order of the rows; a row that comes twice counts twice.
    """
    digest = blake2b(struct.pack("<Q", len(hashes)), digest_size=16, person=b"dco role")
    digest.update(_sort_hashes(np.ascontiguousarray(hashes, dtype="S16")).data)
    return digest.hexdigest()


def _sort_hashes(hashes: Hashes) -> Hashes:
    """Sort 16-byte hashes by their bytes.

    Sorting by the first eight bytes, as integers, is many times faster and gives the same order,
    unless different hashes share their first eight bytes. Then they are sorted by all bytes.
    """
    # Read as big-endian integers, bytes are ordered by their first byte, then the second, ...
    halves = hashes.view(">u8").reshape(-1, 2)
    first_halves = halves[:, 0].astype(np.uint64)
    order = np.argsort(first_halves)
    sorted_hashes = hashes[order]

    # Compare each hash with the next one.
    sorted_halves = first_halves[order]
    has_same_half = sorted_halves[1:] == sorted_halves[:-1]
    is_different = sorted_hashes[1:] != sorted_hashes[:-1]
    if np.any(has_same_half & is_different):
        return np.sort(hashes)
    return sorted_hashes


def overlap(a: Hashes, b: Hashes) -> Integers:
    """Return the positions of the rows of `a` that are also in `b`, ascending.

    Both are hashes of rows. The same as ``np.flatnonzero(np.isin(a, b))``, but many times faster:
    whole hashes, which are bytes, are compared only where their first halves, which are integers,
    are equal.
    """
    has_equal_half = _are_among(first_words(a), first_words(b))
    maybe_in_b = np.flatnonzero(has_equal_half)
    is_in_b = np.isin(a[maybe_in_b], b)
    return maybe_in_b[is_in_b]


def _are_among(words: Words, others: Words) -> Bools:
    """Tell for each word whether it is among the others, like ``np.isin`` but faster.

    Both are sorted, so that the lookups go through memory in one direction.
    """
    are_among = np.zeros(words.size, dtype=bool)
    if others.size == 0:
        return are_among

    ascending_others = np.sort(others)
    order = np.argsort(words)
    ascending_words = words[order]
    positions = np.searchsorted(ascending_others, ascending_words)
    positions = np.minimum(positions, others.size - 1)  # larger than all others: compare the last
    are_among[order] = ascending_others[positions] == ascending_words
    return are_among


def first_words(hashes: Hashes) -> Words:
    """Return the first 64 bits of each hash, which are compared much faster than all."""
    return np.ascontiguousarray(hashes, dtype="S16").view("<u8")[::2].astype(np.uint64)


def drop_repeats(X: Any, y: Any = None) -> Integers:
    """Return the positions of the rows that remain without repeats: rows a, b, a -> [0, 1].

    It is for rows that were recorded twice by mistake, and to be used before any split: what is
    certified afterwards is coverage of rows drawn like the distinct ones.
    """
    _, first_positions = np.unique(row_fingerprints(X, y), return_index=True)
    return np.sort(first_positions)


def codes_of_values(
    values: Any, *, name: str = "groups", missing: bool = False
) -> tuple[Integers, int]:
    """Number the distinct values in order of first appearance: ["b", "a", "b"] -> ([0, 1, 0], 2).

    `values` has one value (or one row of values) per row. Return the number of each row's value,
    (n,), and how many distinct values there are. 1 and 1.0 are one value. A missing value is
    refused unless `missing` allows it; `name` is what the error calls the values.
    """
    has_one_axis = isinstance(values, np.ndarray) and values.ndim == 1
    are_integers = has_one_axis and values.dtype.kind in "iub"
    keys = values if are_integers else row_fingerprints(values)

    # 1. Refuse missing values; integers cannot be missing.
    if not are_integers and not missing:
        missing_key = row_fingerprints(np.array([None], dtype=object))[0]
        missing_rows = np.flatnonzero(keys == missing_key)
        if missing_rows.size:
            raise ValueError(
                f"{name} is missing for {missing_rows.size} rows (first: row {missing_rows[0]}); "
                f"give each row a label."
            )

    # 2. Number the distinct values in sorted order: ["b", "a", "b"] -> [1, 0, 1].
    _, first_rows, sorted_numbers = np.unique(keys, return_index=True, return_inverse=True)

    # 3. Number them again by the row in which each appears first: [1, 0, 1] -> [0, 1, 0].
    n_distinct = int(first_rows.size)
    in_order_of_appearance = np.argsort(first_rows)
    new_number_of = np.empty(n_distinct, dtype=np.int64)
    new_number_of[in_order_of_appearance] = np.arange(n_distinct)
    return new_number_of[sorted_numbers], n_distinct


# ---------------------------------------------------------------------------------------- sum cells


def _sum_of_cells(table: Any, *, first_column: int, at_float32: bool) -> Words:
    """Hash the cells of a table, each with the key of its column, and add up each row, (2, n).

    A cell is two words (64-bit integers that stand for its value), and both are added up. The table
    is a frame, a CSR matrix or an array. `first_column` is the number of its first column, from
    which the keys are made.
    """
    keys = _column_keys(first_column, table.shape[1])
    if issparse(table):
        return _sum_of_sparse_cells(table, keys, at_float32)
    if isinstance(table, np.ndarray) and table.dtype.kind in "biuf":
        return _sum_of_numbers(table, keys, at_float32)

    sums = np.zeros((2, table.shape[0]), np.uint64)
    for column in range(table.shape[1]):
        words = column_words(_column(table, column), at_float32=at_float32)
        sums += hash_words(words ^ keys[:, [column]])
    return sums


def _sum_of_numbers(table: Any, keys: Words, at_float32: bool) -> Words:
    """Compute `_sum_of_cells` of an array of numbers, some rows at a time."""
    n_rows, n_columns = table.shape
    sums = np.zeros((2, n_rows), np.uint64)
    rows_at_once = max(1, _CELLS_AT_ONCE // max(1, n_columns))
    for start in range(0, n_rows, rows_at_once):
        rows = slice(start, start + rows_at_once)
        words = number_words(table[rows].T, at_float32=at_float32)  # (1 or 2, columns, rows)
        sums[:, rows] = hash_words(words ^ keys[:, :, None]).sum(axis=1)
    return sums


def _sum_of_sparse_cells(table: Any, keys: Words, at_float32: bool) -> Words:
    """Compute `_sum_of_cells` of a CSR matrix (which stores no zeros) from its stored cells alone.

    The sum of a row over all columns, of hash(word XOR key), is written as

        sum over columns of hash(key)  +  sum over stored cells of hash(word XOR key) - hash(key)

    since the word of a zero is 0. The first sum is the same in every row. `keys` are the columns'
    keys, (2, columns); sums are modulo 2**64.
    """
    n_rows = table.shape[0]
    hashes_of_zeros = hash_words(keys)  # (2, columns)
    sum_of_row_of_zeros = hashes_of_zeros.sum(axis=1, keepdims=True)

    # Some rows at a time, so that what is hashed stays in the processor's cache.
    sums_of_stored = np.zeros((2, n_rows), np.uint64)
    rows_at_once = max(1, _CELLS_AT_ONCE * n_rows // max(1, table.nnz))
    for start in range(0, n_rows, rows_at_once):
        rows = slice(start, start + rows_at_once)
        part = table[rows]
        columns = part.indices  # of the stored cells, row after row
        words = number_words(part.data, at_float32=at_float32)
        changes = hash_words(words ^ keys[:, columns]) - hashes_of_zeros[:, columns]
        sums_of_stored[:, rows] = _sum_by_row(changes, row_starts=part.indptr)
    return np.asarray(sums_of_stored + sum_of_row_of_zeros)


def _sum_by_row(cells: Words, *, row_starts: Integers) -> Words:
    """Add up the cells of each row modulo 2**64: (2, cells) -> (2, rows).

    Row i has the cells from row_starts[i] to row_starts[i + 1].
    """
    sums_before = np.zeros((len(cells), cells.shape[1] + 1), np.uint64)
    np.cumsum(cells, axis=1, out=sums_before[:, 1:])
    return np.diff(sums_before[:, row_starts])


def _column_keys(first: int, n_columns: int) -> Words:
    """Return two keys for each column, (2, n_columns), one for each word of its cells.

    The keys of column c are what SplitMix64 gives in the states 2 c + 1 and 2 c + 2. `first` is the
    number of the first column.
    """
    columns = np.arange(first, first + n_columns, dtype=np.uint64)
    states = 2 * columns + np.array([[1], [2]], dtype=np.uint64)
    return hash_words(states * np.uint64(0x9E3779B97F4A7C15))


def _as_table(values: Any, name: str) -> Any:
    """Return values in a form with the shape (n, columns): a frame, a CSR matrix or an array.

    A series becomes a frame of one column, nested lists become an array, and an array of more than
    two axes gets one column for each of a row's numbers. `name` is what an error calls the values.
    """
    if issparse(values):
        sparse: Any = values
        # A cell may be stored in several parts, which are added up: in a copy, not in the caller's
        # matrix. This also sorts the columns of each row.
        is_canonical = getattr(sparse, "has_canonical_format", False)
        matrix = sparse.tocsr(copy=not is_canonical)
        matrix.sum_duplicates()
        return matrix
    if _is_pandas(values) or _is_polars(values):
        return values.to_frame() if len(values.shape) == 1 else values

    is_plain_array = isinstance(values, np.ndarray) and values.dtype.kind != "V"
    array = np.asarray(values) if is_plain_array else as_labels(values)
    if array.ndim == 0:
        raise ValueError(f"{name} must have one entry per row, got the single value {values!r}.")
    return array.reshape(array.shape[0], int(np.prod(array.shape[1:])))


def _column(table: Any, position: int) -> Any:
    """Return one column of an array or a frame."""
    if isinstance(table, np.ndarray):
        return table[:, position]
    return table.iloc[:, position] if _is_pandas(table) else table.to_series(position)


def _is_pandas(values: Any) -> bool:
    """Return whether this is a frame, a series or an index of pandas."""
    return hasattr(values, "iloc") and hasattr(values, "to_numpy")


def _is_polars(values: Any) -> bool:
    """Return whether this is a frame or a series of polars."""
    return type(values).__module__.startswith("polars.") and hasattr(values, "shape")
