"""The page of a monitor: what it says, its timeline, and its conditions."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np

from dco.evaluation.displays import BLUE, DASHED, SEEN, SMALL, MonitorDisplay
from dco.evaluation.monitor import Monitor
from dco.foundations.display import counted
from dco.report.figures import drawing_style, empty_figure
from dco.report.rendering import render_template, write_text
from dco.report.results import Block, Result

_LEAST = 1e-6  # p-values below are drawn there


def write_timeline(monitor: Monitor, path: Any, *, title: str) -> Path:
    """Write `timeline_html`; an existing file is replaced only when the new one is complete."""
    return write_text(path, timeline_html(monitor, title=title))


def timeline_html(monitor: Monitor, *, title: str) -> str:
    """One self-contained page; a monitor that has seen no rows has no figure."""
    report, figure = monitor.report(), None
    if report.rows:
        drawn = io.BytesIO()
        with drawing_style():
            timeline_figure(monitor).savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
        figure = f"data:image/svg+xml;base64,{base64.b64encode(drawn.getvalue()).decode()}"
    said = tuple(Block(text=line) for line in str(report).splitlines())
    results = [Result("What is known", said), Result("Timeline", (), figure)][: 1 + bool(report.rows)]
    if report.conditions:
        rows = [
            (each.condition, str(each.rows), f"{each.coverage:.4f}", f"{each.expected_coverage:.4f}", f"{each.p_value:.2g}")
            for each in report.conditions
        ]
        text = Block(text="p-values account for the number of groups.")
        results.append(Result("By group", (Block.table(["group", "rows", "coverage", "expected", "p"], rows), text)))
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
    """Coverage over the rows as they arrived; below, the p-values of alarm and drift on a logarithmic scale."""
    with drawing_style():
        figure, (above, below) = empty_figure(width=7.2, height=5.2, panels=2)
        MonitorDisplay.from_monitor(monitor, ax=above)
        above.set_xlabel("")
        seen, rate = monitor.timeline(), monitor.error_rate
        for name, colour, label in (("p_value", SEEN, "coverage (alarm)"), ("drift_p_value", BLUE, "scores (drift)")):
            values = np.maximum(seen[name], _LEAST)
            steps = np.unique([0, *np.flatnonzero(np.diff(values)) + 1, values.size - 1])
            below.step(steps + 1, values[steps], where="post", color=colour, label=label)
        below.axhline(rate, **DASHED, label=f"alarm at p = {rate:g}")
        below.set(yscale="log", ylim=(_LEAST / 2, 2), xlabel="rows", ylabel="p-value at any time")
        below.legend(**SMALL, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return figure
