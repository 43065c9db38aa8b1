"""Figures of the experiments, as SVG and PNG. The same records give the same files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dco.foundations.extras import require
from dco.foundations.files import written_beside

INK, QUIET, WARM, COOL, GREEN = "#1f2933", "#8a94a0", "#c2541b", "#2a6f97", "#3c7d4d"
BY_GUARANTEE = {"pac": WARM, "marginal": COOL, "none": QUIET, "expected_risk": GREEN}
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


def new_figure(
    columns: int = 1, rows: int = 1, *, width: float = 4.2, height: float = 3.2
) -> tuple[Any, Any]:
    """A figure with a grid of axes, free of matplotlib's global state."""
    matplotlib = require("matplotlib", extra="report")
    with matplotlib.rc_context(STYLE):
        figure = require("matplotlib.figure", extra="report").Figure(
            figsize=(width * columns, height * rows), layout="constrained"
        )
        return figure, figure.subplots(rows, columns, squeeze=False)


def save(figure: Any, folder: Path, name: str, note: str = "") -> list[Path]:
    """Write SVG and PNG without dates; `note` stands below, such as which data were used."""
    matplotlib = require("matplotlib", extra="report")
    if note:
        figure.supxlabel(note, fontsize=7.5, color=INK)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.svg", folder / f"{name}.png"]
    with matplotlib.rc_context(STYLE):
        with written_beside(paths[0]) as beside:
            figure.savefig(beside, format="svg", metadata={"Date": None})
        with written_beside(paths[1]) as beside:
            figure.savefig(beside, format="png", dpi=150)
    return paths


def coverage_and_size(
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    target: float,
    size: str,
    folder: Path,
    name: str,
    note: str = "",
) -> list[Path]:
    """Box plots over splits, a line for each method: coverage with the target dashed, and mean
    size; colour by guarantee.
    """
    methods = list(rows)
    figure, axes = new_figure(2, width=5.2, height=0.34 * len(methods) + 1.1)
    for axis, key, label in (
        (axes[0, 0], "coverage", "coverage on test rows"),
        (axes[0, 1], "width", size),
    ):
        drawn = axis.boxplot(
            [[row[key] for row in rows[method]] for method in methods],
            orientation="horizontal",
            widths=0.6,
            patch_artist=True,
            medianprops={"color": INK},
            flierprops={"marker": ".", "markersize": 3, "markeredgecolor": QUIET},
        )
        for box, method in zip(drawn["boxes"], methods, strict=True):
            box.set_facecolor(BY_GUARANTEE[str(rows[method][0]["guarantee"])])
            box.set_alpha(0.55)
        axis.invert_yaxis()
        axis.set_xlabel(label)
    axes[0, 0].set_yticklabels(methods)
    axes[0, 1].set_yticklabels([])
    line = axes[0, 0].axvline(target, color=INK, linestyle="--", linewidth=0.8, label="target")
    used = dict.fromkeys(str(entries[0]["guarantee"]) for entries in rows.values())
    patch = require("matplotlib.patches", extra="report").Patch
    handles = [
        patch(color=BY_GUARANTEE[each], alpha=0.55, label=f"guarantee: {each}") for each in used
    ]
    figure.legend(
        handles=[*handles, line], loc="outside upper center", ncols=len(handles) + 1, frameon=False
    )
    return save(figure, folder, name, note)


def coverage_histograms(
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    target: float,
    folder: Path,
    name: str,
    note: str = "",
) -> list[Path]:
    """Coverage over splits for each method with a law, and the Beta-binomial law of its rank drawn
    over it.
    """
    from scipy.stats import betabinom

    methods = list(rows)
    figure, axes = new_figure(len(methods), width=3.6, height=2.9)
    for axis, method in zip(axes[0], methods, strict=True):
        entries = rows[method]
        rank, n, n_test = (int(entries[0][key]) for key in ("rank", "n", "n_test"))
        values = np.array([row["coverage"] for row in entries])
        law = betabinom(n_test, rank, n + 1 - rank)
        # whole counts per bar, so that bars and law count the same hits
        step = max(1, round(float(law.std()) / 2))
        low, high = int(law.ppf(0.0005)), int(law.ppf(0.9995))
        edges = np.arange(low, high + step + 1, step)
        centres = (edges[:-1] + step / 2 - 0.5) / n_test
        hits = np.clip(np.rint(values * n_test), edges[0], edges[-1] - 1)
        axis.bar(
            centres,
            np.histogram(hits, edges)[0],
            width=0.9 * step / n_test,
            color=BY_GUARANTEE[str(entries[0]["guarantee"])],
            alpha=0.5,
            label=f"{len(values)} splits",
        )
        expected = len(values) * (law.cdf(edges[1:] - 1) - law.cdf(edges[:-1] - 1))
        axis.plot(centres, expected, color=INK, marker=".", linewidth=1, label="Beta-binomial law")
        # ends below the legend
        axis.axvline(target, ymax=0.74, color=INK, linestyle="--", linewidth=0.8, label="target")
        axis.set(title=method, xlabel="coverage on test rows", ylabel="splits")
        axis.set_ylim(0, 1.45 * axis.get_ylim()[1])
        axis.yaxis.get_major_locator().set_params(integer=True)
        axis.legend(loc="upper left", fontsize=7.5, frameon=False)
    return save(figure, folder, name, note)


def prior_scales(
    rows: Mapping[str, Sequence[Mapping[str, Any]]], *, folder: Path, name: str
) -> list[Path]:
    """Each split's mean width under one prior scale against the other, and the distributions of
    coverage.
    """
    figure, axes = new_figure(2)
    first, second = rows
    widths = [np.array([row["width"] for row in rows[method]]) for method in (first, second)]
    low, high = min(map(np.min, widths)), max(map(np.max, widths))
    axes[0, 0].plot([low, high], [low, high], color=QUIET, linewidth=0.8)
    axes[0, 0].scatter(*widths, s=12, color=COOL, alpha=0.8)
    axes[0, 0].set(
        xlabel=f"width, {first}",
        ylabel=f"width, {second}",
        title="one point per split",
        aspect="equal",
    )
    axes[0, 1].boxplot(
        [[row["coverage"] for row in rows[method]] for method in (first, second)],
        widths=0.5,
        medianprops={"color": COOL},
    )
    axes[0, 1].set_xticklabels([first, second])
    axes[0, 1].set(ylabel="coverage on test rows", title="after calibration the prior hardly shows")
    return save(figure, folder, name)


def size_against_level(
    curves: Mapping[str, Mapping[float, float]],
    guarantees: Mapping[str, str],
    *,
    size: str,
    folder: Path,
    name: str,
    note: str = "",
) -> list[Path]:
    """Mean size against the target coverage, a line for each method."""
    figure, axes = new_figure(width=5.6, height=3.6)
    markers = "osD^vPX*<>"
    for place, (method, curve) in enumerate(curves.items()):
        levels = sorted(curve)
        axes[0, 0].plot(
            levels,
            [curve[level] for level in levels],
            label=method,
            marker=markers[place % len(markers)],
            color=BY_GUARANTEE[guarantees[method]],
            linewidth=1,
            markersize=4,
            alpha=0.9,
        )
    axes[0, 0].set(xlabel="target coverage", ylabel=size)
    axes[0, 0].set_xticks(sorted({level for curve in curves.values() for level in curve}))
    axes[0, 0].legend(fontsize=7.5, frameon=False, loc="upper left")
    return save(figure, folder, name, note)


def asymptotics(
    rows: Sequence[Mapping[str, Any]], *, truth: Mapping[float, float], folder: Path, name: str
) -> list[Path]:
    """Mean distance of both thresholds from the population's, and BQ's excess coverage, against m
    on logarithmic axes.
    """
    figure, axes = new_figure(2)
    alpha = rows[0]["alpha"]
    sizes = sorted({row["m"] for row in rows})
    for schedule, style in (("0.05", "-"), ("1/m", ":")):
        same = {
            m: [
                row
                for row in rows
                if (row["m"], row["alpha"], row["schedule"]) == (m, alpha, schedule)
            ]
            for m in sizes
        }
        finite = [m for m in sizes if all(np.isfinite(float(row["bq"])) for row in same[m])]
        away = [np.mean([abs(float(row["bq"]) - truth[alpha]) for row in same[m]]) for m in finite]
        axes[0, 0].loglog(finite, away, style, color=WARM, marker=".", label=f"BQ, δ = {schedule}")
        gap = [
            np.mean([row["coverage_bq"] - row["coverage_dco"] for row in same[m]]) for m in sizes
        ]
        axes[0, 1].loglog(
            sizes, gap, style, color=WARM, marker=".", label=f"measured, δ = {schedule}"
        )
        exact = [(same[m][0]["rank"] - same[m][0]["rank_dco"]) / (m + 1) for m in sizes]
        axes[0, 1].loglog(
            sizes,
            exact,
            "x",
            color=INK,
            markersize=5,
            label="exact" if schedule == "0.05" else None,
        )
    distance = [
        np.mean(
            [
                abs(row["dco"] - truth[alpha])
                for row in rows
                if row["m"] == m and row["alpha"] == alpha
            ]
        )
        for m in sizes
    ]
    axes[0, 0].loglog(sizes, distance, color=COOL, marker=".", label="DCO")
    axes[0, 0].set(xlabel="calibration rows m", ylabel="mean |threshold − λ*|")
    axes[0, 1].set(xlabel="calibration rows m", ylabel="coverage of BQ − coverage of DCO")
    for axis in axes[0]:
        axis.legend(fontsize=7.5, frameon=False)
    return save(figure, folder, name)


def tuning_regret(
    lines: Mapping[str, Mapping[int, float]], *, folder: Path, name: str
) -> list[Path]:
    """Regret and its bounds against the number of tuning rows, on logarithmic axes."""
    figure, axes = new_figure(width=5.6, height=3.6)
    colours = [COOL, GREEN, QUIET, WARM, INK]
    for colour, (label, line) in zip(colours, lines.items(), strict=False):
        points = {n: value for n, value in line.items() if value > 0}
        axes[0, 0].loglog(
            list(points), list(points.values()), marker=".", color=colour, label=label
        )
    axes[0, 0].set(xlabel="tuning rows n", ylabel="mean width above the best")
    axes[0, 0].legend(fontsize=7.5, frameon=False)
    return save(figure, folder, name)


def pipeline(folder: Path, name: str = "pipeline") -> list[Path]:
    """The paper's diagram: four disjoint roles; structure flows right, the tuning threshold stops,
    calibration certifies.
    """
    patches = require("matplotlib.patches", extra="report")
    figure, axes = new_figure(width=9.0, height=3.1)
    axis = axes[0, 0]
    axis.set_axis_off()
    axis.set(xlim=(0, 9), ylim=(0, 3.1))
    boxes = (
        (0.1, "train", "fit models", "candidates φ ∈ Φ", QUIET),
        (2.4, "tune", "smallest mean size\nwith risk ≤ α", "structure φ̂", GREEN),
        (4.7, "calibrate", "sealed until now;\nk-th smallest score", "threshold q̂", WARM),
        (7.0, "test", "C(x) = {y : S(x, y) ≤ q̂}", "sets with coverage ≥ 1 − α", COOL),
    )
    for x, role, does, gives, colour in boxes:
        axis.add_patch(
            patches.FancyBboxPatch(
                (x, 1.0),
                1.85,
                1.35,
                boxstyle="round,pad=0.02,rounding_size=0.08",
                facecolor=colour,
                alpha=0.16,
                edgecolor=colour,
                linewidth=1.2,
            )
        )
        axis.text(x + 0.925, 2.13, role, ha="center", va="center", weight="bold", fontsize=11)
        axis.text(x + 0.925, 1.68, does, ha="center", va="center", fontsize=8.5)
        axis.text(x + 0.925, 1.2, gives, ha="center", va="center", fontsize=8.5, style="italic")
    for x in (1.97, 4.27, 6.57):
        axis.annotate(
            "", xy=(x + 0.4, 1.68), xytext=(x, 1.68), arrowprops={"arrowstyle": "-|>", "color": INK}
        )
    axis.annotate(
        "",
        xy=(3.32, 0.5),
        xytext=(3.32, 0.97),
        arrowprops={"arrowstyle": "-|>", "color": QUIET, "linestyle": ":"},
    )
    axis.text(
        3.32,
        0.33,
        "tuning threshold: dropped (DirectTune deploys it, without a guarantee)",
        ha="center",
        fontsize=8,
    )
    axis.annotate(
        "",
        xy=(5.62, 2.4),
        xytext=(1.02, 2.4),
        arrowprops={"arrowstyle": "-|>", "color": QUIET, "connectionstyle": "arc3,rad=-0.12"},
    )
    axis.text(3.32, 2.83, "optional refit of φ̂ on train + tune", ha="center", fontsize=8)
    return save(figure, folder, name)


def gains(
    bars: Mapping[str, Mapping[str, tuple[float, float, float]]],
    *,
    folder: Path,
    name: str,
    note: str = "",
) -> list[Path]:
    """Reduction of mean width against the paper's DCO in %, with 95 % intervals: groups of bars by
    target.
    """
    figure, axes = new_figure(width=6.4, height=3.4)
    axis = axes[0, 0]
    targets, steps = list(bars), list(next(iter(bars.values())))
    colours = [QUIET, COOL, GREEN, WARM, INK]
    width = 0.8 / len(steps)
    for place, step in enumerate(steps):
        at = np.arange(len(targets)) + (place - (len(steps) - 1) / 2) * width
        middle, low, high = (
            np.array([bars[target][step][part] for target in targets]) for part in range(3)
        )
        axis.bar(
            at, middle, width * 0.92, color=colours[place % len(colours)], alpha=0.7, label=step
        )
        axis.errorbar(
            at,
            middle,
            [middle - low, high - middle],
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
    return save(figure, folder, name, note)
