"""Has the selection settled? Repeat it on resampled tuning rows: how often the same candidate wins, and what it costs.

Everything works on true-label scores, computed once, and set sizes at the thresholds that resampling visits: each is an
observed score near the tuning rank, so a few dozen size evaluations serve hundreds of repetitions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dco.arrays import Floats, Integers
from dco.ranks import Level, as_count, tuning_rank
from dco.tuning.candidates import Candidates, EvaluatedCandidate, all_failed, evaluate_candidates
from dco.tuning.search import rank_evaluated

_AT_ONCE = 32  # thresholds whose sizes are held in memory together


@dataclass(frozen=True)
class Stability:
    """How selection behaves when the tuning rows are drawn again.

    ``best`` wins on all rows; ``modal`` wins most often among the repetitions, in a share ``modal_share`` of them.
    ``regret`` is the mean of S(phi_b) - S(phi_best), where phi_b wins repetition b and S is the mean size on all tuning rows
    at each candidate's own threshold: what unsettled selection costs, never negative. ``relative_regret`` divides it by
    S(phi_best). Near-ties make ``modal_share`` low while they cost nothing: judge by the regret.
    """

    best: str
    modal: str
    modal_share: float
    wins: Mapping[str, int]
    regret: float
    relative_regret: float
    repetitions: int
    n: int


def bootstrap_stability(
    candidates: Candidates, y_tune: ArrayLike, *, alpha: Level, rng: np.random.Generator, repetitions: int = 200
) -> Stability:
    """Rerun the exact selection on `repetitions` bootstrap samples of the tuning rows."""
    return bootstrap_evaluated(_evaluated(candidates, y_tune), alpha=alpha, rng=rng, repetitions=repetitions)


def split_stability(
    candidates: Candidates,
    y_tune: ArrayLike,
    *,
    alpha: Level,
    rng: np.random.Generator,
    repetitions: int = 50,
    share: float = 0.5,
) -> Stability:
    """Rerun the exact selection on `repetitions` random subsets, each a `share` of the rows (the paper's stability)."""
    return split_evaluated(_evaluated(candidates, y_tune), alpha=alpha, rng=rng, repetitions=repetitions, share=share)


def bootstrap_evaluated(
    evaluated: Sequence[EvaluatedCandidate], *, alpha: Level, rng: np.random.Generator, repetitions: int = 200
) -> Stability:
    """`bootstrap_stability` for candidates whose scores and size curves are already there."""
    n, times = _n_rows(evaluated), _repetitions(repetitions)
    return stability_of(evaluated, rng.multinomial(n, np.full(n, 1 / n), size=times), alpha=alpha)


def split_evaluated(
    evaluated: Sequence[EvaluatedCandidate],
    *,
    alpha: Level,
    rng: np.random.Generator,
    repetitions: int = 50,
    share: float = 0.5,
) -> Stability:
    """`split_stability` for candidates whose scores and size curves are already there."""
    if not 0 < share < 1:
        raise ValueError(f"share must lie strictly between 0 and 1, got {share!r}.")
    n, times = _n_rows(evaluated), _repetitions(repetitions)
    kept = max(1, round(share * n))
    counts = np.zeros((times, n), dtype=np.int64)
    for row in counts:
        row[rng.permutation(n)[:kept]] = 1
    return stability_of(evaluated, counts, alpha=alpha)


def stability_of(evaluated: Sequence[EvaluatedCandidate], counts: Integers, *, alpha: Level) -> Stability:
    """Stability over given resamples: ``counts[b, i]`` says how often repetition b holds row i; all b hold equally many."""
    winners = winners_of(evaluated, counts, alpha=alpha)
    full = rank_evaluated(evaluated, alpha=alpha)
    sizes = np.array([full[entry.name].mean_size for entry in evaluated])
    least = full[full.best].mean_size
    wins = np.bincount(winners, minlength=len(evaluated))
    modal = int(np.argmax(wins))
    with np.errstate(invalid="ignore"):
        losses = np.where(sizes[winners] == least, 0.0, sizes[winners] - least)  # inf - inf is no loss
    regret = max(0.0, math.fsum(losses) / len(winners))  # an infeasible fallback may be smaller than a feasible best
    return Stability(
        best=full.best,
        modal=evaluated[modal].name,
        modal_share=float(wins[modal]) / len(winners),
        wins={entry.name: int(count) for entry, count in zip(evaluated, wins, strict=True)},
        regret=regret,
        relative_regret=_relative(regret, least),
        repetitions=len(winners),
        n=_n_rows(evaluated),
    )


def winners_of(evaluated: Sequence[EvaluatedCandidate], counts: Integers, *, alpha: Level) -> Integers:
    """The candidate (by position) that the exact search picks in each repetition, (B,)."""
    n = _n_rows(evaluated)
    if counts.ndim != 2 or counts.shape[1] != n or counts.shape[0] == 0 or np.any(counts < 0):
        raise ValueError(f"counts must have shape (repetitions, {n}) and hold no negative number, got shape {counts.shape}.")
    held = np.unique(counts.sum(axis=1))
    if held.size != 1 or held[0] == 0:
        raise ValueError("every repetition must hold the same number of rows, at least one.")
    keys = np.stack([_keys(entry, counts, int(held[0]), alpha) for entry in evaluated])  # (C, B, 3)
    order = np.lexsort((keys[..., 2].T, keys[..., 1].T, keys[..., 0].T), axis=-1)  # stable: candidate order decides last
    return np.asarray(order[:, 0])


def _keys(entry: EvaluatedCandidate, counts: Integers, held: int, alpha: Level) -> Floats:
    """Mean size, P95 size and threshold of one candidate in each repetition, (B, 3)."""
    thresholds = _order_statistics(entry.scores, counts, tuning_rank(held, alpha=alpha))
    keys = np.empty((len(counts), 3))
    keys[:, 2] = thresholds
    tail = tuning_rank(held, alpha="0.05")
    visited = np.unique(thresholds)
    for part in np.array_split(visited, -(-len(visited) // _AT_ONCE)):
        for threshold, sizes in zip(part, entry.size_curves(part), strict=True):
            rows = np.flatnonzero(thresholds == threshold)
            with np.errstate(invalid="ignore"):
                totals = np.where(counts[rows] > 0, counts[rows] * sizes, 0.0).sum(axis=1)
            keys[rows, 0] = totals / held
            keys[rows, 1] = _order_statistics(sizes, counts[rows], tail)
    return keys


def _order_statistics(values: Floats, counts: Integers, rank: int) -> Floats:
    """The rank-th smallest value of each resample, (B,)."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(counts[:, order], axis=1) >= rank
    return np.asarray(values[order][np.argmax(reached, axis=1)], dtype=np.float64)


def _relative(regret: float, size: float) -> float:
    if regret == 0:
        return 0.0
    return regret / size if size > 0 else math.inf


def _evaluated(candidates: Candidates, y_tune: ArrayLike) -> list[EvaluatedCandidate]:
    done, failed, kind = evaluate_candidates(candidates, y_tune)
    if not done:
        raise all_failed(failed, kind)
    return done


def _n_rows(evaluated: Sequence[EvaluatedCandidate]) -> int:
    lengths = {len(entry) for entry in evaluated}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError("stability needs at least one candidate, all evaluated on the same tuning rows (at least one).")
    return lengths.pop()


def _repetitions(repetitions: int) -> int:
    times = as_count(repetitions, name="repetitions")
    if times == 0:
        raise ValueError("repetitions must be at least 1.")
    return times
