"""What scores of class probabilities share: blocks of rows, labels never seen, all thresholds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Array, Floats, namespace, to_device_of
from dco.predictions import ClassDraws, ClassProbabilities, ClassRecord
from dco.scores.label_arrays import count_true, row_blocks, take_label
from dco.scores.score import Score, expect
from dco.scores.thresholds import AnyThreshold, thresholds_of_labels
from dco.sets.labels import LabelSets


class LabelScore(Score):
    """A score of class probabilities, whose sets hold labels.

    A subclass has one method, `score_labels`. It may replace `score_one_label`, `find_members` and
    `count_members` by something faster that decides alike. All four get the rows in blocks, so that
    no second matrix of all rows and labels is made, and thresholds as matrices that broadcast to
    the scores: one column for thresholds by row.
    """

    needs: ClassVar[tuple[type, ...]] = (ClassProbabilities, ClassDraws)
    works_on_devices: ClassVar[bool] = False  # otherwise arrays of a GPU are copied to the host

    @abstractmethod
    def score_labels(self, record: Any) -> Array:
        """Score every label that the model knows, (n, K)."""

    def score_one_label(self, record: Any, labels: Array) -> Array:
        """Score one label of each row, given by its column, (n,)."""
        return take_label(self.score_labels(record), labels)

    def find_members(self, record: Any, thresholds: Array) -> Array:
        """Mark the labels that score at most the thresholds, (n, K)."""
        return self.score_labels(record) <= thresholds

    def count_members(self, record: Any, several: Sequence[Array]) -> list[Array]:
        """Count the labels of each row that score at most the thresholds, for several of them."""
        scores = self.score_labels(record)
        return [count_true(scores <= thresholds) for thresholds in several]

    def read(self, prediction: Any) -> ClassRecord:
        """Check a prediction, and return it in the form that the score reads in blocks."""
        record: ClassRecord = expect(self, prediction, *self.needs)
        if self.randomised and record.uniforms is None:
            raise ValueError(
                f"{self!r} needs one uniform number per row: pass uniforms= to "
                f"{type(record).__name__}, made without looking at y, or use randomised=False."
            )
        record = record.as_probabilities()
        return record if self.works_on_devices else record.on_host()

    def observed(self, prediction: ClassRecord, y: ArrayLike) -> Array:
        """Score the label of each row, (n,); +inf for a label that the model has never seen."""
        record = self.read(prediction)
        labels = record.codes(y)
        xp = namespace(labels)
        is_known = labels < record.n_known
        columns = xp.where(is_known, labels, 0)

        scores = xp.concat(
            [
                self.score_one_label(record.take(rows), columns[rows])
                for rows in row_blocks(record.array)
            ]
        )
        return xp.where(is_known, scores, np.inf)

    def every_label(self, prediction: ClassRecord) -> Array:
        """Score every label, (n, K); those that the model has never seen come last, with +inf."""
        record = self.read(prediction)
        xp = namespace(record.array)
        scores = xp.concat(
            [self.score_labels(record.take(rows)) for rows in row_blocks(record.array)]
        )
        if record.unseen is None:
            return scores
        never_seen = xp.full((len(record), record.n_unseen), np.inf, device=scores.device)
        return xp.concat([scores, never_seen], axis=1)

    def sets(self, prediction: ClassRecord, threshold: AnyThreshold) -> LabelSets:
        """Return the set of each row: all labels whose score is at most the threshold."""
        record = self.read(prediction)
        thresholds = _read_thresholds(threshold, record)
        members = [
            self._find_all_members(record.take(rows), _of_rows(thresholds, rows))
            for rows in row_blocks(record.array)
        ]
        return LabelSets(namespace(members[0]).concat(members), record.labels())

    def sizes(self, prediction: ClassRecord, threshold: AnyThreshold) -> Array:
        """Count the labels of each set, (n,), without making the sets."""
        return self.sizes_at_several(prediction, [threshold])[0, :]

    def sizes_at_several(
        self, prediction: ClassRecord, thresholds: Sequence[AnyThreshold] | Floats
    ) -> Array:
        """Count the labels of each set at several thresholds, (J, n), in one pass over the rows."""
        record = self.read(prediction)
        if not len(thresholds):
            return np.zeros((0, len(record)), dtype=np.int64)

        several = [_read_thresholds(threshold, record) for threshold in thresholds]
        xp = namespace(record.array)
        blocks = [
            xp.stack(
                self._count_all_members(
                    record.take(rows), [_of_rows(thresholds, rows) for thresholds in several]
                )
            )
            for rows in row_blocks(record.array)
        ]
        return xp.concat(blocks, axis=1)

    def _find_all_members(self, record: ClassRecord, thresholds: Array) -> Array:
        """Mark the members, those among the labels that the model has never seen included."""
        members = self.find_members(record, _of_known_labels(thresholds, record))
        if record.unseen is None:
            return members
        return namespace(members).concat([members, _unseen_members(record, thresholds)], axis=1)

    def _count_all_members(self, record: ClassRecord, several: Sequence[Array]) -> Sequence[Array]:
        """Count the members, those among the labels that the model has never seen included."""
        counts = self.count_members(
            record, [_of_known_labels(thresholds, record) for thresholds in several]
        )
        if record.unseen is None:
            return counts
        return [
            count + count_true(_unseen_members(record, thresholds))
            for count, thresholds in zip(counts, several, strict=True)
        ]


def is_by_row(thresholds: Array) -> bool:
    """Say whether all labels of a row share one threshold."""
    return bool(thresholds.shape[1] == 1)


def _read_thresholds(threshold: AnyThreshold, record: ClassRecord) -> Array:
    """Return thresholds that broadcast to the scores of all labels, where the record is."""
    thresholds = thresholds_of_labels(threshold, len(record), record.n_classes)
    return to_device_of(thresholds, record.array)


def _of_rows(thresholds: Array, rows: slice) -> Array:
    """Return the thresholds of some rows."""
    return thresholds if thresholds.shape[0] == 1 else thresholds[rows, :]


def _of_known_labels(thresholds: Array, record: ClassRecord) -> Array:
    """Return the thresholds of the labels that the model knows."""
    return thresholds if is_by_row(thresholds) else thresholds[:, : record.n_known]


def _unseen_members(record: ClassRecord, thresholds: Array) -> Array:
    """Mark the members among labels that the model has never seen: all where the threshold is
    infinite, for their score is.
    """
    of_unseen = thresholds if is_by_row(thresholds) else thresholds[:, record.n_known :]
    shape = (len(record), record.n_unseen)
    return namespace(thresholds).broadcast_to(of_unseen == np.inf, shape)
