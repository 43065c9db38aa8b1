"""A weighted average of the models of a search, with weights that are learnt on the tuning rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import nnls

from dco.foundations.arrays import Floats
from dco.models.averaged import AveragedModel
from dco.predictions import Points, PointsWithSpread
from dco.structure import Candidate
from dco.tuning.contest import CandidateTrial, Contest
from dco.tuning.fits import FittedModel
from dco.tuning.ranking import Ranking
from dco.tuning.resampling import Resampling, cross_fitting_folds

STACK = "stack"
_SMALLEST_WEIGHT = 0.05  # a member with less changes predictions little, and costs a fit
_POINT_RECORDS = (Points, PointsWithSpread)


def stack_models(
    candidates: Sequence[Candidate], contest: Contest, ranking: Ranking
) -> list[Candidate]:
    """Make candidates of a weighted average of all models, with each score that reads points.

    The weights are non-negative, sum to 1 and minimise the squared error on the tuning rows. For
    the ranking, each fifth of the tuning rows is predicted with weights learnt on the others.
    """
    trials = best_trial_of_each_model(candidates, contest, ranking)
    if len(trials) < 2:
        return []
    resampling = contest.resampling
    points = np.column_stack([trial.predictions.centres for trial in trials])

    # 1. The weights, and the models that keep one.
    weights = learn_weights(points, resampling.tuning_rows.y)
    members = np.flatnonzero(weights >= _SMALLEST_WEIGHT)
    if len(members) < 2:
        return []
    member_trials = [trials[position] for position in members]
    points = points[:, members]
    weights = weights[members] / weights[members].sum()
    model = AveragedModel(
        [trial.candidate.model for trial in member_trials], weights=weights.tolist()
    )

    # 2. The predictions by which the stack is ranked.
    stacked = cross_fitted_predictions(points, resampling)
    predictions = replace(
        member_trials[0].predictions,
        records=tuple(
            Points(stacked[positions]) for positions in member_trials[0].predictions.positions
        ),
    )
    models_of_parts = zip(*(trial.fit.models for trial in member_trials), strict=True)
    fit = FittedModel(
        models=tuple(model.with_fitted(list(models)) for models in models_of_parts),
        predictions={Points: predictions},
    )
    contest.model_fits.add(STACK, model, fit)

    # 3. A candidate for every score of points.
    scores = {
        candidate.score_name: candidate.score
        for candidate in candidates
        if candidate.record_type is Points
    }
    return [
        Candidate(STACK, score_name, model, score, Points) for score_name, score in scores.items()
    ]


def best_trial_of_each_model(
    candidates: Sequence[Candidate], contest: Contest, ranking: Ranking
) -> list[CandidateTrial]:
    """Return the best trial of every model that predicts points, the best model first.

    A trial is a candidate (a model with a score) as it did on the tuning rows; a model has several.
    Averages of models are left out, since their members are listed by themselves.
    """
    by_name = {candidate.name: candidate for candidate in candidates}
    trials: dict[str, CandidateTrial] = {}
    for row in ranking.by_objective():
        candidate = by_name[row.name]
        predicts_points = candidate.record_type in _POINT_RECORDS
        if predicts_points and not isinstance(candidate.model, AveragedModel):
            trials.setdefault(candidate.model_name, contest.trials[candidate.name])
    return list(trials.values())


def learn_weights(points: Floats, y: Floats) -> Floats:
    """Return weights of the columns of `points`, (n, m), that predict y: >= 0, with sum 1.

    Equal weights where none of the columns helps.
    """
    weights, _ = nnls(points, y)
    if weights.sum() == 0:
        weights = np.ones(points.shape[1])
    return np.asarray(weights / weights.sum())


def cross_fitted_predictions(points: Floats, resampling: Resampling) -> Floats:
    """Predict each fold of the tuning rows with weights that were learnt on the other folds."""
    rows = resampling.tuning_rows
    stacked = np.empty(len(rows))
    for learn_from, held_out in cross_fitting_folds(rows):
        stacked[held_out] = points[held_out] @ learn_weights(points[learn_from], rows.y[learn_from])
    return stacked
