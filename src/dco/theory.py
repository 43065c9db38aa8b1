"""Laws of coverage and sample sizes: what a split can be expected to give, before and after it is
made.

Every calculator states formula and source, also of bounds sharper than the paper's. Ranks are
exact, probabilities floats.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, SupportsIndex, TypeAlias

import numpy as np
from scipy.special import betainc, betaincc, betaincinv, betaln, erfcx, ndtri

from dco.foundations.arrays import Integers
from dco.foundations.ranks import (
    Level,
    as_count,
    as_positive,
    as_rational,
    rank_for,
    smallest_n_for,
)

__all__ = [
    "CalibrationSize",
    "Consistency",
    "PacGap",
    "RecalibrationBound",
    "TuningAccuracy",
    "calibration_size",
    "coverage_consistency",
    "coverage_law",
    "coverage_law_of_rank",
    "coverage_variance",
    "hits_cdf",
    "hits_law",
    "least_wasteful_size",
    "pac_gap",
    "quantile_accuracy",
    "quantile_distance",
    "ranks_near_threshold",
    "simultaneous_slack",
    "size_after_recalibration",
    "tuning_accuracy",
    "tuning_sample_size",
]
_UNUSUAL = 0.05  # below this p-value an observed coverage is called unusual
DOUBTFUL = 0.01  # below this p-value an observed coverage is called inconsistent with its law
# how often the threshold of other rows may fall outside the ranks that are looked at
_SELDOM = 1e-6


def coverage_law(n_cal: SupportsIndex, *, alpha: Level, delta: Level | None = None) -> Any:
    """The law of coverage over the draw of `n_cal` calibration rows: a frozen scipy Beta(k, n + 1 -
    k).

    k is the marginal rank ceil((n + 1)(1 - alpha)), or with `delta` the PAC rank. Exact for i.i.d.
    rows and scores without ties; with ties coverage is stochastically larger (Vovk 2012). If k = n
    + 1 the threshold is infinite, coverage is 1 and the law is a point mass at 1 (a frozen discrete
    scipy distribution: it has cdf, ppf, mean, std and rvs, and no pdf).
    """
    return coverage_law_of_rank(rank_for(n_cal, alpha=alpha, delta=delta), n_cal)


def coverage_law_of_rank(rank: SupportsIndex, n_cal: SupportsIndex) -> Any:
    """Beta(rank, n + 1 - rank), the law of coverage at the rank-th smallest of n scores; a point
    mass at 1 for n + 1.
    """
    from scipy import stats

    k, n = _checked_rank(rank, n_cal)
    return stats.beta(k, n + 1 - k) if k <= n else _point_mass(1.0)


def coverage_variance(rank: Any, n_cal: Any) -> Any:
    """The variance of Beta(rank, n + 1 - rank), for numbers or arrays."""
    mean = rank / (n_cal + 1)
    return mean * (1 - mean) / (n_cal + 2)


def hits_law(
    n_cal: SupportsIndex, n_test: SupportsIndex, *, alpha: Level, delta: Level | None = None
) -> Any:
    """The law of the number of covered rows among `n_test`: a frozen scipy Beta-binomial(n_test, k,
    n + 1 - k).

    Divide by `n_test` for the law of test coverage. Its sd is about sqrt(alpha (1 - alpha) (1 /
    n_test + 1 / (n + 2))). If k = n + 1 it is a point mass at `n_test`.
    """
    from scipy import stats

    (k, n), tested = (
        _checked_rank(rank_for(n_cal, alpha=alpha, delta=delta), n_cal),
        as_count(n_test, name="n_test"),
    )
    return stats.betabinom(tested, k, n + 1 - k) if k <= n else _point_mass(tested)


def _point_mass(value: float) -> Any:
    from scipy import stats

    return stats.rv_discrete(name="point_mass", values=([value], [1.0]))()


def hits_cdf(
    hits: SupportsIndex, n_test: SupportsIndex, *, rank: SupportsIndex, n_cal: SupportsIndex
) -> float:
    """P(covered test rows <= hits): the Beta-binomial distribution function, in about (n_cal -
    rank) steps.

    Among the n_cal + n_test exchangeable scores at most `hits` test scores lie below the rank-th
    calibration score if and only if the lowest rank + hits scores hold at least `rank` calibration
    scores: a hypergeometric tail. It is summed over calibration rows, so that millions of test rows
    cost nothing.
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
    logs = (
        _log_choose(n, from_calibration)
        + _log_choose(tested, from_test)
        - _log_choose(n + tested, k + h)
    )
    return float(min(1.0, np.exp(logs).sum()))


def _log_choose(n: int, k: Any) -> Any:
    return -np.log1p(n) - betaln(n - k + 1.0, k + 1.0)


@dataclass(frozen=True)
class Consistency:
    """Whether an observed test coverage agrees with the law that the calibration rank implies.

    ``p_value`` is twice the smaller of two Beta-binomial tails, at most 1: the lower one of the
    rank, and the upper one of the next rank. When `tied`, it is twice the lower one: low coverage
    is judged alike, and high coverage is no evidence. ``expected_coverage`` is rank / (n_cal + 1),
    and test coverage falls in [`low`, `high`] with probability at least 0.9 (if scores have no
    ties; more can be covered if they have). ``unknown_labels`` counts rows beside the `n_test`,
    whose labels not even full sets hold: any such row shows that the guarantee's assumption fails.
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
        """Whether the p-value is at least 0.01, and no row has a label that the fit does not
        know.
        """
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
    """Test the number of covered rows among `n_test` against Beta-binomial(n_test, rank, n_cal + 1
    - rank).

    Say ``tied=True`` when calibration scores are equal near the threshold (`ranks_near_threshold`),
    or at least when the next score is equal to it: coverage is then only stochastically larger than
    the law, so that high coverage is no evidence. The lower tail is doubled all the same: a look at
    the scores decides which p-value it is, and may not make low coverage more significant.

    The p-value is valid (P(p <= u) <= u) for every law of the scores when test rows and calibration
    rows are i.i.d. and neither was looked at before. Let U be the order statistics of n_cal
    uniforms that the scores are quantiles of. Coverage is never below U of the rank. Where the next
    score is larger, it is never above U of the next rank, even if the score at the threshold is an
    atom of which one was drawn: hence the upper tail of that rank, which no look for ties could
    replace.

    A label that the fit does not know scores infinity: a miss among the `n_test` wherever the
    threshold is finite. Full sets (``rank=n_cal + 1``) cover every other row, so there give the
    number of such rows as `unknown_labels`, and leave them out of `n_test`: the guarantee assumes
    that there are none.
    """
    unknown = as_count(unknown_labels, name="unknown_labels")
    tied = tied or unknown > 0
    (k, n), covered, tested = (
        _checked_rank(rank, n_cal),
        as_count(hits, name="hits"),
        as_count(n_test, name="n_test"),
    )
    if tested == 0 or covered > tested:
        raise ValueError(
            f"hits must be at most n_test and n_test at least 1, got hits = "
            f"{covered} of n_test = {tested}."
        )
    at_most = hits_cdf(covered, tested, rank=k, n_cal=n)
    at_least = 1.0 - hits_cdf(covered - 1, tested, rank=min(k + 1, n + 1), n_cal=n)
    p_value = min(1.0, 2.0 * max(0.0, at_most if tied else min(at_most, at_least)))
    verdict = _verdict(p_value, below=at_most <= at_least, tied=tied)
    if unknown:
        rows = "1 row has a label" if unknown == 1 else f"{unknown} rows have labels"
        verdict = (
            f"the assumption fails: {rows} that the fit does not know. Coverage of the "
            f"other {tested} is {verdict}"
        )
    low, high = (_hits_quantile(level, tested, k, n) / tested for level in (0.05, 0.95))
    high = 1.0 if tied else high
    return Consistency(
        p_value, covered / tested, k / (n + 1), low, high, tested, n, k, tied, verdict, unknown
    )


def _verdict(p_value: float, *, below: bool, tied: bool) -> str:
    if p_value >= _UNUSUAL:
        return "not below what the guarantee allows" if tied else "consistent with the guarantee"
    side = "lower" if below else "higher"
    if p_value >= DOUBTFUL:
        return f"{side} than usual, and still within chance"
    why = (
        "unlike the calibration rows, or calibration rows may have been used before they calibrated"
    )
    if not below:
        why = (
            "easier than the calibration rows, the model may have seen them, or scores may be tied"
        )
    return f"{side} than chance explains in 99 fits of 100: these rows may be {why}"


def _hits_quantile(level: float, n_test: int, rank: int, n_cal: int) -> int:
    return bisect_left(
        range(n_test), level, key=lambda hits: hits_cdf(hits, n_test, rank=rank, n_cal=n_cal)
    )


@lru_cache(maxsize=1024)
def ranks_near_threshold(rank: SupportsIndex, *, n_cal: SupportsIndex) -> tuple[int, int]:
    """The first and the last of n sorted scores between which the threshold of n other rows falls,
    but once in a million.

    As many of the n scores lie below the `rank`-th smallest of n others as Beta-binomial(n, rank, n
    + 1 - rank) says. Let U be Beta(rank, n + 1 - rank). With scores from a law with atoms coverage
    is U or, if the threshold is at an atom of mass p, more than U by at most p. So if all scores of
    these ranks differ, mean coverage is rank / (n + 1) up to 10^-6, but for atoms that were drawn
    no more than once. A single atom of mass p goes unseen with probability (1 - p)^n + n p (1 -
    p)^(n - 1): a look at all scores would not see it either. The ranks reach about 7 sqrt(rank (1 -
    rank / n)) to each side of the threshold.
    """
    k, n = _checked_rank(rank, n_cal)
    if k == n + 1:
        return n, n
    # the same, counted from the top
    below, above = (_hits_quantile(_SELDOM / 2, n, place, n) for place in (k, n + 1 - k))
    return max(below, 1), min(n + 1 - above, n)


def simultaneous_slack(
    n_cal: SupportsIndex, *, delta: Level, pac_delta: Level | None = None
) -> float:
    """e = sqrt(log(1 / delta) / (2 n)): P(coverage >= 1 - alpha - e for every alpha at once) >= 1 -
    delta.

    One-sided Dvoretzky-Kiefer-Wolfowitz inequality with Massart's constant, which asks for delta <=
    1/2. It is the price of a level that is picked after its result has been seen. It is added to
    what ranks themselves lack: those of marginal thresholds and of PAC ones with `pac_delta` <= 1/2
    are at least n (1 - alpha), and lack nothing.
    """
    failure, n = as_rational(delta, name="delta"), as_count(n_cal, name="n_cal", least=1)
    if failure > Fraction(1, 2):
        raise ValueError(f"delta must be at most 0.5 for the one-sided inequality, got {delta!r}.")
    lacking, ranked = 0.0, None if pac_delta is None else as_rational(pac_delta, name="pac_delta")
    # rank k serves levels down to this quantile of Beta(k, n + 1 - k)
    if ranked is not None and ranked > Fraction(1, 2):
        # of many ranks, some: quantiles rise from one to the next
        last = np.linspace(1, n, min(n, 2**14)).astype(np.int64)
        first = np.append(1, last[:-1] + 1)
        lacking = max(0.0, float(np.max(betaincinv(last, n + 1 - last, float(ranked)) - first / n)))
    return math.sqrt(-math.log(float(failure)) / (2 * n)) + lacking


@dataclass(frozen=True)
class PacGap:
    """What a PAC guarantee costs in mean coverage over a marginal one.

    ``exact`` is (pac_rank - marginal_rank) / (n + 1), ``approximate`` is z_(1 - delta) sqrt(alpha
    (1 - alpha) / n).
    """

    exact: float
    approximate: float
    marginal_rank: int
    pac_rank: int


def pac_gap(n_cal: SupportsIndex, *, alpha: Level, delta: Level) -> PacGap:
    """The mean coverage that a PAC threshold has above a marginal one, by ranks and by the normal
    approximation.
    """
    n, share = as_count(n_cal, name="n_cal", least=1), float(as_rational(alpha))
    marginal, pac = rank_for(n, alpha=alpha), rank_for(n, alpha=alpha, delta=delta)
    approximate = float(-ndtri(float(as_rational(delta, name="delta")))) * math.sqrt(
        share * (1 - share) / n
    )
    return PacGap((pac - marginal) / (n + 1), approximate, marginal, pac)


def _checked_rank(rank: SupportsIndex, n_cal: SupportsIndex) -> tuple[int, int]:
    k, n = as_count(rank, name="rank"), as_count(n_cal, name="n_cal")
    if not 1 <= k <= n + 1:
        raise ValueError(f"rank must be between 1 and n_cal + 1 = {n + 1}, got {k}.")
    return k, n


# ---- sizes

TuningMethod: TypeAlias = Literal["uniform", "paper"]
QuantileMethod: TypeAlias = Literal["exact", "paper"]

_LARGEST_SCAN = 20_000_000  # rows; a wish that needs more than this is a slip of the pen


@dataclass(frozen=True)
class CalibrationSize:
    """How many calibration rows a wish needs.

    The wish holds at `first`, and at every size from `safe_from` on; between the two it comes and
    goes, because the rank is a whole number. ``recommended`` is the size within 1 / alpha rows of
    `safe_from` whose rank wastes least: where 1 / alpha is whole, n + 1 is a multiple of it and k /
    (n + 1) is 1 - alpha exactly. ``closed_form`` is ceil(alpha (1 - alpha) / spread^2) - 2 for a
    wish about the spread, or the least size with a finite threshold if that is larger; None
    otherwise.
    """

    first: int
    safe_from: int
    recommended: int
    closed_form: int | None = None


def calibration_size(
    *,
    alpha: Level,
    spread: float | None = None,
    shortfall: float | None = None,
    delta: Level | None = None,
    pac_delta: Level | None = None,
) -> CalibrationSize:
    """Calibration rows for ``sd(coverage) <= spread``, or for ``P(coverage < 1 - alpha - shortfall)
    <= delta``.

    Give either `spread`, or `shortfall` and `delta`. Coverage is Beta(k, n + 1 - k); k is the
    marginal rank, or with `pac_delta` the PAC rank. Both conditions are sawteeth in n, so every n
    is looked at up to a bound beyond which the condition is proved to hold: variance <= 1 / (4 (n +
    2)), and for the tail Chernoff's exp(-n KL(1 - alpha || 1 - alpha - shortfall)), which applies
    since k >= n (1 - alpha) (for a `pac_delta` of at most 1/2). Sizes too small for a finite
    threshold do not count.
    """
    level = as_rational(alpha)
    failure = None if pac_delta is None else as_rational(pac_delta, name="pac_delta")
    share, least = float(level), smallest_n_for(alpha=level, delta=failure)
    wish = target = allowed = 0.0
    if spread is not None and shortfall is None and delta is None:
        wish = as_positive(spread, name="spread")
        limit = math.ceil(0.25 / wish**2)
    elif spread is None and shortfall is not None and delta is not None:
        target = 1 - share - as_positive(shortfall, name="shortfall")
        if target <= 0:
            raise ValueError(
                f"shortfall must be below 1 - alpha = {1 - share:g}, got {shortfall!r}."
            )
        if failure is not None and failure > Fraction(1, 2):
            raise ValueError(
                f"pac_delta must be at most 1/2 where a shortfall is asked for, got {pac_delta!r}."
            )
        allowed = float(as_rational(delta, name="delta"))
        entropy = (1 - share) * math.log((1 - share) / target) + share * math.log(
            share / (1 - target)
        )
        limit = math.ceil(-math.log(allowed) / entropy)
    else:
        raise ValueError("give either spread=, or both shortfall= and delta=.")
    limit = max(limit, least)
    if limit > _LARGEST_SCAN:
        raise ValueError(
            f"this may need up to {limit:,} calibration rows, beyond the "
            f"{_LARGEST_SCAN:,} that are searched."
        )
    sizes = np.arange(least, limit + 1, dtype=np.int64)
    ranks, closed_form = _ranks(sizes, level, failure), None
    if wish:
        good = coverage_variance(ranks, sizes) <= wish**2 * (1 + 1e-12)
        closed_form = max(least, math.ceil(level * (1 - level) / Fraction(repr(wish)) ** 2) - 2)
    else:
        good = betainc(ranks, np.maximum(sizes + 1 - ranks, 1), target) <= allowed
    bad = np.flatnonzero(~good)
    safe_from = int(sizes[bad[-1]]) + 1 if bad.size else least
    recommended = least_wasteful_size(safe_from, alpha=level, delta=failure)
    return CalibrationSize(int(sizes[np.argmax(good)]), safe_from, recommended, closed_form)


def least_wasteful_size(
    n: SupportsIndex, *, alpha: Level, delta: Level | None = None, downwards: bool = False
) -> int:
    """The size within 1 / alpha rows of n (n itself, or more; or less if `downwards`) with the
    least rank / (size + 1).

    Whole ranks make some sizes a bargain: n + 1 a multiple of 1 / alpha has mean coverage 1 - alpha
    and not more.
    """
    count, level = as_count(n), as_rational(alpha)
    failure = None if delta is None else as_rational(delta, name="delta")
    window = min(math.ceil(1 / level), 10_000)
    sizes = range(count, max(-1, count - window), -1) if downwards else range(count, count + window)
    return min(
        sizes, key=lambda size: Fraction(rank_for(size, alpha=level, delta=failure), size + 1)
    )


def _ranks(sizes: Integers, alpha: Fraction, delta: Fraction | None) -> Integers:
    if delta is not None:
        return np.array([rank_for(int(n), alpha=alpha, delta=delta) for n in sizes], dtype=np.int64)
    covered, whole = alpha.denominator - alpha.numerator, alpha.denominator
    exact = sizes if covered * (int(sizes[-1]) + 1) < 2**62 else sizes.astype(object)
    return np.asarray(-(-(exact + 1) * covered // whole), dtype=np.int64)


@dataclass(frozen=True)
class TuningAccuracy:
    """Errors that hold for all candidates at once, with probability at least 1 - delta.

    ``risk_error`` bounds |empirical - true miscoverage|, ``size_error`` |empirical - true mean
    size|. The bound says something only if `risk_error` is below alpha and `size_error` below the
    differences between candidates.
    """

    risk_error: float
    size_error: float
    method: TuningMethod


def tuning_sample_size(
    *,
    candidates: SupportsIndex,
    risk_error: float,
    size_error: float,
    size_bound: float,
    delta: Level = 0.05,
    method: TuningMethod = "uniform",
    thresholds: SupportsIndex = 80,
) -> int:
    """Tuning rows for the errors wanted, uniformly over `candidates` structures, with probability
    at least 1 - delta.

    ``"paper"`` is Proposition 3.2: n >= max{log(4A / delta) / (2 eR^2), B^2 log(4A / delta) / (2
    eS^2)} with A = candidates x thresholds pairs fixed before the rows are seen. (The paper's own
    grid is made of quantiles of the tuning rows, so its union bound does not apply to it as it
    stands.)

    ``"uniform"`` holds for every threshold at once, hence for exact search and any grid, and needs
    no A. Risk: by DKW, P(sup |R^ - R| > e) <= 2 |Phi| exp(-2 n e^2). Size: the sets of one
    structure are a chain inside a region of size B, so with one uniform label per row, sup |S^ - S|
    / B is at most the conditional mean of a Kolmogorov distance D. Hence for any c < e, P(sup |S^ -
    S| > B e) <= E(D - c)_+ / (e - c), and DKW at the best c gives the error eS = B (eR + sqrt(pi /
    8n) erfcx(sqrt(2n) eR)), a little above B eR. `thresholds` is then ignored.

    `size_bound` B is the size of that region: the number of classes, or the length of the response
    range.
    """
    risk, size = (
        as_positive(risk_error, name="risk_error"),
        as_positive(size_error, name="size_error"),
    )
    one_row = tuning_accuracy(
        1,
        candidates=candidates,
        size_bound=size_bound,
        delta=delta,
        method=method,
        thresholds=thresholds,
    )
    # Both errors shrink as 1 / sqrt(n); the last factor keeps a value that is whole up to rounding
    # from going up by one.
    return math.ceil(
        max((one_row.risk_error / risk) ** 2, (one_row.size_error / size) ** 2) * (1 - 1e-14)
    )


def tuning_accuracy(
    n_tune: SupportsIndex,
    *,
    candidates: SupportsIndex,
    size_bound: float,
    delta: Level = 0.05,
    method: TuningMethod = "uniform",
    thresholds: SupportsIndex = 80,
) -> TuningAccuracy:
    """The errors that `n_tune` rows certify: `tuning_sample_size` solved for the accuracy."""
    n, pairs = (
        as_count(n_tune, name="n_tune", least=1),
        as_count(candidates, name="candidates", least=1),
    )
    bound, failure = (
        as_positive(size_bound, name="size_bound"),
        float(as_rational(delta, name="delta")),
    )
    if method not in ("uniform", "paper"):
        raise ValueError(f'method must be "uniform" or "paper", got {method!r}.')
    if method == "paper":
        pairs *= as_count(thresholds, name="thresholds", least=1)
    risk = size = math.sqrt(math.log(4 * pairs / failure) / (2 * n))
    if method == "uniform":
        size += math.sqrt(math.pi / (8 * n)) * float(erfcx(math.sqrt(2 * n) * risk))
    return TuningAccuracy(risk, bound * size, method)


def quantile_accuracy(
    n_cal: SupportsIndex,
    *,
    alpha: Level,
    density: float,
    distance: float,
    method: QuantileMethod = "exact",
) -> float:
    """A bound on P(|q - q*| > distance): q the conformal threshold, q* the population quantile of
    the scores.

    `density` is a lower bound c on the density of scores within `distance` t of q*. ``"paper"`` is
    Lemma B.3, 2 exp(-2n (ct
    - 2/n)_+^2). ``"exact"`` counts scores below q* + t and q* - t: P(Bin(n, p + ct) <= k - 1) +
      P(Bin(n, p - ct) >= k), p =
    1 - alpha; it is the probability itself when the density is c throughout. Both are cut at 1,
    which is also the answer when n is too small for a finite threshold.
    """
    n, level = as_count(n_cal, name="n_cal"), as_rational(alpha)
    mass = as_positive(density, name="density") * as_positive(distance, name="distance")
    rank, p = rank_for(n, alpha=level), float(1 - level)
    if method not in ("exact", "paper"):
        raise ValueError(f'method must be "exact" or "paper", got {method!r}.')
    if rank > n:
        return 1.0
    if method == "paper":
        return min(1.0, 2 * math.exp(-2 * n * max(mass - 2 / n, 0.0) ** 2))
    above = float(betaincc(rank, n + 1 - rank, min(p + mass, 1.0)))  # P(Bin(n, p + ct) <= k - 1)
    below = float(betainc(rank, n + 1 - rank, max(p - mass, 0.0)))  # P(Bin(n, p - ct) >= k)
    return min(1.0, above + below)


def quantile_distance(
    n_cal: SupportsIndex,
    *,
    alpha: Level,
    density: float,
    delta: Level,
    method: QuantileMethod = "exact",
) -> float:
    """The distance that q keeps from q* with probability at least 1 - delta: `quantile_accuracy`
    solved for `distance`.

    Infinite when n is too small for a finite threshold. The density bound must hold that far on
    both sides.
    """
    n, level = as_count(n_cal, name="n_cal"), as_rational(alpha)
    c, failure = as_positive(density, name="density"), float(as_rational(delta, name="delta"))
    if rank_for(n, alpha=level) > n:
        return math.inf
    if method == "paper":
        return (math.sqrt(math.log(2 / failure) / (2 * n)) + 2 / n) / c
    near, far = 0.0, 1.0
    # the bound falls as the mass grows, so bisection finds the one crossing
    while far - near > 1e-12:
        middle = (near + far) / 2
        missed = quantile_accuracy(n, alpha=level, density=1.0, distance=middle, method=method)
        near, far = (near, middle) if missed <= failure else (middle, far)
    return far / c


@dataclass(frozen=True)
class RecalibrationBound:
    """How large sets can be after recalibration, against the best candidate (see
    `size_after_recalibration`).

    With probability at least `probability` the mean size is at most that of the best candidate at
    coverage `oracle_level` plus `size_excess`. ``vacuous`` says that the levels exceed 1 or the
    excess exceeds the largest set.
    """

    coverage_quantile: float
    ranking_level: float
    oracle_level: float
    size_excess: float
    probability: float
    vacuous: bool


def size_after_recalibration(
    n_tune: SupportsIndex,
    n_cal: SupportsIndex,
    *,
    alpha: Level,
    candidates: SupportsIndex,
    size_bound: float,
    delta: Level = 0.05,
    calibration_delta: Level = 0.05,
    pac_delta: Level | None = None,
) -> RecalibrationBound:
    """An oracle inequality for the deployed sets (without refit), which the paper leaves open.

    Let eR, eS be the uniform errors of `tuning_accuracy` at `delta`, and u the 1 -
    calibration_delta quantile of Beta(k, n + 1 - k). Rank candidates by their tuning size at
    empirical coverage u + eR. Then, with probability at least 1 - delta - calibration_delta,
    S(phi^, q^) <= min over phi of S(phi, l*_phi(u + 2 eR)) + 2 eS, where l*_phi(v) is the
    population v-quantile of the scores of phi (continuous laws).

    Proof: let l^ be the tuning threshold of phi^ at u + eR. Its coverage is at least u, and that of
    q^ is below u, so q^ <= l^ and S(phi^, q^) <= S(phi^, l^) <= S^(phi^, l^) + eS <= S^(phi,
    l^_phi) + eS <= S(phi, l^_phi) + 2 eS for every phi; and l^_phi <= l*_phi(u + 2 eR).
    """
    accuracy = tuning_accuracy(n_tune, candidates=candidates, size_bound=size_bound, delta=delta)
    failure = as_rational(calibration_delta, name="calibration_delta")
    u = float(coverage_law(n_cal, alpha=alpha, delta=pac_delta).ppf(float(1 - failure)))
    excess, oracle = 2 * accuracy.size_error, u + 2 * accuracy.risk_error
    probability = float(max(1 - as_rational(delta, name="delta") - failure, Fraction(0)))
    vacuous = oracle >= 1 or excess >= size_bound or probability == 0
    return RecalibrationBound(u, u + accuracy.risk_error, oracle, excess, probability, vacuous)
