"""Every method of Table 1 does what its row says, and DCO is what the estimators deploy."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

import dco
from dco import ClassProbabilities, IncompatibleScoreError, Points, Quantiles
from dco.paper import METHODS, TABLE_ROWS, Task, score_on_roles
from dco.risk import (
    bayesian_quadrature_risk,
    conformal_risk_control,
    learn_then_test,
    miscoverage,
    risk_controlling,
)
from dco.scores import APS, LAC, AbsoluteResidual, QuantileResidual, RiskAverse, RiskOptimal

SIZES = {"tune": 80, "calibrate": 120, "test": 60}
SOURCE = {"tune": "tune", "calibrate": "calibrate", "pool": "calibrate", "test": "test"}
GENERAL = [name for name in METHODS if name not in ("rocp", "cqr")]


def make_classes(seed=0, n_classes=4):
    """Draw labels from sharp probabilities, by role; flattened ones are the other candidate.

    Candidates are {role: {name: (score, prediction)}}; the calibration rows stand for the pool too.
    """
    rng = np.random.default_rng(seed)
    predictions, labels = {}, {}
    for role, n in SIZES.items():
        sharp = rng.dirichlet(0.5 * np.ones(n_classes), size=n)
        uniforms = rng.uniform(size=(n, 1))
        labels[role] = (uniforms > np.cumsum(sharp, axis=1)).sum(axis=1).clip(max=n_classes - 1)
        flat = (sharp + 0.3) / (sharp + 0.3).sum(axis=1, keepdims=True)
        predictions[role] = {"flat": ClassProbabilities(flat), "sharp": ClassProbabilities(sharp)}
    pairs = {
        role: {
            f"{kind}-{type(score).__name__}": (score, predictions[source][kind])
            for kind in ("flat", "sharp")
            for score in (APS(), LAC())
        }
        for role, source in SOURCE.items()
    }
    return pairs, labels


def with_records(candidates):
    """Give {name: (score, tune, calibrate, test)} by role."""
    position = {"tune": 1, "calibrate": 2, "pool": 2, "test": 3}
    return {
        role: {name: (entry[0], entry[position[role]]) for name, entry in candidates.items()}
        for role in SOURCE
    }


def run(method, pairs, targets, *, alpha=0.1, delta=0.05, fixed=None):
    candidates = score_on_roles(pairs, {role: targets[source] for role, source in SOURCE.items()})
    task = Task(
        candidates,
        y_tune=targets["tune"],
        fixed=fixed or next(iter(candidates)),
        alpha=alpha,
        delta=delta,
    )
    return METHODS[method](task)


def sharp_lac_scores(seed):
    """Return the scores of one candidate on the calibration rows, and that candidate alone."""
    pairs, labels = make_classes(seed)
    one = {role: {"lac": of_role["sharp-LAC"]} for role, of_role in pairs.items()}
    score, prediction = one["calibrate"]["lac"]
    return np.sort(score.observed(prediction, labels["calibrate"])), one, labels


# ---- on 0/1 loss every rule is one order statistic


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("alpha", "delta"), [(0.1, 0.05), (0.2, 0.1), (1 - 0.7, 0.05)])
def test_registry_ranks_and_rules_for_loss_matrices_agree(seed, alpha, delta):
    scores, one, labels = sharp_lac_scores(seed)
    marginal = scores[dco.conformal_rank(120, alpha=alpha) - 1]
    pac = scores[dco.pac_rank(120, alpha=alpha, delta=delta) - 1]
    values = {
        name: run(name, one, labels, alpha=alpha, delta=delta).threshold.value for name in GENERAL
    }
    assert {values[name] for name in ("split_cp", "score_tuned_cp", "crc", "dco_warmstart")} == {
        marginal
    }
    assert {values[name] for name in ("bq", "bcp_crc", "ltt", "dco_pac")} == {pac}

    cuts = np.unique(scores)
    losses = miscoverage(scores, None, cuts)
    levels = {"alpha": alpha, "delta": delta}
    assert conformal_risk_control(losses, cuts, alpha=alpha).value == marginal
    assert bayesian_quadrature_risk(losses, cuts, **levels).value == pac
    assert risk_controlling(losses, cuts, **levels, test="binomial").value == pac
    settings = np.arange(losses.shape[1])
    certified = learn_then_test(losses[:, ::-1], settings, **levels, test="binomial")
    assert cuts[::-1][certified.indices[-1]] == pac


# ---- what each row of the registry says


@pytest.mark.parametrize("name", GENERAL)
def test_a_threshold_states_the_claim_of_its_method(name):
    method, choice = METHODS[name], run(name, *make_classes())
    assert choice.threshold.guarantee == method.guarantee
    assert (choice.threshold.delta is not None) == (method.guarantee == "pac")
    assert (method.tuned == "nothing") == (method.tuned_on == "none")
    assert len(choice.deployed.test.scores) == SIZES["test"]


@pytest.mark.parametrize("name", [name for name in GENERAL if METHODS[name].tuned == "nothing"])
def test_what_searches_nothing_takes_the_fixed_candidate(name):
    assert run(name, *make_classes(), fixed="sharp-LAC").candidate == "sharp-LAC"


@pytest.mark.parametrize("name", ["dco_warmstart", "direct_tune", "score_tuned_cp", "bcp_crc"])
def test_what_searches_takes_the_smallest_sets(name):
    """The sharp probabilities are the true ones; LAC on them has the smallest sets there are."""
    assert run(name, *make_classes(1)).candidate.endswith("LAC")


def test_dco_chooses_as_tune_does():
    pairs, labels = make_classes(1)
    best = dco.tune(pairs["tune"], labels["tune"], alpha=0.1).best
    assert run("dco_warmstart", pairs, labels).candidate == best


def test_score_tuned_cp_ranks_by_the_sizes_of_split_conformal():
    """19 tuning rows are enough for split conformal at .1 and too few for a PAC statement, which
    would rank by name.
    """
    y = np.linspace(0, 1, 19)
    candidates = {
        name: (AbsoluteResidual(), *[Points(np.full(19, mean))] * 3)
        for name, mean in {"far": 2.0, "near": 0.0}.items()
    }
    targets = dict.fromkeys(SIZES, y)
    assert run("score_tuned_cp", with_records(candidates), targets).candidate == "near"


@pytest.mark.parametrize("name", ["bcp_crc", "ltt"])
def test_choosing_on_calibration_rows_pays_by_a_union_bound(name):
    """Four candidates: each gets delta / 4, and the rank is that of delta / 4."""
    threshold = run(name, *make_classes(2), alpha=0.1, delta=0.1).threshold
    assert threshold.rank == dco.pac_rank(120, alpha=0.1, delta=0.025)
    assert threshold.delta == 0.1


@pytest.mark.parametrize("name", [name for name in GENERAL if METHODS[name].tuned_on != "tune"])
def test_tuning_rows_change_nothing_for_methods_that_do_not_tune_on_them(name):
    pairs, labels = make_classes(3)
    others = {**labels, "tune": (labels["tune"] + 1) % 4}
    assert run(name, pairs, labels).threshold == run(name, pairs, others).threshold


@pytest.mark.parametrize("name", ["dco_warmstart", "dco_pac", "score_tuned_cp"])
def test_calibration_rows_choose_nothing_for_methods_that_tune(name):
    pairs, labels = make_classes(3)
    others = {**labels, "calibrate": (labels["calibrate"] + 1) % 4}
    assert run(name, pairs, labels).candidate == run(name, pairs, others).candidate


def test_direct_tune_never_looks_at_calibration_rows():
    pairs, labels = make_classes(3)
    others = {**labels, "calibrate": (labels["calibrate"] + 1) % 4}
    assert (
        run("direct_tune", pairs, labels).threshold == run("direct_tune", pairs, others).threshold
    )


def test_what_chooses_on_its_own_rows_claims_nothing():
    claims = {title: (method.guarantee, method.has_law) for title, method in TABLE_ROWS.items()}
    for title in (
        "DirectTune, searched Φ",
        "Matched-Φ BQ, δ uncorrected",
        "DCO's structure, BQ on the pool",
        "EFCP (tuned and calibrated on the pool)",
    ):
        assert claims[title] == ("none", False)
    assert claims["Matched-Φ BQ, δ/|Φ|"] == ("pac", False)
    assert claims["DCO, refit"] == ("marginal", True)


# ---- methods for some scores


def test_rocp_calibrates_a_decision_score():
    pairs, labels = make_classes(4)
    costs = np.vstack([5 * (1 - np.eye(4)), np.ones(4)])
    decisions = {
        role: {
            "averse": (RiskAverse(costs), of_role["flat-LAC"][1]),
            "optimal": (RiskOptimal(costs), of_role["sharp-LAC"][1]),
        }
        for role, of_role in pairs.items()
    }
    choice = run("rocp", decisions, labels)
    score, prediction = decisions["calibrate"][choice.candidate]
    scores = np.sort(score.observed(prediction, labels["calibrate"]))
    assert choice.threshold.value == scores[dco.conformal_rank(120, alpha=0.1) - 1]


def test_rocp_refuses_other_scores():
    with pytest.raises(
        IncompatibleScoreError, match="ROCP needs a RiskOptimal or RiskAverse score"
    ):
        run("rocp", *make_classes(4))


def test_rocp_ranks_by_the_robust_loss():
    """Sets are the true label alone. Losses of 1 inside and 100 outside make 1 + 0.1 * 99; the
    other candidate costs 2 always.
    """
    y = np.tile([0, 1], 20)
    record = ClassProbabilities(np.where(np.arange(2) == y[:, None], 0.99, 0.01))
    candidates = {
        "risky": (RiskOptimal([[1, 100], [100, 1]]), record, record, record),
        "flat": (RiskOptimal([[2, 2], [2, 2]]), record, record, record),
    }
    choice = run("rocp", with_records(candidates), dict.fromkeys(SIZES, y))
    assert choice.candidate == "flat"


def test_cqr_calibrates_quantiles():
    rng = np.random.default_rng(5)
    y = {role: rng.normal(size=n) for role, n in SIZES.items()}
    ends = {role: Quantiles(np.full(n, -1.0), np.full(n, 1.0)) for role, n in SIZES.items()}
    choice = run("cqr", with_records({"q": (QuantileResidual(), *ends.values())}), y)
    scores = np.sort(np.abs(y["calibrate"]) - 1)
    assert choice.threshold.value == pytest.approx(scores[dco.conformal_rank(120, alpha=0.1) - 1])


def test_cqr_refuses_other_scores():
    with pytest.raises(IncompatibleScoreError, match="CQR needs a QuantileResidual"):
        run("cqr", *make_classes())


# ---- candidates that fail

Y = dict.fromkeys(SIZES, np.linspace(0, 1, 19))
POINTS = Points(np.zeros(19))
QUANTILES = Quantiles(np.zeros(19), np.ones(19))
BROKEN = (QuantileResidual(), POINTS, POINTS, POINTS)
FINE = (AbsoluteResidual(), POINTS, POINTS, POINTS)
LATE = (AbsoluteResidual(), POINTS, QUANTILES, POINTS)


def test_a_candidate_that_fails_on_tuning_rows_is_left_out():
    pairs = with_records({"broken": BROKEN, "fine": FINE})
    assert run("dco_warmstart", pairs, Y).candidate == "fine"


def test_where_all_fail_on_tuning_rows_the_error_gives_the_reasons():
    with pytest.raises(IncompatibleScoreError, match="candidate failed on the tuning rows"):
        run("dco_warmstart", with_records({"broken": BROKEN}), Y)


def test_a_candidate_that_fails_later_is_named():
    with pytest.raises(IncompatibleScoreError, match="late failed on calibrate rows"):
        run("dco_warmstart", with_records({"late": LATE}), Y)


# ---- DCO is written once

ROLES = {"train": slice(0, 200), "tune": slice(200, 300), "calibrate": slice(300, 400)}


def make_table():
    rng = np.random.default_rng(7)
    X = rng.uniform(-2, 2, (500, 2))
    return X, np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(500)


def candidates_of(models, X, y):
    """Score fitted models on tuning, calibration and test rows."""
    rows = {
        "tune": ROLES["tune"],
        "calibrate": ROLES["calibrate"],
        "pool": slice(200, 400),
        "test": slice(400, 500),
    }
    pairs = {
        role: {
            name: (AbsoluteResidual(), Points(model.predict(X[at])))
            for name, model in models.items()
        }
        for role, at in rows.items()
    }
    return score_on_roles(pairs, {role: y[at] for role, at in rows.items()})


def fit_estimator(models, X, y, **options):
    estimator = dco.DecoupledRegressor(models, AbsoluteResidual(), alpha=0.1, **options)
    tune, calibrate = ((X[ROLES[role]], y[ROLES[role]]) for role in ("tune", "calibrate"))
    return estimator.fit(X[:200], y[:200], tune=tune, calibrate=calibrate)


def assert_same_deployment(choice, estimator, X):
    """Same structure, same rank and claim, and the same intervals on test rows."""
    test = choice.deployed.test
    ours = test.score.sets(test.prediction, choice.threshold)
    theirs = estimator.predict_set(X[400:])
    certificate = estimator.certificate_
    assert choice.candidate in estimator.best_candidate_
    assert choice.threshold.guarantee == certificate.guarantee
    np.testing.assert_allclose(ours.lower, theirs.lower, rtol=1e-9)
    np.testing.assert_allclose(ours.upper, theirs.upper, rtol=1e-9)


@pytest.mark.parametrize(
    ("method", "guarantee"), [("dco_warmstart", "marginal"), ("dco_pac", "pac")]
)
def test_the_registry_and_the_estimators_deploy_the_same(method, guarantee):
    X, y = make_table()
    models = {"line": Ridge(), "tree": DecisionTreeRegressor(max_depth=4)}
    models = {name: model.fit(X[:200], y[:200]) for name, model in models.items()}
    task = Task(candidates_of(models, X, y), y_tune=y[ROLES["tune"]], fixed="line", alpha=0.1)
    frozen = {name: FrozenEstimator(model) for name, model in models.items()}
    estimator = fit_estimator(frozen, X, y, guarantee=guarantee, refit=False)
    assert_same_deployment(METHODS[method](task), estimator, X)


def test_the_refit_row_is_what_the_estimator_deploys():
    """The winner on tuning rows, fitted again on training and tuning rows, then calibrated."""
    X, y = make_table()
    models = {"line": Ridge(), "tree": DecisionTreeRegressor(max_depth=4, random_state=0)}
    first = {name: clone(model).fit(X[:200], y[:200]) for name, model in models.items()}
    candidates = candidates_of(first, X, y)
    again = {name: clone(model).fit(X[:300], y[:300]) for name, model in models.items()}
    task = Task(
        candidates,
        y_tune=y[ROLES["tune"]],
        fixed="line",
        alpha=0.1,
        refit=candidates_of(again, X, y).__getitem__,
    )
    choice = TABLE_ROWS["DCO, refit"](task)
    without_refit = TABLE_ROWS["DCO-Warmstart"](task)
    assert_same_deployment(choice, fit_estimator(models, X, y, refit=True), X)
    assert choice.threshold.value != without_refit.threshold.value


def test_a_task_without_refit_says_so():
    X, y = make_table()
    candidates = candidates_of({"line": Ridge().fit(X[:200], y[:200])}, X, y)
    task = Task(candidates, y_tune=y[ROLES["tune"]], fixed="line", alpha=0.1)
    with pytest.raises(ValueError, match="line cannot be fitted again"):
        TABLE_ROWS["DCO, refit"](task)
