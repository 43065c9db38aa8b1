"""Coverage and size of label sets against laws and an independent oracle. Seeds are fixed; error
rates are stated.

Each law is tested on many independent repeats at once: every repeat has its own calibration rows
and its own threshold, and its test rows get that threshold a row.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import betabinom, chisquare
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

from dco import ClassDraws, ClassProbabilities, conformal_rank, split_conformal
from dco.scores import APS, LAC, RAPS, SAPS, AddOneIn, Margin, PosteriorNLL, TopK

N_CALIBRATE = 39
N_TEST = 30
REPEATS = 1500
ALPHA = 0.2

CONTINUOUS = {
    "LAC": LAC(),
    "Margin": Margin(),
    "PosteriorNLL": PosteriorNLL(),
    "AddOneIn": AddOneIn(),
    "APS randomised": APS(randomised=True),
    "RAPS randomised": RAPS(0.05, 1, randomised=True),
    "SAPS randomised": SAPS(0.1, randomised=True),
}
TIED = {
    "TopK": TopK(),
    "APS": APS(),
    "RAPS": RAPS(0.05, 1),
    "SAPS": SAPS(0.0),
}


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def draw_labels(rng, probabilities):
    """Draw one label from each row of probabilities."""
    is_passed = np.cumsum(probabilities, axis=1) < rng.uniform(size=(len(probabilities), 1))
    return np.minimum(is_passed.sum(axis=1), probabilities.shape[1] - 1)


# ---------------------------------------------------------------- the law of hits


@dataclass(frozen=True, eq=False)
class Rows:
    """Three passes of a model, (3, n, K), labels, and the uniforms of randomised scores."""

    draws: np.ndarray
    labels: np.ndarray
    uniforms: np.ndarray

    def take(self, rows):
        return Rows(self.draws[:, rows], self.labels[rows], self.uniforms[rows])

    def prediction_for(self, score):
        """Return the probabilities or the draws, whichever the score needs."""
        if ClassProbabilities in score.needs:
            return ClassProbabilities(self.draws.mean(axis=0), uniforms=self.uniforms)
        return ClassDraws(self.draws, uniforms=self.uniforms)


def draw_rows(rng, *, n_labels):
    """Draw the rows of all repeats from a model that is too sure of itself."""
    logits = 1.5 * rng.standard_normal((REPEATS * (N_CALIBRATE + N_TEST), n_labels))
    passes = [softmax(1.7 * logits + 0.3 * rng.standard_normal(logits.shape)) for _ in range(3)]
    labels = draw_labels(rng, softmax(logits))
    return Rows(np.stack(passes), labels, rng.uniform(size=len(labels)))


def count_hits(score, rows):
    """Count the covered test rows of each repeat, (REPEATS,)."""
    positions = np.arange(len(rows.labels)).reshape(REPEATS, N_CALIBRATE + N_TEST)
    calibrate = rows.take(positions[:, :N_CALIBRATE].ravel())
    test = rows.take(positions[:, N_CALIBRATE:].ravel())

    scores = score.observed(calibrate.prediction_for(score), calibrate.labels)
    of_repeats = scores.reshape(REPEATS, N_CALIBRATE)
    thresholds = np.array([split_conformal(one, alpha=ALPHA).value for one in of_repeats])

    sets = score.sets(test.prediction_for(score), np.repeat(thresholds, N_TEST))
    return sets.contains(test.labels).reshape(REPEATS, N_TEST).sum(axis=1)


def hits_law(rank):
    """Return the law of the hits among the test rows at a rank of the calibration scores."""
    return betabinom(N_TEST, rank, N_CALIBRATE + 1 - rank)


def law_p_value(hits):
    """Compare hits with their law by chi-square; cells of expectation below 10 are merged."""
    law = hits_law(conformal_rank(N_CALIBRATE, alpha=ALPHA))
    expected = REPEATS * law.pmf(np.arange(N_TEST + 1))
    counts = np.bincount(hits, minlength=N_TEST + 1)

    last_merged = int(np.argmax(np.cumsum(expected) >= 10))
    starts = [0, *range(last_merged + 1, N_TEST + 1)]
    expected = np.add.reduceat(expected, starts)
    counts = np.add.reduceat(counts, starts)
    assert expected.min() >= 5
    return chisquare(counts, expected * (counts.sum() / expected.sum())).pvalue


@pytest.mark.parametrize("score", CONTINUOUS.values(), ids=CONTINUOUS.keys())
def test_hits_follow_the_beta_binomial_law(score):
    """Spread as well as mean, for a model that is wrong; error rate 0.001 a score."""
    rows = draw_rows(np.random.default_rng(20), n_labels=8)

    assert law_p_value(count_hits(score, rows)) > 0.001


def test_the_law_check_notices_one_rank_too_many():
    law_of_next_rank = hits_law(conformal_rank(N_CALIBRATE, alpha=ALPHA) + 1)

    hits = law_of_next_rank.rvs(size=REPEATS, random_state=np.random.default_rng(21))

    assert law_p_value(hits) < 1e-6


# ---------------------------------------------------------------- an oracle


ORACLES = {
    "LAC": (LAC(), lambda falling, ranks: 1 - falling),
    "TopK": (TopK(), lambda falling, ranks: ranks + 0 * falling),
    "APS": (APS(), lambda falling, ranks: falling.cumsum(axis=1)),
    "RAPS": (
        RAPS(0.01, 5),
        lambda falling, ranks: falling.cumsum(axis=1) + 0.01 * np.maximum(ranks - 5, 0),
    ),
    "SAPS": (SAPS(0.02), lambda falling, ranks: falling[:, :1] + 0.02 * (ranks - 1)),
}
every_oracle = pytest.mark.parametrize(("score", "formula"), ORACLES.values(), ids=ORACLES.keys())


@dataclass(frozen=True, eq=False)
class Problem:
    """Calibration and test rows of 100 labels from a model that is right."""

    calibrate: np.ndarray
    calibrate_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray

    def observed(self, score):
        return score.observed(ClassProbabilities(self.calibrate), self.calibrate_labels)


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(25)
    calibrate = softmax(2 * rng.standard_normal((800, 100)))
    test = softmax(2 * rng.standard_normal((500, 100)))
    return Problem(calibrate, draw_labels(rng, calibrate), test, draw_labels(rng, test))


def oracle_scores(probabilities, formula):
    """Score every label by an index sort, the way papers write it.

    The formula takes the probabilities of each row from the largest on, and their ranks.
    """
    order = np.argsort(-probabilities, axis=1, kind="stable")
    falling = np.take_along_axis(probabilities, order, axis=1)
    ranks = np.arange(1, probabilities.shape[1] + 1)
    return np.take_along_axis(formula(falling, ranks), np.argsort(order, axis=1), axis=1)


@every_oracle
def test_calibrated_sets_are_the_oracles(problem, score, formula):
    threshold = split_conformal(problem.observed(score), alpha=0.1)
    sets = score.sets(ClassProbabilities(problem.test), threshold)

    scores = oracle_scores(problem.calibrate, formula)[np.arange(800), problem.calibrate_labels]
    limit = np.sort(scores)[int(np.ceil(801 * 0.9)) - 1]
    expected = oracle_scores(problem.test, formula) <= limit + 1e-12
    assert np.array_equal(sets.to_dense(), expected)


@every_oracle
def test_a_reversed_comparison_shows_in_the_sizes(problem, score, formula):
    """It keeps coverage near its level, so that a test of coverage alone would not notice."""
    threshold = split_conformal(problem.observed(score), alpha=0.1)
    reversed_limit = -split_conformal(-problem.observed(score), alpha=0.1).value

    sizes = score.sizes(ClassProbabilities(problem.test), threshold)
    is_member = score.every_label(ClassProbabilities(problem.test)) >= reversed_limit

    assert is_member[np.arange(500), problem.test_labels].mean() > 0.85
    assert is_member.sum(axis=1).mean() > 2 * sizes.mean()


# ---------------------------------------------------------------- ties


@pytest.fixture(scope="module")
def forest_probabilities():
    """Return labels of digits and probabilities in ninths, by nine trees with pure leaves."""
    X, y = load_digits(return_X_y=True)
    forest = RandomForestClassifier(9, random_state=0).fit(X[:600], y[:600])
    return y[600:], forest.predict_proba(X[600:])


def test_the_forests_probabilities_are_tied(forest_probabilities):
    _, probabilities = forest_probabilities

    assert np.mean([len(np.unique(row)) < 10 for row in probabilities]) > 0.5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.3, 0.7])
@pytest.mark.parametrize(
    "score",
    [score for score in (*TIED.values(), *CONTINUOUS.values()) if score != AddOneIn()],
    ids=[name for name in (*TIED, *CONTINUOUS) if name != "AddOneIn"],
)
def test_membership_is_exact_on_tied_probabilities(forest_probabilities, score, alpha, dtype):
    """Thresholds are scores of other rows."""
    y, probabilities = forest_probabilities
    p = probabilities.astype(dtype)
    uniforms = np.random.default_rng(27).uniform(size=len(y))
    calibrate = ClassProbabilities(p[:600], uniforms=uniforms[:600])
    test = ClassProbabilities(p[600:], uniforms=uniforms[600:])

    threshold = split_conformal(score.observed(calibrate, y[:600]), alpha=alpha)
    sets = score.sets(test, threshold)

    is_low = score.observed(test, y[600:]) <= threshold.value
    assert np.array_equal(sets.to_dense(), score.every_label(test) <= threshold.value)
    assert np.array_equal(sets.contains(y[600:]), is_low)
