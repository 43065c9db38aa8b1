"""The paper's threshold grid on CIFAR-100, and its split ratios on standardised features.

Our tables search thresholds exactly; the paper searches 80 quantiles of each candidate's tuning
scores. With a grid the tuning risk of a candidate lands below the level by another amount for each,
which can change the winner, and nothing else: what is deployed is the same order statistic of the
calibration scores. Heads are those of `classification_splits`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dco.calibration import split_conformal
from dco.datasets import CIFAR100_FEATURES
from dco.foundations.ranks import conformal_rank
from dco.paper.classification import CIFAR100
from dco.paper.classification_splits import (
    PAPER_SIZES,
    PAPER_TRAINING,
    QUICK_SIZES,
    QUICK_TRAINING,
    by_role,
    cifar100_rows,
    cifar100_rows_set_aside,
    deal,
    deployed,
    head_tables,
    ratio_rows,
)
from dco.paper.classification_tables import describe, measured, ratio_beside_table
from dco.paper.coverage_z import coverage_sd, coverage_z, expected_coverage
from dco.paper.experiment import Experiment, Options, Records, needs_file, rows_by
from dco.paper.heads import BY_NAME, FIXED, score_heads, train_heads
from dco.paper.methods import Choice
from dco.paper.paper_values import CIFAR100 as PRINTED
from dco.paper.protocol import THRESHOLDS, winner
from dco.paper.tables import Cell, Measured, ResultTable, standard_errors

VARIANTS: dict[str, int | None] = {"exact thresholds": None, f"{THRESHOLDS} thresholds": THRESHOLDS}


def protocol_split(seed: int, options: Options) -> list[dict[str, Any]]:
    """DCO-Warmstart on raw and standardised features with exact thresholds and with a grid; ratios
    on standardised ones.
    """
    sizes, training = (
        (QUICK_SIZES, QUICK_TRAINING) if options.quick else (PAPER_SIZES, PAPER_TRAINING)
    )
    dealt = deal(CIFAR100.rows(options), sizes, seed=seed, stratified=False)
    found: list[dict[str, Any]] = []
    for features in ("standardised", "raw"):
        tables = head_tables(
            dealt, BY_NAME, standardise=features == "standardised", seed=seed, training=training
        )
        candidates = by_role(tables, sizes.tune, sizes.pool)
        for alpha in options.alphas:
            for variant, grid in VARIANTS.items():
                best = winner(
                    [parts["tune"] for parts in candidates.values()], alpha=alpha, grid=grid
                )
                threshold = split_conformal(candidates[best]["calibrate"].scores, alpha=alpha)
                row = deployed("DCO-Warmstart", Choice(best, threshold, candidates[best]))
                found.append({"features": features, "variant": variant, **row})
            if features == "standardised":
                found += [
                    {"features": features, **row} for row in ratio_rows(tables, sizes, alpha=alpha)
                ]
    return [{**row, "n_test": sizes.test} for row in found]


def grid_table(records: Records, options: Options) -> ResultTable:
    """DCO-Warmstart with exact thresholds and with the paper's grid, beside the paper's row."""
    rows: list[dict[str, Cell]] = []
    for features in ("raw", "standardised"):
        for alpha in options.alphas:
            found, paper = (
                rows_by(records, "variant", features=features, alpha=alpha),
                PRINTED[alpha, "DCO-Warmstart"],
            )
            exact = found["exact thresholds"]
            for variant, own in found.items():
                coverage, size, p95 = measured(own)
                off = standard_errors(coverage, paper[0], len(own))
                rows.append(
                    {
                        "features": features,
                        "target": 1 - alpha,
                        "thresholds": variant,
                        "coverage": coverage,
                        "paper coverage": Measured(*paper[0]),
                        "off": off,
                        "size": size,
                        "paper size": Measured(*paper[1]),
                        "P95": p95,
                        "other winner": sum(
                            a["chosen"] != b["chosen"] for a, b in zip(own, exact, strict=True)
                        ),
                    }
                )
    text = (
        f"DCO-Warmstart, 16 candidates. The grid has {THRESHOLDS} quantiles of each candidate's "
        f"tuning scores. 'Other "
        "winner': splits in which another candidate is chosen than with exact thresholds. 'Off': "
        "our mean coverage less the "
        "paper's, in standard errors of the difference; the paper's sizes are of ResNet-50's "
        "features."
    )
    title = "The paper's protocol to the letter: thresholds on CIFAR-100"
    return ResultTable.of(title, describe(CIFAR100.on(options), records, options) + text, rows)


def protocol_tables(records: Records, options: Options) -> list[ResultTable]:
    """The threshold grid, and the paper's split ratios beside ours on standardised features."""
    ratios = ratio_beside_table(CIFAR100.on(options), records, options, features="standardised")
    return [table for table in (grid_table(records, options), ratios) if table.rows]


def further_splits(seed: int, options: Options) -> list[dict[str, Any]]:
    """One score, trained on rows set aside, calibrated and tested on 20,000 random splits of all
    others (1,000 if quick).

    Coverage then has its Beta-binomial law exactly, and the mean over so many splits sees a
    splitting that favours anyone.
    """
    rng, times = np.random.default_rng([seed, 20_000]), 1_000 if options.quick else 20_000
    aside, rows = cifar100_rows_set_aside(options.data_home), cifar100_rows(options.data_home)
    training = PAPER_TRAINING if not options.quick else QUICK_TRAINING
    X, y = aside.features[: PAPER_SIZES.train], aside.labels[: PAPER_SIZES.train]
    heads = train_heads(X, y, [FIXED.head], standardise=False, seed=seed, training=training)
    table = score_heads(
        heads, [FIXED.name], rows.features, rows.labels, n_classes=int(rows.labels.max()) + 1
    )[FIXED.name]
    scores, n, n_test = table.observed, PAPER_SIZES.calibrate, PAPER_SIZES.test
    ranks = {alpha: conformal_rank(n, alpha=alpha) for alpha in options.alphas}
    covered: dict[float, list[float]] = {alpha: [] for alpha in options.alphas}
    for _ in range(times):
        drawn = scores[rng.choice(len(scores), size=n + n_test, replace=False, shuffle=True)]
        ordered = np.sort(drawn[:n])
        for alpha, rank in ranks.items():
            covered[alpha].append(float(np.mean(drawn[n:] <= ordered[rank - 1])))
    return [
        {
            "alpha": alpha,
            "splits": times,
            "rank": ranks[alpha],
            "n": n,
            "n_test": n_test,
            "coverage": float(np.mean(each)),
            "sd": float(np.std(each, ddof=1)),
            "z": coverage_z(each, rank=ranks[alpha], n=n, n_test=n_test),
        }
        for alpha, each in covered.items()
    ]


def further_table(records: Records, options: Options) -> list[ResultTable]:
    """Mean coverage over all these splits, its law, and z."""
    rows: list[dict[str, Cell]] = [
        {
            "target": 1 - row["alpha"],
            "splits": row["splits"],
            "coverage": row["coverage"],
            "by law": expected_coverage(row["rank"], row["n"]),
            "sd": row["sd"],
            "sd by law": coverage_sd(row["rank"], row["n"], row["n_test"]),
            "deviation": row["z"],
        }
        for row in records[0].rows
    ]
    text = (
        "One head, trained on rows set aside, calibrated on 2,000 and tested on 2,000 of the "
        "12,000 rows that the tables "
        "are made from, split at random again and again. Deviation: mean coverage less its law, "
        "in standard errors."
    )
    return [ResultTable.of("CIFAR-100: further splits against the law of coverage", text, rows)]


EXPERIMENTS = (
    Experiment(
        name="further-splits",
        summary="20,000 further splits of CIFAR-100 with one fixed score, against the law of "
        "coverage.",
        needs=CIFAR100_FEATURES,
        minutes=0.5,
        run_split=further_splits,
        tables=further_table,
        missing=needs_file("CIFAR-100", CIFAR100_FEATURES),
        alphas=(0.2, 0.1, 0.05),
        splits=1,
    ),
    Experiment(
        name="protocol-cifar100",
        summary="CIFAR-100 with the paper's threshold grid, and its split ratios on standardised "
        "features.",
        needs=CIFAR100_FEATURES,
        minutes=12.0,
        run_split=protocol_split,
        tables=protocol_tables,
        missing=needs_file("CIFAR-100", CIFAR100_FEATURES),
        alphas=(0.2, 0.1, 0.05),
        of_images=True,
        quick_splits=2,
    ),
)
