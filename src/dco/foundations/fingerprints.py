"""Fingerprints of rows: the same row has the same 128-bit hash, however it is stored.

Every cell is written in its canonical form (`canonical`), as two 64-bit words. The hash has two
lanes, one for each word. A lane mixes every word with a key of its column, sums over the columns
modulo 2**64, and mixes the sum with the numbers of columns. What a zero adds does not depend on the
row, so a sparse row is hashed by its other cells, and agrees with its dense copy.

Rows that differ in one number never collide, as mixing is one-to-one. Other rows collide with
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

from dco.foundations.arrays import Floats, Integers, as_labels
from dco.foundations.canonical import Words, column_words, halves_of_digest, mix, number_words

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

_CELLS_AT_ONCE = 2**15  # what is mixed at once stays in the cache of a processor
# Where the numbers of target columns begin, and the number of the shape's own key.
_TARGETS = 2**40
_SHAPE = 2**41


def row_fingerprints(X: Any, y: Any = None, *, at_float32: bool = False) -> Hashes:
    """Return a 16-byte hash of each row of X (and of y), (n,) of dtype 'S16'.

    X may be an array of any dtype, nested lists, a SciPy sparse matrix, a pandas or a polars frame;
    the columns are taken in the order given, and their names are not part of a row. With
    `at_float32`, numbers are rounded to float32 first, so that a float32 copy of decimals meets its
    original.
    """
    features = _as_table(X, "X")
    n_rows, n_features = features.shape
    sums = _sum_columns(features, first_column=0, at_float32=at_float32)

    shape_code = n_features
    if y is not None:
        targets = _as_table(y, "y")
        if targets.shape[0] != n_rows:
            raise ValueError(
                f"X has {n_rows} rows and y has {targets.shape[0]}; give one target per row."
            )
        sums = sums + _sum_columns(targets, first_column=_TARGETS, at_float32=at_float32)
        shape_code += targets.shape[1] << 32

    # 3 columns are not 4 with a 0
    shape_word = np.array(shape_code, dtype=np.uint64)
    sums = sums + mix(shape_word ^ _column_keys(_SHAPE, 1))
    return np.ascontiguousarray(mix(sums).T, dtype="<u8").view("S16")[:, 0]


def row_uniforms(X: Any, *, seed: int) -> Floats:
    """Return one number in [0, 1) per row, from a hash of (seed, x), for randomised scores.

    It depends neither on y nor on the row's position or batch: a row alone gets the same number as
    in a table. Given the seed it is a fixed function of x, so scores stay exchangeable when rows
    are.
    """
    lanes = np.ascontiguousarray(row_fingerprints(X)).view("<u8").reshape(-1, 2)
    key, _ = halves_of_digest(b"dco uniforms", str(int(seed)).encode())
    words = mix(mix(lanes[:, 0] ^ np.uint64(key)) + lanes[:, 1])
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


# ---------------------------------------------------------------------------------- compare hashes


def role_fingerprint(hashes: Hashes) -> str:
    """Return a digest of a set of rows with their multiplicities, in hex.

    The order of the rows does not matter.
    """
    digest = blake2b(struct.pack("<Q", len(hashes)), digest_size=16, person=b"dco role")
    digest.update(_sort_hashes(np.ascontiguousarray(hashes, dtype="S16")).data)
    return digest.hexdigest()


def _sort_hashes(hashes: Hashes) -> Hashes:
    """Sort hashes by their bytes.

    They are sorted by their first eight bytes, many times faster than by all. Only where different
    hashes share these is the order another one, and then all bytes are sorted by.
    """
    first_halves = hashes.view(">u8")[::2].astype(np.uint64)
    order = np.argsort(first_halves)
    sorted_halves = first_halves[order]
    by_half = hashes[order]

    shares_half = np.flatnonzero(sorted_halves[1:] == sorted_halves[:-1])
    if np.any(by_half[shares_half] != by_half[shares_half + 1]):
        return np.sort(hashes)
    return by_half


def overlap(a: Hashes, b: Hashes) -> Integers:
    """Return the positions of the rows of `a` that are also in `b`, ascending."""
    if b.size == 0:
        return np.empty(0, dtype=np.int64)

    # 1. Compare first halves, which is fast. Lookups in ascending order use the processor's cache.
    halves_of_a = first_words(a)
    halves_of_b = np.sort(first_words(b))
    order = np.argsort(halves_of_a)
    ascending = halves_of_a[order]
    places = np.minimum(np.searchsorted(halves_of_b, ascending), halves_of_b.size - 1)
    shares_half = np.sort(order[halves_of_b[places] == ascending])
    if shares_half.size == 0:
        return shares_half

    # 2. Compare whole hashes where the first halves are equal.
    return shares_half[np.isin(a[shares_half], b)]


def first_words(hashes: Hashes) -> Words:
    """Return the first 64 bits of each hash, which are compared much faster than all."""
    return np.ascontiguousarray(hashes, dtype="S16").view("<u8")[::2].astype(np.uint64)


def drop_repeats(X: Any, y: Any = None) -> Integers:
    """Return the positions of the first copy of each distinct row, ascending.

    For recording errors, before any split: what is certified afterwards is coverage of rows drawn
    like the distinct ones.
    """
    _, first = np.unique(row_fingerprints(X, y), return_index=True)
    return np.sort(first)


def codes_of_values(
    values: Any, *, name: str = "groups", missing: bool = False
) -> tuple[Integers, int]:
    """Return each row's label as a code 0..G-1, in order of first appearance, and G.

    Labels 1 and 1.0 are one label. A missing label is refused unless `missing` allows it.
    """
    has_one_axis = isinstance(values, np.ndarray) and values.ndim == 1
    are_integers = has_one_axis and values.dtype.kind in "iub"
    keys = values if are_integers else row_fingerprints(values)

    if not are_integers and not missing:
        missing_key = row_fingerprints(np.array([None], dtype=object))[0]
        missing_rows = np.flatnonzero(keys == missing_key)
        if missing_rows.size:
            raise ValueError(
                f"{name} is missing for {missing_rows.size} rows (first: row {missing_rows[0]}); "
                f"give each row a label."
            )

    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    code_by_appearance = np.empty(first.size, dtype=np.int64)
    code_by_appearance[np.argsort(first)] = np.arange(first.size)
    return code_by_appearance[inverse], int(first.size)


# -------------------------------------------------------------------------------------- sum columns


def _sum_columns(table: Any, *, first_column: int, at_float32: bool) -> Words:
    """Mix the words of every cell with the key of its column, and add them up, (2, n)."""
    keys = _column_keys(first_column, table.shape[1])
    if issparse(table):
        return _sum_sparse(table, keys, at_float32)
    if isinstance(table, np.ndarray) and table.dtype.kind in "biuf":
        return _sum_numbers(table, keys, at_float32)

    sums = np.zeros((2, table.shape[0]), np.uint64)
    for column in range(table.shape[1]):
        words = column_words(_column(table, column), at_float32=at_float32)
        sums += mix(words ^ keys[:, [column]])
    return sums


def _sum_numbers(table: Any, keys: Words, at_float32: bool) -> Words:
    """Sum the columns of an array of numbers, some rows at a time."""
    n_rows, n_columns = table.shape
    sums = np.zeros((2, n_rows), np.uint64)
    step = max(1, _CELLS_AT_ONCE // max(1, n_columns))
    for start in range(0, n_rows, step):
        rows = slice(start, start + step)
        words = number_words(table[rows].T, at_float32=at_float32)
        sums[:, rows] = mix(words ^ keys[:, :, None]).sum(axis=1)
    return sums


def _sum_sparse(table: Any, keys: Words, at_float32: bool) -> Words:
    """Sum the columns of a CSR matrix: those of a row of zeros, and what its other cells change."""
    n_rows = table.shape[0]
    zeros = mix(keys)
    changes = np.zeros((2, n_rows), np.uint64)
    step = max(1, _CELLS_AT_ONCE * n_rows // max(1, table.nnz))
    for start in range(0, n_rows, step):
        part = table[start : start + step]
        words = number_words(part.data, at_float32=at_float32)
        changed = mix(words ^ keys[:, part.indices]) - zeros[:, part.indices]
        changes[:, start : start + step] = _sum_by_row(changed, part.indptr)
    return np.asarray(changes + zeros.sum(axis=1, keepdims=True))


def _sum_by_row(cells: Words, ends_of_rows: Integers) -> Words:
    """Add up the cells of each row modulo 2**64, (2, n) of (2, cells)."""
    running = np.zeros((len(cells), cells.shape[1] + 1), np.uint64)
    np.cumsum(cells, axis=1, out=running[:, 1:])
    return np.diff(running[:, ends_of_rows])


def _column_keys(first: int, n_columns: int) -> Words:
    """Return a key for each column, (2, n_columns): SplitMix64 in the state of its number."""
    numbers = np.arange(first, first + n_columns, dtype=np.uint64)
    states = 2 * numbers + np.array([[1], [2]], dtype=np.uint64)
    return mix(states * np.uint64(0x9E3779B97F4A7C15))


def _as_table(values: Any, name: str) -> Any:
    """Return something with a (n, columns) shape: a frame, a CSR matrix or an array."""
    if issparse(values):
        sparse: Any = values
        matrix = sparse.tocsr(copy=not getattr(sparse, "has_canonical_format", False))
        matrix.sum_duplicates()  # also sorts the columns of each row
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
