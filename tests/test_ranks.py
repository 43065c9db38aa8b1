import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from scipy.special import errstate
from scipy.stats import beta, binom

from dco.foundations.ranks import (
    _pac_rank,
    as_count,
    as_rational,
    conformal_rank,
    pac_rank,
    rank_for,
    smallest_marginal_n,
    smallest_n_for,
    smallest_pac_n,
    tuning_rank,
)

CONFIDENCES = [Fraction(percent, 100) for percent in range(50, 100)]


def spellings(level: Fraction) -> dict[str, object]:
    """All the ways in which a person may hand over one level."""
    number, other = float(level), float(1 - level)
    return {
        "float": number,
        "complement": 1 - other,
        "complement of a complement": 1 - (1 - number),
        "string": str(Decimal(level.numerator) / level.denominator),
        "fraction string": f"{level.numerator}/{level.denominator}",
        "Decimal": Decimal(level.numerator) / level.denominator,
        "Fraction": level,
        "np.float64": np.float64(number),
        "complement in np.float64": np.float64(1) - np.float64(other),
        "np.float32": np.float32(number),
        "complement in np.float32": 1 - np.float32(other),
    }


@pytest.mark.parametrize("confidence", CONFIDENCES, ids=str)
def test_every_rank_of_every_spelling(confidence):
    """n = 5..400, each level and its complement typed in eleven ways, against exact rational
    arithmetic.
    """
    for level in (confidence, 1 - confidence):
        for how, alpha in spellings(level).items():
            assert as_rational(alpha) == level, how
            for n in range(5, 401):
                # of a fraction: exact
                assert conformal_rank(n, alpha=alpha) == math.ceil((n + 1) * (1 - level)), (how, n)
                assert tuning_rank(n, alpha=alpha) == n - math.floor(n * level), (how, n)


@pytest.mark.parametrize("n", [10**6 - 1, 10**9, 10**12 - 1, 10**12, np.int64(10**12)])
@pytest.mark.parametrize(
    "level", [*map(Fraction, ("1/10", "45/100", "7/10", "32/100", "1/1000"))], ids=str
)
def test_ranks_of_very_many_rows(n, level):
    for alpha in (float(level), 1 - float(1 - level), str(float(level))):
        rank = conformal_rank(n, alpha=alpha)
        assert type(rank) is int
        assert rank == math.ceil((int(n) + 1) * (1 - level))


def test_equal_values_of_other_types_do_not_share_a_meaning():
    """Fraction(0.1) == 0.1 == Decimal(0.1), but only the float was typed as one tenth: no cache may
    mix them up.
    """
    binary = Fraction(0.1)
    for _ in range(2):
        assert as_rational(0.1) == Fraction(1, 10)
        assert as_rational(binary) == binary
        assert as_rational(Decimal.from_float(0.1)) == binary
        assert as_rational(float(np.float32(0.1))) == Fraction(float(np.float32(0.1)))
        assert as_rational(np.float32(0.1)) == Fraction(1, 10)
    # a float that no one typed means its binary value
    assert as_rational(math.pi / 10) == Fraction(math.pi / 10)


def test_the_rank_is_the_least_with_the_guarantee():
    """By definition: k / (n + 1) >= 1 - alpha, and (k - 1) / (n + 1) is not."""
    for n in range(200):
        for level in (Fraction(1, 10), Fraction(1, 3), Fraction(7, 10), Fraction(math.pi / 10)):
            k = conformal_rank(n, alpha=level)
            assert Fraction(k, n + 1) >= 1 - level > Fraction(k - 1, n + 1)
            assert (k <= n) == (n >= smallest_marginal_n(alpha=level))


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
]
BAD_LEVELS += [
    np.float32("nan"),
    Decimal("NaN"),
    Decimal("Infinity"),
    Fraction(3, 2),
    np.bool_(True),
    {},
    0.1j,
]


@pytest.mark.parametrize("level", BAD_LEVELS, ids=repr)
def test_bad_levels_are_named(level):
    with pytest.raises(
        ValueError, match="alpha must be a number strictly between 0 and 1"
    ) as caught:
        conformal_rank(10, alpha=level)
    assert repr(level) in str(caught.value)
    with pytest.raises(ValueError, match="delta must be a number strictly between 0 and 1"):
        pac_rank(10, alpha=0.1, delta=level)


def test_a_coverage_in_per_cent_is_answered_with_the_alpha_that_was_meant():
    with pytest.raises(ValueError, match=r"got 90\. For 90 % coverage, alpha is 0\.1\.$"):
        conformal_rank(10, alpha=90)
    with pytest.raises(ValueError, match=r"got 1\.5\.$"):
        conformal_rank(10, alpha=1.5)
    with pytest.raises(ValueError, match=r"got 90\.$"):
        pac_rank(10, alpha=0.1, delta=90)


@pytest.mark.parametrize("n", [-1, 2.0, "3", None, True, np.float64(3)], ids=repr)
def test_bad_counts_are_named(n):
    with pytest.raises(ValueError, match="n must be a whole number"):
        conformal_rank(n, alpha=0.1)
    with pytest.raises(ValueError, match="rows must be a whole number"):
        as_count(n, name="rows")
    with pytest.raises(ValueError, match="rows must be at least 2, got 1"):
        as_count(1, name="rows", least=2)


@pytest.mark.parametrize(
    ("delta", "rank", "least"),
    [(None, conformal_rank, 9), (0.05, partial(pac_rank, delta=0.05), 29)],
)
def test_a_delta_asks_for_the_pac_rank(delta, rank, least):
    assert rank_for(500, alpha=0.1, delta=delta) == rank(500, alpha=0.1)
    assert smallest_n_for(alpha=0.1, delta=delta) == least


# ---- PAC ranks -----------------------------------------------------------------------------------
# --------------------


def exact_pac_rank(n: int, alpha: Fraction, delta: Fraction) -> int:
    """n - max{e : P(Binomial(n, alpha) <= e) <= delta}, summed in rationals."""
    tail, allowed = Fraction(0), -1
    for e in range(n):
        tail += math.comb(n, e) * alpha**e * (1 - alpha) ** (n - e)
        if tail > delta:
            break
        allowed = e
    return n - allowed


USUAL = (("0.01", "0.05", "0.1", "0.25", "0.5"), (*range(60), 99, 100, 149, 200))
EXTREME = (
    ("1e-300", "1e-12", "0.05", "0.999", "0.999999999", "0.999999999999"),
    (*range(13), 30, 77, 150),
)


@pytest.mark.parametrize(
    ("alpha", "deltas", "sizes"),
    [(alpha, *USUAL) for alpha in ("0.01", "0.05", "0.1", "0.2", "0.5", "0.7")]
    + [
        (alpha, *EXTREME)
        for alpha in ("1e-12", "1e-6", "0.001", "1/3", "0.9", "0.999999", "0.999999999")
    ],
)
def test_pac_rank_equals_the_exact_binomial_sum(alpha, deltas, sizes):
    """Also where SciPy's inverse finds nothing, and for those who have made its special functions
    raise.
    """
    _pac_rank.cache_clear()
    for delta in deltas:
        for n in sizes:
            with errstate(all="raise"):
                rank = pac_rank(n, alpha=alpha, delta=delta)
            assert rank == exact_pac_rank(n, Fraction(alpha), Fraction(delta)), (n, delta)


@pytest.mark.parametrize("misses", [1, 2, 3])
def test_a_level_near_one_keeps_the_digits_of_its_complement(misses):
    """P(Binomial(n, alpha) <= n - misses) hangs on 1 - alpha, which a float of alpha knows to 8
    digits here.
    """
    n, alpha = 1000, Fraction(999_999_999, 1_000_000_000)
    tail = 1 - sum(math.comb(n, i) * (1 - alpha) ** i * alpha ** (n - i) for i in range(misses))
    for part in (Fraction(1, 10**9), Fraction(-1, 10**9)):
        delta = tail * (1 + part)
        assert (
            pac_rank(n, alpha=alpha, delta=delta)
            == exact_pac_rank(n, alpha, delta)
            == misses + (part < 0)
        )


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1, 0.2, 0.5])
@pytest.mark.parametrize("delta", [0.01, 0.05, 0.1])
def test_pac_rank_is_vovk_wilks_and_clopper_pearson(alpha, delta):
    """Three classical statements of one rank, each at the rank and one below it."""
    for n in (15, 30, 59, 77, 225, 299, 1000, 3000, 20_000):
        rank = pac_rank(n, alpha=alpha, delta=delta)
        e = n - rank
        if rank > n:
            assert (1 - alpha) ** n > delta
            continue
        assert binom.cdf(e, n, alpha) <= delta < binom.cdf(e + 1, n, alpha)  # Vovk 2012
        # Wilks: coverage is Beta(rank, n + 1 - rank)
        assert beta.sf(1 - alpha, rank, n + 1 - rank) >= 1 - delta
        assert rank == 1 or beta.sf(1 - alpha, rank - 1, n + 2 - rank) < 1 - delta
        # Clopper-Pearson
        assert beta.ppf(1 - delta, e + 1, n - e) <= alpha < beta.ppf(1 - delta, e + 2, n - e - 1)


def test_equality_with_delta_counts_as_allowed():
    """P(Bin(n, 1/2) <= e) is a short binary fraction, so delta can equal it exactly."""
    for n in (2, 10, 50, 333):
        for e in (0, 1, n // 3):
            tail = Fraction(sum(math.comb(n, i) for i in range(e + 1)), 2**n)
            assert pac_rank(n, alpha=0.5, delta=tail) == n - e
            assert pac_rank(n, alpha=0.5, delta=tail - Fraction(1, 2**400)) == n - e + 1
    assert pac_rank(2, alpha=0.5, delta=0.25) == 2


@pytest.mark.parametrize("alpha", [0.2, 0.1, 0.05, 0.01, 0.7, 0.0001, 1e-9])
@pytest.mark.parametrize("delta", [0.05, 0.5, 0.001, 1e-12])
def test_the_smallest_n_is_where_the_power_crosses_delta(alpha, delta):
    n = smallest_pac_n(alpha=alpha, delta=delta)
    assert pac_rank(n, alpha=alpha, delta=delta) == n
    assert n == 1 or pac_rank(n - 1, alpha=alpha, delta=delta) == n
    with localcontext(prec=60):
        log_miss, log_delta = (1 - Decimal(repr(alpha))).ln(), Decimal(repr(delta)).ln()
        assert n * log_miss <= log_delta
        assert n == 1 or (n - 1) * log_miss > log_delta


def test_ranks_and_smallest_n_of_common_levels():
    """The ranks are those that the paper's tables imply (n = 3000 and n = 225 at alpha = 0.2, delta
    = 0.05).
    """
    assert [pac_rank(3000, alpha=0.2, delta=0.05), conformal_rank(3000, alpha=0.2)] == [2437, 2401]
    assert [pac_rank(225, alpha=0.2, delta=0.05), conformal_rank(225, alpha=0.2)] == [191, 181]
    assert [smallest_marginal_n(alpha=a) for a in (0.2, 0.1, 0.05, 0.01)] == [4, 9, 19, 99]
    assert [smallest_pac_n(alpha=a, delta=0.05) for a in (0.2, 0.1, 0.05, 0.01)] == [
        14,
        29,
        59,
        299,
    ]
    assert smallest_pac_n(alpha=0.5, delta=0.25) == 2  # equality: (1/2)^2 is 1/4


def log_factorial(n: int) -> Decimal:
    """Stirling's series; for n >= 1000 the first term left out is below 1e-24."""
    x = Decimal(n)
    pi = Decimal("3.14159265358979323846264338327950288419716939937510")
    return (
        x * x.ln()
        - x
        + (2 * pi * x).ln() / 2
        + 1 / (12 * x)
        - 1 / (360 * x**3)
        + 1 / (1260 * x**5)
        - 1 / (1680 * x**7)
    )


def binomial_tail(n: int, e: int, alpha: str) -> float:
    """P(Binomial(n, alpha) <= e) without the incomplete beta function.

    The largest term to 50 digits, the others by ratios of neighbours, going down until they no
    longer count.
    """
    with localcontext(prec=50):
        p = Decimal(alpha)
        log_choose = log_factorial(n) - log_factorial(e) - log_factorial(n - e)
        top = float((log_choose + e * p.ln() + (n - e) * (1 - p).ln()).exp())
    steps = int(40 * math.sqrt(n * float(alpha)))
    i = e - np.arange(min(e, steps), dtype=np.float64)
    ratios = i / (n - i + 1) * ((1 - float(alpha)) / float(alpha))
    return top * (1 + float(np.exp(np.cumsum(np.log(ratios))).sum()))


@pytest.mark.parametrize("alpha", ["0.1", "0.05", "0.2"])
@pytest.mark.parametrize("n", [10**5, 10**6, 10**9, 10**10, 10**11, 10**12])
def test_pac_rank_of_many_rows_is_right_by_an_independent_sum(n, alpha):
    """Where floating point cannot decide, the larger rank is taken: never unsafe, at most a few
    ranks of a trillion lost.
    """
    e, lost = n - pac_rank(n, alpha=alpha, delta=0.05), 1 if n <= 10**10 else 3
    assert binomial_tail(n, e, alpha) <= 0.05 * (1 + 1e-9 * (lost > 1))
    assert binomial_tail(n, e + lost, alpha) > 0.05


def test_pac_rank_grows_with_the_demand():
    ranks = [
        [pac_rank(500, alpha=a, delta=d) for d in (0.5, 0.2, 0.1, 0.05, 0.01, 1e-6)]
        for a in (0.3, 0.2, 0.1, 0.05)
    ]
    assert all(row == sorted(row) for row in ranks)
    assert all(list(column) == sorted(column) for column in zip(*ranks, strict=True))
    assert all(
        pac_rank(n, alpha=0.1, delta=0.05) >= conformal_rank(n, alpha=0.1) for n in range(1, 2000)
    )


def test_a_binomial_tail_that_floats_cannot_tell_from_delta_counts_as_above_it():
    """P(Binomial(4001, 1/2) <= 2000) is 1/2: for a delta 1e-13 below, 2000 misses are too many, and
    floats cannot see it.
    """
    assert pac_rank(4001, alpha="0.5", delta=Fraction(1, 2) - Fraction(1, 10**13)) == 4001 - 1999
    # few enough rows to add up in integers
    assert pac_rank(3999, alpha="0.5", delta=Fraction(1, 2)) == 3999 - 1999


@pytest.mark.parametrize("e", range(150, 200, 7))
def test_a_tail_above_delta_by_a_part_in_10_to_the_28_is_refused(e):
    """With more than 4,000 rows a tail is not added up in integers: what floats cannot decide is
    not allowed.
    """
    n = 4001
    tail = Fraction(sum(math.comb(n, i) * 19 ** (n - i) for i in range(e + 1)), 20**n)
    scale = 10 ** (30 + len(str(int(1 / tail))))
    assert (
        pac_rank(n, alpha=Fraction(1, 20), delta=Fraction(int(tail * scale) - 1, scale))
        == n - e + 1
    )


@pytest.mark.parametrize("alpha", ["1e1000000000", "1e-1000000000", Decimal("1e-1000000000")])
def test_a_level_too_far_from_one_to_write_down_is_refused_at_once(alpha):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        conformal_rank(10, alpha=alpha)
    assert conformal_rank(10, alpha="1e-4000") == 11
