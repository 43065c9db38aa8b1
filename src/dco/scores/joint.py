"""The scores of all candidates side by side, for selection on the calibration rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats
from dco.foundations.errors import IncompatibleScoreError
from dco.predictions import Several
from dco.scores.registry import register
from dco.scores.score import Cutoff, OfScores, Score


@dataclass(frozen=True)
class Joint(OfScores):
    """What joint selection is given: the score of every candidate, by name. It has no sets of its
    own.
    """

    names: tuple[str, ...]
    scores: tuple[Score, ...]
    needs: ClassVar[tuple[type, ...]] = (Several,)

    def observed(self, prediction: Several, y: ArrayLike) -> Floats:
        """The score of each row by each candidate, (n, M)."""
        each = zip(self.scores, prediction.records, strict=True)
        return np.stack([score.observed(record, y) for score, record in each], axis=1)

    def sets(self, prediction: Any, threshold: Cutoff) -> Any:
        """An error: no single cut-off makes these sets."""
        raise IncompatibleScoreError(
            "The sets of joint selection need the calibration rows: ask the predictor for them."
        )


register(Joint)
