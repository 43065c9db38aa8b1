"""Every method of the paper in one registry: what is chosen, on which rows, by which rule, with
which claim.

`METHODS` is the paper's Table 1, which `dco compare` runs too. `TABLE_ROWS` names the rows of the
paper's result tables: the same methods under the names of those tables, and the paper's controls. A
method looks at candidates on tuning and calibration rows (`Given`) and gives the structure and the
threshold that are deployed. All methods are for 0/1 loss (miscoverage). There each rule is one
order statistic, and the registry uses it; tests show that the rules for loss matrices give the same
value.

Two entries differ from the paper's Table 1. CRC controls an expectation and has no delta; on 0/1
loss it is split conformal prediction. BQ, BCP-CRC and LTT are the high-probability rules. And a
rule that chooses among candidates on the rows that certify it pays by a union bound, delta /
|candidates| each; without it the claim would be false.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.calibration import bayesian_quadrature, split_conformal
from dco.foundations.arrays import AnyArray, Floats
from dco.foundations.errors import IncompatibleScoreError
from dco.foundations.ranks import Guarantee, Level, Threshold, as_rational
from dco.predictions import ClassDraws, ClassProbabilities
from dco.scores.decision import RiskAverse, RiskOptimal
from dco.scores.regression import QuantileResidual
from dco.scores.score import Score
from dco.tuning import EvaluatedCandidate, rank_evaluated
from dco.tuning.evaluated import evaluate_pairs
from dco.tuning.objectives import Aimed
from dco.tuning.ranking import all_failed
from dco.tuning.search import Candidates, checked_pairs, checked_targets, tuning_threshold
from dco.tuning.select_and_calibrate import Method as Selection
from dco.tuning.select_and_calibrate import SelectedSets, select_and_calibrate

Tuned: TypeAlias = Literal["nothing", "score", "structure", "threshold", "structure and threshold"]
Role: TypeAlias = Literal["tune", "calibrate", "pool", "test"]
# one candidate on the rows of each role; the pool is tune + calibrate
ByRole: TypeAlias = Mapping[Role, EvaluatedCandidate]


@dataclass(frozen=True, eq=False)
class Given:
    """What a method may look at: every candidate by role (no method reads "test"), and the level.

    `fixed` is the candidate of methods that search nothing. `refit` gives a candidate fitted again
    on more rows, which then calibrates and predicts in place of the one that was tuned.
    `structures` are needed by methods that read predictions.
    """

    candidates: Mapping[str, ByRole]
    fixed: str
    alpha: Level
    delta: Level = 0.05
    refit: Callable[[str], ByRole] | None = None
    structures: Candidates = field(default_factory=dict)
    # of DCO; another one than the paper's is for `dco compare` alone
    objective: Aimed = "mean_size"

    def deployed(self, name: str) -> ByRole:
        """The candidate that calibrates and predicts."""
        return self.candidates[name] if self.refit is None else self.refit(name)


@dataclass(frozen=True, eq=False)
class Choice:
    """What a method deploys: a candidate, its threshold, and the candidate on the rows of each
    role.
    """

    candidate: str
    threshold: Threshold
    deployed: ByRole


@dataclass(frozen=True)
class Method:
    """One row of Table 1: `choose` gives the candidate and the threshold that are deployed.

    `law`: the threshold is an order statistic of scores exchangeable with test scores, so that
    coverage has the Beta-binomial law of its rank. `needs` are the scores that it applies to, where
    it does not apply to all.
    """

    name: str
    tuned: Tuned
    tuned_on: Literal["none", "tune", "calibrate"]
    calibrated_on: Literal["none", "calibrate"]
    rule: str
    guarantee: Guarantee
    assumption: str
    reference: str
    choose: Callable[[Given], tuple[str, Threshold]]
    law: bool = True
    needs: tuple[type[Score], ...] = ()

    def suits(self, score: Score) -> bool:
        """Whether the method applies to a candidate with this score."""
        return not self.needs or isinstance(score, self.needs)

    def __call__(self, rows: Given) -> Choice:
        """Choose a candidate and a threshold; the threshold states the claim of the method."""
        for other, (score, _) in rows.structures.items():
            if not self.suits(score):
                kinds = " or ".join(kind.__name__ for kind in self.needs)
                raise IncompatibleScoreError(
                    f"{self.name} needs a {kinds} score, but the candidate {other!r} has "
                    f"{score!r:.100}."
                )
        name, threshold = self.choose(rows)
        delta = float(as_rational(rows.delta, name="delta")) if self.guarantee == "pac" else None
        stated = replace(threshold, guarantee=self.guarantee, delta=delta)
        return Choice(name, stated, rows.deployed(name))


def evaluated_roles(
    candidates: Mapping[Role, Candidates], targets: Mapping[Role, ArrayLike]
) -> dict[str, ByRole]:
    """Each candidate on the rows of each role; a candidate whose scores fail on tuning rows is left
    out, as in `tune`.
    """
    done, lost = evaluate_pairs(checked_pairs(candidates["tune"]), checked_targets(targets["tune"]))
    if not done:
        raise all_failed(lost)
    roles: dict[str, dict[Role, EvaluatedCandidate]] = {
        entry.name: {"tune": entry} for entry in done
    }
    for role in candidates:
        if role != "tune":
            pairs = checked_pairs({name: candidates[role][name] for name in roles})
            found, lost = evaluate_pairs(pairs, checked_targets(targets[role]))
            for name, problem in lost.items():
                raise type(problem)(
                    f"{name} failed on {role} rows. {type(problem).__name__}: {problem}"
                )
            for entry in found:
                roles[entry.name][role] = entry
    return dict(roles)


# ---- rules: scores -> threshold
# ----------------------------------------------------------------------------------------

Rule: TypeAlias = Callable[[Given, Floats], Threshold]


def _marginal(rows: Given, scores: Floats) -> Threshold:
    return split_conformal(scores, alpha=rows.alpha)


def _pac(rows: Given, scores: Floats) -> Threshold:
    return bayesian_quadrature(scores, alpha=rows.alpha, delta=rows.delta)


def _pac_for_all(rows: Given, scores: Floats) -> Threshold:
    share = as_rational(rows.delta, name="delta") / Fraction(len(rows.candidates))
    return bayesian_quadrature(scores, alpha=rows.alpha, delta=share)


def _empirical(rows: Given, scores: Floats) -> Threshold:
    return tuning_threshold(scores, alpha=rows.alpha)


# ---- how a structure is chosen, and which rows give its threshold
# -------------------------------------------------------


def _decoupled(rows: Given, *, role: Role = "calibrate", rule: Rule) -> tuple[str, Threshold]:
    """DCO. With another role than "calibrate" the same rows choose and calibrate: DirectTune, and
    one of the controls.
    """
    tuning = [parts["tune"] for parts in rows.candidates.values()]
    best = rank_evaluated(tuning, alpha=rows.alpha, objective=rows.objective).best
    return best, rule(rows, rows.deployed(best)[role].scores)


def _fixed(rows: Given, *, role: Role = "pool", rule: Rule) -> tuple[str, Threshold]:
    """The candidate that was named in advance."""
    return rows.fixed, rule(rows, rows.deployed(rows.fixed)[role].scores)


def _smallest(rows: Given, *, role: Role = "pool", rule: Rule) -> tuple[str, Threshold]:
    """The candidate whose sets are smallest on the rows that also give its threshold."""
    thresholds = {name: rule(rows, parts[role].scores) for name, parts in rows.candidates.items()}
    sizes = {
        name: np.mean(rows.candidates[name][role].sizes_at(each.value))
        for name, each in thresholds.items()
    }
    best = min(sizes, key=lambda name: sizes[name])
    return best, thresholds[best]


def _score_tuned_cp(rows: Given) -> tuple[str, Threshold]:
    """Each candidate is conformalised on the tuning rows and the smallest sets win, as RAPS tunes
    its penalty.
    """
    best, _ = _smallest(rows, role="tune", rule=_marginal)
    return best, _marginal(rows, rows.deployed(best)["calibrate"].scores)


def _rocp(rows: Given) -> tuple[str, Threshold]:
    """The decision candidate with the least mean robust loss on the tuning rows, calibrated on the
    calibration rows.
    """
    losses = {}
    for name, (score, prediction) in rows.structures.items():
        assert isinstance(score, (RiskOptimal, RiskAverse))
        assert isinstance(prediction, (ClassProbabilities, ClassDraws))
        sets = score.sets(prediction, _empirical(rows, rows.candidates[name]["tune"].scores))
        chosen = RiskOptimal(score.loss_matrix, score.labels).act(
            sets, prediction, alpha=rows.alpha
        )
        losses[name] = float(chosen.robust_loss.mean())
    best = min(losses, key=lambda name: losses[name])
    return best, _marginal(rows, rows.deployed(best)["calibrate"].scores)


METHODS: dict[str, Method] = {
    "split_cp": Method(
        "Split CP",
        "nothing",
        "none",
        "calibrate",
        "k-th smallest score, k = ceil((n + 1)(1 - alpha))",
        "marginal",
        "exchangeable rows",
        "Papadopoulos et al. (2002)",
        partial(_fixed, rule=_marginal),
    ),
    "score_tuned_cp": Method(
        "Score-tuned CP",
        "score",
        "tune",
        "calibrate",
        "smallest sets after split CP on tuning rows; then split CP",
        "marginal",
        "exchangeable rows",
        "Angelopoulos et al. (2021)",
        _score_tuned_cp,
    ),
    "crc": Method(
        "CRC",
        "nothing",
        "none",
        "calibrate",
        "(sum of losses + bound) / (n + 1) <= alpha; on 0/1 loss split CP's rank",
        "expected_risk",
        "exchangeable rows",
        "Angelopoulos et al. (2024)",
        partial(_fixed, rule=_marginal),
    ),
    "bq": Method(
        "BQ",
        "nothing",
        "none",
        "calibrate",
        "P(L+ <= alpha) >= 1 - delta; on 0/1 loss a Beta tail",
        "pac",
        "i.i.d. rows",
        "Snell and Griffiths (2025)",
        partial(_fixed, rule=_pac),
    ),
    "bcp_crc": Method(
        "BCP-CRC",
        "structure and threshold",
        "calibrate",
        "calibrate",
        "smallest sets among candidates, each by BQ at delta / |candidates|; with one candidate BQ",
        "pac",
        "i.i.d. rows",
        "Wu et al. (2026), arXiv 2602.03331; the union bound is ours",
        partial(_smallest, rule=_pac_for_all),
        law=False,
    ),
    "ltt": Method(
        "LTT",
        "structure and threshold",
        "calibrate",
        "calibrate",
        "fixed sequences of binomial tests from the safe end, one a candidate, at delta / "
        "|candidates|; smallest sets",
        "pac",
        "i.i.d. rows",
        "Angelopoulos et al. (2025)",
        partial(_smallest, rule=_pac_for_all),
        law=False,
    ),
    "rocp": Method(
        "ROCP",
        "structure",
        "tune",
        "calibrate",
        "least mean robust loss on tuning rows; then split CP of the nested-envelope score",
        "marginal",
        "exchangeable rows",
        "Wang and Dobriban (2026); the envelope is ours",
        _rocp,
        needs=(RiskOptimal, RiskAverse),
    ),
    "dco_warmstart": Method(
        "DCO-Warmstart",
        "structure",
        "tune",
        "calibrate",
        "smallest mean size at tuning risk <= alpha; the tuning threshold is dropped; then split "
        "CP",
        "marginal",
        "exchangeable rows",
        "Wu, Niu, Kaski and Caprio, Algorithm 1",
        partial(_decoupled, rule=_marginal),
    ),
    "dco_pac": Method(
        "DCO with a PAC rank",
        "structure",
        "tune",
        "calibrate",
        "smallest mean size at tuning risk <= alpha; then BQ: the like-for-like partner of BQ, "
        "BCP-CRC and LTT",
        "pac",
        "i.i.d. rows",
        "ours",
        partial(_decoupled, rule=_pac),
    ),
    "direct_tune": Method(
        "DirectTune",
        "structure and threshold",
        "tune",
        "none",
        "smallest mean size at tuning risk <= alpha; the tuning threshold is deployed",
        "none",
        "no claim",
        "Wu, Niu, Kaski and Caprio, Section 4",
        partial(_decoupled, role="tune", rule=_empirical),
        law=False,
    ),
    "cqr": Method(
        "CQR",
        "nothing",
        "none",
        "calibrate",
        "split CP of max(lower - y, y - upper)",
        "marginal",
        "exchangeable rows",
        "Romano, Patterson and Candes (2019)",
        partial(_fixed, rule=_marginal),
        needs=(QuantileResidual,),
    ),
}

# The rows of the paper's result tables: methods of Table 1, and controls. Methods that do not tune
# on rows of their own are calibrated on the pool of tuning and calibration rows.
TABLE_ROWS: dict[str, Method] = {
    "BQ": METHODS["bq"],
    "DCO-PAC": METHODS["dco_pac"],
    "Matched-Φ BQ, δ/|Φ|": METHODS["bcp_crc"],
    "Split CP, φ fixed, whole pool": METHODS["split_cp"],
    "DCO-Warmstart": METHODS["dco_warmstart"],
    "DCO, refit": METHODS["dco_warmstart"],
    "DCO, φ fixed": Method(
        "DCO, φ fixed",
        "nothing",
        "none",
        "calibrate",
        "split CP on as many rows as DCO leaves to calibration",
        "marginal",
        "exchangeable rows",
        "control",
        partial(_fixed, role="calibrate", rule=_marginal),
    ),
    "DirectTune, fixed φ": Method(
        "DirectTune, fixed φ",
        "threshold",
        "tune",
        "none",
        "the tuning threshold of a fixed structure",
        "none",
        "no claim",
        "control",
        partial(_fixed, role="tune", rule=_empirical),
    ),
    "DirectTune, searched Φ": METHODS["direct_tune"],
    "Matched-Φ BQ, δ uncorrected": Method(
        "Matched-Φ BQ, δ uncorrected",
        "structure and threshold",
        "calibrate",
        "calibrate",
        "BCP-CRC without its union bound",
        "none",
        "no claim",
        "control",
        partial(_smallest, rule=_pac),
        law=False,
    ),
    "DCO's structure, BQ on the pool": Method(
        "DCO's structure, BQ on the pool",
        "structure",
        "tune",
        "calibrate",
        "DCO's structure, calibrated by BQ on rows that chose it too",
        "none",
        "no claim",
        "control",
        partial(_decoupled, role="pool", rule=_pac),
        law=False,
    ),
    "EFCP (tuned and calibrated on the pool)": Method(
        "EFCP",
        "structure",
        "calibrate",
        "calibrate",
        "smallest sets after split CP on the same rows",
        "none",
        "independent rows: coverage >= 1 - alpha - (1/3 + sqrt(log(2 |candidates|) / 2)) / sqrt(n)",
        "control",
        partial(_smallest, rule=_marginal),
        law=False,
    ),
}


# ---- ways to choose that deploy no single candidate
# ---------------------------------------------------------------------

SELECTIONS: dict[Selection, str] = {"modsel": "ModSel-CP", "yk-adjust": "YK-adjust"}


def select_sets(
    method: Selection,
    on: Mapping[Role, Candidates],
    targets: Mapping[Role, AnyArray],
    *,
    alpha: Level,
) -> SelectedSets:
    """Make the sets of the test rows by a choice on the rows that calibrate, tuning rows among
    them.
    """
    new = {name: prediction for name, (_, prediction) in on["test"].items()}
    return select_and_calibrate(on["pool"], targets["pool"], new, alpha=alpha, method=method)


def compared_thresholds(rows: Given, name: str) -> list[float]:
    """The thresholds at which `TABLE_ROWS` compare the sizes of one candidate, so that one pass may
    find them all.
    """
    tune, pool = rows.candidates[name]["tune"].scores, rows.candidates[name]["pool"].scores
    return [
        _empirical(rows, tune).value,
        *(rule(rows, pool).value for rule in (_marginal, _pac, _pac_for_all)),
    ]
