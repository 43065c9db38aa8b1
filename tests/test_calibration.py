"""Thresholds and p-values of calibration scores: pure, and by group."""

import re
import warnings
from collections import Counter

import numpy as np
import pytest
from scipy.stats import beta, binom

import dco
from dco.calibration.calibration import Calibration, Statement, note_new_conditions
from dco.calibration.rules.rule import RULES
from dco.foundations.arrays import AnyArray, Floats
from dco.foundations.errors import InfeasibleLevelWarning
from dco.theory import coverage_consistency, ranks_near_threshold

FEW = np.array([0.3, 0.1, 0.2])
KINDS = {
    "marginal": Calibration(FEW),
    "groups": Calibration(
        FEW, clusters=np.array(["a", "b", "b"]), one_per_cluster=np.array([0, 2])
    ),
    "conditions": Calibration(FEW, conditions=np.array(["a", "b", "b"], dtype=object)),
}


@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
@pytest.mark.parametrize("kind", KINDS)
def test_thresholds_neither_warn_nor_touch_the_warning_filters(
    kind: str, guarantee: str, monkeypatch
) -> None:
    """Filters belong to the whole process: a thread that swaps them swaps them under every other
    thread.
    """

    def no_swap(*_: object, **__: object) -> None:
        raise AssertionError("the warning filters of the process were swapped")

    with monkeypatch.context() as patch:  # pytest swaps them too, outside
        patch.setattr(warnings, "catch_warnings", no_swap)
        # warnings are errors in this suite
        found = Statement(0.01, guarantee, 0.05).thresholds(KINDS[kind])
    assert all(np.isinf(threshold.value) for threshold in found.values())


@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.5])
def test_thresholds_are_those_of_the_public_rules(alpha: float) -> None:
    rng = np.random.default_rng(0)
    scores, groups = rng.normal(size=60), rng.integers(0, 25, size=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleLevelWarning)
        rules = {
            "marginal": dco.split_conformal(scores, alpha=alpha),
            "pac": dco.bayesian_quadrature(scores, alpha=alpha, delta=0.1),
            "grouped": dco.grouped_conformal(scores, groups, alpha=alpha),
        }
    plain, grouped = Calibration(scores), Calibration(scores, clusters=groups)
    assert Statement(alpha, "marginal", 0.1).thresholds(plain) == {None: rules["marginal"]}
    assert Statement(alpha, "pac", 0.1).thresholds(plain) == {None: rules["pac"]}
    assert Statement(alpha, "marginal", 0.1).thresholds(grouped) == {None: rules["grouped"]}


def test_labels_of_groups_are_hashed_once(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    scores, names = rng.normal(size=60), rng.integers(0, 25, size=60).astype(str)
    calibration, new = Calibration(scores, clusters=names), rng.normal(size=5)
    first, p = Statement(0.3, "marginal", 0.1).thresholds(calibration), calibration.p_values(new)
    monkeypatch.setattr("dco.foundations.fingerprints.row_fingerprints", None)
    assert Statement(0.3, "marginal", 0.1).thresholds(calibration) == first
    np.testing.assert_array_equal(calibration.p_values(new), p)


def test_p_values_by_groups_of_several_kinds() -> None:
    """A group weighs the same, however many rows it has: (1 + sum of shares at or above s) / (G +
    1).
    """
    scores, names = np.array([0.1, 0.2, 0.3, 0.4]), np.array(["a", 1, 1.0, "1"], dtype=object)
    p = Calibration(scores, clusters=names).p_values(np.array([0.0, 0.15, 0.25, 0.35, 0.5]))
    np.testing.assert_array_equal(p, np.array([4, 3, 2.5, 2, 1]) / 4)


@pytest.mark.parametrize(
    ("scores", "tied"),
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
def test_two_equal_scores_near_the_threshold_are_a_tie(scores: list[float], tied: bool) -> None:
    """The threshold at 0.6 is the second of the four scores, and that of other rows may be any."""
    calibration = Calibration(np.array(scores))
    threshold = dco.split_conformal(calibration.scores, alpha=0.6)
    assert threshold.rank == 2
    assert calibration.is_tied(np.arange(4), threshold, RULES["marginal"]) == tied


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_a_pair_is_a_tie_if_and_only_if_the_threshold_of_other_rows_may_touch_it(
    alpha: float,
) -> None:
    n = 400
    threshold = dco.split_conformal(np.arange(float(n)), alpha=alpha)
    first, last = ranks_near_threshold(threshold.rank, n_cal=n)
    found = []
    for pair in range(1, n):  # the scores of ranks pair and pair + 1 are equal
        scores = np.arange(float(n))
        scores[pair] = scores[pair - 1]
        value = dco.split_conformal(scores, alpha=alpha)
        if Calibration(np.random.default_rng(pair).permutation(scores)).is_tied(
            np.arange(n), value, RULES["marginal"]
        ):
            found.append(pair)
    assert 1 < first < threshold.rank < last < n
    assert found == list(range(first - 1, last + 1))


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
        exact[run] = not Calibration(scores).is_tied(np.arange(n), threshold, RULES["marginal"])
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


def told(scores: Floats, conditions: AnyArray | None = None, *, alpha: float) -> str:
    """What is said about thresholds that are infinite."""
    calibration, statement = Calibration(scores, conditions), Statement(alpha)
    (note,) = statement.note_infeasible(calibration, statement.thresholds(calibration))
    assert note.kind == "infeasible"
    return str(note)


def test_one_row_is_counted_as_one() -> None:
    assert told(np.zeros(1), alpha=0.1).startswith("1 calibration row is too few for alpha = 0.1:")


def test_of_thousands_of_groups_five_are_named() -> None:
    """As many groups as rows, as from a column of measurements."""
    message = told(np.zeros(4000), np.arange(4000) / 7, alpha=0.1)
    assert message.startswith(
        "4000 of 4000 groups have too few calibration rows for alpha = 0.1 (0.0: 1 row, 0.14"
    )
    assert ": 1 row and 3995 more)" in message
    message = told(np.full(4000, np.inf), np.arange(4000) // 40, alpha=0.1)
    assert "the threshold of 100 groups (0, 1, 2, 3, 4 and 95 more) is infinite" in message
    (note,) = note_new_conditions(Counter(range(4000)), "4000 rows")
    assert re.match(
        r"4000 of 4000 rows belong to 4000 groups that have no .* and 3995 more", str(note)
    )
    (note,) = note_new_conditions(Counter([0]), "1 row")
    assert str(note).startswith("1 of 1 row belongs to 1 group that has no calibration rows (0)")


def test_p_values_of_many_groups_are_those_of_each_group() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(0, 6, size=60).astype(float), rng.integers(0, 4, size=60)
    asked = rng.integers(-1, 8, size=(5, 5)).astype(float)
    # label 4 has no rows
    found = Calibration(scores, labels).p_values(asked, np.arange(5)[None, :])
    for label in range(5):
        own = scores[labels == label]
        counts = (own[:, None] >= asked[:, label]).sum(axis=0)
        np.testing.assert_array_equal(found[:, label], (1 + counts) / (own.size + 1))
