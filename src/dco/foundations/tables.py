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
    """Refuse tables of Arrow, lazy ones of polars and those of Dask, and say what to pass instead.

    Their rows cannot be taken by position.
    """
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
    """Tell whether X is a frame with named columns, as those of pandas and polars."""
    return hasattr(X, "columns") and hasattr(X, "shape") and not isinstance(X, np.ndarray)


def n_rows(X: Any) -> int:
    """Count the rows of X."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


# ------------------------------------------------------------------------------- cut and join rows


def take_features(X: Any, rows: Integers | slice) -> Any:
    """Return some rows of X, by position, as a table of the same type.

    A slice shares memory with X for most types; positions make a copy.
    """
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if isinstance(rows, slice):
        return _slice_sparse(X, rows) if _is_canonical_csr(X) else X[rows]
    if isinstance(X, np.ndarray):
        return X.take(rows, axis=0)  # the same as X[rows], but three times as fast
    if hasattr(X, "shape"):
        return X[rows]
    return [X[row] for row in rows]  # a list


def _is_canonical_csr(X: Any) -> bool:
    """Tell whether X is a CSR matrix whose rows hold each column at most once, in order."""
    return isinstance(X, csr_array | csr_matrix) and bool(X.has_canonical_format)


def _slice_sparse(X: Any, rows: slice) -> Any:
    """Return consecutive rows of a CSR matrix as a matrix that shares its memory.

    SciPy's X[rows] would copy. A CSR matrix stores its cells row after row in `data`, with their
    columns in `indices`; the cells of row i go from indptr[i] to indptr[i + 1].
    """
    start, stop, _ = rows.indices(X.shape[0])
    pointers = X.indptr[start : stop + 1]
    first_cell = pointers[0]
    cells = slice(first_cell, pointers[-1])
    return type(X)(
        (X.data[cells], X.indices[cells], pointers - first_cell),
        shape=(stop - start, X.shape[1]),
        copy=False,
    )


def stack_features(above: Any, below: Any) -> Any:
    """Join two tables of the same type, the rows of `below` after those of `above`.

    Tables of different types, one with training rows and one with tuning rows, are refused.
    """
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

    A column of categories that differ in the two frames gets the categories of both, since pandas
    alone would turn it into plain text. Ordered categories are left to pandas: two orders cannot be
    joined.
    """
    pandas = require("pandas", extra="tables")
    joined_types = {}
    for name, dtype_above in above.dtypes.items():
        dtype_below = below.dtypes[name]
        if dtype_above == dtype_below:
            continue
        if _is_unordered_category(dtype_above) and _is_unordered_category(dtype_below):
            categories = dtype_above.categories.union(dtype_below.categories)
            joined_types[name] = pandas.CategoricalDtype(categories)

    if joined_types:
        above = above.astype(joined_types)
        below = below.astype(joined_types)
    return pandas.concat([above, below])


def _is_unordered_category(dtype: Any) -> bool:
    """Tell whether a dtype of pandas is that of categories without an order."""
    pandas = require("pandas", extra="tables")
    return isinstance(dtype, pandas.CategoricalDtype) and not dtype.ordered


# --------------------------------------------------------------------------------------------- gaps


def is_missing(value: Any) -> bool:
    """Tell whether a value is NaN, None, NaT or pandas.NA."""
    try:
        return value is None or bool(value != value)  # NaN and NaT do not equal themselves
    except TypeError:  # pandas.NA refuses to be compared
        return True


def missing_cells(X: Any) -> Integers:
    """Count the missing cells of each column of X, (n_columns,): NaN, None, or a frame's nulls."""
    if hasattr(X, "isna"):
        return np.asarray(X.isna().sum(), dtype=np.int64)
    if hasattr(X, "null_count"):
        return _missing_cells_of_polars(X)
    if issparse(X):
        table: Any = X
        matrix = table.tocsr()
        columns_with_nan = matrix.indices[np.isnan(matrix.data)]
        return np.bincount(columns_with_nan, minlength=matrix.shape[1])

    cells = np.asarray(X)
    if not _may_have_gaps(cells):
        return np.zeros(cells.shape[1], dtype=np.int64)
    return np.asarray(_mark_gaps(cells).sum(axis=0, dtype=np.int64))


def _missing_cells_of_polars(X: Any) -> Integers:
    """Count the missing cells of each column of a polars frame: nulls, and NaN among floats."""
    n_nulls = np.asarray(X.null_count().row(0), dtype=np.int64)
    n_nan = np.zeros(len(n_nulls), dtype=np.int64)
    for position, column in enumerate(X.get_columns()):
        if column.dtype.is_float():
            n_nan[position] = column.is_nan().sum() or 0  # None for a column of nulls only
    return n_nulls + n_nan


def _may_have_gaps(cells: AnyArray) -> bool:
    """Return False if surely no cell of an array is missing, which is usual and quick to see.

    The sum of floats is NaN if one of them is, and takes a quarter of the time of a mask. Objects
    always may be missing.
    """
    if cells.dtype.kind != "f":
        return cells.dtype.kind == "O"
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isnan(cells.sum()))


def _mark_gaps(cells: AnyArray) -> Bools:
    """Mark the missing cells of an array of floats or objects."""
    if cells.dtype.kind == "f":
        return np.isnan(cells)
    return np.asarray(np.frompyfunc(is_missing, 1, 1)(cells), dtype=bool)
