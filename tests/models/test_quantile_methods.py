"""Models that predict quantiles at many levels, and how they are recognised."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dco
from dco.models.averaged import average_records
from dco.models.records import convert, predict_record, records_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 2))
Y = X[:, 0] + RNG.exponential(size=600)
GIVEN = (dco.QuantileFunction, dco.Points)


class Linear(RegressorMixin, BaseEstimator):
    """A linear model whose quantiles are those of its residuals."""

    def fit(self, X, y):
        self.model_ = LinearRegression().fit(X, y)
        self.residuals_ = y - self.model_.predict(X)
        return self

    def predict(self, X):
        return self.model_.predict(X)

    def _quantiles(self, X, levels):
        return self.model_.predict(X)[:, None] + np.quantile(self.residuals_, levels)


class OwnQuantiles(Linear):
    def predict_quantiles(self, X, levels):
        return self._quantiles(X, levels)


class LikeAForest(Linear):
    def predict(self, X, quantiles=None):
        return self.model_.predict(X) if quantiles is None else self._quantiles(X, quantiles)


class LikeCatBoost(Linear):
    def __init__(self, loss_function="MultiQuantile:alpha=0.9,0.1,0.5"):
        self.loss_function = loss_function

    def predict(self, X):
        return self._quantiles(X, [0.9, 0.1, 0.5])


class WithDraws(Linear):
    def predict_distribution(self, X) -> dco.TargetDraws:
        return dco.TargetDraws(self._quantiles(X, np.linspace(0, 1, 40)).T)


QUANTILE_MODELS = pytest.mark.parametrize(
    "model",
    [OwnQuantiles(), LikeAForest(), LikeCatBoost()],
    ids=["predict_quantiles", "forest", "catboost"],
)
WRAPPERS = pytest.mark.parametrize(
    "wrap",
    [lambda model: model, lambda model: make_pipeline(StandardScaler(), model)],
    ids=["alone", "pipeline"],
)


@QUANTILE_MODELS
@WRAPPERS
def test_models_of_quantiles_give_a_quantile_function(model, wrap):
    assert records_of(wrap(model)) == GIVEN


@QUANTILE_MODELS
@WRAPPERS
def test_quantiles_are_those_of_the_model(model, wrap):
    fitted = wrap(model).fit(X, Y)

    record = predict_record(fitted, X)

    last = Linear().fit(X, Y)
    assert record.values == pytest.approx(last._quantiles(X, record.levels))


@QUANTILE_MODELS
def test_a_fitted_model_is_recognised_in_a_frozen_one(model):
    assert records_of(FrozenEstimator(model.fit(X, Y))) == GIVEN


def test_every_percent_is_asked_for():
    record = predict_record(OwnQuantiles().fit(X, Y), X)

    assert record.levels.tolist() == [percent / 100 for percent in range(1, 100)]


def test_a_loss_of_several_quantiles_gives_its_levels():
    record = predict_record(LikeCatBoost().fit(X, Y), X)

    assert record.levels.tolist() == [0.1, 0.5, 0.9]


def test_points_of_a_loss_of_several_quantiles_are_medians():
    model = LikeCatBoost().fit(X, Y)

    points = predict_record(model, X, dco.Points)

    assert points.mean.tolist() == model.predict(X)[:, 2].tolist()


@pytest.mark.parametrize("loss", ["RMSE", "Quantile:alpha=0.5", "MultiQuantile:alpha=0.5", None])
def test_other_losses_give_points(loss):
    assert records_of(LikeCatBoost(loss)) == (dco.Points,)


def test_a_model_that_wants_an_output_type_is_not_asked_for_quantiles():
    class LikeTabPFN(Linear):
        def predict(self, X, *, output_type="mean", quantiles=None):
            return self.model_.predict(X)

    assert records_of(LikeTabPFN()) == (dco.Points,)


def test_quantiles_of_another_shape_are_an_error_that_names_the_model():
    class Transposed(OwnQuantiles):
        def predict_quantiles(self, X, levels):
            return self._quantiles(X, levels).T

    with pytest.raises(ValueError, match=r"Transposed: values must have a column for each of"):
        predict_record(Transposed().fit(X, Y), X)


def test_draws_are_also_quantiles_and_points():
    assert records_of(WithDraws()) == (dco.TargetDraws, dco.QuantileFunction, dco.Points)


def test_draws_become_their_quantile_function():
    draws = predict_record(WithDraws().fit(X, Y), X)

    converted = convert(draws, dco.QuantileFunction)

    assert converted.values.tolist() == np.sort(draws.draws, axis=0).T.tolist()


@pytest.mark.parametrize(
    "model", [OwnQuantiles(), LikeCatBoost(), WithDraws()], ids=["any", "catboost", "draws"]
)
def test_an_estimator_tries_both_scores(model):
    est = dco.DecoupledRegressor(model, alpha=0.2, tune_size=0.3, random_state=0).fit(X, Y)

    names = {row.name.split(" / ")[-1] for row in est.ranking_.table}
    assert {"CentralMass", "ShortestMass"} <= names


def test_an_average_of_such_models_averages_their_quantiles():
    levels = [0.1, 0.5, 0.9]
    first = dco.QuantileFunction(levels, [[0.0, 1.0, 2.0]])
    other = dco.QuantileFunction([0.1, 0.9], [[2.0, 4.0]])

    averaged = average_records([first, other])

    assert averaged.values[0] == pytest.approx([1, 2, 3])


def test_draws_of_several_models_are_pooled():
    averaged = average_records([dco.TargetDraws([[1.0], [2.0]]), dco.TargetDraws([[3.0], [4.0]])])

    assert averaged.draws.tolist() == [[1], [2], [3], [4]]


def test_a_quantile_forest_is_asked_for_its_quantiles():
    forests = pytest.importorskip("quantile_forest")
    forest = forests.RandomForestQuantileRegressor(20, min_samples_leaf=5, random_state=0)

    est = dco.DecoupledRegressor(forest, dco.scores.CentralMass(), random_state=0).fit(X, Y)

    assert records_of(forest) == GIVEN
    assert np.isfinite(est.predict_set(X).sizes()).all()
