"""Figures 2, 5 and 6, and ours beside them: coverage and its law, width by level."""

from __future__ import annotations

import numpy as np

from dco.paper import figures
from dco.paper.coverage_z import target
from dco.paper.experiment import Options, Records
from dco.paper.figures import Series
from dco.paper.regression_splits import PRIOR_SCALES, Outcome, Study
from dco.paper.regression_tables import outcomes_at

WIDTH = "mean width / sd of training targets"
PAPER_METHODS = ("Split CP (ridge)", "BQ")  # Figure 5
WITH_LAW = ("BQ", "DCO-PAC", "DCO-Warmstart")
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


def make_figures(records: Records, options: Options, *, study: Study) -> figures.Files:
    """Draw every figure of a study, at each level and by level."""
    drawn: figures.Files = {}
    for alpha in options.alphas:
        suffix = f"-{target(alpha):.2f}" if len(options.alphas) > 1 else ""
        drawn |= figures_of_level(records, alpha, suffix, is_diabetes=study.name == "diabetes")
    if len(options.alphas) > 1:
        drawn |= width_by_level(records, options)
    return drawn


def figures_of_level(
    records: Records, alpha: float, suffix: str, *, is_diabetes: bool
) -> figures.Files:
    """Draw coverage and width over splits and coverage against its law; for Diabetes also the
    prior scales, and split CP beside BQ.
    """
    series = {method: to_series(rows) for method, rows in outcomes_at(records, alpha).items()}
    level = target(alpha)

    drawn = figures.coverage_and_size(
        series, target=level, size=WIDTH, name=f"coverage-and-width{suffix}"
    )
    drawn |= figures.coverage_histograms(
        {method: series[method] for method in WITH_LAW}, target=level, name=f"coverage-law{suffix}"
    )
    if is_diabetes:
        first, second = (
            (f"c = {scale:g}", series[f"DCO, φ fixed (c = {scale:g})"]) for scale in PRIOR_SCALES
        )
        drawn |= figures.prior_scales(first, second, name=f"prior-scale{suffix}")
        drawn |= figures.coverage_and_size(
            {method: series[method] for method in PAPER_METHODS},
            target=level,
            size=WIDTH,
            name=f"split-cp-and-bq{suffix}",
        )
    return drawn


def width_by_level(records: Records, options: Options) -> figures.Files:
    """Draw the mean width of each method against the target."""
    outcomes = {alpha: outcomes_at(records, alpha) for alpha in options.alphas}
    first_level = outcomes[options.alphas[0]]
    methods = [method for method in BY_LEVEL if method in first_level]
    curves = {
        method: {
            target(alpha): float(np.mean([row.width for row in by_method[method]]))
            for alpha, by_method in outcomes.items()
        }
        for method in methods
    }
    guarantees = {method: first_level[method][0].guarantee for method in methods}
    return figures.size_against_level(curves, guarantees, size=WIDTH, name="width-against-level")


def to_series(rows: list[Outcome]) -> Series:
    """Take what figures show of the outcomes of a method."""
    return Series(
        guarantee=rows[0].guarantee,
        coverage=[row.coverage for row in rows],
        size=[row.width for row in rows],
        rank=rows[0].rank,
        n=rows[0].n,
        n_test=rows[0].n_test,
    )
