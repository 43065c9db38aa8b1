"""scikit-learn's interface to full conformal prediction with kernel ridge regression."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from dco import Evaluation, IntervalUnions, evaluate
from dco.foundations.arrays import Floats, as_float_targets
from dco.foundations.display import are, counted
from dco.foundations.notes import Note, show
from dco.foundations.ranks import Level, as_positive, as_rational, smallest_marginal_n
from dco.foundations.tables import check_table, is_frame
from dco.full_conformal.cells import column_kinds_of, prepare, read_cells
from dco.full_conformal.crossings import find_overlaps
from dco.full_conformal.kernels import Kernel, check_kernel, kernel_called
from dco.full_conformal.residuals import Residuals, compute_residuals

_MANY_ROWS = 1_000  # with more, a new row takes longer than a tenth of a second


class FullConformalRegressor(RegressorMixin, BaseEstimator):
    """Prediction sets from few rows: all of them train, and all of them calibrate.

    A value t is in the set of a new row if the row does not stand out with it: kernel ridge
    regression is fitted to the n rows of the fit and the new row with target t, and the
    leave-one-out residual of the new row must be among the smallest ceil((1 - alpha)(n + 1)) of all
    n + 1. Residuals are linear in t, so the set is found exactly, from the points where they cross
    (Nouretdinov, Melluish and Vovk 2001; Burnaev and Vovk 2014).

    The guarantee is marginal: the set holds the target of a new row with probability at least
    1 - alpha, over the rows of the fit and the new row, if they are exchangeable. Columns are
    scaled, gaps filled and the kernel's width chosen from all n + 1 rows alike; nothing else is
    learnt, so `kernel` and `noise` must not be chosen by results on the rows of the fit.

    A new row takes the inverse of a matrix of n + 1 rows: this is for tens or hundreds of rows.

    Parameters
    ----------
    kernel : "smooth", "linear" or function, default="smooth"
        What the regression can learn. "smooth": a line plus a smooth curve (a Gaussian kernel whose
        width follows from X); "linear": ridge regression; or a function of all n + 1 prepared rows
        that returns their kernel matrix and treats them alike, such as a kernel of
        ``sklearn.gaussian_process.kernels``.
    noise : float, default=0.3
        The variance of the noise in units of the kernel; more is a smoother regression. The scale
        of y does not matter.
    alpha : float, default=0.1
        The share of new rows that sets may miss: the level is 1 - alpha.

    Attributes
    ----------
    guarantee_ : str
        "marginal".
    notes_ : list of Note
        What ``fit`` found, each with what to try.
    n_rows_ : int
        The number of rows that train and calibrate.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> est = FullConformalRegressor(alpha=0.2).fit(X, np.sin(6 * X[:, 0]))
    >>> est.predict_set([[0.5]]).contains([0.14]).tolist()
    [True]
    """

    def __init__(
        self, kernel: str | Kernel = "smooth", *, noise: float = 0.3, alpha: Level = 0.1
    ) -> None:
        self.kernel = kernel
        self.noise = noise
        self.alpha = alpha

    def fit(self, X: Any, y: Any) -> Self:
        """Keep the rows, which train and calibrate when a new row comes.

        Frames may have categories and gaps: columns of texts and truth values are categories.
        """
        alpha = as_rational(self.alpha)
        as_positive(self.noise, name="noise")
        kernel = kernel_called(self.kernel)
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y "
                f"is None."
            )

        table = self._check_features(X, reset=True)
        targets = check_array(column_or_1d(y, warn=True), ensure_2d=False, input_name="y")
        targets = as_float_targets(targets, table.shape[0])
        column_kinds = column_kinds_of(table)
        cells = read_cells(table, column_kinds)
        check_kernel(kernel, prepare(cells))

        notes = [*_note_too_few_rows(len(cells), [alpha]), *_note_many_rows(len(cells))]
        show(notes)
        self.column_kinds_ = column_kinds
        self.cells_ = cells
        self.targets_ = targets
        self.notes_ = notes
        self.guarantee_ = "marginal"
        self.n_rows_ = len(cells)
        return self

    def predict(self, X: Any) -> Floats:
        """Predict each row by the regression on all rows of the fit; sets lie around it."""
        return np.array([residuals.centre for residuals in self._residuals_of(X)])

    def predict_set(self, X: Any, alpha: Any = None) -> Any:
        """Make the prediction set of each row: mostly one interval, sometimes several.

        A set reaches to infinity if alpha (n + 1) < 1, or if floor(alpha (n + 1)) rows of the fit
        lie so far from the others that their residuals grow faster with t than that of the new
        row. A warning counts such sets.

        Parameters
        ----------
        X
            New rows, with the columns of ``fit``.
        alpha
            Another level than that of the fit, or a list of levels, which gives a list with the
            sets at each level.
        """
        check_is_fitted(self, "targets_")
        levels = alpha if _is_list(alpha) else [self.alpha if alpha is None else alpha]
        if alpha is not None:
            show(_note_too_few_rows(self.n_rows_, levels))

        overlaps = [find_overlaps(residuals) for residuals in self._residuals_of(X)]
        all_sets = [
            _to_unions([overlaps_of_row.find_set(level) for overlaps_of_row in overlaps])
            for level in levels
        ]
        show(_note_unbounded(all_sets, levels, n_rows=self.n_rows_))
        return all_sets if _is_list(alpha) else all_sets[0]

    def predict_p(self, X: Any, y: Any) -> Floats:
        """Compute the conformal p-value of each given y, (n,).

        It is the share of the n + 1 rows whose residual is at least as large as that of the new
        row; p > alpha iff y is in the row's set.
        """
        overlaps = [find_overlaps(residuals) for residuals in self._residuals_of(X)]
        values = as_float_targets(y, len(overlaps))
        return np.array(
            [
                overlaps_of_row.p_value(value)
                for overlaps_of_row, value in zip(overlaps, values, strict=True)
            ]
        )

    def evaluate(self, X: Any, y: Any, *, alpha: Level | None = None, by: Any = None) -> Evaluation:
        """Evaluate the sets on rows with known targets that were not in the fit.

        The guarantee is an average over fits, and the coverage of one fit has no known law: results
        have intervals and slices (`by` holds one value for each row), and no verdict.
        """
        level = self.alpha if alpha is None else alpha
        sets = self.predict_set(X, alpha)
        return evaluate(sets, y, by=by, centres=self.predict(X), alpha=level)

    def in_words(self) -> str:
        """Say what is guaranteed, from how many rows, and what is not."""
        check_is_fitted(self, "targets_")
        level = f"{100 * float(1 - as_rational(self.alpha)):g} %"
        kernel = self.kernel if isinstance(self.kernel, str) else "your own"
        return (
            f"The set of a new row holds its target with probability at least {level}, if the row "
            f"is exchangeable with the {self.n_rows_} rows of the fit (marginal).\n"
            f"All {self.n_rows_} rows train and calibrate: full conformal prediction with kernel "
            f"ridge regression (kernel: {kernel}, noise: {float(self.noise):g}).\n"
            f"The probability is an average over fits: how far the coverage of this one may lie "
            f"from it is not known."
        )

    def _residuals_of(self, X: Any) -> Iterator[Residuals]:
        """Compute the residuals of the rows of the fit, for each new row as functions of its y."""
        check_is_fitted(self, "targets_")
        new_cells = read_cells(self._check_features(X, reset=False), self.column_kinds_)
        kernel = kernel_called(self.kernel)
        for row in range(len(new_cells)):
            all_rows = prepare(self.cells_.with_row(new_cells, row))
            kernel_matrix = np.asarray(kernel(all_rows), dtype=np.float64)
            yield compute_residuals(kernel_matrix, self.targets_, noise=float(self.noise))

    def _check_features(self, X: Any, *, reset: bool) -> Any:
        """Check a table of features as scikit-learn's estimators do, and return it.

        With `reset` (in ``fit``) the number and names of its columns are stored; otherwise they
        must equal the stored ones.
        """
        check_table(X)
        if not is_frame(X):
            cells = np.asarray(X)
            has_text = cells.dtype.kind in "OUS" and any(isinstance(c, str) for c in cells.flat)
            return validate_data(
                self,
                cells.astype(object) if has_text else X,
                reset=reset,
                dtype=None if has_text else "numeric",
                ensure_all_finite="allow-nan",
                ensure_min_samples=2 if reset else 1,
            )

        validate_data(self, X, skip_check_array=True, reset=reset)
        n_needed = 2 if reset else 1
        if X.shape[0] < n_needed:
            raise ValueError(
                f"X has {counted(X.shape[0], 'row')}; at least {n_needed} {are(n_needed)} needed."
            )
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _is_list(alpha: Any) -> bool:
    """Return whether several levels are asked for."""
    return alpha is not None and np.ndim(alpha) > 0


def _to_unions(sets: list[Floats]) -> IntervalUnions:
    """Make one record of the sets of all rows, each given as its intervals (p, 2)."""
    row_pointers = np.cumsum([0, *(len(pieces) for pieces in sets)])
    ends = np.concatenate(sets)
    return IntervalUnions(row_pointers, lower=ends[:, 0], upper=ends[:, 1])


def _note_too_few_rows(n_rows: int, levels: Any) -> list[Note]:
    """Note that the strictest level gives the whole line, and how many rows would give less."""
    strictest = min(as_rational(level) for level in levels)
    n_needed = smallest_marginal_n(alpha=strictest)
    if n_rows >= n_needed:
        return []
    text = (
        f"{counted(n_rows, 'row')} {are(n_rows)} too few for sets at alpha = "
        f"{float(strictest):g}: every set is the whole line (valid, but useless)."
    )
    remedy = f"At least {counted(n_needed, 'row')} {are(n_needed)} needed."
    return [Note("infeasible", text, remedy)]


def _note_many_rows(n_rows: int) -> list[Note]:
    """Note that new rows take long, since each takes the inverse of a matrix of all rows."""
    if n_rows <= _MANY_ROWS:
        return []
    text = (
        f"each new row takes the inverse of a matrix of {n_rows + 1} rows, and {n_rows} rows are "
        f"enough to set some aside."
    )
    return [Note("many-rows", text, "Take dco.DecoupledRegressor.")]


def _note_unbounded(all_sets: list[IntervalUnions], levels: Any, *, n_rows: int) -> list[Note]:
    """Note sets that reach to infinity although the level allows finite ones."""
    is_unbounded = np.zeros(len(all_sets[0]), dtype=bool)
    for sets, level in zip(all_sets, levels, strict=True):
        if n_rows >= smallest_marginal_n(alpha=level):
            is_unbounded |= sets.is_infinite()
    if not is_unbounded.any():
        return []

    text = (
        f"{int(is_unbounded.sum())} of {counted(len(is_unbounded), 'set')} reach to infinity: rows "
        f"of the fit lie so far from the others that any target leaves them the strangest."
    )
    remedy = "Take the logarithm of skewed columns, or more noise= for a less flexible regression."
    return [Note("unbounded-sets", text, remedy)]
