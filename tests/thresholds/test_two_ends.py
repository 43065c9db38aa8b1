"""Two thresholds with one law: by enumeration, by simulation, and against two thresholds calibrated
apart.
"""

from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from scipy.stats import beta, binomtest, kstest, norm

from dco.foundations.errors import InfeasibleLevelWarning
from dco.foundations.ranks import conformal_rank, pac_rank
from dco.guarantees.rules import RULES
from dco.scores.regression import smallest_two_ended_n, two_ends


def share_covered(first, second, alpha):
    """The share of rows covered when each is the new one in turn and the others calibrate."""
    covered = 0
    for new in range(len(first)):
        s, t = two_ends(np.delete(first, new), np.delete(second, new), alpha=alpha)
        covered += first[new] <= s.value and second[new] <= t.value
    return Fraction(covered, len(first))


@pytest.mark.parametrize("alpha", ["0.4", "0.5", "0.7", "0.9"])
def test_every_order_of_two_scores_covers_its_rank_exactly(alpha):
    """Six rows in any of the 720 orders of the second score against the first: k of 6 are covered,
    whatever the order.
    """
    right = Fraction(conformal_rank(5, alpha=alpha), 6)
    assert right < 1
    for order in permutations(range(6)):
        assert share_covered(np.arange(6.0), np.array(order, dtype=float), alpha) == right


def test_every_pattern_of_ties_covers_at_least_its_rank():
    """All pairs of two scores on two values, and on 0, 1 and infinity for four rows."""
    for n, values in ((6, (0.0, 1.0)), (4, (0.0, 1.0, np.inf))):
        right = Fraction(conformal_rank(n - 1, alpha="0.5"), n)
        for first in product(values, repeat=n):
            if first != tuple(sorted(first)):
                continue  # the order of rows plays no part
            for second in product(values, repeat=n):
                assert share_covered(np.array(first), np.array(second), "0.5") >= right


def simulated(n, runs, seed, rounded, **levels):
    """Coverage where spread depends on x, so that the two scores order rows differently.

    y given x is Gaussian with sd 0.7 or 2; the quantiles are -0.25 - |x| and 0.5 |x|. If `rounded`,
    y is cut to quarters and x has four values, so that all scores are quarters.
    """
    rng = np.random.default_rng(seed)
    step = 0.25
    # equally likely
    x_new = np.array([-1.5, -0.5, 0.5, 1.5]) if rounded else norm.ppf((np.arange(400) + 0.5) / 400)
    coverage = np.empty(runs)
    for run in range(runs):
        x = rng.choice(x_new, size=n)
        y = rng.normal(size=n) * np.where(x > 0, 2.0, 0.7)
        y = step * np.floor(y / step) if rounded else y
        s, t = two_ends(-0.25 - np.abs(x) - y, y - 0.5 * np.abs(x), **levels)
        low, high = -0.25 - np.abs(x_new) - s.value, 0.5 * np.abs(x_new) + t.value
        sd = np.where(x_new > 0, 2.0, 0.7)
        if rounded:  # the grid values in [low, high], each with the mass of its step
            low, high = step * np.ceil(low / step - 1e-9), step * (np.floor(high / step + 1e-9) + 1)
        coverage[run] = np.mean(np.maximum(norm.cdf(high / sd) - norm.cdf(low / sd), 0))
    return coverage


@pytest.mark.parametrize(
    "levels", [{"alpha": 0.2}, {"alpha": 0.2, "delta": 0.1}], ids=["marginal", "pac"]
)
def test_coverage_has_the_beta_law_of_one_rank(levels):
    """Kolmogorov-Smirnov against Beta(k, n + 1 - k), error rate 0.001; the misses are an odd and an
    even number.
    """
    for n in (60, 74):
        k = pac_rank(n, **levels) if "delta" in levels else conformal_rank(n, **levels)
        coverage = simulated(n, 2000, n, False, **levels)
        assert kstest(coverage, beta(k, n + 1 - k).cdf).pvalue > 0.001


def test_a_pac_statement_holds_with_ties_too():
    """Failures among 2,000 draws, error rate 0.001. Ties raise coverage: its mean is 4 errors above
    the law's.
    """
    coverage = simulated(60, 2000, 1, True, alpha=0.2, delta=0.1)
    assert binomtest(int(np.sum(coverage < 0.8)), 2000, 0.1, alternative="greater").pvalue > 0.001
    assert coverage.mean() > pac_rank(60, alpha=0.2, delta=0.1) / 61 + 4 * coverage.std() / np.sqrt(
        2000
    )


@pytest.mark.parametrize("delta", [None, 0.1])
def test_neither_threshold_is_above_that_of_its_score_alone_at_half_the_levels(delta):
    """Always, and by PAC clearly below on the mean: two statements at delta / 2 ask for more than
    one at delta.
    """
    rng, saved = np.random.default_rng(2), []
    for n in (60, 61, 75, 200, 399):
        for _ in range(40):
            scores = np.round(rng.normal(size=(2, n)), rng.integers(1, 9))
            rule = RULES["marginal" if delta is None else "pac"]
            apart = [rule.threshold(part, alpha=0.1, delta=delta and delta / 2) for part in scores]
            both = two_ends(*scores, alpha=0.2, delta=delta)
            lower = [one.value - other.value for one, other in zip(apart, both, strict=True)]
            assert min(lower) >= 0
            saved.append(sum(lower))
    assert np.mean(saved) > (0.2 if delta else 0)


def test_the_order_of_rows_plays_no_part():
    """Nine rows at 0.5 may miss five: the three highest by the first score, here 8, 7 and 6, then
    two of the rest.
    """
    assert [
        (end.value, end.rank, end.n) for end in two_ends(np.zeros(9), np.arange(9.0), alpha=0.5)
    ] == [
        (0, 7, 9),
        (4, 5, 6),
    ]
    rng = np.random.default_rng(3)
    first, second = np.round(rng.normal(size=(2, 80)), 1)
    orders = [rng.permutation(80) for _ in range(50)]
    assert (
        len(
            {
                tuple(map(float, two_ends(first[order], second[order], alpha=0.3)))
                for order in orders
            }
        )
        == 1
    )


@pytest.mark.parametrize(("alpha", "delta"), [(0.1, None), (0.3, None), (0.1, 0.05), (0.25, 0.2)])
def test_one_row_too_few_is_told_and_the_least_number_is_enough(alpha, delta):
    n = smallest_two_ended_n(alpha=alpha, delta=delta)
    with pytest.warns(InfeasibleLevelWarning, match=f"At least {n} rows are needed"):
        ends = two_ends(np.arange(n - 1.0), np.arange(n - 1.0), alpha=alpha, delta=delta)
    assert [end.value for end in ends] == [np.inf, np.inf]
    # a warning would be an error
    ends = two_ends(np.arange(float(n)), -np.arange(float(n)), alpha=alpha, delta=delta)
    assert [(end.value, end.guarantee) for end in ends] == [(n - 1.0, "none"), (0.0, "none")]


@pytest.mark.parametrize(
    ("first", "second", "levels", "message"),
    [
        (np.zeros(3), np.zeros(2), {"alpha": 0.1}, "got 3 first and 2 second scores"),
        (np.zeros(30), np.full(30, np.nan), {"alpha": 0.1}, "are NaN"),
        (np.zeros(30), np.zeros(30), {"alpha": 2}, "alpha"),
        (np.zeros(30), np.zeros(30), {"alpha": 0.1, "delta": 0}, "delta"),
    ],
)
def test_scores_that_do_not_pair_or_are_not_numbers_are_refused(first, second, levels, message):
    with pytest.raises(ValueError, match=message):
        two_ends(first, second, **levels)
