"""New rows that come in another, known mix than the calibration rows (covariate or label shift)."""

from __future__ import annotations

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

_ROUNDING_PER_TERM = (
    2.0**-51
)  # of the larger sum, for each term: four times what one addition can lose
_SMALLEST_FLOAT = float(
    np.finfo(np.float64).smallest_subnormal
)  # what scaling can lose of a weight


@dataclass(frozen=True)
class ShiftWeights:
    """Ratios of new to old: a function of X that gives one weight per row, or {label: ratio} if
    shares of labels changed.

    The weight of a row is its density among new rows over that among calibration rows, up to one
    factor that all share. Ratios that come from a design (sampling rates, a census) are known. If
    they were estimated from rows, say ``estimated=True``: the sets are made in the same way, and
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
        """Whether the label decides."""
        return isinstance(self.given, Mapping)

    def of_rows(self, X: Any, y: AnyArray) -> Floats:
        """Return the weight of each row with its target."""
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
        """Return the weights of new rows, (n,), or with labels that are tried (n, 1) or (1, K)."""
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

        Weights count relative to each other, so a function that divides by a sum over its rows
        gives a row that comes alone the mass of all calibration rows. The rows of the smallest and
        of the largest weight are weighed alone, since a function of ranks changes one of them.
        """
        if self.weights.by_label or covariates is None or not covariates.size:
            return

        first_rows, _ = rows_scored_again(covariates.size)
        batches = [
            first_rows,
            first_rows[: (first_rows.size + 1) // 2],
            np.array([covariates.argmin()]),
            np.array([covariates.argmax()]),
        ]
        smallest_change = 1e-9 * covariates.max()
        for rows in batches:
            again = self.weights.of_rows(take_features(X, rows), y[rows])
            if not np.allclose(again, covariates[rows], rtol=1e-4, atol=smallest_change):
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
        """One threshold, that of a new row of mean weight; those of other rows differ."""
        mean_weight = np.array([np.mean(self.weights)])
        values = weighted_thresholds(
            self.scored.scores, self.weights, mean_weight, alpha=self.alpha
        )
        threshold = Threshold(
            value=float(values[0]),
            rank=None,
            n=self.scored.scores.size,
            guarantee="none" if self.calibrator.weights.estimated else "marginal",
            alpha=float(self.alpha),
        )
        return (CalibratedCondition.of_all_rows(threshold, self.scored.scores),)

    def thresholds(self, X: Any, labels: AnyArray | None = None) -> Floats:
        """Return the threshold of each new row; a warning says how many are infinite."""
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
        raise ValueError("p-values are not known for weights: ask for sets, at each level.")

    def facts(self) -> WeightedFacts:
        shift = self.calibrator.weights
        mean_weight = self.weights.mean() if self.weights.size else 1.0
        return WeightedFacts(
            rule="marginal",
            alpha=float(self.alpha),
            thresholds=tuple(condition.certified() for condition in self.conditions),
            weights=WeightFacts(
                of="label" if shift.by_label else "x",
                given=describe(shift.given),
                estimated=shift.estimated,
                effective_n=effective_size(self.weights),
                most=float(self.weights.max(initial=mean_weight) / mean_weight),
            ),
        )

    def notes(
        self, *, dealt_from: int | None = None, classes: AnyArray | None = None
    ) -> list[Note]:
        return note_full_sets(
            self.conditions[0].threshold,
            smallest=self.calibrator.smallest_size(alpha=self.alpha),
            dealt_from=dealt_from,
        )


def weighted_conformal(
    scores: ArrayLike, weights: ArrayLike, new_weights: ArrayLike, *, alpha: Level
) -> WeightedThresholds:
    """Return a threshold for each new weight: a quantile of weighted scores.

    For a new weight v it is the (1 - alpha) quantile of (sum_i w_i delta(s_i) + v delta(inf)) /
    (sum_i w_i + v). A weight is the likelihood ratio of a row, its density among new rows over that
    among calibration rows, up to one factor that all share: a function of x if the mix of x has
    changed (covariate shift), of the label if the shares of labels have. The new row's own mass
    lies at infinity: a new row unlike all calibration rows gets a full set. Claim (Tibshirani,
    Foygel Barber, Candès and Ramdas 2019, Corollary 1 and Theorem 2): if rows are independent and
    have these ratios, a new row is covered with probability >= 1 - alpha, and without ties with at
    most 1 - alpha plus the mean of the largest mass. It holds given these weights; weights that
    were estimated certify nothing.

    `weights` (n,) belong to the calibration rows; for a label shift they are those of the observed
    labels. The thresholds have the shape of `new_weights`: (m,) or (m, 1) for one per new row; (1,
    K) for weights that only the label decides, and (m, K) for weights by row and label, where each
    label is tried with its own weight (Podkopaev and Ramdas 2021).

    With equal weights this is `split_conformal` to the last bit. Comparisons are exact: a weight is
    the rational number that float64 holds.
    """
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
    _check_new_rows(weights_of_new)

    n_below = _count_scores_below_thresholds(values, row_weights, weights_of_new, alpha=level)
    thresholds = _scores_after(values, n_below)
    effective_n = effective_size(row_weights)
    _warn_infinite(n_below, n=values.size, effective_n=effective_n, alpha=level)
    return WeightedThresholds(
        thresholds,
        guarantee="marginal",
        alpha=float(level),
        n=values.size,
        effective_n=effective_n,
    )


def weighted_thresholds(
    scores: Floats, weights: Floats, new_weights: Floats, *, alpha: Fraction
) -> Floats:
    """Return the thresholds of `weighted_conformal` for checked input, without its warning."""
    n_below = _count_scores_below_thresholds(scores, weights, new_weights, alpha=alpha)
    return _scores_after(scores, n_below)


def _count_scores_below_thresholds(
    scores: Floats, weights: Floats, new_weights: Floats, *, alpha: Fraction
) -> Integers:
    """Count, for each new weight, the scores that lie before its threshold in ascending order."""
    by_score = np.argsort(scores, kind="stable")
    n_below = _count_leading_weights(weights[by_score], new_weights.ravel(), alpha)
    return n_below.reshape(new_weights.shape)


def _scores_after(scores: Floats, n_below: Integers) -> Floats:
    """Return, for each count, the score that comes after so many in ascending order.

    It is infinity where all scores come before.
    """
    ascending = np.append(round_up(np.sort(scores)), np.inf)
    return np.asarray(ascending[n_below])


def _warn_infinite(n_below: Integers, *, n: int, effective_n: float, alpha: Fraction) -> None:
    """Warn of infinite thresholds: those that have all n scores below them."""
    n_infinite = int(np.count_nonzero(n_below == n))
    if not n_infinite:
        return

    share = float(alpha / (1 - alpha))
    text = (
        f"{n_infinite} of {counted(n_below.size, 'threshold')} {are(n_infinite)} infinite, and "
        f"sets are full there (valid, but useless): the new weight is more than {share:.3g} times "
        f"the sum of all calibration weights."
    )
    remedy = f"More calibration rows are needed; {n} {have(n)} the effect of {effective_n:.3g}."
    show([Note("infeasible", text, remedy)])


def _count_leading_weights(weights: Floats, new: Floats, alpha: Fraction) -> Integers:
    """Count, for each new weight v, the leading weights whose running sum stays too small.

    Too small is below (1 - alpha)(sum of weights + v). Sums in float64 decide where their error
    cannot matter, integers the rest.
    """
    n = weights.size

    # 1. Scale the weights below 1 by a power of two, which loses no digits.
    largest = max(weights.max(initial=0.0), new.max(initial=0.0))
    exponent = -int(np.frexp(largest)[1])
    running_sums = np.cumsum(np.ldexp(weights, exponent))
    sum_of_weights = running_sums[-1] if n else 0.0
    totals = sum_of_weights + np.ldexp(new, exponent)

    # 2. Count in float64, with bounds for what rounding may have moved.
    needed = float(1 - alpha) * totals
    error = (n + 8) * (_ROUNDING_PER_TERM * totals + _SMALLEST_FLOAT)
    fewest_scores = np.searchsorted(running_sums, needed - error)
    most_scores = np.searchsorted(running_sums, needed + error)

    # 3. Where the bounds differ, count in integers, once for each distinct new weight.
    counts = fewest_scores
    in_doubt = np.flatnonzero(fewest_scores != most_scores)
    if in_doubt.size:
        distinct, first_positions, positions = np.unique(
            new[in_doubt], return_index=True, return_inverse=True
        )
        rows = in_doubt[first_positions]
        exact = _count_exactly(
            weights, distinct, low=fewest_scores[rows], high=most_scores[rows], alpha=alpha
        )
        counts[in_doubt] = exact[positions]
    return counts


def _count_exactly(
    weights: Floats, new: Floats, *, low: Integers, high: Integers, alpha: Fraction
) -> Integers:
    """Do as `_count_leading_weights` in integers; each count is known to lie in [low, high]."""
    # 1. Write all weights as whole numbers of one unit. Denominators of floats are powers of two,
    # so the largest is a multiple of each.
    ratios = [value.as_integer_ratio() for value in (*weights.tolist(), *new.tolist())]
    largest_denominator = max(denominator for _, denominator in ratios)
    whole_numbers = [
        numerator * (largest_denominator // denominator) for numerator, denominator in ratios
    ]
    whole_weights = whole_numbers[: weights.size]
    whole_new = whole_numbers[weights.size :]

    # 2. Find the first running sum that is large enough: at least (1 - alpha) of the total.
    running_sums = list(accumulate(whole_weights))
    sum_of_weights = running_sums[-1] if running_sums else 0
    covered_parts = alpha.denominator - alpha.numerator  # of so many as alpha.denominator
    counts = []
    for new_weight, first, last in zip(whole_new, low.tolist(), high.tolist(), strict=True):
        total = sum_of_weights + new_weight
        needed = -(-covered_parts * total // alpha.denominator)  # rounded up
        counts.append(bisect_left(running_sums, needed, first, last))
    return np.array(counts, dtype=np.intp)


def effective_size(weights: Floats) -> float:
    """Return how many equally weighted rows would vary as much: (sum w)^2 / sum w^2."""
    shares = weights / weights.max(initial=_SMALLEST_FLOAT)
    return float(shares.sum() ** 2 / max(float(np.sum(shares**2)), _SMALLEST_FLOAT))


def check_weights(values: Any, name: str) -> Floats:
    """Return weights as float64; they must be finite and not negative."""
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


def _check_new_rows(new: Floats) -> None:
    """Refuse new weights of another shape, and new rows whose weights are all 0.

    Weight 0 says that there can be no such row. A label may have it, if another label has not.
    """
    if new.ndim not in (1, 2) or 0 in new.shape[1:]:
        raise ValueError(
            f"new_weights must have shape (m,), (m, 1), (m, K) or (1, K), got {new.shape}."
        )

    is_impossible = new == 0
    if new.ndim == 2:
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
