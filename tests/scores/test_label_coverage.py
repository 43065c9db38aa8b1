"""Coverage and size of label sets against laws and an independent oracle. Seeds are fixed; error
rates are stated.

Each law is tested on many independent repeats at once: every repeat has its own calibration rows
and its own threshold, and its test rows get that threshold a row.
"""

from typing import Any

import numpy as np
import pytest
from scipy.stats import betabinom, chisquare

from dco import ClassDraws, ClassProbabilities, conformal_rank, split_conformal
from dco.scores import APS, LAC, RAPS, SAPS, AddOneIn, Margin, PosteriorNLL, TopK

N_CALIBRATE, N_TEST, REPEATS, ALPHA = 39, 30, 1500, 0.2

CONTINUOUS: dict[str, Any] = {
    "LAC": LAC(),
    "Margin": Margin(),
    "PosteriorNLL": PosteriorNLL(),
    "AddOneIn": AddOneIn(),
    "APS randomised": APS(randomised=True),
    "RAPS randomised": RAPS(0.05, 1, randomised=True),
    "SAPS randomised": SAPS(0.1, randomised=True),
}
TIED: dict[str, Any] = {
    "TopK": TopK(),
    "APS": APS(),
    "RAPS": RAPS(0.05, 1),
    "SAPS": SAPS(0.0),
    "LAC": LAC(),
}


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def drawn_labels(rng: np.random.Generator, probabilities: np.ndarray) -> np.ndarray:
    reached = np.cumsum(probabilities, axis=1) < rng.uniform(size=(len(probabilities), 1))
    return np.minimum(reached.sum(axis=1), probabilities.shape[1] - 1)


def hits(score: Any, rng: np.random.Generator, draws: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Covered test rows in each repeat, (REPEATS,)."""
    uniforms = rng.uniform(size=len(y))

    def part(rows: np.ndarray) -> Any:
        if ClassProbabilities in score.needs:
            return ClassProbabilities(draws[:, rows].mean(axis=0), uniforms=uniforms[rows])
        return ClassDraws(draws[:, rows], uniforms=uniforms[rows])

    index = np.arange(len(y)).reshape(REPEATS, N_CALIBRATE + N_TEST)
    calibrate, test = index[:, :N_CALIBRATE].ravel(), index[:, N_CALIBRATE:].ravel()
    scores = score.observed(part(calibrate), y[calibrate]).reshape(REPEATS, N_CALIBRATE)
    thresholds = np.array([split_conformal(row, alpha=ALPHA).value for row in scores])
    covered = score.sets(part(test), np.repeat(thresholds, N_TEST)).contains(y[test])
    return covered.reshape(REPEATS, N_TEST).sum(axis=1)


def law() -> Any:
    rank = conformal_rank(N_CALIBRATE, alpha=ALPHA)
    return betabinom(N_TEST, rank, N_CALIBRATE + 1 - rank)


def wrong_model(rng: np.random.Generator, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Three passes of a model that is too sure of itself, and labels from the truth."""
    logits = 1.5 * rng.standard_normal((REPEATS * (N_CALIBRATE + N_TEST), k))
    passes = np.stack(
        [softmax(1.7 * logits + 0.3 * rng.standard_normal(logits.shape)) for _ in range(3)]
    )
    return passes, drawn_labels(rng, softmax(logits))


def law_p_value(counts: np.ndarray) -> float:
    """The chi-square p-value of hits against the Beta-binomial law, cells of expectation below 10
    merged.
    """
    expected = REPEATS * law().pmf(np.arange(N_TEST + 1))
    found = np.bincount(counts, minlength=N_TEST + 1)
    first = int(np.argmax(np.cumsum(expected) >= 10))
    expected = np.concatenate([[expected[: first + 1].sum()], expected[first + 1 :]])
    found = np.concatenate([[found[: first + 1].sum()], found[first + 1 :]])
    assert expected.min() >= 5
    return float(chisquare(found, expected * (found.sum() / expected.sum())).pvalue)


@pytest.mark.parametrize("score", CONTINUOUS.values(), ids=CONTINUOUS.keys())
def test_hits_follow_the_beta_binomial_law(score):
    """Error rate 0.001 a score: a law of test hits, so spread as well as mean, for a model that is
    wrong.
    """
    rng = np.random.default_rng(20)
    assert law_p_value(hits(score, rng, *wrong_model(rng, 8))) > 0.001


def test_the_law_check_notices_one_rank_too_many():
    """The same check refuses hits at the neighbouring rank, so it has the power that it needs."""
    rng = np.random.default_rng(21)
    rank = conformal_rank(N_CALIBRATE, alpha=ALPHA) + 1
    counts = betabinom(N_TEST, rank, N_CALIBRATE + 1 - rank).rvs(size=REPEATS, random_state=rng)
    assert law_p_value(counts) < 1e-6


def oracle_members(
    score: Any, p: np.ndarray, y: np.ndarray, p_test: np.ndarray, alpha: float
) -> np.ndarray:
    """Calibrated sets by index sort and running sums, the way papers write them."""

    def every(values: np.ndarray) -> np.ndarray:
        order = np.argsort(-values, axis=1, kind="stable")
        falling = np.take_along_axis(values, order, axis=1)
        ranks = np.arange(1, values.shape[1] + 1)
        along = {
            LAC: lambda: 1 - falling,
            TopK: lambda: ranks + 0 * falling,
            APS: lambda: falling.cumsum(axis=1),
            RAPS: lambda: falling.cumsum(axis=1) + 0.01 * np.maximum(ranks - 5, 0),
            SAPS: lambda: falling[:, :1] + 0.02 * (ranks - 1),
        }[type(score)]()
        return np.take_along_axis(along, np.argsort(order, axis=1), axis=1)

    scores = np.sort(every(p)[np.arange(len(y)), y])
    limit = scores[int(np.ceil((len(y) + 1) * (1 - alpha))) - 1]
    return every(p_test) <= limit + 1e-12


@pytest.mark.parametrize("score", [LAC(), TopK(), APS(), RAPS(0.01, 5), SAPS(0.02)])
def test_calibrated_sets_are_the_oracle_s_and_no_larger(score):
    """Every set, not only coverage: a reversed comparison keeps coverage at its level and is caught
    by its size.
    """
    rng = np.random.default_rng(25)
    p, p_test = (
        softmax(2 * rng.standard_normal((800, 100))),
        softmax(2 * rng.standard_normal((500, 100))),
    )
    y, y_test = drawn_labels(rng, p), drawn_labels(rng, p_test)
    threshold = split_conformal(score.observed(ClassProbabilities(p), y), alpha=0.1)
    sets = score.sets(ClassProbabilities(p_test), threshold)
    assert np.array_equal(sets.to_dense(), oracle_members(score, p, y, p_test, 0.1))

    reversed_limit = -split_conformal(-score.observed(ClassProbabilities(p), y), alpha=0.1).value
    reversed_sets = score.every_label(ClassProbabilities(p_test)) >= reversed_limit
    assert reversed_sets[np.arange(500), y_test].mean() > 0.85
    assert reversed_sets.sum(axis=1).mean() > 2 * sets.sizes().mean()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_membership_is_exact_on_the_tied_probabilities_of_a_forest(dtype):
    """Nine trees with pure leaves on digits: probabilities are ninths, and thresholds are scores of
    other rows.
    """
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier

    X, y = load_digits(return_X_y=True)
    forest = RandomForestClassifier(9, random_state=0).fit(X[:600], y[:600])
    p = forest.predict_proba(X).astype(dtype)
    assert np.mean([len(np.unique(row)) < 10 for row in p]) > 0.5
    uniforms = np.random.default_rng(27).uniform(size=len(y))
    calibrate = ClassProbabilities(p[600:1200], uniforms=uniforms[600:1200])
    test = ClassProbabilities(p[1200:], uniforms=uniforms[1200:])
    for score in {*TIED.values(), *CONTINUOUS.values()} - {AddOneIn()}:
        every, seen = score.every_label(test), score.observed(test, y[1200:])
        for alpha in (0.02, 0.1, 0.3, 0.7):
            threshold = split_conformal(score.observed(calibrate, y[600:1200]), alpha=alpha)
            sets = score.sets(test, threshold)
            assert np.array_equal(sets.to_dense(), every <= threshold.value)
            assert np.array_equal(sets.contains(y[1200:]), seen <= threshold.value)
