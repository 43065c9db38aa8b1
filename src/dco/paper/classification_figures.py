"""Figures 3 and 4, and ours beside them; each names the features below."""

from __future__ import annotations

import numpy as np

from dco.paper import figures
from dco.paper.classification_splits import METHOD_OF, MethodOutcome, Study
from dco.paper.classification_tables import outcomes_at, ratios_at, sizes_of
from dco.paper.coverage_z import target
from dco.paper.experiment import Options, Records
from dco.paper.figures import Series

WITH_LAW = ("BQ", "DCO-PAC", "DCO-Warmstart")
BY_LEVEL = (
    "BQ",
    "DCO-PAC",
    "Split CP, φ fixed, whole pool",
    "DCO-Warmstart",
    "DCO, refit",
    "DirectTune, searched Φ",
)


def main_figures(records: Records, options: Options, *, study: Study) -> figures.Files:
    """Draw coverage and mean size over splits and coverage against its law, on raw features; P95
    sizes at the first level.
    """
    drawn: figures.Files = {}
    for alpha in options.alphas:
        outcomes = outcomes_at(records, alpha, "raw")
        level = target(alpha)
        by_size = {method: to_series(rows, use_p95=False) for method, rows in outcomes.items()}
        drawn |= figures.coverage_and_size(
            by_size,
            target=level,
            size="mean set size",
            name=f"coverage-and-size-{level:g}",
            note=study.features,
        )
        if alpha == options.alphas[0]:
            by_p95 = {method: to_series(rows, use_p95=True) for method, rows in outcomes.items()}
            drawn |= figures.coverage_and_size(
                by_p95,
                target=level,
                size="P95 set size",
                name=f"coverage-and-p95-{level:g}",
                note=study.features,
            )
        if not study.is_stratified:
            drawn |= figures.coverage_histograms(
                {method: by_size[method] for method in WITH_LAW},
                target=level,
                name=f"coverage-law-{level:g}",
                note=study.features,
            )
    return drawn


def level_figures(records: Records, options: Options, *, study: Study) -> figures.Files:
    """Draw mean size against the target coverage, on raw features."""
    curves: dict[str, dict[float, float]] = {method: {} for method in BY_LEVEL}
    for alpha in options.alphas:
        outcomes = outcomes_at(records, alpha, "raw")
        for method in BY_LEVEL:
            curves[method][target(alpha)] = float(np.mean(sizes_of(outcomes[method])))
    return figures.size_against_level(
        curves,
        {method: METHOD_OF[method].guarantee for method in BY_LEVEL},
        size="mean set size",
        name="size-against-level",
        note=study.features,
    )


def ratio_figures(records: Records, options: Options, *, study: Study) -> figures.Files:
    """Draw mean size and the spread of coverage against the share of tuning rows."""
    ratios = {target(alpha): ratios_at(records, alpha, "raw") for alpha in options.alphas}
    return figures.split_ratios(
        sizes={
            level: {ratio: sizes_of(rows) for ratio, rows in by_ratio.items()}
            for level, by_ratio in ratios.items()
        },
        coverages={
            level: {ratio: [row.coverage for row in rows] for ratio, rows in by_ratio.items()}
            for level, by_ratio in ratios.items()
        },
        base="33/67",
        name="split-ratio",
        note=study.features,
    )


def to_series(rows: list[MethodOutcome], *, use_p95: bool) -> Series:
    """Take what figures show of the outcomes of a method: mean or P95 sizes."""
    return Series(
        guarantee=METHOD_OF[rows[0].method].guarantee,
        coverage=[row.coverage for row in rows],
        size=[row.p95 for row in rows] if use_p95 else sizes_of(rows),
        rank=rows[0].rank,
        n=rows[0].n,
        n_test=rows[0].n_test,
    )
