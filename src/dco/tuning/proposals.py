"""Candidates beyond the listed ones: what a strategy proposes, the average of the best models,
levelled scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dco.foundations.errors import IncompatibleScoreError
from dco.foundations.ranks import as_rational, smallest_marginal_n
from dco.models.averaged import AveragedModel, average_records
from dco.scores.levelled import Levelled
from dco.scores.score import Score, checked_score, identity_of, own_label, score_label
from dco.structure import Candidate
from dco.tuning.ranking import Ranking
from dco.tuning.strategies import Strategy

if TYPE_CHECKING:
    from dco.tuning.selection import Trials, Tried

_AVERAGED = 3  # models at most


def searched(search: Strategy, listed: Sequence[Candidate], trials: Trials) -> list[Candidate]:
    """Let a strategy propose models and scores; each proposal is judged on the tuning rows, each
    model fitted once.
    """
    candidates: dict[str, Candidate] = {}
    known = {(id(candidate.model), identity_of(candidate.score)): candidate for candidate in listed}
    # the models are kept, so that no later one gets the id of one that is gone
    names: dict[Hashable, tuple[str, Any]] = {}
    labels: dict[str, Hashable] = {}
    kept: list[Score] = []  # for the same reason

    def proposed(model: Any, score: Score) -> Candidate:
        candidate = known.get((id(model), identity_of(checked_score(score))))
        if candidate is not None:
            return candidate
        name, _ = names.setdefault(_model_identity(model), (f"trial {len(names)}", model))
        kept.append(score)
        found = trials.bench.suitable(
            f"{name}: {type(model).__name__}", model, {own_label(score, labels): score}
        )
        if not found:
            raise IncompatibleScoreError(
                f"The score {score_label(score)} does not suit {type(model).__name__}."
            )
        return found[0]

    def evaluate(
        model: Any, score: Score, report: Callable[[int, float], bool] | None = None
    ) -> float:
        new = proposed(model, score)
        if report is not None and trials.fold_by_fold(new, report):
            return math.inf  # pruned: it is no candidate
        candidates.setdefault(new.name, new)
        return trials.rank([new]).table[0].steering

    found = search.search(evaluate, [(candidate.model, candidate.score) for candidate in listed])
    if not candidates:
        reasons = "; ".join(trial.reason for trial in found.trials)
        raise ValueError(f"The search proposed no candidate that could be tried. {reasons}")
    return list(candidates.values())


def _model_identity(model: Any) -> Hashable:
    """Equal for models that are fitted alike: one class, the same parameters to the last entry of
    each array.
    """
    params = model.get_params(deep=False) if hasattr(model, "get_params") else {"model": model}
    return type(model), *(identity_of(value) for value in params.values())


def with_average(
    candidates: Sequence[Candidate], tried: dict[str, Tried], ranking: Ranking
) -> list[Candidate]:
    """Add the average of the best few distinct models that give the winner's kind of record, with
    each of its scores.

    What it predicts is added to `tried`.
    """
    by_name = {candidate.name: candidate for candidate in candidates}
    best = by_name[ranking.best]
    same_kind = [
        by_name[row.name]
        for row in ranking.table
        if by_name[row.name].record_type is best.record_type
    ]
    model_of = {candidate.model_name: candidate.model for candidate in same_kind}  # best first
    members = list(model_of)[:_AVERAGED]
    if len(members) < 2:
        return list(candidates)

    name = "average of " + ", ".join(members)
    model = AveragedModel([model_of[member] for member in members])
    trials = [tried[member] for member in members]
    predictions = [trial.predictions[best.record_type] for trial in trials]

    # One record and one fitted average for each fold, or one of each without folds.
    records = tuple(
        average_records(of_one_fold)
        for of_one_fold in zip(*(pieces.records for pieces in predictions), strict=True)
    )
    fits = tuple(
        model.of_fitted(list(of_one_fold))
        for of_one_fold in zip(*(trial.fits for trial in trials), strict=True)
    )
    averaged = replace(predictions[0], records=records)
    tried[name] = replace(trials[0], fits=fits, predictions={best.record_type: averaged})

    scores = {candidate.score_name: candidate.score for candidate in same_kind}
    averages = [
        replace(best, model_name=name, model=model, score_name=score_name, score=score)
        for score_name, score in scores.items()
    ]
    return [*candidates, *averages]


def with_levelled(candidates: Sequence[Candidate], trials: Trials) -> list[Candidate]:
    """Add each candidate with its score levelled over fifths of the prediction, if tuning rows are
    enough for that.
    """
    y, found = trials.bench.tuning_rows().y, list(candidates)
    # twice what a fifth needs to have such a quantile
    if len(y) < 10 * smallest_marginal_n(alpha=trials.alpha):
        return found
    for each in candidates:
        if trials.tried[each.model_name].failure is None:
            pieces = trials.tried[each.model_name].predictions[each.record_type]
            observed = pieces.observed(each.score, y)
            score = Levelled.of(
                each.score, pieces.centres(), observed, alpha=float(as_rational(trials.alpha))
            )
            found += (
                [replace(each, score_name=f"Levelled({each.score_name})", score=score)]
                if score is not None
                else []
            )
    return found
