"""The numbers of the page are those of the estimator, at every level."""

import math
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline

from dco import DecoupledClassifier, DecoupledRegressor
from dco.evaluation.group_evaluation import share_interval
from dco.foundations.fingerprints import row_fingerprints
from dco.foundations.histograms import count_in_bins, nice_step, size_edges
from dco.report.formats import fixed, number
from dco.report.numbers import (
    GRID,
    example_rows,
    example_set,
    level_grid,
    picked_bound,
    report_numbers,
)
from dco.report.words import against_targets, shares, verdict
from dco.scores import LAC, Score
from dco.sets import IntervalUnions, LabelSets

WITH_ROWS = [
    "classification",
    "pac classification",
    "by label",
    "regression",
    "by sign",
    "infeasible",
]

infeasible_levels = pytest.mark.filterwarnings(
    "ignore::dco.foundations.errors.InfeasibleLevelWarning"
)


def test_the_grid_has_sixty_levels_and_the_certified_one_as_it_was_written() -> None:
    assert (len(GRID), level_grid(0.1)) == (60, tuple(sorted(GRID)))
    seventh = level_grid(Fraction(1, 7))
    assert len(seventh) == 61
    assert Fraction(1, 7) in seventh  # a float seventh could give another rank
    assert list(seventh) == sorted(seventh)


@infeasible_levels
@pytest.mark.parametrize("name", WITH_ROWS)
def test_every_level_agrees_with_evaluate_of_the_estimator(case: Any, name: str) -> None:
    chosen = case(name)
    found, predictor = (
        report_numbers(chosen.estimator, chosen.X, chosen.y, by=chosen.by),
        chosen.estimator.predictor_,
    )
    for level in found.levels[:: len(found.levels) // 6]:
        there, seen = (
            chosen.estimator.evaluate(chosen.X, chosen.y, alpha=level.alpha, by=chosen.by),
            level.evaluation,
        )
        assert (seen.coverage, seen.overall.sizes) == (there.coverage, there.overall.sizes)
        assert seen.consistency == there.consistency
        if there.by_group:
            shown, part = level.slices[0], len(there.by_group)
            for row, own in zip(shown, sorted(there.by_group, key=lambda row: -row.n), strict=True):
                ends = share_interval(
                    round(row.n * row.coverage), row.n, confidence=1 - 0.05 / part
                )
                assert (row.coverage_low, row.coverage_high) == ends
                assert (row.group, row.n, row.sizes) == (own.group, own.n, own.sizes)
        thresholds = [entry.threshold for entry in predictor.at(level.alpha).conditions]
        assert [entry.value for entry in level.thresholds] == [entry.value for entry in thresholds]
        assert sum(level.size_counts) == len(chosen.y)
    assert (
        sum(entry.counts.sum() + entry.above for entry in found.score_histograms)
        == predictor.calibration.scored.scores.size
    )


@pytest.mark.parametrize("name", [*WITH_ROWS, "no rows", "conditions without rows"])
def test_the_start_level_is_the_certificate(case: Any, numbers_of: Any, name: str) -> None:
    certificate, own = case(name).estimator.certificate_, numbers_of(name).own
    assert own.thresholds == certificate.thresholds
    bound = max(0.0, 1 - certificate.alpha - certificate.simultaneous_slack(0.05))
    assert own.picked_bound == pytest.approx(bound, abs=1e-12)
    # nothing is guaranteed, at any level
    nothing = case("nothing guaranteed").estimator.certificate_
    assert picked_bound(nothing, 0.1) is None
    rows = [entry.threshold.n for entry in own.conditions]
    assert rows == sorted(
        (entry.n for entry in certificate.thresholds if entry.group is not None), reverse=True
    )


@infeasible_levels
def test_conditions_whose_names_read_alike_keep_their_own_numbers() -> None:
    """The number 1 and the text "1" are two conditions: five times the noise, and about five times
    the size.
    """
    pandas = pytest.importorskip("pandas")

    def rows(seed: int) -> tuple[Any, Any, Any]:
        rng, groups = np.random.default_rng(seed), pandas.Series([1, "1", "b"] * 300, dtype=object)
        X = pandas.DataFrame({"a": rng.normal(size=900), "g": groups})
        return X, X["a"].to_numpy() + rng.normal(size=900) * np.tile([1, 5, 2], 300), groups

    model = make_pipeline(make_column_transformer(("passthrough", ["a"])), Ridge())
    est = DecoupledRegressor(model, condition_on="g", random_state=0).fit(*rows(0)[:2])
    X, y, groups = rows(1)
    found, sets = report_numbers(est, X, y), est.predict_set(X)
    assert found.own.thresholds == est.certificate_.thresholds
    for entry in found.own.conditions:
        name = {"1": 1, "'1'": "1", "b": "b"}[str(entry.threshold.group)]
        assert entry.evaluation.group == name
        assert entry.evaluation.coverage == sets.contains(y)[groups == name].mean()
        assert entry.evaluation.mean_size == pytest.approx(sets.sizes()[groups == name].mean())
    assert {entry.condition for entry in found.score_histograms} == {"1", "'1'", "b"}


def test_without_rows_there_is_no_coverage_and_no_size(numbers_of: Any) -> None:
    found = numbers_of("no rows")
    assert found.rows is None
    assert {(level.evaluation, level.size_counts, level.examples) for level in found.levels} == {
        (None, (), ())
    }


@infeasible_levels
@pytest.mark.parametrize("name", ["classification", "regression"])
def test_examples_hold_the_sets_of_the_estimator(case: Any, numbers_of: Any, name: str) -> None:
    chosen, found = case(name), numbers_of(name)
    sizes, examples = chosen.estimator.predict_set(chosen.X).sizes(), found.rows.examples
    assert min(sizes[entry.row] for entry in examples if entry.kind == "small") == sizes.min()
    assert max(sizes[entry.row] for entry in examples if entry.kind == "large") == sizes.max()
    for place in (0, found.start, len(found.levels) - 1):
        made = chosen.estimator.predict_set(chosen.X, alpha=found.levels[place].alpha)
        hits = made.contains(chosen.y)
        for example, shown in zip(examples, found.levels[place].examples, strict=True):
            assert (shown.covered, shown.size) == (hits[example.row], made.sizes()[example.row])
            held = (
                set(made[example.row].tolist()) if name == "classification" else {made[example.row]}
            )
            assert set(shown.labels or shown.pieces) == held


def test_examples_are_distinct_in_order_of_size_and_what_they_do_not_list_is_counted() -> None:
    sizes = np.random.default_rng(0).permutation(100).astype(float)
    rows = example_rows(sizes)
    assert [kind for _, kind in rows] == ["small", "small", "typical", "typical", "large", "large"]
    assert [sizes[row] for row, _ in rows] == sorted(sizes[row] for row, _ in rows)
    assert example_rows(np.ones(1)) == [(0, "small")]
    shown = example_set(
        IntervalUnions([0, 6], np.arange(6.0), np.arange(6.0) + 0.5), 0, np.array([True]), {}
    )
    assert shown.pieces == tuple((k, k + 0.5) for k in range(4))
    assert (shown.size, shown.covered, shown.more) == (3.0, True, 2)
    labels = example_set(LabelSets(np.ones((1, 20))), 0, np.array([False]), {})
    assert (len(labels.labels), labels.more, labels.covered) == (12, 8, False)


@dataclass(frozen=True)
class Least(Score):
    """LAC with only what every score must have."""

    needs = LAC.needs

    def observed(self, prediction: Any, y: Any) -> Any:
        return LAC().observed(prediction, y)

    def sets(self, prediction: Any, threshold: Any) -> Any:
        return LAC().sets(prediction, threshold)


@pytest.mark.parametrize("score", [LAC(), Least()])
def test_labels_of_an_example_stand_in_the_order_of_their_scores(case: Any, score: Any) -> None:
    """These scores are one minus the probability of the label."""
    chosen = case("classification")
    estimator = DecoupledClassifier(LogisticRegression(max_iter=200), score, random_state=0).fit(
        *chosen.fitted
    )
    found, p = report_numbers(estimator, chosen.X, chosen.y), estimator.predict_proba(chosen.X)
    place = {label: code for code, label in enumerate(estimator.classes_.tolist())}
    for example, shown in zip(found.rows.examples, found.levels[0].examples, strict=True):
        listed = [p[example.row, place[label]] for label in shown.labels]
        assert listed == sorted(listed, reverse=True)
    assert max(len(shown.labels) for shown in found.levels[0].examples) == 4


def test_rows_of_the_fit_are_refused_whole_and_in_part(case: Any) -> None:
    """One is too many. Where every row has copies single rows are no evidence, and a role as a
    whole still is.
    """
    chosen = case("regression")
    (X, y), roles = chosen.fitted, chosen.estimator.splits_
    for rows, message in (
        (roles.calibrate, "the calibrate rows"),
        (roles.train, "the train rows"),
        (..., "600 of the 600"),
    ):
        with pytest.raises(ValueError, match=message):
            report_numbers(chosen.estimator, X[rows], y[rows])
    for used, refused in ((1, True), (0, False)):
        mixed = np.r_[X[:used], chosen.X[: 200 - used]], np.r_[y[:used], chosen.y[: 200 - used]]
        with (
            pytest.raises(ValueError, match="1 of the 200 rows given took part in the fit")
            if refused
            else nullcontext()
        ):
            assert len(report_numbers(chosen.estimator, *mixed).rows.y) == 200
    X, y = np.tile(X[:60], (10, 1)), np.tile(y[:60], 10)
    estimator = DecoupledRegressor(Ridge(), random_state=0).fit(X, y)
    rows = estimator.splits_.calibrate
    assert estimator.predictor_.kept.used(row_fingerprints(X[rows], y[rows])) is None
    with pytest.raises(ValueError, match="calibrate rows of this predictor"):
        report_numbers(estimator, X[rows], y[rows])


def test_bad_arguments_get_one_sentence(case: Any) -> None:
    for arguments, message in (
        ({"X": 1}, "X and y together"),
        ({"by": [1]}, "give those too"),
        ({"X": 1, "y": 1}, "fitted"),
    ):
        with pytest.raises(ValueError, match=message):
            report_numbers(object(), **arguments)
    given = case("regression")
    for y, by, message in (
        (given.y, ["a"], "by must hold one value for each of 300 rows"),
        (given.y[1:], None, r"X has 300 rows and y has shape \(299,\)"),
        (
            np.where(np.arange(300) < 3, np.nan, given.y),
            None,
            r"y is missing in row 0 \(3 rows in all\)",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            report_numbers(given.estimator, given.X, y, by=by)
    given = case("pac classification")
    with pytest.raises(ValueError, match="None of y's labels is among classes_"):
        report_numbers(given.estimator, given.X, np.full(len(given.y), "misspelt"))


def test_labels_that_no_set_can_hold_are_told(case: Any) -> None:
    # its highest levels have infinite thresholds, and full sets hold known labels only
    given = case("pac classification")
    with pytest.warns(UserWarning, match="3 of 300 rows have labels that are not in classes_"):
        found = report_numbers(
            given.estimator, given.X, np.where(np.arange(300) < 3, "misspelt", given.y)
        )
    for level in found.levels:
        full = math.isinf(level.threshold.value)
        assert (
            "the assumption fails: 3 rows have labels that the fit does not know"
            in verdict(level.evaluation)
        ) == full
        assert (
            "3 rows have labels that the fit does not know: no set can hold such a label"
            in shares(level.evaluation)
        )
    assert math.isinf(found.levels[0].threshold.value)


def test_labels_that_no_set_can_hold_are_misses_of_their_condition() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, size=1100).astype(str)
    X = rng.normal(size=(1100, 3)) + 2 * np.eye(3)[y.astype(int)]
    est = DecoupledClassifier(
        LogisticRegression(), condition_on=lambda X: X[:, 1] > 0, random_state=0
    )
    est.fit(X[:800], y[:800])
    X, y = X[800:], y[800:]
    unknown = np.isin(np.arange(300), np.flatnonzero(X[:, 1] > 0)[:3])
    with pytest.warns(UserWarning, match="3 of 300 rows have labels"):
        found = report_numbers(est, X, np.where(unknown, "misspelt", y))
    laws = {
        str(entry.threshold.group): entry.evaluation.consistency for entry in found.own.conditions
    }
    assert {name: law.unknown_labels for name, law in laws.items()} == {"False": 0, "True": 0}
    assert laws["True"].n_test == np.sum(X[:, 1] > 0)


@given(st.floats(1e-6, 1e9), st.integers(1, 40))
def test_a_nice_step_cuts_into_at_most_so_many_parts_and_not_far_fewer(
    span: float, most: int
) -> None:
    step = nice_step(span, most)
    assert most / 2.5 - 1e-6 <= span / step <= most + 1e-6
    leading = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert any(math.isclose(leading, digit) for digit in (1, 2, 2.5, 5))


@given(st.lists(st.integers(0, 60) | st.just(math.inf), min_size=1, max_size=50))
def test_size_counts_agree_with_counting(sizes: list[float]) -> None:
    finite = np.array([size for size in sizes if math.isfinite(size)] or [1.0])
    for classes in (10, 60, 1000):
        edges = size_edges(finite, classes=classes)
        counts = count_in_bins(np.asarray(sizes, dtype=float), edges)
        assert counts.tolist()[:-1] == [sum(a <= s < b for s in sizes) for a, b in pairwise(edges)]
        assert counts[-1] == sum(s >= edges[-1] for s in sizes)


def test_the_axis_of_lengths_reaches_half_beyond_all_but_the_largest_hundredth() -> None:
    sizes = np.random.default_rng(0).exponential(size=500)
    edges = size_edges(sizes, classes=None)
    assert edges[-2] < 1.5 * np.quantile(sizes, 0.99) <= edges[-1] * (1 + 1e-9)
    assert nice_step(0.0, 5) == nice_step(math.inf, 5) == 1.0


def test_numbers_are_written_as_a_person_would() -> None:
    written = {
        0.5: "0.5",
        -3.0: "−3",
        12345.6: "12\u202f346",
        math.inf: "∞",
        1e-9: "1e−9",
        6.162e-12: "6.162e−12",
    }
    written |= {-2.5e9: "−2.5e9", 1e7: "1e7", math.nan: "–"}
    assert {value: number(value) for value in written} == written
    assert [fixed(value, 6) for value in (0.0, 6.162e-12, 0.00052)] == [
        "0.000000",
        "6.162e−12",
        "0.000520",
    ]
    assert [fixed(0.001, 2), fixed(1234.5, 1), fixed(math.inf, 2)] == ["0.001", "1\u202f234.5", "∞"]


@infeasible_levels
@pytest.mark.parametrize("condition_on", [None, lambda X: np.where(X[:, 1] > 0, "plus", "minus")])
def test_verdicts_know_of_ties(condition_on: Any) -> None:
    """Whole numbers around 0, which is always predicted: calibration scores are 0, 1, 2, ..., each
    many times.
    """
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(900, 2)), np.rint(rng.normal(size=900) * 3)
    model = DummyRegressor(strategy="constant", constant=0.0)
    est = DecoupledRegressor(model, condition_on=condition_on, random_state=0).fit(X[:600], y[:600])
    own, there = report_numbers(est, X[600:], y[600:]).own, est.evaluate(X[600:], y[600:])
    laws = own.evaluation.coverage_tests
    assert laws == there.coverage_tests
    assert [law.tied for law in laws.values()] == [True] * (1 if condition_on is None else 2)
    assert (own.evaluation.verdict, own.evaluation.advice()) == (there.verdict, there.advice())


def test_conditions_that_are_not_shown_are_judged_too() -> None:
    """Twelve of fourteen are shown; the rows of the smallest are not like those of the fit."""

    def rows(n: int, seed: int) -> tuple[Any, Any]:
        rng = np.random.default_rng(seed)
        X = np.column_stack([rng.normal(size=n), rng.choice(14, p=np.arange(6, 20) / 175, size=n)])
        return X, X[:, 0] + rng.normal(size=n)

    est = DecoupledRegressor(Ridge(), condition_on=1, alpha=0.2, random_state=0).fit(*rows(6000, 0))
    X, y = rows(2000, 1)
    for shift, judged in ((0, "held"), (9, "failed")):
        new = y + shift * (X[:, 1] == 0)
        found, there = report_numbers(est, X, new), est.evaluate(X, new)
        assert (len(found.own.conditions), len(found.own.evaluation.coverage_tests)) == (12, 14)
        assert found.verdict == there.verdict == judged
        assert found.verdict_in_words == (there.verdict_in_words(), there.advice())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_label_that_no_model_knows_is_in_every_set_and_no_surprise() -> None:
    """Its calibration scores are all infinite, so its rows are always covered."""
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(900, 2)), rng.integers(0, 2, size=900)
    y[300:] = np.where(rng.random(600) < 0.3, 2, y[300:])
    known, new = slice(0, 300), slice(600, None)
    estimator = DecoupledClassifier(
        LogisticRegression(), LAC(), condition_on="label", random_state=0
    )
    estimator.fit(X[known], y[known], calibrate=(X[300:600], y[300:600]))
    seen = [entry.evaluation for entry in report_numbers(estimator, X[new], y[new]).own.conditions]
    expected = {
        row.group: row.consistency.p_value for row in estimator.evaluate(X[new], y[new]).by_group
    }
    assert {row.group: row.consistency.p_value for row in seen} == expected
    assert expected[2] == 1.0


def test_rows_are_sliced_by_class_or_fifth_beside_what_was_asked_for(case: Any) -> None:
    """Without a column: by true label, or by fifth of the prediction; each slice as NumPy counts
    it.
    """
    given = case("classification")
    found = report_numbers(given.estimator, given.X, given.y)
    covered = given.estimator.predict_set(given.X).contains(given.y)
    assert [slicing.name for slicing in found.rows.slicings] == [
        "class",
        "fifth of the largest probability",
    ]
    shown = {row.group: row.coverage for row in found.own.slices[0]}
    assert shown == {label: float(covered[given.y == label].mean()) for label in np.unique(given.y)}
    assert list(shown.values()) == sorted(shown.values())  # the least covered first
    order = np.argsort(given.estimator.predict_proba(given.X).max(axis=1), kind="stable")
    assert [row.coverage for row in found.own.slices[1]] == [
        covered[part].mean() for part in np.array_split(order, 5)
    ]
    given = case("regression")
    found = report_numbers(given.estimator, given.X, given.y, by=given.by)
    assert [slicing.name for slicing in found.rows.slicings] == ["slice", "fifth of the prediction"]
    told = [row for row in given.estimator.evaluate(given.X, given.y).slices if row.by == "fifth"]
    for row, there in zip(found.own.slices[1], told, strict=True):
        assert (row.n, row.coverage, row.coverage_low, row.coverage_high) == (
            60,
            there.coverage,
            there.coverage_low,
            there.coverage_high,
        )
    by_label = case("by label")
    # the conditions are the classes: shown once
    found = report_numbers(by_label.estimator, by_label.X, by_label.y)
    assert [slicing.are_conditions for slicing in found.rows.slicings] == [True, False]


def test_intervals_of_slices_account_for_those_that_are_not_shown(
    case: Any, numbers_of: Any
) -> None:
    """Of some eight hundred classes twelve are shown: the intervals of all hold at once with
    95 %.
    """
    found, classes = numbers_of("thousand"), len(np.unique(case("thousand").y))
    assert (len(found.own.slices[0]), found.rows.slicings[0].left_out) == (12, classes - 12)
    for row in found.own.slices[0]:
        ends = share_interval(round(row.n * row.coverage), row.n, confidence=1 - 0.05 / classes)
        assert (row.coverage_low, row.coverage_high) == ends


def test_the_point_prediction_and_widths_stand_beside_what_needs_no_model(
    case: Any, numbers_of: Any
) -> None:
    given, found = case("classification"), numbers_of("classification")
    accuracy = float(np.mean(given.estimator.predict(given.X) == given.y))
    most = max(np.unique(given.y, return_counts=True)[1]) / len(given.y)
    assert f"right for {100 * accuracy:.1f} % of the rows" in found.rows.point
    assert f"would be right for {100 * most:.1f} %" in found.rows.point
    given, found = case("regression"), numbers_of("regression")
    error, without = (
        np.mean(np.abs(point - given.y))
        for point in (given.estimator.predict(given.X), np.median(given.y))
    )
    assert f"off by {number(error)} on average" in found.rows.point
    assert f"would be off by {number(without)}" in found.rows.point
    middle = np.quantile(given.y, 0.95) - np.quantile(given.y, 0.05)
    assert f"{100 * found.own.evaluation.mean_size / middle:.3g} % as long" in against_targets(
        found.own, found
    )
