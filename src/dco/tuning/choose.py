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
from dco.tuning.cutoffs import choose_threshold_kind
from dco.tuning.defaults import Models, suiting_transforms
from dco.tuning.fits import ModelFits
from dco.tuning.learnt_spreads import learn_spreads
from dco.tuning.notes import (
    note_below_zero,
    note_empty_sets,
    note_low_classes,
    note_one_width,
    note_uneven,
)
from dco.tuning.objectives import MEAN_SIZE, Even, Objective
from dco.tuning.proposals import average_best_models, make_levelled_candidates, search_candidates
from dco.tuning.ranking import Ranking, note_failed
from dco.tuning.resampling import Resampling
from dco.tuning.row_weights import EqualClusters, EqualRows, RowWeights
from dco.tuning.slices import named_slicings
from dco.tuning.stability import share_of_wins
from dco.tuning.stacking import stack_models
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

    Attributes
    ----------
    winner, ranking, n_candidates
        The chosen candidate, the ranking of all, and how many there were.
    training_rows_known
        False if a model came already fitted, on rows that are unknown here.
    fitted_model
        The winner's model, fitted on the training rows; None if it was not, or only on folds.
    selection
        Why the winner won: "smallest mean size on 200 tuning rows".
    stability
        The share of random halves of the tuning rows on which the winner wins again.
    tuning_scores
        The winner's scores of the tuning rows, from which clusters of labels are learnt.
    """

    winner: Candidate
    ranking: Ranking
    n_candidates: int
    training_rows_known: bool
    fitted_model: Any = None
    selection: str = ""
    stability: float | None = None
    tuning_scores: Floats | None = None
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
    """Choose the candidate whose sets of the tuning rows are best by the objective.

    Parameters
    ----------
    models, scores
        A candidate is a model with a score. Without scores, the default ones are tried.
    resampling
        Which rows models are fitted on and compared on: training and tuning rows, or folds.
    statement
        The level, and which rows share a threshold.
    classes
        All labels; None for numbers.
    """
    _check_settings(resampling, tuning)

    # 1. List the candidates. A single one is chosen without a trial.
    starting = list_candidates(
        models, scores, resampling, of_classes=classes is not None, tuning=tuning
    )
    learns_from_scores = statement.calibrator.learns_from_tuning
    needs_trial = learns_from_scores and len(resampling.tuning_rows) > 0
    if starting.is_single and not needs_trial:
        return choose_without_trial(starting, statement, tuning)
    _check_tuning_rows(resampling, starting)

    # 2. Try and rank them, then averages of the best models and levelled scores.
    contest = prepare_contest(
        resampling, statement=statement, classes=classes, tuning=tuning, seed=seed
    )
    ranked = rank_candidates(starting, contest, support=tuning.support)

    # 3. Describe the winner.
    winner = ranked.winner
    fitted_models = winner.fit.models
    rows_are_known = starting.rows_are_known
    if starting.strategy is not None:  # it may have proposed a model that came fitted
        rows_are_known = rows_are_known and not holds_frozen(winner.candidate.model)
    notes = note_choice(
        ranked,
        caller_chose_scores=not starting.adds_levelled_scores,
        can_condition=statement.calibrator.takes_condition,
        support=tuning.support,
    )
    return Choice(
        winner=winner.candidate,
        ranking=ranked.ranking,
        n_candidates=len(ranked.candidates),
        training_rows_known=rows_are_known,
        fitted_model=fitted_models[0] if len(fitted_models) == 1 else None,
        selection=f"{tuning.objective.describe(winner.row)} {resampling.in_words()}",
        stability=measure_stability(ranked, seed=seed),
        tuning_scores=winner.evaluated.scores if learns_from_scores else None,
        notes=tuple(notes),
    )


def choose_without_trial(
    starting: StartingCandidates, statement: Statement, tuning: Tuning
) -> Choice:
    """Choose the only candidate there is: nothing is fitted, and the ranking is empty."""
    nothing_ranked = Ranking(
        table=(),
        failed=(),
        alpha=float(statement.alpha),
        n=0,
        objective=tuning.objective.name,
    )
    return Choice(
        winner=starting.candidates[0],
        ranking=nothing_ranked,
        n_candidates=1,
        training_rows_known=starting.rows_are_known,
    )


@dataclass(frozen=True, eq=False)
class StartingCandidates:
    """The candidates to begin with, and which others are added when these have been tried.

    Attributes
    ----------
    strategy
        Proposes candidates of its own; None if the listed ones are tried, each once.
    adds_averages
        Whether averages of the best models are tried too.
    adds_levelled_scores
        Whether scores are tried too that widen the sets where errors are larger: levelled ones, and
        those of a spread learnt on the tuning rows.
    rows_are_known
        False if a model came already fitted, on rows that are unknown here.
    """

    candidates: list[Candidate]
    strategy: Strategy | None
    adds_averages: bool
    adds_levelled_scores: bool
    rows_are_known: bool

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
) -> StartingCandidates:
    """List the candidates that a search begins with: models paired with scores.

    Parameters
    ----------
    models
        The caller's models and default ones; which default ones depends on the rows.
    scores
        The caller's scores by name; None for the default ones, which depend on the model.
    resampling
        The training and the tuning rows.
    of_classes
        Whether the targets are labels.
    """
    # 1. Make the models.
    caller_chose_scores = scores is not None
    model_by_name = models.make(resampling, scores)
    if scores is not None and models.has_defaults:
        scores = keep_readable(scores, model_by_name)

    # 2. Pair each with the scores that can read its predictions, and fit these to the targets.
    transforms = [] if of_classes else suiting_transforms(resampling)
    pairs = pair_models_with_scores(
        model_by_name, scores, of_classes=of_classes, transforms=transforms
    )
    candidates = learn_scores(pairs, resampling.rows_to_learn_from().y, tuning.support)

    # 3. A caller who leaves models or scores out wants good ones: more are tried later.
    searches_freely = not caller_chose_scores and tuning.strategy is None
    return StartingCandidates(
        candidates=candidates,
        strategy=tuning.strategy,
        adds_averages=models.has_defaults,
        adds_levelled_scores=searches_freely and not of_classes,
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
    """Prepare to try candidates: say how models are fitted, and how candidates are compared.

    `statement` says the level and which rows share a threshold, `classes` are all labels, and None
    for numbers.
    """
    # 1. How models are fitted. Calibration rows may hold more labels, which they must not know.
    if classes is not None:
        classes = np.unique(resampling.targets)
    model_fits = ModelFits(resampling, classes, seed, n_jobs=tuning.n_jobs)

    # 2. How much each tuning row counts. Rows that belong together (a cluster) count as one.
    rows = resampling.tuning_rows
    weights: RowWeights = EqualRows()
    if rows.clusters is not None:
        _, cluster_of_row = np.unique(rows.clusters, return_inverse=True)
        weights = EqualClusters(cluster_of_row)

    # 3. How candidates are compared on them.
    thresholds = choose_threshold_kind(statement.calibrator, rows)
    comparison = Comparison(
        alpha=statement.alpha,
        objective=tuning.objective,
        weights=weights,
        thresholds=thresholds,
        slicings=named_slicings(rows, tuning.objective.columns, thresholds),
    )
    return Contest(model_fits, comparison)


@dataclass(frozen=True, eq=False)
class RankedCandidates:
    """All candidates that were compared, and their ranking."""

    contest: Contest
    candidates: list[Candidate]
    ranking: Ranking

    @property
    def winner(self) -> CandidateTrial:
        """The trial of the best candidate."""
        return self.contest.trials[self.ranking.best]


def rank_candidates(
    starting: StartingCandidates, contest: Contest, *, support: tuple[float, float] | None
) -> RankedCandidates:
    """Rank the candidates: the starting ones, or those that a strategy proposes.

    Some more can only be made from candidates that were tried. So they are added in rounds, and
    after each round all are ranked again; what was fitted before is not fitted again. `support` is
    the range of possible targets, (smallest, largest), if the caller gave it.
    """
    # 1. The candidates to begin with.
    candidates = starting.candidates
    if starting.strategy is not None:
        candidates = search_candidates(starting.strategy, candidates, contest, support=support)
    ranking = contest.rank(candidates)

    # 2. Plain and weighted averages of the best models.
    if starting.adds_averages:
        averages = average_best_models(candidates, contest, ranking)
        stacks = stack_models(candidates, contest, ranking)
        candidates = [*candidates, *averages, *stacks]
        ranking = contest.rank(candidates)

    # 3. Sets that are wider where errors are larger, in two ways.
    if starting.adds_levelled_scores:
        with_spreads = learn_spreads(candidates, contest, ranking, support=support)
        candidates = [*candidates, *with_spreads]
        ranking = contest.rank(candidates)

        levelled = make_levelled_candidates(candidates, contest)
        candidates = [*candidates, *levelled]
        ranking = contest.rank(candidates)
    return RankedCandidates(contest, candidates, ranking)


def measure_stability(ranked: RankedCandidates, *, seed: int) -> float | None:
    """Return the share of random halves of the tuning rows on which the winner wins again.

    It competes with the best few of the others. The share is None where halves cannot be compared
    like all rows (with conditions, clusters, or an objective that reads whole sets), where there
    are fewer than two candidates or rows, and where it would take too long.
    """
    comparison = ranked.contest.comparison
    is_plain = comparison.thresholds.is_single and comparison.weights.are_equal
    if comparison.objective.reads_sets or not is_plain:
        return None

    trials = ranked.contest.best_trials(ranked.ranking, _MOST_COMPARED_AGAIN)
    if len(trials) < 2 or len(trials[0].evaluated) < 2:
        return None
    if any(trial.candidate.record_type is GaussianMixtures for trial in trials):
        return None  # each size of a set is found by a slow search for roots

    candidates = [trial.evaluated for trial in trials]
    return share_of_wins(ranked.ranking.best, candidates, comparison, seed=seed)


def note_choice(
    ranked: RankedCandidates,
    *,
    caller_chose_scores: bool,
    can_condition: bool,
    support: tuple[float, float] | None,
) -> list[Note]:
    """Write notes for the user: candidates that failed, weaknesses of the winner's sets.

    Parameters
    ----------
    caller_chose_scores
        Whether the caller named the scores, so that leaving them out can be advised.
    can_condition
        Whether a threshold for each class can be advised.
    support
        The range of the targets that the caller gave, if any.
    """
    # 1. Candidates that failed.
    contest = ranked.contest
    comparison = contest.comparison
    winner = ranked.winner
    notes = []
    if ranked.ranking.failed:
        reasons = contest.reasons_of_failure(ranked.candidates, ranked.ranking)
        notes.append(note_failed(reasons))

    # 2. The other notes are about bounded sets, with one threshold for all rows.
    if not (comparison.thresholds.is_single and winner.row.feasible):
        return notes
    outcome = comparison.outcome(winner.evaluated)
    notes += note_uneven(ranked.ranking, comparison.objective, outcome)

    # 3. Sets of labels.
    if winner.predictions.are_of_classes:
        y = contest.tuning_rows.y
        notes += note_low_classes(y, outcome.covered, can_condition=can_condition)
        notes += note_empty_sets(outcome.sizes)
        return notes

    # 4. Sets of numbers.
    notes += note_one_width(
        outcome.covered,
        outcome.sizes,
        winner.predictions.centres,
        alpha=outcome.alpha,
        caller_chose_scores=caller_chose_scores,
        objective_is_even=isinstance(comparison.objective, Even),
    )
    is_never_negative = contest.resampling.targets.min() >= 0
    if support is None and is_never_negative:
        records = winner.predictions.records
        notes += note_below_zero(winner.candidate.score, records, winner.row.ranking_threshold)
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


def _check_tuning_rows(resampling: Resampling, starting: StartingCandidates) -> None:
    """Refuse to choose without tuning rows."""
    if len(resampling.tuning_rows):
        return

    reason = "a search chooses by them"
    if starting.strategy is None:
        names = first_few([candidate.name for candidate in starting.candidates], most=3)
        reason = f"{len(starting.candidates)} candidates are compared on them ({names})"
    raise ValueError(
        Message(
            f"No row is left for tuning, but {reason}: raise ⟨tune_size⟩, tune by folds with "
            f"⟨tune_folds=5⟩, or bring one model and one score."
        )
    )
