"""The page of a monitor: what it says, its timeline, and its conditions."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from dco import Monitor, MonitorDisplay
from dco.foundations.display import counted
from dco.foundations.drawing import (
    BLUE,
    DASHED,
    LEGEND_ABOVE,
    ORANGE,
    drawing_style,
    empty_figure,
)
from dco.report.rendering import data_address, render_template
from dco.report.results import Paragraph, Result, Table
from dco.service import report_tables

SMALLEST_P_VALUE = 1e-6  # that is drawn; smaller ones are drawn there


def timeline_html(monitor: Monitor, *, title: str) -> str:
    """Make one self-contained page about a monitor; without rows it has no figure."""
    report = monitor.report()
    lines = [Paragraph(line) for line in str(report).splitlines()]
    results = [Result("What is known", tuple(lines))]
    if report.rows:
        results.append(Result("Timeline", (), figure=timeline_image(monitor)))
    for table in report_tables(report):
        explanation = Paragraph(f"{table.explanation.capitalize()}.")
        results.append(Result(table.title, (Table.of(table.columns, table.cells), explanation)))

    return render_template(
        "results.html",
        images=True,
        kicker=f"Watching a certificate: {counted(report.rows, 'row')} so far",
        title=title,
        findings=[],
        results=results,
        has_tables=False,
        explained={},
    )


def timeline_image(monitor: Monitor) -> str:
    """Draw the timeline as an image that a page can hold."""
    content = io.BytesIO()
    with drawing_style():
        figure = timeline_figure(monitor)
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    return data_address("image/svg+xml", content.getvalue())


def timeline_figure(monitor: Monitor) -> Any:
    """Draw coverage over the rows as they arrived, and below it the p-values of alarm and drift."""
    with drawing_style():
        figure, (above, below) = empty_figure(width=7.2, height=5.2, panels=2)
        MonitorDisplay.from_monitor(monitor, ax=above)
        above.set_xlabel("")

        timeline = monitor.timeline()
        draw_p_values(below, timeline["p_value"], ORANGE, "coverage (alarm)")
        draw_p_values(below, timeline["drift_p_value"], BLUE, "scores (drift)")
        alarm_at = monitor.error_rate
        below.axhline(alarm_at, **DASHED, label=f"alarm at p = {alarm_at:g}")
        below.set(
            yscale="log",
            ylim=(SMALLEST_P_VALUE / 2, 2),
            xlabel="rows",
            ylabel="p-value at any time",
        )
        below.legend(**LEGEND_ABOVE, ncols=3)
    return figure


def draw_p_values(panel: Any, p_values: Any, colour: str, label: str) -> None:
    """Draw the p-value after each row as a line of steps.

    A long line of rows has few different p-values: only rows where it changes are drawn.
    """
    values = np.maximum(p_values, SMALLEST_P_VALUE)
    changes = np.flatnonzero(np.diff(values)) + 1
    first = 0
    last = values.size - 1
    rows = np.unique([first, *changes, last])
    panel.step(rows + 1, values[rows], where="post", color=colour, label=label)
