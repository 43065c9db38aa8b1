"""Each calculator against exact enumeration, simulation, or another exact method."""

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import beta, betabinom, binom, binomtest, norm

from dco import conformal_rank, pac_rank, theory


def hits_distribution(n_test: int, *, rank: int, n_cal: int):
    """The law of covered test rows by SciPy: Beta-binomial."""
    return betabinom(n_test, rank, n_cal + 1 - rank)


def p_values(hits, n_test: int, *, rank: int, n_cal: int, tied: bool = False) -> np.ndarray:
    """P-values of the test of coverage for each number of hits."""
    return np.array(
        [
            theory.coverage_consistency(h, n_test, rank=rank, n_cal=n_cal, tied=tied).p_value
            for h in hits
        ]
    )


# ---------------------------------------------------------------------------- an infinite threshold


@pytest.mark.parametrize(
    ("n", "delta"), [(8, None), (28, 0.05)], ids=["marginal threshold", "PAC threshold"]
)
def test_coverage_of_an_infinite_threshold_is_one(n, delta):
    law = theory.coverage_law(n, alpha=0.1, delta=delta)
    assert law.mean() == 1.0
    assert law.std() == 0.0
    assert law.cdf(0.999) == 0.0
    assert law.cdf(1.0) == 1.0
    assert list(law.ppf([0.05, 0.95])) == [1.0, 1.0]
    assert set(law.rvs(size=5, random_state=0)) == {1.0}


def test_an_infinite_threshold_covers_every_test_row():
    hits = theory.hits_law(8, 20, alpha=0.1)
    assert hits.mean() == 20.0
    assert hits.cdf(19) == 0.0
    assert hits.cdf(20) == 1.0


@pytest.mark.parametrize(("hits", "p_value"), [(19, 0.0), (20, 1.0)])
def test_a_miss_of_an_infinite_threshold_is_impossible(hits, p_value):
    assert theory.coverage_consistency(hits, 20, rank=9, n_cal=8).p_value == p_value


# -------------------------------------------------------------------------------------- law of hits


def enumerated_hits(n: int, n_test: int, rank: int) -> list[Fraction]:
    """P(hits = h) by looking at every way in which calibration and test scores can interleave."""
    counts = [0] * (n_test + 1)
    for calibration_positions in combinations(range(n + n_test), n):  # in the pooled order
        cut = calibration_positions[rank - 1]
        counts[cut - (rank - 1)] += 1
    return [Fraction(count, math.comb(n + n_test, n)) for count in counts]


@pytest.mark.parametrize(
    ("n", "n_test", "rank"),
    [(n, n_test, rank) for n, n_test in [(4, 3), (9, 5), (6, 8)] for rank in range(1, n + 1)],
)
def test_the_law_of_hits_of_a_rank_equals_enumeration(n, n_test, rank):
    hits = range(n_test + 1)
    probabilities = [theory.hits_cdf(h, n_test, rank=rank, n_cal=n) for h in hits]
    exact = np.cumsum(enumerated_hits(n, n_test, rank)).astype(float)
    np.testing.assert_allclose(probabilities, exact, rtol=1e-6, atol=1e-13)


@pytest.mark.parametrize(("n", "n_test"), [(4, 3), (9, 5), (6, 8)])
def test_the_law_of_hits_of_a_level_equals_enumeration(n, n_test):
    alpha = Fraction(1, n)
    probabilities = theory.hits_law(n, n_test, alpha=alpha).pmf(np.arange(n_test + 1))
    exact = enumerated_hits(n, n_test, conformal_rank(n, alpha=alpha))
    np.testing.assert_allclose(probabilities, np.array(exact, dtype=float), atol=1e-13)


@pytest.mark.parametrize(
    ("n", "n_test", "rank"),
    [(99, 200, 90), (225, 111, 181), (1000, 50, 1), (50, 1000, 50), (3000, 4000, 2401)],
)
def test_the_law_of_hits_equals_scipys_beta_binomial(n, n_test, rank):
    hits = np.unique(np.linspace(-1, n_test, 23).astype(int))
    probabilities = [theory.hits_cdf(h, n_test, rank=rank, n_cal=n) for h in hits]
    exact = hits_distribution(n_test, rank=rank, n_cal=n).cdf(hits)
    np.testing.assert_allclose(probabilities, exact, atol=1e-10)


@pytest.mark.parametrize(("hits", "probability"), [(9, 0.0), (10, 1.0)])
def test_a_rank_beyond_the_rows_covers_every_test_row(hits, probability):
    assert theory.hits_cdf(hits, 10, rank=6, n_cal=5) == probability


sizes = pytest.mark.parametrize(("n", "n_test"), [(99, 500), (999, 50)])


def sd_of_coverage(n: int, n_test: int) -> float:
    return theory.hits_law(n, n_test, alpha=0.1).std() / n_test


@sizes
def test_the_sd_of_coverage_has_its_exact_form(n, n_test):
    """Exact where k / (n + 1) is 1 - alpha."""
    exact = math.sqrt(0.09 * (1 / n_test + 1 / (n + 2) * (1 - 1 / n_test)))
    assert sd_of_coverage(n, n_test) == pytest.approx(exact, rel=1e-9)


@sizes
def test_the_sd_of_coverage_is_nearly_its_usual_form(n, n_test):
    """sqrt(alpha (1 - alpha) (1 / N + 1 / (n + 2)))."""
    usual = math.sqrt(0.09 * (1 / n_test + 1 / (n + 2)))
    assert sd_of_coverage(n, n_test) == pytest.approx(usual, rel=0.01)


# ----------------------------------------------------------------------------- the test of coverage

ranks_to_test = pytest.mark.parametrize(
    ("n", "n_test", "rank"), [(19, 30, 18), (99, 100, 90), (225, 50, 181)]
)
tied_or_not = pytest.mark.parametrize("tied", [False, True], ids=["no ties", "tied"])


@tied_or_not
@ranks_to_test
@pytest.mark.parametrize("u", [0.01, 0.05, 0.1, 0.5])
def test_the_p_value_is_valid(n, n_test, rank, tied, u):
    """Under the law P(p <= u) <= u exactly, by summing over all outcomes."""
    hits = np.arange(n_test + 1)
    p = p_values(hits, n_test, rank=rank, n_cal=n, tied=tied)
    chances = hits_distribution(n_test, rank=rank, n_cal=n).pmf(hits)
    assert chances[p <= u].sum() <= u + 1e-9


@tied_or_not
@ranks_to_test
def test_the_p_value_rejects_about_as_often_as_it_may(n, n_test, rank, tied):
    hits = np.arange(n_test + 1)
    p = p_values(hits, n_test, rank=rank, n_cal=n, tied=tied)
    chances = hits_distribution(n_test, rank=rank, n_cal=n).pmf(hits)
    assert chances[p <= 0.1].sum() > 0.02


@pytest.mark.parametrize(("n", "n_values"), [(3, 12), (4, 9)])
def test_the_p_value_is_valid_for_scores_on_few_values(n, n_values):
    """P(p <= u) <= u for every u, over all draws of equal atoms.

    Draws are called tied only if the next score is equal.
    """
    rank = 3
    n_test = 60
    hits = np.arange(n_test + 1)
    p_by_tie = {
        tied: p_values(hits, n_test, rank=rank, n_cal=n, tied=tied) for tied in (False, True)
    }

    # how many draws have their threshold at a value, and whether the next score ties with it
    draws: Counter[tuple[int, bool]] = Counter()
    for draw in product(range(1, n_values + 1), repeat=n):
        ordered = [*sorted(draw), math.inf]
        draws[ordered[rank - 1], ordered[rank] == ordered[rank - 1]] += 1

    p = np.concatenate([p_by_tie[tied] for _, tied in draws])
    chances = np.concatenate(
        [
            count / n_values**n * binom.pmf(hits, n_test, value / n_values)
            for (value, _), count in draws.items()
        ]
    )
    rejected = np.array([chances[p <= u].sum() for u in np.unique(p)])
    assert (rejected <= np.unique(p) + 1e-12).all()
    assert p.min() < 0.05


@pytest.mark.parametrize(("n", "rank"), [(19, 19), (19, 18), (50, 49)])
def test_an_atom_that_was_drawn_once_makes_no_verdict(n, rank):
    """The threshold is the only score at an atom up to b, and coverage is b: this with p <= 0.05 is
    rarer than 0.025.
    """
    n_test = 2000
    hits = np.arange(1900, n_test + 1)
    p = p_values(hits, n_test, rank=rank, n_cal=n)

    b = np.linspace(0.95, 1.0, 101)
    mass = b / rank  # the likeliest to be drawn once, by the row of this rank
    alone = math.comb(n, rank) * rank * (b - mass) ** (rank - 1) * mass * (1 - b) ** (n - rank)
    rejected = binom.pmf(hits[p <= 0.05, None], n_test, b).sum(axis=0)

    assert (alone * rejected).max() <= 0.025


def consistency(hits: int, **options) -> theory.Consistency:
    """Test hits among 1000 rows against a promise of 0.9."""
    return theory.coverage_consistency(hits, 1000, rank=900, n_cal=999, **options)


def lower_tail(hits: int) -> float:
    return hits_distribution(1000, rank=900, n_cal=999).cdf(hits)


ONE_UNKNOWN = (
    "the assumption fails: 1 row has a label that the fit does not know. "
    "Coverage of the other 1000 is "
)
TWO_UNKNOWN = (
    "the assumption fails: 2 rows have labels that the fit does not know. "
    "Coverage of the other 1000 is "
)
# ties and labels that the fit does not know excuse high coverage, and never low
ONE_SIDED = [
    pytest.param(1000, {"tied": True}, id="high, tied"),
    pytest.param(800, {"tied": True}, id="low, tied"),
    pytest.param(999, {"unknown_labels": 1}, id="high, unknown label"),
    pytest.param(800, {"unknown_labels": 2}, id="low, unknown labels"),
]


@pytest.mark.parametrize(
    ("hits", "options", "verdict"),
    [
        (700, {}, "lower than chance explains"),
        (870, {}, "lower than usual, and still within chance"),
        (905, {}, "consistent with the guarantee"),
        (999, {}, "higher than chance explains"),
        (1000, {"tied": True}, "not below what the guarantee allows"),
        (800, {"tied": True}, "lower than chance explains"),
        (999, {"unknown_labels": 1}, ONE_UNKNOWN + "not below what the guarantee allows"),
        (800, {"unknown_labels": 2}, TWO_UNKNOWN + "lower than chance explains"),
    ],
)
def test_the_verdict_says_whether_coverage_is_too_low_or_too_high(hits, options, verdict):
    assert consistency(hits, **options).verdict.startswith(verdict)


@pytest.mark.parametrize(
    ("hits", "options", "is_consistent"),
    [
        (700, {}, False),
        (870, {}, True),
        (905, {}, True),
        (999, {}, False),
        (1000, {"tied": True}, True),
        (800, {"tied": True}, False),
        (999, {"unknown_labels": 1}, False),
        (800, {"unknown_labels": 2}, False),
    ],
)
def test_coverage_beyond_chance_and_unknown_labels_are_inconsistent(hits, options, is_consistent):
    assert consistency(hits, **options).consistent == is_consistent


@pytest.mark.parametrize(("hits", "options"), [(700, {}), (870, {}), *ONE_SIDED])
def test_the_p_value_of_low_coverage_is_twice_its_lower_tail(hits, options):
    expected = min(1.0, 2 * lower_tail(hits))
    assert consistency(hits, **options).p_value == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("hits", "lowest", "highest"),
    [(700, 0.0, 1e-9), (870, 0.01, 0.05), (905, 0.05, 1.0), (999, 0.0, 1e-9)],
)
def test_the_p_value_is_small_for_coverage_too_low_and_too_high(hits, lowest, highest):
    assert lowest <= consistency(hits).p_value < highest


@pytest.mark.parametrize(("hits", "options"), ONE_SIDED)
def test_high_coverage_is_never_too_high_with_ties_or_unknown_labels(hits, options):
    assert consistency(hits, **options).high == 1.0


def test_high_coverage_may_be_too_high_without_ties():
    assert consistency(905).high < 1.0


def test_coverage_is_stated_beside_what_was_expected():
    result = consistency(870)
    assert result.coverage == 0.87
    assert result.expected_coverage == 0.9


@pytest.mark.parametrize(("n", "n_test", "rank"), [(99, 100, 90), (225, 111, 181), (500, 20, 480)])
def test_the_expected_range_is_the_five_and_ninety_five_per_cent_points(n, n_test, rank):
    result = theory.coverage_consistency(0, n_test, rank=rank, n_cal=n)
    low, high = hits_distribution(n_test, rank=rank, n_cal=n).ppf([0.05, 0.95])
    assert round(result.low * n_test) == low
    assert round(result.high * n_test) == high


def test_consistency_of_millions_of_rows():
    sd = math.sqrt(0.09 * (1e-6 + 1 / 100_001))
    result = theory.coverage_consistency(900_000, 1_000_000, rank=90_000, n_cal=99_999)
    assert result.low == pytest.approx(0.9 - 1.645 * sd, abs=0.02 * sd)
    assert result.high == pytest.approx(0.9 + 1.645 * sd, abs=0.02 * sd)
    assert result.p_value > 0.9


@pytest.mark.parametrize(
    ("hits", "n_test", "rank", "message"),
    [
        (5, 4, 3, "hits = 5 of n_test = 4"),
        (0, 0, 3, "n_test at least 1"),
        (1, 4, 10, "between 1 and n_cal"),
    ],
    ids=["more hits than rows", "no rows", "rank beyond the rows"],
)
def test_impossible_counts_are_named(hits, n_test, rank, message):
    with pytest.raises(ValueError, match=message):
        theory.coverage_consistency(hits, n_test, rank=rank, n_cal=8)


# ------------------------------------------------------------------------- ranks near the threshold

near_threshold = pytest.mark.parametrize(
    ("n", "rank"), [(1, 1), (9, 9), (100, 91), (100, 10), (1000, 501), (1000, 990), (5000, 4501)]
)


@near_threshold
def test_the_threshold_of_other_rows_is_rarely_beside_the_ranks_near_it(n, rank):
    """How many scores lie below the threshold of others is Beta-binomial: each side is missed by at
    most 5e-7.
    """
    first, last = theory.ranks_near_threshold(rank, n_cal=n)
    n_below = hits_distribution(n, rank=rank, n_cal=n)
    assert 1 <= first <= rank <= last <= n
    assert first == 1 or n_below.cdf(first - 1) <= 5e-7
    assert last == n or n_below.sf(last - 1) <= 5e-7


@near_threshold
def test_the_ranks_near_a_threshold_are_the_fewest(n, rank):
    """With one rank less, a side is missed by more than 5e-7."""
    first, last = theory.ranks_near_threshold(rank, n_cal=n)
    n_below = hits_distribution(n, rank=rank, n_cal=n)
    assert n_below.cdf(first) > 5e-7
    assert n_below.sf(last - 2) > 5e-7


def test_all_of_nine_ranks_are_near_the_highest():
    assert theory.ranks_near_threshold(9, n_cal=9) == (1, 9)


# ------------------------------------------------------------------------------- all levels at once

N_SIMULATED = 500
N_RUNS = 4000
COMMON_LEVELS = np.arange(1, 20) / 20


@pytest.fixture(scope="module")
def sorted_uniforms():
    """Sorted scores of many calibration samples, a sample a row."""
    scores = np.random.default_rng(6).uniform(size=(N_RUNS, N_SIMULATED))
    return np.sort(scores, axis=1)


def count_failures(shortfall, **options) -> int:
    slack = theory.simultaneous_slack(N_SIMULATED, **options)
    return int(np.sum(shortfall > slack))


@pytest.mark.parametrize("delta", [0.5, 0.1, 0.05, 0.01])
def test_simultaneous_slack_holds_for_all_levels_at_once(sorted_uniforms, delta):
    """The largest shortfall of uniform scores over all levels k / n passes it a share delta of the
    time, tested at level 0.001, and not less than half of that.
    """
    promised = np.arange(1, N_SIMULATED + 1) / N_SIMULATED
    shortfall = np.max(promised - sorted_uniforms, axis=1)

    n_failures = count_failures(shortfall, delta=delta)

    assert binomtest(n_failures, N_RUNS, delta, alternative="greater").pvalue > 0.001
    assert n_failures > 0.5 * delta * N_RUNS


@pytest.mark.parametrize("pac_delta", [0.5, 0.6, 0.9, 0.99])
@pytest.mark.parametrize("delta", [0.5, 0.1, 0.05, 0.01])
def test_simultaneous_slack_holds_for_19_levels_with_pac_ranks(sorted_uniforms, delta, pac_delta):
    """As above; 19 levels are fewer than all, and a tenth of the failures is enough."""
    ranks = [pac_rank(N_SIMULATED, alpha=float(a), delta=pac_delta) for a in COMMON_LEVELS]
    thresholds = sorted_uniforms[:, np.array(ranks) - 1]
    shortfall = np.max((1 - COMMON_LEVELS) - thresholds, axis=1)

    n_failures = count_failures(shortfall, delta=delta, pac_delta=pac_delta)

    assert binomtest(n_failures, N_RUNS, delta, alternative="greater").pvalue > 0.001
    assert n_failures > 0.1 * delta * N_RUNS


def slack_added(n: int, pac_delta: float) -> float:
    """What PAC ranks add to the plain slack."""
    plain = theory.simultaneous_slack(n, delta=0.05)
    return theory.simultaneous_slack(n, delta=0.05, pac_delta=pac_delta) - plain


@pytest.mark.parametrize("n", [1, 2, 7, 40])
@pytest.mark.parametrize("pac_delta", [0.3, 0.5, 0.51, 0.9, 0.99])
def test_simultaneous_slack_adds_what_pac_ranks_lack(n, pac_delta):
    """Brute force over 1,000 levels."""
    levels = np.linspace(0, 1, 1002)[1:-1]
    ranks = np.array([pac_rank(n, alpha=float(alpha), delta=pac_delta) for alpha in levels])
    lacking = max(0.0, np.max(1 - levels - ranks / n))
    assert lacking - 1e-12 <= slack_added(n, pac_delta) <= lacking + 1e-3


@pytest.mark.parametrize("n", [1, 2, 7, 40])
@pytest.mark.parametrize("pac_delta", [0.3, 0.5])
def test_pac_ranks_lack_nothing_with_a_delta_up_to_one_half(n, pac_delta):
    assert slack_added(n, pac_delta) == 0


def test_above_16384_ranks_a_bound_takes_the_place_of_what_they_lack():
    """It is never below, and close."""
    n = 50_000
    ranks = np.arange(1, n + 1)
    lacking = np.max(beta.ppf(0.9, ranks, n + 1 - ranks) - ranks / n)
    assert lacking <= slack_added(n, 0.9) <= lacking + 4 / n


def test_a_delta_above_one_half_has_no_simultaneous_slack():
    with pytest.raises(ValueError, match=r"at most 0\.5"):
        theory.simultaneous_slack(100, delta=0.6)


# ------------------------------------------------------------------------------------------ PAC gap

gaps = pytest.mark.parametrize(
    ("n", "alpha"), [(n, a) for n in (1000, 3000, 20_000, 10**6) for a in (0.05, 0.1, 0.2)]
)


@gaps
def test_the_pac_gap_is_the_difference_of_mean_coverages(n, alpha):
    pac = theory.coverage_law(n, alpha=alpha, delta=0.05)
    marginal = theory.coverage_law(n, alpha=alpha)
    gap = theory.pac_gap(n, alpha=alpha, delta=0.05)
    assert gap.exact == pytest.approx(pac.mean() - marginal.mean(), abs=1e-12)


@gaps
def test_the_pac_gap_has_its_normal_form(n, alpha):
    normal_form = norm.ppf(0.95) * math.sqrt(alpha * (1 - alpha) / n)
    gap = theory.pac_gap(n, alpha=alpha, delta=0.05)
    assert gap.approximate == pytest.approx(normal_form, rel=1e-12)


@gaps
def test_the_pac_gap_and_its_normal_form_differ_by_a_rank_or_two(n, alpha):
    gap = theory.pac_gap(n, alpha=alpha, delta=0.05)
    assert abs(gap.exact - gap.approximate) < 3 / n


# -------------------------------------------------------------------------------- calibration sizes


def scan(holds: Callable[[int], bool], smallest: int, limit: int) -> tuple[int, int]:
    """First n with the property, and the n from which it always holds, one n after the other."""
    sizes_that_hold = {n for n in range(smallest, limit) if holds(n)}
    safe_from = limit
    while safe_from - 1 in sizes_that_hold:
        safe_from -= 1
    return min(sizes_that_hold), safe_from


def has_spread_at_most_2_percent(n: int, alpha: Fraction) -> bool:
    """sd(coverage) <= 0.02, exactly."""
    k = math.ceil((n + 1) * (1 - alpha))
    return Fraction(k * (n + 1 - k), (n + 1) ** 2 * (n + 2)) <= Fraction(2, 100) ** 2


def rarely_falls_short_by_2_percent(n: int, alpha: Fraction) -> bool:
    """P(coverage < 1 - alpha - 0.02) <= 0.1, by the binomial law, which the code does not use."""
    k = math.ceil((n + 1) * (1 - alpha))
    return binom.sf(k - 1, n, float(1 - alpha) - 0.02) <= 0.1


WISHES = {
    "spread": ({"spread": 0.02}, has_spread_at_most_2_percent),
    "shortfall": ({"shortfall": 0.02, "delta": 0.1}, rarely_falls_short_by_2_percent),
}
wishes = pytest.mark.parametrize(("wish", "holds"), WISHES.values(), ids=WISHES)

SMALL_ALPHAS = [Fraction(1, 5), Fraction(1, 10), Fraction(1, 20), Fraction(3, 20)]
alphas = pytest.mark.parametrize("alpha", [*SMALL_ALPHAS, Fraction(7, 10)], ids=str)


@alphas
@wishes
def test_calibration_sizes_are_those_of_a_plain_scan(alpha, wish, holds):
    size = theory.calibration_size(alpha=alpha, **wish)
    first, safe_from = scan(
        lambda n: holds(n, alpha), smallest=math.ceil((1 - alpha) / alpha), limit=1500
    )
    assert size.first == first
    assert size.safe_from == safe_from


def test_calibration_sizes_for_a_spread_of_pac_ranks_are_those_of_a_plain_scan():
    size = theory.calibration_size(alpha=0.1, spread=0.02, pac_delta=0.05)
    first, safe_from = scan(
        lambda n: theory.coverage_law(n, alpha=0.1, delta=0.05).std() <= 0.02,
        smallest=29,
        limit=300,
    )
    assert size.first == first
    assert size.safe_from == safe_from


@alphas
@wishes
def test_the_recommended_size_is_enough_and_near_the_first_safe_one(alpha, wish, holds):
    size = theory.calibration_size(alpha=alpha, **wish)
    assert size.safe_from <= size.recommended < size.safe_from + math.ceil(1 / alpha)
    assert holds(size.recommended, alpha)


@pytest.mark.parametrize("alpha", [Fraction(1, 5), Fraction(1, 10), Fraction(1, 20)], ids=str)
@wishes
def test_the_recommended_size_wastes_no_part_of_a_rank(alpha, wish, holds):
    size = theory.calibration_size(alpha=alpha, **wish)
    assert (size.recommended + 1) % (1 / alpha) == 0


@alphas
def test_sizes_for_a_shortfall_are_a_sawtooth_which_bisection_would_miss(alpha):
    size = theory.calibration_size(alpha=alpha, shortfall=0.02, delta=0.1)
    assert size.first < size.safe_from


@alphas
def test_a_shortfall_has_no_closed_form(alpha):
    assert theory.calibration_size(alpha=alpha, shortfall=0.02, delta=0.1).closed_form is None


@pytest.mark.parametrize("alpha", SMALL_ALPHAS, ids=str)
def test_the_closed_form_of_a_spread_is_enough(alpha):
    size = theory.calibration_size(alpha=alpha, spread=0.02)
    assert size.closed_form == math.ceil(alpha * (1 - alpha) / Fraction(2, 100) ** 2) - 2
    assert size.closed_form >= size.safe_from


@pytest.mark.parametrize(
    ("alpha", "closed_form", "safe_from", "recommended"),
    [(0.2, 1598, 1597, 1599), (0.1, 898, 894, 899), (0.05, 473, 467, 479)],
)
def test_calibration_sizes_for_a_spread_have_the_known_values(
    alpha, closed_form, safe_from, recommended
):
    size = theory.calibration_size(alpha=alpha, spread=0.01)
    assert size.closed_form == closed_form
    assert size.safe_from == safe_from
    assert size.recommended == recommended  # one less than a multiple of 1 / alpha


@pytest.mark.parametrize(("alpha", "spread", "n"), [(0.001, 0.01, 999), (0.5, 0.6, 1)])
def test_a_closed_form_gives_a_finite_threshold_at_least(alpha, spread, n):
    assert theory.calibration_size(alpha=alpha, spread=spread).closed_form == n


@pytest.mark.parametrize(
    "wish",
    [{}, {"spread": 0.01, "delta": 0.1}, {"shortfall": 0.1}, {"delta": 0.1}],
    ids=["nothing", "spread and delta", "shortfall alone", "delta alone"],
)
def test_a_wish_is_a_spread_or_a_shortfall_with_its_delta(wish):
    with pytest.raises(ValueError, match="give either spread"):
        theory.calibration_size(alpha=0.1, **wish)


@pytest.mark.parametrize(
    ("alpha", "wish", "message"),
    [
        (0.1, {"spread": -1}, "spread must be a positive number, got -1"),
        (0.9, {"shortfall": 0.2, "delta": 0.1}, "shortfall must be below"),
        (0.1, {"spread": 1e-6}, "calibration rows, beyond"),
    ],
    ids=["negative spread", "shortfall beyond the level", "too many rows"],
)
def test_impossible_wishes_are_named(alpha, wish, message):
    with pytest.raises(ValueError, match=message):
        theory.calibration_size(alpha=alpha, **wish)


def test_a_shortfall_of_pac_ranks_takes_a_pac_delta_up_to_one_half():
    """Above, the rank lies below n (1 - alpha), where the bound that ends the search fails."""
    with pytest.raises(ValueError, match="at most 1/2"):
        theory.calibration_size(alpha=0.1, shortfall=0.01, delta=0.05, pac_delta=0.9)


def test_the_least_wasteful_size_of_a_window_is_taken_where_1_over_alpha_is_not_whole():
    waste = {n: Fraction(conformal_rank(n, alpha=0.15), n + 1) for n in range(50, 57)}
    size = theory.least_wasteful_size(50, alpha=0.15)
    assert waste[size] == min(waste.values())


def test_the_least_wasteful_size_is_looked_for_downwards_on_request():
    assert theory.least_wasteful_size(57, alpha=0.1, downwards=True) == 49


def test_the_least_wasteful_size_of_an_irrational_level_is_in_its_window():
    assert theory.least_wasteful_size(50, alpha=math.pi / 10) in range(50, 54)


@pytest.mark.parametrize("n", [10**3, 10**5, 10**7], ids="{:.0e}".format)
@pytest.mark.parametrize("delta", [None, 0.05], ids=["marginal", "PAC"])
def test_pac_and_marginal_thresholds_agree_in_the_limit(n, delta):
    """Proposition 3.3 for uniform scores: both thresholds come within 3 / sqrt(n) of the population
    quantile.
    """
    low, high = theory.coverage_law(n, alpha=0.1, delta=delta).ppf([0.001, 0.999])
    assert 0.9 - 3 / math.sqrt(n) < low < high < 0.9 + 3 / math.sqrt(n)
