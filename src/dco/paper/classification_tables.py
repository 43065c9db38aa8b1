"""Tables 3 to 7, 11 and 12 beside ours, made from the records of the classification experiments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dco.paper import paper_values
from dco.paper.classification_splits import (
    FEATURES,
    METHOD_OF,
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
from dco.paper.tables import Cells, Measured, ResultTable, standard_errors

PAPER_ALPHA = 0.2  # of all tables of ImageNet-A but that of levels
DELTA = 0.05
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


# ---- reading records


def outcomes_at(records: Records, alpha: float, features: str) -> dict[str, list[MethodOutcome]]:
    """Return the outcomes of every method at one level, on one kind of features."""
    outcomes = [
        row
        for row in rows_of(records, MethodOutcome)
        if row.alpha == alpha and row.features == features
    ]
    return group_by(outcomes, key=lambda row: row.method)


def ratios_at(records: Records, alpha: float, features: str) -> dict[str, list[RatioOutcome]]:
    """Return the outcomes of every split ratio at one level, on one kind of features."""
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
    return METHOD_OF[method].has_law and not study.is_stratified


def law_of_method(method: str, outcomes: Sequence[Outcome], study: Study) -> MeanLaw:
    """Return the law of the mean coverage of a method; nothing where it has none."""
    if not has_law(method, study):
        return MeanLaw(expected=None, z=None)
    return law_of_mean(outcomes)


def share_below(outcomes: Sequence[Outcome], alpha: float) -> float:
    """Return the share of splits whose test coverage is below the target."""
    n_below = sum(row.coverage < target(alpha) - 1e-9 for row in outcomes)
    return n_below / len(outcomes)


@dataclass(frozen=True)
class LevelRow:
    """BQ or DCO-Warmstart at one level, and what the paper prints of it."""

    features: str
    alpha: float
    method: str
    outcomes: list[MethodOutcome]
    bq_size: float  # BQ's mean size, for ratios
    printed: Printed | None


def level_rows(
    records: Records, options: Options, paper: Mapping[tuple[float, str], Printed]
) -> Iterator[LevelRow]:
    """Go through BQ and DCO-Warmstart by features and level, beside a table of the paper."""
    for features in FEATURES:
        for alpha in options.alphas:
            outcomes = outcomes_at(records, alpha, features)
            for method in ("BQ", "DCO-Warmstart"):
                yield LevelRow(
                    features=features,
                    alpha=alpha,
                    method=method,
                    outcomes=outcomes[method],
                    bq_size=float(np.mean(sizes_of(outcomes["BQ"]))),
                    printed=paper.get((alpha, method)),
                )


def printed_levels(study: Study) -> Mapping[tuple[float, str], Printed]:
    """Return the paper's table of levels for a study."""
    return paper_values.CIFAR100 if study.name == "cifar100" else paper_values.IMAGENET_A


# ---- words of captions


def describe(study: Study, records: Records, options: Options) -> str:
    """Begin a caption: data, features, splits, sizes."""
    sizes = study.scale_of(options).sizes
    kind = "stratified" if study.is_stratified else "plain random"
    text = (
        f"{study.features} {len(records)} {kind} splits: train {sizes.train}, tune {sizes.tune}, "
        f"calibrate {sizes.calibrate}, test {sizes.test}. "
    )
    if options.quick:
        text = (
            f"{text.rstrip()} Quick setting: fewer rows, 10 epochs, 5 passes; not the paper's "
            "protocol. "
        )
    return text


def title_suffix(features: str) -> str:
    """End a title; the paper's tables are taken to be of raw features."""
    return "" if features == "raw" else f", {features} features"


def printed_on_imagenet_a(study: Study, table: str) -> str:
    """Say where the paper's figures of a table come from, and whether ours are of other data."""
    other_data = ""
    if study.name != "imagenet-a":
        other_data = ", other data than ours: coverage compares, thresholds and sizes do not"
    return f"Paper's figures: ImageNet-A, target .8 ({table}){other_data}."


def compare_sizes_with_paper(
    study: Study, records: Records, options: Options, kinds: Sequence[str]
) -> str:
    """Say in one sentence how far our mean sizes are from the paper's, and why."""
    percent: list[float] = []
    errors: list[float] = []
    for row in level_rows(records, options, printed_levels(study)):
        if row.printed is None or row.features not in kinds:
            continue
        size = mean_set_size(row.outcomes)
        error = standard_errors(size, row.printed.size, len(records))
        percent.append(100 * (size.mean / row.printed.size.mean - 1))
        if error is not None:
            errors.append(error)
    if not errors:
        return ""

    why = ""
    if study.name == "cifar100" and options.backbone is None:
        why = "The paper's sizes are for another backbone, ResNet-50. "
    return (
        f" {why}Our mean sizes less the paper's, of BQ and DCO-Warmstart: {min(percent):+.1f} to "
        f"{max(percent):+.1f} %, {min(errors):+.1f} to {max(errors):+.1f} standard errors of the "
        "difference."
    )


# ---- the main tables


def main_table(study: Study, records: Records, options: Options, features: str) -> ResultTable:
    """Show every method at every level: claim, coverage and its law, sizes and the paper's."""
    is_imagenet_a = study.name == "imagenet-a"
    paper = dict(printed_levels(study))
    if is_imagenet_a:
        paper |= {
            (PAPER_ALPHA, method): row for method, row in paper_values.IMAGENET_A_MAIN.items()
        }

    rows: list[Cells] = []
    for alpha in options.alphas:
        for method, outcomes in outcomes_at(records, alpha, features).items():
            law = law_of_method(method, outcomes, study)
            chance = chance_below(outcomes, alpha) if has_law(method, study) else None
            printed = paper.get((alpha, method))
            cells: Cells = {
                "target": target(alpha),
                "method": method,
                "guarantee": METHOD_OF[method].guarantee,
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
            if is_imagenet_a:
                cells["paper P95"] = printed.p95 if printed else None
            rows.append(cells)

    caption = (
        describe(study, records, options)
        + "Mean ± sd over splits. φ₀ is posterior_nll, dropout 0.05, hidden (512, 256); BQ with δ "
        f"= {DELTA} on tune + calibrate. "
        + describe_law(study, n_tested=sum(row["z"] is not None for row in rows))
        + compare_sizes_with_paper(study, records, options, [features])
    )
    if not is_imagenet_a:
        caption += " The paper prints no P95 for CIFAR-100."
    return ResultTable.of(f"{study.title}: heads on {features} features", caption, rows)


def describe_law(study: Study, *, n_tested: int) -> str:
    """Say what the columns about the law show, or why they are empty."""
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
    """Show paired differences over the same splits, for both kinds of features."""
    rows: list[Cells] = []
    for features in FEATURES:
        for alpha in options.alphas:
            outcomes = outcomes_at(records, alpha, features)
            for first, second in PAIRS:
                firsts = outcomes[first]
                seconds = outcomes[second]
                change = percent_change(sizes_of(firsts), sizes_of(seconds))
                rows.append(
                    {
                        "features": features,
                        "target": target(alpha),
                        "first": first,
                        "second": second,
                        "size %": change.mean,
                        "low %": change.low,
                        "high %": change.high,
                        "p size": change.p_value,
                        "p P95": wilcoxon_if_finite(
                            [row.p95 for row in firsts], [row.p95 for row in seconds]
                        ),
                        "p coverage": wilcoxon_if_finite(
                            [row.coverage for row in firsts],
                            [row.coverage for row in seconds],
                        ),
                    }
                )
    p_values = ", ".join(
        f"{value:.1e} ({name})" for name, value in paper_values.IMAGENET_A_WILCOXON.items()
    )
    return ResultTable.of(
        f"{study.title}: paired comparisons",
        describe(study, records, options)
        + "Size of the first less size of the second, in % of the second's mean, with Student's "
        "95 % interval over paired splits, and Wilcoxon's p. DCO-Warmstart against BQ compares a "
        "marginal statement with a PAC one; DCO-PAC against BQ, and DCO-Warmstart against split CP "
        "on the whole pool, compare like with like. The paper's p for DCO-Warmstart against BQ on "
        f"ImageNet-A at .8: {p_values}.",
        rows,
        digits=2,
    )


# ---- single runs and candidates


def single_run_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Show Table 4: the thresholds of the first split from tuning to calibration, and BQ's achieved
    confidence.
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
    return ResultTable.of(
        f"{study.title}: a single run",
        describe(study, records, options)
        + f"Seed {records[0].seed}, raw features. BQ's confidence P(L⁺ ≤ α) at its threshold is a "
        "Beta tail, computed exactly; 1,000 Dirichlet draws, as in the paper, have a standard "
        "error of .007 around it. λ and q of one run belong to one score scale only when the "
        "chosen structure is the same. " + printed_on_imagenet_a(study, "Table 4"),
        rows,
    )


def single_run(records: Records, alpha: float) -> dict[str, float]:
    """Return thresholds, confidence, coverage and sizes of the first split."""
    outcomes = outcomes_at(records[:1], alpha, "raw")
    bq = outcomes["BQ"][0]
    dco = outcomes["DCO-Warmstart"][0]
    direct = outcomes["DirectTune, searched Φ"][0]
    assert isinstance(bq, BQOutcome)
    quantities = {
        "λ_tune": direct.threshold,
        "q_cal": dco.threshold,
        "λ_BQ": bq.threshold,
        "BQ confidence, exact": bq.confidence,
        "BQ confidence, 1,000 draws": bq.confidence_drawn,
    }
    for name, outcome in (("DirectTune", direct), ("DCO-Warmstart", dco), ("BQ", bq)):
        quantities[f"{name} coverage"] = outcome.coverage
        quantities[f"{name} size"] = outcome.size
        quantities[f"{name} P95"] = outcome.p95
    return quantities


def confidence_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Show BQ's achieved confidence over all splits, exactly and by draws."""
    level = f"{1 - DELTA:.2f}".removeprefix("0")
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
                f"drawn below {level}": n_below / len(drawn),
            }
        )
    return ResultTable.of(
        f"{study.title}: achieved confidence of BQ",
        describe(study, records, options)
        + "P(L⁺ ≤ α) at BQ's exact threshold is the same in every split: a Beta tail at its rank. "
        f"By 1,000 Dirichlet draws it scatters, and where it falls below {level} a search by draws "
        "would have moved to another rank.",
        rows,
        digits=4,
    )


def candidates_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Show Table 11: the 16 structures on the tuning rows of the first split, the best first."""
    alpha = options.alphas[0]
    (tuning,) = (
        row
        for row in rows_of(records[:1], TuningOutcome)
        if row.alpha == alpha and row.features == "raw"
    )
    order = sorted(
        range(len(tuning.candidates)),
        key=lambda i: (tuning.sizes[i], tuning.p95s[i], tuning.thresholds[i]),
    )
    rows: list[Cells] = []
    for i in order:
        candidate = CANDIDATES[tuning.candidates[i] - 1]
        printed = None
        if alpha == PAPER_ALPHA:
            printed = paper_values.IMAGENET_A_CANDIDATES.get(candidate.number)
        rows.append(
            {
                "candidate": candidate.name,
                "score": candidate.score,
                "dropout": candidate.dropout,
                "hidden": candidate.hidden,
                "λ": tuning.thresholds[i],
                "status": "feasible" if tuning.feasible[i] else "infeasible",
                "size": tuning.sizes[i],
                "P95": tuning.p95s[i],
                "paper λ": printed.threshold if printed else None,
                "paper size": printed.size if printed else None,
                "paper P95": printed.p95 if printed else None,
            }
        )
    return ResultTable.of(
        f"{study.title}: candidates on tuning rows",
        describe(study, records, options)
        + f"Seed {records[0].seed}, raw features, target {target(alpha):g}; the first row is "
        "selected. With exact search every candidate is feasible. "
        + printed_on_imagenet_a(study, "Table 11, which has ten of 16"),
        rows,
    )


# what a structure is made of, and how it is written
PROPERTIES: dict[str, Callable[[HeadCandidate], str]] = {
    "structure": lambda head: f"{head.score}, {head.hidden}, {head.dropout:g}",
    "score": lambda head: head.score,
    "hidden": lambda head: head.hidden,
    "dropout": lambda head: f"{head.dropout:g}",
}


def selection_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Show Table 12: how often each structure won, and each score, widths and dropout."""
    rows: list[Cells] = []
    for features in FEATURES:
        for alpha in options.alphas:
            winners = outcomes_at(records, alpha, features)["DCO-Warmstart"]
            wins = Counter(int(row.chosen) for row in winners)
            compares = alpha == PAPER_ALPHA
            paper_wins = paper_values.IMAGENET_A_SELECTED if compares else {}
            for by, value_of in PROPERTIES.items():
                counts = count_wins(wins, value_of)
                paper_counts = count_wins(paper_wins, value_of)
                for value, count in sorted(counts.items(), key=lambda item: -item[1]):
                    if count == 0 and paper_counts[value] == 0:
                        continue
                    rows.append(
                        {
                            "features": features,
                            "target": target(alpha),
                            "by": by,
                            "value": value,
                            "splits": count,
                            "%": 100 * count / len(winners),
                            "paper": paper_counts[value] if compares else None,
                        }
                    )
    return ResultTable.of(
        f"{study.title}: selection frequencies",
        describe(study, records, options)
        + "Splits in which a structure had the smallest mean size on the tuning rows. Paper's "
        "counts: ImageNet-A, target .8 (Table 12), of 50.",
        rows,
        digits=2,
    )


def count_wins(wins: Mapping[int, int], value_of: Callable[[HeadCandidate], str]) -> dict[str, int]:
    """Add up the wins of candidates that share a property; `wins` are by candidate number."""
    counts: dict[str, int] = {}
    for candidate in CANDIDATES:
        value = value_of(candidate)
        counts[value] = counts.get(value, 0) + wins.get(candidate.number, 0)
    return counts


# ---- controls and ratios


def matched_table(study: Study, records: Records, options: Options, features: str) -> ResultTable:
    """Show the paper's controls: what is due to search, to the calibration rule, and to how rows
    are shared out.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        outcomes = outcomes_at(records, alpha, features)
        bq_size = float(np.mean(sizes_of(outcomes["BQ"])))
        for method in MATCHED:
            is_fixed = method == "BQ" or "fixed" in method
            size = mean_set_size(outcomes[method])
            paper_ratio = matched_paper_ratio(method) if alpha == PAPER_ALPHA else None
            rows.append(
                {
                    "target": target(alpha),
                    "method": method,
                    "class": "fixed" if is_fixed else "matched Φ",
                    "guarantee": METHOD_OF[method].guarantee,
                    "coverage": mean_coverage(outcomes[method]),
                    "by law": law_of_method(method, outcomes[method], study).expected,
                    "below": share_below(outcomes[method], alpha),
                    "size": size,
                    "size / BQ": size.mean / bq_size,
                    "paper size / BQ": paper_ratio,
                    "P95": mean_p95(outcomes[method]),
                }
            )
    return ResultTable.of(
        f"{study.title}: matched candidate class and calibration mechanism"
        + title_suffix(features),
        describe(study, records, options) + f"{features.capitalize()} features. 'Size / BQ' sets "
        "our mean size over BQ's beside the same ratio in the paper's table (ImageNet-A). 'Below' "
        "is the share of splits whose test coverage is below the target; a PAC row is allowed 5 % "
        "plus the noise of the test rows. Rows whose structure was chosen on the rows that "
        "calibrate it have no guarantee unless δ is shared out.",
        rows,
    )


def matched_paper_ratio(method: str) -> float | None:
    """Return the size of a control over BQ's in the paper's Table 5."""
    printed = paper_values.IMAGENET_A_MATCHED
    return printed[method].size.mean / printed["BQ"].size.mean if method in printed else None


def matched_beside_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Show Table 5: the five controls that the paper prints, beside its figures."""
    outcomes: dict[str, list[MethodOutcome]] = {}
    if PAPER_ALPHA in options.alphas:
        outcomes = outcomes_at(records, PAPER_ALPHA, "raw")
    return ResultTable.of(
        f"{study.title}: the paper's controls beside ours",
        describe(study, records, options)
        + "Raw features. "
        + printed_on_imagenet_a(study, "Table 5"),
        [
            {"method": method, **beside_paper(outcomes[method], printed)}
            for method, printed in paper_values.IMAGENET_A_MATCHED.items()
            if method in outcomes
        ],
    )


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
    """Show the pool cut at five places; stability is the share of splits that choose the modal
    candidate.
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
    return ResultTable.of(
        f"{study.title}: split ratio",
        describe(study, records, options)
        + "Raw features. DCO-Warmstart with the same pool cut into tuning and calibration rows at "
        "five places (ratio, in %). Stability: % of splits that choose the modal candidate.",
        rows,
    )


def ratio_beside_table(
    study: Study, records: Records, options: Options, features: str
) -> ResultTable:
    """Show Table 6, the paper's split ratios, beside ours."""
    ratios: dict[str, list[RatioOutcome]] = {}
    if PAPER_ALPHA in options.alphas:
        ratios = ratios_at(records, PAPER_ALPHA, features)
    return ResultTable.of(
        f"{study.title}: the paper's split ratios beside ours" + title_suffix(features),
        describe(study, records, options)
        + f"{features.capitalize()} features. "
        + printed_on_imagenet_a(study, "Table 6"),
        [
            {
                "ratio": ratio,
                **beside_paper(outcomes, paper_values.IMAGENET_A_RATIOS[ratio]),
                "stability %": modal_share(outcomes),
                "paper stability %": paper_values.IMAGENET_A_STABILITY[ratio],
            }
            for ratio, outcomes in ratios.items()
        ],
    )


def modal_share(outcomes: Sequence[Outcome]) -> float:
    """Return the share of splits, in %, that choose the modal candidate."""
    ((_, count),) = Counter(row.chosen for row in outcomes).most_common(1)
    return 100 * count / len(outcomes)


# ---- levels


def levels_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Show Table 7: coverage of BQ and DCO at the three levels beside its law and the paper's."""
    rows: list[Cells] = []
    for row in level_rows(records, options, printed_levels(study)):
        coverage = mean_coverage(row.outcomes)
        off = None
        if row.printed is not None:
            off = standard_errors(coverage, row.printed.coverage, len(records))
        rows.append(
            {
                "features": row.features,
                "target": target(row.alpha),
                "method": row.method,
                "coverage": coverage,
                "by law": law_of_method(row.method, row.outcomes, study).expected,
                "paper coverage": row.printed.coverage if row.printed else None,
                "off": off,
            }
        )
    return ResultTable.of(
        f"{study.title}: target coverage levels",
        describe(study, records, options) + "'Off': our coverage less the paper's, in standard "
        "errors of the difference.",
        rows,
    )


def level_sizes_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Show Table 7: mean sizes of BQ and DCO at the three levels beside the paper's."""
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
            "size / BQ": size.mean / row.bq_size,
            "paper size / BQ": None,
        }
        if row.printed is not None:
            printed = row.printed.size
            cells["paper size"] = printed
            cells["size %"] = 100 * (size.mean / printed.mean - 1)
            cells["off"] = standard_errors(size, printed, len(records))
            cells["paper size / BQ"] = printed.mean / paper[row.alpha, "BQ"].size.mean
        rows.append(cells)
    return ResultTable.of(
        f"{study.title}: sizes at target coverage levels",
        describe(study, records, options)
        + "Our mean size less the paper's in % of the paper's ('size %') and in standard errors "
        "of the difference ('off')."
        + compare_sizes_with_paper(study, records, options, FEATURES)
        + " Sizes over BQ's own ('size / BQ') depend less on the backbone.",
        rows,
    )


def levels_beside_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Show the paper's figures of ImageNet-A at the three levels beside ours of other data."""
    paper = {} if study.name == "imagenet-a" else paper_values.IMAGENET_A
    rows: list[Cells] = []
    for row in level_rows(records, options, paper):
        if row.printed is None:
            continue
        printed = row.printed
        rows.append(
            {
                "features": row.features,
                "target": target(row.alpha),
                "method": row.method,
                "coverage": mean_coverage(row.outcomes),
                "paper coverage": printed.coverage,
                "paper size": printed.size,
                "size / BQ": mean_set_size(row.outcomes).mean / row.bq_size,
                "paper size / BQ": printed.size.mean / paper[row.alpha, "BQ"].size.mean,
            }
        )
    return ResultTable.of(
        f"{study.title}: the paper's levels on ImageNet-A beside ours",
        describe(study, records, options)
        + "Paper's figures: ImageNet-A (Table 7), other data than ours: coverage "
        "compares, and so does size / BQ.",
        rows,
    )
