"""Figures 3 and 4 as the paper has them: measures of several methods over splits, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.paper.figures import (
    COLOUR_OF_GUARANTEE,
    FILL,
    GREY,
    INK,
    SMALL_TEXT,
    Files,
    new_figure,
    render,
)

N_BARS = 12  # of a histogram, over all methods


@dataclass(frozen=True)
class MethodOverSplits:
    """What a method gave on every split, and its guarantee, which decides its colour."""

    guarantee: str
    coverage: Sequence[float]
    size: Sequence[float]
    p95: Sequence[float]


def four_panels(
    methods: Mapping[str, MethodOverSplits], *, target: float, name: str, note: str
) -> Files:
    """Draw Figure 3: mean set size, its distribution over splits, coverage, and P95 set size.

    Bars of the mean sizes have standard deviations over splits; the other panels are boxes. The
    target is a dashed line. `name` and `note` are as in `figures.render`.
    """
    figure, axes = new_figure(4, width=2.9, height=3.0)
    mean_axis, size_axis, coverage_axis, p95_axis = axes[0]
    colours = [COLOUR_OF_GUARANTEE[method.guarantee] for method in methods.values()]

    mean_axis.bar(
        list(methods),
        [float(np.mean(method.size)) for method in methods.values()],
        yerr=[float(np.std(method.size, ddof=1)) for method in methods.values()],
        color=colours,
        alpha=FILL,
        capsize=3,
    )
    draw_upright_boxes(size_axis, methods, [method.size for method in methods.values()])
    draw_upright_boxes(coverage_axis, methods, [method.coverage for method in methods.values()])
    draw_upright_boxes(p95_axis, methods, [method.p95 for method in methods.values()])
    coverage_axis.axhline(target, color=INK, linestyle="--", linewidth=0.8)

    titles = ("(a) mean set size", "(b) mean set size", "(c) coverage", "(d) P95 set size")
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=SMALL_TEXT + 1)
        axis.tick_params(axis="x", labelsize=SMALL_TEXT)
    return render(figure, name, note)


def draw_upright_boxes(
    axis: Any, methods: Mapping[str, MethodOverSplits], values: Sequence[Sequence[float]]
) -> None:
    """Draw a box of each method's values, in the order of the methods, from left to right."""
    drawn = axis.boxplot(
        values,
        widths=0.6,
        patch_artist=True,
        medianprops={"color": INK},
        flierprops={"marker": ".", "markersize": 3, "markeredgecolor": GREY},
    )
    for box, method in zip(drawn["boxes"], methods.values(), strict=True):
        box.set_facecolor(COLOUR_OF_GUARANTEE[method.guarantee])
        box.set_alpha(FILL)
    axis.set_xticklabels(list(methods))


def two_histograms(
    methods: Mapping[str, MethodOverSplits], *, target: float, name: str, note: str
) -> Files:
    """Draw Figure 4: histograms over splits of coverage and of mean set size, methods overlaid.

    The target is a dotted line. `name` and `note` are as in `figures.render`.
    """
    figure, axes = new_figure(2, width=4.0, height=3.0)
    coverage_axis, size_axis = axes[0]
    coverages = {title: method.coverage for title, method in methods.items()}
    sizes = {title: method.size for title, method in methods.items()}
    draw_overlaid_histograms(coverage_axis, methods, coverages)
    draw_overlaid_histograms(size_axis, methods, sizes)

    coverage_axis.axvline(target, color=INK, linestyle=":", label="target")
    coverage_axis.set(title="(a)", xlabel="coverage on test rows", ylabel="splits")
    size_axis.set(title="(b)", xlabel="mean set size", ylabel="splits")
    for axis in axes[0]:
        axis.yaxis.get_major_locator().set_params(integer=True)
        axis.legend(fontsize=SMALL_TEXT, frameon=False)
    return render(figure, name, note)


def draw_overlaid_histograms(
    axis: Any,
    methods: Mapping[str, MethodOverSplits],
    values_of: Mapping[str, Sequence[float]],
) -> None:
    """Draw a histogram of each method's values, all with the same bars."""
    everything = np.concatenate([np.asarray(values) for values in values_of.values()])
    edges = np.linspace(everything.min(), everything.max(), N_BARS + 1)
    for title, values in values_of.items():
        axis.hist(
            values,
            bins=edges,
            color=COLOUR_OF_GUARANTEE[methods[title].guarantee],
            alpha=FILL,
            label=title,
        )
