"""Leave-one-out residuals of kernel ridge regression as linear functions of one unknown target.

Given are n rows with their targets and one more row, whose target t is not known. A matrix P of the
n + 1 rows, which does not depend on the targets, gives the residual of each row under the
regression on the n others:

    e_i(t) = sum_j P_ij y_j / P_ii,   y_{n+1} = t

With the kernel matrix K, A = K + noise * I, and an intercept that is not penalised,

    P = A^-1 - A^-1 1 1' A^-1 / (1' A^-1 1)

Let c be the prediction of the new row from the n others: e_{n+1}(t) = t - c. The residuals of the
others are written around it, e_i(t) = e_i(c) + b_i (t - c).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dco.foundations.arrays import Floats


@dataclass(frozen=True, eq=False)
class Residuals:
    """The residuals of n rows for one new row, as functions of its target t.

    Row i has residual ``at_centre[i] + slopes[i] * (t - centre)``, the new row ``t - centre``.
    """

    centre: float
    at_centre: Floats
    slopes: Floats


def compute_residuals(kernel_matrix: Floats, y: Floats, *, noise: float) -> Residuals:
    """Compute the residuals of n rows with targets `y`, of which the last row of the matrix is new.

    `kernel_matrix` is (n + 1, n + 1); `noise` is the variance of the noise in units of the kernel.
    """
    n = len(y)
    projection = _residual_matrix(kernel_matrix, noise)
    diagonal = np.diag(projection)

    # A constant that is added to y and t changes no residual. Small numbers lose fewer digits.
    shift = float(np.mean(y))
    centred = y - shift
    centre = -float(projection[n, :n] @ centred) / diagonal[n]

    targets = np.append(centred, centre)
    return Residuals(
        centre=shift + centre,
        at_centre=projection[:n] @ targets / diagonal[:n],
        slopes=projection[:n, n] / diagonal[:n],
    )


def _residual_matrix(kernel_matrix: Floats, noise: float) -> Floats:
    """Compute the matrix P that turns targets into residuals, up to the factor P_ii of each row."""
    inverse = np.linalg.inv(kernel_matrix + noise * np.eye(len(kernel_matrix)))
    inverse = (inverse + inverse.T) / 2
    row_sums = inverse.sum(axis=1)
    return np.asarray(inverse - np.outer(row_sums, row_sums) / row_sums.sum())
