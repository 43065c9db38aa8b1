"""Calibration rows that are scored where they lie, batch by batch; no features are gathered.

What comes back of each row is what a calibration needs: its target, score, hash and cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from dco.calibration.base import Calibrator
from dco.calibration.by_cluster import one_row_per_group
from dco.calibration.opening import OpenedRows, note_targets, settle_scores
from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.foundations.fingerprints import Hashes, role_fingerprint, row_fingerprints
from dco.foundations.tables import missing_cells, stack_features, take_features
from dco.rows.rows import Rows
from dco.rows.seal import SealedRows
from dco.structure import ScoredRows, Structure


@dataclass(frozen=True, eq=False)
class SelectedRows:
    """Features of some rows of a table, found by their positions in the table.

    It stands in for the table where only these rows are asked for.
    """

    features: Any
    positions: Integers  # ascending

    @property
    def iloc(self) -> SelectedRows:
        """Find rows as in a frame: ``selected.iloc[positions]``."""
        return self

    def __getitem__(self, positions: Integers) -> Any:
        return take_features(self.features, np.searchsorted(self.positions, positions))


@dataclass(frozen=True, eq=False)
class ScoredBatch:
    """Scored rows with their targets; features of those alone that are scored a second time."""

    y: AnyArray
    hashes: Hashes
    scores: Floats
    covariates: AnyArray | None
    clusters: AnyArray | None
    missing_cells: Integers  # by column
    scored_again: SelectedRows

    def __len__(self) -> int:
        return len(self.y)


def score_rows(
    structure: Structure, calibrator: Calibrator, rows: Rows, *, score_again: Integers
) -> ScoredBatch:
    """Score some rows of a table, and keep the features of those at the positions `score_again`.

    The rows kept are scored a second time after all batches are joined.
    """
    if structure.classes is not None:  # a label that the model never saw scores +inf
        structure = replace(structure, classes=np.union1d(structure.classes, rows.y))
    return ScoredBatch(
        y=rows.y,
        hashes=row_fingerprints(rows.X, rows.y),
        scores=structure.scores(rows.X, rows.y),
        covariates=calibrator.covariates(rows.X, rows.y),
        clusters=rows.clusters,
        missing_cells=missing_cells(rows.X),
        scored_again=SelectedRows(take_features(rows.X, score_again), score_again),
    )


def join_batches(batches: Sequence[ScoredBatch]) -> ScoredBatch:
    """Put batches together, in their order."""
    # Positions within a batch become positions among all rows.
    sizes = [len(batch) for batch in batches]
    starts = np.cumsum([0, *sizes[:-1]])
    positions = [
        batch.scored_again.positions + start for batch, start in zip(batches, starts, strict=True)
    ]
    features = [
        batch.scored_again.features for batch in batches if batch.scored_again.positions.size
    ]
    all_features = reduce(stack_features, features)

    return ScoredBatch(
        y=np.concatenate([batch.y for batch in batches]),
        hashes=np.concatenate([batch.hashes for batch in batches]),
        scores=np.concatenate([batch.scores for batch in batches]),
        covariates=_join([batch.covariates for batch in batches]),
        clusters=_join([batch.clusters for batch in batches]),
        missing_cells=np.sum([batch.missing_cells for batch in batches], axis=0),
        scored_again=SelectedRows(all_features, np.concatenate(positions)),
    )


def _join(parts: Sequence[AnyArray | None]) -> AnyArray | None:
    """Join arrays; None if these rows have no such values."""
    arrays = [part for part in parts if part is not None]
    return np.concatenate(arrays) if arrays else None


class SealedScores(SealedRows):
    """Calibration rows that were scored in batches, under a seal.

    They were hashed in the moment in which they were scored, so the hashes are those of the seal.
    """

    def __init__(self, scored: ScoredBatch) -> None:
        self._scored = scored
        super().__init__(
            scored.scored_again,
            scored.y,
            clusters=scored.clusters,
            fingerprint=role_fingerprint(scored.hashes),
        )

    def _hash_rows(self, rows: Rows) -> Hashes:
        return self._scored.hashes

    def open_scores(
        self,
        structure: Structure,
        calibrator: Calibrator,
        *,
        support: tuple[float, float] | None,
        seed: int,
    ) -> OpenedRows:
        """Open the rows and check their scores, as `open_calibration_rows` does in memory."""
        rows = self.open_for(structure.fingerprint)
        one_per_cluster = None
        if rows.clusters is not None:
            picks = np.random.default_rng([seed, 2])
            one_per_cluster = one_row_per_group(rows.clusters, seed=picks)
        scored = ScoredRows(
            scores=self._scored.scores,
            covariates=self._scored.covariates,
            clusters=rows.clusters,
            one_per_cluster=one_per_cluster,
        )
        return OpenedRows(
            scored=settle_scores(scored, structure, calibrator, rows.X, rows.y),
            notes=tuple(note_targets(structure, rows.y, support=support)),
        )
