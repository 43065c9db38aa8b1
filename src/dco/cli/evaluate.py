"""``dco evaluate``: coverage and sizes on rows with known targets, and whether they agree with the
guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:  # slow to import
    from dco.certificate.certificate import Certificate
    from dco.evaluation.evaluation import Evaluation
    from dco.evaluation.group_evaluation import GroupEvaluation
    from dco.theory import Consistency

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
    from dco.foundations.comparisons import middle_range, point_in_words, size_in_words

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
            from dco.cli.parts import evaluate_in_parts

            promise = stated(estimator, asked)
            file, work = (
                (model.resolve(), trust),
                {"jobs": jobs, "scheduler": scheduler, "quiet": as_json},
            )
            found = evaluate_in_parts(
                estimator, file, data, how=TargetOptions(**options), asked=asked, **work
            )
            facts = found.to_dict() | promise
        else:
            rows = rows_with_targets(estimator, data, TargetOptions(by=by, **options))
            promise = stated(estimator, asked)
            # the estimator then takes the groups that it calibrated
            own = by is None or by in condition_columns(estimator)
            found = estimator.evaluate(
                rows.X, rows.y, by=None if own else rows.on_page()["by"], **asked
            )
            no_law = {}
            if not found.coverage_tests and found.no_verdict is None:
                no_law = {"no_verdict": NO_LAW}
            statement = (
                estimator.certificate_.statement
                if all(value is None for value in asked.values())
                else None
            )
            facts = found.to_dict() | no_law | promise | {"statement": statement}
    if not in_parts:
        spelled = [note.spelled(partial(option, target=rows.target)) for note in found.notes]
        notes += [text for text in spelled if text not in notes]
    if as_json:
        print_json(facts | {"notes": notes})
    elif in_parts:
        title = f"{counted(found.n, 'row')} of {data}"
        print_evaluation(found, estimator.certificate_, title=title, by=None)
        print_notes(notes)
        say(found.in_words())
    else:
        title, alpha = f"{counted(found.n, 'row')} of {data}", promise["alpha"]
        if statement is None:
            level = f"alpha = {alpha:g}" + (
                "" if promise["delta"] is None else f", delta = {promise['delta']:g}"
            )
            title += f", {promise['guarantee']} guarantee, {level}"
        print_evaluation(found, estimator.certificate_, title=title, by=None if own else by)
        labels = estimator.predictor_.structure.classes is not None
        beside = (
            ""
            if labels
            else size_in_words(found.mean_size, middle_range(rows.y, alpha=alpha), alpha=alpha)
        )
        told = [
            point_in_words(rows.y, estimator.predict(rows.X), are_labels=labels),
            beside,
            statement,
        ]
        say(*filter(None, told))
        print_notes(notes)
        say(found.in_words())
    if least is not None and found.coverage < least:
        if not as_json:
            say(f"Coverage {found.coverage:.4f} is below --fail-below {least:g}.")
        raise click.exceptions.Exit(1)


def print_evaluation(
    evaluation: Evaluation, certificate: Certificate, *, title: str, by: str | None
) -> None:
    """Print coverage and its test, sizes, and tables by slice and by condition."""
    print_table(["", "value"], facts_of_all_rows(evaluation), title=title)
    if not evaluation.coverage_tests and evaluation.no_verdict is None:
        say(NO_LAW)
    print_slices(evaluation)
    if evaluation.by_group:
        print_groups(evaluation.by_group, certificate, by)


def facts_of_all_rows(evaluation: Evaluation) -> list[list[str | float]]:
    """Return what is printed of all rows, each fact with its name."""
    overall = evaluation.overall
    sizes = overall.sizes
    rows: list[list[str | float]] = [
        ["coverage", f"{overall.coverage:.4f}"],
        ["95 % interval of coverage", interval_in_words(overall)],
    ]

    test = overall.consistency
    if evaluation.no_verdict is not None:
        rows.append(["verdict", f"none: {evaluation.no_verdict}"])
    elif test is not None:
        rows.append(["expected coverage", f"{test.expected_coverage:.4f}"])
        rows.append(["expected range, 90 %", f"{test.low:.4f} to {test.high:.4f}"])
        rows.append(["verdict", f"{test.verdict} (p = {test.p_value:.3g})"])

    rows.append(["mean size", sizes.mean])
    if not math.isnan(sizes.median):
        rows.append(["median size", sizes.median])
        rows.append(["P95 size", sizes.p95])
    rows.append(["empty, full sets", f"{sizes.empty:.1%}, {sizes.full:.1%}"])
    if sizes.one_label is not None:
        rows.append(["one-label sets", f"{sizes.one_label:.1%}"])
    if overall.unknown_labels:
        rows.append(["rows with unknown labels", overall.unknown_labels])
    if sizes.infinite:
        rows.append(["infinite sets", f"{sizes.infinite:.1%}"])
        rows.append(["mean of finite sizes", sizes.mean_finite])
    return rows


def interval_in_words(group: GroupEvaluation) -> str:
    """Write the interval for the coverage."""
    return f"{group.coverage_low:.4f} to {group.coverage_high:.4f}"


def print_slices(evaluation: Evaluation) -> None:
    """Print coverage by class (the lowest) and by fifth of the prediction."""
    classes = evaluation.slices_by("class")
    fifths = evaluation.slices_by("fifth")
    lowest = classes
    if len(classes) > MOST_CLASSES:
        lowest = tuple(sorted(classes, key=lambda row: row.coverage_high)[:MOST_CLASSES])

    kinds = ["class"] if classes else []
    if fifths:
        of = "prediction" if evaluation.overall.sizes.one_label is None else "largest probability"
        kinds.append(f"fifth of the {of}")
    if not kinds:
        return

    rows = [
        [
            f"{row.by} {row.group}",
            row.n,
            f"{row.coverage:.4f}",
            interval_in_words(row),
            row.mean_size,
        ]
        for row in (*lowest, *fifths)
    ]
    print_table(
        ["slice", "rows", "coverage", "95 % interval", "mean size"],
        rows,
        title=f"By {' and '.join(kinds)} (intervals hold for all at once; no promise is about one "
        f"of them)",
        spare=["mean size"],
    )
    if len(classes) > MOST_CLASSES:
        say(
            f"Of {len(classes)} classes the {MOST_CLASSES} that may be covered least are shown: "
            f"--json lists them all."
        )


def print_groups(
    groups: Sequence[GroupEvaluation], certificate: Certificate, by: str | None
) -> None:
    """Print the largest groups, in their order, and what the guarantee says about them."""
    largest = sorted(groups, key=lambda row: -row.n)[:MOST_GROUPS]
    shown = [row for row in groups if row in largest]
    columns = ["group", "rows", "coverage", "95 % interval", "mean size"]
    rows = [
        [str(row.group), row.n, f"{row.coverage:.4f}", interval_in_words(row), row.mean_size]
        for row in shown
    ]
    if not any(math.isnan(row.sizes.median) for row in shown):
        columns += ["median", "P95"]
        for row, cells in zip(shown, rows, strict=True):
            cells += [row.sizes.median, row.sizes.p95]

    if any(row.consistency is not None for row in shown):
        columns += ["expected", "verdict"]
        for row, cells in zip(shown, rows, strict=True):
            cells += test_in_words(row.consistency)
    title = f"By {by or 'condition'} ({what_is_promised(certificate, by)})"
    print_table(columns, rows, title=title, spare=["median", "P95", "expected"])
    if len(shown) < len(groups):
        say(
            f"and {len(groups) - len(shown)} more groups, none with more rows: --json lists them "
            f"all."
        )


def test_in_words(test: Consistency | None) -> list[str]:
    """Return the expected coverage of a group, and the result of its test."""
    if test is None:
        return ["–", "none"]
    verdict = test.verdict.partition(":")[0]
    return [f"{test.expected_coverage:.4f}", f"{verdict} (p = {test.p_value:.3g})"]


def what_is_promised(certificate: Certificate, by: str | None) -> str:
    """Say what the guarantee promises about the groups of a table."""
    if certificate.guarantee == "none":
        return "nothing is guaranteed"
    if by is None and certificate.groups:
        return "they overlap; the guarantee holds in each"
    if by is None:
        return "each has its own threshold; the guarantee holds in each"
    if any(entry.group is not None for entry in certificate.thresholds):
        return "the guarantee is for the groups that have thresholds, and says nothing about these"
    return "the guarantee is for all rows together and says nothing about a single group"
