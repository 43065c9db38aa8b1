"""Has the selection settled? Repeat it on bootstrap samples of the tuning rows.

Everything works on true-label scores, computed once, and set sizes at the thresholds that
resampling visits: each is an observed score near the tuning rank, so a few dozen size evaluations
serve hundreds of repetitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats, Integers, as_labels
from dco.foundations.fingerprints import codes_of_values
from dco.foundations.ranks import Level, as_count, as_rational, tuning_rank
from dco.tuning.comparison import Comparison
from dco.tuning.evaluated import EvaluatedCandidate, evaluate_pairs
from dco.tuning.ranking import Ranking, all_failed
from dco.tuning.row_weights import EqualClusters, EqualRows, RowWeights
from dco.tuning.search import Candidates, checked_pairs, checked_targets

_LARGEST_MASS = 2**52  # up to here sums of integer weights are exact, as integers and as floats
_KNOTS = 16  # thresholds at which an expensive size curve is evaluated
_AT_ONCE = 32  # thresholds whose sizes are held in memory together


@dataclass(frozen=True)
class Stability:
    """How selection behaves when the tuning rows are drawn again.

    ``best`` wins on all rows; ``modal`` wins most often among the repetitions, in a share
    ``modal_share`` of them. ``regret`` is the mean of S(phi_b) - S(phi_best), where phi_b wins
    repetition b and S is the mean size on all tuning rows at each candidate's own threshold: what
    unsettled selection costs, negative only where another objective was minimised.
    ``relative_regret`` divides it by S(phi_best). Near-ties make ``modal_share`` low while they
    cost nothing: judge by the regret.
    """

    best: str
    modal: str
    modal_share: float
    wins: Mapping[str, int]
    regret: float
    relative_regret: float
    repetitions: int
    n: int

    @property
    def others_cost(self) -> float:
        """What the other winners cost on average, as a share of S(phi_best); 0 if there were
        none.
        """
        others = self.repetitions - self.wins[self.best]
        return self.relative_regret * self.repetitions / others if others else 0.0


def bootstrap_stability(
    candidates: Candidates | Sequence[EvaluatedCandidate],
    y_tune: ArrayLike | None = None,
    *,
    alpha: Level,
    rng: np.random.Generator,
    repetitions: int = 200,
    groups: ArrayLike | None = None,
) -> Stability:
    """Rerun the exact selection on `repetitions` bootstrap samples of the tuning rows (of whole
    groups, with `groups`).

    `candidates` are those of `tune`, or a list of candidates already evaluated, which need no
    `y_tune`.
    """
    evaluated, n = _evaluated(candidates, y_tune)
    times = as_count(repetitions, name="repetitions", least=1)
    codes = np.arange(n) if groups is None else codes_of_values(as_labels(groups))[0]
    weights: RowWeights = EqualRows() if groups is None else EqualClusters(codes)
    n_groups = int(codes.max()) + 1
    counts = rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), size=times)
    if groups is not None:
        masses = EqualClusters(codes).masses
        if int(masses.sum()) > _LARGEST_MASS // n:  # too fine for machine integers: rounded
            masses = np.maximum(
                1,
                np.array(
                    [int(mass) * 2**30 // int(masses.max()) for mass in masses], dtype=np.int64
                ),
            )
        counts = counts[:, codes] * masses
    full = Comparison(as_rational(alpha), weights=weights).rank(evaluated)
    return _summary(evaluated, full, winners_of(evaluated, counts, alpha=alpha))


def _summary(
    evaluated: Sequence[EvaluatedCandidate], full: Ranking, winners: Integers
) -> Stability:
    """What the winners of the repetitions say; `full` is the ranking on all rows."""
    sizes = np.array([full[entry.name].mean_size for entry in evaluated])
    least = full[full.best].mean_size
    wins = np.bincount(winners, minlength=len(evaluated))
    modal = int(np.argmax(wins))
    with np.errstate(invalid="ignore"):
        # inf - inf is no loss
        losses = np.where(sizes[winners] == least, 0.0, sizes[winners] - least)
    regret = math.fsum(losses) / len(winners)
    regret = max(0.0, regret)  # an infeasible fallback may be smaller than a feasible best
    return Stability(
        best=full.best,
        modal=evaluated[modal].name,
        modal_share=float(wins[modal]) / len(winners),
        wins={entry.name: int(count) for entry, count in zip(evaluated, wins, strict=True)},
        regret=regret,
        relative_regret=0.0 if regret == 0 else regret / least if least > 0 else math.inf,
        repetitions=len(winners),
        n=len(evaluated[0]),
    )


def winners_of(
    evaluated: Sequence[EvaluatedCandidate], counts: Integers, *, alpha: Level
) -> Integers:
    """The candidate (by position) that the exact search picks in each repetition, (B,).

    ``counts[b, i]`` says how often repetition b holds row i, or its integer weight.
    """
    ranks = np.array([tuning_rank(int(total), alpha=alpha) for total in counts.sum(axis=1)])
    # (C, B)
    visited = np.stack([_order_statistics(entry.scores, counts, ranks) for entry in evaluated])
    curves = [_curve(entry, np.unique(own)) for entry, own in zip(evaluated, visited, strict=True)]
    means = np.stack(
        [_measured(_mean, curve, own, counts) for curve, own in zip(curves, visited, strict=True)]
    )
    p95, tied = np.zeros(means.shape), means == means.min(axis=0)
    # it decides only where means tie
    for place, rows in enumerate(map(np.flatnonzero, tied & (tied.sum(axis=0) > 1))):
        p95[place, rows] = _measured(_p95, curves[place], visited[place, rows], counts[rows])
    order = np.lexsort((visited.T, p95.T, means.T), axis=-1)  # stable: candidate order decides last
    return np.asarray(order[:, 0])


def _measured(
    measure: Callable[[Floats, Integers], Floats],
    curve: Callable[[Floats], Floats],
    thresholds: Floats,
    counts: Integers,
) -> Floats:
    """What is measured on the sizes of each repetition at its own threshold, (B,)."""
    result, visited = np.empty(len(thresholds)), np.unique(thresholds)
    for start in range(0, len(visited), _AT_ONCE):
        part = visited[start : start + _AT_ONCE]
        for threshold, sizes in zip(part, curve(part), strict=True):
            rows = np.flatnonzero(thresholds == threshold)
            result[rows] = measure(sizes, counts[rows])
    return result


def _mean(sizes: Floats, counts: Integers) -> Floats:
    """The mean size of each resample, (B,)."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(
            np.where(counts > 0, counts * sizes, 0.0).sum(axis=1) / counts.sum(axis=1)
        )


def _curve(entry: EvaluatedCandidate, visited: Floats) -> Callable[[Floats], Floats]:
    """Sizes at thresholds among `visited`: exact, or linear between knots where each threshold
    costs a search for roots.

    Sets on the line grow smoothly between thresholds this close; label counts jump, and have a pass
    for many thresholds.
    """
    if entry.n_labels is not None or len(visited) <= _KNOTS or not np.all(np.isfinite(visited)):
        return entry.size_curves
    knots = visited[np.linspace(0, len(visited) - 1, _KNOTS).round().astype(int)]
    known = entry.size_curves(knots)
    if not np.all(np.isfinite(known)):
        return entry.size_curves

    def between(thresholds: Floats) -> Floats:
        left = np.clip(np.searchsorted(knots, thresholds, side="right") - 1, 0, _KNOTS - 2)
        share = ((thresholds - knots[left]) / (knots[left + 1] - knots[left]))[:, None]
        return np.asarray((1 - share) * known[left] + share * known[left + 1])

    return between


def _p95(sizes: Floats, counts: Integers) -> Floats:
    """The P95 size of each resample, (B,), as the ranking reports it."""
    positions = (counts.sum(axis=1) - 1) * 0.95
    below, above = (
        _order_statistics(sizes, counts, place + 1)
        for place in (np.floor(positions), np.ceil(positions))
    )
    with np.errstate(invalid="ignore", over="ignore"):  # as `size_quantile` does it
        return np.where(
            below == above, below, below + (positions - np.floor(positions)) * (above - below)
        )


def _order_statistics(values: Floats, counts: Integers, ranks: Floats) -> Floats:
    """The ranks[b]-th smallest value of each resample b, (B,)."""
    order = np.argsort(values, kind="stable")
    places = [
        np.searchsorted(np.cumsum(own[order]), rank)
        for own, rank in zip(counts, ranks, strict=True)
    ]
    return np.asarray(values[order[places]], dtype=np.float64)


def _evaluated(
    candidates: Candidates | Sequence[EvaluatedCandidate], y_tune: ArrayLike | None
) -> tuple[Sequence[EvaluatedCandidate], int]:
    """The candidates, evaluated, and the number of tuning rows."""
    if isinstance(candidates, list) and all(
        isinstance(entry, EvaluatedCandidate) for entry in candidates
    ):
        lengths = {len(entry) for entry in candidates}
        if len(lengths) != 1:
            raise ValueError("all candidates must be evaluated on the same tuning rows.")
        return candidates, lengths.pop()
    pairs, targets = cast(Any, candidates), cast(Any, y_tune)
    done, lost = evaluate_pairs(checked_pairs(pairs), y := checked_targets(targets))
    if not done:
        raise all_failed(lost)
    return done, len(y)
