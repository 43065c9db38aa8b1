"""How estimators rank rows with conditions and clusters, and how settled a ranking is."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import BayesianRidge, LinearRegression, Ridge
from zero_intervals import rank_zero

import dco
from dco.scores import AbsoluteResidual, NormalisedResidual

pytestmark = pytest.mark.filterwarnings("ignore")  # notes of the fits


def test_each_condition_has_its_own_threshold():
    easy = np.arange(1.0, 11.0)
    row = rank_zero(np.r_[easy, 10 * easy], part=np.repeat([0, 1], 10), condition_on=0, alpha=0.2)
    assert row.ranking_threshold == 80.0  # the larger one; the other is 8
    assert row.mean_size == (2 * 8 + 2 * 80) / 2
    assert row.miscoverage == 0.2


def test_clusters_weigh_the_same_whatever_their_size():
    """One cluster of 90 easy rows and nine of one hard row: pooled rows ignore the hard ones."""
    y = np.r_[np.full(90, 1.0), np.arange(2.0, 11.0)]
    clusters = np.r_[np.zeros(90), np.arange(1, 10)]
    assert rank_zero(y, alpha=0.1).ranking_threshold == 1.0

    row = rank_zero(y, clusters=clusters, alpha=0.1)
    assert row.ranking_threshold == 9.0  # one of ten clusters may be missed
    assert row.miscoverage == pytest.approx(0.1)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=15)
def test_thresholds_of_clusters_equal_brute_force_in_fractions(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    clusters = rng.integers(8, size=n)
    y = rng.integers(6, size=n).astype(float)
    shares = [Fraction(1, int(np.count_nonzero(clusters == c))) for c in clusters]
    n_clusters = len(np.unique(clusters))

    def missed(threshold):
        pairs = zip(shares, y, strict=True)
        return sum(share for share, value in pairs if value > threshold) / n_clusters

    smallest = min(threshold for threshold in np.unique(y) if missed(threshold) <= Fraction(1, 4))
    assert rank_zero(y, clusters=clusters, alpha=0.25).ranking_threshold == smallest


def test_weights_too_fine_for_machine_integers_stay_exact():
    """Clusters of 2, 3, 5, ... 53 rows: a common denominator has 65 bits."""
    sizes = np.array([2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53])
    clusters = np.repeat(np.arange(16), sizes)
    y = np.random.default_rng(4).permutation(clusters.size) + 1.0
    threshold = rank_zero(y, clusters=clusters, alpha=0.1).ranking_threshold

    def missed(threshold):
        return sum(Fraction(1, 16 * int(sizes[c])) for c in clusters[y > threshold])

    assert missed(threshold) <= Fraction(1, 10) < missed(threshold - 1)


MODELS = {"line": LinearRegression(), "flat": Ridge(1e4), "bayes": BayesianRidge()}


@pytest.mark.parametrize("objective", ["mean_size", "p95_size", "even"])
def test_stability_is_the_share_of_halves_on_which_the_winner_wins_again(objective):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(160, 2))
    y = X[:, 0] + (0.3 + np.abs(X[:, 1])) * rng.normal(size=160)
    X_tune = X[40:120]
    y_tune = y[40:120]
    models = {
        name: FrozenEstimator(model.fit(X[:40], y[:40] + 0.1 * number))
        for number, (name, model) in enumerate(MODELS.items())
    }
    scores = [AbsoluteResidual(), NormalisedResidual()]

    est = dco.DecoupledRegressor(models, scores, objective=objective, random_state=7)
    est.fit(X[:40], y[:40], tune=(X_tune, y_tune), calibrate=(X[120:], y[120:]))

    candidates = {
        f"{name} / AbsoluteResidual": (AbsoluteResidual(), dco.Points(model.predict(X_tune)))
        for name, model in models.items()
    }
    mean, sd = models["bayes"].predict(X_tune, return_std=True)
    with_spread = dco.PointsWithSpread(mean, sd)
    candidates["bayes / NormalisedResidual"] = (NormalisedResidual(), with_spread)
    draws = np.random.default_rng([7, 3])
    n_wins = 0
    for _ in range(50):
        half = draws.permutation(80)[:40]
        halved = {name: (score, record.take(half)) for name, (score, record) in candidates.items()}
        best = dco.tune(halved, y_tune[half], alpha=0.1, objective=objective).best
        n_wins += best == est.best_candidate_
    assert est.certificate_.structure.stability == n_wins / 50
    assert 0 < n_wins < 50
