"""Posterior draws of many sparse regressions at once, by Gibbs steps or by NumPyro's NUTS.

The model (the paper's "Shared model specification"), for a row with inputs x and target y:

    y | x, θ, θ₀, τ ~ N(x'θ + θ₀, τ²)
    θ_j | b ~ Laplace(0, b),   j = 1, ..., d
    b ~ Gamma(1, 1),   τ ~ HalfNormal(c),   θ₀ ~ N(0, 10²)

In the code `beta` is β = (θ_1, ..., θ_d, θ₀), so it has k = d + 1 entries, and W is the matrix of
inputs with a column of ones. The likelihood depends on the rows only through W'W, the least-squares
solution, its residual sum of squares and the number of rows. So a step costs O(d³) whatever the
number of rows, and many problems run side by side in one array.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from operator import attrgetter
from typing import Any, TypeAlias

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
START_JITTER = 0.1  # sd of the noise on a Gibbs start, in units of the standardised rows
NUTS_START_RADIUS = 2.0  # NumPyro's own default: each coordinate starts uniform on (-2, 2)

JaxArray: TypeAlias = Any  # a jax.Array; JAX is optional, so its types cannot be named here


@dataclass(frozen=True, eq=False)
class SufficientStatistics:
    """All that the samplers need to know of the rows of P regression problems.

    Every problem has d slopes and an intercept, k = d + 1 coefficients, the intercept last. The
    residual sum of squares at coefficients β follows without the rows, and without a difference of
    large numbers:

        RSS(β) = ‖y - Wβ‖² = least_rss + (β - least_squares)' gram (β - least_squares)

    Attributes
    ----------
    gram
        (P, k, k): W'W, where W is the inputs and a column of ones.
    least_squares
        (P, k): a least-squares solution.
    least_rss
        (P,): its residual sum of squares.
    n_rows
        (P,): how many rows there are.
    """

    gram: Floats
    least_squares: Floats
    least_rss: Floats
    n_rows: Integers

    @classmethod
    def from_datasets(cls, datasets: Iterable[tuple[Floats, Floats]]) -> SufficientStatistics:
        """Sum up each (inputs, targets) pair; all must have the same number of inputs."""
        grams = []
        solutions = []
        residual_sums = []
        n_rows = []
        for inputs, targets in datasets:
            W = np.column_stack([inputs, np.ones(len(targets))])
            solution = np.linalg.lstsq(W, targets, rcond=None)[0]
            grams.append(W.T @ W)
            solutions.append(solution)
            residual_sums.append(np.sum((targets - W @ solution) ** 2))
            n_rows.append(len(targets))
        return cls(
            gram=np.asarray(grams),
            least_squares=np.asarray(solutions),
            least_rss=np.asarray(residual_sums),
            n_rows=np.asarray(n_rows),
        )

    def take(self, problems: Integers) -> SufficientStatistics:
        """Return the problems at these positions, in this order."""
        return SufficientStatistics(
            gram=self.gram[problems],
            least_squares=self.least_squares[problems],
            least_rss=self.least_rss[problems],
            n_rows=self.n_rows[problems],
        )

    def repeat(self, times: int) -> SufficientStatistics:
        """Return every problem several times, one copy after the other."""
        return self.take(np.repeat(np.arange(len(self.n_rows)), times))


# ---- Gibbs sampling, in NumPy


def gibbs_draws(
    statistics: SufficientStatistics,
    prior_scales: Floats,
    *,
    chains: int,
    draws: int,
    warmup: int,
    rng: np.random.Generator,
) -> Floats:
    """Draw from the posterior of every regression problem by Gibbs sampling.

    A step draws τ² and b given the coefficients β, then β given τ² and b, each from its exact
    distribution: nothing is tuned and nothing is rejected. All problems and chains step together.

    Parameters
    ----------
    statistics
        The P problems, each with d slopes.
    prior_scales
        (P,): the scale c of each problem's prior τ ~ HalfNormal(c).
    chains, draws, warmup
        How many chains a problem gets, how many draws each chain keeps, and how many steps it
        makes before the first one that is kept.

    Returns
    -------
    (P, chains, draws, d + 3). The last axis holds the d slopes, the intercept, b and τ.
    """
    n_problems, k = statistics.least_squares.shape
    conditionals = FullConditionals(
        problems=statistics.repeat(chains),  # one copy per chain
        prior_scales=np.repeat(prior_scales, chains),
    )
    beta = conditionals.draw_start(rng)
    all_draws = np.empty((draws, n_problems * chains, k + 2))

    for step in range(-warmup, draws):
        noise_variance, b = conditionals.draw_variances(rng, beta)
        beta = conditionals.draw_coefficients(rng, beta, noise_variance, b)
        if step >= 0:  # the warm-up is over
            all_draws[step, :, :k] = beta
            all_draws[step, :, k] = b
            all_draws[step, :, k + 1] = np.sqrt(noise_variance)

    by_problem = all_draws.reshape(draws, n_problems, chains, k + 2)
    return np.ascontiguousarray(by_problem.transpose(1, 2, 0, 3))


@dataclass(frozen=True, eq=False)
class FullConditionals:
    """The distribution of each part of the parameters given the others, for all chains at once.

    `problems` has one problem per chain, `prior_scales` the c of each chain's prior of τ. The
    coefficients `beta` are (chains, d + 1): the slopes θ, then the intercept θ₀.
    """

    problems: SufficientStatistics
    prior_scales: Floats

    @property
    def n_slopes(self) -> int:
        """The number d of slopes of a problem."""
        return int(self.problems.least_squares.shape[1]) - 1

    @cached_property
    def moment(self) -> Floats:
        """W'y of each problem, (chains, d + 1)."""
        return np.asarray(np.einsum("pij,pj->pi", self.problems.gram, self.problems.least_squares))

    def draw_start(self, rng: np.random.Generator) -> Floats:
        """Draw first coefficients for each chain around a ridge fit, wider than the posterior.

        Chains that start far apart and have not met yet show in R-hat.
        """
        n_chains, k = self.problems.least_squares.shape
        ridge = np.linalg.solve(self.problems.gram + np.eye(k), self.moment[..., None])[..., 0]
        stretched = ridge * rng.uniform(0, 2, (n_chains, k))
        return np.asarray(stretched + START_JITTER * rng.standard_normal((n_chains, k)))

    def draw_variances(self, rng: np.random.Generator, beta: Floats) -> tuple[Floats, Floats]:
        """Draw the noise variance τ² and the prior width b of each chain, given its coefficients.

        Let GIG(p, A, B), the generalised inverse Gaussian distribution, have the density
        ∝ x^(p-1) exp(-(A x + B / x) / 2). With n rows and d slopes,

            τ² | β ~ GIG((1 - n) / 2, 1 / c², RSS(β)),   b | β ~ GIG(1 - d, 2, 2 Σ_j |θ_j|)

        RSS(β) is the residual sum of squares, and c the scale of the prior τ ~ HalfNormal(c), which
        gives τ² the density ∝ (τ²)^(-1/2) exp(-τ² / (2c²)). `beta` is (chains, d + 1), the slopes θ
        and the intercept. Return (τ², b), each with one number per chain.
        """
        n_chains = len(beta)
        d = self.n_slopes
        n = self.problems.n_rows
        c = self.prior_scales

        # Sums that are zero up to rounding would leave no proper distribution.
        rss = np.maximum(self._residual_sums(beta), LEAST_RESIDUAL * n)
        slope_sum = np.maximum(np.abs(beta[:, :d]).sum(axis=1), SMALLEST_SIZE)

        # One call draws both: first τ² of every chain, then b of every chain.
        both = generalised_inverse_gaussian(
            rng,
            order=np.concatenate([(1 - n) / 2, np.full(n_chains, 1.0 - d)]),
            a=np.concatenate([1 / c**2, np.full(n_chains, 2.0)]),
            b=np.concatenate([rss, 2 * slope_sum]),
        )
        noise_variance, b = both.reshape(2, n_chains)
        return noise_variance, b

    def _residual_sums(self, beta: Floats) -> Floats:
        """Compute RSS(β) of each chain (see `SufficientStatistics`)."""
        offset = beta - self.problems.least_squares
        gram_times_offset = (self.problems.gram @ offset[..., None])[..., 0]
        return np.asarray(self.problems.least_rss + np.sum(offset * gram_times_offset, axis=1))

    def draw_coefficients(
        self, rng: np.random.Generator, beta: Floats, noise_variance: Floats, b: Floats
    ) -> Floats:
        """Draw new coefficients β of each chain, given the noise variance τ² and prior width b.

        `beta` (chains, k) are the present ones: the d = k - 1 slopes, then the intercept. W is the
        matrix of inputs, with a column of ones for the intercept.

        1. The Laplace prior is a normal one with a random variance (Park and Casella 2008), which
           is drawn given the present slopes. Let S be the diagonal matrix of prior standard
           deviations.
        2. In units of S, u = S⁻¹β is Gaussian with precision P = I + S W'W S / τ² and mean
           P⁻¹ S W'y / τ². P is well conditioned, however small a prior variance is.
        3. With P = LL' and ε ~ N(0, I), u = P⁻¹(S W'y / τ² + Lε) has this distribution.
        """
        n_chains, k = beta.shape
        d = self.n_slopes

        # 1. The prior standard deviations, the diagonal of S.
        prior_sd = np.empty((n_chains, k))
        prior_sd[:, :d] = np.sqrt(laplace_variances(rng, beta[:, :d], b[:, None]))
        prior_sd[:, d] = INTERCEPT_SD

        # 2. The precision P, and S W'y / τ².
        sd_over_variance = prior_sd / noise_variance[:, None]
        precision = self.problems.gram * (sd_over_variance[:, :, None] * prior_sd[:, None, :])
        diagonal = np.arange(k)
        precision[:, diagonal, diagonal] += 1
        scaled_moment = prior_sd * self.moment / noise_variance[:, None]

        # 3. Solve P u = S W'y / τ² + Lε.
        noise = np.linalg.cholesky(precision) @ rng.standard_normal((n_chains, k, 1))
        u = np.linalg.solve(precision, scaled_moment[..., None] + noise)[..., 0]
        return np.asarray(prior_sd * u)


# ---- NUTS, by NumPyro


def nuts_draws(
    statistics: SufficientStatistics,
    prior_scales: Floats,
    *,
    chains: int,
    draws: int,
    warmup: int,
    seed: int,
) -> Floats:
    """Draw from the posterior of every regression problem by NumPyro's NUTS sampler.

    Parameters and the array that is returned are those of `gibbs_draws`, with a seed in place of a
    generator. All problems and chains run in one program, compiled once for each shape and kept
    for the process. Single precision suffices: the residual sum of squares is a sum of squares.
    """
    jax = require("jax", extra="bayes")
    n_problems, k = statistics.least_squares.shape  # k coefficients each, the intercept among them
    problems = statistics.repeat(chains)  # one copy per chain
    keys = jax.random.split(jax.random.key(seed), n_problems * chains)
    arguments = (
        problems.gram,
        problems.least_squares,
        problems.least_rss,
        problems.n_rows,
        np.repeat(prior_scales, chains),
    )

    run_chains = _nuts_program(k, draws, warmup)
    raw = run_chains(keys, *(np.asarray(values, dtype=np.float32) for values in arguments))

    # A draw is z = (β, log b, log τ): bring b and τ back.
    z = np.asarray(raw, dtype=np.float64).reshape(n_problems, chains, draws, k + 2)
    beta = z[..., :k]
    b_and_tau = np.exp(z[..., k:])
    return np.concatenate([beta, b_and_tau], axis=-1)


@lru_cache(maxsize=16)
def _nuts_program(k: int, draws: int, warmup: int) -> Any:
    """Compile NUTS for problems with k coefficients (k - 1 slopes and the intercept).

    The program runs `_run_nuts_chain` for many chains at once: it takes their random keys, and the
    five arguments of `_negative_log_posterior` after z, each with a first axis of chains. It
    returns the draws z, (chains, draws, k + 2): the coefficients, log b and log τ.
    """
    jax = require("jax", extra="bayes")
    run_chain = partial(_run_nuts_chain, n_parameters=k + 2, draws=draws, warmup=warmup)
    return jax.jit(jax.vmap(run_chain))


def _run_nuts_chain(
    key: JaxArray, *problem: JaxArray, n_parameters: int, draws: int, warmup: int
) -> JaxArray:
    """Run one chain of NUTS from a random start, and return its draws after the warm-up.

    `key` is JAX's random key; `problem` holds the arguments of `_negative_log_posterior` after z.
    The result is (draws, n_parameters).
    """
    jax = require("jax", extra="bayes")
    hmc = require("numpyro.infer.hmc", extra="bayes").hmc
    fori_collect = require("numpyro.util", extra="bayes").fori_collect
    initialise, take_step = hmc(potential_fn_gen=_potential_of_problem, algo="NUTS")

    key_start, key_run = jax.random.split(key)
    start = jax.random.uniform(
        key_start, (n_parameters,), minval=-NUTS_START_RADIUS, maxval=NUTS_START_RADIUS
    )
    first_state = initialise(
        start, num_warmup=warmup, dense_mass=True, rng_key=key_run, model_args=problem
    )
    return fori_collect(
        lower=warmup,
        upper=warmup + draws,
        body_fun=partial(take_step, model_args=problem),
        init_val=first_state,
        transform=attrgetter("z"),  # of a sampler's state only the position is kept
        progbar=False,
    )


def _potential_of_problem(*problem: JaxArray) -> Any:
    """Return the potential energy of one problem, a function of z alone, as NumPyro wants it."""

    def potential(z: JaxArray) -> JaxArray:
        return _negative_log_posterior(z, *problem)

    return potential


def _negative_log_posterior(
    z: JaxArray,
    gram: JaxArray,
    least_squares: JaxArray,
    least_rss: JaxArray,
    n: JaxArray,
    c: JaxArray,
) -> JaxArray:
    """Compute -log p(z | rows) up to a constant, at z = (θ_1, ..., θ_d, θ₀, log b, log τ).

    It is minus the sum of

        log likelihood       -n log τ - RSS(β) / (2τ²)
        θ₀ ~ N(0, 10²)       -θ₀² / (2 · 10²)
        θ_j ~ Laplace(0, b)  -Σ_j |θ_j| / b - d log b
        b ~ Gamma(1, 1)      -b, and + log b because log b is sampled (Jacobian)
        τ ~ HalfNormal(c)    -τ² / (2c²), and + log τ because log τ is sampled (Jacobian)

    The other arguments are the fields of `SufficientStatistics` of one problem and its c.
    """
    jnp = require("jax.numpy", extra="bayes")
    beta = z[:-2]
    theta = z[:-3]
    intercept = z[-3]
    log_b = z[-2]
    log_tau = z[-1]
    b = jnp.exp(log_b)
    tau = jnp.exp(log_tau)
    d = len(theta)

    offset = beta - least_squares
    rss = least_rss + offset @ gram @ offset

    log_likelihood = -n * log_tau - 0.5 * rss / tau**2
    log_prior_of_intercept = -0.5 * (intercept / INTERCEPT_SD) ** 2
    log_prior_of_slopes = -jnp.abs(theta).sum() / b - d * log_b
    log_posterior = log_likelihood + log_prior_of_intercept + log_prior_of_slopes
    log_posterior = log_posterior - b + log_b
    log_posterior = log_posterior - 0.5 * (tau / c) ** 2 + log_tau
    return -log_posterior
