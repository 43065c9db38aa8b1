"""Compare the sets of a user's score with its scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats
from dco.predictions import Prediction
from dco.scores.score import CompositeScore, Score
from dco.scores.thresholds import LOWEST_SCORE

_MARGIN = 1e-3  # of the range of scores; hides rounding, in single precision too


def is_ours(score: Score) -> bool:
    """Say whether a score and those that it is made of are dco's own, which the tests compare."""
    if type(score).__module__.partition(".")[0] != "dco":
        return False
    return not isinstance(score, CompositeScore) or all(is_ours(part) for part in score.parts())


def check_inverse(score: Score, prediction: Prediction, y: ArrayLike, scores: Floats) -> None:
    """Refuse a user's score whose sets leave out labels that score below the threshold.

    No rank would promise anything then. Larger sets than the scores ask for (an interval around a
    union, say) cost size and keep the promise. The sets are asked for a little above the threshold,
    where rounding cannot cost a label.
    """
    finite = scores[np.isfinite(scores) & (scores != LOWEST_SCORE)]
    if is_ours(score) or not finite.size:
        return

    low, middle, high = np.quantile(finite, (0.1, 0.5, 0.9), method="inverted_cdf")
    margin = _MARGIN * (high - low)
    for threshold in (middle, high):
        sets = score.sets(prediction, float(threshold + margin))
        is_below = scores <= threshold
        is_lost = is_below & ~sets.contains(y)
        if is_lost.any():
            raise ValueError(
                f"the sets of {type(score).__name__} leave out {is_lost.sum()} of "
                f"{is_below.sum()} labels whose scores are at most {threshold:.4g}, the threshold "
                f"(row {int(np.flatnonzero(is_lost)[0])}): sets(prediction, t) must hold every "
                "label with observed(prediction, label) <= t."
            )
