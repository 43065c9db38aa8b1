"""Fits and rows that the tests of the service share. Every seed is fixed."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import dco


def draw_rows(n, *, noise=1.0, seed=1):
    """Draw rows whose target is the first feature and noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + noise * rng.normal(size=n)


def fit_ridge(n=800, *, seed=0, **parameters):
    """Fit a ridge regression with the absolute residual."""
    est = dco.DecoupledRegressor(
        Ridge(), dco.scores.AbsoluteResidual(), random_state=0, **parameters
    )
    return est.fit(*draw_rows(n, seed=seed))


@pytest.fixture(scope="module")
def est():
    return fit_ridge()
