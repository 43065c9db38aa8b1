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
        """Features (n, 1) and responses (n,)."""
        X = rng.uniform(size=(n, 1))
        return X, self.mean(X) + self.spread(X) * rng.standard_normal(n)

    def mean(self, X: Floats) -> Floats:
        """E[y | x]."""
        return np.asarray(np.sin(2 * np.pi * X[:, 0]))

    def spread(self, X: Floats) -> Floats:
        """The standard deviation of y given x."""
        return np.asarray(self.least + self.slope * X[:, 0])

    def prediction(self, X: Floats) -> PointsWithSpread:
        """What a perfect model would say."""
        return PointsWithSpread(self.mean(X), self.spread(X))

    def coverage_given_x(self, X: Floats, intervals: Intervals) -> Floats:
        """P(y in interval | x) for each row, exactly: average it over fresh X for the coverage of a
        fitted rule.
        """
        mean, spread = self.mean(X), self.spread(X)
        upper, lower = (
            norm.cdf((intervals.upper - mean) / spread),
            norm.cdf((intervals.lower - mean) / spread),
        )
        return np.asarray(np.where(intervals.is_empty(), 0.0, upper - lower))

    def normalised_coverage(self, threshold: float) -> float:
        """P(|y - mean| / spread <= t) = 2 Phi(t) - 1: coverage of the perfectly normalised
        residual.
        """
        return max(0.0, float(2 * norm.cdf(threshold) - 1))

    def normalised_size(self, threshold: float) -> float:
        """The mean width of mean ± t spread: 2 t E[spread] = 2 t (least + slope / 2)."""
        return max(0.0, 2 * threshold * (self.least + self.slope / 2))


@dataclass(frozen=True)
class GaussianClasses:
    """K classes, equally likely; x given class k is N(separation e_k, I) in K dimensions."""

    n_classes: int = 5
    separation: float = 2.0

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Floats, Integers]:
        """Features (n, K) and labels 0..K-1."""
        y = rng.integers(self.n_classes, size=n)
        X = rng.standard_normal((n, self.n_classes))
        X[np.arange(n), y] += self.separation
        return X, y

    def probabilities(self, X: Floats, sharpness: float = 1.0) -> Floats:
        """P(class | x) = softmax(separation x), exactly; another `sharpness` is over- or
        underconfident.
        """
        return np.asarray(softmax(sharpness * self.separation * X, axis=1))

    def prediction(self, X: Floats, sharpness: float = 1.0) -> ClassProbabilities:
        """What a perfect model would say (or one with the right order and the wrong
        `sharpness`).
        """
        return ClassProbabilities(self.probabilities(X, sharpness))

    def coverage_given_x(self, X: Floats, sets: LabelSets) -> Floats:
        """P(y in set | x) for each row: the true probabilities of its labels, added up."""
        return np.asarray((self.probabilities(X) * sets.to_dense()).sum(axis=1))

    def two_class_coverage(self, threshold: float) -> float:
        """K = 2 and the score 1 - P(y | x): P(1 - P(y | x) <= t), in closed form.

        With d = separation the log odds of the true class are N(d^2, 2 d^2); 1 - p <= t means log
        odds >= log((1 - t) / t).
        """
        if self.n_classes != 2:
            raise ValueError(f"the closed form is for two classes, not {self.n_classes}.")
        if not 0 < threshold < 1:
            return float(threshold >= 1)
        odds = np.log1p(-threshold) - np.log(threshold)
        return float(norm.sf((odds - self.separation**2) / (np.sqrt(2) * self.separation)))

    def two_class_size(self, threshold: float) -> float:
        """K = 2 and the score 1 - P(y | x): the mean number of labels, P(true label in) + P(other
        label in).
        """
        if not 0 < threshold < 1:
            return 2.0 * float(threshold >= 1)
        odds = np.log1p(-threshold) - np.log(threshold)
        other = norm.sf((odds + self.separation**2) / (np.sqrt(2) * self.separation))
        return self.two_class_coverage(threshold) + float(other)


@dataclass(frozen=True)
class AtomPopulation:
    """Rows that repeat: with probability `mass` a row is one fixed hard value, otherwise it is new.

    The score of a new row is uniform on [0, 1], that of the repeated one is `hard`. Rows drawn
    independently stay exchangeable although they repeat; putting all copies into one role does not.
    """

    mass: float = 0.15
    hard: float = 2.0

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Integers, Floats]:
        """Identities (0 for the atom, otherwise all different) and scores."""
        atom = rng.uniform(size=n) < self.mass
        return np.where(atom, 0, np.arange(1, n + 1)), np.where(
            atom, self.hard, rng.uniform(size=n)
        )

    def coverage(self, threshold: float) -> float:
        """P(score <= t), exactly."""
        easy = float(np.clip(threshold, 0, 1))
        return (1 - self.mass) * easy + self.mass * float(threshold >= self.hard)


@dataclass(frozen=True)
class NoisyPoints:
    """Candidates of known quality: y is N(0, 1) around a signal and candidate c predicts the signal
    plus N(0, noises[c]^2).

    The residual of candidate c is N(0, 1 + noises[c]^2), so its best interval at level 1 - alpha
    has a known width.
    """

    noises: tuple[float, ...] = (0.0, 0.5, 1.0)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[tuple[Points, ...], Floats]:
        """One `Points` record per candidate, and the responses."""
        signal = 3 * rng.standard_normal(n)
        y = signal + rng.standard_normal(n)
        return tuple(Points(signal + noise * rng.standard_normal(n)) for noise in self.noises), y

    def coverage(self, candidate: int, threshold: float) -> float:
        """P(|y - prediction| <= t), exactly."""
        return max(0.0, float(2 * norm.cdf(threshold / np.hypot(1, self.noises[candidate])) - 1))

    def threshold(self, candidate: int, *, alpha: float) -> float:
        """The half-width at which candidate c covers exactly 1 - alpha."""
        return float(norm.isf(alpha / 2) * np.hypot(1, self.noises[candidate]))
