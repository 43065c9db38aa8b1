"""Scores of point, spread and quantile predictions, whose sets are intervals in closed form.

Scores are computed in float64 whatever the precision of the inputs. `contains` of a set is decided
by the score, so it equals ``observed(prediction, y) <= threshold`` exactly. The ends are the same
inequality solved for y and rounded outwards: no member lies beyond them, and they lie a few units
in the last place beyond the outermost member (`_raise_threshold`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Doubles, Floats, as_float_targets
from dco.foundations.errors import IncompatibleScoreError
from dco.predictions import GaussianMixtures, Points, PointsWithSpread, Prediction, Quantiles
from dco.scores.densities.mixtures import mean_and_sd
from dco.scores.registry import register
from dco.scores.score import Score, expect, membership_by_score
from dco.scores.thresholds import AnyThreshold, thresholds_of_rows
from dco.sets.intervals import Intervals

_SMALLEST_DENOMINATOR = 1e-300
_SMALLEST_SHARE = 1e-8  # of a denominator, in units of the larger |end|
_UNIT_IN_LAST_PLACE = 2.0**-52  # of 1: the next float above it is 1 + 2**-52
_TWO_SMALLEST_FLOATS = 2.0**-1073


@dataclass(frozen=True)
class _Rise:
    """By how much a threshold is raised: by so many units in its last place, and an amount."""

    units: int
    smallest: float


# The rise that is enough after so many roundings. Below fl(z) is z rounded, m the mean, s the
# scale, u = 2**-53, and y < m a member (y > m is alike).
#
# 1 rounding: fl(m - y) <= t means m - y < t', the float after t. So y >= m - t', and as y is a
# float, y >= fl(m - t'). At 0 and below the normal floats m - y does not round.
# 3 roundings: fl(fl(m - y) / s) <= t means m - y <= t s (1 + u)**2, and fl(t' s) is at least that
# for t' >= t (1 + 4 u) that is at least the float after t.
_RISES = {
    1: _Rise(units=1, smallest=0.0),
    3: _Rise(units=3, smallest=_TWO_SMALLEST_FLOATS),
}


@dataclass(frozen=True)
class AbsoluteResidual(Score):
    """|y - mean|: every interval has the same width, 2 t.

    Reads any record with a centre; for Gaussian mixtures that is the posterior predictive mean.
    """

    needs: ClassVar[tuple[type, ...]] = (Points, PointsWithSpread, GaussianMixtures)

    def observed(self, prediction: Prediction, y: ArrayLike) -> Floats:
        """Return |y - mean|, (n,)."""
        return _distance(y, expect(self, prediction, *self.needs).centres)

    def sets(self, prediction: Prediction, threshold: AnyThreshold) -> Intervals:
        """Return [mean - t, mean + t]; empty for t < 0, the whole line for t = inf."""
        mean = np.asarray(expect(self, prediction, *self.needs).centres, dtype=np.float64)
        limit = thresholds_of_rows(threshold, len(mean))
        is_member = membership_by_score(self, prediction, limit)

        raised_limit = _raise_threshold(limit, n_roundings=1)
        half_width = _half_width(raised_limit, 1.0)
        with np.errstate(over="ignore"):
            return Intervals(mean - half_width, mean + half_width, is_member)

    def sizes(self, prediction: Prediction, threshold: AnyThreshold) -> Floats:
        """Return 2 t per row, without rounding outwards."""
        limit = thresholds_of_rows(threshold, len(prediction))
        lengths = 2 * np.maximum(limit, 0.0)
        return np.broadcast_to(lengths, (len(prediction),)).astype(np.float64)


@dataclass(frozen=True)
class NormalisedResidual(Score):
    """|y - mean| / (spread + floor)**power, Lei et al. (2018).

    A larger floor and a smaller power even out the widths. Where spread + floor is 0 the score is 0
    at the mean and +inf elsewhere. For Gaussian mixtures mean and spread are the mean and the
    standard deviation of the posterior predictive.
    """

    floor: float = 0.0
    power: float = 1.0
    needs: ClassVar[tuple[type, ...]] = (PointsWithSpread, GaussianMixtures)

    def __post_init__(self) -> None:
        if not 0 < self.power <= 1:
            raise ValueError(f"power must be greater than 0 and at most 1, got {self.power!r}.")
        if not (isinstance(self.floor, Real) and math.isfinite(self.floor) and self.floor >= 0):
            raise ValueError(f"floor must be a finite number >= 0, got {self.floor!r}.")

    def observed(self, prediction: Prediction, y: ArrayLike) -> Floats:
        """Return |y - mean| / (spread + floor)**power, (n,)."""
        mean, scale = self._mean_and_scale(prediction)
        distance = _distance(y, mean)
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            scores: Floats = distance / scale
        if np.any(scale == 0):
            scores[(scale == 0) & (distance == 0)] = 0.0
        return scores

    def sets(self, prediction: Prediction, threshold: AnyThreshold) -> Intervals:
        """Return mean -+ t (spread + floor)**power; empty for t < 0, the whole line for t = inf."""
        mean, scale = self._mean_and_scale(prediction)
        limit = thresholds_of_rows(threshold, len(mean))
        is_member = membership_by_score(self, prediction, limit)

        raised_limit = _raise_threshold(limit, n_roundings=3)
        half_width = _half_width(raised_limit, scale)
        with np.errstate(over="ignore"):
            return Intervals(mean - half_width, mean + half_width, is_member)

    def sizes(self, prediction: Prediction, threshold: AnyThreshold) -> Floats:
        """Return 2 t (spread + floor)**power per row, without rounding outwards."""
        _, scale = self._mean_and_scale(prediction)
        half_width = _half_width(thresholds_of_rows(threshold, len(scale)), scale)
        with np.errstate(over="ignore"):
            lengths = 2 * np.maximum(half_width, 0.0)
        return np.broadcast_to(lengths, scale.shape).astype(np.float64, copy=False)

    def _mean_and_scale(self, prediction: Prediction) -> tuple[Doubles, Doubles]:
        """Return the mean and spread + floor of each row, in double precision."""
        record: PointsWithSpread | GaussianMixtures = expect(self, prediction, *self.needs)
        if isinstance(record, GaussianMixtures):
            mean, spread = mean_and_sd(record)
        else:
            mean = record.mean.astype(np.float64, copy=False)
            spread = record.spread.astype(np.float64, copy=False)
        scale = spread + self.floor
        return mean, scale if self.power == 1 else scale**self.power


@dataclass(frozen=True)
class QuantileResidual(Score):
    """Conformalised quantile regression: how far y lies outside [lower, upper], negative inside.

    - ``"plain"``: max(lower - y, y - upper), Romano et al. (2019). Sets [lower - t, upper + t].
    - ``"relative"`` (CQR-r): the same divided by upper - lower, Sesia and Candès (2020).
    - ``"median"`` (CQR-m): max((lower - y) / (median - lower), (y - upper) / (upper - median)),
      Kivaranovic et al. (2020).

    Denominators are at least 1e-8 max(|lower|, |upper|) and at least 1e-300, so that no row divides
    by zero and the score of a row stays a function of that row alone. A negative threshold shrinks
    the intervals; where the ends cross (t < -1/2 for "relative", t < -1 for "median") the set is
    empty.
    """

    kind: Literal["plain", "relative", "median"] = "plain"
    needs: ClassVar[tuple[type, ...]] = (Quantiles,)

    def __post_init__(self) -> None:
        if self.kind not in ("plain", "relative", "median"):
            raise ValueError(f'kind must be "plain", "relative" or "median", got {self.kind!r}.')

    def observed(self, prediction: Prediction, y: ArrayLike) -> Floats:
        """Return max((lower - y) / d, (y - upper) / e), (n,).

        The denominators d and e are what `_denominators` returns, and 1 for the kind "plain".
        """
        lower, upper = self._ends(prediction)
        value = as_float_targets(y, len(lower))
        with np.errstate(over="ignore", under="ignore"):
            below = lower - value
            above = value - upper
            if self.kind != "plain":
                d, e = self._denominators(prediction)
                below /= d
                above /= e
        return np.maximum(below, above)

    def sets(self, prediction: Prediction, threshold: AnyThreshold) -> Intervals:
        """Return [lower - t d, upper + t e] for the threshold t, empty where the ends cross.

        d and e are what the score divides by below and above; 1 for the kind "plain". t is raised
        a little, so that rounding leaves no member out.
        """
        lower, upper = self._ends(prediction)
        limit = thresholds_of_rows(threshold, len(lower))
        is_member = membership_by_score(self, prediction, limit)
        with np.errstate(over="ignore", under="ignore"):
            if self.kind == "plain":
                t = _raise_threshold(limit, n_roundings=1)
                return Intervals(lower - t, upper + t, is_member)
            d, e = self._denominators(prediction)
            t = _raise_threshold(limit, n_roundings=3)
            return Intervals(lower - t * d, upper + t * e, is_member)

    def sizes(self, prediction: Prediction, threshold: AnyThreshold) -> Floats:
        """Return the length of each row's set, upper - lower + t (d + e), 0 where the ends cross.

        d and e are what the score divides by below and above; 1 for the kind "plain".
        """
        lower, upper = self._ends(prediction)
        limit = thresholds_of_rows(threshold, len(lower))
        with np.errstate(over="ignore", under="ignore"):
            if self.kind == "plain":
                lengths = upper - lower + 2 * limit
            else:
                d, e = self._denominators(prediction)
                lengths = upper - lower + limit * (d + e)
        return np.maximum(lengths, 0.0)

    def _ends(self, prediction: Prediction) -> tuple[Doubles, Doubles]:
        """Return the lower and the upper quantile of each row, in double precision."""
        record = expect(self, prediction, Quantiles)
        return (
            record.lower.astype(np.float64, copy=False),
            record.upper.astype(np.float64, copy=False),
        )

    def _denominators(self, prediction: Prediction) -> tuple[Doubles, Doubles]:
        """Return what the distance below `lower` and that above `upper` are divided by, each (n,).

        Both are upper - lower for "relative"; for "median" they are median - lower and upper -
        median. None is below the smallest that its row may have.
        """
        lower, upper = self._ends(prediction)
        with np.errstate(over="ignore"):
            smallest = smallest_denominators(lower, upper)
            if self.kind == "relative":
                width = np.maximum(upper - lower, smallest)
                return width, width
            median = self._median(prediction)
            return np.maximum(median - lower, smallest), np.maximum(upper - median, smallest)

    def _median(self, prediction: Prediction) -> Doubles:
        record = expect(self, prediction, Quantiles)
        if record.median is None:
            raise IncompatibleScoreError(
                'QuantileResidual(kind="median") needs Quantiles with a median; pass median= '
                'to the prediction record or use kind="relative".'
            )
        return record.median.astype(np.float64, copy=False)


def smallest_denominators(lower: Doubles, upper: Doubles) -> Doubles:
    """Return 1e-8 max(|lower|, |upper|), and at least 1e-300, so that nothing is divided by 0."""
    larger_end = np.maximum(-lower, upper)  # of the two magnitudes, since lower <= upper
    return np.maximum(_SMALLEST_SHARE * larger_end, _SMALLEST_DENOMINATOR)


def _distance(y: ArrayLike, mean: Floats) -> Doubles:
    """Return |y - mean|, (n,)."""
    with np.errstate(over="ignore"):
        difference: Doubles = np.subtract(as_float_targets(y, len(mean)), mean, dtype=np.float64)
    return np.abs(difference, out=difference)


def _raise_threshold(limit: float | Floats, *, n_roundings: int) -> float | Floats:
    """Raise a threshold by a few units in the last place, so that set ends leave no member out.

    A y is a member of a set if its score, as the computer rounds it, is at most the threshold. The
    end of the set is this inequality solved for y, and rounded again: made from the threshold
    itself, it could lie a little too far inside.

    Parameters
    ----------
    limit
        One threshold t, or one for each row.
    n_roundings
        How many operations round: 1 for sets |y - mean| <= t, and 3 for |y - mean| / scale <= t,
        where the division and the product t * scale round as well.
    """
    t = np.asarray(limit, dtype=np.float64)
    rise = _RISES[n_roundings]
    signed_rise = np.copysign(rise.units * _UNIT_IN_LAST_PLACE, t)  # raises t < 0 too
    with np.errstate(over="ignore", under="ignore"):
        raised = t * (1 + signed_rise) + rise.smallest
    return float(raised) if t.ndim == 0 else np.asarray(raised)


def _half_width(limit: float | Floats, scale: float | Floats) -> float | Floats:
    """Return limit * scale, half the width of intervals mean -+ limit * scale.

    `limit` is one threshold, or one for each row. A negative one gives -inf, which makes the
    interval empty. An infinite one gives inf, the whole line, whatever the scale (inf * 0 would
    not be a number).
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        half_width: float | Floats = limit * scale
    if not isinstance(limit, float):
        half_width = np.where(limit == np.inf, np.inf, half_width)
        return np.where(limit < 0, -np.inf, half_width)

    if limit < 0:
        return -np.inf
    return np.inf if limit == np.inf else half_width


register(
    AbsoluteResidual,
    name="absolute",
    defaults=(AbsoluteResidual(),),
    records=(Points, PointsWithSpread),
)
register(
    NormalisedResidual,
    name="normalised",
    defaults=(NormalisedResidual(),),
    records=(PointsWithSpread,),
)
_PLAIN = QuantileResidual()
_RELATIVE = QuantileResidual(kind="relative")
register(
    QuantileResidual,
    name="quantile",
    defaults=(_PLAIN, _RELATIVE, QuantileResidual(kind="median")),
    named=(_PLAIN, _RELATIVE),  # not every model that gives quantiles gives a median
)
