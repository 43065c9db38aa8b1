"""Calibration by group: for a row picked from a new group, when rows of one group are not independent."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats, Integers
from dco.foundations.ranks import (
    Level,
    Threshold,
    as_rational,
    checked_scores,
    conformal_rank,
    order_statistic,
    smallest_marginal_n,
    warn_infeasible,
)
from dco.rows.fingerprints import codes_of_values
from dco.rows.roles import Seed, as_seed


def grouped_conformal(scores: ArrayLike, groups: Any, *, alpha: Level) -> Threshold:
    """The (1 - alpha) quantile of sum_g sum_i delta(s_gi) / (n_g (G + 1)) + delta(inf) / (G + 1).

    Every group weighs the same, however many rows it has, so that this says nothing about the share of all new rows. Claim
    (Lee, Barber and Willett 2023, hierarchical conformal prediction): if the G groups and the new one are exchangeable, a
    row picked at random from the new group is covered with probability >= 1 - alpha; so is a row that every group has (its
    first, its last), if rows within a group are exchangeable too. A tenth row is another matter: only large groups have one.
    With one row per group this is split conformal. `n` is G, and there is no rank. All comparisons are exact: masses are
    rationals with the group sizes as denominators.
    """
    threshold = grouped_threshold(checked_scores(scores), groups, alpha=alpha)
    smallest = smallest_marginal_n(alpha=alpha)
    if threshold.n < smallest:
        claim = f"marginal coverage of a new group at alpha = {threshold.alpha:g}"
        warn_infeasible(threshold.n, smallest, claim, unit="group")
    return threshold


def grouped_threshold(scores: Floats, groups: Any, *, alpha: Level) -> Threshold:
    """`grouped_conformal` of checked scores, without the warning."""
    codes, count = codes_of_values(groups)
    if codes.size != scores.size:
        raise ValueError(f"There are {scores.size} scores and {codes.size} group labels; give one label per score.")
    level = as_rational(alpha)
    feasible = conformal_rank(count, alpha=alpha) <= count
    value = _quantile(scores, codes, (1 - level) * (count + 1)) if feasible else np.inf
    return Threshold(float(value), rank=None, n=count, guarantee="marginal", alpha=float(level))


def _quantile(scores: Any, codes: Integers, target: Fraction) -> float:
    """The least score s with sum of 1 / n_g over the rows at or below s at least `target`, which is at most G."""
    sizes, size_of_group = np.unique(np.bincount(codes), return_inverse=True)
    order = np.argsort(scores, kind="stable")
    size_of_row = size_of_group[codes[order]]  # few distinct sizes: an exact mass has one term for each

    def enough(rows: int) -> bool:
        counts = np.bincount(size_of_row[:rows], minlength=sizes.size)
        return sum((Fraction(int(c), int(m)) for c, m in zip(counts, sizes, strict=True) if c), Fraction(0)) >= target

    return order_statistic(scores, 1 + bisect_left(range(1, codes.size), True, key=enough))  # all rows have mass G: enough


def one_row_per_group(groups: Any, *, seed: Seed = None) -> Integers:
    """One row of each group, uniformly at random, as ascending positions: i.i.d. groups then give i.i.d. rows.

    For PAC statements, which need independent rows. Choose before any score is seen.
    """
    codes, _ = codes_of_values(groups)
    shuffled = np.random.default_rng(as_seed(seed)).permutation(codes.size)
    _, first = np.unique(codes[shuffled], return_index=True)
    return np.sort(shuffled[first])
