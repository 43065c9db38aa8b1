"""A model of g(y) in units of y."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import dco
from dco.models import ResidualSpread, TransformedTarget
from dco.scores import AbsoluteResidual, NormalisedResidual, Transformed


@parametrize_with_checks([TransformedTarget(LinearRegression(), "asinh")])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


INVERSES = {"log": np.exp, "sqrt": np.square, "asinh": np.sinh}


@pytest.mark.parametrize("transform", INVERSES)
def test_the_model_learns_the_scale_of_the_transform(transform):
    X = np.linspace(1, 3, 50)[:, None]
    y = INVERSES[transform](X[:, 0])
    model = TransformedTarget(LinearRegression(), transform).fit(X, y)
    np.testing.assert_allclose(model.predict(X), y)


@pytest.mark.parametrize("transform", INVERSES)
def test_predictions_far_outside_are_finite(transform):
    """A linear model of log y would give infinity."""
    X = np.linspace(1, 3, 50)[:, None]
    y = INVERSES[transform](X[:, 0])
    model = TransformedTarget(LinearRegression(), transform).fit(X, y)
    assert np.isfinite(model.predict([[1e6], [-1e6]])).all()


@pytest.fixture
def rows():
    """y = exp(x + noise)."""
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 5, size=(400, 1))
    return X, np.exp(X[:, 0] + rng.normal(scale=0.3, size=400))


@pytest.fixture(params=["log1p", "quantile"])
def fitted(request, rows):
    """An estimator that ranks a linear model of y beside one of g(y), each on either scale."""
    models = {
        "plain": LinearRegression(),
        "transformed": TransformedTarget(LinearRegression(), request.param),
    }
    scores = [AbsoluteResidual(), Transformed(AbsoluteResidual(), request.param)]
    return dco.DecoupledRegressor(models, scores, random_state=0).fit(*rows)


def test_estimators_choose_the_scale_of_the_rows(fitted, rows):
    X, y = rows
    assert fitted.best_candidate_.startswith("transformed / Transformed")
    assert fitted.certificate_.structure.score.startswith("Transformed(AbsoluteResidual, ")
    np.testing.assert_allclose(np.median(fitted.predict(X) / y), 1, atol=0.15)


def test_files_keep_it(fitted, rows, tmp_path):
    X, y = rows
    dco.save(fitted, tmp_path / "m.dco")

    again = dco.load(tmp_path / "m.dco")

    calibrate = fitted.splits_.calibrate
    report = again.certificate_.verify(X[calibrate], y[calibrate], predictor=again)
    sets = np.asarray(again.predict_set(X))
    np.testing.assert_array_equal(sets, np.asarray(fitted.predict_set(X)))
    assert report.holds


def test_a_spread_around_it_serves_both_scales(rows):
    """One fit of model and spread; the spread in units of y is read on either scale."""
    model = ResidualSpread(TransformedTarget(LinearRegression(), "log"))
    scores = {"y": NormalisedResidual(), "log y": Transformed(NormalisedResidual(), "log")}
    ranking = dco.DecoupledRegressor(model, scores, random_state=0).fit(*rows).ranking_
    assert {row.name.partition(" / ")[2] for row in ranking.table} == {"y", "log y"}
