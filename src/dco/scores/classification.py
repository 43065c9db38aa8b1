"""Scores of class probabilities, and label sets without sorting indices.

A label's score is one float, whichever way it is asked for. Two facts make that cheap:

* The mass of labels can be summed in any order without rounding (`ranks`).
* Along the ranks a score never falls, in floating point too. A set is therefore the first c labels of its row, and c is
  found in the sorted values alone: no index is ever sorted, and of long rows only the values that a set may reach.

Rows are handled in chunks that stay in the cache, so no second n x K matrix is made.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Bools, Floats, Integers
from dco.foundations.ranks import as_count
from dco.predictions import ClassDraws, ClassProbabilities, ClassRecord, Prediction
from dco.scores.ranks import (
    BLOCK,
    Doubles,
    Ranks,
    checked_mass,
    codes_of_members,
    count_true,
    falling_from,
    falling_values,
    first_labels,
    least_probability,
    native,
    order_of_ranks,
    picked,
    place_of,
    rounded,
    two_largest,
)
from dco.scores.registry import register
from dco.scores.score import Cutoff, Score, cutoff, expect
from dco.sets.labels import LabelSets

_CHUNK = 2**18  # elements per chunk: one megabyte in single precision
_SHARED_CHUNK = 2 * _CHUNK  # where many scores share a chunk, the steps of each are short and want longer rows of numbers
_SHORT_ROW = 256  # labels; up to here a whole row is sorted by a fixed network, which nothing beats
_SAMPLED = 8  # rows of a chunk that are sorted whole, to see which values the sets of the others may reach
_MARGIN = 0.75  # of the smallest such value: so few other rows reach further that sorting those whole costs little


class LabelScore(Score):
    """What the scores of labels share: chunks of rows, labels never seen, thresholds of every shape.

    A subclass gives the scores of one chunk of rows; `row_members` and `row_sizes` may be replaced by something faster that
    decides alike.
    """

    needs: ClassVar[tuple[type, ...]] = (ClassProbabilities, ClassDraws)

    @abstractmethod
    def row_scores(self, probabilities: Floats, uniforms: Doubles) -> Doubles:
        """The scores of all labels of a chunk of rows, (rows, K)."""

    @abstractmethod
    def label_scores(self, probabilities: Floats, codes: Integers, uniforms: Doubles) -> Doubles:
        """The score of one label for each row of a chunk, (rows,)."""

    def row_members(self, probabilities: Floats, uniforms: Doubles, threshold: float | Doubles) -> Bools:
        """Which labels of a chunk of rows score at most the threshold, (rows, K)."""
        return np.asarray(self.row_scores(probabilities, uniforms) <= threshold)

    def row_sizes(self, probabilities: Floats, uniforms: Doubles, thresholds: Sequence[float | Doubles]) -> Integers:
        """How many labels of each row score at most each threshold, (J, rows)."""
        scores = self.row_scores(probabilities, uniforms)
        return np.stack([count_true(np.asarray(scores <= value)) for value in thresholds])

    def observed(self, prediction: ClassRecord, y: ArrayLike) -> Doubles:
        """The score of the label that happened, (n,); +inf for a label that the model has never seen."""
        score, record = self.bound(prediction)
        codes = record.codes(y)
        scores = np.empty(len(record))
        known = codes < record.n_known
        columns = np.where(known, codes, 0)
        for rows, uniforms in score._chunks(record):
            scores[rows] = score._observed(record, rows, columns[rows], uniforms)
        scores[~known] = np.inf
        return scores

    def every_label(self, prediction: ClassRecord) -> Doubles:
        """The score of every label, (n, K); labels that the model has never seen come last and have +inf."""
        score, record = self.bound(prediction)
        scores = np.full((len(record), record.n_classes), np.inf)
        for rows, uniforms in score._chunks(record):
            scores[rows, : record.n_known] = score.row_scores(score._probabilities(record, rows), uniforms)
        return scores

    def sets(self, prediction: ClassRecord, threshold: Cutoff) -> LabelSets:
        """All labels whose score is at most the threshold."""
        score, record = self.bound(prediction)
        limits = _limits(threshold, len(record), record.n_classes)
        pointers = np.zeros(len(record) + 1, dtype=np.int64)
        pieces, filled = [np.empty(0, dtype=np.int32)], 0
        for rows, uniforms in score._chunks(record):
            known, unseen = _split(limits, rows, record.n_known)
            members = score.row_members(score._probabilities(record, rows), uniforms, known)
            members = _with_unseen(members, unseen, record.n_classes)
            codes, ends = codes_of_members(members)
            pointers[rows.start + 1 : rows.stop + 1] = filled + ends
            filled += len(codes)
            pieces.append(codes)
        return LabelSets(pointers, np.concatenate(pieces), record.n_classes, record.labels())

    def sizes(self, prediction: ClassRecord, threshold: Cutoff) -> Integers:
        """How many labels each set holds, (n,), without making the sets."""
        return np.asarray(self.sizes_at_several(prediction, [threshold])[0])

    def sizes_at_several(self, prediction: ClassRecord, thresholds: Sequence[Cutoff] | Floats) -> Integers:
        """The sizes of the sets at several thresholds, (J, n), from one pass over the probabilities."""
        score, record = self.bound(prediction)
        limits = [_limits(threshold, len(record), record.n_classes) for threshold in thresholds]
        sizes = np.zeros((len(limits), len(record)), dtype=np.int64)
        for rows, uniforms in score._chunks(record) if limits else ():
            parts = [_split(limit, rows, record.n_known) for limit in limits]
            sizes[:, rows] = score.row_sizes(score._probabilities(record, rows), uniforms, [known for known, _ in parts])
            if record.n_classes > record.n_known:
                for size, (_, unseen) in zip(sizes, parts, strict=True):
                    extra = np.broadcast_to(unseen, (rows.stop - rows.start, record.n_classes - record.n_known))
                    size[rows] += np.count_nonzero(extra, axis=1)
        return sizes

    def bound(self, prediction: Any) -> tuple[LabelScore, ClassRecord]:
        """The score, and the prediction in the form that `_probabilities` reads: draws are averaged here, once."""
        return self, self._expected(prediction).as_probabilities()

    def _expected(self, prediction: Any) -> ClassRecord:
        record: ClassRecord = expect(self, prediction, *self.needs)
        if self.randomised and record.uniforms is None:
            raise ValueError(
                f"{self!r} needs one uniform number per row: pass uniforms= to {type(record).__name__}, made without "
                "looking at y, or use randomised=False."
            )
        return record

    def _chunks(self, record: ClassRecord, elements: int = _CHUNK) -> Iterator[tuple[slice, Doubles]]:
        """Slices of rows and their uniforms as a column (ones where the score is not randomised)."""
        n, step = len(record), max(1, elements // record.n_known)
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            if self.randomised and record.uniforms is not None:
                yield rows, record.uniforms[rows, None].astype(np.float64)
            else:
                yield rows, np.ones((rows.stop - start, 1))

    def _probabilities(self, record: Any, rows: slice) -> Floats:
        return native(record.probabilities[rows])

    def _observed(self, record: Any, rows: slice, codes: Integers, uniforms: Doubles) -> Doubles:
        return self.label_scores(self._probabilities(record, rows), codes, uniforms)


@dataclass(frozen=True)
class LAC(LabelScore):
    """1 - p(y), Sadinle, Lei and Wasserman (2019): the smallest sets on average where the probabilities are right."""

    def row_scores(self, probabilities: Floats, uniforms: Doubles) -> Doubles:
        """1 - p for every label."""
        return np.subtract(1.0, probabilities, dtype=np.float64)

    def label_scores(self, probabilities: Floats, codes: Integers, uniforms: Doubles) -> Doubles:
        """1 - p for one label per row."""
        return np.subtract(1.0, picked(probabilities, codes), dtype=np.float64)

    def row_members(self, probabilities: Floats, uniforms: Doubles, threshold: float | Doubles) -> Bools:
        """One comparison with the least probability whose score is at most the threshold."""
        if not isinstance(threshold, float):
            return super().row_members(probabilities, uniforms, threshold)
        return np.asarray(probabilities >= least_probability(threshold, probabilities.dtype.itemsize))

    def row_sizes(self, probabilities: Floats, uniforms: Doubles, thresholds: Sequence[float | Doubles]) -> Integers:
        """Members counted."""
        return np.stack([count_true(self.row_members(probabilities, uniforms, t)) for t in thresholds])


@dataclass(frozen=True)
class Margin(LabelScore):
    """max over j != y of p(j), minus p(y): how far the label is behind the best of the others (0 if there are none)."""

    def row_scores(self, probabilities: Floats, uniforms: Doubles) -> Doubles:
        """The margin of every label."""
        first, second = two_largest(probabilities)
        return np.subtract(np.where(probabilities == first, second, first), probabilities, dtype=np.float64)

    def label_scores(self, probabilities: Floats, codes: Integers, uniforms: Doubles) -> Doubles:
        """The margin of one label per row."""
        first, second = two_largest(probabilities)
        own = picked(probabilities, codes)
        return np.subtract(np.where(own == first[:, 0], second[:, 0], first[:, 0]), own, dtype=np.float64)


class RankScore(LabelScore):
    """Scores that never fall along the ranks: labels by decreasing probability, equal ones by column.

    A subclass gives the formula once, as a function of the mass ranked before the label, the label's own mass, the largest
    probability, the rank (from 1) and the uniform. Everything else is decided with that formula. A score that is not
    randomised must look at the sum of the two masses only.
    """

    uses_mass: ClassVar[bool] = True

    @abstractmethod
    def formula(self, before: Doubles, own: Doubles, top: Doubles, rank: Doubles, uniforms: Doubles) -> Doubles:
        """The score; arguments broadcast."""

    def row_scores(self, probabilities: Floats, uniforms: Doubles) -> Doubles:
        """Scores along the ranks, put back where their labels stand."""
        order = order_of_ranks(probabilities)
        own = rounded(np.take_along_axis(probabilities, order, axis=1))
        mass = checked_mass(np.cumsum(own, axis=1)) if self.uses_mass else own
        rank = np.arange(1.0, own.shape[1] + 1)
        top = probabilities.max(axis=1, keepdims=True).astype(np.float64)
        scores = np.empty(own.shape)
        np.put_along_axis(scores, order, self.formula(mass - own, own, top, rank, uniforms), axis=1)
        return scores

    def label_scores(self, probabilities: Floats, codes: Integers, uniforms: Doubles) -> Doubles:
        """Rank and mass of one label per row, by one pass of comparisons: no sort."""
        return self.formula(*place_of(probabilities, codes, self.uses_mass), uniforms)[:, 0]

    def row_members(self, probabilities: Floats, uniforms: Doubles, threshold: float | Doubles) -> Bools:
        """The first c labels of each row: those at least as large as the c-th largest, ties counted off by column."""
        if not _is_by_row(threshold):
            return super().row_members(probabilities, uniforms, threshold)
        members = np.empty(probabilities.shape, dtype=bool)
        for rows, falling, lengths in self._sorted_parts(probabilities, uniforms, [threshold]):
            members[rows] = first_labels(probabilities[rows], falling, lengths[0])
        return members

    def row_sizes(self, probabilities: Floats, uniforms: Doubles, thresholds: Sequence[float | Doubles]) -> Integers:
        """The number of ranks at or below each threshold; no label is looked up."""
        if not all(_is_by_row(threshold) for threshold in thresholds):
            return super().row_sizes(probabilities, uniforms, thresholds)
        if not self.uses_mass:
            return self._lengths(Ranks.along(probabilities, False), uniforms, thresholds)
        sizes = np.empty((len(thresholds), len(probabilities)), dtype=np.int64)
        for rows, _, lengths in self._sorted_parts(probabilities, uniforms, thresholds):
            sizes[:, rows] = lengths
        return sizes

    def _sorted_parts(
        self, probabilities: Floats, uniforms: Doubles, thresholds: Sequence[float | Doubles]
    ) -> Iterator[tuple[Any, Floats, Integers]]:
        """Rows in one part or two: which, their values along the ranks, how many ranks each threshold reaches, (J, rows).

        The first part's values end somewhere beyond the last rank that counts; rows where they do not are sorted whole.
        """
        least = self._least_reached(probabilities, uniforms, thresholds)
        head = None if least is None else falling_from(probabilities, least)
        if head is None:
            yield slice(None), *self._sorted_whole(probabilities, uniforms, thresholds)
            return
        falling, held = head
        lengths = self._lengths(Ranks.of(falling, falling.shape[1], self.uses_mass), uniforms, thresholds)
        settled = (lengths < held).all(axis=0)
        if settled.all():
            yield slice(None), falling, lengths
            return
        yield settled, falling[settled], lengths[:, settled]
        rest = np.flatnonzero(~settled)
        yield rest, *self._sorted_whole(probabilities[rest], uniforms[rest], [_some(t, rest) for t in thresholds])

    def _least_reached(
        self, probabilities: Floats, uniforms: Doubles, thresholds: Sequence[float | Doubles]
    ) -> float | None:
        """A probability that few rows' sets, and the value after them, go below; None where sorting whole is as good."""
        n, k = probabilities.shape
        if k <= _SHORT_ROW or n < 4 * _SAMPLED:
            return None
        some = slice(None, None, n // _SAMPLED)
        falling, lengths = self._sorted_whole(probabilities[some], uniforms[some], [_some(t, some) for t in thresholds])
        reach = lengths.max(axis=0)
        if reach.max() == k:
            return None
        return _MARGIN * float(-falling[np.arange(len(reach)), reach].max())

    def _sorted_whole(
        self, probabilities: Floats, uniforms: Doubles, thresholds: Sequence[float | Doubles]
    ) -> tuple[Floats, Integers]:
        falling = falling_values(probabilities)
        return falling, self._lengths(Ranks.of(falling, probabilities.shape[1], self.uses_mass), uniforms, thresholds)

    def _lengths(self, ranks: Ranks, uniforms: Doubles, thresholds: Sequence[float | Doubles]) -> Integers:
        """How many ranks score at most each threshold, (J, rows).

        First whole blocks of ranks are placed by the score at their end, then ranks inside the one block that is cut.
        """
        n, n_blocks = ranks.ends.shape
        end_scores = self.formula(ranks.ends - ranks.last, ranks.last, ranks.top, ranks.last_rank, uniforms)
        row, inside = np.arange(n), np.arange(1.0, BLOCK + 1)
        lengths = np.empty((len(thresholds), n), dtype=np.int64)
        for length, threshold in zip(lengths, thresholds, strict=True):
            whole = count_true(end_scores <= threshold)
            cut = np.minimum(whole, n_blocks - 1)
            own = ranks.masses[row, cut]
            mass = np.cumsum(own, axis=1) + np.where(cut > 0, ranks.ends[row, cut - 1], 0.0)[:, None]
            rank = cut[:, None] * float(BLOCK) + inside
            partial = count_true(self.formula(mass - own, own, ranks.top, rank, uniforms) <= threshold)
            length[:] = np.where(whole == n_blocks, ranks.k, whole * BLOCK + partial)
        return lengths


@dataclass(frozen=True)
class APS(RankScore):
    """The mass of all labels ranked up to y, Romano, Sesia and Candes (2020).

    Randomised: less U p(y), one uniform U per row; coverage is then not inflated by large steps, and sets may be empty.
    """

    randomised: bool = False

    def formula(self, before: Doubles, own: Doubles, top: Doubles, rank: Doubles, uniforms: Doubles) -> Doubles:
        """Mass before the label and the kept share of its own."""
        return before + (own * (1.0 - uniforms) if self.randomised else own)


@dataclass(frozen=True)
class RAPS(RankScore):
    """APS plus penalty * max(0, rank - rank_free), Angelopoulos et al. (2021): fewer labels far down the ranks."""

    penalty: float
    rank_free: int
    randomised: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "penalty", _not_negative(self.penalty, "penalty"))
        object.__setattr__(self, "rank_free", as_count(self.rank_free, name="rank_free"))

    def formula(self, before: Doubles, own: Doubles, top: Doubles, rank: Doubles, uniforms: Doubles) -> Doubles:
        """The mass of APS plus the penalty on the rank."""
        mass = before + (own * (1.0 - uniforms) if self.randomised else own)
        return mass + self.penalty * np.maximum(rank - self.rank_free, 0.0)


@dataclass(frozen=True)
class SAPS(RankScore):
    """U p_max for the top label, else p_max + (rank - 2 + U) weight, Huang et al. (2024); U = 1 if not randomised.

    Of the probabilities only the largest is used, and otherwise the ranks.
    """

    weight: float
    randomised: bool = False

    uses_mass: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", _not_negative(self.weight, "weight"))

    def formula(self, before: Doubles, own: Doubles, top: Doubles, rank: Doubles, uniforms: Doubles) -> Doubles:
        """The formula above; the uniform is 1 where the score is not randomised."""
        return np.where(rank == 1.0, uniforms * top, top + (rank - 2.0 + uniforms) * self.weight)


@dataclass(frozen=True)
class TopK(RankScore):
    """The rank of the label, 1 to K: sets of one size."""

    uses_mass: ClassVar[bool] = False

    def formula(self, before: Doubles, own: Doubles, top: Doubles, rank: Doubles, uniforms: Doubles) -> Doubles:
        """The rank."""
        return rank + np.zeros_like(top)


def observed_together(scores: Sequence[RankScore], prediction: Prediction, y: ArrayLike) -> Doubles:
    """``score.observed(prediction, y)`` for several scores, (S, n): rank and mass of each label are found once for all."""
    record = _shared_record(scores, prediction)
    codes = record.codes(y)
    known = codes < record.n_known
    columns, with_mass = np.where(known, codes, 0), any(score.uses_mass for score in scores)
    result = np.empty((len(scores), len(record)))
    for rows, drawn in _shared_chunks(scores, record):
        place = place_of(native(record.probabilities[rows]), columns[rows], with_mass)
        for observed, score in zip(result, scores, strict=True):
            observed[rows] = score.formula(*place, drawn[score.randomised])[:, 0]
    result[:, ~known] = np.inf
    return result


def sizes_together(
    scores: Sequence[RankScore], prediction: Prediction, thresholds: Sequence[Sequence[float]]
) -> list[Integers]:
    """`sizes_at_several` of each score at its own thresholds, (J, n) each: rows are sorted once for all."""
    record = _shared_record(scores, prediction)
    result: list[Integers] = [np.empty((len(levels), len(record)), dtype=np.int64) for levels in thresholds]
    with_mass = any(score.uses_mass for score in scores)
    for rows, drawn in _shared_chunks(scores, record):
        ranks = Ranks.along(native(record.probabilities[rows]), with_mass)
        reached = np.cumsum(ranks.masses.reshape(len(ranks.top), -1), axis=1)  # dear for one score, cheap for many
        for sizes, score, levels in zip(result, scores, thresholds, strict=True):
            sizes[:, rows] = _lengths_by_bisection(score, ranks, reached, drawn[score.randomised], levels)
    for sizes, levels in zip(result, thresholds, strict=True):
        sizes[np.isposinf(levels)] = record.n_classes  # labels never seen are in a set whose threshold is infinite
    return result


def _lengths_by_bisection(
    score: RankScore, ranks: Ranks, reached: Doubles, uniforms: Doubles, thresholds: Sequence[float]
) -> Integers:
    """What `RankScore._lengths` finds, for all thresholds at once: ranks are bisected by the mass `reached` at each."""
    limits, top, drawn = np.asarray(thresholds, dtype=np.float64)[:, None], ranks.top[:, 0], uniforms[:, 0]
    before_first = np.arange(len(reached)) * reached.shape[1] - 1
    lengths = np.zeros((len(thresholds), len(reached)), dtype=np.int64)
    none, own = np.zeros(1), np.zeros(1)
    step = 1 << (ranks.k.bit_length() - 1)
    while step:
        rank = lengths + step
        place = before_first + np.minimum(rank, ranks.k)
        if score.randomised and score.uses_mass:
            own = ranks.masses.take(place)
        before = reached.take(place) - own if score.uses_mass else none
        within = score.formula(before, own, top, rank.astype(np.float64), drawn) <= limits
        np.copyto(lengths, rank, where=within)
        step >>= 1
    return np.minimum(lengths, ranks.k)  # ranks beyond the last add no mass: scores do not fall there either


def _shared_record(scores: Sequence[RankScore], prediction: Prediction) -> ClassProbabilities:
    """The prediction as class probabilities, if it suits every one of the scores."""
    for score in scores:
        record = score._expected(prediction)
    return record.as_probabilities()


def _shared_chunks(scores: Sequence[RankScore], record: ClassRecord) -> Iterator[tuple[slice, dict[bool, Doubles]]]:
    """Slices of rows; their uniforms for randomised scores are under True, ones for the others under False."""
    drawing = next((score for score in scores if score.randomised), scores[0])
    for rows, uniforms in drawing._chunks(record, _SHARED_CHUNK):
        yield rows, {True: uniforms, False: np.ones_like(uniforms)}


def _limits(threshold: Cutoff, n: int, n_classes: int) -> float | Doubles:
    """The threshold as a float, or as float64 of shape (n, 1) per row, (1, K) per label or (n, K)."""
    limits = cutoff(threshold, n, n_classes)
    if isinstance(limits, float):
        return limits
    values: Doubles = limits.astype(np.float64)
    return np.broadcast_to(values, (n, 1)) if values.shape[1] == 1 else values


def _split(limits: float | Doubles, rows: slice, n_known: int) -> tuple[float | Doubles, Bools]:
    """What a chunk of rows needs: the limits of known labels, and whether labels never seen (score +inf) are in."""
    if isinstance(limits, float):
        return limits, np.asarray([[limits == np.inf]])
    if limits.shape[1] == 1:
        return limits[rows], limits[rows] == np.inf
    own = limits if len(limits) == 1 else limits[rows]
    return own[:, :n_known], own[:, n_known:] == np.inf


def _is_by_row(limits: float | Doubles) -> bool:
    return isinstance(limits, float) or limits.shape[1] == 1


def _some(limits: float | Doubles, rows: Any) -> float | Doubles:
    return limits if isinstance(limits, float) else limits[rows]


def _with_unseen(members: Bools, unseen: Bools, n_classes: int) -> Bools:
    n, n_known = members.shape
    if n_known == n_classes or not unseen.any():
        return members
    return np.concatenate([members, np.broadcast_to(unseen, (n, n_classes - n_known))], axis=1)


def _not_negative(value: float, name: str) -> float:
    if not (isinstance(value, Real) and math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a finite number that is not negative, got {value!r}.")
    return float(value)


register(LAC, name="lac", defaults=(LAC(),), records=(ClassProbabilities,))
register(APS, name="aps", defaults=(APS(),))
register(RAPS, name="raps", defaults=(RAPS(penalty=0.01, rank_free=1), RAPS(penalty=0.1, rank_free=1)))
register(SAPS, name="saps", defaults=(SAPS(weight=0.1),), records=(ClassProbabilities,))
register(TopK, name="topk", defaults=(TopK(),), records=(ClassProbabilities,))
register(Margin, name="margin", defaults=(Margin(),), records=(ClassProbabilities,))
