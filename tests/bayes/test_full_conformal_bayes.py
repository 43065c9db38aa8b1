"""Full conformal sets from posterior draws: against refits, a closed form and their coverage."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import norm

from dco import ClassDraws, GaussianMixtures
from dco.bayes import (
    CollapsedWeightsWarning,
    full_conformal_intervals,
    full_conformal_labels,
    full_conformal_p_values,
)

# ---------------------------------------------------------------- three labels by four coins

COINS = np.array([0.1, 0.35, 0.6, 0.9])  # every value that the parameter can take


def label_probabilities(x):
    """Return P(label | x, coin) of three labels, (coins, n, 3); x in {0, 1} swaps two of them."""
    first = np.where(x[None, :] == 0, COINS[:, None], 1 - COINS[:, None])
    return np.stack([0.8 * first, 0.8 * (1 - first), np.full_like(first, 0.2)], axis=2)


def likelihoods(x, y):
    """Return the probability of each row's label by each coin, (coins, n)."""
    return np.take_along_axis(label_probabilities(x), y[None, :, None], axis=2)[:, :, 0]


def posterior(x, y):
    weights = np.prod(likelihoods(x, y), axis=1)
    return weights / weights.sum()


def coin_sets(x, y, x_new):
    """Make sets at alpha = 0.3 with the exact posterior."""
    return full_conformal_labels(
        ClassDraws(label_probabilities(x)),
        y,
        ClassDraws(label_probabilities(x_new)),
        alpha=0.3,
        weights=posterior(x, y),
        least_effective_draws=0,
    )


def rank_by_refit(x, y, x_new, label):
    """Count the rows that score at most what the new row scores, refitted with its label."""
    all_x = np.append(x, x_new)
    all_y = np.append(y, label)
    scores = posterior(all_x, all_y) @ likelihoods(all_x, all_y)
    return np.count_nonzero(scores <= scores[-1] * (1 + 1e-10))


@pytest.mark.parametrize("seed", range(20))
def test_sets_are_those_of_the_posterior_refitted_with_each_candidate(seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, size=9)
    y = rng.integers(0, 3, size=9)

    result = coin_sets(x, y, np.array([0, 1]))

    ranks = np.array([[rank_by_refit(x, y, new, label) for label in range(3)] for new in (0, 1)])
    assert np.array_equal(result.ranks, ranks)
    assert np.array_equal(result.sets.to_dense(), ranks > 3)  # alpha (n + 1) = 3 exactly
    assert result.p_values == pytest.approx(ranks / 10)


def test_coverage_holds_when_the_model_is_wrong():
    """Labels come from none of the coins; coverage is at least 1 - alpha all the same, as ties add
    to it. Within three standard errors.
    """
    rng = np.random.default_rng(1)
    n_covered = 0
    for _ in range(2000):
        x = rng.integers(0, 2, size=10)
        y = rng.choice(3, size=10, p=[0.15, 0.25, 0.6])
        n_covered += int(coin_sets(x[:9], y[:9], x[9:]).sets.contains(y[9:])[0])

    assert n_covered / 2000 >= 0.7 - 3 * np.sqrt(0.21 / 2000)


# ---------------------------------------------------------------- the mean of a normal


@dataclass(frozen=True, eq=False)
class NormalMean:
    """Rows y ~ N(theta, 1) with a flat prior: the posterior is N(mean, 1 / n)."""

    y: np.ndarray
    theta: np.ndarray

    @classmethod
    def draw(cls, n, *, n_draws, seed):
        rng = np.random.default_rng(seed)
        y = rng.normal(size=n)
        return cls(y, rng.normal(y.mean(), 1 / np.sqrt(n), size=n_draws))

    def predict(self, n_rows):
        """Return the posterior predictive of so many rows, which are all alike."""
        means = np.tile(self.theta, (n_rows, 1))
        return GaussianMixtures(means, np.ones(len(self.theta)), draws_first=False)

    def intervals(self, candidates, *, alpha, **options):
        train = self.predict(len(self.y))
        return full_conformal_intervals(
            train, self.y, self.predict(1), candidates, alpha=alpha, **options
        )


@pytest.fixture(scope="module")
def forty_rows():
    return NormalMean.draw(40, n_draws=20_000, seed=2)


def test_ranks_are_those_of_the_conjugate_answer(forty_rows):
    """With n + 1 rows, sigma_i is the N(mean of all, 1 + 1 / (n + 1)) density: it ranks rows by
    their distance to that mean. Weights of candidates beyond 3 rest on few draws.
    """
    candidates = np.linspace(-2.9, 2.9, 59)

    result = forty_rows.intervals(candidates, alpha=0.1)

    rows = np.column_stack([np.tile(forty_rows.y, (59, 1)), candidates])
    distances = np.abs(rows - rows.mean(axis=1, keepdims=True))
    ranks = np.count_nonzero(distances >= distances[:, -1:] - 1e-12, axis=1)
    assert np.all(np.abs(result.ranks[0] - ranks) <= 1)


def test_sets_are_near_those_of_the_truth(forty_rows):
    result = forty_rows.intervals(np.linspace(-4, 4, 81), alpha=0.1)

    assert result.sets.pieces(0) == pytest.approx(norm.ppf([[0.05, 0.95]]), abs=0.6)


@pytest.fixture(scope="module")
def thirty_rows():
    return NormalMean.draw(30, n_draws=2000, seed=4)


def test_p_values_need_no_grid(thirty_rows):
    candidates = np.linspace(-6, 6, 61)

    p_values = full_conformal_p_values(
        thirty_rows.predict(30), thirty_rows.y, thirty_rows.predict(61), candidates
    )

    result = thirty_rows.intervals(candidates, alpha=0.2, least_effective_draws=0)
    assert np.array_equal(result.p_values[0], p_values)


def test_sets_end_at_the_nearest_candidates_that_are_out(thirty_rows):
    candidates = np.linspace(-6, 6, 61)

    result = thirty_rows.intervals(candidates, alpha=0.2, least_effective_draws=0)

    members = np.flatnonzero(result.p_values[0] > 0.2)
    expected = [candidates[members[0] - 1], candidates[members[-1] + 1]]
    assert result.sets.pieces(0).tolist() == [expected]


def test_sets_beyond_the_candidates_are_infinite(thirty_rows):
    result = thirty_rows.intervals([-0.1, 0.0, 0.1], alpha=0.2, least_effective_draws=0)

    assert result.sets.is_infinite().all()


def test_candidates_far_outside_rest_on_few_draws_without_a_warning():
    rng = np.random.default_rng(7)
    rows = NormalMean(y=rng.normal(size=20), theta=rng.normal(scale=0.2, size=400))

    result = rows.intervals(np.linspace(-30, 30, 61), alpha=0.2)

    assert result.effective_draws.min() < 20
    assert result.sets.sizes()[0] < 10


@pytest.mark.parametrize(
    ("candidates", "pieces"),
    [
        ([-4.0, -2.0, -0.5, 0.5, 2.0, 4.0], [[-4.0, -0.5], [0.5, 4.0]]),
        ([-4.0, -2.0, 0.0, 2.0, 4.0], [[-4.0, 4.0]]),
        ([-2.0, 0.0, 2.0, 4.0], [[-np.inf, 4.0]]),
        ([-2.0, -0.5, 0.5, 2.0], [[-np.inf, -0.5], [0.5, np.inf]]),
        ([-4.0, 0.0, 4.0], []),
    ],
    ids=["two runs", "runs that touch", "open below", "open on both sides", "none"],
)
def test_each_run_of_candidates_is_a_piece(candidates, pieces):
    """One draw expects the new row at -2 and the other at 2, so that these candidates are in."""
    y = np.linspace(-0.4, 0.4, 9)
    train = GaussianMixtures(np.zeros((9, 2)), [0.5, 0.5], draws_first=False)
    new = GaussianMixtures([[-2.0, 2.0]], [0.5, 0.5], draws_first=False)

    result = full_conformal_intervals(train, y, new, candidates, alpha=0.2, least_effective_draws=0)

    assert result.sets.pieces(0).tolist() == pieces


# ---------------------------------------------------------------- effective draws

EVEN = ClassDraws(np.full((50, 4, 2), 0.5))


def test_all_draws_count_where_they_agree():
    result = full_conformal_labels(EVEN, [0, 1, 0, 1], EVEN, alpha=0.3)

    assert result.effective_draws == pytest.approx(50)
    assert result.n_draws == 50


def test_unequal_draws_count_by_their_squares():
    """0.8 and 0.2 are worth 1 / (0.64 + 0.04) draws."""
    train = ClassDraws(np.full((2, 3, 2), 0.5))
    unequal = ClassDraws(np.array([[[0.8, 0.2]], [[0.2, 0.8]]]))

    result = full_conformal_labels(train, [0, 1, 0], unequal, alpha=0.2, least_effective_draws=0)

    assert result.effective_draws == pytest.approx(1 / 0.68)


def test_a_label_that_one_draw_alone_allows_is_warned_about():
    probabilities = np.full((50, 1, 2), [[1.0, 0.0]])
    probabilities[0] = [0.0, 1.0]

    with pytest.warns(CollapsedWeightsWarning, match=r"1 of 1 rows .* \(lowest: 1.0\)"):
        full_conformal_labels(EVEN, [0, 1, 0, 1], ClassDraws(probabilities), alpha=0.3)


@pytest.mark.parametrize(("alpha", "sets"), [(0.1, [[0, 1, 2]]), (1 / 6, [[0]]), (0.3, [[0]])])
def test_a_label_that_no_draw_allows_is_out_unless_rows_are_too_few(alpha, sets):
    """Five rows cannot rule out the sixth at a level below 1/6, whatever its label; at 1/6 the
    lowest rank is out.
    """
    train = ClassDraws(np.full((30, 5, 2), 0.5), classes=[0, 1])
    test = ClassDraws(np.full((30, 1, 2), [[1.0, 0.0]]), classes=[0, 1], unseen=[2])

    result = full_conformal_labels(train, [0, 1, 0, 1, 0], test, alpha=alpha)

    assert result.sets.to_lists() == sets
    assert result.ranks.tolist() == [[6, 1]]


# ---------------------------------------------------------------- bad input

FIVE_DRAWS = ClassDraws(np.full((5, 4, 2), 0.5))


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (ClassDraws(np.full((6, 1, 2), 0.5)), "must be the same"),
        (ClassDraws(np.full((5, 1, 3), 1 / 3)), "one model"),
    ],
    ids=["other draws", "other labels"],
)
def test_draws_of_another_model_are_refused(test, message):
    with pytest.raises(ValueError, match=message):
        full_conformal_labels(FIVE_DRAWS, [0, 1, 0, 1], test, alpha=0.1)


def test_labels_in_another_order_are_refused():
    train = ClassDraws(np.full((5, 4, 2), 0.5), classes=["a", "b"])
    test = ClassDraws(np.full((5, 4, 2), 0.5), classes=["b", "a"])

    with pytest.raises(ValueError, match="list their labels differently"):
        full_conformal_labels(train, ["a", "b", "a", "b"], test, alpha=0.1)


def test_too_few_weights_are_refused():
    with pytest.raises(ValueError, match="each of the 5 draws"):
        full_conformal_labels(FIVE_DRAWS, [0, 1, 0, 1], FIVE_DRAWS, alpha=0.1, weights=[1.0])


@pytest.mark.parametrize(
    ("y", "candidates", "message"),
    [
        ([0.0, 0.0, 0.0], [1.0, 0.0], "ascending"),
        ([0.0, np.nan, 0.0], [0.0, 1.0], "one finite number"),
    ],
    ids=["falling candidates", "missing target"],
)
def test_bad_numbers_are_refused(y, candidates, message):
    mixtures = GaussianMixtures(np.zeros((3, 2)), [1.0, 1.0], draws_first=False)

    with pytest.raises(ValueError, match=message):
        full_conformal_intervals(mixtures, y, mixtures, candidates, alpha=0.1)
