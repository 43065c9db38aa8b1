"""An evaluation in words and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dco.evaluation.group_evaluation import GroupEvaluation, SizeSummary
from dco.foundations.display import counted, first_few, html_table, number, p_in_words

if TYPE_CHECKING:
    from dco.evaluation.evaluation import Evaluation

TABLE_HEADER = ["rows", "coverage", "95 % interval", "mean size", "P95 size"]
COLUMN_FORMATS = [">7", ">8", "<16", ">9", ">9", ">8", "<"]  # of all columns but the first


def verdict_in_words(evaluation: Evaluation) -> str:
    """Say in one sentence whether the promise held.

    "The promise held on these rows: 91.2 % of 500 rows covered, 90 % promised."
    """
    covered = f"{100 * evaluation.coverage:.1f} % of {counted(evaluation.n, 'row')} covered"
    promised = evaluation.promised
    if promised is not None:
        covered += f", {100 * promised:.6g} % promised"

    if evaluation.verdict == "unchecked":
        reason = evaluation.no_verdict or "no law of coverage applies to these rows"
        return f"Nothing was checked, because {reason}: {covered}."
    if evaluation.verdict == "failed":
        return f"The promise did not hold {where_it_failed(evaluation)}: {covered}."

    is_below = promised is not None and evaluation.coverage < promised
    chance = "; chance explains the difference" if is_below else ""
    return f"The promise held {where_it_held(evaluation)}: {covered}{chance}."


def where_it_failed(evaluation: Evaluation) -> str:
    """Name the conditions whose coverage is too low: "in north, south"."""
    if None in evaluation.coverage_tests:
        return "on these rows"
    return f"in {first_few([str(name) for name in evaluation.too_low])}"


def where_it_held(evaluation: Evaluation) -> str:
    """Say of which rows the promise held: "on these rows", or "in each of 3 conditions"."""
    tests = evaluation.coverage_tests
    if None in tests:
        return "on these rows"
    if len(tests) == 1:
        (only_condition,) = tests
        return f"in {only_condition}"
    return f"in each of {len(tests)} conditions"


def advice(evaluation: Evaluation) -> str:
    """Say what to do where the promise did not hold; empty where it did."""
    failed_tests = [evaluation.coverage_tests[name] for name in evaluation.too_low]
    if not failed_tests:
        return ""

    if evaluation.overall.unknown_labels:
        return (
            "No set can hold a label that the fit does not know: fit again, with rows of each "
            "label."
        )
    p_value = min(test.p_value for test in failed_tests)
    return (
        f"These rows are not like the calibration rows ({p_in_words(p_value)}): look for a change "
        f"in time, place or labels, and calibrate again on rows like these, with dco recalibrate."
    )


def as_text(evaluation: Evaluation) -> str:
    """Write the facts line by line, and the tables below them."""
    lines = [f"{name:<17}  {text}" for name, text in facts(evaluation)]
    for table in tables(evaluation):
        lines += ["", *table_lines(table)]
    return "\n".join(lines)


def table_lines(table: Sequence[Sequence[str]]) -> list[str]:
    """Write a table as lines whose cells stand below each other."""
    first_width = max(5, *(len(row[0]) for row in table))
    formats = [f"<{first_width}", *COLUMN_FORMATS]

    lines = []
    for row in table:
        cells = [format(cell, cell_format) for cell, cell_format in zip(row, formats, strict=False)]
        lines.append("  ".join(cells))
    return lines


def as_html(evaluation: Evaluation) -> str:
    """Write the same for a notebook, the verdict first."""
    verdict_first = sorted(facts(evaluation), key=lambda fact: fact[0] != "verdict")
    html_tables = [html_table(["", ""], verdict_first)]
    html_tables += [html_table(table[0], table[1:]) for table in tables(evaluation)]
    return "".join(html_tables)


def facts(evaluation: Evaluation) -> list[tuple[str, str]]:
    """List what is printed about all rows, as (name, text): ("coverage", "0.9120 (...)")."""
    overall = evaluation.overall

    named_facts = [("rows", str(overall.n))]
    if evaluation.left_out:
        named_facts.append(("left out", f"{counted(evaluation.left_out, 'row')} of the fit"))
    named_facts.append(("coverage", f"{overall.coverage:.4f} ({interval_in_words(overall)})"))
    named_facts += size_facts(overall.sizes)
    if overall.unknown_labels:
        rows = counted(overall.unknown_labels, "row")
        named_facts.append(("unknown labels", f"{rows}: misses, as no set can hold them"))

    named_facts += verdict_facts(evaluation)
    for row in worst_slices(evaluation.slices):
        named_facts.append((f"worst {row.by}", worst_in_words(row)))
    for note in evaluation.notes:
        named_facts.append(("note", str(note)))
    return named_facts


def verdict_facts(evaluation: Evaluation) -> list[tuple[str, str]]:
    """List the coverage that was expected of all rows, and the verdict, each fact with its name.

    Where nothing was tested the list is empty, or says why there is no verdict.
    """
    if evaluation.no_verdict is not None:
        return [("verdict", f"none: {evaluation.no_verdict}")]
    test = evaluation.overall.consistency
    if test is None:
        return []

    usual_range = f"90 % of the time between {test.low:.4f} and {test.high:.4f}"
    verdict = f"{evaluation.verdict}: {test.verdict} (p = {test.p_value:.3g})"
    return [
        ("expected coverage", f"{test.expected_coverage:.4f} ({usual_range})"),
        ("verdict", verdict),
    ]


def size_facts(sizes: SizeSummary) -> list[tuple[str, str]]:
    """List what is printed about the sizes, each fact with its name: ("mean size", "2.31")."""
    mean = number(sizes.mean)
    if sizes.infinite > 0:
        others = f"{number(sizes.mean_finite)} over the others"
        if math.isnan(sizes.mean_finite):
            others = "no set is finite"
        mean += f" ({sizes.infinite:.1%} of the sets are infinite; {others})"

    named_facts = [("mean size", mean)]
    if not math.isnan(sizes.median):
        named_facts.append(("median size", number(sizes.median)))
    if not math.isnan(sizes.p95):
        named_facts.append(("P95 size", number(sizes.p95)))
    named_facts.append(("empty / full sets", f"{sizes.empty:.1%} / {sizes.full:.1%}"))
    if sizes.one_label is not None:
        named_facts.append(("one-label sets", f"{sizes.one_label:.1%}"))
    return named_facts


def worst_slices(slices: Sequence[GroupEvaluation]) -> list[GroupEvaluation]:
    """Return the slice of each kind whose coverage is most surely low."""
    worst: dict[str, GroupEvaluation] = {}
    for row in slices:
        if row.by not in worst or row.coverage_high < worst[row.by].coverage_high:
            worst[row.by] = row
    return list(worst.values())


def worst_in_words(row: GroupEvaluation) -> str:
    """Name one slice with its coverage."""
    rows = counted(row.n, "row")
    return f"{row.coverage:.4f} ({interval_in_words(row)}): {row.group} ({rows})"


def interval_in_words(row: GroupEvaluation) -> str:
    """Write the interval for the coverage."""
    return f"95 % interval {row.coverage_low:.4f} to {row.coverage_high:.4f}"


def tables(evaluation: Evaluation) -> list[list[list[str]]]:
    """Return a list with the table by slice or by condition; empty if there is neither."""
    return [group_table(evaluation.by_group)] if evaluation.by_group else []


def group_table(groups: Sequence[GroupEvaluation]) -> list[list[str]]:
    """Write a table with a header and a row for each group.

    The last two columns test the coverage, where one of the groups has such a test.
    """
    header = [groups[0].by, *TABLE_HEADER]
    if any(group.consistency is not None for group in groups):
        header += ["expected", "p"]
    return [header, *(group_cells(group) for group in groups)]


def group_cells(group: GroupEvaluation) -> list[str]:
    """Write one group as a row of the table: its name, its number of rows, its coverage, ..."""
    cells = [
        str(group.group),
        str(group.n),
        f"{group.coverage:.4f}",
        f"{group.coverage_low:.4f} to {group.coverage_high:.4f}",
        number(group.mean_size),
        "–" if math.isnan(group.sizes.p95) else number(group.sizes.p95),
    ]
    test = group.consistency
    if test is not None:
        cells += [f"{test.expected_coverage:.4f}", f"{test.p_value:.3g}"]
    return cells
