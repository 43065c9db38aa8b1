"""Tables 3 to 7, 11 and 12 of the paper beside ours, on CIFAR-100 or ImageNet-A.

Every function that makes a table takes the study (which data), the records (one for each random
split, with the outcome of every method) and the options of the run (its levels).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from dco.paper import paper_values
from dco.paper.classification_splits import (
    FEATURES,
    METHOD_BY_TITLE,
    BQOutcome,
    MethodOutcome,
    Outcome,
    RatioOutcome,
    Study,
    TuningOutcome,
)
from dco.paper.coverage_z import (
    NO_THEORY,
    TheoryComparison,
    bonferroni_point,
    chance_below,
    compare_with_theory,
    target_coverage,
)
from dco.paper.experiment import Options, SplitRecords, group_by, rows_of
from dco.paper.heads import CANDIDATES, HeadCandidate
from dco.paper.paired import percent_change, wilcoxon_if_finite
from dco.paper.paper_values import NOT_IN_PAPER, PaperResult
from dco.paper.tables import (
    Measured,
    ResultTable,
    TableRow,
    difference_in_standard_errors,
    join_sentences,
    ratio_of_means,
)

PAPER_ALPHA = 0.2  # of all tables of ImageNet-A but that of levels
DELTA = 0.05
ROUNDING = 1e-9  # coverages and targets that differ by less are equal
# methods whose sizes are compared, the first with the second
PAIRS = (
    ("DCO-Warmstart", "BQ"),
    ("DCO-PAC", "BQ"),
    ("DCO-Warmstart", "Split CP, φ fixed, whole pool"),
    ("DCO-Warmstart", "DCO, φ fixed"),
    ("DCO, refit", "DCO-Warmstart"),
)
MATCHED = (
    "BQ",
    "DCO, φ fixed",
    "Split CP, φ fixed, whole pool",
    "Matched-Φ BQ, δ/16",
    "Matched-Φ BQ, δ uncorrected",
    "DCO's structure, BQ on the pool",
    "DCO-PAC",
    "DCO-Warmstart",
    "DirectTune, fixed φ",
    "DirectTune, searched Φ",
    "EFCP (tuned and calibrated on the pool)",
    "DCO, refit",
)


# what the paper prints, by alpha and method
PaperResults: TypeAlias = Mapping[tuple[float, str], PaperResult]


# ---- reading records


def outcomes_by_method(
    records: SplitRecords, alpha: float, features: str
) -> dict[str, list[MethodOutcome]]:
    """Return {method: its outcomes} at one level, on "raw" or "standardised" features.

    The outcomes of a method are in order of seed, one for each split.
    """
    outcomes = [
        row
        for row in rows_of(records, MethodOutcome)
        if row.alpha == alpha and row.features == features
    ]
    return group_by(outcomes, key=lambda row: row.method)


def outcomes_by_ratio(
    records: SplitRecords, alpha: float, features: str
) -> dict[str, list[RatioOutcome]]:
    """Return {split ratio: outcomes of DCO} at one level, on "raw" or "standardised" features.

    With the ratio "33/67" a third of the pool (the rows that tune or calibrate) tunes.
    """
    outcomes = [
        row
        for row in rows_of(records, RatioOutcome)
        if row.alpha == alpha and row.features == features
    ]
    return group_by(outcomes, key=lambda row: row.ratio)


def sizes_of(outcomes: Sequence[Outcome]) -> list[float]:
    """Return the mean size of each split."""
    return [row.size for row in outcomes]


def mean_coverage(outcomes: Sequence[Outcome]) -> Measured:
    """Return mean and standard deviation of test coverage over splits."""
    return Measured.of(row.coverage for row in outcomes)


def mean_set_size(outcomes: Sequence[Outcome]) -> Measured:
    """Return mean and standard deviation of the mean set size over splits."""
    return Measured.of(row.size for row in outcomes)


def mean_p95(outcomes: Sequence[Outcome]) -> Measured:
    """Return mean and standard deviation of the P95 set size (95 % quantile) over splits."""
    return Measured.of(row.p95 for row in outcomes)


def has_law(method: str, study: Study) -> bool:
    """Say whether theory gives the distribution of a method's test coverage on these splits.

    It gives none for methods without a guarantee, nor where splits are balanced by class.
    """
    return METHOD_BY_TITLE[method].has_law and not study.is_stratified


def compare_method_with_theory(
    method: str, outcomes: Sequence[Outcome], study: Study
) -> TheoryComparison:
    """Compare the mean test coverage of a method with the one that theory expects.

    `outcomes` has one outcome of the method for each split. Both values of the result are None
    where theory expects nothing.
    """
    if not has_law(method, study):
        return NO_THEORY
    return compare_with_theory(outcomes)


def share_below(outcomes: Sequence[Outcome], alpha: float) -> float:
    """Return the share of splits whose test coverage is below the target."""
    n_below = sum(row.coverage < target_coverage(alpha) - ROUNDING for row in outcomes)
    return n_below / len(outcomes)


@dataclass(frozen=True)
class LevelRow:
    """What BQ or DCO-Warmstart did at one level on one kind of features, and what the paper prints.

    `bq_mean_size` and `paper_bq_size` are the set sizes of BQ at the same level, in our splits and
    in the paper: other sizes are divided by them.
    """

    features: str
    alpha: float
    method: str
    outcomes: list[MethodOutcome]
    bq_mean_size: float
    paper: PaperResult
    paper_bq_size: Measured | None


def level_rows(
    records: SplitRecords, options: Options, paper_results: PaperResults
) -> Iterator[LevelRow]:
    """Go through the outcomes of BQ and of DCO-Warmstart, by features and level.

    `paper_results` holds what the paper prints, by (alpha, method); it may lack some or all.
    """
    for features in FEATURES:
        for alpha in options.alphas:
            outcomes = outcomes_by_method(records, alpha, features)
            bq_mean_size = float(np.mean(sizes_of(outcomes["BQ"])))
            paper_bq = paper_results.get((alpha, "BQ"), NOT_IN_PAPER)
            for method in ("BQ", "DCO-Warmstart"):
                yield LevelRow(
                    features=features,
                    alpha=alpha,
                    method=method,
                    outcomes=outcomes[method],
                    bq_mean_size=bq_mean_size,
                    paper=paper_results.get((alpha, method), NOT_IN_PAPER),
                    paper_bq_size=paper_bq.size,
                )


def paper_results_by_level(study: Study) -> PaperResults:
    """Return the paper's Table 7 for a study: coverage and size of BQ and DCO at three levels."""
    return paper_values.CIFAR100 if study.name == "cifar100" else paper_values.IMAGENET_A


# ---- sentences of captions


def describe_splits(study: Study, records: SplitRecords, options: Options) -> str:
    """Write the sentences of a caption that say what was measured: data, splits, rows per role.

    Example: "CIFAR-100 features ... 50 plain random splits: train 2000, tune 1000, ...".
    """
    sizes = study.scale_of(options).role_sizes
    kind = "stratified" if study.is_stratified else "plain random"
    splits = (
        f"{len(records)} {kind} splits: train {sizes.train}, tune {sizes.tune}, "
        f"calibrate {sizes.calibrate}, test {sizes.test}."
    )
    quick = ""
    if options.quick:
        quick = "Quick setting: fewer rows, 10 epochs, 5 passes; not the paper's protocol."
    return join_sentences(study.data_note, splits, quick)


def title_suffix(features: str) -> str:
    """Name the features at the end of a title: "" for raw ones, else ", standardised features"."""
    return "" if features == "raw" else f", {features} features"


def describe_paper_data(study: Study, table: str) -> str:
    """Write the sentence of a caption that says which table of the paper its figures are from.

    All these tables are of ImageNet-A, so it also says where our own figures are of other data.
    """
    other_data = ""
    if study.name != "imagenet-a":
        other_data = ", other data than ours: coverage compares, thresholds and sizes do not"
    return f"Paper's figures: ImageNet-A, target .8 ({table}){other_data}."


def compare_sizes_with_paper(
    study: Study, records: SplitRecords, options: Options, kinds: Sequence[str]
) -> str:
    """Write the sentences of a caption that say how far our mean sizes are from the paper's.

    Compared are BQ and DCO-Warmstart at every level, on the `kinds` of features: "raw",
    "standardised" or both. The text is empty where the paper prints no size to compare with.
    """
    percents: list[float] = []
    errors: list[float] = []
    for row in level_rows(records, options, paper_results_by_level(study)):
        if row.features not in kinds:
            continue
        size = mean_set_size(row.outcomes)
        percent = percent_above(size, row.paper.size)
        error = difference_in_standard_errors(size, row.paper.size, len(records))
        if percent is not None:
            percents.append(percent)
        if error is not None:
            errors.append(error)
    if not errors:
        return ""

    reason = ""
    if study.name == "cifar100" and options.backbone is None:
        reason = "The paper's sizes are for another backbone, ResNet-50."
    difference = (
        f"Our mean sizes less the paper's, of BQ and DCO-Warmstart: {min(percents):+.1f} to "
        f"{max(percents):+.1f} %, {min(errors):+.1f} to {max(errors):+.1f} standard errors of the "
        "difference."
    )
    return join_sentences(reason, difference)


def percent_above(ours: Measured, paper: Measured | None) -> float | None:
    """Return by how many percent our mean is above the paper's; None where it prints none."""
    ratio = ratio_of_means(ours, paper)
    return None if ratio is None else 100 * (ratio - 1)


# ---- the main tables


def main_table(study: Study, records: SplitRecords, options: Options, features: str) -> ResultTable:
    """Make the main table of a data set, like the paper's Table 3: every method at every level.

    Its columns are the guarantee of the method, its test coverage over splits beside what theory
    expects and what the paper prints, and its set sizes.

    Parameters
    ----------
    study:
        The data set, CIFAR-100 or ImageNet-A.
    records:
        The stored outcomes, one record for each random split.
    options:
        The options of the run; used are its levels.
    features:
        "raw" or "standardised": the inputs of the models.
    """
    is_imagenet_a = study.name == "imagenet-a"
    paper_results = dict(paper_results_by_level(study))
    if is_imagenet_a:
        for method, paper in paper_values.IMAGENET_A_MAIN.items():
            paper_results[PAPER_ALPHA, method] = paper

    rows: list[TableRow] = []
    for alpha in options.alphas:
        for method, outcomes in outcomes_by_method(records, alpha, features).items():
            paper = paper_results.get((alpha, method), NOT_IN_PAPER)
            row = describe_method(method, outcomes, paper, study, alpha)
            if is_imagenet_a:
                row["paper P95"] = paper.p95
            rows.append(row)

    bq_protocol = (
        "φ₀ is posterior_nll, dropout 0.05, hidden (512, 256); BQ with δ "
        f"= {DELTA} on tune + calibrate."
    )
    n_tested = sum(row["z"] is not None for row in rows)
    caption = join_sentences(
        describe_splits(study, records, options),
        "Mean ± sd over splits.",
        bq_protocol,
        describe_law(study, n_tested=n_tested),
        compare_sizes_with_paper(study, records, options, [features]),
        "" if is_imagenet_a else "The paper prints no P95 for CIFAR-100.",
    )
    return ResultTable.of(f"{study.title}: heads on {features} features", caption, rows)


def describe_method(
    method: str,
    outcomes: Sequence[MethodOutcome],
    paper: PaperResult,
    study: Study,
    alpha: float,
) -> TableRow:
    """Make the row of the main table for one method at one level.

    `outcomes` has one outcome of the method for each split; `paper` is what the paper prints of it.
    Theory (the columns "by law", "z" and "below by law") is silent on some methods.
    """
    theory = compare_method_with_theory(method, outcomes, study)
    chance_by_theory = chance_below(outcomes, alpha) if has_law(method, study) else None
    return {
        "target": target_coverage(alpha),
        "method": method,
        "guarantee": METHOD_BY_TITLE[method].guarantee,
        "coverage": mean_coverage(outcomes),
        "by law": theory.expected,
        "z": theory.z,
        "below": share_below(outcomes, alpha),
        "below by law": chance_by_theory,
        "paper coverage": paper.coverage,
        "size": mean_set_size(outcomes),
        "paper size": paper.size,
        "P95": mean_p95(outcomes),
    }


def describe_law(study: Study, *, n_tested: int) -> str:
    """Write the sentences of a caption on the columns "by law", "z" and "below" of the main table.

    They set coverage beside its distribution in theory, the "law", which is Beta-binomial. With
    splits that are stratified by class there is none. `n_tested` rows of the table have a z.
    """
    largest_z = bonferroni_point(n_tested)  # no |z| is above it, with probability 99 %
    if study.is_stratified:
        return (
            "Splits are stratified by class, so the Beta-binomial law does not hold and no z is "
            "given."
        )
    return (
        f"'By law': rank / (n + 1); z against the Beta-binomial law ({n_tested} rows here; |z| "
        f"below {largest_z:.2f} with probability 99 %). 'Below': share of splits "
        "whose test coverage is below the target, beside its chance by law."
    )


def paired_table(study: Study, records: SplitRecords, options: Options) -> ResultTable:
    """Make the table that compares two methods at a time over the same splits.

    `PAIRS` lists the pairs, such as DCO-Warmstart and BQ. Each is compared at every level, on raw
    and on standardised features; `records` has the outcomes of one split in each record.
    """
    rows: list[TableRow] = []
    for features in FEATURES:
        for alpha in options.alphas:
            outcomes = outcomes_by_method(records, alpha, features)
            for first, second in PAIRS:
                row: TableRow = {
                    "features": features,
                    "target": target_coverage(alpha),
                    "first": first,
                    "second": second,
                }
                row |= compare_outcomes(outcomes[first], outcomes[second])
                rows.append(row)

    columns = (
        "Size of the first less size of the second, in % of the second's mean, with Student's "
        "95 % interval over paired splits, and Wilcoxon's p."
    )
    which_compare_fairly = (
        "DCO-Warmstart against BQ compares a marginal statement with a PAC one; DCO-PAC against "
        "BQ, and DCO-Warmstart against split CP on the whole pool, compare like with like."
    )
    p_values = ", ".join(
        f"{value:.1e} ({name})" for name, value in paper_values.IMAGENET_A_WILCOXON.items()
    )
    paper_p_values = f"The paper's p for DCO-Warmstart against BQ on ImageNet-A at .8: {p_values}."
    caption = join_sentences(
        describe_splits(study, records, options), columns, which_compare_fairly, paper_p_values
    )
    return ResultTable.of(f"{study.title}: paired comparisons", caption, rows, digits=2)


def compare_outcomes(first: Sequence[MethodOutcome], second: Sequence[MethodOutcome]) -> TableRow:
    """Compare two methods, each with one outcome for each of the same splits.

    The cells are the change of mean size from the second to the first in %, its 95 % interval, and
    p-values of Wilcoxon's test for size, P95 size and coverage.
    """
    change = percent_change(sizes_of(first), sizes_of(second))
    p_of_p95 = wilcoxon_if_finite([row.p95 for row in first], [row.p95 for row in second])
    p_of_coverage = wilcoxon_if_finite(
        [row.coverage for row in first], [row.coverage for row in second]
    )
    return {
        "size %": change.mean,
        "low %": change.low,
        "high %": change.high,
        "p size": change.p_value,
        "p P95": p_of_p95,
        "p coverage": p_of_coverage,
    }


# ---- single runs and candidates


def single_run_table(study: Study, records: SplitRecords, options: Options) -> ResultTable:
    """Make the table of one split, like the paper's Table 4: what BQ, DCO and DirectTune did on it.

    There is a row for each quantity, such as "q_cal" or "BQ coverage", at each level. The split is
    the first of `records`. The paper's value stands beside ours where the level is the paper's.
    """
    rows: list[TableRow] = []
    for alpha in options.alphas:
        paper_quantities = paper_values.IMAGENET_A_SINGLE_RUN if alpha == PAPER_ALPHA else {}
        for quantity, value in quantities_of_first_split(records, alpha).items():
            rows.append(
                {
                    "target": target_coverage(alpha),
                    "quantity": quantity,
                    "value": value,
                    "paper": paper_quantities.get(quantity),
                }
            )

    confidence = (
        "BQ's confidence P(L⁺ ≤ α) at its threshold is a Beta tail, computed exactly; 1,000 "
        "Dirichlet draws, as in the paper, have a standard error of .007 around it."
    )
    scales = (
        "λ and q of one run belong to one score scale only when the chosen structure is the same."
    )
    caption = join_sentences(
        describe_splits(study, records, options),
        f"Seed {records[0].seed}, raw features.",
        confidence,
        scales,
        describe_paper_data(study, "Table 4"),
    )
    return ResultTable.of(f"{study.title}: a single run", caption, rows)


def quantities_of_first_split(records: SplitRecords, alpha: float) -> dict[str, float]:
    """Return what three methods did on the first split at one level, named as in the paper.

    "λ_tune" is the threshold of DirectTune, "q_cal" that of DCO-Warmstart, "λ_BQ" that of BQ. BQ
    (Bayesian quadrature) also has a confidence. For each method follow the coverage, the mean size
    and the P95 size (the 95 % quantile of sizes) on the test rows.
    """
    first_split = records[:1]
    outcomes = outcomes_by_method(first_split, alpha, "raw")
    bq = outcomes["BQ"][0]
    dco = outcomes["DCO-Warmstart"][0]
    direct_tune = outcomes["DirectTune, searched Φ"][0]
    assert isinstance(bq, BQOutcome)
    quantities = {
        "λ_tune": direct_tune.threshold,
        "q_cal": dco.threshold,
        "λ_BQ": bq.threshold,
        "BQ confidence, exact": bq.confidence,
        "BQ confidence, 1,000 draws": bq.confidence_drawn,
    }
    for name, outcome in (("DirectTune", direct_tune), ("DCO-Warmstart", dco), ("BQ", bq)):
        quantities[f"{name} coverage"] = outcome.coverage
        quantities[f"{name} size"] = outcome.size
        quantities[f"{name} P95"] = outcome.p95
    return quantities


def confidence_table(study: Study, records: SplitRecords, options: Options) -> ResultTable:
    """Make the table of how sure BQ (Bayesian quadrature) is, at each level, to meet the target.

    Its confidence is P(L⁺ ≤ α), the probability that the risk at its threshold is at most α. The
    exact value is the same in every split. The paper estimates it by random draws (of a Dirichlet
    distribution), which differ between splits.
    """
    confidence_level = f"{1 - DELTA:.2f}".removeprefix("0")  # ".95"
    rows: list[TableRow] = []
    for alpha in options.alphas:
        outcomes = [
            row
            for row in rows_of(records, BQOutcome)
            if row.alpha == alpha and row.features == "raw"
        ]
        any_split = outcomes[0]  # rank, n and the exact confidence are the same in all of them
        drawn = [row.confidence_drawn for row in outcomes]
        n_below = sum(confidence < 1 - DELTA for confidence in drawn)
        rows.append(
            {
                "target": target_coverage(alpha),
                "rank": any_split.rank,
                "n": any_split.n,
                "exact": any_split.confidence,
                "1,000 draws": Measured.of(drawn),
                "least": min(drawn),
                "most": max(drawn),
                f"drawn below {confidence_level}": n_below / len(drawn),
            }
        )

    exact = "P(L⁺ ≤ α) at BQ's exact threshold is the same in every split: a Beta tail at its rank."
    by_draws = (
        "By 1,000 Dirichlet draws it scatters, and where it falls below "
        f"{confidence_level} a search by draws would have moved to another rank."
    )
    caption = join_sentences(describe_splits(study, records, options), exact, by_draws)
    return ResultTable.of(f"{study.title}: achieved confidence of BQ", caption, rows, digits=4)


def candidates_table(study: Study, records: SplitRecords, options: Options) -> ResultTable:
    """Make the table of all 16 candidates on the tuning rows of one split, like Table 11.

    The split is the first of `records`, the level the first one. The best candidate comes first:
    by mean set size, then by P95 size, then by threshold.
    """
    alpha = options.alphas[0]
    (tuning,) = (
        row
        for row in rows_of(records[:1], TuningOutcome)
        if row.alpha == alpha and row.features == "raw"
    )
    paper_candidates = paper_values.IMAGENET_A_CANDIDATES if alpha == PAPER_ALPHA else {}

    rows: list[TableRow] = []
    trials = zip(
        tuning.sizes,
        tuning.p95s,
        tuning.thresholds,
        tuning.candidates,
        tuning.feasible,
        strict=True,
    )
    for size, p95, threshold, number, is_feasible in sorted(trials):
        candidate = CANDIDATES[number - 1]
        paper = paper_candidates.get(number)
        rows.append(
            {
                "candidate": candidate.name,
                "score": candidate.score,
                "dropout": candidate.dropout,
                "hidden": candidate.hidden,
                "λ": threshold,
                "status": "feasible" if is_feasible else "infeasible",
                "size": size,
                "P95": p95,
                "paper λ": paper.threshold if paper else None,
                "paper size": paper.size if paper else None,
                "paper P95": paper.p95 if paper else None,
            }
        )

    target = target_coverage(alpha)
    which_split = (
        f"Seed {records[0].seed}, raw features, target {target:g}; the first row is selected."
    )
    caption = join_sentences(
        describe_splits(study, records, options),
        which_split,
        "With exact search every candidate is feasible.",
        describe_paper_data(study, "Table 11, which has ten of 16"),
    )
    return ResultTable.of(f"{study.title}: candidates on tuning rows", caption, rows)


# what candidates are counted by, and how a candidate's value is written
PROPERTIES: dict[str, Callable[[HeadCandidate], str]] = {
    "structure": lambda candidate: f"{candidate.score}, {candidate.hidden}, {candidate.dropout:g}",
    "score": lambda candidate: candidate.score,
    "hidden": lambda candidate: candidate.hidden,
    "dropout": lambda candidate: f"{candidate.dropout:g}",
}


def selection_table(study: Study, records: SplitRecords, options: Options) -> ResultTable:
    """Make the table of how often DCO-Warmstart chose each candidate, like the paper's Table 12.

    A candidate is a score on a network. Splits are counted for each candidate, and then for each
    score, each tuple of hidden widths, and each dropout rate.
    """
    rows: list[TableRow] = []
    for features in FEATURES:
        for alpha in options.alphas:
            outcomes = outcomes_by_method(records, alpha, features)["DCO-Warmstart"]
            for property_name in PROPERTIES:
                for row in count_selections(outcomes, property_name, alpha):
                    rows.append({"features": features, **row})

    caption = join_sentences(
        describe_splits(study, records, options),
        "Splits in which a structure had the smallest mean size on the tuning rows.",
        "Paper's counts: ImageNet-A, target .8 (Table 12), of 50.",
    )
    return ResultTable.of(f"{study.title}: selection frequencies", caption, rows, digits=2)


def count_selections(
    outcomes: Sequence[MethodOutcome], property_name: str, alpha: float
) -> list[TableRow]:
    """Count the splits whose chosen candidate has each value of a property, most frequent first.

    Example: with the property "dropout" there is a row for each dropout rate. A rate that is chosen
    in no split, ours or the paper's, has no row.

    Parameters
    ----------
    outcomes:
        The outcomes of one method, one for each split.
    property_name:
        A key of `PROPERTIES`: "structure", "score", "hidden" or "dropout".
    alpha:
        The level of the outcomes. The paper's counts are known at one level only.
    """
    value_of = PROPERTIES[property_name]
    n_splits = len(outcomes)
    wins = Counter(int(outcome.chosen) for outcome in outcomes)
    counts = count_wins(wins, value_of)

    has_paper = alpha == PAPER_ALPHA
    paper_wins = paper_values.IMAGENET_A_SELECTED if has_paper else {}
    paper_counts = count_wins(paper_wins, value_of)

    rows: list[TableRow] = []
    for value in sorted(counts, key=lambda value: -counts[value]):
        if counts[value] == 0 and paper_counts[value] == 0:
            continue
        rows.append(
            {
                "target": target_coverage(alpha),
                "by": property_name,
                "value": value,
                "splits": counts[value],
                "%": 100 * counts[value] / n_splits,
                "paper": paper_counts[value] if has_paper else None,
            }
        )
    return rows


def count_wins(wins: Mapping[int, int], value_of: Callable[[HeadCandidate], str]) -> dict[str, int]:
    """Add up the wins of all candidates with the same value of a property, such as the same score.

    `wins` maps the number of a candidate to the splits that chose it; one that is missing never
    won. Example: {1: 20, 2: 5, 9: 25} -> {"posterior_nll": 25, "aoi_nll": 25}.
    """
    counts: dict[str, int] = {}
    for candidate in CANDIDATES:
        value = value_of(candidate)
        counts[value] = counts.get(value, 0) + wins.get(candidate.number, 0)
    return counts


# ---- controls and ratios


def matched_table(
    study: Study, records: SplitRecords, options: Options, features: str
) -> ResultTable:
    """Make the table of controls, which tell why the sets of DCO are smaller than those of BQ.

    BQ (Bayesian quadrature) is the baseline. A control is a method that differs from DCO in one
    thing: whether it searches among the candidates, by which rule it calibrates, or how it divides
    rows into roles. `features` are "raw" or "standardised".
    """
    rows: list[TableRow] = []
    for alpha in options.alphas:
        outcomes = outcomes_by_method(records, alpha, features)
        bq_mean_size = float(np.mean(sizes_of(outcomes["BQ"])))
        for method in MATCHED:
            rows.append(describe_control(method, outcomes[method], bq_mean_size, study, alpha))

    size_column = (
        "'Size / BQ' sets our mean size over BQ's beside the same ratio in the paper's table "
        "(ImageNet-A)."
    )
    below_column = (
        "'Below' is the share of splits whose test coverage is below the target; a PAC row is "
        "allowed 5 % plus the noise of the test rows."
    )
    no_guarantee = (
        "Rows whose structure was chosen on the rows that calibrate it have no guarantee unless δ "
        "is shared out."
    )
    caption = join_sentences(
        describe_splits(study, records, options),
        f"{features.capitalize()} features.",
        size_column,
        below_column,
        no_guarantee,
    )
    title = f"{study.title}: matched candidate class and calibration mechanism"
    return ResultTable.of(title + title_suffix(features), caption, rows)


def describe_control(
    method: str,
    outcomes: Sequence[MethodOutcome],
    bq_mean_size: float,
    study: Study,
    alpha: float,
) -> TableRow:
    """Make the row of one control (a method to compare DCO with) at one level.

    `outcomes` has one outcome of the method for each split. Its set size is also given as a
    multiple of `bq_mean_size`, that of the baseline BQ. Controls with a fixed candidate search
    nothing; the others search the same candidates as DCO, the "matched Φ".
    """
    searches_nothing = method == "BQ" or "fixed" in method  # "DCO, φ fixed" is such a title
    size = mean_set_size(outcomes)
    theory = compare_method_with_theory(method, outcomes, study)
    paper_ratio = matched_paper_ratio(method) if alpha == PAPER_ALPHA else None
    return {
        "target": target_coverage(alpha),
        "method": method,
        "class": "fixed" if searches_nothing else "matched Φ",
        "guarantee": METHOD_BY_TITLE[method].guarantee,
        "coverage": mean_coverage(outcomes),
        "by law": theory.expected,
        "below": share_below(outcomes, alpha),
        "size": size,
        "size / BQ": size.mean / bq_mean_size,
        "paper size / BQ": paper_ratio,
        "P95": mean_p95(outcomes),
    }


def matched_paper_ratio(method: str) -> float | None:
    """Return the size of a control over BQ's in the paper's Table 5; None if it is not there."""
    paper_results = paper_values.IMAGENET_A_MATCHED
    paper = paper_results.get(method, NOT_IN_PAPER)
    return ratio_of_means(paper.size, paper_results["BQ"].size)


def main_beside_table(study: Study, records: SplitRecords, options: Options) -> ResultTable:
    """Make the table of the three methods in the paper's Table 3: its figures beside ours.

    It has no rows where the records are not of the paper's level.
    """
    rows: list[TableRow] = []
    if PAPER_ALPHA in options.alphas:
        outcomes = outcomes_by_method(records, PAPER_ALPHA, "raw")
        for method, paper in paper_values.IMAGENET_A_MAIN.items():
            rows.append({"method": method, **beside_paper(outcomes[method], paper)})

    caption = join_sentences(
        describe_splits(study, records, options),
        "Raw features.",
        describe_paper_data(study, "Table 3"),
    )
    return ResultTable.of(f"{study.title}: the paper's main table beside ours", caption, rows)


def matched_beside_table(study: Study, records: SplitRecords, options: Options) -> ResultTable:
    """Make the table of the five controls in the paper's Table 5: its figures beside ours.

    A control is a method that DCO is compared with. The table has no rows where the records are not
    of the paper's level.
    """
    rows: list[TableRow] = []
    if PAPER_ALPHA in options.alphas:
        outcomes = outcomes_by_method(records, PAPER_ALPHA, "raw")
        for method, paper in paper_values.IMAGENET_A_MATCHED.items():
            if method in outcomes:
                rows.append({"method": method, **beside_paper(outcomes[method], paper)})

    caption = join_sentences(
        describe_splits(study, records, options),
        "Raw features.",
        describe_paper_data(study, "Table 5"),
    )
    return ResultTable.of(f"{study.title}: the paper's controls beside ours", caption, rows)


def beside_paper(outcomes: Sequence[Outcome], paper: PaperResult) -> TableRow:
    """Return the cells of coverage, mean size and P95 size, each with the paper's after it."""
    return {
        "coverage": mean_coverage(outcomes),
        "paper coverage": paper.coverage,
        "size": mean_set_size(outcomes),
        "paper size": paper.size,
        "P95": mean_p95(outcomes),
        "paper P95": paper.p95,
    }


def ratio_table(study: Study, records: SplitRecords, options: Options) -> ResultTable:
    """Make the table of how DCO-Warmstart depends on the share of its rows that tune.

    The pool (the rows that either tune or calibrate) is divided at five ratios: with "20/80" 20 %
    of it tune and 80 % calibrate. There is a row for each ratio at each level.
    """
    rows: list[TableRow] = []
    for alpha in options.alphas:
        for ratio, outcomes in outcomes_by_ratio(records, alpha, "raw").items():
            theory = compare_method_with_theory("DCO-Warmstart", outcomes, study)
            rows.append(
                {
                    "target": target_coverage(alpha),
                    "ratio": ratio,
                    "method": f"DCO-Warmstart, {ratio}",
                    "coverage": mean_coverage(outcomes),
                    "by law": theory.expected,
                    "z": theory.z,
                    "size": mean_set_size(outcomes),
                    "P95": mean_p95(outcomes),
                    "stability %": modal_share(outcomes),
                }
            )

    what_varies = (
        "DCO-Warmstart with the same pool cut into tuning and calibration rows at five places "
        "(ratio, in %)."
    )
    caption = join_sentences(
        describe_splits(study, records, options),
        "Raw features.",
        what_varies,
        "Stability: % of splits that choose the modal candidate.",
    )
    return ResultTable.of(f"{study.title}: split ratio", caption, rows)


def ratio_beside_table(
    study: Study, records: SplitRecords, options: Options, features: str
) -> ResultTable:
    """Make the table of DCO-Warmstart at five split ratios: the paper's Table 6 beside our figures.

    With the ratio "20/80" 20 % of the pool (the rows that either tune or calibrate) tune. The table
    has no rows where the records are not of the paper's level.
    """
    rows: list[TableRow] = []
    if PAPER_ALPHA in options.alphas:
        for ratio, outcomes in outcomes_by_ratio(records, PAPER_ALPHA, features).items():
            paper = paper_values.IMAGENET_A_RATIOS[ratio]
            rows.append(
                {
                    "ratio": ratio,
                    **beside_paper(outcomes, paper),
                    "stability %": modal_share(outcomes),
                    "paper stability %": paper_values.IMAGENET_A_STABILITY[ratio],
                }
            )

    caption = join_sentences(
        describe_splits(study, records, options),
        f"{features.capitalize()} features.",
        describe_paper_data(study, "Table 6"),
    )
    title = f"{study.title}: the paper's split ratios beside ours"
    return ResultTable.of(title + title_suffix(features), caption, rows)


def modal_share(outcomes: Sequence[Outcome]) -> float:
    """Return the share of splits, in %, that choose the modal candidate (the most frequent one)."""
    counts = Counter(row.chosen for row in outcomes)
    return 100 * max(counts.values()) / len(outcomes)


# ---- levels


def levels_table(study: Study, records: SplitRecords, options: Options) -> ResultTable:
    """Make the table of test coverage at every level, like the paper's Table 7.

    Its rows are BQ (the baseline) and DCO-Warmstart (the paper's method), on raw and on
    standardised features. Beside our mean coverage stand what theory expects and what the paper
    prints.
    """
    rows: list[TableRow] = []
    for row in level_rows(records, options, paper_results_by_level(study)):
        coverage = mean_coverage(row.outcomes)
        theory = compare_method_with_theory(row.method, row.outcomes, study)
        paper_coverage = row.paper.coverage
        rows.append(
            {
                "features": row.features,
                "target": target_coverage(row.alpha),
                "method": row.method,
                "coverage": coverage,
                "by law": theory.expected,
                "paper coverage": paper_coverage,
                "off": difference_in_standard_errors(coverage, paper_coverage, len(records)),
            }
        )

    off_column = "'Off': our coverage less the paper's, in standard errors of the difference."
    caption = join_sentences(describe_splits(study, records, options), off_column)
    return ResultTable.of(f"{study.title}: target coverage levels", caption, rows)


def level_sizes_table(study: Study, records: SplitRecords, options: Options) -> ResultTable:
    """Make the table of set sizes at every level, like the paper's Table 7.

    Its rows are BQ (the baseline) and DCO-Warmstart (the paper's method), on raw and on
    standardised features. Beside our mean size stand the paper's, the difference in percent and in
    standard errors, and both sizes as multiples of BQ's.
    """
    rows: list[TableRow] = []
    for row in level_rows(records, options, paper_results_by_level(study)):
        size = mean_set_size(row.outcomes)
        paper_size = row.paper.size
        rows.append(
            {
                "features": row.features,
                "target": target_coverage(row.alpha),
                "method": row.method,
                "size": size,
                "paper size": paper_size,
                "size %": percent_above(size, paper_size),
                "off": difference_in_standard_errors(size, paper_size, len(records)),
                "size / BQ": size.mean / row.bq_mean_size,
                "paper size / BQ": ratio_of_means(paper_size, row.paper_bq_size),
            }
        )

    difference_columns = (
        "Our mean size less the paper's in % of the paper's ('size %') and in standard errors of "
        "the difference ('off')."
    )
    caption = join_sentences(
        describe_splits(study, records, options),
        difference_columns,
        compare_sizes_with_paper(study, records, options, FEATURES),
        "Sizes over BQ's own ('size / BQ') depend less on the backbone.",
    )
    return ResultTable.of(f"{study.title}: sizes at target coverage levels", caption, rows)


def levels_beside_table(study: Study, records: SplitRecords, options: Options) -> ResultTable:
    """Make the table that sets our results on other data beside the paper's on ImageNet-A.

    Its rows are BQ (the baseline) and DCO-Warmstart at the levels of the paper's Table 7. There are
    none where our data are ImageNet-A too: `levels_table` compares these.
    """
    paper_results = {} if study.name == "imagenet-a" else paper_values.IMAGENET_A
    rows: list[TableRow] = []
    for row in level_rows(records, options, paper_results):
        if row.paper is NOT_IN_PAPER:
            continue
        size = mean_set_size(row.outcomes)
        rows.append(
            {
                "features": row.features,
                "target": target_coverage(row.alpha),
                "method": row.method,
                "coverage": mean_coverage(row.outcomes),
                "paper coverage": row.paper.coverage,
                "paper size": row.paper.size,
                "size / BQ": size.mean / row.bq_mean_size,
                "paper size / BQ": ratio_of_means(row.paper.size, row.paper_bq_size),
            }
        )

    what_compares = (
        "Paper's figures: ImageNet-A (Table 7), other data than ours: coverage compares, and so "
        "does size / BQ."
    )
    caption = join_sentences(describe_splits(study, records, options), what_compares)
    title = f"{study.title}: the paper's levels on ImageNet-A beside ours"
    return ResultTable.of(title, caption, rows)
