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
from dco.foundations.arrays import Integers
from dco.foundations.display import counted
from dco.foundations.parallel import run_many
from dco.foundations.ranks import Level, Threshold, as_rational, checked_scores

_BITS = 16  # that a round finds
_ROUNDS = 4  # for the 64 bits of a float
_SIGN = np.uint64(1 << 63)  # of the pattern of a float


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
    parts = list(parts)

    def count_parts(prefix: int, n_rounds: int) -> list[_PartCounts]:
        count = partial(_count_patterns, prefix=prefix, n_rounds=n_rounds)
        return run_many(count, parts, n_jobs=n_jobs, scheduler=scheduler)

    first_counts = count_parts(prefix=0, n_rounds=0)
    n = sum(counts.n_scores for counts in first_counts)
    rank = guarantee.rank(n, alpha=level)
    value = np.inf
    if rank <= n:
        value = _find_score_of_rank(rank, first_counts, count_parts)

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


def _find_score_of_rank(
    rank: int,
    first_counts: list[_PartCounts],
    count_parts: Callable[[int, int], list[_PartCounts]],
) -> float:
    """Find the score of this rank among the scores of all parts, without sorting them.

    A score is written as a 64-bit integer, its key, and keys are in the order of the scores. The
    wanted key is found from its front, 16 bits (a pattern) a round, as one finds a word in a
    dictionary letter by letter. A round knows how many keys begin with the bits found so far
    (`prefix`) and go on with each pattern. Added up in order of the patterns, these counts reach
    the wanted rank at the pattern that the wanted key has.

    `first_counts` are the counts of the first round, and `count_parts(prefix, n_rounds)` reads the
    parts again and counts for the next round, after so many rounds.
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
            next_counts = count_parts(prefix, n_rounds)
            _check_parts_unchanged(counts, next_counts, pattern=pattern)
            counts = next_counts

    return _score_of_key(prefix)


def _check_parts_unchanged(
    before: list[_PartCounts], now: list[_PartCounts], *, pattern: int
) -> None:
    """Raise if a part holds other scores than in the round before, which went on with `pattern`."""
    for number, (old, new) in enumerate(zip(before, now, strict=True), start=1):
        same_scores = (old.n_scores, old.checksum) == (new.n_scores, new.checksum)
        if same_scores and old.by_pattern[pattern] == new.n_with_prefix:
            continue
        raise ValueError(
            f"Part {number} of {len(now)} changed while it was read: a part is read up to "
            f"{_ROUNDS} times and must give the same scores each time (it gave "
            f"{counted(old.n_scores, 'score')}, then {counted(new.n_scores, 'score')}). Read it "
            f"from a file that nobody writes to, or pass an array."
        )


def _count_patterns(part: Any, *, prefix: int, n_rounds: int) -> _PartCounts:
    """Count, for each pattern of 16 bits, the scores of a part that go on with it after `prefix`.

    `prefix` has the 16 bits of each of the `n_rounds` that are over; scores that do not begin with
    it are not counted.
    """
    read_scores = part() if callable(part) else part
    scores = checked_scores(read_scores).astype(np.float64) + 0.0  # -0.0 is 0.0

    bits = scores.view(np.uint64)
    keys = np.where(bits & _SIGN, ~bits, bits | _SIGN)  # integers in the order of the scores
    checksum = int(np.sum(keys, dtype=np.uint64))

    if n_rounds > 0:
        has_prefix = keys >> np.uint64(64 - _BITS * n_rounds) == np.uint64(prefix)
        keys = keys[has_prefix]
    patterns = (keys >> np.uint64(64 - _BITS * (n_rounds + 1))) & np.uint64(2**_BITS - 1)
    by_pattern = np.bincount(patterns.astype(np.int64), minlength=2**_BITS)

    return _PartCounts(scores.size, checksum, by_pattern)


def _score_of_key(key: int) -> float:
    """Return the float whose bits, put in order, are this integer."""
    ordered_bits = np.uint64(key)
    if ordered_bits & _SIGN:  # a positive number
        bits = ordered_bits ^ _SIGN
    else:
        bits = ~ordered_bits
    return float(bits.view(np.float64))
