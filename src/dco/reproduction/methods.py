"""Every method of the paper's Table 1 behind one registry: what is tuned, on which role, by which rule, with which claim.

A method takes candidates ``{name: (score, prediction_tune, prediction_cal, prediction_test)}`` and the labels of the tuning
and calibration rows, and gives the structure it deploys, its threshold and the sets of the test rows. All are for 0/1 loss
(miscoverage). There each rule is one order statistic, and the registry uses it; that the rules for loss matrices in
`dco.thresholds` give the same value is tested, not assumed.

Two entries of the paper's Table 1 are stated otherwise here. CRC controls an expectation and has no delta; on 0/1 loss it is
split conformal prediction. BQ, BCP-CRC and LTT are the high-probability rules. And a rule that chooses among candidates on
the rows that certify it pays by a union bound, delta / |candidates| each; without it the claim would be false.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.errors import IncompatibleScoreError
from dco.foundations.ranks import Guarantee, Level, Threshold, as_rational
from dco.guarantees.rules import bayesian_quadrature, split_conformal
from dco.predictions import ClassDraws, ClassProbabilities, Prediction
from dco.scores.decision import DecisionScore, RiskOptimal
from dco.scores.regression import QuantileResidual
from dco.scores.score import Score, set_sizes
from dco.sets.prediction_sets import PredictionSets
from dco.tuning import direct_tune, tune

Candidates: TypeAlias = Mapping[str, tuple[Score, Prediction, Prediction, Prediction]]
Tuned: TypeAlias = Literal["nothing", "score", "structure", "structure and threshold"]
Role: TypeAlias = Literal["none", "tune", "calibrate"]


@dataclass(frozen=True, eq=False)
class Rows:
    """What a method may look at: candidates, and the labels of the two roles. Test labels are not among them."""

    candidates: Candidates
    y_tune: Any
    y_cal: Any
    alpha: Level
    delta: Level
    fixed: str

    def calibration_scores(self, name: str) -> Any:
        """The scores of the calibration labels under one candidate."""
        score, _, prediction, _ = self.candidates[name]
        return score.observed(prediction, self.y_cal)

    def ranking(self) -> Any:
        """The candidates by mean set size on the tuning rows."""
        return tune({name: entry[:2] for name, entry in self.candidates.items()}, self.y_tune, alpha=self.alpha)


@dataclass(frozen=True)
class Method:
    """One row of the table: `choose` gives the candidate and the threshold that are deployed."""

    name: str
    tuned: Tuned
    tuned_on: Role
    calibrated_on: Role
    rule: str
    guarantee: Guarantee
    assumption: str
    reference: str
    choose: Callable[[Rows], tuple[str, Threshold]]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a method deploys, and its sets on the test rows."""

    method: str
    candidate: str
    threshold: Threshold
    sets: PredictionSets


def run_method(
    method: str,
    candidates: Candidates,
    y_tune: ArrayLike,
    y_cal: ArrayLike,
    *,
    alpha: Level,
    delta: Level = 0.05,
    fixed: str | None = None,
) -> Outcome:
    """Run one method of `METHODS` by its key; `fixed` names the candidate of methods that tune nothing (default: the first).

    Methods without tuning do not touch the tuning rows. To give them the same data, put tuning and calibration rows
    together into their calibration prediction.
    """
    if method not in METHODS:
        raise ValueError(f"there is no method {method!r}; there are {', '.join(METHODS)}.")
    if not candidates:
        raise ValueError(
            "candidates must hold at least one {name: (score, prediction_tune, prediction_cal, prediction_test)}."
        )
    first = next(iter(candidates)) if fixed is None else fixed
    if first not in candidates:
        raise ValueError(f"fixed names {fixed!r}, which is not among the candidates {', '.join(candidates)}.")
    name, threshold = METHODS[method].choose(Rows(candidates, np.asarray(y_tune), np.asarray(y_cal), alpha, delta, first))
    score, _, _, test = candidates[name]
    return Outcome(method, name, threshold, score.sets(test, threshold))


def _split_cp(rows: Rows) -> tuple[str, Threshold]:
    return rows.fixed, split_conformal(rows.calibration_scores(rows.fixed), alpha=rows.alpha)


def _score_tuned_cp(rows: Rows) -> tuple[str, Threshold]:
    """Each candidate is conformalised on the tuning rows and the smallest sets win, as RAPS tunes its penalty."""
    sizes = {}
    for name, (score, prediction, _, _) in rows.candidates.items():
        threshold = split_conformal(score.observed(prediction, rows.y_tune), alpha=rows.alpha)
        sizes[name] = float(np.mean(set_sizes(score, prediction, threshold.value)))
    best = min(sizes, key=lambda name: sizes[name])
    return best, split_conformal(rows.calibration_scores(best), alpha=rows.alpha)


def _crc(rows: Rows) -> tuple[str, Threshold]:
    name, threshold = _split_cp(rows)
    return name, replace(threshold, guarantee="expected_risk")


def _bq(rows: Rows) -> tuple[str, Threshold]:
    return rows.fixed, bayesian_quadrature(rows.calibration_scores(rows.fixed), alpha=rows.alpha, delta=rows.delta)


def _smallest_certified(rows: Rows) -> tuple[str, Threshold]:
    """Every candidate at delta / |candidates| on the calibration rows; then the smallest sets there."""
    share = as_rational(rows.delta, name="delta") / Fraction(len(rows.candidates))
    thresholds, sizes = {}, {}
    for name, (score, _, prediction, _) in rows.candidates.items():
        thresholds[name] = bayesian_quadrature(rows.calibration_scores(name), alpha=rows.alpha, delta=share)
        sizes[name] = float(np.mean(set_sizes(score, prediction, thresholds[name].value)))
    best = min(sizes, key=lambda name: sizes[name])
    return best, replace(thresholds[best], delta=float(as_rational(rows.delta, name="delta")))


def _rocp(rows: Rows) -> tuple[str, Threshold]:
    """The decision candidate with the least mean robust loss on the tuning rows, calibrated on the calibration rows."""
    losses = {}
    for name, (score, prediction, _, _) in rows.candidates.items():
        if not (isinstance(score, DecisionScore) and isinstance(prediction, (ClassProbabilities, ClassDraws))):
            raise IncompatibleScoreError(
                f"ROCP needs RiskOptimal or RiskAverse scores, but the candidate {name!r} is {score!r:.100}."
            )
        sets = score.sets(prediction, direct_tune(score, prediction, rows.y_tune, alpha=rows.alpha))
        chosen = RiskOptimal(score.loss_matrix, score.labels).act(sets, prediction, alpha=rows.alpha)
        losses[name] = float(chosen.robust_loss.mean())
    best = min(losses, key=lambda name: losses[name])
    return best, split_conformal(rows.calibration_scores(best), alpha=rows.alpha)


def _dco_warmstart(rows: Rows) -> tuple[str, Threshold]:
    best = rows.ranking().best
    return best, split_conformal(rows.calibration_scores(best), alpha=rows.alpha)


def _dco_pac(rows: Rows) -> tuple[str, Threshold]:
    best = rows.ranking().best
    return best, bayesian_quadrature(rows.calibration_scores(best), alpha=rows.alpha, delta=rows.delta)


def _direct_tune(rows: Rows) -> tuple[str, Threshold]:
    best = rows.ranking().best
    score, prediction, _, _ = rows.candidates[best]
    return best, direct_tune(score, prediction, rows.y_tune, alpha=rows.alpha)


def _cqr(rows: Rows) -> tuple[str, Threshold]:
    name = rows.fixed
    if not isinstance(rows.candidates[name][0], QuantileResidual):
        raise IncompatibleScoreError(
            f"CQR needs a QuantileResidual score, but {name!r} has {rows.candidates[name][0]!r:.100}."
        )
    return _split_cp(rows)


METHODS: dict[str, Method] = {
    "split_cp": Method(
        "Split CP", "nothing", "none", "calibrate", "k-th smallest score, k = ceil((n + 1)(1 - alpha))", "marginal",
        "exchangeable rows", "Papadopoulos et al. (2002)", _split_cp,
    ),
    "score_tuned_cp": Method(
        "Score-tuned CP", "score", "tune", "calibrate", "smallest sets after split CP on tuning rows; then split CP",
        "marginal", "exchangeable rows", "Angelopoulos et al. (2021)", _score_tuned_cp,
    ),
    "crc": Method(
        "CRC", "nothing", "none", "calibrate", "(sum of losses + bound) / (n + 1) <= alpha; on 0/1 loss split CP's rank",
        "expected_risk", "exchangeable rows", "Angelopoulos et al. (2024)", _crc,
    ),
    "bq": Method(
        "BQ", "nothing", "none", "calibrate", "P(L+ <= alpha) >= 1 - delta; on 0/1 loss a Beta tail", "pac",
        "i.i.d. rows", "Snell and Griffiths (2025)", _bq,
    ),
    "bcp_crc": Method(
        "BCP-CRC", "structure and threshold", "calibrate", "calibrate",
        "smallest sets among candidates, each by BQ at delta / |candidates|; with one candidate BQ", "pac", "i.i.d. rows",
        "Wu et al. (2026), arXiv 2602.03331; the union bound is ours", _smallest_certified,
    ),
    "ltt": Method(
        "LTT", "structure and threshold", "calibrate", "calibrate",
        "fixed sequences of binomial tests from the safe end, one a candidate, at delta / |candidates|; smallest sets",
        "pac", "i.i.d. rows", "Angelopoulos et al. (2025)", _smallest_certified,
    ),
    "rocp": Method(
        "ROCP", "structure", "tune", "calibrate",
        "least mean robust loss on tuning rows; then split CP of the nested-envelope score", "marginal",
        "exchangeable rows", "Wang and Dobriban (2026); the envelope is ours", _rocp,
    ),
    "dco_warmstart": Method(
        "DCO-Warmstart", "structure", "tune", "calibrate",
        "smallest mean size at tuning risk <= alpha; the tuning threshold is dropped; then split CP", "marginal",
        "exchangeable rows", "Wu, Niu, Kaski and Caprio, Algorithm 1", _dco_warmstart,
    ),
    "dco_pac": Method(
        "DCO with a PAC rank", "structure", "tune", "calibrate",
        "smallest mean size at tuning risk <= alpha; then BQ: the like-for-like partner of BQ, BCP-CRC and LTT", "pac",
        "i.i.d. rows", "ours", _dco_pac,
    ),
    "direct_tune": Method(
        "DirectTune", "structure and threshold", "tune", "none",
        "smallest mean size at tuning risk <= alpha; the tuning threshold is deployed", "none", "no claim",
        "Wu, Niu, Kaski and Caprio, Section 4", _direct_tune,
    ),
    "cqr": Method(
        "CQR", "nothing", "none", "calibrate", "split CP of max(lower - y, y - upper)", "marginal", "exchangeable rows",
        "Romano, Patterson and Candes (2019)", _cqr,
    ),
}  # fmt: skip
