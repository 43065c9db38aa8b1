"""The structure may depend on x: of several candidates, the one whose set is smallest there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray, Floats, Integers, as_labels
from dco.predictions import Several, take
from dco.scores.registry import register
from dco.scores.scales import linear
from dco.scores.score import LEAST, Cutoff, OfScores, Score, at_most, cutoff
from dco.sets.intervals import Intervals, IntervalUnions, Member
from dco.sets.labels import LabelSets, codes_of
from dco.sets.prediction_sets import PredictionSets


@dataclass(frozen=True, eq=False)
class Pointwise(OfScores):
    """F_m(S_m(x, y)) with m = m(x), the candidate with the smallest set at x (the first of equal
    ones).

    Sets are compared at `thresholds`, one per candidate, and F_m is the distribution of `tuning`,
    the sorted tuning scores of each candidate, (M, n): with it a score says the same of every
    candidate. Both come from tuning rows, so this is one fixed function of a row, and the paper's
    theorem holds for it as it does for any score. F_m is linear between the distinct scores, and
    grows beyond them, so that it keeps their order.
    """

    scores: tuple[Score, ...]
    thresholds: Floats
    tuning: Floats
    # an empty label set counts as larger than any; files of version 0.1 do not say so
    empty_last: bool = False
    needs: ClassVar[tuple[type, ...]] = (Several,)

    def chosen(self, prediction: Several) -> Integers:
        """The candidate of each row: it depends on x alone."""
        each = zip(self.scores, prediction.records, map(float, self.thresholds), strict=True)
        sizes = np.stack([score.sizes(record, cut) for score, record, cut in each]).astype(
            np.float64
        )
        # a set of numbers may have size 0 and hold one
        if self.empty_last and prediction.n_classes:
            sizes[sizes == 0] = np.inf
        return np.asarray(np.argmin(sizes, axis=0))

    def observed(self, prediction: Several, y: ArrayLike) -> Floats:
        """The share of the candidate's tuning scores that the score of y exceeds, (n,)."""
        labels, found = as_labels(y), np.empty(len(prediction))
        for m, rows, record in self._parts(prediction):
            found[rows] = Level(self.tuning[m]).of(self.scores[m].observed(record, labels[rows]))
        return found

    def every_label(self, prediction: Several) -> Floats:
        """The score of every label, (n, K), labels in the order of the first candidate's."""
        found = np.empty((len(prediction), prediction.n_classes))
        for m, rows, record in self._parts(prediction):
            found[rows] = Level(self.tuning[m]).of(self.scores[m].every_label(record))[
                :, _columns(prediction, m)
            ]
        return found

    def sets(self, prediction: Several, threshold: Cutoff) -> PredictionSets:
        """The set of each row's candidate, cut where its score reaches the threshold."""
        n, k = len(prediction), prediction.n_classes
        limit = cutoff(threshold, n, k or None)
        if k:
            return LabelSets.from_dense(self.every_label(prediction) <= limit, prediction.labels())
        limits = np.broadcast_to(limit, (n,))
        cut = [
            (self.scores[m].sets(record, Level(self.tuning[m]).beyond(limits[rows])), rows)
            for m, rows, record in self._parts(prediction)
        ]
        union = _gathered(cut, n, at_most(self, prediction, limit))
        if any(isinstance(part, IntervalUnions) for part, _ in cut):
            return union
        hull = union.hull()
        return Intervals(hull.lower, hull.upper, union.member)

    def _parts(self, prediction: Several) -> list[tuple[int, Integers, Any]]:
        chosen = self.chosen(prediction)
        taken = [(m, np.flatnonzero(chosen == m)) for m in range(len(self.scores))]
        return [(m, rows, take(prediction.records[m], rows)) for m, rows in taken if rows.size]


class Level:
    """A continuous, increasing version of the distribution of some values; +-inf stay what they
    are.
    """

    def __init__(self, values: Floats) -> None:
        # the least float is a label that every set holds
        finite = values[np.isfinite(values) & (values > LEAST)]
        knots, counts = np.unique(finite if finite.size else np.zeros(1), return_counts=True)
        width = float(knots[-1] - knots[0]) or 1.0  # one more width is one more unit, on both sides
        heights = np.cumsum(counts) / counts.sum()
        self.knots = np.concatenate([[knots[0] - width], knots, [knots[-1] + width]])
        self.heights = np.concatenate([[heights[0] - 1], heights, [2.0]])

    def of(self, values: Floats) -> Floats:
        """The level of each value, never decreasing with it; the least float is the least level of
        every candidate.
        """
        given = np.asarray(values, dtype=np.float64)
        return np.where(given == LEAST, LEAST, _along(given, self.knots, self.heights))

    def beyond(self, levels: Floats) -> Floats:
        """A value just above all that have at most each level."""
        found = _along(np.asarray(levels, dtype=np.float64), self.heights, self.knots)
        step, left = np.spacing(np.abs(found)), np.flatnonzero(np.isfinite(found))
        while left.size:
            left = left[self.of(found[left]) <= levels[left]]
            found[left] += step[left]
            step[left] *= 2
        return found


def _along(values: Floats, knots: Floats, heights: Floats) -> Floats:
    """Linear between knots, held between their heights so that rounding keeps the order, and on
    along the ends.
    """
    place = np.clip(np.searchsorted(knots, values, side="right") - 1, 0, len(knots) - 2)
    found = linear(values, knots, heights)
    found = np.where(np.isfinite(values), np.clip(found, LEAST, -LEAST), found)
    inside = (values >= knots[0]) & (values <= knots[-1])
    return np.where(inside, np.clip(found, heights[place], heights[place + 1]), found)


def _columns(prediction: Several, m: int) -> Integers:
    """Where candidate m lists each label of the first one."""
    first, own = (prediction.records[place].labels() for place in (0, m))
    if first is None or own is None:
        return np.arange(prediction.n_classes)
    places = codes_of(first, own)
    if len(first) != len(own) or (places < 0).any():
        raise ValueError("models that know different classes cannot be chosen from row by row.")
    return places


def _gathered(parts: list[tuple[Any, Integers]], n: int, member: Member) -> IntervalUnions:
    """Sets of some rows each, as sets of all rows."""
    pieces: list[AnyArray] = []
    for part, rows in parts:
        if isinstance(part, Intervals):
            filled = ~part.is_empty()
            pieces.append(np.stack([rows[filled], part.lower[filled], part.upper[filled]]))
        else:
            pieces.append(
                np.stack([np.repeat(rows, np.diff(part.row_pointers)), part.lower, part.upper])
            )
    row, lower, upper = np.concatenate(pieces, axis=1) if pieces else np.empty((3, 0))
    return IntervalUnions.of_pieces(n, row.astype(np.int64), lower, upper, member)


register(Pointwise)
