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

    ``"paper"`` is Proposition 3.2: both errors are sqrt(log(4A / delta) / (2n)), the second times
    B, with A = candidates x thresholds pairs that were fixed before the rows are seen. (The paper's
    own thresholds are quantiles of the tuning rows, to which its union bound does not apply.)

    ``"uniform"`` holds for every threshold at once and needs no A: by the inequality of Dvoretzky,
    Kiefer and Wolfowitz the risk error eR has P(sup |error| > e) <= 2 candidates exp(-2 n e^2), and
    the size error is B (eR + sqrt(pi / 8n) erfcx(sqrt(2n) eR)). `thresholds` is then ignored.

    `size_bound` B is the size of the largest set: the number of classes, or the length of the range
    of responses.
    """
    n = as_count(n_tune, name="n_tune", least=1)
    n_pairs = as_count(candidates, name="candidates", least=1)
    largest_size = as_positive(size_bound, name="size_bound")
    failure = float(as_rational(delta, name="delta"))
    if method not in ("uniform", "paper"):
        raise ValueError(f'method must be "uniform" or "paper", got {method!r}.')

    if method == "paper":
        n_pairs *= as_count(thresholds, name="thresholds", least=1)
    risk_error = math.sqrt(math.log(4 * n_pairs / failure) / (2 * n))
    size_share = risk_error
    if method == "uniform":
        size_share += math.sqrt(math.pi / (8 * n)) * float(erfcx(math.sqrt(2 * n) * risk_error))
    return TuningAccuracy(risk_error, largest_size * size_share, method)


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
    """Return the tuning rows that reach both errors: `tuning_accuracy` solved for the rows."""
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

    # Both errors shrink as 1 / sqrt(n).
    rows_for_risk = (one_row.risk_error / risk) ** 2
    rows_for_size = (one_row.size_error / size) ** 2
    almost_one = 1 - 1e-14  # keeps a value that is whole up to rounding from going up by one
    return math.ceil(max(rows_for_risk, rows_for_size) * almost_one)


def quantile_accuracy(
    n_cal: SupportsIndex,
    *,
    alpha: Level,
    density: float,
    distance: float,
    method: QuantileMethod = "exact",
) -> float:
    """Bound P(|q - q*| > distance) for the conformal threshold q and the population quantile q*.

    `density` is a lower bound c on the density of the scores within `distance` t of q*. ``"paper"``
    is Lemma B.3, 2 exp(-2n (ct - 2/n)_+^2). ``"exact"`` adds P(Bin(n, p + ct) <= k - 1) and
    P(Bin(n, p - ct) >= k) for p = 1 - alpha, and is the probability itself where the density is c.
    Both are at most 1, which is also the answer when n is too small for a finite threshold.
    """
    if method not in ("exact", "paper"):
        raise ValueError(f'method must be "exact" or "paper", got {method!r}.')
    n = as_count(n_cal, name="n_cal")
    level = as_rational(alpha)
    mass = as_positive(density, name="density") * as_positive(distance, name="distance")

    rank = rank_for(n, alpha=level)
    if rank > n:
        return 1.0
    if method == "paper":
        return min(1.0, 2 * math.exp(-2 * n * max(mass - 2 / n, 0.0) ** 2))

    covered = float(1 - level)
    too_large = float(betaincc(rank, n + 1 - rank, min(covered + mass, 1.0)))
    too_small = float(betainc(rank, n + 1 - rank, max(covered - mass, 0.0)))
    return min(1.0, too_large + too_small)


def quantile_distance(
    n_cal: SupportsIndex,
    *,
    alpha: Level,
    density: float,
    delta: Level,
    method: QuantileMethod = "exact",
) -> float:
    """Return the distance that q keeps from q* with probability at least 1 - delta.

    This is `quantile_accuracy` solved for `distance`. It is infinite when n is too small for a
    finite threshold. The density bound must hold that far on both sides.
    """
    n = as_count(n_cal, name="n_cal")
    level = as_rational(alpha)
    lowest_density = as_positive(density, name="density")
    failure = float(as_rational(delta, name="delta"))
    if rank_for(n, alpha=level) > n:
        return math.inf
    if method == "paper":
        return (math.sqrt(math.log(2 / failure) / (2 * n)) + 2 / n) / lowest_density

    # The bound falls as the mass grows, so bisection finds the one crossing.
    too_near, far_enough = 0.0, 1.0
    while far_enough - too_near > 1e-12:
        mass = (too_near + far_enough) / 2
        if quantile_accuracy(n, alpha=level, density=1.0, distance=mass, method=method) <= failure:
            far_enough = mass
        else:
            too_near = mass
    return far_enough / lowest_density


@dataclass(frozen=True)
class RecalibrationBound:
    """How large sets can be after recalibration, against the best candidate.

    With probability at least `probability` the mean size is at most that of the best candidate at
    coverage `oracle_level`, plus `size_excess`. ``vacuous`` says that the levels exceed 1 or the
    excess exceeds the largest set.
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
    """Bound the size of the deployed sets (without refit), which the paper leaves open.

    Let eR and eS be the errors of `tuning_accuracy` at `delta`, and u the 1 - calibration_delta
    quantile of Beta(k, n + 1 - k). Rank candidates by their tuning size at empirical coverage
    u + eR. Then, with probability at least 1 - delta - calibration_delta, the deployed size is at
    most the least size of any candidate at population coverage u + 2 eR, plus 2 eS (continuous
    laws). docs/proofs.md has the proof.
    """
    accuracy = tuning_accuracy(n_tune, candidates=candidates, size_bound=size_bound, delta=delta)
    calibration_failure = as_rational(calibration_delta, name="calibration_delta")
    tuning_failure = as_rational(delta, name="delta")

    law = coverage_law(n_cal, alpha=alpha, delta=pac_delta)
    coverage_quantile = float(law.ppf(float(1 - calibration_failure)))
    oracle_level = coverage_quantile + 2 * accuracy.risk_error
    size_excess = 2 * accuracy.size_error
    probability = float(max(1 - tuning_failure - calibration_failure, Fraction(0)))

    says_nothing = oracle_level >= 1 or size_excess >= size_bound or probability == 0
    return RecalibrationBound(
        coverage_quantile=coverage_quantile,
        ranking_level=coverage_quantile + accuracy.risk_error,
        oracle_level=oracle_level,
        size_excess=size_excess,
        probability=probability,
        vacuous=says_nothing,
    )
