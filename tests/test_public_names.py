"""The names that callers rely on, with their signatures: parameters may be added, and none renamed
or made positional.
"""

import dataclasses
import inspect
import subprocess
import sys
from functools import reduce

import numpy as np
import pytest

import dco

# what may be passed by position | what must be named; a default is part of the promise
SIGNATURES = """
conformal_rank(n | alpha)
pac_rank(n | alpha, delta)
split_conformal(scores | alpha)
bayesian_quadrature(scores | alpha, delta)
weighted_conformal(scores, weights, new_weights | alpha)
conditional_conformal(scores, features, new_features | alpha)
risk.conformal_risk_control(losses, thresholds | alpha, bound=1.0)
risk.bayesian_quadrature_risk(losses, thresholds | alpha, delta, bound=1.0)
risk.risk_controlling(losses, thresholds | alpha, delta, bound=1.0, test='wsr')
risk.learn_then_test(losses, thresholds | alpha, delta, bound=1.0, correction='fixed-sequence')
risk.bq_confidence(losses | alpha, bound=1.0, method='exact')
ClassProbabilities(probabilities, classes=None, uniforms=None |)
ClassDraws(draws, classes=None, uniforms=None |)
Points(mean |)
PointsWithSpread(mean, spread |)
Quantiles(lower, upper, median=None |)
QuantileFunction(levels, values |)
TargetDraws(draws |)
GaussianMixtures(means, sds | draws_first)
scores.LAC(|)
scores.APS(randomised=False |)
scores.RAPS(penalty, rank_free, randomised=False |)
scores.SAPS(weight, randomised=False |)
scores.TopK(|)
scores.Margin(|)
scores.PosteriorNLL(|)
scores.AddOneIn(|)
scores.NeverEmpty(score |)
scores.AbsoluteResidual(|)
scores.NormalisedResidual(floor=0.0 |)
scores.QuantileResidual(kind='plain' |)
scores.CentralMass(|)
scores.ShortestMass(mass=0.8 |)
scores.PredictiveDensity(|)
scores.HighestDensityMass(|)
scores.RiskOptimal(loss_matrix |)
scores.RiskAverse(loss_matrix |)
tune(candidates, y_tune | alpha)
direct_tune(score, prediction_tune, y_tune | alpha)
select_and_calibrate(candidates, y, new | alpha, method='modsel')
DecoupledClassifier(models=None, scores=None | alpha=0.1, guarantee='marginal', delta=0.05, \
condition_on=None, weights=None, tune_size=None, calibrate_size=None, tune_folds=None, \
refit=True, search=None, objective=None, duplicates='natural', n_jobs=None, random_state=None)
DecoupledRegressor(models=None, scores=None | alpha=0.1, guarantee='marginal', delta=0.05, \
condition_on=None, weights=None, tune_size=None, calibrate_size=None, tune_folds=None, \
refit=True, search=None, objective=None, support=None, \
duplicates='natural', n_jobs=None, random_state=None)
FullConformalRegressor(kernel='smooth' | noise=0.3, alpha=0.1)
FullConformalRegressor.predict_set(self, X, alpha=None |)
FullConformalRegressor.evaluate(self, X, y |)
DecoupledClassifier.fit(self, X, y | tune=None, calibrate=None, groups=None, **params)
DecoupledRegressor.fit(self, X, y | tune=None, calibrate=None, groups=None, **params)
DecoupledClassifier.predict(self, X |)
DecoupledClassifier.predict_proba(self, X |)
DecoupledClassifier.predict_p(self, X |)
DecoupledClassifier.predict_set(self, X, alpha=None |)
DecoupledClassifier.evaluate(self, X, y |)
DecoupledRegressor.predict(self, X |)
DecoupledRegressor.predict_set(self, X, alpha=None |)
DecoupledRegressor.evaluate(self, X, y |)
Monitor(est | error_rate=0.05, duplicates='drop', state=None)
Monitor.update(self, X, y |)
Monitor.report(self |)
Monitor.state(self |)
search.Random(n, random_state |)
search.Optuna(space, trials, random_state |)
save(est, path |)
load(path | trusted=())
Certificate.from_json(text |)
Certificate.to_json(self |)
Certificate.verify(self, X_cal, y_cal | predictor)
plan(n | alpha)
theory.coverage_law(n_cal | alpha)
LabelSets.to_dense(self |)
LabelSets.to_lists(self |)
IntervalUnions.hull(self |)
IntervalUnions.pieces(self, row |)
"""
NAMES_OF_FIRST_ARGUMENTS_ARE_FREE = {"save", "tune"}


def wanted() -> list[str]:
    return [line for line in SIGNATURES.replace("\\\n", "").split("\n") if line]


def found(name: str) -> object:
    return reduce(getattr, name.split("."), dco)


def parts(text: str) -> list[tuple[str, str | None]]:
    """'a, b=1' → [('a', None), ('b', '1')]."""
    pieces = [piece.strip() for piece in text.replace("=()", "=tuple").split(",")]
    return [
        (p.partition("=")[0], p.partition("=")[2].replace("tuple", "()") or None)
        for p in pieces
        if p
    ]


@pytest.mark.parametrize("line", wanted(), ids=lambda line: line.split("(")[0])
def test_signatures_are_kept(line):
    name, inside = line[:-1].split("(", 1)
    first, _, named = inside.partition("|")
    parameters = inspect.signature(found(name)).parameters
    by_place = [
        p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    promised = parts(first)
    assert len(by_place) >= len(promised)
    for parameter, (wanted_name, default) in zip(by_place, promised, strict=False):
        if name not in NAMES_OF_FIRST_ARGUMENTS_ARE_FREE:
            assert parameter.name == wanted_name
        assert default in (None, repr(parameter.default))
    for parameter in by_place[len(promised) :]:
        assert parameter.default is not parameter.empty, (
            f"{name} asks for more by position: {parameter}"
        )
    for wanted_name, default in parts(named):
        if wanted_name.startswith("**"):
            assert any(p.kind is p.VAR_KEYWORD for p in parameters.values())
            continue
        parameter = parameters[wanted_name]
        assert parameter.kind is parameter.KEYWORD_ONLY, (
            f"{name}: {wanted_name} may be passed by position"
        )
        assert default in (None, repr(parameter.default))


def fields(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def test_records_have_the_fields_that_callers_read():
    assert fields(dco.Threshold) >= {"value", "rank", "guarantee", "alpha", "delta", "n"}
    assert fields(dco.WeightedThresholds) >= {
        "values",
        "guarantee",
        "alpha",
        "n",
        "assumption",
        "effective_n",
    }
    assert fields(dco.risk.CertifiedSettings) >= {"indices", "p_values", "guarantee"}
    assert set(dir(dco.Evaluation)) >= {
        "coverage",
        "mean_size",
        "verdict",
        "in_words",
        "consistency",
    }
    assert fields(dco.Evaluation) >= {"overall", "by_condition", "slices", "notes"}
    row = {"name", "ranking_threshold", "miscoverage", "mean_size", "p95_size", "feasible"}
    assert fields(type(one_ranking().table[0])) >= row


def one_ranking() -> dco.Ranking:
    prediction = dco.ClassProbabilities([[0.7, 0.3], [0.4, 0.6]])
    return dco.tune({"lac": (dco.scores.LAC(), prediction)}, np.array([0, 1]), alpha=0.1)


def test_a_ranking_names_its_best():
    assert one_ranking().best == "lac"


def test_certified_settings_are_an_array_of_indices():
    record = dco.risk.learn_then_test(np.zeros((100, 3)), [1, 2, 3], alpha=0.1, delta=0.1)
    assert np.asarray(record).tolist() == record.indices.tolist() == [0, 1, 2]


def test_every_kind_of_set_offers_the_same():
    label_sets = dco.LabelSets(np.eye(2, dtype=bool))
    intervals = dco.Intervals(np.zeros(2), np.ones(2))
    unions = dco.IntervalUnions(np.array([0, 1, 2]), np.zeros(2), np.ones(2))
    for sets in (label_sets, intervals, unions):
        assert (
            len(sets)
            == len(sets.sizes())
            == len(sets.contains(np.zeros(2, dtype=int)))
            == len(sets.is_empty())
            == 2
        )
        assert "index" in inspect.signature(sets.to_frame).parameters
        assert dataclasses.is_dataclass(sets)
        # eq=False
        assert sets != type(sets)(
            **{f.name: getattr(sets, f.name) for f in dataclasses.fields(sets)}
        )
    assert label_sets.is_full().tolist() == [False, False]
    assert intervals.is_infinite().tolist() == unions.is_infinite().tolist() == [False, False]


@pytest.mark.parametrize(
    "score",
    ["LAC", "APS", "TopK", "Margin", "PosteriorNLL", "AbsoluteResidual", "PredictiveDensity"],
)
def test_scores_answer_for_what_happened_and_for_sets(score):
    kind = getattr(dco.scores, score)
    assert list(inspect.signature(kind.observed).parameters) == ["self", "prediction", "y"]
    assert list(inspect.signature(kind.sets).parameters) == ["self", "prediction", "threshold"]


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("OverlappingRolesError", ValueError),
        ("SealBrokenError", RuntimeError),
        ("UnsuitableWorkerError", RuntimeError),
        ("MissingTypeError", ImportError),
        ("InfeasibleLevelError", ValueError),
        ("IncompatibleScoreError", TypeError),
        ("NonFiniteScoreError", ValueError),
        ("CorruptModelError", ValueError),
        ("UntrustedTypeError", TypeError),
    ],
)
def test_errors_are_also_what_a_caller_would_expect(name, builtin):
    assert issubclass(getattr(dco, name), dco.DcoError)
    assert issubclass(getattr(dco, name), builtin)


def test_the_warning_is_a_user_warning():
    assert issubclass(dco.InfeasibleLevelWarning, UserWarning)


@pytest.mark.parametrize(
    "name",
    [
        "bayes.SparseBayesianRegression",
        "bayes.MCDropoutClassifier",
        "models.QuantilePair",
        "models.ResidualSpread",
    ],
)
def test_models_give_prediction_records(name):
    assert callable(found(name).predict_distribution)


@pytest.mark.parametrize("name", ["calibration_size", "pac_gap", "simultaneous_slack"])
def test_theory_takes_its_numbers_by_name(name):
    parameters = inspect.signature(getattr(dco.theory, name)).parameters.values()
    assert all(
        p.kind is p.KEYWORD_ONLY for p in parameters if p.name not in ("n", "n_cal", "n_tune")
    )


PUBLIC_MODULES = [
    "bayes",
    "calibration",
    "certificate",
    "datasets",
    "evaluation",
    "models",
    "objectives",
    "paper",
    "recalibration",
    "report",
    "risk",
    "scores",
    "search",
    "service",
    "sets",
    "storage",
    "theory",
    "tuning",
]


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_a_public_module_is_imported_by_its_name(module):
    code = f"from dco.{module} import *"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_the_names_of_dco_are_those_that_it_loads():
    loaded = {name for names in dco._HOME.values() for name in names.split()}
    assert set(dco.__all__) == loaded | set(dco._MODULES)


def test_every_exported_name_exists_and_is_documented():
    for name in dco.__all__:
        thing = getattr(dco, name)
        assert thing.__doc__, f"dco.{name} has no docstring"


def public_methods():
    """The methods and properties of every public class, as (class, name)."""
    modules = [dco, *(getattr(dco, name) for name in PUBLIC_MODULES)]
    classes = {
        getattr(module, name)
        for module in modules
        for name in module.__all__
        if inspect.isclass(getattr(module, name))
    }
    for public_class in sorted(classes, key=lambda c: (c.__module__, c.__qualname__)):
        for name, member in inspect.getmembers(public_class):
            is_ours = (getattr(member, "__module__", None) or "dco").startswith("dco")
            is_method = inspect.isfunction(member) or isinstance(member, property)
            if is_method and is_ours and not name.startswith("_"):
                yield pytest.param(public_class, name, id=f"{public_class.__name__}.{name}")


@pytest.mark.parametrize(("public_class", "name"), list(public_methods()))
def test_every_public_method_is_documented_by_itself_or_by_its_base_class(public_class, name):
    assert inspect.getdoc(getattr(public_class, name))
