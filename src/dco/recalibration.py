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
    """Return a copy of a fitted estimator whose structure is calibrated on new rows.

    Nothing is fitted and nothing is chosen: the structure was frozen before it saw these rows, so
    the statement of the fit holds for rows exchangeable with them. The new certificate has the
    fingerprint of the old one in ``replaces``; `est` stays as it is. Rows that trained or tuned the
    structure are refused. Which rows are taken, and when, must not depend on how their sets did:
    after an alarm, take rows that came later. `groups` is needed if the fit had it. `weights`, as
    of the estimator, say how the mix of rows to come differs from that of these rows; weights of
    the fit no longer count.
    """
    rows = rows_of(est.check_features(X), est.check_targets(y), groups=groups, params={})
    _check_groups_as_in_fit(est.predictor_, clusters=rows.clusters)
    predictor = _adapt_to_new_rows(est.predictor_, rows.y, weights=weights)

    hashes = row_fingerprints(rows.X, rows.y)
    _check_unused(predictor.kept_rows, hashes)

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
    """Choose which of n calibration rows are scored a second time; return positions, ascending.

    The second scores show whether the score of a row depends on the rows beside it.
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
    """Score one batch of the rows for a recalibration.

    `classes` are all labels of the fit and of the rows, also of other batches; None for those of
    the fit. `score_again` has the positions, in this batch, of the rows that
    `choose_rows_to_score_again` picked among all rows.
    """
    predictor = est.predictor_
    rows = rows_of(est.check_features(X), est.check_targets(y), groups=groups, params={})
    structure = predictor.structure
    if classes is not None:
        structure = replace(structure, classes=classes)
    return score_rows(structure, predictor.statement.calibrator, rows, score_again=score_again)


def recalibrate_scored(
    est: Decoupled, batches: Sequence[ScoredBatch], *, is_rest: bool = False
) -> Any:
    """Do as `recalibrate` with rows that were scored batch by batch; batches are in their order.

    With `is_rest` the rows are known not to have trained or tuned the structure: they are the rest
    of the table of the fit, and equal rows among them are repeats.
    """
    scored = join_batches(batches)
    _check_groups_as_in_fit(est.predictor_, clusters=scored.clusters)
    predictor = _adapt_to_new_rows(est.predictor_, scored.y, weights=None)
    if not is_rest:
        _check_unused(predictor.kept_rows, scored.hashes)

    sealed = SealedScores(scored)
    facts_of_fit = predictor.certificate.structure
    opened = sealed.open_scores(
        predictor.structure,
        predictor.statement.calibrator,
        support=facts_of_fit.support,
        seed=facts_of_fit.seed or 0,
    )
    recalibrated = _calibrate(
        predictor, sealed, opened, hashes=scored.hashes, n_missing=scored.missing_cells
    )
    return _copy_with_predictor(est, recalibrated, weights=None)


def _check_groups_as_in_fit(predictor: DecoupledPredictor, *, clusters: AnyArray | None) -> None:
    """Refuse new rows with groups= if the fit had none, and rows without if it had them."""
    had_groups = predictor.calibration.scored.clusters is not None
    has_groups = clusters is not None
    if had_groups == has_groups:
        return
    raise ValueError(
        f"The fit had {'' if had_groups else 'no '}groups=, and its statement is about such "
        "rows: recalibrate in the same way."
    )


def _adapt_to_new_rows(
    predictor: DecoupledPredictor, y: AnyArray, *, weights: Any
) -> DecoupledPredictor:
    """Add the labels of the new rows, and set their weights; the rest is still that of the fit.

    A label that the model never saw scores +inf.
    """
    structure = predictor.structure
    if structure.classes is not None:
        check_label_kinds({"the fit": structure.classes, "the new rows": y})
        structure = replace(structure, classes=np.union1d(structure.classes, y))

    statement = predictor.statement.reweight(weights)
    return replace(predictor, structure=structure, statement=statement)


def _check_unused(kept: KeptRows, hashes: Hashes) -> None:
    """Refuse rows that trained or tuned the structure, if they are more than repeats explain."""
    used = _without_calibration_rows(kept).used(hashes)
    if used is None:
        return
    roles = ", ".join(f"{count} in {role}" for role, count in used.counts.items())
    raise OverlappingRolesError(
        f"{counted(used.total, 'row')} of {len(hashes)} took part in the fit ({roles}); coverage "
        "needs calibration rows that fitting and tuning never saw. Leave them out."
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
    """Take thresholds from the opened rows, certify them, and remember the rows.

    `n_missing` counts the missing cells of the new rows, by column.
    """
    calibration = predictor.statement.calibrate(opened.scored)

    other_rows = _without_calibration_rows(predictor.kept_rows)
    n_shared = other_rows.among(hashes).counts
    certificate = recertify(
        predictor.certificate,
        predictor.structure,
        calibration,
        sealed,
        repeats_shared={
            f"{role} and calibrate": n_shared.get(role, 0) for role in other_rows.hashes
        },
    )

    is_complete = predictor.kept_rows.complete & (n_missing == 0)
    new_hashes = KeptRows.of({"calibrate": hashes}, is_complete).hashes
    kept_rows = replace(
        predictor.kept_rows,
        hashes={**predictor.kept_rows.hashes, **new_hashes},
        complete=is_complete,
    )

    no_rows = np.arange(0)
    return replace(
        predictor,
        calibration=calibration,
        certificate=certificate,
        kept_rows=kept_rows,
        splits=replace(predictor.splits, calibrate=no_rows, test=no_rows, seed=None),
        notes=(*opened.notes, *calibration.notes(classes=predictor.structure.classes)),
    )


def _copy_with_predictor(est: Decoupled, predictor: DecoupledPredictor, *, weights: Any) -> Any:
    """Copy an estimator with another predictor and other weights, and warn of its notes."""
    copy: Any = object.__new__(type(est))
    vars(copy).update(vars(est), predictor_=predictor, weights=weights)
    show(predictor.notes)
    return copy
