"""The figures of the experiments, as SVG and PNG. The same records give the same files.

Every function returns the content of the files by name.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dco.foundations.arrays import Floats, Integers
from dco.foundations.extras import require

INK = "#1f2933"
GREY = "#8a94a0"
RED = "#c2541b"
BLUE = "#2a6f97"
GREEN = "#3c7d4d"
COLOUR_OF_GUARANTEE = {"pac": RED, "marginal": BLUE, "none": GREY, "expected_risk": GREEN}
MARKERS = "osD^vPX*<>"
SMALL_TEXT = 7.5  # the size of legends and notes, in points
LEGEND_ROOM = 1.45  # how much higher an axis is made for a legend above its bars
LAW_TAIL = 0.0005  # of the law of coverage, beyond each end of a histogram
FILL = 0.55  # the opacity of filled boxes, which leaves their outlines to be seen
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


class Interval(NamedTuple):
    """A mean and the ends of its confidence interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Series:
    """What figures show of one method: its guarantee, and coverage and mean size on every split.

    The law of its coverage is that of a threshold at the `rank`-th smallest of `n` calibration
    scores, on `n_test` test rows.
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
    """Make a figure with a grid of axes, and return both; `axes[0, 0]` is the first of the grid.

    Width and height are of one axis, in inches. The figure does not touch matplotlib's global state
    (pyplot), so that a caller's own figures stay as they are.
    """
    matplotlib = require("matplotlib", extra="report")
    with matplotlib.rc_context(STYLE):
        figure = require("matplotlib.figure", extra="report").Figure(
            figsize=(width * columns, height * rows), layout="constrained"
        )
        return figure, figure.subplots(rows, columns, squeeze=False)


def render(figure: Any, name: str, note: str = "") -> Files:
    """Turn a figure into the files NAME.svg and NAME.png, without the date of the drawing.

    `note` is written below the figure, such as a sentence on the data.
    """
    matplotlib = require("matplotlib", extra="report")
    if note:
        figure.supxlabel(note, fontsize=SMALL_TEXT, color=INK)

    svg = io.BytesIO()
    png = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(svg, format="svg", metadata={"Date": None})
        figure.savefig(png, format="png", dpi=150)
    return {f"{name}.svg": svg.getvalue(), f"{name}.png": png.getvalue()}


def coverage_and_size(
    methods: Mapping[str, Series], *, target: float, size: str, name: str, note: str = ""
) -> Files:
    """Draw box plots over splits, a row for each method: coverage on the left, sizes on the right.

    Parameters
    ----------
    methods:
        What to draw of each method, by title; the first is on top. Colours tell the guarantee.
    target:
        The coverage that was aimed at, as a dashed line.
    size:
        The label of the sizes, such as "mean set size".
    name, note:
        As in `render`.
    """
    figure = draw_coverage_and_size(methods, target=target, size=size)
    return render(figure, name, note)


def draw_coverage_and_size(methods: Mapping[str, Series], *, target: float, size: str) -> Any:
    """Draw two panels of boxes, coverage and set size over splits, with a line for each method.

    `methods` maps the name of a method to what was measured on each split. `target` is drawn as a
    dashed line, and `size` labels the axis. An infinite size has words in place of a box.
    """
    height = 1.1 + 0.34 * len(methods)  # inches: legend and labels, and a line for each method
    figure, axes = new_figure(2, width=5.2, height=height)
    coverage_axis, size_axis = axes[0]

    draw_boxes(coverage_axis, methods, [series.coverage for series in methods.values()])
    coverage_axis.set_xlabel("coverage on test rows")
    coverage_axis.set_yticklabels(list(methods))
    target_line = coverage_axis.axvline(
        target, color=INK, linestyle="--", linewidth=0.8, label="target"
    )

    finite_sizes = [series.size if series.is_finite else [] for series in methods.values()]
    draw_boxes(size_axis, methods, finite_sizes)
    for position, series in enumerate(methods.values(), start=1):
        if not series.is_finite:
            write_infinite(size_axis, position)
    size_axis.set_xlabel(size)
    size_axis.set_yticklabels([])

    colours = colour_legend([series.guarantee for series in methods.values()])
    figure.legend(
        handles=[*colours, target_line],
        loc="outside upper center",
        ncols=len(colours) + 1,
        frameon=False,
    )
    return figure


def draw_boxes(axis: Any, methods: Mapping[str, Series], values: Sequence[Sequence[float]]) -> None:
    """Draw a horizontal box of each method's values in the colour of its guarantee.

    `values` are in the order of the methods; the first box is on top.
    """
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
        box.set_alpha(FILL)
    axis.invert_yaxis()


def write_infinite(axis: Any, position: int) -> None:
    """Write in place of a box why there is none, half-way across the axis."""
    axis.text(
        0.5,
        position,
        "infinite: too few calibration rows",
        transform=axis.get_yaxis_transform(),  # x in shares of the axis, y in data
        ha="center",
        va="center",
        fontsize=SMALL_TEXT,
    )


def colour_legend(guarantees: Sequence[str]) -> list[Any]:
    """Make a coloured patch for each guarantee, once, as entries of a legend."""
    patch = require("matplotlib.patches", extra="report").Patch
    return [
        patch(color=COLOUR_OF_GUARANTEE[guarantee], alpha=FILL, label=f"guarantee: {guarantee}")
        for guarantee in dict.fromkeys(guarantees)
    ]


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
    """Draw for each method a panel with its coverage over splits, and the one that theory expects.

    `methods` maps the name of a method to what was measured on each split; `target` is drawn as a
    dashed line.
    """
    figure, axes = new_figure(len(methods), width=3.6, height=2.9)
    line_top = 0.74  # of the axis, below the legend
    for axis, (method, series) in zip(axes[0], methods.items(), strict=True):
        draw_histogram_with_law(axis, series)
        axis.axvline(
            target,
            ymax=line_top,
            color=INK,
            linestyle="--",
            linewidth=0.8,
            label="target",
        )
        axis.set(title=method, xlabel="coverage on test rows", ylabel="splits")
        axis.set_ylim(0, LEGEND_ROOM * axis.get_ylim()[1])
        axis.yaxis.get_major_locator().set_params(integer=True)
        axis.legend(loc="upper left", fontsize=SMALL_TEXT, frameon=False)
    return figure


def draw_histogram_with_law(axis: Any, series: Series) -> None:
    """Draw a histogram of coverage over splits, and over it the heights that theory expects.

    `series` has the coverage of one method on each split. In theory the number of covered test rows
    has the distribution Beta-binomial(n_test, rank, n + 1 - rank), where the threshold is the
    rank-th smallest of n scores.
    """
    from scipy.stats import betabinom

    theory = betabinom(series.n_test, series.rank, series.n + 1 - series.rank)
    bars = choose_bars(theory)
    centres = bars.centres() / series.n_test  # in shares of the test rows

    # 1. The splits; the outermost bars take in what lies beyond them.
    covered_rows = np.rint(np.array(series.coverage) * series.n_test)
    in_range = np.clip(covered_rows, bars.first_counts[0], bars.last_counts[-1])
    observed, _ = np.histogram(in_range, bars.edges())
    n_splits = len(covered_rows)
    axis.bar(
        centres,
        observed,
        width=0.9 * bars.counts_per_bar / series.n_test,
        color=COLOUR_OF_GUARANTEE[series.guarantee],
        alpha=0.5,
        label=f"{n_splits} splits",
    )

    # 2. How many splits theory expects in each bar.
    probabilities = theory.cdf(bars.last_counts) - theory.cdf(bars.first_counts - 1)
    expected = n_splits * probabilities
    axis.plot(centres, expected, color=INK, marker=".", linewidth=1, label="Beta-binomial law")


@dataclass(frozen=True, eq=False)
class Bars:
    """Bars of a histogram of counts: bar i takes in first_counts[i], ..., last_counts[i].

    All bars take in equally many counts, so that none is higher for taking in more.
    """

    first_counts: Integers
    counts_per_bar: int

    @property
    def last_counts(self) -> Integers:
        """The last count of each bar."""
        return self.first_counts + self.counts_per_bar - 1

    def edges(self) -> Integers:
        """Return where bars begin, and where the last one ends."""
        end = self.first_counts[-1] + self.counts_per_bar
        return np.append(self.first_counts, end)

    def centres(self) -> Floats:
        """Return the mean of the counts of each bar."""
        return np.asarray(self.first_counts + self.counts_per_bar / 2 - 0.5)


def choose_bars(theory: Any) -> Bars:
    """Choose bars for a distribution of counts, half a standard deviation wide.

    They hold all of it but a thousandth at each end (`LAW_TAIL`).
    """
    counts_per_bar = max(1, round(float(theory.std()) / 2))
    smallest = int(theory.ppf(LAW_TAIL))
    largest = int(theory.ppf(1 - LAW_TAIL))
    return Bars(np.arange(smallest, largest + 1, counts_per_bar), counts_per_bar)


def prior_scales(first: tuple[str, Series], second: tuple[str, Series], *, name: str) -> Files:
    """Draw the figure that compares two prior scales: widths as points, coverages as boxes.

    A prior scale says how much noise a Bayesian model expects. Each argument is its name, "c = 1",
    and what was measured with it on each split. There is no figure where a width is infinite.
    """
    first_name, first_series = first
    second_name, second_series = second
    if not (first_series.is_finite and second_series.is_finite):
        return {}

    figure, axes = new_figure(2)
    width_axis, coverage_axis = axes[0]
    all_widths = [*first_series.size, *second_series.size]
    diagonal = [min(all_widths), max(all_widths)]
    width_axis.plot(diagonal, diagonal, color=GREY, linewidth=0.8)
    width_axis.scatter(first_series.size, second_series.size, s=12, color=BLUE, alpha=0.8)
    width_axis.set(
        xlabel=f"width, {first_name}",
        ylabel=f"width, {second_name}",
        title="one point per split",
        aspect="equal",
    )

    coverages = [first_series.coverage, second_series.coverage]
    coverage_axis.boxplot(coverages, widths=0.5, medianprops={"color": BLUE})
    coverage_axis.set_xticklabels([first_name, second_name])
    coverage_axis.set(
        ylabel="coverage on test rows", title="after calibration the prior hardly shows"
    )
    return render(figure, name)


def size_against_level(
    curves: Mapping[str, Mapping[float, float]],
    guarantees: Mapping[str, str],
    *,
    size: str,
    name: str,
    note: str = "",
) -> Files:
    """Draw mean size against the target coverage, a line for each method.

    `curves` is {method: {target coverage: mean size}}. `guarantees` maps each method to its
    guarantee ("marginal", "pac", "none"), which decides its colour. `size` labels the axis.
    """
    figure, axes = new_figure(width=5.6, height=3.6)
    axis = axes[0, 0]
    for number, (method, size_at) in enumerate(curves.items()):
        levels = sorted(size_at)
        axis.plot(
            levels,
            [size_at[level] for level in levels],
            label=method,
            marker=MARKERS[number % len(MARKERS)],
            color=COLOUR_OF_GUARANTEE[guarantees[method]],
            linewidth=1,
            markersize=4,
            alpha=0.9,
        )
    axis.set(xlabel="target coverage", ylabel=size)
    all_levels = {level for size_at in curves.values() for level in size_at}
    axis.set_xticks(sorted(all_levels))
    axis.legend(fontsize=SMALL_TEXT, frameon=False, loc="upper left")
    return render(figure, name, note)


def split_ratios(
    sizes: Mapping[float, Mapping[str, Sequence[float]]],
    coverages: Mapping[float, Mapping[str, Sequence[float]]],
    *,
    base: str,
    name: str,
    note: str,
) -> Files:
    """Draw how mean size and the spread of coverage change with the ratio of tuning rows.

    Parameters
    ----------
    sizes:
        For each target coverage and each ratio ("33/67") the mean size on every split.
    coverages:
        Likewise the coverage on every split.
    base:
        The ratio whose mean size is drawn as 1.
    name, note:
        As in `render`.
    """
    figure, axes = new_figure(2)
    size_axis, spread_axis = axes[0]
    for target, sizes_at in sizes.items():
        label = f"target {target:g}"
        draw_relative_sizes(size_axis, sizes_at, base=base, label=label)
        spreads = [standard_deviation(values) for values in coverages[target].values()]
        spread_axis.plot(np.arange(len(spreads)), spreads, marker="o", markersize=4, label=label)

    ratios = list(next(iter(sizes.values())))
    for axis in axes[0]:
        axis.set_xticks(np.arange(len(ratios)), ratios)
        axis.set_xlabel("tuning / calibration rows, %")
    size_axis.set_ylabel(f"mean size / mean size at {base}")
    spread_axis.set_ylabel("sd of test coverage over splits")
    size_axis.legend(fontsize=SMALL_TEXT, frameon=False)
    return render(figure, name, note)


def draw_relative_sizes(
    axis: Any, sizes_at: Mapping[str, Sequence[float]], *, base: str, label: str
) -> None:
    """Draw a line of the mean size at each split ratio, with standard errors of the mean as bars.

    `sizes_at` maps each ratio, such as "33/67", to the mean set size on every split. All are drawn
    as multiples of the mean size at the ratio `base`.
    """
    means = np.array([np.mean(sizes) for sizes in sizes_at.values()])
    standard_errors: list[float] = []
    for sizes in sizes_at.values():
        standard_errors.append(standard_deviation(sizes) / len(sizes) ** 0.5)
    errors = np.array(standard_errors)
    base_size = np.mean(sizes_at[base])
    axis.errorbar(
        np.arange(len(means)),
        means / base_size,
        errors / base_size,
        marker="o",
        markersize=4,
        capsize=2,
        label=label,
    )


def standard_deviation(values: Sequence[float]) -> float:
    """Return the standard deviation (divisor n - 1), or 0 for a single value."""
    return float(np.std(values, ddof=min(1, len(values) - 1)))


def tuning_regret(lines: Mapping[str, Mapping[int, float]], *, name: str) -> Files:
    """Draw regret (the width above that of the best candidate) and bounds on it, as lines.

    `lines` is {label of a line: {number of tuning rows: value}}. Both axes are logarithmic; values
    of 0 have no place on them and are left out.
    """
    figure, axes = new_figure(width=5.6, height=3.6)
    axis = axes[0, 0]
    colours = [BLUE, GREEN, GREY, RED, INK]
    for number, (label, line) in enumerate(lines.items()):
        colour = colours[number % len(colours)]
        positive = {n: value for n, value in line.items() if value > 0}
        axis.loglog(list(positive), list(positive.values()), marker=".", color=colour, label=label)
    axis.set(xlabel="tuning rows n", ylabel="mean width above the best")
    axis.legend(fontsize=SMALL_TEXT, frameon=False)
    return render(figure, name)


def size_reductions(
    reductions: Mapping[str, Mapping[str, Interval]], *, name: str, note: str = ""
) -> Files:
    """Draw how much smaller sets are than the paper's DCO, in %, as groups of bars by target.

    `reductions` gives for each target ("0.8") the reduction by each method, with its 95 % interval;
    every target has the same methods.
    """
    figure, axes = new_figure(width=6.4, height=3.4)
    axis = axes[0, 0]
    targets = list(reductions)
    methods = list(reductions[targets[0]])
    colours = [GREY, BLUE, GREEN, RED, INK]
    group_positions = np.arange(len(targets))
    bar_width = 0.8 / len(methods)  # a group takes 0.8, which leaves a gap between groups

    for number, method in enumerate(methods):
        offset = (number - (len(methods) - 1) / 2) * bar_width  # groups are centred
        draw_bars_with_intervals(
            axis,
            group_positions + offset,
            [reductions[target][method] for target in targets],
            width=0.92 * bar_width,
            colour=colours[number % len(colours)],
            label=method,
        )

    axis.axhline(0, color=INK, linewidth=0.8)
    axis.set_xticks(group_positions, [f"target {target}" for target in targets])
    axis.set_ylabel("smaller than the paper's DCO, %")
    axis.margins(y=0.28)  # room for the legend
    axis.legend(fontsize=SMALL_TEXT, frameon=False, ncols=2, loc="upper center")
    return render(figure, name, note)


def draw_bars_with_intervals(
    axis: Any,
    positions: Floats,
    intervals: Sequence[Interval],
    *,
    width: float,
    colour: str,
    label: str,
) -> None:
    """Draw a bar up to the mean of each interval, and a thin line from its low to its high end."""
    means = np.array([interval.mean for interval in intervals])
    below = [interval.mean - interval.low for interval in intervals]
    above = [interval.high - interval.mean for interval in intervals]
    axis.bar(positions, means, width, color=colour, alpha=0.7, label=label)
    axis.errorbar(
        positions,
        means,
        [below, above],
        fmt="none",
        ecolor=INK,
        elinewidth=0.8,
        capsize=2,
    )
