"""The smallest sets on tuning rows: one order statistic for each candidate, then a comparison.

The paper minimises the mean set size over (phi, lambda) subject to empirical risk <= alpha. Sizes
grow and risk falls with lambda, so for a fixed phi the best lambda is the smallest feasible one:
the (n - floor(n alpha))-th smallest true-label score. No grid of thresholds is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray, Floats, to_numpy
from dco.foundations.ranks import Level, Threshold, as_rational, order_statistic, tuning_rank
from dco.predictions import Prediction
from dco.scores.names import checked_score
from dco.scores.score import Score
from dco.tuning.comparison import Comparison
from dco.tuning.evaluated import TuningPredictions, evaluate_candidate, evaluate_pairs
from dco.tuning.objectives import Aimed, objective_of
from dco.tuning.ranking import Ranking

Candidates: TypeAlias = Mapping[str, tuple[Score, Prediction]]


def tune(
    candidates: Candidates, y_tune: ArrayLike, *, alpha: Level, objective: Aimed = "mean_size"
) -> Ranking:
    """Rank candidates ``{name: (score, prediction on tuning rows)}`` by the size of their sets.

    Each candidate is measured at its smallest threshold that misses at most a share `alpha` of the
    rows: the (n - floor(n alpha))-th smallest score of a true label, in integers. `objective` is
    what is minimised: "mean_size" (the paper's), "p95_size", "even", another of `dco.objectives`,
    or a function of (sets, y). Ties are broken by the mean size, the P95 size, the threshold, then
    the order of candidates. A candidate that raises, or scores NaN, is in ``ranking.failed``.

    Nothing here is certified: calibrate the winner on rows that this function never saw.
    """
    pairs = checked_pairs(candidates)
    y = checked_targets(y_tune)
    comparison = Comparison(as_rational(alpha), objective_of(objective))

    evaluated, errors = evaluate_pairs(pairs, y)
    return comparison.rank(evaluated, errors)


def direct_tune(
    score: Score, prediction_tune: Prediction, y_tune: ArrayLike, *, alpha: Level
) -> Threshold:
    """Return the (n - floor(n alpha))-th smallest tuning score as a threshold, guarantee "none".

    This is the paper's control, DirectTune. ``expected_coverage`` is (n - floor(n alpha)) / (n + 1)
    and holds for a score that was fixed in advance: always below 1 - alpha + 1 / (n + 1). After a
    search over candidates on the same rows it is lower still, by an amount that nothing bounds.
    """
    y = checked_targets(y_tune)
    candidate = evaluate_candidate(type(score).__name__, score, prediction_tune, y)
    return tuning_threshold(candidate.scores, alpha=alpha)


def tuning_threshold(scores: Floats, *, alpha: Level) -> Threshold:
    """Return the smallest threshold that at most a share alpha of the scores exceeds."""
    rank = tuning_rank(len(scores), alpha=alpha)
    return Threshold(
        order_statistic(scores, rank),
        rank=rank,
        n=len(scores),
        guarantee="none",
        alpha=float(as_rational(alpha)),
    )


def checked_pairs(candidates: Candidates) -> dict[str, tuple[Score, TuningPredictions]]:
    """Check that candidates are a dict {name: (score, prediction), ...}, and return it.

    Each prediction is of all tuning rows and comes back as `TuningPredictions`.
    """
    if not isinstance(candidates, Mapping):
        raise ValueError(
            f"candidates must be a dict {{name: (score, prediction), ...}}, got "
            f"{type(candidates).__name__}."
        )
    if not candidates:
        raise ValueError("there is no candidate to tune: pass {name: (score, prediction), ...}.")

    pairs = {}
    for name, pair in candidates.items():
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
            raise ValueError(
                f"candidate {name!r} must be a pair (score, prediction), got {type(pair).__name__}."
            )
        score, prediction = pair
        if isinstance(prediction, Score):
            raise ValueError(
                f"candidate {name!r} is the wrong way round: it must be (score, prediction), the "
                f"score first."
            )
        pairs[name] = (checked_score(score), TuningPredictions((prediction,)))
    return pairs


def checked_targets(y: ArrayLike, name: str = "y_tune") -> AnyArray:
    """Check that there is one label or number for each of at least one row."""
    array = to_numpy(y)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"{name} must hold one label or number for each of at least one row, got "
            f"shape {array.shape}."
        )
    return array
