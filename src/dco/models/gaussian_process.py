"""A Gaussian process whose cost does not grow with the table: the smooth default model."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel, Matern, WhiteKernel
from sklearn.utils.validation import check_is_fitted, validate_data

from dco.foundations.arrays import Floats

# Bounds of the kernel's parameters, for columns and targets of unit variance.
_LENGTH_SCALES = (0.1, 1e4)
_SIGNAL_VARIANCES = (1e-3, 1e3)
_NOISE_VARIANCES = (1e-6, 10.0)
_MOST_EVALUATIONS = 25  # of the marginal likelihood; more change predictions little
_ROWS_PREDICTED_AT_ONCE = 2_000  # so that the kernel matrix of new rows stays small


class SmallGaussianProcess(RegressorMixin, BaseEstimator):
    """Gaussian process regression on a random part of the rows, for columns of unit variance.

    The kernel is a Matérn kernel (smoothness 5/2) plus noise. Its parameters maximise the marginal
    likelihood of `kernel_rows` rows; the process is then conditioned on `most_rows` rows.

    Parameters
    ----------
    most_rows : int, default=1500
        How many rows the predictions rest on at most. Time grows with the cube of this number.
    kernel_rows : int, default=300
        How many of them the kernel's parameters are learnt from.
    most_length_scales : int, default=50
        Up to so many columns, each has a length scale of its own; with more, all share one.
    random_state : int or None
        Which rows are picked.

    Attributes
    ----------
    process_ : GaussianProcessRegressor
        The fitted process of the standardised target.
    """

    def __init__(
        self,
        most_rows: int = 1500,
        *,
        kernel_rows: int = 300,
        most_length_scales: int = 50,
        random_state: int | None = None,
    ) -> None:
        self.most_rows = most_rows
        self.kernel_rows = kernel_rows
        self.most_length_scales = most_length_scales
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> SmallGaussianProcess:
        """Learn the kernel from a few random rows, and condition the process on more of them."""
        # 1. Standardise the target.
        X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        self.mean_ = float(np.mean(y))
        self.scale_ = float(np.std(y)) or 1.0
        target = (y - self.mean_) / self.scale_

        # 2. Pick the rows. Time grows with the cube of their number.
        random_order = np.random.default_rng(self.random_state).permutation(len(y))
        rows = random_order[: self.most_rows]
        few_rows = random_order[: min(self.kernel_rows, self.most_rows)]

        # 3. Learn the kernel from the few, and keep it for the fit on the others.
        kernel = self._learn_kernel(X[few_rows], target[few_rows])
        process = GaussianProcessRegressor(kernel, optimizer=None)
        self.process_ = process.fit(X[rows], target[rows])
        return self

    def predict(self, X: Any) -> Floats:
        """Return the mean of the process at each row."""
        check_is_fitted(self, "process_")
        X = validate_data(self, X, reset=False, dtype=np.float64)
        blocks = range(0, len(X), _ROWS_PREDICTED_AT_ONCE)
        means = [
            self.process_.predict(X[start : start + _ROWS_PREDICTED_AT_ONCE]) for start in blocks
        ]
        return np.asarray(np.concatenate(means) * self.scale_ + self.mean_)

    def _learn_kernel(self, X: Floats, target: Floats) -> Kernel:
        """Return the kernel whose parameters maximise the marginal likelihood of these rows.

        It is signal * Matern(length scales) + noise, for columns and a target of unit variance. A
        column matters less the longer its length scale.
        """
        n_columns = X.shape[1]
        typical_distance = np.sqrt(n_columns)  # of two rows whose columns have unit variance
        length_scales = np.full(n_columns, typical_distance)
        if n_columns > self.most_length_scales:
            length_scales = typical_distance

        signal = ConstantKernel(1.0, _SIGNAL_VARIANCES) * Matern(
            length_scales, _LENGTH_SCALES, nu=2.5
        )
        noise = WhiteKernel(0.1, _NOISE_VARIANCES)
        process = GaussianProcessRegressor(signal + noise, optimizer=_minimise_briefly)
        with warnings.catch_warnings():
            # A parameter at its bound is an answer: a column that does not matter, or no noise.
            warnings.simplefilter("ignore")
            return process.fit(X, target).kernel_


def _minimise_briefly(negative_likelihood: Any, start: Floats, bounds: Any) -> tuple[Floats, float]:
    """Minimise with a bounded number of evaluations, as scikit-learn's `optimizer` asks for it."""
    from scipy.optimize import minimize

    result = minimize(
        negative_likelihood,
        start,
        jac=True,
        bounds=bounds,
        method="L-BFGS-B",
        options={"maxfun": _MOST_EVALUATIONS},
    )
    return result.x, float(result.fun)
