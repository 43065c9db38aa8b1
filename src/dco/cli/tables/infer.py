"""Decide what each column of a table to fit on is for, and which task its target asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dco.cli.option_records import AskedColumns, Task
from dco.cli.tables.cells import first_code, is_dates, is_text, to_floats, with_gaps
from dco.cli.tables.dates import ISO, forms_of
from dco.cli.tables.layout import (
    CategoryFeature,
    DateFeature,
    Feature,
    Layout,
    NumberFeature,
    need_column,
)
from dco.cli.tables.looks import look_of
from dco.cli.tables.table import Column, Table
from dco.foundations.arrays import Floats
from dco.foundations.notes import Note
from dco.foundations.tables import MISSING

LABEL_CLUSTERS = "label-clusters"  # a condition by itself, as the estimators take it
_MAX_CLASSES = 20  # whole numbers with more values than this are a quantity
_MIN_ROWS_PER_CLASS = 5  # on average, for whole numbers to be classes


@dataclass(frozen=True)
class InferredLayout:
    """The layout of a table, why its task is classification or regression, and notes."""

    layout: Layout
    reason: str
    notes: list[Note]


def infer_layout(table: Table, asked: AskedColumns) -> InferredLayout:
    """Decide what each column of a table is for, and whether the task is a classification.

    Options (`asked`) name the target and other columns. All remaining columns are features; their
    cells decide whether they are read as numbers, dates or categories.
    """
    # 1. The remaining columns are features.
    _check_columns(table, asked)
    not_features = {asked.target, asked.groups, asked.key, *asked.dropped}
    columns = {name: table.column(name) for name in table.names if name not in not_features}
    if not columns:
        raise ValueError(
            f"{table.path} has no column left to predict {asked.target!r} from; give a table with "
            "features."
        )
    features = {name: _infer_feature(column, asked) for name, column in columns.items()}

    # 2. The cells of the target decide on the task.
    decision = _decide_task(target_column(table, asked.target), asked.task)
    _check_conditions(asked, decision.task)

    layout = Layout(
        target=asked.target,
        task=decision.task,
        features=features,
        conditions=asked.conditions,
        groups=asked.groups,
        key=asked.key,
        dropped=asked.dropped,
        decimal=asked.decimal,
        drop_missing_target=asked.drop_missing_target,
    )
    categories = [columns[name] for name in layout.features_of(CategoryFeature)]
    return InferredLayout(layout, decision.reason, notes=_note_looks(categories))


def _note_looks(categories: list[Column]) -> list[Note]:
    """Write a note for each column of categories that looks like numbers or dates."""
    notes = []
    for column in categories:
        look = look_of(column)
        if look is not None:
            text = f"The column {column.name!r} is read as categories, but {look.problem}."
            notes.append(Note("text-like-values", text))
    return notes


def target_column(table: Table, target: str) -> Column:
    """Return the column of the target; messages about it say "the target", not "the column"."""
    return table.column(target, called="the target")


def _check_columns(table: Table, asked: AskedColumns) -> None:
    """Refuse an option that names a column which the table does not have."""
    conditions = [name for name in asked.conditions if name != LABEL_CLUSTERS]
    names_of_option: dict[str, Sequence[str | None]] = {
        "--target": [asked.target],
        "--groups": [asked.groups],
        "--key": [asked.key],
        "--condition-on": conditions,
        "--drop": asked.dropped,
    }
    for option, names in names_of_option.items():
        for name in names:
            need_column(table.names, name, path=table.path, option=option)


# --- features -------------------------------------------------------------------------------------


def _infer_feature(column: Column, asked: AskedColumns) -> Feature:
    """Decide whether a feature is read as numbers, dates or categories.

    A condition (a column whose values have thresholds of their own) that holds dates as text is
    read as categories: its thresholds are listed by the values as they are written.
    """
    is_condition = column.name in asked.conditions
    kind = column.kind()
    if kind == "number":
        return NumberFeature()
    if kind == "text" or (is_condition and is_text(column.cells)):
        return CategoryFeature(missing=MISSING if is_condition else None)
    return DateFeature(_infer_date_form(column, asked.date_order))


def _infer_date_form(column: Column, date_order: str | None) -> str:
    """Find out how the dates of a column are written: as 2026-01-31 or 31/01/2026, say.

    If every cell may have the day or the month first, `date_order` decides ("day-first" or
    "month-first", from the option --dates).
    """
    if is_dates(column.cells):
        return ISO

    texts = with_gaps(column.cells)
    forms = forms_of(texts)
    if len(forms) == 1:
        return forms[0]
    if date_order in forms:
        return date_order
    raise ValueError(
        f"{column.title} has dates such as {texts.drop_null()[0].as_py()!r}, which may have the "
        "day or the month first; say which with --dates day-first or --dates month-first."
    )


def _check_conditions(asked: AskedColumns, task: Task) -> None:
    """Refuse a condition that is neither a column that models use nor the target by itself."""
    for name in asked.conditions:
        problem = _problem_with_condition(name, asked, task)
        if problem is not None:
            raise ValueError(f"--condition-on {name!r} {problem}")


def _problem_with_condition(name: str, asked: AskedColumns, task: Task) -> str | None:
    """Say why --condition-on cannot name this column; None if it can.

    The option gives each value of a column a threshold of its own. The text is the end of a
    sentence that begins with "--condition-on" and the name of the column.
    """
    if name in (asked.groups, asked.key, *asked.dropped):
        return "must be the target or a column that the models may use; it has another role."

    is_about_target = name in (asked.target, LABEL_CLUSTERS)
    if is_about_target and task == "regression":
        return (
            f"gives classes of the target thresholds of their own, and {asked.target!r} is a "
            "quantity here; name a feature, or use --task classification."
        )
    if is_about_target and len(asked.conditions) > 1:
        return "is about the target, which stands alone; leave the other columns out."

    # the estimators, which get this name, take the word "label" for the target
    if name == "label" and asked.target != "label":
        return 'means the classes of the target; give the column "label" another name.'
    return None


# --- the task -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _TaskDecision:
    task: Task
    reason: str


def _decide_task(target: Column, asked_task: Task | None) -> _TaskDecision:
    """Decide between classification and regression, and say why.

    `asked_task` is what --task says, None without it: then the cells of the target decide.
    """
    kind = target.kind()
    is_number = to_floats(target.cells, target.decimal) is not None

    # 1. Refuse a target that cannot be predicted as it is.
    if asked_task == "regression" and kind == "text" and not is_number:
        raise ValueError(
            f"{target.title} has {target.describe_not_a_number()}, and a regression needs numbers; "
            "correct the cell, or use --task classification."
        )
    if kind == "date" and asked_task != "classification":
        raise ValueError(
            f"{target.title} contains dates; convert them to numbers, such as days since one of "
            "them, or use --task classification."
        )

    # 2. Do as requested, or go by the cells.
    if asked_task is not None:
        return _TaskDecision(asked_task, f"Task: {asked_task}, as requested.")
    if kind == "number":
        return _task_of_numbers(target.name, target.numbers())
    if is_number:  # a number that is written as a code: 007
        return _task_of_codes(target)
    return _task_of_text(target)


def _task_of_codes(target: Column) -> _TaskDecision:
    """Take codes such as 007 for labels."""
    n_values = len(target.cells.unique())
    return _TaskDecision(
        "classification",
        f"Task: classification, because the target {target.name!r} contains codes such as "
        f"{first_code(target.cells)} ({n_values} values); --task regression treats them as "
        "numbers.",
    )


def _task_of_text(target: Column) -> _TaskDecision:
    """Decide that a target of text is labels: classification.

    It is an error if the text looks like numbers that are written in an unusual way, or like
    numbers, amounts or dates with too many values to be labels.
    """
    n_values = len(target.cells.unique())
    look = look_of(target)
    if look is not None and (look.is_quantity or n_values > _MAX_CLASSES):
        raise ValueError(
            f"{target.title} {look.problem}, or use --task classification if these are labels."
        )
    return _TaskDecision(
        "classification",
        f"Task: classification, because the target {target.name!r} is text with {n_values} values.",
    )


def _task_of_numbers(name: str, cells: Floats) -> _TaskDecision:
    """Decide whether the numbers of a target are labels or a quantity.

    They are labels if they are whole numbers, at most 20 different ones, each in five rows or more
    on average. Two different whole numbers are always labels.
    """
    values = cells[~np.isnan(cells)]
    n_values = len(np.unique(values))
    are_whole = bool(np.all(values == np.floor(values)))

    if not are_whole or n_values > _MAX_CLASSES:
        return _TaskDecision(
            "regression",
            f"Task: regression, because the target {name!r} is a number with {n_values} different "
            "values; --task classification treats them as labels.",
        )
    if n_values > 2 and len(values) < _MIN_ROWS_PER_CLASS * n_values:
        return _TaskDecision(
            "regression",
            f"Task: regression, because the target {name!r} has {n_values} different whole numbers "
            f"in {len(values)} rows, too few rows for each to be a class; --task classification "
            "treats them as labels.",
        )
    return _TaskDecision(
        "classification",
        f"Task: classification, because the target {name!r} has only {n_values} different whole "
        "numbers; --task regression treats it as a quantity.",
    )
