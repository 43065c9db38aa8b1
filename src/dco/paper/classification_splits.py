"""One split of the paper's classification experiments: every method on heads trained once, and the
stronger class.

Protocol: 2,000 rows train, 1,000 tune, 2,000 calibrate, 2,000 test; 8 Monte-Carlo-dropout heads × 2
scores; BQ takes the fixed structure φ₀ (posterior_nll, dropout 0.05, hidden (512, 256)) and
calibrates on the pool of tune and calibrate rows. The paper does not say whether features were
standardised: both are run. One record per split serves every table, so that no head is trained
twice.

Of CIFAR-100's 20,000 rows of features 12,000, one fixed random choice, are dealt into splits; the
other 8,000 are set aside for choosing the stronger class.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from dco.datasets import (
    ImageFeatures,
    extract_features,
    load_cifar100_features,
    open_images,
    resnet50,
)
from dco.foundations.arrays import Floats, Integers
from dco.foundations.ranks import size_quantile
from dco.paper.beyond_classification import FIXED as STRONG_FIXED
from dco.paper.beyond_classification import strong_tables
from dco.paper.experiment import Options
from dco.paper.growing_split import GrowthStep, grow_until_settled
from dco.paper.heads import BY_NAME, FIXED, ScoreTable, Training, score_heads, train_heads
from dco.paper.methods import METHODS, TABLE_ROWS, ByRole, Choice, Given
from dco.paper.stability import bootstrap_stability
from dco.risk import bq_confidence
from dco.tuning import EvaluatedCandidate, rank_evaluated

LEVELS = (0.2, 0.1, 0.05)
DRAWS = 1000  # the paper's Dirichlet draws
RATIOS = {"20/80": 0.2, "33/67": 1 / 3, "50/50": 0.5, "67/33": 2 / 3, "80/20": 0.8}
SET_ASIDE = 8000
IMAGENET_A_CLASSES = 198
NEEDS_IMAGENET_A = (
    "ImageNet-A needs its images, as a folder imagenet-a (one folder per class) or "
    "imagenet-a.tar, in the folder that "
    "--data-home or DCO_DATA_HOME names; ResNet-50 features are then made once (extra `images`) "
    "and kept beside them."
)
AUTO = "Stronger class, searched, refit, auto split"
SETTLED = 0.01  # the regret, relative to the size, at which selection has settled
REPETITIONS = 100
# tuning starts with a 12th of the pool, calibration keeps a third at least
FIRST_LOOK, LEAST_CALIBRATION = 12, 3
# significant digits of measured numbers in a record: more than any table shows, and half the file
DIGITS = 7


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

    @property
    def all(self) -> int:
        """The rows of a split."""
        return self.train + self.pool + self.test


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
    n_classes: int | None = None  # only those with most images

    def rows(self, options: Options) -> ImageFeatures:
        """The rows that splits are dealt from: features that are ready, or made from images by the
        backbone.
        """
        if options.backbone is None:
            return self.load(options.data_home)
        found = options.backbone.features()
        return found if self.n_classes is None else largest_classes(found, self.n_classes)

    def on(self, options: Options) -> Study:
        """The same with the sentence that says where features made here come from."""
        if options.backbone is None:
            return self
        digest = options.backbone.digest
        return replace(
            self,
            features=f"{self.title} features from a frozen ResNet-50 (weights "
            f"with SHA-256 {digest}...).",
        )


# ---- data ----------------------------------------------------------------------------------------
# --------------------


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
    """ResNet-50 features of ImageNet-A, made once and kept beside the images; the 198 classes with
    most images.
    """
    images = find_imagenet_a(data_home)
    if images is None:
        raise FileNotFoundError(NEEDS_IMAGENET_A)
    cache = images.parent / "imagenet-a-resnet50-features"
    return largest_classes(
        extract_features(open_images(images), resnet50(), cache=cache, name="resnet50")
    )


def largest_classes(rows: ImageFeatures, n_classes: int = IMAGENET_A_CLASSES) -> ImageFeatures:
    """Rows of the `n_classes` classes with most rows, ties by class number, renumbered from 0.

    The paper says "a filtered subset (198 classes)" and not which; the two smallest of the 200 are
    the natural ones to go.
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


@dataclass(frozen=True, eq=False)
class Dealt:
    """One split: rows in order, first train, then tune, calibrate and test; rows that no role asks
    for come last.
    """

    data: ImageFeatures
    order: Integers
    sizes: Sizes

    def parts(self, tune: int = 0) -> tuple[Floats, Integers, Floats, Integers]:
        """X and y of the training rows with the first `tune` rows of the pool, and of all rows
        after them.
        """
        start = self.sizes.train + tune
        first, later, _ = np.split(self.order, [start, self.sizes.all])
        X, y = self.data.features, self.data.labels
        return X[first], y[first], X[later], y[later]

    @property
    def n_classes(self) -> int:
        """The number of labels."""
        return int(self.data.labels.max()) + 1


def deal(data: ImageFeatures, sizes: Sizes, *, seed: int, stratified: bool) -> Dealt:
    """Deal the rows of one split at random."""
    if len(data) < sizes.all:
        raise ValueError(f"a split takes {sizes.all} rows, but there are {len(data)}.")
    rng = np.random.default_rng(seed)
    order = balanced_order(data.labels, rng) if stratified else rng.permutation(len(data))
    return Dealt(data, order, sizes)


def balanced_order(labels: Integers, rng: np.random.Generator) -> Integers:
    """Shuffle the rows so that any first n of them hold each class in its share, to within a row.

    The j-th row of a class of m rows comes at time (j + u) / m, with one uniform u for each class.
    Rows of a class are in random order.
    """
    shuffled = rng.permutation(len(labels))
    times = np.empty(len(labels))
    for label in np.unique(labels):
        rows = shuffled[labels[shuffled] == label]
        times[rows] = (np.arange(len(rows)) + rng.uniform()) / len(rows)
    return np.argsort(times, kind="stable")


# ---- one split -----------------------------------------------------------------------------------
# --------------------

_DCO, _DCO_FIXED = METHODS["dco_warmstart"], TABLE_ROWS["DCO, φ fixed"]
_TITLES = (
    "BQ",
    "DCO-PAC",
    "Matched-Φ BQ, δ/16",
    "Split CP, φ fixed, whole pool",
    "DCO-Warmstart",
    "DCO, φ fixed",
    "DCO, refit",
    "DirectTune, fixed φ",
    "DirectTune, searched Φ",
    "Matched-Φ BQ, δ uncorrected",
    "DCO's structure, BQ on the pool",
    "EFCP (tuned and calibrated on the pool)",
)
HEAD_ROWS = {title: TABLE_ROWS[title.replace("δ/16", "δ/|Φ|")] for title in _TITLES}
METHOD_OF = HEAD_ROWS | {
    "Stronger class, one structure": _DCO_FIXED,
    "Stronger class, searched": _DCO,
    "Stronger class, one structure, refit": _DCO_FIXED,
    "Stronger class, searched, refit": _DCO,
    AUTO: _DCO,
}


def run_split(seed: int, options: Options, *, study: Study) -> list[dict[str, Any]]:
    """Every method on one split at every level: heads on raw and on standardised features, then the
    stronger class.
    """
    sizes, training = (
        (QUICK_SIZES, QUICK_TRAINING) if options.quick else (PAPER_SIZES, PAPER_TRAINING)
    )
    dealt = deal(study.rows(options), sizes, seed=seed, stratified=study.stratified)
    rows: list[dict[str, Any]] = []
    for features in ("raw", "standardised"):
        fit = partial(head_tables, dealt, standardise=features == "standardised", training=training)
        measured = head_rows(
            fit, sizes, alphas=options.alphas, seed=seed, with_ratios=features == "raw"
        )
        rows += [{"features": features, **row} for row in measured]
    if study.beyond:
        rows += [
            {"features": "square roots", **row} for row in strong_rows(dealt, alphas=options.alphas)
        ]
    return [_short({**row, "n_test": sizes.test}) for row in rows]


def head_tables(
    dealt: Dealt,
    names: Iterable[str],
    *,
    tune: int = 0,
    standardise: bool,
    seed: int,
    training: Training,
) -> dict[str, ScoreTable]:
    """These candidates, trained on the training rows and the first `tune` rows of the pool, on all
    rows after them.
    """
    wanted = list(names)
    X, y, X_new, y_new = dealt.parts(tune)
    numbers = sorted({BY_NAME[name].head for name in wanted})
    heads = train_heads(X, y, numbers, standardise=standardise, seed=seed, training=training)
    return score_heads(heads, wanted, X_new, y_new, n_classes=dealt.n_classes)


def head_rows(
    fit: Callable[..., dict[str, ScoreTable]],
    sizes: Sizes,
    *,
    alphas: Sequence[float],
    seed: int,
    with_ratios: bool,
) -> list[dict[str, Any]]:
    """Train the 8 heads once; then every method, the candidates of each level, and the split
    ratios.
    """
    tables = fit(BY_NAME, seed=seed)
    levels = [Given(by_role(tables, sizes.tune, sizes.pool), FIXED.name, alpha) for alpha in alphas]
    winners = {_DCO(rows).candidate for rows in levels}
    refits = by_role(fit(winners, tune=sizes.tune, seed=seed + 500_000), 0, sizes.calibrate)
    found: list[dict[str, Any]] = []
    for alpha, rows in zip(alphas, levels, strict=True):
        found += method_rows(rows, refits, seed=seed)
        found.append(candidate_row(rows, alpha=alpha))
        if with_ratios:
            found += ratio_rows(tables, sizes, alpha=alpha)
    return found


def by_role(tables: Mapping[str, ScoreTable], tune: int, pool: int) -> dict[str, ByRole]:
    """Every candidate on the rows of each role."""
    return {name: table.by_role(name, tune, pool) for name, table in tables.items()}


def method_rows(rows: Given, refits: Mapping[str, ByRole], *, seed: int) -> list[dict[str, Any]]:
    """Every method at one level from the same score tables; of BQ also its confidence, exactly and
    by the paper's draws.
    """
    found = []
    for title, method in HEAD_ROWS.items():
        choice = method(replace(rows, refit=refits.__getitem__) if title == "DCO, refit" else rows)
        found.append(deployed(title, choice))
        if title == "BQ":
            losses = (choice.deployed["pool"].scores > choice.threshold.value).astype(float)
            confidence = partial(bq_confidence, losses, alpha=rows.alpha)
            drawn = confidence(
                method="dirichlet", draws=DRAWS, random_state=np.random.default_rng(seed)
            )
            found[-1] |= {"confidence": confidence(), "confidence_drawn": drawn}
    return found


def deployed(title: str, choice: Choice) -> dict[str, Any]:
    """One row of the record: what a method deployed, and what it did on the test rows."""
    known = BY_NAME.get(choice.candidate)
    return {
        "method": title,
        "alpha": choice.threshold.alpha,
        "chosen": choice.candidate if known is None else known.number,
        "threshold": choice.threshold.value,
        "rank": choice.threshold.rank,
        "n": choice.threshold.n,
        **measured(choice.deployed["test"], choice.threshold.value),
    }


def measured(test: EvaluatedCandidate, threshold: float) -> dict[str, float]:
    """Coverage, mean size and P95 size of the sets at a threshold."""
    sizes = test.sizes_at(threshold)
    coverage = float(np.mean(test.scores <= threshold))
    return {"coverage": coverage, "size": float(sizes.mean()), "p95": size_quantile(sizes, 0.95)}


def candidate_row(rows: Given, *, alpha: float) -> dict[str, Any]:
    """All candidates on the tuning rows, in the order of their numbers."""
    ranking = rank_evaluated([parts["tune"] for parts in rows.candidates.values()], alpha=alpha)
    ranked = [ranking[name] for name in rows.candidates]
    return {
        "candidates": [BY_NAME[name].number for name in rows.candidates],
        "alpha": alpha,
        "thresholds": [row.ranking_threshold for row in ranked],
        "sizes": [row.mean_size for row in ranked],
        "p95s": [row.p95_size for row in ranked],
        "feasible": [row.feasible for row in ranked],
    }


def ratio_rows(
    tables: Mapping[str, ScoreTable], sizes: Sizes, *, alpha: float
) -> list[dict[str, Any]]:
    """DCO with the same pool cut at other places into tuning and calibration rows."""
    cuts = {
        ratio: by_role(tables, round(part * sizes.pool), sizes.pool)
        for ratio, part in RATIOS.items()
    }
    return [
        {"ratio": ratio, **deployed("DCO-Warmstart", _DCO(Given(roles, FIXED.name, alpha)))}
        for ratio, roles in cuts.items()
    ]


def strong_rows(dealt: Dealt, *, alphas: Sequence[float]) -> list[dict[str, Any]]:
    """DCO with the stronger class: one structure fixed beforehand, or the winner on tuning rows;
    with and without refit.

    The last row of a level takes as many tuning rows as selection needs, and leaves the rest of the
    pool to calibration.
    """
    sizes = dealt.sizes
    tables = strong_tables(*dealt.parts(), n_classes=dealt.n_classes)
    grown = settled_tuning_rows(
        {name: table.rows(0, sizes.pool) for name, table in tables.items()}, alphas=alphas
    )

    def seen(tune: int, *always: str) -> list[tuple[Given, Given]]:
        """What methods see at each level with so many tuning rows, without and with refit; winners
        are refitted once.
        """
        levels = [Given(by_role(tables, tune, sizes.pool), STRONG_FIXED, alpha) for alpha in alphas]
        names = dict.fromkeys([*always, *(_DCO(rows).candidate for rows in levels)])
        again = strong_tables(*dealt.parts(tune), n_classes=dealt.n_classes, names=names)
        refits = by_role(again, 0, sizes.pool - tune)
        return [(rows, replace(rows, refit=refits.__getitem__)) for rows in levels]

    found = []
    for (plain, refit), (_, auto) in zip(
        seen(sizes.tune, STRONG_FIXED), seen(grown.n_tune), strict=True
    ):
        for title, method in (("one structure", _DCO_FIXED), ("searched", _DCO)):
            found.append(deployed(f"Stronger class, {title}", method(plain)))
            found.append(deployed(f"Stronger class, {title}, refit", method(refit)))
        found.append(
            {**deployed(AUTO, _DCO(auto)), "n_tune": grown.n_tune, "settled": grown.settled}
        )
    return found


def settled_tuning_rows(pool: Mapping[str, ScoreTable], *, alphas: Sequence[float]) -> GrowthStep:
    """How many rows of the pool, in its order, tuning takes: until selection has settled at every
    one of the levels.

    One number for all levels, so that each structure is refitted once. It is a stopping time of the
    rows taken: given them, the rest of the pool and the test rows are as exchangeable as before.
    """

    def settled(rows: Integers) -> bool:
        taken = [table.rows(0, len(rows)).evaluated(name) for name, table in pool.items()]
        draws = partial(np.random.default_rng, len(rows))
        return all(
            bootstrap_stability(
                taken, alpha=alpha, rng=draws(), repetitions=REPETITIONS
            ).relative_regret
            <= SETTLED
            for alpha in sorted(alphas)  # the smallest settles last
        )

    n = len(next(iter(pool.values())))
    return grow_until_settled(
        np.arange(n),
        settled,
        alpha=min(alphas),
        calibrate_size=n // LEAST_CALIBRATION,
        start=n // FIRST_LOOK,
        growth=2,
    ).steps[-1]


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """Measured numbers to seven digits; thresholds keep theirs, a rounded one would be another
    threshold.
    """
    kept = {"threshold", "thresholds", "alpha"}
    return {key: value if key in kept else _digits(value) for key, value in row.items()}


def _digits(value: Any) -> Any:
    if isinstance(value, list):
        return [_digits(item) for item in value]
    return (
        float(f"{value:.{DIGITS}g}") if isinstance(value, float) and math.isfinite(value) else value
    )
