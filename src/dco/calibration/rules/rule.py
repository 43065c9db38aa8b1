"""What every rule of `guarantee=` offers, and the two that deploy one order statistic: split
conformal and its PAC twin.

A member gives a rank for each number of calibration rows; its threshold is the order statistic of
that rank. It says what it certifies, whether it needs a delta, and whether exchangeable rows are
enough. A new rule is one class with `rank` and `smallest_n`, registered by `register_rule`:
estimators, command line, certificate and verification then know it by its name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dco.calibration.rules.weighted import grouped_threshold
from dco.foundations import ranks
from dco.foundations.arrays import Floats, Integers
from dco.foundations.display import counted
from dco.foundations.parallel import run_many
from dco.foundations.ranks import (
    Guarantee,
    Level,
    Threshold,
    as_rational,
    checked_scores,
    conformal_rank,
    order_statistic,
)

_ROUNDS, _BITS = 4, 16
_SIGN = np.uint64(1 << 63)  # of the pattern of a float


class Rule(ABC):
    """A rule whose threshold is one order statistic of the calibration scores.

    `alpha` is the miscoverage, `delta` the failure probability; rules that do not need a delta
    ignore it.
    """

    name: ClassVar[str]  # what guarantee= says
    certifies: ClassVar[Guarantee]
    needs_delta: ClassVar[bool]
    # whether exchangeable rows are enough; if not, rows must be i.i.d.
    exchangeable: ClassVar[bool]
    # Whether it is the quantile that is known for rows of unequal weight: clusters, groups that
    # overlap, a known shift. If not, the caller hands over one row of those that belong together,
    # picked before scores are seen.
    weighs: ClassVar[bool] = False
    claim: ClassVar[str]  # what is claimed, as messages name it: "marginal coverage"
    # The guarantee in one sentence. {level} and {sure} are 1 - alpha and 1 - delta in percent,
    # {who} is the new row, {many} are new rows; {where} is empty, or says in which conditions it
    # holds.
    sentence: ClassVar[str]

    @abstractmethod
    def rank(self, n: int, *, alpha: Level, delta: Level | None = None) -> int:
        """The rank of the score that is deployed, of n; n + 1 if no finite threshold has this
        guarantee.
        """

    @abstractmethod
    def smallest_n(self, *, alpha: Level, delta: Level | None = None) -> int:
        """The least n with a finite threshold."""

    def threshold(
        self,
        scores: Floats,
        *,
        alpha: Level,
        delta: Level | None = None,
        clusters: Integers | None = None,
    ) -> Threshold:
        """The threshold of checked scores, without a warning if it is infinite.

        `clusters` holds a code for each row; rows that belong together share one. None if rows are
        not clustered.
        """
        if clusters is not None:
            if not self.weighs:
                raise ValueError(
                    f'the rule "{self.name}" takes one score for each cluster of '
                    f"rows, and no clusters."
                )
            return grouped_threshold(scores, clusters, alpha=alpha)
        rank = self.rank(scores.size, alpha=alpha, delta=delta)
        failure = (
            float(as_rational(delta, name="delta"))
            if self.needs_delta and delta is not None
            else None
        )
        level = float(as_rational(alpha))
        return Threshold(
            order_statistic(scores, rank), rank, scores.size, self.certifies, level, failure
        )


RULES: dict[str, Rule] = {}


def register_rule(rule: Rule) -> Rule:
    """Make the rule known by its name; another rule of that name is an error."""
    if RULES.setdefault(rule.name, rule) != rule:
        raise ValueError(
            f'there is a rule named "{rule.name}" already; give this one another name.'
        )
    return rule


@dataclass(frozen=True)
class SplitConformal(Rule):
    """`split_conformal`; rows that belong together weigh as one (`grouped_conformal`)."""

    name = "marginal"
    certifies = "marginal"
    needs_delta = False
    exchangeable = True
    weighs = True
    claim = "marginal coverage"
    sentence = (
        "For {who}, the prediction set contains the true value with probability at least "
        "{level}{where}."
    )

    def rank(self, n: int, *, alpha: Level, delta: Level | None = None) -> int:
        """`conformal_rank`."""
        return conformal_rank(n, alpha=alpha)

    def smallest_n(self, *, alpha: Level, delta: Level | None = None) -> int:
        """`smallest_marginal_n`."""
        return ranks.smallest_marginal_n(alpha=alpha)


@dataclass(frozen=True)
class Pac(Rule):
    """`bayesian_quadrature`."""

    name = "pac"
    certifies = "pac"
    needs_delta = True
    exchangeable = False
    claim = "a PAC statement"
    sentence = (
        "With confidence at least {sure} over the draw of the calibration rows, the prediction "
        "sets contain the true value "
        "for at least {level} of {many}{where}."
    )

    def rank(self, n: int, *, alpha: Level, delta: Level | None = None) -> int:
        """`pac_rank`."""
        return ranks.pac_rank(n, alpha=alpha, delta=delta)  # type: ignore[arg-type]  # None is refused there

    def smallest_n(self, *, alpha: Level, delta: Level | None = None) -> int:
        """`smallest_pac_n`."""
        return ranks.smallest_pac_n(alpha=alpha, delta=delta)  # type: ignore[arg-type]  # None is refused there


SPLIT_CONFORMAL = register_rule(SplitConformal())
PAC = register_rule(Pac())


def split_conformal(scores: ArrayLike, *, alpha: Level) -> Threshold:
    """The k-th smallest score, k = ceil((n + 1)(1 - alpha)); +inf if k = n + 1.

    Theorem 3.1 of the paper: a new row exchangeable with the n calibration rows is covered with
    probability >= 1 - alpha (and with probability k / (n + 1) when scores have no ties). It needs
    exchangeability and nothing else.
    """
    return _warned(SPLIT_CONFORMAL, SPLIT_CONFORMAL.threshold(checked_scores(scores), alpha=alpha))


def bayesian_quadrature(scores: ArrayLike, *, alpha: Level, delta: Level) -> Threshold:
    """The smallest score whose risk bound L+ is at most alpha with probability at least 1 - delta.

    Bayesian quadrature (Snell and Griffiths 2025) for 0/1 loss, in closed form. With e uncovered
    rows, L+ is a sum of e + 1 of n + 1 uniform Dirichlet weights, hence Beta(e + 1, n - e), and no
    sampling is needed: the threshold is the (n - e)-th smallest score for the largest e with
    I_alpha(e + 1, n - e) >= 1 - delta. Claim (i.i.d. rows): P(coverage >= 1 - alpha) >= 1 - delta
    over the draw of the calibration rows.
    """
    return _warned(PAC, PAC.threshold(checked_scores(scores), alpha=alpha, delta=delta))


def _warned(rule: Rule, threshold: Threshold) -> Threshold:
    """The threshold, with a warning if there are too few rows for a finite one."""
    if threshold.rank == threshold.n + 1:
        at = f"alpha = {threshold.alpha:g}" + (
            "" if threshold.delta is None else f", delta = {threshold.delta:g}"
        )
        smallest = rule.smallest_n(alpha=threshold.alpha, delta=threshold.delta)
        ranks.warn_infeasible(threshold.n, smallest, f"{rule.claim} at {at}")
    return threshold


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
    rule = SPLIT_CONFORMAL if delta is None else PAC
    parts = list(parts)

    def count_parts(prefix: int, n_rounds: int) -> list[_PartCounts]:
        count = partial(_count_patterns, prefix=prefix, n_rounds=n_rounds)
        return run_many(count, parts, n_jobs=n_jobs, scheduler=scheduler)

    first_counts = count_parts(prefix=0, n_rounds=0)
    n = sum(counts.n_scores for counts in first_counts)
    rank = rule.rank(n, alpha=alpha, delta=delta)
    value = np.inf if rank > n else _find_score_of_rank(rank, first_counts, count_parts)

    threshold = Threshold(
        value,
        rank,
        n,
        rule.certifies,
        float(as_rational(alpha)),
        None if delta is None else float(as_rational(delta, name="delta")),
    )
    return _warned(rule, threshold)


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
    """Return the score of this rank among the scores of all parts, 16 bits a round."""
    prefix = 0
    n_below = 0
    counts = first_counts

    for n_rounds in range(1, _ROUNDS + 1):
        n_up_to = np.cumsum(np.sum([part.by_pattern for part in counts], axis=0))
        pattern = int(np.searchsorted(n_up_to, rank - n_below))
        if pattern > 0:
            n_below += int(n_up_to[pattern - 1])
        prefix = (prefix << _BITS) | pattern

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
    """Count, among a part's scores whose first 16 n_rounds bits are `prefix`, the next 16 bits."""
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
    bits = np.uint64(key)
    return float((bits ^ _SIGN if bits & _SIGN else ~bits).view(np.float64))
