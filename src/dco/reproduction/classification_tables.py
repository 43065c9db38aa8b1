"""The tables of the classification experiments, made from records, with the paper's figures beside ours."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dco.evaluation.evaluate import paired_comparison, paired_wilcoxon
from dco.foundations.ranks import as_rational
from dco.guarantees.theory import hits_cdf
from dco.reproduction.beyond_classification import FIXED as STRONG_FIXED
from dco.reproduction.beyond_classification import STRUCTURES
from dco.reproduction.classification_splits import (
    AUTO,
    CLAIMS,
    DELTA,
    LEAST_CALIBRATION,
    PAPER_SIZES,
    QUICK_SIZES,
    SET_ASIDE,
    SETTLED,
    Study,
)
from dco.reproduction.coverage_z import bonferroni_point, coverage_sd, expected_coverage, target
from dco.reproduction.experiment import Options, Records, Row
from dco.reproduction.heads import CANDIDATES, HeadCandidate
from dco.reproduction.paper_values import (
    CIFAR100,
    IMAGENET_A,
    IMAGENET_A_CANDIDATES,
    IMAGENET_A_MAIN,
    IMAGENET_A_MATCHED,
    IMAGENET_A_RATIOS,
    IMAGENET_A_SELECTED,
    IMAGENET_A_SINGLE_RUN,
    IMAGENET_A_STABILITY,
    IMAGENET_A_WILCOXON,
    Triple,
)
from dco.reproduction.tables import Cell, Measured, ResultTable, standard_errors

# ---- reading records -------------------------------------------------------------------------------------------------


def methods_of(records: Records, alpha: float, features: str) -> dict[str, list[Row]]:
    """Rows of one level and one kind of features by method, each list in order of seed; split ratios apart."""
    found: dict[str, list[Row]] = {}
    for record in records:
        for row in record.rows:
            if row["alpha"] == alpha and row["features"] == features and "method" in row and "ratio" not in row:
                found.setdefault(row["method"], []).append(row)
    return found


def ratios_of(records: Records, alpha: float) -> dict[str, list[Row]]:
    """Rows of the split ratios at one level, each list in order of seed."""
    found: dict[str, list[Row]] = {}
    for record in records:
        for row in record.rows:
            if row["alpha"] == alpha and "ratio" in row:
                found.setdefault(row["ratio"], []).append(row)
    return found


def column(rows: Sequence[Row], key: str) -> list[float]:
    """One number of each split."""
    return [float(row[key]) for row in rows]


def law_cells(method: str, rows: Sequence[Row], *, stratified: bool) -> tuple[Cell, Cell, Cell]:
    """Expected coverage, z, and the chance that test coverage falls below the target; nothing where there is no law."""
    if not CLAIMS[method][1] or stratified:
        return None, None, None
    # Each split by its own rank and number of calibration rows: an auto tuning split leaves not always the same.
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


# ---- tables ----------------------------------------------------------------------------------------------------------

PAIRS = (
    ("DCO-Warmstart", "BQ"),
    ("DCO-PAC", "BQ"),
    ("DCO-Warmstart", "Split CP, φ fixed, whole pool"),
    ("DCO-Warmstart", "DCO, φ fixed"),
    ("DCO, refit", "DCO-Warmstart"),
)


def describe(study: Study, records: Records, options: Options) -> str:
    """The beginning of every caption: data, features, splits, sizes."""
    sizes = QUICK_SIZES if options.quick else PAPER_SIZES
    quick = " Quick setting: fewer rows, 10 epochs, 5 passes; not the paper's protocol." if options.quick else ""
    return (
        f"{study.features} {len(records)} {'stratified' if study.stratified else 'plain random'} splits: train "
        f"{sizes.train}, tune {sizes.tune}, calibrate {sizes.calibrate}, test {sizes.test}.{quick} "
    )


def printed_on_imagenet_a(study: Study, table: str) -> str:
    """Where the paper's figures of a table come from; on other features they are of other data."""
    other = "" if study.name == "imagenet-a" else ", other data than ours: coverage compares, thresholds and sizes do not"
    return f"Paper's figures: ImageNet-A, target .8 ({table}){other}."


def main_table(study: Study, records: Records, options: Options, features: str) -> ResultTable:
    """Every method at every level: claim, coverage beside its law, sizes beside the paper's."""
    imagenet_a = study.name == "imagenet-a"
    paper: dict[tuple[float, str], tuple[tuple[float, float], ...]] = {**(IMAGENET_A if imagenet_a else CIFAR100)}
    if imagenet_a:
        paper |= {(0.2, method): triple for method, triple in IMAGENET_A_MAIN.items()}
    rows: list[tuple[Cell, ...]] = []
    for alpha in options.alphas:
        for method, found in methods_of(records, alpha, features).items():
            coverage, size = Measured.of(column(found, "coverage")), Measured.of(column(found, "size"))
            expected, z, below = law_cells(method, found, stratified=study.stratified)
            printed: list[Cell] = [Measured(*pair) for pair in paper.get((alpha, method), ())]
            printed += [None] * (3 - len(printed))
            missed = sum(value < target(alpha) - 1e-9 for value in column(found, "coverage")) / len(found)
            rows.append(
                (target(alpha), method, CLAIMS[method][0], coverage, expected, z, missed, below, printed[0], size)
                + (printed[1], Measured.of(column(found, "p95")), *(printed[2:] if imagenet_a else ()))
            )
    tested = sum(row[5] is not None for row in rows)
    law = (
        "Splits are stratified by class, so the Beta-binomial law does not hold and no z is given."
        if study.stratified
        else f"'By law': rank / (n + 1); z against the Beta-binomial law ({tested} rows here; |z| below "
        f"{bonferroni_point(tested):.2f} with probability 99 %). 'Below': share of splits whose test coverage is below the "
        "target, beside its chance by law."
    )
    return ResultTable(
        f"{study.title}: heads on {features} features",
        describe(study, records, options)
        + "Mean ± sd over splits. φ₀ is posterior_nll, dropout 0.05, hidden (512, 256); BQ with δ = 0.05 on tune + "
        "calibrate. "
        + law
        + sizes_against_paper(study, records, options, [features])
        + ("" if imagenet_a else " The paper prints no P95 for CIFAR-100."),
        ("target", "method", "guarantee", "coverage", "by law", "z", "below", "below by law", "paper coverage", "size")
        + ("paper size", "P95", *(["paper P95"] if imagenet_a else [])),
        tuple(rows),
    )


def sizes_against_paper(study: Study, records: Records, options: Options, kinds: Sequence[str]) -> str:
    """One sentence: how far our mean sizes are from the paper's, in per cent and in standard errors, and why."""
    paper = CIFAR100 if study.name == "cifar100" else IMAGENET_A
    percent: list[float] = []
    errors: list[float] = []
    for alpha, method in paper:
        for features in kinds if alpha in options.alphas else ():
            size = Measured.of(column(methods_of(records, alpha, features)[method], "size"))
            printed = paper[alpha, method][1]
            off = standard_errors(size, printed, len(records))
            percent.append(100 * (size.mean / printed[0] - 1))
            errors += [] if off is None else [off]
    if not errors:
        return ""
    why = "The paper's sizes are for another backbone, ResNet-50. " if study.name == "cifar100" else ""
    return (
        f" {why}Our mean sizes less the paper's, of BQ and DCO-Warmstart: {min(percent):+.1f} to {max(percent):+.1f} %, "
        f"{min(errors):+.1f} to {max(errors):+.1f} standard errors of the difference."
    )


def paired_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Paired differences over the same splits, for both kinds of features."""
    rows: list[tuple[Cell, ...]] = []
    for features in ("raw", "standardised"):
        for alpha in options.alphas:
            found = methods_of(records, alpha, features)
            for first, second in PAIRS:
                rows.append((features, target(alpha), first, second, *compared(found[first], found[second])))
    return ResultTable(
        f"{study.title}: paired comparisons",
        describe(study, records, options)
        + "Size of the first less size of the second, in % of the second's mean, with Student's 95 % interval over paired "
        "splits, and Wilcoxon's p. DCO-Warmstart against BQ compares a marginal statement with a PAC one; DCO-PAC against "
        "BQ, and DCO-Warmstart against split CP on the whole pool, compare like with like. The paper's p for DCO-Warmstart "
        "against BQ on ImageNet-A at .8: "
        + ", ".join(f"{value:.1e} ({name})" for name, value in IMAGENET_A_WILCOXON.items())
        + ".",
        ("features", "target", "first", "second", "size %", "low %", "high %", "p size", "p P95", "p coverage"),
        tuple(rows),
        digits=2,
    )


def compared(first: Sequence[Row], second: Sequence[Row]) -> tuple[float, ...]:
    """Difference in size with its interval, in % of the second's mean; p-values for size, P95 and coverage."""
    sizes = paired_comparison(column(first, "size"), column(second, "size"))
    base = float(np.mean(column(second, "size"))) / 100
    others = [paired_wilcoxon(column(first, key), column(second, key)) for key in ("p95", "coverage")]
    return sizes.mean_difference / base, sizes.low / base, sizes.high / base, sizes.p_value, *others


def single_run_table(study: Study, records: Records, options: Options) -> ResultTable:
    """The thresholds of the first split from tuning to calibration, and BQ's achieved confidence."""
    rows: list[tuple[Cell, ...]] = []
    for alpha in options.alphas:
        found = {method: entries[0] for method, entries in methods_of(records[:1], alpha, "raw").items()}
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
        rows += [
            (target(alpha), name, float(value), IMAGENET_A_SINGLE_RUN.get(name) if alpha == 0.2 else None)
            for name, value in facts.items()
        ]
    return ResultTable(
        f"{study.title}: a single run",
        describe(study, records, options)
        + f"Seed {records[0].seed}, raw features. BQ's confidence P(L⁺ ≤ α) at its threshold is a Beta tail, computed "
        "exactly; 1,000 Dirichlet draws, as in the paper, have a standard error of .007 around it. λ and q of one run "
        "belong to one score scale only when the chosen structure is the same. "
        + printed_on_imagenet_a(study, "tab:dco_single_run"),
        ("target", "quantity", "value", "paper"),
        tuple(rows),
    )


def confidence_table(study: Study, records: Records, options: Options) -> ResultTable:
    """BQ's achieved confidence over all splits, exactly and by draws."""
    rows: list[tuple[Cell, ...]] = []
    for alpha in options.alphas:
        found = methods_of(records, alpha, "raw")["BQ"]
        drawn = column(found, "confidence_drawn")
        rows.append(
            (target(alpha), int(found[0]["rank"]), int(found[0]["n"]), float(found[0]["confidence"]), Measured.of(drawn))
            + (min(drawn), max(drawn), sum(value < 1 - DELTA for value in drawn) / len(drawn))
        )
    return ResultTable(
        f"{study.title}: achieved confidence of BQ",
        describe(study, records, options)
        + "P(L⁺ ≤ α) at BQ's exact threshold is the same in every split: a Beta tail at its rank. By 1,000 Dirichlet draws "
        "it scatters, and where it falls below .95 a search by draws would have moved to another rank.",
        ("target", "rank", "n", "exact", "1,000 draws", "least", "most", "drawn below .95"),
        tuple(rows),
        digits=4,
    )


def candidates_table(study: Study, records: Records, options: Options) -> ResultTable:
    """All 16 structures on the tuning rows of the first split, the smallest first."""
    rows: list[tuple[Cell, ...]] = []
    for row in records[0].rows:
        if "candidates" not in row or row["features"] != "raw" or row["alpha"] != options.alphas[0]:
            continue
        order = sorted(range(len(row["sizes"])), key=lambda i: (row["sizes"][i], row["p95s"][i], row["thresholds"][i]))
        for i in order:
            each = CANDIDATES[row["candidates"][i] - 1]
            printed = IMAGENET_A_CANDIDATES.get(each.number) if row["alpha"] == 0.2 else None
            rows.append(
                (each.name, each.score, each.dropout, each.hidden, float(row["thresholds"][i]))
                + ("feasible" if row["feasible"][i] else "infeasible", float(row["sizes"][i]), float(row["p95s"][i]))
                + (printed or (None, None, None))
            )
    return ResultTable(
        f"{study.title}: candidates on tuning rows",
        describe(study, records, options)
        + f"Seed {records[0].seed}, raw features, target {target(options.alphas[0]):g}; the first row is selected. With "
        "exact search every candidate is feasible. "
        + printed_on_imagenet_a(study, "tab:imageneta_candidates, which has ten of 16"),
        ("candidate", "score", "dropout", "hidden", "λ", "status", "size", "P95", "paper λ", "paper size", "paper P95"),
        tuple(rows),
    )


def selection_table(study: Study, records: Records, options: Options) -> ResultTable:
    """How often each structure won, and the marginals over score, widths and dropout."""
    rows: list[tuple[Cell, ...]] = []
    for features in ("raw", "standardised"):
        for alpha in options.alphas:
            chosen = [CANDIDATES[int(row["chosen"]) - 1] for row in methods_of(records, alpha, features)["DCO-Warmstart"]]
            paper = IMAGENET_A_SELECTED if alpha == 0.2 else {}
            views: dict[str, Callable[[HeadCandidate], str]] = {
                "structure": lambda each: f"{each.score}, {each.hidden}, {each.dropout:g}",
                "score": lambda each: each.score,
                "hidden": lambda each: each.hidden,
                "dropout": lambda each: f"{each.dropout:g}",
            }
            for kind, view in views.items():
                counts: dict[str, int] = {}
                printed: dict[str, int] = {}
                for each in CANDIDATES:
                    counts[view(each)] = counts.get(view(each), 0) + sum(one == each for one in chosen)
                    printed[view(each)] = printed.get(view(each), 0) + paper.get(each.number, 0)
                rows += [
                    (features, target(alpha), kind, value, counts[value], 100 * counts[value] / len(chosen))
                    + (printed[value] if paper else None,)
                    for value in sorted(counts, key=lambda name: -counts[name])
                    if counts[value] or printed[value]
                ]
    return ResultTable(
        f"{study.title}: selection frequencies",
        describe(study, records, options)
        + "Splits in which a structure had the smallest mean size on the tuning rows. Paper's "
        "counts: ImageNet-A, target .8, of 50.",
        ("features", "target", "by", "value", "splits", "%", "paper"),
        tuple(rows),
        digits=2,
    )


def matched_table(study: Study, records: Records, options: Options) -> ResultTable:
    """The paper's controls: what is due to search, to the calibration rule, and to how rows are shared out."""
    order = (
        "BQ", "DCO, φ fixed", "Split CP, φ fixed, whole pool", "Matched-Φ BQ, δ/16", "Matched-Φ BQ, δ uncorrected",
        "DCO's structure, BQ on the pool", "DCO-PAC", "DCO-Warmstart", "DirectTune, fixed φ", "DirectTune, searched Φ",
        "EFCP (tuned and calibrated on the pool)", "DCO, refit",
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for alpha in options.alphas:
        found = methods_of(records, alpha, "raw")
        base = float(np.mean(column(found["BQ"], "size")))
        for method in order:
            entries = found[method]
            printed = IMAGENET_A_MATCHED.get(method) if alpha == 0.2 else None
            size = Measured.of(column(entries, "size"))
            searched = "fixed" if "fixed" in method or method == "BQ" else "matched Φ"
            missed = sum(value < target(alpha) - 1e-9 for value in column(entries, "coverage")) / len(entries)
            rows.append(
                (target(alpha), method, searched, CLAIMS[method][0], Measured.of(column(entries, "coverage")))
                + (law_cells(method, entries, stratified=study.stratified)[0], missed, size)
                + (size.mean / base, printed[1][0] / IMAGENET_A_MATCHED["BQ"][1][0] if printed else None)
                + (Measured.of(column(entries, "p95")),)
            )
    return ResultTable(
        f"{study.title}: matched candidate class and calibration mechanism",
        describe(study, records, options)
        + "Raw features. 'Size / BQ' sets our mean size over BQ's beside the same ratio in the paper's table (ImageNet-A). "
        "'Below' is the share of splits whose test coverage is below the target; a PAC row is allowed 5 % plus the noise "
        "of the test rows. Rows whose structure was chosen on the rows that calibrate it have no guarantee unless δ is "
        "shared out.",
        ("target", "method", "class", "guarantee", "coverage", "by law", "below", "size", "size / BQ")
        + ("paper size / BQ", "P95"),
        tuple(rows),
    )


BESIDE = ("coverage", "paper coverage", "size", "paper size", "P95", "paper P95")


def beside(rows: Sequence[Row], printed: Triple) -> list[Cell]:
    """Coverage, mean size and P95 size, each with the paper's after it."""
    ours = (Measured.of(column(rows, key)) for key in ("coverage", "size", "p95"))
    return [cell for one, pair in zip(ours, printed, strict=True) for cell in (one, Measured(*pair))]


def matched_beside_table(study: Study, records: Records, options: Options) -> ResultTable:
    """The five controls that the paper prints, beside its figures."""
    found = methods_of(records, 0.2, "raw") if 0.2 in options.alphas else {}
    return ResultTable(
        f"{study.title}: the paper's controls beside ours",
        describe(study, records, options) + "Raw features. " + printed_on_imagenet_a(study, "tab:matched_candidate"),
        ("method", *BESIDE),
        tuple((name, *beside(found[name], printed)) for name, printed in IMAGENET_A_MATCHED.items() if name in found),
    )


def ratio_table(study: Study, records: Records, options: Options) -> ResultTable:
    """The pool cut at five places; stability is the share of splits that choose the modal candidate."""
    rows: list[tuple[Cell, ...]] = []
    for alpha in options.alphas:
        for ratio, entries in ratios_of(records, alpha).items():
            expected, z, _ = law_cells("DCO-Warmstart", entries, stratified=study.stratified)
            method = f"DCO-Warmstart, {ratio}"
            rows.append(
                (target(alpha), ratio, method, Measured.of(column(entries, "coverage")), expected, z)
                + (Measured.of(column(entries, "size")), Measured.of(column(entries, "p95")), stability(entries))
            )
    return ResultTable(
        f"{study.title}: split ratio",
        describe(study, records, options)
        + "Raw features. DCO-Warmstart with the same pool cut into tuning and calibration rows at five places (ratio, in "
        "%). Stability: % of splits that choose the modal candidate.",
        ("target", "ratio", "method", "coverage", "by law", "z", "size", "P95", "stability %"),
        tuple(rows),
    )


def ratio_beside_table(study: Study, records: Records, options: Options) -> ResultTable:
    """The paper's table of split ratios beside ours."""
    found = ratios_of(records, 0.2) if 0.2 in options.alphas else {}
    return ResultTable(
        f"{study.title}: the paper's split ratios beside ours",
        describe(study, records, options) + "Raw features. " + printed_on_imagenet_a(study, "tab:split_ratio"),
        ("ratio", *BESIDE, "stability %", "paper stability %"),
        tuple(
            (ratio, *beside(rows, IMAGENET_A_RATIOS[ratio]), stability(rows), IMAGENET_A_STABILITY[ratio])
            for ratio, rows in found.items()
        ),
    )


def stability(rows: Sequence[Row]) -> float:
    """The share of splits, in %, that choose the modal candidate."""
    return 100 * max(Counter(int(row["chosen"]) for row in rows).values()) / len(rows)


def levels_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Coverage of BQ and DCO at the three levels beside its law and the paper's."""
    rows: list[tuple[Cell, ...]] = []
    for features, alpha, method, entries, printed in _levels(study, records, options):
        coverage = Measured.of(column(entries, "coverage"))
        expected = law_cells(method, entries, stratified=study.stratified)[0]
        beside = None if printed is None else Measured(*printed[0])
        off = None if printed is None else standard_errors(coverage, printed[0], len(records))
        rows.append((features, target(alpha), method, coverage, expected, beside, off))
    return ResultTable(
        f"{study.title}: target coverage levels",
        describe(study, records, options) + "'Off': our coverage less the paper's, in standard errors of the difference.",
        ("features", "target", "method", "coverage", "by law", "paper coverage", "off"),
        tuple(rows),
    )


def level_sizes_table(study: Study, records: Records, options: Options) -> ResultTable:
    """Mean sizes of BQ and DCO at the three levels beside the paper's."""
    paper = CIFAR100 if study.name == "cifar100" else IMAGENET_A
    rows: list[tuple[Cell, ...]] = []
    for features, alpha, method, entries, printed in _levels(study, records, options):
        size = Measured.of(column(entries, "size"))
        base = float(np.mean(column(methods_of(records, alpha, features)["BQ"], "size")))
        beside: tuple[Cell, ...] = (None, None, None, None)
        if printed is not None:
            mean = printed[1][0]
            beside = (Measured(*printed[1]), 100 * (size.mean / mean - 1), standard_errors(size, printed[1], len(records)))
            beside += (mean / paper[alpha, "BQ"][1][0],)
        rows.append((features, target(alpha), method, size, *beside[:3], size.mean / base, beside[3]))
    return ResultTable(
        f"{study.title}: sizes at target coverage levels",
        describe(study, records, options)
        + "Our mean size less the paper's in % of the paper's ('size %') and in standard errors of the difference ('off')."
        + sizes_against_paper(study, records, options, ["raw", "standardised"])
        + " Sizes over BQ's own ('size / BQ') depend less on the backbone.",
        ("features", "target", "method", "size", "paper size", "size %", "off", "size / BQ", "paper size / BQ"),
        tuple(rows),
    )


def _levels(
    study: Study, records: Records, options: Options
) -> Iterator[tuple[str, float, str, list[Row], tuple[tuple[float, float], tuple[float, float]] | None]]:
    """Features, alpha, method, its rows, and what the paper prints of it: coverage and size."""
    paper = CIFAR100 if study.name == "cifar100" else IMAGENET_A
    for features in ("raw", "standardised"):
        for alpha in options.alphas:
            found = methods_of(records, alpha, features)
            for method in ("BQ", "DCO-Warmstart"):
                yield features, alpha, method, found[method], paper.get((alpha, method))


def beyond_table(study: Study, records: Records, options: Options) -> ResultTable:
    """The stronger class against the paper's DCO, the better of raw and standardised features."""
    rows: list[tuple[Cell, ...]] = []
    for alpha in options.alphas:
        ours = methods_of(records, alpha, "square roots")
        base_features, base = better_dco(records, alpha)
        rows.append((*_beyond_cells(alpha, f"DCO-Warmstart ({base_features})", base), None, None, None, None))
        for method, entries in ours.items():
            change, low, high, p, *_ = compared(entries, base)
            rows.append((*_beyond_cells(alpha, method, entries), change, low, high, p))
    return ResultTable(
        f"{study.title}: beyond the paper",
        describe(study, records, options)
        + "All rows have the same marginal guarantee at the same level and the same splits. Change: against the paper's "
        "DCO, on raw or standardised features, whichever has the smaller mean size; 95 % intervals over paired splits. The "
        f"class, and the one structure ({STRONG_FIXED}; square roots of features), were chosen on {SET_ASIDE:,} rows that "
        "no split uses.",
        ("target", "method", "coverage", "by law", "z", "size", "P95", "change %", "low %", "high %", "p size"),
        tuple(rows),
        digits=3,
    )


def better_dco(records: Records, alpha: float) -> tuple[str, list[Row]]:
    """The paper's DCO on raw or on standardised features, whichever has the smaller mean size."""
    both = {features: methods_of(records, alpha, features)["DCO-Warmstart"] for features in ("raw", "standardised")}
    best = min(both, key=lambda features: float(np.mean(column(both[features], "size"))))
    return best, both[best]


def _beyond_cells(alpha: float, name: str, entries: Sequence[Row]) -> tuple[Cell, ...]:
    expected, z, _ = law_cells(str(entries[0]["method"]), entries, stratified=False)
    measured = (Measured.of(column(entries, key)) for key in ("coverage", "size", "p95"))
    coverage, size, p95 = measured
    return (target(alpha), name, coverage, expected, z, size, p95)


def gain_table(study: Study, records: Records, options: Options) -> ResultTable:
    """The gain in steps: another class with one structure, search among its members, refit, auto tuning split."""
    rows: list[tuple[Cell, ...]] = []
    for alpha in options.alphas:
        ours = methods_of(records, alpha, "square roots")
        _, base = better_dco(records, alpha)
        one, searched = ours["Stronger class, one structure"], ours["Stronger class, searched"]
        refit, auto = ours["Stronger class, searched, refit"], ours[AUTO]
        steps = (
            ("class (one structure, no search)", one, base),
            ("search on tuning rows", searched, one),
            ("refit on train + tune", refit, searched),
            ("all", refit, base),
            ("auto tuning split", auto, refit),
            ("all, auto tuning split", auto, base),
        )
        for step, after, before in steps:
            change, low, high, p, *_ = compared(after, before)
            rows.append((target(alpha), step, change, low, high, p))
    return ResultTable(
        f"{study.title}: the gain in steps",
        describe(study, records, options)
        + "Change of mean size at each step in % of the step before ('all': of the paper's DCO), with 95 % "
        "intervals over paired splits. The auto tuning split comes after refit.",
        ("target", "step", "change %", "low %", "high %", "p size"),
        tuple(rows),
        digits=2,
    )


def auto_table(study: Study, records: Records, options: Options) -> ResultTable:
    """How many tuning rows the auto split took, and what it did to size and to the spread of coverage."""
    rows: list[tuple[Cell, ...]] = []
    for alpha in options.alphas:
        ours = methods_of(records, alpha, "square roots")
        pools = [int(row["n"]) + int(row["n_tune"]) for row in ours[AUTO]]
        for method in ("Stronger class, searched, refit", AUTO):
            entries = ours[method]
            taken = [pool - int(row["n"]) for pool, row in zip(pools, entries, strict=True)]
            rows.append(
                (target(alpha), method, round(sum(taken) / len(taken)), min(taken), max(taken))
                + (sum(row["settled"] for row in entries) if method == AUTO else None,)
                + (Measured.of(column(entries, "coverage")), Measured.of(column(entries, "size")))
            )
    return ResultTable(
        f"{study.title}: tuning rows by the auto split",
        describe(study, records, options)
        + "Tuning takes rows of the pool of tune + calibrate rows in their fixed order until the bootstrap says that "
        f"selection costs at most {100 * SETTLED:g} % of the size at every level ('settled'), or until calibration has only "
        f"1/{LEAST_CALIBRATION} of the pool left; one number of rows serves all levels of a split. The structure "
        "is then refitted on train rows and those taken.",
        ("target", "row", "tuning rows", "least", "most", "splits settled", "coverage of test rows", "size"),
        tuple(rows),
        digits=3,
    )


def chosen_table(study: Study, records: Records, options: Options) -> ResultTable:
    """How often search chose each kind of structure, and each head in it."""
    rows: list[tuple[Cell, ...]] = []
    for alpha in options.alphas:
        ours = methods_of(records, alpha, "square roots")
        counts = {
            method: [Counter(view) for view in _views([str(row["chosen"]) for row in ours[method]])]
            for method in ("Stronger class, searched", AUTO)
        }
        for place, by in enumerate(("kind", "head")):
            first, second = (counts[method][place] for method in counts)
            order = sorted(first | second, key=lambda name: (-first[name] - second[name], name))
            rows += [(target(alpha), by, value, first[value], second[value]) for value in order]
    return ResultTable(
        f"{study.title}: what search chose in the stronger class",
        describe(study, records, options)
        + f"Splits, of {len(records)}, in which the chosen structure is of a kind, and has a head in it: shrinkage of the "
        "discriminant, penalty of the logistic head, width and weight decay of the network.",
        ("target", "by", "value", "splits", "splits, auto split"),
        tuple(rows),
        digits=2,
    )


def _views(chosen: Sequence[str]) -> tuple[list[str], list[str]]:
    """The kind of each chosen structure, and all heads in them."""
    found = [STRUCTURES[name] for name in chosen]
    return [one.kind for one in found], [head.name for one in found for head, _ in one.parts]
