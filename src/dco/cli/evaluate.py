"""``dco evaluate``: coverage and sizes on rows with known targets, and whether they agree with the
guarantee.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from dco.cli.options import (
    FILE,
    LEVEL,
    chosen_alpha,
    example,
    known_options,
    model_options,
    option,
    work_options,
)
from dco.cli.printing import (
    as_json,
    collected_notes,
    print_json,
    print_notes,
    print_table,
    progress,
    say,
)
from dco.foundations.display import counted

MOST_GROUPS = 30  # that are printed
MOST_CLASSES = 10
NO_LAW = (
    "No coverage law applies to these rows (groups that overlap, or no guarantee), so there "
    "is no verdict."
)


@click.command("evaluate", epilog=example("dco evaluate model.dco new_patients.csv --by sex"))
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
@model_options
@known_options
@click.option(
    "--in-parts",
    is_flag=True,
    help="Read DATA in batches, for tables larger than memory: no slices, no --by.",
)
@work_options
@click.option(
    "--fail-below",
    type=LEVEL,
    help="Exit with status 1 if the coverage is below this share, for pipelines.",
)
@as_json
def command(
    model: Path,
    data: Path,
    by: str | None,
    trust: tuple[str, ...],
    in_parts: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure coverage and set sizes on rows with known targets, and say whether the promise held.

    The rows of DATA must be new: if some of them trained, tuned or calibrated the model, there is
    no verdict.
    """
    from dco.cli.model_files import condition_columns, open_model, stated
    from dco.cli.tables.fitted import TargetOptions, rows_with_targets
    from dco.evaluation.sizes import middle_range, point_in_words, size_in_words

    found: Any
    least, jobs, scheduler = (options.pop(name) for name in ("fail_below", "jobs", "scheduler"))
    asked = {"alpha": chosen_alpha(options.pop("alpha"), options.pop("confidence"), default=None)}
    asked |= {name: options.pop(name) for name in ("guarantee", "delta")}
    if in_parts and by is not None:
        raise click.UsageError(
            "--in-parts counts all rows and the groups of the model: leave --by out."
        )
    if not in_parts and (jobs != 1 or scheduler is not None):
        raise click.UsageError("--jobs and --scheduler read the files of a folder: add --in-parts.")
    with progress("Evaluating", None, quiet=as_json or in_parts), collected_notes() as notes:
        estimator = open_model(model, trust)
        if in_parts:
            from dco.cli.parts import evaluate_in_parts, print_parts

            stated(estimator, asked)
            file, work = (
                (model.resolve(), trust),
                {"jobs": jobs, "scheduler": scheduler, "quiet": as_json},
            )
            found = evaluate_in_parts(
                estimator, file, data, how=TargetOptions(**options), asked=asked, **work
            )
            facts = asdict(found)
        else:
            rows = rows_with_targets(estimator, data, TargetOptions(by=by, **options))
            promise = stated(estimator, asked)
            # the estimator then takes the groups that it calibrated
            own = by is None or by in condition_columns(estimator)
            found = estimator.evaluate(rows.X, rows.y, by=None if own else rows.by, **asked)
            no_law = {} if found.laws or found.no_verdict is not None else {"no_verdict": NO_LAW}
            statement = (
                estimator.certificate_.statement
                if all(value is None for value in asked.values())
                else None
            )
            facts = found.to_dict() | no_law | promise | {"statement": statement}
    if not in_parts:
        notes += [note.spelled(partial(option, target=rows.target)) for note in found.notes]
    if as_json:
        print_json(facts | {"notes": notes})
    elif in_parts:
        print_parts(found, data)
        print_notes(notes)
    else:
        title, alpha = f"{counted(found.n, 'row')} of {data}", promise["alpha"]
        if statement is None:
            level = f"alpha = {alpha:g}" + (
                "" if promise["delta"] is None else f", delta = {promise['delta']:g}"
            )
            title += f", {promise['guarantee']} guarantee, {level}"
        print_evaluation(found, estimator.certificate_, title=title, by=None if own else by)
        labels = found.single is not None
        beside = (
            ""
            if labels
            else size_in_words(found.mean_size, middle_range(rows.y, alpha=alpha), alpha=alpha)
        )
        told = [point_in_words(rows.y, estimator.predict(rows.X), labels=labels), beside, statement]
        say(*filter(None, told))
        print_notes(notes)
        say(found.in_words())
    if least is not None and found.coverage < least:
        if not as_json:
            say(f"Coverage {found.coverage:.4f} is below --fail-below {least:g}.")
        raise click.exceptions.Exit(1)


def print_evaluation(evaluation: Any, certificate: Any, *, title: str, by: str | None) -> None:
    """Coverage with its range and verdict, sizes, and the table by group: those of the column `by`,
    or of the thresholds.
    """
    law = evaluation.consistency
    rows: list[list[Any]] = [
        ["coverage", f"{evaluation.coverage:.4f}"],
        ["95 % interval of coverage", _interval(evaluation)],
    ]
    if law is not None:
        rows.append(["expected coverage", f"{law.expected_coverage:.4f}"])
        rows.append(["expected range, 90 %", f"{law.low:.4f} to {law.high:.4f}"])
        rows.append(["verdict", f"{law.verdict} (p = {law.p_value:.3g})"])
    elif evaluation.no_verdict is not None:
        rows.append(["verdict", f"none: {evaluation.no_verdict}"])
    rows += [
        [f"{name} size", getattr(evaluation, f"{name.lower()}_size")]
        for name in ("mean", "median", "P95")
    ]
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
        _print_groups(evaluation.by_group, certificate, by)


def _interval(row: Any) -> str:
    return f"{row.coverage_low:.4f} to {row.coverage_high:.4f}"


def _print_slices(evaluation: Any) -> None:
    """Print coverage by class (the lowest) and by fifth of the prediction."""
    of = "prediction" if evaluation.single is None else "largest probability"
    classes, fifths = (
        [row for row in evaluation.slices if row.by == by] for by in ("class", "fifth")
    )
    lowest = classes
    if len(classes) > MOST_CLASSES:
        lowest = sorted(classes, key=lambda row: row.coverage_high)[:MOST_CLASSES]
    if shown := [*lowest, *fifths]:
        by = " and ".join(
            [*(["class"] if classes else []), *([f"fifth of the {of}"] if fifths else [])]
        )
        title = f"By {by} (intervals hold for all at once; no promise is about one of them)"
        rows = [
            [f"{row.by} {row.value}", row.n, f"{row.coverage:.4f}", _interval(row), row.mean_size]
            for row in shown
        ]
        print_table(
            ["slice", "rows", "coverage", "95 % interval", "mean size"],
            rows,
            title=title,
            spare=["mean size"],
        )
    if len(classes) > MOST_CLASSES:
        say(
            f"Of {len(classes)} classes the {MOST_CLASSES} that may be covered least are shown: "
            f"--json lists them all."
        )


def _print_groups(groups: Any, certificate: Any, by: str | None) -> None:
    """The largest groups, in their order, and what the guarantee says about them."""
    none = certificate.guarantee == "none"
    if by is None:
        own = "they overlap" if certificate.groups else "each has its own threshold"
        title = (
            f"By group ({own}; "
            f"{'nothing is guaranteed' if none else 'the guarantee holds in each group'})"
        )
    elif none:
        title = f"By {by} (nothing is guaranteed)"
    elif any(entry.group is not None for entry in certificate.thresholds):
        title = (
            f"By {by} (the guarantee is for the groups that have thresholds, and says "
            f"nothing about these)"
        )
    else:
        title = (
            f"By {by} (the guarantee is for all rows together and says nothing about a "
            f"single group)"
        )
    largest = sorted(groups, key=lambda row: -row.n)[:MOST_GROUPS]
    shown = [row for row in groups if row in largest]
    columns, rows = ["group", "rows", "coverage", "95 % interval", "mean size", "median", "P95"], []
    for row in shown:
        sizes = [row.mean_size, row.median_size, row.p95_size]
        rows.append([str(row.group), row.n, f"{row.coverage:.4f}", _interval(row), *sizes])
    if any(row.consistency is not None for row in shown):
        columns += ["expected", "verdict"]
        for row, cells in zip(shown, rows, strict=True):
            law = row.consistency
            judged = law and [
                f"{law.expected_coverage:.4f}",
                f"{law.verdict.partition(':')[0]} (p = {law.p_value:.3g})",
            ]
            cells += judged or ["–", "none"]
    print_table(columns, rows, title=title, spare=["median", "P95", "expected"])
    if len(shown) < len(groups):
        say(
            f"and {len(groups) - len(shown)} more groups, none with more rows: --json lists them "
            f"all."
        )
