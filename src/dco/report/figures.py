"""The plots of the page as matplotlib figures, for papers and slides: the same numbers, drawn the same way every time."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dco.foundations.extras import require
from dco.foundations.files import written_beside
from dco.guarantees.theory import coverage_law_of_rank
from dco.report.numbers import LevelNumbers, ReportNumbers

FORMATS = ("svg", "png")
_BLUE, _PALE, _SEEN, _INK = "#1d5a9e", "#bcd4ee", "#a8420f", "#1b1d22"
_STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9a9a94",
    "axes.labelcolor": _INK,
    "svg.hashsalt": "dco",  # the names inside an SVG are drawn from this, so that the same figure is the same file
    "svg.fonttype": "path",
}


def score_distribution(numbers: ReportNumbers) -> Any:
    """Calibration scores with the threshold of the certified level; with groups, a panel for each."""
    own, edges = numbers.levels[numbers.start], numbers.score_edges
    value_of = {entry.group: entry for entry in own.thresholds}
    count = len(numbers.score_histograms)
    with _style():
        figure = _figure(height=2.6 if count == 1 else 0.9 * count + 0.6)
        panels = np.atleast_1d(figure.subplots(count, 1, sharex=True))
        for panel, histogram in zip(panels, numbers.score_histograms, strict=True):
            panel.stairs(histogram.counts, edges, fill=True, color=_PALE)
            entry = value_of[histogram.group]
            if math.isfinite(entry.value):
                panel.axvline(entry.value, color=_INK)
            rank = "" if entry.rank is None else f", rank {entry.rank} of {entry.n}"
            name = "" if histogram.group is None else f"{_plain_text(histogram.group)}: "
            value = f"{entry.value:.4g}" if math.isfinite(entry.value) else "infinite"
            panel.set_title(f"{name}threshold {value}{rank}", loc="left", fontsize=9)
            panel.set_ylabel("rows")
        panels[-1].set_xlabel("score of the true value")
    return figure


def coverage_law(numbers: ReportNumbers) -> Any:
    """The law of coverage at the certified level and the coverage seen; with groups, the 90 % range of each."""
    own = numbers.levels[numbers.start]
    with _style():
        figure = _figure(height=2.6 if own.threshold is not None else 0.3 * len(own.conditions) + 1.2)
        panel = figure.subplots()
        panel.axvline(1 - own.alpha, color=_INK, linestyle=(0, (3, 3)), linewidth=1, label="promised")
        if own.threshold is not None:
            _draw_density(panel, own)
        else:
            _draw_ranges(panel, own)
        panel.set_xlabel("coverage")
        panel.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return figure


def size_distribution(numbers: ReportNumbers) -> Any:
    """Sizes of the sets of the rows given, at the certified level; the last bar holds all that are larger."""
    edges, own = numbers.size_edges, numbers.levels[numbers.start]
    if edges is None or own.size_counts is None or own.evaluation is None:
        raise ValueError("Sizes need rows: make the numbers with X and y.")
    shares = own.size_counts / max(int(own.size_counts.sum()), 1)
    width = float(edges[1] - edges[0])
    with _style():
        figure = _figure()
        panel = figure.subplots()
        panel.stairs(shares[:-1], edges, fill=True, color=_PALE)
        if shares[-1] > 0:
            panel.bar(
                float(edges[-1]) + 1.5 * width, shares[-1], width, color=_PALE, hatch="///", edgecolor=_BLUE, label="more"
            )
            panel.legend(frameon=False, fontsize=8)
        if math.isfinite(own.evaluation.mean_size):
            panel.axvline(own.evaluation.mean_size, color=_INK)
        panel.set_xlabel(_size_name(numbers))
        panel.set_ylabel("share of rows")
    return figure


def size_against_alpha(numbers: ReportNumbers) -> Any:
    """Mean and P95 size at every level; infinite sizes are left out."""
    seen = [(level.alpha, level.evaluation) for level in numbers.levels if level.evaluation is not None]
    if not seen:
        raise ValueError("Sizes need rows: make the numbers with X and y.")
    alphas = [alpha for alpha, _ in seen]
    with _style():
        figure = _figure()
        panel = figure.subplots()
        panel.plot(alphas, _finite([found.p95_size for _, found in seen]), color=_BLUE, linestyle="--", label="P95")
        panel.plot(alphas, _finite([found.mean_size for _, found in seen]), color=_BLUE, label="mean")
        panel.axvline(numbers.levels[numbers.start].alpha, color=_INK, linestyle=(0, (3, 3)), linewidth=1)
        panel.set_ylim(bottom=0)
        panel.set_xlabel("α")
        panel.set_ylabel(_size_name(numbers))
        panel.legend(frameon=False, fontsize=8)
    return figure


FIGURES: dict[str, Callable[[ReportNumbers], Any]] = {
    "score-distribution": score_distribution,
    "coverage-law": coverage_law,
    "size-distribution": size_distribution,
    "size-against-alpha": size_against_alpha,
}


def save_figures(numbers: ReportNumbers, folder: Any, *, formats: tuple[str, ...] = FORMATS) -> list[Path]:
    """Write every figure that these numbers allow into `folder`; the same numbers give the same bytes."""
    unknown = [end for end in formats if end not in FORMATS]
    if unknown:
        raise ValueError(f"Figures are written as {' or '.join(FORMATS)}, not as {unknown[0]!r}.")
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw in FIGURES.items():
        if name.startswith("size") and not numbers.has_rows:
            continue
        figure = draw(numbers)
        for end in formats:
            target = place / f"{name}.{end}"
            nameless = {"Date": None, "Creator": None} if end == "svg" else {"Software": None}
            with _style(), written_beside(target) as beside:
                figure.savefig(beside, format=end, metadata=nameless, dpi=160)
            written.append(target)
    return written


def _draw_density(panel: Any, own: LevelNumbers) -> None:
    entry = own.threshold
    assert entry is not None
    if entry.rank is not None and entry.rank <= entry.n:
        law = coverage_law_of_rank(entry.rank, entry.n)
        x = np.linspace(float(law.ppf(0.0005)), float(law.ppf(0.9995)), 200)
        panel.fill_between(x, law.pdf(x), color=_PALE, linewidth=0, label=f"Beta({entry.rank}, {entry.n + 1 - entry.rank})")
    if own.evaluation is not None:
        panel.axvline(own.evaluation.coverage, color=_SEEN, label=f"seen on {own.evaluation.n} rows")
    panel.set_ylabel("density")
    panel.set_ylim(bottom=0)


def _draw_ranges(panel: Any, own: LevelNumbers) -> None:
    names = [_plain_text(str(entry.threshold.group)) for entry in own.conditions]
    for place, entry in enumerate(own.conditions):
        low, high = entry.threshold.coverage_low, entry.threshold.coverage_high
        if entry.consistency is not None:
            low, high = entry.consistency.low, entry.consistency.high
        if low is not None:
            panel.plot([low, 1.0 if high is None else high], [place, place], color=_PALE, linewidth=5, solid_capstyle="butt")
        if entry.evaluation is not None:
            panel.plot(entry.evaluation.coverage, place, "o", color=_SEEN, label="seen" if place == 0 else None)
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()


def _figure(height: float = 2.6) -> Any:
    require("matplotlib", extra="report")
    from matplotlib.figure import Figure  # not pyplot: no window, no global list of figures

    return Figure(figsize=(4.6, height), layout="constrained")


def _style() -> Any:
    return require("matplotlib", extra="report").rc_context(_STYLE)


def _finite(values: list[float]) -> list[float]:
    return [value if math.isfinite(value) else math.nan for value in values]


def _size_name(numbers: ReportNumbers) -> str:
    return "length of the set" if numbers.classes is None else "labels in the set"


def _plain_text(text: str, longest: int = 30) -> str:
    """A label as plain text: matplotlib would read dollar signs as mathematics."""
    return (text if len(text) <= longest else text[: longest - 1] + "…").replace("$", r"\$")
