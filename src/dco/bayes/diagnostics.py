"""How well chains of posterior draws are mixed: effective sample size and split R-hat."""

from __future__ import annotations

import numpy as np

from dco.foundations.arrays import Floats


def effective_sample_size(chains: Floats) -> Floats:
    """Estimate how many independent draws the chains are worth, for each parameter.

    `chains` is (chains, draws, ...); the result has the remaining axes. Each chain is cut in two,
    so that a drift within it counts as disagreement. Of M half chains with N draws,

        ESS = M N / T,   T = -1 + 2 Σ_t P_t,   P_t = ρ_2t + ρ_(2t+1),   ρ_t = 1 - (W - c_t) / V

    where c_t is the mean autocovariance at lag t (divisor N - 1), W = c_0 the variance within
    chains, and V = (N - 1) / N W + variance of the chains' means. The sum stops where Geyer's
    initial monotone sequence does (Vehtari et al. 2021, without ranks). NaN for parameters that
    never move, and where chains have fewer than 4 draws.
    """
    halves = _split_chains(chains)
    n_chains, n_draws = halves.shape[:2]
    if n_draws < 2:
        return np.full(chains.shape[2:], np.nan)

    # The correlation ρ_t at each lag.
    autocovariance = _autocovariance(halves)
    unbiased = autocovariance * n_draws / (n_draws - 1)
    within = unbiased[0]
    between = halves.mean(axis=1).var(axis=0, ddof=1) if n_chains > 1 else 0.0
    total = autocovariance[0] + between
    nonzero_total = np.where(total > 0, total, 1.0)
    correlation = 1 - (within - unbiased) / nonzero_total
    correlation[0] = 1.0

    # The P_t of a reversible chain are positive and fall. What comes after the first that is not
    # positive is noise, and a rise is noise too.
    n_pairs = n_draws // 2
    pairs = correlation[: 2 * n_pairs].reshape(n_pairs, 2, *chains.shape[2:]).sum(axis=1)
    is_positive_so_far = np.cumprod(pairs > 0, axis=0, dtype=bool)
    falling_pairs = np.minimum.accumulate(np.where(is_positive_so_far, pairs, 0.0), axis=0)

    # T, with the usual limit for draws that alternate: ESS <= M N log10(M N).
    shortest_time = 1 / np.log10(max(n_chains * n_draws, 10))
    autocorrelation_time = np.maximum(2 * falling_pairs.sum(axis=0) - 1, shortest_time)
    return np.asarray(np.where(total > 0, n_chains * n_draws / autocorrelation_time, np.nan))


def split_rhat(chains: Floats) -> Floats:
    """Return R-hat of each parameter: near 1 where the chains agree (Gelman and Rubin).

    R-hat = sqrt((N - 1) / N + B / W) over half chains of N draws, with W the mean variance within
    them and B the variance of their means. `chains` is (chains, draws, ...).
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
    """Return the autocovariance at every lag, averaged over chains (divisor N), (lags, ...).

    By Fourier transforms; zeros are added so that the ends of a chain do not wrap around.
    """
    n_draws = chains.shape[1]
    centred = chains - chains.mean(axis=1, keepdims=True)
    padded_length = 1 << (2 * n_draws - 1).bit_length()  # a power of 2 is fast
    transform = np.fft.rfft(centred, padded_length, axis=1)
    products = np.fft.irfft(transform * transform.conj(), padded_length, axis=1)
    return np.asarray(products[:, :n_draws].mean(axis=0) / n_draws)


def _split_chains(chains: Floats) -> Floats:
    """Cut each chain in two halves; a middle draw is left out."""
    n_draws = chains.shape[1]
    half = n_draws // 2
    return np.concatenate([chains[:, :half], chains[:, n_draws - half :]], axis=0)
