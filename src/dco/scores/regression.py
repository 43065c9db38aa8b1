"""Scores of point, spread and quantile predictions. Their sets are intervals with ends in closed
form.

Scores are computed in float64 whatever the precision of the inputs. `contains` of a set is decided
by the score, so it equals ``observed(prediction, y) <= threshold`` exactly. The ends are the same
inequality solved for y and rounded outwards: no member lies beyond them, and they lie a few units
in the last place beyond the outermost member (`_raised`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats, as_float_targets
from dco.foundations.errors import IncompatibleScoreError
from dco.predictions import GaussianMixtures, Points, PointsWithSpread, Prediction, Quantiles
from dco.scores.densities.mixtures import mean_and_sd
from dco.scores.registry import register
from dco.scores.score import Score, at_most, expect
from dco.scores.thresholds import AnyThreshold, thresholds_of_rows
from dco.sets.intervals import Intervals


@dataclass(frozen=True)
class AbsoluteResidual(Score):
    """|y - mean|: every interval has the same width, 2 t.

    Reads any record with a centre; for Gaussian mixtures that is the posterior predictive mean.
    """

    needs: ClassVar[tuple[type, ...]] = (Points, PointsWithSpread, GaussianMixtures)

    def observed(self, prediction: Prediction, y: ArrayLike) -> Floats:
        """|y - mean|, (n,)."""
        return _distance(y, expect(self, prediction, *self.needs).centres)

    def sets(self, prediction: Prediction, threshold: AnyThreshold) -> Intervals:
        """[mean - t, mean + t]; empty for t < 0, the whole line for t = inf."""
        mean = np.asarray(expect(self, prediction, *self.needs).centres, dtype=np.float64)
        limit = thresholds_of_rows(threshold, len(mean))
        half = _half_width(_raised(limit, roundings=1), 1.0)
        with np.errstate(over="ignore"):
            return Intervals(mean - half, mean + half, at_most(self, prediction, limit))

    def sizes(self, prediction: Prediction, threshold: AnyThreshold) -> Floats:
        """2 t per row, without building the intervals."""
        limit = thresholds_of_rows(threshold, len(prediction))
        return np.broadcast_to(2 * np.maximum(limit, 0.0), (len(prediction),)).astype(np.float64)


@dataclass(frozen=True)
class NormalisedResidual(Score):
    """|y - mean| / (spread + floor), Lei et al. (2018). A larger floor evens out the widths.

    Where spread + floor is 0 the score is 0 at the mean and +inf elsewhere. For Gaussian mixtures
    mean and spread are the mean and the standard deviation of the posterior predictive.
    """

    floor: float = 0.0
    needs: ClassVar[tuple[type, ...]] = (PointsWithSpread, GaussianMixtures)

    def __post_init__(self) -> None:
        if not (isinstance(self.floor, Real) and math.isfinite(self.floor) and self.floor >= 0):
            raise ValueError(f"floor must be a finite number >= 0, got {self.floor!r}.")

    def observed(self, prediction: Prediction, y: ArrayLike) -> Floats:
        """|y - mean| / (spread + floor), (n,)."""
        mean, scale = self._mean_and_scale(prediction)
        deviation = _distance(y, mean)
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            scores: Floats = deviation / scale
        if scale.size and scale.min() == 0:
            scores[(scale == 0) & (deviation == 0)] = 0.0
        return scores

    def sets(self, prediction: Prediction, threshold: AnyThreshold) -> Intervals:
        """mean -+ t (spread + floor); empty for t < 0, the whole line for t = inf."""
        mean, scale = self._mean_and_scale(prediction)
        limit = thresholds_of_rows(threshold, len(mean))
        half = _half_width(_raised(limit, roundings=3), scale)
        with np.errstate(over="ignore"):
            return Intervals(mean - half, mean + half, at_most(self, prediction, limit))

    def sizes(self, prediction: Prediction, threshold: AnyThreshold) -> Floats:
        """2 t (spread + floor) per row, without building the intervals."""
        _, scale = self._mean_and_scale(prediction)
        half = _half_width(thresholds_of_rows(threshold, len(scale)), scale)
        with np.errstate(over="ignore"):
            return np.broadcast_to(2 * np.maximum(half, 0.0), scale.shape).astype(
                np.float64, copy=False
            )

    def _mean_and_scale(self, prediction: Prediction) -> tuple[Floats, Floats]:
        mean: Floats
        spread: Floats
        record: PointsWithSpread | GaussianMixtures = expect(self, prediction, *self.needs)
        if isinstance(record, GaussianMixtures):
            mean, spread = mean_and_sd(record)
        else:
            mean, spread = (
                np.asarray(record.mean, dtype=np.float64),
                np.asarray(record.spread, dtype=np.float64),
            )
        return mean, spread + self.floor if self.floor else spread


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
        """The larger of the two signed (and scaled) distances, (n,)."""
        lower, upper = self._ends(prediction)
        value = as_float_targets(y, len(lower))
        with np.errstate(over="ignore", under="ignore"):
            under, over = lower - value, value - upper
            if self.kind != "plain":
                below, above = self._units(prediction)
                under /= below
                over /= above
        return np.maximum(under, over, out=under)

    def sets(self, prediction: Prediction, threshold: AnyThreshold) -> Intervals:
        """[lower - t d, upper + t e] with the denominators d and e of the kind; empty where the
        ends cross.
        """
        lower, upper = self._ends(prediction)
        limit = thresholds_of_rows(threshold, len(lower))
        member = at_most(self, prediction, limit)
        with np.errstate(over="ignore", under="ignore"):
            if self.kind == "plain":
                shift = _raised(limit, roundings=1)
                return Intervals(lower - shift, upper + shift, member)
            below, above = self._units(prediction)
            factor = _raised(limit, roundings=3)
            above *= factor
            if below is not above:
                below *= factor
            return Intervals(lower - below, np.add(upper, above, out=above), member)

    def sizes(self, prediction: Prediction, threshold: AnyThreshold) -> Floats:
        """upper - lower + t (d + e) per row, 0 where the ends cross."""
        lower, upper = self._ends(prediction)
        limit = thresholds_of_rows(threshold, len(lower))
        with np.errstate(over="ignore", under="ignore"):
            lengths = upper - lower
            if self.kind == "plain":
                lengths += 2 * limit
            else:
                below, above = self._units(prediction)
                lengths += limit * (below + above)
        return np.maximum(lengths, 0.0, out=lengths)

    def _ends(self, prediction: Prediction) -> tuple[Floats, Floats]:
        record = expect(self, prediction, Quantiles)
        return np.asarray(record.lower, dtype=np.float64), np.asarray(
            record.upper, dtype=np.float64
        )

    def _units(self, prediction: Prediction) -> tuple[Floats, Floats]:
        """The denominators below and above, new arrays (one and the same for "relative")."""
        record = expect(self, prediction, Quantiles)
        lower, upper = self._ends(record)
        with np.errstate(over="ignore"):
            if self.kind == "relative":
                width = _floored(upper - lower, lower, upper)
                return width, width
            if record.median is None:
                raise IncompatibleScoreError(
                    'QuantileResidual(kind="median") needs Quantiles with a median; pass median= '
                    "to the prediction record "
                    'or use kind="relative".'
                )
            median = np.asarray(record.median, dtype=np.float64)
            return _floored(median - lower, lower, upper), _floored(upper - median, lower, upper)


def _floored(width: Floats, lower: Floats, upper: Floats) -> Floats:
    """max(width, 1e-8 max(|lower|, |upper|), 1e-300), in place."""
    if not width.size:
        return width
    # three reductions usually show that no row needs its floor, and spare four passes
    if width.min() < max(1e-8 * max(-lower.min(), upper.max()), 1e-300):
        # lower <= upper, so this is the larger of their magnitudes
        size = np.maximum(-lower, upper)
        np.maximum(width, np.maximum(1e-8 * size, 1e-300), out=width)
    return width


def _distance(y: ArrayLike, mean: Floats) -> Floats:
    """|y - mean|, (n,)."""
    same = isinstance(y, np.ndarray) and y.dtype == np.float64 and y.shape == mean.shape
    with np.errstate(over="ignore"):
        deviation: Floats = np.subtract(
            y if same else as_float_targets(y, len(mean)), mean, dtype=np.float64
        )
    return np.abs(deviation, out=deviation)


def _raised(limit: float | Floats, *, roundings: int) -> float | Floats:
    """The threshold t, raised so that ends made from it leave no member out.

    One rounding: a float y with fl(m - y) <= t has m - y < t+, the float after t. So y >= m - t+,
    and as y is a float, y >= fl(m - t+). At 0 and below the normal floats m - y does not round.
    Three: fl(fl(m - y) / s) <= t means m - y <= t s (1 + u)^2 with u = 2^-53, and fl(t' s) is at
    least that for t' >= t (1 + 4u) and at least the float after t. A t that is one number stays
    one, so that the ends cost what they cost when rounded to nearest.
    """
    t = np.asarray(limit, dtype=np.float64)
    ulps, least = (1, 0.0) if roundings == 1 else (3, 2.0**-1073)
    with np.errstate(over="ignore", under="ignore"):
        raised = t * (1 + np.copysign(ulps * 2.0**-52, t)) + least
    return float(raised) if t.ndim == 0 else np.asarray(raised)


def _half_width(limit: float | Floats, scale: float | Floats) -> float | Floats:
    """limit * scale; -inf (which empties the interval) where limit < 0, and +inf where it is +inf,
    0 * inf included.
    """
    if isinstance(limit, float):
        if limit < 0 or limit == np.inf:
            return -np.inf if limit < 0 else np.inf
        with np.errstate(over="ignore", under="ignore"):
            return limit * scale
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.where(
            limit < 0, -np.inf, np.where(limit == np.inf, np.inf, limit.astype(np.float64) * scale)
        )


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
_PLAIN, _RELATIVE = QuantileResidual(), QuantileResidual(kind="relative")
register(
    QuantileResidual,
    name="quantile",
    defaults=(_PLAIN, _RELATIVE, QuantileResidual(kind="median")),
    named=(_PLAIN, _RELATIVE),  # not every model that gives quantiles gives a median
)
