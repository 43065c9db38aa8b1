"""Rows without labels: what has changed in their features and sets. Hints, and no test of any
promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse

from dco.foundations.display import ShownAsPrinted, counted
from dco.rows.fingerprints import as_table, codes_of_values, column_of, plain_column
from dco.rows.rows import is_frame, n_rows

if TYPE_CHECKING:
    from dco.estimators import Decoupled

_FEWEST = 5  # rows of a value that are expected in either table; rarer values are taken together


@dataclass(frozen=True)
class ShiftHints(ShownAsPrinted):
    """What differs between two tables: p-values by name, "set size" among them, smallest first,
    times their number.

    A small one says that rows are not drawn as before, if they are independent. Coverage may be as
    it was, and it may have changed where nothing is seen here: only labelled rows tell.
    """

    rows: tuple[int, int]
    p_values: dict[str, float]

    def __str__(self) -> str:
        before, after = (counted(n, "row") for n in self.rows)
        changed = [f"{name} (p = {p:.2g})" for name, p in self.p_values.items() if p <= 0.05]
        found = (
            f"these differ: {', '.join(changed)}"
            if changed
            else "nothing differs more than by chance"
        )
        return (
            f"Hints from {after} without labels against {before}: {found}, of "
            f"{len(self.p_values)} that were compared. "
            "This is no test of the promise: coverage is known from labelled rows only."
        )


def shift_hints(est: Decoupled, X_before: Any, X_after: Any) -> ShiftHints:
    """Compare rows without labels with earlier ones (those of the fit, say): each feature, and the
    sizes of their sets.

    Numbers by Kolmogorov and Smirnov's test, other values by a chi-squared test; each p-value is
    multiplied by the number of comparisons, so that rows drawn as before show any difference with
    probability at most 5 %.
    """
    tables = [as_table(X, "X") for X in (X_before, X_after)]
    names = list(X_before.columns) if is_frame(X_before) else range(tables[0].shape[1])
    # of a sparse table only the sets are compared
    names = [] if any(map(issparse, tables)) else names
    found = {
        str(name): _differs(*(column_of(table, place) for table in tables))
        for place, name in enumerate(names)
    }
    found["set size"] = _differs(
        *(np.asarray(est.predict_set(X).sizes(), dtype=np.float64) for X in (X_before, X_after))
    )
    corrected = {
        name: min(1.0, len(found) * p)
        for name, p in sorted(found.items(), key=lambda entry: entry[1])
    }
    return ShiftHints((n_rows(X_before), n_rows(X_after)), corrected)


def _differs(*columns: Any) -> float:
    """The p-value of one column; a gap counts as a number below all others, or as a value of its
    own.
    """
    from scipy.stats import chi2_contingency, ks_2samp

    before, after = (
        column if isinstance(column, np.ndarray) else plain_column(column) for column in columns
    )
    if before.dtype.kind in "biufmM" and after.dtype.kind in "biufmM":
        first, second = (
            np.nan_to_num(column.astype(np.float64), nan=-np.inf, posinf=np.inf)
            for column in (before, after)
        )
        return float(ks_2samp(first, second, method="asymp").pvalue)
    codes, count = codes_of_values(np.concatenate([before, after]), missing=True)
    table = np.array(
        [np.bincount(part, minlength=count) for part in np.split(codes, [len(before)])]
    )
    rare = table.sum(axis=0) * table.sum(axis=1).min() < _FEWEST * table.sum()
    table = np.column_stack([table[:, ~rare], table[:, rare].sum(axis=1)])
    table = table[:, table.sum(axis=0) > 0]
    return float(chi2_contingency(table).pvalue) if table.shape[1] > 1 else 1.0
