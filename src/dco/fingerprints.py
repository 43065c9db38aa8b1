"""Fingerprints of rows: the same row has the same hash, however it was stored.

A row is written in one canonical form (below) and hashed with blake2b. Overlap of roles, repeats, the digests that a
certificate carries, and the uniforms of randomised scores all come from this one form.

The canonical form of a row is the list of its cells that are not zero, in column order, so a sparse row and its dense
copy agree. Each cell is two 64-bit words: column and kind, then the payload.

- Numbers and booleans are float64 (1, 1.0, float32 1.0 and True agree, and so do 0.0 and -0.0); an integer that float64
  cannot hold keeps all its digits.
- Missing is missing: NaN, None, NaT and pandas.NA agree.
- Text, bytes and nested values are hashed to 128 bits; a category is its value, never its code.
- Dates are instants to the nanosecond (UTC where a time zone is known), durations likewise.
"""

from __future__ import annotations

import datetime
import struct
import types
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from dco.arrays import AnyArray, Floats, Integers
from dco.errors import OverlappingRolesError

Hashes: TypeAlias = NDArray[np.bytes_]
Rows: TypeAlias = tuple[Any, Any]
Duplicates: TypeAlias = Literal["natural", "drop", "allow"]

_CELLS_AT_ONCE = 2**21  # bounds the memory of the canonical form to about 100 MB, however long the table
_NEAR_BITS, _NEAR_TARGET_BITS = 20, 12  # float32 has 24, and noise of 1e-9 of the spread begins at the 30th
_NATURAL = 1e-5  # repeats less likely than this, were roles cut at random, are copies
_FLOAT_INTEGERS = 2.0**53  # every integer below is a float64, and 2**53 + 1 rounds to it


class _Kind(IntEnum):
    """What a payload means. A number zero is kind 0, payload 0, and is not written at all."""

    NUMBER = 0
    MISSING = 1
    SIGNED = 2
    UNSIGNED = 3
    WIDE = 4
    TEXT = 5
    BYTES = 6
    DATE = 7
    DURATION = 8
    OTHER = 9


_SECOND_WORD = 64  # added to the kind of the second half of a 128-bit payload


@dataclass(frozen=True, eq=False)
class _Cells:
    """Canonical cells of n rows: kinds and payloads (n, L); `columns` (L,) says which column each lane belongs to."""

    kinds: NDArray[np.uint8]
    payloads: NDArray[np.uint64]
    columns: NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class _Records:
    """The cells that are not zero, row after row: row i is ``data[16 * ends[i] : 16 * ends[i + 1]]``."""

    data: bytes
    ends: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Overlap:
    """Which rows of one table are also in another: how many, the first of them (None if none), and all positions."""

    count: int
    first: int | None
    rows: Integers


def row_fingerprints(X: Any, y: Any = None, *, at_float32: bool = False) -> Hashes:
    """A 16-byte blake2b hash of each row of X (and of y), (n,) of dtype 'S16'.

    X may be an array of any dtype, nested lists, a SciPy sparse matrix, a pandas or a polars frame; the columns are taken
    in the order given, and their names are not part of a row. With `at_float32` numbers are rounded to float32 first, so
    a float32 copy of decimals meets its original.
    """
    digests = _row_digests(X, y, size=16, key=b"", at_float32=at_float32)
    return np.frombuffer(b"".join(digests), dtype="S16") if digests else np.empty(0, dtype="S16")


def row_uniforms(X: Any, *, seed: int) -> Floats:
    """One number in [0, 1) a row, from a keyed hash of (seed, canonical bytes of x), for randomised scores.

    It depends neither on y nor on the row's position or batch: a row alone gets the same number as in a table. Given the
    seed it is a fixed function of x, so scores stay exchangeable when rows are.
    """
    key = blake2b(b"dco uniforms" + str(int(seed)).encode(), digest_size=32).digest()
    words = np.frombuffer(b"".join(_row_digests(X, None, size=8, key=key, at_float32=False)), dtype="<u8")
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def role_fingerprint(hashes: Hashes) -> str:
    """A digest of a set of rows with their multiplicities, in hex: the order of the rows does not matter."""
    ordered = np.sort(np.asarray(hashes, dtype="S16"))
    return blake2b(struct.pack("<Q", ordered.size) + ordered.tobytes(), digest_size=16, person=b"dco role").hexdigest()


def overlap(a: Hashes, b: Hashes) -> Overlap:
    """The rows of `a` that are also in `b`."""
    rows = np.flatnonzero(np.isin(np.asarray(a, dtype="S16"), np.asarray(b, dtype="S16")))
    return Overlap(int(rows.size), int(rows[0]) if rows.size else None, rows)


def drop_repeats(X: Any, y: Any = None) -> Integers:
    """Positions of the first copy of each distinct row, ascending.

    For recording errors, before any split: what is certified afterwards is coverage of rows drawn like the distinct ones.
    """
    _, first = np.unique(row_fingerprints(X, y), return_index=True)
    return np.sort(first)


def check_overlap(
    calibrate: Rows,
    *,
    train: Rows | None = None,
    tune: Rows | None = None,
    duplicates: Duplicates = "natural",
    hashes: Mapping[str, Hashes] | None = None,
) -> dict[str, int]:
    """Refuse calibration rows that are also in train or tune; return how many each of them shares.

    For roles that the caller supplies: there a shared row is most likely a leak. Near-copies (float32, digits that differ by
    noise, blanks around text, another target) are refused where there are more of them than natural repeats explain. A few
    rows that agree at float32 and not at float64 give a warning: they may be rounded copies. ``duplicates="allow"`` declares
    that repeats are natural (a fresh row is as likely to be a repeat), and only counts equal rows. `hashes` has the
    fingerprints of roles whose rows are hashed already.
    """
    if duplicates not in get_args(Duplicates):
        raise ValueError(f"duplicates must be one of {', '.join(get_args(Duplicates))}; got {duplicates!r}.")
    known = dict(hashes or {})
    exact = known["calibrate"] if "calibrate" in known else row_fingerprints(*calibrate)
    others = {name: rows for name, rows in (("train", train), ("tune", tune)) if rows is not None}
    counts: dict[str, int] = {}
    for name, rows in others.items():
        shared = overlap(exact, known[name] if name in known else row_fingerprints(*rows))
        counts[name] = shared.count
        if shared.count and duplicates != "allow":
            raise OverlappingRolesError(
                f"{name} and calibrate share {shared.count} rows (first: calibration row {shared.first}); coverage needs "
                "calibration rows that fitting and tuning never saw. Drop them from one role, let assign_roles() build "
                'both, or pass duplicates="allow" if a new row is as likely to be a repeat.'
            )
    if duplicates != "allow":
        _check_near_copies(calibrate, others)
    return counts


def _check_near_copies(calibrate: Rows, others: Mapping[str, Rows]) -> None:
    """Refuse calibration rows whose features are those of another role, but for rounding, noise and blanks."""
    own, *theirs = _near_hashes([calibrate, *others.values()])
    for (name, rows), hashes in zip(others.items(), theirs, strict=True):
        for mine, other in zip(own, hashes, strict=True):
            pairs = _Pairs.of(mine, other)
            if pairs.chance < _NATURAL:
                raise OverlappingRolesError(
                    f"{name} and calibrate share the features of {pairs.count} rows (first: calibration row {pairs.first}), "
                    "up to rounding and blanks, whatever their targets: these are copies, for natural repeats would occur "
                    f"inside roles too, and share about {pairs.expected:.0f} like this. Coverage needs calibration rows "
                    "that fitting and tuning never saw: drop them from one role, let assign_roles() build both, or pass "
                    'duplicates="allow" if a new row is as likely to be a repeat.'
                )
        near = np.flatnonzero(np.any([np.isin(*pair) for pair in zip(own[-2:], hashes[-2:], strict=True)], axis=0))
        if near.size:
            _tell_rounded_copies(name, near, calibrate, rows)


def _tell_rounded_copies(name: str, near: Integers, calibrate: Rows, rows: Rows) -> None:
    """Warn about those of the `near` calibration rows that agree with a row of the role at float32, targets included."""
    some = [part if part is None else _slice_rows(_table(part, "X"), near) for part in calibrate]
    found = overlap(row_fingerprints(*some, at_float32=True), row_fingerprints(*rows, at_float32=True))
    if found.count:
        warnings.warn(
            f"{found.count} calibration rows (first: {near[found.rows[0]]}) agree with rows of {name} after rounding to "
            "float32. If they are copies at another precision, drop them from one role: coverage needs unseen rows.",
            UserWarning,
            stacklevel=4,
        )


def codes_of_values(values: Any, *, name: str = "groups", missing: bool = False) -> tuple[Integers, int]:
    """Each row's label as a code 0..G-1, in order of first appearance, and G.

    Labels 1 and 1.0 are one label. A missing label is refused unless `missing` allows it.
    """
    whole = isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "iub"
    keys = values if whole else row_fingerprints(values)
    if not whole and not missing:
        lost = np.flatnonzero(keys == row_fingerprints(np.array([None], dtype=object))[0])
        if lost.size:
            raise ValueError(f"{name} is missing for {lost.size} rows (first: row {lost[0]}); give each row a label.")
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    place = np.empty(first.size, dtype=np.int64)
    place[np.argsort(first)] = np.arange(first.size)  # the same codes whatever the labels are stored as
    return place[inverse], int(first.size)


# ---------------------------------------------------------------------------------------------- near-copies


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Values that occur once in `a` and also in `b`: how many, the first place in `a`, and what is natural.

    Repeats are natural if roles were cut at random: m copies among N rows, n of them in `a`, then have exactly one copy in
    `a` with the hypergeometric probability, at most about 1/2. `expected` is the sum of these over all values that repeat,
    inside roles too, and `chance` the binomial probability of a count so large (Hoeffding 1956: binomial tails bound those
    of unequal probabilities). Few distinct values have many copies in each role, and hence no such pair at all.
    """

    count: int
    first: int
    expected: float
    chance: float

    @classmethod
    def of(cls, a: NDArray[np.uint64], b: NDArray[np.uint64]) -> _Pairs:
        ours, first, times = np.unique(a, return_index=True, return_counts=True)
        theirs, other_times = np.unique(b, return_counts=True)
        _, mine, other = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
        alone = mine[times[mine] == 1]
        if not alone.size:
            return cls(0, -1, 0.0, 1.0)
        from scipy.special import betainc, gammaln  # slow to import

        in_both = times[mine] + other_times[other]
        in_one = np.concatenate([np.delete(times, mine), np.delete(other_times, other)])
        copies = np.concatenate([in_both, in_one[in_one > 1]]).astype(np.float64)
        n, rest = a.size, b.size
        possible = copies <= rest + 1
        m = copies[possible]
        ways = gammaln(n + rest - m + 1) - gammaln(n) - gammaln(rest + 2 - m)  # the others of `a` come from the other values
        every = gammaln(n + rest + 1) - gammaln(n + 1) - gammaln(rest + 1)
        expected = float(np.sum(m * np.exp(ways - every)))
        count = int(alone.size)
        chance = float(betainc(count, copies.size - count + 1, expected / copies.size)) if count > expected else 1.0
        return cls(count, int(first[alone].min()), expected, chance)


def _near_hashes(roles: list[Rows]) -> list[NDArray[np.uint64]]:
    """Eight hashes of each row, (8, n) for each role: four of the features alone, then these four with the target.

    Near-copies agree in most of them. Numbers are rounded in two ways, in steps of a small share of the column's spread (for
    noise, also on columns far from zero, such as dates) and to fewer bits (for float32), each to the nearest step and
    downwards: a number near a border of one grid is inside a cell of the other. Wide tables are rounded to fewer bits, as
    all columns must agree at once. Text is stripped.
    """
    features = [_table(X, "X") for X, _ in roles]
    if len({table.shape[1] for table in features}) > 1:
        return [np.zeros((0, table.shape[0]), np.uint64) for table in features]  # rows of other columns are no copies
    X = _near_cells(features, bits=max(_NEAR_BITS - int(features[0].shape[1]).bit_length(), 8))
    ends = np.cumsum([table.shape[0] for table in features])[:-1]
    if any(y is None for _, y in roles):
        return np.split(X, ends, axis=1)
    y = _near_cells([_table(target, "y") for _, target in roles], bits=_NEAR_TARGET_BITS)
    return np.split(np.concatenate([X, _mixed(X) + y]), ends, axis=1)


def _near_cells(tables: list[Any], *, bits: int) -> NDArray[np.uint64]:
    """Four hashes of each row of all tables, one after the other, (4, n): sums over the cells that are not zero."""
    width = int(tables[0].shape[1])
    keys = _mixed(np.arange(1, width + 1, dtype=np.uint64))
    if any(map(_is_sparse, tables)):
        from scipy.sparse import csr_matrix, vstack

        matrix = vstack([csr_matrix(table) for table in tables]).tocsr()
        values = matrix.data.astype(np.float64)
        cell = _cell_sizes(values, bits, columns=matrix.indices, shape=matrix.shape)[matrix.indices]
        hashed = _near_words(values, cell, keys[matrix.indices], bits=bits)
        sums = np.concatenate([np.zeros((4, 1), np.uint64), np.cumsum(hashed, axis=1, dtype=np.uint64)], axis=1)
        return np.diff(sums[:, matrix.indptr])  # modulo 2**64, as sums are
    n = sum(table.shape[0] for table in tables)
    found = np.zeros((4, n), np.uint64)
    arrays = [array for array in map(_as_numbers, tables) if array is not None]
    numbers = len(arrays) == len(tables)
    step = max(1, _CELLS_AT_ONCE // 8 // max(n, 1)) if numbers else 1
    for start in range(0, width, step):
        at = slice(start, start + step)
        if numbers:
            block = np.concatenate([array[:, at].astype(np.float64) for array in arrays])
        else:
            block = _near_column([_column_of(table, start) for table in tables])
        if block.dtype == np.uint64:
            found += _mixed(block ^ keys[start])
        else:
            found += _near_words(block, _cell_sizes(block, bits), keys[at], bits=bits).sum(axis=2, dtype=np.uint64)
    return found


def _near_words(values: Floats, cell: Floats, keys: NDArray[np.uint64], *, bits: int) -> NDArray[np.uint64]:
    """Hashes of the numbers under each of the four roundings; 0 for a number that is rounded to zero."""
    with np.errstate(all="ignore"):
        steps = np.where(cell > 0, values / cell, 0.0)  # a column without spread says nothing here
        whole, cut = (values + 0.0).view(np.uint64), np.uint64(52 - bits)
        half = np.uint64(1) << (cut - np.uint64(1))
        rounded = [(np.rint(steps) + 0.0).view(np.uint64), (np.floor(steps) + 0.0).view(np.uint64)]
        words = np.stack([*rounded, (whole + half) >> cut, whole >> cut])
    words[:, np.isnan(values)] = _Kind.MISSING
    return np.where(words == 0, np.uint64(0), _mixed(words ^ keys))


def _cell_sizes(values: Floats, bits: int, *, columns: Integers | None = None, shape: Any = None) -> Floats:
    """The step of each column, 2**-bits of its standard deviation; with `columns`, of the cells of a sparse matrix."""
    finite = np.isfinite(values)
    with np.errstate(all="ignore"):
        if columns is None:
            count = np.maximum(finite.sum(axis=0), 1)
            centred = np.where(finite, values - np.where(finite, values, 0.0).sum(axis=0) / count, 0.0)
            variance = (centred**2).sum(axis=0) / count
        else:
            held = np.where(finite, values, 0.0)
            first, second = (np.bincount(columns, held**power, minlength=shape[1]) / shape[0] for power in (1, 2))
            variance = np.maximum(second - first**2, 0.0)
        return np.asarray(np.ldexp(np.sqrt(variance), -bits))


def _as_numbers(table: Any) -> AnyArray | None:
    """The whole table as an array of numbers, None if a column holds anything else."""
    if not isinstance(table, np.ndarray):
        kinds = table.dtypes
        plain = all(isinstance(kind, np.dtype) for kind in kinds) and _is_pandas(table)
        if not plain or not all(kind.kind in "biuf" for kind in kinds):
            return None
        table = table.to_numpy()
    return table if table.dtype.kind in "biuf" else None


def _near_column(parts: list[Any]) -> AnyArray:
    """One column of all tables: numbers (n, 1) where all cells are numbers, dates or missing, else a hash of each cell."""
    arrays = [part if isinstance(part, np.ndarray) else _plain(part) for part in parts]
    if all(array.dtype.kind in "mM" for array in arrays):
        moments = np.concatenate(arrays)
        return np.where(np.isnat(moments), np.nan, moments.view(np.int64).astype(np.float64))[:, None]
    cells = [value for array in arrays for value in array.tolist()]
    try:
        missing = ("NoneType", "NAType", "NaTType")
        return np.array([np.nan if type(value).__name__ in missing else value for value in cells], dtype=np.float64)[:, None]
    except (TypeError, ValueError, OverflowError):
        texts: dict[str, tuple[int, int]] = {}
        kinds, first, _ = zip(*(_cell(v.strip() if isinstance(v, str) else v, False, texts) for v in cells), strict=True)
        return np.array(first, dtype=np.uint64) ^ _mixed(np.array(kinds, dtype=np.uint64))


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A hash of each word that spreads over all bits (the finaliser of SplitMix64): fast, and not for secrets."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


# ---------------------------------------------------------------------------------------------- rows to digests


def _row_digests(X: Any, y: Any, *, size: int, key: bytes, at_float32: bool) -> list[bytes]:
    table = _table(X, "X")
    target = None if y is None else _table(y, "y")
    n, width = table.shape
    targets = 0 if target is None else target.shape[1]
    if target is not None and target.shape[0] != n:
        raise ValueError(f"X has {n} rows and y has {target.shape[0]}; give one target a row.")
    person = b"dcor" + struct.pack("<QI", width, targets)  # a row of 3 columns is never a row of 4 with a zero
    texts: dict[str, tuple[int, int]] = {}  # for one call only: no row outlives it
    digests: list[bytes] = []
    step = max(1, _CELLS_AT_ONCE // max(1, width + targets)) if not _is_sparse(table) else max(n, 1)
    for start in range(0, n, step):
        blocks = [_records(_slice(table, start, start + step), 0, at_float32, texts)]
        if target is not None:
            blocks.append(_records(_slice(target, start, start + step), width, at_float32, texts))
        digests.extend(_hashed(blocks, size, key, person))
    return digests


def _hashed(blocks: list[_Records], size: int, key: bytes, person: bytes) -> list[bytes]:
    slices = []
    for block in blocks:
        view = memoryview(block.data)
        slices.append([view[a:b] for a, b in pairwise((block.ends * 16).tolist())])
    if len(slices) == 1:
        return [blake2b(row, digest_size=size, key=key, person=person).digest() for row in slices[0]]
    return [blake2b(b"".join(row), digest_size=size, key=key, person=person).digest() for row in zip(*slices, strict=True)]


def _table(values: Any, name: str) -> Any:
    """`values` as something with a (n, columns) shape: a frame, a CSR matrix or an array."""
    if _is_sparse(values):
        matrix = values.tocsr(copy=True)
        matrix.sum_duplicates()  # also sorts the columns of each row
        return matrix
    if _is_pandas(values) or _is_polars(values):
        return values.to_frame() if len(values.shape) == 1 else values
    array = np.asarray(values)
    if array.dtype.kind in "US" and not isinstance(values, np.ndarray):
        array = np.array(values, dtype=object)  # [1, "a"] has become ["1", "a"]
    if array.ndim == 0:
        raise ValueError(f"{name} must have one entry a row, got the single value {values!r}.")
    if array.ndim == 1:
        return array[:, None]
    return array.reshape(array.shape[0], int(np.prod(array.shape[1:])))


def _is_sparse(values: Any) -> bool:
    return hasattr(values, "tocsr") and hasattr(values, "nnz")


def _is_pandas(values: Any) -> bool:
    return hasattr(values, "iloc") and hasattr(values, "to_numpy")


def _is_polars(values: Any) -> bool:
    return type(values).__module__.split(".")[0] == "polars" and hasattr(values, "slice") and hasattr(values, "shape")


def _slice(table: Any, start: int, stop: int) -> Any:
    return table.iloc[start:stop] if _is_pandas(table) else table[start:stop]


def _slice_rows(table: Any, rows: Integers) -> Any:
    return table.iloc[rows] if _is_pandas(table) else table[rows]


def _records(table: Any, first_column: int, at_float32: bool, texts: dict[str, tuple[int, int]]) -> _Records:
    if _is_sparse(table):
        kinds, payloads = _numbers(table.data, at_float32)
        headers = ((table.indices.astype(np.uint64) + np.uint64(first_column)) << np.uint64(8)) | kinds
        rows = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))
        keep = (kinds != 0) | (payloads != 0)
        return _written(headers[keep], payloads[keep], np.bincount(rows[keep], minlength=table.shape[0]))
    cells = _cells(table, first_column, at_float32, texts)
    keep = (cells.kinds != 0) | (cells.payloads != 0)
    headers = (cells.columns << np.uint64(8))[None, :] | cells.kinds
    return _written(headers[keep], cells.payloads[keep], keep.sum(axis=1))


def _written(headers: NDArray[np.uint64], payloads: NDArray[np.uint64], counts: Integers) -> _Records:
    words = np.empty((headers.size, 2), dtype="<u8")
    words[:, 0], words[:, 1] = headers, payloads
    return _Records(words.tobytes(), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))


# ---------------------------------------------------------------------------------------------- tables to cells


def _cells(table: Any, first_column: int, at_float32: bool, texts: dict[str, tuple[int, int]]) -> _Cells:
    n, width = table.shape
    if isinstance(table, np.ndarray) and table.dtype.kind in "biuf":
        kinds, payloads = _numbers(table, at_float32)
        return _Cells(kinds, payloads, np.arange(first_column, first_column + width, dtype=np.uint64))
    lanes: list[tuple[NDArray[np.uint8], NDArray[np.uint64]]] = []
    columns: list[int] = []
    for j in range(width):
        kinds, payloads = _column(_column_of(table, j), at_float32, texts)
        for lane in range(kinds.shape[1]):
            lanes.append((kinds[:, lane], payloads[:, lane]))
            columns.append(first_column + j)
    if not lanes:
        return _Cells(np.zeros((n, 0), np.uint8), np.zeros((n, 0), np.uint64), np.zeros(0, np.uint64))
    return _Cells(
        np.column_stack([kinds for kinds, _ in lanes]),
        np.column_stack([payloads for _, payloads in lanes]),
        np.array(columns, dtype=np.uint64),
    )


def _column_of(table: Any, j: int) -> Any:
    if isinstance(table, np.ndarray):
        return table[:, j]
    return table.iloc[:, j] if _is_pandas(table) else table.to_series(j)


def _column(
    column: Any, at_float32: bool, texts: dict[str, tuple[int, int]]
) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """Kinds and payloads of one column, (n, 1) or (n, 2)."""
    if hasattr(column, "cat") and hasattr(column.cat, "codes"):  # a pandas category: the values, each canonised once
        codes = np.asarray(column.cat.codes)
        kinds, payloads = _column(_plain(column.cat.categories), at_float32, texts)
        blank = np.zeros((1, kinds.shape[1]), np.uint8)
        blank[0, 0] = _Kind.MISSING  # code -1 picks this last row
        return np.vstack([kinds, blank])[codes], np.vstack([payloads, np.zeros_like(blank, np.uint64)])[codes]
    array = column if isinstance(column, np.ndarray) else _plain(column)
    kind = array.dtype.kind
    if kind in "biuf":
        return _numbers(array[:, None], at_float32)
    if kind in "mM":
        return _moments(array)
    if kind in "cV":
        raise TypeError(
            f"A column of dtype {array.dtype} has no canonical form; give real numbers, text, dates or categories."
        )
    cells = [_cell(value, at_float32, texts) for value in array.tolist()]
    kinds, payloads = np.zeros((len(cells), 2), np.uint8), np.zeros((len(cells), 2), np.uint64)
    if cells:
        what, first, second = zip(*cells, strict=True)
        kinds[:, 0], payloads[:, 0], payloads[:, 1] = what, first, second
        kinds[:, 1] = np.where(payloads[:, 1] != 0, kinds[:, 0] + _SECOND_WORD, 0)
    return kinds, payloads


def _plain(column: Any) -> AnyArray:
    """A pandas or polars column as a NumPy array; missing values become NaN, NaT or None."""
    if hasattr(column, "null_count"):  # polars
        return _plain_polars(column)
    dtype = column.dtype
    if getattr(dtype, "tz", None) is not None:
        times = column.dt if hasattr(column, "dt") else column
        naive = times.tz_convert("UTC")
        naive = naive.dt if hasattr(naive, "dt") else naive
        return np.asarray(naive.tz_localize(None).to_numpy())
    if isinstance(dtype, np.dtype):
        return np.asarray(column.to_numpy())
    numpy_dtype = getattr(dtype, "numpy_dtype", None)
    if isinstance(numpy_dtype, np.dtype) and numpy_dtype.kind in "biuf" and not column.isna().any():
        return np.asarray(column.to_numpy(dtype=numpy_dtype))
    array = np.empty(len(column), dtype=object)
    array[:] = list(column)
    return array


def _plain_polars(column: Any) -> AnyArray:
    dtype = column.dtype
    simple = dtype.is_integer() or dtype.is_float() or str(dtype) == "Boolean"
    if (simple and not column.null_count()) or str(dtype).startswith(("Date", "Duration")):
        return np.asarray(column.to_numpy())
    array = np.empty(len(column), dtype=object)
    array[:] = column.to_list()
    return array


def _numbers(array: AnyArray, at_float32: bool) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    with np.errstate(over="ignore", invalid="ignore"):
        floats = array.astype(np.float32).astype(np.float64) if at_float32 else array.astype(np.float64)
    floats = floats + 0.0  # -0.0 becomes 0.0
    kinds = np.zeros(floats.shape, np.uint8)
    payloads = floats.view(np.uint64)
    if array.dtype.kind == "f":
        missing = np.isnan(floats)
        kinds[missing], payloads[missing] = _Kind.MISSING, 0
    elif array.dtype.itemsize == 8 and not at_float32:
        for place in np.argwhere(np.abs(floats) >= _FLOAT_INTEGERS):
            at = tuple(place)
            kinds[at], payloads[at], _ = _integer(int(array[at]))
    return kinds, payloads


def _moments(array: AnyArray) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """Dates and durations: microseconds (which reach any year that people use), then the nanoseconds left over."""
    letter = array.dtype.kind
    whole = array.astype(f"{letter}8[us]").view(np.int64)
    left = np.zeros(array.shape, np.int64)
    if np.datetime_data(array.dtype)[0] in ("ns", "ps", "fs", "as"):
        nanoseconds = array.astype(f"{letter}8[ns]").view(np.int64)
        whole, left = np.divmod(nanoseconds, 1000)
    kind = _Kind.DATE if letter == "M" else _Kind.DURATION
    missing = np.isnat(array)
    kinds = np.column_stack([np.where(missing, _Kind.MISSING, kind), np.where(left != 0, kind + _SECOND_WORD, 0)])
    payloads = np.column_stack([whole, left])
    kinds[missing, 1], payloads[missing] = 0, 0
    return kinds.astype(np.uint8), payloads.view(np.uint64)


def _cell(value: Any, at_float32: bool, texts: dict[str, tuple[int, int]]) -> tuple[int, int, int]:
    """Kind and 128-bit payload of one Python value."""
    if isinstance(value, str):
        known = texts.get(value)
        if known is None:
            known = texts[str(value)] = _halves(value.encode("utf-8", "surrogatepass"))
        return (_Kind.TEXT, *known)
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return (_Kind.MISSING, 0, 0)
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, (bool, np.bool_, int, np.integer)) and not at_float32:
        return _integer(int(value))
    if isinstance(value, (bool, np.bool_, int, np.integer, float, np.floating, Decimal, Fraction)):
        try:
            number = float(value)
        except OverflowError:  # an integer beyond float64
            return _integer(int(value))
        kinds, payloads = _numbers(np.array([number]), at_float32)
        return (int(kinds[0]), int(payloads[0]), 0)
    if isinstance(value, bytes):
        return (_Kind.BYTES, *_halves(value))
    if isinstance(value, (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)):
        kinds, payloads = _moments(np.asarray([_moment(value)]))
        return (int(kinds[0, 0]), int(payloads[0, 0]), int(payloads[0, 1]))
    if isinstance(value, (list, tuple, dict, set, frozenset, np.ndarray)):
        return (_Kind.OTHER, *_halves(_Walk().written(value)))
    if isinstance(value, datetime.time) or type(value).__module__.split(".")[0] == "pandas":  # a period, an interval
        return (_Kind.OTHER, *_halves(f"{type(value).__name__} {value}".encode()))
    raise TypeError(
        f"A cell holds a {type(value).__module__}.{type(value).__qualname__}, which has no canonical form: rows cannot be "
        "compared. Give numbers, text, dates, categories or plain containers of them."
    )


def _moment(value: Any) -> Any:
    if getattr(value, "tzinfo", None) is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    for method in ("to_datetime64", "to_timedelta64"):  # pandas: keeps the nanoseconds
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, datetime.timedelta):
        return np.timedelta64(value)
    return np.datetime64(value)


def _integer(value: int) -> tuple[int, int, int]:
    """A number if float64 holds it exactly; otherwise all its digits."""
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if number == value:
        return (_Kind.NUMBER, struct.unpack("<Q", struct.pack("<d", number))[0] if value else 0, 0)
    if -(2**63) <= value < 2**63:
        return (_Kind.SIGNED, value % 2**64, 0)
    if 0 <= value < 2**64:
        return (_Kind.UNSIGNED, value, 0)
    return (_Kind.WIDE, *_halves(str(value).encode()))


def _halves(data: bytes) -> tuple[int, int]:
    first, second = struct.unpack("<QQ", blake2b(data, digest_size=16).digest())
    return first, second


# ---------------------------------------------------------------------------------------------- structures


def object_fingerprint(thing: Any) -> str:
    """A digest, in hex, of any object: nested plain data, arrays, dataclasses, fitted estimators.

    Dictionaries and sets are read in a canonical order, arrays by dtype, shape and values (not by memory layout), classes
    and functions by name (a lambda by its code), any other object by what it would hand to pickle. A part that occurs twice
    counts like two copies of it, and is read once.
    """
    return blake2b(_Walk().written(thing), digest_size=16, person=b"dco structure").hexdigest()


class _Walk:
    """One walk over a structure, which writes each part of it once.

    A part is written as the digest of a tag and of its own parts. One that is met again is written as before, shared or
    copied. A part that leads back to itself has no digest before its whole circle is read, so within a circle a part that is
    met again is written as how far back it is. Circles (strongly connected components) are found as Tarjan (1972) does:
    `open` holds the parts whose circle is not yet complete, in the order in which they were met, and `back` the earliest of
    them that the part being read leads to.
    """

    def __init__(self) -> None:
        self.parts: dict[int, bytes] = {}
        self.open: list[int] = []
        self.places: dict[int, int] = {}  # of the parts in `open`
        self.back = 0
        self.in_circle = False  # whether the part being read leads to a circle
        self.kept: list[Any] = []  # an id is taken again once its object is gone

    def written(self, value: Any) -> bytes:
        """A value as bytes: plain values and names in full, anything else by its digest."""
        if isinstance(value, np.generic):
            value = value.item() if value.dtype.kind in "biufSU" else np.asarray(value)
        plain = _plain_value(value)
        if plain is not None:
            return plain
        if id(value) in self.parts:
            known = self.parts[id(value)]
            self.in_circle |= _leads_to_circle(known)
            return known
        if id(value) in self.places:
            self.back, self.in_circle = min(self.back, self.places[id(value)]), True
            return _tagged("back", str(len(self.open) - self.places[id(value)]).encode())
        return self._first_meeting(value)

    def _first_meeting(self, value: Any) -> bytes:
        above, place = (self.back, self.in_circle), len(self.open)
        self.kept.append(value)
        self.open.append(id(value))
        self.places[id(value)] = self.back = place
        self.in_circle = False
        digest = blake2b(self._content(value), digest_size=32, person=b"dco part").digest()
        result = _tagged("circle" if self.in_circle else "part", digest)
        if self.back == place:  # nothing below leads further back: the circle is complete
            for number, member in enumerate(self.open[place:]):
                self.parts[member] = result if number == 0 else _tagged("circle", digest, str(number).encode())
                del self.places[member]
            del self.open[place:]
        self.back, self.in_circle = min(above[0], self.back), above[1] or self.in_circle
        return result

    def _content(self, value: Any) -> bytes:
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, dict):
            entries = [
                entry for entry in value.items() if not (isinstance(entry[0], str) and entry[0] == "_sklearn_version")
            ]
            keys = self._in_order([key for key, _ in entries])
            pairs = sorted((key, self.written(entries[place][1])) for key, place in keys)
            return _tagged("dict", *(part for pair in pairs for part in pair))
        if isinstance(value, (set, frozenset)):
            return _tagged("set", *(written for written, _ in self._in_order(list(value))))
        if type(value) in (list, tuple):
            return _tagged(type(value).__name__, *map(self.written, value))
        if isinstance(value, types.FunctionType):
            return self._local_function(value)
        if is_dataclass(value):
            parts = {f.name: getattr(value, f.name) for f in fields(value)}
            return _tagged("record", _name_of(type(value)), self.written(parts))
        return self._object(value)

    def _in_order(self, values: list[Any]) -> list[tuple[bytes, int]]:
        """Values that have no order of their own as (written, place), sorted."""
        found = sorted((self.written(value), place) for place, value in enumerate(values))
        if sum(_leads_to_circle(written) for written, _ in found) > 1:  # which is met first would matter
            raise TypeError(
                "A structure holds a set, or a dictionary with keys, of objects that lead back to themselves: they have no "
                "order, so it has no fingerprint. Keep them in a list."
            )
        return found

    def _array(self, value: AnyArray) -> bytes:
        if isinstance(value, np.ma.MaskedArray):
            return _tagged("masked", self.written(value.filled()), self.written(np.ma.getmaskarray(value)))
        if value.dtype.names and not value.dtype.hasobject:  # field by field: the bytes between fields are undefined
            columns = (self._array(np.asarray(value[name])) for name in value.dtype.names)
            return _tagged("fields", repr(value.dtype.names).encode(), *columns)
        shape = repr(value.shape).encode()
        if value.dtype.hasobject:
            return _tagged("objects", shape, *map(self.written, value.ravel().tolist()))
        plain = np.asarray(value).astype(value.dtype.newbyteorder("<"), order="C", copy=False)
        data = plain.reshape(-1).view(np.uint8).data if plain.nbytes else b""  # read where it lies, not copied
        return _tagged("array", plain.dtype.str.encode(), shape, blake2b(data, digest_size=32).digest())

    def _local_function(self, value: types.FunctionType) -> bytes:
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        around = [_code_parts(value.__code__), cells, value.__defaults__, value.__kwdefaults__]
        return _tagged("local", _name_of(value), self.written(around))

    def _object(self, value: Any) -> bytes:
        if isinstance(value, np.random.RandomState):
            return _tagged("random", self.written(value.get_state(legacy=False)))
        if isinstance(value, np.random.Generator):
            return _tagged("random", self.written(value.bit_generator.state))
        if hasattr(value, "get_arrays") and hasattr(value, "reset_n_calls"):  # scikit-learn's search trees count queries
            return _tagged("tree", _name_of(type(value)), *(self.written(np.asarray(part)) for part in value.get_arrays()))
        try:
            reduced = value.__reduce_ex__(4)
        except TypeError:
            raise TypeError(
                f"A structure holds a {type(value).__module__}.{type(value).__qualname__}, which cannot be written down, so "
                "it has no fingerprint. Use plain data, arrays, dataclasses or objects that can be pickled."
            ) from None
        if isinstance(reduced, str):
            return _tagged("global", _name_of(type(value)), reduced.encode())
        maker, arguments, *rest = reduced
        state = rest[0] if rest else None
        items = [list(part) if part is not None else None for part in rest[1:3]]
        return _tagged("object", _name_of(type(value)), _name_of(maker), *map(self.written, (arguments, state, items)))


def _plain_value(value: Any) -> bytes | None:
    """A plain value, a class or a function with a name of its own; None for anything that has parts."""
    if value is None or isinstance(value, (bool, int, complex)):
        return _tagged(type(value).__name__ if not isinstance(value, Enum) else "enum", repr(value).encode())
    if isinstance(value, float):
        return _tagged("float", struct.pack("<d", value if value == value else np.nan))
    if isinstance(value, str):
        return _tagged("str", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, (bytes, bytearray)):
        return _tagged("bytes", bytes(value))
    if isinstance(value, (type, types.BuiltinFunctionType)):
        return _tagged("name", _name_of(value))
    if isinstance(value, types.FunctionType) and "<" not in value.__qualname__:
        return _tagged("name", _name_of(value))
    return None


def _code_parts(code: types.CodeType) -> list[Any]:
    """What a function does, the functions and comprehensions inside it included."""
    constants = [_code_parts(entry) if isinstance(entry, types.CodeType) else entry for entry in code.co_consts]
    return [code.co_code, list(code.co_names), constants]


def _leads_to_circle(written: bytes) -> bool:
    return written.startswith((b"circle:", b"back:"))


def _name_of(value: Any) -> bytes:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}".encode()


def _tagged(tag: str, *parts: bytes) -> bytes:
    return b"".join([tag.encode(), b":", *(struct.pack("<Q", len(part)) + part for part in parts)])
