"""Calibration by weights: of groups of rows that count as one each, and of new rows from another
mix, known in advance.
"""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations import ranks
from dco.foundations.arrays import Bools, Floats, Integers, real_numbers
from dco.foundations.display import are, counted, have
from dco.foundations.fingerprints import codes_of_values
from dco.foundations.notes import Note, show
from dco.foundations.ranks import Level, Threshold, WeightedThresholds, as_rational, checked_scores
from dco.foundations.seeds import Seed, as_seed

_UNIT = 2.0**-51  # of the larger sum, for each term: four times what one addition can lose
_LEAST = float(np.finfo(np.float64).smallest_subnormal)  # what scaling can lose of a weight


def weighted_conformal(
    scores: ArrayLike, weights: ArrayLike, new_weights: ArrayLike, *, alpha: Level
) -> WeightedThresholds:
    """For each new weight v the (1 - alpha) quantile of (sum_i w_i delta(s_i) + v delta(inf)) /
    (sum_i w_i + v).

    A weight is the likelihood ratio of a row, its density among new rows over that among
    calibration rows, up to one factor that all share: a function of x if the mix of x has changed
    (covariate shift), of the label if the shares of labels have. The new row's own mass lies at
    infinity: a new row unlike all calibration rows gets a full set. Claim (Tibshirani, Foygel
    Barber, Candès and Ramdas 2019, Corollary 1 and Theorem 2): if rows are independent and have
    these ratios, a new row is covered with probability >= 1 - alpha, and without ties with at most
    1 - alpha plus the mean of the largest mass. It holds given these weights; weights that were
    estimated certify nothing.

    `weights` (n,) belong to the calibration rows; for a label shift they are those of the observed
    labels. The thresholds have the shape of `new_weights`: (m,) or (m, 1) for one per new row; (1,
    K) for weights that only the label decides, and (m, K) for weights by row and label, where each
    label is tried with its own weight (Podkopaev and Ramdas 2021).

    With equal weights this is `split_conformal` to the last bit. Comparisons are exact: a weight is
    the rational number that float64 holds. Sums in float64 decide where their error cannot matter,
    integers the rest. Time is O((n + m) log n).
    """
    values, level = checked_scores(scores), as_rational(alpha)
    old, new = checked_weights(weights, "weights"), checked_weights(new_weights, "new_weights")
    if old.shape != values.shape:
        raise ValueError(
            f"weights must hold one weight for each of {values.size} scores, got shape {old.shape}."
        )
    if old.size and not old.any():
        raise ValueError(
            "weights are all 0: no calibration row says anything about these new rows."
        )
    _check_new_rows(new)
    order = np.argsort(values, kind="stable")
    places = _places(old[order], new.ravel(), level)
    ordered = np.append(rounded_up(values[order]), np.inf)
    cutoffs, n, effect = ordered[places].reshape(new.shape), values.size, effective_n(old)
    if count := int(np.count_nonzero(places == n)):
        share = float(level / (1 - level))
        text = (
            f"{count} of {counted(new.size, 'threshold')} {are(count)} infinite, and sets are "
            f"full there (valid, but "
            f"useless): the new weight is more than {share:.3g} times the sum of all calibration "
            f"weights."
        )
        remedy = f"More calibration rows are needed; {n} {have(n)} the effect of {effect:.3g}."
        show([Note("infeasible", text, remedy)])
    return WeightedThresholds(
        cutoffs, guarantee="marginal", alpha=float(level), n=n, effective_n=effect
    )


def _places(weights: Floats, new: Floats, level: Fraction) -> Integers:
    """For each new weight v the number of leading weights whose running sum stays below (1 -
    level)(sum of weights + v).
    """
    n = weights.size
    # the largest is now just below 1
    scale = -int(np.frexp(max(weights.max(initial=0.0), new.max(initial=0.0)))[1])
    running = np.cumsum(np.ldexp(weights, scale))
    whole = (running[-1] if n else 0.0) + np.ldexp(new, scale)
    target, doubt = float(1 - level) * whole, (n + 8) * (_UNIT * whole + _LEAST)
    first = np.searchsorted(running, target - doubt)
    last = np.searchsorted(running, target + doubt)
    open_rows = np.flatnonzero(first != last)
    if open_rows.size:
        kinds, one_of, kind = np.unique(new[open_rows], return_index=True, return_inverse=True)
        rows = open_rows[one_of]
        first[open_rows] = _exact_places(weights, kinds, first[rows], last[rows], level)[kind]
    return first


def _exact_places(
    weights: Floats, new: Floats, first: Integers, last: Integers, level: Fraction
) -> Integers:
    """`_places` in integers, where it is known to lie between `first` and `last`."""
    parts = [value.as_integer_ratio() for value in (*weights.tolist(), *new.tolist())]
    unit = max(below for _, below in parts)  # powers of two: the largest is a multiple of all
    whole = [above * (unit // below) for above, below in parts]
    running = list(accumulate(whole[: weights.size]))
    total, kept = (running[-1] if running else 0), level.denominator - level.numerator
    least = [-(-kept * (total + own) // level.denominator) for own in whole[weights.size :]]
    bounds = zip(least, first.tolist(), last.tolist(), strict=True)
    return np.array([bisect_left(running, *each) for each in bounds], dtype=np.intp)


def rounded_up(scores: Floats) -> Floats:
    """The scores in float64; a longdouble must not be rounded below itself."""
    with np.errstate(over="ignore"):
        values: Floats = scores.astype(np.float64)
    return np.where(values >= scores, values, np.nextafter(values, np.inf))


def effective_n(weights: Floats) -> float:
    """(sum w)^2 / sum w^2: how many equally weighted rows would vary as much."""
    shares = weights / weights.max(initial=_LEAST)
    return float(shares.sum() ** 2 / max(float(np.sum(shares**2)), _LEAST))


def checked_weights(values: Any, name: str) -> Floats:
    """Finite numbers that are not negative, as float64."""
    weights = real_numbers(values, name=name).astype(np.float64)
    for found, what in (
        (np.isnan(weights), "NaN"),
        (weights < 0, "negative"),
        (np.isinf(weights), "infinite"),
    ):
        if found.any():
            why = (
                " An infinite weight says that calibration rows cannot be like it."
                if what == "infinite"
                else ""
            )
            raise ValueError(
                f"{name} must be finite and not negative; {_where(found)} {what}.{why}"
            )
    return weights


def _check_new_rows(new: Floats) -> None:
    """A new row is there, so its weight is not 0; a label may have weight 0 if the row has
    another.
    """
    if new.ndim not in (1, 2) or 0 in new.shape[1:]:
        raise ValueError(
            f"new_weights must have shape (m,), (m, 1), (m, K) or (1, K), got {new.shape}."
        )
    never = new == 0 if new.ndim == 1 else np.all(new == 0, axis=1)
    if never.any():
        raise ValueError(
            f"new_weights: {_where(never)} 0, which says that there can be no such "
            f"new row. Check the weights."
        )


def _where(found: Bools) -> str:
    count = int(np.count_nonzero(found))
    place = ", ".join(str(index[0]) for index in np.nonzero(found))
    return f"{count} of {found.size} (first: {place}) {are(count)}"


def grouped_conformal(scores: ArrayLike, groups: Any, *, alpha: Level) -> Threshold:
    """The (1 - alpha) quantile of sum_g sum_i delta(s_gi) / (n_g (G + 1)) + delta(inf) / (G + 1).

    Every group weighs the same, however many rows it has, so that this says nothing about the share
    of all new rows. Claim (Lee, Barber and Willett 2023, hierarchical conformal prediction): if the
    G groups and the new one are exchangeable, a row picked at random from the new group is covered
    with probability >= 1 - alpha; so is a row that every group has (its first, its last), if rows
    within a group are exchangeable too. A tenth row is another matter: only large groups have one.
    With one row per group this is split conformal. `n` is G, and there is no rank. All comparisons
    are exact: masses are rationals with the group sizes as denominators.
    """
    threshold = grouped_threshold(checked_scores(scores), groups, alpha=alpha)
    if threshold.n < (smallest := ranks.smallest_marginal_n(alpha=alpha)):
        claim = f"marginal coverage of a new group at alpha = {threshold.alpha:g}"
        ranks.warn_infeasible(threshold.n, smallest, claim, unit="group")
    return threshold


def grouped_threshold(scores: Floats, groups: Any, *, alpha: Level) -> Threshold:
    """`grouped_conformal` of checked scores, without the warning."""
    codes, count = codes_of_values(groups)
    if codes.size != scores.size:
        raise ValueError(
            f"There are {scores.size} scores and {codes.size} group labels; give one "
            f"label per score."
        )
    level = as_rational(alpha)
    sizes, size_of_group = np.unique(np.bincount(codes), return_inverse=True)
    size_of_row = size_of_group[codes[np.argsort(scores, kind="stable")]]

    def mass(rows: int) -> Fraction:
        """Of the lowest rows, in units of a group: sizes are few, so that the exact sum has few
        terms.
        """
        counts = np.bincount(size_of_row[:rows], minlength=sizes.size).tolist()
        return sum(
            (Fraction(*pair) for pair in zip(counts, sizes.tolist(), strict=True)), Fraction(0)
        )

    # one more than all rows: infinite
    rank = bisect_left(range(codes.size + 1), (1 - level) * (count + 1), key=mass)
    return Threshold(
        ranks.order_statistic(scores, rank),
        rank=None,
        n=count,
        guarantee="marginal",
        alpha=float(level),
    )


def one_row_per_group(groups: Any, *, seed: Seed = None) -> Integers:
    """One row of each group, uniformly at random, as ascending positions: i.i.d. groups then give
    i.i.d. rows.

    For PAC statements, which need independent rows. Choose before any score is seen.
    """
    codes, _ = codes_of_values(groups)
    shuffled = np.random.default_rng(as_seed(seed)).permutation(codes.size)
    _, first = np.unique(codes[shuffled], return_index=True)
    return np.sort(shuffled[first])
