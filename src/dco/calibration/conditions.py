"""What decides which threshold a row gets: a column, a function of the row, its label."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dco.foundations.arrays import AnyArray
from dco.foundations.display import first_few
from dco.foundations.errors import SealBrokenError
from dco.foundations.tables import take_features
from dco.rows.conditions import LABEL_CLUSTERS, condition_values
from dco.structure import describe, rows_scored_again


class Condition(ABC):
    """A fixed function of the row, or of its label, whose values are the keys of conditions."""

    needs_label: ClassVar[bool] = False  # whether the label decides, and it alone

    @abstractmethod
    def of_rows(self, X: Any, y: AnyArray) -> AnyArray:
        """Return the key of each row with its own target, (n,)."""

    @abstractmethod
    def of_trials(self, X: Any, labels: AnyArray | None) -> AnyArray:
        """Return the keys of rows whose target is not known.

        For numbers that is one key for each row, (n,). For classes `labels` are those that are
        tried, and the shape is (n, 1), or (1, K) where only the label decides.
        """

    @abstractmethod
    def comes_from(self, source: Any) -> bool:
        """Return whether condition_on= this source gives this condition."""

    def column(self) -> Any:
        """Return the column (or "label") whose values are the keys, if it is one."""
        return None

    @abstractmethod
    def in_words(self) -> str:
        """Describe it for a certificate, in words that are the same in every run."""

    def text(self, key: Any) -> str:
        """Show a key in a table."""
        return str(key)

    def quote(self, key: Any) -> str:
        """Show a key in a sentence."""
        return repr(key)

    def value(self, key: Any) -> Any:
        """Return the value that an evaluation shows of a key."""
        return key


@dataclass(frozen=True)
class ColumnCondition(Condition):
    """The value of a column of X, or of a function of X."""

    source: Any = field(hash=False)  # may be a function that has no hash

    def of_rows(self, X: Any, y: AnyArray) -> AnyArray:
        values = condition_values(self.source, X, None)
        assert values is not None
        return values

    def of_trials(self, X: Any, labels: AnyArray | None) -> AnyArray:
        values = self.of_rows(X, np.empty(0))
        return values if labels is None else values[:, None]

    def comes_from(self, source: Any) -> bool:
        return is_same_source(self.source, source)

    def column(self) -> Any:
        return None if callable(self.source) else self.source

    def in_words(self) -> str:
        return describe(self.source)


@dataclass(frozen=True)
class LabelCondition(Condition):
    """The label itself."""

    needs_label = True

    def of_rows(self, X: Any, y: AnyArray) -> AnyArray:
        return y

    def of_trials(self, X: Any, labels: AnyArray | None) -> AnyArray:
        if labels is None:
            raise ValueError('condition_on="label" is for classes, and this model gives numbers.')
        return labels[None, :]

    def comes_from(self, source: Any) -> bool:
        return is_same_source("label", source)

    def column(self) -> str:
        return "label"

    def in_words(self) -> str:
        return describe("label")


@dataclass(frozen=True)
class LabelClusterCondition(Condition):
    """The cluster of the label. Its key is the tuple of all its labels."""

    needs_label = True

    clusters: tuple[tuple[Any, ...], ...]

    def of_rows(self, X: Any, y: AnyArray) -> AnyArray:
        cluster_of = {label: cluster for cluster in self.clusters for label in cluster}
        return object_array([cluster_of.get(label, (label,)) for label in y.tolist()])

    def of_trials(self, X: Any, labels: AnyArray | None) -> AnyArray:
        if labels is None:
            raise ValueError("clusters of labels are for classes, and this model gives numbers.")
        return self.of_rows(X, labels)[None, :]

    def comes_from(self, source: Any) -> bool:
        return is_same_source(LABEL_CLUSTERS, source)

    def column(self) -> str:
        return LABEL_CLUSTERS

    def in_words(self) -> str:
        return f"{describe(LABEL_CLUSTERS)}: {describe(self.clusters)}"

    def text(self, key: Any) -> str:
        """Show the first labels of a cluster, in quotes if they hold a comma themselves."""
        labels = []
        for label in key:
            has_comma = ", " in str(label)
            labels.append(repr(label) if has_comma else str(label))
        return first_few(labels)

    def quote(self, key: Any) -> str:
        return repr(self.text(key))

    def value(self, key: Any) -> Any:
        return self.text(key)


@dataclass(frozen=True)
class PatternCondition(Condition):
    """The values of several columns or functions: a row is in one group for each of them."""

    parts: tuple[ColumnCondition, ...]

    def of_rows(self, X: Any, y: AnyArray) -> AnyArray:
        values = [part.of_rows(X, y).tolist() for part in self.parts]
        return object_array(list(zip(*values, strict=True)))

    def of_trials(self, X: Any, labels: AnyArray | None) -> AnyArray:
        patterns = self.of_rows(X, np.empty(0))
        return patterns if labels is None else patterns[:, None]

    def comes_from(self, source: Any) -> bool:
        return isinstance(source, list) and source == [part.source for part in self.parts]

    def in_words(self) -> str:
        return describe([part.source for part in self.parts])

    def part_names(self) -> list[str]:
        """Name the columns and functions; those of the same name get a number: "age (2)"."""
        names = [name_source(part.source) for part in self.parts]
        count_of_name = Counter(names)
        return [
            name if count_of_name[name] == 1 else f"{name} ({number})"
            for number, name in enumerate(names, start=1)
        ]


@dataclass(frozen=True)
class PooledCondition(Condition):
    """Another condition whose rare keys are pooled: all that are not `common` become None."""

    condition: Condition
    common: frozenset[Hashable]

    def of_rows(self, X: Any, y: AnyArray) -> AnyArray:
        return self._pool(self.condition.of_rows(X, y))

    def of_trials(self, X: Any, labels: AnyArray | None) -> AnyArray:
        return self._pool(self.condition.of_trials(X, labels))

    def comes_from(self, source: Any) -> bool:
        return self.condition.comes_from(source)

    def in_words(self) -> str:
        return self.condition.in_words()

    def text(self, key: Any) -> str:
        return "" if key is None else self.condition.text(key)

    def _pool(self, keys: AnyArray) -> AnyArray:
        """Replace the keys that are not common by None."""
        pooled = [key if key in self.common else None for key in keys.ravel().tolist()]
        return object_array(pooled).reshape(keys.shape)


def is_same_source(source: Any, other: Any) -> bool:
    """Return whether two columns or functions are the same; arrays of values are none."""
    return np.ndim(other) == 0 and bool(source == other)


def name_source(source: Any) -> str:
    """Name a column or a function."""
    if callable(source):
        return str(getattr(source, "__name__", type(source).__name__))
    return str(source)


def object_array(values: Sequence[Any]) -> AnyArray:
    """Make a one-dimensional array of any objects, tuples included."""
    return np.fromiter(values, dtype=object, count=len(values))


def distinct_names(text_of: Mapping[Any, str]) -> dict[Any, str]:
    """Name each key by its text, or by its repr where two keys share a text (1 and "1")."""
    count_of_text = Counter(text_of.values())
    return {key: text if count_of_text[text] == 1 else repr(key) for key, text in text_of.items()}


def check_condition_ignores_other_rows(
    condition: Condition, X: Any, y: AnyArray, keys: AnyArray
) -> None:
    """Raise if the condition of a row changes when the row comes with fewer other rows.

    `keys` are the conditions of all rows, computed together. They change if the condition compares
    rows: if it asks, say, whether a value is above the median of the rows it gets.
    """
    first_rows, _ = rows_scored_again(len(y))
    half = first_rows[: len(first_rows) // 2]
    first_row_alone = first_rows[:1]

    for rows in (first_rows, half, first_row_alone):
        keys_of_batch = condition.of_rows(take_features(X, rows), y[rows])
        if keys_of_batch.tolist() != keys[rows].tolist():
            raise SealBrokenError(
                "condition_on gives a row another group when it comes with other rows, so groups "
                "are not those of one fixed function of a row. Fix what it compares with (a median "
                "of the training rows, say) beforehand."
            )
