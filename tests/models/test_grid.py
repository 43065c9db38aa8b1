"""dco.grid: hyperparameters as candidates."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Lasso, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from dco.models.grid import grid


def test_every_combination_is_an_unfitted_clone_under_a_readable_name():
    base = RandomForestRegressor(n_estimators=7)
    models = grid(base, max_depth=[4, 8], max_features=["sqrt", 0.5])
    assert list(models) == [
        "RandomForestRegressor(max_depth=4, max_features='sqrt')",
        "RandomForestRegressor(max_depth=4, max_features=0.5)",
        "RandomForestRegressor(max_depth=8, max_features='sqrt')",
        "RandomForestRegressor(max_depth=8, max_features=0.5)",
    ]
    for model, depth in zip(models.values(), (4, 4, 8, 8), strict=True):
        assert model is not base
        assert (model.max_depth, model.n_estimators) == (depth, 7)
        assert not hasattr(model, "estimators_")
    assert base.max_depth is None


def test_parameters_of_a_pipeline_are_named_shortly_and_without_double_underscores():
    models = grid(
        make_pipeline(StandardScaler(), Ridge()), ridge__alpha=np.array([0.1, 1.0]), standardscaler__with_mean=False
    )
    assert list(models) == [
        "Ridge(alpha=0.1, standardscaler.with_mean=False)",
        "Ridge(alpha=1.0, standardscaler.with_mean=False)",
    ]
    assert [model.named_steps["ridge"].alpha for model in models.values()] == [0.1, 1.0]


def test_steps_can_be_exchanged_and_are_cloned():
    scaler = MinMaxScaler()
    pipeline = make_pipeline(StandardScaler(), Ridge())
    models = grid(pipeline, standardscaler=[scaler, "passthrough"], ridge=[Ridge(), Ridge(), Lasso()])
    assert len(models) == 6
    assert not any("__" in name for name in models)
    first = next(iter(models.values()))
    assert isinstance(first.named_steps["standardscaler"], MinMaxScaler)
    assert first.named_steps["standardscaler"] is not scaler


def test_nothing_to_vary_gives_the_model_itself():
    assert list(grid(Ridge())) == ["Ridge"]


def test_a_parameter_without_values_or_without_meaning_is_an_error():
    with pytest.raises(ValueError, match="alpha has no values"):
        grid(Ridge(), alpha=[])
    with pytest.raises(ValueError, match="depth"):
        grid(Ridge(), depth=[1])


@pytest.mark.parametrize("wrong", [None, [Ridge()], Ridge, "Ridge"])
def test_what_is_no_estimator_is_refused(wrong):
    with pytest.raises(ValueError, match="estimator must be a scikit-learn estimator such as"):
        grid(wrong, alpha=[1.0])
