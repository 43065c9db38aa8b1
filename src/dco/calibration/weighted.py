"""New rows that come in another, known mix than the calibration rows (covariate or label shift)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dco.calibration.base import CalibratedCondition, Calibration, Calibrator
from dco.calibration.facts import WeightedFacts, WeightFacts
from dco.calibration.full_sets import note_full_sets
from dco.foundations.arrays import AnyArray, Bools, Floats, Integers, as_real_numbers
from dco.foundations.display import are, counted, have
from dco.foundations.errors import SealBrokenError
from dco.foundations.notes import Message, Note, show
from dco.foundations.ranks import (
    Level,
    Threshold,
    WeightedThresholds,
    as_rational,
    checked_scores,
    round_up,
    smallest_marginal_n,
)
from dco.foundations.tables import n_rows, take_features
from dco.structure import ScoredRows, describe, rows_scored_again

# How far a sum of weights in float64 may be off, for each operation: this share of the sum (four
# times what one addition can lose), and what scaling to a subnormal number can lose.
_ROUNDING_SHARE = 2.0**-51
_SMALLEST_FLOAT = float(np.finfo(np.float64).smallest_subnormal)
# Operations beside the additions (scaling, the new weight, the product with 1 - alpha), with a
# reserve.
_FURTHER_OPERATIONS = 8

# A weight that is computed again must be the same up to this share of itself, or up to this share
# of the largest weight.
_SAME_UP_TO_SHARE = 1e-4
_SAME_UP_TO_SHARE_OF_LARGEST = 1e-9


@dataclass(frozen=True)
class ShiftWeights:
    """How much more frequent rows like a given one are among new rows than in calibration.

    Attributes
    ----------
    ratios
        A function of X that returns the weight of each row, (n,), or a dict {label: weight} if it
        is the shares of labels that changed. The weight of a row is the ratio of its density among
        new rows to its density among calibration rows, up to one factor that all rows share.
    estimated
        Whether the weights were estimated from rows. Weights that come from a design (sampling
        rates, a census) are known. With estimated ones the sets are made in the same way, and
        nothing is guaranteed.
    """

    ratios: Callable[[Any], Any] | Mapping[Any, float]
    estimated: bool = False

    def __post_init__(self) -> None:
        if not callable(self.ratios) and not isinstance(self.ratios, Mapping):
            kind = type(self.ratios).__name__
            raise ValueError(
                f"weights must be a function of X or a dict {{label: ratio}}, got {kind}: rows "
                f"not yet seen need it."
            )

    @property
    def by_label(self) -> bool:
        """Whether the weight of a row depends on its label, and on that alone."""
        return isinstance(self.ratios, Mapping)

    def of_rows(self, X: Any, y: AnyArray) -> Floats:
        """Return the weights (n,) of rows whose targets `y` are known."""
        if isinstance(self.ratios, Mapping):
            return self._of_labels(y, self.ratios)
        weights = check_weights(self.ratios(X), "weights")
        if weights.shape != (n_rows(X),):
            raise ValueError(
                f"weights must give one number for each of {n_rows(X)} rows, got shape "
                f"{weights.shape}."
            )
        return weights

    def of_trials(self, X: Any, labels: AnyArray | None) -> Floats:
        """Return the weights of new rows, whose targets are not known.

        For numbers (`labels` is None) the shape is (n,). For classes `labels` are the K labels that
        are tried in every row: the shape is (1, K) if the label decides, otherwise (n, 1).
        """
        if self.by_label:
            return self.of_rows(X, np.asarray(labels))[None, :]
        weights = self.of_rows(X, np.empty(0))
        return weights if labels is None else weights[:, None]

    def _of_labels(self, labels: AnyArray, ratios: Mapping[Any, float]) -> Floats:
        """Look up the weight of each label; a label without a ratio is an error."""
        for label in labels.tolist():
            if label not in ratios:
                raise ValueError(
                    f"weights lack the label {label!r}: give a ratio for every label of the fit."
                )
        return check_weights([ratios[label] for label in labels.tolist()], "weights")


@dataclass(frozen=True)
class Weighted(Calibrator):
    """Weigh each calibration row by how much more frequent rows like it are among new rows.

    Coverage is at least 1 - alpha for new rows, given the weights (`weighted_conformal`).
    """

    weights: ShiftWeights

    def calibrate(self, scored: ScoredRows, *, alpha: Fraction) -> ThresholdPerWeight:
        return ThresholdPerWeight(self, scored, alpha)

    def smallest_size(self, *, alpha: Fraction) -> int:
        return smallest_marginal_n(alpha=alpha)  # of equal weights; more if they differ

    def with_guarantee(self, guarantee: str, *, delta: Fraction | None) -> Weighted:
        """Return this kind for "marginal", the only guarantee that it has."""
        if guarantee != "marginal":
            raise ValueError(
                Message(
                    f'⟨weights⟩ cannot be combined with ⟨guarantee="{guarantee}"⟩: no threshold is '
                    f"known for both."
                )
            )
        return self

    def covariates(self, X: Any, y: AnyArray) -> Floats:
        return self.weights.of_rows(X, y)

    def check_covariates(self, X: Any, y: AnyArray, covariates: AnyArray | None) -> None:
        """Raise if the user's function gives a row another weight when it comes with fewer rows.

        `covariates` are the weights of all calibration rows (X, y), computed together. A function
        that divides by the sum over its rows, say, gives a new row that comes alone a far larger
        weight. Four smaller batches of these rows are weighed again and compared.
        """
        if self.weights.by_label or covariates is None or covariates.size == 0:
            return
        weights_together = covariates

        # A function that ranks its rows changes the weight of the lowest or the highest row.
        first_rows, _ = rows_scored_again(weights_together.size)
        first_half = first_rows[: (first_rows.size + 1) // 2]
        lowest_row = np.array([weights_together.argmin()])
        highest_row = np.array([weights_together.argmax()])

        for rows in (first_rows, first_half, lowest_row, highest_row):
            weights_of_batch = self.weights.of_rows(take_features(X, rows), y[rows])
            is_same = np.allclose(
                weights_of_batch,
                weights_together[rows],
                rtol=_SAME_UP_TO_SHARE,
                atol=_SAME_UP_TO_SHARE_OF_LARGEST * weights_together.max(),
            )
            if not is_same:
                raise SealBrokenError(
                    Message(
                        "⟨weights⟩ gives a row another weight when it comes with other rows, as a "
                        "function does that divides by a sum over its rows or ranks them. Weigh "
                        "each row by itself; the factor may be left out, since weights are needed "
                        "up to a factor only."
                    )
                )


@dataclass(frozen=True, eq=False)
class ThresholdPerWeight(Calibration):
    """A threshold for each new row, whose own weight counts as if its score were infinite."""

    calibrator: Weighted

    no_law = (
        "each row has a threshold of its own, by its weight, and such sets have no known law of "
        "coverage"
    )
    follows_from_rows = False  # a mean of weights depends on their order, in its last digits

    @property
    def weights(self) -> Floats:
        """The weight of each calibration row."""
        assert self.scored.covariates is not None
        return self.scored.covariates

    @cached_property
    def conditions(self) -> tuple[CalibratedCondition, ...]:
        """Return one condition (rows that share a threshold) for all rows, as an example.

        In truth each new row has a threshold of its own, by its weight, which `thresholds`
        computes. This one is for a new row whose weight is the mean of the calibration weights.
        """
        scores = self.scored.scores
        mean_weight = np.array([np.mean(self.weights)])
        values = weighted_thresholds(scores, self.weights, mean_weight, alpha=self.alpha)
        has_known_weights = not self.calibrator.weights.estimated
        threshold = Threshold(
            value=float(values[0]),
            rank=None,  # a weighted quantile is at no fixed rank
            n=scores.size,
            guarantee="marginal" if has_known_weights else "none",
            alpha=float(self.alpha),
        )
        return (CalibratedCondition.of_all_rows(threshold, scores),)

    def thresholds(self, X: Any, labels: AnyArray | None = None) -> Floats:
        """Compute the threshold of each new row; a warning says how many are infinite."""
        new_weights = self.calibrator.weights.of_trials(X, labels)
        return weighted_conformal(
            self.scored.scores, self.weights, new_weights, alpha=self.alpha
        ).values

    def p_values(
        self,
        scores: Floats,
        X: Any,
        *,
        targets: AnyArray | None = None,
        labels: AnyArray | None = None,
    ) -> Floats:
        """Raise a ValueError: no p-values are known for weighted rows.

        A p-value would need the row's threshold at every level. The arguments are those of other
        calibrations.
        """
        raise ValueError("p-values are not known for weights: ask for sets, at each level.")

    def facts(self) -> WeightedFacts:
        return WeightedFacts(
            rule="marginal",
            alpha=float(self.alpha),
            thresholds=tuple(condition.certified() for condition in self.conditions),
            weights=summarise_weights(self.calibrator.weights, self.weights),
        )

    def notes(self, *, n_in_fit: int | None = None, classes: AnyArray | None = None) -> list[Note]:
        return note_full_sets(
            self.conditions[0].threshold,
            smallest=self.calibrator.smallest_size(alpha=self.alpha),
            n_in_fit=n_in_fit,
        )


def summarise_weights(shift: ShiftWeights, weights: Floats) -> WeightFacts:
    """Say on a certificate where the weights come from, and how unequal they are.

    `shift` has the user's function of X or dict of labels, and `weights` (n,) are the weights that
    it gives the calibration rows.
    """
    mean_weight = weights.mean() if weights.size else 1.0
    largest_weight = weights.max(initial=mean_weight)
    return WeightFacts(
        depends_on="label" if shift.by_label else "x",
        ratios=describe(shift.ratios),
        estimated=shift.estimated,
        effective_n=effective_size(weights),
        largest_over_mean=float(largest_weight / mean_weight),
    )


def weighted_conformal(
    scores: ArrayLike, weights: ArrayLike, new_weights: ArrayLike, *, alpha: Level
) -> WeightedThresholds:
    """Compute a threshold for each new row, by its weight: a weighted quantile of the scores.

    Calibration row i puts its weight w_i at its score s_i, and a new row puts its weight v at
    infinity. The threshold is the smallest score s for which

        sum of the w_i with s_i <= s   >=   (1 - alpha) (sum of all w_i + v),

    and infinity if there is none: a new row with a very large weight gets a full set.

    Claim (Tibshirani, Foygel Barber, Candès and Ramdas 2019, Corollary 1 and Theorem 2): if rows
    are independent and have these weights, a new row is covered with probability >= 1 - alpha, and
    without ties with at most 1 - alpha plus the mean of the largest share of the weights that one
    row has. Weights that were estimated certify nothing. With equal weights this is
    `split_conformal` to the last bit. Comparisons are exact: a weight is the rational number that
    float64 holds.

    Parameters
    ----------
    scores
        The scores s_i of the calibration rows, (n,).
    weights
        The weights w_i of the calibration rows, (n,). A weight is the density of a row among new
        rows divided by its density among calibration rows, up to one factor that all share: a
        function of x if the distribution of x has changed (covariate shift), of the observed label
        if the shares of labels have.
    new_weights
        The weights of new rows: (m,) or (m, 1) for one per row; (1, K) for weights that only the
        label decides; (m, K) for weights by row and label, where each label is tried with its own
        weight (Podkopaev and Ramdas 2021). The thresholds have this shape.
    alpha
        One minus the coverage wanted.
    """
    # 1. Check the arguments.
    values = checked_scores(scores)
    level = as_rational(alpha)
    row_weights = check_weights(weights, "weights")
    weights_of_new = check_weights(new_weights, "new_weights")
    if row_weights.shape != values.shape:
        raise ValueError(
            f"weights must hold one weight for each of {values.size} scores, got shape "
            f"{row_weights.shape}."
        )
    if row_weights.size and not row_weights.any():
        raise ValueError(
            "weights are all 0: no calibration row says anything about these new rows."
        )
    _check_new_weights(weights_of_new)

    # 2. Compute the thresholds, and warn of infinite ones.
    n_below = _count_scores_below_thresholds(values, row_weights, weights_of_new, alpha=level)
    effective_n = effective_size(row_weights)
    _warn_infinite(n_below, n=values.size, effective_n=effective_n, alpha=level)
    return WeightedThresholds(
        values=_scores_after(values, n_below),
        guarantee="marginal",
        alpha=float(level),
        n=values.size,
        effective_n=effective_n,
    )


def weighted_thresholds(
    scores: Floats, weights: Floats, new_weights: Floats, *, alpha: Fraction
) -> Floats:
    """Compute the thresholds of `weighted_conformal` for checked input, without its warning."""
    n_below = _count_scores_below_thresholds(scores, weights, new_weights, alpha=alpha)
    return _scores_after(scores, n_below)


def _count_scores_below_thresholds(
    scores: Floats, weights: Floats, new_weights: Floats, *, alpha: Fraction
) -> Integers:
    """Count, for each new weight, the scores that come before its threshold in ascending order.

    The counts have the shape of `new_weights`.
    """
    ascending = np.argsort(scores, kind="stable")
    n_below = _count_rows_below(weights[ascending], new_weights.ravel(), alpha)
    return n_below.reshape(new_weights.shape)


def _scores_after(scores: Floats, n_below: Integers) -> Floats:
    """Look up, for each count, the score that comes after so many others in ascending order.

    With scores [5.0, 3.0] the counts [0, 1, 2] give [3.0, 5.0, inf].
    """
    ascending = np.append(round_up(np.sort(scores)), np.inf)
    return np.asarray(ascending[n_below])


def _warn_infinite(n_below: Integers, *, n: int, effective_n: float, alpha: Fraction) -> None:
    """Warn that some thresholds are infinite; do nothing if none is.

    `n_below` (m,) counts, for each threshold, the calibration scores below it: all `n` of them if
    the threshold is infinite. `effective_n` is how many equally weighted rows would vary as much.
    """
    n_infinite = int(np.count_nonzero(n_below == n))
    if n_infinite == 0:
        return

    # The threshold of a new weight v is infinite if sum(w) < (1 - alpha) (sum(w) + v), w being the
    # calibration weights: if v / sum(w) > alpha / (1 - alpha).
    largest_ratio = float(alpha / (1 - alpha))
    text = (
        f"{n_infinite} of {counted(n_below.size, 'threshold')} {are(n_infinite)} infinite, and "
        f"sets are full there (valid, but useless): the new weight is more than "
        f"{largest_ratio:.3g} times the sum of all calibration weights."
    )
    remedy = f"More calibration rows are needed; {n} {have(n)} the effect of {effective_n:.3g}."
    show([Note("infeasible", text, remedy)])


def _count_rows_below(weights: Floats, new_weights: Floats, alpha: Fraction) -> Integers:
    """Count, for each new weight v, the calibration rows below its threshold.

    `weights` (n,) are those of the calibration rows by ascending score, and `new_weights` is (m,).
    The threshold is at the first row where the running sum of weights reaches (1 - alpha)
    (sum(weights) + v); the count is n if no row reaches it. With weights [1, 1, 1], v = 1 and
    alpha = 1/2 the sum must reach 2, which the second row does: the count is 1.

    Sums in float64 decide where their rounding cannot matter, exact integers decide the rest.
    """
    distinct_new_weights, position_of = np.unique(new_weights, return_inverse=True)

    # 1. Bound each count in float64.
    fewest, most = _bound_counts(weights, distinct_new_weights, alpha)

    # 2. Count in integers where the bounds differ.
    counts = fewest.copy()
    is_in_doubt = fewest != most
    if is_in_doubt.any():
        counts[is_in_doubt] = _count_exactly(
            weights,
            distinct_new_weights[is_in_doubt],
            fewest=fewest[is_in_doubt],
            most=most[is_in_doubt],
            alpha=alpha,
        )
    return counts[position_of]


def _bound_counts(
    weights: Floats, new_weights: Floats, alpha: Fraction
) -> tuple[Integers, Integers]:
    """Return the fewest and the most rows that may lie below the threshold of each new weight v.

    The arguments are those of `_count_rows_below`: the count is that of running sums of `weights`
    below (1 - alpha) (sum(weights) + v). Sums in float64 may be off by rounding, so the rows are
    counted once with less than needed, and once with more.
    """
    # 1. Scale all weights below 1, so that sums stay finite. A power of two loses no digits.
    largest = max(weights.max(initial=0.0), new_weights.max(initial=0.0))
    exponent = -int(np.frexp(largest)[1])
    scaled_weights = np.ldexp(weights, exponent)
    scaled_new_weights = np.ldexp(new_weights, exponent)

    # 2. Add them up.
    running_sums = np.cumsum(scaled_weights)
    sum_of_weights = running_sums[-1] if weights.size else 0.0
    totals = sum_of_weights + scaled_new_weights
    needed = float(1 - alpha) * totals

    # 3. Count, allowing for the rounding of every operation.
    n_operations = weights.size + _FURTHER_OPERATIONS
    rounding = n_operations * (_ROUNDING_SHARE * totals + _SMALLEST_FLOAT)
    fewest = np.searchsorted(running_sums, needed - rounding)
    most = np.searchsorted(running_sums, needed + rounding)
    return fewest, most


def _count_exactly(
    weights: Floats, new_weights: Floats, *, fewest: Integers, most: Integers, alpha: Fraction
) -> Integers:
    """Count for each new weight v the calibration rows below its threshold, without rounding.

    `weights` are those of the calibration rows by ascending score. The count for v is the number
    of running sums of `weights` below (1 - alpha) (sum(weights) + v). It is known to lie between
    the entries of `fewest` and `most` for v.
    """
    # 1. Write all weights as whole numbers of one unit.
    whole_numbers = _to_whole_numbers([*weights.tolist(), *new_weights.tolist()])
    whole_weights = whole_numbers[: weights.size]
    whole_new_weights = whole_numbers[weights.size :]

    # 2. Find the first running sum that is at least (1 - alpha) of the total, rounded up.
    running_sums = list(accumulate(whole_weights))
    sum_of_weights = sum(whole_weights)
    counts = []
    for new_weight, low, high in zip(whole_new_weights, fewest, most, strict=True):
        needed = math.ceil((1 - alpha) * (sum_of_weights + new_weight))
        counts.append(bisect_left(running_sums, needed, lo=int(low), hi=int(high)))
    return np.array(counts, dtype=np.intp)


def _to_whole_numbers(values: list[float]) -> list[int]:
    """Multiply finite floats by one number that makes all of them whole: [0.5, 0.75] -> [2, 3].

    The denominator of a float is a power of two, so that the largest is a multiple of all others.
    """
    ratios = [value.as_integer_ratio() for value in values]
    largest_denominator = max(denominator for _, denominator in ratios)
    return [numerator * (largest_denominator // denominator) for numerator, denominator in ratios]


def effective_size(weights: Floats) -> float:
    """Return how many equally weighted rows would vary as much: (sum w)^2 / sum w^2."""
    shares = weights / weights.max(initial=_SMALLEST_FLOAT)
    return float(shares.sum() ** 2 / max(float(np.sum(shares**2)), _SMALLEST_FLOAT))


def check_weights(values: Any, name: str) -> Floats:
    """Return weights as an array of float64, or raise if one is NaN, infinite or negative.

    `name` is the parameter that the error message speaks of.
    """
    weights = as_real_numbers(values, name=name).astype(np.float64)
    rule = f"{name} must be finite and not negative"

    is_nan = np.isnan(weights)
    if is_nan.any():
        raise ValueError(f"{rule}; {_count_and_locate(is_nan)} NaN.")

    is_negative = weights < 0
    if is_negative.any():
        raise ValueError(f"{rule}; {_count_and_locate(is_negative)} negative.")

    is_infinite = np.isinf(weights)
    if is_infinite.any():
        raise ValueError(
            f"{rule}; {_count_and_locate(is_infinite)} infinite. An infinite weight says that "
            f"calibration rows cannot be like it."
        )
    return weights


def _check_new_weights(new_weights: Floats) -> None:
    """Raise if new weights have the wrong shape, or if all weights of a new row are 0.

    A row of weight 0 cannot occur among new rows, so one that does contradicts its weight. With a
    weight for each row and label, (m, K), some weights of a row may be 0, but not all.
    """
    shape = new_weights.shape
    if new_weights.ndim not in (1, 2) or 0 in shape[1:]:
        raise ValueError(
            f"new_weights must have shape (m,), (m, 1), (m, K) or (1, K), got {shape}."
        )

    has_no_weight = new_weights == 0
    if new_weights.ndim == 2:
        has_no_weight = has_no_weight.all(axis=1)
    if has_no_weight.any():
        raise ValueError(
            f"new_weights: {_count_and_locate(has_no_weight)} 0, which says that there can be no "
            f"such new row. Check the weights."
        )


def _count_and_locate(is_bad: Bools) -> str:
    """Begin a sentence on bad values: "2 of 10 (first: 3) are"."""
    count = int(np.count_nonzero(is_bad))
    position_of_first = np.argwhere(is_bad)[0]
    first = ", ".join(str(index) for index in position_of_first)
    return f"{count} of {is_bad.size} (first: {first}) {are(count)}"
