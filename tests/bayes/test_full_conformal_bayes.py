from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from dco.bayes.full_conformal_bayes import (
    CollapsedWeightsWarning,
    full_conformal_intervals,
    full_conformal_labels,
    full_conformal_p_values,
    widen_to_neighbours,
)
from dco.predictions import ClassDraws, GaussianMixtures

COINS = np.array([0.1, 0.35, 0.6, 0.9])  # every value that the parameter can take


def coin_table(x):
    """P(label | x, theta) for three labels; x in {0, 1} swaps two of them."""
    first = np.where(x[None, :] == 0, COINS[:, None], 1 - COINS[:, None])
    return np.stack([0.8 * first, 0.8 * (1 - first), np.full_like(first, 0.2)], axis=2)


def posterior(x, y):
    weights = np.prod(np.take_along_axis(coin_table(x), y[None, :, None], axis=2)[:, :, 0], axis=1)
    return weights / weights.sum()


def coin_sets(x, y, x_new):
    train, test = ClassDraws(coin_table(x)), ClassDraws(coin_table(x_new))
    return full_conformal_labels(
        train, y, test, alpha=0.3, weights=posterior(x, y), least_effective_draws=0
    )


def test_sets_are_those_of_the_posterior_refitted_with_each_candidate():
    """With the exact posterior on finitely many parameters, add-one-in is full conformal
    prediction: refit and compare.
    """
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, y = rng.integers(0, 2, size=9), rng.integers(0, 3, size=9)
        ours = coin_sets(x, y, np.array([0, 1]))
        dense = ours.sets.to_dense()
        for new, label in product((0, 1), range(3)):
            x_all, y_all = np.append(x, new), np.append(y, label)
            sigma = (
                posterior(x_all, y_all)
                @ np.take_along_axis(coin_table(x_all), y_all[None, :, None], axis=2)[:, :, 0]
            )
            rank = np.count_nonzero(sigma <= sigma[-1] * (1 + 1e-10))
            assert ours.ranks[new, label] == rank
            assert dense[new, label] == (rank > 3)  # alpha (n + 1) = 3 exactly
    assert ours.p_values == pytest.approx(ours.ranks / 10)


def test_coverage_when_the_model_is_wrong():
    """Labels come from none of the coins; with the exact posterior coverage is 1 - alpha all the
    same (ties add to it).
    """
    rng, hits, repetitions = np.random.default_rng(1), 0, 2000
    for _ in range(repetitions):
        x, y = rng.integers(0, 2, size=10), rng.choice(3, size=10, p=[0.15, 0.25, 0.6])
        hits += bool(coin_sets(x[:9], y[:9], x[9:]).sets.contains(y[9:])[0])
    assert hits / repetitions >= 0.7 - 3 * np.sqrt(0.21 / repetitions)


def normal_problem(n, n_draws, seed):
    """y ~ N(theta, 1) with a flat prior: the posterior is N(mean, 1 / n)."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=n)
    theta = rng.normal(y.mean(), 1 / np.sqrt(n), size=n_draws)
    return y, theta, GaussianMixtures(np.tile(theta, (n, 1)), np.ones(n_draws), draws_first=False)


def test_normal_mean_against_the_conjugate_answer():
    """With n + 1 rows, sigma_i is the N(mean of all, 1 + 1 / (n + 1)) density: it ranks rows by
    their distance to it.
    """
    n = 40
    y, theta, train = normal_problem(n, 20_000, 2)
    candidates = np.linspace(-4, 4, 81)
    test = GaussianMixtures(theta[None, :], np.ones(len(theta)), draws_first=False)
    ours = full_conformal_intervals(train, y, test, candidates, alpha=0.1)
    for g, candidate in enumerate(candidates):
        everything = np.append(y, candidate)
        distance = np.abs(everything - everything.mean())
        rank = np.count_nonzero(distance >= distance[-1] - 1e-12)
        if abs(candidate) < 3:  # further out the weights rest on few draws
            assert abs(ours.ranks[0, g] - rank) <= 1
    assert ours.sets.pieces(0) == pytest.approx(norm.ppf([[0.05, 0.95]]), abs=0.6)


def test_runs_arewiden_to_neighbours_to_the_candidates_that_are_out_and_p_values_need_no_grid():
    y, theta, train = normal_problem(30, 2000, 4)
    candidates = np.linspace(-6, 6, 61)
    one, many = (
        GaussianMixtures(np.tile(theta, (count, 1)), np.ones(len(theta)), draws_first=False)
        for count in (1, 61)
    )
    result = full_conformal_intervals(train, y, one, candidates, alpha=0.2, least_effective_draws=0)
    assert np.array_equal(result.p_values[0], full_conformal_p_values(train, y, many, candidates))
    kept = np.flatnonzero(result.p_values[0] > 0.2)
    assert result.sets.pieces(0).tolist() == [[candidates[kept[0] - 1], candidates[kept[-1] + 1]]]
    narrow = full_conformal_intervals(
        train, y, one, [-0.1, 0.0, 0.1], alpha=0.2, least_effective_draws=0
    )
    assert narrow.sets.is_infinite().all()  # the grid ends inside the set, and the set says so


def test_runs_that_touch_are_joined_and_others_stay_separate():
    grid = np.arange(7.0)
    sets = widen_to_neighbours(
        np.array([[1, 1, 0, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 1, 0]], dtype=bool),
        grid,
    )
    assert sets.pieces(0).tolist() == [[-np.inf, 2.0], [3.0, np.inf]]
    assert sets.pieces(1).tolist() == []
    assert sets.pieces(2).tolist() == [[0.0, 2.0], [4.0, 6.0]]
    assert sets.is_empty().tolist() == [False, True, False]


def test_effective_draws_and_the_warning():
    """Equal probabilities in all draws: all T count; 0.8 and 0.2 are worth 1 / (0.64 + 0.04) draws.
    One draw that alone allows a label: one counts, and it is said.
    """
    unequal, even = (
        ClassDraws(np.array([[[0.8, 0.2]], [[0.2, 0.8]]])),
        ClassDraws(np.full((2, 3, 2), 0.5)),
    )
    result = full_conformal_labels(even, [0, 1, 0], unequal, alpha=0.2, least_effective_draws=0)
    assert result.effective_draws == pytest.approx(1 / 0.68)
    flat = ClassDraws(np.full((50, 4, 2), 0.5))
    result = full_conformal_labels(flat, [0, 1, 0, 1], flat, alpha=0.3)
    assert result.effective_draws == pytest.approx(50)
    assert result.n_draws == 50
    spiky = np.full((50, 1, 2), [[1.0, 0.0]])
    spiky[0] = [0.0, 1.0]
    with pytest.warns(CollapsedWeightsWarning, match=r"1 of 1 rows .* \(lowest: 1.0\)"):
        full_conformal_labels(flat, [0, 1, 0, 1], ClassDraws(spiky), alpha=0.3)


@pytest.mark.parametrize(("alpha", "sets"), [(0.1, [[0, 1, 2]]), (1 / 6, [[0]]), (0.3, [[0]])])
def test_a_label_that_no_draw_allows_is_out_unless_rows_are_too_few(alpha, sets):
    """Five rows cannot rule out the sixth at a level below 1/6, whatever its label; at 1/6 the
    least rank is out.
    """
    train = ClassDraws(np.full((30, 5, 2), 0.5), classes=[0, 1])
    test = ClassDraws(np.full((30, 1, 2), [[1.0, 0.0]]), classes=[0, 1], unseen=[2])
    result = full_conformal_labels(train, [0, 1, 0, 1, 0], test, alpha=alpha)
    assert result.sets.to_lists() == sets
    assert result.ranks.tolist() == [[6, 1]]


DRAWS, MIXTURE = (
    ClassDraws(np.full((5, 4, 2), 0.5)),
    GaussianMixtures(np.zeros((3, 2)), [1.0, 1.0], draws_first=False),
)
AB, BA = (ClassDraws(np.full((5, 4, 2), 0.5), classes=order) for order in (["a", "b"], ["b", "a"]))


@pytest.mark.parametrize(
    ("sets", "given", "options", "message"),
    [
        (
            full_conformal_labels,
            (DRAWS, [0, 1, 0, 1], ClassDraws(np.full((6, 1, 2), 0.5))),
            {},
            "must be the same",
        ),
        (
            full_conformal_labels,
            (DRAWS, [0, 1, 0, 1], ClassDraws(np.full((5, 1, 3), 1 / 3))),
            {},
            "one model",
        ),
        (
            full_conformal_labels,
            (AB, ["a", "b", "a", "b"], BA),
            {},
            "list their labels differently",
        ),
        (
            full_conformal_labels,
            (DRAWS, [0, 1, 0, 1], DRAWS),
            {"weights": [1.0]},
            "each of the 5 draws",
        ),
        (full_conformal_intervals, (MIXTURE, np.zeros(3), MIXTURE, [1.0, 0.0]), {}, "ascending"),
        (
            full_conformal_intervals,
            (MIXTURE, [0.0, np.nan, 0.0], MIXTURE, [0.0, 1.0]),
            {},
            "one finite number",
        ),
    ],
)
def test_bad_input_is_refused(sets, given, options, message):
    with pytest.raises(ValueError, match=message):
        sets(*given, alpha=0.1, **options)


def test_candidates_far_outside_their_sets_rest_on_few_draws_without_a_warning():
    rng = np.random.default_rng(7)
    means, y = rng.normal(scale=0.2, size=(1, 400)), rng.normal(size=20)
    train, test = (
        GaussianMixtures(np.repeat(means, 20, axis=0), np.ones(400), draws_first=False),
        GaussianMixtures(means, np.ones(400), draws_first=False),
    )
    found = full_conformal_intervals(train, y, test, np.linspace(-30, 30, 61), alpha=0.2)
    assert found.effective_draws.min() < 20
    assert found.sets.sizes()[0] < 10
