"""New rows from another mix than the calibration rows, in a known way: weights keep the level, and
cost little.

The enumerated populations have no error at all.
"""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from laws import FULL, check_loses, check_mean, ignore_infeasible
from scipy.special import ndtr

import dco

FITS = 10_000 if FULL else 2_500
pytestmark = [pytest.mark.guarantee, pytest.mark.filterwarnings(ignore_infeasible)]

ALPHA = 0.1


def without_own_mass(scores, weights, new_weights, *, alpha):
    """Make the classic mistake: take the weighted quantile of the calibration rows alone."""
    order = np.argsort(scores)
    running = np.cumsum(weights[order])
    needed = (1 - alpha) * running[-1] * (1 - 1e-12)
    threshold = scores[order][np.searchsorted(running, needed)]
    return np.full(np.shape(new_weights), threshold)


def without_weights(scores, weights, new_weights, *, alpha):
    """Make the other mistake: take the threshold of unweighted rows."""
    threshold = dco.split_conformal(scores, alpha=alpha)
    return np.full(np.shape(new_weights), threshold.value)


MISTAKES = pytest.mark.parametrize("mistake", [without_own_mass, without_weights])


# ---------------------------------------------------------------- every draw of a small population
# Calibration rows are one of four kinds, each equally likely; a new row is of kind i with
# probability w_i / sum w.


def enumerate_coverage(rule, scores, weights, n, alpha) -> Fraction:
    """Compute P(a new row is covered), summed over all draws of n calibration rows and the new
    one.
    """
    scores = np.array(scores)
    weights = np.array(weights)
    new_kinds = np.flatnonzero(weights)
    covered = Fraction(0)

    for draw in product(range(4), repeat=n):
        kinds = list(draw)
        if not weights[kinds].any():  # no threshold: a full set
            covered += Fraction(1, 4**n)
            continue
        thresholds = rule(scores[kinds], weights[kinds], weights[new_kinds], alpha=alpha)
        is_covered = scores[new_kinds] <= np.asarray(thresholds)
        mass = weights[new_kinds[is_covered]].sum()
        covered += Fraction(int(mass), int(weights.sum()) * 4**n)
    return covered


POPULATIONS = {
    "equal weights": ([0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 1.0]),
    "weights grow with scores": ([0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 4.0, 9.0]),
    "heaviest has the lowest score": ([3.0, 1.0, 2.0, 0.0], [1.0, 2.0, 4.0, 9.0]),
    "ties, a weight of 0": ([0.0, 1.0, 1.0, 3.0], [0.0, 3.0, 1.0, 5.0]),
    "ties, two weights of 0": ([2.0, 2.0, 1.0, 3.0], [0.0, 7.0, 0.0, 1.0]),
}


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("alpha", [Fraction(1, 5), Fraction(1, 3), Fraction(1, 2)], ids=str)
@pytest.mark.parametrize(("scores", "weights"), POPULATIONS.values(), ids=POPULATIONS)
def test_every_small_population_is_covered(scores, weights, alpha, n):
    """Exactly; the mass of new rows is enumerated, not drawn."""
    coverage = enumerate_coverage(dco.weighted_conformal, scores, weights, n, alpha)

    assert coverage >= 1 - alpha


@MISTAKES
def test_the_enumeration_sees_both_mistakes(mistake):
    scores, weights = POPULATIONS["weights grow with scores"]

    assert enumerate_coverage(mistake, scores, weights, n=2, alpha=1 / 3) < Fraction(2, 3)


# ---------------------------------------------------------------- what coverage must be, by law
# Given the n + 1 rows as a bag, the new row is row i with probability p_i = w_i / sum w. Without
# ties it is covered when it is among those up to the first at which the masses reach 1 - alpha:
# coverage is the mean of their mass.


def mass_of_the_covered(scores, weights, new_scores, new_weights):
    """Return the covered mass in each bag of the calibration rows and one new row, averaged over
    the new rows.
    """
    n_bags = len(new_scores)
    bag_scores = np.column_stack([np.tile(scores, (n_bags, 1)), new_scores])
    bag_weights = np.column_stack([np.tile(weights, (n_bags, 1)), new_weights])

    order = np.argsort(bag_scores, axis=1)
    masses = np.take_along_axis(bag_weights, order, axis=1)
    running = np.cumsum(masses / masses.sum(axis=1, keepdims=True), axis=1)
    last_covered = np.argmax(running >= 1 - ALPHA, axis=1)
    return np.mean(running[np.arange(n_bags), last_covered])


def check_follows_law(coverage, law) -> None:
    """On the same draws coverage is what the law says: not less, and not more."""
    check_mean(coverage - law, 0, 0)


def check_is_a_mistake(coverage, law) -> None:
    """Coverage is below the level, and the check of the law sees it."""
    check_loses(coverage, 1 - ALPHA, errors=8)
    with pytest.raises(AssertionError):
        check_follows_law(coverage, law)


# ---------------------------------------------------------------- covariate shift: a Gaussian tilt
# x is N(0, 1) among calibration rows and N(TILT, 1) among new rows, so that
# w(x) = exp(TILT x - TILT^2 / 2). The model predicts 0, and y is N(0, (0.5 + exp(x / 2))^2): the
# coverage of a threshold is known for each x.

TILT = 1.0
N = 60
N_NEW = 20


def tilt_weight(x):
    return np.exp(TILT * x - TILT**2 / 2)


def spread(x):
    return 0.5 + np.exp(x / 2)


def tilted_coverage(rule, *, seed, n=N, fits=FITS):
    """Return the coverage of new rows in each fit, and what its mean must be."""
    rng = np.random.default_rng(seed)
    coverage = np.empty(fits)
    law = np.empty(fits)

    for fit in range(fits):
        x = rng.normal(size=n)
        new_x = rng.normal(TILT, size=N_NEW)
        scores = np.abs(spread(x) * rng.normal(size=n))
        new_scores = np.abs(spread(new_x) * rng.normal(size=N_NEW))
        weights = tilt_weight(x)
        new_weights = tilt_weight(new_x)

        thresholds = np.asarray(rule(scores, weights, new_weights, alpha=ALPHA))
        coverage[fit] = np.mean(2 * ndtr(thresholds / spread(new_x)) - 1)
        law[fit] = mass_of_the_covered(scores, weights, new_scores, new_weights)
    return coverage, law


def test_weights_keep_the_level_under_a_tilt():
    coverage, law = tilted_coverage(dco.weighted_conformal, seed=0)

    check_mean(coverage, 1 - ALPHA)
    check_follows_law(coverage, law)


@MISTAKES
def test_mistakes_lose_coverage_under_a_tilt(mistake):
    coverage, law = tilted_coverage(mistake, seed=0)

    check_is_a_mistake(coverage, law)


def test_many_rows_cover_no_more_than_they_must():
    """n = 2,000: masses are small, and coverage is 0.9 to within a half percent and chance."""
    coverage, law = tilted_coverage(dco.weighted_conformal, seed=1, n=2_000, fits=FITS // 5)

    check_mean(coverage, 0.9, 0.905)
    check_follows_law(coverage, law)


# ---------------------------------------------------------------- label shift
# Three labels with shares OLD among calibration rows and NEW among new rows; x given the label is
# N(2 label, 1), among new rows N(2 label + moved, 1). The model knows the old rows only. With
# moved = 0 the label alone decides the weight.

OLD = np.array([0.6, 0.3, 0.1])
NEW = np.array([0.1, 0.3, 0.6])


def predict_old(x) -> dco.ClassProbabilities:
    """Return the exact probabilities of the labels among the old rows."""
    densities = OLD * np.exp(-((x[:, None] - 2 * np.arange(3)) ** 2) / 2)
    return dco.ClassProbabilities(densities / densities.sum(axis=1, keepdims=True))


def draw_labelled_rows(rng, shares, n, moved=0.0):
    labels = rng.choice(3, size=n, p=shares)
    x = 2 * labels + moved + rng.normal(size=n)
    return x, labels


def label_weights(x, moved):
    """Return the weight of each row with each label, (len(x), 3)."""
    of_position = np.exp(moved * (x[:, None] - 2 * np.arange(3)) - moved**2 / 2)
    return NEW / OLD * of_position


def shifted_coverage(rule, *, seed, moved=0.0):
    """Return the share of new rows that are covered in each fit, and what its mean must be.

    There is one threshold per label; with moved rows, one per row and label.
    """
    score = dco.scores.LAC()
    rng = np.random.default_rng(seed)
    coverage = np.empty(FITS)
    law = np.empty(FITS)

    for fit in range(FITS):
        x, y = draw_labelled_rows(rng, OLD, N)
        new_x, new_y = draw_labelled_rows(rng, NEW, N_NEW, moved)
        weights = label_weights(x, moved)[np.arange(N), y]
        new_weights = label_weights(new_x, moved)
        scores = score.observed(predict_old(x), y)
        prediction = predict_old(new_x)
        new_scores = score.observed(prediction, new_y)

        asked_weights = new_weights if moved else new_weights[:1]
        thresholds = rule(scores, weights, asked_weights, alpha=ALPHA)
        coverage[fit] = np.mean(score.sets(prediction, thresholds).contains(new_y))
        weights_of_labels = new_weights[np.arange(N_NEW), new_y]
        law[fit] = mass_of_the_covered(scores, weights, new_scores, weights_of_labels)
    return coverage, law


@pytest.mark.parametrize("moved", [0.0, 0.5], ids=["labels alone", "moved rows"])
def test_weights_of_labels_keep_the_level_when_their_shares_change(moved):
    coverage, law = shifted_coverage(dco.weighted_conformal, seed=2, moved=moved)

    check_mean(coverage, 1 - ALPHA)
    check_follows_law(coverage, law)


@MISTAKES
def test_mistakes_lose_coverage_when_shares_of_labels_change(mistake):
    coverage, law = shifted_coverage(mistake, seed=2)

    check_is_a_mistake(coverage, law)
