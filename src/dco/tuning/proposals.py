"""Candidates beyond the listed ones: what a strategy proposes, averages, levelled scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

from dco.foundations.errors import IncompatibleScoreError
from dco.foundations.ranks import smallest_marginal_n
from dco.models.averaged import AveragedModel, average_records
from dco.predictions import Points, PointsWithSpread, Quantiles
from dco.scores.levelled import Levelled
from dco.scores.names import checked_score, free_label, identity_of, score_label
from dco.scores.score import Score
from dco.structure import Candidate
from dco.tuning.candidates import learn_scores, pair_model
from dco.tuning.comparison import Comparison
from dco.tuning.contest import Contest
from dco.tuning.evaluated import TuningPredictions, evaluate_pair
from dco.tuning.fits import FittedModel
from dco.tuning.ranking import Ranking
from dco.tuning.strategies import Strategy

_MOST_AVERAGED = 3  # models
_LEVELLED_RECORDS = (Points, PointsWithSpread, Quantiles)
_LEVELLED_ROWS = 10  # times the rows of a finite quantile: twice what each of five fifths needs


def search_candidates(
    strategy: Strategy,
    listed: Sequence[Candidate],
    contest: Contest,
    *,
    support: tuple[float, float] | None,
) -> list[Candidate]:
    """Let a strategy propose models and scores, and return those that could be tried."""
    proposals = Proposals(listed, contest, support)
    pairs = [(candidate.model, candidate.score) for candidate in listed]
    result = strategy.search(proposals.evaluate, pairs)
    if not proposals.tried:
        reasons = "; ".join(trial.reason for trial in result.trials)
        raise ValueError(f"The search proposed no candidate that could be tried. {reasons}")
    return list(proposals.tried.values())


class Proposals:
    """Turn models and scores that a strategy proposes into candidates, and evaluate them.

    A strategy may propose the same again: equal models and equal scores get the same names.

    Attributes
    ----------
    listed_candidates
        The candidates of the caller's models and scores, which a strategy may propose too.
    contest
        Fits candidates and compares them on the tuning rows, each only once.
    support
        The smallest and the largest target that can be.
    tried
        The candidates that the strategy asked to evaluate, by name.
    """

    def __init__(
        self,
        listed_candidates: Sequence[Candidate],
        contest: Contest,
        support: tuple[float, float] | None,
    ) -> None:
        self.contest = contest
        self.support = support
        self.tried: dict[str, Candidate] = {}
        self._listed = {
            _object_key(candidate.model, candidate.score): candidate
            for candidate in listed_candidates
        }
        self._model_names: dict[Hashable, str] = {}
        self._score_names: dict[str, Hashable] = {}
        # Keys may hold ids: as long as an object lives, no other object has its id.
        self._proposed_objects: list[Any] = []

    def evaluate(
        self, model: Any, score: Score, report: Callable[[int, float], bool] | None = None
    ) -> float:
        """Return the number that the strategy minimises, for a model and a score.

        A strategy that prunes is told the number of each fold by `report`, which says when to stop.
        """
        candidate = self.candidate_of(model, score)
        if report is not None and self._is_pruned(candidate, report):
            return math.inf
        self.tried.setdefault(candidate.name, candidate)
        row = self.contest.rank([candidate]).table[0]
        return self.contest.comparison.objective.trial_value(row)

    def candidate_of(self, model: Any, score: Score) -> Candidate:
        """Return the listed candidate of this model and this score, or make a new one."""
        listed_candidate = self._listed.get(_object_key(model, checked_score(score)))
        if listed_candidate is not None:
            return listed_candidate

        self._proposed_objects += [model, score]
        new_name = f"trial {len(self._model_names)}: {type(model).__name__}"
        model_name = self._model_names.setdefault(identify_model(model), new_name)
        score_name = free_label(score, self._score_names)

        fits = self.contest.fits
        candidates = pair_model(
            model_name, model, {score_name: score}, of_classes=fits.classes is not None
        )
        if not candidates:
            raise IncompatibleScoreError(
                f"The score {score_label(score)} does not suit {type(model).__name__}."
            )
        y = fits.resampling.rows_to_learn_from().y
        return learn_scores(candidates, y, self.support)[0]

    def _is_pruned(self, candidate: Candidate, report: Callable[[int, float], bool]) -> bool:
        """Fit a new model fold by fold, and return whether the strategy stopped it.

        Models that were fitted before, or are fitted on a single part, are not pruned.
        """
        fits = self.contest.fits
        if len(fits.resampling.parts()) == 1 or candidate.model_name in fits.fits:
            return False

        objective = self.contest.comparison.objective
        comparison = Comparison(self.contest.comparison.alpha, objective)
        for step, (part, fitted_part) in enumerate(fits.fit_part_by_part(candidate)):
            predictions = TuningPredictions((fitted_part.records[candidate.record_type],))
            y = fits.resampling.tuning_rows.y[part.predicted]
            evaluated = evaluate_pair(candidate.name, candidate.score, predictions, y)
            value = objective.trial_value(comparison.measure(evaluated))
            must_stop = report(step, value)
            if must_stop:
                return True
        return False


def _object_key(model: Any, score: Score) -> Hashable:
    """Return a key that is equal for this very model object with an equal score."""
    return id(model), identity_of(score)


def identify_model(model: Any) -> Hashable:
    """Return a key that is equal for models that are fitted alike: class and parameters."""
    if not hasattr(model, "get_params"):
        return type(model), identity_of(model)
    params = model.get_params(deep=False)
    return type(model), *(identity_of(value) for value in params.values())


def average_best_models(
    candidates: Sequence[Candidate], contest: Contest, ranking: Ranking
) -> list[Candidate]:
    """Make candidates of the average of the best few models, with each score of these models.

    The members of the average predict the same type of record as the winner. Their fits and
    predictions are averaged, so nothing is fitted again.
    """
    by_name = {candidate.name: candidate for candidate in candidates}
    best_first = [by_name[row.name] for row in ranking.table]
    record_type = best_first[0].record_type
    of_same_type = [candidate for candidate in best_first if candidate.record_type is record_type]
    models = {candidate.model_name: candidate.model for candidate in of_same_type}
    member_names = list(models)[:_MOST_AVERAGED]
    if len(member_names) < 2:
        return []

    name = "average of " + ", ".join(member_names)
    model = AveragedModel([models[member] for member in member_names])
    fits = [contest.fits.fitted(member) for member in member_names]
    contest.fits.fits[name] = average_fits(model, fits, record_type)

    scores = {candidate.score_name: candidate.score for candidate in of_same_type}
    return [
        Candidate(name, score_name, model, score, record_type)
        for score_name, score in scores.items()
    ]


def average_fits(
    model: AveragedModel, fits: Sequence[FittedModel], record_type: type
) -> FittedModel:
    """Average what members were fitted to and predicted, part by part."""
    predictions = [fit.predictions[record_type] for fit in fits]
    records_of_parts = zip(*(prediction.records for prediction in predictions), strict=True)
    records = tuple(average_records(records) for records in records_of_parts)

    models_of_parts = zip(*(fit.fits for fit in fits), strict=True)
    averaged = tuple(model.of_fitted(list(models)) for models in models_of_parts)
    return FittedModel(averaged, {record_type: replace(predictions[0], records=records)})


def level_scores(candidates: Sequence[Candidate], contest: Contest) -> list[Candidate]:
    """Make candidates with levelled scores, which cover each fifth of the prediction about alike.

    Levels need tuning rows: twice as many in each fifth as a finite quantile takes.
    """
    alpha = contest.comparison.alpha
    n_rows = len(contest.fits.resampling.tuning_rows)
    if n_rows < _LEVELLED_ROWS * smallest_marginal_n(alpha=alpha):
        return []

    levelled = []
    for candidate in candidates:
        trial = contest.trials.get(candidate.name)  # None if it failed
        if trial is None or candidate.record_type not in _LEVELLED_RECORDS:
            continue
        score = Levelled.of(
            candidate.score,
            trial.predictions.centres,
            trial.evaluated.scores,
            alpha=float(alpha),
        )
        if score is not None:
            name = f"Levelled({candidate.score_name})"
            levelled.append(replace(candidate, score_name=name, score=score))
    return levelled
