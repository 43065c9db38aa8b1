"""From models and scores to one chosen candidate, by training and tuning rows alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.calibration.statement import Statement
from dco.foundations.arrays import AnyArray, Floats
from dco.foundations.display import first_few
from dco.foundations.notes import Message, Note
from dco.foundations.parallel import check_n_jobs
from dco.models.wrapped import holds_frozen
from dco.predictions import GaussianMixtures
from dco.scores.score import Score
from dco.structure import Candidate
from dco.tuning.candidates import keep_readable, learn_scores, pair_models_with_scores
from dco.tuning.comparison import Comparison
from dco.tuning.contest import CandidateTrial, Contest
from dco.tuning.cutoffs import threshold_kind
from dco.tuning.defaults import Models, suiting_transforms
from dco.tuning.fits import ModelFits
from dco.tuning.notes import (
    note_below_zero,
    note_empty_sets,
    note_left_behind,
    note_low_classes,
    note_one_width,
)
from dco.tuning.objectives import MEAN_SIZE, Even, Objective
from dco.tuning.proposals import average_best_models, level_scores, search_candidates
from dco.tuning.ranking import Ranking, note_failed
from dco.tuning.resampling import Resampling
from dco.tuning.row_weights import EqualClusters, EqualRows, RowWeights
from dco.tuning.slices import named_slicings
from dco.tuning.stability import share_of_wins
from dco.tuning.strategies import Strategy

_MOST_COMPARED_AGAIN = 10  # candidates, in the measure of stability


@dataclass(frozen=True, eq=False)
class Tuning:
    """How one structure is chosen and fitted, and by how many processes."""

    strategy: Strategy | None = None  # None: every candidate is tried
    objective: Objective = MEAN_SIZE
    refit: bool = True
    support: tuple[float, float] | None = None  # where targets lie: sets are cut to it
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        check_n_jobs(self.n_jobs)


@dataclass(frozen=True, eq=False)
class Choice:
    """The chosen candidate, and what is known of the choice.

    A single candidate is chosen without a trial: nothing is fitted and nothing is ranked.
    """

    winner: Candidate
    ranking: Ranking
    n_candidates: int
    training_rows_known: bool  # no candidate came fitted on rows that are unknown here
    fitted_model: Any = None  # on the training rows; None if it was not fitted, or on folds alone
    selection: str = ""  # why the winner won, in words
    stability: float | None = None  # share of halves of the tuning rows on which the winner wins
    tuning_scores: Floats | None = None  # the winner's, from which clusters of labels are learnt
    notes: tuple[Note, ...] = ()


def choose(
    models: Models,
    scores: Mapping[str, Score] | None,
    resampling: Resampling,
    *,
    statement: Statement,
    classes: AnyArray | None = None,
    tuning: Tuning = Tuning(),  # noqa: B008  # frozen
    seed: int = 0,
) -> Choice:
    """Try the candidates on training and tuning rows, and choose the best by the objective.

    `classes` are None for numbers. The statement says which rows share a threshold.
    """
    _check_settings(resampling, tuning)

    # 1. List the candidates. A single one is the choice.
    listed = list_candidates(
        models, scores, resampling, of_classes=classes is not None, tuning=tuning
    )
    learns_from_scores = statement.calibrator.learns_from_tuning
    needs_trial = learns_from_scores and len(resampling.tuning_rows) > 0
    if listed.is_single and not needs_trial:
        return choose_without_trial(listed, statement, tuning)
    _check_tuning_rows(resampling, listed)

    # 2. Try and rank them, then averages of the best models and levelled scores.
    contest = prepare_contest(
        resampling, statement=statement, classes=classes, tuning=tuning, seed=seed
    )
    compared = compare(listed, contest, support=tuning.support)

    # 3. Describe the winner.
    winner = compared.winner
    notes = note_choice(
        compared,
        caller_chose_scores=not listed.adds_levelled_scores,
        can_condition=statement.calibrator.takes_condition,
        support=tuning.support,
    )
    rows_are_known = listed.rows_are_known
    if listed.strategy is not None:
        rows_are_known = rows_are_known and not holds_frozen(winner.candidate.model)
    return Choice(
        winner=winner.candidate,
        ranking=compared.ranking,
        n_candidates=len(compared.candidates),
        training_rows_known=rows_are_known,
        fitted_model=winner.fit.fits[0] if len(winner.fit.fits) == 1 else None,
        selection=f"{tuning.objective.describe(winner.row)} {resampling.in_words()}",
        stability=measure_stability(compared, seed=seed),
        tuning_scores=winner.evaluated.scores if learns_from_scores else None,
        notes=tuple(notes),
    )


def choose_without_trial(listed: Listed, statement: Statement, tuning: Tuning) -> Choice:
    """Choose the only candidate: nothing is fitted, and nothing is ranked."""
    nothing_ranked = Ranking(
        table=(),
        failed=(),
        alpha=float(statement.alpha),
        n=0,
        objective=tuning.objective.name,
    )
    return Choice(
        winner=listed.candidates[0],
        ranking=nothing_ranked,
        n_candidates=1,
        training_rows_known=listed.rows_are_known,
    )


@dataclass(frozen=True, eq=False)
class Listed:
    """The candidates to begin with, and what may be added to them."""

    candidates: list[Candidate]
    strategy: Strategy | None
    adds_averages: bool
    adds_levelled_scores: bool
    rows_are_known: bool  # no model came fitted on rows that are unknown here

    @property
    def is_single(self) -> bool:
        """Whether there is nothing to choose."""
        return len(self.candidates) == 1 and self.strategy is None


def list_candidates(
    models: Models,
    scores: Mapping[str, Score] | None,
    resampling: Resampling,
    *,
    of_classes: bool,
    tuning: Tuning,
) -> Listed:
    """Pair models with scores; default models and scores are made for the rows at hand."""
    model_by_name = models.make(resampling, scores)
    if scores is not None and models.has_defaults:
        scores = keep_readable(scores, model_by_name)
    candidates = pair_models_with_scores(
        model_by_name,
        scores,
        of_classes=of_classes,
        transforms=() if of_classes else suiting_transforms(resampling),
    )
    return Listed(
        learn_scores(candidates, resampling.rows_to_learn_from().y, tuning.support),
        strategy=tuning.strategy,
        adds_averages=models.has_defaults,
        adds_levelled_scores=scores is None and tuning.strategy is None and not of_classes,
        rows_are_known=not any(holds_frozen(model) for model in model_by_name.values()),
    )


def prepare_contest(
    resampling: Resampling,
    *,
    statement: Statement,
    classes: AnyArray | None,
    tuning: Tuning,
    seed: int,
) -> Contest:
    """Prepare the trials: how models are fitted, and how candidates are then compared."""
    # Calibration rows may hold more classes, which a search must not know.
    if classes is not None:
        classes = np.unique(resampling.targets)
    fits = ModelFits(resampling, classes, seed, n_jobs=tuning.n_jobs)

    rows = resampling.tuning_rows
    weights: RowWeights = EqualRows()
    if rows.clusters is not None:
        _, cluster_numbers = np.unique(rows.clusters, return_inverse=True)
        weights = EqualClusters(cluster_numbers)
    thresholds = threshold_kind(statement.calibrator, rows)
    comparison = Comparison(
        alpha=statement.alpha,
        objective=tuning.objective,
        weights=weights,
        thresholds=thresholds,
        slicings=named_slicings(rows, tuning.objective.columns, thresholds),
    )
    return Contest(fits, comparison)


@dataclass(frozen=True, eq=False)
class Compared:
    """All candidates that were compared, and their ranking."""

    contest: Contest
    candidates: list[Candidate]
    ranking: Ranking

    @property
    def winner(self) -> CandidateTrial:
        """What the best candidate did."""
        return self.contest.trials[self.ranking.best]


def compare(listed: Listed, contest: Contest, *, support: tuple[float, float] | None) -> Compared:
    """Rank the candidates: those listed, or those that a strategy proposes.

    Averages of the best models and levelled scores are made from the tried candidates. They are
    added, and all are ranked again.
    """
    candidates = listed.candidates
    if listed.strategy is not None:
        candidates = search_candidates(listed.strategy, candidates, contest, support=support)
    ranking = contest.rank(candidates)

    if listed.adds_averages:
        candidates = [*candidates, *average_best_models(candidates, contest, ranking)]
        ranking = contest.rank(candidates)
    if listed.adds_levelled_scores:
        candidates = [*candidates, *level_scores(candidates, contest)]
        ranking = contest.rank(candidates)
    return Compared(contest, candidates, ranking)


def measure_stability(compared: Compared, *, seed: int) -> float | None:
    """Return the share of random halves of the tuning rows on which the winner wins again.

    It competes with the best few of the others. None where nothing was compared, where rows have
    conditions or clusters, where an objective reads whole sets, or where each size is a search for
    roots (mixtures).
    """
    comparison = compared.contest.comparison
    if comparison.objective.reads_sets or not comparison.thresholds.is_single:
        return None
    if not comparison.weights.are_equal:
        return None

    trials = compared.contest.best_trials(compared.ranking, _MOST_COMPARED_AGAIN)
    if len(trials) < 2 or len(trials[0].evaluated) < 2:
        return None
    if any(trial.candidate.record_type is GaussianMixtures for trial in trials):
        return None

    candidates = [trial.evaluated for trial in trials]
    return share_of_wins(compared.ranking.best, candidates, comparison, seed=seed)


def note_choice(
    compared: Compared,
    *,
    caller_chose_scores: bool,
    can_condition: bool,
    support: tuple[float, float] | None,
) -> list[Note]:
    """Note which candidates failed, and weaknesses of the winner on the tuning rows."""
    contest = compared.contest
    winner = compared.winner
    notes = []
    if compared.ranking.failed:
        reasons = contest.reasons_of_failure(compared.candidates, compared.ranking)
        notes.append(note_failed(reasons))
    if not (contest.comparison.thresholds.is_single and winner.row.feasible):
        return notes

    objective = contest.comparison.objective
    outcome = contest.comparison.outcome(winner.evaluated)
    resampling = contest.fits.resampling
    notes += note_left_behind(compared.ranking, objective, outcome)
    if winner.predictions.are_of_classes:
        y = resampling.tuning_rows.y
        notes += note_low_classes(y, outcome.covered, can_condition=can_condition)
        notes += note_empty_sets(outcome.sizes)
        return notes

    notes += note_one_width(
        outcome.covered,
        outcome.sizes,
        winner.predictions.centres,
        alpha=outcome.alpha,
        caller_chose_scores=caller_chose_scores,
        objective_is_even=isinstance(objective, Even),
    )
    if support is None and resampling.targets.min() >= 0:
        notes += note_below_zero(
            winner.candidate.score, winner.predictions.records, winner.row.ranking_threshold
        )
    return notes


def _check_settings(resampling: Resampling, tuning: Tuning) -> None:
    """Refuse settings that do not suit the rows or each other."""
    if resampling.is_by_folds and not tuning.refit:
        raise ValueError(
            Message(
                "⟨tune_folds⟩ needs refit=True: no single model was fitted on all the rows that "
                "tuned."
            )
        )
    if tuning.support is not None:
        _check_support(resampling.targets, tuning.support)


def _check_support(y: Floats, support: tuple[float, float]) -> None:
    """Refuse a support that does not hold the training and tuning targets."""
    low, high = support
    outside = y[(y < low) | (y > high)]
    if outside.size:
        raise ValueError(
            Message(
                f"{outside.size} of {len(y)} training and tuning targets (such as {outside[0]:g}) "
                f"lie outside ⟨support⟩ ({low:g} to {high:g}): widen it, or leave it out."
            )
        )


def _check_tuning_rows(resampling: Resampling, listed: Listed) -> None:
    """Refuse to choose without tuning rows."""
    if len(resampling.tuning_rows):
        return

    reason = "a search chooses by them"
    if listed.strategy is None:
        names = first_few([candidate.name for candidate in listed.candidates], most=3)
        reason = f"{len(listed.candidates)} candidates are compared on them ({names})"
    raise ValueError(
        Message(
            f"No row is left for tuning, but {reason}: raise ⟨tune_size⟩, tune by folds with "
            f"⟨tune_folds=5⟩, or bring one model and one score."
        )
    )
