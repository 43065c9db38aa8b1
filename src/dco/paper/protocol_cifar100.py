"""Appendix C.3 to the letter: the paper's threshold grid on CIFAR-100, and its split ratios on
standardised features.
"""

from __future__ import annotations

from dataclasses import dataclass

from dco.datasets import CIFAR100_FEATURES
from dco.paper import paper_values
from dco.paper.classification import CIFAR100
from dco.paper.classification_splits import (
    DCO,
    FEATURES,
    LEVELS,
    HeadClass,
    Outcome,
    RatioOutcome,
    deal,
    make_task,
    measure,
    run_ratios,
)
from dco.paper.classification_tables import (
    describe,
    mean_coverage,
    mean_p95,
    mean_set_size,
    ratio_beside_table,
)
from dco.paper.experiment import Experiment, Options, Records, Row, group_by, needs_file, rows_of
from dco.paper.heads import BY_NAME, FIXED
from dco.paper.tables import Cells, ResultTable, standard_errors
from dco.paper.threshold_grid import GRID_DCO, THRESHOLDS

EXACT = "exact thresholds"
VARIANTS = {EXACT: DCO, f"{THRESHOLDS} thresholds": GRID_DCO}


@dataclass(frozen=True)
class VariantOutcome(Outcome):
    """The outcome of DCO-Warmstart with exact thresholds, or with those of the paper's grid."""

    variant: str


def run_split(seed: int, options: Options) -> list[Row]:
    """Run DCO-Warmstart on raw and standardised features with exact thresholds and with a grid; and
    at every split ratio on standardised ones.
    """
    scale = CIFAR100.scale_of(options)
    sizes = scale.sizes
    dealt = deal(CIFAR100.rows(options), sizes, seed=seed, is_stratified=False)

    rows: list[Row] = []
    for features in reversed(FEATURES):
        heads = HeadClass(dealt, features, seed, scale.training)
        tables = heads.score(BY_NAME)
        for alpha in options.alphas:
            task = make_task(
                tables, n_tune=sizes.tune, n_pool=sizes.pool, fixed=FIXED.name, alpha=alpha
            )
            for variant, method in VARIANTS.items():
                outcome = measure("DCO-Warmstart", method(task), features=features)
                rows.append(VariantOutcome(**outcome.cells(), variant=variant))
            if features == "standardised":
                rows += run_ratios(tables, sizes, alpha=alpha, features=features)
    return rows


def make_tables(records: Records, options: Options) -> list[ResultTable]:
    """Show the threshold grid, and the split ratios on standardised features."""
    ratios = ratio_beside_table(CIFAR100.on(options), records, options, "standardised")
    # at other levels than the paper's there is nothing to set beside it
    return [grid_table(records, options), *([ratios] if ratios.rows else [])]


def grid_table(records: Records, options: Options) -> ResultTable:
    """Show DCO-Warmstart with exact thresholds and with a grid, beside the paper's row."""
    groups = group_by(
        rows_of(records, VariantOutcome), key=lambda row: (row.features, row.alpha, row.variant)
    )
    rows: list[Cells] = []
    for features in FEATURES:
        for alpha in options.alphas:
            paper = paper_values.CIFAR100.get((alpha, "DCO-Warmstart"))
            exact = groups[features, alpha, EXACT]
            for variant in VARIANTS:
                same = groups[features, alpha, variant]
                coverage = mean_coverage(same)
                off = standard_errors(coverage, paper.coverage, len(same)) if paper else None
                rows.append(
                    {
                        "features": features,
                        "target": 1 - alpha,
                        "thresholds": variant,
                        "coverage": coverage,
                        "paper coverage": paper.coverage if paper else None,
                        "off": off,
                        "size": mean_set_size(same),
                        "paper size": paper.size if paper else None,
                        "P95": mean_p95(same),
                        "other winner": sum(
                            row.chosen != other.chosen
                            for row, other in zip(same, exact, strict=True)
                        ),
                    }
                )
    return ResultTable.of(
        "The paper's protocol to the letter: thresholds on CIFAR-100",
        describe(CIFAR100.on(options), records, options)
        + f"DCO-Warmstart, 16 candidates. The grid has {THRESHOLDS} quantiles of each candidate's "
        "tuning scores. 'Other winner': splits in which another candidate is chosen than with "
        "exact thresholds. 'Off': our mean coverage less the paper's, in standard errors of the "
        "difference; the paper's sizes are of ResNet-50's features.",
        rows,
    )


EXPERIMENTS = (
    Experiment(
        name="protocol-cifar100",
        summary="CIFAR-100 with the paper's threshold grid, and its split ratios on standardised "
        "features.",
        needs=CIFAR100_FEATURES,
        minutes=12.0,
        run_split=run_split,
        tables=make_tables,
        row_kinds=(VariantOutcome, RatioOutcome),
        missing=needs_file("CIFAR-100", CIFAR100_FEATURES),
        alphas=LEVELS,
        is_of_images=True,
        quick_splits=2,
    ),
)
