"""One model and one score: nothing is compared, so no row tunes and no model is fitted twice."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import dco

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 2))
Y = X[:, 0] + RNG.normal(size=200)


class Counted(LinearRegression):
    """A line that says on how many rows it was fitted."""

    rows_of_fits: list[int] = []  # noqa: RUF012

    def fit(self, X, y):
        self.rows_of_fits.append(len(y))
        return super().fit(X, y)


def fit(**options):
    settings = {"tune_size": 50, "calibrate_size": 50, "random_state": 0} | options
    score = dco.scores.AbsoluteResidual()
    return dco.DecoupledRegressor(Counted(), score, **settings).fit(X, Y)


@pytest.mark.parametrize(
    ("options", "n_rows"),
    [({}, 150), ({"refit": False}, 100), ({"tune_size": None, "tune_folds": 5}, 150)],
    ids=["refit", "no refit", "folds"],
)
def test_the_model_is_fitted_once(options, n_rows):
    Counted.rows_of_fits.clear()
    fit(**options)
    assert Counted.rows_of_fits == [n_rows]


def test_nothing_is_ranked_and_nothing_is_said_to_be_chosen():
    est = fit()
    assert est.ranking_.table == ()
    assert est.best_candidate_ == "counted / AbsoluteResidual"
    assert "the only candidate" in str(est.certificate_)
    assert "chosen out of" not in str(est.certificate_)


def test_a_search_over_one_candidate_is_a_trial():
    est = fit(search=dco.search.Random(1, random_state=0))
    assert len(est.ranking_.table) == 1


def test_a_model_that_fails_says_so_itself():
    class Failing(LinearRegression):
        def fit(self, X, y):
            raise RuntimeError("no fit here")

    with pytest.raises(RuntimeError, match="no fit here"):
        dco.DecoupledRegressor(Failing(), dco.scores.AbsoluteResidual()).fit(X, Y)
