"""The ways in which the page divides the rows given: by a column, by class, by fifth of the prediction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any

import numpy as np

from dco.evaluation.evaluate import GroupEvaluation, evaluate
from dco.evaluation.evenness import share_interval
from dco.foundations.arrays import AnyArray, Bools, Floats, Integers
from dco.predictions import fifths
from dco.report.formats import number
from dco.rows.conditions import condition_names, rows_by_condition
from dco.sets.prediction_sets import PredictionSets

MOST_PARTS = 12  # conditions and slices whose numbers follow the control


@dataclass(frozen=True, eq=False)
class Parts:
    """The part of each row as a place in `names`; rows of parts that are left out share the last code."""

    codes: Integers
    names: tuple[Any, ...]
    left_out: int
    groups: AnyArray | None = None  # (n, c): those of each row, where parts overlap

    @classmethod
    def overlapping(cls, groups: Sequence[Sequence[str]]) -> Parts:
        """Rows that belong to several groups each."""
        table = np.asarray(groups)
        return cls(np.zeros(len(table), dtype=np.int64), tuple(np.unique(table).tolist()), 0, table)

    @classmethod
    def of(cls, values: AnyArray, names: tuple[Any, ...] | None = None) -> Parts:
        """Rows by their value: the `names` that are given, or by default the `MOST_PARTS` that have the most rows."""
        parts = condition_names(values).tolist()
        counts = Counter(parts)
        shown = tuple(name for name, _ in counts.most_common(MOST_PARTS)) if names is None else names
        place = {name: code for code, name in enumerate(shown)}
        codes = np.asarray([place.get(name, len(shown)) for name in parts])
        return cls(codes, shown, len(counts.keys() - place.keys()))

    def by_name(self, rows: tuple[GroupEvaluation, ...]) -> dict[Any, GroupEvaluation]:
        """The rows of a table by code, in the order of `names` and under these."""
        named = [replace(row, group=self.names[row.group]) for row in rows if row.group < len(self.names)]
        return {row.group: row for row in named}

    def evaluated(self, sets: PredictionSets, y: AnyArray) -> tuple[GroupEvaluation, ...]:
        """Coverage and size of each part, in the order of `names`, with intervals that hold for all parts at once."""
        rows = evaluate(sets, y, groups=self.codes if self.groups is None else self.groups).by_group
        return tuple(map(self.at_once, rows if self.groups is not None else self.by_name(rows).values()))

    def at_once(self, row: GroupEvaluation) -> GroupEvaluation:
        """The row with an exact 95 % interval that holds for all parts at once."""
        confidence = 1 - 0.05 / (len(self.names) + self.left_out)
        low, high = share_interval(round(row.coverage * row.n), row.n, confidence=confidence)
        return replace(row, coverage_low=low, coverage_high=high)


@dataclass(frozen=True, eq=False)
class Slicing:
    """One table by slice: what its slices are called, and how a low one is mended."""

    parts: Parts
    name: str
    mend: str
    are_conditions: bool = False


def own_thresholds(part: str, python: str, column: str) -> str:
    """What mends a part that is covered too rarely, in Python and as an option of `dco fit`."""
    return f'Give each {part} a threshold of its own: condition_on="{python}", or dco fit --condition-on {quote(column)}.'


def by_class(y: AnyArray, hits: Bools, *, target: str) -> Slicing:
    """By the true label; of many labels those that are covered least often."""
    share = {name: float(hits[rows].mean()) for name, rows in rows_by_condition(condition_names(y)).items()}
    least = sorted(share, key=lambda name: share[name])[:MOST_PARTS]
    return Slicing(Parts.of(y, tuple(least)), "class", own_thresholds("class", "label", target))


def by_fifth(points: Floats, *, even: bool, labels: bool = False) -> Slicing | None:
    """By fifth of the prediction (of its probability, for `labels`), named by its ends; None where it has one value."""
    codes = fifths(points)
    if len(np.unique(codes)) < 2:
        return None
    shown, codes = np.unique(codes, return_inverse=True)
    ends = [(points[codes == code].min(), points[codes == code].max()) for code in range(len(shown))]
    names = tuple(" to ".join(dict.fromkeys(number(float(end)) for end in pair)) for pair in ends)
    ask = "" if even else 'Let the search ask for evenness: objective="even", or dco fit --objective even. '
    widths = "Widths that follow the row help (quantile models, a model with a spread), and so do more tuning rows."
    of = "largest probability" if labels else "prediction"
    return Slicing(Parts(codes, names, 0), f"fifth of the {of}", ask if labels else ask + widths)
