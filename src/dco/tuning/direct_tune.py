"""DirectTune: deploy the tuning threshold itself. Not certified; kept for comparison."""

from __future__ import annotations

from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats
from dco.foundations.ranks import Level, Threshold, as_rational, order_statistic, tuning_rank
from dco.predictions import Prediction
from dco.scores.score import Score
from dco.tuning.search import checked_targets, evaluate_candidate


def tuning_threshold(scores: Floats, *, alpha: Level) -> Threshold:
    """The least threshold with empirical risk <= alpha on the tuning rows: the (n - floor(n alpha))-th smallest score."""
    rank = tuning_rank(len(scores), alpha=alpha)
    return Threshold(
        order_statistic(scores, rank), rank=rank, n=len(scores), guarantee="none", alpha=float(as_rational(alpha))
    )


def direct_tune(score: Score, prediction_tune: Prediction, y_tune: ArrayLike, *, alpha: Level) -> Threshold:
    """The (n - floor(n alpha))-th smallest tuning score; guarantee "none".

    ``expected_coverage`` is (n - floor(n alpha)) / (n + 1) and holds for a score fixed in advance: always below 1 - alpha
    + 1 / (n + 1). After a search over candidates on the same rows it is lower still, by an amount that nothing here
    bounds (16 equal candidates, n = 1000, 1 - alpha = 0.8: about 0.776).
    """
    y = checked_targets(y_tune)
    scores = evaluate_candidate(type(score).__name__, score, prediction_tune, y).scores
    return tuning_threshold(scores, alpha=alpha)
