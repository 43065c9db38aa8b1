"""Targets as callers bring them: one column of labels or numbers, none of them missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray
from dco.foundations.display import counted, first_few
from dco.foundations.notes import Note
from dco.rows.rows import is_missing


def check_not_missing(y: ArrayLike, why: str) -> None:
    """Refuse targets that are NaN, None, NaT or pandas.NA, naming the first row."""
    array = np.asarray(y, dtype=object if isinstance(y, (list, tuple)) else None)  # else NaN among text would be "nan"
    if array.dtype.kind == "O":
        rows = np.flatnonzero([is_missing(value) for value in array.ravel().tolist()])
    elif array.dtype.kind in "fcmM":
        rows = np.flatnonzero(array != array)
    else:
        return
    if rows.size:
        count = f" ({rows.size} rows in all)" if rows.size > 1 else ""
        raise ValueError(f"y is missing in row {rows[0]}{count}: {why}")


def one_column(y: Any, *, warn: bool = False) -> AnyArray:
    """y as one target per row."""
    from sklearn.utils.validation import column_or_1d  # slow to import

    try:
        column: AnyArray = column_or_1d(y, warn=warn)
    except ValueError:
        if np.ndim(y) != 2:
            raise
        raise ValueError(
            f"y has {np.shape(y)[1]} columns, and an estimator has one target: fit one estimator for each column, "
            "or control a risk of several tags with dco.losses."
        ) from None
    return column


def check_one_kind(y: Any) -> None:
    """Refuse text and numbers in one y: they cannot be sorted, and NumPy makes 1 and "1" one label where it joins them."""
    if getattr(getattr(y, "dtype", None), "kind", "O") != "O":
        return
    labels = np.asarray(y, dtype=object).ravel().tolist()
    text = next((label for label in labels if isinstance(label, (str, bytes))), None)
    number = next((label for label in labels if isinstance(label, (int, float, np.number, np.bool_))), None)
    if text is not None and number is not None:
        raise ValueError(
            f"y holds text ({text!r}) and numbers ({number!r}) as labels: give all labels one type, in fit and afterwards, "
            "by astype(str) say."
        )


def check_label_kinds(labels: Mapping[str, AnyArray]) -> None:
    """Refuse text in one place and numbers in another: joined, numbers would become texts, and classes of their own."""
    kinds = {place: "text" if isinstance(own[0], (str, bytes)) else "numbers" for place, own in labels.items() if len(own)}
    if len(set(kinds.values())) > 1:
        found = "; ".join(
            f"those of {place} are {kind} ({_listed(dict.fromkeys(labels[place].tolist()))})"
            for place, kind in kinds.items()
        )
        raise ValueError(f"Labels must be of one kind in all roles and models, but {found}. Spell them in one way.")


def note_unknown_labels(labels: AnyArray, classes: AnyArray) -> list[Note]:
    """A note on labels that no set can hold; an error if there are no others."""
    counts, known = Counter(labels.tolist()), dict.fromkeys(classes.tolist())
    unknown = {label: count for label, count in counts.most_common() if label not in known}
    if counts and len(unknown) == len(counts):
        raise ValueError(
            f"None of y's labels is among classes_: y holds {_listed(counts)}, the classes are {_listed(known)}. "
            "Spell labels as in fit, and give them the same type."
        )
    if not unknown:
        return []
    n = sum(unknown.values())
    shown = first_few([f"{label!r}: {count}" for label, count in unknown.items()])
    text = (
        f"{n} of {counted(len(labels), 'row')} {'has a label that is' if n == 1 else 'have labels that are'} not in "
        f"classes_ ({shown}): no set holds such a label, so these rows are misses."
    )
    return [Note("unknown-labels", text, "Are labels spelt as in fit?")]


def _listed(labels: Iterable[Any]) -> str:
    return first_few([repr(label) for label in labels])
