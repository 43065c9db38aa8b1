"""scikit-learn's contract: parameters, frames, fit parameters, routing, seeds."""

import warnings

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from estimator_examples import FailingClassifier, X, class_rows, logistic, regression_rows, ridge, y
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import FitFailedWarning, NotFittedError, UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import dco
from dco.models import QuantilePair, ResidualSpread
from dco.models.averaged import AveragedModel
from dco.scores import APS, AbsoluteResidual

CONTRACT = [dco.DecoupledClassifier(LogisticRegression()), dco.DecoupledRegressor(Ridge())]


def coloured(n: int, seed: int, colours: str = "rgb") -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"size": rng.normal(size=n), "colour": pd.Categorical(rng.choice(list(colours), size=n))}
    )


class Plain:
    """Not derived from scikit-learn: no tags, no parameters."""

    def predict(self, X):
        return X[:, 0]


class Nameless(RegressorMixin, BaseEstimator):
    """Least squares by position: it checks neither names nor the number of columns."""

    def fit(self, X, y):
        self.weights_ = np.linalg.lstsq(np.asarray(X), y)[0]
        return self

    def predict(self, X):
        return np.asarray(X) @ self.weights_


class ListedClasses(ClassifierMixin, BaseEstimator):
    """A model that keeps its classes in a list, as models from outside scikit-learn do."""

    def fit(self, X, y):
        self.inner_ = LogisticRegression().fit(X, y)
        self.classes_ = self.inner_.classes_.tolist()
        return self

    def predict_proba(self, X):
        return self.inner_.predict_proba(X)

    def predict(self, X):
        return self.inner_.predict(X)


@parametrize_with_checks(CONTRACT)
def test_the_contract_of_scikit_learn(estimator, check) -> None:
    with warnings.catch_warnings():
        # tiny data: too few calibration rows, which is said by a warning
        warnings.simplefilter("ignore")
        check(estimator)


def test_it_works_inside_cross_validation_and_grid_search() -> None:
    est = ridge()

    def narrowness(est, X, y):
        return -est.predict_set(X).sizes().mean()

    found = cross_validate(est, X, y, cv=3, scoring=narrowness)
    assert np.all(found["test_score"] < 0)
    search = GridSearchCV(est, {"models__alpha": [0.1, 10000.0]}, cv=2, scoring=narrowness).fit(
        X, y
    )
    assert search.best_params_["models__alpha"] == 0.1
    assert 0.8 < make_pipeline(StandardScaler(), est).fit(X, y).score(X, y) <= 1.0


def test_evaluate_takes_targets_as_fit_does() -> None:
    est = ridge().fit(X[:200], y[:200])
    expected = est.evaluate(X[200:], y[200:]).coverage
    for targets in (pd.Series(y[200:]), pl.Series(y[200:]), y[200:].tolist()):
        assert est.evaluate(X[200:], targets).coverage == expected


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_frames_with_categories_reach_the_models_untouched(make) -> None:
    rng = np.random.default_rng(0)
    seen: list[type] = []

    class Peek(RegressorMixin, BaseEstimator):
        def fit(self, X, y):
            seen.append(type(X))
            assert list(X.columns) == ["kind", "x"]
            self.inner_ = make_pipeline(
                make_column_transformer(
                    (OneHotEncoder(handle_unknown="ignore"), ["kind"]), remainder="passthrough"
                ),
                Ridge(),
            ).fit(X, y)
            return self

        def predict(self, X):
            seen.append(type(X))
            return self.inner_.predict(X)

    kind = rng.choice(["a", "b"], size=200)
    x = rng.normal(size=200)
    frame = make({"kind": kind, "x": x})
    if make is pd.DataFrame:
        frame["kind"] = frame["kind"].astype("category")
    y = (kind == "b") * 5.0 + x + 0.1 * rng.normal(size=200)
    est = dco.DecoupledRegressor(Peek(), random_state=0).fit(frame, y)
    assert set(seen) == {type(frame)}
    assert est.predict_set(frame).sizes().max() < 1.0
    assert list(est.feature_names_in_) == ["kind", "x"]
    with pytest.raises(ValueError, match="feature names"):
        est.predict_set(make({"kind": kind, "z": x}))


def test_sample_weights_reach_the_models_and_not_the_calibration() -> None:
    X, y = regression_rows(200)
    weights = np.where(np.arange(200) < 100, 0.0, 1.0)
    est = dco.DecoupledRegressor(Ridge(alpha=1e-9), random_state=0).fit(X, y, sample_weight=weights)
    rows = np.concatenate([est.splits_.train, est.splits_.tune])
    by_hand = Ridge(alpha=1e-9).fit(X[rows], y[rows], sample_weight=weights[rows])
    np.testing.assert_allclose(est.predict(X), by_hand.predict(X))
    assert est.certificate_.thresholds[0].n == est.splits_.calibrate.size
    inside = dco.DecoupledRegressor(make_pipeline(StandardScaler(), Ridge()), random_state=0).fit(
        X, y, sample_weight=weights
    )
    assert inside.certificate_.guarantee == "marginal"
    # no fit parameter, which it would not take
    dco.DecoupledRegressor(KNeighborsRegressor()).fit(X, y, sample_weight=None)


def test_weights_must_be_given_for_tuning_rows_too_when_the_winner_is_refitted() -> None:
    parts = {"tune": (X[100:200], y[100:200]), "calibrate": (X[200:], y[200:])}
    with pytest.raises(ValueError, match="refit=False"):
        dco.DecoupledRegressor(Ridge()).fit(X[:100], y[:100], **parts, sample_weight=np.ones(100))
    parts["tune"] = (X[100:200], y[100:200], {"sample_weight": np.ones(100)})
    est = dco.DecoupledRegressor(Ridge()).fit(X[:100], y[:100], **parts, sample_weight=np.ones(100))
    assert est.certificate_.provenance.rows == {"train": 100, "tune": 100, "calibrate": 100}


def test_results_depend_neither_on_the_number_of_jobs_nor_on_a_cluster() -> None:
    from distributed import Client, LocalCluster

    X, y = class_rows()
    models = [LogisticRegression(), RandomForestClassifier(10)]
    one = dco.DecoupledClassifier(models, random_state=3).fit(X, y)
    two = dco.DecoupledClassifier(models, random_state=3, n_jobs=2).fit(X, y)
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        far = dco.DecoupledClassifier(models, random_state=3).fit(X, y)
    for other in (two, far):
        assert one.certificate_.thresholds == other.certificate_.thresholds
        assert one.ranking_.table == other.ranking_.table


def test_the_seed_on_the_certificate_repeats_the_fit() -> None:
    """Also where none was given, and for models that draw at random."""
    X, y = regression_rows(200)
    first = dco.DecoupledRegressor(RandomForestRegressor(5)).fit(X, y)
    again = dco.DecoupledRegressor(
        RandomForestRegressor(5), random_state=first.certificate_.structure.seed
    ).fit(X, y)
    np.testing.assert_array_equal(first.predict(X), again.predict(X))
    assert (
        first.certificate_.structure.structure_fingerprint
        == again.certificate_.structure.structure_fingerprint
    )
    np.random.seed(1)  # noqa: NPY002
    other = dco.DecoupledRegressor(RandomForestRegressor(5)).fit(X, y)
    assert not np.array_equal(first.predict(X), other.predict(X))


def test_categories_stay_categories_when_tuning_rows_lack_some() -> None:
    model = HistGradientBoostingRegressor(max_iter=3, categorical_features="from_dtype")
    rows = [
        (coloured(n, seed, colours), np.arange(float(n)))
        for n, seed, colours in ((90, 0, "rgb"), (40, 1, "gb"))
    ]
    est = dco.DecoupledRegressor(model, random_state=0)
    est.fit(*rows[0], tune=rows[1], calibrate=(coloured(50, 2), np.arange(50.0)))
    assert est.predictor_.structure.model.is_categorical_.tolist() == [False, True]


def test_an_average_hands_fit_parameters_to_each_member_under_its_own_name() -> None:
    weights = np.r_[np.zeros(150), np.ones(150)]
    members = [make_pipeline(StandardScaler(), LinearRegression()), LinearRegression()]
    est = dco.DecoupledRegressor(AveragedModel(members), random_state=0).fit(
        X, y, sample_weight=weights
    )
    rows = np.r_[est.splits_.train, est.splits_.tune]
    rows = rows[weights[rows] > 0]
    alone = [clone(member).fit(X[rows], y[rows]) for member in members]
    np.testing.assert_allclose(
        est.predict(X), np.mean([member.predict(X) for member in alone], axis=0)
    )


def test_metadata_that_no_model_has_asked_for_is_an_error() -> None:
    weights = np.linspace(0, 1, 300)
    models = {"ridge": Ridge(), "neighbours": KNeighborsRegressor()}
    with config_context(enable_metadata_routing=True):
        with pytest.raises(UnsetMetadataPassedError, match=r"Ridge\.fit"):
            dco.DecoupledRegressor(models, random_state=0).fit(X, y, sample_weight=weights)
        with pytest.raises(TypeError, match="unexpected"):
            dco.DecoupledRegressor(models, random_state=0).fit(X, y, colour=weights)
        asked = dco.DecoupledRegressor(Ridge().set_fit_request(sample_weight=True), random_state=0)
        declined = dco.DecoupledRegressor(
            Ridge().set_fit_request(sample_weight=False), random_state=0
        )
        weighted = asked.fit(X, y, sample_weight=weights).predict(X)
        assert not np.allclose(weighted, declined.fit(X, y).predict(X))
        found = cross_validate(
            asked.set_score_request(sample_weight=False),
            X,
            y,
            params={"sample_weight": weights},
            error_score="raise",
        )
        assert np.all(found["test_score"] > 0.5)


def test_missing_values_in_an_array_reach_the_models_that_can_take_them() -> None:
    X, y = regression_rows(300)
    X[::7, 1] = np.nan
    columns = make_column_transformer((SimpleImputer(), [0, 1, 2, 3]))
    models = {
        "imputed": make_pipeline(SimpleImputer(), Ridge()),
        "columns": make_pipeline(columns, Ridge(10.0)),
        "trees": HistGradientBoostingRegressor(max_iter=5),
        "plain": Ridge(),
    }
    est = dco.DecoupledRegressor(models, AbsoluteResidual(), random_state=0)
    with pytest.warns(
        FitFailedWarning,
        match=r"1 failed .*: plain \(ValueError: Input X contains "
        r"NaN\.",
    ):
        est.fit(X, y)
    assert est.best_candidate_.startswith(("imputed", "columns"))
    assert list(est.certificate_.structure.failed_candidates) == ["plain / AbsoluteResidual"]
    assert len(est.predict_set(X)) == 300
    with pytest.raises(ValueError, match="contains NaN"):
        dco.DecoupledRegressor(Ridge()).fit(X, y)
    X[0, 0] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        est.predict_set(X)


def test_a_regressor_is_no_classifier_and_the_reverse() -> None:
    X, y = class_rows(200)
    with pytest.raises(dco.IncompatibleScoreError, match=r"'ridge' gives Points.*labels"):
        dco.DecoupledClassifier([LogisticRegression(), Ridge()]).fit(X, y)
    with pytest.raises(dco.IncompatibleScoreError, match=r"gives ClassProbabilities.*numbers"):
        dco.DecoupledRegressor(LogisticRegression()).fit(X, y.astype(float))


def test_a_class_of_ones_own_is_used_frozen_and_told_how() -> None:
    with pytest.raises(TypeError, match=r"'plain' has no get_params.*FrozenEstimator\(model\)"):
        dco.DecoupledRegressor(Plain(), random_state=0).fit(X, y)
    est = dco.DecoupledRegressor(FrozenEstimator(Plain()), random_state=0).fit(X, y)
    np.testing.assert_array_equal(est.predict(X), X[:, 0])


def test_text_in_an_array_is_seen_in_any_row() -> None:
    """A first row without text once made numbers of the others, at prediction too."""
    towns = np.column_stack(
        [X[:, :1].astype(object), np.where(X[:, 1] > 0, "1", "2").astype(object)]
    )
    model = make_pipeline(
        make_column_transformer((OneHotEncoder(), [1]), remainder="passthrough"), Ridge()
    )
    est = dco.DecoupledRegressor(model, random_state=0).fit(towns, y)
    towns[0, 1] = None
    told = est.set_params(
        models=model.set_params(columntransformer__onehotencoder__handle_unknown="ignore")
    ).fit(towns, y)
    np.testing.assert_allclose(told.predict(towns)[1:], told.predict(towns[1:]))


def test_a_fit_that_fails_changes_nothing() -> None:
    """Swapped columns of a refused fit were once taken by the predictor of the earlier one:
    coverage 0.29 at level 0.9.
    """
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(800, 2)), columns=["a", "b"])
    y = 10 * X["a"].to_numpy() + rng.normal(size=800)
    est = dco.DecoupledRegressor([Nameless(), Nameless()], random_state=0).fit(X[:400], y[:400])
    before, sets = dict(vars(est)), est.predict_set(X[400:])
    swapped = X[["b", "a"]]
    failing = [
        (swapped[:400], y[:399], {}, "400 rows and y has 399"),
        (X[:400].to_numpy()[:, :1], y[:400], {"tune": (X[400:].to_numpy(), y[400:])}, "2 features"),
        # no model takes weights
        (swapped[:400], y[:400], {"sample_weight": y[:400]}, "Every candidate failed"),
    ]
    for rows, target, params, match in failing:
        with pytest.raises(ValueError, match=match):
            est.fit(rows, target, **params)
        assert vars(est) == before
        with pytest.raises(ValueError, match="feature names"):
            est.predict_set(swapped[400:])
        np.testing.assert_array_equal(est.predict_set(X[400:]).lower, sets.lower)
    assert est.evaluate(X[400:], y[400:]).coverage > 0.8
    never = dco.DecoupledClassifier([FailingClassifier(), FailingClassifier()])
    with pytest.raises(ValueError, match="Every candidate failed"):
        never.fit(*class_rows())
    with pytest.raises(NotFittedError):
        never.predict(X)


@pytest.mark.parametrize("model", [ResidualSpread(cv=2), QuantilePair()])
def test_the_seed_repeats_the_fit_of_models_with_default_parts(model) -> None:
    """Boosting holds out rows at random where there are more than 10,000."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(21_000, 1)), rng.normal(size=21_000)
    found = [
        dco.DecoupledRegressor(model, refit=False, random_state=0).fit(X, y).predict_set(X).lower
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*found)


def test_the_seed_repeats_folds_that_are_shuffled_inside_a_model() -> None:
    X, y = regression_rows(120)
    search = GridSearchCV(
        KNeighborsRegressor(), {"n_neighbors": range(1, 30)}, cv=KFold(3, shuffle=True)
    )
    found = [
        dco.DecoupledRegressor(search, random_state=0).fit(X, y).predictor_.structure.model
        for _ in range(2)
    ]
    for score in ("mean_test_score", "std_test_score"):
        np.testing.assert_array_equal(*(model.cv_results_[score] for model in found))
    assert search.cv.random_state is None  # the caller's own is left alone


def test_workers_have_the_configuration_of_scikit_learn() -> None:
    """Without it, a worker handed weights to a model that had declined them."""
    declines, asks = (Ridge(alpha).set_fit_request for alpha in (1.0, 50.0))
    with config_context(enable_metadata_routing=True):
        models = {"declines": declines(sample_weight=False), "asks": asks(sample_weight=True)}
        one, two = (
            dco.DecoupledRegressor(models, n_jobs=n_jobs, random_state=0).fit(
                X, y, sample_weight=np.arange(1.0, 301.0) ** 3
            )
            for n_jobs in (None, 2)
        )
    assert one.ranking_ == two.ranking_


def test_classes_may_be_a_list() -> None:
    X, y = class_rows()
    named = np.array(["a", "b", "c"])[y]
    for labels in (y, named):
        listed = dco.DecoupledClassifier(ListedClasses(), random_state=0).fit(X, labels)
        plain = logistic().fit(X, labels)
        assert listed.predict_set(X).to_lists() == plain.predict_set(X).to_lists()
        np.testing.assert_array_equal(listed.predict_proba(X), plain.predict_proba(X))
    frozen = FrozenEstimator(ListedClasses().fit(X, named))
    with pytest.raises(ValueError, match="Labels must be of one kind"):
        dco.DecoupledClassifier(frozen, random_state=0).fit(X, y)


@pytest.mark.parametrize(
    ("scores", "found"), [("lac", {"LAC"}), (["TopK", APS()], {"TopK", "APS"})]
)
def test_scores_can_be_named_as_on_the_command_line(scores, found) -> None:
    X, y = class_rows()
    models = [LogisticRegression(), LogisticRegression(C=0.1)]
    est = dco.DecoupledClassifier(models, scores, random_state=0).fit(X, y)
    assert {row.name.split(" / ")[1].partition("(")[0] for row in est.ranking_.table} == found
    with pytest.raises(
        ValueError,
        match=r"scores takes short names \(.*lac.*absolute.* got "
        r"'lack'",
    ):
        dco.DecoupledClassifier(LogisticRegression(), "lack").fit(X, y)
