"""Sparse Bayesian linear regression: the regression structure that the paper tunes (Appendix,
"Shared model specification").
"""

from __future__ import annotations

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
        The draws: (T, d), (T,) and (T,).
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
        _fit_together([self], [self._standardise(X, y)])
        return self

    @classmethod
    def fit_many(
        cls,
        datasets: Iterable[tuple[ArrayLike, ArrayLike]],
        prior_scales: Sequence[float] = (1.0, 0.02),
        **parameters: Any,
    ) -> list[list[Self]]:
        """Fit every prior scale to every (X, y) in one vectorised run.

        `result[i][j]` is data set i with prior scale j. `parameters` are the constructor's, shared
        by all fits. The chains of different fits are independent.
        """
        fits: list[list[Self]] = []
        datasets_of_fits: list[StandardisedRows] = []
        for X, y in datasets:
            models = [cls(prior_scale=scale, **parameters) for scale in prior_scales]
            standardised = [model._standardise(X, y) for model in models]
            fits.append(models)
            # The same record for all prior scales, so that these rows are summed up once.
            datasets_of_fits += [standardised[0] for _ in models]

        _fit_together([model for models in fits for model in models], datasets_of_fits)
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

        # The variance over draws of x'θ + θ₀ is a quadratic form: no n × T matrix is needed.
        draws = np.column_stack([self.coef_draws_, self.intercept_draws_])
        covariance = np.cov(draws, rowvar=False, ddof=0)
        design = np.column_stack([inputs, np.ones(len(inputs))])
        parameter_variance = np.maximum(np.sum((design @ covariance) * design, axis=1), 0.0)
        noise_variance = np.mean(self.noise_sd_draws_**2)
        return mean, np.asarray(np.sqrt(noise_variance + parameter_variance))

    def predict_distribution(self, X: ArrayLike) -> GaussianMixtures:
        """Return the posterior predictive: an even mixture of one Gaussian per draw for each
        row."""
        check_is_fitted(self)
        inputs: Floats = validate_data(self, X, dtype=np.float64, reset=False)
        means = inputs @ self.coef_draws_.T + self.intercept_draws_
        return GaussianMixtures(means, self.noise_sd_draws_, draws_first=False)

    def _standardise(self, X: ArrayLike, y: ArrayLike) -> StandardisedRows:
        """Check the parameters and the rows, and bring the rows to standard units."""
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

    def _keep_draws(self, chains: Floats, rows: StandardisedRows) -> None:
        """Take over this fit's (chains, draws, d + 3) draws, back in the caller's units."""
        self.ess_ = float(np.min(effective_sample_size(chains)))
        self.rhat_ = float(np.max(split_rhat(chains)))
        self._warn_if_poorly_known()

        # Draw after draw, so that a count that the chains do not divide cuts the last steps only.
        by_draw = chains.transpose(1, 0, 2).reshape(-1, chains.shape[2])[: self.draws]
        slopes = by_draw[:, :-3]
        intercept = by_draw[:, -3]
        prior_width = by_draw[:, -2]
        noise_sd = by_draw[:, -1]

        # A column that is constant has no slope.
        all_slopes = np.zeros((len(by_draw), len(rows.varies)))
        all_slopes[:, rows.varies] = slopes
        self.coef_draws_ = all_slopes * (rows.y_scale / rows.x_scale)

        at_zero = rows.y_mean + rows.y_scale * intercept
        self.intercept_draws_ = at_zero - self.coef_draws_ @ rows.x_mean
        self.prior_width_draws_ = prior_width.copy()
        self.noise_sd_draws_ = rows.y_scale * noise_sd

        self.coef_ = self.coef_draws_.mean(axis=0)
        self.intercept_ = float(self.intercept_draws_.mean())
        self.noise_sd_ = float(self.noise_sd_draws_.mean())
        self.y_scale_ = rows.y_scale

    def _warn_if_poorly_known(self) -> None:
        """Warn if the chains hold few effective draws, or disagree with each other."""
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
    """One data set in standard units, and the means and scales that lead back.

    `varies` marks the columns of X that are not constant; only these are among the inputs.
    """

    inputs: Floats
    targets: Floats
    varies: Bools
    x_mean: Floats
    x_scale: Floats
    y_mean: float
    y_scale: float


def standardise_rows(X: Floats, y: Floats) -> StandardisedRows:
    """Centre and scale rows; columns that are constant are left out of the inputs."""
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


def _fit_together(
    models: Sequence[SparseBayesianRegression], datasets: Sequence[StandardisedRows]
) -> None:
    """Sample all these fits, those with the same number of columns at once.

    All share the settings of the first one.
    """
    if not models:
        return
    first = models[0]
    seeds = check_random_state(first.random_state).randint(0, 2**31 - 1, size=2)
    rng = np.random.default_rng(seeds)

    n_columns = [rows.inputs.shape[1] for rows in datasets]
    for width in sorted(set(n_columns)):
        group = [fit for fit, columns in enumerate(n_columns) if columns == width]
        statistics = _sum_up([datasets[fit] for fit in group])
        prior_scales = np.asarray([float(models[fit].prior_scale) for fit in group])
        draws = _sample(first, statistics, prior_scales, rng)
        for fit, chains in zip(group, draws, strict=True):
            models[fit]._keep_draws(chains, datasets[fit])


def _sum_up(datasets: Sequence[StandardisedRows]) -> SufficientStatistics:
    """Sum up each data set; one that occurs several times is summed up once."""
    distinct = list(dict.fromkeys(datasets))
    statistics = SufficientStatistics.of((rows.inputs, rows.targets) for rows in distinct)

    position_of = {rows: position for position, rows in enumerate(distinct)}
    return statistics.take(np.asarray([position_of[rows] for rows in datasets]))


def _sample(
    settings: SparseBayesianRegression,
    statistics: SufficientStatistics,
    prior_scales: Floats,
    rng: np.random.Generator,
) -> Floats:
    """Draw from the posteriors by the sampler that the settings name."""
    draws_per_chain = -(-settings.draws // settings.chains)
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
