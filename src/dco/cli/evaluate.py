"""``dco evaluate``: coverage and sizes on rows with known targets, and whether they agree with the guarantee."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from dco.cli.options import FILE, LEVEL, chosen_alpha, example, known_options, model_options, option, work_options
from dco.cli.printing import as_json, collected_notes, print_json, print_notes, print_table, progress, say
from dco.foundations.display import counted

MOST_GROUPS = 30  # that are printed
MOST_CLASSES = 10
NO_LAW = "No coverage law applies to these rows (groups that overlap, or no guarantee), so there is no verdict."


@click.command("evaluate", epilog=example("dco evaluate model.dco new_patients.csv --by sex"))
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
@model_options
@known_options
@click.option("--in-parts", is_flag=True, help="Read DATA in batches, for tables larger than memory: no slices, no --by.")
@work_options
@click.option("--fail-below", type=LEVEL, help="Exit with status 1 if the coverage is below this share, for pipelines.")
@as_json
def command(
    model: Path, data: Path, by: str | None, trust: tuple[str, ...], in_parts: bool, as_json: bool, **options: Any
) -> None:
    """Measure coverage and set sizes on rows with known targets, and say whether the promise held.

    The rows of DATA must be new: if some of them trained, tuned or calibrated the model, there is no verdict.
    """
    from dco.cli.model_files import condition_columns, open_model, rows_with_targets, stated
    from dco.evaluation.usefulness import middle_range, point_in_words, size_in_words

    least, jobs, scheduler = (options.pop(name) for name in ("fail_below", "jobs", "scheduler"))
    asked = {"alpha": chosen_alpha(options.pop("alpha"), options.pop("confidence"), default=None)}
    asked |= {name: options.pop(name) for name in ("guarantee", "delta")}
    if in_parts:
        if by is not None:
            raise click.UsageError("--in-parts counts all rows and the groups of the model: leave --by out.")
        from dco.cli.parts import Part, evaluate_in_parts, print_parts

        with collected_notes() as notes:
            estimator = open_model(model, trust)
            stated(estimator, asked, noting=True)
            part = Part(str(model.resolve()), trust, asked=asked, **options)
            found = evaluate_in_parts(estimator, data, part, jobs=jobs, scheduler=scheduler, quiet=as_json)
        if as_json:
            print_json(asdict(found) | {"notes": notes})
        else:
            print_parts(found, data)
            print_notes(notes)
        return _stop_below(found, least, quiet=as_json)
    if jobs != 1 or scheduler is not None:
        raise click.UsageError("--jobs and --scheduler read the files of a folder: add --in-parts.")
    with progress("Evaluating", None, quiet=as_json), collected_notes() as notes:
        estimator = open_model(model, trust)
        rows = rows_with_targets(estimator, data, by=by, **options)
        promise = stated(estimator, asked, noting=True)
        own = by is None or by in condition_columns(estimator)  # the estimator then takes the groups that it calibrated
        evaluation = estimator.evaluate(rows.X, rows.y, by=None if own else rows.by, **asked)
    certificate = estimator.certificate_
    notes += [note.spelled(partial(option, target=rows.target)) for note in evaluation.notes]
    own_statement = all(value is None for value in asked.values())
    if as_json:
        no_law = not evaluation.laws and evaluation.no_verdict is None
        facts = evaluation.to_dict() | ({"no_verdict": NO_LAW} if no_law else {}) | promise
        print_json(facts | {"statement": certificate.statement if own_statement else None, "notes": notes})
        return _stop_below(evaluation, least, quiet=True)
    title = f"{counted(evaluation.n, 'row')} of {data}"
    if not own_statement:
        level = f"alpha = {promise['alpha']:g}" + ("" if promise["delta"] is None else f", delta = {promise['delta']:g}")
        title += f", {promise['guarantee']} guarantee, {level}"
    print_evaluation(evaluation, certificate, title=title, by=None if own else by)
    labels, alpha = evaluation.single is not None, promise["alpha"]
    beside = "" if labels else size_in_words(evaluation.mean_size, middle_range(rows.y, alpha=alpha), alpha=alpha)
    say(*filter(None, [point_in_words(rows.y, estimator.predict(rows.X), labels=labels), beside]))
    if own_statement:
        say(certificate.statement)
    print_notes(notes)
    say(evaluation.in_words(promised=1 - promise["alpha"]))
    return _stop_below(evaluation, least, quiet=False)


def _stop_below(evaluation: Any, least: float | None, *, quiet: bool) -> None:
    """Exit with status 1 if the coverage is below the share asked for."""
    if least is not None and evaluation.coverage < least:
        if not quiet:
            say(f"Coverage {evaluation.coverage:.4f} is below --fail-below {least:g}.")
        raise click.exceptions.Exit(1)


def _groups_title(certificate: Any, by: str | None) -> str:
    """What the guarantee says about the groups of a table: those of the thresholds, or of another column."""
    if by is None:
        promise = "nothing is guaranteed" if certificate.guarantee == "none" else "the guarantee holds in each group"
        own = "they overlap" if certificate.groups else "each has its own threshold"
        return f"By group ({own}; {promise})"
    if certificate.guarantee == "none":
        return f"By {by} (nothing is guaranteed)"
    if any(entry.group is not None for entry in certificate.thresholds):
        return f"By {by} (the guarantee is for the groups that have thresholds, and says nothing about these)"
    return f"By {by} (the guarantee is for all rows together and says nothing about a single group)"


def print_evaluation(evaluation: Any, certificate: Any, *, title: str, by: str | None) -> None:
    """Coverage with its range and verdict, sizes, and the table by group: those of the column `by`, or of the thresholds."""
    law = evaluation.consistency
    rows: list[list[Any]] = [
        ["coverage", f"{evaluation.coverage:.4f}"],
        ["95 % interval of coverage", f"{evaluation.coverage_low:.4f} to {evaluation.coverage_high:.4f}"],
    ]
    if law is not None:
        rows.append(["expected coverage", f"{law.expected_coverage:.4f}"])
        rows.append(["expected range, 90 %", f"{law.low:.4f} to {law.high:.4f}"])
        rows.append(["verdict", f"{law.verdict} (p = {law.p_value:.3g})"])
    elif evaluation.no_verdict is not None:
        rows.append(["verdict", f"none: {evaluation.no_verdict}"])
    rows += [[f"{name} size", getattr(evaluation, f"{name.lower()}_size")] for name in ("mean", "median", "P95")]
    rows.append(["empty, full sets", f"{evaluation.empty:.1%}, {evaluation.full:.1%}"])
    if evaluation.single is not None:
        rows.append(["one-label sets", f"{evaluation.single:.1%}"])
    if evaluation.unknown_labels:
        rows.append(["rows with unknown labels", evaluation.unknown_labels])
    if evaluation.infinite:
        rows.append(["infinite sets", f"{evaluation.infinite:.1%}"])
        rows.append(["mean of finite sizes", evaluation.mean_finite_size])
    print_table(["", "value"], rows, title=title)
    if not evaluation.laws and evaluation.no_verdict is None:
        say(NO_LAW)
    _print_slices(evaluation)
    if evaluation.by_group:
        _print_groups(evaluation.by_group, _groups_title(certificate, by))


def _print_slices(evaluation: Any) -> None:
    """Coverage by class (the lowest) and by fifth of the prediction, in the worst slab, and the excess risk."""
    rows = []
    for by in ("class", "fifth"):
        own = [row for row in evaluation.slices if row.by == by]
        for row in sorted(own, key=lambda row: row.coverage_high)[:MOST_CLASSES] if len(own) > MOST_CLASSES else own:
            interval = f"{row.coverage_low:.4f} to {row.coverage_high:.4f}"
            rows.append([f"{by} {row.value}", row.n, f"{row.coverage:.4f}", interval, row.mean_size])
    if rows:
        of = "prediction" if evaluation.single is None else "largest probability"
        named = {"class": "class", "fifth": f"fifth of the {of}"}
        by = " and ".join(named[kind] for kind in dict.fromkeys(row.by for row in evaluation.slices) if kind in named)
        title = f"By {by} (intervals hold for all at once; no promise is about one of them)"
        print_table(["slice", "rows", "coverage", "95 % interval", "mean size"], rows, title=title, spare=["mean size"])
    if (classes := sum(row.by == "class" for row in evaluation.slices)) > MOST_CLASSES:
        say(f"Of {classes} classes the {MOST_CLASSES} that may be covered least are shown: --json lists them all.")
    say(*evaluation.unevenness())


def _print_groups(groups: Any, title: str) -> None:
    """The largest groups, in their order."""
    largest = sorted(groups, key=lambda row: -row.n)[:MOST_GROUPS]
    shown = [row for row in groups if row in largest]
    judged = any(row.consistency is not None for row in shown)
    columns = ["group", "rows", "coverage", "95 % interval", "mean size", "median", "P95"]
    rows = []
    for row in shown:
        interval = f"{row.coverage_low:.4f} to {row.coverage_high:.4f}"
        cells = [str(row.group), row.n, f"{row.coverage:.4f}", interval, row.mean_size, row.median_size, row.p95_size]
        rows.append([*cells, *(_judgement(row.consistency) if judged else [])])
    judgement = ["expected", "verdict"] if judged else []
    print_table([*columns, *judgement], rows, title=title, spare=["median", "P95", "expected"])
    if len(shown) < len(groups):
        say(f"and {len(groups) - len(shown)} more groups, none with more rows: --json lists them all.")


def _judgement(law: Any) -> list[str]:
    if law is None:
        return ["–", "none"]
    return [f"{law.expected_coverage:.4f}", f"{law.verdict.partition(':')[0]} (p = {law.p_value:.3g})"]
