"""A tuning split that grows until selection has settled, and leaves the rest to calibration.

Why the guarantee survives: the rows come in an order fixed in advance, and whether to take more is
decided by rows already taken, so the final tuning size is a stopping time; given it and the tuning
rows, the untouched rows and a new row are still exchangeable. Deciding by anything seen on the
untouched rows (the resulting width, say) loses coverage.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Integers, as_labels
from dco.foundations.fingerprints import codes_of_values
from dco.foundations.notes import Message
from dco.foundations.ranks import Level, as_count, smallest_marginal_n, smallest_pac_n
from dco.paper.stability import Stability, bootstrap_stability
from dco.tuning.search import Candidates

TOLERANCE = 0.01  # the relative regret at which selection counts as settled


@dataclass(frozen=True)
class GrowthStep:
    """One look: how many rows (or groups) tuning held, whether it had settled, and the stability it
    was judged by.
    """

    n_tune: int
    settled: bool
    stability: Stability | None = None


@dataclass(frozen=True, eq=False)
class Allocation:
    """Row numbers for tuning and calibration. `reason` is "settled", or "limit" when calibration
    needs all that is left.
    """

    tune: Integers
    calibrate: Integers
    steps: tuple[GrowthStep, ...]
    reason: Literal["settled", "limit"]


def grow_until_settled(
    order: ArrayLike,
    settled: Callable[[Integers], bool | Stability],
    *,
    alpha: Level,
    delta: Level | None = None,
    calibrate_size: SupportsIndex = 0,
    start: SupportsIndex = 20,
    growth: float = 1.5,
    groups: ArrayLike | None = None,
) -> Allocation:
    """Take rows in `order` for tuning until ``settled(rows taken)``; what is left is for
    calibration.

    `order` must be fixed before any row is looked at (a seeded permutation). `settled` may look at
    the rows it is given and at nothing else of these rows; it returns a truth value, or a
    `Stability`, settled when its relative regret is at most 1 %. Looks happen at `start` rows and
    then whenever the number has grown by the factor `growth`. Calibration keeps `calibrate_size`
    rows, and at least what a finite threshold needs, with `delta` a PAC one. With `groups` (a label
    for every row that `order` may name), whole groups are taken, and `start`, `calibrate_size` and
    the minimum count groups.
    """
    rows = np.asarray(order)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or len(np.unique(rows)) != len(rows):
        raise ValueError("order must list row numbers, each once.")
    rows = rows.astype(np.int64)
    # by their first row
    turn = np.arange(len(rows)) if groups is None else codes_of_values(as_labels(groups)[rows])[0]
    blocks = np.split(rows[np.argsort(turn, kind="stable")], np.cumsum(np.bincount(turn))[:-1])
    least = max(
        smallest_marginal_n(alpha=alpha),
        0 if delta is None else smallest_pac_n(alpha=alpha, delta=delta),
    )
    most = len(blocks) - max(as_count(calibrate_size, name="calibrate_size"), least)
    unit = "rows" if groups is None else "groups"
    if most < 1:
        needed = (
            f"{len(blocks)} {unit} leave none for tuning: calibration needs at least "
            f"{len(blocks) - most}."
        )
        raise ValueError(
            Message(
                f"{needed} Bring more rows, or ask for a smaller "
                f"⟨calibrate_size⟩ or a larger ⟨alpha⟩."
            )
        )
    if not growth > 1:
        raise ValueError(f"growth must be greater than 1, got {growth!r}.")
    taken = min(max(as_count(start, name="start"), 1), most)
    steps: list[GrowthStep] = []
    while True:
        verdict = settled(np.concatenate(blocks[:taken]))
        seen = verdict if isinstance(verdict, Stability) else None
        steps.append(
            GrowthStep(
                taken, bool(verdict) if seen is None else seen.relative_regret <= TOLERANCE, seen
            )
        )
        if steps[-1].settled or taken == most:
            break
        taken = min(max(taken + 1, math.ceil(taken * growth)), most)
    reason: Literal["settled", "limit"] = "settled" if steps[-1].settled else "limit"
    return Allocation(
        np.concatenate(blocks[:taken]), np.concatenate(blocks[taken:]), tuple(steps), reason
    )


def grow_tuning_split(
    order: ArrayLike,
    candidates_on: Callable[[Integers], tuple[Candidates, ArrayLike]],
    *,
    alpha: Level,
    seed: int,
    repetitions: int = 200,
    groups: ArrayLike | None = None,
    **limits: Any,
) -> Allocation:
    """`grow_until_settled` by the bootstrap: stop when the expected regret of the selection is at
    most 1 % of the size.

    ``candidates_on(rows)`` gives ``({name: (score, prediction)}, y)`` for the rows it is handed.
    `limits` are those of `grow_until_settled`: delta, calibrate_size, start, growth.
    """
    codes = None if groups is None else codes_of_values(groups)[0]

    def look(rows: Integers) -> Stability:
        rng, own = np.random.default_rng([seed, len(rows)]), None if codes is None else codes[rows]
        return bootstrap_stability(
            *candidates_on(rows), alpha=alpha, rng=rng, repetitions=repetitions, groups=own
        )

    return grow_until_settled(order, look, alpha=alpha, groups=codes, **limits)
