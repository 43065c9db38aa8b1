"""What a monitor knows after some rows: the record, and how it is told to people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dco.foundations.display import ShownAsPrinted, counted

_SLICES_SHOWN = 30  # in a table


@dataclass(frozen=True)
class WatchedCondition:
    """One condition: its rows, the share covered, and its own p-value.

    The p-value is corrected for the number of conditions.
    """

    condition: str
    rows: int
    coverage: float
    expected_coverage: float
    p_value: float


@dataclass(frozen=True)
class WatchedSlice:
    """One slice: its rows, the share covered, and a p-value against a change of its scores.

    The change is one since the slice's own first row. The p-value of the j-th slice to appear is
    multiplied by j (j + 1), so that any of them, however many come, is ever at most d with
    probability at most d.
    """

    slice: str
    rows: int
    coverage: float
    drift_p_value: float


@dataclass(frozen=True)
class ReportTable:
    """A table of a report: its title, what its p-values mean, and the cells as texts."""

    title: str
    explanation: str
    columns: list[str]
    cells: list[list[str]]


@dataclass(frozen=True)
class MonitorReport(ShownAsPrinted):
    """What a monitor knows after `rows` rows.

    ``alarm``: rows are covered less often than the law of the calibration allows. If new rows are
    exchangeable with the calibration rows, the probability that there is ever an alarm is at most
    `error_rate`; an alarm stays. ``p_value`` is valid at any time. ``change`` is quicker for
    changes that come late: without a change it turns true after `run_length` rows on average, or
    more. ``drift`` looks at the places of the scores instead of coverage, and is ever true with
    probability at most `error_rate` without a change; ``drift_p_value`` goes with it.

    ``coverage`` is the share of covered rows (NaN without rows), ``expected_coverage`` the mean of
    its law, k / (n + 1). ``interval`` holds the coverage at all times together with probability at
    least 1 - `error_rate`, if rows are independent and their coverage does not change. ``reported``
    is the row, counted from 1, after which there was an alarm or a change for the first time, and
    ``since`` the row at which it probably began, an estimate without a guarantee.
    ``coverage_since`` is the share covered from there on; it is too low on average, since the start
    was picked by it. ``conditions`` describes each condition with a threshold of its own,
    ``slices`` each slice.
    """

    alarm: bool
    p_value: float
    change: bool
    drift: bool
    drift_p_value: float
    rows: int
    coverage: float
    interval: tuple[float, float]
    reported: int | None
    since: int | None
    coverage_since: float | None
    expected_coverage: float
    error_rate: float
    run_length: int
    guarantee: str
    conditions: tuple[WatchedCondition, ...] = ()
    slices: tuple[WatchedSlice, ...] = ()

    def __str__(self) -> str:
        return "\n".join(report_sentences(self))


def report_sentences(report: MonitorReport) -> list[str]:
    """Tell what a monitor knows, one sentence for each finding."""
    if report.rows == 0:
        return ["No rows yet: nothing is known."]

    sentences = [_alarm_sentence(report), _coverage_sentence(report)]
    if report.change and not report.alarm:
        sentences.append(
            f"A change is likely: without one, this is first said after {report.run_length:,} rows "
            "on average."
        )
    if report.since is not None:
        sentences.append(
            f"The change probably began near row {report.since} (reported after row "
            f"{report.reported}); {report.coverage_since:.1%} have been covered since."
        )
    if report.drift:
        sentences.append(
            "Scores have drifted from those of the calibration rows "
            f"(p = {report.drift_p_value:.2g})."
        )

    for condition in report.conditions:
        if condition.p_value <= report.error_rate:
            sentences.append(_condition_sentence(condition))
    for watched in report.slices:
        if watched.drift_p_value <= report.error_rate:
            sentences.append(_slice_sentence(watched))

    if report.alarm:
        sentences.append(
            "If rows were like the calibration rows, there would ever be an alarm with probability "
            f"at most {100 * report.error_rate:g} %."
        )
    return sentences


def _condition_sentence(condition: WatchedCondition) -> str:
    rows = counted(condition.rows, "row")
    return (
        f"{condition.condition}: {condition.coverage:.1%} of {rows} covered "
        f"(p = {condition.p_value:.2g})."
    )


def _slice_sentence(watched: WatchedSlice) -> str:
    rows = counted(watched.rows, "row")
    return (
        f"{watched.slice}: its scores have changed since its first row "
        f"(p = {watched.drift_p_value:.2g}); {watched.coverage:.1%} of {rows} covered."
    )


def _alarm_sentence(report: MonitorReport) -> str:
    if report.alarm:
        return (
            "Alarm: new rows are covered less often than the calibration rows promise "
            f"(p = {report.p_value:.2g})."
        )
    return f"No alarm: p = {report.p_value:.2g}, and an alarm needs p <= {report.error_rate:g}."


def _coverage_sentence(report: MonitorReport) -> str:
    low, high = report.interval
    return (
        f"{counted(report.rows, 'row')} watched, {report.coverage:.1%} covered (interval for all "
        f"times {low:.1%} to {high:.1%}); at least {report.expected_coverage:.1%} is expected from "
        "the calibration."
    )


def report_tables(report: MonitorReport) -> list[ReportTable]:
    """Make the tables of a report: its conditions, and the slices that have changed most."""
    tables = []
    if report.conditions:
        tables.append(_table_of_conditions(report.conditions))
    if report.slices:
        tables.append(_table_of_slices(report.slices))
    return tables


def _table_of_conditions(conditions: Sequence[WatchedCondition]) -> ReportTable:
    """Write a row for each condition."""
    cells = [
        [
            watched.condition,
            str(watched.rows),
            f"{watched.coverage:.4f}",
            f"{watched.expected_coverage:.4f}",
            f"{watched.p_value:.2g}",
        ]
        for watched in conditions
    ]
    return ReportTable(
        title="By group",
        explanation="p-values account for the number of groups",
        columns=["group", "rows", "coverage", "expected", "p-value"],
        cells=cells,
    )


def _table_of_slices(slices: Sequence[WatchedSlice]) -> ReportTable:
    """Write a row for each slice, those whose scores have changed most first."""
    most_changed = sorted(slices, key=lambda watched: watched.drift_p_value)[:_SLICES_SHOWN]
    cells = [
        [
            watched.slice,
            str(watched.rows),
            f"{watched.coverage:.4f}",
            f"{watched.drift_p_value:.2g}",
        ]
        for watched in most_changed
    ]
    return ReportTable(
        title="By slice",
        explanation=(
            "p-values against a change of scores since the slice's first row account for the "
            "number of slices"
        ),
        columns=["slice", "rows", "coverage", "p-value"],
        cells=cells,
    )
