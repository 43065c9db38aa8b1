"""QuantilePair: which parameters it sets, and that the levels are the levels."""

import warnings

import lightgbm
import numpy as np
import pytest
import sklearn
from scipy.stats import binom
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, QuantileRegressor, Ridge, SGDRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import dco
from dco.models.quantile_pair import QuantilePair, quantile_settings

LINEAR = QuantileRegressor(alpha=0, solver="highs")


def rows(n, seed=0):
    """y = 2 x + N(0, 1): the q-quantile at x is 2 x + norm.ppf(q)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 1))
    return X, 2 * X[:, 0] + rng.normal(size=n)


@parametrize_with_checks(
    [
        QuantilePair(HistGradientBoostingRegressor(max_iter=10)),
        QuantilePair(GradientBoostingRegressor(n_estimators=10, random_state=0)),
        QuantilePair(LINEAR, median=True),
    ]
)
def test_is_a_scikit_learn_estimator(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("settings", "levels"),
    [({"alpha": 0.2, "median": True}, (0.1, 0.9, 0.5)), ({"lower": 0.2, "upper": 0.7}, (0.2, 0.7))],
)
def test_the_fitted_levels_hold_the_share_of_rows_that_they_name(settings, levels):
    """A linear quantile fit with an intercept passes through 2 rows here, so below it are q n rows,
    give or take 2.
    """
    X, y = rows(400)
    pair = QuantilePair(LINEAR, **settings).fit(X, y)
    quantiles = pair.predict_distribution(X)
    assert isinstance(quantiles, dco.Quantiles)
    found = [quantiles.lower, quantiles.upper, quantiles.median]
    for column, level in zip(found, levels, strict=False):
        assert abs(np.sum(y < column - 1e-9) - level * 400) <= 2
    np.testing.assert_array_equal(
        pair.predict(X), (found[0] + found[1]) / 2 if found[2] is None else found[2]
    )


def test_boosting_covers_fresh_rows_about_as_often_as_its_levels_say():
    X, y = rows(3000)
    fresh, truth = rows(2000, seed=1)
    ours = HistGradientBoostingRegressor(max_leaf_nodes=4, max_iter=60)
    for estimator in (ours, lightgbm.LGBMRegressor(num_leaves=4, verbose=-1)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # LightGBM names its columns
            q = QuantilePair(estimator, alpha=0.2).fit(X, y).predict_distribution(fresh)
        covered = np.sum((q.lower <= truth) & (truth <= q.upper))
        assert binom.ppf(1e-4, 2000, 0.75) <= covered <= binom.ppf(1 - 1e-4, 2000, 0.85)


class XGBLike(RegressorMixin, BaseEstimator):
    """XGBoost's parameter names."""

    def __init__(self, objective="reg:squarederror", quantile_alpha=None, max_depth=3):
        self.objective = objective
        self.quantile_alpha = quantile_alpha
        self.max_depth = max_depth

    def fit(self, X, y):
        if self.objective != "reg:quantileerror":
            raise AssertionError(self.objective)
        self.value_ = np.quantile(y, self.quantile_alpha)
        return self

    def predict(self, X):
        return np.full(len(X), self.value_)


class Unknown(XGBLike):
    """A quantile model whose level has a name of its own."""

    def __init__(self, tau=0.5):
        self.tau = tau

    def fit(self, X, y):
        self.value_ = np.quantile(y, self.tau)
        return self


XGBFree = type(
    "XGBFree",
    (XGBLike,),
    {"__init__": lambda self, objective=None: setattr(self, "objective", objective)},
)
XGBFree.__module__ = "xgboost.sklearn"


@pytest.mark.parametrize(
    ("estimator", "settings"),
    [
        (HistGradientBoostingRegressor(), {"loss": "quantile", "quantile": 0.3}),
        (GradientBoostingRegressor(), {"loss": "quantile", "alpha": 0.3}),
        (LINEAR, {"quantile": 0.3}),
        (lightgbm.LGBMRegressor(), {"objective": "quantile", "alpha": 0.3}),
        (XGBLike(), {"objective": "reg:quantileerror", "quantile_alpha": 0.3}),
        (XGBFree(), {"objective": "reg:quantileerror", "quantile_alpha": 0.3}),
        (make_pipeline(StandardScaler(), LINEAR), {"quantileregressor__quantile": 0.3}),
        (
            make_pipeline(StandardScaler(), make_pipeline(LINEAR)),
            {"pipeline__quantileregressor__quantile": 0.3},
        ),
        (TransformedTargetRegressor(LINEAR), {"regressor__quantile": 0.3}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_library_gets_its_own_parameters(estimator, settings):
    assert quantile_settings(estimator, 0.3) == settings


@pytest.mark.parametrize("estimator", [Ridge(), SGDRegressor(), LinearRegression()])
def test_a_penalty_called_alpha_is_not_taken_for_a_level(estimator):
    with pytest.raises(TypeError, match=r"has no quantile loss.*parameter="):
        QuantilePair(estimator).fit(*rows(20))


def test_other_estimators_work_by_the_name_of_their_parameter():
    X, y = rows(200)
    pair = QuantilePair(Unknown(), alpha=0.5, parameter="tau").fit(X, y)
    quantiles = pair.predict_distribution(X[:1])
    assert (quantiles.lower[0], quantiles.upper[0]) == tuple(np.quantile(y, [0.25, 0.75]))
    assert pair.predict(X[:1])[0] == np.quantile(y, [0.25, 0.75]).mean()


def test_the_given_estimator_is_left_alone_and_refitting_forgets():
    X, y = rows(100)
    base = make_pipeline(StandardScaler(), clone(LINEAR))
    pair = QuantilePair(base, median=True).fit(X, y)
    assert base.named_steps["quantileregressor"].quantile == 0.5
    assert not hasattr(base.named_steps["quantileregressor"], "coef_")
    assert pair.set_params(median=False).fit(X, y).predict_distribution(X).median is None


@pytest.mark.parametrize("wrong", [0, 1, -0.1, np.nan, "a", [0.1], {}])
@pytest.mark.parametrize("name", ["alpha", "lower", "upper"])
def test_what_is_no_level_is_refused_by_its_name(name, wrong):
    with pytest.raises(ValueError, match=f"{name} must be a number strictly between 0 and 1, got"):
        QuantilePair(LINEAR, **{name: wrong}).fit(*rows(20))


@pytest.mark.parametrize("routing", [False, True])
def test_weights_reach_every_model(routing):
    """Weight zero is absence."""
    X, y = rows(100)
    weight = np.repeat([1.0, 0.0], 50)
    with sklearn.config_context(enable_metadata_routing=routing):
        base = clone(LINEAR).set_fit_request(sample_weight=True) if routing else LINEAR
        weighted = QuantilePair(base, median=True).fit(X, y, sample_weight=weight)
        fewer = QuantilePair(base, median=True).fit(X[:50], y[:50])
        np.testing.assert_allclose(weighted.predict(X), fewer.predict(X), atol=1e-8)
        np.testing.assert_allclose(weighted.lower_.coef_, fewer.lower_.coef_, atol=1e-8)


@pytest.mark.parametrize(("lower", "upper"), [(0.6, 0.4), (0.5, 0.5)])
def test_levels_out_of_order_are_refused(lower, upper):
    with pytest.raises(ValueError, match=f"0 < lower < upper < 1, got {lower} and {upper}"):
        QuantilePair(LINEAR, lower=lower, upper=upper).fit(*rows(20))
