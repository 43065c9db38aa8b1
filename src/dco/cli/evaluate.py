"""``dco evaluate``: coverage and sizes on rows with known targets, and whether the promise held."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dco.cli import options as opt
from dco.cli.evaluation_tables import NO_LAW, print_evaluation
from dco.cli.option_records import OtherPromise, TargetOptions, Work
from dco.cli.option_types import FILE, LEVEL
from dco.cli.printing import as_json, collected_notes, print_json, print_notes, progress, say
from dco.cli.spelling import spell_note
from dco.foundations.display import counted

if TYPE_CHECKING:
    from dco.cli.measuring import Measured


@click.command("evaluate", epilog=opt.example("dco evaluate model.dco new_patients.csv --by sex"))
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
@opt.model_options
@opt.by_option
@opt.target_options
@click.option(
    "--in-parts",
    is_flag=True,
    help="Read DATA in batches, for tables larger than memory: no slices, no --by.",
)
@opt.work_options
@click.option(
    "--fail-below",
    type=LEVEL,
    help="Exit with status 1 if the coverage is below this share, for pipelines.",
)
@as_json
def command(
    model: Path,
    data: Path,
    promise: OtherPromise,
    reading: TargetOptions,
    trust: tuple[str, ...],
    in_parts: bool,
    work: Work,
    fail_below: float | None,
    as_json: bool,
) -> None:
    """Measure coverage and set sizes on rows with known targets, and say whether the promise held.

    The rows of DATA must be new: if most of them trained, tuned or calibrated the model, there is
    no verdict.
    """
    from dco.cli.measuring import EvaluateOrder, measure, measure_in_parts

    if in_parts and reading.by is not None:
        raise click.UsageError(
            "--in-parts counts all rows and the conditions of the model: leave --by out."
        )
    if work.is_asked_for() and not in_parts:
        raise click.UsageError("--jobs and --scheduler read the files of a folder: add --in-parts.")

    order = EvaluateOrder(model, data, promise, reading, trust, work)
    with progress("Evaluating", None, quiet=as_json or in_parts), collected_notes() as notes:
        measured = measure_in_parts(order, quiet=as_json) if in_parts else measure(order)
    for note in measured.evaluation.notes:
        text = spell_note(note, target=measured.target)
        if text not in notes:
            notes.append(text)

    if as_json:
        print_json({**_facts(measured), "notes": notes})
    else:
        _print_measured(measured, data, notes)
    if fail_below is not None and measured.evaluation.coverage < fail_below:
        if not as_json:
            coverage = measured.evaluation.coverage
            say(f"Coverage {coverage:.4f} is below --fail-below {fail_below:g}.")
        raise click.exceptions.Exit(1)


def _facts(measured: Measured) -> dict[str, Any]:
    """Collect what --json prints."""
    evaluation = measured.evaluation
    facts = evaluation.to_dict()
    if not evaluation.coverage_tests and evaluation.no_verdict is None:
        facts["no_verdict"] = NO_LAW
    return {**facts, **asdict(measured.promise), "statement": measured.statement}


def _print_measured(measured: Measured, data: Path, notes: list[str]) -> None:
    """Print the tables of an evaluation, the promise, the notes, and the verdict in words."""
    evaluation = measured.evaluation
    title = f"{counted(evaluation.n, 'row')} of {data}"
    if measured.statement is None:
        title += f", {_describe_promise(measured)}"
    print_evaluation(evaluation, measured.certificate, title=title, by=measured.by)
    say(*measured.comparisons)
    if measured.statement is not None:
        say(measured.statement)
    print_notes(notes)
    say(evaluation.in_words())


def _describe_promise(measured: Measured) -> str:
    """Name the promise that was evaluated: "pac guarantee, alpha = 0.1, delta = 0.05"."""
    promise = measured.promise
    delta = "" if promise.delta is None else f", delta = {promise.delta:g}"
    return f"{promise.guarantee} guarantee, alpha = {promise.alpha:g}{delta}"
