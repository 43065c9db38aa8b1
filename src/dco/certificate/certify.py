"""Write the certificate of a fit, or of a recalibration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dco.calibration.base import Calibration
from dco.certificate.certificate import Certificate
from dco.certificate.facts import (
    Provenance,
    StructureFacts,
    scores_fingerprint,
    software_versions,
)
from dco.models.wrapped import is_frozen
from dco.rows.roles import Roles
from dco.rows.seal import SealedRows
from dco.scores.names import score_label
from dco.structure import Structure, describe
from dco.tuning.choose import Choice, Tuning


def certify(
    structure: Structure,
    calibration: Calibration,
    choice: Choice,
    roles: Roles,
    *,
    tuning: Tuning,
    seed: int,
) -> Certificate:
    """Collect the facts of a fit. No row and no model is needed to read them later."""
    return Certificate(
        calibration=calibration.facts(),
        structure=StructureFacts(
            candidate=structure.name,
            model=describe(choice.winner.model),
            score=score_label(structure.score),
            labels=n_labels(structure),
            support=tuning.support,
            refit=tuning.refit and not is_frozen(choice.winner.model),
            candidates=choice.n_candidates,
            failed_candidates={failed.name: failed.reason for failed in choice.ranking.failed},
            selection=choice.selection,
            tuning_threshold=choice.ranking.threshold_of(structure.name),
            stability=choice.stability,
            structure_fingerprint=structure.fingerprint,
            seed=seed,
        ),
        provenance=Provenance(
            rows={
                "train": len(roles.train),
                "tune": len(roles.tune),
                "calibrate": len(calibration.scored),
            },
            row_fingerprints=dict(roles.facts.fingerprints),
            repeats_shared=dict(roles.facts.repeats_shared),
            distinct=roles.facts.are_distinct,
            training_rows_checked=choice.training_rows_known,
            scores_fingerprint=scores_fingerprint(calibration.scored.scores),
            seal_opened=len(roles.sealed.log),
            seal_log=tuple(map(str, roles.sealed.log)),
            versions=dict(software_versions()),
        ),
    )


def recertify(
    before: Certificate,
    structure: Structure,
    calibration: Calibration,
    sealed: SealedRows,
    *,
    repeats_shared: Mapping[str, int],
) -> Certificate:
    """Certify other calibration rows of the same structure; `before` is replaced."""
    rows = before.provenance.rows
    row_fingerprints = before.provenance.row_fingerprints
    return Certificate(
        calibration=calibration.facts(),
        structure=replace(before.structure, labels=n_labels(structure)),
        provenance=replace(
            before.provenance,
            rows={**rows, "calibrate": len(calibration.scored)},
            row_fingerprints={**row_fingerprints, "calibrate": sealed.fingerprint},
            repeats_shared=dict(repeats_shared),
            distinct=False,
            scores_fingerprint=scores_fingerprint(calibration.scored.scores),
            seal_opened=len(sealed.log),
            seal_log=tuple(map(str, sealed.log)),
            versions=dict(software_versions()),
            replaces=before.fingerprint,
        ),
    )


def n_labels(structure: Structure) -> int | None:
    """Return how many labels a structure knows; None for numbers."""
    return None if structure.classes is None else len(structure.classes)
