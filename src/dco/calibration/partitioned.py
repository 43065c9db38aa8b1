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
_N_PATTERNS = 2**_BITS  # of so many bits: half a megabyte of counts
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
    """Compute the threshold of scores that lie in many parts, such as files, without joining them.

    The result is that of `split_conformal` for all scores in one array, to the last bit, or with
    `delta` that of `bayesian_quadrature`. It is one of the scores, which is found in four rounds.
    Each round reads every part once and finds 16 of the 64 bits of the score.

    Parameters
    ----------
    parts
        The scores. A part is an array, or a function without arguments that reads one. It must read
        the same scores in each round: others are an error.
    alpha
        One minus the coverage wanted.
    delta
        The probability with which coverage may be lower; None for the marginal guarantee.
    n_jobs, scheduler
        Where parts are read: how many processes, and the address of a Dask cluster.
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
    """What one round counts in one part: all scores, and those that begin with the prefix.

    `checksum` is the sum of all keys (`_keys_of_scores`) modulo 2**64, whatever their order.
    `by_pattern` says, of the scores with the prefix, how many go on with each pattern of 16 bits.
    """

    n_scores: int
    checksum: int
    by_pattern: Integers

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

    `first_counts` are the counts of the first round, one record for each part. No bits are found
    before it, so its prefix is empty.
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
    """Raise if a part had other scores in this round than in the round before.

    `before` and `now` are the counts of the two rounds, one record for each part. The round before
    found the bits `pattern`, so the scores that it counted with them are those that begin with the
    prefix of this round.
    """
    for number, (counts_before, counts_now) in enumerate(zip(before, now, strict=True), start=1):
        is_unchanged = (
            counts_before.n_scores == counts_now.n_scores
            and counts_before.checksum == counts_now.checksum
            and counts_before.by_pattern[pattern] == counts_now.n_with_prefix
        )
        if not is_unchanged:
            n_before = counted(counts_before.n_scores, "score")
            n_now = counted(counts_now.n_scores, "score")
            raise ValueError(
                f"Part {number} of {len(now)} changed while it was read: a part is read up to "
                f"{_ROUNDS} times and must give the same scores each time (it gave {n_before}, "
                f"then {n_now}). Read it from a file that nobody writes to, or pass an array."
            )


def _count_patterns(part: Any, *, prefix: int, n_rounds: int) -> _PartCounts:
    """Count the scores of a part that begin with `prefix`, by the 16 bits that come next.

    A score is written as a 64-bit integer, its key (`_keys_of_scores`). `prefix` has the first
    16 * `n_rounds` bits of the wanted key, which the rounds before have found. `part` is an array
    of scores, or a function that reads one.
    """
    read_scores = part() if callable(part) else part
    scores = checked_scores(read_scores).astype(np.float64) + 0.0  # -0.0 becomes 0.0
    keys = _keys_of_scores(scores)

    # 1. Take the keys that begin with the prefix; in the first round all do.
    keys_with_prefix = keys
    if n_rounds > 0:
        n_bits_after_prefix = np.uint64(64 - _BITS * n_rounds)
        prefixes = keys >> n_bits_after_prefix
        keys_with_prefix = keys[prefixes == np.uint64(prefix)]

    # 2. Cut out the next 16 bits, and count how often each pattern of them occurs.
    n_bits_after_pattern = np.uint64(64 - _BITS * (n_rounds + 1))
    bits_up_to_pattern = keys_with_prefix >> n_bits_after_pattern
    patterns = bits_up_to_pattern & np.uint64(_N_PATTERNS - 1)
    by_pattern = np.bincount(patterns.astype(np.int64), minlength=_N_PATTERNS)
    return _PartCounts(
        n_scores=scores.size,
        checksum=int(np.sum(keys, dtype=np.uint64)),
        by_pattern=by_pattern,
    )


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
