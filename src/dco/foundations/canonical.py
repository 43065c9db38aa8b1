"""The canonical form of cells: the same words for the same value, however it is stored.

Every cell is written as two words, which are 64-bit integers. Equal values have equal words; other
values have other words, up to chance. Fingerprints of rows are made of them.

- Numbers and booleans: the bits of the float64, twice (1, 1.0, float32 1.0 and True agree, and so
  do 0.0 and -0.0). An integer that float64 cannot hold keeps all its digits.
- Missing is missing: NaN, None, NaT and pandas.NA agree.
- Dates are instants to the nanosecond (UTC where a time zone is known), durations likewise.
- Text, bytes and nested values: 128 bits of blake2b. A category is its value, never its code.
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

from dco.foundations.arrays import AnyArray

__all__ = ["Words", "column_words", "halves_of_digest", "mix", "number_words"]

Words: TypeAlias = NDArray[np.uint64]

_FLOAT_INTEGERS = 2.0**53  # every integer below is a float64, and 2**53 + 1 rounds to it
# Of these types, values that are equal have the same words.
_PLAIN_TYPES = {str, bytes, int, float, bool, type(None)}
_MISSING_TYPES = ("NAType", "NaTType")
_INTEGERS = (bool, np.bool_, int, np.integer)
_NUMBERS = (*_INTEGERS, float, np.floating, Decimal, Fraction)
_FINE_UNITS = ("ns", "ps", "fs", "as")  # of dates, below the microsecond


def mix(words: Words) -> Words:
    """Hash each word, one-to-one, so that it spreads over all bits.

    This is the finaliser of SplitMix64: fast, and no secret.
    """
    mixed: Words = words ^ (words >> np.uint64(30))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def halves_of_digest(kind: bytes, data: bytes) -> tuple[int, int]:
    """Return the two words of a 128-bit digest; `kind` keeps data of different kinds apart."""
    first, second = struct.unpack("<QQ", blake2b(data, digest_size=16, person=kind).digest())
    return first, second


# ------------------------------------------------------------------------------------------ columns


def column_words(column: Any, *, at_float32: bool = False) -> Words:
    """Return the words of one column, (2, n), or (1, n) where both words are the same.

    With `at_float32`, numbers are rounded to single precision first.
    """
    if hasattr(column, "cat") and hasattr(column.cat, "codes"):
        return _category_words(column, at_float32)

    array = column if isinstance(column, np.ndarray) else _to_numpy(column)
    if array.dtype.kind in "biuf":
        return number_words(array, at_float32=at_float32)
    if array.dtype.kind in "mM":
        return _moment_words(array)
    if array.dtype.kind in "cV":
        raise TypeError(
            f"A column of dtype {array.dtype} has no canonical form; give real numbers, text, "
            f"dates or categories."
        )
    return _cell_words(array.tolist(), at_float32)


def _category_words(column: Any, at_float32: bool) -> Words:
    """Return the words of a pandas category. Each of its values is read once."""
    words = column_words(column.cat.categories.to_series(), at_float32=at_float32)
    missing = np.full((len(words), 1), _number_word(math.nan), dtype=np.uint64)
    words_and_missing = np.hstack([words, missing])  # the code -1 picks the last one
    return words_and_missing[:, np.asarray(column.cat.codes)]


def _to_numpy(column: Any) -> AnyArray:
    """Convert a pandas or polars column; missing values become NaN, NaT or None."""
    if hasattr(column, "null_count"):
        return _polars_to_numpy(column)

    dtype = column.dtype
    if getattr(dtype, "tz", None) is not None:
        return np.asarray(column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy())
    if isinstance(dtype, np.dtype):
        return np.asarray(column.to_numpy())
    numpy_dtype = getattr(dtype, "numpy_dtype", None)  # of a nullable type
    is_numeric = isinstance(numpy_dtype, np.dtype) and numpy_dtype.kind in "biuf"
    if is_numeric and not column.isna().any():
        return np.asarray(column.to_numpy(dtype=numpy_dtype))
    return np.fromiter(column, dtype=object, count=len(column))


def _polars_to_numpy(column: Any) -> AnyArray:
    """Convert a polars column; gaps among numbers or booleans make it an array of objects."""
    dtype = column.dtype
    is_numeric = dtype.is_integer() or dtype.is_float() or str(dtype) == "Boolean"
    is_moment = str(dtype).startswith(("Date", "Duration"))
    if is_moment or (is_numeric and column.null_count() == 0):
        return np.asarray(column.to_numpy())
    return np.fromiter(column.to_list(), dtype=object, count=len(column))


def number_words(array: AnyArray, *, at_float32: bool = False) -> Words:
    """Return words of numbers, (1, ...), or (2, ...) where an integer exceeds the float64s."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = array.astype(np.float32) if at_float32 else array
        floats = rounded.astype(np.float64, order="C") + 0.0  # -0.0 becomes 0.0
    if array.dtype.kind == "f":
        floats[np.isnan(floats)] = np.nan  # one of many
    words = floats.view(np.uint64)[None]

    is_large_type = array.dtype.kind in "iu" and array.dtype.itemsize == 8
    if is_large_type and not at_float32:
        is_large = np.abs(floats) >= _FLOAT_INTEGERS
        if is_large.any():
            words = np.repeat(words, 2, axis=0)
            words[:, is_large] = _cell_words(array[is_large].tolist(), at_float32)
    return words


def _moment_words(array: AnyArray) -> Words:
    """Return the two words of each date or duration, (2, n).

    A moment is split into whole microseconds, which reach any year that people use, and the
    nanoseconds beyond them. The first word hashes the microseconds, the second word both parts.
    """
    letter = array.dtype.kind  # M for dates, m for durations

    # 1. Split into microseconds and nanoseconds; the same moment gives the same two integers.
    unit = np.datetime_data(array.dtype)[0]
    if unit in _FINE_UNITS:
        in_nanoseconds = array.astype(f"{letter}8[ns]").view(np.int64)
        microseconds, nanoseconds = np.divmod(in_nanoseconds, 1000)
    else:
        microseconds = array.astype(f"{letter}8[us]").view(np.int64)
        nanoseconds = np.zeros(array.shape, np.int64)

    # 2. Hash them, with a key that keeps dates apart from durations.
    key = mix(np.array([ord(letter)], dtype=np.uint64))
    first = mix(microseconds.view(np.uint64) ^ key)
    second = mix(first + nanoseconds.view(np.uint64))
    words = np.stack([first, second])

    # 3. A missing moment is written like any missing value.
    words[:, np.isnat(array)] = _number_word(math.nan)
    return words


def _cell_words(values: list[Any], at_float32: bool) -> Words:
    """Return the words of Python values, (2, n).

    Values of usual types are read once if they repeat.
    """
    if not set(map(type, values)) <= _PLAIN_TYPES:
        return _stack_words(values, at_float32)
    distinct = list(dict.fromkeys(values))
    words = _stack_words(distinct, at_float32)
    position_of = {value: position for position, value in enumerate(distinct)}
    positions = list(map(position_of.__getitem__, values))  # faster than a loop over rows
    return words[:, positions]


def _stack_words(values: list[Any], at_float32: bool) -> Words:
    """Return the words of Python values, (2, n), each value read by itself."""
    words = np.array([_words_of(value, at_float32) for value in values], dtype=np.uint64)
    return words.reshape(-1, 2).T


# -------------------------------------------------------------------------------------------- cells


def _words_of(value: Any, at_float32: bool) -> tuple[int, int]:
    """Return the two words of one Python value."""
    if isinstance(value, str):
        return halves_of_digest(b"text", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, Enum):
        return _words_of(value.value, at_float32)
    if value is None or type(value).__name__ in _MISSING_TYPES:
        word = _number_word(math.nan)
        return word, word
    if isinstance(value, _NUMBERS):
        return _words_of_number(value, at_float32)
    if isinstance(value, bytes):
        return halves_of_digest(b"bytes", value)
    if isinstance(value, datetime.date | datetime.timedelta | np.datetime64 | np.timedelta64):
        first, second = _moment_words(np.asarray([_to_moment(value)]))[:, 0].tolist()
        return first, second
    if isinstance(value, list | tuple | dict | set | frozenset | np.ndarray):
        return halves_of_digest(b"nested", _nested_bytes(value))
    is_of_pandas = type(value).__module__.split(".")[0] == "pandas"  # a period, an interval
    if isinstance(value, datetime.time) or is_of_pandas:
        return halves_of_digest(b"other", f"{type(value).__name__} {value}".encode())
    raise TypeError(
        f"A cell holds a {type(value).__module__}.{type(value).__qualname__}, which has no "
        f"canonical form: rows cannot be compared. Give numbers, text, dates, categories or plain "
        f"containers of them."
    )


def _words_of_number(value: Any, at_float32: bool) -> tuple[int, int]:
    """Return the words of a number: its float64, or the digits of an integer that has none."""
    try:
        number = float(value)
    except OverflowError:
        return halves_of_digest(b"integer", str(int(value)).encode())

    if isinstance(value, _INTEGERS) and not at_float32 and number != int(value):
        return halves_of_digest(b"integer", str(int(value)).encode())
    if at_float32:
        with np.errstate(over="ignore"):
            number = float(np.float32(number))
    word = _number_word(number)
    return word, word


def _number_word(number: float) -> int:
    """Return the bits of a float64; zero has no sign, and NaN is one."""
    canonical = math.nan if math.isnan(number) else number + 0.0
    (word,) = struct.unpack("<Q", struct.pack("<d", canonical))
    return int(word)


def _to_moment(value: Any) -> Any:
    """Convert a date or duration to NumPy's, in UTC where a time zone is known."""
    if getattr(value, "tzinfo", None) is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    for method in ("to_datetime64", "to_timedelta64"):  # pandas: keeps the nanoseconds
        if hasattr(value, method):
            return getattr(value, method)()
    return np.timedelta64(value) if isinstance(value, datetime.timedelta) else np.datetime64(value)


def _nested_bytes(value: Any) -> bytes:
    """Write a container as the words of its cells: sequences in order, sets and keys sorted."""

    def to_bytes(cell: Any) -> bytes:
        return struct.pack("<QQ", *_words_of(cell, at_float32=False))

    if isinstance(value, dict):
        pairs = sorted(to_bytes(key) + to_bytes(cell) for key, cell in value.items())
        return b"mapping" + b"".join(pairs)
    if isinstance(value, set | frozenset):
        return b"set" + b"".join(sorted(map(to_bytes, value)))
    cells = value.tolist() if isinstance(value, np.ndarray) else value
    return b"sequence" + b"".join(map(to_bytes, cells))
