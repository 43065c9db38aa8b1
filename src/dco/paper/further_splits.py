"""Theorem 3.1 on CIFAR-100: one fixed score on 20,000 random splits, against the law of coverage.

The score is trained on other rows than those that are split. Coverage then has its Beta-binomial
law exactly, and the mean over so many splits would show a split that is not fair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dco import conformal_rank
from dco.datasets import CIFAR100_FEATURES
from dco.foundations.arrays import Floats
from dco.foundations.ranks import order_statistic
from dco.paper import paper_findings
from dco.paper.classification_splits import (
    LEVELS,
    PAPER_SCALE,
    QUICK_SCALE,
    cifar100_development_rows,
    cifar100_rows,
)
from dco.paper.coverage_z import coverage_sd, expected_coverage
from dco.paper.experiment import Experiment, Options, Row, SplitRecords, needs_file, rows_of
from dco.paper.heads import FIXED_CANDIDATE, score_heads, to_scored_rows, train_heads
from dco.paper.tables import ResultTable, TableRow, join_sentences

SPLITS = 20_000
QUICK_SPLITS = 1_000


@dataclass(frozen=True)
class FurtherRow(Row):
    """Mean and standard deviation of coverage over all the splits, at one level.

    The threshold is the `rank`-th smallest of `n` calibration scores, and coverage is measured on
    `n_test` rows. `z` is the mean less its expectation by law, in standard errors; None where the
    threshold is infinite.
    """

    alpha: float
    splits: int
    rank: int
    n: int
    n_test: int
    coverage: float
    sd: float
    z: float | None = None


def run_split(seed: int, options: Options) -> list[Row]:
    """Measure the test coverage of one fixed score on thousands of random splits, at each level.

    On each split the rows are dealt anew: some calibrate, the others test. All splits of one seed
    belong to one record; the row of a level sums them up.
    """
    rng = np.random.default_rng([seed, 20_000])
    n_splits = QUICK_SPLITS if options.quick else SPLITS
    n_calibrate = PAPER_SCALE.role_sizes.calibrate
    n_test = PAPER_SCALE.role_sizes.test
    scores = score_rows(seed, options)
    ranks = {alpha: conformal_rank(n_calibrate, alpha=alpha) for alpha in options.alphas}

    coverages: dict[float, list[float]] = {alpha: [] for alpha in options.alphas}
    for _ in range(n_splits):
        positions = rng.choice(len(scores), size=n_calibrate + n_test, replace=False, shuffle=True)
        calibration_scores = np.sort(scores[positions[:n_calibrate]])
        test_scores = scores[positions[n_calibrate:]]
        for alpha, rank in ranks.items():
            threshold = order_statistic(calibration_scores, rank)
            coverages[alpha].append(float(np.mean(test_scores <= threshold)))

    return [
        sum_up(coverages[alpha], alpha=alpha, rank=rank, n=n_calibrate, n_test=n_test)
        for alpha, rank in ranks.items()
    ]


def sum_up(
    coverages: Sequence[float], *, alpha: float, rank: int, n: int, n_test: int
) -> FurtherRow:
    """Make the record row of one level: mean and spread of the coverage over splits.

    `coverages` has the test coverage of each split, where the threshold is the `rank`-th smallest
    of `n` calibration scores and `n_test` rows test it. z says by how many standard errors the mean
    is off the one that theory expects.
    """
    n_splits = len(coverages)
    mean = float(np.mean(coverages))
    difference = mean - expected_coverage(rank, n)
    standard_error = coverage_sd(rank, n, n_test) / math.sqrt(n_splits)
    return FurtherRow(
        alpha=alpha,
        splits=n_splits,
        rank=rank,
        n=n,
        n_test=n_test,
        coverage=mean,
        sd=float(np.std(coverages, ddof=1)),
        z=difference / standard_error if standard_error > 0 else None,
    )


def score_rows(seed: int, options: Options) -> Floats:
    """Train a classifier on CIFAR-100 and score the true labels of the rows that are to be split.

    It is trained on development rows, which are never split, so that its score is fixed before any
    split is drawn. It is the paper's candidate for methods that search nothing, `FIXED_CANDIDATE`:
    a small network (a "head") on image features, with a score.
    """
    scale = QUICK_SCALE if options.quick else PAPER_SCALE
    n_train = PAPER_SCALE.role_sizes.train
    development = cifar100_development_rows(options.data_home)
    heads = train_heads(
        development.features[:n_train],
        development.labels[:n_train],
        [FIXED_CANDIDATE.head_number],
        standardise=False,
        seed=seed,
        training=scale.training,
    )

    rows = cifar100_rows(options.data_home)
    n_classes = int(rows.labels.max()) + 1
    score_tables = score_heads(
        heads, [FIXED_CANDIDATE.name], rows.features, rows.labels, n_classes=n_classes
    )
    return to_scored_rows(score_tables[FIXED_CANDIDATE.name]).scores


def make_tables(records: SplitRecords, options: Options) -> list[ResultTable]:
    """Make the table of coverage over thousands of splits of CIFAR-100, beside what theory expects.

    Theory gives the mean, rank / (n + 1), and the standard deviation ("by law"). There is a row for
    each level.
    """
    rows: list[TableRow] = [
        {
            "target": 1 - row.alpha,
            "splits": row.splits,
            "coverage": row.coverage,
            "by law": expected_coverage(row.rank, row.n),
            "sd": row.sd,
            "sd by law": coverage_sd(row.rank, row.n, row.n_test),
            "deviation": row.z,
        }
        for row in rows_of(records, FurtherRow)
    ]
    what_was_done = (
        "One head, trained on rows set aside, calibrated on 2,000 and tested on 2,000 of the "
        "12,000 rows that the tables are made from, split at random again and again."
    )
    caption = join_sentences(
        what_was_done, "Deviation: mean coverage less its law, in standard errors."
    )
    title = "CIFAR-100: further splits against the law of coverage"
    return [ResultTable.of(title, caption, rows)]


EXPERIMENTS = (
    Experiment(
        name="further-splits",
        summary="20,000 further splits of CIFAR-100 with one fixed score, against the law of "
        "coverage.",
        needs=CIFAR100_FEATURES,
        minutes=0.1,
        run_split=run_split,
        tables=make_tables,
        row_kinds=(FurtherRow,),
        missing=needs_file("CIFAR-100", CIFAR100_FEATURES),
        alphas=LEVELS,
        splits=1,
        findings=paper_findings.FURTHER_SPLITS,
    ),
)
