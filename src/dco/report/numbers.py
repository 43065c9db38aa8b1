"""The numbers of a report: what a fitted estimator does on new rows, at its level and at others.

Nothing here knows about HTML.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
SIMULTANEOUS_DELTA = 0.05  # how often the bound fails that holds for a level picked by its result
MOST_CONDITIONS = 12  # that are shown, the largest ones

# A long tail of scores is cut off so many times as far above the median as the 95 % quantile is.
LONG_TAIL = 4
ROUNDING_SLACK = 1e-9  # a score that rounding pushed below an edge belongs above it


@dataclass(frozen=True)
class LevelNumbers:
    """What a report knows at one level, alpha.

    Attributes
    ----------
    threshold, expected_coverage
        None where each condition (a group of rows with a threshold of its own) has another.
    likely_low, likely_high
        The range that holds coverage with probability 90 %: the coverage of the rows of the page,
        or without rows that of all new rows. None where the distribution of coverage is unknown.
    simultaneous_bound
        A lower bound of coverage that holds at all levels at once.
    coverage, mean_size, p95_size
        What was measured on the rows of the page; None without rows.
    """

    alpha: float
    threshold: float | None = None
    expected_coverage: float | None = None
    likely_low: float | None = None
    likely_high: float | None = None
    simultaneous_bound: float | None = None
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
    """What the rows of the page show at the level that was certified.

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
    """What a report shows.

    ``levels[certified_position]`` is the level that was certified. `why_no_law` says why the
    distribution of coverage is not known; None if it is. `score_edges` are the edges of the bins of
    all `histograms`. `rows` is None where no rows were given. `n_classes` is None for a regressor.
    """

    certificate: Certificate
    ranking: Ranking
    n_classes: int | None
    why_no_law: str | None
    levels: tuple[LevelNumbers, ...]
    certified_position: int
    score_edges: Floats
    histograms: tuple[ScoreHistogram, ...]
    rows: RowNumbers | None

    @property
    def certified(self) -> LevelNumbers:
        """The figures of the level that was certified."""
        return self.levels[self.certified_position]

    @property
    def evaluation(self) -> Evaluation | None:
        """The evaluation of the rows given at the level that was certified."""
        return None if self.rows is None else self.rows.evaluation


def report_numbers(
    estimator: FittedEstimator, X: Any = None, y: Any = None, *, by: Any = None
) -> ReportNumbers:
    """Compute the numbers that a report shows of a fitted estimator.

    `X` and `y` are new rows, which were not used for the fit. Without them the report has no
    coverage and no set sizes, since both would look better on the calibration rows than they are.
    `by` slices the rows, as in ``estimator.evaluate``.
    """
    check_arguments(estimator, X, y, by)
    predictor = estimator.predictor_
    certificate = estimator.certificate_

    # 1. What the calibration rows say: a threshold for each level, and histograms of their scores.
    score_edges, histograms = score_histograms(estimator)
    alphas = level_grid(certificate.alpha)
    levels = [level_without_rows(estimator, alpha) for alpha in alphas]

    # 2. New rows, if any: coverage and sizes at each level.
    rows = None
    if X is not None:
        evaluation = evaluate_new_rows(estimator, X, y, by)
        evaluated = EvaluatedRows.of(X, as_labels(y), evaluation)
        levels = list(measure_levels(estimator, evaluated, levels))
        rows = row_numbers(estimator, evaluated, evaluation, y)

    classes = predictor.structure.classes
    n_classes = None if classes is None else len(classes)
    return ReportNumbers(
        certificate=certificate,
        ranking=estimator.ranking_,
        n_classes=n_classes,
        why_no_law=predictor.calibration.no_law,
        levels=tuple(levels),
        certified_position=alphas.index(certificate.alpha),
        score_edges=score_edges,
        histograms=histograms,
        rows=rows,
    )


def check_arguments(estimator: object, X: Any, y: Any, by: Any) -> None:
    """Refuse rows without targets, `by` without rows, and an estimator that is not fitted."""
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
    """Evaluate the rows, at the level that was certified.

    Rows of the fit are left out. Where all are rows of the fit, none is left out, and a page would
    show the coverage of rows that were used before: that is an error.
    """
    evaluation: Evaluation = estimator.evaluate(X, y, by=by)
    notes_on_used_rows = [note for note in evaluation.notes if note.kind == "used-rows"]
    if notes_on_used_rows and not evaluation.left_out:
        raise ValueError(
            f"{notes_on_used_rows[0].text} A page needs rows that were used for nothing else."
        )
    return evaluation


@dataclass(frozen=True, eq=False)
class EvaluatedRows:
    """The rows of a page: those at `positions` of X are evaluated, the others are rows of the fit.

    `targets` holds the true values of the evaluated rows only.
    """

    X: Any
    targets: AnyArray
    positions: Integers

    @classmethod
    def of(cls, X: Any, targets: AnyArray, evaluation: Evaluation) -> EvaluatedRows:
        """Leave out the rows that the evaluation left out."""
        positions = np.setdiff1d(np.arange(len(targets)), evaluation.left_out_rows)
        return cls(X, targets[positions], positions)

    def sets(self, estimator: FittedEstimator, alphas: Sequence[float]) -> Iterator[Sets]:
        """Make the sets of the evaluated rows at each level.

        A prediction takes long and serves many levels, as many as fit into memory together.
        """
        n_levels = levels_at_once(estimator, len(self.targets))
        for start in range(0, len(alphas), n_levels):
            some_alphas = list(alphas[start : start + n_levels])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # levels that nobody asked for may be infeasible
                sets_by_level = estimator.predict_set(self.X, alpha=some_alphas)
            for sets in sets_by_level:
                yield sets[self.positions]


def levels_at_once(estimator: FittedEstimator, n_rows: int) -> int:
    """Return for how many levels the sets of so many rows fit into memory together."""
    classes = estimator.predictor_.structure.classes
    bytes_per_row = 16 if classes is None else len(classes)  # two ends, or a mark for each label
    return max(1, BYTES_AT_ONCE // (n_rows * bytes_per_row))


def row_numbers(
    estimator: FittedEstimator, rows: EvaluatedRows, evaluation: Evaluation, y: Any
) -> RowNumbers:
    """Describe the rows at the certified level: set sizes, slices, examples, point predictions.

    `evaluation` is that of the `rows`. `y` is only asked for its name: the targets of a pandas
    table know what their column is called.
    """
    # 1. Predict: a set and a single value for each evaluated row.
    alpha = estimator.certificate_.alpha
    (sets,) = rows.sets(estimator, [alpha])
    all_predictions = np.asarray(estimator.predict(rows.X))
    predictions = all_predictions[rows.positions]
    are_labels = sets.holds_labels

    # 2. Find the length that a set would have without a model; labels have none.
    typical_range = None
    if not are_labels:
        typical_range = middle_range(rows.targets.astype(np.float64), alpha=alpha)

    target_name = str(getattr(y, "name", None) or "target")
    return RowNumbers(
        evaluation=evaluation,
        tables=slice_tables(estimator, evaluation, target=target_name),
        sizes=size_histogram(sets),
        examples=pick_examples(estimator, rows.X, rows.positions, rows.targets, predictions, sets),
        point=point_in_words(rows.targets, predictions, are_labels=are_labels, number=number),
        typical_range=typical_range,
        target=target_name,
    )


def size_histogram(sets: Sets) -> SizeHistogram:
    """Count sets by their size; infinite ones are beyond the last edge."""
    sizes = np.asarray(sets.sizes(), dtype=np.float64)
    finite = sizes[np.isfinite(sizes)]
    if finite.size == 0:
        finite = np.ones(1)  # the histogram is empty but for the last count
    edges = size_edges(finite, classes=sets.n_classes)
    return SizeHistogram(edges, count_in_bins(sizes, edges))


# ---- levels


def level_without_rows(estimator: FittedEstimator, alpha: float) -> LevelNumbers:
    """Compute what the calibration rows alone say about the level `alpha`.

    That is the threshold, and the coverage to expect from it. Where each condition (a group of
    rows) has a threshold of its own, only the bound is known for the level as a whole.
    """
    bound = simultaneous_bound(estimator.certificate_, alpha)
    thresholds = estimator.predictor_.calibrate_at(alpha).facts().thresholds
    has_conditions = len(thresholds) != 1 or thresholds[0].group is not None
    if has_conditions:
        return LevelNumbers(alpha, simultaneous_bound=bound)

    (threshold,) = thresholds
    likely_high = threshold.coverage_high
    if threshold.coverage_low is not None and likely_high is None:
        likely_high = 1.0  # where calibration scores are tied, only the lower end is known
    return LevelNumbers(
        alpha=alpha,
        threshold=threshold.value,
        expected_coverage=threshold.expected_coverage,
        likely_low=threshold.coverage_low,
        likely_high=likely_high,
        simultaneous_bound=bound,
    )


def measure_levels(
    estimator: FittedEstimator, rows: EvaluatedRows, levels: Sequence[LevelNumbers]
) -> Iterator[LevelNumbers]:
    """Add to each level what the rows show at it."""
    sets_by_level = rows.sets(estimator, [level.alpha for level in levels])
    for level, sets in zip(levels, sets_by_level, strict=True):
        yield measure_level(estimator, level, sets, rows.targets)


def measure_level(
    estimator: FittedEstimator, level: LevelNumbers, sets: Sets, targets: AnyArray
) -> LevelNumbers:
    """Add to the numbers of a level what some rows show: their coverage, and the sizes of sets.

    `sets` and `targets` have one entry for each row. If the distribution of coverage is known, the
    likely range becomes the one for this number of rows.
    """
    # 1. Measure.
    sizes = np.asarray(sets.sizes(), dtype=np.float64)
    n_rows = len(sizes)
    n_covered = int(np.sum(np.asarray(sets.contains(targets))))
    measured = replace(
        level,
        coverage=n_covered / n_rows,
        mean_size=float(sizes.mean()),
        p95_size=size_quantile(sizes, 0.95),
    )

    # 2. Say which coverage was to be expected: fewer rows have a wider range.
    test = None
    coverage_law = estimator.predictor_.calibrate_at(level.alpha).law
    if coverage_law is not None:
        n_unknown_labels = int(np.sum(~np.asarray(sets.knows(targets))))
        test = coverage_law.judge(n_covered, n_rows, unknown_labels=n_unknown_labels)
    if test is None:
        return replace(measured, likely_low=None, likely_high=None)
    return replace(measured, likely_low=test.low, likely_high=test.high)


def simultaneous_bound(certificate: Certificate, alpha: float) -> float | None:
    """Return a lower bound of coverage that holds at all levels at once with confidence 95 %.

    So it holds even at a level that somebody picks because its result looks good. With conditions
    it holds in each of them separately. None where no bound is known.
    """
    try:
        slack = certificate.simultaneous_slack(SIMULTANEOUS_DELTA)
    except ValueError:
        return None
    return max(0.0, 1 - alpha - slack)


# ---- calibration scores


def score_histograms(estimator: FittedEstimator) -> tuple[Floats, tuple[ScoreHistogram, ...]]:
    """Make a histogram of calibration scores for each condition, all with the same bins.

    A condition is a group of rows with a threshold of its own; without conditions there is one
    histogram, of all rows. Of many conditions the largest are taken. Returns the edges of the bins
    and the histograms. Scores beyond the last edge are counted together.
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
    """Choose bin edges for a histogram of scores: round numbers, from the lowest to the highest.

    A few very high scores would squeeze all others into one bar. So the edges end at
    median + LONG_TAIL * (95 % quantile - median), if the highest score is above that. Scores that
    are infinite, or mark a label that belongs to every set (`LOWEST_SCORE`), are ignored.
    """
    # 1. Find the ends.
    is_ordinary = np.isfinite(scores) & (scores != LOWEST_SCORE)
    ordinary_scores = np.sort(scores[is_ordinary])
    if ordinary_scores.size == 0:
        ordinary_scores = np.array([0.0, 1.0])

    lowest = float(ordinary_scores[0])
    highest = float(ordinary_scores[-1])
    median = size_quantile(ordinary_scores, 0.5)
    p95 = size_quantile(ordinary_scores, 0.95)
    if p95 > median:
        highest = min(highest, median + LONG_TAIL * (p95 - median))

    # 2. Take the multiples of a round step from below the lowest to above the highest.
    step = nice_step(highest - lowest, MOST_BINS)
    first_multiple = math.floor(lowest / step + ROUNDING_SLACK)
    last_multiple = math.floor(highest / step + ROUNDING_SLACK) + 1
    return step * np.arange(first_multiple, last_multiple + 1)
