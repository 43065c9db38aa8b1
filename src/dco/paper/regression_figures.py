"""Figures 2, 5 and 6, and ours beside them: coverage and its law, width by level."""

from __future__ import annotations

import numpy as np

from dco.paper import figures
from dco.paper.coverage_z import target_coverage
from dco.paper.experiment import Options, SplitRecords
from dco.paper.figures import Series
from dco.paper.regression_splits import PRIOR_SCALES, Outcome, Study
from dco.paper.regression_tables import outcomes_by_method

WIDTH = "mean width / sd of training targets"
FIGURE_2 = (
    "BQ",
    "Split CP (ridge)",
    "CQR (gradient boosting)",
    "CQR (histogram boosting)",
    "DCO-Warmstart",
    "DirectTune, fixed φ",
)
FIGURE_5 = ("Split CP (ridge)", "BQ")
WITH_LAW = ("BQ", "DCO-PAC", "DCO-Warmstart")
# The curves of the figure of width by level.
BY_LEVEL = (
    "BQ",
    "DCO-PAC",
    "Split CP, φ fixed, whole pool",
    "DCO-Warmstart",
    "DCO, refit",
    "DirectTune, searched Φ",
    "Split CP (ridge)",
    "CQR (gradient boosting)",
    "CQR (histogram boosting)",
)


def make_figures(records: SplitRecords, options: Options, *, study: Study) -> figures.Files:
    """Draw the figures of a data set, as files by name: those of each level, and width by level."""
    has_several_levels = len(options.alphas) > 1
    files: figures.Files = {}
    for alpha in options.alphas:
        suffix = f"-{target_coverage(alpha):.2f}" if has_several_levels else ""
        files |= figures_of_level(records, alpha, suffix)
        if study.name == "diabetes":
            files |= diabetes_figures(records, alpha, suffix)
    if has_several_levels:
        files |= width_by_level(records, options)
    return files


def series_by_method(records: SplitRecords, alpha: float) -> dict[str, Series]:
    """Return what figures show of each method at one level."""
    return {
        method: to_series(outcomes)
        for method, outcomes in outcomes_by_method(records, alpha).items()
    }


def figures_of_level(records: SplitRecords, alpha: float, suffix: str) -> figures.Files:
    """Draw coverage and width of every method over splits, and coverage against its law.

    `suffix` is appended to the names of the files.
    """
    series = series_by_method(records, alpha)
    files = figures.coverage_and_size(
        series, target=target_coverage(alpha), size=WIDTH, name=f"coverage-and-width{suffix}"
    )
    files |= figures.coverage_histograms(
        {method: series[method] for method in WITH_LAW},
        target=target_coverage(alpha),
        name=f"coverage-law{suffix}",
    )
    return files


def diabetes_figures(records: SplitRecords, alpha: float, suffix: str) -> figures.Files:
    """Draw the figures that the paper has for Diabetes alone, at one level.

    Figure 2 has the five methods of the paper, Figure 5 split conformal prediction and BQ (Bayesian
    quadrature), Figure 6 the two prior scales of the Bayesian model. `suffix` ends the names of the
    files.
    """
    series = series_by_method(records, alpha)
    wide_scale, narrow_scale = [f"c = {scale:g}" for scale in PRIOR_SCALES]
    files = figures.prior_scales(
        (wide_scale, series[f"DCO, φ fixed ({wide_scale})"]),
        (narrow_scale, series[f"DCO, φ fixed ({narrow_scale})"]),
        name=f"figure-6{suffix}",
    )
    for number, methods in {2: FIGURE_2, 5: FIGURE_5}.items():
        files |= figures.coverage_and_size(
            {method: series[method] for method in methods},
            target=target_coverage(alpha),
            size=WIDTH,
            name=f"figure-{number}{suffix}",
        )
    return files


def width_by_level(records: SplitRecords, options: Options) -> figures.Files:
    """Draw the mean width of each method as a curve over the levels."""
    outcomes_by_level = {alpha: outcomes_by_method(records, alpha) for alpha in options.alphas}
    first_level = outcomes_by_level[options.alphas[0]]

    curves: dict[str, dict[float, float]] = {}
    guarantees: dict[str, str] = {}
    for method in BY_LEVEL:
        if method not in first_level:
            continue  # a baseline that only Diabetes has
        guarantees[method] = first_level[method][0].guarantee
        curves[method] = {
            target_coverage(alpha): float(np.mean([row.width for row in by_method[method]]))
            for alpha, by_method in outcomes_by_level.items()
        }
    return figures.size_against_level(curves, guarantees, size=WIDTH, name="width-against-level")


def to_series(outcomes: list[Outcome]) -> Series:
    """Collect what figures show of one method: coverage and width of each split, and its law.

    The rank and the numbers of rows are the same on all splits.
    """
    first = outcomes[0]
    return Series(
        guarantee=first.guarantee,
        coverage=[row.coverage for row in outcomes],
        size=[row.width for row in outcomes],
        rank=first.rank,
        n=first.n,
        n_test=first.n_test,
    )
