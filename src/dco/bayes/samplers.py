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
from functools import cached_property, lru_cache, partial
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
    """Draw from the posteriors by Gibbs sampling.

    A step draws the two variances given the coefficients, then the coefficients given the
    variances, each from its exact distribution: nothing is tuned and nothing is rejected.

    Returns an array (P, chains, draws, d + 3); its last axis holds the d slopes, the intercept, the
    width b of the prior of the slopes, and the standard deviation τ of the noise.
    """
    n_problems, k = statistics.centre.shape
    conditionals = FullConditionals(
        problems=statistics.repeat(chains),  # one copy per chain
        prior_scales=np.repeat(prior_scales, chains),
    )
    theta = conditionals.scattered_start(rng)
    all_draws = np.empty((draws, n_problems * chains, k + 2))

    for step in range(-warmup, draws):
        noise_variance, b = conditionals.draw_variances(rng, theta)
        theta = conditionals.draw_coefficients(rng, theta, noise_variance, b)
        if step >= 0:
            all_draws[step, :, :k] = theta
            all_draws[step, :, k] = b
            all_draws[step, :, k + 1] = np.sqrt(noise_variance)

    by_problem = all_draws.reshape(draws, n_problems, chains, k + 2)
    return np.ascontiguousarray(by_problem.transpose(1, 2, 0, 3))


@dataclass(frozen=True, eq=False)
class FullConditionals:
    """The distribution of each part of the parameters given the others, for all chains at once.

    `problems` has one problem per chain, `prior_scales` the c of each chain's noise prior. The
    coefficients `theta` are (chains, d + 1): the slopes, then the intercept.
    """

    problems: SufficientStatistics
    prior_scales: Floats

    @property
    def n_slopes(self) -> int:
        """How many slopes a problem has."""
        return int(self.problems.centre.shape[1]) - 1

    @cached_property
    def moment(self) -> Floats:
        """W'y of each problem."""
        return np.asarray(np.einsum("pij,pj->pi", self.problems.gram, self.problems.centre))

    def scattered_start(self, rng: np.random.Generator) -> Floats:
        """Draw a start for each chain around a ridge fit, wider than the posterior.

        So R-hat can see chains that have not met.
        """
        n_chains, k = self.problems.centre.shape
        ridge = np.linalg.solve(self.problems.gram + np.eye(k), self.moment[..., None])[..., 0]
        stretched = ridge * rng.uniform(0, 2, (n_chains, k))
        return np.asarray(stretched + 0.1 * rng.standard_normal((n_chains, k)))

    def draw_variances(self, rng: np.random.Generator, theta: Floats) -> tuple[Floats, Floats]:
        """Draw the noise variance τ² and the width b of each chain, given the coefficients.

        Both are generalised inverse Gaussian: τ² with ((1 - n)/2, 1/c², RSS), since a half-normal τ
        gives τ² the density ∝ (τ²)^(-1/2) exp(-τ²/(2c²)), and b with (1 - d, 2, 2 Σ|θ_j|).
        """
        n_chains = len(theta)
        d = self.n_slopes
        smallest_rss = LEAST_RESIDUAL * self.problems.rows
        rss = np.maximum(self._residual_sums(theta), smallest_rss)
        slope_sum = np.maximum(np.abs(theta[:, :d]).sum(axis=1), SMALLEST_SIZE)

        # One call draws both, the noise variances first.
        both = generalised_inverse_gaussian(
            rng,
            order=np.concatenate([(1 - self.problems.rows) / 2, np.full(n_chains, 1.0 - d)]),
            a=np.concatenate([1 / self.prior_scales**2, np.full(n_chains, 2.0)]),
            b=np.concatenate([rss, 2 * slope_sum]),
        )
        noise_variance, b = both.reshape(2, n_chains)
        return noise_variance, b

    def _residual_sums(self, theta: Floats) -> Floats:
        """Compute the residual sum of squares of each problem at the coefficients."""
        away = theta - self.problems.centre
        pulled = (self.problems.gram @ away[..., None])[..., 0]
        return np.asarray(self.problems.residual + np.sum(away * pulled, axis=1))

    def draw_coefficients(
        self, rng: np.random.Generator, theta: Floats, noise_variance: Floats, b: Floats
    ) -> Floats:
        """Draw the coefficients, which are Gaussian given the noise variance and the width b.

        The Laplace prior is a scale mixture of normals, whose variances are drawn first (Park and
        Casella 2008). In units of the prior standard deviations the precision is I + something:
        well conditioned, however small a prior variance is.
        """
        n_chains, k = theta.shape
        d = self.n_slopes
        prior_sd = np.empty((n_chains, k))
        prior_sd[:, :d] = np.sqrt(laplace_variances(rng, theta[:, :d], b[:, None]))
        prior_sd[:, d] = INTERCEPT_SD

        scaling = (prior_sd / noise_variance[:, None])[:, :, None] * prior_sd[:, None, :]
        precision = self.problems.gram * scaling
        diagonal = np.arange(k)
        precision[:, diagonal, diagonal] += 1

        noise = np.linalg.cholesky(precision) @ rng.standard_normal((n_chains, k, 1))
        pull = (prior_sd * self.moment / noise_variance[:, None])[..., None]
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
