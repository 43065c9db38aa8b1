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
    """Write the certificate of a fit: plain data, for which no row and no model is needed later.

    Parameters
    ----------
    structure
        The fitted model with its score, which was calibrated.
    calibration
        Its thresholds, and what they guarantee.
    choice
        How it was chosen among the candidates.
    roles
        Which rows trained, tuned and calibrated.
    tuning, seed
        The settings of the search, and the seed of the fit.
    """
    return Certificate(
        calibration=calibration.facts(),
        structure=_state_structure(structure, choice, tuning=tuning, seed=seed),
        provenance=_state_provenance(calibration, choice, roles),
    )


def _state_structure(
    structure: Structure, choice: Choice, *, tuning: Tuning, seed: int
) -> StructureFacts:
    """State what was calibrated (the structure: a model with a score), and how it was chosen.

    `choice` has the ranking of the candidates, and `tuning` the settings by which they were ranked.
    """
    ranking = choice.ranking
    model = choice.winner.model
    return StructureFacts(
        candidate=structure.name,
        model=describe(model),
        score=score_label(structure.score),
        labels=n_labels(structure),
        support=tuning.support,
        refit=tuning.refit and not is_frozen(model),
        candidates=choice.n_candidates,
        failed_candidates={failed.name: failed.reason for failed in ranking.failed},
        selection=choice.selection,
        tuning_threshold=ranking.threshold_of(structure.name),
        stability=choice.stability,
        structure_fingerprint=structure.fingerprint,
        seed=seed,
    )


def _state_provenance(calibration: Calibration, choice: Choice, roles: Roles) -> Provenance:
    """State which rows were used for what, and by what software.

    Calibration rows are sealed until the model is chosen. The log of the seal, with every request
    for them, goes into the certificate: it must show one.
    """
    role_facts = roles.facts
    seal_log = roles.sealed.log
    return Provenance(
        rows={
            "train": len(roles.train),
            "tune": len(roles.tune),
            "calibrate": len(calibration.scored),
        },
        row_fingerprints=dict(role_facts.fingerprints),
        repeats_shared=dict(role_facts.repeats_shared),
        distinct=role_facts.are_distinct,
        training_rows_checked=choice.training_rows_known,
        scores_fingerprint=scores_fingerprint(calibration.scored.scores),
        seal_opened=len(seal_log),
        seal_log=tuple(str(request) for request in seal_log),
        versions=dict(software_versions()),
    )


def recertify(
    before: Certificate,
    structure: Structure,
    calibration: Calibration,
    sealed: SealedRows,
    *,
    repeats_shared: Mapping[str, int],
) -> Certificate:
    """Write the certificate of a structure (a model with a score) that new rows calibrated.

    Parameters
    ----------
    before
        The certificate that it replaces. What this says of the structure, and of training and
        tuning rows, still holds.
    structure, calibration
        The structure, and its new thresholds.
    sealed
        The new calibration rows under their seal.
    repeats_shared
        How many of them equal rows of another role, such as {"train and calibrate": 2}.
    """
    provenance = before.provenance
    scored = calibration.scored
    return Certificate(
        calibration=calibration.facts(),
        structure=replace(before.structure, labels=n_labels(structure)),
        provenance=replace(
            provenance,
            rows={**provenance.rows, "calibrate": len(scored)},
            row_fingerprints={**provenance.row_fingerprints, "calibrate": sealed.fingerprint},
            repeats_shared=dict(repeats_shared),
            distinct=False,
            scores_fingerprint=scores_fingerprint(scored.scores),
            seal_opened=len(sealed.log),
            seal_log=tuple(str(request) for request in sealed.log),
            versions=dict(software_versions()),
            replaces=before.fingerprint,
        ),
    )


def n_labels(structure: Structure) -> int | None:
    """Return how many labels a structure knows; None for numbers."""
    return None if structure.classes is None else len(structure.classes)
