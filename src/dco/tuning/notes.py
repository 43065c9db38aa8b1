"""What the winner shows on the tuning rows that its user should know, each with what mends it.

A note appears with probability at most 5 % where none is due.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray, Bools, Floats, Integers
from dco.foundations.display import counted, first_few, number
from dco.foundations.notes import Message, Note
from dco.foundations.ranks import clopper_pearson_upper
from dco.predictions import Prediction, fifths
from dco.scores.score import Score
from dco.tuning.objectives import Even, Objective, Outcome
from dco.tuning.ranking import Ranking

_ERROR = 0.05
_LOW_CLASS = 0.7  # coverage
_LOW_FIFTH = 0.1  # below the level
_EMPTY = 0.01  # share of empty sets


def note_low_classes(y: AnyArray, covered: Bools, *, can_condition: bool) -> list[Note]:
    """Note classes whose rows are surely covered less than 70 % of the time.

    `can_condition` says whether a threshold for each class can be advised.
    """
    labels, codes = np.unique(y, return_inverse=True)
    slices = find_low_slices(codes, covered, _LOW_CLASS)
    if not slices.low.size:
        return []

    described = [
        f"{labels[code]} ({100 * slices.coverage(code):.0f} % of "
        f"{counted(int(slices.rows[code]), 'row')})"
        for code in slices.low
    ]
    text = (
        f"On the tuning rows sets hold some classes far less often than the level says: "
        f"{first_few(described)}."
    )
    remedy = ""
    if can_condition:
        remedy = Message(
            '⟨condition_on="label"⟩ gives each class a threshold of its own, at the price of '
            "larger sets."
        )
    return [Note("low-classes", text, remedy)]


def note_empty_sets(sizes: Floats) -> list[Note]:
    """Note that at least 1 % of the sets are empty."""
    empty_share = float(np.mean(sizes == 0))
    if empty_share < _EMPTY:
        return []

    text = (
        f"{100 * empty_share:.1f} % of the sets of the tuning rows are empty: they say nothing "
        f"about their rows."
    )
    remedy = Message("Leave ⟨scores⟩ out, or wrap the score: dco.scores.NeverEmpty(score).")
    return [Note("empty-sets", text, remedy)]


def note_one_width(
    covered: Bools,
    sizes: Floats,
    centres: Floats,
    *,
    alpha: float,
    caller_chose_scores: bool,
    objective_is_even: bool,
) -> list[Note]:
    """Note that all intervals have the same width although errors clearly differ in size.

    To see this, the rows are sorted by their predictions and cut into five equal parts. Errors
    differ if one of the parts is surely covered less often than the level minus .1.

    The note advises what the search has not done yet: to try the default scores, and to choose with
    the objective "even". If it has done both, there is no note.
    """
    if objective_is_even and not caller_chose_scores:
        return []

    widths_differ = np.ptp(sizes) > 1e-9 * np.abs(sizes).max(initial=0.0)
    if widths_differ:
        return []

    slices = find_low_slices(fifths(centres), covered, 1 - alpha - _LOW_FIFTH)
    if not slices.low.size:
        return []

    worst = min(slices.low.tolist(), key=slices.coverage)
    text = (
        f"All intervals have the same width, but errors differ in size: on the tuning rows, fifth "
        f"{worst + 1} of the prediction is covered {100 * slices.coverage(worst):.0f} % of the "
        f"time."
    )
    advice = []
    if caller_chose_scores:
        advice.append("leave ⟨scores⟩ out, so that widths that follow the prediction are tried")
    if not objective_is_even:
        advice.append("choose with ⟨objective=even⟩")
    sentence = ", and ".join(advice)
    remedy = sentence[0].upper() + sentence[1:] + "."
    return [Note("one-width", text, Message(remedy))]


def note_below_zero(score: Score, records: Sequence[Prediction], threshold: float) -> list[Note]:
    """Note sets of tuning rows that reach below 0 where no target does."""
    if not np.isfinite(threshold):
        return []

    n_sets = 0
    n_below = 0
    for record in records:
        sets: Any = score.sets(record, threshold)
        lower = sets.hull().lower
        n_sets += len(lower)
        n_below += int(np.count_nonzero(lower < 0))
    if n_below == 0:
        return []

    text = f"No target is negative, but {n_below} of {n_sets} sets of tuning rows reach below 0."
    remedy = Message(
        "If y cannot be negative, ⟨support=(0, None)⟩ cuts them there and keeps the guarantee."
    )
    return [Note("below-zero", text, remedy)]


def note_left_behind(ranking: Ranking, objective: Objective, winner: Outcome) -> list[Note]:
    """Note the slice of the rows that the winner covers too seldom, if a larger set would mend it.

    With the objective `Even`, candidates that cover all slices about equally often are preferred,
    unless their sets are too large (`Even.price`). The note says what the most even one would cost.
    """
    best = ranking.table[0]
    if not isinstance(objective, Even) or best.shortfall == 0:
        return []

    feasible = [row for row in ranking.table if row.feasible]
    more_even = [row for row in feasible if row.shortfall < best.shortfall]
    worst = objective.left_behind(winner)
    if not more_even or worst is None:
        return []

    most_even = min(more_even, key=lambda row: (row.shortfall, row.objective))
    smallest = min(row.objective for row in feasible)
    if smallest == 0:
        return []

    price = math.ceil(100 * (most_even.objective / smallest - 1)) / 100
    text = (
        f"On the tuning rows, {worst.name} is covered {100 * worst.coverage:.0f} % of the time. "
        f"The most even sets would be {100 * price:.0f} % larger than the smallest "
        f"({number(most_even.objective)} instead of {number(smallest)}), and evenness may cost "
        f"{100 * objective.price:g} %."
    )
    remedy = f"In Python, objective=dco.objectives.Even(price={price:g}) pays for it."
    return [Note("left-behind", text, remedy)]


@dataclass(frozen=True, eq=False)
class LowSlices:
    """How often slices of the rows are covered, and which are surely covered too seldom."""

    hits: Floats  # covered rows of each slice
    rows: Floats
    low: Integers  # the numbers of the slices that are covered too seldom

    def coverage(self, code: int) -> float:
        """Return the share of covered rows in a slice."""
        return float(self.hits[code] / self.rows[code])


def find_low_slices(codes: Integers, covered: Bools, level: float) -> LowSlices:
    """Find the slices whose coverage is surely below the level.

    `codes` has the number of each row's slice. The upper bounds of all slices hold at once with
    probability at least 95 %.
    """
    rows = np.bincount(codes).astype(np.float64)
    hits = np.bincount(codes, covered).astype(np.float64)
    upper_bounds = clopper_pearson_upper(hits, rows, _ERROR / rows.size)
    is_low = (rows > 0) & (upper_bounds < level)
    return LowSlices(hits, rows, np.flatnonzero(is_low))
