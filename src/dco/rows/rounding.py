"""How far scores of the same rows may differ by rounding alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray, Bools, Floats, Integers
from dco.rows.rows import take_features


def batch_rounding(
    scores_of: Callable[[Any, AnyArray], Floats], X: Any, y: AnyArray, scores: Floats, *, n: int = 32
) -> float:
    """Four times the largest difference between a row's score alone and among the others, over n of the rows.

    A matrix product of one row may round otherwise than one of many. A larger jump is none of that (two labels that change
    places, in a score of ranks) and does not count.
    """
    some = np.unique(np.linspace(0, len(y) - 1, min(n, len(y))).astype(np.int64))
    alone = np.asarray([scores_of(some_rows(X, row), y[row])[0] for row in some[:, None]])
    together = scores[some]
    near = same_but_for_rounding(alone, together) & np.isfinite(together)
    return 4 * float(np.abs(alone[near] - together[near]).max(initial=0.0))


def same_but_for_rounding(again: Floats, scores: Floats) -> Bools:
    """Where scores differ by no more than batches of another size may round differently.

    A small residual is the difference of large numbers and keeps their rounding (seven digits, in single precision), so
    what counts is the size that scores usually have.
    """
    return np.isclose(again, scores, rtol=1e-5, atol=1e-8 + 1e-4 * usual_size(scores), equal_nan=True)


def usual_size(scores: Floats) -> float:
    """The median of the finite scores without their sign; 0 where there is none."""
    finite = np.abs(scores[np.isfinite(scores)])
    return float(np.quantile(finite, 0.5, method="lower")) if finite.size else 0.0


def some_rows(X: Any, rows: Integers) -> Any:
    """Some rows of features, be they an array, a frame or a list."""
    return take_features(X, rows) if hasattr(X, "shape") else [X[row] for row in rows]
