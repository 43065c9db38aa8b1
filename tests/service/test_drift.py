"""Places of scores among earlier ones, and bets on them. Every seed is fixed."""

import math

import numpy as np
import pytest
from scipy.stats import kstest

from dco.service.drift import SortedScores, Stakes

RNG = np.random.default_rng(0)
N_SCORES = 9_000  # more than wait to be merged
SCORES = {
    "distinct": RNG.normal(size=N_SCORES),
    "with ties": RNG.integers(4, size=N_SCORES).astype(float),
}
of_each_kind = pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)


@of_each_kind
def test_a_place_is_counted_among_all_earlier_scores(scores):
    sorted_scores = SortedScores(scores[:20].tolist())
    for t in range(20, N_SCORES):
        place = sorted_scores.place(float(scores[t]), uniform=0.3)
        if t % 50 == 0:
            below = np.sum(scores[:t] < scores[t])
            equal = np.sum(scores[:t] == scores[t])
            assert place == (below + 0.3 * (1 + equal)) / (1 + t)


@of_each_kind
def test_places_are_uniform_and_independent(scores):
    """The p-value is above .001, the correlation within 3.3 standard errors."""
    rng = np.random.default_rng(1)
    sorted_scores = SortedScores()
    places = [sorted_scores.place(score, uniform=rng.random()) for score in scores[:3_000].tolist()]
    assert kstest(places, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(places[1:], places[:-1])[0, 1]) < 3.3 / math.sqrt(3_000)


def test_bets_on_places_have_mean_one():
    """Gauss-Legendre integrates a bet exactly, whatever the stakes."""
    nodes, weights = np.polynomial.legendre.leggauss(5)
    stakes = Stakes.before_first_row().after(0.93).after(0.1)
    totals = [stakes.after((node + 1) / 2).by_bet.sum() for node in nodes]
    assert np.dot(weights, totals) / 2 == pytest.approx(stakes.by_bet.sum())
