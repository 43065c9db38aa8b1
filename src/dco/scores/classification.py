"""Scores of class probabilities, and label sets without sorting indices.

A label's score is one float, whichever way it is asked for. Two facts make that cheap:

* The mass of labels can be summed in any order without rounding (`ranks`).
* Along the ranks a score never falls, in floating point too. A set is therefore the first c labels
  of its row, and c is found in the sorted values alone: no index is ever sorted, and of long rows
  only the values that a set may reach.

Rows are handled in chunks that stay in the cache, so no second n x K matrix is made. Probabilities
of torch, CuPy and JAX stay on their device (`ranks`), and so do the scores and sets made of them:
the same to the last bit.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import (
    Bools,
    Floats,
    Integers,
    beside,
    doubles,
    joined,
    namespace,
    one_number,
    whole_numbers,
)
from dco.foundations.ranks import as_count
from dco.predictions import ClassDraws, ClassProbabilities, ClassRecord, on_host, take
from dco.scores import ranks
from dco.scores.ranks import BLOCK, Doubles, Ranks
from dco.scores.registry import register
from dco.scores.score import Cutoff, Score, cutoff, expect
from dco.sets.labels import LabelSets

_CHUNK = 2**18  # elements per chunk: one megabyte in single precision
_MANY_ROWS = 2**12  # rows that are worth a screening first
# rows per chunk: short ones are stored by columns, of which the cache holds a few
_MOST_ROWS = 2**15
# of other libraries: enough to keep a GPU busy, a few gigabytes with all that is made of it
_DEVICE_CHUNK = 2**26
_SHORT_ROW = 256  # labels; up to here a whole row is sorted by a fixed network, which nothing beats
# rows of a chunk that are sorted whole, to see which values the sets of the others may reach
_SAMPLED = 8
# on a device, where ranks are cheap to sort and dear to score, a quarter of them is scored first
_HEAD = 4
# of the smallest such value: so few other rows reach further that sorting those whole costs little
_MARGIN = 0.75


# a threshold, or an array of them, one per row, per label or for both
Limit: TypeAlias = float | Doubles
Limits: TypeAlias = Sequence[Limit]


class LabelScore(Score):
    """What the scores of labels share: chunks of rows, labels never seen, thresholds of every
    shape.

    A subclass gives the scores of one chunk of rows; `row_members` and `row_sizes` may be replaced
    by something faster that decides alike.
    """

    needs: ClassVar[tuple[type, ...]] = (ClassProbabilities, ClassDraws)
    any_array: ClassVar[bool] = False  # whether chunks may be of any library, otherwise NumPy's
    by_columns: ClassVar[bool] = False  # whether NumPy's short rows are stored by columns

    @abstractmethod
    def row_scores(self, probabilities: Floats, uniforms: Doubles) -> Doubles:
        """The scores of all labels of a chunk of rows, (rows, K)."""

    @abstractmethod
    def label_scores(self, probabilities: Floats, codes: Integers, uniforms: Doubles) -> Doubles:
        """The score of one label for each row of a chunk, (rows,)."""

    def row_members(self, probabilities: Floats, uniforms: Doubles, threshold: Limit) -> Bools:
        """Which labels of a chunk of rows score at most the threshold, (rows, K)."""
        return self.row_scores(probabilities, uniforms) <= threshold  # type: ignore[no-any-return, unused-ignore]

    def row_sizes(
        self, probabilities: Floats, uniforms: Doubles, thresholds: Limits
    ) -> Sequence[Integers]:
        """How many labels of each row score at most each threshold, (rows,) each."""
        scores = self.row_scores(probabilities, uniforms)
        return [ranks.count_true(scores <= value) for value in thresholds]

    def observed(self, prediction: ClassRecord, y: ArrayLike) -> Doubles:
        """The score of the label that happened, (n,); +inf for a label that the model has never
        seen.
        """
        score, record = self.bound(prediction)
        codes = record.codes(y)
        xp, known = namespace(codes), None if record.unseen is None else codes < record.n_known
        columns = codes if known is None else xp.where(known, codes, 0)
        parts = (
            score._observed(record, rows, columns[rows], uniforms)
            for rows, uniforms in score._chunks(record)
        )
        scores = ranks.in_one(parts, len(record))
        return scores if known is None else xp.where(known, scores, np.inf)

    def every_label(self, prediction: ClassRecord) -> Doubles:
        """The score of every label, (n, K); labels that the model has never seen come last and have
        +inf.
        """
        score, record = self.bound(prediction)
        chunks = score._chunks(record)
        parts = (
            score.row_scores(score._probabilities(record, rows), uniforms)
            for rows, uniforms in chunks
        )
        scores = ranks.in_one(parts, len(record))
        if record.unseen is None:
            return scores
        never = beside(np.full((len(record), len(record.unseen)), np.inf), scores)
        return namespace(scores).concat([scores, never], axis=1)  # type: ignore[no-any-return]

    def sets(self, prediction: ClassRecord, threshold: Cutoff) -> LabelSets:
        """All labels whose score is at most the threshold."""
        score, record = self.bound(prediction)
        limits, k, n = score._limits(threshold, record), record.n_classes, len(record)
        few = k <= ranks.SHORT and isinstance(record.array, np.ndarray)
        marks, parts = np.empty((-(-k // 8), n if few else 0), dtype=np.uint8), []
        for rows, uniforms in score._chunks(record):
            known, unseen = _split(limits, rows, record.n_known)
            members = _with_unseen(
                score.row_members(score._probabilities(record, rows), uniforms, known), unseen, k
            )
            if few:
                ranks.mark(members, marks[:, rows])
            else:
                parts.append(ranks.codes_of_members(members))
        if few:
            return LabelSets.of_marks(marks, k, record.labels())
        sizes, codes = map(joined, map(list, zip(*parts, strict=True)))
        return LabelSets.of_sizes(sizes, codes, k, record.labels())

    def sizes(self, prediction: ClassRecord, threshold: Cutoff) -> Integers:
        """How many labels each set holds, (n,), without making the sets."""
        return self.sizes_at_several(prediction, [threshold])[0, :]

    def sizes_at_several(
        self, prediction: ClassRecord, thresholds: Sequence[Cutoff] | Floats
    ) -> Integers:
        """The sizes of the sets at several thresholds, (J, n), from one pass over the
        probabilities.
        """
        score, record = self.bound(prediction)
        if not len(thresholds):
            return np.zeros((0, len(record)), dtype=np.int64)
        limits = [score._limits(threshold, record) for threshold in thresholds]
        chunks = []
        for rows, uniforms in score._chunks(record):
            parts = [_split(limit, rows, record.n_known) for limit in limits]
            sizes = score.row_sizes(
                score._probabilities(record, rows), uniforms, [known for known, _ in parts]
            )
            xp = namespace(sizes[0])
            if record.unseen is not None:
                shape = (rows.stop - rows.start, len(record.unseen))
                extra = (
                    ranks.count_true(xp.broadcast_to(beside(unseen, sizes[0]), shape))
                    for _, unseen in parts
                )
                sizes = [size + more for size, more in zip(sizes, extra, strict=True)]
            chunks.append(xp.stack(sizes))
        return xp.astype(joined(chunks, axis=1), xp.int64, copy=False)  # type: ignore[no-any-return]

    def bound(self, prediction: Any) -> tuple[LabelScore, ClassRecord]:
        """The score, and the prediction in the form that `_probabilities` reads: draws are averaged
        here, once.
        """
        record = self._expected(prediction).as_probabilities()
        return self, record if self.any_array else on_host(record)

    def _expected(self, prediction: Any) -> ClassRecord:
        record: ClassRecord = expect(self, prediction, *self.needs)
        if self.randomised and record.uniforms is None:
            raise ValueError(
                f"{self!r} needs one uniform number per row: pass uniforms= to "
                f"{type(record).__name__}, made without "
                "looking at y, or use randomised=False."
            )
        return record

    def _chunks(
        self, record: ClassRecord, elements: int | None = None
    ) -> Iterator[tuple[slice, Doubles]]:
        """Slices of rows, at least one, and their uniforms as a column (a single 1 where the score
        is not randomised).
        """
        array, n = record.array, len(record)
        if elements is None:
            elements = (
                min(_CHUNK, _MOST_ROWS * record.n_known)
                if isinstance(array, np.ndarray)
                else _DEVICE_CHUNK
            )
        step, ones = max(1, elements // record.n_known), one_number(1.0, array)
        for start in range(0, max(n, 1), step):
            rows = slice(start, min(start + step, n))
            drawn = self.randomised and record.uniforms is not None
            yield rows, doubles(record.uniforms[rows][:, None]) if drawn else ones  # type: ignore[index]

    def _probabilities(self, record: Any, rows: slice) -> Floats:
        return ranks.native(record.probabilities[rows, :], by_columns=self.by_columns)

    def _observed(self, record: Any, rows: slice, codes: Integers, uniforms: Doubles) -> Doubles:
        return self.label_scores(self._probabilities(record, rows), codes, uniforms)

    def _limits(self, threshold: Cutoff, record: ClassRecord) -> Limit:
        """The threshold as a float, or as float64 of shape (n, 1) per row, (1, K) per label or (n,
        K).
        """
        limits, n = cutoff(threshold, len(record), record.n_classes), len(record)
        if isinstance(limits, float):
            return limits
        values: Doubles = beside(limits.astype(np.float64), record.array)
        return namespace(values).broadcast_to(values, (n, 1)) if values.shape[1] == 1 else values


@dataclass(frozen=True)
class LAC(LabelScore):
    """1 - p(y), Sadinle, Lei and Wasserman (2019): the smallest sets on average where the
    probabilities are right.
    """

    any_array: ClassVar[bool] = True

    def row_scores(self, probabilities: Floats, uniforms: Doubles) -> Doubles:
        """1 - p for every label."""
        return 1.0 - doubles(probabilities)

    def label_scores(self, probabilities: Floats, codes: Integers, uniforms: Doubles) -> Doubles:
        """1 - p for one label per row."""
        return 1.0 - doubles(ranks.picked(probabilities, codes))

    def row_members(self, probabilities: Floats, uniforms: Doubles, threshold: Limit) -> Bools:
        """One comparison with the least probability whose score is at most the threshold."""
        if not isinstance(threshold, float):
            return super().row_members(probabilities, uniforms, threshold)
        return probabilities >= ranks.least_probability(
            threshold, probabilities.dtype == namespace(probabilities).float32
        )

    def row_sizes(
        self, probabilities: Floats, uniforms: Doubles, thresholds: Limits
    ) -> Sequence[Integers]:
        """Members counted."""
        return [ranks.count_true(self.row_members(probabilities, uniforms, t)) for t in thresholds]


@dataclass(frozen=True)
class Margin(LabelScore):
    """max over j != y of p(j), minus p(y): how far the label is behind the best of the others (0 if
    there are none).
    """

    any_array: ClassVar[bool] = True
    by_columns: ClassVar[bool] = True

    def row_scores(self, probabilities: Floats, uniforms: Doubles) -> Doubles:
        """The margin of every label."""
        first, second = ranks.two_largest(probabilities)
        return doubles(namespace(first).where(probabilities == first, second, first)) - doubles(
            probabilities
        )

    def label_scores(self, probabilities: Floats, codes: Integers, uniforms: Doubles) -> Doubles:
        """The margin of one label per row."""
        first, second = (values[:, 0] for values in ranks.two_largest(probabilities))
        own = ranks.picked(probabilities, codes)
        return doubles(namespace(own).where(own == first, second, first)) - doubles(own)


class RankScore(LabelScore):
    """Scores that never fall along the ranks: labels by decreasing probability, equal ones by
    column.

    A subclass gives the formula once, as a function of the mass up to the label (`kept`), the
    largest probability, the rank (from 1) and the uniform. Everything else is decided with that
    formula.
    """

    any_array: ClassVar[bool] = True
    by_columns: ClassVar[bool] = True
    uses_mass: ClassVar[bool] = True

    @abstractmethod
    def formula(self, mass: Doubles, top: Doubles, rank: Doubles, uniforms: Doubles) -> Doubles:
        """The score; arguments broadcast."""

    def kept(self, mass: Doubles, own: Doubles, uniforms: Doubles) -> Doubles:
        """The mass up to a label, its own included: of that, a randomised score keeps a share of 1
        - U.
        """
        return mass - own + own * (1.0 - uniforms) if self.randomised else mass

    def row_scores(self, probabilities: Floats, uniforms: Doubles) -> Doubles:
        """Scores along the ranks, put back where their labels stand."""
        return ranks.along_ranks(
            probabilities, lambda falling: self._rank_scores(falling, uniforms)
        )

    def label_scores(self, probabilities: Floats, codes: Integers, uniforms: Doubles) -> Doubles:
        """Rank and mass of one label per row, by one pass of comparisons: no sort."""
        mass, own, top, rank = ranks.place_of(probabilities, codes, self.uses_mass, self.uses_top)
        return self.formula(self.kept(mass, own, uniforms), top, rank, uniforms)[:, 0]

    @property
    def uses_top(self) -> bool:
        """Whether the formula reads the largest probability; what derives from these may."""
        return type(self) not in (APS, RAPS, TopK)

    def sets(self, prediction: ClassRecord, threshold: Cutoff) -> LabelSets:
        """All labels whose score is at most the threshold; many rows of few labels are screened
        first (`ranks.screened`).
        """
        score, record = self.bound(prediction)
        level, n, k = score._limits(threshold, record), len(record), record.n_known
        few = (
            n >= _MANY_ROWS
            and ranks.PAIRS < k <= ranks.NETWORK
            and isinstance(record.array, np.ndarray)
        )
        plain = (
            type(self) in (APS, RAPS, SAPS, TopK) and not self.randomised and record.unseen is None
        )
        if not (few and plain and isinstance(level, float) and abs(level) < 2**20):
            return super().sets(record, threshold)
        # the rest is screened
        of_rank = self.formula(np.zeros(k), np.zeros(k), np.arange(1.0, k + 1), np.ones(k))
        marks, left = ranks.screened(
            ranks.native(record.array), level - of_rank, self.uses_mass, self.uses_top
        )
        rest = take(record, left if left.size < n else slice(None))
        marks[:, left] = super().sets(rest, threshold)._marks  # type: ignore[assignment]
        return LabelSets.of_marks(marks, k, record.labels())

    def row_members(self, probabilities: Floats, uniforms: Doubles, threshold: Limit) -> Bools:
        """The first c labels of each row: those at least as large as the c-th largest, ties counted
        off by column.
        """
        if not _is_by_row(threshold):
            return super().row_members(probabilities, uniforms, threshold)
        if not ranks.is_long(probabilities):
            counts, falling = self._counts(probabilities, uniforms, [threshold])
            return ranks.first_labels(probabilities, falling, counts[0])
        members = np.empty(probabilities.shape, dtype=bool)
        for rows, negated, lengths in self._sorted_parts(probabilities, uniforms, [threshold]):
            members[rows] = ranks.first_labels(
                probabilities[rows], partial(ranks.at_rank, negated), lengths[0]
            )
        return members

    def row_sizes(
        self, probabilities: Floats, uniforms: Doubles, thresholds: Limits
    ) -> Sequence[Integers]:
        """The number of ranks at or below each threshold; no label is looked up."""
        if not all(_is_by_row(threshold) for threshold in thresholds):
            return super().row_sizes(probabilities, uniforms, thresholds)
        if not ranks.is_long(probabilities):
            return self._counts(probabilities, uniforms, thresholds)[0]
        if not self.uses_mass:
            return list(self._lengths(Ranks.along(probabilities, False), uniforms, thresholds))
        sizes = np.empty((len(thresholds), len(probabilities)), dtype=np.int64)
        for rows, _, lengths in self._sorted_parts(probabilities, uniforms, thresholds):
            sizes[:, rows] = lengths
        return list(sizes)

    def _counts(
        self, probabilities: Floats, uniforms: Doubles, thresholds: Limits
    ) -> tuple[list[Integers], ranks.AtRank]:
        """How many ranks score at most each threshold, and what gives the values at ranks: of short
        rows, or on a device.
        """
        if isinstance(probabilities, np.ndarray):
            lines, at_rank = ranks.falling_columns(probabilities)
            scores = self._line_scores(lines, uniforms.T)
            within = (
                np.less_equal(scores, np.transpose(t), out=np.empty(lines.shape, dtype=bool))
                for t in thresholds
            )
            return [
                np.add.reduce(each.view(np.uint8), axis=0, dtype=np.uint8) for each in within
            ], at_rank
        xp, k = namespace(probabilities), int(probabilities.shape[1])
        falling = xp.sort(probabilities, axis=1, descending=True, stable=False)
        # the rest of a long row is scored only if its head is all in the set
        width = k if k <= _SHORT_ROW else k // _HEAD
        scores = self._rank_scores(falling[:, :width], uniforms)
        counts = [ranks.count_true(scores <= threshold) for threshold in thresholds]
        if width < k:
            beyond = xp.any(xp.stack(counts) == width, axis=0)
            (rows,) = xp.nonzero(beyond)  # one wait for the device
            if rows.shape[0]:
                scores = self._rank_scores(_some(falling, rows), _some(uniforms, rows))
                whole = (
                    ranks.count_true(scores <= _some(threshold, rows)) for threshold in thresholds
                )
                counts = [
                    ranks.replaced(count, beyond, more)
                    for count, more in zip(counts, whole, strict=True)
                ]
        return counts, partial(ranks.at_rank, falling)

    def _line_scores(self, lines: Floats, uniforms: Doubles) -> Doubles:
        """The scores at every rank, (K, rows), of short rows; uniforms are a line too."""
        rank, mass = np.arange(1.0, len(lines) + 1)[:, None], np.zeros((1, 1))
        if self.uses_mass:
            mass = ranks.line_masses(lines, 1.0 - uniforms if self.randomised else None)
        return self.formula(mass, doubles(lines[:1]) if self.uses_top else mass[:1], rank, uniforms)

    def _rank_scores(self, falling: Floats, uniforms: Doubles) -> Doubles:
        """The scores at every rank, (rows, K), of probabilities in descending order."""
        rank, mass = (
            doubles(1 + whole_numbers(falling.shape[1], falling))[None, :],
            one_number(0.0, falling),
        )
        if self.uses_mass:
            own = ranks.rounded(falling)
            mass = self.kept(ranks.checked_mass(ranks.running_sums(own)), own, uniforms)
        return self.formula(mass, doubles(falling[:, :1]), rank, uniforms)

    def _sorted_parts(
        self, probabilities: Floats, uniforms: Doubles, thresholds: Limits
    ) -> Iterator[tuple[Any, Floats, Integers]]:
        """Rows in one part or two: which, their values along the ranks, how many ranks each
        threshold reaches, (J, rows).

        The first part's values end somewhere beyond the last rank that counts; rows where they do
        not are sorted whole.
        """
        least = self._least_reached(probabilities, uniforms, thresholds)
        head = None if least is None else ranks.falling_from(probabilities, least)
        if head is None:
            yield slice(None), *self._sorted_whole(probabilities, uniforms, thresholds)
            return
        falling, held = head
        lengths = self._lengths(
            Ranks.of(falling, falling.shape[1], self.uses_mass), uniforms, thresholds
        )
        settled = (lengths < held).all(axis=0)
        if settled.all():
            yield slice(None), falling, lengths
            return
        yield settled, falling[settled], lengths[:, settled]
        rest = np.flatnonzero(~settled)
        yield (
            rest,
            *self._sorted_whole(
                probabilities[rest], _some(uniforms, rest), [_some(t, rest) for t in thresholds]
            ),
        )

    def _least_reached(
        self, probabilities: Floats, uniforms: Doubles, thresholds: Limits
    ) -> float | None:
        """A probability that few rows' sets, and the value after them, go below; None where sorting
        whole is as good.
        """
        n, k = probabilities.shape
        if k <= _SHORT_ROW or n < 4 * _SAMPLED:
            return None
        some = slice(None, None, n // _SAMPLED)
        falling, lengths = self._sorted_whole(
            probabilities[some], _some(uniforms, some), [_some(t, some) for t in thresholds]
        )
        reach = lengths.max(axis=0)
        if reach.max() == k:
            return None
        return _MARGIN * float(-falling[np.arange(len(reach)), reach].max())

    def _sorted_whole(
        self, probabilities: Floats, uniforms: Doubles, thresholds: Limits
    ) -> tuple[Floats, Integers]:
        falling = ranks.negated_falling(probabilities)
        return falling, self._lengths(
            Ranks.of(falling, probabilities.shape[1], self.uses_mass), uniforms, thresholds
        )

    def _lengths(self, found: Ranks, uniforms: Doubles, thresholds: Limits) -> Integers:
        """How many ranks score at most each threshold, (J, rows).

        First whole blocks of ranks are placed by the score at their end, then ranks inside the one
        block that is cut.
        """
        n, n_blocks = found.ends.shape
        ends = self.kept(found.ends, found.last, uniforms)
        end_scores = self.formula(ends, found.top, found.last_rank, uniforms)
        row, inside = np.arange(n), np.arange(1.0, BLOCK + 1)
        lengths = np.empty((len(thresholds), n), dtype=np.int64)
        for length, threshold in zip(lengths, thresholds, strict=True):
            whole = ranks.count_true(end_scores <= threshold)
            cut = np.minimum(whole, n_blocks - 1)
            own = found.masses[row, cut]
            mass = (
                np.cumsum(own, axis=1) + np.where(cut > 0, found.ends[row, cut - 1], 0.0)[:, None]
            )
            rank = cut[:, None] * float(BLOCK) + inside
            partial = ranks.count_true(
                self.formula(self.kept(mass, own, uniforms), found.top, rank, uniforms) <= threshold
            )
            length[:] = np.where(whole == n_blocks, found.k, whole * BLOCK + partial)
        return lengths


@dataclass(frozen=True)
class APS(RankScore):
    """The mass of all labels ranked up to y, Romano, Sesia and Candes (2020).

    Randomised: less U p(y), one uniform U per row; coverage is then not inflated by large steps,
    and sets may be empty.
    """

    randomised: bool = False

    def formula(self, mass: Doubles, top: Doubles, rank: Doubles, uniforms: Doubles) -> Doubles:
        """The mass itself."""
        return mass


@dataclass(frozen=True)
class RAPS(RankScore):
    """APS plus penalty * max(0, rank - rank_free), Angelopoulos et al. (2021): fewer labels far
    down the ranks.
    """

    penalty: float
    rank_free: int
    randomised: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "penalty", _not_negative(self.penalty, "penalty"))
        object.__setattr__(self, "rank_free", as_count(self.rank_free, name="rank_free"))

    def formula(self, mass: Doubles, top: Doubles, rank: Doubles, uniforms: Doubles) -> Doubles:
        """The mass of APS plus the penalty on the rank."""
        return mass + self.penalty * namespace(rank).clip(rank - self.rank_free, 0.0, None)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class SAPS(RankScore):
    """U p_max for the top label, else p_max + (rank - 2 + U) weight, Huang et al. (2024); U = 1 if
    not randomised.

    Of the probabilities only the largest is used, and otherwise the ranks.
    """

    weight: float
    randomised: bool = False

    uses_mass: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", _not_negative(self.weight, "weight"))

    def formula(self, mass: Doubles, top: Doubles, rank: Doubles, uniforms: Doubles) -> Doubles:
        """The formula above; the uniform is 1 where the score is not randomised."""
        later = top + (rank - 2.0 + uniforms) * self.weight
        if not self.randomised:  # at the first rank it is the largest probability, as it should be
            return later
        if isinstance(later, np.ndarray):  # several times faster than np.where
            np.copyto(later, uniforms * top, where=rank == 1.0)
            return later
        return namespace(top).where(rank == 1.0, uniforms * top, later)


@dataclass(frozen=True)
class TopK(RankScore):
    """The rank of the label, 1 to K: sets of one size."""

    uses_mass: ClassVar[bool] = False

    def formula(self, mass: Doubles, top: Doubles, rank: Doubles, uniforms: Doubles) -> Doubles:
        """The rank."""
        return rank + 0.0 * top


def _split(limits: Limit, rows: slice, n_known: int) -> tuple[Limit, Bools]:
    """What a chunk of rows needs: the limits of known labels, and whether labels never seen (score
    +inf) are in.
    """
    if isinstance(limits, float):
        return limits, np.asarray([[limits == np.inf]])
    if limits.shape[1] == 1:
        return limits[rows, :], limits[rows, :] == np.inf
    own = limits if limits.shape[0] == 1 else limits[rows, :]
    return own[:, :n_known], own[:, n_known:] == np.inf


def _is_by_row(limits: Limit) -> bool:
    return isinstance(limits, float) or limits.shape[1] == 1


def _some(limits: Any, rows: Any) -> Any:
    if isinstance(limits, float) or limits.shape[0] == 1:
        return limits
    return limits[rows] if isinstance(rows, slice) else namespace(limits).take(limits, rows, axis=0)


def _with_unseen(members: Bools, unseen: Bools, n_classes: int) -> Bools:
    n, n_known = members.shape
    if n_known == n_classes or not bool(namespace(unseen).any(unseen)):
        return members
    xp = namespace(members)
    extra: Bools = xp.broadcast_to(beside(unseen, members), (n, n_classes - n_known))
    return xp.concat([members, extra], axis=1)  # type: ignore[no-any-return]


def _not_negative(value: float, name: str) -> float:
    if not (isinstance(value, Real) and math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a finite number that is not negative, got {value!r}.")
    return float(value)


register(LAC, name="lac", defaults=(LAC(),), records=(ClassProbabilities,))
register(APS, name="aps", defaults=(APS(),))
register(
    RAPS, name="raps", defaults=(RAPS(penalty=0.01, rank_free=1), RAPS(penalty=0.1, rank_free=1))
)
register(SAPS, name="saps", defaults=(SAPS(weight=0.1),), records=(ClassProbabilities,))
register(TopK, name="topk", defaults=(TopK(),), records=(ClassProbabilities,))
register(Margin, name="margin", defaults=(Margin(),), records=(ClassProbabilities,))
