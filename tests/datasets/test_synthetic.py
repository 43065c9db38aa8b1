"""The closed forms of each population against large samples (4 standard errors) and against
numerical identities.
"""

import math

import numpy as np
import pytest
from scipy.stats import norm

from dco.datasets import AtomPopulation, GaussianClasses, HeteroscedasticGaussian, NoisyPoints
from dco.sets import Intervals, LabelSets

N = 40_000


def agrees(is_hit, probability):
    """Whether a share of hits lies within 4 standard errors of a probability."""
    error = math.sqrt(probability * (1 - probability) / len(is_hit))
    return abs(np.mean(is_hit) - probability) <= 4 * error + 1e-12


def agrees_in_mean(values, mean):
    """Whether the mean of some values lies within 4 standard errors of another number."""
    error = np.std(values) / math.sqrt(len(values))
    return abs(np.mean(values) - mean) <= 4 * error + 1e-12


def agrees_row_by_row(is_hit, probabilities):
    """Whether hits have these probabilities; a standard error is at most 1 / (2 sqrt(n))."""
    return abs(np.mean(is_hit - probabilities)) <= 4 * 0.5 / math.sqrt(len(is_hit))


# --- numbers whose spread depends on x ------------------------------------------------------------


@pytest.fixture(scope="module")
def heteroscedastic():
    """A population, and the targets and the predictions of its rows."""
    population = HeteroscedasticGaussian()
    X, y = population.sample(N, np.random.default_rng(0))
    return population, y, population.prediction(X)


@pytest.mark.parametrize("threshold", [0.5, 1.0, 2.0])
def test_normalised_residuals_have_the_coverage_they_state(heteroscedastic, threshold):
    population, y, prediction = heteroscedastic
    coverage = population.normalised_coverage(threshold)
    assert coverage == pytest.approx(math.erf(threshold / math.sqrt(2)))
    assert agrees(np.abs(y - prediction.mean) / prediction.spread <= threshold, coverage)


@pytest.mark.parametrize("threshold", [0.5, 1.0, 2.0])
def test_normalised_residuals_have_the_size_they_state(heteroscedastic, threshold):
    population, _, prediction = heteroscedastic
    widths = 2 * threshold * prediction.spread
    assert agrees_in_mean(widths, population.normalised_size(threshold))


def test_a_negative_threshold_covers_nothing():
    population = HeteroscedasticGaussian()
    assert population.normalised_coverage(-1.0) == 0
    assert population.normalised_size(-1.0) == 0


@pytest.fixture(scope="module")
def wide():
    """A population with other spreads, and its rows."""
    population = HeteroscedasticGaussian(0.1, 2.0)
    return population, *population.sample(N, np.random.default_rng(1))


def test_coverage_given_x_is_that_of_the_interval(wide):
    population, X, y = wide
    flat = Intervals(np.full(N, -0.8), np.full(N, 1.1))
    assert agrees_row_by_row(flat.contains(y), population.coverage_given_x(X, flat))


def test_coverage_given_x_of_one_standard_deviation_is_that_of_the_normal_law(wide):
    population, X, _ = wide
    mean = population.mean(X)
    spread = population.spread(X)
    coverage = population.coverage_given_x(X, Intervals(mean - spread, mean + spread))
    np.testing.assert_allclose(coverage, norm.cdf(1) - norm.cdf(-1))


def test_coverage_given_x_of_an_empty_interval_is_0(wide):
    population, X, _ = wide
    crossed = Intervals(np.full(N, 1.1), np.full(N, -0.8))
    np.testing.assert_array_equal(population.coverage_given_x(X, crossed), 0.0)


# --- classes --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def four_classes():
    """A population of four classes, and its rows."""
    population = GaussianClasses(4, 1.5)
    return population, *population.sample(N, np.random.default_rng(2))


@pytest.mark.parametrize("label", range(4))
@pytest.mark.parametrize(("low", "high"), [(0, 0.1), (0.1, 0.5), (0.5, 1.01)])
def test_class_probabilities_are_the_true_ones(four_classes, label, low, high):
    population, X, y = four_classes
    probability = population.probabilities(X)[:, label]
    is_between = (probability >= low) & (probability < high)
    assert agrees_row_by_row(y[is_between] == label, probability[is_between])


def test_coverage_of_label_sets_given_x_is_that_of_their_labels(four_classes):
    population, X, y = four_classes
    sets = LabelSets(population.probabilities(X) >= 0.2)
    assert agrees_row_by_row(sets.contains(y), population.coverage_given_x(X, sets))


def test_sharper_predictions_prefer_the_same_labels(four_classes):
    population, X, _ = four_classes
    sharp = population.prediction(X, sharpness=3).probabilities
    np.testing.assert_array_equal(sharp.argmax(1), population.probabilities(X).argmax(1))


@pytest.fixture(scope="module", params=[0.7, 1.5])
def two_classes(request):
    """A population of two classes, and the labels and the scores 1 - p of its rows."""
    population = GaussianClasses(2, request.param)
    X, y = population.sample(N, np.random.default_rng(3))
    return population, y, 1 - population.probabilities(X)


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.8])
def test_coverage_of_two_classes_has_a_closed_form(two_classes, threshold):
    population, y, scores = two_classes
    is_covered = scores[np.arange(N), y] <= threshold
    assert agrees(is_covered, population.two_class_coverage(threshold))


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.8])
def test_the_size_of_sets_of_two_classes_has_a_closed_form(two_classes, threshold):
    population, _, scores = two_classes
    sizes = (scores <= threshold).sum(axis=1)
    assert agrees_in_mean(sizes, population.two_class_size(threshold))


@pytest.mark.parametrize(("threshold", "size"), [(1.0, 2.0), (0.0, 0.0)])
def test_sets_of_two_classes_are_full_or_empty_at_the_ends(two_classes, threshold, size):
    population, _, _ = two_classes
    assert population.two_class_size(threshold) == size


def test_three_classes_have_no_closed_form():
    with pytest.raises(ValueError, match="two classes"):
        GaussianClasses(3).two_class_coverage(0.5)


# --- atoms and candidates -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def atom():
    """A population with an atom, and its rows and scores."""
    population = AtomPopulation(0.15)
    return population, *population.sample(N, np.random.default_rng(4))


def test_the_atom_has_its_mass(atom):
    """Every other row is another one."""
    _, rows, _ = atom
    assert agrees(rows == 0, 0.15)
    assert len(np.unique(rows)) == np.count_nonzero(rows) + 1


@pytest.mark.parametrize("threshold", [0.3, 1.0])
def test_scores_with_an_atom_have_the_coverage_they_state(atom, threshold):
    population, _, scores = atom
    assert agrees(scores <= threshold, population.coverage(threshold))


def test_a_threshold_above_all_scores_covers_all(atom):
    population, _, _ = atom
    assert population.coverage(2.0) == 1


@pytest.mark.parametrize("candidate", [0, 1, 2])
def test_candidates_have_the_coverage_they_state(candidate):
    population = NoisyPoints((0.0, 0.5, 2.0))
    points, y = population.sample(N, np.random.default_rng(5))
    threshold = population.threshold(candidate, alpha=0.1)
    assert population.coverage(candidate, threshold) == pytest.approx(0.9)
    assert agrees(np.abs(y - points[candidate].mean) <= threshold, 0.9)


def test_noisier_candidates_have_larger_thresholds():
    population = NoisyPoints((0.0, 0.5, 2.0))
    thresholds = [population.threshold(candidate, alpha=0.1) for candidate in range(3)]
    assert thresholds == sorted(thresholds)
