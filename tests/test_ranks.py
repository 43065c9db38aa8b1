"""Ranks, and what levels mean, against exact rational arithmetic and other statements of them."""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import errstate
from scipy.stats import beta, binom

from dco import conformal_rank, pac_rank
from dco.foundations.ranks import (
    as_count,
    as_rational,
    rank_for,
    smallest_marginal_n,
    smallest_n_for,
    smallest_pac_n,
    tuning_rank,
)

# --------------------------------------------------------------------------------- what levels mean

LEVELS = [Fraction(percent, 100) for percent in range(1, 100)]
COUNTS = range(5, 401)


def as_decimal(level: Fraction) -> Decimal:
    return Decimal(level.numerator) / level.denominator


# All the ways in which a person may hand over one level.
SPELLINGS: dict[str, Callable[[Fraction], object]] = {
    "float": float,
    "complement": lambda level: 1 - float(1 - level),
    "complement of a complement": lambda level: 1 - (1 - float(level)),
    "string": lambda level: str(as_decimal(level)),
    "fraction string": lambda level: f"{level.numerator}/{level.denominator}",
    "Decimal": as_decimal,
    "Fraction": lambda level: level,
    "np.float64": np.float64,
    "complement in np.float64": lambda level: np.float64(1) - np.float64(1 - level),
    "np.float32": np.float32,
    "complement in np.float32": lambda level: 1 - np.float32(1 - level),
}
every_spelling = pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS)


@every_spelling
def test_a_level_means_the_fraction_that_was_typed(spell):
    assert [as_rational(spell(level)) for level in LEVELS] == LEVELS


@every_spelling
def test_conformal_ranks_are_those_of_exact_arithmetic(spell):
    ranks = [conformal_rank(n, alpha=spell(level)) for level in LEVELS for n in COUNTS]
    assert ranks == [math.ceil((n + 1) * (1 - level)) for level in LEVELS for n in COUNTS]


@every_spelling
def test_tuning_ranks_are_those_of_exact_arithmetic(spell):
    ranks = [tuning_rank(n, alpha=spell(level)) for level in LEVELS for n in COUNTS]
    assert ranks == [n - math.floor(n * level) for level in LEVELS for n in COUNTS]


@pytest.mark.parametrize("spelling", ["float", "complement", "string"])
@pytest.mark.parametrize(
    "n",
    [10**6 - 1, 10**9, 10**12 - 1, 10**12, np.int64(10**12)],
    ids=["10^6 - 1", "10^9", "10^12 - 1", "10^12", "10^12 in NumPy"],
)
@pytest.mark.parametrize("level", ["0.1", "0.45", "0.7", "0.32", "0.001"])
def test_conformal_ranks_of_very_many_rows_are_exact_integers(n, level, spelling):
    exact = Fraction(level)
    rank = conformal_rank(n, alpha=SPELLINGS[spelling](exact))
    assert type(rank) is int
    assert rank == math.ceil((int(n) + 1) * (1 - exact))


@pytest.mark.parametrize(
    ("level", "meaning"),
    [
        (0.1, Fraction(1, 10)),
        (np.float32(0.1), Fraction(1, 10)),
        (Fraction(0.1), Fraction(0.1)),
        (Decimal.from_float(0.1), Fraction(0.1)),
        (float(np.float32(0.1)), Fraction(float(np.float32(0.1)))),
        (math.pi / 10, Fraction(math.pi / 10)),
    ],
    ids=["float", "float32", "Fraction", "Decimal", "float of a float32", "pi / 10"],
)
def test_only_what_was_typed_is_a_decimal_and_all_else_its_binary_value(level, meaning):
    assert as_rational(level) == meaning


def test_equal_values_of_other_types_do_not_share_a_meaning():
    """Fraction(0.1) == 0.1 and the hashes are equal: no cache may mix them up."""
    assert as_rational(0.1) == Fraction(1, 10)
    assert as_rational(Fraction(0.1)) == Fraction(0.1)
    assert as_rational(Decimal.from_float(0.1)) == Fraction(0.1)
    assert as_rational(0.1) == Fraction(1, 10)


BAD_LEVELS = [
    0,
    1,
    -1,
    2,
    0.0,
    1.0,
    math.nan,
    math.inf,
    -math.inf,
    "0",
    "1",
    "abc",
    "",
    "1/0",
    None,
    True,
    False,
    [0.1],
    np.float32("nan"),
    Decimal("NaN"),
    Decimal("Infinity"),
    Fraction(3, 2),
    np.bool_(True),
    {},
    0.1j,
]


@pytest.mark.parametrize("level", BAD_LEVELS, ids=repr)
def test_a_bad_alpha_is_named(level):
    with pytest.raises(
        ValueError, match="alpha must be a number strictly between 0 and 1"
    ) as caught:
        conformal_rank(10, alpha=level)
    assert repr(level) in str(caught.value)


@pytest.mark.parametrize("level", BAD_LEVELS, ids=repr)
def test_a_bad_delta_is_named(level):
    with pytest.raises(ValueError, match="delta must be a number"):
        pac_rank(10, alpha=0.1, delta=level)


@pytest.mark.parametrize("alpha", ["1e1000000000", "1e-1000000000", Decimal("1e-1000000000")])
def test_a_level_too_far_from_one_to_write_down_is_refused_at_once(alpha):
    with pytest.raises(ValueError, match="alpha must be a number"):
        conformal_rank(10, alpha=alpha)


def test_a_tiny_level_that_can_be_written_down_is_taken():
    assert conformal_rank(10, alpha="1e-4000") == 11


def test_a_coverage_in_per_cent_is_answered_with_the_alpha_that_was_meant():
    with pytest.raises(ValueError, match=r"got 90\. For 90 % coverage, alpha is 0\.1\.$"):
        conformal_rank(10, alpha=90)


def test_an_alpha_that_is_no_coverage_in_per_cent_gets_no_such_answer():
    with pytest.raises(ValueError, match=r"got 1\.5\.$"):
        conformal_rank(10, alpha=1.5)


def test_a_delta_in_per_cent_gets_no_such_answer():
    with pytest.raises(ValueError, match=r"got 90\.$"):
        pac_rank(10, alpha=0.1, delta=90)


BAD_COUNTS = pytest.mark.parametrize("n", [-1, 2.0, "3", None, True, np.float64(3)], ids=repr)


@BAD_COUNTS
def test_a_bad_number_of_rows_is_named(n):
    with pytest.raises(ValueError, match="n must be a whole number"):
        conformal_rank(n, alpha=0.1)


@BAD_COUNTS
def test_a_bad_count_has_the_name_that_the_caller_uses(n):
    with pytest.raises(ValueError, match="rows must be a whole number"):
        as_count(n, name="rows")


def test_a_count_that_is_too_small_is_named():
    with pytest.raises(ValueError, match="rows must be at least 2, got 1"):
        as_count(1, name="rows", least=2)


# ----------------------------------------------------------------------------------- marginal ranks

few_levels = pytest.mark.parametrize(
    "level",
    [Fraction(1, 10), Fraction(1, 3), Fraction(7, 10), Fraction(math.pi / 10)],
    ids=["1/10", "1/3", "7/10", "pi / 10"],
)


@few_levels
def test_the_conformal_rank_is_the_least_with_the_guarantee(level):
    """By definition: k / (n + 1) >= 1 - alpha, and (k - 1) / (n + 1) is not."""
    ranks = {n: conformal_rank(n, alpha=level) for n in range(200)}
    assert all(Fraction(k - 1, n + 1) < 1 - level <= Fraction(k, n + 1) for n, k in ranks.items())


@few_levels
def test_conformal_ranks_are_finite_from_the_smallest_n_on(level):
    finite = [n for n in range(200) if conformal_rank(n, alpha=level) <= n]
    assert finite == list(range(smallest_marginal_n(alpha=level), 200))


@pytest.mark.parametrize(
    ("delta", "rank"),
    [(None, conformal_rank(500, alpha=0.1)), (0.05, pac_rank(500, alpha=0.1, delta=0.05))],
    ids=["no delta", "delta"],
)
def test_a_delta_asks_for_the_pac_rank(delta, rank):
    assert rank_for(500, alpha=0.1, delta=delta) == rank


@pytest.mark.parametrize(("delta", "smallest"), [(None, 9), (0.05, 29)], ids=["no delta", "delta"])
def test_a_delta_asks_for_the_smallest_n_of_a_pac_rank(delta, smallest):
    assert smallest_n_for(alpha=0.1, delta=delta) == smallest


# ---------------------------------------------------------------------------------------- PAC ranks


def exact_pac_rank(n: int, alpha: Fraction, delta: Fraction) -> int:
    """n - max{e : P(Binomial(n, alpha) <= e) <= delta}, summed in rationals."""
    tail = Fraction(0)
    allowed = -1
    for e in range(n):
        tail += math.comb(n, e) * alpha**e * (1 - alpha) ** (n - e)
        if tail > delta:
            break
        allowed = e
    return n - allowed


def exact_pac_ranks(sizes: list[int], *, alpha: str, delta: str) -> list[int]:
    return [exact_pac_rank(n, Fraction(alpha), Fraction(delta)) for n in sizes]


@pytest.mark.parametrize("alpha", ["0.01", "0.05", "0.1", "0.2", "0.5", "0.7"])
@pytest.mark.parametrize("delta", ["0.01", "0.05", "0.1", "0.25", "0.5"])
def test_pac_ranks_equal_the_exact_binomial_sum(alpha, delta):
    sizes = [*range(60), 99, 100, 149, 200]
    ranks = [pac_rank(n, alpha=alpha, delta=delta) for n in sizes]
    assert ranks == exact_pac_ranks(sizes, alpha=alpha, delta=delta)


@pytest.mark.parametrize(
    "alpha", ["1e-12", "1e-6", "0.001", "1/3", "0.9", "0.999999", "0.999999999"]
)
@pytest.mark.parametrize(
    "delta", ["1e-300", "1e-12", "0.05", "0.999", "0.999999999", "0.999999999999"]
)
def test_pac_ranks_of_extreme_levels_equal_the_exact_binomial_sum(alpha, delta):
    """Also where SciPy's inverse finds nothing, and where its functions were made to raise."""
    sizes = [*range(13), 30, 77, 150]
    with errstate(all="raise"):
        ranks = [pac_rank(n, alpha=alpha, delta=delta) for n in sizes]
    assert ranks == exact_pac_ranks(sizes, alpha=alpha, delta=delta)


@pytest.mark.parametrize("n_misses", [1, 2, 3])
@pytest.mark.parametrize(
    ("part", "n_more"),
    [(Fraction(1, 10**9), 0), (Fraction(-1, 10**9), 1)],
    ids=["delta above", "delta below"],
)
def test_a_level_near_one_keeps_the_digits_of_its_complement(n_misses, part, n_more):
    """P(Binomial(n, alpha) <= n - misses) hangs on 1 - alpha, which a float of alpha knows to 8
    digits here.
    """
    n = 1000
    alpha = Fraction(999_999_999, 1_000_000_000)
    below = sum(math.comb(n, i) * (1 - alpha) ** i * alpha ** (n - i) for i in range(n_misses))

    delta = (1 - below) * (1 + part)

    assert pac_rank(n, alpha=alpha, delta=delta) == n_misses + n_more


class ClassicalRanks:
    """PAC ranks of some sizes as arrays: `n`, `rank` and the `misses` they allow."""

    def __init__(self, alpha: float, delta: float) -> None:
        self.n = np.array([15, 30, 59, 77, 225, 299, 1000, 3000, 20_000])
        self.rank = np.array([pac_rank(n, alpha=alpha, delta=delta) for n in self.n])
        self.misses = self.n - self.rank

    def finite(self) -> "ClassicalRanks":
        """Leave out the sizes that have no finite rank."""
        is_finite = self.rank <= self.n
        self.n = self.n[is_finite]
        self.rank = self.rank[is_finite]
        self.misses = self.misses[is_finite]
        return self


def classical_levels(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test for 15 usual pairs of alpha and delta."""
    alphas = pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1, 0.2, 0.5])
    deltas = pytest.mark.parametrize("delta", [0.01, 0.05, 0.1])
    return alphas(deltas(test))


@classical_levels
def test_a_pac_rank_is_infinite_where_all_rows_may_be_covered_by_chance(alpha, delta):
    ranks = ClassicalRanks(alpha, delta)
    np.testing.assert_array_equal(ranks.rank > ranks.n, (1 - alpha) ** ranks.n > delta)


@classical_levels
def test_a_pac_rank_is_that_of_vovk_2012(alpha, delta):
    """The number of misses has probability at most delta, and one more has not."""
    ranks = ClassicalRanks(alpha, delta).finite()
    assert (binom.cdf(ranks.misses, ranks.n, alpha) <= delta).all()
    assert (binom.cdf(ranks.misses + 1, ranks.n, alpha) > delta).all()


@classical_levels
def test_a_pac_rank_is_that_of_wilks(alpha, delta):
    """Coverage is Beta(rank, n + 1 - rank): high enough at the rank, and not at one below."""
    ranks = ClassicalRanks(alpha, delta).finite()
    assert (beta.sf(1 - alpha, ranks.rank, ranks.misses + 1) >= 1 - delta).all()
    assert (beta.sf(1 - alpha, ranks.rank - 1, ranks.misses + 2) < 1 - delta).all()


@classical_levels
def test_a_pac_rank_is_that_of_clopper_and_pearson(alpha, delta):
    """Their upper bound of miscoverage is at most alpha, and with one more miss it is not."""
    ranks = ClassicalRanks(alpha, delta).finite()
    assert (beta.ppf(1 - delta, ranks.misses + 1, ranks.rank) <= alpha).all()
    assert (beta.ppf(1 - delta, ranks.misses + 2, ranks.rank - 1) > alpha).all()


def half_tail(n: int, e: int) -> Fraction:
    """P(Binomial(n, 1/2) <= e), a short binary fraction, so that a delta can equal it exactly."""
    return Fraction(sum(math.comb(n, i) for i in range(e + 1)), 2**n)


misses_of_halves = pytest.mark.parametrize(
    ("n", "e"),
    [(2, 0), (2, 1), (10, 0), (10, 1), (10, 3), (50, 0), (50, 1), (50, 16)]
    + [(333, 0), (333, 1), (333, 111)],
)


@misses_of_halves
def test_misses_as_probable_as_delta_are_allowed(n, e):
    assert pac_rank(n, alpha=0.5, delta=half_tail(n, e)) == n - e


@misses_of_halves
def test_misses_more_probable_than_delta_by_a_hair_are_not_allowed(n, e):
    delta = half_tail(n, e) - Fraction(1, 2**400)
    assert pac_rank(n, alpha=0.5, delta=delta) == n - e + 1


def test_a_delta_typed_as_a_float_may_equal_a_tail():
    assert pac_rank(2, alpha=0.5, delta=0.25) == 2


crossing_levels = pytest.mark.parametrize(
    ("alpha", "delta"),
    [
        (alpha, delta)
        for alpha in (0.2, 0.1, 0.05, 0.01, 0.7, 0.0001, 1e-9)
        for delta in (0.05, 0.5, 0.001, 1e-12)
    ],
)


@crossing_levels
def test_pac_ranks_are_finite_from_the_smallest_n_on(alpha, delta):
    n = smallest_pac_n(alpha=alpha, delta=delta)
    assert pac_rank(n, alpha=alpha, delta=delta) == n
    assert pac_rank(n - 1, alpha=alpha, delta=delta) == n  # beyond n - 1 rows


@crossing_levels
def test_the_smallest_n_is_where_the_power_crosses_delta(alpha, delta):
    """(1 - alpha)^n <= delta < (1 - alpha)^(n - 1), by logarithms to 60 digits."""
    n = smallest_pac_n(alpha=alpha, delta=delta)
    with localcontext(prec=60):
        log_miss = (1 - Decimal(repr(alpha))).ln()
        log_delta = Decimal(repr(delta)).ln()
        assert n * log_miss <= log_delta < (n - 1) * log_miss


@pytest.mark.parametrize(
    ("n", "pac", "marginal"), [(3000, 2437, 2401), (225, 191, 181)], ids=["n=3000", "n=225"]
)
def test_ranks_are_those_that_the_papers_tables_imply(n, pac, marginal):
    assert pac_rank(n, alpha=0.2, delta=0.05) == pac
    assert conformal_rank(n, alpha=0.2) == marginal


@pytest.mark.parametrize(("alpha", "n"), [(0.2, 4), (0.1, 9), (0.05, 19), (0.01, 99)])
def test_the_smallest_marginal_n_of_common_levels(alpha, n):
    assert smallest_marginal_n(alpha=alpha) == n


@pytest.mark.parametrize(
    ("alpha", "delta", "n"),
    [(0.2, 0.05, 14), (0.1, 0.05, 29), (0.05, 0.05, 59), (0.01, 0.05, 299), (0.5, 0.25, 2)],
)
def test_the_smallest_pac_n_of_common_levels(alpha, delta, n):
    assert smallest_pac_n(alpha=alpha, delta=delta) == n


# --------------------------------------------------------------------------- PAC ranks of many rows


def log_factorial(n: int) -> Decimal:
    """Stirling's series; for n >= 1000 the first term left out is below 1e-24."""
    x = Decimal(n)
    pi = Decimal("3.14159265358979323846264338327950288419716939937510")
    corrections = 1 / (12 * x) - 1 / (360 * x**3) + 1 / (1260 * x**5) - 1 / (1680 * x**7)
    return x * x.ln() - x + (2 * pi * x).ln() / 2 + corrections


def binomial_tail(n: int, e: int, alpha: str) -> float:
    """P(Binomial(n, alpha) <= e) without the incomplete beta function.

    The largest term to 50 digits, the others by ratios of neighbours, going down until they no
    longer count.
    """
    with localcontext(prec=50):
        p = Decimal(alpha)
        log_choose = log_factorial(n) - log_factorial(e) - log_factorial(n - e)
        largest_term = float((log_choose + e * p.ln() + (n - e) * (1 - p).ln()).exp())

    level = float(alpha)
    steps = int(40 * math.sqrt(n * level))
    i = e - np.arange(min(e, steps), dtype=np.float64)
    ratios = i / (n - i + 1) * ((1 - level) / level)
    terms = np.exp(np.cumsum(np.log(ratios)))
    return largest_term * (1 + float(terms.sum()))


@pytest.mark.parametrize("alpha", ["0.1", "0.05", "0.2"])
@pytest.mark.parametrize("n", [10**5, 10**6, 10**9, 10**10], ids="{:.0e}".format)
def test_the_pac_rank_of_many_rows_is_right_by_an_independent_sum(n, alpha):
    misses = n - pac_rank(n, alpha=alpha, delta=0.05)
    assert binomial_tail(n, misses, alpha) <= 0.05
    assert binomial_tail(n, misses + 1, alpha) > 0.05


@pytest.mark.parametrize("alpha", ["0.1", "0.05", "0.2"])
@pytest.mark.parametrize("n", [10**11, 10**12], ids="{:.0e}".format)
def test_the_pac_rank_of_a_trillion_rows_is_safe_and_loses_three_rows_at_most(n, alpha):
    """Where floating point cannot decide, the larger rank is taken. The sum is right to 1e-9."""
    misses = n - pac_rank(n, alpha=alpha, delta=0.05)
    assert binomial_tail(n, misses, alpha) <= 0.05 * (1 + 1e-9)
    assert binomial_tail(n, misses + 3, alpha) > 0.05


def test_a_binomial_tail_that_floats_cannot_tell_from_delta_counts_as_above_it():
    """P(Binomial(4001, 1/2) <= 2000) is 1/2, which a delta 1e-13 below looks equal to."""
    delta = Fraction(1, 2) - Fraction(1, 10**13)
    assert pac_rank(4001, alpha="0.5", delta=delta) == 4001 - 1999


def test_a_tail_of_few_enough_rows_is_added_up_in_integers():
    assert pac_rank(3999, alpha="0.5", delta=Fraction(1, 2)) == 3999 - 1999


@pytest.mark.parametrize("e", range(150, 200, 7))
def test_a_tail_above_delta_by_a_part_in_10_to_the_28_is_refused(e):
    """With more than 4,000 rows a tail is not added up in integers: what floats cannot decide is
    not allowed.
    """
    n = 4001
    tail = Fraction(sum(math.comb(n, i) * 19 ** (n - i) for i in range(e + 1)), 20**n)
    scale = 10 ** (30 + len(str(int(1 / tail))))

    just_below = Fraction(int(tail * scale) - 1, scale)

    assert pac_rank(n, alpha=Fraction(1, 20), delta=just_below) == n - e + 1


# -------------------------------------------------------------------------------------------- order

FALLING_DELTAS = (0.5, 0.2, 0.1, 0.05, 0.01, 1e-6)
FALLING_ALPHAS = (0.3, 0.2, 0.1, 0.05)


@pytest.mark.parametrize("alpha", FALLING_ALPHAS)
def test_a_pac_rank_grows_as_delta_falls(alpha):
    ranks = [pac_rank(500, alpha=alpha, delta=delta) for delta in FALLING_DELTAS]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("delta", FALLING_DELTAS)
def test_a_pac_rank_grows_as_alpha_falls(delta):
    ranks = [pac_rank(500, alpha=alpha, delta=delta) for alpha in FALLING_ALPHAS]
    assert ranks == sorted(ranks)


def test_a_pac_rank_is_not_below_the_marginal_one():
    pac = np.array([pac_rank(n, alpha=0.1, delta=0.05) for n in range(1, 2000)])
    marginal = np.array([conformal_rank(n, alpha=0.1) for n in range(1, 2000)])
    assert (pac >= marginal).all()
