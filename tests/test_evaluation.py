"""Coverage, sizes and verdicts of prediction sets on rows with known targets."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge

import dco
from dco import Intervals, IntervalUnions, LabelSets, SizeSummary, Threshold, evaluate
from dco.datasets import load_concrete
from dco.foundations.notes import NoteWarning
from dco.theory import coverage_consistency


def intervals(n: int, half: float) -> Intervals:
    """Return n intervals from -half to half."""
    return Intervals(np.full(n, -half), np.full(n, half))


def covering(is_covered) -> tuple[Intervals, np.ndarray]:
    """Return sets and targets of rows that are covered or not."""
    return intervals(len(is_covered), 1.0), np.where(is_covered, 0.0, 2.0)


def threshold_of(rank: int | None, n: int, **changes) -> Threshold:
    """Return the threshold 1.0, the rank-th of n scores, with these changes."""
    facts = {"value": 1.0, "rank": rank, "n": n, "guarantee": "marginal", "alpha": 0.1}
    return Threshold(**{**facts, **changes})


# an empty set, a full one, one of a single label and one of two
FOUR_SETS = LabelSets(np.array([[1, 0, 0], [1, 1, 1], [0, 0, 0], [0, 1, 1]], dtype=bool))


# ---------------------------------------------------------------- coverage and sizes


def test_label_sets_by_hand():
    overall = evaluate(FOUR_SETS, [0, 2, 1, 0]).overall

    assert overall.n == 4
    assert overall.coverage == 0.5
    assert overall.sizes == SizeSummary(
        mean=1.5,
        mean_finite=1.5,
        median=1.5,
        p95=pytest.approx(np.quantile([1, 3, 0, 2], 0.95)),
        empty=0.25,
        full=0.25,
        infinite=0.0,
        one_label=0.25,
    )


def test_intervals_by_hand():
    sets = Intervals(np.array([0.0, -np.inf, 3.0, -np.inf]), np.array([1.0, 2.0, 2.0, np.inf]))

    overall = evaluate(sets, [0.5, 5.0, 2.5, 7.0]).overall

    assert overall.coverage == 0.5
    assert overall.sizes == SizeSummary(
        mean=math.inf,
        mean_finite=0.5,
        median=math.inf,
        p95=math.inf,
        empty=0.25,
        full=0.25,
        infinite=0.5,
        one_label=None,
    )


def test_unions_by_hand():
    """The whole line in one piece is full; two half lines are infinite and not full."""
    pointers = np.array([0, 2, 3, 5, 5, 6])
    lower = np.array([0.0, 3.0, -np.inf, -np.inf, 1.0, 4.0])
    upper = np.array([1.0, 5.0, np.inf, 0.0, np.inf, np.inf])

    overall = evaluate(IntervalUnions(pointers, lower, upper), [2.0, 0.0, 0.5, 0.0, 3.0]).overall

    assert overall.coverage == 0.2
    assert overall.sizes.empty == 0.2
    assert overall.sizes.full == 0.2
    assert overall.sizes.infinite == 0.6
    assert overall.sizes.mean_finite == 1.5


def test_without_a_finite_set_there_is_no_finite_mean():
    overall = evaluate(intervals(3, np.inf), np.zeros(3)).overall

    assert overall.coverage == 1.0
    assert overall.sizes.full == 1.0
    assert math.isnan(overall.sizes.mean_finite)


def test_the_interval_of_coverage_is_exact():
    sets, y = covering(np.arange(50) < 44)

    overall = evaluate(sets, y).overall

    expected = binomtest(44, 50).proportion_ci(method="exact")
    assert overall.coverage_low == pytest.approx(expected.low, rel=1e-6)
    assert overall.coverage_high == pytest.approx(expected.high, rel=1e-6)


@pytest.mark.parametrize(
    ("hits", "low", "high"),
    [(0, 0.0, 1 - 0.025 ** (1 / 10)), (10, 0.025 ** (1 / 10), 1.0)],
    ids=["none", "all"],
)
def test_the_interval_of_coverage_at_its_ends(hits, low, high):
    sets, y = covering(np.arange(10) < hits)

    overall = evaluate(sets, y).overall

    assert overall.coverage_low == pytest.approx(low)
    assert overall.coverage_high == pytest.approx(high)


# ---------------------------------------------------------------- unknown labels


@pytest.mark.parametrize(
    ("classes", "y"),
    [(None, [0, 1, 2, 0, 1, 3, 4, 3]), (["a", "b", "c"], list("abcabded"))],
    ids=["codes", "names"],
)
def test_labels_that_no_set_can_hold_are_misses(classes, y):
    sets = LabelSets(np.ones((8, 3), dtype=bool), classes)

    overall = evaluate(sets, y, threshold=threshold_of(90, 99)).overall

    assert overall.coverage == 5 / 8
    assert overall.unknown_labels == 3
    assert overall.consistency == coverage_consistency(5, 8, rank=90, n_cal=99)


def test_unknown_labels_break_the_promise_of_full_sets():
    """An infinite threshold covers every label that the fit knows."""
    sets = LabelSets(np.ones((8, 3), dtype=bool))
    infinite = threshold_of(6, 5, value=math.inf)

    evaluation = evaluate(sets, [0, 1, 2, 0, 1, 3, 4, 3], threshold=infinite)

    test = evaluation.overall.consistency
    assert test.coverage == 1.0
    assert test.n_test == 5
    assert test.unknown_labels == 3
    assert evaluation.verdict == "failed"
    assert "fit again, with rows of each label" in evaluation.advice()


def test_rows_of_unknown_labels_alone_get_no_verdict():
    sets = LabelSets(np.ones((3, 3), dtype=bool))

    evaluation = evaluate(sets, [3, 4, 3], threshold=threshold_of(90, 99))

    assert evaluation.verdict == "unchecked"
    assert evaluation.no_verdict == "no row has a label that a set can hold"


# ---------------------------------------------------------------- tests of coverage


@pytest.mark.parametrize(
    "threshold",
    [
        dco.split_conformal(np.arange(199.0), alpha=0.1),
        dco.bayesian_quadrature(np.arange(199.0), alpha=0.1, delta=0.1),
    ],
    ids=["marginal", "pac"],
)
@pytest.mark.parametrize("tied", [False, True], ids=["distinct", "tied"])
def test_coverage_is_tested_against_the_law_of_the_rank(threshold, tied):
    sets, y = covering(np.arange(300) < 271)

    overall = evaluate(sets, y, threshold=threshold, tied=tied).overall

    assert overall.consistency == coverage_consistency(
        271, 300, rank=threshold.rank, n_cal=199, tied=tied
    )


@pytest.mark.parametrize(
    ("rank", "guarantee"), [(90, "none"), (None, "marginal"), (None, "expected_risk")]
)
def test_a_threshold_without_a_law_gives_no_verdict(rank, guarantee):
    threshold = threshold_of(rank, 99, guarantee=guarantee)

    evaluation = evaluate(intervals(5, 1.0), np.zeros(5), threshold=threshold)

    assert evaluation.overall.consistency is None
    assert evaluation.verdict == "unchecked"


@pytest.mark.parametrize("rank", [4, 3], ids=["too few rows", "infinite scores"])
def test_an_infinite_threshold_promises_coverage_one(rank):
    infinite = threshold_of(rank, 3, value=math.inf)

    test = evaluate(intervals(200, np.inf), np.zeros(200), threshold=infinite).overall.consistency

    assert test.p_value == 1.0
    assert test.expected_coverage == 1.0


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


# ---------------------------------------------------------------- conditions


def test_each_condition_is_judged_by_its_own_threshold():
    is_in_b = np.arange(200) >= 100
    sets, y = covering(np.arange(200) % 100 < np.where(is_in_b, 65, 85))
    thresholds = {"a": threshold_of(45, 49), "b": threshold_of(60, 99)}

    evaluation = evaluate(sets, y, by=np.where(is_in_b, "b", "a"), threshold=thresholds)

    tests = {row.group: row.consistency for row in evaluation.by_condition}
    assert tests == {
        "a": coverage_consistency(85, 100, rank=45, n_cal=49),
        "b": coverage_consistency(65, 100, rank=60, n_cal=99),
    }


def test_a_condition_without_a_threshold_is_not_judged():
    groups = np.repeat(["a", "c"], 100)

    evaluation = evaluate(
        intervals(200, 1.0), np.zeros(200), by=groups, threshold={"a": threshold_of(45, 49)}
    )

    tests = {row.group: row.consistency for row in evaluation.by_condition}
    assert tests["a"] is not None
    assert tests["c"] is None


@pytest.mark.parametrize(
    ("hits", "too_low"), [(95, ()), (75, ()), (50, (7,))], ids=["high", "by chance", "low"]
)
def test_conditions_are_judged_together(hits, too_low):
    """75 of 100 has p = 0.005 at a promise of 0.9: among 20 conditions that may be chance."""
    groups = np.repeat(np.arange(20), 100)
    hits_of_group = np.where(groups == 7, hits, 90)
    sets, y = covering(np.arange(2000) % 100 < hits_of_group)
    thresholds = {group: threshold_of(90, 99) for group in range(20)}

    evaluation = evaluate(sets, y, by=groups, threshold=thresholds)

    assert evaluation.too_low == too_low
    assert evaluation.verdict == ("failed" if too_low else "held")


def test_the_advice_gives_the_p_value_of_the_condition_that_is_too_low():
    """Condition 0 is covered always, where half is its law: no evidence against condition 1."""
    thresholds = {0: threshold_of(50, 99), 1: threshold_of(90, 99)}
    sets, y = covering(np.arange(200) < 170)

    evaluation = evaluate(sets, y, by=np.repeat([0, 1], 100), threshold=thresholds)

    assert evaluation.too_low == (1,)
    assert f"(p = {evaluation.coverage_tests[1].p_value:.2g})" in evaluation.advice()


# ---------------------------------------------------------------- slices


@pytest.mark.parametrize("name", ["a", "b", "long name"])
def test_a_slice_is_evaluated_like_its_rows_alone(name):
    rng = np.random.default_rng(3)
    y = rng.normal(size=200)
    names = rng.choice(["b", "a", "long name"], size=200)
    lower = -rng.exponential(size=200)
    upper = rng.exponential(size=200)
    rows = names == name

    evaluation = evaluate(Intervals(lower, upper), y, by=names)
    alone = evaluate(Intervals(lower[rows], upper[rows]), y[rows]).overall

    (of_slice,) = [row for row in evaluation.by_group if row.group == name]
    assert of_slice.n == alone.n
    assert of_slice.coverage == alone.coverage
    assert of_slice.sizes == alone.sizes


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (np.array([2, 1, 2]), [1, 2]),
        (np.array([True, False, True]), [False, True]),
        (np.array(["x", None, 3], dtype=object), [3, "x", "(missing)"]),
        (np.array([1.5, np.nan, np.nan]), [1.5, "(missing)"]),
        (
            np.array(["2020-01-02", "2020-01-01", "2020-01-02"], dtype="M8[ns]"),
            ["2020-01-01", "2020-01-02"],
        ),
        (["u", "v", "u"], ["u", "v"]),
        (pd.Series(["a", pd.NA, "a"], dtype=object), ["a", "(missing)"]),
    ],
    ids=["numbers", "booleans", "mixed", "nan", "dates", "list", "series"],
)
def test_slices_by_values_of_any_kind(values, names):
    evaluation = evaluate(intervals(3, 1.0), np.zeros(3), by=values)

    assert [row.group for row in evaluation.by_group] == names


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
    evaluation = evaluate(intervals(3, 1.0), np.zeros(3), by=by)

    assert {row.by for row in evaluation.slices} == {name}


# ---------------------------------------------------------------- rows of the fit


def evaluate_split_of_iris(seed):
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(seed).permutation(150)
    fit_rows = order[:90]
    new_rows = order[90:]
    est = dco.DecoupledClassifier(LogisticRegression(max_iter=500), random_state=0)
    est.fit(X[fit_rows], y[fit_rows])
    return est.evaluate(X[new_rows], y[new_rows])


@pytest.mark.filterwarnings("ignore")
def test_a_natural_repeat_does_not_take_the_verdict_away():
    """One flower of iris occurs twice: 40 splits have 40 verdicts."""
    evaluations = [evaluate_split_of_iris(seed) for seed in range(40)]

    assert {evaluation.verdict for evaluation in evaluations} <= {"held", "failed"}
    assert any(evaluation.left_out == 1 for evaluation in evaluations)


@pytest.mark.filterwarnings("ignore")
def test_few_rows_of_a_table_with_repeats_keep_their_verdict():
    """Concrete has 25 repeated rows among 1,030; 60 fits on 40 of them."""
    table = load_concrete()
    verdicts = set()
    for seed in range(60):
        order = np.random.default_rng(seed).permutation(len(table.y))
        fit_rows = order[:40]
        new_rows = order[40:]
        est = dco.DecoupledRegressor(Ridge(), random_state=0)
        est.fit(table.X[fit_rows], table.y[fit_rows])
        verdicts.add(est.evaluate(table.X[new_rows], table.y[new_rows]).verdict)

    assert "unchecked" not in verdicts


@pytest.fixture(scope="module")
def noisy_line():
    """Fit a line to 300 of 600 rows, and return it with all rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = X[:, 0] + rng.normal(size=600)
    est = dco.DecoupledRegressor(LinearRegression(), random_state=0).fit(X[:300], y[:300])
    return est, X, y


@pytest.mark.parametrize(
    ("n_used", "words"),
    [(1, "1 of 151 rows equals a row of the fit ("), (3, "3 of 153 rows equal rows of the fit (")],
    ids=["one", "several"],
)
def test_rows_of_the_fit_are_left_out_counted_and_named(noisy_line, n_used, words):
    est, X, y = noisy_line
    rows = np.r_[np.arange(n_used), np.arange(300, 450)]

    with pytest.warns(NoteWarning, match="left out; the others are judged"):
        evaluation = est.evaluate(X[rows], y[rows])

    assert evaluation.left_out == n_used
    assert evaluation.n == 150
    assert evaluation.overall == est.evaluate(X[300:450], y[300:450]).overall
    assert evaluation.notes[0].text.startswith(words)


@pytest.mark.filterwarnings("ignore::dco.foundations.notes.NoteWarning")
def test_rows_of_the_fit_are_left_out_of_slices(noisy_line):
    est, X, y = noisy_line
    rows = np.r_[np.arange(3), np.arange(300, 450)]

    evaluation = est.evaluate(X[rows], y[rows], by=np.arange(153) % 2)

    assert sum(row.n for row in evaluation.by_group) == 150


@pytest.mark.parametrize(
    ("n_used", "n_new"), [(300, 0), (80, 70), (5, 9)], ids=["all", "most", "few others"]
)
def test_without_enough_new_rows_there_is_no_verdict(noisy_line, n_used, n_new):
    est, X, y = noisy_line
    rows = np.r_[np.arange(n_used), np.arange(300, 300 + n_new)]

    with pytest.warns(NoteWarning, match="there is no verdict"):
        evaluation = est.evaluate(X[rows], y[rows])

    assert evaluation.verdict == "unchecked"
    assert evaluation.no_verdict == f"{n_used} of {n_used + n_new} rows equal rows of the fit"
    assert evaluation.left_out == 0
    assert evaluation.n == n_used + n_new


@pytest.mark.filterwarnings("ignore")
def test_leaving_out_repeats_breaks_no_promise():
    """Rows on a coarse grid repeat by nature: the promise fails in at most 1 % of fits.

    300 fits; 11 failures have probability below 0.1 % at a rate of 1 %.
    """
    rng = np.random.default_rng(0)

    def draw_rows(n):
        X = np.round(rng.normal(size=(n, 2)), 1)
        return X, np.round(X[:, 0] + rng.normal(size=n), 1)

    evaluations = []
    for _ in range(300):
        est = dco.DecoupledRegressor(Ridge(), tune_size=0, random_state=0).fit(*draw_rows(200))
        evaluations.append(est.evaluate(*draw_rows(150)))

    verdicts = [evaluation.verdict for evaluation in evaluations]
    assert verdicts.count("unchecked") == 0
    assert verdicts.count("failed") <= 10
    assert sum(evaluation.left_out > 0 for evaluation in evaluations) > 50


# ---------------------------------------------------------------- levels and words


@pytest.mark.parametrize(
    ("alpha", "level"), [(0.1, "90 %"), ("0.3", "70 %"), (0.01, "99 %")], ids=str
)
def test_the_words_state_the_level_of_the_sets(alpha, level):
    threshold = dco.split_conformal(np.arange(999.0), alpha=alpha)

    evaluation = evaluate(intervals(10, threshold.value), np.zeros(10), threshold=threshold)

    assert evaluation.alpha == float(alpha)
    assert f"covered, {level} promised" in evaluation.in_words()


def test_an_evaluation_at_another_level_states_that_level(noisy_line):
    est, X, y = noisy_line

    at_90, at_70 = est.evaluate(X[300:], y[300:], alpha=[0.1, 0.3])

    assert "90 % promised" in at_90.in_words()
    assert "70 % promised" in at_70.in_words()


def test_without_a_level_nothing_is_said_of_a_promise():
    evaluation = evaluate(intervals(4, 1.0), np.zeros(4))

    assert evaluation.alpha is None
    assert evaluation.in_words().endswith("these rows: 100.0 % of 4 rows covered.")


@pytest.mark.parametrize(
    ("hits", "words"),
    [
        (900, "The promise held on these rows: 90.0 % of 1000 rows covered, 90 % promised."),
        (
            880,
            "The promise held on these rows: 88.0 % of 1000 rows covered, 90 % promised; "
            "chance explains the difference.",
        ),
        (
            700,
            "The promise did not hold on these rows: 70.0 % of 1000 rows covered, 90 % "
            "promised. These rows are not like the calibration rows (p < 0.0001): look for a "
            "change in time, place or labels, and calibrate again on rows like these, with dco "
            "recalibrate.",
        ),
    ],
    ids=["held", "by chance", "failed"],
)
def test_the_verdict_in_words(hits, words):
    sets, y = covering(np.arange(1000) < hits)

    assert evaluate(sets, y, threshold=threshold_of(900, 999)).in_words() == words


@pytest.fixture
def two_conditions():
    """Evaluate 200 rows of two conditions, 90 of each hundred covered."""
    sets, y = covering(np.arange(200) % 100 < 90)
    thresholds = {"a": threshold_of(90, 99), "b": threshold_of(90, 99)}
    return evaluate(sets, y, by=np.repeat(["a", "b"], 100), threshold=thresholds)


def test_conditions_are_named_in_words(two_conditions):
    assert two_conditions.in_words().startswith("The promise held in each of 2 conditions: ")


def test_the_reason_for_no_verdict_is_named_in_words(two_conditions):
    unchecked = replace(two_conditions, no_verdict="these rows are old")

    assert unchecked.in_words().startswith("Nothing was checked, because these rows are old: ")


def test_the_printed_table_has_every_fact():
    evaluation = evaluate(
        FOUR_SETS, [0, 2, 1, 0], by=["x", "x", "y", "y"], threshold=threshold_of(90, 99)
    )

    assert str(evaluation).splitlines() == [
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


# ---------------------------------------------------------------- plain data


def evaluate_three_rows():
    sets, y = covering(np.array([True, True, False]))
    return evaluate(sets, y, threshold=threshold_of(9, 9), by=[1, 1, 2])


def test_an_evaluation_is_plain_data():
    plain = json.loads(json.dumps(evaluate_three_rows().to_dict()))

    assert plain["verdict"] == "held"
    assert plain["overall"]["consistency"]["rank"] == 9
    assert [row["n"] for row in plain["slices"]] == [2, 1]


def test_evaluations_of_equal_rows_are_equal():
    assert evaluate_three_rows() == evaluate_three_rows()


# ---------------------------------------------------------------- wrong arguments


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
    with pytest.raises(ValueError, match=message):
        evaluate(intervals(n, 1.0), **{"y": np.zeros(n), **arguments})


@pytest.mark.parametrize("wrong", [[[0], [1], [2]], None, np.eye(3)], ids=["list", "None", "array"])
def test_what_is_no_set_is_named(wrong):
    with pytest.raises(
        ValueError, match="sets must be LabelSets, Intervals or IntervalUnions, got"
    ):
        evaluate(wrong, np.arange(3))
