import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import brentq
from scipy.stats import norm

from dco.calibration import Threshold, split_conformal
from dco.foundations.errors import IncompatibleScoreError
from dco.predictions import (
    ClassProbabilities,
    GaussianMixtures,
    Points,
    PointsWithSpread,
    Quantiles,
)
from dco.scores import HighestDensityMass, Levelled, PredictiveDensity
from dco.scores.regression import (
    AbsoluteResidual,
    NormalisedResidual,
    QuantileResidual,
)
from dco.scores.score import Score
from dco.scores.transformed import Transformed, Within


def points(a, b, c):
    return Points(a)


def with_spread(a, b, c):
    return PointsWithSpread(a, np.abs(b))


def quantiles(a, b, c):
    return Quantiles(np.minimum(a, b), np.maximum(a, b), median=c)


def two_draws(a, b, c):
    return GaussianMixtures(
        np.stack([a, b], axis=1), np.abs(np.stack([c, a], axis=1)) + 1, draws_first=False
    )


def _cube(z):
    return z * z * z


# every score with every record that it reads, made from three arrays; a new member of the family is
# tested once listed
SCORES = {
    "absolute": (AbsoluteResidual(), points),
    "absolute with spread": (AbsoluteResidual(), with_spread),
    "absolute of mixtures": (AbsoluteResidual(), two_draws),
    "normalised": (NormalisedResidual(), with_spread),
    "normalised with floor": (NormalisedResidual(floor=0.5), with_spread),
    "normalised of mixtures": (NormalisedResidual(), two_draws),
    "quantile": (QuantileResidual(), quantiles),
    "quantile relative": (QuantileResidual("relative"), quantiles),
    "quantile median": (QuantileResidual("median"), quantiles),
    "log of absolute": (Transformed(AbsoluteResidual(), "log"), points),
    "log1p of normalised": (Transformed(NormalisedResidual(floor=0.5), "log1p"), with_spread),
    "sqrt of quantile": (Transformed(QuantileResidual("relative"), "sqrt"), quantiles),
    "asinh of absolute": (Transformed(AbsoluteResidual(), "asinh"), with_spread),
    "normal scores of absolute": (
        Transformed(AbsoluteResidual(), "quantile").fitted([-3.0, 0, 0, 0.1, 2, 7, 9]),
        points,
    ),
    "cubes of quantile": (Transformed(QuantileResidual(), (np.cbrt, _cube)), quantiles),
    "absolute within a range": (Within(AbsoluteResidual(), low=0.0), points),
    "log1p within a range": (
        Within(Transformed(AbsoluteResidual(), "log1p"), low=0.5, high=100.0),
        points,
    ),
    "levelled": (Levelled(AbsoluteResidual(), (-1.0, 0.0, 2.0), (0.5, 1.0, 3.0)), points),
}
every_score = pytest.mark.parametrize(("score", "record"), SCORES.values(), ids=SCORES.keys())
EVERY = {
    **SCORES,
    "density": (PredictiveDensity(), two_draws),
    "mass": (HighestDensityMass(), two_draws),
}
densities_too = pytest.mark.parametrize(("score", "record"), EVERY.values(), ids=EVERY.keys())

few = st.sampled_from([0.0, 1.0, -1.0, 0.1, 0.2, 0.3, 1e-300, 1e16, -3.3])
wide = st.floats(-1e150, 1e150, allow_nan=False)
number = st.one_of(few, wide, st.floats(-5, 5))
threshold_number = st.one_of(number, st.sampled_from([np.inf, -np.inf, -0.5, -1.0]))


def columns(n, dtype=np.float64, values=number):
    return hnp.arrays(np.float64, n, elements=values).map(
        lambda a: np.clip(a, -1e30, 1e30).astype(dtype)
    )


@every_score
@settings(max_examples=80)
@given(st.data())
def test_membership_is_the_score_compared_with_the_threshold(score, record, data):
    """Exactly, with ties, tiny and huge scales, float32, infinite thresholds, and y taken from the
    ends themselves.
    """
    n = data.draw(st.integers(1, 6))
    dtype = data.draw(st.sampled_from([np.float64, np.float32]))
    prediction = record(*(data.draw(columns(n, dtype)) for _ in range(3)))
    y = data.draw(hnp.arrays(np.float64, n, elements=st.one_of(number, st.just(np.inf))))
    own = score.observed(prediction, np.where(np.isfinite(y), y, 0.0))
    threshold = data.draw(st.one_of(threshold_number, st.sampled_from(own.tolist()), st.just(own)))
    sets = score.sets(prediction, threshold)
    for value in (
        y,
        y.astype(np.float32) if np.all(np.abs(y) < 1e38) else y,
        sets.lower,
        sets.upper,
    ):
        np.testing.assert_array_equal(
            sets.contains(value), score.observed(prediction, value) <= threshold
        )


@every_score
@settings(max_examples=60)
@given(st.data())
def test_the_ends_are_where_the_score_crosses_the_threshold(score, record, data):
    """A relative step of 1e-6 inside an end is in the set, the same step outside is not: the ends
    are no decoration.
    """
    n = data.draw(st.integers(1, 5))
    values = st.one_of(st.floats(-5, 5), st.sampled_from([0.0, 1.0, 3.0]))
    prediction = record(*(data.draw(columns(n, values=values)) for _ in range(3)))
    threshold = data.draw(st.floats(0.01, 10))
    sets = score.sets(prediction, threshold)
    assert isinstance(score, Within) or not sets.is_empty().any()
    # 1e-6 in y must exceed rounding: 1e-8 of the magnitude is the smallest scale that a denominator
    # can have
    step = 1e-6 * (np.abs(sets.lower) + np.abs(sets.upper) + sets.sizes())
    wide_enough = (sets.sizes() > 4 * step) & (step > 0)
    outside = ~(sets.contains(sets.lower - step) | sets.contains(sets.upper + step))
    assert np.all(outside | (step == 0))
    inside = sets.contains(sets.lower + step) & sets.contains(sets.upper - step)
    assert np.all(inside[wide_enough])


@every_score
@settings(max_examples=40)
@given(st.data())
def test_sets_grow_with_the_threshold(score, record, data):
    n = data.draw(st.integers(1, 5))
    prediction = record(*(data.draw(columns(n)) for _ in range(3)))
    small, large = sorted([data.draw(threshold_number), data.draw(threshold_number)])
    inner, outer = score.sets(prediction, small), score.sets(prediction, large)
    assert np.all(inner.is_empty() | ((outer.lower <= inner.lower) & (inner.upper <= outer.upper)))
    assert np.all(inner.sizes() <= outer.sizes())


@every_score
@settings(max_examples=40)
@given(st.data())
def test_sizes_without_sets_are_the_sizes_of_the_sets(score, record, data):
    n = data.draw(st.integers(1, 5))
    a, b, c = (data.draw(columns(n, values=st.floats(-100, 100))) for _ in range(3))
    threshold = data.draw(
        st.one_of(
            st.floats(-3, 100), st.sampled_from([np.inf, -np.inf]), st.just(np.linspace(-1, 5, n))
        )
    )
    prediction = record(a, b, c)
    sizes = score.sizes(prediction, threshold)
    assert sizes.shape == (n,)
    scale = np.abs(a) + np.abs(b) + np.abs(c) + 1
    np.testing.assert_allclose(
        sizes / scale, score.sets(prediction, threshold).sizes() / scale, rtol=1e-9, atol=1e-12
    )


@every_score
def test_layout_precision_and_order_of_rows_change_nothing(score, record):
    rng = np.random.default_rng(1)
    columns = rng.normal(size=(40, 3))
    y = rng.normal(size=40)
    plain = score.observed(record(*(np.ascontiguousarray(c) for c in columns.T)), y)
    strided = record(*columns.T)
    frozen = columns.copy()
    frozen.flags.writeable = False
    y.flags.writeable = False
    np.testing.assert_array_equal(score.observed(strided, y), plain)
    np.testing.assert_array_equal(score.observed(record(*frozen.T), y), plain)
    np.testing.assert_array_equal(
        score.sets(record(*frozen.T), 1.0).lower, score.sets(strided, 1.0).lower
    )
    order = rng.permutation(40)
    np.testing.assert_array_equal(score.observed(strided.take(order), y[order]), plain[order])
    for row in range(3):
        one = strided.take(np.array([row]))
        assert score.observed(one, y[[row]])[0] == plain[row]
    halves = record(*columns.astype(np.float32).T)
    same = record(*columns.astype(np.float32).astype(np.float64).T)
    # the record itself computes 1 + |sd| in the precision it is given
    if not isinstance(halves, GaussianMixtures):
        np.testing.assert_array_equal(score.observed(halves, y), score.observed(same, y))


@densities_too
def test_infinite_thresholds_give_the_whole_line_or_nothing(score, record):
    rng = np.random.default_rng(2)
    prediction = record(*rng.normal(size=(3, 10)))
    everything, nothing = score.sets(prediction, np.inf), score.sets(prediction, -np.inf)
    assert everything.is_infinite().all()
    assert everything.contains(np.full(10, 1e308)).all()
    assert np.all(everything.lower == -np.inf)
    assert np.all(everything.upper == np.inf)
    assert nothing.is_empty().all()
    assert not nothing.contains(np.zeros(10)).any()
    mixed = score.sets(prediction, np.array([np.inf, -np.inf] * 5))
    np.testing.assert_array_equal(mixed.is_infinite(), [True, False] * 5)
    np.testing.assert_array_equal(mixed.is_empty(), [False, True] * 5)


@densities_too
def test_a_threshold_may_be_a_record_a_number_or_one_a_row(score, record):
    rng = np.random.default_rng(3)
    prediction = record(*rng.normal(size=(3, 10)))
    record_of_one = Threshold(1.5, rank=9, n=10, guarantee="marginal", alpha=0.1)
    for threshold in (record_of_one, np.float32(1.5), np.full(10, 1.5)):
        np.testing.assert_array_equal(
            score.sets(prediction, threshold).upper, score.sets(prediction, 1.5).upper
        )
    with pytest.raises(ValueError, match="NaN"):
        score.sets(prediction, np.nan)
    with pytest.raises(ValueError, match=r"\(10,\)"):
        score.sets(prediction, np.ones(3))


@densities_too
def test_scores_are_scores_and_compare_print_and_pickle(score, record):
    assert isinstance(score, Score)
    assert pickle.loads(pickle.dumps(score)) == score
    assert hash(score) == hash(pickle.loads(pickle.dumps(score)))
    rng = np.random.default_rng(4)
    prediction = record(*rng.normal(size=(3, 10)))
    assert isinstance(prediction, score.needs)
    copy = pickle.loads(pickle.dumps(score.sets(prediction, 0.9)))
    y = rng.normal(size=10)
    np.testing.assert_array_equal(copy.contains(y), score.sets(prediction, 0.9).contains(y))


@densities_too
def test_wrong_input_is_refused_in_one_sentence(score, record):
    prediction = record(*np.random.default_rng(5).normal(size=(3, 4)))
    readable = " or ".join(kind.__name__ for kind in score.needs)
    with pytest.raises(
        IncompatibleScoreError, match=f"needs {readable}, but the prediction is ClassProbabilities"
    ):
        score.observed(ClassProbabilities([[0.5, 0.5]]), [0.0])
    with pytest.raises(ValueError, match="each of the 4 rows"):
        score.observed(prediction, [0.0])
    with pytest.raises(ValueError, match="real numbers"):
        score.observed(prediction, list("abcd"))


def test_no_rows_give_no_scores():
    for score, record in EVERY.values():
        prediction = record(*np.zeros((3, 0)))
        assert score.observed(prediction, np.zeros(0)).shape == (0,)
        assert len(score.sets(prediction, 1.0)) == 0


# --- closed forms


def assert_ends(sets, lower, upper):
    """The ends, rounded outwards by a few units in the last place of what they are the sum of (at
    most 8 here).
    """
    assert np.all((sets.lower <= lower) & (sets.upper >= upper))
    np.testing.assert_allclose(sets.lower, lower, rtol=0, atol=5 * np.spacing(4.0))
    np.testing.assert_allclose(sets.upper, upper, rtol=0, atol=5 * np.spacing(4.0))


def test_absolute_and_normalised_residuals_by_hand():
    prediction = PointsWithSpread([1.0, 2.0, -1.0], [0.5, 2.0, 0.0])
    y = [2.0, 1.0, -1.0]
    np.testing.assert_array_equal(AbsoluteResidual().observed(prediction, y), [1.0, 1.0, 0.0])
    np.testing.assert_array_equal(NormalisedResidual().observed(prediction, y), [2.0, 0.5, 0.0])
    np.testing.assert_array_equal(
        NormalisedResidual(floor=0.5).observed(prediction, y), [1.0, 0.4, 0.0]
    )
    sets = NormalisedResidual(floor=0.5).sets(prediction, 2.0)
    assert_ends(sets, [-1.0, -3.0, -2.0], [3.0, 7.0, 0.0])


def test_a_spread_of_zero_admits_the_mean_only():
    prediction = PointsWithSpread([1.0, 1.0], [0.0, 0.0])
    score = NormalisedResidual()
    np.testing.assert_array_equal(score.observed(prediction, [1.0, 1.5]), [0.0, np.inf])
    sets = score.sets(prediction, 1e300)
    np.testing.assert_array_equal(sets.sizes(), [0.0, 0.0])
    np.testing.assert_array_equal(sets.contains([1.0, 1.0 + 1e-15]), [True, False])
    assert score.sets(prediction, np.inf).is_infinite().all()
    np.testing.assert_array_equal(score.sizes(prediction, np.inf), [np.inf, np.inf])


def test_a_negative_threshold_empties_residual_sets_even_below_rounding():
    prediction = PointsWithSpread([1.0], [1.0])
    for score in (AbsoluteResidual(), NormalisedResidual()):
        for threshold in (-1e-300, np.array([-1e-300])):
            assert score.sets(prediction, threshold).is_empty().all()
            assert not score.sets(prediction, threshold).contains([1.0]).any()


def test_ends_that_round_do_not_mislead_membership():
    """|0.7 - 0.1| <= 0.6 holds in floats and 0.7 <= 0.1 + 0.6 does not: the score decides, and ends
    are rounded outwards.
    """
    cases = [
        (0.1, 0.3, 0.2),
        (0.1, 0.7, 0.6),
        (1e16, 1e16 + 2, 1.5),
        (-1.0, 2.0**-54, 1.0),
        (0.3, 0.9, 0.6),
        (1 / 3, 1.0, 2 / 3),
    ]
    disagreements = 0
    for mean, y, threshold in cases:
        sets = AbsoluteResidual().sets(Points([mean]), threshold)
        assert sets.contains([y])[0] == (abs(y - mean) <= threshold)
        assert sets.contains([y])[0] <= (sets.lower[0] <= y <= sets.upper[0])
        disagreements += bool(sets.contains([y])[0] != (mean - threshold <= y <= mean + threshold))
    assert disagreements > 0  # otherwise ends to nearest would do, and this test would show nothing


def test_quantile_residuals_by_hand():
    prediction = Quantiles([0.0, 0.0, 0.0], [4.0, 4.0, 4.0], median=[1.0, 1.0, 1.0])
    y = [-2.0, 7.0, 1.0]
    np.testing.assert_array_equal(QuantileResidual().observed(prediction, y), [2.0, 3.0, -1.0])
    np.testing.assert_array_equal(
        QuantileResidual("relative").observed(prediction, y), [0.5, 0.75, -0.25]
    )
    np.testing.assert_array_equal(
        QuantileResidual("median").observed(prediction, y), [2.0, 1.0, -1.0]
    )
    for kind, lower, upper in [
        ("plain", -0.5, 4.5),
        ("relative", -2.0, 6.0),
        ("median", -0.5, 5.5),
    ]:
        assert_ends(QuantileResidual(kind).sets(prediction, 0.5), lower, upper)


def test_negative_thresholds_shrink_and_crossed_ends_are_empty():
    prediction = Quantiles([0.0], [4.0], median=[1.0])
    for kind, shrunk, crossed in [
        ("plain", -1.0, -2.1),
        ("relative", -0.25, -0.51),
        ("median", -0.5, -1.01),
    ]:
        score = QuantileResidual(kind)
        assert 0 < score.sizes(prediction, shrunk)[0] < 4
        assert score.sets(prediction, crossed).is_empty()[0]
        assert score.sizes(prediction, crossed)[0] == 0
        assert not score.sets(prediction, crossed).contains([1.0])[0]


def test_the_median_kind_says_when_the_median_is_missing():
    with pytest.raises(IncompatibleScoreError, match="median="):
        QuantileResidual("median").observed(Quantiles([0.0], [1.0]), [0.5])
    with pytest.raises(ValueError, match="kind"):
        QuantileResidual("mean")  # type: ignore[arg-type]
    for floor in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="floor"):
            NormalisedResidual(floor=floor)


# --- coverage and size against the oracle


def simulate(rng, n):
    """y = N(x, (0.5 + |x|)^2): mean, spread and quantiles are known."""
    x = rng.normal(size=n)
    spread = 0.5 + np.abs(x)
    y = x + spread * rng.normal(size=n)
    z = norm.ppf(0.8)
    return x, spread, z, y


def truth(score, x, spread, z):
    if isinstance(score, QuantileResidual):
        return Quantiles(x - z * spread, x + z * spread, median=x)
    return PointsWithSpread(x, spread)


# P(score <= t | x) and the half-width of the set at t, by spread, for the true mean, spread and
# quantiles at -+ z
ORACLES = {
    AbsoluteResidual(): lambda t, s, z: t + 0 * s,
    NormalisedResidual(): lambda t, s, z: t * s,
    QuantileResidual(): lambda t, s, z: z * s + t,
    QuantileResidual("relative"): lambda t, s, z: z * s * (1 + 2 * t),
    QuantileResidual("median"): lambda t, s, z: z * s * (1 + t),
}


@pytest.mark.parametrize("score", ORACLES, ids=str)
def test_calibrated_sets_cover_and_have_the_oracle_size(score):
    """Coverage is 0.9 within 4 standard errors, and the mean width is within 3 % of that of the
    population threshold, which solves E[2 Phi(half / spread) - 1] = 0.9. A flipped inequality or a
    lost factor keeps one of them at most.
    """
    rng = np.random.default_rng(7)
    x, spread, z, y = simulate(rng, 20_000)
    threshold = split_conformal(score.observed(truth(score, x, spread, z), y), alpha=0.1)
    x, spread, z, y = simulate(rng, 20_000)
    sets = score.sets(truth(score, x, spread, z), threshold)
    assert abs(sets.contains(y).mean() - 0.9) < 4 * np.sqrt(2 * 0.09 / 20_000)
    half = ORACLES[score]
    population = brentq(
        lambda t: np.mean(2 * norm.cdf(half(t, spread, z) / spread) - 1) - 0.9, 0, 20
    )
    assert abs(sets.sizes().mean() / np.mean(2 * half(population, spread, z)) - 1) < 0.03


# a threshold for each end


@pytest.mark.parametrize("centre", [-5.0, 0.0, 5.0])
@pytest.mark.parametrize("width", [0.0, 1e-12])
@pytest.mark.parametrize("kind", ["relative", "median"])
def test_denominators_have_a_floor_by_the_size_of_the_ends_on_both_sides_of_zero(
    kind, width, centre
):
    lower, upper = np.array([centre]), np.array([centre + width])
    record = Quantiles(lower, upper, median=(lower + upper) / 2)
    unit = max(
        width / (2 if kind == "median" else 1), 1e-8 * max(abs(lower[0]), abs(upper[0])), 1e-300
    )
    for y, score in ((centre - 1, 1 / unit), (centre + 1, 1 / unit), (centre, 0.0)):
        assert QuantileResidual(kind).observed(record, [y])[0] == pytest.approx(score, rel=1e-9)


def test_the_centre_of_a_mixture_is_its_mean_and_its_spread_the_standard_deviation():
    """The law of total variance; skewed means, so that the median is another number."""
    rng = np.random.default_rng(0)
    means, sds, y = rng.exponential(size=(30, 7)), rng.uniform(0.5, 2, size=7), rng.normal(size=30)
    record, distance = (
        GaussianMixtures(means, sds, draws_first=False),
        np.abs(y - means.mean(axis=1)),
    )
    np.testing.assert_allclose(AbsoluteResidual().observed(record, y), distance, rtol=1e-12)
    sd = np.sqrt(means.var(axis=1) + np.mean(sds**2))
    np.testing.assert_allclose(NormalisedResidual().observed(record, y), distance / sd, rtol=1e-12)
