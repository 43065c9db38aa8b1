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
    describe_splits,
    law_of_method,
    mean_coverage,
    mean_p95,
    mean_set_size,
    outcomes_at,
    sizes_of,
)
from dco.paper.coverage_z import target
from dco.paper.experiment import Options, Records
from dco.paper.figures import Interval
from dco.paper.growing_split import SETTLED_REGRET
from dco.paper.paired import UNKNOWN_CHANGE, percent_change
from dco.paper.tables import Cells, ResultTable, join_sentences

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


def better_dco(records: Records, alpha: float) -> tuple[str, list[MethodOutcome]]:
    """Return the paper's DCO on the kind of features, raw or standardised, with the smaller sets.

    The result is the kind and the outcomes of all splits: ("raw", outcomes).
    """
    outcomes_on = {
        features: outcomes_at(records, alpha, features)["DCO-Warmstart"] for features in FEATURES
    }
    mean_sizes = {
        features: float(np.mean(sizes_of(outcomes))) for features, outcomes in outcomes_on.items()
    }
    best = min(FEATURES, key=lambda features: mean_sizes[features])
    return best, outcomes_on[best]


# ---- sizes against the paper's DCO


def beyond_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Make the table of the stronger class (`beyond_classification`) against the paper's DCO.

    The paper's DCO comes first at each level, on the features (raw or standardised) that give it
    the smaller sets.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        features, paper_outcomes = better_dco(records, alpha)
        rows.append(
            compare_with_paper_dco(
                f"DCO-Warmstart ({features})", paper_outcomes, paper_outcomes, study, alpha
            )
        )
        for method, outcomes in outcomes_at(records, alpha, STRONG_FEATURES).items():
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
) -> Cells:
    """Make the row of one method: its coverage, its sizes, and their change in percent.

    `outcomes` are those of the method in every split. The change is against `paper_outcomes`, those
    of the paper's DCO in the same splits; its own row has none.
    """
    law = law_of_method(outcomes[0].method, outcomes, study)
    change = UNKNOWN_CHANGE
    if outcomes is not paper_outcomes:
        change = percent_change(sizes_of(outcomes), sizes_of(paper_outcomes))
    return {
        "target": target(alpha),
        "method": title,
        "coverage": mean_coverage(outcomes),
        "by law": law.expected,
        "z": law.z,
        "size": mean_set_size(outcomes),
        "P95": mean_p95(outcomes),
        "change %": change.mean,
        "low %": change.low,
        "high %": change.high,
        "p size": change.p_value,
    }


def gain_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Make the table of the steps (`STEPS`) from the paper's DCO to the best method here.

    The steps are the stronger class with one structure, the search among its structures, the refit
    with the tuning rows, and the auto split; each has the change of mean size that it makes.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        _, paper_outcomes = better_dco(records, alpha)
        strong_outcomes = outcomes_at(records, alpha, STRONG_FEATURES)
        outcomes = {PAPER_DCO: paper_outcomes, **strong_outcomes}
        for step, after, before in STEPS:
            change = percent_change(sizes_of(outcomes[after]), sizes_of(outcomes[before]))
            rows.append(
                {
                    "target": target(alpha),
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


def auto_split_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Make the table of the auto split: how many rows tuned, and what coverage and sizes came out.

    The auto split takes tuning rows until selection has settled. Beside it stands the same method
    with the paper's fixed number of tuning rows.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        outcomes = outcomes_at(records, alpha, STRONG_FEATURES)
        with_auto_split = [
            row for row in outcomes[STRONG_AUTO_SPLIT] if isinstance(row, AutoSplitOutcome)
        ]
        n_pool = with_auto_split[0].n + with_auto_split[0].n_tune
        n_settled = sum(row.settled for row in with_auto_split)
        rows += [
            describe_tuning_rows(STRONG_REFIT, outcomes[STRONG_REFIT], alpha, n_pool, None),
            describe_tuning_rows(STRONG_AUTO_SPLIT, with_auto_split, alpha, n_pool, n_settled),
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
) -> Cells:
    """Make the row of one method: how many rows of the pool tuned, its coverage and its size.

    Rows of the pool that did not calibrate tuned. `n_settled` counts the splits in which selection
    had settled; None where the number of tuning rows was fixed.
    """
    n_tune = [n_pool - outcome.n for outcome in outcomes]
    return {
        "target": target(alpha),
        "row": method,
        "tuning rows": round(sum(n_tune) / len(n_tune)),
        "least": min(n_tune),
        "most": max(n_tune),
        "splits settled": n_settled,
        "coverage of test rows": mean_coverage(outcomes),
        "size": mean_set_size(outcomes),
    }


# ---- what was chosen


def chosen_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Make the table of how often each kind of structure, and each head in one, was chosen.

    Splits are counted: with the paper's number of tuning rows, and with the auto split.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        outcomes = outcomes_at(records, alpha, STRONG_FEATURES)
        chosen = chosen_structures(outcomes[STRONG_SEARCHED])
        chosen_by_auto_split = chosen_structures(outcomes[STRONG_AUTO_SPLIT])
        rows += compare_counts(
            "kind", count_kinds(chosen), count_kinds(chosen_by_auto_split), alpha
        )
        rows += compare_counts(
            "head", count_heads(chosen), count_heads(chosen_by_auto_split), alpha
        )

    what_is_counted = (
        f"Splits, of {len(records)}, in which the chosen structure is of a kind, and has a head "
        "in it: shrinkage of the discriminant, penalty of the logistic head, width and weight "
        "decay of the network."
    )
    caption = join_sentences(describe_splits(study, records, options), what_is_counted)
    title = f"{study.title}: what search chose in the stronger class"
    return ResultTable.of(title, caption, rows, digits=2)


def compare_counts(
    by: str, counts: Counter[str], counts_by_auto_split: Counter[str], alpha: float
) -> list[Cells]:
    """Make a row for each value that was counted, the most frequent first, then by name.

    `by` says what the values are, kinds of structures or heads: "kind" or "head". The second count
    is that with the auto split.
    """
    total = counts + counts_by_auto_split
    values = sorted(total, key=lambda value: (-total[value], value))
    return [
        {
            "target": target(alpha),
            "by": by,
            "value": value,
            "splits": counts[value],
            "splits, auto split": counts_by_auto_split[value],
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


def make_figures(records: Records, options: Options, *, study: Study) -> figures.Files:
    """Draw how much smaller the sets of the stronger class are than those of the paper's DCO.

    There is no figure where a set is infinite: its gain is not a number.
    """
    reductions: dict[str, dict[str, Interval]] = {}
    for alpha in options.alphas:
        _, paper_outcomes = better_dco(records, alpha)
        by_method: dict[str, Interval] = {}
        for method, outcomes in outcomes_at(records, alpha, STRONG_FEATURES).items():
            change = percent_change(sizes_of(outcomes), sizes_of(paper_outcomes))
            if change.mean is None or change.low is None or change.high is None:
                return {}
            # a reduction is a change with the other sign, which swaps the ends of its interval
            by_method[method] = Interval(mean=-change.mean, low=-change.high, high=-change.low)
        reductions[f"{target(alpha):g}"] = by_method
    return figures.size_reductions(reductions, name="gains", note=study.data_note)
