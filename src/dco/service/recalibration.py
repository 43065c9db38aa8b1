"""Recalibrate a fit: the same structure, new calibration rows, and a certificate that names the one
it replaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from dco.calibration.base import Calibrator
from dco.calibration.by_cluster import one_row_per_group
from dco.calibration.opening import (
    OpenedRows,
    note_targets,
    open_calibration_rows,
    settle_scores,
)
from dco.certificate.certify import recertify
from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.foundations.display import counted
from dco.foundations.errors import OverlappingRolesError
from dco.foundations.fingerprints import Hashes, role_fingerprint, row_fingerprints
from dco.foundations.notes import show
from dco.foundations.tables import missing_cells, stack_features, take_features
from dco.rows.kept_rows import KeptRows
from dco.rows.rows import Rows, rows_of
from dco.rows.seal import SealedRows
from dco.rows.targets import check_label_kinds
from dco.structure import ScoredRows, Structure

if TYPE_CHECKING:
    from dco.estimators import Decoupled
    from dco.predictor import DecoupledPredictor


def recalibrate(est: Decoupled, X: Any, y: Any, *, groups: Any = None, weights: Any = None) -> Any:
    """A copy of a fitted estimator whose structure is calibrated on new rows; `est` stays as it is.

    Nothing is fitted and nothing is chosen: the structure was frozen before it saw these rows, so
    the statement of the fit holds for rows exchangeable with them. The new certificate has the
    fingerprint of the old one in ``replaces``. Rows that trained or tuned the structure are
    refused. Which rows are taken, and when, must not depend on how their sets did: after an alarm,
    take rows that came later. `groups` is needed if the fit had it. `weights`, as of the estimator,
    say how the mix of rows to come differs from that of these rows; weights of the fit no longer
    count.
    """
    rows = rows_of(est.check_features(X), est.check_targets(y), groups=groups, params={})
    return recalibrated(est, rows, weights=weights)


@dataclass(frozen=True, eq=False)
class ScoredBatches:
    """Calibration rows that were scored where they lie, in place of features.

    `again` holds the features of some of them, which are at `places`: those that `calibrate` scores
    a second time.
    """

    y: AnyArray
    hashes: Hashes
    scores: Floats
    covariates: AnyArray | None
    clusters: AnyArray | None
    missing: Integers  # cells, by column
    again: Any
    places: Integers

    @classmethod
    def of(cls, predictor: DecoupledPredictor, rows: Rows, places: Integers) -> ScoredBatches:
        """Score one batch."""
        X, y, structure = rows.X, rows.y, predictor.structure
        if structure.classes is not None:
            structure = replace(structure, classes=np.union1d(structure.classes, y))
        found = (
            row_fingerprints(X, y),
            structure.scores(X, y),
            predictor.statement.calibrator.covariates(X, y),
            rows.clusters,
            missing_cells(X),
        )
        return cls(y, *found, take_features(X, places), places)

    @classmethod
    def together(cls, batches: Sequence[ScoredBatches]) -> ScoredBatches:
        """All batches, in their order."""
        starts = np.cumsum([0, *(len(each.y) for each in batches)])
        whole: dict[str, Any] = {
            name: None
            if getattr(batches[0], name) is None
            else np.concatenate([getattr(each, name) for each in batches])
            for name in ("y", "hashes", "scores", "covariates", "clusters")
        }
        whole["places"] = np.concatenate(
            [each.places + start for each, start in zip(batches, starts, strict=False)]
        )
        again = reduce(stack_features, [each.again for each in batches if each.places.size])
        return cls(**whole, missing=np.sum([each.missing for each in batches], axis=0), again=again)

    @property
    def iloc(self) -> ScoredBatches:
        """As of a frame: ``iloc[rows]`` are the features of rows that are scored again."""
        return self

    def __getitem__(self, rows: Integers) -> Any:
        return take_features(self.again, np.searchsorted(self.places, rows))


class _SealedScores(SealedRows):
    """Scored rows: they were hashed when they were scored, in the same moment."""

    def _hash_rows(self, rows: Rows) -> Hashes:
        hashes: Hashes = rows.X.hashes
        return hashes


def recalibrated(est: Decoupled, rows: Rows, *, weights: Any = None, rest: bool = False) -> Any:
    """`recalibrate` on rows that are checked, in memory or as `ScoredBatches`.

    `rest`: they are known not to be rows of the fit.
    """
    own, X = est.predictor_, rows.X
    if (rows.clusters is None) != (own.calibration.scored.clusters is None):
        had = "had" if rows.clusters is None else "had no"
        raise ValueError(
            f"The fit {had} groups=, and its statement is about such rows: "
            f"recalibrate in the same way."
        )
    structure, statement = own.structure, own.statement.reweighted(weights)
    if structure.classes is not None:  # a label that the model never saw scores +inf
        check_label_kinds({"the fit": structure.classes, "the new rows": rows.y})
        structure = replace(structure, classes=np.union1d(structure.classes, rows.y))
    known = X if isinstance(X, ScoredBatches) else None
    hashes, missing = (
        (row_fingerprints(X, rows.y), missing_cells(X))
        if known is None
        else (known.hashes, known.missing)
    )
    shared = _shared(own.kept, hashes, rest)
    seal = SealedRows if known is None else _SealedScores
    sealed = seal(X, rows.y, clusters=rows.clusters, fingerprint=role_fingerprint(hashes))
    opening = open_calibration_rows if known is None else _open_scored_batches
    opened = opening(
        structure,
        sealed,
        statement.calibrator,
        support=own.certificate.support,
        seed=own.certificate.seed or 0,
    )
    calibration = statement.calibrate(opened.scored)
    notes = (*opened.notes, *calibration.notes(classes=structure.classes))
    fresh, none = (
        KeptRows.of({"calibrate": hashes}, own.kept.complete & (missing == 0)),
        np.arange(0),
    )
    predictor = replace(
        own,
        structure=structure,
        statement=statement,
        calibration=calibration,
        certificate=recertify(
            own.certificate, structure, calibration, sealed, repeats_shared=shared
        ),
        kept=replace(own.kept, hashes={**own.kept.hashes, **fresh.hashes}, complete=fresh.complete),
        splits=replace(own.splits, calibrate=none, test=none, seed=None),
        notes=notes,
    )
    new: Any = object.__new__(type(est))
    new.__dict__ |= est.__dict__ | {"predictor_": predictor, "weights": weights}
    show(notes)
    return new


def _open_scored_batches(
    structure: Structure,
    sealed: SealedRows,
    calibrator: Calibrator,
    *,
    support: tuple[float, float] | None,
    seed: int,
) -> OpenedRows:
    """Do as `open_calibration_rows` with rows that were scored where they lie."""
    picks = np.random.default_rng([seed, 2])
    rows = sealed.open_for(structure.fingerprint)
    batches, y, clusters = rows.X, rows.y, rows.clusters
    scored = ScoredRows(
        scores=batches.scores,
        covariates=batches.covariates,
        clusters=clusters,
        one_per_cluster=None if clusters is None else one_row_per_group(clusters, seed=picks),
    )
    return OpenedRows(
        scored=settle_scores(scored, structure, calibrator, batches, y),
        notes=tuple(note_targets(structure, y, support=support)),
    )


def _shared(kept: KeptRows, hashes: Hashes, rest: bool) -> dict[str, int]:
    """How many of these rows each other role shares; an error if they are more than repeats
    explain.

    Of the `rest` of a table all are repeats, since the rows of the other roles are left out by
    their places.
    """
    others = replace(
        kept, hashes={role: own for role, own in kept.hashes.items() if role != "calibrate"}
    )
    if not rest and (used := others.used(hashes)):
        roles = ", ".join(f"{count} in {role}" for role, count in used.counts.items())
        raise OverlappingRolesError(
            f"{counted(used.total, 'row')} of {len(hashes)} took part in the fit ({roles}); "
            f"coverage needs calibration rows "
            "that fitting and tuning never saw. Leave them out."
        )
    return {
        f"{role} and calibrate": others.among(hashes).counts.get(role, 0) for role in others.hashes
    }
