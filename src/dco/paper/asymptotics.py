"""Proposition 3.3 and Lemma B.3 on data whose truth is known.

The proposition: the thresholds of DCO and of BQ agree in the limit of many calibration rows m. The
lemma: how far a calibration quantile is from the quantile of the population. The scores are
|y - mean| / spread with the true mean and spread, so they are |N(0, 1)|.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from dco import conformal_rank, pac_rank
from dco.datasets import HeteroscedasticGaussian
from dco.foundations.arrays import Floats
from dco.foundations.ranks import order_statistic
from dco.paper import figures, paper_findings
from dco.paper.bounds import QuantileMethod, quantile_accuracy
from dco.paper.coverage_z import target_coverage
from dco.paper.experiment import Experiment, Options, Row, SplitRecords, group_by, rows_of
from dco.paper.tables import Measured, ResultTable, TableRow, join_sentences
from dco.scores import NormalisedResidual
from dco.theory import coverage_law_of_rank, pac_gap

POPULATION = HeteroscedasticGaussian()
DELTA = 0.05
CALIBRATION_ROWS = (50, 200, 1000, 10_000, 100_000, 1_000_000)
QUICK_CALIBRATION_ROWS = (50, 1000, 10_000)
LEMMA_ROWS = (50, 200, 1000, 5000)
LEMMA_DISTANCES = (1.0, 2.0, 4.0)  # in units of 1 / sqrt(m)
LEMMA_DRAWS = 200  # calibration sets per seed

# How BQ's delta depends on the number m of calibration rows, as it is written in tables.
FIXED_DELTA = "0.05"
FALLING_DELTA = "1/m"


@dataclass(frozen=True)
class AgreementRow(Row):
    """The thresholds of DCO and of BQ from the same m calibration rows, and what they truly cover.

    `schedule` says what BQ's delta is: "0.05" or "1/m". `rank` is BQ's.
    """

    part: str  # "agreement"
    m: int
    alpha: float
    schedule: str
    rank: int
    rank_dco: int
    dco: float
    bq: float
    coverage_dco: float
    coverage_bq: float


@dataclass(frozen=True)
class LemmaRow(Row):
    """In how many calibration sets of m rows the quantile was far from that of the population.

    `misses` counts those of the `LEMMA_DRAWS` sets in which it was off by more than
    `distance` / sqrt(m).
    """

    part: str  # "lemma"
    m: int
    alpha: float
    distance: float
    misses: int


def population_threshold(alpha: float) -> float:
    """Return λ*, the threshold at which the population's risk is alpha.

    The score is |N(0, 1)|, so R(λ) = 2 Φ(-λ) = alpha at λ* = Φ⁻¹(1 - alpha / 2).
    """
    return float(ndtri(1 - alpha / 2))


def delta_of(schedule: str, m: int) -> float:
    """Return BQ's delta (the probability that its guarantee may fail) at m calibration rows.

    The schedule is "0.05", the same for every m, or "1/m".
    """
    return DELTA if schedule == FIXED_DELTA else 1 / m


# ---- one split


def run_split(seed: int, options: Options) -> list[Row]:
    """Simulate one data set: draw m calibration rows for every m, and compare DCO with BQ on them.

    DCO takes the threshold of split conformal prediction, BQ (Bayesian quadrature) a larger one,
    which covers with probability at least 1 - delta. Further calibration sets are drawn for the
    lemma on calibration quantiles (`count_misses`).
    """
    rng = np.random.default_rng([seed, 1])
    calibration_rows = QUICK_CALIBRATION_ROWS if options.quick else CALIBRATION_ROWS
    rows: list[Row] = []
    for m in calibration_rows:
        X, y = POPULATION.sample(m, rng)
        scores = np.sort(NormalisedResidual().observed(POPULATION.prediction(X), y))
        for alpha in options.alphas:
            for schedule in (FIXED_DELTA, FALLING_DELTA):
                rows.append(compare_thresholds(scores, alpha, schedule=schedule))

    for m in LEMMA_ROWS:
        for alpha in options.alphas:
            rows += count_misses(m, alpha, rng)
    return rows


def compare_thresholds(sorted_scores: Floats, alpha: float, *, schedule: str) -> AgreementRow:
    """Take the thresholds of DCO and of BQ from the same m scores, and compute what they cover.

    Each is the k-th smallest score: for DCO k is the rank of split conformal prediction, for BQ
    (Bayesian quadrature) the larger rank that covers with probability at least 1 - delta. The
    schedule ("0.05" or "1/m") says what delta is.
    """
    m = len(sorted_scores)
    rank_of_dco = conformal_rank(m, alpha=alpha)
    rank_of_bq = pac_rank(m, alpha=alpha, delta=delta_of(schedule, m))
    threshold_of_dco = order_statistic(sorted_scores, rank_of_dco)
    threshold_of_bq = order_statistic(sorted_scores, rank_of_bq)
    return AgreementRow(
        part="agreement",
        m=m,
        alpha=alpha,
        schedule=schedule,
        rank=rank_of_bq,
        rank_dco=rank_of_dco,
        dco=threshold_of_dco,
        bq=threshold_of_bq,
        coverage_dco=POPULATION.normalised_coverage(threshold_of_dco),
        coverage_bq=POPULATION.normalised_coverage(threshold_of_bq),
    )


def count_misses(m: int, alpha: float, rng: np.random.Generator) -> list[LemmaRow]:
    """Count how often the threshold of split conformal prediction is far from the true quantile.

    `LEMMA_DRAWS` calibration sets of m scores |N(0, 1)| are drawn, and the threshold q is taken
    from each. A set misses if |q - q*| > d / sqrt(m), where q* is the quantile of the population.
    One row is returned for each distance d in `LEMMA_DISTANCES`.
    """
    rank = conformal_rank(m, alpha=alpha)
    scores = np.abs(rng.standard_normal((LEMMA_DRAWS, m)))
    if rank <= m:
        thresholds = np.partition(scores, rank - 1, axis=1)[:, rank - 1]
    else:
        thresholds = np.full(LEMMA_DRAWS, np.inf)  # m is too small for a finite threshold
    errors = np.abs(thresholds - population_threshold(alpha))

    rows: list[LemmaRow] = []
    for distance in LEMMA_DISTANCES:
        is_miss = errors > distance / math.sqrt(m)
        n_misses = int(np.sum(is_miss))
        rows.append(LemmaRow(part="lemma", m=m, alpha=alpha, distance=distance, misses=n_misses))
    return rows


# ---- tables


def make_tables(records: SplitRecords, options: Options) -> list[ResultTable]:
    """Make the table of Proposition 3.3 and that of Lemma B.3."""
    return [agreement_table(records), lemma_table(records)]


def agreement_table(records: SplitRecords) -> ResultTable:
    """Make the table of how the thresholds of DCO and BQ approach each other as m grows.

    m is the number of calibration rows. Each threshold is set beside λ*, the one that covers
    exactly the target. There is a row for each level, each m, and each schedule of BQ's delta.
    """
    groups = group_by(
        rows_of(records, AgreementRow), key=lambda row: (row.alpha, row.schedule, row.m)
    )
    rows = [
        describe_agreement(thresholds, alpha, schedule, m)
        for (alpha, schedule, m), thresholds in groups.items()
    ]

    setting = (
        f"Known truth: the score is |N(0, 1)|. {len(records)} calibration sets of each size m; "
        "both thresholds come from the same m rows, less the population threshold λ*."
    )
    gap = (
        "'Gap': true coverage of BQ's sets less that of DCO's, beside the exact (BQ's rank - DCO's "
        "rank) / (m + 1) and its form z_(1-δ) sqrt(α(1-α)/m)."
    )
    finding = (
        "Both thresholds approach λ*, as the proposition says, for fixed δ and for δ = 1/m; their "
        "gap closes as m^(-1/2), for δ = 1/m slower by sqrt(log m)."
    )
    caption = join_sentences(setting, gap, finding)
    return ResultTable.of("Asymptotic agreement of DCO and BQ", caption, rows, digits=4)


def describe_agreement(
    thresholds: Sequence[AgreementRow], alpha: float, schedule: str, m: int
) -> TableRow:
    """Make the row of the table for one level, one schedule of delta and m calibration rows.

    `thresholds` has the thresholds of DCO and of BQ on each of many calibration sets of m rows.
    λ* is the threshold that covers exactly 1 - alpha. The gap is the coverage of BQ's sets less
    that of DCO's; theory gives its expectation, "exact gap", and an approximation of that.
    """
    true_threshold = population_threshold(alpha)
    excess_of_dco = Measured.of(row.dco - true_threshold for row in thresholds)
    excess_of_bq = Measured.of(row.bq - true_threshold for row in thresholds)

    gap = Measured.of(row.coverage_bq - row.coverage_dco for row in thresholds)
    theory = pac_gap(m, alpha=alpha, delta=delta_of(schedule, m))
    has_finite_bq = theory.pac_rank <= m
    z = z_of_gap(
        gap.mean - theory.exact,
        rank_difference=theory.pac_rank - theory.marginal_rank,
        m=m,
        n_sets=len(thresholds),
    )
    return {
        "target": target_coverage(alpha),
        "δ": schedule,
        "m": m,
        "DCO - λ*": excess_of_dco,
        "BQ - λ*": excess_of_bq if has_finite_bq else "no finite rank",
        "gap": gap,
        "exact gap": theory.exact,
        "normal form": theory.approximate,
        "z of gap": z,
    }


def z_of_gap(excess: float, *, rank_difference: int, m: int, n_sets: int) -> float | None:
    """Return the mean gap less its exact value (`excess`), in standard errors.

    The gap in coverage between two order statistics of m scores, `rank_difference` = r ranks apart,
    is that of m uniforms: it has the law Beta(r, m + 1 - r), here averaged over `n_sets`
    independent sets. None where it is constant.
    """
    if not 0 < rank_difference <= m:
        return None
    sd = float(coverage_law_of_rank(rank_difference, m).std())
    return excess / (sd / math.sqrt(n_sets))


def lemma_table(records: SplitRecords) -> ResultTable:
    """Make the table of P(|q - q*| > t): how often a calibration quantile is off by more than t.

    q is the threshold from m calibration rows, q* the quantile of the population. The probability
    is simulated, exact, and bounded in two ways. There is a row for each level, each m and each t.
    """
    groups = group_by(rows_of(records, LemmaRow), key=lambda row: (row.alpha, row.m, row.distance))
    n_sets = LEMMA_DRAWS * len(records)
    rows: list[TableRow] = []
    for (alpha, m, distance), lemma_rows in groups.items():
        n_misses = sum(row.misses for row in lemma_rows)
        t = distance / math.sqrt(m)
        rows.append(describe_misses(n_misses, n_sets, alpha=alpha, m=m, t=t))

    caption = join_sentences(
        "P(|q - q*| > t) over calibration sets of m rows: simulated, true (Beta law), and bounded "
        "from a lower bound on the density of scores alone.",
        "'Exact' counts scores by the binomial law; 'paper' is Lemma B.3.",
    )
    return ResultTable.of("Calibration quantile lemma", caption, rows, digits=4)


def describe_misses(n_misses: int, n_sets: int, *, alpha: float, m: int, t: float) -> TableRow:
    """Make the row of the table that compares a simulated probability with theory.

    The probability is that of |q - q*| > t, where q is the conformal threshold of m calibration
    rows at level alpha, and q* the quantile of the population. In the simulation it happened in
    `n_misses` of `n_sets` calibration sets.
    """
    simulated = n_misses / n_sets
    exact = chance_of_miss(m, alpha, t)
    standard_error = math.sqrt(exact * (1 - exact) / n_sets)
    z = (simulated - exact) / standard_error if standard_error > 0 else None
    return {
        "target": target_coverage(alpha),
        "m": m,
        "t": t,
        "simulated": simulated,
        "true": exact,
        "z of simulation": z,
        "bound, exact": bound_on_miss(m, alpha, t, "exact"),
        "bound, paper": bound_on_miss(m, alpha, t, "paper"),
    }


def chance_of_miss(m: int, alpha: float, t: float) -> float:
    """Return P(|q - q*| > t) exactly, where q is the conformal threshold of m rows.

    The share of scores at or below q has the Beta law of its rank. So the chance is that this share
    is below F(q* - t), or above F(q* + t), where F(s) = 2 Φ(s) - 1 is the law of the scores.
    """
    truth = population_threshold(alpha)
    share_low = 2 * float(ndtr(max(0.0, truth - t))) - 1
    share_high = 2 * float(ndtr(truth + t)) - 1
    law = coverage_law_of_rank(conformal_rank(m, alpha=alpha), m)
    return float(law.cdf(share_low) + law.sf(share_high))


def bound_on_miss(m: int, alpha: float, t: float, method: QuantileMethod) -> float:
    """Bound P(|q - q*| > t) from the lowest density that scores have within t of q*."""
    # The density 2 φ(s) falls with the score s, so that it is lowest at the far end.
    far_end = population_threshold(alpha) + t
    density = 2 * math.exp(-(far_end**2) / 2) / math.sqrt(2 * math.pi)
    return quantile_accuracy(m, alpha=alpha, density=density, distance=t, method=method)


# ---- the figure


def make_figures(records: SplitRecords, options: Options) -> figures.Files:
    """Draw the figure of how DCO and BQ approach each other with the number m of calibration rows.

    Left: how far both thresholds are from λ*, the one that covers exactly the target. Right: how
    much more BQ covers than DCO. Values are means over calibration sets at the first level, on
    logarithmic axes. BQ has a line for each schedule of its delta.
    """
    alpha = options.alphas[0]
    rows = [row for row in rows_of(records, AgreementRow) if row.alpha == alpha]
    figure, axes = figures.new_figure(2)
    distance_axis, gap_axis = axes[0]

    for schedule, line_style in ((FIXED_DELTA, "-"), (FALLING_DELTA, ":")):
        rows_of_schedule = [row for row in rows if row.schedule == schedule]
        rows_by_m = group_by(rows_of_schedule, key=lambda row: row.m)
        draw_distance_of_bq(distance_axis, rows_by_m, alpha, schedule, line_style)
        draw_gap(gap_axis, rows_by_m, schedule, line_style)
    draw_distance_of_dco(distance_axis, group_by(rows, key=lambda row: row.m), alpha)

    distance_axis.set(xlabel="calibration rows m", ylabel="mean |threshold − λ*|")
    gap_axis.set(xlabel="calibration rows m", ylabel="coverage of BQ − coverage of DCO")
    for axis in axes[0]:
        axis.legend(fontsize=figures.SMALL_TEXT, frameon=False)
    return figures.render(figure, "asymptotics")


def draw_distance_of_bq(
    axis: Any,
    rows_by_m: Mapping[int, Sequence[AgreementRow]],
    alpha: float,
    schedule: str,
    line_style: str,
) -> None:
    """Draw a line: the mean distance of BQ's threshold from λ* against the calibration rows m.

    λ* is the threshold that covers exactly 1 - alpha. A number m at which BQ's threshold is
    infinite has no point. The legend names the schedule of BQ's delta, "0.05" or "1/m".
    """
    true_threshold = population_threshold(alpha)
    distances: dict[int, float] = {}
    for m, rows in rows_by_m.items():
        thresholds = [row.bq for row in rows]
        if np.all(np.isfinite(thresholds)):
            distances[m] = float(np.mean([abs(value - true_threshold) for value in thresholds]))
    axis.loglog(
        list(distances),
        list(distances.values()),
        line_style,
        color=figures.RED,
        marker=".",
        label=f"BQ, δ = {schedule}",
    )


def draw_distance_of_dco(
    axis: Any, rows_by_m: Mapping[int, Sequence[AgreementRow]], alpha: float
) -> None:
    """Draw a line: the mean distance of DCO's threshold from λ* against the calibration rows m."""
    true_threshold = population_threshold(alpha)
    distances = [
        np.mean([abs(row.dco - true_threshold) for row in rows]) for rows in rows_by_m.values()
    ]
    axis.loglog(list(rows_by_m), distances, color=figures.BLUE, marker=".", label="DCO")


def draw_gap(
    axis: Any, rows_by_m: Mapping[int, Sequence[AgreementRow]], schedule: str, line_style: str
) -> None:
    """Draw how much more BQ's sets cover than DCO's, against the number m of calibration rows.

    A line shows the mean that was measured over calibration sets, crosses show the exact
    expectation, (rank of BQ - rank of DCO) / (m + 1).
    """
    measured: list[float] = []
    exact: list[float] = []
    for m, rows in rows_by_m.items():
        measured.append(float(np.mean([row.coverage_bq - row.coverage_dco for row in rows])))
        any_row = rows[0]  # the ranks depend on m alone
        exact.append((any_row.rank - any_row.rank_dco) / (m + 1))

    numbers = list(rows_by_m)
    axis.loglog(
        numbers,
        measured,
        line_style,
        color=figures.RED,
        marker=".",
        label=f"measured, δ = {schedule}",
    )
    axis.loglog(
        numbers,
        exact,
        "x",
        color=figures.INK,
        markersize=5,
        label="exact" if schedule == FIXED_DELTA else None,  # once in the legend, not per schedule
    )


EXPERIMENTS = (
    Experiment(
        name="asymptotics",
        summary="Thresholds of DCO and BQ against the population's as m grows to a million; the "
        "quantile lemma.",
        needs="nothing",
        minutes=0.1,
        run_split=run_split,
        tables=make_tables,
        figures=make_figures,
        row_kinds=(AgreementRow, LemmaRow),
        alphas=(0.2, 0.1),
        splits=100,
        quick_splits=20,
        findings=paper_findings.ASYMPTOTICS,
    ),
)
