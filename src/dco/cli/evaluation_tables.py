"""Print an evaluation as tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dco.cli.printing import print_table, say

if TYPE_CHECKING:  # slow to import
    from dco import Certificate, Evaluation, GroupEvaluation

_MAX_PARTS = 30  # conditions, or values of a column, that are printed
_MAX_CLASSES = 10  # that are printed
NO_LAW = (
    "No law of coverage applies to these rows (conditions that overlap, or no guarantee), so there "
    "is no verdict."
)


def print_evaluation(
    evaluation: Evaluation, certificate: Certificate, *, title: str, by: str | None
) -> None:
    """Print an evaluation: all rows, then slices, then one line for each part of the rows.

    The parts are the values of the column `by`, which --by names. Without it they are the
    conditions of the model (groups of rows with thresholds of their own), if it has any.
    """
    print_table(["", "value"], _facts_of_all_rows(evaluation), title=title)
    if not evaluation.coverage_tests and evaluation.no_verdict is None:
        say(NO_LAW)
    _print_slices(evaluation)
    if evaluation.by_group:
        _print_parts(evaluation, certificate, by)


def _facts_of_all_rows(evaluation: Evaluation) -> list[list[str | float]]:
    """List what is printed about all rows together: ["coverage", "0.9132"] and so on."""
    overall = evaluation.overall
    sizes = overall.sizes
    test = overall.consistency

    # 1. Coverage, and whether it is what was promised; too_low lists what was covered too rarely.
    facts: list[list[str | float]] = [
        ["coverage", f"{overall.coverage:.4f}"],
        ["95 % interval of coverage", _interval(overall)],
    ]
    if evaluation.no_verdict is not None:
        facts.append(["verdict", f"none: {evaluation.no_verdict}"])
    elif test is not None:
        facts.append(["expected coverage", f"{test.expected_coverage:.4f}"])
        facts.append(["expected in 9 of 10 cases", f"{test.low:.4f} to {test.high:.4f}"])
        outcome = "did not hold" if evaluation.too_low else "held"
        facts.append(["verdict", f"the promise {outcome} (p = {test.p_value:.3g})"])

    # 2. Sizes of the sets. There are no quantiles where the table was read in batches.
    facts.append(["mean size", sizes.mean])
    if not math.isnan(sizes.median):
        facts.append(["median size", sizes.median])
        facts.append(["95 % of sizes up to", sizes.p95])
    facts.append(["empty, full sets", f"{sizes.empty:.1%}, {sizes.full:.1%}"])

    # 3. What only some rows have.
    if sizes.one_label is not None:
        facts.append(["one-label sets", f"{sizes.one_label:.1%}"])
    if overall.unknown_labels:
        facts.append(["rows with unknown labels", overall.unknown_labels])
    if sizes.infinite:
        facts.append(["infinite sets", f"{sizes.infinite:.1%}"])
        facts.append(["mean of finite sizes", sizes.mean_finite])
    return facts


def _interval(part: GroupEvaluation) -> str:
    return f"{part.coverage_low:.4f} to {part.coverage_high:.4f}"


def _print_slices(evaluation: Evaluation) -> None:
    """Print a table of coverage by class and by fifth of the rows.

    Fifths are five equal parts of the rows, from the smallest prediction to the largest. Of many
    classes, those are printed whose coverage may be the lowest.
    """
    classes = evaluation.slices_by("class")
    fifths = evaluation.slices_by("fifth")
    if not classes and not fifths:
        return

    # 1. Say in the title which slices there are.
    kinds = ["by class"] if classes else []
    if fifths:
        has_labels = evaluation.overall.sizes.one_label is not None
        sorted_by = "the probability of the most probable label" if has_labels else "prediction"
        kinds.append(f"by fifth of the rows, sorted by {sorted_by}")
    title = (
        f"Coverage {' and '.join(kinds)} (the intervals hold for all at once; the promise is about "
        "none of them alone)"
    )

    # 2. Print a row for each slice.
    classes_to_print = classes
    if len(classes) > _MAX_CLASSES:
        lowest_first = sorted(classes, key=lambda row: row.coverage_high)
        classes_to_print = tuple(lowest_first[:_MAX_CLASSES])
    rows = [
        [f"{row.by} {row.group}", row.n, f"{row.coverage:.4f}", _interval(row), row.mean_size]
        for row in (*classes_to_print, *fifths)
    ]
    columns = ["slice", "rows", "coverage", "95 % interval", "mean size"]
    print_table(columns, rows, title=title, optional=["mean size"])
    if len(classes) > _MAX_CLASSES:
        say(
            f"Of {len(classes)} classes the {_MAX_CLASSES} that may be covered least are shown: "
            "--json lists them all."
        )


def _print_parts(evaluation: Evaluation, certificate: Certificate, by: str | None) -> None:
    """Print coverage and set sizes of each part of the rows: a condition, or a value of a column.

    `by` names the column; without it, the parts are the conditions of the model. Of many parts,
    those with most rows are printed. Columns whose numbers are not known are left out.
    """
    all_parts = evaluation.by_group
    parts = _largest_parts(all_parts)

    # 1. Coverage and mean size.
    columns = [by or "condition", "rows", "coverage", "95 % interval", "mean size"]
    lines: list[list[Any]] = [
        [str(part.group), part.n, f"{part.coverage:.4f}", _interval(part), part.mean_size]
        for part in parts
    ]

    # 2. Quantiles of sizes, which are not known where the table was read in batches.
    if not any(math.isnan(part.sizes.median) for part in parts):
        columns += ["median", "95 % up to"]
        for part, cells in zip(parts, lines, strict=True):
            cells += [part.sizes.median, part.sizes.p95]

    # 3. A test whether the promise held, which only conditions have.
    if any(part.consistency is not None for part in parts):
        columns += ["expected", "verdict"]
        for part, cells in zip(parts, lines, strict=True):
            cells += _test_cells(part, is_too_low=part.group in evaluation.too_low)

    title = f"By {by or 'condition'} ({_describe_promise(certificate, by)})"
    print_table(columns, lines, title=title, optional=["median", "95 % up to", "expected"])
    n_left_out = len(all_parts) - len(parts)
    if n_left_out:
        say(f"and {n_left_out} more, none with more rows: --json lists them all.")


def _largest_parts(parts: Sequence[GroupEvaluation]) -> list[GroupEvaluation]:
    """Select the parts with most rows, as many as are printed; they keep their order."""
    largest_first = sorted(range(len(parts)), key=lambda position: -parts[position].n)
    return [parts[position] for position in sorted(largest_first[:_MAX_PARTS])]


def _test_cells(condition: GroupEvaluation, *, is_too_low: bool) -> list[str]:
    """Write the expected coverage of a condition, and the result of its test."""
    test = condition.consistency
    if test is None:
        return ["–", "none"]
    outcome = "too low" if is_too_low else "held"
    return [f"{test.expected_coverage:.4f}", f"{outcome} (p = {test.p_value:.3g})"]


def _describe_promise(certificate: Certificate, by: str | None) -> str:
    """Say what the guarantee promises about the values of the column `by`, one by one.

    Without `by`, say it about the conditions of the model: groups of rows with thresholds of their
    own.
    """
    if certificate.guarantee == "none":
        return "nothing is guaranteed"
    if by is None and certificate.calibration.groups_overlap:
        return "they overlap; the guarantee holds in each"
    if by is None:
        return "each has its own threshold; the guarantee holds in each"
    if any(threshold.group is not None for threshold in certificate.thresholds):
        return "the guarantee is for the conditions of the model, and says nothing about these"
    return "the guarantee is for all rows together and says nothing about a single value"
