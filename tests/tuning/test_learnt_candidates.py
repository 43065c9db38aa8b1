"""Candidates that learn on the tuning rows: weighted averages of models, and spreads."""

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.tree import DecisionTreeRegressor

import dco

Rows = tuple[np.ndarray, np.ndarray]


@pytest.fixture(autouse=True)
def _ignore_notes() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def rows_with_uneven_noise(n: int, *, seed: int = 0) -> Rows:
    """A line whose noise depends on the second column, which the line does not."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3))
    y = 3 * X[:, 0] + (0.1 + 2 * (X[:, 1] > 0)) * rng.normal(size=n)
    return X, y


def line_plus_step(n: int, *, seed: int = 0) -> Rows:
    """Half of the target is linear, which suits one model, and half is a step, for another."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    y = 5 * X[:, 0] + 5 * np.sign(X[:, 1]) + 0.3 * rng.normal(size=n)
    return X, y


class FirstColumn(LinearRegression):
    """A line through the first column alone."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> "FirstColumn":
        return super().fit(X[:, :1], y)

    def predict(self, X: np.ndarray) -> np.ndarray:
        return super().predict(X[:, :1])


def candidate_names(est: dco.DecoupledRegressor) -> list[str]:
    return [row.name for row in est.ranking_.table]


def test_a_spread_is_learnt_where_noise_depends_on_a_column() -> None:
    X, y = rows_with_uneven_noise(2000)
    X_new, y_new = rows_with_uneven_noise(1000, seed=1)

    est = dco.DecoupledRegressor(Ridge(), random_state=0).fit(X, y)
    plain = dco.DecoupledRegressor(Ridge(), dco.scores.AbsoluteResidual(), random_state=0).fit(X, y)

    assert est.best_candidate_.startswith("ridge with spread")
    assert est.evaluate(X_new, y_new).mean_size < 0.8 * plain.evaluate(X_new, y_new).mean_size


def test_coverage_with_a_learnt_spread_follows_its_beta_binomial_law() -> None:
    """Over 60 fits the mean coverage is within 4 standard errors of k / (n + 1)."""
    coverages = []
    for seed in range(60):
        X, y = rows_with_uneven_noise(520, seed=seed)
        est = dco.DecoupledRegressor(
            Ridge(), tune_size=200, calibrate_size=119, random_state=seed
        ).fit(X[:420], y[:420])
        coverages.append(est.predict_set(X[420:]).contains(y[420:]).mean())

    expected = dco.conformal_rank(119, alpha=0.1) / 120
    standard_error = np.std(coverages) / np.sqrt(len(coverages))
    assert abs(np.mean(coverages) - expected) < 4 * standard_error


def test_a_spread_stays_as_it_was_learnt_when_the_winner_is_refitted() -> None:
    X, y = rows_with_uneven_noise(1000)

    refitted = dco.DecoupledRegressor(Ridge(), random_state=0).fit(X, y)
    as_ranked = dco.DecoupledRegressor(Ridge(), refit=False, random_state=0).fit(X, y)

    spread = refitted.predictor_.structure.model.spread
    spread_as_ranked = as_ranked.predictor_.structure.model.spread
    np.testing.assert_array_equal(spread.predict(X), spread_as_ranked.predict(X))


class RidgeOfSinglePrecision(Ridge):
    """A model whose predictions depend a little on how many rows come at once."""

    def predict(self, X: np.ndarray) -> np.ndarray:
        return super().predict(X) * (1 + 1e-6 * (len(X) % 7))


def test_a_learnt_spread_does_not_magnify_what_batches_change() -> None:
    X, y = rows_with_uneven_noise(1500)

    est = dco.DecoupledRegressor(RidgeOfSinglePrecision(), random_state=0).fit(X, y)

    assert "with spread" in est.best_candidate_


def test_few_tuning_rows_learn_no_spread() -> None:
    X, y = rows_with_uneven_noise(300)

    est = dco.DecoupledRegressor(Ridge(), tune_size=99, random_state=0).fit(X, y)

    assert not any("with spread" in name for name in candidate_names(est))


def test_scores_of_the_caller_bring_no_spread() -> None:
    X, y = rows_with_uneven_noise(800)
    scores = [dco.scores.AbsoluteResidual(), dco.scores.NormalisedResidual()]

    est = dco.DecoupledRegressor(
        dco.models.ResidualSpread(Ridge(), Ridge()), scores, random_state=0
    ).fit(X, y)

    assert not any("with spread" in name for name in candidate_names(est))


@pytest.mark.parametrize("tune_folds", [None, 3], ids=["tuning rows", "folds"])
def test_a_weighted_average_joins_models_that_know_different_things(
    tune_folds: int | None,
) -> None:
    X, y = line_plus_step(1500)
    models = {"line": FirstColumn(), "step": DecisionTreeRegressor(max_depth=1)}

    est = dco.DecoupledRegressor(
        ["default", models], tune_folds=tune_folds, effort="quick", random_state=0
    ).fit(X, y)

    assert "stack" in {name.split(" / ")[0] for name in candidate_names(est)}


def test_models_that_are_made_of_others_are_not_fitted_again() -> None:
    X, y = line_plus_step(600)
    n_fits = 0

    class CountingRidge(Ridge):
        def fit(self, X: np.ndarray, y: np.ndarray) -> "CountingRidge":
            nonlocal n_fits
            n_fits += 1
            return super().fit(X, y)

    est = dco.DecoupledRegressor(
        ["default", {"mine": CountingRidge()}], refit=False, effort="quick", random_state=0
    ).fit(X, y)

    assert any("mine" in name for name in candidate_names(est))
    assert n_fits == 1


def test_a_winner_with_a_spread_comes_back_from_its_file(tmp_path: object) -> None:
    X, y = rows_with_uneven_noise(800)
    est = dco.DecoupledRegressor(Ridge(), random_state=0).fit(X, y)
    path = f"{tmp_path}/model.dco"

    dco.save(est, path)
    loaded = dco.load(path)

    assert est.best_candidate_.startswith("ridge with spread")
    np.testing.assert_array_equal(loaded.predict_set(X).sizes(), est.predict_set(X).sizes())
