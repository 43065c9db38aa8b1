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
        """Begin with nothing tried."""
        self.contest = contest
        self.support = support
        self.tried: dict[str, Candidate] = {}

        self._listed: dict[Hashable, Candidate] = {}
        for candidate in listed_candidates:
            key = _object_key(candidate.model, candidate.score)
            self._listed[key] = candidate

        # Names that were given: of a model by its class and parameters, and which score has a name.
        self._model_names: dict[Hashable, str] = {}
        self._score_names: dict[str, Hashable] = {}

        # The keys of both may hold the id of an object. Python gives the id of a deleted object to
        # a new one, so proposed objects are kept.
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
        """Return the listed candidate of this model and this score, or make a new one.

        A new model is named by its number and class: "trial 3: Ridge".
        """
        listed_candidate = self._listed.get(_object_key(model, checked_score(score)))
        if listed_candidate is not None:
            return listed_candidate

        self._proposed_objects += [model, score]
        new_name = f"trial {len(self._model_names)}: {type(model).__name__}"
        model_name = self._model_names.setdefault(identify_model(model), new_name)
        score_name = free_label(score, self._score_names)

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
        """Fit a new model fold by fold, and return whether the strategy stopped it.

        After each fold, `report` tells the strategy the objective on the rows of that fold. Models
        that were fitted before, or are fitted only once, are not stopped.
        """
        model_fits = self.contest.model_fits
        is_fitted_once = len(self.contest.resampling.parts()) == 1
        if is_fitted_once or candidate.model_name in model_fits.results:
            return False

        # Weights, conditions and slices are those of all tuning rows: a fold is compared without.
        objective = self.contest.comparison.objective
        comparison = Comparison(self.contest.comparison.alpha, objective)

        for step, (fold, fitted_part) in enumerate(model_fits.fit_part_by_part(candidate)):
            predictions = TuningPredictions((fitted_part.records[candidate.record_type],))
            y = self.contest.tuning_rows.y[fold.predicted]
            evaluated = evaluate_pair(candidate.name, candidate.score, predictions, y)
            row = comparison.measure(evaluated)
            must_stop = report(step, objective.trial_value(row))
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
    """Make candidates of the average of the best few models, one with each score of these models.

    Only models that give the same type of prediction as the winner are averaged. Their fits and
    predictions are there already, so nothing is fitted again. Fewer than two models give an empty
    list.
    """
    # 1. List the candidates that predict as the winner does, best first, and their best models.
    candidate_of = {candidate.name: candidate for candidate in candidates}
    best_first = [candidate_of[row.name] for row in ranking.by_objective()]
    record_type = best_first[0].record_type
    same_type = [candidate for candidate in best_first if candidate.record_type is record_type]
    model_of = {candidate.model_name: candidate.model for candidate in same_type}
    names_of_best = list(model_of)[:_MOST_AVERAGED]
    if len(names_of_best) < 2:
        return []

    # 2. Average these models, and record the average as a model that was fitted.
    average = AveragedModel([model_of[name] for name in names_of_best])
    average_name = "average of " + ", ".join(names_of_best)
    fitted_models = [contest.model_fits.fitted(name) for name in names_of_best]
    fitted_average = average_fitted_models(average, fitted_models, record_type)
    contest.model_fits.add(average_name, average, fitted_average)

    # 3. Pair it with every score.
    score_of = {candidate.score_name: candidate.score for candidate in same_type}
    return [
        Candidate(average_name, score_name, average, score, record_type)
        for score_name, score in score_of.items()
    ]


def average_fitted_models(
    average: AveragedModel, fitted_models: Sequence[FittedModel], record_type: type
) -> FittedModel:
    """Average fitted models and their predictions, separately on each part of the rows.

    All models were fitted on the same parts: the training rows, or each fold. Their predictions of
    type `record_type` are averaged.
    """
    predictions = [fitted.predictions[record_type] for fitted in fitted_models]
    records_by_part = zip(*(prediction.records for prediction in predictions), strict=True)
    average_predictions = replace(
        predictions[0], records=tuple(average_records(records) for records in records_by_part)
    )

    models_by_part = zip(*(fitted.models for fitted in fitted_models), strict=True)
    average_by_part = tuple(average.with_fitted(list(models)) for models in models_by_part)
    return FittedModel(average_by_part, {record_type: average_predictions})


def make_levelled_candidates(candidates: Sequence[Candidate], contest: Contest) -> list[Candidate]:
    """Make a candidate with a levelled score from each candidate, where this is possible.

    `Levelled` divides a score by its usual size at that prediction: sets are wider where errors are
    larger, and each fifth of the rows, from low to high predictions, is covered about equally
    often. The usual sizes are learnt from the candidate's scores of the tuning rows. With too few
    of these rows the list is empty.
    """
    alpha = contest.comparison.alpha
    n_rows_needed = _ROWS_TO_LEVEL * smallest_marginal_n(alpha=alpha)
    if len(contest.tuning_rows) < n_rows_needed:
        return []

    levelled_candidates = []
    for candidate in candidates:
        trial = contest.trials.get(candidate.name)  # None if it failed
        if trial is None or candidate.record_type not in _LEVELLED_RECORDS:
            continue

        levelled_score = Levelled.of(
            candidate.score,
            trial.predictions.centres,
            trial.evaluated.scores,
            alpha=float(alpha),
        )
        if levelled_score is None:  # it has negative scores, or no usual size to divide by
            continue
        name = f"Levelled({candidate.score_name})"
        levelled_candidates.append(replace(candidate, score_name=name, score=levelled_score))
    return levelled_candidates
