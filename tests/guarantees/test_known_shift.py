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
from dco.calibration import split_conformal, weighted_conformal

FITS = 10_000 if FULL else 2_500
pytestmark = [pytest.mark.guarantee, pytest.mark.filterwarnings(ignore_infeasible)]

ALPHA = 0.1


def without_own_mass(scores, weights, new_weights, *, alpha):
    """The classic mistake: the weighted quantile of the calibration rows alone."""
    order = np.argsort(scores)
    running = np.cumsum(weights[order])
    place = np.searchsorted(running, (1 - alpha) * running[-1] * (1 - 1e-12))
    return np.full(np.shape(new_weights), scores[order][place])


def without_weights(scores, weights, new_weights, *, alpha):
    return np.full(np.shape(new_weights), split_conformal(scores, alpha=alpha).value)


# ---------------------------------------------------------------------------- every draw of a small
# population Calibration rows are one of four kinds, each equally likely; a new row is of kind i
# with probability w_i / sum w.


def enumerated_coverage(rule, scores, weights, n, alpha) -> Fraction:
    """P(a new row is covered), summed over all draws of n calibration rows and the new one."""
    covered, new = Fraction(0), np.flatnonzero(weights)
    for rows in product(range(4), repeat=n):
        kinds = list(rows)
        if not weights[kinds].any():  # no threshold: a full set
            covered += Fraction(1, 4**n)
            continue
        limits = np.asarray(rule(scores[kinds], weights[kinds], weights[new], alpha=alpha))
        inside = new[scores[new] <= limits]
        covered += Fraction(int(weights[inside].sum()), int(weights.sum()) * 4**n)
    return covered


POPULATIONS = [
    ([0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 1.0]),
    ([0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 4.0, 9.0]),
    ([3.0, 1.0, 2.0, 0.0], [1.0, 2.0, 4.0, 9.0]),
    ([0.0, 1.0, 1.0, 3.0], [0.0, 3.0, 1.0, 5.0]),
    ([2.0, 2.0, 1.0, 3.0], [0.0, 7.0, 0.0, 1.0]),
]


@pytest.mark.parametrize(("scores", "weights"), POPULATIONS)
@pytest.mark.parametrize("alpha", [Fraction(1, 5), Fraction(1, 3), Fraction(1, 2)])
def test_every_small_population_is_covered(scores, weights, alpha):
    """Exactly, with ties and weights of 0; the mass of new rows is enumerated, not drawn."""
    for n in (1, 2, 4):
        assert (
            enumerated_coverage(weighted_conformal, np.array(scores), np.array(weights), n, alpha)
            >= 1 - alpha
        )


def test_the_enumeration_sees_both_mistakes():
    scores, weights = (np.array(part) for part in POPULATIONS[1])
    for mistake in (without_own_mass, without_weights):
        assert enumerated_coverage(mistake, scores, weights, 2, 1 / 3) < Fraction(2, 3)


# ---------------------------------------------------------------------------- what coverage must
# be, by law Given the n + 1 rows as a bag, the new row is row i with probability p_i = w_i / sum w.
# Without ties it is covered when it is among those up to the first at which the masses reach 1 -
# alpha: coverage is the mean of their mass.


def mass_of_the_covered(scores, weights, new_scores, own):
    """The mass in each bag of the calibration rows and one of the new rows, averaged over the new
    rows.
    """
    bags = np.column_stack([np.tile(scores, (len(own), 1)), new_scores])
    order = np.argsort(bags, axis=1)
    masses = np.take_along_axis(
        np.column_stack([np.tile(weights, (len(own), 1)), own]), order, axis=1
    )
    running = np.cumsum(masses / masses.sum(axis=1, keepdims=True), axis=1)
    return np.mean(running[np.arange(len(own)), np.argmax(running >= 1 - ALPHA, axis=1)])


def check(coverage, law, *, most=1.0) -> None:
    """At least the level, and what the law says on the same draws: not less, and not more."""
    check_mean(coverage, 1 - ALPHA, most)
    check_mean(coverage - law, 0, 0)


def check_mistake(coverage, law) -> None:
    check_loses(coverage, 1 - ALPHA, errors=8)
    with pytest.raises(AssertionError):
        check_mean(coverage - law, 0, 0)


# ---------------------------------------------------------------------------- covariate shift: a
# Gaussian tilt x is N(0, 1) among calibration rows and N(TILT, 1) among new rows: w(x) = exp(TILT x
# - TILT^2 / 2). The model predicts 0, and y is N(0, (0.5 + exp(x / 2))^2), so that the coverage of
# a threshold is known for each x.

TILT, N, NEW = 1.0, 60, 20


def ratio(x):
    return np.exp(TILT * x - TILT**2 / 2)


def spread(x):
    return 0.5 + np.exp(x / 2)


def tilted_coverage(rule, *, seed, n=N, fits=FITS):
    """The coverage of new rows in each fit, and what its mean must be."""
    rng = np.random.default_rng(seed)
    coverage, law = np.empty(fits), np.empty(fits)
    for fit in range(fits):
        x, new = rng.normal(size=n), rng.normal(TILT, size=NEW)
        scores, new_scores = (
            np.abs(spread(x) * rng.normal(size=n)),
            np.abs(spread(new) * rng.normal(size=NEW)),
        )
        limits = np.asarray(rule(scores, ratio(x), ratio(new), alpha=ALPHA))
        coverage[fit] = np.mean(2 * ndtr(limits / spread(new)) - 1)
        law[fit] = mass_of_the_covered(scores, ratio(x), new_scores, ratio(new))
    return coverage, law


def test_weights_keep_the_level_under_a_tilt():
    check(*tilted_coverage(weighted_conformal, seed=0))


@pytest.mark.parametrize("mistake", [without_own_mass, without_weights])
def test_mistakes_lose_coverage_under_a_tilt(mistake):
    check_mistake(*tilted_coverage(mistake, seed=0))


def test_many_rows_cover_no_more_than_they_must():
    """n = 2,000: masses are small, and coverage is 0.9 to within a half percent and chance."""
    check(*tilted_coverage(weighted_conformal, seed=1, n=2_000, fits=FITS // 5), most=0.905)


# ---------------------------------------------------------------------------- label shift
# Three labels with shares OLD among calibration rows and SHARES among new rows; x given the label
# is N(2 label, 1), among new rows N(2 label + moved, 1). The model knows the old rows only. With
# moved = 0 the label alone decides the weight.

OLD, SHARES = np.array([0.6, 0.3, 0.1]), np.array([0.1, 0.3, 0.6])


def predicted(x) -> dco.ClassProbabilities:
    densities = OLD * np.exp(-((x[:, None] - 2 * np.arange(3)) ** 2) / 2)
    return dco.ClassProbabilities(densities / densities.sum(axis=1, keepdims=True))


def label_rows(rng, shares, n, moved=0.0):
    labels = rng.choice(3, size=n, p=shares)
    return 2 * labels + moved + rng.normal(size=n), labels


def label_ratio(x, moved):
    """The weight of each label, (len(x), K)."""
    return SHARES / OLD * np.exp(moved * (x[:, None] - 2 * np.arange(3)) - moved**2 / 2)


def shifted_coverage(rule, score, *, seed, moved=0.0):
    """In each fit the share of new rows that are covered, and what its mean must be."""
    rng = np.random.default_rng(seed)
    coverage, law = np.empty(FITS), np.empty(FITS)
    for fit in range(FITS):
        x, y = label_rows(rng, OLD, N)
        new_x, new_y = label_rows(rng, SHARES, NEW, moved)
        weights, own = label_ratio(x, moved)[np.arange(N), y], label_ratio(new_x, moved)
        scores, prediction = score.observed(predicted(x), y), predicted(new_x)
        sets = score.sets(prediction, rule(scores, weights, own if moved else own[:1], alpha=ALPHA))
        coverage[fit] = np.mean(sets.contains(new_y))
        law[fit] = mass_of_the_covered(
            scores, weights, score.observed(prediction, new_y), own[np.arange(NEW), new_y]
        )
    return coverage, law


@pytest.mark.parametrize("moved", [0.0, 0.5])
def test_weights_of_labels_keep_the_level_when_their_shares_change(moved):
    """One threshold per label; with moved rows, one per row and label."""
    check(*shifted_coverage(weighted_conformal, dco.scores.LAC(), seed=2, moved=moved))


@pytest.mark.parametrize("mistake", [without_own_mass, without_weights])
def test_mistakes_lose_coverage_when_shares_of_labels_change(mistake):
    check_mistake(*shifted_coverage(mistake, dco.scores.LAC(), seed=2))
