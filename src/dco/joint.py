"""Selection without tuning rows, by ModSel-CP: the calibration rows choose among all candidates,
for each new row anew.

The choice counts the new row as one of the rows that choose, and so keeps the level
(`guarantees.joint_selection`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray, Floats
from dco.foundations.display import counted, first_few
from dco.foundations.errors import IncompatibleScoreError
from dco.foundations.notes import Message, Note
from dco.foundations.ranks import Level
from dco.guarantees.calibration import Calibration, Statement, calibrate
from dco.guarantees.certificate import Certificate
from dco.guarantees.facts import certified_facts
from dco.guarantees.joint_selection import joint_sets, sizes_are_known
from dco.models.adapt import holds_frozen
from dco.models.several import SeveralModels
from dco.predictions import Prediction, Several
from dco.predictor import DecoupledPredictor, freeze
from dco.rows.roles import Split, deal_roles
from dco.rows.rows import Rows
from dco.scores.joint import Joint
from dco.scores.score import Score
from dco.sets import LabelSets
from dco.sets.prediction_sets import PredictionSets
from dco.tuning import Ranking
from dco.tuning.defaults import Defaults
from dco.tuning.objectives import MEAN_SIZE
from dco.tuning.ranking import FailedCandidate, failed_note
from dco.tuning.search import Pieces, Rule, rank_pairs
from dco.tuning.selection import (
    Candidate,
    Choosing,
    Selection,
    Trials,
    Tried,
    Workbench,
    expand,
    try_models,
)

# candidates that take part after folds, since near-ties make unions grow (docs/tuning.md: it
# changes little)
KEPT = 3


def fit_joint(
    models: Mapping[str, Any] | Defaults,
    scores: Mapping[str, Score] | None,
    rows: Rows,
    statement: Statement,
    *,
    classes: AnyArray | None = None,
    split: Split = Split(),  # noqa: B008  # frozen
    choosing: Choosing = Choosing(selection="joint"),  # noqa: B008
    seed: int = 0,
) -> JointPredictor:
    """Fit every candidate on training rows; calibrate and choose on all others. What would need
    tuning rows is an error.
    """
    _check(rows, statement, split, choosing)
    # 1. Two roles: training rows (none for frozen models), and calibration rows under seal.
    share = 1.0 if split.frozen and split.given_calibrate is None else split.calibrate
    roles = deal_roles(rows, replace(split, tune=0, calibrate=share, folds=None), seed=seed)
    notes = list(roles.notes)
    # 2. Every model is fitted on the training rows. Nothing is compared yet, unless by folds of
    # these rows.
    bench = Workbench(
        roles.train,
        rows.take(np.arange(0)),
        split.folds,
        classes,
        seed,
        replace(choosing, refit=False),
    )
    selection = _candidates(models, scores, bench, notes, alpha=statement.alpha)
    structure = freeze(selection, bench, statement, roles)  # all of them are one structure
    # 3. Break the seal, once.
    calibration, y, rounding = calibrate(structure, roles.sealed, clusters=None, seed=seed)
    # 4. One cut-off for each candidate, all of the same rank, and what their choice certifies.
    ranking, lead = _ranking(structure.score, calibration, y, statement.alpha, selection)
    structure, thresholds = (
        replace(structure, model=structure.model.led_by(lead)),
        statement.thresholds(calibration),
    )
    notes += statement.note_infeasible(calibration, thresholds, dealt_from=roles.dealt_from)
    certificate = Certificate(
        **certified_facts(statement, structure, selection, calibration, thresholds, roles, bench)
    )
    return JointPredictor(
        structure,
        calibration,
        statement,
        certificate,
        ranking,
        roles.kept,
        roles.splits,
        rounding,
        tuple(notes),
    )


def _check(rows: Rows, statement: Statement, split: Split, choosing: Choosing) -> None:
    """Refuse what joint selection has no theorem for, or would have no rows for."""
    refused = {
        "groups=": rows.clusters is not None,
        "⟨condition_on⟩": statement.condition_on is not None,
        "⟨weights⟩": statement.weights is not None,
        f"⟨guarantee={statement.guarantee}⟩": statement.guarantee != "marginal",
        "search=": choosing.strategy is not None,
        "⟨support⟩": choosing.support is not None,
        "⟨objective⟩": choosing.objective != MEAN_SIZE,
        "tune=": split.given_tune is not None,
        "⟨tune_size=auto⟩": split.tune == "auto",
        "⟨tune_folds⟩": split.folds is not None and split.frozen,
    }
    wrong = next((name for name, given in refused.items() if given), None)
    if wrong is not None:
        text = (
            f"⟨selection=joint⟩ has no tuning rows and a marginal statement for all rows "
            f"alike: leave {wrong} out, or"
        )
        raise ValueError(Message(f"{text} use ⟨selection=decoupled⟩."))


def _candidates(
    models: Mapping[str, Any] | Defaults,
    scores: Mapping[str, Score] | None,
    bench: Workbench,
    notes: list[Note],
    *,
    alpha: Level,
) -> Selection:
    """The candidates whose set sizes are known at any cut-off, fitted, as one structure; after
    folds, the best few.
    """
    if isinstance(models, Defaults):
        models, scores = models.on(bench.train, scores, bench.train.y)
    every = expand(models, scores, bench)
    suited = [each for each in every if bench.classes is not None or sizes_are_known(each.score)]
    left_out = [each.name for each in every if each not in suited]
    trials = Trials(bench, alpha)
    if bench.n_folds is not None and len(suited) > KEPT:
        best = {row.name for row in trials.rank(suited).table[:KEPT]}
        bench, suited = replace(bench, n_folds=None), [each for each in suited if each.name in best]
    # frozen ones leave no training rows
    tried = {each.model_name: Tried((each.model,), {}) for each in suited}
    if len(bench.train) and suited:
        # which predict something, at least
        tried = try_models(suited, replace(bench, tune=bench.train.take(np.arange(1))))
    lost = {
        name: own.failure for name, own in (trials.tried | tried).items() if own.failure is not None
    }
    taken = [each for each in suited if each.model_name not in lost]
    if lost:
        notes.append(failed_note(lost))
    if left_out:
        text = (
            f"{counted(len(left_out), 'candidate')} took no part, since the length of their "
            f"intervals is not known at any"
        )
        notes.append(
            Note("left-out", f"{text} cut-off: {first_few(left_out)}.", "Choose on tuning rows.")
        )
    if not taken:
        reasons = (
            "; ".join(f"{name}: {reason}" for name, reason in lost.items())
            or "no score of theirs has such intervals"
        )
        raise (ValueError if lost else IncompatibleScoreError)(
            f"No candidate is left for joint selection ({reasons})."
        )
    members = {each.model_name: each.model for each in taken}
    places = {name: place for place, name in enumerate(members)}
    model = SeveralModels(
        list(members.values()), [(places[each.model_name], each.kind) for each in taken]
    )
    fitted = model.of_fitted([tried[name].fits[0] for name in members])
    score = Joint(tuple(each.name for each in taken), tuple(each.score for each in taken))
    winner = Candidate("joint", counted(len(taken), "candidate"), model, score, Several)
    failed = Ranking((), tuple(FailedCandidate(*item) for item in lost.items()), 0.0, 0)
    return Selection(
        failed, winner, fitted, len(every), not any(map(holds_frozen, models.values()))
    )


def _ranking(
    score: Any, calibration: Calibration, y: AnyArray, alpha: Level, selection: Selection
) -> tuple[Ranking, int]:
    """The candidates by their own mean size on the calibration rows, and the first: for eyes and
    point predictions alone.
    """
    parts = zip(score.names, score.scores, calibration.seen.records, strict=True)
    pairs = {name: (own, Pieces((record,))) for name, own, record in parts}
    ranking = rank_pairs(pairs, y, [Rule.of(len(y), alpha)])[0]
    return replace(ranking, failed=selection.ranking.failed), score.names.index(ranking.best)


@dataclass(frozen=True, eq=False)
class JointPredictor(DecoupledPredictor):
    """All candidates with their calibration scores: the set of a row is a union of sets of those
    that it could choose.
    """

    def stated(
        self,
        alpha: Level | None = None,
        *,
        guarantee: str | None = None,
        delta: Level | None = None,
    ) -> Statement:
        """The statement at another level; there is no other guarantee."""
        found = super().stated(alpha, guarantee=guarantee, delta=delta)
        if found.guarantee != "marginal":
            raise ValueError(
                Message("Joint selection certifies marginal coverage only: leave ⟨guarantee⟩ out.")
            )
        return found

    def sets(
        self, X: Any, statement: Statement | None = None, *, prediction: Prediction | None = None
    ) -> PredictionSets:
        """The prediction set of each row of X, as `joint_selection` makes it; labels ascend."""
        record: Any = self.structure.prediction(X) if prediction is None else prediction
        score: Any = self.structure.score
        known = self.calibration.scores.reshape(len(score.scores), -1)
        pairs: Sequence[Any] = list(
            zip(score.scores, known, self.calibration.seen.records, record.records, strict=True)
        )
        sets = joint_sets(pairs, alpha=(statement or self.statement).alpha)
        if isinstance(sets, LabelSets) and sets.classes is not None:
            return sets.in_order(np.sort(sets.classes))
        return sets

    def p_values(self, X: Any, y: ArrayLike | None = None) -> Floats:
        """An error: the choice depends on the level."""
        raise ValueError(
            "p-values are not known for joint selection: ask for sets, at each level that matters."
        )

    def calibration_scores(self, X: Any, y: Any) -> tuple[Floats, AnyArray | None]:
        """The scores of given rows by every candidate, one after the other, and the name of
        each.
        """
        scores = self.structure.scores(X, np.asarray(y)).T + self.rounding
        return scores.ravel(), np.repeat(np.asarray(self.structure.score.names), scores.shape[1])  # type: ignore[attr-defined]

    def new_conditions(self, X: Any) -> Counter[Any]:
        """None: candidates are no conditions."""
        return Counter()
