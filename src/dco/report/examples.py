"""Rows with small, typical and large sets, picked by size alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.foundations.tables import take_features
from dco.sets import Intervals, IntervalUnions, LabelSets

MOST_LABELS = 12  # of one example that are named; the others are counted
MOST_PIECES = 4
KIND_BY_PLACE = {  # by the place of its size among all sizes
    0.0: "small",
    0.1: "small",
    0.45: "typical",
    0.55: "typical",
    0.9: "large",
    1.0: "large",
}


@dataclass(frozen=True, eq=False)
class Example:
    """One of the rows given, with its set: labels, most probable first, or ends of pieces.

    `n_more` labels or pieces are not listed.
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
    """Pick examples among the sets, which are those of the rows of X at `positions`."""
    sizes = np.asarray(sets.sizes(), dtype=np.float64)
    is_covered = np.asarray(sets.contains(targets))
    kind_of = example_rows(sizes)

    # Sets of labels have no pieces, and sets of numbers no labels.
    labels_of: dict[int, list[Any]] = {}
    pieces_of: dict[int, list[tuple[float, float]]] = {}
    if isinstance(sets, LabelSets):
        labels_of = labels_by_probability(estimator, X, positions, sets, rows=list(kind_of))
    else:
        pieces_of = {row: pieces_of_set(sets, row) for row in kind_of}

    examples = []
    for row, kind in kind_of.items():
        labels = labels_of.get(row, [])
        pieces = pieces_of.get(row, [])
        n_listed = len(labels[:MOST_LABELS]) + len(pieces[:MOST_PIECES])
        examples.append(
            Example(
                row=int(positions[row]),
                kind=kind,
                truth=targets[row],
                prediction=points[row],
                size=float(sizes[row]),
                is_covered=bool(is_covered[row]),
                labels=tuple(labels[:MOST_LABELS]),
                pieces=tuple(pieces[:MOST_PIECES]),
                n_more=len(labels) + len(pieces) - n_listed,
            )
        )
    return tuple(examples)


def example_rows(sizes: Floats) -> dict[int, str]:
    """Pick rows by the place of their size among all sizes; return the kind of each.

    Among rows of equal size the earlier ones come first.
    """
    by_size = np.argsort(sizes, kind="stable")
    kind_of: dict[int, str] = {}
    for position, kind in KIND_BY_PLACE.items():
        row = int(by_size[round(position * (len(by_size) - 1))])
        kind_of.setdefault(row, kind)
    return kind_of


def labels_by_probability(
    estimator: Any, X: Any, positions: Integers, sets: LabelSets, *, rows: list[int]
) -> dict[int, list[Any]]:
    """Return the labels in the sets of some rows, most probable first."""
    probabilities = estimator.predict_proba(take_features(X, positions[rows]))
    codes_by_probability = np.argsort(-probabilities, axis=1, kind="stable")
    classes = estimator.classes_.tolist()

    labels_of = {}
    for row, codes in zip(rows, codes_by_probability.tolist(), strict=True):
        rank_of = {classes[code]: rank for rank, code in enumerate(codes)}
        labels_of[row] = sorted(sets[row].tolist(), key=rank_of.__getitem__)
    return labels_of


def pieces_of_set(sets: Intervals | IntervalUnions, row: int) -> list[tuple[float, float]]:
    """Return the ends of the pieces of one set; an empty set has none."""
    return [(low, high) for low, high in sets.pieces(row).tolist() if low <= high]
