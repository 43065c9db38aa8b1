"""Scorers for scikit-learn's `cross_validate` and friends: ``scorer(estimator, X, y)``, larger is
better.

They measure. A search that chooses by them has seen every row it was given, the calibration rows
included, and what it chooses has no guarantee: search inside the estimator (`dco.grid`,
``search=``) instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def mean_size(estimator: Any, X: Any, y: Any = None) -> float:
    """Minus the mean size of the prediction sets, since scikit-learn takes the largest."""
    return -float(np.mean(estimator.predict_set(X).sizes()))


def coverage(estimator: Any, X: Any, y: Any) -> float:
    """The share of rows whose set holds the true value."""
    from sklearn.utils.validation import column_or_1d  # slow to import

    return float(np.mean(estimator.predict_set(X).contains(column_or_1d(y))))
