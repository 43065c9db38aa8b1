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
from dco.paper.coverage_z import MeanLaw, bonferroni_point, chance_below, law_of_mean, target
from dco.paper.experiment import Options, Records, group_by, rows_of
from dco.paper.heads import CANDIDATES, HeadCandidate
from dco.paper.paired import percent_change, wilcoxon_if_finite
from dco.paper.paper_values import Printed
from dco.paper.tables import Cells, Measured, ResultTable, join_sentences, standard_errors

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
PrintedLevels: TypeAlias = Mapping[tuple[float, str], Printed]


# ---- reading records


def outcomes_at(records: Records, alpha: float, features: str) -> dict[str, list[MethodOutcome]]:
    """Return the outcomes of every method at one level on one kind of features, by method.

    The outcomes of a method are in order of seed, one for each split.
    """
    outcomes = [
        row
        for row in rows_of(records, MethodOutcome)
        if row.alpha == alpha and row.features == features
    ]
    return group_by(outcomes, key=lambda row: row.method)


def ratios_at(records: Records, alpha: float, features: str) -> dict[str, list[RatioOutcome]]:
    """Return the outcomes of DCO at one level on one kind of features, by split ratio ("33/67")."""
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
    """Return the coverage over splits."""
    return Measured.of(row.coverage for row in outcomes)


def mean_set_size(outcomes: Sequence[Outcome]) -> Measured:
    """Return the mean set size over splits."""
    return Measured.of(row.size for row in outcomes)


def mean_p95(outcomes: Sequence[Outcome]) -> Measured:
    """Return the P95 set size over splits."""
    return Measured.of(row.p95 for row in outcomes)


def has_law(method: str, study: Study) -> bool:
    """Say whether coverage has the law of its rank: not where splits are balanced by class."""
    return METHOD_BY_TITLE[method].has_law and not study.is_stratified


def law_of_method(method: str, outcomes: Sequence[Outcome], study: Study) -> MeanLaw:
    """Compare the mean coverage of a method with its law; both values are None without a law."""
    if not has_law(method, study):
        return MeanLaw(expected=None, z=None)
    return law_of_mean(outcomes)


def share_below(outcomes: Sequence[Outcome], alpha: float) -> float:
    """Return the share of splits whose test coverage is below the target."""
    n_below = sum(row.coverage < target(alpha) - ROUNDING for row in outcomes)
    return n_below / len(outcomes)


@dataclass(frozen=True)
class LevelRow:
    """BQ or DCO-Warmstart at one level on one kind of features, and what the paper prints of it.

    `bq_mean_size` is that of BQ at the same level, for sizes in units of BQ's.
    """

    features: str
    alpha: float
    method: str
    outcomes: list[MethodOutcome]
    bq_mean_size: float
    printed: Printed | None


def level_rows(records: Records, options: Options, paper: PrintedLevels) -> Iterator[LevelRow]:
    """Go through the outcomes of BQ and DCO-Warmstart, by features and level.

    `paper` gives what the paper prints of a method at a level, if anything.
    """
    for features in FEATURES:
        for alpha in options.alphas:
            outcomes = outcomes_at(records, alpha, features)
            for method in ("BQ", "DCO-Warmstart"):
                yield LevelRow(
                    features=features,
                    alpha=alpha,
                    method=method,
                    outcomes=outcomes[method],
                    bq_mean_size=float(np.mean(sizes_of(outcomes["BQ"]))),
                    printed=paper.get((alpha, method)),
                )


def printed_levels(study: Study) -> PrintedLevels:
    """Return the paper's Table 7 for a study: coverage and size of BQ and DCO at three levels."""
    return paper_values.CIFAR100 if study.name == "cifar100" else paper_values.IMAGENET_A


# ---- sentences of captions


def describe_splits(study: Study, records: Records, options: Options) -> str:
    """Say what a table was measured on: the data, the number and kind of splits, and the roles."""
    sizes = study.scale_of(options).sizes
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
    """End a title; the paper's tables are taken to be of raw features."""
    return "" if features == "raw" else f", {features} features"


def describe_printed(study: Study, table: str) -> str:
    """Say from which table of ImageNet-A the paper's figures are, and if ours are of other data."""
    other_data = ""
    if study.name != "imagenet-a":
        other_data = ", other data than ours: coverage compares, thresholds and sizes do not"
    return f"Paper's figures: ImageNet-A, target .8 ({table}){other_data}."


def compare_sizes_with_paper(
    study: Study, records: Records, options: Options, kinds: Sequence[str]
) -> str:
    """Say how far our mean sizes on these kinds of features are from the paper's, and why.

    Returns no sentence where the paper prints no size to compare with.
    """
    percents: list[float] = []
    errors: list[float] = []
    for row in level_rows(records, options, printed_levels(study)):
        if row.printed is None or row.features not in kinds:
            continue
        size = mean_set_size(row.outcomes)
        paper_size = row.printed.size
        percents.append(100 * (size.mean / paper_size.mean - 1))
        error = standard_errors(size, paper_size, len(records))
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


# ---- the main tables


def main_table(study: Study, records: Records, options: Options, features: str) -> ResultTable:
    """Make the main table of a study, the paper's Table 3: every method at every level.

    Its columns are the guarantee of the method, its coverage over splits beside the law of coverage
    and beside the paper's, and its set sizes. `features` are "raw" or "standardised".
    """
    is_imagenet_a = study.name == "imagenet-a"
    paper = dict(printed_levels(study))
    if is_imagenet_a:
        for method, printed_row in paper_values.IMAGENET_A_MAIN.items():
            paper[PAPER_ALPHA, method] = printed_row

    rows: list[Cells] = []
    for alpha in options.alphas:
        for method, outcomes in outcomes_at(records, alpha, features).items():
            printed = paper.get((alpha, method))
            cells = describe_method(method, outcomes, printed, study, alpha)
            if is_imagenet_a:
                cells["paper P95"] = printed.p95 if printed else None
            rows.append(cells)

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
    printed: Printed | None,
    study: Study,
    alpha: float,
) -> Cells:
    """Make the row of one method at one level, beside what the paper prints of it, if anything.

    `outcomes` are those of the method in every split.
    """
    law = law_of_method(method, outcomes, study)
    chance = chance_below(outcomes, alpha) if has_law(method, study) else None
    return {
        "target": target(alpha),
        "method": method,
        "guarantee": METHOD_BY_TITLE[method].guarantee,
        "coverage": mean_coverage(outcomes),
        "by law": law.expected,
        "z": law.z,
        "below": share_below(outcomes, alpha),
        "below by law": chance,
        "paper coverage": printed.coverage if printed else None,
        "size": mean_set_size(outcomes),
        "paper size": printed.size if printed else None,
        "P95": mean_p95(outcomes),
    }


def describe_law(study: Study, *, n_tested: int) -> str:
    """Explain the columns on the law of coverage, or say why they are empty.

    `n_tested` is the number of rows of the table with a z.
    """
    if study.is_stratified:
        return (
            "Splits are stratified by class, so the Beta-binomial law does not hold and no z is "
            "given."
        )
    return (
        f"'By law': rank / (n + 1); z against the Beta-binomial law ({n_tested} rows here; |z| "
        f"below {bonferroni_point(n_tested):.2f} with probability 99 %). 'Below': share of splits "
        "whose test coverage is below the target, beside its chance by law."
    )


def paired_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Make the table that compares methods in pairs (`PAIRS`) over the same splits.

    Each pair is compared at every level, on raw and on standardised features.
    """
    rows: list[Cells] = []
    for features in FEATURES:
        for alpha in options.alphas:
            outcomes = outcomes_at(records, alpha, features)
            for first, second in PAIRS:
                cells: Cells = {
                    "features": features,
                    "target": target(alpha),
                    "first": first,
                    "second": second,
                }
                rows.append(cells | compare_outcomes(outcomes[first], outcomes[second]))

    columns = (
        "Size of the first less size of the second, in % of the second's mean, with Student's "
        "95 % interval over paired splits, and Wilcoxon's p."
    )
    like_with_like = (
        "DCO-Warmstart against BQ compares a marginal statement with a PAC one; DCO-PAC against "
        "BQ, and DCO-Warmstart against split CP on the whole pool, compare like with like."
    )
    paper_p_values = ", ".join(
        f"{value:.1e} ({name})" for name, value in paper_values.IMAGENET_A_WILCOXON.items()
    )
    caption = join_sentences(
        describe_splits(study, records, options),
        columns,
        like_with_like,
        f"The paper's p for DCO-Warmstart against BQ on ImageNet-A at .8: {paper_p_values}.",
    )
    return ResultTable.of(f"{study.title}: paired comparisons", caption, rows, digits=2)


def compare_outcomes(first: Sequence[MethodOutcome], second: Sequence[MethodOutcome]) -> Cells:
    """Compare two methods over the same splits: change of size in %, its interval, p-values."""
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


def single_run_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Make the paper's Table 4 from the first split: thresholds, coverage, sizes, BQ's confidence.

    The paper's values stand beside ours where the level is the paper's.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        paper = paper_values.IMAGENET_A_SINGLE_RUN if alpha == PAPER_ALPHA else {}
        for quantity, value in single_run(records, alpha).items():
            rows.append(
                {
                    "target": target(alpha),
                    "quantity": quantity,
                    "value": value,
                    "paper": paper.get(quantity),
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
        describe_printed(study, "Table 4"),
    )
    return ResultTable.of(f"{study.title}: a single run", caption, rows)


def single_run(records: Records, alpha: float) -> dict[str, float]:
    """Return the quantities of the paper's Table 4 at one level on the first split.

    They come by the paper's names: "λ_tune" is the threshold of DirectTune, "q_cal" that of
    DCO-Warmstart, "λ_BQ" that of BQ.
    """
    outcomes = outcomes_at(records[:1], alpha, "raw")
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


def confidence_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Make the table of BQ's confidence P(L⁺ ≤ α) at each level: exactly, and by Dirichlet draws.

    The exact value is the same in every split; the draws, as in the paper, differ between splits.
    """
    confidence_level = f"{1 - DELTA:.2f}".removeprefix("0")  # ".95"
    rows: list[Cells] = []
    for alpha in options.alphas:
        outcomes = [
            row
            for row in rows_of(records, BQOutcome)
            if row.alpha == alpha and row.features == "raw"
        ]
        drawn = [row.confidence_drawn for row in outcomes]
        n_below = sum(confidence < 1 - DELTA for confidence in drawn)
        rows.append(
            {
                "target": target(alpha),
                "rank": outcomes[0].rank,
                "n": outcomes[0].n,
                "exact": outcomes[0].confidence,
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


def candidates_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Make the paper's Table 11: all 16 candidates on the tuning rows of the first split.

    The best comes first: by mean set size, then by P95 size, then by threshold.
    """
    alpha = options.alphas[0]
    (tuning,) = (
        row
        for row in rows_of(records[:1], TuningOutcome)
        if row.alpha == alpha and row.features == "raw"
    )
    paper = paper_values.IMAGENET_A_CANDIDATES if alpha == PAPER_ALPHA else {}

    rows: list[Cells] = []
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
        printed = paper.get(number)
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
                "paper λ": printed.threshold if printed else None,
                "paper size": printed.size if printed else None,
                "paper P95": printed.p95 if printed else None,
            }
        )

    which_split = (
        f"Seed {records[0].seed}, raw features, target {target(alpha):g}; the first row is "
        "selected."
    )
    caption = join_sentences(
        describe_splits(study, records, options),
        which_split,
        "With exact search every candidate is feasible.",
        describe_printed(study, "Table 11, which has ten of 16"),
    )
    return ResultTable.of(f"{study.title}: candidates on tuning rows", caption, rows)


# what candidates are counted by, and how a candidate's value is written
PROPERTIES: dict[str, Callable[[HeadCandidate], str]] = {
    "structure": lambda candidate: f"{candidate.score}, {candidate.hidden}, {candidate.dropout:g}",
    "score": lambda candidate: candidate.score,
    "hidden": lambda candidate: candidate.hidden,
    "dropout": lambda candidate: f"{candidate.dropout:g}",
}


def selection_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Make the paper's Table 12: in how many splits DCO-Warmstart chose each structure.

    It also counts by each part of a structure: its score, its hidden widths, its dropout rate.
    """
    rows: list[Cells] = []
    for features in FEATURES:
        for alpha in options.alphas:
            outcomes = outcomes_at(records, alpha, features)["DCO-Warmstart"]
            for property_name in PROPERTIES:
                for cells in count_selections(outcomes, property_name, alpha):
                    rows.append({"features": features, **cells})

    caption = join_sentences(
        describe_splits(study, records, options),
        "Splits in which a structure had the smallest mean size on the tuning rows.",
        "Paper's counts: ImageNet-A, target .8 (Table 12), of 50.",
    )
    return ResultTable.of(f"{study.title}: selection frequencies", caption, rows, digits=2)


def count_selections(
    outcomes: Sequence[MethodOutcome], property_name: str, alpha: float
) -> list[Cells]:
    """Make a row for each value of a property of the chosen candidates, the most frequent first.

    A property is a part of a candidate: with "dropout" the rows count the splits (`outcomes`) that
    chose each dropout rate. Beside ours stands the paper's count, at the level of its Table 12. A
    value that was chosen in neither has no row.
    """
    value_of = PROPERTIES[property_name]
    n_splits = len(outcomes)
    has_paper = alpha == PAPER_ALPHA
    paper_wins = paper_values.IMAGENET_A_SELECTED if has_paper else {}
    paper_counts = count_wins(paper_wins, value_of)
    counts = count_wins(Counter(int(row.chosen) for row in outcomes), value_of)

    rows: list[Cells] = []
    for value, count in sorted(counts.items(), key=lambda item: -item[1]):
        if count == 0 and paper_counts[value] == 0:
            continue
        rows.append(
            {
                "target": target(alpha),
                "by": property_name,
                "value": value,
                "splits": count,
                "%": 100 * count / n_splits,
                "paper": paper_counts[value] if has_paper else None,
            }
        )
    return rows


def count_wins(wins: Mapping[int, int], value_of: Callable[[HeadCandidate], str]) -> dict[str, int]:
    """Add up the wins of all candidates with the same value of a property.

    `wins` are by candidate number; one that is missing never won. With scores as the property, {1:
    20, 2: 5, 9: 25} -> {"posterior_nll": 25, "aoi_nll": 25}.
    """
    counts: dict[str, int] = {}
    for candidate in CANDIDATES:
        value = value_of(candidate)
        counts[value] = counts.get(value, 0) + wins.get(candidate.number, 0)
    return counts


# ---- controls and ratios


def matched_table(study: Study, records: Records, options: Options, features: str) -> ResultTable:
    """Make the table of the paper's controls, which tell why DCO's sets are smaller than BQ's.

    They differ from DCO in one thing each: the search over structures, the calibration rule, or how
    rows are divided into roles.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        outcomes = outcomes_at(records, alpha, features)
        bq_mean_size = float(np.mean(sizes_of(outcomes["BQ"])))
        rows += [
            describe_control(method, outcomes[method], bq_mean_size, study, alpha)
            for method in MATCHED
        ]

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
) -> Cells:
    """Make the row of one control at one level, with its size in units of BQ's mean size.

    A control whose candidate is fixed searches nothing; the others search the same class Φ as DCO.
    """
    searches_nothing = method == "BQ" or "fixed" in method
    size = mean_set_size(outcomes)
    paper_ratio = matched_paper_ratio(method) if alpha == PAPER_ALPHA else None
    return {
        "target": target(alpha),
        "method": method,
        "class": "fixed" if searches_nothing else "matched Φ",
        "guarantee": METHOD_BY_TITLE[method].guarantee,
        "coverage": mean_coverage(outcomes),
        "by law": law_of_method(method, outcomes, study).expected,
        "below": share_below(outcomes, alpha),
        "size": size,
        "size / BQ": size.mean / bq_mean_size,
        "paper size / BQ": paper_ratio,
        "P95": mean_p95(outcomes),
    }


def matched_paper_ratio(method: str) -> float | None:
    """Return the size of a control over BQ's in the paper's Table 5; None if it is not there."""
    printed = paper_values.IMAGENET_A_MATCHED
    if method not in printed:
        return None
    return printed[method].size.mean / printed["BQ"].size.mean


def matched_beside_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Make the paper's Table 5: the five controls that it prints, its figures beside ours.

    There are no rows where the records are not of the paper's level.
    """
    rows: list[Cells] = []
    if PAPER_ALPHA in options.alphas:
        outcomes = outcomes_at(records, PAPER_ALPHA, "raw")
        for method, printed in paper_values.IMAGENET_A_MATCHED.items():
            if method in outcomes:
                rows.append({"method": method, **beside_paper(outcomes[method], printed)})

    caption = join_sentences(
        describe_splits(study, records, options),
        "Raw features.",
        describe_printed(study, "Table 5"),
    )
    return ResultTable.of(f"{study.title}: the paper's controls beside ours", caption, rows)


def beside_paper(outcomes: Sequence[Outcome], printed: Printed) -> Cells:
    """Return coverage, mean size and P95 size, each with the paper's after it."""
    return {
        "coverage": mean_coverage(outcomes),
        "paper coverage": printed.coverage,
        "size": mean_set_size(outcomes),
        "paper size": printed.size,
        "P95": mean_p95(outcomes),
        "paper P95": printed.p95,
    }


def ratio_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Make the table of DCO-Warmstart with the pool divided at five ratios into tune and calibrate.

    A ratio "20/80" means that 20 % of the pool tune and 80 % calibrate.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        for ratio, outcomes in ratios_at(records, alpha, "raw").items():
            law = law_of_method("DCO-Warmstart", outcomes, study)
            rows.append(
                {
                    "target": target(alpha),
                    "ratio": ratio,
                    "method": f"DCO-Warmstart, {ratio}",
                    "coverage": mean_coverage(outcomes),
                    "by law": law.expected,
                    "z": law.z,
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
    study: Study, records: Records, options: Options, features: str
) -> ResultTable:
    """Make the paper's Table 6: DCO-Warmstart at five split ratios, its figures beside ours.

    There are no rows where the records are not of the paper's level.
    """
    rows: list[Cells] = []
    if PAPER_ALPHA in options.alphas:
        for ratio, outcomes in ratios_at(records, PAPER_ALPHA, features).items():
            rows.append(
                {
                    "ratio": ratio,
                    **beside_paper(outcomes, paper_values.IMAGENET_A_RATIOS[ratio]),
                    "stability %": modal_share(outcomes),
                    "paper stability %": paper_values.IMAGENET_A_STABILITY[ratio],
                }
            )

    caption = join_sentences(
        describe_splits(study, records, options),
        f"{features.capitalize()} features.",
        describe_printed(study, "Table 6"),
    )
    title = f"{study.title}: the paper's split ratios beside ours"
    return ResultTable.of(title + title_suffix(features), caption, rows)


def modal_share(outcomes: Sequence[Outcome]) -> float:
    """Return the share of splits, in %, that choose the modal candidate (the most frequent one)."""
    counts = Counter(row.chosen for row in outcomes)
    return 100 * max(counts.values()) / len(outcomes)


# ---- levels


def levels_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Make the paper's Table 7, coverage: BQ and DCO-Warmstart at the three levels.

    Beside the mean coverage stand the one expected by law and the paper's.
    """
    rows: list[Cells] = []
    for row in level_rows(records, options, printed_levels(study)):
        coverage = mean_coverage(row.outcomes)
        cells: Cells = {
            "features": row.features,
            "target": target(row.alpha),
            "method": row.method,
            "coverage": coverage,
            "by law": law_of_method(row.method, row.outcomes, study).expected,
            "paper coverage": None,
            "off": None,
        }
        if row.printed is not None:
            cells["paper coverage"] = row.printed.coverage
            cells["off"] = standard_errors(coverage, row.printed.coverage, len(records))
        rows.append(cells)

    off_column = "'Off': our coverage less the paper's, in standard errors of the difference."
    caption = join_sentences(describe_splits(study, records, options), off_column)
    return ResultTable.of(f"{study.title}: target coverage levels", caption, rows)


def level_sizes_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Make the paper's Table 7, sizes: BQ and DCO-Warmstart at the three levels.

    Beside the mean set size stand the paper's, their difference in percent and in standard errors,
    and both sizes in units of BQ's.
    """
    paper = printed_levels(study)
    rows: list[Cells] = []
    for row in level_rows(records, options, paper):
        size = mean_set_size(row.outcomes)
        cells: Cells = {
            "features": row.features,
            "target": target(row.alpha),
            "method": row.method,
            "size": size,
            "paper size": None,
            "size %": None,
            "off": None,
            "size / BQ": size.mean / row.bq_mean_size,
            "paper size / BQ": None,
        }
        if row.printed is not None:
            paper_size = row.printed.size
            cells["paper size"] = paper_size
            cells["size %"] = 100 * (size.mean / paper_size.mean - 1)
            cells["off"] = standard_errors(size, paper_size, len(records))
            cells["paper size / BQ"] = paper_size.mean / paper[row.alpha, "BQ"].size.mean
        rows.append(cells)

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


def levels_beside_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Make the table of the paper's figures on ImageNet-A (Table 7) beside ours on other data.

    There are no rows where ours are of ImageNet-A too: `levels_table` has them.
    """
    paper = {} if study.name == "imagenet-a" else paper_values.IMAGENET_A
    rows: list[Cells] = []
    for row in level_rows(records, options, paper):
        if row.printed is None:
            continue
        paper_size = row.printed.size
        rows.append(
            {
                "features": row.features,
                "target": target(row.alpha),
                "method": row.method,
                "coverage": mean_coverage(row.outcomes),
                "paper coverage": row.printed.coverage,
                "paper size": paper_size,
                "size / BQ": mean_set_size(row.outcomes).mean / row.bq_mean_size,
                "paper size / BQ": paper_size.mean / paper[row.alpha, "BQ"].size.mean,
            }
        )

    what_compares = (
        "Paper's figures: ImageNet-A (Table 7), other data than ours: coverage compares, and so "
        "does size / BQ."
    )
    caption = join_sentences(describe_splits(study, records, options), what_compares)
    title = f"{study.title}: the paper's levels on ImageNet-A beside ours"
    return ResultTable.of(title, caption, rows)
