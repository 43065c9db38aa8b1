"""Repeated rows and grouped rows: what keeps coverage by law, and what breaks it.

Coverage of the population is known in closed form given the threshold, so the only error is that of the mean over
repetitions. "Within 4 standard errors" fails by chance in 1 of 16,000 checks; all seeds are fixed.
"""

import os

import numpy as np
import pytest
from scipy.stats import binom, norm

from dco.foundations.ranks import conformal_rank
from dco.guarantees.rules import bayesian_quadrature, split_conformal
from dco.guarantees.rules.weighted import grouped_conformal, one_row_per_group
from dco.rows.fingerprints import overlap, row_fingerprints
from dco.rows.roles import assign_roles

FULL = os.environ.get("DCO_GUARANTEES") == "full"
REPEATS = 10_000 if FULL else 2_000
pytestmark = pytest.mark.guarantee

ALPHA, ATOM, N = 0.1, 0.15, 120
EASY_GROUP, HARD_GROUP = 30, 1  # rows of a group


def mean_and_error(values) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


# ---------------------------------------------------------------------------- a population with an atom
# A share 0.15 of the rows is one and the same hard row with score 2; the other rows are all different, score uniform.


def atom_rows(rng):
    return np.where(rng.uniform(size=N) < ATOM, 2.0, rng.uniform(size=N))


def atom_coverage(threshold: float) -> float:
    return (1 - ATOM) * min(threshold, 1.0) + ATOM * (threshold >= 2)


def mean_coverage_with(hard: int, easy: int) -> float:
    """E[coverage] when calibration has `hard` copies of the atom and `easy` rows with uniform scores."""
    rank = conformal_rank(hard + easy, alpha=ALPHA)
    return 1.0 if rank > easy else (1 - ATOM) * rank / (easy + 1)  # the mean of a uniform order statistic


def test_row_wise_roles_keep_coverage_with_repeated_rows():
    """Mean coverage agrees with the exact law, and is at least 0.90, although most splits share the hard row."""
    rng = np.random.default_rng(0)
    coverage, shared = [], []
    for _ in range(REPEATS):
        scores = atom_rows(rng)
        roles = assign_roles(N, tune=1 / 3, calibrate=1 / 3, seed=rng)
        coverage.append(atom_coverage(split_conformal(scores[roles.calibrate], alpha=ALPHA).value))
        if len(shared) < 50:
            shared.append(overlap(row_fingerprints(scores[roles.calibrate]), row_fingerprints(scores[roles.train])).size > 0)
    size = N // 3
    law = sum(binom.pmf(h, size, ATOM) * mean_coverage_with(h, size - h) for h in range(size + 1))
    mean, error = mean_and_error(coverage)
    assert law >= 0.9
    assert abs(mean - law) < 4 * error
    assert np.mean(shared) > 0.9


def test_tying_copies_to_one_role_breaks_coverage():
    """The same population with copies tied together (as groups of equal rows): 0.852 at level 0.90, by an exact law."""
    rng = np.random.default_rng(1)
    coverage = []
    for _ in range(REPEATS):
        scores = atom_rows(rng)
        roles = assign_roles(N, tune=1 / 3, calibrate=1 / 3, groups=scores, seed=rng)
        coverage.append(atom_coverage(split_conformal(scores[roles.calibrate], alpha=ALPHA).value))
    law = 0.0
    for h in range(N + 1):
        units = N - h + (h > 0)
        taken = int(units / 3 + 0.5)
        inside = taken / units if h else 0.0  # the chance that the atom's unit is a calibration unit
        tied = inside * mean_coverage_with(h, taken - 1) + (1 - inside) * mean_coverage_with(0, taken)
        law += binom.pmf(h, N, ATOM) * tied
    mean, error = mean_and_error(coverage)
    assert abs(mean - law) < 4 * error
    assert 0.83 < law < 0.86
    assert mean + 5 * error < 0.9


# ---------------------------------------------------------------------------- rows of groups
# Score = a shift common to the group + noise; a new row belongs to a new group.

SPREAD = 0.3


def grouped_rows(rng, groups: int, rows: int):
    shift = rng.normal(size=groups)
    labels = np.repeat(np.arange(groups), rows)
    return shift[labels] + SPREAD * rng.normal(size=labels.size), labels


def new_row_coverage(threshold: float) -> float:
    return float(norm.cdf(threshold / np.sqrt(1 + SPREAD**2)))


@pytest.mark.parametrize("groups", [5, 10, 20])
def test_pooled_rows_of_groups_under_cover(groups):
    rng = np.random.default_rng(groups)
    pooled = [new_row_coverage(split_conformal(grouped_rows(rng, groups, 40)[0], alpha=ALPHA).value) for _ in range(REPEATS)]
    mean, error = mean_and_error(pooled)
    assert mean + 5 * error < 0.9


@pytest.mark.parametrize("groups", [10, 20, 57])
def test_calibration_by_group_covers_a_row_of_a_new_group(groups):
    """At least 0.90, and at most 0.90 + 2 / (G + 1): the rule is valid and not wasteful."""
    rng = np.random.default_rng(100 + groups)
    coverage = [
        new_row_coverage(grouped_conformal(*grouped_rows(rng, groups, 40), alpha=ALPHA).value) for _ in range(REPEATS)
    ]
    mean, error = mean_and_error(coverage)
    assert 0.9 - 4 * error < mean < 0.9 + 2 / (groups + 1) + 4 * error


def sized_rows(rng, groups: int):
    """Half of the groups are hard (scores in [1, 2]) and have one row; the others are easy ([0, 1]) and have 30."""
    hard = rng.uniform(size=groups) < 0.5
    labels = np.repeat(np.arange(groups), np.where(hard, HARD_GROUP, EASY_GROUP))
    return hard[labels] + rng.uniform(size=labels.size), labels


def test_small_hard_groups_fool_pooling_and_not_calibration_by_group():
    """Groups go through assign_roles(): a new group is hard with probability 1/2 and coverage is q / 2 for q in [0, 2]."""
    rng = np.random.default_rng(7)
    pooled, grouped = [], []
    for _ in range(REPEATS):
        scores, labels = sized_rows(rng, 60)
        rows = assign_roles(labels.size, tune=0.25, calibrate=0.5, groups=labels, seed=rng).calibrate
        pooled.append(min(split_conformal(scores[rows], alpha=ALPHA).value, 2) / 2)
        grouped.append(min(grouped_conformal(scores[rows], labels[rows], alpha=ALPHA).value, 2) / 2)
    mean, error = mean_and_error(pooled)
    assert mean + 5 * error < 0.5
    mean, error = mean_and_error(grouped)
    assert 0.9 - 4 * error < mean < 0.9 + 2 / 31 + 4 * error


def test_a_row_picked_from_a_new_group_is_covered_and_not_the_same_share_of_rows():
    """Half of the groups are hard (scores in [1, 2]) and have 30 rows, the others are easy ([0, 1]) and have one.

    A row picked at random is covered with probability q / 2, but a share (1 + 30 (q - 1)) / 31 of all rows for q in [1, 2].
    """
    rng = np.random.default_rng(8)
    picked, share = [], []
    for _ in range(REPEATS):
        hard = rng.uniform(size=30) < 0.5
        labels = np.repeat(np.arange(30), np.where(hard, 30, 1))
        q = min(grouped_conformal(hard[labels] + rng.uniform(size=labels.size), labels, alpha=ALPHA).value, 2)
        picked.append(q / 2)
        share.append((1 + 30 * (q - 1)) / 31)
    mean, error = mean_and_error(picked)
    assert 0.9 - 4 * error < mean < 0.9 + 2 / 31 + 4 * error
    mean, error = mean_and_error(share)
    assert mean + 5 * error < 0.9


def test_a_row_that_is_not_picked_at_random_needs_rows_that_are_alike():
    """Visit v has scores of scale v = 1 ... 5: a visit picked at random is covered as promised, the last one is not."""
    rng = np.random.default_rng(9)
    scale, labels = np.arange(1, 6), np.repeat(np.arange(30), 5)
    values = [
        grouped_conformal((scale * np.abs(rng.normal(size=(30, 5)))).ravel(), labels, alpha=ALPHA).value
        for _ in range(REPEATS)
    ]
    covered = 2 * norm.cdf(np.asarray(values)[:, None] / scale) - 1
    mean, error = mean_and_error(covered.mean(axis=1))
    assert 0.9 - 4 * error < mean < 0.9 + 2 / 31 + 4 * error
    mean, error = mean_and_error(covered[:, -1])
    assert mean + 5 * error < 0.9


def test_pac_holds_with_one_row_a_group_and_not_with_pooled_rows():
    """Failures (coverage < 0.90) of 60 groups at delta = 0.1 stay below the 99.9 % point of their binomial law."""
    rng = np.random.default_rng(11)
    delta, runs = 0.1, REPEATS // 2
    failures = {"one": 0, "pooled": 0}
    for _ in range(runs):
        scores, labels = grouped_rows(rng, 60, 10)
        one = bayesian_quadrature(scores[one_row_per_group(labels, seed=rng)], alpha=ALPHA, delta=delta)
        failures["one"] += new_row_coverage(one.value) < 0.9
        failures["pooled"] += new_row_coverage(bayesian_quadrature(scores, alpha=ALPHA, delta=delta).value) < 0.9
    limit = binom.ppf(0.999, runs, delta)
    assert failures["one"] <= limit
    assert failures["pooled"] > 2 * limit
