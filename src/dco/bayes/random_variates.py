"""Exact draws from two distributions that NumPy lacks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dco.foundations.arrays import Floats

# Made together for each draw of a rejection sampler, so that few draws need a second pass.
PROPOSALS = 4
SMALLEST_SIZE = 1e-150  # of a coefficient; its square is a float


def generalised_inverse_gaussian(
    rng: np.random.Generator, order: Floats, a: Floats, b: Floats
) -> Floats:
    """Draw once for each entry from the density ∝ x^(order - 1) exp(-(a x + b / x) / 2), a, b > 0.

    By rejection, after Devroye (2014), "Random variate generation for the generalized inverse
    Gaussian distribution". Let λ = |order|, ω = sqrt(a b), and let Y have the density with order λ
    and both other parameters ω. What is drawn is sqrt(b / a) Y, or sqrt(b / a) / Y where the order
    is negative. The mode of log Y is log((λ + sqrt(λ² + ω²)) / ω), and the log density of
    log Y - mode is the concave ψ of `_log_density`.
    """
    lam = np.abs(order)
    omega = np.sqrt(a * b)
    root = np.hypot(lam, omega)
    alpha = omega * omega / (root + lam)  # sqrt(λ² + ω²) - λ without cancellation

    # 1. Propose several values of x = log Y - mode for each entry, (PROPOSALS, entries).
    envelope = _Envelope.of_density(alpha, lam, root)
    u, v, w = rng.random((3, PROPOSALS, omega.size))
    x = envelope.propose(u, v)

    # 2. Accept a proposal with probability density / envelope, and take the first accepted one.
    is_accepted = np.log1p(-w) <= _log_density(x, alpha, lam) - envelope.log_height(x)
    first_accepted = (is_accepted.argmax(axis=0), np.arange(omega.size))  # proposal, entry

    # 3. Back from x to Y, and from Y to the draw.
    Y = np.exp(x[first_accepted]) * (lam + root) / omega
    draws = np.asarray(np.sqrt(b / a) * np.where(order < 0, 1 / Y, Y))

    # 4. Draw again for the entries that accepted no proposal.
    refused = np.flatnonzero(~is_accepted[first_accepted])
    if refused.size:
        draws[refused] = generalised_inverse_gaussian(rng, order[refused], a[refused], b[refused])
    return draws


@dataclass(frozen=True, eq=False)
class _Envelope:
    """A function that lies above exp(ψ): flat in the middle, exponential on both sides.

    It is 1 from `lower` to `upper`, exp(rise (x - lower)) below and exp(-fall (x - upper)) above.
    Each field has one number per entry.
    """

    lower: Floats
    upper: Floats
    rise: Floats
    fall: Floats

    @classmethod
    def of_density(cls, alpha: Floats, lam: Floats, root: Floats) -> _Envelope:
        """Build the envelope of exp(ψ) from the tangents of ψ at -s and at t.

        ψ is concave, so its tangents lie above it. -s and t are where ψ is about -1: their choice
        only affects speed. With one formula per side, simpler than Devroye's cases, more than 6
        proposals in 10 are accepted everywhere. `root` is sqrt(λ² + ω²) = alpha + λ.
        """
        with np.errstate(divide="ignore", over="ignore"):
            t = np.log1p(np.sqrt(2 / root) + 2 / root)
            s = np.minimum(np.sqrt(2 / lam) + 1 / lam, np.log1p(np.sqrt(2 / alpha) + 2 / alpha))

        # The slopes of the tangents are -fall = ψ'(t) and rise = ψ'(-s); both reach 0 at the ends
        # of the flat middle.
        fall = alpha * np.sinh(t) + lam * np.expm1(t)
        rise = alpha * np.sinh(s) - lam * np.expm1(-s)
        upper = t + _log_density(t, alpha, lam) / fall
        lower = -s - _log_density(-s, alpha, lam) / rise
        return cls(lower=lower, upper=upper, rise=rise, fall=fall)

    def propose(self, u: Floats, v: Floats) -> Floats:
        """Turn uniforms into draws from the envelope: u picks one of its parts, v a point in it."""
        middle_area = self.upper - self.lower
        falling_area = 1 / self.fall
        rising_area = 1 / self.rise
        position = u * (middle_area + falling_area + rising_area)

        log_v = np.log1p(-v)
        in_middle = self.lower + middle_area * v
        in_falling_tail = self.upper - log_v / self.fall
        in_rising_tail = self.lower + log_v / self.rise
        is_falling = position < middle_area + falling_area
        in_tail = np.where(is_falling, in_falling_tail, in_rising_tail)
        return np.asarray(np.where(position < middle_area, in_middle, in_tail))

    def log_height(self, x: Floats) -> Floats:
        """Return the logarithm of the envelope at x."""
        rising_tail = np.where(x < self.lower, self.rise * (x - self.lower), 0.0)
        return np.asarray(np.where(x > self.upper, self.fall * (self.upper - x), rising_tail))


def _log_density(x: Floats, alpha: Floats, lam: Floats) -> Floats:
    """Return ψ(x) = -alpha (cosh x - 1) - λ (e^x - x - 1), which is concave and 0 at x = 0."""
    e_x = np.exp(x)
    return np.asarray(-alpha * (0.5 * (e_x + 1 / e_x) - 1) - lam * (e_x - x - 1))


def laplace_variances(rng: np.random.Generator, theta: Floats, b: Floats) -> Floats:
    """Draw the variances of the normal distributions that a Laplace prior mixes over.

    If s ~ Exponential(mean 2b²) and θ | s ~ N(0, s), then θ ~ Laplace(0, b). Given θ,
    1/s ~ InverseGaussian(mean 1 / (b|θ|), shape 1 / b²). By Michael, Schucany and Haas (1976), with
    N ~ N(0, 1), w = N² b / (2|θ|) and r = 1 + w + sqrt(w (w + 2)),

        s = b|θ| r with probability r / (1 + r),   else s = b|θ| / r

    which is written for s, not for 1/s, so that a coefficient near 0 loses no digits.
    """
    size = np.maximum(np.abs(theta), SMALLEST_SIZE)
    w = rng.standard_normal(theta.shape) ** 2 * b / (2 * size)
    r = 1 + w + np.sqrt(w * (w + 2))
    takes_larger_root = rng.random(theta.shape) * (1 + 1 / r) <= 1
    return np.asarray(b * size * np.where(takes_larger_root, r, 1 / r))
