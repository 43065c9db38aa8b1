"""Candidates: how often models are fitted, frozen ones, searches, folds, and those that fail."""

import re

import numpy as np
import pytest
from estimator_examples import Failing, FailingClassifier, X, class_rows, regression_rows, ridge, y
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, VotingClassifier
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

# --- how often a model is fitted and asked --------------------------------------------------------


class Counting(RegressorMixin, BaseEstimator):
    """A model that counts how often it is fitted and asked."""

    n_fits = 0
    n_predictions = 0

    def fit(self, X, y):
        Counting.n_fits += 1
        self.mean_ = float(np.mean(y))
        return self

    def predict(self, X, return_std=False):
        Counting.n_predictions += 1
        mean = np.full(len(X), self.mean_)
        return (mean, np.ones(len(X))) if return_std else mean


def test_each_model_is_fitted_once_and_predicts_once_for_each_kind_of_record() -> None:
    """It predicts for the tuning rows, the calibration rows, and some of these again in two
    batches.
    """
    Counting.n_fits = 0
    Counting.n_predictions = 0
    scores = [NormalisedResidual(), NormalisedResidual(floor=0.5), NormalisedResidual(floor=1.0)]
    est = dco.DecoupledRegressor(Counting(), scores, refit=False, random_state=0)
    est.fit(*regression_rows(200))
    assert est.certificate_.structure.candidates == 3
    assert Counting.n_fits == 1
    assert Counting.n_predictions == 4


def test_the_papers_winner_is_the_one_that_training_rows_made() -> None:
    X, y = regression_rows(200)
    paper = ridge(refit=False).fit(X, y)
    train = paper.splits_.train
    np.testing.assert_allclose(paper.predict(X), Ridge().fit(X[train], y[train]).predict(X))
    assert not paper.certificate_.structure.refit


# --- frozen models --------------------------------------------------------------------------------


@pytest.fixture
def fitted_elsewhere():
    """A model of the first 100 rows with targets that are 1000 too large."""
    return Ridge().fit(X[:100], y[:100] + 1000.0)


def test_a_fitted_model_is_fitted_again(fitted_elsewhere) -> None:
    text = "'ridge' is fitted already, and a copy of it is fitted again .*FrozenEstimator"
    est = dco.DecoupledRegressor(fitted_elsewhere, random_state=0)
    with pytest.warns(UserWarning, match=text):
        est.fit(X[100:], y[100:])
    assert abs(np.mean(est.predict(X) - y)) < 50


@pytest.mark.parametrize("options", [{}, {"tune_folds": 3}], ids=["tuning rows", "folds"])
def test_a_frozen_model_is_not_fitted_again(fitted_elsewhere, options) -> None:
    frozen = FrozenEstimator(fitted_elsewhere)
    est = dco.DecoupledRegressor(frozen, random_state=0, **options).fit(X[100:], y[100:])
    np.testing.assert_allclose(est.predict(X), fitted_elsewhere.predict(X))


def test_a_frozen_model_needs_no_training_rows(fitted_elsewhere) -> None:
    frozen = FrozenEstimator(fitted_elsewhere)
    certificate = dco.DecoupledRegressor(frozen).fit(X[100:], y[100:]).certificate_
    assert certificate.provenance.rows == {"train": 0, "tune": 100, "calibrate": 100}
    assert certificate.training_rows.startswith("not checked")
    assert "frozen model" in certificate.assumption


def calibrated(frozen):
    return CalibratedClassifierCV(frozen)


def last_step(frozen):
    return make_pipeline(StandardScaler(), frozen)


def one_of_two_votes(frozen):
    votes = [("frozen", frozen), ("fitted", LogisticRegression())]
    return VotingClassifier(votes, voting="soft")


def found_by_a_grid(frozen):
    steps = make_pipeline(StandardScaler(), LogisticRegression())
    return GridSearchCV(steps, {"logisticregression": [frozen]}, cv=3)


@pytest.fixture
def frozen_classifier():
    """A frozen model of all rows, the later calibration rows too."""
    return FrozenEstimator(LogisticRegression().fit(*class_rows()))


def check_that_training_rows_are_unknown(est) -> None:
    certificate = est.fit(*class_rows()).certificate_
    assert not certificate.provenance.training_rows_checked
    assert "frozen model was not fitted on calibration rows" in certificate.assumption
    assert certificate.verify(predictor=est).holds


@pytest.mark.parametrize(
    "wrap", [FrozenEstimator, calibrated, last_step, one_of_two_votes, found_by_a_grid]
)
def test_a_frozen_part_of_a_model_has_training_rows_that_nobody_checked(
    frozen_classifier, wrap
) -> None:
    models = wrap(frozen_classifier)
    check_that_training_rows_are_unknown(dco.DecoupledClassifier(models, random_state=0))


def test_a_frozen_model_of_a_search_has_training_rows_that_nobody_checked(
    frozen_classifier,
) -> None:
    search = dco.search.Optuna(lambda trial: (frozen_classifier, LAC()), trials=1, random_state=0)
    est = dco.DecoupledClassifier(None, search=search, random_state=0)
    check_that_training_rows_are_unknown(est)


def test_training_rows_of_other_models_are_checked() -> None:
    est = dco.DecoupledClassifier(LogisticRegression(), random_state=0).fit(*class_rows())
    assert est.certificate_.provenance.training_rows_checked


# --- searches -------------------------------------------------------------------------------------

ALPHAS = dco.grid(Ridge(), alpha=[0.01, 1.0, 100.0, 10000.0])


@pytest.mark.parametrize(
    ("search", "n_candidates"),
    [(None, 4), (dco.search.Random(2, random_state=0), 2)],
    ids=["all", "two at random"],
)
def test_a_search_reaches_the_models_that_it_proposes(search, n_candidates) -> None:
    est = dco.DecoupledRegressor(ALPHAS, AbsoluteResidual(), search=search, random_state=0)
    est.fit(*regression_rows(200))
    assert est.certificate_.structure.candidates == n_candidates


def alphas(trial):
    alpha = trial.suggest_float("alpha", 0.001, 10_000, log=True)
    return Ridge(alpha=alpha), AbsoluteResidual()


def search_space(space, trials):
    """An estimator that tries proposals of a space."""
    search = dco.search.Optuna(space, trials=trials, random_state=0)
    return dco.DecoupledRegressor(None, search=search, random_state=0)


def test_the_seed_repeats_a_search() -> None:
    first = search_space(alphas, trials=6).fit(X, y).certificate_
    second = search_space(alphas, trials=6).fit(X, y).certificate_
    assert first.structure.candidates == 6
    assert first.thresholds == second.thresholds


def test_a_space_may_give_one_model_with_other_parameters_every_time() -> None:
    """``model.set_params(...)`` gives the model itself: the winner once had the parameters of the
    last trial.
    """
    model = make_pipeline(StandardScaler(), Ridge())

    def one_model(trial):
        model.set_params(ridge__alpha=trial.suggest_float("alpha", 0.1, 1e4, log=True))
        return model, AbsoluteResidual()

    def a_copy_each_time(trial):
        changed, score = one_model(trial)
        return clone(changed), score

    est = search_space(one_model, trials=6).fit(X, y)
    expected = search_space(a_copy_each_time, trials=6).fit(X, y)

    last_trial = "trial 5"
    assert not est.best_candidate_.startswith(last_trial)
    assert est.best_candidate_ == expected.best_candidate_
    np.testing.assert_array_equal(est.predict_set(X).lower, expected.predict_set(X).lower)


def test_a_space_may_change_a_parameter_of_one_model_in_place() -> None:
    """A dict is the same object afterwards: every trial but the first once was a copy of the
    first.
    """
    weights = {0: 1.0, 1: 1.0, 2: 1.0}
    model = LogisticRegression(class_weight=weights)

    def space(trial):
        weights[0] = trial.suggest_categorical("weight", [1.0, 5.0, 50.0])
        return model, LAC()

    search = dco.search.Optuna(space, trials=8, random_state=0)
    est = dco.DecoupledClassifier(None, search=search, random_state=0).fit(*class_rows())
    assert len(est.ranking_.table) == 3


# --- tuning rows and folds ------------------------------------------------------------------------


def test_folds_use_every_row_that_is_not_sealed() -> None:
    models = [Ridge(), KNeighborsRegressor()]
    est = dco.DecoupledRegressor(models, tune_folds=5, random_state=0)
    est.fit(*regression_rows(200))
    assert est.certificate_.provenance.rows == {"train": 150, "tune": 0, "calibrate": 50}
    assert est.ranking_.n == 150


def test_a_winner_of_folds_is_refitted() -> None:
    with pytest.raises(ValueError, match="refit"):
        dco.DecoupledRegressor(Ridge(), tune_folds=5, refit=False).fit(*regression_rows(200))


def test_a_single_candidate_is_split_conformal_prediction() -> None:
    """The threshold is that of the rule on the calibration rows' scores."""
    model = Ridge().fit(X[:100], y[:100])
    frozen = FrozenEstimator(model)
    est = dco.DecoupledRegressor(frozen, AbsoluteResidual(), tune_size=0, random_state=0)
    est.fit(X[100:], y[100:])
    residuals = np.abs(y[100:] - model.predict(X[100:]))
    expected = dco.split_conformal(residuals, alpha=0.1)
    assert est.certificate_.thresholds[0].value == expected.value
    assert est.certificate_.verify(X[100:], y[100:], predictor=est).holds


def test_a_single_candidate_needs_no_tuning_rows() -> None:
    est = ridge(AbsoluteResidual(), tune_size=0).fit(X, y)
    assert est.certificate_.provenance.rows == {"train": 225, "tune": 0, "calibrate": 75}
    assert "the only candidate" in str(est.certificate_)
    assert est.ranking_.table == ()


def test_several_candidates_need_tuning_rows() -> None:
    text = r"No row is left for tuning, but \d+ candidates are compared on them"
    with pytest.raises(ValueError, match=text):
        dco.DecoupledClassifier(LogisticRegression(), tune_size=0).fit(*class_rows(200))


# --- candidates that fail -------------------------------------------------------------------------


def test_models_and_scores_that_do_not_meet_are_named() -> None:
    text = r"(?s)QuantileResidual.*ridge|ridge.*QuantileResidual"
    with pytest.raises(dco.IncompatibleScoreError, match=text):
        dco.DecoupledRegressor(Ridge(), QuantileResidual()).fit(X, y)


def test_a_score_that_no_model_meets_is_named() -> None:
    models = [QuantilePair(HistGradientBoostingRegressor(max_iter=5)), Ridge()]
    scores = [QuantileResidual(), AbsoluteResidual(), NormalisedResidual()]
    with pytest.raises(dco.IncompatibleScoreError, match="NormalisedResidual"):
        dco.DecoupledRegressor(models, scores).fit(X, y)


@pytest.fixture(
    params=[
        (Failing(), {}, "RuntimeError: no luck today"),
        (KNeighborsRegressor(), {"sample_weight": np.ones(300)}, ".*'sample_weight'"),
    ],
    ids=["an error", "weights that it does not take"],
)
def failing(request):
    """An estimator of two models of which one fails; the reason; and parameters of the fit."""
    model, params, reason = request.param
    models = {"good": BayesianRidge(), "bad": model}
    return dco.DecoupledRegressor(models, AbsoluteResidual(), random_state=0), reason, params


def test_a_failed_candidate_is_noted_at_the_line_of_the_caller(failing) -> None:
    est, reason, params = failing
    text = rf"1 failed .*: bad \({reason}\)\."
    with pytest.warns(FitFailedWarning, match=text) as warned:
        est.fit(X, y, **params)
    assert [warning.filename for warning in warned] == [__file__]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
def test_a_failed_candidate_is_reported_with_its_reason(failing) -> None:
    est, reason, params = failing
    est.fit(X, y, **params)
    ((name, text),) = est.certificate_.structure.failed_candidates.items()
    assert name == "bad / AbsoluteResidual"
    assert re.fullmatch(reason, text)
    assert [(failure.name, failure.reason) for failure in est.ranking_.failed] == [(name, text)]
    assert "bad" in str(est.ranking_)


def test_the_reason_of_each_model_is_given_once_if_all_fail() -> None:
    models = {"a": FailingClassifier(), "b": FailingClassifier()}
    with pytest.raises(ValueError, match="no luck") as caught:
        dco.DecoupledClassifier(models).fit(*class_rows(200))
    assert str(caught.value).count("no luck") == 2


def test_the_reason_of_a_model_is_given_once_however_many_scores_it_has() -> None:
    models = {"a": FailingClassifier(), "b": LogisticRegression()}
    est = dco.DecoupledClassifier(models, random_state=0)
    with pytest.warns(FitFailedWarning, match="1 failed") as warned:
        est.fit(*class_rows(200))
    assert str(warned[0].message).count("no luck") == 1
    assert len(est.ranking_.failed) > 5
    assert len(est.certificate_.structure.failed_candidates) == len(est.ranking_.failed)


class NanLater(DummyRegressor):
    """Predicts NaN, but only for rows with a large first column."""

    def predict(self, X):
        return np.where(X[:, 0] > 100, np.nan, super().predict(X))


def test_a_winner_that_gives_nan_on_a_calibration_row_is_an_error_and_no_row_is_dropped() -> None:
    X, y = regression_rows(300)
    X[250, 0] = 1000.0
    roles = {"tune": (X[100:200], y[100:200]), "calibrate": (X[200:], y[200:])}
    with pytest.raises(ValueError, match="NanLater"):
        dco.DecoupledRegressor(NanLater()).fit(X[:100], y[:100], **roles)


def test_a_missing_value_that_only_calibration_rows_have_is_an_error_that_says_what_to_do() -> None:
    """The choice may not depend on calibration rows, so a winner that cannot take them stops the
    fit.
    """
    X, y = regression_rows(300)
    X[250, 1] = np.nan
    models = {"ridge": Ridge(), "trees": HistGradientBoostingRegressor(max_iter=2)}
    text = r"(?s)ridge / Abs.* calibration rows .*NaN.*no other candidate.*imputer"
    est = dco.DecoupledRegressor(models, random_state=0)
    with pytest.raises(ValueError, match=text):
        est.fit(X[:200], y[:200], calibrate=(X[200:], y[200:]))


def test_constant_scores_are_valid_and_said_to_be_tied() -> None:
    X, _ = regression_rows(200)
    est = ridge().fit(X, np.zeros(200))
    threshold = est.certificate_.thresholds[0]
    assert not threshold.expected_is_exact
    assert threshold.coverage_high is None
    assert est.predict_set(X).contains(np.zeros(200)).all()


# --- models that break the seal -------------------------------------------------------------------


class Centred(RegressorMixin, BaseEstimator):
    """Its predictions depend on the other rows of a batch."""

    def fit(self, X, y):
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        return X[:, 0] - X[:, 0].mean()


@pytest.mark.parametrize("n", [40, 200, 600])
def test_a_model_that_compares_the_rows_of_a_batch_is_caught(n) -> None:
    X, _ = regression_rows(n)
    with pytest.raises(dco.SealBrokenError, match="compares rows"):
        dco.DecoupledRegressor(Centred(), random_state=0).fit(X, X[:, 0] + X[:, 1])


class SinglePrecision(RegressorMixin, BaseEstimator):
    """Predictions in single precision; in a batch of more than 300 rows they are larger by a
    share.
    """

    def __init__(self, share=0.0):
        self.share = share

    def fit(self, X, y):
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        share = self.share if len(X) > 300 else 0.0
        return (X[:, 0] * (1 + share)).astype(np.float32)


@pytest.fixture
def tiny_residuals():
    """Rows of which every fourth has a residual of a millionth."""
    X, _ = regression_rows(2000)
    X[:, 0] = 10 + 0.1 * X[:, 0]
    noise = np.random.default_rng(0).normal(size=2000)
    return X, X[:, 0] + np.where(np.arange(2000) % 4 == 0, 1e-6, noise)


@pytest.mark.parametrize("share", [np.finfo(np.float32).eps, 1e-4])
def test_rounding_in_single_precision_is_no_change_of_scores(tiny_residuals, share) -> None:
    """A prediction may round otherwise in a batch of another size; next to a tiny residual that is
    no small change.
    """
    model = SinglePrecision(share)
    est = dco.DecoupledRegressor(model, AbsoluteResidual(), random_state=0).fit(*tiny_residuals)
    assert est.certificate_.guarantee == "marginal"


def test_more_than_rounding_is_a_change_of_scores(tiny_residuals) -> None:
    est = dco.DecoupledRegressor(SinglePrecision(1e-2), AbsoluteResidual(), random_state=0)
    with pytest.raises(dco.SealBrokenError, match="scored again"):
        est.fit(*tiny_residuals)


# --- models that work in their rows ---------------------------------------------------------------


def ridge_model(copy):
    return Ridge(copy_X=copy)


def scaled_model(copy):
    return make_pipeline(StandardScaler(copy=copy), BayesianRidge())


@pytest.mark.parametrize("folds", [None, 3])
@pytest.mark.parametrize("make", [ridge_model, scaled_model])
def test_a_model_does_not_work_in_rows_that_others_read(make, folds) -> None:
    """One that centres its rows in place once spoilt them for the other model, and for its own
    refit.
    """
    rows = X + 100
    fits = []
    for copy in (False, True):
        models = {"first": make(copy), "other": KNeighborsRegressor()}
        est = dco.DecoupledRegressor(models, tune_folds=folds, random_state=0)
        fits.append(est.fit(rows, y))

    in_place, copying = fits
    assert in_place.ranking_ == copying.ranking_
    np.testing.assert_array_equal(in_place.predict_set(rows).lower, copying.predict_set(rows).lower)
    np.testing.assert_array_equal(rows, X + 100)


def test_a_model_that_a_search_proposes_does_not_work_in_rows_that_others_read() -> None:
    rows = X + 100

    def ranking(copy):
        models = [ridge_model(copy), scaled_model(copy), KNeighborsRegressor()]

        def space(trial):
            model = models[trial.suggest_categorical("model", [0, 1, 2])]
            return model, AbsoluteResidual()

        table = search_space(space, trials=8).fit(rows, y).ranking_.table
        return [(row.name, row.mean_size) for row in table]

    assert len(ranking(copy=True)) == 3
    assert ranking(copy=True) == ranking(copy=False)


def test_a_random_search_without_a_seed_takes_that_of_the_estimator():
    X, y = regression_rows()
    models = [Ridge(alpha) for alpha in (0.1, 1, 10, 100, 1000, 10_000)]

    rankings = [
        dco.DecoupledRegressor(models, search=dco.search.Random(3), random_state=0)
        .fit(X, y)
        .ranking_
        for _ in range(2)
    ]

    assert rankings[0] == rankings[1]
