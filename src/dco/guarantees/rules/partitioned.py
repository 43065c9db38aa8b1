"""One order statistic of scores that lie in many places: exact, by counting, and no score is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Integers
from dco.foundations.parallel import run_many
from dco.foundations.ranks import Level, Threshold, as_rational, checked_scores
from dco.guarantees.rules.rule import PAC, SPLIT_CONFORMAL, with_warning

_ROUNDS, _BITS = 4, 16
_SIGN = np.uint64(1 << 63)


def partitioned_conformal(
    parts: Iterable[ArrayLike | Callable[[], ArrayLike]],
    *,
    alpha: Level,
    delta: Level | None = None,
    n_jobs: int | None = None,
    scheduler: Any = None,
) -> Threshold:
    """`split_conformal` (with `delta` `bayesian_quadrature`) of scores in many parts, equal to the last bit.

    A part is an array, or a function without arguments that reads one and is called four times. Floats compare
    as their bits do, so the wanted score is found 16 bits at a time: each round counts, in every part, how many scores go on
    from the bits found so far with each of 65,536 patterns (half a megabyte), and the counts are added up. Ties and
    infinities count like other scores. `n_jobs` and `scheduler` (the address of a Dask cluster) say where parts are read.
    """
    rule = SPLIT_CONFORMAL if delta is None else PAC
    work, found, before, n, rank = list(parts), 0, 0, 0, 0
    for done in range(_ROUNDS):
        made = run_many(partial(_counted, found=found, done=done), work, n_jobs=n_jobs, scheduler=scheduler)
        upto = np.cumsum(np.sum(made, axis=0))
        if not done:
            n = int(upto[-1])
            rank = rule.rank(n, alpha=alpha, delta=delta)
        if rank > n:
            break
        pattern = int(np.searchsorted(upto, rank - before))
        before += int(upto[pattern - 1]) if pattern else 0
        found = (found << _BITS) | pattern
    level, failure = float(as_rational(alpha)), None if delta is None else float(as_rational(delta, name="delta"))
    threshold = Threshold(_score(found) if rank <= n else np.inf, rank, n, rule.certifies, level, failure)
    return with_warning(rule, threshold, alpha, delta)


def _counted(part: Any, *, found: int, done: int) -> Integers:
    """Of the scores of a part whose first bits are `found`, how many go on with each pattern of 16 bits."""
    scores = checked_scores(part() if callable(part) else part).astype(np.float64) + 0.0  # -0.0 is 0.0
    bits = scores.view(np.uint64)
    keys = np.where(bits & _SIGN, ~bits, bits | _SIGN)  # unsigned integers in the order of the scores
    if done:
        keys = keys[keys >> np.uint64(64 - _BITS * done) == np.uint64(found)]
    patterns = (keys >> np.uint64(64 - _BITS * (done + 1))) & np.uint64(2**_BITS - 1)
    return np.bincount(patterns.astype(np.int64), minlength=2**_BITS)


def _score(key: int) -> float:
    """The float that has this place in the order."""
    bits = np.uint64(key)
    return float((bits ^ _SIGN if bits & _SIGN else ~bits).view(np.float64))
