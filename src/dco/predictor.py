"""The method on one page: `fit_decoupled`. Newcomers start there.

Whatever is searched is searched on training and tuning rows. One structure is then fixed, the
sealed calibration rows are opened once for it, and all that is taken from them is an order
statistic of its scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dco.calibration.base import Calibration
from dco.calibration.full_sets import note_new_conditions
from dco.calibration.opening import open_calibration_rows
from dco.calibration.statement import Statement
from dco.certificate.certificate import Certificate
from dco.certificate.certify import certify
from dco.foundations.arrays import AnyArray, Floats
from dco.foundations.display import counted
from dco.foundations.notes import Note
from dco.foundations.ranks import Level
from dco.foundations.tables import n_rows
from dco.models.fitting import fit_model
from dco.models.wrapped import is_frozen
from dco.predictions import Prediction
from dco.rows.kept_rows import KeptRows
from dco.rows.roles import Roles, Split, deal_roles
from dco.rows.rows import Rows
from dco.rows.splits import Splits
from dco.rows.targets import read_targets
from dco.scores.names import score_label
from dco.scores.score import Score
from dco.sets.prediction_sets import PredictionSets
from dco.structure import ScoredRows, Structure, describe, structure_digest
from dco.tuning import Ranking
from dco.tuning.choose import Choice, Tuning, choose
from dco.tuning.defaults import Models
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

    Parameters
    ----------
    models, scores
        What candidates are made of: a candidate is a model with a score. None for `scores`: every
        score that fits the predictions of a model.
    rows
        The table; its rows are dealt to roles.
    statement
        What is to be guaranteed, at which level.
    classes
        All labels; None for a regression.
    split, tuning
        How rows come to their roles, and how candidates are compared.
    seed
        Seeds everything random.
    """
    # 1. Every row gets its role before anything is fitted. Calibration rows are sealed.
    roles = deal_roles(rows, split, seed=seed)

    # 2. Choose among the candidates. Only training and tuning rows can be seen here.
    resampling = resample(roles.train, roles.tune, n_folds=roles.folds, seed=seed)
    choice = choose(
        models, scores, resampling, statement=statement, classes=classes, tuning=tuning, seed=seed
    )

    # 3. Fix one structure. The threshold that ranked it stays behind.
    structure = freeze(choice, roles, classes=classes, refit=tuning.refit, seed=seed)
    statement = learn_from_tuning(statement, structure, choice, resampling, roles)

    # 4. Open the calibration rows, once, for this structure.
    opened = open_calibration_rows(
        structure,
        roles.sealed,
        statement.calibrator,
        support=tuning.support,
        seed=seed,
    )

    # 5. Take the thresholds, and write down what they guarantee.
    calibration = statement.calibrate(opened.scored)
    certificate = certify(structure, calibration, choice, roles, tuning=tuning, seed=seed)
    calibration_notes = calibration.notes(n_in_fit=roles.n_dealt, classes=structure.classes)

    return DecoupledPredictor(
        structure=structure,
        statement=statement,
        calibration=calibration,
        certificate=certificate,
        ranking=choice.ranking,
        kept_rows=roles.kept_rows,
        splits=roles.splits,
        notes=(
            *statement.notes(),
            *roles.notes,
            *choice.notes,
            *opened.notes,
            *calibration_notes,
        ),
    )


def freeze(
    choice: Choice, roles: Roles, *, classes: AnyArray | None, refit: bool, seed: int
) -> Structure:
    """Make the structure that will be calibrated: one fitted model with one score, fixed for good.

    Parameters
    ----------
    choice
        The candidate that won the tuning, with its model if that is fitted already.
    roles
        The training and tuning rows.
    classes
        The labels of all rows; None for a regression.
    refit
        Whether the model is fitted again, on training and tuning rows together.
    seed
        The seed of the fit.
    """
    # 1. Fit the model, or take the one that was fitted while candidates were compared.
    winner = choice.winner
    is_refitted = refit and not is_frozen(winner.model)
    model = choice.fitted_model
    if is_refitted:
        model = fit_model(winner.model, roles.fitting_rows())
    elif model is None:
        model = fit_model(winner.model, roles.train)

    # 2. Collect the labels. A frozen model may know more of them than the rows hold.
    if classes is not None:
        classes_of_model = getattr(model, "classes_", classes)
        classes = np.union1d(classes, np.asarray(classes_of_model))

    # 3. Compute a digest of the names and settings of model and score, and of the rows that were
    # fitted. A certificate names the structure by it.
    row_digests = roles.facts.fingerprints
    digest_of_train = row_digests.get("train", "")
    digest_of_tune = row_digests.get("tune", "") if is_refitted else ""
    digest = structure_digest(
        candidate=winner.name,
        model=describe(winner.model),
        score=score_label(winner.score),
        fitted_on=[digest_of_train, digest_of_tune],
        seed=uniform_seed(seed),
    )
    return Structure(
        name=winner.name,
        model=model,
        score=winner.score,
        record_type=winner.record_type,
        classes=classes,
        uniform_seed=uniform_seed(seed),
        fingerprint=digest,
    )


def learn_from_tuning(
    statement: Statement,
    structure: Structure,
    choice: Choice,
    resampling: Resampling,
    roles: Roles,
) -> Statement:
    """Return the statement with what its calibrator learns from training and tuning rows.

    Most calibrators learn nothing. One for clusters of labels, for example, learns from the tuning
    scores which labels share a threshold. Calibration rows are still sealed, and only their number
    is told.

    Parameters
    ----------
    statement
        The level, and the calibrator: the rule by which scores become thresholds.
    structure
        The fitted model with its score, which will be calibrated.
    choice, resampling, roles
        The tuning scores, the training and tuning rows, and the sealed calibration rows.
    """
    calibrator = statement.calibrator.learn(
        tuning_scores=choice.tuning_scores,
        tuning_labels=resampling.tuning_rows.y,
        fitting_labels=resampling.targets,
        classes=structure.classes,
        n_calibration_rows=len(roles.sealed),
        alpha=statement.alpha,
    )
    return replace(statement, calibrator=calibrator)


@dataclass(frozen=True, eq=False)
class DecoupledPredictor:
    """One structure with its calibration: prediction sets at any level, each with its guarantee."""

    structure: Structure
    statement: Statement
    calibration: Calibration
    certificate: Certificate
    ranking: Ranking
    kept_rows: KeptRows
    splits: Splits
    notes: tuple[Note, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """Keep notes as plain text in files and copies."""
        return vars(self) | {"notes": tuple(map(Note.plain, self.notes))}

    def calibrate_at(
        self,
        alpha: Level | None = None,
        *,
        guarantee: str | None = None,
        delta: Level | None = None,
    ) -> Calibration:
        """Compute the thresholds for another level or guarantee, from the same calibration scores.

        None keeps what the fit has. `guarantee` is "marginal" or "pac", and only "pac" has a
        failure probability `delta`. If nothing changes, the calibration of the fit is returned.
        """
        statement = self.statement.change(alpha, guarantee=guarantee, delta=delta)
        if statement == self.statement:
            return self.calibration
        return statement.calibrate(self.calibration.scored)

    def sets(
        self,
        X: Any,
        calibration: Calibration | None = None,
        *,
        prediction: Prediction | None = None,
    ) -> PredictionSets:
        """Make the prediction set of each row of X.

        `calibration` gives the thresholds; None for those of the fit. Pass `prediction`, the
        model's prediction record for X, if you have it already; it is computed otherwise.
        """
        if calibration is None:
            calibration = self.calibration
        if prediction is None:
            prediction = self.structure.prediction(X)
        thresholds = calibration.thresholds(X, prediction.labels())
        return self.structure.sets(prediction, thresholds)

    def p_values(self, X: Any, y: ArrayLike | None = None) -> Floats:
        """Compute conformal p-values of new rows: how usual a value of y is for its row.

        With `y`, one value for each row, the p-values of these are returned, (n,). Without it,
        those of every label, (n, K), with labels in ascending order; a regression needs `y`.
        """
        prediction: Any = self.structure.prediction(X)  # of the type that the score takes
        score = self.structure.score

        if y is not None:
            targets = np.asarray(y)
            scores = np.asarray(score.observed(prediction, targets))
            return self.calibration.p_values(scores, X, targets=targets)
        if self.structure.classes is None:
            raise ValueError("p-values of a regression are for given values: pass y.")

        labels = prediction.labels()
        scores = score.every_label(prediction)
        p_values = self.calibration.p_values(scores, X, labels=labels)
        ascending = np.argsort(labels, kind="stable")
        return p_values[:, ascending]

    def read_targets(self, y: Any) -> AnyArray:
        """Read known targets of new rows: numbers, or labels that the fit need not know."""
        return read_targets(y, as_numbers=self.structure.classes is None)

    def scores(self, X: Any, y: AnyArray) -> Floats:
        """Score rows with their targets as calibration rows were scored, ties rounded up."""
        return self.structure.scores(X, y) + self.calibration.scored.rounding

    def score_rows(self, X: Any, y: AnyArray) -> ScoredRows:
        """Score rows, and read what the kind of calibration needs to know of them."""
        return ScoredRows(
            scores=self.scores(X, y),
            covariates=self.statement.calibrator.covariates(X, y),
            rounding=self.calibration.scored.rounding,
        )

    def notes_on(self, X: Any, calibrations: Iterable[Calibration]) -> list[Note]:
        """Return what a user should know before using sets of these rows at some levels.

        `calibrations` has the calibration of each level. Notes of the fit are not repeated.
        """
        notes: list[Note] = []
        for calibration in calibrations:
            if calibration is not self.calibration:
                notes += calibration.notes()

        rows = counted(n_rows(X), "row")
        notes += note_new_conditions(self.calibration.new_conditions(X), rows)
        notes += self.kept_rows.note_gaps(self.kept_rows.gaps(X), n_rows(X))
        return notes
