"""Candidates: how often models are fitted, frozen ones, searches, folds, and those that fail."""

import re

import numpy as np
import pytest
from estimator_examples import Failing, FailingClassifier, X, class_rows, regression_rows, ridge, y
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
    VotingClassifier,
)
from sklearn.exceptions import FitFailedWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import BayesianRidge, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dco
from dco.models import QuantilePair
from dco.scores import LAC, AbsoluteResidual, NormalisedResidual, QuantileResidual


class Counting(RegressorMixin, BaseEstimator):
    """A model that counts how often it is fitted and asked."""

    fits = 0
    predicts = 0

    def fit(self, X, y):
        type(self).fits += 1
        self.mean_ = float(np.mean(y))
        return self

    def predict(self, X, return_std=False):
        type(self).predicts += 1
        mean = np.full(len(X), self.mean_)
        return (mean, np.ones(len(X))) if return_std else mean


class NanLater(DummyRegressor):
    """Predicts NaN, but only for rows with a large first column."""

    def predict(self, X):
        return np.where(X[:, 0] > 100, np.nan, super().predict(X))


def test_each_model_is_fitted_once_and_predicts_once_for_each_kind_of_record() -> None:
    X, y = regression_rows(200)
    Counting.fits = Counting.predicts = 0
    scores = [NormalisedResidual(), NormalisedResidual(floor=0.5), NormalisedResidual(floor=1.0)]
    est = dco.DecoupledRegressor(Counting(), scores, refit=False, random_state=0).fit(X, y)
    assert est.certificate_.structure.candidates == 3
    assert Counting.fits == 1
    # the tuning rows, the calibration rows, and some of these again in two batches
    assert Counting.predicts == 4


def test_the_papers_winner_is_the_one_that_training_rows_made() -> None:
    X, y = regression_rows(200)
    paper = ridge(refit=False).fit(X, y)
    np.testing.assert_allclose(
        paper.predict(X), Ridge().fit(X[paper.splits_.train], y[paper.splits_.train]).predict(X)
    )
    assert not paper.certificate_.structure.refit


def test_a_fitted_model_is_fitted_again_and_a_frozen_one_is_not() -> None:
    fitted = Ridge().fit(X[:100], y[:100] + 1000.0)
    with pytest.warns(
        UserWarning,
        match="'ridge' is fitted already, and a copy of it is fitted again .*FrozenEstimator",
    ):
        again = dco.DecoupledRegressor(fitted, random_state=0).fit(X[100:], y[100:])
    assert abs(np.mean(again.predict(X) - y)) < 50
    frozen = dco.DecoupledRegressor(FrozenEstimator(fitted), random_state=0).fit(X[100:], y[100:])
    np.testing.assert_allclose(frozen.predict(X), fitted.predict(X))
    assert frozen.certificate_.provenance.rows == {"train": 0, "tune": 100, "calibrate": 100}
    assert frozen.certificate_.training_rows.startswith("not checked")
    assert "frozen model" in frozen.certificate_.assumption
    folded = dco.DecoupledRegressor(FrozenEstimator(fitted), tune_folds=3, random_state=0).fit(
        X[100:], y[100:]
    )
    np.testing.assert_allclose(folded.predict(X), fitted.predict(X))


def test_models_and_scores_that_do_not_meet_are_named() -> None:
    X, y = regression_rows(100)
    with pytest.raises(
        dco.IncompatibleScoreError, match=r"(?s)QuantileResidual.*ridge|ridge.*QuantileResidual"
    ):
        dco.DecoupledRegressor(Ridge(), QuantileResidual()).fit(X, y)
    pair = QuantilePair(HistGradientBoostingRegressor(max_iter=5))
    with pytest.raises(dco.IncompatibleScoreError, match="NormalisedResidual"):
        dco.DecoupledRegressor(
            [pair, Ridge()], [QuantileResidual(), AbsoluteResidual(), NormalisedResidual()]
        ).fit(X, y)


def test_a_search_reaches_the_models_that_it_proposes() -> None:
    X, y = regression_rows(200)
    many = dco.grid(Ridge(), alpha=[0.01, 1.0, 100.0, 10000.0])
    score = AbsoluteResidual()
    all_of_them = dco.DecoupledRegressor(many, score, random_state=0).fit(X, y)
    search = dco.search.Random(2, seed=0)
    some = dco.DecoupledRegressor(many, score, search=search, random_state=0).fit(X, y)
    assert all_of_them.certificate_.structure.candidates == 4
    assert some.certificate_.structure.candidates == 2

    def space(trial):
        return Ridge(alpha=trial.suggest_float("alpha", 1e-3, 1e4, log=True)), AbsoluteResidual()

    optuna = dco.search.Optuna(space, trials=6, seed=0)
    tuned = ridge(search=optuna).fit(X, y)
    again = ridge(search=optuna).fit(X, y)
    assert tuned.certificate_.structure.candidates == 6
    assert tuned.certificate_.thresholds == again.certificate_.thresholds


def test_a_space_may_give_one_model_with_other_parameters_every_time() -> None:
    """``model.set_params(...)`` gives the model itself: the winner once had the parameters of the
    last trial.
    """
    one = make_pipeline(StandardScaler(), Ridge())

    def space(trial):
        return one.set_params(
            ridge__alpha=trial.suggest_float("alpha", 0.1, 1e4, log=True)
        ), AbsoluteResidual()

    def spaced(trial):
        return clone(space(trial)[0]), AbsoluteResidual()

    found, expected = (
        dco.DecoupledRegressor(
            None, search=dco.search.Optuna(own, trials=6, seed=0), random_state=0
        ).fit(X, y)
        for own in (space, spaced)
    )
    assert found.best_candidate_ == expected.best_candidate_
    assert not found.best_candidate_.startswith("trial 5")  # the last one
    np.testing.assert_array_equal(found.predict_set(X).lower, expected.predict_set(X).lower)


def test_a_space_may_change_a_parameter_of_one_model_in_place() -> None:
    """A dict is the same object afterwards: every trial but the first once was a copy of the
    first.
    """
    X, y = class_rows()
    weights = dict.fromkeys(np.unique(y).tolist(), 1.0)
    one = LogisticRegression(class_weight=weights)

    def space(trial):
        weights[0] = trial.suggest_categorical("weight", [1.0, 5.0, 50.0])
        return one, LAC()

    found = dco.DecoupledClassifier(
        None, search=dco.search.Optuna(space, trials=8, seed=0), random_state=0
    ).fit(X, y)
    assert len(found.ranking_.table) == 3


def test_folds_use_every_row_that_is_not_sealed() -> None:
    X, y = regression_rows(200)
    est = dco.DecoupledRegressor(
        [Ridge(), KNeighborsRegressor()], tune_folds=5, random_state=0
    ).fit(X, y)
    assert est.certificate_.provenance.rows == {"train": 150, "tune": 0, "calibrate": 50}
    assert est.ranking_.n == 150
    with pytest.raises(ValueError, match="refit"):
        dco.DecoupledRegressor(Ridge(), tune_folds=5, refit=False).fit(X, y)


@pytest.mark.parametrize(
    ("bad", "params", "reason"),
    [
        (Failing(), {}, "RuntimeError: no luck today"),
        # which it does not take
        (KNeighborsRegressor(), {"sample_weight": np.ones(200)}, ".*'sample_weight'"),
    ],
)
def test_a_failed_candidate_is_reported_and_left_out(bad, params, reason) -> None:
    X, y = regression_rows(200)
    models = {"ok": BayesianRidge(), "bad": bad}
    est = dco.DecoupledRegressor(models, AbsoluteResidual(), random_state=0)
    with pytest.warns(FitFailedWarning, match=rf"1 failed .*: bad \({reason}\)\.") as told:
        est.fit(X, y, **params)
    assert [warning.filename for warning in told] == [__file__]
    failed = {entry.name: entry.reason for entry in est.ranking_.failed}
    assert list(failed) == ["bad / AbsoluteResidual"]
    assert re.fullmatch(reason, failed["bad / AbsoluteResidual"])
    assert est.certificate_.structure.failed_candidates == failed
    assert "bad" in str(est.ranking_)


def test_the_reason_of_a_model_is_given_once_however_many_scores_it_has() -> None:
    X, y = class_rows(200)
    with pytest.raises(ValueError, match="no luck") as told:
        dco.DecoupledClassifier({"a": FailingClassifier(), "b": FailingClassifier()}).fit(X, y)
    assert str(told.value).count("no luck") == 2
    est = dco.DecoupledClassifier(
        {"a": FailingClassifier(), "b": LogisticRegression()}, random_state=0
    )
    with pytest.warns(FitFailedWarning, match="1 failed") as warned:
        est.fit(X, y)
    assert str(warned[0].message).count("no luck") == 1
    assert len(est.ranking_.failed) == len(est.certificate_.structure.failed_candidates) > 5


def test_a_winner_that_gives_nan_on_a_calibration_row_is_an_error_and_no_row_is_dropped() -> None:
    X, y = regression_rows(300)
    X[250, 0] = 1000.0
    with pytest.raises(ValueError, match="NanLater"):
        dco.DecoupledRegressor(NanLater()).fit(
            X[:100], y[:100], tune=(X[100:200], y[100:200]), calibrate=(X[200:], y[200:])
        )


@pytest.mark.parametrize("n", [40, 200, 600])
def test_a_model_that_compares_the_rows_of_a_batch_is_caught(n: int) -> None:
    class Centred(RegressorMixin, BaseEstimator):
        def fit(self, X, y):
            self.n_features_in_ = X.shape[1]
            return self

        def predict(self, X):
            return X[:, 0] - X[:, 0].mean()

    X, _ = regression_rows(n)
    with pytest.raises(dco.SealBrokenError, match="compares rows"):
        dco.DecoupledRegressor(Centred(), random_state=0).fit(X, X[:, 0] + X[:, 1])


@pytest.mark.parametrize(
    ("moved", "refused"), [(np.finfo(np.float32).eps, False), (1e-4, False), (1e-2, True)]
)
def test_rounding_in_single_precision_is_no_change_of_scores(moved: float, refused: bool) -> None:
    """A prediction may round otherwise in a batch of another size; next to a tiny residual that is
    no small change.
    """

    class SinglePrecision(RegressorMixin, BaseEstimator):
        def fit(self, X, y):
            self.n_features_in_ = X.shape[1]
            return self

        def predict(self, X):
            return (X[:, 0] * (1 + (moved if len(X) > 300 else 0.0))).astype(np.float32)

    X, _ = regression_rows(2000)
    X[:, 0] = 10 + 0.1 * X[:, 0]
    y = X[:, 0] + np.where(
        np.arange(2000) % 4 == 0, 1e-6, np.random.default_rng(0).normal(size=2000)
    )
    est = dco.DecoupledRegressor(SinglePrecision(), random_state=0)
    if refused:
        with pytest.raises(dco.SealBrokenError, match="scored again"):
            est.fit(X, y)
    else:
        assert est.fit(X, y).certificate_.guarantee == "marginal"


def test_constant_scores_are_valid_and_said_to_be_tied() -> None:
    X, _ = regression_rows(200)
    est = ridge().fit(X, np.zeros(200))
    entry = est.certificate_.thresholds[0]
    assert not entry.expected_is_exact
    assert entry.coverage_high is None
    assert est.predict_set(X).contains(np.zeros(200)).all()


def test_a_missing_value_that_only_calibration_rows_have_is_an_error_that_says_what_to_do() -> None:
    """The choice may not depend on calibration rows, so a winner that cannot take them stops the
    fit.
    """
    X, y = regression_rows(300)
    X[250, 1] = np.nan
    est = dco.DecoupledRegressor(
        {"ridge": Ridge(), "trees": HistGradientBoostingRegressor(max_iter=2)}, random_state=0
    )
    with pytest.raises(
        ValueError,
        match=r"(?s)ridge / Abs.* calibration rows .*NaN.*no other "
        r"candidate.*imputer",
    ):
        est.fit(X[:200], y[:200], calibrate=(X[200:], y[200:]))


def test_a_single_candidate_needs_no_tuning_rows() -> None:
    """It is split conformal prediction then: the threshold is that of the rule on the calibration
    rows' scores.
    """
    model = Ridge().fit(X[:100], y[:100])
    est = dco.DecoupledRegressor(
        FrozenEstimator(model), AbsoluteResidual(), tune_size=0, random_state=0
    ).fit(X[100:], y[100:])
    plain = dco.split_conformal(np.abs(y[100:] - model.predict(X[100:])), alpha=0.1)
    assert est.certificate_.thresholds[0].value == plain.value
    assert "the only candidate" in str(est.certificate_)
    assert est.ranking_.table == ()
    assert est.certificate_.verify(X[100:], y[100:], predictor=est).holds
    trained = ridge(AbsoluteResidual(), tune_size=0).fit(X, y)
    assert trained.certificate_.provenance.rows == {"train": 225, "tune": 0, "calibrate": 75}


def test_several_candidates_need_tuning_rows() -> None:
    X, y = class_rows(200)
    with pytest.raises(
        ValueError,
        match=r"No row is left for tuning, but \d+ candidates are "
        r"compared on them",
    ):
        dco.DecoupledClassifier(LogisticRegression(), tune_size=0).fit(X, y)


@pytest.mark.parametrize("folds", [None, 3])
@pytest.mark.parametrize(
    "first", [Ridge(copy_X=False), make_pipeline(StandardScaler(copy=False), BayesianRidge())]
)
def test_a_model_does_not_work_in_rows_that_others_read(first, folds) -> None:
    """One that centres its rows in place once spoilt them for the other model, and for its own
    refit.
    """
    rows = X + 100

    def fitted(own):
        return dco.DecoupledRegressor(
            {"first": own, "other": KNeighborsRegressor()}, tune_folds=folds, random_state=0
        ).fit(rows, y)

    copying = {
        key: True
        for key, value in first.get_params().items()
        if key.rpartition("__")[2] in ("copy", "copy_X")
    }
    found, expected = fitted(first), fitted(clone(first).set_params(**copying))
    assert found.ranking_ == expected.ranking_
    np.testing.assert_array_equal(found.predict_set(rows).lower, expected.predict_set(rows).lower)
    np.testing.assert_array_equal(rows, X + 100)


def test_a_model_that_a_search_proposes_does_not_work_in_rows_that_others_read() -> None:
    rows = X + 100

    def fitted(copy):
        def space(trial):
            listed = (
                Ridge(copy_X=copy),
                make_pipeline(StandardScaler(copy=copy), BayesianRidge()),
                KNeighborsRegressor(),
            )
            return listed[trial.suggest_categorical("model", [0, 1, 2])], AbsoluteResidual()

        return dco.DecoupledRegressor(
            None, search=dco.search.Optuna(space, trials=8, seed=0), random_state=0
        ).fit(rows, y)

    sizes = [
        [(row.name, row.mean_size) for row in fitted(copy).ranking_.table] for copy in (True, False)
    ]
    assert len(sizes[0]) == 3
    assert sizes[0] == sizes[1]


def test_a_frozen_part_of_a_model_has_training_rows_that_nobody_checked() -> None:
    X, y = class_rows()
    frozen = FrozenEstimator(LogisticRegression().fit(X, y))  # on the calibration rows, too
    vote = VotingClassifier([("frozen", frozen), ("own", LogisticRegression())], voting="soft")
    search = dco.search.Optuna(lambda trial: (frozen, LAC()), trials=1, seed=0)
    steps = make_pipeline(StandardScaler(), frozen)
    grid = GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression()),
        {"logisticregression": [frozen]},
        cv=3,
    )
    for model in (frozen, CalibratedClassifierCV(frozen), steps, vote, grid, None):
        est = dco.DecoupledClassifier(
            model, search=search if model is None else None, random_state=0
        ).fit(X, y)
        assert not est.certificate_.provenance.training_rows_checked
        assert "frozen model was not fitted on calibration rows" in est.certificate_.assumption
        assert est.certificate_.verify(predictor=est).holds
    assert (
        dco.DecoupledClassifier(vote.estimators[1][1], random_state=0)
        .fit(X, y)
        .certificate_.provenance.training_rows_checked
    )
