"""One split of the paper's classification experiments: every method on heads trained once, and the stronger class.

Protocol: 2,000 rows train, 1,000 tune, 2,000 calibrate, 2,000 test; 8 Monte-Carlo-dropout heads × 2 scores; BQ takes the
fixed structure φ₀ (posterior_nll, dropout 0.05, hidden (512, 256)) and calibrates on the pool of tune and calibrate rows.
The paper does not say whether features were standardised: both are run. One record a split serves every table, so that no
head is trained twice.

Of CIFAR-100's 20,000 rows of features 12,000, one fixed random choice, are dealt into splits; the other 8,000 are set aside
for choosing the stronger class.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dco.foundations.arrays import Integers
from dco.foundations.ranks import Guarantee, Threshold, as_rational
from dco.guarantees.rules import bayesian_quadrature, split_conformal
from dco.guarantees.rules.bq_confidence import bq_confidence
from dco.reproduction.beyond_classification import FIXED as STRONG_FIXED
from dco.reproduction.beyond_classification import strong_tables
from dco.reproduction.datasets.images import (
    ImageFeatures,
    extract_features,
    load_cifar100_features,
    open_images,
    resnet50,
)
from dco.reproduction.experiment import Options
from dco.reproduction.heads import CANDIDATES, FIXED, HeadCandidate, ScoreTable, Training, score_heads, train_heads
from dco.reproduction.heads import HEADS as ALL_HEADS
from dco.rows.roles import RowOrder, random_order
from dco.tuning.allocation import GrowthStep, grow_until_settled
from dco.tuning.direct_tune import tuning_threshold
from dco.tuning.search import rank_evaluated
from dco.tuning.stability import bootstrap_evaluated

LEVELS = (0.2, 0.1, 0.05)
DELTA = 0.05
DRAWS = 1000  # the paper's Dirichlet draws
RATIOS = {"20/80": 0.2, "33/67": 1 / 3, "50/50": 0.5, "67/33": 2 / 3, "80/20": 0.8}
SET_ASIDE = 8000
IMAGENET_A_CLASSES = 198
NEEDS_IMAGENET_A = (
    "ImageNet-A needs its images, as a folder imagenet-a (one folder a class) or imagenet-a.tar, in the folder that "
    "--data-home or DCO_DATA_HOME names; ResNet-50 features are then made once (extra `images`) and kept beside them."
)
AUTO = "Stronger class, searched, refit, auto split"
SETTLED = 0.01  # the regret, relative to the size, at which selection has settled
REPETITIONS = 100
FIRST_LOOK, LEAST_CALIBRATION = 12, 3  # tuning starts with a 12th of the pool, calibration keeps a third at least
DIGITS = 7  # significant digits of measured numbers in a record: more than any table shows, and half the file

Key = TypeVar("Key")


@dataclass(frozen=True)
class Sizes:
    """Rows of each role."""

    train: int = 2000
    tune: int = 1000
    calibrate: int = 2000
    test: int = 2000

    @property
    def pool(self) -> int:
        """Tune and calibrate together."""
        return self.tune + self.calibrate


PAPER_SIZES, QUICK_SIZES = Sizes(), Sizes(500, 250, 500, 500)
PAPER_TRAINING, QUICK_TRAINING = Training(), Training(epochs=10, passes=5)


@dataclass(frozen=True)
class Study:
    """A data set of features with class labels, and how it is dealt into splits."""

    name: str
    title: str
    features: str  # the sentence that every caption carries
    load: Callable[[str | None], ImageFeatures]
    stratified: bool = False
    beyond: bool = False


# ---- data ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def cifar100_rows(data_home: str | None) -> ImageFeatures:
    """The rows that splits are dealt from: all but those set aside."""
    full = load_cifar100_features(data_home)
    chosen = cifar100_order(len(full))[: len(full) - SET_ASIDE]
    return ImageFeatures(full.features[chosen], full.labels[chosen])


def cifar100_rows_set_aside(data_home: str | None) -> ImageFeatures:
    """The 8,000 rows on which the stronger class was chosen."""
    full = load_cifar100_features(data_home)
    chosen = cifar100_order(len(full))[len(full) - SET_ASIDE :]
    return ImageFeatures(full.features[chosen], full.labels[chosen])


def cifar100_order(n: int) -> Any:
    """A fixed random order of all rows."""
    return np.random.default_rng(12345).permutation(n)


@lru_cache(maxsize=1)
def imagenet_a_rows(data_home: str | None) -> ImageFeatures:
    """ResNet-50 features of ImageNet-A, made once and kept beside the images; the 198 classes with most images."""
    images = find_imagenet_a(data_home)
    if images is None:
        raise FileNotFoundError(NEEDS_IMAGENET_A)
    cache = images.parent / "imagenet-a-resnet50-features"
    return largest_classes(extract_features(open_images(images), resnet50(), cache=cache, name="resnet50"))


def largest_classes(rows: ImageFeatures, n_classes: int = IMAGENET_A_CLASSES) -> ImageFeatures:
    """Rows of the `n_classes` classes with most rows, ties by class number, renumbered from 0.

    The paper says "a filtered subset (198 classes)" and not which; the two smallest of the 200 are the natural ones to go.
    """
    counts = np.bincount(rows.labels)
    kept = np.sort(np.argsort(-counts, kind="stable")[:n_classes])
    inside = np.isin(rows.labels, kept)
    return ImageFeatures(rows.features[inside], np.searchsorted(kept, rows.labels[inside]))


def find_imagenet_a(data_home: str | None) -> Path | None:
    """The folder or archive of ImageNet-A's images, if it is there."""
    home = data_home or os.environ.get("DCO_DATA_HOME")
    if not home:
        return None
    names = ("imagenet-a", "imagenet-a.tar", "imagenet-a.tar.gz", "imagenet-a.zip")
    return next((Path(home) / name for name in names if (Path(home) / name).exists()), None)


def deal(data: ImageFeatures, sizes: Sizes, *, seed: int, stratified: bool) -> RowOrder:
    """The rows of one split in order: train, tune, calibrate, test; rows that no role asks for come last."""
    used = sizes.train + sizes.pool + sizes.test
    if len(data) < used:
        raise ValueError(f"a split takes {used} rows, but there are {len(data)}.")
    return random_order(len(data), stratify=data.labels if stratified else None, seed=seed)


# ---- one split -------------------------------------------------------------------------------------------------------

# What each row claims, and whether its threshold is an order statistic of scores exchangeable with the test scores, so that
# coverage has the Beta-binomial law of its rank.
CLAIMS: Mapping[str, tuple[Guarantee, bool]] = {
    "BQ": ("pac", True),
    "DCO-PAC": ("pac", True),
    "Matched-Φ BQ, δ/16": ("pac", False),
    "Split CP, φ fixed, whole pool": ("marginal", True),
    "DCO-Warmstart": ("marginal", True),
    "DCO, φ fixed": ("marginal", True),
    "DCO, refit": ("marginal", True),
    "DirectTune, fixed φ": ("none", True),
    "DirectTune, searched Φ": ("none", False),
    "Matched-Φ BQ, δ uncorrected": ("none", False),
    "DCO's structure, BQ on the pool": ("none", False),
    "EFCP (tuned and calibrated on the pool)": ("none", False),
    "Stronger class, one structure": ("marginal", True),
    "Stronger class, searched": ("marginal", True),
    "Stronger class, one structure, refit": ("marginal", True),
    "Stronger class, searched, refit": ("marginal", True),
    AUTO: ("marginal", True),
}


def run_split(seed: int, options: Options, *, study: Study) -> list[dict[str, Any]]:
    """Every method on one split at every level: heads on raw and on standardised features, then the stronger class."""
    data = study.load(options.data_home)
    sizes, training = (QUICK_SIZES, QUICK_TRAINING) if options.quick else (PAPER_SIZES, PAPER_TRAINING)
    order = deal(data, sizes, seed=seed, stratified=study.stratified)
    rows: list[dict[str, Any]] = []
    for standardise in (False, True):
        measured = head_rows(
            data,
            order,
            sizes,
            training,
            alphas=options.alphas,
            standardise=standardise,
            seed=seed,
            with_ratios=not standardise,
        )
        rows += [{"features": "standardised" if standardise else "raw", **row} for row in measured]
    if study.beyond:
        rows += [{"features": "square roots", **row} for row in strong_rows(data, order, sizes, alphas=options.alphas)]
    return [_short({**row, "n_test": sizes.test}) for row in rows]


def head_rows(
    data: ImageFeatures,
    order: RowOrder,
    sizes: Sizes,
    training: Training,
    *,
    alphas: Sequence[float],
    standardise: bool,
    seed: int,
    with_ratios: bool,
) -> list[dict[str, Any]]:
    """Train the 8 heads once; then every method, the candidates of each level, and the split ratios."""
    X, y, k = data.features, data.labels, int(data.labels.max()) + 1
    train, pool = order.first(sizes.train), order.between(sizes.train, sizes.train + sizes.pool)
    test = order.between(sizes.train + sizes.pool, sizes.train + sizes.pool + sizes.test)
    later = np.concatenate([pool, test])
    heads = train_heads(X[train], y[train], range(len(ALL_HEADS)), standardise=standardise, seed=seed, training=training)
    tables = score_heads(heads, CANDIDATES, X[later], y[later], n_classes=k)
    roles = {candidate: Roles.of(table, sizes.tune, sizes.pool) for candidate, table in tables.items()}
    winners = {alpha: choose({each: part.tune for each, part in roles.items()}, alpha=alpha) for alpha in alphas}
    refits = refitted(
        data, train, pool[: sizes.tune], np.concatenate([pool[sizes.tune :], test]), set(winners.values()),
        standardise=standardise, seed=seed, training=training, calibrate=sizes.calibrate,
    )  # fmt: skip
    rows: list[dict[str, Any]] = []
    for alpha in alphas:
        rows += method_rows(roles, winners[alpha], refits[winners[alpha]], alpha=alpha, seed=seed)
        rows.append(candidate_row(roles, alpha=alpha))
        if with_ratios:
            rows += ratio_rows(tables, sizes, alpha=alpha)
    return rows


@dataclass(frozen=True, eq=False)
class Roles:
    """One candidate's score table by role."""

    tune: ScoreTable
    calibrate: ScoreTable
    pool: ScoreTable
    test: ScoreTable

    @classmethod
    def of(cls, table: ScoreTable, tune: int, pool: int) -> Roles:
        """Rows in order: tune, calibrate, test."""
        return cls(table.rows(0, tune), table.rows(tune, pool), table.rows(0, pool), table.rows(pool, len(table)))


def choose(tables: Mapping[Key, ScoreTable], *, alpha: float) -> Key:
    """The smallest mean size at empirical risk <= alpha, by the library's search."""
    names = {str(place): key for place, key in enumerate(tables)}
    ranking = rank_evaluated([tables[key].evaluated(name) for name, key in names.items()], alpha=alpha)
    return names[ranking.best]


def refitted(
    data: ImageFeatures,
    train: Any,
    tune: Any,
    later: Any,
    winners: set[HeadCandidate],
    *,
    standardise: bool,
    seed: int,
    training: Training,
    calibrate: int,
) -> dict[HeadCandidate, Roles]:
    """The winning heads trained again on train and tune rows, scored on calibrate and test rows."""
    both, k = np.concatenate([train, tune]), int(data.labels.max()) + 1
    numbers = sorted({winner.head for winner in winners})
    heads = train_heads(
        data.features[both], data.labels[both], numbers, standardise=standardise, seed=seed + 500_000, training=training
    )
    tables = score_heads(heads, winners, data.features[later], data.labels[later], n_classes=k)
    return {winner: Roles.of(table, 0, calibrate) for winner, table in tables.items()}


def method_rows(
    roles: Mapping[HeadCandidate, Roles], best: HeadCandidate, refit: Roles, *, alpha: float, seed: int
) -> list[dict[str, Any]]:
    """Every method at one level from the same score tables."""
    fixed, winner = roles[FIXED], roles[best]
    share = as_rational(DELTA, name="delta") / Fraction(len(roles))
    pooled = {each: split_conformal(part.pool.observed, alpha=alpha) for each, part in roles.items()}
    quadrature = {each: bayesian_quadrature(part.pool.observed, alpha=alpha, delta=DELTA) for each, part in roles.items()}
    corrected = {each: bayesian_quadrature(part.pool.observed, alpha=alpha, delta=share) for each, part in roles.items()}

    def smallest(thresholds: Mapping[HeadCandidate, Threshold]) -> HeadCandidate:
        return min(thresholds, key=lambda each: float(roles[each].pool.sizes(thresholds[each].value).mean()))

    efcp, matched, matched_corrected = smallest(pooled), smallest(quadrature), smallest(corrected)
    losses = fixed.pool.observed > quadrature[FIXED].value
    confidence = {
        "confidence": bq_confidence(losses.astype(float), alpha=alpha),
        "confidence_drawn": bq_confidence(
            losses.astype(float), alpha=alpha, method="dirichlet", draws=DRAWS, rng=np.random.default_rng(seed)
        ),
    }
    certified = split_conformal(winner.calibrate.observed, alpha=alpha)
    place = partial(deployed, alpha=alpha)
    return [
        {**place("BQ", FIXED, fixed.test, quadrature[FIXED]), **confidence},
        place("DCO-PAC", best, winner.test, bayesian_quadrature(winner.calibrate.observed, alpha=alpha, delta=DELTA)),
        place("Matched-Φ BQ, δ/16", matched_corrected, roles[matched_corrected].test, corrected[matched_corrected]),
        place("Split CP, φ fixed, whole pool", FIXED, fixed.test, pooled[FIXED]),
        place("DCO-Warmstart", best, winner.test, certified),
        place("DCO, φ fixed", FIXED, fixed.test, split_conformal(fixed.calibrate.observed, alpha=alpha)),
        place("DCO, refit", best, refit.test, split_conformal(refit.calibrate.observed, alpha=alpha)),
        place("DirectTune, fixed φ", FIXED, fixed.test, tuning_threshold(fixed.tune.observed, alpha=alpha)),
        place("DirectTune, searched Φ", best, winner.test, tuning_threshold(winner.tune.observed, alpha=alpha)),
        place("Matched-Φ BQ, δ uncorrected", matched, roles[matched].test, quadrature[matched]),
        place("DCO's structure, BQ on the pool", best, winner.test, quadrature[best]),
        place("EFCP (tuned and calibrated on the pool)", efcp, roles[efcp].test, pooled[efcp]),
    ]


def deployed(
    method: str, chosen: HeadCandidate | str, test: ScoreTable, threshold: Threshold, *, alpha: float
) -> dict[str, Any]:
    """One row of the record: what a method deployed, and what it did on the test rows."""
    return {
        "method": method,
        "alpha": alpha,
        "chosen": chosen if isinstance(chosen, str) else chosen.number,
        "threshold": threshold.value,
        "rank": threshold.rank,
        "n": threshold.n,
        **test.measured(threshold.value),
    }


def candidate_row(roles: Mapping[HeadCandidate, Roles], *, alpha: float) -> dict[str, Any]:
    """All candidates on the tuning rows, in the order of their numbers."""
    ranking = rank_evaluated([part.tune.evaluated(each.name) for each, part in roles.items()], alpha=alpha)
    rows = [ranking[each.name] for each in roles]
    return {
        "candidates": [each.number for each in roles],
        "alpha": alpha,
        "thresholds": [row.ranking_threshold for row in rows],
        "sizes": [row.mean_size for row in rows],
        "p95s": [row.p95_size for row in rows],
        "feasible": [row.feasible for row in rows],
    }


def ratio_rows(tables: Mapping[HeadCandidate, ScoreTable], sizes: Sizes, *, alpha: float) -> list[dict[str, Any]]:
    """DCO with the same pool cut at other places into tuning and calibration rows."""
    rows = []
    for ratio, part in RATIOS.items():
        tune = round(part * sizes.pool)
        roles = {each: Roles.of(table, tune, sizes.pool) for each, table in tables.items()}
        best = choose({each: here.tune for each, here in roles.items()}, alpha=alpha)
        threshold = split_conformal(roles[best].calibrate.observed, alpha=alpha)
        rows.append({"ratio": ratio, **deployed("DCO-Warmstart", best, roles[best].test, threshold, alpha=alpha)})
    return rows


def strong_rows(data: ImageFeatures, order: RowOrder, sizes: Sizes, *, alphas: Sequence[float]) -> list[dict[str, Any]]:
    """DCO with the stronger class: one structure fixed beforehand, or the winner on tuning rows; with and without refit.

    The last row of a level takes as many tuning rows as selection needs, and leaves the rest of the pool to calibration.
    """
    X, y, k = data.features, data.labels, int(data.labels.max()) + 1
    start, end = sizes.train, sizes.train + sizes.pool + sizes.test
    train, later = order.first(start), order.between(start, end)
    tables = strong_tables(X[train], y[train], X[later], y[later], n_classes=k)
    grown = settled_tuning_rows({name: table.rows(0, sizes.pool) for name, table in tables.items()}, alphas=alphas)

    def chosen(tune: int, alpha: float) -> str:
        return choose({name: table.rows(0, tune) for name, table in tables.items()}, alpha=alpha)

    def again(tune: int, names: Iterable[str]) -> dict[str, Roles]:
        """These structures refitted on train and tuning rows; each once."""
        both, after = order.first(start + tune), order.between(start + tune, end)
        found = strong_tables(X[both], y[both], X[after], y[after], n_classes=k, names=dict.fromkeys(names))
        return {name: Roles.of(table, 0, sizes.pool - tune) for name, table in found.items()}

    best = {alpha: chosen(sizes.tune, alpha) for alpha in alphas}
    best_grown = {alpha: chosen(grown.n_tune, alpha) for alpha in alphas}
    plain = {name: Roles.of(tables[name], sizes.tune, sizes.pool) for name in (STRONG_FIXED, *best.values())}
    refits, refits_grown = again(sizes.tune, plain), again(grown.n_tune, best_grown.values())
    rows = []
    for alpha in alphas:
        for title, name in (("one structure", STRONG_FIXED), ("searched", best[alpha])):
            for suffix, part in (("", plain[name]), (", refit", refits[name])):
                threshold = split_conformal(part.calibrate.observed, alpha=alpha)
                rows.append(deployed(f"Stronger class, {title}{suffix}", name, part.test, threshold, alpha=alpha))
        part = refits_grown[best_grown[alpha]]
        threshold = split_conformal(part.calibrate.observed, alpha=alpha)
        row = deployed(AUTO, best_grown[alpha], part.test, threshold, alpha=alpha)
        rows.append({**row, "n_tune": grown.n_tune, "settled": grown.settled})
    return rows


def settled_tuning_rows(pool: Mapping[str, ScoreTable], *, alphas: Sequence[float]) -> GrowthStep:
    """How many rows of the pool, in its order, tuning takes: until selection has settled at every one of the levels.

    One number for all levels, so that each structure is refitted once. It is a stopping time of the rows taken: given them,
    the rest of the pool and the test rows are as exchangeable as before.
    """

    def settled(rows: Integers) -> bool:
        taken = [table.rows(0, len(rows)).evaluated(name) for name, table in pool.items()]
        draws = partial(np.random.default_rng, len(rows))
        return all(
            bootstrap_evaluated(taken, alpha=alpha, rng=draws(), repetitions=REPETITIONS).relative_regret <= SETTLED
            for alpha in sorted(alphas)  # the smallest settles last
        )

    n = len(next(iter(pool.values())))
    return grow_until_settled(
        np.arange(n), settled, alpha=min(alphas), calibrate_size=n // LEAST_CALIBRATION, start=n // FIRST_LOOK, growth=2
    ).steps[-1]


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """Measured numbers to seven digits; thresholds keep theirs, a rounded one would be another threshold."""
    kept = {"threshold", "thresholds", "alpha"}
    return {key: value if key in kept else _digits(value) for key, value in row.items()}


def _digits(value: Any) -> Any:
    if isinstance(value, list):
        return [_digits(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) and math.isfinite(value) else value
