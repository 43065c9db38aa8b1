"""``dco evaluate``: coverage and sizes on rows with known targets, and whether they agree with the guarantee."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dco.cli.options import (
    FILE,
    chosen_alpha,
    decimal_option,
    example,
    model_guarantee_options,
    model_level_options,
    trust_option,
)
from dco.cli.printing import as_json, note, noted_warnings, print_json, print_table, progress, say
from dco.foundations.display import counted

MOST_GROUPS = 30  # that are printed
NO_LAW = (
    "No single coverage law applies (thresholds by group, or no guarantee), so there is no verdict for all rows together."
)


@click.command("evaluate", epilog=example("dco evaluate model.dco new_patients.csv --by sex"))
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
@click.option("--target", metavar="COL", help="The column with the true values.  [default: the one of `dco fit`]")
@model_level_options
@model_guarantee_options
@click.option("--by", metavar="COL", help="A table by the values of this column.")
@decimal_option(default=None)
@click.option("--ignore-new", is_flag=True, help="Leave out columns that the model was not fitted on.")
@trust_option
@as_json
def command(
    model: Path,
    data: Path,
    target: str | None,
    alpha: float | None,
    confidence: float | None,
    guarantee: Any,
    delta: float | None,
    by: str | None,
    decimal: str | None,
    ignore_new: bool,
    trust: tuple[str, ...],
    as_json: bool,
) -> None:
    """Coverage with its expected range, sizes, by group, and whether the coverage agrees with the guarantee.

    The rows of DATA must be new: where some of them trained, tuned or calibrated, there is no verdict.
    """
    from dco.cli.model_files import condition_column, open_model, rows_with_targets, stated, tell_level

    asked: dict[str, Any] = {
        "alpha": chosen_alpha(alpha, confidence, default=None),
        "guarantee": guarantee,
        "delta": delta,
    }
    notes: list[str] = []
    with progress("Evaluating", None, quiet=as_json), noted_warnings(notes):
        estimator = open_model(model, trust)
        rows = rows_with_targets(estimator, data, target=target, by=by, ignore_new=ignore_new, decimal=decimal)
        tell_level(estimator, **asked)
        own = by is None or by == condition_column(estimator)  # the estimator then takes the groups that it calibrated
        evaluation = estimator.evaluate(rows.X, rows.y, by=None if own else rows.by, **asked)
    certificate, promise = estimator.certificate_, stated(estimator, asked)
    own_statement = all(value is None for value in asked.values())
    if as_json:
        told = evaluation.to_dict()
        if evaluation.consistency is None and evaluation.no_verdict is None:
            told["no_verdict"] = NO_LAW
        told |= {**promise, "statement": certificate.statement if own_statement else None}
        print_json(told | {"notes": notes})
        return
    title = f"{counted(evaluation.n, 'row')} of {data}"
    if not own_statement:
        level = f"alpha = {promise['alpha']:g}" + ("" if promise["delta"] is None else f", delta = {promise['delta']:g}")
        title += f", {promise['guarantee']} guarantee, {level}"
    show_evaluation(evaluation, title=title, groups=groups_title(certificate, by=None if own else by))
    if own_statement:
        say(certificate.statement)
    for sentence in notes:
        note(f"Note: {sentence}")


def groups_title(certificate: Any, *, by: str | None) -> str:
    """What the guarantee says about the groups of a table: those of the thresholds, or of another column."""
    if by is None:
        promise = "nothing is guaranteed" if certificate.guarantee == "none" else "the guarantee holds in each group"
        return f"By group (each has a threshold of its own; {promise})"
    if certificate.guarantee == "none":
        return f"By {by} (nothing is guaranteed)"
    if any(entry.group is not None for entry in certificate.thresholds):
        return f"By {by} (the guarantee is for the groups that have thresholds, and promises nothing about these)"
    return f"By {by} (the guarantee is for all rows together and promises nothing about a single group)"


def show_evaluation(evaluation: Any, *, title: str, groups: str) -> None:
    """Coverage with its range and verdict, sizes, and the table by group, under the title `groups`."""
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
    rows += [
        ["mean size", evaluation.mean_size],
        ["median size", evaluation.median_size],
        ["P95 size", evaluation.p95_size],
        ["empty, full sets", f"{evaluation.empty:.1%}, {evaluation.full:.1%}"],
    ]
    if evaluation.single is not None:
        rows.append(["one-label sets", f"{evaluation.single:.1%}"])
    if evaluation.unknown_labels:
        rows.append(["rows with unknown labels", evaluation.unknown_labels])
    if evaluation.infinite:
        rows.append(["infinite sets", f"{evaluation.infinite:.1%}"])
        rows.append(["mean of finite sizes", evaluation.mean_finite_size])
    print_table(["", "value"], rows, title=title)
    if law is None and evaluation.no_verdict is None:
        say(NO_LAW)
    if evaluation.by_group:
        largest = sorted(evaluation.by_group, key=lambda row: -row.n)[:MOST_GROUPS]
        shown = [row for row in evaluation.by_group if row in largest]
        judged = any(row.consistency is not None for row in shown)
        columns = ["group", "rows", "coverage", "95 % interval", "mean size", "median", "P95"]
        print_table(
            [*columns, *(["expected", "verdict"] if judged else [])],
            [
                [
                    str(row.group),
                    row.n,
                    f"{row.coverage:.4f}",
                    f"{row.coverage_low:.4f} to {row.coverage_high:.4f}",
                    row.mean_size,
                    row.median_size,
                    row.p95_size,
                    *(_judgement(row.consistency) if judged else []),
                ]
                for row in shown
            ],
            title=groups,
            spare=["median", "P95", "expected"],
        )
        if len(shown) < len(evaluation.by_group):
            say(f"and {len(evaluation.by_group) - len(shown)} more groups, none with more rows: --json lists them all.")


def _judgement(law: Any) -> list[str]:
    if law is None:
        return ["–", "none"]
    return [f"{law.expected_coverage:.4f}", f"{law.verdict.partition(':')[0]} (p = {law.p_value:.3g})"]
