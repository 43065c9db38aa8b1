"""The plots of the page as matplotlib figures, for papers and slides: the same numbers, drawn the same way every time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dco.foundations.extras import require
from dco.foundations.files import written_beside
from dco.guarantees.theory import coverage_law_of_rank
from dco.report.formats import shortened
from dco.report.numbers import ConditionNumbers, ReportNumbers

FORMATS = ("svg", "png")
_BLUE, _PALE, _SEEN, _INK = "#1d5a9e", "#bcd4ee", "#a8420f", "#1b1d22"
_DASHED: dict[str, Any] = {"color": _INK, "linestyle": (0, (3, 3)), "linewidth": 1}
_SMALL: dict[str, Any] = {"frameon": False, "fontsize": 8}
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
    """Calibration scores with the threshold of the certified level; with conditions, one panel for each."""
    value_of = {entry.group: entry for entry in numbers.own.thresholds}
    count = len(numbers.score_histograms)
    with _style():
        figure, panels = _figure(height=2.6 if count == 1 else 0.9 * count + 0.6, panels=count)
        for panel, histogram in zip(panels, numbers.score_histograms, strict=True):
            panel.stairs(histogram.counts, numbers.score_edges, fill=True, color=_PALE)
            entry, value = value_of[histogram.condition], "infinite"
            if math.isfinite(entry.value):
                panel.axvline(entry.value, color=_INK)
                value = f"{entry.value:.4g}"
            rank = "" if entry.rank is None else f", rank {entry.rank} of {entry.n}"
            name = "" if histogram.condition is None else f"{_label(histogram.condition)}: "
            panel.set_title(f"{name}threshold {value}{rank}", loc="left", fontsize=9)
            panel.set_ylabel("rows")
        panels[-1].set_xlabel("score of the true value")
    return figure


def coverage_law(numbers: ReportNumbers) -> Any:
    """The law of coverage at the certified level and the coverage seen; with conditions, the 90 % range of each."""
    own, entry = numbers.own, numbers.own.threshold
    with _style():
        figure, (panel,) = _figure(height=2.6 if entry is not None else 0.3 * len(own.conditions) + 1.2)
        panel.axvline(1 - own.alpha, **_DASHED, label="promised")
        if entry is None:
            _draw_ranges(panel, own.conditions)
        elif entry.rank is not None and entry.rank <= entry.n:
            law = coverage_law_of_rank(entry.rank, entry.n)
            x = np.linspace(float(law.ppf(0.0005)), float(law.ppf(0.9995)), 200)
            name = f"Beta({entry.rank}, {entry.n + 1 - entry.rank})"
            panel.fill_between(x, law.pdf(x), color=_PALE, linewidth=0, label=name)
        if entry is not None:
            if own.evaluation is not None:
                panel.axvline(own.evaluation.coverage, color=_SEEN, label=f"seen on {own.evaluation.n} rows")
            panel.set_ylabel("density")
            panel.set_ylim(bottom=0)
        panel.set_xlabel("coverage")
        panel.legend(**_SMALL, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return figure


def _draw_ranges(panel: Any, conditions: Sequence[ConditionNumbers]) -> None:
    for place, entry in enumerate(conditions):
        if entry.range is not None:
            panel.plot(entry.range, [place, place], color=_PALE, linewidth=5, solid_capstyle="butt")
        if entry.evaluation is not None:
            panel.plot(entry.evaluation.coverage, place, "o", color=_SEEN, label="seen" if place == 0 else None)
    panel.set_yticks(range(len(conditions)), [_label(entry.threshold.group) for entry in conditions])
    panel.invert_yaxis()


def size_distribution(numbers: ReportNumbers) -> Any:
    """Sizes of the sets of the rows given, at the certified level; the last bar holds all that are larger."""
    own = numbers.own
    if numbers.rows is None or own.evaluation is None:
        raise ValueError("Sizes need rows: make the numbers with X and y.")
    edges, shares = numbers.rows.size_edges, np.asarray(own.size_counts) / own.evaluation.n
    width = float(edges[1] - edges[0])
    with _style():
        figure, (panel,) = _figure()
        panel.stairs(shares[:-1], edges, fill=True, color=_PALE)
        if shares[-1] > 0:
            beyond = float(edges[-1]) + 1.5 * width
            panel.bar(beyond, shares[-1], width, color=_PALE, hatch="///", edgecolor=_BLUE, label="more")
            panel.legend(**_SMALL)
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
    sizes = np.array([(alpha, found.p95_size, found.mean_size) for alpha, found in seen])
    sizes[np.isinf(sizes)] = math.nan
    with _style():
        figure, (panel,) = _figure()
        panel.plot(sizes[:, 0], sizes[:, 1], color=_BLUE, linestyle="--", label="P95")
        panel.plot(sizes[:, 0], sizes[:, 2], color=_BLUE, label="mean")
        panel.axvline(numbers.own.alpha, **_DASHED)
        panel.set_ylim(bottom=0)
        panel.set_xlabel("α")
        panel.set_ylabel(_size_name(numbers))
        panel.legend(**_SMALL)
    return figure


_DRAWN = (score_distribution, coverage_law, size_distribution, size_against_alpha)
FIGURES = {draw.__name__.replace("_", "-"): draw for draw in _DRAWN}


def save_figures(numbers: ReportNumbers, folder: Any, *, formats: tuple[str, ...] = FORMATS) -> list[Path]:
    """Write every figure that these numbers allow into `folder`; the same numbers give the same bytes."""
    unknown = [end for end in formats if end not in FORMATS]
    if unknown:
        raise ValueError(f"Figures are written as {' or '.join(FORMATS)}, not as {unknown[0]!r}.")
    Path(folder).mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw in FIGURES.items():
        if name.startswith("size") and numbers.rows is None:
            continue
        figure = draw(numbers)
        for end in formats:
            target = Path(folder) / f"{name}.{end}"
            nameless = {"Date": None, "Creator": None} if end == "svg" else {"Software": None}
            with _style(), written_beside(target) as beside:
                figure.savefig(beside, format=end, metadata=nameless, dpi=160)
            written.append(target)
    return written


def _figure(*, height: float = 2.6, panels: int = 1) -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # not pyplot: no window, no global list of figures

    figure = Figure(figsize=(4.6, height), layout="constrained")
    return figure, np.atleast_1d(figure.subplots(panels, 1, sharex=True))


def _style() -> Any:
    return require("matplotlib", extra="report").rc_context(_STYLE)


def _size_name(numbers: ReportNumbers) -> str:
    return "length of the set" if numbers.classes is None else "labels in the set"


def _label(name: Any) -> str:
    """A name as plain text: matplotlib would read dollar signs as mathematics."""
    return shortened(name, 30).replace("$", r"\$")
