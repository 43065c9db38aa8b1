"""A model without the uncertainty that a score needs is told where it can come from."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, QuantileRegressor

import dco
from dco.foundations.errors import IncompatibleScoreError
from dco.models import QuantilePair, ResidualSpread
from dco.scores import AbsoluteResidual, NormalisedResidual, QuantileResidual

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 2))
Y = X[:, 0] + rng.normal(size=120)


class OwnSpread(RegressorMixin, BaseEstimator):
    """Has a spread under a name that nobody else knows."""

    def fit(self, X, y):
        self.model_ = LinearRegression().fit(X, y)
        return self

    def predict(self, X):
        return self.model_.predict(X)

    def predict_std(self, X):
        return np.ones(len(X))


def test_a_model_that_gives_points_is_told_where_spreads_and_quantiles_come_from():
    for scores in (NormalisedResidual(), [AbsoluteResidual(), NormalisedResidual()]):
        with pytest.raises(
            IncompatibleScoreError, match=r"return_std=True.*dco\.PointsWithSpread.*dco\.models\.ResidualSpread"
        ):
            dco.DecoupledRegressor({"own": OwnSpread()}, scores, random_state=0).fit(X, Y)
    with pytest.raises(IncompatibleScoreError, match=r"dco\.models\.QuantilePair") as told:
        dco.DecoupledRegressor(OwnSpread(), QuantileResidual(), random_state=0).fit(X, Y)
    assert "ResidualSpread" not in str(told.value)
    with pytest.raises(IncompatibleScoreError) as told:
        dco.DecoupledClassifier(RandomForestClassifier(5), AbsoluteResidual(), random_state=0).fit(X, Y > 0)
    assert "dco.models" not in str(told.value)


def test_what_the_message_names_works():
    fitted = dco.DecoupledRegressor(ResidualSpread(OwnSpread()), NormalisedResidual(), random_state=0).fit(X, Y)
    assert len(fitted.predict_set(X)) == 120
    pair = QuantilePair(QuantileRegressor(solver="highs"), alpha=0.1)
    assert dco.DecoupledRegressor(pair, QuantileResidual(), random_state=0).fit(X, Y).best_candidate_
