"""The columns of an Arrow table: what each is for, which task the target asks for, and their rows
as models take them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dco.cli import cells
from dco.cli.dates import ISO, forms_of
from dco.cli.layout import Layout, need_column
from dco.foundations.arrays import AnyArray, Bools
from dco.foundations.display import are, counted
from dco.foundations.extras import require
from dco.foundations.notes import Note, show
from dco.rows.conditions import LABEL_CLUSTERS, MISSING

_FEW_LABELS = 20  # whole numbers with more values than this are quantities, not classes
_EXAMPLES = 3


def make_layout(table: Any, asked: Layout, *, path: Path) -> tuple[Layout, str]:
    """What each column is for, and a sentence that says which task was found and why.

    Columns of text that look like numbers are noted.
    """
    for option in ("target", "groups", "key"):
        need_column(table.column_names, getattr(asked, option), path=path, option=f"--{option}")
    for name in asked.conditions:
        if name != LABEL_CLUSTERS:
            need_column(table.column_names, name, path=path, option="--condition-on")
    for name in asked.dropped:
        need_column(table.column_names, name, path=path, option="--drop")
    left_out = {asked.target, asked.groups, asked.key, *asked.dropped}
    order = tuple(name for name in table.column_names if name not in left_out)
    if not order:
        raise ValueError(
            f"{path} has no column left to predict {asked.target!r} from; give a "
            f"table with features."
        )
    kinds = {name: _kind(table.column(name), name, asked, path=path) for name in order}
    dates = {
        name: _date_form(table.column(name), name, asked, path=path)
        for name in order
        if kinds[name] == "date"
    }
    task, why = _task(table.column(asked.target), asked, path)
    _check_conditions(asked, task)
    texts = tuple(name for name in order if kinds[name] == "text")
    looks = {name: cells.look_of(table.column(name), asked.decimal) for name in texts}
    show(
        Note("text-like-values", f"The column {name!r} is read as categories, but {look[1]}.")
        for name, look in looks.items()
        if look is not None
    )
    others = tuple(name for name in order if kinds[name] != "text")
    return replace(asked, task=task, order=order, numbers=others, texts=texts, dates=dates), why


def _kind(column: Any, name: str, asked: Layout, *, path: Path) -> str:
    """Say whether a feature is read as number, date or text."""
    kind = cells.kind_of(column, name, path, asked.decimal)
    if kind == "date" and name in asked.conditions and cells.is_text(column.type):
        return "text"  # thresholds are listed by the values of the column, as they are written
    return kind


def _date_form(column: Any, name: str, asked: Layout, *, path: Path) -> str:
    """Choose the form in which a column of dates is read; the user must if day and month cannot be
    told apart.
    """
    if cells.is_date(column.type):
        return ISO

    texts = cells.with_gaps(column)
    forms = forms_of(texts)
    if len(forms) == 1:
        return forms[0]
    if asked.date_order in forms:
        return asked.date_order
    raise ValueError(
        f"{path}: the dates of the column {name!r}, such as {texts.drop_null()[0].as_py()!r}, may "
        "have the day or the month first; say which with --dates day-first or --dates month-first."
    )


def _check_conditions(asked: Layout, task: str) -> None:
    """Conditions are columns that the models use, or the target (or clusters of its labels) by
    itself.
    """
    for name in asked.conditions:
        of_target = name in (asked.target, LABEL_CLUSTERS)
        if name in (asked.groups, asked.key, *asked.dropped):
            problem = "must be the target or a column that the models may use; it has another role."
        elif of_target and task == "regression":
            problem = (
                f"gives classes of the target thresholds of their own, and {asked.target!r} is a "
                f"quantity here; name a "
                "feature, or use --task classification."
            )
        elif of_target and len(asked.conditions) > 1:
            problem = "is about the target, which stands alone; leave the other columns out."
        elif name == "label" != asked.target:
            problem = 'means the classes of the target; give the column "label" another name.'
        else:
            continue
        raise ValueError(f"--condition-on {name!r} {problem}")


def _task(column: Any, asked: Layout, path: Path) -> tuple[str, str]:
    """The task, and a sentence with the reason."""
    task, decimal, target = asked.task, asked.decimal, f"the target {asked.target!r}"
    kind, distinct = cells.kind_of(column, str(asked.target), path, decimal), len(column.unique())
    is_number = cells.as_float(column, decimal) is not None
    if task == "regression" and kind == "text" and not is_number:
        wrong = cells.first_unread(column, lambda part: cells.as_float(part, decimal))
        raise ValueError(
            f"{path}: {target} has {wrong}, and a regression needs numbers; correct the cell, or "
            f"use --task classification."
        )
    if kind == "date" and task != "classification":
        raise ValueError(
            f"{path}: {target} contains dates; convert them to numbers, such as days since one of "
            f"them, or use --task "
            "classification."
        )
    if task:
        return task, f"Task: {task}, as requested."
    if kind == "text" and is_number:
        found = f"contains codes such as {cells.first_code(column)} ({distinct} values)"
        return "classification", (
            f"Task: classification, because {target} {found}; --task regression treats them as "
            f"numbers."
        )
    if kind == "text":
        look = cells.look_of(column, decimal)
        if look is not None and (look[0] == "decimal" or distinct > _FEW_LABELS):
            raise ValueError(
                f"{path}: {target} {look[1]}, or use --task classification if these are labels."
            )
        return (
            "classification",
            f"Task: classification, because {target} is text with {distinct} values.",
        )
    values = cells.numbers(column, str(asked.target), path=path, decimal=decimal)
    values = values[~np.isnan(values)]
    if np.all(values == np.floor(values)) and distinct <= _FEW_LABELS:
        found = (
            f"has only {distinct} different whole numbers; --task regression treats it as a "
            f"quantity"
        )
        return "classification", f"Task: classification, because {target} {found}."
    found = (
        f"is a number with {distinct} different values; --task classification treats them as labels"
    )
    return "regression", f"Task: regression, because {target} {found}."


# --- rows as models take them
# ---------------------------------------------------------------------------------------


def features(table: Any, layout: Layout, *, path: Path, first_row: int = 0) -> Any:
    """The features as a pandas frame: numbers as float64 (NaN is missing), texts as str (None is
    missing).
    """
    pandas = require("pandas", extra="tables")
    columns: dict[str, Any] = {}
    are_texts, dates = set(layout.texts), layout.dates or {}
    for name in layout.order:
        column = table.column(name)
        if name not in dates and layout.dates is not None and cells.is_date(column.type):
            was = (
                "read it as text; write it as for the fit"
                if name in are_texts
                else "had numbers there; give numbers"
            )
            raise ValueError(f"{path}: the column {name!r} contains dates, and the fit {was}.")
        if name in are_texts:
            texts = cells.as_texts(column, fill=MISSING if name in layout.conditions else None)
            columns[name] = pandas.Series(texts, dtype=object)  # pandas would choose by its version
        elif name in dates:
            columns[name] = cells.seconds(
                column, name, form=dates[name], path=path, first_row=first_row
            )
        else:
            columns[name] = cells.numbers(
                column, name, path=path, first_row=first_row, decimal=layout.decimal
            )
    return pandas.DataFrame(columns, copy=False)


def known_targets(table: Any, layout: Layout) -> Any:
    """The rows whose target is known, if rows without one are to be left out; otherwise the table
    as it is.
    """
    if not layout.drop_missing_target or layout.target not in table.column_names:
        return table
    missing = _missing(table.column(layout.target))
    if count := int(np.count_nonzero(missing)):
        text = (
            f"{counted(count, 'row')} of {table.num_rows} without a target {are(count)} left out."
        )
        show([Note("missing-targets", text)])
    return table.filter(~missing)


def _missing(column: Any) -> Bools:
    """Which cells of a target are missing; a label called NA would be taken for a class."""
    return np.asarray(
        cells.with_gaps(column).is_null()
        if cells.is_text(column.type)
        else column.is_null(nan_is_null=True)
    )


def targets(table: Any, layout: Layout, *, path: Path, classes: AnyArray | None = None) -> AnyArray:
    """The target column: float64 for a regression, whole numbers or texts for classes. No cell may
    be missing.
    """
    assert layout.target is not None
    column, target = table.column(layout.target), f"{path}: the target {layout.target!r}"
    if (missing := np.flatnonzero(_missing(column))).size:
        raise ValueError(
            f"{target} is missing in {counted(missing.size, 'row')} (first: row "
            f"{missing[0] + 1}); remove such rows, or fit "
            "with --drop-missing-target."
        )
    if layout.task == "regression":
        rounded = cells.first_rounded_cell(column, layout.decimal)
        if rounded is not None:
            raise ValueError(
                f"{target} is {column[rounded]} in row {rounded + 1}, which float64 rounds, so "
                f"that different values would "
                "become equal; subtract a whole number from the column first."
            )
        if cells.is_date(column.type):
            raise ValueError(
                f"{target} contains dates; convert them to numbers, such as days since one of them."
            )
        return cells.numbers(column, layout.target, path=path, decimal=layout.decimal)
    whole_classes = None if classes is None else classes.dtype.kind in "iu"
    if whole_classes is None:
        whole = cells.kind_of(
            column, layout.target, path, layout.decimal
        ) == "number" and cells.are_whole_labels(column)
    else:
        whole = whole_classes and cells.as_float(column, layout.decimal) is not None
    if whole:
        values = cells.numbers(column, layout.target, path=path, decimal=layout.decimal)
        if np.all(values == np.floor(values)):
            return values.astype(np.int64)
    if classes is not None and whole_classes:
        raise ValueError(
            f"{target} has labels that are not whole numbers, unlike those of the model "
            f"({', '.join(map(str, classes[:5]))}); write the labels as for the fit."
        )
    return cells.as_texts(column).astype(np.str_)


def labels(table: Any, name: str | None, rows: AnyArray | slice = slice(None)) -> AnyArray | None:
    """A column as text, one value per row (of `rows`), for groups; None if no column is named."""
    return (
        None
        if name is None
        else cells.as_texts(table.column(name), fill=MISSING).astype(np.str_)[rows]
    )


def row_names(
    table: Any, key: str | None, rows: AnyArray | slice = slice(None)
) -> list[str] | None:
    """What the rows are called on a page, if there is a key column."""
    found = labels(table, key, rows)
    return None if found is None else [f"{key} {value}" for value in found]


class NewValues:
    """What rows have and those of the fit had not, counted over batches: categories by column, and
    what sets depend on.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.cells: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}
        self.conditions: Counter[Any] = Counter()  # of rows whose group has no calibration rows
        self.gaps: Counter[Any] = Counter()  # missing values by column

    def count(self, X: Any, layout: Layout) -> None:
        """Count the cells of features; not of the condition's column, since such rows get another
        note.
        """
        self.rows += len(X)
        for name, kept in layout.categories.items():
            if name not in layout.conditions:
                new = X[name][~X[name].isin([*kept, None])]
                self._add(name, len(new), new.unique())

    @classmethod
    def total(cls, each: Iterable[NewValues]) -> NewValues:
        """What was counted in several places."""
        total = cls()
        for found in each:
            total.rows += found.rows
            total.conditions += found.conditions
            total.gaps += found.gaps
            for name, count in found.cells.items():
                total._add(name, count, found.examples[name])
        return total

    def _add(self, name: str, count: int, texts: Iterable[str]) -> None:
        if count:
            self.cells[name] += count
            self.examples[name] = list(dict.fromkeys([*self.examples.get(name, []), *texts]))[
                :_EXAMPLES
            ]

    def notes(self) -> list[Note]:
        """One note per column with categories that the fit never saw."""
        notes = []
        for name, count in self.cells.items():
            shown = ", ".join(f"{text!r:.40}" for text in self.examples[name])
            text = (
                f"{count:,} of {self.rows:,} cells have values that the fit never saw, such "
                f"as {shown}."
            )
            notes.append(Note("new-values", f"The column {name!r}: {text}"))
        return notes
