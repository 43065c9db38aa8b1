"""Thresholds of scores that lie in many parts: files, arrays of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dco.calibration.guarantee import RankGuarantee
from dco.calibration.marginal import Marginal
from dco.calibration.pac import Pac
from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.foundations.display import counted
from dco.foundations.parallel import run_many
from dco.foundations.ranks import Level, Threshold, as_rational, checked_scores

_BITS = 16  # how many bits of a score one round finds
_ROUNDS = 4  # for the 64 bits of a float
_SIGN_BIT = np.uint64(1 << 63)


def partitioned_conformal(
    parts: Iterable[ArrayLike | Callable[[], ArrayLike]],
    *,
    alpha: Level,
    delta: Level | None = None,
    n_jobs: int | None = None,
    scheduler: Any = None,
) -> Threshold:
    """Compute `split_conformal` (with `delta` `bayesian_quadrature`) of scores in many parts.

    The threshold is that of all scores in one array, to the last bit. A part is an array, or a
    function without arguments that reads one and is called four times; if a part's scores differ
    from one call to the next, that is an error. `n_jobs` and `scheduler` (the address of a Dask
    cluster) say where parts are read.

    Floats compare as their bits do, so the wanted score is found 16 bits at a time: each round
    counts, in every part, how many scores go on from the bits found so far with each of 65,536
    patterns (half a megabyte), and the counts are added up. Ties and infinities count like other
    scores.
    """
    level = as_rational(alpha)
    guarantee: RankGuarantee = Marginal()
    if delta is not None:
        guarantee = Pac(as_rational(delta, name="delta"))
    scattered_scores = _ScatteredScores(list(parts), n_jobs, scheduler)

    # 1. Count the scores, which decides the rank.
    first_counts = scattered_scores.count_patterns(prefix=0, n_rounds=0)
    n = sum(counts.n_scores for counts in first_counts)
    rank = guarantee.rank(n, alpha=level)

    # 2. Find the score of this rank; rank n + 1 stands for infinity.
    value = np.inf
    if rank <= n:
        value = _find_score_of_rank(rank, scattered_scores, first_counts)

    threshold = Threshold(
        value=value,
        rank=rank,
        n=n,
        guarantee=guarantee.certifies,
        alpha=float(level),
        delta=None if guarantee.delta is None else float(guarantee.delta),
    )
    guarantee.warn_if_infinite(threshold, alpha=level)
    return threshold


@dataclass(frozen=True, eq=False)
class _PartCounts:
    """Scores of one part in one round: all of them, and those that begin with the prefix.

    `checksum` is the sum of all keys modulo 2**64, whatever their order.
    """

    n_scores: int
    checksum: int
    by_pattern: Integers  # of those with the prefix, how many go on with each pattern

    @property
    def n_with_prefix(self) -> int:
        return int(self.by_pattern.sum())


@dataclass(frozen=True, eq=False)
class _ScatteredScores:
    """Scores in many parts (arrays, or functions that read one), and where parts are read."""

    parts: list[ArrayLike | Callable[[], ArrayLike]]
    n_jobs: int | None
    scheduler: Any

    def count_patterns(self, *, prefix: int, n_rounds: int) -> list[_PartCounts]:
        """Read every part, and count its scores by the 16 bits that come after `prefix`."""
        count = partial(_count_patterns, prefix=prefix, n_rounds=n_rounds)
        return run_many(count, self.parts, n_jobs=self.n_jobs, scheduler=self.scheduler)


def _find_score_of_rank(
    rank: int, scattered_scores: _ScatteredScores, first_counts: list[_PartCounts]
) -> float:
    """Find the score of this rank among the scores of all parts, without sorting them.

    A score is written as a 64-bit integer, its key, and keys are in the order of the scores. The
    wanted key is found from its front, 16 bits (a pattern) a round, as one finds a word in a
    dictionary letter by letter. A round knows how many keys begin with the bits found so far
    (`prefix`) and go on with each pattern. Added up in order of the patterns, these counts reach
    the wanted rank at the pattern that the wanted key has.

    `first_counts` are the counts of the first round, which has an empty prefix.
    """
    prefix = 0  # the bits found so far
    n_below = 0  # scores that are smaller than all those with this prefix
    counts = first_counts

    for n_rounds in range(1, _ROUNDS + 1):
        # 1. Find the next 16 bits.
        n_by_pattern = np.sum([part.by_pattern for part in counts], axis=0)
        n_up_to = np.cumsum(n_by_pattern)  # up to and with each pattern
        pattern = int(np.searchsorted(n_up_to, rank - n_below))

        # 2. Put them behind those found before.
        if pattern > 0:
            n_below += int(n_up_to[pattern - 1])
        prefix = (prefix << _BITS) | pattern

        # 3. Count for the next round.
        if n_rounds < _ROUNDS:
            next_counts = scattered_scores.count_patterns(prefix=prefix, n_rounds=n_rounds)
            _check_parts_unchanged(counts, next_counts, pattern=pattern)
            counts = next_counts

    return _score_of_key(prefix)


def _check_parts_unchanged(
    before: list[_PartCounts], now: list[_PartCounts], *, pattern: int
) -> None:
    """Raise if a part gave other scores in this round than in the round before.

    `before` and `now` have the counts of each part. The round before found `pattern`: as many of
    its scores must begin with the prefix of this round.
    """
    for number, (old, new) in enumerate(zip(before, now, strict=True), start=1):
        is_unchanged = (
            old.n_scores == new.n_scores
            and old.checksum == new.checksum
            and old.by_pattern[pattern] == new.n_with_prefix
        )
        if not is_unchanged:
            raise ValueError(
                f"Part {number} of {len(now)} changed while it was read: a part is read up to "
                f"{_ROUNDS} times and must give the same scores each time (it gave "
                f"{counted(old.n_scores, 'score')}, then {counted(new.n_scores, 'score')}). Read "
                f"it from a file that nobody writes to, or pass an array."
            )


def _count_patterns(part: Any, *, prefix: int, n_rounds: int) -> _PartCounts:
    """Count the scores of a part by their next 16 bits, among those that begin with `prefix`.

    The bits are those of the scores written as integers (`_keys_of_scores`). `part` is an array of
    scores or a function that reads one, and `prefix` has the 16 * `n_rounds` bits that the rounds
    before have found.
    """
    read_scores = part() if callable(part) else part
    scores = checked_scores(read_scores).astype(np.float64) + 0.0  # -0.0 is 0.0

    # 1. Write the scores as integers in the same order.
    keys = _keys_of_scores(scores)
    checksum = int(np.sum(keys, dtype=np.uint64))

    # 2. Take the keys that begin with the prefix.
    if n_rounds > 0:
        bits_after_prefix = np.uint64(64 - _BITS * n_rounds)
        keys = keys[keys >> bits_after_prefix == np.uint64(prefix)]

    # 3. Count the patterns of the next 16 bits.
    bits_after_pattern = np.uint64(64 - _BITS * (n_rounds + 1))
    last_16_bits = np.uint64(2**_BITS - 1)
    patterns = (keys >> bits_after_pattern) & last_16_bits
    by_pattern = np.bincount(patterns.astype(np.int64), minlength=2**_BITS)
    return _PartCounts(scores.size, checksum, by_pattern)


def _keys_of_scores(scores: Floats) -> AnyArray:
    """Turn floats into 64-bit integers that are in the same order.

    The bits of positive floats ascend with them, those of negative ones descend: the former get the
    highest bit, the latter have all bits flipped.
    """
    bits = scores.view(np.uint64)
    is_negative = (bits & _SIGN_BIT).astype(bool)
    return np.where(is_negative, ~bits, bits | _SIGN_BIT)


def _score_of_key(key: int) -> float:
    """Return the float that `_keys_of_scores` turns into this integer."""
    key_bits = np.uint64(key)
    is_positive = bool(key_bits & _SIGN_BIT)
    bits = key_bits ^ _SIGN_BIT if is_positive else ~key_bits
    return float(bits.view(np.float64))
