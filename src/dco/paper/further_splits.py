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
from dco.paper.classification_splits import (
    LEVELS,
    PAPER_SCALE,
    QUICK_SCALE,
    cifar100_development_rows,
    cifar100_rows,
)
from dco.paper.coverage_z import coverage_sd, expected_coverage
from dco.paper.experiment import Experiment, Options, Records, Row, needs_file, rows_of
from dco.paper.heads import FIXED_CANDIDATE, score_heads, to_scored_rows, train_heads
from dco.paper.tables import Cells, ResultTable, join_sentences

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
    """Calibrate and test one fixed score on many random splits, and sum up coverage at each level.

    All splits of one seed belong to one record: `seed` says which of many sets of splits it is.
    """
    rng = np.random.default_rng([seed, 20_000])
    n_splits = QUICK_SPLITS if options.quick else SPLITS
    n = PAPER_SCALE.sizes.calibrate
    n_test = PAPER_SCALE.sizes.test
    scores = score_rows(seed, options)
    ranks = {alpha: conformal_rank(n, alpha=alpha) for alpha in options.alphas}

    coverages: dict[float, list[float]] = {alpha: [] for alpha in options.alphas}
    for _ in range(n_splits):
        # Draw rows anew, calibrate on the first n of them and test on the others.
        drawn = scores[rng.choice(len(scores), size=n + n_test, replace=False, shuffle=True)]
        calibration_scores = np.sort(drawn[:n])
        test_scores = drawn[n:]
        for alpha, rank in ranks.items():
            threshold = order_statistic(calibration_scores, rank)
            coverages[alpha].append(float(np.mean(test_scores <= threshold)))

    return [
        sum_up(coverages[alpha], alpha=alpha, rank=rank, n=n, n_test=n_test)
        for alpha, rank in ranks.items()
    ]


def sum_up(
    coverages: Sequence[float], *, alpha: float, rank: int, n: int, n_test: int
) -> FurtherRow:
    """Make the row of one level from the coverage on each split."""
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
    """Train a head on CIFAR-100 and return the scores of the true labels of the rows to be split.

    It is the structure that methods without a search take, `FIXED_CANDIDATE`. It is trained on
    development rows, which are never split.
    """
    scale = QUICK_SCALE if options.quick else PAPER_SCALE
    n_train = PAPER_SCALE.sizes.train
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
    tables = score_heads(
        heads, [FIXED_CANDIDATE.name], rows.features, rows.labels, n_classes=n_classes
    )
    return to_scored_rows(tables[FIXED_CANDIDATE.name]).scores


def make_tables(records: Records, options: Options) -> list[ResultTable]:
    """Show the mean and spread of coverage over all these splits, beside what the law says."""
    rows: list[Cells] = [
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
    caption = join_sentences(
        "One head, trained on rows set aside, calibrated on 2,000 and tested on 2,000 of the "
        "12,000 rows that the tables are made from, split at random again and again.",
        "Deviation: mean coverage less its law, in standard errors.",
    )
    title = "CIFAR-100: further splits against the law of coverage"
    return [ResultTable.of(title, caption, rows)]


EXPERIMENTS = (
    Experiment(
        name="further-splits",
        summary="20,000 further splits of CIFAR-100 with one fixed score, against the law of "
        "coverage.",
        needs=CIFAR100_FEATURES,
        minutes=0.5,
        run_split=run_split,
        tables=make_tables,
        row_kinds=(FurtherRow,),
        missing=needs_file("CIFAR-100", CIFAR100_FEATURES),
        alphas=LEVELS,
        splits=1,
    ),
)
