"""The work of ``dco evaluate``: measure a model on rows with known targets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dco
from dco.cli.model_files import (
    ModelFile,
    StatedPromise,
    condition_columns,
    open_model,
    stated_promise,
)
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
    """An evaluation, and what is printed beside it.

    Attributes
    ----------
    evaluation, certificate
        The evaluation, and the certificate of the model.
    promise
        The level and the guarantee that were evaluated.
    by
        The column whose values have rows of their own in the evaluation, if there is one.
    statement
        The sentence of the certificate; None if another promise was evaluated than that of the fit.
    comparisons
        Sentences that compare predictions and sizes with guesses which use no feature.
    target
        The column with the true values, if it is known.
    """

    evaluation: dco.Evaluation
    certificate: dco.Certificate
    promise: StatedPromise
    by: str | None
    statement: str | None
    comparisons: list[str]
    target: str | None


def measure(order: EvaluateOrder) -> Measured:
    """Evaluate a model on all rows of a table at once: coverage, set sizes, and slices of the rows.

    A column that --by names slices the rows. If it is a condition of the model (its values have
    thresholds of their own), the estimator slices by it anyway.
    """
    model = open_model(order.model, order.trust)
    rows = rows_with_targets(model, order.data, order.reading)
    promise = stated_promise(model, order.promise)

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
    """Evaluate a model on a table that need not fit into memory, batch by batch.

    Without slices of the rows, and without comparisons with simple guesses.
    """
    model = open_model(order.model, order.trust)
    promise = stated_promise(model, order.promise)
    evaluation = evaluate_in_parts(
        model,
        ModelFile(order.model.resolve(), order.trust),
        order.data,
        reading=order.reading,
        promise=order.promise,
        work=order.work,
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
    """Write sentences that compare a model with guesses which use no feature.

    Its point predictions are compared with the mean or the most frequent label, the mean size of
    its intervals with the range of the middle 1 - alpha of all targets.
    """
    are_labels = hasattr(model, "classes_")
    sentences = [point_in_words(rows.y, model.predict(rows.X), are_labels=are_labels)]
    if not are_labels:
        guess = middle_range(rows.y, alpha=alpha)
        sentences.append(size_in_words(evaluation.mean_size, guess, alpha=alpha))
    return [sentence for sentence in sentences if sentence]
