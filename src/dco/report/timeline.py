"""The page of a monitor: what it says, its timeline, and its conditions."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np

from dco.foundations.display import counted
from dco.foundations.drawing import BLUE, DASHED, LEGEND, ORANGE
from dco.report.figures import drawing_style, empty_figure
from dco.report.rendering import render_template
from dco.report.results import Block, Result
from dco.service.displays import MonitorDisplay
from dco.service.monitor import Monitor
from dco.service.monitor_report import report_tables

_LEAST = 1e-6  # p-values below are drawn there


def timeline_html(monitor: Monitor, *, title: str) -> str:
    """Make one self-contained page; without rows it has no figure."""
    report, drawn = monitor.report(), io.BytesIO()
    results = [
        Result("What is known", tuple(Block(text=line) for line in str(report).splitlines()))
    ]
    if report.rows:
        with drawing_style():
            timeline_figure(monitor).savefig(
                drawn, format="svg", metadata={"Date": None, "Creator": None}
            )
        figure = f"data:image/svg+xml;base64,{base64.b64encode(drawn.getvalue()).decode()}"
        results.append(Result("Timeline", (), figure))
    for table in report_tables(report):
        shown = Block.table(table.columns, table.cells)
        explained = Block(text=f"{table.explanation.capitalize()}.")
        results.append(Result(table.title, (shown, explained)))
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


def timeline_figure(monitor: Monitor) -> Any:
    """Coverage over the rows as they arrived; below, the p-values of alarm and drift on a
    logarithmic scale.
    """
    with drawing_style():
        figure, (above, below) = empty_figure(width=7.2, height=5.2, panels=2)
        MonitorDisplay.from_monitor(monitor, ax=above)
        above.set_xlabel("")
        seen, rate = monitor.timeline(), monitor.error_rate
        for name, colour, label in (
            ("p_value", ORANGE, "coverage (alarm)"),
            ("drift_p_value", BLUE, "scores (drift)"),
        ):
            values = np.maximum(seen[name], _LEAST)
            steps = np.unique([0, *np.flatnonzero(np.diff(values)) + 1, values.size - 1])
            below.step(steps + 1, values[steps], where="post", color=colour, label=label)
        below.axhline(rate, **DASHED, label=f"alarm at p = {rate:g}")
        below.set(yscale="log", ylim=(_LEAST / 2, 2), xlabel="rows", ylabel="p-value at any time")
        below.legend(**LEGEND, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return figure
