"""Recalibrate a fit: the same structure, new calibration rows, and a certificate that names the one it replaces."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dco.foundations.display import counted
from dco.foundations.errors import OverlappingRolesError
from dco.foundations.notes import Note, show
from dco.guarantees.calibration import calibrate, note_targets
from dco.guarantees.facts import recalibrated_facts
from dco.rows.fingerprints import Hashes, role_fingerprint, row_fingerprints
from dco.rows.rows import KeptRows, Rows, SealedRows, check_label_kinds, missing_cells

if TYPE_CHECKING:
    from dco.estimators import Decoupled
    from dco.predictor import DecoupledPredictor


def recalibrate(est: Decoupled, X: Any, y: Any, *, groups: Any = None, weights: Any = None) -> Any:
    """A copy of a fitted estimator whose structure is calibrated on new rows; `est` stays as it is.

    Nothing is fitted and nothing is chosen: the structure was frozen before it saw these rows, so the statement of the fit
    holds for rows exchangeable with them. The new certificate has the fingerprint of the old one in ``replaces``. Rows that
    trained or tuned the structure are refused. Which rows are taken, and when, must not depend on how their sets did: after
    an alarm, take rows that came later. `groups` is needed if the fit had it. `weights`, as of the estimator, say how the
    mix of rows to come differs from that of these rows; weights of the fit no longer count.
    """
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(est, "predictor_")
    own, new = est.predictor_, object.__new__(type(est))
    rows = est._rows(X, y, groups, {}, reset=False)
    new.__dict__ |= est.__dict__ | {"predictor_": _recalibrated(own, rows, weights), "weights": weights}
    show(new.predictor_.notes, raising=est.on_infeasible == "raise")
    return new


def _recalibrated(own: DecoupledPredictor, rows: Rows, weights: Any) -> DecoupledPredictor:
    """The predictor with the calibration of these rows."""
    if (rows.clusters is None) != (own.calibration.clusters is None):
        had = "had" if rows.clusters is None else "had no"
        raise ValueError(f"The fit {had} groups=, and its statement is about such rows: recalibrate in the same way.")
    structure, statement, notes = own.structure, replace(own.statement, weights=weights), list[Note]()
    if structure.classes is not None:  # a label that the model never saw scores +inf
        check_label_kinds({"the fit": structure.classes, "the new rows": rows.y})
        structure = replace(structure, classes=np.union1d(structure.classes, rows.y))
    hashes = row_fingerprints(rows.X, rows.y)
    shared = _shared(own.kept, hashes)
    sealed = SealedRows(rows.X, rows.y, fingerprint=role_fingerprint(hashes))
    seed = own.certificate.seed or 0
    calibration, y, rounding = calibrate(structure, sealed, statement.weights, clusters=rows.clusters, seed=seed)
    thresholds = statement.thresholds(calibration)
    notes += note_targets(structure, y, thresholds, statement, own.certificate.support)
    notes += statement.note_infeasible(calibration, thresholds)
    facts = recalibrated_facts(own.certificate, statement, calibration, thresholds, sealed)
    labels = None if structure.classes is None else len(structure.classes)
    fresh = KeptRows.of({"calibrate": hashes}, own.kept.complete & (missing_cells(rows.X) == 0))
    nothing = np.arange(0)
    return replace(
        own,
        structure=structure,
        calibration=calibration,
        statement=statement,
        certificate=replace(own.certificate, **facts, labels=labels, repeats_shared=shared),
        kept=replace(own.kept, hashes={**own.kept.hashes, **fresh.hashes}, complete=fresh.complete),
        splits=replace(own.splits, calibrate=nothing, test=nothing, seed=None),
        rounding=rounding,
        notes=tuple(notes),
    )


def _shared(kept: KeptRows, hashes: Hashes) -> dict[str, int]:
    """How many of these rows each other role shares; an error if they are more than repeats explain."""
    others = replace(kept, hashes={role: own for role, own in kept.hashes.items() if role != "calibrate"})
    if used := others.used(hashes):
        roles = ", ".join(f"{count} in {role}" for role, count in used.counts.items())
        raise OverlappingRolesError(
            f"{counted(used.total, 'row')} of {len(hashes)} took part in the fit ({roles}); coverage needs calibration rows "
            "that fitting and tuning never saw. Leave them out."
        )
    return {f"{role} and calibrate": others.among(hashes).counts.get(role, 0) for role in others.hashes}
