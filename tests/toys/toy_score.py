"""A score in one file: squared residuals."""

from dataclasses import dataclass

import numpy as np

from dco import Intervals
from dco.predictions import Points, PointsWithSpread
from dco.scores import Score, register


@dataclass(frozen=True)
class SquaredResidual(Score):
    """(y - mean)^2."""

    needs = (Points, PointsWithSpread)

    def observed(self, prediction, y):
        return (np.asarray(y) - prediction.mean) ** 2

    def sets(self, prediction, threshold):
        # outwards by more than a square root rounds
        half = np.sqrt(np.maximum(float(threshold), 0.0)) * (1 + 1e-12)
        return Intervals(prediction.mean - half, prediction.mean + half)


register(SquaredResidual, name="squared", defaults=(SquaredResidual(),))
