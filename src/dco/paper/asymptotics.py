"""Proposition 3.3 and Lemma B.3 on data whose truth is known.

The proposition: the thresholds of DCO and of BQ agree in the limit of many calibration rows. The
lemma: how far a calibration quantile is from the quantile of the population.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from dco import conformal_rank, pac_rank
from dco.datasets import HeteroscedasticGaussian
from dco.foundations.arrays import Floats
from dco.foundations.ranks import order_statistic
from dco.paper import figures
from dco.paper.bounds import quantile_accuracy
from dco.paper.coverage_z import target
from dco.paper.experiment import Experiment, Options, Records, Row, group_by, rows_of
from dco.paper.tables import Cells, Measured, ResultTable
from dco.scores import NormalisedResidual
from dco.theory import coverage_law_of_rank, pac_gap

POPULATION = HeteroscedasticGaussian()
DELTA = 0.05
CALIBRATION_ROWS = (50, 200, 1000, 10_000, 100_000, 1_000_000)
QUICK_CALIBRATION_ROWS = (50, 1000, 10_000)
LEMMA_ROWS = (50, 200, 1000, 5000)
LEMMA_DISTANCES = (1.0, 2.0, 4.0)  # in units of 1 / sqrt(m)
LEMMA_DRAWS = 200  # calibration sets per seed


@dataclass(frozen=True)
class AgreementRow(Row):
    """Both thresholds from the same m calibration rows, and the true coverage of their sets.

    `schedule` is BQ's delta: "0.05", or "1/m".
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
    """In how many of the draws the quantile of m rows misses that of the population by more than
    `distance` / sqrt(m).
    """

    part: str  # "lemma"
    m: int
    alpha: float
    distance: float
    misses: int


def population_threshold(alpha: float) -> float:
    """λ*: the score is |N(0, 1)|, so R(λ) = 2 Φ(-λ) = alpha at Φ⁻¹(1 - alpha / 2)."""
    return float(ndtri(1 - alpha / 2))


# ---- one split


def run_split(seed: int, options: Options) -> list[Row]:
    """Draw calibration rows of every size, and take both thresholds from them."""
    rng = np.random.default_rng([seed, 1])
    rows: list[Row] = []
    for m in QUICK_CALIBRATION_ROWS if options.quick else CALIBRATION_ROWS:
        X, y = POPULATION.sample(m, rng)
        scores = np.sort(NormalisedResidual().observed(POPULATION.prediction(X), y))
        for alpha in options.alphas:
            rows.append(compare_thresholds(scores, alpha, schedule="0.05", delta=DELTA))
            rows.append(compare_thresholds(scores, alpha, schedule="1/m", delta=1 / m))

    for m in LEMMA_ROWS:
        for alpha in options.alphas:
            rows += count_misses(m, alpha, rng)
    return rows


def compare_thresholds(
    sorted_scores: Floats, alpha: float, *, schedule: str, delta: float
) -> AgreementRow:
    """Take the thresholds of DCO and of BQ from the same scores."""
    m = len(sorted_scores)
    rank_dco = conformal_rank(m, alpha=alpha)
    rank_bq = pac_rank(m, alpha=alpha, delta=delta)
    threshold_dco = order_statistic(sorted_scores, rank_dco)
    threshold_bq = order_statistic(sorted_scores, rank_bq)
    return AgreementRow(
        part="agreement",
        m=m,
        alpha=alpha,
        schedule=schedule,
        rank=rank_bq,
        rank_dco=rank_dco,
        dco=threshold_dco,
        bq=threshold_bq,
        coverage_dco=POPULATION.normalised_coverage(threshold_dco),
        coverage_bq=POPULATION.normalised_coverage(threshold_bq),
    )


def count_misses(m: int, alpha: float, rng: np.random.Generator) -> list[LemmaRow]:
    """Draw sets of m scores and count how often their quantile is far from the population's."""
    rank = conformal_rank(m, alpha=alpha)
    scores = np.abs(rng.standard_normal((LEMMA_DRAWS, m)))
    if rank <= m:
        quantiles = np.partition(scores, rank - 1, axis=1)[:, rank - 1]
    else:
        quantiles = np.full(LEMMA_DRAWS, np.inf)
    errors = np.abs(quantiles - population_threshold(alpha))
    return [
        LemmaRow(
            part="lemma",
            m=m,
            alpha=alpha,
            distance=distance,
            misses=int(np.sum(errors > distance / math.sqrt(m))),
        )
        for distance in LEMMA_DISTANCES
    ]


# ---- tables and the figure


def make_tables(records: Records, options: Options) -> list[ResultTable]:
    """Show thresholds against λ* as m grows, and the quantile lemma against simulation."""
    return [agreement_table(records), lemma_table(records)]


def agreement_table(records: Records) -> ResultTable:
    """Show how far both thresholds are from the population's, and how far from one another."""
    groups = group_by(
        rows_of(records, AgreementRow), key=lambda row: (row.alpha, row.schedule, row.m)
    )
    rows: list[Cells] = []
    for (alpha, schedule, m), same in groups.items():
        truth = population_threshold(alpha)
        exact = pac_gap(m, alpha=alpha, delta=DELTA if schedule == "0.05" else 1 / m)
        gap = Measured.of(row.coverage_bq - row.coverage_dco for row in same)
        bq = Measured.of(row.bq - truth for row in same)
        rows.append(
            {
                "target": target(alpha),
                "δ": schedule,
                "m": m,
                "DCO - λ*": Measured.of(row.dco - truth for row in same),
                "BQ - λ*": bq if exact.pac_rank <= m else "no finite rank",
                "gap": gap,
                "exact gap": exact.exact,
                "normal form": exact.approximate,
                "z of gap": z_of_gap(
                    gap.mean - exact.exact, exact.pac_rank - exact.marginal_rank, m, len(records)
                ),
            }
        )
    return ResultTable.of(
        "Asymptotic agreement of DCO and BQ",
        f"Known truth: the score is |N(0, 1)|. {len(records)} calibration sets of each size m; "
        "both thresholds come from the same m rows, less the population threshold λ*. 'Gap': true "
        "coverage of BQ's sets less that of DCO's, beside the exact (BQ's rank - DCO's rank) / "
        "(m + 1) and its form z_(1-δ) sqrt(α(1-α)/m). Both thresholds approach λ*, as the "
        "proposition says, for fixed δ and for δ = 1/m; their gap closes as m^(-1/2), for δ = 1/m "
        "slower by sqrt(log m).",
        rows,
        digits=4,
    )


def z_of_gap(excess: float, ranks_apart: int, m: int, n_sets: int) -> float | None:
    """Return the mean gap less its exact value, in standard errors; None where it is constant.

    The gap between two order statistics of m uniforms is Beta(difference, m + 1 - difference).
    """
    if not 0 < ranks_apart <= m:
        return None
    sd = float(coverage_law_of_rank(ranks_apart, m).std())
    return excess / (sd / math.sqrt(n_sets))


def lemma_table(records: Records) -> ResultTable:
    """Show the chance of a quantile far from the population's, and two bounds on it."""
    draws = LEMMA_DRAWS * len(records)
    groups = group_by(rows_of(records, LemmaRow), key=lambda row: (row.alpha, row.m, row.distance))
    rows: list[Cells] = []
    for (alpha, m, units), same in groups.items():
        distance = units / math.sqrt(m)
        simulated = sum(row.misses for row in same) / draws
        exact = chance_of_miss(m, alpha, distance)
        standard_error = math.sqrt(exact * (1 - exact) / draws)
        rows.append(
            {
                "target": target(alpha),
                "m": m,
                "t": distance,
                "simulated": simulated,
                "true": exact,
                "z of simulation": (simulated - exact) / standard_error if standard_error else None,
                "bound, exact": bound_on_miss(m, alpha, distance, "exact"),
                "bound, paper": bound_on_miss(m, alpha, distance, "paper"),
            }
        )
    return ResultTable.of(
        "Calibration quantile lemma",
        "P(|q - q*| > t) over calibration sets of m rows: simulated, true (Beta law), and bounded "
        "from a lower bound on the density of scores alone. 'Exact' counts scores by the binomial "
        "law; 'paper' is Lemma B.3.",
        rows,
        digits=4,
    )


def chance_of_miss(m: int, alpha: float, distance: float) -> float:
    """P(|q - q*| > distance), by the law of coverage at the rank of q."""
    truth = population_threshold(alpha)
    low = 2 * float(ndtr(max(0.0, truth - distance))) - 1
    high = 2 * float(ndtr(truth + distance)) - 1
    law = coverage_law_of_rank(conformal_rank(m, alpha=alpha), m)
    return float(law.cdf(low) + law.sf(high))


def bound_on_miss(m: int, alpha: float, distance: float, method: Any) -> float:
    """Bound P(|q - q*| > distance) by the least density of scores that near to q*."""
    # the density of scores falls with the score, so it is least at the far end
    far_end = population_threshold(alpha) + distance
    density = 2 * math.exp(-(far_end**2) / 2) / math.sqrt(2 * math.pi)
    return quantile_accuracy(m, alpha=alpha, density=density, distance=distance, method=method)


def make_figures(records: Records, options: Options) -> figures.Files:
    """Draw the distance of both thresholds from λ*, and BQ's excess coverage, against m.

    Means over calibration sets at the first level, on logarithmic axes.
    """
    alpha = options.alphas[0]
    truth = population_threshold(alpha)
    rows = [row for row in rows_of(records, AgreementRow) if row.alpha == alpha]

    figure, axes = figures.new_figure(2)
    distance_axis, gap_axis = axes[0]
    for schedule, style in (("0.05", "-"), ("1/m", ":")):
        by_m = group_by((row for row in rows if row.schedule == schedule), key=lambda row: row.m)
        finite = {m: same for m, same in by_m.items() if all(math.isfinite(r.bq) for r in same)}
        distance_axis.loglog(
            list(finite),
            [np.mean([abs(row.bq - truth) for row in same]) for same in finite.values()],
            style,
            color=figures.RED,
            marker=".",
            label=f"BQ, δ = {schedule}",
        )
        gap_axis.loglog(
            list(by_m),
            [np.mean([row.coverage_bq - row.coverage_dco for row in r]) for r in by_m.values()],
            style,
            color=figures.RED,
            marker=".",
            label=f"measured, δ = {schedule}",
        )
        gap_axis.loglog(
            list(by_m),
            [(same[0].rank - same[0].rank_dco) / (m + 1) for m, same in by_m.items()],
            "x",
            color=figures.INK,
            markersize=5,
            label="exact" if schedule == "0.05" else None,
        )

    by_m = group_by(rows, key=lambda row: row.m)
    distance_axis.loglog(
        list(by_m),
        [np.mean([abs(row.dco - truth) for row in same]) for same in by_m.values()],
        color=figures.BLUE,
        marker=".",
        label="DCO",
    )
    distance_axis.set(xlabel="calibration rows m", ylabel="mean |threshold − λ*|")
    gap_axis.set(xlabel="calibration rows m", ylabel="coverage of BQ − coverage of DCO")
    for axis in axes[0]:
        axis.legend(fontsize=7.5, frameon=False)
    return figures.render(figure, "asymptotics")


EXPERIMENTS = (
    Experiment(
        name="asymptotics",
        summary="Thresholds of DCO and BQ against the population's as m grows to a million; the "
        "quantile lemma.",
        needs="nothing",
        minutes=0.6,
        run_split=run_split,
        tables=make_tables,
        figures=make_figures,
        row_kinds=(AgreementRow, LemmaRow),
        alphas=(0.2, 0.1),
        splits=100,
        quick_splits=20,
    ),
)
