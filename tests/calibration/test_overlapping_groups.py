"""`conditional_conformal`: the definition by another solver, the laws of its special cases,
coverage in every group.
"""

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

import dco
from dco import conditional_conformal, split_conformal
from dco.foundations.ranks import LOWEST_SCORE

full_sets_are_fine = pytest.mark.filterwarnings(
    "ignore::dco.foundations.errors.InfeasibleLevelWarning"
)
# a constant, and two groups that overlap
GROUPS = np.array([[1, 0, 0], [1, 0, 1], [1, 1, 0], [1, 1, 1]])


# ---------------------------------------------------------------- the definition


def is_in_set(score, new_features, scores, features, alpha):
    """Say by the definition whether every quantile regression of the n + 1 scores is at or above
    this score at the new row.

    By duality some solution of the dual then has the new row below its upper bound 1 - alpha.
    """
    all_scores = np.append(scores, score)
    all_features = np.vstack([features, new_features])
    last_row = np.eye(len(all_scores))[-1]
    dual = {
        "A_eq": all_features.T,
        "b_eq": np.zeros(len(new_features)),
        "bounds": [(-alpha, 1 - alpha)] * len(all_scores),
    }

    optimum = linprog(-all_scores, **dual).fun
    smallest = linprog(last_row, A_ub=[-all_scores], b_ub=[optimum + 1e-9], **dual).fun
    return smallest < 1 - alpha - 1e-4


def draw_features(kind, shape, rng):
    """Draw indicators of groups, or numbers, beside a constant."""
    columns = rng.integers(0, 2, shape) if kind == "indicators" else rng.normal(size=shape)
    return np.hstack([np.ones((len(columns), 1)), columns])


@full_sets_are_fine
@pytest.mark.parametrize("kind", ["indicators", "numbers"])
@pytest.mark.parametrize("tied", [False, True], ids=["distinct", "tied"])
def test_cutoffs_are_those_of_the_definition(kind, tied):
    rng = np.random.default_rng([tied, len(kind)])
    n_finite = 0

    for _ in range(25):
        n = rng.integers(6, 50)
        n_columns = rng.integers(1, 5)
        alpha = rng.choice([0.1, 0.2, 0.25, 0.3])
        features = draw_features(kind, (n + 2, n_columns), rng)
        scores = rng.integers(0, 6, n).astype(float) if tied else rng.normal(size=n)
        cutoffs = conditional_conformal(scores, features[:n], features[n:], alpha=alpha)

        for row, cutoff in zip(features[n:], cutoffs, strict=True):
            is_finite = np.isfinite(cutoff)
            grid = cutoff + np.array([-1, -0.01, 0.01, 1]) if is_finite else [-5.0, 5.0, 1e3]
            in_set = [is_in_set(score, row, scores, features[:n], alpha) for score in grid]
            assert in_set == [score <= cutoff for score in grid]
            n_finite += is_finite

    assert n_finite > 20


# ---------------------------------------------------------------- special cases

ALPHAS = pytest.mark.parametrize("alpha", [0.1, 1 - 0.9, 0.05, 0.059, 1 / 3, "0.123456789"])
# ranks where (n + 1)(1 - alpha) is whole are those that a tolerance would miss
SIZES = pytest.mark.parametrize("n", [1, 2, 5, 8, 9, 10, 18, 19, 20, 39, 99, 100, 999])
TIES = pytest.mark.parametrize("tied", [False, True], ids=["distinct", "tied"])


def draw_scores(n, tied):
    rng = np.random.default_rng(n)
    return rng.integers(0, 3, n).astype(float) if tied else rng.normal(size=n)


@full_sets_are_fine
@ALPHAS
@SIZES
@TIES
def test_a_constant_is_split_conformal_to_the_last_bit(alpha, n, tied):
    scores = draw_scores(n, tied)

    (cutoff,) = conditional_conformal(scores, np.ones((n, 1)), [[1]], alpha=alpha)

    assert cutoff == split_conformal(scores, alpha=alpha).value


@full_sets_are_fine
@ALPHAS
@SIZES
@TIES
def test_groups_apart_are_split_conformal_in_each(alpha, n, tied):
    scores = draw_scores(n, tied)
    group = np.random.default_rng(n + 1).integers(0, 3, n)

    cutoffs = conditional_conformal(scores, np.eye(3)[group], np.eye(3), alpha=alpha)

    expected = [split_conformal(scores[group == g], alpha=alpha).value for g in range(3)]
    assert cutoffs.tolist() == expected


def test_a_level_of_many_decimals_is_never_rounded_to_an_easier_one():
    """The largest of 9 scores is the (1 - alpha) quantile at .1, and none is just below it."""
    ones = np.ones((9, 1))
    scores = np.arange(9.0)
    just_below = Fraction(10**11 - 1, 10**12)

    assert conditional_conformal(scores, ones, ones[:1], alpha=0.1)[0] == 8
    with pytest.warns(dco.InfeasibleLevelWarning):
        assert conditional_conformal(scores, ones, ones[:1], alpha=just_below)[0] == np.inf


# ---------------------------------------------------------------- what changes nothing


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_rows_changes_no_bit(seed):
    rng = np.random.default_rng(seed)
    first = np.eye(4)[rng.integers(0, 4, 2500)]
    second = np.eye(3)[rng.integers(0, 3, 2500)]
    features = np.hstack([np.ones((2500, 1)), first, second])
    scores = rng.exponential(size=2500) + features[:, 1]
    patterns = np.unique(features, axis=0)
    order = rng.permutation(2500)

    cutoffs = conditional_conformal(scores, features, patterns, alpha=0.15)
    shuffled = conditional_conformal(scores[order], features[order], patterns, alpha=0.15)

    assert shuffled.tolist() == cutoffs.tolist()


@pytest.fixture
def overlapping():
    """Draw 90 scores and the groups of their rows."""
    rng = np.random.default_rng(3)
    features = GROUPS[rng.integers(0, 4, 90)].astype(float)
    return rng.exponential(size=90), features


def test_features_with_the_same_span_give_the_same_cutoffs(overlapping):
    scores, features = overlapping
    wide = np.array([[8, 1, 1, 0, 0], [0, 0, -1, 2, 0], [0, 1, 0, 0, 5]])

    cutoffs = conditional_conformal(scores, features, GROUPS, alpha=0.1)
    of_wide = conditional_conformal(scores, features @ wide, GROUPS @ wide, alpha=0.1)

    assert np.allclose(of_wide, cutoffs, rtol=1e-12)


def test_cutoffs_scale_with_the_scores(overlapping):
    scores, features = overlapping

    cutoffs = conditional_conformal(scores, features, GROUPS, alpha=0.1)
    scaled = conditional_conformal(4 * scores - 1, features, GROUPS, alpha=0.1)

    assert np.allclose(scaled, 4 * cutoffs - 1, rtol=1e-12)


# ---------------------------------------------------------------- infinite and lowest scores


def test_a_group_of_infinite_scores_leaves_groups_apart_from_it_alone():
    """New rows in no group, or in one without calibration rows, have infinite cut-offs too."""
    finite = np.arange(40.0)
    scores = np.r_[finite, np.full(12, np.inf)]
    features = np.eye(3)[np.repeat([0, 1], [40, 12])]
    new_features = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]

    with pytest.warns(dco.InfeasibleLevelWarning, match="3 of 4 cut-offs are infinite"):
        cutoffs = conditional_conformal(scores, features, new_features, alpha=0.1)

    first = split_conformal(finite, alpha=0.1).value
    assert cutoffs.tolist() == [first, np.inf, np.inf, np.inf]


def test_one_infinite_score_among_many_is_a_high_score_and_no_more():
    scores = np.r_[np.arange(40.0), np.inf]

    assert conditional_conformal(scores, np.ones((41, 1)), [[1]], alpha=0.1)[0] == 37


@pytest.mark.parametrize("alpha", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("share", [0.1, 0.6, 0.95])
def test_labels_that_every_set_holds_leave_cutoffs_of_a_usual_size(share, alpha):
    """Labels that `NeverEmpty` puts in every set have the lowest float as score: coverage of every
    group is exact over n + 1 rows, and no sum of scores is huge.
    """
    rng = np.random.default_rng([int(100 * share), int(100 * alpha)])
    features = GROUPS[rng.integers(0, 4, 60)].astype(float)
    scores = rng.exponential(size=60)
    scores[rng.uniform(size=60) < share] = LOWEST_SCORE

    cutoffs = np.empty(60)
    for i in range(60):
        others = np.arange(60) != i
        cutoffs[i] = conditional_conformal(
            scores[others], features[others], features[[i]], alpha=alpha
        )[0]

    assert np.abs(cutoffs).max() < 100
    excess = (scores <= cutoffs) - (1 - alpha)
    assert np.all(features.T @ excess >= -1e-9)


def test_a_sum_of_scores_is_not_below_itself():
    """Where groups overlap, cut-offs are sums such as s + t - u: compared with the exact sum, which
    floats round.
    """
    n_rounded_down = 0

    for seed in range(40):
        rng = np.random.default_rng(seed)
        features = GROUPS[rng.integers(0, 3, 30)].astype(float)  # nobody in both groups
        scores = rng.lognormal(size=30)
        in_none, in_second, in_first = (
            scores[(features == pattern).all(axis=1)] for pattern in GROUPS[:3]
        )
        cutoff = conditional_conformal(scores, features, GROUPS[3:], alpha=0.3)[0]

        sums = in_second[:, None, None] + in_first[:, None] - in_none
        i, j, k = np.argwhere(np.abs(sums - cutoff) < 1e-9)[0]
        exact = Fraction(in_second[i]) + Fraction(in_first[j]) - Fraction(in_none[k])
        assert exact <= Fraction(cutoff)
        n_rounded_down += Fraction(sums[i, j, k]) < exact

    assert n_rounded_down > 5


# ---------------------------------------------------------------- coverage

N = 60
ALPHA = 0.2
SCALES = np.array([1.0, 4.0, 1.5, 0.5])  # of the exponential scores of the four patterns
SHARES = np.array([0.35, 0.15, 0.35, 0.15])  # of the patterns


def simulate_coverage(find_cutoffs):
    """Compute the coverage of (all rows, group 1, group 2) given each of 2,000 calibrations,
    exactly.
    """
    rng = np.random.default_rng(0)
    coverage = []
    for _ in range(2_000):
        pattern = rng.choice(4, size=N, p=SHARES)
        cutoffs = find_cutoffs(rng.exponential(SCALES[pattern]), GROUPS[pattern])
        of_patterns = -np.expm1(-np.maximum(cutoffs, 0) / SCALES)
        coverage.append((SHARES * of_patterns) @ GROUPS / (SHARES @ GROUPS))
    return np.array(coverage)


def test_every_overlapping_group_is_covered_and_not_by_much_more():
    """The mean lies between 1 - alpha and 1 - alpha + d / ((n + 1) P(group)); five standard errors:
    wrong once in 10^6.
    """
    coverage = simulate_coverage(
        lambda scores, features: conditional_conformal(scores, features, GROUPS, alpha=ALPHA)
    )

    mean = coverage.mean(axis=0)
    error = coverage.std(axis=0) / np.sqrt(len(coverage))
    excess = 3 / ((N + 1) * (SHARES @ GROUPS))
    assert np.all(mean >= 1 - ALPHA - 5 * error)
    assert np.all(mean <= 1 - ALPHA + excess + 5 * error)


def test_one_threshold_for_all_rows_leaves_a_group_behind():
    coverage = simulate_coverage(
        lambda scores, _: np.full(4, split_conformal(scores, alpha=ALPHA).value)
    )

    of_all, _, of_second = coverage.mean(axis=0)
    assert of_all == pytest.approx(1 - ALPHA, abs=0.01)
    assert of_second < 0.75


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("scores", "features", "new_features", "message"),
    [
        ([1.0, 2.0], [[1]], [[1]], "one row for each of 2 scores"),
        ([1.0], [[1, 0]], [[1]], "as many columns as new_features"),
        ([1.0], [1], [[1]], "features must be a matrix"),
        ([1.0], [[np.nan]], [[1]], r"row 0 is \[nan\]"),
        ([1.0], [["a"]], [[1]], "real numbers"),
    ],
    ids=["too few", "columns", "no matrix", "nan", "text"],
)
def test_bad_features_are_refused(scores, features, new_features, message):
    with pytest.raises(ValueError, match=message):
        conditional_conformal(scores, features, new_features, alpha=0.1)
