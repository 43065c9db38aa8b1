"""Each model has its own name, its own fit and its own size; what fails is told by name."""

import threading
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import BayesianRidge, LogisticRegression, QuantileRegressor, Ridge

import dco
from dco.scores import APS, LAC, RAPS, AbsoluteResidual, NormalisedResidual, QuantileResidual, Score
from dco.sets import Intervals
from dco.tuning.evaluated import TuningPredictions

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
Y = 3 * X[:, 0] + RNG.normal(size=400)
NOISE = RNG.normal(size=400)


def sizes_of(est) -> dict[str, float]:
    """Return the mean size of each candidate in the ranking, by name."""
    return {row.name: row.mean_size for row in est.ranking_.table}


def score_names(est) -> list[str]:
    """Return the names of the scores in the ranking, the best first."""
    return [row.name.partition(" / ")[2] for row in est.ranking_.table]


# ---------------------------------------------------------------- models that a search proposes


class Recorded(dco.search.Strategy):
    """A search that keeps its result for the test."""

    def __init__(self, strategy):
        self.strategy = strategy

    def search(self, evaluate, candidates=()):
        self.result = self.strategy.search(evaluate, candidates)
        return self.result


def propose(models, *, pruner=None, **options):
    """Fit an estimator that is proposed these models in turn, and return it with its trials."""
    search = Recorded(
        dco.search.Optuna(
            lambda trial: (models[trial.number], AbsoluteResidual()),
            trials=len(models),
            random_state=0,
            pruner=pruner,
        )
    )
    est = dco.DecoupledRegressor([], search=search, random_state=0, **options).fit(X, Y)
    return est, search.result.trials


def test_a_model_that_was_pruned_keeps_its_name_and_gets_its_own_size_when_proposed_again():
    optuna = pytest.importorskip("optuna")

    class PruneSecondTrial(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return trial.number == 1

    useless = Ridge(alpha=1e6)
    models = [Ridge(1.0), useless, Ridge(2.0), Ridge(alpha=1e6)]
    est, trials = propose(models, pruner=PruneSecondTrial(), tune_folds=3)
    alone, (trial_alone,) = propose([useless], tune_folds=3)

    assert trials[1].reason == "pruned"
    assert trials[3].objective == trial_alone.objective
    assert trials[2].objective < trials[3].objective / 2
    sizes = sizes_of(est)
    assert len(sizes) == 3
    assert sizes["trial 1: Ridge / AbsoluteResidual"] == alone.ranking_.table[0].mean_size
    assert sizes["trial 2: Ridge / AbsoluteResidual"] == trials[2].objective


def test_scores_that_read_other_records_of_one_model_rank_as_if_they_were_listed():
    """The second proposal asks the model for a spread: it predicts both kinds of record then, and
    neither is lost.
    """
    scores = [AbsoluteResidual(), NormalisedResidual()]
    search = dco.search.Optuna(lambda trial: (BayesianRidge(), scores[trial.number]), 2, 0)

    listed = dco.DecoupledRegressor({"m": BayesianRidge()}, scores, random_state=0).fit(X, Y)
    proposed = dco.DecoupledRegressor([], search=search, random_state=0).fit(X, Y)

    assert sorted(score_names(listed)) == ["AbsoluteResidual", "NormalisedResidual"]
    assert score_names(proposed) == score_names(listed)
    assert list(sizes_of(proposed).values()) == list(sizes_of(listed).values())


class Shifted(RegressorMixin, BaseEstimator):
    """The first column times 3, shifted by one number of a long table."""

    def __init__(self, table=None):
        self.table = table

    def fit(self, X, y):
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        return 3 * np.asarray(X)[:, 0] + self.table[1000]


def test_models_that_differ_in_one_number_of_a_long_array_are_two():
    good = np.zeros(2001)
    bad = np.where(np.arange(2001) == 1000, 50.0, 0.0)

    est, trials = propose([Shifted(bad), Shifted(good), Shifted(good.copy())])

    assert len(est.ranking_.table) == 2
    assert est.ranking_.table[0].name.startswith("trial 1: ")
    assert trials[1].objective == trials[2].objective
    assert trials[1].objective < trials[0].objective / 2


class Locked(Shifted):
    """A model with a parameter that has no canonical form."""

    def __init__(self, table=None, lock=None):
        super().__init__(table)
        self.lock = lock

    def __sklearn_clone__(self):
        return Locked(self.table, self.lock)


def test_a_model_that_cannot_be_written_down_is_the_same_as_itself_alone():
    good = Locked(np.full(2001, 0.0), threading.Lock())
    bad = Locked(np.full(2001, 50.0), threading.Lock())

    est, trials = propose([good, bad, good])

    assert trials[0].objective == trials[2].objective
    assert len(est.ranking_.table) == 2


# ---------------------------------------------------------------- scores of a user


class PlainResidual(Score):
    """A score that is no dataclass."""

    needs = (dco.Points,)
    observed = AbsoluteResidual().observed
    sets = AbsoluteResidual().sets

    def __init__(self, **parameters):
        vars(self).update(parameters)


@dataclass
class WithoutHash(PlainResidual):
    """A plain dataclass compares by value and so has no hash; its default is compared with an array
    here.
    """

    weights: Any = (1,)


class Slotted(PlainResidual):
    """Without a __dict__ of its own parameters."""

    __slots__ = ("power",)

    def __init__(self, power):
        self.power = power


class AllPrintedAlike(PlainResidual):
    """One text for all of its kind."""

    def __repr__(self):
        return "AllPrintedAlike()"


@pytest.mark.parametrize("search", [None, dco.search.Random(2, 0)], ids=["all", "random"])
@pytest.mark.parametrize(
    "score",
    [WithoutHash(), WithoutHash(weights=np.ones(3)), Slotted(1)],
    ids=["no hash", "holds an array", "slots"],
)
def test_any_object_that_derives_from_score_is_one(score, search):
    models = [Ridge(), Ridge(2.0)]
    est = dco.DecoupledRegressor(models, score, search=search, random_state=0)

    est.fit(X, Y)

    assert type(score).__name__ in est.best_candidate_


def name_of(score):
    """Return how an estimator with this score alone names it."""
    if isinstance(score, PlainResidual):
        est = dco.DecoupledRegressor(Ridge(), score, random_state=0).fit(X, Y)
    else:
        est = dco.DecoupledClassifier(LogisticRegression(), score, random_state=0).fit(X, Y > 0)
    return est.best_candidate_.partition(" / ")[2]


@pytest.mark.parametrize(
    ("score", "name"),
    [
        (LAC(), "LAC"),
        (PlainResidual(), "PlainResidual"),
        (PlainResidual(power=2), "PlainResidual(power=2)"),
    ],
    ids=["ours", "a user's", "with a parameter"],
)
def test_a_score_is_called_by_its_class_and_parameters(score, name):
    assert name_of(score) == name


LOSSES = np.arange(30.0).reshape(15, 2)
ONE_AT_THE_END = np.r_[np.zeros(5000), 1.0]


@pytest.mark.parametrize(
    ("score", "equal", "other"),
    [
        (
            dco.scores.RiskAverse(LOSSES),
            dco.scores.RiskAverse(LOSSES.copy()),
            dco.scores.RiskAverse(LOSSES + 1),
        ),
        (
            PlainResidual(weights=ONE_AT_THE_END),
            PlainResidual(weights=ONE_AT_THE_END.copy()),
            PlainResidual(weights=0 * ONE_AT_THE_END),
        ),
    ],
    ids=["losses", "a long array"],
)
def test_arrays_in_names_of_scores_are_short_and_tell_them_apart(score, equal, other):
    name = name_of(score)

    assert len(name) < 68  # 60 characters for the value
    assert name_of(equal) == name
    assert name_of(other) != name


def test_addresses_are_not_in_names_of_scores():
    assert "0x" not in name_of(PlainResidual(key=lambda row: row))


@pytest.mark.parametrize(
    ("scores", "names"),
    [
        (
            [AllPrintedAlike(power=1), AllPrintedAlike(power=2), AllPrintedAlike(power=1)],
            ["AllPrintedAlike()", "AllPrintedAlike()-2"],
        ),
        ([Slotted(1), Slotted(2)], ["Slotted", "Slotted-2"]),
    ],
    ids=["printed alike", "slots"],
)
def test_scores_that_share_a_name_are_different_candidates(scores, names):
    est = dco.DecoupledRegressor(Ridge(), scores, random_state=0).fit(X, Y)

    assert sorted(score_names(est)) == names
    assert est.certificate_.structure.candidates == 2


def test_proposed_scores_that_share_a_name_are_different_candidates():
    scores = [AllPrintedAlike(power=1), AllPrintedAlike(power=2)]
    search = dco.search.Optuna(lambda trial: (Ridge(), scores[trial.number]), 2, 0)

    est = dco.DecoupledRegressor([], search=search, random_state=0).fit(X, Y)

    assert sorted(sizes_of(est)) == [
        "trial 0: Ridge / AllPrintedAlike()",
        "trial 0: Ridge / AllPrintedAlike()-2",
    ]


def test_an_average_keeps_the_names_of_scores():
    scores = {"mine": AbsoluteResidual()}
    est = dco.DecoupledRegressor(["linear", "spread"], scores, random_state=0).fit(X, Y)

    assert any(name.startswith("average of ") for name in sizes_of(est))
    assert set(score_names(est)) == {"mine"}


# ---------------------------------------------------------------- sets that leave out labels


@dataclass(frozen=True)
class LogResidual(Score):
    """A user's own score, written by the protocol alone; its sets are shorter than what its scores
    say where `shrunk` is below 1.
    """

    shrunk: float = 1.0
    needs: ClassVar[tuple[type, ...]] = (dco.Points,)

    def observed(self, prediction, y):
        return np.abs(np.log(np.asarray(y)) - np.log(prediction.mean))

    def sets(self, prediction, threshold):
        reach = getattr(threshold, "value", threshold) * self.shrunk
        return Intervals(prediction.mean * np.exp(-reach), prediction.mean * np.exp(reach))


class WrappedLogResidual(LogResidual):
    """A score that wraps another."""

    def __init__(self, inner):
        object.__setattr__(self, "inner", inner)

    def sets(self, prediction, threshold):
        return self.inner.sets(prediction, threshold)


POSITIVE = np.exp(0.3 * X[:, 0] + 0.1 * NOISE)
LINE_OF_LOGS = TransformedTargetRegressor(Ridge(), func=np.log, inverse_func=np.exp)


def test_a_score_whose_sets_leave_out_labels_of_low_scores_is_left_out():
    """Its sets would win by their size and be certified at a level they do not have. Sets that are
    larger than need be are valid.
    """
    scores = [LogResidual(), LogResidual(0.5), LogResidual(1.5)]

    with pytest.warns(FitFailedWarning, match="1 failed"):
        est = dco.DecoupledRegressor(LINE_OF_LOGS, scores, random_state=0).fit(X, POSITIVE)

    assert set(score_names(est)) == {"LogResidual", "LogResidual(shrunk=1.5)"}
    (failed,) = est.ranking_.failed
    assert "shrunk=0.5" in failed.name
    assert "must hold every label" in failed.reason


@pytest.mark.parametrize(
    ("score", "tune_folds"),
    [(WrappedLogResidual(LogResidual(0.5)), None), (LogResidual(0.5), 4)],
    ids=["wrapped", "folds"],
)
def test_a_single_score_whose_sets_leave_out_labels_is_refused(score, tune_folds):
    est = dco.DecoupledRegressor(LINE_OF_LOGS, score, tune_folds=tune_folds, random_state=0)

    with pytest.raises(ValueError, match="leave out"):
        est.fit(X, POSITIVE)


def test_a_score_whose_sets_hold_all_labels_is_taken_in_folds():
    est = dco.DecoupledRegressor(LINE_OF_LOGS, LogResidual(), tune_folds=4, random_state=0)

    est.fit(X, POSITIVE)

    assert est.best_candidate_.endswith("LogResidual")


@pytest.mark.parametrize("seed", range(20))
def test_a_score_in_single_precision_leaves_out_no_label(seed):
    mean = (1e6 + 100 * np.random.default_rng(0).normal(size=4000)).astype(np.float32)
    y = mean.astype(float) + 100 * np.random.default_rng(seed).normal(size=4000)

    ranking = dco.tune({"plain": (PlainResidual(), dco.Points(mean))}, y, alpha=0.1)

    assert ranking.best == "plain"


@pytest.mark.parametrize("limits", [[0.9, 0.5, 0.2], [0.3, np.inf, 0.8]], ids=str)
def test_thresholds_by_label_follow_the_labels_of_each_fold(limits):
    """A fold that has not seen label 1 lists its labels as 0, 2, 1."""
    rng = np.random.default_rng(0)
    of_two = dco.ClassProbabilities(rng.dirichlet([1, 1], size=30), classes=[0, 2], unseen=[1])
    of_three = dco.ClassProbabilities(rng.dirichlet([1, 1, 1], size=30), classes=[0, 1, 2])
    predictions = TuningPredictions((of_two, of_three), (np.arange(30), np.arange(30, 60)))

    sizes = predictions.sizes(LAC(), np.array([limits]))

    low, middle, high = limits
    of_first_fold = LAC().every_label(of_two) <= [low, high, middle]
    of_second_fold = LAC().every_label(of_three) <= [low, middle, high]
    assert sizes.tolist() == [*of_first_fold.sum(axis=1), *of_second_fold.sum(axis=1)]


# ---------------------------------------------------------------- what fails


class FailingModel(Shifted):
    """A model that cannot be fitted."""

    def fit(self, X, y):
        raise RuntimeError("no fit here")


def test_when_no_model_can_be_fitted_or_predict_each_reason_is_told():
    models = {"one": FailingModel(), "other": Shifted(np.zeros(10))}

    reasons = r"one: RuntimeError: no fit here; other: IndexError: .*1000"
    with pytest.raises(ValueError, match=reasons):
        dco.DecoupledRegressor(models, random_state=0).fit(X, Y)


class FailingScore(APS):
    """A user's score with a fault in it."""

    def observed(self, prediction, y):
        raise IndexError("out of reach")


def test_a_fault_in_a_users_score_costs_that_score_alone():
    X, y = make_classification(300, n_informative=4, n_classes=3, random_state=0)
    scores = [FailingScore(), APS(), RAPS(penalty=0.1, rank_free=1)]
    est = dco.DecoupledClassifier(LogisticRegression(max_iter=500), scores, random_state=0)

    with pytest.warns(FitFailedWarning, match="out of reach"):
        est.fit(X, y)

    assert len(est.ranking_.table) == 2


# ---------------------------------------------------------------- where uncertainty comes from


class OwnSpread(RegressorMixin, BaseEstimator):
    """Has a spread under a name that nobody else knows."""

    def fit(self, X, y):
        self.model_ = Ridge().fit(X, y)
        return self

    def predict(self, X):
        return self.model_.predict(X)

    def predict_std(self, X):
        return np.ones(len(X))


@pytest.mark.parametrize(
    "scores",
    [NormalisedResidual(), [AbsoluteResidual(), NormalisedResidual()]],
    ids=["one score", "a list"],
)
def test_a_model_of_points_is_told_where_spreads_come_from(scores):
    est = dco.DecoupledRegressor({"own": OwnSpread()}, scores, random_state=0)

    remedies = r"return_std=True.*dco\.PointsWithSpread.*dco\.models\.ResidualSpread"
    with pytest.raises(dco.IncompatibleScoreError, match=remedies):
        est.fit(X, Y)


def test_a_model_of_points_is_told_where_quantiles_come_from():
    est = dco.DecoupledRegressor(OwnSpread(), QuantileResidual(), random_state=0)

    with pytest.raises(dco.IncompatibleScoreError, match=r"dco\.models\.QuantilePair") as error:
        est.fit(X, Y)

    assert "ResidualSpread" not in str(error.value)


def test_a_classifier_is_not_told_to_become_a_regressor():
    est = dco.DecoupledClassifier(RandomForestClassifier(5), AbsoluteResidual(), random_state=0)

    with pytest.raises(dco.IncompatibleScoreError) as error:
        est.fit(X, Y > 0)

    assert "dco.models" not in str(error.value)


@pytest.mark.parametrize(
    ("model", "score"),
    [
        (dco.models.ResidualSpread(OwnSpread()), NormalisedResidual()),
        (
            dco.models.QuantilePair(QuantileRegressor(solver="highs"), alpha=0.1),
            QuantileResidual(),
        ),
    ],
    ids=["ResidualSpread", "QuantilePair"],
)
def test_what_the_message_names_works(model, score):
    est = dco.DecoupledRegressor(model, score, random_state=0).fit(X, Y)

    assert len(est.predict_set(X)) == 400
