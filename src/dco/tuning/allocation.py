"""How many rows tuning gets: grow the tuning split until selection has settled, and leave the rest to calibration.

Why the guarantee survives: the rows come in an order fixed in advance, and whether to take more is decided by rows already
taken, so the final tuning size is a stopping time; given it and the tuning rows, the untouched rows and a new row are still
exchangeable. Deciding by anything seen on the untouched rows (the resulting width, say) loses coverage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray, Integers, as_labels
from dco.foundations.notes import Message
from dco.foundations.ranks import Level, as_count, smallest_marginal_n, smallest_pac_n
from dco.rows.fingerprints import codes_of_values
from dco.rows.roles import Growth
from dco.rows.rows import Rows
from dco.scores.score import Score
from dco.tuning.defaults import Defaults
from dco.tuning.search import Candidates
from dco.tuning.selection import Workbench, expand, try_models
from dco.tuning.stability import Stability, bootstrap_stability

TOLERANCE = 0.01  # the relative regret at which selection counts as settled
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
    settled: Callable[[Integers], bool | Stability | GrowthStep],
    *,
    alpha: Level,
    delta: Level | None = None,
    calibrate_size: SupportsIndex = 0,
    start: SupportsIndex = 20,
    growth: float = 1.5,
    groups: ArrayLike | None = None,
) -> Allocation:
    """Take rows in `order` for tuning until ``settled(rows taken)``; what is left is for calibration.

    `order` must be fixed before any row is looked at (a seeded permutation). `settled` may look at the rows it is given
    and at nothing else of these rows; it returns a truth value, a `Stability`, settled when its relative regret is at most
    1 %, or a `GrowthStep` of its own. Looks happen at `start` rows and then whenever the number has grown by the factor
    `growth`. Calibration keeps at least `smallest_calibration`. With `groups` (a label for every row that `order` may name),
    whole groups are taken, and `start`, `calibrate_size` and the minimum count groups.
    """
    rows = _permutation(order)
    blocks = _blocks(rows, groups)
    most = len(blocks) - smallest_calibration(alpha=alpha, delta=delta, calibrate_size=calibrate_size)
    unit = "rows" if groups is None else "groups"
    if most < 1:
        needed = f"{len(blocks)} {unit} leave none for tuning: calibration needs at least {len(blocks) - most}."
        raise ValueError(Message(f"{needed} Bring more rows, or ask for a smaller ⟨calibrate_size⟩ or a larger ⟨alpha⟩."))
    if not growth > 1:
        raise ValueError(f"growth must be greater than 1, got {growth!r}.")
    taken = min(max(as_count(start, name="start"), 1), most)
    steps: list[GrowthStep] = []
    while True:
        verdict = settled(np.concatenate(blocks[:taken]))
        if isinstance(verdict, Stability):
            verdict = GrowthStep(taken, verdict.relative_regret <= TOLERANCE, verdict)
        steps.append(verdict if isinstance(verdict, GrowthStep) else GrowthStep(taken, bool(verdict)))
        if steps[-1].settled or taken == most:
            break
        taken = min(max(taken + 1, math.ceil(taken * growth)), most)
    reason: Literal["settled", "limit"] = "settled" if steps[-1].settled else "limit"
    return Allocation(np.concatenate(blocks[:taken]), np.concatenate(blocks[taken:]), tuple(steps), reason)


def grow_tuning_split(
    order: ArrayLike,
    candidates_on: CandidatesOn,
    *,
    alpha: Level,
    seed: int,
    tolerance: float = TOLERANCE,
    repetitions: int = 200,
    groups: ArrayLike | None = None,
    **limits: Any,
) -> Allocation:
    """`grow_until_settled` by the bootstrap: stop when the expected regret of the selection is at most 1 % of the size.

    ``candidates_on(rows)`` gives ``({name: (score, prediction)}, y)`` for the rows it is handed. `limits` are those of
    `grow_until_settled`: delta, calibrate_size, start, growth.
    """
    codes = None if groups is None else codes_of_values(groups)[0]

    def look(rows: Integers) -> GrowthStep:
        candidates, y = candidates_on(rows)
        rng = np.random.default_rng([seed, len(rows)])
        own = None if codes is None else codes[rows]
        found = bootstrap_stability(candidates, y, alpha=alpha, rng=rng, repetitions=repetitions, groups=own)
        taken = len(rows) if own is None else len(np.unique(own))
        return GrowthStep(taken, found.relative_regret <= tolerance, found)

    return grow_until_settled(order, look, alpha=alpha, groups=codes, **limits)


def grow_tuning_rows(
    models: Mapping[str, Any] | Defaults,
    scores: Mapping[str, Score] | None,
    bench: Workbench,
    statement: Any,
    growth: Growth,
) -> tuple[Integers, Integers, Mapping[str, Any]]:
    """How `deal_roles` grows a tuning split: models fitted on training rows, then rows taken until the choice settles."""
    if bench.choosing.strategy is not None or statement.condition_on is not None:
        raise ValueError(Message("⟨tune_size=auto⟩ works with the exhaustive search and without ⟨condition_on⟩."))
    rows = growth.rows
    grown = replace(bench, train=rows.take(growth.train), tune=rows.take(growth.tune))
    look, prefitted = growing_candidates(models, scores, grown, rows)
    allocation = grow_tuning_split(
        growth.order,
        look,
        alpha=statement.alpha,
        delta=statement.delta if statement.rule.needs_delta else None,
        calibrate_size=growth.least,
        seed=bench.seed,
        groups=rows.clusters,
    )
    return allocation.tune, allocation.calibrate, prefitted


def growing_candidates(
    models: Mapping[str, Any] | Defaults, scores: Mapping[str, Score] | None, bench: Workbench, rows: Rows
) -> tuple[CandidatesOn, dict[str, Any]]:
    """For a tuning split that grows: models fitted once on training rows, and their candidates on any rows taken so far."""
    if isinstance(models, Defaults):
        models, scores = models.on(bench.train, scores, bench.train.y)
    candidates = expand(models, scores, bench)
    fitted, lost = dict[str, Any](), dict[str, str]()

    def look(taken: Integers) -> tuple[Candidates, AnyArray]:
        now = replace(bench, tune=rows.take(taken), n_folds=None, prefitted=fitted)
        tried = try_models([c for c in candidates if c.model_name not in lost], now)
        for name, found in tried.items():
            if found.failure is None:
                fitted[name] = found.fits[0]
            else:
                lost[name] = found.failure
        left = [c for c in candidates if c.model_name not in lost]
        if not left:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in lost.items())
            raise ValueError(f"Every candidate failed on the training and tuning rows: {reasons}")
        return {c.name: (c.score, tried[c.model_name].predictions[c.kind].records[0]) for c in left}, now.tune.y

    return look, fitted


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
