"""Several rank scores from one pass over the same probabilities: what tuning asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Integers
from dco.predictions import ClassProbabilities, ClassRecord, Prediction
from dco.scores.classification import RankScore
from dco.scores.ranks import Doubles, Ranks, native, place_of

# elements: the steps of each score are short and want longer rows of numbers than one score alone
_CHUNK = 2**19


def observed_together(scores: Sequence[RankScore], prediction: Prediction, y: ArrayLike) -> Doubles:
    """``score.observed(prediction, y)`` for several scores, (S, n): rank and mass of each label are
    found once for all.
    """
    record = _shared_record(scores, prediction)
    codes = record.codes(y)
    known = codes < record.n_known
    columns, with_mass = np.where(known, codes, 0), any(score.uses_mass for score in scores)
    result = np.empty((len(scores), len(record)))
    for rows, drawn in _shared_chunks(scores, record):
        mass, own, top, rank = place_of(
            native(record.probabilities[rows], by_columns=True), columns[rows], with_mass
        )
        for observed, score in zip(result, scores, strict=True):
            uniforms = drawn[score.randomised]
            observed[rows] = score.formula(score.kept(mass, own, uniforms), top, rank, uniforms)[
                :, 0
            ]
    result[:, ~known] = np.inf
    return result


def sizes_together(
    scores: Sequence[RankScore], prediction: Prediction, thresholds: Sequence[Sequence[float]]
) -> list[Integers]:
    """`sizes_at_several` of each score at its own thresholds, (J, n) each: rows are sorted once for
    all.
    """
    record = _shared_record(scores, prediction)
    result: list[Integers] = [
        np.empty((len(levels), len(record)), dtype=np.int64) for levels in thresholds
    ]
    with_mass = any(score.uses_mass for score in scores)
    for rows, drawn in _shared_chunks(scores, record):
        ranks = Ranks.along(native(record.probabilities[rows]), with_mass)
        # dear for one score, cheap for many
        reached = np.cumsum(ranks.masses.reshape(len(ranks.top), -1), axis=1)
        for sizes, score, levels in zip(result, scores, thresholds, strict=True):
            sizes[:, rows] = _lengths_by_bisection(
                score, ranks, reached, drawn[score.randomised], levels
            )
    for sizes, levels in zip(result, thresholds, strict=True):
        # labels never seen are in a set whose threshold is infinite
        sizes[np.isposinf(levels)] = record.n_classes
    return result


def _lengths_by_bisection(
    score: RankScore, ranks: Ranks, reached: Doubles, uniforms: Doubles, thresholds: Sequence[float]
) -> Integers:
    """What `RankScore._lengths` finds, for all thresholds at once: ranks are bisected by the mass
    `reached` at each.
    """
    limits, top, drawn = (
        np.asarray(thresholds, dtype=np.float64)[:, None],
        ranks.top[:, 0],
        uniforms[:, 0],
    )
    before_first = np.arange(len(reached)) * reached.shape[1] - 1
    lengths = np.zeros((len(thresholds), len(reached)), dtype=np.int64)
    mass, own = np.zeros(1), np.zeros(1)
    step = 1 << (ranks.k.bit_length() - 1)
    while step:
        rank = lengths + step
        place = before_first + np.minimum(rank, ranks.k)
        if score.randomised and score.uses_mass:
            own = ranks.masses.take(place)
        if score.uses_mass:
            mass = score.kept(reached.take(place), own, drawn)
        within = score.formula(mass, top, rank.astype(np.float64), drawn) <= limits
        np.copyto(lengths, rank, where=within)
        step >>= 1
    # ranks beyond the last add no mass: scores do not fall there either
    return np.minimum(lengths, ranks.k)


def _shared_record(scores: Sequence[RankScore], prediction: Prediction) -> ClassProbabilities:
    """The prediction as class probabilities, if it suits every one of the scores."""
    for score in scores:
        record = score._expected(prediction)
    return record.as_probabilities()


def _shared_chunks(
    scores: Sequence[RankScore], record: ClassRecord
) -> Iterator[tuple[slice, dict[bool, Doubles]]]:
    """Slices of rows; their uniforms for randomised scores are under True, ones for the others
    under False.
    """
    drawing = next((score for score in scores if score.randomised), scores[0])
    for rows, uniforms in drawing._chunks(record, _CHUNK):
        yield rows, {True: uniforms, False: np.ones_like(uniforms)}
