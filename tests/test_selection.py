"""Each model has its own name, its own fit and its own size; what fails is told by name."""

import threading
from dataclasses import dataclass
from typing import Any, ClassVar
from unittest.mock import ANY

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import BayesianRidge, LogisticRegression, QuantileRegressor, Ridge

import dco
from dco.foundations.errors import IncompatibleScoreError
from dco.scores import AbsoluteResidual, NormalisedResidual, QuantileResidual, Score
from dco.scores.inverse import check_inverse
from dco.scores.names import named_scores, score_label
from dco.sets import Intervals
from dco.tuning.evaluated import TuningPredictions
from dco.tuning.strategies import Optuna, SearchResult, Trial

rng = np.random.default_rng(0)
X = rng.normal(size=(400, 3))
Y = 3 * X[:, 0] + rng.normal(size=400)


class Noted(Optuna):
    """Optuna, with what it found kept for the test."""

    found: SearchResult

    def search(self, evaluate: Any, candidates: Any = ()) -> SearchResult:
        object.__setattr__(self, "found", super().search(evaluate, candidates))
        return self.found


def searched(models: list[Any], **options: Any) -> tuple[dco.DecoupledRegressor, tuple[Trial, ...]]:
    """An estimator that was proposed these models, one after the other, and its trials."""
    pruner = options.pop("pruner", None)
    search = Noted(
        lambda trial: (models[trial.number], AbsoluteResidual()), len(models), seed=0, pruner=pruner
    )
    return dco.DecoupledRegressor([], search=search, random_state=0, **options).fit(
        X, Y
    ), search.found.trials


def test_a_model_that_was_pruned_keeps_its_name_and_gets_its_own_size_when_proposed_again() -> None:
    optuna = pytest.importorskip("optuna")

    class Second(optuna.pruners.BasePruner):  # type: ignore[misc]
        def prune(self, study: Any, trial: Any) -> bool:
            return bool(trial.number == 1)

    useless = Ridge(alpha=1e6)
    fitted, trials = searched(
        [Ridge(1.0), useless, Ridge(2.0), Ridge(alpha=1e6)], pruner=Second(), tune_folds=3
    )
    alone, (trial,) = searched([useless], tune_folds=3)
    assert trials[1].reason == "pruned"
    assert trials[3].objective == trial.objective
    assert trials[2].objective < trials[3].objective / 2
    sizes = {row.name: row.mean_size for row in fitted.ranking_.table}
    assert len(sizes) == 3
    assert sizes["trial 1: Ridge / AbsoluteResidual"] == alone.ranking_.table[0].mean_size
    assert sizes["trial 2: Ridge / AbsoluteResidual"] == trials[2].objective


def test_scores_that_read_other_records_of_one_model_rank_as_if_they_were_listed() -> None:
    """The second proposal asks the model for a spread: it predicts both kinds of record then, and
    neither is lost.
    """
    scores = [AbsoluteResidual(), dco.scores.NormalisedResidual()]
    listed = dco.DecoupledRegressor({"m": BayesianRidge()}, scores, random_state=0).fit(X, Y)
    proposals = iter(scores)
    search = dco.search.Optuna(lambda trial: (BayesianRidge(), next(proposals)), 2, 0)
    found = dco.DecoupledRegressor([], search=search, random_state=0).fit(X, Y)
    sizes = [
        {row.name.partition(" / ")[2]: row.mean_size for row in est.ranking_.table}
        for est in (listed, found)
    ]
    assert sizes[0] == sizes[1]
    assert len(sizes[0]) == 2


class Shifted(RegressorMixin, BaseEstimator):
    """The first column times 3, shifted by one entry of a long table."""

    def __init__(self, table: Any = None) -> None:
        self.table = table

    def fit(self, X: Any, y: Any) -> Any:
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X: Any) -> Any:
        return 3 * np.asarray(X)[:, 0] + self.table[1000]


def test_models_that_differ_in_one_entry_of_a_long_array_are_two() -> None:
    good = np.zeros(2001)
    bad = good.copy()
    bad[1000] = 50.0
    fitted, trials = searched([Shifted(bad), Shifted(good), Shifted(good.copy())])
    assert len(fitted.ranking_.table) == 2
    assert fitted.ranking_.table[0].name.startswith("trial 1: ")
    assert trials[1].objective == trials[2].objective
    assert trials[1].objective < trials[0].objective / 2


class Locked(Shifted):
    """A model with a parameter that has no canonical form."""

    def __init__(self, table: Any = None, lock: Any = None) -> None:
        super().__init__(table)
        self.lock = lock

    def __sklearn_clone__(self) -> Any:
        return Locked(self.table, self.lock)


def test_a_model_that_cannot_be_written_down_is_the_same_as_itself_alone() -> None:
    one, other = (Locked(np.full(2001, value), threading.Lock()) for value in (0.0, 50.0))
    fitted, trials = searched([one, other, one])
    assert trials[0].objective == trials[2].objective
    assert len(fitted.ranking_.table) == 2


class Failing(Shifted):
    """A model that cannot be fitted."""

    def fit(self, X: Any, y: Any) -> Shifted:
        raise RuntimeError("no fit here")


def test_when_no_model_can_be_fitted_or_predict_each_reason_is_told() -> None:
    models = {"one": Failing(), "other": Shifted(np.zeros(10))}
    with pytest.raises(
        ValueError,
        match=r"one: RuntimeError: no fit here; other: IndexError: "
        r".*1000",
    ):
        dco.DecoupledRegressor(models, random_state=0).fit(X, Y)


@dataclass(frozen=True)
class LogResidual(Score):
    """A user's own score, written by the protocol alone; `shrunk` cuts its sets below what its
    scores say.
    """

    shrunk: float = 1.0
    needs: ClassVar[tuple[type, ...]] = (dco.Points,)

    def observed(self, prediction: Any, y: Any) -> Any:
        return np.abs(np.log(np.asarray(y)) - np.log(prediction.mean))

    def sets(self, prediction: Any, threshold: Any) -> Intervals:
        reach = getattr(threshold, "value", threshold) * self.shrunk
        return Intervals(prediction.mean * np.exp(-reach), prediction.mean * np.exp(reach))


def test_a_score_of_ones_own_is_checked_against_its_sets() -> None:
    """Sets that leave out labels of low scores would win by their size and be certified at a level
    they do not have.
    """
    y = np.exp(0.3 * X[:, 0] + 0.1 * rng.normal(size=400))
    model = TransformedTargetRegressor(Ridge(), func=np.log, inverse_func=np.exp)
    # the last is larger than need be, which is valid
    scores = [LogResidual(), LogResidual(0.5), LogResidual(1.5)]
    with pytest.warns(FitFailedWarning, match="1 failed"):
        est = dco.DecoupledRegressor(model, scores, random_state=0).fit(X, y)
    assert {row.name.split(" / ")[1] for row in est.ranking_.table} == {
        "LogResidual",
        "LogResidual(shrunk=1.5)",
    }
    (failed,) = est.ranking_.failed
    assert "shrunk=0.5" in failed.name
    assert "must hold every label" in failed.reason
    for score, folds in ((NeverEmptyOf(LogResidual(0.5)), None), (LogResidual(0.5), 4)):
        with pytest.raises(ValueError, match="leave out"):
            dco.DecoupledRegressor(model, score, tune_folds=folds, random_state=0).fit(X, y)
    est = dco.DecoupledRegressor(model, LogResidual(), tune_folds=4, random_state=0).fit(X, y)
    assert est.best_candidate_.endswith("LogResidual")


@dataclass(frozen=True)
class NeverEmptyOf(LogResidual):
    """A score that wraps another."""

    inner: LogResidual = LogResidual()

    def __init__(self, inner: LogResidual) -> None:
        object.__setattr__(self, "inner", inner)

    def sets(self, prediction: Any, threshold: Any) -> Intervals:
        return self.inner.sets(prediction, threshold)


class Plain(Score):
    """A score that is no dataclass."""

    needs = (dco.Points,)
    observed = AbsoluteResidual().observed
    sets = AbsoluteResidual().sets

    def __init__(self, **parameters: Any) -> None:
        vars(self).update(parameters)


def test_names_of_scores_are_short_and_the_same_in_every_run() -> None:
    assert score_label(dco.scores.LAC()) == "LAC"
    assert score_label(Plain()) == "Plain"
    assert score_label(Plain(power=2)) == "Plain(power=2)"
    losses = np.arange(30.0).reshape(5, 6)
    names = [
        score_label(dco.scores.RiskAverse(loss)) for loss in (losses, losses.copy(), losses + 1)
    ]
    assert names[0] == names[1] != names[2]
    weights = [score_label(Plain(weights=np.r_[np.zeros(5000), last])) for last in (0.0, 1.0)]
    assert weights[0] != weights[1]
    assert all(len(name) < 60 for name in names + weights)
    assert "0x" not in score_label(Plain(key=lambda row: row))


@dataclass
class Unhashable(Plain):
    """A plain dataclass compares by value and so has no hash; its default is compared with an array
    here.
    """

    weights: Any = (1,)


class Slotted(Plain):
    """Without a __dict__ of its own parameters."""

    __slots__ = ("power",)

    def __init__(self, power: int) -> None:
        self.power = power


class Unspoken(Plain):
    """One text for all of its kind."""

    def __repr__(self) -> str:
        return "Unspoken()"


def test_scores_that_share_a_label_are_different_candidates() -> None:
    first, second = Unspoken(power=1), Unspoken(power=2)
    assert named_scores([first, second, Unspoken(power=1)]) == {
        "Unspoken()": ANY,
        "Unspoken()-2": second,
    }
    assert list(named_scores([Slotted(1), Slotted(2)])) == ["Slotted", "Slotted-2"]
    est = dco.DecoupledRegressor(Ridge(), [first, second], random_state=0).fit(X, Y)
    assert est.certificate_.structure.candidates == 2
    proposals = iter([first, second])
    search = dco.search.Optuna(lambda trial: (Ridge(), next(proposals)), 2, 0)
    found = dco.DecoupledRegressor([], search=search, random_state=0).fit(X, Y)
    assert sorted(row.name for row in found.ranking_.table) == [
        "trial 0: Ridge / Unspoken()",
        "trial 0: Ridge / Unspoken()-2",
    ]


@pytest.mark.parametrize("score", [Unhashable(), Unhashable(weights=np.ones(3)), Slotted(1)])
@pytest.mark.parametrize("search", [None, dco.search.Random(2, 0)])
def test_any_object_that_derives_from_score_is_one(score: Any, search: Any) -> None:
    est = dco.DecoupledRegressor([Ridge(), Ridge(2.0)], score, search=search, random_state=0).fit(
        X, Y
    )
    assert type(score).__name__ in est.best_candidate_


def test_an_average_keeps_the_names_of_scores() -> None:
    scores = {"mine": dco.scores.AbsoluteResidual()}
    est = dco.DecoupledRegressor(["linear", "spread"], scores, random_state=0).fit(X, Y)
    names = [row.name for row in est.ranking_.table]
    assert any(name.startswith("average of ") for name in names)
    assert all(name.endswith(" / mine") for name in names)


@pytest.mark.parametrize("limits", [[0.9, 0.5, 0.2], [0.3, np.inf, 0.8]])
def test_thresholds_by_label_follow_the_labels_of_each_fold(limits) -> None:
    """A fold that has not seen label 1 lists its labels as 0, 2, 1."""
    rng = np.random.default_rng(0)
    two = dco.ClassProbabilities(rng.dirichlet([1, 1], size=30), classes=[0, 2], unseen=[1])
    three = dco.ClassProbabilities(rng.dirichlet([1, 1, 1], size=30), classes=[0, 1, 2])
    assert two.labels().tolist() == [0, 2, 1]
    pieces = TuningPredictions((two, three), (np.arange(30), np.arange(30, 60)))
    expected = []
    for record in (two, three):
        own = np.array([limits[label] for label in record.labels()])
        expected += (dco.scores.LAC().every_label(record) <= own).sum(axis=1).tolist()
    assert pieces.sizes(dco.scores.LAC(), np.array([limits])).tolist() == expected


def test_a_score_of_ones_own_is_checked_in_single_precision() -> None:
    prediction = dco.Points((1e6 + 100 * rng.normal(size=4000)).astype(np.float32))
    for seed in range(20):
        high = prediction.mean.astype(float) + 100 * np.random.default_rng(seed).normal(size=4000)
        check_inverse(Plain(), prediction, high, Plain().observed(prediction, high))


class Broken(dco.scores.APS):
    """A user's score with a fault in it."""

    def observed(self, prediction: Any, y: Any) -> Any:
        raise IndexError("out of reach")


def test_a_fault_in_a_users_score_costs_that_score_alone() -> None:
    X, y = make_classification(300, n_informative=4, n_classes=3, random_state=0)
    scores = [Broken(), dco.scores.APS(), dco.scores.RAPS(penalty=0.1, rank_free=1)]
    with pytest.warns(FitFailedWarning, match="out of reach"):
        est = dco.DecoupledClassifier(LogisticRegression(max_iter=500), scores, random_state=0).fit(
            X, y
        )
    assert len(est.ranking_.table) == 2


# --- a model without the uncertainty that a score needs is told where it can come from
# -----------------------------------


class OwnSpread(RegressorMixin, BaseEstimator):
    """Has a spread under a name that nobody else knows."""

    def fit(self, X: Any, y: Any) -> Any:
        self.model_ = Ridge().fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        return self.model_.predict(X)

    def predict_std(self, X: Any) -> Any:
        return np.ones(len(X))


def test_a_model_that_gives_points_is_told_where_spreads_and_quantiles_come_from() -> None:
    for scores in (NormalisedResidual(), [AbsoluteResidual(), NormalisedResidual()]):
        with pytest.raises(
            IncompatibleScoreError,
            match=r"return_std=True.*dco\.PointsWithSpread.*dco\.models\.ResidualSpread",
        ):
            dco.DecoupledRegressor({"own": OwnSpread()}, scores, random_state=0).fit(X, Y)
    with pytest.raises(IncompatibleScoreError, match=r"dco\.models\.QuantilePair") as told:
        dco.DecoupledRegressor(OwnSpread(), QuantileResidual(), random_state=0).fit(X, Y)
    assert "ResidualSpread" not in str(told.value)
    with pytest.raises(IncompatibleScoreError) as told:
        dco.DecoupledClassifier(RandomForestClassifier(5), AbsoluteResidual(), random_state=0).fit(
            X, Y > 0
        )
    assert "dco.models" not in str(told.value)


def test_what_the_message_names_works() -> None:
    fitted = dco.DecoupledRegressor(
        dco.models.ResidualSpread(OwnSpread()), NormalisedResidual(), random_state=0
    ).fit(X, Y)
    assert len(fitted.predict_set(X)) == len(X)
    pair = dco.models.QuantilePair(QuantileRegressor(solver="highs"), alpha=0.1)
    assert (
        dco.DecoupledRegressor(pair, QuantileResidual(), random_state=0).fit(X, Y).best_candidate_
    )
