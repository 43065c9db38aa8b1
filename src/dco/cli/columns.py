"""Decide what each column of a table is for, and which task the target asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from dco.cli.cells import as_float, first_code, first_text, kind_of, look_of, numbers
from dco.cli.layout import Layout, need_column
from dco.foundations.notes import Note, show
from dco.rows.conditions import LABEL_CLUSTERS

_FEW_LABELS = 20  # whole numbers with more values than this are quantities, not classes


@dataclass(frozen=True)
class Asked:
    """What the options say about columns; the fields have the names of the options."""

    target: str
    task: str | None = None
    condition_on: tuple[str, ...] = ()
    groups: str | None = None
    key: str | None = None
    drop: tuple[str, ...] = ()
    decimal: str = "."

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Asked:
        """The options of a command, as far as they are about columns."""
        return cls(**{entry.name: options[entry.name] for entry in fields(cls) if entry.name in options})


def make_layout(table: Any, asked: Asked, *, path: Path) -> tuple[Layout, str]:
    """What each column is for, and a sentence that says which task was found and why.

    Columns of text that look like numbers are noted.
    """
    target = asked.target
    for option in ("target", "groups", "key"):
        need_column(table.column_names, getattr(asked, option), path=path, option=f"--{option}")
    conditions = tuple(dict.fromkeys(asked.condition_on))
    for option, names in (("--condition-on", conditions), ("--drop", asked.drop)):
        for name in names:
            if name != LABEL_CLUSTERS or option == "--drop":
                need_column(table.column_names, name, path=path, option=option)
    left_out = {target, asked.groups, asked.key, *asked.drop}
    order = tuple(name for name in table.column_names if name not in left_out)
    if not order:
        raise ValueError(f"{path} has no column left to predict {target!r} from; give a table with features.")
    kinds = {name: kind_of(table.column(name), name, path, asked.decimal) for name in order}
    task, why = _task(table.column(target), asked, path)
    _check_conditions(asked, task)
    layout = Layout(
        target=target,
        task=task,
        numbers=tuple(name for name in order if kinds[name] != "text"),
        texts=tuple(name for name in order if kinds[name] == "text"),
        order=order,
        condition=conditions if len(conditions) > 1 else next(iter(conditions), None),
        groups=asked.groups,
        key=asked.key,
        dropped=asked.drop,
        decimal=asked.decimal,
        dates=tuple(name for name in order if kinds[name] == "date"),
    )
    looks = {name: look_of(table.column(name), asked.decimal) for name in layout.texts}
    show(
        Note("text-like-numbers", f"The column {name!r} is read as categories, but {look.words}.")
        for name, look in looks.items()
        if look is not None
    )
    return layout, why


def _check_conditions(asked: Asked, task: str) -> None:
    """Conditions are columns that the models use, or the target (or clusters of its labels) by itself."""
    target = asked.target
    for name in asked.condition_on:
        if name in (asked.groups, asked.key, *asked.drop):
            raise ValueError(
                f"--condition-on {name!r} must be the target or a column that the models may use; it has another role."
            )
        if name in (target, LABEL_CLUSTERS) and task == "regression":
            raise ValueError(
                f"--condition-on {name!r} gives classes of the target thresholds of their own, and {target!r} is a quantity "
                "here; name a feature, or use --task classification."
            )
        if name in (target, LABEL_CLUSTERS) and len(asked.condition_on) > 1:
            raise ValueError(
                f"--condition-on {name!r} is about the target, which stands alone; leave the other columns out."
            )
        if name == "label" != target:
            raise ValueError('--condition-on label means the classes of the target; give the column "label" another name.')


def _task(column: Any, asked: Asked, path: Path) -> tuple[str, str]:
    """The task, and a sentence with the reason."""
    target, task, decimal = asked.target, asked.task, asked.decimal
    kind = kind_of(column, target, path, decimal)
    distinct = len(column.unique())
    is_number = as_float(column, decimal) is not None
    if task == "regression" and kind == "text" and not is_number:
        row, cell = first_text(column, decimal)
        raise ValueError(
            f"{path}: the target {target!r} has {cell!r:.40} in row {row + 1}, and a regression needs numbers; correct the "
            "cell, or use --task classification."
        )
    if kind == "date" and task != "classification":
        raise ValueError(
            f"{path}: the target {target!r} contains dates; convert them to numbers, such as days since one of them, or use "
            "--task classification."
        )
    if task is not None:
        return task, f"Task: {task}, as requested."
    if kind == "text" and is_number:
        return "classification", (
            f"Task: classification, because the target {target!r} contains codes such as {first_code(column)} ({distinct} "
            "values); --task regression treats them as numbers."
        )
    if kind == "text":
        look = look_of(column, decimal)
        if look is not None and (look.kind == "decimal" or distinct > _FEW_LABELS):
            raise ValueError(
                f"{path}: the target {target!r} {look.words}, or use --task classification if these are labels."
            )
        return "classification", f"Task: classification, because the target {target!r} is text with {distinct} values."
    values = numbers(column, target, path=path, decimal=decimal)
    values = values[~np.isnan(values)]
    if np.all(values == np.floor(values)) and distinct <= _FEW_LABELS:
        return "classification", (
            f"Task: classification, because the target {target!r} has only {distinct} different whole numbers; --task "
            "regression treats it as a quantity."
        )
    return "regression", (
        f"Task: regression, because the target {target!r} is a number with {distinct} different values; --task "
        "classification treats them as labels."
    )
