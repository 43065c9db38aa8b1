"""`conditional_conformal`: the definition by another solver, the laws of its special cases,
coverage in every group.
"""

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

import dco
from dco import conditional_conformal, split_conformal
from dco.scores.thresholds import LOWEST_SCORE

full_sets_are_fine = pytest.mark.filterwarnings(
    "ignore::dco.foundations.errors.InfeasibleLevelWarning"
)
# a constant, and two groups that overlap
GROUPS = np.array([[1, 0, 0], [1, 0, 1], [1, 1, 0], [1, 1, 1]])


def in_set(scores, features, own, s, alpha):
    """The definition: whether every quantile regression of the n + 1 scores is at or above s at the
    new row.

    By duality some solution of the dual then has the new row below its upper bound 1 - alpha.
    """
    every, all_features = np.append(scores, s), np.vstack([features, own])
    setting = {
        "A_eq": all_features.T,
        "b_eq": np.zeros(len(own)),
        "bounds": [(-alpha, 1 - alpha)] * len(every),
    }
    best = linprog(-every, **setting).fun
    least = linprog(np.eye(len(every))[-1], A_ub=[-every], b_ub=[best + 1e-9], **setting).fun
    return least < 1 - alpha - 1e-4


@full_sets_are_fine
@pytest.mark.parametrize("kind", ["indicators", "numbers"])
@pytest.mark.parametrize("tied", [False, True])
def test_cutoffs_are_those_of_the_definition(kind, tied):
    rng = np.random.default_rng([tied, len(kind)])
    finite = 0
    for _ in range(25):
        n, d, alpha = rng.integers(6, 50), rng.integers(1, 5), rng.choice([0.1, 0.2, 0.25, 0.3])
        own = (
            rng.integers(0, 2, (n + 2, d)) if kind == "indicators" else rng.normal(size=(n + 2, d))
        )
        features = np.hstack([np.ones((n + 2, 1)), own])
        scores = rng.integers(0, 6, n).astype(float) if tied else rng.normal(size=n)
        cutoffs = conditional_conformal(scores, features[:n], features[n:], alpha=alpha)
        for row, cutoff in zip(features[n:], cutoffs, strict=True):
            grid = (
                [cutoff - 1, cutoff - 0.01, cutoff + 0.01, cutoff + 1]
                if np.isfinite(cutoff)
                else [-5.0, 5.0, 1e3]
            )
            assert [in_set(scores, features[:n], row, s, alpha) for s in grid] == [
                s <= cutoff for s in grid
            ]
            finite += np.isfinite(cutoff)
    assert finite > 20


@full_sets_are_fine
@pytest.mark.parametrize("alpha", [0.1, 1 - 0.9, 0.05, 0.059, 1 / 3, "0.123456789"])
def test_a_constant_is_split_conformal_and_groups_apart_are_mondrian(alpha):
    """To the last bit, at every n: ranks where (n + 1)(1 - alpha) is whole are those that a
    tolerance would miss.
    """
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 8, 9, 10, 18, 19, 20, 39, 99, 100, 999):
        scores, group = (
            rng.choice([rng.normal(size=n), rng.integers(0, 3, n)]),
            rng.integers(0, 3, n),
        )
        together = split_conformal(scores, alpha=alpha).value
        assert conditional_conformal(scores, np.ones((n, 1)), [[1]], alpha=alpha) == together
        apart = [split_conformal(scores[group == g], alpha=alpha).value for g in range(3)]
        assert (
            conditional_conformal(scores, np.eye(3)[group], np.eye(3), alpha=alpha).tolist()
            == apart
        )


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_rows_changes_no_bit(seed):
    rng = np.random.default_rng(seed)
    marks = np.eye(4)[rng.integers(0, 4, 2500)], np.eye(3)[rng.integers(0, 3, 2500)]
    features = np.hstack([np.ones((2500, 1)), *marks])
    scores = rng.exponential(size=2500) + features[:, 1]
    patterns = np.unique(features, axis=0)
    cutoffs = conditional_conformal(scores, features, patterns, alpha=0.15)
    order = rng.permutation(2500)
    shuffled = conditional_conformal(scores[order], features[order], patterns, alpha=0.15)
    assert shuffled.tolist() == cutoffs.tolist()


def test_row_order_scale_and_redundant_columns_change_nothing():
    rng = np.random.default_rng(3)
    features, scores = GROUPS[rng.integers(0, 4, 90)].astype(float), rng.exponential(size=90)
    cutoffs = conditional_conformal(scores, features, GROUPS, alpha=0.1)
    order = rng.permutation(90)
    assert np.array_equal(
        conditional_conformal(scores[order], features[order], GROUPS, alpha=0.1), cutoffs
    )
    wide = np.array([[8, 1, 1, 0, 0], [0, 0, -1, 2, 0], [0, 1, 0, 0, 5]])  # the same span
    assert np.allclose(
        conditional_conformal(scores, features @ wide, GROUPS @ wide, alpha=0.1),
        cutoffs,
        rtol=1e-12,
    )
    assert np.allclose(
        conditional_conformal(4 * scores - 1, features, GROUPS, alpha=0.1),
        4 * cutoffs - 1,
        rtol=1e-12,
    )


def test_infinite_scores_and_rows_that_no_calibration_row_is_like():
    """A group of infinite scores has an infinite cut-off, and leaves groups apart from it alone."""
    scores = np.r_[np.arange(40.0), np.full(12, np.inf)]
    features = np.eye(3)[np.r_[np.zeros(40, int), np.ones(12, int)]]
    with pytest.warns(dco.InfeasibleLevelWarning, match="3 of 4 cut-offs are infinite"):
        found = conditional_conformal(
            scores, features, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]], alpha=0.1
        )
    assert found.tolist() == [
        split_conformal(np.arange(40.0), alpha=0.1).value,
        np.inf,
        np.inf,
        np.inf,
    ]
    few = np.r_[np.arange(40.0), np.inf]  # one of many is a high score and no more
    assert conditional_conformal(few, np.ones((41, 1)), [[1]], alpha=0.1)[0] == 37


N, ALPHA, SPREAD = 60, 0.2, np.array([1.0, 4.0, 1.5, 0.5])
SHARES = np.array([0.35, 0.15, 0.35, 0.15])  # of the four patterns


def coverage(cutoffs_of, repeats=2_000):
    """Coverage given each calibration, exactly, of (all rows, group 1, group 2): scores are
    exponential in each pattern.
    """
    rng = np.random.default_rng(0)
    found = []
    for _ in range(repeats):
        pattern = rng.choice(4, size=N, p=SHARES)
        cutoffs = cutoffs_of(rng.exponential(SPREAD[pattern]), GROUPS[pattern])
        within = -np.expm1(-np.maximum(cutoffs, 0) / SPREAD)
        found.append((SHARES * within) @ GROUPS / (SHARES @ GROUPS))
    return np.array(found)


def test_every_overlapping_group_is_covered_and_not_by_much_more():
    """The mean lies between 1 - alpha and 1 - alpha + d / ((n + 1) P(group)); five standard errors:
    wrong once in 10^6.
    """
    each = coverage(
        lambda scores, features: conditional_conformal(scores, features, GROUPS, alpha=ALPHA)
    )
    mean, error = each.mean(axis=0), each.std(axis=0) / np.sqrt(len(each))
    assert np.all(mean >= 1 - ALPHA - 5 * error)
    assert np.all(mean <= 1 - ALPHA + 3 / ((N + 1) * (SHARES @ GROUPS)) + 5 * error)
    plain = coverage(lambda scores, _: np.full(4, split_conformal(scores, alpha=ALPHA).value)).mean(
        axis=0
    )
    assert plain[0] == pytest.approx(1 - ALPHA, abs=0.01)
    assert plain[2] < 0.75, "one threshold for all rows leaves a group behind"


@pytest.mark.parametrize("share", [0.1, 0.6, 0.95])
def test_labels_that_every_set_holds_leave_cutoffs_of_a_usual_size(share):
    """The least float of `NeverEmpty`: coverage of every group is exact over n + 1 rows, and no sum
    of scores is huge.
    """
    rng = np.random.default_rng(int(100 * share))
    for alpha in (0.1, 0.25, 0.5):
        features, scores = GROUPS[rng.integers(0, 4, 60)].astype(float), rng.exponential(size=60)
        scores[rng.uniform(size=60) < share] = LOWEST_SCORE
        every = np.arange(60)
        cuts = [
            conditional_conformal(
                scores[every != i], features[every != i], features[[i]], alpha=alpha
            )[0]
            for i in every
        ]
        assert np.abs(cuts).max() < 100
        assert np.all(features.T @ ((scores <= cuts) - (1 - alpha)) >= -1e-9)


def test_a_level_of_many_decimals_is_never_rounded_to_an_easier_one():
    """Of 9 scores none is the (1 - alpha) quantile at an alpha just below .1, and the largest is at
    .1.
    """
    ones = np.ones((9, 1))
    assert conditional_conformal(np.arange(9.0), ones, ones[:1], alpha=0.1)[0] == 8
    with pytest.warns(dco.InfeasibleLevelWarning):
        assert (
            conditional_conformal(
                np.arange(9.0), ones, ones[:1], alpha=Fraction(10**11 - 1, 10**12)
            )[0]
            == np.inf
        )


def test_a_sum_of_scores_is_not_below_itself():
    """Where groups overlap, cut-offs are sums such as s + t - u: compared with the exact sum, which
    floats round.
    """
    rounded = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        # nobody in both groups
        features, scores = GROUPS[rng.integers(0, 3, 30)].astype(float), rng.lognormal(size=30)
        found = conditional_conformal(scores, features, GROUPS[3:], alpha=0.3)[0]
        one, first, second = (scores[(features == GROUPS[kind]).all(axis=1)] for kind in (0, 1, 2))
        sums = first[:, None, None] + second[:, None] - one
        i, j, k = np.argwhere(np.abs(sums - found) < 1e-9)[0]
        exact = Fraction(first[i]) + Fraction(second[j]) - Fraction(one[k])
        assert exact <= Fraction(found)
        rounded += Fraction(sums[i, j, k]) < exact
    assert rounded > 5


@pytest.mark.parametrize(
    ("scores", "features", "new", "said"),
    [
        ([1.0, 2.0], [[1]], [[1]], "one row for each of 2 scores"),
        ([1.0], [[1, 0]], [[1]], "as many columns as new_features"),
        ([1.0], [1], [[1]], "features must be a matrix"),
        ([1.0], [[np.nan]], [[1]], r"row 0 is \[nan\]"),
        ([1.0], [["a"]], [[1]], "real numbers"),
    ],
)
def test_bad_features_are_refused(scores, features, new, said):
    with pytest.raises(ValueError, match=said):
        conditional_conformal(scores, features, new, alpha=0.1)
