"""Pair models with the scores that can read what they predict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dco.foundations.arrays import AnyArray
from dco.foundations.errors import IncompatibleScoreError
from dco.foundations.notes import Message
from dco.models.records import CLASS_RECORDS, records_of, sources_of
from dco.scores.score import Score
from dco.scores.transformed import Within
from dco.structure import Candidate
from dco.tuning.defaults import default_scores_of


def pair_models_with_scores(
    models: Mapping[str, Any],
    scores: Mapping[str, Score] | None,
    *,
    of_classes: bool,
    transforms: Sequence[str] = (),
) -> list[Candidate]:
    """List every model with every score that reads its predictions.

    Parameters
    ----------
    models, scores
        Both by name. Without scores (None), each model gets the default ones.
    of_classes
        Whether the targets are labels.
    transforms
        Scales of the targets, such as "log", on which the default scores are tried too.

    A model or a score that is left without a partner is an error that names both sides.
    """
    candidates = []
    for name, model in models.items():
        scores_to_try = scores
        if scores_to_try is None:
            scores_to_try = default_scores_of(model, of_classes=of_classes, transforms=transforms)
        pairs = pair_model(name, model, scores_to_try, of_classes=of_classes)
        if not pairs:
            raise IncompatibleScoreError(_explain_no_score(name, model, scores or {}))
        candidates += pairs

    names_of_used_scores = {candidate.score_name for candidate in candidates}
    for name, score in (scores or {}).items():
        if name not in names_of_used_scores:
            raise IncompatibleScoreError(_explain_no_model(name, score, models))
    return candidates


def pair_model(
    name: str, model: Any, scores: Mapping[str, Score], *, of_classes: bool
) -> list[Candidate]:
    """List one model with every score that reads its predictions.

    A regressor is refused if the targets are labels (`of_classes`), and a classifier if they are
    numbers: a regressor of the codes 0 and 1 would give intervals of codes.
    """
    candidates = []
    for score_name, score in scores.items():
        record_type = _record_to_read(model, score)
        if record_type is None:
            continue
        if of_classes and record_type not in CLASS_RECORDS:
            raise IncompatibleScoreError(
                f"The model {name!r} gives {record_type.__name__}, which does not predict "
                f"labels: use DecoupledRegressor, or bring another model."
            )
        if not of_classes and record_type in CLASS_RECORDS:
            raise IncompatibleScoreError(
                f"The model {name!r} gives {record_type.__name__}, which does not predict "
                f"numbers: use DecoupledClassifier, or bring another model."
            )
        candidates.append(Candidate(name, score_name, model, score, record_type))
    return candidates


def _record_to_read(model: Any, score: Score) -> type | None:
    """Return the type of prediction that a score reads from a model; None if it can read none.

    Of several types that would do, the score's first choice is taken.
    """
    offered = records_of(model)
    for record_type in score.needs:
        if record_type in offered:
            return record_type
    return None


def keep_readable(scores: Mapping[str, Score], models: Mapping[str, Any]) -> Mapping[str, Score]:
    """Leave out scores that can read none of the models' predictions.

    If that would leave none, all are returned: the error that follows says what they lack.
    """
    offered = {record for model in models.values() for record in records_of(model)}
    readable = {
        name: score
        for name, score in scores.items()
        if any(record in offered for record in score.needs)
    }
    return readable or scores


def learn_scores(
    candidates: Iterable[Candidate], y: AnyArray, support: tuple[float, float] | None
) -> list[Candidate]:
    """Replace the candidates' scores by ones that have learnt from the training targets `y`.

    Most scores have nothing to learn and stay as they are. `support` is the range of possible
    targets, (smallest, largest), to which sets are cut; None for all numbers.
    """
    learnt_candidates = []
    for candidate in candidates:
        score = candidate.score.fitted(y)
        if support is not None:
            smallest, largest = support
            score = Within(score, smallest, largest)
        learnt_candidates.append(replace(candidate, score=score))
    return learnt_candidates


def _explain_no_score(name: str, model: Any, scores: Mapping[str, Score]) -> Message:
    """Say that no score can read what the model predicts."""
    offered = records_of(model)
    gives = ", ".join(record.__name__ for record in offered) or "nothing that a score can read"
    tried = ", ".join(scores) or "the default scores"
    needed = [record for score in scores.values() for record in score.needs]
    return Message(
        f"No score suits the model {name!r}: it gives {gives}; tried {tried}."
        f"{sources_of(needed, offered)}"
    )


def _explain_no_model(name: str, score: Score, models: Mapping[str, Any]) -> Message:
    """Say that no model predicts what the score reads."""
    needs = " or ".join(record.__name__ for record in score.needs)
    offered: Sequence[type] = [record for model in models.values() for record in records_of(model)]
    return Message(
        f"The score {name} needs {needs}, which none of the models gives ({', '.join(models)})."
        f"{sources_of(score.needs, offered)}"
    )
