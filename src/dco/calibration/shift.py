"""`weights=`: how the mix of new rows differs from that of the calibration rows, as far as it is
known.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.calibration.rules.weighted import checked_weights, effective_n, weighted_conformal
from dco.foundations.arrays import AnyArray, Floats
from dco.foundations.ranks import Guarantee, Level, Threshold, as_rational
from dco.foundations.tables import n_rows

ESTIMATED = (
    "the weights were estimated. Coverage is at least the level minus the total variation between "
    "the mix that they "
    "describe and the true mix of new rows (half the mean error of the weights, scaled to mean 1). "
    "To lose at most a point of coverage, that must be at most 0.01, and nobody knows it"
)


@dataclass(frozen=True)
class WeightFacts:
    """Weights on a certificate: of what ("x" or "label"), as described, whether estimated, and how
    unequal they are.

    So many equally weighted rows would vary as much (``effective_n``), and the largest weight is
    ``most`` times the mean.
    """

    of: str
    given: str
    estimated: bool
    effective_n: float
    most: float


@dataclass(frozen=True)
class ShiftWeights:
    """Ratios of new to old: a function of X that gives one weight per row, or {label: ratio} if
    shares of labels changed.

    The weight of a row is its density among new rows over that among calibration rows, up to one
    factor that all share. Ratios that come from a design (sampling rates, a census) are known. If
    they were estimated from rows, say ``estimated=True``: the sets are made in the same way, and
    nothing is guaranteed.
    """

    given: Callable[[Any], Any] | Mapping[Any, float]
    estimated: bool = False

    def __post_init__(self) -> None:
        if not callable(self.given) and not isinstance(self.given, Mapping):
            kind = type(self.given).__name__
            raise ValueError(
                f"weights must be a function of X or a dict {{label: ratio}}, got {kind}: rows "
                f"not yet seen need it."
            )

    @property
    def by_label(self) -> bool:
        """Whether the label decides."""
        return isinstance(self.given, Mapping)

    def of_rows(self, X: Any, y: AnyArray) -> Floats:
        """The weight of each row of X, or of each label where labels decide."""
        if isinstance(self.given, Mapping):
            absent = [label for label in dict.fromkeys(y.tolist()) if label not in self.given]
            if absent:
                raise ValueError(
                    f"weights lack the label {absent[0]!r}: give a ratio for every "
                    f"label of the fit."
                )
            return checked_weights([self.given[label] for label in y.tolist()], "weights")
        found = checked_weights(self.given(X), "weights")
        if found.shape != (n_rows(X),):
            raise ValueError(
                f"weights must give one number for each of {n_rows(X)} rows, got "
                f"shape {found.shape}."
            )
        return found

    def cutoffs(
        self, calibration: Any, structure: Any, X: Any, record: Any, *, alpha: Level
    ) -> Floats:
        """A cut-off for each new row, or for each label that is tried, in the shape that a score
        takes.
        """
        new = self.of_rows(X, np.asarray(record.labels()))
        if structure.classes is not None:
            new = new[None, :] if self.by_label else new[:, None]
        return weighted_conformal(calibration.scores, calibration.weights, new, alpha=alpha).values

    def threshold(self, calibration: Any, *, alpha: Level, certifies: Guarantee) -> Threshold:
        """The cut-off of a new row of mean weight: that of other rows differs."""
        scores, weights = calibration.scores, calibration.weights
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # sets of new rows say how many are full
            value = weighted_conformal(scores, weights, [np.mean(weights)], alpha=alpha).values[0]
        guarantee: Guarantee = "none" if self.estimated else certifies
        return Threshold(float(value), None, scores.size, guarantee, float(as_rational(alpha)))

    def facts(self, weights: Floats, described: str) -> WeightFacts:
        """What a certificate says of them."""
        most = float(weights.max() / weights.mean()) if weights.size else 1.0
        of = "label" if self.by_label else "x"
        return WeightFacts(of, described, self.estimated, effective_n(weights), most)
