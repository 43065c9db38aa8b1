"""Conditions of rows: read from labels, columns and functions of X, as values to look up.

Values may be text, numbers, dates, several kinds in one column, or missing.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray, Integers, as_labels
from dco.foundations.display import first_few
from dco.foundations.notes import Message
from dco.foundations.tables import MISSING, is_frame, is_missing, n_rows

LABEL_CLUSTERS = "label-clusters"


def is_label(condition_on: Any) -> bool:
    """Return whether conditions are labels, each by itself ("label") or in clusters."""
    return isinstance(condition_on, str) and condition_on in ("label", LABEL_CLUSTERS)


# ------------------------------------------------------------------------------------------- check


def check_condition(source: Any, X: Any, *, parameter: str = "condition_on") -> None:
    """Refuse a value of ``condition_on=`` that cannot say which condition a row of X has.

    `source` may be None, "label", "label-clusters", a column of X, a function of X, or a list of
    columns and functions. `parameter` is its name in messages. Whether a frame has the column is
    checked where the column is read.
    """
    if isinstance(source, list):
        _check_list(source, X, parameter=parameter)
    elif source is not None and not callable(source) and not is_label(source):
        _check_column(source, X, parameter=parameter)


def _check_list(sources: list[Any], X: Any, *, parameter: str) -> None:
    """Refuse a list that is empty, or holds something else than columns and functions of X."""
    if not sources:
        raise ValueError(
            Message(f"⟨{parameter}⟩ is an empty list: name columns, or None for one threshold.")
        )
    for source in sources:
        if source is None or is_label(source) or isinstance(source, list):
            raise ValueError(
                Message(f"⟨{parameter}⟩ lists columns and functions of X; it holds {source!r}.")
            )
        check_condition(source, X, parameter=parameter)


def _check_column(column: Any, X: Any, *, parameter: str) -> None:
    """Refuse a value that cannot be a column of X.

    The columns of an array are called by their numbers, from -n to n - 1; those of a frame by any
    hashable name. `parameter` is the name of the argument in messages.
    """
    if not isinstance(column, Hashable):
        raise ValueError(
            Message(
                f"⟨{parameter}⟩ must be a column, a callable or a list of these, got "
                f"{type(column).__name__}: for groups made elsewhere, pass a callable that takes X "
                f"and gives each row's group."
            )
        )
    if is_frame(X):
        return
    is_number = isinstance(column, (int, np.integer)) and not isinstance(column, bool)
    if not is_number or not -X.shape[1] <= column < X.shape[1]:
        raise ValueError(
            Message(
                f"⟨{parameter}⟩ must be a column number below {X.shape[1]} or a callable, as X is "
                f"an array; got {column!r}."
            )
        )


# -------------------------------------------------------------------------------------------- read


def condition_values(
    source: Any, X: Any, y: AnyArray | None, *, parameter: str = "condition_on"
) -> AnyArray | None:
    """Read the condition of each row: the group by which it gets its threshold, (n,).

    Parameters
    ----------
    source
        What decides the condition: "label" or "label-clusters" (the row's own label), a column of
        X, or a function of X that returns one value per row. With None there are no conditions, and
        None is returned.
    X, y
        The rows and their labels.
    parameter
        The name of the argument `source` in messages.
    """
    if source is None:
        return None
    if is_label(source):
        return y

    if callable(source):
        raw_values = source(X)
    else:
        raw_values = _read_column(X, source, parameter=parameter)

    values = condition_names(raw_values)
    if values.shape != (n_rows(X),):
        raise ValueError(
            Message(
                f"⟨{parameter}⟩ must give one group for each of {n_rows(X)} rows, got shape "
                f"{values.shape}."
            )
        )
    return values


def _read_column(X: Any, column: Any, *, parameter: str) -> Any:
    """Return a column of a frame by its name, or of an array or sparse matrix by its number.

    `parameter` is the name of the argument that asks for the column, for messages.
    """
    if hasattr(X, "columns"):
        if column not in X.columns:
            column_names = first_few([repr(name) for name in X.columns])
            raise ValueError(
                Message(
                    f"⟨{parameter}⟩ names the column {column!r}, which X does not have; it has "
                    f"{column_names}."
                )
            )
        return X[column]

    if not isinstance(column, (int, np.integer)):
        raise ValueError(
            Message(
                f"⟨{parameter}⟩ names the column {column!r}, but X is an array: pass a frame, as "
                f"in fit."
            )
        )
    cells: Any = X[:, [column]]
    dense = cells.toarray() if hasattr(cells, "toarray") else np.asarray(cells)
    return dense[:, 0]


def condition_names(values: Any) -> AnyArray:
    """Convert the values of a column to conditions that can be looked up in a dict.

    Dates and durations become text. All missing values (NaN, None, NaT ...) become one condition.
    """
    names = as_labels(values)
    is_time = names.dtype.kind in "mM"  # durations and dates
    if is_time:
        return np.where(np.isnat(names), MISSING, _times_as_text(names))

    # Arrays of one type without missing values stay as they are.
    has_missing_numbers = names.dtype.kind == "f" and np.any(np.isnan(names))
    if has_missing_numbers:
        names = names.astype(object)
    if names.dtype.kind != "O":
        return names

    # Others become arrays of Python objects.
    objects = [MISSING if is_missing(name) else _to_python(name) for name in names.ravel().tolist()]
    return np.fromiter(objects, dtype=object, count=names.size).reshape(names.shape)


def _times_as_text(times: AnyArray) -> AnyArray:
    """Write dates and durations as text that does not depend on their unit.

    The same day stored in days and in seconds gives "2024-05-01" for both. Python's own objects
    would not do: NumPy converts times in nanoseconds to whole numbers.
    """
    is_duration = times.dtype.kind == "m"
    if is_duration:
        return times.astype("m8[ns]").astype(str)

    # Units longer than a second are converted to seconds, shorter ones keep their digits.
    unit, _ = np.datetime_data(times.dtype)
    if unit in {"Y", "M", "W", "D", "h", "m"}:
        times = times.astype("M8[s]")
    texts = [_shorten_time(text) for text in times.astype(str).ravel().tolist()]
    return np.asarray(texts).reshape(times.shape)


def _shorten_time(text: str) -> str:
    """Drop midnight and trailing zeros: "2024-05-01T00:00:00.000" -> "2024-05-01"."""
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.removesuffix("T00:00:00")


def _to_python(name: Any) -> Any:
    """Convert a NumPy scalar to Python's own, which messages show without its type.

    Dates and durations stay, since some would become numbers.
    """
    is_time = isinstance(name, np.datetime64 | np.timedelta64)
    return name.item() if isinstance(name, np.generic) and not is_time else name


# ------------------------------------------------------------------------------------------- divide


def rows_by_condition(names: AnyArray) -> dict[Any, Integers]:
    """Return the row numbers of each condition: ["b", "a", "b"] -> {"a": [1], "b": [0, 2]}.

    A condition is a group of rows, here the name that they share. Conditions are sorted, numbers
    and text each by themselves; the missing value is last.
    """
    # 1. Code the names as 0, 1, 2 ... in the order in which they occur. np.unique cannot do it,
    # since text and numbers may share a column.
    code_of_name: dict[Any, int] = {}
    codes = [code_of_name.setdefault(name, len(code_of_name)) for name in names.tolist()]
    code_of_row = np.asarray(codes, dtype=np.int64)

    # 2. Sort the rows by code, and cut after the rows of each code.
    rows_by_code = np.argsort(code_of_row, kind="stable")
    ends = np.cumsum(np.bincount(code_of_row, minlength=1))
    rows_of_code = np.split(rows_by_code, ends[:-1])

    sorted_names = _sort_conditions(set(code_of_name))
    return {name: rows_of_code[code_of_name[name]] for name in sorted_names}


def _sort_conditions(names: set[Any]) -> list[Any]:
    """Sort conditions; text and numbers each by themselves, and the missing value last."""
    known_names = names - {MISSING}
    try:
        ordered = sorted(known_names)
    except TypeError:  # text and numbers in one column
        ordered = sorted(known_names, key=_type_and_text)
    return [*ordered, MISSING] if MISSING in names else ordered


def _type_and_text(name: Any) -> tuple[str, str]:
    """Return what conditions of several types are sorted by: 2 -> ("int", "2")."""
    return type(name).__name__, str(name)
