"""Targets: known, finite and of the type in which they were given, wherever they are read."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge

import dco

LARGE = [5, 2**53, 2**53 + 1]


def make_classes(n: int, labels: list):
    """Draw rows whose label is one of three, by their first feature."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    codes = np.digitize(X[:, 0] + 0.3 * rng.normal(size=n), [-0.5, 0.5])
    return X, [labels[code] for code in codes]


def make_numbers(n: int, seed: int = 0):
    """Draw rows whose target is their first feature plus noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + rng.normal(size=n)


def fit_classes(X, y) -> dco.DecoupledClassifier:
    est = dco.DecoupledClassifier(LogisticRegression(), dco.scores.LAC(), random_state=0)
    return est.fit(X, y)


@pytest.fixture(scope="module")
def regression() -> dco.DecoupledRegressor:
    """A ridge regression of 300 rows."""
    est = dco.DecoupledRegressor(Ridge(), dco.scores.AbsoluteResidual(), random_state=0)
    return est.fit(*make_numbers(300))


@pytest.mark.parametrize("dtype", ["int64", "Int64", "int64[pyarrow]", "UInt64"])
@pytest.mark.parametrize("labels", [LARGE, [0, 1, 2]], ids=["large", "small"])
def test_whole_labels_stay_whole(dtype, labels):
    X, y = make_classes(600, labels)

    est = fit_classes(X[:400], pd.Series(y[:400], dtype=dtype))
    labels_of_a_set = est.predict_set(X[:9]).to_lists()[0]

    assert est.classes_.tolist() == labels
    assert {type(label) for label in labels_of_a_set} <= {int}


@pytest.mark.parametrize("dtype", ["bool", "boolean", "bool[pyarrow]"])
def test_truth_values_stay_truth_values(dtype):
    X, y = make_classes(400, [False, True, True])

    est = fit_classes(X, pd.Series(y, dtype=dtype))

    assert est.classes_.dtype == bool
    assert est.predict_set(X).to_lists()[0][0] in (False, True)


@pytest.fixture(scope="module", params=["Int64", "int64[pyarrow]"])
def large_classes(request):
    """A classifier of large labels, with 500 new rows, their labels, and the same in a column."""
    X, y = make_classes(900, LARGE)
    labels = np.array(y)
    column = pd.Series(y, dtype=request.param)
    est = fit_classes(X[:400], labels[:400])
    return est, X[400:], labels[400:], column[400:]


def test_large_labels_of_a_column_are_evaluated_as_they_are(large_classes):
    est, X, labels, column = large_classes
    assert est.evaluate(X, column) == est.evaluate(X, labels)


def test_large_labels_of_a_column_are_watched_as_they_are(large_classes):
    est, X, labels, column = large_classes
    assert dco.Monitor(est).update(X, column) == dco.Monitor(est).update(X, labels)


def test_large_labels_of_a_column_recalibrate_as_they_are(large_classes):
    est, X, labels, column = large_classes

    by_column = dco.recalibrate(est, X, column)
    by_labels = dco.recalibrate(est, X, labels)

    assert by_column.certificate_.thresholds == by_labels.certificate_.thresholds


READERS = {
    "fit": lambda est, X, y: dco.DecoupledRegressor(Ridge()).fit(X, y),
    "evaluate": lambda est, X, y: est.evaluate(X, y),
    "evaluate sets": lambda est, X, y: dco.evaluate(est.predict_set(X), y),
    "monitor": lambda est, X, y: dco.Monitor(est).update(X, y),
    "recalibrate": dco.recalibrate,
}


ROWS_TO_SPOIL = [7, 9]


def mask_rows(y):
    """Mask the rows 7 and 9."""
    mask = np.zeros(len(y), dtype=bool)
    mask[ROWS_TO_SPOIL] = True
    return np.ma.masked_array(y, mask=mask)


def nullable_with_gaps(y):
    """Make a nullable column without the rows 7 and 9."""
    column = pd.Series(y, dtype="Float64")
    column[ROWS_TO_SPOIL] = pd.NA
    return column


def put(value):
    """Return a function that puts `value` into the rows 7 and 9."""

    def spoil(y):
        spoilt = y.copy()
        spoilt[ROWS_TO_SPOIL] = value
        return spoilt

    return spoil


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        pytest.param(mask_rows, "missing", id="masked"),
        pytest.param(nullable_with_gaps, "missing", id="nullable"),
        pytest.param(put(np.nan), "missing", id="nan"),
        pytest.param(put(np.inf), "infinite", id="inf"),
        pytest.param(put(-np.inf), "infinite", id="-inf"),
    ],
)
def test_targets_without_a_finite_value_are_counted_and_refused(regression, read, spoil, problem):
    X, y = make_numbers(50, seed=1)
    spoilt = spoil(y)
    with pytest.raises(ValueError, match=rf"y is {problem} in row 7 \(2 rows in all\)"):
        read(regression, X, spoilt)


def test_masked_labels_are_refused():
    X, y = make_classes(50, ["a", "b", "c"])
    with pytest.raises(ValueError, match=r"y is missing in row 7 \(2 rows in all\)"):
        fit_classes(X, mask_rows(np.array(y)))


def test_a_mask_that_hides_nothing_changes_nothing(regression):
    X, y = make_numbers(300)
    est = dco.DecoupledRegressor(Ridge(), dco.scores.AbsoluteResidual(), random_state=0)

    est.fit(np.ma.masked_array(X), np.ma.masked_array(y))

    assert est.certificate_.thresholds == regression.certificate_.thresholds


@pytest.fixture(scope="module")
def features_with_gaps():
    """400 rows whose features above 1 are masked, the same with NaN there, and their targets."""
    X, y = make_numbers(400)
    masked = np.ma.masked_array(X, mask=X > 1)
    gaps = np.where(X > 1, np.nan, X)
    return masked, gaps, y


def fit_boosting(X, y) -> dco.DecoupledRegressor:
    model = HistGradientBoostingRegressor(max_iter=5, random_state=0)
    est = dco.DecoupledRegressor(model, dco.scores.AbsoluteResidual(), random_state=0)
    return est.fit(X, y)


def test_masked_features_are_fitted_as_missing_ones(features_with_gaps):
    masked, gaps, y = features_with_gaps
    by_mask = fit_boosting(masked, y).certificate_
    assert by_mask.thresholds == fit_boosting(gaps, y).certificate_.thresholds


def test_masked_features_are_evaluated_as_missing_ones(features_with_gaps):
    masked, gaps, y = features_with_gaps
    est = fit_boosting(gaps[:300], y[:300])
    assert est.evaluate(masked[300:], y[300:]) == est.evaluate(gaps[300:], y[300:])


def test_masked_features_are_watched_as_missing_ones(features_with_gaps):
    masked, gaps, y = features_with_gaps
    est = fit_boosting(gaps[:300], y[:300])

    report = dco.Monitor(est).update(masked[300:], y[300:])

    assert report == dco.Monitor(est).update(gaps[300:], y[300:])


def test_a_model_that_takes_no_missing_features_takes_no_masked_ones(
    regression, features_with_gaps
):
    masked, *_ = features_with_gaps
    with pytest.raises(ValueError, match="NaN"):
        regression.predict_set(masked)
