"""Bad parameters and targets get one sentence."""

import numpy as np
import pandas as pd
import pytest
from estimator_examples import class_rows, logistic, regression_rows, ridge
from sklearn.base import clone
from sklearn.linear_model import Ridge

import dco
from dco.scores import LAC, AbsoluteResidual


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA, float("nan")])
@pytest.mark.parametrize(
    "wrap", [np.asarray, pd.Series, lambda y: pd.Series(y, dtype="string"), lambda y: y.tolist()]
)
def test_missing_labels_are_named_by_their_row(wrap, missing) -> None:
    X, y = class_rows(60)
    labels = np.asarray([f"class {label}" for label in y], dtype=object)
    est = logistic(LAC(), alpha=0.3).fit(X, labels)
    labels[[2, 7]] = missing
    with pytest.raises(
        ValueError,
        match=r"y is missing in row 2 \(2 rows in all\): every row needs",
    ):
        clone(est).fit(X, wrap(labels))
    with pytest.raises(ValueError, match=r"y is missing in row 2 \(2 rows in all\)"):
        est.evaluate(X, wrap(labels))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("alpha", 1.5, "1.5"),
        ("delta", 0, "delta"),
        ("guarantee", "best", "best"),
        ("duplicates", "maybe", "maybe"),
        ("search", 3, "search"),
        ("models", [], "empty"),
        ("scores", [], "scores is empty"),
        ("scores", {}, "scores is empty"),
        ("scores", "residual", "dco.scores, got 'residual'"),
        ("scores", [AbsoluteResidual(), 3], "dco.scores, got 3"),
        (
            "scores",
            {"r": AbsoluteResidual},
            r"got the class AbsoluteResidual: write AbsoluteResidual\(",
        ),
        ("condition_on", "age", "column number below 4 or a callable, as X is an array; got 'age'"),
        ("condition_on", 5, "got 5"),
        ("condition_on", "label", 'condition_on="label" is for classes'),
        ("tune_folds", 1, "tune_folds must be at least 2, got 1"),
        ("tune_folds", "five", "tune_folds must be a whole number, got 'five'"),
        ("n_jobs", 0, "n_jobs"),
    ],
)
def test_bad_parameters_are_named(name, value, says) -> None:
    X, y = regression_rows(60)
    with pytest.raises(ValueError, match=says):
        dco.DecoupledRegressor(Ridge()).set_params(**{name: value}).fit(X, y)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda n: 10**18 + n % 3, "y is 1000000000000000001 in row 1, which float64 rounds"),
        (lambda n: pd.Series(10**18 + n % 3, dtype="Int64"), "y is 1000000000000000001 in row 1"),
        (lambda n: [10**20 + int(k) for k in n], "y is 100000000000000000001 in row 1"),
        (lambda n: np.array([f"{10**18 + k}" for k in n]), "y is 1000000000000000001 in row 1"),
        (
            lambda n: np.datetime64("2026-01-01") + n,
            "y holds dates, and a regression needs numbers: give days since one",
        ),
        (lambda n: pd.Series(pd.date_range("2026", periods=len(n), tz="UTC")), "y holds dates"),
        (
            lambda n: n * np.timedelta64(1, "s"),
            "y holds durations, and a regression needs numbers: give them in one unit",
        ),
    ],
)
def test_targets_that_floats_cannot_hold_are_refused(make, words) -> None:
    """Large integers were once rounded: intervals of one number each, coverage 1 by `evaluate` and
    0 in truth.
    """
    n = np.arange(200)
    X = np.random.default_rng(0).normal(size=(200, 2))
    est = ridge()
    with pytest.raises(ValueError, match=words):
        est.fit(X, make(n))
    est.fit(X, n)
    for refused in (est.evaluate, est.predict_p):
        with pytest.raises(ValueError, match=words):
            refused(X, make(n))
    with pytest.raises(ValueError, match=words):
        est.fit(X, n, calibrate=(X + 10, make(n)))
    held = 10**18 + 2**10 * n
    assert est.fit(X, held).predict_set(X).contains(held).mean() > 0.8


@pytest.mark.parametrize("given", [list, np.array, pd.Series, pd.Categorical])
def test_text_and_numbers_in_one_y_are_refused_in_a_sentence(given) -> None:
    X, y = class_rows()
    labels = [[1, "1", "x"][label] for label in y]
    mixed = np.array(labels, dtype=object) if given is np.array else given(labels)
    with pytest.raises(
        ValueError,
        match=r"^y holds text \('(1|x)'\) and numbers \(1\) as labels: "
        r"give all labels one type",
    ):
        logistic().fit(X, mixed)
