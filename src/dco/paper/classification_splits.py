"""Section 5.2 and Appendix C.3: one split of CIFAR-100 or ImageNet-A, with heads trained once.

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
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from dco.datasets import (
    ImageFeatures,
    extract_features,
    load_cifar100_features,
    open_images,
    resnet50,
)
from dco.foundations.arrays import Floats, Integers
from dco.foundations.ranks import size_quantile, smallest_marginal_n
from dco.paper.beyond_classification import FIXED as STRONG_FIXED
from dco.paper.beyond_classification import strong_tables
from dco.paper.experiment import Options, Row
from dco.paper.growing_split import SETTLED_REGRET, GrownSplit, grow_tuning_split
from dco.paper.heads import (
    BY_NAME,
    FIXED,
    ScoreTable,
    Training,
    score_heads,
    score_table_rows,
    split_tables,
    train_heads,
)
from dco.paper.methods import (
    DCO_FIXED,
    DCO_FIXED_REFIT,
    DCO_REFIT,
    METHODS,
    TABLE_ROWS,
    Choice,
    OnRoles,
    Task,
)
from dco.paper.stability import bootstrap_stability
from dco.risk import bq_confidence

Features: TypeAlias = Literal["raw", "standardised"]
FEATURES: tuple[Features, ...] = ("raw", "standardised")
STRONG_FEATURES = "square roots"  # what the stronger class reads
LEVELS = (0.2, 0.1, 0.05)
DRAWS = 1000  # the paper's Dirichlet draws
RATIOS = {"20/80": 0.2, "33/67": 1 / 3, "50/50": 0.5, "67/33": 2 / 3, "80/20": 0.8}
SET_ASIDE = 8000
IMAGENET_A_CLASSES = 198
NEEDS_IMAGENET_A = (
    "ImageNet-A needs its images, as a folder imagenet-a (one folder per class) or "
    "imagenet-a.tar, in the folder that --data-home or DCO_DATA_HOME names; ResNet-50 features are "
    "then made once (extra `images`) and kept beside them."
)

DCO = METHODS["dco_warmstart"]
HEAD_METHODS = {
    "BQ": TABLE_ROWS["BQ"],
    "DCO-PAC": TABLE_ROWS["DCO-PAC"],
    "Matched-Φ BQ, δ/16": TABLE_ROWS["Matched-Φ BQ, δ/|Φ|"],
    "Split CP, φ fixed, whole pool": TABLE_ROWS["Split CP, φ fixed, whole pool"],
    "DCO-Warmstart": DCO,
    "DCO, φ fixed": DCO_FIXED,
    "DCO, refit": DCO_REFIT,
    "DirectTune, fixed φ": TABLE_ROWS["DirectTune, fixed φ"],
    "DirectTune, searched Φ": TABLE_ROWS["DirectTune, searched Φ"],
    "Matched-Φ BQ, δ uncorrected": TABLE_ROWS["Matched-Φ BQ, δ uncorrected"],
    "DCO's structure, BQ on the pool": TABLE_ROWS["DCO's structure, BQ on the pool"],
    "EFCP (tuned and calibrated on the pool)": TABLE_ROWS[
        "EFCP (tuned and calibrated on the pool)"
    ],
}
STRONG_ONE = "Stronger class, one structure"
STRONG_SEARCHED = "Stronger class, searched"
STRONG_REFIT = f"{STRONG_SEARCHED}, refit"
STRONG_GROWN = f"{STRONG_REFIT}, auto split"
METHOD_OF = {
    **HEAD_METHODS,
    STRONG_ONE: DCO_FIXED,
    STRONG_SEARCHED: DCO,
    f"{STRONG_ONE}, refit": DCO_FIXED_REFIT,
    STRONG_REFIT: DCO_REFIT,
    STRONG_GROWN: DCO_REFIT,
}

REPETITIONS = 100  # of the bootstrap that decides whether selection has settled
# tuning starts with a 12th of the pool, calibration keeps a third at least
FIRST_LOOK = 12
LEAST_CALIBRATION = 3


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


@dataclass(frozen=True)
class Scale:
    """The sizes of the roles and the training of heads."""

    sizes: Sizes
    training: Training


PAPER_SCALE = Scale(Sizes(), Training())
QUICK_SCALE = Scale(Sizes(500, 250, 500, 500), Training(epochs=10, passes=5))


@dataclass(frozen=True)
class Study:
    """A data set of features with class labels, and how it is dealt into splits."""

    name: str
    title: str
    features: str  # the sentence that every caption carries
    load: Callable[[str | None], ImageFeatures]
    is_stratified: bool = False
    has_stronger_class: bool = False
    n_classes: int | None = None  # only those with most images
    scale: Scale = PAPER_SCALE

    def scale_of(self, options: Options) -> Scale:
        """Return how many rows the roles have, and how heads are trained."""
        return QUICK_SCALE if options.quick else self.scale

    def rows(self, options: Options) -> ImageFeatures:
        """Load the rows that splits are dealt from: features that are ready, or made from images by
        the backbone.
        """
        if options.backbone is None:
            return self.load(options.data_home)
        features = options.backbone.features()
        return features if self.n_classes is None else largest_classes(features, self.n_classes)

    def on(self, options: Options) -> Study:
        """Say in captions where features come from that were made here."""
        if options.backbone is None:
            return self
        return replace(
            self,
            features=f"{self.title} features from a frozen ResNet-50 (weights with SHA-256 "
            f"{options.backbone.digest}...).",
        )


# ---- rows of a record

DIGITS = 7  # of measured numbers: more than any table shows, and half the file
EXACT = {"threshold", "thresholds", "alpha"}  # a rounded threshold would be another threshold
RowKind = TypeVar("RowKind", bound=Row)


@dataclass(frozen=True)
class Outcome(Row):
    """What a method deployed, and what its sets did on the test rows.

    A candidate of the paper is named by its number, one of the stronger class by its name.
    """

    features: str
    method: str
    alpha: float
    chosen: int | str
    threshold: float
    rank: int
    n: int
    n_test: int
    coverage: float
    size: float
    p95: float


@dataclass(frozen=True)
class MethodOutcome(Outcome):
    """The outcome of a method."""


@dataclass(frozen=True)
class BQOutcome(MethodOutcome):
    """The outcome of BQ, with its confidence P(L+ <= alpha): exactly, and by the paper's draws."""

    confidence: float
    confidence_drawn: float


@dataclass(frozen=True)
class GrownOutcome(MethodOutcome):
    """The outcome with a tuning split that grew, and whether selection had settled."""

    n_tune: int
    settled: bool


@dataclass(frozen=True)
class RatioOutcome(Outcome):
    """The outcome of DCO with the pool cut at another place into tuning and calibration rows."""

    ratio: str


@dataclass(frozen=True)
class TuningOutcome(Row):
    """All candidates on the tuning rows, in the order of their numbers."""

    features: str
    candidates: list[int]
    alpha: float
    thresholds: list[float]
    sizes: list[float]
    p95s: list[float]
    feasible: list[bool]
    n_test: int


ROW_KINDS = (MethodOutcome, BQOutcome, GrownOutcome, RatioOutcome, TuningOutcome)


def shorten(row: RowKind) -> RowKind:
    """Round the measured numbers of a row."""
    rounded = {
        name: round_to_digits(value) for name, value in row.cells().items() if name not in EXACT
    }
    return replace(row, **rounded)


def round_to_digits(value: Any) -> Any:
    """Round a finite float, or those in a list."""
    if isinstance(value, list):
        return [round_to_digits(item) for item in value]
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    return value


# ---- data


@lru_cache(maxsize=2)
def cifar100_rows(data_home: str | None) -> ImageFeatures:
    """Load the rows that splits are dealt from: all but those set aside."""
    full = load_cifar100_features(data_home)
    return take_rows(full, cifar100_order(len(full))[: len(full) - SET_ASIDE])


def cifar100_rows_set_aside(data_home: str | None) -> ImageFeatures:
    """Load the 8,000 rows on which the stronger class was chosen."""
    full = load_cifar100_features(data_home)
    return take_rows(full, cifar100_order(len(full))[len(full) - SET_ASIDE :])


def take_rows(data: ImageFeatures, positions: Integers) -> ImageFeatures:
    """Take some rows."""
    return ImageFeatures(data.features[positions], data.labels[positions])


def cifar100_order(n: int) -> Integers:
    """Put all rows into a fixed random order."""
    return np.random.default_rng(12345).permutation(n)


@lru_cache(maxsize=1)
def imagenet_a_rows(data_home: str | None) -> ImageFeatures:
    """Load ResNet-50 features of ImageNet-A, made once and kept beside the images; the 198 classes
    with most images.
    """
    images = find_imagenet_a(data_home)
    if images is None:
        raise FileNotFoundError(NEEDS_IMAGENET_A)
    cache = images.parent / "imagenet-a-resnet50-features"
    features = extract_features(open_images(images), resnet50(), cache=cache, name="resnet50")
    return largest_classes(features, IMAGENET_A_CLASSES)


def largest_classes(data: ImageFeatures, n_classes: int) -> ImageFeatures:
    """Take the rows of the classes with most rows, ties by class number, renumbered from 0.

    The paper says "a filtered subset (198 classes)" and not which; the two smallest of the 200 are
    the natural ones to go.
    """
    counts = np.bincount(data.labels)
    largest = np.sort(np.argsort(-counts, kind="stable")[:n_classes])
    rows = np.isin(data.labels, largest)
    return ImageFeatures(data.features[rows], np.searchsorted(largest, data.labels[rows]))


def find_imagenet_a(data_home: str | None) -> Path | None:
    """Find the folder or archive of ImageNet-A's images."""
    home = data_home or os.environ.get("DCO_DATA_HOME")
    if not home:
        return None
    for name in ("imagenet-a", "imagenet-a.tar", "imagenet-a.tar.gz", "imagenet-a.zip"):
        if (Path(home) / name).exists():
            return Path(home) / name
    return None


# ---- dealing rows


@dataclass(frozen=True, eq=False)
class Dealt:
    """One split: rows in order, first train, then tune, calibrate and test; rows that no role asks
    for come last.
    """

    data: ImageFeatures
    order: Integers
    sizes: Sizes

    def rows_to_fit(self, n_extra: int = 0) -> ImageFeatures:
        """Return the training rows and the first `n_extra` rows of the pool."""
        return take_rows(self.data, self.order[: self.sizes.train + n_extra])

    def rows_to_score(self, n_extra: int = 0) -> ImageFeatures:
        """Return all rows of the split after those of `rows_to_fit`."""
        return take_rows(self.data, self.order[self.sizes.train + n_extra : self.sizes.all])

    @property
    def n_classes(self) -> int:
        """The number of labels."""
        return int(self.data.labels.max()) + 1


def deal(data: ImageFeatures, sizes: Sizes, *, seed: int, is_stratified: bool) -> Dealt:
    """Deal the rows of one split at random."""
    if len(data) < sizes.all:
        raise ValueError(f"a split takes {sizes.all} rows, but there are {len(data)}.")
    rng = np.random.default_rng(seed)
    order = balanced_order(data.labels, rng) if is_stratified else rng.permutation(len(data))
    return Dealt(data, order, sizes)


def balanced_order(labels: Integers, rng: np.random.Generator) -> Integers:
    """Shuffle the rows so that any first n of them hold each class in its share, to within a row.

    The j-th row of a class of m rows comes at time (j + u) / m, with one uniform u for each class.
    Rows of a class are in random order.
    """
    shuffled = rng.permutation(len(labels))
    times: Floats = np.empty(len(labels))
    for label in np.unique(labels):
        rows = shuffled[labels[shuffled] == label]
        times[rows] = (np.arange(len(rows)) + rng.uniform()) / len(rows)
    return np.argsort(times, kind="stable")


# ---- one split


def run_split(seed: int, options: Options, *, study: Study) -> list[Row]:
    """Run every method on one split at every level: heads on raw and on standardised features, then
    the stronger class.
    """
    scale = study.scale_of(options)
    dealt = deal(study.rows(options), scale.sizes, seed=seed, is_stratified=study.is_stratified)
    rows: list[Row] = []
    for features in FEATURES:
        heads = HeadClass(dealt, features, seed, scale.training)
        rows += run_heads(heads, alphas=options.alphas, with_ratios=features == "raw")
    if study.has_stronger_class:
        rows += run_stronger_class(dealt, alphas=options.alphas)
    return [shorten(row) for row in rows]


@dataclass(frozen=True, eq=False)
class HeadClass:
    """The paper's candidate class on one split."""

    dealt: Dealt
    features: Features
    seed: int
    training: Training

    def score(self, names: Iterable[str]) -> dict[str, ScoreTable]:
        """Train these candidates on the training rows and score all rows after them."""
        return self._train_and_score(list(names), n_extra=0, seed=self.seed)

    def refit(self, names: Iterable[str]) -> dict[str, OnRoles]:
        """Train these candidates on training and tuning rows; they calibrate and predict."""
        sizes = self.dealt.sizes
        tables = self._train_and_score(list(names), n_extra=sizes.tune, seed=self.seed + 500_000)
        return split_tables(tables, n_tune=0, n_pool=sizes.calibrate)

    def _train_and_score(
        self, names: Sequence[str], *, n_extra: int, seed: int
    ) -> dict[str, ScoreTable]:
        to_fit = self.dealt.rows_to_fit(n_extra)
        to_score = self.dealt.rows_to_score(n_extra)
        heads = train_heads(
            to_fit.features,
            to_fit.labels,
            sorted({BY_NAME[name].head for name in names}),
            standardise=self.features == "standardised",
            seed=seed,
            training=self.training,
        )
        return score_heads(
            heads, names, to_score.features, to_score.labels, n_classes=self.dealt.n_classes
        )


def run_heads(heads: HeadClass, *, alphas: Sequence[float], with_ratios: bool) -> list[Row]:
    """Train the 8 heads once; then run every method, list the candidates of each level, and cut the
    pool at other ratios.
    """
    sizes = heads.dealt.sizes
    tables = heads.score(BY_NAME)
    tasks = [
        make_task(tables, n_tune=sizes.tune, n_pool=sizes.pool, fixed=FIXED.name, alpha=alpha)
        for alpha in alphas
    ]
    refits = heads.refit({task.ranking.best for task in tasks})

    rows: list[Row] = []
    for tuned, alpha in zip(tasks, alphas, strict=True):
        task = replace(tuned, refit=refits.__getitem__)
        rows += run_methods(task, features=heads.features, seed=heads.seed)
        rows.append(describe_tuning(task, alpha, features=heads.features, n_test=sizes.test))
        if with_ratios:
            rows += run_ratios(tables, sizes, alpha=alpha, features=heads.features)
    return rows


def make_task(
    tables: Mapping[str, ScoreTable], *, n_tune: int, n_pool: int, fixed: str, alpha: float
) -> Task:
    """Show methods the candidates with so many tuning rows."""
    return Task(
        candidates=split_tables(tables, n_tune=n_tune, n_pool=n_pool),
        y_tune=next(iter(tables.values())).codes[:n_tune],
        fixed=fixed,
        alpha=alpha,
    )


def run_methods(task: Task, *, features: str, seed: int) -> list[Outcome]:
    """Run every method at one level from the same score tables; measure BQ's confidence too."""
    outcomes: list[Outcome] = []
    for title, method in HEAD_METHODS.items():
        choice = method(task)
        outcome = measure(title, choice, features=features)
        outcomes.append(add_confidence(outcome, choice, seed) if title == "BQ" else outcome)
    return outcomes


def measure(title: str, choice: Choice, *, features: str) -> MethodOutcome:
    """Measure coverage and sizes of what a method deployed on the test rows."""
    threshold = choice.threshold
    test = choice.deployed.test
    assert test is not None
    assert threshold.rank is not None
    sizes = test.sizes(threshold.value)
    candidate = BY_NAME.get(choice.candidate)
    return MethodOutcome(
        features=features,
        method=title,
        alpha=threshold.alpha,
        chosen=choice.candidate if candidate is None else candidate.number,
        threshold=threshold.value,
        rank=threshold.rank,
        n=threshold.n,
        n_test=len(sizes),
        coverage=float(np.mean(test.scores <= threshold.value)),
        size=float(sizes.mean()),
        p95=size_quantile(sizes, 0.95),
    )


def add_confidence(outcome: MethodOutcome, choice: Choice, seed: int) -> BQOutcome:
    """Add BQ's confidence P(L+ <= alpha) at its threshold: a Beta tail, and 1,000 draws of it."""
    losses = (choice.deployed.pool.scores > choice.threshold.value).astype(float)
    return BQOutcome(
        **outcome.cells(),
        confidence=bq_confidence(losses, alpha=outcome.alpha),
        confidence_drawn=bq_confidence(
            losses,
            alpha=outcome.alpha,
            method="dirichlet",
            draws=DRAWS,
            random_state=np.random.default_rng(seed),
        ),
    )


def describe_tuning(task: Task, alpha: float, *, features: str, n_test: int) -> TuningOutcome:
    """Write down how all candidates did on the tuning rows."""
    ranked = [task.ranking[name] for name in task.candidates]
    return TuningOutcome(
        features=features,
        candidates=[BY_NAME[row.name].number for row in ranked],
        alpha=alpha,
        thresholds=[row.ranking_threshold for row in ranked],
        sizes=[row.mean_size for row in ranked],
        p95s=[row.p95_size for row in ranked],
        feasible=[row.feasible for row in ranked],
        n_test=n_test,
    )


def run_ratios(
    tables: Mapping[str, ScoreTable], sizes: Sizes, *, alpha: float, features: str
) -> list[RatioOutcome]:
    """Run DCO with the same pool cut at other places into tuning and calibration rows."""
    outcomes: list[RatioOutcome] = []
    for ratio, share in RATIOS.items():
        n_tune = round(share * sizes.pool)
        task = make_task(tables, n_tune=n_tune, n_pool=sizes.pool, fixed=FIXED.name, alpha=alpha)
        outcome = measure("DCO-Warmstart", DCO(task), features=features)
        outcomes.append(RatioOutcome(**outcome.cells(), ratio=ratio))
    return outcomes


# ---- the stronger class


def run_stronger_class(dealt: Dealt, *, alphas: Sequence[float]) -> list[Row]:
    """Run DCO with the stronger class: one structure fixed beforehand, or the winner on tuning
    rows; with and without refit.

    The last row of a level takes as many tuning rows as selection needs, and leaves the rest of the
    pool to calibration.
    """
    sizes = dealt.sizes
    tables = score_strong(dealt)
    grown = settle_tuning_rows(
        {name: table.rows(0, sizes.pool) for name, table in tables.items()}, alphas=alphas
    )
    fixed_tasks = strong_tasks(
        dealt, tables, n_tune=sizes.tune, alphas=alphas, also_refit=[STRONG_FIXED]
    )
    grown_tasks = strong_tasks(dealt, tables, n_tune=grown.n_tune, alphas=alphas)

    rows: list[Row] = []
    for task, grown_task in zip(fixed_tasks, grown_tasks, strict=True):
        for title in (STRONG_ONE, f"{STRONG_ONE}, refit", STRONG_SEARCHED, STRONG_REFIT):
            choice = METHOD_OF[title](task)
            rows.append(measure(title, choice, features=STRONG_FEATURES))
        outcome = measure(STRONG_GROWN, DCO_REFIT(grown_task), features=STRONG_FEATURES)
        rows.append(GrownOutcome(**outcome.cells(), n_tune=grown.n_tune, settled=grown.has_settled))
    return rows


def score_strong(
    dealt: Dealt, *, n_extra: int = 0, names: Iterable[str] | None = None
) -> dict[str, ScoreTable]:
    """Fit members of the stronger class (all by default) and score all rows after those fitted."""
    to_fit = dealt.rows_to_fit(n_extra)
    to_score = dealt.rows_to_score(n_extra)
    return strong_tables(
        to_fit.features,
        to_fit.labels,
        to_score.features,
        to_score.labels,
        n_classes=dealt.n_classes,
        names=names,
    )


def strong_tasks(
    dealt: Dealt,
    tables: Mapping[str, ScoreTable],
    *,
    n_tune: int,
    alphas: Sequence[float],
    also_refit: Sequence[str] = (),
) -> list[Task]:
    """Show methods the stronger class with so many tuning rows, at each level; the winners of all
    levels are refitted once.
    """
    n_pool = dealt.sizes.pool
    tasks = [
        make_task(tables, n_tune=n_tune, n_pool=n_pool, fixed=STRONG_FIXED, alpha=alpha)
        for alpha in alphas
    ]
    names = dict.fromkeys([*also_refit, *(task.ranking.best for task in tasks)])
    refitted = score_strong(dealt, n_extra=n_tune, names=names)
    refits = split_tables(refitted, n_tune=0, n_pool=n_pool - n_tune)
    return [replace(task, refit=refits.__getitem__) for task in tasks]


def settle_tuning_rows(pool: Mapping[str, ScoreTable], *, alphas: Sequence[float]) -> GrownSplit:
    """Find how many rows of the pool, in its order, tuning takes: until selection has settled at
    every one of the levels.

    One number serves all levels, so that each structure is refitted once. It is a stopping time of
    the rows taken: given them, the rest of the pool and the test rows are as exchangeable as
    before.
    """

    def has_settled(n_tune: int) -> bool:
        candidates = {name: score_table_rows(table.rows(0, n_tune)) for name, table in pool.items()}
        return all(
            bootstrap_stability(
                candidates,
                alpha=alpha,
                rng=np.random.default_rng(n_tune),
                repetitions=REPETITIONS,
            ).relative_regret
            <= SETTLED_REGRET
            for alpha in sorted(alphas)  # the smallest settles last
        )

    n = len(next(iter(pool.values())))
    n_to_calibrate = max(n // LEAST_CALIBRATION, smallest_marginal_n(alpha=min(alphas)))
    return grow_tuning_split(
        has_settled, start=n // FIRST_LOOK, largest=n - n_to_calibrate, growth=2
    )
