"""Thresholds, p-values, ties and notes of each kind of calibration."""

import pickle
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, binom

import dco
from dco.calibration.base import Calibration, has_ties_near
from dco.calibration.full_sets import note_new_conditions
from dco.calibration.statement import make_statement
from dco.foundations.arrays import Floats
from dco.rows.conditions import MISSING, condition_names
from dco.structure import ScoredRows
from dco.theory import coverage_consistency, ranks_near_threshold


def calibrate(
    scores: Any, *, alpha: float = 0.3, conditions: Any = None, clusters: Any = None, **asked: Any
) -> Calibration:
    """Calibrate scores; conditions are those of a column, clusters of rows that belong together."""
    if conditions is not None:
        asked["condition_on"] = 0
    statement = make_statement(alpha, is_clustered=clusters is not None, **asked)
    one_per_cluster = None
    if clusters is not None:
        one_per_cluster = dco.one_row_per_group(clusters, seed=0)
    return statement.calibrate(
        ScoredRows(
            scores=np.asarray(scores, dtype=float),
            covariates=conditions,
            clusters=clusters,
            one_per_cluster=one_per_cluster,
        )
    )


def column(values: Sequence[Any]) -> Any:
    """Make features of one column."""
    return np.array(list(values), dtype=object)[:, None]


FEW = np.array([0.3, 0.1, 0.2])
FEW_ROWS = {
    "one threshold": {},
    "clusters": {"clusters": np.array(["a", "b", "b"])},
    "conditions": {"conditions": np.array(["a", "b", "b"], dtype=object)},
}


@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
@pytest.mark.parametrize("kind", FEW_ROWS)
def test_thresholds_leave_the_filters_of_warnings_alone(kind, guarantee, monkeypatch):
    """Filters belong to the whole process: a thread that swaps them swaps them for others too."""

    def swap(*_: object, **__: object) -> None:
        raise AssertionError("the warning filters of the process were swapped")

    with monkeypatch.context() as patch:  # pytest swaps them too, outside
        patch.setattr(warnings, "catch_warnings", swap)
        conditions = calibrate(FEW, alpha=0.01, guarantee=guarantee, **FEW_ROWS[kind]).conditions
    assert all(np.isinf(condition.threshold.value) for condition in conditions)


SCORES = np.random.default_rng(0).normal(size=60)
GROUPS = np.random.default_rng(1).integers(0, 25, size=60)


@pytest.mark.filterwarnings("ignore::dco.InfeasibleLevelWarning")
@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.5])
@pytest.mark.parametrize(
    ("asked", "array_function"),
    [
        ({}, lambda alpha: dco.split_conformal(SCORES, alpha=alpha)),
        (
            {"guarantee": "pac", "delta": 0.1},
            lambda alpha: dco.bayesian_quadrature(SCORES, alpha=alpha, delta=0.1),
        ),
        ({"clusters": GROUPS}, lambda alpha: dco.grouped_conformal(SCORES, GROUPS, alpha=alpha)),
    ],
    ids=["marginal", "pac", "clusters"],
)
def test_thresholds_are_those_of_the_array_functions(alpha, asked, array_function):
    (condition,) = calibrate(SCORES, alpha=alpha, **asked).conditions
    assert condition.threshold == array_function(alpha)


def test_p_values_weigh_clusters_alike():
    """(1 + sum over clusters of the share of rows at or above s) / (clusters + 1)."""
    clusters = np.array(["a", 1, 1.0, "1"], dtype=object)
    calibration = calibrate([0.1, 0.2, 0.3, 0.4], clusters=clusters)
    p_values = calibration.p_values(np.array([0.0, 0.15, 0.25, 0.35, 0.5]), None)
    np.testing.assert_array_equal(p_values, np.array([4, 3, 2.5, 2, 1]) / 4)


def test_p_values_by_condition_count_the_rows_of_the_condition():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 6, size=60).astype(float)
    labels = rng.integers(0, 4, size=60)
    tried = rng.integers(-1, 8, size=(5, 5)).astype(float)

    statement = make_statement(0.3, condition_on="label")
    calibration = statement.calibrate(ScoredRows(scores, covariates=labels))
    p_values = calibration.p_values(tried, None, labels=np.arange(5))  # label 4 has no rows

    for label in range(5):
        of_label = scores[labels == label]
        n_above = (of_label[:, None] >= tried[:, label]).sum(axis=0)
        np.testing.assert_array_equal(p_values[:, label], (1 + n_above) / (of_label.size + 1))


def test_a_new_condition_gets_full_sets_and_p_values_of_1():
    calibration = calibrate(np.arange(20.0), conditions=np.repeat(["a", "b"], 10))
    new = column(["a", "c"])
    assert np.isinf(calibration.thresholds(new)).tolist() == [False, True]
    assert calibration.p_values(np.array([99.0, 99.0]), new).tolist() == [1 / 11, 1]
    assert calibration.new_conditions(new) == Counter({"'c'": 1})


def test_conditions_are_sorted_as_an_evaluation_sorts_them():
    labels = ["b", None, "a", 3, "b", None]
    sets = dco.Intervals(np.zeros(6), np.ones(6))
    calibration = calibrate(np.arange(6.0), conditions=condition_names(labels))
    slices = [row.group for row in dco.evaluate(sets, np.zeros(6), by=labels).by_group]
    keys = [condition.key for condition in calibration.conditions]
    assert slices == keys == [3, "a", "b", MISSING]


def test_files_hold_nothing_that_follows_from_the_scores():
    calibration = calibrate(np.arange(1000.0), conditions=np.arange(1000) % 7)
    before = pickle.dumps(calibration)
    assert len(calibration.conditions) == 7
    assert pickle.dumps(calibration) == before


@pytest.mark.parametrize(
    ("scores", "is_tied"),
    [
        ([1.0, 2.0, 3.0, 4.0], False),
        ([1.0, 2.0, 2.0, 4.0], True),
        # the score at the threshold is alone, and may still be one that occurs often
        ([1.0, 1.0, 2.0, 4.0], True),
        # the threshold of other rows may be infinite, and cover everything
        ([1.0, 2.0, np.inf, np.inf], True),
        ([1.0, np.inf, np.inf, np.inf], False),  # full sets cover everything, and that is exact
    ],
)
def test_two_equal_scores_near_the_threshold_are_a_tie(scores, is_tied):
    """The threshold at 0.6 is the second of the four scores, and that of other rows may be any."""
    law = calibrate(scores, alpha=0.6).law
    assert law.is_tied == is_tied


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_a_pair_is_a_tie_if_and_only_if_the_threshold_of_other_rows_may_touch_it(alpha):
    n = 400
    rank = dco.conformal_rank(n, alpha=alpha)
    first, last = ranks_near_threshold(rank, n_cal=n)
    assert 1 < first < rank < last < n

    tied_pairs = []
    for pair in range(1, n):  # the scores of ranks pair and pair + 1 are equal
        scores = np.arange(float(n))
        scores[pair] = scores[pair - 1]
        shuffled = np.random.default_rng(pair).permutation(scores)
        if calibrate(shuffled, alpha=alpha).law.is_tied:
            tied_pairs.append(pair)
    assert tied_pairs == list(range(first - 1, last + 1))


def uniforms_with_atoms(u: Floats, atoms: list[tuple[float, float]]) -> Floats:
    """Scores whose distribution function is the identity, but for atoms: what falls in (a, b]
    is b.
    """
    scores = u.copy()
    for a, b in atoms:
        scores[(u > a) & (u <= b)] = b
    return scores


# an atom of mass 0.6 / n, up to where high coverage is rejected
WORST = beta(92, 9).ppf(0.975) - np.array([0.006, 0.0])
GRID = [(place / 200, (place + 1) / 200) for place in range(200)]


@pytest.mark.parametrize(
    ("atoms", "called_exact"),
    [
        ([], 1.0),
        ([(0.0, 0.3)], 1.0),  # saturated probabilities: far below the threshold
        # at the border of the ranks that count: ties go with the draw of the threshold
        ([(0.0, 0.6)], None),
        ([(0.95, 1.0)], 0.95**100 + 5 * 0.95**99),
        ([(0.87, 0.92)], 0.95**100 + 5 * 0.95**99),  # the threshold is in the atom half of the time
        ([(0.89, 0.91)], 0.98**100 + 2 * 0.98**99),
        (GRID, 0.0),
        # too small to be seen, where it can do most
        ([tuple(WORST)], 0.994**100 + 0.6 * 0.994**99),
    ],
    ids=["none", "bottom", "border", "top", "threshold", "small", "grid", "worst"],
)
def test_verdicts_keep_their_level_whatever_atoms_the_scores_have(
    atoms: list[tuple[float, float]], called_exact: float | None
) -> None:
    """P(p <= 0.05) for 100 calibration rows and 1,000 test rows: over 4,000 draws of the former,
    exactly in the latter.

    `called_exact` is the share of draws in which the p-value is two-sided. All comparisons have an
    error rate below 0.0001.
    """
    rng, n, n_test, runs = np.random.default_rng(3), 100, 1000, 4000
    coverage, exact, excess = np.zeros((3, runs))
    for run in range(runs):
        u = rng.uniform(size=n)
        scores = uniforms_with_atoms(u, atoms)
        threshold = dco.split_conformal(scores, alpha=0.1)
        exact[run] = not has_ties_near(threshold, scores)
        coverage[run], excess[run] = threshold.value, threshold.value - np.sort(u)[90]
    accepts = np.zeros(runs)
    for tied in (False, True):  # of hits that are not rejected, all between two numbers
        p = [
            coverage_consistency(h, n_test, rank=91, n_cal=n, tied=tied).p_value
            for h in range(n_test + 1)
        ]
        first, *_, last = held = np.flatnonzero(np.asarray(p) > 0.05)
        assert held.size == last - first + 1
        inside = binom.cdf(last, n_test, coverage) - binom.cdf(first - 1, n_test, coverage)
        accepts += np.where(exact == (not tied), inside, 0.0)
    assert 1 - accepts.mean() < 0.05 + 4 * accepts.std() / np.sqrt(runs)
    if called_exact is not None:
        assert abs(exact.mean() - called_exact) <= 4 * np.sqrt(
            called_exact * (1 - called_exact) / runs
        )
    # where coverage was called exact it was, to less than 5 % of its sd of 0.03 over all draws
    assert (excess * exact).mean() < 0.05 * 0.03


def note_of(calibration: Calibration, **known: Any) -> str:
    """The one note on infinite thresholds."""
    (note,) = calibration.notes(**known)
    assert note.kind == "infeasible"
    return str(note)


def test_one_row_is_counted_as_one():
    note = note_of(calibrate([0.0], alpha=0.1))
    assert note.startswith("1 calibration row is too few for alpha = 0.1:")


def test_of_thousands_of_conditions_five_are_named():
    """As many conditions as rows, as from a column of measurements."""
    note = note_of(calibrate(np.zeros(4000), conditions=np.arange(4000) / 7, alpha=0.1))
    assert note.startswith(
        "4000 of 4000 groups have too few calibration rows for alpha = 0.1 (0.0: 1 row, 0.14"
    )
    assert ": 1 row and 3995 more)" in note


def test_conditions_that_the_model_rules_out_are_named():
    infinite = np.full(4000, np.inf)
    note = note_of(calibrate(infinite, conditions=np.arange(4000) // 40, alpha=0.1))
    assert "the threshold of 100 groups (0, 1, 2, 3, 4 and 95 more) is infinite" in note


@pytest.mark.parametrize(
    ("new", "rows", "pattern"),
    [
        (range(4000), "4000 rows", r"4000 of 4000 rows belong to 4000 groups .* and 3995 more"),
        ([0], "1 row", r"1 of 1 row belongs to 1 group that has no calibration rows \(0\)"),
    ],
)
def test_rows_of_new_conditions_are_counted(new, rows, pattern):
    (note,) = note_new_conditions(Counter(map(str, new)), rows)
    assert re.match(pattern, str(note))


@pytest.mark.parametrize(
    ("n_rows", "advice"),
    [(13, "and there are 13 in all"), (14, "leave calibrate_size and tune_size out")],
)
def test_the_default_sizes_are_advised_where_rows_are_left_to_fit_with(n_rows, advice):
    assert advice in note_of(calibrate(np.arange(5.0), alpha=0.1), n_in_fit=n_rows)


def test_files_write_each_condition_once():
    """Clusters of labels have long keys, and calibration rows are many."""
    keys = [tuple(range(start, start + 300)) for start in (0, 300)]
    rows = np.fromiter((keys[row % 2] for row in range(5000)), dtype=object, count=5000)
    scored = ScoredRows(np.zeros(5000), covariates=rows)
    as_file = pickle.dumps(scored)
    assert len(as_file) < 3 * scored.scores.nbytes
    assert pickle.loads(as_file).covariates.tolist() == rows.tolist()
