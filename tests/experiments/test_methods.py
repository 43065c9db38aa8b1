from __future__ import annotations

import numpy as np
import pytest

from dco.foundations.errors import IncompatibleScoreError
from dco.foundations.ranks import conformal_rank, pac_rank
from dco.guarantees.rules import bayesian_quadrature_risk, conformal_risk_control, learn_then_test, risk_controlling
from dco.losses import miscoverage
from dco.predictions import ClassProbabilities, Points, Quantiles
from dco.reproduction.methods import METHODS, run_method
from dco.scores.classification import APS, LAC
from dco.scores.decision import RiskAverse, RiskOptimal
from dco.scores.regression import AbsoluteResidual, QuantileResidual
from dco.tuning import tune

SIZES = {"tune": 80, "cal": 120, "test": 60}


def classes(seed=0, k=4):
    """Three roles of probabilities and labels drawn from them, with a flattened and a sharp candidate."""
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


def run(method, candidates, labels, **options):
    return run_method(method, candidates, labels["tune"], labels["cal"], **({"alpha": 0.1, "delta": 0.05} | options))


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
    values = {name: run(name, one, labels, alpha=alpha, delta=delta).threshold.value for name in GENERAL}
    marginal = scores[conformal_rank(len(scores), alpha=alpha) - 1]
    pac = scores[pac_rank(len(scores), alpha=alpha, delta=delta) - 1]
    for name in ("split_cp", "score_tuned_cp", "crc", "dco_warmstart"):
        assert values[name] == marginal
    for name in ("bq", "bcp_crc", "ltt", "dco_pac"):
        assert values[name] == pac
    assert conformal_risk_control(losses, cuts, alpha=alpha).value == values["crc"]
    assert bayesian_quadrature_risk(losses, cuts, alpha=alpha, delta=delta).value == values["bq"]
    assert risk_controlling(losses, cuts, alpha=alpha, delta=delta, test="binomial").value == values["bq"]
    certified = learn_then_test(losses[:, ::-1], alpha=alpha, delta=delta, test="binomial")
    assert cuts[::-1][certified.indices[-1]] == values["ltt"]
    assert pac > marginal


def test_direct_tune_deploys_the_tuning_order_statistic():
    candidates, labels = classes()
    outcome = run("direct_tune", candidates, labels, alpha=0.1)
    score, tuning, _, _ = candidates[outcome.candidate]
    assert outcome.threshold.value == np.sort(score.observed(tuning, labels["tune"]))[80 - 8 - 1]
    assert outcome.threshold.guarantee == "none"


@pytest.mark.parametrize("name", GENERAL)
def test_every_method_says_what_it_is_and_gives_sets(name):
    candidates, labels = classes()
    method, outcome = METHODS[name], run(name, candidates, labels)
    assert outcome.threshold.guarantee == method.guarantee
    assert len(outcome.sets) == SIZES["test"]
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
        == tune({name: entry[:2] for name, entry in candidates.items()}, labels["tune"], alpha=0.1).best
    )


def test_score_tuned_cp_ranks_by_the_sizes_of_split_conformal():
    """19 tuning rows are enough for split conformal at 0.1, and too few for a PAC statement, which would rank by name."""
    y = np.linspace(0, 1, 19)
    candidates = {
        name: (AbsoluteResidual(), *[Points(np.full(19, mean))] * 3) for name, mean in {"far": 2.0, "near": 0.0}.items()
    }
    assert run_method("score_tuned_cp", candidates, y, y, alpha=0.1, delta=0.05).candidate == "near"


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
    assert run("direct_tune", candidates, labels).threshold == run("direct_tune", candidates, other).threshold
    for name in ("dco_warmstart", "dco_pac", "score_tuned_cp"):
        assert run(name, candidates, labels).candidate == run(name, candidates, other).candidate


def test_rocp_takes_decision_scores():
    candidates, labels = classes(4)
    costs = 5 * (1 - np.eye(4))
    decisions = {
        name: (kind(np.vstack([costs, np.ones(4)])), *candidates[base][1:])
        for name, kind, base in (("averse", RiskAverse, "flat-LAC"), ("optimal", RiskOptimal, "sharp-LAC"))
    }
    outcome = run("rocp", decisions, labels)
    score, _, calibrate, _ = decisions[outcome.candidate]
    scores = np.sort(score.observed(calibrate, labels["cal"]))
    assert outcome.threshold.value == scores[conformal_rank(120, alpha=0.1) - 1]
    with pytest.raises(IncompatibleScoreError, match="ROCP needs RiskOptimal"):
        run("rocp", candidates, labels)


def test_rocp_ranks_by_the_robust_loss():
    """Sets are the true label alone. Losses of 1 inside and 100 outside make 1 + 0.1 * 99; the other costs 2 always."""
    y = np.tile([0, 1], 20)
    record = ClassProbabilities(np.where(np.arange(2) == y[:, None], 0.99, 0.01))
    candidates = {
        "risky": (RiskOptimal([[1, 100], [100, 1]]), record, record, record),
        "flat": (RiskOptimal([[2, 2], [2, 2]]), record, record, record),
    }
    assert run_method("rocp", candidates, y, y, alpha=0.1).candidate == "flat"


def test_cqr_takes_quantiles():
    rng = np.random.default_rng(5)
    y = {role: rng.normal(size=n) for role, n in SIZES.items()}
    quantiles = {role: Quantiles(np.full(n, -1.0), np.full(n, 1.0)) for role, n in SIZES.items()}
    outcome = run_method("cqr", {"q": (QuantileResidual(), *quantiles.values())}, y["tune"], y["cal"], alpha=0.1)
    scores = np.sort(np.abs(y["cal"]) - 1)
    assert outcome.threshold.value == pytest.approx(scores[conformal_rank(120, alpha=0.1) - 1])
    candidates, labels = classes()
    with pytest.raises(IncompatibleScoreError, match="CQR needs a QuantileResidual"):
        run("cqr", candidates, labels)


def test_the_table_of_the_paper_is_complete():
    names = {method.name for method in METHODS.values()}
    assert {
        "Split CP",
        "Score-tuned CP",
        "CRC",
        "BQ",
        "BCP-CRC",
        "LTT",
        "ROCP",
        "DCO-Warmstart",
        "DirectTune",
        "CQR",
    } <= names


def test_bad_input_is_refused():
    candidates, labels = classes()
    with pytest.raises(ValueError, match="there is no method"):
        run("magic", candidates, labels)
    with pytest.raises(ValueError, match="at least one"):
        run("split_cp", {}, labels)
    with pytest.raises(ValueError, match="not among the candidates"):
        run("split_cp", candidates, labels, fixed="none")
