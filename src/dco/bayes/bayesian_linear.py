"""Sparse Bayesian linear regression, the regression structure that the paper tunes (Appendix,
"Shared model specification").

    y | θ, θ₀, τ ~ N(x'θ + θ₀, τ²),   θ_j ~ Laplace(0, b),   b ~ Gamma(1, 1),   τ ~ HalfNormal(c),
    θ₀ ~ N(0, 10²)

The likelihood depends on the rows only through the Gram matrix, the least-squares solution, its
residual sum of squares and the number of rows, so a step costs O(d³) whatever the number of rows,
and many problems run side by side in one array.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dco import GaussianMixtures
from dco.foundations.arrays import Bools, Floats, Integers
from dco.foundations.extras import require
from dco.foundations.notes import Note, show
from dco.foundations.ranks import as_count, as_positive

INTERCEPT_SD = 10.0
SAMPLERS = ("gibbs", "nuts")
# effective draws below which Vehtari et al. (2021) do not trust R-hat and quantiles
ENOUGH_DRAWS = 400
# Residuals this far below the spread of y are rounding error of the sums: a perfect fit has no
# proper posterior for τ.
LEAST_RESIDUAL = 1e-12
# made together for each draw of a rejection sampler, so that few draws need a second pass
PROPOSALS = 4


@dataclass(frozen=True, eq=False)
class SufficientStatistics:
    """What P regression problems with d slopes each tell the sampler; the last of the k = d + 1
    columns is the intercept.

    The residual sum of squares at θ is residual + (θ - centre)' gram (θ - centre): no difference of
    large numbers.
    """

    gram: Floats  # (P, k, k) W'W, where W is the inputs and a column of ones
    centre: Floats  # (P, k) a least-squares solution
    residual: Floats  # (P,) its residual sum of squares
    rows: Integers  # (P,)

    @classmethod
    def of(cls, datasets: Iterable[tuple[Floats, Floats]]) -> SufficientStatistics:
        """Sum up (inputs, targets) pairs that share their number of columns."""
        found = []
        for inputs, targets in datasets:
            design = np.column_stack([inputs, np.ones(len(targets))])
            centre = np.linalg.lstsq(design, targets, rcond=None)[0]
            found.append(
                (design.T @ design, centre, np.sum((targets - design @ centre) ** 2), len(targets))
            )
        return cls(*map(np.asarray, zip(*found, strict=True)))

    def take(self, index: Integers) -> SufficientStatistics:
        """Some of the problems, in this order."""
        return SufficientStatistics(
            self.gram[index], self.centre[index], self.residual[index], self.rows[index]
        )


def generalised_inverse_gaussian(
    rng: np.random.Generator, order: Floats, a: Floats, b: Floats
) -> Floats:
    """One exact draw for each entry from the density ∝ x^(order - 1) exp(-(a x + b / x) / 2), a, b
    > 0.

    In log x the density is concave, so a flat middle and two exponential tails dominate it:
    rejection from that envelope (Devroye 2014, Random variate generation for the generalized
    inverse Gaussian distribution). Where the tails touch only affects speed: with one formula per
    side, simpler than his cases, more than 6 proposals in 10 are accepted everywhere.
    """
    lam, omega = np.abs(order), np.sqrt(a * b)
    root = np.hypot(lam, omega)
    alpha = omega * omega / (root + lam)  # sqrt(λ² + ω²) - λ without cancellation

    with np.errstate(divide="ignore", over="ignore"):  # the log-density is about -1 at t and at -s
        t = np.log1p(np.sqrt(2 / root) + 2 / root)
        s = np.minimum(np.sqrt(2 / lam) + 1 / lam, np.log1p(np.sqrt(2 / alpha) + 2 / alpha))
    fall = alpha * np.sinh(t) + lam * np.expm1(t)
    rise = alpha * np.sinh(s) - lam * np.expm1(-s)
    # the tangents reach 0 at the ends of the flat middle
    upper = t + _log_kernel(t, alpha, lam) / fall
    lower = -s - _log_kernel(-s, alpha, lam) / rise
    middle = upper - lower

    u, v, w = rng.random((3, PROPOSALS, omega.size))
    u *= middle + 1 / fall + 1 / rise
    tail = np.log1p(-v)
    x = np.where(
        u < middle,
        lower + middle * v,
        np.where(u < middle + 1 / fall, upper - tail / fall, lower + tail / rise),
    )
    envelope = np.where(x > upper, fall * (upper - x), np.where(x < lower, rise * (x - lower), 0.0))
    accepted = np.log1p(-w) <= _log_kernel(x, alpha, lam) - envelope
    chosen = accepted.argmax(axis=0), np.arange(omega.size)  # the first proposal that was accepted
    standard = np.exp(x[chosen]) * (lam + root) / omega
    drawn = np.asarray(np.sqrt(b / a) * np.where(order < 0, 1 / standard, standard))
    refused = np.flatnonzero(~accepted[chosen])
    if refused.size:
        drawn[refused] = generalised_inverse_gaussian(rng, order[refused], a[refused], b[refused])
    return drawn


def _log_kernel(x: Any, alpha: Floats, lam: Floats) -> Any:
    """log density of log X about its mode, for order λ >= 0: 0 at x = 0, concave."""
    up = np.exp(x)
    return -alpha * (0.5 * (up + 1 / up) - 1) - lam * (up - x - 1)


def _laplace_variances(rng: np.random.Generator, theta: Floats, b: Floats) -> Floats:
    """The normal variances s | θ, b that a Laplace prior mixes over: 1/s is inverse
    Gaussian(1/(b|θ|), 1/b²).

    Michael, Schucany and Haas (1976), written for s itself so that a coefficient near 0 loses no
    digits.
    """
    size = np.maximum(np.abs(theta), 1e-150)
    w = rng.standard_normal(theta.shape) ** 2 * b / (2 * size)
    stretch = 1 + w + np.sqrt(w * (w + 2))
    return np.asarray(
        b * size * np.where(rng.random(theta.shape) * (1 + 1 / stretch) <= 1, stretch, 1 / stretch)
    )


def gibbs_draws(
    statistics: SufficientStatistics,
    prior_scales: Floats,
    *,
    chains: int,
    draws: int,
    warmup: int,
    rng: np.random.Generator,
) -> Floats:
    """Posterior draws by exact Gibbs steps, (P, chains, draws, d + 3): slopes, intercept, b, τ.

    One scan draws from full conditionals only, so nothing is tuned and nothing rejected:
    τ² | θ is generalised inverse Gaussian((1 - n)/2, 1/c², RSS), because a half-normal τ gives τ²
    the density ∝ (τ²)^(-1/2) exp(-τ²/(2c²)); b | θ is generalised inverse Gaussian(1 - d, 2, 2
    Σ|θ_j|); then the Laplace prior as a scale mixture of normals (Park and Casella 2008), and (θ,
    θ₀) | rest is Gaussian.
    """
    problems, k = statistics.centre.shape
    d, many = k - 1, problems * chains
    at = statistics.take(np.repeat(np.arange(problems), chains))  # one copy per chain
    scales = np.repeat(prior_scales, chains)
    moment = np.einsum("pij,pj->pi", at.gram, at.centre)
    floor = LEAST_RESIDUAL * at.rows
    order = np.concatenate([(1 - at.rows) / 2, np.full(many, 1.0 - d)])
    linear = np.concatenate([1 / scales**2, np.full(many, 2.0)])
    diagonal = np.arange(k)
    spread = np.empty((many, k))
    kept = np.empty((draws, many, k + 2))

    # Scattered around a ridge fit, wider than the posterior, so that R-hat can see chains that have
    # not met.
    ridge = np.linalg.solve(at.gram + np.eye(k), moment[..., None])[..., 0]
    theta = ridge * rng.uniform(0, 2, (many, k)) + 0.1 * rng.standard_normal((many, k))
    for step in range(-warmup, draws):
        away = theta - at.centre
        rss = at.residual + np.sum(away * (at.gram @ away[..., None])[..., 0], axis=1)
        reciprocal = np.concatenate(
            [np.maximum(rss, floor), 2 * np.maximum(np.abs(theta[:, :d]).sum(axis=1), 1e-150)]
        )
        variance, b = generalised_inverse_gaussian(rng, order, linear, reciprocal).reshape(2, many)
        spread[:, :d] = np.sqrt(_laplace_variances(rng, theta[:, :d], b[:, None]))
        spread[:, d] = INTERCEPT_SD
        # In units of the prior sds the precision is I + something: well conditioned however small a
        # prior variance is.
        precision = at.gram * ((spread / variance[:, None])[:, :, None] * spread[:, None, :])
        precision[:, diagonal, diagonal] += 1
        noise = np.linalg.cholesky(precision) @ rng.standard_normal((many, k, 1))
        pull = (spread * moment / variance[:, None])[..., None]
        theta = spread * np.linalg.solve(precision, pull + noise)[..., 0]
        if step >= 0:
            kept[step, :, :k], kept[step, :, k], kept[step, :, k + 1] = theta, b, np.sqrt(variance)
    return np.ascontiguousarray(kept.reshape(draws, problems, chains, k + 2).transpose(1, 2, 0, 3))


def nuts_draws(
    statistics: SufficientStatistics,
    prior_scales: Floats,
    *,
    chains: int,
    draws: int,
    warmup: int,
    seed: int,
) -> Floats:
    """The same posterior by NumPyro's NUTS, as in the paper; the same layout as `gibbs_draws`.

    All problems and chains run in one program, compiled once for each shape and kept for the
    process. Single precision suffices: the residual sum of squares is a sum of squares
    (`SufficientStatistics`).
    """
    jax = require("jax", extra="bayes")
    problems, k = statistics.centre.shape
    at = statistics.take(np.repeat(np.arange(problems), chains))  # one copy per chain
    keys = jax.random.split(jax.random.key(seed), problems * chains)
    arrays = (at.gram, at.centre, at.residual, at.rows, np.repeat(prior_scales, chains))
    raw = _nuts_program(k, draws, warmup)(
        keys, *(np.asarray(array, dtype=np.float32) for array in arrays)
    )
    free = np.asarray(raw, dtype=np.float64).reshape(problems, chains, draws, k + 2)
    return np.concatenate([free[..., :k], np.exp(free[..., k:])], axis=-1)


@lru_cache(maxsize=16)
def _nuts_program(k: int, draws: int, warmup: int) -> Any:
    jax, jnp = require("jax", extra="bayes"), require("jax.numpy", extra="bayes")
    hmc = require("numpyro.infer.hmc", extra="bayes").hmc
    fori_collect = require("numpyro.util", extra="bayes").fori_collect
    d = k - 1

    def potential_of(gram: Any, centre: Any, residual: Any, rows: Any, prior_scale: Any) -> Any:
        def potential(z: Any) -> Any:
            log_b, log_tau = z[k], z[k + 1]
            b, tau = jnp.exp(log_b), jnp.exp(log_tau)
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
        # NumPyro's own default start
        start = jax.random.uniform(key_start, (k + 2,), minval=-2.0, maxval=2.0)
        state = initialise(
            start, num_warmup=warmup, dense_mass=True, rng_key=key_run, model_args=problem
        )
        move = partial(step, model_args=problem)
        return fori_collect(
            warmup, warmup + draws, move, state, transform=lambda now: now.z, progbar=False
        )

    return jax.jit(jax.vmap(run))


def effective_sample_size(chains: Floats) -> Floats:
    """Effective number of draws of each parameter, from (chains, draws, ...): Geyer's initial
    monotone sequence.

    Chains are halved first, so that a drift within a chain counts as disagreement (Vehtari et al.
    2021, without ranks). Fewer than 4 draws per chain say nothing: NaN.
    """
    halves = _halves(chains)
    m, n = halves.shape[:2]
    if n < 2:
        return np.full(chains.shape[2:], np.nan)
    centred = halves - halves.mean(axis=1, keepdims=True)
    length = 1 << (2 * n - 1).bit_length()
    transform = np.fft.rfft(centred, length, axis=1)
    covariance = np.fft.irfft(transform * transform.conj(), length, axis=1)[:, :n].mean(axis=0) / n
    within = covariance[0] * n / (n - 1)
    total = covariance[0] + (halves.mean(axis=1).var(axis=0, ddof=1) if m > 1 else 0.0)
    safe = np.where(total > 0, total, 1.0)
    correlation = 1 - (within - covariance * n / (n - 1)) / safe
    correlation[0] = 1.0
    pairs = correlation[: n // 2 * 2].reshape(n // 2, 2, *chains.shape[2:]).sum(axis=1)
    pairs = np.minimum.accumulate(
        np.where(np.cumprod(pairs > 0, axis=0, dtype=bool), pairs, 0.0), axis=0
    )
    time = np.maximum(2 * pairs.sum(axis=0) - 1, 1 / np.log10(max(m * n, 10)))
    return np.asarray(np.where(total > 0, m * n / time, np.nan))


def split_rhat(chains: Floats) -> Floats:
    """Gelman and Rubin's potential scale reduction of each parameter over half chains, from
    (chains, draws, ...).
    """
    halves = _halves(chains)
    n = halves.shape[1]
    if n < 2:
        return np.full(chains.shape[2:], np.nan)
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.sqrt((n - 1) / n + between / within))


def _halves(chains: Floats) -> Floats:
    n = chains.shape[1] // 2
    return np.concatenate([chains[:, :n], chains[:, chains.shape[1] - n :]], axis=0)


class SparseBayesianRegression(RegressorMixin, BaseEstimator):
    """Linear regression with a Laplace prior on the slopes; `prior_scale` is the c of the noise
    prior τ ~ HalfNormal(c).

    Inputs and targets are standardised on the rows given to `fit`, so c is in units of the targets'
    standard deviation, and predictions come back in the caller's units. A column that is constant
    on those rows is left out: its slope integrates out of the posterior exactly. `draws` posterior
    draws in all are kept from `chains` chains, each after `warmup` steps. `sampler`: "gibbs" (NumPy
    only) or "nuts" (NumPyro, extra `bayes`); both have the same posterior.

    After `fit`: `coef_`, `intercept_`, `noise_sd_` (posterior means, the caller's units);
    `coef_draws_` (T, d), `intercept_draws_`, `noise_sd_draws_` (T,); `ess_` and `rhat_`, the
    smallest effective sample size and the largest split R-hat over all parameters, with a
    ConvergenceWarning if the first is below 400 or the second above 1.05.
    """

    def __init__(
        self,
        prior_scale: float = 1.0,
        draws: int = 8000,
        warmup: int = 600,
        sampler: str = "gibbs",
        random_state: int | np.random.RandomState | None = None,
        chains: int = 4,
    ) -> None:
        self.prior_scale = prior_scale
        self.draws = draws
        self.warmup = warmup
        self.sampler = sampler
        self.random_state = random_state
        self.chains = chains

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Sample the posterior given these rows."""
        _fit_together([self], [self._prepared(X, y)])
        return self

    @classmethod
    def fit_many(
        cls,
        datasets: Iterable[tuple[ArrayLike, ArrayLike]],
        prior_scales: Sequence[float] = (1.0, 0.02),
        **parameters: Any,
    ) -> list[list[Self]]:
        """Fit every prior scale to every (X, y) in one vectorised run; `result[i][j]` is data set i
        with prior scale j.

        `parameters` are the constructor's, shared by all fits. The chains of different fits are
        independent.
        """
        fits: list[list[Self]] = []
        standardised: list[_Standardised] = []
        for X, y in datasets:
            fits.append([cls(prior_scale=scale, **parameters) for scale in prior_scales])
            prepared = [model._prepared(X, y) for model in fits[-1]]
            standardised += prepared[:1] * len(prepared)  # the same rows: summed up once
        _fit_together([model for row in fits for model in row], standardised)
        return fits

    def predict(self, X: ArrayLike, return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """The posterior predictive mean, and with `return_std` its standard deviation (noise and
        parameters).
        """
        check_is_fitted(self)
        inputs: Floats = validate_data(self, X, dtype=np.float64, reset=False)
        mean = inputs @ self.coef_ + self.intercept_
        if not return_std:
            return np.asarray(mean)
        # The variance over draws of x'θ + θ₀ is a quadratic form: no n × T matrix is needed.
        spread = np.cov(
            np.column_stack([self.coef_draws_, self.intercept_draws_]), rowvar=False, ddof=0
        )
        design = np.column_stack([inputs, np.ones(len(inputs))])
        variance = np.mean(self.noise_sd_draws_**2) + np.maximum(
            np.sum((design @ spread) * design, axis=1), 0.0
        )
        return np.asarray(mean), np.asarray(np.sqrt(variance))

    def predict_distribution(self, X: ArrayLike) -> GaussianMixtures:
        """The posterior predictive: for each row an even mixture of one Gaussian per draw, in the
        units of y.
        """
        check_is_fitted(self)
        inputs: Floats = validate_data(self, X, dtype=np.float64, reset=False)
        return GaussianMixtures(
            inputs @ self.coef_draws_.T + self.intercept_draws_, self.noise_sd_draws_
        )

    def _prepared(self, X: ArrayLike, y: ArrayLike) -> _Standardised:
        """Check the parameters and the rows, and bring the rows to standard units."""
        if self.sampler not in SAMPLERS:
            raise ValueError(f"sampler must be 'gibbs' or 'nuts', got {self.sampler!r}.")
        as_positive(self.prior_scale, name="prior_scale")
        for name, least in (("draws", 1), ("warmup", 0), ("chains", 1)):
            as_count(getattr(self, name), name=name, least=least)
        inputs, targets = validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2
        )
        return _Standardised.of(inputs, targets)

    def _keep(self, chains: Floats, data: _Standardised) -> None:
        """Take over this fit's (chains, draws, d + 3) standardised draws, back in the caller's
        units.
        """
        self.ess_ = float(np.min(effective_sample_size(chains)))
        self.rhat_ = float(np.max(split_rhat(chains)))
        if not (self.ess_ >= ENOUGH_DRAWS and self.rhat_ <= 1.05):
            text = (
                f"The posterior is poorly known: {self.ess_:.0f} effective draws (wanted "
                f"{ENOUGH_DRAWS}), R-hat "
                f"{self.rhat_:.3f} (wanted at most 1.05)."
            )
            remedy = "Raise draws=, and warmup= if R-hat is the larger problem."
            show([Note("convergence", text, remedy)], category=ConvergenceWarning)
        # Draw-major order, so that a count that the chains do not divide cuts the last steps only.
        flat = chains.transpose(1, 0, 2).reshape(-1, chains.shape[2])[: self.draws]
        slopes = np.zeros((len(flat), len(data.kept)))
        slopes[:, data.kept] = flat[:, :-3]
        self.coef_draws_ = slopes * (data.y_scale / data.x_scale)
        self.intercept_draws_ = (
            data.y_mean + data.y_scale * flat[:, -3] - self.coef_draws_ @ data.x_mean
        )
        self.prior_width_draws_ = flat[:, -2].copy()
        self.noise_sd_draws_ = data.y_scale * flat[:, -1]
        self.coef_ = self.coef_draws_.mean(axis=0)
        self.intercept_ = float(self.intercept_draws_.mean())
        self.noise_sd_ = float(self.noise_sd_draws_.mean())
        self.y_scale_ = data.y_scale


@dataclass(frozen=True, eq=False)
class _Standardised:
    """One data set in standard units, and the way back. `kept` marks the columns that vary."""

    inputs: Floats
    targets: Floats
    kept: Bools
    x_mean: Floats
    x_scale: Floats
    y_mean: float
    y_scale: float

    @classmethod
    def of(cls, X: Floats, y: Floats) -> _Standardised:
        x_mean, y_mean = X.mean(axis=0), float(y.mean())
        x_scale, y_scale = X.std(axis=0), float(y.std())
        if y_scale <= 1e-10 * abs(y_mean) or y_scale == 0:
            raise ValueError(
                f"y is constant ({y[0]} in all {len(y)} rows), so the noise has no "
                f"proper posterior."
            )
        # A constant column's computed spread is rounding error of its mean, not always an exact 0.
        kept = x_scale > 1e-10 * np.abs(x_mean)
        scale = np.where(kept, x_scale, 1.0)
        inputs = np.where(kept, (X - x_mean) / scale, 0.0)
        return cls(inputs[:, kept], (y - y_mean) / y_scale, kept, x_mean, scale, y_mean, y_scale)


def _fit_together(
    models: Sequence[SparseBayesianRegression], datasets: Sequence[_Standardised]
) -> None:
    """Sample all these fits at once, in groups that share the number of columns; all share the
    first one's settings.
    """
    if not models:
        return
    first = models[0]
    seeds = check_random_state(first.random_state).randint(0, 2**31 - 1, size=2)
    rng = np.random.default_rng(seeds)
    per_chain = -(-first.draws // first.chains)
    widths = [data.inputs.shape[1] for data in datasets]
    for width in sorted(set(widths)):
        group = [i for i, own in enumerate(widths) if own == width]
        distinct = {id(datasets[i]): datasets[i] for i in group}
        place = {key: j for j, key in enumerate(distinct)}
        once = SufficientStatistics.of((data.inputs, data.targets) for data in distinct.values())
        statistics = once.take(np.asarray([place[id(datasets[i])] for i in group]))
        scales = np.asarray([float(models[i].prior_scale) for i in group])
        options = {"chains": first.chains, "draws": per_chain, "warmup": first.warmup}
        if first.sampler == "gibbs":
            drawn = gibbs_draws(statistics, scales, **options, rng=rng)
        else:
            drawn = nuts_draws(statistics, scales, **options, seed=int(rng.integers(2**31)))
        for i, chains in zip(group, drawn, strict=True):
            models[i]._keep(chains, datasets[i])
