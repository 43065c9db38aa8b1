"""Sets of labels, stored compressed: row pointers and label codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dco.foundations import arrays
from dco.foundations.arrays import AnyArray, Bools, Integers, as_labels, beside, namespace, to_numpy
from dco.foundations.display import counted
from dco.sets.prediction_sets import (
    PredictionSets,
    Row,
    Rows,
    chosen,
    compressed_rows,
    described,
    html_of_sets,
)

_CHUNK = 2**16  # truth values handled at a time, which the cache holds
_FIRST_LABELS = 5  # of a set that is printed


@dataclass(frozen=True, eq=False, repr=False)
class LabelSets(PredictionSets):
    """Row i holds the label codes ``codes[row_pointers[i]:row_pointers[i + 1]]``, ascending.

    Sets of few labels come as marks, one bit for each label; row pointers and codes are then made
    when first asked for. With `classes`, labels are ``classes[code]`` and every method speaks
    labels; without, labels are the codes 0..K-1. Sets made of probabilities on a device lie there
    too: `sizes`, `contains`, `knows`, `is_empty` and `is_full` work there, everything else copies
    to the host first, as `on_host` does.
    """

    row_pointers: Integers
    codes: Integers
    n_classes: int
    classes: AnyArray | None = None
    holds_labels: ClassVar[bool] = True
    _marks: ClassVar[NDArray[np.uint8] | None] = None

    def __post_init__(self) -> None:
        pointers, codes = (
            arrays.where_they_are(self.row_pointers),
            arrays.where_they_are(self.codes),
        )
        size = int(np.prod(codes.shape))
        ends = (
            [1]
            if pointers.ndim != 1
            else to_numpy(pointers[:: max(pointers.shape[0] - 1, 1)]).tolist()
        )
        if codes.ndim != 1 or not ends or ends[0] != 0 or ends[-1] != size:
            raise ValueError(
                f"row_pointers must run from 0 to the number of codes, {size}, one more than "
                f"there are rows; got "
                f"shape {pointers.shape}. LabelSets.from_dense() makes them from a matrix."
            )
        object.__setattr__(self, "row_pointers", pointers)
        object.__setattr__(self, "codes", codes)
        if self.classes is not None:
            names = as_labels(self.classes)
            if names.shape != (self.n_classes,):
                raise ValueError(
                    f"classes must name each of the {self.n_classes} labels, got "
                    f"shape {names.shape}."
                )
            object.__setattr__(self, "classes", names)

    def __getattr__(self, name: str) -> Any:
        if self._marks is None or name not in ("row_pointers", "codes"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")
        made = (
            arrays.sums_from_zero(self._counts())
            if name == "row_pointers"
            else _codes_of_marks(self._marks)
        )
        self.__dict__[name] = made
        return made

    @classmethod
    def of_sizes(
        cls, sizes: Integers, codes: Integers, n_classes: int, classes: AnyArray | None = None
    ) -> LabelSets:
        """Sets from the size of each and the codes of all, row by row."""
        return cls(arrays.sums_from_zero(sizes), codes, n_classes, classes)

    @classmethod
    def of_marks(
        cls, marks: NDArray[np.uint8], n_classes: int, classes: AnyArray | None = None
    ) -> LabelSets:
        """Sets from one bit for each label, (bytes, n): eight labels a byte, the first of them in
        its lowest bit.
        """
        made = object.__new__(cls)
        made.__dict__.update(_marks=marks, n_classes=n_classes, classes=classes)
        return made

    @classmethod
    def from_dense(cls, members: ArrayLike, classes: ArrayLike | None = None) -> LabelSets:
        """Sets from an (n, K) boolean matrix."""
        mask = np.asarray(members, dtype=bool)
        if mask.ndim != 2:
            raise ValueError(f"members must be an (n, K) matrix, got shape {mask.shape}.")
        codes = np.nonzero(mask)[1].astype(np.int32)
        names = None if classes is None else as_labels(classes)
        return cls.of_sizes(np.count_nonzero(mask, axis=1), codes, mask.shape[1], names)

    def on_host(self) -> LabelSets:
        """The same sets with NumPy's arrays."""
        if self._marks is not None or isinstance(self.codes, np.ndarray):
            return self
        return LabelSets(
            to_numpy(self.row_pointers), to_numpy(self.codes), self.n_classes, self.classes
        )

    def __len__(self) -> int:
        return int(self.row_pointers.shape[0]) - 1 if self._marks is None else self._marks.shape[1]

    @overload
    def __getitem__(self, key: Row) -> AnyArray: ...
    @overload
    def __getitem__(self, key: Rows) -> LabelSets: ...
    def __getitem__(self, key: Row | Rows) -> AnyArray | LabelSets:
        """The labels of one row's set; for a slice, a list of row numbers or a mask, the sets of
        those rows.
        """
        rows = chosen(key, len(self))
        if isinstance(rows, int):
            start, stop = int(self.row_pointers[rows]), int(self.row_pointers[rows + 1])
            return self._labels(to_numpy(self.codes[start:stop]))
        if self._marks is not None:
            return LabelSets.of_marks(self._marks[:, rows], self.n_classes, self.classes)
        here = self.on_host()
        pointers, places = compressed_rows(here.row_pointers, rows)
        return LabelSets(pointers, here.codes[places], self.n_classes, self.classes)

    def __iter__(self) -> Iterator[AnyArray]:
        here = self.on_host()
        return (here[row] for row in range(len(self)))

    def __repr__(self) -> str:
        here = self.on_host()
        return described(here, here._shown, of=f" of {counted(self.n_classes, 'label')}")

    def _repr_html_(self) -> str:
        return html_of_sets(self, self._shown)

    def _shown(self, row: int) -> str:
        labels = [f"{label!s:.20}" for label in self[row][:_FIRST_LABELS]]
        return "{" + ", ".join(labels + ["..."] * (len(self[row]) > _FIRST_LABELS)) + "}"

    def sizes(self) -> Integers:
        """How many labels each set holds."""
        if self._marks is not None:
            return self._counts().astype(np.int64)
        return self.row_pointers[1:] - self.row_pointers[:-1]

    def _counts(self) -> Integers:
        return np.add.reduce(np.bitwise_count(self._marks), axis=0, dtype=np.uint8)  # type: ignore[no-any-return, arg-type]

    def contains(self, y: ArrayLike) -> Bools:
        """Whether each row's set holds that row's label; a label that is not among the classes is
        in no set.
        """
        codes = self._codes_of(y)
        if self._marks is not None:
            known = (codes >= 0) & (codes < self.n_classes)
            codes = np.where(known, codes, 0)
            return np.asarray(
                self._marks[codes >> 3, np.arange(len(self))] >> (codes & 7) & known, dtype=bool
            )
        wanted = namespace(self.codes).repeat(codes, self.sizes())
        found = arrays.sums_from_zero(self.codes == wanted)
        return found[self.row_pointers[1:]] > found[self.row_pointers[:-1]]  # type: ignore[no-any-return]

    def knows(self, y: ArrayLike) -> Bools:
        """Whether each row's label is among the classes: no set can hold one that is not."""
        codes = self._codes_of(y)
        return (codes >= 0) & (codes < self.n_classes)

    def is_empty(self) -> Bools:
        """Rows whose set holds no label."""
        return self.sizes() == 0  # type: ignore[no-any-return]

    def is_full(self) -> Bools:
        """Rows whose set holds every label."""
        return self.sizes() == self.n_classes  # type: ignore[no-any-return]

    def has_one_label(self) -> Bools:
        """Say for each row whether its set is a single label."""
        return self.sizes() == 1  # type: ignore[no-any-return]

    def with_sorted_labels(self) -> LabelSets:
        """Return the same sets with their labels in ascending order."""
        return self if self.classes is None else self.in_order(np.sort(self.classes))

    def in_order(self, classes: ArrayLike) -> LabelSets:
        """The same sets with labels in the order of `classes`, which must name the same labels."""
        names, here = as_labels(classes), self.on_host()
        old = np.arange(self.n_classes) if self.classes is None else self.classes
        place = codes_of(old, names)
        if (
            len(names) != self.n_classes
            or len(np.unique(place)) < self.n_classes
            or (place < 0).any()
        ):
            raise ValueError(
                f"classes must be the {counted(self.n_classes, 'label')} of these "
                f"sets in another order."
            )
        if np.array_equal(place, np.arange(self.n_classes)):
            return (
                self
                if self.classes is not None
                else LabelSets(self.row_pointers, self.codes, self.n_classes, names)
            )
        rows = np.repeat(np.arange(len(self)), here.sizes())
        codes = place[here.codes]
        ascending = np.lexsort((codes, rows))
        return LabelSets(
            here.row_pointers, codes[ascending].astype(here.codes.dtype), self.n_classes, names
        )

    def to_dense(self) -> Bools:
        """The (n, K) membership matrix."""
        if self._marks is not None:
            bits = np.unpackbits(
                np.ascontiguousarray(self._marks), axis=0, count=self.n_classes, bitorder="little"
            )
            return np.ascontiguousarray(bits.T).view(bool)
        here, dense = self.on_host(), np.zeros((len(self), self.n_classes), dtype=bool)
        dense[np.repeat(np.arange(len(self)), here.sizes()), here.codes] = True
        return dense

    def to_lists(self) -> list[list[Any]]:
        """The labels of each set as Python lists."""
        flat = self._labels(to_numpy(self.codes)).tolist()
        ends = to_numpy(self.row_pointers).tolist()
        return [flat[start:end] for start, end in pairwise(ends)]

    def columns(self) -> Mapping[str, Any]:
        """Return the columns ``set``, lists of labels, and ``size``."""
        return {"set": self.to_lists(), "size": to_numpy(self.sizes())}

    def _labels(self, codes: Integers) -> AnyArray:
        return codes if self.classes is None else self.classes[codes]

    def _codes_of(self, y: ArrayLike) -> Integers:
        labels = as_labels(y)
        if labels.shape != (len(self),):
            raise ValueError(
                f"y must hold one label for each of the {len(self)} rows, got shape {labels.shape}."
            )
        if self.classes is None and labels.size and labels.dtype.kind not in "iu":
            raise ValueError(
                f"y has dtype {labels.dtype}, but these sets hold the label numbers "
                f"0..{self.n_classes - 1}. Pass classes= "
                "to the prediction record to use other labels."
            )
        codes = labels.astype(np.int64) if self.classes is None else codes_of(labels, self.classes)
        return codes if self._marks is not None else beside(codes, self.codes)


def _codes_of_marks(marks: NDArray[np.uint8]) -> NDArray[np.int32]:
    """The label codes of `LabelSets.of_marks`, row by row: each byte is looked up as eight truth
    values at once.
    """
    values = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    width = (
        8
        if len(marks) > 1
        else 1 << max(int(marks.max(initial=0)).bit_length() - 1, 0).bit_length()
    )
    truths = np.ascontiguousarray(values[:, :width]).view(f"u{width}")[:, 0]
    step = _CHUNK // (width * len(marks))  # rows
    labels = np.tile(np.arange(width * len(marks), dtype=np.int32), step)
    codes, start = np.empty(np.bitwise_count(marks).sum(dtype=np.int64), dtype=np.int32), 0
    for first in range(0, marks.shape[1], step):
        found = np.flatnonzero(truths.take(marks[:, first : first + step].T).view(bool))
        np.take(labels, found, out=codes[start : start + found.size], mode="clip")
        start += found.size
    return codes


def codes_of(y: AnyArray, classes: AnyArray) -> Integers:
    """The place of each label in `classes`, -1 for a label that is not there."""
    # labels of several kinds have no order, but they have equality
    if y.dtype == object or classes.dtype == object:
        place_of = {label: place for place, label in enumerate(classes.tolist())}
        return np.array([place_of.get(label, -1) for label in y.tolist()], dtype=np.int64)
    if y.dtype.kind == classes.dtype.kind == "i" and np.array_equal(
        classes, np.arange(len(classes)) + classes[:1]
    ):
        codes = y.astype(np.int64) - classes[0]  # the usual case, and fast
        return np.where((codes >= 0) & (codes < len(classes)), codes, -1)
    order = np.argsort(classes, kind="stable")
    place = np.searchsorted(classes, y, sorter=order)
    candidate = order[np.minimum(place, len(classes) - 1)]
    return np.where(classes[candidate] == y, candidate, -1)
