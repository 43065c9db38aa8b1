"""Paired comparisons agree with SciPy where SciPy is exact."""

import math

import numpy as np
import pytest
from scipy.stats import ttest_rel, wilcoxon

from dco.paper.paired import paired_comparison, paired_wilcoxon


def exact_p_value(differences):
    """Count all 2^n equally likely sums of signed ranks, by convolution."""
    counts = np.ones(1)
    ranks = np.argsort(np.argsort(np.abs(differences))) + 1
    for rank in ranks:
        counts = np.append(counts, np.zeros(rank)) + np.append(np.zeros(rank), counts)
    smaller_sum = min(ranks[differences < 0].sum(), ranks[differences > 0].sum())
    return 2 * counts[: smaller_sum + 1].sum() / 2.0 ** len(ranks)


def test_paired_wilcoxon_is_scipys():
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=30), rng.normal(0.3, size=30)
    assert paired_wilcoxon(a, b) == wilcoxon(a, b).pvalue


def test_equal_runs_have_p_value_one():
    assert paired_wilcoxon([1, 2, 3], [1, 2, 3]) == 1.0


def many_differences():
    differences = 1 + np.random.default_rng(5).uniform(size=25)
    differences[0] *= -0.1
    return differences


@pytest.mark.parametrize(
    "differences",
    [many_differences(), np.array([0.5, -1.0, 2.0, 3.0, 4.0, 5.0])],
    ids=["many", "few"],
)
def test_an_equal_pair_does_not_make_wilcoxon_approximate(differences):
    p_value = paired_wilcoxon(np.append(differences, 0.0), np.zeros(len(differences) + 1))
    assert p_value == pytest.approx(exact_p_value(differences))


def test_paired_comparison_is_the_t_interval():
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=25), rng.normal(0.3, size=25)
    result = paired_comparison(a, b)
    expected = ttest_rel(a, b).confidence_interval(0.95)
    assert result.mean_difference == pytest.approx(np.mean(a - b))
    assert (result.low, result.high) == pytest.approx((expected.low, expected.high))
    assert result.p_value == paired_wilcoxon(a, b)


def test_one_pair_has_an_infinite_interval():
    assert paired_comparison([1.0], [2.0]).low == -math.inf


@pytest.mark.parametrize("compare", [paired_wilcoxon, paired_comparison])
@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1, 2], [1, 2, 3], r"got shapes \(2,\) and \(3,\)"),
        ([1, math.inf], [1, math.inf], r"1 of 2 pairs are not finite \(first: pair 1\)"),
        (["a", "b"], [1, 2], r"^a must be real numbers, got "),
        ([1, 2], {1: 2}, r"^b must be real numbers, got "),
    ],
    ids=["shapes", "infinite", "text", "dict"],
)
def test_bad_pairs_are_named(compare, a, b, message):
    with pytest.raises(ValueError, match=message):
        compare(a, b)
