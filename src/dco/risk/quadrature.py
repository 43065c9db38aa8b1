"""P(L+ <= alpha) for Bayesian quadrature with any bounded loss, computed exactly.

L+ = sum of w_i l_i + w_{n+1} B with (w_1, ..., w_{n+1}) uniform on the simplex (Snell and Griffiths
2025). Weights are exponential variables over their sum, so P(L+ <= alpha) = P(Q <= 0) with Q = sum
of c_i E_i, c_i = l_i - alpha, c_{n+1} = B - alpha and E_i independent standard exponentials. There
are two deterministic ways to that number:

- a recursion that uses additions of non-negative numbers only, so that even a probability of 1e-78
  keeps twelve digits;
- Davies' (1973) inversion of the characteristic function: an absolute error below 1e-12, and a cost
  that depends on the number of distinct losses only.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincc

from dco.foundations.arrays import Floats, Integers
from dco.foundations.ranks import Level, as_count, as_positive
from dco.risk.loss_matrix import checked_losses, relative_level

_SMALL_PRODUCT = 5_000  # up to this many steps the recursion takes less than a millisecond
_TAIL = 1e-15  # what Davies' sum may miss on each side
# a delta below this is left to the recursion: Davies is accurate in absolute terms only
_TRUSTED = 1e-9
_SMALL = 1e-3  # below this, digits count from the first that is not 0
_NODES_AT_ONCE = 64
_MOST_NODES = 16_384


def bq_confidence(
    losses: ArrayLike,
    *,
    alpha: Level,
    bound: float = 1.0,
    method: Literal["exact", "recursion", "davies", "dirichlet"] = "exact",
    draws: int = 100_000,
    rng: np.random.Generator | None = None,
) -> float:
    """P(L+ <= alpha), L+ the loss under uniform random weights on the n losses and the bound.

    `method="exact"` takes a Beta tail where at most two values occur, else the recursion or Davies'
    inversion, whichever suits the size; either can be named. ``method="dirichlet"`` samples `draws`
    weights from `rng` (seed 0 by default), as the authors do, for comparison. The order of the
    losses does not matter.
    """
    scale = as_positive(bound, name="bound")
    values = checked_losses(losses, bound=scale, ndim=1) / scale
    level = relative_level(alpha, scale)
    rises, counts = _merged(values, level)
    if method == "dirichlet":
        times = as_count(draws, name="draws", least=1)
        return _by_dirichlet(
            values, float(level), times, np.random.default_rng(0) if rng is None else rng
        )
    if method == "recursion":
        return _by_recursion(rises, counts)[0]
    if method == "davies":
        return _by_davies(rises, counts)
    if method != "exact":
        raise ValueError(
            f'method must be "exact", "recursion", "davies" or "dirichlet", got {method!r}.'
        )
    # a small probability is asked for its digits, which Davies' absolute accuracy does not give
    return _both_sides(rises, counts, least_inside=_SMALL, least_outside=0.0)[0]


def bq_failure(losses: Floats, level: Fraction, *, at_most: float) -> float:
    """P(L+ > level) for losses in [0, 1]: to an absolute 1e-12, and to a relative one when
    `at_most` is below 1e-9.
    """
    least = 0.0 if at_most >= _TRUSTED else _SMALL
    return _both_sides(*_merged(losses, level), least_inside=0.0, least_outside=least)[1]


def _merged(losses: Floats, level: Fraction) -> tuple[Floats, Integers]:
    """The distinct c_i that are not 0, and how often each occurs; the bound's own c is among
    them.
    """
    values, counts = np.unique(np.append(losses, 1.0), return_counts=True)
    rises = values - float(level)
    return rises[rises != 0], counts[rises != 0]


def _both_sides(
    rises: Floats, counts: Integers, *, least_inside: float, least_outside: float
) -> tuple[float, float]:
    """P(Q <= 0) and P(Q > 0); by recursion where they are below the least that Davies' method is
    trusted with.
    """
    above = rises > 0
    n_above, n_below = int(counts[above].sum()), int(counts[~above].sum())
    if n_below == 0:
        return 0.0, 1.0
    if len(rises) == 2:  # p Gamma(H) <= n Gamma(K): a Beta(H, K) variable is at most n / (p + n)
        share = -rises[0] / (rises[1] - rises[0])
        return float(betainc(n_above, n_below, share)), float(betaincc(n_above, n_below, share))
    if n_above * n_below > _SMALL_PRODUCT:
        inside = _by_davies(rises, counts)
        # NaN (the sum did not settle) compares false
        if inside >= least_inside and 1 - inside >= least_outside:
            return inside, 1 - inside
    return _by_recursion(rises, counts)


def _by_recursion(rises: Floats, counts: Integers) -> tuple[float, float]:
    """P(Q <= 0) and P(Q > 0), Q a sum of h positive terms p E and k negative terms -n E.

    p E - n E' is -n E with probability n / (p + n) and p E otherwise, so that
    f(h, k) = (n_k f(h - 1, k) + p_h f(h, k - 1)) / (p_h + n_k), with f(0, k) = 1 and f(h, 0) = 0.
    Every anti-diagonal h + k is one vector.
    """
    every = np.repeat(rises, counts)
    up, down = every[every > 0], -every[every < 0]
    n_up, n_down = len(up), len(down)
    # column h holds f(h, d - h) and its complement, each by its own sum, on the current anti-
    # diagonal d
    current = np.zeros((2, n_up + 1))
    current[:, 0] = 1.0, 0.0
    for diagonal in range(1, n_up + n_down + 1):
        # both coordinates at least 1
        first, last = max(1, diagonal - n_down), min(n_up, diagonal - 1)
        if first <= last:
            p = up[first - 1 : last]
            n = down[n_down - diagonal + first : n_down - diagonal + last + 1]
            falls = n / (p + n)
            mixed = current[:, first - 1 : last] * falls
            current[:, first : last + 1] *= p / (p + n)
            current[:, first : last + 1] += mixed
        if diagonal <= n_up:
            current[:, diagonal] = 0.0, 1.0  # f(h, 0): no negative term is left
    return float(current[0, n_up]), float(current[1, n_up])


def _by_davies(rises: Floats, counts: Integers) -> float:
    """P(Q <= 0) by Davies' sum over t_k = (k + 1/2) step; NaN if it has not settled after 16,384
    nodes.

    The step 2 pi / U errs by less than the chance that |Q| > U, which Chernoff's bound keeps below
    1e-15. What is left after node t is bounded through the local decay of the characteristic
    function, |phi(s)| <= |phi(t)| (t / s)^N(t) for s > t.
    """
    if np.all(rises > 0):
        return 0.0
    step = 2 * math.pi / max(_reach(rises, counts), _reach(-rises, counts))
    total, squares = 0.0, rises**2
    for start in range(0, _MOST_NODES, _NODES_AT_ONCE):
        k = np.arange(start, start + _NODES_AT_ONCE) + 0.5
        nodes = k * step
        modulus = np.exp(-0.5 * (np.log1p(np.multiply.outer(nodes**2, squares)) @ counts))
        angle = np.arctan(np.multiply.outer(nodes, rises)) @ counts
        total += float(np.sum(modulus * np.sin(angle) / k))
        grown = squares * nodes[-1] ** 2
        decay = float(np.sum(counts * (grown / (1 + grown))))
        if modulus[-1] * (1 / k[-1] + 1 / decay) / math.pi < _TAIL:
            return min(1.0, max(0.0, 0.5 - total / math.pi))
    return math.nan


def _reach(rises: Floats, counts: Integers) -> float:
    """A U with P(Q > U) <= 1e-15, by Chernoff's bound at the best of a few exponents."""
    top = float(rises.max())
    if top <= 0:
        return 0.0
    exponents = (
        np.concatenate([np.geomspace(1e-4, 0.5, 24), 1 - np.geomspace(0.45, 1e-3, 10)]) / top
    )
    cumulants = -(np.log1p(-np.multiply.outer(exponents, rises)) @ counts)
    return max(0.0, float(np.min((cumulants - math.log(_TAIL)) / exponents)))


def _by_dirichlet(losses: Floats, level: float, draws: int, rng: np.random.Generator) -> float:
    every = np.append(losses, 1.0) - level
    size = max(1, min(draws, 4_000_000 // len(every)))
    hits = 0
    for start in range(0, draws, size):
        weights = rng.standard_exponential((min(size, draws - start), len(every)))
        hits += int(np.count_nonzero(weights @ every <= 0))
    return hits / draws
