"""Conditions of rows (Mondrian): labels that may be text, numbers, dates, several kinds in one
column, or missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sized
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray, Integers, as_labels
from dco.foundations.display import first_few
from dco.foundations.notes import Message
from dco.foundations.tables import is_frame, is_missing, n_rows

MISSING = "(missing)"  # the condition of the rows whose label is missing
LABEL_CLUSTERS = "label-clusters"
AND = " & "  # between the groups of a row that belongs to several


def condition_names(values: Any) -> AnyArray:
    """The conditions of rows as values that can be looked up; rows with a missing value have one of
    their own.
    """
    names = as_labels(values)
    if names.dtype.kind in "mM":
        return np.where(np.isnat(names), MISSING, _times_as_text(names))
    if names.dtype.kind == "f" and np.any(np.isnan(names)):
        names = names.astype(object)
    if names.dtype.kind != "O":
        return names
    plain = (MISSING if is_missing(name) else _plain(name) for name in names.ravel().tolist())
    return np.fromiter(plain, dtype=object, count=names.size).reshape(names.shape)


def _times_as_text(times: AnyArray) -> AnyArray:
    """Dates and durations as text (as Python objects, some units would be numbers), the same text
    in every unit.
    """
    if times.dtype.kind == "m":
        return times.astype("m8[ns]").astype(str)
    unit, _ = np.datetime_data(times.dtype)
    exact = times.astype("M8[s]") if unit in {"Y", "M", "W", "D", "h", "m"} else times
    texts = [
        text.rstrip("0").rstrip(".") if "." in text else text
        for text in exact.astype(str).ravel().tolist()
    ]
    return np.asarray([text.removesuffix("T00:00:00") for text in texts]).reshape(times.shape)


def _plain(name: Any) -> Any:
    """A NumPy scalar as Python's own, which messages show without its type; dates are left, some
    would become numbers.
    """
    return name.item() if isinstance(name, np.generic) and name.dtype.kind not in "mM" else name


def rows_by_condition(names: AnyArray) -> dict[Any, Integers]:
    """The rows of each condition, ascending; conditions are sorted (each kind by itself), the
    missing one is last.
    """
    code_of: dict[Any, int] = {}  # not np.unique, which cannot sort text and numbers in one column
    codes = np.asarray(
        [code_of.setdefault(name, len(code_of)) for name in names.tolist()], dtype=np.int64
    )
    rows = np.split(
        np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes, minlength=1))[:-1]
    )
    return {name: rows[code_of[name]] for name in _sorted(set(code_of))}


def _sorted(names: set[Any]) -> list[Any]:
    known, missing = names - {MISSING}, names & {MISSING}
    try:
        return [*sorted(known), *missing]
    except TypeError:  # text and numbers in one column
        return [*sorted(known, key=lambda name: (type(name).__name__, str(name))), *missing]


def is_label(condition_on: Any) -> bool:
    """Whether the conditions are labels, each by itself or in clusters: ``condition_on="label"`` or
    "label-clusters".
    """
    return isinstance(condition_on, str) and condition_on in ("label", LABEL_CLUSTERS)


def cluster_names(clusters: Iterable[tuple[Any, ...]], labels: AnyArray) -> AnyArray:
    """What the cluster of each label is called: by its first labels, which no other cluster has."""
    name_of = {
        label: first_few(list(map(str, cluster))) for cluster in clusters for label in cluster
    }
    return np.asarray([name_of.get(label, str(label)) for label in labels.tolist()], dtype=np.str_)


def groups_of(pattern: str) -> list[str]:
    """The groups that rows of a pattern belong to, such as "sex=F": one for each entry of
    ``condition_on``.
    """
    return pattern.split(AND)


def group_sizes(parts: Mapping[str, Sized]) -> dict[str, int]:
    """How many rows each of several overlapping groups has; `parts` holds the rows of each
    pattern.
    """
    sizes: Counter[str] = Counter()
    for pattern, rows in parts.items():
        sizes.update(dict.fromkeys(groups_of(pattern), len(rows)))
    return dict(sorted(sizes.items()))


def group_marks(patterns: Iterable[str], groups: Iterable[str]) -> AnyArray:
    """A constant and an indicator of each group, one row for each pattern; a group that is not
    among them marks nothing.
    """
    place = {group: column for column, group in enumerate(groups, start=1)}
    rows = [
        [0, *(place[group] for group in groups_of(pattern) if group in place)]
        for pattern in patterns
    ]
    marks = np.zeros((len(rows), len(place) + 1))
    for row, columns in enumerate(rows):
        marks[row, columns] = 1.0
    return marks


def _patterns(several: list[Any], X: Any, parameter: str) -> AnyArray:
    """The groups of each row in one text, "sex=F & region=North": each value of each entry is a
    group.
    """
    called = [
        getattr(rule, "__name__", type(rule).__name__) if callable(rule) else str(rule)
        for rule in several
    ]
    # what stands before the first "=" tells columns apart
    called = [name.replace("=", ":") for name in called]
    cells = []
    for place, rule in enumerate(several):
        name = (
            called[place] if called.count(called[place]) == 1 else f"{called[place]} ({place + 1})"
        )
        values: Any = condition_values(rule, X, None, parameter=parameter)
        texts = {
            value: f"{name}={_text(value)}".replace(AND, " and ") for value in set(values.tolist())
        }
        cells.append([texts[value] for value in values.tolist()])
    return np.asarray([AND.join(groups) for groups in zip(*cells, strict=True)], dtype=np.str_)


def _text(value: Any) -> str:
    """The same text for 1 and 1.0: a column of whole numbers is one of floats where a value is
    missing.
    """
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def condition_values(
    condition_on: Any, X: Any, y: AnyArray | None, *, parameter: str = "condition_on"
) -> AnyArray | None:
    """The condition of each row: the label, a column of X, or what a function of X says;
    `parameter` is for messages.

    Of a list, the groups that the row belongs to (`groups_of`), in one text.
    """
    if condition_on is None:
        return None
    if isinstance(condition_on, list):
        return _patterns(condition_on, X, parameter)
    if is_label(condition_on):
        return y
    if callable(condition_on):
        values = condition_names(condition_on(X))
    elif hasattr(X, "columns"):
        if condition_on not in X.columns:
            there = first_few([repr(name) for name in X.columns])
            text = (
                f"⟨{parameter}⟩ names the column {condition_on!r}, which X does not have; it "
                f"has {there}."
            )
            raise ValueError(Message(text))
        values = condition_names(X[condition_on])
    else:
        if not isinstance(condition_on, (int, np.integer)):
            text = (
                f"⟨{parameter}⟩ names the column {condition_on!r}, but X is an array: pass a "
                f"frame, as in fit."
            )
            raise ValueError(Message(text))
        column = X[:, [condition_on]]
        dense: Any = column.toarray() if hasattr(column, "toarray") else np.asarray(column)
        values = condition_names(dense[:, 0])
    if values.shape != (n_rows(X),):
        text = (
            f"⟨{parameter}⟩ must give one group for each of {n_rows(X)} rows, got shape "
            f"{values.shape}."
        )
        raise ValueError(Message(text))
    return values


def check_condition(rule: Any, X: Any, *, parameter: str = "condition_on") -> None:
    """A column of an array is a number; columns of frames are looked up by name, where they are
    used.
    """
    if rule is None or callable(rule) or is_label(rule):
        return
    if isinstance(rule, list):
        for entry in rule:
            if is_label(entry) or isinstance(entry, list) or entry is None:
                raise ValueError(
                    Message(f"⟨{parameter}⟩ lists columns and functions of X; it holds {entry!r}.")
                )
            check_condition(entry, X, parameter=parameter)
        if not rule:
            raise ValueError(
                Message(f"⟨{parameter}⟩ is an empty list: name columns, or None for one threshold.")
            )
        return
    if not isinstance(rule, Hashable):
        text = (
            f"⟨{parameter}⟩ must be a column, a callable or a list of these, got "
            f"{type(rule).__name__}: for groups made "
            "elsewhere, pass a callable that takes X and gives each row's group."
        )
        raise ValueError(Message(text))
    if is_frame(X):
        return
    if (
        isinstance(rule, bool)
        or not isinstance(rule, (int, np.integer))
        or not -X.shape[1] <= rule < X.shape[1]
    ):
        text = (
            f"⟨{parameter}⟩ must be a column number below {X.shape[1]} or a callable, as X is "
            f"an array; got {rule!r}."
        )
        raise ValueError(Message(text))
