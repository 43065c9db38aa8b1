"""Repeated rows and grouped rows: what keeps coverage by law, and what breaks it.

Coverage of the population is known in closed form given the threshold, so the only error is that of
the mean over repetitions.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from laws import FULL, check_loses, check_mean
from scipy.stats import binom, norm

import dco

REPEATS = 10_000 if FULL else 2_000
ALPHA = 0.1
pytestmark = pytest.mark.guarantee


# ---------------------------------------------------------------- a population with an atom
#
# A share 0.15 of the rows is one and the same hard row with score 2; the other rows are all
# different, and their scores are uniform.

ATOM = 0.15
N = 120


def draw_atom_scores(rng):
    return np.where(rng.uniform(size=N) < ATOM, 2.0, rng.uniform(size=N))


def atom_coverage(threshold):
    return (1 - ATOM) * min(threshold, 1.0) + ATOM * (threshold >= 2)


def mean_coverage_with(n_hard, n_easy):
    """Return E[coverage] when calibration has copies of the atom and rows with uniform scores."""
    rank = dco.conformal_rank(n_hard + n_easy, alpha=ALPHA)
    if rank > n_easy:
        return 1.0
    mean_of_order_statistic = rank / (n_easy + 1)
    return (1 - ATOM) * mean_of_order_statistic


@dataclass(frozen=True, eq=False)
class DealtAtoms:
    """Coverage of each repetition, and how often calibration and training rows share the atom."""

    coverage: list[float]
    share_with_common_rows: float

    @classmethod
    def draw(cls, rng, *, is_tied):
        """Deal roles by rows, or with equal rows tied to one role."""
        coverage = []
        has_common_rows = []
        for _ in range(REPEATS):
            scores = draw_atom_scores(rng)
            groups = scores if is_tied else None
            roles = dco.assign_roles(
                N, tune=1 / 3, calibrate=1 / 3, groups=groups, random_state=rng
            )
            threshold = dco.split_conformal(scores[roles.calibrate], alpha=ALPHA)
            coverage.append(atom_coverage(threshold.value))
            has_common_rows.append(np.isin(scores[roles.calibrate], scores[roles.train]).any())
        return cls(coverage, float(np.mean(has_common_rows)))


@pytest.fixture(scope="module")
def dealt_by_rows():
    return DealtAtoms.draw(np.random.default_rng(0), is_tied=False)


@pytest.fixture(scope="module")
def dealt_by_ties():
    return DealtAtoms.draw(np.random.default_rng(1), is_tied=True)


def law_of_rows():
    """Return mean coverage where each row is dealt by itself: 40 rows calibrate."""
    return sum(binom.pmf(h, 40, ATOM) * mean_coverage_with(h, 40 - h) for h in range(41))


def law_of_ties():
    """Return mean coverage where all copies of the atom are dealt as one unit."""
    mean = 0.0
    for n_hard in range(N + 1):
        n_units = N - n_hard + (n_hard > 0)
        n_calibrate = int(n_units / 3 + 0.5)
        chance_of_atom = n_calibrate / n_units if n_hard else 0.0
        with_atom = mean_coverage_with(n_hard, n_calibrate - 1)
        without_atom = mean_coverage_with(0, n_calibrate)
        coverage = chance_of_atom * with_atom + (1 - chance_of_atom) * without_atom
        mean += binom.pmf(n_hard, N, ATOM) * coverage
    return mean


def test_roles_by_rows_keep_coverage_with_repeated_rows(dealt_by_rows):
    assert law_of_rows() >= 0.9
    check_mean(dealt_by_rows.coverage, law_of_rows(), law_of_rows())


def test_most_splits_by_rows_share_the_hard_row(dealt_by_rows):
    assert dealt_by_rows.share_with_common_rows > 0.9


def test_planted_copies_tied_to_one_role_lose_coverage(dealt_by_ties):
    """0.852 at level 0.90, by an exact law."""
    assert law_of_ties() == pytest.approx(0.852, abs=0.001)
    check_mean(dealt_by_ties.coverage, law_of_ties(), law_of_ties())
    check_loses(dealt_by_ties.coverage, 0.9)


def test_tied_copies_share_no_row(dealt_by_ties):
    assert dealt_by_ties.share_with_common_rows == 0


# ---------------------------------------------------------------- rows of groups
#
# A score is a shift common to the group and noise; a new row belongs to a new group.

SPREAD = 0.3


def draw_grouped_scores(rng, n_groups, n_rows):
    """Draw scores, and the group of each."""
    shift = rng.normal(size=n_groups)
    groups = np.repeat(np.arange(n_groups), n_rows)
    return shift[groups] + SPREAD * rng.normal(size=groups.size), groups


def new_row_coverage(threshold):
    return norm.cdf(np.divide(threshold, np.sqrt(1 + SPREAD**2)))


@pytest.mark.parametrize("n_groups", [5, 10, 20])
def test_planted_pooled_rows_of_groups_lose_coverage(n_groups):
    rng = np.random.default_rng(n_groups)
    samples = (draw_grouped_scores(rng, n_groups, 40) for _ in range(REPEATS))

    thresholds = [dco.split_conformal(scores, alpha=ALPHA).value for scores, _ in samples]

    check_loses(new_row_coverage(thresholds), 0.9)


@pytest.mark.parametrize("n_groups", [10, 20, 57])
def test_calibration_by_group_covers_a_row_of_a_new_group(n_groups):
    """At least 0.90, and at most 0.90 + 2 / (G + 1): the rule is valid and not wasteful."""
    rng = np.random.default_rng(100 + n_groups)
    samples = (draw_grouped_scores(rng, n_groups, 40) for _ in range(REPEATS))

    thresholds = [
        dco.grouped_conformal(scores, groups, alpha=ALPHA).value for scores, groups in samples
    ]

    check_mean(new_row_coverage(thresholds), 0.9, 0.9 + 2 / (n_groups + 1))


# ---------------------------------------------------------------- groups of two sizes
#
# Half of the groups are hard (scores in [1, 2]), the others easy ([0, 1]). A new row is hard with
# probability 1/2, so that its coverage is q / 2 for a threshold q in [0, 2].


def draw_sized_scores(rng, n_groups, *, hard_rows, easy_rows):
    """Draw scores, and the group of each; a kind of group has its own number of rows."""
    is_hard = rng.uniform(size=n_groups) < 0.5
    groups = np.repeat(np.arange(n_groups), np.where(is_hard, hard_rows, easy_rows))
    return is_hard[groups] + rng.uniform(size=groups.size), groups


def dealt_calibration_scores(rng):
    """Draw small hard groups and large easy ones, and deal half of the groups to calibration."""
    scores, groups = draw_sized_scores(rng, 60, hard_rows=1, easy_rows=30)
    roles = dco.assign_roles(groups.size, tune=0.25, calibrate=0.5, groups=groups, random_state=rng)
    return scores[roles.calibrate], groups[roles.calibrate]


def test_planted_pooling_is_fooled_by_small_hard_groups():
    rng = np.random.default_rng(7)
    samples = (dealt_calibration_scores(rng) for _ in range(REPEATS))

    thresholds = [dco.split_conformal(scores, alpha=ALPHA).value for scores, _ in samples]

    check_loses(np.minimum(thresholds, 2) / 2, 0.5)


def test_calibration_by_group_is_not_fooled_by_small_hard_groups():
    rng = np.random.default_rng(7)
    samples = (dealt_calibration_scores(rng) for _ in range(REPEATS))

    thresholds = [
        dco.grouped_conformal(scores, groups, alpha=ALPHA).value for scores, groups in samples
    ]

    check_mean(np.minimum(thresholds, 2) / 2, 0.9, 0.9 + 2 / 31)


@pytest.fixture(scope="module")
def thresholds_of_large_hard_groups():
    rng = np.random.default_rng(8)
    samples = (draw_sized_scores(rng, 30, hard_rows=30, easy_rows=1) for _ in range(REPEATS))
    thresholds = [
        dco.grouped_conformal(scores, groups, alpha=ALPHA).value for scores, groups in samples
    ]
    return np.minimum(thresholds, 2)


def test_a_row_picked_from_a_new_group_is_covered(thresholds_of_large_hard_groups):
    check_mean(thresholds_of_large_hard_groups / 2, 0.9, 0.9 + 2 / 31)


def test_of_all_rows_fewer_are_covered(thresholds_of_large_hard_groups):
    """A share (1 + 30 (q - 1)) / 31: 30 of 31 rows are hard."""
    check_loses((1 + 30 * (thresholds_of_large_hard_groups - 1)) / 31, 0.9)


# ---------------------------------------------------------------- visits that differ


@pytest.fixture(scope="module")
def coverage_of_visits():
    """Return the coverage of visits 1 to 5 of a new group, (repeats, 5); visit v has scale v."""
    rng = np.random.default_rng(9)
    scale = np.arange(1, 6)
    groups = np.repeat(np.arange(30), 5)
    samples = (scale * np.abs(rng.normal(size=(REPEATS, 30, 5)))).reshape(REPEATS, -1)
    thresholds = [dco.grouped_conformal(scores, groups, alpha=ALPHA).value for scores in samples]
    return 2 * norm.cdf(np.array(thresholds)[:, None] / scale) - 1


def test_a_visit_picked_at_random_is_covered(coverage_of_visits):
    check_mean(coverage_of_visits.mean(axis=1), 0.9, 0.9 + 2 / 31)


def test_a_last_visit_needs_visits_that_are_alike(coverage_of_visits):
    check_loses(coverage_of_visits[:, -1], 0.9)


# ---------------------------------------------------------------- PAC


def count_pac_failures(take_rows):
    """Count how often coverage is below 0.90 at delta = 0.1, with some rows of 60 groups."""
    rng = np.random.default_rng(11)
    n_failures = 0
    for _ in range(REPEATS // 2):
        scores, groups = draw_grouped_scores(rng, 60, 10)
        rows = take_rows(groups, rng)
        threshold = dco.bayesian_quadrature(scores[rows], alpha=ALPHA, delta=0.1)
        n_failures += new_row_coverage(threshold.value) < 0.9
    return n_failures


MOST_FAILURES = binom.ppf(0.999, REPEATS // 2, 0.1)


def test_pac_holds_with_one_row_a_group():
    """Failures stay below the 99.9 % point of their binomial law."""
    n_failures = count_pac_failures(lambda groups, rng: dco.one_row_per_group(groups, seed=rng))

    assert n_failures <= MOST_FAILURES


def test_planted_pac_fails_with_pooled_rows():
    n_failures = count_pac_failures(lambda groups, rng: np.arange(groups.size))

    assert n_failures > 2 * MOST_FAILURES
