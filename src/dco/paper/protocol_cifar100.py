"""Appendix C.3 to the letter: the paper's threshold grid on CIFAR-100, and its split ratios on
standardised features.
"""

from __future__ import annotations

from dataclasses import dataclass

from dco.datasets import CIFAR100_FEATURES
from dco.paper import paper_findings, paper_values
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
from dco.paper.experiment import (
    Experiment,
    Options,
    Row,
    SplitRecords,
    group_by,
    needs_file,
    rows_of,
)
from dco.paper.heads import CANDIDATE_BY_NAME
from dco.paper.paper_values import NOT_IN_PAPER
from dco.paper.tables import ResultTable, TableRow, difference_in_standard_errors, join_sentences
from dco.paper.threshold_grid import GRID_DCO, THRESHOLDS

EXACT = "exact thresholds"
# two ways to search for the threshold of each candidate on the tuning rows
DCO_VARIANTS = {EXACT: DCO, f"{THRESHOLDS} thresholds": GRID_DCO}


@dataclass(frozen=True)
class VariantOutcome(Outcome):
    """The outcome of DCO-Warmstart with exact thresholds, or with those of the paper's grid."""

    variant: str


def run_split(seed: int, options: Options) -> list[Row]:
    """Run DCO-Warmstart on one split of CIFAR-100, with exact thresholds and with the paper's grid.

    On tuning rows it searches the best threshold of each candidate: of all thresholds, or of 80.
    It runs at every level on standardised and on raw features. On standardised ones it also runs
    with other shares of tuning rows; the experiment "split-ratio" does so on raw ones.
    """
    scale = CIFAR100.scale_of(options)
    role_sizes = scale.role_sizes
    split = draw_split(CIFAR100.rows(options), role_sizes, seed=seed, is_stratified=False)

    rows: list[Row] = []
    for features in ("standardised", "raw"):
        fitter = HeadFitter(split, features, seed, scale.training)
        score_tables = fitter.fit_on_train(CANDIDATE_BY_NAME)
        for alpha in options.alphas:
            task = make_task(score_tables, role_sizes, alpha=alpha)
            for variant, method in DCO_VARIANTS.items():
                outcome = measure("DCO-Warmstart", method(task), features=features)
                rows.append(VariantOutcome(**outcome.cells(), variant=variant))
            if features == "standardised":
                rows += run_ratios(score_tables, role_sizes, alpha=alpha, features=features)
    return rows


def make_tables(records: SplitRecords, options: Options) -> list[ResultTable]:
    """Make the table of the threshold grid, and that of split ratios on standardised features.

    At other levels than the paper's there are no ratios to set beside ours.
    """
    tables = [grid_table(records, options)]
    study = CIFAR100.with_note_on_backbone(options)
    ratios = ratio_beside_table(study, records, options, "standardised")
    if ratios.rows:
        tables.append(ratios)
    return tables


def grid_table(records: SplitRecords, options: Options) -> ResultTable:
    """Make the table of DCO-Warmstart with two ways to search thresholds on the tuning rows.

    "Exact thresholds" searches all of them, "80 thresholds" the paper's grid. Both stand beside the
    paper's results on CIFAR-100 (Table 7). Each of `records` has the outcomes of one split.
    """
    outcomes_of = group_by(
        rows_of(records, VariantOutcome), key=lambda row: (row.features, row.alpha, row.variant)
    )
    rows: list[TableRow] = []
    for features in FEATURES:
        for alpha in options.alphas:
            exact_outcomes = outcomes_of[features, alpha, EXACT]
            for variant in DCO_VARIANTS:
                outcomes = outcomes_of[features, alpha, variant]
                rows.append(describe_variant(outcomes, exact_outcomes))

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
    study = CIFAR100.with_note_on_backbone(options)
    caption = join_sentences(
        describe_splits(study, records, options), grid, other_winner_column, off_column
    )
    title = "The paper's protocol to the letter: thresholds on CIFAR-100"
    return ResultTable.of(title, caption, rows)


def describe_variant(
    outcomes: list[VariantOutcome], exact_outcomes: list[VariantOutcome]
) -> TableRow:
    """Make the row of DCO-Warmstart with one way to search thresholds, beside the paper's results.

    `outcomes` has one outcome for each split. `exact_outcomes` are those of an exact search in the
    same splits: the last column counts the splits in which the two chose another candidate.
    """
    first = outcomes[0]
    coverage = mean_coverage(outcomes)
    paper = paper_values.CIFAR100.get((first.alpha, "DCO-Warmstart"), NOT_IN_PAPER)
    pairs = zip(outcomes, exact_outcomes, strict=True)
    n_other_winner = sum(outcome.chosen != exact.chosen for outcome, exact in pairs)
    return {
        "features": first.features,
        "target": 1 - first.alpha,
        "thresholds": first.variant,
        "coverage": coverage,
        "paper coverage": paper.coverage,
        "off": difference_in_standard_errors(coverage, paper.coverage, len(outcomes)),
        "size": mean_set_size(outcomes),
        "paper size": paper.size,
        "P95": mean_p95(outcomes),
        "other winner": n_other_winner,
    }


EXPERIMENTS = (
    Experiment(
        name="protocol-cifar100",
        summary="CIFAR-100 with the paper's threshold grid, and its split ratios on standardised "
        "features.",
        needs=CIFAR100_FEATURES,
        minutes=6.5,
        run_split=run_split,
        tables=make_tables,
        row_kinds=(VariantOutcome, RatioOutcome),
        missing=needs_file("CIFAR-100", CIFAR100_FEATURES),
        alphas=LEVELS,
        is_of_images=True,
        quick_splits=2,
        findings=paper_findings.PROTOCOL_CIFAR100,
    ),
)
