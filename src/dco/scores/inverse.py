"""Compare the sets of a user's score with its scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats
from dco.predictions import Prediction
from dco.scores.score import CompositeScore, Score
from dco.scores.thresholds import LOWEST_SCORE

_MARGIN = 1e-3  # share of the range of scores; larger than rounding, in single precision too


def is_ours(score: Score) -> bool:
    """Tell whether a score, and all scores that it is made of, are dco's own.

    Their sets need no check: dco's tests compare them with the scores.
    """
    if type(score).__module__.partition(".")[0] != "dco":
        return False
    return not isinstance(score, CompositeScore) or all(is_ours(part) for part in score.parts())


def check_inverse(score: Score, prediction: Prediction, y: ArrayLike, scores: Floats) -> None:
    """Refuse a user's score whose sets leave out labels that score at most the threshold.

    Coverage would then have no guarantee. Sets that are larger than the scores ask for (an interval
    around a union, say) keep it. `scores` are those of the labels `y` under the prediction. Two
    thresholds are tried, the median and the 90 % quantile of the scores, and the sets are made a
    little above them, where rounding cannot cost a label.
    """
    finite = scores[np.isfinite(scores) & (scores != LOWEST_SCORE)]
    if is_ours(score) or not finite.size:
        return

    low, middle, high = np.quantile(finite, (0.1, 0.5, 0.9), method="inverted_cdf")
    margin = _MARGIN * (high - low)
    for threshold in (middle, high):
        sets = score.sets(prediction, float(threshold + margin))
        should_be_member = scores <= threshold
        is_left_out = should_be_member & ~sets.contains(y)
        if is_left_out.any():
            first_row = int(np.flatnonzero(is_left_out)[0])
            raise ValueError(
                f"the sets of {type(score).__name__} leave out {is_left_out.sum()} of "
                f"{should_be_member.sum()} labels whose scores are at most {threshold:.4g}, the "
                f"threshold (row {first_row}): sets(prediction, t) must hold every label with "
                "observed(prediction, label) <= t."
            )
