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

_ERROR = 0.05  # the probability of a note where none is due
_LOW_CLASS = 0.7  # a class that is covered less often gets a note
_LOW_FIFTH = 0.1  # a fifth of the rows that is covered this much less often than the level
_EMPTY_SHARE = 0.01  # of the sets
_ROUNDING = 1e-9  # relative; widths that differ by less are equal


def note_low_classes(y: AnyArray, covered: Bools, *, can_condition: bool) -> list[Note]:
    """Note classes whose rows are surely covered less than 70 % of the time.

    `y` are the true labels of the tuning rows, `covered` says which rows' sets hold them, and
    `can_condition` whether a threshold for each class can be advised.
    """
    labels, class_numbers = np.unique(y, return_inverse=True)
    slices = find_low_slices(class_numbers, covered, level=_LOW_CLASS)
    if not slices.low.size:
        return []

    low_classes = []
    for class_number in slices.low:
        rows = counted(int(slices.rows[class_number]), "row")
        coverage = f"{100 * slices.coverage(class_number):.0f} % of {rows}"
        low_classes.append(f"{labels[class_number]} ({coverage})")
    text = (
        f"On the tuning rows sets hold some classes far less often than the level says: "
        f"{first_few(low_classes)}."
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
    if empty_share < _EMPTY_SHARE:
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

    Parameters
    ----------
    covered, sizes, centres
        For each tuning row: whether its interval holds the target, its width, its prediction.
    """
    # 1. What can be advised?
    advice = []
    if caller_chose_scores:
        advice.append("leave ⟨scores⟩ out, so that widths that follow the prediction are tried")
    if not objective_is_even:
        advice.append("choose with ⟨objective=even⟩")
    if not advice:
        return []

    # 2. Are all widths equal, up to rounding?
    largest_difference = np.ptp(sizes)
    if largest_difference > _ROUNDING * np.abs(sizes).max(initial=0.0):
        return []

    # 3. Is a fifth of the rows covered too seldom?
    low_coverage = 1 - alpha - _LOW_FIFTH
    slices = find_low_slices(fifths(centres), covered, level=low_coverage)
    if not slices.low.size:
        return []
    worst_fifth = min(slices.low.tolist(), key=slices.coverage)

    coverage = f"{100 * slices.coverage(worst_fifth):.0f} %"
    text = (
        f"All intervals have the same width, but errors differ in size: on the tuning rows, fifth "
        f"{worst_fifth + 1} of the prediction is covered {coverage} of the time."
    )
    sentence = ", and ".join(advice)
    remedy = sentence[0].upper() + sentence[1:] + "."
    return [Note("one-width", text, Message(remedy))]


def note_below_zero(score: Score, records: Sequence[Prediction], threshold: float) -> list[Note]:
    """Note sets of tuning rows that reach below 0, for targets none of which is negative.

    `records` are the predictions of the tuning rows, one record or one for each fold.
    """
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


def note_uneven(ranking: Ranking, objective: Objective, outcome: Outcome) -> list[Note]:
    """Note that the winner covers a slice of the rows too seldom, where others cover it better.

    The objective `Even` prefers candidates that cover all slices (such as classes) about equally
    often. But a candidate is out if its sets are larger than the smallest by more than a share,
    `Even.price`. The note says which price the most even candidate would take. `outcome` is the
    winner's on the tuning rows.
    """
    # 1. Is the winner uneven?
    winner = ranking.table[0]
    if not isinstance(objective, Even) or winner.shortfall == 0:
        return []
    worst_slice = objective.worst_slice(outcome)
    if worst_slice is None:
        return []

    # 2. Which candidate is the most even?
    feasible = [row for row in ranking.table if row.feasible]
    more_even = [row for row in feasible if row.shortfall < winner.shortfall]
    if not more_even:
        return []
    most_even = min(more_even, key=lambda row: (row.shortfall, row.objective))

    # 3. How much larger are its sets than the smallest ones, as a share in whole percent?
    smallest_size = min(row.objective for row in feasible)
    if smallest_size == 0:
        return []
    price = math.ceil(100 * (most_even.objective / smallest_size - 1)) / 100

    coverage = f"{100 * worst_slice.coverage:.0f} % of the time"
    sizes = f"{number(most_even.objective)} instead of {number(smallest_size)}"
    text = (
        f"On the tuning rows, {worst_slice.name} is covered {coverage}. "
        f"The most even sets would be {100 * price:.0f} % larger than the smallest ({sizes}), "
        f"and evenness may cost {100 * objective.price:g} %."
    )
    remedy = f"In Python, objective=dco.objectives.Even(price={price:g}) pays for it."
    return [Note("left-behind", text, remedy)]


@dataclass(frozen=True, eq=False)
class LowSlices:
    """How often slices of the rows are covered, and which are surely covered too seldom."""

    hits: Floats  # covered rows of each slice
    rows: Floats  # all rows of each slice
    low: Integers  # the numbers of the slices that are covered too seldom

    def coverage(self, slice_number: int) -> float:
        """Return the share of covered rows in a slice."""
        return float(self.hits[slice_number] / self.rows[slice_number])


def find_low_slices(slice_numbers: Integers, covered: Bools, *, level: float) -> LowSlices:
    """Find the slices whose coverage is surely below the level.

    `slice_numbers` has the number of each row's slice, from 0, and `covered` says whether the row
    is covered. The upper (Clopper-Pearson) bounds of all slices hold at once with probability at
    least 95 %.
    """
    rows = np.bincount(slice_numbers).astype(np.float64)
    hits = np.bincount(slice_numbers, covered).astype(np.float64)
    upper_bounds = clopper_pearson_upper(hits, rows, _ERROR / rows.size)
    is_low = (rows > 0) & (upper_bounds < level)
    return LowSlices(hits, rows, np.flatnonzero(is_low))
