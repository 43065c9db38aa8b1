"""The Gaussian process and the networks among the default models."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor

from dco.models import SmallGaussianProcess, SmallNetworks

Rows = tuple[np.ndarray, np.ndarray]


def rows_of_a_wave(n: int, *, n_columns: int = 3, noise: float = 0.1, seed: int = 0) -> Rows:
    """A sine of the first column plus the second; the other columns do not matter."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_columns))
    y = 100 + 10 * (np.sin(2 * X[:, 0]) + X[:, 1] + noise * rng.normal(size=n))
    return X, y


QUICK_MODELS = [
    pytest.param(SmallGaussianProcess(100, kernel_rows=50, random_state=0), id="process"),
    pytest.param(SmallNetworks(steps=60, random_state=0), id="networks"),
]
MODELS = [
    pytest.param(SmallGaussianProcess(random_state=0), id="process"),
    pytest.param(SmallNetworks(random_state=0), id="networks"),
]


@pytest.mark.parametrize("model", MODELS)
def test_smooth_models_are_closer_to_a_smooth_function_than_trees(model: Any) -> None:
    X, y = rows_of_a_wave(1000)
    X_new, y_new = rows_of_a_wave(500, seed=1)

    smooth = clone(model).fit(X, y).predict(X_new)
    trees = HistGradientBoostingRegressor(random_state=0).fit(X, y).predict(X_new)

    assert np.mean((smooth - y_new) ** 2) < 0.7 * np.mean((trees - y_new) ** 2)


@pytest.mark.parametrize("model", QUICK_MODELS)
def test_predictions_follow_the_units_of_the_target(model: Any) -> None:
    X, y = rows_of_a_wave(200)

    predictions = clone(model).fit(X, y).predict(X)
    in_other_units = clone(model).fit(X, 1024 * y).predict(X)

    np.testing.assert_array_equal(in_other_units, 1024 * predictions)


@pytest.mark.parametrize("model", QUICK_MODELS)
def test_the_same_seed_gives_the_same_model(model: Any) -> None:
    X, y = rows_of_a_wave(400)

    first = clone(model).fit(X, y).predict(X)
    second = clone(model).fit(X, y).predict(X)

    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("model", QUICK_MODELS)
def test_a_constant_target_is_predicted(model: Any) -> None:
    X, _ = rows_of_a_wave(60)

    predictions = clone(model).fit(X, np.full(60, 7.0)).predict(X)

    np.testing.assert_allclose(predictions, 7.0, atol=1.0)


def test_a_process_rests_on_no_more_rows_than_it_is_allowed() -> None:
    X, y = rows_of_a_wave(500)

    model = SmallGaussianProcess(120, kernel_rows=60, random_state=0).fit(X, y)

    assert len(model.process_.X_train_) == 120


def test_many_columns_share_a_length_scale() -> None:
    X, y = rows_of_a_wave(100, n_columns=12)

    model = SmallGaussianProcess(most_length_scales=10, random_state=0).fit(X, y)

    assert np.ndim(model.process_.kernel_.k1.k2.length_scale) == 0


@pytest.mark.parametrize(("n_rows", "epochs"), [(200, 300), (1000, 60)], ids=["few", "many"])
def test_networks_take_the_same_number_of_steps_on_any_table(n_rows: int, epochs: int) -> None:
    X, y = rows_of_a_wave(n_rows)

    model = SmallNetworks(1, steps=300, random_state=0).fit(X, y)

    assert len(model.networks_[0].loss_curve_) == epochs
