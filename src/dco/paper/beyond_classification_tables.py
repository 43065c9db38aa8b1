"""Beyond the paper: the tables of the stronger class for CIFAR-100.

Sizes against the paper's DCO, the gain in steps, the auto split, and what was chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from dco.paper import figures
from dco.paper.beyond_classification import FIXED_STRUCTURE, STRUCTURES, Structure
from dco.paper.classification_splits import (
    CALIBRATION_PART,
    DEVELOPMENT_ROWS,
    FEATURES,
    STRONG_AUTO_SPLIT,
    STRONG_FEATURES,
    STRONG_FIXED,
    STRONG_REFIT,
    STRONG_SEARCHED,
    AutoSplitOutcome,
    MethodOutcome,
    Study,
)
from dco.paper.classification_tables import (
    compare_method_with_theory,
    describe_splits,
    mean_coverage,
    mean_p95,
    mean_set_size,
    outcomes_by_method,
    sizes_of,
)
from dco.paper.coverage_z import target_coverage
from dco.paper.experiment import Options, SplitRecords
from dco.paper.figures import Interval
from dco.paper.growing_split import SETTLED_REGRET
from dco.paper.paired import UNKNOWN_CHANGE, percent_change
from dco.paper.tables import ResultTable, TableRow, join_sentences

PAPER_DCO = "paper's DCO"
# each step with the methods whose sizes are compared: after it, and before it
STEPS = (
    ("class (one structure, no search)", STRONG_FIXED, PAPER_DCO),
    ("search on tuning rows", STRONG_SEARCHED, STRONG_FIXED),
    ("refit on train + tune", STRONG_REFIT, STRONG_SEARCHED),
    ("all", STRONG_REFIT, PAPER_DCO),
    ("auto tuning split", STRONG_AUTO_SPLIT, STRONG_REFIT),
    ("all, auto tuning split", STRONG_AUTO_SPLIT, PAPER_DCO),
)


def better_dco(records: SplitRecords, alpha: float) -> tuple[str, list[MethodOutcome]]:
    """Return the paper's DCO on the kind of features, raw or standardised, with the smaller sets.

    The result is the kind and the outcomes of all splits: ("raw", outcomes).
    """
    outcomes_on = {
        features: outcomes_by_method(records, alpha, features)["DCO-Warmstart"]
        for features in FEATURES
    }
    mean_sizes = {
        features: float(np.mean(sizes_of(outcomes))) for features, outcomes in outcomes_on.items()
    }
    best = min(FEATURES, key=lambda features: mean_sizes[features])
    return best, outcomes_on[best]


# ---- sizes against the paper's DCO


def beyond_table(study: Study, records: SplitRecords, options: Options) -> ResultTable:
    """Make the table of methods with stronger candidates, against the paper's DCO.

    The candidates are the classifiers of `beyond_classification`. The paper's DCO comes first at
    each level, on the features (raw or standardised) that give it the smaller sets. Each of
    `records` has the outcomes of one split.
    """
    rows: list[TableRow] = []
    for alpha in options.alphas:
        features, paper_outcomes = better_dco(records, alpha)
        title = f"DCO-Warmstart ({features})"
        rows.append(compare_with_paper_dco(title, paper_outcomes, paper_outcomes, study, alpha))
        for method, outcomes in outcomes_by_method(records, alpha, STRONG_FEATURES).items():
            rows.append(compare_with_paper_dco(method, outcomes, paper_outcomes, study, alpha))

    same_guarantee = (
        "All rows have the same marginal guarantee at the same level and the same splits."
    )
    change_column = (
        "Change: against the paper's DCO, on raw or standardised features, whichever has the "
        "smaller mean size; 95 % intervals over paired splits."
    )
    where_chosen = (
        f"The class, and the one structure ({FIXED_STRUCTURE}; square roots of features), were "
        f"chosen on {DEVELOPMENT_ROWS:,} rows that no split uses."
    )
    caption = join_sentences(
        describe_splits(study, records, options), same_guarantee, change_column, where_chosen
    )
    return ResultTable.of(f"{study.title}: beyond the paper", caption, rows)


def compare_with_paper_dco(
    title: str,
    outcomes: list[MethodOutcome],
    paper_outcomes: list[MethodOutcome],
    study: Study,
    alpha: float,
) -> TableRow:
    """Make the row of one method: its coverage beside theory, its sizes, and how they change.

    `outcomes` has one outcome of the method for each split. The change in percent is against
    `paper_outcomes`, those of the paper's DCO in the same splits; the row of the paper's DCO itself
    has none.
    """
    theory = compare_method_with_theory(outcomes[0].method, outcomes, study)
    change = UNKNOWN_CHANGE
    if outcomes is not paper_outcomes:
        change = percent_change(sizes_of(outcomes), sizes_of(paper_outcomes))
    return {
        "target": target_coverage(alpha),
        "method": title,
        "coverage": mean_coverage(outcomes),
        "by law": theory.expected,
        "z": theory.z,
        "size": mean_set_size(outcomes),
        "P95": mean_p95(outcomes),
        "change %": change.mean,
        "low %": change.low,
        "high %": change.high,
        "p size": change.p_value,
    }


def gain_table(study: Study, records: SplitRecords, options: Options) -> ResultTable:
    """Make the table of how much each step changes the mean size, from the paper's DCO onwards.

    The steps are one stronger classifier, the search among many of them, the refit with the tuning
    rows, and the auto split, which chooses the number of tuning rows. `STEPS` says which methods
    are compared for each step.
    """
    rows: list[TableRow] = []
    for alpha in options.alphas:
        _, paper_outcomes = better_dco(records, alpha)
        strong_outcomes = outcomes_by_method(records, alpha, STRONG_FEATURES)
        outcomes = {PAPER_DCO: paper_outcomes, **strong_outcomes}
        for step, after, before in STEPS:
            change = percent_change(sizes_of(outcomes[after]), sizes_of(outcomes[before]))
            rows.append(
                {
                    "target": target_coverage(alpha),
                    "step": step,
                    "change %": change.mean,
                    "low %": change.low,
                    "high %": change.high,
                    "p size": change.p_value,
                }
            )

    change_column = (
        "Change of mean size at each step in % of the step before ('all': of the paper's DCO), "
        "with 95 % intervals over paired splits."
    )
    caption = join_sentences(
        describe_splits(study, records, options),
        change_column,
        "The auto tuning split comes after refit.",
    )
    return ResultTable.of(f"{study.title}: the gain in steps", caption, rows, digits=2)


# ---- the auto split


def auto_split_table(study: Study, records: SplitRecords, options: Options) -> ResultTable:
    """Make the table of the auto split: how many rows tuned, and what coverage and sizes came out.

    The auto split takes more and more tuning rows, until other rows would hardly change the size of
    the sets: selection has "settled". Beside it stands the same method with the paper's fixed
    number of tuning rows.
    """
    rows: list[TableRow] = []
    for alpha in options.alphas:
        outcomes = outcomes_by_method(records, alpha, STRONG_FEATURES)
        auto_outcomes = [
            row for row in outcomes[STRONG_AUTO_SPLIT] if isinstance(row, AutoSplitOutcome)
        ]
        n_settled = sum(row.settled for row in auto_outcomes)

        # The rows that tune or calibrate are as many in every split and for both methods.
        n_pool = auto_outcomes[0].n_tune + auto_outcomes[0].n
        rows += [
            describe_tuning_rows(STRONG_REFIT, outcomes[STRONG_REFIT], alpha, n_pool, None),
            describe_tuning_rows(STRONG_AUTO_SPLIT, auto_outcomes, alpha, n_pool, n_settled),
        ]

    how_it_stops = (
        "Tuning takes rows of the pool of tune + calibrate rows in their fixed order until the "
        f"bootstrap says that selection costs at most {100 * SETTLED_REGRET:g} % of the size at "
        "every level ('settled'), or until calibration has only "
        f"1/{CALIBRATION_PART} of the pool left; one number of rows serves all levels of a split."
    )
    caption = join_sentences(
        describe_splits(study, records, options),
        how_it_stops,
        "The structure is then refitted on train rows and those taken.",
    )
    return ResultTable.of(f"{study.title}: tuning rows by the auto split", caption, rows)


def describe_tuning_rows(
    method: str,
    outcomes: Sequence[MethodOutcome],
    alpha: float,
    n_pool: int,
    n_settled: int | None,
) -> TableRow:
    """Make the row of one method: how many rows tuned, its coverage and its size.

    `outcomes` has one outcome of the method for each split. In each the `n_pool` rows were divided
    into tuning and calibration rows. `n_settled` counts the splits in which the tuning rows were
    enough for the choice; None where their number was fixed.
    """
    n_tune = [n_pool - outcome.n for outcome in outcomes]  # n is the number of calibration rows
    return {
        "target": target_coverage(alpha),
        "row": method,
        "tuning rows": round(sum(n_tune) / len(n_tune)),
        "least": min(n_tune),
        "most": max(n_tune),
        "splits settled": n_settled,
        "coverage of test rows": mean_coverage(outcomes),
        "size": mean_set_size(outcomes),
    }


# ---- what was chosen


def chosen_table(study: Study, records: SplitRecords, options: Options) -> ResultTable:
    """Make the table of how often each classifier was chosen, alone or in an average of several.

    Splits are counted twice: by the kind of what was chosen ("discriminant + logistic"), and by
    each classifier (head) in it ("logistic 0.05"). Beside the counts with the paper's number of
    tuning rows stand those with the auto split, which chooses this number.
    """
    rows: list[TableRow] = []
    for alpha in options.alphas:
        outcomes = outcomes_by_method(records, alpha, STRONG_FEATURES)
        chosen = chosen_structures(outcomes[STRONG_SEARCHED])
        auto_chosen = chosen_structures(outcomes[STRONG_AUTO_SPLIT])
        rows += compare_counts("kind", count_kinds(chosen), count_kinds(auto_chosen), alpha)
        rows += compare_counts("head", count_heads(chosen), count_heads(auto_chosen), alpha)

    what_is_counted = (
        f"Splits, of {len(records)}, in which the chosen structure is of a kind, and has a head "
        "in it: shrinkage of the discriminant, penalty of the logistic head, width and weight "
        "decay of the network."
    )
    caption = join_sentences(describe_splits(study, records, options), what_is_counted)
    title = f"{study.title}: what search chose in the stronger class"
    return ResultTable.of(title, caption, rows, digits=2)


def compare_counts(
    by: str, counts: Counter[str], auto_counts: Counter[str], alpha: float
) -> list[TableRow]:
    """Make a row for each value that was counted, the most frequent first, then by name.

    `by` says what the values are, "kind" or "head", and is a cell of each row. `counts` are splits
    by value with the paper's number of tuning rows, `auto_counts` those with the auto split.
    """
    total = counts + auto_counts
    values = sorted(total, key=lambda value: (-total[value], value))
    return [
        {
            "target": target_coverage(alpha),
            "by": by,
            "value": value,
            "splits": counts[value],
            "splits, auto split": auto_counts[value],
        }
        for value in values
    ]


def chosen_structures(outcomes: list[MethodOutcome]) -> list[Structure]:
    """Return the structure that was chosen in each split."""
    return [STRUCTURES[str(outcome.chosen)] for outcome in outcomes]


def count_kinds(structures: list[Structure]) -> Counter[str]:
    """Count structures by kind, such as "discriminant + logistic"."""
    return Counter(structure.kind for structure in structures)


def count_heads(structures: list[Structure]) -> Counter[str]:
    """Count in how many structures each head is, such as "logistic 0.05"."""
    return Counter(head.name for structure in structures for head, _ in structure.parts)


# ---- the figure


def make_figures(records: SplitRecords, options: Options, *, study: Study) -> figures.Files:
    """Draw how much smaller sets are with stronger candidates than those of the paper's DCO, in %.

    There is no figure where the size of a set is infinite, because the change is then not a number.
    """
    reductions: dict[str, dict[str, Interval]] = {}
    for alpha in options.alphas:
        _, paper_outcomes = better_dco(records, alpha)
        by_method: dict[str, Interval] = {}
        for method, outcomes in outcomes_by_method(records, alpha, STRONG_FEATURES).items():
            change = percent_change(sizes_of(outcomes), sizes_of(paper_outcomes))
            if change.mean is None or change.low is None or change.high is None:
                return {}
            # a reduction is a change with the other sign, which swaps the ends of its interval
            by_method[method] = Interval(mean=-change.mean, low=-change.high, high=-change.low)
        reductions[f"{target_coverage(alpha):g}"] = by_method
    return figures.size_reductions(reductions, name="gains", note=study.data_note)
