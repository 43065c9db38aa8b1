"""Recalibrate a fit: the same structure, new calibration rows, and a new certificate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dco.calibration.opening import OpenedRows, open_calibration_rows
from dco.calibration.scored_batches import ScoredBatch, SealedScores
from dco.calibration.statement import Statement
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
from dco.structure import Structure


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
    fixed = _fix(est.predictor_, rows.y, clusters=rows.clusters, weights=weights)
    hashes = row_fingerprints(rows.X, rows.y)
    _check_unused(est.predictor_.kept_rows, hashes)

    sealed = SealedRows(
        rows.X, rows.y, clusters=rows.clusters, fingerprint=role_fingerprint(hashes)
    )
    opened = open_calibration_rows(
        fixed.structure,
        sealed,
        fixed.statement.calibrator,
        support=est.predictor_.certificate.structure.support,
        seed=est.predictor_.certificate.structure.seed or 0,
    )
    calibrated = _calibrate(
        est.predictor_, fixed, sealed, opened, hashes=hashes, n_missing=missing_cells(rows.X)
    )
    return _copy_with(est, calibrated, weights=weights)


def recalibrate_scored(est: Decoupled, scored: ScoredBatch, *, is_rest: bool = False) -> Any:
    """Do as `recalibrate` with rows that were scored where they lie.

    With `is_rest` they are known not to have trained or tuned the structure: they are the rest of
    the table of the fit, and equal rows among them are repeats.
    """
    fixed = _fix(est.predictor_, scored.y, clusters=scored.clusters, weights=None)
    if not is_rest:
        _check_unused(est.predictor_.kept_rows, scored.hashes)

    sealed = SealedScores(scored)
    opened = sealed.open_scores(
        fixed.structure,
        fixed.statement.calibrator,
        support=est.predictor_.certificate.structure.support,
        seed=est.predictor_.certificate.structure.seed or 0,
    )
    calibrated = _calibrate(
        est.predictor_,
        fixed,
        sealed,
        opened,
        hashes=scored.hashes,
        n_missing=scored.missing_cells,
    )
    return _copy_with(est, calibrated, weights=None)


@dataclass(frozen=True, eq=False)
class _Fixed:
    """What is fixed before the new rows are opened: the structure, and what is to be stated."""

    structure: Structure
    statement: Statement


def _fix(
    predictor: DecoupledPredictor, y: AnyArray, *, clusters: AnyArray | None, weights: Any
) -> _Fixed:
    """Check that the new rows come as those of the fit did."""
    had_groups = predictor.calibration.scored.clusters is not None
    has_groups = clusters is not None
    if had_groups != has_groups:
        raise ValueError(
            f"The fit had {'' if had_groups else 'no '}groups=, and its statement is about such "
            "rows: recalibrate in the same way."
        )

    structure = predictor.structure
    if structure.classes is not None:  # a label that the model never saw scores +inf
        check_label_kinds({"the fit": structure.classes, "the new rows": y})
        structure = replace(structure, classes=np.union1d(structure.classes, y))
    return _Fixed(structure, predictor.statement.reweight(weights))


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
    hashes = {role: words for role, words in kept.hashes.items() if role != "calibrate"}
    return replace(kept, hashes=hashes)


def _calibrate(
    predictor: DecoupledPredictor,
    fixed: _Fixed,
    sealed: SealedRows,
    opened: OpenedRows,
    *,
    hashes: Hashes,
    n_missing: Integers,
) -> DecoupledPredictor:
    """Calibrate on rows that have been opened, and certify it."""
    calibration = fixed.statement.calibrate(opened.scored)

    others = _without_calibration_rows(predictor.kept_rows)
    counts = others.among(hashes).counts
    certificate = recertify(
        predictor.certificate,
        fixed.structure,
        calibration,
        sealed,
        repeats_shared={f"{role} and calibrate": counts.get(role, 0) for role in others.hashes},
    )

    is_complete = predictor.kept_rows.complete & (n_missing == 0)
    kept_of_new_rows = KeptRows.of({"calibrate": hashes}, is_complete)
    no_rows = np.arange(0)
    return replace(
        predictor,
        structure=fixed.structure,
        statement=fixed.statement,
        calibration=calibration,
        certificate=certificate,
        kept_rows=replace(
            predictor.kept_rows,
            hashes={**predictor.kept_rows.hashes, **kept_of_new_rows.hashes},
            complete=is_complete,
        ),
        splits=replace(predictor.splits, calibrate=no_rows, test=no_rows, seed=None),
        notes=(*opened.notes, *calibration.notes(classes=fixed.structure.classes)),
    )


def _copy_with(est: Decoupled, predictor: DecoupledPredictor, *, weights: Any) -> Any:
    """Copy an estimator, with another predictor inside; show what should be known of it."""
    copy: Any = object.__new__(type(est))
    copy.__dict__ |= est.__dict__ | {"predictor_": predictor, "weights": weights}
    show(predictor.notes)
    return copy
