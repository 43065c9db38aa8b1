"""The paper's threshold grid on CIFAR-100, and its split ratios on standardised features.

Our tables search thresholds exactly; the paper searches 80 quantiles of each candidate's tuning scores. With a grid the
tuning risk of a candidate lands below the level by another amount for each, which can change the winner, and nothing else:
what is deployed is the same order statistic of the calibration scores. Heads are those of `classification_splits`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from dco.guarantees.rules import split_conformal
from dco.reproduction.classification import CIFAR100
from dco.reproduction.classification_splits import (
    PAPER_SIZES,
    PAPER_TRAINING,
    QUICK_SIZES,
    QUICK_TRAINING,
    by_role,
    deal,
    deployed,
    head_tables,
    ratio_rows,
)
from dco.reproduction.classification_tables import describe, measured, ratio_beside_table
from dco.reproduction.datasets.images import CIFAR100_FEATURES
from dco.reproduction.experiment import Experiment, Options, Records, needs_file, rows_by
from dco.reproduction.heads import BY_NAME
from dco.reproduction.methods import Choice
from dco.reproduction.paper_values import CIFAR100 as PRINTED
from dco.reproduction.protocol import THRESHOLDS, winner
from dco.reproduction.tables import Cell, Measured, ResultTable, standard_errors

VARIANTS: dict[str, int | None] = {"exact thresholds": None, f"{THRESHOLDS} thresholds": THRESHOLDS}


def protocol_split(seed: int, options: Options) -> list[dict[str, Any]]:
    """DCO-Warmstart on raw and standardised features with exact thresholds and with a grid; ratios on standardised ones."""
    sizes, training = (QUICK_SIZES, QUICK_TRAINING) if options.quick else (PAPER_SIZES, PAPER_TRAINING)
    dealt = deal(CIFAR100.load(options.data_home), sizes, seed=seed, stratified=False)
    found: list[dict[str, Any]] = []
    for features in ("standardised", "raw"):
        tables = head_tables(dealt, BY_NAME, standardise=features == "standardised", seed=seed, training=training)
        candidates = by_role(tables, sizes.tune, sizes.pool)
        for alpha in options.alphas:
            for variant, grid in VARIANTS.items():
                best = winner([parts["tune"] for parts in candidates.values()], alpha=alpha, grid=grid)
                threshold = split_conformal(candidates[best]["calibrate"].scores, alpha=alpha)
                row = deployed("DCO-Warmstart", Choice(best, threshold, candidates[best]))
                found.append({"features": features, "variant": variant, **row})
            if features == "standardised":
                found += [{"features": features, **row} for row in ratio_rows(tables, sizes, alpha=alpha)]
    return [{**row, "n_test": sizes.test} for row in found]


def grid_table(records: Records, options: Options) -> ResultTable:
    """DCO-Warmstart with exact thresholds and with the paper's grid, beside the paper's row."""
    rows: list[dict[str, Cell]] = []
    for features in ("raw", "standardised"):
        for alpha in options.alphas:
            found, paper = rows_by(records, "variant", features=features, alpha=alpha), PRINTED[alpha, "DCO-Warmstart"]
            exact = found["exact thresholds"]
            for variant, own in found.items():
                coverage, size, p95 = measured(own)
                off = standard_errors(coverage, paper[0], len(own))
                rows.append({
                    "features": features, "target": 1 - alpha, "thresholds": variant, "coverage": coverage,
                    "paper coverage": Measured(*paper[0]), "off": off, "size": size,
                    "paper size": Measured(*paper[1]), "P95": p95,
                    "other winner": sum(a["chosen"] != b["chosen"] for a, b in zip(own, exact, strict=True)),
                })  # fmt: skip
    text = (
        f"DCO-Warmstart, 16 candidates. The grid has {THRESHOLDS} quantiles of each candidate's tuning scores. 'Other "
        "winner': splits in which another candidate is chosen than with exact thresholds. 'Off': our mean coverage less the "
        "paper's, in standard errors of the difference; the paper's sizes are of ResNet-50's features."
    )
    title = "The paper's protocol to the letter: thresholds on CIFAR-100"
    return ResultTable.of(title, describe(CIFAR100, records, options) + text, rows)


def protocol_tables(records: Records, options: Options) -> list[ResultTable]:
    """The threshold grid, and the paper's split ratios beside ours on standardised features."""
    made = [grid_table(records, options), partial(ratio_beside_table, features="standardised")(CIFAR100, records, options)]
    return [table for table in made if table.rows]


EXPERIMENTS = (
    Experiment(
        name="protocol-cifar100",
        summary="CIFAR-100 with the paper's threshold grid, and its split ratios on standardised features.",
        needs=CIFAR100_FEATURES,
        minutes=12.0,
        run_split=protocol_split,
        tables=protocol_tables,
        missing=needs_file("CIFAR-100", CIFAR100_FEATURES),
        alphas=(0.2, 0.1, 0.05),
        quick_splits=2,
    ),
)
