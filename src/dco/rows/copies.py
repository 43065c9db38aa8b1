"""Copies of calibration rows in the roles that a caller brings: equal rows, and rows that are equal
but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.sparse import issparse

from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.foundations.errors import OverlappingRolesError
from dco.foundations.notes import Note
from dco.rows import fingerprints
from dco.rows.fingerprints import Hashes, Words
from dco.rows.rows import Rows, take_features

Duplicates: TypeAlias = Literal["natural", "drop", "allow"]

_BITS, _TARGET_BITS = 20, 12  # float32 has 24, and noise of 1e-9 of the spread begins at the 30th
_NATURAL = 1e-5  # repeats less likely than this, were roles cut at random, are copies
# read at once, and rounded at once: these stay in the processor's cache
_CELLS_AT_ONCE, _ROWS_AT_ONCE = 2**18, 2**13


def check_overlap(
    parts: Mapping[str, Rows],
    hashes: Mapping[str, Hashes],
    *,
    duplicates: Duplicates,
    notes: list[Note],
) -> dict[str, int]:
    """Refuse calibration rows that are also in train or tune; return how many each of them shares.

    For roles that the caller brings: there a shared row is most likely a leak. Near-copies
    (float32, digits that differ by noise, blanks around text, another target) are refused where
    there are more of them than natural repeats explain. A few rows that agree at float32 and not at
    float64 get a note: they may be rounded copies. ``duplicates="allow"`` declares that repeats are
    natural (a fresh row is as likely to be a repeat), and only counts equal rows.
    """
    shared = {
        role: fingerprints.overlap(hashes["calibrate"], own)
        for role, own in hashes.items()
        if role != "calibrate"
    }
    if duplicates != "allow":
        for role, rows in shared.items():
            if rows.size:
                raise _refused(
                    f"{role} and calibrate share {rows.size} rows (first: calibration "
                    f"row {rows[0]});"
                )
        _check_near_copies(parts, notes)
    return {role: rows.size for role, rows in shared.items()}


def _refused(found: str) -> OverlappingRolesError:
    return OverlappingRolesError(
        f"{found} coverage needs calibration rows that fitting and tuning never saw. Drop them "
        f"from one role, let "
        'assign_roles() build both, or pass duplicates="allow" if a new row is as likely to be a '
        "repeat."
    )


def _check_near_copies(parts: Mapping[str, Rows], notes: list[Note]) -> None:
    """Refuse calibration rows whose features are those of another role, but for rounding, noise and
    blanks.
    """
    near = dict(zip(parts, _near_hashes(list(parts.values())), strict=True))
    own = near.pop("calibrate")
    for role, hashes in near.items():
        for mine, other in zip(own, hashes, strict=True):
            pairs = Pairs.of(mine, other)
            if pairs.chance < _NATURAL:
                raise _refused(
                    f"{role} and calibrate share the features of {pairs.count} rows (first: "
                    f"calibration row {pairs.first}), "
                    "up to rounding and blanks, whatever their targets: these are copies, for "
                    "natural repeats would occur "
                    f"inside roles too, and share about {pairs.expected:.0f} like this;"
                )
        rows = np.flatnonzero(
            np.any([np.isin(*pair) for pair in zip(own[-2:], hashes[-2:], strict=True)], axis=0)
        )
        if rows.size:
            _note_rounded_copies(role, parts[role], rows, parts["calibrate"], notes)


def _note_rounded_copies(
    role: str, others: Rows, rows: Integers, calibrate: Rows, notes: list[Note]
) -> None:
    """Note those of these calibration rows that agree with a row of the role at float32, targets
    included.
    """
    some = fingerprints.row_fingerprints(
        take_features(calibrate.X, rows), calibrate.y[rows], at_float32=True
    )
    found = rows[
        fingerprints.overlap(
            some, fingerprints.row_fingerprints(others.X, others.y, at_float32=True)
        )
    ]
    if found.size:
        text = (
            f"{found.size} calibration rows (first: {found[0]}) agree with rows of {role} "
            f"after rounding to float32."
        )
        remedy = (
            "If they are copies at another precision, drop them from one role: coverage "
            "needs unseen rows."
        )
        notes.append(Note("rounded-copies", text, remedy))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Values that occur once in `a` and also in `b`: how many, the first place in `a`, and what is
    natural.

    Repeats are natural if roles were cut at random: m copies among N rows, n of them in `a`, then
    have exactly one copy in `a` with the hypergeometric probability, at most about 1/2. `expected`
    is the sum of these over all values that repeat, inside roles too, and `chance` the binomial
    probability of a count so large (Hoeffding 1956: binomial tails bound those of unequal
    probabilities). Few distinct values have many copies in each role, and hence no such pair at
    all.
    """

    count: int
    first: int
    expected: float
    chance: float

    @classmethod
    def of(cls, a: Words, b: Words) -> Pairs:
        """The pairs of two roles, by one hash of each of their rows."""
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
        m = copies[copies <= rest + 1]
        # the others of `a` come from the other values
        ways = gammaln(n + rest - m + 1) - gammaln(n) - gammaln(rest + 2 - m)
        every = gammaln(n + rest + 1) - gammaln(n + 1) - gammaln(rest + 1)
        expected = float(np.sum(m * np.exp(ways - every)))
        count = int(alone.size)
        chance = (
            float(betainc(count, copies.size - count + 1, expected / copies.size))
            if count > expected
            else 1.0
        )
        return cls(count, int(first[alone].min()), expected, chance)


def _near_hashes(roles: list[Rows]) -> list[Words]:
    """Eight hashes of each row, (8, n) for each role: four of the features alone, then these four
    with the target.

    Near-copies agree in most of them. Numbers are rounded in two ways, in steps of a small share of
    the column's spread (for noise, also on columns far from zero, such as dates) and to fewer bits
    (for float32), each to the nearest step and downwards: a number near a border of one grid is
    inside a cell of the other. Wide tables are rounded to fewer bits, as all columns must agree at
    once. Text is stripped.
    """
    features = [fingerprints.as_table(own.X, "X") for own in roles]
    if len({table.shape[1] for table in features}) > 1:
        # rows of other columns are no copies
        return [np.zeros((0, len(own)), np.uint64) for own in roles]
    X = _rounded_rows(features, bits=max(_BITS - int(features[0].shape[1]).bit_length(), 8))
    y = _rounded_rows([fingerprints.as_table(own.y, "y") for own in roles], bits=_TARGET_BITS)
    return np.split(
        np.concatenate([X, fingerprints.mixed(X) + y]),
        np.cumsum([len(own) for own in roles])[:-1],
        axis=1,
    )


def _rounded_rows(tables: list[Any], *, bits: int) -> Words:
    """Four hashes of each row of all tables, one after the other, (4, n): sums over the cells that
    are not zero.
    """
    keys = fingerprints.column_keys(0, tables[0].shape[1])[0]
    if any(map(issparse, tables)):
        from scipy.sparse import csr_matrix, vstack

        matrix = vstack([csr_matrix(table) for table in tables], format="csr")
        values = matrix.data.astype(np.float64)
        held = np.where(np.isfinite(values), values, 0.0)
        n, width = matrix.shape
        first, second = (
            np.bincount(matrix.indices, held**power, minlength=width) / n for power in (1, 2)
        )
        spread = np.sqrt(np.maximum(second - first**2, 0.0))[matrix.indices]
        return fingerprints.sums_by_row(
            _rounded_words(values, spread, keys[matrix.indices], bits=bits), matrix
        )
    found = np.zeros((4, sum(table.shape[0] for table in tables)), np.uint64)
    for columns, block in _blocks(tables):
        if block.dtype == np.uint64:
            found += fingerprints.mixed(block ^ keys[columns])
            continue
        spread = _spread(block)
        for start in range(0, len(block), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            found[:, rows] += _rounded_words(block[rows], spread, keys[columns], bits=bits).sum(
                axis=2
            )
    return found


def _rounded_words(values: Floats, spread: Floats, keys: Words, *, bits: int) -> Words:
    """Hashes of the numbers under each of the four roundings; 0 for a number that is rounded to
    zero.
    """
    with np.errstate(all="ignore"):
        # a column without spread says nothing here
        steps = np.where(spread > 0, values / np.ldexp(spread, -bits), 0.0)
        whole, cut = (values + 0.0).view(np.uint64), np.uint64(52 - bits)
        half = np.uint64(1) << (cut - np.uint64(1))
        rounded = [(np.rint(steps) + 0.0).view(np.uint64), (np.floor(steps) + 0.0).view(np.uint64)]
        words = np.stack([*rounded, (whole + half) >> cut, whole >> cut])
    words[:, np.isnan(values)] = 1
    return fingerprints.mixed(words ^ keys) - fingerprints.mixed(keys)


def _spread(block: Floats) -> Floats:
    """The standard deviation of the finite numbers of each column."""
    finite = np.isfinite(block)
    with np.errstate(all="ignore"):
        count = np.maximum(finite.sum(axis=0), 1)
        centred = np.where(finite, block - np.where(finite, block, 0.0).sum(axis=0) / count, 0.0)
        return np.asarray(np.sqrt((centred**2).sum(axis=0) / count))


def _blocks(tables: list[Any]) -> Iterator[tuple[slice, AnyArray]]:
    """Columns of all tables, one below the other: numbers (n, k), or a word for each cell (n,) of a
    column with text.
    """
    numeric = all(isinstance(table, np.ndarray) and table.dtype.kind in "biuf" for table in tables)
    step = (
        max(1, _CELLS_AT_ONCE // max(1, sum(table.shape[0] for table in tables))) if numeric else 1
    )
    for start in range(0, tables[0].shape[1], step):
        at = slice(start, start + step)
        if numeric:
            yield at, np.concatenate([table[:, at].astype(np.float64) for table in tables])
        else:
            yield at, _column([fingerprints.column_of(table, start) for table in tables])


def _column(parts: list[Any]) -> AnyArray:
    """One column of all tables: numbers (n, 1) where all cells are numbers, dates or missing, else
    a word for each cell.
    """
    arrays = [
        part if isinstance(part, np.ndarray) else fingerprints.plain_column(part) for part in parts
    ]
    kinds = {array.dtype.kind for array in arrays}
    if kinds in ({"m"}, {"M"}):
        moments = np.concatenate(arrays)
        return np.asarray(np.where(np.isnat(moments), np.nan, moments.view(np.int64)))[:, None]
    if kinds <= set("biuf"):
        return np.concatenate([array.astype(np.float64) for array in arrays])[:, None]
    cells = [value for array in arrays for value in array.tolist()]
    missing = ("NoneType", "NAType", "NaTType")
    try:
        return np.array(
            [np.nan if type(value).__name__ in missing else value for value in cells],
            dtype=np.float64,
        )[:, None]
    except (TypeError, ValueError, OverflowError):
        words: Words = fingerprints.cell_words(
            [value.strip() if isinstance(value, str) else value for value in cells]
        )[0]
        return words
