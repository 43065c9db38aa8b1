"""What a search may be asked beside the plain question: grids, levels between ranks, groups,
conditions, a support.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, SupportsIndex, TypeAlias, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray, Floats, Integers, as_labels
from dco.foundations.notes import Message, Note
from dco.foundations.ranks import Level, as_count
from dco.predictions import ClassRecord, Prediction
from dco.rows.conditions import (
    check_condition,
    condition_names,
    condition_values,
    is_label,
    rows_by_condition,
)
from dco.rows.rows import Rows
from dco.scores.score import Score
from dco.sets.labels import codes_of

_FEW_ROWS = 20  # tuning rows of a pattern of groups

Grid: TypeAlias = int | Sequence[float] | Floats
Conditions: TypeAlias = ArrayLike | Literal["label"]


class Options(TypedDict, total=False):
    """What `tune` may be asked beside the plain question; its docstring says what each means."""

    grid: Grid | None
    risk_margin: Level
    rank_matching: tuple[SupportsIndex, SupportsIndex] | None
    groups: ArrayLike | None
    slices: Mapping[str, ArrayLike] | None


def checked_grid(grid: Grid) -> int | Floats:
    """A count of quantiles, at least 1, or thresholds in ascending order."""
    if isinstance(grid, (int, np.integer)) and not isinstance(grid, bool) and grid >= 1:
        return int(grid)
    try:
        values = np.asarray(grid, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.ndim != 1 or values.size == 0 or np.any(np.isnan(values)):
        wanted = "a number of thresholds, at least 1, or a list of at least one, not NaN"
        raise ValueError(f"grid must be {wanted}; got {grid!r:.200}.")
    return np.unique(values)


def grid_values(scores: Floats, grid: int | Floats | None) -> Floats:
    """The thresholds of a grid; without one, every finite score."""
    finite = scores[np.isfinite(scores)]
    if grid is None:
        return np.unique(finite)
    if not isinstance(grid, int):
        return grid
    if finite.size == 0:
        return np.array([np.inf])
    # the paper's grid, as its words are usually read: linear quantiles at evenly spaced levels from
    # 0 to 1
    return np.unique(np.quantile(finite.astype(np.float64), np.linspace(0, 1, grid)))


def smallest_within(
    scores: Floats, level: Fraction, grid: int | Floats | None, masses: Integers | None
) -> tuple[float, bool]:
    """The smallest threshold with a share of scores above it of at most `level`, and whether there
    is one.

    `masses` weigh the rows. If no threshold of the grid will do: the smallest risk, then the
    smallest size.
    """
    order = np.argsort(scores, kind="stable")
    mass = np.ones(len(scores), dtype=np.int64) if masses is None else masses
    below = np.concatenate([np.zeros(1, dtype=mass.dtype), np.cumsum(mass[order])])
    values = scores[order] if grid is None else grid_values(scores, grid)
    places = (
        np.arange(1, len(scores) + 1)
        if grid is None
        else np.searchsorted(scores[order], values, side="right")
    )
    above = below[-1] - below[places]
    most = level.numerator * int(below[-1]) // level.denominator
    first = int(np.argmax(np.asarray(above <= most, dtype=bool)))  # in integers, however large
    if above[first] <= most:
        return float(values[first]), True
    return float(values[np.flatnonzero(above == above[-1])[0]]), False


def matched_level(rank_matching: Any) -> Fraction | None:
    """k / (m + 1) of ``rank_matching=(k, m)``; None for k = m + 1, where no finite threshold is
    deployed.
    """
    if not (isinstance(rank_matching, (tuple, list)) and len(rank_matching) == 2):
        raise ValueError(
            f"rank_matching must be a pair (k, m) of whole numbers, got {rank_matching!r}."
        )
    rank, m = as_count(rank_matching[0], name="rank"), as_count(rank_matching[1], name="m")
    if not 1 <= rank <= m + 1:
        raise ValueError(f"rank_matching=(k, m) needs 1 <= k <= m + 1, got ({rank}, {m}).")
    return Fraction(rank, m + 1) if rank <= m else None


def neighbours(scores: Floats, level: Fraction) -> tuple[float, float, float]:
    """The scores on both sides of a level, and the share of the upper one (equal scores if it has
    none).

    The j-th of n scores has the level j / (n + 1) on average.
    """
    ordered, n = np.sort(scores), len(scores)
    place = level * (n + 1)
    j = min(max(math.floor(place), 1), n)
    share = float(min(max(place - j, Fraction(0)), Fraction(1))) if j < n else 0.0
    lower = float(ordered[j - 1])
    return lower, float(ordered[j]) if share else lower, share


def each_row(values: ArrayLike, n: int, *, name: str) -> AnyArray:
    """One value for each of n tuning rows, or an error."""
    found = as_labels(values)
    if found.shape != (n,):
        raise ValueError(
            f"{name} must hold one value for each of the {n} tuning rows, got shape {found.shape}."
        )
    return found


def conditions_of(rows: Rows, condition_on: Any) -> AnyArray | Literal["label"]:
    """The condition of each tuning row as a number, or "label": a search need not know what they
    are called.
    """
    if is_label(condition_on):
        return "label"
    names: Any = condition_values(condition_on, rows.X, None)
    # a pattern of few rows has no quantile worth ranking by: these share one
    if isinstance(condition_on, list):
        counts = Counter(names.tolist())
        names = np.asarray([name if counts[name] >= _FEW_ROWS else "" for name in names.tolist()])
    seen: dict[Any, int] = {}
    return np.asarray([seen.setdefault(name, len(seen)) for name in names.tolist()], dtype=np.int64)


def slices_of(rows: Rows, columns: Sequence[Any], conditions: Conditions | None) -> dict[str, Any]:
    """The slices of the tuning rows that the caller names: conditions, and the columns that the
    objective goes by.
    """
    found = dict[str, Any]()
    for name in columns:
        check_condition(name, rows.X, parameter="by")
        found[str(name)] = condition_values(name, rows.X, rows.y, parameter="by")
    return (
        found
        if conditions is None or isinstance(conditions, str)
        else found | {"condition": conditions}
    )


def row_masses(codes: Integers) -> Integers:
    """Integer weights proportional to 1 / n_g, exact, whatever the sizes of the groups; `codes` may
    leave numbers out.
    """
    present, place, counts = np.unique(codes, return_inverse=True, return_counts=True)
    common = math.lcm(*counts.tolist())
    each = np.array([common // count for count in counts.tolist()], dtype=object)
    masses: Integers = each[place]
    return masses if common * len(present) >= 2**62 else masses.astype(np.int64)


@dataclass(frozen=True, eq=False)
class Members:
    """Which condition each row's true label falls under, and the thresholds of the conditions in
    the shape a score reads.
    """

    names: list[Any]  # as the caller knows them
    codes: Integers
    spread: Callable[[Floats], Floats]


def members_of(
    prediction: Prediction, labels: AnyArray | None, y: AnyArray, conditions: Conditions
) -> Members:
    """The conditions of the tuning rows; for "label" those of `labels`, all labels of the
    prediction.
    """
    classes = isinstance(prediction, ClassRecord)
    if not isinstance(conditions, str):
        given = condition_names(each_row(conditions, len(y), name="conditions"))
        parts, codes = rows_by_condition(given), np.empty(len(y), dtype=np.int64)
        for code, rows in enumerate(parts.values()):
            codes[rows] = code
        return Members(
            list(parts),
            codes,
            lambda thresholds: thresholds[codes, None] if classes else thresholds[codes],
        )
    if conditions != "label":
        raise ValueError(
            f'conditions must be "label" or one condition per row, got {conditions!r}.'
        )
    if labels is None or not classes:
        raise ValueError(
            'conditions="label" is for classes; for a regression pass one condition per row.'
        )
    columns, codes = np.unique(codes_of(as_labels(y), labels), return_inverse=True)
    # as files can hold
    names = [str(name) if isinstance(name, bool) else name for name in labels[columns].tolist()]

    def by_label(thresholds: Floats) -> Floats:
        # a label without tuning rows is in every set, as it will be when calibrated
        row = np.full(len(labels), np.inf)
        row[columns] = thresholds
        return row[None, :]

    return Members(names, codes, by_label)


def check_support(y: Floats, support: tuple[float, float]) -> None:
    """Refuse training and tuning targets outside the support: it is what the caller knows of y, and
    is wrong.
    """
    outside = y[(y < support[0]) | (y > support[1])]
    if outside.size:
        where = (
            f"{outside.size} of {len(y)} training and tuning targets (such as "
            f"{outside[0]:g}) lie outside ⟨support⟩"
        )
        raise ValueError(
            Message(f"{where} ({support[0]:g} to {support[1]:g}): widen it, or leave it out.")
        )


def note_below_zero(score: Score, records: Sequence[Prediction], threshold: float) -> list[Note]:
    """Advise a support where tuning sets reach below 0 and no training or tuning target does, as
    the caller has seen.
    """
    sets: list[Any] = (
        [score.sets(record, threshold) for record in records] if np.isfinite(threshold) else []
    )
    below = sum(int(np.count_nonzero(own.hull().lower < 0)) for own in sets)
    if not below:
        return []
    text = (
        f"No target is negative, but {below} of {sum(map(len, sets))} sets of tuning rows "
        f"reach below 0."
    )
    remedy = Message(
        "If y cannot be negative, ⟨support=(0, None)⟩ cuts them there and keeps the guarantee."
    )
    return [Note("below-zero", text, remedy)]
