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

__all__ = ["Words", "column_words", "halves_of_digest", "hash_words", "number_words"]

# The two words of each of n cells, (2, n); (1, n) where both words of every cell are the same.
Words: TypeAlias = NDArray[np.uint64]

_FLOAT_INTEGERS = 2.0**53  # every integer below is a float64, and 2**53 + 1 rounds to it
# Of these types, values that are equal have the same words.
_PLAIN_TYPES = {str, bytes, int, float, bool, type(None)}
_MISSING_TYPES = ("NAType", "NaTType")
_INTEGERS = (bool, np.bool_, int, np.integer)
_NUMBERS = (*_INTEGERS, float, np.floating, Decimal, Fraction)
_DATES_AND_DURATIONS = (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)
_CONTAINERS = (list, tuple, dict, set, frozenset, np.ndarray)
_FINE_UNITS = ("ns", "ps", "fs", "as")  # of dates, below the microsecond


def hash_words(words: Words) -> Words:
    """Hash each word by itself, one-to-one, so that every bit of it changes about half of all bits.

    This is the finaliser of SplitMix64: fast, and no secret.
    """
    hashed: Words = words ^ (words >> np.uint64(30))
    hashed *= np.uint64(0xBF58476D1CE4E5B9)
    hashed ^= hashed >> np.uint64(27)
    hashed *= np.uint64(0x94D049BB133111EB)
    hashed ^= hashed >> np.uint64(31)
    return hashed


def halves_of_digest(kind: bytes, data: bytes) -> tuple[int, int]:
    """Return a 128-bit digest of some bytes as two words.

    `kind` (at most 16 bytes) makes digests of other kinds of data different: the text "1" and the
    integer 1 are written with the same bytes.
    """
    digest = blake2b(data, digest_size=16, person=kind).digest()
    first, second = struct.unpack("<QQ", digest)
    return first, second


# ------------------------------------------------------------------------------------------ columns


def column_words(column: Any, *, at_float32: bool = False) -> Words:
    """Write each cell of a column as two words, 64-bit integers that are the same for equal values.

    `column` is an array or a column of a pandas or polars frame. With `at_float32`, numbers are
    rounded to single precision first, so that a float32 copy of a column has the same words.
    Returns an array (2, n), or (1, n) where both words of every cell are the same.
    """
    is_category = hasattr(column, "cat") and hasattr(column.cat, "codes")
    if is_category:
        return _category_words(column, at_float32)

    array = column if isinstance(column, np.ndarray) else _to_numpy(column)
    kind = array.dtype.kind
    if kind in "biuf":  # truth values, integers, floats
        return number_words(array, at_float32=at_float32)
    if kind in "mM":  # durations, dates
        return _date_words(array)
    if kind in "cV":  # complex numbers, records
        raise TypeError(
            f"A column of dtype {array.dtype} has no canonical form; give real numbers, text, "
            f"dates or categories."
        )
    return _words_of_list(array.tolist(), at_float32)


def _category_words(column: Any, at_float32: bool) -> Words:
    """Return the words of a categorical column of pandas, reading each category once."""
    words = column_words(column.cat.categories.to_series(), at_float32=at_float32)
    missing = np.full((len(words), 1), _word_of_float(math.nan), dtype=np.uint64)
    # pandas gives missing cells the code -1, which picks the last column
    words_and_missing = np.hstack([words, missing])
    return words_and_missing[:, np.asarray(column.cat.codes)]


def _to_numpy(column: Any) -> AnyArray:
    """Convert a column of pandas or polars; dates with a time zone are converted to UTC.

    Missing cells become NaN, NaT or None, whichever the type of the array can hold.
    """
    is_polars = hasattr(column, "null_count")
    if is_polars:
        return _polars_to_numpy(column)

    dtype = column.dtype
    if getattr(dtype, "tz", None) is not None:
        return np.asarray(column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy())
    if isinstance(dtype, np.dtype):
        return np.asarray(column.to_numpy())

    # a type of pandas' own: nullable numbers without gaps are numbers, all else is objects
    numpy_dtype = getattr(dtype, "numpy_dtype", None)
    is_numeric = isinstance(numpy_dtype, np.dtype) and numpy_dtype.kind in "biuf"
    if is_numeric and not column.isna().any():
        return np.asarray(column.to_numpy(dtype=numpy_dtype))
    return np.fromiter(column, dtype=object, count=len(column))


def _polars_to_numpy(column: Any) -> AnyArray:
    """Convert a column of polars; numbers or booleans with gaps become an array of objects."""
    dtype = column.dtype
    is_numeric = dtype.is_integer() or dtype.is_float() or str(dtype) == "Boolean"
    is_date_or_duration = str(dtype).startswith(("Date", "Duration"))
    if is_date_or_duration or (is_numeric and column.null_count() == 0):
        return np.asarray(column.to_numpy())
    return np.fromiter(column.to_list(), dtype=object, count=len(column))


def number_words(array: AnyArray, *, at_float32: bool = False) -> Words:
    """Write each number of an array as two words (64-bit integers): the bits of its float64, twice.

    The array may have any shape. The result has a first axis before it: of length 1, since both
    words are the same; or of length 2 if some integer is too large for a float64. Such integers
    keep all digits, as the hash of their text. `at_float32` rounds to single precision first.
    """
    # 1. Convert to float64. Equal numbers must have the same bits: adding 0.0 turns -0.0 into 0.0,
    # and all NaN become one.
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = array.astype(np.float32) if at_float32 else array
        floats = rounded.astype(np.float64, order="C") + 0.0
    if array.dtype.kind == "f":
        floats[np.isnan(floats)] = np.nan
    words = floats.view(np.uint64)[None]

    # 2. Replace the words of large integers, which float64 may have rounded.
    is_int64 = array.dtype.kind in "iu" and array.dtype.itemsize == 8
    if is_int64 and not at_float32:
        is_large = np.abs(floats) >= _FLOAT_INTEGERS
        if is_large.any():
            words = np.repeat(words, 2, axis=0)
            words[:, is_large] = _words_of_list(array[is_large].tolist(), at_float32)
    return words


def _date_words(array: AnyArray) -> Words:
    """Write each date or duration of an array as two words (64-bit integers), (2, n).

    The first word is a hash of its whole microseconds, the second one a hash of these and of the
    nanoseconds beyond. So a date has the same words in whatever unit it is stored.
    """
    # 1. Split into whole microseconds (since 1970, of dates) and the nanoseconds beyond.
    letter = array.dtype.kind  # M for dates, m for durations
    unit = np.datetime_data(array.dtype)[0]
    if unit in _FINE_UNITS:
        in_nanoseconds = array.astype(f"{letter}8[ns]").view(np.int64)
        microseconds, nanoseconds = np.divmod(in_nanoseconds, 1000)
    else:
        microseconds = array.astype(f"{letter}8[us]").view(np.int64)
        nanoseconds = np.zeros(array.shape, np.int64)

    # 2. Hash them, with a key so that no date has the words of a duration.
    key = hash_words(np.array([ord(letter)], dtype=np.uint64))
    first_words = hash_words(microseconds.view(np.uint64) ^ key)
    second_words = hash_words(first_words + nanoseconds.view(np.uint64))
    words = np.stack([first_words, second_words])

    # 3. A missing date is written like any missing value.
    words[:, np.isnat(array)] = _word_of_float(math.nan)
    return words


def _words_of_list(values: list[Any], at_float32: bool) -> Words:
    """Return the words of Python values, (2, n).

    If all are of plain types, each distinct value is read only once.
    """
    has_plain_types_only = set(map(type, values)) <= _PLAIN_TYPES
    if not has_plain_types_only:
        return _words_one_by_one(values, at_float32)

    distinct = list(dict.fromkeys(values))
    words_of_distinct = _words_one_by_one(distinct, at_float32)
    position_of = {value: position for position, value in enumerate(distinct)}
    positions = list(map(position_of.__getitem__, values))  # faster than a loop over rows
    return words_of_distinct[:, positions]


def _words_one_by_one(values: list[Any], at_float32: bool) -> Words:
    """Return the words of Python values, (2, n), by reading each of them."""
    words = np.array([_words_of_value(value, at_float32) for value in values], dtype=np.uint64)
    return words.reshape(-1, 2).T


# -------------------------------------------------------------------------------------------- cells


def _words_of_value(value: Any, at_float32: bool) -> tuple[int, int]:
    """Write one Python value as two words (64-bit integers), the same for equal values.

    Types whose values cannot be told apart in this way are refused. `at_float32` rounds numbers to
    single precision first.
    """
    # text first, which is the most frequent
    if isinstance(value, str):
        return halves_of_digest(b"text", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, Enum):
        return _words_of_value(value.value, at_float32)
    if value is None or type(value).__name__ in _MISSING_TYPES:
        word = _word_of_float(math.nan)
        return word, word
    if isinstance(value, _NUMBERS):
        return _words_of_number(value, at_float32)
    if isinstance(value, bytes):
        return halves_of_digest(b"bytes", value)
    if isinstance(value, _DATES_AND_DURATIONS):
        one_date = np.asarray([_to_numpy_date(value)])
        first, second = _date_words(one_date)[:, 0].tolist()
        return first, second
    if isinstance(value, _CONTAINERS):
        return halves_of_digest(b"nested", _write_container(value))

    is_of_pandas = type(value).__module__.split(".")[0] == "pandas"  # a period, an interval
    if isinstance(value, datetime.time) or is_of_pandas:
        return halves_of_digest(b"other", f"{type(value).__name__} {value}".encode())
    raise TypeError(
        f"A cell holds a {type(value).__module__}.{type(value).__qualname__}, which has no "
        f"canonical form: rows cannot be compared. Give numbers, text, dates, categories or plain "
        f"containers of them."
    )


def _words_of_number(value: Any, at_float32: bool) -> tuple[int, int]:
    """Write a number as two words (64-bit integers): the bits of its float64, twice.

    An integer that no float64 equals is written as a hash of its digits instead. `at_float32`
    rounds to single precision first.
    """
    try:
        number = float(value)
        is_too_large = False
    except OverflowError:
        number = math.inf
        is_too_large = True

    is_integer = isinstance(value, _INTEGERS)
    is_rounded = is_integer and not at_float32 and number != int(value)
    if is_too_large or is_rounded:
        return halves_of_digest(b"integer", str(int(value)).encode())

    if at_float32:
        with np.errstate(over="ignore"):
            number = float(np.float32(number))
    word = _word_of_float(number)
    return word, word


def _word_of_float(number: float) -> int:
    """Return the bits of a float64 as an integer; -0.0 counts as 0.0, and all NaN as one."""
    canonical = math.nan if math.isnan(number) else number + 0.0
    (word,) = struct.unpack("<Q", struct.pack("<d", canonical))
    return int(word)


def _to_numpy_date(value: Any) -> Any:
    """Convert a date or duration to NumPy's, in UTC where a time zone is known."""
    if getattr(value, "tzinfo", None) is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    for method in ("to_datetime64", "to_timedelta64"):  # pandas: keeps the nanoseconds
        if hasattr(value, method):
            return getattr(value, method)()
    return np.timedelta64(value) if isinstance(value, datetime.timedelta) else np.datetime64(value)


def _write_container(container: Any) -> bytes:
    """Write the words of a container's cells one after the other: [1, 2] -> words of 1, words of 2.

    Sequences keep their order. The members of a set and the pairs of a mapping are sorted, since
    theirs does not count.
    """
    if isinstance(container, dict):
        pairs = [_word_bytes(key) + _word_bytes(cell) for key, cell in container.items()]
        return b"mapping" + b"".join(sorted(pairs))
    if isinstance(container, set | frozenset):
        return b"set" + b"".join(sorted(map(_word_bytes, container)))
    cells = container.tolist() if isinstance(container, np.ndarray) else container
    return b"sequence" + b"".join(map(_word_bytes, cells))


def _word_bytes(cell: Any) -> bytes:
    first, second = _words_of_value(cell, at_float32=False)
    return struct.pack("<QQ", first, second)
