"""P(L+ <= alpha) for Bayesian quadrature with any bounded loss, computed exactly.

L+ = sum of w_i l_i + w_{n+1} B with (w_1, ..., w_{n+1}) uniform on the simplex (Snell and
Griffiths 2025). Weights are exponential variables over their sum, so P(L+ <= alpha) = P(Q <= 0) for
Q = sum of c_i E_i, with c_i = l_i - alpha, c_{n+1} = B - alpha and independent standard exponential
E_i. There are two deterministic ways to that number:

- a recursion that uses additions of non-negative numbers only, so that even a probability of 1e-78
  keeps twelve digits;
- Davies' (1973) inversion of the characteristic function: an absolute error below 1e-12, and a cost
  that depends on the number of distinct losses only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincc

from dco.foundations.arrays import Floats, Integers
from dco.foundations.ranks import Level, as_count, as_positive
from dco.risk.loss_matrix import checked_column, relative_level

CHEAP_RECURSION = 5_000  # up to this many steps the recursion takes less than a millisecond
NEGLIGIBLE_TAIL = 1e-15  # what Davies' sum may miss on each side
# Davies' method is accurate in absolute terms: a probability below SMALL keeps few digits there,
# which matters for a delta below TRUSTED_DELTA.
SMALL = 1e-3
TRUSTED_DELTA = 1e-9
NODES_AT_ONCE = 64
MOST_NODES = 16_384
CELLS_AT_ONCE = 4_000_000  # of sampled weights


def bq_confidence(
    losses: ArrayLike,
    *,
    alpha: Level,
    bound: float = 1.0,
    method: Literal["exact", "recursion", "davies", "dirichlet"] = "exact",
    draws: int = 100_000,
    random_state: int | np.random.Generator = 0,
) -> float:
    """Return P(L+ <= alpha), L+ the loss under uniform random weights on the losses and the bound.

    `method="exact"` takes a Beta tail where at most two values occur, else the recursion or Davies'
    inversion, whichever suits the size; either can be named. ``method="dirichlet"`` samples `draws`
    weights, as the authors do, for comparison. The order of the losses does not matter.
    """
    if method not in ("exact", "recursion", "davies", "dirichlet"):
        raise ValueError(
            f'method must be "exact", "recursion", "davies" or "dirichlet", got {method!r}.'
        )
    largest_loss = as_positive(bound, name="bound")
    values = checked_column(losses, bound=largest_loss) / largest_loss
    level = relative_level(alpha, largest_loss)
    if method == "dirichlet":
        n_draws = as_count(draws, name="draws", least=1)
        rng = np.random.default_rng(random_state)
        return _sample_confidence(values, float(level), n_draws, rng)

    terms = _gather_terms(values, level)
    if method == "recursion":
        return _by_recursion(terms).confidence
    if method == "davies":
        return _by_davies(terms)
    # A small confidence is asked for its digits, which Davies' absolute accuracy does not give.
    return _split_probability(terms, smallest_confidence=SMALL, smallest_failure=0.0).confidence


def bq_failure(losses: Floats, level: Fraction, *, at_most: float) -> float:
    """Return P(L+ > level) for losses in [0, 1], to an absolute error of 1e-12.

    The error is relative where the result is to be compared with an `at_most` below 1e-9.
    """
    smallest = SMALL if at_most < TRUSTED_DELTA else 0.0
    terms = _gather_terms(losses, level)
    return _split_probability(terms, smallest_confidence=0.0, smallest_failure=smallest).failure


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of Q: the distinct coefficients that are not 0, and how often each occurs."""

    coefficients: Floats
    counts: Integers

    @property
    def n_positive(self) -> int:
        """How many terms have a positive coefficient."""
        return int(self.counts[self.coefficients > 0].sum())

    @property
    def n_negative(self) -> int:
        """How many terms have a negative coefficient."""
        return int(self.counts[self.coefficients < 0].sum())

    def repeated(self) -> Floats:
        """Return every coefficient as often as it occurs, ascending."""
        return np.repeat(self.coefficients, self.counts)


@dataclass(frozen=True)
class Split:
    """P(Q <= 0) and P(Q > 0), each with digits of its own."""

    confidence: float
    failure: float


def _gather_terms(losses: Floats, level: Fraction) -> Terms:
    """Collect the coefficients loss - level, that of the bound among them."""
    values, counts = np.unique(np.append(losses, 1.0), return_counts=True)
    coefficients = values - float(level)
    is_term = coefficients != 0
    return Terms(coefficients[is_term], counts[is_term])


def _split_probability(
    terms: Terms, *, smallest_confidence: float, smallest_failure: float
) -> Split:
    """Compute both probabilities by the cheapest method that is accurate enough.

    Davies' method is trusted with probabilities from the two smallest ones on.
    """
    n_positive = terms.n_positive
    n_negative = terms.n_negative
    if n_negative == 0:
        return Split(confidence=0.0, failure=1.0)

    if len(terms.coefficients) == 2:
        # p Gamma(H) <= n Gamma(K) says that a Beta(H, K) variable is at most n / (p + n).
        negative, positive = terms.coefficients
        share = -negative / (positive - negative)
        return Split(
            confidence=float(betainc(n_positive, n_negative, share)),
            failure=float(betaincc(n_positive, n_negative, share)),
        )

    if n_positive * n_negative > CHEAP_RECURSION:
        confidence = _by_davies(terms)
        failure = 1 - confidence
        # NaN, where the sum did not settle, compares false.
        if confidence >= smallest_confidence and failure >= smallest_failure:
            return Split(confidence, failure)
    return _by_recursion(terms)


def _by_recursion(terms: Terms) -> Split:
    """Compute both probabilities for h positive terms p E and k negative terms -n E.

    p E - n E' is distributed as -n E with probability n / (p + n) and as p E otherwise, so that
    f(h, k) = (n_k f(h - 1, k) + p_h f(h, k - 1)) / (p_h + n_k), with f(0, k) = 1 and f(h, 0) = 0.
    Every anti-diagonal h + k is one vector; its column h holds f(h, diagonal - h), and the
    complement by a sum of its own.
    """
    coefficients = terms.repeated()
    positive = coefficients[coefficients > 0]
    negative = -coefficients[coefficients < 0]
    h_end = len(positive)
    k_end = len(negative)

    confidence = np.zeros(h_end + 1)
    failure = np.zeros(h_end + 1)
    confidence[0] = 1.0
    for diagonal in range(1, h_end + k_end + 1):
        first = max(1, diagonal - k_end)  # both coordinates are at least 1
        last = min(h_end, diagonal - 1)
        if first <= last:
            p = positive[first - 1 : last]
            n = negative[k_end - diagonal + first : k_end - diagonal + last + 1]
            for values in (confidence, failure):
                from_left = values[first - 1 : last] * (n / (p + n))
                values[first : last + 1] *= p / (p + n)
                values[first : last + 1] += from_left
        if diagonal <= h_end:  # f(h, 0): no negative term is left
            confidence[diagonal] = 0.0
            failure[diagonal] = 1.0
    return Split(float(confidence[h_end]), float(failure[h_end]))


def _by_davies(terms: Terms) -> float:
    """Compute P(Q <= 0) by Davies' sum over t_k = (k + 1/2) step; NaN if it does not settle.

    The step 2 pi / U errs by less than the chance that |Q| > U, which Chernoff's bound keeps below
    1e-15. What is left after node t is bounded through the local decay of the characteristic
    function, |phi(s)| <= |phi(t)| (t / s)^N(t) for s > t.
    """
    coefficients = terms.coefficients
    counts = terms.counts
    if np.all(coefficients > 0):
        return 0.0

    reach = max(_chernoff_reach(coefficients, counts), _chernoff_reach(-coefficients, counts))
    step = 2 * math.pi / reach
    squares = coefficients**2
    total = 0.0
    for start in range(0, MOST_NODES, NODES_AT_ONCE):
        k = np.arange(start, start + NODES_AT_ONCE) + 0.5
        nodes = k * step
        log_modulus = -0.5 * (np.log1p(np.multiply.outer(nodes**2, squares)) @ counts)
        modulus = np.exp(log_modulus)
        angle = np.arctan(np.multiply.outer(nodes, coefficients)) @ counts
        total += float(np.sum(modulus * np.sin(angle) / k))

        grown = squares * nodes[-1] ** 2
        decay = float(np.sum(counts * (grown / (1 + grown))))
        remainder = modulus[-1] * (1 / k[-1] + 1 / decay) / math.pi
        if remainder < NEGLIGIBLE_TAIL:
            return min(1.0, max(0.0, 0.5 - total / math.pi))
    return math.nan


def _chernoff_reach(coefficients: Floats, counts: Integers) -> float:
    """Find a U with P(Q > U) <= 1e-15, by Chernoff's bound at the best of a few exponents."""
    largest = float(coefficients.max())
    if largest <= 0:
        return 0.0
    small = np.geomspace(1e-4, 0.5, 24)
    near_one = 1 - np.geomspace(0.45, 1e-3, 10)
    exponents = np.concatenate([small, near_one]) / largest
    cumulants = -(np.log1p(-np.multiply.outer(exponents, coefficients)) @ counts)
    bounds = (cumulants - math.log(NEGLIGIBLE_TAIL)) / exponents
    return max(0.0, float(np.min(bounds)))


def _sample_confidence(
    losses: Floats, level: float, n_draws: int, rng: np.random.Generator
) -> float:
    """Estimate P(Q <= 0) by sampled weights, some million numbers at a time."""
    coefficients = np.append(losses, 1.0) - level
    batch = max(1, min(n_draws, CELLS_AT_ONCE // len(coefficients)))
    hits = 0
    for start in range(0, n_draws, batch):
        size = min(batch, n_draws - start)
        weights = rng.standard_exponential((size, len(coefficients)))
        hits += int(np.count_nonzero(weights @ coefficients <= 0))
    return hits / n_draws
