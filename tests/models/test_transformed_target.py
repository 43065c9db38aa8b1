"""A model of g(y) in units of y."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import dco
from dco.models import TransformedTarget
from dco.scores import AbsoluteResidual, NormalisedResidual, Transformed


@parametrize_with_checks([TransformedTarget(LinearRegression(), "asinh")])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("transform", "inverse"), [("log", np.exp), ("sqrt", np.square), ("asinh", np.sinh)]
)
def test_the_model_learns_the_scale_of_the_transform(transform, inverse):
    X = np.linspace(1, 3, 50)[:, None]
    model = TransformedTarget(LinearRegression(), transform).fit(X, inverse(X[:, 0]))
    np.testing.assert_allclose(model.predict(X), inverse(X[:, 0]))
    # far outside, a linear model of log y would give infinity
    assert np.isfinite(model.predict([[1e6], [-1e6]])).all()


@pytest.mark.parametrize("transform", ["log1p", "quantile"])
def test_estimators_choose_it_and_files_keep_it(transform, tmp_path):
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 5, size=(400, 1))
    y = np.exp(X[:, 0] + rng.normal(scale=0.3, size=400))
    models = {"plain": LinearRegression(), "own": TransformedTarget(LinearRegression(), transform)}
    scores = [AbsoluteResidual(), Transformed(AbsoluteResidual(), transform)]
    est = dco.DecoupledRegressor(models, scores, random_state=0).fit(X, y)
    assert est.best_candidate_.startswith("own / Transformed")
    assert est.certificate_.structure.score.startswith("Transformed(AbsoluteResidual, ")
    np.testing.assert_allclose(np.median(est.predict(X) / y), 1, atol=0.15)
    dco.save(est, tmp_path / "m.dco")
    again = dco.load(tmp_path / "m.dco")
    np.testing.assert_array_equal(np.asarray(again.predict_set(X)), np.asarray(est.predict_set(X)))
    report = again.certificate_.verify(
        X[est.splits_.calibrate], y[est.splits_.calibrate], predictor=again
    )
    assert report.holds


def test_a_spread_around_it_serves_both_scales():
    """One fit of model and spread; the spread in units of y is read on either scale."""
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 5, size=(300, 1))
    y = np.exp(X[:, 0] + rng.normal(scale=0.3, size=300))
    model = dco.models.ResidualSpread(TransformedTarget(LinearRegression(), "log"))
    scores = {"y": NormalisedResidual(), "log y": Transformed(NormalisedResidual(), "log")}
    ranking = dco.DecoupledRegressor(model, scores, random_state=0).fit(X, y).ranking_
    assert {row.name.split(" / ")[1] for row in ranking.table} == {"y", "log y"}
