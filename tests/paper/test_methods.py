import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

import dco
from dco.foundations.errors import IncompatibleScoreError
from dco.foundations.ranks import conformal_rank, pac_rank
from dco.paper.methods import METHODS, Given, evaluated_roles
from dco.predictions import ClassProbabilities, Points, Quantiles
from dco.risk import (
    bayesian_quadrature_risk,
    conformal_risk_control,
    learn_then_test,
    miscoverage,
    risk_controlling,
)
from dco.scores import APS, LAC
from dco.scores.decision import RiskAverse, RiskOptimal
from dco.scores.regression import AbsoluteResidual, QuantileResidual
from dco.tuning import tune

SIZES = {"tune": 80, "cal": 120, "test": 60}


def classes(seed=0, k=4):
    """Three roles of probabilities and labels drawn from them, with a flattened and a sharp
    candidate.
    """
    rng = np.random.default_rng(seed)
    records, labels = {}, {}
    for role, n in SIZES.items():
        p = rng.dirichlet(0.5 * np.ones(k), size=n)
        labels[role] = (rng.uniform(size=(n, 1)) > np.cumsum(p, axis=1)).sum(axis=1).clip(max=k - 1)
        flat = (p + 0.3) / (p + 0.3).sum(axis=1, keepdims=True)
        records[role] = {"sharp": ClassProbabilities(p), "flat": ClassProbabilities(flat)}
    entries = {
        f"{kind}-{type(score).__name__}": (score, *(records[role][kind] for role in SIZES))
        for kind in ("flat", "sharp")
        for score in (APS(), LAC())
    }
    return entries, labels


def run(method, candidates, labels, *, alpha=0.1, delta=0.05, fixed=None):
    """The calibration rows stand for the pool too."""
    places = {"tune": (1, "tune"), "calibrate": (2, "cal"), "pool": (2, "cal"), "test": (3, "test")}
    on = {
        role: {name: (entry[0], entry[place]) for name, entry in candidates.items()}
        for role, (place, _) in places.items()
    }
    roles = evaluated_roles(on, {role: labels[name] for role, (_, name) in places.items()})
    return METHODS[method](
        Given(roles, fixed or next(iter(roles)), alpha, delta, structures=on["tune"])
    )


GENERAL = [name for name in METHODS if name not in ("rocp", "cqr")]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("alpha", "delta"), [(0.1, 0.05), (0.2, 0.1), (1 - 0.7, 0.05)])
def test_on_zero_one_loss_everything_is_one_order_statistic(seed, alpha, delta):
    """For one candidate on 0/1 loss: registry, loss-matrix rules and ranks agree exactly."""
    candidates, labels = classes(seed)
    one = {"lac": candidates["sharp-LAC"]}
    score, _, calibrate, _ = one["lac"]
    scores = np.sort(score.observed(calibrate, labels["cal"]))
    cuts = np.unique(scores)
    losses = miscoverage(scores, None, cuts)
    values = {
        name: run(name, one, labels, alpha=alpha, delta=delta).threshold.value for name in GENERAL
    }
    marginal = scores[conformal_rank(len(scores), alpha=alpha) - 1]
    pac = scores[pac_rank(len(scores), alpha=alpha, delta=delta) - 1]
    for name in ("split_cp", "score_tuned_cp", "crc", "dco_warmstart"):
        assert values[name] == marginal
    for name in ("bq", "bcp_crc", "ltt", "dco_pac"):
        assert values[name] == pac
    assert conformal_risk_control(losses, cuts, alpha=alpha).value == values["crc"]
    assert bayesian_quadrature_risk(losses, cuts, alpha=alpha, delta=delta).value == values["bq"]
    assert (
        risk_controlling(losses, cuts, alpha=alpha, delta=delta, test="binomial").value
        == values["bq"]
    )
    certified = learn_then_test(
        losses[:, ::-1], np.arange(losses.shape[1]), alpha=alpha, delta=delta, test="binomial"
    )
    assert cuts[::-1][certified.indices[-1]] == values["ltt"]
    assert pac > marginal


@pytest.mark.parametrize("name", GENERAL)
def test_every_method_says_what_it_is_and_gives_sets(name):
    candidates, labels = classes()
    method, outcome = METHODS[name], run(name, candidates, labels)
    assert outcome.threshold.guarantee == method.guarantee
    assert len(outcome.deployed["test"]) == SIZES["test"]
    assert all((method.name, method.rule, method.assumption, method.reference))
    assert (method.tuned == "nothing") == (method.tuned_on == "none")
    assert (outcome.threshold.delta is not None) == (method.guarantee == "pac")
    if method.tuned == "nothing":
        assert outcome.candidate == "flat-APS"
        assert run(name, candidates, labels, fixed="sharp-LAC").candidate == "sharp-LAC"


def test_tuning_methods_choose_the_smallest_sets():
    """The sharp probabilities are the true ones; LAC on them is the smallest set there is."""
    candidates, labels = classes(1)
    for name in ("dco_warmstart", "direct_tune", "score_tuned_cp", "bcp_crc"):
        assert run(name, candidates, labels).candidate.endswith("LAC")
    assert (
        run("dco_warmstart", candidates, labels).candidate
        == tune(
            {name: entry[:2] for name, entry in candidates.items()}, labels["tune"], alpha=0.1
        ).best
    )


def test_score_tuned_cp_ranks_by_the_sizes_of_split_conformal():
    """19 tuning rows are enough for split conformal at 0.1, and too few for a PAC statement, which
    would rank by name.
    """
    y = np.linspace(0, 1, 19)
    candidates = {
        name: (AbsoluteResidual(), *[Points(np.full(19, mean))] * 3)
        for name, mean in {"far": 2.0, "near": 0.0}.items()
    }
    assert run("score_tuned_cp", candidates, dict.fromkeys(SIZES, y)).candidate == "near"


def test_choosing_on_calibration_rows_pays_by_a_union_bound():
    """Four candidates: each gets delta / 4, and the rank is that of delta / 4."""
    candidates, labels = classes(2)
    for name in ("bcp_crc", "ltt"):
        outcome = run(name, candidates, labels, alpha=0.1, delta=0.1)
        assert outcome.threshold.rank == pac_rank(120, alpha=0.1, delta=0.025)
        assert outcome.threshold.delta == 0.1


def test_methods_see_only_the_roles_they_name():
    """Changing a role that a method does not use changes nothing."""
    candidates, labels = classes(3)
    other = dict(labels)
    other["tune"] = (labels["tune"] + 1) % 4
    for name in GENERAL:
        if METHODS[name].tuned_on != "tune":
            assert run(name, candidates, labels).threshold == run(name, candidates, other).threshold
    other = dict(labels)
    other["cal"] = (labels["cal"] + 1) % 4
    assert (
        run("direct_tune", candidates, labels).threshold
        == run("direct_tune", candidates, other).threshold
    )
    for name in ("dco_warmstart", "dco_pac", "score_tuned_cp"):
        assert run(name, candidates, labels).candidate == run(name, candidates, other).candidate


def test_rocp_takes_decision_scores():
    candidates, labels = classes(4)
    costs = 5 * (1 - np.eye(4))
    decisions = {
        name: (kind(np.vstack([costs, np.ones(4)])), *candidates[base][1:])
        for name, kind, base in (
            ("averse", RiskAverse, "flat-LAC"),
            ("optimal", RiskOptimal, "sharp-LAC"),
        )
    }
    outcome = run("rocp", decisions, labels)
    score, _, calibrate, _ = decisions[outcome.candidate]
    scores = np.sort(score.observed(calibrate, labels["cal"]))
    assert outcome.threshold.value == scores[conformal_rank(120, alpha=0.1) - 1]
    with pytest.raises(
        IncompatibleScoreError, match="ROCP needs a RiskOptimal or RiskAverse score"
    ):
        run("rocp", candidates, labels)


def test_rocp_ranks_by_the_robust_loss():
    """Sets are the true label alone. Losses of 1 inside and 100 outside make 1 + 0.1 * 99; the
    other costs 2 always.
    """
    y = np.tile([0, 1], 20)
    record = ClassProbabilities(np.where(np.arange(2) == y[:, None], 0.99, 0.01))
    candidates = {
        "risky": (RiskOptimal([[1, 100], [100, 1]]), record, record, record),
        "flat": (RiskOptimal([[2, 2], [2, 2]]), record, record, record),
    }
    assert run("rocp", candidates, dict.fromkeys(SIZES, y)).candidate == "flat"


def test_cqr_takes_quantiles():
    rng = np.random.default_rng(5)
    y = {role: rng.normal(size=n) for role, n in SIZES.items()}
    quantiles = {role: Quantiles(np.full(n, -1.0), np.full(n, 1.0)) for role, n in SIZES.items()}
    outcome = run("cqr", {"q": (QuantileResidual(), *quantiles.values())}, y)
    scores = np.sort(np.abs(y["cal"]) - 1)
    assert outcome.threshold.value == pytest.approx(scores[conformal_rank(120, alpha=0.1) - 1])
    candidates, labels = classes()
    with pytest.raises(IncompatibleScoreError, match="CQR needs a QuantileResidual"):
        run("cqr", candidates, labels)


def test_a_candidate_that_fails_on_tuning_rows_is_left_out_and_one_that_fails_later_is_named():
    """As in `tune`. Where every candidate fails, the reasons are in the error."""
    y = dict.fromkeys(SIZES, np.linspace(0, 1, 19))
    points, quantiles = Points(np.zeros(19)), Quantiles(np.zeros(19), np.ones(19))
    both = {
        "broken": (QuantileResidual(), *[points] * 3),
        "fine": (AbsoluteResidual(), *[points] * 3),
    }
    assert run("dco_warmstart", both, y).candidate == "fine"
    with pytest.raises(
        IncompatibleScoreError, match="the only candidate failed on the tuning rows"
    ):
        run("dco_warmstart", {"broken": both["broken"]}, y)
    with pytest.raises(IncompatibleScoreError, match="late failed on calibrate rows"):
        run("dco_warmstart", {"late": (AbsoluteResidual(), points, quantiles, points)}, y)


@pytest.mark.parametrize(
    ("method", "guarantee"), [("dco_warmstart", "marginal"), ("dco_pac", "pac")]
)
def test_the_registry_and_the_estimators_deploy_the_same(method, guarantee):
    """DCO is written once: the same fitted models on the same rows give the same structure, rank
    and threshold.
    """
    rng = np.random.default_rng(7)
    X = rng.uniform(-2, 2, (500, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(500)
    models = {
        "line": Ridge().fit(X[:200], y[:200]),
        "tree": DecisionTreeRegressor(max_depth=4).fit(X[:200], y[:200]),
    }
    places = {
        "tune": slice(200, 300),
        "calibrate": slice(300, 400),
        "pool": slice(200, 400),
        "test": slice(400, 500),
    }
    on = {
        role: {
            name: (AbsoluteResidual(), Points(model.predict(X[rows])))
            for name, model in models.items()
        }
        for role, rows in places.items()
    }
    roles = evaluated_roles(on, {role: y[rows] for role, rows in places.items()})
    choice = METHODS[method](Given(roles, "line", 0.1))
    frozen = {name: FrozenEstimator(model) for name, model in models.items()}
    fitted = dco.DecoupledRegressor(
        frozen, AbsoluteResidual(), alpha=0.1, guarantee=guarantee, refit=False
    ).fit(X[:200], y[:200], tune=(X[200:300], y[200:300]), calibrate=(X[300:400], y[300:400]))
    assert choice.candidate in fitted.best_candidate_
    found = fitted.predictor_.calibration.conditions[0].threshold
    assert (found.rank, found.n, found.guarantee) == (
        choice.threshold.rank,
        choice.threshold.n,
        choice.threshold.guarantee,
    )
    assert found.value == pytest.approx(choice.threshold.value, rel=1e-9)
