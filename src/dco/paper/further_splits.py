"""Theorem 3.1 on CIFAR-100: one fixed score on 20,000 random splits, against the law of coverage.

The score is trained on rows set aside. Coverage then has its Beta-binomial law exactly, and the
mean over so many splits sees a splitting that favours anyone.
"""

from __future__ import annotations

import math
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
from dco.paper.tables import Cells, ResultTable

SPLITS = 20_000
QUICK_SPLITS = 1_000


@dataclass(frozen=True)
class FurtherRow(Row):
    """Mean and standard deviation of coverage over the splits at one level.

    `z` is the mean less its law, in standard errors of the law; None with an infinite threshold.
    """

    alpha: float
    splits: int
    rank: int
    n: int
    n_test: int
    coverage: float
    sd: float
    z: float | None = None


def run(seed: int, options: Options) -> list[Row]:
    """Calibrate and test one head on many splits of the rows that the tables are made from."""
    rng = np.random.default_rng([seed, 20_000])
    n_splits = QUICK_SPLITS if options.quick else SPLITS
    scores = score_rows(seed, options)
    n = PAPER_SCALE.sizes.calibrate
    n_test = PAPER_SCALE.sizes.test
    ranks = {alpha: conformal_rank(n, alpha=alpha) for alpha in options.alphas}

    coverages: dict[float, list[float]] = {alpha: [] for alpha in options.alphas}
    for _ in range(n_splits):
        drawn = scores[rng.choice(len(scores), size=n + n_test, replace=False, shuffle=True)]
        calibration_scores = np.sort(drawn[:n])
        test_scores = drawn[n:]
        for alpha, rank in ranks.items():
            threshold = order_statistic(calibration_scores, rank)
            coverages[alpha].append(float(np.mean(test_scores <= threshold)))

    rows: list[Row] = []
    for alpha, rank in ranks.items():
        mean = float(np.mean(coverages[alpha]))
        standard_error = coverage_sd(rank, n, n_test) / math.sqrt(n_splits)
        excess = mean - expected_coverage(rank, n)
        rows.append(
            FurtherRow(
                alpha=alpha,
                splits=n_splits,
                rank=rank,
                n=n,
                n_test=n_test,
                coverage=mean,
                sd=float(np.std(coverages[alpha], ddof=1)),
                z=excess / standard_error if standard_error > 0 else None,
            )
        )
    return rows


def score_rows(seed: int, options: Options) -> Floats:
    """Train the fixed structure on rows set aside, and score the rows of the splits."""
    aside = cifar100_development_rows(options.data_home)
    n_train = PAPER_SCALE.sizes.train
    heads = train_heads(
        aside.features[:n_train],
        aside.labels[:n_train],
        [FIXED_CANDIDATE.head_number],
        standardise=False,
        seed=seed,
        training=(QUICK_SCALE if options.quick else PAPER_SCALE).training,
    )
    rows = cifar100_rows(options.data_home)
    tables = score_heads(
        heads,
        [FIXED_CANDIDATE.name],
        rows.features,
        rows.labels,
        n_classes=int(rows.labels.max()) + 1,
    )
    return to_scored_rows(tables[FIXED_CANDIDATE.name]).scores


def make_tables(records: Records, options: Options) -> list[ResultTable]:
    """Show mean coverage over all these splits, its law, and z."""
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
    return [
        ResultTable.of(
            "CIFAR-100: further splits against the law of coverage",
            "One head, trained on rows set aside, calibrated on 2,000 and tested on 2,000 of the "
            "12,000 rows that the tables are made from, split at random again and again. "
            "Deviation: mean coverage less its law, in standard errors.",
            rows,
        )
    ]


EXPERIMENTS = (
    Experiment(
        name="further-splits",
        summary="20,000 further splits of CIFAR-100 with one fixed score, against the law of "
        "coverage.",
        needs=CIFAR100_FEATURES,
        minutes=0.5,
        run_split=run,
        tables=make_tables,
        row_kinds=(FurtherRow,),
        missing=needs_file("CIFAR-100", CIFAR100_FEATURES),
        alphas=LEVELS,
        splits=1,
    ),
)
