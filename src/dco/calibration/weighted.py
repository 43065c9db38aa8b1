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
    given
        A function of X that returns one weight per row, or a dict {label: ratio} if it is the
        shares of labels that changed. The weight of a row is its density among new rows divided by
        its density among calibration rows, up to one factor that all rows share.
    estimated
        Whether the weights were estimated from rows. Weights that come from a design (sampling
        rates, a census) are known. With estimated ones the sets are made in the same way, and
        nothing is guaranteed.
    """

    given: Callable[[Any], Any] | Mapping[Any, float]
    estimated: bool = False

    def __post_init__(self) -> None:
        if not callable(self.given) and not isinstance(self.given, Mapping):
            kind = type(self.given).__name__
            raise ValueError(
                f"weights must be a function of X or a dict {{label: ratio}}, got {kind}: rows "
                f"not yet seen need it."
            )

    @property
    def by_label(self) -> bool:
        """Whether the weight of a row depends on its label, and on that alone."""
        return isinstance(self.given, Mapping)

    def of_rows(self, X: Any, y: AnyArray) -> Floats:
        """Return the weights (n,) of rows whose targets `y` are known."""
        if isinstance(self.given, Mapping):
            return self._of_labels(y, self.given)
        weights = check_weights(self.given(X), "weights")
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
        """Refuse weights that change when rows come in smaller batches.

        `covariates` are the weights of all rows, computed together. A function that divides by the
        sum over its rows, say, would give a new row that comes alone the weight of all calibration
        rows. Four smaller batches are weighed again; two of them are the row of the smallest and
        the row of the largest weight alone, since a function that ranks its rows changes one of
        these.
        """
        if self.weights.by_label or covariates is None or not covariates.size:
            return
        all_weights = covariates

        first_rows, _ = rows_scored_again(all_weights.size)
        batches = [
            first_rows,
            first_rows[: (first_rows.size + 1) // 2],
            np.array([all_weights.argmin()]),
            np.array([all_weights.argmax()]),
        ]
        for rows in batches:
            weights_of_batch = self.weights.of_rows(take_features(X, rows), y[rows])
            is_same = np.allclose(
                weights_of_batch,
                all_weights[rows],
                rtol=_SAME_UP_TO_SHARE,
                atol=_SAME_UP_TO_SHARE_OF_LARGEST * all_weights.max(),
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
        """One entry for all rows, with the threshold of a new row of mean weight as an example.

        Rows of other weights have other thresholds: ask `thresholds` for them.
        """
        scores = self.scored.scores
        mean_weight = np.array([np.mean(self.weights)])
        values = weighted_thresholds(scores, self.weights, mean_weight, alpha=self.alpha)
        threshold = Threshold(
            value=float(values[0]),
            rank=None,  # a weighted quantile is at no fixed rank
            n=scores.size,
            guarantee="none" if self.calibrator.weights.estimated else "marginal",
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
        """Raise: a p-value of a row would need its threshold at every level."""
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

    `shift` is the function or dict of the user, and `weights` (n,) are those of the calibration
    rows.
    """
    mean_weight = weights.mean() if weights.size else 1.0
    largest_weight = weights.max(initial=mean_weight)
    return WeightFacts(
        of="label" if shift.by_label else "x",
        given=describe(shift.given),
        estimated=shift.estimated,
        effective_n=effective_size(weights),
        most=float(largest_weight / mean_weight),
    )


def weighted_conformal(
    scores: ArrayLike, weights: ArrayLike, new_weights: ArrayLike, *, alpha: Level
) -> WeightedThresholds:
    """Compute a threshold for each new weight: a quantile of weighted scores.

    For a new weight v it is the (1 - alpha) quantile of the distribution
    (sum_i w_i delta(s_i) + v delta(inf)) / (sum_i w_i + v). The new row's own weight lies at
    infinity: a new row unlike all calibration rows gets a full set.

    Claim (Tibshirani, Foygel Barber, Candès and Ramdas 2019, Corollary 1 and Theorem 2): if rows
    are independent and have these weights, a new row is covered with probability >= 1 - alpha, and
    without ties with at most 1 - alpha plus the mean of the largest mass. Weights that were
    estimated certify nothing. With equal weights this is `split_conformal` to the last bit.
    Comparisons are exact: a weight is the rational number that float64 holds.

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
    """Warn of infinite thresholds.

    `n_below` counts the calibration scores below each threshold. If all n lie below it, the
    threshold is infinite, and so it is if the new weight is too large a part of all weights.
    """
    n_infinite = int(np.count_nonzero(n_below == n))
    if n_infinite == 0:
        return

    # v is too large if sum(w) < (1 - alpha) (sum(w) + v): if v / sum(w) > alpha / (1 - alpha).
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
    n = weights.size
    distinct, position_of = np.unique(new_weights, return_inverse=True)

    # 1. Scale all weights below 1 by a power of two, which loses no digits.
    largest = max(weights.max(initial=0.0), distinct.max(initial=0.0))
    exponent = -int(np.frexp(largest)[1])
    running_sums = np.cumsum(np.ldexp(weights, exponent))
    sum_of_weights = running_sums[-1] if n else 0.0
    totals = sum_of_weights + np.ldexp(distinct, exponent)

    # 2. Bound each count in float64.
    needed = float(1 - alpha) * totals
    rounding = (n + _FURTHER_OPERATIONS) * (_ROUNDING_SHARE * totals + _SMALLEST_FLOAT)
    low = np.searchsorted(running_sums, needed - rounding)
    high = np.searchsorted(running_sums, needed + rounding)

    # 3. Count in integers where the bounds differ.
    counts = low.copy()
    in_doubt = low != high
    if in_doubt.any():
        counts[in_doubt] = _count_exactly(
            weights, distinct[in_doubt], low=low[in_doubt], high=high[in_doubt], alpha=alpha
        )
    return counts[position_of]


def _count_exactly(
    weights: Floats, new_weights: Floats, *, low: Integers, high: Integers, alpha: Fraction
) -> Integers:
    """Count for each new weight v the calibration rows below its threshold, without rounding.

    `weights` are those of the calibration rows by ascending score. The count for v is the number
    of running sums of `weights` below (1 - alpha) (sum(weights) + v). It is known to lie between
    `low` and `high`, which have one bound for each new weight.
    """
    # 1. Write all weights as whole numbers of one unit.
    whole_numbers = _to_whole_numbers([*weights.tolist(), *new_weights.tolist()])
    whole_weights = whole_numbers[: weights.size]
    whole_new_weights = whole_numbers[weights.size :]

    # 2. Find the first running sum that is at least (1 - alpha) of the total, rounded up.
    running_sums = list(accumulate(whole_weights))
    sum_of_weights = sum(whole_weights)
    counts = []
    for new_weight, start, stop in zip(whole_new_weights, low, high, strict=True):
        needed = math.ceil((1 - alpha) * (sum_of_weights + new_weight))
        counts.append(bisect_left(running_sums, needed, int(start), int(stop)))
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

    Weight 0 says that there can be no such row. With a weight for each label, (m, K), some labels
    of a row may have weight 0, but not all.
    """
    shape = new_weights.shape
    if new_weights.ndim not in (1, 2) or 0 in shape[1:]:
        raise ValueError(
            f"new_weights must have shape (m,), (m, 1), (m, K) or (1, K), got {shape}."
        )

    is_impossible = new_weights == 0
    if new_weights.ndim == 2:
        is_impossible = is_impossible.all(axis=1)
    if is_impossible.any():
        raise ValueError(
            f"new_weights: {_count_and_locate(is_impossible)} 0, which says that there can be no "
            f"such new row. Check the weights."
        )


def _count_and_locate(is_bad: Bools) -> str:
    """Begin a sentence on bad values: "2 of 10 (first: 3) are"."""
    count = int(np.count_nonzero(is_bad))
    position_of_first = np.argwhere(is_bad)[0]
    first = ", ".join(str(index) for index in position_of_first)
    return f"{count} of {is_bad.size} (first: {first}) {are(count)}"
