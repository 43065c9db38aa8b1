"""The plots of the page as matplotlib figures, for papers and slides: the same numbers, drawn the
same way every time.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from dco.evaluation.displays import CoverageDisplay, CoverageInGroup, SizeDisplay
from dco.foundations.display import number
from dco.foundations.drawing import BLUE, DASHED, INK, LEGEND, PALE, plain_name
from dco.foundations.extras import require
from dco.foundations.files import written_beside
from dco.report.numbers import ReportNumbers
from dco.report.words import size_name

FORMATS = ("svg", "png")
_NO_SIZES = "Sizes need rows: make the numbers with X and y."
_STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9a9a94",
    "axes.labelcolor": INK,
    # the names inside an SVG are drawn from this, so that the same figure is the same file
    "svg.hashsalt": "dco",
    "svg.fonttype": "path",
}


def score_distribution(numbers: ReportNumbers) -> Any:
    """Calibration scores with the threshold of the certified level; with conditions, one panel for
    each.
    """
    value_of = {entry.group: entry for entry in numbers.own.thresholds}
    count = len(numbers.score_histograms)
    with drawing_style():
        figure, panels = empty_figure(height=2.6 if count == 1 else 0.9 * count + 0.6, panels=count)
        for panel, histogram in zip(panels, numbers.score_histograms, strict=True):
            panel.stairs(histogram.counts, numbers.score_edges, fill=True, color=PALE)
            entry, value = value_of[histogram.condition], "infinite"
            if math.isfinite(entry.value):
                panel.axvline(entry.value, color=INK)
                value = number(entry.value)
            rank = "" if entry.rank is None else f", rank {entry.rank} of {entry.n}"
            name = "" if histogram.condition is None else f"{plain_name(histogram.condition)}: "
            panel.set_title(f"{name}threshold {value}{rank}", loc="left", fontsize=9)
            panel.set_ylabel("rows")
        panels[-1].set_xlabel("score of the true value")
    return figure


def coverage_law(numbers: ReportNumbers) -> Any:
    """The law of coverage at the certified level and the coverage seen; with conditions, the 90 %
    range of each.
    """
    own, entry, seen = numbers.own, numbers.own.threshold, numbers.own.evaluation
    shown: dict[str, Any] = {} if seen is None else {"coverage": seen.coverage, "n": seen.n}
    if entry is None:
        rows = [
            CoverageInGroup(
                str(at.threshold.group),
                at.range,
                None if at.evaluation is None else at.evaluation.coverage,
            )
            for at in own.conditions
        ]
        shown, height = shown | {"groups": rows}, 0.3 * len(rows) + 1.2
    else:
        shown, height = shown | {"rank": entry.rank, "n_cal": entry.n}, 2.6
    with drawing_style():
        figure, (panel,) = empty_figure(height=height)
        CoverageDisplay(promised=1 - own.alpha, **shown).plot(panel)
    return figure


def size_distribution(numbers: ReportNumbers) -> Any:
    """Sizes of the sets of the rows given, at the certified level; the last bar holds all that are
    larger.
    """
    seen = numbers.own.evaluation
    if numbers.rows is None or seen is None:
        raise ValueError(_NO_SIZES)
    shares, labels = np.asarray(numbers.own.size_counts) / seen.n, numbers.classes is not None
    with drawing_style():
        figure, (panel,) = empty_figure()
        SizeDisplay(
            shares=shares, edges=numbers.rows.size_edges, mean=seen.mean_size, labels=labels
        ).plot(panel)
    return figure


def size_against_alpha(numbers: ReportNumbers) -> Any:
    """Mean and P95 size at every level; infinite sizes are left out."""
    seen = [
        (level.alpha, level.evaluation) for level in numbers.levels if level.evaluation is not None
    ]
    if not seen:
        raise ValueError(_NO_SIZES)
    alphas, p95, mean = np.array(
        [(alpha, found.overall.sizes.p95, found.mean_size) for alpha, found in seen]
    ).T
    with drawing_style():
        figure, (panel,) = empty_figure()
        panel.plot(
            alphas, np.where(np.isinf(p95), np.nan, p95), color=BLUE, linestyle="--", label="P95"
        )
        panel.plot(alphas, np.where(np.isinf(mean), np.nan, mean), color=BLUE, label="mean")
        panel.axvline(numbers.own.alpha, **DASHED)
        panel.set_ylim(bottom=0)
        panel.set(xlabel="α", ylabel=size_name(numbers))
        panel.legend(**LEGEND)
    return figure


_DRAWN = (score_distribution, coverage_law, size_distribution, size_against_alpha)
FIGURES = {draw.__name__.replace("_", "-"): draw for draw in _DRAWN}


def save_figures(
    numbers: ReportNumbers, folder: Any, *, formats: tuple[str, ...] = FORMATS
) -> list[Path]:
    """Write every figure that these numbers allow into `folder`; the same numbers give the same
    bytes.
    """
    if unknown := [end for end in formats if end not in FORMATS]:
        raise ValueError(f"Figures are written as {' or '.join(FORMATS)}, not as {unknown[0]!r}.")
    Path(folder).mkdir(parents=True, exist_ok=True)
    # sizes need rows
    written, drawn = [], FIGURES if numbers.rows is not None else dict(list(FIGURES.items())[:2])
    for name, draw in drawn.items():
        figure = draw(numbers)
        for end in formats:
            target = Path(folder) / f"{name}.{end}"
            nameless = {"Date": None, "Creator": None} if end == "svg" else {"Software": None}
            with drawing_style(), written_beside(target) as beside:
                figure.savefig(beside, format=end, metadata=nameless, dpi=160)
            written.append(target)
    return written


def empty_figure(*, width: float = 4.6, height: float = 2.6, panels: int = 1) -> tuple[Any, Any]:
    """A figure with panels below each other, which share the horizontal axis."""
    from matplotlib.figure import Figure  # not pyplot: no window, no global list of figures

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, np.atleast_1d(figure.subplots(panels, 1, sharex=True))


def drawing_style() -> Any:
    """The settings of matplotlib that all figures are drawn and written with."""
    return require("matplotlib", extra="report").rc_context(_STYLE)
