"""Coverage, sizes and verdicts of prediction sets on rows with known targets."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge

import dco
from dco import Intervals, IntervalUnions, LabelSets, Threshold, evaluate, split_conformal
from dco.theory import coverage_consistency


def intervals(n: int, half: float) -> Intervals:
    return Intervals(np.full(n, -half), np.full(n, half))


def covering(is_covered) -> tuple[Intervals, np.ndarray]:
    """Sets and targets of rows that are covered or not."""
    return intervals(len(is_covered), 1.0), np.where(is_covered, 0.0, 2.0)


def threshold_of(rank: int, n: int, **changes) -> Threshold:
    facts = {"value": 1.0, "rank": rank, "n": n, "guarantee": "marginal", "alpha": 0.1}
    return Threshold(**{**facts, **changes})


# ---- coverage and sizes


def test_label_sets_by_hand():
    members = np.array([[1, 0, 0], [1, 1, 1], [0, 0, 0], [0, 1, 1]], dtype=bool)
    found = evaluate(LabelSets(members), [0, 2, 1, 0])
    sizes = found.overall.sizes
    assert (found.n, found.coverage, found.mean_size) == (4, 0.5, 1.5)
    assert (sizes.median, sizes.mean_finite) == (1.5, 1.5)
    assert sizes.p95 == pytest.approx(np.quantile([1, 3, 0, 2], 0.95))
    assert (sizes.empty, sizes.full, sizes.infinite, sizes.one_label) == (0.25, 0.25, 0.0, 0.25)


def test_intervals_by_hand():
    sets = Intervals(np.array([0.0, -np.inf, 3.0, -np.inf]), np.array([1.0, 2.0, 2.0, np.inf]))
    found = evaluate(sets, [0.5, 5.0, 2.5, 7.0])
    sizes = found.overall.sizes
    assert found.coverage == 0.5
    assert (sizes.empty, sizes.full, sizes.infinite, sizes.one_label) == (0.25, 0.25, 0.5, None)
    assert found.mean_size == sizes.p95 == sizes.median == math.inf
    assert sizes.mean_finite == 0.5


def test_unions_by_hand():
    """The whole line in one piece is full; two half lines are infinite and not full."""
    pointers = np.array([0, 2, 3, 5, 5, 6])
    lower = np.array([0.0, 3.0, -np.inf, -np.inf, 1.0, 4.0])
    upper = np.array([1.0, 5.0, np.inf, 0.0, np.inf, np.inf])
    found = evaluate(IntervalUnions(pointers, lower, upper), [2.0, 0.0, 0.5, 0.0, 3.0])
    sizes = found.overall.sizes
    assert (found.coverage, sizes.empty, sizes.full, sizes.infinite) == (0.2, 0.2, 0.2, 0.6)
    assert sizes.mean_finite == 1.5


def test_without_a_finite_set_there_is_no_finite_mean():
    found = evaluate(intervals(3, np.inf), np.zeros(3))
    assert (found.coverage, found.overall.sizes.full) == (1.0, 1.0)
    assert math.isnan(found.overall.sizes.mean_finite)


def test_the_interval_of_coverage_is_exact():
    sets, y = covering(np.arange(50) < 44)
    found = evaluate(sets, y).overall
    expected = binomtest(44, 50).proportion_ci(method="exact")
    assert (found.coverage_low, found.coverage_high) == pytest.approx(
        (expected.low, expected.high), rel=1e-6
    )


@pytest.mark.parametrize(
    ("hits", "low", "high"), [(0, 0.0, 1 - 0.025 ** (1 / 10)), (10, 0.025 ** (1 / 10), 1.0)]
)
def test_the_interval_of_coverage_at_its_ends(hits, low, high):
    sets, y = covering(np.arange(10) < hits)
    found = evaluate(sets, y).overall
    assert (found.coverage_low, found.coverage_high) == pytest.approx((low, high))


@pytest.mark.parametrize("classes", [None, ["a", "b", "c"]], ids=["codes", "names"])
def test_labels_that_no_set_can_hold_are_misses(classes):
    names = np.arange(5) if classes is None else np.array(["a", "b", "c", "d", "e"])
    sets = LabelSets(np.ones((8, 3), dtype=bool), classes)
    found = evaluate(sets, names[[0, 1, 2, 0, 1, 3, 4, 3]], threshold=threshold_of(90, 99))
    assert (found.coverage, found.overall.unknown_labels) == (5 / 8, 3)
    assert found.overall.consistency == coverage_consistency(5, 8, rank=90, n_cal=99)


def test_of_full_sets_unknown_labels_are_told_apart():
    """An infinite threshold covers every label that the fit knows: the others break the promise."""
    sets = LabelSets(np.ones((8, 3), dtype=bool))
    infinite = threshold_of(6, 5, value=math.inf)
    found = evaluate(sets, [0, 1, 2, 0, 1, 3, 4, 3], threshold=infinite)
    test = found.overall.consistency
    assert (test.coverage, test.n_test, test.unknown_labels) == (1.0, 5, 3)
    assert found.verdict == "failed"
    assert "fit again, with rows of each label" in found.advice()


def test_rows_of_unknown_labels_alone_get_no_verdict():
    sets = LabelSets(np.ones((3, 3), dtype=bool))
    found = evaluate(sets, [3, 4, 3], threshold=threshold_of(90, 99))
    assert (found.verdict, found.no_verdict) == (
        "unchecked",
        "no row has a label that a set can hold",
    )


# ---- tests of coverage


@pytest.mark.parametrize(
    "threshold",
    [
        split_conformal(np.arange(199.0), alpha=0.1),
        dco.bayesian_quadrature(np.arange(199.0), alpha=0.1, delta=0.1),
    ],
    ids=["marginal", "pac"],
)
@pytest.mark.parametrize("tied", [False, True])
def test_coverage_is_tested_against_the_law_of_the_rank(threshold, tied):
    sets, y = covering(np.arange(300) < 271)
    found = evaluate(sets, y, threshold=threshold, tied=tied)
    expected = coverage_consistency(271, 300, rank=threshold.rank, n_cal=199, tied=tied)
    assert found.overall.consistency == expected


@pytest.mark.parametrize(
    ("rank", "guarantee"), [(90, "none"), (None, "marginal"), (None, "expected_risk")]
)
def test_a_threshold_without_a_law_gives_no_verdict(rank, guarantee):
    threshold = threshold_of(rank, 99, guarantee=guarantee)
    found = evaluate(intervals(5, 1.0), np.zeros(5), threshold=threshold)
    assert found.overall.consistency is None
    assert found.verdict == "unchecked"


@pytest.mark.parametrize("rank", [4, 3], ids=["too few rows", "infinite scores"])
def test_an_infinite_threshold_promises_coverage_one(rank):
    infinite = threshold_of(rank, 3, value=math.inf)
    test = evaluate(intervals(200, np.inf), np.zeros(200), threshold=infinite).overall.consistency
    assert (test.p_value, test.expected_coverage) == (1.0, 1.0)


def test_a_threshold_of_minus_infinity_promises_its_rank():
    threshold = threshold_of(180, 199, value=-math.inf)
    sets, y = covering(np.arange(200) < 181)
    test = evaluate(sets, y, threshold=threshold, tied=True).overall.consistency
    assert test.expected_coverage == 0.9
    assert test.p_value == 1.0


@pytest.mark.parametrize(
    ("hits", "verdict"),
    [(700, "failed"), (880, "held"), (900, "held"), (1000, "held")],
    ids=["low", "near", "at", "above"],
)
def test_the_verdict_is_about_low_coverage_alone(hits, verdict):
    sets, y = covering(np.arange(1000) < hits)
    assert evaluate(sets, y, threshold=threshold_of(900, 999)).verdict == verdict


# ---- conditions


def test_each_condition_is_judged_by_its_own_threshold():
    rng = np.random.default_rng(0)
    y, groups = rng.normal(size=300), np.repeat(["a", "b", "c"], 100)
    own = {"a": threshold_of(45, 49), "b": threshold_of(60, 99)}
    found = evaluate(intervals(300, 1.5), y, by=groups, threshold=own)
    tests = {row.group: row.consistency for row in found.by_condition}
    for name, threshold in own.items():
        hits = int(np.sum(np.abs(y[groups == name]) <= 1.5))
        assert tests[name] == coverage_consistency(
            hits, 100, rank=threshold.rank, n_cal=threshold.n
        )
    assert tests["c"] is None


@pytest.mark.parametrize(
    ("low", "too_low"), [(95, ()), (75, ()), (50, (7,))], ids=["high", "by chance", "low"]
)
def test_conditions_are_judged_together(low, too_low):
    """75 of 100 has p = 0.005 at a promise of 0.9: among 20 conditions that may be chance."""
    groups = np.repeat(np.arange(20), 100)
    covered_in_group = np.where(groups == 7, low, 90)
    sets, y = covering(np.arange(2000) % 100 < covered_in_group)
    own = {group: threshold_of(90, 99) for group in range(20)}
    found = evaluate(sets, y, by=groups, threshold=own)
    assert found.too_low == too_low
    assert found.verdict == ("failed" if too_low else "held")


def test_the_advice_gives_the_p_value_of_the_condition_that_is_too_low():
    """Condition 0 is covered always, where half is its law: no evidence against condition 1."""
    own = {0: threshold_of(50, 99), 1: threshold_of(90, 99)}
    sets, y = covering(np.arange(200) < 170)
    found = evaluate(sets, y, by=np.repeat([0, 1], 100), threshold=own)
    assert found.too_low == (1,)
    assert f"(p = {found.coverage_tests[1].p_value:.2g})" in found.advice()


# ---- slices


def test_a_slice_is_evaluated_like_its_rows_alone():
    rng = np.random.default_rng(3)
    y, names = rng.normal(size=200), rng.choice(["b", "a", "long name"], size=200)
    lower, upper = -rng.exponential(size=200), rng.exponential(size=200)
    found = evaluate(Intervals(lower, upper), y, by=names)
    assert [row.group for row in found.by_group] == ["a", "b", "long name"]
    for row in found.by_group:
        here = names == row.group
        alone = evaluate(Intervals(lower[here], upper[here]), y[here]).overall
        assert (row.n, row.coverage, row.sizes) == (alone.n, alone.coverage, alone.sizes)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (np.array([2, 1, 2]), [1, 2]),
        (np.array([True, False, True]), [False, True]),
        (np.array(["x", None, 3], dtype=object), [3, "x", "(missing)"]),
        (np.array([1.5, np.nan, np.nan]), [1.5, "(missing)"]),
        (
            np.array(["2020-01-02", "2020-01-01"] * 2, dtype="M8[ns]")[:3],
            ["2020-01-01", "2020-01-02"],
        ),
        (["u", "v", "u"], ["u", "v"]),
        (pd.Series(["a", pd.NA, "a"], dtype=object), ["a", "(missing)"]),
    ],
    ids=["numbers", "booleans", "mixed", "nan", "dates", "list", "series"],
)
def test_slices_by_values_of_any_kind(values, names):
    found = evaluate(intervals(3, 1.0), np.zeros(3), by=values)
    assert [row.group for row in found.by_group] == names


@pytest.mark.parametrize(
    ("by", "name"),
    [
        (pd.Series([1, 2, 1], name="sex"), "sex"),
        (pd.Series([1, 2, 1], name="class"), "slice"),
        ([1, 2, 1], "slice"),
    ],
    ids=["named", "taken", "unnamed"],
)
def test_slices_are_called_by_what_made_them(by, name):
    (kind,) = {row.by for row in evaluate(intervals(3, 1.0), np.zeros(3), by=by).slices}
    assert kind == name


# ---- rows of the fit


def iris_evaluation(seed):
    from sklearn.datasets import load_iris

    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(seed).permutation(150)
    fitted, new = order[:90], order[90:]
    est = dco.DecoupledClassifier(LogisticRegression(max_iter=500), random_state=0)
    est.fit(X[fitted], y[fitted])
    return est.evaluate(X[new], y[new])


@pytest.mark.filterwarnings("ignore")
def test_a_natural_repeat_does_not_take_the_verdict_away():
    """One flower of iris occurs twice: 40 splits have 40 verdicts."""
    found = [iris_evaluation(seed) for seed in range(40)]
    assert {evaluation.verdict for evaluation in found} <= {"held", "failed"}
    assert any(evaluation.left_out == 1 for evaluation in found)


@pytest.mark.filterwarnings("ignore")
def test_few_rows_of_a_table_with_repeats_keep_their_verdict():
    """Concrete has 25 repeated rows among 1,030; 60 fits on 40 of them."""
    from dco.datasets import load_concrete

    table = load_concrete()
    X, y = table.X, table.y
    verdicts = set()
    for seed in range(60):
        order = np.random.default_rng(seed).permutation(len(y))
        est = dco.DecoupledRegressor(Ridge(), random_state=0).fit(X[order[:40]], y[order[:40]])
        verdicts.add(est.evaluate(X[order[40:]], y[order[40:]]).verdict)
    assert "unchecked" not in verdicts


@pytest.fixture(scope="module")
def noisy_line():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = X[:, 0] + rng.normal(size=600)
    est = dco.DecoupledRegressor(LinearRegression(), random_state=0).fit(X[:300], y[:300])
    return est, X, y


@pytest.mark.parametrize("n_used", [1, 3], ids=["one", "several"])
def test_rows_of_the_fit_are_left_out_counted_and_named(noisy_line, n_used):
    est, X, y = noisy_line
    rows = np.r_[np.arange(n_used), np.arange(300, 450)]
    with pytest.warns(dco.foundations.notes.NoteWarning, match="left out; the others are judged"):
        found = est.evaluate(X[rows], y[rows], by=np.arange(len(rows)) % 2)
    others = est.evaluate(X[300:450], y[300:450])
    assert (found.left_out, found.n) == (n_used, 150)
    assert found.overall == others.overall
    assert sum(row.n for row in found.by_group) == 150
    words = f"{n_used} of {n_used + 150} rows {'equals a row' if n_used == 1 else 'equal rows'}"
    assert found.notes[0].text.startswith(f"{words} of the fit (")


@pytest.mark.parametrize(
    ("n_used", "n_new"), [(300, 0), (80, 70), (5, 9)], ids=["all", "most", "few others"]
)
def test_without_enough_new_rows_there_is_no_verdict(noisy_line, n_used, n_new):
    est, X, y = noisy_line
    rows = np.r_[np.arange(n_used), np.arange(300, 300 + n_new)]
    with pytest.warns(dco.foundations.notes.NoteWarning, match="there is no verdict"):
        found = est.evaluate(X[rows], y[rows])
    assert found.verdict == "unchecked"
    assert found.no_verdict == f"{n_used} of {n_used + n_new} rows equal rows of the fit"
    assert (found.left_out, found.n) == (0, n_used + n_new)


@pytest.mark.filterwarnings("ignore")
def test_leaving_out_repeats_breaks_no_promise():
    """Rows on a coarse grid repeat by nature: the promise fails in at most 1 % of fits.

    300 fits; 11 failures have probability below 0.1 % at a rate of 1 %.
    """
    rng = np.random.default_rng(0)

    def rows(n):
        X = np.round(rng.normal(size=(n, 2)), 1)
        return X, np.round(X[:, 0] + rng.normal(size=n), 1)

    n_failed = n_unchecked = n_left_out = 0
    for _ in range(300):
        est = dco.DecoupledRegressor(Ridge(), tune_size=0, random_state=0).fit(*rows(200))
        found = est.evaluate(*rows(150))
        n_failed += found.verdict == "failed"
        n_unchecked += found.verdict == "unchecked"
        n_left_out += found.left_out > 0
    assert n_unchecked == 0
    assert n_failed <= 10
    assert n_left_out > 50


# ---- levels, words, plain data


@pytest.mark.parametrize("alpha", [0.1, "0.3", 0.01], ids=str)
def test_the_words_state_the_level_of_the_sets(alpha):
    threshold = split_conformal(np.arange(999.0), alpha=alpha)
    found = evaluate(intervals(10, threshold.value), np.zeros(10), threshold=threshold)
    assert found.alpha == float(alpha)
    assert f"covered, {100 - 100 * float(alpha):g} % promised" in found.in_words()


def test_an_evaluation_at_another_level_states_that_level(noisy_line):
    est, X, y = noisy_line
    at_90, at_70 = est.evaluate(X[300:], y[300:], alpha=[0.1, 0.3])
    assert "90 % promised" in at_90.in_words()
    assert "70 % promised" in at_70.in_words()


def test_without_a_level_nothing_is_said_of_a_promise():
    found = evaluate(intervals(4, 1.0), np.zeros(4))
    assert found.alpha is None
    assert found.in_words().endswith("these rows: 100.0 % of 4 rows covered.")


EXPECTED_WORDS = {
    "held": "The promise held on these rows: 90.0 % of 1000 rows covered, 90 % promised.",
    "by chance": "The promise held on these rows: 88.0 % of 1000 rows covered, 90 % promised; "
    "chance explains the difference.",
    "failed": "The promise did not hold on these rows: 70.0 % of 1000 rows covered, 90 % "
    "promised. These rows are not like the calibration rows (p < 0.0001): look for a change in "
    "time, place or labels, and calibrate again on rows like these, with dco recalibrate.",
}


@pytest.mark.parametrize(
    ("hits", "name"), [(900, "held"), (880, "by chance"), (700, "failed")], ids=str
)
def test_the_verdict_in_words(hits, name):
    sets, y = covering(np.arange(1000) < hits)
    assert evaluate(sets, y, threshold=threshold_of(900, 999)).in_words() == EXPECTED_WORDS[name]


def test_conditions_are_named_in_words():
    sets, y = covering(np.arange(200) % 100 < 90)
    own = {name: threshold_of(90, 99) for name in "ab"}
    found = evaluate(sets, y, by=np.repeat(["a", "b"], 100), threshold=own)
    assert found.in_words().startswith("The promise held in each of 2 conditions: ")
    without = replace(found, no_verdict="these rows are old")
    assert without.in_words().startswith("Nothing was checked, because these rows are old: ")


def test_the_printed_table_has_every_fact():
    members = np.array([[1, 0, 0], [1, 1, 1], [0, 0, 0], [0, 1, 1]], dtype=bool)
    sets = LabelSets(members)
    found = evaluate(sets, [0, 2, 1, 0], by=["x", "x", "y", "y"], threshold=threshold_of(90, 99))
    assert str(found).splitlines() == [
        "rows               4",
        "coverage           0.5000 (95 % interval 0.0676 to 0.9324)",
        "mean size          1.5",
        "median size        1.5",
        "P95 size           2.85",
        "empty / full sets  25.0% / 25.0%",
        "one-label sets     25.0%",
        "expected coverage  0.9000 (90 % of the time between 0.5000 and 1.0000)",
        "verdict            held: consistent with the guarantee (p = 0.111)",
        "worst class        0.0000 (95 % interval 0.0000 to 0.9950): 1 (1 row)",
        "worst slice        0.0000 (95 % interval 0.0000 to 0.9293): y (2 rows)",
        "note               2 classes are covered in less than 70 % of rows: 1 (0 % of 1 row), "
        "0 (50 % of 2 rows).",
        "",
        "slice     rows  coverage  95 % interval     mean size   P95 size",
        "x            2    1.0000  0.0707 to 1.0000          2        2.9",
        "y            2    0.0000  0.0000 to 0.9293          1        1.9",
    ]


def test_an_evaluation_is_plain_data():
    sets, y = covering(np.array([True, True, False]))
    found = evaluate(sets, y, threshold=threshold_of(9, 9), by=[1, 1, 2])
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["verdict"] == "held"
    assert plain["overall"]["consistency"]["rank"] == 9
    assert [row["n"] for row in plain["slices"]] == [2, 1]
    assert found == evaluate(sets, y, threshold=threshold_of(9, 9), by=[1, 1, 2])


# ---- wrong arguments


@pytest.mark.parametrize(
    ("n", "arguments", "message"),
    [
        (0, {"y": []}, "no rows to evaluate"),
        (3, {"y": np.zeros(2)}, "y must hold one number for each of the 3 rows"),
        (3, {"y": [0.0, np.nan, 0.0]}, "y is missing in row 1"),
        (3, {"by": [1, 2]}, "by must hold one value for each of the 3 rows"),
        (3, {"by": "a"}, "by must hold one value for each of the 3 rows"),
        (3, {"threshold": 0.5}, r"a dco\.Threshold, got"),
        (3, {"threshold": {"a": threshold_of(9, 9)}}, "give by= too"),
        (3, {"threshold": threshold_of(9, 9), "alpha": 0.01}, r"got the levels 0\.01, 0\.1"),
    ],
    ids=["no rows", "short y", "missing y", "short by", "text by", "number", "no by", "level"],
)
def test_wrong_arguments_are_named(n, arguments, message):
    y = arguments.pop("y", np.zeros(n))
    with pytest.raises(ValueError, match=message):
        evaluate(intervals(n, 1.0), y, **arguments)


@pytest.mark.parametrize("wrong", [[[0], [1], [2]], None, np.eye(3)], ids=["list", "None", "array"])
def test_what_is_no_set_is_named(wrong):
    with pytest.raises(
        ValueError, match="sets must be LabelSets, Intervals or IntervalUnions, got"
    ):
        evaluate(wrong, np.arange(3))
