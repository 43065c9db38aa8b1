"""How many rows tuning gets: grow the tuning split until selection has settled, and leave the rest to calibration.

Why the guarantee survives: the rows come in an order fixed in advance, and whether to take more is decided by rows already
taken, so the final tuning size is a stopping time; given it and the tuning rows, the untouched rows and a new row are still
exchangeable. Deciding by anything seen on the untouched rows (the resulting width, say) loses coverage.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Integers, as_labels
from dco.foundations.ranks import Level, as_count, smallest_marginal_n, smallest_pac_n
from dco.rows.fingerprints import codes_of_values
from dco.tuning.candidates import Candidates
from dco.tuning.stability import Stability, bootstrap_stability

CandidatesOn: TypeAlias = Callable[[Integers], tuple[Candidates, ArrayLike]]


@dataclass(frozen=True)
class GrowthStep:
    """One look: how many rows (or groups) tuning held, whether it had settled, and the stability it was judged by."""

    n_tune: int
    settled: bool
    stability: Stability | None = None


@dataclass(frozen=True, eq=False)
class Allocation:
    """Row numbers for tuning and calibration. `reason` is "settled", or "limit" when calibration needs all that is left."""

    tune: Integers
    calibrate: Integers
    steps: tuple[GrowthStep, ...]
    reason: Literal["settled", "limit"]


def smallest_calibration(*, alpha: Level, delta: Level | None = None, calibrate_size: SupportsIndex = 0) -> int:
    """The rows that calibration keeps: max(calibrate_size, ceil((1 - a) / a), for PAC ceil(log delta / log(1 - a)))."""
    least = smallest_marginal_n(alpha=alpha)
    if delta is not None:
        least = max(least, smallest_pac_n(alpha=alpha, delta=delta))
    return max(as_count(calibrate_size, name="calibrate_size"), least)


def grow_until_settled(
    order: ArrayLike,
    settled: Callable[[Integers], bool | Stability],
    *,
    alpha: Level,
    delta: Level | None = None,
    calibrate_size: SupportsIndex = 0,
    start: SupportsIndex = 20,
    growth: float = 1.5,
    tolerance: float = 0.01,
    groups: ArrayLike | None = None,
) -> Allocation:
    """Take rows in `order` for tuning until ``settled(rows taken)``; what is left is for calibration.

    `order` must be fixed before any row is looked at (a seeded permutation). `settled` may look at the rows it is given
    and at nothing else of these rows; it returns a truth value, or a `Stability`, settled when its relative regret is at
    most `tolerance`. Looks happen at `start` rows and then whenever the number has grown by the factor `growth`. Calibration
    keeps at least `smallest_calibration`. With `groups` (a label for every row that `order` may name), whole groups are
    taken, and `start`, `calibrate_size` and the minimum count groups.
    """
    rows = _permutation(order)
    blocks = _blocks(rows, groups)
    most = len(blocks) - smallest_calibration(alpha=alpha, delta=delta, calibrate_size=calibrate_size)
    unit = "rows" if groups is None else "groups"
    if most < 1:
        raise ValueError(
            f"{len(blocks)} {unit} leave none for tuning: calibration needs at least {len(blocks) - most}. Bring more "
            "rows, or ask for a smaller calibrate_size or a larger alpha."
        )
    if not growth > 1:
        raise ValueError(f"growth must be greater than 1, got {growth!r}.")
    taken = min(max(as_count(start, name="start"), 1), most)
    steps: list[GrowthStep] = []
    while True:
        verdict = settled(np.concatenate(blocks[:taken]))
        stability = verdict if isinstance(verdict, Stability) else None
        enough = bool(verdict) if stability is None else stability.relative_regret <= tolerance
        steps.append(GrowthStep(taken, enough, stability))
        if enough or taken == most:
            break
        taken = min(max(taken + 1, math.ceil(taken * growth)), most)
    return Allocation(
        tune=np.concatenate(blocks[:taken]),
        calibrate=np.concatenate(blocks[taken:]),
        steps=tuple(steps),
        reason="settled" if enough else "limit",
    )


def grow_tuning_split(
    order: ArrayLike,
    candidates_on: CandidatesOn,
    *,
    alpha: Level,
    seed: int,
    delta: Level | None = None,
    calibrate_size: SupportsIndex = 0,
    start: SupportsIndex = 20,
    growth: float = 1.5,
    tolerance: float = 0.01,
    repetitions: int = 200,
    groups: ArrayLike | None = None,
) -> Allocation:
    """`grow_until_settled` by the bootstrap: stop when the expected regret of the selection is at most 1 % of the size.

    ``candidates_on(rows)`` gives ``({name: (score, prediction)}, y)`` for the rows it is handed.
    """
    codes = None if groups is None else codes_of_values(groups)[0]

    def look(rows: Integers) -> Stability:
        candidates, y = candidates_on(rows)
        rng = np.random.default_rng([seed, len(rows)])
        own = None if codes is None else codes[rows]
        return bootstrap_stability(candidates, y, alpha=alpha, rng=rng, repetitions=repetitions, groups=own)

    return grow_until_settled(
        order,
        look,
        alpha=alpha,
        delta=delta,
        calibrate_size=calibrate_size,
        start=start,
        growth=growth,
        tolerance=tolerance,
        groups=codes,
    )


def _permutation(order: ArrayLike) -> Integers:
    rows = np.asarray(order)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or len(np.unique(rows)) != len(rows):
        raise ValueError("order must list row numbers, each once.")
    return rows.astype(np.int64)


def _blocks(rows: Integers, groups: ArrayLike | None) -> list[Integers]:
    """Single rows, or whole groups in the order of their first row."""
    if groups is None:
        return [rows[i : i + 1] for i in range(len(rows))]
    turn, _ = codes_of_values(as_labels(groups)[rows])  # groups numbered by their first appearance
    arranged = np.argsort(turn, kind="stable")
    ends = np.flatnonzero(np.diff(turn[arranged])) + 1
    return np.split(rows[arranged], ends)
