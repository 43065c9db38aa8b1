"""What the columns of a table are for, and its rows as models take them. The `Layout` travels with a fitted model."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dco.arrays import AnyArray
from dco.commands.cells import (
    are_whole_labels,
    as_float,
    as_texts,
    first_code,
    first_rounded_cell,
    first_text,
    first_true,
    is_date,
    is_text,
    kind_of,
    look_of,
    numbers,
    seconds,
    with_gaps,
)
from dco.commands.reading import column_names
from dco.display import counted
from dco.extras import require
from dco.groups import MISSING

_MOST_KEPT = 1000  # categories of a column that travel with the model
_EXAMPLES = 3
_FEW_LABELS = 20  # whole numbers with more values than this are quantities, not classes


@dataclass(frozen=True)
class Layout:
    """The columns of a table by what they are for; it travels with the model."""

    target: str | None
    task: str
    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    order: tuple[str, ...]
    condition: str | None = None
    groups: str | None = None
    key: str | None = None
    dropped: tuple[str, ...] = ()
    decimal: str = "."
    dates: tuple[str, ...] | None = None  # those of the numbers that are dates; None: not known
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the values that the fit saw, unless too many

    def to_plain(self) -> dict[str, Any]:
        """Lists and texts only, so that it can be stored in a model file."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return plain | {"categories": {name: list(values) for name, values in self.categories.items()}}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Layout:
        """The inverse of `to_plain`."""
        values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
        values["categories"] = {name: tuple(kept) for name, kept in values.get("categories", {}).items()}
        return cls(**values)

    @property
    def known(self) -> set[str]:
        """Every column that the model has an opinion about."""
        named = {self.target, self.groups, self.key} - {None}
        return {*self.order, *self.dropped, *(name for name in named if name is not None)}


def make_layout(
    table: Any,
    *,
    path: Path,
    target: str,
    task: str | None,
    condition: str | None = None,
    groups: str | None = None,
    key: str | None = None,
    drop: Iterable[str] = (),
    decimal: str = ".",
) -> tuple[Layout, str]:
    """What each column is for, and a sentence that says which task was found and why.

    Columns of text that look like numbers are told in warnings. `decimal` is the sign before the decimals, "." or ",".
    """
    dropped = tuple(drop)
    for name, option in ((target, "--target"), (condition, "--condition-on"), (groups, "--groups"), (key, "--key")):
        if name is not None:
            need_column(table.column_names, name, path=path, option=option)
    for name in dropped:
        need_column(table.column_names, name, path=path, option="--drop")
    if condition is not None and condition in (groups, key, *dropped):
        raise ValueError(
            f"--condition-on {condition!r} must be the target or a column that the models may use; it has another role."
        )
    left_out = {target, groups, key, *dropped}
    order = tuple(name for name in table.column_names if name not in left_out)
    if not order:
        raise ValueError(f"{path} has no column left to predict {target!r} from; give a table with features.")
    kinds = {name: kind_of(table.column(name), name, path, decimal) for name in order}
    task, why = _task(table.column(target), target, path, task, decimal)
    if condition == target and task == "regression":
        raise ValueError(
            f"--condition-on {target!r} names the target, which gives each class its own threshold, and {target!r} is a "
            "quantity here; name a feature, or say --task classification."
        )
    if condition == "label" != target:
        raise ValueError('--condition-on label is kept for the classes of the target; give the column "label" another name.')
    layout = Layout(
        target=target,
        task=task,
        numbers=tuple(name for name in order if kinds[name] != "text"),
        texts=tuple(name for name in order if kinds[name] == "text"),
        order=order,
        condition=condition,
        groups=groups,
        key=key,
        dropped=dropped,
        decimal=decimal,
        dates=tuple(name for name in order if kinds[name] == "date"),
    )
    _tell_lookalikes(table, layout)
    return layout, why


def _task(column: Any, target: str, path: Path, task: str | None, decimal: str) -> tuple[str, str]:
    kind = kind_of(column, target, path, decimal)
    distinct = len(column.unique())
    is_number = as_float(column, decimal) is not None
    if task == "regression" and kind == "text" and not is_number:
        row, cell = first_text(column, decimal)
        raise ValueError(
            f"{path}: the target {target!r} holds {cell!r:.40} in row {row + 1}, and a regression needs numbers; mend the "
            "cell, or say --task classification."
        )
    if kind == "date" and task != "classification":
        raise ValueError(
            f"{path}: the target {target!r} holds dates; turn them into numbers, such as days since one of them, or say "
            "--task classification."
        )
    if task is not None:
        return task, f"Task: {task}, as asked for."
    if kind == "text" and is_number:
        return "classification", (
            f"Task: classification, because the target {target!r} holds codes such as {first_code(column)} ({distinct} "
            "values); --task regression treats them as numbers."
        )
    if kind == "text":
        look = look_of(column, decimal)
        if look is not None and (look.kind == "decimal" or distinct > _FEW_LABELS):
            raise ValueError(f"{path}: the target {target!r} {look.told}, or say --task classification if these are labels.")
        return "classification", f"Task: classification, because the target {target!r} is text with {distinct} values."
    values = numbers(column, target, path=path, decimal=decimal)
    values = values[~np.isnan(values)]
    if np.all(values == np.floor(values)) and distinct <= _FEW_LABELS:
        return "classification", (
            f"Task: classification, because the target {target!r} has {distinct} different whole numbers only; --task "
            "regression treats it as a quantity."
        )
    return "regression", (
        f"Task: regression, because the target {target!r} is a number with {distinct} different values; --task "
        "classification treats them as labels."
    )


def _tell_lookalikes(table: Any, layout: Layout) -> None:
    """Warn about columns that are read as categories and look like numbers."""
    for name in layout.texts:
        look = look_of(table.column(name), layout.decimal)
        if look is not None:
            warnings.warn(f"The column {name!r} is read as categories, but {look.told}.", UserWarning, stacklevel=3)


def need_column(names: Sequence[str], name: str, *, path: Path, option: str) -> None:
    """The column is there, or a sentence lists what is."""
    if name in names:
        return
    from difflib import get_close_matches

    near = get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    raise ValueError(f"{path} has no column {name!r}, which {option} names{hint} Its columns are: {shown}.")


def checked_columns(path: Path, layout: Layout, *, ignore_new: bool, also: Iterable[str] = ()) -> list[str]:
    """The columns to read for a fitted model: all features are there, and nothing that the model never saw."""
    names = column_names(path)
    there, known, also = set(names), layout.known, list(dict.fromkeys(also))  # tables may have many columns
    missing = [name for name in layout.order if name not in there]
    if missing:
        shown = ", ".join(repr(name) for name in missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise ValueError(f"{path} lacks {len(missing)} of the columns that the model was fitted on: {shown}; add them.")
    new = [name for name in names if name not in known and name not in also]
    if new and not ignore_new:
        shown = ", ".join(repr(name) for name in new[:5]) + (", ..." if len(new) > 5 else "")
        raise ValueError(f"{path} has columns that the model was not fitted on: {shown}; remove them, or say --ignore-new.")
    return [*layout.order, *(name for name in also if name not in layout.order)]


def with_categories(layout: Layout, X: Any) -> Layout:
    """The layout with the values of each column of text in X, the features of the fit."""
    found = {name: sorted(X[name].dropna().unique()) for name in layout.texts}
    return replace(layout, categories={name: tuple(seen) for name, seen in found.items() if len(seen) <= _MOST_KEPT})


def columns_by_kind(layout: Layout) -> dict[str, Any]:
    """How each feature is read; categories with the number of their values, which is None where they are too many."""
    dates = dict.fromkeys(layout.dates or ())
    kept = {name: layout.categories.get(name) for name in layout.texts}
    return {
        "numbers": [name for name in layout.numbers if name not in dates],
        "dates": list(dates),
        "categories": {name: None if values is None else len(values) for name, values in kept.items()},
    }


def told_columns(layout: Layout) -> str:
    """The same in a sentence."""
    kinds = columns_by_kind(layout)
    kinds["categories"] = [f"{name} ({_how_many(count)})" for name, count in kinds["categories"].items()]
    sentence = "; ".join(f"{kind}: {_listed(names)}" for kind, names in kinds.items() if names)
    return f"{sentence[0].upper()}{sentence[1:]}."


def _how_many(count: int | None) -> str:
    if count is None:
        return f"more than {_MOST_KEPT:,} values"
    return "1 value" if count == 1 else f"{count:,} values"


def _listed(names: list[str], most: int = 12) -> str:
    shown = [" ".join(name.split()) for name in names[:most]]  # a name may hold line breaks
    return ", ".join(shown) + (f", ... ({len(names)} in all)" if len(names) > most else "")


def features(table: Any, layout: Layout, *, path: Path, first_row: int = 0) -> Any:
    """The features as a pandas frame: numbers as float64 (NaN is missing), texts as str (None is missing)."""
    pandas = require("pandas", extra="tables")
    columns: dict[str, Any] = {}
    are_texts, are_dates = set(layout.texts), set(layout.dates or ())
    for name in layout.order:
        column = table.column(name)
        if name in are_texts:
            if is_date(column.type):
                raise ValueError(
                    f"{path}: the column {name!r} holds dates, and the fit read it as text; write it as the fit had it."
                )
            texts = as_texts(column, fill=MISSING if name == layout.condition else None)
            columns[name] = pandas.Series(texts, dtype=object)  # pandas would choose by its version
        elif name in are_dates:
            columns[name] = seconds(column, name, path=path, first_row=first_row)
        elif layout.dates is not None and is_date(column.type):
            raise ValueError(f"{path}: the column {name!r} holds dates, and the fit had numbers there; give numbers.")
        else:
            columns[name] = numbers(column, name, path=path, first_row=first_row, decimal=layout.decimal)
    return pandas.DataFrame(columns, copy=False)


def targets(table: Any, layout: Layout, *, path: Path, classes: AnyArray | None = None) -> AnyArray:
    """The target column: float64 for a regression, whole numbers or texts for classes. No cell may be missing."""
    assert layout.target is not None
    column = table.column(layout.target)
    if is_text(column.type):
        missing = with_gaps(column).is_null()  # a label called NA would be taken for a class
    else:
        missing = column.is_null(nan_is_null=True)
    count = int(np.count_nonzero(missing.to_numpy(zero_copy_only=False)))
    if count:
        row = first_true(missing)
        raise ValueError(
            f"{path}: the target {layout.target!r} is missing in {counted(count, 'row')} (first: row {row + 1}); leave "
            "such rows out of the table."
        )
    if layout.task == "regression":
        rounded = first_rounded_cell(column, layout.decimal)
        if rounded is not None:
            raise ValueError(
                f"{path}: the target {layout.target!r} is {column[rounded]} in row {rounded + 1}, which float64 rounds, so "
                "that neighbours would be one value; subtract a whole number from the column first."
            )
        if is_date(column.type):
            raise ValueError(
                f"{path}: the target {layout.target!r} holds dates; turn them into numbers, such as days since one of them."
            )
        return numbers(column, layout.target, path=path, decimal=layout.decimal)
    if classes is None:
        whole = kind_of(column, layout.target, path, layout.decimal) == "number" and are_whole_labels(column)
    else:
        whole = classes.dtype.kind in "iu" and as_float(column, layout.decimal) is not None
    if whole:
        values = numbers(column, layout.target, path=path, decimal=layout.decimal)
        if np.all(values == np.floor(values)):
            return values.astype(np.int64)
    if classes is not None and classes.dtype.kind in "iu":
        raise ValueError(
            f"{path}: the target {layout.target!r} holds labels that are not whole numbers, unlike those that the model "
            f"knows ({', '.join(map(str, classes[:5]))}); give the labels in the form used for fitting."
        )
    return np.asarray([str(value) for value in as_texts(column)])


def labels(table: Any, name: str) -> AnyArray:
    """A column as texts, one a row, for groups."""
    return np.asarray([str(value) for value in as_texts(table.column(name), fill=MISSING)])


class NewValues:
    """Cells of tables that hold categories which the fit never saw, counted by column."""

    def __init__(self) -> None:
        self.rows = 0
        self.cells: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def count(self, table: Any, layout: Layout) -> None:
        """Count the cells of a table; not of a column whose values have thresholds, since such rows get another note."""
        self.rows += table.num_rows
        there = set(table.column_names)
        for name, kept in layout.categories.items():
            if name != layout.condition and name in there:
                self._add(name, _unlike(table.column(name), kept))

    def add(self, other: NewValues) -> None:
        """What was counted elsewhere."""
        self.rows += other.rows
        for name, examples in other.examples.items():
            self._add(name, examples, other.cells[name])

    def _add(self, name: str, texts: list[str], count: int | None = None) -> None:
        if texts:
            self.cells[name] += len(texts) if count is None else count
            self.examples[name] = list(dict.fromkeys([*self.examples.get(name, []), *texts]))[:_EXAMPLES]

    def tell(self) -> None:
        """Warn once a column."""
        for name, count in self.cells.items():
            shown = ", ".join(f"{text!r:.40}" for text in self.examples[name])
            warnings.warn(
                f"The column {name!r}: {count:,} of {self.rows:,} cells hold values that the fit never saw, such as "
                f"{shown}.",
                UserWarning,
                stacklevel=2,
            )


def _unlike(column: Any, kept: Sequence[str]) -> list[str]:
    """The cells that are neither missing nor among these."""
    arrow, compute = require("pyarrow", extra="tables"), require("pyarrow.compute", extra="tables")
    if not is_text(column.type):
        column = arrow.chunked_array([arrow.array(as_texts(column), arrow.string())])
    known = compute.is_in(column, value_set=arrow.array(kept, column.type))
    return [str(text) for text in column.filter(compute.and_not(compute.is_valid(column), known)).to_pylist()]
