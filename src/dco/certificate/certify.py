"""Write the certificate of a fit, or of a recalibration."""

from __future__ import annotations

from dataclasses import replace

from dco.calibration.base import Calibration
from dco.certificate.certificate import Certificate
from dco.certificate.facts import scores_fingerprint, versions
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
    best = choice.ranking.table[0] if choice.ranking.table else None
    return Certificate(
        calibration=calibration.facts(),
        distinct=roles.facts.are_distinct,
        labels=None if structure.classes is None else len(structure.classes),
        candidate=structure.name,
        candidates=choice.n_candidates,
        failed_candidates={entry.name: entry.reason for entry in choice.ranking.failed},
        model=describe(choice.winner.model),
        score=score_label(structure.score),
        tuning_threshold=None if best is None else best.ranking_threshold,
        selection=choice.selection,
        refit=tuning.refit and not is_frozen(choice.winner.model),
        rows={
            "train": len(roles.train),
            "tune": len(roles.tune),
            "calibrate": len(calibration.scored),
        },
        row_fingerprints=dict(roles.facts.fingerprints),
        repeats_shared=dict(roles.facts.repeats_shared),
        training_rows_checked=choice.training_rows_known,
        structure_fingerprint=structure.fingerprint,
        scores_fingerprint=scores_fingerprint(calibration.scored.scores),
        seal_opened=len(roles.sealed.log),
        seal_log=tuple(map(str, roles.sealed.log)),
        seed=seed,
        versions=dict(versions()),
        support=tuning.support,
        stability=choice.stability,
    )


def recertify(
    before: Certificate,
    structure: Structure,
    calibration: Calibration,
    sealed: SealedRows,
    *,
    repeats_shared: dict[str, int],
) -> Certificate:
    """Certify other calibration rows of the same structure; `before` is replaced."""
    return replace(
        before,
        calibration=calibration.facts(),
        distinct=False,
        labels=None if structure.classes is None else len(structure.classes),
        rows={**before.rows, "calibrate": len(calibration.scored)},
        row_fingerprints={**before.row_fingerprints, "calibrate": sealed.fingerprint},
        repeats_shared=repeats_shared,
        scores_fingerprint=scores_fingerprint(calibration.scored.scores),
        seal_opened=len(sealed.log),
        seal_log=tuple(map(str, sealed.log)),
        versions=dict(versions()),
        replaces=before.fingerprint,
        written={},
    )
