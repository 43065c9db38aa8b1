"""The method on one page: `fit_decoupled`. Newcomers start there.

Whatever is searched is searched on training and tuning rows. One structure is then fixed, the
sealed calibration rows are opened once for it, and all that is taken from them is an order
statistic of its scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dco.calibration.calibration import (
    Calibration,
    Statement,
    calibrate,
    note_new_conditions,
    note_targets,
)
from dco.certificate.certificate import Certificate
from dco.certificate.facts import certified_facts, describe, structure_digest
from dco.foundations.arrays import AnyArray, Floats
from dco.foundations.display import counted
from dco.foundations.notes import Note
from dco.foundations.ranks import Level, Threshold
from dco.foundations.tables import n_rows
from dco.models.fitting import fit_model
from dco.models.wrapped import is_frozen
from dco.predictions import Prediction
from dco.rows.conditions import group_sizes, groups_of, is_label
from dco.rows.kept_rows import KeptRows
from dco.rows.roles import Roles, Split, deal_roles
from dco.rows.rows import Rows
from dco.rows.splits import Splits
from dco.scores.names import score_label
from dco.scores.score import Score
from dco.sets.prediction_sets import PredictionSets
from dco.structure import Structure
from dco.tuning import Ranking
from dco.tuning.choose import Choice, Tuning, choose
from dco.tuning.defaults import Models
from dco.tuning.label_clusters import ENOUGH, label_clusters
from dco.tuning.resampling import Resampling, resample, uniform_seed


def fit_decoupled(
    models: Models,
    scores: Mapping[str, Score] | None,
    rows: Rows,
    statement: Statement,
    *,
    classes: AnyArray | None = None,
    split: Split = Split(),  # noqa: B008  # frozen
    tuning: Tuning = Tuning(),  # noqa: B008
    seed: int = 0,
) -> DecoupledPredictor:
    """Choose, freeze, open the calibration rows once, certify (the paper's Algorithm 1).

    `classes` are the labels; None for numbers.
    """
    # 1. Roles first, before anything is fitted; the calibration rows are sealed.
    roles = deal_roles(rows, split, seed=seed)

    # 2. Choose among the candidates. Only training and tuning rows can be seen here.
    resampling = resample(roles.train, roles.tune, n_folds=roles.folds, seed=seed)
    choice = choose(
        models,
        scores,
        resampling,
        alpha=statement.alpha,
        condition_on=statement.condition_on,
        can_condition=statement.weights is None,
        classes=classes,
        tuning=tuning,
        seed=seed,
    )

    # 3. Freeze one structure. Its tuning threshold stays behind.
    structure = freeze(
        choice, resampling, statement, roles, classes=classes, refit=tuning.refit, seed=seed
    )

    # 4. Break the seal, once, for this structure.
    calibration, y, rounding = calibrate(structure, roles.sealed, statement.weights, seed=seed)

    # 5. One order statistic for each condition, and what it certifies.
    thresholds = statement.thresholds(calibration)
    notes = [*roles.notes, *choice.notes]
    if classes is not None or tuning.support is not None:
        notes += note_targets(structure, y, thresholds, statement, tuning.support)
    if np.inf in map(float, thresholds.values()):
        notes += statement.note_infeasible(calibration, thresholds, dealt_from=roles.n_dealt)
    certificate = Certificate(
        **certified_facts(
            statement, structure, choice, calibration, thresholds, roles, tuning=tuning, seed=seed
        )
    )
    predictor = DecoupledPredictor(
        structure,
        calibration,
        statement,
        certificate,
        choice.ranking,
        roles.kept,
        roles.splits,
        rounding,
        tuple(notes),
    )
    predictor.known_thresholds[statement] = thresholds
    return predictor


def freeze(
    choice: Choice,
    resampling: Resampling,
    statement: Statement,
    roles: Roles,
    *,
    classes: AnyArray | None,
    refit: bool,
    seed: int,
) -> Structure:
    """Fix the winner, refitted on training and tuning rows if asked for, and name what it is."""
    winner = choice.winner
    is_refitted = refit and not is_frozen(winner.model)
    model = choice.fitted_model
    if is_refitted:
        model = fit_model(winner.model, roles.fitting_rows())
    elif model is None:
        model = fit_model(winner.model, roles.train)

    if classes is not None:  # a frozen model may know more labels than the rows hold
        classes = np.union1d(classes, np.asarray(getattr(model, "classes_", classes)))
    clusters: tuple[tuple[Any, ...], ...] = ()
    if choice.tuning_scores is not None and classes is not None:
        clusters = label_clusters(
            choice.tuning_scores,
            resampling.tuning_rows.y,
            resampling.targets,
            classes,
            rows=len(roles.sealed),
            least=ENOUGH * statement.smallest_n(),
        )
    digest = structure_digest(
        candidate=winner.name,
        model=describe(winner.model),
        score=score_label(winner.score),
        condition_on=clusters or statement.condition_on,
        fitted_on=[
            roles.facts.fingerprints.get("train", ""),
            roles.facts.fingerprints.get("tune", "") if is_refitted else "",
        ],
        seed=uniform_seed(seed),
    )
    return Structure(
        name=winner.name,
        model=model,
        score=winner.score,
        record_type=winner.record_type,
        condition_on=statement.condition_on,
        classes=classes,
        uniform_seed=uniform_seed(seed),
        fingerprint=digest,
        label_clusters=clusters,
    )


@dataclass(frozen=True, eq=False)
class DecoupledPredictor:
    """One structure with its calibration: prediction sets at any level, each with its guarantee."""

    structure: Structure
    calibration: Calibration
    statement: Statement
    certificate: Certificate
    ranking: Ranking
    kept: KeptRows
    splits: Splits
    rounding: float  # what `calibrate` has added to every score
    notes: tuple[Note, ...] = ()
    # those taken so far
    known_thresholds: dict[Statement, dict[Any, Threshold]] = field(
        init=False, default_factory=dict
    )

    def __getstate__(self) -> dict[str, Any]:
        """What was given, notes as plain text: files and copies hold nothing that follows
        from it.
        """
        state = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.init}
        return state | {"notes": tuple(map(Note.plain, self.notes))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, known_thresholds={})

    def stated(
        self,
        alpha: Level | None = None,
        *,
        guarantee: str | None = None,
        delta: Level | None = None,
    ) -> Statement:
        """The statement of the fit, or another from the same calibration scores: only the rank
        differs.
        """
        given = {"alpha": alpha, "guarantee": guarantee, "delta": delta}
        changed: dict[str, Any] = {
            name: value for name, value in given.items() if value is not None
        }
        statement = replace(self.statement, **changed) if changed else self.statement
        if delta is not None and not statement.rule.needs_delta:
            raise ValueError('delta belongs to the guarantee "pac"; pass guarantee="pac" with it.')
        return statement

    def thresholds(self, statement: Statement | None = None) -> dict[Any, Threshold]:
        """The threshold of each condition, or one under the key None, for the statement of the fit
        or another.
        """
        asked = statement or self.statement
        if asked not in self.known_thresholds:
            self.known_thresholds[asked] = asked.thresholds(self.calibration)
        return self.known_thresholds[asked]

    def sets(
        self, X: Any, statement: Statement | None = None, *, prediction: Prediction | None = None
    ) -> PredictionSets:
        """The prediction set of each row of X; labels ascend, as those of ``classes_`` and of
        p-values do.
        """
        record = self.structure.prediction(X) if prediction is None else prediction
        sets = self.structure.score.sets(
            record, self._cutoffs(X, record, statement or self.statement)
        )
        return sets.with_sorted_labels()  # a record lists labels that its model never saw last

    def _cutoffs(self, X: Any, record: Any, statement: Statement) -> Any:
        if statement.weights is not None:
            return statement.weights.cutoffs(
                self.calibration, self.structure, X, record, alpha=statement.alpha
            )
        thresholds = self.thresholds(statement)
        if None in thresholds:
            return thresholds[None]
        value_of = {name: threshold.value for name, threshold in thresholds.items()}
        by_label = is_label(self.structure.condition_on)
        names: Any = self.structure.conditions(X, record.labels() if by_label else None)
        if isinstance(self.structure.condition_on, list) and (
            new := set(names.tolist()) - value_of.keys()
        ):
            # known groups in a new combination
            found = statement.pattern_thresholds(self.calibration, new)
            value_of |= {name: threshold.value for name, threshold in found.items()}
        # a new condition gets the full set
        values = np.asarray([value_of.get(name, np.inf) for name in names.tolist()])
        if by_label:
            return values[None, :]
        return values[:, None] if self.structure.classes is not None else values

    def p_values(self, X: Any, y: ArrayLike | None = None) -> Floats:
        """Conformal p-values: of every label (n, K) for classes, of the given y (n,) otherwise."""
        if isinstance(self.structure.condition_on, list) or self.statement.weights is not None:
            raise ValueError(
                "p-values are not known for groups that overlap or weights: ask for "
                "sets, at each level."
            )
        record: Any = self.structure.prediction(X)
        if y is not None:
            labels = np.asarray(y)
            scores = self.structure.score.observed(record, labels)
            return self.calibration.p_values(scores, self.structure.conditions(X, labels))
        if self.structure.classes is None:
            raise ValueError("p-values of a regression are for given values: pass y.")
        every = self.structure.score.every_label(record)
        by_label = is_label(self.structure.condition_on)
        conditions = self.structure.conditions(X, record.labels() if by_label else None)
        if conditions is not None:
            conditions = conditions[None, :] if by_label else conditions[:, None]
        return self.calibration.p_values(every, conditions)[
            :, np.argsort(record.labels(), kind="stable")
        ]

    def calibration_scores(self, X: Any, y: Any) -> tuple[Floats, AnyArray | None]:
        """The scores of given rows as `calibrate` keeps them, and their conditions, to check a
        certificate.
        """
        labels = np.asarray(y)
        names = self.structure.conditions(X, labels)
        if names is not None:
            called = self.calibration.condition_labels()
            names = np.asarray([called.get(name, str(name)) for name in names.tolist()])
        return self.structure.scores(X, labels) + self.rounding, names

    def tied(self, statement: Statement | None = None) -> set[Any]:
        """The conditions whose calibration scores are tied: coverage is then at least the law, not
        equal to it.
        """
        own, rule, found = (
            self.calibration,
            (statement or self.statement).rule,
            self.thresholds(statement),
        )
        return {name for name, entry in found.items() if own.is_tied(own.parts[name], entry, rule)}

    def new_conditions(self, X: Any) -> Counter[Any]:
        """How many rows of X fall under each condition without calibration rows: their sets are
        full.
        """
        if self.calibration.conditions is None or is_label(self.structure.condition_on):
            return Counter()
        names: Any = self.structure.conditions(X)
        if isinstance(self.structure.condition_on, list):
            known = group_sizes(self.calibration.parts)
            first = (
                next((group for group in groups_of(name) if group not in known), None)
                for name in names.tolist()
            )
            return Counter(group for group in first if group is not None)
        return Counter(name for name in names.tolist() if name not in self.calibration.parts)

    def notes_on(self, X: Any, statements: Iterable[Statement]) -> list[Note]:
        """What should be known before sets of the rows of X are used; what `fit` noted is not noted
        again.
        """
        others = [statement for statement in statements if statement != self.statement]
        notes = [
            note
            for own in others
            for note in own.note_infeasible(self.calibration, self.thresholds(own))
        ]
        new, gaps = self.new_conditions(X), self.kept.gaps(X)
        if new:
            notes += note_new_conditions(new, counted(n_rows(X), "row"))
        return notes + self.kept.note_gaps(gaps, n_rows(X)) if gaps else notes
