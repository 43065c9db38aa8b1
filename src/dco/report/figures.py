"""The plots of a report as files, for papers and slides: the same numbers give the same bytes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dco import CoverageDisplay, SizeDisplay
from dco.foundations.drawing import (
    BLUE,
    DASHED,
    INK,
    LEGEND,
    PALE,
    drawing_style,
    empty_figure,
    plain_name,
)
from dco.foundations.files import write_files
from dco.report.formats import threshold_in_words
from dco.report.numbers import MOST_CONDITIONS, ReportNumbers, ScoreHistogram
from dco.report.words import size_axis_name

FORMATS = ("svg", "png")
# Inches.
HEIGHT = 2.6  # of a figure with one panel
SCORE_PANEL_HEIGHT = 0.9  # of one of several panels of scores
CONDITION_LINE_HEIGHT = 0.3  # of one condition in the figure of coverage
SCORE_AXIS_HEIGHT = 0.6  # of the axis and its name, below all panels
COVERAGE_AXIS_HEIGHT = 1.2

DOTS_PER_INCH = 160
NO_SIZES = "Sizes need rows: make the numbers with X and y."


def save_figures(
    numbers: ReportNumbers, folder: Any, *, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Write every figure that these numbers allow into a folder; return the files.

    Figures of sizes need rows. `formats` are "svg" and "png".
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise ValueError(f"Figures are written as {' or '.join(FORMATS)}, not as {unknown[0]!r}.")

    draw_by_name = {"score-distribution": score_distribution, "coverage-law": coverage_law}
    if numbers.rows is not None:
        draw_by_name["size-distribution"] = size_distribution
        draw_by_name["size-against-alpha"] = size_against_alpha

    # Each file is drawn anew: saving a figure moves its parts a little.
    contents = {
        Path(folder) / f"{name}.{file_format}": file_content(draw(numbers), file_format)
        for name, draw in draw_by_name.items()
        for file_format in formats
    }
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_files(contents, overwrite=True)
    return list(contents)


def file_content(figure: Any, file_format: str) -> bytes:
    """Return a figure as the content of a file, without dates and names of programs.

    The same numbers then give the same bytes.
    """
    svg_without_names = {"Date": None, "Creator": None}
    png_without_names = {"Software": None}
    metadata = svg_without_names if file_format == "svg" else png_without_names
    content = io.BytesIO()
    with drawing_style():
        figure.savefig(content, format=file_format, metadata=metadata, dpi=DOTS_PER_INCH)
    return content.getvalue()


def score_distribution(numbers: ReportNumbers) -> Any:
    """Draw the calibration scores with their threshold; with conditions, one panel for each."""
    histograms = numbers.histograms
    n_panels = len(histograms)
    height = HEIGHT
    if n_panels > 1:
        height = SCORE_PANEL_HEIGHT * n_panels + SCORE_AXIS_HEIGHT
    with drawing_style():
        figure, panels = empty_figure(height=height, panels=n_panels)
        for panel, histogram in zip(panels, histograms, strict=True):
            draw_scores(panel, numbers, histogram)
        panels[-1].set_xlabel("score of the true value")
    return figure


def draw_scores(panel: Any, numbers: ReportNumbers, histogram: ScoreHistogram) -> None:
    """Draw one histogram of scores, with a line at its threshold unless that is off the axis."""
    edges = numbers.score_edges
    panel.stairs(histogram.counts, edges, fill=True, color=PALE)
    if edges[0] <= histogram.threshold <= edges[-1]:
        panel.axvline(histogram.threshold, color=INK)
    panel.set_title(panel_title(numbers, histogram), loc="left", fontsize=9)
    panel.set_ylabel("rows")


def panel_title(numbers: ReportNumbers, histogram: ScoreHistogram) -> str:
    """Write the title of a histogram of scores: "threshold 0.83, rank 181 of 200".

    A histogram of one condition (a group of rows with a threshold of its own) begins with its name:
    "north: threshold 0.83, rank 91 of 100".
    """
    title = f"threshold {threshold_in_words(histogram.threshold)}"
    if histogram.condition is not None:
        title = f"{plain_name(histogram.condition)}: {title}"

    thresholds = numbers.certificate.thresholds
    of_condition = [one for one in thresholds if one.group == histogram.condition]
    threshold = of_condition[0] if of_condition else thresholds[0]  # the one of all rows
    if threshold.rank is not None:
        title += f", rank {threshold.rank} of {threshold.n}"
    return title


def coverage_law(numbers: ReportNumbers) -> Any:
    """Draw the coverage that is expected, and what was observed if there are rows.

    What is expected is the law of coverage, its distribution over draws of the calibration rows.
    With conditions (groups of rows with thresholds of their own), each of the largest has a line.
    """
    thresholds = numbers.certificate.thresholds
    n_conditions = sum(threshold.group is not None for threshold in thresholds)
    n_lines = min(n_conditions, MOST_CONDITIONS)
    height = HEIGHT
    if n_lines > 0:
        height = CONDITION_LINE_HEIGHT * n_lines + COVERAGE_AXIS_HEIGHT

    with drawing_style():
        figure, (panel,) = empty_figure(height=height)
        if numbers.evaluation is None:
            CoverageDisplay.from_certificate(numbers.certificate, most=MOST_CONDITIONS, ax=panel)
        else:
            CoverageDisplay.from_evaluation(
                numbers.evaluation, by_condition=True, most=MOST_CONDITIONS, ax=panel
            )
    return figure


def size_distribution(numbers: ReportNumbers) -> Any:
    """Draw a histogram of the sizes of the sets; the last bar holds all that are larger."""
    if numbers.rows is None:
        raise ValueError(NO_SIZES)
    display = SizeDisplay(
        shares=numbers.rows.sizes.counts / numbers.rows.evaluation.n,
        edges=numbers.rows.sizes.edges,
        mean=numbers.rows.evaluation.mean_size,
        labels=numbers.n_classes is not None,
    )
    with drawing_style():
        figure, (panel,) = empty_figure()
        display.plot(panel)
    return figure


def size_against_alpha(numbers: ReportNumbers) -> Any:
    """Draw the mean and the 95 % quantile (P95) of set sizes for each level alpha.

    Infinite sizes are left out. A dashed line marks the level that was certified.
    """
    if numbers.rows is None:
        raise ValueError(NO_SIZES)

    alphas = [level.alpha for level in numbers.levels]
    means = np.array([level.mean_size for level in numbers.levels], dtype=np.float64)
    p95s = np.array([level.p95_size for level in numbers.levels], dtype=np.float64)
    means[np.isinf(means)] = np.nan
    p95s[np.isinf(p95s)] = np.nan

    with drawing_style():
        figure, (panel,) = empty_figure()
        panel.plot(alphas, p95s, color=BLUE, linestyle="--", label="P95")
        panel.plot(alphas, means, color=BLUE, label="mean")
        panel.axvline(numbers.certificate.alpha, **DASHED)
        panel.set_ylim(bottom=0)
        panel.set(xlabel="α", ylabel=size_axis_name(numbers))
        panel.legend(**LEGEND)
    return figure
