"""Repeated rows and grouped rows: what keeps coverage by law, and what breaks it.

Coverage of the population is known in closed form given the threshold, so the only error is that of
the mean over repetitions.
"""

import numpy as np
import pytest
from laws import FULL, check_loses, check_mean
from scipy.stats import binom, norm

from dco.calibration import (
    bayesian_quadrature,
    grouped_conformal,
    one_row_per_group,
    split_conformal,
)
from dco.foundations.fingerprints import overlap, row_fingerprints
from dco.foundations.ranks import conformal_rank
from dco.rows.splits import assign_roles

REPEATS = 10_000 if FULL else 2_000
pytestmark = pytest.mark.guarantee

ALPHA, ATOM, N = 0.1, 0.15, 120


# ---------------------------------------------------------------------------- a population with an
# atom A share 0.15 of the rows is one and the same hard row with score 2; the other rows are all
# different, score uniform.


def atom_rows(rng):
    return np.where(rng.uniform(size=N) < ATOM, 2.0, rng.uniform(size=N))


def atom_coverage(threshold: float) -> float:
    return (1 - ATOM) * min(threshold, 1.0) + ATOM * (threshold >= 2)


def mean_coverage_with(hard: int, easy: int) -> float:
    """E[coverage] when calibration has `hard` copies of the atom and `easy` rows with uniform
    scores.
    """
    rank = conformal_rank(hard + easy, alpha=ALPHA)
    # the mean of a uniform order statistic
    return 1.0 if rank > easy else (1 - ATOM) * rank / (easy + 1)


def atom_roles(rng, *, tied):
    """Coverage of each repetition, and how often calibration rows are among training rows; copies
    may be tied together.
    """
    coverage, shared = [], []
    for _ in range(REPEATS):
        scores = atom_rows(rng)
        roles = assign_roles(
            N, tune=1 / 3, calibrate=1 / 3, groups=scores if tied else None, random_state=rng
        )
        coverage.append(atom_coverage(split_conformal(scores[roles.calibrate], alpha=ALPHA).value))
        if len(shared) < 50:
            shared.append(
                overlap(
                    row_fingerprints(scores[roles.calibrate]), row_fingerprints(scores[roles.train])
                ).size
                > 0
            )
    return coverage, np.mean(shared)


def test_row_wise_roles_keep_coverage_with_repeated_rows():
    """Mean coverage agrees with the exact law, and is at least 0.90, although most splits share the
    hard row.
    """
    coverage, shared = atom_roles(np.random.default_rng(0), tied=False)
    size = N // 3
    law = sum(binom.pmf(h, size, ATOM) * mean_coverage_with(h, size - h) for h in range(size + 1))
    assert law >= 0.9
    check_mean(coverage, law, law)
    assert shared > 0.9


def test_tying_copies_to_one_role_breaks_coverage():
    """The same population with copies tied together (as groups of equal rows): 0.852 at level 0.90,
    by an exact law.
    """
    coverage, shared = atom_roles(np.random.default_rng(1), tied=True)
    law = 0.0
    for h in range(N + 1):
        units = N - h + (h > 0)
        taken = int(units / 3 + 0.5)
        # the chance that the atom's unit is a calibration unit
        inside = taken / units if h else 0.0
        tied = inside * mean_coverage_with(h, taken - 1) + (1 - inside) * mean_coverage_with(
            0, taken
        )
        law += binom.pmf(h, N, ATOM) * tied
    check_mean(coverage, law, law)
    assert 0.83 < law < 0.86
    assert shared == 0
    check_loses(coverage, 0.9)


# ---------------------------------------------------------------------------- rows of groups
# Score = a shift common to the group + noise; a new row belongs to a new group.

SPREAD = 0.3


def grouped_rows(rng, groups: int, rows: int):
    shift = rng.normal(size=groups)
    labels = np.repeat(np.arange(groups), rows)
    return shift[labels] + SPREAD * rng.normal(size=labels.size), labels


def new_row_coverage(threshold):
    return norm.cdf(np.divide(threshold, np.sqrt(1 + SPREAD**2)))


@pytest.mark.parametrize("groups", [5, 10, 20])
def test_pooled_rows_of_groups_under_cover(groups):
    rng = np.random.default_rng(groups)
    values = [
        split_conformal(grouped_rows(rng, groups, 40)[0], alpha=ALPHA).value for _ in range(REPEATS)
    ]
    check_loses(new_row_coverage(values), 0.9)


@pytest.mark.parametrize("groups", [10, 20, 57])
def test_calibration_by_group_covers_a_row_of_a_new_group(groups):
    """At least 0.90, and at most 0.90 + 2 / (G + 1): the rule is valid and not wasteful."""
    rng = np.random.default_rng(100 + groups)
    values = [
        grouped_conformal(*grouped_rows(rng, groups, 40), alpha=ALPHA).value for _ in range(REPEATS)
    ]
    check_mean(new_row_coverage(values), 0.9, 0.9 + 2 / (groups + 1))


def sized_rows(rng, groups: int, *, hard_rows: int, easy_rows: int):
    """Half of the groups are hard (scores in [1, 2]), the others easy ([0, 1]); each kind has its
    number of rows.
    """
    hard = rng.uniform(size=groups) < 0.5
    labels = np.repeat(np.arange(groups), np.where(hard, hard_rows, easy_rows))
    return hard[labels] + rng.uniform(size=labels.size), labels


def test_small_hard_groups_fool_pooling_and_not_calibration_by_group():
    """Groups go through assign_roles(): a new group is hard with probability 1/2 and coverage is q
    / 2 for q in [0, 2].
    """
    rng = np.random.default_rng(7)
    pooled, grouped = [], []
    for _ in range(REPEATS):
        scores, labels = sized_rows(rng, 60, hard_rows=1, easy_rows=30)
        rows = assign_roles(
            labels.size, tune=0.25, calibrate=0.5, groups=labels, random_state=rng
        ).calibrate
        pooled.append(min(split_conformal(scores[rows], alpha=ALPHA).value, 2) / 2)
        grouped.append(min(grouped_conformal(scores[rows], labels[rows], alpha=ALPHA).value, 2) / 2)
    check_loses(pooled, 0.5)
    check_mean(grouped, 0.9, 0.9 + 2 / 31)


def test_a_row_picked_from_a_new_group_is_covered_and_not_the_same_share_of_rows():
    """A row picked at random is covered with probability q / 2, but of all rows a share (1 + 30 (q
    - 1)) / 31.
    """
    rng = np.random.default_rng(8)
    values = [
        grouped_conformal(*sized_rows(rng, 30, hard_rows=30, easy_rows=1), alpha=ALPHA).value
        for _ in range(REPEATS)
    ]
    q = np.minimum(values, 2)
    check_mean(q / 2, 0.9, 0.9 + 2 / 31)
    check_loses((1 + 30 * (q - 1)) / 31, 0.9)


def test_a_row_that_is_not_picked_at_random_needs_rows_that_are_alike():
    """Visit v has scores of scale v = 1 ... 5: a visit picked at random is covered as promised, the
    last one is not.
    """
    rng = np.random.default_rng(9)
    scale, labels = np.arange(1, 6), np.repeat(np.arange(30), 5)
    scores = (scale * np.abs(rng.normal(size=(REPEATS, 30, 5)))).reshape(REPEATS, -1)
    values = np.array([grouped_conformal(own, labels, alpha=ALPHA).value for own in scores])
    covered = 2 * norm.cdf(values[:, None] / scale) - 1
    check_mean(covered.mean(axis=1), 0.9, 0.9 + 2 / 31)
    check_loses(covered[:, -1], 0.9)


def test_pac_holds_with_one_row_a_group_and_not_with_pooled_rows():
    """Failures (coverage < 0.90) of 60 groups at delta = 0.1 stay below the 99.9 % point of their
    binomial law.
    """
    rng = np.random.default_rng(11)
    delta, runs = 0.1, REPEATS // 2
    failures = {"one": 0, "pooled": 0}
    for _ in range(runs):
        scores, labels = grouped_rows(rng, 60, 10)
        one = bayesian_quadrature(
            scores[one_row_per_group(labels, seed=rng)], alpha=ALPHA, delta=delta
        )
        failures["one"] += new_row_coverage(one.value) < 0.9
        failures["pooled"] += (
            new_row_coverage(bayesian_quadrature(scores, alpha=ALPHA, delta=delta).value) < 0.9
        )
    limit = binom.ppf(0.999, runs, delta)
    assert failures["one"] <= limit
    assert failures["pooled"] > 2 * limit
