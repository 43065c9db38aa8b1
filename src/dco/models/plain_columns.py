"""Columns of any frame as arrays that every encoder and tree of scikit-learn takes, with NaN for
what is missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from dco.foundations.arrays import AnyArray


class PlainColumns(TransformerMixin, BaseEstimator):
    """Numbers as float64, anything else as objects; pandas.NA (which encoders refuse), None and NaT
    become NaN.
    """

    def __init__(self, numbers: bool = False) -> None:
        self.numbers = numbers

    def fit(self, X: Any, y: Any = None) -> PlainColumns:
        """There is nothing to learn."""
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: Any) -> AnyArray:
        """The columns side by side."""
        if not hasattr(X, "columns"):
            return np.asarray(X, dtype=np.float64) if self.numbers else X
        return np.column_stack([self._plain(X[name]) for name in X.columns])

    def _plain(self, column: Any) -> AnyArray:
        pandas = hasattr(column, "isna")
        if self.numbers:
            values = (
                column.to_numpy(dtype=np.float64, na_value=np.nan) if pandas else column.to_numpy()
            )
            return np.asarray(values, dtype=np.float64)
        texts = np.fromiter(column if pandas else column.to_list(), dtype=object, count=len(column))
        texts[np.asarray(column.isna() if pandas else column.is_null(), dtype=bool)] = np.nan
        return texts
