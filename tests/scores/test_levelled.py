"""Scores levelled over the prediction: brute force, and every fifth covered about alike."""

import numpy as np
import pytest

import dco
from dco.calibration import split_conformal
from dco.predictions import fifths
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


def growing(rng, n):
    """Errors that grow with the prediction, ten times from the lowest to the highest."""
    mean = rng.uniform(1, 10, size=n)
    return mean, mean + 0.1 * mean * rng.normal(size=n)


@pytest.mark.parametrize("score", SCORES, ids=str)
def test_the_factor_is_the_quantile_of_each_fifth_and_linear_between_their_medians(score):
    rng = np.random.default_rng(0)
    mean, y = growing(rng, 503)
    scores = score.observed(dco.Points(mean), y)
    made, order = Levelled.of(score, mean, scores, alpha=0.2), np.argsort(mean)
    edges = [int(np.ceil(503 * k / 5)) for k in range(6)]
    for place, factor, low, high in zip(
        made.places, made.factors, edges[:-1], edges[1:], strict=True
    ):
        own = order[low:high]
        assert place == np.median(mean[own])
        assert (scores[own] > factor).sum() == int(0.2 * (high - low))
    middle = dco.Points([(made.places[1] + made.places[2]) / 2, -1e9, 1e9])
    by_hand = np.array([(made.factors[1] + made.factors[2]) / 2, made.factors[0], made.factors[4]])
    y = np.array([5.0, 6.0, 7.0])
    np.testing.assert_allclose(made.observed(middle, y), score.observed(middle, y) / by_hand)
    grid = np.linspace(0.1, 12, 2001)
    record = dco.Points(np.full(2001, mean[0]))
    held = score.observed(record, grid) / np.interp(mean[0], made.places, made.factors) <= 1.3
    np.testing.assert_array_equal(made.sets(record, 1.3).contains(grid), held)
    np.testing.assert_allclose(made.sizes(record, 1.3), made.sets(record, 1.3).sizes())


def test_every_fifth_is_covered_about_alike_where_one_width_leaves_the_highest_behind():
    rng = np.random.default_rng(1)
    (tune, tune_y), (mean, y), (new, new_y) = (
        growing(rng, 1000),
        growing(rng, 999),
        growing(rng, 20_000),
    )
    made = Levelled.of(AbsoluteResidual(), tune, np.abs(tune_y - tune), alpha=0.1)
    share = {}
    for score in (AbsoluteResidual(), made):
        threshold = split_conformal(score.observed(dco.Points(mean), y), alpha=0.1)
        covered = score.sets(dco.Points(new), threshold).contains(new_y)
        share[score] = [covered[fifths(new) == k].mean() for k in range(5)]
    assert min(share[AbsoluteResidual()]) < 0.8
    assert min(share[made]) > 0.86  # a fifth of 200 tuning rows has a standard error of .021


def test_what_cannot_be_levelled_is_none():
    """Scores below 0 have no scale, and a fifth without errors would get a factor of 0."""
    mean, y = np.arange(50.0), np.arange(50.0) + 1
    pair = dco.Quantiles(mean - 2, mean + 2)
    assert (
        Levelled.of(QuantileResidual(), mean, QuantileResidual().observed(pair, y), alpha=0.1)
        is None
    )
    assert (
        Levelled.of(AbsoluteResidual(), mean, np.r_[np.zeros(10), np.ones(40)], alpha=0.1) is None
    )
    assert Levelled.of(AbsoluteResidual(), np.zeros(50), np.ones(50), alpha=0.1).factors == (1.0,)


def test_default_candidates_are_levelled_saved_and_verified(tmp_path):
    rng = np.random.default_rng(4)
    X = rng.uniform(1, 10, size=(1500, 1))
    y = 20 + X[:, 0] + 0.3 * X[:, 0] * rng.normal(size=1500)
    est = dco.DecoupledRegressor(["linear"], random_state=0).fit(X, y)
    assert est.best_candidate_.startswith("linear / Levelled(")
    dco.save(est, tmp_path / "model.dco")
    again = dco.load(tmp_path / "model.dco")
    np.testing.assert_array_equal(again.predict_set(X).lower, est.predict_set(X).lower)
    rows = est.splits_.calibrate
    assert again.certificate_.verify(X[rows], y[rows], predictor=again).holds
    few = dco.DecoupledRegressor(["linear"], random_state=0).fit(X[:100], y[:100])
    assert not any("Levelled" in row.name for row in few.ranking_.table)
    given = dco.DecoupledRegressor(["linear"], [AbsoluteResidual()], random_state=0).fit(X, y)
    assert given.best_candidate_ == "linear / AbsoluteResidual"
    spread = dco.DecoupledRegressor(["spread"], NormalisedResidual(), random_state=0).fit(
        X[:200], y[:200]
    )
    assert spread.best_candidate_ == "spread / NormalisedResidual"
