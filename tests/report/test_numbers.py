"""The numbers of a report are those of the estimator, at every level."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dco
from dco.foundations.histograms import count_in_bins, nice_step, size_edges
from dco.report import report_numbers
from dco.report.formats import (
    fixed,
    level_percent,
    number,
    percent,
    plain_score,
    threshold_decimals,
    threshold_in_words,
)

WITH_ROWS = [
    "classification",
    "pac classification",
    "by label",
    "regression",
    "by sign",
    "infeasible",
]
LOWEST = -np.finfo(np.float64).max

infeasible_levels = pytest.mark.filterwarnings(
    "ignore::dco.foundations.errors.InfeasibleLevelWarning"
)


# ---- levels


def test_there_are_sixty_levels_and_the_certified_one(case: Any) -> None:
    alphas = [level.alpha for level in report_numbers(case("regression").estimator).levels]
    assert len(alphas) == 60
    assert alphas == sorted(alphas)
    assert alphas[0] == 0.005
    assert alphas[-1] == 0.5


def test_a_level_between_the_others_takes_its_place() -> None:
    X = np.random.default_rng(0).normal(size=(400, 1))
    est = dco.DecoupledRegressor(alpha="1/7", models=["linear"], random_state=0).fit(X, X[:, 0])
    numbers = report_numbers(est)
    assert len(numbers.levels) == 61
    assert numbers.certified.alpha == pytest.approx(1 / 7)
    assert numbers.certified.threshold == est.certificate_.thresholds[0].value


@infeasible_levels
@pytest.mark.parametrize("name", WITH_ROWS)
def test_every_level_agrees_with_evaluate(case: Any, numbers_of: Any, name: str) -> None:
    chosen = case(name)
    levels = numbers_of(name).levels
    for level in levels[:: len(levels) // 6]:
        expected = chosen.estimator.evaluate(chosen.X, chosen.y, alpha=level.alpha)
        assert level.coverage == expected.coverage
        assert level.mean_size == expected.mean_size
        assert level.p95_size == expected.overall.sizes.p95
        test = expected.consistency
        range_of_law = (None, None) if test is None else (test.low, test.high)
        assert (level.likely_low, level.likely_high) == range_of_law


@pytest.mark.parametrize("name", [*WITH_ROWS, "no rows"])
def test_the_certified_level_has_the_threshold_of_the_certificate(
    case: Any, numbers_of: Any, name: str
) -> None:
    thresholds = case(name).estimator.certificate_.thresholds
    certified = numbers_of(name).certified
    if len(thresholds) == 1:
        assert certified.threshold == thresholds[0].value
        assert certified.expected_coverage == thresholds[0].expected_coverage
    else:
        assert certified.threshold is None


@pytest.mark.parametrize("name", ["classification", "by label", "regression"])
def test_the_bound_for_a_picked_level_is_that_of_the_certificate(
    case: Any, numbers_of: Any, name: str
) -> None:
    slack = case(name).estimator.certificate_.simultaneous_slack(0.05)
    for level in numbers_of(name).levels[::10]:
        assert level.simultaneous_bound == pytest.approx(
            max(0.0, 1 - level.alpha - slack), abs=1e-12
        )


@pytest.mark.parametrize("name", ["clusters", "nothing guaranteed", "overlapping"])
def test_without_a_law_no_bound_and_no_range_are_claimed(numbers_of: Any, name: str) -> None:
    found = numbers_of(name)
    assert {level.simultaneous_bound for level in found.levels} == {None}
    assert {level.likely_low for level in found.levels} == {None}
    assert found.evaluation.verdict == "unchecked"


def test_without_rows_there_is_no_coverage_and_no_size(numbers_of: Any) -> None:
    numbers = numbers_of("no rows")
    assert numbers.rows is None
    assert {level.coverage for level in numbers.levels} == {None}
    assert {level.mean_size for level in numbers.levels} == {None}


# ---- rows


def test_rows_of_the_fit_are_left_out_at_every_level(case: Any, numbers_of: Any) -> None:
    chosen = case("regression")
    X = np.r_[chosen.fitted[0][:3], chosen.X]
    y = np.r_[chosen.fitted[1][:3], chosen.y]
    with pytest.warns(UserWarning, match="3 of 303 rows equal rows of the fit"):
        numbers = report_numbers(chosen.estimator, X, y)
    assert numbers.evaluation.left_out == 3
    assert numbers.levels == numbers_of("regression").levels
    rows = [example.row for example in numbers.rows.examples]
    assert rows == [example.row + 3 for example in numbers_of("regression").rows.examples]


@pytest.mark.parametrize("role", ["train", "calibrate"])
def test_rows_of_the_fit_alone_are_refused(case: Any, role: str) -> None:
    chosen = case("regression")
    rows = getattr(chosen.estimator.splits_, role)
    X, y = chosen.fitted
    with (
        pytest.warns(UserWarning, match="there is no verdict"),
        pytest.raises(ValueError, match="used for nothing else"),
    ):
        report_numbers(chosen.estimator, X[rows], y[rows])


@pytest.mark.filterwarnings("ignore")
def test_a_role_is_refused_where_single_rows_prove_nothing(case: Any) -> None:
    """Every row has nine copies, so equal rows are natural; the calibration rows are not."""
    one_X, one_y = case("regression").fitted
    X = np.tile(one_X[:60], (10, 1))
    y = np.tile(one_y[:60], 10)
    est = dco.DecoupledRegressor(models=["linear"], random_state=0).fit(X, y)
    rows = est.splits_.calibrate
    with pytest.raises(ValueError, match="These are the calibrate rows of the fit"):
        report_numbers(est, X[rows], y[rows])


@infeasible_levels
@pytest.mark.parametrize("name", ["classification", "regression"])
def test_examples_hold_the_sets_of_the_estimator(case: Any, numbers_of: Any, name: str) -> None:
    chosen = case(name)
    sets = chosen.estimator.predict_set(chosen.X)
    is_covered = sets.contains(chosen.y)
    for example in numbers_of(name).rows.examples:
        assert example.size == sets.sizes()[example.row]
        assert example.is_covered == is_covered[example.row]
        if name == "classification":
            assert set(example.labels) == set(sets[example.row].tolist())
        else:
            assert example.pieces == (sets[example.row],)


def test_examples_are_the_extremes_and_the_middle_of_the_sizes(case: Any, numbers_of: Any) -> None:
    chosen = case("classification")
    sizes = chosen.estimator.predict_set(chosen.X).sizes()
    examples = numbers_of("classification").rows.examples
    of_kind = {kind: [e.size for e in examples if e.kind == kind] for kind in ("small", "large")}
    assert min(of_kind["small"]) == sizes.min()
    assert max(of_kind["large"]) == sizes.max()
    assert len({example.row for example in examples}) == len(examples)


def test_labels_of_an_example_stand_by_falling_probability(case: Any, numbers_of: Any) -> None:
    chosen = case("classification")
    probabilities = chosen.estimator.predict_proba(chosen.X)
    code_of = {label: code for code, label in enumerate(chosen.estimator.classes_.tolist())}
    for example in numbers_of("classification").rows.examples:
        listed = [probabilities[example.row, code_of[label]] for label in example.labels]
        assert listed == sorted(listed, reverse=True)


@infeasible_levels
def test_long_examples_are_cut_and_counted(numbers_of: Any) -> None:
    for example in numbers_of("thousand").rows.examples:
        assert len(example.labels) + example.n_more == example.size
        assert len(example.labels) <= 12


@pytest.mark.parametrize("name", ["regression", "by label"])
def test_every_calibration_score_is_counted_once(case: Any, numbers_of: Any, name: str) -> None:
    histograms = numbers_of(name).histograms
    n_scores = sum(histogram.counts.sum() + histogram.n_beyond for histogram in histograms)
    assert n_scores == case(name).estimator.certificate_.provenance.rows["calibrate"]


@pytest.mark.parametrize("dtype", ["Int64", "int64", object], ids=str)
def test_targets_of_any_type_give_the_same_numbers(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    code = rng.integers(5, 8, 500)
    X = rng.normal(size=(500, 3)) + 2 * np.eye(3)[code - 5]
    est = dco.DecoupledClassifier(models=["linear"], random_state=0).fit(X[:300], code[:300])
    numbers = report_numbers(est, X[300:], pd.Series(code[300:]).astype(dtype))
    assert numbers.certified.coverage == est.evaluate(X[300:], code[300:]).coverage


# ---- slices


def test_a_slice_is_too_low_where_its_whole_interval_lies_below_the_promise(case: Any) -> None:
    chosen = case("regression")
    is_moved = np.arange(len(chosen.y)) % 2 == 0
    numbers = report_numbers(chosen.estimator, chosen.X, chosen.y + 4 * is_moved, by=is_moved)
    table = numbers.rows.tables[0]
    assert table.name == "slice"
    assert [row.group for row in table.undercovered] == [True]


with_conditions = pytest.mark.parametrize("name", ["by label", "by sign"])


@with_conditions
def test_a_table_of_conditions_knows_that_it_is_one(numbers_of: Any, name: str) -> None:
    assert numbers_of(name).rows.tables[0].are_conditions


@with_conditions
def test_a_table_of_slices_is_none_of_conditions(case: Any, name: str) -> None:
    chosen = case(name)
    numbers = report_numbers(chosen.estimator, chosen.X, chosen.y, by=chosen.by)
    assert not numbers.rows.tables[0].are_conditions


@with_conditions
def test_conditions_need_no_table_of_classes_besides(numbers_of: Any, name: str) -> None:
    assert "class" not in [table.name for table in numbers_of(name).rows.tables]


@infeasible_levels
def test_of_many_classes_those_covered_least_are_shown(numbers_of: Any) -> None:
    table = next(t for t in numbers_of("thousand").rows.tables if t.name == "class")
    assert len(table.slices) == 12
    assert table.n_left_out > 700
    shares = [row.coverage for row in table.slices]
    assert shares == sorted(shares)


# ---- wrong arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": 1}, "X and y together"),
        ({"by": [1]}, "give those too"),
        ({"X": 1, "y": 1}, "fitted"),
    ],
    ids=["no y", "by alone", "not fitted"],
)
def test_missing_arguments_are_named(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        report_numbers(object(), **arguments)


# ---- histograms


@given(st.floats(1e-6, 1e9), st.integers(1, 40))
def test_a_nice_step_is_round_and_cuts_into_at_most_so_many_parts(span: float, parts: int) -> None:
    step = nice_step(span, parts)
    assert parts / 2.5 - 1e-6 <= span / step <= parts + 1e-6
    leading = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert any(math.isclose(leading, digit) for digit in (1, 2, 2.5, 5))


@pytest.mark.parametrize("classes", [10, 60, 1000])
@given(sizes=st.lists(st.integers(0, 60) | st.just(math.inf), min_size=1, max_size=50))
def test_counts_agree_with_counting(sizes: list[float], classes: int) -> None:
    finite = np.array([size for size in sizes if math.isfinite(size)] or [1.0])
    edges = size_edges(finite, classes=classes)
    counts = count_in_bins(np.asarray(sizes, dtype=float), edges).tolist()
    expected = [sum(low <= size < high for size in sizes) for low, high in pairwise(edges)]
    assert counts == [*expected, sum(size >= edges[-1] for size in sizes)]


def test_the_axis_of_lengths_reaches_half_beyond_all_but_the_largest_hundredth() -> None:
    sizes = np.random.default_rng(0).exponential(size=500)
    edges = size_edges(sizes, classes=None)
    assert edges[-2] < 1.5 * np.quantile(sizes, 0.99) <= edges[-1] * (1 + 1e-9)


# ---- formats


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (-3.0, "−3"),
        (12345.6, "12\u202f346"),
        (math.inf, "∞"),
        (math.nan, "–"),
        (1e-9, "1e−9"),
        (-2.5e9, "−2.5e9"),
        (1e7, "1e7"),
    ],
)
def test_numbers_are_written_as_a_person_would(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (0.0, 6, "0.000000"),
        (6.162e-12, 6, "6.162e−12"),
        (0.001, 2, "0.001"),
        (1234.5, 1, "1\u202f234.5"),
        (math.inf, 2, "∞"),
    ],
)
def test_numbers_of_a_column_keep_what_their_decimals_would_lose(
    value: float, decimals: int, text: str
) -> None:
    assert fixed(value, decimals) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100.0"), (0.99999, "99.9"), (0.5, "50.0"), (0.00001, "0.1"), (0.0, "0.0")],
)
def test_a_share_below_one_is_never_written_as_all(share: float, text: str) -> None:
    assert percent(share) == f"{text}\u202f%"


@pytest.mark.parametrize(
    ("alpha", "text"), [(0.1, "90"), (0.005, "99.5"), (1e-9, "99.9999999"), (1e-5, "99.999")]
)
def test_a_promise_is_never_written_as_all(alpha: float, text: str) -> None:
    assert level_percent(alpha) == f"{text}\u202f%"


def test_the_lowest_score_is_a_word_and_changes_no_other_threshold() -> None:
    values = [LOWEST, 0.656691]
    decimals = threshold_decimals(values)
    written = [threshold_in_words(value, decimals) for value in values]
    assert written == ["lowest score", "0.6567"]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Levelled(AbsoluteResidual, places=<5 7ebdb7a1>, factors=<5 ae6dc24c>)",
         "Levelled(AbsoluteResidual)"),
        ("RAPS(penalty=0.1, rank_free=1)", "RAPS(penalty=0.1, rank_free=1)"),
        ("Transformed(places=<5 7ebdb7a1>)", "Transformed"),
    ],
)  # fmt: skip
def test_digests_of_arrays_are_for_certificates_alone(text: str, plain: str) -> None:
    assert plain_score(text) == plain
