"""Probabilities of a chunk of rows as arrays: ranks, masses along the ranks, and the first labels, without an index sort.

Masses are sums of probabilities rounded to multiples of 2**-50. Such sums are exact in double precision as long as they
stay below 8, so the order of summation cannot matter: the mass above one label may be summed as it stands in memory, the
mass along the ranks in blocks, and a GPU gets the same sums as a CPU.

Three layouts serve three sizes, each with the same results. NumPy's long rows are handled in blocks of ranks. NumPy's short
rows are stored by columns, so that every step runs along many rows at once. Arrays of other libraries stay where they are,
and go through the functions of the array API standard.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dco.foundations.arrays import Bools, Floats, Integers, doubles, namespace, one_number, whole_numbers

BLOCK = 32  # ranks summed together when the place of a threshold along the ranks is looked for
SHORT = 64  # labels; rows up to here are stored by columns
_NETWORK = 32  # labels; rows up to here are sorted by comparing whole columns
_LARGEST_MASS = 8.0  # below it, sums of multiples of 2**-50 are exact

Doubles = NDArray[np.float64]
AtRank: TypeAlias = Callable[[Integers], Any]  # the value at one rank of each row, from 1; 0 stands for +inf


def native(probabilities: Floats, *, by_columns: bool = False) -> Floats:
    """Probabilities in single or double precision as this machine stores them, short rows by columns on request."""
    if not isinstance(probabilities, np.ndarray):
        return probabilities
    dtype = np.float32 if probabilities.dtype.itemsize == 4 else np.float64
    return np.asarray(probabilities, dtype=dtype, order="F" if by_columns and probabilities.shape[1] <= SHORT else "C")


def is_long(probabilities: Floats) -> bool:
    """Whether rows are handled in blocks of ranks."""
    return isinstance(probabilities, np.ndarray) and int(probabilities.shape[1]) > SHORT


def codes_of_members(members: Bools) -> tuple[Integers, NDArray[np.int32]]:
    """How many members there are in each row, and the column numbers of all, row by row."""
    if not isinstance(members, np.ndarray):
        xp, (n, width) = namespace(members), members.shape
        (found,) = xp.nonzero(xp.reshape(members, (-1,)))
        ends = xp.searchsorted(found, whole_numbers(n + 1, members) * width)
        return ends[1:] - ends[:-1], xp.astype(found, xp.int32) % width
    found = np.flatnonzero(members)
    starts = np.arange(len(members) + 1) * members.shape[1]
    sizes = np.diff(np.searchsorted(found, starts))
    return sizes, (found - np.repeat(starts[:-1], sizes)).astype(np.int32)


def mark(members: Bools, marks: NDArray[np.uint8]) -> None:
    """Write members as `LabelSets.of_marks` reads them, into zeros; each column moves those after it up by one bit."""
    for label in reversed(range(members.shape[1])):
        byte = marks[label >> 3]
        np.add(byte, byte, out=byte)
        np.bitwise_or(byte, members[:, label].view(np.uint8), out=byte)


@lru_cache(maxsize=64)
def least_probability(threshold: float, single: bool) -> float:
    """The least floating-point number p >= 0 with 1 - p <= threshold, +inf if there is none up to 2.

    1 - p never rises with p, in floating point too, and numbers that are not negative are ordered like their bit patterns:
    bisection on the patterns is exact.
    """
    number, pattern = ("<f", "<i") if single else ("<d", "<q")
    below, enough = -1, struct.unpack(pattern, struct.pack(number, 2.0))[0]
    if threshold < 1.0 - 2.0:
        return math.inf
    while enough - below > 1:
        middle = (below + enough) // 2
        if 1.0 - struct.unpack(number, struct.pack(pattern, middle))[0] <= threshold:
            enough = middle
        else:
            below = middle
    return float(struct.unpack(number, struct.pack(pattern, enough))[0])


def picked(probabilities: Floats, codes: Integers) -> Floats:
    """The probability of one label per row."""
    if isinstance(probabilities, np.ndarray) and probabilities.flags.forc:  # many times as fast
        n, k = probabilities.shape
        places = codes * n + np.arange(n) if probabilities.flags.fnc else np.arange(0, n * k, k) + codes
        return probabilities.ravel(order="K").take(places)
    return probabilities[whole_numbers(probabilities.shape[0], probabilities), codes]  # type: ignore[no-any-return]


def two_largest(probabilities: Floats) -> tuple[Floats, Floats]:
    """The largest and the second largest probability of each row, (rows, 1).

    They are equal where the largest is tied; the second is 0 where there is one label only.
    """
    xp = namespace(probabilities)
    first = xp.max(probabilities, axis=1, keepdims=True)
    smaller = probabilities != first
    below = xp.max(xp.where(smaller, probabilities, 0.0), axis=1, keepdims=True)
    tied = count_true(smaller)[:, None] < probabilities.shape[1] - 1
    return first, xp.where(tied, first, below)


def count_true(mask: Any) -> Any:
    """True values in each row; in NumPy faster than np.count_nonzero along an axis."""
    if not isinstance(mask, np.ndarray):
        return namespace(mask).count_nonzero(mask, axis=1)
    return _counted(mask).astype(np.int64)


def _counted(mask: Bools) -> Integers:
    """`count_true` in as few bytes as is fast."""
    if mask.shape[1] > SHORT:
        return mask.view(np.uint8).sum(axis=1, dtype=np.uint32)  # type: ignore[no-any-return]
    return np.asfortranarray(mask).view(np.uint8).sum(axis=1, dtype=np.uint8)  # type: ignore[no-any-return]


def rounded(probabilities: Floats, *, out: Doubles | None = None) -> Doubles:
    """Probabilities rounded to multiples of 2**-50, the spacing of doubles between 4 and 8; `out` is for NumPy's."""
    if not isinstance(probabilities, np.ndarray):
        return (probabilities + one_number(4.0, probabilities)) - 4.0
    shifted: Doubles = np.add(probabilities, 4.0, out=out, dtype=np.float64)
    shifted -= 4.0
    return shifted


def are_rounded(probabilities: Floats) -> bool:
    """Whether `rounded` leaves them as they are: numbers in single precision that are not small."""
    return probabilities.dtype == np.float32 and bool(probabilities.min(initial=1.0) >= 2.0**-27)


def running_sums(values: Doubles) -> Any:
    """Sums from the first column up to each."""
    if not isinstance(values, np.ndarray):
        return namespace(values).cumulative_sum(values, axis=1)
    if not values.flags.fnc:
        return np.cumsum(values, axis=1)
    sums = values.copy(order="K")
    for column in range(1, sums.shape[1]):
        sums[:, column] += sums[:, column - 1]
    return sums


def checked_mass(mass: Doubles) -> Doubles:
    """The mass, or an error where a row sums to so much that sums are no longer exact."""
    if mass.shape[0] and (most := float(namespace(mass).max(mass[:, -1]))) >= _LARGEST_MASS:
        raise ValueError(
            f"the probabilities of a row sum to at least {most:g}, but this score adds them up as the mass of one "
            "distribution. Divide each row by its sum first."
        )
    return mass


def replaced(array: Any, rows: Bools, values: Any) -> Any:
    """The array with other values in some rows, given by a mask; in place where the library writes into arrays."""
    if hasattr(array, "at"):  # JAX does not
        return array.at[rows].set(values)
    array[rows] = values
    return array


def along_ranks(probabilities: Floats, function: Callable[[Floats], Doubles]) -> Doubles:
    """`function` of the columns by decreasing probability, equal ones by column; its values are put back in their places."""
    xp = namespace(probabilities)
    if xp is not np:
        order = xp.argsort(probabilities, axis=1, descending=True, stable=True)
        scores = function(xp.take_along_axis(probabilities, order, axis=1))
        return xp.take_along_axis(scores, xp.argsort(order, axis=1), axis=1)  # type: ignore[no-any-return]
    order = np.argsort(-probabilities, axis=1)  # fast and unstable: rows with ties are sorted again
    falling = np.take_along_axis(probabilities, order, axis=1)
    tied = (falling[:, 1:] == falling[:, :-1]).any(axis=1)
    order[tied] = np.argsort(-probabilities[tied], axis=1, kind="stable")
    result = np.empty(order.shape)
    np.put_along_axis(result, order, function(falling), axis=1)  # equal values: the same in any order
    return result


def place_of(probabilities: Floats, codes: Integers, with_mass: bool) -> tuple[Doubles, Doubles, Doubles, Doubles]:
    """Of one label per row: the mass up to it (if asked for), its own, the largest, its rank; (rows, 1)."""
    xp, own = namespace(probabilities), picked(probabilities, codes)[:, None]
    own_mass = rounded(own)
    if isinstance(probabilities, np.ndarray):
        if is_long(probabilities):
            larger = probabilities > own
            ahead, mass, same = count_true(larger)[:, None], np.zeros(own.shape), count_true(probabilities == own)
            if with_mass:
                mass += np.vecdot(rounded(probabilities), larger.astype(np.float64))[:, None]
        else:
            ahead, mass, same = _larger(probabilities, own, with_mass)
        mass += own_mass
        if (tied := np.flatnonzero(same > 1)).size:
            before = np.arange(probabilities.shape[1]) < codes[tied][:, None]
            earlier = count_true((probabilities[tied] == own[tied]) & before)[:, None]
            ahead[tied] = ahead[tied] + earlier
            mass[tied] += earlier * own_mass[tied]
    else:  # without a look at which rows have ties: the device would have to be waited for
        larger = probabilities > own
        larger |= (probabilities == own) & (whole_numbers(probabilities.shape[1], codes) < codes[:, None])
        ahead, mass = count_true(larger)[:, None], own_mass
        if with_mass:
            mass = mass + xp.sum(rounded(xp.where(larger, probabilities, 0.0)), axis=1, keepdims=True)
    if with_mass:
        checked_mass(mass)
    return mass, own_mass, doubles(xp.max(probabilities, axis=1, keepdims=True)), doubles(1 + ahead)


def _larger(probabilities: Floats, own: Floats, with_mass: bool) -> tuple[Integers, Doubles, Integers]:
    """How many probabilities of a short row are larger than its own one, their mass (if asked for), how many equal it."""
    larger, same = np.zeros(own.shape, dtype=np.uint8), np.zeros(own.shape, dtype=np.uint8)
    found, mass, plain = np.empty(own.shape, dtype=bool), np.zeros(own.shape), are_rounded(probabilities)
    part = np.empty(own.shape, dtype=np.float32 if plain else np.float64)
    for column in probabilities.T[:, :, None]:
        same += np.equal(column, own, out=found).view(np.uint8)
        larger += np.greater(column, own, out=found).view(np.uint8)
        if with_mass:
            mass += np.multiply(column if plain else rounded(column, out=part), found, out=part)
    return larger, mass, same[:, 0]


def at_rank(falling: Floats, rank: Integers) -> Floats:
    """The value at one rank of each row, from 1; 0 stands for +inf. `falling` may be negated."""
    xp = namespace(falling)
    return abs(xp.where(rank == 0, np.inf, picked(falling, xp.clip(rank - 1, 0, falling.shape[1] - 1))))


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
        """From what `negated_falling` returns."""
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
            return cls.of(negated_falling(probabilities), probabilities.shape[1], True)
        falling = np.zeros((len(probabilities), _padded(probabilities.shape[1])), dtype=probabilities.dtype)
        falling[:, 0] = -probabilities.max(axis=1)
        return cls.of(falling, probabilities.shape[1], False)


def _padded(k: int) -> int:
    """The least multiple of a block that holds k ranks."""
    return -(-k // BLOCK) * BLOCK


def negated_falling(probabilities: Floats) -> Floats:
    """Negated probabilities in ascending order, so that ranks run from left to right; zeros fill the last block."""
    n, k = probabilities.shape
    falling = np.zeros((n, _padded(k)), dtype=probabilities.dtype)
    ranked = falling[:, :k]
    np.negative(probabilities, out=ranked)
    ranked.sort(axis=1)
    return falling


def falling_from(probabilities: Floats, least: float) -> tuple[Floats, Integers] | None:
    """`negated_falling` of the probabilities >= least, and how many they are in each row; None if they are many."""
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


def falling_columns(probabilities: Floats) -> tuple[Floats, AtRank]:
    """Short rows along the ranks, a line of numbers for each rank, and a function that gives what `at_rank` gives."""
    n, k = probabilities.shape
    lines = np.empty((k + 1, n), dtype=probabilities.dtype)
    if k <= _NETWORK:
        steps, places = _comparisons(k)
        each = list(lines)
        for place, column in zip(places, probabilities.T, strict=True):
            each[place][:] = column
        for high, low, spare in steps:
            np.minimum(each[high], each[low], out=each[spare])
            np.maximum(each[high], each[low], out=each[high])
    else:
        lines[1:] = np.sort(np.ascontiguousarray(probabilities))[:, ::-1].T
    lines[0] = np.inf
    return lines[1:], lambda rank: lines.reshape(-1).take(np.multiply(rank, n, dtype=np.int64) + np.arange(n))


@lru_cache(maxsize=_NETWORK)
def _comparisons(k: int) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Comparisons of lines that sort any k numbers, by Batcher's (1968) odd-even merge sort, and the line of each number.

    The larger number stays in the first line, the smaller goes to the third, which is free; then the second is free. Lines
    are numbered so that in the end each rank, from 1, is in its own line and line 0 is free.
    """
    steps: list[tuple[int, int, int]] = []
    order = list(range(k + 1))  # of ranks from 1; the first is the line that is free
    sorted_runs = 1
    while sorted_runs < k:
        step = sorted_runs
        while step:
            for start in range(step % sorted_runs, k - step, 2 * step):
                for high in range(start, min(start + step, k - step)):
                    low = high + step
                    if high // (2 * sorted_runs) == low // (2 * sorted_runs):
                        steps.append((order[high + 1], order[low + 1], order[0]))
                        order[0], order[low + 1] = order[low + 1], order[0]
            step //= 2
        sorted_runs *= 2
    line = {old: new for new, old in enumerate(order)}
    return [(line[high], line[low], line[spare]) for high, low, spare in steps], [line[place] for place in range(1, k + 1)]


def first_labels(probabilities: Floats, falling: AtRank, count: Integers) -> Bools:
    """The `count` first labels of each row in the order of ranks, as a mask; `falling` gives the value at a rank of each."""
    xp, k = namespace(count), probabilities.shape[1]
    last = falling(count)
    if by_columns := isinstance(last, np.ndarray) and probabilities.flags.fnc:
        members = np.empty(probabilities.shape, dtype=bool, order="F")
        for column, found in zip(probabilities.T, members.T, strict=True):  # several times faster than all at once
            np.greater_equal(column, last, out=found)
    else:
        members = probabilities >= last[:, None]
    if by_columns:
        behind = _counted(members) != count  # cheaper than another look at the values
    else:
        behind = (count < k) & (falling(xp.clip(count + 1, None, k)) == last)
    (tied,) = xp.nonzero(behind)
    if not tied.shape[0]:
        return members
    some, limit = xp.take(probabilities, tied, axis=0), last[tied][:, None]
    above, same = some > limit, some == limit
    left = doubles(count[tied] - count_true(above))[:, None]
    return replaced(members, behind, above | (same & (running_sums(doubles(same)) <= left)))  # type: ignore[no-any-return]
