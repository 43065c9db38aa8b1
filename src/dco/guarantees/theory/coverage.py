"""The law of coverage over calibration draws, and whether an observed coverage agrees with it.

Every calculator states its formula and its source. Numbers that decide something (ranks) come from `dco.foundations.ranks`,
exactly; the probabilities around them are floats. ``scipy.stats`` is imported when first needed: it is slow to import.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, SupportsIndex

import numpy as np
from scipy.special import betaincinv, gammaln, ndtri

from dco.foundations.arrays import Floats
from dco.foundations.ranks import Level, as_count, as_rational, conformal_rank, pac_rank, rank_for

_UNUSUAL = 0.05  # below this p-value an observed coverage is called unusual
DOUBTFUL = 0.01  # below this p-value an observed coverage is called inconsistent with its law
_SELDOM = 1e-6  # how often the threshold of other rows may fall outside the ranks that are looked at


def coverage_law(n_cal: SupportsIndex, *, alpha: Level, delta: Level | None = None) -> Any:
    """The law of coverage over the draw of `n_cal` calibration rows: a frozen scipy Beta(k, n + 1 - k).

    k is the marginal rank ceil((n + 1)(1 - alpha)), or with `delta` the PAC rank. Exact for i.i.d. rows and scores without
    ties; with ties coverage is stochastically larger (Vovk 2012). If k = n + 1 the threshold is infinite, coverage is 1 and
    the law is a point mass at 1 (a frozen discrete scipy distribution: it has cdf, ppf, mean, std and rvs, and no pdf).
    """
    return coverage_law_of_rank(rank_for(n_cal, alpha=alpha, delta=delta), n_cal)


def coverage_law_of_rank(rank: SupportsIndex, n_cal: SupportsIndex) -> Any:
    """Beta(rank, n + 1 - rank), the law of coverage at the rank-th smallest of n scores; a point mass at 1 for n + 1."""
    from scipy import stats

    k, n = _checked_rank(rank, n_cal)
    return stats.beta(k, n + 1 - k) if k <= n else _point_mass(1.0)


def coverage_variance(rank: Any, n_cal: Any) -> Any:
    """The variance of Beta(rank, n + 1 - rank), for numbers or arrays."""
    mean = rank / (n_cal + 1)
    return mean * (1 - mean) / (n_cal + 2)


def hits_law(n_cal: SupportsIndex, n_test: SupportsIndex, *, alpha: Level, delta: Level | None = None) -> Any:
    """The law of the number of covered rows among `n_test`: a frozen scipy Beta-binomial(n_test, k, n + 1 - k).

    Divide by `n_test` for the law of test coverage. Its sd is about sqrt(alpha (1 - alpha) (1 / n_test + 1 / (n + 2))).
    If k = n + 1 it is a point mass at `n_test`.
    """
    from scipy import stats

    (k, n), tested = _checked_rank(rank_for(n_cal, alpha=alpha, delta=delta), n_cal), as_count(n_test, name="n_test")
    return stats.betabinom(tested, k, n + 1 - k) if k <= n else _point_mass(tested)


def _point_mass(value: float) -> Any:
    from scipy import stats

    return stats.rv_discrete(name="point_mass", values=([value], [1.0]))()


def hits_cdf(hits: SupportsIndex, n_test: SupportsIndex, *, rank: SupportsIndex, n_cal: SupportsIndex) -> float:
    """P(covered test rows <= hits): the Beta-binomial distribution function, in about (n_cal - rank) steps.

    Among the n_cal + n_test exchangeable scores at most `hits` test scores lie below the rank-th calibration score if and
    only if the lowest rank + hits scores hold at least `rank` calibration scores: a hypergeometric tail. It is summed over
    calibration rows, so that millions of test rows cost nothing.
    """
    k, n = _checked_rank(rank, n_cal)
    tested, h = as_count(n_test, name="n_test"), int(hits)
    if h < 0:
        return 0.0
    if h >= tested:
        return 1.0
    if k == n + 1:
        return 0.0
    from_calibration = np.arange(k, min(n, k + h) + 1, dtype=np.float64)
    from_test = k + h - from_calibration
    logs = _log_choose(n, from_calibration) + _log_choose(tested, from_test) - _log_choose(n + tested, np.float64(k + h))
    return float(min(1.0, np.exp(logs).sum()))


@dataclass(frozen=True)
class Consistency:
    """Whether an observed test coverage agrees with the law that the calibration rank implies.

    ``p_value`` is twice the smaller of two Beta-binomial tails, at most 1: the lower one of the rank, and the upper one of
    the next rank. When `tied`, it is twice the lower one: low coverage is judged alike, and high coverage is no evidence.
    ``expected_coverage`` is rank / (n_cal + 1), and test coverage falls in [`low`, `high`] with probability at least 0.9 (if
    scores have no ties; more can be covered if they have). ``unknown_labels`` counts rows beside the `n_test`, whose labels
    not even full sets hold: any such row shows that the guarantee's assumption fails.
    """

    p_value: float
    coverage: float
    expected_coverage: float
    low: float
    high: float
    n_test: int
    n_cal: int
    rank: int
    tied: bool
    verdict: str
    unknown_labels: int = 0

    @property
    def consistent(self) -> bool:
        """Whether the p-value is at least 0.01, and no row has a label that the fit does not know."""
        return self.p_value >= DOUBTFUL and not self.unknown_labels


def coverage_consistency(
    hits: SupportsIndex,
    n_test: SupportsIndex,
    *,
    rank: SupportsIndex,
    n_cal: SupportsIndex,
    tied: bool = False,
    unknown_labels: SupportsIndex = 0,
) -> Consistency:
    """Test the number of covered rows among `n_test` against Beta-binomial(n_test, rank, n_cal + 1 - rank).

    Say ``tied=True`` when calibration scores are equal near the threshold (`ranks_near_threshold`), or at least when the
    next score is equal to it: coverage is then only stochastically larger than the law, so that high coverage is no
    evidence. The lower tail is doubled all the same: a look at the scores decides which p-value it is, and may not make low
    coverage more significant.

    The p-value is valid (P(p <= u) <= u) for every law of the scores when test rows and calibration rows are i.i.d. and
    neither was looked at before. Let U be the order statistics of n_cal uniforms that the scores are quantiles of. Coverage
    is never below U of the rank. Where the next score is larger, it is never above U of the next rank, even if the score at
    the threshold is an atom of which one was drawn: hence the upper tail of that rank, which no look for ties could replace.

    A label that the fit does not know scores infinity: a miss among the `n_test` wherever the threshold is finite. Full sets
    (``rank=n_cal + 1``) cover every other row, so there give the number of such rows as `unknown_labels`, and leave them out
    of `n_test`: the guarantee assumes that there are none.
    """
    unknown = as_count(unknown_labels, name="unknown_labels")
    tied = tied or unknown > 0
    (k, n), covered, tested = _checked_rank(rank, n_cal), as_count(hits, name="hits"), as_count(n_test, name="n_test")
    if tested == 0 or covered > tested:
        raise ValueError(f"hits must be at most n_test and n_test at least 1, got hits = {covered} of n_test = {tested}.")
    at_most = hits_cdf(covered, tested, rank=k, n_cal=n)
    at_least = 1.0 - hits_cdf(covered - 1, tested, rank=min(k + 1, n + 1), n_cal=n)
    p_value = min(1.0, 2.0 * max(0.0, at_most if tied else min(at_most, at_least)))
    verdict = _verdict(p_value, below=at_most <= at_least, tied=tied)
    if unknown:
        rows = "1 row has a label" if unknown == 1 else f"{unknown} rows have labels"
        verdict = f"the assumption fails: {rows} that the fit does not know. Coverage of the other {tested} is {verdict}"
    return Consistency(
        p_value=p_value,
        coverage=covered / tested,
        expected_coverage=k / (n + 1),
        low=_hits_quantile(0.05, tested, k, n) / tested,
        high=1.0 if tied else _hits_quantile(0.95, tested, k, n) / tested,
        n_test=tested,
        n_cal=n,
        rank=k,
        tied=tied,
        verdict=verdict,
        unknown_labels=unknown,
    )


def _verdict(p_value: float, *, below: bool, tied: bool) -> str:
    if p_value >= _UNUSUAL:
        return "not below what the guarantee allows" if tied else "consistent with the guarantee"
    side = "lower" if below else "higher"
    if p_value >= DOUBTFUL:
        return f"{side} than usual, and still within chance"
    why = "unlike the calibration rows, or calibration rows may have been used before they calibrated"
    if not below:
        why = "easier than the calibration rows, the model may have seen them, or scores may be tied"
    return f"{side} than chance explains in 99 fits of 100: these rows may be {why}"


def _hits_quantile(level: float, n_test: int, rank: int, n_cal: int) -> int:
    return bisect_left(range(n_test), level, key=lambda hits: hits_cdf(hits, n_test, rank=rank, n_cal=n_cal))


def ranks_near_threshold(rank: SupportsIndex, *, n_cal: SupportsIndex) -> tuple[int, int]:
    """The first and the last of n sorted scores between which the threshold of n other rows falls, but once in a million.

    As many of the n scores lie below the `rank`-th smallest of n others as Beta-binomial(n, rank, n + 1 - rank) says. Let U
    be Beta(rank, n + 1 - rank). With scores from a law with atoms coverage is U or, if the threshold is at an atom of mass
    p, more than U by at most p. So if all scores of these ranks differ, mean coverage is rank / (n + 1) up to 10^-6, but for
    atoms that were drawn no more than once. A single atom of mass p goes unseen with probability (1 - p)^n + n p (1 -
    p)^(n - 1): a look at all scores would not see it either. The ranks reach about 7 sqrt(rank (1 - rank / n)) to each
    side of the threshold.
    """
    k, n = _checked_rank(rank, n_cal)
    return _places(k, n)


@lru_cache(maxsize=1024)
def _places(k: int, n: int) -> tuple[int, int]:
    if k == n + 1:
        return n, n
    below, above = (_hits_quantile(_SELDOM / 2, n, place, n) for place in (k, n + 1 - k))  # the same, counted from the top
    return max(below, 1), min(n + 1 - above, n)


def simultaneous_slack(n_cal: SupportsIndex, *, delta: Level, pac_delta: Level | None = None) -> float:
    """e = sqrt(log(1 / delta) / (2 n)): P(coverage >= 1 - alpha - e for every alpha at once) >= 1 - delta.

    One-sided Dvoretzky-Kiefer-Wolfowitz inequality with Massart's constant, which asks for delta <= 1/2. It is the price of
    a level that is picked after its result has been seen. It is added to what ranks themselves lack: those of marginal
    thresholds and of PAC ones with `pac_delta` <= 1/2 are at least n (1 - alpha), and lack nothing.
    """
    failure, n = as_rational(delta, name="delta"), as_count(n_cal, name="n_cal", least=1)
    if failure > Fraction(1, 2):
        raise ValueError(f"delta must be at most 0.5 for the one-sided inequality, got {delta!r}.")
    lacking = 0.0 if pac_delta is None else _rank_deficit(n, as_rational(pac_delta, name="pac_delta"))
    return math.sqrt(-math.log(float(failure)) / (2 * n)) + lacking


@lru_cache(maxsize=64)
def _rank_deficit(n: int, delta: Fraction) -> float:
    """The largest 1 - alpha - rank / n over all levels, where PAC ranks with `delta` are below n (1 - alpha); else 0.

    Rank k serves levels down to 1 - alpha = the delta-quantile of Beta(k, n + 1 - k). A median is at most k / n.
    """
    if delta <= Fraction(1, 2):
        return 0.0
    last = np.linspace(1, n, min(n, 2**14)).astype(np.int64)  # of many ranks, some: quantiles rise from one to the next
    first = np.append(1, last[:-1] + 1)
    return max(0.0, float(np.max(betaincinv(last, n + 1 - last, float(delta)) - first / n)))


@dataclass(frozen=True)
class PacGap:
    """What a PAC guarantee costs in mean coverage over a marginal one.

    ``exact`` is (pac_rank - marginal_rank) / (n + 1), ``approximate`` is z_(1 - delta) sqrt(alpha (1 - alpha) / n).
    """

    exact: float
    approximate: float
    marginal_rank: int
    pac_rank: int


def pac_gap(n_cal: SupportsIndex, *, alpha: Level, delta: Level) -> PacGap:
    """The mean coverage that a PAC threshold has above a marginal one, by ranks and by the normal approximation."""
    n, level, failure = as_count(n_cal, name="n_cal", least=1), as_rational(alpha), as_rational(delta, name="delta")
    marginal, pac = conformal_rank(n, alpha=level), pac_rank(n, alpha=level, delta=failure)
    share = float(level)
    approximate = float(-ndtri(float(failure))) * math.sqrt(share * (1 - share) / n)
    return PacGap((pac - marginal) / (n + 1), approximate, marginal, pac)


def _checked_rank(rank: SupportsIndex, n_cal: SupportsIndex) -> tuple[int, int]:
    k, n = as_count(rank, name="rank"), as_count(n_cal, name="n_cal")
    if not 1 <= k <= n + 1:
        raise ValueError(f"rank must be between 1 and n_cal + 1 = {n + 1}, got {k}.")
    return k, n


def _log_choose(n: int, k: Floats | np.floating[Any]) -> Floats:
    """log of n over k, -inf where k is not in 0..n."""
    outside = (k < 0) | (k > n)
    inside = np.where(outside, 0, k)
    return np.where(outside, -np.inf, gammaln(n + 1.0) - gammaln(inside + 1) - gammaln(n - inside + 1))
