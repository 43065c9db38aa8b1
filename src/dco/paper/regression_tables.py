"""Tables 2, 8, 9 and 10, and the DirectTune diagnostic of Appendix C.2, beside ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dco.paper import paper_values
from dco.paper.coverage_z import (
    NO_THEORY,
    TheoryComparison,
    bonferroni_point,
    compare_with_theory,
    target_coverage,
)
from dco.paper.experiment import Options, SplitRecords, group_by, rows_of
from dco.paper.paired import percent_change, wilcoxon_if_finite
from dco.paper.paper_values import NOT_IN_PAPER, PaperResult
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
    Measured,
    ResultTable,
    TableRow,
    difference_in_standard_errors,
    join_sentences,
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


def make_tables(records: SplitRecords, options: Options, *, study: Study) -> list[ResultTable]:
    """Make the tables of a data set from the records of its splits.

    Every data set has the main table, the paired comparisons and the selected prior scales.
    Diabetes has the prior scales one by one and the DirectTune diagnostic too, as in the paper.
    """
    main = comparison_table(records, options, study)
    paired = paired_table(records, options, study)
    selection = selection_table(records, options, study)
    beside_paper = beside_paper_table(records, options, study)
    beside_paper_if_any = [beside_paper] if beside_paper.rows else []
    if study.name != "diabetes":
        return [*beside_paper_if_any, main, paired, selection]
    return [
        *beside_paper_if_any,
        main,
        paired,
        prior_scale_table(records, options),
        selection,
        direct_tune_table(records, options),
    ]


def outcomes_by_method(records: SplitRecords, alpha: float) -> dict[str, list[Outcome]]:
    """Return {method: its outcomes} at one level, one outcome for each split, in order of seed."""
    outcomes = [row for row in rows_of(records, Outcome) if row.alpha == alpha]
    return group_by(outcomes, key=lambda row: row.method)


def mean_coverage(outcomes: Sequence[Outcome]) -> Measured:
    """Return the coverage of a method, as mean and sd over splits."""
    return Measured.of(row.coverage for row in outcomes)


def mean_width(outcomes: Sequence[Outcome]) -> Measured:
    """Return the mean width of a method's sets, as mean and sd over splits."""
    return Measured.of(row.width for row in outcomes)


def compare_method_with_theory(outcomes: Sequence[Outcome]) -> TheoryComparison:
    """Compare the mean test coverage of a method over splits with the one that theory expects.

    Theory says nothing (None) of a method that has no guarantee.
    """
    return compare_with_theory(outcomes) if outcomes[0].law else NO_THEORY


# ---- the paper's rows


def beside_paper_table(records: SplitRecords, options: Options, study: Study) -> ResultTable:
    """Make the table of the methods in the paper's own table: its figures beside ours.

    It is Table 2 for Diabetes and Table 8 for the other data sets. There are no rows at other
    levels than the paper's.
    """
    rows: list[TableRow] = []
    for (alpha, method), paper in study.paper_results.items():
        if alpha in options.alphas:
            outcomes = outcomes_by_method(records, alpha)[method]
            rows.append(
                {
                    "target": target_coverage(alpha),
                    "method": method,
                    "paper coverage": paper.coverage,
                    "our coverage": mean_coverage(outcomes),
                    "paper width": paper.size,
                    "our width": mean_width(outcomes),
                    "certified": "no" if outcomes[0].guarantee == "none" else "yes",
                }
            )

    number = "Table 2" if study.name == "diabetes" else "Table 8"
    caption = join_sentences(
        f"The rows of {number}; all our rows are in the next table.",
        describe_splits(records, study),
    )
    return ResultTable.of(f"{study.title}: the paper's rows beside ours", caption, rows)


# ---- the main table


def comparison_table(records: SplitRecords, options: Options, study: Study) -> ResultTable:
    """Make the main table of a data set: guarantee, coverage and width of every method.

    Beside them stand what theory expects and what the paper prints. `records` has the outcomes of
    one random split in each record; there is a row for each method at each level of `options`.
    """
    rows: list[TableRow] = []
    for alpha in options.alphas:
        for method, outcomes in outcomes_by_method(records, alpha).items():
            paper = study.paper_results.get((alpha, method), NOT_IN_PAPER)
            row = describe_method(
                method,
                outcomes,
                paper,
                alpha=alpha,
                sd_over_subsamples=study.width_sd_over_subsamples.get((alpha, method), 0.0),
            )
            rows.append(row)

    n_tested = sum(row["z"] is not None for row in rows)
    largest_z = bonferroni_point(n_tested)
    by_law = (
        f"'By law': rank / (n + 1); z against the Beta-binomial law ({n_tested} rows here; |z| "
        f"below {largest_z:.2f} with probability 99 %)."
    )
    infinite_widths = ""
    if any(math.isinf(row.width) for row in rows_of(records, Outcome)):
        infinite_widths = (
            "Infinite widths: the calibration rows are too few for the level, the threshold is "
            "infinite (Theorem 3.1) and every set is the whole line."
        )
    caption = join_sentences(
        describe_splits(records, study),
        by_law,
        "'Off': our mean less the paper's, in standard errors of the difference.",
        explain_subsamples(study),
        "Widths in standard deviations of the split's training targets.",
        infinite_widths,
    )
    return ResultTable.of(study.title, caption, rows)


def explain_subsamples(study: Study) -> str:
    """Write the sentence of a caption on what 'width off' includes where rows are a subsample."""
    if not study.width_sd_over_subsamples:
        return ""
    return (
        "'Width off' includes that the paper's subsample of rows is another one "
        "(california-subsamples)."
    )


def describe_method(
    method: str,
    outcomes: Sequence[Outcome],
    paper: PaperResult,
    *,
    alpha: float,
    sd_over_subsamples: float = 0.0,
) -> TableRow:
    """Make the row of the main table for one method at one level.

    `outcomes` has one outcome of the method for each split; `paper` is what the paper prints of it.
    The columns "off" are our mean less the paper's, in standard errors of the difference;
    `sd_over_subsamples` is that of the mean width, where the paper's rows are another subsample.
    """
    n_splits = len(outcomes)
    coverage = mean_coverage(outcomes)
    width = mean_width(outcomes)
    theory = compare_method_with_theory(outcomes)
    return {
        "target": target_coverage(alpha),
        "method": method,
        "guarantee": outcomes[0].guarantee,
        "coverage": coverage,
        "by law": theory.expected,
        "z": theory.z,
        "paper coverage": paper.coverage,
        "off": difference_in_standard_errors(coverage, paper.coverage, n_splits),
        "width": width,
        "paper width": paper.size,
        "width off": difference_in_standard_errors(
            width, paper.size, n_splits, sd_over_subsamples=sd_over_subsamples
        ),
        "P95": Measured.of(row.p95 for row in outcomes),
    }


def describe_splits(records: SplitRecords, study: Study) -> str:
    """Write the sentences of a caption that say what was measured: rows per role, draws, splits.

    Of the posterior draws it says how well they are mixed, by the worst of all fits: the fewest
    effective draws (`ess`, effective sample size) and the largest R-hat, which is 1 at best.
    """
    facts_of_splits = rows_of(records, SplitFacts)
    sizes = facts_of_splits[0].sizes  # the same in every split
    fewest_draws = min(facts.ess for facts in facts_of_splits)
    largest_rhat = max(facts.rhat for facts in facts_of_splits)
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


def paired_table(records: SplitRecords, options: Options, study: Study) -> ResultTable:
    """Make the table that compares two methods at a time over the same splits.

    `PAIRS` lists the pairs, such as DCO-Warmstart and BQ. A row has the change of width from the
    second method to the first, and p-values. Each of `records` has the outcomes of one split.
    """
    rows: list[TableRow] = []
    for alpha in options.alphas:
        outcomes = outcomes_by_method(records, alpha)
        for first, second in PAIRS:
            row: TableRow = {"target": target_coverage(alpha), "first": first, "second": second}
            row |= compare_outcomes(outcomes[first], outcomes[second])
            rows.append(row)

    which_compare_fairly = (
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
    caption = join_sentences(which_compare_fairly, columns, scope)
    return ResultTable.of(f"{study.title}: paired comparisons", caption, rows)


def compare_outcomes(first: Sequence[Outcome], second: Sequence[Outcome]) -> TableRow:
    """Compare two methods, each with one outcome for each of the same splits.

    The cells are the change of width from the second to the first in %, its 95 % interval, and the
    p-values of Wilcoxon's test for width and for coverage.
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


def prior_scale_table(records: SplitRecords, options: Options) -> ResultTable:
    """Make the table of coverage and width at each prior scale, like the paper's Table 9.

    The prior scale c (1 or 0.02) says how much noise the Bayesian model expects. Each of the two
    models is calibrated on the calibration rows alone, without a choice between them.
    """
    rows: list[TableRow] = []
    for alpha in options.alphas:
        outcomes_of = outcomes_by_method(records, alpha)
        for scale in PRIOR_SCALES:
            outcomes = outcomes_of[f"DCO, φ fixed (c = {scale:g})"]
            paper = NOT_IN_PAPER
            if alpha == PAPER_ALPHA:
                paper = paper_values.DIABETES_PRIOR_SCALES[scale]
            rows.append(
                {
                    "target": target_coverage(alpha),
                    "c": scale,
                    "coverage": mean_coverage(outcomes),
                    "by law": compare_method_with_theory(outcomes).expected,
                    "paper coverage": paper.coverage,
                    "width": mean_width(outcomes),
                    "paper width": paper.size,
                }
            )

    difference = ""
    if PAPER_ALPHA in options.alphas:
        difference = explain_difference_from_table_9(outcomes_by_method(records, PAPER_ALPHA))
    caption = join_sentences(
        "Each prior scale calibrated on the calibration rows alone.", difference
    )
    return ResultTable.of("Diabetes: prior scale", caption, rows)


def explain_difference_from_table_9(outcomes_of: Mapping[str, Sequence[Outcome]]) -> str:
    """Explain why the coverages in the paper's Table 9 cannot come from the rule that it states.

    The rule takes the rank-th smallest of n scores as its threshold. Then coverage is
    rank / (n + 1) on average, whatever the score. Rank and n are read from our own outcomes at the
    level of that table, which come by method; BQ has a higher rank.
    """
    stated_rule = outcomes_of[f"DCO, φ fixed ({WIDE_PRIOR})"][0]
    bq = outcomes_of["BQ"][0]
    fraction = f"{stated_rule.rank}/{stated_rule.n + 1}"
    coverage_of_rule = without_zero(stated_rule.rank / (stated_rule.n + 1))
    coverage_of_bq = without_zero(bq.rank / (bq.n + 1))

    paper_coverages = " and ".join(
        without_zero(paper.coverage.mean)
        for paper in paper_values.DIABETES_PRIOR_SCALES.values()
        if paper.coverage is not None
    )
    return (
        f"The paper's two rows (coverage {paper_coverages}) cannot come from that rule, whose "
        f"coverage is {fraction} = {coverage_of_rule} whatever the score; they are near BQ's law "
        f"on the pool, {coverage_of_bq}, and disagree with the paper's own main table."
    )


def without_zero(share: float) -> str:
    """Write a share with three decimals and no leading zero: 0.807 -> ".807"."""
    return f"{share:.3f}".removeprefix("0")


def selection_table(records: SplitRecords, options: Options, study: Study) -> ResultTable:
    """Make the table that counts outcomes of the selection over splits, like the paper's Table 10.

    An outcome is, for example, that the wide prior was chosen. The paper's counts are of Diabetes
    at one level over 50 splits; they stand beside ours where ours are of the same.
    """
    is_diabetes = study.name == "diabetes"
    rows: list[TableRow] = []
    for alpha in options.alphas:
        is_as_in_paper = is_diabetes and alpha == PAPER_ALPHA and len(records) == PAPER_SPLITS
        paper_counts = PAPER_SELECTION_COUNTS if is_as_in_paper else {}
        for outcome, count in count_selections(records, alpha).items():
            rows.append(
                {
                    "target": target_coverage(alpha),
                    "outcome": outcome,
                    "count": count,
                    "of": len(records),
                    "paper": paper_counts.get(outcome),
                }
            )

    what_is_counted = (
        "Splits in which a candidate has a threshold with an empirical risk of at most α on the "
        "tuning rows, and in which the wide prior had the smaller intervals there."
    )
    why_no_fallback = (
        "With exact search a feasible threshold always exists (risk 0 at the largest tuning "
        "score), so the fallback cannot occur."
    )
    why_half_and_half = (
        "The two prior scales give nearly the same sets, so that the choice between them is close "
        "to a coin toss."
    )
    title = f"{study.title}: selected prior scale"
    if is_diabetes:
        title = "Diabetes: threshold selection outcomes"
    caption = join_sentences(what_is_counted, why_no_fallback, why_half_and_half)
    return ResultTable.of(title, caption, rows)


def count_selections(records: SplitRecords, alpha: float) -> dict[str, int]:
    """Count the splits in which each outcome of the selection occurred, at one level.

    A split is feasible if some candidate has a threshold with an empirical risk of at most alpha on
    the tuning rows; without one the method would fall back. In others c = 1 was chosen.
    """
    tunings = [row for row in rows_of(records, TuningOutcome) if row.alpha == alpha]
    n_feasible = sum(any(row.feasible) for row in tunings)
    dco_outcomes = outcomes_by_method(records, alpha)["DCO-Warmstart"]
    n_wide = sum(row.chosen == WIDE_PRIOR for row in dco_outcomes)
    return {
        FEASIBLE: n_feasible,
        FALLBACK: len(tunings) - n_feasible,
        CHOSE_WIDE_PRIOR: n_wide,
    }


# ---- DirectTune


def direct_tune_table(records: SplitRecords, options: Options) -> ResultTable:
    """Make the table that compares DirectTune with DCO-Warmstart: widths, and spread of coverage.

    DirectTune deploys the threshold that it found on the tuning rows. DCO-Warmstart takes a new one
    from calibration rows, and so has a guarantee.
    """
    rows: list[TableRow] = []
    for alpha in options.alphas:
        outcomes_of = outcomes_by_method(records, alpha)
        for method in DIRECT_TUNE_METHODS:
            outcomes = outcomes_of[method]
            paper = paper_values.DIABETES.get(method, NOT_IN_PAPER)
            if alpha != PAPER_ALPHA:
                paper = NOT_IN_PAPER
            rows.append(
                {
                    "target": target_coverage(alpha),
                    "method": method,
                    "width": mean_width(outcomes),
                    "paper width": paper.size.mean if paper.size else None,
                    "sd of coverage": mean_coverage(outcomes).sd,
                    "paper sd": paper.coverage.sd if paper.coverage else None,
                    "coverage by law": compare_method_with_theory(outcomes).expected,
                }
            )

    fixed_structure = (
        "DirectTune with a fixed structure has the law of one order statistic as well, (n - "
        "floor(n α)) / (n + 1): its spread is that of any threshold on as many rows."
    )
    searched_structure = (
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
    caption = join_sentences(fixed_structure, searched_structure, paper_p_values)
    return ResultTable.of("Diabetes: DirectTune diagnostic", caption, rows)
