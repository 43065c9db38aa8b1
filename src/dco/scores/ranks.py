"""Probabilities of a chunk of rows as arrays: ranks, masses along the ranks, and the first labels,
without an index sort.

Masses are sums of probabilities rounded to multiples of 2**-50. Such sums are exact in double
precision as long as they stay below 8, so the order of summation cannot matter: the mass above one
label may be summed as it stands in memory, the mass along the ranks in blocks, and a GPU gets the
same sums as a CPU.

Three layouts serve three sizes, each with the same results. NumPy's long rows are handled in blocks
of ranks. NumPy's short rows are stored by columns, so that every step runs along many rows at once.
Arrays of other libraries stay where they are, and go through the functions of the array API
standard.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations, pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dco.foundations.arrays import (
    AnyArray,
    Bools,
    Floats,
    Integers,
    doubles,
    joined,
    namespace,
    one_number,
    whole_numbers,
)

BLOCK = 32  # ranks summed together when the place of a threshold along the ranks is looked for
SHORT = 64  # labels; rows up to here are stored by columns
PAIRS = 4  # labels; of rows up to here every two are compared, which needs no look for ties
NETWORK = 32  # labels; rows up to here are sorted by comparing whole columns
_BITS = np.left_shift(1, np.arange(8)).astype(np.uint8)
_LARGEST_MASS = 8.0  # below it, sums of multiples of 2**-50 are exact

Doubles = NDArray[np.float64]
# the value at one rank of each row, from 1; 0 stands for +inf
AtRank: TypeAlias = Callable[[Integers], Any]


def native(probabilities: Floats, *, by_columns: bool = False) -> Floats:
    """Probabilities in single or double precision as this machine stores them, short rows by
    columns on request.
    """
    if not isinstance(probabilities, np.ndarray):
        return probabilities
    dtype = np.float32 if probabilities.dtype.itemsize == 4 else np.float64
    return np.asarray(
        probabilities,
        dtype=dtype,
        order="F" if by_columns and probabilities.shape[1] <= SHORT else "C",
    )


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
    """Write members as `LabelSets.of_marks` reads them; labels never seen come last, without
    columns if none is a member.
    """
    marks[-(-members.shape[1] // 8) :] = 0
    for byte, first in zip(marks, range(0, members.shape[1], 8), strict=False):
        bits = np.asfortranarray(members[:, first : first + 8]).view(np.uint8)
        np.bitwise_or.reduce(bits * _BITS[: bits.shape[1]], axis=1, out=byte)


@lru_cache(maxsize=64)
def least_probability(threshold: float, single: bool) -> float:
    """The least floating-point number p >= 0 with 1 - p <= threshold, +inf if there is none up to
    2.

    1 - p never rises with p, in floating point too, and numbers that are not negative are ordered
    like their bit patterns: bisection on the patterns is exact.
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
        places = (
            codes * n + np.arange(n) if probabilities.flags.fnc else np.arange(0, n * k, k) + codes
        )
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


def rounded(probabilities: Floats, *, exact: bool = False) -> Doubles:
    """Probabilities rounded to multiples of 2**-50, the spacing of doubles between 4 and 8; `exact`
    if they are such.
    """
    if not isinstance(probabilities, np.ndarray):
        return (probabilities + one_number(4.0, probabilities)) - 4.0
    values = doubles(probabilities)
    if not exact:
        values += 4.0
        values -= 4.0
    return values


def are_rounded(probabilities: Floats) -> bool:
    """Whether `rounded` leaves them as they are: numbers in single precision that are not small."""
    return probabilities.dtype == np.float32 and bool(probabilities.min(initial=1.0) >= 2.0**-27)


def running_sums(values: Doubles) -> Any:
    """Sums from the first column up to each."""
    if not isinstance(values, np.ndarray):
        return namespace(values).cumulative_sum(values, axis=1)
    return np.cumsum(values, axis=1)


def line_masses(lines: Floats, share: Doubles | None) -> Doubles:
    """The mass up to each rank of `falling_columns`, or of the rank itself a share only, as
    `RankScore.kept`.
    """
    own = rounded(lines, exact=are_rounded(lines[-1]))
    mass = own if share is None else own.copy()
    for before, line in pairwise(mass):
        line += before
    checked_mass(mass[-1:].T)
    if share is not None:
        own *= share
        own[1:] += mass[:-1]
    return own


def in_one(parts: Iterator[Doubles], n: int) -> Doubles:
    """Parts of n rows, one after the other; NumPy's are never held twice."""
    first, start = next(parts), 0
    if not isinstance(first, np.ndarray):
        return joined([first, *parts])
    whole = np.empty((n, *first.shape[1:]))
    for part in chain([first], parts):
        whole[start : start + len(part)] = part
        start += len(part)
    return whole


def checked_mass(mass: Doubles) -> Doubles:
    """The mass, or an error where a row sums to so much that sums are no longer exact."""
    if mass.shape[0] and (most := float(namespace(mass).max(mass[:, -1]))) >= _LARGEST_MASS:
        raise ValueError(
            f"the probabilities of a row sum to at least {most:g}, but this score adds them up as "
            f"the mass of one "
            "distribution. Divide each row by its sum first."
        )
    return mass


def replaced(array: Any, rows: Bools, values: Any) -> Any:
    """The array with other values in some rows, given by a mask; in place where the library writes
    into arrays.
    """
    if hasattr(array, "at"):  # JAX does not
        return array.at[rows].set(values)
    array[rows] = values
    return array


def along_ranks(probabilities: Floats, function: Callable[[Floats], Doubles]) -> Doubles:
    """`function` of the columns by decreasing probability, equal ones by column; its values are put
    back in their places.
    """
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
    # equal values: the same in any order
    np.put_along_axis(result, order, function(falling), axis=1)
    return result


def place_of(
    probabilities: Floats, codes: Integers, with_mass: bool, with_top: bool = True
) -> tuple[Doubles, Doubles, Doubles, Doubles]:
    """Of one label per row: the mass up to it, its own, the largest (0 if not asked for), its rank;
    (rows, 1).
    """
    xp, own = namespace(probabilities), picked(probabilities, codes)[:, None]
    top = (
        doubles(xp.max(probabilities, axis=1, keepdims=True)) if with_top else one_number(0.0, own)
    )
    if isinstance(probabilities, np.ndarray):
        exact = not is_long(probabilities) and are_rounded(probabilities)
        own_mass, larger, same = (
            rounded(own, exact=exact),
            probabilities > own,
            probabilities == own,
        )
        ahead, mass = _counted(larger)[:, None], own_mass
        if with_mass and is_long(probabilities):
            mass = mass + np.vecdot(rounded(probabilities), larger.astype(np.float64))[:, None]
        elif with_mass:
            above = probabilities * larger if exact else rounded(probabilities * larger)
            mass = mass + np.add.reduce(above, axis=1, dtype=np.float64, keepdims=True)
        if np.count_nonzero(same) > len(same):
            tied = np.flatnonzero(_counted(same) > 1)
            before = np.arange(probabilities.shape[1]) < codes[tied][:, None]
            earlier = _counted(same[tied] & before)[:, None]
            ahead[tied] += earlier
            mass = mass.copy()
            mass[tied] += earlier * own_mass[tied]
    else:  # without a look at which rows have ties: the device would have to be waited for
        larger = probabilities > own
        larger |= (probabilities == own) & (
            whole_numbers(probabilities.shape[1], codes) < codes[:, None]
        )
        ahead, own_mass = count_true(larger)[:, None], rounded(own)
        mass = own_mass
        if with_mass:
            mass = mass + xp.sum(
                rounded(xp.where(larger, probabilities, 0.0)), axis=1, keepdims=True
            )
    if with_mass:
        checked_mass(mass)
    return mass, own_mass, top, doubles(1 + ahead)


def at_rank(falling: Floats, rank: Integers) -> Floats:
    """The value at one rank of each row, from 1; 0 stands for +inf. `falling` may be negated."""
    xp = namespace(falling)
    return abs(
        xp.where(rank == 0, np.inf, picked(falling, xp.clip(rank - 1, 0, falling.shape[1] - 1)))
    )


@dataclass(frozen=True, eq=False)
class Ranks:
    """A chunk of rows along the ranks, in blocks: own masses, the mass up to the end of each block,
    its last rank.
    """

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
        ends = checked_mass(
            np.cumsum(own.reshape(-1, BLOCK).dot(np.ones(BLOCK)).reshape(n, n_blocks), axis=1)
        )
        last_rank = np.minimum(np.arange(1, n_blocks + 1) * BLOCK, k)
        last = np.take(own, last_rank - 1, axis=1)
        top = -falling[:, :1].astype(np.float64)
        return cls(
            own.reshape(n, n_blocks, BLOCK), ends, last, last_rank.astype(np.float64), top, k
        )

    @classmethod
    def along(cls, probabilities: Floats, with_mass: bool) -> Ranks:
        """From probabilities, which are sorted only where masses are asked for."""
        if with_mass:
            return cls.of(negated_falling(probabilities), probabilities.shape[1], True)
        falling = np.zeros(
            (len(probabilities), _padded(probabilities.shape[1])), dtype=probabilities.dtype
        )
        falling[:, 0] = -probabilities.max(axis=1)
        return cls.of(falling, probabilities.shape[1], False)


def _padded(k: int) -> int:
    """The least multiple of a block that holds k ranks."""
    return -(-k // BLOCK) * BLOCK


def negated_falling(probabilities: Floats) -> Floats:
    """Negated probabilities in ascending order, so that ranks run from left to right; zeros fill
    the last block.
    """
    n, k = probabilities.shape
    falling = np.zeros((n, _padded(k)), dtype=probabilities.dtype)
    ranked = falling[:, :k]
    np.negative(probabilities, out=ranked)
    ranked.sort(axis=1)
    return falling


def falling_from(probabilities: Floats, least: float) -> tuple[Floats, Integers] | None:
    """`negated_falling` of the probabilities >= least, and how many they are in each row; None if
    they are many.
    """
    reached = probabilities >= probabilities.dtype.type(least)
    held = count_true(reached)
    width = _padded(int(held.max()))
    if 2 * width > probabilities.shape[1]:
        return None
    falling = np.zeros((len(held), width), dtype=probabilities.dtype)
    # many times faster than probabilities[reached]
    values = probabilities.reshape(-1).take(np.flatnonzero(reached))
    falling[np.arange(width) < held[:, None]] = np.negative(values, out=values)
    falling.sort(axis=1)
    return falling, held


def falling_columns(probabilities: AnyArray) -> tuple[AnyArray, AtRank]:
    """Short rows along the ranks, a line of numbers for each rank, and a function that gives what
    `at_rank` gives.
    """
    n, k = probabilities.shape
    lines = np.empty((k + 1, n), dtype=probabilities.dtype)
    if 1 < k <= NETWORK:
        each = [*lines, *probabilities.T]
        for first, second, larger, smaller in _comparisons(k):
            np.minimum(each[first], each[second], out=each[smaller])
            np.maximum(each[first], each[second], out=each[larger])
    else:
        lines[1:] = np.sort(np.ascontiguousarray(probabilities))[:, ::-1].T
    lines[0] = np.inf if lines.dtype.kind == "f" else 65535

    def at(rank: Integers) -> Floats:
        places = rank.astype(np.int64)
        places *= n
        places += np.arange(n)
        return lines.reshape(-1).take(places, mode="clip")

    return lines[1:], at


@lru_cache(maxsize=NETWORK)
def _comparisons(k: int) -> list[tuple[int, int, int, int]]:
    """Comparisons that sort any k lines of numbers, by Batcher's (1968) odd-even merge sort.

    Each says which two lines are compared, and where the larger and the smaller numbers go, the
    smaller first. The numbers to sort are lines k + 1 to 2 k and stay there; those that are written
    are 0 to k. In the end rank r is line r, 0 is free.
    """
    steps: list[tuple[int, int, int, int]] = []
    order, free = list(range(k + 1, 2 * k + 1)), list(range(k + 1))
    sorted_runs = 1
    while sorted_runs < k:
        step = sorted_runs
        while step:
            for start in range(step % sorted_runs, k - step, 2 * step):
                for high in range(start, min(start + step, k - step)):
                    low = high + step
                    if high // (2 * sorted_runs) == low // (2 * sorted_runs):
                        first, second, smaller = order[high], order[low], free.pop()
                        written = [line for line in (first, second) if line <= k]
                        order[high], order[low] = written.pop(0) if written else free.pop(), smaller
                        free += written
                        steps.append((first, second, order[high], smaller))
            step //= 2
        sorted_runs *= 2
    line = {old: rank for rank, old in enumerate(free + order)} | {
        given: given for given in range(k + 1, 2 * k + 1)
    }
    return [
        (line[first], line[second], line[larger], line[smaller])
        for first, second, larger, smaller in steps
    ]


def screened(
    probabilities: Floats, limits: Doubles, with_mass: bool, with_top: bool
) -> tuple[NDArray[np.uint8], Integers]:
    """Sets of short rows as `LabelSets.of_marks` reads them, and the rows that are too close to
    call: theirs mean nothing.

    A rank is in the set if the mass up to it, the largest probability or else 0 is at most its
    limit. Here probabilities are multiples of 2**-15, so that all steps run along numbers of 16
    bits; what they can be wrong by is allowed for on both sides of each limit, and rows that come
    to lie between the sides, or whose last labels are tied, are left.
    """
    (n, k), half, unsure = probabilities.shape, probabilities.itemsize // 2, []
    marks, step = np.empty((-(-k // 8), n), dtype=np.uint8), min(2**15, 2**18 // k)
    error = (1.0 + 0.5 * np.arange(1, k + 1)) * with_mass + 1.5 * with_top
    sure, maybe = (
        np.clip(np.floor(limits * 2.0**15 + e) + 1, 0, 65535).astype(np.uint16)[:, None]
        for e in (-error, error)
    )
    # moves the 15 bits to the end
    to_end = probabilities.dtype.type(2.0 ** (np.finfo(probabilities.dtype).nmant - 15))
    space = np.empty((min(step, n), k), dtype=probabilities.dtype)
    for start in range(0, n, step):
        rows = slice(start, start + step)
        part = probabilities[rows]
        whole = np.add(part, to_end, out=space[: len(part)]).view(np.uint16)
        steps = np.ascontiguousarray(
            whole[:, (0 if sys.byteorder == "little" else half - 1) :: half].T
        )
        lines, at = falling_columns(steps.T)
        reached = lines[:1] * np.uint16(with_top) + np.uint16(1)
        if with_mass:
            reached = lines.copy()
            reached[0] += 1
            for before, line in pairwise(reached):
                line += before
        if (reached[1:] < reached[:-1]).any():  # beyond what 16 bits hold: no distributions
            return marks, np.arange(n)
        count, most = (
            np.add.reduce((reached <= side).view(np.uint8), axis=0, dtype=np.uint8)
            for side in (sure, maybe)
        )
        mark((steps >= at(count)).T, marks[:, rows])
        held = np.add.reduce(np.bitwise_count(marks[:, rows]), axis=0, dtype=np.uint8)
        unsure.append(np.flatnonzero((count != most) | (held != count)) + start)
        if 4 * unsure[-1].size > count.size:  # of the rest too, as it seems
            return marks, np.concatenate([*unsure, np.arange(min(start + step, n), n)])
    return marks, np.concatenate(unsure)


def first_labels(probabilities: Floats, falling: AtRank, count: Integers) -> Bools:
    """The `count` first labels of each row in the order of ranks, as a mask; `falling` gives the
    value at a rank of each.
    """
    xp, k = namespace(count), probabilities.shape[1]
    if k <= PAIRS and xp is np:
        # as if later labels came first
        ahead = np.repeat(np.arange(k, dtype=np.uint8)[::-1, None], len(count), axis=1)
        for first, second in combinations(range(k), 2):
            goes_first = np.greater_equal(probabilities[:, first], probabilities[:, second]).view(
                np.uint8
            )
            ahead[second] += goes_first
            ahead[first] -= goes_first
        return (ahead < count).T  # type: ignore[no-any-return, unused-ignore]
    last = falling(count)
    members: Bools = probabilities >= last[:, None]
    if isinstance(last, np.ndarray) and probabilities.flags.fnc:
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
