"""Columns of any frame as arrays that every encoder and tree of scikit-learn takes, with NaN for
what is missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from dco.foundations.arrays import AnyArray


class PlainColumns(TransformerMixin, BaseEstimator):
    """Turn columns of pandas or polars into numbers (float64) or objects, with NaN for gaps.

    pandas.NA, which encoders refuse, None and NaT become NaN.
    """

    def __init__(self, numbers: bool = False) -> None:
        self.numbers = numbers

    def fit(self, X: Any, y: Any = None) -> PlainColumns:
        """Remember the number of columns; there is nothing to learn."""
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: Any) -> AnyArray:
        """Return the columns side by side."""
        if not hasattr(X, "columns"):
            return np.asarray(X, dtype=np.float64) if self.numbers else X
        to_array = number_column if self.numbers else object_column
        return np.column_stack([to_array(X[name]) for name in X.columns])


def number_column(column: Any) -> AnyArray:
    """Return a column of a frame as float64."""
    if hasattr(column, "isna"):  # pandas
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(column.to_numpy(), dtype=np.float64)


def object_column(column: Any) -> AnyArray:
    """Return a column of a frame as Python objects."""
    if hasattr(column, "isna"):  # pandas
        cells = column
        is_missing = column.isna()
    else:
        cells = column.to_list()
        is_missing = column.is_null()
    objects = np.fromiter(cells, dtype=object, count=len(column))
    objects[np.asarray(is_missing, dtype=bool)] = np.nan
    return objects
