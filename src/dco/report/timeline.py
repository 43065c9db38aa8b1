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

FIGURE_WIDTH = 7.2  # inches
FIGURE_HEIGHT = 5.2
SMALLEST_P_VALUE = 1e-6  # that is drawn; smaller ones are drawn there
P_VALUE_LIMITS = (SMALLEST_P_VALUE / 2, 2)  # of the axis: a little beyond the smallest and beyond 1


def timeline_html(monitor: Monitor, *, title: str) -> str:
    """Make an HTML page about a monitor, which watches whether the promise of a model still holds.

    The page has what the monitor says, a figure over time (if it has seen rows), and its tables.
    """
    # 1. Collect what is shown.
    report = monitor.report()
    lines = [Paragraph(line) for line in str(report).splitlines()]
    results = [Result("What is known", tuple(lines))]
    if report.rows:
        results.append(Result("Timeline", (), figure=timeline_image(monitor)))
    for table in report_tables(report):
        explanation = Paragraph(f"{table.explanation.capitalize()}.")
        results.append(Result(table.title, (Table.of(table.columns, table.cells), explanation)))

    # 2. Put it into the template, which also serves pages of results: `findings` and `explained`
    #    are about methods that are compared there.
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
    """Draw what a monitor saw over time: coverage above, the p-values of its two tests below.

    One test raises the alarm if coverage is too low, the other says whether scores have changed
    (drift). The x-axis counts the rows as they arrived.
    """
    timeline = monitor.timeline()
    alarm_level = monitor.error_rate
    with drawing_style():
        figure, (coverage_panel, p_value_panel) = empty_figure(
            width=FIGURE_WIDTH, height=FIGURE_HEIGHT, panels=2
        )
        MonitorDisplay.from_monitor(monitor, ax=coverage_panel)
        coverage_panel.set_xlabel("")

        draw_p_values(p_value_panel, timeline["p_value"], ORANGE, "coverage (alarm)")
        draw_p_values(p_value_panel, timeline["drift_p_value"], BLUE, "scores (drift)")
        p_value_panel.axhline(alarm_level, **DASHED, label=f"alarm at p = {alarm_level:g}")
        p_value_panel.set(
            yscale="log", ylim=P_VALUE_LIMITS, xlabel="rows", ylabel="p-value at any time"
        )
        p_value_panel.legend(**LEGEND_ABOVE, ncols=3)
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
