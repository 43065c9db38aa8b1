"""Membership decided by the score itself, so that sets on the line agree with `observed` to the last bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dco.arrays import Bools, Floats


@dataclass(frozen=True, eq=False)
class AtMost:
    """y -> observed(prediction, y) <= threshold.

    In floating point |y - mean| <= t and mean - t <= y <= mean + t differ for some y next to an end, and a log-density is
    not even monotone there at the scale of rounding. This is what `contains` asks; the ends that a score gives to a set are
    rounded outwards, so that they hold all that is in it.
    """

    score: Any
    prediction: Any
    threshold: float | Floats

    def __call__(self, y: ArrayLike) -> Bools:
        """Whether each row's y is in that row's set."""
        return np.asarray(self.score.observed(self.prediction, y) <= self.threshold)
