"""Bounds of the paper and sharper ones: Proposition 3.2, Lemma B.3, and an oracle inequality.

They say how far tuning rows can be trusted to rank candidates, how near a threshold is to the
population quantile, and how large sets can be after recalibration. No guarantee rests on them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, SupportsIndex, TypeAlias

from scipy.special import betainc, betaincc, erfcx

from dco.foundations.ranks import Level, as_count, as_positive, as_rational, rank_for
from dco.theory import coverage_law

TuningMethod: TypeAlias = Literal["uniform", "paper"]
QuantileMethod: TypeAlias = Literal["exact", "paper"]
BISECTION_WIDTH = 1e-12  # of the interval at which the search for a distance stops
# Just below 1: keeps a number of rows that is whole up to rounding from going up by one.
ALMOST_ONE = 1 - 1e-14


@dataclass(frozen=True)
class TuningAccuracy:
    """Errors that hold for all candidates at once, with probability at least 1 - delta.

    ``risk_error`` bounds |empirical - true miscoverage|, ``size_error`` |empirical - true mean
    size|. The bound says something only if `risk_error` is below alpha and `size_error` below the
    differences between candidates.
    """

    risk_error: float
    size_error: float
    method: TuningMethod


def tuning_accuracy(
    n_tune: SupportsIndex,
    *,
    candidates: SupportsIndex,
    size_bound: float,
    delta: Level = 0.05,
    method: TuningMethod = "uniform",
    thresholds: SupportsIndex = 80,
) -> TuningAccuracy:
    """Bound the errors of risk and size on `n_tune` tuning rows, for all candidates at once.

    With n = `n_tune` and B = `size_bound`, both methods have

        risk error ε_R = sqrt(log(4A / delta) / (2n))

    "paper" is Proposition 3.2: A = candidates × thresholds counts pairs that were fixed before the
    rows are seen, and the size error is B ε_R. (The paper's own thresholds are quantiles of the
    tuning rows, to which its union bound does not apply.)

    "uniform" holds for every threshold at once, with A = candidates: the inequality of Dvoretzky,
    Kiefer and Wolfowitz gives P(sup |error| > e) <= 2A exp(-2ne²). The size error is
    B (ε_R + sqrt(π / (8n)) erfcx(sqrt(2n) ε_R)).

    Parameters
    ----------
    n_tune
        The number of tuning rows.
    candidates
        The number of candidates.
    size_bound
        The size of the largest set: the number of classes, or the length of the range of responses.
    delta
        The probability that a bound may fail.
    method
        "uniform" or "paper".
    thresholds
        The number of thresholds of each candidate; "uniform" does not need it.
    """
    n = as_count(n_tune, name="n_tune", least=1)
    n_candidates = as_count(candidates, name="candidates", least=1)
    B = as_positive(size_bound, name="size_bound")
    failure = float(as_rational(delta, name="delta"))
    if method not in ("uniform", "paper"):
        raise ValueError(f'method must be "uniform" or "paper", got {method!r}.')

    if method == "paper":
        n_thresholds = as_count(thresholds, name="thresholds", least=1)
        A = n_candidates * n_thresholds
        risk_error = math.sqrt(math.log(4 * A / failure) / (2 * n))
        return TuningAccuracy(risk_error, B * risk_error, method)

    A = n_candidates
    risk_error = math.sqrt(math.log(4 * A / failure) / (2 * n))
    tail = math.sqrt(math.pi / (8 * n)) * float(erfcx(math.sqrt(2 * n) * risk_error))
    return TuningAccuracy(risk_error, B * (risk_error + tail), method)


def tuning_sample_size(
    *,
    candidates: SupportsIndex,
    risk_error: float,
    size_error: float,
    size_bound: float,
    delta: Level = 0.05,
    method: TuningMethod = "uniform",
    thresholds: SupportsIndex = 80,
) -> int:
    """Return how many tuning rows make both errors of `tuning_accuracy` as small as asked for.

    The errors of risk and of size are then at most `risk_error` and `size_error`. The other
    parameters are explained at `tuning_accuracy`.
    """
    risk = as_positive(risk_error, name="risk_error")
    size = as_positive(size_error, name="size_error")
    one_row = tuning_accuracy(
        1,
        candidates=candidates,
        size_bound=size_bound,
        delta=delta,
        method=method,
        thresholds=thresholds,
    )

    # Both errors are those of one row, divided by sqrt(n).
    n_for_risk = (one_row.risk_error / risk) ** 2
    n_for_size = (one_row.size_error / size) ** 2
    n = max(n_for_risk, n_for_size)
    return math.ceil(n * ALMOST_ONE)  # a whole number stays what it is, in spite of rounding


def quantile_accuracy(
    n_cal: SupportsIndex,
    *,
    alpha: Level,
    density: float,
    distance: float,
    method: QuantileMethod = "exact",
) -> float:
    """Bound the probability that a conformal threshold q is further than t from its target q*.

    q is the k-th smallest of n calibration scores, k = ceil((n + 1)(1 - alpha)), and q* is the
    (1 - alpha) quantile of the scores of new rows. With (u)+ = max(u, 0) and p = 1 - alpha,

        "paper", Lemma B.3:   2 exp(-2n (ct - 2/n)+²)
        "exact":              P(Bin(n, p + ct) <= k - 1) + P(Bin(n, p - ct) >= k)

    "exact" is the probability itself where the density is c. Both are at most 1, which is also the
    answer when n is too small for a finite threshold.

    Parameters
    ----------
    n_cal
        The number n of calibration rows.
    alpha
        The miscoverage level.
    density
        A lower bound c on the density of the scores within t of q*.
    distance
        The distance t.
    method
        "exact" or "paper".
    """
    if method not in ("exact", "paper"):
        raise ValueError(f'method must be "exact" or "paper", got {method!r}.')
    n = as_count(n_cal, name="n_cal")
    level = as_rational(alpha)
    ct = as_positive(density, name="density") * as_positive(distance, name="distance")

    k = rank_for(n, alpha=level)
    if k > n:
        return 1.0
    if method == "paper":
        return min(1.0, 2 * math.exp(-2 * n * max(ct - 2 / n, 0.0) ** 2))

    # Binomial tails by the incomplete beta function: q > q* + t if at most k - 1 scores are below
    # q* + t, and q < q* - t if at least k are below q* - t.
    p = float(1 - level)
    chance_too_large = float(betaincc(k, n + 1 - k, min(p + ct, 1.0)))
    chance_too_small = float(betainc(k, n + 1 - k, max(p - ct, 0.0)))
    return min(1.0, chance_too_large + chance_too_small)


def quantile_distance(
    n_cal: SupportsIndex,
    *,
    alpha: Level,
    density: float,
    delta: Level,
    method: QuantileMethod = "exact",
) -> float:
    """Return a distance t with |q - q*| <= t, with probability at least 1 - delta.

    q is the conformal threshold of n calibration rows, q* the quantile of the population. This is
    `quantile_accuracy` solved for `distance`; the other parameters are explained there. The density
    bound must hold up to t on both sides of q*. The distance is infinite where n is too small for a
    finite threshold.
    """
    n = as_count(n_cal, name="n_cal")
    level = as_rational(alpha)
    lowest_density = as_positive(density, name="density")
    failure = float(as_rational(delta, name="delta"))
    if rank_for(n, alpha=level) > n:
        return math.inf
    if method == "paper":  # delta = 2 exp(-2n (ct - 2/n)²), solved for t
        return (math.sqrt(math.log(2 / failure) / (2 * n)) + 2 / n) / lowest_density

    # The bound depends on ct = density × distance alone, and falls as that grows: bisection finds
    # where it crosses delta. At ct = 1 the bound is 0.
    too_small = 0.0
    large_enough = 1.0
    while large_enough - too_small > BISECTION_WIDTH:
        ct = (too_small + large_enough) / 2
        chance = quantile_accuracy(n, alpha=level, density=1.0, distance=ct, method=method)
        if chance <= failure:
            large_enough = ct
        else:
            too_small = ct
    return large_enough / lowest_density


@dataclass(frozen=True)
class RecalibrationBound:
    """How large the deployed sets can be, compared with the best candidate.

    With probability at least `probability` their mean size is at most the smallest mean size of any
    candidate at coverage `oracle_level`, plus `size_excess`.

    Attributes
    ----------
    coverage_quantile
        What the coverage of the deployed sets does not exceed, with high probability: u in
        `size_after_recalibration`.
    ranking_level
        The empirical coverage at which candidates are to be ranked on the tuning rows.
    oracle_level, size_excess, probability
        The bound.
    vacuous
        Whether the bound says nothing: a level exceeds 1, or the excess exceeds the largest set.
    """

    coverage_quantile: float
    ranking_level: float
    oracle_level: float
    size_excess: float
    probability: float
    vacuous: bool


def size_after_recalibration(
    n_tune: SupportsIndex,
    n_cal: SupportsIndex,
    *,
    alpha: Level,
    candidates: SupportsIndex,
    size_bound: float,
    delta: Level = 0.05,
    calibration_delta: Level = 0.05,
    pac_delta: Level | None = None,
) -> RecalibrationBound:
    """Bound the mean size of sets whose candidate was tuned and whose threshold was calibrated.

    The candidate is the one with the smallest sets on the tuning rows at empirical coverage
    u + ε_R; it is calibrated without a refit. Then, with probability at least
    1 - delta - calibration_delta,

        deployed size <= (smallest size of any candidate at coverage u + 2 ε_R) + 2 ε_S

    where

        ε_R, ε_S   are the errors of risk and size of `tuning_accuracy` at `delta`,
        u          is what the coverage of the deployed sets does not exceed, with probability
                   1 - calibration_delta: a quantile of Beta(k, n_cal + 1 - k), for the rank k.

    Scores must have a continuous distribution. The paper leaves this open; docs/proofs.md has the
    proof.

    Parameters
    ----------
    n_tune, n_cal
        The numbers of tuning and of calibration rows.
    alpha
        The miscoverage level.
    candidates, size_bound
        As in `tuning_accuracy`.
    delta, calibration_delta
        The failure probabilities of the tuning and of the calibration step.
    pac_delta
        The delta of the calibration rank, if it is a PAC one; None: split conformal prediction.
    """
    accuracy = tuning_accuracy(n_tune, candidates=candidates, size_bound=size_bound, delta=delta)
    calibration_failure = as_rational(calibration_delta, name="calibration_delta")
    tuning_failure = as_rational(delta, name="delta")

    coverage = coverage_law(n_cal, alpha=alpha, delta=pac_delta)
    u = float(coverage.ppf(float(1 - calibration_failure)))
    ranking_level = u + accuracy.risk_error
    oracle_level = u + 2 * accuracy.risk_error
    size_excess = 2 * accuracy.size_error
    probability = float(max(1 - tuning_failure - calibration_failure, Fraction(0)))

    says_nothing = oracle_level >= 1 or size_excess >= size_bound or probability == 0
    return RecalibrationBound(
        coverage_quantile=u,
        ranking_level=ranking_level,
        oracle_level=oracle_level,
        size_excess=size_excess,
        probability=probability,
        vacuous=says_nothing,
    )
