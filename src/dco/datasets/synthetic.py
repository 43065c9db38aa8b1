"""Populations whose true coverage and set sizes are known in closed form, for checking guarantees.

Each is a small frozen object: ``sample(n, rng)`` draws rows, the other methods give the truth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax
from scipy.stats import norm

from dco import ClassProbabilities, Intervals, LabelSets, Points, PointsWithSpread
from dco.foundations.arrays import Floats, Integers


@dataclass(frozen=True)
class HeteroscedasticGaussian:
    """x uniform on [0, 1]; y given x is N(sin(2 pi x), (least + slope x)^2)."""

    least: float = 0.2
    slope: float = 1.0

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw features (n, 1) and responses (n,)."""
        X = rng.uniform(size=(n, 1))
        return X, self.mean(X) + self.spread(X) * rng.standard_normal(n)

    def mean(self, X: Floats) -> Floats:
        """Return E[y | x]."""
        return np.asarray(np.sin(2 * np.pi * X[:, 0]))

    def spread(self, X: Floats) -> Floats:
        """Return the standard deviation of y given x."""
        return np.asarray(self.least + self.slope * X[:, 0])

    def prediction(self, X: Floats) -> PointsWithSpread:
        """Return what a perfect model would say."""
        return PointsWithSpread(self.mean(X), self.spread(X))

    def coverage_given_x(self, X: Floats, intervals: Intervals) -> Floats:
        """Return P(y in interval | x) for each row, exactly.

        Its average over fresh X is the coverage of a fitted rule.
        """
        mean = self.mean(X)
        spread = self.spread(X)
        up_to_lower = norm.cdf((intervals.lower - mean) / spread)
        up_to_upper = norm.cdf((intervals.upper - mean) / spread)
        return np.asarray(np.where(intervals.is_empty(), 0.0, up_to_upper - up_to_lower))

    def normalised_coverage(self, threshold: float) -> float:
        """Return P(|y - mean| / spread <= t) = 2 Phi(t) - 1."""
        return max(0.0, float(2 * norm.cdf(threshold) - 1))

    def normalised_size(self, threshold: float) -> float:
        """Return the mean width of mean ± t spread, 2 t (least + slope / 2)."""
        return max(0.0, 2 * threshold * (self.least + self.slope / 2))


@dataclass(frozen=True)
class GaussianClasses:
    """K classes, equally likely; x given class k is N(separation e_k, I) in K dimensions."""

    n_classes: int = 5
    separation: float = 2.0

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Floats, Integers]:
        """Draw features (n, K) and labels 0..K-1."""
        y = rng.integers(self.n_classes, size=n)
        X = rng.standard_normal((n, self.n_classes))
        X[np.arange(n), y] += self.separation
        return X, y

    def probabilities(self, X: Floats, sharpness: float = 1.0) -> Floats:
        """Return P(class | x) = softmax(separation x), exactly.

        With another `sharpness` than 1 they are over- or underconfident.
        """
        return np.asarray(softmax(sharpness * self.separation * X, axis=1))

    def prediction(self, X: Floats, sharpness: float = 1.0) -> ClassProbabilities:
        """Return what a perfect model would say, or one with the wrong `sharpness`."""
        return ClassProbabilities(self.probabilities(X, sharpness))

    def coverage_given_x(self, X: Floats, sets: LabelSets) -> Floats:
        """Return P(y in set | x) for each row: the true probabilities of the set's labels."""
        members = sets.to_dense()
        return np.asarray((self.probabilities(X) * members).sum(axis=1))

    def two_class_coverage(self, threshold: float) -> float:
        """Return P(1 - P(y | x) <= t) for two classes, in closed form.

        With d = separation the log odds of the true class are N(d^2, 2 d^2); 1 - p <= t means log
        odds >= log((1 - t) / t).
        """
        if self.n_classes != 2:
            raise ValueError(f"the closed form is for two classes, not {self.n_classes}.")
        if not 0 < threshold < 1:
            return float(threshold >= 1)
        log_odds = np.log1p(-threshold) - np.log(threshold)
        sd = np.sqrt(2) * self.separation
        return float(norm.sf((log_odds - self.separation**2) / sd))

    def two_class_size(self, threshold: float) -> float:
        """Return the mean size of {k : 1 - P(k | x) <= t} for two classes.

        That is P(true label in) + P(other label in).
        """
        if not 0 < threshold < 1:
            return 2.0 * float(threshold >= 1)
        log_odds = np.log1p(-threshold) - np.log(threshold)
        sd = np.sqrt(2) * self.separation
        other_is_in = norm.sf((log_odds + self.separation**2) / sd)
        return self.two_class_coverage(threshold) + float(other_is_in)


@dataclass(frozen=True)
class AtomPopulation:
    """Rows that repeat: with probability `mass` a row is one fixed hard value, otherwise it is new.

    The score of a new row is uniform on [0, 1], that of the repeated one is `hard`. Rows drawn
    independently stay exchangeable although they repeat; putting all copies into one role does not.
    """

    mass: float = 0.15
    hard: float = 2.0

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Integers, Floats]:
        """Draw identities (0 for the atom, otherwise all different) and scores."""
        is_atom = rng.uniform(size=n) < self.mass
        identities = np.where(is_atom, 0, np.arange(1, n + 1))
        scores = np.where(is_atom, self.hard, rng.uniform(size=n))
        return identities, scores

    def coverage(self, threshold: float) -> float:
        """Return P(score <= t), exactly."""
        new_is_covered = float(np.clip(threshold, 0, 1))
        atom_is_covered = float(threshold >= self.hard)
        return (1 - self.mass) * new_is_covered + self.mass * atom_is_covered


@dataclass(frozen=True)
class NoisyPoints:
    """Candidates of known quality.

    y is N(0, 1) around a signal, and candidate c predicts the signal plus N(0, noises[c]^2). The
    residual of candidate c is N(0, 1 + noises[c]^2), so its best interval at level 1 - alpha has a
    known width.
    """

    noises: tuple[float, ...] = (0.0, 0.5, 1.0)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[tuple[Points, ...], Floats]:
        """Draw one `Points` record per candidate, and the responses."""
        signal = 3 * rng.standard_normal(n)
        y = signal + rng.standard_normal(n)
        records = [Points(signal + noise * rng.standard_normal(n)) for noise in self.noises]
        return tuple(records), y

    def coverage(self, candidate: int, threshold: float) -> float:
        """Return P(|y - prediction| <= t), exactly."""
        sd = np.hypot(1, self.noises[candidate])
        return max(0.0, float(2 * norm.cdf(threshold / sd) - 1))

    def threshold(self, candidate: int, *, alpha: float) -> float:
        """Return the half-width at which candidate c covers exactly 1 - alpha."""
        return float(norm.isf(alpha / 2) * np.hypot(1, self.noises[candidate]))
