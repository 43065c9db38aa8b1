"""Print an evaluation as tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dco.cli.printing import print_table, say

if TYPE_CHECKING:  # slow to import
    from dco import Certificate, Evaluation, GroupEvaluation

_MOST_VALUES = 30  # of a column, that are printed
_MOST_CLASSES = 10
NO_LAW = (
    "No law of coverage applies to these rows (groups that overlap, or no guarantee), so there is "
    "no verdict."
)


def print_evaluation(
    evaluation: Evaluation, certificate: Certificate, *, title: str, by: str | None
) -> None:
    """Print coverage and its test, sizes, and tables by slice and by condition."""
    print_table(["", "value"], _facts_of_all_rows(evaluation), title=title)
    if not evaluation.coverage_tests and evaluation.no_verdict is None:
        say(NO_LAW)
    _print_slices(evaluation)
    if evaluation.by_group:
        _print_values(evaluation, certificate, by)


def _facts_of_all_rows(evaluation: Evaluation) -> list[list[str | float]]:
    """Return what is printed of all rows, each fact with its name."""
    overall = evaluation.overall
    sizes = overall.sizes
    facts: list[list[str | float]] = [
        ["coverage", f"{overall.coverage:.4f}"],
        ["95 % interval of coverage", _interval(overall)],
    ]

    test = overall.consistency
    if evaluation.no_verdict is not None:
        facts.append(["verdict", f"none: {evaluation.no_verdict}"])
    elif test is not None:
        facts.append(["expected coverage", f"{test.expected_coverage:.4f}"])
        facts.append(["expected in 9 of 10 cases", f"{test.low:.4f} to {test.high:.4f}"])
        held = "did not hold" if evaluation.too_low else "held"
        facts.append(["verdict", f"the promise {held} (p = {test.p_value:.3g})"])

    facts.append(["mean size", sizes.mean])
    if not math.isnan(sizes.median):
        facts.append(["median size", sizes.median])
        facts.append(["95 % of sizes up to", sizes.p95])
    facts.append(["empty, full sets", f"{sizes.empty:.1%}, {sizes.full:.1%}"])
    if sizes.one_label is not None:
        facts.append(["one-label sets", f"{sizes.one_label:.1%}"])
    if overall.unknown_labels:
        facts.append(["rows with unknown labels", overall.unknown_labels])
    if sizes.infinite:
        facts.append(["infinite sets", f"{sizes.infinite:.1%}"])
        facts.append(["mean of finite sizes", sizes.mean_finite])
    return facts


def _interval(group: GroupEvaluation) -> str:
    return f"{group.coverage_low:.4f} to {group.coverage_high:.4f}"


def _print_slices(evaluation: Evaluation) -> None:
    """Print coverage by class (the lowest) and by fifth of the rows."""
    classes = evaluation.slices_by("class")
    fifths = evaluation.slices_by("fifth")
    lowest = classes
    if len(classes) > _MOST_CLASSES:
        lowest = tuple(sorted(classes, key=lambda row: row.coverage_high)[:_MOST_CLASSES])

    kinds = ["by class"] if classes else []
    if fifths:
        is_number = evaluation.overall.sizes.one_label is None
        order = "prediction" if is_number else "the probability of the most probable label"
        kinds.append(f"by fifth of the rows, sorted by {order}")
    if not kinds:
        return

    rows = [
        [f"{row.by} {row.group}", row.n, f"{row.coverage:.4f}", _interval(row), row.mean_size]
        for row in (*lowest, *fifths)
    ]
    print_table(
        ["slice", "rows", "coverage", "95 % interval", "mean size"],
        rows,
        title=f"Coverage {' and '.join(kinds)} (the intervals hold for all at once; the promise is "
        "about none of them alone)",
        optional=["mean size"],
    )
    if len(classes) > _MOST_CLASSES:
        say(
            f"Of {len(classes)} classes the {_MOST_CLASSES} that may be covered least are shown: "
            "--json lists them all."
        )


def _print_values(evaluation: Evaluation, certificate: Certificate, by: str | None) -> None:
    """Print the values with most rows, in their order, and what the guarantee says about them."""
    groups = evaluation.by_group
    largest = sorted(groups, key=lambda row: -row.n)[:_MOST_VALUES]
    shown = [row for row in groups if row in largest]
    columns = [by or "condition", "rows", "coverage", "95 % interval", "mean size"]
    rows: list[list[Any]] = [
        [str(row.group), row.n, f"{row.coverage:.4f}", _interval(row), row.mean_size]
        for row in shown
    ]
    if not any(math.isnan(row.sizes.median) for row in shown):
        columns += ["median", "95 % up to"]
        for group, cells in zip(shown, rows, strict=True):
            cells += [group.sizes.median, group.sizes.p95]
    if any(row.consistency is not None for row in shown):
        columns += ["expected", "verdict"]
        for group, cells in zip(shown, rows, strict=True):
            cells += _test_cells(group, is_too_low=group.group in evaluation.too_low)

    title = f"By {by or 'condition'} ({_describe_promise(certificate, by)})"
    print_table(columns, rows, title=title, optional=["median", "95 % up to", "expected"])
    if len(shown) < len(groups):
        say(f"and {len(groups) - len(shown)} more, none with more rows: --json lists them all.")


def _test_cells(group: GroupEvaluation, *, is_too_low: bool) -> list[str]:
    """Write the expected coverage of a condition, and the result of its test."""
    test = group.consistency
    if test is None:
        return ["–", "none"]
    verdict = "too low" if is_too_low else "held"
    return [f"{test.expected_coverage:.4f}", f"{verdict} (p = {test.p_value:.3g})"]


def _describe_promise(certificate: Certificate, by: str | None) -> str:
    """Say what the guarantee promises about the values of a table."""
    if certificate.guarantee == "none":
        return "nothing is guaranteed"
    if by is None and certificate.calibration.groups_overlap:
        return "they overlap; the guarantee holds in each"
    if by is None:
        return "each has its own threshold; the guarantee holds in each"
    if any(entry.group is not None for entry in certificate.thresholds):
        return "the guarantee is for the conditions of the model, and says nothing about these"
    return "the guarantee is for all rows together and says nothing about a single value"
