"""P(L+ <= alpha) for Bayesian quadrature with any bounded loss, computed exactly.

L+ = sum of w_i l_i + w_{n+1} B with (w_1, ..., w_{n+1}) uniform on the simplex (Snell and
Griffiths 2025): the mean loss under random weights, in which the largest possible loss B counts
once more. Weights are exponential variables over their sum, so P(L+ <= alpha) = P(Q <= 0) for

    Q = sum of c_i E_i,  with c_i = l_i - alpha, c_{n+1} = B - alpha

and independent standard exponential E_i. There are two deterministic ways to that number:

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
from dco.risk.loss_matrix import alpha_over_bound, check_column_of_losses

METHODS = ("exact", "recursion", "davies", "dirichlet")
CHEAP_RECURSION = 5_000  # up to this many steps the recursion takes less than a millisecond

# Davies' method is accurate in absolute terms: a probability below SMALL keeps few digits there,
# which matters for a delta below TRUSTED_DELTA.
SMALL = 1e-3
TRUSTED_DELTA = 1e-9
NEGLIGIBLE_TAIL = 1e-15  # what Davies' sum may miss on each side
NODES_AT_ONCE = 64  # of Davies' sum, which ends after the first such block that is enough
MOST_NODES = 16_384

# The exponents s that are tried for Chernoff's bound, which is finite for 0 < s < 1 / max c, as
# shares of 1 / max c: the best one is small for many terms, and close to 1 for few.
CHERNOFF_SHARES = np.concatenate([np.geomspace(1e-4, 0.5, 24), 1 - np.geomspace(0.45, 1e-3, 10)])

CELLS_AT_ONCE = 4_000_000  # sampled weights in memory


def bq_confidence(
    losses: ArrayLike,
    *,
    alpha: Level,
    bound: float = 1.0,
    method: Literal["exact", "recursion", "davies", "dirichlet"] = "exact",
    draws: int = 100_000,
    random_state: int | np.random.Generator = 0,
) -> float:
    """Return the probability that a randomly weighted mean of the losses is at most alpha.

    This is how sure Bayesian quadrature (Snell and Griffiths 2025) is that the mean loss of new
    rows is at most alpha. The weights are uniform among those that sum to 1. The largest possible
    loss counts once more among the losses, as that of a row to come.

    Parameters
    ----------
    losses
        The losses (n,) of the calibration rows, in any order.
    alpha
        The limit of the weighted mean loss.
    bound
        The largest loss that is possible at all.
    method
        "exact" takes the cheapest way that is exact for these losses. "recursion" and "davies"
        (inversion of the characteristic function) name one of these ways. "dirichlet" samples
        weights, as the authors of the rule do, for comparison.
    draws, random_state
        How many weights "dirichlet" samples, and its seed.
    """
    if method not in METHODS:
        raise ValueError(
            f'method must be "exact", "recursion", "davies" or "dirichlet", got {method!r}.'
        )
    largest_loss = as_positive(bound, name="bound")
    scaled_losses = check_column_of_losses(losses, bound=largest_loss) / largest_loss
    scaled_alpha = alpha_over_bound(alpha, largest_loss)
    if method == "dirichlet":
        n_draws = as_count(draws, name="draws", least=1)
        rng = np.random.default_rng(random_state)
        return _sample_confidence(scaled_losses, float(scaled_alpha), n_draws, rng)

    terms = _gather_terms(scaled_losses, scaled_alpha)
    if method == "recursion":
        return _by_recursion(terms).confidence
    if method == "davies":
        return _by_davies(terms)
    # A small confidence is asked for its digits, which Davies' absolute accuracy does not give.
    return _by_cheapest_method(terms, min_confidence=SMALL, min_failure=0.0).confidence


def bq_failure(losses: Floats, alpha: Fraction, *, at_most: float) -> float:
    """Return P(L+ > alpha) for losses in [0, 1], to be compared with `at_most`.

    The error is at most 1e-12: an absolute one, or where `at_most` is below 1e-9, a relative one.
    """
    min_failure = SMALL if at_most < TRUSTED_DELTA else 0.0
    terms = _gather_terms(losses, alpha)
    return _by_cheapest_method(terms, min_confidence=0.0, min_failure=min_failure).failure


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of Q: the distinct coefficients c that are not 0, and how often each occurs."""

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

    def repeat(self) -> Floats:
        """Return every coefficient as often as it occurs, ascending."""
        return np.repeat(self.coefficients, self.counts)


@dataclass(frozen=True)
class Probabilities:
    """P(Q <= 0) and P(Q > 0). Each has its own digits, where it is small."""

    confidence: float
    failure: float


def _gather_terms(losses: Floats, alpha: Fraction) -> Terms:
    """Collect the coefficients c = loss - alpha, with that of the largest loss, 1, among them."""
    values, counts = np.unique(np.append(losses, 1.0), return_counts=True)
    coefficients = values - float(alpha)
    is_term = coefficients != 0
    return Terms(coefficients[is_term], counts[is_term])


def _by_cheapest_method(
    terms: Terms, *, min_confidence: float, min_failure: float
) -> Probabilities:
    """Compute P(Q <= 0) and P(Q > 0) by the cheapest method that is accurate enough.

    Q is the sum of the coefficients in `terms`, each times an independent standard exponential
    variable. A closed form or a recursion does for few terms, Davies' method for many: unless it
    gives a confidence below `min_confidence` or a failure below `min_failure`, which have too few
    correct digits.
    """
    n_positive = terms.n_positive
    n_negative = terms.n_negative
    if n_negative == 0:
        return Probabilities(confidence=0.0, failure=1.0)

    if len(terms.coefficients) == 2:
        return _by_beta_tail(terms)

    if n_positive * n_negative > CHEAP_RECURSION:
        confidence = _by_davies(terms)  # NaN, where the sum did not settle, compares false below
        failure = 1 - confidence
        if confidence >= min_confidence and failure >= min_failure:
            return Probabilities(confidence, failure)
    return _by_recursion(terms)


def _by_beta_tail(terms: Terms) -> Probabilities:
    """Compute both probabilities where only two coefficients occur, p > 0 and -n < 0.

    For h terms p E and k terms -n E, Q <= 0 says that p Gamma(h) <= n Gamma(k), and so that a
    Beta(h, k) variable is at most n / (p + n).
    """
    negative, positive = terms.coefficients
    share = -negative / (positive - negative)
    return Probabilities(
        confidence=float(betainc(terms.n_positive, terms.n_negative, share)),
        failure=float(betaincc(terms.n_positive, terms.n_negative, share)),
    )


def _by_recursion(terms: Terms) -> Probabilities:
    """Compute P(Q <= 0) and P(Q > 0) by a recursion over the terms of Q.

    Q is the sum of positive terms p_1 E, ..., p_H E and negative terms -n_1 E, ..., -n_K E, where
    each E is another standard exponential variable. p E - n E' is distributed as -n E with
    probability n / (p + n), and as p E otherwise. So the probability that the first h positive and
    the first k negative terms have a sum <= 0 is

        f(h, k) = (n_k f(h - 1, k) + p_h f(h, k - 1)) / (p_h + n_k),   f(0, k) = 1, f(h, 0) = 0

    That of a sum > 0 follows the same formula, with f(0, k) = 0 and f(h, 0) = 1. In the table of
    all f(h, k), those with the same h + k, a diagonal, follow from the diagonal before it.
    """
    coefficients = terms.repeat()
    p = coefficients[coefficients > 0]
    n = -coefficients[coefficients < 0][::-1]
    H = len(p)
    K = len(n)

    # diagonal[:, h] is f(h, k) on the present diagonal: row 0 for <= 0, row 1 for > 0
    without_positive = (1.0, 0.0)
    without_negative = (0.0, 1.0)
    diagonal = np.zeros((2, H + 1))
    diagonal[:, 0] = without_positive
    for h_plus_k in range(1, H + K + 1):
        # 1. The formula where h and k are at least 1. Arrays count from 0: p_h is p[h - 1].
        h = np.arange(max(1, h_plus_k - K), min(H, h_plus_k - 1) + 1)
        p_h = p[h - 1]
        n_k = n[h_plus_k - h - 1]
        one_positive_less = n_k / (p_h + n_k) * diagonal[:, h - 1]
        one_negative_less = p_h / (p_h + n_k) * diagonal[:, h]
        diagonal[:, h] = one_positive_less + one_negative_less

        # 2. The border k = 0; that with h = 0 stays as it is.
        if h_plus_k <= H:
            diagonal[:, h_plus_k] = without_negative
    confidence, failure = diagonal[:, H].tolist()
    return Probabilities(confidence, failure)


def _by_davies(terms: Terms) -> float:
    """Compute P(Q <= 0) from the characteristic function phi of Q; NaN if the sum does not settle.

    Q is a sum of independent standard exponential variables, m_j of them times the coefficient c_j.
    For nodes t_k = (k + 1/2) step, k = 0, 1, ... (Davies 1973):

    - log |phi(t)| = -1/2 sum over j of m_j log(1 + c_j^2 t^2)
    - arg phi(t) = sum over j of m_j arctan(c_j t)
    - P(Q <= 0) = 1/2 - 1/pi sum over k of |phi(t_k)| sin(arg phi(t_k)) / (k + 1/2)
    """
    c = terms.coefficients
    m = terms.counts
    if np.all(c > 0):
        return 0.0

    # 1. The step 2 pi / U errs by less than P(|Q| > U), which is negligible.
    largest_q = max(_chernoff_reach(c, m), _chernoff_reach(-c, m))
    step = 2 * math.pi / largest_q

    # 2. Add up a block of nodes at a time, until the nodes after it add next to nothing.
    total = 0.0
    for start in range(0, MOST_NODES, NODES_AT_ONCE):
        k_plus_half = np.arange(start, start + NODES_AT_ONCE) + 0.5
        t = k_plus_half * step
        modulus = np.exp(-0.5 * (np.log1p(np.multiply.outer(t**2, c**2)) @ m))
        angle = np.arctan(np.multiply.outer(t, c)) @ m
        total += float(np.sum(modulus * np.sin(angle) / k_plus_half))

        remainder = _bound_remainder(terms, t[-1], modulus[-1], k_plus_half[-1])
        if remainder < NEGLIGIBLE_TAIL:
            return min(1.0, max(0.0, 0.5 - total / math.pi))
    return math.nan


def _bound_remainder(terms: Terms, t: float, modulus: float, k_plus_half: float) -> float:
    """Bound what the nodes after the last one, t, add to the sum of `_by_davies`.

    `modulus` is |phi(t)|, and k + 1/2 belongs to t. For s > t, |phi(s)| <= |phi(t)| (t / s)^decay
    with decay = sum over j of m_j (c_j t)^2 / (1 + (c_j t)^2).
    """
    c_t_squared = terms.coefficients**2 * t**2
    decay = float(np.sum(terms.counts * (c_t_squared / (1 + c_t_squared))))
    return modulus * (1 / k_plus_half + 1 / decay) / math.pi


def _chernoff_reach(coefficients: Floats, counts: Integers) -> float:
    """Find a U with P(Q > U) <= 1e-15, by Chernoff's bound.

    Q is a sum of independent standard exponential variables, m_j of them times the coefficient c_j.
    P(Q > U) <= exp(cumulant(s) - s U) for any 0 < s < 1 / max c, where Q has the cumulant function
    cumulant(s) = -sum of m_j log(1 - s c_j). Solved for U; the smallest U over a few s is taken.
    """
    largest = float(coefficients.max())
    if largest <= 0:
        return 0.0
    s = CHERNOFF_SHARES / largest
    cumulants = -(np.log1p(-np.multiply.outer(s, coefficients)) @ counts)
    bounds = (cumulants - math.log(NEGLIGIBLE_TAIL)) / s
    return max(0.0, float(np.min(bounds)))


def _sample_confidence(
    losses: Floats, alpha: float, n_draws: int, rng: np.random.Generator
) -> float:
    """Estimate the probability that a randomly weighted mean of the losses is at most alpha.

    Losses lie in [0, 1]; the largest possible one, 1, counts once more among them. Uniform random
    weights are standard exponential variables over their sum. The weighted mean is at most alpha if
    the sum of weight * (loss - alpha) is at most 0, so the weights need not be divided.
    """
    coefficients = np.append(losses, 1.0) - alpha
    n_weights = len(coefficients)
    draws_at_once = max(1, min(n_draws, CELLS_AT_ONCE // n_weights))  # so that memory holds them

    n_at_most_alpha = 0
    for start in range(0, n_draws, draws_at_once):
        size = min(draws_at_once, n_draws - start)
        weights = rng.standard_exponential((size, n_weights))
        is_at_most_alpha = weights @ coefficients <= 0
        n_at_most_alpha += int(np.count_nonzero(is_at_most_alpha))
    return n_at_most_alpha / n_draws
