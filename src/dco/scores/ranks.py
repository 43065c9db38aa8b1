"""Probabilities of a chunk of rows as arrays: ranks, masses along the ranks, and the first labels, without an index sort.

Masses are sums of probabilities rounded to multiples of 2**-50. Such sums are exact in double precision as long as they
stay below 8, so the order of summation cannot matter: the mass above one label may be summed as it stands in memory, and
the mass along the ranks may be summed in blocks.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dco.foundations.arrays import Bools, Floats, Integers

BLOCK = 32  # ranks summed together when the place of a threshold along the ranks is looked for
_LARGEST_MASS = 8.0  # below it, sums of multiples of 2**-50 are exact

Doubles = NDArray[np.float64]


def native(probabilities: Floats) -> Floats:
    """Probabilities in single or double precision as this machine stores them."""
    dtype = np.float32 if probabilities.dtype.itemsize == 4 else np.float64
    return np.ascontiguousarray(probabilities, dtype=dtype)


def codes_of_members(members: Bools) -> tuple[NDArray[np.int32], Integers]:
    """Column numbers of all members, row by row, and how many there are up to the end of each row."""
    n, width = members.shape
    places = np.flatnonzero(members)
    starts = np.arange(n + 1) * width
    ends = np.searchsorted(places, starts)
    return (places - np.repeat(starts[:-1], np.diff(ends))).astype(np.int32), ends[1:]


@lru_cache(maxsize=64)
def least_probability(threshold: float, itemsize: int) -> Any:
    """The least floating-point number p >= 0 with 1 - p <= threshold, +inf if there is none up to 2.

    1 - p never rises with p, in floating point too, and numbers that are not negative are ordered like their bit patterns:
    bisection on the patterns is exact.
    """
    number, pattern, kind = ("<f", "<i", np.float32) if itemsize == 4 else ("<d", "<q", np.float64)
    below, enough = -1, struct.unpack(pattern, struct.pack(number, 2.0))[0]
    if threshold < 1.0 - 2.0:
        return kind(np.inf)
    while enough - below > 1:
        middle = (below + enough) // 2
        if 1.0 - struct.unpack(number, struct.pack(pattern, middle))[0] <= threshold:
            enough = middle
        else:
            below = middle
    return kind(struct.unpack(number, struct.pack(pattern, enough))[0])


def picked(probabilities: Floats, codes: Integers) -> Floats:
    """The probability of one label per row."""
    return np.take_along_axis(probabilities, codes[:, None], axis=1)[:, 0]


def two_largest(probabilities: Floats) -> tuple[Floats, Floats]:
    """The largest and the second largest probability of each row, (rows, 1).

    They are equal where the largest is tied; the second is 0 where there is one label only.
    """
    first = probabilities.max(axis=1, keepdims=True)
    smaller = np.asarray(probabilities != first)
    below = (probabilities * smaller).max(axis=1, keepdims=True)
    tied = count_true(smaller)[:, None] < probabilities.shape[1] - 1
    return first, np.where(tied, first, below)


def count_true(mask: Bools) -> Integers:
    """True values in each row; faster than np.count_nonzero along an axis."""
    return np.asarray(mask.view(np.uint8).sum(axis=1, dtype=np.uint32), dtype=np.int64)


def rounded(probabilities: Floats) -> Doubles:
    """Probabilities rounded to multiples of 2**-50, the spacing of doubles between 4 and 8."""
    shifted = probabilities.astype(np.float64)
    shifted += 4.0
    shifted -= 4.0
    return shifted


def checked_mass(mass: Doubles) -> Doubles:
    """The mass, or an error where a row sums to so much that sums are no longer exact."""
    if mass.size and mass[:, -1].max() >= _LARGEST_MASS:
        raise ValueError(
            f"the probabilities of a row sum to at least {mass[:, -1].max():g}, but this score adds them up as the mass of "
            "one distribution. Divide each row by its sum first."
        )
    return mass


def order_of_ranks(probabilities: Floats) -> Integers:
    """Columns by decreasing probability, equal ones by column."""
    order = np.argsort(-probabilities, axis=1)  # fast and unstable: rows with ties are sorted again
    falling = np.take_along_axis(probabilities, order, axis=1)
    tied = (falling[:, 1:] == falling[:, :-1]).any(axis=1)
    order[tied] = np.argsort(-probabilities[tied], axis=1, kind="stable")
    return order


def place_of(probabilities: Floats, codes: Integers, with_mass: bool) -> tuple[Doubles, Doubles, Doubles, Doubles]:
    """Of one label per row: the mass ranked before it (0 unless asked for), its own, the largest, its rank; (rows, 1)."""
    own = picked(probabilities, codes)[:, None]
    greater = probabilities > own
    ahead, earlier = count_true(greater), _equals_before(probabilities, own, codes)
    own_mass, before = rounded(own), np.zeros((len(own), 1))
    if with_mass:
        before[:, 0] = np.vecdot(rounded(probabilities), greater.astype(np.float64))
        before += earlier[:, None] * own_mass
        checked_mass(before + own_mass)
    top = probabilities.max(axis=1, keepdims=True).astype(np.float64)
    return before, own_mass, top, (1 + ahead + earlier)[:, None].astype(np.float64)


def _equals_before(probabilities: Floats, own: Floats, codes: Integers) -> Integers:
    """How many labels with the same probability stand in an earlier column than the label itself."""
    same = np.asarray(probabilities == own)
    earlier = count_true(same) - 1
    tied = np.flatnonzero(earlier)
    earlier[tied] = count_true(same[tied] & (np.arange(probabilities.shape[1]) < codes[tied, None]))
    return earlier


@dataclass(frozen=True, eq=False)
class Ranks:
    """A chunk of rows along the ranks, in blocks: own masses, the mass up to the end of each block, its last rank."""

    masses: Doubles  # (rows, blocks, BLOCK), zeros if no score asks for masses
    ends: Doubles  # (rows, blocks)
    last: Doubles  # (rows, blocks): the own mass at the last rank
    last_rank: Doubles  # (blocks,)
    top: Doubles  # (rows, 1): the largest probability
    k: int

    @classmethod
    def of(cls, falling: Floats, k: int, with_mass: bool) -> Ranks:
        """From what `falling_values` returns."""
        n, n_blocks = len(falling), falling.shape[1] // BLOCK
        own = rounded(np.negative(falling)) if with_mass else np.zeros(falling.shape)
        ends = checked_mass(np.cumsum(own.reshape(-1, BLOCK).dot(np.ones(BLOCK)).reshape(n, n_blocks), axis=1))
        last_rank = np.minimum(np.arange(1, n_blocks + 1) * BLOCK, k)
        last = np.take(own, last_rank - 1, axis=1)
        top = -falling[:, :1].astype(np.float64)
        return cls(own.reshape(n, n_blocks, BLOCK), ends, last, last_rank.astype(np.float64), top, k)

    @classmethod
    def along(cls, probabilities: Floats, with_mass: bool) -> Ranks:
        """From probabilities, which are sorted only where masses are asked for."""
        if with_mass:
            return cls.of(falling_values(probabilities), probabilities.shape[1], True)
        falling = np.zeros((len(probabilities), _padded(probabilities.shape[1])), dtype=probabilities.dtype)
        falling[:, 0] = -probabilities.max(axis=1)
        return cls.of(falling, probabilities.shape[1], False)


def _padded(k: int) -> int:
    """The least multiple of a block that holds k ranks."""
    return -(-k // BLOCK) * BLOCK


def falling_values(probabilities: Floats) -> Floats:
    """Negated probabilities in ascending order, so that ranks run from left to right; zeros fill the last block."""
    n, k = probabilities.shape
    falling = np.zeros((n, _padded(k)), dtype=probabilities.dtype)
    ranked = falling[:, :k]
    np.negative(probabilities, out=ranked)
    ranked.sort(axis=1)
    return falling


def falling_from(probabilities: Floats, least: float) -> tuple[Floats, Integers] | None:
    """`falling_values` of the probabilities >= least, and how many they are in each row; None if they are many."""
    reached = probabilities >= probabilities.dtype.type(least)
    held = count_true(reached)
    width = _padded(int(held.max()))
    if 2 * width > probabilities.shape[1]:
        return None
    falling = np.zeros((len(held), width), dtype=probabilities.dtype)
    values = probabilities.reshape(-1).take(np.flatnonzero(reached))  # many times faster than probabilities[reached]
    falling[np.arange(width) < held[:, None]] = np.negative(values, out=values)
    falling.sort(axis=1)
    return falling, held


def first_labels(probabilities: Floats, falling: Floats, count: Integers) -> Bools:
    """The `count` first labels of each row in the order of ranks, as a mask."""
    row, k = np.arange(len(count)), min(probabilities.shape[1], falling.shape[1])
    last = -falling[row, np.maximum(count, 1) - 1]
    last[count == 0] = np.inf
    members = np.asarray(probabilities >= last[:, None])
    tied = np.flatnonzero((count > 0) & (count < k) & (-falling[row, np.minimum(count, k - 1)] == last))
    if tied.size:
        some, limit = probabilities[tied], last[tied, None]
        same = some == limit
        left = count[tied, None] - count_true(some > limit)[:, None]
        members[tied] = (some > limit) | (same & (np.cumsum(same, axis=1) <= left))
    return members
