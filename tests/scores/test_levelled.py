"""Scores levelled over the prediction: brute force, and every fifth covered about alike."""

import numpy as np
import pytest

import dco
from dco.scores import (
    AbsoluteResidual,
    Levelled,
    NormalisedResidual,
    QuantileResidual,
    Transformed,
    Within,
)

SCORES = [
    AbsoluteResidual(),
    Transformed(AbsoluteResidual(), "log"),
    Within(AbsoluteResidual(), low=0),
]
every_score = pytest.mark.parametrize("score", SCORES, ids=str)


def draw_growing(rng, n):
    """Draw means and targets whose errors grow with the mean, ten times from lowest to highest."""
    mean = rng.uniform(1, 10, size=n)
    return mean, mean + 0.1 * mean * rng.normal(size=n)


def fifths_by_rank(values):
    """Return the positions of the values in each fifth, from the lowest on."""
    order = np.argsort(values)
    edges = [int(np.ceil(len(values) * k / 5)) for k in range(1, 5)]
    return np.split(order, edges)


# ---------------------------------------------------------------- factors


@pytest.fixture(scope="module")
def tuning_rows():
    return draw_growing(np.random.default_rng(0), 503)


@pytest.fixture
def scores(tuning_rows, score):
    mean, y = tuning_rows
    return score.observed(dco.Points(mean), y)


@pytest.fixture
def levelled(tuning_rows, score, scores):
    mean, _ = tuning_rows
    return Levelled.of(score, mean, scores, alpha=0.2)


@every_score
def test_each_fifth_has_its_factor_at_its_median(tuning_rows, levelled):
    mean, _ = tuning_rows

    medians = [np.median(mean[fifth]) for fifth in fifths_by_rank(mean)]

    assert list(levelled.places) == medians


@every_score
def test_a_factor_is_the_quantile_of_its_fifth(tuning_rows, scores, levelled):
    mean, _ = tuning_rows
    fifths = fifths_by_rank(mean)

    n_larger = [
        np.sum(scores[fifth] > factor)
        for fifth, factor in zip(fifths, levelled.factors, strict=True)
    ]

    assert n_larger == [int(0.2 * len(fifth)) for fifth in fifths]


@every_score
def test_factors_are_linear_between_medians_and_constant_beyond(score, levelled):
    between = (levelled.places[1] + levelled.places[2]) / 2
    points = dco.Points([between, -1e9, 1e9])
    y = np.array([5.0, 6.0, 7.0])

    scores = levelled.observed(points, y)

    mean_factor = (levelled.factors[1] + levelled.factors[2]) / 2
    factors = np.array([mean_factor, levelled.factors[0], levelled.factors[4]])
    np.testing.assert_allclose(scores, score.observed(points, y) / factors)


@every_score
def test_sets_hold_what_scores_at_most_the_threshold(tuning_rows, score, levelled):
    mean, _ = tuning_rows
    points = dco.Points(np.full(2001, mean[0]))
    grid = np.linspace(0.1, 12, 2001)

    sets = levelled.sets(points, 1.3)

    factor = np.interp(mean[0], levelled.places, levelled.factors)
    is_member = score.observed(points, grid) / factor <= 1.3
    np.testing.assert_array_equal(sets.contains(grid), is_member)
    np.testing.assert_allclose(levelled.sizes(points, 1.3), sets.sizes())


def test_scores_below_zero_cannot_be_levelled():
    mean = np.arange(50.0)
    scores = QuantileResidual().observed(dco.Quantiles(mean - 2, mean + 2), mean + 1)

    assert Levelled.of(QuantileResidual(), mean, scores, alpha=0.1) is None


def test_a_fifth_without_errors_cannot_be_levelled():
    """It would get a factor of 0."""
    scores = np.repeat([0.0, 1.0], [10, 40])

    assert Levelled.of(AbsoluteResidual(), np.arange(50.0), scores, alpha=0.1) is None


def test_one_prediction_for_all_rows_has_one_factor():
    levelled = Levelled.of(AbsoluteResidual(), np.zeros(50), np.ones(50), alpha=0.1)

    assert levelled.factors == (1.0,)


# ---------------------------------------------------------------- coverage


def coverage_of_fifths(score):
    """Calibrate at 90 % on 999 rows, and return the coverage of each fifth of 20,000 new ones."""
    rng = np.random.default_rng(1)
    mean, y = draw_growing(rng, 999)
    new_mean, new_y = draw_growing(rng, 20_000)
    threshold = dco.split_conformal(score.observed(dco.Points(mean), y), alpha=0.1)
    is_covered = score.sets(dco.Points(new_mean), threshold).contains(new_y)
    return [is_covered[fifth].mean() for fifth in fifths_by_rank(new_mean)]


def test_one_width_leaves_the_highest_fifth_behind():
    assert min(coverage_of_fifths(AbsoluteResidual())) < 0.8


def test_levelled_sets_cover_every_fifth_about_alike():
    """A fifth of 200 tuning rows has a standard error of .021."""
    mean, y = draw_growing(np.random.default_rng(2), 1000)
    levelled = Levelled.of(AbsoluteResidual(), mean, np.abs(y - mean), alpha=0.1)

    assert min(coverage_of_fifths(levelled)) > 0.86


# ---------------------------------------------------------------- candidates


@pytest.fixture(scope="module")
def rows():
    """Draw 1,500 rows whose noise grows with the prediction."""
    rng = np.random.default_rng(4)
    X = rng.uniform(1, 10, size=(1500, 1))
    return X, 20 + X[:, 0] + 0.3 * X[:, 0] * rng.normal(size=1500)


@pytest.fixture(scope="module")
def linear(rows):
    return dco.DecoupledRegressor(["linear"], random_state=0).fit(*rows)


def test_default_candidates_are_levelled(linear):
    assert linear.best_candidate_.startswith("linear / Levelled(")


def test_levelled_fits_are_saved_and_verified(linear, rows, tmp_path):
    X, y = rows
    dco.save(linear, tmp_path / "model.dco")

    loaded = dco.load(tmp_path / "model.dco")

    calibrate = linear.splits_.calibrate
    np.testing.assert_array_equal(loaded.predict_set(X).lower, linear.predict_set(X).lower)
    assert loaded.certificate_.verify(X[calibrate], y[calibrate], predictor=loaded).holds


def test_few_rows_are_not_levelled(rows):
    X, y = rows
    est = dco.DecoupledRegressor(["linear"], random_state=0).fit(X[:100], y[:100])

    assert not any("Levelled" in row.name for row in est.ranking_.table)


@pytest.mark.parametrize(
    ("model", "score"),
    [("linear", AbsoluteResidual()), ("spread", NormalisedResidual())],
    ids=["constant width", "own spread"],
)
def test_scores_of_the_caller_are_not_levelled(rows, model, score):
    est = dco.DecoupledRegressor([model], [score], random_state=0).fit(*rows)

    assert est.best_candidate_ == f"{model} / {type(score).__name__}"
