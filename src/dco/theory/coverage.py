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

FrozenLaw: TypeAlias = Any  # a frozen distribution of SciPy, continuous or discrete

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
    """Return the law of the number of covered rows among `n_test`, as a SciPy distribution.

    It is Beta-binomial(n_test, k, n + 1 - k); divide by `n_test` for the law of test coverage,
    whose standard deviation is about sqrt(alpha (1 - alpha) (1 / n_test + 1 / (n + 2))). If k = n +
    1 all rows are covered.
    """
    from scipy import stats

    k, n = check_rank(rank_for(n_cal, alpha=alpha, delta=delta), n_cal)
    tested = as_count(n_test, name="n_test")
    if k == n + 1:
        return _point_mass(tested)
    return stats.betabinom(tested, k, n + 1 - k)


def _point_mass(value: float) -> FrozenLaw:
    """Make the law of a number that is certain."""
    from scipy import stats

    return stats.rv_discrete(name="point_mass", values=([value], [1.0]))()


def hits_cdf(
    hits: SupportsIndex, n_test: SupportsIndex, *, rank: SupportsIndex, n_cal: SupportsIndex
) -> float:
    """Return P(covered test rows <= hits), the Beta-binomial distribution function.

    Among the n_cal + n_test exchangeable scores, at most `hits` test scores lie below the rank-th
    calibration score if and only if the lowest rank + hits scores hold at least `rank` calibration
    scores. That is a tail of a hypergeometric law. It is summed over calibration rows, so that
    millions of test rows cost nothing.
    """
    k, n = check_rank(rank, n_cal)
    tested = as_count(n_test, name="n_test")
    h = int(hits)
    if h < 0:
        return 0.0
    if h >= tested:
        return 1.0
    if k == n + 1:
        return 0.0

    # How many of the lowest k + h scores are calibration scores, and the probability of each count.
    from_calibration = np.arange(k, min(n, k + h) + 1, dtype=np.float64)
    from_test = k + h - from_calibration
    log_probabilities = (
        _log_choose(n, from_calibration)
        + _log_choose(tested, from_test)
        - _log_choose(n + tested, k + h)
    )
    return float(min(1.0, np.exp(log_probabilities).sum()))


def _log_choose(n: int, k: float | Floats) -> Any:
    """Return the logarithm of the binomial coefficient n over k, for one k or many."""
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
    """Test the number of covered rows against its law.

    The law is Beta-binomial(n_test, rank, n_cal + 1 - rank). The p-value is valid, P(p <= u) <= u,
    for every law of the scores when test rows and calibration rows are i.i.d. and neither was
    looked at before (docs/proofs.md).

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
    k, n = check_rank(rank, n_cal)
    covered = as_count(hits, name="hits")
    tested = as_count(n_test, name="n_test")
    unknown = as_count(unknown_labels, name="unknown_labels")
    if tested == 0 or covered > tested:
        raise ValueError(
            f"hits must be at most n_test and n_test at least 1, got hits = "
            f"{covered} of n_test = {tested}."
        )
    high_is_no_evidence = tied or unknown > 0

    # Where the next score is larger, coverage is below the next order statistic of uniforms, even
    # if the score at the threshold is an atom of which one was drawn: hence the next rank above.
    at_most = hits_cdf(covered, tested, rank=k, n_cal=n)
    at_least = 1.0 - hits_cdf(covered - 1, tested, rank=min(k + 1, n + 1), n_cal=n)
    smaller_tail = min(at_most, at_least)
    tail = at_most if high_is_no_evidence else smaller_tail
    p_value = min(1.0, 2.0 * max(0.0, tail))

    verdict = _verdict(p_value, below=at_most <= at_least, tied=high_is_no_evidence)
    if unknown > 0:
        rows = "1 row has a label" if unknown == 1 else f"{unknown} rows have labels"
        verdict = (
            f"the assumption fails: {rows} that the fit does not know. Coverage of the "
            f"other {tested} is {verdict}"
        )

    highest = _hits_quantile(0.95, tested, k, n) / tested
    return Consistency(
        p_value=p_value,
        coverage=covered / tested,
        expected_coverage=k / (n + 1),
        low=_hits_quantile(0.05, tested, k, n) / tested,
        high=1.0 if high_is_no_evidence else highest,
        n_test=tested,
        n_cal=n,
        rank=k,
        tied=high_is_no_evidence,
        verdict=verdict,
        unknown_labels=unknown,
    )


def _verdict(p_value: float, *, below: bool, tied: bool) -> str:
    """Say what a p-value means; `below` is whether coverage was low rather than high."""
    if p_value >= UNUSUAL and tied:
        return "not below what the guarantee allows"
    if p_value >= UNUSUAL:
        return "consistent with the guarantee"

    side = "lower" if below else "higher"
    if p_value >= DOUBTFUL:
        return f"{side} than usual, and still within chance"

    if below:
        reason = (
            "unlike the calibration rows, or calibration rows may have been used before they "
            "calibrated"
        )
    else:
        reason = (
            "easier than the calibration rows, the model may have seen them, or scores may be tied"
        )
    return f"{side} than chance explains in 99 fits of 100: these rows may be {reason}"


def _hits_quantile(level: float, n_test: int, rank: int, n_cal: int) -> int:
    """Return the smallest number of hits whose distribution function reaches the level."""
    return bisect_left(
        range(n_test), level, key=lambda hits: hits_cdf(hits, n_test, rank=rank, n_cal=n_cal)
    )


@lru_cache(maxsize=1024)
def ranks_near_threshold(rank: SupportsIndex, *, n_cal: SupportsIndex) -> tuple[int, int]:
    """Return the first and the last rank at which the threshold of other rows could fall.

    Of n sorted calibration scores, those between the two ranks hold the `rank`-th smallest of n
    other scores, but once in a million. If all of them differ, mean coverage is rank / (n + 1) up
    to 10^-6, but for atoms of the scores that were drawn no more than once. The ranks reach about 7
    sqrt(rank (1 - rank / n)) to each side of the threshold.
    """
    k, n = check_rank(rank, n_cal)
    if k == n + 1:
        return n, n

    first = _hits_quantile(MISSED_RANKS / 2, n, k, n)
    last_from_top = _hits_quantile(MISSED_RANKS / 2, n, n + 1 - k, n)
    return max(first, 1), min(n + 1 - last_from_top, n)


def simultaneous_slack(
    n_cal: SupportsIndex, *, delta: Level, pac_delta: Level | None = None
) -> float:
    """Return the price of a level that is picked after its result has been seen.

    With probability at least 1 - delta, coverage is at least 1 - alpha - slack for every alpha at
    once: slack = sqrt(log(1 / delta) / (2 n)), by the one-sided inequality of Dvoretzky, Kiefer and
    Wolfowitz with Massart's constant, which asks for delta <= 1/2. Thresholds with a `pac_delta`
    above 1/2 have ranks below n (1 - alpha), and what they lack is added.
    """
    n = as_count(n_cal, name="n_cal", least=1)
    failure = as_rational(delta, name="delta")
    if failure > Fraction(1, 2):
        raise ValueError(f"delta must be at most 0.5 for the one-sided inequality, got {delta!r}.")

    slack = math.sqrt(-math.log(float(failure)) / (2 * n))
    if pac_delta is not None:
        slack += _shortfall_of_pac_ranks(n, as_rational(pac_delta, name="pac_delta"))
    return slack


def _shortfall_of_pac_ranks(n: int, pac_delta: Fraction) -> float:
    """Return the largest difference between a promised level and rank / n, over all levels.

    Rank k is used for levels up to the pac_delta quantile of Beta(k, n + 1 - k). Of very many ranks
    only some are computed: each quantile is compared with the first rank after the one computed
    before. Quantiles rise with the rank, so that the result is an upper bound.
    """
    if pac_delta <= Fraction(1, 2):
        return 0.0

    last_ranks = np.linspace(1, n, min(n, MOST_RANKS_TRIED)).astype(np.int64)
    first_ranks = np.append(1, last_ranks[:-1] + 1)
    promised = betaincinv(last_ranks, n + 1 - last_ranks, float(pac_delta))
    return max(0.0, float(np.max(promised - first_ranks / n)))


def check_rank(rank: SupportsIndex, n_cal: SupportsIndex) -> tuple[int, int]:
    """Return rank and n_cal as integers; a rank outside 1 ... n_cal + 1 is an error."""
    k = as_count(rank, name="rank")
    n = as_count(n_cal, name="n_cal")
    if not 1 <= k <= n + 1:
        raise ValueError(f"rank must be between 1 and n_cal + 1 = {n + 1}, got {k}.")
    return k, n
