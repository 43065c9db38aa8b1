"""The numbers of a report: what a fitted estimator does on new rows, at its level and at others.

Nothing here knows about HTML.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dco import Certificate, DecoupledClassifier, DecoupledRegressor, Evaluation, Ranking
from dco.foundations.arrays import AnyArray, Floats, Integers, as_labels
from dco.foundations.comparisons import middle_range, point_in_words
from dco.foundations.histograms import MOST_BINS, count_in_bins, nice_step, size_edges
from dco.foundations.ranks import LOWEST_SCORE, size_quantile
from dco.report.examples import Example, pick_examples
from dco.report.formats import number
from dco.report.slice_tables import SliceTable, slice_tables
from dco.sets import Intervals, IntervalUnions, LabelSets

FittedEstimator: TypeAlias = DecoupledClassifier | DecoupledRegressor
Sets: TypeAlias = LabelSets | Intervals | IntervalUnions

LEVELS = (*(k / 200 for k in range(1, 21)), *(k / 100 for k in range(11, 51)))
BYTES_AT_ONCE = 2**28  # of the sets of several levels, which are made from one prediction
PICKED_DELTA = 0.05  # how often the bound fails that holds for a level picked by its result
MOST_CONDITIONS = 12  # that are shown, the largest ones


@dataclass(frozen=True)
class LevelNumbers:
    """The main figures of one level.

    `threshold` and `expected` are None where conditions have their own. [`low`, `high`] holds the
    coverage of the rows given with probability 90 %, or without rows that of all new rows. What is
    measured on rows is None where none were given.
    """

    alpha: float
    threshold: float | None = None
    expected: float | None = None
    low: float | None = None
    high: float | None = None
    picked_bound: float | None = None
    coverage: float | None = None
    mean_size: float | None = None
    p95_size: float | None = None


@dataclass(frozen=True, eq=False)
class ScoreHistogram:
    """Calibration scores of all rows (condition None) or of one condition, in common bins.

    `n_beyond` scores lie beyond the last edge, infinite ones included.
    """

    condition: str | None
    threshold: float
    counts: Integers
    n_beyond: int


@dataclass(frozen=True, eq=False)
class SizeHistogram:
    """How many sets have which size; the last count is of those beyond the last edge."""

    edges: Floats
    counts: Integers


@dataclass(frozen=True, eq=False)
class RowNumbers:
    """What the rows given show at the level that was certified.

    `typical_range` is the length of the middle 1 - alpha of the targets, None for labels; `point`
    says how good the point prediction is.
    """

    evaluation: Evaluation
    tables: tuple[SliceTable, ...]
    sizes: SizeHistogram
    examples: tuple[Example, ...]
    point: str
    typical_range: float | None
    target: str


@dataclass(frozen=True, eq=False)
class ReportNumbers:
    """What a report shows. ``levels[start]`` is the level that was certified.

    `no_law` says why no law of coverage is known, if none is. `rows` is None where none were given.
    """

    certificate: Certificate
    ranking: Ranking
    n_classes: int | None
    no_law: str | None
    levels: tuple[LevelNumbers, ...]
    start: int
    score_edges: Floats
    histograms: tuple[ScoreHistogram, ...]
    rows: RowNumbers | None

    @property
    def certified(self) -> LevelNumbers:
        """The figures of the level that was certified."""
        return self.levels[self.start]

    @property
    def evaluation(self) -> Evaluation | None:
        """The evaluation of the rows given at the level that was certified."""
        return None if self.rows is None else self.rows.evaluation


def report_numbers(
    estimator: FittedEstimator, X: Any = None, y: Any = None, *, by: Any = None
) -> ReportNumbers:
    """Compute the numbers that a report shows of a fitted estimator.

    `X` and `y` are rows that were used for nothing else. Without them the report has no coverage
    and no size: calibration rows are never used in their place. `by` slices the rows, as in
    ``estimator.evaluate``.
    """
    check_arguments(estimator, X, y, by)
    predictor = estimator.predictor_
    certificate = estimator.certificate_

    # 1. The calibration alone: a threshold for each level, and histograms of its scores.
    score_edges, histograms = score_histograms(estimator)
    alphas = level_grid(certificate.alpha)
    levels = [level_without_rows(estimator, alpha) for alpha in alphas]

    # 2. New rows, if any: coverage and sizes at each level.
    rows = None
    if X is not None:
        evaluation = evaluate_new_rows(estimator, X, y, by)
        judged = JudgedRows.of(X, as_labels(y), evaluation)
        levels = list(levels_on_rows(estimator, judged, levels))
        rows = row_numbers(estimator, judged, evaluation, y)

    classes = predictor.structure.classes
    n_classes = None if classes is None else len(classes)
    return ReportNumbers(
        certificate=certificate,
        ranking=estimator.ranking_,
        n_classes=n_classes,
        no_law=predictor.calibration.no_law,
        levels=tuple(levels),
        start=alphas.index(certificate.alpha),
        score_edges=score_edges,
        histograms=histograms,
        rows=rows,
    )


def check_arguments(estimator: object, X: Any, y: Any, by: Any) -> None:
    """Raise if rows come without targets, `by` without rows, or the estimator is not fitted."""
    if (X is None) != (y is None):
        raise ValueError("Give X and y together: coverage needs rows with their true values.")
    if X is None and by is not None:
        raise ValueError("by= slices the rows of X and y; give those too.")
    if not hasattr(estimator, "predictor_"):
        raise ValueError(
            f"The report needs a fitted DecoupledClassifier or DecoupledRegressor, got "
            f"{type(estimator).__name__}."
        )


def level_grid(alpha: float) -> tuple[float, ...]:
    """Return the levels of the page, ascending: 0.005, 0.01 ... 0.1, 0.11 ... 0.5, and `alpha`."""
    return tuple(sorted({*LEVELS, alpha}))


# ---- rows


def evaluate_new_rows(estimator: FittedEstimator, X: Any, y: Any, by: Any) -> Evaluation:
    """Evaluate the rows; those of the fit are an error, since a page would show their coverage."""
    evaluation: Evaluation = estimator.evaluate(X, y, by=by)
    about_rows_of_fit = [note for note in evaluation.notes if note.kind == "used-rows"]
    if about_rows_of_fit and not evaluation.left_out:
        raise ValueError(
            f"{about_rows_of_fit[0].text} A page needs rows that were used for nothing else."
        )
    return evaluation


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """The rows given: those at `positions` are evaluated, the others equal rows of the fit."""

    X: Any
    targets: AnyArray
    positions: Integers

    @classmethod
    def of(cls, X: Any, targets: AnyArray, evaluation: Evaluation) -> JudgedRows:
        """Leave out the rows that the evaluation left out."""
        positions = np.setdiff1d(np.arange(len(targets)), evaluation.left_out_rows)
        return cls(X, targets[positions], positions)

    def sets(self, estimator: FittedEstimator, alphas: Sequence[float]) -> Iterator[Sets]:
        """Make the sets of the evaluated rows at each level; one prediction serves many levels."""
        n_levels = levels_at_once(estimator, len(self.targets))
        for start in range(0, len(alphas), n_levels):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # levels that nobody asked for may be infeasible
                of_levels = estimator.predict_set(
                    self.X, alpha=list(alphas[start : start + n_levels])
                )
            for sets in of_levels:
                yield sets[self.positions]


def levels_at_once(estimator: FittedEstimator, n_rows: int) -> int:
    """Return for how many levels the sets of so many rows fit into memory together."""
    classes = estimator.predictor_.structure.classes
    bytes_per_row = 16 if classes is None else len(classes)  # two ends, or a mark for each label
    return max(1, BYTES_AT_ONCE // (n_rows * bytes_per_row))


def row_numbers(
    estimator: FittedEstimator, rows: JudgedRows, evaluation: Evaluation, y: Any
) -> RowNumbers:
    """Compute what the rows show at the level that was certified; `y` may name the targets."""
    alpha = estimator.certificate_.alpha
    (sets,) = rows.sets(estimator, [alpha])
    points = np.asarray(estimator.predict(rows.X))[rows.positions]
    are_labels = sets.holds_labels

    target = str(getattr(y, "name", None) or "target")
    typical_range = None
    if not are_labels:
        typical_range = middle_range(rows.targets.astype(np.float64), alpha=alpha)
    return RowNumbers(
        evaluation=evaluation,
        tables=slice_tables(estimator, evaluation, target=target),
        sizes=size_histogram(sets),
        examples=pick_examples(estimator, rows.X, rows.positions, rows.targets, points, sets),
        point=point_in_words(rows.targets, points, are_labels=are_labels, number=number),
        typical_range=typical_range,
        target=target,
    )


def size_histogram(sets: Sets) -> SizeHistogram:
    """Count sets by their size."""
    sizes = np.asarray(sets.sizes(), dtype=np.float64)
    finite = sizes[np.isfinite(sizes)]
    edges = size_edges(finite if finite.size else np.ones(1), classes=sets.n_classes)
    return SizeHistogram(edges, count_in_bins(sizes, edges))


# ---- levels


def level_without_rows(estimator: FittedEstimator, alpha: float) -> LevelNumbers:
    """Compute what calibration rows imply at one level, before any new row is seen."""
    calibration = estimator.predictor_.at(alpha)
    thresholds = calibration.facts().thresholds
    bound = picked_bound(estimator.certificate_, alpha)
    if len(thresholds) != 1 or thresholds[0].group is not None:
        return LevelNumbers(alpha, picked_bound=bound)

    (threshold,) = thresholds
    high = threshold.coverage_high
    if threshold.coverage_low is not None and high is None:
        high = 1.0  # where scores are tied the law has no upper end
    return LevelNumbers(
        alpha=alpha,
        threshold=threshold.value,
        expected=threshold.expected_coverage,
        low=threshold.coverage_low,
        high=high,
        picked_bound=bound,
    )


def levels_on_rows(
    estimator: FittedEstimator, rows: JudgedRows, levels: Sequence[LevelNumbers]
) -> Iterator[LevelNumbers]:
    """Add what the rows show at each level, and the range that its law expects for them."""
    all_sets = rows.sets(estimator, [level.alpha for level in levels])
    for level, sets in zip(levels, all_sets, strict=True):
        sizes = np.asarray(sets.sizes(), dtype=np.float64)
        n_covered = int(np.sum(np.asarray(sets.contains(rows.targets))))
        n_unknown = int(np.sum(~np.asarray(sets.knows(rows.targets))))
        law = estimator.predictor_.at(level.alpha).law
        test = None
        if law is not None:
            test = law.judge(n_covered, len(sizes), unknown_labels=n_unknown)

        yield LevelNumbers(
            alpha=level.alpha,
            threshold=level.threshold,
            expected=level.expected,
            low=None if test is None else test.low,
            high=None if test is None else test.high,
            picked_bound=level.picked_bound,
            coverage=n_covered / len(sizes),
            mean_size=float(sizes.mean()),
            p95_size=size_quantile(sizes, 0.95),
        )


def picked_bound(certificate: Certificate, alpha: float) -> float | None:
    """Return the coverage that holds at all levels at once with confidence 95 %.

    In each condition separately; None where no bound is known.
    """
    try:
        return max(0.0, 1 - alpha - certificate.simultaneous_slack(PICKED_DELTA))
    except ValueError:
        return None


# ---- calibration scores


def score_histograms(estimator: FittedEstimator) -> tuple[Floats, tuple[ScoreHistogram, ...]]:
    """Count calibration scores in common bins, for each of the largest conditions.

    The axis ends where a long tail begins; the scores beyond are counted.
    """
    conditions = estimator.predictor_.calibration.conditions
    all_scores = np.concatenate([condition.scores for condition in conditions]).astype(np.float64)
    edges = score_edges(all_scores)

    histograms = []
    largest_first = sorted(conditions, key=lambda condition: -condition.scores.size)
    for condition in largest_first[:MOST_CONDITIONS]:
        counts = count_in_bins(condition.scores.astype(np.float64), edges)
        histograms.append(
            ScoreHistogram(
                condition=condition.name,
                threshold=condition.threshold.value,
                counts=counts[:-1],
                n_beyond=int(counts[-1]),
            )
        )
    return edges, tuple(histograms)


def score_edges(scores: Floats) -> Floats:
    """Return the edges of bins for scores: up to the largest, or to where a long tail begins."""
    usual = np.sort(scores[np.isfinite(scores) & (scores != LOWEST_SCORE)])
    if usual.size == 0:
        usual = np.array([0.0, 1.0])

    lowest = float(usual[0])
    top = float(usual[-1])
    middle = size_quantile(usual, 0.5)
    p95 = size_quantile(usual, 0.95)
    if p95 > middle:
        top = min(top, middle + 4 * (p95 - middle))  # a long tail is cut off

    step = nice_step(top - lowest, MOST_BINS)
    first = math.floor(lowest / step + 1e-9)
    last = math.floor(top / step + 1e-9)
    return step * np.arange(first, last + 2)
