"""A spread for the best models of a search, learnt from their residuals on the tuning rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dco.foundations.arrays import Floats
from dco.models.learnt_spread import SpreadModel, WithLearntSpread
from dco.predictions import Points, PointsWithSpread
from dco.rows.rows import Rows
from dco.scores.names import score_label
from dco.scores.regression import NormalisedResidual
from dco.structure import Candidate
from dco.tuning.candidates import learn_scores
from dco.tuning.contest import CandidateTrial, Contest
from dco.tuning.default_models import columns_of, prepare_columns
from dco.tuning.fits import FittedModel
from dco.tuning.ranking import Ranking
from dco.tuning.resampling import Resampling, cross_fitting_folds

_MOST_MODELS = 2
_FEWEST_ROWS = 100  # tuning rows; a forest of fewer residuals is noise
_POWERS = (0.5, 0.75, 1.0)  # of the spread: how far the widths follow it
_POINT_RECORDS = (Points, PointsWithSpread)


def learn_spreads(
    candidates: Sequence[Candidate],
    contest: Contest,
    ranking: Ranking,
    *,
    support: tuple[float, float] | None,
) -> list[Candidate]:
    """Make candidates of the best few models, each with a spread learnt on the tuning rows.

    A spread says how far off the model usually is, for each row; sets are wider where it is larger.
    It is fixed before calibration rows are opened, so that coverage is as exact as ever. For the
    ranking, each fifth of the tuning rows gets a spread learnt on the others. A candidate is made
    for each of three powers of the spread: the larger, the more widths follow it.
    """
    resampling = contest.resampling
    if len(resampling.tuning_rows) < _FEWEST_ROWS:
        return []

    with_spreads = []
    for trial in best_point_trials(candidates, contest, ranking):
        name = f"{trial.candidate.model_name} with spread"
        model, fit = add_spread(trial, resampling, seed=contest.model_fits.seed)
        contest.model_fits.add(name, model, fit)
        for power in _POWERS:
            score = NormalisedResidual(power=power)
            with_spreads.append(Candidate(name, score_label(score), model, score, PointsWithSpread))
    return learn_scores(with_spreads, resampling.rows_to_learn_from().y, support)


def best_point_trials(
    candidates: Sequence[Candidate], contest: Contest, ranking: Ranking
) -> list[CandidateTrial]:
    """Return the best trial of each of the two best models that predict points, or a spread too.

    A trial is a candidate (a model with a score) as it did on the tuning rows.
    """
    by_name = {candidate.name: candidate for candidate in candidates}
    trials: dict[str, CandidateTrial] = {}
    for row in ranking.by_objective():
        candidate = by_name[row.name]
        if candidate.record_type in _POINT_RECORDS:
            trials.setdefault(candidate.model_name, contest.trials[candidate.name])
    return list(trials.values())[:_MOST_MODELS]


def add_spread(
    trial: CandidateTrial, resampling: Resampling, *, seed: int
) -> tuple[WithLearntSpread, FittedModel]:
    """Add a spread to the model of a trial: how far off the model usually is, for each row.

    Returns the model with a spread that is learnt from its residuals on all tuning rows, and its
    fit with predictions of these rows. Their spreads come from models that were learnt without the
    row itself, since a ranking by them would otherwise flatter the spread.
    """
    rows = resampling.tuning_rows
    centres = trial.predictions.centres
    residuals = np.abs(rows.y - centres)

    spread = new_spread_model(rows.X, len(rows), seed=seed).fit(rows.X, residuals)
    model = WithLearntSpread(trial.candidate.model, spread)

    spreads = cross_fitted_spreads(rows, residuals, seed=seed)
    records = tuple(
        PointsWithSpread(centres[positions], spreads[positions])
        for positions in trial.predictions.positions
    )
    predictions = replace(trial.predictions, records=records)
    fitted = tuple(model.with_fitted([fitted_model]) for fitted_model in trial.fit.models)
    return model, FittedModel(fitted, {PointsWithSpread: predictions})


def cross_fitted_spreads(rows: Rows, residuals: Floats, *, seed: int) -> Floats:
    """Return the spread of each tuning row by a model that has not seen its residual."""
    spreads = np.empty(len(rows))
    for learn_from, held_out in cross_fitting_folds(rows):
        spread = new_spread_model(rows.X, len(learn_from), seed=seed)
        spread.fit(rows.take(learn_from).X, residuals[learn_from])
        spreads[held_out] = spread.predict(rows.take(held_out).X)
    return spreads


def new_spread_model(X: Any, n_rows: int, *, seed: int) -> SpreadModel:
    """Make an unfitted model of the spread: a forest of 40 trees with large leaves.

    Residuals are noisy, so a leaf averages over at least 10 of them, and over more of many rows.
    """
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.pipeline import Pipeline

    steps = prepare_columns(columns_of(X), needs_scaling=False)
    forest = ExtraTreesRegressor(
        40,
        min_samples_leaf=max(10, n_rows // 500),
        max_features=0.5,
        random_state=seed,
    )
    return SpreadModel(Pipeline(steps) if steps else None, forest)
