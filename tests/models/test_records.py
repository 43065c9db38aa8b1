"""From fitted models to prediction records: every way a model can speak, and what it must not
say.
"""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas
import polars
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.cluster import KMeans
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import (
    BayesianRidge,
    LinearRegression,
    LogisticRegression,
    QuantileRegressor,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils import all_estimators

import dco
from dco.models.averaged import AveragedModel, average_records
from dco.models.quantile_pair import QuantilePair
from dco.models.records import convert, predict_record, records_of
from dco.models.residual_spread import ResidualSpread
from dco.models.wrapped import is_frozen, name_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
Y = X[:, 0] + 0.5 * RNG.normal(size=80)
LABELS = np.array(["ant", "bee", "cow"])[(X[:, 0] > -0.5).astype(int) + (X[:, 1] > 0.5)]
TWO = np.where(X[:, 0] > 0, "yes", "no")


# --- classifiers ----------------------------------------------------------------------------------
# --------------------


def test_probabilities_come_with_the_models_labels_uniforms_and_unseen():
    model = LogisticRegression().fit(X, LABELS)
    uniforms = RNG.uniform(size=80)
    record = predict_record(model, X, dco.ClassProbabilities, uniforms=uniforms, classes=["dog"])
    assert records_of(model) == (dco.ClassProbabilities,)
    np.testing.assert_array_equal(record.probabilities, model.predict_proba(X))
    np.testing.assert_array_equal(record.classes, ["ant", "bee", "cow"])
    np.testing.assert_array_equal(record.uniforms, uniforms)
    np.testing.assert_array_equal(record.unseen, ["dog"])


def test_decisions_become_probabilities_that_rank_labels_the_same():
    three = LinearSVC().fit(X, LABELS)
    record = predict_record(three, X)
    np.testing.assert_array_equal(
        record.probabilities.argsort(axis=1), three.decision_function(X).argsort(axis=1)
    )
    np.testing.assert_allclose(record.probabilities.sum(axis=1), 1)
    two = RidgeClassifier().fit(X, TWO)
    record = predict_record(two, X)
    np.testing.assert_array_equal(
        record.classes[record.probabilities.argmax(axis=1)], two.predict(X)
    )
    np.testing.assert_allclose(
        record.probabilities[:, 1], 1 / (1 + np.exp(-two.decision_function(X)))
    )


@pytest.mark.parametrize(
    "model",
    [
        SVC(decision_function_shape="ovo"),
        VotingClassifier([("a", LogisticRegression())], voting="hard"),
    ],
    ids=["pairs of classes", "votes"],
)
def test_a_model_that_only_predicts_gives_all_weight_to_its_label(model):
    """Three pairs of three classes: the columns of decision_function are not the classes, though
    the numbers agree.
    """
    model.fit(X, LABELS)
    record = predict_record(model, X)
    assert set(np.unique(record.probabilities)) == {0.0, 1.0}
    np.testing.assert_array_equal(
        record.classes[record.probabilities.argmax(axis=1)], model.predict(X)
    )


@pytest.mark.parametrize(
    ("task", "y", "record", "least"),
    [("classifier", LABELS, dco.ClassProbabilities, 25), ("regressor", Y, dco.Points, 35)],
)
def test_every_model_of_scikit_learn_gives_its_record(task, y, record, least):
    seen = 0
    for name, cls in all_estimators(type_filter=task):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = cls().fit(X, y)
        except (TypeError, ValueError):  # needs an estimator, counts, other rows or several targets
            continue
        seen += 1
        found = predict_record(model, X[:20], record)
        if task == "classifier":
            assert found.probabilities.shape == (20, 3), name
            np.testing.assert_array_equal(found.classes, model.classes_)
        else:
            np.testing.assert_array_equal(found.mean, np.ravel(model.predict(X[:20])), err_msg=name)
    assert seen >= least


class Draws(ClassifierMixin, BaseEstimator):
    """A classifier with posterior draws; `predict_proba` is their mean."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_draws(self, X):
        draws = np.random.default_rng(0).dirichlet(np.ones(len(self.classes_)), size=(7, 1))
        return np.repeat(draws, len(X), axis=1)

    def predict_proba(self, X):
        return self.predict_draws(X).mean(axis=0)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class DistributionDraws(Draws):
    def predict_distribution(self, X) -> dco.ClassDraws:
        return dco.ClassDraws(self.predict_draws(X))


class RecordDraws(Draws):
    """Answers with the record itself, as `MCDropoutClassifier` does, its classes included."""

    def predict_draws(self, X):
        return dco.ClassDraws(super().predict_draws(X), classes=self.classes_)

    def predict_proba(self, X):
        return self.predict_draws(X).draws.mean(axis=0)


@pytest.mark.parametrize("cls", [Draws, DistributionDraws, RecordDraws])
@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: make_pipeline(StandardScaler(), m)])
def test_draws_come_whole_or_as_their_mean(cls, wrap):
    model = wrap(cls()).fit(X, LABELS)
    assert records_of(model) == (dco.ClassDraws, dco.ClassProbabilities)
    draws = predict_record(model, X, uniforms=np.zeros(80), classes=["dog"])
    assert isinstance(draws, dco.ClassDraws)
    assert draws.draws.shape == (7, 80, 3)
    np.testing.assert_array_equal(draws.classes, ["ant", "bee", "cow"])
    np.testing.assert_array_equal(draws.unseen, ["dog"])
    mean = predict_record(model, X, dco.ClassProbabilities, uniforms=np.zeros(80))
    assert isinstance(mean, dco.ClassProbabilities)
    np.testing.assert_allclose(mean.probabilities, draws.draws.mean(axis=0))
    assert mean.uniforms is not None


class Says(ClassifierMixin, BaseEstimator):
    """A classifier that answers what it was told to."""

    def __init__(self, answer=None):
        self.answer = answer

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return self.answer

    def predict(self, X):
        return self.classes_[np.zeros(len(X), dtype=int)]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.full((80, 3), 0.3), r"row 0 sums to 0\.9"),
        (np.full((80, 3), np.nan), "NaN in 80 rows"),
        (np.tile([1.5, -0.25, -0.25], (80, 1)), r"lie in \[0, 1\]"),
        (np.full((80, 2), 0.5), "2 columns for the 3 classes"),
        (np.full((79, 3), 1 / 3), "79 predictions for 80 rows"),
        (np.ones(80), r"matrix .* got shape \(80,\)"),
        (np.full((80, 3), "a"), "must be real numbers"),
        ([np.full((80, 3), 1 / 3)] * 2, "several outputs"),
    ],
)
def test_answers_that_are_no_probabilities_are_errors_that_name_the_model(answer, message):
    model = make_pipeline(StandardScaler(), Says(answer)).fit(X, LABELS)
    with pytest.raises(ValueError, match=rf"Pipeline\(StandardScaler, Says\).*{message}"):
        predict_record(model, X)


def test_classes_that_cannot_be_told_are_refused():
    class Nameless(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            return self

        def predict_proba(self, X):
            return np.full((len(X), 2), 0.5)

    several = MultiOutputClassifier(LogisticRegression()).fit(X, np.column_stack([TWO, TWO]))
    for model, message in (
        (several, "MultiOutputClassifier"),
        (Nameless(), "Nameless: .* its fit must set it"),
    ):
        with pytest.raises(ValueError, match=message):
            predict_record(model, X)


def test_half_precision_and_a_single_class_are_probabilities():
    probabilities = RNG.dirichlet(np.ones(3), size=80).astype(np.float16)
    assert len(predict_record(Says(probabilities).fit(X, LABELS), X)) == 80
    record = predict_record(DummyClassifier(strategy="prior").fit(X, np.zeros(80)), X)
    assert record.probabilities.shape == (80, 1)


# --- regressors -----------------------------------------------------------------------------------
# --------------------


def test_points():
    model = Ridge().fit(X, Y)
    assert records_of(model) == (dco.Points,)
    np.testing.assert_array_equal(predict_record(model, X).mean, model.predict(X))
    column = LinearRegression().fit(X, Y[:, None])
    np.testing.assert_allclose(
        predict_record(column, X).mean, LinearRegression().fit(X, Y).predict(X)
    )
    with pytest.raises(
        ValueError,
        match=r"LinearRegression: predict returned an array of shape "
        r"\(80, 2\)",
    ):
        predict_record(LinearRegression().fit(X, np.column_stack([Y, Y])), X)


@pytest.mark.parametrize("base", [BayesianRidge(), GaussianProcessRegressor(alpha=0.1)])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda m: m,
        lambda m: make_pipeline("passthrough", m),
        lambda m: GridSearchCV(
            m,
            {"n_restarts_optimizer": [0]} if hasattr(m, "kernel") else {"compute_score": [False]},
            cv=2,
        ),
    ],
    ids=["alone", "pipeline", "search"],
)
def test_return_std_is_a_spread_wherever_the_model_stands(base, wrap):
    model = wrap(base)
    assert records_of(model) == (dco.PointsWithSpread, dco.Points)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the optimiser on tiny data
        model.fit(X, Y)
        base.fit(X, Y)
    mean, std = base.predict(X, return_std=True)
    for fitted in (model, FrozenEstimator(model)):
        record = predict_record(fitted, X, dco.PointsWithSpread)
        np.testing.assert_allclose(record.mean, mean, rtol=1e-6)
        np.testing.assert_allclose(record.spread, std, rtol=1e-6)
        np.testing.assert_allclose(predict_record(fitted, X, dco.Points).mean, mean, rtol=1e-6)


class WithStd(RegressorMixin, BaseEstimator):
    def __init__(self, std=1.0):
        self.std = std

    def fit(self, X, y):
        self.n_features_in_ = 3
        return self

    def predict(self, X, return_std=False):
        mean = np.zeros(len(X))
        return (mean, np.full(len(X), self.std)) if return_std else mean


class Broken(WithStd):
    def predict(self, X):
        return np.full(len(X), np.nan)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (WithStd(np.nan), "WithStd: spread must be finite"),
        (WithStd(np.inf), "WithStd: spread must be finite"),
        (WithStd(-1.0), "WithStd: spread must not be negative"),
        (Broken(), "Broken: mean must be finite, but row 0 is nan"),
    ],
)
def test_a_spread_of_zero_becomes_a_positive_constant_and_bad_numbers_are_errors(model, message):
    record = predict_record(WithStd(0.0).fit(X, Y), X)
    assert np.all(record.spread > 0)
    assert np.all(np.isfinite(1e100 / record.spread))  # no overflow in a normalised residual
    with pytest.raises(ValueError, match=message):
        predict_record(model.fit(X, Y), X)


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: make_pipeline(StandardScaler(), m)])
def test_pairs_of_quantiles_and_learned_spreads_through_pipelines(wrap):
    pair = wrap(QuantilePair(QuantileRegressor(alpha=0)))
    assert records_of(pair) == (dco.Quantiles, dco.Points)
    record = predict_record(pair.fit(X, Y), X)
    assert isinstance(record, dco.Quantiles)
    np.testing.assert_allclose(
        predict_record(pair, X, dco.Points).mean, (record.lower + record.upper) / 2
    )
    spread = wrap(ResidualSpread(Ridge()))
    assert records_of(spread) == (dco.PointsWithSpread, dco.Points)
    assert isinstance(predict_record(spread.fit(X, Y), X), dco.PointsWithSpread)


class Mixture(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        self.n_features_in_ = 3
        return self

    def predict_distribution(self, X) -> dco.GaussianMixtures:
        return dco.GaussianMixtures(
            np.tile([0.0, 3.0], (len(X), 1)), np.array([1.0, 2.0]), draws_first=False
        )

    def predict(self, X):
        return np.full(len(X), 1.5)


def test_a_mixture_is_also_a_mean_with_its_standard_deviation():
    """An even mixture of N(0, 1) and N(3, 4): mean 1.5, variance (1 + 4) / 2 + 1.5^2 = 4.75."""
    model = Mixture().fit(X, Y)
    assert records_of(model) == (dco.GaussianMixtures, dco.PointsWithSpread, dco.Points)
    record = predict_record(model, X, dco.PointsWithSpread)
    np.testing.assert_allclose(record.mean, 1.5)
    np.testing.assert_allclose(record.spread, np.sqrt(4.75))
    assert isinstance(predict_record(model, X), dco.GaussianMixtures)
    wide = dco.GaussianMixtures(
        np.tile([0.0, 3.0], (2, 1)), np.tile([1.0, 2.0], (2, 1)), draws_first=False
    )
    np.testing.assert_allclose(convert(wide, dco.PointsWithSpread).spread, np.sqrt(4.75))
    np.testing.assert_allclose(convert(wide, dco.Points).mean, 1.5)
    with pytest.raises(
        dco.IncompatibleScoreError, match="GaussianMixtures cannot be turned into Quantiles"
    ):
        convert(wide, dco.Quantiles)


def test_a_mixture_in_single_precision_keeps_the_digits_that_its_draws_have():
    """Means near 4,096 that differ by 1/2,048: their mean and spread are exact in double precision,
    not in single.
    """
    means = (4096 + np.array([[0, 1, 2, 3]]) / 2048).astype(np.float32)
    record = convert(
        dco.GaussianMixtures(means, np.full(4, 2.0**-11, dtype=np.float32), draws_first=False),
        dco.PointsWithSpread,
    )
    assert record.mean[0] == 4096 + 1.5 / 2048
    np.testing.assert_allclose(record.spread, np.sqrt(1 + 1.25) / 2048)


def test_what_a_model_cannot_give_is_an_error_that_names_both_sides():
    with pytest.raises(
        dco.IncompatibleScoreError, match="Ridge gives Points, but Quantiles was asked for"
    ):
        predict_record(Ridge().fit(X, Y), X, dco.Quantiles)
    with pytest.raises(TypeError, match="StandardScaler is neither a classifier nor a regressor"):
        records_of(StandardScaler())
    with pytest.raises(TypeError, match="KMeans is neither"):
        records_of(KMeans())

    class Silent(Mixture):
        def predict_distribution(self, X):
            return dco.Points(np.zeros(len(X)))

    class Liar(Mixture):
        def predict_distribution(self, X) -> dco.Quantiles:
            return (np.zeros(len(X)), np.ones(len(X)))

    with pytest.raises(
        TypeError,
        match=r"Silent\.predict_distribution does not say what it "
        r"returns",
    ):
        records_of(Silent())
    with pytest.raises(ValueError, match="Liar: predict_distribution returned tuple"):
        predict_record(Liar().fit(X, Y), X)


def test_an_average_of_models_gives_what_all_its_members_give():
    assert records_of(AveragedModel([BayesianRidge(), ResidualSpread(Ridge()), Ridge()])) == (
        dco.Points,
    )
    fitted = [
        BayesianRidge().fit(X, Y),
        make_pipeline(StandardScaler(), ResidualSpread(Ridge())).fit(X, Y),
    ]
    numbers = AveragedModel(fitted).with_fitted(fitted)
    assert records_of(numbers) == (dco.PointsWithSpread, dco.Points)
    members = [predict_record(model, X) for model in fitted]
    record = predict_record(numbers, X)
    np.testing.assert_allclose(record.mean, (members[0].mean + members[1].mean) / 2)
    np.testing.assert_allclose(record.spread, (members[0].spread + members[1].spread) / 2)
    np.testing.assert_allclose(numbers.predict(X), record.mean)
    fitted = [LogisticRegression().fit(X, LABELS), LinearSVC().fit(X, LABELS)]
    classes = AveragedModel(fitted).with_fitted(fitted)
    record = predict_record(classes, X, uniforms=np.full(80, 0.5), classes=["dog"])
    assert isinstance(record, dco.ClassProbabilities)
    np.testing.assert_array_equal(record.classes, ["ant", "bee", "cow"])
    np.testing.assert_array_equal(record.uniforms, np.full(80, 0.5))
    np.testing.assert_array_equal(record.unseen, ["dog"])
    np.testing.assert_array_equal(
        classes.predict(X), record.classes[record.probabilities.argmax(axis=1)]
    )


def test_models_without_scikit_learns_tags_are_known_by_what_they_offer():
    duck = SimpleNamespace(
        classes_=np.array([0, 1]), predict_proba=lambda X: np.full((len(X), 2), 0.5)
    )
    assert records_of(duck) == (dco.ClassProbabilities,)
    assert predict_record(duck, X).probabilities.shape == (80, 2)
    assert predict_record(SimpleNamespace(predict=lambda X: np.zeros(len(X))), X).mean.shape == (
        80,
    )


# --- wrappers and frames
# ----------------------------------------------------------------------------------------------


def test_unfitted_models_say_what_they_will_give():
    linear = make_pipeline(StandardScaler(), LinearSVC())
    for model in (LogisticRegression(), SGDClassifier(), GridSearchCV(SVC(), {}), linear):
        assert records_of(model) == (dco.ClassProbabilities,)
    search = GridSearchCV(make_pipeline(StandardScaler(), BayesianRidge()), {})
    assert records_of(search) == (dco.PointsWithSpread, dco.Points)
    # the standard deviation of log y is none of y, so only points are offered
    assert records_of(
        TransformedTargetRegressor(BayesianRidge(), func=np.log, inverse_func=np.exp)
    ) == (dco.Points,)


def test_frozen_means_that_nothing_is_left_to_fit_and_names_show_what_is_inside():
    ridge, scaler = Ridge().fit(X, Y), StandardScaler().fit(X)
    assert is_frozen(FrozenEstimator(ridge))
    assert is_frozen(FrozenEstimator(make_pipeline(StandardScaler(), Ridge())))
    assert is_frozen(make_pipeline(FrozenEstimator(scaler), FrozenEstimator(ridge)))
    assert is_frozen(Pipeline([("none", "passthrough"), ("model", FrozenEstimator(ridge))]))
    assert not is_frozen(make_pipeline(StandardScaler(), FrozenEstimator(ridge)))
    assert not is_frozen(ridge)
    search = GridSearchCV(make_pipeline("passthrough", StandardScaler(), Ridge()), {})
    assert (
        name_of(FrozenEstimator(search))
        == "FrozenEstimator(GridSearchCV(Pipeline(StandardScaler, Ridge)))"
    )
    np.testing.assert_array_equal(predict_record(FrozenEstimator(ridge), X).mean, ridge.predict(X))


class Recorder(RegressorMixin, BaseEstimator):
    """Keeps the very object that it is asked about."""

    def fit(self, X, y):
        self.n_features_in_ = 2
        return self

    def predict(self, X, return_std=False):
        self.asked = X
        return (np.zeros(len(X)), np.ones(len(X))) if return_std else np.zeros(len(X))


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame], ids=["pandas", "polars"])
def test_frames_reach_the_model_untouched(frame):
    table = frame({"size": X[:, 0].tolist(), "kind": LABELS.tolist()})
    model = Recorder().fit(table, Y)
    for kind in (dco.Points, dco.PointsWithSpread):
        predict_record(model, table, kind)
        assert model.asked is table
    encode = make_column_transformer((OneHotEncoder(), ["kind"]), remainder="passthrough")
    pipeline = make_pipeline(encode, BayesianRidge()).fit(table, Y)
    np.testing.assert_array_equal(predict_record(pipeline, table).mean, pipeline.predict(table))


def test_a_record_is_a_function_of_the_row_alone():
    """A score is valid only if a row's record does not depend on the other rows asked about."""
    models = [
        RandomForestClassifier(10).fit(X, LABELS),
        KNeighborsClassifier().fit(X, LABELS),
        LinearSVC().fit(X, LABELS),
        BayesianRidge().fit(X, Y),
        WithStd(0.0).fit(X, Y),
        QuantilePair(QuantileRegressor(alpha=0)).fit(X, Y),
        ResidualSpread(Ridge()).fit(X, Y),
    ]
    for model in models:
        whole, few = predict_record(model, X), predict_record(model, X[5:7])
        for name in ("probabilities", "mean", "spread", "lower", "upper"):
            if hasattr(whole, name):
                np.testing.assert_allclose(
                    getattr(whole, name)[5:7], getattr(few, name), rtol=1e-12
                )


def test_records_are_averaged_part_by_part_and_draws_are_pooled():
    rng = np.random.default_rng(0)
    draws = rng.dirichlet(np.ones(2), size=(2, 3, 4))
    pooled = average_records([dco.ClassDraws(part, classes=["a", "b"]) for part in draws])
    np.testing.assert_array_equal(pooled.draws, draws.reshape(6, 4, 2))
    ends = [dco.Quantiles([0.0], [2.0], [1.0]), dco.Quantiles([2.0], [6.0], [3.0])]
    average = average_records(ends)
    assert (average.lower[0], average.median[0], average.upper[0]) == (1.0, 2.0, 4.0)
    assert average_records([ends[0], dco.Quantiles([2.0], [6.0])]).median is None
    mixed = average_records(
        [
            dco.GaussianMixtures([[0.0, 1.0]], [1.0, 2.0], draws_first=False),
            dco.GaussianMixtures([[5.0]], [[3.0]], draws_first=False),
        ]
    )
    assert (mixed.means.tolist(), mixed.sds.tolist()) == (
        [[0.0], [1.0], [5.0]],
        [[1.0], [2.0], [3.0]],
    )
    with pytest.raises(ValueError, match="different classes"):
        average_records(
            [dco.ClassDraws(draws[0], classes=names) for names in (["a", "b"], ["b", "a"])]
        )
