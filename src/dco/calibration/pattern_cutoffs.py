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

from dco.foundations.arrays import AnyArray, Bools, Floats, Integers
from dco.scores.thresholds import LOWEST_SCORE

_ZERO = 1e-9  # features are scaled to at most 1: what is smaller is rounding
_TOLERANCE = 1e-10  # the smallest that HiGHS takes
_FAR = 2.0**20  # times the largest score: where infinite scores are put
_MOST_ROWS = 1_000  # of a program that is solved at once
_OPTIMAL = 0  # a status of linprog
_OPTIONS = {"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE}
_LARGEST_DENOMINATOR = 10**6  # of a level whose pull can be weakened
_WEAKER_PULL = 1e-3  # in units of 1 / (denominator of alpha)
_HARDER_PULL = 1e-9
_SUM_ROUNDING = 2.0**-44  # of the sum of absolute terms: more than rounding can lose of it


def cutoffs_of_patterns(
    scores: Floats, features: Floats, new_features: Floats, *, alpha: Fraction
) -> Floats:
    """Compute the cut-off of each new row, by one linear program for each distinct row.

    `scores` (n,) and `features` (n, d) are those of the calibration rows, `new_features` is (m, d),
    and the result (m,). A row that is no sum of multiples of calibration rows gets infinity.
    """
    patterns, pattern_of_row = distinct_rows(new_features)
    cutoffs = np.full(len(patterns), np.inf)

    # 1. Sort the calibration rows, so that sums round alike in whatever order they came.
    finite_low = np.where(scores <= LOWEST_SCORE, 0.0, scores)
    order = np.lexsort((finite_low, *features.T))
    sorted_scores = finite_low[order]
    sorted_features = features[order]

    # 2. Scale each column to at most 1. Where all features are 0, no pattern has a cut-off.
    scale = np.abs(sorted_features).max(axis=0, initial=0.0)
    if not scale.any():
        return cutoffs[pattern_of_row]
    scale[scale == 0] = 1.0
    scaled_features = sorted_features / scale
    scaled_patterns = patterns / scale

    # 3. Solve for each pattern that calibration rows can say something about.
    columns, is_spanned = _reduce_columns(scaled_features, scaled_patterns)
    program = _Program(sorted_scores, scaled_features[:, columns], alpha)
    for number in np.flatnonzero(is_spanned & scaled_patterns.any(axis=1)):
        cutoffs[number] = program.cutoff(scaled_patterns[number, columns])
    return cutoffs[pattern_of_row]


class _Program:
    """The dual program of all patterns, which differ in its right-hand side alone.

    Find weights w_i in [low, high] = [-alpha, 1 - alpha] of the calibration rows, with the largest
    sum_i w_i S_i, that balance the pull of the pattern phi: sum_i w_i f_i = -pull phi.
    """

    def __init__(self, scores: Floats, features: Floats, alpha: Fraction) -> None:
        """Prepare what all patterns share: the scores S_i (n,) and features f_i (n, d)."""
        self.scores = scores
        self.features = features
        self.low = -float(alpha)
        self.high = float(1 - alpha)

        # 1. A pull weaker than 1 - alpha takes the smallest of several solutions. It is weaker by
        # less than any balance of whole weights can show. Levels of very many digits leave no room
        # for that: they are pulled a little harder instead, which makes sets larger.
        if alpha.denominator <= _LARGEST_DENOMINATOR:
            self.pull = self.high - _WEAKER_PULL / alpha.denominator
        else:
            self.pull = self.high + _HARDER_PULL

        # 2. Scores in units of their median size; infinite ones are put far beyond the largest.
        self.scaled_scores = _scale_scores(scores)

        # 3. Residuals of the regression that was solved last: at first those of a constant.
        constant = np.sort(self.scaled_scores)[int(self.high * (len(scores) - 1))]
        self.residuals = self.scaled_scores - constant

    def cutoff(self, pattern: Floats) -> float:
        """Compute the cut-off of one pattern; infinity if no weights balance its pull.

        The plain way solves the program with all rows. But a row far above the regression has the
        weight `high`, and one far below it `low`. So it is enough to solve for the weights of rows
        near the regression of the pattern before, and once more if another row turns out to be on
        the other side: 50,000 rows take hundredths of a second in place of seconds.
        """
        is_above = self.residuals > 0
        is_free = self._find_rows_near_regression()  # rows whose weights are solved for
        weights = np.where(is_above, self.high, self.low)

        while True:
            # 1. Solve for the free weights; the other rows keep theirs.
            pull_left = -self.pull * pattern - weights[~is_free] @ self.features[~is_free]
            result = linprog(  # type: ignore[call-overload]  # its stubs lack the options
                -self.scaled_scores[is_free],
                A_eq=self.features[is_free].T,
                b_eq=pull_left,
                bounds=(self.low, self.high),
                method="highs-ds",
                options=_OPTIONS,
            )

            # 2. Without a solution, let all rows be free; if they are, there is none.
            if result.status != _OPTIMAL:
                if is_free.all():
                    return np.inf
                is_free = np.ones(len(self.scores), dtype=bool)
                continue

            # 3. Free the rows that are on the other side of the regression than was assumed.
            residuals = self.scaled_scores + self.features @ result.eqlin.marginals
            is_on_other_side = (residuals > 0) != is_above
            is_wrong = is_on_other_side & ~is_free
            if not is_wrong.any():
                break
            is_free = is_free | is_wrong

        self.residuals = residuals
        weights[is_free] = result.x
        return self._regression_at(pattern, weights)

    def _find_rows_near_regression(self) -> Bools:
        """Mark about a thousand rows with the smallest residuals; all rows if there are fewer."""
        if len(self.scores) <= _MOST_ROWS:
            return np.ones(len(self.scores), dtype=bool)
        distances = np.abs(self.residuals)
        return np.asarray(distances <= np.partition(distances, _MOST_ROWS)[_MOST_ROWS])

    def _regression_at(self, pattern: Floats, weights: Floats) -> float:
        """Return the value at the pattern of the regression that these weights belong to.

        The regression goes through the rows whose weights lie between the bounds. If the pattern is
        a combination of their features, its value is the same combination of their scores.
        """
        on_regression = np.flatnonzero((self.low < weights) & (weights < self.high))
        features = self.features[on_regression]
        coefficients = np.linalg.lstsq(features.T, pattern)[0]
        if not np.allclose(features.T @ coefficients, pattern, rtol=0.0, atol=_ZERO):
            return np.inf  # not solved to its end; a full set is valid
        return _combine_upwards(coefficients, self.scores[on_regression])


def _scale_scores(scores: Floats) -> Floats:
    """Divide scores by the median of their finite sizes; infinite ones become large numbers."""
    finite_sizes = np.abs(scores[np.isfinite(scores)])
    unit = float(np.median(finite_sizes)) if finite_sizes.size else 1.0
    if unit == 0:
        unit = float(finite_sizes.max()) or 1.0

    far = _FAR * (1 + finite_sizes.max(initial=0.0) / unit)
    return np.asarray(np.clip(scores / unit, -far, far))


def _combine_upwards(coefficients: Floats, scores: Floats) -> float:
    """Return coefficients @ scores, raised by what rounding may have lost.

    Coefficients that are whole numbers but for rounding are taken as whole, and those near 0 are
    left out. One score with coefficient 1 is returned to the last bit.
    """
    whole_numbers = np.rint(coefficients)
    if np.all(np.abs(coefficients - whole_numbers) <= _ZERO):
        coefficients = whole_numbers

    is_used = np.abs(coefficients) > _ZERO
    coefficients = coefficients[is_used]
    scores = scores[is_used]

    if np.any(np.isinf(scores)):
        return np.inf
    if np.array_equal(coefficients, [1.0]):
        return float(scores[0])
    rounding = _SUM_ROUNDING * np.abs(coefficients) @ np.abs(scores)
    return float(coefficients @ scores + rounding)


def distinct_rows(rows: AnyArray) -> tuple[AnyArray, Integers]:
    """Return the different rows of a matrix of numbers, and which of them each row is."""
    distinct, row_of = np.unique(rows + 0.0, axis=0, return_inverse=True)  # -0 is 0
    return distinct, row_of.ravel()


def _reduce_columns(features: Floats, patterns: Floats) -> tuple[Integers, AnyArray]:
    """Find independent columns of the features, and the patterns in the span of their rows.

    A pattern is in the span if it is a sum of multiples of rows; one that is not is unlike all
    calibration rows. Return the positions of the columns, and one truth value for each pattern.
    """
    # 1. Independent rows, of which all others are sums, and independent columns of these.
    distinct, _ = distinct_rows(features)
    basis = distinct[_independent_rows(distinct)]
    columns = _independent_rows(basis.T)

    # 2. In the span, all columns follow from the independent ones as they do in the basis.
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
