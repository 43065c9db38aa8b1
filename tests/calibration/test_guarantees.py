"""Facts of every guarantee (whoever registers one has it tested here), and the laws of ours."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import beta, binomtest, kstest

import dco
from dco import partitioned_conformal, theory
from dco.calibration import GUARANTEES, Marginal, bayesian_quadrature, register, split_conformal
from dco.foundations.ranks import Threshold, conformal_rank, pac_rank

PUBLIC = {
    "split_conformal": partial(split_conformal, alpha=0.25),
    "bayesian_quadrature": partial(bayesian_quadrature, alpha=0.25, delta=0.1),
}


def make_guarantee(name, *, delta=Fraction(1, 20)):
    """Make the registered guarantee of this name."""
    kind = GUARANTEES[name]
    return kind(delta) if kind.needs_delta else kind()


@pytest.fixture(params=GUARANTEES)
def guarantee(request):
    """Each guarantee, at delta = 1/20."""
    return make_guarantee(request.param)


@pytest.fixture(params=PUBLIC)
def calibrate(request):
    return PUBLIC[request.param]


# ---------------------------------------------------------------- every guarantee

ALPHAS = pytest.mark.parametrize(
    "alpha", [Fraction(1, 10), Fraction(1, 4), Fraction(1, 2)], ids=str
)


@ALPHAS
def test_a_threshold_is_the_order_statistic_of_its_rank(guarantee, alpha):
    smallest = guarantee.smallest_size(alpha=alpha)
    for n in range(smallest, smallest + 90):
        scores = np.random.default_rng(n).permutation(np.arange(1.0, n + 1))
        threshold = guarantee.threshold(scores, alpha=alpha)
        assert threshold.rank == guarantee.rank(n, alpha=alpha) <= n
        assert threshold.value == threshold.rank


@ALPHAS
def test_a_threshold_of_fewer_than_the_smallest_size_is_infinite(guarantee, alpha):
    for n in range(1, guarantee.smallest_size(alpha=alpha)):
        threshold = guarantee.threshold(np.arange(float(n)), alpha=alpha)
        assert threshold.rank == guarantee.rank(n, alpha=alpha) == n + 1
        assert threshold.value == np.inf


def test_a_threshold_knows_its_statement(guarantee):
    threshold = guarantee.threshold(np.arange(99.0), alpha=Fraction(1, 10))

    assert threshold.n == 99
    assert threshold.guarantee == guarantee.certifies
    assert threshold.alpha == 0.1
    assert threshold.delta == (0.05 if guarantee.needs_delta else None)


LEVELS = [Fraction(number, 20) for number in range(1, 20)]


@pytest.mark.parametrize("delta", LEVELS, ids=str)
@pytest.mark.parametrize("name", GUARANTEES)
def test_a_larger_alpha_never_has_a_higher_rank(name, delta):
    guarantee = make_guarantee(name, delta=delta)

    ranks = [guarantee.rank(100, alpha=alpha) for alpha in LEVELS]

    assert ranks == sorted(ranks, reverse=True)


@pytest.mark.parametrize("alpha", LEVELS, ids=str)
@pytest.mark.parametrize("name", [name for name, kind in GUARANTEES.items() if kind.needs_delta])
def test_a_larger_delta_never_has_a_higher_rank(name, alpha):
    ranks = [make_guarantee(name, delta=delta).rank(100, alpha=alpha) for delta in LEVELS]

    assert ranks == sorted(ranks, reverse=True)


def test_ties_only_raise_coverage(guarantee):
    """Scores in {0, 1, 2, 3}: mean coverage at least k / (n + 1), by a one-sided test with error
    rate 0.1 %.
    """
    rng = np.random.default_rng(3)
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    n_runs = 4000

    coverage = np.empty(n_runs)
    for run in range(n_runs):
        scores = rng.choice(4, size=40, p=shares)
        threshold = guarantee.threshold(scores, alpha=Fraction(1, 5))
        coverage[run] = np.cumsum(shares)[int(threshold.value)]

    standard_error = 0.3 / math.sqrt(n_runs)  # coverage is 0.4 to 1: sd at most 0.3
    assert coverage.mean() > threshold.expected_coverage - 3.1 * standard_error


def test_the_sentence_takes_what_a_statement_knows(guarantee):
    sentence = guarantee.sentence.format(
        level="90 %", sure="95 %", who="a new row", many="new rows", where=", everywhere"
    )

    assert "90 %" in sentence
    assert ("95 %" in sentence) == guarantee.needs_delta
    assert ", everywhere." in sentence


@dataclass(frozen=True)
class OtherMarginal(Marginal):
    """Another guarantee of the same name."""


def test_a_guarantee_is_registered_by_a_name_that_is_free():
    with pytest.raises(ValueError, match='a guarantee named "marginal" already'):
        register(OtherMarginal)


def test_an_unknown_guarantee_is_refused_by_name():
    with pytest.raises(ValueError, match='guarantee must be "marginal" or "pac"'):
        dco.DecoupledRegressor(guarantee="best").fit(np.zeros((40, 1)), np.arange(40.0))


# ---------------------------------------------------------------- laws

MARGINAL_CASES = [(99, 0.1), (50, 0.2), (30, 0.05)]
PAC_CASES = [(60, 0.1, 0.1), (200, 0.2, 0.05)]


def simulate_coverage(calibrate, n):
    """Calibrate 3,000 times on n uniform scores: coverage equals the threshold."""
    rng = np.random.default_rng(20)
    return np.array([calibrate(rng.uniform(size=n)).value for _ in range(3000)])


def check_is_beta(coverage, rank, n):
    """Coverage is Beta(k, n + 1 - k), at an error rate of 1 %, and one rank off is seen."""
    neighbour = rank + 1 if rank < n else rank - 1
    assert kstest(coverage, beta(rank, n + 1 - rank).cdf).pvalue > 0.01
    assert kstest(coverage, beta(neighbour, n + 1 - neighbour).cdf).pvalue < 1e-6


@pytest.mark.parametrize(("n", "alpha"), MARGINAL_CASES)
def test_coverage_of_marginal_thresholds_follows_its_beta_law(n, alpha):
    coverage = simulate_coverage(partial(split_conformal, alpha=alpha), n)

    check_is_beta(coverage, conformal_rank(n, alpha=alpha), n)


@pytest.mark.parametrize(("n", "alpha", "delta"), PAC_CASES)
def test_coverage_of_pac_thresholds_follows_its_beta_law(n, alpha, delta):
    coverage = simulate_coverage(partial(bayesian_quadrature, alpha=alpha, delta=delta), n)

    check_is_beta(coverage, pac_rank(n, alpha=alpha, delta=delta), n)


@pytest.mark.parametrize(("n", "alpha", "delta"), PAC_CASES)
def test_pac_thresholds_fail_as_often_as_their_beta_tail(n, alpha, delta):
    """P(coverage < 1 - alpha), tested at an error rate of 1 %."""
    coverage = simulate_coverage(partial(bayesian_quadrature, alpha=alpha, delta=delta), n)

    rank = pac_rank(n, alpha=alpha, delta=delta)
    failure_rate = beta(rank, n + 1 - rank).cdf(1 - alpha)
    n_failures = int(np.sum(coverage < 1 - alpha))
    assert binomtest(n_failures, 3000, failure_rate).pvalue > 0.01


@pytest.mark.parametrize(("n", "alpha", "delta"), PAC_CASES)
def test_the_pac_rank_is_the_lowest_that_fails_with_probability_delta_at_most(n, alpha, delta):
    rank = pac_rank(n, alpha=alpha, delta=delta)

    assert beta(rank, n + 1 - rank).cdf(1 - alpha) <= delta
    assert beta(rank - 1, n + 2 - rank).cdf(1 - alpha) > delta


@pytest.mark.parametrize(
    ("n", "alpha", "delta"), [*[(n, alpha, None) for n, alpha in MARGINAL_CASES], *PAC_CASES]
)
def test_the_law_that_is_stated_is_the_beta_law(n, alpha, delta):
    is_pac = delta is not None
    rank = pac_rank(n, alpha=alpha, delta=delta) if is_pac else conformal_rank(n, alpha=alpha)
    law = beta(rank, n + 1 - rank)

    stated = theory.coverage_law(n, alpha=alpha, delta=delta)

    assert stated.mean() == pytest.approx(rank / (n + 1), rel=1e-12)
    assert stated.var() == pytest.approx(law.var(), rel=1e-12)
    assert theory.coverage_variance(rank, n) == pytest.approx(law.var(), rel=1e-12)


# ---------------------------------------------------------------- too few rows


@pytest.mark.parametrize(
    ("n", "rows"),
    [(0, "0 calibration rows are"), (1, "1 calibration row is"), (8, "8 calibration rows are")],
    ids=str,
)
@pytest.mark.parametrize(
    ("calibrate", "guarantee", "smallest"),
    [(split_conformal, "marginal", 9), (partial(bayesian_quadrature, delta=0.05), "pac", 29)],
    ids=["marginal", "pac"],
)
def test_too_few_rows_give_infinity_and_name_the_smallest_n(
    calibrate, guarantee, smallest, n, rows
):
    sentence = rf"^{rows} too few.*At least {smallest} rows are"
    with pytest.warns(dco.InfeasibleLevelWarning, match=sentence) as warning:
        threshold = calibrate(np.zeros(n), alpha=0.1)

    assert threshold.value == math.inf
    assert threshold.rank == n + 1
    assert threshold.guarantee == guarantee
    assert warning[0].filename == __file__  # it points at the caller


# ---------------------------------------------------------------- what scores may be


def test_scores_that_are_nan_are_counted(calibrate):
    scores = np.where(np.isin(np.arange(50), [7, 9]), np.nan, 1.0)

    with pytest.raises(dco.NonFiniteScoreError, match=r"2 of 50 scores are NaN \(first: row 7\)"):
        calibrate(scores)


@pytest.mark.parametrize(
    "scores",
    [
        np.zeros((5, 2)),
        np.float64(3),
        np.array(["a", "b"]),
        np.array([1j]),
        np.array([None]),
    ],
    ids=["matrix", "number", "text", "complex", "objects"],
)
def test_what_is_not_a_column_of_numbers_is_refused(calibrate, scores):
    with pytest.raises(ValueError, match="scores must be"):
        calibrate(scores)


def test_infinite_scores_above_the_rank_leave_a_finite_threshold(calibrate):
    scores = np.arange(40.0)
    rank = calibrate(scores).rank
    scores[rank:] = np.inf

    assert calibrate(scores).value == rank - 1


def test_an_infinite_score_at_the_rank_makes_the_threshold_infinite(calibrate):
    scores = np.arange(40.0)
    rank = calibrate(scores).rank
    scores[rank - 1 :] = np.inf

    assert calibrate(scores).value == np.inf


def test_scores_of_minus_infinity_are_legal(calibrate):
    assert calibrate(np.full(40, -np.inf)).value == -np.inf


@pytest.mark.parametrize(
    "dtype",
    [np.int8, np.int64, np.uint16, np.bool_, np.float16, np.float32, np.float64, np.longdouble],
)
def test_every_real_dtype_keeps_its_values(calibrate, dtype):
    scores = (np.arange(40) % 7).astype(dtype)

    threshold = calibrate(scores)

    assert threshold.value == float(np.sort(scores)[threshold.rank - 1])


@pytest.mark.parametrize("seed", range(8))  # half of the longdoubles would round down
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.longdouble])
def test_the_value_covers_the_score_it_was_made_of(calibrate, dtype, seed):
    """In the dtype of the scores, exactly rank of n distinct scores are at most the value."""
    scores = np.random.default_rng(seed).normal(size=80).astype(dtype) + dtype(1) / dtype(3)

    threshold = calibrate(scores)

    assert np.sum(scores <= threshold.value) == threshold.rank


def make_read_only(scores):
    frozen = scores.copy()
    frozen.setflags(write=False)
    return frozen


@pytest.mark.parametrize(
    "convert",
    [np.asarray, lambda scores: scores[::-1], np.ndarray.tolist, make_read_only],
    ids=["strided", "reversed", "list", "read-only"],
)
def test_scores_come_in_any_layout_and_stay_as_they_are(calibrate, convert):
    """Partitioning must not reorder the caller's rows."""
    strided = np.random.default_rng(2).normal(size=(60, 3))[:, 1]
    before = strided.copy()

    assert calibrate(convert(strided)) == calibrate(before.copy())
    np.testing.assert_array_equal(strided, before)


scores_with_ties = hnp.arrays(
    st.sampled_from([np.float32, np.float64]),
    st.integers(10, 60),
    elements=st.one_of(
        st.sampled_from([0.0, 1.0, -1.0, math.inf, -math.inf]), st.floats(width=32, allow_nan=False)
    ),
)


@settings(max_examples=150)
@given(scores=scores_with_ties, seed=st.integers(0, 2**32 - 1))
def test_the_order_of_rows_is_irrelevant(scores, seed):
    shuffled = np.random.default_rng(seed).permutation(scores)

    for calibrate in PUBLIC.values():
        assert calibrate(shuffled) == calibrate(scores)


@settings(max_examples=150)
@given(scores=scores_with_ties)
def test_the_rank_is_right_under_ties(scores):
    for calibrate in PUBLIC.values():
        threshold = calibrate(scores)
        n_below = np.sum(scores < threshold.value)
        n_at_most = np.sum(scores <= threshold.value)
        assert n_below < threshold.rank <= n_at_most


@settings(max_examples=150)
@given(scores=scores_with_ties)
def test_an_increasing_map_of_scores_maps_the_threshold(scores):
    scores = scores.astype(np.float64)
    for calibrate in PUBLIC.values():
        value = calibrate(scores).value
        assert calibrate(np.arctan(scores)).value == np.arctan(value)
        assert calibrate(scores.astype(np.float32)).value == np.float32(value)


def test_a_level_that_is_no_probability_is_named():
    sentence = r"alpha must be a number strictly between 0 and 1, got 1\.5"
    with pytest.raises(ValueError, match=sentence):
        split_conformal(np.arange(5.0), alpha=1.5)


@pytest.mark.parametrize("delta", [0, None])
def test_a_delta_that_is_no_probability_is_named(delta):
    sentence = f"delta must be a number strictly between 0 and 1, got {delta}"
    with pytest.raises(ValueError, match=sentence):
        bayesian_quadrature(np.arange(50.0), alpha=0.1, delta=delta)


def test_a_threshold_is_a_float():
    threshold = Threshold(1, rank=2, n=3, guarantee="none", alpha=0.5)

    assert type(threshold.value) is float


def test_a_score_takes_a_threshold_for_its_value():
    threshold = Threshold(1, rank=2, n=3, guarantee="none", alpha=0.5)

    sets = dco.scores.APS().sets(dco.ClassProbabilities([[0.5, 0.5]]), threshold)

    assert sets.to_lists() == [[0, 1]]


def test_a_threshold_is_not_nan():
    with pytest.raises(ValueError, match="not NaN"):
        Threshold(float("nan"), rank=2, n=3, guarantee="none", alpha=0.5)


# ---------------------------------------------------------------- scores in many places


def draw_scores(kind):
    rng = np.random.default_rng(0)
    match kind:
        case "normal":
            return rng.normal(size=5_000)
        case "tied":
            return rng.integers(-3, 3, size=4_000) / 4
        case "infinite":
            return np.where(rng.random(900) < 0.2, np.inf, rng.exponential(size=900))
        case "all sizes":
            return rng.normal(size=2_000) * 10.0 ** rng.integers(-320, 300, size=2_000)
        case "zeros":
            return np.where(rng.random(300) < 0.5, -0.0, 0.0)


@pytest.mark.parametrize("alpha", [0.1, "1/3", 0.9, 0.02], ids=str)
@pytest.mark.parametrize("kind", ["normal", "tied", "infinite", "all sizes", "zeros"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_threshold_of_parts_is_that_of_all_scores(kind, dtype, alpha):
    with np.errstate(over="ignore"):
        scores = draw_scores(kind).astype(dtype)
    parts = np.array_split(scores, [0, 7, 11, len(scores) // 2])

    marginal = partitioned_conformal(parts, alpha=alpha)
    pac = partitioned_conformal(parts, alpha=alpha, delta=0.3)

    assert marginal == split_conformal(scores, alpha=alpha)
    assert pac == bayesian_quadrature(scores, alpha=alpha, delta=0.3)


def test_parts_are_read_where_they_lie(tmp_path):
    parts = np.random.default_rng(1).normal(size=(3, 400))
    for number, part in enumerate(parts):
        np.save(tmp_path / f"{number}.npy", part)
    read = [partial(np.load, tmp_path / f"{number}.npy") for number in range(3)]

    threshold = partitioned_conformal(read, alpha=0.1, n_jobs=2)

    assert threshold == split_conformal(parts.ravel(), alpha=0.1)


CHANGES = {
    "other scores": lambda scores: scores + 3,
    "gone": lambda scores: scores[:0],
    "one score less": lambda scores: scores[:-1],
    "one score in place of another": lambda scores: np.where(
        scores == scores.min(), scores.max(), scores
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("n_calls_before", [1, 2, 3])
def test_a_part_that_changes_while_it_is_read_is_an_error(change, n_calls_before):
    scores = np.random.default_rng(0).normal(size=1_000)
    calls = []

    def second_part():
        calls.append(1)
        return scores[500:] if len(calls) <= n_calls_before else change(scores[500:])

    with pytest.raises(ValueError, match="Part 2 of 2 changed while it was read"):
        partitioned_conformal([scores[:500], second_part], alpha=0.1)


def test_a_part_may_give_its_scores_in_another_order():
    scores = np.random.default_rng(0).normal(size=1_000)
    calls = []

    def part():
        calls.append(1)
        return np.random.default_rng(len(calls)).permutation(scores)

    assert partitioned_conformal([part], alpha=0.1) == split_conformal(scores, alpha=0.1)


def test_too_few_scores_in_all_parts_give_infinity():
    with pytest.warns(dco.InfeasibleLevelWarning, match="At least 9 rows are needed"):
        threshold = partitioned_conformal([[0.1, 0.2], [0.3]], alpha=0.1)

    assert threshold.value == np.inf


def test_scores_of_parts_that_are_nan_are_counted():
    with pytest.raises(dco.NonFiniteScoreError, match="1 of 2 scores are NaN"):
        partitioned_conformal([[0.1, np.nan]], alpha=0.1)
