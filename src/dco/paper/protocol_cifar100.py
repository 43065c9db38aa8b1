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
    HeadFitter,
    Outcome,
    RatioOutcome,
    draw_split,
    make_task,
    measure,
    run_ratios,
)
from dco.paper.classification_tables import (
    describe_splits,
    mean_coverage,
    mean_p95,
    mean_set_size,
    ratio_beside_table,
)
from dco.paper.experiment import Experiment, Options, Records, Row, group_by, needs_file, rows_of
from dco.paper.heads import CANDIDATE_BY_NAME
from dco.paper.tables import Cells, ResultTable, join_sentences, standard_errors
from dco.paper.threshold_grid import GRID_DCO, THRESHOLDS

EXACT = "exact thresholds"
# two ways to search for the threshold of each candidate on the tuning rows
DCO_VARIANTS = {EXACT: DCO, f"{THRESHOLDS} thresholds": GRID_DCO}


@dataclass(frozen=True)
class VariantOutcome(Outcome):
    """The outcome of DCO-Warmstart with exact thresholds, or with those of the paper's grid."""

    variant: str


def run_split(seed: int, options: Options) -> list[Row]:
    """Run DCO-Warmstart with exact thresholds and with the paper's grid, on one split of CIFAR-100.

    Both run at every level on standardised and on raw features. On standardised ones DCO-Warmstart
    also runs with the pool divided at other ratios; the experiment "split-ratio" has raw ones.
    """
    scale = CIFAR100.scale_of(options)
    sizes = scale.sizes
    split = draw_split(CIFAR100.rows(options), sizes, seed=seed, is_stratified=False)

    rows: list[Row] = []
    for features in ("standardised", "raw"):
        fitter = HeadFitter(split, features, seed, scale.training)
        score_tables = fitter.fit_on_train(CANDIDATE_BY_NAME)
        for alpha in options.alphas:
            task = make_task(score_tables, sizes, alpha=alpha)
            for variant, method in DCO_VARIANTS.items():
                outcome = measure("DCO-Warmstart", method(task), features=features)
                rows.append(VariantOutcome(**outcome.cells(), variant=variant))
            if features == "standardised":
                rows += run_ratios(score_tables, sizes, alpha=alpha, features=features)
    return rows


def make_tables(records: Records, options: Options) -> list[ResultTable]:
    """Make the table of the threshold grid, and that of split ratios on standardised features.

    At other levels than the paper's there are no ratios to set beside ours.
    """
    tables = [grid_table(records, options)]
    study = CIFAR100.with_note_on_backbone(options)
    ratios = ratio_beside_table(study, records, options, "standardised")
    if ratios.rows:
        tables.append(ratios)
    return tables


def grid_table(records: Records, options: Options) -> ResultTable:
    """Make the table of DCO-Warmstart with exact thresholds and with the paper's grid of them.

    Both stand beside the paper's figures on CIFAR-100 (Table 7). `records` are of the splits that
    `run_split` ran.
    """
    outcomes_of = group_by(
        rows_of(records, VariantOutcome), key=lambda row: (row.features, row.alpha, row.variant)
    )
    rows: list[Cells] = []
    for features in FEATURES:
        for alpha in options.alphas:
            exact = outcomes_of[features, alpha, EXACT]
            for variant in DCO_VARIANTS:
                rows.append(describe_variant(outcomes_of[features, alpha, variant], exact))

    grid = (
        f"DCO-Warmstart, 16 candidates. The grid has {THRESHOLDS} quantiles of each candidate's "
        "tuning scores."
    )
    other_winner_column = (
        "'Other winner': splits in which another candidate is chosen than with exact thresholds."
    )
    off_column = (
        "'Off': our mean coverage less the paper's, in standard errors of the difference; the "
        "paper's sizes are of ResNet-50's features."
    )
    caption = join_sentences(
        describe_splits(CIFAR100.with_note_on_backbone(options), records, options),
        grid,
        other_winner_column,
        off_column,
    )
    return ResultTable.of(
        "The paper's protocol to the letter: thresholds on CIFAR-100", caption, rows
    )


def describe_variant(outcomes: list[VariantOutcome], exact: list[VariantOutcome]) -> Cells:
    """Make the row of one variant of DCO-Warmstart at one level, beside the paper's figures.

    `outcomes` are those of the variant in every split. `exact` are those with exact thresholds in
    the same splits, to count in how many of them the variant chose another candidate.
    """
    first = outcomes[0]
    coverage = mean_coverage(outcomes)
    n_other_winner = sum(
        outcome.chosen != exact_outcome.chosen
        for outcome, exact_outcome in zip(outcomes, exact, strict=True)
    )
    cells: Cells = {
        "features": first.features,
        "target": 1 - first.alpha,
        "thresholds": first.variant,
        "coverage": coverage,
        "paper coverage": None,
        "off": None,
        "size": mean_set_size(outcomes),
        "paper size": None,
        "P95": mean_p95(outcomes),
        "other winner": n_other_winner,
    }
    paper = paper_values.CIFAR100.get((first.alpha, "DCO-Warmstart"))
    if paper is not None:
        cells["paper coverage"] = paper.coverage
        cells["off"] = standard_errors(coverage, paper.coverage, len(outcomes))
        cells["paper size"] = paper.size
    return cells


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
