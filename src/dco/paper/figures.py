"""The figures of the experiments, as SVG and PNG. The same records give the same files.

Every function returns the content of the files by name.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dco.foundations.extras import require

INK = "#1f2933"
GREY = "#8a94a0"
RED = "#c2541b"
BLUE = "#2a6f97"
GREEN = "#3c7d4d"
COLOUR_OF_GUARANTEE = {"pac": RED, "marginal": BLUE, "none": GREY, "expected_risk": GREEN}
MARKERS = "osD^vPX*<>"
STYLE = {
    "svg.hashsalt": "dco",  # element ids are drawn at random otherwise
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
}

Files: TypeAlias = dict[str, bytes]


@dataclass(frozen=True)
class Series:
    """A method over splits: coverage and mean size of each, and the law of its coverage.

    The law is that of the `rank`-th smallest of `n` scores on `n_test` test rows.
    """

    guarantee: str
    coverage: Sequence[float]
    size: Sequence[float]
    rank: int
    n: int
    n_test: int

    @property
    def is_finite(self) -> bool:
        """Whether the sets of every split have finite sizes."""
        return all(map(math.isfinite, self.size))


def new_figure(
    columns: int = 1, rows: int = 1, *, width: float = 4.2, height: float = 3.2
) -> tuple[Any, Any]:
    """Make a figure with a grid of axes, free of matplotlib's global state."""
    matplotlib = require("matplotlib", extra="report")
    with matplotlib.rc_context(STYLE):
        figure = require("matplotlib.figure", extra="report").Figure(
            figsize=(width * columns, height * rows), layout="constrained"
        )
        return figure, figure.subplots(rows, columns, squeeze=False)


def render(figure: Any, name: str, note: str = "") -> Files:
    """Draw a figure as SVG and PNG without dates; `note` stands below, such as which data it is."""
    matplotlib = require("matplotlib", extra="report")
    if note:
        figure.supxlabel(note, fontsize=7.5, color=INK)

    svg = io.BytesIO()
    png = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(svg, format="svg", metadata={"Date": None})
        figure.savefig(png, format="png", dpi=150)
    return {f"{name}.svg": svg.getvalue(), f"{name}.png": png.getvalue()}


def coverage_and_size(
    methods: Mapping[str, Series], *, target: float, size: str, name: str, note: str = ""
) -> Files:
    """Draw box plots over splits, a line for each method: coverage, and mean size.

    Colours tell the guarantee. Infinite sizes have no box, and are named.
    """
    figure = draw_coverage_and_size(methods, target=target, size=size)
    return render(figure, name, note)


def draw_coverage_and_size(methods: Mapping[str, Series], *, target: float, size: str) -> Any:
    """Draw the figure of `coverage_and_size`."""
    figure, axes = new_figure(2, width=5.2, height=0.34 * len(methods) + 1.1)
    coverage_axis, size_axis = axes[0]
    draw_boxes(coverage_axis, methods, [series.coverage for series in methods.values()])
    draw_boxes(
        size_axis,
        methods,
        [series.size if series.is_finite else [] for series in methods.values()],
    )
    for position, series in enumerate(methods.values(), start=1):
        if not series.is_finite:
            size_axis.text(
                0.5,
                position,
                "infinite: too few calibration rows",
                transform=size_axis.get_yaxis_transform(),
                ha="center",
                va="center",
                fontsize=7.5,
            )

    coverage_axis.set_xlabel("coverage on test rows")
    coverage_axis.set_yticklabels(list(methods))
    size_axis.set_xlabel(size)
    size_axis.set_yticklabels([])
    line = coverage_axis.axvline(target, color=INK, linestyle="--", linewidth=0.8, label="target")

    patch = require("matplotlib.patches", extra="report").Patch
    handles = [
        patch(color=COLOUR_OF_GUARANTEE[guarantee], alpha=0.55, label=f"guarantee: {guarantee}")
        for guarantee in dict.fromkeys(series.guarantee for series in methods.values())
    ]
    figure.legend(
        handles=[*handles, line], loc="outside upper center", ncols=len(handles) + 1, frameon=False
    )
    return figure


def draw_boxes(axis: Any, methods: Mapping[str, Series], values: Sequence[Sequence[float]]) -> None:
    """Draw a horizontal box for each method, the first one on top."""
    drawn = axis.boxplot(
        values,
        orientation="horizontal",
        widths=0.6,
        patch_artist=True,
        medianprops={"color": INK},
        flierprops={"marker": ".", "markersize": 3, "markeredgecolor": GREY},
    )
    for box, series in zip(drawn["boxes"], methods.values(), strict=True):
        box.set_facecolor(COLOUR_OF_GUARANTEE[series.guarantee])
        box.set_alpha(0.55)
    axis.invert_yaxis()


def coverage_histograms(
    methods: Mapping[str, Series], *, target: float, name: str, note: str = ""
) -> Files:
    """Draw the coverage over splits of each method, and the Beta-binomial law of its rank over it.

    A method whose threshold is infinite covers everything and is left out; without any method there
    is no figure.
    """
    finite = {method: series for method, series in methods.items() if series.rank <= series.n}
    if not finite:
        return {}
    return render(draw_coverage_histograms(finite, target=target), name, note)


def draw_coverage_histograms(methods: Mapping[str, Series], *, target: float) -> Any:
    """Draw the figure of `coverage_histograms`."""
    figure, axes = new_figure(len(methods), width=3.6, height=2.9)
    for axis, (method, series) in zip(axes[0], methods.items(), strict=True):
        draw_histogram_with_law(axis, series)
        # it ends below the legend
        axis.axvline(target, ymax=0.74, color=INK, linestyle="--", linewidth=0.8, label="target")
        axis.set(title=method, xlabel="coverage on test rows", ylabel="splits")
        axis.set_ylim(0, 1.45 * axis.get_ylim()[1])
        axis.yaxis.get_major_locator().set_params(integer=True)
        axis.legend(loc="upper left", fontsize=7.5, frameon=False)
    return figure


def draw_histogram_with_law(axis: Any, series: Series) -> None:
    """Draw how many splits covered how many test rows, and how many are expected by the law."""
    from scipy.stats import betabinom

    law = betabinom(series.n_test, series.rank, series.n + 1 - series.rank)
    # whole counts per bar, so that bars and law count the same hits
    step = max(1, round(float(law.std()) / 2))
    edges = np.arange(int(law.ppf(0.0005)), int(law.ppf(0.9995)) + step + 1, step)
    centres = (edges[:-1] + step / 2 - 0.5) / series.n_test

    hits = np.rint(np.array(series.coverage) * series.n_test)
    in_range = np.clip(hits, edges[0], edges[-1] - 1)
    counts, _ = np.histogram(in_range, edges)
    axis.bar(
        centres,
        counts,
        width=0.9 * step / series.n_test,
        color=COLOUR_OF_GUARANTEE[series.guarantee],
        alpha=0.5,
        label=f"{len(hits)} splits",
    )
    expected = len(hits) * (law.cdf(edges[1:] - 1) - law.cdf(edges[:-1] - 1))
    axis.plot(centres, expected, color=INK, marker=".", linewidth=1, label="Beta-binomial law")


def prior_scales(first: tuple[str, Series], second: tuple[str, Series], *, name: str) -> Files:
    """Draw the mean width of each split under one prior scale against the other, and coverages.

    Without finite widths there is no figure.
    """
    first_name, first_series = first
    second_name, second_series = second
    if not (first_series.is_finite and second_series.is_finite):
        return {}

    figure, axes = new_figure(2)
    scatter, boxes = axes[0]
    ends = [
        min(*first_series.size, *second_series.size),
        max(*first_series.size, *second_series.size),
    ]
    scatter.plot(ends, ends, color=GREY, linewidth=0.8)
    scatter.scatter(first_series.size, second_series.size, s=12, color=BLUE, alpha=0.8)
    scatter.set(
        xlabel=f"width, {first_name}",
        ylabel=f"width, {second_name}",
        title="one point per split",
        aspect="equal",
    )

    boxes.boxplot(
        [first_series.coverage, second_series.coverage], widths=0.5, medianprops={"color": BLUE}
    )
    boxes.set_xticklabels([first_name, second_name])
    boxes.set(ylabel="coverage on test rows", title="after calibration the prior hardly shows")
    return render(figure, name)


def size_against_level(
    curves: Mapping[str, Mapping[float, float]],
    guarantees: Mapping[str, str],
    *,
    size: str,
    name: str,
    note: str = "",
) -> Files:
    """Draw mean size against the target coverage, a line for each method."""
    figure, axes = new_figure(width=5.6, height=3.6)
    axis = axes[0, 0]
    for number, (method, curve) in enumerate(curves.items()):
        levels = sorted(curve)
        axis.plot(
            levels,
            [curve[level] for level in levels],
            label=method,
            marker=MARKERS[number % len(MARKERS)],
            color=COLOUR_OF_GUARANTEE[guarantees[method]],
            linewidth=1,
            markersize=4,
            alpha=0.9,
        )
    axis.set(xlabel="target coverage", ylabel=size)
    axis.set_xticks(sorted({level for curve in curves.values() for level in curve}))
    axis.legend(fontsize=7.5, frameon=False, loc="upper left")
    return render(figure, name, note)


def split_ratios(
    sizes: Mapping[float, Mapping[str, Sequence[float]]],
    coverages: Mapping[float, Mapping[str, Sequence[float]]],
    *,
    base: str,
    name: str,
    note: str,
) -> Files:
    """Draw mean size over that at the ratio `base`, and the spread of coverage, by split ratio.

    Both are given by target, then by ratio, over splits.
    """
    figure, axes = new_figure(2)
    size_axis, spread_axis = axes[0]
    for target, by_ratio in sizes.items():
        positions = np.arange(len(by_ratio))
        means = np.array([np.mean(values) for values in by_ratio.values()])
        errors = np.array([spread(values) / len(values) ** 0.5 for values in by_ratio.values()])
        unit = means[list(by_ratio).index(base)]
        label = f"target {target:g}"
        size_axis.errorbar(
            positions,
            means / unit,
            errors / unit,
            marker="o",
            markersize=4,
            capsize=2,
            label=label,
        )
        spreads = [spread(values) for values in coverages[target].values()]
        spread_axis.plot(positions, spreads, marker="o", markersize=4, label=label)
        for axis in axes[0]:
            axis.set_xticks(positions, list(by_ratio))
            axis.set_xlabel("tuning / calibration rows, %")
    size_axis.set_ylabel(f"mean size / mean size at {base}")
    spread_axis.set_ylabel("sd of test coverage over splits")
    size_axis.legend(fontsize=7.5, frameon=False)
    return render(figure, name, note)


def spread(values: Sequence[float]) -> float:
    """Return the standard deviation, 0 for a single value."""
    return float(np.std(values, ddof=min(1, len(values) - 1)))


def tuning_regret(lines: Mapping[str, Mapping[int, float]], *, name: str) -> Files:
    """Draw regret and its bounds against the number of tuning rows, on logarithmic axes."""
    figure, axes = new_figure(width=5.6, height=3.6)
    axis = axes[0, 0]
    for colour, (label, line) in zip([BLUE, GREEN, GREY, RED, INK], lines.items(), strict=False):
        positive = {n: value for n, value in line.items() if value > 0}
        axis.loglog(list(positive), list(positive.values()), marker=".", color=colour, label=label)
    axis.set(xlabel="tuning rows n", ylabel="mean width above the best")
    axis.legend(fontsize=7.5, frameon=False)
    return render(figure, name)


def gains(
    bars: Mapping[str, Mapping[str, tuple[float, float, float]]], *, name: str, note: str = ""
) -> Files:
    """Draw how much smaller sets are than the paper's DCO, in %: groups of bars by target.

    Each bar is (mean, low, high) of a step, with a 95 % interval.
    """
    figure, axes = new_figure(width=6.4, height=3.4)
    axis = axes[0, 0]
    targets = list(bars)
    steps = list(bars[targets[0]])
    colours = [GREY, BLUE, GREEN, RED, INK]
    width = 0.8 / len(steps)

    for number, step in enumerate(steps):
        positions = np.arange(len(targets)) + (number - (len(steps) - 1) / 2) * width
        mean, low, high = np.array([bars[target][step] for target in targets]).T
        axis.bar(
            positions,
            mean,
            width * 0.92,
            color=colours[number % len(colours)],
            alpha=0.7,
            label=step,
        )
        axis.errorbar(
            positions,
            mean,
            [mean - low, high - mean],
            fmt="none",
            ecolor=INK,
            elinewidth=0.8,
            capsize=2,
        )

    axis.axhline(0, color=INK, linewidth=0.8)
    axis.set_xticks(np.arange(len(targets)), [f"target {target}" for target in targets])
    axis.set_ylabel("smaller than the paper's DCO, %")
    axis.margins(y=0.28)
    axis.legend(fontsize=7.5, frameon=False, ncols=2, loc="upper center")
    return render(figure, name, note)
