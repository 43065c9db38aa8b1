"""The tables of the classification experiments, made from records, with the paper's figures beside
ours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from dco.foundations.ranks import as_rational
from dco.paper import paper_values as of_paper
from dco.paper.classification_splits import METHOD_OF, PAPER_SIZES, QUICK_SIZES, Study
from dco.paper.coverage_z import bonferroni_point, coverage_sd, expected_coverage, target
from dco.paper.experiment import Options, Records, Row, column, rows_by
from dco.paper.heads import CANDIDATES, HeadCandidate
from dco.paper.paired import paired_comparison, paired_wilcoxon
from dco.paper.tables import Cell, Measured, ResultTable, standard_errors
from dco.theory import hits_cdf

Cells: TypeAlias = dict[str, Cell]
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
BOTH = ("raw", "standardised")

# ---- reading records
# -------------------------------------------------------------------------------------------------


def methods_of(records: Records, alpha: float, features: str) -> dict[str, list[Row]]:
    """Rows of one level and one kind of features by method; split ratios apart."""
    return rows_by(records, alpha=alpha, features=features, ratio=None)


def ratios_of(records: Records, alpha: float, features: str = "raw") -> dict[str, list[Row]]:
    """Rows of the split ratios at one level."""
    return rows_by(records, "ratio", alpha=alpha, features=features)


def _on(features: str) -> str:
    """The end of a title; the paper's tables are taken to be of raw features."""
    return "" if features == "raw" else f", {features} features"


def measured(rows: Sequence[Row]) -> tuple[Measured, Measured, Measured]:
    """Coverage, mean size and P95 size over splits."""
    coverage, size, p95 = (Measured.of(column(rows, key)) for key in ("coverage", "size", "p95"))
    return coverage, size, p95


def law_cells(method: str, rows: Sequence[Row], *, stratified: bool) -> tuple[Cell, Cell, Cell]:
    """Expected coverage, z, and the chance that test coverage falls below the target; nothing where
    there is no law.
    """
    if not METHOD_OF[method].law or stratified:
        return None, None, None
    # Each split by its own rank and number of calibration rows: an auto tuning split leaves not
    # always the same.
    laws = Counter((int(row["rank"]), int(row["n"]), int(row["n_test"])) for row in rows)
    expected = variance = below = 0.0
    for (rank, n, n_test), times in laws.items():
        share = times / len(rows)
        needed = math.ceil((1 - as_rational(rows[0]["alpha"])) * n_test)
        expected += share * expected_coverage(rank, n)
        variance += share * coverage_sd(rank, n, n_test) ** 2
        below += share * hits_cdf(needed - 1, n_test, rank=rank, n_cal=n)
    away = math.fsum(column(rows, "coverage")) / len(rows) - expected
    return expected, away / math.sqrt(variance / len(rows)) if variance else 0.0, below


def share_below(rows: Sequence[Row], alpha: float) -> float:
    """The share of splits whose test coverage is below the target."""
    return sum(value < target(alpha) - 1e-9 for value in column(rows, "coverage")) / len(rows)


def compared(first: Sequence[Row], second: Sequence[Row]) -> tuple[float, ...]:
    """Difference in size with its interval, in % of the second's mean; p-values for size, P95 and
    coverage.
    """
    sizes = paired_comparison(column(first, "size"), column(second, "size"))
    base = float(np.mean(column(second, "size"))) / 100
    others = [
        paired_wilcoxon(column(first, key), column(second, key)) for key in ("p95", "coverage")
    ]
    return sizes.mean_difference / base, sizes.low / base, sizes.high / base, sizes.p_value, *others


def beside(rows: Sequence[Row], printed: of_paper.Triple) -> Cells:
    """Coverage, mean size and P95 size, each with the paper's after it."""
    found: Cells = {}
    for name, ours, pair in zip(("coverage", "size", "P95"), measured(rows), printed, strict=True):
        found |= {name: ours, f"paper {name}": Measured(*pair)}
    return found


# ---- words of captions
# -----------------------------------------------------------------------------------------------


def describe(study: Study, records: Records, options: Options) -> str:
    """The beginning of every caption: data, features, splits, sizes."""
    sizes = QUICK_SIZES if options.quick else PAPER_SIZES
    quick = (
        " Quick setting: fewer rows, 10 epochs, 5 passes; not the paper's protocol."
        if options.quick
        else ""
    )
    return (
        f"{study.features} {len(records)} {'stratified' if study.stratified else 'plain random'} "
        f"splits: train "
        f"{sizes.train}, tune {sizes.tune}, calibrate {sizes.calibrate}, test {sizes.test}.{quick} "
    )


def printed_on_imagenet_a(study: Study, table: str) -> str:
    """Where the paper's figures of a table come from; on other features they are of other data."""
    other = (
        ""
        if study.name == "imagenet-a"
        else ", other data than ours: coverage compares, thresholds and sizes do not"
    )
    return f"Paper's figures: ImageNet-A, target .8 ({table}){other}."


def sizes_against_paper(
    study: Study, records: Records, options: Options, kinds: Sequence[str]
) -> str:
    """One sentence: how far our mean sizes are from the paper's, in per cent and in standard
    errors, and why.
    """
    percent: list[float] = []
    errors: list[float] = []
    for features, _, _, rows, printed in _levels(study, records, options):
        if printed is not None and features in kinds:
            size = measured(rows)[1]
            off = standard_errors(size, printed[1], len(records))
            percent.append(100 * (size.mean / printed[1][0] - 1))
            errors += [] if off is None else [off]
    if not errors:
        return ""
    why = (
        "The paper's sizes are for another backbone, ResNet-50. "
        if study.name == "cifar100" and options.backbone is None
        else ""
    )
    return (
        f" {why}Our mean sizes less the paper's, of BQ and DCO-Warmstart: {min(percent):+.1f} to "
        f"{max(percent):+.1f} %, "
        f"{min(errors):+.1f} to {max(errors):+.1f} standard errors of the difference."
    )


# ---- tables --------------------------------------------------------------------------------------
# --------------------


def main_table(study: Study, records: Records, options: Options, features: str) -> ResultTable:
    """Every method at every level: claim, coverage beside its law, sizes beside the paper's."""
    imagenet_a = study.name == "imagenet-a"
    paper: dict[tuple[float, str], tuple[tuple[float, float], ...]] = {
        **(of_paper.IMAGENET_A if imagenet_a else of_paper.CIFAR100)
    }
    if imagenet_a:
        paper |= {(0.2, method): triple for method, triple in of_paper.IMAGENET_A_MAIN.items()}
    rows: list[Cells] = []
    for alpha in options.alphas:
        for method, found in methods_of(records, alpha, features).items():
            coverage, size, p95 = measured(found)
            expected, z, below = law_cells(method, found, stratified=study.stratified)
            printed: list[Cell] = [Measured(*pair) for pair in paper.get((alpha, method), ())]
            printed += [None] * (3 - len(printed))
            rows.append(
                {
                    "target": target(alpha),
                    "method": method,
                    "guarantee": METHOD_OF[method].guarantee,
                    "coverage": coverage,
                    "by law": expected,
                    "z": z,
                    "below": share_below(found, alpha),
                    "below by law": below,
                    "paper coverage": printed[0],
                    "size": size,
                    "paper size": printed[1],
                    "P95": p95,
                    **({"paper P95": printed[2]} if imagenet_a else {}),
                }
            )
    tested = sum(row["z"] is not None for row in rows)
    law = (
        "Splits are stratified by class, so the Beta-binomial law does not hold and no z is given."
        if study.stratified
        else f"'By law': rank / (n + 1); z against the Beta-binomial law ({tested} rows here; |z| "
        f"below "
        f"{bonferroni_point(tested):.2f} with probability 99 %). 'Below': share of splits whose "
        f"test coverage is below the "
        "target, beside its chance by law."
    )
    return ResultTable.of(
        f"{study.title}: heads on {features} features",
        describe(study, records, options)
        + "Mean ± sd over splits. φ₀ is posterior_nll, dropout 0.05, hidden (512, 256); BQ with δ "
        "= 0.05 on tune + "
        "calibrate. "
        + law
        + sizes_against_paper(study, records, options, [features])
        + ("" if imagenet_a else " The paper prints no P95 for CIFAR-100."),
        rows,
    )


def paired_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Paired differences over the same splits, for both kinds of features."""
    names = ("size %", "low %", "high %", "p size", "p P95", "p coverage")
    rows: list[Cells] = []
    for features in BOTH:
        for alpha in options.alphas:
            found = methods_of(records, alpha, features)
            for first, second in PAIRS:
                pair: Cells = {
                    "features": features,
                    "target": target(alpha),
                    "first": first,
                    "second": second,
                }
                rows.append(
                    pair | dict(zip(names, compared(found[first], found[second]), strict=True))
                )
    return ResultTable.of(
        f"{study.title}: paired comparisons",
        describe(study, records, options)
        + "Size of the first less size of the second, in % of the second's mean, with Student's "
        "95 % interval over paired "
        "splits, and Wilcoxon's p. DCO-Warmstart against BQ compares a marginal statement with a "
        "PAC one; DCO-PAC against "
        "BQ, and DCO-Warmstart against split CP on the whole pool, compare like with like. The "
        "paper's p for DCO-Warmstart "
        "against BQ on ImageNet-A at .8: "
        + ", ".join(f"{value:.1e} ({name})" for name, value in of_paper.IMAGENET_A_WILCOXON.items())
        + ".",
        rows,
        digits=2,
    )


def single_run_table(study: Study, records: Records, options: Options) -> ResultTable:
    """The thresholds of the first split from tuning to calibration, and BQ's achieved
    confidence.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        found = {
            method: entries[0] for method, entries in methods_of(records[:1], alpha, "raw").items()
        }
        bq, dco, tuned = found["BQ"], found["DCO-Warmstart"], found["DirectTune, searched Φ"]
        facts = {
            "λ_tune": tuned["threshold"],
            "q_cal": dco["threshold"],
            "λ_BQ": bq["threshold"],
            "BQ confidence, exact": bq["confidence"],
            "BQ confidence, 1,000 draws": bq["confidence_drawn"],
        }
        for name, row in (("DirectTune", tuned), ("DCO-Warmstart", dco), ("BQ", bq)):
            facts |= {f"{name} {key}": row[key.lower()] for key in ("coverage", "size", "P95")}
        paper = of_paper.IMAGENET_A_SINGLE_RUN if alpha == 0.2 else {}
        rows += [
            {
                "target": target(alpha),
                "quantity": name,
                "value": float(value),
                "paper": paper.get(name),
            }
            for name, value in facts.items()
        ]
    return ResultTable.of(
        f"{study.title}: a single run",
        describe(study, records, options)
        + f"Seed {records[0].seed}, raw features. BQ's confidence P(L⁺ ≤ α) at its threshold is a "
        f"Beta tail, computed "
        "exactly; 1,000 Dirichlet draws, as in the paper, have a standard error of .007 around "
        "it. λ and q of one run "
        "belong to one score scale only when the chosen structure is the same. "
        + printed_on_imagenet_a(study, "tab:dco_single_run"),
        rows,
    )


def confidence_table(study: Study, records: Records, options: Options) -> ResultTable:
    """BQ's achieved confidence over all splits, exactly and by draws."""
    rows: list[Cells] = []
    for alpha in options.alphas:
        found = methods_of(records, alpha, "raw")["BQ"]
        drawn = column(found, "confidence_drawn")
        rows.append(
            {
                "target": target(alpha),
                "rank": int(found[0]["rank"]),
                "n": int(found[0]["n"]),
                "exact": float(found[0]["confidence"]),
                "1,000 draws": Measured.of(drawn),
                "least": min(drawn),
                "most": max(drawn),
                "drawn below .95": sum(value < 0.95 for value in drawn) / len(drawn),
            }
        )
    return ResultTable.of(
        f"{study.title}: achieved confidence of BQ",
        describe(study, records, options)
        + "P(L⁺ ≤ α) at BQ's exact threshold is the same in every split: a Beta tail at its rank. "
        "By 1,000 Dirichlet draws "
        "it scatters, and where it falls below .95 a search by draws would have moved to another "
        "rank.",
        rows,
        digits=4,
    )


def candidates_table(study: Study, records: Records, options: Options) -> ResultTable:
    """All 16 structures on the tuning rows of the first split, the smallest first."""
    alpha = options.alphas[0]
    (row,) = (
        row
        for row in records[0].rows
        if "candidates" in row and (row["features"], row["alpha"]) == ("raw", alpha)
    )
    rows: list[Cells] = []
    for i in sorted(
        range(len(row["sizes"])),
        key=lambda i: (row["sizes"][i], row["p95s"][i], row["thresholds"][i]),
    ):
        each = CANDIDATES[row["candidates"][i] - 1]
        printed = (of_paper.IMAGENET_A_CANDIDATES.get(each.number) if alpha == 0.2 else None) or (
            None,
            None,
            None,
        )
        rows.append(
            {
                "candidate": each.name,
                "score": each.score,
                "dropout": each.dropout,
                "hidden": each.hidden,
                "λ": float(row["thresholds"][i]),
                "status": "feasible" if row["feasible"][i] else "infeasible",
                "size": float(row["sizes"][i]),
                "P95": float(row["p95s"][i]),
                "paper λ": printed[0],
                "paper size": printed[1],
                "paper P95": printed[2],
            }
        )
    return ResultTable.of(
        f"{study.title}: candidates on tuning rows",
        describe(study, records, options)
        + f"Seed {records[0].seed}, raw features, target {target(alpha):g}; the first row is "
        f"selected. With exact search "
        "every candidate is feasible. "
        + printed_on_imagenet_a(study, "tab:imageneta_candidates, which has ten of 16"),
        rows,
    )


def selection_table(study: Study, records: Records, options: Options) -> ResultTable:
    """How often each structure won, and the marginals over score, widths and dropout."""
    views: dict[str, Callable[[HeadCandidate], str]] = {
        "structure": lambda each: f"{each.score}, {each.hidden}, {each.dropout:g}",
        "score": lambda each: each.score,
        "hidden": lambda each: each.hidden,
        "dropout": lambda each: f"{each.dropout:g}",
    }
    rows: list[Cells] = []
    for features in BOTH:
        for alpha in options.alphas:
            chosen = Counter(
                int(row["chosen"]) for row in methods_of(records, alpha, features)["DCO-Warmstart"]
            )
            paper = of_paper.IMAGENET_A_SELECTED if alpha == 0.2 else {}
            for kind, view in views.items():
                counts: dict[str, int] = {}
                printed: dict[str, int] = {}
                for each in CANDIDATES:
                    counts[view(each)] = counts.get(view(each), 0) + chosen[each.number]
                    printed[view(each)] = printed.get(view(each), 0) + paper.get(each.number, 0)
                rows += [
                    {
                        "features": features,
                        "target": target(alpha),
                        "by": kind,
                        "value": value,
                        "splits": counts[value],
                        "%": 100 * counts[value] / chosen.total(),
                        "paper": printed[value] if paper else None,
                    }
                    for value in sorted(counts, key=lambda name: -counts[name])
                    if counts[value] or printed[value]
                ]
    return ResultTable.of(
        f"{study.title}: selection frequencies",
        describe(study, records, options)
        + "Splits in which a structure had the smallest mean size on the tuning rows. Paper's "
        "counts: ImageNet-A, target .8, of 50.",
        rows,
        digits=2,
    )


def matched_table(
    study: Study, records: Records, options: Options, *, features: str = "raw"
) -> ResultTable:
    """The paper's controls: what is due to search, to the calibration rule, and to how rows are
    shared out.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        found = methods_of(records, alpha, features)
        if not found:
            continue
        base = float(np.mean(column(found["BQ"], "size")))
        for method in MATCHED:
            printed = of_paper.IMAGENET_A_MATCHED.get(method) if alpha == 0.2 else None
            coverage, size, p95 = measured(found[method])
            rows.append(
                {
                    "target": target(alpha),
                    "method": method,
                    "class": "fixed" if "fixed" in method or method == "BQ" else "matched Φ",
                    "guarantee": METHOD_OF[method].guarantee,
                    "coverage": coverage,
                    "by law": law_cells(method, found[method], stratified=study.stratified)[0],
                    "below": share_below(found[method], alpha),
                    "size": size,
                    "size / BQ": size.mean / base,
                    "paper size / BQ": printed[1][0] / of_paper.IMAGENET_A_MATCHED["BQ"][1][0]
                    if printed
                    else None,
                    "P95": p95,
                }
            )
    return ResultTable.of(
        f"{study.title}: matched candidate class and calibration mechanism" + _on(features),
        describe(study, records, options) + f"{features.capitalize()} features. "
        "'Size / BQ' sets our mean size over BQ's beside the same ratio in the paper's table "
        "(ImageNet-A). "
        "'Below' is the share of splits whose test coverage is below the target; a PAC row is "
        "allowed 5 % plus the noise "
        "of the test rows. Rows whose structure was chosen on the rows that calibrate it have no "
        "guarantee unless δ is "
        "shared out.",
        rows,
    )


def matched_beside_table(study: Study, records: Records, options: Options) -> ResultTable:
    """The five controls that the paper prints, beside its figures."""
    found = methods_of(records, 0.2, "raw") if 0.2 in options.alphas else {}
    return ResultTable.of(
        f"{study.title}: the paper's controls beside ours",
        describe(study, records, options)
        + "Raw features. "
        + printed_on_imagenet_a(study, "tab:matched_candidate"),
        [
            {"method": name, **beside(found[name], paper)}
            for name, paper in of_paper.IMAGENET_A_MATCHED.items()
            if name in found
        ],
    )


def ratio_table(study: Study, records: Records, options: Options) -> ResultTable:
    """The pool cut at five places; stability is the share of splits that choose the modal
    candidate.
    """
    rows: list[Cells] = []
    for alpha in options.alphas:
        for ratio, found in ratios_of(records, alpha).items():
            expected, z, _ = law_cells("DCO-Warmstart", found, stratified=study.stratified)
            coverage, size, p95 = measured(found)
            rows.append(
                {
                    "target": target(alpha),
                    "ratio": ratio,
                    "method": f"DCO-Warmstart, {ratio}",
                    "coverage": coverage,
                    "by law": expected,
                    "z": z,
                    "size": size,
                    "P95": p95,
                    "stability %": stability(found),
                }
            )
    return ResultTable.of(
        f"{study.title}: split ratio",
        describe(study, records, options)
        + "Raw features. DCO-Warmstart with the same pool cut into tuning and calibration rows at "
        "five places (ratio, in "
        "%). Stability: % of splits that choose the modal candidate.",
        rows,
    )


def ratio_beside_table(
    study: Study, records: Records, options: Options, *, features: str = "raw"
) -> ResultTable:
    """The paper's table of split ratios beside ours."""
    found = ratios_of(records, 0.2, features) if 0.2 in options.alphas else {}
    rows: list[Cells] = []
    for ratio, entries in found.items():
        paper = {
            "stability %": stability(entries),
            "paper stability %": of_paper.IMAGENET_A_STABILITY[ratio],
        }
        rows.append({"ratio": ratio, **beside(entries, of_paper.IMAGENET_A_RATIOS[ratio]), **paper})
    return ResultTable.of(
        f"{study.title}: the paper's split ratios beside ours" + _on(features),
        describe(study, records, options)
        + f"{features.capitalize()} features. "
        + printed_on_imagenet_a(study, "tab:split_ratio"),
        rows,
    )


def stability(rows: Sequence[Row]) -> float:
    """The share of splits, in %, that choose the modal candidate."""
    return 100 * max(Counter(int(row["chosen"]) for row in rows).values()) / len(rows)


def levels_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Coverage of BQ and DCO at the three levels beside its law and the paper's."""
    rows: list[Cells] = []
    for features, alpha, method, found, printed in _levels(study, records, options):
        coverage, _, _ = measured(found)
        rows.append(
            {
                "features": features,
                "target": target(alpha),
                "method": method,
                "coverage": coverage,
                "by law": law_cells(method, found, stratified=study.stratified)[0],
                "paper coverage": Measured(*printed[0]) if printed else None,
                "off": standard_errors(coverage, printed[0], len(records)) if printed else None,
            }
        )
    return ResultTable.of(
        f"{study.title}: target coverage levels",
        describe(study, records, options) + "'Off': our coverage less the paper's, in standard "
        "errors of the difference.",
        rows,
    )


def level_sizes_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Mean sizes of BQ and DCO at the three levels beside the paper's."""
    paper = of_paper.CIFAR100 if study.name == "cifar100" else of_paper.IMAGENET_A
    rows: list[Cells] = []
    for features, alpha, method, found, printed in _levels(study, records, options):
        _, size, _ = measured(found)
        base = float(np.mean(column(methods_of(records, alpha, features)["BQ"], "size")))
        rows.append(
            {
                "features": features,
                "target": target(alpha),
                "method": method,
                "size": size,
                "paper size": Measured(*printed[1]) if printed else None,
                "size %": 100 * (size.mean / printed[1][0] - 1) if printed else None,
                "off": standard_errors(size, printed[1], len(records)) if printed else None,
                "size / BQ": size.mean / base,
                "paper size / BQ": printed[1][0] / paper[alpha, "BQ"][1][0] if printed else None,
            }
        )
    return ResultTable.of(
        f"{study.title}: sizes at target coverage levels",
        describe(study, records, options)
        + "Our mean size less the paper's in % of the paper's ('size %') and in standard errors "
        "of the difference ('off')."
        + sizes_against_paper(study, records, options, BOTH)
        + " Sizes over BQ's own ('size / BQ') depend less on the backbone.",
        rows,
    )


def levels_beside_table(study: Study, records: Records, options: Options) -> ResultTable:
    """The paper's figures of ImageNet-A at the three levels beside ours of other data."""
    rows: list[Cells] = []
    for features, alpha, method, found, _ in _levels(study, records, options):
        coverage, size, _ = measured(found)
        printed = None if study.name == "imagenet-a" else of_paper.IMAGENET_A.get((alpha, method))
        if printed is not None:
            rows.append(
                {
                    "features": features,
                    "target": target(alpha),
                    "method": method,
                    "coverage": coverage,
                    "paper coverage": Measured(*printed[0]),
                    "paper size": Measured(*printed[1]),
                    "size / BQ": size.mean
                    / float(np.mean(column(methods_of(records, alpha, features)["BQ"], "size"))),
                    "paper size / BQ": printed[1][0] / of_paper.IMAGENET_A[alpha, "BQ"][1][0],
                }
            )
    return ResultTable.of(
        f"{study.title}: the paper's levels on ImageNet-A beside ours",
        describe(study, records, options)
        + "Paper's figures: ImageNet-A (tab:alpha_levels), other data than ours: coverage "
        "compares, and so does size / BQ.",
        rows,
    )


def _levels(
    study: Study, records: Records, options: Options
) -> Iterator[
    tuple[str, float, str, list[Row], tuple[tuple[float, float], tuple[float, float]] | None]
]:
    """Features, alpha, method, its rows, and what the paper prints of it: coverage and size."""
    paper = of_paper.CIFAR100 if study.name == "cifar100" else of_paper.IMAGENET_A
    for features in BOTH:
        for alpha in options.alphas:
            found = methods_of(records, alpha, features)
            for method in ("BQ", "DCO-Warmstart"):
                yield features, alpha, method, found[method], paper.get((alpha, method))
