"""Cut-offs of conditional calibration: one linear program for each distinct new row.

With S_i and f_i the scores and features of the calibration rows, and phi the features of a new
row, the cut-off of the new row is

    c = min phi'b  over the b that minimise  sum_i pinball(S_i - f_i'b) - (1 - alpha) phi'b:

the lowest value at phi of a linear quantile regression b, at the quantile 1 - alpha, of all scores
including the new row's, which is taken to lie above the regression. `_DualProgram` finds it.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from scipy.linalg import qr
from scipy.optimize import OptimizeResult, linprog

from dco.foundations.arrays import AnyArray, Bools, Floats, Integers
from dco.scores.thresholds import LOWEST_SCORE

_ZERO = 1e-9  # features are scaled to at most 1: what is smaller is rounding
_TOLERANCE = 1e-10  # the smallest that HiGHS takes
_FAR = 2.0**20  # times the largest score: where infinite scores are put
_MOST_SOLVED_FOR = 1_000  # rows whose weights are solved for at once
_OPTIMAL = 0  # a status of linprog
_OPTIONS = {"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE}
_SUM_ROUNDING = 2.0**-44  # of the sum of absolute terms: more than rounding can lose of it

# How far the weight of the new row lies from 1 - alpha (`_weight_of_new_row`).
_LARGEST_DENOMINATOR = 10**6  # of alpha, for a weight below 1 - alpha
_WEIGHT_BELOW = 1e-3  # below 1 - alpha, in units of 1 / (denominator of alpha)
_WEIGHT_ABOVE = 1e-9  # above 1 - alpha


def solve_cutoffs(
    scores: Floats, features: Floats, new_features: Floats, *, alpha: Fraction
) -> Floats:
    """Compute for each new row the cut-off: the largest score that its prediction set lets in.

    `scores` (n,) and `features` (n, d) are those of the calibration rows, `new_features` is (m, d),
    and the result (m,). A new row that is no linear combination of calibration rows, such as a row
    of a group without any, gets infinity. New rows with the same features are computed once.
    """
    distinct_new_rows, position_of_new_row = distinct_rows(new_features)
    cutoffs = np.full(len(distinct_new_rows), np.inf)

    # 1. Sort the calibration rows, so that sums round alike in whatever order they came.
    finite_low = np.where(scores <= LOWEST_SCORE, 0.0, scores)
    order = np.lexsort((finite_low, *features.T))
    sorted_scores = finite_low[order]
    sorted_features = features[order]

    # 2. Scale each column to at most 1. If all features are 0, every cut-off is infinite.
    scale = np.abs(sorted_features).max(axis=0, initial=0.0)
    if not scale.any():
        return cutoffs[position_of_new_row]
    scale[scale == 0] = 1.0
    scaled_features = sorted_features / scale
    scaled_new_rows = distinct_new_rows / scale

    # 3. Solve for each distinct new row that calibration rows can say something about. Columns that
    # follow from others (the groups "F" and "M" add up to the constant) are left out.
    basis = _find_basis(scaled_features)
    columns = _independent_rows(basis.T)
    is_combination = _are_combinations(scaled_new_rows, basis, columns)
    is_nonzero = scaled_new_rows.any(axis=1)
    program = _DualProgram(sorted_scores, scaled_features[:, columns], alpha)
    for position in np.flatnonzero(is_combination & is_nonzero):
        cutoffs[position] = program.solve_cutoff(scaled_new_rows[position, columns])
    return cutoffs[position_of_new_row]


class _DualProgram:
    """A linear program for the weights w_i of the calibration rows, one for each new row phi.

        maximise   sum_i w_i S_i
        such that  sum_i w_i f_i + v phi = 0   and   low <= w_i <= high,

    where low = -alpha, high = 1 - alpha, and v, the weight of the new row, is almost 1 - alpha. It
    is the dual of the quantile regression of the scores S_i on the features f_i: a row above the
    regression has the weight `high`, one below it `low`, and the regression goes through the rows
    whose weights lie between. Only phi differs from one new row to the next.
    """

    def __init__(self, scores: Floats, features: Floats, alpha: Fraction) -> None:
        """Prepare what all new rows share, from the scores (n,) and features (n, d)."""
        self.scores = scores
        self.features = features
        self.low = -float(alpha)
        self.high = float(1 - alpha)
        self.weight_of_new_row = _weight_of_new_row(alpha)
        self.scaled_scores = _scale_scores(scores)

        # Scaled scores minus the regression that was solved last. Before the first one, a constant
        # near the quantile 1 - alpha takes its place.
        constant = np.sort(self.scaled_scores)[int(self.high * (len(scores) - 1))]
        self.residuals = self.scaled_scores - constant

    def solve_cutoff(self, new_row: Floats) -> float:
        """Compute the cut-off of a new row with these features; infinity without a solution.

        The plain way solves for the weights of all rows. With 50,000 rows that takes seconds, and
        this way hundredths of a second: only rows near the last regression are solved for, and the
        others keep the weight of their side of it. If some of them turn out to be on the other side
        of the new regression, they are solved for too.
        """
        is_above = self.residuals > 0
        is_solved_for = self._find_rows_near_regression()
        weights = np.where(is_above, self.high, self.low)

        while True:
            result = self._solve_weights(new_row, weights, is_solved_for)

            # 1. Without a solution, solve for all rows; if that was done, there is none.
            if result.status != _OPTIMAL:
                if is_solved_for.all():
                    return np.inf
                is_solved_for = np.ones(len(self.scores), dtype=bool)
                continue

            # 2. Find the rows that are not on the side of the regression b that was assumed. The
            # multipliers that linprog returns are -b.
            residuals = self.scaled_scores + self.features @ result.eqlin.marginals
            has_changed_side = (residuals > 0) != is_above
            is_wrong = has_changed_side & ~is_solved_for
            if not is_wrong.any():
                break
            is_solved_for = is_solved_for | is_wrong

        self.residuals = residuals
        weights[is_solved_for] = result.x
        return self._regression_at(new_row, weights)

    def _find_rows_near_regression(self) -> Bools:
        """Mark about a thousand rows with the smallest residuals; all rows if there are fewer."""
        if len(self.scores) <= _MOST_SOLVED_FOR:
            return np.ones(len(self.scores), dtype=bool)
        distances = np.abs(self.residuals)
        largest_distance = np.partition(distances, _MOST_SOLVED_FOR)[_MOST_SOLVED_FOR]
        return np.asarray(distances <= largest_distance)

    def _solve_weights(
        self, new_row: Floats, weights: Floats, is_solved_for: Bools
    ) -> OptimizeResult:
        """Solve the program for the weights of the marked rows; the others keep theirs."""
        fixed_sum = weights[~is_solved_for] @ self.features[~is_solved_for]
        result: OptimizeResult = linprog(  # type: ignore[call-overload]  # stubs lack the options
            -self.scaled_scores[is_solved_for],  # linprog minimises
            A_eq=self.features[is_solved_for].T,
            b_eq=-self.weight_of_new_row * new_row - fixed_sum,
            bounds=(self.low, self.high),
            method="highs-ds",
            options=_OPTIONS,
        )
        return result

    def _regression_at(self, new_row: Floats, weights: Floats) -> float:
        """Return the value at a new row of the regression that these weights belong to.

        The regression goes through the rows whose weights lie between the bounds. If the new row is
        a linear combination of their features, its value is the same combination of their scores.
        """
        on_regression = np.flatnonzero((self.low < weights) & (weights < self.high))
        features = self.features[on_regression]
        coefficients = np.linalg.lstsq(features.T, new_row)[0]
        if not np.allclose(features.T @ coefficients, new_row, rtol=0.0, atol=_ZERO):
            return np.inf  # not solved to its end; a full set is valid
        return _combine_upwards(coefficients, self.scores[on_regression])


def _weight_of_new_row(alpha: Fraction) -> float:
    """Return the weight of the new row in the program: a little less than 1 - alpha.

    With 1 - alpha itself there may be several regressions, where so many weights -alpha and
    1 - alpha add up to it exactly. A little less gives the lowest of them. Sums of such weights are
    multiples of 1 / (denominator of alpha), so a small part of that is little enough. With a very
    large denominator rounding would hide this part. The weight is then a little more than
    1 - alpha, which can only make sets larger.
    """
    level = float(1 - alpha)
    if alpha.denominator <= _LARGEST_DENOMINATOR:
        return level - _WEIGHT_BELOW / alpha.denominator
    return level + _WEIGHT_ABOVE


def _scale_scores(scores: Floats) -> Floats:
    """Divide scores by the median of their finite sizes; infinite ones become large numbers."""
    finite_sizes = np.abs(scores[np.isfinite(scores)])
    unit = float(np.median(finite_sizes)) if finite_sizes.size else 1.0
    if unit == 0:
        unit = float(finite_sizes.max()) or 1.0

    far = _FAR * (1 + finite_sizes.max(initial=0.0) / unit)
    return np.asarray(np.clip(scores / unit, -far, far))


def _combine_upwards(coefficients: Floats, scores: Floats) -> float:
    """Return the sum of coefficients * scores, raised by the most that rounding may have lost.

    A cut-off that is too high is valid, one that is too low is not. The coefficients come from
    least squares: where they are whole numbers but for rounding, they are rounded, and those near 0
    are left out. If one score with coefficient 1 remains, it is returned to the last bit.
    """
    # 1. Remove the rounding errors of least squares.
    whole_numbers = np.rint(coefficients)
    if np.all(np.abs(coefficients - whole_numbers) <= _ZERO):
        coefficients = whole_numbers
    is_used = np.abs(coefficients) > _ZERO
    coefficients = coefficients[is_used]
    scores = scores[is_used]

    # 2. Add up.
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


def _find_basis(rows: Floats) -> Floats:
    """Return independent rows of which all rows are linear combinations."""
    distinct, _ = distinct_rows(rows)
    return np.asarray(distinct[_independent_rows(distinct)])


def _are_combinations(new_rows: Floats, basis: Floats, columns: Integers) -> Bools:
    """Say for each new row (m, d) whether it is a linear combination of the rows of `basis` (k, d).

    `columns` are the positions of k independent columns of the basis, from which its other columns
    follow. In a combination they follow in the same way: the new row is computed from its values in
    these columns, and compared with what it is.
    """
    completion = np.linalg.solve(basis[:, columns], basis)  # (k, d)
    expected_rows = new_rows[:, columns] @ completion
    error = np.abs(expected_rows - new_rows)
    return np.asarray(np.all(error <= _ZERO * (1 + np.abs(new_rows)), axis=1))


def _independent_rows(rows: Floats) -> Integers:
    """Find rows that are independent and of which every other row is a sum, by pivoted QR."""
    triangle, order = qr(rows.T, mode="r", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    is_independent = sizes > _ZERO * sizes.max(initial=0.0)
    return np.asarray(order[: np.count_nonzero(is_independent)])
