"""ResidualSpread: the spread is learned from rows that the model has not seen."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import HuberRegressor, LinearRegression, Ridge
from sklearn.model_selection import GroupKFold, KFold, cross_val_predict
from sklearn.neighbors import KNeighborsRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

import dco
from dco.models.residual_spread import ResidualSpread


def rows(n, seed=0):
    """y = x1 + |x2| e, e standard normal: the expected absolute error of the true mean is |x2|
    sqrt(2 / pi).
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, X[:, 0] + np.abs(X[:, 1]) * rng.normal(size=n)


@parametrize_with_checks(
    [
        ResidualSpread(HistGradientBoostingRegressor(max_iter=10)),
        ResidualSpread(Ridge(), KNeighborsRegressor(3), cv=3),
    ]
)
def test_is_a_scikit_learn_estimator(estimator, check):
    check(estimator)


def test_the_spread_is_the_expected_absolute_residual():
    X, y = rows(4000)
    model = ResidualSpread(
        LinearRegression(), HistGradientBoostingRegressor(max_leaf_nodes=6, max_iter=50)
    ).fit(X, y)
    grid = np.column_stack([np.zeros(5), [0.2, 0.4, 0.6, 0.8, 0.95]])
    record = model.predict_distribution(grid)
    assert isinstance(record, dco.PointsWithSpread)
    np.testing.assert_allclose(record.spread, grid[:, 1] * np.sqrt(2 / np.pi), atol=0.1)
    np.testing.assert_array_equal(record.mean, model.predict(grid))


def test_logs_of_residuals_are_not_ruled_by_a_few_large_ones():
    """Residuals |x2 e| with one in a hundred a thousand times larger: the typical residual stays in
    proportion to |x2|.
    """
    X, y = rows(4000)
    y = np.where(np.arange(4000) % 100 == 0, 1000 * y, y)
    small = HistGradientBoostingRegressor(max_leaf_nodes=6, max_iter=50, random_state=0)
    grid = np.column_stack([np.zeros(4), [0.2, 0.4, 0.6, 0.8]])
    spreads = {
        logs: ResidualSpread(HuberRegressor(), small, floor=1e-3, logs=logs)
        .fit(X, y)
        .predict_distribution(grid)
        .spread
        for logs in (True, False)
    }
    np.testing.assert_allclose(spreads[True] / spreads[True].mean(), grid[:, 1] / 0.5, atol=0.35)
    assert np.abs(spreads[False] / spreads[False].mean() - grid[:, 1] / 0.5).max() > 0.5
    far = (
        ResidualSpread(LinearRegression(), LinearRegression(), logs=True)
        .fit(X, y)
        .predict_distribution([[1e6, 1e6]])
    )
    assert np.isfinite(far.spread).all()


def test_residuals_are_those_of_the_folds():
    X, y = rows(60)
    folds = KFold(4, shuffle=True, random_state=3)
    model = ResidualSpread(
        KNeighborsRegressor(1), KNeighborsRegressor(1), cv=folds, floor=1e-9
    ).fit(X, y)
    residuals = np.abs(y - cross_val_predict(KNeighborsRegressor(1), X, y, cv=folds))
    # the nearest neighbour of a row is itself
    np.testing.assert_allclose(model.predict_distribution(X).spread, residuals)
    assert np.all(model.predict(X) == y)  # whose in-sample residuals are zero
    thousand = clone(model).fit(X, 1000 * y)
    # in the unit of y
    np.testing.assert_allclose(thousand.predict_distribution(X).spread, 1000 * residuals, rtol=1e-9)


def test_the_spread_is_positive_even_where_the_spread_model_is_not():
    X, y = rows(200)
    model = ResidualSpread(LinearRegression(), LinearRegression(), floor=0.2).fit(
        X, X[:, 0] + X[:, 1] * np.abs(y)
    )
    far = np.array([[0.0, 50.0], [0.0, -50.0], [50.0, 0.0], [-50.0, 0.0]])
    assert model.spread_estimator_.predict(far).min() < 0
    assert model.predict_distribution(far).spread.min() == model.floor_
    perfect = ResidualSpread(LinearRegression()).fit(X, np.zeros(200))
    assert np.all(perfect.predict_distribution(X).spread > 0)


@pytest.mark.parametrize("routing", [False, True])
def test_groups_stay_together_and_weights_reach_the_models(routing):
    """Copies of a row in one group: grouped folds never see a row's copy, so its residual is not
    zero.
    """
    X, y = rows(40)
    X, y, groups = np.repeat(X, 2, axis=0), np.repeat(y, 2), np.repeat(np.arange(40), 2)
    with sklearn.config_context(enable_metadata_routing=routing):
        model = ResidualSpread(
            KNeighborsRegressor(1), KNeighborsRegressor(1), cv=GroupKFold(5), floor=1e-9
        )
        assert np.all(model.fit(X, y, groups=groups).predict_distribution(X).spread > 1e-6)
        assert np.all(model.set_params(cv=KFold(5, shuffle=True)).fit(X, y).predict(X) == y)
        base = Ridge(alpha=1e-6)
        base = base.set_fit_request(sample_weight=True) if routing else base
        weight = np.repeat([1.0, 0.0], 40)
        weighted = ResidualSpread(base).fit(X, y, sample_weight=weight)
        np.testing.assert_allclose(
            weighted.estimator_.coef_, clone(base).fit(X[:40], y[:40]).coef_, atol=1e-6
        )
        assert weighted.spread_estimator_.coef_.shape == (2,)


def test_few_rows_leave_one_out_and_bad_settings_are_refused():
    X, y = rows(3)
    assert len(ResidualSpread(Ridge(), cv=5).fit(X, y).predict_distribution(X)) == 3
    for bad, message in (
        ({"cv": 1}, "at least 2 folds"),
        ({"floor": 0.0}, "floor must be greater than 0"),
    ):
        with pytest.raises(ValueError, match=message):
            ResidualSpread(Ridge(), **bad).fit(X, y)


def test_folds_do_not_follow_the_order_of_the_rows():
    _, held_out = next(iter(ResidualSpread(random_state=0)._folds(50).split(np.zeros((50, 1)))))
    assert len(held_out) == 10
    assert np.diff(held_out).max() > 1
    other = next(iter(ResidualSpread(random_state=1)._folds(50).split(np.zeros((50, 1)))))[1]
    assert held_out.tolist() != other.tolist()
