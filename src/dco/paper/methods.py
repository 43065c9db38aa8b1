"""Table 1 and Section 4: every method that is compared, with its choice, its rule and its claim.

`METHODS` is the paper's Table 1, which `dco compare` runs too. `TABLE_ROWS` names the rows of the
paper's result tables: the same methods under the names of those tables, and the paper's controls. A
method looks at the candidates of one split (`Task`) and returns the structure and the threshold
that are deployed (`Choice`). All methods are for 0/1 loss (miscoverage). There each rule is one
order statistic, and the registry uses it; tests show that the rules for loss matrices give the same
value.

Two methods differ from the paper's Table 1. CRC controls an expectation and has no delta; on 0/1
loss it is split conformal prediction. BQ, BCP-CRC and LTT are the high-probability rules. And a
rule that chooses among candidates on the rows that certify it pays by a union bound, delta /
|candidates| each; without it the claim would be false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

import dco
from dco import IncompatibleScoreError, Ranking, Threshold
from dco.foundations.arrays import Floats
from dco.foundations.ranks import (
    Guarantee,
    Level,
    as_rational,
    checked_scores,
    order_statistic,
    tuning_rank,
)
from dco.scores import QuantileResidual, RiskAverse, RiskOptimal, Score, act

Tuned: TypeAlias = Literal["nothing", "score", "structure", "threshold", "structure and threshold"]
RoleName: TypeAlias = Literal["tune", "calibrate", "pool", "test"]
Pairs: TypeAlias = Mapping[str, tuple[Score, Any]]  # score and predictions of each candidate
SCORING_ERRORS = (dco.DcoError, ValueError, TypeError)  # what a score says of unsuitable input


# ---- what a method looks at, and what it returns


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """A candidate on some rows: its score, its predictions, and the scores of the true values.

    `scores` may be of more rows than `prediction`: sizes of sets need no true values, and are then
    measured on fewer rows.
    """

    score: Score
    prediction: Any
    scores: Floats

    @classmethod
    def of(cls, score: Score, prediction: Any, y: ArrayLike) -> ScoredRows:
        """Score the true values of the rows."""
        return cls(score, prediction, checked_scores(score.observed(prediction, y)))

    def sizes(self, threshold: float) -> Floats:
        """Return the size of each row's set at a threshold."""
        return np.asarray(self.score.sizes(self.prediction, threshold), dtype=np.float64)

    def sizes_at_each(self, thresholds: Sequence[float]) -> Floats:
        """Return the size of each row's set at several thresholds, (thresholds, rows)."""
        sizes = self.score.sizes_at_several(self.prediction, thresholds)
        return np.asarray(sizes, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class OnRoles:
    """One candidate on the rows of each role; `pool` is tuning and calibration rows together."""

    tune: ScoredRows
    calibrate: ScoredRows
    pool: ScoredRows
    test: ScoredRows | None = None  # no method looks at it

    def on(self, role: RoleName) -> ScoredRows:
        """Return the candidate on the rows of a role that is only known by its name."""
        rows: ScoredRows = getattr(self, role)
        return rows


@dataclass(frozen=True, eq=False)
class Task:
    """What a method may look at: every candidate on the rows of each role, and the level.

    Attributes
    ----------
    candidates
        The candidates by name.
    y_tune
        The true values of the tuning rows.
    fixed
        The name of the candidate that methods without a search take.
    alpha, delta
        The miscoverage level, and the failure probability of PAC rules.
    refit
        Gives a candidate, by its name, fitted again on training and tuning rows, for methods that
        deploy it in place of the one that was tuned. None where nothing can be refitted.
    objective
        What makes a candidate the best on the tuning rows; only `dco compare` takes another one
        than the paper's.
    """

    candidates: Mapping[str, OnRoles]
    y_tune: ArrayLike
    fixed: str
    alpha: Level
    delta: Level = 0.05
    refit: Callable[[str], OnRoles] | None = None
    objective: Any = "mean_size"

    @cached_property
    def ranking(self) -> Ranking:
        """The candidates, the one with the smallest sets at tuning risk <= alpha first."""
        pairs = {
            name: (rows.tune.score, rows.tune.prediction) for name, rows in self.candidates.items()
        }
        return dco.tune(pairs, self.y_tune, alpha=self.alpha, objective=self.objective)

    def deploy(self, name: str, *, refits: bool = False) -> OnRoles:
        """Return the candidate that calibrates and predicts.

        That is the one that was tuned or, with `refits`, the same one fitted again on more rows.
        """
        if not refits:
            return self.candidates[name]
        if self.refit is None:
            raise ValueError(f"{name} cannot be fitted again: this task has no refit.")
        return self.refit(name)


@dataclass(frozen=True, eq=False)
class Choice:
    """What a method deploys: the name of a candidate, a threshold, and the candidate's scores.

    `deployed` differs from the task's candidate of that name where it was fitted again.
    """

    candidate: str
    threshold: Threshold
    deployed: OnRoles


@dataclass(frozen=True)
class Method:
    """One row of Table 1: a way to choose a structure and a threshold, and what it claims.

    Most fields are the columns of that table, in words. The others are

    choose
        What the method does with a task.
    has_law
        Whether the threshold is an order statistic of scores exchangeable with test scores, so that
        coverage has the Beta-binomial law of its rank.
    needs
        The scores that the method applies to; empty: all.
    """

    name: str
    tuned: Tuned
    tuned_on: Literal["none", "tune", "calibrate"]
    calibrated_on: Literal["none", "calibrate"]
    rule: str
    guarantee: Guarantee
    assumption: str
    reference: str
    choose: Callable[[Task], Choice]
    has_law: bool = True
    needs: tuple[type[Score], ...] = ()

    def suits(self, score: Score) -> bool:
        """Say whether the method applies to a candidate with this score."""
        return not self.needs or isinstance(score, self.needs)

    def __call__(self, task: Task) -> Choice:
        """Choose a candidate and a threshold for a task, as this method does.

        The threshold that is returned states the guarantee of the method, and delta (the
        probability that it fails) if it is a PAC one. A candidate with a score that the method
        cannot use is an `IncompatibleScoreError`.
        """
        self._check_scores(task)
        choice = self.choose(task)

        # The rule may have stated more than the method claims, or another delta.
        delta: float | None = None
        if self.guarantee == "pac":
            delta = float(as_rational(task.delta, name="delta"))
        threshold = replace(choice.threshold, guarantee=self.guarantee, delta=delta)
        return replace(choice, threshold=threshold)

    def _check_scores(self, task: Task) -> None:
        """Raise an `IncompatibleScoreError` if the method cannot use the score of a candidate."""
        for name, on_roles in task.candidates.items():
            score = on_roles.tune.score
            if not self.suits(score):
                kinds = " or ".join(kind.__name__ for kind in self.needs)
                raise IncompatibleScoreError(
                    f"{self.name} needs a {kinds} score, but the candidate {name!r} has "
                    f"{score!r:.100}."
                )


def score_on_roles(
    pairs: Mapping[RoleName, Pairs], targets: Mapping[RoleName, ArrayLike]
) -> dict[str, OnRoles]:
    """Score the true values of the rows of every role, for each candidate.

    Parameters
    ----------
    pairs
        By role ("tune", "calibrate", "pool", "test"), then by candidate: its score, and its
        predictions for the rows of the role.
    targets
        By role: the true values of its rows.

    Returns
    -------
    The candidates by name. One that fails on tuning rows is left out, as in `dco.tune`; one that
    fails on other rows is an error.
    """
    tuning_rows = score_tuning_rows(pairs["tune"], targets["tune"])
    other_roles = [role for role in pairs if role != "tune"]

    candidates: dict[str, OnRoles] = {}
    for name, scored_tuning_rows in tuning_rows.items():
        rows_by_role = {"tune": scored_tuning_rows}
        for role in other_roles:
            score, prediction = pairs[role][name]
            with naming_candidate(name, role):
                rows_by_role[role] = ScoredRows.of(score, prediction, targets[role])
        candidates[name] = OnRoles(**rows_by_role)
    return candidates


def score_tuning_rows(pairs: Pairs, y: ArrayLike) -> dict[str, ScoredRows]:
    """Score the tuning rows by each candidate, and leave out the candidates that fail.

    `y` has the true values of the rows. If all fail, the error says why each of them did.
    """
    tuning_rows: dict[str, ScoredRows] = {}
    for name, (score, prediction) in pairs.items():
        with suppress(*SCORING_ERRORS):
            tuning_rows[name] = ScoredRows.of(score, prediction, y)
    if not tuning_rows:
        dco.tune(pairs, y, alpha=0.5)  # fails on them too, with a message that lists the reasons
    return tuning_rows


@contextmanager
def naming_candidate(name: str, role: RoleName) -> Iterator[None]:
    """Let an error of a score say which candidate failed, and on the rows of which role."""
    try:
        yield
    except SCORING_ERRORS as error:
        kind = type(error)
        raise kind(f"{name} failed on {role} rows. {kind.__name__}: {error}") from error


# ---- rules: from the scores of some rows to a threshold

Rule: TypeAlias = Callable[[Task, Floats], Threshold]


def marginal_rule(task: Task, scores: Floats) -> Threshold:
    """Return the threshold of split conformal prediction."""
    return dco.split_conformal(scores, alpha=task.alpha)


def pac_rule(task: Task, scores: Floats) -> Threshold:
    """Return the threshold of Bayesian quadrature (BQ), a Beta tail on 0/1 loss."""
    return dco.bayesian_quadrature(scores, alpha=task.alpha, delta=task.delta)


def shared_pac_rule(task: Task, scores: Floats) -> Threshold:
    """Return the threshold of BQ at delta / |candidates|, which holds for all of them at once."""
    delta_of_each = as_rational(task.delta, name="delta") / Fraction(len(task.candidates))
    return dco.bayesian_quadrature(scores, alpha=task.alpha, delta=delta_of_each)


def empirical_rule(task: Task, scores: Floats) -> Threshold:
    """Return the smallest threshold with a share of at most alpha of these scores above it."""
    n = len(scores)
    rank = tuning_rank(n, alpha=task.alpha)
    return Threshold(
        value=order_statistic(scores, rank),
        rank=rank,
        n=n,
        guarantee="none",
        alpha=float(as_rational(task.alpha)),
    )


# ---- ways to choose a structure, and the rows that give its threshold


def choose_by_tuning(
    task: Task, *, role: RoleName = "calibrate", rule: Rule, refits: bool = False
) -> Choice:
    """Take the candidate with the smallest sets on tuning rows, and calibrate it: DCO.

    Its threshold is that of `rule` on the rows of `role`. With another role than "calibrate" the
    same rows choose and calibrate: DirectTune, and one of the controls. With `refits` the winner is
    fitted again before it calibrates.
    """
    best = task.ranking.best
    deployed = task.deploy(best, refits=refits)
    return Choice(best, rule(task, deployed.on(role).scores), deployed)


def take_fixed(task: Task, *, role: RoleName = "pool", rule: Rule, refits: bool = False) -> Choice:
    """Take the candidate that was named in advance, and calibrate it on the rows of `role`.

    By default these are tuning and calibration rows together, as nothing is tuned.
    """
    deployed = task.deploy(task.fixed, refits=refits)
    return Choice(task.fixed, rule(task, deployed.on(role).scores), deployed)


def choose_smallest(task: Task, *, role: RoleName = "pool", rule: Rule) -> Choice:
    """Calibrate every candidate on the rows of `role`, and take the smallest sets on these rows."""
    thresholds: dict[str, Threshold] = {}
    mean_sizes: dict[str, float] = {}
    for name, on_roles in task.candidates.items():
        rows = on_roles.on(role)
        thresholds[name] = rule(task, rows.scores)
        mean_sizes[name] = float(np.mean(rows.sizes(thresholds[name].value)))

    best = min(mean_sizes, key=lambda name: mean_sizes[name])
    return Choice(best, thresholds[best], task.deploy(best))


def choose_by_conformal_size(task: Task) -> Choice:
    """Run split CP of every candidate on the tuning rows, take the smallest sets, calibrate it.

    This is how RAPS tunes its penalty.
    """
    best = choose_smallest(task, role="tune", rule=marginal_rule).candidate
    deployed = task.deploy(best)
    return Choice(best, marginal_rule(task, deployed.calibrate.scores), deployed)


def choose_by_robust_loss(task: Task) -> Choice:
    """Take the candidate with the least mean robust loss on tuning rows, and calibrate it: ROCP.

    The candidates make decisions: their score holds a loss matrix over actions and labels.
    """
    losses: dict[str, float] = {}
    for name, on_roles in task.candidates.items():
        rows = on_roles.tune
        losses[name] = mean_robust_loss(rows, empirical_rule(task, rows.scores), alpha=task.alpha)

    best = min(losses, key=lambda name: losses[name])
    deployed = task.deploy(best)
    return Choice(best, marginal_rule(task, deployed.calibrate.scores), deployed)


def mean_robust_loss(rows: ScoredRows, threshold: Threshold, *, alpha: Level) -> float:
    """Return the mean loss, in the worst case, of the actions that prediction sets lead to.

    The candidate makes decisions: its score holds a loss for each action and each label. For each
    row the sets at `threshold` lead to an action (`dco.scores.act`), and its robust loss is the
    loss that it has in the worst case.
    """
    score = rows.score
    assert isinstance(score, (RiskOptimal, RiskAverse))  # the `needs` of ROCP
    actions = act(
        score.sets(rows.prediction, threshold),
        rows.prediction,
        loss_matrix=score.loss_matrix,
        labels=score.labels,
        alpha=alpha,
    )
    return float(actions.robust_loss.mean())


# ---- the registry

METHODS: dict[str, Method] = {
    "split_cp": Method(
        name="Split CP",
        tuned="nothing",
        tuned_on="none",
        calibrated_on="calibrate",
        rule="k-th smallest score, k = ceil((n + 1)(1 - alpha))",
        guarantee="marginal",
        assumption="exchangeable rows",
        reference="Papadopoulos et al. (2002)",
        choose=partial(take_fixed, rule=marginal_rule),
    ),
    "score_tuned_cp": Method(
        name="Score-tuned CP",
        tuned="score",
        tuned_on="tune",
        calibrated_on="calibrate",
        rule="smallest sets after split CP on tuning rows; then split CP",
        guarantee="marginal",
        assumption="exchangeable rows",
        reference="Angelopoulos et al. (2021)",
        choose=choose_by_conformal_size,
    ),
    "crc": Method(
        name="CRC",
        tuned="nothing",
        tuned_on="none",
        calibrated_on="calibrate",
        rule="(sum of losses + bound) / (n + 1) <= alpha; on 0/1 loss split CP's rank",
        guarantee="expected_risk",
        assumption="exchangeable rows",
        reference="Angelopoulos et al. (2024)",
        choose=partial(take_fixed, rule=marginal_rule),
    ),
    "bq": Method(
        name="BQ",
        tuned="nothing",
        tuned_on="none",
        calibrated_on="calibrate",
        rule="P(L+ <= alpha) >= 1 - delta; on 0/1 loss a Beta tail",
        guarantee="pac",
        assumption="i.i.d. rows",
        reference="Snell and Griffiths (2025)",
        choose=partial(take_fixed, rule=pac_rule),
    ),
    "bcp_crc": Method(
        name="BCP-CRC",
        tuned="structure and threshold",
        tuned_on="calibrate",
        calibrated_on="calibrate",
        rule="smallest sets among candidates, each by BQ at delta / |candidates|; with one "
        "candidate BQ",
        guarantee="pac",
        assumption="i.i.d. rows",
        reference="Wu et al. (2026), arXiv 2602.03331; the union bound is ours",
        choose=partial(choose_smallest, rule=shared_pac_rule),
        has_law=False,
    ),
    "ltt": Method(
        name="LTT",
        tuned="structure and threshold",
        tuned_on="calibrate",
        calibrated_on="calibrate",
        rule="fixed sequences of binomial tests from the safe end, one a candidate, at delta / "
        "|candidates|; smallest sets",
        guarantee="pac",
        assumption="i.i.d. rows",
        reference="Angelopoulos et al. (2025)",
        choose=partial(choose_smallest, rule=shared_pac_rule),
        has_law=False,
    ),
    "rocp": Method(
        name="ROCP",
        tuned="structure",
        tuned_on="tune",
        calibrated_on="calibrate",
        rule="least mean robust loss on tuning rows; then split CP of the nested-envelope score",
        guarantee="marginal",
        assumption="exchangeable rows",
        reference="Wang and Dobriban (2026); the envelope is ours",
        choose=choose_by_robust_loss,
        needs=(RiskOptimal, RiskAverse),
    ),
    "dco_warmstart": Method(
        name="DCO-Warmstart",
        tuned="structure",
        tuned_on="tune",
        calibrated_on="calibrate",
        rule="smallest mean size at tuning risk <= alpha; the tuning threshold is dropped; then "
        "split CP",
        guarantee="marginal",
        assumption="exchangeable rows",
        reference="Wu, Niu, Kaski and Caprio, Algorithm 1",
        choose=partial(choose_by_tuning, rule=marginal_rule),
    ),
    "dco_pac": Method(
        name="DCO with a PAC rank",
        tuned="structure",
        tuned_on="tune",
        calibrated_on="calibrate",
        rule="smallest mean size at tuning risk <= alpha; then BQ: the like-for-like partner of "
        "BQ, BCP-CRC and LTT",
        guarantee="pac",
        assumption="i.i.d. rows",
        reference="ours",
        choose=partial(choose_by_tuning, rule=pac_rule),
    ),
    "direct_tune": Method(
        name="DirectTune",
        tuned="structure and threshold",
        tuned_on="tune",
        calibrated_on="none",
        rule="smallest mean size at tuning risk <= alpha; the tuning threshold is deployed",
        guarantee="none",
        assumption="no claim",
        reference="Wu, Niu, Kaski and Caprio, Section 4",
        choose=partial(choose_by_tuning, role="tune", rule=empirical_rule),
        has_law=False,
    ),
    "cqr": Method(
        name="CQR",
        tuned="nothing",
        tuned_on="none",
        calibrated_on="calibrate",
        rule="split CP of max(lower - y, y - upper)",
        guarantee="marginal",
        assumption="exchangeable rows",
        reference="Romano, Patterson and Candes (2019)",
        choose=partial(take_fixed, rule=marginal_rule),
        needs=(QuantileResidual,),
    ),
}

DCO_REFIT = replace(
    METHODS["dco_warmstart"],
    choose=partial(choose_by_tuning, rule=marginal_rule, refits=True),
)
DCO_FIXED = Method(
    name="DCO, φ fixed",
    tuned="nothing",
    tuned_on="none",
    calibrated_on="calibrate",
    rule="split CP on as many rows as DCO leaves to calibration",
    guarantee="marginal",
    assumption="exchangeable rows",
    reference="control",
    choose=partial(take_fixed, role="calibrate", rule=marginal_rule),
)
DCO_FIXED_REFIT = replace(
    DCO_FIXED, choose=partial(take_fixed, role="calibrate", rule=marginal_rule, refits=True)
)
DCO_PAC_REFIT = replace(
    METHODS["dco_pac"], choose=partial(choose_by_tuning, rule=pac_rule, refits=True)
)
DIRECT_TUNE_FIXED = Method(
    name="DirectTune, fixed φ",
    tuned="threshold",
    tuned_on="tune",
    calibrated_on="none",
    rule="the tuning threshold of a fixed structure",
    guarantee="none",
    assumption="no claim",
    reference="control",
    choose=partial(take_fixed, role="tune", rule=empirical_rule),
)
MATCHED_UNCORRECTED = Method(
    name="Matched-Φ BQ, δ uncorrected",
    tuned="structure and threshold",
    tuned_on="calibrate",
    calibrated_on="calibrate",
    rule="BCP-CRC without its union bound",
    guarantee="none",
    assumption="no claim",
    reference="control",
    choose=partial(choose_smallest, rule=pac_rule),
    has_law=False,
)
DCO_THEN_BQ = Method(
    name="DCO's structure, BQ on the pool",
    tuned="structure",
    tuned_on="tune",
    calibrated_on="calibrate",
    rule="DCO's structure, calibrated by BQ on rows that chose it too",
    guarantee="none",
    assumption="no claim",
    reference="control",
    choose=partial(choose_by_tuning, role="pool", rule=pac_rule),
    has_law=False,
)
EFCP = Method(
    name="EFCP",
    tuned="structure",
    tuned_on="calibrate",
    calibrated_on="calibrate",
    rule="smallest sets after split CP on the same rows",
    guarantee="none",
    assumption="independent rows: coverage >= 1 - alpha - (1/3 + sqrt(log(2 |candidates|) / 2)) / "
    "sqrt(n)",
    reference="control",
    choose=partial(choose_smallest, rule=marginal_rule),
    has_law=False,
)

# The rows of the paper's result tables: methods of Table 1, and controls. Methods that need no
# tuning rows are calibrated on the pool, tuning and calibration rows together.
TABLE_ROWS: dict[str, Method] = {
    "BQ": METHODS["bq"],
    "DCO-PAC": METHODS["dco_pac"],
    "Matched-Φ BQ, δ/|Φ|": METHODS["bcp_crc"],
    "Split CP, φ fixed, whole pool": METHODS["split_cp"],
    "DCO-Warmstart": METHODS["dco_warmstart"],
    "DCO, refit": DCO_REFIT,
    "DCO, φ fixed": DCO_FIXED,
    "DirectTune, fixed φ": DIRECT_TUNE_FIXED,
    "DirectTune, searched Φ": METHODS["direct_tune"],
    "Matched-Φ BQ, δ uncorrected": MATCHED_UNCORRECTED,
    "DCO's structure, BQ on the pool": DCO_THEN_BQ,
    "EFCP (tuned and calibrated on the pool)": EFCP,
}
