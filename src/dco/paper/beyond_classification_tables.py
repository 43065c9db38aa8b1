"""The tables of the stronger class for CIFAR-100: sizes against the paper's DCO, the gain in steps,
what was chosen.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from dco.paper.beyond_classification import FIXED as STRONG_FIXED
from dco.paper.beyond_classification import STRUCTURES
from dco.paper.classification_splits import (
    AUTO,
    LEAST_CALIBRATION,
    SET_ASIDE,
    SETTLED,
    Study,
)
from dco.paper.classification_tables import (
    BOTH,
    Cells,
    compared,
    describe,
    law_cells,
    measured,
    methods_of,
)
from dco.paper.coverage_z import target
from dco.paper.experiment import Options, Records, Row, column
from dco.paper.tables import ResultTable

ONE, SEARCHED = "Stronger class, one structure", "Stronger class, searched"
REFIT = f"{SEARCHED}, refit"


def better_dco(records: Records, alpha: float) -> tuple[str, list[Row]]:
    """The paper's DCO on raw or on standardised features, whichever has the smaller mean size."""
    both = {features: methods_of(records, alpha, features)["DCO-Warmstart"] for features in BOTH}
    best = min(both, key=lambda features: float(np.mean(column(both[features], "size"))))
    return best, both[best]


def beyond_table(study: Study, records: Records, options: Options) -> ResultTable:
    """The stronger class against the paper's DCO, the better of raw and standardised features."""
    rows: list[Cells] = []
    for alpha in options.alphas:
        base_features, base = better_dco(records, alpha)
        ours = methods_of(records, alpha, "square roots")
        for method, found in ({f"DCO-Warmstart ({base_features})": base} | ours).items():
            expected, z, _ = law_cells(str(found[0]["method"]), found, stratified=False)
            coverage, size, p95 = measured(found)
            change = dict(
                zip(("change %", "low %", "high %", "p size"), compared(found, base), strict=False)
            )
            rows.append(
                {
                    "target": target(alpha),
                    "method": method,
                    "coverage": coverage,
                    "by law": expected,
                    "z": z,
                    "size": size,
                    "P95": p95,
                    **(dict.fromkeys(change) if found is base else change),
                }
            )
    return ResultTable.of(
        f"{study.title}: beyond the paper",
        describe(study, records, options)
        + "All rows have the same marginal guarantee at the same level and the same splits. "
        "Change: against the paper's "
        "DCO, on raw or standardised features, whichever has the smaller mean size; 95 % "
        "intervals over paired splits. The "
        f"class, and the one structure ({STRONG_FIXED}; square roots of features), were chosen on "
        f"{SET_ASIDE:,} rows that "
        "no split uses.",
        rows,
    )


def gain_table(study: Study, records: Records, options: Options) -> ResultTable:
    """The gain in steps: another class with one structure, search among its members, refit, auto
    tuning split.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        ours = methods_of(records, alpha, "square roots") | {"paper": better_dco(records, alpha)[1]}
        steps = (
            ("class (one structure, no search)", ONE, "paper"),
            ("search on tuning rows", SEARCHED, ONE),
            ("refit on train + tune", REFIT, SEARCHED),
            ("all", REFIT, "paper"),
            ("auto tuning split", AUTO, REFIT),
            ("all, auto tuning split", AUTO, "paper"),
        )
        for step, after, before in steps:
            change, low, high, p, *_ = compared(ours[after], ours[before])
            cells: Cells = {"change %": change, "low %": low, "high %": high, "p size": p}
            rows.append({"target": target(alpha), "step": step, **cells})
    return ResultTable.of(
        f"{study.title}: the gain in steps",
        describe(study, records, options)
        + "Change of mean size at each step in % of the step before ('all': of the paper's DCO), "
        "with 95 % "
        "intervals over paired splits. The auto tuning split comes after refit.",
        rows,
        digits=2,
    )


def auto_table(study: Study, records: Records, options: Options) -> ResultTable:
    """How many tuning rows the auto split took, and what it did to size and to the spread of
    coverage.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        ours = methods_of(records, alpha, "square roots")
        pools = [int(row["n"]) + int(row["n_tune"]) for row in ours[AUTO]]
        for method in (REFIT, AUTO):
            taken = [pool - int(row["n"]) for pool, row in zip(pools, ours[method], strict=True)]
            coverage, size, _ = measured(ours[method])
            rows.append(
                {
                    "target": target(alpha),
                    "row": method,
                    "tuning rows": round(sum(taken) / len(taken)),
                    "least": min(taken),
                    "most": max(taken),
                    "splits settled": sum(r["settled"] for r in ours[method])
                    if method == AUTO
                    else None,
                    "coverage of test rows": coverage,
                    "size": size,
                }
            )
    return ResultTable.of(
        f"{study.title}: tuning rows by the auto split",
        describe(study, records, options)
        + "Tuning takes rows of the pool of tune + calibrate rows in their fixed order until the "
        "bootstrap says that "
        f"selection costs at most {100 * SETTLED:g} % of the size at every level ('settled'), or "
        f"until calibration has only "
        f"1/{LEAST_CALIBRATION} of the pool left; one number of rows serves all levels of a "
        f"split. The structure "
        "is then refitted on train rows and those taken.",
        rows,
    )


def chosen_table(study: Study, records: Records, options: Options) -> ResultTable:
    """How often search chose each kind of structure, and each head in it."""
    rows: list[Cells] = []
    for alpha in options.alphas:
        ours = methods_of(records, alpha, "square roots")
        first, second = (
            [STRUCTURES[str(row["chosen"])] for row in ours[method]] for method in (SEARCHED, AUTO)
        )
        kinds = tuple(Counter(one.kind for one in found) for found in (first, second))
        heads = tuple(
            Counter(head.name for one in found for head, _ in one.parts)
            for found in (first, second)
        )
        for by, (given, auto) in (("kind", kinds), ("head", heads)):
            rows += [
                {
                    "target": target(alpha),
                    "by": by,
                    "value": value,
                    "splits": given[value],
                    "splits, auto split": auto[value],
                }
                for value in sorted(
                    given | auto, key=lambda name: (-given[name] - auto[name], name)
                )
            ]
    return ResultTable.of(
        f"{study.title}: what search chose in the stronger class",
        describe(study, records, options)
        + f"Splits, of {len(records)}, in which the chosen structure is of a kind, and has a head "
        f"in it: shrinkage of the "
        "discriminant, penalty of the logistic head, width and weight decay of the network.",
        rows,
        digits=2,
    )
