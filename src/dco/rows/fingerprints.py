"""Fingerprints of rows.

The same row has the same 128-bit hash, however it is stored. Every cell is written as two 64-bit
words, its canonical form.

- Numbers and booleans: the bits of the float64, twice (1, 1.0, float32 1.0 and True agree, and so
  do 0.0 and -0.0). An integer that float64 cannot hold keeps all its digits.
- Missing is missing: NaN, None, NaT and pandas.NA agree.
- Dates are instants to the nanosecond (UTC where a time zone is known), durations likewise.
- Text, bytes and nested values: 128 bits of blake2b. A category is its value, never its code.

The hash has two lanes, one for each word. A lane mixes every word with a key of its column, sums
over the columns modulo 2**64, and mixes the sum with the numbers of columns. What a zero adds does
not depend on the row, so a sparse row is hashed by its other cells, and agrees with its dense copy.

Rows that differ in one number never collide, as mixing is one-to-one. Other rows collide with
probability 2**-128 for each pair: some pair among 10 million rows with probability 2**-82. Rows can
be made to collide on purpose.
"""

from __future__ import annotations

import datetime
import math
import struct
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from dco.foundations.arrays import AnyArray, Floats, Integers, as_labels

Hashes: TypeAlias = NDArray[np.bytes_]
Words: TypeAlias = NDArray[np.uint64]

_CELLS_AT_ONCE = 2**15  # what is mixed at once stays in the cache of a processor
# where the numbers of target columns begin, and the number of the shape's own key
_TARGETS, _SHAPE = 2**40, 2**41
_FLOAT_INTEGERS = 2.0**53  # every integer below is a float64, and 2**53 + 1 rounds to it
# of these types, values that are equal have the same words
_PLAIN = {str, bytes, int, float, bool, type(None)}


def row_fingerprints(X: Any, y: Any = None, *, at_float32: bool = False) -> Hashes:
    """A 16-byte hash of each row of X (and of y), (n,) of dtype 'S16'.

    X may be an array of any dtype, nested lists, a SciPy sparse matrix, a pandas or a polars frame;
    the columns are taken in the order given, and their names are not part of a row. With
    `at_float32` numbers are rounded to float32 first, so a float32 copy of decimals meets its
    original.
    """
    tables = [as_table(X, "X")] if y is None else [as_table(X, "X"), as_table(y, "y")]
    n, widths = tables[0].shape[0], [table.shape[1] for table in tables]
    if tables[-1].shape[0] != n:
        raise ValueError(
            f"X has {n} rows and y has {tables[-1].shape[0]}; give one target per row."
        )
    # 3 columns are not 4 with a 0
    shape = np.array(widths[0] + (widths[1] << 32 if y is not None else 0), dtype=np.uint64)
    sums = mixed(shape ^ column_keys(_SHAPE, 1))
    for table, first in zip(tables, (0, _TARGETS), strict=False):
        sums = sums + _table_sums(table, column_keys(first, table.shape[1]), at_float32)
    return np.ascontiguousarray(mixed(sums).T, dtype="<u8").view("S16")[:, 0]


def row_uniforms(X: Any, *, seed: int) -> Floats:
    """One number in [0, 1) per row, from a hash of (seed, x), for randomised scores.

    It depends neither on y nor on the row's position or batch: a row alone gets the same number as
    in a table. Given the seed it is a fixed function of x, so scores stay exchangeable when rows
    are.
    """
    first, second = np.ascontiguousarray(row_fingerprints(X)).view("<u8").reshape(-1, 2).T
    key, _ = _halves(b"dco uniforms", str(int(seed)).encode())
    return (mixed(mixed(first ^ np.uint64(key)) + second) >> np.uint64(11)).astype(
        np.float64
    ) * 2.0**-53


def role_fingerprint(hashes: Hashes) -> str:
    """A digest of a set of rows with their multiplicities, in hex: the order of the rows does not
    matter.
    """
    rows = np.ascontiguousarray(hashes, dtype="S16")
    first = rows.view(">u8")[::2].astype(np.uint64)
    # many times faster than by 16 bytes, and the same unless rows share half a hash
    order = np.argsort(first)
    first, ordered = first[order], rows[order]
    alike = np.flatnonzero(first[1:] == first[:-1])
    ordered = np.sort(rows) if np.any(ordered[alike] != ordered[alike + 1]) else ordered
    digest = blake2b(struct.pack("<Q", rows.size), digest_size=16, person=b"dco role")
    digest.update(ordered.data)
    return digest.hexdigest()


def overlap(a: Hashes, b: Hashes) -> Integers:
    """The positions of the rows of `a` that are also in `b`, ascending."""
    known, asked = np.sort(first_words(b)), first_words(a)
    order = np.argsort(asked)  # what is looked up in order is found in the cache of a processor
    places = np.searchsorted(known, asked[order])
    likely = (
        np.sort(order[known[np.minimum(places, known.size - 1)] == asked[order]])
        if known.size
        else order[:0]
    )
    return likely[np.isin(a[likely], b)] if likely.size else likely


def first_words(hashes: Hashes) -> Words:
    """The first 64 bits of each hash, which are compared much faster than all."""
    return np.ascontiguousarray(hashes, dtype="S16").view("<u8")[::2].astype(np.uint64)


def drop_repeats(X: Any, y: Any = None) -> Integers:
    """Positions of the first copy of each distinct row, ascending.

    For recording errors, before any split: what is certified afterwards is coverage of rows drawn
    like the distinct ones.
    """
    _, first = np.unique(row_fingerprints(X, y), return_index=True)
    return np.sort(first)


def codes_of_values(
    values: Any, *, name: str = "groups", missing: bool = False
) -> tuple[Integers, int]:
    """Each row's label as a code 0..G-1, in order of first appearance, and G.

    Labels 1 and 1.0 are one label. A missing label is refused unless `missing` allows it.
    """
    whole = isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "iub"
    keys = values if whole else row_fingerprints(values)
    if not whole and not missing:
        lost = np.flatnonzero(keys == row_fingerprints(np.array([None], dtype=object))[0])
        if lost.size:
            raise ValueError(
                f"{name} is missing for {lost.size} rows (first: row {lost[0]}); "
                f"give each row a label."
            )
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    place = np.empty(first.size, dtype=np.int64)
    # the same codes whatever the labels are stored as
    place[np.argsort(first)] = np.arange(first.size)
    return place[inverse], int(first.size)


# ----------------------------------------------------------------------------------------------
# words to hashes


def mixed(words: Words) -> Words:
    """A hash of each word, one-to-one, that spreads over all bits (the finaliser of SplitMix64):
    fast, and no secret.
    """
    found: Words = words ^ (words >> np.uint64(30))
    found *= np.uint64(0xBF58476D1CE4E5B9)
    found ^= found >> np.uint64(27)
    found *= np.uint64(0x94D049BB133111EB)
    found ^= found >> np.uint64(31)
    return found


def column_keys(first: int, width: int) -> Words:
    """The keys of columns, (2, width): SplitMix64 in the state of each column's number."""
    states = 2 * np.arange(first, first + width, dtype=np.uint64) + np.array(
        [[1], [2]], dtype=np.uint64
    )
    return mixed(states * np.uint64(0x9E3779B97F4A7C15))


def sums_by_row(cells: Words, matrix: Any) -> Words:
    """The sums over the cells of each row of a CSR matrix, modulo 2**64: (lanes, n) of (lanes,
    cells).
    """
    before = np.zeros((len(cells), cells.shape[1] + 1), np.uint64)
    np.cumsum(cells, axis=1, out=before[:, 1:])
    return np.diff(before[:, matrix.indptr])


def _table_sums(table: Any, keys: Words, at_float32: bool) -> Words:
    n, width = table.shape
    sums = np.zeros((2, n), np.uint64)
    if hasattr(table, "indptr"):  # sparse
        step, of_zeros = max(1, _CELLS_AT_ONCE * n // max(1, table.nnz)), mixed(keys)
        for start in range(0, n, step):
            part = table[start : start + step]
            cells = (
                mixed(_number_words(part.data, at_float32) ^ keys[:, part.indices])
                - of_zeros[:, part.indices]
            )
            sums[:, start : start + step] = sums_by_row(cells, part)
        return np.asarray(sums + of_zeros.sum(axis=1, keepdims=True))
    if isinstance(table, np.ndarray) and table.dtype.kind in "biuf":
        step = max(1, _CELLS_AT_ONCE // max(1, width))
        for start in range(0, n, step):
            words = _number_words(table[start : start + step].T, at_float32)
            sums[:, start : start + step] = mixed(words ^ keys[:, :, None]).sum(axis=1)
        return sums
    for j in range(width):
        sums += mixed(column_words(column_of(table, j), at_float32=at_float32) ^ keys[:, [j]])
    return sums


# ----------------------------------------------------------------------------------------------
# tables to columns


def as_table(values: Any, name: str) -> Any:
    """`values` as something with a (n, columns) shape: a frame, a CSR matrix or an array."""
    if issparse(values):
        table: Any = values
        matrix = table.tocsr(copy=not getattr(table, "has_canonical_format", False))
        matrix.sum_duplicates()  # also sorts the columns of each row
        return matrix
    if isinstance(values, np.ndarray) and values.dtype.kind != "V":
        array = np.asarray(values)
    elif is_pandas(values) or (
        type(values).__module__.startswith("polars.") and hasattr(values, "shape")
    ):
        return values.to_frame() if len(values.shape) == 1 else values
    else:
        array = as_labels(values)
    if array.ndim == 0:
        raise ValueError(f"{name} must have one entry per row, got the single value {values!r}.")
    return array.reshape(array.shape[0], int(np.prod(array.shape[1:])))


def column_of(table: Any, j: int) -> Any:
    """One column of an array or a frame."""
    if isinstance(table, np.ndarray):
        return table[:, j]
    return table.iloc[:, j] if is_pandas(table) else table.to_series(j)


def is_pandas(values: Any) -> bool:
    """Whether this is a frame, a series or an index of pandas."""
    return hasattr(values, "iloc") and hasattr(values, "to_numpy")


def plain_column(column: Any) -> AnyArray:
    """A pandas or polars column as a NumPy array; missing values become NaN, NaT or None."""
    dtype = column.dtype
    if hasattr(column, "null_count"):  # polars
        simple = dtype.is_integer() or dtype.is_float() or str(dtype) == "Boolean"
        if (simple and not column.null_count()) or str(dtype).startswith(("Date", "Duration")):
            return np.asarray(column.to_numpy())
        return np.fromiter(column.to_list(), dtype=object, count=len(column))
    if getattr(dtype, "tz", None) is not None:
        return np.asarray(column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy())
    if isinstance(dtype, np.dtype):
        return np.asarray(column.to_numpy())
    numpy_dtype = getattr(dtype, "numpy_dtype", None)
    if isinstance(numpy_dtype, np.dtype) and numpy_dtype.kind in "biuf" and not column.isna().any():
        return np.asarray(column.to_numpy(dtype=numpy_dtype))
    return np.fromiter(column, dtype=object, count=len(column))


# ----------------------------------------------------------------------------------------------
# columns to words


def column_words(column: Any, *, at_float32: bool = False) -> Words:
    """The words of one column, (2, n), or (1, n) where both are the same."""
    # a pandas category: the values, each canonised once
    if hasattr(column, "cat") and hasattr(column.cat, "codes"):
        words = column_words(column.cat.categories.to_series(), at_float32=at_float32)
        # code -1 picks this last one
        missing = np.full((len(words), 1), _number(math.nan), dtype=np.uint64)
        return np.hstack([words, missing])[:, np.asarray(column.cat.codes)]
    array = column if isinstance(column, np.ndarray) else plain_column(column)
    if array.dtype.kind in "biuf":
        return _number_words(array, at_float32)
    if array.dtype.kind in "mM":
        return _moment_words(array)
    if array.dtype.kind in "cV":
        raise TypeError(
            f"A column of dtype {array.dtype} has no canonical form; give real numbers, text, "
            f"dates or categories."
        )
    return cell_words(array.tolist(), at_float32=at_float32)


def cell_words(values: list[Any], *, at_float32: bool = False) -> Words:
    """The words of Python values, (2, n); equal values of the usual types are canonised once."""
    distinct = dict.fromkeys(values) if set(map(type, values)) <= _PLAIN else values
    words: Words = (
        np.array([_cell(value, at_float32) for value in distinct], dtype=np.uint64).reshape(-1, 2).T
    )
    if distinct is values:
        return words
    places = {value: place for place, value in enumerate(distinct)}
    return words[:, list(map(places.__getitem__, values))]


def _number_words(array: AnyArray, at_float32: bool) -> Words:
    """Words of numbers, (1, ...), or (2, ...) where an integer is too large for a float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        floats = array.astype(np.float32) if at_float32 else array
        floats = floats.astype(np.float64, order="C") + 0.0  # -0.0 becomes 0.0
    if array.dtype.kind == "f":
        floats[np.isnan(floats)] = np.nan  # one of many
    words = floats.view(np.uint64)[None]
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and not at_float32:
        large = np.abs(floats) >= _FLOAT_INTEGERS
        if large.any():
            words = np.repeat(words, 2, axis=0)
            words[:, large] = cell_words(array[large].tolist())
    return words


def _moment_words(array: AnyArray) -> Words:
    """Dates and durations: microseconds (which reach any year that people use), then the
    nanoseconds left over.
    """
    letter = array.dtype.kind
    whole, left = array.astype(f"{letter}8[us]").view(np.int64), np.zeros(array.shape, np.int64)
    if np.datetime_data(array.dtype)[0] in ("ns", "ps", "fs", "as"):
        whole, left = np.divmod(array.astype(f"{letter}8[ns]").view(np.int64), 1000)
    first = mixed(whole.view(np.uint64) ^ mixed(np.array([ord(letter)], dtype=np.uint64)))
    words = np.stack([first, mixed(first + left.view(np.uint64))])
    words[:, np.isnat(array)] = _number(math.nan)
    return words


def _cell(value: Any, at_float32: bool) -> tuple[int, int]:
    """The two words of one Python value."""
    if isinstance(value, str):
        return _halves(b"text", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, Enum):
        return _cell(value.value, at_float32)
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        value = math.nan
    if isinstance(value, (bool, np.bool_, int, np.integer, float, np.floating, Decimal, Fraction)):
        whole = isinstance(value, (bool, np.bool_, int, np.integer)) and not at_float32
        try:
            number = float(value)
        except OverflowError:  # an integer beyond float64
            number, whole = math.inf, True
        if whole and number != int(value):
            return _halves(b"integer", str(int(value)).encode())
        with np.errstate(over="ignore"):
            word = _number(float(np.float32(number)) if at_float32 else number)
        return word, word
    if isinstance(value, bytes):
        return _halves(b"bytes", value)
    if isinstance(value, (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)):
        first, second = _moment_words(np.asarray([_moment(value)]))[:, 0].tolist()
        return first, second
    if isinstance(value, (list, tuple, dict, set, frozenset, np.ndarray)):
        return _halves(b"nested", _nested_bytes(value))
    # a period, an interval
    if isinstance(value, datetime.time) or type(value).__module__.split(".")[0] == "pandas":
        return _halves(b"other", f"{type(value).__name__} {value}".encode())
    raise TypeError(
        f"A cell holds a {type(value).__module__}.{type(value).__qualname__}, which has no "
        f"canonical form: rows cannot be "
        "compared. Give numbers, text, dates, categories or plain containers of them."
    )


def _nested_bytes(value: Any) -> bytes:
    """Write a container as the words of its cells: sequences in order, sets and keys sorted."""

    def words(cell: Any) -> bytes:
        return struct.pack("<QQ", *_cell(cell, at_float32=False))

    if isinstance(value, dict):
        pairs = sorted(words(key) + words(cell) for key, cell in value.items())
        return b"mapping" + b"".join(pairs)
    if isinstance(value, set | frozenset):
        return b"set" + b"".join(sorted(map(words, value)))
    cells = value.tolist() if isinstance(value, np.ndarray) else value
    return b"sequence" + b"".join(map(words, cells))


def _moment(value: Any) -> Any:
    if getattr(value, "tzinfo", None) is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    for method in ("to_datetime64", "to_timedelta64"):  # pandas: keeps the nanoseconds
        if hasattr(value, method):
            return getattr(value, method)()
    return np.timedelta64(value) if isinstance(value, datetime.timedelta) else np.datetime64(value)


def _number(value: float) -> int:
    """The bits of a float64; zero has no sign, and NaN is one."""
    bits: int = struct.unpack("<Q", struct.pack("<d", value + 0.0 if value == value else math.nan))[
        0
    ]
    return bits


def _halves(kind: bytes, data: bytes) -> tuple[int, int]:
    first, second = struct.unpack("<QQ", blake2b(data, digest_size=16, person=kind).digest())
    return first, second
