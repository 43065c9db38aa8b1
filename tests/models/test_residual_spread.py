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
from dco.models import ResidualSpread


def make_rows(n, seed=0):
    """y = x1 + |x2| e, e standard normal: the expected absolute error of the true mean is
    |x2| sqrt(2 / pi).
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    y = X[:, 0] + np.abs(X[:, 1]) * rng.normal(size=n)
    return X, y


def spread_of(model, X):
    return model.predict_distribution(X).spread


@parametrize_with_checks(
    [
        ResidualSpread(HistGradientBoostingRegressor(max_iter=10)),
        ResidualSpread(Ridge(), KNeighborsRegressor(3), cv=3),
    ]
)
def test_is_a_scikit_learn_estimator(estimator, check):
    check(estimator)


# --- the spread -----------------------------------------------------------------------------------


def test_the_spread_is_the_expected_absolute_residual():
    trees = HistGradientBoostingRegressor(max_leaf_nodes=6, max_iter=50)
    model = ResidualSpread(LinearRegression(), trees).fit(*make_rows(4000))
    x2 = np.array([0.2, 0.4, 0.6, 0.8, 0.95])
    spread = spread_of(model, np.column_stack([np.zeros(5), x2]))
    np.testing.assert_allclose(spread, x2 * np.sqrt(2 / np.pi), atol=0.1)


def test_it_predicts_points_with_their_spread():
    X, y = make_rows(100)
    model = ResidualSpread(LinearRegression()).fit(X, y)
    record = model.predict_distribution(X)
    assert isinstance(record, dco.PointsWithSpread)
    np.testing.assert_array_equal(record.mean, model.predict(X))


@pytest.fixture
def rows_with_outliers():
    """Rows of which one in a hundred is a thousand times larger."""
    X, y = make_rows(4000)
    return X, np.where(np.arange(4000) % 100 == 0, 1000 * y, y)


@pytest.mark.parametrize(
    ("logs", "is_proportional"), [(True, True), (False, False)], ids=["logs", "residuals"]
)
def test_logs_of_residuals_are_not_ruled_by_a_few_large_ones(
    rows_with_outliers, logs, is_proportional
):
    """The typical residual stays in proportion to |x2|."""
    trees = HistGradientBoostingRegressor(max_leaf_nodes=6, max_iter=50, random_state=0)
    model = ResidualSpread(HuberRegressor(), trees, floor=1e-3, logs=logs)
    x2 = np.array([0.2, 0.4, 0.6, 0.8])
    spread = spread_of(model.fit(*rows_with_outliers), np.column_stack([np.zeros(4), x2]))

    largest_deviation = np.abs(spread / spread.mean() - x2 / x2.mean()).max()

    if is_proportional:
        assert largest_deviation < 0.35
    else:
        assert largest_deviation > 0.5


def test_logs_do_not_overflow_far_outside(rows_with_outliers):
    model = ResidualSpread(LinearRegression(), LinearRegression(), logs=True)
    assert np.isfinite(spread_of(model.fit(*rows_with_outliers), [[1e6, 1e6]])).all()


def test_the_spread_is_positive_even_where_the_spread_model_is_not():
    X, y = make_rows(200)
    model = ResidualSpread(LinearRegression(), LinearRegression(), floor=0.2)
    model.fit(X, X[:, 0] + X[:, 1] * np.abs(y))
    far = np.array([[0.0, 50.0], [0.0, -50.0], [50.0, 0.0], [-50.0, 0.0]])
    assert model.spread_estimator_.predict(far).min() < 0
    assert spread_of(model, far).min() == model.floor_


def test_the_spread_is_positive_where_the_model_is_perfect():
    X, _ = make_rows(200)
    model = ResidualSpread(LinearRegression()).fit(X, np.zeros(200))
    assert np.all(spread_of(model, X) > 0)


# --- the folds ------------------------------------------------------------------------------------


@pytest.fixture
def nearest():
    """A model whose nearest neighbour of a row that it was fitted on is the row itself."""
    folds = KFold(4, shuffle=True, random_state=3)
    return ResidualSpread(KNeighborsRegressor(1), KNeighborsRegressor(1), cv=folds, floor=1e-9)


def test_residuals_are_those_of_the_folds(nearest):
    """Those of the fitted rows are zero."""
    X, y = make_rows(60)
    nearest.fit(X, y)
    predictions = cross_val_predict(KNeighborsRegressor(1), X, y, cv=nearest.cv)
    np.testing.assert_allclose(spread_of(nearest, X), np.abs(y - predictions))
    np.testing.assert_array_equal(nearest.predict(X), y)


def test_the_floor_is_in_the_unit_of_y(nearest):
    X, y = make_rows(60)
    spread = spread_of(nearest.fit(X, y), X)
    in_thousandths = spread_of(clone(nearest).fit(X, 1000 * y), X)
    np.testing.assert_allclose(in_thousandths, 1000 * spread, rtol=1e-9)


def test_three_rows_are_left_out_one_by_one():
    X, y = make_rows(3)
    assert len(spread_of(ResidualSpread(Ridge(), cv=5).fit(X, y), X)) == 3


def test_default_folds_do_not_follow_the_order_of_the_rows():
    """y has five steps of 20 rows: folds of whole steps hold out all rows of the same y, shuffled
    ones leave a neighbour of the same y.
    """
    X = np.arange(100.0)[:, None]
    y = np.repeat(np.arange(5.0), 20)
    nearest = KNeighborsRegressor(1)
    model = ResidualSpread(nearest, nearest, floor=1e-9, random_state=0).fit(X, y)
    in_order = ResidualSpread(nearest, nearest, floor=1e-9, cv=KFold(5)).fit(X, y)
    assert spread_of(model, X).mean() < 0.1
    assert spread_of(in_order, X).min() == 1


def test_default_folds_follow_the_seed():
    X, y = make_rows(50)
    nearest = KNeighborsRegressor(1)
    spreads = [
        spread_of(ResidualSpread(nearest, nearest, random_state=seed).fit(X, y), X)
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(spreads[0], spreads[1])
    assert not np.array_equal(spreads[0], spreads[2])


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"cv": 1}, "at least 2 folds"), ({"floor": 0.0}, "floor must be greater than 0")],
    ids=["one fold", "no floor"],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ResidualSpread(Ridge(), **settings).fit(*make_rows(3))


# --- groups and weights ---------------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["no routing", "routing"])
def routing(request):
    """scikit-learn routes metadata by request, or does not."""
    with sklearn.config_context(enable_metadata_routing=request.param):
        yield request.param


@pytest.fixture
def twice():
    """40 rows, each of them twice in a row, and the group of each."""
    X, y = make_rows(40)
    return np.repeat(X, 2, axis=0), np.repeat(y, 2), np.repeat(np.arange(40), 2)


@pytest.mark.usefixtures("routing")
def test_groups_stay_together_in_folds(twice):
    """Grouped folds never see a row's copy, so its residual is not zero."""
    X, y, groups = twice
    nearest = KNeighborsRegressor(1)
    model = ResidualSpread(nearest, nearest, cv=GroupKFold(5), floor=1e-9)
    assert np.all(spread_of(model.fit(X, y, groups=groups), X) > 1e-6)


def test_weights_reach_the_models(routing, twice):
    X, y, _ = twice
    ridge = Ridge(alpha=1e-6)
    if routing:
        ridge.set_fit_request(sample_weight=True)
    weighted = ResidualSpread(ridge).fit(X, y, sample_weight=np.repeat([1.0, 0.0], 40))
    expected = clone(ridge).fit(X[:40], y[:40])
    np.testing.assert_allclose(weighted.estimator_.coef_, expected.coef_, atol=1e-6)
    assert weighted.spread_estimator_.coef_.shape == (2,)
