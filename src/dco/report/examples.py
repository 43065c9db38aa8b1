"""Rows with small, typical and large sets, picked by size alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.foundations.tables import take_features
from dco.sets import Intervals, IntervalUnions, LabelSets

MOST_LABELS = 12  # of one example that are named; the others are counted
MOST_PIECES = 4  # of one example that are written; the others are counted
KIND_BY_QUANTILE = {  # two rows of each kind, by the quantile that their size is among all sizes
    0.0: "small",
    0.1: "small",
    0.45: "typical",
    0.55: "typical",
    0.9: "large",
    1.0: "large",
}


@dataclass(frozen=True, eq=False)
class Example:
    """One row of the page, with its set: its labels, or the ends of its pieces.

    Labels are in the order of their probability, the most probable first; `n_more` labels or pieces
    are not listed. A set of labels has no pieces, and a set of numbers no labels. `kind` is
    "small", "typical" or "large".
    """

    row: int
    kind: str
    truth: Any
    prediction: Any
    size: float
    is_covered: bool
    labels: tuple[Any, ...] = ()
    pieces: tuple[tuple[float, float], ...] = ()
    n_more: int = 0


def pick_examples(
    estimator: Any,
    X: Any,
    positions: Integers,
    targets: AnyArray,
    points: AnyArray,
    sets: LabelSets | Intervals | IntervalUnions,
) -> tuple[Example, ...]:
    """Pick rows with small, typical and large sets, as examples for the page.

    Parameters
    ----------
    estimator
        The fitted estimator; its probabilities order the labels of a set.
    X
        All rows that were given, some of which may not be evaluated.
    positions
        Which rows of X are evaluated.
    targets, points, sets
        The true value, the point prediction and the set of each evaluated row.
    """
    # 1. Pick rows by the sizes of their sets.
    sizes = np.asarray(sets.sizes(), dtype=np.float64)
    is_covered = np.asarray(sets.contains(targets))
    kind_of_row = pick_rows(sizes)
    examples = [
        Example(
            row=int(positions[row]),
            kind=kind,
            truth=targets[row],
            prediction=points[row],
            size=float(sizes[row]),
            is_covered=bool(is_covered[row]),
        )
        for row, kind in kind_of_row.items()
    ]

    # 2. Add what is in the sets: labels, or intervals.
    rows = list(kind_of_row)
    if isinstance(sets, LabelSets):
        labels_of_rows = labels_by_probability(estimator, X, positions, sets, rows=rows)
        return tuple(map(with_labels, examples, labels_of_rows))
    pieces_of_rows = [pieces_of_set(sets, row) for row in rows]
    return tuple(map(with_pieces, examples, pieces_of_rows))


def with_labels(example: Example, labels: list[Any]) -> Example:
    """List the first labels of the example's set, and count the others."""
    n_more = max(0, len(labels) - MOST_LABELS)
    return replace(example, labels=tuple(labels[:MOST_LABELS]), n_more=n_more)


def with_pieces(example: Example, pieces: list[tuple[float, float]]) -> Example:
    """List the first pieces of the example's set, and count the others."""
    n_more = max(0, len(pieces) - MOST_PIECES)
    return replace(example, pieces=tuple(pieces[:MOST_PIECES]), n_more=n_more)


def pick_rows(sizes: Floats) -> dict[int, str]:
    """Pick rows at fixed quantiles of the set sizes; return the kind of each picked row.

    {17: "small", 4: "typical", 8: "large"}. Among rows of equal size the earlier ones come first,
    and of few rows one may stand for several quantiles.
    """
    rows_by_size = np.argsort(sizes, kind="stable")
    last = len(rows_by_size) - 1
    kind_of_row: dict[int, str] = {}
    for quantile, kind in KIND_BY_QUANTILE.items():
        row = int(rows_by_size[round(quantile * last)])
        kind_of_row.setdefault(row, kind)
    return kind_of_row


def labels_by_probability(
    estimator: Any, X: Any, positions: Integers, sets: LabelSets, *, rows: list[int]
) -> list[list[Any]]:
    """List the labels in the sets of some rows, the most probable label of each row first.

    Parameters
    ----------
    estimator
        The fitted classifier; its probabilities order the labels.
    X, positions
        All rows, and which of them have a set: `sets` is as long as `positions`.
    rows
        The sets whose labels are wanted, counted from 0.
    """
    rows_of_X = positions[rows]
    probabilities = estimator.predict_proba(take_features(X, rows_of_X))
    classes = estimator.classes_.tolist()

    labels_of_rows = []
    for row, probabilities_of_row in zip(rows, probabilities, strict=True):
        most_probable_first = np.argsort(-probabilities_of_row, kind="stable")
        labels_in_set = set(sets[row].tolist())
        labels = [classes[k] for k in most_probable_first if classes[k] in labels_in_set]
        labels_of_rows.append(labels)
    return labels_of_rows


def pieces_of_set(sets: Intervals | IntervalUnions, row: int) -> list[tuple[float, float]]:
    """Return the ends of the pieces of one set; an empty set has none."""
    return [(low, high) for low, high in sets.pieces(row).tolist() if low <= high]
