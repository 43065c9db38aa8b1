"""Tables 2, 8, 9 and 10, and the DirectTune diagnostic of Appendix C.2, beside ours."""

from __future__ import annotations

import math

from dco.paper import paper_values
from dco.paper.coverage_z import MeanLaw, bonferroni_point, law_of_mean, target
from dco.paper.experiment import Options, Records, group_by, rows_of
from dco.paper.paired import percent_change, wilcoxon_if_finite
from dco.paper.regression_splits import (
    PRIOR_SCALES,
    WIDE_PRIOR,
    Outcome,
    SplitFacts,
    Study,
    TuningOutcome,
)
from dco.paper.tables import PAPER_SPLITS, Cells, Measured, ResultTable, standard_errors

PAPER_ALPHA = 0.2  # of the tables of Diabetes
PAIRS = (
    ("DCO-Warmstart", "BQ"),
    ("DCO-PAC", "BQ"),
    ("DCO-Warmstart", "Split CP, φ fixed, whole pool"),
    ("DCO-Warmstart", "DCO, φ fixed (c = 1)"),
    ("DCO, refit", "DCO-Warmstart"),
)


def make_tables(records: Records, options: Options, *, study: Study) -> list[ResultTable]:
    """Make the main table, the paired comparisons, and what was selected; for Diabetes also the
    prior scales and the DirectTune diagnostic.
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
    """Return the outcomes of every method at one level."""
    outcomes = [row for row in rows_of(records, Outcome) if row.alpha == alpha]
    return group_by(outcomes, key=lambda row: row.method)


def mean_coverage(rows: list[Outcome]) -> Measured:
    """Return the coverage over splits."""
    return Measured.of(row.coverage for row in rows)


def mean_width(rows: list[Outcome]) -> Measured:
    """Return the mean width over splits."""
    return Measured.of(row.width for row in rows)


def law_of_method(rows: list[Outcome]) -> MeanLaw:
    """Return the law of the mean coverage of a method; nothing where it has none."""
    return law_of_mean(rows) if rows[0].law else MeanLaw(expected=None, z=None)


def comparison_table(records: Records, options: Options, study: Study) -> ResultTable:
    """Show methods by level: guarantee, coverage beside its law and the paper's, width beside the
    paper's, P95.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        for method, outcomes in outcomes_at(records, alpha).items():
            paper = study.printed.get((alpha, method))
            coverage = mean_coverage(outcomes)
            width = mean_width(outcomes)
            law = law_of_method(outcomes)
            n = len(outcomes)
            rows.append(
                {
                    "target": target(alpha),
                    "method": method,
                    "guarantee": outcomes[0].guarantee,
                    "coverage": coverage,
                    "by law": law.expected,
                    "z": law.z,
                    "paper coverage": paper.coverage if paper else None,
                    "off": standard_errors(coverage, paper.coverage, n) if paper else None,
                    "width": width,
                    "paper width": paper.size if paper else None,
                    "width off": standard_errors(width, paper.size, n) if paper else None,
                    "P95": Measured.of(row.p95 for row in outcomes),
                }
            )

    facts = rows_of(records, SplitFacts)
    sizes = facts[0].sizes
    n_tested = sum(row["z"] is not None for row in rows)
    caption = (
        f"{study.title}: train {sizes['train']}, tune {sizes['tune']}, calibrate "
        f"{sizes['calibrate']}, test {sizes['test']}. {study.draws} posterior draws by exact Gibbs "
        f"steps; over all fits at least {min(row.ess for row in facts):.0f} effective draws, R-hat "
        f"at most {max(row.rhat for row in facts):.3f}. {len(records)} splits, mean ± sd. 'By "
        f"law': rank / (n + 1); z against the Beta-binomial law ({n_tested} rows here; |z| below "
        f"{bonferroni_point(n_tested):.2f} with probability 99 %). 'Off': our mean less the "
        "paper's, in standard errors of the difference. Widths in standard deviations of the "
        "split's training targets."
    )
    if any(math.isinf(row.width) for row in rows_of(records, Outcome)):
        caption += (
            " Infinite widths: the calibration rows are too few for the level, the threshold is "
            "infinite (Theorem 3.1) and every set is the whole line."
        )
    return ResultTable.of(study.title, caption, rows)


def paired_table(records: Records, options: Options, study: Study) -> ResultTable:
    """Show differences over the same splits: mean with a 95 % interval, and Wilcoxon's p for width
    and for coverage.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        outcomes = outcomes_at(records, alpha)
        for first, second in PAIRS:
            change = percent_change(
                [row.width for row in outcomes[first]], [row.width for row in outcomes[second]]
            )
            rows.append(
                {
                    "target": target(alpha),
                    "first": first,
                    "second": second,
                    "width %": change.mean,
                    "low %": change.low,
                    "high %": change.high,
                    "p width": change.p_value,
                    "p coverage": wilcoxon_if_finite(
                        [row.coverage for row in outcomes[first]],
                        [row.coverage for row in outcomes[second]],
                    ),
                }
            )
    return ResultTable.of(
        f"{study.title}: paired comparisons",
        "DCO-Warmstart against BQ compares a marginal statement with a PAC one; DCO-PAC against "
        "BQ, and DCO-Warmstart against split CP on the whole pool, compare like with like. Width "
        "of the first less width of the second, in % of the second's mean, with Student's 95 % "
        "interval over paired splits. Splits of one table are not new data sets: intervals and "
        "p-values speak of splits of this table.",
        rows,
    )


def prior_scale_table(records: Records, options: Options) -> ResultTable:
    """Show Table 9: each prior scale calibrated on the calibration rows."""
    rows: list[Cells] = []
    for alpha in options.alphas:
        for scale in PRIOR_SCALES:
            outcomes = outcomes_at(records, alpha)[f"DCO, φ fixed (c = {scale:g})"]
            paper = paper_values.DIABETES_PRIOR_SCALES[scale] if alpha == PAPER_ALPHA else None
            rows.append(
                {
                    "target": target(alpha),
                    "c": scale,
                    "coverage": mean_coverage(outcomes),
                    "by law": law_of_method(outcomes).expected,
                    "paper coverage": paper.coverage if paper else None,
                    "width": mean_width(outcomes),
                    "paper width": paper.size if paper else None,
                }
            )
    caption = "Each prior scale calibrated on the calibration rows alone."
    if PAPER_ALPHA in options.alphas:
        caption += " " + why_table_9_differs(outcomes_at(records, PAPER_ALPHA))
    return ResultTable.of("Diabetes: prior scale", caption, rows)


def why_table_9_differs(outcomes: dict[str, list[Outcome]]) -> str:
    """Say what coverage the rule implies, and whose coverage the paper prints."""
    first, second = paper_values.DIABETES_PRIOR_SCALES.values()
    fixed = outcomes[f"DCO, φ fixed ({WIDE_PRIOR})"][0]
    bq = outcomes["BQ"][0]
    return (
        f"The paper's two rows (coverage {without_zero(first.coverage.mean)} and "
        f"{without_zero(second.coverage.mean)}) cannot come from that rule, whose coverage is "
        f"{fixed.rank}/{fixed.n + 1} = {without_zero(fixed.rank / (fixed.n + 1))} whatever the "
        f"score; they are near BQ's law on the pool, {without_zero(bq.rank / (bq.n + 1))}, and "
        "disagree with the paper's own main table."
    )


def without_zero(value: float) -> str:
    """Write a share with three decimals as .807."""
    return f"{value:.3f}".removeprefix("0")


def selection_table(records: Records, options: Options, title: str) -> ResultTable:
    """Show Table 10: in how many splits a tuning threshold was feasible; and which prior won."""
    is_diabetes = title.startswith("Diabetes")
    rows: list[Cells] = []
    for alpha in options.alphas:
        tunings = [row for row in rows_of(records, TuningOutcome) if row.alpha == alpha]
        n_feasible = sum(any(row.feasible) for row in tunings)
        n_wide = sum(
            row.chosen == WIDE_PRIOR for row in outcomes_at(records, alpha)["DCO-Warmstart"]
        )
        counts = {
            "feasible threshold found": (n_feasible, paper_values.DIABETES_FEASIBLE),
            "fallback": (len(tunings) - n_feasible, paper_values.DIABETES_FALLBACK),
            "c = 1 chosen": (n_wide, paper_values.DIABETES_CHOSE_WIDE_PRIOR),
        }
        compares = is_diabetes and alpha == PAPER_ALPHA and len(records) == PAPER_SPLITS
        for outcome, (count, paper_count) in counts.items():
            rows.append(
                {
                    "target": target(alpha),
                    "outcome": outcome,
                    "count": count,
                    "of": len(tunings),
                    "paper": paper_count if compares else None,
                }
            )
    return ResultTable.of(
        title,
        "Splits in which a candidate has a threshold with an empirical risk of at most α on the "
        "tuning rows, and in which the wide prior had the smaller intervals there. With exact "
        "search a feasible threshold always exists (risk 0 at the largest tuning score), so the "
        "fallback cannot occur. The two prior scales give nearly the same sets, so that the choice "
        "between them is close to a coin toss.",
        rows,
    )


def direct_tune_table(records: Records, options: Options) -> ResultTable:
    """Show the DirectTune diagnostic: width and spread of coverage beside DCO-Warmstart."""
    rows: list[Cells] = []
    for alpha in options.alphas:
        outcomes = outcomes_at(records, alpha)
        for method in ("DCO-Warmstart", "DirectTune, fixed φ", "DirectTune, searched Φ"):
            paper = paper_values.DIABETES.get(method) if alpha == PAPER_ALPHA else None
            rows.append(
                {
                    "target": target(alpha),
                    "method": method,
                    "width": mean_width(outcomes[method]),
                    "paper width": paper.size.mean if paper else None,
                    "sd of coverage": mean_coverage(outcomes[method]).sd,
                    "paper sd": paper.coverage.sd if paper else None,
                    "coverage by law": law_of_method(outcomes[method]).expected,
                }
            )
    caption = (
        "DirectTune with a fixed structure has the law of one order statistic as well, (n - "
        "floor(n α)) / (n + 1): its spread is that of any threshold on as many rows. With a "
        "searched structure the same rows choose and calibrate, and coverage falls below it."
    )
    if PAPER_ALPHA in options.alphas:
        p_values = paper_values.DIABETES_WILCOXON
        caption += (
            " The paper's Wilcoxon p-values of DCO-Warmstart against BQ: width "
            f"{p_values['width']:.2g}, coverage {p_values['coverage']:.2g}."
        )
    return ResultTable.of("Diabetes: DirectTune diagnostic", caption, rows)
