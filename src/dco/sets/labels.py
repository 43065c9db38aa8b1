"""Sets of labels, as a matrix of true and false."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, overload

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import (
    AnyArray,
    Bools,
    Integers,
    as_labels,
    namespace,
    to_array,
    to_device_of,
    to_numpy,
)
from dco.foundations.display import counted
from dco.sets.prediction_sets import PredictionSets, Row, Rows, positions_of

_MOST_LABELS_PRINTED = 5  # of one set


@dataclass(frozen=True, eq=False, repr=False)
class LabelSets(PredictionSets):
    """Row i holds label j where ``members[i, j]`` is true.

    With `classes`, labels are ``classes[j]`` and every method speaks labels; without, they are the
    numbers 0..K-1. The matrix takes one byte for each row and label, a quarter of the probabilities
    in single precision that it was made of. Sets made of probabilities on a GPU lie there too:
    `sizes`, `contains`, `is_empty`, `is_full` and ``sets[rows]`` work there, everything else copies
    to the host first, as `on_host` does.
    """

    members: Bools
    classes: AnyArray | None = None

    holds_labels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the membership matrix and the names of its columns."""
        members = to_array(self.members)
        if members.ndim != 2:
            raise ValueError(f"members must be an (n, K) matrix, got shape {members.shape}.")
        xp = namespace(members)
        object.__setattr__(self, "members", xp.astype(members, xp.bool, copy=False))

        if self.classes is not None:
            names = as_labels(self.classes)
            if names.shape != (self.n_classes,):
                raise ValueError(
                    f"classes must name each of the {self.n_classes} labels, got shape "
                    f"{names.shape}."
                )
            object.__setattr__(self, "classes", names)

    @property
    def n_classes(self) -> int:
        """The number of labels that a set can hold."""
        return int(self.members.shape[1])

    def __len__(self) -> int:
        return int(self.members.shape[0])

    @overload
    def __getitem__(self, key: Row) -> AnyArray: ...
    @overload
    def __getitem__(self, key: Rows) -> LabelSets: ...
    def __getitem__(self, key: Row | Rows) -> AnyArray | LabelSets:
        """Return some rows: ``sets[3]`` as an array of labels, several rows as `LabelSets`.

        Several rows are chosen by a slice, a list of row numbers or a mask.
        """
        rows = positions_of(key, len(self))
        if isinstance(rows, int):
            return self._names()[to_numpy(self.members[rows, :])]
        members = namespace(self.members).take(
            self.members, to_device_of(rows, self.members), axis=0
        )
        return LabelSets(members, self.classes)

    def __iter__(self) -> Iterator[AnyArray]:
        sets = self.on_host()
        return (sets[row] for row in range(len(sets)))

    def describe_row(self, row: int) -> str:
        """Write the set of one row as text, such as "{cat, dog}"; a large one ends in "..."."""
        labels = [f"{label!s:.20}" for label in self[row]]
        parts = labels[:_MOST_LABELS_PRINTED]
        if len(labels) > _MOST_LABELS_PRINTED:
            parts.append("...")
        return "{" + ", ".join(parts) + "}"

    def describe_kind(self) -> str:
        """Say how many labels there are."""
        return f" of {counted(self.n_classes, 'label')}"

    def sizes(self) -> Integers:
        """Count the labels of each set."""
        return namespace(self.members).count_nonzero(self.members, axis=1)  # type: ignore[no-any-return]

    def contains(self, y: ArrayLike) -> Bools:
        """Say for each row whether its set holds its label.

        A label that is not among the classes is in no set.
        """
        columns = self._columns_of(y)
        is_class = columns >= 0
        safe_columns = to_device_of(np.where(is_class, columns, 0), self.members)
        rows = namespace(self.members).arange(len(self), device=self.members.device)
        return self.members[rows, safe_columns] & to_device_of(is_class, self.members)  # type: ignore[no-any-return]

    def knows(self, y: ArrayLike) -> Bools:
        """Say for each row whether its label is among the classes: no other can be in a set."""
        return self._columns_of(y) >= 0

    def is_empty(self) -> Bools:
        """Say for each row whether its set holds no label."""
        return self.sizes() == 0  # type: ignore[no-any-return]

    def is_full(self) -> Bools:
        """Say for each row whether its set holds every label."""
        return self.sizes() == self.n_classes  # type: ignore[no-any-return]

    def has_one_label(self) -> Bools:
        """Say for each row whether its set is a single label."""
        return self.sizes() == 1  # type: ignore[no-any-return]

    def in_order(self, classes: ArrayLike) -> LabelSets:
        """Return the same sets with the columns of the matrix in the order of `classes`.

        `classes` must hold the labels of these sets, each once.
        """
        names = as_labels(classes)
        columns = codes_of(names, self._names())
        named_columns = set(columns.tolist()) - {-1}
        if len(names) != self.n_classes or len(named_columns) < self.n_classes:
            raise ValueError(
                f"classes must be the {counted(self.n_classes, 'label')} of these sets in another "
                "order."
            )
        if np.array_equal(columns, np.arange(self.n_classes)):
            return self if self.classes is not None else LabelSets(self.members, names)
        return LabelSets(self.on_host().members[:, columns], names)

    def with_sorted_labels(self) -> LabelSets:
        """Return the same sets with their labels in ascending order."""
        return self if self.classes is None else self.in_order(np.sort(self.classes))

    def on_host(self) -> LabelSets:
        """Return the same sets in NumPy's arrays."""
        if isinstance(self.members, np.ndarray):
            return self
        return LabelSets(to_numpy(self.members), self.classes)

    def to_dense(self) -> Bools:
        """Return the (n, K) membership matrix."""
        return self.on_host().members

    def to_lists(self) -> list[list[Any]]:
        """Return the labels of each set as Python lists."""
        sets = self.on_host()

        # The labels of all sets in one list, row after row, which is then cut by the sizes.
        cells = np.flatnonzero(sets.members)
        columns = cells % max(self.n_classes, 1)
        labels = self._names()[columns].tolist()
        boundaries = np.cumsum([0, *sets.sizes()]).tolist()
        return [labels[start:end] for start, end in pairwise(boundaries)]

    def columns(self) -> Mapping[str, Any]:
        """Return the columns ``set``, lists of labels, and ``size``."""
        return {"set": self.to_lists(), "size": to_numpy(self.sizes())}

    def _names(self) -> AnyArray:
        """Return the name of each label, or its number."""
        return np.arange(self.n_classes) if self.classes is None else self.classes

    def _columns_of(self, y: ArrayLike) -> Integers:
        """Return the column of each row's label in the matrix, -1 for a label that has no column.

        Without classes, the labels are the column numbers themselves.
        """
        labels = as_labels(y)
        if labels.shape != (len(self),):
            raise ValueError(
                f"y must hold one label for each of the {len(self)} rows, got shape {labels.shape}."
            )
        if self.classes is not None:
            return codes_of(labels, self.classes)
        if labels.size and labels.dtype.kind not in "iu":
            raise ValueError(
                f"y has dtype {labels.dtype}, but these sets hold the label numbers "
                f"0..{self.n_classes - 1}. Pass classes= "
                "to the prediction record to use other labels."
            )
        is_column = (labels >= 0) & (labels < self.n_classes)
        return np.where(is_column, labels, -1).astype(np.int64)


def codes_of(y: AnyArray, classes: AnyArray) -> Integers:
    """Return the position of each label of `y` in `classes`, -1 for a label that is not there.

    With classes ["a", "b"], y = ["b", "x", "a"] gives [1, -1, 0].
    """
    # Labels of several types cannot be sorted, but they can be looked up.
    if y.dtype == object or classes.dtype == object:
        position_of = {label: position for position, label in enumerate(classes.tolist())}
        return np.array([position_of.get(label, -1) for label in y.tolist()], dtype=np.int64)

    # Classes m, m + 1, m + 2, ... are the usual case: one subtraction gives the position.
    are_integers = y.dtype.kind == "i" and classes.dtype.kind == "i"
    if are_integers and np.array_equal(classes, np.arange(len(classes)) + classes[:1]):
        positions = y.astype(np.int64) - classes[0]
        is_class = (positions >= 0) & (positions < len(classes))
        return np.where(is_class, positions, -1)

    # Other classes are searched in sorted order, and the class that is found is compared.
    order = np.argsort(classes, kind="stable")
    sorted_positions = np.searchsorted(classes, y, sorter=order)
    nearest = order[np.minimum(sorted_positions, len(classes) - 1)]
    return np.where(classes[nearest] == y, nearest, -1)
