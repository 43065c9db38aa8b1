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
    Gaussian distribution". With ω = sqrt(a b), it is enough to draw Y from the density with |order|
    in place of the order and ω in place of both a and b: sqrt(b / a) Y has the wanted density, or
    sqrt(b / a) / Y where the order is negative.

    Proposals are made for x = log Y - (mode of log Y), whose log density is simple (see
    `_LogDensity`).
    """
    omega = np.sqrt(a * b)
    log_density = _LogDensity.of(np.abs(order), omega)

    # 1. Propose several values of x for each entry, (PROPOSALS, entries).
    envelope = _Envelope.of(log_density)
    u, v, w = rng.random((3, PROPOSALS, omega.size))
    x = envelope.propose(pick_part=u, pick_point=v)

    # 2. Accept a proposal with probability density / envelope, and take the first accepted one. An
    # entry without any takes its first proposal, and is drawn again below.
    is_accepted = np.log1p(-w) <= log_density.at(x) - envelope.log_height(x)
    first_accepted = is_accepted.argmax(axis=0)[None, :]
    x_taken = np.take_along_axis(x, first_accepted, axis=0)[0]

    # 3. Back from x to Y, and from Y to the draw.
    Y = np.exp(x_taken) * log_density.mode_times_omega / omega
    draws = np.asarray(np.sqrt(b / a) * np.where(order < 0, 1 / Y, Y))

    # 4. Draw again for the entries that accepted no proposal.
    refused = np.flatnonzero(~is_accepted.any(axis=0))
    if refused.size:
        draws[refused] = generalised_inverse_gaussian(rng, order[refused], a[refused], b[refused])
    return draws


@dataclass(frozen=True, eq=False)
class _LogDensity:
    """The log density of x = log Y - (mode of log Y), less its largest value, for each entry.

    Y has the density ∝ y^(λ - 1) exp(-ω (y + 1 / y) / 2), and the mode of log Y is
    log((λ + sqrt(λ² + ω²)) / ω). The log density is

        ψ(x) = -α (cosh x - 1) - λ (e^x - x - 1),   α = sqrt(λ² + ω²) - λ

    which is concave, and 0 at x = 0.
    """

    lam: Floats  # λ
    alpha: Floats  # α
    root: Floats  # sqrt(λ² + ω²) = α + λ

    @classmethod
    def of(cls, lam: Floats, omega: Floats) -> _LogDensity:
        """Prepare the constants of ψ, from λ >= 0 and ω > 0."""
        root = np.hypot(lam, omega)
        alpha = omega * omega / (root + lam)  # sqrt(λ² + ω²) - λ without cancellation
        return cls(lam=lam, alpha=alpha, root=root)

    @property
    def mode_times_omega(self) -> Floats:
        """ω times exp(mode of log Y), λ + sqrt(λ² + ω²)."""
        return self.lam + self.root

    def at(self, x: Floats) -> Floats:
        """Return ψ(x)."""
        e_x = np.exp(x)
        return np.asarray(-self.alpha * (0.5 * (e_x + 1 / e_x) - 1) - self.lam * (e_x - x - 1))

    def slope(self, x: Floats) -> Floats:
        """Return ψ'(x) = -α sinh x - λ (e^x - 1)."""
        return np.asarray(-self.alpha * np.sinh(x) - self.lam * np.expm1(x))


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
    def of(cls, log_density: _LogDensity) -> _Envelope:
        """Build the envelope from two tangents of ψ, one on either side of its peak at x = 0.

        ψ is concave, so its tangents lie above it. The middle goes from where the left tangent
        reaches 0 to where the right one does. Any two points of contact would be right; these are
        near ψ = -1, where more than 6 proposals in 10 are accepted. (Devroye distinguishes cases to
        find them; one formula per side is enough.)
        """
        lam = log_density.lam
        alpha = log_density.alpha
        root = log_density.root
        with np.errstate(divide="ignore", over="ignore"):
            right = np.log1p(np.sqrt(2 / root) + 2 / root)
            if_lam_is_large = np.sqrt(2 / lam) + 1 / lam
            if_alpha_is_large = np.log1p(np.sqrt(2 / alpha) + 2 / alpha)
            left = -np.minimum(if_lam_is_large, if_alpha_is_large)

        fall = -log_density.slope(right)
        rise = log_density.slope(left)
        return cls(
            lower=left - log_density.at(left) / rise,
            upper=right + log_density.at(right) / fall,
            rise=rise,
            fall=fall,
        )

    def propose(self, *, pick_part: Floats, pick_point: Floats) -> Floats:
        """Turn uniform numbers from 0 to 1 into draws with the envelope as density.

        `pick_part` picks the left tail, the middle or the right tail, with a probability
        proportional to the area below it; `pick_point` picks a point of that part.
        """
        middle_area = self.upper - self.lower
        right_area = 1 / self.fall
        left_area = 1 / self.rise
        position = pick_part * (middle_area + right_area + left_area)
        is_middle = position < middle_area
        is_right = position < middle_area + right_area

        log_v = np.log1p(-pick_point)
        in_middle = self.lower + middle_area * pick_point
        in_right_tail = self.upper - log_v / self.fall
        in_left_tail = self.lower + log_v / self.rise
        in_tail = np.where(is_right, in_right_tail, in_left_tail)
        return np.asarray(np.where(is_middle, in_middle, in_tail))

    def log_height(self, x: Floats) -> Floats:
        """Return the logarithm of the envelope at x."""
        left_tail = np.where(x < self.lower, self.rise * (x - self.lower), 0.0)
        return np.asarray(np.where(x > self.upper, self.fall * (self.upper - x), left_tail))


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
