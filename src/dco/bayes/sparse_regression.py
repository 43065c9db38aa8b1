"""Sparse Bayesian linear regression, the regression model that the paper tunes.

See the paper's Appendix, "Shared model specification".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dco import GaussianMixtures
from dco.bayes.diagnostics import effective_sample_size, split_rhat
from dco.bayes.samplers import SufficientStatistics, gibbs_draws, nuts_draws
from dco.foundations.arrays import Bools, Floats
from dco.foundations.notes import Note, show
from dco.foundations.ranks import as_count, as_positive

SAMPLERS = ("gibbs", "nuts")
# Effective draws below which Vehtari et al. (2021) do not trust R-hat and quantiles.
ENOUGH_DRAWS = 400
LARGEST_RHAT = 1.05
# A spread this far below the mean is a rounding error of it: the column is constant.
ROUNDING = 1e-10


class SparseBayesianRegression(RegressorMixin, BaseEstimator):
    """Linear regression with a Laplace prior on the slopes.

        y | x, θ, θ₀, τ ~ N(x'θ + θ₀, τ²),   θ_j ~ Laplace(0, b),   b ~ Gamma(1, 1),
        τ ~ HalfNormal(c),   θ₀ ~ N(0, 10²)

    Inputs and targets are standardised on the rows given to `fit`, and predictions come back in the
    caller's units. A column that is constant on those rows is left out: its slope integrates out of
    the posterior exactly.

    Parameters
    ----------
    prior_scale
        The c of the noise prior τ ~ HalfNormal(c), in units of the targets' standard deviation.
    draws, chains, warmup
        `draws` posterior draws in all are kept from `chains` chains, each after `warmup` steps.
    sampler
        "gibbs" (NumPy only) or "nuts" (NumPyro, extra `bayes`); both have the same posterior.
    random_state
        The seed of the sampler.

    Attributes
    ----------
    coef_, intercept_, noise_sd_
        Posterior means, in the caller's units.
    coef_draws_, intercept_draws_, noise_sd_draws_
        The T posterior draws in the caller's units: (T, d), (T,) and (T,).
    prior_width_draws_
        The draws of b, in standard units: (T,).
    ess_, rhat_
        The smallest effective sample size and the largest split R-hat over all parameters. A
        ConvergenceWarning comes if the first is below 400 or the second above 1.05.
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
        _fit_all([self], [self._standardise(X, y)])
        return self

    @classmethod
    def fit_many(
        cls,
        datasets: Iterable[tuple[ArrayLike, ArrayLike]],
        prior_scales: Sequence[float] = (1.0, 0.02),
        **parameters: Any,
    ) -> list[list[Self]]:
        """Fit a model with every prior scale to every (X, y), all sampled in one vectorised run.

        Parameters
        ----------
        datasets
            Pairs (X, y).
        prior_scales
            The scales c that each data set is fitted with.
        **parameters
            The other parameters of the constructor, shared by all fits.

        Returns
        -------
        Fitted models: `result[i][j]` is data set i with prior scale j. The chains of different fits
        are independent.
        """
        fits: list[list[Self]] = []
        rows_of_fits: list[StandardisedRows] = []
        for X, y in datasets:
            models = [cls(prior_scale=scale, **parameters) for scale in prior_scales]
            standardised = [model._standardise(X, y) for model in models]
            fits.append(models)
            # The same record for all prior scales, so that these rows are summed up once.
            rows_of_fits += [standardised[0] for _ in models]

        _fit_all([model for models in fits for model in models], rows_of_fits)
        return fits

    def predict(self, X: ArrayLike, return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """Return the posterior predictive mean, with `return_std` also its standard deviation.

        The standard deviation is that of noise and parameters together.
        """
        check_is_fitted(self)
        inputs: Floats = validate_data(self, X, dtype=np.float64, reset=False)
        mean = np.asarray(inputs @ self.coef_ + self.intercept_)
        if not return_std:
            return mean

        # With w = (x, 1) and C the covariance over draws of β = (θ, θ₀), the variance of x'θ + θ₀
        # is w'C w: no n × T matrix is needed.
        beta = np.column_stack([self.coef_draws_, self.intercept_draws_])
        C = np.cov(beta, rowvar=False, ddof=0)
        W = np.column_stack([inputs, np.ones(len(inputs))])
        parameter_variance = np.maximum(np.sum((W @ C) * W, axis=1), 0.0)
        noise_variance = np.mean(self.noise_sd_draws_**2)
        return mean, np.asarray(np.sqrt(noise_variance + parameter_variance))

    def predict_distribution(self, X: ArrayLike) -> GaussianMixtures:
        """Return the posterior predictive of each row, a mixture of T Gaussians of equal weight.

        Draw t contributes N(x'θ_t + θ₀_t, τ_t²).
        """
        check_is_fitted(self)
        inputs: Floats = validate_data(self, X, dtype=np.float64, reset=False)
        means = inputs @ self.coef_draws_.T + self.intercept_draws_
        return GaussianMixtures(means, self.noise_sd_draws_, draws_first=False)

    def _standardise(self, X: ArrayLike, y: ArrayLike) -> StandardisedRows:
        """Check parameters and rows; centre and scale inputs and targets."""
        if self.sampler not in SAMPLERS:
            raise ValueError(f"sampler must be 'gibbs' or 'nuts', got {self.sampler!r}.")
        as_positive(self.prior_scale, name="prior_scale")
        as_count(self.draws, name="draws", least=1)
        as_count(self.warmup, name="warmup", least=0)
        as_count(self.chains, name="chains", least=1)
        inputs, targets = validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2
        )
        return standardise_rows(inputs, targets)

    def _store_draws(self, chains: Floats, rows: StandardisedRows) -> None:
        """Store the draws of this fit and their means, brought back to the caller's units.

        `chains` is (chains, draws, k), in the units of the standardised `rows`. The last axis holds
        the slopes of the columns that vary, the intercept, the prior width b and the noise sd τ.
        """
        self.ess_ = float(np.min(effective_sample_size(chains)))
        self.rhat_ = float(np.max(split_rhat(chains)))
        self._warn_if_poorly_mixed()

        # All chains' first draws, then all second draws, and so on. `draws` may be no multiple of
        # the chains; then what is cut off are last draws of some chains.
        draws = chains.transpose(1, 0, 2).reshape(-1, chains.shape[2])[: self.draws]
        slopes = draws[:, :-3]
        intercept = draws[:, -3]
        prior_width = draws[:, -2]
        noise_sd = draws[:, -1]

        # A column that is constant has slope 0.
        all_slopes = np.zeros((len(draws), len(rows.varies)))
        all_slopes[:, rows.varies] = slopes
        self.coef_draws_ = all_slopes * (rows.y_scale / rows.x_scale)

        # From y at the mean of x to y at x = 0.
        y_at_x_mean = rows.y_mean + rows.y_scale * intercept
        self.intercept_draws_ = y_at_x_mean - self.coef_draws_ @ rows.x_mean
        self.prior_width_draws_ = prior_width.copy()
        self.noise_sd_draws_ = rows.y_scale * noise_sd

        self.coef_ = self.coef_draws_.mean(axis=0)
        self.intercept_ = float(self.intercept_draws_.mean())
        self.noise_sd_ = float(self.noise_sd_draws_.mean())
        self.y_scale_ = rows.y_scale

    def _warn_if_poorly_mixed(self) -> None:
        """Warn if the chains hold few effective draws, or disagree with each other (R-hat)."""
        if self.ess_ >= ENOUGH_DRAWS and self.rhat_ <= LARGEST_RHAT:
            return
        text = (
            f"The posterior is poorly known: {self.ess_:.0f} effective draws (wanted "
            f"{ENOUGH_DRAWS}), R-hat {self.rhat_:.3f} (wanted at most {LARGEST_RHAT})."
        )
        remedy = "Raise draws=, and warmup= if R-hat is the larger problem."
        show([Note("convergence", text, remedy)], category=ConvergenceWarning)


@dataclass(frozen=True, eq=False)
class StandardisedRows:
    """One data set with centred and scaled columns, and the means and scales that lead back.

    `varies` (columns of X,) marks those that are not constant; only these are among the inputs.
    """

    inputs: Floats
    targets: Floats
    varies: Bools
    x_mean: Floats
    x_scale: Floats
    y_mean: float
    y_scale: float


def standardise_rows(X: Floats, y: Floats) -> StandardisedRows:
    """Give targets and every column of X mean 0 and standard deviation 1.

    Columns that are constant are left out of the inputs. A constant y is an error.
    """
    y_mean = float(y.mean())
    y_scale = float(y.std())
    if y_scale <= ROUNDING * abs(y_mean) or y_scale == 0:
        raise ValueError(
            f"y is constant ({y[0]} in all {len(y)} rows), so the noise has no proper posterior."
        )

    x_mean = X.mean(axis=0)
    x_sd = X.std(axis=0)
    varies = x_sd > ROUNDING * np.abs(x_mean)
    x_scale = np.where(varies, x_sd, 1.0)
    standard = np.where(varies, (X - x_mean) / x_scale, 0.0)
    return StandardisedRows(
        inputs=standard[:, varies],
        targets=(y - y_mean) / y_scale,
        varies=varies,
        x_mean=x_mean,
        x_scale=x_scale,
        y_mean=y_mean,
        y_scale=y_scale,
    )


def _fit_all(
    models: Sequence[SparseBayesianRegression], datasets: Sequence[StandardisedRows]
) -> None:
    """Sample the posterior of each model given its data set, and store the draws in the model.

    `datasets[i]` belongs to `models[i]`. Those with the same number of inputs are sampled in one
    run. Models may differ in their prior scale only; the other settings are those of the first.
    """
    if not models:
        return
    settings = models[0]
    seeds = check_random_state(settings.random_state).randint(0, 2**31 - 1, size=2)
    rng = np.random.default_rng(seeds)

    n_inputs = [rows.inputs.shape[1] for rows in datasets]
    for width in sorted(set(n_inputs)):
        group = [position for position, inputs in enumerate(n_inputs) if inputs == width]
        models_of_group = [models[position] for position in group]
        datasets_of_group = [datasets[position] for position in group]

        statistics = _sum_up(datasets_of_group)
        prior_scales = np.asarray([float(model.prior_scale) for model in models_of_group])
        draws = _sample(settings, statistics, prior_scales, rng)
        for model, chains, rows in zip(models_of_group, draws, datasets_of_group, strict=True):
            model._store_draws(chains, rows)


def _sum_up(datasets: Sequence[StandardisedRows]) -> SufficientStatistics:
    """Compute the sufficient statistics of each data set; one that is repeated costs no more."""
    distinct = list(dict.fromkeys(datasets))
    statistics = SufficientStatistics.from_datasets(
        (rows.inputs, rows.targets) for rows in distinct
    )

    position_of = {rows: position for position, rows in enumerate(distinct)}
    return statistics.take(np.asarray([position_of[rows] for rows in datasets]))


def _sample(
    settings: SparseBayesianRegression,
    statistics: SufficientStatistics,
    prior_scales: Floats,
    rng: np.random.Generator,
) -> Floats:
    """Draw from the posterior of each problem, by the sampler that `settings` names.

    Returns (problems, chains, draws, slopes + 3), see `gibbs_draws`.
    """
    draws_per_chain = math.ceil(settings.draws / settings.chains)
    if settings.sampler == "gibbs":
        return gibbs_draws(
            statistics,
            prior_scales,
            chains=settings.chains,
            draws=draws_per_chain,
            warmup=settings.warmup,
            rng=rng,
        )
    return nuts_draws(
        statistics,
        prior_scales,
        chains=settings.chains,
        draws=draws_per_chain,
        warmup=settings.warmup,
        seed=int(rng.integers(2**31)),
    )
