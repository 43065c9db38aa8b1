"""Each calculator against exact enumeration, simulation, or another exact method."""

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import beta, betabinom, binom, binomtest, norm

from dco import theory
from dco.foundations.ranks import conformal_rank, pac_rank


def test_coverage_law_of_an_infinite_threshold_is_a_point_mass_at_one():
    for law in (theory.coverage_law(8, alpha=0.1), theory.coverage_law(28, alpha=0.1, delta=0.05)):
        assert (law.mean(), law.std()) == (1.0, 0.0)
        assert law.cdf(0.999) == 0.0
        assert law.cdf(1.0) == 1.0
        assert list(law.ppf([0.05, 0.95])) == [1.0, 1.0]
        assert set(law.rvs(size=5, random_state=0)) == {1.0}
    hits = theory.hits_law(8, 20, alpha=0.1)
    assert (hits.mean(), hits.cdf(19), hits.cdf(20)) == (20.0, 0.0, 1.0)
    assert [
        theory.coverage_consistency(hits, 20, rank=9, n_cal=8).p_value for hits in (19, 20)
    ] == [0.0, 1.0]


def enumerated_hits(n: int, n_test: int, rank: int) -> list[Fraction]:
    """P(hits = h) by looking at every way in which calibration and test scores can interleave."""
    counts = [0] * (n_test + 1)
    # the places of the calibration scores in the pooled order
    for places in combinations(range(n + n_test), n):
        cut = places[rank - 1]
        counts[cut - (rank - 1)] += 1
    return [Fraction(c, math.comb(n + n_test, n)) for c in counts]


@pytest.mark.parametrize(("n", "n_test"), [(4, 3), (9, 5), (6, 8)])
def test_law_of_hits_equals_enumeration(n, n_test):
    for rank in range(1, n + 1):
        exact = enumerated_hits(n, n_test, rank)
        for h in range(n_test + 1):
            assert theory.hits_cdf(h, n_test, rank=rank, n_cal=n) == pytest.approx(
                float(sum(exact[: h + 1])), abs=1e-13
            )
    alpha = Fraction(1, n)
    exact = enumerated_hits(n, n_test, conformal_rank(n, alpha=alpha))
    pmf = theory.hits_law(n, n_test, alpha=alpha).pmf(np.arange(n_test + 1))
    np.testing.assert_allclose(pmf, [float(p) for p in exact], atol=1e-13)


def test_law_of_hits_equals_scipys_beta_binomial():
    for n, n_test, rank in [
        (99, 200, 90),
        (225, 111, 181),
        (1000, 50, 1),
        (50, 1000, 50),
        (3000, 4000, 2401),
    ]:
        places = np.unique(np.linspace(-1, n_test, 23).astype(int))
        ours = [theory.hits_cdf(h, n_test, rank=rank, n_cal=n) for h in places]
        np.testing.assert_allclose(
            ours, betabinom(n_test, rank, n + 1 - rank).cdf(places), atol=1e-10
        )
    assert [theory.hits_cdf(h, 10, rank=6, n_cal=5) for h in (9, 10)] == [0.0, 1.0]


def test_sd_of_coverage_has_its_usual_form():
    """sqrt(alpha (1 - alpha) (1 / N + 1 / (n + 2))), exact where k / (n + 1) is 1 - alpha."""
    for n, n_test in [(99, 500), (999, 50)]:
        sd = theory.hits_law(n, n_test, alpha=0.1).std() / n_test
        assert sd == pytest.approx(
            math.sqrt(0.09 * (1 / n_test + 1 / (n + 2) * (1 - 1 / n_test))), rel=1e-9
        )
        assert sd == pytest.approx(math.sqrt(0.09 * (1 / n_test + 1 / (n + 2))), rel=0.01)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("n", "n_test", "rank"), [(19, 30, 18), (99, 100, 90), (225, 50, 181)])
def test_consistency_p_value_is_valid_and_not_idle(n, n_test, rank, tied):
    """Under the law P(p <= u) <= u exactly, by summing over all outcomes; and rejection happens
    about as often as it may.
    """
    p = [
        theory.coverage_consistency(h, n_test, rank=rank, n_cal=n, tied=tied).p_value
        for h in range(n_test + 1)
    ]
    law = betabinom(n_test, rank, n + 1 - rank).pmf(np.arange(n_test + 1))
    for u in (0.01, 0.05, 0.1, 0.5):
        assert law[np.array(p) <= u].sum() <= u + 1e-9
    assert law[np.array(p) <= 0.1].sum() > 0.02


@pytest.mark.parametrize(("n", "rank", "values", "n_test"), [(3, 3, 12, 60), (4, 3, 9, 60)])
def test_consistency_p_value_is_valid_for_scores_on_few_values(n, rank, values, n_test):
    """P(p <= u) <= u for every u, over all draws of equal atoms; draws are called tied only if the
    next score is equal.
    """
    hits = np.arange(n_test + 1)
    draws = Counter()
    for draw in product(range(1, values + 1), repeat=n):
        ordered = [*sorted(draw), math.inf]
        draws[ordered[rank - 1], ordered[rank] == ordered[rank - 1]] += 1
    p_values = {
        tied: [
            theory.coverage_consistency(h, n_test, rank=rank, n_cal=n, tied=tied).p_value
            for h in hits
        ]
        for tied in (False, True)
    }
    p = np.concatenate([p_values[tied] for _, tied in draws])
    chances = np.concatenate(
        [
            count / values**n * binom.pmf(hits, n_test, at / values)
            for (at, _), count in draws.items()
        ]
    )
    for u in np.unique(p):
        assert chances[p <= u].sum() <= u + 1e-12
    assert p.min() < 0.05


@pytest.mark.parametrize(("n", "rank"), [(19, 19), (19, 18), (50, 49)])
def test_an_atom_that_was_drawn_once_makes_no_verdict(n, rank):
    """The threshold is the only score at an atom up to b, and coverage is b: this with p <= 0.05 is
    rarer than 0.025.
    """
    n_test = 2000
    hits = np.arange(1900, n_test + 1)
    p = np.array([theory.coverage_consistency(h, n_test, rank=rank, n_cal=n).p_value for h in hits])
    for b in np.linspace(0.95, 1.0, 101):
        mass = b / rank  # the likeliest to be drawn once, by the row of this rank
        alone = math.comb(n, rank) * rank * (b - mass) ** (rank - 1) * mass * (1 - b) ** (n - rank)
        assert alone * binom.pmf(hits, n_test, b)[p <= 0.05].sum() <= 0.025


UNKNOWN = "the assumption fails: {} that the fit does not know. Coverage of the other 1000 is "


@pytest.mark.parametrize(
    ("hits", "options", "least", "most", "verdict"),
    [
        (700, {}, 0.0, 1e-9, "lower than chance explains"),
        (999, {}, 0.0, 1e-9, "higher than chance explains"),
        (905, {}, 0.05, 1.0, "consistent with the guarantee"),
        (870, {}, 0.01, 0.05, "lower than usual, and still within chance"),
        # ties and labels that the fit does not know excuse high coverage, and never low
        (1000, {"tied": True}, 1.0, 1.1, "not below what the guarantee allows"),
        (800, {"tied": True}, 0.0, 1e-9, "lower than chance explains"),
        (
            999,
            {"unknown_labels": 1},
            1.0,
            1.1,
            UNKNOWN.format("1 row has a label") + "not below what the guarantee allows",
        ),
        (
            800,
            {"unknown_labels": 2},
            0.0,
            1e-9,
            UNKNOWN.format("2 rows have labels") + "lower than chance explains",
        ),
    ],
)
def test_consistency_sees_too_low_and_too_high(hits, options, least, most, verdict):
    found = theory.coverage_consistency(hits, 1000, rank=900, n_cal=999, **options)
    lower = betabinom(1000, 900, 100).cdf(hits)
    assert least <= found.p_value < most
    assert found.p_value == pytest.approx(min(1, 2 * lower), rel=1e-8) or (
        hits > 900 and not options
    )
    assert found.consistent == (least > 0 and "unknown_labels" not in options)
    assert found.verdict.startswith(verdict)
    assert (found.coverage, found.expected_coverage) == (hits / 1000, 0.9)
    assert (found.high == 1.0) == bool(options)


@pytest.mark.parametrize(
    ("n", "rank"), [(1, 1), (9, 9), (100, 91), (100, 10), (1000, 501), (1000, 990), (5000, 4501)]
)
def test_ranks_near_the_threshold_are_the_fewest_that_hold_that_of_other_rows(n, rank):
    """Scores below the threshold of others are Beta-binomial: each side is missed by at most 5e-7,
    with one less by more.
    """
    first, last = theory.ranks_near_threshold(rank, n_cal=n)
    below = betabinom(n, rank, n + 1 - rank).pmf(np.arange(n + 1))
    assert 1 <= first <= rank <= last <= n
    assert first == 1 or below[:first].sum() <= 5e-7 < below[: first + 1].sum()
    assert last == n or below[last:].sum() <= 5e-7 < below[last - 1 :].sum()
    if n == 9:
        assert (first, last) == (1, 9)


@pytest.mark.parametrize(("n", "n_test", "rank"), [(99, 100, 90), (225, 111, 181), (500, 20, 480)])
def test_expected_range_is_the_five_and_ninety_five_per_cent_points(n, n_test, rank):
    result = theory.coverage_consistency(0, n_test, rank=rank, n_cal=n)
    law = betabinom(n_test, rank, n + 1 - rank)
    assert [round(end * n_test) for end in (result.low, result.high)] == list(law.ppf([0.05, 0.95]))


def test_consistency_of_millions_of_rows():
    result = theory.coverage_consistency(900_000, 1_000_000, rank=90_000, n_cal=99_999)
    sd = math.sqrt(0.09 * (1e-6 + 1 / 100_001))
    assert (result.low, result.high) == pytest.approx(
        (0.9 - 1.645 * sd, 0.9 + 1.645 * sd), abs=0.02 * sd
    )
    assert result.p_value > 0.9


@pytest.mark.parametrize(
    ("call", "given", "options", "message"),
    [
        (theory.coverage_consistency, (5, 4), {"rank": 3, "n_cal": 8}, "hits = 5 of n_test = 4"),
        (theory.coverage_consistency, (0, 0), {"rank": 3, "n_cal": 8}, "n_test at least 1"),
        (theory.coverage_consistency, (1, 4), {"rank": 10, "n_cal": 8}, "between 1 and n_cal"),
        (theory.simultaneous_slack, (100,), {"delta": 0.6}, r"at most 0\.5"),
        *(
            (theory.calibration_size, (), {"alpha": 0.1, **wish}, "give either spread")
            for wish in ({}, {"spread": 0.01, "delta": 0.1}, {"shortfall": 0.1}, {"delta": 0.1})
        ),
        (
            theory.calibration_size,
            (),
            {"alpha": 0.1, "spread": -1},
            "spread must be a positive number, got -1",
        ),
        (
            theory.calibration_size,
            (),
            {"alpha": 0.9, "shortfall": 0.2, "delta": 0.1},
            "shortfall must be below",
        ),
        (theory.calibration_size, (), {"alpha": 0.1, "spread": 1e-6}, "calibration rows, beyond"),
        # above 1/2 the rank lies below n (1 - alpha), and the bound that ends the search does not
        # apply
        (
            theory.calibration_size,
            (),
            {"alpha": 0.1, "shortfall": 0.01, "delta": 0.05, "pac_delta": 0.9},
            "at most 1/2",
        ),
    ],
)
def test_what_is_wrong_is_named(call, given, options, message):
    with pytest.raises(ValueError, match=message):
        call(*given, **options)


@pytest.mark.parametrize("pac_delta", [None, 0.5, 0.6, 0.9, 0.99])
def test_simultaneous_slack_holds_for_all_levels_at_once(pac_delta):
    """The largest shortfall of uniform scores over all levels k / n, or over 19 levels with PAC
    ranks.

    It passes the slack at most a share delta of the time, and not far less where all levels
    count.
    """
    rng, n, runs, levels = np.random.default_rng(6), 500, 4000, np.arange(1, 20) / 20
    ranks, promised = np.arange(1, n + 1), np.arange(1, n + 1) / n
    if pac_delta is not None:
        ranks, promised = (
            np.array([pac_rank(n, alpha=float(a), delta=pac_delta) for a in levels]),
            1 - levels,
        )
    shortfall = np.max(
        promised - np.sort(rng.uniform(size=(runs, n)), axis=1)[:, ranks - 1], axis=1
    )
    for delta in (0.5, 0.1, 0.05, 0.01):
        failures = int(
            np.sum(shortfall > theory.simultaneous_slack(n, delta=delta, pac_delta=pac_delta))
        )
        assert binomtest(failures, runs, delta, alternative="greater").pvalue > 0.001
        # 19 levels are fewer than all
        assert failures > (0.5 if pac_delta is None else 0.1) * delta * runs


def test_simultaneous_slack_adds_what_pac_ranks_lack():
    """Brute force over 1,000 levels; for deltas up to 1/2 ranks lack nothing and the slack is the
    plain one.
    """
    levels = np.linspace(0, 1, 1002)[1:-1]
    for n in (1, 2, 7, 40):
        plain = theory.simultaneous_slack(n, delta=0.05)
        for pac_delta in (0.3, 0.5, 0.51, 0.9, 0.99):
            ranks = np.array([pac_rank(n, alpha=float(alpha), delta=pac_delta) for alpha in levels])
            lacking = max(0.0, np.max(1 - levels - ranks / n))
            found = theory.simultaneous_slack(n, delta=0.05, pac_delta=pac_delta) - plain
            assert lacking - 1e-12 <= found <= lacking + 1e-3
            assert found == 0 or pac_delta > 0.5
    # Above 2^14 ranks a bound takes the place of the maximum: never below it, and close.
    n, ranks = 50_000, np.arange(1, 50_001)
    lacking = np.max(beta.ppf(0.9, ranks, n + 1 - ranks) - ranks / n)
    found = theory.simultaneous_slack(n, delta=0.05, pac_delta=0.9) - theory.simultaneous_slack(
        n, delta=0.05
    )
    assert lacking <= found <= lacking + 4 / n


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2])
def test_pac_gap_by_ranks_and_by_its_normal_form(alpha):
    for n in (1000, 3000, 20_000, 10**6):
        gap = theory.pac_gap(n, alpha=alpha, delta=0.05)
        pac, marginal = (
            theory.coverage_law(n, alpha=alpha, delta=0.05),
            theory.coverage_law(n, alpha=alpha),
        )
        assert gap.exact == pytest.approx(pac.mean() - marginal.mean(), abs=1e-12)
        assert gap.approximate == pytest.approx(
            norm.ppf(0.95) * math.sqrt(alpha * (1 - alpha) / n), rel=1e-12
        )
        assert abs(gap.exact - gap.approximate) < 3 / n  # the two differ by a rank or two


def scan(holds, least: int, limit: int) -> tuple[int, int]:
    """First n with the property, and the n from which it always holds, one n after the other."""
    good = [n for n in range(least, limit) if holds(n)]
    safe = limit
    while safe - 1 >= least and holds(safe - 1):
        safe -= 1
    return good[0], safe


ALPHAS = [Fraction(1, 5), Fraction(1, 10), Fraction(1, 20), Fraction(3, 20), Fraction(7, 10)]


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize(
    "wish", [{"spread": 0.02}, {"shortfall": 0.02, "delta": 0.1}], ids=lambda wish: next(iter(wish))
)
def test_calibration_size_by_a_plain_scan(alpha, wish):
    """sd(coverage) <= 0.02, or P(coverage < 1 - alpha - 0.02) <= 0.1: by the binomial law, which
    the code does not use.
    """

    def holds(n: int) -> bool:
        k = math.ceil((n + 1) * (1 - alpha))
        if "spread" in wish:
            return Fraction(k * (n + 1 - k), (n + 1) ** 2 * (n + 2)) <= Fraction(2, 100) ** 2
        return binom.sf(k - 1, n, float(1 - alpha) - 0.02) <= 0.1

    size = theory.calibration_size(alpha=alpha, **wish)
    assert (size.first, size.safe_from) == scan(holds, math.ceil((1 - alpha) / alpha), 1500)
    assert size.safe_from <= size.recommended < size.safe_from + math.ceil(1 / alpha)
    assert holds(size.recommended)
    if alpha.numerator == 1:
        assert (size.recommended + 1) % (1 / alpha) == 0
    if "shortfall" in wish:
        assert size.first < size.safe_from  # a sawtooth, which bisection would miss
        assert size.closed_form is None
    elif alpha <= Fraction(1, 2):
        assert (
            size.safe_from
            <= size.closed_form
            == math.ceil(alpha * (1 - alpha) / Fraction(2, 100) ** 2) - 2
        )


def test_calibration_size_for_a_spread_has_the_known_values():
    sizes = [theory.calibration_size(alpha=a, spread=0.01) for a in (0.2, 0.1, 0.05)]
    assert [s.closed_form for s in sizes] == [1598, 898, 473]
    assert [s.safe_from for s in sizes] == [1597, 894, 467]
    assert [s.recommended + 1 for s in sizes] == [1600, 900, 480]  # multiples of 1 / alpha
    least = [
        theory.calibration_size(alpha=alpha, spread=spread)
        for alpha, spread in ((0.001, 0.01), (0.5, 0.6))
    ]
    assert [s.closed_form for s in least] == [999, 1]  # a finite threshold at least
    pac = theory.calibration_size(alpha=0.1, spread=0.02, pac_delta=0.05)
    found = scan(lambda n: theory.coverage_law(n, alpha=0.1, delta=0.05).std() <= 0.02, 29, 300)
    assert (pac.first, pac.safe_from) == found


def test_a_wasteful_size_is_passed_over():
    """Where 1 / alpha is not whole, the best size of the window is taken: least k / (n + 1)."""
    best = theory.least_wasteful_size(50, alpha=0.15)
    excess = {n: Fraction(conformal_rank(n, alpha=0.15), n + 1) for n in range(50, 57)}
    assert excess[best] == min(excess.values())
    assert theory.least_wasteful_size(57, alpha=0.1, downwards=True) == 49
    assert theory.least_wasteful_size(50, alpha=math.pi / 10) in range(50, 54)


def test_pac_and_marginal_thresholds_agree_in_the_limit():
    """Proposition 3.3 for uniform scores: both thresholds come within 3 / sqrt(n) of the population
    quantile.
    """
    for n in (10**3, 10**5, 10**7):
        for delta in (None, 0.05):
            law = theory.coverage_law(n, alpha=0.1, delta=delta)
            low, high = law.ppf([0.001, 0.999])
            assert 0.9 - 3 / math.sqrt(n) < low < high < 0.9 + 3 / math.sqrt(n)
