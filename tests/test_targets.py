"""Targets: known, finite and of the type in which they were given, wherever they are read."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge

import dco

LARGE = [5, 2**53, 2**53 + 1]


def make_classes(n: int, labels: list, seed: int = 0):
    """Draw rows whose label is one of three, by their first feature."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    codes = np.digitize(X[:, 0] + 0.3 * rng.normal(size=n), [-0.5, 0.5])
    return X, [labels[code] for code in codes]


def make_numbers(n: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + rng.normal(size=n)


def fit_classes(X, y) -> dco.DecoupledClassifier:
    est = dco.DecoupledClassifier(LogisticRegression(), dco.scores.LAC(), random_state=0)
    return est.fit(X, y)


@pytest.fixture(scope="module")
def regression() -> dco.DecoupledRegressor:
    est = dco.DecoupledRegressor(Ridge(), dco.scores.AbsoluteResidual(), random_state=0)
    return est.fit(*make_numbers(300))


@pytest.mark.parametrize("dtype", ["int64", "Int64", "int64[pyarrow]", "UInt64"])
@pytest.mark.parametrize("labels", [LARGE, [0, 1, 2]], ids=["large", "small"])
def test_whole_labels_stay_whole(dtype, labels):
    X, y = make_classes(600, labels)
    est = fit_classes(X[:400], pd.Series(y[:400], dtype=dtype))

    assert est.classes_.tolist() == labels
    assert all(type(label) is int for label in est.predict_set(X[:9]).to_lists()[0])


@pytest.mark.parametrize("dtype", ["bool", "boolean", "bool[pyarrow]"])
def test_truth_values_stay_truth_values(dtype):
    X, y = make_classes(400, [False, True, True])
    est = fit_classes(X, pd.Series(y, dtype=dtype))

    assert est.classes_.dtype == bool
    assert est.predict_set(X).to_lists()[0][0] in (False, True)


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]"])
def test_large_labels_are_evaluated_watched_and_recalibrated_as_they_are(dtype):
    X, y = make_classes(900, LARGE)
    plain, column = np.array(y), pd.Series(y, dtype=dtype)
    est = fit_classes(X[:400], plain[:400])

    assert est.evaluate(X[400:], column[400:]) == est.evaluate(X[400:], plain[400:])
    report = dco.Monitor(est).update(X[400:], column[400:])
    assert report == dco.Monitor(est).update(X[400:], plain[400:])
    again = dco.recalibrate(est, X[400:], column[400:]).certificate_.thresholds
    assert again == dco.recalibrate(est, X[400:], plain[400:]).certificate_.thresholds


READERS = {
    "fit": lambda est, X, y: dco.DecoupledRegressor(Ridge()).fit(X, y),
    "evaluate": lambda est, X, y: est.evaluate(X, y),
    "evaluate sets": lambda est, X, y: dco.evaluate(est.predict_set(X), y),
    "monitor": lambda est, X, y: dco.Monitor(est).update(X, y),
    "recalibrate": dco.recalibrate,
}


def mask_rows(y):
    return np.ma.masked_array(y, mask=np.isin(np.arange(len(y)), [7, 9]))


def nullable_with_gaps(y):
    return pd.Series(y, dtype="Float64").mask(np.isin(np.arange(len(y)), [7, 9]))


def put(value):
    return lambda y: np.where(np.isin(np.arange(len(y)), [7, 9]), value, y)


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
    with pytest.raises(ValueError, match=rf"y is {problem} in row 7 \(2 rows in all\)"):
        read(regression, X, spoil(y))


def test_masked_labels_are_refused():
    X, y = make_classes(50, ["a", "b", "c"])
    with pytest.raises(ValueError, match=r"y is missing in row 7 \(2 rows in all\)"):
        fit_classes(X, mask_rows(np.array(y)))


def test_a_mask_that_hides_nothing_changes_nothing(regression):
    X, y = make_numbers(300)
    est = dco.DecoupledRegressor(Ridge(), dco.scores.AbsoluteResidual(), random_state=0)
    est.fit(np.ma.masked_array(X), np.ma.masked_array(y))
    assert est.certificate_.thresholds == regression.certificate_.thresholds


def test_masked_features_are_missing_features(regression):
    X, y = make_numbers(400)
    masked = np.ma.masked_array(X, mask=X > 1)
    gaps = np.where(X > 1, np.nan, X)
    model = HistGradientBoostingRegressor(max_iter=5, random_state=0)

    def fit(features):
        est = dco.DecoupledRegressor(model, dco.scores.AbsoluteResidual(), random_state=0)
        return est.fit(features[:300], y[:300])

    one, other = fit(masked), fit(gaps)
    assert one.certificate_.thresholds == other.certificate_.thresholds
    assert one.evaluate(masked[300:], y[300:]) == other.evaluate(gaps[300:], y[300:])
    report = dco.Monitor(one).update(masked[300:], y[300:])
    assert report == dco.Monitor(other).update(gaps[300:], y[300:])
    with pytest.raises(ValueError, match="NaN"):
        regression.predict_set(masked)
