"""Figures 3 and 4, and ours beside them; each names the features below."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dco.paper import figures
from dco.paper.classification_splits import METHOD_BY_TITLE, MethodOutcome, Study
from dco.paper.classification_tables import outcomes_by_method, outcomes_by_ratio, sizes_of
from dco.paper.coverage_z import target_coverage
from dco.paper.experiment import Options, SplitRecords
from dco.paper.figures import Series
from dco.paper.paper_figures import MethodOverSplits, four_panels, two_histograms

# The methods of Figures 3 and 4, and their names there.
FIGURE_3 = {"BQ": "BQ", "DCO-Warmstart": "DCO", "DirectTune, searched Φ": "DirectTune"}
FIGURE_4 = {"BQ": "BQ", "DCO-Warmstart": "DCO"}
WITH_LAW = ("BQ", "DCO-PAC", "DCO-Warmstart")
BY_LEVEL = (
    "BQ",
    "DCO-PAC",
    "Split CP, φ fixed, whole pool",
    "DCO-Warmstart",
    "DCO, refit",
    "DirectTune, searched Φ",
)


def main_figures(records: SplitRecords, options: Options, *, study: Study) -> figures.Files:
    """Draw the main figures of a study at every level, on raw features.

    Coverage and mean size over splits, and where coverage has a law (not with stratified splits)
    its histogram against the law; at the first level P95 sizes too.
    """
    drawn: figures.Files = {}
    for alpha in options.alphas:
        drawn |= draw_coverage_and_size(records, alpha, study)
        if alpha == options.alphas[0]:
            drawn |= draw_coverage_and_p95(records, alpha, study)
            drawn |= draw_figures_of_paper(records, alpha, study)
        if not study.is_stratified:
            drawn |= draw_coverage_law(records, alpha, study)
    return drawn


def draw_figures_of_paper(records: SplitRecords, alpha: float, study: Study) -> figures.Files:
    """Draw Figures 3 and 4 of the paper, with the methods that it shows there."""
    outcomes = outcomes_by_method(records, alpha, "raw")

    def over_splits(names: dict[str, str]) -> dict[str, MethodOverSplits]:
        return {name: to_method_over_splits(outcomes[method]) for method, name in names.items()}

    target = target_coverage(alpha)
    drawn = four_panels(over_splits(FIGURE_3), target=target, name="figure-3", note=study.data_note)
    return drawn | two_histograms(
        over_splits(FIGURE_4), target=target, name="figure-4", note=study.data_note
    )


def to_method_over_splits(rows: list[MethodOutcome]) -> MethodOverSplits:
    """Take what Figures 3 and 4 show of the outcomes of one method."""
    return MethodOverSplits(
        guarantee=METHOD_BY_TITLE[rows[0].method].guarantee,
        coverage=[row.coverage for row in rows],
        size=sizes_of(rows),
        p95=[row.p95 for row in rows],
    )


def draw_coverage_and_size(records: SplitRecords, alpha: float, study: Study) -> figures.Files:
    """Draw coverage and mean set size of every method over splits."""
    outcomes = outcomes_by_method(records, alpha, "raw")
    level = target_coverage(alpha)
    return figures.coverage_and_size(
        {method: to_series(rows) for method, rows in outcomes.items()},
        target=level,
        size="mean set size",
        name=f"coverage-and-size-{level:g}",
        note=study.data_note,
    )


def draw_coverage_and_p95(records: SplitRecords, alpha: float, study: Study) -> figures.Files:
    """Draw coverage and P95 set size (the 95 % quantile of sizes) of every method over splits."""
    outcomes = outcomes_by_method(records, alpha, "raw")
    level = target_coverage(alpha)
    with_p95 = {
        method: replace(to_series(rows), size=[row.p95 for row in rows])
        for method, rows in outcomes.items()
    }
    return figures.coverage_and_size(
        with_p95,
        target=level,
        size="P95 set size",
        name=f"coverage-and-p95-{level:g}",
        note=study.data_note,
    )


def draw_coverage_law(records: SplitRecords, alpha: float, study: Study) -> figures.Files:
    """Draw histograms of coverage over splits against its law, for three methods (`WITH_LAW`)."""
    outcomes = outcomes_by_method(records, alpha, "raw")
    level = target_coverage(alpha)
    return figures.coverage_histograms(
        {method: to_series(outcomes[method]) for method in WITH_LAW},
        target=level,
        name=f"coverage-law-{level:g}",
        note=study.data_note,
    )


def level_figures(records: SplitRecords, options: Options, *, study: Study) -> figures.Files:
    """Draw the mean set size of six methods (`BY_LEVEL`) against the target coverage.

    Features are raw; the colour of a method tells its guarantee.
    """
    curves: dict[str, dict[float, float]] = {method: {} for method in BY_LEVEL}
    for alpha in options.alphas:
        outcomes = outcomes_by_method(records, alpha, "raw")
        for method in BY_LEVEL:
            curves[method][target_coverage(alpha)] = float(np.mean(sizes_of(outcomes[method])))
    return figures.size_against_level(
        curves,
        {method: METHOD_BY_TITLE[method].guarantee for method in BY_LEVEL},
        size="mean set size",
        name="size-against-level",
        note=study.data_note,
    )


def ratio_figures(records: SplitRecords, options: Options, *, study: Study) -> figures.Files:
    """Draw how mean size and the spread of coverage depend on the share of rows that tune.

    With the ratio "33/67", the paper's, a third of the tuning and calibration rows tunes. Sizes are
    drawn as multiples of those at this ratio.
    """
    sizes: dict[float, dict[str, list[float]]] = {}  # by target, then by ratio: of each split
    coverages: dict[float, dict[str, list[float]]] = {}
    for alpha in options.alphas:
        target = target_coverage(alpha)
        sizes[target] = {}
        coverages[target] = {}
        for ratio, outcomes in outcomes_by_ratio(records, alpha, "raw").items():
            sizes[target][ratio] = sizes_of(outcomes)
            coverages[target][ratio] = [outcome.coverage for outcome in outcomes]
    return figures.split_ratios(
        sizes, coverages, base="33/67", name="split-ratio", note=study.data_note
    )


def to_series(rows: list[MethodOutcome]) -> Series:
    """Take what figures show of the outcomes of one method."""
    first = rows[0]  # rank and numbers of rows are the same in every split
    return Series(
        guarantee=METHOD_BY_TITLE[first.method].guarantee,
        coverage=[row.coverage for row in rows],
        size=sizes_of(rows),
        rank=first.rank,
        n=first.n,
        n_test=first.n_test,
    )
