"""Split conformal and Bayesian quadrature on 0/1 loss: values, laws, claims, and what they refuse."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import beta, binomtest, kstest

from dco.foundations.errors import InfeasibleLevelWarning, NonFiniteScoreError
from dco.foundations.ranks import Threshold, conformal_rank, pac_rank
from dco.guarantees.rules.order_statistics import bayesian_quadrature, split_conformal
from dco.predictions import ClassProbabilities
from dco.scores import APS

Rule = Callable[[object], Threshold]
RULES: dict[str, Rule] = {
    "split_conformal": lambda scores: split_conformal(scores, alpha=0.25),
    "bayesian_quadrature": lambda scores: bayesian_quadrature(scores, alpha=0.25, delta=0.1),
}


@pytest.fixture(params=RULES)
def name(request):
    return request.param


# ---- values ----------------------------------------------------------------------------------------------------------


def test_split_conformal_is_the_rank_th_smallest_score():
    for n in range(9, 120):
        scores = np.random.default_rng(n).permutation(np.arange(1.0, n + 1))
        threshold = split_conformal(scores, alpha=0.1)
        assert threshold.value == threshold.rank == conformal_rank(n, alpha=0.1)
        assert threshold.value == sorted(scores)[math.ceil(Fraction(9 * (n + 1), 10)) - 1]


def test_bayesian_quadrature_is_the_pac_rank_th_smallest_score():
    for n in range(29, 120):
        scores = np.random.default_rng(n).permutation(np.arange(1.0, n + 1))
        threshold = bayesian_quadrature(scores, alpha=0.1, delta=0.05)
        assert threshold.value == threshold.rank == pac_rank(n, alpha=0.1, delta=0.05)


def test_a_threshold_knows_its_statement():
    marginal = split_conformal(np.arange(99.0), alpha="0.1")
    assert (marginal.value, marginal.rank, marginal.n) == (89.0, 90, 99)
    assert (marginal.guarantee, marginal.alpha, marginal.delta) == ("marginal", 0.1, None)
    assert marginal.expected_coverage == 0.9
    pac = bayesian_quadrature(np.arange(99.0), alpha=1 - 0.9, delta=Fraction(1, 20))
    assert (pac.guarantee, pac.alpha, pac.delta, pac.n) == ("pac", 0.1, 0.05, 99)
    assert pac.value == pac.rank - 1
    assert float(pac) == pac.value


# ---- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "alpha"), [(99, 0.1), (50, 0.2), (30, 0.05)])
def test_coverage_follows_its_beta_law(n, alpha):
    """Uniform scores: coverage equals the threshold, which is Beta(k, n + 1 - k). Error rate of each test 1 %."""
    rng = np.random.default_rng(20)
    coverage = [split_conformal(rng.uniform(size=n), alpha=alpha).value for _ in range(3000)]
    k = conformal_rank(n, alpha=alpha)
    assert kstest(coverage, beta(k, n + 1 - k).cdf).pvalue > 0.01
    neighbour = beta(k + 1, n - k) if k < n else beta(k - 1, n + 2 - k)
    assert kstest(coverage, neighbour.cdf).pvalue < 1e-6  # one rank off is seen


@pytest.mark.parametrize(("n", "alpha", "delta"), [(60, 0.1, 0.1), (200, 0.2, 0.05)])
def test_pac_coverage_fails_as_often_as_its_law_says(n, alpha, delta):
    """P(coverage < 1 - alpha) is the Beta tail, which is at most delta, and would exceed it one rank lower."""
    rng, runs = np.random.default_rng(7), 3000
    coverage = np.array([bayesian_quadrature(rng.uniform(size=n), alpha=alpha, delta=delta).value for _ in range(runs)])
    rank = pac_rank(n, alpha=alpha, delta=delta)
    assert kstest(coverage, beta(rank, n + 1 - rank).cdf).pvalue > 0.01
    tail = beta(rank, n + 1 - rank).cdf(1 - alpha)
    assert tail <= delta < beta(rank - 1, n + 2 - rank).cdf(1 - alpha)
    assert binomtest(int(np.sum(coverage < 1 - alpha)), runs, tail).pvalue > 0.01


@pytest.mark.parametrize("rule", ["marginal", "pac"])
def test_ties_only_raise_coverage(rule):
    """Scores in {0, 1, 2, 3}: mean coverage at least k / (n + 1), by a one-sided test with error rate 0.1 %."""
    rng, n, runs, law = np.random.default_rng(3), 40, 4000, np.array([0.4, 0.3, 0.2, 0.1])
    cumulative = np.cumsum(law)
    total = 0.0
    for _ in range(runs):
        scores = rng.choice(4, size=n, p=law)
        threshold = (
            split_conformal(scores, alpha=0.1) if rule == "marginal" else bayesian_quadrature(scores, alpha=0.1, delta=0.1)
        )
        total += cumulative[int(threshold.value)]
    assert total / runs > threshold.expected_coverage - 3.1 * 0.3 / math.sqrt(runs)  # coverage is 0.4 to 1: sd at most 0.3


@pytest.mark.parametrize(("n", "alpha", "delta"), [(40, 0.1, 0.1), (100, 0.2, 0.05), (59, 0.05, 0.05)])
def test_closed_form_equals_dirichlet_sampling(n, alpha, delta):
    """With e uncovered rows L+ = sum of e + 1 Dirichlet weights; sampled P(L+ <= alpha) within 4 standard errors of its law.

    The deployed e passes and e + 1 does not, by the exact law, and sampling agrees with that law at both.
    """
    rng, draws = np.random.default_rng(11), 20_000
    scores = rng.permutation(np.arange(1.0, n + 1))
    value = bayesian_quadrature(scores, alpha=alpha, delta=delta).value
    for cut, passes in ((value, True), (value - 1, False)):
        losses = np.append((scores > cut).astype(float), 1.0)  # the bound B = 1 joins as the (n + 1)-th loss
        sampled = np.mean(rng.dirichlet(np.ones(n + 1), size=draws) @ losses <= alpha)
        e = int(losses.sum()) - 1
        law = beta(e + 1, n - e).cdf(alpha)
        assert bool(law >= 1 - delta) == passes
        assert abs(sampled - law) <= 4 * math.sqrt(law * (1 - law) / draws)


# ---- too few rows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 8])
def test_too_few_rows_give_infinity_and_name_the_smallest_n(n):
    rows = "1 calibration row is" if n == 1 else f"{n} calibration rows are"
    with pytest.warns(InfeasibleLevelWarning, match=rf"^{rows} too few.*At least 9 rows are") as caught:
        threshold = split_conformal(np.zeros(n), alpha=0.1)
    assert (threshold.value, threshold.rank, threshold.guarantee) == (math.inf, n + 1, "marginal")
    assert caught[0].filename == __file__  # the warning points at the caller
    with pytest.warns(InfeasibleLevelWarning, match="At least 29 rows") as caught:
        threshold = bayesian_quadrature(np.zeros(n), alpha=0.1, delta=0.05)
    assert (threshold.value, threshold.rank) == (math.inf, n + 1)
    assert caught[0].filename == __file__


def test_the_smallest_n_is_enough_and_finite():
    assert split_conformal(np.arange(9.0), alpha=0.1).value == 8.0
    assert bayesian_quadrature(np.arange(29.0), alpha=0.1, delta=0.05).value == 28.0
    with pytest.warns(InfeasibleLevelWarning):
        assert bayesian_quadrature(np.arange(28.0), alpha=0.1, delta=0.05).value == math.inf


# ---- what is refused and what is legal -------------------------------------------------------------------------------


def test_nan_is_refused_with_its_row(name):
    scores = np.arange(50.0)
    scores[[7, 9]] = np.nan
    with pytest.raises(NonFiniteScoreError, match=r"2 of 50 scores are NaN \(first: row 7\)"):
        RULES[name](scores)


@pytest.mark.parametrize(
    "scores", [np.zeros((5, 2)), np.float64(3), np.array(["a", "b"]), np.array([1j]), np.array([None])], ids=repr
)
def test_what_is_not_a_column_of_numbers_is_refused(name, scores):
    with pytest.raises(ValueError, match="scores must be"):
        RULES[name](scores)


def test_infinite_scores_are_legal_and_sort_last(name):
    scores = np.arange(40.0)
    rank = RULES[name](scores).rank
    scores[rank:] = np.inf
    assert RULES[name](scores).value == rank - 1
    scores[rank - 1] = np.inf
    assert RULES[name](scores).value == np.inf
    assert RULES[name](np.full(40, -np.inf)).value == -np.inf


@pytest.mark.parametrize(
    "dtype", [np.int8, np.int64, np.uint16, np.bool_, np.float16, np.float32, np.float64, np.longdouble]
)
def test_every_real_dtype_keeps_its_values(name, dtype):
    scores = (np.arange(40) % 7).astype(dtype)
    assert RULES[name](scores).value == float(np.sort(scores)[RULES[name](scores).rank - 1])


def test_the_value_covers_the_score_it_was_made_of(name):
    """In the dtype of the scores, exactly rank of n distinct scores are at most the value."""
    for dtype in (np.float32, np.float64, np.longdouble):
        for seed in range(8):  # half of the longdoubles would round down
            scores = np.random.default_rng(seed).normal(size=80).astype(dtype) + dtype(1) / dtype(3)
            threshold = RULES[name](scores)
            assert np.sum(scores <= threshold.value) == threshold.rank


def test_lists_and_strided_and_read_only_arrays(name):
    scores = np.random.default_rng(2).normal(size=(60, 3))
    column = scores[:, 1]
    expected = RULES[name](column.copy())
    assert RULES[name](column) == expected
    assert RULES[name](column[::-1]) == expected
    assert RULES[name](column.tolist()) == expected
    frozen = column.copy()
    frozen.setflags(write=False)
    before = frozen.copy()
    assert RULES[name](frozen) == expected
    np.testing.assert_array_equal(frozen, before)
    mutable = column.copy()
    RULES[name](mutable)
    np.testing.assert_array_equal(mutable, before)  # partitioning must not reorder the caller's rows


scores_with_ties = hnp.arrays(
    st.sampled_from([np.float32, np.float64]),
    st.integers(10, 60),
    elements=st.one_of(st.sampled_from([0.0, 1.0, -1.0, math.inf, -math.inf]), st.floats(width=32, allow_nan=False)),
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(scores=scores_with_ties, seed=st.integers(0, 2**32 - 1))
def test_order_of_rows_is_irrelevant_and_the_rank_is_right_under_ties(scores, seed):
    for rule in RULES.values():
        threshold = rule(scores)
        assert rule(np.random.default_rng(seed).permutation(scores)) == threshold
        assert np.sum(scores < threshold.value) < threshold.rank <= np.sum(scores <= threshold.value)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(scores=hnp.arrays(np.float64, st.integers(10, 40), elements=st.floats(-1e6, 1e6)))
def test_an_increasing_map_of_scores_maps_the_threshold(scores):
    for rule in RULES.values():
        assert rule(np.arctan(scores)).value == np.arctan(rule(scores).value)
        assert rule(scores.astype(np.float32)).value == np.float32(rule(scores).value)


def test_bad_levels_are_named():
    with pytest.raises(ValueError, match=r"alpha must be a number strictly between 0 and 1, got 1\.5"):
        split_conformal(np.arange(5.0), alpha=1.5)
    with pytest.raises(ValueError, match="delta must be a number strictly between 0 and 1, got 0"):
        bayesian_quadrature(np.arange(50.0), alpha=0.1, delta=0)


def test_a_threshold_is_a_float_and_not_nan():
    whole = Threshold(1, rank=2, n=3, guarantee="none", alpha=0.5)
    assert type(whole.value) is float
    assert APS().sets(ClassProbabilities([[0.5, 0.5]]), whole).to_lists() == [[0, 1]]
    with pytest.raises(ValueError, match="not NaN"):
        Threshold(float("nan"), rank=2, n=3, guarantee="none", alpha=0.5)
