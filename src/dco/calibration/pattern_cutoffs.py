"""Cut-offs of conditional calibration: one linear program for each pattern of features.

With phi the pattern and f_i the features of the calibration rows, the cut-off is

    c = min phi'b  over the b that minimise  sum_i pinball(S_i - f_i'b) - (1 - alpha) phi'b.

Its dual asks for weights w_i in [-alpha, 1 - alpha] with sum_i w_i f_i = -(1 - alpha) phi and the
largest sum_i w_i S_i; b are the multipliers of these equations. Where several b minimise the sum,
the one of the smallest phi'b is that of a pull a little weaker than 1 - alpha.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from scipy.linalg import qr
from scipy.optimize import linprog

from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.scores.thresholds import LOWEST_SCORE

_ZERO = 1e-9  # features are scaled to at most 1: what is smaller is rounding
_TOLERANCE = 1e-10  # the smallest that HiGHS takes
_FAR = 2.0**20  # times the largest score: where infinite scores are put
_MOST_ROWS = 1_000  # of a program that is solved at once
_OPTIMAL = 0  # a status of linprog
_OPTIONS = {"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE}
_LARGEST_DENOMINATOR = 10**6  # of a level


def cutoffs_of_patterns(
    scores: Floats, features: Floats, new_features: Floats, *, alpha: Fraction
) -> Floats:
    """Return the cut-off of each row of `new_features`; equal rows are solved once."""
    patterns, pattern_of = distinct_rows(new_features)
    cutoffs = np.full(len(patterns), np.inf)

    # 1. Sort the rows, so that sums round alike in whatever order they came.
    scores = np.where(scores <= LOWEST_SCORE, 0.0, scores)
    order = np.lexsort((scores, *features.T))
    scores = scores[order]
    features = features[order]

    # 2. Scale each column to at most 1. Where all features are 0, no pattern has a cut-off.
    scale = np.abs(features).max(axis=0, initial=0.0)
    if not scale.any():
        return cutoffs[pattern_of]
    scale[scale == 0] = 1.0
    features = features / scale
    patterns = patterns / scale

    # 3. Solve for each pattern that calibration rows can say something about.
    columns, is_spanned = _reduce_columns(features, patterns)
    program = _Program(scores, features[:, columns], alpha)
    for number in np.flatnonzero(is_spanned & patterns.any(axis=1)):
        cutoffs[number] = program.cutoff(patterns[number, columns])
    return cutoffs[pattern_of]


class _Program:
    """The dual program of all patterns, which differ in its right-hand side alone."""

    def __init__(self, scores: Floats, features: Floats, alpha: Fraction) -> None:
        self.scores = scores
        self.features = features
        self.low = -float(alpha)
        self.high = float(1 - alpha)

        # A pull weaker than 1 - alpha by less than any balance of whole weights can show. Levels of
        # very many digits are pulled a little harder instead, which makes sets larger.
        if alpha.denominator <= _LARGEST_DENOMINATOR:
            self.pull = self.high - 1e-3 / alpha.denominator
        else:
            self.pull = self.high + 1e-9

        # Scores in units of their median size; infinite ones are far beyond the largest.
        finite = np.abs(scores[np.isfinite(scores)])
        unit = float(np.median(finite)) if finite.size else 1.0
        unit = unit or float(finite.max()) or 1.0
        far = _FAR * (1 + finite.max(initial=0.0) / unit)
        self.scaled = np.clip(scores / unit, -far, far)

        # Residuals of the regression that was solved last; at first those of a constant.
        first_guess = np.sort(self.scaled)[int(self.high * (len(scores) - 1))]
        self.residuals = self.scaled - first_guess

    def cutoff(self, pattern: Floats) -> float:
        """Solve the program for one pattern; infinity if no weights balance the pull.

        The plain way solves it with all rows. Rows far from the regression have their weight at a
        bound, however, so that it is enough to solve for those near the regression of the pattern
        before, and once more if a row turns out to be on the other side: 50,000 rows take
        hundredths of a second in place of seconds.
        """
        n = len(self.scores)
        is_above = self.residuals > 0
        is_free = np.ones(n, dtype=bool)
        if n > _MOST_ROWS:
            distance = np.abs(self.residuals)
            is_free = distance <= np.partition(distance, _MOST_ROWS)[_MOST_ROWS]

        while True:
            weights = np.where(is_above, self.high, self.low)
            balance = -self.pull * pattern - weights[~is_free] @ self.features[~is_free]
            result = linprog(  # type: ignore[call-overload]  # its stubs lack the options
                -self.scaled[is_free],
                A_eq=self.features[is_free].T,
                b_eq=balance,
                bounds=(self.low, self.high),
                method="highs-ds",
                options=_OPTIONS,
            )
            if result.status != _OPTIMAL and is_free.all():
                return np.inf
            if result.status != _OPTIMAL:
                is_free[:] = True
                continue

            residuals = self.scaled + self.features @ result.eqlin.marginals
            is_wrong = ~is_free & ((residuals > 0) != is_above)
            if not is_wrong.any():
                break
            is_free |= is_wrong

        self.residuals = residuals
        weights[is_free] = result.x
        return self._value_at(pattern, weights)

    def _value_at(self, pattern: Floats, weights: Floats) -> float:
        """Return the value at the pattern of the regression that goes with these weights.

        It goes through the rows whose weight is between its bounds.
        """
        on_regression = np.flatnonzero((self.low < weights) & (weights < self.high))
        features = self.features[on_regression]
        shares = np.linalg.lstsq(features.T, pattern)[0]
        if not np.allclose(features.T @ shares, pattern, rtol=0.0, atol=_ZERO):
            return np.inf  # not solved to its end; a full set is valid
        return _combine_upwards(shares, self.scores[on_regression])


def _combine_upwards(shares: Floats, scores: Floats) -> float:
    """Return shares @ scores, not below what rounding may have lost; whole shares are exact."""
    whole_shares = np.rint(shares)
    if np.all(np.abs(shares - whole_shares) <= _ZERO):
        shares = whole_shares

    is_used = np.abs(shares) > _ZERO
    shares = shares[is_used]
    scores = scores[is_used]

    if np.any(np.isinf(scores)):
        return np.inf
    if np.array_equal(shares, [1.0]):
        return float(scores[0])
    rounding = 2.0**-44 * np.abs(shares) @ np.abs(scores)
    return float(shares @ scores + rounding)


def distinct_rows(rows: AnyArray) -> tuple[AnyArray, Integers]:
    """Return the different rows of a matrix of numbers, and which of them each row is."""
    distinct, row_of = np.unique(rows + 0.0, axis=0, return_inverse=True)  # -0 is 0
    return distinct, row_of.ravel()


def _reduce_columns(features: Floats, patterns: Floats) -> tuple[Integers, AnyArray]:
    """Return independent columns of the features, and which patterns are sums of their rows.

    Rows count with any factor. A pattern that is no such sum is unlike all calibration rows.
    """
    distinct, _ = distinct_rows(features)
    basis = distinct[_independent_rows(distinct)]
    columns = _independent_rows(basis.T)

    # Complete each pattern from its independent columns, as rows of the features are.
    completion = np.linalg.solve(basis[:, columns], basis)
    error = np.abs(patterns[:, columns] @ completion - patterns)
    is_spanned = np.all(error <= _ZERO * (1 + np.abs(patterns)), axis=1)
    return columns, is_spanned


def _independent_rows(rows: Floats) -> Integers:
    """Find rows that are independent and of which every other row is a sum, by pivoted QR."""
    triangle, order = qr(rows.T, mode="r", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    is_independent = sizes > _ZERO * sizes.max(initial=0.0)
    return np.asarray(order[: np.count_nonzero(is_independent)])
