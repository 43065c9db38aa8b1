"""The closed forms of each population against large samples (4 standard errors) and against
numerical identities.
"""

import math

import numpy as np
import pytest
from scipy.stats import norm

from dco.datasets import (
    AtomPopulation,
    GaussianClasses,
    HeteroscedasticGaussian,
    NoisyPoints,
)
from dco.sets import Intervals, LabelSets

N = 40_000


def agrees(hits, p):
    return abs(np.mean(hits) - p) <= 4 * math.sqrt(p * (1 - p) / len(hits)) + 1e-12


def test_heteroscedastic_rows_have_the_coverage_they_state():
    population, rng = HeteroscedasticGaussian(), np.random.default_rng(0)
    X, y = population.sample(N, rng)
    prediction = population.prediction(X)
    ratio = np.abs(y - prediction.mean) / prediction.spread
    for threshold in (0.5, 1.0, 2.0):
        assert agrees(ratio <= threshold, population.normalised_coverage(threshold))
        assert population.normalised_coverage(threshold) == pytest.approx(
            math.erf(threshold / math.sqrt(2))
        )
        widths = 2 * threshold * prediction.spread
        assert abs(
            widths.mean() - population.normalised_size(threshold)
        ) <= 4 * widths.std() / math.sqrt(N)
    assert population.normalised_coverage(-1.0) == population.normalised_size(-1.0) == 0


def test_coverage_given_x_is_exact_for_any_interval():
    population, rng = HeteroscedasticGaussian(0.1, 2.0), np.random.default_rng(1)
    X, y = population.sample(N, rng)
    flat = Intervals(np.full(N, -0.8), np.full(N, 1.1))
    given = population.coverage_given_x(X, flat)
    assert abs((flat.contains(y) - given).mean()) <= 4 * 0.5 / math.sqrt(N)
    own = Intervals(
        population.mean(X) - population.spread(X), population.mean(X) + population.spread(X)
    )
    np.testing.assert_allclose(population.coverage_given_x(X, own), norm.cdf(1) - norm.cdf(-1))
    np.testing.assert_array_equal(
        population.coverage_given_x(X, Intervals(flat.upper, flat.lower)), 0.0
    )


def test_class_probabilities_are_the_true_ones():
    population, rng = GaussianClasses(4, 1.5), np.random.default_rng(2)
    X, y = population.sample(N, rng)
    probabilities = population.probabilities(X)
    for label in range(4):
        for low, high in ((0, 0.1), (0.1, 0.5), (0.5, 1.01)):
            rows = (probabilities[:, label] >= low) & (probabilities[:, label] < high)
            error = (y[rows] == label) - probabilities[rows, label]
            assert abs(error.mean()) <= 4 * 0.5 / math.sqrt(rows.sum())
    sets = LabelSets(probabilities >= 0.2)
    given = population.coverage_given_x(X, sets)
    assert abs((sets.contains(y) - given).mean()) <= 4 * 0.5 / math.sqrt(N)
    assert np.all(
        np.argmax(population.prediction(X, sharpness=3).probabilities, 1)
        == np.argmax(probabilities, 1)
    )


@pytest.mark.parametrize("separation", [0.7, 1.5])
def test_two_classes_have_closed_forms(separation):
    population, rng = GaussianClasses(2, separation), np.random.default_rng(3)
    X, y = population.sample(N, rng)
    scores = 1 - population.probabilities(X)
    for threshold in (0.2, 0.5, 0.8):
        assert agrees(
            scores[np.arange(N), y] <= threshold, population.two_class_coverage(threshold)
        )
        sizes = (scores <= threshold).sum(axis=1)
        assert (
            abs(sizes.mean() - population.two_class_size(threshold))
            <= 4 * sizes.std() / math.sqrt(N) + 1e-12
        )
    assert (population.two_class_size(1.0), population.two_class_size(0.0)) == (2.0, 0.0)
    with pytest.raises(ValueError, match="two classes"):
        GaussianClasses(3).two_class_coverage(0.5)


def test_the_atom_has_its_mass():
    population, rng = AtomPopulation(0.15), np.random.default_rng(4)
    rows, scores = population.sample(N, rng)
    assert agrees(rows == 0, 0.15)
    assert len(np.unique(rows)) == np.count_nonzero(rows) + 1
    for threshold in (0.3, 1.0, 2.0):
        p = population.coverage(threshold)
        assert p == 1 if threshold == 2.0 else agrees(scores <= threshold, p)


def test_candidates_have_the_quality_they_state():
    population, rng = NoisyPoints((0.0, 0.5, 2.0)), np.random.default_rng(5)
    points, y = population.sample(N, rng)
    for candidate, record in enumerate(points):
        threshold = population.threshold(candidate, alpha=0.1)
        assert population.coverage(candidate, threshold) == pytest.approx(0.9)
        assert agrees(np.abs(y - record.mean) <= threshold, 0.9)
    widths = [population.threshold(candidate, alpha=0.1) for candidate in range(3)]
    assert widths == sorted(widths)
