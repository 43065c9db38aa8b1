"""Read targets: one known, finite value for each row, of the type in which it was given."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray, Bools, as_labels, check_exact_in_float64, without_mask
from dco.foundations.display import counted, first_few
from dco.foundations.notes import Note
from dco.foundations.tables import is_missing


def read_targets(y: Any, *, as_numbers: bool) -> AnyArray:
    """Read the targets `y` of a table: an array of float64, or of labels in their own type.

    `y` is a list, an array or a column of a table, with one target for each row. A target that is
    missing (NaN, None, NaT, a null of a table, masked in a masked array) or infinite is an error.
    """
    values = as_array(y)
    check_all_rows(is_absent(values), "missing")
    check_all_rows(is_infinite(values), "infinite")

    if not as_numbers:
        return one_column(values)

    check_exact_in_float64(values, name="y")
    numbers = to_float64(one_column(values))
    # Check again: texts such as "inf" and "nan" have become numbers.
    check_all_rows(np.isnan(numbers), "missing")
    check_all_rows(np.isinf(numbers), "infinite")
    return numbers


def as_array(y: Any) -> AnyArray:
    """Return the values of a list, column or array as an array of the type that they have."""
    # scikit-learn would read pandas' nullable and Arrow types as float64, in which large whole
    # numbers that differ become equal
    if hasattr(y, "isna") and hasattr(y, "to_numpy"):
        return np.asarray(y.to_numpy())
    if isinstance(y, np.ma.MaskedArray):
        return without_mask(y)
    return as_labels(y)


def is_absent(values: AnyArray) -> Bools:
    """Mark the values that are NaN, None, NaT or pandas.NA."""
    if values.dtype.kind in "fcmM":
        return np.asarray(values != values)
    if values.dtype.kind == "O":
        return np.asarray(np.frompyfunc(is_missing, 1, 1)(values), dtype=bool)
    return np.zeros(values.shape, dtype=bool)


def is_infinite(values: AnyArray) -> Bools:
    """Mark the numbers that are infinite."""
    if values.dtype.kind in "fc":
        return np.isinf(values)
    if values.dtype.kind == "O":
        return np.asarray(np.frompyfunc(_is_infinite_float, 1, 1)(values), dtype=bool)
    return np.zeros(values.shape, dtype=bool)


def _is_infinite_float(value: Any) -> bool:
    return isinstance(value, (float, np.floating)) and math.isinf(value)


def check_all_rows(wrong: Bools, problem: str) -> None:
    """Raise an error if a row of y is wrong; it names the first such row and counts them.

    `wrong` marks the wrong cells of y; `problem` says what they are: "missing" or "infinite".
    """
    rows = np.flatnonzero(wrong.any(axis=1) if wrong.ndim == 2 else wrong)
    if rows.size == 0:
        return
    count = f" ({rows.size} rows in all)" if rows.size > 1 else ""
    raise ValueError(
        f"y is {problem} in row {rows[0]}{count}: every row needs a known, finite target. "
        f"Leave such rows out."
    )


def one_column(values: AnyArray) -> AnyArray:
    """Return targets in one dimension, (n,): a column (n, 1) is flattened, with a warning."""
    from sklearn.utils.validation import column_or_1d  # slow to import

    if values.ndim == 2 and values.shape[1] != 1:
        raise ValueError(
            f"y has {values.shape[1]} columns, and an estimator has one target: fit one estimator "
            f"for each column, or control a risk of several tags with dco.risk."
        )
    column: AnyArray = column_or_1d(values, warn=True)
    return column


def to_float64(column: AnyArray) -> AnyArray:
    """Convert targets of a regression to float64. Text is an error that names the text.

    Missing and infinite numbers pass, and so does an empty y: they are checked elsewhere.
    """
    from sklearn.utils.validation import check_array  # slow to import

    try:
        numbers: AnyArray = check_array(
            column,
            dtype=np.float64,
            ensure_2d=False,
            ensure_all_finite=False,
            ensure_min_samples=0,
            input_name="y",
        )
        return numbers
    except (TypeError, ValueError):
        texts = [value for value in column.tolist() if isinstance(value, str)]
        if not texts:
            raise  # scikit-learn's own error says what is wrong
        raise ValueError(
            f"y holds text ({texts[0]!r}), and a regressor needs numbers. For classes, use "
            f"DecoupledClassifier."
        ) from None


# ------------------------------------------------------------------------------------------- labels


def check_one_kind(y: AnyArray) -> None:
    """Refuse labels that are partly text and partly numbers.

    They cannot be sorted, and where NumPy joins them, 1 and "1" become one label.
    """
    if y.dtype.kind != "O":
        return
    labels = y.ravel().tolist()
    texts = [label for label in labels if isinstance(label, (str, bytes))]
    numbers = [label for label in labels if isinstance(label, (int, float, np.number, np.bool_))]
    if texts and numbers:
        raise ValueError(
            f"y holds text ({texts[0]!r}) and numbers ({numbers[0]!r}) as labels: give all labels "
            f"one type, in fit and afterwards, by astype(str) say."
        )


def check_label_kinds(labels: Mapping[str, AnyArray]) -> None:
    """Refuse labels that are text in one source and numbers in another.

    NumPy would turn the numbers into text when it joins them, and "1" would be another class than
    1. `labels` has the labels of each source, by its name in the message, such as "the tune rows".
    """
    kind_by_source = {}
    for source, values in labels.items():
        if len(values) > 0:
            is_text = isinstance(values[0], (str, bytes))
            kind_by_source[source] = "text" if is_text else "numbers"
    if len(set(kind_by_source.values())) <= 1:
        return

    descriptions = []
    for source, kind in kind_by_source.items():
        examples = _list_labels(labels[source].tolist())
        descriptions.append(f"those of {source} are {kind} ({examples})")
    raise ValueError(
        f"Labels must be of one kind in all roles and models, but {'; '.join(descriptions)}. Spell "
        f"them in one way."
    )


def note_unknown_labels(labels: AnyArray, classes: AnyArray) -> list[Note]:
    """Warn of new rows whose label is not among the classes of the fit, so that no set can hold it.

    Return a list with one note, or an empty list if all labels are classes. It is an error if none
    is. `labels` are those of the new rows, one per row.
    """
    n_rows_by_label = Counter(labels.tolist())
    known_labels = set(classes.tolist())
    unknown_labels = [label for label in n_rows_by_label if label not in known_labels]
    if not unknown_labels:
        return []
    if len(unknown_labels) == len(n_rows_by_label):
        raise ValueError(
            f"None of y's labels is among classes_: y holds {_list_labels(n_rows_by_label)}, the "
            f"classes are {_list_labels(classes.tolist())}. Spell labels as in fit, and give them "
            f"the same type."
        )

    unknown_labels.sort(key=n_rows_by_label.__getitem__, reverse=True)  # the most frequent first
    n_rows = sum(n_rows_by_label[label] for label in unknown_labels)
    have_labels = "has a label that is" if n_rows == 1 else "have labels that are"
    examples = first_few([f"{label!r}: {n_rows_by_label[label]}" for label in unknown_labels])
    text = (
        f"{n_rows} of {counted(len(labels), 'row')} {have_labels} not in classes_ ({examples}): "
        f"no set holds such a label, so these rows are misses."
    )
    return [Note("unknown-labels", text, "Are labels spelt as in fit?")]


def _list_labels(labels: Iterable[Any]) -> str:
    """List the first few labels, each once."""
    return first_few([repr(label) for label in dict.fromkeys(labels)])
