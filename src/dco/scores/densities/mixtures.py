"""Even mixtures of Gaussians: log-density, distribution function, mean and standard deviation.

No array of draws x points is ever made: the work goes in blocks of rows, one point at a time. The
value of a row does not depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from dco.foundations.arrays import Doubles, Floats, Integers
from dco.predictions import GaussianMixtures

BLOCK_SIZE = 1 << 15  # numbers in a working array: 256 KiB, so that a few passes stay in the cache
SMALLEST_TOTAL = 1e-250  # below it, a sum of exponentials is made again with another shift


@dataclass(frozen=True, eq=False)
class Components:
    """The components of some rows: T Gaussians each, (b, T), or (1, T) where rows share them.

    `places` says which of the rows that were asked for these are. A log peak is the log of a
    component's height, its weight 1 / T included.
    """

    places: slice
    means: Doubles
    inverse_sds: Doubles
    log_peaks: Doubles

    @cached_property
    def inverse_of_root_two_sds(self) -> Doubles:
        """1 / (sd sqrt 2): an exponent is minus the square of a distance times this."""
        return np.asarray(self.inverse_sds * np.sqrt(0.5))

    @cached_property
    def highest_log_peak(self) -> Doubles:
        """The largest log peak of each row."""
        return np.asarray(self.log_peaks.max(axis=1))

    @cached_property
    def log_peaks_below_highest(self) -> Doubles:
        """Log peaks less the largest of their row."""
        return self.log_peaks - self.highest_log_peak[:, None]


def component_blocks(mixtures: GaussianMixtures, rows: Integers) -> Iterator[Components]:
    """Give the components of some rows, a few rows at a time."""
    means = mixtures.means.T  # (n, T)
    sds = mixtures.sds.T
    n_draws = means.shape[1]
    step = max(1, BLOCK_SIZE // n_draws)
    if sds.ndim == 1:
        inverse_sds, log_peaks = _inverse_and_log_peaks(sds[None, :], n_draws)

    for start in range(0, len(rows), step):
        places = slice(start, start + step)
        chosen = rows[places]
        if sds.ndim == 2:
            inverse_sds, log_peaks = _inverse_and_log_peaks(sds[chosen], n_draws)
        yield Components(
            places=places,
            means=np.ascontiguousarray(means[chosen], dtype=np.float64),
            inverse_sds=inverse_sds,
            log_peaks=log_peaks,
        )


def _inverse_and_log_peaks(sds: Floats, n_draws: int) -> tuple[Doubles, Doubles]:
    scales = np.ascontiguousarray(sds, dtype=np.float64)
    with np.errstate(over="ignore"):  # 1 / subnormal; 0 * inf would be NaN
        inverse = np.minimum(1.0 / scales, np.finfo(np.float64).max)
    return inverse, -np.log(scales) - np.log(n_draws * np.sqrt(2 * np.pi))


def log_density(mixtures: GaussianMixtures, y: Floats, rows: Integers | None = None) -> Doubles:
    """Return log f_i(y) at one or several points per row: y is (n,) or (n, k).

    With `rows`, point j belongs to row rows[j].
    """
    points = np.asarray(y, dtype=np.float64)
    of_rows = points[:, None] if points.ndim == 1 else points
    chosen = np.arange(len(mixtures)) if rows is None else rows
    values = np.empty(of_rows.shape)
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        for components in component_blocks(mixtures, chosen):
            for column in range(of_rows.shape[1]):
                at = of_rows[components.places, column]
                values[components.places, column] = _log_density_of_block(components, at)
    return values.reshape(points.shape)


def _log_density_of_block(components: Components, at: Doubles) -> Doubles:
    """Return log f at one point per row."""
    terms = components.means - at[:, None]
    terms *= components.inverse_of_root_two_sds
    terms *= terms
    np.subtract(components.log_peaks_below_highest, terms, out=terms)
    np.exp(terms, out=terms)
    total = terms.sum(axis=1)
    values = np.log(total) + components.highest_log_peak

    is_faint = ~(total > SMALLEST_TOTAL)  # NaN too
    if is_faint.any():
        rows = np.flatnonzero(is_faint)
        values[rows] = _log_density_in_the_tail(components, at, rows)
    return values  # type: ignore[no-any-return]


def _log_density_in_the_tail(components: Components, at: Doubles, rows: Integers) -> Doubles:
    """Return log f at one point of some rows, shifted by the largest exponent of each."""
    shares_sds = len(components.inverse_sds) < len(components.means)
    sds_of = np.zeros_like(rows) if shares_sds else rows
    deviations = (components.means[rows] - at[rows, None]) * components.inverse_sds[sds_of]
    exponents = components.log_peaks[sds_of] - 0.5 * np.square(deviations)
    largest = exponents.max(axis=1)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    sums = np.exp(exponents - shift[:, None]).sum(axis=1)
    return np.asarray(np.where(np.isfinite(largest), largest + np.log(sums), largest))


def log_density_and_slope(
    mixtures: GaussianMixtures, rows: Integers, points: Floats
) -> tuple[Doubles, Doubles]:
    """Return log f and its derivative; point j belongs to row rows[j]."""
    values = np.empty(len(points))
    slopes = np.empty(len(points))
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        for components in component_blocks(mixtures, rows):
            places = components.places
            deviations = (components.means - points[places, None]) * components.inverse_sds
            exponents = components.log_peaks - 0.5 * np.square(deviations)
            largest = exponents.max(axis=1, keepdims=True)
            shares = np.exp(exponents - largest)
            total = shares.sum(axis=1)
            values[places] = largest[:, 0] + np.log(total)

            shares *= deviations
            shares *= components.inverse_sds
            slopes[places] = shares.sum(axis=1) / total
    return values, slopes


def distribution(mixtures: GaussianMixtures, y: Floats, rows: Integers | None = None) -> Doubles:
    """Return F_i(y), the mixture's distribution function, at one point per row.

    With `rows`, point j belongs to row rows[j].
    """
    points = np.asarray(y, dtype=np.float64)
    chosen = np.arange(len(mixtures)) if rows is None else rows
    values = np.empty(len(points))
    with np.errstate(over="ignore", under="ignore"):
        for components in component_blocks(mixtures, chosen):
            deviations = points[components.places, None] - components.means
            values[components.places] = ndtr(deviations * components.inverse_sds).mean(axis=1)
    return values


def mean_and_sd(mixtures: GaussianMixtures) -> tuple[Doubles, Doubles]:
    """Return the mean and the standard deviation of each row's mixture.

    The law of total variance: the mean of the variances and the variance of the means.
    """
    means = mixtures.means.T
    mean_of_variances = np.mean(np.square(mixtures.sds.T, dtype=np.float64), axis=-1)
    variance_of_means = means.var(axis=1, dtype=np.float64)
    mean: Doubles = means.mean(axis=1, dtype=np.float64)
    return mean, np.sqrt(variance_of_means + mean_of_variances)


def smallest_sds(mixtures: GaussianMixtures) -> Doubles:
    """Return the smallest sd of each row."""
    smallest = mixtures.sds.T.min(axis=-1)
    return np.broadcast_to(smallest, (len(mixtures),)).astype(np.float64)
