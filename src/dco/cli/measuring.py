"""The work of ``dco evaluate``: measure a model on rows with known targets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dco
from dco.cli.model_files import StatedPromise, condition_columns, open_model, stated_promise
from dco.cli.option_records import OtherPromise, TargetOptions, Work
from dco.cli.parts import evaluate_in_parts
from dco.cli.tables.fitted import KnownRows, rows_with_targets
from dco.foundations.comparisons import middle_range, point_in_words, size_in_words


@dataclass(frozen=True)
class EvaluateOrder:
    """What the options of `dco evaluate` ask for."""

    model: Path
    data: Path
    promise: OtherPromise
    reading: TargetOptions
    trust: tuple[str, ...]
    work: Work


@dataclass(frozen=True, eq=False)
class Measured:
    """An evaluation, what was promised, and sentences to print beside it.

    `by` is the column whose values are sliced. `statement` is the sentence of the certificate, None
    where another promise was evaluated. `comparisons` set model and sets beside plain guesses.
    """

    evaluation: dco.Evaluation
    certificate: dco.Certificate
    promise: StatedPromise
    by: str | None
    statement: str | None
    comparisons: list[str]
    target: str | None


def measure(order: EvaluateOrder) -> Measured:
    """Evaluate on a table that fits into memory."""
    model = open_model(order.model, order.trust)
    rows = rows_with_targets(model, order.data, order.reading)
    promise = stated_promise(model, order.promise)

    # the estimator takes the values that have thresholds by itself
    by = None if rows.by_name in condition_columns(model) else rows.by_name
    evaluation = model.evaluate(
        rows.X,
        rows.y,
        by=None if by is None else rows.by_with_name(),
        **asdict(order.promise),
    )
    return Measured(
        evaluation=evaluation,
        certificate=model.certificate_,
        promise=promise,
        by=by,
        statement=model.certificate_.statement if order.promise.is_of_the_fit() else None,
        comparisons=_compare_with_guesses(model, rows, evaluation, alpha=promise.alpha),
        target=rows.target,
    )


def measure_in_parts(order: EvaluateOrder, *, quiet: bool) -> Measured:
    """Evaluate on a table of any size, whose files are counted by themselves."""
    model = open_model(order.model, order.trust)
    promise = stated_promise(model, order.promise)
    evaluation = evaluate_in_parts(
        model,
        (order.model.resolve(), order.trust),
        order.data,
        reading=order.reading,
        asked=asdict(order.promise),
        jobs=order.work.jobs,
        scheduler=order.work.scheduler,
        quiet=quiet,
    )
    return Measured(
        evaluation=evaluation,
        certificate=model.certificate_,
        promise=promise,
        by=None,
        statement=model.certificate_.statement if order.promise.is_of_the_fit() else None,
        comparisons=[],
        target=order.reading.target,
    )


def _compare_with_guesses(
    model: Any, rows: KnownRows, evaluation: dco.Evaluation, *, alpha: float
) -> list[str]:
    """Set the predictions and the sizes of sets beside guesses that look at no feature."""
    are_labels = hasattr(model, "classes_")
    sentences = [point_in_words(rows.y, model.predict(rows.X), are_labels=are_labels)]
    if not are_labels:
        guess = middle_range(rows.y, alpha=alpha)
        sentences.append(size_in_words(evaluation.mean_size, guess, alpha=alpha))
    return [sentence for sentence in sentences if sentence]
