"""Candidates beyond the listed ones: what a strategy proposes, averages, levelled scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

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

# report(step, value) tells a strategy the objective on one fold, and returns whether to stop there.
Report: TypeAlias = Callable[[int, float], bool]

_MOST_AVERAGED = 3  # models

# Predictions whose score can be levelled, and the tuning rows that this takes, as a multiple of the
# rows at which a quantile is finite: two times that many in each fifth of the rows.
_LEVELLED_RECORDS = (Points, PointsWithSpread, Quantiles)
_ROWS_TO_LEVEL = 2 * 5


def search_candidates(
    strategy: Strategy,
    listed: Sequence[Candidate],
    contest: Contest,
    *,
    support: tuple[float, float] | None,
) -> list[Candidate]:
    """Let a strategy propose models and scores, and return the candidates that it tried.

    `listed` are the candidates of the caller's own models and scores, which it may propose too.
    `support` is the range of possible targets, (smallest, largest).
    """
    strategy = strategy.with_random_state(contest.model_fits.seed)
    proposals = Proposals(listed, contest, support)
    listed_pairs = [(candidate.model, candidate.score) for candidate in listed]
    result = strategy.search(proposals.evaluate, listed_pairs)
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
        """Start with the candidates of the caller's models and scores; none is tried yet."""
        self.contest = contest
        self.support = support
        self.tried: dict[str, Candidate] = {}

        self._listed_by_key: dict[Hashable, Candidate] = {}
        for candidate in listed_candidates:
            key = _object_key(candidate.model, candidate.score)
            self._listed_by_key[key] = candidate

        # The name of each model that was proposed, by its class and parameters, and the score that
        # has each name.
        self._name_of_model: dict[Hashable, str] = {}
        self._score_of_name: dict[str, Hashable] = {}

        # Keys may hold the id of an object. Python gives the id of a deleted object to a new one,
        # so all proposed objects are kept alive.
        self._proposed_objects: list[Any] = []

    def evaluate(self, model: Any, score: Score, report: Report | None = None) -> float:
        """Return the number that the strategy minimises, for a model and a score.

        A strategy that stops bad candidates early passes `report`: it is told the objective on each
        fold. A candidate that it stops has the value infinity.
        """
        candidate = self.candidate_of(model, score)
        if report is not None and self._is_pruned(candidate, report):
            return math.inf
        self.tried.setdefault(candidate.name, candidate)
        row = self.contest.rank([candidate]).table[0]
        return self.contest.comparison.objective.trial_value(row)

    def candidate_of(self, model: Any, score: Score) -> Candidate:
        """Return the candidate of a proposed model and score.

        If the caller listed both, it is the listed one. Otherwise it is a new one, whose model is
        named by its number and class, such as "trial 3: Ridge".
        """
        # 1. Is it listed?
        listed_candidate = self._listed_by_key.get(_object_key(model, checked_score(score)))
        if listed_candidate is not None:
            return listed_candidate
        self._proposed_objects += [model, score]

        # 2. Name the model and the score. If an equal one was proposed before, it keeps its name.
        model_key = identify_model(model)
        if model_key not in self._name_of_model:
            number = len(self._name_of_model)
            self._name_of_model[model_key] = f"trial {number}: {type(model).__name__}"
        model_name = self._name_of_model[model_key]
        score_name = free_label(score, self._score_of_name)

        # 3. Pair them, if the score can read what the model predicts.
        of_classes = self.contest.model_fits.classes is not None
        candidates = pair_model(model_name, model, {score_name: score}, of_classes=of_classes)
        if not candidates:
            raise IncompatibleScoreError(
                f"The score {score_label(score)} does not suit {type(model).__name__}."
            )
        y = self.contest.resampling.rows_to_learn_from().y
        (candidate,) = learn_scores(candidates, y, self.support)
        return candidate

    def _is_pruned(self, candidate: Candidate, report: Report) -> bool:
        """Fit a new model fold by fold, until it is done or the strategy stops (prunes) it.

        After each fold ``report(number of the fold, objective on the rows of the fold)`` is called,
        and returns True to stop. Returns whether it was stopped. Models that were fitted before, or
        are fitted only once, are not stopped.
        """
        model_fits = self.contest.model_fits
        is_fitted_once = len(self.contest.resampling.parts()) == 1
        if is_fitted_once or candidate.model_name in model_fits.results:
            return False

        # The contest's weights and slices have an entry for every tuning row, and do not fit the
        # rows of one fold: they are left out.
        objective = self.contest.comparison.objective
        comparison = Comparison(self.contest.comparison.alpha, objective)

        for number, (fold, fitted_part) in enumerate(model_fits.fit_part_by_part(candidate)):
            record = fitted_part.records[candidate.record_type]
            y = self.contest.tuning_rows.y[fold.predicted]
            evaluated = evaluate_pair(
                candidate.name, candidate.score, TuningPredictions((record,)), y
            )
            row = comparison.measure(evaluated)
            must_stop = report(number, objective.trial_value(row))
            if must_stop:
                return True
        return False


def _object_key(model: Any, score: Score) -> Hashable:
    """Return a key for a pair: equal if the model is the same object and the score is equal."""
    return id(model), identity_of(score)


def identify_model(model: Any) -> Hashable:
    """Return a key that is equal for models of the same class with equal parameters.

    Such models are fitted alike, so they need not be fitted twice.
    """
    if not hasattr(model, "get_params"):
        return type(model), identity_of(model)
    params = model.get_params(deep=False)
    return type(model), *(identity_of(value) for value in params.values())


def average_best_models(
    candidates: Sequence[Candidate], contest: Contest, ranking: Ranking
) -> list[Candidate]:
    """Average the three best models, and make a candidate of the average with each of their scores.

    Only models that give the same type of prediction as the winner are averaged. Their fits and
    predictions are there already, so nothing is fitted again. Fewer than two models give an empty
    list.
    """
    # 1. List the candidates that predict as the winner does, best first.
    candidate_by_name = {candidate.name: candidate for candidate in candidates}
    best_first = [candidate_by_name[row.name] for row in ranking.by_objective()]
    record_type = best_first[0].record_type
    same_type = [candidate for candidate in best_first if candidate.record_type is record_type]

    # 2. Average the best of their models, each of which has several candidates.
    models = {candidate.model_name: candidate.model for candidate in same_type}
    best_names = list(models)[:_MOST_AVERAGED]
    if len(best_names) < 2:
        return []
    average = AveragedModel([models[name] for name in best_names])

    # 3. Record the average as a model that is fitted already.
    average_name = "average of " + ", ".join(best_names)
    fitted_models = [contest.model_fits.fitted(name) for name in best_names]
    fitted_average = average_fitted_models(average, fitted_models, record_type)
    contest.model_fits.add(average_name, average, fitted_average)

    # 4. Pair it with every score.
    scores = {candidate.score_name: candidate.score for candidate in same_type}
    return [
        Candidate(average_name, score_name, average, score, record_type)
        for score_name, score in scores.items()
    ]


def average_fitted_models(
    average: AveragedModel, fitted_models: Sequence[FittedModel], record_type: type
) -> FittedModel:
    """Make the fit of an average of models out of the fits of these models.

    A `FittedModel` holds one model for each part of the rows that was fitted on (the training rows,
    or each fold), and its predictions of the tuning rows, in the same order. So both are averaged
    part by part; of the predictions, those of the type `record_type`.
    """
    # 1. The predictions: for each part, one record of each model.
    predictions = [fitted.predictions[record_type] for fitted in fitted_models]
    records_of_parts = zip(*(prediction.records for prediction in predictions), strict=True)
    average_predictions = replace(
        predictions[0], records=tuple(average_records(records) for records in records_of_parts)
    )

    # 2. The models.
    models_of_parts = zip(*(fitted.models for fitted in fitted_models), strict=True)
    averages = tuple(average.with_fitted(list(models)) for models in models_of_parts)
    return FittedModel(averages, {record_type: average_predictions})


def make_levelled_candidates(candidates: Sequence[Candidate], contest: Contest) -> list[Candidate]:
    """Make a second candidate from each candidate, whose sets are wider where errors are larger.

    Its score, `Levelled`, divides the score by what is usual for rows with such a prediction, so
    that rows with low and with high predictions are covered about equally often. What is usual is
    learnt from the scores of the tuning rows. Scores that cannot be levelled are left out; with too
    few tuning rows the list is empty.
    """
    alpha = contest.comparison.alpha
    n_rows_needed = _ROWS_TO_LEVEL * smallest_marginal_n(alpha=alpha)
    if len(contest.tuning_rows) < n_rows_needed:
        return []

    levelled_candidates = []
    for candidate in candidates:
        has_failed = candidate.name not in contest.trials
        if has_failed or candidate.record_type not in _LEVELLED_RECORDS:
            continue

        trial = contest.trials[candidate.name]
        predictions = trial.predictions.centres
        scores = trial.evaluated.scores
        levelled = Levelled.of(candidate.score, predictions, scores, alpha=float(alpha))
        if levelled is None:  # there are negative scores, or nothing to divide by
            continue
        name = f"Levelled({candidate.score_name})"
        levelled_candidates.append(replace(candidate, score_name=name, score=levelled))
    return levelled_candidates
