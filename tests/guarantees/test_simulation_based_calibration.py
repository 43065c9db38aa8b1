"""Simulation-based calibration (Talts et al. 2018): parameters from the prior, data from the
parameters, posterior draws.

If the sampler draws from the posterior, the rank of each true parameter among the draws is uniform.
A wrong prior, a wrong Jacobian or a sampler that does not converge shows as ranks that pile up at
an end or in the middle.
"""

import numpy as np
import pytest
from laws import FULL
from scipy.stats import chisquare

from dco.bayes.samplers import INTERCEPT_SD, SufficientStatistics, gibbs_draws, nuts_draws

RANKS = 19  # draws kept a data set, so 20 equally likely ranks
ROWS, SLOPES = 12, 2


def _simulate(replicates, prior_scale, seed):
    """True (slopes, intercept, b, τ), one row a replicate, and the data sets they make."""
    rng = np.random.default_rng(seed)
    b = rng.gamma(1.0, 1.0, replicates)
    tau = np.abs(prior_scale * rng.standard_normal(replicates))
    theta = rng.laplace(0, b[:, None], (replicates, SLOPES))
    intercept = INTERCEPT_SD * rng.standard_normal(replicates)
    inputs = rng.standard_normal((replicates, ROWS, SLOPES))
    y = (
        np.einsum("rnd,rd->rn", inputs, theta)
        + intercept[:, None]
        + tau[:, None] * rng.standard_normal((replicates, ROWS))
    )
    return np.column_stack([theta, intercept, b, tau]), SufficientStatistics.from_datasets(
        zip(inputs, y, strict=True)
    )


def _p_values(truth, draws):
    """One chi-square test of uniform ranks for each parameter, and one for the noise in units of
    the slopes' scale.
    """
    truth = np.column_stack([truth, truth[:, -1] / truth[:, -2]])
    draws = np.concatenate([draws, draws[..., -1:] / draws[..., -2:-1]], axis=-1)
    ranks = (draws < truth[:, None]).sum(axis=1)
    return np.array(
        [chisquare(np.bincount(column, minlength=RANKS + 1)).pvalue for column in ranks.T]
    )


@pytest.mark.guarantee
@pytest.mark.parametrize("prior_scale", [1.0, 0.1])
def test_gibbs_ranks_are_uniform(prior_scale):
    """Six tests a prior; a true sampler fails one of them with probability below 0.3 % (6 ×
    5e-4).
    """
    replicates, thin = (10_000, 60) if FULL else (1_000, 30)
    truth, statistics = _simulate(replicates, prior_scale, seed=1)
    options = {"chains": 1, "draws": RANKS * thin, "warmup": 300, "rng": np.random.default_rng(2)}
    drawn = gibbs_draws(statistics, np.full(replicates, prior_scale), **options)
    assert np.all(_p_values(truth, drawn[:, 0, ::thin]) > 5e-4)


@pytest.mark.guarantee
@pytest.mark.parametrize("prior_scale", [1.0, 0.1] if FULL else [1.0])
def test_nuts_ranks_are_uniform(prior_scale):
    """The same for NUTS; the same share of false alarms."""
    replicates, thin = (1_500, 10) if FULL else (200, 5)
    truth, statistics = _simulate(replicates, prior_scale, seed=3)
    drawn = nuts_draws(
        statistics,
        np.full(replicates, prior_scale),
        chains=1,
        draws=RANKS * thin,
        warmup=300,
        seed=4,
    )
    assert np.all(_p_values(truth, drawn[:, 0, ::thin]) > 5e-4)


@pytest.mark.guarantee
def test_calibration_would_notice_the_wrong_noise_prior():
    """Sampling with half the prior scale that made the data must fail: the check has power at its
    default size.
    """
    truth, statistics = _simulate(1_000, 1.0, seed=5)
    drawn = gibbs_draws(
        statistics,
        np.full(1_000, 0.5),
        chains=1,
        draws=RANKS * 10,
        warmup=100,
        rng=np.random.default_rng(6),
    )
    assert _p_values(truth, drawn[:, 0, ::10])[-2] < 1e-6
