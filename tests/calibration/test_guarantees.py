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

from dco import partitioned_conformal, theory
from dco.calibration import GUARANTEES, Marginal, bayesian_quadrature, register, split_conformal
from dco.calibration.guarantee import guarantee_called
from dco.foundations.errors import InfeasibleLevelWarning, NonFiniteScoreError
from dco.foundations.ranks import Threshold, conformal_rank, pac_rank
from dco.predictions import ClassProbabilities
from dco.scores import APS

PUBLIC = {
    "split_conformal": partial(split_conformal, alpha=0.25),
    "bayesian_quadrature": partial(bayesian_quadrature, alpha=0.25, delta=0.1),
}


@pytest.fixture(params=GUARANTEES)
def guarantee(request):
    """Each guarantee, at delta = 1/20."""
    return guarantee_called(request.param, delta=Fraction(1, 20))


@pytest.fixture(params=PUBLIC)
def calibrate(request):
    return PUBLIC[request.param]


# ---- every guarantee -----------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [Fraction(1, 10), Fraction(1, 4), Fraction(1, 2)], ids=str)
def test_a_threshold_is_the_order_statistic_of_its_rank(guarantee, alpha):
    """Infinite below `smallest_size` scores, finite from there on."""
    smallest = guarantee.smallest_size(alpha=alpha)
    for n in range(1, smallest + 90):
        scores = np.random.default_rng(n).permutation(np.arange(1.0, n + 1))
        threshold = guarantee.threshold(scores, alpha=alpha)
        assert threshold.rank == guarantee.rank(n, alpha=alpha)
        assert threshold.value == (threshold.rank if n >= smallest else np.inf)
        assert (threshold.rank <= n) == (n >= smallest)


def test_a_threshold_knows_its_statement(guarantee):
    threshold = guarantee.threshold(np.arange(99.0), alpha=Fraction(1, 10))
    delta = 0.05 if guarantee.needs_delta else None
    stated = (threshold.n, threshold.guarantee, threshold.alpha, threshold.delta)
    assert stated == (99, guarantee.certifies, 0.1, delta)


def test_a_larger_alpha_or_delta_never_has_a_higher_rank(guarantee):
    levels = [Fraction(number, 20) for number in range(1, 20)]
    ranks = np.array(
        [
            [
                guarantee_called(guarantee.name, delta=delta).rank(100, alpha=alpha)
                for alpha in levels
            ]
            for delta in levels
        ]
    )
    assert np.all(np.diff(ranks, axis=0) <= 0)
    assert np.all(np.diff(ranks, axis=1) <= 0)


def test_ties_only_raise_coverage(guarantee):
    """Scores in {0, 1, 2, 3}: mean coverage at least k / (n + 1), by a one-sided test with error
    rate 0.1 %.
    """
    rng, n, runs, law = np.random.default_rng(3), 40, 4000, np.array([0.4, 0.3, 0.2, 0.1])
    alpha = Fraction(1, 5)
    thresholds = [
        guarantee.threshold(rng.choice(4, size=n, p=law), alpha=alpha) for _ in range(runs)
    ]
    coverage = np.cumsum(law)[[int(threshold.value) for threshold in thresholds]]
    # coverage is 0.4 to 1: sd at most 0.3
    assert coverage.mean() > thresholds[0].expected_coverage - 3.1 * 0.3 / math.sqrt(runs)


def test_the_sentence_takes_what_a_statement_knows(guarantee):
    sentence = guarantee.sentence.format(
        level="90 %", sure="95 %", who="a new row", many="new rows", where=", everywhere"
    )
    assert "90 %" in sentence
    assert ("95 %" in sentence) == guarantee.needs_delta
    assert ", everywhere." in sentence


def test_a_guarantee_is_registered_by_a_name_that_is_free(monkeypatch):
    @dataclass(frozen=True)
    class Other(Marginal):
        """Another guarantee of the same name."""

    monkeypatch.setattr(Other, "name", "marginal")
    with pytest.raises(ValueError, match='a guarantee named "marginal" already'):
        register(Other)


def test_an_unknown_guarantee_is_refused_by_name():
    with pytest.raises(ValueError, match='guarantee must be "marginal" or "pac"'):
        guarantee_called("best", delta=None)


# ---- laws ----------------------------------------------------------------------------------------
# --------------------


@pytest.mark.parametrize(
    ("n", "alpha", "delta"),
    [(99, 0.1, None), (50, 0.2, None), (30, 0.05, None), (60, 0.1, 0.1), (200, 0.2, 0.05)],
)
def test_coverage_follows_its_beta_law(n, alpha, delta):
    """Uniform scores: coverage equals the threshold, which is Beta(k, n + 1 - k). Error rate of
    each test 1 %.

    P(coverage < 1 - alpha) of a PAC threshold is the Beta tail, which is at most delta, and would
    exceed it one rank lower.
    """
    rng, runs = np.random.default_rng(20), 3000
    calibrate = (
        partial(split_conformal, alpha=alpha)
        if delta is None
        else partial(bayesian_quadrature, alpha=alpha, delta=delta)
    )
    coverage = np.array([calibrate(rng.uniform(size=n)).value for _ in range(runs)])
    k = conformal_rank(n, alpha=alpha) if delta is None else pac_rank(n, alpha=alpha, delta=delta)
    law, neighbour = beta(k, n + 1 - k), beta(k + 1, n - k) if k < n else beta(k - 1, n + 2 - k)
    assert kstest(coverage, law.cdf).pvalue > 0.01
    assert kstest(coverage, neighbour.cdf).pvalue < 1e-6  # one rank off is seen
    told = theory.coverage_law(n, alpha=alpha, delta=delta)
    assert (told.mean(), told.var()) == pytest.approx((k / (n + 1), law.var()), rel=1e-12)
    assert theory.coverage_variance(k, n) == pytest.approx(law.var(), rel=1e-12)
    if delta is not None:
        assert law.cdf(1 - alpha) <= delta < beta(k - 1, n + 2 - k).cdf(1 - alpha)
        assert binomtest(int(np.sum(coverage < 1 - alpha)), runs, law.cdf(1 - alpha)).pvalue > 0.01


# ---- too few rows, what is refused and what is legal
# -----------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 8])
@pytest.mark.parametrize(
    ("calibrate", "least"), [(split_conformal, 9), (partial(bayesian_quadrature, delta=0.05), 29)]
)
def test_too_few_rows_give_infinity_and_name_the_smallest_n(n, calibrate, least):
    rows = "1 calibration row is" if n == 1 else f"{n} calibration rows are"
    with pytest.warns(
        InfeasibleLevelWarning,
        match=rf"^{rows} too few.*At least {least} rows "
        rf"are",
    ) as caught:
        threshold = calibrate(np.zeros(n), alpha=0.1)
    assert (threshold.value, threshold.rank) == (math.inf, n + 1)
    assert threshold.guarantee == ("marginal" if least == 9 else "pac")
    assert caught[0].filename == __file__  # the warning points at the caller


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (
            np.where(np.isin(np.arange(50), [7, 9]), np.nan, 1.0),
            r"2 of 50 scores are NaN \(first: "
            r"row 7\)",
        ),
        (np.zeros((5, 2)), "scores must be"),
        (np.float64(3), "scores must be"),
        (np.array(["a", "b"]), "scores must be"),
        (np.array([1j]), "scores must be"),
        (np.array([None]), "scores must be"),
    ],
    ids=str,
)
def test_what_is_not_a_column_of_numbers_is_refused(calibrate, scores, message):
    with pytest.raises(NonFiniteScoreError if "NaN" in message else ValueError, match=message):
        calibrate(scores)


def test_infinite_scores_are_legal_and_sort_last(calibrate):
    scores = np.arange(40.0)
    rank = calibrate(scores).rank
    scores[rank:] = np.inf
    assert calibrate(scores).value == rank - 1
    scores[rank - 1] = np.inf
    assert calibrate(scores).value == np.inf
    assert calibrate(np.full(40, -np.inf)).value == -np.inf


@pytest.mark.parametrize(
    "dtype",
    [np.int8, np.int64, np.uint16, np.bool_, np.float16, np.float32, np.float64, np.longdouble],
)
def test_every_real_dtype_keeps_its_values(calibrate, dtype):
    scores = (np.arange(40) % 7).astype(dtype)
    assert calibrate(scores).value == float(np.sort(scores)[calibrate(scores).rank - 1])


def test_the_value_covers_the_score_it_was_made_of(calibrate):
    """In the dtype of the scores, exactly rank of n distinct scores are at most the value."""
    for dtype in (np.float32, np.float64, np.longdouble):
        for seed in range(8):  # half of the longdoubles would round down
            scores = np.random.default_rng(seed).normal(size=80).astype(dtype) + dtype(1) / dtype(3)
            threshold = calibrate(scores)
            assert np.sum(scores <= threshold.value) == threshold.rank


def test_lists_and_strided_and_read_only_arrays(calibrate):
    column = np.random.default_rng(2).normal(size=(60, 3))[:, 1]
    before, frozen = column.copy(), column.copy()
    frozen.setflags(write=False)
    for given_as in (column, column[::-1], column.tolist(), frozen):
        assert calibrate(given_as) == calibrate(before.copy())
    np.testing.assert_array_equal(column, before)  # partitioning must not reorder the caller's rows


scores_with_ties = hnp.arrays(
    st.sampled_from([np.float32, np.float64]),
    st.integers(10, 60),
    elements=st.one_of(
        st.sampled_from([0.0, 1.0, -1.0, math.inf, -math.inf]), st.floats(width=32, allow_nan=False)
    ),
)


@settings(max_examples=150)
@given(scores=scores_with_ties, seed=st.integers(0, 2**32 - 1))
def test_order_of_rows_is_irrelevant_and_the_rank_is_right_under_ties(scores, seed):
    for calibrate in PUBLIC.values():
        threshold = calibrate(scores)
        assert calibrate(np.random.default_rng(seed).permutation(scores)) == threshold
        assert (
            np.sum(scores < threshold.value) < threshold.rank <= np.sum(scores <= threshold.value)
        )
        wide = scores.astype(np.float64)  # an increasing map of scores maps the threshold
        assert calibrate(np.arctan(wide)).value == np.arctan(calibrate(wide).value)
        assert calibrate(wide.astype(np.float32)).value == np.float32(calibrate(wide).value)


def test_bad_levels_are_named():
    with pytest.raises(
        ValueError,
        match=r"alpha must be a number strictly between 0 and 1, got "
        r"1\.5",
    ):
        split_conformal(np.arange(5.0), alpha=1.5)
    for delta in (0, None):
        with pytest.raises(
            ValueError, match=f"delta must be a number strictly between 0 and 1, got {delta}"
        ):
            bayesian_quadrature(np.arange(50.0), alpha=0.1, delta=delta)


def test_a_threshold_is_a_float_and_not_nan():
    whole = Threshold(1, rank=2, n=3, guarantee="none", alpha=0.5)
    assert type(whole.value) is float
    assert APS().sets(ClassProbabilities([[0.5, 0.5]]), whole).to_lists() == [[0, 1]]
    with pytest.raises(ValueError, match="not NaN"):
        Threshold(float("nan"), rank=2, n=3, guarantee="none", alpha=0.5)


# ---- scores in many places
# -------------------------------------------------------------------------------------------


def scores_of(kind):
    rng = np.random.default_rng(0)
    return {
        "normal": lambda: rng.normal(size=5_000),
        "tied": lambda: rng.integers(-3, 3, size=4_000) / 4,
        "infinite": lambda: np.where(rng.random(900) < 0.2, np.inf, rng.exponential(size=900)),
        "all sizes": lambda: rng.normal(size=2_000) * 10.0 ** rng.integers(-320, 300, size=2_000),
        "zeros": lambda: np.where(rng.random(300) < 0.5, -0.0, 0.0),
    }[kind]()


@pytest.mark.parametrize("kind", ["normal", "tied", "infinite", "all sizes", "zeros"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_threshold_of_parts_is_that_of_a_sort(kind, dtype):
    with np.errstate(over="ignore"):
        scores = scores_of(kind).astype(dtype)
    parts = np.array_split(scores, [0, 7, 11, len(scores) // 2])
    for alpha in (0.1, "1/3", 0.9, 0.02):
        assert partitioned_conformal(parts, alpha=alpha) == split_conformal(scores, alpha=alpha)
        together = bayesian_quadrature(scores, alpha=alpha, delta=0.3)
        assert partitioned_conformal(parts, alpha=alpha, delta=0.3) == together


def test_parts_are_read_where_they_lie(tmp_path):
    parts = np.random.default_rng(1).normal(size=(3, 400))
    for place, part in enumerate(parts):
        np.save(tmp_path / f"{place}.npy", part)
    read = [partial(np.load, tmp_path / f"{place}.npy") for place in range(3)]
    assert partitioned_conformal(read, alpha=0.1, n_jobs=2) == split_conformal(
        parts.ravel(), alpha=0.1
    )


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


def test_too_few_scores_and_scores_that_are_no_numbers():
    with pytest.warns(InfeasibleLevelWarning, match="At least 9 rows are needed"):
        assert partitioned_conformal([[0.1, 0.2], [0.3]], alpha=0.1).value == np.inf
    with pytest.raises(NonFiniteScoreError, match="1 of 2 scores are NaN"):
        partitioned_conformal([[0.1, np.nan]], alpha=0.1)
