"""Table 8, California Housing: how much depends on which 3,000 districts are drawn.

The paper draws 3,000 of 20,640 districts once, without saying which, and splits them 50 times. Our
main table does so with one fixed draw. Here many draws are split, so that the part of the variation
that comes from the draw is seen, which no number of splits of one draw can show. BQ and
DCO-Warmstart have exact interval ends, and ends on the paper's grid of 300 responses.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import fdtrc

import dco
from dco import Splits
from dco.datasets import Table, load_california_housing
from dco.foundations.arrays import Floats
from dco.paper import paper_findings
from dco.paper.coverage_z import target_coverage
from dco.paper.experiment import (
    Experiment,
    Options,
    Row,
    SplitRecords,
    group_by,
    needs_file,
    rows_of,
)
from dco.paper.methods import METHODS, OnRoles, Task
from dco.paper.paper_values import CALIFORNIA, NOT_IN_PAPER
from dco.paper.protocol import (
    OURS,
    RESPONSE_GRID,
    OnResponseGrid,
    StudySplit,
    measure_choice,
    response_grid,
)
from dco.paper.regression_splits import (
    CHAINS,
    DENSITY,
    PRIOR_SCALES,
    STUDIES,
    SUBSAMPLE,
    WARMUP,
    WIDE_PRIOR,
    name_by_prior,
    paper_split,
)
from dco.paper.tables import PAPER_SPLITS, Measured, ResultTable, TableRow, join_sentences
from dco.scores import Score

STUDY = STUDIES["california"]
SUBSAMPLES = 20
SPLITS_OF_EACH = 10
QUICK_SPLITS_OF_EACH = 2
ENDS = {OURS.name: "exact", RESPONSE_GRID.name: "response grid"}
METHODS_SHOWN = {"BQ": METHODS["bq"], "DCO-Warmstart": METHODS["dco_warmstart"]}


@dataclass(frozen=True)
class SubsampleRow(Row):
    """What a method did on one split of one subsample, with one kind of interval ends."""

    alpha: float
    method: str
    ends: str
    split: int
    chosen: str
    coverage: float
    width: float


# ---- one subsample


def run_subsample(seed: int, options: Options) -> list[Row]:
    """Draw 3,000 districts, and run BQ and DCO-Warmstart on several splits of them.

    Each seed draws other districts. Splits have seeds that no other experiment uses.
    """
    full = load_california_housing(options.data_home)
    drawn = np.random.default_rng([seed, SUBSAMPLE]).permutation(len(full))[:SUBSAMPLE]
    table = Table(full.X[drawn], full.y[drawn], full.feature_names, full.name)

    n_splits = QUICK_SPLITS_OF_EACH if options.quick else SPLITS_OF_EACH
    rows: list[Row] = []
    for number in range(n_splits):
        split_seed = 100_000 + 100 * seed + number
        rows += run_split(table, split_seed, number=number, alphas=options.alphas)
    return rows


def run_split(
    table: Table, seed: int, *, number: int, alphas: Sequence[float]
) -> list[SubsampleRow]:
    """Run both methods with both kinds of ends on one split of a subsample, at every level.

    `number` is that of the split within its subsample.
    """
    splits = paper_split(len(table), seed)
    models = {"gibbs": fit_on_train(table, splits, seed=seed)}
    split = StudySplit(STUDY, table, splits, models)

    # A grid changes the ends of intervals alone: true values are scored once for both.
    exact = split.score_candidates("gibbs", DENSITY)
    grid_score = OnResponseGrid(response_grid(STUDY, table.y[splits.train]))
    on_grid = {name: with_score(on_roles, grid_score) for name, on_roles in exact.items()}
    candidates_of = {OURS: exact, RESPONSE_GRID: on_grid}

    rows: list[SubsampleRow] = []
    for alpha in alphas:
        for variant, candidates in candidates_of.items():
            task = Task(candidates, y_tune=table.y[splits.tune], fixed=WIDE_PRIOR, alpha=alpha)
            for title, method in METHODS_SHOWN.items():
                outcome = measure_choice(
                    split, method(task), alpha=alpha, variant=variant, method=title
                )
                rows.append(
                    SubsampleRow(
                        alpha=alpha,
                        method=title,
                        ends=ENDS[variant.name],
                        split=number,
                        chosen=outcome.chosen,
                        coverage=outcome.coverage,
                        width=outcome.width,
                    )
                )
    return rows


def with_score(on_roles: OnRoles, score: Score) -> OnRoles:
    """Give a candidate another score that gives true values the same score, and other sets."""
    test = on_roles.test
    return OnRoles(
        tune=replace(on_roles.tune, score=score),
        calibrate=replace(on_roles.calibrate, score=score),
        pool=replace(on_roles.pool, score=score),
        test=None if test is None else replace(test, score=score),
    )


def fit_on_train(
    table: Table, splits: Splits, *, seed: int
) -> dict[str, dco.bayes.SparseBayesianRegression]:
    """Fit the paper's model on the training rows, at both prior scales."""
    from sklearn.exceptions import ConvergenceWarning

    train = (table.X[splits.train], table.y[splits.train])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        (models,) = dco.bayes.SparseBayesianRegression.fit_many(
            [train],
            PRIOR_SCALES,
            draws=STUDY.draws,
            chains=CHAINS,
            warmup=WARMUP,
            random_state=seed,
        )
    return name_by_prior(models)


# ---- the tables


@dataclass(frozen=True)
class Spread:
    """A result over splits of several subsamples: its mean, and what its variation comes from.

    Attributes
    ----------
    mean
        The mean over all splits of all subsamples.
    sd_of_means
        The standard deviation of the means of the subsamples, which holds both parts.
    over_splits
        The standard deviation over the splits of one subsample.
    over_subsamples
        The standard deviation over subsamples of the mean over endlessly many splits. Zero where
        the means of the subsamples vary no more than their splits explain.
    """

    mean: float
    sd_of_means: float
    over_splits: float
    over_subsamples: float
    n_subsamples: int

    @classmethod
    def of(cls, values: Floats) -> Spread:
        """Take the variation apart; `values` is (subsamples, splits)."""
        n_subsamples, n_splits = values.shape
        means = values.mean(axis=1)
        variance_of_means = float(means.var(ddof=1))
        variance_over_splits = float(values.var(axis=1, ddof=1).mean())
        variance_over_subsamples = variance_of_means - variance_over_splits / n_splits
        return cls(
            mean=float(means.mean()),
            sd_of_means=math.sqrt(variance_of_means),
            over_splits=math.sqrt(variance_over_splits),
            over_subsamples=math.sqrt(max(0.0, variance_over_subsamples)),
            n_subsamples=n_subsamples,
        )

    def error_of_difference(self, paper: Measured) -> float:
        """Return the standard error of our mean less the paper's, which is of one subsample."""
        variance_of_ours = self.sd_of_means**2 / self.n_subsamples
        variance_of_paper = self.over_subsamples**2 + paper.sd**2 / PAPER_SPLITS
        return math.sqrt(variance_of_ours + variance_of_paper)


def values_of(rows: Sequence[SubsampleRow], name: str, n_subsamples: int) -> Floats:
    """Return a field of the rows as (subsamples, splits); rows are in order of subsample."""
    values = np.array([getattr(row, name) for row in rows], dtype=np.float64)
    return values.reshape(n_subsamples, -1)


def make_tables(records: SplitRecords, options: Options) -> list[ResultTable]:
    """Make the table of coverage and width over subsamples, and that of all levels together.

    Each of `records` has the splits of one subsample.
    """
    outcomes_of = group_by(
        rows_of(records, SubsampleRow), key=lambda row: (row.alpha, row.method, row.ends)
    )
    rows = [
        describe_rows(outcomes, alpha, method, ends, n_subsamples=len(records))
        for (alpha, method, ends), outcomes in outcomes_of.items()
    ]
    n_splits = len(next(iter(outcomes_of.values()))) // len(records)
    caption = join_sentences(
        f"{len(records)} subsamples of {SUBSAMPLE} districts, {n_splits} splits of each.",
        "'Over splits': standard deviation of the width over splits of one subsample; 'over "
        "subsamples': of its mean over endlessly many splits, from one subsample to the next.",
        "'Standard error' of our mean width less the paper's, which is of one subsample whose rows "
        "are not known: it includes the deviation over subsamples. 'Off' and 'width off': the "
        "differences in such standard errors.",
    )
    tables = [ResultTable.of("California Housing: subsamples", caption, rows)]

    joint_rows = compare_all_levels(outcomes_of, options, n_subsamples=len(records))
    if joint_rows:
        tables.append(
            ResultTable.of(
                "California Housing: subsamples, all levels together",
                "The paper's mean widths at all its levels against ours. T² is the squared "
                "difference in the metric of its covariance, which includes the subsamples; p by "
                "F(levels, subsamples - levels), since the covariance is estimated.",
                joint_rows,
            )
        )
    return tables


def describe_rows(
    outcomes: Sequence[SubsampleRow], alpha: float, method: str, ends: str, *, n_subsamples: int
) -> TableRow:
    """Make the row of a method with one kind of ends at one level, beside the paper's result."""
    coverage = Spread.of(values_of(outcomes, "coverage", n_subsamples))
    width = Spread.of(values_of(outcomes, "width", n_subsamples))
    paper = CALIFORNIA.get((alpha, method), NOT_IN_PAPER)

    off: float | None = None
    width_error: float | None = None
    width_off: float | None = None
    if paper.coverage is not None and paper.size is not None:
        off = (coverage.mean - paper.coverage.mean) / coverage.error_of_difference(paper.coverage)
        width_error = width.error_of_difference(paper.size)
        width_off = (width.mean - paper.size.mean) / width_error
    return {
        "target": target_coverage(alpha),
        "method": method,
        "ends": ends,
        "coverage": coverage.mean,
        "paper coverage": paper.coverage,
        "off": off,
        "width": width.mean,
        "over splits": width.over_splits,
        "over subsamples": width.over_subsamples,
        "paper width": paper.size,
        "standard error": width_error,
        "width off": width_off,
    }


def compare_all_levels(
    outcomes_of: Mapping[tuple[float, str, str], Sequence[SubsampleRow]],
    options: Options,
    *,
    n_subsamples: int,
) -> list[TableRow]:
    """Compare the widths of each method and kind of ends with the paper's at all levels at once.

    Without enough subsamples to estimate the covariance of the levels the list is empty.
    """
    alphas = [alpha for alpha in options.alphas if (alpha, "BQ") in CALIFORNIA]
    if not alphas or n_subsamples <= len(alphas) + 1:
        return []

    rows: list[TableRow] = []
    for method in METHODS_SHOWN:
        papers = [CALIFORNIA[alpha, method].size for alpha in alphas]
        paper_means = np.array([paper.mean for paper in papers if paper is not None])
        for ends in ENDS.values():
            widths = np.stack(
                [
                    values_of(outcomes_of[alpha, method, ends], "width", n_subsamples)
                    for alpha in alphas
                ],
                axis=-1,
            )
            comparison = compare_means(widths, paper_means)
            rows.append(
                {
                    "method": method,
                    "ends": ends,
                    "levels": len(alphas),
                    "T²": comparison.t_squared,
                    "p": comparison.p_value,
                }
            )
    return rows


class JointComparison(NamedTuple):
    """Hotelling's T² of several means against those of one subsample, and its p-value."""

    t_squared: float
    p_value: float


def compare_means(values: Floats, other_means: Floats) -> JointComparison:
    """Compare means over many subsamples with means over 50 splits of one other subsample.

    `values` is (subsamples, splits, quantities). With S subsamples of J splits, C the covariance of
    the means of subsamples and W that within subsamples, the difference has covariance

        C / S + (C - W / J) + W / 50
    """
    n_subsamples, n_splits, n_quantities = values.shape
    means = values.mean(axis=1)
    covariance_of_means = np.cov(means, rowvar=False)
    within = np.mean([np.cov(of_subsample, rowvar=False) for of_subsample in values], axis=0)
    between = covariance_of_means - within / n_splits
    covariance = covariance_of_means / n_subsamples + between + within / PAPER_SPLITS

    difference = means.mean(axis=0) - other_means
    t_squared = float(difference @ np.linalg.solve(np.atleast_2d(covariance), difference))

    degrees = n_subsamples - 1
    rest = degrees - n_quantities + 1
    p_value = float(fdtrc(n_quantities, rest, t_squared * rest / (degrees * n_quantities)))
    return JointComparison(t_squared=t_squared, p_value=p_value)


EXPERIMENTS = (
    Experiment(
        name="california-subsamples",
        summary="California Housing on 20 subsamples of 3,000 rows: how much depends on which "
        "rows are drawn.",
        needs="california_housing.csv.gz",
        minutes=28.9,
        run_split=run_subsample,
        tables=make_tables,
        row_kinds=(SubsampleRow,),
        missing=needs_file("california-subsamples", "california_housing.csv.gz"),
        alphas=(0.2, 0.1, 0.05),
        splits=SUBSAMPLES,
        quick_splits=3,
        findings=paper_findings.CALIFORNIA_SUBSAMPLES,
    ),
)
