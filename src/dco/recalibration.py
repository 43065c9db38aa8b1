"""Recalibrate a fit: the same structure, new calibration rows, and a new certificate.

Rows that do not fit into memory are scored batch by batch, wherever they lie: `score_batch` scores
one batch, and `recalibrate_scored` calibrates on all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dco.calibration.opening import OpenedRows, open_calibration_rows
from dco.calibration.scored_batches import ScoredBatch, SealedScores, join_batches, score_rows
from dco.certificate.certify import recertify
from dco.estimators import Decoupled
from dco.foundations.arrays import AnyArray, Integers
from dco.foundations.display import counted
from dco.foundations.errors import OverlappingRolesError
from dco.foundations.fingerprints import Hashes, role_fingerprint, row_fingerprints
from dco.foundations.notes import show
from dco.foundations.tables import missing_cells
from dco.predictor import DecoupledPredictor
from dco.rows.kept_rows import KeptRows
from dco.rows.rows import rows_of
from dco.rows.seal import SealedRows
from dco.rows.targets import check_label_kinds
from dco.scores.inverse import is_ours
from dco.structure import rows_scored_again

__all__ = [
    "ScoredBatch",
    "can_score_in_batches",
    "choose_rows_to_score_again",
    "recalibrate",
    "recalibrate_scored",
    "score_batch",
]


def recalibrate(est: Decoupled, X: Any, y: Any, *, groups: Any = None, weights: Any = None) -> Any:
    """Calibrate a fitted estimator on new rows, and return it as a copy; `est` does not change.

    Nothing is fitted and nothing is chosen: the structure was frozen before it saw these rows, so
    the statement of the fit holds for rows exchangeable with them. The new certificate has the
    fingerprint of the old one in ``replaces``.

    Parameters
    ----------
    est
        A fitted `DecoupledClassifier` or `DecoupledRegressor`.
    X, y
        The new calibration rows. Rows that trained or tuned the structure are refused. Which rows
        are taken, and when, must not depend on how their sets did: after an alarm, take rows that
        came later.
    groups
        One label per row, if the fit had groups too.
    weights
        As of the estimator: how much more frequent rows are among future rows than among these.
        Weights of the fit no longer count.
    """
    # 1. Check the rows.
    rows = rows_of(est.check_features(X), est.check_targets(y), groups=groups, params={})
    _check_groups_as_in_fit(est.predictor_, clusters=rows.clusters)
    hashes = row_fingerprints(rows.X, rows.y)
    predictor = _adapt_to_new_rows(est.predictor_, rows.y, weights=weights)
    _check_not_used_in_fit(predictor.kept_rows, hashes)

    # 2. Seal them, and open the seal once, for the structure of the fit.
    sealed = SealedRows(
        rows.X, rows.y, clusters=rows.clusters, fingerprint=role_fingerprint(hashes)
    )
    facts_of_fit = predictor.certificate.structure
    opened = open_calibration_rows(
        predictor.structure,
        sealed,
        predictor.statement.calibrator,
        support=facts_of_fit.support,
        seed=facts_of_fit.seed or 0,
    )

    # 3. Take new thresholds, and certify them.
    recalibrated = _calibrate(
        predictor, sealed, opened, hashes=hashes, n_missing=missing_cells(rows.X)
    )
    return _copy_with_predictor(est, recalibrated, weights=weights)


def can_score_in_batches(est: Decoupled) -> bool:
    """Say whether calibration rows can be scored in batches.

    A score of a user's own must be checked against the sets that it makes of all rows.
    """
    return is_ours(est.predictor_.structure.score)


def choose_rows_to_score_again(n: int) -> Integers:
    """Choose which of n calibration rows are scored twice; return their positions, ascending.

    The second time they are scored alone or in a smaller batch. If the two scores differ, a score
    depends on the other rows, and the model is refused.
    """
    in_one_batch, alone = rows_scored_again(n)
    return np.union1d(in_one_batch, alone)


def score_batch(
    est: Decoupled,
    X: Any,
    y: Any,
    *,
    groups: Any = None,
    classes: AnyArray | None = None,
    score_again: Integers,
) -> ScoredBatch:
    """Score one batch of new calibration rows, where all of them do not fit into memory.

    `recalibrate_scored` then calibrates on all batches. The batch that is returned has the scores
    of its rows, and features of few of them.

    Parameters
    ----------
    est
        The fitted estimator that is recalibrated.
    X, y, groups
        The rows of this batch, their targets, and one group label per row if the fit had groups.
    classes
        All labels of the fit and of the new rows, those of other batches included. None: the new
        rows have no other labels than the fit.
    score_again
        The rows of this batch that are scored twice, as positions in the batch: those that
        `choose_rows_to_score_again` picked among all rows.
    """
    rows = rows_of(est.check_features(X), est.check_targets(y), groups=groups, params={})
    structure = est.predictor_.structure
    if classes is not None:
        structure = replace(structure, classes=classes)
    calibrator = est.predictor_.statement.calibrator
    return score_rows(structure, calibrator, rows, score_again=score_again)


def recalibrate_scored(
    est: Decoupled, batches: Sequence[ScoredBatch], *, is_rest: bool = False
) -> Any:
    """Calibrate a fitted estimator on rows that `score_batch` has scored, and return it as a copy.

    Parameters
    ----------
    est
        The fitted estimator; it does not change.
    batches
        All batches, in the order of their rows.
    is_rest
        Whether the rows are the rest of the table of which other rows were fitted, so that none of
        them trained or tuned the model. Rows that equal one that did are then repeats, and are not
        refused.
    """
    # 1. Check the rows.
    scored = join_batches(batches)
    _check_groups_as_in_fit(est.predictor_, clusters=scored.clusters)
    predictor = _adapt_to_new_rows(est.predictor_, scored.y, weights=None)
    if not is_rest:
        _check_not_used_in_fit(predictor.kept_rows, scored.hashes)

    # 2. Seal their scores, and open the seal once, for the structure (model and score) of the fit.
    # The certificate then shows that nothing was chosen by them.
    sealed = SealedScores(scored)
    facts_of_fit = predictor.certificate.structure
    opened = sealed.open_scores(
        predictor.structure,
        predictor.statement.calibrator,
        support=facts_of_fit.support,
        seed=facts_of_fit.seed or 0,
    )

    # 3. Take new thresholds, and certify them.
    recalibrated = _calibrate(
        predictor, sealed, opened, hashes=scored.hashes, n_missing=scored.missing_cells
    )
    return _copy_with_predictor(est, recalibrated, weights=None)


def _check_groups_as_in_fit(predictor: DecoupledPredictor, *, clusters: AnyArray | None) -> None:
    """Refuse new rows with groups= if the fit had none, and rows without if it had them."""
    fit_had_groups = predictor.calibration.scored.clusters is not None
    if fit_had_groups and clusters is None:
        raise ValueError(
            "The fit had groups=, and its statement is about such rows: recalibrate in the same "
            "way."
        )
    if not fit_had_groups and clusters is not None:
        raise ValueError(
            "The fit had no groups=, and its statement is about such rows: recalibrate in the same "
            "way."
        )


def _adapt_to_new_rows(
    predictor: DecoupledPredictor, y: AnyArray, *, weights: Any
) -> DecoupledPredictor:
    """Return the predictor of the fit with the labels and the weights of new calibration rows.

    `y` are the targets of the new rows. Their labels are added to the classes; one that the model
    never saw has the score +inf. `weights` say how much more frequent rows are among future rows
    (see `recalibrate`); None takes the weights of the fit away.
    """
    structure = predictor.structure
    if structure.classes is not None:
        check_label_kinds({"the fit": structure.classes, "the new rows": y})
        structure = replace(structure, classes=np.union1d(structure.classes, y))

    statement = predictor.statement.reweight(weights)
    return replace(predictor, structure=structure, statement=statement)


def _check_not_used_in_fit(kept: KeptRows, hashes: Hashes) -> None:
    """Refuse new calibration rows if some of them trained or tuned the model.

    `kept` recognises rows of the fit by their hashes, and `hashes` has the hash of each new row.
    Where many rows of the fit have the same values, a few new rows equal them by chance: so many
    are accepted.
    """
    used = _without_calibration_rows(kept).recognise_unless_by_chance(hashes)
    if used is None:
        return
    by_role = [f"{count} in {role}" for role, count in used.n_rows_by_role.items()]
    raise OverlappingRolesError(
        f"{counted(used.n_rows, 'row')} of {len(hashes)} took part in the fit "
        f"({', '.join(by_role)}); coverage needs calibration rows that fitting and tuning never "
        f"saw. Leave them out."
    )


def _without_calibration_rows(kept: KeptRows) -> KeptRows:
    """Drop the hashes of the rows that calibrated the fit: they may calibrate again."""
    hashes = {role: words for role, words in kept.hashes.items() if role != "calibrate"}
    return replace(kept, hashes=hashes)


def _calibrate(
    predictor: DecoupledPredictor,
    sealed: SealedRows,
    opened: OpenedRows,
    *,
    hashes: Hashes,
    n_missing: Integers,
) -> DecoupledPredictor:
    """Return the predictor with what follows from new rows: thresholds, certificate and hashes.

    Parameters
    ----------
    predictor
        The predictor of the fit, adapted to the labels and weights of the new rows.
    sealed, opened
        The new calibration rows under their seal, and what came out of it: scores and notes.
    hashes
        The hash of each new row.
    n_missing
        The missing cells of the new rows, counted by column.
    """
    calibration = predictor.statement.calibrate(opened.scored)

    # 1. Certify the new thresholds, and how many new rows equal a row of another role by chance.
    kept_rows = predictor.kept_rows
    other_roles = _without_calibration_rows(kept_rows)
    n_equal_by_role = other_roles.recognise(hashes).n_rows_by_role
    certificate = recertify(
        predictor.certificate,
        predictor.structure,
        calibration,
        sealed,
        repeats_shared={
            f"{role} and calibrate": n_equal_by_role.get(role, 0) for role in other_roles.hashes
        },
    )

    # 2. Keep the hashes of the new calibration rows in place of the old ones.
    is_complete = kept_rows.complete & (n_missing == 0)
    new_hashes = KeptRows.of({"calibrate": hashes}, is_complete).hashes
    kept_rows = replace(kept_rows, hashes={**kept_rows.hashes, **new_hashes}, complete=is_complete)

    # 3. Drop the positions of the old ones: the new rows are not in the table of the fit.
    no_rows = np.arange(0)
    splits = replace(predictor.splits, calibrate=no_rows, test=no_rows, seed=None)

    return replace(
        predictor,
        calibration=calibration,
        certificate=certificate,
        kept_rows=kept_rows,
        splits=splits,
        notes=(*opened.notes, *calibration.notes(classes=predictor.structure.classes)),
    )


def _copy_with_predictor(est: Decoupled, predictor: DecoupledPredictor, *, weights: Any) -> Any:
    """Copy an estimator with another predictor and other weights, and warn of its notes."""
    copy: Any = object.__new__(type(est))
    vars(copy).update(vars(est), predictor_=predictor, weights=weights)
    show(predictor.notes)
    return copy
