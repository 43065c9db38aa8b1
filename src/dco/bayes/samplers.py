"""Posterior draws of many sparse regressions at once, by Gibbs steps or by NumPyro's NUTS.

    y | θ, θ₀, τ ~ N(x'θ + θ₀, τ²),   θ_j ~ Laplace(0, b),   b ~ Gamma(1, 1),   τ ~ HalfNormal(c),
    θ₀ ~ N(0, 10²)

The likelihood depends on the rows only through the Gram matrix, the least-squares solution, its
residual sum of squares and the number of rows, so a step costs O(d³) whatever the number of rows,
and many problems run side by side in one array.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dco.bayes.random_variates import (
    SMALLEST_SIZE,
    generalised_inverse_gaussian,
    laplace_variances,
)
from dco.foundations.arrays import Floats, Integers
from dco.foundations.extras import require

INTERCEPT_SD = 10.0
# Residuals this far below the spread of y are rounding errors of the sums: a perfect fit has no
# proper posterior for τ.
LEAST_RESIDUAL = 1e-12


@dataclass(frozen=True, eq=False)
class SufficientStatistics:
    """The sums over rows that the sampler needs, of P regression problems with d slopes each.

    The last of the k = d + 1 columns is the intercept. The residual sum of squares at θ is residual
    + (θ - centre)' gram (θ - centre), which takes no difference of large numbers.

    Attributes
    ----------
    gram
        (P, k, k): W'W, where W is the inputs and a column of ones.
    centre
        (P, k): a least-squares solution.
    residual
        (P,): its residual sum of squares.
    rows
        (P,): how many rows there are.
    """

    gram: Floats
    centre: Floats
    residual: Floats
    rows: Integers

    @classmethod
    def of(cls, datasets: Iterable[tuple[Floats, Floats]]) -> SufficientStatistics:
        """Sum up (inputs, targets) pairs that share their number of columns."""
        grams = []
        centres = []
        residuals = []
        rows = []
        for inputs, targets in datasets:
            design = np.column_stack([inputs, np.ones(len(targets))])
            centre = np.linalg.lstsq(design, targets, rcond=None)[0]
            grams.append(design.T @ design)
            centres.append(centre)
            residuals.append(np.sum((targets - design @ centre) ** 2))
            rows.append(len(targets))
        return cls(
            gram=np.asarray(grams),
            centre=np.asarray(centres),
            residual=np.asarray(residuals),
            rows=np.asarray(rows),
        )

    def take(self, problems: Integers) -> SufficientStatistics:
        """Return some of the problems, in this order."""
        return SufficientStatistics(
            gram=self.gram[problems],
            centre=self.centre[problems],
            residual=self.residual[problems],
            rows=self.rows[problems],
        )

    def repeat(self, times: int) -> SufficientStatistics:
        """Return every problem several times, one copy after the other."""
        return self.take(np.repeat(np.arange(len(self.rows)), times))


def gibbs_draws(
    statistics: SufficientStatistics,
    prior_scales: Floats,
    *,
    chains: int,
    draws: int,
    warmup: int,
    rng: np.random.Generator,
) -> Floats:
    """Draw from the posteriors by exact Gibbs steps: (P, chains, draws, d + 3).

    The last axis holds slopes, intercept, b and τ. One scan draws from full conditionals only, so
    nothing is tuned and nothing is rejected: τ² | θ is generalised inverse Gaussian((1 - n)/2,
    1/c², RSS), because a half-normal τ gives τ² the density ∝ (τ²)^(-1/2) exp(-τ²/(2c²)); b | θ is
    generalised inverse Gaussian(1 - d, 2, 2 Σ|θ_j|); then come the Laplace prior as a scale mixture
    of normals (Park and Casella 2008), and the Gaussian (θ, θ₀) given the rest.
    """
    n_problems, k = statistics.centre.shape
    d = k - 1
    problems = statistics.repeat(chains)  # one copy per chain
    n_chains = n_problems * chains
    scales = np.repeat(prior_scales, chains)

    # The two generalised inverse Gaussians, τ² and b, are drawn in one call.
    orders = np.concatenate([(1 - problems.rows) / 2, np.full(n_chains, 1.0 - d)])
    linear = np.concatenate([1 / scales**2, np.full(n_chains, 2.0)])
    smallest_rss = LEAST_RESIDUAL * problems.rows
    moment = np.einsum("pij,pj->pi", problems.gram, problems.centre)

    theta = _scattered_start(problems, moment, rng)
    kept = np.empty((draws, n_chains, k + 2))
    for step in range(-warmup, draws):
        rss = np.maximum(_residual_sums(problems, theta), smallest_rss)
        slope_sum = np.maximum(np.abs(theta[:, :d]).sum(axis=1), SMALLEST_SIZE)
        reciprocal = np.concatenate([rss, 2 * slope_sum])
        both = generalised_inverse_gaussian(rng, orders, linear, reciprocal)
        variance, b = both.reshape(2, n_chains)

        theta = _draw_coefficients(rng, problems.gram, moment, theta, variance=variance, b=b)
        if step >= 0:
            kept[step, :, :k] = theta
            kept[step, :, k] = b
            kept[step, :, k + 1] = np.sqrt(variance)

    by_problem = kept.reshape(draws, n_problems, chains, k + 2)
    return np.ascontiguousarray(by_problem.transpose(1, 2, 0, 3))


def _scattered_start(
    problems: SufficientStatistics, moment: Floats, rng: np.random.Generator
) -> Floats:
    """Scatter chains around a ridge fit, wider than the posterior.

    So R-hat can see chains that have not met.
    """
    n_chains, k = problems.centre.shape
    ridge = np.linalg.solve(problems.gram + np.eye(k), moment[..., None])[..., 0]
    stretched = ridge * rng.uniform(0, 2, (n_chains, k))
    return np.asarray(stretched + 0.1 * rng.standard_normal((n_chains, k)))


def _residual_sums(problems: SufficientStatistics, theta: Floats) -> Floats:
    """Compute the residual sum of squares of each problem at the coefficients `theta`."""
    away = theta - problems.centre
    pulled = (problems.gram @ away[..., None])[..., 0]
    return np.asarray(problems.residual + np.sum(away * pulled, axis=1))


def _draw_coefficients(
    rng: np.random.Generator,
    gram: Floats,
    moment: Floats,
    theta: Floats,
    *,
    variance: Floats,
    b: Floats,
) -> Floats:
    """Draw the Gaussian coefficients given the noise variance and the width b of their prior.

    In units of the prior standard deviations the precision is I + something: well conditioned,
    however small a prior variance is.
    """
    n_chains, k = theta.shape
    d = k - 1
    prior_sd = np.empty((n_chains, k))
    prior_sd[:, :d] = np.sqrt(laplace_variances(rng, theta[:, :d], b[:, None]))
    prior_sd[:, d] = INTERCEPT_SD

    scaling = (prior_sd / variance[:, None])[:, :, None] * prior_sd[:, None, :]
    precision = gram * scaling
    diagonal = np.arange(k)
    precision[:, diagonal, diagonal] += 1

    noise = np.linalg.cholesky(precision) @ rng.standard_normal((n_chains, k, 1))
    pull = (prior_sd * moment / variance[:, None])[..., None]
    return np.asarray(prior_sd * np.linalg.solve(precision, pull + noise)[..., 0])


def nuts_draws(
    statistics: SufficientStatistics,
    prior_scales: Floats,
    *,
    chains: int,
    draws: int,
    warmup: int,
    seed: int,
) -> Floats:
    """Draw from the same posteriors by NumPyro's NUTS, in the layout of `gibbs_draws`.

    All problems and chains run in one program, compiled once for each shape and kept for the
    process. Single precision suffices: the residual sum of squares is a sum of squares.
    """
    jax = require("jax", extra="bayes")
    n_problems, k = statistics.centre.shape
    problems = statistics.repeat(chains)  # one copy per chain
    keys = jax.random.split(jax.random.key(seed), n_problems * chains)
    arrays = (
        problems.gram,
        problems.centre,
        problems.residual,
        problems.rows,
        np.repeat(prior_scales, chains),
    )

    program = _nuts_program(k, draws, warmup)
    raw = program(keys, *(np.asarray(array, dtype=np.float32) for array in arrays))
    free = np.asarray(raw, dtype=np.float64).reshape(n_problems, chains, draws, k + 2)
    coefficients = free[..., :k]
    widths = np.exp(free[..., k:])  # b and τ, sampled as logarithms
    return np.concatenate([coefficients, widths], axis=-1)


@lru_cache(maxsize=16)
def _nuts_program(k: int, draws: int, warmup: int) -> Any:
    """Compile NUTS for problems with k - 1 slopes; one call runs all chains."""
    jax = require("jax", extra="bayes")
    jnp = require("jax.numpy", extra="bayes")
    hmc = require("numpyro.infer.hmc", extra="bayes").hmc
    fori_collect = require("numpyro.util", extra="bayes").fori_collect
    d = k - 1

    def potential_of(gram: Any, centre: Any, residual: Any, rows: Any, prior_scale: Any) -> Any:
        def potential(z: Any) -> Any:
            log_b = z[k]
            log_tau = z[k + 1]
            b = jnp.exp(log_b)
            tau = jnp.exp(log_tau)
            away = z[:k] - centre
            rss = residual + away @ gram @ away

            log_density = -rows * log_tau - 0.5 * rss / tau**2 - 0.5 * (z[d] / INTERCEPT_SD) ** 2
            log_density -= jnp.abs(z[:d]).sum() / b + d * log_b
            # Gamma(1, 1) on b and the half-normal on τ, each with the Jacobian of its logarithm.
            return -(log_density - b + log_b - 0.5 * (tau / prior_scale) ** 2 + log_tau)

        return potential

    initialise, step = hmc(potential_fn_gen=potential_of, algo="NUTS")

    def run(key: Any, *problem: Any) -> Any:
        key_start, key_run = jax.random.split(key)
        # NumPyro's own default start.
        start = jax.random.uniform(key_start, (k + 2,), minval=-2.0, maxval=2.0)
        state = initialise(
            start, num_warmup=warmup, dense_mass=True, rng_key=key_run, model_args=problem
        )
        return fori_collect(
            warmup,
            warmup + draws,
            partial(step, model_args=problem),
            state,
            transform=lambda current: current.z,
            progbar=False,
        )

    return jax.jit(jax.vmap(run))
