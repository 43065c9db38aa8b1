"""The law of coverage at a rank, and the test of an observed coverage against it."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
from scipy.special import betaincinv, betaln

from dco.foundations.arrays import Floats
from dco.foundations.ranks import Level, as_count, as_rational, rank_for

# A distribution of SciPy with its parameters, continuous or discrete: law.mean(), law.ppf(0.05) ...
FrozenLaw: TypeAlias = Any

UNUSUAL = 0.05  # below this p-value an observed coverage is called unusual
DOUBTFUL = 0.01  # below this p-value it is called inconsistent with its law
MISSED_RANKS = 1e-6  # how often the threshold of other rows may fall outside the ranks looked at
MOST_RANKS_TRIED = 2**14  # of PAC thresholds, for the slack over all levels


def coverage_law(n_cal: SupportsIndex, *, alpha: Level, delta: Level | None = None) -> FrozenLaw:
    """Return the law of coverage over the draw of `n_cal` calibration rows.

    It is a frozen distribution of SciPy: Beta(k, n + 1 - k), where k is the marginal rank
    ceil((n + 1)(1 - alpha)) or, with `delta`, the PAC rank. The law is exact for i.i.d. rows whose
    scores have no ties; with ties coverage is stochastically larger (Vovk 2012). If k = n + 1 the
    threshold is infinite and coverage is 1: the law is then discrete and has no pdf.
    """
    rank = rank_for(n_cal, alpha=alpha, delta=delta)
    return coverage_law_of_rank(rank, n_cal)


def coverage_law_of_rank(rank: SupportsIndex, n_cal: SupportsIndex) -> FrozenLaw:
    """Return the law of coverage at the rank-th smallest of n scores: Beta(rank, n + 1 - rank)."""
    from scipy import stats

    k, n = check_rank(rank, n_cal)
    if k == n + 1:
        return _point_mass(1.0)
    return stats.beta(k, n + 1 - k)


def coverage_variance(rank: Any, n_cal: Any) -> Any:
    """Return the variance of Beta(rank, n + 1 - rank), for numbers or arrays."""
    mean = rank / (n_cal + 1)
    return mean * (1 - mean) / (n_cal + 2)


def hits_law(
    n_cal: SupportsIndex, n_test: SupportsIndex, *, alpha: Level, delta: Level | None = None
) -> FrozenLaw:
    """Return the distribution of the number of covered rows among `n_test` new rows.

    It is a SciPy distribution, Beta-binomial(n_test, k, n + 1 - k). The threshold is the k-th
    smallest of n = `n_cal` calibration scores, where k is the marginal rank or, with `delta`, the
    PAC rank. If k = n + 1, the threshold is infinite and all rows are covered. The standard
    deviation of the share of covered rows is about
    sqrt(alpha (1 - alpha) (1 / n_test + 1 / (n + 2))).
    """
    from scipy import stats

    k, n = check_rank(rank_for(n_cal, alpha=alpha, delta=delta), n_cal)
    n_new = as_count(n_test, name="n_test")
    if k == n + 1:
        return _point_mass(n_new)
    return stats.betabinom(n_new, k, n + 1 - k)


def _point_mass(value: float) -> FrozenLaw:
    """Make the law of a number that is certain."""
    from scipy import stats

    return stats.rv_discrete(name="point_mass", values=([value], [1.0]))()


def hits_cdf(
    hits: SupportsIndex, n_test: SupportsIndex, *, rank: SupportsIndex, n_cal: SupportsIndex
) -> float:
    """Return P(H <= hits) for the number H of covered rows among m = n_test new rows.

    The threshold is the k-th smallest (k = rank) of n = n_cal calibration scores, so that H is
    Beta-binomial. Put all n + m exchangeable scores in order: H <= h if and only if the lowest
    k + h of them hold at least k calibration scores. The number of these is hypergeometric:

        P(H <= h) = sum over j >= k of C(n, j) C(m, k + h - j) / C(n + m, k + h).

    The sum has at most n terms, so that millions of test rows cost nothing.
    """
    k, n = check_rank(rank, n_cal)
    m = as_count(n_test, name="n_test")
    h = int(hits)

    # 1. Cases without a sum. Rank n + 1 stands for an infinite threshold, which covers all rows.
    if h < 0:
        return 0.0
    if h >= m:
        return 1.0
    if k == n + 1:
        return 0.0

    # 2. The sum, by the logarithms of its terms.
    j = np.arange(k, min(n, k + h) + 1, dtype=np.float64)
    log_terms = _log_choose(n, j) + _log_choose(m, k + h - j) - _log_choose(n + m, k + h)
    return float(min(1.0, np.exp(log_terms).sum()))


def _log_choose(n: int, k: float | Floats) -> Any:
    """Return log C(n, k), the logarithm of the binomial coefficient, for one k or an array."""
    return -np.log1p(n) - betaln(n - k + 1.0, k + 1.0)


@dataclass(frozen=True)
class Consistency:
    """Whether an observed test coverage agrees with the law that the calibration rank implies.

    Attributes
    ----------
    p_value
        Twice the smaller of two Beta-binomial tails, at most 1: the lower tail of the rank, and the
        upper tail of the next rank. When `tied`, twice the lower tail: low coverage is judged
        alike, and high coverage is no evidence.
    coverage, expected_coverage
        The observed share of covered rows, and rank / (n_cal + 1).
    low, high
        Test coverage lies between them with probability at least 0.9 if scores have no ties; with
        ties more can be covered, and `high` is 1.
    n_test, n_cal, rank, tied
        What was tested.
    verdict
        The result in words.
    unknown_labels
        Rows beside the `n_test` whose labels not even full sets hold. Any such row shows that the
        guarantee's assumption fails.
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
        """Whether the p-value is at least 0.01 and the fit knows the label of every row."""
        return self.p_value >= DOUBTFUL and self.unknown_labels == 0


def coverage_consistency(
    hits: SupportsIndex,
    n_test: SupportsIndex,
    *,
    rank: SupportsIndex,
    n_cal: SupportsIndex,
    tied: bool = False,
    unknown_labels: SupportsIndex = 0,
) -> Consistency:
    """Test whether the number of covered rows agrees with what the guarantee promises.

    The number follows Beta-binomial(n_test, rank, n_cal + 1 - rank). The p-value is valid,
    P(p <= u) <= u, for every law of the scores when test rows and calibration rows are i.i.d. and
    neither was looked at before (docs/proofs.md).

    Parameters
    ----------
    hits, n_test
        How many of how many test rows are covered.
    rank, n_cal
        The threshold is the rank-th smallest of n_cal calibration scores.
    tied
        Whether calibration scores are equal near the threshold (`ranks_near_threshold`), or at
        least the next score equals it. Coverage is then only stochastically larger than the law, so
        that high coverage is no evidence. The lower tail is doubled all the same: a look at the
        scores decides which p-value it is, and may not make low coverage more significant.
    unknown_labels
        Rows whose label the fit does not know. Such a label scores infinity and is a miss wherever
        the threshold is finite: count it in `n_test`. Full sets (``rank=n_cal + 1``) cover every
        other row: leave such rows out of `n_test` there and give their number here.
    """
    # 1. Check the arguments.
    k, n = check_rank(rank, n_cal)
    n_covered = as_count(hits, name="hits")
    n_tested = as_count(n_test, name="n_test")
    n_unknown = as_count(unknown_labels, name="unknown_labels")
    if n_tested == 0 or n_covered > n_tested:
        raise ValueError(
            f"hits must be at most n_test and n_test at least 1, got hits = "
            f"{n_covered} of n_test = {n_tested}."
        )

    # 2. Compute the p-value. Where scores are tied or labels unknown, high coverage is no evidence
    # against the guarantee, and the lower tail alone counts.
    only_low_counts = tied or n_unknown > 0
    tails = _coverage_tails(n_covered, n_tested, k, n)
    tail = tails.lower if only_low_counts else min(tails.lower, tails.upper)
    p_value = min(1.0, 2.0 * max(0.0, tail))

    # 3. Say what it means.
    is_low = tails.lower <= tails.upper
    verdict = _explain_p_value(p_value, is_low=is_low, only_low_counts=only_low_counts)
    if n_unknown > 0:
        rows = "1 row has a label" if n_unknown == 1 else f"{n_unknown} rows have labels"
        verdict = (
            f"the assumption fails: {rows} that the fit does not know. Coverage of the "
            f"other {n_tested} is {verdict}"
        )

    high = 1.0
    if not only_low_counts:
        high = _hits_quantile(0.95, n_tested, k, n) / n_tested
    return Consistency(
        p_value=p_value,
        coverage=n_covered / n_tested,
        expected_coverage=k / (n + 1),
        low=_hits_quantile(0.05, n_tested, k, n) / n_tested,
        high=high,
        n_test=n_tested,
        n_cal=n,
        rank=k,
        tied=only_low_counts,
        verdict=verdict,
        unknown_labels=n_unknown,
    )


@dataclass(frozen=True)
class _CoverageTails:
    """How probable coverage as low as the observed one is, and coverage as high."""

    lower: float
    upper: float


def _coverage_tails(hits: int, n_test: int, rank: int, n_cal: int) -> _CoverageTails:
    """Compute P(covered rows <= hits) at the rank, and P(covered rows >= hits) at the next rank.

    The next rank makes the upper tail valid also where the score at the threshold is an atom that
    was drawn once: coverage is then more than the law of the rank says, but less than that of the
    next rank, since the next score is larger.
    """
    next_rank = min(rank + 1, n_cal + 1)
    return _CoverageTails(
        lower=hits_cdf(hits, n_test, rank=rank, n_cal=n_cal),
        upper=1.0 - hits_cdf(hits - 1, n_test, rank=next_rank, n_cal=n_cal),
    )


def _explain_p_value(p_value: float, *, is_low: bool, only_low_counts: bool) -> str:
    """Say what the p-value of an observed coverage means, to go after "Coverage is ...".

    `is_low` says whether coverage was lower than expected rather than higher, and `only_low_counts`
    whether high coverage is no evidence, so that it was not tested.
    """
    if p_value >= UNUSUAL and only_low_counts:
        return "not below what the guarantee allows"
    if p_value >= UNUSUAL:
        return "consistent with the guarantee"

    side = "lower" if is_low else "higher"
    if p_value >= DOUBTFUL:
        return f"{side} than usual, and still within chance"

    if is_low:
        explanation = (
            "unlike the calibration rows, or calibration rows may have been used before they "
            "calibrated"
        )
    else:
        explanation = (
            "easier than the calibration rows, the model may have seen them, or scores may be tied"
        )
    return f"{side} than chance explains in 99 fits of 100: these rows may be {explanation}"


def _hits_quantile(probability: float, n_test: int, rank: int, n_cal: int) -> int:
    """Return the smallest number of covered rows h with P(covered rows <= h) >= probability."""

    def cdf(hits: int) -> float:
        return hits_cdf(hits, n_test, rank=rank, n_cal=n_cal)

    return bisect_left(range(n_test), probability, key=cdf)


@lru_cache(maxsize=1024)
def ranks_near_threshold(rank: SupportsIndex, *, n_cal: SupportsIndex) -> tuple[int, int]:
    """Return two ranks between which the threshold would fall with other calibration rows.

    The threshold is the `rank`-th smallest of `n_cal` calibration scores. With other rows, the
    score of this rank falls, among the sorted scores of these rows, between the two ranks that are
    returned, but once in a million. Rank 90 of 100 gives (60, 100); in general they lie about
    7 sqrt(rank (1 - rank / n)) to each side. Ties matter only between them: mean coverage is
    rank / (n + 1), to 10^-6, if scores there are distinct (and no value that was drawn once or
    never has a probability of its own).
    """
    k, n = check_rank(rank, n_cal)
    if k == n + 1:  # the threshold is infinite, and stays infinite
        return n, n

    # Of the n scores, at least so many lie below the other threshold, and so many above it. Each
    # fails with half the probability: one in two million.
    n_below = _hits_quantile(MISSED_RANKS / 2, n, k, n)
    n_above = _hits_quantile(MISSED_RANKS / 2, n, n + 1 - k, n)
    return max(n_below, 1), min(n + 1 - n_above, n)


def simultaneous_slack(
    n_cal: SupportsIndex, *, delta: Level, pac_delta: Level | None = None
) -> float:
    """Return how far coverage may fall short where alpha is picked after seeing results.

    With probability at least 1 - delta, coverage is at least 1 - alpha - slack for every alpha at
    once, and so for the one that is picked. From n = `n_cal` calibration rows

        slack = sqrt(log(1 / delta) / (2 n)),

    by the one-sided inequality of Dvoretzky, Kiefer and Wolfowitz with Massart's constant, which
    holds for delta <= 1/2. It is for thresholds of rank n (1 - alpha) or higher. Those of a PAC
    guarantee with `pac_delta` above 1/2 have lower ranks, and the slack grows by what they lack.
    """
    n = as_count(n_cal, name="n_cal", least=1)
    exact_delta = as_rational(delta, name="delta")
    if exact_delta > Fraction(1, 2):
        raise ValueError(f"delta must be at most 0.5 for the one-sided inequality, got {delta!r}.")

    slack = math.sqrt(-math.log(float(exact_delta)) / (2 * n))
    if pac_delta is not None:
        slack += _shortfall_of_pac_ranks(n, as_rational(pac_delta, name="pac_delta"))
    return slack


def _shortfall_of_pac_ranks(n: int, pac_delta: Fraction) -> float:
    """Bound by how much a level 1 - alpha can exceed k / n, where k is the PAC rank for it.

    Rank k serves all levels up to q(k), the pac_delta quantile of Beta(k, n + 1 - k), so that the
    bound is max_k (q(k) - k / n). Up to pac_delta = 1/2 there is no excess. To save time, very many
    ranks are cut into blocks. In a block the largest q is that of its last rank and the smallest
    k / n that of its first, so that their difference is an upper bound.
    """
    if pac_delta <= Fraction(1, 2):
        return 0.0

    last_of_block = np.linspace(1, n, min(n, MOST_RANKS_TRIED)).astype(np.int64)
    first_of_block = np.append(1, last_of_block[:-1] + 1)
    largest_level = betaincinv(last_of_block, n + 1 - last_of_block, float(pac_delta))
    return max(0.0, float(np.max(largest_level - first_of_block / n)))


def check_rank(rank: SupportsIndex, n_cal: SupportsIndex) -> tuple[int, int]:
    """Return rank and n_cal as integers; a rank outside 1 ... n_cal + 1 is an error."""
    k = as_count(rank, name="rank")
    n = as_count(n_cal, name="n_cal")
    if not 1 <= k <= n + 1:
        raise ValueError(f"rank must be between 1 and n_cal + 1 = {n + 1}, got {k}.")
    return k, n
