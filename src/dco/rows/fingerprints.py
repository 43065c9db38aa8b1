"""Fingerprints of rows and of objects.

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

Equal objects have equal digests, in every process, and after saving and loading. `joblib.hash` is
not enough: it tells shared parts from copies of them and arrays by their memory layout, and fails
on functions inside functions.
"""

from __future__ import annotations

import datetime
import functools
import math
import struct
import types
from dataclasses import dataclass, field, fields, is_dataclass
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
_CIRCLE = (b"circle:", b"back:")  # how a part is written that leads back to itself


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
        return _halves(b"nested", object_fingerprint(value).encode())
    # a period, an interval
    if isinstance(value, datetime.time) or type(value).__module__.split(".")[0] == "pandas":
        return _halves(b"other", f"{type(value).__name__} {value}".encode())
    raise TypeError(
        f"A cell holds a {type(value).__module__}.{type(value).__qualname__}, which has no "
        f"canonical form: rows cannot be "
        "compared. Give numbers, text, dates, categories or plain containers of them."
    )


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


# ----------------------------------------------------------------------------------------------
# objects


def object_fingerprint(thing: Any) -> str:
    """A digest, in hex, of any object: nested plain data, arrays, dataclasses, fitted estimators.

    Dictionaries and sets are read in a canonical order, arrays by dtype, shape and values (not by
    memory layout), classes and functions by name (a lambda by its code), any other object by what
    it would hand to pickle. A part that occurs twice counts like two copies of it, and is read
    once.
    """
    return blake2b(_Walk().written(thing), digest_size=16, person=b"dco structure").hexdigest()


@dataclass(eq=False)
class _Walk:
    """One walk over a structure, which writes each part of it once.

    A part is written as the digest of a tag and of its own parts. One that is met again is written
    as before, shared or copied. A part that leads back to itself has no digest before its whole
    circle is read, so within a circle a part that is met again is written as how far back it is.
    Circles (strongly connected components) are found as Tarjan (1972) does: `open` holds the parts
    whose circle is not yet complete, in the order in which they were met, and `back` the earliest
    of them that the part being read leads to.
    """

    parts: dict[int, bytes] = field(default_factory=dict)
    open: list[int] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)  # of the parts in `open`
    back: int = 0
    in_circle: bool = False  # whether the part being read leads to a circle
    kept: list[Any] = field(default_factory=list)  # an id is taken again once its object is gone

    def written(self, value: Any) -> bytes:
        """A value as bytes: plain values, classes and functions with a name of their own in full,
        all else by its digest.
        """
        if isinstance(value, np.generic):
            value = value.item() if value.dtype.kind in "biufSU" else np.asarray(value)
        if value is None or isinstance(value, (bool, int, complex)):
            return _tagged(
                "enum" if isinstance(value, Enum) else type(value).__name__, repr(value).encode()
            )
        if isinstance(value, float):
            return _tagged("float", struct.pack("<d", value if value == value else np.nan))
        if isinstance(value, str):
            return _tagged("str", value.encode("utf-8", "surrogatepass"))
        if isinstance(value, (bytes, bytearray)):
            return _tagged("bytes", bytes(value))
        named = isinstance(value, types.FunctionType | np.ufunc) and not set(b"<(") & set(
            _name_of(value)
        )
        if named or isinstance(value, (type, types.BuiltinFunctionType)):
            return _tagged("name", _name_of(value))
        own = id(value)
        if own in self.parts:
            self.in_circle |= self.parts[own].startswith(_CIRCLE)
            return self.parts[own]
        if own in self.places:
            self.back, self.in_circle = min(self.back, self.places[own]), True
            return _tagged("back", str(len(self.open) - self.places[own]).encode())
        above, place = (self.back, self.in_circle), len(self.open)
        self.kept.append(value)
        self.open.append(own)
        self.places[own] = self.back = place
        self.in_circle = False
        digest = blake2b(self._content(value), digest_size=32, person=b"dco part").digest()
        result = _tagged("circle" if self.in_circle else "part", digest)
        if self.back == place:  # nothing below leads further back: the circle is complete
            for number, member in enumerate(self.open[place:]):
                self.parts[member] = (
                    result if number == 0 else _tagged("circle", digest, str(number).encode())
                )
                del self.places[member]
            del self.open[place:]
        self.back, self.in_circle = min(above[0], self.back), above[1] or self.in_circle
        return result

    def _content(self, value: Any) -> bytes:
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, (dict, set, frozenset)):  # no order of their own: by what is written
            left_out = "_sklearn_version" if isinstance(value, dict) else None
            named = [key for key in value if not (isinstance(key, str) and key == left_out)]
            found = sorted((self.written(key), place) for place, key in enumerate(named))
            # which is met first would matter
            if sum(written.startswith(_CIRCLE) for written, _ in found) > 1:
                raise TypeError(
                    "A structure holds a set, or a dictionary with keys, of objects that lead "
                    "back to themselves: they have "
                    "no order, so it has no fingerprint. Keep them in a list."
                )
            if not isinstance(value, dict):
                return _tagged("set", *(written for written, _ in found))
            pairs = sorted((key, self.written(value[named[place]])) for key, place in found)
            return _tagged("dict", *(part for pair in pairs for part in pair))
        if type(value) in (list, tuple):
            return _tagged(type(value).__name__, *map(self.written, value))
        if isinstance(value, types.FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            around = [_code_parts(value.__code__), cells, value.__defaults__, value.__kwdefaults__]
            return _tagged("local", _name_of(value), self.written(around))
        if is_dataclass(value):
            parts = {f.name: getattr(value, f.name) for f in fields(value)}
            return _tagged("record", _name_of(type(value)), self.written(parts))
        if isinstance(value, np.random.RandomState | np.random.Generator):
            held = (
                value.get_state(legacy=False)
                if isinstance(value, np.random.RandomState)
                else value.bit_generator.state
            )
            return _tagged("random", self.written(held))
        # scikit-learn's search trees count queries
        if hasattr(value, "get_arrays") and hasattr(value, "reset_n_calls"):
            return _tagged(
                "tree",
                _name_of(type(value)),
                *(self.written(np.asarray(part)) for part in value.get_arrays()),
            )
        # without what SciPy has found out about it, and whatever its indices are stored as
        if hasattr(value, "tocoo"):
            cells = value.tocoo()
            at = np.asarray(cells.coords, dtype=np.int64)
            return _tagged(
                "sparse", _name_of(type(value)), self.written([cells.shape, cells.data, at])
            )
        try:
            reduced = value.__reduce_ex__(4)
        except TypeError:
            raise TypeError(
                f"A structure holds a {type(value).__module__}.{type(value).__qualname__}, which "
                f"cannot be written down, so "
                "it has no fingerprint. Use plain data, arrays, dataclasses or objects that can "
                "be pickled."
            ) from None
        if isinstance(reduced, str):
            return _tagged("global", _name_of(type(value)), reduced.encode())
        maker, arguments, *rest = reduced
        state: Any = rest[0] if rest else None
        # without attributes: None, or an empty dictionary once it was copied
        if isinstance(value, functools.partial):
            state = (*state[:3], state[3] or None)
        items = [list(part) if part is not None else None for part in rest[1:3]]
        return _tagged(
            "object",
            _name_of(type(value)),
            _name_of(maker),
            *map(self.written, (arguments, state, items)),
        )

    def _array(self, value: AnyArray) -> bytes:
        if isinstance(value, np.ma.MaskedArray):
            return _tagged(
                "masked", self.written(value.filled()), self.written(np.ma.getmaskarray(value))
            )
        # field by field: the bytes between fields are undefined
        if value.dtype.names and not value.dtype.hasobject:
            columns = (self._array(np.asarray(value[name])) for name in value.dtype.names)
            return _tagged("fields", repr(value.dtype.names).encode(), *columns)
        shape = repr(value.shape).encode()
        if value.dtype.hasobject:
            return _tagged("objects", shape, *map(self.written, value.ravel().tolist()))
        plain = np.asarray(value).astype(value.dtype.newbyteorder("<"), order="C", copy=False)
        # read where it lies, not copied
        data = plain.reshape(-1).view(np.uint8).data if plain.nbytes else b""
        return _tagged(
            "array", plain.dtype.str.encode(), shape, blake2b(data, digest_size=32).digest()
        )


def _code_parts(code: types.CodeType) -> list[Any]:
    """What a function does, the functions and comprehensions inside it included."""
    constants = [
        _code_parts(entry) if isinstance(entry, types.CodeType) else entry
        for entry in code.co_consts
    ]
    return [code.co_code, list(code.co_names), constants]


def _name_of(value: Any) -> bytes:
    own = (
        value.__name__
        if isinstance(value, np.ufunc)
        else getattr(value, "__qualname__", type(value).__qualname__)
    )
    return f"{getattr(value, '__module__', '')}.{own}".encode()


def _tagged(tag: str, *parts: bytes) -> bytes:
    return b"".join([tag.encode(), b":", *(struct.pack("<Q", len(part)) + part for part in parts)])
