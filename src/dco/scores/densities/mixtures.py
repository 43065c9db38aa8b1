"""Even mixtures of Gaussians: log-density, distribution function, mean and standard deviation.

The density of row i is f_i(y) = (1 / T) sum_t N(y; mean_ti, sd_ti^2). No array of draws x points is
ever made: the work goes in blocks of rows, one point at a time. The value of a row does not depend
on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from dco.foundations.arrays import Bools, Doubles, Floats, Integers
from dco.predictions import GaussianMixtures

BLOCK_SIZE = 1 << 15  # numbers in a working array: 256 KiB, so that a few passes stay in the cache
# a sum of exponentials below this has lost digits to underflow; it is computed again in the tail
SMALLEST_TOTAL = 1e-250


@dataclass(frozen=True, eq=False)
class Components:
    """The Gaussian components of a block of b rows, T for each row.

    - `positions`: where these rows stand among all rows that were asked for
    - `means`: (b, T)
    - `inverse_sds`: 1 / sd, (b, T), or (1, T) if all rows share their sds
    - `log_peaks`: log of each component's largest density, log(1 / (T sd sqrt(2 pi))), same shape
    """

    positions: slice
    means: Doubles
    inverse_sds: Doubles
    log_peaks: Doubles

    @cached_property
    def inverse_of_root_two_sds(self) -> Doubles:
        """1 / (sd sqrt 2), so that (mean - y)^2 / (2 sd^2) is the square of one product."""
        return np.asarray(self.inverse_sds * np.sqrt(0.5))

    @cached_property
    def highest_log_peak(self) -> Doubles:
        """The largest log peak of each row."""
        return np.asarray(self.log_peaks.max(axis=1))

    @cached_property
    def log_peaks_below_highest(self) -> Doubles:
        """Log peaks less the largest of their row: 0 for that component, negative for others."""
        return self.log_peaks - self.highest_log_peak[:, None]


def component_blocks(mixtures: GaussianMixtures, rows: Integers) -> Iterator[Components]:
    """Yield the components of some rows, in blocks that fit into the processor's cache.

    `rows` are row numbers of `mixtures`, in any order and with repeats.
    """
    means = mixtures.means.T  # (n, T)
    sds = mixtures.sds.T  # (n, T), or (T,) if all rows share them
    n_components = means.shape[1]
    has_shared_sds = sds.ndim == 1
    if has_shared_sds:
        inverse_sds, log_peaks = _inverse_and_log_peaks(sds[None, :], n_components)

    rows_per_block = max(1, BLOCK_SIZE // n_components)
    for start in range(0, len(rows), rows_per_block):
        positions = slice(start, start + rows_per_block)
        block_rows = rows[positions]
        if not has_shared_sds:
            inverse_sds, log_peaks = _inverse_and_log_peaks(sds[block_rows], n_components)
        yield Components(
            positions=positions,
            means=np.ascontiguousarray(means[block_rows], dtype=np.float64),
            inverse_sds=inverse_sds,
            log_peaks=log_peaks,
        )


def _inverse_and_log_peaks(sds: Floats, n_components: int) -> tuple[Doubles, Doubles]:
    """Return 1 / sd and log(1 / (T sd sqrt(2 pi))) of each component, T the number of them."""
    scales = np.ascontiguousarray(sds, dtype=np.float64)
    # 1 / sd overflows if sd is subnormal, and 0 * inf would later be NaN
    with np.errstate(over="ignore"):
        inverse = np.minimum(1.0 / scales, np.finfo(np.float64).max)
    return inverse, -np.log(scales) - np.log(n_components * np.sqrt(2 * np.pi))


def log_density(mixtures: GaussianMixtures, y: Floats, rows: Integers | None = None) -> Doubles:
    """Compute log f_i(y), the log density of row i's mixture, at one or several points per row.

    Parameters
    ----------
    mixtures : one mixture of Gaussians per row
    y : (n,) for one point per row, or (n, k) for k points per row
    rows : (n,), the row number i of each entry of y; without it, all rows in their order

    Returns
    -------
    An array of the shape of y.
    """
    points = np.asarray(y, dtype=np.float64)
    point_columns = points[:, None] if points.ndim == 1 else points
    if rows is None:
        rows = np.arange(len(mixtures))

    values = np.empty(point_columns.shape)
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        for components in component_blocks(mixtures, rows):
            block = components.positions
            for column in range(point_columns.shape[1]):
                values[block, column] = _log_density_of_block(
                    components, point_columns[block, column]
                )
    return values.reshape(points.shape)


def _log_density_of_block(components: Components, y: Doubles) -> Doubles:
    """Compute log f(y) of a block of rows, at one point y per row.

    f is the density of a row's mixture of T Gaussians. Let p_t be the log of component t's largest
    density, at its mean, and h the largest p_t of the row:

        log f(y) = h + log(total),   total = sum_t exp(p_t - h - ((mean_t - y) / (sd_t sqrt 2))^2)

    Far from all means the total underflows; such rows are computed by a slower way.
    """
    # 1. The terms of the sum. All steps write into one array (b, T), which stays in the processor's
    # cache: every search spends most of its time here.
    terms = components.means - y[:, None]
    terms *= components.inverse_of_root_two_sds
    terms *= terms
    np.subtract(components.log_peaks_below_highest, terms, out=terms)
    np.exp(terms, out=terms)

    # 2. The sum and its logarithm.
    total = terms.sum(axis=1)
    values = np.log(total) + components.highest_log_peak

    # 3. Compute underflown rows again. "not >" so that a total that is NaN is one of them.
    is_underflown = ~(total > SMALLEST_TOTAL)
    if is_underflown.any():
        values[is_underflown] = _log_density_in_the_tail(components, y, is_underflown)
    return values  # type: ignore[no-any-return]


def _log_density_in_the_tail(components: Components, y: Doubles, is_in_tail: Bools) -> Doubles:
    """Compute log f(y) for those rows of a block where it is so small that exponentials underflow.

    y has a point for every row of the block; the result has the rows that `is_in_tail` marks. With
    the exponents e_t = p_t - (mean_t - y)^2 / (2 sd_t^2), p_t the log of component t's largest
    density, and e = max_t e_t:

        log f(y) = e + log(sum_t exp(e_t - e))
    """
    shape = components.means.shape  # sds may have a single row, which all rows share
    inverse_sds = np.broadcast_to(components.inverse_sds, shape)[is_in_tail]
    log_peaks = np.broadcast_to(components.log_peaks, shape)[is_in_tail]
    deviations = (components.means[is_in_tail] - y[is_in_tail, None]) * inverse_sds
    exponents = log_peaks - 0.5 * np.square(deviations)
    largest = exponents.max(axis=1)

    # an infinite y has exponents of -inf only, and -inf - (-inf) would be NaN
    is_finite = np.isfinite(largest)
    shift = np.where(is_finite, largest, 0.0)
    total = np.exp(exponents - shift[:, None]).sum(axis=1)
    return np.asarray(np.where(is_finite, largest + np.log(total), largest))


def log_density_and_slope(
    mixtures: GaussianMixtures, rows: Integers, y: Floats
) -> tuple[Doubles, Doubles]:
    """Compute log f and its derivative (log f)' at points y; point j belongs to row rows[j].

    With z_t = (mean_t - y) / sd_t, e_t = p_t - z_t^2 / 2 (p_t the log peak) and e = max_t e_t:

        log f(y)    = e + log(total),                          total = sum_t exp(e_t - e)
        (log f)'(y) = sum_t exp(e_t - e) z_t / sd_t / total
    """
    values = np.empty(len(y))
    slopes = np.empty(len(y))
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        for components in component_blocks(mixtures, rows):
            block = components.positions
            z = (components.means - y[block, None]) * components.inverse_sds
            exponents = components.log_peaks - 0.5 * np.square(z)
            largest = exponents.max(axis=1, keepdims=True)
            terms = np.exp(exponents - largest)
            total = terms.sum(axis=1)

            values[block] = largest[:, 0] + np.log(total)
            slopes[block] = (terms * z * components.inverse_sds).sum(axis=1) / total
    return values, slopes


def distribution(mixtures: GaussianMixtures, y: Floats, rows: Integers | None = None) -> Doubles:
    """Compute F_i(y) = (1 / T) sum_t Phi((y - mean_t) / sd_t), the mixture's distribution function.

    `y` has one point per row of `mixtures`; with `rows`, point j belongs to row rows[j].
    """
    points = np.asarray(y, dtype=np.float64)
    if rows is None:
        rows = np.arange(len(mixtures))

    values = np.empty(len(points))
    with np.errstate(over="ignore", under="ignore"):
        for components in component_blocks(mixtures, rows):
            block = components.positions
            z = (points[block, None] - components.means) * components.inverse_sds
            values[block] = ndtr(z).mean(axis=1)
    return values


def mean_and_sd(mixtures: GaussianMixtures) -> tuple[Doubles, Doubles]:
    """Return the mean and the standard deviation of each row's mixture.

    The law of total variance: the variance is the mean of the components' variances plus the
    variance of their means.
    """
    means = mixtures.means.T
    mean_of_variances = np.mean(np.square(mixtures.sds.T, dtype=np.float64), axis=-1)
    variance_of_means = means.var(axis=1, dtype=np.float64)
    mean: Doubles = means.mean(axis=1, dtype=np.float64)
    return mean, np.sqrt(variance_of_means + mean_of_variances)


def smallest_sds(mixtures: GaussianMixtures) -> Doubles:
    """Return the smallest sd of each row's components, (n,)."""
    smallest = mixtures.sds.T.min(axis=-1)
    return np.broadcast_to(smallest, (len(mixtures),)).astype(np.float64)
