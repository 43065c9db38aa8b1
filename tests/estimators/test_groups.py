"""Thresholds by group: columns, functions, missing values, and groups that are not there."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from estimator_examples import X, class_rows, logistic, regression_rows, ridge, y
from scipy.sparse import csr_array
from sklearn.compose import make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import dco
from dco.scores import LAC, AbsoluteResidual


def names_of_groups(est) -> list[str]:
    return [threshold.group for threshold in est.certificate_.thresholds]


# --- columns and functions ------------------------------------------------------------------------


@pytest.fixture
def two_spreads():
    """1200 rows whose second column is 0 or 1; the noise is ten times wider where it is 1."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 2))
    X[:, 1] = rng.integers(0, 2, size=1200)
    y = X[:, 0] + rng.normal(size=1200) * np.where(X[:, 1] == 1, 5.0, 0.5)
    return X, y


def test_every_group_has_its_own_threshold(two_spreads) -> None:
    X, y = two_spreads
    est = ridge(scores=AbsoluteResidual(), condition_on=1).fit(X[:800], y[:800])

    sizes = est.predict_set(X[800:]).sizes()

    is_wide = X[800:, 1] == 1
    assert names_of_groups(est) == ["0.0", "1.0"]
    assert sizes[is_wide].min() > 5 * sizes[~is_wide].max()


def test_groups_of_a_function_are_those_of_a_column(two_spreads) -> None:
    X, y = two_spreads
    by_column = ridge(scores=AbsoluteResidual(), condition_on=1)
    by_function = ridge(scores=AbsoluteResidual(), condition_on=lambda Z: Z[:, 1] > 0.5)
    sizes = by_function.fit(X[:800], y[:800]).predict_set(X[800:]).sizes()
    expected = by_column.fit(X[:800], y[:800]).predict_set(X[800:]).sizes()
    np.testing.assert_allclose(sizes, expected)


def test_a_column_of_a_sparse_matrix_names_groups() -> None:
    X, y = class_rows(400)
    X[:, 0] = X[:, 0] > 0
    dense = logistic(LAC(), condition_on=0).fit(X, y)
    sparse = logistic(LAC(), condition_on=0).fit(csr_array(X), y)
    sets = sparse.predict_set(csr_array(X)).to_dense()
    assert names_of_groups(sparse) == names_of_groups(dense)
    np.testing.assert_array_equal(sets, dense.predict_set(X).to_dense())


# --- rare and missing groups ----------------------------------------------------------------------


def test_rare_groups_are_noted_and_never_merged() -> None:
    """The class with too few rows is in every set."""
    X, y = class_rows(400, classes=3)
    y = np.where((y == 2) & (np.arange(400) > 60), 0, y)
    warning = r"1 of 3 groups has .*\(2: \d+ rows\): their thresholds"
    with pytest.warns(dco.InfeasibleLevelWarning, match=warning):
        est = logistic(condition_on="label", alpha=0.1).fit(X, y)
    assert est.predict_set(X).to_dense()[:, 2].all()


@pytest.fixture
def unknown_groups():
    """An estimator by group, and 100 new rows of which nine are of groups it does not know."""
    X, y = regression_rows(400)
    X[:, 1] = np.arange(400) % 2
    est = ridge(condition_on=1).fit(X[:300], y[:300])
    new = X[300:].copy()
    new[:7, 1] = 5
    new[7:9, 1] = 6
    return est, new, y[300:]


def predict_two_levels(est, X, y):
    return est.predict_set(X, alpha=[0.1, 0.2])


def evaluate(est, X, y):
    return est.evaluate(X, y)


@pytest.mark.parametrize("call", [predict_two_levels, evaluate])
def test_rows_of_groups_without_calibration_rows_are_counted_once(unknown_groups, call) -> None:
    """In one warning, at the line of the caller."""
    text = r"9 of 100 rows belong to 2 groups that have no calibration rows \(5.0, 6.0\)"
    with pytest.warns(dco.InfeasibleLevelWarning, match=text) as warned:
        call(*unknown_groups)
    assert [warning.filename for warning in warned] == [__file__]


@pytest.mark.filterwarnings("ignore::dco.InfeasibleLevelWarning")
def test_rows_of_groups_without_calibration_rows_get_full_sets(unknown_groups) -> None:
    est, new, y = unknown_groups
    assert est.evaluate(new, y).overall.sizes.full == 0.09


@pytest.fixture(params=[pd, pl], ids=["pandas", "polars"])
def colours(request):
    """Frames of fitted and of new rows whose colour is red, missing or green; red is noisier."""
    colour = np.array(["r", None, "g"] * 100, dtype=object)
    y = np.random.default_rng(0).normal(size=300) * np.where(colour == "r", 5.0, 1.0)
    frame = request.param.DataFrame({"colour": colour.tolist(), "size": np.arange(300.0)})
    new = request.param.DataFrame({"colour": colour.tolist(), "size": np.arange(300.0) + 0.5})
    return frame, new, y


@pytest.fixture
def by_colour(colours):
    frame, _, y = colours
    model = make_pipeline(make_column_transformer(("passthrough", ["size"])), Ridge())
    est = dco.DecoupledRegressor(model, condition_on="colour", alpha=0.2, random_state=0)
    return est.fit(frame, y)


def test_rows_whose_group_is_missing_are_a_group(colours, by_colour) -> None:
    frame, _, _ = colours
    sizes = by_colour.predict_set(frame).sizes()
    assert set(names_of_groups(by_colour)) == {"(missing)", "g", "r"}
    assert np.all(np.isfinite(sizes))
    assert sizes[0] > 2 * sizes[1]


def test_p_values_know_missing_groups(colours, by_colour) -> None:
    frame, _, y = colours
    covered = by_colour.predict_set(frame).contains(y)
    np.testing.assert_array_equal(by_colour.predict_p(frame, y) > 0.2, covered)


def test_missing_groups_are_evaluated_last(colours, by_colour) -> None:
    _, new, y = colours
    evaluation = by_colour.evaluate(new, y)
    assert [row.group for row in evaluation.by_group] == ["g", "r", "(missing)"]


@pytest.fixture(
    params=[
        np.array([0.0, np.nan, 1.0] * 100),
        np.array([1, "1", "b"] * 100, dtype=object),
    ],
    ids=["numbers with nan", "mixed types"],
)
def by_values(request):
    """An estimator with a threshold for each of three values, and its rows."""
    values = request.param
    Z = np.column_stack([X, np.arange(300)])
    est = ridge(condition_on=lambda rows: values[rows[:, 4].astype(int)], alpha=0.2)
    return est.fit(Z, y), Z


def test_groups_of_any_values_get_a_threshold_each(by_values) -> None:
    est, Z = by_values
    assert len(names_of_groups(est)) == 3
    assert len(set(names_of_groups(est))) == 3
    np.testing.assert_array_equal(est.predict_p(Z, y) > 0.2, est.predict_set(Z).contains(y))


def test_groups_of_any_values_are_verified(by_values) -> None:
    est, Z = by_values
    rows = est.splits_.calibrate
    report = est.certificate_.verify(Z[rows], y[rows], predictor=est)
    assert report.holds, str(report)


# --- evaluations by group -------------------------------------------------------------------------


@pytest.fixture
def by_label():
    """A classifier with a threshold for each label, and 300 new rows."""
    X, y = class_rows(900)
    est = logistic(LAC(), condition_on="label").fit(X[:600], y[:600])
    return est, X[600:], y[600:]


def test_each_group_is_judged_by_the_law_of_its_own_threshold(by_label) -> None:
    """No law of all rows together is claimed."""
    est, X, y = by_label
    evaluation = est.evaluate(X, y)
    tests = [row.consistency for row in evaluation.by_group]
    expected = [threshold.expected_coverage for threshold in est.certificate_.thresholds]
    assert [str(row.group) for row in evaluation.by_group] == names_of_groups(est)
    assert [test.expected_coverage for test in tests] == pytest.approx(expected)
    assert min(test.p_value for test in tests) > 1e-4
    assert evaluation.consistency is None
    assert "expected" in str(evaluation)


def test_labels_of_other_rows_break_the_promise_of_a_group(by_label) -> None:
    est, X, y = by_label
    evaluation = est.evaluate(X, np.roll(y, 1))
    assert min(row.consistency.p_value for row in evaluation.by_group) < 1e-4


def is_positive(Z):
    return Z[:, 0] > 0


def test_a_table_by_other_groups_does_not_change_the_verdict(by_label) -> None:
    est, X, y = by_label
    evaluation = est.evaluate(X, y, by=is_positive)
    assert evaluation.coverage_tests == est.evaluate(X, y).coverage_tests
    assert evaluation.verdict == "held"
    assert [row.consistency for row in evaluation.by_group] == [None, None]
    assert est.evaluate(X, np.roll(y, 1), by=is_positive).verdict == "failed"


@pytest.fixture
def by_column():
    """A regressor with a threshold for each value of column 6, and 300 new rows."""
    X, _ = class_rows(900)
    Z = np.column_stack([X, X[:, 0] > 0])
    est = ridge(condition_on=6).fit(Z[:600], Z[:600, 1])
    return est, Z[600:], Z[600:, 1]


def test_the_column_of_the_condition_may_be_named_in_an_evaluation(by_column) -> None:
    est, Z, y = by_column
    unnamed = [row.consistency for row in est.evaluate(Z, y).by_group]
    assert None not in unnamed
    assert [row.consistency for row in est.evaluate(Z, y, by=6).by_group] == unnamed


def test_values_without_a_name_could_be_of_any_groups(by_column) -> None:
    est, Z, y = by_column
    evaluation = est.evaluate(Z, y, by=Z[:, 6])
    assert [row.consistency for row in evaluation.by_group] == [None, None]


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_a_group_column_of_a_frame_is_not_looked_for_in_an_array() -> None:
    frame = pd.DataFrame(X, columns=list("abcd")).assign(d=X[:, 3] > 0)
    est = ridge(condition_on="d").fit(frame, y)
    with pytest.raises(ValueError, match="column 'd', but X is an array"):
        est.predict_set(frame.to_numpy(float))


def test_groups_are_given_as_values_and_not_by_name() -> None:
    frame = pd.DataFrame(X, columns=["x0", "x1", "x2", "x3"])
    with pytest.raises(ValueError, match=r"got the text 'x0': pass X\['x0'\]"):
        dco.DecoupledRegressor(Ridge()).fit(frame, y, groups="x0")


def test_a_condition_that_is_not_there_is_named() -> None:
    frame = pd.DataFrame(X, columns=["x0", "x1", "x2", "x3"])
    text = "names the column 'y0', which X does not have; it has 'x0', 'x1'"
    with pytest.raises(ValueError, match=text):
        dco.DecoupledRegressor(Ridge(), condition_on="y0").fit(frame, y)
