"""How well chains of posterior draws are mixed: effective sample size and split R-hat."""

from __future__ import annotations

import numpy as np

from dco.foundations.arrays import Floats


def effective_sample_size(chains: Floats) -> Floats:
    """Estimate the effective number of draws of each parameter, from (chains, draws, ...).

    Geyer's initial monotone sequence over half chains, so that a drift within a chain counts as
    disagreement (Vehtari et al. 2021, without ranks). Fewer than 4 draws per chain say nothing:
    NaN.
    """
    halves = _split_chains(chains)
    n_chains, n_draws = halves.shape[:2]
    if n_draws < 2:
        return np.full(chains.shape[2:], np.nan)

    covariance = _autocovariance(halves)
    unbiased = covariance * n_draws / (n_draws - 1)
    within = unbiased[0]
    between = halves.mean(axis=1).var(axis=0, ddof=1) if n_chains > 1 else 0.0
    total = covariance[0] + between

    nonzero_total = np.where(total > 0, total, 1.0)
    correlation = 1 - (within - unbiased) / nonzero_total
    correlation[0] = 1.0

    # Sums of neighbours are positive and fall, for a reversible chain: what comes after the first
    # that is not positive is noise.
    n_pairs = n_draws // 2
    pairs = correlation[: 2 * n_pairs].reshape(n_pairs, 2, *chains.shape[2:]).sum(axis=1)
    is_positive_so_far = np.cumprod(pairs > 0, axis=0, dtype=bool)
    falling = np.minimum.accumulate(np.where(is_positive_so_far, pairs, 0.0), axis=0)

    shortest_time = 1 / np.log10(max(n_chains * n_draws, 10))
    autocorrelation_time = np.maximum(2 * falling.sum(axis=0) - 1, shortest_time)
    return np.asarray(np.where(total > 0, n_chains * n_draws / autocorrelation_time, np.nan))


def split_rhat(chains: Floats) -> Floats:
    """Return the potential scale reduction of each parameter over half chains (Gelman, Rubin).

    `chains` is (chains, draws, ...).
    """
    halves = _split_chains(chains)
    n_draws = halves.shape[1]
    if n_draws < 2:
        return np.full(chains.shape[2:], np.nan)

    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.sqrt((n_draws - 1) / n_draws + between / within))


def _autocovariance(chains: Floats) -> Floats:
    """Return the mean autocovariance of the chains at every lag, by Fourier transforms."""
    n_draws = chains.shape[1]
    centred = chains - chains.mean(axis=1, keepdims=True)
    padded_length = 1 << (2 * n_draws - 1).bit_length()
    transform = np.fft.rfft(centred, padded_length, axis=1)
    products = np.fft.irfft(transform * transform.conj(), padded_length, axis=1)
    return np.asarray(products[:, :n_draws].mean(axis=0) / n_draws)


def _split_chains(chains: Floats) -> Floats:
    """Cut each chain in two halves; a middle draw is left out."""
    n_draws = chains.shape[1]
    half = n_draws // 2
    return np.concatenate([chains[:, :half], chains[:, n_draws - half :]], axis=0)
