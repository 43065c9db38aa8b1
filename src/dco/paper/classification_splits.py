"""Section 5.2 and Appendix C.3: one split of CIFAR-100 or ImageNet-A, with heads trained once.

Protocol: 2,000 rows train, 1,000 tune, 2,000 calibrate, 2,000 test; 8 Monte-Carlo-dropout heads × 2
scores; BQ takes the fixed structure φ₀ (posterior_nll, dropout 0.05, hidden (512, 256)) and
calibrates on the pool of tune and calibrate rows. The paper does not say whether features were
standardised: both are run. One record per split serves every table, so that no head is trained
twice.

Splits are drawn from 12,000 of CIFAR-100's 20,000 rows of features, one fixed random choice. The
other 8,000 are development rows: on them the stronger class of `beyond_classification` was chosen.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
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
from dco.paper.beyond_classification import FIXED_STRUCTURE, score_structures
from dco.paper.experiment import Options, Row
from dco.paper.growing_split import SETTLED_REGRET, TuningSize, grow_tuning_split
from dco.paper.heads import (
    CANDIDATE_BY_NAME,
    FIXED_CANDIDATE,
    ScoreTable,
    Training,
    divide_into_roles,
    score_heads,
    to_scored_rows,
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
REFIT_SEED_OFFSET = 500_000  # heads that are trained again do not start from the same weights

DEVELOPMENT_ROWS = 8000  # of CIFAR-100: no split ever uses them
CIFAR100_SHUFFLE_SEED = 12345
IMAGENET_A_CLASSES = 198
IMAGENET_A_NAMES = ("imagenet-a", "imagenet-a.tar", "imagenet-a.tar.gz", "imagenet-a.zip")
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
STRONG_FIXED = "Stronger class, one structure"
STRONG_FIXED_REFIT = f"{STRONG_FIXED}, refit"
STRONG_SEARCHED = "Stronger class, searched"
STRONG_REFIT = f"{STRONG_SEARCHED}, refit"
STRONG_AUTO_SPLIT = f"{STRONG_REFIT}, auto split"
METHOD_BY_TITLE = {
    **HEAD_METHODS,
    STRONG_FIXED: DCO_FIXED,
    STRONG_SEARCHED: DCO,
    STRONG_FIXED_REFIT: DCO_FIXED_REFIT,
    STRONG_REFIT: DCO_REFIT,
    STRONG_AUTO_SPLIT: DCO_REFIT,
}

# The auto split, which chooses the number of tuning rows: it starts with a 12th of the pool,
# doubles as long as a bootstrap finds selection unsettled, and leaves a third to calibration.
BOOTSTRAP_REPETITIONS = 100
FIRST_TUNING_PART = 12
TUNING_GROWTH = 2
CALIBRATION_PART = 3


@dataclass(frozen=True)
class RoleSizes:
    """The number of rows of each role."""

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
    """How large a run is: the rows of each role, and the training of heads."""

    role_sizes: RoleSizes
    training: Training


PAPER_SCALE = Scale(RoleSizes(), Training())
QUICK_SCALE = Scale(RoleSizes(500, 250, 500, 500), Training(epochs=10, passes=5))


@dataclass(frozen=True)
class Study:
    """A data set of features with class labels, and how splits are drawn from it.

    `data_note` is the sentence on the data that every caption carries. Stratified splits hold each
    class in its share. With `n_classes` only the classes with most images are taken.
    """

    name: str
    title: str
    data_note: str
    load: Callable[[str | None], ImageFeatures]
    is_stratified: bool = False
    has_stronger_class: bool = False
    n_classes: int | None = None
    scale: Scale = PAPER_SCALE

    def scale_of(self, options: Options) -> Scale:
        """Return how many rows the roles have, and how heads are trained."""
        return QUICK_SCALE if options.quick else self.scale

    def rows(self, options: Options) -> ImageFeatures:
        """Load the rows that splits are drawn from.

        Features are read from disk, or made from images where the options name a backbone.
        """
        if options.backbone is None:
            return self.load(options.data_home)
        features = options.backbone.features()
        if self.n_classes is None:
            return features
        return take_largest_classes(features, self.n_classes)

    def with_note_on_backbone(self, options: Options) -> Study:
        """Let captions name the backbone, where the options say that it made the features."""
        if options.backbone is None:
            return self
        data_note = (
            f"{self.title} features from a frozen ResNet-50 (weights with SHA-256 "
            f"{options.backbone.digest}...)."
        )
        return replace(self, data_note=data_note)


# ---- rows of a record

ROUNDED_DIGITS = 7  # of measured numbers: more than any table shows, and half the file
NOT_ROUNDED = {"threshold", "thresholds", "alpha"}  # a rounded threshold is another threshold
RowKind = TypeVar("RowKind", bound=Row)


@dataclass(frozen=True)
class Outcome(Row):
    """What a method deployed, and what its sets did on the test rows.

    The threshold is the `rank`-th smallest of `n` scores. `coverage`, the mean `size` and the 95 %
    quantile of sizes, `p95`, are over `n_test` rows. `chosen` is the number of a candidate of the
    paper, or the name of a structure of the stronger class.
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
class AutoSplitOutcome(MethodOutcome):
    """The outcome with as many tuning rows as selection needed.

    `settled` says whether selection had settled, or only the rows had run out.
    """

    n_tune: int
    settled: bool


@dataclass(frozen=True)
class RatioOutcome(Outcome):
    """The outcome of DCO with the pool divided at this ratio into tuning and calibration rows."""

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


ROW_KINDS = (MethodOutcome, BQOutcome, AutoSplitOutcome, RatioOutcome, TuningOutcome)


def round_row(row: RowKind) -> RowKind:
    """Round the measured numbers of a row, but no threshold and no level."""
    rounded = {
        name: round_to_digits(value)
        for name, value in row.cells().items()
        if name not in NOT_ROUNDED
    }
    return replace(row, **rounded)


def round_to_digits(value: Any) -> Any:
    """Round a finite float to significant digits, or those in a list; return others as they are."""
    if isinstance(value, list):
        return [round_to_digits(item) for item in value]
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.{ROUNDED_DIGITS}g}")
    return value


# ---- data


@lru_cache(maxsize=2)
def cifar100_rows(data_home: str | None) -> ImageFeatures:
    """Load the 12,000 rows that splits are drawn from."""
    data = load_cifar100_features(data_home)
    n_rows = len(data) - DEVELOPMENT_ROWS
    return take_rows(data, shuffle_cifar100(len(data))[:n_rows])


def cifar100_development_rows(data_home: str | None) -> ImageFeatures:
    """Load the 8,000 rows on which the stronger class was chosen; no split uses them."""
    data = load_cifar100_features(data_home)
    return take_rows(data, shuffle_cifar100(len(data))[-DEVELOPMENT_ROWS:])


def take_rows(data: ImageFeatures, positions: Integers) -> ImageFeatures:
    """Take the features and labels of some rows."""
    return ImageFeatures(data.features[positions], data.labels[positions])


def shuffle_cifar100(n_rows: int) -> Integers:
    """Return the row numbers 0, ..., n_rows - 1 in one fixed random order."""
    return np.random.default_rng(CIFAR100_SHUFFLE_SEED).permutation(n_rows)


@lru_cache(maxsize=1)
def imagenet_a_rows(data_home: str | None) -> ImageFeatures:
    """Load ResNet-50 features of ImageNet-A, of the 198 classes with most images.

    Features are made from the images at the first call and kept in a folder beside them.
    """
    images = find_imagenet_a(data_home)
    if images is None:
        raise FileNotFoundError(NEEDS_IMAGENET_A)
    cache = images.parent / "imagenet-a-resnet50-features"
    features = extract_features(open_images(images), resnet50(), cache=cache, name="resnet50")
    return take_largest_classes(features, IMAGENET_A_CLASSES)


def take_largest_classes(data: ImageFeatures, n_classes: int) -> ImageFeatures:
    """Take the rows of the `n_classes` classes with most rows, and number the classes from 0.

    Of classes with equally many rows the first come first. The paper says "a filtered subset (198
    classes)" and not which; the two smallest of the 200 are the natural ones to go.
    """
    class_sizes = np.bincount(data.labels)
    by_falling_size = np.argsort(-class_sizes, kind="stable")
    classes = np.sort(by_falling_size[:n_classes])

    is_taken = np.isin(data.labels, classes)
    new_labels = np.searchsorted(classes, data.labels[is_taken])
    return ImageFeatures(data.features[is_taken], new_labels)


def find_imagenet_a(data_home: str | None) -> Path | None:
    """Find the folder or archive of ImageNet-A's images in `data_home`; None if it is not there.

    Without `data_home` the folder is that of the environment variable DCO_DATA_HOME.
    """
    home = data_home or os.environ.get("DCO_DATA_HOME")
    if not home:
        return None
    for name in IMAGENET_A_NAMES:
        if (Path(home) / name).exists():
            return Path(home) / name
    return None


# ---- drawing a split


@dataclass(frozen=True, eq=False)
class RandomSplit:
    """The rows of a data set in random order, with a role for each.

    `row_order` holds row numbers. The first `role_sizes.train` of them train; then come tuning,
    calibration and test rows. Rows that are left over come last and have no role.
    """

    data: ImageFeatures
    row_order: Integers
    role_sizes: RoleSizes

    def rows_to_fit(self, n_from_pool: int = 0) -> ImageFeatures:
        """Return the training rows, and the first `n_from_pool` rows of the pool after them."""
        n_fit = self.role_sizes.train + n_from_pool
        return take_rows(self.data, self.row_order[:n_fit])

    def rows_to_score(self, n_from_pool: int = 0) -> ImageFeatures:
        """Return the rows with a role that `rows_to_fit` does not return: pool, then test."""
        n_fit = self.role_sizes.train + n_from_pool
        return take_rows(self.data, self.row_order[n_fit : self.role_sizes.all])

    @property
    def n_classes(self) -> int:
        """The number of labels."""
        return int(self.data.labels.max()) + 1


def draw_split(
    data: ImageFeatures, role_sizes: RoleSizes, *, seed: int, is_stratified: bool
) -> RandomSplit:
    """Shuffle the rows of a data set and give them their roles, before anything is fitted."""
    if len(data) < role_sizes.all:
        raise ValueError(f"a split takes {role_sizes.all} rows, but there are {len(data)}.")
    rng = np.random.default_rng(seed)
    if is_stratified:
        row_order = shuffle_balanced(data.labels, rng)
    else:
        row_order = rng.permutation(len(data))
    return RandomSplit(data, row_order, role_sizes)


def shuffle_balanced(labels: Integers, rng: np.random.Generator) -> Integers:
    """Return row numbers in a random order whose first n hold each class in its share.

    Each class is in its share to within a row, for every n. A class of m rows is spread evenly over
    the time from 0 to 1: its j-th row (from 0, in random order) comes at time (j + u) / m, with one
    uniform u for each class. Rows are then sorted by time.
    """
    shuffled = rng.permutation(len(labels))
    times: Floats = np.empty(len(labels))
    for label in np.unique(labels):
        rows = shuffled[labels[shuffled] == label]
        times[rows] = (np.arange(len(rows)) + rng.uniform()) / len(rows)
    return np.argsort(times, kind="stable")


# ---- one split: the paper's candidate class


def run_split(seed: int, options: Options, *, study: Study) -> list[Row]:
    """Run every method at every level on one random split of a data set (`study`).

    Methods choose among the paper's 16 candidates, once on raw and once on standardised features.
    Some data sets also have the stronger candidates of `beyond_classification`. The rows that are
    returned say what each method chose, and how its sets did on the test rows.
    """
    scale = study.scale_of(options)
    data = study.rows(options)
    split = draw_split(data, scale.role_sizes, seed=seed, is_stratified=study.is_stratified)

    rows: list[Row] = []
    for features in FEATURES:
        fitter = HeadFitter(split, features, seed, scale.training)
        rows += run_paper_class(fitter, alphas=options.alphas, with_ratios=features == "raw")
    if study.has_stronger_class:
        rows += run_stronger_class(split, alphas=options.alphas)
    return [round_row(row) for row in rows]


@dataclass(frozen=True, eq=False)
class HeadFitter:
    """Trains candidates of the paper's class on rows of one split, and scores the rows after them.

    Candidates are asked for by name ("cand_001"); a head is trained once for both of its scores.
    """

    split: RandomSplit
    features: Features
    seed: int
    training: Training

    def fit_on_train(self, names: Iterable[str]) -> dict[str, ScoreTable]:
        """Train on the training rows; score the pool and the test rows."""
        return self._fit_and_score(list(names), n_from_pool=0, seed=self.seed)

    def fit_on_train_and_tune(self, names: Iterable[str]) -> dict[str, OnRoles]:
        """Train on training and tuning rows; score the calibration and the test rows."""
        role_sizes = self.split.role_sizes
        seed = self.seed + REFIT_SEED_OFFSET
        tables = self._fit_and_score(list(names), n_from_pool=role_sizes.tune, seed=seed)
        return divide_into_roles(tables, n_tune=0, n_pool=role_sizes.calibrate)

    def _fit_and_score(
        self, names: Sequence[str], *, n_from_pool: int, seed: int
    ) -> dict[str, ScoreTable]:
        """Train the networks of some candidates, and score the rows after those that train.

        A candidate ("cand_001") is a network (head) with a score; some share a network. The pool
        has the rows that tune or calibrate: the first `n_from_pool` of them train too. Returned is
        {candidate: scores of every label of the other rows of the pool and of the test rows}.
        """
        head_numbers = {CANDIDATE_BY_NAME[name].head_number for name in names}
        rows_to_fit = self.split.rows_to_fit(n_from_pool)
        heads = train_heads(
            rows_to_fit.features,
            rows_to_fit.labels,
            sorted(head_numbers),
            standardise=self.features == "standardised",
            seed=seed,
            training=self.training,
        )

        rows_to_score = self.split.rows_to_score(n_from_pool)
        return score_heads(
            heads,
            names,
            rows_to_score.features,
            rows_to_score.labels,
            n_classes=self.split.n_classes,
        )


def run_paper_class(fitter: HeadFitter, *, alphas: Sequence[float], with_ratios: bool) -> list[Row]:
    """Run every method of the paper at every level on one split.

    `fitter` trains the paper's 16 candidates. The rows that are returned say what each method
    chose, how its sets did on the test rows, and how all candidates did on the tuning rows.
    `with_ratios` adds DCO with other shares of tuning rows.
    """
    # 1. Train the candidates. At each level methods choose among them on the tuning rows.
    role_sizes = fitter.split.role_sizes
    score_tables = fitter.fit_on_train(CANDIDATE_BY_NAME)
    tasks = [make_task(score_tables, role_sizes, alpha=alpha) for alpha in alphas]

    # 2. Train the winners again on training and tuning rows, for the methods that refit.
    refitted = fitter.fit_on_train_and_tune({task.ranking.best for task in tasks})

    # 3. Measure what every method deploys.
    rows: list[Row] = []
    for task, alpha in zip(tasks, alphas, strict=True):
        task_with_refits = add_refits(task, refitted)
        rows += run_methods(task_with_refits, features=fitter.features, seed=fitter.seed)
        rows.append(describe_tuning(task, alpha, features=fitter.features, n_test=role_sizes.test))
        if with_ratios:
            rows += run_ratios(score_tables, role_sizes, alpha=alpha, features=fitter.features)
    return rows


def make_task(
    score_tables: Mapping[str, ScoreTable],
    role_sizes: RoleSizes,
    *,
    alpha: float,
    n_tune: int | None = None,
    fixed_candidate: str = FIXED_CANDIDATE.name,
) -> Task:
    """Make the task that methods solve: to choose among candidates at one level.

    Parameters
    ----------
    score_tables:
        The label scores of each candidate on the rows of the pool, then the test rows.
    role_sizes:
        The number of rows of each role.
    alpha:
        The miscoverage level.
    n_tune:
        Rows of the pool that tune; the others calibrate. By default the number in `role_sizes`.
    fixed_candidate:
        The candidate of methods that do not search, by default the paper's φ₀.
    """
    if n_tune is None:
        n_tune = role_sizes.tune
    any_table = next(iter(score_tables.values()))
    return Task(
        candidates=divide_into_roles(score_tables, n_tune=n_tune, n_pool=role_sizes.pool),
        y_tune=any_table.labels[:n_tune],
        fixed=fixed_candidate,
        alpha=alpha,
    )


def add_refits(task: Task, refitted: Mapping[str, OnRoles]) -> Task:
    """Return the task with candidates that were fitted again on training and tuning rows, by name.

    Methods that refit deploy these in place of the ones they chose among.
    """
    return replace(task, refit=refitted.__getitem__)


def run_methods(task: Task, *, features: str, seed: int) -> list[Outcome]:
    """Run every method of the paper's tables at one level, and measure its sets on the test rows.

    A method chooses a candidate and a threshold for the task. `seed` is for the Dirichlet draws of
    BQ's confidence.
    """
    outcomes: list[Outcome] = []
    for title, method in HEAD_METHODS.items():
        choice = method(task)
        outcome = measure(title, choice, features=features)
        if title == "BQ":
            outcome = add_confidence(outcome, choice, seed)
        outcomes.append(outcome)
    return outcomes


def measure(title: str, choice: Choice, *, features: str) -> MethodOutcome:
    """Measure the sets of a method on the test rows: coverage, mean size and P95 (95 % quantile).

    `choice` has the candidate and the threshold that the method deploys. `title` names the method
    in tables, and `features` ("raw", "standardised", ...) what the candidate reads.
    """
    threshold = choice.threshold
    test_rows = choice.deployed.test
    assert test_rows is not None
    assert threshold.rank is not None
    sizes = test_rows.sizes(threshold.value)

    # The paper numbers its candidates; others are recorded by name.
    paper_candidate = CANDIDATE_BY_NAME.get(choice.candidate)
    chosen = choice.candidate if paper_candidate is None else paper_candidate.number
    return MethodOutcome(
        features=features,
        method=title,
        alpha=threshold.alpha,
        chosen=chosen,
        threshold=threshold.value,
        rank=threshold.rank,
        n=threshold.n,
        n_test=len(sizes),
        coverage=float(np.mean(test_rows.scores <= threshold.value)),
        size=float(sizes.mean()),
        p95=size_quantile(sizes, 0.95),
    )


def add_confidence(outcome: MethodOutcome, choice: Choice, seed: int) -> BQOutcome:
    """Add to the outcome of BQ how confident it is that the risk at its threshold is at most alpha.

    BQ (Bayesian quadrature) computes this confidence, the paper's P(L+ <= alpha), from the 0/1
    losses of the rows that it calibrates on. It is computed exactly, and estimated by random draws
    as in the paper.
    """
    calibration_scores = choice.deployed.pool.scores
    losses = (calibration_scores > choice.threshold.value).astype(float)
    exact = bq_confidence(losses, alpha=outcome.alpha)
    drawn = bq_confidence(
        losses,
        alpha=outcome.alpha,
        method="dirichlet",
        draws=DRAWS,
        random_state=np.random.default_rng(seed),
    )
    return BQOutcome(**outcome.cells(), confidence=exact, confidence_drawn=drawn)


def describe_tuning(task: Task, alpha: float, *, features: str, n_test: int) -> TuningOutcome:
    """Make the record row that says how every candidate did on the tuning rows of a split.

    Each field is a list with one entry per candidate, in the order of the task: its best threshold
    there, the mean and P95 size of its sets. `n_test`, the number of test rows, is just noted.
    """
    trials = [task.ranking[name] for name in task.candidates]
    return TuningOutcome(
        features=features,
        candidates=[CANDIDATE_BY_NAME[trial.name].number for trial in trials],
        alpha=alpha,
        thresholds=[trial.ranking_threshold for trial in trials],
        sizes=[trial.mean_size for trial in trials],
        p95s=[trial.p95_size for trial in trials],
        feasible=[trial.feasible for trial in trials],
        n_test=n_test,
    )


def run_ratios(
    score_tables: Mapping[str, ScoreTable], role_sizes: RoleSizes, *, alpha: float, features: str
) -> list[RatioOutcome]:
    """Run DCO with several shares of tuning rows on one split, as in the paper's Table 6.

    The pool is the rows that either tune or calibrate: with the ratio "20/80" 20 % of it tune and
    80 % calibrate. `score_tables` has the scores of each candidate on the pool and the test rows.
    """
    outcomes: list[RatioOutcome] = []
    for ratio, tuning_share in RATIOS.items():
        n_tune = round(tuning_share * role_sizes.pool)
        task = make_task(score_tables, role_sizes, alpha=alpha, n_tune=n_tune)
        outcome = measure("DCO-Warmstart", DCO(task), features=features)
        outcomes.append(RatioOutcome(**outcome.cells(), ratio=ratio))
    return outcomes


# ---- one split: the stronger class


def run_stronger_class(split: RandomSplit, *, alphas: Sequence[float]) -> list[Row]:
    """Run DCO with the stronger candidates of `beyond_classification` at every level on one split.

    Four methods take the paper's number of tuning rows: they deploy one candidate that was fixed
    beforehand, or the winner on the tuning rows, each with and without a refit that adds the tuning
    rows to the training rows. The fifth, the auto split, refits the winner on as many tuning rows
    as the choice needs; the others calibrate.
    """
    score_tables = fit_stronger_class(split)

    # 1. The tasks with the paper's number of tuning rows.
    tasks = make_stronger_tasks(
        split,
        score_tables,
        n_tune=split.role_sizes.tune,
        alphas=alphas,
        also_refit=[FIXED_STRUCTURE],
    )

    # 2. The tasks with the number of tuning rows that the auto split takes.
    n_pool = split.role_sizes.pool
    pool_tables = {name: table.rows(0, n_pool) for name, table in score_tables.items()}
    auto_split = choose_tuning_size(pool_tables, alphas=alphas)
    auto_tasks = make_stronger_tasks(split, score_tables, n_tune=auto_split.n_tune, alphas=alphas)

    # 3. Measure what every method deploys.
    rows: list[Row] = []
    for task, auto_task in zip(tasks, auto_tasks, strict=True):
        for title in (STRONG_FIXED, STRONG_FIXED_REFIT, STRONG_SEARCHED, STRONG_REFIT):
            choice = METHOD_BY_TITLE[title](task)
            rows.append(measure(title, choice, features=STRONG_FEATURES))
        auto_choice = DCO_REFIT(auto_task)
        outcome = measure(STRONG_AUTO_SPLIT, auto_choice, features=STRONG_FEATURES)
        rows.append(
            AutoSplitOutcome(
                **outcome.cells(), n_tune=auto_split.n_tune, settled=auto_split.has_settled
            )
        )
    return rows


def fit_stronger_class(
    split: RandomSplit, *, n_from_pool: int = 0, names: Collection[str] | None = None
) -> dict[str, ScoreTable]:
    """Fit the stronger candidates on one split, and score the rows that they were not fitted on.

    They are fitted on the training rows and on the first `n_from_pool` rows of the pool (the rows
    that tune or calibrate). By default all candidates are fitted, otherwise those in `names`.
    """
    rows_to_fit = split.rows_to_fit(n_from_pool)
    rows_to_score = split.rows_to_score(n_from_pool)
    return score_structures(
        rows_to_fit.features,
        rows_to_fit.labels,
        rows_to_score.features,
        rows_to_score.labels,
        n_classes=split.n_classes,
        names=names,
    )


def make_stronger_tasks(
    split: RandomSplit,
    score_tables: Mapping[str, ScoreTable],
    *,
    n_tune: int,
    alphas: Sequence[float],
    also_refit: Sequence[str] = (),
) -> list[Task]:
    """Make the task of each level: to choose among the stronger candidates and calibrate.

    Parameters
    ----------
    split:
        The rows, and their roles.
    score_tables:
        The scores of all candidates on the rows that tune, calibrate or test, in this order.
    n_tune:
        The number of rows that tune; those after them calibrate.
    alphas:
        The levels.
    also_refit:
        Candidates that are fitted again with the tuning rows, beside the winner of each level.
    """
    tasks = [
        make_task(
            score_tables,
            split.role_sizes,
            alpha=alpha,
            n_tune=n_tune,
            fixed_candidate=FIXED_STRUCTURE,
        )
        for alpha in alphas
    ]

    # Fit the winners again with the tuning rows, once for all levels.
    winners = [task.ranking.best for task in tasks]
    names = list(dict.fromkeys([*also_refit, *winners]))
    tables_after_refit = fit_stronger_class(split, n_from_pool=n_tune, names=names)

    # These tables begin with the calibration rows: the tuning rows were fitted.
    n_calibrate = split.role_sizes.pool - n_tune
    refitted = divide_into_roles(tables_after_refit, n_tune=0, n_pool=n_calibrate)
    return [add_refits(task, refitted) for task in tasks]


# ---- the auto split: how many rows tune


def choose_tuning_size(
    pool_tables: Mapping[str, ScoreTable], *, alphas: Sequence[float]
) -> TuningSize:
    """Choose how many rows of the pool tune: as many as it takes until selection has settled.

    Selection has settled where other tuning rows would hardly give smaller sets. The pool is the
    rows that tune or calibrate; `pool_tables` has the scores of each candidate on them, in random
    order. Whether to take more is decided by the rows taken and no others, so that the rows left
    still calibrate with a guarantee. One number serves all levels.
    """
    any_table = next(iter(pool_tables.values()))
    n_pool = len(any_table)
    n_for_finite_threshold = smallest_marginal_n(alpha=min(alphas))
    n_calibrate = max(n_pool // CALIBRATION_PART, n_for_finite_threshold)
    return grow_tuning_split(
        partial(has_settled_at_every_level, pool_tables, alphas),
        start=n_pool // FIRST_TUNING_PART,
        largest=n_pool - n_calibrate,
        growth=TUNING_GROWTH,
    )


def has_settled_at_every_level(
    pool_tables: Mapping[str, ScoreTable], alphas: Sequence[float], n_tune: int
) -> bool:
    """Say whether the first `n_tune` rows are enough to choose a candidate at every level.

    They are if choosing on bootstrap samples of them, in place of them, makes the sets larger by at
    most `SETTLED_REGRET`, 1 % of the mean size. `pool_tables` has the scores of each candidate.
    """
    candidates = {
        name: to_scored_rows(table.rows(0, n_tune)) for name, table in pool_tables.items()
    }
    for alpha in sorted(alphas):  # the smallest settles last, so it is asked first
        stability = bootstrap_stability(
            candidates,
            alpha=alpha,
            rng=np.random.default_rng(n_tune),
            repetitions=BOOTSTRAP_REPETITIONS,
        )
        if stability.relative_regret > SETTLED_REGRET:
            return False
    return True
