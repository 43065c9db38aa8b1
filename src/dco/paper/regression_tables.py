"""Tables 2, 8, 9 and 10, and the DirectTune diagnostic of Appendix C.2, beside ours."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dco.paper import paper_values
from dco.paper.coverage_z import MeanLaw, bonferroni_point, law_of_mean, target
from dco.paper.experiment import Options, Records, group_by, rows_of
from dco.paper.paired import percent_change, wilcoxon_if_finite
from dco.paper.paper_values import Printed
from dco.paper.regression_splits import (
    PRIOR_SCALES,
    WIDE_PRIOR,
    Outcome,
    SplitFacts,
    Study,
    TuningOutcome,
)
from dco.paper.tables import (
    PAPER_SPLITS,
    Cells,
    Measured,
    ResultTable,
    join_sentences,
    standard_errors,
)

PAPER_ALPHA = 0.2  # of the paper's tables of Diabetes
# Methods that are compared over the same splits, the first with the second.
PAIRS = (
    ("DCO-Warmstart", "BQ"),
    ("DCO-PAC", "BQ"),
    ("DCO-Warmstart", "Split CP, φ fixed, whole pool"),
    ("DCO-Warmstart", "DCO, φ fixed (c = 1)"),
    ("DCO, refit", "DCO-Warmstart"),
)
DIRECT_TUNE_METHODS = ("DCO-Warmstart", "DirectTune, fixed φ", "DirectTune, searched Φ")

# Outcomes of the selection, and the paper's counts of them.
FEASIBLE = "feasible threshold found"
FALLBACK = "fallback"
CHOSE_WIDE_PRIOR = "c = 1 chosen"
PAPER_SELECTION_COUNTS = {
    FEASIBLE: paper_values.DIABETES_FEASIBLE,
    FALLBACK: paper_values.DIABETES_FALLBACK,
    CHOSE_WIDE_PRIOR: paper_values.DIABETES_CHOSE_WIDE_PRIOR,
}


def make_tables(records: Records, options: Options, *, study: Study) -> list[ResultTable]:
    """Make the tables of a data set from the records of its splits.

    Every data set has the main table, the paired comparisons and the selected prior scales.
    Diabetes has the prior scales one by one and the DirectTune diagnostic too, as in the paper.
    """
    main = comparison_table(records, options, study)
    paired = paired_table(records, options, study)
    if study.name != "diabetes":
        title = f"{study.title}: selected prior scale"
        return [main, paired, selection_table(records, options, title)]
    return [
        main,
        paired,
        prior_scale_table(records, options),
        selection_table(records, options, "Diabetes: threshold selection outcomes"),
        direct_tune_table(records, options),
    ]


def outcomes_at(records: Records, alpha: float) -> dict[str, list[Outcome]]:
    """Return the outcomes at one level, by method; each list is in order of seed."""
    outcomes = [row for row in rows_of(records, Outcome) if row.alpha == alpha]
    return group_by(outcomes, key=lambda row: row.method)


def mean_coverage(outcomes: Sequence[Outcome]) -> Measured:
    """Return the coverage of a method, as mean and sd over splits."""
    return Measured.of(row.coverage for row in outcomes)


def mean_width(outcomes: Sequence[Outcome]) -> Measured:
    """Return the mean width of a method's sets, as mean and sd over splits."""
    return Measured.of(row.width for row in outcomes)


def law_of_method(outcomes: Sequence[Outcome]) -> MeanLaw:
    """Compare the mean coverage of a method with its law; both values are None without a law."""
    return law_of_mean(outcomes) if outcomes[0].law else MeanLaw(expected=None, z=None)


# ---- the main table


def comparison_table(records: Records, options: Options, study: Study) -> ResultTable:
    """Show every method at every level: guarantee, coverage and width, beside what the paper
    prints.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        for method, outcomes in outcomes_at(records, alpha).items():
            printed = study.printed.get((alpha, method))
            rows.append(describe_method(method, outcomes, printed, alpha=alpha))

    n_tested = sum(row["z"] is not None for row in rows)
    bound = bonferroni_point(n_tested)
    by_law = (
        f"'By law': rank / (n + 1); z against the Beta-binomial law ({n_tested} rows here; |z| "
        f"below {bound:.2f} with probability 99 %)."
    )
    infinite = ""
    if any(math.isinf(row.width) for row in rows_of(records, Outcome)):
        infinite = (
            "Infinite widths: the calibration rows are too few for the level, the threshold is "
            "infinite (Theorem 3.1) and every set is the whole line."
        )
    caption = join_sentences(
        describe_splits(records, study),
        by_law,
        "'Off': our mean less the paper's, in standard errors of the difference.",
        "Widths in standard deviations of the split's training targets.",
        infinite,
    )
    return ResultTable.of(study.title, caption, rows)


def describe_method(
    method: str, outcomes: Sequence[Outcome], printed: Printed | None, *, alpha: float
) -> Cells:
    """Make the row of one method at one level, beside what the paper prints of it, if anything."""
    n_splits = len(outcomes)
    coverage = mean_coverage(outcomes)
    width = mean_width(outcomes)
    law = law_of_method(outcomes)
    return {
        "target": target(alpha),
        "method": method,
        "guarantee": outcomes[0].guarantee,
        "coverage": coverage,
        "by law": law.expected,
        "z": law.z,
        "paper coverage": printed.coverage if printed else None,
        "off": standard_errors(coverage, printed.coverage, n_splits) if printed else None,
        "width": width,
        "paper width": printed.size if printed else None,
        "width off": standard_errors(width, printed.size, n_splits) if printed else None,
        "P95": Measured.of(row.p95 for row in outcomes),
    }


def describe_splits(records: Records, study: Study) -> str:
    """Say what the main table was measured on: the sizes of roles, the draws, and the splits."""
    facts = rows_of(records, SplitFacts)
    sizes = facts[0].sizes
    fewest_draws = min(row.ess for row in facts)
    largest_rhat = max(row.rhat for row in facts)
    roles = (
        f"{study.title}: train {sizes['train']}, tune {sizes['tune']}, calibrate "
        f"{sizes['calibrate']}, test {sizes['test']}."
    )
    draws = (
        f"{study.draws} posterior draws by exact Gibbs steps; over all fits at least "
        f"{fewest_draws:.0f} effective draws, R-hat at most {largest_rhat:.3f}."
    )
    return join_sentences(roles, draws, f"{len(records)} splits, mean ± sd.")


# ---- paired comparisons


def paired_table(records: Records, options: Options, study: Study) -> ResultTable:
    """Compare the methods of `PAIRS` over the same splits: change of width, and p-values."""
    rows: list[Cells] = []
    for alpha in options.alphas:
        outcomes = outcomes_at(records, alpha)
        for first, second in PAIRS:
            pair: Cells = {"target": target(alpha), "first": first, "second": second}
            rows.append(pair | compare_outcomes(outcomes[first], outcomes[second]))

    like_with_like = (
        "DCO-Warmstart against BQ compares a marginal statement with a PAC one; DCO-PAC against "
        "BQ, and DCO-Warmstart against split CP on the whole pool, compare like with like."
    )
    columns = (
        "Width of the first less width of the second, in % of the second's mean, with Student's "
        "95 % interval over paired splits."
    )
    scope = (
        "Splits of one table are not new data sets: intervals and p-values speak of splits of this "
        "table."
    )
    caption = join_sentences(like_with_like, columns, scope)
    return ResultTable.of(f"{study.title}: paired comparisons", caption, rows)


def compare_outcomes(first: Sequence[Outcome], second: Sequence[Outcome]) -> Cells:
    """Compare two methods over the same splits.

    The cells are the change of width in % with a 95 % interval, and the p-values of Wilcoxon's test
    for width and for coverage.
    """
    change = percent_change([row.width for row in first], [row.width for row in second])
    p_of_coverage = wilcoxon_if_finite(
        [row.coverage for row in first], [row.coverage for row in second]
    )
    return {
        "width %": change.mean,
        "low %": change.low,
        "high %": change.high,
        "p width": change.p_value,
        "p coverage": p_of_coverage,
    }


# ---- prior scales and selection


def prior_scale_table(records: Records, options: Options) -> ResultTable:
    """Show Table 9: coverage and width of each prior scale, calibrated on the calibration rows."""
    rows: list[Cells] = []
    for alpha in options.alphas:
        by_method = outcomes_at(records, alpha)
        for scale in PRIOR_SCALES:
            outcomes = by_method[f"DCO, φ fixed (c = {scale:g})"]
            printed = paper_values.DIABETES_PRIOR_SCALES[scale] if alpha == PAPER_ALPHA else None
            rows.append(
                {
                    "target": target(alpha),
                    "c": scale,
                    "coverage": mean_coverage(outcomes),
                    "by law": law_of_method(outcomes).expected,
                    "paper coverage": printed.coverage if printed else None,
                    "width": mean_width(outcomes),
                    "paper width": printed.size if printed else None,
                }
            )

    difference = ""
    if PAPER_ALPHA in options.alphas:
        difference = why_table_9_differs(outcomes_at(records, PAPER_ALPHA))
    caption = join_sentences(
        "Each prior scale calibrated on the calibration rows alone.", difference
    )
    return ResultTable.of("Diabetes: prior scale", caption, rows)


def why_table_9_differs(outcomes: dict[str, list[Outcome]]) -> str:
    """Say why the coverage that the paper prints in Table 9 cannot be that of its rule.

    `outcomes` are those of our methods at the level of that table. Whatever the score, the rule
    implies rank / (n + 1), which is the same for both prior scales.
    """
    wide, narrow = paper_values.DIABETES_PRIOR_SCALES.values()
    by_rule = outcomes[f"DCO, φ fixed ({WIDE_PRIOR})"][0]
    by_bq = outcomes["BQ"][0]

    printed = f"{without_zero(wide.coverage.mean)} and {without_zero(narrow.coverage.mean)}"
    fraction = f"{by_rule.rank}/{by_rule.n + 1}"
    law = without_zero(by_rule.rank / (by_rule.n + 1))
    law_of_bq = without_zero(by_bq.rank / (by_bq.n + 1))
    return (
        f"The paper's two rows (coverage {printed}) cannot come from that rule, whose coverage is "
        f"{fraction} = {law} whatever the score; they are near BQ's law on the pool, {law_of_bq}, "
        "and disagree with the paper's own main table."
    )


def without_zero(share: float) -> str:
    """Write a share with three decimals and no leading zero: 0.807 -> ".807"."""
    return f"{share:.3f}".removeprefix("0")


def selection_table(records: Records, options: Options, title: str) -> ResultTable:
    """Show Table 10: in how many splits a tuning threshold was feasible, and which prior won.

    The paper's counts stand beside ours where they are of the same data set, level and number of
    splits.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        is_as_in_paper = (
            title.startswith("Diabetes") and alpha == PAPER_ALPHA and len(records) == PAPER_SPLITS
        )
        paper_counts = PAPER_SELECTION_COUNTS if is_as_in_paper else {}
        for outcome, count in count_selections(records, alpha).items():
            rows.append(
                {
                    "target": target(alpha),
                    "outcome": outcome,
                    "count": count,
                    "of": len(records),
                    "paper": paper_counts.get(outcome),
                }
            )

    counted = (
        "Splits in which a candidate has a threshold with an empirical risk of at most α on the "
        "tuning rows, and in which the wide prior had the smaller intervals there."
    )
    fallback = (
        "With exact search a feasible threshold always exists (risk 0 at the largest tuning "
        "score), so the fallback cannot occur."
    )
    choice = (
        "The two prior scales give nearly the same sets, so that the choice between them is close "
        "to a coin toss."
    )
    return ResultTable.of(title, join_sentences(counted, fallback, choice), rows)


def count_selections(records: Records, alpha: float) -> dict[str, int]:
    """Count the splits with a feasible tuning threshold, those without, and those for c = 1."""
    tunings = [row for row in rows_of(records, TuningOutcome) if row.alpha == alpha]
    n_feasible = sum(any(row.feasible) for row in tunings)
    dco_outcomes = outcomes_at(records, alpha)["DCO-Warmstart"]
    n_wide = sum(row.chosen == WIDE_PRIOR for row in dco_outcomes)
    return {
        FEASIBLE: n_feasible,
        FALLBACK: len(tunings) - n_feasible,
        CHOSE_WIDE_PRIOR: n_wide,
    }


# ---- DirectTune


def direct_tune_table(records: Records, options: Options) -> ResultTable:
    """Show the DirectTune diagnostic: its width and spread of coverage beside DCO-Warmstart's."""
    rows: list[Cells] = []
    for alpha in options.alphas:
        by_method = outcomes_at(records, alpha)
        for method in DIRECT_TUNE_METHODS:
            outcomes = by_method[method]
            printed = paper_values.DIABETES.get(method) if alpha == PAPER_ALPHA else None
            rows.append(
                {
                    "target": target(alpha),
                    "method": method,
                    "width": mean_width(outcomes),
                    "paper width": printed.size.mean if printed else None,
                    "sd of coverage": mean_coverage(outcomes).sd,
                    "paper sd": printed.coverage.sd if printed else None,
                    "coverage by law": law_of_method(outcomes).expected,
                }
            )

    fixed = (
        "DirectTune with a fixed structure has the law of one order statistic as well, (n - "
        "floor(n α)) / (n + 1): its spread is that of any threshold on as many rows."
    )
    searched = (
        "With a searched structure the same rows choose and calibrate, and coverage falls below it."
    )
    paper_p_values = ""
    if PAPER_ALPHA in options.alphas:
        p_of_width = paper_values.DIABETES_WILCOXON["width"]
        p_of_coverage = paper_values.DIABETES_WILCOXON["coverage"]
        paper_p_values = (
            "The paper's Wilcoxon p-values of DCO-Warmstart against BQ: width "
            f"{p_of_width:.2g}, coverage {p_of_coverage:.2g}."
        )
    caption = join_sentences(fixed, searched, paper_p_values)
    return ResultTable.of("Diabetes: DirectTune diagnostic", caption, rows)
