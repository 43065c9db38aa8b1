"""Tables of features as their owners bring them (arrays, sparse matrices, frames of pandas and
polars): count, cut and join their rows, and count their gaps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix, issparse, vstack

from dco.foundations.arrays import AnyArray, Bools, Integers
from dco.foundations.extras import require

__all__ = [
    "MISSING",
    "check_table",
    "is_frame",
    "is_missing",
    "missing_cells",
    "n_rows",
    "stack_features",
    "take_features",
]

MISSING = "(missing)"  # stands for a missing value where values name groups of rows


def check_table(X: Any) -> None:
    """Refuse tables that cannot be cut by rows, and name what they can be turned into."""
    type_name = type(X).__name__
    if type(X).__module__.startswith("pyarrow"):
        raise ValueError(
            f"X is a {type_name} of Arrow, which models cannot read: pass X.to_pandas() "
            f"or polars.from_arrow(X)."
        )
    if hasattr(X, "collect_schema") and not hasattr(X, "shape"):
        raise ValueError(f"X is a {type_name}, whose rows are not there yet: pass X.collect().")
    if hasattr(X, "columns") and hasattr(X, "compute"):
        raise ValueError(
            f"X is a {type_name} of Dask, whose rows are not there yet: pass X.compute()."
        )


def is_frame(X: Any) -> bool:
    """Return whether X has named columns and rows to cut, as frames of pandas and polars do."""
    return hasattr(X, "columns") and hasattr(X, "shape") and not isinstance(X, np.ndarray)


def n_rows(X: Any) -> int:
    """Count the rows of X."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


# ------------------------------------------------------------------------------- cut and join rows


def take_features(X: Any, rows: Integers | slice) -> Any:
    """Return some rows of X as a table of the same type. A slice of most types is not copied."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if isinstance(rows, slice):
        return _slice_sparse(X, rows) if _is_canonical_csr(X) else X[rows]
    if isinstance(X, np.ndarray):
        return X.take(rows, axis=0)  # three times as fast as X[rows]
    if hasattr(X, "shape"):
        return X[rows]
    return [X[row] for row in rows]


def _is_canonical_csr(X: Any) -> bool:
    """Return whether X is a CSR matrix whose rows hold each column once, in order."""
    return isinstance(X, csr_array | csr_matrix) and bool(X.has_canonical_format)


def _slice_sparse(X: Any, rows: slice) -> Any:
    """Return consecutive rows of a CSR matrix that share its memory, which SciPy would copy."""
    start, stop, _ = rows.indices(X.shape[0])
    ends = X.indptr[start : stop + 1]
    cells = slice(ends[0], ends[-1])
    return type(X)(
        (X.data[cells], X.indices[cells], ends - ends[0]),
        shape=(stop - start, X.shape[1]),
        copy=False,
    )


def stack_features(above: Any, below: Any) -> Any:
    """Join two tables of features, one below the other."""
    try:
        if hasattr(above, "iloc"):
            return _stack_pandas(above, below)
        if hasattr(above, "vstack"):  # polars
            return above.vstack(below)
        if issparse(above):
            tables: list[Any] = [above, below]
            return vstack(tables, format="csr")
        return np.concatenate([above, below])
    except (AttributeError, TypeError, ValueError) as error:
        if type(above) is type(below):
            raise
        raise ValueError(
            f"train rows are a {type(above).__name__} and tune rows a {type(below).__name__}: to "
            f"refit on both, give them as one kind of table, or set refit=False."
        ) from error


def _stack_pandas(above: Any, below: Any) -> Any:
    """Join two frames of pandas.

    Columns of unordered categories get the categories of both, since pandas would turn them into
    plain text.
    """
    pandas = require("pandas", extra="tables")
    joined_types = {}
    for name, upper in above.dtypes.items():
        lower = below.dtypes[name]
        if _are_unordered_categories(upper, lower, pandas) and upper != lower:
            categories = upper.categories.union(lower.categories)
            joined_types[name] = pandas.CategoricalDtype(categories)

    if joined_types:
        above = above.astype(joined_types)
        below = below.astype(joined_types)
    return pandas.concat([above, below])


def _are_unordered_categories(upper: Any, lower: Any, pandas: Any) -> bool:
    """Return whether both columns hold categories without an order; two orders cannot be joined."""
    return all(
        isinstance(dtype, pandas.CategoricalDtype) and not dtype.ordered for dtype in (upper, lower)
    )


# --------------------------------------------------------------------------------------------- gaps


def is_missing(value: Any) -> bool:
    """Return whether a value is NaN, None, NaT or pandas.NA."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA refuses to be compared
        return True


def missing_cells(X: Any) -> Integers:
    """Count the missing cells of each column of X: NaN, None, or what a frame calls so."""
    if hasattr(X, "isna"):
        return np.asarray(X.isna().sum(), dtype=np.int64)
    if hasattr(X, "null_count"):
        return _missing_cells_of_polars(X)
    if issparse(X):
        table: Any = X
        matrix = table.tocsr()
        columns = matrix.indices[np.isnan(matrix.data)]
        return np.bincount(columns, minlength=matrix.shape[1])

    cells = np.asarray(X)
    if not _may_have_gaps(cells):
        return np.zeros(cells.shape[1], dtype=np.int64)
    return np.asarray(_mark_gaps(cells).sum(axis=0, dtype=np.int64))


def _missing_cells_of_polars(X: Any) -> Integers:
    """Count nulls and NaN, which polars tells apart."""
    nulls = np.asarray(X.null_count().row(0), dtype=np.int64)
    nans = [
        int(column.is_nan().sum() or 0) if column.dtype.is_float() else 0
        for column in X.get_columns()
    ]
    return nulls + np.asarray(nans, dtype=np.int64)


def _may_have_gaps(cells: AnyArray) -> bool:
    """Return False where one look shows that no cell is missing, as is usual.

    The sum of an array shows whether it holds a NaN, in a quarter of the time of a mask.
    """
    if cells.dtype.kind != "f":
        return cells.dtype.kind == "O"
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isnan(cells.sum()))


def _mark_gaps(cells: AnyArray) -> Bools:
    """Mark the cells that are missing."""
    if cells.dtype.kind == "f":
        return np.isnan(cells)
    return np.asarray(np.frompyfunc(is_missing, 1, 1)(cells), dtype=bool)
