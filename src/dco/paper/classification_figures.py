"""The figures of the classification experiments, from the same records as the tables; each names
the features below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dco.paper import figures
from dco.paper.beyond_classification_tables import better_dco
from dco.paper.classification_splits import METHOD_OF, Study
from dco.paper.classification_tables import compared, methods_of, ratios_of
from dco.paper.coverage_z import target
from dco.paper.experiment import Options, Records, Row, column

SHOWN = (
    "BQ",
    "DCO-PAC",
    "Split CP, φ fixed, whole pool",
    "DCO-Warmstart",
    "DCO, refit",
    "DirectTune, searched Φ",
)


def main_figures(records: Records, options: Options, folder: Path, *, study: Study) -> list[Path]:
    """Coverage and mean size over splits, coverage against its law; P95 sizes at the first level;
    raw features.
    """
    paths: list[Path] = []
    for alpha in options.alphas:
        found, level = methods_of(records, alpha, "raw"), target(alpha)
        shared: dict[str, Any] = {"target": level, "folder": folder, "note": study.features}
        for key, size in (("size", "mean set size"), ("p95", "P95 set size")):
            if key == "size" or alpha == options.alphas[0]:
                drawn, name = _drawable(found, key), f"coverage-and-{key}-{level:g}"
                paths += figures.coverage_and_size(drawn, size=size, name=name, **shared)
        if not study.stratified:
            with_law = {method: found[method] for method in ("BQ", "DCO-PAC", "DCO-Warmstart")}
            paths += figures.coverage_histograms(
                _drawable(with_law, "size"), name=f"coverage-law-{level:g}", **shared
            )
    return paths


def level_figures(records: Records, options: Options, folder: Path, *, study: Study) -> list[Path]:
    """Mean size against the target coverage; raw features."""
    curves = {
        method: {
            target(alpha): float(np.mean(column(methods_of(records, alpha, "raw")[method], "size")))
            for alpha in options.alphas
        }
        for method in SHOWN
    }
    guarantees = {method: str(METHOD_OF[method].guarantee) for method in SHOWN}
    return figures.size_against_level(
        curves,
        guarantees,
        size="mean set size",
        folder=folder,
        name="size-against-level",
        note=study.features,
    )


def ratio_figures(records: Records, options: Options, folder: Path, *, study: Study) -> list[Path]:
    """Mean size and the spread of coverage against the share of tuning rows, a line for each
    level.
    """
    figure, axes = figures.new_figure(2)
    for alpha in options.alphas:
        found = ratios_of(records, alpha)
        places = np.arange(len(found))
        sizes = np.array([np.mean(column(rows, "size")) for rows in found.values()])
        errors = np.array(
            [
                np.std(column(rows, "size"), ddof=min(1, len(rows) - 1)) / len(rows) ** 0.5
                for rows in found.values()
            ]
        )
        spread = [
            np.std(column(rows, "coverage"), ddof=min(1, len(rows) - 1)) for rows in found.values()
        ]
        label = f"target {target(alpha):g}"
        axes[0, 0].errorbar(
            places,
            sizes / sizes[1],
            errors / sizes[1],
            marker="o",
            markersize=4,
            capsize=2,
            label=label,
        )
        axes[0, 1].plot(places, spread, marker="o", markersize=4, label=label)
        for axis in axes[0]:
            axis.set_xticks(places, list(found))
            axis.set_xlabel("tuning / calibration rows, %")
    axes[0, 0].set_ylabel("mean size / mean size at 33/67")
    axes[0, 1].set_ylabel("sd of test coverage over splits")
    axes[0, 0].legend(fontsize=7.5, frameon=False)
    return figures.save(figure, folder, "split-ratio", study.features)


def gain_figures(records: Records, options: Options, folder: Path, *, study: Study) -> list[Path]:
    """How much smaller the sets of the stronger class are than those of the paper's DCO."""
    bars: dict[str, dict[str, tuple[float, float, float]]] = {}
    for alpha in options.alphas:
        _, base = better_dco(records, alpha)
        ours = methods_of(records, alpha, "square roots")
        changes = {method: compared(rows, base)[:3] for method, rows in ours.items()}
        bars[f"{target(alpha):g}"] = {
            method: (-middle, -high, -low) for method, (middle, low, high) in changes.items()
        }
    return figures.gains(bars, folder=folder, name="gains", note=study.features)


def _drawable(found: Mapping[str, Sequence[Row]], key: str) -> dict[str, list[dict[str, Any]]]:
    """Rows with the names that the shared figures read."""
    return {
        method: [
            {**row, "width": row[key], "guarantee": METHOD_OF[method].guarantee} for row in rows
        ]
        for method, rows in found.items()
    }
