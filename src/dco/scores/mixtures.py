"""Even mixtures of Gaussians on the line: log-density, distribution function, mean and standard
deviation.

No array of draws x points is ever made: the work goes in blocks of rows, one point at a time. The
value of a row does not depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dco.foundations.arrays import Floats, Integers
from dco.predictions import GaussianMixtures

F64: TypeAlias = NDArray[np.float64]

# numbers in a working array: 256 KiB, so that a node's few passes stay in the cache
BLOCK = 1 << 15


def blocks_of(mixtures: GaussianMixtures, rows: Integers) -> Iterator[tuple[slice, F64, F64, F64]]:
    """The given rows, a few at a time: where they are, their means (b, T), inverse sds and log
    peaks (1, T) or (b, T).

    The log peak of a component is the log of its height, its weight 1 / T included.
    """
    draws = mixtures.means.shape[1]
    step = max(1, BLOCK // draws)
    shared = _components(mixtures.sds[None, :], draws) if mixtures.sds.ndim == 1 else None
    for start in range(0, len(rows), step):
        where = slice(start, start + step)
        chosen = rows[where]
        inverse, peaks = shared if shared is not None else _components(mixtures.sds[chosen], draws)
        yield where, np.ascontiguousarray(mixtures.means[chosen], dtype=np.float64), inverse, peaks


def _components(sds: Floats, draws: int) -> tuple[F64, F64]:
    scales = np.ascontiguousarray(sds, dtype=np.float64)
    with np.errstate(over="ignore"):
        # 1 / subnormal; 0 * inf would be NaN
        inverse = np.minimum(1.0 / scales, np.finfo(np.float64).max)
    return inverse, -np.log(scales) - np.log(draws * np.sqrt(2 * np.pi))


def log_density(mixtures: GaussianMixtures, y: Floats, rows: Integers | None = None) -> F64:
    """log f_i(y) at one or several points per row: y is (n,) or (n, k). With `rows`, point j
    belongs to row rows[j].
    """
    points = np.asarray(y, dtype=np.float64)
    chosen = np.arange(len(mixtures)) if rows is None else rows
    result = np.empty(points.shape)
    flat_points, flat_result = (a[:, None] if a.ndim == 1 else a for a in (points, result))
    work = np.empty((0, 0))
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        for where, means, inverse, peaks in blocks_of(mixtures, chosen):
            if work.shape != means.shape:  # the last block is shorter
                work = np.empty(means.shape)
            scaled = inverse * np.sqrt(0.5)
            top = peaks.max(axis=1)
            relative = peaks - top[:, None]
            for column in range(flat_points.shape[1]):
                at = flat_points[where, column]
                np.subtract(means, at[:, None], out=work)
                work *= scaled
                work *= work
                np.subtract(relative, work, out=work)
                np.exp(work, out=work)
                total = work.sum(axis=1)
                values = np.log(total) + top
                # far in the tail: shift by the largest exponent instead
                faint = np.flatnonzero(~(total > 1e-250))
                if faint.size:
                    values[faint] = _log_density_in_the_tail(means, inverse, peaks, at, faint)
                flat_result[where, column] = values
    return result


def _log_density_in_the_tail(means: F64, inverse: F64, peaks: F64, at: F64, faint: Integers) -> F64:
    pick = faint if len(inverse) == len(means) else np.zeros_like(faint)
    deviations = (means[faint] - at[faint, None]) * inverse[pick]
    exponents = peaks[pick] - 0.5 * np.square(deviations)
    most = exponents.max(axis=1)
    sums = np.exp(exponents - np.where(np.isfinite(most), most, 0.0)[:, None]).sum(axis=1)
    return np.asarray(np.where(np.isfinite(most), most + np.log(sums), most))


def log_density_and_slope(
    mixtures: GaussianMixtures, rows: Integers, points: Floats
) -> tuple[F64, F64]:
    """log f and its derivative; point j belongs to row rows[j]."""
    values, slopes = np.empty(len(points)), np.empty(len(points))
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        for where, means, inverse, peaks in blocks_of(mixtures, rows):
            deviations = (means - points[where, None]) * inverse
            exponents = peaks - 0.5 * np.square(deviations)
            most = exponents.max(axis=1, keepdims=True)
            shares = np.exp(exponents - most)
            total = shares.sum(axis=1)
            values[where] = most[:, 0] + np.log(total)
            shares *= deviations
            shares *= inverse
            slopes[where] = shares.sum(axis=1) / total
    return values, slopes


def distribution(mixtures: GaussianMixtures, y: Floats, rows: Integers | None = None) -> F64:
    """F_i(y), the mixture's distribution function; point j belongs to row rows[j] (row j without
    `rows`).
    """
    points = np.asarray(y, dtype=np.float64)
    chosen = np.arange(len(mixtures)) if rows is None else rows
    result = np.empty(len(points))
    with np.errstate(over="ignore", under="ignore"):
        for where, means, inverse, _ in blocks_of(mixtures, chosen):
            result[where] = ndtr((points[where, None] - means) * inverse).mean(axis=1)
    return result


def mean_and_sd(mixtures: GaussianMixtures) -> tuple[F64, F64]:
    """The mean and the standard deviation of each row's mixture.

    The law of total variance: the mean of the variances and the variance of the means.
    """
    mean = mixtures.means.mean(axis=1, dtype=np.float64)
    variance = mixtures.means.var(axis=1, dtype=np.float64) + np.mean(
        np.square(mixtures.sds, dtype=np.float64), axis=-1
    )
    return mean, np.sqrt(variance)
