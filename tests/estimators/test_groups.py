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


def test_every_group_has_its_own_threshold() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 2))
    X[:, 1] = rng.integers(0, 2, size=1200)
    y = X[:, 0] + rng.normal(size=1200) * np.where(X[:, 1] == 1, 5.0, 0.5)
    score = AbsoluteResidual()
    est = ridge(scores=score, condition_on=1).fit(X[:800], y[:800])
    assert [entry.group for entry in est.certificate_.thresholds] == ["0.0", "1.0"]
    sizes = est.predict_set(X[800:]).sizes()
    assert sizes[X[800:, 1] == 1].min() > 5 * sizes[X[800:, 1] == 0].max()
    by_call = ridge(scores=score, condition_on=lambda Z: Z[:, 1] > 0.5).fit(X[:800], y[:800])
    np.testing.assert_allclose(by_call.predict_set(X[800:]).sizes(), sizes)


def test_small_groups_are_told_and_never_merged() -> None:
    X, y = class_rows(400, classes=3)
    y = np.where((y == 2) & (np.arange(400) > 60), 0, y)
    with pytest.warns(
        dco.InfeasibleLevelWarning,
        match=r"1 of 3 groups has .*\(2: \d+ rows\): "
        r"their thresholds",
    ):
        est = logistic(condition_on="label", alpha=0.1).fit(X, y)
    assert est.predict_set(X).to_dense()[:, 2].all()  # the class with too few rows is in every set


def test_rows_of_groups_without_calibration_rows_are_counted_in_one_warning() -> None:
    X, y = regression_rows(400)
    X[:, 1] = np.arange(400) % 2
    est = ridge(condition_on=1).fit(X[:300], y[:300])
    new = X[300:].copy()
    new[:7, 1], new[7:9, 1] = 5, 6
    says = r"9 of 100 rows belong to 2 groups that have no calibration rows \(5.0, 6.0\)"
    for ask in (lambda: est.predict_set(new, alpha=[0.1, 0.2]), lambda: est.evaluate(new, y[300:])):
        with pytest.warns(dco.InfeasibleLevelWarning, match=says) as told:
            found = ask()
        # once, and at the line of the caller
        assert [warning.filename for warning in told] == [__file__]
    assert found.overall.sizes.full == 0.09


@pytest.mark.parametrize("library", [pd, pl])
def test_rows_whose_group_is_missing_are_a_group(library) -> None:
    colours = np.array(["r", None, "g"] * 100, dtype=object)
    y = np.random.default_rng(0).normal(size=300) * np.where(colours == "r", 5.0, 1.0)
    X = library.DataFrame({"colour": colours.tolist(), "size": np.arange(300.0)})
    model = make_pipeline(make_column_transformer(("passthrough", ["size"])), Ridge())
    est = dco.DecoupledRegressor(model, condition_on="colour", alpha=0.2, random_state=0).fit(X, y)
    assert {entry.group for entry in est.certificate_.thresholds} == {"(missing)", "g", "r"}
    sizes = est.predict_set(X).sizes()
    assert np.all(np.isfinite(sizes))
    assert sizes[0] > 2 * sizes[1]
    np.testing.assert_array_equal(est.predict_p(X, y) > 0.2, est.predict_set(X).contains(y))
    new = X.with_columns(size=X["size"] + 0.5) if library is pl else X.assign(size=X["size"] + 0.5)
    assert [row.group for row in est.evaluate(new, y).by_group] == ["g", "r", "(missing)"]


def test_groups_of_numbers_with_nan_and_of_mixed_types() -> None:
    values = {
        "nan": np.array([0.0, np.nan, 1.0] * 100),
        "mixed": np.array([1, "1", "b"] * 100, dtype=object),
    }
    for column in values.values():

        def by_row(rows, column=column):
            return column[rows[:, 4].astype(int)]

        Z = np.column_stack([X, np.arange(300)])
        est = ridge(condition_on=by_row, alpha=0.2).fit(Z, y)
        assert (
            len(est.certificate_.thresholds)
            == len({entry.group for entry in est.certificate_.thresholds})
            == 3
        )
        np.testing.assert_array_equal(est.predict_p(Z, y) > 0.2, est.predict_set(Z).contains(y))
        rows = est.splits_.calibrate
        report = est.certificate_.verify(Z[rows], y[rows], predictor=est)
        assert report.holds, str(report)


def test_a_column_of_a_sparse_matrix_names_groups() -> None:
    X, y = class_rows(400)
    X[:, 0] = X[:, 0] > 0
    dense, sparse = (logistic(LAC(), condition_on=0).fit(rows, y) for rows in (X, csr_array(X)))
    assert [e.group for e in sparse.certificate_.thresholds] == [
        e.group for e in dense.certificate_.thresholds
    ]
    np.testing.assert_array_equal(
        sparse.predict_set(csr_array(X)).to_dense(), dense.predict_set(X).to_dense()
    )


def test_each_group_is_judged_by_the_law_of_its_own_threshold() -> None:
    X, y = class_rows(900)
    est = logistic(LAC(), condition_on="label").fit(X[:600], y[:600])
    found = est.evaluate(X[600:], y[600:])
    assert found.consistency is None  # no law of the whole is claimed
    for row, entry in zip(found.by_group, est.certificate_.thresholds, strict=True):
        assert str(row.group) == entry.group
        assert row.consistency.expected_coverage == pytest.approx(entry.expected_coverage)
        assert row.consistency.p_value > 1e-4
    wrong = est.evaluate(X[600:], np.roll(y[600:], 1))  # labels of other rows: coverage breaks down
    assert min(row.consistency.p_value for row in wrong.by_group) < 1e-4
    assert "expected" in str(found)
    # a table of other groups: the promise is the same
    elsewhere = est.evaluate(X[600:], y[600:], by=lambda Z: Z[:, 0] > 0)
    assert (elsewhere.coverage_tests, elsewhere.verdict) == (found.coverage_tests, "held")
    assert [row.consistency for row in elsewhere.by_group] == [None, None]
    assert est.evaluate(X[600:], np.roll(y[600:], 1), by=lambda Z: Z[:, 0] > 0).verdict == "failed"
    Z = np.column_stack([X, X[:, 0] > 0])
    by_column = ridge(condition_on=6).fit(Z[:600], Z[:600, 1])
    nothing, name, labels = (
        [row.consistency for row in by_column.evaluate(Z[600:], Z[600:, 1], by=by).by_group]
        for by in (None, 6, Z[600:, 6])
    )
    assert None not in nothing
    assert name == nothing
    assert labels == [None, None]  # they could be any groups


def test_a_group_column_of_a_frame_is_not_looked_for_in_an_array() -> None:
    frame = pd.DataFrame(X, columns=list("abcd")).assign(d=X[:, 3] > 0)
    est = ridge(condition_on="d").fit(frame, y)
    with (
        pytest.raises(ValueError, match="column 'd', but X is an array"),
        pytest.warns(UserWarning, match="feature names"),
    ):
        est.predict_set(frame.to_numpy(float))


def test_groups_and_conditions_that_are_not_there_are_named() -> None:
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    with pytest.raises(ValueError, match=r"got the text 'x0': pass X\['x0'\]"):
        dco.DecoupledRegressor(Ridge()).fit(frame, y, groups="x0")
    with pytest.raises(
        ValueError, match="names the column 'y0', which X does not have; it has 'x0', 'x1'"
    ):
        dco.DecoupledRegressor(Ridge(), condition_on="y0").fit(frame, y)
