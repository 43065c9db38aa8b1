"""Rows give the same result one by one, in any batches and from several threads."""

import sys
import threading

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge

import dco
from dco.service.rounding import choose_step, round_scores

from .conftest import draw_rows


def fit_two_points(seed):
    """Fit where features have two values and targets three, so that most scores are tied.

    Linear algebra rounds a row alone otherwise than in a batch. New rows come too.
    """
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(2, 80))
    model = Ridge().fit(rng.normal(size=(200, 80)), 3 * rng.normal(size=200))

    def draw(n):
        return points[rng.integers(2, size=n)], rng.choice([0.0, 2.0, 5.0], size=n)

    est = dco.DecoupledRegressor(
        FrozenEstimator(model), dco.scores.AbsoluteResidual(), tune_size=0, random_state=0
    )
    return est.fit(*draw(200)), draw(300)


def take_in_batches(est, X, y, *, size, **settings):
    monitor = dco.Monitor(est, **settings)
    for start in range(0, len(y), size):
        monitor.update(X[start : start + size], y[start : start + size])
    return monitor


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tied_scores_are_tied_however_the_rows_come(seed, size):
    est, (X, y) = fit_two_points(seed)
    whole = take_in_batches(est, X, y, size=len(y), duplicates="natural")
    pieces = take_in_batches(est, X, y, size=size, duplicates="natural")
    assert pieces.state() == whole.state()
    assert pieces.report() == whole.report()


@pytest.mark.parametrize("size", [1, 50])
def test_distinct_scores_give_the_same_state_however_the_rows_come(est, size):
    X, y = draw_rows(230, noise=1.5)
    whole = take_in_batches(est, X, y, size=len(y))
    assert take_in_batches(est, X, y, size=size).state() == whole.state()


SCORES = {
    "continuous": np.random.default_rng(0).exponential(size=1000),
    "near one": 1 - 1e-7 * np.random.default_rng(1).uniform(size=1000),
    "few values": np.random.default_rng(2).choice([0.1, 0.5, 2.0], size=1000),
    "mostly one value": np.r_[np.full(900, 0.3), np.random.default_rng(3).uniform(size=100)],
    "tiny": 1e-300 * np.random.default_rng(4).exponential(size=1000),
    "huge": 1e300 * np.random.default_rng(5).exponential(size=1000),
    "with infinities": np.r_[np.random.default_rng(6).normal(size=990), np.full(10, np.inf)],
    "an outlier": np.r_[np.random.default_rng(7).exponential(size=999), 1e6],
}
scores_of_each_kind = pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)


@scores_of_each_kind
def test_rounding_takes_the_last_digits_away(scores):
    """Hardly any score lies where the last digit decides."""
    step = choose_step(scores, rounding=0.0)
    neighbours = np.nextafter(scores, np.inf)
    differs = round_scores(scores, step) != round_scores(neighbours, step)
    assert np.mean(differs) <= 0.01


@scores_of_each_kind
def test_rounding_keeps_the_order_and_tells_scores_apart(scores):
    step = choose_step(scores, rounding=0.0)
    rounded = round_scores(scores, step)
    order = np.argsort(scores, kind="stable")
    assert np.all(np.diff(rounded[order][np.isfinite(rounded[order])]) >= 0)
    np.testing.assert_allclose(rounded, scores, rtol=1e-12, atol=step)
    assert len(np.unique(rounded)) >= 0.99 * len(np.unique(scores))


@pytest.mark.parametrize("scores", [[], [0.0, 0.0], [np.inf]], ids=["none", "zeros", "infinite"])
def test_scores_without_a_size_are_not_rounded(scores):
    step = choose_step(np.array(scores), rounding=0.0)
    np.testing.assert_array_equal(round_scores(np.array([0.1, np.inf]), step), [0.1, np.inf])


def test_several_threads_lose_no_row(est):
    """Eight threads, 25 calls each; a thread gives way after every few instructions."""
    X, y = draw_rows(8 * 25 * 5)
    monitor = dco.Monitor(est)
    failures = []

    def work(first):
        try:
            for start in range(first, first + 125, 5):
                monitor.update(X[start : start + 5], y[start : start + 5])
                monitor.state()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(125 * number,)) for number in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)

    assert failures == []
    assert monitor.report().rows == 1000
    assert monitor.report() == dco.Monitor(est, state=monitor.state()).report()
