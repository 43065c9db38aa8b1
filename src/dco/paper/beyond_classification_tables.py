"""Beyond the paper: the tables of the stronger class for CIFAR-100.

Sizes against the paper's DCO, the gain in steps, the tuning split that grew, and what was chosen.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from dco.paper import figures
from dco.paper.beyond_classification import FIXED, STRUCTURES, Structure
from dco.paper.classification_splits import (
    FEATURES,
    LEAST_CALIBRATION,
    SET_ASIDE,
    STRONG_FEATURES,
    STRONG_GROWN,
    STRONG_ONE,
    STRONG_REFIT,
    STRONG_SEARCHED,
    GrownOutcome,
    MethodOutcome,
    Study,
)
from dco.paper.classification_tables import (
    describe,
    law_of_method,
    mean_coverage,
    mean_p95,
    mean_set_size,
    outcomes_at,
    sizes_of,
)
from dco.paper.coverage_z import target
from dco.paper.experiment import Options, Records
from dco.paper.growing_split import SETTLED_REGRET
from dco.paper.paired import UNKNOWN_CHANGE, percent_change
from dco.paper.tables import Cells, ResultTable

PAPER_DCO = "paper's DCO"
STEPS = (
    ("class (one structure, no search)", STRONG_ONE, PAPER_DCO),
    ("search on tuning rows", STRONG_SEARCHED, STRONG_ONE),
    ("refit on train + tune", STRONG_REFIT, STRONG_SEARCHED),
    ("all", STRONG_REFIT, PAPER_DCO),
    ("auto tuning split", STRONG_GROWN, STRONG_REFIT),
    ("all, auto tuning split", STRONG_GROWN, PAPER_DCO),
)


def better_dco(records: Records, alpha: float) -> tuple[str, list[MethodOutcome]]:
    """Return the paper's DCO on raw or on standardised features, whichever has the smaller sets."""
    by_features = {
        features: outcomes_at(records, alpha, features)["DCO-Warmstart"] for features in FEATURES
    }
    best = min(by_features, key=lambda features: float(np.mean(sizes_of(by_features[features]))))
    return best, by_features[best]


def beyond_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Show the stronger class against the paper's DCO on the better of both kinds of features."""
    rows: list[Cells] = []
    for alpha in options.alphas:
        base_features, base = better_dco(records, alpha)
        strong = outcomes_at(records, alpha, STRONG_FEATURES)
        for title, outcomes in {f"DCO-Warmstart ({base_features})": base, **strong}.items():
            law = law_of_method(outcomes[0].method, outcomes, study)
            change = UNKNOWN_CHANGE
            if outcomes is not base:
                change = percent_change(sizes_of(outcomes), sizes_of(base))
            rows.append(
                {
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
            )
    return ResultTable.of(
        f"{study.title}: beyond the paper",
        describe(study, records, options)
        + "All rows have the same marginal guarantee at the same level and the same splits. "
        "Change: against the paper's DCO, on raw or standardised features, whichever has the "
        "smaller mean size; 95 % intervals over paired splits. The class, and the one structure "
        f"({FIXED}; square roots of features), were chosen on {SET_ASIDE:,} rows that no split "
        "uses.",
        rows,
    )


def gain_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Show the gain in steps: another class with one structure, search among its members, refit,
    auto tuning split.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        _, base = better_dco(records, alpha)
        outcomes = {PAPER_DCO: base, **outcomes_at(records, alpha, STRONG_FEATURES)}
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
    return ResultTable.of(
        f"{study.title}: the gain in steps",
        describe(study, records, options)
        + "Change of mean size at each step in % of the step before ('all': of the paper's DCO), "
        "with 95 % intervals over paired splits. The auto tuning split comes after refit.",
        rows,
        digits=2,
    )


def grown_split_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Show how many tuning rows the auto split took, and what it did to size and to the spread of
    coverage.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        outcomes = outcomes_at(records, alpha, STRONG_FEATURES)
        grown = [row for row in outcomes[STRONG_GROWN] if isinstance(row, GrownOutcome)]
        n_pool = grown[0].n + grown[0].n_tune
        for method in (STRONG_REFIT, STRONG_GROWN):
            n_tune = [n_pool - row.n for row in outcomes[method]]
            n_settled = sum(row.settled for row in grown)
            rows.append(
                {
                    "target": target(alpha),
                    "row": method,
                    "tuning rows": round(sum(n_tune) / len(n_tune)),
                    "least": min(n_tune),
                    "most": max(n_tune),
                    "splits settled": n_settled if method == STRONG_GROWN else None,
                    "coverage of test rows": mean_coverage(outcomes[method]),
                    "size": mean_set_size(outcomes[method]),
                }
            )
    return ResultTable.of(
        f"{study.title}: tuning rows by the auto split",
        describe(study, records, options)
        + "Tuning takes rows of the pool of tune + calibrate rows in their fixed order until the "
        f"bootstrap says that selection costs at most {100 * SETTLED_REGRET:g} % of the size at "
        "every level ('settled'), or until calibration has only "
        f"1/{LEAST_CALIBRATION} of the pool left; one number of rows serves all levels of a split. "
        "The structure is then refitted on train rows and those taken.",
        rows,
    )


def chosen_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Show how often search chose each kind of structure, and each head in it."""
    rows: list[Cells] = []
    for alpha in options.alphas:
        outcomes = outcomes_at(records, alpha, STRONG_FEATURES)
        fixed_split = chosen_structures(outcomes[STRONG_SEARCHED])
        grown_split = chosen_structures(outcomes[STRONG_GROWN])
        for by, count in (("kind", count_kinds), ("head", count_heads)):
            fixed_counts = count(fixed_split)
            grown_counts = count(grown_split)
            values = sorted(
                fixed_counts | grown_counts,
                key=lambda value: (-fixed_counts[value] - grown_counts[value], value),
            )
            for value in values:
                rows.append(
                    {
                        "target": target(alpha),
                        "by": by,
                        "value": value,
                        "splits": fixed_counts[value],
                        "splits, auto split": grown_counts[value],
                    }
                )
    return ResultTable.of(
        f"{study.title}: what search chose in the stronger class",
        describe(study, records, options)
        + f"Splits, of {len(records)}, in which the chosen structure is of a kind, and has a head "
        "in it: shrinkage of the discriminant, penalty of the logistic head, width and weight "
        "decay of the network.",
        rows,
        digits=2,
    )


def chosen_structures(outcomes: list[MethodOutcome]) -> list[Structure]:
    """Return the structure that each split chose."""
    return [STRUCTURES[str(row.chosen)] for row in outcomes]


def count_kinds(structures: list[Structure]) -> Counter[str]:
    """Count the kinds of structures."""
    return Counter(structure.kind for structure in structures)


def count_heads(structures: list[Structure]) -> Counter[str]:
    """Count the heads in structures."""
    return Counter(head.name for structure in structures for head, _ in structure.parts)


def make_figures(records: Records, options: Options, *, study: Study) -> figures.Files:
    """Draw how much smaller the sets of the stronger class are than those of the paper's DCO."""
    bars: dict[str, dict[str, tuple[float, float, float]]] = {}
    for alpha in options.alphas:
        _, base = better_dco(records, alpha)
        strong = outcomes_at(records, alpha, STRONG_FEATURES)
        reductions: dict[str, tuple[float, float, float]] = {}
        for method, outcomes in strong.items():
            change = percent_change(sizes_of(outcomes), sizes_of(base))
            if change.mean is None or change.low is None or change.high is None:
                return {}  # infinite sets have no gain
            reductions[method] = (-change.mean, -change.high, -change.low)
        bars[f"{target(alpha):g}"] = reductions
    return figures.gains(bars, name="gains", note=study.features)
