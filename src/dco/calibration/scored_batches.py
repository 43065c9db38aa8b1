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
from dco.calibration.opening import (
    OpenedRows,
    note_targets,
    pick_one_per_cluster,
    settle_scores,
)
from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.foundations.fingerprints import Hashes, role_fingerprint, row_fingerprints
from dco.foundations.tables import missing_cells, stack_features, take_features
from dco.rows.rows import Rows
from dco.rows.seal import SealedRows
from dco.structure import ScoredRows, Structure


@dataclass(frozen=True, eq=False)
class SelectedRows:
    """Features of some rows of a table, which stand in for the table.

    They are asked for by their positions in the whole table, and no other rows may be asked for.
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
    """Score one batch of calibration rows, and read what else the calibrator needs of them.

    Features are dropped, but for the rows at the positions `score_again` of the batch: they are
    scored a second time after all batches are joined.
    """
    # Labels that the model never saw must be among the classes, to score +inf.
    if structure.classes is not None:
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
    """Join scored batches into one, in their order."""
    return ScoredBatch(
        y=np.concatenate([batch.y for batch in batches]),
        hashes=np.concatenate([batch.hashes for batch in batches]),
        scores=np.concatenate([batch.scores for batch in batches]),
        covariates=_concatenate_if_any([batch.covariates for batch in batches]),
        clusters=_concatenate_if_any([batch.clusters for batch in batches]),
        missing_cells=np.sum([batch.missing_cells for batch in batches], axis=0),
        scored_again=_join_selected_rows(batches),
    )


def _join_selected_rows(batches: Sequence[ScoredBatch]) -> SelectedRows:
    """Join the rows of each batch that are scored a second time, and that kept their features.

    Their positions in the batches become positions among all rows.
    """
    features = []
    positions = []
    batch_start = 0  # the position of the batch's first row among all rows
    for batch in batches:
        selected = batch.scored_again
        if selected.positions.size > 0:
            features.append(selected.features)
            positions.append(batch_start + selected.positions)
        batch_start += len(batch)
    return SelectedRows(reduce(stack_features, features), np.concatenate(positions))


def _concatenate_if_any(arrays: Sequence[AnyArray | None]) -> AnyArray | None:
    """Concatenate arrays, without those that are None; None if all are."""
    present = [array for array in arrays if array is not None]
    return np.concatenate(present) if present else None


class SealedScores(SealedRows):
    """Calibration rows that were scored in batches, under a seal.

    Their hashes were computed together with their scores, and the seal takes them from there.
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
        """Open the rows, whose scores were computed before, and check the scores.

        This does for rows that were scored in batches what `open_calibration_rows` does for rows in
        memory.

        Parameters
        ----------
        structure
            The fitted model with its score, by which the rows were scored.
        calibrator
            What read the covariate of each row: its weight, say, or the group that it is in.
        support
            The lowest and the highest y that are possible, if the caller knows them.
        seed
            The seed of the fit.
        """
        rows = self.open_for(structure.fingerprint)
        scored = ScoredRows(
            scores=self._scored.scores,
            covariates=self._scored.covariates,
            clusters=rows.clusters,
            one_per_cluster=pick_one_per_cluster(rows.clusters, seed=seed),
        )

        # Some rows are scored a second time, as a check. `rows.X` has the features of these alone.
        return OpenedRows(
            scored=settle_scores(scored, structure, calibrator, rows.X, rows.y),
            notes=tuple(note_targets(structure, rows.y, support=support)),
        )
