"""Parameters of the estimators: their names and defaults, and those that would have no effect."""

import inspect
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.datasets import make_regression
from sklearn.linear_model import LogisticRegression, Ridge

import dco

X, Y = make_regression(200, 4, noise=20.0, random_state=0)
LABELS = np.where(Y > 0, "high", "low")

SHARED = {
    "models": None,
    "scores": None,
    "alpha": 0.1,
    "guarantee": "marginal",
    "delta": 0.05,
    "condition_on": None,
    "weights": None,
    "tune_size": None,
    "calibrate_size": None,
    "tune_folds": None,
    "refit": True,
    "search": None,
    "objective": None,
    "duplicates": "natural",
    "n_jobs": None,
    "random_state": None,
}


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (dco.DecoupledClassifier, SHARED),
        (dco.DecoupledRegressor, {**SHARED, "effort": "usual", "support": None}),
    ],
    ids=["classifier", "regressor"],
)
def test_parameters_and_their_defaults(estimator, expected):
    parameters = inspect.signature(estimator).parameters
    assert {name: parameter.default for name, parameter in parameters.items()} == expected
    assert list(parameters)[:2] == ["models", "scores"]


@pytest.mark.parametrize("estimator", [dco.DecoupledClassifier, dco.DecoupledRegressor])
def test_every_parameter_has_a_paragraph_of_its_own(estimator):
    """A paragraph for several would give the reference the default of the first for all."""
    documented = [
        line.split(" : ")[0].strip()
        for line in inspect.getdoc(estimator).splitlines()
        if " : " in line and not line.startswith(" ")
    ]
    assert sorted(documented) == sorted(inspect.signature(estimator).parameters)


# ------------------------------------------------------------------------------ without an effect


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"delta": 0.2}, "delta=0.2 belongs to guarantee=pac"),
        ({"tune_size": 0.2, "tune_folds": 5}, "tune_size has no effect with tune_folds"),
        ({"search": 3}, "search must be"),
        ({"condition_on": "label"}, 'condition_on="label" is for classes'),
    ],
    ids=["delta", "tune_size", "search", "label"],
)
def test_parameters_without_effect_are_errors(parameters: dict[str, Any], says):
    with pytest.raises(ValueError, match=says):
        dco.DecoupledRegressor(Ridge(), **parameters).fit(X, Y)


@pytest.mark.parametrize("role", ["tune", "calibrate"])
def test_a_size_beside_rows_of_that_role_is_an_error(role):
    est = dco.DecoupledRegressor(Ridge(), **{f"{role}_size": 0.2})
    with pytest.raises(ValueError, match=f"{role}_size has no effect on rows that you bring"):
        est.fit(X[:150], Y[:150], **{role: (X[150:], Y[150:])})


def test_a_delta_belongs_to_pac():
    est = dco.DecoupledRegressor(Ridge(), guarantee="pac", delta=0.2, random_state=0).fit(X, Y)
    assert est.certificate_.delta == 0.2


def test_a_classifier_has_no_support():
    with pytest.raises(TypeError, match="support"):
        dco.DecoupledClassifier(LogisticRegression(), support=(0, None))


# ------------------------------------------------------------------------- the price of losers


class Tagged(RegressorMixin, BaseEstimator):
    """A constant whose tags count how often they are read."""

    tags_read = 0

    def __init__(self, constant=0.0):
        self.constant = constant

    def fit(self, X, y):
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        return np.full(len(X), self.constant)

    def __sklearn_tags__(self):
        type(self).tags_read += 1
        return super().__sklearn_tags__()


def tags_read_by_a_prediction(n_candidates: int) -> int:
    models = {f"constant {i}": Tagged(float(i)) for i in range(n_candidates)}
    est = dco.DecoupledRegressor(models, random_state=0).fit(X, Y)
    before = Tagged.tags_read
    est.predict_set(X[:1])
    return Tagged.tags_read - before


def test_a_prediction_reads_no_tags_of_candidates_that_lost():
    assert tags_read_by_a_prediction(20) == tags_read_by_a_prediction(1)


def test_tags_follow_the_models_of_the_next_fit():
    est = dco.DecoupledRegressor(Ridge(), random_state=0).fit(X, Y)
    gaps = np.where(np.arange(4) == 1, np.nan, X)
    with pytest.raises(ValueError, match="NaN"):
        est.predict_set(gaps)
    est.set_params(models=["linear", Ridge()]).fit(X, Y)
    assert est.__sklearn_tags__().input_tags.allow_nan
