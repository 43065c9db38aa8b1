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
    `count_members` by something faster that gives the same result. These four know nothing of

    - labels that the model has never seen, which always score +inf,
    - many rows: they get blocks of rows, so that no second matrix of all rows and labels is made,
    - kinds of thresholds: they get a matrix that broadcasts to the scores, with one column where a
      row has the same threshold for all labels.
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
        """Count the labels of each row that score at most the thresholds.

        `several` are matrices of thresholds; there is one array (n,) of counts for each.
        """
        scores = self.score_labels(record)
        return [count_true(scores <= thresholds) for thresholds in several]

    def read(self, prediction: Any) -> ClassRecord:
        """Check a prediction, and return it as the record that the four methods get in blocks.

        Uniform numbers must be there if the score is randomised. Records on a GPU are copied to the
        host unless the score works there.
        """
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
        codes = record.codes(y)  # the column of each label; n_known or more for labels never seen
        xp = namespace(codes)
        is_known = codes < record.n_known
        columns = xp.where(is_known, codes, 0)

        scores = []
        for rows in row_blocks(record.array):
            scores.append(self.score_one_label(record.take(rows), columns[rows]))
        return xp.where(is_known, xp.concat(scores), np.inf)

    def every_label(self, prediction: ClassRecord) -> Array:
        """Score every label, (n, K); those that the model has never seen come last, with +inf."""
        record = self.read(prediction)
        xp = namespace(record.array)
        blocks = [self.score_labels(record.take(rows)) for rows in row_blocks(record.array)]
        scores = xp.concat(blocks)
        if record.unseen is None:
            return scores
        scores_of_unseen = xp.full((len(record), record.n_unseen), np.inf, device=scores.device)
        return xp.concat([scores, scores_of_unseen], axis=1)

    def sets(self, prediction: ClassRecord, threshold: AnyThreshold) -> LabelSets:
        """Return the set of each row: all labels whose score is at most the threshold."""
        record = self.read(prediction)
        thresholds = _read_thresholds(threshold, record)
        blocks = []
        for rows in row_blocks(record.array):
            block_thresholds = _take_rows(thresholds, rows)
            blocks.append(self._find_all_members(record.take(rows), block_thresholds))
        members = namespace(blocks[0]).concat(blocks)
        return LabelSets(members, record.labels())

    def sizes(self, prediction: ClassRecord, threshold: AnyThreshold) -> Array:
        """Count the labels of each set, (n,), without making the sets."""
        return self.sizes_at_several(prediction, [threshold])[0, :]

    def sizes_at_several(
        self, prediction: ClassRecord, thresholds: Sequence[AnyThreshold] | Floats
    ) -> Array:
        """Count the labels in each row's set at each of J thresholds, (J, n).

        The rows are scored once for all thresholds, in blocks that fit into memory.
        """
        record = self.read(prediction)
        if not len(thresholds):
            return np.zeros((0, len(record)), dtype=np.int64)

        matrices = [_read_thresholds(threshold, record) for threshold in thresholds]
        xp = namespace(record.array)
        counts_of_blocks = []
        for rows in row_blocks(record.array):
            matrices_of_block = [_take_rows(matrix, rows) for matrix in matrices]
            counts = self._count_all_members(record.take(rows), matrices_of_block)
            counts_of_blocks.append(xp.stack(counts))
        return xp.concat(counts_of_blocks, axis=1)

    def _find_all_members(self, record: ClassRecord, thresholds: Array) -> Array:
        """Mark the members of the sets of a block of rows, (n, K).

        Labels that the model has never seen are the last columns.
        """
        members = self.find_members(record, _of_known_labels(thresholds, record))
        if record.unseen is None:
            return members
        unseen_members = _find_unseen_members(record, thresholds)
        return namespace(members).concat([members, unseen_members], axis=1)

    def _count_all_members(
        self, record: ClassRecord, thresholds_list: Sequence[Array]
    ) -> Sequence[Array]:
        """Count the labels in the set of each row, for each of several matrices of thresholds.

        Labels that the model has never seen (no training row has them) are counted too: they score
        +inf. The result has one array (n,) of counts for each matrix.
        """
        thresholds_of_known = [
            _of_known_labels(thresholds, record) for thresholds in thresholds_list
        ]
        counts = self.count_members(record, thresholds_of_known)
        if record.unseen is None:
            return counts

        all_counts = []
        for count, thresholds in zip(counts, thresholds_list, strict=True):
            unseen_members = _find_unseen_members(record, thresholds)
            all_counts.append(count + count_true(unseen_members))
        return all_counts


def is_by_row(thresholds: Array) -> bool:
    """Tell whether all labels of a row share one threshold."""
    return bool(thresholds.shape[1] == 1)


def _read_thresholds(threshold: AnyThreshold, record: ClassRecord) -> Array:
    """Return a matrix of thresholds that broadcasts to (n, K), on the device of the record."""
    thresholds = thresholds_of_labels(threshold, len(record), record.n_classes)
    return to_device_of(thresholds, record.array)


def _take_rows(thresholds: Array, rows: slice) -> Array:
    """Return the thresholds of some rows; a matrix of one row holds for all."""
    return thresholds if thresholds.shape[0] == 1 else thresholds[rows, :]


def _of_known_labels(thresholds: Array, record: ClassRecord) -> Array:
    """Return the thresholds of the labels that the model knows."""
    return thresholds if is_by_row(thresholds) else thresholds[:, : record.n_known]


def _find_unseen_members(record: ClassRecord, thresholds: Array) -> Array:
    """Mark the members among the labels that the model has never seen, (n, n_unseen).

    Their scores are +inf, so they are members where the threshold is.
    """
    of_unseen = thresholds if is_by_row(thresholds) else thresholds[:, record.n_known :]
    shape = (len(record), record.n_unseen)
    return namespace(thresholds).broadcast_to(of_unseen == np.inf, shape)
