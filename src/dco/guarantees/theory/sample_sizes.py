"""How many calibration and tuning rows a wish needs, and what given numbers of rows certify.

Every calculator states its formula and its source. Where the paper's bound and a sharper one exist, both are here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, SupportsIndex, TypeAlias

import numpy as np
from scipy.special import betainc, betaincc, erfcx

from dco.foundations import ranks
from dco.foundations.arrays import Bools, Integers
from dco.foundations.ranks import Level, as_count, as_positive, as_rational, conformal_rank, pac_rank, rank_for
from dco.guarantees.theory.coverage import coverage_law, coverage_variance

TuningMethod: TypeAlias = Literal["uniform", "paper"]
QuantileMethod: TypeAlias = Literal["exact", "paper"]

_LARGEST_SCAN = 20_000_000  # rows; a wish that needs more than this is a slip of the pen


@dataclass(frozen=True)
class CalibrationSize:
    """How many calibration rows a wish needs.

    The wish holds at `first`, and at every size from `safe_from` on; between the two it comes and goes, because the rank is
    a whole number. ``recommended`` is the size within 1 / alpha rows of `safe_from` whose rank wastes least: where 1 / alpha
    is whole, n + 1 is a multiple of it and k / (n + 1) is 1 - alpha exactly. ``closed_form`` is ceil(alpha (1 - alpha) /
    spread^2) - 2 for a wish about the spread, or the least size with a finite threshold if that is larger; None otherwise.
    """

    first: int
    safe_from: int
    recommended: int
    closed_form: int | None = None


def calibration_size(
    *,
    alpha: Level,
    spread: float | None = None,
    shortfall: float | None = None,
    delta: Level | None = None,
    pac_delta: Level | None = None,
) -> CalibrationSize:
    """Calibration rows for ``sd(coverage) <= spread``, or for ``P(coverage < 1 - alpha - shortfall) <= delta``.

    Give either `spread`, or `shortfall` and `delta`. Coverage is Beta(k, n + 1 - k); k is the marginal rank, or with
    `pac_delta` the PAC rank. Both conditions are sawteeth in n, so every n is looked at up to a bound beyond which the
    condition is proved to hold: variance <= 1 / (4 (n + 2)), and for the tail Chernoff's exp(-n KL(1 - alpha || 1 - alpha -
    shortfall)), which applies since k >= n (1 - alpha) (for a `pac_delta` of at most 1/2). Sizes too small for a finite
    threshold do not count.
    """
    level = as_rational(alpha)
    failure = None if pac_delta is None else as_rational(pac_delta, name="pac_delta")
    share, closed_form = float(level), None
    if spread is not None and shortfall is None and delta is None:
        wish = as_positive(spread, name="spread")
        closed_form = math.ceil(level * (1 - level) / Fraction(repr(wish)) ** 2) - 2
        limit = math.ceil(0.25 / wish**2)

        def holds(rank: Integers, n: Integers) -> Bools:
            return np.asarray(coverage_variance(rank, n) <= wish**2 * (1 + 1e-12))

    elif spread is None and shortfall is not None and delta is not None:
        target = 1 - share - as_positive(shortfall, name="shortfall")
        if target <= 0:
            raise ValueError(f"shortfall must be below 1 - alpha = {1 - share:g}, got {shortfall!r}.")
        if failure is not None and failure > Fraction(1, 2):
            raise ValueError(f"pac_delta must be at most 1/2 where a shortfall is asked for, got {pac_delta!r}.")
        allowed = float(as_rational(delta, name="delta"))
        entropy = (1 - share) * math.log((1 - share) / target) + share * math.log(share / (1 - target))
        limit = math.ceil(-math.log(allowed) / entropy)

        def holds(rank: Integers, n: Integers) -> Bools:
            return np.asarray(betainc(rank, np.maximum(n + 1 - rank, 1), target) <= allowed)

    else:
        raise ValueError("give either spread=, or both shortfall= and delta=.")
    least = ranks.smallest_n_for(alpha=level, delta=failure)
    limit = max(limit, least)
    if limit > _LARGEST_SCAN:
        raise ValueError(f"this may need up to {limit:,} calibration rows, beyond the {_LARGEST_SCAN:,} that are searched.")
    sizes = np.arange(least, limit + 1, dtype=np.int64)
    good = holds(_ranks(sizes, level, failure), sizes)
    first = int(sizes[np.argmax(good)])
    bad = np.flatnonzero(~good)
    safe_from = int(sizes[bad[-1]]) + 1 if bad.size else least
    return CalibrationSize(
        first,
        safe_from,
        recommended=least_wasteful_size(safe_from, alpha=level, delta=failure),
        closed_form=None if closed_form is None else max(least, closed_form),
    )


def least_wasteful_size(n: SupportsIndex, *, alpha: Level, delta: Level | None = None, downwards: bool = False) -> int:
    """The size within 1 / alpha rows of n (n itself, or more; or less if `downwards`) with the least rank / (size + 1).

    Whole ranks make some sizes a bargain: n + 1 a multiple of 1 / alpha has mean coverage 1 - alpha and not more.
    """
    count, level = as_count(n), as_rational(alpha)
    failure = None if delta is None else as_rational(delta, name="delta")
    window = min(math.ceil(1 / level), 10_000)
    sizes = range(count, max(-1, count - window), -1) if downwards else range(count, count + window)
    return min(sizes, key=lambda size: Fraction(rank_for(size, alpha=level, delta=failure), size + 1))


def _ranks(sizes: Integers, alpha: Fraction, delta: Fraction | None) -> Integers:
    if delta is not None:
        return np.array([pac_rank(int(n), alpha=alpha, delta=delta) for n in sizes], dtype=np.int64)
    covered, whole = alpha.denominator - alpha.numerator, alpha.denominator
    if covered * (int(sizes[-1]) + 1) < 2**62:
        return np.asarray(-(-(sizes + 1) * covered // whole))
    return np.array([conformal_rank(int(n), alpha=alpha) for n in sizes], dtype=np.int64)


@dataclass(frozen=True)
class TuningAccuracy:
    """Errors that hold for all candidates at once, with probability at least 1 - delta.

    ``risk_error`` bounds |empirical - true miscoverage|, ``size_error`` |empirical - true mean size|. The bound says
    something only if `risk_error` is below alpha and `size_error` below the differences between candidates.
    """

    risk_error: float
    size_error: float
    method: TuningMethod


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
    """Tuning rows for the errors wanted, uniformly over `candidates` structures, with probability at least 1 - delta.

    ``"paper"`` is Proposition 3.2: n >= max{log(4A / delta) / (2 eR^2), B^2 log(4A / delta) / (2 eS^2)} with A = candidates
    x thresholds pairs fixed before the rows are seen. (The paper's own grid is made of quantiles of the tuning rows, so its
    union bound does not apply to it as it stands.)

    ``"uniform"`` holds for every threshold at once, hence for exact search and any grid, and needs no A. Risk: by DKW,
    P(sup |R^ - R| > e) <= 2 |Phi| exp(-2 n e^2). Size: the sets of one structure are a chain inside a region of size B, so
    with one uniform label per row, sup |S^ - S| / B is at most the conditional mean of a Kolmogorov distance D. Hence for
    any c < e, P(sup |S^ - S| > B e) <= E(D - c)_+ / (e - c), and DKW at the best c gives the error eS = B (eR +
    sqrt(pi / 8n) erfcx(sqrt(2n) eR)), a little above B eR. `thresholds` is then ignored.

    `size_bound` B is the size of that region: the number of classes, or the length of the response range.
    """
    risk, size = as_positive(risk_error, name="risk_error"), as_positive(size_error, name="size_error")
    one_row = tuning_accuracy(
        1, candidates=candidates, size_bound=size_bound, delta=delta, method=method, thresholds=thresholds
    )
    # Both errors shrink as 1 / sqrt(n); the last factor keeps a value that is whole up to rounding from going up by one.
    return math.ceil(max((one_row.risk_error / risk) ** 2, (one_row.size_error / size) ** 2) * (1 - 1e-14))


def tuning_accuracy(
    n_tune: SupportsIndex,
    *,
    candidates: SupportsIndex,
    size_bound: float,
    delta: Level = 0.05,
    method: TuningMethod = "uniform",
    thresholds: SupportsIndex = 80,
) -> TuningAccuracy:
    """The errors that `n_tune` rows certify: `tuning_sample_size` solved for the accuracy."""
    n, pairs = as_count(n_tune, name="n_tune", least=1), as_count(candidates, name="candidates", least=1)
    bound, failure = as_positive(size_bound, name="size_bound"), float(as_rational(delta, name="delta"))
    if method not in ("uniform", "paper"):
        raise ValueError(f'method must be "uniform" or "paper", got {method!r}.')
    if method == "paper":
        pairs *= as_count(thresholds, name="thresholds", least=1)
    risk = size = math.sqrt(math.log(4 * pairs / failure) / (2 * n))
    if method == "uniform":
        size += math.sqrt(math.pi / (8 * n)) * float(erfcx(math.sqrt(2 * n) * risk))
    return TuningAccuracy(risk, bound * size, method)


def quantile_accuracy(
    n_cal: SupportsIndex, *, alpha: Level, density: float, distance: float, method: QuantileMethod = "exact"
) -> float:
    """A bound on P(|q - q*| > distance): q the conformal threshold, q* the population quantile of the scores.

    `density` is a lower bound c on the density of scores within `distance` t of q*. ``"paper"`` is Lemma B.3, 2 exp(-2n (ct
    - 2/n)_+^2). ``"exact"`` counts scores below q* + t and q* - t: P(Bin(n, p + ct) <= k - 1) + P(Bin(n, p - ct) >= k), p =
    1 - alpha; it is the probability itself when the density is c throughout. Both are cut at 1, which is also the answer
    when n is too small for a finite threshold.
    """
    n, level = as_count(n_cal, name="n_cal"), as_rational(alpha)
    mass = as_positive(density, name="density") * as_positive(distance, name="distance")
    rank, p = conformal_rank(n, alpha=level), float(1 - level)
    if method not in ("exact", "paper"):
        raise ValueError(f'method must be "exact" or "paper", got {method!r}.')
    if rank > n:
        return 1.0
    if method == "paper":
        return min(1.0, 2 * math.exp(-2 * n * max(mass - 2 / n, 0.0) ** 2))
    above = float(betaincc(rank, n + 1 - rank, min(p + mass, 1.0)))  # P(Bin(n, p + ct) <= k - 1)
    below = float(betainc(rank, n + 1 - rank, max(p - mass, 0.0)))  # P(Bin(n, p - ct) >= k)
    return min(1.0, above + below)


def quantile_distance(
    n_cal: SupportsIndex, *, alpha: Level, density: float, delta: Level, method: QuantileMethod = "exact"
) -> float:
    """The distance that q keeps from q* with probability at least 1 - delta: `quantile_accuracy` solved for `distance`.

    Infinite when n is too small for a finite threshold. The density bound must hold that far on both sides.
    """
    n, level = as_count(n_cal, name="n_cal"), as_rational(alpha)
    c, failure = as_positive(density, name="density"), float(as_rational(delta, name="delta"))
    if conformal_rank(n, alpha=level) > n:
        return math.inf
    if method == "paper":
        return (math.sqrt(math.log(2 / failure) / (2 * n)) + 2 / n) / c
    near, far = 0.0, 1.0
    while far - near > 1e-12:  # the bound falls as the mass grows, so bisection finds the one crossing
        middle = (near + far) / 2
        missed = quantile_accuracy(n, alpha=level, density=1.0, distance=middle, method=method)
        near, far = (near, middle) if missed <= failure else (middle, far)
    return far / c


@dataclass(frozen=True)
class RecalibrationBound:
    """How large sets can be after recalibration, against the best candidate (see `size_after_recalibration`).

    With probability at least `probability` the mean size is at most that of the best candidate at coverage `oracle_level`
    plus `size_excess`. ``vacuous`` says that the levels exceed 1 or the excess exceeds the largest set.
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
    """An oracle inequality for the deployed sets (without refit), which the paper leaves open.

    Let eR, eS be the uniform errors of `tuning_accuracy` at `delta`, and u the 1 - calibration_delta quantile of Beta(k, n +
    1 - k). Rank candidates by their tuning size at empirical coverage u + eR. Then, with probability at least 1 - delta -
    calibration_delta, S(phi^, q^) <= min over phi of S(phi, l*_phi(u + 2 eR)) + 2 eS, where l*_phi(v) is the population
    v-quantile of the scores of phi (continuous laws).

    Proof: let l^ be the tuning threshold of phi^ at u + eR. Its coverage is at least u, and that of q^ is below u, so q^ <=
    l^ and S(phi^, q^) <= S(phi^, l^) <= S^(phi^, l^) + eS <= S^(phi, l^_phi) + eS <= S(phi, l^_phi) + 2 eS for every phi;
    and l^_phi <= l*_phi(u + 2 eR).
    """
    accuracy = tuning_accuracy(n_tune, candidates=candidates, size_bound=size_bound, delta=delta)
    failure = as_rational(calibration_delta, name="calibration_delta")
    u = float(coverage_law(n_cal, alpha=alpha, delta=pac_delta).ppf(float(1 - failure)))
    excess, oracle = 2 * accuracy.size_error, u + 2 * accuracy.risk_error
    probability = 1 - as_rational(delta, name="delta") - failure
    return RecalibrationBound(
        coverage_quantile=u,
        ranking_level=u + accuracy.risk_error,
        oracle_level=oracle,
        size_excess=excess,
        probability=float(max(probability, Fraction(0))),
        vacuous=oracle >= 1 or excess >= size_bound or probability <= 0,
    )
